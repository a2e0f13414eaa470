//! Measured facts of a run, merged over shards and intervals; nothing derived. Written to
//! `final_snapshot.json`.

mod answers;
mod batches;
mod conditions;
mod distribution;
mod figure;
mod json;
mod sums;

use std::borrow::Cow;
use std::fs;

use loadgen_shards::clock::Calibrator;
use loadgen_shards::failure::Tally;
use loadgen_shards::phase::PhaseKind;
use loadgen_shards::reactor::EngineReport;
use loadgen_shards::recorder::{Counters, Recording};

use crate::request::secret::Secrets;

pub use answers::CountedOutput;
pub use answers::{Answers, InferenceFacts};
pub use batches::{Batch, Batches};
pub use conditions::{Conditions, STEAL_STEP_NS, Segments, Steal, StealMeter};
pub use distribution::{Bounded, Censored, Distribution, PERCENTILES, count_needed};
pub use figure::{Length, figure};
pub use json::{
    final_snapshot, git_sha, hash_text, in_unit, percentiles_json, phase_counters, pretty,
    run_counters, status_codes,
};
pub use sums::{LATENCY, Sums, TPOT, TTFT, headline, headline_ttft};

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
    /// Until when it was loaded, if the clock or a stop ended the issuing; 0 while live, and where
    /// the last request did.
    pub load_end_ns: u64,
    /// When the last shard ended it; 0 while it runs.
    pub end_ns: u64,
    /// Everything that adds up.
    pub sums: Sums,
    /// The phase in slices of time.
    pub batches: Batches,
    /// Queries neither complete, failed nor cancelled when the phase ended, as the shards counted
    /// them; while live, what [`PhaseTotals::add`] derives.
    pub in_flight_at_end: u64,
    /// First send, 0 if none.
    pub first_sent_ns: u64,
    /// Last completion, 0 if none.
    pub last_complete_ns: u64,
    /// Sum of the times that queries without an end had spent since T1 when the phase ended, ns;
    /// `None` until it has on all shards.
    pub survivors_ns: Option<i128>,
    /// How long after its start `--precision` was seen to be reached, ns; `None` if it was not, or
    /// not asked for.
    pub precise_after_ns: Option<u64>,
    /// Most queries in flight at once, by shard.
    pub in_flight_peaks: Vec<u64>,
    /// What the hypervisor took of the cores of shards and timer; empty until it has ended.
    pub steals: Vec<Steal>,
    /// What the host sent meanwhile, ours included; `None` until it has ended.
    pub segments: Option<Segments>,
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
    /// One word each for the shards' back end (they agree, or the first that differs is told in
    /// `reason`).
    pub engine: EngineReport,
    /// Cores of the shards, as pinned; `None` where a shard could not be pinned.
    pub cores: Vec<Option<usize>>,
    /// Clock facts.
    pub clock: ClockFacts,
    /// How the host runs its cores.
    pub conditions: Conditions,
    /// Connections open before the first phase.
    pub connections_open: u32,
    /// Phases in the order of the plan.
    pub phases: Vec<PhaseTotals>,
    /// What no message may show.
    pub secrets: Secrets,
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
    /// What reading it costs, ns.
    pub read_cost_ns: f64,
    /// How far the first calibration was from the rate of the whole run, less the error of the
    /// check, ppm.
    pub drift_ppm: Option<f64>,
    /// How far CLOCK_MONOTONIC went from CLOCK_MONOTONIC_RAW over the run, less the error of the
    /// check, ppm.
    pub raw_ppm: Option<f64>,
    /// How far the shards' clocks were apart before the first phase, ns; `None` with one shard.
    pub skew_ns: Option<u64>,
}

impl ClockFacts {
    /// Takes over what control has found out by now.
    pub fn note(&mut self, calibrator: &Calibrator) {
        self.error_ns_max = calibrator.error_ns_max();
        self.read_cost_ns = calibrator.read_cost_ns();
        self.drift_ppm = calibrator.drift_ppm();
        self.raw_ppm = calibrator.raw_ppm();
    }
}

/// What is known of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Release of the kernel; empty when unknown.
    pub kernel: String,
    /// Model of the CPU; empty when unknown.
    pub cpu_model: String,
    /// CPUs this process may use.
    pub cpus: usize,
}

impl Host {
    /// Asks the running kernel.
    pub fn read() -> Host {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')));
        Host {
            kernel: kernel.trim().to_owned(),
            cpu_model: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, |count| count.get()),
        }
    }
}

impl PhaseTotals {
    /// A phase of which nothing has been recorded yet.
    pub fn new(name: &str, kind: PhaseKind, start_ns: u64) -> PhaseTotals {
        PhaseTotals {
            name: name.to_owned(),
            kind,
            state: State::Initialize,
            start_ns,
            issue_end_ns: 0,
            load_end_ns: 0,
            end_ns: 0,
            sums: Sums::default(),
            batches: Batches::default(),
            in_flight_at_end: 0,
            first_sent_ns: 0,
            last_complete_ns: 0,
            survivors_ns: None,
            precise_after_ns: None,
            in_flight_peaks: Vec::new(),
            steals: Vec::new(),
            segments: None,
        }
    }

    /// A shard has had so many queries in flight at once.
    pub fn note_peak(&mut self, shard: usize, in_flight: u64) {
        if self.in_flight_peaks.len() <= shard {
            self.in_flight_peaks.resize(shard + 1, 0);
        }
        self.in_flight_peaks[shard] = self.in_flight_peaks[shard].max(in_flight);
    }

    /// Adds one interval of one shard.
    ///
    /// `in_flight_at_end` becomes what the counters leave over: right while the phase lives. At its
    /// end the session overwrites it with the sum of what the shards counted, so that
    /// [`check_conservation`] compares two sources.
    pub fn add(&mut self, recording: &Recording) {
        self.sums.add(recording);
        self.batches.add(recording, self.start_ns);
        self.first_sent_ns = earlier(self.first_sent_ns, recording.first_sent_ns);
        self.last_complete_ns = self.last_complete_ns.max(recording.last_complete_ns);
        let Counters { issued, completed, failed, cancelled, .. } = self.sums.counters;
        self.in_flight_at_end = issued.saturating_sub(completed + failed + cancelled);
    }

    /// From the start to the last completion, drain included; 0 without one. Load that went on
    /// after it counts: an endpoint that falls silent must not be divided by its good time alone.
    pub fn duration_ns(&self) -> u64 {
        match self.last_complete_ns {
            0 => 0,
            last => last.max(self.load_end_ns).saturating_sub(self.start_ns),
        }
    }

    /// From the start until the issuing ended, of which the drain is no part; 0 before.
    pub fn load_ns(&self) -> u64 {
        let end_ns = if self.load_end_ns > 0 { self.load_end_ns } else { self.issue_end_ns };
        end_ns.saturating_sub(self.start_ns)
    }

    /// From the first send to the last completion; 0 without one.
    pub fn window_ns(&self) -> u64 {
        match self.first_sent_ns {
            0 => 0,
            first => self.last_complete_ns.saturating_sub(first),
        }
    }
}

/// The conservation law, the figures that must agree with it, and Little's law as an identity.
/// `Err` says what does not add up.
pub fn check_conservation(phase: &PhaseTotals) -> Result<(), String> {
    check_accounts(phase)?;
    match little_residual_ns(phase) {
        None | Some(0) => Ok(()),
        Some(residual_ns) => Err(format!(
            "phase {}: the integral of the queries present and the sum of their times differ by \
             {residual_ns} ns",
            phase.name
        )),
    }
}

/// Little's law as an identity: the integral of the number of queries present is the sum of their
/// times. What is left over, ns; `None` while the phase goes on, as some are between two stamps.
pub fn little_residual_ns(phase: &PhaseTotals) -> Option<i128> {
    Some(phase.sums.area_ns - phase.sums.residence_ns - phase.survivors_ns?)
}

/// The conservation law, and the figures that must agree with it. `Err` says what does not add up.
pub fn check_accounts(phase: &PhaseTotals) -> Result<(), String> {
    let Counters { issued, completed, failed, cancelled, .. } = phase.sums.counters;
    let in_flight = phase.in_flight_at_end;
    let ended = completed + failed + cancelled;
    if issued != ended + in_flight {
        return Err(format!(
            "phase {}: issued {issued} is not completed {completed} + failed {failed} + \
             cancelled {cancelled} + in flight at the end {in_flight}",
            phase.name
        ));
    }
    // Holds at the end, not before: some wait.
    if phase.survivors_ns.is_some() {
        check_schedule(phase)?;
    }
    let recorded = phase.sums.service.count();
    if recorded != completed {
        return Err(format!(
            "phase {}: {recorded} latencies were recorded for {completed} completed queries",
            phase.name
        ));
    }
    let by_kind = phase.sums.failures.total();
    if by_kind != failed {
        return Err(format!(
            "phase {}: failures by kind sum to {by_kind}, not to {failed}",
            phase.name
        ));
    }
    Ok(())
}

fn check_schedule(phase: &PhaseTotals) -> Result<(), String> {
    let Counters { issued, scheduled, dropped, untaken, .. } = phase.sums.counters;
    if phase.sums.has_schedule() && scheduled != issued + dropped + untaken {
        return Err(format!(
            "phase {}: scheduled {scheduled} is not issued {issued} + dropped {dropped} + \
             untaken {untaken}",
            phase.name
        ));
    }
    let (latencies, completed) = (phase.sums.latency.count(), phase.sums.counters.completed);
    if phase.sums.has_schedule() && latencies != completed {
        return Err(format!(
            "phase {}: {latencies} latencies from the schedule were recorded for {completed} \
             completed queries",
            phase.name
        ));
    }
    Ok(())
}

/// Phases added up. One alone is only looked at: histograms are large, and this is asked for each
/// second on a core that a shard may need.
#[derive(Clone, Debug, Default)]
pub struct Totals<'a> {
    /// Everything that adds up.
    pub sums: Cow<'a, Sums>,
    /// Sum of [`PhaseTotals::duration_ns`].
    pub duration_ns: u64,
    /// Sum of [`PhaseTotals::window_ns`].
    pub window_ns: u64,
    /// Sum of [`PhaseTotals::load_ns`].
    pub load_ns: u64,
    /// Sum.
    pub in_flight_at_end: u64,
}

impl<'a> Totals<'a> {
    /// Adds up phases.
    pub fn of(phases: impl IntoIterator<Item = &'a PhaseTotals>) -> Totals<'a> {
        let mut phases = phases.into_iter();
        let Some(first) = phases.next() else { return Totals::default() };
        let mut totals = Totals {
            sums: Cow::Borrowed(&first.sums),
            duration_ns: first.duration_ns(),
            window_ns: first.window_ns(),
            load_ns: first.load_ns(),
            in_flight_at_end: first.in_flight_at_end,
        };
        for phase in phases {
            totals.sums.to_mut().merge(&phase.sums);
            totals.duration_ns += phase.duration_ns();
            totals.window_ns += phase.window_ns();
            totals.load_ns += phase.load_ns();
            totals.in_flight_at_end += phase.in_flight_at_end;
        }
        totals
    }

    /// Share of the shards' time at work; `None` while nothing is covered.
    pub fn utilisation(&self) -> Option<f64> {
        (self.sums.covered_ns > 0).then(|| self.sums.busy_ns as f64 / self.sums.covered_ns as f64)
    }

    /// Completed per second of the duration.
    pub fn qps(&self) -> Option<f64> {
        (self.duration_ns > 0)
            .then(|| self.sums.counters.completed as f64 * 1e9 / self.duration_ns as f64)
    }
}

impl Totals<'_> {
    /// Queries that fell due, per second of the load; `None` in closed loop, as for the others.
    pub fn scheduled_qps(&self) -> Option<f64> {
        self.per_second_of_load(self.sums.counters.scheduled)
    }

    /// Queries taken from the schedule, issued or dropped, per second of the load.
    pub fn offered_qps(&self) -> Option<f64> {
        self.per_second_of_load(self.sums.counters.issued + self.sums.counters.dropped)
    }

    /// Queries issued, per second of the load.
    pub fn accepted_qps(&self) -> Option<f64> {
        self.per_second_of_load(self.sums.counters.issued)
    }

    fn per_second_of_load(&self, count: u64) -> Option<f64> {
        let is_known = self.sums.has_schedule() && self.load_ns > 0;
        is_known.then(|| count as f64 * 1e9 / self.load_ns as f64)
    }
}

impl Snapshot {
    /// The phases that count.
    pub fn tracked(&self) -> impl Iterator<Item = &PhaseTotals> {
        self.phases.iter().filter(|phase| phase.kind == PhaseKind::Performance)
    }

    /// What the first failure of a kind said; for every screen and file. Secrets that the endpoint
    /// sent back are masked.
    pub fn first_message(&self, tally: &Tally) -> String {
        self.secrets.masked(tally.first_message.as_str())
    }

    /// Tracked queries without an end: while live those in flight, afterwards those that the drain
    /// left.
    pub fn pending(&self) -> u64 {
        self.tracked().map(|phase| phase.in_flight_at_end).sum()
    }

    /// Ended as planned, with every tracked query at its end.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete && self.pending() == 0
    }

    /// From the start of the first phase to the end of the last one, or to now while it runs; 0
    /// before.
    pub fn total_duration_ns(&self) -> u64 {
        let start = match self.phases.first() {
            Some(phase) if phase.start_ns > 0 => phase.start_ns,
            _ => return 0, // stopped before any phase began
        };
        let end = match self.phases.last() {
            Some(phase) if phase.end_ns > 0 => phase.end_ns,
            _ => self.timestamp_ns,
        };
        end.saturating_sub(start)
    }
}

/// The smaller of two instants, where 0 means none.
fn earlier(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        (a, b) => a.min(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{finished, recorded};

    #[test]
    fn intervals_add_up_to_a_phase() {
        let mut phase = PhaseTotals::new("performance", PhaseKind::Performance, 1_000_000_000);
        let mut first = recorded(10, 1);
        first.counters.issued += 4; // still in flight
        let mut later = recorded(3, 0);
        later.counters.issued -= 2; // answers to what the first interval had issued
        later.first_sent_ns = 2_000_000_000;
        later.last_complete_ns = 7_000_000_000;
        phase.add(&first);
        assert_eq!(phase.in_flight_at_end, 4);
        phase.add(&later);
        assert_eq!(phase.in_flight_at_end, 2);
        assert_eq!((phase.sums.counters.completed, phase.sums.service.count()), (13, 13));
        assert_eq!((phase.first_sent_ns, phase.last_complete_ns), (1_000_010_000, 7_000_000_000));
        assert_eq!((phase.duration_ns(), phase.window_ns()), (6_000_000_000, 5_999_990_000));
        assert_eq!((phase.sums.busy_ns, phase.sums.covered_ns), (4_000_000_000, 10_000_000_000));
    }

    #[test]
    fn conservation_holds_or_says_what_does_not_add_up() {
        type Spoil = fn(&mut PhaseTotals);
        let cases: [(Spoil, &str); 6] = [
            (|_| {}, ""),
            (|phase| phase.sums.counters.issued += 1, "issued 24 is not completed 20"),
            (|phase| phase.in_flight_at_end = 1, "in flight at the end 1"),
            (|phase| phase.sums.counters.cancelled += 1, "cancelled 1"),
            (|phase| phase.sums.service = Distribution::new(), "0 latencies were recorded for 20"),
            (
                |phase| phase.sums.failures = loadgen_shards::failure::Failures::default(),
                "failures by kind sum to 0, not to 3",
            ),
        ];
        for (spoil, message) in cases {
            let mut phase = finished(20, 3).phases.remove(0);
            spoil(&mut phase);
            match check_conservation(&phase) {
                Ok(()) => assert_eq!(message, ""),
                Err(text) => assert!(!message.is_empty() && text.contains(message), "{text}"),
            }
        }
    }

    #[test]
    fn load_that_goes_on_after_the_last_answer_is_part_of_the_duration() {
        let mut phase = finished(10, 0).phases.remove(0);
        phase.last_complete_ns = 2_000_000_000;
        for (load_end_ns, duration_ns) in
            [(0, 1_000_000_000), (1_500_000_000, 1_000_000_000), (6_000_000_000, 5_000_000_000)]
        {
            phase.load_end_ns = load_end_ns;
            assert_eq!(phase.duration_ns(), duration_ns);
        }
        phase.last_complete_ns = 0;
        assert_eq!(phase.duration_ns(), 0, "nothing to divide");
    }

    #[test]
    fn a_run_that_was_stopped_before_its_first_phase_has_no_duration() {
        let mut snapshot = finished(1, 0);
        assert_eq!(snapshot.total_duration_ns(), 5_001_000_000);
        snapshot.phases[0].start_ns = 0;
        assert_eq!(snapshot.total_duration_ns(), 0);
    }

    #[test]
    fn utilisation_is_of_the_time_that_recordings_cover() {
        let snapshot = finished(1, 0);
        let totals = Totals::of(&snapshot.phases);
        assert_eq!(totals.utilisation(), Some(0.4));
        assert_eq!(Totals::default().utilisation(), None);
    }

    #[test]
    fn an_instant_of_zero_is_none() {
        for (a, b, expected) in [(0, 0, 0), (0, 5, 5), (5, 0, 5), (7, 5, 5)] {
            assert_eq!(earlier(a, b), expected);
        }
    }

    #[test]
    fn this_host_has_a_kernel_and_a_cpu() {
        let host = Host::read();
        assert!(!host.kernel.is_empty());
        assert!(host.cpus >= 1);
    }
}
