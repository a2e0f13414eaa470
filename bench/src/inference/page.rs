//! Bodies of the answers that are not generated text.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ask::{EmbeddingAsk, TOKEN_BYTES};
use super::config::InferenceConfig;
use super::draw::Draws;
use super::json::{CREATED, json_string, object};
use super::profile::Profile;

/// What the inference routes have done so far, on all threads together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) errors_in_stream: AtomicU64,
    pub(crate) truncated: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) output_tokens: AtomicU64,
    pub(crate) chunks: AtomicU64,
}

/// What the inference routes have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InferenceCounts {
    /// Requests on all inference routes.
    pub requests: u64,
    /// Of those, what was answered with an error because the request was wrong.
    pub refused: u64,
    /// Error statuses that were asked for.
    pub failed: u64,
    /// Error events inside a 200 that were asked for.
    pub errors_in_stream: u64,
    /// Answers that were to break off.
    pub truncated: u64,
    /// Answers that were to pause.
    pub stalled: u64,
    /// Tokens of the prompts of accepted requests.
    pub prompt_tokens: u64,
    /// Tokens sent, of answers that have ended.
    pub output_tokens: u64,
    /// Chunks sent, of streams that have ended.
    pub chunks: u64,
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn counts(&self) -> InferenceCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        InferenceCounts {
            requests: of(&self.requests),
            refused: of(&self.refused),
            failed: of(&self.failed),
            errors_in_stream: of(&self.errors_in_stream),
            truncated: of(&self.truncated),
            stalled: of(&self.stalled),
            prompt_tokens: of(&self.prompt_tokens),
            output_tokens: of(&self.output_tokens),
            chunks: of(&self.chunks),
        }
    }
}

/// `/metrics`, in the text format of Prometheus.
pub(crate) fn metrics(counts: InferenceCounts) -> String {
    let InferenceCounts { requests, refused, failed, errors_in_stream, truncated, .. } = counts;
    let InferenceCounts { stalled, prompt_tokens, output_tokens, chunks, .. } = counts;
    let mut text = String::new();
    for (name, help, value) in [
        ("requests", "Requests on inference routes.", requests),
        ("requests_refused", "Wrong requests.", refused),
        ("requests_failed", "Error statuses that were asked for.", failed),
        ("errors_in_stream", "Error events that were asked for.", errors_in_stream),
        ("answers_truncated", "Answers that were to break off.", truncated),
        ("answers_stalled", "Answers that were to pause.", stalled),
        ("prompt_tokens", "Tokens of accepted prompts.", prompt_tokens),
        ("output_tokens", "Tokens of ended answers.", output_tokens),
        ("chunks", "Chunks of ended streams.", chunks),
    ] {
        let name = format!("loadgen_endpoint_{name}_total");
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n");
    }
    text
}

/// `/v1/models`
pub(crate) fn models(config: &InferenceConfig) -> String {
    let model = json_string(config.model.as_deref().unwrap_or(MODEL));
    let owner = match config.profile {
        Profile::OpenAi => "system",
        profile => profile.name(),
    };
    let entry = object(&[
        ("id", &model),
        ("object", "\"model\""),
        ("created", &CREATED.to_string()),
        ("owned_by", &format!("\"{owner}\"")),
        ("root", &model),
        ("parent", "null"),
        ("max_model_len", &config.max_context.to_string()),
    ]);
    object(&[("object", "\"list\""), ("data", &format!("[{entry}]"))])
}

/// `/health`
pub(crate) fn health(profile: Profile) -> String {
    let body = if profile == Profile::LlamaCpp { r#"{"status":"ok"}"# } else { "" };
    body.to_owned()
}

/// `/tokenize`: a token is four bytes, and its id is those bytes as a number, the first the lowest.
pub(crate) fn tokenize(config: &InferenceConfig, text: &[u8]) -> String {
    let tokens = text.chunks(TOKEN_BYTES as usize).map(|token| {
        let mut bytes = [0; TOKEN_BYTES as usize];
        bytes[..token.len()].copy_from_slice(token);
        (u32::from_le_bytes(bytes), token)
    });
    if config.profile == Profile::Tgi {
        let mut start = 0;
        let tokens = tokens.map(|(id, token)| {
            let (begin, stop) = (start, start + token.len());
            start = stop;
            let text = json_string(&String::from_utf8_lossy(token));
            format!(r#"{{"id":{id},"text":{text},"start":{begin},"stop":{stop}}}"#)
        });
        return format!("[{}]", tokens.collect::<Vec<_>>().join(","));
    }
    let ids: Vec<String> = tokens.map(|(id, _)| id.to_string()).collect();
    let list = format!("[{}]", ids.join(","));
    if config.profile == Profile::LlamaCpp {
        return object(&[("tokens", &list)]);
    }
    object(&[
        ("count", &ids.len().to_string()),
        ("max_model_len", &config.max_context.to_string()),
        ("tokens", &list),
        ("token_strs", "null"),
    ])
}

/// `/v1/embeddings`: numbers from -1 to 1 in steps of 1/128, the same for the same body.
pub(crate) fn embeddings(ask: &EmbeddingAsk, model: &str, mut draws: Draws) -> String {
    let mut text = String::from(r#"{"object":"list","data":["#);
    for index in 0..ask.inputs.len() {
        let numbers =
            (0..ask.dimensions).map(|_| f32::from((draws.next_u64() >> 56) as i8) / 128.0);
        let separator = if index > 0 { "," } else { "" };
        let _ = write!(text, r#"{separator}{{"object":"embedding","index":{index},"embedding":"#);
        if ask.is_base64 {
            let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
            let _ = write!(text, "\"{}\"", base64(&bytes));
        } else {
            for (place, number) in numbers.enumerate() {
                let _ = write!(text, "{}{number}", if place > 0 { ',' } else { '[' });
            }
            text.push(']');
        }
        text.push('}');
    }
    let tokens: u64 = ask.inputs.iter().copied().map(u64::from).sum();
    let _ = write!(
        text,
        r#"],"model":{model},"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#
    );
    text
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| group.get(index).map_or(0, |&byte| u32::from(byte));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_there = digit <= group.len();
            let value = (word >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_there { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

/// The model's name where none is given.
pub(crate) const MODEL: &str = "embedded";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn both_forms_of_an_embedding_have_the_same_numbers() {
        let ask =
            |is_base64| EmbeddingAsk { model: None, inputs: vec![3, 4], dimensions: 2, is_base64 };
        let draws = Draws::of_request(1, b"x", 0);
        let plain = embeddings(&ask(false), "\"m\"", draws.clone());
        let value: serde_json::Value = serde_json::from_str(&plain).expect("JSON");
        assert_eq!(value["usage"]["prompt_tokens"], 7);
        let packed = embeddings(&ask(true), "\"m\"", draws);
        let packed: serde_json::Value = serde_json::from_str(&packed).expect("JSON");
        for index in 0..2 {
            let numbers = value["data"][index]["embedding"].as_array().expect("numbers");
            let bytes: Vec<u8> = numbers
                .iter()
                .flat_map(|number| (number.as_f64().expect("a number") as f32).to_le_bytes())
                .collect();
            assert_eq!(packed["data"][index]["embedding"], base64(&bytes));
        }
    }

    #[test]
    fn tokens_are_four_bytes_each() {
        let config = InferenceConfig::default();
        let page = tokenize(&config, b"abcdefghi");
        let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
        assert_eq!(page["count"], 3);
        let ids = [*b"abcd", *b"efgh", *b"i\0\0\0"].map(u32::from_le_bytes);
        assert_eq!(page["tokens"], serde_json::json!(ids));
    }
}
