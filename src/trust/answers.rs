//! D16 and D20: whether the figures of tokens are those of generating them. Of answers of an
//! inference endpoint only.

use super::facts::{Facts, mark, percent, told};
use super::{Check, Class, Level, Line, Mark};
use crate::number::{counted, grouped, time};
use crate::snapshot::{Answers, Distribution, InferenceFacts, PERCENTILES};

/// Share of the chunks that came together with the one before: beyond it gaps are not believed.
const BUNCHED_WARN: f64 = 0.05;
/// Gaps that are needed to judge them.
const GAPS_MIN: u64 = 100;
/// The first token of a stream that came after so much of the whole time came with all others.
const HELD_BACK: f64 = 0.9;
/// Chunks of a stream at the median from which on that is odd.
const CHUNKS_MANY: u64 = 8;
/// Shards at work for so much of their time read several chunks at once.
const SATURATED: f64 = 0.9;
/// A shard that is blind for so much of a gap between chunks cannot tell two of them apart.
const BLIND: f64 = 0.5;
/// Tokens a chunk, in thousandths, between which a gap of chunks is one of tokens.
const ONE_TOKEN_MILLI: std::ops::RangeInclusive<f64> = 900.0..=1100.0;
/// Share of the prompt tokens from a cache that synthetic prompts should not reach.
const CACHED_WARN: f64 = 0.01;

const STREAM: Line =
    Line { id: "D16", name: "stream resolution", class: Class::Sampling, unit: "%" };
const CACHE: Line = Line { id: "D20", name: "prompt cache", class: Class::Sampling, unit: "%" };

/// D16: whether chunks came one by one. `None` where nothing was streamed.
pub(super) fn stream(facts: &Facts, marks: &mut Vec<Mark>) -> Option<Check> {
    let answers = facts.sums.answers.as_deref()?;
    let counters = &facts.counters;
    let streams = answers.chunks.count();
    let gaps = counters.chunks.saturating_sub(streams);
    if streams == 0 {
        return None;
    }
    if gaps < GAPS_MIN {
        let reason = format!("not judged: {} between chunks", counted(gaps, "gap"));
        return Some(STREAM.says(Level::Ok, None, reason));
    }
    let share = |count: u64| count as f64 / gaps as f64;
    let (coalesced, short) = (share(counters.chunks_coalesced), share(counters.chunk_gaps_short));
    let bunched = coalesced.max(short).min(1.0);
    let value = Some(100.0 * bunched);
    let figures = format!(
        "{} of {} between chunks lie within one receive, {} are below 50 µs; {}",
        percent(coalesced),
        counted(gaps, "gap"),
        percent(short),
        per_chunk(answers)
    );
    if bunched <= BUNCHED_WARN {
        return Some(STREAM.says(Level::Ok, value, figures));
    }
    let reason = "chunks came together, so gaps are not those between tokens";
    let mut series = vec!["chunk_delta"];
    let brief = if is_held_back(facts, answers) {
        series.extend(["ttft", "service_ttft", "tpot"]);
        format!(
            "the first token came after {} of the whole time: something holds streams back until \
             they end, so TTFT, TPOT and gaps are its own; a proxy or gateway that buffers (nginx: \
             proxy_buffering off), or an endpoint that does not stream",
            percent(held_back(facts, answers).unwrap_or(1.0))
        )
    } else {
        format!(
            "{} of the chunks came together with the one before, so gaps cannot be believed to be \
             those between tokens; TTFT and TPOT stand: {}",
            percent(bunched),
            who_bunched(facts, answers)
        )
    };
    for series in series {
        let all = PERCENTILES.iter();
        marks.extend(all.map(|percentile| Mark { series, ..mark(percentile.milli, reason) }));
    }
    Some(STREAM.finds(Level::Warn, value, Some(brief), &figures))
}

/// `1.00 tokens a chunk`, and what follows where that is not one.
fn per_chunk(answers: &Answers) -> String {
    let Some(milli) = answers.tokens_per_chunk.mean() else {
        return "tokens a chunk not known, as nobody counted them".to_owned();
    };
    let more = match ONE_TOKEN_MILLI.contains(&milli) {
        true => "",
        false => ", so a gap between chunks is not one between tokens",
    };
    format!("{:.2} tokens a chunk{more}", milli / 1000.0)
}

/// Our shards, if they could not have told them apart; else the endpoint or what is before it.
fn who_bunched(facts: &Facts, answers: &Answers) -> String {
    let median = |series: &Distribution| series.percentile(50_000).unwrap_or(0) as f64;
    // Gaps of 0 are what is to be explained.
    let mean_gap_ns = answers.chunk_delta.mean().unwrap_or(0.0);
    let blind_ns = median(&facts.sums.loop_gap).max(median(&facts.sums.wakeup));
    if let Some(busy) = facts.utilisation().filter(|busy| *busy >= SATURATED) {
        let busy = percent(busy);
        return format!("our shards were at work {busy} of the time: more --cores");
    }
    if mean_gap_ns > 0.0 && blind_ns >= BLIND * mean_gap_ns {
        let (blind, gap) = (time(blind_ns as u64), time(mean_gap_ns as u64));
        return format!("our shards look every {blind} and a chunk comes every {gap}: --spin");
    }
    "the endpoint sends several at once, or a proxy before it bunches them (nginx: proxy_buffering \
     off; the stream interval of the endpoint)"
        .to_owned()
}

/// The median time to the first token over the median time of an answer, from the send.
fn held_back(facts: &Facts, answers: &Answers) -> Option<f64> {
    let first_ns = told(&answers.service_ttft, 50_000)?;
    let whole_ns = told(&facts.sums.service, 50_000).filter(|ns| *ns > 0)?;
    Some(first_ns as f64 / whole_ns as f64)
}

fn is_held_back(facts: &Facts, answers: &Answers) -> bool {
    let has_many = answers.chunks.percentile(50_000).is_some_and(|chunks| chunks >= CHUNKS_MANY);
    has_many && held_back(facts, answers).is_some_and(|share| share > HELD_BACK)
}

/// D20: whether prompts came from the endpoint's cache. `None` where nothing is known of them.
pub(super) fn prompt_cache(facts: &Facts) -> Option<Check> {
    let inference = facts.inference?;
    facts.sums.answers.as_ref()?;
    let sent = sent(inference, facts.counters.issued);
    let Some(share) = facts.sums.cached_share() else {
        let reason = format!("the endpoint does not tell what came from a cache{sent}");
        return Some(CACHE.says(Level::Ok, None, reason));
    };
    let value = Some(100.0 * share);
    let figures = format!(
        "{} of {} prompt tokens{sent}",
        grouped(facts.counters.cached_tokens),
        grouped(facts.counters.prompt_tokens)
    );
    if !inference.is_synthetic || share <= CACHED_WARN {
        return Some(CACHE.says(Level::Ok, value, format!("{} cached: {figures}", percent(share))));
    }
    let repeats = inference.sent(facts.counters.issued).is_some_and(|sent| sent.mean > 1.0);
    let advice = match (repeats, inference.is_prompt_seed_given) {
        (true, _) => "prompts were sent more than once: more of them",
        (false, true) => "leave out --prompt-seed, so that each run has prompts of its own",
        (false, false) => "what all prompts begin with is cached, such as the chat template",
    };
    let brief = format!(
        "{} of the prompt tokens came from the endpoint's prefix cache, though prompts are \
         synthetic, so TTFT is better than for new prompts; {advice}",
        percent(share)
    );
    Some(CACHE.finds(Level::Warn, value, Some(brief), &figures))
}

/// `; 400 prompts, each sent 2 to 3 times`; empty if their number is not known.
fn sent(inference: &InferenceFacts, issued: u64) -> String {
    let Some(sent) = inference.sent(issued) else { return String::new() };
    let prompts = counted(inference.prompts, "prompt");
    match sent.bounds {
        Some((min, max)) if min == max => {
            format!("; {prompts}, each sent {}", counted(max, "time"))
        }
        Some((min, max)) => format!("; {prompts}, each sent {min} to {max} times"),
        None => format!("; {prompts}, sent {:.1} times on average", sent.mean),
    }
}
