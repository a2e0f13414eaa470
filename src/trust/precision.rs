//! How precise a percentile is, how long a run must be to make it so, and what to expect before it.

use crate::snapshot::Batches;
use crate::statistics::interval::{self, BATCHES_TARGET, batch_interval, regroup};
use crate::statistics::normal_quantile;
use crate::statistics::planner::{correlation_requests, extension_factor};

/// Confidence of every interval.
pub(super) const CONFIDENCE: f64 = 0.95;
/// Load of the endpoint that is assumed before anything is known of it.
const ASSUMED_LOAD: f64 = 0.5;

/// The interval of percentile `milli` (1/1000 %) of the headline latency, from the slices of a
/// phase; `None` below ten slices with answers.
pub(super) fn of_batches(batches: &Batches, milli: u32) -> Option<interval::Interval> {
    let slices: Vec<_> = batches.list().iter().map(|batch| batch.latencies.clone()).collect();
    batch_interval(&regroup(&slices, BATCHES_TARGET), milli, CONFIDENCE)
}

/// Half the 95 % interval of percentile `milli` as a share of its value; `None` while there are
/// fewer than ten slices with answers, or where the interval has no end.
pub fn half_width(batches: &Batches, milli: u32) -> Option<f64> {
    of_batches(batches, milli)?.half_width()
}

/// Whether half the 95 % interval of percentile `milli` is at most `share` of its value; `None`
/// while there are fewer than ten slices with answers. An interval without an end is too wide.
pub fn precision_reached(batches: &Batches, milli: u32, share: f64) -> Option<bool> {
    Some(of_batches(batches, milli)?.half_width().is_some_and(|half| half <= share))
}

/// How much longer than `ran_ns` a run must go on until half the interval of percentile `milli` is
/// `share` of its value, ns; 0 if it is. `None` where nothing is known of the interval yet: below
/// ten slices, or without an end.
pub fn more_time_ns(batches: &Batches, milli: u32, share: f64, ran_ns: u64) -> Option<u64> {
    let factor = extension_factor(half_width(batches, milli)?, share);
    Some(((factor - 1.0).max(0.0) * ran_ns as f64) as u64)
}

/// Requests after which half the 95 % interval of percentile `milli` will be about `share` of its
/// value, for a single server with exponential service at half load: a guess before the run.
///
/// Latency is exponential there, so its percentile is -ln(1 - p) means and the error of `n`
/// independent values sqrt(p / (n (1 - p))) means.
pub fn requests_estimate(milli: u32, share: f64) -> u64 {
    let p = f64::from(milli) / 1e5;
    let z = normal_quantile(0.5 + CONFIDENCE / 2.0);
    let independent = z * z * p / ((1.0 - p) * (share * (1.0 - p).ln()).powi(2));
    (independent * correlation_requests(ASSUMED_LOAD)).ceil() as u64
}
