//! How each figure of the summary is defined, in short, beside the figures; in full in
//! `docs/METRICS.md`.

use serde_json::{Value, json};

/// `ours`, and `endpoints` where its rule for the same key differs. `is_open`: there is a schedule;
/// `has_answers`: answers of an inference endpoint were read.
pub fn definitions(is_open: bool, has_answers: bool) -> Value {
    let mut list = always();
    let loops = if is_open { of_open_loop() } else { of_closed_loop() };
    let answers = if has_answers { of_answers(is_open) } else { Value::Null };
    for more in [loops, answers] {
        if let (Some(list), Value::Object(more)) = (list.as_object_mut(), more) {
            list.extend(more);
        }
    }
    list
}

fn of_answers(is_open: bool) -> Value {
    let origin = if is_open { "scheduled instant" } else { "send (closed loop)" };
    json!({
        "ttft": {
            "ours": format!(
                "first chunk with anything generated, in any channel - {origin}, of completed \
                 streams"
            ),
            "endpoints": "first chunk with text - issue; failed requests included",
        },
        "service_ttft": { "ours": "the same - send, always" },
        "first_visible": { "ours": "first chunk with content that a reader sees - send" },
        "tpot": {
            "ours": "(last token - first token) / (output tokens - 1) of each stream; none below 2 \
                     tokens or 2 instants",
            "endpoints": "(complete - first chunk) / tokens after the first chunk, counted by its \
                          tokenizer",
        },
        "chunk_delta": {
            "ours": "gaps between chunks of a stream, of all streams together: of chunks, not of \
                     tokens",
        },
        "stream_close": { "ours": "[DONE] - last token" },
        "output_sequence_lengths": {
            "ours": "usage.completion_tokens, else counted by our tokenizer after the run; \
                     reasoning included",
            "endpoints": "counted by its tokenizer",
        },
        "input_sequence_lengths": {
            "ours": "usage.prompt_tokens, else as counted before the run",
            "endpoints": "counted by its tokenizer",
        },
        "tokens_per_chunk": { "ours": "output tokens / chunks of each stream" },
        "tps": {
            "ours": "output tokens of completed requests / tracked duration; a lower bound where \
                     tokens.n_unknown is not 0",
        },
        "tps_per_user": { "ours": "1 / p50 and 1 / p90 of tpot" },
        "cached_share": { "ours": "cached_tokens / prompt_tokens, both as the endpoint told them" },
    })
}

fn always() -> Value {
    json!({
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
            "ours": "smallest value with p % at or below it; buckets of 0.1 %; those of latency \
                     with requests that timed out, each as what it had taken by then",
            "endpoints": "element floor(p (n - 1)) of the sorted values",
        },
        "early_stopping_percentiles": {
            "ours": "LoadGen's estimate, at or above the percentile with 99 % confidence if \
                     requests were independent; null below its count, and where it is a time-out",
        },
        "intervals": {
            "ours": "95 % interval of a percentile of latency, from how its share varies between \
                     slices of the run; n_eff: independent requests that are worth as much; \
                     independent: the interval if all were",
        },
        "complete": { "ours": "state complete and no tracked request in flight at the end" },
        "client_utilisation": { "ours": "time that the shards were at work / time that they ran" },
        "trust": {
            "ours": "whether to believe the figures; the worst check of the instrument, and \
                     warnings about the samples",
        },
        "untrusted_percentiles": {
            "ours": "not to be taken at their face; at_least: a lower bound, as requests timed out",
        },
        "slo": {
            "ours": "held, missed, or untrusted where the trust verdict is fail; what is not \
                     defined is missed",
        },
        "fail_if": { "ours": "missed if true; what is not defined is not true" },
    })
}

fn of_closed_loop() -> Value {
    json!({
        "latency": {
            "ours": "last byte - send, of successful requests (closed loop)",
            "endpoints": "final message deserialised - issue; failed requests included",
        },
        "wire_tx": { "ours": "kernel's stamp of the last byte sent - send, of sampled requests" },
        "wire_rx": {
            "ours": "last byte - kernel's stamp of the last byte received, of sampled requests",
        },
        "little_ratio": { "ours": "mean latency x qps / requests in flight" },
    })
}

fn of_open_loop() -> Value {
    json!({
        "latency": {
            "ours": "last byte - scheduled instant, of successful requests (open loop)",
            "endpoints": "final message deserialised - issue; failed requests included",
        },
        "lateness": {
            "ours": "taken from the schedule - scheduled instant, of every request taken",
        },
        "pool_wait": {
            "ours": "a connection can carry it - taken from the schedule, of issued requests",
        },
        "scheduled_qps": { "ours": "requests that fell due / time until the issuing ended" },
        "offered_qps": {
            "ours": "requests taken from the schedule, issued or dropped / time until the issuing \
                     ended",
        },
        "goodput": { "ours": "completed that kept every --goodput limit / tracked duration" },
        "breakdown": {
            "ours": "mean parts of latency, of all completed requests and of those from p99 up: \
                     lateness + pool_wait + prepare + service",
        },
        "schedule_hash": { "ours": "of the scheduled instants, whatever the number of shards" },
    })
}
