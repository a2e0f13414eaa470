//! Tests of the result files, and the hand-made run that the tests of the neighbours share.

pub mod inference;

use loadgen_shards::failure::{FailureKind, Message};
use loadgen_shards::reactor::EngineReport;
use loadgen_shards::recorder::Recording;

use std::sync::Arc;

use loadgen_shards::recorder::Parts;
use loadgen_shards::schedule::{Process, Profile, SchedulePlan};
use serde_json::{Value, json};

use super::*;
use crate::request::secret::Secrets;
use crate::snapshot::{ClockFacts, Conditions, PhaseTotals, State};
use crate::trust::{Blame, Check, Class, Interval};

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

/// A plan of 10 s of Poisson arrivals at 1000/s.
pub fn open_plan() -> plan::Phase {
    plan::Phase {
        schedule: Some(SchedulePlan {
            process: Process::Poisson,
            profile: Arc::new(Profile::constant(1000.0).expect("in range")),
            seed: 42,
            stream: 1,
            count: None,
            end_ns: Some(10_000_000_000),
        }),
        duration_ns: Some(10_000_000_000),
        ..plan_of(2048)
    }
}

/// The same against another host, with 64 connections of at most 2048.
pub fn open_facts() -> RunFacts {
    RunFacts {
        command: "poisson".to_owned(),
        rate_flags: ["-R", "1000"].map(str::to_owned).to_vec(),
        flags: ["-d", "10s"].map(str::to_owned).to_vec(),
        seed: Some(42),
        order: "shuffle".to_owned(),
        order_seed: Some(42),
        open: Some(OpenFacts {
            rate: RateShape::Constant(1000.0),
            timer: Timer::Hybrid,
            timer_reason: "the default".to_owned(),
            max_connections: 2048,
            overload: Overload::Queue,
        }),
        phases: vec![open_plan()],
        report_dir: Some(PathBuf::from("results/2026-11-30T101502Z-poisson")),
        ..facts()
    }
}

/// The recording of those 10 s: answers of 0.901 to 2.9 ms, of which 0.6 µs are lateness and 0.4 µs
/// preparation.
pub fn open_recorded(completed: u64) -> Recording {
    let mut recording = Recording::default();
    recording.begin(0, 1_000_000_000);
    recording.end_ns = 11_000_000_000;
    recording.busy_ns = 3_100_000_000;
    recording.counters.scheduled = completed;
    recording.counters.issued = completed;
    recording.counters.completed = completed;
    recording.counters.connections_opened = 64;
    recording.first_sent_ns = 1_000_010_000;
    recording.last_complete_ns = 10_995_000_000;
    recording.schedule_hash = 0xabc_def;
    for i in 0..completed {
        let service_ns = 900_000 + i * 2_000_000 / completed;
        let parts =
            Parts { count: 1, lateness_ns: 600, pool_wait_ns: 0, prepare_ns: 400, service_ns };
        recording.latency.record(parts.total_ns());
        recording.since_dispatch.record(parts.total_ns() - 600);
        recording.service.record(service_ns);
        recording.ttfb.record(service_ns - 100_000);
        recording.lateness.record(600);
        recording.pool_wait.record(0);
        recording.breakdown.record(parts.total_ns(), &parts);
        recording.statuses.count(200);
    }
    (0..64).for_each(|i| recording.connect.record(50_000 + i * 1000));
    recording
}

/// The same with requests that timed out after 1 s.
pub fn timed_out(completed: u64, failed: u64) -> Recording {
    let mut recording = open_recorded(completed);
    recording.counters.scheduled += failed;
    recording.counters.issued += failed;
    recording.counters.failed += failed;
    for _ in 0..failed {
        recording.failures.count(FailureKind::RequestTimeout, || Message::new(""));
        recording.censored.record(1_000_000_000);
        recording.lateness.record(600);
        recording.pool_wait.record(0);
    }
    recording
}

/// A finished open loop of 10 s.
pub fn open_run(recording: &Recording) -> Snapshot {
    let mut run = run_of(recording);
    let phase = &mut run.phases[0];
    phase.issue_end_ns = 11_000_000_000;
    phase.load_end_ns = 11_000_000_000;
    phase.end_ns = 11_003_000_000;
    run
}

/// 10 000 requests in 10 s that were all answered after 13 s: 769/s.
pub fn overloaded() -> Snapshot {
    let mut recording = open_recorded(10_000);
    recording.last_complete_ns = 14_000_000_000;
    open_run(&recording)
}

/// What the trust block makes of it.
pub fn unstable() -> Trust {
    Trust { is_unstable: true, ..trust_of(Level::Ok) }
}

/// A trust block whose check of the dispatch came out so.
pub fn trust_of(level: Level) -> Trust {
    let check = |id, name, level, reason: &str| Check {
        id,
        name,
        class: Class::Instrument,
        level,
        value: Some(1.0),
        unit: "",
        reason: reason.to_owned(),
        brief: Some(reason.to_owned()),
    };
    let dispatch = match level {
        Level::Ok => "never early, 0.6 µs late at worst",
        Level::Warn => "some requests left late",
        Level::Fail => "requests left late",
    };
    Trust {
        checks: vec![
            check("D1", "dispatch", level, dispatch),
            check("D2", "counts", Level::Ok, "counts add up"),
            check("D5", "client", Level::Ok, "31 % busy"),
            check("D7", "clock", Level::Ok, "steady"),
        ],
        ..Trust::default()
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn parsed(snapshot: &Snapshot) -> Value {
    told(snapshot, &facts(), Vec::new())
}

fn told(snapshot: &Snapshot, facts: &RunFacts, trust: Vec<Trust>) -> Value {
    let results = Results::with_trust(snapshot, facts, trust);
    serde_json::from_str(&result_summary(&results)).expect("valid JSON")
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
    let facts = facts();
    let text = phase_summary(&Results::with_trust(&snapshot, &facts, Vec::new()), 0);
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

/// The part of a distribution that a test looks at.
fn p(distribution: &Value, key: &str) -> Value {
    distribution["percentiles"][key].clone()
}

#[test]
fn an_open_loop_has_its_own_figures() {
    let blame = Blame { endpoint: 0.9, pool: 0.06, client: 0.04 };
    let trust = Trust {
        intervals: vec![Interval {
            milli: 99_000,
            low_ns: 2_800_000,
            high_ns: 2_900_000,
            effective: 812.5,
            independent: None,
        }],
        mean: Some(blame),
        ..trust_of(Level::Warn)
    };
    let summary = told(&open_run(&open_recorded(10_000)), &open_facts(), vec![trust]);
    assert_eq!(summary["latency_origin"], "scheduled");
    assert_eq!(summary["latency"]["min"], 901_000);
    assert_eq!(summary["service_latency"]["min"], 900_000);
    assert_eq!(
        (&summary["lateness"]["max"], &summary["pool_wait"]["max"]),
        (&json!(600), &json!(0))
    );
    for (key, value) in [
        ("qps", json!(1000.0)),
        ("scheduled_qps", json!(1000.0)),
        ("offered_qps", json!(1000.0)),
        ("goodput", Value::Null),
        ("seed", json!(42)),
        ("schedule_hash", json!("0000000000abcdef")),
        ("little_ratio", Value::Null),
    ] {
        assert_eq!(summary[key], value, "{key}");
    }
    let interval = json!({
        "low_ns": 2_800_000, "high_ns": 2_900_000, "n_eff": 812.5, "independent": null,
    });
    assert_eq!(summary["intervals"], json!({ "99.0": interval }));
    let breakdown = &summary["breakdown"];
    assert_eq!(keys(breakdown), ["mean", "above_p99", "shares"]);
    let parts = "lateness_ns pool_wait_ns prepare_ns service_ns";
    assert_eq!(keys(&breakdown["mean"]).join(" "), parts);
    assert_eq!(
        (&breakdown["mean"]["lateness_ns"], &breakdown["mean"]["prepare_ns"]),
        (&json!(600.0), &json!(400.0))
    );
    // The buckets of the breakdown are 6 % wide.
    let tail = breakdown["above_p99"]["service_ns"].as_f64().expect("a number");
    assert!((2.7e6..2.9e6).contains(&tail), "{tail}");
    assert_eq!(
        breakdown["shares"]["mean"],
        json!({ "endpoint": 0.9, "pool": 0.06, "client": 0.04 })
    );
    assert_eq!(breakdown["shares"]["above_p99"], Value::Null);
    let trust = &summary["trust"];
    assert_eq!(
        (&trust["verdict"], trust["checks"].as_array().map(Vec::len)),
        (&json!("warn"), Some(4))
    );
    assert_eq!(
        keys(&trust["checks"][0]).join(" "),
        "id name class verdict value unit reason brief"
    );
    let config = &summary["run_config"];
    assert_eq!(
        config["load_pattern"],
        json!({
            "type": "poisson", "target_qps": 1000.0, "target_concurrency": null,
        })
    );
    let ours = ["max_connections", "overload", "timer", "order"].map(|key| config[key].clone());
    assert_eq!(ours, [json!(2048), json!("queue"), json!("hybrid"), json!("shuffle")]);
    assert_eq!(config["dataloader_random_seed"], 42);
    assert_eq!(summary["phases"][0]["breakdown"], *breakdown, "of the one phase");
    for key in ["latency", "lateness", "pool_wait", "scheduled_qps", "offered_qps", "breakdown"] {
        assert!(summary["definitions"][key]["ours"].is_string(), "{key}");
    }
}

#[test]
fn a_closed_loop_has_no_figure_of_a_schedule() {
    let summary = parsed(&finished(20_000, 3));
    for key in ["scheduled_qps", "offered_qps", "goodput", "schedule_hash", "breakdown", "seed"] {
        assert_eq!(summary[key], Value::Null, "{key}");
    }
    assert_eq!((&summary["lateness"], &summary["pool_wait"]), (&json!({}), &json!({})));
    assert_eq!(summary["trust"], json!({ "verdict": null, "checks": [] }), "nothing judged it");
    assert_eq!(summary["run_config"]["load_pattern"]["target_concurrency"], 4);
}

#[test]
fn time_outs_count_in_the_percentiles_of_the_latency_and_in_nothing_else() {
    let summary = told(&open_run(&timed_out(9_800, 200)), &open_facts(), Vec::new());
    let latency = &summary["latency"];
    assert_eq!((p(latency, "99.0"), p(latency, "99.9")), (json!(1e9), json!(1e9)));
    assert!(p(latency, "97.0").as_f64() < Some(3e6), "{latency}");
    assert_eq!((&latency["max"], &latency["n_timed_out"]), (&json!(2_900_795), &json!(200)));
    assert!(p(&summary["service_latency"], "99.0").as_f64() < Some(3e6), "completed ones only");
    assert_eq!(summary["n_samples_completed"], 9_800);
    let marked = |percentile| {
        json!({
            "series": "latency", "percentile": percentile, "reason": "requests timed out",
            "at_least": true,
        })
    };
    assert_eq!(summary["untrusted_percentiles"], json!([marked("99.9"), marked("99.0")]));
    assert_eq!(latency["early_stopping_percentiles"]["99.0"], Value::Null, "no estimate in them");
    assert!(latency["early_stopping_percentiles"]["97.0"].is_f64());
}

#[test]
fn early_stopping_estimates_have_the_keys_of_endpoints_and_its_floors() {
    let estimates = |run: &Snapshot| parsed(run)["latency"]["early_stopping_percentiles"].clone();
    let all = estimates(&open_run(&open_recorded(10_000)));
    assert_eq!(keys(&all).join(" "), "50.0 75.0 80.0 90.0 95.0 97.0 99.0 99.9");
    // Of 10 000 values LoadGen discards the 76 largest for p99, so that rank 9 924 is left: 2.8846.
    let p99 = all["99.0"].as_f64().expect("enough");
    assert!((2_885_600.0..2_885_600.0 * 1.001).contains(&p99), "{p99}");
    let few = estimates(&open_run(&open_recorded(661)));
    assert_eq!((few["99.0"].clone(), few["99.9"].clone()), (Value::Null, Value::Null));
    assert!(estimates(&open_run(&open_recorded(662)))["99.0"].is_f64(), "the floor of p99");
    let mut cut = open_run(&open_recorded(10_000));
    cut.state = State::Interrupted;
    assert_eq!(estimates(&cut), json!({}), "of complete runs only");
}

#[test]
fn gates_are_told_with_their_figures() {
    let parse = |text: &str| vec![Expression::parse(text).expect("valid")];
    let facts = RunFacts { slo: parse("p99:5ms"), fail_if: parse("goodput<90%"), ..open_facts() };
    let summary = told(&open_run(&open_recorded(10_000)), &facts, Vec::new());
    let slo = &summary["slo"][0];
    assert_eq!(keys(slo).join(" "), "expression verdict value at_least reason");
    assert_eq!((&slo["expression"], &slo["verdict"]), (&json!("p99:5ms"), &json!("held")));
    assert_eq!(slo["value"], p(&summary["latency"], "99.0"));
    let fail_if = json!([{
        "expression": "goodput<90%", "verdict": "held", "value": null, "at_least": null,
        "reason": "there was no --goodput",
    }]);
    assert_eq!(summary["fail_if"], fail_if);
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
