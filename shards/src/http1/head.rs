//! Response heads: httparse reads the grammar, [`decide`] what the fields mean for the body and the
//! connection.
//!
//! Who calls it: [`ResponseParser`](super::ResponseParser), once in place, and again only for a
//! head that was cut or is malformed.

use std::mem::MaybeUninit;

use memchr::memchr;

use super::Malformed;
use crate::limits::HEAD_FIELDS_LIMIT;

/// What the head of a final response says that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// 200 to 999.
    pub status: u16,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub version_minor: u8,
    /// Whether the connection may carry another request after this response.
    pub keep_alive: bool,
    /// Where the body ends.
    pub framing: Framing,
    /// What the body is.
    pub content_type: ContentType,
}

/// What `Content-Type` says, as far as answers are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    /// Nothing: there is no such field, or an empty one.
    #[default]
    None,
    /// `text/event-stream`.
    EventStream,
    /// `application/json`, `text/json`, or any type that ends in `+json`.
    Json,
    /// Any other type.
    Other,
}

/// How the end of a body is found (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body, whatever the fields say: the answer to HEAD, 1xx, 204, 304.
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding` with `chunked` last.
    Chunked,
    /// Neither: the body ends with the stream.
    UntilClose,
}

/// Parses the head at the front of `bytes`: what it says and how long it is, or `None` if its end
/// has not come.
pub(super) fn parse(
    bytes: &[u8],
    is_head_request: bool,
) -> Result<Option<(Head, usize)>, Malformed> {
    match parse_fields::<FIELDS_USUAL>(bytes, is_head_request) {
        Err(Malformed::TooManyFields) => parse_many_fields(bytes, is_head_request),
        parsed => parsed,
    }
}

/// Apart from the usual case, so that its 64 KiB of stack are touched only when they are needed.
#[cold]
#[inline(never)]
fn parse_many_fields(
    bytes: &[u8],
    is_head_request: bool,
) -> Result<Option<(Head, usize)>, Malformed> {
    parse_fields::<HEAD_FIELDS_LIMIT>(bytes, is_head_request)
}

fn parse_fields<const FIELDS: usize>(
    bytes: &[u8],
    is_head_request: bool,
) -> Result<Option<(Head, usize)>, Malformed> {
    #[cfg(test)]
    work::count(bytes.len());
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        // RFC 9112 5.2: a user agent replaces obs-fold by spaces. `elements` and the number parser
        // see to that.
        .allow_obsolete_multiline_headers_in_responses(true)
        // RFC 9112 5.1: space before the colon of a response is to be removed, not refused.
        .allow_spaces_after_header_name_in_responses(true)
        .parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    let head_bytes = match parsed {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(malformed(error)),
    };
    let (Some(status), Some(version_minor)) = (response.code, response.version) else {
        return Err(Malformed::StatusLine);
    };
    let head = decide(status, version_minor, response.headers, is_head_request)?;
    Ok(Some((head, head_bytes)))
}

/// The body and the fate of the connection, from the status and the fields: RFC 9112 6.3 and 9.3.
fn decide(
    status: u16,
    version_minor: u8,
    fields: &[httparse::Header<'_>],
    is_head_request: bool,
) -> Result<Head, Malformed> {
    let mut length = ContentLength::Absent;
    let mut coding = TransferCoding::Absent;
    let mut has_close = false;
    let mut has_keep_alive = false;
    let mut content_type = ContentType::None;
    for field in fields {
        // The length of the name rules out almost every other field without a look at its bytes.
        match field.name.len() {
            10 if field.name.eq_ignore_ascii_case("connection") => {
                for option in elements(field.value) {
                    has_close |= option.eq_ignore_ascii_case(b"close");
                    has_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            12 if field.name.eq_ignore_ascii_case("content-type") => {
                content_type = ContentType::of(field.value);
            }
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                length = length.and(field.value);
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                coding = coding.and(field.value);
            }
            _ => {}
        }
    }

    // RFC 9110 15: a status has three digits, the first of them not 0. 101 (RFC 9110 15.2.2) would
    // hand the connection to another protocol, and no request of ours asks for one.
    match status {
        ..=99 => return Err(Malformed::Status),
        101 => return Err(Malformed::Upgrade),
        _ => {}
    }
    let framing = if is_head_request || matches!(status, 100..=199 | 204 | 304) {
        // Rule 1 comes before any field is looked at, so it holds also if these are malformed.
        Framing::None
    } else {
        match (coding, length) {
            (TransferCoding::Invalid, _) => return Err(Malformed::TransferEncoding),
            // Rules 3 and 4: a transfer coding is stronger than any Content-Length.
            (TransferCoding::Chunked, _) => Framing::Chunked,
            (TransferCoding::Other | TransferCoding::OtherAfterChunked, _) => Framing::UntilClose,
            // Rules 5, 6 and 8.
            (TransferCoding::Absent, ContentLength::Invalid) => {
                return Err(Malformed::ContentLength);
            }
            (TransferCoding::Absent, ContentLength::Is(length)) => Framing::Length(length),
            (TransferCoding::Absent, ContentLength::Absent) => Framing::UntilClose,
        }
    };
    // RFC 9112 6.1 and 6.3: with both fields, or with a transfer coding in HTTP/1.0, the sender's
    // framing is not to be trusted any further than the end of this response.
    let is_suspect =
        coding != TransferCoding::Absent && (version_minor == 0 || length != ContentLength::Absent);
    // RFC 9112 9.3: `close` wins; HTTP/1.1 persists by default, HTTP/1.0 on request.
    let persists = !has_close && (version_minor >= 1 || has_keep_alive);
    let keep_alive = persists && !is_suspect && framing != Framing::UntilClose;
    Ok(Head { status, version_minor, keep_alive, framing, content_type })
}

impl ContentType {
    /// RFC 9110 8.3.1: a type in any case, then perhaps parameters, none of which matters here:
    /// both types are UTF-8 whatever a parameter says. Of several fields the last counts.
    fn of(value: &[u8]) -> Self {
        let name = trim(value.split(|&byte| byte == b';').next().unwrap_or(value));
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let ends_in_json = name
            .len()
            .checked_sub(b"+json".len())
            .is_some_and(|at| at > 0 && name[at..].eq_ignore_ascii_case(b"+json"));
        match name {
            [] => Self::None,
            _ if is("text/event-stream") => Self::EventStream,
            _ if is("application/json") || is("text/json") || ends_in_json => Self::Json,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentLength {
    Absent,
    Is(u64),
    Invalid,
}

impl ContentLength {
    /// RFC 9110 8.6: the same number several times, in one field or in many, is that number;
    /// anything else but one decimal number is invalid.
    fn and(self, value: &[u8]) -> Self {
        value.split(|&byte| byte == b',').fold(self, |so_far, number| {
            match (so_far, decimal(trim(number))) {
                (Self::Absent, Some(number)) => Self::Is(number),
                (Self::Is(before), Some(number)) if before == number => so_far,
                _ => Self::Invalid,
            }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransferCoding {
    Absent,
    /// Chunked is the final coding.
    Chunked,
    /// Some other coding is, or none is named.
    Other,
    /// Some other coding is, and chunked comes before it.
    OtherAfterChunked,
    Invalid,
}

impl TransferCoding {
    /// RFC 9112 6.1: codings are listed in the order applied, over all fields, and chunked is
    /// applied last and once. RFC 9112 7.1: chunked has no parameters. A comma in a quoted
    /// parameter of another coding splits it in two here; neither half is `chunked` unless someone
    /// means to fool us.
    fn and(self, value: &[u8]) -> Self {
        // A field that names no coding at all still replaces Content-Length.
        let named = if self == Self::Absent { Self::Other } else { self };
        elements(value).fold(named, |so_far, coding| {
            let name = coding.split(|&byte| byte == b';').next().unwrap_or(coding);
            let is_chunked = trim(name).eq_ignore_ascii_case(b"chunked");
            match so_far {
                Self::Invalid => Self::Invalid,
                _ if is_chunked && name.len() < coding.len() => Self::Invalid,
                Self::Chunked | Self::OtherAfterChunked if is_chunked => Self::Invalid,
                Self::Chunked | Self::OtherAfterChunked => Self::OtherAfterChunked,
                Self::Absent | Self::Other if is_chunked => Self::Chunked,
                Self::Absent | Self::Other => Self::Other,
            }
        })
    }
}

/// The elements of a comma-separated list; empty ones are to be ignored (RFC 9110 5.6.1.2).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

/// Without the white space at both ends; CR and LF are in a value only as part of an obs-fold.
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\r' | b'\n'] = bytes {
        bytes = rest;
    }
    bytes
}

/// `1*DIGIT`, no sign, below 2^64.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// Whether `input`, which follows the first `so_far` bytes of a head, can go on to be one. Garbage
/// fails here at its first wrong byte, and does not wait for an empty line that never comes.
pub(super) fn check_start(so_far: usize, input: &[u8]) -> Result<(), Malformed> {
    for (at, &byte) in (so_far..VERSION_BYTES).zip(input) {
        let is_right = match START.get(at) {
            Some(&expected) => byte == expected,
            None => matches!(byte, b'0' | b'1'),
        };
        if !is_right {
            let is_http = at >= b"HTTP/".len();
            return Err(if is_http { Malformed::Version } else { Malformed::NotHttp });
        }
    }
    Ok(())
}

/// How many bytes of `input`, which follows `before`, belong to the head: all up to and with its
/// first empty line. `None` if that has not come. A line ends with LF, with or without a CR (RFC
/// 9112 2.2).
pub(super) fn find_end(before: &[u8], input: &[u8]) -> Option<usize> {
    #[cfg(test)]
    work::count(input.len());
    match (before, input) {
        ([.., b'\n'] | [.., b'\n', b'\r'], [b'\n', ..]) => return Some(1),
        ([.., b'\n'], [b'\r', b'\n', ..]) => return Some(2),
        _ => {}
    }
    let mut at = 0;
    while let Some(offset) = memchr(b'\n', &input[at..]) {
        at += offset + 1;
        match input[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

#[cold]
fn malformed(error: httparse::Error) -> Malformed {
    match error {
        httparse::Error::HeaderName => Malformed::FieldName,
        httparse::Error::HeaderValue => Malformed::FieldValue,
        httparse::Error::NewLine => Malformed::LineEnd,
        httparse::Error::TooManyHeaders => Malformed::TooManyFields,
        // The version itself has passed `check_start` when this is reported.
        httparse::Error::Version | httparse::Error::Status | httparse::Error::Token => {
            Malformed::StatusLine
        }
    }
}

/// Fields that are parsed without touching more than 2 KiB of stack.
const FIELDS_USUAL: usize = 64;
const START: &[u8] = b"HTTP/1.";
const VERSION_BYTES: usize = START.len() + 1;

/// Counts the bytes that heads cost, so that a test can claim linear time without a clock.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count(bytes: usize) {
        BYTES.with(|total| total.set(total.get() + bytes));
    }

    /// Bytes looked at by this thread since the last call.
    pub(in crate::http1) fn take() -> usize {
        BYTES.with(Cell::take)
    }
}
