//! Endpoints that fail: each failure is counted under its kind, what was measured is written, and
//! nothing the endpoint sends reaches the terminal as it is.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::support::run::{Outcome, Run, SNAPSHOT, SUMMARY};
use crate::support::server::Server;
use crate::support::temp::files_below;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    each_way_to_fail_has_its_kind_and_is_not_retried,
    a_reset_inside_an_answer_is_a_failure,
    a_server_that_closes_at_once_is_a_failure_and_no_hang,
    failures_among_successes_are_counted_and_exit_zero,
    resets_among_successes_keep_the_counts_right,
    a_run_in_which_everything_fails_stops_early,
    a_run_in_which_something_succeeds_does_not_stop_early,
    control_bytes_of_the_server_reach_no_terminal_and_no_file,
);

fn run(engine: Engine, url: &str, more: &str) -> Outcome {
    Run::on(engine).words(&format!("max-throughput {url} {more} -c 2 -t 1")).finish()
}

fn each_way_to_fail_has_its_kind_and_is_not_retried(engine: Engine) {
    let rows = [
        ("garbage", "malformed_response"),
        ("closes", "closed_early"),
        ("reset-before", "reset"),
        ("status/500", "status"),
        ("status/503", "status"),
        ("status/404", "status"),
        ("trunc", "truncated_body"),
    ];
    let server = Server::start();
    for (path, kind) in rows {
        let outcome = run(engine, &server.url(path), "-n 20");
        outcome.expect_failures(kind, 20);
        assert_eq!(server.requests(path), 20, "{path}: {}", outcome.story());
        for file in [SNAPSHOT, SUMMARY, "config.yaml", "report.txt"] {
            assert!(outcome.path(file).exists(), "{path}: no {file}");
        }
        let message = &outcome.summary()["failures"][kind]["first_message"];
        assert!(message.is_string(), "{path}: first_message is {message}");
        assert!(outcome.file("report.txt").contains("20"), "the report counts them");
    }
}

/// Whether the reset overtakes the bytes before it is the kernel's affair.
fn a_reset_inside_an_answer_is_a_failure(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &server.url("reset-inside"), "-n 20");
    outcome.expect_code(1);
    let failures = outcome.failures();
    let of = |kind: &str| failures.get(kind).copied().unwrap_or(0);
    assert_eq!(of("reset") + of("truncated_body"), 20, "{failures:?}");
    assert_eq!(server.requests("reset-inside"), 20);
}

/// It closes before it has read anything, maybe before the request is sent: refused at set-up, or
/// every request fails.
fn a_server_that_closes_at_once_is_a_failure_and_no_hang(engine: Engine) {
    let server = Server::start_closing_on_accept();
    let outcome = run(engine, &server.url("plain"), "-d 1s");
    if !outcome.path(SNAPSHOT).exists() {
        outcome.expect_code(3).expect_reason(&["closed"]);
        return;
    }
    outcome.expect_code(1);
    assert_eq!(outcome.counter("total_samples_completed"), 0);
    assert!(outcome.counter("total_samples_failed") > 0, "{}", outcome.story());
}

fn failures_among_successes_are_counted_and_exit_zero(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &server.url("mix?every=4&status=503"), "-n 200");
    outcome.expect_code(0);
    assert_eq!(outcome.failures(), BTreeMap::from([("status".to_owned(), 50)]));
    assert_eq!(outcome.counter("tracked_samples_completed"), 150);
    let expected = BTreeMap::from([("200".to_owned(), 150), ("503".to_owned(), 50)]);
    assert_eq!(outcome.statuses(), expected);
    let latency = &outcome.summary()["latency"];
    let histogram = latency["histogram"]["counts"].as_array().expect("histogram.counts");
    let counted: u64 = histogram.iter().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted, 150, "the latency of a failure is not among those of successes");
}

/// Every fourth request of the path is answered with a reset. On a reused connection that is a
/// stale one: it is tried again, and the repetition may be a fourth one too.
fn resets_among_successes_keep_the_counts_right(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &server.url("reset-mix?every=4"), "-n 200");
    outcome.expect_code(0);
    let counter = |name: &str| outcome.counter(name);
    assert_eq!(counter("tracked_samples_completed") + counter("tracked_samples_failed"), 200);
    assert_eq!(server.requests("reset-mix"), 200 + counter("retries"), "{}", outcome.story());
    assert!(counter("retries") > 0, "{}", outcome.story());
}

fn a_run_in_which_everything_fails_stops_early(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &server.url("status/500"), "-d 30s");
    outcome.expect_code(1).expect_reason(&["failed"]);
    assert!(outcome.elapsed >= Duration::from_millis(1900), "{:?}: too early", outcome.elapsed);
    assert!(outcome.elapsed < Duration::from_secs(10), "{:?}", outcome.elapsed);
    let given_up = outcome.counter("samples_cancelled");
    assert_eq!(outcome.failures()["status"] + given_up, server.requests("status/500"));
    assert_eq!(outcome.summary()["complete"], false);
}

fn a_run_in_which_something_succeeds_does_not_stop_early(engine: Engine) {
    let server = Server::start();
    let outcome = run(engine, &server.url("mix?every=2"), "-d 2500ms");
    outcome.expect_code(0);
    assert!(outcome.elapsed >= Duration::from_millis(2500), "{:?}", outcome.elapsed);
}

/// Bytes that move the cursor, set the title or ring the bell. `\r` may come from a progress line
/// of ours.
fn has_control_bytes(text: &[u8]) -> bool {
    text.iter().any(|byte| (*byte < 0x20 && !b"\n\r\t".contains(byte)) || *byte == 0x7f)
}

fn control_bytes_of_the_server_reach_no_terminal_and_no_file(engine: Engine) {
    assert!(has_control_bytes(b"\x1b[2J") && !has_control_bytes("ok µ·\r\n".as_bytes()));
    let server = Server::start();
    for path in ["control", "garbage"] {
        for more in ["-n 10", "-n 10 --json"] {
            let outcome = run(engine, &server.url(path), more);
            outcome.expect_code(1);
            assert!(!has_control_bytes(outcome.stdout.as_bytes()), "{path}: {:?}", outcome.stdout);
            assert!(!has_control_bytes(outcome.stderr.as_bytes()), "{path}: {:?}", outcome.stderr);
            for file in files_below(&outcome.path("")) {
                let bytes = fs::read(&file).unwrap();
                assert!(!has_control_bytes(&bytes), "{path}: {}", file.display());
            }
        }
    }
}
