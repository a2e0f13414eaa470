//! Derived figures: what `result_summary.json` holds, and with it all that the text report says.
//!
//! Pure functions from a [`Snapshot`] and the [`RunFacts`] of its plan. Undefined is null, never 0.

mod command;
#[cfg(test)]
pub mod tests;
mod verdict;

use std::path::PathBuf;

use loadgen_shards::failure::Tally;
use loadgen_shards::phase::PhaseKind;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::Precision;
use crate::plan;
use crate::snapshot::{
    Distribution, Host, Snapshot, State, Totals, git_sha, percentiles_json, phase_counters, pretty,
    run_counters, status_codes,
};
use crate::trust;

pub use command::next_commands;
pub use verdict::{
    Ending, Limit, Verdict, ending, exit_code, limit, limit_facts, little_ratio, little_warning,
};

/// What the report needs to know of the plan. No field may hold a secret: some are printed, all may
/// be written.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// `max-throughput` or `concurrency`.
    pub command: String,
    /// In order, secrets masked; what the embedded endpoint listens on if there were none.
    pub urls: Vec<String>,
    /// `--cores` as typed.
    pub cores_flag: Option<String>,
    /// The other flags as typed, one word each, but for `-c`, `--report-dir`, the output flags and
    /// what is secret.
    pub flags: Vec<String>,
    /// Connections over all shards together.
    pub connections: u32,
    /// One shard on each, ascending.
    pub cores: Vec<usize>,
    /// How they were chosen, in words.
    pub cores_reason: String,
    /// Allowed cores with neither a shard nor the embedded endpoint.
    pub cores_free: Vec<usize>,
    /// Shards never sleep.
    pub spin: bool,
    /// The target is the endpoint embedded in this process.
    pub is_embedded: bool,
    /// `--seed`; `None` while nothing is drawn.
    pub seed: Option<u64>,
    /// Of the plan, in order.
    pub phases: Vec<plan::Phase>,
    /// What `-d auto` waited for.
    pub precision: Option<Precision>,
    /// This host's floor, if it was measured.
    pub floor: Option<Floor>,
    /// Where files go.
    pub report_dir: Option<PathBuf>,
    /// The host.
    pub host: Host,
}

/// What the run's own load measures against an endpoint that does nothing. Percentiles of too few
/// values are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floor {
    /// Answers that it is of.
    pub completed: u64,
    /// How long it took, ns.
    pub duration_ns: u64,
    /// Median from the send, ns.
    pub service_p50_ns: Option<u64>,
    /// 99th percentile likewise.
    pub service_p99_ns: Option<u64>,
    /// Median of the dispatch after its instant, ns; `None` too in closed loop.
    pub lateness_p50_ns: Option<u64>,
    /// 99th percentile likewise.
    pub lateness_p99_ns: Option<u64>,
    /// The timer of an open loop.
    pub timer: Option<&'static str>,
    /// No core was left for the endpoint, so it shared one with us.
    pub is_shared: bool,
}

/// The verdict on one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// What limited it.
    pub verdict: Verdict,
    /// Little's law.
    pub little_ratio: Option<f64>,
}

/// The verdict on the tracked phase of a run; `None` if there are none or several, as each has its
/// own.
pub fn assess(snapshot: &Snapshot, facts: &RunFacts) -> Option<Assessment> {
    let is_tracked = |index: &usize| snapshot.phases[*index].kind == PhaseKind::Performance;
    let mut tracked = (0..snapshot.phases.len()).filter(is_tracked);
    match (tracked.next(), tracked.next()) {
        (Some(index), None) => assess_phase(snapshot, facts, index),
        _ => None,
    }
}

/// The verdict on one phase. Snapshot and plan list the phases in the same order.
fn assess_phase(snapshot: &Snapshot, facts: &RunFacts, index: usize) -> Option<Assessment> {
    let (phase, plan) = (&snapshot.phases[index], facts.phases.get(index)?);
    let little_ratio = little_ratio(phase, plan);
    let verdict = limit(&limit_facts(snapshot, phase, plan)).less_what_contradicts(little_ratio);
    Some(Assessment { verdict, little_ratio })
}

#[derive(Serialize)]
struct Summary {
    version: &'static str,
    git_sha: Option<&'static str>,
    test_started_at: u64,
    n_samples_issued: u64,
    n_samples_completed: u64,
    n_samples_failed: u64,
    duration_ns: Option<u64>,
    state: &'static str,
    complete: bool,
    ttft: Value,
    tpot: Value,
    latency: Value,
    output_sequence_lengths: Value,
    input_sequence_lengths: Value,
    legacy_loadgen_window_duration_ns: Option<u64>,
    qps: Option<f64>,
    tps: Option<f64>,
    finish_reason_counts: Value,
    run_config: Value,
    legacy_qps: Option<f64>,
    counters: Map<String, Value>,
    service_latency: Value,
    ttfb: Value,
    connect: Value,
    latency_origin: &'static str,
    little_ratio: Option<f64>,
    limit: Value,
    failures: Map<String, Value>,
    status_codes: Map<String, Value>,
    engine: Value,
    cores: Value,
    seed: Option<u64>,
    precision: Value,
    floor: Value,
    definitions: Value,
    phases: Vec<Value>,
}

/// The text of `performance/result_summary.json`, also what `--json` prints: the tracked phases
/// together.
pub fn result_summary(snapshot: &Snapshot, facts: &RunFacts) -> String {
    let mut summary =
        summary(snapshot, facts, &Totals::of(snapshot.tracked()), assess(snapshot, facts).as_ref());
    summary.precision = precision_json(snapshot, facts);
    // Connections mostly open before the tracked phases.
    summary.connect = distribution_json(&Totals::of(&snapshot.phases).sums.connect);
    summary.counters =
        run_counters(snapshot).into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
    summary.phases =
        (0..snapshot.phases.len()).map(|index| phase_entry(snapshot, facts, index)).collect();
    pretty(&summary)
}

/// The text of `phases/<name>/result_summary.json`: the same for one phase of the snapshot, by its
/// index.
pub fn phase_summary(snapshot: &Snapshot, facts: &RunFacts, index: usize) -> String {
    pretty(&summary_of_phase(snapshot, facts, index))
}

/// One of `phases[]`: its name, and its figures without what holds for the whole run.
fn phase_entry(snapshot: &Snapshot, facts: &RunFacts, index: usize) -> Value {
    const RUN_WIDE: [&str; 8] = [
        "test_started_at",
        "run_config",
        "engine",
        "cores",
        "precision",
        "floor",
        "definitions",
        "phases",
    ];
    let phase = &snapshot.phases[index];
    let mut entry = Map::new();
    entry.insert("name".to_owned(), phase.name.as_str().into());
    entry.insert("phase_type".to_owned(), phase.kind.name().into());
    let figures = serde_json::to_value(summary_of_phase(snapshot, facts, index))
        .expect("numbers, texts and string keys always serialise");
    let Value::Object(figures) = figures else { unreachable!("a struct is an object") };
    entry.extend(figures.into_iter().filter(|(key, _)| !RUN_WIDE.contains(&key.as_str())));
    Value::Object(entry)
}

fn summary_of_phase(snapshot: &Snapshot, facts: &RunFacts, index: usize) -> Summary {
    let phase = &snapshot.phases[index];
    let totals = Totals::of([phase]);
    let assessment = assess_phase(snapshot, facts, index);
    let mut summary = summary(snapshot, facts, &totals, assessment.as_ref());
    summary.state = phase.state.name();
    summary.complete = phase.state == State::Complete && phase.in_flight_at_end == 0;
    summary.counters = phase_counters(&totals)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    summary
}

/// Everything that comes from totals alone; the callers fill in what differs between a run and a
/// phase.
fn summary(
    snapshot: &Snapshot,
    facts: &RunFacts,
    totals: &Totals,
    assessment: Option<&Assessment>,
) -> Summary {
    Summary {
        version: env!("CARGO_PKG_VERSION"),
        git_sha: git_sha(),
        test_started_at: snapshot.started_unix_s,
        n_samples_issued: totals.sums.counters.issued,
        n_samples_completed: totals.sums.counters.completed,
        n_samples_failed: totals.sums.counters.failed,
        duration_ns: (totals.duration_ns > 0).then_some(totals.duration_ns),
        state: snapshot.state.name(),
        complete: snapshot.is_complete(),
        ttft: json!({}),
        tpot: json!({}),
        latency: distribution_json(&totals.sums.service),
        output_sequence_lengths: json!({}),
        input_sequence_lengths: json!({}),
        legacy_loadgen_window_duration_ns: None, // qps is never computed over that window
        qps: totals.qps(),
        tps: None,
        finish_reason_counts: json!({
            "stop": 0, "length": 0, "tool_calls": 0,
            "content_filter": 0, "function_call": 0, "other": 0,
        }),
        run_config: run_config(facts),
        legacy_qps: legacy_qps(totals),
        counters: Map::new(),
        service_latency: distribution_json(&totals.sums.service),
        ttfb: distribution_json(&totals.sums.ttfb),
        connect: distribution_json(&totals.sums.connect),
        latency_origin: "sent",
        little_ratio: assessment.and_then(|assessment| assessment.little_ratio),
        limit: limit_json(totals, assessment.map(|assessment| &assessment.verdict)),
        failures: totals
            .sums
            .failures
            .iter()
            .map(|(kind, tally)| (kind.name().to_owned(), tally_json(snapshot, tally)))
            .collect(),
        status_codes: status_codes(totals),
        engine: json!({
            "name": snapshot.engine.name,
            "features": snapshot.engine.features,
            "reason": (!snapshot.engine.reason.is_empty()).then_some(&snapshot.engine.reason),
        }),
        cores: json!({
            "shards": snapshot.cores,
            "reason": facts.cores_reason,
            "spin": facts.spin,
        }),
        seed: facts.seed,
        precision: Value::Null,
        floor: facts.floor.as_ref().map_or(Value::Null, floor_json),
        definitions: definitions(),
        phases: Vec::new(),
    }
}

/// One distribution in the shape of endpoints; `{}` without a value.
fn distribution_json(distribution: &Distribution) -> Value {
    if distribution.is_empty() {
        return json!({});
    }
    let (percentiles, percentiles_null) = percentiles_json(distribution);
    let buckets = distribution.log_buckets();
    json!({
        "total": u64::try_from(distribution.total).ok(),
        "min": distribution.smallest(),
        "max": distribution.largest(),
        "median": percentiles["50.0"],
        "avg": distribution.mean(),
        "std_dev": distribution.std_dev(),
        "percentiles": percentiles,
        "early_stopping_percentiles": {},
        "histogram": {
            "buckets": buckets.iter().map(|bucket| [bucket.low, bucket.high]).collect::<Vec<_>>(),
            "counts": buckets.iter().map(|bucket| bucket.count).collect::<Vec<_>>(),
        },
        "percentiles_null": percentiles_null,
    })
}

/// LoadGen's rule: the first completion only opens the window.
fn legacy_qps(totals: &Totals) -> Option<f64> {
    (totals.sums.counters.completed >= 2 && totals.window_ns > 0)
        .then(|| (totals.sums.counters.completed - 1) as f64 * 1e9 / totals.window_ns as f64)
}

fn limit_json(totals: &Totals, verdict: Option<&Verdict>) -> Value {
    json!({
        "name": verdict.and_then(|verdict| verdict.limit).map(Limit::name),
        "is_inferred": verdict.map(|verdict| verdict.is_inferred),
        "reason": verdict.map(|verdict| &verdict.reason),
        "client_utilisation": totals.utilisation(),
    })
}

/// What `-d auto` was to reach, and what it has; null without it.
fn precision_json(snapshot: &Snapshot, facts: &RunFacts) -> Value {
    let (Some(precision), Some(phase)) = (facts.precision, snapshot.tracked().last()) else {
        return Value::Null;
    };
    json!({
        "percentile": f64::from(precision.milli_percent) / 1000.0,
        "share": precision.share,
        "reached": phase.precise_after_ns.is_some(),
        "reached_after_ns": phase.precise_after_ns,
        "half_width": trust::half_width(&phase.batches, precision.milli_percent),
    })
}

fn floor_json(floor: &Floor) -> Value {
    let percentiles = |p50_ns, p99_ns| json!({ "percentiles": { "50.0": p50_ns, "99.0": p99_ns } });
    json!({
        "n_samples_completed": floor.completed,
        "duration_ns": floor.duration_ns,
        "service_latency": percentiles(floor.service_p50_ns, floor.service_p99_ns),
        "lateness": percentiles(floor.lateness_p50_ns, floor.lateness_p99_ns),
        "timer": floor.timer,
        "is_shared": floor.is_shared,
    })
}

fn tally_json(snapshot: &Snapshot, tally: &Tally) -> Value {
    let message = snapshot.first_message(tally);
    let message = (!message.is_empty()).then(|| printable(&message));
    json!({ "count": tally.count, "first_message": message })
}

/// The shape of endpoints, then ours.
fn run_config(facts: &RunFacts) -> Value {
    let warmup = facts.phases.iter().find(|phase| phase.kind == PhaseKind::Warmup);
    let tracked = facts.phases.iter().find(|phase| phase.kind == PhaseKind::Performance);
    json!({
        "load_pattern": {
            "type": facts.command.replace('-', "_"),
            "target_qps": null,
            "target_concurrency": tracked.map(|phase| phase.in_flight),
        },
        "warmup": {
            "enabled": warmup.is_some(),
            "n_requests": warmup.and_then(|phase| phase.requests),
            "salt": false,
            "drain": warmup.is_some_and(|phase| phase.drain_timeout_ns > 0),
            "warmup_random_seed": facts.seed,
        },
        "scheduler_random_seed": facts.seed,
        "dataloader_random_seed": facts.seed,
        "endpoints": facts.urls.iter().map(|url| without_user_info(url)).collect::<Vec<_>>(),
        "is_embedded": facts.is_embedded,
        "connections": facts.connections,
        "requests": tracked.and_then(|phase| phase.requests),
        "duration_ns": tracked.and_then(|phase| phase.duration_ns),
        "drain_timeout_ns": tracked.map(|phase| phase.drain_timeout_ns),
    })
}

/// How each figure is defined; `endpoints` where its rule for the same key differs.
fn definitions() -> Value {
    json!({
        "latency": {
            "ours": "last byte - send, of successful requests (closed loop)",
            "endpoints": "final message deserialised - issue; failed requests included",
        },
        "service_latency": { "ours": "last byte of a successful response - send" },
        "ttfb": { "ours": "first byte of the response - send, of successful requests" },
        "connect": { "ours": "established - attempt begun, of the whole run" },
        "n_samples_completed": {
            "ours": "complete responses with an accepted status",
            "endpoints": "failed requests included",
        },
        "qps": { "ours": "tracked completed / tracked duration, for every load pattern" },
        "legacy_qps": {
            "ours": "(completed - 1) / (first send to last completion)",
            "endpoints": "(completed - 1) / (first issue to the end of the last-issued request)",
        },
        "duration_ns": {
            "ours": "phase start to last completion, or end of load if later; summed",
        },
        "percentiles": {
            "ours": "smallest value with p % at or below it; buckets of 0.1 %",
            "endpoints": "element floor(p (n - 1)) of the sorted values",
        },
        "complete": { "ours": "state complete and no tracked request in flight at the end" },
        "little_ratio": { "ours": "mean latency x qps / requests in flight" },
        "client_utilisation": { "ours": "time that the shards were at work / time that they ran" },
    })
}

/// Text from elsewhere, safe for a terminal: no control byte, no invisible mark that turns the
/// writing direction.
pub fn printable(text: &str) -> String {
    let is_mark = |c: char| {
        let zero_width = '\u{200b}'..='\u{200f}';
        let direction = '\u{2028}'..='\u{202e}';
        let isolate = '\u{2060}'..='\u{206f}';
        c == '\u{feff}' || [zero_width, direction, isolate].iter().any(|marks| marks.contains(&c))
    };
    text.chars().map(|c| if c.is_control() || is_mark(c) { '.' } else { c }).collect()
}

/// A URL without `user:password@`.
pub fn without_user_info(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// `0-3,5` for ascending ids.
pub fn core_list(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => parts.push((core, core)),
        }
    }
    let text = |(first, last): (usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}
