//! Tests of the result files, and the hand-made run that the tests of the neighbours share.

use loadgen_shards::failure::{FailureKind, Message};
use loadgen_shards::reactor::EngineReport;
use loadgen_shards::recorder::Recording;

use super::*;
use crate::request::secret::Secrets;
use crate::snapshot::{ClockFacts, Conditions, PhaseTotals};

/// A plan of a performance phase of 5 s.
pub fn plan_of(in_flight: u32) -> plan::Phase {
    plan::Phase {
        name: "performance".to_owned(),
        kind: PhaseKind::Performance,
        in_flight,
        schedule: None,
        requests: None,
        duration_ns: Some(5_000_000_000),
        drain_timeout_ns: 30_000_000_000,
    }
}

/// A run against another host, with two of four cores in use.
pub fn facts() -> RunFacts {
    RunFacts {
        command: "max-throughput".to_owned(),
        urls: vec!["http://10.0.0.2:8000/".to_owned()],
        flags: vec!["-d".to_owned(), "5s".to_owned()],
        connections: 64,
        cores: vec![0, 1],
        cores_free: vec![2, 3],
        cores_reason: "--cores".to_owned(),
        // 20 000 answers of 1 ms in 5 s: Little says 4.
        phases: vec![plan_of(4)],
        report_dir: Some(PathBuf::from("results/2026-11-30T101502Z-max-throughput")),
        ..RunFacts::default()
    }
}

/// The recording of 5 s: answers of 1 ms each, and connections reset by the peer.
pub fn recorded(completed: u64, failed: u64) -> Recording {
    let mut recording = Recording::default();
    recording.begin(0, 1_000_000_000);
    recording.end_ns = 6_000_000_000;
    recording.busy_ns = 2_000_000_000;
    recording.counters.issued = completed + failed;
    recording.counters.completed = completed;
    recording.counters.failed = failed;
    recording.counters.connections_opened = 64;
    recording.first_sent_ns = 1_000_010_000;
    for _ in 0..completed {
        recording.service.record(1_000_000);
        recording.ttfb.record(900_000);
        recording.statuses.count(200);
        recording.last_complete_ns = 6_000_000_000;
    }
    for _ in 0..failed {
        recording.failures.count(FailureKind::Reset, || Message::new("peer"));
    }
    (0..64).for_each(|i| recording.connect.record(50_000 + i * 1000));
    recording
}

/// A finished run of one phase.
pub fn run_of(recording: &Recording) -> Snapshot {
    let mut phase = PhaseTotals::new("performance", PhaseKind::Performance, 1_000_000_000);
    phase.add(recording);
    phase.state = State::Complete;
    phase.issue_end_ns = 6_000_000_000;
    phase.end_ns = 6_001_000_000;
    Snapshot {
        counter: 7,
        timestamp_ns: 6_002_000_000,
        started_unix_s: 1_796_033_702,
        state: State::Complete,
        interrupted_by: String::new(),
        engine: EngineReport {
            name: "io_uring",
            features: vec!["defer-taskrun", "multishot", "buf-ring"],
            reason: String::new(),
        },
        cores: vec![Some(0), Some(1)],
        clock: ClockFacts {
            source: "tsc",
            ticks_per_s: 2.45e9,
            error_ns_max: 40,
            ..ClockFacts::default()
        },
        conditions: Conditions::default(),
        connections_open: 64,
        phases: vec![phase],
        secrets: Secrets::default(),
    }
}

/// A finished run of so many answers and failures.
pub fn finished(completed: u64, failed: u64) -> Snapshot {
    run_of(&recorded(completed, failed))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn parsed(snapshot: &Snapshot) -> Value {
    serde_json::from_str(&result_summary(snapshot, &facts())).expect("valid JSON")
}

/// The keys of `endpoints`' file, in its order.
const ENDPOINTS_KEYS: [&str; 19] = [
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
    "legacy_loadgen_window_duration_ns",
    "qps",
    "tps",
    "finish_reason_counts",
    "run_config",
];

#[test]
fn summary_has_the_keys_of_endpoints_in_its_order_and_ours_after() {
    let summary = parsed(&finished(20_000, 3));
    assert_eq!(keys(&summary)[..ENDPOINTS_KEYS.len()], ENDPOINTS_KEYS);
    let latency = &summary["latency"];
    let shape = "total min max median avg std_dev percentiles early_stopping_percentiles histogram";
    assert_eq!(keys(latency)[..9].join(" "), shape);
    let percentiles = "99.9 99.0 97.0 95.0 90.0 80.0 75.0 50.0 25.0 10.0 5.0 1.0";
    assert_eq!(keys(&latency["percentiles"]).join(" "), percentiles);
    assert_eq!(keys(&latency["histogram"]), ["buckets", "counts"]);
    let config = &summary["run_config"];
    let shape = "load_pattern warmup scheduler_random_seed dataloader_random_seed";
    assert_eq!(keys(config)[..4].join(" "), shape);
    assert_eq!(keys(&config["load_pattern"]), ["type", "target_qps", "target_concurrency"]);
    let shape = "enabled n_requests salt drain warmup_random_seed";
    assert_eq!(keys(&config["warmup"]).join(" "), shape);
    let reasons = "stop length tool_calls content_filter function_call other";
    assert_eq!(keys(&summary["finish_reason_counts"]).join(" "), reasons);
}

#[test]
fn summary_tells_the_figures_of_the_run() {
    let summary = parsed(&finished(20_000, 3));
    assert_eq!(summary["n_samples_issued"], 20_003);
    assert_eq!(summary["n_samples_completed"], 20_000);
    assert_eq!(summary["n_samples_failed"], 3);
    assert_eq!(summary["duration_ns"], 5_000_000_000u64);
    assert_eq!(summary["qps"], 4000.0);
    let legacy = summary["legacy_qps"].as_f64().expect("a number");
    assert!((legacy - 19_999.0 / 4.999_99).abs() < 1e-9, "{legacy}");
    assert_eq!(summary["complete"], true);
    assert_eq!(summary["latency"]["total"], 20_000_000_000u64);
    assert_eq!(summary["latency"]["median"], 1_000_000.0);
    assert_eq!(summary["latency"]["std_dev"], 0.0);
    assert_eq!(summary["latency_origin"], "sent");
    assert_eq!(summary["failures"]["reset"], json!({ "count": 3, "first_message": "peer" }));
    assert_eq!(summary["status_codes"], json!({ "200": 20_000 }));
    assert_eq!(summary["limit"]["name"], "connections");
    assert_eq!(summary["limit"]["client_utilisation"], 0.4);
    assert_eq!(summary["run_config"]["load_pattern"]["type"], "max_throughput");
    assert_eq!(summary["phases"][0]["name"], "performance");
    assert_eq!(summary["phases"][0]["qps"], 4000.0);
    assert_eq!(summary["phases"][0].get("run_config"), None);
}

#[test]
fn what_is_undefined_is_null_and_never_zero() {
    let nothing = parsed(&finished(0, 7));
    for key in ["duration_ns", "qps", "tps", "legacy_qps", "little_ratio", "seed"] {
        assert_eq!(nothing[key], Value::Null, "{key}");
    }
    for key in ["ttft", "tpot", "latency", "ttfb", "service_latency"] {
        assert_eq!(nothing[key], json!({}), "{key}");
    }
    let one = parsed(&finished(1, 0));
    assert_eq!(one["latency"]["std_dev"], Value::Null);
    assert_eq!(one["latency"]["percentiles"]["50.0"], 1_000_000.0);
    assert_eq!(one["latency"]["percentiles"]["99.0"], Value::Null);
    assert_eq!(one["latency"]["percentiles_null"]["99.0"], "needs 1000 values, has 1");
    assert_eq!(one["latency"]["percentiles_null"].get("50.0"), None);
}

#[test]
fn warmup_is_in_its_own_phase_and_in_no_tracked_figure() {
    let mut snapshot = finished(1000, 0);
    let mut warmup = PhaseTotals::new("warmup", PhaseKind::Warmup, 500_000_000);
    warmup.add(&recorded(50, 9));
    snapshot.phases.insert(0, warmup);
    let summary = parsed(&snapshot);
    assert_eq!(summary["n_samples_completed"], 1000);
    assert_eq!(summary["failures"], json!({}));
    assert_eq!(summary["counters"]["total_samples_completed"], 1050);
    assert_eq!(summary["counters"]["total_samples_failed"], 9);
    assert_eq!(summary["counters"]["tracked_samples_failed"], 0);
    assert_eq!(summary["phases"][0]["phase_type"], "warmup");
    assert_eq!(summary["phases"][0]["n_samples_failed"], 9);
    assert_eq!(summary["phases"][1]["n_samples_failed"], 0);
}

#[test]
fn one_phase_has_the_keys_of_the_whole() {
    let snapshot = finished(5, 0);
    let text = phase_summary(&snapshot, &facts(), 0);
    let phase: Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(keys(&phase), keys(&parsed(&snapshot)));
    assert_eq!(phase["counters"]["samples_completed"], 5);
}

#[test]
fn complete_means_that_nothing_is_pending() {
    let mut snapshot = finished(5, 0);
    snapshot.phases[0].in_flight_at_end = 1;
    let summary = parsed(&snapshot);
    assert_eq!((&summary["state"], &summary["complete"]), (&json!("complete"), &json!(false)));
    assert_eq!(summary["phases"][0]["complete"], false);
}

#[test]
fn user_info_is_cut_from_the_authority_only() {
    let cases = [
        ("http://u:p@h:1/a", "http://h:1/a"),
        ("http://u@h", "http://h"),
        ("http://u:p@q@h/", "http://h/"),
        ("http://h/a@b?c=d@e", "http://h/a@b?c=d@e"),
        ("http://h?x@y", "http://h?x@y"),
        ("not a url", "not a url"),
    ];
    for (url, expected) in cases {
        assert_eq!(without_user_info(url), expected);
    }
}

#[test]
fn nothing_from_elsewhere_reaches_the_terminal_as_control() {
    assert_eq!(printable("a\x1b[2J\r\n\u{9b}b\u{202e}c\u{7f}ä"), "a.[2J...b.c.ä");
}

#[test]
fn core_lists_are_as_short_as_the_flag_allows() {
    let cases: [(&[usize], &str); 5] = [
        (&[], ""),
        (&[3], "3"),
        (&[0, 1], "0-1"),
        (&[0, 2, 4], "0,2,4"),
        (&[0, 1, 2, 5, 8, 9], "0-2,5,8-9"),
    ];
    for (cores, expected) in cases {
        assert_eq!(core_list(cores), expected);
    }
}
