//! D10 and D11: do the samples carry the percentiles?

use super::facts::{Facts, fails, mark_with, percent, percentile_name};
use super::precision::{CONFIDENCE, of_batches};
use super::{Check, Class, Interval, Level, Line, Mark};
use crate::number::{grouped, time};
use crate::snapshot::count_needed;
use crate::statistics::early_stopping::{self, queries_needed};
use crate::statistics::interval::{self, independent_ranks};

/// Percentiles that have an interval.
const INTERVALS: [u32; 3] = [50_000, P99, 99_900];
const P99: u32 = 99_000;
/// Half an interval beyond this share of the value marks the percentile.
const HALF_WIDTH_MAX: f64 = 0.05;
/// Samples so alike that so many are worth one make the interval itself doubtful.
const ALIKE_MAX: f64 = 20.0;
/// Independent samples that must lie above a percentile.
const BEYOND_MIN: f64 = 10.0;

const PRECISION: Line = Line { id: "D10", name: "interval", class: Class::Sampling, unit: "%" };
const SAMPLES: Line = Line { id: "D11", name: "samples", class: Class::Sampling, unit: "requests" };

const WIDE: &str = "wide 95 % interval";
const ALIKE: &str = "few independent answers";

/// A percentile, and what its batches say of it.
pub(super) struct Found {
    milli: u32,
    interval: interval::Interval,
}

/// What is known of p50, p99 and p99.9; empty where the run is too short.
pub(super) fn find(facts: &Facts) -> Vec<Found> {
    let is_told = |milli: &u32| facts.headline().count() >= count_needed(*milli);
    let of = |milli| Some(Found { milli, interval: of_batches(&facts.phase.batches, milli)? });
    INTERVALS.into_iter().filter(is_told).filter_map(of).collect()
}

/// Those with two ends, with what independent samples would give beside them.
pub(super) fn intervals(facts: &Facts, found: &[Found]) -> Vec<Interval> {
    let headline = facts.headline();
    let of = |&Found { milli, interval }: &Found| {
        let (low, high) = independent_ranks(headline.count(), milli, CONFIDENCE);
        let at_rank = |rank: Option<u64>| headline.at_rank(rank?);
        Some(Interval {
            milli,
            low_ns: interval.low?,
            high_ns: interval.high?,
            effective: interval.n_eff,
            independent: at_rank(low).zip(at_rank(high)),
        })
    };
    found.iter().filter_map(of).collect()
}

/// What is not known of p99.9 marks it, but is no warning about the run: few runs are that long.
fn level_of(milli: u32) -> Level {
    if fails(milli) { Level::Warn } else { Level::Ok }
}

/// D10.
pub(super) fn interval_check(
    facts: &Facts,
    found: &[Found],
    is_unstable: bool,
    marks: &mut Vec<Mark>,
) -> Check {
    if is_unstable {
        let reason = "none: as the queue grows, there is no percentile to be near";
        return PRECISION.says(Level::Ok, None, reason);
    }
    if found.is_empty() {
        let reason = "none: fewer than ten slices of 250 ms with answers";
        return PRECISION.says(Level::Ok, None, reason);
    }
    let count = facts.headline().count() as f64;
    let mut level = Level::Ok;
    let (mut widths, mut ends) = (Vec::new(), Vec::new());
    for Found { milli, interval } in found {
        let name = percentile_name(*milli);
        let half = interval.half_width();
        widths.push(match half {
            Some(half) => format!("{name} ±{}", percent(half)),
            None => format!("{name} unknown"),
        });
        if let Some((low, high)) = interval.low.zip(interval.high) {
            ends.push(format!("{name} {} to {}", time(low), time(high)));
        }
        let (reason, detail) = match half {
            None => (WIDE, "no upper end".to_owned()),
            Some(half) if half > HALF_WIDTH_MAX => (WIDE, format!("±{}", percent(half))),
            _ if interval.n_eff * ALIKE_MAX < count => {
                (ALIKE, format!("{} are worth {:.0}", grouped(count as u64), interval.n_eff))
            }
            _ => continue,
        };
        marks.push(mark_with(*milli, reason, detail));
        level = level.max(level_of(*milli));
    }
    let p99 = found.iter().find(|found| found.milli == 99_000);
    let value = p99.and_then(|found| found.interval.half_width()).map(|half| half * 100.0);
    let (widths, ends) = (widths.join(", "), ends.join(", "));
    match level {
        Level::Ok => PRECISION.says(level, value, format!("with 95 % confidence {widths}; {ends}")),
        _ => {
            let brief = format!("{widths}: a longer run narrows it");
            PRECISION.finds(level, value, Some(brief), &ends)
        }
    }
}

/// D11.
pub(super) fn samples_needed(facts: &Facts, found: &[Found], marks: &mut Vec<Mark>) -> Check {
    let count = facts.headline().count();
    if count == 0 {
        return SAMPLES.says(Level::Ok, None, "no answers");
    }
    let mut level = Level::Ok;
    for Found { milli, interval } in found {
        let (effective, needed) = (interval.n_eff, count_needed(*milli));
        if effective * (1.0 - f64::from(*milli) / 1e5) < BEYOND_MIN {
            let detail = format!("worth {effective:.0}, needs {}", grouped(needed));
            marks.push(mark_with(*milli, ALIKE, detail));
            level = level.max(level_of(*milli));
        }
    }
    let told = count_needed(P99);
    if count < told {
        let (has, needs) = (grouped(count), grouped(told));
        let reason = format!("{has} answers, p99 needs {needs}{}", longer(facts, told));
        return SAMPLES.says(level, Some(told as f64), reason);
    }
    // As many times more as a sample is worth less than an independent one.
    let of_p99 = found.iter().find(|found| found.milli == P99);
    let alike = of_p99.map_or(1.0, |found| count as f64 / found.interval.n_eff.max(1.0));
    let needed = (queries_needed(P99) as f64 * alike.max(1.0)).ceil() as u64;
    let early = early_stopping::count_min(P99, early_stopping::LOADGEN);
    let reason = format!(
        "{} answers, as good as {} independent ones for p99; LoadGen's early stopping needs {}, \
         MLPerf's margin {}{}",
        grouped(count),
        grouped((count as f64 / alike) as u64),
        grouped(early),
        grouped(needed),
        longer(facts, needed)
    );
    let brief = "few independent answers for what is marked: a longer run";
    match level {
        Level::Ok => SAMPLES.says(level, Some(needed as f64), reason),
        _ => SAMPLES.finds(level, Some(needed as f64), Some(brief.to_owned()), &reason),
    }
}

/// `, that is 12 s more`.
fn longer(facts: &Facts, needed: u64) -> String {
    let count = facts.headline().count();
    if needed <= count || count == 0 || facts.window_ns == 0 {
        return String::new();
    }
    let more_ns = (needed - count) as f64 / count as f64 * facts.window_ns as f64;
    // A wait of two seconds or more is told in whole ones.
    let whole = if more_ns >= 2e9 { 1e9 } else { 1e6 };
    format!(", that is {} more", time(((more_ns / whole).ceil() * whole) as u64))
}
