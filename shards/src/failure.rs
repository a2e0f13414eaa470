//! The closed list of ways in which a query can fail. A failure is counted, never an error of the
//! program.

use crate::limits::FIRST_MESSAGE_BYTES;

/// Why a query failed. The names are those of `failures{}` in the result files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FailureKind {
    /// The endpoint refused the connection (ECONNREFUSED, or no such unix socket).
    ConnectRefused,
    /// No connection within `--connect-timeout`, or the kernel gave up (ETIMEDOUT).
    ConnectTimeout,
    /// Any other error while opening a connection: no route, no permission, connection reset in the
    /// handshake.
    ConnectError,
    /// This host could not open one more connection: descriptors (EMFILE), ports (EADDRNOTAVAIL),
    /// memory.
    LocalLimit,
    /// The request could not be written (EPIPE and the like).
    Send,
    /// The endpoint reset the connection (ECONNRESET) while a response was awaited.
    Reset,
    /// The endpoint closed a fresh connection before the first byte of the response.
    ClosedEarly,
    /// The connection ended inside the response: Content-Length not reached, last chunk missing,
    /// inside the head, or over TLS without `close_notify` where the end of the stream ends the
    /// body.
    TruncatedBody,
    /// The bytes are not an HTTP/1.1 response, or exceed a limit of ours.
    Malformed,
    /// A complete response whose status is not accepted (`--accept-status`).
    Status,
    /// No complete response within `--timeout`, or no token (of plain HTTP: no byte) within
    /// `--ttft-timeout`.
    RequestTimeout,
    /// No byte for `--idle-timeout` while a response was awaited.
    IdleTimeout,
    /// The TLS handshake or session broke: an alert, garbage, an end inside the handshake.
    Tls,
    /// The certificate of the endpoint was not accepted.
    TlsCertificate,
    /// An accepted status whose body says that it failed: an `error` object, `event: error`, or
    /// the finish reason `abort` or `error`.
    ErrorInAnswer,
    /// The stream ended without `[DONE]` and without a finish reason.
    TruncatedStream,
    /// A stream or an answer without anything generated.
    EmptyAnswer,
    /// A chunk or an answer that is not the JSON that it should be.
    MalformedAnswer,
    /// The body is of a type that is no answer, such as an HTML page.
    UnexpectedType,
    /// A line or an answer beyond a limit of ours.
    AnswerLimit,
}

impl FailureKind {
    /// Every kind, in the order of its discriminant.
    pub const ALL: [FailureKind; 20] = [
        FailureKind::ConnectRefused,
        FailureKind::ConnectTimeout,
        FailureKind::ConnectError,
        FailureKind::LocalLimit,
        FailureKind::Send,
        FailureKind::Reset,
        FailureKind::ClosedEarly,
        FailureKind::TruncatedBody,
        FailureKind::Malformed,
        FailureKind::Status,
        FailureKind::RequestTimeout,
        FailureKind::IdleTimeout,
        FailureKind::Tls,
        FailureKind::TlsCertificate,
        FailureKind::ErrorInAnswer,
        FailureKind::TruncatedStream,
        FailureKind::EmptyAnswer,
        FailureKind::MalformedAnswer,
        FailureKind::UnexpectedType,
        FailureKind::AnswerLimit,
    ];
    /// How many kinds there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The key in JSON and the name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            FailureKind::ConnectRefused => "connect_refused",
            FailureKind::ConnectTimeout => "connect_timeout",
            FailureKind::ConnectError => "connect_error",
            FailureKind::LocalLimit => "local_limit",
            FailureKind::Send => "send",
            FailureKind::Reset => "reset",
            FailureKind::ClosedEarly => "closed_early",
            FailureKind::TruncatedBody => "truncated_body",
            FailureKind::Malformed => "malformed_response",
            FailureKind::Status => "status",
            FailureKind::RequestTimeout => "request_timeout",
            FailureKind::IdleTimeout => "idle_timeout",
            FailureKind::Tls => "tls",
            FailureKind::TlsCertificate => "tls_certificate",
            FailureKind::ErrorInAnswer => "error_in_answer",
            FailureKind::TruncatedStream => "truncated_stream",
            FailureKind::EmptyAnswer => "empty_answer",
            FailureKind::MalformedAnswer => "malformed_answer",
            FailureKind::UnexpectedType => "unexpected_type",
            FailureKind::AnswerLimit => "answer_limit",
        }
    }
}

/// A short text kept without allocation: the first message of a failure kind.
#[derive(Clone, Copy)]
pub struct Message {
    bytes: [u8; FIRST_MESSAGE_BYTES],
    len: u8,
}

const _: () = assert!(FIRST_MESSAGE_BYTES <= u8::MAX as usize);

impl Message {
    /// No text.
    pub const EMPTY: Message = Message { bytes: [0; FIRST_MESSAGE_BYTES], len: 0 };

    /// Keeps the beginning of `text`, cut at a character boundary.
    pub fn new(text: &str) -> Message {
        let mut end = text.len().min(FIRST_MESSAGE_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut message = Message::EMPTY;
        message.bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        message.len = end as u8;
        message
    }

    /// Keeps the beginning of bytes from the wire. They are data: what is not printable ASCII
    /// becomes `.`.
    pub fn from_wire(bytes: &[u8]) -> Message {
        let len = bytes.len().min(FIRST_MESSAGE_BYTES);
        let mut message = Message::EMPTY;
        for (target, &source) in message.bytes[..len].iter_mut().zip(bytes) {
            *target = if (0x20..0x7f).contains(&source) { source } else { b'.' };
        }
        message.len = len as u8;
        message
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)])
            .expect("a message is cut at a character boundary")
    }

    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// How often a kind occurred, with the message of its first occurrence.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Occurrences.
    pub count: u64,
    /// What the first one said; empty while `count` is 0.
    pub first_message: Message,
}

/// One tally for each kind.
#[derive(Clone, Debug)]
pub struct Failures([Tally; FailureKind::COUNT]);

impl Default for Failures {
    fn default() -> Failures {
        Failures([Tally { count: 0, first_message: Message::EMPTY }; FailureKind::COUNT])
    }
}

impl Failures {
    /// Counts one failure; `message` is asked only for the first of its kind.
    pub fn count(&mut self, kind: FailureKind, message: impl FnOnce() -> Message) {
        let tally = &mut self.0[kind as usize];
        if tally.count == 0 {
            tally.first_message = message();
        }
        tally.count += 1;
    }

    /// Adds the tallies of a later recording; the earlier first message stays.
    pub fn add(&mut self, later: &Failures) {
        for (tally, more) in self.0.iter_mut().zip(&later.0) {
            if tally.count == 0 {
                tally.first_message = more.first_message;
            }
            tally.count += more.count;
        }
    }

    /// The tally of one kind.
    pub fn tally(&self, kind: FailureKind) -> &Tally {
        &self.0[kind as usize]
    }

    /// The kinds that occurred.
    pub fn iter(&self) -> impl Iterator<Item = (FailureKind, &Tally)> {
        FailureKind::ALL.into_iter().zip(&self.0).filter(|(_, tally)| tally.count > 0)
    }

    /// Failures of every kind together.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|tally| tally.count).sum()
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        *self = Failures::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_in_the_order_of_their_discriminant() {
        for (index, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{}", kind.name());
        }
    }

    #[test]
    fn first_message_is_kept_and_cut_at_a_character() {
        let mut failures = Failures::default();
        failures.count(FailureKind::Status, || Message::new(&"ä".repeat(200)));
        failures.count(FailureKind::Status, || unreachable!("only the first is asked"));
        let tally = failures.tally(FailureKind::Status);
        assert_eq!(tally.count, 2);
        assert_eq!(tally.first_message.as_str(), "ä".repeat(FIRST_MESSAGE_BYTES / 2));
        assert_eq!(Message::from_wire(b"a\x1b[2J\r\n\xff").as_str(), "a.[2J...");
    }

    #[test]
    fn sum_keeps_the_earlier_message() {
        let (mut a, mut b) = (Failures::default(), Failures::default());
        b.count(FailureKind::Reset, || Message::new("second"));
        a.add(&b);
        b.count(FailureKind::Reset, || unreachable!("not the first"));
        a.add(&b);
        assert_eq!(a.total(), 3);
        assert_eq!(a.tally(FailureKind::Reset).first_message.as_str(), "second");
    }
}
