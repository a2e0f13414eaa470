//! `ab`: blocks of three runs in random order, new connections and one schedule a block, and a
//! verdict that an endpoint with another answer time cannot escape.

use serde_json::Value;

use crate::support::run::{Outcome, Run, SUMMARY, number, parse};
use crate::support::server::Server;

fn ab(a: &str, b: &str, words: &str) -> Outcome {
    Run::new().args(["ab", a, b]).words("--allow-untrusted -t 1").words(words).finish()
}

fn figure<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let figures = summary["figures"].as_array().expect("figures[]");
    figures.iter().find(|figure| figure["figure"] == name).expect("it is judged")
}

#[test]
fn an_endpoint_that_waits_is_slower_and_the_gate_says_so() {
    let server = Server::start();
    let (fast, slow) = (server.url("plain"), server.url("delay?ms=60"));
    let outcome = ab(&fast, &slow, "-c 2 -n 30 --repeats 4 --fail-if p50>+10%");
    outcome.expect_code(4).expect_reason(&["p50>+10%", "is true"]);
    let summary = outcome.summary();
    let p50 = figure(&summary, "latency.p50");
    assert_eq!(p50["verdict"], "slower", "{p50}");
    assert!(p50["change"]["shift"].as_f64() > Some(1.0), "{p50}");
    assert_eq!(figure(&summary, "failed")["verdict"], "equal");
    assert_eq!(figure(&summary, "latency.p99")["verdict"], "cannot tell", "30 values have none");
    assert_eq!(summary["verdict"], "slower");
    let first = outcome.file("report.txt");
    let first = first.lines().find(|line| line.starts_with("B is slower than A: p50 +"));
    assert!(first.is_some(), "{}", outcome.story());
    assert!(outcome.stdout.contains("A against itself: p50 "), "{}", outcome.story());
}

#[test]
fn runs_of_a_block_share_their_schedule_and_each_has_its_connections() {
    let server = Server::start();
    let (a, b) = (server.url("plain?a"), server.url("plain?b"));
    let outcome = ab(&a, &b, "-R 400 -n 40 -c 3 --max-connections 3 --repeats 4 --json");
    assert!([Some(0), Some(1)].contains(&outcome.code()), "{}", outcome.story());
    assert_eq!(outcome.stdout, outcome.file(SUMMARY));
    assert!(outcome.stderr.contains("12 runs of 40 requests"), "{}", outcome.story());
    assert_eq!(server.requests_total(), 480, "{}", outcome.story());
    assert_eq!(server.accepted(), 36, "three connections a run; {}", outcome.story());
    let summary = outcome.summary();
    let runs = summary["runs"].as_array().expect("runs[]");
    assert_eq!(runs.len(), 12);
    let hash = |run: &Value| run["schedule_hash"].as_str().expect("open loop").to_owned();
    let mut hashes = Vec::new();
    for block in runs.chunks(3) {
        let mut sides: Vec<&str> = block.iter().filter_map(|run| run["side"].as_str()).collect();
        sides.sort_unstable();
        assert_eq!(sides, ["a", "b", "control"]);
        assert!(block.iter().all(|run| hash(run) == hash(&block[0])), "{block:?}");
        hashes.push(hash(&block[0]));
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 4, "blocks differ");
    for folder in ["a-01", "a-08", "b-01", "b-04"] {
        let of_run = parse(&outcome.file(&format!("{folder}/{SUMMARY}")));
        assert_eq!(number(&of_run["n_samples_completed"]), 40, "{folder}");
    }
    let urls = |folder: &str| outcome.file(&format!("{folder}/config.yaml"));
    assert!(urls("a-02").contains(&a) && urls("b-02").contains(&b));
}

#[test]
fn an_interrupt_tells_what_there_is() {
    let server = Server::start();
    let url = server.url("plain");
    let mut running = Run::new().args(["ab", &url, &url]).words("-c 2 -d 60s -t 1").start();
    running.await_that("load", || server.requests("plain") > 20);
    running.interrupt();
    let outcome = running.finish();
    outcome.expect_code(1).expect_reason(&["interrupted"]);
    let summary = outcome.summary();
    assert_eq!(summary["verdict"], "cannot tell");
    assert_eq!(summary["complete"], false);
    assert_eq!(summary["runs"].as_array().expect("runs[]").len(), 1);
    assert!(outcome.stdout.contains("Cannot tell A from B"), "{}", outcome.story());
}

#[test]
fn what_it_cannot_do_is_wrong_usage_and_sends_nothing() {
    let server = Server::start();
    let url = server.url("plain");
    for (words, says) in [
        ("--repeats 3", "4 to 1000 blocks"),
        ("-d auto --precision p99:5%", "different lengths"),
        ("--order sequential", "nothing to order"),
        ("--fail-if p99:5ms", "states with `:`"),
    ] {
        let outcome = Run::new().args(["ab", &url, &url]).words(words).finish();
        outcome.expect_code(2).expect_reason(&[says]);
    }
    Run::new().args(["ab", &url]).finish().expect_code(2).expect_reason(&["two"]);
    assert_eq!(server.requests_total(), 0);
}
