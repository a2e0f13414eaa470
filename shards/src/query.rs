//! What is sent: the immutable table of request bytes, and the query, one issuance of a sample.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::answer::AnswerPlan;
use crate::tls::TlsTarget;

/// Where connections go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A unix stream socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Inet(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix socket {}", path.display()),
        }
    }
}

/// One destination of the load. Several URLs may share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address that is connected to (after `--connect-to`, `--unix-socket` and name
    /// resolution).
    pub address: Address,
    /// Local address to bind (`--source-ip`).
    pub source: Option<IpAddr>,
    /// How TLS is spoken to it; `None`: cleartext.
    pub tls: Option<TlsTarget>,
}

impl Target {
    /// Cleartext HTTP.
    pub fn plain(address: Address, source: Option<IpAddr>) -> Target {
        Target { address, source, tls: None }
    }
}

/// One entry of the request table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which bytes of the arena are sent: head and body.
    pub range: Range<usize>,
    /// Index of the target in [`RequestTable::targets`].
    pub target: u32,
    /// The method is HEAD: the response has no body, whatever its head says.
    pub is_head: bool,
    /// The answer is asked for as a stream.
    pub is_stream: bool,
    /// Tokens of its prompt as we counted them; 0: nobody did.
    pub prompt_tokens: u32,
}

impl Request {
    /// Plain HTTP, whose answer is not looked into.
    pub fn plain(range: Range<usize>, target: u32, is_head: bool) -> Request {
        Request { range, target, is_head, is_stream: false, prompt_tokens: 0 }
    }
}

/// Every request of a run: built once by control, shared by all shards, never changed.
///
/// The arena is behind an `Arc`, because memory named in a submission belongs to the reactor until
/// the kernel has let go of it; every reactor holds its own clone.
#[derive(Clone, Debug)]
pub struct RequestTable {
    /// All request bytes.
    pub arena: Arc<[u8]>,
    /// One entry per sample; the phase's order says which one a position sends.
    pub requests: Arc<[Request]>,
    /// The distinct destinations.
    pub targets: Arc<[Target]>,
    /// How every answer is read.
    pub answers: Arc<AnswerPlan>,
}

/// Why a query had to wait for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolWait {
    /// It had not to: one was idle.
    #[default]
    None,
    /// For a new one, which was opened for it.
    NewConnection,
    /// For one of those that are open: no more may be.
    Full,
    /// The same, while another shard had a free one: our fault.
    OtherShardFree,
}

/// One issuance of a sample: at most one request/response exchange (a resend on a fresh connection
/// after a stale one is the same query).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Position in the phase, 0-based; names the request.
    pub position: u64,
    /// T0: when it was due, ns; 0 in closed loop, which has no schedule.
    pub scheduled_ns: u64,
    /// T1: when the shard took it from the schedule, ns; in closed loop when it was bound.
    pub dispatched_ns: u64,
    /// Index of the phase that issued it.
    pub phase: u32,
    /// Index in [`RequestTable::requests`]: the sample.
    pub request: u32,
    /// Why it waits or waited.
    pub wait: PoolWait,
}

const _: () = assert!(size_of::<Query>() <= 40);
