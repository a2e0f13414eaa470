//! From the typed configuration to a run: every limit decided, every name resolved, nothing left to guess.

use std::path::PathBuf;

use loadgen_shards::phase::{PhaseKind, Timeouts};
use loadgen_shards::query::RequestTable;
use loadgen_shards::reactor::EngineChoice;

use crate::config::Config;

/// Everything a session needs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it came from; written to `config.yaml`.
    pub config: Config,
    /// One shard on each, ascending kernel CPU ids.
    pub cores: Vec<usize>,
    /// How the cores were chosen, in words: "half of the 2 allowed cores, as the endpoint is on this host".
    pub cores_reason: String,
    /// Whether shards never sleep.
    pub spin: bool,
    /// I/O back end asked for.
    pub engine: EngineChoice,
    /// What is sent, where to.
    pub table: RequestTable,
    /// Connections over all shards together.
    pub connections: u32,
    /// Warm-up, if any, then performance.
    pub phases: Vec<Phase>,
    /// Per query and connection.
    pub timeouts: Timeouts,
    /// Whether connections are reused.
    pub keepalive: bool,
    /// Statuses that count as success, inclusive.
    pub accept_status: (u16, u16),
    /// Whole run, ns; 0 = off.
    pub run_timeout_ns: u64,
    /// All in flight silent for so long ends the run, ns; 0 = off.
    pub response_idle_timeout_ns: u64,
    /// Where files go; `None`: nowhere.
    pub report_dir: Option<PathBuf>,
    /// The target is the endpoint embedded in this process.
    pub is_embedded: bool,
    /// The target is on this host.
    pub is_local: bool,
    /// What the user should know before the run; one stderr line each.
    pub notices: Vec<String>,
}

/// One phase of the run, over all shards.
#[derive(Clone, Debug)]
pub struct Phase {
    /// `warmup` or `performance`.
    pub name: String,
    /// Whether it is tracked.
    pub kind: PhaseKind,
    /// Queries in flight over all shards together.
    pub in_flight: u32,
    /// Stop after so many queries.
    pub requests: Option<u64>,
    /// Stop after so long.
    pub duration_ns: Option<u64>,
    /// How long to wait for the last answers; 0: the next phase goes on with them in flight.
    pub drain_timeout_ns: u64,
}
