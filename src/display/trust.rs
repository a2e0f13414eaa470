//! The lines on whether to believe a run: one if all is well, and words where it is not.

use crate::number::time;
use crate::report::Results;
use crate::trust::{Check, Class, Level};

/// One line; on WARN and FAIL each check that says so, and then what was found about the endpoint.
/// Nothing if nothing was judged. `is_told`: the second line of the report has the cause of a FAIL.
pub fn trust_lines(results: &Results, is_told: bool) -> Vec<String> {
    let trust = &results.trust;
    if trust.checks.is_empty() {
        return Vec::new();
    }
    let noted = |is_ours: bool| {
        trust.checks.iter().filter(move |check| {
            check.level > Level::Ok && (check.class != Class::Endpoint) == is_ours
        })
    };
    let mut lines = match trust.verdict() {
        Level::Ok => vec![labelled("trust OK", &all_well(results))],
        level => {
            let label = if level == Level::Fail { "trust FAIL" } else { "trust WARN" };
            // The worst first; each says its cause and what to do.
            let mut checks: Vec<&Check> = noted(true).collect();
            checks.sort_by_key(|check| (check.class != Class::Instrument, -(check.level as i8)));
            let (own, same): (Vec<&Check>, Vec<&Check>) =
                checks.into_iter().partition(|check| check.brief.is_some());
            let own = own.iter().enumerate();
            let own = own.map(|(index, check)| text(check, level, is_told && index == 0));
            let same: Vec<&str> = same.iter().map(|check| check.name).collect();
            let same = (!same.is_empty()).then(|| format!("same cause: {}", same.join(", ")));
            listed(label, own.chain(same))
        }
    };
    lines.extend(listed("finding", noted(false).map(|check| text(check, Level::Ok, false))));
    lines
}

/// Name, cause and what to do; of a failure the figures too, and only they if the rest is told. In
/// a list of failures a mere warning says that it is one. The files have all figures.
fn text(check: &Check, verdict: Level, is_told: bool) -> String {
    let brief = check.brief.as_ref().unwrap_or(&check.reason);
    match (verdict, check.level) {
        (Level::Fail, Level::Fail) if is_told => match check.figures() {
            "" => format!("{}, see above", check.name),
            figures => format!("{}, see above; {figures}", check.name),
        },
        (Level::Fail, Level::Fail) => format!("{}: {}", check.name, check.reason),
        (Level::Fail, _) => format!("{} (a warning): {brief}", check.name),
        _ => format!("{}: {brief}", check.name),
    }
}

/// What was looked at and found well.
fn all_well(results: &Results) -> String {
    let has = |id: &str| results.trust.checks.iter().any(|check| check.id == id);
    let (sums, mut parts) = (&results.tracked.sums, Vec::new());
    if let (true, Some(worst_ns)) = (has("D1"), sums.lateness.largest()) {
        parts.push("never early".to_owned());
        parts.push(format!("worst delay of ours {}", time(worst_ns)));
    }
    if let Some(busy) = results.tracked.utilisation() {
        parts.push(format!("client {:.0} % busy", 100.0 * busy));
    }
    if has("D2") {
        parts.push("counts add up".to_owned());
    }
    if has("D7") {
        parts.push("clock steady".to_owned());
    }
    parts.join(", ")
}

fn listed(label: &str, texts: impl Iterator<Item = String>) -> Vec<String> {
    texts
        .enumerate()
        .flat_map(|(index, text)| wrapped(if index == 0 { label } else { "" }, &text))
        .collect()
}

/// A text behind its label, in lines that fit a terminal.
fn wrapped(label: &str, text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("it begins with one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > TEXT_COLUMNS {
            lines.push(format!("  {word}"));
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(&lines).map(|(label, line)| labelled(label, line)).collect()
}

fn labelled(label: &str, text: &str) -> String {
    format!("  {label:<13}{text}")
}

/// Columns of a reason, behind its label.
const TEXT_COLUMNS: usize = 85;
