//! What a report says of tokens: the answer of an inference run, and the lines that count.

use std::fmt::Write;

use super::{WRITES, counted};
use crate::number::{grouped, rate, time};
use crate::report::{Results, counted_by};
use crate::snapshot::{Distribution, InferenceFacts, count_needed};
use crate::trust::Trust;

const P99: u32 = 99_000;
const P50: u32 = 50_000;
const P90: u32 = 90_000;

/// `TTFT p99 471 ms, TPOT p99 31.0 ms, 5 210 output tokens/s, 97.2 % within the goals; tokens
/// counted by the server`, as far as there is one.
pub(super) fn tail(results: &Results) -> String {
    let (totals, sums) = (&results.tracked, &results.tracked.sums);
    let Some(answers) = sums.answers.as_deref() else { return String::new() };
    let trust = &results.trust;
    let ttft = sums.ttft().and_then(|ttft| figure("TTFT", "ttft", ttft, trust));
    let mut parts: Vec<String> = match ttft {
        Some(ttft) => vec![ttft],
        // Nothing was streamed.
        None => figure("latency", "latency", sums.headline(), trust).into_iter().collect(),
    };
    parts.extend(figure("TPOT", "tpot", &answers.tpot, trust));
    if let Some(tps) = totals.tps() {
        parts.push(format!("{}{} output tokens/s", at_least(sums.outputs_unknown()), rate(tps)));
    }
    let generates = !is_embeddings(results);
    if let (false, Some(tps)) = (generates, totals.input_tps()) {
        parts.push(format!("{} prompt tokens/s", rate(tps)));
    }
    let counters = &sums.counters;
    let ended = counters.completed + counters.failed;
    if !results.facts.goodput.is_empty() && ended > 0 {
        let share = 100.0 * counters.good as f64 / ended as f64;
        parts.push(format!("{}{share:.1} % within the goals", at_least(counters.good_unknown)));
    }
    let counted = match counted_by(sums, results.facts.inference.as_ref()) {
        Some(who) => format!("tokens counted by {who}"),
        None if !generates && counters.answers_prompt_counted > 0 => {
            "tokens counted by the server".to_owned()
        }
        None => "nobody counted the tokens".to_owned(),
    };
    format!("{}; {counted}", parts.join(", "))
}

/// Embeddings generate nothing.
fn is_embeddings(results: &Results) -> bool {
    results.facts.inference.as_ref().is_some_and(|facts| facts.api.contains("embeddings"))
}

fn at_least(unknown: u64) -> &'static str {
    if unknown > 0 { ">= " } else { "" }
}

/// `TTFT p99 471 ms`; the median where there are too few for a p99; `None` without a value. A star
/// where the trust block marks it.
fn figure(name: &str, series: &str, values: &Distribution, trust: &Trust) -> Option<String> {
    let is_told = values.count() >= count_needed(P99);
    let (word, milli) = if is_told { ("p99", P99) } else { ("p50", P50) };
    let value = time(values.percentile(milli)?);
    let is_marked = trust.marks.iter().any(|mark| mark.series == series && mark.milli == milli);
    let star = if is_marked { "*" } else { "" };
    let needs = match is_told {
        true => String::new(),
        false => format!(" (p99 needs {} answers)", grouped(count_needed(P99))),
    };
    Some(format!("{name} {word} {value}{star}{needs}"))
}

/// The lines below the requests: rates, what prompts were sent, how answers ended. None of plain
/// HTTP.
pub(super) fn lines(results: &Results) -> Vec<String> {
    let (totals, sums) = (&results.tracked, &results.tracked.sums);
    let Some(answers) = sums.answers.as_deref() else { return Vec::new() };
    let mut lines = Vec::new();
    let mut rates: Vec<String> = Vec::new();
    if let Some(tps) = totals.tps() {
        rates.push(format!("{}{}/s out", at_least(sums.outputs_unknown()), rate(tps)));
    }
    rates.extend(totals.input_tps().map(|tps| format!("{}/s in", rate(tps))));
    if answers.tpot.count() >= count_needed(P90) {
        let per_user = |milli| answers.tpot.percentile(milli).filter(|ns| *ns > 0);
        if let (Some(median_ns), Some(slow_ns)) = (per_user(P50), per_user(P90)) {
            let (median, slow) = (rate(1e9 / median_ns as f64), rate(1e9 / slow_ns as f64));
            rates.push(format!("{median}/s a user (slowest tenth {slow}/s)"));
        }
    }
    if sums.counters.reasoning_tokens > 0 {
        rates.push(format!("{} of them reasoning", grouped(sums.counters.reasoning_tokens)));
    }
    if !rates.is_empty() {
        lines.push(format!("  tokens     {}", rates.join("   ")));
    }
    lines.extend(unknown(results));
    lines.extend(results.facts.inference.as_ref().map(|facts| prompts(results, facts)));
    let ends: Vec<String> = answers
        .finish_counts()
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{} {reason}", grouped(*count)))
        .collect();
    if !ends.is_empty() {
        lines.push(format!("  finished   {}", ends.join("   ")));
    }
    lines.extend(oddities(results));
    lines
}

/// What nobody counted, and what to do about it.
fn unknown(results: &Results) -> Option<String> {
    let count = results.tracked.sums.outputs_unknown();
    let facts = results.facts.inference.as_ref();
    if count == 0 || is_embeddings(results) {
        return None;
    }
    let advice = match facts {
        Some(facts) if !facts.includes_usage => "leave out --no-include-usage",
        _ => "give a --tokenizer, as the endpoint told no usage",
    };
    Some(format!("             {} whose tokens nobody counted: {advice}", counted(count, "answer")))
}

/// How often each prompt was sent, and what of them was cached.
fn prompts(results: &Results, facts: &InferenceFacts) -> String {
    let sums = &results.tracked.sums;
    let kind = if facts.is_synthetic { "synthetic" } else { "of the dataset" };
    let mut line = "  prompts   ".to_owned();
    if let Some(sent) = facts.sent(sums.counters.issued) {
        write!(line, " {} {kind}, each sent ", grouped(facts.prompts)).expect(WRITES);
        match sent.bounds {
            Some((1, 1)) => write!(line, "once"),
            Some((0, 1)) => write!(line, "at most once"),
            Some((min, max)) if min == max => write!(line, "{} times", grouped(max)),
            Some((min, max)) => {
                write!(line, "{} to {} times", grouped(min), grouped(max))
            }
            None => write!(line, "{:.1} times on average", sent.mean),
        }
        .expect(WRITES);
    } else {
        write!(line, " {kind}").expect(WRITES);
    }
    match sums.cached_share() {
        Some(share) => write!(line, "   {:.1} % of their tokens cached", 100.0 * share),
        None => write!(line, "   the endpoint does not tell what was cached"),
    }
    .expect(WRITES);
    line
}

/// What was not as asked for.
fn oddities(results: &Results) -> Vec<String> {
    let counters = &results.tracked.sums.counters;
    let is_ours = results.facts.inference.as_ref().is_none_or(has_made_bodies);
    [
        (
            if is_ours { counters.answers_not_streamed } else { 0 },
            "answer",
            "came whole, though a stream was asked for",
        ),
        (counters.answers_cumulative, "answer", "repeated the text so far in each chunk"),
        (counters.chunks_malformed, "chunk", "skipped, as it was not JSON (--lenient)"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, noun, what)| format!("             {} {what}", counted(count, noun)))
    .collect()
}

/// Whether the bodies are made here, so that it is known what they ask for.
fn has_made_bodies(facts: &InferenceFacts) -> bool {
    !["raw", "template"].contains(&facts.api.as_str())
}

/// What is asked for, in the header. What nobody asked for is marked.
pub(super) fn header(facts: &InferenceFacts) -> String {
    let marked = |text: String, field: &str| match facts.defaults.contains(&field) {
        true => format!("{text} (default)"),
        false => text,
    };
    let mut parts = vec![marked(facts.api.clone(), "api")];
    if !facts.model.is_empty() {
        parts.push(marked(format!("model {}", facts.model), "model"));
    }
    let streamed = if facts.is_streamed { "streamed" } else { "not streamed" };
    if has_made_bodies(facts) {
        parts.push(marked(streamed.to_owned(), "is_streamed"));
    }
    let prompts = match (facts.is_synthetic, facts.prompts) {
        (true, 0) => "synthetic prompts".to_owned(),
        (true, count) => format!("{} synthetic prompts", grouped(count)),
        (false, count) => counted(count, "prompt"),
    };
    let of = if facts.dataset.is_empty() { String::new() } else { format!(": {}", facts.dataset) };
    let seed = facts.prompt_seed.map_or_else(String::new, |seed| format!(", prompt seed {seed}"));
    parts.push(marked(format!("{prompts}{of}{seed}"), "dataset"));
    let tokenizer = match facts.tokenizer.as_str() {
        "" => "no tokenizer".to_owned(),
        name => format!("tokenizer {name}"),
    };
    parts.push(marked(tokenizer, "tokenizer"));
    parts.join(" · ")
}
