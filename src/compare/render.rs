//! The comparison as text, as markdown and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Comparison;
use super::arm::Arm;
use super::figure::{Change, Kind, P_MAX, Row, Sample};
use super::gate::{change_text, no_significance, p_text};
use crate::display::{counted, significant, unit};
use crate::report::printable;

/// For people: findings, table, what is significant, gates.
pub fn text(comparison: &Comparison) -> String {
    let Comparison { arms, findings, rows, judgements } = comparison;
    let mut text = String::new();
    let width = arms.iter().map(|arm| arm.label.chars().count()).max().unwrap_or(0);
    for (index, arm) in arms.iter().enumerate() {
        line(&mut text, &format!("{:width$}  {}", arm.label, arm_text(arm, index)));
    }
    text.push('\n');
    for finding in findings {
        line(&mut text, &format!("{:7}  {}", finding.level.name(), finding.text));
    }
    if !findings.is_empty() {
        text.push('\n');
    }
    text.push_str(&aligned(&cells(arms, rows)));
    text.push('\n');
    significance(arms, rows).iter().for_each(|sentence| line(&mut text, sentence));
    for judgement in judgements {
        let (outcome, detail) = (judgement.outcome.name(), &judgement.detail);
        let (expression, arm) = (&judgement.expression, &judgement.arm);
        line(&mut text, &format!("fail-if {expression}  {arm} {outcome}: {detail}"));
    }
    text
}

/// The same for a comment on a change.
pub fn markdown(comparison: &Comparison) -> String {
    let Comparison { arms, findings, rows, judgements } = comparison;
    let mut text = String::new();
    for (index, arm) in arms.iter().enumerate() {
        let label = inline(&arm.label);
        line(&mut text, &format!("- **{label}**: {}", inline(&arm_text(arm, index))));
    }
    for finding in findings {
        line(&mut text, &format!("- {}: {}", finding.level.name(), inline(&finding.text)));
    }
    text.push('\n');
    for (index, row) in cells(arms, rows).iter().enumerate() {
        let row: Vec<String> = row.iter().map(|cell| inline(cell)).collect();
        line(&mut text, &format!("| {} |", row.join(" | ")));
        if index == 0 {
            let columns = "---:|".repeat(row.len() - 2);
            line(&mut text, &format!("|---|---|{columns}"));
        }
    }
    text.push('\n');
    significance(arms, rows).iter().for_each(|sentence| line(&mut text, &inline(sentence)));
    for judgement in judgements {
        let (outcome, detail) = (judgement.outcome.name(), inline(&judgement.detail));
        let (expression, arm) = (inline(&judgement.expression), inline(&judgement.arm));
        line(&mut text, &format!("- `--fail-if` {expression}, {arm}: **{outcome}**, {detail}"));
    }
    text
}

/// For machines: ns, per second and shares as in the result files; undefined is null.
pub fn json(comparison: &Comparison, exit_code: u8) -> String {
    let Comparison { arms, findings, rows, judgements } = comparison;
    let arms_json = |arm: &Arm| {
        let run = |run: &super::run::Run| {
            json!({
                "source": run.source,
                "complete": run.is_complete(),
                "trust": run.text("/trust/verdict").map(printable),
            })
        };
        let runs: Vec<Value> = arm.runs.iter().map(run).collect();
        json!({ "name": arm.name, "label": arm.label, "runs": runs })
    };
    let finding = |finding: &super::Finding| {
        let level = finding.level.name().to_lowercase();
        json!({ "level": level, "topic": finding.topic, "text": finding.text })
    };
    let judgement = |judgement: &super::Judgement| {
        json!({
            "expression": judgement.expression,
            "arm": judgement.arm,
            "outcome": judgement.outcome.name(),
            "detail": judgement.detail,
        })
    };
    let value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "arms": arms.iter().map(arms_json).collect::<Vec<_>>(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "figures": rows.iter().map(|row| row_json(arms, row)).collect::<Vec<_>>(),
        "fail_if": judgements.iter().map(judgement).collect::<Vec<_>>(),
        "exit_code": exit_code,
    });
    let text = serde_json::to_string_pretty(&value).expect("texts and numbers have a JSON form");
    text + "\n"
}

fn row_json(arms: &[Arm], row: &Row) -> Value {
    let arm_json = |(index, (arm, sample)): (usize, (&Arm, &Sample))| {
        let change = index.checked_sub(1).and_then(|later| row.changes[later]);
        json!({
            "arm": arm.label,
            "median": sample.median(),
            "min": sample.values().first(),
            "max": sample.values().last(),
            "values": sample.values(),
            // Infinite from 0, for which JSON has no number.
            "change": change.map(|change| change.relative).filter(|share| share.is_finite()),
            "p": change.and_then(|change| change.p),
            "significant": change.and_then(|change| change.is_significant()),
        })
    };
    let unit = match row.figure.kind {
        Kind::Time => "ns",
        Kind::Rate => "1/s",
        Kind::Share => "share",
    };
    let arms: Vec<Value> = arms.iter().zip(&row.samples).enumerate().map(arm_json).collect();
    json!({ "figure": row.figure.name, "unit": unit, "arms": arms })
}

fn arm_text(arm: &Arm, index: usize) -> String {
    let runs = counted(arm.runs.len() as u64, "run");
    let name = if arm.name == arm.label { String::new() } else { format!("{}  ", arm.name) };
    let baseline = if index == 0 { ", the baseline" } else { "" };
    format!("{name}{runs}{baseline}")
}

/// The table with its head. The columns of each arm: median, then the spread if it has several
/// runs, then the change if it is not the first, then p if any row has one.
fn cells(arms: &[Arm], rows: &[Row]) -> Vec<Vec<String>> {
    let is_tested = |arm: usize| {
        rows.iter().any(|row| row.changes[arm - 1].is_some_and(|change| change.p.is_some()))
    };
    let mut head = vec![String::new(), String::new()];
    for (index, arm) in arms.iter().enumerate() {
        head.push(arm.label.clone());
        head.extend((arm.runs.len() > 1).then(|| "min..max".to_owned()));
        head.extend((index > 0).then(|| "change".to_owned()));
        head.extend((index > 0 && is_tested(index)).then(|| "p".to_owned()));
    }
    let mut table = vec![head];
    for row in rows {
        let (unit, size) = row_unit(row);
        // The first point parts figure and statistic; that of p99.9 stays.
        let mut cells = vec![row.figure.name.replacen('.', " ", 1), unit.to_owned()];
        for (index, (arm, sample)) in arms.iter().zip(&row.samples).enumerate() {
            cells.push(median_text(sample, size));
            if arm.runs.len() > 1 {
                let spread = sample.spread().map(|(low, high)| {
                    format!("{}..{}", significant(low / size), significant(high / size))
                });
                cells.push(spread.unwrap_or_default());
            }
            if index > 0 {
                let change = row.changes[index - 1];
                cells.push(change.map_or("n/a".to_owned(), |change| change_text(change.relative)));
                if is_tested(index) {
                    cells.push(change.map(p_cell).unwrap_or_default());
                }
            }
        }
        table.push(cells);
    }
    table
}

/// The unit of a row and what it is worth: that of a time is the largest in which every median is
/// at least 1.
fn row_unit(row: &Row) -> (&'static str, f64) {
    unit_of(row.figure.kind, row.samples.iter().filter_map(Sample::median))
}

/// The unit of these values of a figure, and what it is worth.
pub fn unit_of(kind: Kind, values: impl IntoIterator<Item = f64>) -> (&'static str, f64) {
    match kind {
        Kind::Rate => ("/s", 1.0),
        Kind::Share => ("%", 0.01),
        Kind::Time => {
            let values = values.into_iter().filter(|value| *value > 0.0);
            unit(values.fold(f64::INFINITY, f64::min))
        }
    }
}

fn median_text(sample: &Sample, size: f64) -> String {
    let Some(median) = sample.median() else { return "n/a".to_owned() };
    let median = significant(median / size);
    match sample.values().len() {
        known if known == sample.runs => median,
        known => format!("{median} ({known} of {} runs)", sample.runs),
    }
}

/// `0.029 *`; the mark has its place where there is none, so that the digits align.
fn p_cell(change: Change) -> String {
    let Some(p) = change.p else { return String::new() };
    let mark = if change.is_significant() == Some(true) { " *" } else { "  " };
    p_text(p) + mark
}

/// What the marks mean, or why there are none.
fn significance(arms: &[Arm], rows: &[Row]) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut is_any_tested = false;
    for (index, later) in arms[1..].iter().enumerate() {
        let is_tested =
            rows.iter().any(|row| row.changes[index].is_some_and(|change| change.p.is_some()));
        is_any_tested |= is_tested;
        if !is_tested {
            let why = no_significance(&arms[0], later);
            sentences.push(format!("{}: {why}; repeat with --repeats 5", later.label));
        }
    }
    if is_any_tested {
        sentences.push(format!(
            "*: p < {P_MAX} (Mann-Whitney, each row by itself: chance alone marks 1 row in 20)"
        ));
    }
    sentences
}

/// Columns as wide as their widest cell: names to the left, numbers to the right.
pub fn aligned(table: &[Vec<String>]) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let width =
        |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in table {
        let mut padded = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column {
                0 => write!(padded, "  {cell:width$}"),
                1 => write!(padded, " {cell:width$}"),
                _ => write!(padded, "  {cell:>width$}"),
            }
            .expect("a string takes any text");
        }
        line(&mut text, padded.trim_end());
    }
    text
}

/// Adds a line; whatever text is in it, it stays one line.
fn line(text: &mut String, content: &str) {
    text.push_str(&printable(content));
    text.push('\n');
}

/// Text for a cell of a markdown table: no markup, no HTML, no end of the cell.
fn inline(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.trim().chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::arm::tests::arm;
    use super::super::gate::Gate;
    use super::super::run::tests::summary;
    use super::*;

    fn comparison(arms: Vec<Arm>, gates: &[&str]) -> Comparison {
        let gates: Vec<Gate> = gates.iter().map(|text| Gate::parse(text).expect("valid")).collect();
        Comparison::of(arms, &gates, false)
    }

    /// An arm with these p50, µs; its p99 is three times that.
    fn runs(name: &str, p50_us: &[f64]) -> Arm {
        arm(name, p50_us.iter().map(|us| summary(1e9 / us, us * 1e3, us * 3e3)))
    }

    #[test]
    fn two_single_runs_are_told_without_a_spread_and_with_what_is_missing() {
        let (a, mut b) = (runs("old", &[500.0]), runs("new", &[450.0]));
        b.name = "results/new".into();
        let told = text(&comparison(vec![a, b], &["p99>+10%"]));
        assert_eq!(
            told,
            "\
old  1 run, the baseline
new  results/new  1 run

                         old        new   change
  achieved     /s  2 000 000  2 222 222  +11.1 %
  latency p50  µs      500.0      450.0  -10.0 %
  latency p90  µs      500.0      450.0  -10.0 %
  latency p99  ms      1.500      1.350  -10.0 %
  latency max  s       1.000      1.000   +0.0 %
  latency mean µs      500.0      450.0  -10.0 %
  failed       %       0.000      0.000   +0.0 %
  client busy  %       25.00      25.00   +0.0 %

new: no significance: needs 4 runs an arm, has 1 and 1; repeat with --repeats 5
fail-if p99>+10%  new passed: -10.0 % (1.35 ms against 1.50 ms), no significance: needs 4 \
             runs an arm, has 1 and 1
"
        );
    }

    #[test]
    fn several_runs_have_a_spread_and_a_mark_where_four_an_arm_keep_apart() {
        let a = runs("A", &[500.0, 510.0, 520.0, 530.0]);
        let b = runs("B", &[400.0, 410.0, 420.0, 430.0]);
        let told = text(&comparison(vec![a, b], &[]));
        let row = |name: &str| told.lines().find(|line| line.contains(name)).expect("a row");
        let cells: Vec<&str> = row("latency p50").split_whitespace().collect();
        let expected = "latency p50 µs 515.0 500.0..530.0 415.0 400.0..430.0 -19.4 % 0.029 *";
        assert_eq!(cells.join(" "), expected);
        assert!(row("latency max").ends_with("1.000"), "equal values have no mark: {told}");
        assert!(told.contains("Mann-Whitney"), "{told}");
    }

    #[test]
    fn a_figure_that_not_every_run_has_says_so_and_is_never_zero() {
        let mut lacking = summary(1000.0, 5e5, 2e6);
        lacking["qps"] = Value::Null;
        let b = arm("B", [lacking.clone(), summary(500.0, 5e5, 2e6)]);
        let told = text(&comparison(vec![runs("A", &[500.0]), b], &[]));
        assert!(told.contains("500.0 (1 of 2 runs)"), "{told}");
        let told = text(&comparison(vec![runs("A", &[500.0]), arm("B", [lacking])], &[]));
        let row = told.lines().find(|line| line.contains("achieved")).expect("a row");
        assert_eq!(row.matches("n/a").count(), 2, "{row}");
    }

    #[test]
    fn markdown_is_a_table_that_no_name_can_break() {
        let (a, b) = (runs("A", &[500.0]), runs("x|<b>`y`", &[450.0]));
        let told = markdown(&comparison(vec![a, b], &["p99<-1%"]));
        assert!(
            told.contains("|  |  | A | x\\|&lt;b>\\`y\\` | change |\n|---|---|---:|---:|---:|\n"),
            "{told}"
        );
        assert!(told.contains("| latency p50 | µs | 500.0 | 450.0 | -10.0 % |\n"), "{told}");
        assert!(told.contains("- `--fail-if` p99&lt;-1%, "), "{told}");
        assert!(told.contains("**failed**"), "{told}");
    }

    #[test]
    fn json_has_every_value_and_null_for_what_is_not_known() {
        let (a, b) = (runs("A", &[500.0]), runs("B", &[400.0]));
        let told: Value =
            serde_json::from_str(&json(&comparison(vec![a, b], &["p99>1s"]), 0)).expect("JSON");
        let figures = told["figures"].as_array().expect("a list");
        let p50 = figures.iter().find(|row| row["figure"] == "latency.p50").expect("a row");
        assert_eq!(p50["unit"], "ns");
        assert_eq!(p50["arms"][0]["values"], json!([500_000.0]));
        assert_eq!(p50["arms"][0]["change"], Value::Null);
        assert_eq!(p50["arms"][1]["change"], json!(-0.2));
        assert_eq!(p50["arms"][1]["p"], Value::Null);
        assert_eq!(told["arms"][1]["runs"][0]["source"], "B/1");
        assert_eq!(told["fail_if"][0]["outcome"], "passed");
        assert_eq!(told["exit_code"], 0);
    }
}
