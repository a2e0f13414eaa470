//! Requests out of bytes, sans-IO: the same requests wherever the bytes are cut.
//!
//! One [`RequestParser`] lives as long as its connection. A head that lies whole in one receive,
//! the common case, is parsed where it lies; one that is cut waits in a carry. Bodies are skipped,
//! except those that a route asks for. The grammar is RFC 9112.

use std::mem::MaybeUninit;

use crate::route::{Entry, Route};

/// A request that has come whole, with its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its answer has no body.
    pub(crate) is_head: bool,
    /// The connection ends with its answer.
    pub(crate) is_last: bool,
    /// Of HTTP/1.0, which knows no HTTP chunks.
    pub(crate) is_old: bool,
    /// Who answers it.
    pub(crate) route: Route,
}

/// The bytes are no request. What follows them cannot be told apart any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads the requests of one connection, one after another.
#[derive(Debug, Default)]
pub(crate) struct RequestParser {
    /// The head that is not complete yet.
    carry: Vec<u8>,
    /// The request whose body comes.
    request: Request,
    body: Body,
    /// Paths that are not plain.
    routes: &'static [Entry],
    /// The body of the last request, if its route takes one.
    content: Vec<u8>,
}

/// What is left of a request after its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Body {
    /// Nothing: the next bytes are a head.
    #[default]
    Over,
    /// Bytes still to come.
    Length(u64),
    Chunked(Chunk),
}

/// Where in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// In the hexadecimal size; `None` before its first digit.
    Size(Option<u64>),
    /// Behind the size, up to the line end.
    Extension(u64),
    /// Bytes of data still to come.
    Data(u64),
    /// At the line end after the data.
    DataEnd,
    /// At the begin of a trailer line, or at the empty line that ends the body.
    LineStart,
    /// Inside a trailer line.
    Trailer,
}

impl RequestParser {
    pub(crate) fn new(routes: &'static [Entry]) -> RequestParser {
        RequestParser { routes, ..RequestParser::default() }
    }

    /// Takes bytes from the front of `input` up to the end of a request. `None`: all of them are
    /// taken, and the request goes on in the next receive.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Request>, Malformed> {
        if self.body == Body::Over {
            if input.is_empty() {
                return Ok(None);
            }
            let Some((request, body)) = self.take_head(input)? else { return Ok(None) };
            (self.request, self.body) = (request, body);
            if request.route != Route::Plain {
                self.clear_content();
            }
        }
        let content = self.request.route.takes_body().then_some(&mut self.content);
        take_body(&mut self.body, input, content)?;
        if self.content.len() > BODY_BYTES_LIMIT {
            self.clear_content();
            self.request.route = Route::TooLarge;
        }
        Ok((self.body == Body::Over).then_some(self.request))
    }

    /// The body of the request that [`RequestParser::next`] just gave, if its route takes one.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }

    /// A large one gives its memory back.
    fn clear_content(&mut self) {
        self.content.clear();
        self.content.shrink_to(CONTENT_BYTES_KEPT);
    }

    /// Forgets everything, for the next connection. The carry keeps its memory.
    pub(crate) fn reset(&mut self) {
        self.carry.clear();
        self.body = Body::Over;
        self.clear_content();
    }

    fn take_head(&mut self, input: &mut &[u8]) -> Result<Option<(Request, Body)>, Malformed> {
        let carried = self.carry.len();
        let parsed = if carried == 0 {
            parse_head(input, self.routes)?
        } else {
            self.carry.extend_from_slice(input);
            // Only a line end can complete a head; without this look a head byte by byte costs the
            // square.
            if memchr::memchr(b'\n', input).is_some() {
                parse_head(&self.carry, self.routes)?
            } else {
                None
            }
        };
        if let Some((len, request, body)) = parsed {
            *input = &input[len - carried..];
            self.carry.clear();
            return Ok(Some((request, body)));
        }
        if carried == 0 {
            self.carry.extend_from_slice(input);
        }
        *input = &[];
        if self.carry.len() > HEAD_BYTES_LIMIT { Err(Malformed) } else { Ok(None) }
    }
}

/// A head at the front of `bytes`: its length, and what it says. `None`: it goes on.
fn parse_head(bytes: &[u8], routes: &[Entry]) -> Result<Option<(usize, Request, Body)>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_LIMIT];
    let mut head = httparse::Request::new(&mut []);
    let status = head.parse_with_uninit_headers(bytes, &mut fields).map_err(|_| Malformed)?;
    let httparse::Status::Complete(len) = status else { return Ok(None) };
    let is_old = head.version == Some(0);
    let is_head = head.method == Some("HEAD");
    let route = match (head.method, head.path) {
        // "/" is what a load without a path asks for.
        (Some(method), Some(target)) if target.len() > 1 => Route::of(routes, method, target),
        _ => Route::Plain,
    };
    let mut request = Request { is_head, is_last: is_old, is_old, route };
    let (mut length, mut is_chunked) = (None, false);
    for field in &*head.headers {
        if field.name.eq_ignore_ascii_case("content-length") {
            let value = decimal(field.value)?;
            if length.replace(value).is_some_and(|earlier| earlier != value) {
                return Err(Malformed);
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if is_chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed);
            }
            is_chunked = true;
        } else if field.name.eq_ignore_ascii_case("connection") {
            let mut options = field.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            request.is_last |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
        }
    }
    let body = match (length, is_chunked) {
        // Both: two readers may see two different ends (RFC 9112 6.3), so nobody should read it.
        (Some(_), true) => return Err(Malformed),
        (None, true) => Body::Chunked(Chunk::Size(None)),
        (None | Some(0), false) => Body::Over,
        (Some(length), false) => Body::Length(length),
    };
    Ok(Some((len, request, body)))
}

fn decimal(value: &[u8]) -> Result<u64, Malformed> {
    // `parse` alone would take a sign.
    let is_digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(value).ok().filter(|_| is_digits).ok_or(Malformed)?;
    text.parse().map_err(|_| Malformed)
}

/// Takes the bytes of the body from the front of `input`, and keeps its data in `content`.
fn take_body(
    body: &mut Body,
    input: &mut &[u8],
    mut content: Option<&mut Vec<u8>>,
) -> Result<(), Malformed> {
    let mut keep = |data: &[u8]| {
        if let Some(content) = &mut content {
            content.extend_from_slice(data);
        }
    };
    loop {
        match body {
            Body::Over => return Ok(()),
            Body::Length(left) => {
                keep(take(left, input));
                if *left == 0 {
                    *body = Body::Over;
                }
                return Ok(());
            }
            Body::Chunked(Chunk::Data(left)) => {
                keep(take(left, input));
                if *left > 0 {
                    return Ok(());
                }
                *body = Body::Chunked(Chunk::DataEnd);
            }
            Body::Chunked(chunk) => {
                let Some((&byte, rest)) = input.split_first() else { return Ok(()) };
                *input = rest;
                *body = chunk.after(byte)?;
            }
        }
    }
}

fn take<'a>(left: &mut u64, input: &mut &'a [u8]) -> &'a [u8] {
    let taken = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
    let (front, rest) = input.split_at(taken);
    *left -= taken as u64;
    *input = rest;
    front
}

impl Chunk {
    /// The state after a byte that is not data (RFC 9112 7.1). Lenient on CR: only LF ends a line.
    fn after(self, byte: u8) -> Result<Body, Malformed> {
        let chunk = match (self, byte) {
            (Chunk::Size(Some(0)) | Chunk::Extension(0), b'\n') => Chunk::LineStart,
            (Chunk::Size(Some(size)) | Chunk::Extension(size), b'\n') => Chunk::Data(size),
            (Chunk::Size(Some(size)), b'\r' | b';' | b' ' | b'\t') => Chunk::Extension(size),
            (Chunk::Size(size), _) => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
                let size = size.unwrap_or(0).checked_mul(16).ok_or(Malformed)?;
                Chunk::Size(Some(size + u64::from(digit)))
            }
            (Chunk::DataEnd, b'\n') => Chunk::Size(None),
            (Chunk::LineStart, b'\n') => return Ok(Body::Over),
            (Chunk::Trailer, b'\n') => Chunk::LineStart,
            (Chunk::Extension(_) | Chunk::DataEnd | Chunk::LineStart, b'\r') => self,
            (Chunk::Extension(_), _) => self,
            (Chunk::LineStart | Chunk::Trailer, _) => Chunk::Trailer,
            (Chunk::DataEnd | Chunk::Data(_), _) => return Err(Malformed),
        };
        Ok(Body::Chunked(chunk))
    }
}

/// Bytes of a head; above it the answer is 400.
const HEAD_BYTES_LIMIT: usize = 64 * 1024;
/// Fields of a head.
const FIELDS_LIMIT: usize = 128;
/// Bytes of a body that a route takes; above it the answer is 413.
const BODY_BYTES_LIMIT: usize = 64 << 20;
/// Room for a body that a connection keeps.
const CONTENT_BYTES_KEPT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::WITH_GENERATE;

    const GET: Request =
        Request { is_head: false, is_last: false, is_old: false, route: Route::Plain };
    const LAST: Request = Request { is_last: true, ..GET };
    const OLD: Request = Request { is_old: true, ..LAST };
    const HEAD: Request = Request { is_head: true, ..GET };

    /// All requests of the pieces, and whether they end malformed.
    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Request>, bool) {
        let mut parser = RequestParser::default();
        let mut requests = Vec::new();
        for mut input in pieces {
            loop {
                match parser.next(&mut input) {
                    Ok(Some(request)) => requests.push(request),
                    Ok(None) => break,
                    Err(Malformed) => return (requests, true),
                }
            }
            assert!(input.is_empty(), "all is taken");
        }
        (requests, false)
    }

    /// Bytes, the requests that they hold, and whether they end malformed.
    const CASES: &[(&str, &[Request], bool)] = &[
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[GET], false),
        ("GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\n\n", &[GET, GET], false),
        ("\r\n\r\nGET / HTTP/1.1\r\n\r\n", &[GET], false),
        ("GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\n", &[GET, HEAD], false),
        ("GET / HTTP/1.0\r\n\r\n", &[OLD], false),
        ("GET / HTTP/1.1\r\nconnection: te, Close\r\n\r\n", &[LAST], false),
        ("GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n", &[GET], false),
        (
            "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\n\r\n\nGET / HTTP/1.1\r\n\r\n",
            &[GET, GET],
            false,
        ),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", &[GET], false),
        ("POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", &[GET], false),
        ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab", &[], false),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
          3\r\nabc\r\nA;name=\"v\"\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n\
          GET / HTTP/1.1\r\n\r\n",
            &[GET, GET],
            false,
        ),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n1\nx\n0\n\n", &[GET], false),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", &[], true),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", &[], true),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", &[], true),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", &[], true),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", &[], true),
        ("POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", &[], true),
        ("POST / HTTP/1.1\r\nContent-Length: +2\r\n\r\n", &[], true),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", &[], true),
        ("GET / HTTP/1.1\r\n\r\nnonsense\r\n\r\n", &[GET], true),
        ("GET / HTTP/2.0\r\n\r\n", &[], true),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", &[], true),
    ];

    #[test]
    fn every_cut_gives_the_same_requests() {
        for &(bytes, requests, is_malformed) in CASES {
            let bytes = bytes.as_bytes();
            let expected = (requests.to_vec(), is_malformed);
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(parse([bytes]), expected, "{text}");
            assert_eq!(parse(bytes.chunks(1)), expected, "byte by byte: {text}");
            for at in 0..=bytes.len() {
                let (front, back) = bytes.split_at(at);
                assert_eq!(parse([front, back]), expected, "cut at {at}: {text}");
            }
        }
    }

    #[test]
    fn body_that_a_route_takes_is_kept_wherever_it_is_cut() {
        let bytes = [
            "POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\n\r\nab\r\nc",
            "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nxy",
            "POST /v1/completions?a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "3\r\n{\r\n\r\n2;e=\"v\"\r\n1}\r\n0\r\nA: b\r\n\r\n",
            "POST /tokenize HTTP/1.1\r\n\r\n",
        ];
        let bytes = bytes.concat().into_bytes();
        let expected: [(Route, &[u8]); 4] = [
            (Route::Tokenize, b"ab\r\nc"),
            (Route::Plain, b""),
            (Route::Completions, b"{\r\n1}"),
            (Route::Tokenize, b""),
        ];
        for at in 0..=bytes.len() {
            let mut parser = RequestParser::new(WITH_GENERATE);
            let mut seen = Vec::new();
            for mut input in [&bytes[..at], &bytes[at..]] {
                while let Some(request) = parser.next(&mut input).expect("well formed") {
                    let content: &[u8] =
                        if request.route.takes_body() { parser.content() } else { b"" };
                    seen.push((request.route, content.to_vec()));
                }
            }
            let seen: Vec<(Route, &[u8])> = seen.iter().map(|(r, c)| (*r, &**c)).collect();
            assert_eq!(seen, expected, "cut at {at}");
        }
    }

    #[test]
    fn body_beyond_the_limit_is_told_and_dropped() {
        let over = BODY_BYTES_LIMIT + 1;
        let head = format!("POST /tokenize HTTP/1.1\r\nContent-Length: {over}\r\n\r\n");
        let mut parser = RequestParser::new(WITH_GENERATE);
        assert_eq!(parser.next(&mut head.as_bytes()), Ok(None));
        let piece = vec![b'x'; 1 << 20];
        let mut left = over;
        loop {
            let now = left.min(piece.len());
            left -= now;
            if let Some(request) = parser.next(&mut &piece[..now]).expect("well formed") {
                assert_eq!((request.route, left), (Route::TooLarge, 0));
                assert!(parser.content.capacity() <= CONTENT_BYTES_KEPT);
                break;
            }
        }
    }

    #[test]
    fn head_beyond_the_limit_is_malformed_and_one_at_it_is_not() {
        let head = |len: usize| {
            let frame = "GET / HTTP/1.1\r\nA: \r\n\r\n".len();
            format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(len - frame))
        };
        for piece in [1000, 4096] {
            let fits = head(HEAD_BYTES_LIMIT);
            assert_eq!(parse(fits.as_bytes().chunks(piece)), (vec![GET], false));
            let endless = head(HEAD_BYTES_LIMIT + 2 * piece);
            assert_eq!(parse(endless.as_bytes().chunks(piece)), (vec![], true));
        }
    }
}
