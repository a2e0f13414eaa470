//! The text of `result_summary.json`: the keys of endpoints in its order, ours after them.

mod answers;
mod definition;

use loadgen_shards::failure::Tally;
use loadgen_shards::phase::PhaseKind;
use loadgen_shards::recorder::Parts;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Assessment, Floor, Gate, Limit, Results, RunFacts, Verdict, assess, assess_phase, counted_by,
    goals_text, printable, target_qps, without_user_info,
};
use crate::config::overload_text;
use crate::snapshot::{
    Bounded, Distribution, PERCENTILES, Snapshot, State, Sums, Totals, count_needed, git_sha,
    hash_text, in_unit, percentiles_json, phase_counters, pretty, run_counters, status_codes,
};
use crate::statistics::early_stopping::{LOADGEN, estimate_rank};
use crate::trust::{self, Blame, Class, Interval, Trust};
use answers::{OfAnswers, inference_json};
use definition::definitions;

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
    lateness: Value,
    pool_wait: Value,
    wire_tx: Value,
    wire_rx: Value,
    ttfb: Value,
    connect: Value,
    tls: Value,
    service_ttft: Value,
    first_visible: Value,
    chunk_delta: Value,
    stream_close: Value,
    chunks: Value,
    tokens_per_chunk: Value,
    tokens: Value,
    latency_origin: &'static str,
    scheduled_qps: Option<f64>,
    offered_qps: Option<f64>,
    goodput: Option<f64>,
    n_goodput_unknown: Option<u64>,
    intervals: Map<String, Value>,
    breakdown: Value,
    little_ratio: Option<f64>,
    limit: Value,
    failures: Map<String, Value>,
    status_codes: Map<String, Value>,
    engine: Value,
    cores: Value,
    seed: Option<u64>,
    schedule_hash: Option<String>,
    trust: Value,
    untrusted_percentiles: Vec<Value>,
    slo: Vec<Value>,
    fail_if: Vec<Value>,
    precision: Value,
    floor: Value,
    definitions: Value,
    phases: Vec<Value>,
}

/// What of a run a summary is of.
struct Part<'a> {
    totals: &'a Totals<'a>,
    assessment: Option<Assessment>,
    trust: &'a Trust,
    state: State,
    is_complete: bool,
    counters: Vec<(&'static str, u64)>,
}

/// The text of `performance/result_summary.json`, also what `--json` prints: the tracked phases
/// together.
pub fn result_summary(results: &Results) -> String {
    let snapshot = results.snapshot;
    let part = Part {
        totals: &results.tracked,
        assessment: assess(snapshot, results.facts),
        trust: &results.trust,
        state: snapshot.state,
        is_complete: snapshot.is_complete(),
        counters: run_counters(snapshot),
    };
    let mut summary = summary(results, &part);
    summary.slo = results.slo.iter().map(gate_json).collect();
    summary.fail_if = results.fail_if.iter().map(gate_json).collect();
    summary.precision = precision_json(snapshot, results.facts);
    summary.phases = (0..snapshot.phases.len()).map(|index| phase_entry(results, index)).collect();
    pretty(&summary)
}

/// The text of `phases/<name>/result_summary.json`: the same for one phase of the snapshot, by its
/// index.
pub fn phase_summary(results: &Results, index: usize) -> String {
    pretty(&summary_of_phase(results, index))
}

/// One of `phases[]`: its name, and its figures without what holds for the whole run.
fn phase_entry(results: &Results, index: usize) -> Value {
    const RUN_WIDE: [&str; 10] = [
        "test_started_at",
        "run_config",
        "engine",
        "cores",
        "slo",
        "fail_if",
        "precision",
        "floor",
        "definitions",
        "phases",
    ];
    let phase = &results.snapshot.phases[index];
    let mut entry = Map::new();
    entry.insert("name".to_owned(), phase.name.as_str().into());
    entry.insert("phase_type".to_owned(), phase.kind.name().into());
    let figures = serde_json::to_value(summary_of_phase(results, index))
        .expect("numbers, texts and string keys always serialise");
    let Value::Object(figures) = figures else { unreachable!("a struct is an object") };
    entry.extend(figures.into_iter().filter(|(key, _)| !RUN_WIDE.contains(&key.as_str())));
    Value::Object(entry)
}

fn summary_of_phase(results: &Results, index: usize) -> Summary {
    let phase = &results.snapshot.phases[index];
    let totals = Totals::of([phase]);
    let unjudged = Trust::default();
    let part = Part {
        totals: &totals,
        assessment: assess_phase(results.snapshot, results.facts, index),
        trust: results.phase_trust.get(index).unwrap_or(&unjudged),
        state: phase.state,
        is_complete: phase.state == State::Complete && phase.in_flight_at_end == 0,
        counters: phase_counters(&totals),
    };
    summary(results, &part)
}

/// The figures of a part; gates and phases are of the run alone.
fn summary(results: &Results, part: &Part) -> Summary {
    let (snapshot, facts) = (results.snapshot, results.facts);
    let (totals, sums) = (part.totals, &part.totals.sums);
    let assessment = part.assessment.as_ref();
    let latency = headline_json(sums, part.state == State::Complete);
    // From the send it is the same figure.
    let service_latency = match sums.has_schedule() {
        true => distribution_json(&sums.service),
        false => latency.clone(),
    };
    let of_answers = OfAnswers::of(totals, facts, part.state == State::Complete);
    Summary {
        version: env!("CARGO_PKG_VERSION"),
        git_sha: git_sha(),
        test_started_at: snapshot.started_unix_s,
        n_samples_issued: sums.counters.issued,
        n_samples_completed: sums.counters.completed,
        n_samples_failed: sums.counters.failed,
        duration_ns: (totals.duration_ns > 0).then_some(totals.duration_ns),
        state: part.state.name(),
        complete: part.is_complete,
        ttft: of_answers.ttft,
        tpot: of_answers.tpot,
        latency,
        output_sequence_lengths: of_answers.osl,
        input_sequence_lengths: of_answers.isl,
        legacy_loadgen_window_duration_ns: None, // qps is never computed over that window
        qps: totals.qps(),
        tps: totals.tps(),
        finish_reason_counts: of_answers.finish_counts,
        run_config: run_config(facts),
        legacy_qps: legacy_qps(totals),
        counters: part.counters.iter().map(|(name, n)| ((*name).to_owned(), (*n).into())).collect(),
        service_latency,
        lateness: distribution_json(&sums.lateness),
        pool_wait: distribution_json(&sums.pool_wait),
        wire_tx: distribution_json(&sums.wire_tx),
        wire_rx: distribution_json(&sums.wire_rx),
        ttfb: distribution_json(&sums.ttfb),
        connect: distribution_json(&sums.connect),
        tls: distribution_json(&sums.tls),
        service_ttft: of_answers.service_ttft,
        first_visible: of_answers.first_visible,
        chunk_delta: of_answers.chunk_delta,
        stream_close: of_answers.stream_close,
        chunks: of_answers.chunks,
        tokens_per_chunk: of_answers.tokens_per_chunk,
        tokens: of_answers.tokens,
        latency_origin: if sums.has_schedule() { "scheduled" } else { "sent" },
        scheduled_qps: totals.scheduled_qps(),
        offered_qps: totals.offered_qps(),
        goodput: goodput(totals, facts),
        n_goodput_unknown: (!facts.goodput.is_empty()).then_some(sums.counters.good_unknown),
        intervals: intervals_json(&part.trust.intervals),
        breakdown: breakdown_json(sums, part.trust),
        little_ratio: assessment.and_then(|assessment| assessment.little_ratio),
        limit: limit_json(totals, assessment.map(|assessment| &assessment.verdict)),
        failures: failures_json(snapshot, sums),
        status_codes: status_codes(totals),
        engine: json!({
            "name": snapshot.engine.name,
            "features": snapshot.engine.features,
            "reason": (!snapshot.engine.reason.is_empty()).then_some(&snapshot.engine.reason),
        }),
        cores: cores_json(snapshot, facts),
        seed: facts.seed,
        schedule_hash: hash_text(sums),
        trust: trust_json(part.trust),
        untrusted_percentiles: untrusted_json(sums, part.trust),
        slo: Vec::new(),
        fail_if: Vec::new(),
        precision: Value::Null,
        floor: facts.floor.as_ref().map_or(Value::Null, floor_json),
        definitions: definitions(sums.has_schedule(), sums.answers.is_some()),
        phases: Vec::new(),
    }
}

/// One distribution in the shape of endpoints; `{}` without a value.
fn distribution_json(distribution: &Distribution) -> Value {
    scaled_json(distribution, 1)
}

/// The same where values are `per` times what they are told as.
fn scaled_json(distribution: &Distribution, per: u64) -> Value {
    if distribution.is_empty() {
        return json!({});
    }
    let (percentiles, percentiles_null) = percentiles_json(distribution, per);
    let buckets = distribution.log_buckets();
    let told = |value: f64| value / per as f64;
    json!({
        "total": in_unit(distribution.total, per),
        "min": distribution.smallest().map(|min| in_unit(min.into(), per)),
        "max": distribution.largest().map(|max| in_unit(max.into(), per)),
        "median": percentiles["50.0"],
        "avg": distribution.mean().map(told),
        "std_dev": distribution.std_dev().map(told),
        "percentiles": percentiles,
        "early_stopping_percentiles": {},
        "histogram": {
            "buckets": buckets
                .iter()
                .map(|bucket| [told(bucket.low), told(bucket.high)])
                .collect::<Vec<_>>(),
            "counts": buckets.iter().map(|bucket| bucket.count).collect::<Vec<_>>(),
        },
        "percentiles_null": percentiles_null,
    })
}

/// LoadGen's estimates from the median up and ascending, as endpoints has them; a rank that has no
/// certain value has none.
fn estimates_json(count: u64, at_rank: impl Fn(u64) -> Option<f64>) -> Map<String, Value> {
    let from_median = PERCENTILES.iter().rev().filter(|percentile| percentile.milli >= 50_000);
    let estimate = |milli| estimate_rank(count, milli, LOADGEN).and_then(&at_rank);
    from_median
        .map(|percentile| (percentile.key.to_owned(), estimate(percentile.milli).into()))
        .collect()
}

/// The headline latency: figures of completed queries, but percentiles with those that timed out.
fn headline_json(sums: &Sums, is_complete: bool) -> Value {
    let mut value = distribution_json(sums.headline());
    if value == json!({}) {
        return value;
    }
    let all = sums.headline_with_timeouts();
    let (mut percentiles, mut reasons, mut estimates) = (Map::new(), Map::new(), Map::new());
    let count = all.count();
    for (percentile, Bounded { value, .. }) in
        PERCENTILES.iter().zip(all.percentiles().iter().flatten())
    {
        let key = percentile.key.to_owned();
        let needed = count_needed(percentile.milli);
        if count < needed {
            reasons.insert(key.clone(), format!("needs {needed} values, has {count}").into());
        }
        let told = (count >= needed).then_some(*value as f64);
        percentiles.insert(key, told.into());
    }
    if is_complete {
        let certain = |rank| all.at_rank(rank).filter(|bound| !bound.is_at_least);
        estimates = estimates_json(count, |rank| certain(rank).map(|bound| bound.value as f64));
    }
    value["median"] = percentiles["50.0"].clone();
    value["percentiles"] = percentiles.into();
    value["percentiles_null"] = reasons.into();
    value["early_stopping_percentiles"] = estimates.into();
    value["n_timed_out"] = sums.censored.count().into();
    value
}

fn intervals_json(intervals: &[Interval]) -> Map<String, Value> {
    let entry = |interval: &Interval| {
        let value = json!({
            "low_ns": interval.low_ns,
            "high_ns": interval.high_ns,
            "n_eff": interval.effective,
            "independent": interval
                .independent
                .map(|(low_ns, high_ns)| json!({ "low_ns": low_ns, "high_ns": high_ns })),
        });
        (percentile_key(interval.milli), value)
    };
    intervals.iter().map(entry).collect()
}

/// The key of a percentile as in every distribution: `"99.9"`.
fn percentile_key(milli: u32) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// Where the time of completed queries went: mean parts, in open loop.
fn breakdown_json(sums: &Sums, trust: &Trust) -> Value {
    let all = sums.breakdown.all();
    if !sums.has_schedule() || all.count == 0 {
        return Value::Null;
    }
    let mean = |parts: Parts| {
        let part = |ns: u64| ns as f64 / parts.count as f64;
        json!({
            "lateness_ns": part(parts.lateness_ns),
            "pool_wait_ns": part(parts.pool_wait_ns),
            "prepare_ns": part(parts.prepare_ns),
            "service_ns": part(parts.service_ns),
        })
    };
    let p99_ns = sums.latency.percentile(99_000);
    let is_told = sums.latency.count() >= count_needed(99_000);
    let above_p99 = p99_ns.filter(|_| is_told).map(|ns| mean(sums.breakdown.above(ns)));
    let shares = |blame: &Option<Blame>| {
        blame.map(|blame| {
            json!({ "endpoint": blame.endpoint, "pool": blame.pool, "client": blame.client })
        })
    };
    json!({
        "mean": mean(all),
        "above_p99": above_p99,
        "shares": { "mean": shares(&trust.mean), "above_p99": shares(&trust.tail) },
    })
}

fn trust_json(trust: &Trust) -> Value {
    let checks: Vec<Value> = trust
        .checks
        .iter()
        .map(|check| {
            json!({
                "id": check.id,
                "name": check.name,
                "class": class_name(check.class),
                "verdict": check.level.name(),
                "value": check.value,
                "unit": (!check.unit.is_empty()).then_some(check.unit),
                "reason": check.reason,
                "brief": check.brief,
            })
        })
        .collect();
    // Without a check there is no judgement.
    let verdict = (!checks.is_empty()).then(|| trust.verdict().name());
    json!({ "verdict": verdict, "checks": checks })
}

const fn class_name(class: Class) -> &'static str {
    match class {
        Class::Instrument => "instrument",
        Class::Endpoint => "endpoint",
        Class::Sampling => "sampling",
    }
}

/// What the trust block marks, and what time-outs make a lower bound.
fn untrusted_json(sums: &Sums, trust: &Trust) -> Vec<Value> {
    let mut list: Vec<Value> = trust
        .marks
        .iter()
        .map(|mark| {
            json!({
                "series": mark.series,
                "percentile": percentile_key(mark.milli),
                "reason": mark.in_words(),
                "at_least": mark.is_at_least,
            })
        })
        .collect();
    let all = sums.headline_with_timeouts();
    for percentile in PERCENTILES.iter().filter(|p| all.count() >= count_needed(p.milli)) {
        let is_marked = trust.marks.iter().any(|mark| {
            mark.series == "latency" && mark.milli == percentile.milli && mark.is_at_least
        });
        if !is_marked && all.percentile(percentile.milli).is_some_and(|bound| bound.is_at_least) {
            list.push(json!({
                "series": "latency",
                "percentile": percentile.key,
                "reason": "requests timed out",
                "at_least": true,
            }));
        }
    }
    list
}

fn gate_json(gate: &Gate) -> Value {
    let figure = gate.figure.as_ref();
    json!({
        "expression": gate.text,
        "verdict": gate.outcome.name(),
        "value": figure.ok().map(|figure| figure.value),
        "at_least": figure.ok().map(|figure| figure.is_at_least),
        "reason": figure.err(),
    })
}

/// Completed per second that kept every goal; `None` without goals.
fn goodput(totals: &Totals, facts: &RunFacts) -> Option<f64> {
    (!facts.goodput.is_empty() && totals.duration_ns > 0)
        .then(|| totals.sums.counters.good as f64 * 1e9 / totals.duration_ns as f64)
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

fn failures_json(snapshot: &Snapshot, sums: &Sums) -> Map<String, Value> {
    let failures = sums.failures.iter();
    failures.map(|(kind, tally)| (kind.name().to_owned(), tally_json(snapshot, tally))).collect()
}

/// What `-d auto` was to reach, and what it has; null without it.
fn precision_json(snapshot: &Snapshot, facts: &RunFacts) -> Value {
    let (Some(precision), Some(phase)) = (facts.precision, snapshot.tracked().last()) else {
        return Value::Null;
    };
    let half_width = trust::half_width(&phase.batches, precision.milli_percent);
    let is_reached =
        phase.precise_after_ns.is_some() || half_width.is_some_and(|half| half <= precision.share);
    json!({
        "percentile": f64::from(precision.milli_percent) / 1000.0,
        "share": precision.share,
        "reached": is_reached,
        "reached_after_ns": phase.precise_after_ns,
        "half_width": half_width,
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

fn cores_json(snapshot: &Snapshot, facts: &RunFacts) -> Value {
    let timer = facts.open.as_ref().map(|open| &open.timer);
    json!({
        "shards": snapshot.cores,
        "reason": facts.cores_reason,
        "spin": facts.spin,
        "timer": timer.and_then(|timer| timer.core()),
    })
}

/// The shape of endpoints, then ours.
fn run_config(facts: &RunFacts) -> Value {
    let index_of = |kind| facts.phases.iter().position(|phase| phase.kind == kind);
    let warmup = index_of(PhaseKind::Warmup).map(|index| &facts.phases[index]);
    let tracked_index = index_of(PhaseKind::Performance);
    let tracked = tracked_index.map(|index| &facts.phases[index]);
    let open = facts.open.as_ref();
    json!({
        "load_pattern": {
            "type": facts.command.replace('-', "_"),
            "target_qps": tracked_index.and_then(|index| target_qps(facts, index)),
            "target_concurrency": tracked
                .filter(|_| open.is_none())
                .map(|phase| phase.in_flight),
        },
        "warmup": {
            "enabled": warmup.is_some(),
            "n_requests": warmup.and_then(|phase| phase.requests),
            "salt": false,
            "drain": warmup.is_some_and(|phase| phase.drain_timeout_ns > 0),
            "warmup_random_seed": facts.seed,
        },
        "scheduler_random_seed": facts.seed,
        "dataloader_random_seed": facts.order_seed,
        "endpoints": facts.urls.iter().map(|url| without_user_info(url)).collect::<Vec<_>>(),
        "is_embedded": facts.is_embedded,
        "connections": facts.connections,
        "max_connections": open.map(|open| open.max_connections),
        "overload": open.map(|open| overload_text(open.overload)),
        "timer": open.map(|open| open.timer.name()),
        "timer_reason": open.map(|open| &open.timer_reason),
        "goodput": (!facts.goodput.is_empty()).then(|| goals_text(&facts.goodput)),
        "order": (!facts.order.is_empty()).then_some(&facts.order),
        "requests": tracked.and_then(|phase| phase.requests),
        "duration_ns": tracked.and_then(|phase| phase.duration_ns),
        "drain_timeout_ns": tracked.map(|phase| phase.drain_timeout_ns),
        "inference": facts.inference.as_ref().map(inference_json),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_keys_are_those_of_the_distributions() {
        for percentile in PERCENTILES {
            assert_eq!(percentile_key(percentile.milli), percentile.key);
        }
        assert_eq!(percentile_key(99_999), "99.999");
    }
}
