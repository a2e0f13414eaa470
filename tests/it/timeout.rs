//! Every timeout, and the drain: slow answers are awaited, dead ones are given up and told apart.

use std::time::Duration;

use crate::support::run::{Outcome, Run};
use crate::support::server::{FullListener, Server};
use crate::support::{Engine, on_both_engines};

/// What a run may take beyond its timeouts: start and files, on a busy machine.
const OVERHEAD: Duration = Duration::from_secs(4);

on_both_engines!(
    a_request_without_answer_times_out,
    a_request_timeout_above_the_answer_changes_nothing,
    silence_inside_an_answer_times_out,
    an_answer_that_comes_in_drops_is_not_idle,
    the_ttft_timeout_of_plain_http_ends_with_the_first_byte,
    a_connect_that_hangs_times_out,
    slow_answers_are_awaited_in_the_drain,
    a_drain_that_ends_in_vain_says_how_many_were_in_flight,
    the_run_timeout_cancels_what_is_in_flight,
    the_run_timeout_counts_the_opening_of_connections,
    a_run_in_which_all_are_silent_ends,
    a_timed_out_connection_is_not_used_again,
    an_endpoint_that_falls_silent_is_not_divided_by_its_good_time_alone,
);

fn run(engine: Engine, urls: &[String], more: &str) -> Outcome {
    Run::on(engine).args(["max-throughput"]).args(urls).words(more).words("-t 1").finish()
}

fn a_request_without_answer_times_out(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &[server.url("silent")], "--timeout 150ms -n 6 -c 2");
    outcome.expect_failures("request_timeout", 6);
    assert_eq!(server.requests("silent"), 6, "none is tried again");
    assert_eq!(outcome.counter("retries"), 0);
    assert!(outcome.elapsed >= Duration::from_millis(450), "{:?}: too early", outcome.elapsed);
    assert!(outcome.elapsed < Duration::from_millis(450) + OVERHEAD, "{:?}", outcome.elapsed);
}

fn a_request_timeout_above_the_answer_changes_nothing(engine: Engine) {
    let server = Server::start();
    let timeouts = "--timeout 10s --connect-timeout 10s --ttft-timeout 10s --idle-timeout 10s \
                    --drain-timeout 10s --run-timeout 30s --response-idle-timeout 10s";
    let outcome = run(engine, &[server.url("delay?ms=10")], &format!("-n 20 -c 2 {timeouts}"));
    outcome.expect_successes(20);
    // 0 = off, not at once.
    let off = "--timeout 0 --connect-timeout 0 --ttft-timeout 0 --idle-timeout 0 --run-timeout 0 \
               --response-idle-timeout 0";
    let outcome = run(engine, &[server.url("delay?ms=10")], &format!("-n 20 -c 2 {off}"));
    outcome.expect_successes(20);
}

fn silence_inside_an_answer_times_out(engine: Engine) {
    let server = Server::start();
    let outcome =
        run(engine, &[server.url("slow-middle?ms=1500")], "--idle-timeout 150ms -n 2 -c 2");
    outcome.expect_failures("idle_timeout", 2);
    assert!(outcome.elapsed < Duration::from_millis(150) + OVERHEAD, "{:?}", outcome.elapsed);
    // Also before the first byte.
    let outcome = run(engine, &[server.url("silent")], "--idle-timeout 150ms -n 2 -c 2");
    outcome.expect_failures("idle_timeout", 2);
}

/// Pieces 2 ms apart, 12 ms together: longer than nothing, shorter than idle. A busy machine may
/// stretch the gaps, so the limit is far above them and the proof is the slow case beside it.
fn an_answer_that_comes_in_drops_is_not_idle(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &[server.url("drip")], "--idle-timeout 2s -n 10 -c 2");
    outcome.expect_successes(10);
}

fn the_ttft_timeout_of_plain_http_ends_with_the_first_byte(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &[server.url("silent")], "--ttft-timeout 150ms -n 2 -c 2");
    outcome.expect_failures("request_timeout", 2);
    let slow = server.url("slow-middle?ms=2500");
    let outcome = run(engine, &[slow], "--ttft-timeout 2s -n 2 -c 2");
    outcome.expect_successes(2);
}

fn a_connect_that_hangs_times_out(engine: Engine) {
    let listener = FullListener::start();
    let outcome = run(engine, &[listener.url()], "--connect-timeout 300ms -n 2 -c 1");
    outcome.expect_code(3).expect_reason(&["127.0.0.1"]);
    assert!(outcome.elapsed >= Duration::from_millis(300), "{:?}", outcome.elapsed);
    assert!(outcome.elapsed < Duration::from_millis(300) + OVERHEAD, "{:?}", outcome.elapsed);
}

fn slow_answers_are_awaited_in_the_drain(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &[server.url("delay?ms=700")], "-d 200ms -c 4");
    outcome.expect_successes(4);
    assert_eq!(server.requests("delay"), 4);
    assert_eq!(outcome.counter("samples_in_flight_at_end"), 0);
}

/// Half of the requests are never answered; each connection meets one of them.
fn a_drain_that_ends_in_vain_says_how_many_were_in_flight(engine: Engine) {
    let server = Server::start();
    let urls = [server.url("plain"), server.url("silent")];
    let outcome = run(engine, &urls, "-d 300ms -c 3 --drain-timeout 300ms");
    outcome.expect_code(1).expect_reason(&["in flight"]);
    assert_eq!(outcome.counter("samples_in_flight_at_end"), 3, "{}", outcome.story());
    assert_eq!(server.requests("silent"), 3);
    assert_eq!(outcome.counter("total_samples_completed"), server.requests("plain"));
    assert!(outcome.elapsed >= Duration::from_millis(600), "{:?}", outcome.elapsed);
    assert!(outcome.elapsed < Duration::from_millis(600) + OVERHEAD, "{:?}", outcome.elapsed);
    assert_eq!(outcome.summary()["complete"], false);
}

fn the_run_timeout_cancels_what_is_in_flight(engine: Engine) {
    let server = Server::start();
    let urls = [server.url("plain"), server.url("silent")];
    let outcome = run(engine, &urls, "-d 30s -c 3 --run-timeout 500ms");
    outcome.expect_code(1).expect_reason(&["run-timeout"]);
    assert_eq!(outcome.counter("samples_cancelled"), 3, "{}", outcome.story());
    assert_eq!(outcome.counter("samples_in_flight_at_end"), 0, "cancelled, not left");
    assert_eq!(outcome.counter("total_samples_completed"), server.requests("plain"));
    assert!(outcome.elapsed < Duration::from_millis(500) + OVERHEAD, "{:?}", outcome.elapsed);
    assert_eq!(outcome.snapshot()["state"], "interrupted");
}

fn the_run_timeout_counts_the_opening_of_connections(engine: Engine) {
    let listener = FullListener::start();
    let outcome =
        run(engine, &[listener.url()], "-d 30s -c 2 --run-timeout 400ms --connect-timeout 0");
    outcome.expect_code(1).expect_reason(&["run-timeout", "connections opened"]);
    assert!(outcome.elapsed < Duration::from_millis(400) + OVERHEAD, "{:?}", outcome.elapsed);
}

fn a_run_in_which_all_are_silent_ends(engine: Engine) {
    let server = Server::start();
    let urls = [server.url("plain"), server.url("silent")];
    let more = "-d 30s -c 3 --response-idle-timeout 400ms --drain-timeout 200ms";
    let outcome = run(engine, &urls, more);
    outcome.expect_code(1).expect_reason(&["response-idle-timeout"]);
    assert_eq!(server.requests("silent"), 3);
    assert_eq!(outcome.counter("total_samples_completed"), server.requests("plain"));
    assert!(outcome.elapsed >= Duration::from_millis(400), "{:?}", outcome.elapsed);
    assert!(outcome.elapsed < Duration::from_millis(600) + OVERHEAD, "{:?}", outcome.elapsed);
}

/// The late answer to a request that was given up must not answer the next one.
fn a_timed_out_connection_is_not_used_again(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &[server.url("delay?ms=400")], "--timeout 100ms -n 4 -c 1");
    outcome.expect_failures("request_timeout", 4);
    assert_eq!(server.seen("delay").connections, 4, "each on a connection of its own");
}

fn an_endpoint_that_falls_silent_is_not_divided_by_its_good_time_alone(engine: Engine) {
    let server = Server::start();
    let more = "-d 1s -c 2 --timeout 200ms --abort-if failed>100%";
    let outcome = run(engine, &[server.url("falls-silent?after=100")], more);
    outcome.expect_code(0);
    assert_eq!(outcome.counter("tracked_samples_completed"), 100, "{}", outcome.story());
    let duration_ns = outcome.counter("tracked_duration_ns");
    assert!((1_000_000_000..1_100_000_000).contains(&duration_ns), "{duration_ns}");
}
