//! Every entry of the schedule is issued, dropped or untaken, and everything issued has one end:
//! under warm-ups, timeouts, resets, drains in vain and interrupts. The identities are checked in
//! every run by the harness; here the numbers are.

use std::collections::BTreeMap;
use std::time::Duration;

use loadgen_shards::schedule::{Process, SchedulePlan};

use super::{MS, load, offsets_ns, run, schedule};
use crate::support::queue::QueueServer;
use crate::support::run::{Outcome, number};
use crate::support::server::Server;
use crate::support::{Engine, on_both_engines, shard_counts, skip};

on_both_engines!(
    an_undrained_warm_up_is_scheduled_apart,
    timeouts_among_successes_add_up,
    resets_among_successes_add_up,
    a_drain_in_vain_leaves_the_rest_untaken,
    a_full_backlog_leaves_the_rest_in_the_schedule,
    the_first_interrupt_ends_the_schedule_at_its_instant,
    the_second_interrupt_gives_up_what_is_in_flight,
    a_dedicated_timer_loses_nothing_between_phases,
);

fn run_against(engine: Engine, urls: &[String], words: &str) -> Outcome {
    load(engine).words(words).args(urls).finish()
}

/// The lists of both phases are exact. What is due right before the warm-up's end may be too late
/// for it, and is untaken then; what is in flight at its end is carried over.
fn an_undrained_warm_up_is_scheduled_apart(engine: Engine) {
    for shards in shard_counts() {
        let plan = schedule(Process::Poisson, 400.0, 42);
        let warmup = SchedulePlan { stream: 1, end_ns: Some(200 * MS), ..plan.clone() };
        let tracked = SchedulePlan { end_ns: Some(300 * MS), ..plan };
        let [warmup, tracked] = [warmup, tracked].map(|plan| offsets_ns(&plan).len() as u64);
        let server = Server::start();
        let words = format!("poisson -R 400 --warmup 200ms -d 300ms -t {shards}");
        let outcome = run_against(engine, &[server.url("delay?ms=50")], &words);
        outcome.expect_successes(tracked);
        assert_eq!(outcome.counter("samples_scheduled"), warmup + tracked);
        let carried = outcome.counter("samples_in_flight_at_end");
        assert_eq!(outcome.counter("samples_carried_in"), carried, "{}", outcome.story());
        assert!(carried > 0, "about 20 are in flight at any time; {}", outcome.story());
        let untaken = outcome.counter("samples_untaken");
        assert_eq!(server.requests("delay"), warmup + tracked - untaken);
        let gap_ns = outcome.phase_start_ns(1) - outcome.phase_start_ns(0);
        assert_eq!(gap_ns, 200 * MS, "the schedules join");
    }
}

fn timeouts_among_successes_add_up(engine: Engine) {
    let server = Server::start();
    let urls = [server.url("plain"), server.url("silent")];
    let outcome = run_against(engine, &urls, "constant -R 200 -n 40 --timeout 150ms");
    outcome.expect_code(0);
    // Each pass over the URLs has each of them once.
    assert_eq!(outcome.failures(), BTreeMap::from([("request_timeout".to_owned(), 20)]));
    assert_eq!(outcome.counter("tracked_samples_completed"), 20);
    assert_eq!((server.requests("plain"), server.requests("silent")), (20, 20));
}

fn resets_among_successes_add_up(engine: Engine) {
    let server = Server::start();
    let urls = [server.url("reset-mix?every=4"), server.url("closes")];
    let outcome = run_against(engine, &urls, "poisson -R 400 -n 100 --abort-if failed>100%");
    outcome.expect_code(0);
    let counter = |name: &str| outcome.counter(name);
    assert_eq!(counter("samples_scheduled"), 100);
    assert_eq!(counter("total_samples_issued"), 100);
    assert_eq!(counter("total_samples_completed") + counter("total_samples_failed"), 100);
    assert!(counter("total_samples_completed") > 0, "{}", outcome.story());
    assert_eq!(server.requests_total(), 100 + counter("retries"), "{}", outcome.story());
}

/// Four connections and nobody who answers: four are in flight at the end of the drain, and what
/// waited behind them was never begun.
fn a_drain_in_vain_leaves_the_rest_untaken(engine: Engine) {
    for shards in shard_counts() {
        let server = Server::start();
        let words = format!(
            "constant -R 200 -d 300ms --drain-timeout 200ms -c 4 --max-connections 4 -t {shards}"
        );
        let outcome = run_against(engine, &[server.url("silent")], &words);
        outcome.expect_code(1).expect_reason(&["none of 4 got an answer"]);
        assert_eq!(outcome.counter("samples_scheduled"), 60, "{}", outcome.story());
        assert_eq!(outcome.counter("samples_in_flight_at_end"), 4);
        assert_eq!(outcome.counter("samples_untaken"), 56);
        assert_eq!(server.requests("silent"), 4);
    }
}

/// More is due than may wait in the shard; what is beyond stays in the schedule and is counted
/// there.
fn a_full_backlog_leaves_the_rest_in_the_schedule(engine: Engine) {
    let server = Server::start();
    let words = "constant -R 10M -n 70000 -d 50ms --drain-timeout 300ms -c 1 --max-connections 1";
    let outcome = run_against(engine, &[server.url("silent")], words);
    outcome.expect_code(1);
    assert_eq!(outcome.counter("samples_scheduled"), 70_000, "{}", outcome.story());
    assert_eq!(outcome.counter("samples_untaken"), 69_999);
    assert_eq!(outcome.counter("samples_in_flight_at_end"), 1);
    assert_eq!(server.requests("silent"), 1);
}

/// What was due before the interrupt is sent, nothing after it, and all is answered.
fn the_first_interrupt_ends_the_schedule_at_its_instant(engine: Engine) {
    let server = Server::start();
    let mut running =
        load(engine).words("constant -R 200 -d 60s -t 1").args([server.url("delay?ms=50")]).start();
    running.await_that("load arrives", || server.requests("delay") >= 50);
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1).expect_reason(&["interrupted by Ctrl-C"]);
    let phase = &outcome.snapshot()["phases"][0];
    let length_ns = number(&phase["issue_end_ns"]) - number(&phase["start_ns"]);
    let due = length_ns.div_ceil(5 * MS);
    assert_eq!(outcome.counter("samples_scheduled"), due, "{}", outcome.story());
    assert_eq!(outcome.counter("total_samples_completed"), due, "{}", outcome.story());
    assert_eq!(server.requests("delay"), due);
}

fn the_second_interrupt_gives_up_what_is_in_flight(engine: Engine) {
    for shards in shard_counts() {
        let server = Server::start();
        let words = format!("poisson -R 200 -d 60s -c 8 --max-connections 8 -t {shards}");
        let mut running = load(engine).words(&words).args([server.url("silent")]).start();
        running.await_that("all wait", || server.requests("silent") == 8);
        running.interrupt();
        running.await_output("stopping");
        running.interrupt();
        let outcome = running.finish();
        outcome.expect_code(130);
        assert!(outcome.elapsed < Duration::from_secs(20), "{:?}", outcome.elapsed);
        let [cancelled, in_flight] = ["samples_cancelled", "samples_in_flight_at_end"]
            .map(|counter| outcome.counter(counter));
        assert_eq!(cancelled + in_flight, 8, "{}", outcome.story());
        assert_eq!(outcome.counter("total_samples_issued"), 8);
        assert!(outcome.counter("samples_scheduled") >= 8);
    }
}

/// Timer and shard cross the boundary at different instants: an entry that the one hands over for
/// the next phase is none of the last, and one that comes at the last moment is counted.
fn a_dedicated_timer_loses_nothing_between_phases(engine: Engine) {
    if shard_counts().len() < 2 {
        return skip("a dedicated timer needs a second core");
    }
    let plan = schedule(Process::Constant { jitter: 0.0 }, 10_000.0, 42);
    let warmup = SchedulePlan { stream: 1, end_ns: Some(50 * MS), ..plan };
    let warmup = offsets_ns(&warmup).len() as u64;
    for _ in 0..3 {
        let server = QueueServer::unlimited(Duration::ZERO);
        let words = "--cores 0 --timer dedicated --timer-core 1 constant -R 10k --warmup 50ms";
        let outcome = run(engine, &server, &format!("{words} -n 300"));
        outcome.expect_successes(300);
        assert_eq!(outcome.counter("samples_scheduled"), warmup + 300, "{}", outcome.story());
        // A request of the warm-up may still wait for its connection when all is over.
        let sent = warmup + 300 - outcome.counter("samples_untaken");
        assert!((300..=sent).contains(&(server.arrived() as u64)), "{}", outcome.story());
    }
}
