//! Ctrl-C: the first stops, drains and reports; the second ends at once. What was measured is
//! written either way.

use std::time::Duration;

use crate::support::run::{Run, SNAPSHOT, SUMMARY, counters, number, parse};
use crate::support::server::{FullListener, Server};
use crate::support::{Engine, on_both_engines};

/// How soon an interrupted run must be over, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

on_both_engines!(
    the_first_interrupt_stops_drains_and_reports,
    an_interrupt_waits_for_answers_on_their_way,
    the_second_interrupt_ends_at_once,
    the_second_interrupt_prints_what_was_measured_as_json,
    an_interrupt_while_connections_open_ends_the_run,
    a_termination_is_named,
    an_interrupt_in_the_warm_up_leaves_nothing_tracked,
    a_partial_snapshot_exists_while_the_run_goes_on,
);

fn the_first_interrupt_stops_drains_and_reports(engine: Engine) {
    let server = Server::start();
    let mut running = Run::on(engine)
        .words(&format!("max-throughput {} -d 60s -c 4", server.url("plain")))
        .start();
    running.await_that("load arrives", || server.requests("plain") >= 100);
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1).expect_reason(&["interrupt"]);
    assert!(outcome.stderr.contains("stopping"), "{}", outcome.story());
    assert!(outcome.elapsed < Duration::from_secs(20) + SOON, "{:?}", outcome.elapsed);
    assert_eq!(outcome.snapshot()["state"], "interrupted");
    assert_eq!(outcome.summary()["complete"], false);
    let completed = outcome.counter("total_samples_completed");
    assert_eq!(completed, server.requests("plain"), "drained: {}", outcome.story());
    assert!(outcome.file("report.txt").contains("requests"));
}

fn an_interrupt_waits_for_answers_on_their_way(engine: Engine) {
    let server = Server::start();
    let url = server.url("delay?ms=600");
    let mut running = Run::on(engine).words(&format!("max-throughput {url} -d 60s -c 3")).start();
    running.await_that("all wait", || server.requests("delay") == 3);
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1);
    assert!(outcome.stderr.contains("3 in flight"), "{}", outcome.story());
    assert_eq!(outcome.counter("total_samples_completed"), 3);
    assert_eq!(server.requests("delay"), 3, "nothing new was sent");
}

fn the_second_interrupt_ends_at_once(engine: Engine) {
    let server = Server::start();
    let urls = [server.url("plain"), server.url("silent")];
    let mut running =
        Run::on(engine).args(["max-throughput"]).args(urls).words("-d 60s -c 2 -t 1").start();
    running.await_that("all wait", || server.requests("silent") == 2);
    running.interrupt();
    running.await_output("stopping");
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(130);
    // A drain would have taken 30 s.
    assert!(outcome.elapsed < Duration::from_secs(20) + SOON, "{:?}", outcome.elapsed);
    assert_eq!(outcome.counter("total_samples_completed"), server.requests("plain"));
    let given_up =
        outcome.counter("samples_in_flight_at_end") + outcome.counter("samples_cancelled");
    assert_eq!(given_up, 2, "{}", outcome.story());
}

fn the_second_interrupt_prints_what_was_measured_as_json(engine: Engine) {
    let server = Server::start();
    let url = server.url("silent");
    let mut running = Run::on(engine).words(&format!("{url} --json -d 60s -c 2 -t 1")).start();
    running.await_that("all wait", || server.requests("silent") == 2);
    running.interrupt();
    running.await_output("stopping");
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(130);
    assert_eq!(outcome.stdout, outcome.file(SUMMARY), "{}", outcome.story());
}

fn an_interrupt_while_connections_open_ends_the_run(engine: Engine) {
    let listener = FullListener::start();
    let mut running = Run::on(engine).words(&format!("{} -d 60s -c 2", listener.url())).start();
    // Nothing outside tells that the handshakes hang; this is before the connect timeout of 5 s.
    let begin = std::time::Instant::now();
    running.await_that("it connects", || begin.elapsed() > Duration::from_secs(1));
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1).expect_reason(&["interrupted by Ctrl-C", "connections opened"]);
    assert_eq!(number(&outcome.summary()["counters"]["total_duration_ns"]), 0, "none began");
    assert!(outcome.stdout.contains("Cut short before the first request"), "{}", outcome.story());
}

fn a_termination_is_named(engine: Engine) {
    let server = Server::start();
    let url = server.url("plain");
    let mut running = Run::on(engine).words(&format!("{url} -d 60s -c 2")).start();
    running.await_that("load arrives", || server.requests("plain") >= 10);
    running.terminate();
    let outcome = running.finish();
    outcome.expect_code(1).expect_reason(&["SIGTERM"]);
    assert_eq!(outcome.counter("total_samples_completed"), server.requests("plain"));
}

fn an_interrupt_in_the_warm_up_leaves_nothing_tracked(engine: Engine) {
    let server = Server::start();
    let url = server.url("plain");
    let mut running = Run::on(engine).words(&format!("{url} --warmup 60s -d 1s -c 2")).start();
    running.await_that("warm-up arrives", || server.requests("plain") >= 10);
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1);
    assert_eq!(outcome.counter("tracked_samples_issued"), 0, "{}", outcome.story());
    assert_eq!(outcome.counter("total_samples_completed"), server.requests("plain"));
}

fn a_partial_snapshot_exists_while_the_run_goes_on(engine: Engine) {
    let server = Server::start();
    let mut running = Run::on(engine)
        .words(&format!("max-throughput {} -d 60s -c 2", server.url("plain")))
        .start();
    let path = running.report_dir().join(SNAPSHOT);
    running.await_that("a snapshot with load in it", || {
        // It is renamed into place, so whatever is there is whole.
        let Ok(text) = std::fs::read_to_string(&path) else { return false };
        let snapshot = parse(&text);
        snapshot["state"] == "live" && counters(&snapshot)["total_samples_completed"] > 0
    });
    running.interrupt();
    running.finish().expect_code(1);
}
