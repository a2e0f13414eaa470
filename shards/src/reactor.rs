//! The seam between a shard and the kernel: waiting, buffers, clock reads, and nothing of HTTP.
//!
//! Three back ends stand behind one enum: io_uring, epoll, and in tests the virtual-time `Sim`. A turn submits what
//! was queued, waits if asked to, and fills a fixed array of plain [`Event`]s; the shard walks it, borrows the bytes
//! of one event at a time and queues its actions. No callbacks, no trait objects. Short sends, re-arming of receives,
//! the order of cancel and close and the rejection of late completions stay below the seam.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::clock::Calibration;
use crate::query::Target;

/// Which back end the user asked for (`--engine`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring, or epoll with a loud reason where io_uring is refused.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// The back end's own words about itself, for headers and files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// `io_uring`, `epoll` or `sim`.
    pub name: &'static str,
    /// What it uses: `defer-taskrun`, `multishot`, `buf-ring`, ...
    pub features: Vec<&'static str>,
    /// Why it is not io_uring at its best: cause and fix in one line. Empty when it is.
    pub reason: String,
}

/// What a reactor needs to stand up.
#[derive(Clone, Debug)]
pub struct ReactorConfig {
    /// Back end.
    pub engine: EngineChoice,
    /// Number of connection slots.
    pub slots: u32,
    /// The bytes that sends name by range. Shared and immutable: what the kernel still reads cannot move.
    pub arena: Arc<[u8]>,
    /// Time base of every stamp.
    pub clock: Calibration,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The connection attempt ended: `result` 0, or a negative errno.
    Connected,
    /// Bytes arrived (`result` > 0, see [`Reactor::bytes`]), the peer closed (0), or the connection broke (< 0).
    Received,
    /// A send failed: `result` is a negative errno. Successful sends make no event.
    SendFailed,
    /// A listener accepted: `result` is the new descriptor, to be given to [`Reactor::adopt`]; or a negative errno.
    Accepted,
    /// Control called [`Waker::wake`].
    Woken,
}

/// One thing that happened to one connection of one generation.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Connection slot.
    pub slot: u32,
    /// Byte count, 0, descriptor or negative errno, by kind.
    pub result: i32,
    /// The receive buffer that holds the bytes; returned by [`Reactor::recycle`].
    pub buffer: Option<u16>,
    /// When we saw it: read right after the kernel call that brought it, before any parsing. ns.
    pub stamp_ns: u64,
}
