//! The text report, for people: header before the run, answer first after it, what to type next at
//! its end.
//!
//! Plain text without colour, the same on a terminal and in `report.txt`. Every text that came from
//! elsewhere passes through [`printable`].

mod floor;
mod precision;
#[cfg(test)]
mod tests;

pub use precision::notice as precision_notice;

use std::fmt::Write;

use loadgen_shards::phase::PhaseKind;
use loadgen_shards::reactor::EngineReport;

use crate::files;
use crate::plan;
use crate::report::{
    Assessment, Ending, Limit, RunFacts, assess, core_list, ending, little_warning, next_commands,
    printable, without_user_info,
};
use crate::snapshot::{Distribution, Snapshot, Totals, count_needed};

pub use crate::number::{counted, grouped, rate, significant, time, unit};

/// Columns of the table: heading and 1/1000 %.
const COLUMNS: [(&str, u32); 5] =
    [("p50", 50_000), ("p90", 90_000), ("p95", 95_000), ("p99", 99_000), ("p99.9", 99_900)];
/// Features of a back end that the header leaves out.
const FEATURES_UNTOLD: [&str; 3] = ["single-issuer", "no-sqarray", "ring-fd"];
/// Failures below this share are left to the line that counts them.
const FAILED_SHARE_TOLD: f64 = 0.01;

/// The two lines above a run: with what, and what. Printed before it starts.
pub fn header(facts: &RunFacts, engine: &EngineReport) -> String {
    let shards = counted(facts.cores.len() as u64, "shard");
    let cores = if facts.cores.len() == 1 { "core" } else { "cores" };
    let list = core_list(&facts.cores);
    let spin = if facts.spin { ", spinning" } else { "" };
    // The files have them all; these make a difference that one can measure.
    let is_told = |name: &&&str| !FEATURES_UNTOLD.contains(*name);
    let told: Vec<&str> = engine.features.iter().filter(is_told).copied().collect();
    let features = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
    let target = if facts.is_embedded {
        "embedded endpoint: the tool's own ceiling on this host, not your server".to_owned()
    } else {
        targets(facts)
    };
    // No shard was ready: stopped while the connections opened.
    let engine_name = if engine.name.is_empty() { "no engine yet" } else { engine.name };
    let text = format!(
        "loadgen-uring {} · {} · {shards} on {cores} {list}{spin} · {engine_name}{features}\n\
         {target} · {} · {}",
        env!("CARGO_PKG_VERSION"),
        facts.command,
        counted(u64::from(facts.connections), "connection"),
        lengths(&facts.phases),
    );
    text.lines().map(|line| printable(line) + "\n").collect()
}

/// What the reader should know when this binary is no release build.
pub fn build_notice() -> Option<&'static str> {
    cfg!(debug_assertions).then_some(
        "built with debug assertions, so the client is slower than it can be: use a release build",
    )
}

fn targets(facts: &RunFacts) -> String {
    match facts.urls.as_slice() {
        [] => "no URL".to_owned(),
        [url] => without_user_info(url),
        [url, others @ ..] => format!("{} and {} more", without_user_info(url), others.len()),
    }
}

/// `warm-up 2 s, 10 s measured`
fn lengths(phases: &[plan::Phase]) -> String {
    let parts: Vec<String> = phases
        .iter()
        .map(|phase| {
            let length = match (phase.duration_ns, phase.requests) {
                (Some(ns), Some(count)) => {
                    format!("at most {} or {}", time(ns), counted(count, "request"))
                }
                (Some(ns), None) => time(ns),
                (None, Some(count)) => counted(count, "request"),
                (None, None) => "until stopped".to_owned(),
            };
            match phase.kind {
                PhaseKind::Warmup => format!("warm-up {length}"),
                PhaseKind::Performance => format!("{length} measured"),
            }
        })
        .collect();
    parts.join(", ")
}

/// The text after a run, without the header.
pub fn report(snapshot: &Snapshot, facts: &RunFacts) -> String {
    let ending = ending(snapshot);
    let assessment = assess(snapshot, facts);
    let tracked = Totals::of(snapshot.tracked());
    let all = Totals::of(&snapshot.phases);
    let mut text = printable(&answer(snapshot, facts, &tracked, &ending, assessment.as_ref()));
    text.push('\n');
    if let Some(reason) = reason(snapshot, &ending, &tracked, assessment.as_ref()) {
        writeln!(text, "{}", printable(&reason)).expect(WRITES);
    }
    text.push('\n');
    for line in counts(snapshot, &tracked) {
        writeln!(text, "{}", printable(&line)).expect(WRITES);
    }
    let rows = table(&tracked);
    if !rows.is_empty() {
        write!(text, "\n{rows}").expect(WRITES);
    }
    text.push('\n');
    for line in facts_below(snapshot, facts, &all, &tracked, assessment.as_ref()) {
        writeln!(text, "{}", printable(&line)).expect(WRITES);
    }
    let limit = match ending {
        Ending::Complete => assessment.and_then(|assessment| assessment.verdict.limit),
        _ => None, // not told above, so nothing to test below
    };
    text.push_str(&next(facts, &ending, limit));
    text
}

const WRITES: &str = "a string takes any text";

/// The first line: the answer in a sentence.
fn answer(
    snapshot: &Snapshot,
    facts: &RunFacts,
    tracked: &Totals,
    ending: &Ending,
    assessment: Option<&Assessment>,
) -> String {
    let completed = tracked.sums.counters.completed;
    let achieved = tracked.qps().map_or("no".to_owned(), rate);
    match ending {
        Ending::AllFailed { failed, by } => {
            let failed = counted(*failed, "request");
            match by.as_str() {
                "" => format!("No request succeeded: {failed} failed."),
                by => format!(
                    "No request succeeded: {failed} failed, and the run was cut short: {by}."
                ),
            }
        }
        Ending::NothingEnded { issued } => match issued {
            0 => "No request succeeded: none was sent.".to_owned(),
            _ => format!("No request succeeded: {} sent, none answered.", grouped(*issued)),
        },
        Ending::Interrupted { by } => {
            if snapshot.total_duration_ns() == 0 {
                return format!("Cut short before the first request: {by}.");
            }
            let after = time(rounded(snapshot.total_duration_ns()));
            let until = match completed {
                0 => "No measured request had succeeded".to_owned(),
                _ => format!("Until then {achieved} requests/s"),
            };
            format!("Cut short after {after}: {by}. {until}.")
        }
        Ending::DrainTimedOut { in_flight } => format!(
            "{achieved} requests/s, but incomplete: {} had no answer when the drain ended.",
            counted(*in_flight, "request"),
        ),
        Ending::Complete => {
            let cores = counted(facts.cores.len() as u64, "core");
            format!("{achieved} requests/s on {cores}{}.", clauses(tracked, assessment))
        }
    }
}

/// What follows the rate in the first line: many failures, then the limit.
fn clauses(tracked: &Totals, assessment: Option<&Assessment>) -> String {
    let mut text = String::new();
    let ended = tracked.sums.counters.completed + tracked.sums.counters.failed;
    let share = tracked.sums.counters.failed as f64 / ended.max(1) as f64;
    if share >= FAILED_SHARE_TOLD {
        write!(text, ", but {:.1} % of the requests failed", 100.0 * share).expect(WRITES);
    }
    let Some(verdict) = assessment.map(|assessment| &assessment.verdict) else {
        return text;
    };
    match (verdict.limit, verdict.is_inferred) {
        (None, _) => write!(text, "; what limited it is not known"),
        (Some(Limit::Connections), true) => {
            write!(text, "; the limit was probably the number of connections")
        }
        (Some(Limit::Connections), false) => {
            write!(text, "; the limit was the number of connections")
        }
        (Some(limit), true) => write!(text, "; the limit was probably the {}", limit.name()),
        (Some(limit), false) => write!(text, "; the limit was the {}", limit.name()),
    }
    .expect(WRITES);
    text
}

/// The second line: why the first names that limit. Nothing where the run did not come so far.
fn reason(
    snapshot: &Snapshot,
    ending: &Ending,
    tracked: &Totals,
    assessment: Option<&Assessment>,
) -> Option<String> {
    if *ending != Ending::Complete {
        let tally = tracked.sums.failures.iter().max_by_key(|(_, tally)| tally.count);
        return match (ending, tally) {
            (Ending::AllFailed { .. }, Some((kind, tally))) => {
                Some(match snapshot.first_message(tally).as_str() {
                    "" => format!("Most of them: {}.", kind.name()),
                    message => format!("Most of them: {}, first \"{message}\".", kind.name()),
                })
            }
            _ => None,
        };
    }
    let verdict = &assessment?.verdict;
    let mut letters = verdict.reason.chars();
    let sentence: String = letters.next()?.to_uppercase().chain(letters).collect();
    Some(if verdict.is_inferred {
        format!("{sentence} (inferred; the first command below tests it).")
    } else {
        format!("{sentence}.")
    })
}

/// The lines that count queries.
fn counts(snapshot: &Snapshot, tracked: &Totals) -> Vec<String> {
    let counters = &tracked.sums.counters;
    let mut requests = format!(
        "requests   {} ok   {} failed   {} cancelled",
        grouped(counters.completed),
        grouped(counters.failed),
        grouped(counters.cancelled)
    );
    if tracked.in_flight_at_end > 0 {
        let in_flight = grouped(tracked.in_flight_at_end);
        write!(requests, "   {in_flight} without an answer").expect(WRITES);
    }
    let mut lines = vec![format!("  {requests}")];
    let mut label = "failed  ";
    for (kind, tally) in tracked.sums.failures.iter() {
        let mut line = format!("  {label}   {} × {}", grouped(tally.count), kind.name());
        if !tally.first_message.is_empty() {
            write!(line, "  \"{}\"", snapshot.first_message(tally)).expect(WRITES);
        }
        lines.push(line);
        label = "        ";
    }
    let statuses: Vec<(u16, u64)> = tracked.sums.statuses.iter().collect();
    if !matches!(statuses.as_slice(), [] | [(200..=299, _)]) {
        let parts: Vec<String> = statuses
            .iter()
            .map(|(status, count)| format!("{} × {status}", grouped(*count)))
            .collect();
        lines.push(format!("  status     {}", parts.join("   ")));
    }
    lines
}

/// The table of percentiles, a unit per row, columns aligned; empty without a value.
fn table(tracked: &Totals) -> String {
    let rows = [
        ("latency", &tracked.sums.service, "from the send to the last byte"),
        ("first byte", &tracked.sums.ttfb, "from the send to the first byte"),
    ];
    let mut lines = vec![(String::new(), COLUMNS.map(|(name, _)| name.to_owned()).to_vec(), "")];
    lines[0].1.push("max".to_owned());
    for (name, distribution, meaning) in rows {
        let Some(median) = distribution.percentile(50_000) else { continue };
        let (unit, size) = unit(median as f64);
        let label = format!("{name} {unit}");
        lines.push((label, cells(distribution, size), meaning));
    }
    if lines.len() == 1 {
        return String::new();
    }
    let width = |column: usize| {
        lines.iter().map(|(_, cells, _)| cells[column].chars().count()).max().unwrap_or(0).max(6)
    };
    let label_width = lines.iter().map(|(label, ..)| label.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (label, cells, meaning) in &lines {
        let mut line = format!("  {label:<label_width$}");
        for (column, cell) in cells.iter().enumerate() {
            write!(line, "   {cell:>0$}", width(column)).expect(WRITES);
        }
        write!(line, "   {meaning}").expect(WRITES);
        writeln!(text, "{}", line.trim_end()).expect(WRITES);
    }
    text
}

/// One row: the columns, then the exact maximum.
fn cells(distribution: &Distribution, size: f64) -> Vec<String> {
    let mut cells = COLUMNS
        .map(|(_, milli)| {
            let needed = count_needed(milli);
            match distribution.percentile(milli) {
                Some(value) if distribution.count() >= needed => significant(value as f64 / size),
                _ => format!("n/a (needs {})", grouped(needed)),
            }
        })
        .to_vec();
    cells.push(significant(distribution.max as f64 / size));
    cells
}

/// Connections, client, checks, files.
fn facts_below(
    snapshot: &Snapshot,
    facts: &RunFacts,
    all: &Totals,
    tracked: &Totals,
    assessment: Option<&Assessment>,
) -> Vec<String> {
    let counters = &all.sums.counters;
    let mut connections = format!("  connections  {} opened", grouped(counters.connections_opened));
    // A few dozen values fill no row of percentiles; and no latency contains them.
    if let Some(median) = all.sums.connect.percentile(50_000) {
        let most = time(all.sums.connect.max);
        write!(connections, " in {} (median; longest {most})", time(median)).expect(WRITES);
    }
    let more = [
        (counters.connections_reused_stale, "found dead when reused"),
        (counters.retries, "requests sent again for that"),
        (counters.timeouts_after_client_stall, "timeouts after a pause of ours"),
    ];
    for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
        write!(connections, "   {} {what}", grouped(count)).expect(WRITES);
    }
    let mut lines = vec![connections];
    if let Some(busy) = tracked.utilisation() {
        let mut line = format!("  client       {:.0} % busy", 100.0 * busy);
        if let Some(ratio) = assessment.and_then(|assessment| assessment.little_ratio) {
            write!(line, "   latency x rate / connections = {ratio:.2}").expect(WRITES);
        }
        lines.push(line);
    }
    let ratio = assessment.and_then(|assessment| assessment.little_ratio);
    if let Some(warning) = ratio.and_then(little_warning) {
        lines.push(format!("  WARNING      {warning}"));
    }
    if let (Some(precision), Some(phase)) = (facts.precision, snapshot.tracked().last()) {
        let budget_ns = facts.phases.last().and_then(|plan| plan.duration_ns);
        lines.push(precision::line(precision, phase, budget_ns));
    }
    if let Some(floor) = &facts.floor {
        lines.push(floor::line(floor, tracked.sums.service.percentile(50_000)));
    }
    if let Some(dir) = &facts.report_dir {
        lines.push(format!("  files        {}/  ({}, ...)", dir.display(), files::RESULT_SUMMARY));
    }
    lines
}

/// The last three lines.
fn next(facts: &RunFacts, ending: &Ending, limit: Option<Limit>) -> String {
    let commands = next_commands(facts, ending, limit);
    let width = commands.iter().map(|next| next.line.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (label, next) in ["next", "", ""].into_iter().zip(&commands) {
        let line = format!("  {label:<13}{:<width$}  # {}", next.line, next.why);
        writeln!(text, "{}", printable(&line)).expect(WRITES);
    }
    text
}

/// To 10 ms: a time in a sentence needs no more.
fn rounded(ns: u64) -> u64 {
    (ns + 5_000_000) / 10_000_000 * 10_000_000
}
