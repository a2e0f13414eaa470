//! Whether a run is believed: a slow, failing or overloaded endpoint is measured and believed, a
//! client that was held up is not, and says by what.

use std::time::Duration;

use crate::open_loop::run_stopped;
use crate::support::queue::{Plan, QueueServer, Service};
use crate::support::run::{Outcome, Run};
use crate::support::server::Server;
use crate::support::{Engine, on_a_calm_host, on_both_engines};

on_both_engines!(
    a_healthy_server_is_believed,
    two_percent_of_failures_are_believed,
    fifty_requests_are_believed,
    an_overload_is_believed,
    a_stopped_client_is_not_believed,
    a_stopped_client_is_taken_when_allowed,
);

/// Believed: exit code 0. A busy host may hold the client up, and is to be told so.
fn assert_believed(run: impl Fn() -> Outcome) {
    on_a_calm_host(|| {
        let outcome = run();
        if outcome.code() == Some(6) {
            return Err(outcome.story());
        }
        outcome.expect_code(0);
        assert_ne!(outcome.summary()["trust"]["verdict"], "fail", "{}", outcome.story());
        Ok(())
    });
}

fn open_loop(engine: Engine, words: &str, url: String) -> Outcome {
    Run::on(engine).words(words).args([url]).finish()
}

fn a_healthy_server_is_believed(engine: Engine) {
    assert_believed(|| {
        let server = QueueServer::unlimited(Duration::from_millis(2));
        open_loop(engine, "poisson -R 300 -d 2s", server.url())
    });
}

fn two_percent_of_failures_are_believed(engine: Engine) {
    assert_believed(|| {
        let server = Server::start();
        // As slow as the other servers: a pause of a busy host outweighs a latency of 50 us.
        let url = server.url("mix?every=50&status=503&ms=2");
        let outcome = open_loop(engine, "poisson -R 300 -n 500", url);
        assert_eq!(outcome.counter("tracked_samples_failed"), 10, "{}", outcome.story());
        outcome
    });
}

fn fifty_requests_are_believed(engine: Engine) {
    assert_believed(|| {
        let server = QueueServer::unlimited(Duration::from_millis(2));
        open_loop(engine, "poisson -R 100 -n 50", server.url())
    });
}

/// 240 a second for a server that takes 5 ms each.
fn an_overload_is_believed(engine: Engine) {
    assert_believed(|| {
        let service = Service::Constant(5_000_000);
        let server = QueueServer::start(Plan { servers: 1, service, freeze: None });
        open_loop(engine, "poisson -R 240 -d 2s", server.url())
    });
}

fn a_stopped_client_is_not_believed(engine: Engine) {
    on_a_calm_host(|| {
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run_stopped(Run::on(engine), &server)?;
        outcome.expect_code(6).expect_reason(&["do not believe", "stopped the client"]);
        assert_eq!(outcome.summary()["trust"]["verdict"], "fail", "{}", outcome.story());
        assert_eq!(outcome.counter("tracked_samples_completed"), 1500, "written all the same");
        Ok(())
    });
}

fn a_stopped_client_is_taken_when_allowed(engine: Engine) {
    on_a_calm_host(|| {
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run_stopped(Run::on(engine).args(["--allow-untrusted"]), &server)?;
        outcome.expect_successes(1500);
        assert_eq!(outcome.summary()["trust"]["verdict"], "fail", "{}", outcome.story());
        Ok(())
    });
}
