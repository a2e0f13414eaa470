//! The bytes of the servers that are imitated.
//!
//! What each server sends is told in `docs/ENDPOINT.md`. Everything here is text out of values; the
//! one who paces an answer asks for a chunk with a mark in place of its text once, and cuts it
//! there.

use super::ask::{Ask, Call, Finish, Refusal, RefusalKind};

/// Whose bytes an inference endpoint sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// vLLM
    Vllm,
    /// SGLang, with `/generate`.
    Sglang,
    /// Text Generation Inference, with its `data:` without a space.
    Tgi,
    /// llama.cpp's server
    LlamaCpp,
    /// OpenAI's API
    OpenAi,
}

/// What all chunks of an answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    /// 16 hexadecimal digits.
    pub(crate) id: String,
    /// The model's name as a JSON string, quotes included.
    pub(crate) model: String,
}

/// What a chunk of a chat adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delta<'a> {
    Role,
    Text(&'a str),
    Reasoning(&'a str),
    Empty,
}

/// Tokens so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    pub(crate) completion_tokens: u32,
    pub(crate) reasoning_tokens: u32,
}

/// The `usage` member of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageMember {
    /// What the server writes where it has nothing to say: nothing, or null.
    Quiet,
    Tokens(Usage),
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) content: ContentType,
    pub(crate) framing: Framing,
    /// `Connection: close`
    pub(crate) is_last: bool,
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentType {
    Json,
    EventStream,
    Metrics,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    /// With the connection, for HTTP/1.0.
    Close,
}

impl Profile {
    const ALL: [Profile; 5] =
        [Profile::Vllm, Profile::Sglang, Profile::Tgi, Profile::LlamaCpp, Profile::OpenAi];

    pub(crate) fn parse(text: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == text)
    }

    /// As flags say it.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Vllm => "vllm",
            Profile::Sglang => "sglang",
            Profile::Tgi => "tgi",
            Profile::LlamaCpp => "llamacpp",
            Profile::OpenAi => "openai",
        }
    }

    /// What stands before the payload of an event.
    pub(crate) fn data(self) -> &'static str {
        if self == Profile::Tgi { "data:" } else { "data: " }
    }

    /// The last chunk with text also says why the answer ends.
    pub(crate) fn ends_with_text(self) -> bool {
        matches!(self, Profile::Vllm | Profile::Tgi)
    }

    /// The role has a chunk of its own.
    pub(crate) fn has_role_chunk(self) -> bool {
        self != Profile::Tgi
    }

    /// The role comes with the response head, long before the first token.
    pub(crate) fn is_role_early(self) -> bool {
        self == Profile::OpenAi
    }

    /// Role and first text, or end and usage, share an HTTP chunk.
    pub(crate) fn joins_events(self) -> bool {
        self == Profile::LlamaCpp
    }

    /// Reasoning is sent; else its time passes in silence.
    pub(crate) fn shows_reasoning(self) -> bool {
        self != Profile::OpenAi
    }

    /// Reasoning is told apart from the answer.
    pub(crate) fn has_reasoning(self) -> bool {
        self != Profile::Tgi
    }

    /// An error event is followed by the `[DONE]` of a good stream.
    pub(crate) fn has_done_after_error(self) -> bool {
        matches!(self, Profile::Vllm | Profile::Sglang)
    }

    /// Silence after which a comment is sent, ns; 0: never.
    pub(crate) fn ping_ns(self) -> u64 {
        if self == Profile::LlamaCpp { 1_000_000_000 } else { 0 }
    }

    /// Requests of a connection; 0: no limit.
    pub(crate) fn close_after(self) -> u32 {
        if self == Profile::LlamaCpp { 100 } else { 0 }
    }

    /// The connection closes with an error answer.
    pub(crate) fn closes_on_error(self) -> bool {
        self == Profile::LlamaCpp
    }

    /// The status of a refusal: TGI has its own for what it cannot accept.
    pub(crate) fn status(self, refusal: &Refusal) -> u16 {
        if self == Profile::Tgi && refusal.status == 400 { 422 } else { refusal.status }
    }

    /// A response head.
    pub(crate) fn head(self, head: Head) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\n", head.status, reason(head.status)).into_bytes();
        let is_stream = head.content == ContentType::EventStream;
        let content = match head.content {
            ContentType::Json if self == Profile::LlamaCpp => "application/json; charset=utf-8",
            ContentType::Json => "application/json",
            ContentType::EventStream if matches!(self, Profile::Tgi | Profile::LlamaCpp) => {
                "text/event-stream"
            }
            ContentType::EventStream => "text/event-stream; charset=utf-8",
            ContentType::Metrics => "text/plain; version=0.0.4; charset=utf-8",
        };
        let mut field = |name: &str, value: &str| {
            let is_lower = !matches!(self, Profile::LlamaCpp | Profile::OpenAi);
            let name = if is_lower { name.to_ascii_lowercase() } else { name.to_owned() };
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        };
        match self {
            Profile::Vllm | Profile::Sglang => field("Server", "uvicorn"),
            Profile::LlamaCpp => field("Server", "llama.cpp"),
            Profile::OpenAi => field("Server", "cloudflare"),
            Profile::Tgi => field("X-Compute-Type", "cpu"),
        }
        if matches!(self, Profile::LlamaCpp) {
            field("Access-Control-Allow-Origin", "");
        }
        if is_stream && matches!(self, Profile::LlamaCpp | Profile::Tgi) {
            field("X-Accel-Buffering", "no");
        }
        field("Content-Type", content);
        if is_stream && self == Profile::Tgi {
            field("Cache-Control", "no-cache");
        }
        if is_stream && self == Profile::Vllm {
            field("Vary", "Origin");
        }
        if matches!(head.status, 429 | 503) {
            field("Retry-After", "1");
        }
        match head.framing {
            Framing::Length(bytes) => field("Content-Length", &bytes.to_string()),
            Framing::Chunked => field("Transfer-Encoding", "chunked"),
            Framing::Close => {}
        }
        match (self, head.is_last) {
            (_, true) => field("Connection", "close"),
            (Profile::LlamaCpp, false) => field("Keep-Alive", "timeout=5, max=100"),
            (Profile::OpenAi, false) => field("Connection", "keep-alive"),
            _ => {}
        }
        text.extend_from_slice(b"\r\n");
        text
    }

    /// One event of a stream, without its `data:`.
    pub(crate) fn chunk(
        self,
        meta: &Meta,
        ask: &Ask,
        delta: Delta<'_>,
        finish: Option<Finish>,
        usage: UsageMember,
    ) -> String {
        let payload = match ask.call {
            Call::Chat => self.delta(delta),
            Call::Completions | Call::Generate => match delta {
                Delta::Text(text) => format!("\"{text}\""),
                _ => "\"\"".to_owned(),
            },
        };
        let choice = self.choice(ask.call, "delta", &payload, finish);
        self.envelope(meta, ask, true, &choice, usage)
    }

    /// The chunk that only has the counts.
    pub(crate) fn usage_chunk(self, meta: &Meta, ask: &Ask, usage: Usage) -> String {
        self.envelope(meta, ask, true, "", UsageMember::Tokens(usage))
    }

    /// The body of an answer that does not stream.
    pub(crate) fn whole(
        self,
        meta: &Meta,
        ask: &Ask,
        reasoning: Option<&str>,
        text: &str,
        usage: Usage,
    ) -> String {
        let payload = match ask.call {
            Call::Chat => self.message(reasoning, text),
            Call::Completions | Call::Generate => format!("\"{text}\""),
        };
        let choice = self.choice(ask.call, "message", &payload, Some(ask.finish));
        self.envelope(meta, ask, false, &choice, UsageMember::Tokens(usage))
    }

    /// An answer of SGLang's `/generate`, or what a chunk of its stream repeats.
    pub(crate) fn generated(
        meta: &Meta,
        text: &str,
        usage: Usage,
        finish: Option<Finish>,
    ) -> String {
        let finish = match finish {
            None => "null".to_owned(),
            Some(Finish::Stop) => r#"{"type":"stop","matched":2}"#.to_owned(),
            Some(Finish::Length) => {
                format!(r#"{{"type":"length","length":{}}}"#, usage.completion_tokens)
            }
        };
        format!(
            r#"{{"text":"{text}","meta_info":{{"id":"{}","finish_reason":{finish},"prompt_tokens":{},"completion_tokens":{},"cached_tokens":0}}}}"#,
            meta.id, usage.prompt_tokens, usage.completion_tokens
        )
    }

    /// The body of an error answer, and the payload of an error event.
    pub(crate) fn error(self, refusal: &Refusal) -> String {
        let Refusal { status, kind, message } = refusal;
        let message = json_string(message);
        let name = error_name(*status);
        match self {
            Profile::Vllm => {
                let param = if *kind == RefusalKind::UnknownModel { "\"model\"" } else { "null" };
                format!(
                    r#"{{"error":{{"message":{message},"type":"{name}","param":{param},"code":{status}}}}}"#
                )
            }
            Profile::Sglang => format!(
                r#"{{"object":"error","message":{message},"type":"{name}","param":null,"code":{status}}}"#
            ),
            Profile::Tgi => {
                let kind = match status {
                    429 => "overloaded",
                    500.. => "generation",
                    _ => "validation",
                };
                format!(r#"{{"error":{message},"error_type":"{kind}"}}"#)
            }
            Profile::LlamaCpp => {
                let (name, counts) = match *kind {
                    RefusalKind::Overflow { prompt_tokens, max_context } => (
                        "exceed_context_size_error",
                        format!(r#","n_prompt_tokens":{prompt_tokens},"n_ctx":{max_context}"#),
                    ),
                    RefusalKind::UnknownModel => ("not_found_error", String::new()),
                    RefusalKind::Fault if *status == 503 => ("unavailable_error", String::new()),
                    RefusalKind::Fault => ("server_error", String::new()),
                    RefusalKind::Invalid => ("invalid_request_error", String::new()),
                };
                format!(
                    r#"{{"error":{{"code":{status},"message":{message},"type":"{name}"{counts}}}}}"#
                )
            }
            Profile::OpenAi => {
                let (name, code) = match kind {
                    RefusalKind::UnknownModel => ("invalid_request_error", "\"model_not_found\""),
                    RefusalKind::Overflow { .. } => {
                        ("invalid_request_error", "\"context_length_exceeded\"")
                    }
                    RefusalKind::Invalid => ("invalid_request_error", "null"),
                    RefusalKind::Fault if *status == 429 => ("requests", "\"rate_limit_exceeded\""),
                    RefusalKind::Fault => ("server_error", "null"),
                };
                format!(
                    r#"{{"error":{{"message":{message},"type":"{name}","param":null,"code":{code}}}}}"#
                )
            }
        }
    }

    /// The payload of an error event inside a 200.
    pub(crate) fn error_event(self, refusal: &Refusal) -> String {
        let error = self.error(refusal);
        // Those whose error body is the object itself wrap it in a stream.
        if self == Profile::Sglang { format!(r#"{{"error":{error}}}"#) } else { error }
    }

    fn delta(self, delta: Delta<'_>) -> String {
        if self == Profile::Sglang {
            let (role, content, reasoning) = match delta {
                Delta::Role => ("\"assistant\"", "\"\"".to_owned(), "null".to_owned()),
                Delta::Text(text) => ("null", format!("\"{text}\""), "null".to_owned()),
                Delta::Reasoning(text) => ("null", "null".to_owned(), format!("\"{text}\"")),
                Delta::Empty => ("null", "null".to_owned(), "null".to_owned()),
            };
            return format!(
                r#"{{"role":{role},"content":{content},"reasoning_content":{reasoning},"tool_calls":null}}"#
            );
        }
        match (self, delta) {
            (Profile::Tgi, Delta::Text(text) | Delta::Reasoning(text)) => {
                format!(r#"{{"role":"assistant","content":"{text}"}}"#)
            }
            (Profile::LlamaCpp, Delta::Role) => r#"{"role":"assistant","content":null}"#.to_owned(),
            (Profile::OpenAi, Delta::Role) => {
                r#"{"role":"assistant","content":"","refusal":null}"#.to_owned()
            }
            (_, Delta::Role) => r#"{"role":"assistant","content":""}"#.to_owned(),
            (_, Delta::Text(text)) => format!(r#"{{"content":"{text}"}}"#),
            (Profile::LlamaCpp, Delta::Reasoning(text)) => {
                format!(r#"{{"reasoning_content":"{text}"}}"#)
            }
            (_, Delta::Reasoning(text)) => format!(r#"{{"reasoning":"{text}"}}"#),
            (_, Delta::Empty) => "{}".to_owned(),
        }
    }

    fn message(self, reasoning: Option<&str>, text: &str) -> String {
        let reasoning = match (self, reasoning) {
            (Profile::Vllm, Some(text)) => format!(r#","reasoning":"{text}""#),
            (Profile::Vllm, None) => r#","reasoning":null"#.to_owned(),
            (Profile::Sglang, None) => r#","reasoning_content":null"#.to_owned(),
            (Profile::Sglang | Profile::LlamaCpp, Some(text)) => {
                format!(r#","reasoning_content":"{text}""#)
            }
            (Profile::OpenAi, _) => r#","refusal":null"#.to_owned(),
            _ => String::new(),
        };
        format!(r#"{{"role":"assistant","content":"{text}"{reasoning}}}"#)
    }

    /// One element of `choices`; `key` names the payload of a chat.
    fn choice(self, call: Call, key: &str, payload: &str, finish: Option<Finish>) -> String {
        let key = if call == Call::Chat { key } else { "text" };
        let reason = match finish {
            Some(Finish::Stop) => "\"stop\"",
            Some(Finish::Length) => "\"length\"",
            // Not null: a quirk of its completions.
            None if self == Profile::Tgi && call == Call::Completions => "\"\"",
            None => "null",
        };
        let rest = match self {
            Profile::Vllm if finish.is_some() => r#","stop_reason":null"#,
            Profile::Sglang => r#","matched_stop":null"#,
            _ => "",
        };
        if self == Profile::LlamaCpp {
            return format!(r#"{{"finish_reason":{reason},"index":0,"{key}":{payload}}}"#);
        }
        format!(r#"{{"index":0,"{key}":{payload},"logprobs":null,"finish_reason":{reason}{rest}}}"#)
    }

    /// What is around `choices`.
    fn envelope(
        self,
        meta: &Meta,
        ask: &Ask,
        is_chunk: bool,
        choices: &str,
        usage: UsageMember,
    ) -> String {
        let Meta { id, model } = meta;
        let (prefix, object) = match (ask.call, is_chunk) {
            (Call::Chat, true) => ("chatcmpl-", "chat.completion.chunk"),
            (Call::Chat, false) => ("chatcmpl-", "chat.completion"),
            (Call::Completions | Call::Generate, _) => ("cmpl-", "text_completion"),
        };
        let is_null_shown = match self {
            Profile::Sglang | Profile::Tgi => is_chunk,
            Profile::OpenAi => is_chunk && ask.include_usage,
            Profile::Vllm | Profile::LlamaCpp => false,
        };
        let usage = match usage {
            UsageMember::Tokens(usage) => format!(r#","usage":{}"#, self.usage(usage)),
            UsageMember::Quiet if is_null_shown => r#","usage":null"#.to_owned(),
            UsageMember::Quiet => String::new(),
        };
        match self {
            Profile::Vllm => format!(
                r#"{{"id":"{prefix}{id}","object":"{object}","created":{CREATED},"model":{model},"choices":[{choices}]{usage}}}"#
            ),
            Profile::Sglang => format!(
                r#"{{"id":"{id}","object":"{object}","created":{CREATED},"model":{model},"choices":[{choices}]{usage}}}"#
            ),
            Profile::Tgi => format!(
                r#"{{"object":"{object}","id":"","created":{CREATED},"model":{model},"system_fingerprint":"3.3.4-native","choices":[{choices}]{usage}}}"#
            ),
            Profile::LlamaCpp => format!(
                r#"{{"choices":[{choices}],"created":{CREATED},"id":"{prefix}{id}","model":{model},"system_fingerprint":"b0-unknown","object":"{object}"{usage}}}"#
            ),
            Profile::OpenAi => format!(
                r#"{{"id":"{prefix}{id}","object":"{object}","created":{CREATED},"model":{model},"service_tier":"default","system_fingerprint":"fp_0000000000","choices":[{choices}]{usage}}}"#
            ),
        }
    }

    fn usage(self, usage: Usage) -> String {
        let Usage { prompt_tokens, completion_tokens, reasoning_tokens } = usage;
        let total = u64::from(prompt_tokens) + u64::from(completion_tokens);
        let details =
            format!(r#","completion_tokens_details":{{"reasoning_tokens":{reasoning_tokens}}}"#);
        match self {
            Profile::Vllm | Profile::Sglang => {
                let details = if reasoning_tokens > 0 { &*details } else { "" };
                format!(
                    r#"{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{completion_tokens}{details}}}"#
                )
            }
            Profile::Tgi => format!(
                r#"{{"prompt_tokens":{prompt_tokens},"completion_tokens":{completion_tokens},"total_tokens":{total}}}"#
            ),
            Profile::LlamaCpp => format!(
                r#"{{"completion_tokens":{completion_tokens},"prompt_tokens":{prompt_tokens},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0}}}},"timings":{{"prompt_n":{prompt_tokens},"predicted_n":{completion_tokens}}}"#
            ),
            Profile::OpenAi => format!(
                r#"{{"prompt_tokens":{prompt_tokens},"completion_tokens":{completion_tokens},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0}}{details}}}"#
            ),
        }
    }
}

/// A text as a JSON string, quotes included.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::to_string(text).expect("every string is JSON")
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

/// The `type` of an error, by the names of vLLM and SGLang.
fn error_name(status: u16) -> &'static str {
    match status {
        404 => "NotFoundError",
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        500.. => "InternalServerError",
        _ => "BadRequestError",
    }
}

/// When every answer was created, s since 1970: the same request gets the same bytes.
pub(crate) const CREATED: u64 = 1_767_225_600;
