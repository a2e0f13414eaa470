//! Whole phases in virtual time: exact, in no time, with a known answer for every request.

use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded, unbounded};
use rtrb::Consumer;

use super::{Link, Shard, ShardPlan};
use crate::answer::AnswerPlan;
use crate::clock::Calibration;
use crate::failure::{FailureKind, Failures};
use crate::order::{Order, SampleOrder};
use crate::phase::{
    Command, Live, Message, Pattern, PhaseKind, PhasePlan, Positions, Ready, Rest, Source,
    Timeouts, TimerPhase, Wait,
};
use crate::query::{Address, Request, RequestTable, Target};
use crate::reactor::{EngineChoice, Reactor};
use crate::record::RecordSink;
use crate::recorder::{Counters, Instant, Parts, Recording, Series};
use crate::schedule::{Arrival, hash_of};
use crate::sim::{Sim, SimEndpoint};
use crate::timer::Dispatch;

pub(super) const MS: u64 = 1_000_000;
/// Where the virtual clock begins.
pub(super) const BEGIN_NS: u64 = MS;

fn table() -> RequestTable {
    let address = Address::Inet(([127, 0, 0, 1], 1).into());
    RequestTable {
        arena: Arc::from(*b"GET / HTTP/1.1\r\n\r\n"),
        requests: Arc::from([Request::plain(0..18, 0, false)]),
        targets: Arc::from([Target::plain(address, None)]),
        answers: Arc::new(AnswerPlan::PLAIN),
    }
}

pub(super) fn shard_plan(in_flight: u32) -> ShardPlan {
    ShardPlan {
        index: 0,
        core: None,
        wait: Wait::Sleep,
        engine: EngineChoice::Auto,
        table: table(),
        slots_per_target: in_flight,
        connections_per_target: in_flight,
        timeouts: Timeouts::default(),
        keepalive: true,
        accept_status: (200, 299),
        goals: None,
        clock: Calibration::IDENTITY,
        wire_stamps: None,
    }
}

pub(super) fn phase(index: u32, in_flight: u32, requests: Option<u64>) -> PhasePlan {
    PhasePlan {
        index,
        kind: PhaseKind::Performance,
        pattern: Pattern::ClosedLoop {
            in_flight,
            positions: Arc::new(Positions::new(requests, 1)),
        },
        order: SampleOrder::new(Order::Sequential, 1, 0),
        start_ns: 0,
        duration_ns: None,
        drain_timeout_ns: u64::MAX,
        clock: Calibration::IDENTITY,
    }
}

/// One phase as control would add it up.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) counters: Counters,
    pub(super) failures: Failures,
    /// From the send.
    pub(super) latencies_ns: Vec<u64>,
    /// From the schedule.
    pub(super) headline_ns: Vec<u64>,
    pub(super) lateness_ns: Vec<u64>,
    pub(super) pool_wait_ns: Vec<u64>,
    /// The same, to the nanosecond.
    pub(super) headline: Sums,
    pub(super) service: Sums,
    pub(super) lateness: Sums,
    pub(super) pool_wait: Sums,
    pub(super) loop_gap: Sums,
    pub(super) censored: Sums,
    pub(super) parts: Parts,
    pub(super) schedule_hash: u64,
    pub(super) fit_dispatched: Vec<Instant>,
    pub(super) fit_sent: Vec<Instant>,
    area_ns: i128,
    residence_ns: i128,
    /// As planned; 0: at once.
    planned_ns: u64,
    pub(super) start_ns: u64,
    pub(super) issue_end_ns: u64,
    pub(super) end_ns: u64,
    pub(super) in_flight_at_end: u64,
    survivors_ns: i128,
}

/// What a series knows exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) count: u64,
    pub(super) total_ns: u128,
    pub(super) max_ns: u64,
}

impl Sums {
    fn add(&mut self, series: &Series) {
        self.count += series.count();
        self.total_ns += series.total;
        self.max_ns = self.max_ns.max(series.max);
    }

    /// Mean, ms.
    pub(super) fn mean_ms(&self) -> f64 {
        self.total_ns as f64 / self.count as f64 / 1e6
    }
}

/// All values of a series, ascending, within the bucket error.
fn values(series: &Series) -> impl Iterator<Item = u64> {
    let buckets = series.histogram.iter();
    buckets.flat_map(|bucket| std::iter::repeat_n(bucket.high, bucket.count as usize))
}

impl Totals {
    fn add(&mut self, recording: &Recording) {
        self.counters.add(&recording.counters);
        self.failures.add(&recording.failures);
        self.latencies_ns.extend(values(&recording.service));
        self.headline_ns.extend(values(&recording.latency));
        self.lateness_ns.extend(values(&recording.lateness));
        self.pool_wait_ns.extend(values(&recording.pool_wait));
        self.headline.add(&recording.latency);
        self.service.add(&recording.service);
        self.lateness.add(&recording.lateness);
        self.pool_wait.add(&recording.pool_wait);
        self.loop_gap.add(&recording.loop_gap);
        self.censored.add(&recording.censored);
        self.parts.add(&recording.breakdown.all());
        self.fit_dispatched.extend(&recording.fit_dispatched);
        self.fit_sent.extend(&recording.fit_sent);
        self.schedule_hash = self.schedule_hash.wrapping_add(recording.schedule_hash);
        self.area_ns += recording.area_ns;
        self.residence_ns += recording.residence_ns;
        assert_eq!(recording.service.count(), recording.counters.completed);
    }

    pub(super) fn assert_conserved(&self) {
        let Counters { issued, completed, failed, cancelled, .. } = self.counters;
        assert_eq!(self.counters.negative_intervals, 0, "stamps are in order");
        assert_eq!(issued, completed + failed + cancelled + self.in_flight_at_end);
        assert_eq!(failed, self.failures.total());
        assert_eq!(self.area_ns, self.residence_ns + self.survivors_ns, "Little's law");
        let Counters { scheduled, dropped, untaken, .. } = self.counters;
        if scheduled > 0 {
            assert_eq!(scheduled, issued + dropped + untaken);
        }
    }

    /// The entries that the shard left in its schedule, as control counts them.
    fn count_rest(&mut self, rest: impl Iterator<Item = Arrival>) {
        for arrival in rest {
            self.counters.scheduled += 1;
            self.counters.untaken += 1;
            self.schedule_hash = self.schedule_hash.wrapping_add(hash_of(arrival));
        }
    }

    /// Those that the timer kept, which does not know when the shard ended its issuing.
    fn count_kept(&mut self, rest: Rest) {
        let length_ns = self.issue_end_ns.saturating_sub(self.planned_ns);
        let kept = rest.pending.into_iter().chain(*rest.schedule);
        self.count_rest(kept.take_while(|arrival| arrival.offset_ns < length_ns));
    }

    /// Latencies, sorted, compared within the bucket error of 0.1 %.
    pub(super) fn assert_latencies_ms(&self, expected: &[f64]) {
        let ms: Vec<f64> = self.latencies_ns.iter().map(|&ns| ns as f64 / 1e6).collect();
        assert_eq!(ms.len(), expected.len(), "{ms:?}");
        for (is, should) in ms.iter().zip(expected) {
            assert!((is - should).abs() <= should * 0.001, "{ms:?}, expected {expected:?}");
        }
    }
}

/// Runs the phases to their end; `command`: a stop (false) or cancel (true) at a virtual instant.
pub(super) fn run(
    plan: ShardPlan,
    endpoint: SimEndpoint,
    phases: Vec<PhasePlan>,
    command: Option<(u64, bool)>,
) -> (Ready, Vec<Totals>) {
    let word = |is_cancel| if is_cancel { Command::Cancel } else { Command::Stop };
    let script = command.map(|(at_ns, is_cancel)| (at_ns, word(is_cancel)));
    Setup { script: script.into_iter().collect(), ..Setup::new(plan, endpoint, phases) }.run()
}

/// A run of one shard in virtual time.
pub(super) struct Setup {
    pub(super) plan: ShardPlan,
    pub(super) endpoint: SimEndpoint,
    pub(super) phases: Vec<PhasePlan>,
    /// What control says, and when.
    pub(super) script: Vec<(u64, Command)>,
    /// Recordings that control gives back, and no more.
    pub(super) spares: usize,
    pub(super) peers: Vec<Arc<Live>>,
    pub(super) dispatches: Option<Consumer<Dispatch>>,
    pub(super) records: Option<RecordSink>,
}

impl Setup {
    pub(super) fn new(plan: ShardPlan, endpoint: SimEndpoint, phases: Vec<PhasePlan>) -> Setup {
        let (script, peers) = (vec![], vec![]);
        let (dispatches, records) = (None, None);
        Setup { plan, endpoint, phases, script, spares: 8, peers, dispatches, records }
    }

    pub(super) fn run(self) -> (Ready, Vec<Totals>) {
        let (command_sender, commands) = unbounded();
        let (message_sender, messages) = unbounded();
        let (recycle, recycled) = bounded(self.spares);
        for _ in 0..self.spares {
            recycle.send((Box::default(), Calibration::IDENTITY)).expect("room");
        }
        let slots = self.plan.slots_per_target * self.plan.table.targets.len() as u32;
        let mut sim = Sim::new(slots, self.endpoint, command_sender.clone());
        for (at_ns, command) in self.script {
            sim.command_at(at_ns, command);
        }
        let planned = self.phases.iter().map(|phase| phase.start_ns);
        let mut totals: Vec<Totals> =
            planned.map(|planned_ns| Totals { planned_ns, ..Totals::default() }).collect();
        let timers: Vec<_> = self.phases.iter().map(timer_of).collect();
        for phase in self.phases {
            command_sender.send(Command::Phase(Box::new(phase))).expect("heard");
        }
        let link = Link {
            commands,
            messages: message_sender,
            recycled,
            live: Arc::default(),
            peers: self.peers,
            dispatches: self.dispatches,
            records: self.records,
        };
        Shard::new(self.plan, link, Reactor::Sim(Box::new(sim))).run();
        let ready = collect(&messages, &mut totals);
        for (totals, timer) in totals.iter_mut().zip(timers) {
            if let Some(rest) = timer.and_then(|timer| timer.take_rest()) {
                totals.count_kept(rest);
            }
            totals.assert_conserved();
        }
        (*ready, totals)
    }
}

/// What a timer core tells of the phase, if there is one.
fn timer_of(phase: &PhasePlan) -> Option<Arc<TimerPhase>> {
    match &phase.pattern {
        Pattern::OpenLoop { source: Source::Timer(shared), .. } => Some(Arc::clone(shared)),
        _ => None,
    }
}

fn collect(messages: &Receiver<Message>, totals: &mut [Totals]) -> Box<Ready> {
    let mut ready = None;
    let mut left = totals.len();
    while left > 0 || ready.is_none() {
        match messages.recv().expect("the shard lives") {
            Message::Ready(message) => ready = Some(message),
            Message::Interval { recording, .. } => {
                totals[recording.phase as usize].add(&recording);
            }
            Message::PhaseEnded {
                phase,
                start_ns,
                issue_end_ns,
                end_ns,
                in_flight_at_end,
                survivors_ns,
                rest,
                ..
            } => {
                let totals = &mut totals[phase as usize];
                totals.survivors_ns = survivors_ns;
                totals.start_ns = start_ns;
                totals.issue_end_ns = issue_end_ns;
                totals.end_ns = end_ns;
                totals.in_flight_at_end = in_flight_at_end;
                totals.count_rest(rest.into_iter().flat_map(|rest| *rest.schedule));
                left -= 1;
            }
            Message::Refused { reason, .. } => panic!("{reason}"),
            Message::Exited { .. } => break,
        }
    }
    ready.expect("told before any phase")
}

#[test]
fn closed_loop_follows_the_lindley_recursion() {
    // Two in flight, one server, S = 3, 1, 2, 4 ms. Arrivals 0, 0, 3, 4; departures 3, 4, 6, 10.
    let endpoint = SimEndpoint {
        service_ns: vec![3 * MS, MS, 2 * MS, 4 * MS],
        servers: 1,
        ..SimEndpoint::default()
    };
    let (_, totals) = run(shard_plan(2), endpoint, vec![phase(0, 2, Some(4))], None);
    totals[0].assert_latencies_ms(&[3.0, 3.0, 4.0, 6.0]);
    assert_eq!(totals[0].end_ns - totals[0].start_ns, 10 * MS);
}

#[test]
fn handshakes_are_in_no_latency() {
    let endpoint = SimEndpoint { connect_ns: 40 * MS, ..SimEndpoint::default() };
    let plan = ShardPlan { keepalive: false, ..shard_plan(1) };
    let (ready, totals) = run(plan, endpoint, vec![phase(0, 1, Some(3))], None);
    assert_eq!(ready.connections_open, 1);
    totals[0].assert_latencies_ms(&[1.0, 1.0, 1.0]);
    // The first connection was open before; the other two handshakes lie between the requests.
    assert_eq!(totals[0].end_ns - totals[0].start_ns, (3 + 2 * 40) * MS);
    assert_eq!(totals[0].counters.connections_opened, 3);
}

#[test]
fn duration_ends_the_issue_and_the_drain_awaits_the_rest() {
    let endpoint = SimEndpoint { service_ns: vec![30 * MS], ..SimEndpoint::default() };
    let plan = PhasePlan { duration_ns: Some(100 * MS), ..phase(0, 4, None) };
    let (_, totals) = run(shard_plan(4), endpoint, vec![plan], None);
    // Rounds begin at 0, 30, 60 and 90 ms; the last one is answered after the end of the issue.
    assert_eq!(totals[0].counters.completed, 16);
    assert_eq!(totals[0].end_ns - totals[0].start_ns, 120 * MS);
}

#[test]
fn drain_timeout_leaves_the_rest_in_flight_at_end() {
    let endpoint = SimEndpoint { answers: 5, ..SimEndpoint::default() };
    let plan = PhasePlan { drain_timeout_ns: 50 * MS, ..phase(0, 4, Some(8)) };
    let (_, totals) = run(shard_plan(4), endpoint, vec![plan], None);
    assert_eq!(totals[0].counters.completed, 5);
    assert_eq!(totals[0].in_flight_at_end, 3);
}

#[test]
fn undrained_phase_joins_the_next_without_a_gap_and_counts_against_its_cap() {
    let endpoint = SimEndpoint { service_ns: vec![30 * MS], ..SimEndpoint::default() };
    let warmup = PhasePlan {
        start_ns: BEGIN_NS,
        duration_ns: Some(100 * MS),
        drain_timeout_ns: 0,
        ..phase(0, 4, None)
    };
    let main = PhasePlan { start_ns: BEGIN_NS + 100 * MS, ..phase(1, 4, Some(8)) };
    let (_, totals) = run(shard_plan(4), endpoint, vec![warmup, main], None);
    assert_eq!((totals[0].counters.completed, totals[0].in_flight_at_end), (12, 4));
    assert_eq!(totals[0].end_ns, totals[1].start_ns);
    // The four left over are answered at 120 ms; only then is there a credit for the first of the
    // eight.
    assert_eq!(totals[1].counters.carried_in, 4);
    totals[1].assert_latencies_ms(&[30.0; 8]);
    assert_eq!(totals[1].end_ns - totals[1].start_ns, (20 + 60) * MS);
}

#[test]
fn request_timeout_fails_the_query_and_opens_a_new_connection() {
    let endpoint = SimEndpoint { answers: 2, ..SimEndpoint::default() };
    let timeouts = Timeouts { request_ns: 20 * MS, ..Timeouts::default() };
    let plan = ShardPlan { timeouts, ..shard_plan(1) };
    let (_, totals) = run(plan, endpoint, vec![phase(0, 1, Some(4))], None);
    assert_eq!((totals[0].counters.completed, totals[0].counters.failed), (2, 2));
    assert_eq!(totals[0].failures.tally(FailureKind::RequestTimeout).count, 2);
    let length_ns = totals[0].end_ns - totals[0].start_ns;
    assert!((42 * MS..=45 * MS).contains(&length_ns), "at most a tick late each: {length_ns}");
}

#[test]
fn full_backlog_is_waited_for_as_long_as_a_handshake_may_take() {
    // A unix socket says EAGAIN where TCP would let the client wait.
    let endpoint = SimEndpoint { connect_errno: libc::EAGAIN, ..SimEndpoint::default() };
    let timeouts = Timeouts { connect_ns: 50 * MS, ..Timeouts::default() };
    let plan = ShardPlan { timeouts, ..shard_plan(1) };
    let (_, totals) = run(plan, endpoint, vec![phase(0, 1, Some(1))], None);
    assert_eq!(totals[0].failures.tally(FailureKind::ConnectError).count, 1);
    let length_ns = totals[0].end_ns - totals[0].start_ns;
    // Negative control: without the wait the one attempt would have failed at once.
    assert!((50 * MS..=130 * MS).contains(&length_ns), "{length_ns}");
}

#[test]
fn refused_handshakes_back_off_and_are_counted() {
    let endpoint = SimEndpoint { connect_errno: libc::ECONNREFUSED, ..SimEndpoint::default() };
    let plan = PhasePlan { duration_ns: Some(1000 * MS), ..phase(0, 1, None) };
    let (ready, totals) = run(shard_plan(1), endpoint, vec![plan], None);
    assert_eq!(ready.failures.tally(FailureKind::ConnectRefused).count, 1);
    assert_eq!(ready.connections_open, 0);
    // Pauses of 2, 4, ... 256, 256 ms: few attempts, not thousands.
    let failed = totals[0].counters.failed;
    assert!((8..=12).contains(&failed), "{failed}");
    assert_eq!(totals[0].failures.tally(FailureKind::ConnectRefused).count, failed);
}

#[test]
fn reused_connection_found_closed_is_retried_once_and_never_a_failure() {
    let endpoint = SimEndpoint { closes_after: 1, ..SimEndpoint::default() };
    let (_, totals) = run(shard_plan(1), endpoint, vec![phase(0, 1, Some(5))], None);
    let counters = totals[0].counters;
    assert_eq!((counters.completed, counters.failed), (5, 0));
    assert_eq!((counters.retries, counters.connections_reused_stale), (4, 4));
    assert_eq!(counters.connections_opened, 5);
}

#[test]
fn stop_drains_and_cancel_does_not() {
    let slow = SimEndpoint { service_ns: vec![30 * MS], ..SimEndpoint::default() };
    let stop = Some((BEGIN_NS + 45 * MS, false));
    let (_, totals) = run(shard_plan(2), slow.clone(), vec![phase(0, 2, None)], stop);
    assert_eq!((totals[0].counters.completed, totals[0].counters.cancelled), (4, 0));
    assert_eq!(totals[0].end_ns, BEGIN_NS + 60 * MS);
    let cancel = Some((BEGIN_NS + 45 * MS, true));
    let phases = vec![phase(0, 2, None), phase(1, 2, None)];
    let (_, totals) = run(shard_plan(2), slow, phases, cancel);
    assert_eq!((totals[0].counters.completed, totals[0].counters.cancelled), (2, 2));
    assert_eq!(totals[0].end_ns, BEGIN_NS + 45 * MS);
    assert_eq!((totals[1].start_ns, totals[1].counters.issued), (0, 0), "never begun");
}

#[test]
fn status_that_is_not_accepted_is_a_failure_with_its_body() {
    let response = b"HTTP/1.1 503 Busy\r\nContent-Length: 10\r\n\r\noverloaded".to_vec();
    let endpoint = SimEndpoint { response, ..SimEndpoint::default() };
    let (_, totals) = run(shard_plan(1), endpoint, vec![phase(0, 1, Some(3))], None);
    let tally = totals[0].failures.tally(FailureKind::Status);
    assert_eq!((tally.count, tally.first_message.as_str()), (3, "503 overloaded"));
    assert_eq!(totals[0].counters.connections_opened, 1, "the connection is kept");
}

#[test]
fn exit_ends_a_sleeping_shard_at_once() {
    for engine in [EngineChoice::Auto, EngineChoice::Epoll] {
        let (command_sender, commands) = unbounded();
        let (message_sender, messages) = unbounded();
        let (_recycle, recycled) = unbounded();
        let link = Link {
            commands,
            messages: message_sender,
            recycled,
            live: Arc::default(),
            peers: vec![],
            dispatches: None,
            records: None,
        };
        let plan = ShardPlan { engine, connections_per_target: 0, ..shard_plan(1) };
        let thread = super::spawn(plan, link).expect("a thread");
        let patience = std::time::Duration::from_secs(5);
        let ready = match messages.recv_timeout(patience).expect("the shard speaks") {
            Message::Ready(ready) => ready,
            message => panic!("{message:?}"),
        };
        // Long enough for it to fall asleep: nothing is due, ever.
        std::thread::sleep(std::time::Duration::from_millis(50));
        command_sender.send(Command::Exit).expect("heard");
        ready.waker.wake();
        let message = messages.recv_timeout(patience).expect("one wake-up is enough");
        assert!(matches!(message, Message::Exited { .. }), "{message:?}");
        thread.join().expect("in good order");
    }
}

#[test]
fn resent_request_still_times_out() {
    // The second request finds its connection closed; sent again, it gets no answer.
    let closes =
        SimEndpoint { closes_after: 1, close_ns: MS, answers: 1, ..SimEndpoint::default() };
    // First sent at 1 ms, again at 2 ms or when the handshake is over.
    let request = Timeouts { request_ns: 20 * MS, ..Timeouts::default() };
    let ttft = Timeouts { ttft_ns: 20 * MS, ..Timeouts::default() };
    let idle = Timeouts { idle_ns: 20 * MS, ..Timeouts::default() };
    for (timeouts, connect_ns, kind, due_ns) in [
        (ttft, 0, FailureKind::RequestTimeout, 21 * MS),
        (ttft, 40 * MS, FailureKind::RequestTimeout, 42 * MS),
        (request, 0, FailureKind::RequestTimeout, 21 * MS),
        (request, 40 * MS, FailureKind::RequestTimeout, 42 * MS),
        (idle, 0, FailureKind::IdleTimeout, 22 * MS),
        (idle, 40 * MS, FailureKind::IdleTimeout, 62 * MS),
    ] {
        let endpoint = SimEndpoint { connect_ns, ..closes.clone() };
        let plan = ShardPlan { timeouts, ..shard_plan(1) };
        let phase = PhasePlan { drain_timeout_ns: 100 * MS, ..phase(0, 1, Some(2)) };
        let (_, totals) = run(plan, endpoint, vec![phase], None);
        assert_eq!((totals[0].counters.completed, totals[0].counters.retries), (1, 1));
        assert_eq!(totals[0].failures.tally(kind).count, 1, "{kind:?}");
        let length_ns = totals[0].end_ns - totals[0].start_ns;
        assert!((due_ns..=due_ns + MS).contains(&length_ns), "{kind:?}: {length_ns}");
    }
}

#[test]
fn control_that_is_late_makes_longer_intervals_and_no_idle_turns() {
    let endpoint = SimEndpoint { service_ns: vec![2000 * MS], ..SimEndpoint::default() };
    let phases = vec![phase(0, 1, Some(2))];
    let setup = Setup { spares: 0, ..Setup::new(shard_plan(1), endpoint, phases) };
    let (_, totals) = setup.run();
    totals[0].assert_latencies_ms(&[2000.0; 2]);
}

#[test]
fn drain_begins_when_the_last_position_is_issued() {
    let endpoint = SimEndpoint { answers: 0, ..SimEndpoint::default() };
    // It begins by the clock, so that no command makes the loop go round once more.
    let start_ns = BEGIN_NS + 10 * MS;
    let plan = PhasePlan { start_ns, drain_timeout_ns: 50 * MS, ..phase(0, 4, Some(4)) };
    let (_, totals) = run(shard_plan(4), endpoint, vec![plan], None);
    assert_eq!(totals[0].in_flight_at_end, 4);
    assert_eq!(totals[0].end_ns - totals[0].start_ns, 50 * MS);
}

#[test]
fn answer_that_was_there_before_its_request_is_none() {
    let endpoint = SimEndpoint { stutters: true, ..SimEndpoint::default() };
    let (_, totals) = run(shard_plan(1), endpoint, vec![phase(0, 1, Some(4))], None);
    totals[0].assert_latencies_ms(&[1.0; 4]);
    let counters = totals[0].counters;
    assert_eq!((counters.retries, counters.connections_reused_stale), (3, 3));
}

#[test]
fn each_refused_response_keeps_its_own_body() {
    // The second begins while the first has only a part of its body, and is the first of its phase.
    let endpoint = SimEndpoint {
        response: b"HTTP/1.1 503 Busy\r\nContent-Length: 10\r\n\r\nover".to_vec(),
        later: vec![(5 * MS, b"loaded".to_vec())],
        ..SimEndpoint::default()
    };
    let warmup = PhasePlan {
        start_ns: BEGIN_NS,
        duration_ns: Some(1_500_000),
        drain_timeout_ns: 0,
        ..phase(0, 1, None)
    };
    let main = PhasePlan { start_ns: BEGIN_NS + 1_500_000, ..phase(1, 2, Some(1)) };
    let (_, totals) = run(shard_plan(2), endpoint, vec![warmup, main], None);
    assert_eq!((totals[0].in_flight_at_end, totals[1].counters.carried_in), (1, 1));
    let tally = totals[1].failures.tally(FailureKind::Status);
    assert_eq!((tally.count, tally.first_message.as_str()), (1, "503 over"));
}

#[test]
fn ttft_timeout_of_plain_http_is_a_limit_of_the_first_byte() {
    let endpoint = SimEndpoint {
        service_ns: vec![10 * MS],
        response: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no".to_vec(),
        later: vec![(40 * MS, b"k".to_vec())],
        ..SimEndpoint::default()
    };
    let run = |endpoint: &SimEndpoint, ttft_ns| {
        let timeouts = Timeouts { ttft_ns, ..Timeouts::default() };
        let plan = ShardPlan { timeouts, ..shard_plan(1) };
        run(plan, endpoint.clone(), vec![phase(0, 1, Some(2))], None).1.remove(0)
    };
    run(&endpoint, 11 * MS).assert_latencies_ms(&[50.0; 2]);
    let totals = run(&endpoint, 9 * MS);
    let tally = totals.failures.tally(FailureKind::RequestTimeout);
    assert_eq!((tally.count, tally.first_message.as_str()), (2, "no byte within --ttft-timeout"));
    // An interim response is none.
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec();
    let later = vec![(10 * MS, endpoint.response.clone()), (20 * MS, b"k".to_vec())];
    let endpoint = SimEndpoint { response: interim, later, ..endpoint };
    assert_eq!(run(&endpoint, 15 * MS).counters.failed, 2);
    assert_eq!(run(&endpoint, 21 * MS).counters.failed, 0);
}

#[test]
fn answer_before_the_request_left_has_a_send_to_count_from() {
    let endpoint = SimEndpoint { greets: true, ..SimEndpoint::default() };
    let plan = ShardPlan { keepalive: false, connections_per_target: 0, ..shard_plan(1) };
    let (_, totals) = run(plan, endpoint, vec![phase(0, 1, Some(3))], None);
    assert_eq!((totals[0].service.count, totals[0].service.max_ns), (3, 0));
}
