//! How much load: -n and -c exact at the server, -d on time, warm-up kept apart, several URLs in
//! turn.

use std::time::Duration;

use serde_json::Value;

use crate::support::run::{Outcome, Run, number};
use crate::support::server::Server;
use crate::support::{Engine, on_both_engines, shard_counts};

/// What a run may take beyond its duration: start, drain, files, on a busy machine.
const OVERHEAD: Duration = Duration::from_secs(4);

on_both_engines!(
    a_number_of_requests_is_exact,
    several_urls_take_turns_over_all_shards,
    concurrency_is_reached_and_never_exceeded,
    the_same_load_under_its_other_names,
    a_duration_stops_in_time,
    the_first_of_number_and_duration_stops,
    warm_up_by_time_is_not_tracked,
    warm_up_by_number_is_exact,
    figures_derive_from_the_counts,
    a_closed_loop_sends_when_an_answer_came,
);

fn max_throughput(engine: Engine, url: &str, more: &str) -> Outcome {
    Run::on(engine).words(&format!("max-throughput {url} {more}")).finish()
}

fn a_number_of_requests_is_exact(engine: Engine) {
    for shards in shard_counts() {
        for requests in [1, 7, 100, 10_000] {
            let server = Server::start();
            let outcome = max_throughput(
                engine,
                &server.url("plain"),
                &format!("-n {requests} -c 8 -t {shards}"),
            );
            outcome.expect_successes(requests);
            assert_eq!(server.requests("plain"), requests, "{shards} shards; {}", outcome.story());
            assert!(server.accepted() <= 8, "{} connections for -c 8", server.accepted());
        }
    }
}

fn several_urls_take_turns_over_all_shards(engine: Engine) {
    for shards in shard_counts() {
        let server = Server::start();
        let urls: Vec<String> =
            ["plain?a", "chunked?b", "204?c"].map(|path| server.url(path)).into();
        let outcome = max_throughput(engine, &urls.join(" "), &format!("-n 1000 -c 8 -t {shards}"));
        outcome.expect_successes(1000);
        let seen = ["plain", "chunked", "204"].map(|path| server.requests(path));
        assert_eq!(seen, [334, 333, 333], "position i goes to URL i mod 3; {shards} shards");
    }
}

fn concurrency_is_reached_and_never_exceeded(engine: Engine) {
    let shards = shard_counts();
    let cases = [1, 8, 33].into_iter().flat_map(|c| shards.iter().map(move |shards| (c, shards)));
    for (connections, shards) in cases {
        let server = Server::start();
        let outcome = max_throughput(
            engine,
            // Long enough for every thread of the server on a busy machine.
            &server.url("delay?ms=150"),
            &format!("-n {} -c {connections} -t {shards}", 4 * connections),
        );
        outcome.expect_successes(4 * connections);
        let seen = server.seen("delay");
        assert_eq!(seen.in_flight_max, connections, "{shards} shards; {}", outcome.story());
        assert_eq!(seen.connections, connections, "all are used");
    }
}

fn the_same_load_under_its_other_names(engine: Engine) {
    // Before the URL, after the URL: always 40 requests, 4 in flight.
    let rows = [
        ("concurrency", "-c 4 -n 40"),
        ("max-throughput", "--connections 4 --requests 40"),
        ("max-throughput", "--concurrency 4 -n 40"),
        ("", "-c 4 -n 40"),
        ("", "-c 9 -n 400 -c 4 -n 40"),
        ("--cores 0", "-c 4 -n 40"),
        ("--cores 0 max-throughput -n 40", "-c 4"),
    ];
    for (before, after) in rows {
        let server = Server::start();
        let url = server.url("delay?ms=60");
        let outcome = Run::on(engine).words(before).args([url]).words(after).finish();
        outcome.expect_successes(40);
        let seen = server.seen("delay");
        assert_eq!((seen.requests, seen.in_flight_max), (40, 4), "{before} URL {after}");
    }
    let server = Server::start();
    let outcome = Run::on(engine).args([server.url("plain")]).words("-c 1 -z 200ms").finish();
    outcome.expect_code(0);
    assert!(server.requests("plain") > 0);
    assert!(outcome.elapsed < Duration::from_millis(200) + OVERHEAD, "{:?}", outcome.elapsed);
}

fn a_duration_stops_in_time(engine: Engine) {
    let server = Server::start();
    let asked = Duration::from_millis(600);
    let outcome = max_throughput(engine, &server.url("delay?ms=5"), "-d 600ms -c 4");
    let completed = outcome.counter("tracked_samples_completed");
    outcome.expect_successes(completed);
    assert_eq!(server.requests("delay"), completed);
    assert!(outcome.elapsed >= asked, "{:?}", outcome.elapsed);
    assert!(outcome.elapsed < asked + OVERHEAD, "{:?}", outcome.elapsed);
    let tracked = Duration::from_nanos(outcome.counter("tracked_duration_ns"));
    assert!(tracked >= asked * 9 / 10, "{tracked:?}");
    assert!(tracked < asked + OVERHEAD, "{tracked:?}");
    // By the server's clock: load over the whole time, not a burst and a wait.
    let arrivals = server.seen("delay").arrivals;
    let spread = *arrivals.last().expect("there was load") - arrivals[0];
    assert!(spread >= asked / 2, "all requests came within {spread:?}");
    assert!(spread < asked + OVERHEAD, "{spread:?}");
}

fn the_first_of_number_and_duration_stops(engine: Engine) {
    let server = Server::start();
    let by_number = max_throughput(engine, &server.url("plain"), "-d 30s -n 10 -c 2");
    by_number.expect_successes(10);
    assert!(by_number.elapsed < OVERHEAD, "{:?}", by_number.elapsed);
    let by_time = max_throughput(engine, &server.url("plain"), "-d 300ms -n 1000000000 -c 2");
    by_time.expect_code(0);
    assert!(by_time.elapsed < Duration::from_millis(300) + OVERHEAD, "{:?}", by_time.elapsed);
    assert_eq!(server.requests("plain"), 10 + by_time.counter("total_samples_completed"));
}

/// Name and type of each phase in a result file.
fn phases(file: &Value) -> Vec<(String, String)> {
    let phases = file["phases"].as_array().expect("phases[]");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    phases.iter().map(|phase| (text(&phase["name"]), text(&phase["phase_type"]))).collect()
}

fn warm_up_by_time_is_not_tracked(engine: Engine) {
    let server = Server::start();
    let outcome = max_throughput(engine, &server.url("plain"), "--warmup 300ms -d 300ms -c 2");
    outcome.expect_code(0);
    let total = outcome.counter("total_samples_completed");
    let tracked = outcome.counter("tracked_samples_completed");
    assert!(0 < tracked, "{}", outcome.story());
    assert!(tracked < total, "{}", outcome.story());
    // What the warm-up left in flight was answered, in no phase's figures.
    let carried = outcome.counter("samples_in_flight_at_end");
    assert_eq!(outcome.counter("samples_carried_in"), carried);
    assert_eq!(server.requests("plain"), total + carried);
    let expected = [("warmup", "warmup"), ("performance", "performance")];
    let expected: Vec<_> = expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    assert_eq!(phases(&outcome.snapshot()), expected);
}

fn warm_up_by_number_is_exact(engine: Engine) {
    for shards in shard_counts() {
        let server = Server::start();
        let more = format!("--warmup 50 -n 100 -c 4 -t {shards}");
        let outcome = max_throughput(engine, &server.url("plain"), &more);
        outcome.expect_successes(100);
        let carried = outcome.counter("samples_in_flight_at_end");
        assert!(carried <= 4, "{}", outcome.story());
        assert_eq!(outcome.counter("total_samples_completed") + carried, 150);
        assert_eq!(outcome.counter("total_samples_issued"), 150);
        assert_eq!(server.requests("plain"), 150);
        assert_eq!(number(&outcome.summary()["n_samples_completed"]), 100);
    }
}

/// Both sides of an equation may differ by this share: figures are rounded on their way to JSON.
const ROUNDING: f64 = 0.001;

fn figures_derive_from_the_counts(engine: Engine) {
    let server = Server::start();
    let outcome = max_throughput(engine, &server.url("delay?ms=5"), "-d 500ms -c 4");
    outcome.expect_code(0);
    let summary = outcome.summary();
    let figure = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}: no figure"));
    let completed = outcome.counter("tracked_samples_completed");
    let seconds = outcome.counter("tracked_duration_ns") as f64 / 1e9;
    let qps = figure(&summary["qps"]);
    assert!(
        (qps * seconds / completed as f64 - 1.0).abs() < ROUNDING,
        "{qps} x {seconds} s = {completed}"
    );
    let latency = &summary["latency"];
    let median = figure(&latency["median"]);
    assert!(median >= 5e6, "the server pauses 5 ms before each answer, p50 is {median} ns");
    assert!(figure(&latency["min"]) >= 5e6);
    assert!(figure(&latency["max"]) <= outcome.elapsed.as_nanos() as f64);
    assert_eq!(figure(&latency["percentiles"]["50.0"]), median);
    assert_eq!(summary["latency"], summary["service_latency"], "closed loop: from the send");
}

/// Between two requests of one connection lies the server's pause: the client does not run ahead.
fn a_closed_loop_sends_when_an_answer_came(engine: Engine) {
    let server = Server::start();
    let outcome = max_throughput(engine, &server.url("delay?ms=20"), "-n 20 -c 1 -t 1");
    outcome.expect_successes(20);
    let arrivals = server.seen("delay").arrivals;
    for pair in arrivals.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap >= Duration::from_millis(20), "the next request came after {gap:?}");
    }
}
