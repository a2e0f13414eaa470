//! D12: did the endpoint keep up, and did its answers stay alike over the run?

use loadgen_shards::recorder::Counters;

use super::endpoint::connections_short;
use super::facts::{Facts, mark, percent, told};
use super::{Check, Class, Level, Line, Mark};
use crate::number::{rate, time};
use crate::snapshot::{Batch, PERCENTILES};
use crate::statistics::compare::holm;
use crate::statistics::interval::regroup;
use crate::statistics::median;
use crate::statistics::trend::{change_point, first_and_last_third, line, mann_kendall};

/// Queries present that grow by more than this share of the offered rate do not come back.
const GROWTH_MAX: f64 = 0.1;
/// The growth must be larger than chance makes of so many arrivals: three standard deviations.
const GROWTH_SIGMAS: f64 = 3.0;
/// Slices of the issuing window that are needed to see a queue grow.
const SLICES_MIN: usize = 6;
/// After so many median latencies what is present is no longer being filled up for the first time.
const SETTLED_LATENCIES: u64 = 5;
/// A queue that grows makes even the fastest answer slower, by this factor from the first third to
/// the last.
const FASTEST_GROWTH: f64 = 2.0;
/// A trend that chance makes more often is none.
const TREND_P: f64 = 0.01;
/// ... and one that moves its figure by less between the first third and the last is not worth a
/// word; ours, as a long run shows the smallest.
const TREND_MOVE: f64 = 0.05;
/// Points of the series that is looked at for a trend, at most ...
const POINTS_MAX: usize = 60;
/// ... and at least, ...
const POINTS_MIN: usize = 10;
/// ... and answers that each should have, for its p99.
const POINT_ANSWERS: u64 = 100;
/// Planned rates that differ by more than this between the halves are a ramp.
const RAMP_MIN: f64 = 0.01;

const STATIONARITY: Line =
    Line { id: "D12", name: "stationarity", class: Class::Endpoint, unit: "requests/s" };

/// D12, and whether the queue grew all the time.
pub(super) fn stationarity(facts: &Facts, marks: &mut Vec<Mark>) -> (Check, bool) {
    let slices = issuing_slices(facts);
    let growth = growth(facts, slices);
    let full = is_queue_full(facts);
    if full || growth.is_some_and(|growth| growth.is_unstable) {
        let is_ours = connections_short(facts).is_some();
        let whose = if is_ours { "so few connections" } else { "the endpoint" };
        let mut reason = format!(
            "{whose} did NOT hold the rate: the queue grows, so no latency percentile exists"
        );
        if let (Some(growth), Some(offered)) = (growth, facts.rate()) {
            reason += &format!(
                " ({} more requests each second, {} of the {} that come)",
                rate(growth.per_second),
                percent(growth.per_second / offered),
                rate(offered)
            );
        }
        if full {
            reason += "; more waited than a shard keeps";
        }
        reason += if is_ours { ": more connections" } else { ": a lower rate" };
        let why = "the queue grows all the time";
        let all = || PERCENTILES.iter().map(|percentile| mark(percentile.milli, why));
        marks.extend(all());
        // From the schedule too.
        if facts.sums.answers.is_some() {
            marks.extend(all().map(|mark| Mark { series: "ttft", ..mark }));
        }
        let value = growth.map(|growth| growth.per_second);
        return (STATIONARITY.says(Level::Fail, value, reason), true);
    }
    let value = growth.map(|growth| growth.per_second);
    let trends = trends(facts, slices);
    if is_ramp(facts) {
        let reason = "the rate changes by plan, so latencies may too; the queue does not grow";
        return (STATIONARITY.says(Level::Ok, value, reason), false);
    }
    let Some(trends) = trends else {
        let reason = "too short to show a trend";
        return (STATIONARITY.says(Level::Ok, value, reason), false);
    };
    if trends.is_empty() {
        let reason = "no trend of throughput, p50 or p99 over the run";
        return (STATIONARITY.says(Level::Ok, value, reason), false);
    }
    for trend in &trends {
        marks.extend(trend.touches.iter().map(|milli| mark(*milli, &trend.text)));
    }
    let texts: Vec<&str> = trends.iter().map(|trend| trend.text.as_str()).collect();
    let reason = format!("{}: a longer --warmup, or look at the endpoint", texts.join("; "));
    (STATIONARITY.says(Level::Warn, value, reason), false)
}

/// Slices that lie wholly before the end of the issuing.
fn issuing_slices<'a>(facts: &Facts<'a>) -> &'a [Batch] {
    let batches = &facts.phase.batches;
    let whole = (facts.window_ns / batches.width_ns()) as usize;
    &batches.list()[..whole.min(batches.list().len())]
}

/// Requests waited in the schedule, as no more may wait in the shard.
pub(super) fn is_queue_full(facts: &Facts) -> bool {
    let Counters { held_back, untaken, .. } = facts.counters;
    held_back > 0 || untaken >= loadgen_shards::limits::BACKLOG_LIMIT as u64
}

/// How the number of queries in flight or waiting grew over the second half of the issuing: the
/// first may still fill up what one latency holds.
#[derive(Clone, Copy)]
struct Growth {
    per_second: f64,
    is_unstable: bool,
}

fn growth(facts: &Facts, slices: &[Batch]) -> Option<Growth> {
    let schedule = facts.plan.schedule.as_ref()?;
    if slices.len() < SLICES_MIN {
        return None;
    }
    let width_s = facts.phase.batches.width_ns() as f64 / 1e9;
    let half = slices.len() / 2;
    let points = slices[half..]
        .iter()
        .enumerate()
        .filter_map(|(index, slice)| Some((index as f64 * width_s, slice.present(facts.shards)?)));
    let points: Vec<(f64, f64)> = points.collect();
    let rise = line(&points)?;
    let span_s = (slices.len() - half) as f64 * width_s;
    let end_ns = facts.window_ns;
    let begin_ns = end_ns.saturating_sub((span_s * 1e9) as u64);
    let arrivals = schedule.profile.expected(end_ns) - schedule.profile.expected(begin_ns);
    let per_second = rise.slope;
    let is_much = per_second > GROWTH_MAX * arrivals / span_s;
    let is_sure = per_second > GROWTH_SIGMAS * rise.slope_error
        && per_second * span_s > GROWTH_SIGMAS * arrivals.sqrt();
    let is_unstable = is_much && is_sure && (is_settled(facts) || is_fastest_slower(slices));
    Some(Growth { per_second, is_unstable })
}

/// The run is long against the latency. Without an answer it is not.
pub(super) fn is_settled(facts: &Facts) -> bool {
    let median_ns = facts.headline().percentile(50_000);
    median_ns.is_some_and(|ns| facts.window_ns >= SETTLED_LATENCIES * ns)
}

fn is_fastest_slower(slices: &[Batch]) -> bool {
    let third = slices.len() / 3;
    let fastest = |slices: &[Batch]| {
        slices.iter().filter_map(|slice| slice.latencies.first()).map(|(ns, _)| *ns).min()
    };
    let (first, last) = (fastest(&slices[..third]), fastest(&slices[slices.len() - third..]));
    first.zip(last).is_some_and(|(first, last)| last as f64 > FASTEST_GROWTH * first as f64)
}

fn is_ramp(facts: &Facts) -> bool {
    let Some(schedule) = &facts.plan.schedule else { return false };
    let whole = schedule.profile.expected(facts.window_ns);
    let half = schedule.profile.expected(facts.window_ns / 2);
    whole > 0.0 && (half / whole - 0.5).abs() > RAMP_MIN
}

/// A figure that changed over the run.
struct Trend {
    text: String,
    touches: &'static [u32],
}

/// What changed over the run; `None` if it is too short to tell.
fn trends(facts: &Facts, slices: &[Batch]) -> Option<Vec<Trend>> {
    let of_answers = (facts.headline().count() / POINT_ANSWERS) as usize;
    let points = of_answers.min(slices.len()).clamp(POINTS_MIN, POINTS_MAX);
    if slices.len() < points || told(facts.headline(), 50_000).is_none() {
        return None;
    }
    let latencies: Vec<_> = slices.iter().map(|slice| slice.latencies.clone()).collect();
    let groups = regroup(&latencies, points);
    let edge = |group: usize| group * slices.len() / points;
    let completed = (0..points).map(|group| {
        let of_group = &slices[edge(group)..edge(group + 1)];
        of_group.iter().map(|slice| slice.completed as f64).sum::<f64>() / of_group.len() as f64
    });
    let mut series: Vec<(&str, &[u32], Vec<f64>)> = vec![
        ("p50", &[50_000], groups.iter().filter_map(|group| at(group, 0.5)).collect()),
        ("p99", &[99_000, 99_900], groups.iter().filter_map(|group| at(group, 0.99)).collect()),
    ];
    if !facts.is_open {
        series.insert(0, ("throughput", &[], completed.collect()));
    }
    // Both tests of each series, then corrected for their number.
    let tests = series.iter().flat_map(|(.., values)| {
        let trend = mann_kendall(values).map_or(1.0, |trend| trend.p);
        let ends = first_and_last_third(values).map_or(1.0, |ends| ends.p);
        [trend, ends]
    });
    let p_values = holm(&tests.collect::<Vec<f64>>());
    let found = series.iter().zip(p_values.chunks(2)).filter_map(|((name, touches, values), p)| {
        let is_trend = p.iter().any(|p| *p < TREND_P);
        let text = is_trend.then(|| described(name, values, facts))??;
        Some(Trend { text, touches })
    });
    Some(found.collect())
}

/// `p50 rose by 12 % from the first third to the last, most at 4 s`; `None` if that is little.
fn described(name: &str, values: &[f64], facts: &Facts) -> Option<String> {
    let third = values.len() / 3;
    let first = median(&values[..third]).filter(|value| *value > 0.0)?;
    let last = median(&values[values.len() - third..])?;
    let moved = last / first - 1.0;
    let at_ns = change_point(values)
        .filter(|change| change.p < TREND_P)
        .map(|change| facts.window_ns / values.len() as u64 * change.index as u64);
    let most = at_ns.map(|ns| format!(", most at {}", time(ns))).unwrap_or_default();
    let way = if moved > 0.0 { "rose" } else { "fell" };
    (moved.abs() > TREND_MOVE).then(|| {
        format!("{name} {way} by {} from the first third to the last{most}", percent(moved.abs()))
    })
}

/// The value at a share of the counts.
fn at(group: &[(u64, u64)], share: f64) -> Option<f64> {
    let count: u64 = group.iter().map(|(_, count)| count).sum();
    let rank = (count as f64 * share).ceil() as u64;
    let mut below = 0;
    let found = group.iter().find(|(_, count)| {
        below += count;
        below >= rank
    });
    found.map(|(value, _)| *value as f64)
}
