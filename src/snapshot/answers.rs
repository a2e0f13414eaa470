//! What the answers of an inference endpoint were like, merged; and the tokens that are counted
//! only after the run.

use loadgen_shards::answer::FinishReason;
use loadgen_shards::recorder::{self, Series};

use super::{Distribution, Sums, Totals};

/// Distributions of completed answers. Definitions: `docs/METRICS.md`. Times in ns.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// T6 - T0; empty in closed loop.
    pub ttft: Distribution,
    /// T6 - T2.
    pub service_ttft: Distribution,
    /// From the send to the first chunk with content that a reader sees.
    pub first_visible: Distribution,
    /// (T7 - T6) / (tokens - 1).
    pub tpot: Distribution,
    /// Gaps between chunks, pooled over answers.
    pub chunk_delta: Distribution,
    /// From the last token to `[DONE]`.
    pub stream_close: Distribution,
    /// Tokens of the prompt.
    pub isl: Distribution,
    /// Generated tokens, where somebody counted them.
    pub osl: Distribution,
    /// Chunks with something generated; one value for each stream.
    pub chunks: Distribution,
    /// Tokens a chunk, in thousandths.
    pub tokens_per_chunk: Distribution,
    /// How often each reason was given, by [`FinishReason::SAID`].
    pub finishes: [u64; FinishReason::SAID.len()],
}

impl Answers {
    /// Adds one interval of one shard.
    pub fn add(&mut self, recorded: &recorder::Answers) {
        self.ttft.add(&recorded.ttft);
        self.service_ttft.add(&recorded.service_ttft);
        self.first_visible.add(&recorded.first_visible);
        self.tpot.add(&recorded.tpot);
        self.chunk_delta.add(&recorded.chunk_delta);
        self.stream_close.add(&recorded.stream_close);
        self.isl.add(&recorded.isl);
        self.osl.add(&recorded.osl);
        self.chunks.add(&recorded.chunks);
        self.tokens_per_chunk.add(&recorded.tokens_per_chunk);
        self.add_finishes(&recorded.finishes);
    }

    /// Adds those of another phase.
    pub fn merge(&mut self, other: &Answers) {
        self.ttft.merge(&other.ttft);
        self.service_ttft.merge(&other.service_ttft);
        self.first_visible.merge(&other.first_visible);
        self.tpot.merge(&other.tpot);
        self.chunk_delta.merge(&other.chunk_delta);
        self.stream_close.merge(&other.stream_close);
        self.isl.merge(&other.isl);
        self.osl.merge(&other.osl);
        self.chunks.merge(&other.chunks);
        self.tokens_per_chunk.merge(&other.tokens_per_chunk);
        self.add_finishes(&other.finishes);
    }

    fn add_finishes(&mut self, more: &[u64; FinishReason::SAID.len()]) {
        self.finishes.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }

    /// How often each reason that `endpoints` counts was given, in its order; what it does not
    /// know is `other`.
    pub fn finish_counts(&self) -> [(&'static str, u64); 6] {
        let of = |reason: FinishReason| {
            let said = FinishReason::SAID.iter().zip(self.finishes);
            said.filter(|(said, _)| **said == reason).map(|(_, count)| count).sum::<u64>()
        };
        let named = [
            FinishReason::Stop,
            FinishReason::Length,
            FinishReason::ToolCalls,
            FinishReason::ContentFilter,
            FinishReason::FunctionCall,
        ];
        let others = self.finishes.iter().sum::<u64>() - named.map(of).iter().sum::<u64>();
        let [stop, length, tools, filter, function] = named.map(|r| (r.name(), of(r)));
        [stop, length, tools, filter, function, (FinishReason::Other.name(), others)]
    }
}

/// An answer whose tokens a tokenizer has counted after the run, as the endpoint had not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedOutput {
    /// Generated tokens.
    pub tokens: u32,
    /// T6, CLOCK_MONOTONIC ns; 0 if it was not streamed.
    pub first_token_ns: u64,
    /// T7.
    pub last_token_ns: u64,
    /// Distinct instants of its chunks.
    pub instants: u32,
    /// Chunks with something generated.
    pub chunks: u32,
    /// It keeps every goal but for its TPOT, and that was not known: it is one of `good_unknown`.
    pub is_good_but_for_tpot: bool,
}

impl Sums {
    /// The headline time to the first token: from the schedule where there is one, else from the
    /// send; `None` where no answer was read.
    pub fn ttft(&self) -> Option<&Distribution> {
        let answers = self.answers.as_deref()?;
        Some(if self.has_schedule() { &answers.ttft } else { &answers.service_ttft })
    }

    /// Completed answers of whose tokens nobody knows the number.
    pub fn outputs_unknown(&self) -> u64 {
        let counted = self.answers.as_ref().map_or(0, |answers| answers.osl.count());
        self.counters.answers.saturating_sub(counted)
    }

    /// Completed answers that a tokenizer has counted after the run.
    pub fn outputs_counted_after(&self) -> u64 {
        let counted = self.answers.as_ref().map_or(0, |answers| answers.osl.count());
        counted.saturating_sub(self.counters.answers_counted)
    }

    /// Prompt tokens that came from the endpoint's cache as a share of those that it counted, 0 to
    /// 1; `None` where it never told.
    pub fn cached_share(&self) -> Option<f64> {
        let counters = &self.counters;
        let is_told = counters.answers_cached_told > 0 && counters.prompt_tokens > 0;
        is_told.then(|| counters.cached_tokens as f64 / counters.prompt_tokens as f64)
    }

    /// Enters the token counts that came after the run: the same figures as if the endpoint had
    /// told them. Only of answers that are recorded here and were not counted. `tpot_goal_ns`: of
    /// `--goodput`, if it has one.
    pub fn add_counted_outputs(
        &mut self,
        outputs: impl IntoIterator<Item = CountedOutput>,
        tpot_goal_ns: Option<u64>,
    ) {
        let (mut osl, mut tpot, mut milli) =
            (Series::default(), Series::default(), Series::default());
        for output in outputs {
            osl.record(u64::from(output.tokens));
            let is_stream = output.first_token_ns > 0;
            if is_stream && output.chunks > 0 {
                milli.record(u64::from(output.tokens) * 1000 / u64::from(output.chunks));
            }
            let is_defined = is_stream && output.tokens >= 2 && output.instants >= 2;
            let tpot_ns = is_defined.then(|| {
                let length_ns = output.last_token_ns.saturating_sub(output.first_token_ns);
                length_ns / u64::from(output.tokens - 1)
            });
            match tpot_ns {
                Some(tpot_ns) => tpot.record(tpot_ns),
                None => self.counters.tpot_undefined += u64::from(is_stream),
            }
            if let (Some(goal_ns), true) = (tpot_goal_ns, output.is_good_but_for_tpot) {
                // A TPOT that is undefined breaks no goal.
                self.counters.good += u64::from(tpot_ns.is_none_or(|ns| ns <= goal_ns));
                self.counters.good_unknown = self.counters.good_unknown.saturating_sub(1);
            }
        }
        let answers = self.answers.get_or_insert_default();
        answers.osl.add(&osl);
        answers.tpot.add(&tpot);
        answers.tokens_per_chunk.add(&milli);
    }
}

impl Totals<'_> {
    /// Generated tokens per second of the duration; `None` if nobody counted any. A lower bound
    /// where [`Sums::outputs_unknown`] is not 0.
    pub fn tps(&self) -> Option<f64> {
        self.tokens_per_s(&self.sums.answers.as_ref()?.osl)
    }

    /// Prompt tokens of completed answers per second of the duration.
    pub fn input_tps(&self) -> Option<f64> {
        self.tokens_per_s(&self.sums.answers.as_ref()?.isl)
    }

    /// Both.
    pub fn total_tps(&self) -> Option<f64> {
        Some(self.tps()? + self.input_tps()?)
    }

    fn tokens_per_s(&self, lengths: &Distribution) -> Option<f64> {
        let is_known = !lengths.is_empty() && self.duration_ns > 0;
        is_known.then(|| lengths.total as f64 * 1e9 / self.duration_ns as f64)
    }
}

/// What the front knows of an inference run, for report and trust. Nothing of it is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceFacts {
    /// The endpoint type, as `--api` names it.
    pub api: String,
    /// The model that is asked for; empty: none is named.
    pub model: String,
    /// Answers are to be streamed.
    pub is_streamed: bool,
    /// The endpoint is asked for usage in streams.
    pub includes_usage: bool,
    /// Where the tokenizer came from, as in `o200k` or `/tokenize of the server`; empty: there is
    /// none.
    pub tokenizer: String,
    /// Where the prompts came from, as in `550 tokens in, 128 out` or the name of a file.
    pub dataset: String,
    /// Different prompts of the tracked phase.
    pub prompts: u64,
    /// They were made here, at random.
    pub is_synthetic: bool,
    /// `--prompt-seed` was given, so another run has the same prompts.
    pub is_prompt_seed_given: bool,
    /// The seed of the prompts; `None`: nothing was drawn.
    pub prompt_seed: Option<u64>,
    /// Each position draws its prompt anew, so that some are sent more often than others.
    pub draws_anew: bool,
    /// Which of the fields above nobody asked for, by their names here.
    pub defaults: Vec<&'static str>,
}

/// How often each prompt was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromptsSent {
    /// At least, and at most; `None` where prompts are drawn anew each time.
    pub bounds: Option<(u64, u64)>,
    /// On average.
    pub mean: f64,
}

impl InferenceFacts {
    /// How often each prompt was sent in so many requests; `None` if their number is not known.
    pub fn sent(&self, issued: u64) -> Option<PromptsSent> {
        (self.prompts > 0).then(|| PromptsSent {
            bounds: (!self.draws_anew)
                .then(|| (issued / self.prompts, issued.div_ceil(self.prompts))),
            mean: issued as f64 / self.prompts as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::inference::{
        CHUNKS, TOKENS, recorded_answers, run_of_answers, tpot_ns,
    };

    #[test]
    fn finish_reasons_are_counted_as_endpoints_does_and_none_is_lost() {
        let mut answers = Answers::default();
        for (index, count) in answers.finishes.iter_mut().enumerate() {
            *count = 10u64.pow(index as u32);
        }
        let counts = answers.finish_counts();
        let expected = [
            ("stop", 1),
            ("length", 10),
            ("tool_calls", 100),
            ("content_filter", 1000),
            ("function_call", 10_000),
            ("other", 11_100_000), // abort, error, other
        ];
        assert_eq!(counts, expected);
    }

    #[test]
    fn tokens_per_second_are_those_of_the_answers_over_the_duration() {
        let run = run_of_answers(&recorded_answers(2_000, true));
        let totals = Totals::of(&run.phases);
        // 11 tokens out and 100 in, of 2 000 answers in 5 s.
        assert_eq!(totals.tps(), Some(4_400.0));
        assert_eq!(totals.input_tps(), Some(40_000.0));
        assert_eq!(totals.total_tps(), Some(44_400.0));
        assert_eq!(Totals::default().tps(), None);
        let uncounted = run_of_answers(&recorded_answers(2_000, false));
        let totals = Totals::of(&uncounted.phases);
        assert_eq!((totals.tps(), totals.total_tps()), (None, None), "nobody counted them");
        assert_eq!(totals.sums.outputs_unknown(), 2_000);
    }

    #[test]
    fn what_is_counted_after_the_run_gives_the_figures_of_a_run_that_was_told() {
        let told = run_of_answers(&recorded_answers(2_000, true));
        let mut untold = run_of_answers(&recorded_answers(2_000, false));
        let sums = &mut untold.phases[0].sums;
        let output = |i: u64| CountedOutput {
            tokens: TOKENS as u32,
            first_token_ns: 1_000_000_000,
            last_token_ns: 1_000_000_000 + (TOKENS - 1) * tpot_ns(i),
            instants: CHUNKS,
            chunks: CHUNKS,
            is_good_but_for_tpot: false,
        };
        sums.add_counted_outputs((0..2_000).map(output), None);
        let (untold, told) = (Totals::of(&untold.phases), Totals::of(&told.phases));
        assert_eq!(untold.tps(), told.tps());
        let of = |totals: &Totals| {
            let answers = totals.sums.answers.as_deref().expect("there are some").clone();
            [answers.osl, answers.tpot, answers.tokens_per_chunk]
                .map(|series| (series.count(), series.total, series.max, series.percentile(99_000)))
        };
        assert_eq!(of(&untold), of(&told));
        assert_eq!(
            (untold.sums.outputs_unknown(), untold.sums.outputs_counted_after()),
            (0, 2_000)
        );
        assert_eq!(told.sums.outputs_counted_after(), 0);
    }

    #[test]
    fn a_count_that_comes_late_decides_whether_an_answer_was_good() {
        let judged = |tokens, instants, tpot_goal_ns| {
            let mut sums = Sums::default();
            sums.counters.good_unknown = 1;
            let output = CountedOutput {
                tokens,
                first_token_ns: 1_000,
                last_token_ns: 2_000,
                instants,
                chunks: 3,
                is_good_but_for_tpot: true,
            };
            sums.add_counted_outputs([output], tpot_goal_ns);
            let counters = &sums.counters;
            (counters.good, counters.good_unknown, counters.tpot_undefined)
        };
        assert_eq!(judged(11, 3, Some(100)), (1, 0, 0));
        assert_eq!(judged(11, 3, Some(99)), (0, 0, 0));
        assert_eq!(judged(1, 3, Some(99)), (1, 0, 1), "an undefined TPOT breaks no goal");
        assert_eq!(judged(11, 1, Some(99)), (1, 0, 1));
        assert_eq!(judged(11, 3, None), (0, 1, 0), "no goal, nothing to decide");
    }

    #[test]
    fn a_cached_share_is_told_only_where_the_endpoint_tells_it() {
        let mut sums = Sums::default();
        sums.counters.prompt_tokens = 1_000;
        assert_eq!(sums.cached_share(), None);
        sums.counters.answers_cached_told = 1;
        assert_eq!(sums.cached_share(), Some(0.0));
        sums.counters.cached_tokens = 250;
        assert_eq!(sums.cached_share(), Some(0.25));
    }

    #[test]
    fn prompts_in_a_fixed_order_are_sent_equally_often_but_for_one() {
        let facts = InferenceFacts { prompts: 400, ..InferenceFacts::default() };
        let sent = facts.sent(1_000).expect("a number of prompts");
        assert_eq!((sent.bounds, sent.mean), (Some((2, 3)), 2.5));
        assert_eq!(facts.sent(400).expect("likewise").bounds, Some((1, 1)));
        let drawn = InferenceFacts { draws_anew: true, ..facts };
        assert_eq!(drawn.sent(1_000).expect("likewise").bounds, None);
        assert_eq!(InferenceFacts::default().sent(1_000), None);
    }
}
