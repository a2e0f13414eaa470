//! The reader of one answer after another. Content-Type says which of two ways its bytes go: events
//! through the [`EventReader`], each judged as it ends, or into a buffer that is judged at the end.

use std::fmt::Write as _;

use super::repeated::Repeated;
use super::{AnswerFacts, AnswerFormat, AnswerPlan, FinishReason, Progress, Verdict};
use crate::chunk::{self, Chunk, NotJson, Text, Texts};
use crate::failure::{FailureKind, Message};
use crate::http1::{ContentType, Head};
use crate::limits::FIRST_MESSAGE_BYTES;
use crate::sse::{Event, EventReader, Step};

/// Reads the answers of one connection slot, one after the other: [`begin`](Answer::begin),
/// [`head`](Answer::head), [`body`](Answer::body) for each piece, [`end`](Answer::end). Memory is
/// kept from one to the next, so that a chunk of a usual size allocates nothing.
#[derive(Clone, Debug)]
pub struct Answer {
    body: Body,
    progress: Progress,
    wants_stream: bool,
    events: EventReader,
    /// An answer that is not a stream; of one that cannot be read, its begin.
    document: Vec<u8>,
    reading: Reading,
}

/// What the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// The head does not say: its first byte will.
    Unknown,
    Stream,
    Document,
    /// No answer, such as an HTML page.
    Foreign,
}

/// What the chunks have said so far.
#[derive(Clone, Debug)]
struct Reading {
    plan: AnswerPlan,
    facts: AnswerFacts,
    gaps_ns: Vec<u64>,
    texts: Texts,
    repeated: Repeated,
    has_generated: bool,
    failure: Option<(FailureKind, Message)>,
    /// Where the message of a failure is put together.
    words: String,
}

impl Answer {
    /// A reader of such answers, with room for as many chunks as are expected.
    pub fn new(plan: &AnswerPlan) -> Answer {
        let is_plain = plan.format == AnswerFormat::Plain;
        let text_bytes = if plan.keeps_text { plan.chunks_expected * TEXT_BYTES } else { 0 };
        Answer {
            body: Body::Unknown,
            progress: Progress::More,
            wants_stream: false,
            events: EventReader::new(plan.bytes_limit),
            document: Vec::with_capacity(if is_plain { 0 } else { FIRST_MESSAGE_BYTES }),
            reading: Reading {
                plan: plan.clone(),
                facts: AnswerFacts::default(),
                gaps_ns: Vec::with_capacity(plan.chunks_expected),
                texts: Texts {
                    is_kept: plan.keeps_text,
                    visible: String::with_capacity(text_bytes),
                    hidden: String::with_capacity(text_bytes),
                },
                repeated: Repeated::new(),
                has_generated: false,
                failure: None,
                words: String::with_capacity(if is_plain { 0 } else { WORDS_BYTES }),
            },
        }
    }

    /// Forgets the answer before. `wants_stream`: a stream was asked for, which matters only where
    /// the answer does not say what it is.
    pub fn begin(&mut self, wants_stream: bool) {
        self.body = Body::Unknown;
        self.progress = Progress::More;
        self.wants_stream = wants_stream;
        self.events.begin();
        self.document.clear();
        self.document.shrink_to(DOCUMENT_BYTES_KEPT);
        self.reading.begin();
    }

    /// Takes the head of the response: its Content-Type says what the body is.
    pub fn head(&mut self, head: &Head) {
        match head.content_type {
            ContentType::EventStream => self.is(Body::Stream),
            ContentType::Json => self.is(Body::Document),
            ContentType::Other => self.is(Body::Foreign),
            ContentType::None => {}
        }
    }

    /// Takes a piece of the body that came in the receive of `stamp_ns`.
    #[inline]
    pub fn body(&mut self, piece: &[u8], stamp_ns: u64) -> Progress {
        if self.progress != Progress::More || self.reading.plan.format == AnswerFormat::Plain {
            return self.progress;
        }
        if self.body == Body::Unknown {
            self.guess(piece);
        }
        self.progress = match self.body {
            Body::Stream => self.stream(piece, stamp_ns),
            Body::Document | Body::Unknown => self.gather(piece),
            Body::Foreign => {
                let room = FIRST_MESSAGE_BYTES - self.document.len();
                self.document.extend_from_slice(&piece[..piece.len().min(room)]);
                if piece.len() < room { Progress::More } else { Progress::Over }
            }
        };
        self.progress
    }

    /// The response is over, by its framing or, `is_eof`, only because the connection was closed:
    /// how the answer ended. To be asked once for each answer, at `stamp_ns`.
    #[expect(clippy::result_large_err, reason = "it is taken apart at once, by the one caller")]
    pub fn end(&mut self, stamp_ns: u64, is_eof: bool) -> Verdict {
        debug_assert!(stamp_ns >= self.reading.facts.last_token_ns);
        if self.reading.plan.format != AnswerFormat::Plain && self.reading.failure.is_none() {
            match self.body {
                Body::Stream => self.reading.end_stream(self.events.is_inside_event(), is_eof),
                Body::Document => self.reading.document(&self.document, is_eof),
                Body::Unknown => self.reading.fail(FailureKind::EmptyAnswer, |words| {
                    words.push_str("a response without a body");
                }),
                Body::Foreign => self.reading.fail(FailureKind::UnexpectedType, |words| {
                    words.push_str("neither JSON nor an event stream: ");
                    push_wire(&self.document, words);
                }),
            }
        }
        self.reading.failure.map_or(Ok(()), Err)
    }

    /// What is known so far.
    pub fn facts(&self) -> &AnswerFacts {
        &self.reading.facts
    }

    /// Gaps between the distinct instants of chunks with something generated, ns. Streams only.
    pub fn gaps_ns(&self) -> &[u64] {
        &self.reading.gaps_ns
    }

    /// What a reader sees; empty unless the plan keeps it. Of several choices the first.
    pub fn text(&self) -> &str {
        &self.reading.texts.visible
    }

    /// Reasoning and tool calls; empty unless the plan keeps them. Of several choices the first.
    pub fn hidden_text(&self) -> &str {
        &self.reading.texts.hidden
    }

    /// Why it failed, as soon as that is known; all that fails is known after the
    /// [end](Answer::end).
    pub fn failure(&self) -> Option<&(FailureKind, Message)> {
        self.reading.failure.as_ref()
    }

    /// Bytes of memory held, for the slab's accounts.
    pub fn memory_bytes(&self) -> usize {
        self.events.memory_bytes() + self.document.capacity() + self.reading.memory_bytes()
    }

    fn is(&mut self, body: Body) {
        self.body = body;
        self.reading.facts.is_stream = body == Body::Stream;
    }

    /// A body without a Content-Type: one that begins as JSON is, else it is what was asked for.
    #[cold]
    fn guess(&mut self, piece: &[u8]) {
        match piece.first() {
            None => {}
            Some(b'{' | b'[') => self.is(Body::Document),
            Some(_) => self.is(if self.wants_stream { Body::Stream } else { Body::Document }),
        }
    }

    #[inline]
    fn stream(&mut self, piece: &[u8], stamp_ns: u64) -> Progress {
        let mut input = piece;
        loop {
            match self.events.next(&mut input) {
                Step::More => return Progress::More,
                Step::Event(event) => {
                    if self.reading.event(event, stamp_ns) == Progress::Over {
                        return Progress::Over;
                    }
                    if self.reading.kept_bytes() > self.reading.plan.bytes_limit {
                        return self.reading.fail_limit("what is kept of an answer");
                    }
                }
                Step::TooLong => return self.reading.fail_limit("an event"),
            }
        }
    }

    fn gather(&mut self, piece: &[u8]) -> Progress {
        if self.document.len() + piece.len() > self.reading.plan.bytes_limit {
            return self.reading.fail_limit("an answer");
        }
        self.document.extend_from_slice(piece);
        Progress::More
    }
}

impl Reading {
    fn begin(&mut self) {
        self.facts = AnswerFacts::default();
        self.gaps_ns.clear();
        self.gaps_ns.shrink_to(self.plan.chunks_expected.max(GAPS_KEPT));
        self.texts.back_to((0, 0));
        let text_bytes = (self.plan.chunks_expected * TEXT_BYTES).max(TEXT_BYTES_KEPT);
        self.texts.visible.shrink_to(text_bytes);
        self.texts.hidden.shrink_to(text_bytes);
        self.repeated.begin(self.plan.format == AnswerFormat::Generate);
        self.has_generated = false;
        self.failure = None;
    }

    /// What grows as long as the answer goes on.
    #[inline]
    fn kept_bytes(&self) -> usize {
        let Texts { visible, hidden, .. } = &self.texts;
        size_of_val(&self.gaps_ns[..]) + visible.len() + hidden.len()
    }

    fn memory_bytes(&self) -> usize {
        self.gaps_ns.capacity() * size_of::<u64>()
            + self.texts.visible.capacity()
            + self.texts.hidden.capacity()
            + self.repeated.memory_bytes()
            + self.words.capacity()
    }

    #[inline]
    fn event(&mut self, event: Event<'_>, stamp_ns: u64) -> Progress {
        let data = event.data.trim_ascii();
        if event.kind == b"error" {
            return self.error_event(data);
        }
        if data.is_empty() {
            return Progress::More; // a sign of life
        }
        if self.facts.ack_ns == 0 {
            self.facts.ack_ns = stamp_ns;
        }
        if data == b"[DONE]" {
            self.facts.done_ns = stamp_ns;
            return Progress::Over;
        }
        let lengths = self.texts.lengths();
        match chunk::read(&self.plan.format, data, &mut self.texts) {
            Ok(chunk) => self.chunk(&chunk, lengths.0, stamp_ns),
            Err(error) => {
                self.texts.back_to(lengths);
                self.malformed(error, data)
            }
        }
    }

    #[cold]
    fn malformed(&mut self, error: NotJson, data: &[u8]) -> Progress {
        if self.plan.is_lenient {
            self.facts.malformed += 1;
            return Progress::More;
        }
        self.fail(FailureKind::MalformedAnswer, |words| {
            push_not_json("an event", error, data, words);
        });
        Progress::Over
    }

    /// `text_from`: where the text of this chunk begins in what is kept.
    #[inline]
    fn chunk(&mut self, chunk: &Chunk<'_>, text_from: usize, stamp_ns: u64) -> Progress {
        let is_visible = chunk.is_visible && self.has_new_text(chunk, text_from);
        if is_visible || chunk.is_hidden {
            self.generated(stamp_ns, is_visible, chunk.usage.completion);
        }
        self.take_sayings(chunk)
    }

    /// What a chunk says beside what was generated, which is what there is of any answer.
    #[inline]
    fn take_sayings(&mut self, chunk: &Chunk<'_>) -> Progress {
        self.facts.usage = self.facts.usage.and(chunk.usage);
        self.facts.finish = self.facts.finish.and(chunk.finish);
        if let Some(error) = chunk.error {
            self.fail(FailureKind::ErrorInAnswer, |words| push_text(error, words));
            return Progress::Over;
        }
        if chunk.finish.is_failure() {
            self.fail(FailureKind::ErrorInAnswer, |words| {
                words.push_str("finish reason: ");
                words.push_str(chunk.finish.name());
            });
            return Progress::Over;
        }
        Progress::More
    }

    #[inline]
    fn has_new_text(&mut self, chunk: &Chunk<'_>, text_from: usize) -> bool {
        let Some(content) = chunk.content else {
            self.repeated.give_up();
            return true;
        };
        let is_new = self.repeated.is_new(content.raw);
        self.facts.is_cumulative |= self.repeated.is_certain();
        if self.repeated.is_whole_text() && self.texts.is_kept {
            self.texts.visible.drain(..text_from);
        }
        is_new
    }

    #[inline]
    fn generated(&mut self, stamp_ns: u64, is_visible: bool, tokens: Option<u32>) {
        let facts = &mut self.facts;
        self.has_generated = true;
        if facts.chunks == 0 {
            facts.first_token_ns = stamp_ns;
            facts.first_chunk_tokens = tokens;
            facts.instants = 1;
        } else if stamp_ns == facts.last_token_ns {
            facts.coalesced += 1;
        } else {
            self.gaps_ns.push(stamp_ns.saturating_sub(facts.last_token_ns));
            facts.instants += 1;
        }
        if is_visible && facts.first_visible_ns == 0 {
            facts.first_visible_ns = stamp_ns;
        }
        facts.chunks += 1;
        facts.last_token_ns = stamp_ns;
    }

    #[cold]
    fn error_event(&mut self, data: &[u8]) -> Progress {
        let error = chunk::read(&self.plan.format, data, &mut Texts::default());
        self.fail(FailureKind::ErrorInAnswer, |words| match error {
            Ok(Chunk { error: Some(error), .. }) => push_text(error, words),
            _ => {
                words.push_str("event: error ");
                push_wire(data, words);
            }
        });
        Progress::Over
    }

    /// The stream is over without a failure so far.
    fn end_stream(&mut self, is_inside_event: bool, is_eof: bool) {
        let facts = &self.facts;
        let is_done = facts.done_ns > 0;
        let has_finish = facts.finish != FinishReason::None;
        // Where there is no reason to look for, the end of the message has to do.
        let is_end_enough = matches!(self.plan.format, AnswerFormat::Field(_)) && !is_eof;
        if facts.ack_ns > 0 && !is_done && !has_finish && (!is_end_enough || is_inside_event) {
            self.fail(FailureKind::TruncatedStream, |words| {
                words.push_str("the stream ended ");
                words.push_str(match (is_inside_event, is_eof) {
                    (true, _) => "inside an event",
                    (false, true) => "with the connection, without [DONE] and finish reason",
                    (false, false) => "without [DONE] and finish reason",
                });
            });
        } else {
            self.check_generated(&[]);
        }
    }

    /// An answer that is not a stream, whole.
    fn document(&mut self, bytes: &[u8], is_eof: bool) {
        match chunk::read(&self.plan.format, bytes, &mut self.texts) {
            Ok(chunk) => {
                self.has_generated = chunk.is_generated();
                if self.take_sayings(&chunk) == Progress::More {
                    self.check_generated(bytes);
                }
            }
            Err(error) => {
                self.texts.back_to((0, 0));
                // Only its text shows that a body which ends with its connection is cut.
                let is_cut = error.is_early && is_eof;
                let kind =
                    if is_cut { FailureKind::TruncatedBody } else { FailureKind::MalformedAnswer };
                self.fail(kind, |words| push_not_json("the answer", error, bytes, words));
            }
        }
    }

    /// Nothing generated is a failure, unless the endpoint says so itself. `document`: what came
    /// instead.
    fn check_generated(&mut self, document: &[u8]) {
        let facts = &self.facts;
        let is_said = facts.usage.completion == Some(0) && facts.finish != FinishReason::None;
        if self.has_generated || is_said {
            return;
        }
        let tokens = facts.usage.completion;
        self.fail(FailureKind::EmptyAnswer, |words| {
            words.push_str("nothing generated");
            if let Some(tokens) = tokens {
                write!(words, ", though {tokens} tokens are told").expect("a String takes all");
            }
            if !document.is_empty() {
                words.push_str(": ");
                push_wire(document, words);
            }
        });
    }

    #[cold]
    fn fail_limit(&mut self, what: &str) -> Progress {
        let limit = self.plan.bytes_limit;
        self.fail(FailureKind::AnswerLimit, |words| {
            write!(words, "{what} of more than {limit} bytes").expect("a String takes all");
        });
        Progress::Broken
    }

    /// The first failure decides, and what is said in `words` is kept of it; what comes from the
    /// wire is made harmless.
    #[cold]
    fn fail(&mut self, kind: FailureKind, say: impl FnOnce(&mut String)) {
        self.words.clear();
        say(&mut self.words);
        self.failure = Some((kind, Message::from_wire(self.words.as_bytes())));
    }
}

/// The begin of a text of the endpoint; a cut may be inside an escape.
fn push_text(text: Text<'_>, words: &mut String) {
    let raw = &text.raw[..text.raw.len().min(WORDS_BYTES / 2)];
    Text { raw, ..text }.push_to(words);
}

fn push_wire(bytes: &[u8], words: &mut String) {
    let bytes = &bytes[..bytes.len().min(FIRST_MESSAGE_BYTES)];
    words.extend(bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '.' }));
}

fn push_not_json(what: &str, error: NotJson, bytes: &[u8], words: &mut String) {
    let NotJson { at, is_early } = error;
    let how = if is_early { "ends too early," } else { "is not JSON" };
    write!(words, "{what} {how} at byte {at}: ").expect("a String takes all");
    push_wire(bytes, words);
}

/// Bytes of text that a chunk is expected to have.
const TEXT_BYTES: usize = 8;
/// Room for the message of a failure: more than is kept of one.
const WORDS_BYTES: usize = 4 * FIRST_MESSAGE_BYTES;
/// Room that is kept from one answer to the next.
const DOCUMENT_BYTES_KEPT: usize = 256 * 1024;
/// See [`DOCUMENT_BYTES_KEPT`].
const TEXT_BYTES_KEPT: usize = 64 * 1024;
/// See [`DOCUMENT_BYTES_KEPT`].
const GAPS_KEPT: usize = 8192;
