//! Each request leaves at its instant or after it, never before, and none is missing: on one shard
//! or two, with every way to wait.

use std::time::Duration;

use loadgen_shards::schedule::{Process, SchedulePlan};

use super::{MS, load, offsets_ns, percentile, run, run_stopped, schedule};
use crate::support::queue::{QueueServer, Seen};
use crate::support::run::Outcome;
use crate::support::{Engine, at_most, on_a_calm_host, on_both_engines, shard_counts, skip};

on_both_engines!(
    every_process_arrives_as_it_was_drawn,
    a_duration_sends_exactly_what_is_due_within_it,
    every_timer_sends_all_and_nothing_early,
    a_dedicated_timer_feeds_the_shard_from_its_own_core,
    a_stopped_client_is_late_at_the_server,
    a_rate_without_an_instant_in_the_run_sends_nothing,
    one_request_at_a_tiny_rate_goes_at_once,
    ten_million_a_second_are_late_and_all_there,
);

/// Typical time from the instant to the arrival at the server.
const TYPICAL_NS_MAX: u64 = 2 * MS;

/// How late each arrival is against the instant of its rank. Fails if one is early.
///
/// Requests may overtake each other on their way, so ranks are compared: if nobody is early, the
/// k-th arrival is not before the k-th instant.
#[track_caller]
fn delays_ns(outcome: &Outcome, seen: &Seen, offsets_ns: &[u64]) -> Vec<u64> {
    assert_eq!(seen.visits.len(), offsets_ns.len(), "the number of requests; {}", outcome.story());
    let start_ns = outcome.phase_start_ns(0);
    let arrivals = seen.visits.iter().map(|visit| visit.arrival_ns);
    arrivals
        .zip(offsets_ns)
        .enumerate()
        .map(|(rank, (arrival_ns, offset_ns))| {
            arrival_ns
                .checked_sub(start_ns + offset_ns)
                .unwrap_or_else(|| panic!("arrival {rank} is early; {}", outcome.story()))
        })
        .collect()
}

fn every_process_arrives_as_it_was_drawn(engine: Engine) {
    let rows = [
        ("poisson", Process::Poisson),
        ("constant", Process::Constant { jitter: 0.0 }),
        ("constant --jitter 20%", Process::Constant { jitter: 0.2 }),
        ("gamma --burstiness 0.5", Process::Gamma { shape: 0.5 }),
    ];
    for ((words, process), shards) in rows.into_iter().zip(shard_counts().iter().cycle()) {
        let mut plan = schedule(process, 1000.0, 7);
        plan.count = Some(400);
        on_a_calm_host(|| {
            let server = QueueServer::unlimited(Duration::ZERO);
            let more = format!("{words} -R 1000 -n 400 --seed 7 -t {shards}");
            let outcome = run(engine, &server, &more);
            outcome.expect_successes(400);
            let delays_ns = delays_ns(&outcome, &server.seen(), &offsets_ns(&plan));
            at_most(words, percentile(&delays_ns, 0.5), TYPICAL_NS_MAX)
        });
    }
}

/// Negative control: the list of another seed would have been noticed, since some of ours would be
/// early for it, or typically late.
#[test]
fn the_list_of_another_seed_does_not_fit() {
    let [ours, other] = [7, 8].map(|seed| {
        let plan = schedule(Process::Poisson, 1000.0, seed);
        offsets_ns(&SchedulePlan { count: Some(400), ..plan })
    });
    let is_early = ours.iter().zip(&other).any(|(ours, other)| ours + TYPICAL_NS_MAX < *other);
    let late: Vec<u64> =
        ours.iter().zip(&other).map(|(ours, other)| ours.saturating_sub(*other)).collect();
    assert!(is_early || percentile(&late, 0.5) > TYPICAL_NS_MAX);
}

fn a_duration_sends_exactly_what_is_due_within_it(engine: Engine) {
    for shards in shard_counts() {
        let mut plan = schedule(Process::Poisson, 700.0, 42);
        plan.end_ns = Some(500 * MS);
        let due = offsets_ns(&plan);
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run(engine, &server, &format!("poisson -R 700 -d 500ms -t {shards}"));
        outcome.expect_successes(due.len() as u64);
        assert_eq!(outcome.counter("samples_scheduled"), due.len() as u64);
        delays_ns(&outcome, &server.seen(), &due);
    }
}

fn every_timer_sends_all_and_nothing_early(engine: Engine) {
    let mut plan = schedule(Process::Poisson, 500.0, 42);
    plan.count = Some(100);
    let due = offsets_ns(&plan);
    for timer in ["--timer auto", "--timer hybrid", "--timer inline", "--timer sleep", "--spin"] {
        on_a_calm_host(|| {
            let server = QueueServer::unlimited(Duration::ZERO);
            let outcome = run(engine, &server, &format!("poisson -R 500 -n 100 -t 1 {timer}"));
            outcome.expect_successes(100);
            let delays_ns = delays_ns(&outcome, &server.seen(), &due);
            at_most(timer, percentile(&delays_ns, 0.5), TYPICAL_NS_MAX)
        });
    }
}

/// Timer and shard spin on a core each, and the server has none: what is sent, not how soon.
fn a_dedicated_timer_feeds_the_shard_from_its_own_core(engine: Engine) {
    if shard_counts().len() < 2 {
        return skip("a dedicated timer needs a second core");
    }
    let mut plan = schedule(Process::Poisson, 500.0, 42);
    plan.count = Some(150);
    let due = offsets_ns(&plan);
    let server = QueueServer::unlimited(Duration::ZERO);
    let words = "--cores 0 --timer dedicated --timer-core 1 poisson -R 500 -n 150";
    let outcome = run(engine, &server, words);
    outcome.expect_successes(150);
    delays_ns(&outcome, &server.seen(), &due);
    // The end of its list does not end a phase with a duration; the shard is told to stop.
    let server = QueueServer::unlimited(Duration::ZERO);
    let mut running = load(engine).words(&format!("{words} -d 30s")).args([server.url()]).start();
    running.await_that("all are sent", || server.arrived() == due.len());
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1);
    assert_eq!(outcome.counter("total_samples_completed"), 150, "{}", outcome.story());
    delays_ns(&outcome, &server.seen(), &due);
}

/// The client is stopped as a whole, three times 100 ms: what was due meanwhile arrives late, all
/// of it, and its service is as short as ever.
fn a_stopped_client_is_late_at_the_server(engine: Engine) {
    let mut plan = schedule(Process::Constant { jitter: 0.0 }, 1000.0, 42);
    plan.count = Some(1500);
    let due = offsets_ns(&plan);
    on_a_calm_host(|| {
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run_stopped(load(engine), &server)?;
        outcome.expect_successes(1500);
        let delays_ns = delays_ns(&outcome, &server.seen(), &due);
        // Of 100 due in each stop, half are late by half of it or more, a tenth by nearly all.
        let late = |by_ns: u64| delays_ns.iter().filter(|delay_ns| **delay_ns >= by_ns).count();
        assert!(late(50 * MS) >= 3 * 50 - 6, "{} of 150", late(50 * MS));
        assert!(late(90 * MS) >= 3 * 10 - 6, "{} of 30", late(90 * MS));
        let service = outcome.figures("service_latency");
        at_most("service p50, ms", service.percentile("50.0") / 1e6, 20.0)
    });
}

/// The first gap is longer than the run: it takes its time, sends nothing, and says that nothing
/// succeeded.
fn a_rate_without_an_instant_in_the_run_sends_nothing(engine: Engine) {
    let server = QueueServer::unlimited(Duration::ZERO);
    let outcome = run(engine, &server, "poisson -R 0.01 -d 600ms");
    outcome.expect_code(1).expect_reason(&["no request succeeded"]);
    assert_eq!(server.arrived(), 0);
    assert_eq!(outcome.counter("total_samples_issued"), 0);
    assert!(outcome.elapsed >= Duration::from_millis(600), "{:?}", outcome.elapsed);
}

fn one_request_at_a_tiny_rate_goes_at_once(engine: Engine) {
    let server = QueueServer::unlimited(Duration::ZERO);
    let outcome = run(engine, &server, "constant -R 0.01 -n 1");
    outcome.expect_successes(1);
    assert_eq!(server.arrived(), 1);
    assert!(outcome.elapsed < Duration::from_secs(20), "{:?}", outcome.elapsed);
}

/// All are due within 100 us. Nobody can send them in that time, and none may be lost or early.
fn ten_million_a_second_are_late_and_all_there(engine: Engine) {
    let mut plan = schedule(Process::Poisson, 1e7, 42);
    plan.count = Some(1000);
    for shards in shard_counts() {
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run(engine, &server, &format!("poisson -R 10M -n 1000 -t {shards}"));
        outcome.expect_successes(1000);
        delays_ns(&outcome, &server.seen(), &offsets_ns(&plan));
    }
}
