//! The result files: they exist, have the agreed keys, tell the truth of the run, and no secret.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::run::{Outcome, Run, SNAPSHOT, SUMMARY, number, parse};
use crate::support::server::Server;
use crate::support::temp::files_below;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    every_file_is_there_with_its_keys,
    the_snapshot_has_its_counters_and_series,
    an_open_loop_has_its_own_keys_and_files_that_grow,
    gates_decide_the_exit_code_and_are_told,
    percentiles_without_enough_samples_are_null_with_a_reason,
    json_prints_the_summary_and_nothing_else,
    secrets_are_in_no_output_and_no_file,
);

/// Keys of `result_summary.json` that a closed loop fills, or leaves null where nothing is defined.
const SUMMARY_KEYS: [&str; 29] = [
    "version",
    "git_sha",
    "test_started_at",
    "n_samples_issued",
    "n_samples_completed",
    "n_samples_failed",
    "duration_ns",
    "state",
    "complete",
    "ttft",
    "tpot",
    "latency",
    "output_sequence_lengths",
    "input_sequence_lengths",
    "qps",
    "tps",
    "finish_reason_counts",
    "run_config",
    "legacy_qps",
    "counters",
    "service_latency",
    "connect",
    "latency_origin",
    "failures",
    "status_codes",
    "engine",
    "cores",
    "definitions",
    "phases",
];

/// Keys of a distribution.
const DISTRIBUTION_KEYS: [&str; 8] =
    ["total", "min", "max", "median", "avg", "std_dev", "percentiles", "histogram"];

/// Keys of `final_snapshot.json`.
const SNAPSHOT_KEYS: [&str; 11] = [
    "counter",
    "timestamp_ns",
    "state",
    "n_pending_tasks",
    "metrics",
    "schema",
    "version",
    "git_sha",
    "host",
    "engine",
    "phases",
];

/// Counters that every snapshot has.
const COUNTERS: [&str; 16] = [
    "total_samples_issued",
    "total_samples_completed",
    "total_samples_failed",
    "tracked_samples_issued",
    "tracked_samples_completed",
    "tracked_samples_failed",
    "tracked_duration_ns",
    "total_duration_ns",
    "legacy_loadgen_window_duration_ns",
    "samples_cancelled",
    "samples_in_flight_at_end",
    "connections_opened",
    "connections_reused_stale",
    "retries",
    "bytes_sent",
    "bytes_received",
];

#[track_caller]
fn assert_keys(value: &Value, keys: &[&str]) {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    let missing: Vec<_> = keys.iter().filter(|key| !object.contains_key(**key)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {:?}", object.keys());
}

fn run(engine: Engine, requests: u64, more: &str) -> Outcome {
    let server = Server::start();
    let url = server.url("plain");
    let outcome = Run::on(engine).words(&format!("{url} -n {requests} -c 2 {more}")).finish();
    outcome.expect_successes(requests);
    outcome
}

fn every_file_is_there_with_its_keys(engine: Engine) {
    let outcome = run(engine, 100, "--warmup 20");
    let summary = outcome.summary();
    assert_keys(&summary, &SUMMARY_KEYS);
    for key in ["latency", "service_latency", "connect"] {
        assert_keys(&summary[key], &DISTRIBUTION_KEYS);
        assert_keys(&summary[key]["histogram"], &["buckets", "counts"]);
    }
    assert_eq!(summary["state"], "complete");
    assert_eq!(summary["complete"], true);
    assert_eq!(summary["engine"]["name"], engine.name());
    assert_eq!(summary["version"], env!("CARGO_PKG_VERSION"));
    // As in `endpoints`: a distribution without data is an empty object.
    assert_eq!(summary["ttft"], serde_json::json!({}));
    assert_eq!(summary["tpot"], serde_json::json!({}));
    assert_eq!(number(&summary["status_codes"]["200"]), 100);
    for phase in ["warmup", "performance"] {
        let phase = parse(&outcome.file(&format!("phases/{phase}/result_summary.json")));
        assert_keys(&phase, &["n_samples_completed", "latency", "qps"]);
    }
    let config = outcome.file("config.yaml");
    assert!(config.contains("phases"), "{config}");
    assert!(config.contains("127.0.0.1"), "{config}");
    assert!(outcome.file("report.txt").contains("requests"));
    assert!(!outcome.stdout.trim().is_empty(), "the report is on stdout");
}

fn the_snapshot_has_its_counters_and_series(engine: Engine) {
    let outcome = run(engine, 100, "");
    let snapshot = outcome.snapshot();
    assert_keys(&snapshot, &SNAPSHOT_KEYS);
    assert_eq!(snapshot["state"], "complete");
    assert_eq!(number(&snapshot["n_pending_tasks"]), 0);
    for name in COUNTERS {
        outcome.counter(name);
    }
    let metrics = snapshot["metrics"].as_array().unwrap();
    for name in ["sample_latency_ns", "service_latency_ns", "ttfb_ns", "connect_ns"] {
        let series = metrics.iter().find(|metric| metric["name"] == name);
        let series = series.unwrap_or_else(|| panic!("no series {name}"));
        assert_eq!(series["type"], "series");
        assert_keys(
            series,
            &["count", "total", "min", "max", "sum_sq", "percentiles", "histogram"],
        );
        let counts = series["histogram"].as_array().unwrap().iter().map(|row| number(&row[1]));
        assert_eq!(counts.sum::<u64>(), number(&series["count"]), "{name}");
        assert!(number(&series["min"]) <= number(&series["max"]), "{name}");
        let expected = if name == "connect_ns" { 2 } else { 100 };
        assert_eq!(number(&series["count"]), expected, "{name}");
    }
    let phase = &snapshot["phases"][0];
    assert_keys(phase, &["name", "phase_type", "state", "metrics", "failures", "status_codes"]);
}

fn an_open_loop_has_its_own_keys_and_files_that_grow(engine: Engine) {
    let server = Server::start();
    let url = server.url("plain");
    let outcome = Run::on(engine)
        .words(&format!(
            "poisson {url} -R 200 -n 300 -t 1 --warmup 20 --interval 500ms --allow-untrusted"
        ))
        .finish();
    outcome.expect_successes(300);
    let summary = outcome.summary();
    assert_keys(
        &summary,
        &[
            "lateness",
            "pool_wait",
            "scheduled_qps",
            "offered_qps",
            "goodput",
            "seed",
            "schedule_hash",
            "trust",
            "untrusted_percentiles",
            "intervals",
            "breakdown",
            "slo",
            "fail_if",
        ],
    );
    assert_eq!(summary["latency_origin"], "scheduled");
    assert_eq!(number(&summary["counters"]["samples_scheduled"]), 320, "with the warm-up");
    assert_eq!(summary["schedule_hash"].as_str().map(str::len), Some(16));
    assert!(summary["trust"]["checks"].as_array().is_some_and(|checks| checks.len() > 5));
    assert!(summary["latency"]["min"].as_f64() > summary["service_latency"]["min"].as_f64());
    for (phase, requests) in [("warmup", 20), ("performance", 300)] {
        let lines = outcome.file(&format!("phases/{phase}/intervals.jsonl"));
        let lines: Vec<Value> = lines.lines().map(parse).collect();
        let sum = |key: &str| lines.iter().map(|line| number(&line[key])).sum::<u64>();
        assert_eq!((sum("scheduled"), sum("issued")), (requests, requests), "{phase}");
        let ends =
            lines.windows(2).map(|pair| [number(&pair[0]["end_ns"]), number(&pair[1]["begin_ns"])]);
        assert!(ends.clone().all(|[end, begin]| begin >= end), "one shard: {ends:?}");
        let log = outcome.file(&format!("phases/{phase}/latency.hlog"));
        let intervals = log.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(intervals.count(), lines.len(), "{phase}");
        // The last answers of the warm-up come in the next phase.
        let completed = sum("completed");
        assert!(
            completed == requests || (phase == "warmup" && completed < requests),
            "{completed}"
        );
        let spectrum = outcome.file(&format!("phases/{phase}/latency.hgrm"));
        assert!(spectrum.contains(&format!("Total count    = {completed:>12}]")), "{spectrum}");
    }
}

fn gates_decide_the_exit_code_and_are_told(engine: Engine) {
    let server = Server::start();
    let url = server.url("plain");
    for (gates, code, verdicts, reason) in [
        ("--slo p50:1h --fail-if failed>1%", 0, ["held", "held"], ""),
        ("--slo p50:1ns --fail-if failed>1%", 4, ["missed", "held"], "--slo 'p50:1ns' was missed"),
        (
            "--slo p50:1h --fail-if completed>1",
            4,
            ["held", "missed"],
            "--fail-if 'completed>1' is true",
        ),
        ("--slo p99:1h --fail-if p99>1ns", 4, ["missed", "held"], "(it needs 1000 values, has 50)"),
    ] {
        let words = format!("concurrency {url} -c 2 -n 50 --allow-untrusted {gates}");
        let outcome = Run::on(engine).words(&words).finish();
        outcome.expect_code(code);
        assert!(outcome.stderr.contains(reason), "{}", outcome.story());
        let summary = outcome.summary();
        let told = ["slo", "fail_if"].map(|key| summary[key][0]["verdict"].clone());
        assert_eq!(told, verdicts, "{gates}");
        assert!(outcome.stdout.contains("\n  slo  "), "{}", outcome.story());
    }
}

/// p above 50 needs 10 samples beyond it: of 2000 requests p99 has 20 and p99.9 has 2.
fn percentiles_without_enough_samples_are_null_with_a_reason(engine: Engine) {
    for (requests, p50, p99, p999) in [(2000, true, true, false), (50, true, false, false)] {
        let outcome = run(engine, requests, "");
        let summary = outcome.summary();
        let percentiles = &summary["latency"]["percentiles"];
        for (key, is_defined) in [("50.0", p50), ("99.0", p99), ("99.9", p999)] {
            assert!(percentiles.get(key).is_some(), "{key} of {requests} in {percentiles}");
            assert_eq!(percentiles[key].is_number(), is_defined, "{key} of {requests}");
        }
        let text = outcome.file(SUMMARY);
        assert!(text.contains("percentiles_null"), "the reason stands beside them");
    }
}

fn json_prints_the_summary_and_nothing_else(engine: Engine) {
    let server = Server::start();
    for path in ["plain", "status/500"] {
        let outcome = Run::on(engine)
            .words(&format!("max-throughput {} -n 20 -c 2 --json", server.url(path)))
            .finish();
        assert_eq!(parse(&outcome.stdout), outcome.summary(), "{path}: {}", outcome.story());
    }
}

/// Recognisable, and long enough to be found nowhere else.
const SECRETS: [&str; 3] = ["s3cr3t-of-the-flag", "s3cr3t-of-the-header", "s3cr3t-of-the-url"];

fn secrets_are_in_no_output_and_no_file(engine: Engine) {
    let server = Server::start();
    let with_user_info = format!("http://user:{}@{}/plain", SECRETS[2], server.address());
    let refused = format!("http://user:{}@127.0.0.1:1/", SECRETS[2]);
    let flag = format!("user:{}", SECRETS[0]);
    let header = format!("Authorization: Bearer {}", SECRETS[1]);
    let url = server.url("plain");
    let quoting = server.url(&format!("quote?token={}", SECRETS[0]));
    let ftp = format!("ftp://127.0.0.1/?api_key={}", SECRETS[0]);
    let rows: [(&[&str], i32); 7] = [
        (&[&url, "-a", &flag], 0),
        (&[&url, "-H", &header], 0),
        (&[&with_user_info], 0),
        (&[&with_user_info, "--no-such-flag"], 2),
        (&[&refused], 3),
        // The error page sends the secret back; it would be the first message of its kind.
        (&[&quoting], 1),
        (&[&ftp], 2),
    ];
    // As they are, and in base64 as Basic authorization has them: "user:" and each secret, worked
    // out by hand.
    let encoded = ["dXNlcjpzM2NyM3Qtb2Yt", "czNjcjN0LW9mL"];
    for (arguments, code) in rows {
        for json in [&[][..], &["--json"]] {
            let outcome = Run::on(engine).args(arguments).words("-n 5 -c 1").args(json).finish();
            outcome.expect_code(code);
            let mut texts = vec![outcome.stdout.clone(), outcome.stderr.clone()];
            for file in files_below(outcome.folder()) {
                texts.push(String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned());
            }
            for text in &texts {
                for secret in SECRETS.iter().chain(&encoded) {
                    assert!(!text.contains(secret), "{arguments:?} shows {secret}:\n{text}");
                }
            }
        }
    }
    // Negative control: the secrets were really sent.
    let kept = server.seen("plain").kept;
    assert!(kept.iter().any(|request| request.head.contains(SECRETS[1])));
    assert!(kept.iter().any(|request| request.head.contains(encoded[0])));
}

#[test]
fn files_go_to_a_folder_of_their_own_by_default() {
    let server = Server::start();
    let outcome = Run::new()
        .default_report_dir()
        .words(&format!("max-throughput {} -n 5 -c 1", server.url("plain")))
        .finish();
    outcome.expect_code(0);
    let latest = outcome.folder().join("results/latest");
    let summary = parse(&fs::read_to_string(latest.join(SUMMARY)).unwrap());
    assert_eq!(number(&summary["n_samples_completed"]), 5);
    let name = fs::canonicalize(&latest).unwrap();
    assert!(name.to_str().unwrap().ends_with("-max-throughput"), "{}", name.display());
}

#[test]
fn no_files_are_written_where_none_are_wanted_or_possible() {
    let server = Server::start();
    for (folder, notice) in [("none", false), ("/dev/null/below-a-file", true)] {
        let outcome = Run::new()
            .default_report_dir()
            .words(&format!(
                "max-throughput {} -n 5 -c 1 --report-dir {folder}",
                server.url("plain")
            ))
            .finish();
        outcome.expect_code(0);
        assert_eq!(outcome.stderr.contains(folder), notice, "{}", outcome.story());
        assert!(files_below(outcome.folder()).is_empty(), "{folder}");
    }
}

#[test]
fn a_partial_file_is_never_seen_under_its_name() {
    let outcome = run(Engine::Epoll, 10, "");
    let names: Vec<_> = files_below(&outcome.path("")).into_iter().collect();
    assert!(names.iter().any(|name| name.ends_with(SNAPSHOT)), "{names:?}");
    let is_temporary = |name: &&PathBuf| name.extension().is_some_and(|end| end == "tmp");
    let left_over = names.iter().filter(is_temporary);
    assert_eq!(left_over.count(), 0, "{names:?}");
}
