//! What passes the seam of the reactor: plain events, and what a back end says of itself.

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The connection attempt ended: `result` 0, or a negative errno.
    Connected,
    /// Bytes arrived (`result` > 0, see `Reactor::bytes`), the peer closed (0), or the connection
    /// broke (< 0).
    Received,
    /// A send failed: `result` is a negative errno. Successful sends make no event.
    SendFailed,
    /// A listener accepted: `result` is the new descriptor, to be given to `Reactor::adopt`; or a
    /// negative errno.
    Accepted,
    /// Control called `Waker::wake`.
    Woken,
}

/// One thing that happened to one connection of one generation.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Connection slot.
    pub slot: u32,
    /// Generation of the slot to which it happened.
    pub generation: u32,
    /// Byte count, 0, descriptor or negative errno, by kind.
    pub result: i32,
    /// The receive buffer that holds the bytes; returned by `Reactor::recycle`.
    pub buffer: Option<u16>,
    /// When we saw it: read right after the kernel call that brought it, before any parsing. ns.
    pub stamp_ns: u64,
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

/// What the back end counted since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorCounters {
    /// Kernel calls to submit, wait, send or receive.
    pub enters: u64,
    /// Receives that carried bytes.
    pub receives: u64,
    /// Receives that found no buffer.
    pub receive_buffer_waits: u64,
    /// Times the completion queue overflowed (io_uring).
    pub completion_overflows: u64,
    /// Kernel stamps of other bytes than the last one of a sampled request.
    pub wire_stamps_mismatched: u64,
}
