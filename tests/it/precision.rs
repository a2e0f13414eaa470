//! `-d auto`: the run ends when its percentile is known, and not before there is enough to tell.

use std::time::Duration;

use crate::support::run::{Outcome, Run};
use crate::support::server::Server;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    a_run_ends_when_its_percentile_is_known,
    a_budget_that_is_too_short_says_what_is_missing,
);

/// Ten slices of 250 ms are the least that an interval is made of.
const LEAST: Duration = Duration::from_millis(2500);

fn line(outcome: &Outcome) -> &str {
    let line = outcome.stdout.lines().find(|line| line.trim_start().starts_with("precision"));
    line.unwrap_or_else(|| panic!("no precision; {}", outcome.story()))
}

fn a_run_ends_when_its_percentile_is_known(engine: Engine) {
    let server = Server::start();
    // Answers of 20 ms: the median is known to 100 % as soon as anything can be said.
    let url = server.url("delay?ms=20");
    for words in ["concurrency -c 2", "poisson -R 100"] {
        let outcome = Run::on(engine)
            .words(&format!("{words} {url} -t 1 --allow-untrusted"))
            .words("-d auto --precision p50:100% --budget 30s")
            .finish();
        outcome.expect_code(0);
        assert!(outcome.elapsed >= LEAST, "{}", outcome.story());
        assert!(outcome.elapsed < Duration::from_secs(25), "{}", outcome.story());
        assert!(line(&outcome).contains("reached after "), "{}", outcome.story());
        assert!(outcome.stderr.contains("p50 to 100 % takes about"), "{}", outcome.story());
        let summary = outcome.summary();
        let precision = &summary["precision"];
        assert_eq!(precision["reached"], true, "{precision}");
        assert!(precision["half_width"].as_f64() <= Some(1.0), "{precision}");
        let after_ns = precision["reached_after_ns"].as_u64().expect("reached");
        // What was issued until the end was drained, and the load went on until it.
        assert!(summary["duration_ns"].as_u64() >= Some(after_ns), "{summary}");
        assert_eq!(summary["complete"], true);
    }
    assert_eq!(server.in_flight_max("delay").min(2), 2);
}

fn a_budget_that_is_too_short_says_what_is_missing(engine: Engine) {
    let server = Server::start();
    let url = server.url("plain");
    let outcome = Run::on(engine)
        .words(&format!("concurrency -c 2 {url} -t 1 --allow-untrusted"))
        .words("-d auto --precision p99:0.001% --budget 4s")
        .finish();
    outcome.expect_code(0);
    assert_eq!(outcome.summary()["precision"]["reached"], false, "{}", outcome.story());
    // On a busy machine there may be too few answers to tell by how much.
    let line = line(&outcome);
    let is_told = line.contains("not reached within the budget of 4 s")
        || line.contains("not reached: too few answers");
    assert!(is_told, "{line}");
}
