//! `-d auto` in words: what to expect before the run, and what came of it.

use crate::config::Precision;
use crate::number::{counted, time};
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
        return format!(
            "  precision    {} % of {name} not reached: too few answers to tell how well it is",
            percent(share)
        );
    };
    let known = format!("  precision    {name} ± {} %", percent(width));
    if let Some(after_ns) = phase.precise_after_ns {
        return format!("{known}, reached after {}", time(rounded_ns(after_ns)));
    }
    // The last slices came after the last look, or there were ten only then.
    if width <= share {
        return format!("{known}, reached at the end");
    }
    let ran_ns = phase.issue_end_ns.saturating_sub(phase.start_ns);
    let within = match budget_ns.filter(|budget_ns| ran_ns >= *budget_ns) {
        Some(budget_ns) => format!("within the budget of {}", time(budget_ns)),
        None => "before the run ended".to_owned(),
    };
    let more = match more_time_ns(&phase.batches, milli_percent, share, ran_ns) {
        None => String::new(),
        Some(ns) if ns > DAY_NS => format!(": {} % would take more than a day", percent(share)),
        Some(ns) => {
            format!(": {} % would take about {} more", percent(share), time(whole_seconds(ns)))
        }
    };
    format!("{known}, not reached {within}{more}")
}

/// `p99`, `p99.9`
fn name(milli_percent: u32) -> String {
    format!("p{}", f64::from(milli_percent) / 1000.0)
}

/// Two digits or three, without needless zeros.
fn percent(share: f64) -> String {
    let decimals = if share < 0.1 { 2 } else { 1 };
    let text = format!("{:.decimals$}", 100.0 * share);
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

/// To 10 ms.
fn rounded_ns(ns: u64) -> u64 {
    ns.saturating_add(5_000_000) / 10_000_000 * 10_000_000
}

fn whole_seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).saturating_mul(1_000_000_000)
}

/// Longer, nobody wants to know by how much.
const DAY_NS: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests {
    use loadgen_shards::limits::INTERVAL_NS;
    use loadgen_shards::phase::PhaseKind;
    use loadgen_shards::recorder::Recording;

    use super::*;

    const P50: Precision = Precision { milli_percent: 50_000, share: 0.05 };

    /// A closed loop of so many slices, whose latencies are 1 ms to 2 ms
    /// in the first, and a step more in each that follows.
    fn phase(slices: u64, step_ns: u64) -> PhaseTotals {
        let mut phase = PhaseTotals::new("performance", PhaseKind::Performance, 1_000);
        for slice in 0..slices {
            let mut recording = Recording::default();
            recording.begin_ns = 1_000 + slice * INTERVAL_NS;
            recording.end_ns = recording.begin_ns + INTERVAL_NS;
            recording.counters.completed = 100;
            (0..100)
                .for_each(|i| recording.service.record(1_000_000 + i * 10_000 + slice * step_ns));
            phase.add(&recording);
        }
        phase.issue_end_ns = 1_000 + slices * INTERVAL_NS;
        phase
    }

    #[test]
    fn what_came_of_it_is_told() {
        let mut reached = phase(40, 1);
        reached.precise_after_ns = Some(10_000_000_000);
        let told = line(P50, &reached, Some(60_000_000_000));
        assert!(told.starts_with("  precision    p50 ± "), "{told}");
        assert!(told.ends_with(" %, reached after 10 s"), "{told}");
        reached.precise_after_ns = Some(3_350_000_000);
        assert!(line(P50, &reached, None).ends_with("reached after 3.35 s"));
        // The same slices, seen to be enough only in the end.
        let told = line(P50, &phase(40, 1), Some(10_000_000_000));
        assert!(told.ends_with(" %, reached at the end"), "{told}");
        let drifting = phase(40, 100_000);
        let told = line(P50, &drifting, Some(10_000_000_000));
        assert!(told.contains(", not reached within the budget of 10 s: 5 % would take"), "{told}");
        let told = line(P50, &drifting, Some(60_000_000_000));
        assert!(told.contains("not reached before the run ended"), "{told}");
        assert!(line(P50, &phase(9, 1), None).contains("5 % of p50 not reached: too few answers"));
    }

    #[test]
    fn before_the_run_there_is_an_estimate() {
        let plan = Phase {
            name: "performance".to_owned(),
            kind: PhaseKind::Performance,
            in_flight: 4,
            schedule: None,
            requests: None,
            duration_ns: Some(900_000_000_000),
            drain_timeout_ns: 0,
        };
        let told = notice(Precision { milli_percent: 99_000, share: 0.05 }, &plan);
        assert_eq!(
            told,
            "p99 to 5 % takes about 70 000 requests of a simple queue at half load; at most 15 min"
        );
    }
}
