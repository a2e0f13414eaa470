//! The text of `final_snapshot.json`: the keys of endpoints in its order, ours after them.

mod counters;

use std::io::{self, Write};

use loadgen_shards::phase::PhaseKind;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::courtesy::make_way;

use super::{
    Answers, ClockFacts, Conditions, Distribution, Host, PERCENTILES, PhaseTotals, Snapshot, Sums,
    Totals, count_needed,
};

use counters::counters_of;
pub use counters::{phase_counters, run_counters};

/// Version of the keys; rises when one changes its meaning.
const SCHEMA: u32 = 1;
#[derive(Serialize)]
struct Document<'a> {
    counter: u64,
    timestamp_ns: u64,
    state: &'static str,
    n_pending_tasks: u64,
    metrics: Vec<Metric>,
    schema: u32,
    version: &'static str,
    git_sha: Option<&'static str>,
    started_unix_s: u64,
    interrupted_by: Option<&'a str>,
    host: HostFacts<'a>,
    engine: Value,
    phases: Vec<PhaseDocument<'a>>,
}

#[derive(Serialize)]
struct HostFacts<'a> {
    kernel: Option<&'a str>,
    cpu_model: Option<&'a str>,
    cpus: usize,
    /// Kernel CPU ids of the shards; null where one could not be pinned.
    shard_cores: &'a [Option<usize>],
    clock: Value,
    conditions: Value,
}

#[derive(Serialize)]
struct PhaseDocument<'a> {
    name: &'a str,
    phase_type: &'static str,
    state: &'static str,
    metrics: Vec<Metric>,
    failures: Map<String, Value>,
    status_codes: Map<String, Value>,
    start_ns: u64,
    issue_end_ns: Option<u64>,
    end_ns: Option<u64>,
    first_sent_ns: Option<u64>,
    last_complete_ns: Option<u64>,
    load_end_ns: Option<u64>,
    schedule_hash: Option<String>,
    in_flight_peaks: &'a [u64],
    steals: Vec<Value>,
    tcp_segments: Option<Value>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Metric {
    Counter(Counter),
    Series(Box<Series>),
}

#[derive(Serialize)]
struct Counter {
    name: &'static str,
    value: u64,
}

#[derive(Serialize)]
struct Series {
    name: &'static str,
    count: u64,
    total: Value,
    min: Option<Value>,
    max: Option<Value>,
    sum_sq: f64,
    percentiles: Map<String, Value>,
    early_stopping_percentiles: Map<String, Value>,
    histogram: Vec<((f64, f64), u64)>,
    percentiles_null: Map<String, Value>,
    clamped_low: u64,
    clamped_high: u64,
}

/// The text of `final_snapshot.json`.
pub fn final_snapshot(snapshot: &Snapshot, host: &Host) -> String {
    let tracked = Totals::of(snapshot.tracked());
    let all = Totals::of(&snapshot.phases);
    let document = Document {
        counter: snapshot.counter,
        timestamp_ns: snapshot.timestamp_ns,
        state: snapshot.state.name(),
        n_pending_tasks: snapshot.pending(),
        metrics: counters(counters_of(snapshot, &tracked, &all))
            // Connections mostly open before the tracked phases, so their series is that of the
            // whole run.
            .chain(series(&tracked.sums, &all.sums))
            .collect(),
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        git_sha: git_sha(),
        started_unix_s: snapshot.started_unix_s,
        interrupted_by: known(&snapshot.interrupted_by),
        host: HostFacts {
            kernel: known(&host.kernel),
            cpu_model: known(&host.cpu_model),
            cpus: host.cpus,
            shard_cores: &snapshot.cores,
            clock: clock(&snapshot.clock),
            conditions: conditions(&snapshot.conditions),
        },
        engine: json!({
            "name": snapshot.engine.name,
            "features": snapshot.engine.features,
            "reason": known(&snapshot.engine.reason),
        }),
        phases: snapshot.phases.iter().map(phase_document).collect(),
    };
    pretty(&document)
}

/// The percentiles of a distribution, divided by `per`, and the reasons of those that are null.
/// Both empty without a value.
pub fn percentiles_json(
    distribution: &Distribution,
    per: u64,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut values, mut reasons) = (Map::new(), Map::new());
    let count = distribution.count();
    for (percentile, value) in PERCENTILES.iter().zip(distribution.percentiles().iter().flatten()) {
        let key = percentile.key.to_owned();
        let needed = count_needed(percentile.milli);
        if count < needed {
            reasons.insert(key.clone(), format!("needs {needed} values, has {count}").into());
            values.insert(key, Value::Null);
        } else {
            values.insert(key, (*value as f64 / per as f64).into());
        }
    }
    (values, reasons)
}

/// A value of a distribution divided by `per`; whole where that is 1, and where JSON has so large
/// integers.
pub fn in_unit(value: u128, per: u64) -> Value {
    match (per, u64::try_from(value)) {
        (1, Ok(whole)) => whole.into(),
        _ => (value as f64 / per as f64).into(),
    }
}

/// Set by whoever builds from a checkout (`LOADGEN_GIT_SHA=$(git rev-parse HEAD) cargo build`).
pub fn git_sha() -> Option<&'static str> {
    option_env!("LOADGEN_GIT_SHA")
}

/// JSON text as in every file: indented by 2, ending with a newline.
pub fn pretty(document: &impl Serialize) -> String {
    let mut text = Text::default();
    serde_json::to_writer_pretty(&mut text, document)
        .expect("numbers, texts and string keys always serialise");
    text.bytes.push(b'\n');
    String::from_utf8(text.bytes).expect("JSON is text")
}

/// A text that makes way now and then while it is written: a snapshot is one a second.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    since_way: usize,
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        self.since_way += bytes.len();
        if self.since_way >= WAY_BYTES {
            self.since_way = 0;
            make_way();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Written in some 20 us.
const WAY_BYTES: usize = 4096;

fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn clock(facts: &ClockFacts) -> Value {
    json!({
        "source": facts.source,
        "ticks_per_s": facts.ticks_per_s,
        "error_ns_max": facts.error_ns_max,
        "read_cost_ns": facts.read_cost_ns,
        "drift_ppm": facts.drift_ppm,
        "raw_ppm": facts.raw_ppm,
        "skew_ns": facts.skew_ns,
    })
}

fn conditions(facts: &Conditions) -> Value {
    json!({
        "governor": known(&facts.governor),
        "turbo": facts.turbo,
        "idle_driver": known(&facts.idle_driver),
        "deepest_sleep": known(&facts.deepest_sleep),
        "wake_us": facts.wake_us,
        "smt": facts.smt,
        "isolated": known(&facts.isolated),
        "tickless": known(&facts.tickless),
        "clocksource": known(&facts.clocksource),
        "policy": known(facts.policy),
    })
}

fn phase_document(phase: &PhaseTotals) -> PhaseDocument<'_> {
    let happened = |instant: u64| (instant > 0).then_some(instant);
    let totals = Totals::of([phase]);
    PhaseDocument {
        name: &phase.name,
        phase_type: PhaseKind::name(phase.kind),
        state: phase.state.name(),
        metrics: counters(phase_counters(&totals))
            .chain(series(&phase.sums, &phase.sums))
            .collect(),
        failures: phase
            .sums
            .failures
            .iter()
            .map(|(kind, tally)| (kind.name().to_owned(), tally.count.into()))
            .collect(),
        status_codes: status_codes(&totals),
        start_ns: phase.start_ns,
        issue_end_ns: happened(phase.issue_end_ns),
        end_ns: happened(phase.end_ns),
        first_sent_ns: happened(phase.first_sent_ns),
        last_complete_ns: happened(phase.last_complete_ns),
        load_end_ns: happened(phase.load_end_ns),
        schedule_hash: hash_text(&phase.sums),
        in_flight_peaks: &phase.in_flight_peaks,
        steals: phase
            .steals
            .iter()
            .map(|steal| {
                json!({
                    "core": steal.core,
                    "over_ns": steal.over_ns,
                    "stolen_ns": steal.stolen_ns,
                })
            })
            .collect(),
        tcp_segments: phase
            .segments
            .map(|segments| json!({ "sent": segments.sent, "resent": segments.resent })),
    }
}

/// Responses by status.
pub fn status_codes(totals: &Totals) -> Map<String, Value> {
    totals.sums.statuses.iter().map(|(status, count)| (status.to_string(), count.into())).collect()
}

fn counters(list: impl IntoIterator<Item = (&'static str, u64)>) -> impl Iterator<Item = Metric> {
    list.into_iter().map(|(name, value)| Metric::Counter(Counter { name, value }))
}

/// Those of endpoints first. What only a schedule or an inference endpoint has is left out
/// elsewhere. `opened`: of the phases in which the connections were opened.
fn series(sums: &Sums, opened: &Sums) -> Vec<Metric> {
    let mut list = vec![one_series("sample_latency_ns", sums.headline())];
    list.extend(sums.answers.iter().flat_map(|answers| series_of_answers(sums, answers)));
    list.extend([
        one_series("service_latency_ns", &sums.service),
        one_series("ttfb_ns", &sums.ttfb),
        one_series("connect_ns", &opened.connect),
        one_series("censored_ns", &sums.censored),
        one_series("loop_gap_ns", &sums.loop_gap),
        one_series("enter_ns", &sums.enter),
        one_series("wakeup_ns", &sums.wakeup),
    ]);
    if !opened.tls.is_empty() {
        list.push(one_series("tls_ns", &opened.tls));
    }
    if sums.has_schedule() {
        list.push(one_series("lateness_ns", &sums.lateness));
        list.push(one_series("pool_wait_ns", &sums.pool_wait));
        list.push(one_series("dispatch_latency_ns", &sums.since_dispatch));
    }
    if sums.has_wire_stamps() {
        list.push(one_series("wire_tx_ns", &sums.wire_tx));
        list.push(one_series("wire_rx_ns", &sums.wire_rx));
    }
    list
}

/// Of an inference endpoint: those of endpoints first.
fn series_of_answers(sums: &Sums, answers: &Answers) -> Vec<Metric> {
    let Answers { service_ttft, first_visible, tpot, chunk_delta, stream_close, .. } = answers;
    vec![
        one_series("isl", &answers.isl),
        one_series("osl", &answers.osl),
        one_series("ttft_ns", sums.ttft().unwrap_or(service_ttft)),
        one_series("chunk_delta_ns", chunk_delta),
        one_series("tpot_ns", tpot),
        one_series("service_ttft_ns", service_ttft),
        one_series("first_visible_ns", first_visible),
        one_series("stream_close_ns", stream_close),
        one_series("chunks", &answers.chunks),
        scaled_series("tokens_per_chunk", &answers.tokens_per_chunk, 1000),
    ]
}

/// A schedule hash as in every file and on the screen; `None` without a schedule.
pub fn hash_text(sums: &Sums) -> Option<String> {
    sums.has_schedule().then(|| format!("{:016x}", sums.schedule_hash))
}

fn one_series(name: &'static str, distribution: &Distribution) -> Metric {
    scaled_series(name, distribution, 1)
}

/// A distribution whose values are `per` times what they are told as.
fn scaled_series(name: &'static str, distribution: &Distribution, per: u64) -> Metric {
    // Some 30 us each, two dozen of them, each second of a run.
    make_way();
    let (percentiles, percentiles_null) = percentiles_json(distribution, per);
    make_way();
    let scale = per as f64;
    Metric::Series(Box::new(Series {
        name,
        count: distribution.count(),
        total: in_unit(distribution.total, per),
        min: distribution.smallest().map(|min| in_unit(min.into(), per)),
        max: distribution.largest().map(|max| in_unit(max.into(), per)),
        sum_sq: distribution.sum_sq / (scale * scale),
        percentiles,
        early_stopping_percentiles: Map::new(),
        histogram: distribution
            .log_buckets()
            .iter()
            .map(|bucket| ((bucket.low / scale, bucket.high / scale), bucket.count))
            .collect(),
        percentiles_null,
        clamped_low: distribution.clamped_low,
        clamped_high: distribution.clamped_high,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{finished, open_recorded, open_run, recorded};

    fn document(snapshot: &Snapshot) -> Value {
        let host = Host { kernel: "6.18".to_owned(), cpu_model: String::new(), cpus: 2 };
        serde_json::from_str(&final_snapshot(snapshot, &host)).expect("valid JSON")
    }

    fn keys(value: &Value) -> String {
        let keys: Vec<&str> =
            value.as_object().expect("an object").keys().map(String::as_str).collect();
        keys.join(" ")
    }

    fn metric<'a>(metrics: &'a Value, name: &str) -> &'a Value {
        let mut all = metrics.as_array().expect("a list").iter();
        all.find(|metric| metric["name"] == name).expect(name)
    }

    #[test]
    fn document_has_the_keys_of_endpoints_in_its_order_and_ours_after() {
        let document = document(&finished(20_000, 3));
        let expected = "counter timestamp_ns state n_pending_tasks metrics schema version git_sha \
             started_unix_s interrupted_by host engine phases";
        assert_eq!(keys(&document), expected);
        let counter = &document["metrics"][0];
        assert_eq!(keys(counter), "type name value");
        assert_eq!(counter["type"], "counter");
        let latency = metric(&document["metrics"], "sample_latency_ns");
        let expected = "type name count total min max sum_sq percentiles \
             early_stopping_percentiles histogram percentiles_null clamped_low clamped_high";
        assert_eq!(keys(latency), expected);
        assert_eq!(latency["type"], "series");
        let phase = &document["phases"][0];
        let expected = "name phase_type state metrics failures status_codes start_ns \
             issue_end_ns end_ns first_sent_ns last_complete_ns load_end_ns schedule_hash \
             in_flight_peaks steals tcp_segments";
        assert_eq!(keys(phase), expected);
    }

    #[test]
    fn metrics_are_in_the_order_of_endpoints_counters_first() {
        let document = document(&finished(20, 3));
        let metrics = document["metrics"].as_array().expect("a list");
        let names: Vec<&str> =
            metrics.iter().filter_map(|metric| metric["name"].as_str()).collect();
        let endpoints = "total_samples_issued total_samples_completed total_samples_failed \
             tracked_samples_issued tracked_samples_completed tracked_samples_failed \
             tracked_finish_reason_stop tracked_finish_reason_length \
             tracked_finish_reason_tool_calls tracked_finish_reason_content_filter \
             tracked_finish_reason_function_call tracked_finish_reason_other \
             tracked_duration_ns legacy_loadgen_window_duration_ns total_duration_ns";
        assert_eq!(names[..15].join(" "), endpoints);
        assert_eq!(names[15..17], ["samples_cancelled", "samples_in_flight_at_end"]);
        let series = "sample_latency_ns service_latency_ns ttfb_ns connect_ns censored_ns \
             loop_gap_ns enter_ns wakeup_ns";
        assert_eq!(names[names.len() - 8..].join(" "), series);
        let kinds: Vec<&str> =
            metrics.iter().filter_map(|metric| metric["type"].as_str()).collect();
        assert!(kinds.is_sorted(), "counters come before series");
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "each name once");
    }

    #[test]
    fn an_open_loop_has_the_series_and_counters_of_its_schedule() {
        let document = document(&open_run(&open_recorded(10_000)));
        let names = document["metrics"].as_array().expect("a list").iter();
        let names: Vec<&str> = names.filter_map(|metric| metric["name"].as_str()).collect();
        assert!(names.ends_with(&["lateness_ns", "pool_wait_ns", "dispatch_latency_ns"]));
        let counter = |name: &str| metric(&document["metrics"], name)["value"].clone();
        assert_eq!(counter("samples_scheduled"), 10_000);
        assert_eq!((counter("samples_dropped"), counter("samples_untaken")), (0.into(), 0.into()));
        // From the schedule, where service counts from the send.
        let min = |name: &str| metric(&document["metrics"], name)["min"].clone();
        assert_eq!(
            (min("sample_latency_ns"), min("service_latency_ns")),
            (901_000.into(), 900_000.into())
        );
        assert_eq!(document["phases"][0]["schedule_hash"], "0000000000abcdef");
    }

    #[test]
    fn total_counts_all_phases_and_tracked_the_tracked_ones() {
        let mut snapshot = finished(20, 3);
        let mut warmup = PhaseTotals::new("warmup", PhaseKind::Warmup, 500_000_000);
        warmup.add(&recorded(7, 1));
        snapshot.phases.insert(0, warmup);
        let document = document(&snapshot);
        let value = |name: &str| metric(&document["metrics"], name)["value"].clone();
        assert_eq!(value("total_samples_completed"), 27);
        assert_eq!(value("tracked_samples_completed"), 20);
        assert_eq!(value("total_samples_failed"), 4);
        assert_eq!(value("tracked_duration_ns"), 5_000_000_000u64);
        assert_eq!(value("legacy_loadgen_window_duration_ns"), 4_999_990_000u64);
        assert_eq!(value("total_duration_ns"), 5_501_000_000u64);
        assert_eq!(value("connections_opened"), 128);
        assert_eq!(metric(&document["metrics"], "sample_latency_ns")["count"], 20);
        assert_eq!(metric(&document["metrics"], "connect_ns")["count"], 128);
        let warmup = &document["phases"][0];
        assert_eq!(metric(&warmup["metrics"], "samples_completed")["value"], 7);
        assert_eq!(warmup["failures"], json!({ "reset": 1 }));
        assert_eq!(warmup["status_codes"], json!({ "200": 7 }));
        assert_eq!(warmup["end_ns"], Value::Null, "it has not happened");
    }

    #[test]
    fn histogram_has_thirty_pairs_of_edges_with_a_count() {
        let document = document(&finished(20, 0));
        let latency = metric(&document["metrics"], "sample_latency_ns");
        let histogram = latency["histogram"].as_array().expect("a list");
        assert_eq!(histogram.len(), 30);
        assert_eq!(histogram[0][0][0], 1_000_000.0);
        assert_eq!(histogram[0][1], 20);
        assert_eq!(histogram[29][0][1], 10_000_000.0);
    }

    #[test]
    fn a_series_without_a_value_has_no_figures_but_its_count() {
        let document = document(&finished(0, 0));
        let latency = metric(&document["metrics"], "sample_latency_ns");
        assert_eq!((&latency["count"], &latency["min"]), (&json!(0), &Value::Null));
        assert_eq!((&latency["percentiles"], &latency["histogram"]), (&json!({}), &json!([])));
        assert_eq!(document["host"]["cpu_model"], Value::Null, "unknown is null");
    }
}
