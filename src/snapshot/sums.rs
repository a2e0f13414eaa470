//! Everything that adds up: over shards, intervals and phases.

use loadgen_shards::failure::Failures;
use loadgen_shards::recorder::{Breakdown, Counters, Instant, Recording, Series, StatusTable};

use super::{Answers, Censored, Distribution};

/// Sums of recordings. Series are of completed queries unless they say otherwise; those that need
/// a schedule are empty in closed loop.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// The plan has a schedule, though nothing may have been due.
    pub is_open: bool,
    /// Integers.
    pub counters: Counters,
    /// By kind, with the first message of the first that had one.
    pub failures: Failures,
    /// By status.
    pub statuses: StatusTable,
    /// T8 - T0, from the schedule.
    pub latency: Distribution,
    /// T8 - T1: latency without our lateness.
    pub since_dispatch: Distribution,
    /// T8 - T2, from the send.
    pub service: Distribution,
    /// T4 - T2, from the send to the first byte.
    pub ttfb: Distribution,
    /// T1 - T0 of every query taken from the schedule.
    pub lateness: Distribution,
    /// T1p - T1 of every issued query of the schedule.
    pub pool_wait: Distribution,
    /// What queries had taken when they timed out.
    pub censored: Distribution,
    /// Of the connections opened.
    pub connect: Distribution,
    /// How late timed sleeps ended.
    pub wakeup: Distribution,
    /// How long shards were blind between two kernel calls.
    pub loop_gap: Distribution,
    /// How long kernel calls that sent took.
    pub enter: Distribution,
    /// T3w - T2 of sampled queries, from our send stamp to the kernel's.
    pub wire_tx: Distribution,
    /// T8 - T8w of sampled queries, from the kernel's stamp of the last byte to ours.
    pub wire_rx: Distribution,
    /// Of the answers of an inference endpoint; `None` while none was read.
    pub answers: Option<Box<Answers>>,
    /// Length of TLS handshakes.
    pub tls: Distribution,
    /// Where the time went, by latency.
    pub breakdown: Breakdown,
    /// T1 of sampled positions, in no order.
    pub fit_dispatched: Vec<Instant>,
    /// T2 of sampled positions, in no order.
    pub fit_sent: Vec<Instant>,
    /// Of the queries counted as scheduled.
    pub schedule_hash: u64,
    /// Integral of the number of queries between T1 and their end, ns.
    pub area_ns: i128,
    /// Sum of the times from T1 to the end of the queries that ended, ns.
    pub residence_ns: i128,
    /// The largest margin that a shard used, ns.
    pub margin_ns: u64,
    /// Largest error of the mapping of a kernel stamp to our clock, ns.
    pub wire_error_ns: u64,
    /// Time at work, summed over shards, ns.
    pub busy_ns: u64,
    /// Shards x time that the recordings cover, ns: `busy_ns` / this is the client's utilisation.
    pub covered_ns: u64,
}

impl Sums {
    /// Adds one interval of one shard.
    pub fn add(&mut self, recording: &Recording) {
        self.counters.add(&recording.counters);
        self.failures.add(&recording.failures);
        self.statuses.add(&recording.statuses);
        self.latency.add(&recording.latency);
        self.since_dispatch.add(&recording.since_dispatch);
        self.service.add(&recording.service);
        self.ttfb.add(&recording.ttfb);
        self.lateness.add(&recording.lateness);
        self.pool_wait.add(&recording.pool_wait);
        self.censored.add(&recording.censored);
        self.connect.add(&recording.connect);
        self.wakeup.add(&recording.wakeup);
        self.loop_gap.add(&recording.loop_gap);
        self.enter.add(&recording.enter);
        self.wire_tx.add(&recording.wire_tx);
        self.wire_rx.add(&recording.wire_rx);
        if recording.counters.answers > 0 {
            self.answers.get_or_insert_default().add(&recording.answers);
        }
        self.tls.add(&recording.tls);
        self.breakdown.add(&recording.breakdown);
        keep(&mut self.fit_dispatched, &recording.fit_dispatched);
        keep(&mut self.fit_sent, &recording.fit_sent);
        self.schedule_hash = self.schedule_hash.wrapping_add(recording.schedule_hash);
        self.area_ns += recording.area_ns;
        self.residence_ns += recording.residence_ns;
        self.margin_ns = self.margin_ns.max(recording.margin_ns);
        self.wire_error_ns = self.wire_error_ns.max(recording.wire_error_ns);
        self.busy_ns += recording.busy_ns;
        self.covered_ns += recording.end_ns.saturating_sub(recording.begin_ns);
    }

    /// Adds the sums of another phase.
    pub fn merge(&mut self, other: &Sums) {
        self.is_open |= other.is_open;
        self.counters.add(&other.counters);
        self.failures.add(&other.failures);
        self.statuses.add(&other.statuses);
        self.latency.merge(&other.latency);
        self.since_dispatch.merge(&other.since_dispatch);
        self.service.merge(&other.service);
        self.ttfb.merge(&other.ttfb);
        self.lateness.merge(&other.lateness);
        self.pool_wait.merge(&other.pool_wait);
        self.censored.merge(&other.censored);
        self.connect.merge(&other.connect);
        self.wakeup.merge(&other.wakeup);
        self.loop_gap.merge(&other.loop_gap);
        self.enter.merge(&other.enter);
        self.wire_tx.merge(&other.wire_tx);
        self.wire_rx.merge(&other.wire_rx);
        if let Some(more) = &other.answers {
            self.answers.get_or_insert_default().merge(more);
        }
        self.tls.merge(&other.tls);
        self.breakdown.add(&other.breakdown);
        self.schedule_hash = self.schedule_hash.wrapping_add(other.schedule_hash);
        self.area_ns += other.area_ns;
        self.residence_ns += other.residence_ns;
        self.margin_ns = self.margin_ns.max(other.margin_ns);
        self.wire_error_ns = self.wire_error_ns.max(other.wire_error_ns);
        self.busy_ns += other.busy_ns;
        self.covered_ns += other.covered_ns;
    }

    /// Whether queries were due at instants: the loop was open.
    pub fn has_schedule(&self) -> bool {
        self.is_open || self.counters.scheduled > 0
    }

    /// Whether kernel stamps were asked for.
    pub fn has_wire_stamps(&self) -> bool {
        self.counters.wire_stamps_wanted > 0
    }

    /// The headline latency: from the schedule where there is one, else from the send.
    pub fn headline(&self) -> &Distribution {
        if self.has_schedule() { &self.latency } else { &self.service }
    }

    /// The distributions that have a file of their own, with their names there: the headline
    /// latency, and of streams the headline TTFT and the TPOT.
    pub fn spectra(&self) -> Vec<(&'static str, &Distribution)> {
        let mut list = vec![(LATENCY, self.headline())];
        list.extend(self.ttft().filter(|series| !series.is_empty()).map(|ttft| (TTFT, ttft)));
        let tpot = self.answers.as_ref().map(|answers| &answers.tpot);
        list.extend(tpot.filter(|series| !series.is_empty()).map(|tpot| (TPOT, tpot)));
        list
    }

    /// The headline latency with the queries that timed out, for percentiles.
    pub fn headline_with_timeouts(&self) -> Censored {
        self.headline().with_bounds(&self.censored)
    }
}

/// Names of the distributions that have files of their own.
pub const LATENCY: &str = "latency";
/// See [`LATENCY`].
pub const TTFT: &str = "ttft";
/// See [`LATENCY`].
pub const TPOT: &str = "tpot";

/// The headline time to the first token of one recording.
pub fn headline_ttft(recording: &Recording) -> &Series {
    let answers = &recording.answers;
    let is_open = recording.counters.scheduled > 0 || !answers.ttft.histogram.is_empty();
    if is_open { &answers.ttft } else { &answers.service_ttft }
}

/// The headline latency of one recording: from the schedule where there is one.
pub fn headline(recording: &Recording) -> &Series {
    let is_open = recording.counters.scheduled > 0 || !recording.latency.histogram.is_empty();
    if is_open { &recording.latency } else { &recording.service }
}

/// Instants of a phase are kept up to a limit; the shards sample, so that it is seldom reached.
fn keep(kept: &mut Vec<Instant>, more: &[Instant]) {
    let room = FIT_INSTANTS_LIMIT.saturating_sub(kept.len());
    kept.extend_from_slice(&more[..room.min(more.len())]);
}

/// Twice the blocks that are aimed at.
const FIT_INSTANTS_LIMIT: usize = 20_480;
