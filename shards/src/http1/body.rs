//! Bodies in the chunked transfer coding (RFC 9112 7.1), and the one primitive that all framings
//! share.
//!
//! [`ChunkDecoder`] is a byte-level state machine: it needs no memory for a size line or a trailer
//! that is cut, and chunk data goes out as slices of the input. Extensions and trailers are
//! skipped: nothing here asks for one.

use super::Malformed;
use crate::limits::HEAD_BYTES_LIMIT;

/// The position inside a chunked body.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkDecoder {
    at: At,
    /// Bytes of this size line, or of the trailers so far.
    line_bytes: u32,
    /// The size read so far; then the bytes of the chunk still to come.
    left: u64,
}

/// What the bytes taken by [`ChunkDecoder::step`] were.
pub(super) enum Piece<'a> {
    /// Data; empty means that all input is taken.
    Data(&'a [u8]),
    /// The body and its trailers are complete.
    End,
}

/// What the next byte is part of.
///
/// ```text
/// chunk     = chunk-size [ chunk-ext ] CRLF chunk-data CRLF
/// chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
/// body      = *chunk last-chunk trailer-section CRLF
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    SizeStart,
    Size,
    /// White space behind the size: before an extension, or padding, which some servers send.
    SizeSpace,
    Extension,
    Quoted,
    QuotedPair,
    SizeLf,
    Data,
    DataEnd,
    DataLf,
    TrailerStart,
    Trailer,
    EndLf,
    End,
}

impl ChunkDecoder {
    pub(super) fn new() -> Self {
        Self { at: At::SizeStart, line_bytes: 0, left: 0 }
    }

    pub(super) fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, Malformed> {
        loop {
            if self.at == At::Data {
                let piece = take_up_to(self.left, input);
                self.left -= piece.len() as u64;
                if self.left == 0 {
                    self.at = At::DataEnd;
                }
                return Ok(Piece::Data(piece));
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(Piece::Data(&[])) };
            *input = rest;
            self.at = self.after(byte)?;
            if self.at == At::End {
                return Ok(Piece::End);
            }
        }
    }

    /// The position after a byte that is not data.
    fn after(&mut self, byte: u8) -> Result<At, Malformed> {
        self.count_line_byte()?;
        // RFC 9112 2.2: a bare LF ends a line as CRLF does. Where CR is named its LF must follow.
        Ok(match (self.at, byte) {
            (At::SizeStart | At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.left > u64::MAX >> 4 {
                    return Err(Malformed::ChunkSizeOverflow);
                }
                self.left = self.left << 4 | u64::from(hex_digit(byte));
                At::Size
            }
            (At::Size | At::SizeSpace, b' ' | b'\t') => At::SizeSpace,
            (At::Size | At::SizeSpace, b';') => At::Extension,
            (At::Size | At::SizeSpace | At::Extension, b'\r') => At::SizeLf,
            (At::Size | At::SizeSpace | At::Extension | At::SizeLf, b'\n') => {
                self.line_bytes = 0;
                if self.left == 0 { At::TrailerStart } else { At::Data }
            }
            (At::SizeStart | At::Size | At::SizeSpace, _) => return Err(Malformed::ChunkSize),
            (At::Extension, b'"') => At::Quoted,
            (At::Extension, _) => At::Extension,
            (At::Quoted | At::QuotedPair, b'\r' | b'\n') => return Err(Malformed::ChunkExtension),
            (At::Quoted, b'"') => At::Extension,
            (At::Quoted, b'\\') => At::QuotedPair,
            (At::Quoted | At::QuotedPair, _) => At::Quoted,
            (At::DataEnd, b'\r') => At::DataLf,
            (At::DataEnd | At::DataLf, b'\n') => {
                self.line_bytes = 0;
                At::SizeStart
            }
            (At::DataEnd | At::DataLf, _) => return Err(Malformed::ChunkEnd),
            (At::TrailerStart | At::EndLf, b'\n') => At::End,
            (At::TrailerStart, b'\r') => At::EndLf,
            (At::Trailer, b'\n') => At::TrailerStart,
            (At::TrailerStart | At::Trailer, _) => At::Trailer,
            (At::SizeLf | At::EndLf, _) => return Err(Malformed::LineEnd),
            (At::Data | At::End, _) => self.at, // no framing byte is read there
        })
    }

    fn count_line_byte(&mut self) -> Result<(), Malformed> {
        self.line_bytes += 1;
        if self.line_bytes as usize <= HEAD_BYTES_LIMIT {
            return Ok(());
        }
        let is_trailer = matches!(self.at, At::TrailerStart | At::Trailer | At::EndLf);
        Err(if is_trailer { Malformed::TrailersTooLarge } else { Malformed::ChunkLineTooLong })
    }
}

/// Takes the first bytes of `input`, at most `limit`.
pub(super) fn take_up_to<'a>(limit: u64, input: &mut &'a [u8]) -> &'a [u8] {
    let taken = usize::try_from(limit).unwrap_or(usize::MAX).min(input.len());
    let (piece, rest) = input.split_at(taken);
    *input = rest;
    piece
}

/// The value of a byte that is known to be a hexadecimal digit of any case.
fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}
