//! Every limit of the data plane in one place, with the relations between them proved at compile
//! time.

/// Entries of a shard's submission queue. Sends and re-arms of one turn are bounded by it; 64
/// shards fit the usual 8 MiB of RLIMIT_MEMLOCK.
pub const SQ_ENTRIES: u32 = 256;
/// Entries of a shard's completion queue, for any number of connections: what does not fit waits in
/// the kernel.
pub const CQ_ENTRIES: u32 = 2048;
/// Entries of both where RLIMIT_MEMLOCK does not allow more.
pub const SQ_ENTRIES_LEAST: u32 = 64;
/// See [`SQ_ENTRIES_LEAST`].
pub const CQ_ENTRIES_LEAST: u32 = 512;
/// Buffers of the first provided-buffer group; small so that it stays in cache.
pub const BUFFER_COUNT: u16 = 256;
/// Buffers of the second group, registered when more than [`ENOBUFS_SHARE_LIMIT`] of the receives
/// found none.
pub const BUFFER_COUNT_GROWN: u16 = 1024;
/// Bytes of one receive buffer.
pub const BUFFER_BYTES: usize = 4096;
/// Share of receives that may end with ENOBUFS before the larger group is registered.
pub const ENOBUFS_SHARE_LIMIT: f64 = 0.01;
/// Events that one turn hands to the shard.
pub const EVENTS_PER_TURN: usize = 256;
/// Sends that one enter carries in closed loop; the send stamp is read once for each such batch.
pub const SENDS_PER_ENTER: usize = 64;
/// Sends that one enter carries in open loop. An enter with one send lasts 5 to 7 us, and the stamp
/// of all is the one before it, so few.
pub const OPEN_LOOP_SENDS_PER_ENTER: usize = 8;
/// Due queries that a shard takes at once before it looks at its events again.
pub const DUE_PER_TURN: usize = 64;
/// Entries of its schedule that a shard draws ahead while it has nothing to do.
pub const ARRIVALS_AHEAD: usize = 64;
/// Due queries of a shard that may wait for a connection. What is due beyond that stays in the
/// schedule, counted.
pub const BACKLOG_LIMIT: usize = 65_536;
/// How long the rest of a response may take whose answer is over (`[DONE]` has come) before its
/// connection is given up, ns.
pub const LINGER_NS: u64 = 50_000_000;
/// Records of ended queries that a shard has room for until they are written.
pub const RECORD_RING_ENTRIES: usize = 16_384;
/// Buffers for the texts of such records, at least, where texts are kept.
pub const RECORD_TEXTS_LEAST: usize = 1024;
/// Entries of the dispatch ring between the timer core and one shard.
pub const DISPATCH_RING_ENTRIES: usize = 4096;
/// Longest time before an instant that a shard spins instead of sleeping.
pub const MARGIN_NS_MAX: u64 = 300_000;
/// Shortest such time: a wake-up is never faster.
pub const MARGIN_NS_MIN: u64 = 5_000;
/// Positions in a row whose instants are kept for the arrival fit; a block.
pub const FIT_BLOCK: u64 = 1000;
/// Blocks of a phase that are kept for the arrival fit, roughly.
pub const FIT_BLOCKS: u64 = 10;
/// Instants of one interval that are kept for the arrival fit at most.
pub const FIT_SAMPLES_LIMIT: usize = 10_240;
/// Bytes of one send operation: a larger request goes out in pieces, one at a time per connection.
pub const SEND_PIECE_BYTES: usize = 64 * 1024;
/// Memory of an outbox (what TLS or a server makes up) that a connection keeps from one send to the
/// next.
pub const OUTBOX_BYTES_KEPT: usize = 64 * 1024;
/// Positions that a shard claims at once from a phase.
pub const CLAIM_LIMIT: u64 = 64;
/// Connections of one shard that may be in their handshake at the same time: no SYN storm, listen
/// backlogs hold.
pub const CONNECTS_IN_FLIGHT: u32 = 64;
/// Bytes of a response head, of its trailers, and of one chunk-size line; above it the response is
/// malformed.
pub const HEAD_BYTES_LIMIT: usize = 512 * 1024;
/// Fields of a response head.
pub const HEAD_FIELDS_LIMIT: usize = 2048;
/// Tick of the timer wheel. Timeouts fire at most one tick late.
pub const WHEEL_TICK_NS: u64 = 1_000_000;
/// Slots of the timer wheel; a deadline further away is looked at again when its slot comes round.
pub const WHEEL_SLOTS: usize = 1024;
/// How often a shard hands its live recording to control.
pub const INTERVAL_NS: u64 = 250_000_000;
/// First pause before a connection that could not be opened is tried again; doubles up to
/// [`BACKOFF_NS_MAX`].
pub const BACKOFF_NS_MIN: u64 = 1_000_000;
/// Longest pause between two attempts to open one connection.
pub const BACKOFF_NS_MAX: u64 = 256_000_000;
/// Gaps in a spinning shard longer than this are counted as hiccups of the host.
pub const HICCUP_NS: [u64; 3] = [10_000, 100_000, 1_000_000];
/// A turn that was away longer than this is our own stall: expiries right after it are counted
/// apart.
pub const STALL_NS: u64 = 1_000_000;
/// Lowest value of a time series.
pub const SERIES_NS_MIN: u64 = 1;
/// Highest value of a time series: one hour. Larger values are clamped and counted.
pub const SERIES_NS_MAX: u64 = 3_600_000_000_000;
/// Significant decimal digits of a time series.
pub const SERIES_DIGITS: u8 = 3;
/// Bytes kept of the first message of each failure kind.
pub const FIRST_MESSAGE_BYTES: usize = 160;

const _: () = assert!(SQ_ENTRIES.is_power_of_two());
const _: () = assert!(CQ_ENTRIES >= 4 * SQ_ENTRIES);
const _: () = assert!(SQ_ENTRIES_LEAST.is_power_of_two());
const _: () = assert!(CQ_ENTRIES_LEAST >= 4 * SQ_ENTRIES_LEAST);
const _: () = assert!(BUFFER_COUNT.is_power_of_two());
const _: () = assert!(BUFFER_COUNT_GROWN > BUFFER_COUNT);
const _: () = assert!(BUFFER_COUNT_GROWN.is_power_of_two());
// A turn's sends, with a close and a cancel for as many connections, fit the submission queue.
const _: () = assert!(3 * SENDS_PER_ENTER <= SQ_ENTRIES as usize);
const _: () = assert!(OPEN_LOOP_SENDS_PER_ENTER <= SENDS_PER_ENTER);
const _: () = assert!(MARGIN_NS_MIN < MARGIN_NS_MAX);
const _: () = assert!(FIT_SAMPLES_LIMIT as u64 >= FIT_BLOCK * FIT_BLOCKS);
const _: () = assert!(HEAD_BYTES_LIMIT >= 256 * 1024);
const _: () = assert!(HEAD_FIELDS_LIMIT >= 1000);
const _: () = assert!(WHEEL_SLOTS.is_power_of_two());
const _: () = assert!(BACKOFF_NS_MIN < BACKOFF_NS_MAX);
