//! What control asks of a shard, and what the shard answers.
//!
//! A run is a list of phases, warm-up included; each goes the same way: plan, start, stop
//! condition, drain (or not), end. Plans are queued one ahead with an absolute start, so that known
//! phases join without a gap.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::clock::Calibration;
use crate::failure::Failures;
use crate::limits::{CLAIM_LIMIT, FIT_BLOCK, FIT_BLOCKS};
use crate::order::SampleOrder;
use crate::reactor::EngineReport;
pub use crate::recorder::Goals;
use crate::recorder::Recording;
use crate::schedule::{Arrival, Schedule};
use crate::sys::wake::Waker;

/// Whether a phase counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// Untracked: brings endpoint and connections to temperature.
    Warmup,
    /// Tracked: the figures of the run.
    Performance,
}

impl PhaseKind {
    /// The `phase_type` in files.
    pub const fn name(self) -> &'static str {
        match self {
            PhaseKind::Warmup => "warmup",
            PhaseKind::Performance => "performance",
        }
    }
}

/// The phase's next position: the one word that shards share in closed loop. Claimed in ranges, so
/// that `-n` is exact, each position is taken once and no shard idles at the end.
#[derive(Debug)]
pub struct Positions {
    next: AtomicU64,
    /// Positions of the phase; `u64::MAX` without `-n`.
    end: u64,
    shards: u64,
}

impl Positions {
    /// `end`: how many positions there are (`None`: unlimited); `shards`: how many claim from it.
    pub fn new(end: Option<u64>, shards: u32) -> Positions {
        Positions {
            next: AtomicU64::new(0),
            end: end.unwrap_or(u64::MAX),
            shards: u64::from(shards.max(1)),
        }
    }

    /// Takes the next range of positions, at most `limit` of them; empty when none are left.
    ///
    /// Relaxed is enough: the word orders nothing but itself, and `fetch_add` hands each value out
    /// once. It cannot wrap: a shard stops claiming when it sees the end, so the overshoot is at
    /// most `shards x CLAIM_LIMIT`.
    pub fn claim(&self, limit: u64) -> std::ops::Range<u64> {
        let left = self.end.saturating_sub(self.next.load(Ordering::Relaxed));
        if left == 0 {
            return 0..0;
        }
        let count = (left / (8 * self.shards)).clamp(1, CLAIM_LIMIT).min(limit.max(1));
        let begin = self.next.fetch_add(count, Ordering::Relaxed);
        begin.min(self.end)..begin.saturating_add(count).min(self.end)
    }

    /// Whether every position has been handed out.
    pub fn is_used_up(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.end
    }

    /// How many positions have been handed out.
    pub fn claimed(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.end)
    }
}

/// How queries come to be.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Closed loop: `in_flight` queries of this shard at any time, the next starts when one ends.
    ClosedLoop {
        /// Credits of this shard.
        in_flight: u32,
        /// Shared by all shards of the phase.
        positions: Arc<Positions>,
    },
    /// Open loop: queries are due at the instants of a schedule, whatever the endpoint does.
    OpenLoop {
        /// Most queries of this shard in flight, over all its targets: those beyond it wait.
        in_flight: u32,
        /// Where the instants come from.
        source: Source,
        /// What happens to a query that finds no connection.
        overload: Overload,
        /// Which positions have their instants kept for the arrival fit.
        fit: FitSample,
    },
}

/// Where a shard's due instants come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The shard walks the schedule itself and keeps its part of it.
    Own(Box<Schedule>),
    /// The timer core holds each entry until it is due, then puts it into the dispatch ring.
    Timer(Arc<TimerPhase>),
}

/// Entries of a schedule that nobody took: for control to count, which has the time.
#[derive(Clone, Debug)]
pub struct Rest {
    /// Drawn and not taken.
    pub pending: Option<Arrival>,
    /// The entries behind it.
    pub schedule: Box<Schedule>,
}

/// What the timer core tells of a phase.
#[derive(Debug, Default)]
pub struct TimerPhase {
    has_ended: AtomicBool,
    has_reached_count: AtomicBool,
    rest: Mutex<Option<Rest>>,
}

impl TimerPhase {
    /// Nothing more will come; `rest` are the entries that it kept.
    pub fn end(&self, rest: Rest) {
        let has_reached_count = rest.pending.is_none() && rest.schedule.has_reached_count();
        self.has_reached_count.store(has_reached_count, Ordering::Relaxed);
        // Control alone takes it, after the end.
        *self.rest.lock().expect("nobody panics with it") = Some(rest);
        // Release: who sees the end also finds every entry in the rings.
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether nothing more will come. Look into the ring after, not before.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether it ended as the whole list had been dispatched, and by its count. Ask after the end.
    pub fn has_reached_count(&self) -> bool {
        self.has_reached_count.load(Ordering::Relaxed)
    }

    /// The entries that the timer kept; once.
    pub fn take_rest(&self) -> Option<Rest> {
        self.rest.lock().expect("nobody panics with it").take()
    }
}

/// Positions whose instants are kept: whole blocks, spread over the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitSample {
    /// One block in so many.
    pub every: u64,
    /// Which of them, below `every`.
    pub offset: u64,
}

impl FitSample {
    /// About [`FIT_BLOCKS`] blocks of a phase with so many positions.
    pub fn of(expected: u64, seed: u64) -> FitSample {
        let every = (expected / (FIT_BLOCK * FIT_BLOCKS)).max(1);
        FitSample { every, offset: seed % every }
    }

    /// Whether the instants of this position are kept.
    pub fn has(&self, position: u64) -> bool {
        (position / FIT_BLOCK) % self.every == self.offset
    }
}

/// One phase, as one shard gets it.
#[derive(Clone, Debug)]
pub struct PhasePlan {
    /// Index in the run.
    pub index: u32,
    /// Whether it is tracked.
    pub kind: PhaseKind,
    /// Where queries come from.
    pub pattern: Pattern,
    /// Which sample each position sends.
    pub order: SampleOrder,
    /// Absolute start, CLOCK_MONOTONIC ns. Not before it; a shard that is late starts at once.
    pub start_ns: u64,
    /// Length of the issuing part; `None`: until the positions are used up.
    pub duration_ns: Option<u64>,
    /// How long to wait for in-flight queries after the last issue. 0: not at all, they are
    /// `in_flight_at_end` and count against the next phase's credits.
    pub drain_timeout_ns: u64,
    /// The clock's calibration at the time of planning.
    pub clock: Calibration,
}

/// Timeouts of queries and connections, ns; 0 = off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// From the send to the end of the response.
    pub request_ns: u64,
    /// From the attempt to the established connection.
    pub connect_ns: u64,
    /// From the send to the first token of an answer (one that is not streamed has it with its
    /// last), of plain HTTP to the first byte of the response.
    pub ttft_ns: u64,
    /// Between bytes while a response is awaited.
    pub idle_ns: u64,
}

/// How a shard passes the time until something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In the kernel, until the instant itself: wakes late.
    Sleep,
    /// In the kernel until a margin before the instant, learnt from its own overshoots; then it
    /// spins.
    Hybrid,
    /// Never in the kernel.
    Spin,
}

/// What happens to a query that is due when no connection is free and no more may be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// It waits in the shard, stamped.
    #[default]
    Queue,
    /// It is dropped and counted.
    Drop,
}

/// What a shard shows while it runs, on cache lines of its own (the prefetcher takes them in
/// pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Live {
    in_flight: AtomicU64,
    free: AtomicU64,
}

impl Live {
    /// Written by the shard once a turn: queries in flight, and queries that could be bound now.
    pub fn show(&self, in_flight: u64, free: u64) {
        self.in_flight.store(in_flight, Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
    }

    /// Queries that could be bound to a connection now, or to an attempt to open one.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Queries in flight, of any phase.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// Control to shard.
#[derive(Debug)]
pub enum Command {
    /// One more phase; started when the earlier ones have ended and its instant has come.
    Phase(Box<PhasePlan>),
    /// The phase ends its issuing at this instant, as if planned so.
    EndAt {
        /// Index of the phase.
        phase: u32,
        /// CLOCK_MONOTONIC ns; later than now, so that all shards end at the same instant.
        at_ns: u64,
    },
    /// Stop issuing now, in the running phase and in all that are queued; drain as planned.
    Stop,
    /// Stop issuing now and cancel everything in flight; queued phases are dropped.
    Cancel,
    /// No more phases will come: close the connections and return.
    Exit,
}

/// Shard to control. `shard` is its index.
#[derive(Debug)]
pub enum Message {
    /// The reactor stands and the connections are open, or have been tried.
    Ready(Box<Ready>),
    /// The shard could not be set up; its thread has ended.
    Refused {
        /// Index of the shard.
        shard: u32,
        /// What failed, the likely cause, the command that fixes it.
        reason: String,
    },
    /// The recording of one interval of one phase. Control adds it up and sends the box back.
    Interval {
        /// Index of the shard.
        shard: u32,
        /// What was recorded.
        recording: Box<Recording>,
    },
    /// The phase has ended on this shard; all its recordings have been sent before.
    PhaseEnded {
        /// Index of the shard.
        shard: u32,
        /// Index of the phase.
        phase: u32,
        /// When it began on this shard, ns; 0 if it never did.
        start_ns: u64,
        /// When issuing ended, ns.
        issue_end_ns: u64,
        /// When the phase ended, drain included, ns.
        end_ns: u64,
        /// Queries that were neither complete, failed nor cancelled.
        in_flight_at_end: u64,
        /// Sum of the times that they, and the queries in the backlog, had spent since T1, ns.
        survivors_ns: i128,
        /// Entries of the schedule that were due in the phase and that the shard did not take.
        rest: Option<Rest>,
    },
    /// The shard's thread is about to end in good order.
    Exited {
        /// Index of the shard.
        shard: u32,
    },
}

/// A shard that stands.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Index of the shard.
    pub shard: u32,
    /// The core it is pinned to; `None`: could not be pinned.
    pub core: Option<usize>,
    /// The reactor's own words about itself.
    pub engine: EngineReport,
    /// Connections open now.
    pub connections_open: u32,
    /// Connections that could not be opened, with what the first one said.
    pub failures: Failures,
    /// The shard's clock against CLOCK_MONOTONIC as read on its core, ns.
    pub clock_error_ns: i64,
    /// Wakes the shard to look for commands.
    pub waker: Waker,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_claimed_once_by_any_number_of_shards() {
        for shards in [1, 2, 3, 16] {
            for end in [0, 1, 7, 64, 1000, 100_000] {
                let positions = Arc::new(Positions::new(Some(end), shards));
                let claims: Vec<_> = (0..shards)
                    .map(|_| {
                        let positions = Arc::clone(&positions);
                        std::thread::spawn(move || {
                            let mut mine = Vec::new();
                            loop {
                                let range = positions.claim(u64::MAX);
                                if range.is_empty() {
                                    return mine;
                                }
                                mine.extend(range);
                            }
                        })
                    })
                    .collect();
                let mut all: Vec<u64> =
                    claims.into_iter().flat_map(|claim| claim.join().expect("no panic")).collect();
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..end), "{shards} shards, {end} positions");
                assert_eq!(positions.claimed(), end);
            }
        }
    }

    #[test]
    fn claims_shrink_towards_the_end_so_that_no_shard_idles() {
        let positions = Positions::new(Some(1024), 2);
        assert_eq!(positions.claim(u64::MAX), 0..64);
        let mut last = 64;
        loop {
            let range = positions.claim(u64::MAX);
            if range.is_empty() {
                break;
            }
            last = range.end - range.start;
        }
        assert_eq!(last, 1);
        assert_eq!(positions.claim(u64::MAX), 0..0);
    }

    #[test]
    fn without_a_count_positions_never_end() {
        let positions = Positions::new(None, 16);
        assert_eq!(positions.claim(u64::MAX), 0..CLAIM_LIMIT);
        assert_eq!(positions.claim(5), 64..69);
    }

    #[test]
    fn instants_are_kept_in_whole_blocks_about_ten_of_them() {
        for expected in [0, 1, 9_999, 10_000, 25_000, 1_000_000, 123_456_789] {
            let fit = FitSample::of(expected, 12_345);
            let blocks = expected.div_ceil(FIT_BLOCK);
            let kept = (0..blocks).filter(|block| fit.has(block * FIT_BLOCK)).count() as u64;
            assert!(kept >= blocks.min(5) && kept <= 20, "{expected}: {kept} of {blocks}");
            assert_eq!(fit.has(1999), fit.has(1000), "a block is whole");
        }
    }
}
