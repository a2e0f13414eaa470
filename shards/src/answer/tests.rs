//! Answers as they come over the wire, each with what is true of it, under every cut.
//!
//! A [`Case`] is a script of pieces with their instants. It is run as written, for everything that
//! must come of it; then its bytes, HTTP and all, are cut at every position, at random ones, and
//! everywhere: only instants may change.

mod bugs;
mod forms;
mod limits;
mod wire;

use proptest::test_runner::{RngAlgorithm, TestRng};
use rand_chacha::rand_core::Rng;

use super::*;
use crate::http1::{Carry, ResponseParser, Step};

/// One answer and what is true of it.
struct Case {
    name: &'static str,
    plan: AnswerPlan,
    content_type: &'static str,
    wants_stream: bool,
    /// Instant and bytes of each receive, one HTTP chunk each.
    script: Vec<(u64, Vec<u8>)>,
    /// The body ends with the connection, and has no framing of its own.
    is_eof: bool,
}

/// All that is known of an answer at its end.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    facts: AnswerFacts,
    gaps_ns: Vec<u64>,
    text: String,
    hidden: String,
    failure: Option<(FailureKind, String)>,
    is_broken: bool,
}

/// A stream of which nothing is known yet.
const STREAM: AnswerFacts = AnswerFacts {
    is_stream: true,
    ack_ns: 0,
    first_token_ns: 0,
    first_visible_ns: 0,
    last_token_ns: 0,
    done_ns: 0,
    chunks: 0,
    instants: 0,
    coalesced: 0,
    malformed: 0,
    first_chunk_tokens: None,
    usage: NO_USAGE,
    finish: FinishReason::None,
    is_cumulative: false,
};
const NO_USAGE: Usage = Usage { prompt: None, completion: None, cached: None, reasoning: None };
const DONE: &str = "data: [DONE]\n\n";

fn plan(format: AnswerFormat) -> AnswerPlan {
    AnswerPlan {
        format,
        is_lenient: false,
        bytes_limit: 1 << 20,
        keeps_text: true,
        chunks_expected: 16,
    }
}

impl Case {
    fn stream(name: &'static str, script: &[(u64, &str)]) -> Case {
        Case {
            name,
            plan: plan(AnswerFormat::Chat),
            content_type: "text/event-stream; charset=utf-8",
            wants_stream: true,
            script: script.iter().map(|(at, text)| (*at, text.as_bytes().to_vec())).collect(),
            is_eof: false,
        }
    }

    fn json(name: &'static str, body: &str) -> Case {
        let content_type = "application/json";
        Case { content_type, wants_stream: false, ..Case::stream(name, &[(10, body)]) }
    }

    fn format(mut self, format: AnswerFormat) -> Case {
        self.plan.format = format;
        self
    }

    fn lenient(mut self) -> Case {
        self.plan.is_lenient = true;
        self
    }

    fn eof(mut self) -> Case {
        self.is_eof = true;
        self
    }

    fn limit(mut self, bytes_limit: usize) -> Case {
        self.plan.bytes_limit = bytes_limit;
        self
    }

    fn content_type(mut self, content_type: &'static str) -> Case {
        self.content_type = content_type;
        self
    }

    /// The receives on the wire: the head comes with the first.
    fn receives(&self) -> Vec<(u64, Vec<u8>)> {
        let mut head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n".to_vec();
        if !self.content_type.is_empty() {
            head.extend_from_slice(format!("Content-Type: {}\r\n", self.content_type).as_bytes());
        }
        if !self.is_eof {
            head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let mut receives = vec![(1, head)];
        for (at, piece) in self.script.iter().filter(|(_, piece)| !piece.is_empty()) {
            receives.push((*at, if self.is_eof { piece.clone() } else { http_chunk(piece) }));
        }
        if !self.is_eof {
            receives.push((9000, b"0\r\nX-Trailer: yes\r\n\r\n".to_vec()));
        }
        receives
    }

    /// What comes of the answer when it comes as written.
    fn outcome(&self) -> Outcome {
        self.run(&mut Answer::new(&self.plan), &self.receives())
    }

    fn run(&self, answer: &mut Answer, receives: &[(u64, Vec<u8>)]) -> Outcome {
        answer.begin(self.wants_stream);
        let (mut parser, mut carry) = (ResponseParser::new(false), Carry::default());
        let mut progress = Progress::More;
        for (at, bytes) in receives {
            let mut input = &bytes[..];
            loop {
                match parser.step(&mut input, &mut carry).expect("it is HTTP") {
                    Step::Interim(_) => {}
                    Step::Head(head) => answer.head(&head),
                    Step::Body(piece) => {
                        let was = progress;
                        progress = answer.body(piece, *at);
                        let is_final = was == Progress::More || progress == was;
                        assert!(is_final, "{}: an answer that is over goes on", self.name);
                    }
                    Step::More | Step::End { .. } => break,
                }
            }
        }
        parser.end_of_stream().expect("it is whole");
        let verdict = answer.end(9000, self.is_eof);
        let failure = answer.failure().map(|(kind, words)| (*kind, words.as_str().to_owned()));
        assert_eq!(verdict.err().map(|(kind, _)| kind), failure.as_ref().map(|(kind, _)| *kind));
        Outcome {
            facts: *answer.facts(),
            gaps_ns: answer.gaps_ns().to_vec(),
            text: answer.text().to_owned(),
            hidden: answer.hidden_text().to_owned(),
            failure,
            is_broken: progress == Progress::Broken,
        }
    }

    /// Runs it as written and under many cuts. What came of it as written.
    fn check(&self) -> Outcome {
        let expected = self.outcome();
        let facts = &expected.facts;
        assert_eq!(facts.chunks, facts.instants + facts.coalesced, "{}", self.name);
        assert_eq!(expected.gaps_ns.len(), facts.instants.saturating_sub(1) as usize);
        let span_ns = facts.last_token_ns - facts.first_token_ns;
        assert_eq!(expected.gaps_ns.iter().sum::<u64>(), span_ns, "{}", self.name);

        let wire: Vec<u8> = self.receives().into_iter().flat_map(|(_, bytes)| bytes).collect();
        let mut answer = Answer::new(&self.plan); // one for all: nothing stays of the one before
        let mut check = |cuts: &[usize]| {
            let outcome = self.run(&mut answer, &cut(&wire, cuts));
            let (ours, theirs) = (outcome.without_instants(), expected.without_instants());
            assert_eq!(ours, theirs, "{} cut at {cuts:?}", self.name);
        };
        let stride = wire.len().div_ceil(5000).max(1);
        for at in (0..=wire.len()).step_by(stride) {
            check(&[at]);
        }
        let mut random = random();
        for _ in 0..50 {
            let mut cuts: Vec<usize> =
                (0..8).map(|_| random.next_u32() as usize % (wire.len() + 1)).collect();
            cuts.sort_unstable();
            check(&cuts);
        }
        check(&(0..wire.len()).collect::<Vec<_>>());
        expected
    }

    /// It must succeed with these facts and this text.
    #[track_caller]
    fn is_good(&self, facts: AnswerFacts, gaps_ns: &[u64], text: &str, hidden: &str) {
        let outcome = self.check();
        assert_eq!(outcome.failure, None, "{}", self.name);
        assert_eq!(outcome.facts, facts, "{}", self.name);
        assert_eq!(outcome.gaps_ns, gaps_ns, "{}", self.name);
        assert_eq!((outcome.text.as_str(), outcome.hidden.as_str()), (text, hidden));
    }

    /// It must fail in this way, with these words in the message. What else came of it.
    #[track_caller]
    fn fails(&self, kind: FailureKind, words: &str) -> Outcome {
        let outcome = self.check();
        let Some((found, message)) = &outcome.failure else { panic!("{}: no failure", self.name) };
        assert_eq!(*found, kind, "{}: {message}", self.name);
        assert!(message.contains(words), "{}: {message}", self.name);
        outcome
    }
}

impl Outcome {
    fn without_instants(&self) -> Outcome {
        let facts = AnswerFacts {
            ack_ns: u64::from(self.facts.ack_ns > 0),
            first_token_ns: u64::from(self.facts.first_token_ns > 0),
            first_visible_ns: u64::from(self.facts.first_visible_ns > 0),
            last_token_ns: u64::from(self.facts.last_token_ns > 0),
            done_ns: u64::from(self.facts.done_ns > 0),
            instants: 0,
            coalesced: 0,
            ..self.facts
        };
        Outcome { facts, gaps_ns: vec![], ..self.clone() }
    }
}

/// Receives that end at `cuts`, which rise; instant after instant.
fn cut(wire: &[u8], cuts: &[usize]) -> Vec<(u64, Vec<u8>)> {
    let (mut receives, mut from) = (vec![], 0);
    for (at, &to) in (2..).zip(cuts.iter().chain([&wire.len()])) {
        receives.push((at.min(9000), wire[from..to].to_vec()));
        from = to;
    }
    receives
}

fn http_chunk(piece: &[u8]) -> Vec<u8> {
    [format!("{:x};ext=\"a\"\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}

fn random() -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32])
}

fn chat(name: &'static str, script: &[(u64, String)]) -> Case {
    let script: Vec<_> = script.iter().map(|(at, event)| (*at, event.as_str())).collect();
    Case::stream(name, &script)
}

/// An event with this JSON, which may stand on several lines here.
fn event(json: &str) -> String {
    let json: String = json.lines().map(str::trim_start).collect();
    format!("data: {json}\n\n")
}

/// A chat chunk with this delta.
fn delta(delta: &str) -> String {
    event(&format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m",
        "choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}],
        "usage":null}}"#
    ))
}

fn role() -> String {
    delta(r#"{"role":"assistant","content":""}"#)
}

fn content(text: &str) -> String {
    delta(&format!(r#"{{"content":"{text}"}}"#))
}

fn finish(reason: &str) -> String {
    event(&format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#))
}

/// The usage chunk at the end: 7 tokens of prompt.
fn usage(completion: u32) -> String {
    event(&format!(
        r#"{{"choices":[],
        "usage":{{"prompt_tokens":7,"completion_tokens":{completion},"total_tokens":9}}}}"#
    ))
}

fn told(completion: u32) -> Usage {
    Usage { prompt: Some(7), completion: Some(completion), ..NO_USAGE }
}
