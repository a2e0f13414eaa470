//! HTTP/1.1 responses, sans-IO: bytes in, [`Step`]s out, whatever the cuts between two receives.
//!
//! One [`ResponseParser`] lives for one exchange. It owns no memory: a head that lies whole in one
//! receive, the common case, is parsed where it lies, and body bytes are handed out as slices of
//! the input. Only a head that is cut waits in a [`Carry`], which the caller lends for that time.
//! The connection calls [`ResponseParser::step`] for each receive until it says `More` or `End`,
//! and [`ResponseParser::end_of_stream`] when the peer closes.
//!
//! What always holds: the steps (body slices joined) depend on the bytes alone and not on where
//! they were cut; the work is linear in the bytes; nothing panics on any input. The grammar is RFC
//! 9112, read as a lenient client reads it; the semantics are RFC 9110.

mod body;
mod head;
#[cfg(test)]
mod tests;

pub use head::{ContentType, Framing, Head};

use self::body::{ChunkDecoder, Piece};
use crate::limits::HEAD_BYTES_LIMIT;

/// Reads one final response, and the interim ones before it.
#[derive(Clone, Copy, Debug)]
pub struct ResponseParser {
    state: State,
    /// Set from the final head on.
    head: Option<Head>,
    body_bytes: u64,
    /// Bytes of empty lines in front of the status line.
    skipped_bytes: u32,
    /// The last skipped byte was a CR, so the next one must be its LF.
    is_after_cr: bool,
    has_begun: bool,
    is_head_request: bool,
}

/// What the bytes taken by one [`ResponseParser::step`] were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// All input is taken and the response goes on in the next receive.
    More,
    /// The head of an interim response with this status. It answers nothing; the final response
    /// follows.
    Interim(u16),
    /// The head of the final response.
    Head(Head),
    /// Bytes of the body, never empty.
    Body(&'a [u8]),
    /// The response is complete. `excess` bytes of the input lie behind it and were not taken:
    /// since requests are not pipelined, the peer sent what nobody asked for.
    End {
        /// Bytes left in the input.
        excess: usize,
    },
}

/// Why bytes cannot be a response. After one the connection is out of step for good and must be
/// closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The first bytes cannot begin `HTTP/`.
    NotHttp,
    /// It is HTTP, but neither 1.0 nor 1.1.
    Version,
    /// What follows the version is not a status and a reason.
    StatusLine,
    /// A status below 100.
    Status,
    /// 101, though no request asks for an upgrade.
    Upgrade,
    /// A field name is missing or has a byte that is not allowed.
    FieldName,
    /// A field value has a control character.
    FieldValue,
    /// A CR without its LF.
    LineEnd,
    /// More fields than [`HEAD_FIELDS_LIMIT`](crate::limits::HEAD_FIELDS_LIMIT).
    TooManyFields,
    /// A head above [`HEAD_BYTES_LIMIT`].
    HeadTooLarge,
    /// `Content-Length` is not one decimal number below 2^64.
    ContentLength,
    /// `Transfer-Encoding` has `chunked` twice, or with a parameter.
    TransferEncoding,
    /// A chunk does not begin with a hexadecimal size.
    ChunkSize,
    /// The size of a chunk does not fit 64 bits.
    ChunkSizeOverflow,
    /// A quoted string in a chunk extension is cut by a line end.
    ChunkExtension,
    /// A chunk-size line above [`HEAD_BYTES_LIMIT`].
    ChunkLineTooLong,
    /// The data of a chunk is not followed by a line end.
    ChunkEnd,
    /// Trailers above [`HEAD_BYTES_LIMIT`].
    TrailersTooLarge,
}

/// Where in a response the stream ended too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eof {
    /// Nothing of the response had come: on a reused connection the peer may have closed before it
    /// saw the request.
    BeforeAnyByte,
    /// Inside a head, or after an interim response.
    InHead,
    /// Inside a body whose end was announced.
    InBody,
}

/// Where an incomplete head waits between receives.
///
/// The caller owns it. An empty one will do for any call, so a shard can lend the same one to all
/// its connections; only one that is not [empty](Carry::is_empty) after a step belongs to that
/// response, and must come with each further step until it is empty again. A whole head and an
/// error empty it; after an early end of the stream the caller does.
#[derive(Debug, Default)]
pub struct Carry {
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    /// Bytes still to come.
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
    Done,
    Failed(Malformed),
}

impl ResponseParser {
    /// A parser for the answer to one request. The answer to HEAD has no body, whatever its head
    /// says.
    #[must_use]
    pub fn new(is_head_request: bool) -> Self {
        Self {
            state: State::Head,
            head: None,
            body_bytes: 0,
            skipped_bytes: 0,
            is_after_cr: false,
            has_begun: false,
            is_head_request,
        }
    }

    /// Takes bytes from the front of `input` and says what they were. Call it until [`Step::More`]
    /// or [`Step::End`]; both come again, without taking anything, if it is called once more.
    pub fn step<'a>(
        &mut self,
        input: &mut &'a [u8],
        carry: &mut Carry,
    ) -> Result<Step<'a>, Malformed> {
        debug_assert!(carry.is_empty() || self.has_begun, "the carry of another exchange");
        let step = match &mut self.state {
            State::Head if input.is_empty() => return Ok(Step::More),
            State::Head => self.step_head(input, carry),
            State::Length(0) | State::Done => {
                self.state = State::Done;
                Ok(Step::End { excess: input.len() })
            }
            State::Length(left) => {
                let piece = body::take_up_to(*left, input);
                *left -= piece.len() as u64;
                Ok(self.body_step(piece))
            }
            State::Chunked(decoder) => match decoder.step(input) {
                Ok(Piece::Data(piece)) => Ok(self.body_step(piece)),
                Ok(Piece::End) => {
                    self.state = State::Done;
                    Ok(Step::End { excess: input.len() })
                }
                Err(malformed) => Err(malformed),
            },
            State::UntilClose => {
                let piece = body::take_up_to(u64::MAX, input);
                Ok(self.body_step(piece))
            }
            State::Failed(malformed) => Err(*malformed),
        };
        if let Err(malformed) = step {
            self.state = State::Failed(malformed);
            carry.clear();
        }
        step
    }

    /// The peer closed its side. `Ok`: the response was complete by that or before.
    pub fn end_of_stream(&mut self) -> Result<(), Eof> {
        match self.state {
            State::Head if !self.has_begun => Err(Eof::BeforeAnyByte),
            State::Head => Err(Eof::InHead),
            // RFC 9112 8: a body without an announced end is complete when the stream is.
            State::Length(0) | State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            State::Length(_) | State::Chunked(_) => Err(Eof::InBody),
            State::Failed(_) if self.head.is_none() => Err(Eof::InHead),
            State::Failed(_) => Err(Eof::InBody),
        }
    }

    /// The head of the final response, once it is whole.
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Body bytes handed out so far, without the framing around them.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether any byte was seen. Until then the request may be sent again on another connection.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn body_step<'a>(&mut self, piece: &'a [u8]) -> Step<'a> {
        self.body_bytes += piece.len() as u64;
        if piece.is_empty() { Step::More } else { Step::Body(piece) }
    }

    fn step_head<'a>(
        &mut self,
        input: &mut &'a [u8],
        carry: &mut Carry,
    ) -> Result<Step<'a>, Malformed> {
        self.has_begun = true;
        if carry.is_empty() {
            if self.is_after_cr || input[0] != b'H' {
                self.skip_empty_lines(input)?;
                if input.is_empty() {
                    return Ok(Step::More);
                }
            }
            // The common case: the whole head in one receive. An error found here may hang on the
            // cut, so that the slow path, which looks at whole heads only, has the last word on
            // every error.
            if let Ok(Some((head, head_bytes))) = head::parse(input, self.is_head_request)
                && head_bytes <= HEAD_BYTES_LIMIT
            {
                *input = &input[head_bytes..];
                return Ok(self.finish_head(head));
            }
        }
        self.gather_head(input, carry)
    }

    /// Empty lines in front of a status line are left over from the body of an earlier message; RFC
    /// 9112 2.2 lets a server skip them, and we are as patient.
    #[cold]
    fn skip_empty_lines(&mut self, input: &mut &[u8]) -> Result<(), Malformed> {
        while let Some((&byte, rest)) = input.split_first() {
            match byte {
                b'\n' => self.is_after_cr = false,
                _ if self.is_after_cr => return Err(Malformed::LineEnd),
                b'\r' => self.is_after_cr = true,
                _ => break,
            }
            *input = rest;
            self.skipped_bytes += 1;
            if self.skipped_bytes as usize > HEAD_BYTES_LIMIT {
                return Err(Malformed::HeadTooLarge);
            }
        }
        Ok(())
    }

    /// Moves the bytes of a head, and only those, into the carry, and parses it there once its end
    /// has come: each byte is looked at a bounded number of times, also if they come one by one.
    #[cold]
    fn gather_head<'a>(
        &mut self,
        input: &mut &'a [u8],
        carry: &mut Carry,
    ) -> Result<Step<'a>, Malformed> {
        head::check_start(carry.bytes.len(), input)?;
        let end = head::find_end(&carry.bytes, input);
        let taken = end.unwrap_or(input.len());
        if carry.bytes.len() + taken > HEAD_BYTES_LIMIT {
            return Err(Malformed::HeadTooLarge);
        }
        carry.bytes.extend_from_slice(&input[..taken]);
        *input = &input[taken..];
        if end.is_none() {
            return Ok(Step::More);
        }
        // An end that only we see would be a head that never ends for httparse: malformed, rather
        // than a hang.
        let (head, head_bytes) =
            head::parse(&carry.bytes, self.is_head_request)?.ok_or(Malformed::LineEnd)?;
        debug_assert_eq!(head_bytes, carry.bytes.len());
        carry.clear();
        Ok(self.finish_head(head))
    }

    fn finish_head<'a>(&mut self, head: Head) -> Step<'a> {
        // RFC 9110 15.2: any number of interim responses precede the final one.
        if head.status < 200 {
            return Step::Interim(head.status);
        }
        self.head = Some(head);
        self.state = match head.framing {
            Framing::None => State::Length(0),
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(ChunkDecoder::new()),
            Framing::UntilClose => State::UntilClose,
        };
        Step::Head(head)
    }
}

impl Carry {
    /// Room for a head of `bytes` before it has to grow.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// Whether no part of a head waits here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets the bytes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Bytes of memory held, for the slab's accounts.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Malformed {
    /// A short sentence fragment for the report.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotHttp => "not an HTTP response",
            Self::Version => "HTTP version other than 1.0 and 1.1",
            Self::StatusLine => "malformed status line",
            Self::Status => "status below 100",
            Self::Upgrade => "101 without a request to upgrade",
            Self::FieldName => "malformed field name",
            Self::FieldValue => "control character in a field value",
            Self::LineEnd => "CR without LF",
            Self::TooManyFields => "too many header fields",
            Self::HeadTooLarge => "response head too large",
            Self::ContentLength => "malformed or contradictory Content-Length",
            Self::TransferEncoding => "malformed Transfer-Encoding",
            Self::ChunkSize => "malformed chunk size",
            Self::ChunkSizeOverflow => "chunk size of more than 64 bits",
            Self::ChunkExtension => "line end in a quoted chunk extension",
            Self::ChunkLineTooLong => "chunk-size line too long",
            Self::ChunkEnd => "chunk data not followed by CRLF",
            Self::TrailersTooLarge => "trailers too large",
        }
    }
}

// One parser lies in every connection, beside its hottest fields.
const _: () = assert!(size_of::<ResponseParser>() <= 80);
// `skipped_bytes` and the counts of `ChunkDecoder` reach the limit before they overflow.
const _: () = assert!(HEAD_BYTES_LIMIT < u32::MAX as usize);
