//! A real server: nginx, which counts its requests itself. Skipped with a reason where it is not
//! installed; where LOADGEN_REQUIRE_REAL_SERVERS is set (`.ci/run`), that is a failure.

use crate::support::real::Nginx;
use crate::support::run::Run;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    nginx_saw_what_we_report,
    nginx_closing_connections_costs_no_failure,
    nginx_failing_is_counted_by_status,
);

const SERVER: &str = "server {
    listen 127.0.0.1:PORT backlog=512;
    location = /plain { return 200 'a small static body'; }
    location = /closing { keepalive_requests 10; return 200 'bye soon'; }
    location = /busy { return 503 'try later'; }
    location = /stat { stub_status; }
}";

fn url(nginx: &Nginx, path: &str) -> String {
    format!("http://127.0.0.1:{}/{path}", nginx.port())
}

/// Negative control of the counter that the tests below believe.
#[test]
fn nginx_counts_its_requests() {
    let Some(nginx) = Nginx::start(SERVER, &[]) else { return };
    assert_eq!(nginx.requests_during(|| ()).0, 0);
    let (seen, ()) = nginx.requests_during(|| assert!(nginx.requests() > 0));
    assert_eq!(seen, 1);
}

fn nginx_saw_what_we_report(engine: Engine) {
    let Some(nginx) = Nginx::start(SERVER, &[]) else { return };
    let url = url(&nginx, "plain");
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -n 3000 -c 16")).finish());
    outcome.expect_successes(3000);
    assert_eq!(seen, 3000, "{}", outcome.story());
    assert_eq!(outcome.counter("connections_opened"), 16);
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -d 500ms -c 16")).finish());
    let completed = outcome.counter("total_samples_completed");
    outcome.expect_successes(completed);
    assert_eq!(seen, completed, "drained: {}", outcome.story());
}

/// Every tenth answer says `Connection: close`; the body has a known length, so nothing fails.
fn nginx_closing_connections_costs_no_failure(engine: Engine) {
    let Some(nginx) = Nginx::start(SERVER, &[]) else { return };
    let url = url(&nginx, "closing");
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -n 500 -c 4")).finish());
    outcome.expect_successes(500);
    assert_eq!(seen, 500 + outcome.counter("retries"));
    let opened = outcome.counter("connections_opened");
    assert!(opened >= 50, "10 requests a connection, {opened} connections");
}

fn nginx_failing_is_counted_by_status(engine: Engine) {
    let Some(nginx) = Nginx::start(SERVER, &[]) else { return };
    let url = url(&nginx, "busy");
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -n 100 -c 4")).finish());
    outcome.expect_failures("status", 100);
    assert_eq!(outcome.statuses()["503"], 100);
    assert_eq!(seen, 100);
}
