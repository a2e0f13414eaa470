//! Awkward answers, each proved at both ends: what the client reports is what the server saw,
//! nothing is counted twice and nothing is tried again in secret.

use crate::support::run::{Outcome, Run};
use crate::support::script::{LEGAL, TRUNCATED};
use crate::support::server::{Seen, Server};
use crate::support::{Engine, on_both_engines};

/// Requests of a case. Enough for every connection to be used many times.
const REQUESTS: u64 = 200;
/// Connections of a case.
const CONNECTIONS: u64 = 2;

on_both_engines!(
    legal_answers_are_successes_and_each_is_one_request,
    legal_answers_agree_with_the_server_in_a_timed_run,
    bodies_that_end_early_are_failures_and_are_not_tried_again,
    interim_answers_are_not_counted,
    not_modified_is_a_failed_status_unless_accepted,
    a_rude_close_is_a_reconnect_and_no_failure,
    a_connection_that_dies_under_a_request_is_retried_once_and_counted,
    a_retried_request_that_the_server_had_read_is_no_secret,
    connections_are_kept_where_the_answer_allows_it,
    excess_bytes_answer_no_request,
    large_answers_arrive_whole,
    an_answer_in_single_bytes_is_one_answer,
    a_pause_inside_an_answer_is_waited_for,
    a_redirect_is_not_followed,
);

/// Sends `requests` to one path over two connections, with more arguments if need be.
fn run(engine: Engine, server: &Server, path: &str, requests: u64, more: &str) -> (Outcome, Seen) {
    let outcome = Run::on(engine)
        .words(&format!("max-throughput {} -t 1", server.url(path)))
        .words(&format!("-n {requests} -c {CONNECTIONS} {more}"))
        .finish();
    let name = path.split('?').next().expect("split gives at least one part");
    let seen = server.seen(name);
    (outcome, seen)
}

/// What some cases need: HEAD for `head`, and for `304` that the status counts as success.
fn more_arguments(path: &str) -> &'static str {
    match path {
        "head" => "-m HEAD",
        "304" => "--accept-status 200-399",
        _ => "",
    }
}

fn legal_answers_are_successes_and_each_is_one_request(engine: Engine) {
    let server = Server::start();
    for path in LEGAL {
        // A dripped answer takes 12 ms.
        let requests = if path == "drip" { 40 } else { REQUESTS };
        let (outcome, seen) = run(engine, &server, path, requests, more_arguments(path));
        outcome.expect_successes(requests);
        assert_eq!(seen.requests, requests, "{path}: {}", outcome.story());
        assert!(seen.in_flight_max <= CONNECTIONS, "{path}: {}", seen.in_flight_max);
    }
}

fn legal_answers_agree_with_the_server_in_a_timed_run(engine: Engine) {
    let server = Server::start();
    for path in LEGAL {
        let outcome = Run::on(engine)
            .words(&format!("max-throughput {} -t 1 -d 300ms", server.url(path)))
            .words(&format!("-c {CONNECTIONS} {}", more_arguments(path)))
            .finish();
        let completed = outcome.counter("total_samples_completed");
        outcome.expect_successes(completed);
        assert!(completed > 0, "{path}: {}", outcome.story());
        // The run drains, so that nothing is in flight at the end and the counts agree to the last
        // one.
        assert_eq!(outcome.counter("samples_in_flight_at_end"), 0, "{path}");
        assert_eq!(server.requests(path), completed, "{path}: {}", outcome.story());
    }
}

fn bodies_that_end_early_are_failures_and_are_not_tried_again(engine: Engine) {
    let server = Server::start();
    for path in TRUNCATED {
        let (outcome, seen) = run(engine, &server, path, 50, "");
        outcome.expect_failures("truncated_body", 50);
        assert_eq!(seen.requests, 50, "{path}: {}", outcome.story());
        assert_eq!(outcome.counter("retries"), 0, "{path}");
    }
}

fn interim_answers_are_not_counted(engine: Engine) {
    let server = Server::start();
    for path in ["100", "interim?count=1", "interim?count=5"] {
        let (outcome, seen) = run(engine, &server, path, 30, "");
        outcome.expect_successes(30);
        let statuses = outcome.statuses();
        assert_eq!(statuses.keys().collect::<Vec<_>>(), ["200"], "{path}: {statuses:?}");
        assert_eq!(statuses["200"], 30, "{path}");
        assert_eq!(seen.requests % 30, 0, "{path}: {}", outcome.story());
    }
    assert_eq!(server.requests("100"), 30);
    assert_eq!(server.requests("interim"), 60);
}

fn not_modified_is_a_failed_status_unless_accepted(engine: Engine) {
    let server = Server::start();
    let (refused, _) = run(engine, &server, "304", 20, "");
    refused.expect_failures("status", 20);
    assert_eq!(refused.statuses()["304"], 20);
    let (accepted, _) = run(engine, &server, "304", 20, "--accept-status 304-304");
    accepted.expect_successes(20);
}

fn a_rude_close_is_a_reconnect_and_no_failure(engine: Engine) {
    let server = Server::start();
    let (outcome, seen) = run(engine, &server, "rudeclose", REQUESTS, "");
    outcome.expect_successes(REQUESTS);
    assert_eq!(seen.requests, REQUESTS, "a request of the closed connection was never read");
    assert_eq!(seen.connections, REQUESTS, "each connection answers once");
    assert!(outcome.counter("connections_opened") >= REQUESTS, "{}", outcome.story());
}

fn a_connection_that_dies_under_a_request_is_retried_once_and_counted(engine: Engine) {
    let server = Server::start();
    let (outcome, seen) = run(engine, &server, "stale?after=5", REQUESTS, "");
    outcome.expect_successes(REQUESTS);
    assert_eq!(seen.requests, REQUESTS, "the server closes before it reads the request");
    let stale = outcome.counter("connections_reused_stale");
    assert_eq!(outcome.counter("retries"), stale);
    // Each connection answers 5 requests and dies under the next; the last ones need not be used
    // again.
    let dead = REQUESTS / 5;
    assert!((dead - CONNECTIONS..=dead).contains(&stale), "{stale} of {dead}: {}", outcome.story());
}

fn a_retried_request_that_the_server_had_read_is_no_secret(engine: Engine) {
    let server = Server::start();
    let (outcome, seen) = run(engine, &server, "stale-read?after=5", REQUESTS, "");
    outcome.expect_successes(REQUESTS);
    let retries = outcome.counter("retries");
    assert!(retries > 0, "{}", outcome.story());
    assert_eq!(seen.requests, REQUESTS + retries, "every request beyond -n is a counted retry");
}

fn connections_are_kept_where_the_answer_allows_it(engine: Engine) {
    let server = Server::start();
    let kept =
        ["plain", "chunked", "204", "100", "lf", "http10-keepalive", "interim", "mix?every=1000"];
    for path in kept {
        let (outcome, seen) = run(engine, &server, path, 50, "");
        outcome.expect_successes(50);
        assert_eq!(seen.connections, CONNECTIONS, "{path}");
        assert_eq!(outcome.counter("connections_opened"), CONNECTIONS, "{path}");
    }
    for path in ["close", "eof", "http10"] {
        let (outcome, seen) = run(engine, &server, path, 50, "");
        outcome.expect_successes(50);
        assert_eq!(seen.connections, 50, "{path}");
        assert_eq!(
            outcome.counter("connections_reused_stale"),
            0,
            "{path}: the close was announced"
        );
    }
}

/// The bytes behind a complete answer look like a second one. Taken for the answer to the next
/// request, they would give a success that the server never saw.
fn excess_bytes_answer_no_request(engine: Engine) {
    let server = Server::start();
    let (outcome, seen) = run(engine, &server, "excess", 40, "");
    assert_eq!(seen.requests, 40, "{}", outcome.story());
    assert_eq!(outcome.counter("total_samples_issued"), 40);
    let malformed = outcome.failures().get("malformed_response").copied().unwrap_or(0);
    assert_eq!(outcome.counter("total_samples_completed") + malformed, 40, "{}", outcome.story());
}

fn large_answers_arrive_whole(engine: Engine) {
    let server = Server::start();
    let rows = [
        ("big?bytes=65536", 100, 65_536),
        ("big?bytes=1048576", 20, 1 << 20),
        ("huge-head", 20, 256 << 10),
    ];
    for (path, requests, bytes) in rows {
        let (outcome, _) = run(engine, &server, path, requests, "");
        outcome.expect_successes(requests);
        let received = outcome.counter("bytes_received");
        assert!(received >= requests * bytes, "{path}: {received} bytes; {}", outcome.story());
    }
}

fn an_answer_in_single_bytes_is_one_answer(engine: Engine) {
    let server = Server::start();
    let (outcome, seen) = run(engine, &server, "bytewise", 20, "");
    outcome.expect_successes(20);
    assert_eq!((seen.requests, seen.connections), (20, CONNECTIONS));
}

fn a_pause_inside_an_answer_is_waited_for(engine: Engine) {
    let server = Server::start();
    let (outcome, seen) = run(engine, &server, "slow-middle?ms=50", 10, "");
    outcome.expect_successes(10);
    assert_eq!(seen.requests, 10);
    let fastest = outcome.summary()["latency"]["min"].as_f64().expect("latency.min");
    assert!(fastest >= 50e6, "no answer is complete before its pause: {fastest} ns");
}

fn a_redirect_is_not_followed(engine: Engine) {
    let server = Server::start();
    let (outcome, seen) = run(engine, &server, "redirect", 10, "");
    outcome.expect_failures("status", 10);
    assert_eq!(outcome.statuses()["301"], 10);
    assert_eq!((seen.requests, server.requests("plain")), (10, 0));
}
