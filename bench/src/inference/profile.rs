//! The servers that are imitated: their habits, and the heads of their responses. What each of them
//! sends is told in `docs/ENDPOINT.md`.

use super::ask::Refusal;

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
