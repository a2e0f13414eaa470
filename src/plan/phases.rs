//! The phases of a run, and the schedule of each.

use std::sync::Arc;

use loadgen_shards::phase::PhaseKind;
use loadgen_shards::schedule::{Process, Profile, SchedulePlan};

use super::Phase;
use crate::config::{Arrivals, Config, RampKind, RateShape, Warmup};
use crate::error::Error;

/// Process and rates of the open loop, with nothing left to read.
pub struct Load {
    process: Process,
    seed: u64,
    /// Of the performance phase.
    profile: Arc<Profile>,
    /// Of the warm-up: the rate that the performance phase begins with, throughout.
    first: Arc<Profile>,
}

impl Load {
    /// The points of a series have been read.
    pub fn new(arrivals: &Arrivals, seed: u64) -> Result<Load, Error> {
        let profile = match &arrivals.rate {
            RateShape::Constant(rate) => Profile::constant(*rate),
            RateShape::Ramp { kind: RampKind::Linear, from, to, time_ns } => {
                Profile::linear(*from, *to, *time_ns)
            }
            RateShape::Ramp { kind: RampKind::Exponential, from, to, time_ns } => {
                Profile::exponential(*from, *to, *time_ns)
            }
            RateShape::Series { points, .. } => Profile::series(points).ok(),
        };
        let first = arrivals.rate.first().and_then(Profile::constant);
        let (Some(profile), Some(first)) = (profile, first) else {
            // Each rate has been checked where it was typed.
            return Err(Error::usage("the rates of the load are out of range"));
        };
        Ok(Load {
            process: arrivals.process,
            seed,
            profile: Arc::new(profile),
            first: Arc::new(first),
        })
    }

    fn schedule(&self, kind: PhaseKind, count: Option<u64>, end_ns: Option<u64>) -> SchedulePlan {
        let (profile, stream) = match kind {
            PhaseKind::Performance => (&self.profile, PERFORMANCE_STREAM),
            PhaseKind::Warmup => (&self.first, WARMUP_STREAM),
        };
        SchedulePlan {
            process: self.process,
            profile: Arc::clone(profile),
            seed: self.seed,
            stream,
            count,
            end_ns,
        }
    }
}

/// Warm-up, if any, then performance. `load`: of an open loop.
pub fn phases(config: &Config, in_flight: u32, load: Option<&Load>) -> Vec<Phase> {
    let phase = |kind: PhaseKind, requests, duration_ns, drain_timeout_ns| Phase {
        name: kind.name().to_string(),
        kind,
        in_flight,
        schedule: load.map(|load| load.schedule(kind, requests, duration_ns)),
        requests,
        duration_ns,
        drain_timeout_ns,
    };
    // Undrained: the load goes on into the next phase without a gap.
    let warmup = config.warmup.map(|warmup| match warmup {
        Warmup::Time(ns) => phase(PhaseKind::Warmup, None, Some(ns), 0),
        Warmup::Requests(count) => phase(PhaseKind::Warmup, Some(count), None, 0),
    });
    let performance =
        phase(PhaseKind::Performance, config.requests, config.duration_ns, config.drain_timeout_ns);
    warmup.into_iter().chain([performance]).collect()
}

/// The measured list is the same with and without a warm-up.
const PERFORMANCE_STREAM: u64 = 0;
const WARMUP_STREAM: u64 = 1;
