//! Whether an open loop held the rate that it was asked to have.

use super::{Results, RunFacts};

/// Share of the scheduled queries that may never have begun in a load that held.
const UNTAKEN_SHARE_MAX: f64 = 0.001;
/// What is proposed after an overload, as a share of what was achieved.
const SUGGESTED_SHARE: f64 = 0.95;

/// Whether the rate held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It did.
    Held,
    /// The queue grew all the time, so that no percentile of the latency exists.
    QueueGrows,
    /// Queries were due and had not begun when the phase ended.
    NeverBegun {
        /// How many.
        untaken: u64,
    },
    /// Queries were dropped, as `--overload drop` says.
    Dropped {
        /// How many.
        dropped: u64,
    },
}

/// Whether the tracked phases of an open loop held their rate; `None` in closed loop.
pub fn hold(results: &Results) -> Option<Hold> {
    let counters = &results.tracked.sums.counters;
    if !results.tracked.sums.has_schedule() {
        return None;
    }
    Some(if results.trust.is_unstable {
        Hold::QueueGrows
    } else if counters.untaken as f64 > UNTAKEN_SHARE_MAX * counters.scheduled as f64 {
        Hold::NeverBegun { untaken: counters.untaken }
    } else if counters.dropped > 0 {
        Hold::Dropped { dropped: counters.dropped }
    } else {
        Hold::Held
    })
}

/// The rate to try after one that did not hold, rounded down to two digits; `None` where nothing
/// was achieved, or where one `-R` does not set the rate.
pub fn suggested_rate(results: &Results) -> Option<f64> {
    constant_rate(results.facts)?;
    let achieved = results.tracked.qps().filter(|qps| *qps > 0.0)?;
    let rate = SUGGESTED_SHARE * achieved;
    let step = 10f64.powi(rate.log10().floor() as i32 - 1);
    Some((rate / step).floor() * step)
}

/// `-R`, if it is the rate throughout.
pub fn constant_rate(facts: &RunFacts) -> Option<f64> {
    match facts.open.as_ref()?.rate {
        crate::config::RateShape::Constant(rate) => Some(rate),
        _ => None,
    }
}

/// A rate as one types it: `36k`, `1500`, `0.42`.
pub fn rate_text(rate: f64) -> String {
    let digits = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let is_whole_thousand = rate >= 10_000.0 && (rate.round() % 1000.0) == 0.0;
    match rate {
        rate if is_whole_thousand => format!("{}k", (rate / 1000.0).round()),
        rate if rate >= 100.0 => format!("{}", rate.round()),
        rate if rate >= 0.01 => digits(rate),
        rate => format!("{rate}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{open_facts, open_recorded, open_run};
    use crate::trust::Trust;

    #[test]
    fn rates_are_typed_as_the_command_line_reads_them() {
        for (rate, text) in [
            (36_000.0, "36k"),
            (1_500_000.0, "1500k"),
            (9_500.0, "9500"),
            (12_345.0, "12345"),
            (99.5, "99.5"),
            (0.5, "0.5"),
            (0.001, "0.001"),
        ] {
            assert_eq!(rate_text(rate), text);
            let read = crate::config::unit::load_rate(text).expect("valid");
            assert!((read - rate).abs() <= 1e-9 * rate, "{text}");
        }
    }

    #[test]
    fn a_load_holds_unless_queries_wait_ever_longer_or_are_left() {
        let facts = open_facts();
        let told = |is_unstable, untaken, dropped| {
            let mut recording = open_recorded(10_000);
            recording.counters.untaken = untaken;
            recording.counters.dropped = dropped;
            recording.counters.scheduled += untaken + dropped;
            let run = open_run(&recording);
            let trust = Trust { is_unstable, ..Trust::default() };
            hold(&Results::with_trust(&run, &facts, vec![trust])).expect("an open loop")
        };
        assert_eq!(told(false, 0, 0), Hold::Held);
        assert_eq!(told(false, 10, 0), Hold::Held, "the last instants of a phase");
        assert_eq!(told(false, 11, 0), Hold::NeverBegun { untaken: 11 });
        assert_eq!(told(false, 0, 1), Hold::Dropped { dropped: 1 });
        assert_eq!(told(true, 11, 1), Hold::QueueGrows);
    }

    #[test]
    fn the_rate_to_try_is_a_little_below_what_was_achieved() {
        let facts = open_facts();
        let mut recording = open_recorded(10_000);
        // 10 000 answers in 262.5 ms are 38 095/s.
        recording.last_complete_ns = 1_262_500_000;
        let mut run = open_run(&recording);
        run.phases[0].load_end_ns = 0;
        run.phases[0].issue_end_ns = 1_262_500_000;
        let rate = suggested_rate(&Results::with_trust(&run, &facts, Vec::new())).expect("a rate");
        assert_eq!(rate_text(rate), "36k");
    }
}
