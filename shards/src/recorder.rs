//! What a shard records: one [`Recording`] per interval, handed to control and reset.
//!
//! Histograms have the same bounds everywhere, so that adding them bucket by bucket loses nothing;
//! the exact minimum, maximum and sums are kept beside them, and a value outside the bounds is
//! clamped and counted, never lost.

use hdrhistogram::Histogram;

use crate::failure::Failures;
use crate::limits::{SERIES_DIGITS, SERIES_NS_MAX, SERIES_NS_MIN};

/// A distribution of times in ns: histogram for the percentiles, exact sums and extremes beside it.
#[derive(Clone, Debug)]
pub struct Series {
    /// Counts by value, 3 significant digits, 1 ns to 1 h.
    pub histogram: Histogram<u32>,
    /// Smallest value; `u64::MAX` while empty.
    pub min: u64,
    /// Largest value; 0 while empty.
    pub max: u64,
    /// Sum of all values.
    pub total: u128,
    /// Sum of the squares.
    pub sum_sq: f64,
    /// Values below the lowest bound (0 ns), recorded as the bound.
    pub clamped_low: u64,
    /// Values above the highest bound, recorded as the bound.
    pub clamped_high: u64,
}

impl Default for Series {
    fn default() -> Series {
        let histogram = Histogram::new_with_bounds(SERIES_NS_MIN, SERIES_NS_MAX, SERIES_DIGITS)
            .expect("the bounds are constants that the crate accepts");
        Series {
            histogram,
            min: u64::MAX,
            max: 0,
            total: 0,
            sum_sq: 0.0,
            clamped_low: 0,
            clamped_high: 0,
        }
    }
}

impl Series {
    /// Records one value in ns.
    pub fn record(&mut self, value_ns: u64) {
        self.min = self.min.min(value_ns);
        self.max = self.max.max(value_ns);
        self.total += u128::from(value_ns);
        self.sum_sq += value_ns as f64 * value_ns as f64;
        self.clamped_low += u64::from(value_ns < SERIES_NS_MIN);
        self.clamped_high += u64::from(value_ns > SERIES_NS_MAX);
        self.histogram.saturating_record(value_ns.max(SERIES_NS_MIN));
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        if !self.histogram.is_empty() {
            self.histogram.reset();
        }
        self.min = u64::MAX;
        self.max = 0;
        self.total = 0;
        self.sum_sq = 0.0;
        self.clamped_low = 0;
        self.clamped_high = 0;
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Integers of a recording; sums over shards and intervals.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Adds the counters of another recording.
            pub fn add(&mut self, other: &Counters) { $(self.$name += other.$name;)* }

            /// Names and values, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Queries bound to a connection, or to the attempt to open one.
    issued,
    /// Complete responses with an accepted status.
    completed,
    /// Queries that ended in a failure (of any kind).
    failed,
    /// Queries given up by us: hard stop.
    cancelled,
    /// Completions of queries that an earlier, undrained phase had issued; in no figure of this
    /// phase.
    carried_in,
    /// Connections established.
    connections_opened,
    /// Reused connections found dead before any response byte; each is reopened.
    connections_reused_stale,
    /// Connections closed by either side after an exchange.
    connections_closed,
    /// Sends repeated on a fresh connection after a stale one.
    retries,
    /// Request bytes handed to the kernel.
    bytes_sent,
    /// Response bytes received.
    bytes_received,
    /// Interim (1xx) responses skipped.
    interim_responses,
    /// Timeouts that expired right after a stall of ours (> 1 ms away from the loop).
    timeouts_after_client_stall,
    /// Receives that found no buffer; back-pressure, the bytes stay in the socket.
    receive_buffer_waits,
    /// Completion-queue overflows reported by the kernel.
    completion_overflows,
    /// Calls of the kernel to submit or wait.
    enters,
    /// Receives that carried bytes.
    receives,
}

/// How many responses had which status.
#[derive(Clone, Debug)]
pub struct StatusTable(Box<[u64; 900]>);

impl Default for StatusTable {
    fn default() -> StatusTable {
        StatusTable(Box::new([0; 900]))
    }
}

impl StatusTable {
    /// Counts one response; `status` is 100..=999, as the grammar of the status line has it.
    pub fn count(&mut self, status: u16) {
        debug_assert!((100..=999).contains(&status));
        self.0[usize::from(status - 100)] += 1;
    }

    /// Adds another table.
    pub fn add(&mut self, other: &StatusTable) {
        for (mine, more) in self.0.iter_mut().zip(other.0.iter()) {
            *mine += more;
        }
    }

    /// Statuses that occurred, ascending, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        self.0.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (i as u16 + 100, *n))
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.0.fill(0);
    }
}

/// What one shard saw in one interval of one phase.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Index of the phase; every figure below belongs to its queries.
    pub phase: u32,
    /// Begin of the interval, CLOCK_MONOTONIC ns.
    pub begin_ns: u64,
    /// End of the interval.
    pub end_ns: u64,
    /// Integers.
    pub counters: Counters,
    /// Failures by kind.
    pub failures: Failures,
    /// Statuses of complete responses, accepted or not.
    pub statuses: StatusTable,
    /// `service_latency_ns` of completed queries: from the send to the last byte. The headline in
    /// closed loop.
    pub service: Series,
    /// `ttfb_ns` of completed queries: from the send to the first byte of the response.
    pub ttfb: Series,
    /// `connect_ns` of the connections opened.
    pub connect: Series,
    /// Queries in flight at `end_ns`.
    pub in_flight: u64,
    /// First send of a query of this phase; 0 if none.
    pub first_sent_ns: u64,
    /// Last completion (success) of a query of this phase; 0 if none.
    pub last_complete_ns: u64,
    /// Time in which the shard was at work or waited for its core, not asleep and not polling in
    /// vain, ns.
    pub busy_ns: u64,
}

impl Recording {
    /// Forgets everything and belongs to `phase` from `begin_ns` on.
    pub fn reset(&mut self, phase: u32, begin_ns: u64) {
        self.phase = phase;
        self.begin_ns = begin_ns;
        self.end_ns = begin_ns;
        self.counters = Counters::default();
        self.failures.reset();
        self.statuses.reset();
        self.service.reset();
        self.ttfb.reset();
        self.connect.reset();
        self.in_flight = 0;
        self.first_sent_ns = 0;
        self.last_complete_ns = 0;
        self.busy_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_outside_the_bounds_are_clamped_and_counted_never_lost() {
        let mut series = Series::default();
        for value in [0, 1, 5, SERIES_NS_MAX, SERIES_NS_MAX + 1, u64::MAX] {
            series.record(value);
        }
        assert_eq!(series.count(), 6);
        assert_eq!((series.clamped_low, series.clamped_high), (1, 2));
        assert_eq!((series.min, series.max), (0, u64::MAX));
        series.reset();
        assert_eq!((series.count(), series.min, series.max, series.total), (0, u64::MAX, 0, 0));
    }

    #[test]
    fn percentiles_are_within_the_bucket_error() {
        let mut series = Series::default();
        for value in 1..=100_000u64 {
            series.record(value * 1000);
        }
        let p99 = series.histogram.value_at_quantile(0.99);
        assert!((99_000_000..=99_100_000).contains(&p99), "{p99}");
        assert_eq!(series.total, (1..=100_000u128).sum::<u128>() * 1000);
    }
}
