//! The answer of an inference endpoint, read as it arrives: when its chunks came, what they
//! carried, how it ended.
//!
//! One [`Answer`] belongs to each connection slot. The shard feeds it the body bytes of a response
//! with the stamp of the receive that brought them, and asks for the [`Verdict`] when the response
//! is over. Nothing here knows of sockets or of time but those stamps.

mod reader;
mod repeated;
#[cfg(test)]
mod tests;

pub use self::reader::Answer;
use crate::failure::{FailureKind, Message};

/// How the answers of a run are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerFormat {
    /// Not at all: plain HTTP, the status decides.
    Plain,
    /// OpenAI chat completions: `choices[].delta` in a stream, else `choices[].message`.
    Chat,
    /// OpenAI completions: `choices[].text`.
    Completions,
    /// SGLang's `/generate`: `text` is all text so far, `meta_info` has the counts.
    Generate,
    /// OpenAI embeddings: `data[].embedding`, `usage.prompt_tokens`; nothing is generated.
    Embeddings,
    /// The text is at this path of a JSON answer, or of each event's data.
    Field(Box<[PathStep]>),
}

/// One step of a path into a JSON document, as in `choices[0].text`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// Member of an object.
    Key(Box<str>),
    /// Element of an array.
    Index(usize),
}

/// What holds for every answer of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPlan {
    /// How they are read.
    pub format: AnswerFormat,
    /// Chunks that are not JSON are skipped and counted instead of failing the query.
    pub is_lenient: bool,
    /// Longest event of a stream, and longest answer that is not streamed, bytes.
    pub bytes_limit: usize,
    /// Keep what was generated, as text.
    pub keeps_text: bool,
    /// Chunks that an answer is expected to have: room that is taken before the run.
    pub chunks_expected: usize,
}

impl AnswerPlan {
    /// Plain HTTP.
    pub const PLAIN: AnswerPlan = AnswerPlan {
        format: AnswerFormat::Plain,
        is_lenient: false,
        bytes_limit: 16 << 20,
        keeps_text: false,
        chunks_expected: 0,
    };
}

/// Token counts that the endpoint has told; the last told wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u32>,
    /// Generated tokens, reasoning included.
    pub completion: Option<u32>,
    /// Prompt tokens served from a cache.
    pub cached: Option<u32>,
    /// Generated tokens that are reasoning.
    pub reasoning: Option<u32>,
}

/// Why generating ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishReason {
    /// The endpoint has not said.
    #[default]
    None,
    /// The end of the answer or a stop string.
    Stop,
    /// The limit of tokens.
    Length,
    /// A tool is to be called.
    ToolCalls,
    /// A content filter stepped in.
    ContentFilter,
    /// The old form of a tool call.
    FunctionCall,
    /// Given up by the endpoint: a failure.
    Abort,
    /// A failure.
    Error,
    /// Any other word.
    Other,
}

impl Usage {
    /// With what was told later.
    #[must_use]
    pub fn and(self, later: Usage) -> Usage {
        Usage {
            prompt: later.prompt.or(self.prompt),
            completion: later.completion.or(self.completion),
            cached: later.cached.or(self.cached),
            reasoning: later.reasoning.or(self.reasoning),
        }
    }
}

impl FinishReason {
    /// Every reason that was said, in the order of its discriminant.
    pub const SAID: [FinishReason; 8] = [
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::ToolCalls,
        FinishReason::ContentFilter,
        FinishReason::FunctionCall,
        FinishReason::Abort,
        FinishReason::Error,
        FinishReason::Other,
    ];

    /// What the word of an endpoint means; an empty one is none.
    pub fn from_wire(word: &[u8]) -> FinishReason {
        let is = |words: &[&str]| words.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()));
        match word {
            b"" => FinishReason::None,
            _ if is(&["stop", "eos_token", "stop_sequence"]) => FinishReason::Stop,
            _ if is(&["length", "max_tokens"]) => FinishReason::Length,
            _ if is(&["tool_calls"]) => FinishReason::ToolCalls,
            _ if is(&["content_filter"]) => FinishReason::ContentFilter,
            _ if is(&["function_call"]) => FinishReason::FunctionCall,
            _ if is(&["abort"]) => FinishReason::Abort,
            _ if is(&["error"]) => FinishReason::Error,
            _ => FinishReason::Other,
        }
    }

    /// Whether the query failed by it.
    pub const fn is_failure(self) -> bool {
        matches!(self, FinishReason::Abort | FinishReason::Error)
    }

    /// With what was said later, or of another choice: the last counts, but a failure stays one.
    #[must_use]
    pub fn and(self, later: FinishReason) -> FinishReason {
        if later == FinishReason::None || (self.is_failure() && !later.is_failure()) {
            return self;
        }
        later
    }

    /// The word in result files.
    pub const fn name(self) -> &'static str {
        match self {
            FinishReason::None => "none",
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::ContentFilter => "content_filter",
            FinishReason::FunctionCall => "function_call",
            FinishReason::Abort => "abort",
            FinishReason::Error => "error",
            FinishReason::Other => "other",
        }
    }
}

/// What is known of one answer. Instants are the stamps of the receives that held the last byte of
/// an event, CLOCK_MONOTONIC ns; 0: there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerFacts {
    /// It came as an event stream.
    pub is_stream: bool,
    /// First event of any kind.
    pub ack_ns: u64,
    /// T6: first chunk with something generated, in any channel. Streams only.
    pub first_token_ns: u64,
    /// First chunk with content that a reader sees. Streams only.
    pub first_visible_ns: u64,
    /// T7: last chunk with something generated. Streams only.
    pub last_token_ns: u64,
    /// T8 of a stream: `[DONE]`.
    pub done_ns: u64,
    /// Chunks with something generated.
    pub chunks: u32,
    /// Distinct instants among them.
    pub instants: u32,
    /// Chunks that came in the receive of the one before.
    pub coalesced: u32,
    /// Chunks that were not JSON and were skipped (`--lenient`).
    pub malformed: u32,
    /// Tokens that the endpoint had counted when the first chunk came (continuous usage), if told.
    pub first_chunk_tokens: Option<u32>,
    /// Token counts.
    pub usage: Usage,
    /// Why it ended.
    pub finish: FinishReason,
    /// The chunks repeated the text so far, and only what was new was counted.
    pub is_cumulative: bool,
}

/// Where an answer stands after some of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It goes on.
    More,
    /// `[DONE]` has come, or an error that decides it: what follows up to the end of the HTTP
    /// message says nothing any more.
    Over,
    /// It cannot be read on; the connection is of no more use.
    Broken,
}

/// How an answer ended: `Err` is a failure of the query, whatever its status.
pub type Verdict = Result<(), (FailureKind, Message)>;
