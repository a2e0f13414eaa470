//! What a request body asks for: JSON in, a typed demand or a refusal out.
//!
//! Only what the answer depends on is read; unknown members are skipped. A token is four bytes: a
//! prompt of n bytes of text has n / 4 tokens, rounded up, over all its messages together, and
//! every token of an answer is four bytes long, so that counting it by the same rule gives the
//! count in `usage`.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::config::InferenceConfig;
use crate::route::Route;

/// A request for generated text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// As it was asked for; `None`: not named.
    pub(crate) model: Option<String>,
    pub(crate) call: Call,
    pub(crate) is_stream: bool,
    /// Tokens are counted in a stream too.
    pub(crate) include_usage: bool,
    /// In each chunk, what there is so far.
    pub(crate) continuous_usage: bool,
    pub(crate) prompt_tokens: u32,
    /// Tokens of the answer, at least 1.
    pub(crate) tokens: u32,
    /// The first of them that are reasoning.
    pub(crate) reasoning_tokens: u32,
    pub(crate) finish: Finish,
}

impl Ask {
    /// Tokens of the chunk after the first `sent` tokens. None has reasoning and text.
    pub(crate) fn chunk_tokens(&self, sent: u32, tokens_per_chunk: u32) -> u32 {
        let end = if sent < self.reasoning_tokens { self.reasoning_tokens } else { self.tokens };
        tokens_per_chunk.min(end - sent)
    }
}

/// Which form the answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Chat,
    Completions,
    /// SGLang's own; each chunk repeats the text so far.
    Generate,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The endpoint had no more to say.
    Stop,
    /// It may say no more.
    Length,
}

/// A request for embeddings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmbeddingAsk {
    pub(crate) model: Option<String>,
    /// Tokens of each input.
    pub(crate) inputs: Vec<u32>,
    pub(crate) dimensions: u32,
    pub(crate) is_base64: bool,
}

/// Why a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) kind: RefusalKind,
    pub(crate) message: String,
}

/// What differs in the error bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    Invalid,
    UnknownModel,
    Overflow {
        prompt_tokens: u32,
        max_context: u32,
    },
    /// A fault that was asked for.
    Fault,
}

impl Refusal {
    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal { status: 400, kind: RefusalKind::Invalid, message: message.into() }
    }
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    messages: Option<Vec<Message>>,
    prompt: Option<Input>,
    text: Option<Input>,
    input_ids: Option<Input>,
    input: Option<Input>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    min_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    n: Option<u64>,
    sampling_params: Option<SamplingParams>,
    dimensions: Option<u64>,
    #[serde(borrow)]
    encoding_format: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

/// The limits of `/generate`, by their names there.
#[derive(Default, Deserialize)]
struct SamplingParams {
    max_new_tokens: Option<u64>,
    min_new_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    n: Option<u64>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
}

/// Bytes of text: of a string, or of the `text` members of an array of parts.
struct Content(u64);

#[derive(Deserialize)]
struct Part {
    text: Option<Content>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Content;

            fn expecting(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                form.write_str("a string or an array of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content(text.len() as u64))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
                let mut bytes = 0;
                while let Some(part) = parts.next_element::<Part>()? {
                    bytes += part.text.map_or(0, |Content(bytes)| bytes);
                }
                Ok(Content(bytes))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Tokens of a prompt or of several, each for itself: a string, token ids, or an array of either.
struct Input(Vec<u64>);

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Input, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Input;

            fn expecting(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                form.write_str("a string, token ids, or an array of either")
            }

            fn visit_str<E>(self, text: &str) -> Result<Input, E> {
                Ok(Input(vec![tokens_of(text.len() as u64)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Input, A::Error> {
                let (mut inputs, mut ids) = (Vec::new(), 0u64);
                while let Some(item) = items.next_element::<Item>()? {
                    match item {
                        Item::Id => ids += 1,
                        Item::Input(tokens) => inputs.push(tokens),
                    }
                }
                match (ids, inputs.is_empty()) {
                    (0, _) => Ok(Input(inputs)),
                    (ids, true) => Ok(Input(vec![ids])),
                    (_, false) => {
                        let mixed = "token ids and prompts in one array";
                        Err(serde::de::Error::custom(mixed))
                    }
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// An element of the array form of [`Input`].
enum Item {
    Id,
    /// Its tokens.
    Input(u64),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Item;

            fn expecting(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                form.write_str("a string, a token id or an array of token ids")
            }

            fn visit_u64<E>(self, _id: u64) -> Result<Item, E> {
                Ok(Item::Id)
            }

            fn visit_str<E>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Input(tokens_of(text.len() as u64)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut ids: A) -> Result<Item, A::Error> {
                let mut tokens = 0;
                while ids.next_element::<u64>()?.is_some() {
                    tokens += 1;
                }
                Ok(Item::Input(tokens))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Reads a request for generated text.
pub(crate) fn read(route: Route, bytes: &[u8], config: &InferenceConfig) -> Result<Ask, Refusal> {
    let body = parse(bytes)?;
    check_model(&body, config)?;
    let (call, prompt_tokens) = match route {
        Route::Chat => (Call::Chat, tokens_of(text_bytes(body.messages.as_deref(), "messages")?)),
        Route::Completions => (Call::Completions, one_prompt(body.prompt.as_ref(), "prompt")?),
        _ => (Call::Generate, one_prompt(body.text.as_ref().or(body.input_ids.as_ref()), "text")?),
    };
    let own = body.sampling_params.unwrap_or_default();
    if body.n.or(own.n).is_some_and(|n| n != 1) {
        return Err(Refusal::invalid("n must be 1: this endpoint gives one choice"));
    }
    let limit = body.max_completion_tokens.or(body.max_tokens).or(own.max_new_tokens);
    if limit == Some(0) {
        return Err(Refusal::invalid("max_tokens must be at least 1, got 0"));
    }
    let asked = prompt_tokens.saturating_add(limit.unwrap_or(1));
    if asked > u64::from(config.max_context) {
        return Err(overflow(prompt_tokens, limit, config.max_context));
    }
    let room = u64::from(config.max_context) - prompt_tokens;
    let ignores_eos = body.ignore_eos.or(own.ignore_eos).unwrap_or(false);
    let least = body.min_tokens.or(own.min_new_tokens).unwrap_or(0);
    let wanted = config
        .chunks
        .map_or(TOKENS_DEFAULT, |chunks| u64::from(chunks) * u64::from(config.tokens_per_chunk));
    let (tokens, finish) = match limit {
        // It never stops by itself, or it has so much to say.
        Some(limit) if ignores_eos || config.chunks.is_none() || wanted.max(least) >= limit => {
            (limit, Finish::Length)
        }
        _ if wanted.max(least) > room => (room, Finish::Length),
        _ => (wanted.max(least), Finish::Stop),
    };
    let options = body.stream_options.unwrap_or_default();
    let continuous_usage = options.continuous_usage_stats.unwrap_or(false);
    let has_reasoning = call == Call::Chat && config.profile.has_reasoning();
    let reasoning = if has_reasoning { u64::from(config.reasoning_tokens) } else { 0 };
    Ok(Ask {
        model: body.model.map(Cow::into_owned),
        call,
        is_stream: body.stream.unwrap_or(false),
        include_usage: options.include_usage.unwrap_or(false),
        continuous_usage,
        prompt_tokens: prompt_tokens as u32,
        tokens: tokens as u32,
        reasoning_tokens: reasoning.min(tokens) as u32,
        finish,
    })
}

/// Reads a request for embeddings.
pub(crate) fn read_embedding(
    bytes: &[u8],
    config: &InferenceConfig,
) -> Result<EmbeddingAsk, Refusal> {
    let body = parse(bytes)?;
    check_model(&body, config)?;
    let inputs = body.input.map(|Input(inputs)| inputs).filter(|inputs| !inputs.is_empty());
    let inputs = inputs.ok_or_else(|| Refusal::invalid("input is missing or empty"))?;
    let longest = inputs.iter().copied().max().unwrap_or(0);
    if longest > u64::from(config.max_context) {
        return Err(overflow(longest, None, config.max_context));
    }
    let dimensions = body.dimensions.unwrap_or(DIMENSIONS_DEFAULT);
    let numbers = dimensions.saturating_mul(inputs.len() as u64);
    if dimensions == 0 || numbers > EMBEDDING_NUMBERS_LIMIT {
        let limit = EMBEDDING_NUMBERS_LIMIT;
        return Err(Refusal::invalid(format!("dimensions times inputs must be from 1 to {limit}")));
    }
    let is_base64 = match body.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Refusal::invalid("encoding_format must be float or base64")),
    };
    Ok(EmbeddingAsk {
        model: body.model.map(Cow::into_owned),
        inputs: inputs.iter().map(|&tokens| tokens as u32).collect(),
        dimensions: dimensions as u32,
        is_base64,
    })
}

/// The bytes of text that are to be cut into tokens.
pub(crate) fn read_tokenize(bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    #[derive(Deserialize)]
    struct Text<'a> {
        #[serde(borrow)]
        prompt: Option<Cow<'a, str>>,
        #[serde(borrow)]
        content: Option<Cow<'a, str>>,
        #[serde(borrow)]
        inputs: Option<Cow<'a, str>>,
        messages: Option<Vec<TextMessage>>,
    }
    #[derive(Deserialize)]
    struct TextMessage {
        content: String,
    }
    let text: Text<'_> = serde_json::from_slice(bytes).map_err(not_json)?;
    if let Some(messages) = text.messages {
        return Ok(messages.iter().flat_map(|message| message.content.bytes()).collect());
    }
    let text = text.prompt.or(text.content).or(text.inputs);
    let text = text.ok_or_else(|| Refusal::invalid("prompt is missing"))?;
    Ok(text.into_owned().into_bytes())
}

/// Tokens of a text of `bytes`.
pub(crate) fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(TOKEN_BYTES)
}

fn parse(bytes: &[u8]) -> Result<Body<'_>, Refusal> {
    serde_json::from_slice(bytes).map_err(not_json)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err asks for")]
fn not_json(error: serde_json::Error) -> Refusal {
    Refusal::invalid(format!("cannot read the request body: {error}"))
}

fn check_model(body: &Body<'_>, config: &InferenceConfig) -> Result<(), Refusal> {
    let Some(asked) = body.model.as_deref() else { return Ok(()) };
    let is_known = config.model.as_deref().is_none_or(|known| known == asked);
    if is_known && asked.len() <= MODEL_BYTES_LIMIT {
        return Ok(());
    }
    let mut shown: String = asked.chars().take(MODEL_CHARS_SHOWN).collect();
    if shown.len() < asked.len() {
        shown += "…";
    }
    let message = format!("The model `{shown}` does not exist.");
    Err(Refusal { status: 404, kind: RefusalKind::UnknownModel, message })
}

fn text_bytes(messages: Option<&[Message]>, name: &str) -> Result<u64, Refusal> {
    let messages = messages.filter(|messages| !messages.is_empty());
    let messages =
        messages.ok_or_else(|| Refusal::invalid(format!("{name} is missing or empty")))?;
    let bytes = |message: &Message| message.content.as_ref().map_or(0, |content| content.0);
    Ok(messages.iter().map(bytes).sum())
}

fn one_prompt(input: Option<&Input>, name: &str) -> Result<u64, Refusal> {
    match input.map(|Input(prompts)| prompts.as_slice()) {
        Some(&[tokens]) => Ok(tokens),
        None | Some([]) => Err(Refusal::invalid(format!("{name} is missing or empty"))),
        Some(_) => Err(Refusal::invalid(format!("{name} must be one prompt, not several"))),
    }
}

fn overflow(prompt_tokens: u64, limit: Option<u64>, max_context: u32) -> Refusal {
    let asked = match limit {
        Some(limit) => format!(" and {limit} tokens are asked for"),
        None => String::new(),
    };
    Refusal {
        status: 400,
        kind: RefusalKind::Overflow {
            prompt_tokens: u32::try_from(prompt_tokens).unwrap_or(u32::MAX),
            max_context,
        },
        message: format!(
            "This model's maximum context length is {max_context} tokens, but the prompt has \
             {prompt_tokens} tokens{asked}."
        ),
    }
}

/// Bytes of a token.
pub(crate) const TOKEN_BYTES: u64 = 4;
/// Tokens of an answer that neither the request nor `--chunks` limits.
const TOKENS_DEFAULT: u64 = 128;
const DIMENSIONS_DEFAULT: u64 = 384;
/// Numbers in one answer with embeddings.
const EMBEDDING_NUMBERS_LIMIT: u64 = 1 << 20;
/// A model's name comes back in each chunk.
const MODEL_BYTES_LIMIT: usize = 256;
const MODEL_CHARS_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> InferenceConfig {
        InferenceConfig { max_context: 1000, ..InferenceConfig::default() }
    }

    fn chat(members: &str) -> String {
        format!(r#"{{"messages":[{{"role":"user","content":"12345678"}}]{members}}}"#)
    }

    #[test]
    fn tokens_and_finish_follow_the_limits() {
        let cases: &[(&str, Option<u32>, u32, Finish)] = &[
            ("", None, 128, Finish::Stop),
            (r#","max_tokens":5"#, None, 5, Finish::Length),
            (r#","max_tokens":5,"max_completion_tokens":6"#, None, 6, Finish::Length),
            (r#","max_tokens":null"#, None, 128, Finish::Stop),
            ("", Some(10), 20, Finish::Stop),
            (r#","max_tokens":20"#, Some(10), 20, Finish::Length),
            (r#","max_tokens":21"#, Some(10), 20, Finish::Stop),
            (r#","max_tokens":19"#, Some(10), 19, Finish::Length),
            (r#","max_tokens":50,"ignore_eos":true"#, Some(10), 50, Finish::Length),
            (r#","max_tokens":50,"min_tokens":30"#, Some(10), 30, Finish::Stop),
            (r#","min_tokens":30"#, Some(10), 30, Finish::Stop),
            (r#","max_tokens":998"#, None, 998, Finish::Length),
            ("", Some(5000), 998, Finish::Length),
        ];
        for &(members, chunks, tokens, finish) in cases {
            let config = InferenceConfig { chunks, tokens_per_chunk: 2, ..config() };
            let ask = read(Route::Chat, chat(members).as_bytes(), &config).expect(members);
            assert_eq!((ask.tokens, ask.finish), (tokens, finish), "{members} {chunks:?}");
            assert_eq!(ask.prompt_tokens, 2);
        }
    }

    #[test]
    fn prompts_of_every_form_are_counted() {
        let chat = |content: &str| {
            let one = format!(r#"{{"content":{content}}}"#);
            (Route::Chat, format!(r#"{{"messages":[{{"role":"system","content":null}},{one}]}}"#))
        };
        let prompt = |prompt: &str| (Route::Completions, format!(r#"{{"prompt":{prompt}}}"#));
        let parts =
            r#"[{"type":"text","text":"12345"},{"type":"image_url","image_url":{"url":"x"}}]"#;
        for ((route, body), tokens) in [
            (chat("\"\""), 0),
            (chat("\"12345\""), 2),
            (chat(r#""\u00e4\n""#), 1),
            (chat(parts), 2),
            (prompt("\"123\""), 1),
            (prompt("[\"123456789\"]"), 3),
            (prompt("[1,2,3,4,5]"), 5),
            (prompt("[[1,2,3]]"), 3),
            ((Route::Generate, r#"{"text":"12345"}"#.to_owned()), 2),
            ((Route::Generate, r#"{"input_ids":[7,8,9]}"#.to_owned()), 3),
        ] {
            let ask = read(route, body.as_bytes(), &config()).expect(&body);
            assert_eq!(ask.prompt_tokens, tokens, "{body}");
        }
    }

    #[test]
    fn wrong_requests_are_refused_with_their_reason() {
        let known = InferenceConfig { model: Some("tiny".to_owned()), ..config() };
        for (body, status, says) in [
            ("".to_owned(), 400, "EOF"),
            ("{".to_owned(), 400, "EOF"),
            ("[]".to_owned(), 400, "cannot read"),
            ("{}".to_owned(), 400, "messages is missing"),
            (r#"{"messages":[]}"#.to_owned(), 400, "messages is missing"),
            (r#"{"messages":"hi"}"#.to_owned(), 400, "expected a sequence"),
            (chat(",\"max_tokens\":0"), 400, "at least 1"),
            (chat(",\"max_tokens\":-1"), 400, "-1"),
            (chat(",\"max_tokens\":1.5"), 400, "1.5"),
            (chat(",\"max_tokens\":1e30"), 400, "cannot read"),
            (chat(",\"n\":2"), 400, "n must be 1"),
            (chat(",\"stream\":\"yes\""), 400, "boolean"),
            (chat(",\"model\":\"other\""), 404, "`other` does not exist"),
            (chat(",\"max_tokens\":999"), 400, "maximum context length is 1000 tokens"),
            (chat(",\"max_tokens\":18446744073709551615"), 400, "maximum context length"),
            (chat("} x"), 400, "trailing"),
            (format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)), 400, "cannot read"),
            (chat(&format!(",\"x\":{}", "{\"a\":".repeat(100_000))), 400, "cannot read"),
            (
                format!("{{\"messages\":[{{\"content\":{}", "[{\"text\":".repeat(100_000)),
                400,
                "recursion",
            ),
        ] {
            let refusal = read(Route::Chat, body.as_bytes(), &known);
            let refusal = refusal.expect_err(&body[..body.len().min(80)]);
            assert_eq!(refusal.status, status, "{refusal:?}");
            assert!(refusal.message.contains(says), "{refusal:?}");
        }
        let invalid_utf8 = b"{\"messages\":[{\"content\":\"\xff\"}]}";
        assert!(read(Route::Chat, invalid_utf8, &known).is_err());
        let several = br#"{"prompt":["a","b"]}"#;
        assert!(read(Route::Completions, several, &known).is_err());
        let mixed = br#"{"prompt":[1,"b"]}"#;
        assert!(read(Route::Completions, mixed, &known).is_err());
        let long = chat(&format!(",\"model\":\"{}\"", "m".repeat(10_000)));
        let refusal = read(Route::Chat, long.as_bytes(), &config()).expect_err("too long");
        assert!(refusal.message.len() < 200);
    }

    #[test]
    fn embeddings_take_one_or_several_inputs() {
        for (body, inputs, dimensions) in [
            (r#"{"input":"12345"}"#, &[2][..], 384),
            (r#"{"input":["1","12345"],"dimensions":8}"#, &[1, 2], 8),
            (r#"{"input":[1,2,3]}"#, &[3], 384),
            (r#"{"input":[[1],[1,2]],"encoding_format":"base64"}"#, &[1, 2], 384),
        ] {
            let ask = read_embedding(body.as_bytes(), &config()).expect(body);
            assert_eq!((&*ask.inputs, ask.dimensions), (inputs, dimensions), "{body}");
            assert_eq!(ask.is_base64, body.contains("base64"));
        }
        for body in [
            "{}",
            r#"{"input":[]}"#,
            r#"{"input":"a","dimensions":0}"#,
            r#"{"input":"a","dimensions":1048577}"#,
            r#"{"input":"a","encoding_format":"int8"}"#,
        ] {
            assert!(read_embedding(body.as_bytes(), &config()).is_err(), "{body}");
        }
    }
}
