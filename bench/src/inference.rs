//! The inference side of the endpoint: an OpenAI-compatible server that generates words without a
//! model, in the bytes of a known server, at drawn instants, with faults if asked for.
//!
//! ```text
//! config.rs        what is asked for, and the flags that say it
//! ask.rs           request bodies: JSON into a demand or a refusal
//! profile.rs       vLLM, SGLang, TGI, llama.cpp and OpenAI: their habits and response heads
//! json.rs          their bodies and events
//! page.rs          models, metrics, tokens, embeddings
//! stream.rs        an answer on its way: which bytes are due
//! draw.rs          random numbers of one request
//! distribution.rs  times that are drawn
//! ```
//!
//! One [`Inference`] belongs to a thread of the endpoint. Instants wait in a heap and not in the
//! 1 ms wheel of the shards: a client is measured against these instants, and a wheel would round
//! them up and make the chunks of all streams leave together.

pub(crate) mod ask;
mod config;
mod distribution;
mod draw;
mod json;
mod page;
mod profile;
mod stream;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

pub use self::config::{Faults, InferenceConfig};
pub use self::distribution::{DISTRIBUTION_FORM, Distribution};
pub use self::draw::Draws;
pub use self::page::InferenceCounts;
pub use self::profile::Profile;

use self::ask::{Ask, Call, Refusal, RefusalKind};
use self::draw::Occurrences;
use self::json::{Meta, Usage, generated, json_string};
use self::page::{Tally, add};
use self::profile::{ContentType, Framing, Head};
pub(crate) use self::stream::Step;
use self::stream::{End, Stream, StreamPlan, Whole, Words};
use crate::request::Request;
use crate::route::{Entry, Route, WITH_GENERATE};

/// What all threads share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    config: Arc<InferenceConfig>,
    occurrences: Occurrences,
    tally: Arc<Tally>,
}

/// The inference side of one thread.
pub(crate) struct Inference {
    shared: Shared,
    slots: Box<[Slot]>,
    /// Instants at which a slot goes on, and its generation. Those of closed connections stay until
    /// they are due.
    due: BinaryHeap<Reverse<(u64, u32, u32)>>,
    scratch: Vec<u8>,
}

/// The inference side of one connection.
#[derive(Debug, Default)]
struct Slot {
    /// In the order of their requests; the first one is on its way.
    answers: VecDeque<Answer>,
    /// The instant of the slot's entry in the heap; 0: none.
    armed_ns: u64,
    requests: u32,
}

#[derive(Debug)]
enum Answer {
    Whole(Whole),
    Stream(Box<Stream>),
}

/// A request as the answer sees it.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    request: Request,
    arrived_ns: u64,
    /// The connection closes with the answer.
    is_last: bool,
    body: &'a [u8],
}

/// What was drawn for a request.
#[derive(Clone, Debug)]
struct Fate {
    fault: Option<Fault>,
    /// Where in the answer, as a share of 2^32.
    place: u32,
    stall: Option<u32>,
    ttft_ns: u64,
    draws: Draws,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fail(u16),
    Error,
    Cut,
}

impl Shared {
    pub(crate) fn new(config: &InferenceConfig) -> Shared {
        Shared {
            config: Arc::new(config.clone()),
            occurrences: Occurrences::new(),
            tally: Arc::default(),
        }
    }

    pub(crate) fn counts(&self) -> InferenceCounts {
        self.tally.counts()
    }

    /// Which paths are more than plain.
    pub(crate) fn routes(&self) -> &'static [Entry] {
        match self.config.profile {
            Profile::Sglang => WITH_GENERATE,
            _ => &WITH_GENERATE[..WITH_GENERATE.len() - 1],
        }
    }

    /// The answer to a request, and whether the connection closes with it.
    fn answer(&self, asked: Asked<'_>) -> (Answer, bool) {
        add(&self.tally.requests, 1);
        let config = &*self.config;
        let page = match asked.request.route {
            Route::Chat | Route::Completions | Route::Generate => {
                return match ask::read(asked.request.route, asked.body, config) {
                    Ok(ask) => self.generate(asked, ask),
                    Err(refusal) => self.refuse(asked, &refusal),
                };
            }
            Route::Embeddings => {
                return match ask::read_embedding(asked.body, config) {
                    Ok(ask) => self.embed(asked, &ask),
                    Err(refusal) => self.refuse(asked, &refusal),
                };
            }
            Route::Tokenize => match ask::read_tokenize(asked.body) {
                Ok(text) => page::tokenize(config, &text),
                Err(refusal) => return self.refuse(asked, &refusal),
            },
            Route::Models => page::models(config),
            Route::Health => page::health(config.profile),
            Route::Metrics => page::metrics(self.tally.counts()),
            Route::TooLarge => return self.refuse(asked, &too_large()),
            Route::WrongMethod | Route::Plain => return self.refuse(asked, &wrong_method()),
        };
        let content = match asked.request.route {
            Route::Metrics => ContentType::Metrics,
            _ => ContentType::Json,
        };
        (self.whole(asked, 200, content, &page, asked.arrived_ns), asked.is_last)
    }

    fn generate(&self, asked: Asked<'_>, ask: Ask) -> (Answer, bool) {
        let mut fate = self.fate(asked.body);
        if let Some(Fault::Fail(status)) = fate.fault {
            return self.fail(asked, status);
        }
        add(&self.tally.prompt_tokens, u64::from(ask.prompt_tokens));
        let meta = Meta {
            id: format!("{:016x}", fate.draws.next_u64()),
            model: json_string(self.model(ask.model.as_deref())),
        };
        let words = Words(fate.draws.below(u32::MAX));
        if !ask.is_stream {
            return (self.complete(asked, &ask, &meta, words, fate), asked.is_last);
        }
        let config = &*self.config;
        let chunks = chunks_of(&ask, config.tokens_per_chunk);
        let place = scaled(fate.place, chunks);
        let end = match fate.fault {
            Some(Fault::Error) => End::Error(place, config.profile.error_event(&fault(500))),
            Some(Fault::Cut) => End::Cut(place),
            Some(Fault::Fail(_)) | None => End::Whole,
        };
        let framing = if asked.request.is_old { Framing::Close } else { Framing::Chunked };
        let content = ContentType::EventStream;
        let plan = StreamPlan {
            profile: config.profile,
            head: config.profile.head(Head {
                status: 200,
                content,
                framing,
                is_last: asked.is_last,
            }),
            stall: fate.stall.map(|place| {
                let after = config.faults.stall_after.unwrap_or_else(|| scaled(place, chunks));
                (after, config.faults.stall_ns)
            }),
            ask,
            meta,
            words,
            draws: fate.draws,
            itl: config.itl,
            tokens_per_chunk: config.tokens_per_chunk,
            ping_ns: config.ping_ns.unwrap_or(config.profile.ping_ns()),
            line_end: if config.crlf { "\r\n" } else { "\n" },
            is_chunked: framing == Framing::Chunked,
            arrived_ns: asked.arrived_ns,
            ttft_ns: fate.ttft_ns,
            end,
        };
        (Answer::Stream(Box::new(Stream::new(plan))), asked.is_last)
    }

    /// An answer in one piece, when its last token is due.
    fn complete(
        &self,
        asked: Asked<'_>,
        ask: &Ask,
        meta: &Meta,
        words: Words,
        mut fate: Fate,
    ) -> Answer {
        let config = &*self.config;
        let mut due_ns = asked.arrived_ns.saturating_add(fate.ttft_ns);
        let mut tokens = ask.chunk_tokens(0, config.tokens_per_chunk);
        while tokens < ask.tokens {
            let next = ask.chunk_tokens(tokens, config.tokens_per_chunk);
            let itl_ns = config.itl.draw_ns(&mut fate.draws);
            due_ns = due_ns.saturating_add(itl_ns.saturating_mul(u64::from(next)));
            tokens += next;
        }
        if fate.stall.is_some() {
            due_ns = due_ns.saturating_add(config.faults.stall_ns);
        }
        if fate.fault == Some(Fault::Error) {
            let body = config.profile.error(&fault(500));
            return self.whole(asked, 200, ContentType::Json, &body, due_ns);
        }
        let usage = Usage {
            prompt_tokens: ask.prompt_tokens,
            completion_tokens: ask.tokens,
            reasoning_tokens: ask.reasoning_tokens,
        };
        let text = words.text(ask.reasoning_tokens, ask.tokens - ask.reasoning_tokens);
        let reasoning = (ask.reasoning_tokens > 0).then(|| words.text(0, ask.reasoning_tokens));
        let body = if ask.call == Call::Generate {
            generated(meta, &text, usage, Some(ask.finish))
        } else {
            config.profile.whole(meta, ask, reasoning.as_deref(), &text, usage)
        };
        add(&self.tally.output_tokens, u64::from(ask.tokens));
        let answer = self.whole(asked, 200, ContentType::Json, &body, due_ns);
        cut(answer, &fate)
    }

    fn embed(&self, asked: Asked<'_>, ask: &ask::EmbeddingAsk) -> (Answer, bool) {
        let fate = self.fate(asked.body);
        let due_ns = asked.arrived_ns.saturating_add(fate.ttft_ns);
        let body = match fate.fault {
            Some(Fault::Fail(status)) => return self.fail(asked, status),
            Some(Fault::Error) => self.config.profile.error(&fault(500)),
            Some(Fault::Cut) | None => {
                let tokens: u64 = ask.inputs.iter().copied().map(u64::from).sum();
                add(&self.tally.prompt_tokens, tokens);
                let model = json_string(self.model(ask.model.as_deref()));
                page::embeddings(ask, &model, Draws::of_request(0, asked.body, 0))
            }
        };
        let answer = self.whole(asked, 200, ContentType::Json, &body, due_ns);
        (cut(answer, &fate), asked.is_last)
    }

    /// Draws what happens to a request. Every number is drawn each time, so that one fault's share
    /// does not move another's.
    fn fate(&self, body: &[u8]) -> Fate {
        let faults = &self.config.faults;
        let occurrence = self.occurrences.next(body);
        let mut draws = Draws::of_request(self.config.seed, body, occurrence);
        let is_failed = draws.unit() < faults.fail_rate;
        let status = faults.fail_status[draws.below(faults.fail_status.len() as u32) as usize];
        let is_error = draws.unit() < faults.error_in_stream_rate;
        let is_cut = draws.unit() < faults.truncate_rate;
        let place = draws.below(u32::MAX);
        let is_stalled = draws.unit() < faults.stall_rate && faults.stall_ns > 0 && !is_failed;
        let stall_place = draws.below(u32::MAX);
        let (fault, count) = if is_failed {
            (Some(Fault::Fail(status)), Some(&self.tally.failed))
        } else if is_error {
            (Some(Fault::Error), Some(&self.tally.errors_in_stream))
        } else if is_cut {
            (Some(Fault::Cut), Some(&self.tally.truncated))
        } else {
            (None, None)
        };
        if let Some(count) = count {
            add(count, 1);
        }
        add(&self.tally.stalled, u64::from(is_stalled));
        let ttft_ns = self.config.ttft.draw_ns(&mut draws);
        Fate { fault, place, stall: is_stalled.then_some(stall_place), ttft_ns, draws }
    }

    /// The name that an answer bears.
    fn model<'a>(&'a self, asked: Option<&'a str>) -> &'a str {
        asked.or(self.config.model.as_deref()).unwrap_or(page::MODEL)
    }

    fn refuse(&self, asked: Asked<'_>, refusal: &Refusal) -> (Answer, bool) {
        add(&self.tally.refused, 1);
        self.error(asked, refusal)
    }

    fn fail(&self, asked: Asked<'_>, status: u16) -> (Answer, bool) {
        self.error(asked, &fault(status))
    }

    fn error(&self, mut asked: Asked<'_>, refusal: &Refusal) -> (Answer, bool) {
        let profile = self.config.profile;
        asked.is_last |= profile.closes_on_error();
        let body = profile.error(refusal);
        let status = profile.status(refusal);
        let answer = self.whole(asked, status, ContentType::Json, &body, asked.arrived_ns);
        (answer, asked.is_last)
    }

    fn whole(
        &self,
        asked: Asked<'_>,
        status: u16,
        content: ContentType,
        body: &str,
        due_ns: u64,
    ) -> Answer {
        let framing = Framing::Length(body.len());
        let is_last = asked.is_last;
        let mut bytes = self.config.profile.head(Head { status, content, framing, is_last });
        bytes.extend_from_slice(body.as_bytes());
        Answer::Whole(Whole { due_ns, bytes, is_cut: false })
    }
}

impl Inference {
    pub(crate) fn new(shared: Shared, slots: u32) -> Inference {
        Inference {
            shared,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            due: BinaryHeap::new(),
            scratch: Vec::new(),
        }
    }

    /// Which paths are more than plain.
    pub(crate) fn routes(&self) -> &'static [Entry] {
        self.shared.routes()
    }

    /// Takes a request that has come whole. Says whether the connection closes with its answer.
    pub(crate) fn accept(
        &mut self,
        slot: u32,
        request: Request,
        arrived_ns: u64,
        body: &[u8],
    ) -> bool {
        let config = &self.shared.config;
        let close_after = config.faults.close_after.unwrap_or(config.profile.close_after());
        let slot = &mut self.slots[slot as usize];
        slot.requests += 1;
        let is_last = request.is_last || slot.requests == close_after;
        let asked = Asked { request, arrived_ns, is_last, body };
        let (answer, is_last) = self.shared.answer(asked);
        slot.answers.push_back(answer);
        is_last
    }

    /// Appends to `out` what is due of the slot's first answer, which there is.
    pub(crate) fn advance(
        &mut self,
        slot: u32,
        generation: u32,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Step {
        let state = &mut self.slots[slot as usize];
        let step = match state.answers.front_mut().expect("an answer is owed") {
            Answer::Whole(whole) => whole.advance(now_ns, out),
            Answer::Stream(stream) => {
                let step = stream.advance(now_ns, &mut self.scratch, out);
                if matches!(step, Step::Done | Step::Cut) {
                    add(&self.shared.tally.output_tokens, u64::from(stream.tokens()));
                    add(&self.shared.tally.chunks, u64::from(stream.chunks()));
                }
                step
            }
        };
        match step {
            Step::Wait(due_ns) if state.armed_ns != due_ns => {
                state.armed_ns = due_ns;
                self.due.push(Reverse((due_ns, slot, generation)));
            }
            Step::Wait(_) | Step::More => {}
            Step::Done | Step::Cut => {
                state.answers.pop_front();
            }
        }
        step
    }

    /// When a slot goes on, ns; `u64::MAX`: none waits.
    pub(crate) fn next_ns(&self) -> u64 {
        self.due.peek().map_or(u64::MAX, |Reverse((due_ns, ..))| *due_ns)
    }

    /// A slot whose instant has come, and its generation.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(u32, u32)> {
        let &Reverse((due_ns, slot, generation)) = self.due.peek()?;
        if due_ns > now_ns {
            return None;
        }
        self.due.pop();
        Some((slot, generation))
    }

    /// Forgets a connection.
    pub(crate) fn reset(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.answers.clear();
        slot.armed_ns = 0;
        slot.requests = 0;
    }
}

/// Breaks an answer off, if that is its fate.
fn cut(answer: Answer, fate: &Fate) -> Answer {
    match answer {
        Answer::Whole(mut whole) if fate.fault == Some(Fault::Cut) => {
            // At least the last byte is missing.
            let kept = scaled(fate.place, whole.bytes.len() as u32) as usize;
            whole.bytes.truncate(kept);
            whole.is_cut = true;
            Answer::Whole(whole)
        }
        answer => answer,
    }
}

/// Chunks of a whole stream, hidden ones included.
fn chunks_of(ask: &Ask, tokens_per_chunk: u32) -> u32 {
    let text = ask.tokens - ask.reasoning_tokens;
    ask.reasoning_tokens.div_ceil(tokens_per_chunk) + text.div_ceil(tokens_per_chunk)
}

/// A share of 2^32 of `whole`, below it.
fn scaled(share: u32, whole: u32) -> u32 {
    ((u64::from(share) * u64::from(whole)) >> 32) as u32
}

fn fault(status: u16) -> Refusal {
    let message = match status {
        429 => "Rate limit reached: this fault was asked for",
        503 => "The service is overloaded: this fault was asked for",
        _ => "The server had an error: this fault was asked for",
    };
    Refusal { status, kind: RefusalKind::Fault, message: message.to_owned() }
}

fn too_large() -> Refusal {
    let message = "the request body is larger than this endpoint takes".to_owned();
    Refusal { status: 413, kind: RefusalKind::Invalid, message }
}

fn wrong_method() -> Refusal {
    let message = "this path does not have that method".to_owned();
    Refusal { status: 405, kind: RefusalKind::Invalid, message }
}
