//! Requests beside the load: a small blocking HTTP/1.1 client, one connection a request, with a
//! limit on time and on size.
//!
//! Owned by nobody, called by [`crate::load`] and [`crate::probe`] before a run and never during
//! one. It reads answers with the parser of the shards, so that what it accepts is what they
//! accept. Why no client crate: it has to send the very bytes that the load sends, through the same
//! TLS configuration, to unix sockets too, and to say when each piece of an answer came.

mod answers;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use loadgen_shards::http1::{Carry, Head, ResponseParser, Step};
use loadgen_shards::query::{Address, Target};
use loadgen_shards::tls::{Refusal, TlsTarget};
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

use crate::config::Config;
use crate::error::Error;
use crate::request;
use crate::request::url::Url;

pub use answers::{Judged, judged, models, models_in, tokens};

/// Where side requests go, and for how long and how much.
#[derive(Clone, Debug)]
pub struct Side {
    /// As the load connects, but for its source address.
    address: Address,
    /// For https.
    tls: Option<TlsTarget>,
    /// Header fields of the load's requests without those of a body, each with its line end: Host
    /// and the key among them.
    fields: String,
    /// Limit of each request, from the connection to the last byte.
    timeout: Duration,
}

/// An answer, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Fields of the head in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// What the head says of the body.
    pub head: Option<Head>,
    /// Body without its framing.
    pub body: Vec<u8>,
    /// When pieces of the body came, from the send on, and how much of the body there was then.
    pub pieces: Vec<Piece>,
    /// Of the connection, if it is over TLS.
    pub tls: Option<TlsFacts>,
}

/// A piece of a body, as one read brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Time from the send of the request, ns.
    pub after_ns: u64,
    /// Bytes of the body up to its end.
    pub end: usize,
}

/// What was agreed on in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFacts {
    /// As in `TLSv1_3`.
    pub version: String,
    /// As in `TLS13_AES_256_GCM_SHA384`.
    pub cipher: String,
}

/// Why there is no answer: a fragment for after "URL: ".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// No connection.
    Connect(String),
    /// The server closed before any byte of an answer.
    Closed,
    /// The limit of time was reached.
    Timeout(Duration),
    /// The answer is too long.
    TooLarge,
    /// The answer is not HTTP, or cut.
    Broken(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Connect(why) => write!(f, "no connection: {why}"),
            Unanswered::Closed => f.write_str("the server closed the connection without an answer"),
            Unanswered::Timeout(limit) => write!(f, "no answer within {} s", limit.as_secs()),
            Unanswered::TooLarge => {
                write!(f, "the answer is above {} MiB", BODY_BYTES_MAX >> 20)
            }
            Unanswered::Broken(why) => write!(f, "the answer is broken: {why}"),
        }
    }
}

impl Reply {
    /// Value of a field; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether the status is 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as JSON, if it is.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// What an error answer says, in one line: the message in its JSON, else the beginning of its
    /// text.
    pub fn message(&self) -> String {
        let told = self.json().and_then(|value| message_in(&value).map(str::to_owned));
        let text = told.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
    }
}

/// The message of an error in any of the forms that servers have: `{"error": {"message": ".."}}`,
/// `{"error": ".."}`, `{"message": ".."}`, `{"detail": ".."}`.
pub fn message_in(value: &Value) -> Option<&str> {
    let error = value.get("error").unwrap_or(value);
    let members = ["message", "detail", "error", "msg"];
    error.as_str().or_else(|| members.iter().find_map(|name| error.get(name)?.as_str()))
}

impl Side {
    /// To the server of a URL, with the headers of the run.
    pub fn new(config: &Config, url: &Url, timeout: Duration) -> Result<Side, Error> {
        let mut plain = config.clone();
        plain.urls = vec![Url { path: "/".to_owned(), ..url.clone() }];
        plain.keepalive = false;
        plain.request.method = Some("GET".to_owned());
        (plain.request.body, plain.request.body_file) = (None, None);
        // There is no row here whose columns they could have.
        plain.request.headers.retain(|header| !header.value.contains("{{"));
        let table = request::table(&plain, None)?;
        let head = String::from_utf8_lossy(&table.arena[table.requests[0].range.clone()]);
        let fields = head.split_once("\r\n").map_or("", |(_, fields)| fields);
        let fields = fields.strip_suffix("\r\n").unwrap_or(fields).to_owned();
        Ok(Side { fields, ..Side::to_target(&table.targets[0], timeout) })
    }

    /// To a target of the load, for requests of the load as they stand.
    pub fn to_target(target: &Target, timeout: Duration) -> Side {
        let Target { address, tls, .. } = target.clone();
        Side { address, tls, fields: String::new(), timeout }
    }

    /// A GET.
    pub fn get(&self, path: &str) -> Result<Reply, Unanswered> {
        self.send(format!("GET {path} HTTP/1.1\r\n{}\r\n", self.fields).as_bytes())
    }

    /// A POST of JSON.
    pub fn post(&self, path: &str, body: &Value) -> Result<Reply, Unanswered> {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: \
             {}\r\n\r\n{body}",
            self.fields,
            body.len()
        );
        self.send(request.as_bytes())
    }

    /// A request as it stands, and its answer up to the last byte of the message.
    pub fn send(&self, request: &[u8]) -> Result<Reply, Unanswered> {
        let deadline = Instant::now() + self.timeout;
        let mut stream = self.connect(deadline)?;
        let sent = Instant::now();
        stream.arm(deadline).and_then(|()| stream.write_all(request)).map_err(|e| self.cut(&e))?;
        let reply = self.read(&mut stream, sent, deadline)?;
        Ok(Reply { tls: stream.tls_facts(), ..reply })
    }

    fn connect(&self, deadline: Instant) -> Result<Stream, Unanswered> {
        let told = |error: io::Error| match is_timeout(&error) {
            true => Unanswered::Timeout(self.timeout),
            false => Unanswered::Connect(error.to_string()),
        };
        let socket = match &self.address {
            Address::Inet(address) => {
                let socket = TcpStream::connect_timeout(address, left(deadline)).map_err(told)?;
                socket.set_nodelay(true).map_err(told)?;
                Socket::Tcp(socket)
            }
            Address::Unix(path) => Socket::Unix(UnixStream::connect(path).map_err(told)?),
        };
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let refused = |refusal: Refusal| Unanswered::Connect(refusal.text);
        let mut stream = tls.client_stream(socket).map_err(refused)?;
        while stream.conn.is_handshaking() {
            stream.sock.arm(deadline).map_err(told)?;
            let step = stream.conn.complete_io(&mut stream.sock);
            step.map_err(|error| Refusal::of_stream(&error).map_or_else(|| told(error), refused))?;
        }
        Ok(Stream::Tls(Box::new(stream)))
    }

    fn read(
        &self,
        stream: &mut Stream,
        sent: Instant,
        deadline: Instant,
    ) -> Result<Reply, Unanswered> {
        let mut reply = Reply::default();
        let mut parser = ResponseParser::new(false);
        let mut carry = Carry::default();
        let mut head = Some(Vec::new());
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match stream.arm(deadline).and_then(|()| stream.read(&mut buffer)) {
                Ok(count) => count,
                // What a peer does that leaves without close_notify, or with a reset after the end.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if !parser.has_begun() && !is_timeout(&error) => {
                    return Err(match error.kind() {
                        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Unanswered::Closed,
                        _ => Unanswered::Connect(error.to_string()),
                    });
                }
                Err(error) => return Err(self.cut(&error)),
            };
            if count == 0 {
                return match parser.end_of_stream() {
                    Ok(()) => Ok(reply),
                    Err(_) if !parser.has_begun() => Err(Unanswered::Closed),
                    Err(_) => Err(Unanswered::Broken("it is cut".to_owned())),
                };
            }
            let mut input = &buffer[..count];
            if let Some(head) = &mut head {
                head.extend_from_slice(input);
            }
            loop {
                let step = parser.step(&mut input, &mut carry);
                match step.map_err(|malformed| Unanswered::Broken(malformed.reason().to_owned()))? {
                    Step::More => break,
                    Step::Interim(_) => {}
                    Step::Head(found) => {
                        reply.status = found.status;
                        reply.head = Some(found);
                        let seen = head.take().unwrap_or_default();
                        reply.headers = fields(&seen[..seen.len() - input.len()]);
                    }
                    Step::Body(bytes) => reply.body.extend_from_slice(bytes),
                    Step::End { .. } => {
                        reply.note_piece(sent);
                        return Ok(reply);
                    }
                }
                if reply.body.len() > BODY_BYTES_MAX {
                    return Err(Unanswered::TooLarge);
                }
            }
            reply.note_piece(sent);
        }
    }

    fn cut(&self, error: &io::Error) -> Unanswered {
        match is_timeout(error) {
            true => Unanswered::Timeout(self.timeout),
            false => Unanswered::Broken(error.to_string()),
        }
    }
}

impl Reply {
    /// The body has grown by what a read brought.
    fn note_piece(&mut self, sent: Instant) {
        let end = self.body.len();
        if self.pieces.last().map_or(0, |piece| piece.end) < end {
            let after_ns = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.pieces.push(Piece { after_ns, end });
        }
    }
}

/// A connection.
enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// The next read or write ends by the deadline.
    fn arm(&self, deadline: Instant) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.arm(deadline),
            Stream::Tls(stream) => stream.sock.arm(deadline),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }

    fn tls_facts(&self) -> Option<TlsFacts> {
        let Stream::Tls(stream) = self else { return None };
        Some(TlsFacts {
            version: format!("{:?}", stream.conn.protocol_version()?),
            cipher: format!("{:?}", stream.conn.negotiated_cipher_suite()?.suite()),
        })
    }
}

impl Socket {
    fn arm(&self, deadline: Instant) -> io::Result<()> {
        let left = Some(left(deadline));
        match self {
            Socket::Tcp(socket) => {
                socket.set_read_timeout(left).and_then(|()| socket.set_write_timeout(left))
            }
            Socket::Unix(socket) => {
                socket.set_read_timeout(left).and_then(|()| socket.set_write_timeout(left))
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(buffer),
            Socket::Unix(socket) => socket.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Never 0, which would mean no limit.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// The fields of the last head in `bytes`, which the parser has accepted: interim ones may stand
/// before it.
fn fields(bytes: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let from = lines.iter().rposition(|line| line.is_empty()).map_or(0, |at| at + 1);
    let pairs = lines[from..].iter().skip(1).filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned())).collect()
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Longest message that is shown of an answer, characters.
const MESSAGE_CHARS_MAX: usize = 300;
/// Longest body.
const BODY_BYTES_MAX: usize = 64 << 20;
const READ_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
