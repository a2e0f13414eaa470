//! An independent decoder: the whole stream at once, no state kept, no speed wanted, and neither
//! httparse nor anything of the parser behind it. Where it agrees, two readings of RFC 9112 agree.

use super::{ContentType, End, Eof, Framing, Head, Outcome};
use crate::limits::{HEAD_BYTES_LIMIT, HEAD_FIELDS_LIMIT};

const BAD: End = End::Malformed(None);
const CUT_IN_HEAD: End = End::Truncated(Eof::InHead);
const CUT_IN_BODY: End = End::Truncated(Eof::InBody);

pub(super) fn decode(wire: &[u8], is_head_request: bool) -> Outcome {
    let mut outcome = Outcome { interims: vec![], head: None, body: vec![], end: BAD };
    let mut rest = wire;
    let head = loop {
        match one_head(rest, is_head_request) {
            Ok((head, behind)) if head.status < 200 => {
                outcome.interims.push(head.status);
                rest = behind;
            }
            Ok((head, behind)) => {
                rest = behind;
                break head;
            }
            Err(_) if wire.is_empty() => {
                outcome.end = End::Truncated(Eof::BeforeAnyByte);
                return outcome;
            }
            Err(end) => {
                outcome.end = end;
                return outcome;
            }
        }
    };
    outcome.head = Some(head);
    outcome.end = match head.framing {
        Framing::None => End::Complete { excess: rest.len() },
        Framing::Length(length) if (rest.len() as u64) < length => {
            outcome.body = rest.to_vec();
            CUT_IN_BODY
        }
        Framing::Length(length) => {
            outcome.body = rest[..length as usize].to_vec();
            End::Complete { excess: rest.len() - length as usize }
        }
        Framing::UntilClose => {
            outcome.body = rest.to_vec();
            End::Closed
        }
        Framing::Chunked => match chunked(&mut Cursor { rest }, &mut outcome.body) {
            Ok(excess) => End::Complete { excess },
            Err(end) => end,
        },
    };
    outcome
}

fn one_head(mut bytes: &[u8], is_head_request: bool) -> Result<(Head, &[u8]), End> {
    while let Some(rest) = bytes.strip_prefix(b"\r\n").or(bytes.strip_prefix(b"\n")) {
        bytes = rest;
    }
    if bytes == b"\r" {
        return Err(CUT_IN_HEAD);
    }
    let can_begin = |start: &[u8]| bytes.starts_with(start) || start.starts_with(bytes);
    if !can_begin(b"HTTP/1.0") && !can_begin(b"HTTP/1.1") {
        return Err(BAD);
    }
    let mut ends = (0..bytes.len()).filter_map(|at| {
        let is_end = |end: &[u8]| bytes[at..].starts_with(end).then_some(at + end.len());
        is_end(b"\n\n").or(is_end(b"\n\r\n"))
    });
    let Some(end) = ends.next() else {
        return Err(if bytes.len() > HEAD_BYTES_LIMIT { BAD } else { CUT_IN_HEAD });
    };
    if end > HEAD_BYTES_LIMIT {
        return Err(BAD);
    }
    let head = meaning(&bytes[..end], is_head_request).ok_or(BAD)?;
    Ok((head, &bytes[end..]))
}

fn meaning(head: &[u8], is_head_request: bool) -> Option<Head> {
    let mut lines =
        head.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let status_line = lines.next()?;
    let version_minor = status_line[7] - b'0';
    let code = status_line.get(9..12)?;
    if status_line[8] != b' ' || !code.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let status: u16 = str::from_utf8(code).ok()?.parse().ok()?;
    let reason = &status_line[12..];
    if !(reason.is_empty() || reason[0] == b' ' && is_text(reason)) || status < 100 || status == 101
    {
        return None;
    }

    let mut fields: Vec<(String, Vec<u8>)> = vec![];
    let mut lines = lines.collect::<Vec<_>>();
    lines.truncate(lines.len() - 2); // the empty line, and what split finds behind its LF
    for line in lines {
        if !is_text(line) {
            return None;
        }
        if matches!(line[0], b' ' | b'\t') {
            let (_, value) = fields.last_mut()?;
            value.push(b' ');
            value.extend_from_slice(line);
            continue;
        }
        let colon = line.iter().position(|&b| b == b':')?;
        let name = str::from_utf8(&line[..colon]).ok()?.trim_end_matches([' ', '\t']);
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            return None;
        }
        fields.push((name.to_ascii_lowercase(), line[colon + 1..].to_vec()));
    }
    if fields.len() > HEAD_FIELDS_LIMIT {
        return None;
    }
    semantics(status, version_minor, &fields, is_head_request)
}

fn semantics(
    status: u16,
    version_minor: u8,
    fields: &[(String, Vec<u8>)],
    is_head_request: bool,
) -> Option<Head> {
    // All fields of a name joined to one list, as RFC 9110 5.3 allows anyone to do.
    let list = |name: &str| {
        let values = fields
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, value)| String::from_utf8_lossy(value).to_ascii_lowercase());
        values.collect::<Vec<_>>()
    };
    let split = |values: &[String]| {
        let joined = values.join(",");
        let trimmed = joined.split(',').map(|v| v.trim_matches([' ', '\t']).to_owned());
        trimmed.collect::<Vec<_>>()
    };
    let options = split(&list("connection"));
    let has = |option: &str| options.iter().any(|o| o == option);
    let lengths = list("content-length");
    let codings = list("transfer-encoding");

    let framing = if is_head_request || status < 200 || status == 204 || status == 304 {
        Framing::None
    } else if !codings.is_empty() {
        let names: Vec<_> = split(&codings).into_iter().filter(|c| !c.is_empty()).collect();
        let bare = |c: &String| c.split(';').next().unwrap().trim_matches([' ', '\t']) == "chunked";
        if names.iter().filter(|c| bare(c)).count() > 1
            || names.iter().any(|c| bare(c) && c.contains(';'))
        {
            return None;
        }
        match names.last() {
            Some(last) if last == "chunked" => Framing::Chunked,
            _ => Framing::UntilClose,
        }
    } else if !lengths.is_empty() {
        let mut numbers = vec![];
        for number in split(&lengths) {
            if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            numbers.push(number.parse::<u64>().ok()?);
        }
        numbers.dedup();
        let [length] = numbers[..] else { return None };
        Framing::Length(length)
    } else {
        Framing::UntilClose
    };

    let mut keep_alive = if version_minor == 1 { true } else { has("keep-alive") };
    if has("close") || framing == Framing::UntilClose {
        keep_alive = false;
    }
    if !codings.is_empty() && (!lengths.is_empty() || version_minor == 0) {
        keep_alive = false;
    }
    let content_type = list("content-type").last().map_or(ContentType::None, |value| {
        let name = value.split(';').next().unwrap().trim_matches([' ', '\t']);
        match name {
            "" => ContentType::None,
            "text/event-stream" => ContentType::EventStream,
            "application/json" | "text/json" => ContentType::Json,
            _ if name.len() > 5 && name.ends_with("+json") => ContentType::Json,
            _ => ContentType::Other,
        }
    });
    Some(Head { status, version_minor, keep_alive, framing, content_type })
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == b'\t' || (b >= b' ' && b != 0x7f))
}

/// Decodes a chunked body into `body`; the bytes left behind it.
fn chunked(cursor: &mut Cursor<'_>, body: &mut Vec<u8>) -> Result<usize, End> {
    loop {
        let size = size_line(cursor)?;
        if size == 0 {
            break;
        }
        for _ in 0..size {
            body.push(cursor.next()?);
        }
        line_end(cursor)?;
    }
    loop {
        match cursor.next()? {
            b'\n' => return Ok(cursor.rest.len()),
            b'\r' if cursor.next()? == b'\n' => return Ok(cursor.rest.len()),
            b'\r' => return Err(BAD),
            _ => while cursor.next()? != b'\n' {},
        }
    }
}

fn size_line(cursor: &mut Cursor<'_>) -> Result<u64, End> {
    let mut digits = String::from("0");
    while let Ok(byte @ (b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')) = cursor.peek() {
        digits.push(char::from(byte));
        cursor.next()?;
    }
    let significant = digits.trim_start_matches('0').len();
    if significant > 16 {
        return Err(BAD);
    }
    let next = cursor.peek()?;
    if digits.len() == 1 {
        return Err(BAD);
    }
    if matches!(next, b' ' | b'\t') {
        while matches!(cursor.peek()?, b' ' | b'\t') {
            cursor.next()?;
        }
    }
    if cursor.peek()? == b';' {
        while !matches!(cursor.peek()?, b'\r' | b'\n') {
            if cursor.next()? == b'"' {
                quoted_string(cursor)?;
            }
        }
    }
    line_end(cursor)?;
    Ok(u64::from_str_radix(&digits, 16).expect("at most 16 hexadecimal digits"))
}

fn quoted_string(cursor: &mut Cursor<'_>) -> Result<(), End> {
    loop {
        match cursor.next()? {
            b'"' => return Ok(()),
            b'\r' | b'\n' => return Err(BAD),
            b'\\' if matches!(cursor.next()?, b'\r' | b'\n') => return Err(BAD),
            _ => {}
        }
    }
}

fn line_end(cursor: &mut Cursor<'_>) -> Result<(), End> {
    match cursor.next()? {
        b'\n' => Ok(()),
        b'\r' if cursor.next()? == b'\n' => Ok(()),
        _ => Err(BAD),
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn peek(&self) -> Result<u8, End> {
        self.rest.first().copied().ok_or(CUT_IN_BODY)
    }

    fn next(&mut self) -> Result<u8, End> {
        let byte = self.peek()?;
        self.rest = &self.rest[1..];
        Ok(byte)
    }
}
