//! What the tests of this module share: [`decode`] drives the parser over any cuts, and an
//! [`Outcome`] is what came out, comparable with the corpus and with the [`oracle`].

mod content_type;
mod corpus;
mod generated;
mod limits;
mod oracle;

use std::fmt::{self, Write as _};

use super::{Carry, ContentType, Eof, Framing, Head, Malformed, ResponseParser, Step};

/// One response as its consumer saw it, the stream having ended behind the last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    interims: Vec<u16>,
    head: Option<Head>,
    body: Vec<u8>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With so many bytes behind it.
    Complete {
        excess: usize,
    },
    /// By the end of the stream.
    Closed,
    Truncated(Eof),
    /// The oracle knows no kinds.
    Malformed(Option<Malformed>),
}

/// Feeds `wire` to the parser in pieces that end at `cuts`, which rise, and then closes.
fn decode(wire: &[u8], is_head_request: bool, cuts: impl IntoIterator<Item = usize>) -> Outcome {
    let mut run = Run {
        parser: ResponseParser::new(is_head_request),
        carry: Carry::default(),
        outcome: Outcome { interims: vec![], head: None, body: vec![], end: End::Closed },
    };
    let mut from = 0;
    for to in cuts.into_iter().chain([wire.len()]) {
        match run.feed(&wire[from..to]) {
            None => from = to,
            Some(End::Complete { excess }) => {
                run.outcome.end = End::Complete { excess: excess + wire.len() - to };
                return run.outcome;
            }
            Some(end) => {
                run.outcome.end = end;
                return run.outcome;
            }
        }
    }
    assert_eq!(run.parser.has_begun(), !wire.is_empty());
    if let Err(eof) = run.parser.end_of_stream() {
        run.outcome.end = End::Truncated(eof);
    }
    run.outcome
}

struct Run {
    parser: ResponseParser,
    carry: Carry,
    outcome: Outcome,
}

impl Run {
    /// Everything that one receive leads to; an end, if it has one.
    fn feed(&mut self, mut input: &[u8]) -> Option<End> {
        loop {
            match self.parser.step(&mut input, &mut self.carry) {
                Ok(Step::More) => {
                    assert!(input.is_empty(), "More before all input was taken");
                    return None;
                }
                Ok(Step::Interim(status)) => self.outcome.interims.push(status),
                Ok(Step::Head(head)) => {
                    assert_eq!(self.outcome.head.replace(head), None, "a second final head");
                    assert_eq!(self.parser.head(), Some(&head));
                    assert!(self.carry.is_empty());
                }
                Ok(Step::Body(piece)) => {
                    assert!(!piece.is_empty());
                    self.outcome.body.extend_from_slice(piece);
                    assert_eq!(self.parser.body_bytes(), self.outcome.body.len() as u64);
                }
                Ok(Step::End { excess }) => {
                    assert_eq!(excess, input.len());
                    assert_eq!(self.parser.end_of_stream(), Ok(()));
                    return Some(End::Complete { excess });
                }
                Err(malformed) => {
                    assert!(self.carry.is_empty());
                    let again = self.parser.step(&mut input, &mut self.carry);
                    assert_eq!(again, Err(malformed), "a malformed response stays malformed");
                    return Some(End::Malformed(Some(malformed)));
                }
            }
        }
    }
}

impl Outcome {
    /// The same, as the oracle would put it.
    fn without_kind(mut self) -> Self {
        if let End::Malformed(kind) = &mut self.end {
            *kind = None;
        }
        self
    }
}

/// The lines of a corpus expectation behind its `request` line.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for status in &self.interims {
            writeln!(f, "interim {status}")?;
        }
        if let Some(head) = self.head {
            writeln!(f, "status {}", head.status)?;
            writeln!(f, "version 1.{}", head.version_minor)?;
            match head.framing {
                Framing::None => writeln!(f, "framing none")?,
                Framing::Length(length) => writeln!(f, "framing length {length}")?,
                Framing::Chunked => writeln!(f, "framing chunked")?,
                Framing::UntilClose => writeln!(f, "framing until-close")?,
            }
            writeln!(f, "keep-alive {}", if head.keep_alive { "yes" } else { "no" })?;
            writeln!(f, "body-bytes {}", self.body.len())?;
            let is_short_text = self.body.len() <= 64 && self.body.iter().all(|b| *b >= b' ');
            match str::from_utf8(&self.body) {
                Ok("") => {}
                Ok(text) if is_short_text => writeln!(f, "body {text}")?,
                _ => writeln!(f, "body-fnv1a {:016x}", fnv1a(&self.body))?,
            }
        }
        match self.end {
            End::Complete { excess: 0 } => f.write_str("end complete\n"),
            End::Complete { excess } => writeln!(f, "end complete\nexcess {excess}"),
            End::Closed => f.write_str("end closed\n"),
            End::Truncated(eof) => writeln!(f, "end truncated {eof:?}"),
            End::Malformed(None) => f.write_str("end malformed\n"),
            End::Malformed(Some(kind)) => writeln!(f, "end malformed {kind:?}"),
        }
    }
}

/// FNV-1a with 64 bits: enough to tell bodies apart that are too long to print.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A readable form of wire bytes for failure messages, cut where it gets long.
fn show(wire: &[u8]) -> String {
    let mut text = wire[..wire.len().min(2000)].escape_ascii().to_string();
    if wire.len() > 2000 {
        write!(text, "... ({} bytes)", wire.len()).expect("a String takes any write");
    }
    text
}
