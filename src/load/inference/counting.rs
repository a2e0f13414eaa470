//! Where no tokenizer is at hand: what the server counts, at `/tokenize` or in the `usage` of an
//! answer. Its own count is the right one; a foreign tokenizer's is not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Meter, SIDE_TIMEOUT};
use crate::api::{self, Api};
use crate::config::Config;
use crate::config::inference::{Inference, Synthetic};
use crate::dataset::{self, Length, Prompt, Sample, synthetic};
use crate::plan::AskedRows;
use crate::request::{self, url::Url};
use crate::side::{Side, tokens};

/// A server that may count.
pub struct Counter<'a> {
    side: Side,
    url: Url,
    run: &'a Inference,
}

impl<'a> Counter<'a> {
    /// The first server of a run that generates.
    pub fn new(config: &'a Config, embedded: Option<SocketAddr>) -> Option<Counter<'a>> {
        let run = config.inference.as_ref()?;
        let url = request::urls(config, embedded).into_iter().next()?;
        let side = Side::new(config, &url, SIDE_TIMEOUT).ok()?;
        run.api.generates().then_some(Counter { side, url, run })
    }

    fn tokens(&self, text: &str) -> Option<u32> {
        tokens(&self.side, &self.url, self.run.sampling.model.as_deref(), text)
    }

    /// Tokens of a prompt by the `usage` of an answer of one token; what a chat puts around it is
    /// in the count.
    fn tokens_by_usage(&self, text: &str) -> Option<u32> {
        let run = self.run;
        let prompt = Prompt::Text(text.to_owned());
        let body = run.sampling.of_one_token();
        let body = api::body(run.api, &Sample { prompt, ..Sample::default() }, &body).ok()?;
        let path = run.api.endpoint_path(&self.url.path).ok()?;
        let reply = self.side.post(&path, &serde_json::from_slice(&body).ok()?).ok()?;
        let answer = reply.json()?;
        let usage = match run.api {
            Api::Generate => answer.get("meta_info"),
            _ => answer.get("usage"),
        };
        u32::try_from(usage?.get("prompt_tokens")?.as_u64()?).ok()
    }

    /// Lengths in words that make prompts of these lengths in tokens, and who counted them; `None`:
    /// the server does not say. Without a tokenizer prompts are made of words.
    pub fn calibrated(&self, typed: &Synthetic) -> Option<(Length, &'static str)> {
        let words = (typed.isl.mean().round() as u32).max(1);
        // Not the prompts of the run, which shall be new to the server.
        let plan = dataset::Synthetic {
            isl: Length::Fixed(words),
            osl: None,
            count: TRIALS,
            seed: !typed.drawn_seed,
        };
        let trials = synthetic(&plan, None, &|_, _| {}).ok()?;
        let sum = |count: &dyn Fn(&str) -> Option<u32>| {
            let counts = trials.samples.iter().map(|sample| match &sample.prompt {
                Prompt::Text(text) => count(text).map(u64::from),
                _ => None,
            });
            counts.sum::<Option<u64>>()
        };
        let (sum, who) = match sum(&|text| self.tokens(text)) {
            Some(sum) => (sum, "/tokenize"),
            // A request for an answer goes before the load like the preflight, or not at all.
            None if !self.run.has_preflight => return None,
            None => (sum(&|text| self.tokens_by_usage(text))?, "usage"),
        };
        let ratio = sum as f64 / (TRIALS as f64 * f64::from(words));
        // No tokenizer makes less or more of common words: such a count is of something else.
        (0.5..=8.0).contains(&ratio).then(|| (scaled(typed.isl, 1.0 / ratio), who))
    }

    /// Has the server count the tokens of text prompts, if there are few of them and it does so:
    /// one request each. Either all of them are counted then, or none.
    pub fn count(&self, rows: &mut AskedRows, meter: &Meter) {
        let samples = &rows.dataset.samples;
        if samples.len() > ROWS_COUNTED_MAX {
            return;
        }
        let began = Instant::now();
        let count = |(index, sample): (usize, &Sample)| {
            let Prompt::Text(text) = &sample.prompt else { return None };
            meter.show("counting tokens, by the server", index as u64, samples.len() as u64);
            (began.elapsed() < COUNTING_MAX).then(|| self.tokens(text))?
        };
        let counts: Option<Vec<u32>> = samples.iter().enumerate().map(count).collect();
        let Some(counts) = counts else { return };
        for (sample, count) in rows.dataset.samples.iter_mut().zip(counts) {
            sample.prompt_tokens = Some(count);
        }
        rows.counted_by = Some("/tokenize of the server".to_owned());
    }
}

/// Lengths by a factor, at least 1.
fn scaled(length: Length, factor: f64) -> Length {
    let whole = |tokens: u32| ((f64::from(tokens) * factor).round() as u32).max(1);
    match length {
        Length::Fixed(tokens) => Length::Fixed(whole(tokens)),
        Length::Uniform { min, max } => Length::Uniform { min: whole(min), max: whole(max) },
        Length::Normal { mean, std_dev } => {
            Length::Normal { mean: mean * factor, std_dev: std_dev * factor }
        }
        Length::LogNormal { mean, std_dev } => {
            Length::LogNormal { mean: mean * factor, std_dev: std_dev * factor }
        }
    }
}

/// Prompts for a calibration.
const TRIALS: usize = 2;
/// Rows that the server is asked to count, and how long that may take.
const ROWS_COUNTED_MAX: usize = 2000;
const COUNTING_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_scaled_and_stay_above_0() {
        let normal = |mean, std_dev| Length::Normal { mean, std_dev };
        for (length, factor, expected) in [
            (Length::Fixed(550), 0.5, Length::Fixed(275)),
            (Length::Fixed(1), 0.1, Length::Fixed(1)),
            (Length::Uniform { min: 1, max: 100 }, 2.0, Length::Uniform { min: 2, max: 200 }),
            (normal(100.0, 10.0), 0.5, normal(50.0, 5.0)),
        ] {
            assert_eq!(scaled(length, factor), expected, "{length:?}");
        }
    }
}
