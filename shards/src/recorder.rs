//! What a shard records: one [`Recording`] per interval, handed to control and reset.
//!
//! Histograms have the same bounds everywhere, so that adding them bucket by bucket loses nothing;
//! the exact minimum, maximum and sums are kept beside them, and a value outside the bounds is
//! clamped and counted, never lost.

mod answers;

use crate::failure::Failures;
use crate::histogram::Histogram;
use crate::limits::{FIT_SAMPLES_LIMIT, SERIES_NS_MAX, SERIES_NS_MIN};

pub use answers::{AnswerTimes, Answers, Tpot};

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
        Series {
            histogram: Histogram::default(),
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
        self.histogram.record(value_ns.max(SERIES_NS_MIN));
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.histogram.reset();
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
            pub fn add(&mut self, other: &Counters) {
                // Sums of waits in a hopeless overload come near the end of u64.
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }

            /// Names and values, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Queries that fell due in the phase (open loop).
    scheduled,
    /// Due queries given up for want of a connection (`--overload drop`).
    dropped,
    /// Due queries that had not begun when the phase ended.
    untaken,
    /// Queries bound to a connection or to the attempt to open one, or that waited for the outcome
    /// of one that failed.
    issued,
    /// Complete responses with an accepted status.
    completed,
    /// Completed queries that kept every goal of the run (`--goodput`).
    good,
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
    /// Due queries that stayed in the schedule, as the shard's backlog was full; they have no
    /// lateness.
    held_back,
    /// Issued queries that waited for a connection to be opened for them, and how long, ns.
    waits_new_connection,
    /// See [`Counters::waits_new_connection`].
    waits_new_connection_ns,
    /// Issued queries that waited as no more connections may be opened, and how long, ns.
    waits_full,
    /// See [`Counters::waits_full`].
    waits_full_ns,
    /// Issued queries that waited so while another shard had a connection free, and how long, ns.
    waits_other_shard_free,
    /// See [`Counters::waits_other_shard_free`].
    waits_other_shard_free_ns,
    /// Successes of a sampled position, sent once: kernel stamps were asked for.
    wire_stamps_wanted,
    /// Those with a stamp of the send.
    wire_stamps_tx,
    /// Those with a stamp of the receive.
    wire_stamps_rx,
    /// Stamps before T2 (send) or after T8 (receive) by more than the error of the clocks' mapping.
    wire_stamps_out_of_order,
    /// Those whose stamps were left out, as CLOCK_REALTIME was set meanwhile.
    wire_stamps_clock_set,
    /// Stamps of sends that were not of the last byte of a sampled request: the socket took it in
    /// parts.
    wire_stamps_mismatched,
    /// Pairs of stamps in the wrong order.
    negative_intervals,
    /// Kernel calls that carried one send and did not sleep, and how long they took, ns: the cost
    /// of a send.
    single_sends,
    /// See [`Counters::single_sends`].
    single_sends_ns,
    /// Gaps of a polling shard longer than 10 us in which nothing was done: the host took them.
    hiccups_10us,
    /// Longer than 100 us.
    hiccups_100us,
    /// Longer than 1 ms.
    hiccups_1ms,
    /// Sum of those longer than 100 us, ns.
    hiccups_ns,
    /// Times the kernel took the core from the shard.
    involuntary_switches,
    /// Page faults that read from disk.
    major_faults,
    /// Time the shard was ready to run and had no core, ns.
    run_delay_ns,
    /// TLS handshakes completed.
    tls_handshakes,
    /// Those that resumed an earlier session.
    tls_resumed,
    /// Connections that the endpoint closed after it had answered, with or without a word.
    closed_by_endpoint,
    /// Exchanges that those had carried.
    closed_by_endpoint_exchanges,
    /// Completed answers that were read as ones of an inference endpoint.
    answers,
    /// Those that were to be streamed and came as one JSON document.
    answers_not_streamed,
    /// Those of whose tokens the endpoint told the number.
    answers_counted,
    /// Their generated tokens.
    completion_tokens,
    /// Of these, reasoning.
    reasoning_tokens,
    /// Prompt tokens as the endpoint counted them, and answers that told.
    prompt_tokens,
    /// See [`Counters::prompt_tokens`].
    answers_prompt_counted,
    /// Prompt tokens served from the endpoint's cache, and answers that told of it; some endpoints
    /// leave it out where it is 0.
    cached_tokens,
    /// See [`Counters::cached_tokens`].
    answers_cached_told,
    /// Chunks with something generated.
    chunks,
    /// Those that came in the receive of the one before.
    chunks_coalesced,
    /// Gaps between chunks below 50 us.
    chunk_gaps_short,
    /// Chunks that were not JSON and were skipped (`--lenient`).
    chunks_malformed,
    /// Answers whose chunks repeated the text so far.
    answers_cumulative,
    /// Answers without a TPOT: fewer than two tokens, or all at one instant.
    tpot_undefined,
    /// Records of queries that found no room on their way to the file.
    records_dropped,
    /// Completed queries of which it cannot be said whether they are good, as nobody counted their
    /// tokens.
    good_unknown,
}

/// Where the time of completed queries went, by latency: the buckets are coarse (6 %), the sums
/// exact. From it come the mean parts of all queries and of the slow ones.
#[derive(Clone, Debug)]
pub struct Breakdown(Box<[Parts]>);

/// Sums over the completed queries of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Queries.
    pub count: u64,
    /// T1 - T0: our delay, ns.
    pub lateness_ns: u64,
    /// T1p - T1: for a connection, ns.
    pub pool_wait_ns: u64,
    /// T2 - T1p: our delay, ns.
    pub prepare_ns: u64,
    /// T8 - T2: the endpoint and the way to it, ns.
    pub service_ns: u64,
}

impl Parts {
    /// Adds other sums. They stay at the largest value rather than begin anew.
    pub fn add(&mut self, other: &Parts) {
        self.count += other.count;
        self.lateness_ns = self.lateness_ns.saturating_add(other.lateness_ns);
        self.pool_wait_ns = self.pool_wait_ns.saturating_add(other.pool_wait_ns);
        self.prepare_ns = self.prepare_ns.saturating_add(other.prepare_ns);
        self.service_ns = self.service_ns.saturating_add(other.service_ns);
    }

    /// The sum of the parts, ns: of the latencies.
    pub fn total_ns(&self) -> u64 {
        let parts = [self.lateness_ns, self.pool_wait_ns, self.prepare_ns, self.service_ns];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

impl Default for Breakdown {
    fn default() -> Breakdown {
        Breakdown(vec![Parts::default(); BREAKDOWN_BUCKETS].into_boxed_slice())
    }
}

impl Breakdown {
    fn bucket(latency_ns: u64) -> usize {
        // Octave and the four bits below its leading one; below 16 the value itself.
        let octave = latency_ns.max(16).ilog2();
        let steps = (latency_ns >> (octave - 4)) as usize & 15;
        let index = (octave as usize - 3) * 16 + steps;
        if latency_ns < 16 { latency_ns as usize } else { index.min(BREAKDOWN_BUCKETS - 1) }
    }

    /// Counts one completed query; `parts.count` is 1.
    pub fn record(&mut self, latency_ns: u64, parts: &Parts) {
        self.0[Breakdown::bucket(latency_ns)].add(parts);
    }

    /// Adds another table.
    pub fn add(&mut self, other: &Breakdown) {
        for (mine, more) in self.0.iter_mut().zip(other.0.iter()) {
            if more.count > 0 {
                mine.add(more);
            }
        }
    }

    /// The parts of all queries.
    pub fn all(&self) -> Parts {
        self.above(0)
    }

    /// The parts of the queries that took at least `latency_ns`, to the bucket.
    pub fn above(&self, latency_ns: u64) -> Parts {
        let mut sum = Parts::default();
        self.0[Breakdown::bucket(latency_ns)..].iter().for_each(|parts| sum.add(parts));
        sum
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.0.fill(Parts::default());
    }
}

/// Up to 2^42 ns, more than an hour.
const BREAKDOWN_BUCKETS: usize = (42 - 3) * 16;

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

/// What a completed query must keep to count as good, ns, inclusive; `u64::MAX` where it need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goals {
    /// Headline latency: from the schedule, in closed loop from the send.
    pub latency_ns: u64,
    /// From the send to the last byte.
    pub service_ns: u64,
    /// From the send to the first byte.
    pub ttfb_ns: u64,
    /// Headline time to the first token.
    pub ttft_ns: u64,
    /// From the send to the first token.
    pub service_ttft_ns: u64,
    /// Time per output token.
    pub tpot_ns: u64,
}

impl Goals {
    /// None at all: the begin of a list.
    pub const NONE: Goals = Goals {
        latency_ns: u64::MAX,
        service_ns: u64::MAX,
        ttfb_ns: u64::MAX,
        ttft_ns: u64::MAX,
        service_ttft_ns: u64::MAX,
        tpot_ns: u64::MAX,
    };

    /// Whether a completed query kept all of them; `None`: that hangs on its TPOT, which nobody
    /// knows. `answer`: the times of an inference answer.
    pub fn kept(&self, stamps: &Stamps, answer: Option<&AnswerTimes>) -> Option<bool> {
        let service_ns = stamps.complete_ns.saturating_sub(stamps.sent_ns);
        let ttfb_ns = stamps.first_byte_ns.saturating_sub(stamps.sent_ns);
        let latency_ns = stamps.complete_ns.saturating_sub(stamps.origin_ns());
        let is_in_time = latency_ns <= self.latency_ns
            && service_ns <= self.service_ns
            && ttfb_ns <= self.ttfb_ns;
        if !is_in_time {
            return Some(false);
        }
        answer.map_or(Some(true), |answer| answer.keeps(self, stamps))
    }
}

/// When what happened to a completed query, CLOCK_MONOTONIC ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// T0; 0 in closed loop.
    pub scheduled_ns: u64,
    /// T1.
    pub dispatched_ns: u64,
    /// T1p.
    pub ready_ns: u64,
    /// T2.
    pub sent_ns: u64,
    /// T4.
    pub first_byte_ns: u64,
    /// T8.
    pub complete_ns: u64,
}

impl Stamps {
    /// What headline times count from: T0, or T2 in closed loop, which has no schedule.
    pub fn origin_ns(&self) -> u64 {
        if self.scheduled_ns > 0 { self.scheduled_ns } else { self.sent_ns }
    }
}

/// An instant of a sampled position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// Position in the phase.
    pub position: u64,
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
}

/// What one shard saw in one interval of one phase.
///
/// Series are of completed queries unless they say otherwise. In closed loop those that need a
/// schedule stay empty, and their memory untouched.
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
    /// T8 - T0, from the schedule to the last byte: the headline in open loop.
    pub latency: Series,
    /// T8 - T1, the same without our lateness.
    pub since_dispatch: Series,
    /// T8 - T2, from the send to the last byte: the headline in closed loop.
    pub service: Series,
    /// T4 - T2, from the send to the first byte of the response.
    pub ttfb: Series,
    /// T1 - T0 of every query taken from the schedule.
    pub lateness: Series,
    /// T1p - T1 of every sent query of the schedule.
    pub pool_wait: Series,
    /// Headline latency that queries had reached when they timed out: they would have taken longer.
    pub censored: Series,
    /// `connect_ns` of the connections opened.
    pub connect: Series,
    /// How late timed sleeps ended: the bias of what a sleeping shard receives.
    pub wakeup: Series,
    /// From one kernel call to the next, of turns with work: how long the shard was blind.
    pub loop_gap: Series,
    /// Length of kernel calls that sent and did not sleep.
    pub enter: Series,
    /// T3w - T2 of sampled queries, from our send stamp to the kernel's.
    pub wire_tx: Series,
    /// T8 - T8w of sampled queries, from the kernel's stamp of the last byte to ours.
    pub wire_rx: Series,
    /// What the answers of an inference endpoint were like.
    pub answers: Answers,
    /// Length of TLS handshakes.
    pub tls: Series,
    /// Where the time went.
    pub breakdown: Breakdown,
    /// T1 of sampled positions.
    pub fit_dispatched: Vec<Instant>,
    /// T2 of sampled positions.
    pub fit_sent: Vec<Instant>,
    /// Schedule hash of the queries counted in `scheduled`.
    pub schedule_hash: u64,
    /// Queries in flight at `end_ns`.
    pub in_flight: u64,
    /// Most queries in flight at once.
    pub in_flight_max: u64,
    /// Queries that waited for a connection at `end_ns`.
    pub backlog: u64,
    /// Integral over the interval of the number of queries between T1 and their end, ns.
    pub area_ns: i128,
    /// Sum of the times from T1 to their end of the queries that ended, ns.
    pub residence_ns: i128,
    /// First send of a query of this phase; 0 if none.
    pub first_sent_ns: u64,
    /// Last completion (success) of a query of this phase; 0 if none.
    pub last_complete_ns: u64,
    /// Time in which the shard was at work or waited for its core, not asleep and not polling in
    /// vain, ns.
    pub busy_ns: u64,
    /// The margin that `hybrid` used at `end_ns`, ns.
    pub margin_ns: u64,
    /// Largest error of the mapping of a kernel stamp to our clock, ns.
    pub wire_error_ns: u64,
}

impl Recording {
    /// Every series, for what is done to all of them.
    fn series_mut(&mut self) -> [&mut Series; 14] {
        [
            &mut self.latency,
            &mut self.since_dispatch,
            &mut self.service,
            &mut self.ttfb,
            &mut self.lateness,
            &mut self.pool_wait,
            &mut self.censored,
            &mut self.connect,
            &mut self.wakeup,
            &mut self.loop_gap,
            &mut self.enter,
            &mut self.wire_tx,
            &mut self.wire_rx,
            &mut self.tls,
        ]
    }

    /// Forgets everything. Control's work, before it gives the box back: the histograms are large,
    /// and a shard has no time to spare.
    pub fn reset(&mut self) {
        self.series_mut().into_iter().for_each(Series::reset);
        self.answers.reset();
        self.statuses.reset();
        self.breakdown.reset();
        self.begin(0, 0);
    }

    /// Belongs to `phase` from `begin_ns` on. The box has been reset before.
    pub fn begin(&mut self, phase: u32, begin_ns: u64) {
        self.phase = phase;
        self.begin_ns = begin_ns;
        self.end_ns = begin_ns;
        self.counters = Counters::default();
        self.failures.reset();
        self.fit_dispatched.clear();
        self.fit_sent.clear();
        self.schedule_hash = 0;
        self.in_flight = 0;
        self.in_flight_max = 0;
        self.backlog = 0;
        self.area_ns = 0;
        self.residence_ns = 0;
        self.first_sent_ns = 0;
        self.last_complete_ns = 0;
        self.busy_ns = 0;
        self.margin_ns = 0;
        self.wire_error_ns = 0;
    }

    /// Enters a success into every series that its loop has. `answer`: the times of an inference
    /// answer.
    pub fn success(
        &mut self,
        stamps: &Stamps,
        answer: Option<&AnswerTimes>,
        goals: Option<&Goals>,
    ) {
        let &Stamps { scheduled_ns, dispatched_ns, ready_ns, sent_ns, first_byte_ns, complete_ns } =
            stamps;
        let is_open = scheduled_ns > 0;
        let service_ns = complete_ns.saturating_sub(sent_ns);
        let ttfb_ns = first_byte_ns.saturating_sub(sent_ns);
        let latency_ns = complete_ns.saturating_sub(stamps.origin_ns());
        self.counters.completed += 1;
        self.last_complete_ns = self.last_complete_ns.max(complete_ns);
        self.service.record(service_ns);
        self.ttfb.record(ttfb_ns);
        match goals.map(|goals| goals.kept(stamps, answer)) {
            Some(Some(true)) => self.counters.good += 1,
            Some(None) => self.counters.good_unknown += 1,
            Some(Some(false)) | None => {}
        }
        let is_in_order = sent_ns <= first_byte_ns && first_byte_ns <= complete_ns;
        self.counters.negative_intervals += u64::from(!is_in_order);
        if !is_open {
            return;
        }
        self.latency.record(latency_ns);
        self.since_dispatch.record(complete_ns.saturating_sub(dispatched_ns));
        let is_in_order =
            scheduled_ns <= dispatched_ns && dispatched_ns <= ready_ns && ready_ns <= sent_ns;
        self.counters.negative_intervals += u64::from(!is_in_order);
        let parts = Parts {
            count: 1,
            lateness_ns: dispatched_ns.saturating_sub(scheduled_ns),
            pool_wait_ns: ready_ns.saturating_sub(dispatched_ns),
            prepare_ns: sent_ns.saturating_sub(ready_ns),
            service_ns,
        };
        self.breakdown.record(latency_ns, &parts);
    }

    /// Makes room for the samples of the arrival fit.
    pub fn reserve_fit(&mut self) {
        self.fit_dispatched.reserve_exact(FIT_SAMPLES_LIMIT);
        self.fit_sent.reserve_exact(FIT_SAMPLES_LIMIT);
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
        let mut below = 0;
        let p99 = series.histogram.iter().find(|bucket| {
            below += bucket.count;
            below >= 99_000
        });
        let high = p99.expect("there are as many").high;
        assert!((99_000_000..=99_100_000).contains(&high), "{high}");
        assert_eq!(series.total, (1..=100_000u128).sum::<u128>() * 1000);
    }

    #[test]
    fn breakdown_buckets_are_ordered_and_at_most_a_sixteenth_wide() {
        let mut last = (0, 0);
        for latency_ns in
            (0..4096).chain((12..42).flat_map(|octave| {
                (0..64).map(move |step| (1u64 << octave) + (step << (octave - 6)))
            }))
        {
            let bucket = Breakdown::bucket(latency_ns);
            assert!(bucket >= last.0, "{latency_ns}");
            if bucket > last.0 {
                last = (bucket, latency_ns);
            }
            assert!(latency_ns - last.1 <= latency_ns / 16, "{latency_ns} and {} share", last.1);
        }
        assert_eq!(Breakdown::bucket(u64::MAX), BREAKDOWN_BUCKETS - 1);
    }

    #[test]
    fn parts_of_the_slow_ones_are_those_of_their_buckets() {
        let mut breakdown = Breakdown::default();
        for latency_ns in [100, 1000, 100_000] {
            let parts = Parts {
                count: 1,
                service_ns: latency_ns - 10,
                lateness_ns: 10,
                ..Parts::default()
            };
            breakdown.record(latency_ns, &parts);
        }
        assert_eq!(breakdown.all().total_ns(), 101_100);
        assert_eq!(breakdown.above(1000).count, 2);
        assert_eq!(breakdown.above(50_000).service_ns, 99_990);
        let mut sum = breakdown.clone();
        sum.add(&breakdown);
        assert_eq!(sum.all().count, 6);
        sum.reset();
        assert_eq!(sum.all(), Parts::default());
    }

    #[test]
    fn a_success_of_a_schedule_is_in_every_series_and_its_parts_add_up() {
        let mut recording = Recording::default();
        let stamps = Stamps {
            scheduled_ns: 1_000,
            dispatched_ns: 1_200,
            ready_ns: 1_700,
            sent_ns: 1_800,
            first_byte_ns: 5_000,
            complete_ns: 6_000,
        };
        let goals = Goals { latency_ns: 5_000, ..Goals::NONE };
        recording.success(&stamps, None, Some(&goals));
        recording.success(&stamps, None, Some(&Goals { latency_ns: 4_999, ..goals }));
        let totals = [&recording.latency, &recording.since_dispatch, &recording.service];
        assert_eq!(totals.map(|series| series.total), [10_000, 9_600, 8_400]);
        let parts = recording.breakdown.all();
        assert_eq!((parts.lateness_ns, parts.pool_wait_ns), (400, 1_000));
        assert_eq!((parts.prepare_ns, parts.total_ns()), (200, 10_000));
        assert_eq!((recording.counters.good, recording.counters.negative_intervals), (1, 0));
        recording.success(&Stamps { sent_ns: 1_600, ..stamps }, None, None);
        assert_eq!(recording.counters.negative_intervals, 1, "sent before it had a connection");
    }

    #[test]
    fn a_success_of_a_closed_loop_has_no_schedule() {
        let mut recording = Recording::default();
        recording.success(
            &Stamps {
                scheduled_ns: 0,
                dispatched_ns: 900,
                ready_ns: 0,
                sent_ns: 1_000,
                first_byte_ns: 2_000,
                complete_ns: 3_000,
            },
            None,
            Some(&Goals { latency_ns: 2_000, ..Goals::NONE }),
        );
        assert_eq!((recording.service.total, recording.latency.count()), (2_000, 0));
        assert_eq!((recording.counters.good, recording.counters.negative_intervals), (1, 0));
    }
}
