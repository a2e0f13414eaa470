//! `--repeats`: as many complete runs as asked for, each with connections and a seed of its own,
//! and one result over all of them.

use std::collections::BTreeSet;
use std::fs;

use crate::support::run::{Outcome, Run, SNAPSHOT, SUMMARY, number, parse};
use crate::support::server::Server;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    each_repeat_is_a_whole_run_with_connections_and_a_seed_of_its_own,
    an_interrupt_ends_the_run_that_goes_on_and_starts_no_other,
);

fn each_repeat_is_a_whole_run_with_connections_and_a_seed_of_its_own(engine: Engine) {
    let server = Server::start();
    let url = server.url("plain");
    let outcome = Run::on(engine)
        .words(&format!("poisson {url} -R 300 -n 60 -c 2 --max-connections 2 -t 1 --repeats 3"))
        .words("--allow-untrusted --seed 7 --floor")
        .finish();
    outcome.expect_code(0);
    assert!(outcome.stderr.contains("3 runs of 60 requests"), "{}", outcome.story());
    assert_eq!(server.requests("plain"), 180, "{}", outcome.story());
    assert_eq!(server.accepted(), 6, "two connections a run; {}", outcome.story());
    let summary = outcome.summary();
    let runs = summary["runs"].as_array().expect("runs[]");
    let seeds: Vec<u64> = runs.iter().map(|run| number(&run["seed"])).collect();
    assert_eq!(seeds, [7, 8, 9]);
    let hashes: BTreeSet<&str> =
        runs.iter().map(|run| run["schedule_hash"].as_str().expect("open loop")).collect();
    assert_eq!(hashes.len(), 3, "{summary}");
    for (run, folder) in runs.iter().zip(["run-01", "run-02", "run-03"]) {
        assert_eq!(run["path"], folder);
        let of_run = parse(&outcome.file(&format!("{folder}/{SUMMARY}")));
        assert_eq!(number(&of_run["n_samples_completed"]), 60, "{of_run}");
        assert_eq!(of_run["schedule_hash"], run["schedule_hash"]);
        assert_eq!(of_run["qps"], run["figures"]["achieved"]);
        assert!(of_run["floor"]["n_samples_completed"].is_u64(), "{}", of_run["floor"]);
        outcome.file(&format!("{folder}/{SNAPSHOT}"));
        outcome.file(&format!("{folder}/report.txt"));
        let config = outcome.file(&format!("{folder}/config.yaml"));
        let seed = format!("scheduler_random_seed: {}", run["seed"]);
        assert!(config.contains(&seed) && !config.contains("repeats: 3"), "{config}");
    }
    let achieved = &summary["summary"]["achieved"];
    assert_eq!(number(&achieved["runs"]), 3);
    assert!(achieved["min"].as_f64() <= achieved["median"].as_f64(), "{achieved}");
    let report = outcome.file("report.txt");
    assert!(report.contains("medians of 3 runs") && report.contains("CV %"), "{report}");
    assert_eq!(outcome.stdout, report, "the screen says what the file does");
}

fn an_interrupt_ends_the_run_that_goes_on_and_starts_no_other(engine: Engine) {
    let server = Server::start();
    let url = server.url("plain");
    let mut running =
        Run::on(engine).words(&format!("concurrency {url} -c 2 -n 2000 --repeats 3")).start();
    running.await_that("the second run", || server.requests("plain") > 2100);
    running.interrupt();
    let outcome = running.finish();
    let requests = server.requests("plain");
    // The interrupt may come when the second run has just ended.
    assert!((2000..6000).contains(&requests), "{}", outcome.story());
    outcome.expect_code(1);
    let summary = outcome.summary();
    assert_eq!(summary["complete"], false);
    let runs = summary["runs"].as_array().expect("runs[]");
    let completed: u64 = runs.iter().map(|run| number(&run["n_samples_completed"])).sum();
    assert_eq!(completed, requests, "what was sent was drained; {}", outcome.story());
    assert!(outcome.path("run-02").exists() && !outcome.path("run-04").exists());
}

/// The words of an arm in the table of `compare`.
fn compare(of: &Outcome, arms: &[&str]) -> Outcome {
    Run::new()
        .default_report_dir()
        .after_shell(&format!("cd '{}'", of.folder().display()))
        .args(["compare"])
        .args(arms)
        .finish()
}

#[test]
fn compare_takes_the_directory_for_its_runs() {
    let server = Server::start();
    let url = server.url("plain");
    let outcome = Run::new()
        .words(&format!("concurrency {url} -c 1 -n 20 -t 1 --repeats 4 --json -q"))
        .finish();
    outcome.expect_code(0);
    assert_eq!(outcome.stdout, outcome.file(SUMMARY));
    for arm in ["report", "report/performance/result_summary.json", "report/run-*"] {
        let compared = compare(&outcome, &[arm, "report/run-01"]);
        compared.expect_code(0);
        assert!(compared.stdout.contains("4 runs, the baseline"), "{}", compared.story());
    }
    // Elsewhere the result alone does not say where its runs are.
    fs::copy(outcome.path(SUMMARY), outcome.folder().join("alone.json")).unwrap();
    let compared = compare(&outcome, &["alone.json", "report"]);
    compared.expect_code(2).expect_reason(&["several runs", "report directory"]);
}

#[test]
fn the_gravest_run_decides_the_exit_code_and_a_later_series_leaves_no_run_of_an_earlier_one() {
    let server = Server::start();
    let url = server.url("plain");
    let words = format!("concurrency {url} -c 1 -n 20 -t 1");
    let first = Run::new()
        .words(&words)
        .words("--repeats 3 --slo p50:1ns --report-dir report")
        .default_report_dir();
    // The same directory for both: the second in a shell that goes there.
    let folder = first.folder().to_owned();
    let first = first.finish();
    first.expect_code(4).expect_reason(&["run 1 of 3", "p50:1ns", "2 more"]);
    assert!(folder.join("report/run-03").exists());
    let second = Run::new()
        .after_shell(&format!("cd '{}'", folder.display()))
        .words(&words)
        .words("--repeats 2 --report-dir report")
        .default_report_dir()
        .finish();
    second.expect_code(0);
    assert!(folder.join("report/run-02").exists());
    assert!(!folder.join("report/run-03").exists());
}
