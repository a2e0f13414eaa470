//! Measured facts of a run, merged over shards and intervals; nothing derived. Written to `final_snapshot.json`.

use hdrhistogram::Histogram;
use loadgen_shards::failure::Failures;
use loadgen_shards::phase::PhaseKind;
use loadgen_shards::reactor::EngineReport;
use loadgen_shards::recorder::{Counters, Recording, Series, StatusTable};

/// State of a run or phase; goes forward only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Connections are being opened.
    Initialize,
    /// Queries are issued.
    Live,
    /// The last answers are awaited.
    Draining,
    /// Ended as planned.
    Complete,
    /// Ended early: signal, abort, hard timeout, or a shard that died.
    Interrupted,
}

impl State {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            State::Initialize => "initialize",
            State::Live => "live",
            State::Draining => "draining",
            State::Complete => "complete",
            State::Interrupted => "interrupted",
        }
    }
}

/// A merged distribution, ns.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Counts by value; the bounds and digits of the shards' series.
    pub histogram: Histogram<u64>,
    /// Smallest value; `u64::MAX` while empty.
    pub min: u64,
    /// Largest value; 0 while empty.
    pub max: u64,
    /// Sum of all values.
    pub total: u128,
    /// Sum of the squares.
    pub sum_sq: f64,
    /// Values below the lowest bound.
    pub clamped_low: u64,
    /// Values above the highest bound.
    pub clamped_high: u64,
}

/// One phase, merged over its shards.
#[derive(Clone, Debug)]
pub struct PhaseTotals {
    /// `warmup` or `performance`.
    pub name: String,
    /// Whether it is tracked.
    pub kind: PhaseKind,
    /// How far it has come.
    pub state: State,
    /// Planned start, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// When the last shard stopped issuing; 0 while live.
    pub issue_end_ns: u64,
    /// When the last shard ended it; 0 while it runs.
    pub end_ns: u64,
    /// Sums over shards.
    pub counters: Counters,
    /// Sums over shards, first message of the first shard that had one.
    pub failures: Failures,
    /// Sums over shards.
    pub statuses: StatusTable,
    /// `service_latency_ns`; in closed loop also `sample_latency_ns`.
    pub service: Distribution,
    /// `ttfb_ns`.
    pub ttfb: Distribution,
    /// `connect_ns`.
    pub connect: Distribution,
    /// Queries neither complete, failed nor cancelled when the phase ended; while live: in flight now.
    pub in_flight_at_end: u64,
    /// First send, 0 if none.
    pub first_sent_ns: u64,
    /// Last completion, 0 if none.
    pub last_complete_ns: u64,
    /// Time at work, summed over shards.
    pub busy_ns: u64,
    /// Shards x time that the recordings cover: `busy_ns` / this is the client's utilisation.
    pub covered_ns: u64,
}

/// The whole run so far.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Rises with each snapshot written.
    pub counter: u64,
    /// When it was taken, CLOCK_MONOTONIC ns.
    pub timestamp_ns: u64,
    /// When the run began, Unix seconds.
    pub started_unix_s: u64,
    /// How far the run has come.
    pub state: State,
    /// Why it ended early; empty otherwise. One sentence, for the report and stderr.
    pub interrupted_by: String,
    /// One word each for the shards' back end (they agree, or the first that differs is told in `reason`).
    pub engine: EngineReport,
    /// Cores of the shards, as pinned; `None` where a shard could not be pinned.
    pub cores: Vec<Option<usize>>,
    /// Clock facts.
    pub clock: ClockFacts,
    /// Connections open before the first phase.
    pub connections_open: u32,
    /// Phases in the order of the plan.
    pub phases: Vec<PhaseTotals>,
}

/// What is known of our own clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClockFacts {
    /// `tsc` or `clock_gettime`.
    pub source: &'static str,
    /// Ticks per second of the counter, from our own calibration.
    pub ticks_per_s: f64,
    /// Largest disagreement with CLOCK_MONOTONIC seen when it was checked, ns.
    pub error_ns_max: u64,
}
