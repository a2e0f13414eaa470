//! One connection slot of a shard: its state, the query that it carries and the response it is
//! reading.

use crate::failure::Message;
use crate::http1::{Carry, ResponseParser};
use crate::query::Query;
use crate::tls::Session;

/// What the slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No socket. Can be opened.
    Closed,
    /// No socket, and none before the deadline: the last attempt failed.
    BackingOff,
    /// Waits for its turn to connect (not too many handshakes at once).
    Queued,
    /// The handshake of TCP runs.
    Connecting,
    /// That of TLS runs.
    Securing,
    /// Established, carries nothing.
    Idle,
    /// A request is out, the response is awaited.
    Busy,
}

/// A slot. Everything that the hot path touches comes first.
#[derive(Debug)]
pub struct Connection {
    /// What it is doing.
    pub state: State,
    /// Rises with each socket in this slot.
    pub generation: u32,
    /// The turn of the shard in which the request was queued.
    pub begun_in: u64,
    /// T1p: when the query had a connection able to carry it, ns; of queries of a schedule.
    pub ready_ns: u64,
    /// When the request was handed to the kernel, ns.
    pub sent_ns: u64,
    /// When the first byte of the response was seen; 0 = not yet.
    pub first_byte_ns: u64,
    /// When the answer was over, though its response may go on, ns; 0 = it is not.
    pub over_ns: u64,
    /// The query that is carried, or waits for the handshake.
    pub query: Option<Query>,
    /// Reads the response.
    pub parser: ResponseParser,
    /// Index of the target.
    pub target: u32,
    /// Exchanges that this socket has completed: above 0 it is a reused one.
    pub exchanges: u32,
    /// The query has been sent again already, after a stale connection.
    pub is_retry: bool,
    /// Errno of a failed send, told when the stream ends; 0 = none.
    pub send_errno: i32,
    /// When the first attempt of the handshake began, ns; 0 = not yet.
    pub connect_ns: u64,
    /// Pause before the next attempt, ns; 0 = the last one succeeded.
    pub backoff_ns: u64,
    /// TLS of the socket, if it has one.
    pub tls: Option<Box<Session>>,
    /// When its handshake began: the connection of TCP stood, ns.
    pub tls_begin_ns: u64,
    /// Where a head that is split over receives waits.
    pub carry: Carry,
    /// The begin of the body, if the status is not accepted.
    pub refused_body: Option<Message>,
}

impl Connection {
    /// An empty slot for `target`.
    pub fn new(target: u32) -> Connection {
        Connection {
            state: State::Closed,
            generation: 0,
            begun_in: 0,
            ready_ns: 0,
            sent_ns: 0,
            first_byte_ns: 0,
            over_ns: 0,
            query: None,
            parser: ResponseParser::new(false),
            target,
            exchanges: 0,
            is_retry: false,
            send_errno: 0,
            connect_ns: 0,
            backoff_ns: 0,
            tls: None,
            tls_begin_ns: 0,
            carry: Carry::default(),
            refused_body: None,
        }
    }

    /// Takes a query to carry, which has not been sent yet.
    pub fn bind(&mut self, query: Query) {
        self.query = Some(query);
        self.sent_ns = 0;
        self.is_retry = false;
    }

    /// Whether what has come in this `turn` was there before the request: then the connection had
    /// been lost when the query was bound to it.
    pub fn was_bound_stale(&self, turn: u64) -> bool {
        self.exchanges > 0 && self.begun_in == turn
    }

    /// Whether the endpoint may have closed it while it was idle: reused, and not a byte of this
    /// response has come.
    pub fn looks_stale(&self) -> bool {
        self.exchanges > 0 && !self.is_retry && !self.parser.has_begun()
    }
}
