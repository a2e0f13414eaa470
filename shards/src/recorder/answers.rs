//! What the answers of an inference endpoint were like: times to tokens, gaps between chunks, token
//! counts. Definitions: `docs/METRICS.md`.

use super::{Goals, Recording, Series, Stamps};
use crate::answer::{AnswerFacts, FinishReason};

/// Distributions of completed answers. Times in ns; counts in tokens or chunks, from 1 up (a count
/// of 0 stands in the bucket of 1 and is in `min` and `total` as 0).
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// T6 - T0, from the schedule to the first token; empty in closed loop.
    pub ttft: Series,
    /// T6 - T2, from the send to the first token.
    pub service_ttft: Series,
    /// From the send to the first chunk with content that a reader sees.
    pub first_visible: Series,
    /// (T7 - T6) / (tokens - 1), of answers with two tokens and two instants.
    pub tpot: Series,
    /// Gaps between chunks with something generated, pooled over answers.
    pub chunk_delta: Series,
    /// From the last token to `[DONE]`.
    pub stream_close: Series,
    /// Tokens of the prompt: as the endpoint counted them, else as we did.
    pub isl: Series,
    /// Generated tokens as the endpoint counted them.
    pub osl: Series,
    /// Chunks with something generated.
    pub chunks: Series,
    /// Tokens a chunk, in thousandths.
    pub tokens_per_chunk: Series,
    /// How often each reason was given, by [`FinishReason::SAID`].
    pub finishes: [u64; FinishReason::SAID.len()],
}

/// The instants and counts of one answer that decide whether it is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    /// T6, CLOCK_MONOTONIC ns. An answer that was not streamed has its first token with its last.
    pub first_token_ns: u64,
    /// Time per output token.
    pub tpot: Tpot,
}

/// The time per output token of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tpot {
    /// ns.
    Is(u64),
    /// One token, or all at one instant: there is none.
    Undefined,
    /// Nobody counted the tokens.
    Unknown,
}

impl AnswerTimes {
    /// What an answer that is whole at `complete_ns` says of itself.
    pub fn of(facts: &AnswerFacts, complete_ns: u64) -> AnswerTimes {
        let first_token_ns = match facts.first_token_ns {
            0 => complete_ns,
            first_ns => first_ns,
        };
        AnswerTimes { first_token_ns, tpot: Tpot::of(facts) }
    }

    /// Whether it keeps the goals that only an answer can; `None` where that cannot be said. A
    /// TPOT that is undefined breaks no goal.
    pub(super) fn keeps(&self, goals: &Goals, stamps: &Stamps) -> Option<bool> {
        let service_ns = self.first_token_ns.saturating_sub(stamps.sent_ns);
        let ttft_ns = self.first_token_ns.saturating_sub(stamps.origin_ns());
        if ttft_ns > goals.ttft_ns || service_ns > goals.service_ttft_ns {
            return Some(false);
        }
        match self.tpot {
            Tpot::Is(tpot_ns) => Some(tpot_ns <= goals.tpot_ns),
            Tpot::Unknown if goals.tpot_ns < u64::MAX => None,
            Tpot::Undefined | Tpot::Unknown => Some(true),
        }
    }
}

impl Tpot {
    /// LoadGen's rule: the time between the first and the last token over the tokens after the
    /// first.
    pub fn of(facts: &AnswerFacts) -> Tpot {
        match facts.usage.completion {
            None => Tpot::Unknown,
            Some(tokens) if tokens < 2 || facts.instants < 2 => Tpot::Undefined,
            Some(tokens) => {
                Tpot::Is((facts.last_token_ns - facts.first_token_ns) / u64::from(tokens - 1))
            }
        }
    }
}

impl Answers {
    /// Every series, for what is done to all of them.
    fn series_mut(&mut self) -> [&mut Series; 10] {
        [
            &mut self.ttft,
            &mut self.service_ttft,
            &mut self.first_visible,
            &mut self.tpot,
            &mut self.chunk_delta,
            &mut self.stream_close,
            &mut self.isl,
            &mut self.osl,
            &mut self.chunks,
            &mut self.tokens_per_chunk,
        ]
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.series_mut().into_iter().for_each(Series::reset);
        self.finishes = Default::default();
    }
}

impl Recording {
    /// Enters what is known of a completed answer. `prompt_tokens`: as we counted them, 0 if we did
    /// not; `wants_stream`: it was to be streamed.
    pub fn answer(
        &mut self,
        facts: &AnswerFacts,
        gaps_ns: &[u64],
        stamps: &Stamps,
        prompt_tokens: u32,
        wants_stream: bool,
    ) {
        let counters = &mut self.counters;
        let answers = &mut self.answers;
        counters.answers += 1;
        counters.answers_not_streamed += u64::from(wants_stream && !facts.is_stream);
        counters.answers_cumulative += u64::from(facts.is_cumulative);
        counters.chunks_malformed += u64::from(facts.malformed);
        if facts.finish != FinishReason::None {
            answers.finishes[facts.finish as usize - 1] += 1;
        }
        let usage = &facts.usage;
        if let Some(prompt) = usage.prompt {
            counters.answers_prompt_counted += 1;
            counters.prompt_tokens += u64::from(prompt);
        }
        counters.cached_tokens += u64::from(usage.cached.unwrap_or(0));
        counters.answers_cached_told += u64::from(usage.cached.is_some());
        counters.reasoning_tokens += u64::from(usage.reasoning.unwrap_or(0));
        if let Some(tokens) = usage.prompt.or((prompt_tokens > 0).then_some(prompt_tokens)) {
            answers.isl.record(u64::from(tokens));
        }
        if let Some(tokens) = usage.completion {
            counters.answers_counted += 1;
            counters.completion_tokens += u64::from(tokens);
            answers.osl.record(u64::from(tokens));
        }
        if facts.is_stream {
            self.stream(facts, gaps_ns, stamps);
        }
    }

    fn stream(&mut self, facts: &AnswerFacts, gaps_ns: &[u64], stamps: &Stamps) {
        let counters = &mut self.counters;
        let answers = &mut self.answers;
        counters.chunks += u64::from(facts.chunks);
        counters.chunks_coalesced += u64::from(facts.coalesced);
        answers.chunks.record(u64::from(facts.chunks));
        for &gap_ns in gaps_ns {
            answers.chunk_delta.record(gap_ns);
            counters.chunk_gaps_short += u64::from(gap_ns < SHORT_GAP_NS);
        }
        match Tpot::of(facts) {
            Tpot::Is(tpot_ns) => answers.tpot.record(tpot_ns),
            Tpot::Undefined => counters.tpot_undefined += 1,
            Tpot::Unknown => {}
        }
        if facts.first_token_ns == 0 {
            return;
        }
        if let (Some(tokens), 1..) = (facts.usage.completion, facts.chunks) {
            let milli = u64::from(tokens) * 1000 / u64::from(facts.chunks);
            answers.tokens_per_chunk.record(milli);
        }
        answers.service_ttft.record(facts.first_token_ns.saturating_sub(stamps.sent_ns));
        if stamps.scheduled_ns > 0 {
            answers.ttft.record(facts.first_token_ns.saturating_sub(stamps.scheduled_ns));
        }
        if facts.first_visible_ns > 0 {
            answers.first_visible.record(facts.first_visible_ns.saturating_sub(stamps.sent_ns));
        }
        if facts.done_ns > 0 {
            answers.stream_close.record(facts.done_ns.saturating_sub(facts.last_token_ns));
        }
    }
}

/// Gaps below it are those of a buffer that was emptied, not of tokens that were generated.
const SHORT_GAP_NS: u64 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Usage;

    const STAMPS: Stamps = Stamps {
        scheduled_ns: 500,
        dispatched_ns: 600,
        ready_ns: 700,
        sent_ns: 1_000,
        first_byte_ns: 2_000,
        complete_ns: 900_000,
    };

    fn facts(tokens: Option<u32>) -> AnswerFacts {
        AnswerFacts {
            is_stream: true,
            ack_ns: 2_000,
            first_token_ns: 100_000,
            first_visible_ns: 200_000,
            last_token_ns: 700_000,
            done_ns: 800_000,
            chunks: 3,
            instants: 3,
            usage: Usage { completion: tokens, prompt: Some(7), ..Usage::default() },
            finish: FinishReason::Stop,
            ..AnswerFacts::default()
        }
    }

    #[test]
    fn an_answer_is_in_every_series_by_its_definition() {
        let mut recording = Recording::default();
        recording.answer(&facts(Some(4)), &[20_000, 580_000], &STAMPS, 9, true);
        let answers = &recording.answers;
        let totals = [
            (&answers.ttft, 99_500),
            (&answers.service_ttft, 99_000),
            (&answers.first_visible, 199_000),
            (&answers.tpot, 200_000),
            (&answers.chunk_delta, 600_000),
            (&answers.stream_close, 100_000),
            (&answers.isl, 7), // the endpoint's count wins over ours
            (&answers.osl, 4),
            (&answers.chunks, 3),
            (&answers.tokens_per_chunk, 1_333),
        ];
        for (index, (series, total)) in totals.into_iter().enumerate() {
            assert_eq!(series.total, total, "series {index}");
        }
        assert_eq!((recording.counters.chunk_gaps_short, answers.finishes[0]), (1, 1));
        recording.reset();
        assert_eq!(recording.answers.chunk_delta.count() + recording.answers.finishes[0], 0);
    }

    #[test]
    fn no_cached_tokens_are_told_apart_from_an_endpoint_that_does_not_tell() {
        let told = |cached| {
            let mut recording = Recording::default();
            let usage = Usage { cached, ..facts(Some(4)).usage };
            recording.answer(&AnswerFacts { usage, ..facts(Some(4)) }, &[], &STAMPS, 0, true);
            (recording.counters.answers_cached_told, recording.counters.cached_tokens)
        };
        assert_eq!([told(None), told(Some(0)), told(Some(5))], [(0, 0), (1, 0), (1, 5)]);
    }

    #[test]
    fn tpot_needs_two_tokens_and_two_instants() {
        assert_eq!(Tpot::of(&facts(Some(2))), Tpot::Is(600_000));
        assert_eq!(Tpot::of(&facts(Some(1))), Tpot::Undefined);
        assert_eq!(Tpot::of(&AnswerFacts { instants: 1, ..facts(Some(9)) }), Tpot::Undefined);
        assert_eq!(Tpot::of(&facts(None)), Tpot::Unknown);
    }

    #[test]
    fn goals_of_tokens_are_kept_broken_or_not_known() {
        let goals = Goals { tpot_ns: 200_000, ttft_ns: 99_500, ..Goals::NONE };
        let good = |facts: &AnswerFacts, goals: &Goals| {
            let mut recording = Recording::default();
            let times = AnswerTimes::of(facts, STAMPS.complete_ns);
            recording.success(&STAMPS, Some(&times), Some(goals));
            (recording.counters.good, recording.counters.good_unknown)
        };
        assert_eq!(good(&facts(Some(4)), &goals), (1, 0));
        assert_eq!(good(&facts(Some(4)), &Goals { tpot_ns: 199_999, ..goals }), (0, 0));
        assert_eq!(good(&facts(Some(4)), &Goals { ttft_ns: 99_499, ..goals }), (0, 0));
        assert_eq!(good(&facts(Some(1)), &goals), (1, 0), "an undefined TPOT breaks no goal");
        assert_eq!(good(&facts(None), &goals), (0, 1));
        let not_streamed = AnswerFacts { first_token_ns: 0, ..facts(Some(4)) };
        let latency = Goals { ttft_ns: 899_500, ..Goals::NONE };
        assert_eq!(good(&AnswerFacts { instants: 0, ..not_streamed }, &latency), (1, 0));
    }
}
