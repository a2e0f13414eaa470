//! The response decoder: one response at a time, Content-Length or chunked, cut anywhere by the
//! receives. It counts SSE events (blank lines in a body), since that is what a stream is paid by.
//!
//! It knows what the servers of `perf/rivals` send and refuses the rest.

/// Header fields of the longest head that is accepted.
const FIELDS_LIMIT: usize = 32;
/// Bytes of the longest head that is accepted.
const HEAD_BYTES_LIMIT: usize = 16 * 1024;

#[derive(Default)]
pub struct Decoder {
    state: State,
    /// A head that came in pieces; empty in the usual case, where it is parsed in place.
    head: Vec<u8>,
    /// Bytes left of the body, or of the HTTP chunk; while a size line is read, its value so far.
    left: u64,
    is_after_newline: bool,
    pub chunk_count: u64,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Fixed,
    Size,
    Extension,
    Data,
    DataEnd,
    /// In the trailer, at the start of a line or within one.
    LineStart,
    Line,
}

impl Decoder {
    /// Takes the next bytes; `true` when they end the response. Bytes after the end are a fault,
    /// since nothing more was asked for.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<bool, &'static str> {
        if self.state != State::Head {
            return self.body(bytes);
        }
        if self.head.is_empty() {
            return match self.parse_head(bytes)? {
                Some(end) => self.body(&bytes[end..]),
                None => self.keep(bytes),
            };
        }
        let mut head = std::mem::take(&mut self.head);
        head.extend_from_slice(bytes);
        match self.parse_head(&head)? {
            Some(end) => self.body(&head[end..]),
            None => self.keep(&head),
        }
    }

    fn keep(&mut self, head: &[u8]) -> Result<bool, &'static str> {
        if head.len() > HEAD_BYTES_LIMIT {
            return Err("head too long");
        }
        self.head.extend_from_slice(head);
        Ok(false)
    }

    /// The length of the head, or nothing if it is not whole.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_LIMIT];
        let mut response = httparse::Response::new(&mut fields);
        let status = response.parse(bytes).map_err(|_| "malformed head")?;
        let httparse::Status::Complete(end) = status else { return Ok(None) };
        if response.code != Some(200) {
            return Err("status is not 200");
        }
        let mut framing = None;
        for field in response.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                self.left = std::str::from_utf8(field.value)
                    .ok()
                    .and_then(|text| text.trim().parse().ok())
                    .ok_or("malformed Content-Length")?;
                framing = Some(State::Fixed);
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                self.left = 0;
                framing = Some(State::Size);
                break; // chunked wins over a length, RFC 9112 section 6.3
            }
        }
        self.state = framing.ok_or("no framing in the head")?;
        self.is_after_newline = false;
        Ok(Some(end))
    }

    fn body(&mut self, mut bytes: &[u8]) -> Result<bool, &'static str> {
        if self.state == State::Fixed {
            let rest = self.take(&mut bytes);
            self.count_events(rest);
            return self.finish(self.left == 0, bytes);
        }
        while let Some((&byte, after)) = bytes.split_first() {
            if self.state == State::Data {
                let piece = self.take(&mut bytes);
                self.count_events(piece);
                if self.left == 0 {
                    self.state = State::DataEnd;
                }
                continue;
            }
            bytes = after;
            if self.framing_byte(byte)? {
                return self.finish(true, bytes);
            }
        }
        Ok(false)
    }

    /// One byte that is not data; `true` at the end of the trailer.
    fn framing_byte(&mut self, byte: u8) -> Result<bool, &'static str> {
        self.state = match (self.state, byte) {
            (State::Size | State::Extension, b'\n') if self.left == 0 => State::LineStart,
            (State::Size | State::Extension, b'\n') => State::Data,
            (State::Size, b'\r' | b';') | (State::Extension, _) => State::Extension,
            (State::Size, digit) => {
                let value = char::from(digit).to_digit(16).ok_or("malformed chunk size")?;
                self.left = (self.left << 4) | u64::from(value);
                State::Size
            }
            (State::DataEnd, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => State::Size, // `left` is 0 here
            (State::DataEnd, _) => return Err("chunk longer than its size"),
            (State::LineStart, b'\n') => return Ok(true),
            (State::LineStart, b'\r') => State::LineStart,
            (State::Line, b'\n') => State::LineStart,
            (State::LineStart | State::Line, _) => State::Line,
            (State::Head | State::Fixed | State::Data, _) => {
                unreachable!("these states take no single bytes")
            }
        };
        Ok(false)
    }

    fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> &'a [u8] {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let (piece, rest) = bytes.split_at(count);
        self.left -= count as u64;
        *bytes = rest;
        piece
    }

    fn finish(&mut self, is_complete: bool, rest: &[u8]) -> Result<bool, &'static str> {
        if !is_complete {
            return Ok(false);
        }
        self.state = State::Head;
        if rest.is_empty() { Ok(true) } else { Err("bytes after the response") }
    }

    /// An event ends at an empty line; the servers here end lines with LF.
    fn count_events(&mut self, piece: &[u8]) {
        let mut next = 0;
        for newline in memchr::memchr_iter(b'\n', piece) {
            if newline == next && (newline > 0 || self.is_after_newline) {
                self.chunk_count += 1;
            }
            next = newline + 1;
        }
        if !piece.is_empty() {
            self.is_after_newline = next == piece.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        9\r\ndata: a\n\n\r\nA;x=1\r\ndata: bb\n\n\r\n0\r\nT: 1\r\n\r\n";

    #[test]
    fn a_response_cut_at_any_two_places_decodes_equally() {
        for (response, chunks) in [(PLAIN, 0), (EMPTY, 0), (STREAM, 2)] {
            for first in 0..response.len() {
                for second in first..response.len() {
                    let mut decoder = Decoder::default();
                    let pieces =
                        [&response[..first], &response[first..second], &response[second..]];
                    let ends = pieces.map(|piece| decoder.feed(piece));
                    assert_eq!(ends, [Ok(false), Ok(false), Ok(true)], "{first} {second}");
                    assert_eq!(decoder.chunk_count, chunks, "{first} {second}");
                    assert_eq!(decoder.feed(response), Ok(true), "the next response");
                }
            }
        }
    }

    #[test]
    fn what_the_servers_never_send_is_a_fault() {
        for (response, fault) in [
            (&b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"[..], "status is not 200"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "no framing in the head"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "malformed Content-Length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", "bytes after the response"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxy", "malformed chunk size"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
                "chunk longer than its size",
            ),
            (b"garbage\r\n\r\n", "malformed head"),
        ] {
            assert_eq!(Decoder::default().feed(response), Err(fault));
        }
    }
}
