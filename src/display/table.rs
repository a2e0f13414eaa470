//! The table of percentiles: a unit per row, aligned, with what is not to be taken at its face.

use std::fmt::Write;

use super::WRITES;
use crate::number::{grouped, roughly, significant, unit};
use crate::report::Results;
use crate::snapshot::{Bounded, Distribution, Sums, count_needed};
use crate::trust::{Interval, Mark, Trust};

/// Columns of the table: heading and 1/1000 %.
const COLUMNS: [(&str, u32); 5] =
    [("p50", 50_000), ("p90", 90_000), ("p95", 95_000), ("p99", 99_000), ("p99.9", 99_900)];
const P99: u32 = 99_000;

/// One line of the table.
struct Row<'a> {
    name: &'static str,
    /// Its name in the marks of the trust block.
    series: &'static str,
    completed: &'a Distribution,
    /// What the columns show, and the largest; `None` without a value.
    values: Option<([Bounded; COLUMNS.len()], Bounded)>,
    count: u64,
    scale: Scale,
    meaning: &'static str,
}

/// What the values of a row are.
#[derive(Clone, Copy)]
enum Scale {
    /// ns, shown in the unit that fits.
    Time,
    /// A number of things, so many times what is shown.
    Count(f64),
}

impl<'a> Row<'a> {
    fn of(
        name: &'static str,
        series: &'static str,
        values: &'a Distribution,
        meaning: &'static str,
    ) -> Row<'a> {
        let exact = |value| Bounded { value, is_at_least: false };
        let columns = COLUMNS.map(|(_, milli)| exact(values.percentile(milli).unwrap_or(0)));
        let all = values.largest().map(|max| (columns, exact(max)));
        let (count, scale) = (values.count(), Scale::Time);
        Row { name, series, completed: values, values: all, count, scale, meaning }
    }

    /// A row of counts, so many times what is shown.
    fn of_counts(name: &'static str, values: &'a Distribution, per: f64) -> Row<'a> {
        Row { scale: Scale::Count(per), ..Row::of(name, "", values, "a request") }
    }

    /// The headline, with the queries that timed out.
    fn headline(sums: &'a Sums, meaning: &'static str) -> Row<'a> {
        let all = sums.headline_with_timeouts();
        let none = Bounded { value: 0, is_at_least: false };
        let columns = COLUMNS.map(|(_, milli)| all.percentile(milli).unwrap_or(none));
        Row {
            values: all.largest().map(|max| (columns, max)),
            count: all.count(),
            ..Row::of("latency", "latency", sums.headline(), meaning)
        }
    }
}

/// The rows that the loop has.
fn rows(sums: &Sums) -> Vec<Row<'_>> {
    let first_byte = Row::of("first byte", "ttfb", &sums.ttfb, "from the send to the first byte");
    let mut list = rows_of_tokens(sums);
    list.extend(if sums.has_schedule() {
        vec![
            Row::headline(sums, "from the schedule to the last byte"),
            Row::of("service", "service", &sums.service, "from the send to the last byte"),
            first_byte,
            Row::of("lateness", "lateness", &sums.lateness, "our own delay"),
        ]
    } else {
        vec![Row::headline(sums, "from the send to the last byte"), first_byte]
    });
    if sums.pool_wait.max > 0 {
        list.push(Row::of("waiting", "pool_wait", &sums.pool_wait, "for a connection"));
    }
    if sums.has_wire_stamps() {
        let from_kernel = "from the kernel's receive stamp to our last byte";
        list.push(Row::of(
            "wire tx",
            "wire_tx",
            &sums.wire_tx,
            "from our send to the kernel's stamp",
        ));
        list.push(Row::of("wire rx", "wire_rx", &sums.wire_rx, from_kernel));
    }
    if let Some(answers) = &sums.answers {
        list.push(Row::of_counts("output tokens", &answers.osl, 1.0));
        list.push(Row::of_counts("input tokens", &answers.isl, 1.0));
        list.push(Row::of_counts("tokens/chunk", &answers.tokens_per_chunk, 1000.0));
    }
    list
}

/// Times to and between tokens.
fn rows_of_tokens(sums: &Sums) -> Vec<Row<'_>> {
    let Some(answers) = sums.answers.as_deref() else { return Vec::new() };
    let to_first = "from the send to the first token";
    let mut list = match sums.has_schedule() {
        true => vec![
            Row::of("TTFT", "ttft", &answers.ttft, "from the schedule to the first token"),
            Row::of("service TTFT", "service_ttft", &answers.service_ttft, to_first),
        ],
        false => vec![Row::of("TTFT", "ttft", &answers.service_ttft, to_first)],
    };
    // Where all is visible it is the same once more.
    let is_other = answers.first_visible.total != answers.service_ttft.total;
    if is_other {
        let meaning = "from the send to the first visible token";
        list.push(Row::of("visible", "first_visible", &answers.first_visible, meaning));
    }
    let tpot = "time per output token, of a request";
    list.push(Row::of("TPOT", "tpot", &answers.tpot, tpot));
    list.push(Row::of("gaps", "chunk_delta", &answers.chunk_delta, "between chunks, of all"));
    list
}

/// The table and, below it, why something in it is marked; empty without a value.
pub fn table(results: &Results) -> String {
    let (sums, trust) = (&results.tracked.sums, &results.trust);
    let p99 = trust.intervals.iter().find(|interval| interval.milli == P99);
    let mut headings = COLUMNS.map(|(name, _)| name.to_owned()).to_vec();
    headings.push("max".to_owned());
    if p99.is_some() {
        headings.push("± p99 (95 %)".to_owned());
    }
    let mut lines = vec![(String::new(), headings, "")];
    let mut notes = Vec::new();
    for row in rows(sums) {
        // Without an answer there is no latency, only time-outs.
        if row.completed.is_empty() {
            continue;
        }
        let Some((columns, max)) = row.values else { continue };
        let (unit, size) = match row.scale {
            Scale::Time => row_unit(columns[0].value, max.value),
            Scale::Count(per) => ("", per),
        };
        let interval = p99.filter(|_| row.series == "latency");
        let cells = cells(&row, &columns, max, size, trust, interval, p99.is_some());
        lines.push((format!("{} {unit}", row.name).trim_end().to_owned(), cells, row.meaning));
        notes.extend(row_notes(&row, trust));
    }
    if lines.len() == 1 {
        return String::new();
    }
    if trust.is_unstable {
        let what = match sums.answers {
            Some(_) => "latency and TTFT: they rise",
            None => "latency: it rises",
        };
        notes.push(format!("  n/a {what} for as long as the queue grows"));
    } else if sums.censored.count() > 0 {
        let count = grouped(sums.censored.count());
        notes.push(format!(
            "  >= latency: {count} timed out, each counted as what it had taken by then"
        ));
    }
    let mut text = aligned(&lines);
    notes.iter().for_each(|note| writeln!(text, "{note}").expect(WRITES));
    text
}

/// One row: the columns, the maximum, and the interval of p99.
fn cells(
    row: &Row,
    columns: &[Bounded],
    max: Bounded,
    size: f64,
    trust: &Trust,
    interval: Option<&Interval>,
    has_intervals: bool,
) -> Vec<String> {
    let number = |value: Bounded, is_at_least: bool| {
        let sign = if value.is_at_least || is_at_least { ">=" } else { "" };
        // Histograms hold a 0 as 1 ns.
        let is_zero = value.value <= 1 && row.completed.min == 0;
        let text = match row.scale {
            _ if is_zero => "0".to_owned(),
            Scale::Count(1.0) => grouped(value.value),
            Scale::Time | Scale::Count(_) => significant(value.value as f64 / size),
        };
        format!("{sign}{text}")
    };
    let mut cells: Vec<String> = COLUMNS
        .iter()
        .zip(columns)
        .map(|((_, milli), value)| {
            let needed = count_needed(*milli);
            if trust.is_unstable && grows_with_the_queue(row) {
                return "n/a".to_owned();
            }
            if row.count < needed {
                return format!("n/a (needs {})", grouped(needed));
            }
            let mut marks = marks(row, trust).filter(|mark| mark.milli == *milli).peekable();
            let is_marked = marks.peek().is_some();
            match (is_marked, marks.any(|mark| mark.is_at_least)) {
                (_, true) => number(*value, true),
                (true, false) => format!("{}*", number(*value, false)),
                (false, false) => number(*value, false),
            }
        })
        .collect();
    cells.push(number(max, false));
    if has_intervals {
        let half = |i: &Interval| i.high_ns.saturating_sub(i.low_ns) as f64 / 2.0 / size;
        cells.push(interval.map_or_else(String::new, |interval| roughly(half(interval))));
    }
    cells
}

/// Whether a row counts from the schedule, so that it has no percentile where the queue grows.
fn grows_with_the_queue(row: &Row) -> bool {
    matches!(row.series, "latency" | "ttft")
}

const US: u64 = 1_000;

/// The unit in which the median is at least 1. A median of 0 (which histograms hold as 1 ns) has
/// none, so that the largest value decides.
fn row_unit(median_ns: u64, max_ns: u64) -> (&'static str, f64) {
    let deciding_ns = match median_ns {
        // Of a row from 40 ns to 60 ms nobody reads the milliseconds in ns.
        2..US if max_ns >= 100 * US => US,
        2.. => median_ns,
        _ => max_ns,
    };
    unit(deciding_ns as f64)
}

fn marks<'a>(row: &Row, trust: &'a Trust) -> impl Iterator<Item = &'a Mark> {
    let series = row.series;
    trust.marks.iter().filter(move |mark| mark.series == series)
}

/// Why columns of a row are marked, each reason once: `* p95 (2 ms without it), p99 of latency: the
/// reason`.
fn row_notes(row: &Row, trust: &Trust) -> Vec<String> {
    struct Note<'a> {
        sign: &'static str,
        reason: &'a str,
        /// Columns, and how much it is there.
        columns: Vec<(&'static str, &'a str)>,
    }
    let mut notes: Vec<Note> = Vec::new();
    // One line says it for all.
    if trust.is_unstable && grows_with_the_queue(row) {
        return Vec::new();
    }
    for (name, milli) in COLUMNS {
        let of_column = || marks(row, trust).filter(|mark| mark.milli == milli);
        if row.count < count_needed(milli) || of_column().next().is_none() {
            continue;
        }
        let sign = if of_column().any(|mark| mark.is_at_least) { ">=" } else { "*" };
        for Mark { reason, detail, .. } in of_column() {
            let is_same = |note: &&mut Note| note.sign == sign && note.reason == reason;
            let column = (name, detail.as_str());
            match notes.iter_mut().find(is_same) {
                Some(note) => note.columns.push(column),
                None => notes.push(Note { sign, reason, columns: vec![column] }),
            }
        }
    }
    let column = |(name, detail): &(&str, &str)| match *detail {
        "" => (*name).to_owned(),
        detail => format!("{name} ({detail})"),
    };
    let line = |Note { sign, reason, columns }: &Note| {
        let columns: Vec<String> = columns.iter().map(column).collect();
        format!("  {sign} {} of {}: {reason}", columns.join(", "), row.name)
    };
    notes.iter().map(line).collect()
}

fn aligned(lines: &[(String, Vec<String>, &str)]) -> String {
    let width = |column: usize| {
        lines.iter().map(|(_, cells, _)| cells[column].chars().count()).max().unwrap_or(0).max(6)
    };
    let label_width = lines.iter().map(|(label, ..)| label.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (label, cells, meaning) in lines {
        let mut line = format!("  {label:<label_width$}");
        for (column, cell) in cells.iter().enumerate() {
            write!(line, "   {cell:>0$}", width(column)).expect(WRITES);
        }
        write!(line, "   {meaning}").expect(WRITES);
        writeln!(text, "{}", line.trim_end()).expect(WRITES);
    }
    text
}
