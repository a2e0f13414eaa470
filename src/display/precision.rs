//! `-d auto` in words: what to expect before the run, and what came of it.

use crate::config::Precision;
use crate::number::{counted, significant, time};
use crate::plan::Phase;
use crate::snapshot::PhaseTotals;
use crate::trust::{half_width, more_time_ns, requests_estimate};

/// About how long it will take; `phase` is the one that it ends.
pub fn notice(precision: Precision, phase: &Phase) -> String {
    let Precision { milli_percent, share } = precision;
    let requests = requests_estimate(milli_percent, share);
    let budget_ns = phase.duration_ns.unwrap_or(u64::MAX);
    let rate = phase.expected() as f64 / budget_ns as f64;
    let length_ns = (requests as f64 / rate) as u64;
    let takes = match phase.schedule.is_some() {
        true => format!(", {} at this rate", time(whole_seconds(length_ns))),
        false => String::new(),
    };
    let budget = match phase.schedule.is_some() && length_ns > budget_ns {
        true => format!("more than the budget of {}", time(budget_ns)),
        false => format!("at most {}", time(budget_ns)),
    };
    format!(
        "{} to {} % takes about {} of a simple queue at half load{takes}; {budget}",
        name(milli_percent),
        percent(share),
        counted(rounded(requests), "request"),
    )
}

/// The line of the report.
pub fn line(precision: Precision, phase: &PhaseTotals, budget_ns: Option<u64>) -> String {
    let Precision { milli_percent, share } = precision;
    let name = name(milli_percent);
    let Some(width) = half_width(&phase.batches, milli_percent) else {
        return format!("  precision    of {name} not known: too few answers, or less than 2.5 s");
    };
    let known = format!("  precision    {name} ± {} %", percent(width));
    if let Some(after_ns) = phase.precise_after_ns {
        return format!("{known}, reached after {}", time(whole_seconds(after_ns)));
    }
    let ran_ns = phase.issue_end_ns.saturating_sub(phase.start_ns);
    let within = match budget_ns.filter(|budget_ns| ran_ns >= *budget_ns) {
        Some(budget_ns) => format!("within the budget of {}", time(budget_ns)),
        None => "before the run ended".to_owned(),
    };
    let more = more_time_ns(&phase.batches, milli_percent, share, ran_ns)
        .map_or(String::new(), |ns| {
            format!(": {} % would take about {} more", percent(share), time(whole_seconds(ns)))
        });
    format!("{known}, not reached {within}{more}")
}

/// `p99`, `p99.9`
fn name(milli_percent: u32) -> String {
    format!("p{}", f64::from(milli_percent) / 1000.0)
}

fn percent(share: f64) -> String {
    let text = significant(100.0 * share);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// To two digits: it is a guess.
fn rounded(count: u64) -> u64 {
    let step = 10u64.pow(count.max(1).ilog10().saturating_sub(1));
    count.div_ceil(step) * step
}

fn whole_seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).saturating_mul(1_000_000_000)
}
