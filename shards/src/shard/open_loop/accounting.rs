//! Every query is accounted for, whatever becomes of it. `Setup::run` holds the identities: of the
//! counts, and of Little's law to the nanosecond.

use super::*;
use crate::failure::FailureKind;
use crate::phase::{Command, Timeouts};
use crate::shard::tests::Setup;

/// 1000/s for 200 ms, with a drain of 50 ms.
fn plan() -> PhasePlan {
    PhasePlan {
        drain_timeout_ns: 50 * MS,
        ..open(&poisson(1000.0, None, Some(200 * MS)), Overload::Queue)
    }
}

fn scheduled() -> u64 {
    Schedule::new(&poisson(1000.0, None, Some(200 * MS))).count() as u64
}

#[test]
fn timeouts_are_failures_and_their_latency_so_far_is_kept() {
    let timeouts = Timeouts { request_ns: 20 * MS, ..Timeouts::default() };
    let endpoint = SimEndpoint { answers: 100, ..SimEndpoint::default() };
    let shard = ShardPlan { timeouts, ..shard_plan(64) };
    let (_, totals) = run(shard, endpoint, vec![plan()], None);
    let counters = totals[0].counters;
    assert_eq!((counters.scheduled, counters.completed), (scheduled(), 100));
    let timed_out = totals[0].failures.tally(FailureKind::RequestTimeout).count;
    assert_eq!((timed_out, timed_out), (scheduled() - 100, totals[0].censored.count));
    // From the schedule; at most a tick of the wheel late.
    assert!(totals[0].censored.max_ns <= 21 * MS);
    assert!(totals[0].censored.mean_ms() >= 20.0);
}

#[test]
fn censored_latency_counts_the_wait_for_a_connection() {
    // Two queries at once, as it were; one connection; no answer: 20 ms each, one after the other.
    let timeouts = Timeouts { request_ns: 20 * MS, ..Timeouts::default() };
    let endpoint = SimEndpoint { answers: 0, ..SimEndpoint::default() };
    let shard = ShardPlan { timeouts, ..shard_plan(1) };
    let phases = vec![open(&constant(1e6, Some(2), None), Overload::Queue)];
    let (_, totals) = run(shard, endpoint, phases, None);
    assert_eq!(totals[0].censored.count, 2);
    assert!(totals[0].censored.max_ns >= 40 * MS - US);
}

#[test]
fn resets_are_failures() {
    let endpoint = SimEndpoint { resets_every: 10, ..SimEndpoint::default() };
    let (_, totals) = run(shard_plan(64), endpoint, vec![plan()], None);
    let (counters, failures) = (totals[0].counters, &totals[0].failures);
    // On a connection that was used before it may have been closed while idle: sent once more.
    assert_eq!(counters.completed + counters.failed, scheduled());
    assert!(counters.retries + failures.tally(FailureKind::Reset).count >= scheduled() / 10);
    assert_eq!(failures.total(), counters.failed);
}

#[test]
fn refusals_by_status_are_failures_with_an_instant_of_their_own() {
    let response = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec();
    let endpoint = SimEndpoint { response, ..SimEndpoint::default() };
    let (_, totals) = run(shard_plan(64), endpoint, vec![plan()], None);
    let counters = totals[0].counters;
    assert_eq!((counters.failed, counters.completed), (scheduled(), 0));
    assert_eq!(totals[0].lateness.count, scheduled(), "late or not, they were sent");
    assert!(totals[0].headline_ns.is_empty(), "no latency of a success");
}

#[test]
fn drain_that_expires_leaves_some_in_flight_and_some_untaken() {
    let endpoint = SimEndpoint { answers: 50, ..SimEndpoint::default() };
    let (_, totals) = run(shard_plan(64), endpoint, vec![plan()], None);
    let counters = totals[0].counters;
    assert_eq!((counters.completed, totals[0].in_flight_at_end), (50, 64));
    assert_eq!(counters.untaken, scheduled() - 50 - 64);
    assert_eq!(totals[0].end_ns, START_NS + 250 * MS);
}

#[test]
fn everything_at_once() {
    let warmup = PhasePlan {
        drain_timeout_ns: 0,
        ..open(&poisson(3000.0, None, Some(100 * MS)), Overload::Queue)
    };
    for overload in [Overload::Queue, Overload::Drop] {
        for word in [None, Some(Command::Stop), Some(Command::Cancel)] {
            let endpoint = SimEndpoint {
                service_ns: (0..500).map(|i| i % 11 * 4 * MS).collect(),
                resets_every: 7,
                closes_after: 5,
                close_ns: MS,
                answers: 400,
                connect_ns: 2 * MS,
                ..SimEndpoint::default()
            };
            let timeouts = Timeouts { request_ns: 30 * MS, ..Timeouts::default() };
            let shard = ShardPlan { timeouts, connections_per_target: 3, ..shard_plan(20) };
            let main = PhasePlan {
                index: 1,
                start_ns: START_NS + 100 * MS,
                drain_timeout_ns: 50 * MS,
                ..open(&poisson(2000.0, None, Some(200 * MS)), overload)
            };
            let at_ns = START_NS + 222 * MS;
            let script: Vec<_> = word.into_iter().map(|word| (at_ns, word)).collect();
            let is_cut = !script.is_empty();
            let setup = Setup { script, ..Setup::new(shard, endpoint, vec![warmup.clone(), main]) };
            let (_, totals) = setup.run();
            let list = Schedule::new(&poisson(2000.0, None, Some(200 * MS)));
            let end_ns = if is_cut { at_ns } else { u64::MAX };
            let due = list.filter(|arrival| START_NS + 100 * MS + arrival.offset_ns < end_ns);
            assert_eq!(totals[1].counters.scheduled, due.count() as u64);
            assert!(totals[1].counters.carried_in > 0);
        }
    }
}
