//! What the ground-truth server answers: the path of a request names a script, its query string the
//! numbers.
//!
//! A script is a list of plain steps, so that every answer, the illegal ones included, is visible
//! here byte by byte.

use std::borrow::Cow;
use std::time::Duration;

/// One thing the server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes the bytes in one call.
    Write(Cow<'static, [u8]>),
    /// Does nothing for a while.
    Pause(Duration),
    /// Answers no more, until the client closes.
    Hold,
    /// Waits for the first byte of the next request, then closes without having read it.
    CloseAtNextRequest,
    /// Closes in order.
    Close,
    /// Closes with a reset.
    Reset,
}

/// Where a request stands, counted from 1.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Among the requests of its path.
    pub of_path: u64,
    /// Among the requests of its connection.
    pub of_connection: u64,
}

/// The legal answers of the acceptance list: each is one success, whatever the connection does
/// afterwards.
pub const LEGAL: [&str; 12] = [
    "plain",
    "chunked",
    "drip",
    "204",
    "304",
    "head",
    "100",
    "close",
    "eof",
    "rudeclose",
    "manyhdr",
    "lf",
];

/// Answers that end too early: each is one failure of kind `truncated_body`.
pub const TRUNCATED: [&str; 3] = ["trunc", "trunc-chunk", "trunc-head"];

/// `plain`: a small answer that keeps the connection.
pub const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The end of an answer whose body is `ok`.
const TWO_BYTES: &[u8] = b"Content-Length: 2\r\n\r\nok";

/// The steps that answer one request, or `None` if the path names no script.
pub fn steps(method: &str, target: &str, position: Position) -> Option<Vec<Step>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let number = |name: &str, default: u64| number(query, name, default);
    let pause = |default_ms| Step::Pause(Duration::from_millis(number("ms", default_ms)));
    let name = path.trim_start_matches('/');
    let steps = match name {
        "plain" => vec![fixed(PLAIN)],
        "chunked" => vec![fixed(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
              5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nTrailer: t\r\n\r\n",
        )],
        "drip" => drip(),
        "204" => vec![fixed(b"HTTP/1.1 204 No Content\r\n\r\n")],
        "304" => vec![fixed(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n")],
        "head" => vec![Step::Write(head_answer(method).into())],
        "100" => vec![fixed(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        )],
        "interim" => interim(number("count", 3)),
        "close" => vec![
            fixed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
            Step::Close,
        ],
        "eof" => vec![fixed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"), Step::Close],
        "rudeclose" => vec![fixed(PLAIN), Step::Close],
        "manyhdr" => vec![Step::Write(many_fields(300, 1).into())],
        // 1000 fields of 256 bytes and more: above 256 KiB.
        "huge-head" => vec![Step::Write(many_fields(1000, 256).into())],
        "lf" => vec![fixed(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok")],
        "trunc" => vec![fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"), Step::Close],
        "trunc-chunk" => vec![
            fixed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
            Step::Close,
        ],
        "trunc-head" => vec![fixed(b"HTTP/1.1 200 OK\r\nContent-Le"), Step::Close],
        "mix" if position.of_path.is_multiple_of(number("every", 2)) => {
            status(number("status", 503))
        }
        "mix" => vec![pause(0), fixed(PLAIN)],
        "redirect" => vec![fixed(
            b"HTTP/1.1 301 Moved Permanently\r\nLocation: /plain\r\nContent-Length: 0\r\n\r\n",
        )],
        "garbage" => vec![fixed(b"\x16\x03\x01\x1b[2J\x07 no HTTP at all\r\n\r\n"), Step::Close],
        "control" => vec![fixed(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 22\r\n\r\n\
              \x1b[2J\x1b]0;owned\x07\r\n\x08\x9bhurt",
        )],
        "falls-silent" if position.of_path > number("after", 5) => vec![Step::Hold],
        "falls-silent" => vec![fixed(PLAIN)],
        "quote" => quote(target),
        "closes" => vec![Step::Close],
        "silent" => vec![Step::Hold],
        "delay" => vec![pause(20), fixed(PLAIN)],
        "reset-before" => vec![Step::Reset],
        "reset-inside" => {
            vec![fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"), pause(5), Step::Reset]
        }
        "reset-mix" if position.of_path.is_multiple_of(number("every", 2)) => vec![Step::Reset],
        "reset-mix" => vec![fixed(PLAIN)],
        "big" => vec![Step::Write(big(number("bytes", 1 << 20)).into())],
        "bytewise" => PLAIN.chunks(1).map(fixed).collect(),
        "excess" => vec![fixed(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\
              HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
        )],
        "slow-middle" => vec![
            fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n0123456789"),
            pause(50),
            fixed(b"0123456789"),
        ],
        "stale" if position.of_connection >= number("after", 5) => {
            vec![fixed(PLAIN), Step::CloseAtNextRequest]
        }
        "stale-read" if position.of_connection > number("after", 5) => vec![Step::Close],
        "stale" | "stale-read" => vec![fixed(PLAIN)],
        "http10" => vec![fixed(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"), Step::Close],
        "http10-keepalive" => {
            vec![fixed(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")]
        }
        _ => status(name.strip_prefix("status/")?.parse().ok()?),
    };
    Some(steps)
}

/// Bytes known when this was compiled.
fn fixed(bytes: &'static [u8]) -> Step {
    Step::Write(Cow::Borrowed(bytes))
}

/// The value of a number in the query string.
fn number(query: &str, name: &str, default: u64) -> u64 {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back();
    value.map_or(default, |value| value.parse().expect("a number in the query string of a script"))
}

/// A chunked answer in seven pieces, cut inside line ends, a field name and a chunk.
fn drip() -> Vec<Step> {
    let pieces: [&'static [u8]; 7] = [
        b"HTTP/1.1 200 OK\r",
        b"\nTransfer-Enc",
        b"oding: chunked\r\n\r",
        b"\n5\r\nhel",
        b"lo\r",
        b"\n0\r\n\r",
        b"\n",
    ];
    let gap = Step::Pause(Duration::from_millis(2));
    let mut steps: Vec<Step> = pieces.into_iter().flat_map(|p| [fixed(p), gap.clone()]).collect();
    steps.pop();
    steps
}

/// Interim answers of several kinds, each in a write of its own, then the final one.
fn interim(count: u64) -> Vec<Step> {
    let kinds: [&'static [u8]; 3] = [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\nX-Step: 1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n",
    ];
    let count = usize::try_from(count).expect("a small number");
    kinds.into_iter().cycle().take(count).chain([PLAIN]).map(fixed).collect()
}

/// To HEAD the length without the body, to other methods both.
fn head_answer(method: &str) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_vec();
    if method != "HEAD" {
        bytes.extend([b'x'; 500]);
    }
    bytes
}

fn many_fields(count: usize, value_bytes: usize) -> Vec<u8> {
    let value = "v".repeat(value_bytes);
    let fields: String = (0..count).map(|i| format!("X-{i}: {value}\r\n")).collect();
    [b"HTTP/1.1 200 OK\r\n", fields.as_bytes(), TWO_BYTES].concat()
}

fn big(bytes: u64) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + usize::try_from(bytes).expect("fits the memory"), b'x');
    answer
}

/// An error page that sends back what was asked for, as many do.
fn quote(target: &str) -> Vec<Step> {
    let body = format!("no access to {target}");
    let head = format!("HTTP/1.1 401 Scripted\r\nContent-Length: {}\r\n\r\n", body.len());
    vec![Step::Write((head + &body).into_bytes().into())]
}

fn status(code: u64) -> Vec<Step> {
    let body = "overloaded";
    let head = format!("HTTP/1.1 {code} Scripted\r\nContent-Length: {}\r\n\r\n", body.len());
    vec![Step::Write((head + body).into_bytes().into())]
}
