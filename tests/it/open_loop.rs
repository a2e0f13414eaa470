//! Open loop in real time, against a queue whose own record is the truth.
//!
//! A host only ever adds time, so what must not be too early or too small is exact, and what may be
//! late has room, or further attempts. The schedule is drawn again here, from the crate whose tests
//! pin it.

mod accounting; // every entry of the schedule has exactly one end
mod arrivals; // who is sent when, whatever waits for the instants
mod connections; // how many there are, who waits for one, who is dropped
mod queueing; // what the client measures is what the queue did

use std::sync::Arc;

use loadgen_shards::schedule::{Process, Profile, Schedule, SchedulePlan};

/// The schedule of the performance phase; `stream` 1 is that of the warm-up.
fn schedule(process: Process, rate: f64, seed: u64) -> SchedulePlan {
    let profile = Arc::new(Profile::constant(rate).expect("a rate in range"));
    SchedulePlan { process, profile, seed, stream: 0, count: None, end_ns: None }
}

/// Its instants, since the begin of the phase, ns.
fn offsets_ns(plan: &SchedulePlan) -> Vec<u64> {
    Schedule::new(plan).map(|arrival| arrival.offset_ns).collect()
}

/// The value with a share of all values at or below it.
fn percentile(values: &[u64], share: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank - 1]
}

const MS: u64 = 1_000_000;
