//! What an inference endpoint is asked to be.

use super::distribution::{DISTRIBUTION_FORM, Distribution, time_ns};
use super::profile::Profile;

/// An inference endpoint: what it answers, when, and what it does wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct InferenceConfig {
    /// Whose bytes it imitates.
    pub profile: Profile,
    /// The only model that it knows. `None`: any name will do and comes back.
    pub model: Option<String>,
    /// From the end of a request to its first token.
    pub ttft: Distribution,
    /// From a token to the next. Tokens of one chunk come together, at the instant of the last.
    pub itl: Distribution,
    /// Chunks of an answer; a request may limit it. `None`: as many tokens as the request allows.
    pub chunks: Option<u32>,
    /// Tokens of a chunk, at least 1.
    pub tokens_per_chunk: u32,
    /// Tokens at the front of a chat answer that are reasoning.
    pub reasoning_tokens: u32,
    /// Tokens of prompt and answer together.
    pub max_context: u32,
    /// Silence in a stream after which a comment is sent, ns; 0: never. `None`: as the profile
    /// does.
    pub ping_ns: Option<u64>,
    /// Lines of a stream end with CR LF.
    pub crlf: bool,
    /// Of all that is drawn.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
}

/// What goes wrong on purpose. Shares are from 0 to 1, of the requests for generated text; each is
/// drawn for itself. Where several fall on one request, the first in this order happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Share that is answered with an error status.
    pub fail_rate: f64,
    /// The error statuses, each as likely; at least one.
    pub fail_status: Vec<u16>,
    /// Share whose answer turns into an error event inside a 200.
    pub error_in_stream_rate: f64,
    /// Share whose connection closes before the answer is whole.
    pub truncate_rate: f64,
    /// How long a stalled answer pauses, ns; 0: none stalls.
    pub stall_ns: u64,
    /// Share that stalls, also of those above.
    pub stall_rate: f64,
    /// Chunks before a stall. `None`: drawn.
    pub stall_after: Option<u32>,
    /// Requests after which a connection is closed. `None`: as the profile does; 0: never.
    pub close_after: Option<u32>,
}

impl Default for InferenceConfig {
    fn default() -> InferenceConfig {
        InferenceConfig {
            profile: Profile::Vllm,
            model: None,
            ttft: Distribution::ZERO,
            itl: Distribution::ZERO,
            chunks: None,
            tokens_per_chunk: 1,
            reasoning_tokens: 0,
            max_context: 1 << 20,
            ping_ns: None,
            crlf: false,
            seed: 42,
            faults: Faults {
                fail_rate: 0.0,
                fail_status: vec![500],
                error_in_stream_rate: 0.0,
                truncate_rate: 0.0,
                stall_ns: 0,
                stall_rate: 1.0,
                stall_after: None,
                close_after: None,
            },
        }
    }
}

impl InferenceConfig {
    /// Sets what a flag says, by its name with the dashes. `Err`: what is allowed; `None`: there is
    /// no such flag.
    pub fn set(&mut self, flag: &str, text: &str) -> Option<Result<(), &'static str>> {
        let faults = &mut self.faults;
        Some(match flag {
            "--profile" => put(&mut self.profile, Profile::parse(text), PROFILE_FORM),
            "--model" => put(&mut self.model, Some(model(text)), MODEL_FORM),
            "--ttft" => put(&mut self.ttft, Distribution::parse(text), DISTRIBUTION_FORM),
            "--itl" => put(&mut self.itl, Distribution::parse(text), DISTRIBUTION_FORM),
            "--chunks" => put(&mut self.chunks, count(text, 1).map(Some), COUNT_FORM),
            "--tokens-per-chunk" => put(&mut self.tokens_per_chunk, count(text, 1), COUNT_FORM),
            "--reasoning-tokens" => put(&mut self.reasoning_tokens, count(text, 0), COUNT_FORM),
            "--max-context" => put(&mut self.max_context, count(text, 1), COUNT_FORM),
            "--ping" => put(&mut self.ping_ns, time_ns(text).map(Some), TIME_FORM),
            "--fail-rate" => put(&mut faults.fail_rate, share(text), SHARE_FORM),
            "--fail-status" => put(&mut faults.fail_status, statuses(text), STATUS_FORM),
            "--error-in-stream-rate" => {
                put(&mut faults.error_in_stream_rate, share(text), SHARE_FORM)
            }
            "--truncate-rate" => put(&mut faults.truncate_rate, share(text), SHARE_FORM),
            "--stall" => put(&mut faults.stall_ns, time_ns(text), TIME_FORM),
            "--stall-rate" => put(&mut faults.stall_rate, share(text), SHARE_FORM),
            "--stall-after" => put(&mut faults.stall_after, count(text, 0).map(Some), COUNT_FORM),
            "--close-after" => put(&mut faults.close_after, count(text, 0).map(Some), COUNT_FORM),
            _ => return None,
        })
    }
}

fn put<T>(place: &mut T, value: Option<T>, form: &'static str) -> Result<(), &'static str> {
    *place = value.ok_or(form)?;
    Ok(())
}

/// An empty name is none.
fn model(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn count(text: &str, least: u32) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let count = text.parse().ok().filter(|_| is_digits)?;
    (least..=COUNT_MAX).contains(&count).then_some(count)
}

/// `1%` or `0.01`.
fn share(text: &str) -> Option<f64> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let share = number.parse::<f64>().ok().filter(|_| is_plain)? / unit;
    (share <= 1.0).then_some(share)
}

fn statuses(text: &str) -> Option<Vec<u16>> {
    let known = |text: &str| [500, 429, 503].into_iter().find(|status| status.to_string() == text);
    text.split(',').map(known).collect()
}

/// Largest count of a flag. The largest answer has so many tokens of four bytes.
const COUNT_MAX: u32 = 1 << 24;

const PROFILE_FORM: &str = "one of vllm, sglang, tgi, llamacpp, openai";
const MODEL_FORM: &str = "a name";
const COUNT_FORM: &str = "a whole number, at most 16777216";
const TIME_FORM: &str = "a time such as 500ms or 2s";
const SHARE_FORM: &str = "a share such as 1% or 0.01, at most 100%";
const STATUS_FORM: &str = "one or more of 500, 429, 503, as in 429,503";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_set_what_they_name() {
        let mut config = InferenceConfig::default();
        for (flag, text) in [
            ("--profile", "llamacpp"),
            ("--model", "tiny"),
            ("--ttft", "200ms~50ms"),
            ("--itl", "10ms"),
            ("--chunks", "20"),
            ("--tokens-per-chunk", "4"),
            ("--reasoning-tokens", "0"),
            ("--max-context", "2048"),
            ("--ping", "1s"),
            ("--fail-rate", "1%"),
            ("--fail-status", "429,503"),
            ("--error-in-stream-rate", "0.5"),
            ("--truncate-rate", "100%"),
            ("--stall", "2s"),
            ("--stall-rate", "2.5%"),
            ("--stall-after", "3"),
            ("--close-after", "100"),
        ] {
            assert_eq!(config.set(flag, text), Some(Ok(())), "{flag} {text}");
        }
        assert_eq!(config.profile, Profile::LlamaCpp);
        assert_eq!(config.model.as_deref(), Some("tiny"));
        assert_eq!(config.itl, Distribution::Constant(10_000_000));
        assert_eq!(
            (config.chunks, config.tokens_per_chunk, config.max_context),
            (Some(20), 4, 2048)
        );
        let faults = &config.faults;
        let shares = [faults.fail_rate, faults.error_in_stream_rate, faults.truncate_rate];
        assert_eq!((shares, faults.stall_rate), ([0.01, 0.5, 1.0], 0.025));
        assert_eq!((&*faults.fail_status, faults.stall_ns), (&[429, 503][..], 2_000_000_000));
        assert_eq!((faults.stall_after, faults.close_after), (Some(3), Some(100)));
        assert_eq!(config.set("--nonsense", "1"), None);
    }

    #[test]
    fn wrong_values_are_refused_with_what_is_allowed() {
        for (flag, text, says) in [
            ("--profile", "ollama", "llamacpp"),
            ("--ttft", "fast", "uniform:100ms-300ms"),
            ("--chunks", "0", "whole number"),
            ("--tokens-per-chunk", "+1", "whole number"),
            ("--max-context", "16777217", "16777216"),
            ("--fail-rate", "101%", "share"),
            ("--fail-rate", "-1%", "share"),
            ("--truncate-rate", "nan", "share"),
            ("--truncate-rate", "", "share"),
            ("--fail-status", "404", "429"),
            ("--stall", "1x", "500ms"),
        ] {
            let mut config = InferenceConfig::default();
            let refusal = config.set(flag, text).expect("a flag").expect_err(text);
            assert!(refusal.contains(says), "{flag} {text}: {refusal}");
            assert_eq!(config, InferenceConfig::default());
        }
    }
}
