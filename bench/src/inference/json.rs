//! JSON of the servers that are imitated: text out of values.
//!
//! Made for each answer, not for each chunk: the one who paces an answer asks for a chunk with a
//! mark in place of its text once, and cuts it there.

use super::ask::{Ask, Call, Finish, Refusal, RefusalKind};
use super::profile::Profile;

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

impl Profile {
    /// One event of a stream, without its `data:`.
    pub(crate) fn chunk(
        self,
        meta: &Meta,
        ask: &Ask,
        delta: Delta<'_>,
        finish: Option<Finish>,
        usage: UsageMember,
    ) -> String {
        let payload = match (ask.call, delta) {
            (Call::Chat, _) => self.delta(delta),
            (_, Delta::Text(text)) => quoted(text),
            _ => quoted(""),
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
            Call::Completions | Call::Generate => quoted(text),
        };
        let choice = self.choice(ask.call, "message", &payload, Some(ask.finish));
        self.envelope(meta, ask, false, &choice, UsageMember::Tokens(usage))
    }

    /// The body of an error answer, and the payload of an error event.
    pub(crate) fn error(self, refusal: &Refusal) -> String {
        let Refusal { status, kind, message } = refusal;
        let (code, message) = (status.to_string(), json_string(message));
        let name = quoted(error_name(*status));
        let in_error = |members: &[(&str, &str)]| object(&[("error", &object(members))]);
        match self {
            Profile::Vllm => {
                let param = if *kind == RefusalKind::UnknownModel { "\"model\"" } else { "null" };
                in_error(&[
                    ("message", &message),
                    ("type", &name),
                    ("param", param),
                    ("code", &code),
                ])
            }
            Profile::Sglang => object(&[
                ("object", "\"error\""),
                ("message", &message),
                ("type", &name),
                ("param", "null"),
                ("code", &code),
            ]),
            Profile::Tgi => {
                let kind = match status {
                    429 => "\"overloaded\"",
                    500.. => "\"generation\"",
                    _ => "\"validation\"",
                };
                object(&[("error", &message), ("error_type", kind)])
            }
            Profile::LlamaCpp => {
                let name = quoted(llama_error_name(*kind, *status));
                let (mut tokens, mut context) = (String::new(), String::new());
                if let RefusalKind::Overflow { prompt_tokens, max_context } = kind {
                    (tokens, context) = (prompt_tokens.to_string(), max_context.to_string());
                }
                in_error(&[
                    ("code", &code),
                    ("message", &message),
                    ("type", &name),
                    ("n_prompt_tokens", &tokens),
                    ("n_ctx", &context),
                ])
            }
            Profile::OpenAi => {
                let (name, code) = openai_error(*kind, *status);
                in_error(&[
                    ("message", &message),
                    ("type", &quoted(name)),
                    ("param", "null"),
                    ("code", code),
                ])
            }
        }
    }

    /// The payload of an error event inside a 200.
    pub(crate) fn error_event(self, refusal: &Refusal) -> String {
        let error = self.error(refusal);
        // The one whose error body is the object itself wraps it in a stream.
        if self == Profile::Sglang { object(&[("error", &error)]) } else { error }
    }

    fn delta(self, delta: Delta<'_>) -> String {
        const ASSISTANT: (&str, &str) = ("role", "\"assistant\"");
        match (self, delta) {
            (Profile::Sglang, _) => {
                let null = || "null".to_owned();
                let (role, content, reasoning) = match delta {
                    Delta::Role => (ASSISTANT, quoted(""), null()),
                    Delta::Text(text) => (("role", "null"), quoted(text), null()),
                    Delta::Reasoning(text) => (("role", "null"), null(), quoted(text)),
                    Delta::Empty => (("role", "null"), null(), null()),
                };
                object(&[
                    role,
                    ("content", &content),
                    ("reasoning_content", &reasoning),
                    ("tool_calls", "null"),
                ])
            }
            (Profile::Tgi, Delta::Text(text) | Delta::Reasoning(text)) => {
                object(&[ASSISTANT, ("content", &quoted(text))])
            }
            (Profile::LlamaCpp, Delta::Role) => object(&[ASSISTANT, ("content", "null")]),
            (Profile::OpenAi, Delta::Role) => {
                object(&[ASSISTANT, ("content", "\"\""), ("refusal", "null")])
            }
            (_, Delta::Role) => object(&[ASSISTANT, ("content", "\"\"")]),
            (_, Delta::Text(text)) => object(&[("content", &quoted(text))]),
            (Profile::LlamaCpp, Delta::Reasoning(text)) => {
                object(&[("reasoning_content", &quoted(text))])
            }
            (_, Delta::Reasoning(text)) => object(&[("reasoning", &quoted(text))]),
            (_, Delta::Empty) => object(&[]),
        }
    }

    fn message(self, reasoning: Option<&str>, text: &str) -> String {
        let (name, absent) = match self {
            Profile::Vllm => ("reasoning", "null"),
            Profile::Sglang => ("reasoning_content", "null"),
            _ => ("reasoning_content", ""),
        };
        let reasoning = match reasoning {
            Some(text) if self.shows_reasoning() => quoted(text),
            _ => absent.to_owned(),
        };
        let refusal = if self == Profile::OpenAi { "null" } else { "" };
        object(&[
            ("role", "\"assistant\""),
            ("content", &quoted(text)),
            (name, &reasoning),
            ("refusal", refusal),
        ])
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
        let reason = ("finish_reason", reason);
        if self == Profile::LlamaCpp {
            return object(&[reason, ("index", "0"), (key, payload)]);
        }
        let stop = match self {
            Profile::Vllm if finish.is_some() => ("stop_reason", "null"),
            Profile::Sglang => ("matched_stop", "null"),
            _ => ("", ""),
        };
        object(&[("index", "0"), (key, payload), ("logprobs", "null"), reason, stop])
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
        let (prefix, name) = match (ask.call, is_chunk) {
            (Call::Chat, true) => ("chatcmpl-", "chat.completion.chunk"),
            (Call::Chat, false) => ("chatcmpl-", "chat.completion"),
            (Call::Completions | Call::Generate, _) => ("cmpl-", "text_completion"),
        };
        let is_null_shown = match self {
            Profile::Sglang | Profile::Tgi => is_chunk,
            Profile::OpenAi => is_chunk && ask.include_usage,
            Profile::Vllm | Profile::LlamaCpp => false,
        };
        let (counts, timings) = match usage {
            UsageMember::Tokens(usage) => (self.usage(usage), self.timings(usage)),
            UsageMember::Quiet if is_null_shown => ("null".to_owned(), String::new()),
            UsageMember::Quiet => (String::new(), String::new()),
        };
        let (created, choices) = (CREATED.to_string(), format!("[{choices}]"));
        let (plain_id, long_id) = (quoted(&meta.id), quoted(&format!("{prefix}{}", meta.id)));
        let object_name = quoted(name);
        let is = ("object", &*object_name);
        let created = ("created", &*created);
        let model = ("model", &*meta.model);
        let choices = ("choices", &*choices);
        let usage = ("usage", &*counts);
        let id = ("id", &*long_id);
        match self {
            Profile::Vllm => object(&[id, is, created, model, choices, usage]),
            Profile::Sglang => object(&[("id", &plain_id), is, created, model, choices, usage]),
            Profile::Tgi => {
                let print = ("system_fingerprint", "\"3.3.4-native\"");
                object(&[is, ("id", "\"\""), created, model, print, choices, usage])
            }
            Profile::LlamaCpp => {
                let print = ("system_fingerprint", "\"b0-unknown\"");
                let timings = ("timings", &*timings);
                object(&[choices, created, id, model, print, is, usage, timings])
            }
            Profile::OpenAi => {
                let tier = ("service_tier", "\"default\"");
                let print = ("system_fingerprint", "\"fp_0000000000\"");
                object(&[id, is, created, model, tier, print, choices, usage])
            }
        }
    }

    fn usage(self, usage: Usage) -> String {
        let Usage { prompt_tokens, completion_tokens, reasoning_tokens } = usage;
        let total = (u64::from(prompt_tokens) + u64::from(completion_tokens)).to_string();
        let (prompt, completion) = (prompt_tokens.to_string(), completion_tokens.to_string());
        let reasoning = object(&[("reasoning_tokens", &reasoning_tokens.to_string())]);
        let prompt = ("prompt_tokens", &*prompt);
        let completion = ("completion_tokens", &*completion);
        let total = ("total_tokens", &*total);
        let cached = ("prompt_tokens_details", "{\"cached_tokens\":0}");
        let details = ("completion_tokens_details", &*reasoning);
        match self {
            Profile::Vllm | Profile::Sglang if reasoning_tokens > 0 => {
                object(&[prompt, total, completion, details])
            }
            Profile::Vllm | Profile::Sglang => object(&[prompt, total, completion]),
            Profile::Tgi => object(&[prompt, completion, total]),
            Profile::LlamaCpp => object(&[completion, prompt, total, cached]),
            Profile::OpenAi => object(&[prompt, completion, total, cached, details]),
        }
    }

    /// What llama.cpp adds to the counts.
    fn timings(self, usage: Usage) -> String {
        if self != Profile::LlamaCpp {
            return String::new();
        }
        object(&[
            ("prompt_n", &usage.prompt_tokens.to_string()),
            ("predicted_n", &usage.completion_tokens.to_string()),
        ])
    }
}

/// An answer of SGLang's `/generate`, or what a chunk of its stream repeats.
pub(crate) fn generated(meta: &Meta, text: &str, usage: Usage, finish: Option<Finish>) -> String {
    let (prompt, completion) =
        (usage.prompt_tokens.to_string(), usage.completion_tokens.to_string());
    let finish = match finish {
        None => "null".to_owned(),
        Some(Finish::Stop) => object(&[("type", "\"stop\""), ("matched", "2")]),
        Some(Finish::Length) => object(&[("type", "\"length\""), ("length", &completion)]),
    };
    let about = object(&[
        ("id", &quoted(&meta.id)),
        ("finish_reason", &finish),
        ("prompt_tokens", &prompt),
        ("completion_tokens", &completion),
        ("cached_tokens", "0"),
    ]);
    object(&[("text", &quoted(text)), ("meta_info", &about)])
}

/// A JSON object out of names and JSON values. An empty value is no JSON: its member is left out.
pub(crate) fn object(members: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    for (name, value) in members.iter().filter(|(_, value)| !value.is_empty()) {
        if text.len() > 1 {
            text.push(',');
        }
        text.push('"');
        text.push_str(name);
        text.push_str("\":");
        text.push_str(value);
    }
    text.push('}');
    text
}

/// A text as a JSON string, quotes included.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::to_string(text).expect("every string is JSON")
}

/// A text of our own as a JSON string: nothing in it needs an escape. The mark of
/// [`stream`](super::stream) has to stay what it is.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
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

fn llama_error_name(kind: RefusalKind, status: u16) -> &'static str {
    match kind {
        RefusalKind::Overflow { .. } => "exceed_context_size_error",
        RefusalKind::UnknownModel => "not_found_error",
        RefusalKind::Fault if status == 503 => "unavailable_error",
        RefusalKind::Fault => "server_error",
        RefusalKind::Invalid => "invalid_request_error",
    }
}

/// The `type` of an error, and its `code` as JSON.
fn openai_error(kind: RefusalKind, status: u16) -> (&'static str, &'static str) {
    match kind {
        RefusalKind::UnknownModel => ("invalid_request_error", "\"model_not_found\""),
        RefusalKind::Overflow { .. } => ("invalid_request_error", "\"context_length_exceeded\""),
        RefusalKind::Invalid => ("invalid_request_error", "null"),
        RefusalKind::Fault if status == 429 => ("requests", "\"rate_limit_exceeded\""),
        RefusalKind::Fault => ("server_error", "null"),
    }
}

/// When every answer was created, s since 1970: the same request gets the same bytes.
pub(crate) const CREATED: u64 = 1_767_225_600;
