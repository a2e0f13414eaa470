//! D1 and D3: did requests go out when they were due, and all of them?

use loadgen_shards::limits::BACKLOG_LIMIT;
use loadgen_shards::recorder::Counters;
use loadgen_shards::schedule::Process;

use super::causes::causes;
use super::facts::{Facts, fails, mark_with, percent, percentile_name, told};
use super::stationarity::is_queue_full;
use super::{Check, Class, Level, Line, Mark};
use crate::number::{counted, grouped, time};
use crate::snapshot::{Distribution, PERCENTILES};

/// A percentile that our lateness moves by more than this is to be looked at ...
const MOVED_WARN: f64 = 0.05;
/// ... and by more than this, not to be believed.
const MOVED_FAIL: f64 = 0.2;
/// Share of the due requests that never left the schedule, beyond which the load was another one.
const SHORTFALL_FAIL: f64 = 0.001;
/// Standard deviations that the number of planned requests may be off by: chance does more in one
/// plan of 370.
const PLAN_SIGMAS: f64 = 3.0;

const LATENESS: Line =
    Line { id: "D1", name: "dispatch error", class: Class::Instrument, unit: "%" };
const SHORTFALL: Line =
    Line { id: "D3", name: "offered load", class: Class::Instrument, unit: "requests" };

/// D1: how much our own delay moves each percentile. Not the mean: a few delays of 3 ms move that
/// while nothing below p99.9 changes.
pub(super) fn lateness(facts: &Facts, marks: &mut Vec<Mark>) -> Check {
    let lateness = &facts.sums.lateness;
    let (Some(worst_ns), Some(p99_ns)) = (lateness.largest(), lateness.percentile(99_000)) else {
        return LATENESS.says(Level::Ok, None, "no request was due");
    };
    let mut level = Level::Ok;
    let mut worst: Option<Moved> = None;
    for percentile in PERCENTILES {
        let Some(moved) = moved(facts, percentile.milli) else { continue };
        let of_percentile = match moved.share {
            share if share > MOVED_FAIL && fails(percentile.milli) => Level::Fail,
            share if share > MOVED_WARN => Level::Warn,
            _ => Level::Ok,
        };
        if of_percentile > Level::Ok {
            let detail = format!("{} without it", time(moved.without_ns));
            marks.push(mark_with(percentile.milli, "our own lateness", detail));
        }
        // Below the median nobody draws a conclusion from one percentile.
        if percentile.milli < 50_000 {
            continue;
        }
        let so_far = worst.map_or(f64::NEG_INFINITY, |worst| worst.share);
        if (of_percentile, moved.share) > (level, so_far) {
            worst = Some(moved);
        }
        level = level.max(of_percentile);
    }
    let within = |ns| percent(share_within(lateness, ns));
    let early = if facts.counters.negative_intervals == 0 { "never early; " } else { "" };
    let figures = format!(
        "{early}worst delay of ours {}; 99 % within {}; within 5 µs {}, 50 µs {}, 1 ms {}",
        time(worst_ns),
        time(p99_ns),
        within(5_000),
        within(50_000),
        within(1_000_000),
    );
    if let (Some(moved), true) = (worst, level > Level::Ok) {
        let name = percentile_name(moved.milli);
        let brief = format!("it makes {name} {}: {}", moved.in_words(), causes(facts));
        return LATENESS.finds(level, Some(moved.share * 100.0), Some(brief), &figures);
    }
    LATENESS.says(level, worst.map(|moved| moved.share * 100.0), figures)
}

/// A percentile with and without our lateness.
#[derive(Clone, Copy)]
struct Moved {
    milli: u32,
    with_ns: u64,
    without_ns: u64,
    /// Of the one without.
    share: f64,
}

impl Moved {
    fn in_words(&self) -> String {
        format!("{} instead of {}", time(self.with_ns), time(self.without_ns))
    }
}

/// What our lateness does to a percentile; `None` where it is not told.
fn moved(facts: &Facts, milli: u32) -> Option<Moved> {
    let with_ns = told(&facts.sums.latency, milli)?;
    let without_ns = told(&facts.sums.since_dispatch, milli)?;
    let share = with_ns as f64 / without_ns.max(1) as f64 - 1.0;
    Some(Moved { milli, with_ns, without_ns, share })
}

/// Share of the values that are at most so large.
pub(super) fn share_within(distribution: &Distribution, ns: u64) -> f64 {
    let within = distribution.histogram.iter().take_while(|bucket| bucket.high <= ns);
    let count: u64 = within.map(|bucket| bucket.count).sum();
    count as f64 / distribution.count() as f64
}

/// D3: were all requests that were due taken from the schedule?
pub(super) fn shortfall(facts: &Facts) -> Check {
    let Counters { scheduled, held_back, .. } = facts.counters;
    if scheduled == 0 {
        return SHORTFALL.says(Level::Ok, None, "no request was due");
    }
    // Each one taken has a lateness, unless it had been held back.
    let taken = facts.sums.lateness.count() + held_back;
    let short = scheduled.saturating_sub(taken);
    // A shard whose backlog is full leaves the rest in the schedule: the endpoint's doing.
    let value = Some(short as f64);
    let requests = counted(scheduled, "request");
    let (level, reason) = match short {
        0 => (Level::Ok, format!("all {requests} that were due were taken from the schedule")),
        _ if is_queue_full(facts) => (
            Level::Ok,
            format!(
                "{} of {requests} stayed in the schedule behind the {} that may wait for a \
                 connection: the endpoint did not keep up",
                grouped(short),
                grouped(BACKLOG_LIMIT as u64)
            ),
        ),
        _ => {
            let share = short as f64 / scheduled as f64;
            let level = if share > SHORTFALL_FAIL { Level::Fail } else { Level::Warn };
            let never = format!("{} of {requests} never left the client", grouped(short));
            (level, format!("{never} ({}): {}", percent(share), causes(facts)))
        }
    };
    match unlikely_plan(facts) {
        Some(unlikely) if short == 0 => SHORTFALL.says(Level::Warn, value, unlikely),
        _ => SHORTFALL.says(level, value, reason),
    }
}

/// Whether the seed drew far more or fewer requests than the rate says, so that the load was not
/// the one asked for.
fn unlikely_plan(facts: &Facts) -> Option<String> {
    let schedule = facts.plan.schedule.as_ref()?;
    let dispersion = match schedule.process {
        Process::Poisson => 1.0,
        Process::Gamma { shape } => 1.0 / shape,
        Process::Constant { .. } => return None,
    };
    // Only a window that the clock ended has a number of requests left to chance.
    let is_by_clock = facts.plan.duration_ns.is_some_and(|ns| facts.window_ns == ns);
    let expected = schedule.profile.expected(facts.window_ns);
    let reach = PLAN_SIGMAS * (expected * dispersion).sqrt();
    let planned = facts.counters.scheduled;
    let is_cut = facts.plan.requests.is_some_and(|count| count as f64 <= expected + reach);
    let is_unlikely = is_by_clock && !is_cut && (planned as f64 - expected).abs() > reach.max(1.0);
    is_unlikely.then(|| {
        format!(
            "the seed drew {} where {} ± {} are to be expected: the load was {} than asked \
             for; another --seed",
            counted(planned, "request"),
            grouped(expected.round() as u64),
            grouped(reach.round() as u64),
            if planned as f64 > expected { "higher" } else { "lower" }
        )
    })
}
