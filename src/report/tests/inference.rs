//! A hand-made inference run, and what its result files say.

use loadgen_shards::answer::{AnswerFacts, FinishReason, Usage};
use loadgen_shards::recorder::{AnswerTimes, Goals, Recording, Stamps};

use super::*;
use crate::snapshot::{Host, InferenceFacts, final_snapshot};

const MS: u64 = 1_000_000;
/// Prompt, output, chunks of each answer.
pub const PROMPT: u32 = 100;
pub const TOKENS: u64 = 11;
pub const CHUNKS: u32 = 6;

/// The TPOT of answer `i`: 4 ms and `i` µs.
pub fn tpot_ns(i: u64) -> u64 {
    4 * MS + 1000 * i
}

/// The recording of 5 s in closed loop: streams of 6 chunks with 11 tokens, the first one 200 ms
/// and `i` x 10 µs after the send. `is_counted`: the endpoint tells usage.
pub fn recorded_answers(count: u64, is_counted: bool) -> Recording {
    let mut recording = recorded(0, 0);
    recording.counters.issued = count;
    let goals = Goals { ttft_ns: 210 * MS, tpot_ns: 5 * MS, ..Goals::NONE };
    for i in 0..count {
        let first_token_ns = 2_000 * MS + 200 * MS + 10_000 * i;
        let length_ns = (TOKENS - 1) * tpot_ns(i);
        let gap_ns = length_ns / u64::from(CHUNKS - 1);
        let last_token_ns = first_token_ns + length_ns;
        let usage = Usage {
            prompt: Some(PROMPT),
            completion: Some(TOKENS as u32),
            cached: Some(u32::from(i % 2 == 0)),
            reasoning: None,
        };
        let facts = AnswerFacts {
            is_stream: true,
            ack_ns: 2_100 * MS,
            first_token_ns,
            first_visible_ns: first_token_ns,
            last_token_ns,
            done_ns: last_token_ns + MS,
            chunks: CHUNKS,
            instants: CHUNKS,
            usage: if is_counted { usage } else { Usage::default() },
            finish: if i % 100 == 0 { FinishReason::Length } else { FinishReason::Stop },
            ..AnswerFacts::default()
        };
        let stamps = Stamps {
            scheduled_ns: 0,
            dispatched_ns: 2_000 * MS,
            ready_ns: 0,
            sent_ns: 2_000 * MS,
            first_byte_ns: 2_100 * MS,
            complete_ns: facts.done_ns,
        };
        let times = AnswerTimes::of(&facts, facts.done_ns);
        recording.success(&stamps, Some(&times), Some(&goals));
        recording.answer(&facts, &[gap_ns; CHUNKS as usize - 1], &stamps, PROMPT, true);
        recording.statuses.count(200);
    }
    recording.last_complete_ns = 6_000 * MS;
    recording
}

/// A finished run with it.
pub fn run_of_answers(recording: &Recording) -> Snapshot {
    run_of(recording)
}

/// What the front would tell of it.
pub fn inference() -> InferenceFacts {
    InferenceFacts {
        api: "openai".to_owned(),
        model: "tiny".to_owned(),
        is_streamed: true,
        includes_usage: true,
        tokenizer: "o200k".to_owned(),
        dataset: "100 tokens in, 11 out".to_owned(),
        prompts: 1_500,
        is_synthetic: true,
        prompt_seed: Some(7),
        defaults: vec!["api", "is_streamed"],
        ..InferenceFacts::default()
    }
}

/// The facts of that run, with goals.
pub fn facts_of_answers() -> RunFacts {
    RunFacts {
        command: "concurrency".to_owned(),
        goodput: RequestGoal::parse_list("ttft:210ms tpot:5ms").expect("valid"),
        inference: Some(inference()),
        ..facts()
    }
}

/// Percentile `milli` of `values`, by sorting; within the 0.1 % of a bucket.
fn is_percentile(told: &Value, mut values: Vec<f64>, share: f64) -> bool {
    values.sort_unstable_by(f64::total_cmp);
    let exact = values[(share * values.len() as f64).ceil() as usize - 1];
    told.as_f64().is_some_and(|told| (exact..=exact * 1.001).contains(&told))
}

#[test]
fn the_figures_of_tokens_are_those_of_the_answers() {
    let run = run_of_answers(&recorded_answers(2_000, true));
    let summary = told(&run, &facts_of_answers(), Vec::new());
    let all = |of: fn(u64) -> f64| (0..2_000).map(of).collect::<Vec<f64>>();
    let ttft = |i: u64| 2e8 + 1e4 * i as f64;
    for (key, of) in [
        ("ttft", ttft as fn(u64) -> f64),
        ("service_ttft", ttft),
        ("first_visible", ttft),
        ("tpot", |i| tpot_ns(i) as f64),
        ("chunk_delta", |i| 2.0 * tpot_ns(i) as f64), // 10 x TPOT in 5 gaps
    ] {
        let distribution = &summary[key];
        assert!(is_percentile(&distribution["percentiles"]["50.0"], all(of), 0.5), "{key}");
        assert!(is_percentile(&distribution["percentiles"]["99.0"], all(of), 0.99), "{key}");
        let mean = all(of).iter().sum::<f64>() / 2_000.0;
        assert!((distribution["avg"].as_f64().expect(key) - mean).abs() < 1e-6 * mean, "{key}");
    }
    assert_eq!(summary["stream_close"]["max"], MS);
    assert_eq!(summary["output_sequence_lengths"]["total"], 22_000);
    assert_eq!(summary["input_sequence_lengths"]["min"], 100);
    assert_eq!(summary["chunks"]["max"], 6);
    assert_eq!(summary["tokens_per_chunk"]["max"], 1.833);
    assert_eq!(summary["tps"], 4_400.0);
    let expected = json!({
        "counted_by": "the server", "n_answers": 2_000, "n_counted_by_endpoint": 2_000,
        "n_counted_after": 0, "n_unknown": 0, "is_at_least": false,
        "output": 22_000, "reasoning": 0, "input": 200_000, "input_by_endpoint": 200_000,
        "cached": 1_000, "cached_share": 0.005, "input_tps": 40_000.0, "total_tps": 44_400.0,
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&summary["tokens"][key], value, "{key}");
    }
    let sent = json!({ "prompts": 1_500, "min": 1, "mean": 2_000.0 / 1_500.0, "max": 2 });
    assert_eq!(summary["tokens"]["prompts_sent"], sent);
    let per_user = &summary["tokens"]["tps_per_user"];
    let rate = |key: &str| per_user[key].as_f64().expect("a rate");
    // 1 / 4.999 ms and 1 / 5.799 ms.
    assert!((199.8..=200.05).contains(&rate("median")), "{per_user}");
    assert!((172.2..=172.45).contains(&rate("slowest_tenth")), "{per_user}");
    // TTFT within 210 ms up to i = 1 000, TPOT within 5 ms too: 1 001 in 5 s.
    assert_eq!((&summary["goodput"], &summary["n_goodput_unknown"]), (&json!(200.2), &json!(0)));
    let reasons = json!({
        "stop": 1_980, "length": 20, "tool_calls": 0, "content_filter": 0, "function_call": 0,
        "other": 0,
    });
    assert_eq!(summary["finish_reason_counts"], reasons);
    assert_eq!(summary["run_config"]["inference"]["model"], "tiny");
    assert!(summary["definitions"]["tpot"]["ours"].is_string());
}

#[test]
fn loadgens_estimates_are_told_of_ttft_and_tpot_as_in_endpoints() {
    let summary =
        told(&run_of_answers(&recorded_answers(2_000, true)), &facts_of_answers(), Vec::new());
    for key in ["ttft", "tpot", "latency"] {
        let estimates = &summary[key]["early_stopping_percentiles"];
        let p99 = &summary[key]["percentiles"]["99.0"];
        assert!(estimates["99.0"].as_f64() >= p99.as_f64(), "{key}: {estimates}");
        assert_eq!(estimates["99.9"], Value::Null, "{key}");
    }
    assert_eq!(summary["chunk_delta"]["early_stopping_percentiles"], json!({}));
}

#[test]
fn tokens_that_nobody_counted_are_null_and_never_zero() {
    let run = run_of_answers(&recorded_answers(2_000, false));
    let summary = told(&run, &facts_of_answers(), Vec::new());
    assert_eq!(summary["tps"], Value::Null);
    assert_eq!((&summary["tpot"], &summary["tokens_per_chunk"]), (&json!({}), &json!({})));
    assert_eq!(summary["output_sequence_lengths"], json!({}));
    assert_eq!(summary["input_sequence_lengths"]["max"], 100, "we counted the prompts");
    assert!(summary["ttft"]["median"].is_number(), "it needs no tokens");
    let tokens = &summary["tokens"];
    for key in ["counted_by", "output", "reasoning", "cached", "cached_share", "total_tps"] {
        assert_eq!(tokens[key], Value::Null, "{key}");
    }
    assert_eq!((&tokens["n_unknown"], &tokens["is_at_least"]), (&json!(2_000), &json!(false)));
    assert_eq!(summary["n_goodput_unknown"], 1_001, "those that keep the TTFT");
    assert_eq!(summary["goodput"], 0.0);
}

#[test]
fn plain_http_has_nothing_of_tokens() {
    let summary = parsed(&finished(20_000, 3));
    for key in ["ttft", "tpot", "service_ttft", "chunk_delta", "chunks", "tls"] {
        assert_eq!(summary[key], json!({}), "{key}");
    }
    assert_eq!((&summary["tokens"], &summary["tps"]), (&Value::Null, &Value::Null));
    assert_eq!(summary["run_config"]["inference"], Value::Null);
    assert_eq!(summary["definitions"].get("tpot"), None);
    let counters = keys(&summary["counters"]).join(" ");
    for name in ["answers", "chunks", "tokens", "tls", "good"] {
        assert!(!counters.contains(name), "{name} in {counters}");
    }
}

#[test]
fn the_snapshot_has_the_series_and_counters_of_answers_in_the_order_of_endpoints() {
    let mut recording = recorded_answers(2_000, true);
    recording.counters.tls_handshakes = 2;
    (1..=2).for_each(|i| recording.tls.record(i * MS));
    let text = final_snapshot(&run_of_answers(&recording), &Host::default());
    let document: Value = serde_json::from_str(&text).expect("valid JSON");
    let metrics = document["metrics"].as_array().expect("a list");
    let series: Vec<&str> = metrics
        .iter()
        .filter(|metric| metric["type"] == "series")
        .filter_map(|metric| metric["name"].as_str())
        .collect();
    let first = "sample_latency_ns isl osl ttft_ns chunk_delta_ns tpot_ns service_ttft_ns \
                 first_visible_ns stream_close_ns chunks tokens_per_chunk service_latency_ns";
    assert_eq!(series[..12].join(" "), first);
    assert_eq!(series.last(), Some(&"tls_ns"));
    let metric = |name: &str| metrics.iter().find(|metric| metric["name"] == name).expect(name);
    assert_eq!(metric("tracked_finish_reason_stop")["value"], 1_980);
    assert_eq!(metric("tracked_finish_reason_length")["value"], 20);
    assert_eq!(metric("completion_tokens")["value"], 22_000);
    assert_eq!(metric("tls_handshakes")["value"], 2);
    assert_eq!(metric("tls_ns")["total"], 3 * MS);
    let per_chunk = metric("tokens_per_chunk");
    assert_eq!((&per_chunk["min"], &per_chunk["total"]), (&json!(1.833), &json!(3_666.0)));
}

#[test]
fn conditions_on_tokens_are_judged_by_the_figures() {
    let parse = |text: &&str| Expression::parse(text).expect("valid");
    let judged = |recording: &Recording, texts: &[&str]| -> Vec<(GateOutcome, String)> {
        let facts = RunFacts { slo: texts.iter().map(parse).collect(), ..facts_of_answers() };
        let run = run_of_answers(recording);
        let results = Results::with_trust(&run, &facts, Vec::new());
        results.slo.iter().map(|gate| (gate.outcome, gate.in_words())).collect()
    };
    let counted = recorded_answers(2_000, true);
    let cases = [
        ("ttft.p99:220ms", true),
        ("ttft.p99:219ms", false),
        ("service_ttft.max<220ms", true),
        ("tpot.p50:5.01ms", true),
        ("tpot.p99:5ms", false),
        ("chunk_delta.max:12ms", true),
        ("tps:4400", true),
        ("tps>4400", false),
        ("total_tps:44k", true),
        ("osl.mean>=11", true),
        ("isl.max:99", false),
        ("cached<1%", true),
        ("goodput>51%", false),
    ];
    for ((text, is_held), (outcome, words)) in
        cases.iter().zip(judged(&counted, &cases.map(|(text, _)| text)))
    {
        assert_eq!(outcome == GateOutcome::Held, *is_held, "{text}: {words}");
    }
    let uncounted = recorded_answers(2_000, false);
    let words = |text| judged(&uncounted, &[text]).remove(0).1;
    assert_eq!(words("tpot.p99:5s"), "it needs 1000 values, has 0");
    assert_eq!(words("tps>1"), "nothing defines it in this run");
    assert_eq!(words("goodput<1%"), "it is at least 0.00 %", "half of them may be good");
    let plain = judged(&recorded(2_000, 0), &["ttft.p99:5s"]).remove(0);
    assert_eq!(plain.1, "no answer of an inference endpoint was read");
    assert_eq!(plain.0, GateOutcome::Missed);
}
