//! Open loop in virtual time: exact latencies from the schedule, whatever the endpoint does.

mod accounting;
mod connections;
mod held;
mod instants;
mod phases;
mod queue;
mod slices;
mod stall;
mod streams;
mod timed;

use std::sync::Arc;

use super::ShardPlan;
use super::tests::{BEGIN_NS, MS, Sums, Totals, phase, run, shard_plan};
use crate::phase::{FitSample, Overload, Pattern, PhasePlan, Source, Wait};
use crate::query::{Request, RequestTable};
use crate::schedule::{Arrival, Process, Profile, Schedule, SchedulePlan};
use crate::sim::SimEndpoint;

/// When the phases of these tests begin: later than the handshakes of their connections.
const START_NS: u64 = BEGIN_NS + 10 * MS;
const US: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;

/// A constant rate, the first query at once.
fn constant(rate: f64, count: Option<u64>, end_ns: Option<u64>) -> SchedulePlan {
    SchedulePlan {
        process: Process::Constant { jitter: 0.0 },
        profile: Arc::new(Profile::constant(rate).expect("a valid rate")),
        seed: 42,
        stream: 0,
        count,
        end_ns,
    }
}

/// The same as a Poisson process.
fn poisson(rate: f64, count: Option<u64>, end_ns: Option<u64>) -> SchedulePlan {
    SchedulePlan { process: Process::Poisson, ..constant(rate, count, end_ns) }
}

/// The due instants of a list that begins at [`START_NS`].
fn due_ns(schedule: &SchedulePlan) -> Vec<u64> {
    Schedule::new(schedule).map(|arrival: Arrival| START_NS + arrival.offset_ns).collect()
}

fn open(schedule: &SchedulePlan, overload: Overload) -> PhasePlan {
    PhasePlan {
        pattern: Pattern::OpenLoop {
            in_flight: u32::MAX,
            source: Source::Own(Box::new(Schedule::new(schedule))),
            overload,
            fit: FitSample { every: 1, offset: 0 },
        },
        start_ns: START_NS,
        duration_ns: schedule.end_ns,
        ..phase(0, 0, None)
    }
}

/// One phase on one shard with so many connections, all open before.
fn measure(connections: u32, endpoint: SimEndpoint, phase: PhasePlan) -> Totals {
    let (_, mut totals) = run(shard_plan(connections), endpoint, vec![phase], None);
    totals.remove(0)
}

/// A table of so many samples for one target, each known by where its bytes begin.
fn samples(count: usize) -> RequestTable {
    let request = |begin| Request::plain(begin..begin + 1, 0, false);
    RequestTable {
        arena: vec![b'x'; count].into(),
        requests: (0..count).map(request).collect(),
        ..shard_plan(1).table
    }
}

/// Each value within the bucket error; largest value and sum to the nanosecond.
#[track_caller]
fn assert_values(values_ns: &[u64], sums: &Sums, mut expected_ns: Vec<u64>) {
    let mut values_ns = values_ns.to_vec();
    values_ns.sort_unstable();
    expected_ns.sort_unstable();
    assert_eq!(values_ns.len(), expected_ns.len());
    for (&is, &should) in values_ns.iter().zip(&expected_ns) {
        assert!(is.abs_diff(should) <= should / 1000 + 1, "{is} instead of {should}");
    }
    assert_eq!(sums.max_ns, expected_ns.last().copied().unwrap_or(0));
    assert_eq!(sums.total_ns, expected_ns.iter().map(|&ns| u128::from(ns)).sum());
}

/// Nearest-rank quantile, ms.
fn quantile_ms(values_ns: &[u64], share: f64) -> f64 {
    let mut sorted = values_ns.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank - 1] as f64 / 1e6
}

#[track_caller]
fn assert_near(is: f64, should: f64, tolerance: f64) {
    assert!((is - should).abs() <= tolerance, "{is} instead of {should} +/- {tolerance}");
}

fn assert_ms(values_ns: &[u64], expected_ms: &[f64]) {
    let ms: Vec<f64> = values_ns.iter().map(|&ns| ns as f64 / 1e6).collect();
    assert_eq!(ms.len(), expected_ms.len(), "{ms:?}");
    for (is, should) in ms.iter().zip(expected_ms) {
        assert!((is - should).abs() <= should * 0.001 + 1e-6, "{ms:?}, expected {expected_ms:?}");
    }
}

#[test]
fn connection_cap_of_one_shows_in_the_latency_and_not_in_the_service() {
    // Eight queries, one each 100 ms; the endpoint takes 500 ms.
    let endpoint = SimEndpoint { service_ns: vec![500 * MS], ..SimEndpoint::default() };
    let totals = measure(1, endpoint, open(&constant(10.0, Some(8), None), Overload::Queue));
    assert_ms(&totals.headline_ns, &[500.0, 900.0, 1300.0, 1700.0, 2100.0, 2500.0, 2900.0, 3300.0]);
    assert_ms(&totals.latencies_ns, &[500.0; 8]);
    let mean_ms = |sum_ns: u64| sum_ns as f64 / 8.0 / 1e6;
    assert_eq!(mean_ms(totals.parts.total_ns()), 1900.0);
    assert_eq!(mean_ms(totals.parts.pool_wait_ns), 1400.0);
    assert_eq!(totals.parts.lateness_ns, 0, "the client was never late");
    assert_eq!((totals.counters.waits_full, totals.counters.scheduled), (7, 8));
}

#[test]
fn drop_gives_up_what_finds_no_connection_and_counts_it() {
    let endpoint = SimEndpoint { service_ns: vec![250 * MS], ..SimEndpoint::default() };
    let totals = measure(1, endpoint, open(&constant(10.0, Some(9), None), Overload::Drop));
    // Taken at 0, 300 and 600 ms.
    assert_ms(&totals.headline_ns, &[250.0; 3]);
    assert_eq!((totals.counters.issued, totals.counters.dropped), (3, 6));
}

#[test]
fn hybrid_learns_to_wake_in_time_and_is_never_early() {
    let endpoint = SimEndpoint {
        service_ns: vec![MS / 10],
        turn_ns: 100,
        overshoot_ns: 50_000,
        ..SimEndpoint::default()
    };
    let schedule = constant(1000.0, Some(2000), None);
    let late_ns = |wait| {
        let plan = ShardPlan { wait, ..shard_plan(4) };
        let phases = vec![open(&schedule, Overload::Queue)];
        let (_, totals) = run(plan, endpoint.clone(), phases, None);
        totals[0].lateness_ns.clone()
    };
    let hybrid = late_ns(Wait::Hybrid);
    assert!(hybrid[1990] <= 1000, "99.5 % within a turn or two: {}", hybrid[1990]);
    // Negative control: who only sleeps is late by the overshoot, each time.
    assert!(late_ns(Wait::Sleep)[100] >= 49_000);
}
