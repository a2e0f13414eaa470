//! `--floor`: measured before the run against an endpoint of our own, and told beside the result.

use crate::support::run::{Run, number};
use crate::support::server::Server;

#[test]
fn the_floor_is_measured_elsewhere_and_told_beside_the_result() {
    let server = Server::start();
    let url = server.url("delay?ms=5");
    let outcome = Run::new()
        .words(&format!("poisson {url} -R 200 -n 50 -t 1 --floor --allow-untrusted"))
        .finish();
    outcome.expect_successes(50);
    assert_eq!(server.requests_total(), 50, "the floor is not the server's; {}", outcome.story());
    let floor = &outcome.summary()["floor"];
    // 1 s at 200/s: more than enough for a median, too few for a p99.
    assert!((100..400).contains(&number(&floor["n_samples_completed"])), "{floor}");
    assert!(number(&floor["service_latency"]["percentiles"]["50.0"]) > 0, "{floor}");
    assert!(floor["service_latency"]["percentiles"]["99.0"].is_null(), "{floor}");
    assert!(floor["lateness"]["percentiles"]["50.0"].is_u64(), "{floor}");
    let line = outcome.stdout.lines().find(|line| line.trim_start().starts_with("floor"));
    let line = line.unwrap_or_else(|| panic!("no floor; {}", outcome.story()));
    assert!(line.contains("service p50") && line.contains("% of your p50"), "{line}");
}

#[test]
fn a_closed_loop_has_a_floor_without_lateness_and_without_the_flag_there_is_none() {
    let server = Server::start();
    let url = server.url("plain");
    let words = format!("concurrency {url} -c 2 -n 50 -t 1 --allow-untrusted");
    let outcome = Run::new().words(&words).words("--floor").finish();
    outcome.expect_successes(50);
    let floor = &outcome.summary()["floor"];
    assert!(number(&floor["service_latency"]["percentiles"]["50.0"]) > 0, "{floor}");
    assert!(floor["lateness"]["percentiles"]["50.0"].is_null(), "{floor}");
    let outcome = Run::new().words(&words).finish();
    assert!(outcome.expect_successes(50).summary()["floor"].is_null());
}

#[test]
fn an_interrupt_in_the_floor_starts_no_run() {
    let server = Server::start();
    let url = server.url("plain");
    let mut running =
        Run::new().words(&format!("concurrency {url} -c 2 -d 60s --floor --ui plain")).start();
    running.await_output("floor of this host");
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1).expect_reason(&["before the run began"]);
    assert_eq!(server.requests_total(), 0, "{}", outcome.story());
}
