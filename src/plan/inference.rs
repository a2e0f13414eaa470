//! What an inference run asks: rows, put into requests, and what is known of them.
//!
//! Rows are read or made up before the plan, by [`crate::load`], which may ask the endpoint for its
//! models and its tokenizer; the plan turns them into the request table.

use std::net::SocketAddr;
use std::sync::Arc;

use loadgen_shards::answer::AnswerPlan;
use loadgen_shards::query::RequestTable;

use crate::api::Api;
use crate::config::inference::{Inference as Typed, Part, Prompts, Synthetic};
use crate::config::{Config, Keep, RateShape, Warmup, unit};
use crate::dataset::{Dataset, Length, TargetLine};
use crate::error::Error;
use crate::request::secret::Secrets;
use crate::request::url::Url;
use crate::request::{self, Header, Rows};
use crate::tokenizer::Tokenizer;

/// What was read or made up for a run.
#[derive(Clone, Debug)]
pub enum Asked {
    /// Rows, for bodies that name them.
    Rows(AskedRows),
    /// Requests as they stand.
    Targets(Vec<TargetLine>),
}

/// Rows of a run.
#[derive(Clone, Debug, Default)]
pub struct AskedRows {
    /// The rows: that of the preflight if it has one of its own, those of the warm-up, the others.
    pub dataset: Dataset,
    /// Whether the first one is the preflight's alone.
    pub has_preflight: bool,
    /// How many of them are of the warm-up alone; 0: it has the same as the load.
    pub warmup: usize,
    /// Who counted the tokens of prompts, in words; `None`: nobody.
    pub counted_by: Option<String>,
    /// By what of the server the lengths of made-up prompts were calibrated.
    pub calibrated_by: Option<&'static str>,
    /// The tokenizer at hand.
    pub tokenizer: Option<Arc<Tokenizer>>,
}

/// What is known of the rows of a run beside what was typed.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// Name of the dataset, `synthetic` for prompts that were made up, `body` for that of `-b`.
    pub dataset: String,
    /// Distinct prompts of the measured phase.
    pub prompts: usize,
    /// Rows that were left out as bad.
    pub skipped: u64,
    /// What was wrong with the first of them.
    pub first_skipped: Option<String>,
    /// What the columns were taken for.
    pub taken_as: String,
    /// Who counted the tokens of prompts, in words; `None`: nobody but the endpoint.
    pub counted_by: Option<String>,
    /// By what of the server the lengths of made-up prompts were calibrated.
    pub calibrated_by: Option<&'static str>,
}

impl Inference {
    /// Of a run.
    pub fn new(rows: &AskedRows) -> Inference {
        Inference {
            dataset: rows.dataset.name.clone(),
            prompts: rows.dataset.samples.len() - rows.warmup - usize::from(rows.has_preflight),
            skipped: rows.dataset.skipped,
            first_skipped: rows.dataset.first_skipped.clone(),
            taken_as: rows.dataset.taken_as.clone(),
            counted_by: rows.counted_by.clone(),
            calibrated_by: rows.calibrated_by,
        }
    }
}

/// How many prompts to make up for a part of the run: one for each request, as far as that is
/// known, within limits.
pub fn prompts_wanted(config: &Config, synthetic: &Synthetic, part: Part) -> usize {
    let (requests, length_ns) = match (part, config.warmup) {
        (Part::Preflight, _) => return 1,
        (Part::Performance, _) => (config.requests, config.duration_ns),
        (Part::Warmup, Some(Warmup::Requests(count))) => (Some(count), None),
        (Part::Warmup, Some(Warmup::Time(ns))) => (None, Some(ns)),
        (Part::Warmup, None) => return 0,
    };
    let rate = config.arrivals.as_ref().and_then(|arrivals| match &arrivals.rate {
        RateShape::Constant(rate) => Some(*rate),
        RateShape::Ramp { from, to, .. } => Some(from.max(*to)),
        RateShape::Series { .. } => None,
    });
    // Arrivals are random: some more than expected.
    let by_rate = rate.zip(length_ns).map(|(rate, ns)| {
        let expected = rate * ns as f64 / unit::NS_PER_S as f64;
        (expected + 4.0 * expected.sqrt()).ceil() as u64 + 1
    });
    let known = requests.into_iter().chain(by_rate).min();
    let wanted = known.map_or(PROMPTS_UNKNOWN, |count| count.min(PROMPTS_MAX)).max(1);
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    synthetic.count.unwrap_or(wanted)
}

/// The table of a run that asks.
pub fn table(
    config: &Config,
    embedded: Option<SocketAddr>,
    asked: &Asked,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<RequestTable, Error> {
    match (asked, &config.inference) {
        (Asked::Targets(lines), _) => {
            request::table_of_targets(config, lines, &AnswerPlan::PLAIN, progress)
        }
        (Asked::Rows(rows), Some(run)) => {
            let samples = &rows.dataset.samples;
            let counts_outputs = output_tokenizer(config, asked).is_some();
            let answers = answers(config, run, counts_outputs);
            if !matches!(run.prompts, Prompts::Body) {
                let rows = Rows { api: run.api, sampling: &run.sampling, samples };
                return request::table_of_rows(config, embedded, &rows, &answers, progress);
            }
            // The body is sent as it is, to the place of its kind.
            let mut config = config.clone();
            for url in &mut config.urls {
                url.path = run
                    .api
                    .endpoint_path(&url.path)
                    .map_err(|why| Error::usage(format!("URL `{}` {why}", url.redacted())))?;
            }
            let rows = Rows { api: Api::Raw, sampling: &run.sampling, samples };
            request::table_of_rows(&config, embedded, &rows, &answers, progress)
        }
        (Asked::Rows(_), None) => request::table(config, embedded),
    }
}

/// What no message may show: the secrets of the run, and those of its targets.
pub fn secrets(config: &Config, asked: Option<&Asked>) -> Secrets {
    let Some(Asked::Targets(lines)) = asked else {
        return Secrets::of(&config.request, &config.urls);
    };
    let mut shape = config.request.clone();
    let of_lines = lines.iter().flat_map(|line| &line.headers);
    shape
        .headers
        .extend(of_lines.map(|(name, value)| Header { name: name.clone(), value: value.clone() }));
    let urls: Vec<Url> = lines.iter().filter_map(|line| Url::parse(&line.url).ok()).collect();
    Secrets::of(&shape, &urls)
}

/// What counts the tokens of answers, where the endpoint does not: the tokenizer that is at hand
/// for prompts.
pub fn output_tokenizer(config: &Config, asked: &Asked) -> Option<Arc<Tokenizer>> {
    match (asked, &config.inference) {
        (Asked::Rows(rows), Some(run)) if run.api.generates() => rows.tokenizer.clone(),
        _ => None,
    }
}

/// How answers are read.
fn answers(config: &Config, run: &Typed, counts_outputs: bool) -> AnswerPlan {
    let format = run.api.answer_format(run.response_field.as_deref());
    let longest = match &run.prompts {
        Prompts::Synthetic(Synthetic { osl: Some(osl), .. }) => longest(*osl),
        _ => run.sampling.max_tokens.unwrap_or(CHUNKS_UNKNOWN),
    };
    AnswerPlan {
        format,
        is_lenient: run.is_lenient,
        keeps_text: config.records == Keep::Texts || counts_outputs,
        chunks_expected: (longest as usize).min(CHUNKS_MAX),
        ..AnswerPlan::PLAIN
    }
}

/// Tokens of an answer at most, roughly.
fn longest(length: Length) -> u32 {
    match length {
        Length::Fixed(count) => count,
        Length::Uniform { max, .. } => max,
        Length::Normal { mean, std_dev } | Length::LogNormal { mean, std_dev } => {
            (mean + 4.0 * std_dev) as u32
        }
    }
}

/// Prompts where the number of requests is not known before: a closed loop for a time.
const PROMPTS_UNKNOWN: u64 = 10_000;
/// Prompts where it is: more would be sent again.
const PROMPTS_MAX: u64 = 100_000;
/// Chunks of an answer without a limit.
const CHUNKS_UNKNOWN: u32 = 512;
/// Room for chunks that is taken before.
const CHUNKS_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::config;

    fn synthetic(line: &str) -> (Config, Synthetic) {
        let config = config(line);
        match config.inference.clone().expect("an inference run").prompts {
            Prompts::Synthetic(synthetic) => (config, synthetic),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn there_is_a_prompt_for_each_request_as_far_as_that_is_known() {
        for (line, warmup, performance) in [
            ("http://h/v1 -n 77", 0, 77),
            ("http://h/v1 -n 77 --warmup 5", 5, 77),
            ("http://h/v1 -d 5s", 0, 10_000),
            ("http://h/v1 -n 5M", 0, 100_000),
            ("http://h/v1 -n 500k --prompts 200k", 0, 200_000),
            ("poisson http://h/v1 -R 100 -d 1s --warmup 4s", 481, 141),
            ("poisson http://h/v1 -R 100 -d 10s -n 50", 0, 50),
        ] {
            let (config, synthetic) = synthetic(line);
            let wanted = |part| prompts_wanted(&config, &synthetic, part);
            assert_eq!(wanted(Part::Performance), performance, "{line}");
            assert_eq!(wanted(Part::Warmup), warmup, "{line}");
        }
    }
}
