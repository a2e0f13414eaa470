//! D10 and D11: do the samples carry the percentiles?

use super::facts::{Facts, mark, percent, percentile_name};
use super::precision::{CONFIDENCE, interval};
use super::{Check, Class, Interval, Level, Line, Mark};
use crate::number::{grouped, time};
use crate::snapshot::count_needed;
use crate::statistics::early_stopping::{self, queries_needed};
use crate::statistics::interval::independent_ranks;

/// Percentiles that have an interval.
const INTERVALS: [u32; 3] = [50_000, 99_000, 99_900];
/// Half an interval beyond this share of the value marks the percentile.
const HALF_WIDTH_MAX: f64 = 0.05;
/// Samples so alike that so many are worth one make the interval itself doubtful.
const ALIKE_MAX: f64 = 20.0;
/// Independent samples that must lie above a percentile.
const BEYOND_MIN: f64 = 10.0;

const PRECISION: Line = Line { id: "D10", name: "interval", class: Class::Sampling, unit: "%" };
const SAMPLES: Line = Line { id: "D11", name: "samples", class: Class::Sampling, unit: "requests" };

/// Intervals of p50, p99 and p99.9, as far as the run is long enough.
pub(super) fn intervals(facts: &Facts) -> Vec<Interval> {
    let headline = facts.headline();
    let count = headline.count();
    let of = |milli: u32| {
        let found = interval(&facts.phase.batches, milli)?;
        let (low, high) = independent_ranks(count, milli, CONFIDENCE);
        let independent =
            low.zip(high).and_then(|(low, high)| headline.at_rank(low).zip(headline.at_rank(high)));
        Some(Interval {
            milli,
            low_ns: found.low?,
            high_ns: found.high?,
            effective: found.n_eff,
            independent,
        })
    };
    INTERVALS.into_iter().filter_map(of).collect()
}

/// Half the interval over the value.
fn half_width(facts: &Facts, interval: &Interval) -> Option<f64> {
    let value_ns = facts.headline().percentile(interval.milli).filter(|ns| *ns > 0)?;
    Some((interval.high_ns - interval.low_ns) as f64 / 2.0 / value_ns as f64)
}

/// D10.
pub(super) fn interval_check(
    facts: &Facts,
    intervals: &[Interval],
    marks: &mut Vec<Mark>,
) -> Check {
    let count = facts.headline().count() as f64;
    let mut level = Level::Ok;
    let mut parts = Vec::new();
    for interval in intervals {
        let Some(half) = half_width(facts, interval) else { continue };
        let Interval { milli, low_ns, high_ns, effective, .. } = *interval;
        parts.push(format!(
            "{} between {} and {}",
            percentile_name(milli),
            time(low_ns),
            time(high_ns)
        ));
        let reason = match half {
            half if half > HALF_WIDTH_MAX => format!("95 % interval ±{}", percent(half)),
            _ if effective * ALIKE_MAX < count => {
                format!("{:.0} answers are worth {effective:.0} independent ones", count)
            }
            _ => continue,
        };
        marks.push(mark(milli, &reason));
        level = Level::Warn;
    }
    if intervals.is_empty() {
        let reason = "none: fewer than ten slices of 250 ms with answers, or too few answers";
        return PRECISION.says(Level::Ok, None, reason);
    }
    let p99 = intervals.iter().find(|interval| interval.milli == 99_000);
    let value = p99.and_then(|interval| half_width(facts, interval)).map(|half| half * 100.0);
    let advice = if level > Level::Ok { "; a longer run narrows it" } else { "" };
    PRECISION.says(level, value, format!("with 95 % confidence {}{advice}", parts.join(", ")))
}

/// D11.
pub(super) fn samples_needed(
    facts: &Facts,
    intervals: &[Interval],
    marks: &mut Vec<Mark>,
) -> Check {
    let count = facts.headline().count();
    let mut level = Level::Ok;
    for Interval { milli, effective, .. } in intervals {
        let is_told = count >= count_needed(*milli);
        let beyond = effective * (1.0 - f64::from(*milli) / 1e5);
        if is_told && beyond < BEYOND_MIN {
            let worth = format!("worth {effective:.0} independent answers, needs");
            marks.push(mark(*milli, &format!("{worth} {}", grouped(count_needed(*milli)))));
            level = Level::Warn;
        }
    }
    if count == 0 {
        return SAMPLES.says(level, None, "no answers");
    }
    let milli = 99_000;
    let told = count_needed(milli);
    if count < told {
        let reason = format!(
            "{} answers, p99 needs {}{}",
            grouped(count),
            grouped(told),
            longer(facts, told)
        );
        return SAMPLES.says(level, Some(told as f64), reason);
    }
    // As many times more as a sample is worth less than an independent one.
    let effective = intervals.iter().find(|interval| interval.milli == milli);
    let alike = effective.map_or(1.0, |interval| count as f64 / interval.effective.max(1.0));
    let needed = (queries_needed(milli) as f64 * alike.max(1.0)).ceil() as u64;
    let early = early_stopping::count_min(milli, early_stopping::LOADGEN);
    let reason = format!(
        "{} answers, as good as {:.0} independent ones for p99; LoadGen's early stopping needs {}, \
         MLPerf's margin {}{}",
        grouped(count),
        count as f64 / alike,
        grouped(early),
        grouped(needed),
        longer(facts, needed)
    );
    SAMPLES.says(level, Some(needed as f64), reason)
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
