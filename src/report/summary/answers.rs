//! What `result_summary.json` has of the answers of an inference endpoint.

use serde_json::{Value, json};

use super::{RunFacts, counted_by, distribution_json, estimates_json, scaled_json};
use crate::snapshot::{Answers, Distribution, InferenceFacts, Totals};

/// Percentiles of TPOT whose inverse is told as a rate per user: 1/1000 %.
const P50: u32 = 50_000;
const P90: u32 = 90_000;

/// The sections, `{}` or null where nothing defines them.
pub(super) struct OfAnswers {
    pub(super) ttft: Value,
    pub(super) tpot: Value,
    pub(super) osl: Value,
    pub(super) isl: Value,
    pub(super) finish_counts: Value,
    pub(super) service_ttft: Value,
    pub(super) first_visible: Value,
    pub(super) chunk_delta: Value,
    pub(super) stream_close: Value,
    pub(super) chunks: Value,
    pub(super) tokens_per_chunk: Value,
    pub(super) tokens: Value,
}

impl OfAnswers {
    /// `is_complete`: the estimates of LoadGen may be made.
    pub(super) fn of(totals: &Totals, facts: &RunFacts, is_complete: bool) -> OfAnswers {
        let none = Answers::default();
        let answers = totals.sums.answers.as_deref();
        let counts = answers.unwrap_or(&none).finish_counts();
        let series = |of: fn(&Answers) -> &Distribution| {
            answers.map_or_else(|| json!({}), |answers| distribution_json(of(answers)))
        };
        let estimated = |distribution: Option<&Distribution>| match distribution {
            Some(distribution) => with_estimates(distribution, is_complete),
            None => json!({}),
        };
        let per_chunk = answers.map(|answers| scaled_json(&answers.tokens_per_chunk, 1000));
        OfAnswers {
            ttft: estimated(totals.sums.ttft()),
            tpot: estimated(answers.map(|answers| &answers.tpot)),
            osl: series(|answers| &answers.osl),
            isl: series(|answers| &answers.isl),
            finish_counts: counts
                .into_iter()
                .map(|(reason, count)| (reason.to_owned(), Value::from(count)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            service_ttft: series(|answers| &answers.service_ttft),
            first_visible: series(|answers| &answers.first_visible),
            chunk_delta: series(|answers| &answers.chunk_delta),
            stream_close: series(|answers| &answers.stream_close),
            chunks: series(|answers| &answers.chunks),
            tokens_per_chunk: per_chunk.unwrap_or_else(|| json!({})),
            tokens: answers.map_or(Value::Null, |answers| tokens(totals, answers, facts)),
        }
    }
}

fn with_estimates(distribution: &Distribution, is_complete: bool) -> Value {
    let mut value = distribution_json(distribution);
    if is_complete && !distribution.is_empty() {
        let at_rank = |rank| distribution.at_rank(rank).map(|value| value as f64);
        value["early_stopping_percentiles"] = estimates_json(distribution.count(), at_rank).into();
    }
    value
}

/// Sums and rates of tokens, and who counted them.
fn tokens(totals: &Totals, answers: &Answers, facts: &RunFacts) -> Value {
    let (sums, counters) = (&totals.sums, &totals.sums.counters);
    let total = |lengths: &Distribution| {
        (!lengths.is_empty()).then(|| u64::try_from(lengths.total).unwrap_or(u64::MAX))
    };
    // Its inverse falls as TPOT rises: the slowest tenth of the rates is the highest of the times.
    let per_user = |milli| {
        let tpot_ns = answers.tpot.percentile(milli).filter(|ns| *ns > 0);
        let is_told = answers.tpot.count() >= crate::snapshot::count_needed(milli);
        tpot_ns.filter(|_| is_told).map(|ns| 1e9 / ns as f64)
    };
    let by_endpoint = |count: u64| (counters.answers_counted > 0).then_some(count);
    json!({
        "counted_by": counted_by(sums, facts.inference.as_ref()),
        "n_answers": counters.answers,
        "n_counted_by_endpoint": counters.answers_counted,
        "n_counted_after": sums.outputs_counted_after(),
        "n_unknown": sums.outputs_unknown(),
        "is_at_least": sums.outputs_unknown() > 0 && !answers.osl.is_empty(),
        "output": total(&answers.osl),
        "reasoning": by_endpoint(counters.reasoning_tokens),
        "input": total(&answers.isl),
        "input_by_endpoint":
            (counters.answers_prompt_counted > 0).then_some(counters.prompt_tokens),
        "cached": (counters.answers_cached_told > 0).then_some(counters.cached_tokens),
        "cached_share": sums.cached_share(),
        "input_tps": totals.input_tps(),
        "total_tps": totals.total_tps(),
        "tps_per_user": { "median": per_user(P50), "slowest_tenth": per_user(P90) },
        "prompts_sent": facts.inference.as_ref().and_then(|f| sent(f, counters.issued)),
    })
}

fn sent(facts: &InferenceFacts, issued: u64) -> Option<Value> {
    let sent = facts.sent(issued)?;
    Some(json!({
        "prompts": facts.prompts,
        "min": sent.bounds.map(|(min, _)| min),
        "mean": sent.mean,
        "max": sent.bounds.map(|(_, max)| max),
    }))
}

/// What was asked for, in `run_config`.
pub(super) fn inference_json(facts: &InferenceFacts) -> Value {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "api": known(&facts.api),
        "model": known(&facts.model),
        "streaming": facts.is_streamed,
        "include_usage": facts.includes_usage,
        "tokenizer": known(&facts.tokenizer),
        "dataset": known(&facts.dataset),
        "prompts": (facts.prompts > 0).then_some(facts.prompts),
        "synthetic": facts.is_synthetic,
        "prompt_seed": facts.prompt_seed,
        "defaults": facts.defaults,
    })
}
