//! The same phases with a timer core: the instants come through the dispatch ring.

use crossbeam_channel::unbounded;
use rtrb::{Consumer, RingBuffer};

use super::*;
use crate::phase::{Command, Message, Rest, TimerPhase};
use crate::reactor::Reactor;
use crate::recorder::Counters;
use crate::schedule::hash_of;
use crate::shard::tests::Setup;
use crate::shard::{Link, Shard};
use crate::sim::Sim;
use crate::timer::Dispatch;

/// Puts whole lists into a ring, ahead of time, as if the timer core had; a shard that is not due
/// yet must wait for its own clock.
fn ring(lists: &[(u32, &SchedulePlan)]) -> Consumer<Dispatch> {
    let (mut producer, consumer) = RingBuffer::new(100_000);
    for &(phase, schedule) in lists {
        for arrival in Schedule::new(schedule) {
            producer.push(Dispatch { arrival, phase }).expect("room");
        }
    }
    consumer
}

/// The phase, fed by a timer that has ended.
fn timed(plan: &PhasePlan) -> PhasePlan {
    let shared = TimerPhase::default();
    let mut plan = plan.clone();
    let Pattern::OpenLoop { source, .. } = &mut plan.pattern else { panic!("open loop") };
    let Source::Own(schedule) = source else { panic!("not yet timed") };
    let mut schedule = schedule.clone();
    schedule.by_ref().for_each(drop);
    shared.end(Rest { pending: None, schedule });
    *source = Source::Timer(Arc::new(shared));
    plan
}

#[test]
fn timer_core_changes_no_number() {
    let warmup = poisson(2000.0, None, Some(100 * MS));
    let main = SchedulePlan { stream: 1, ..poisson(1000.0, Some(2000), None) };
    let first = PhasePlan { drain_timeout_ns: 0, ..open(&warmup, Overload::Queue) };
    let second =
        PhasePlan { index: 1, start_ns: START_NS + 100 * MS, ..open(&main, Overload::Queue) };
    let endpoint = SimEndpoint {
        service_ns: (0..4000).map(|i| MS / 2 + i % 7 * MS).collect(),
        ..SimEndpoint::default()
    };
    for connections in [64, 4] {
        let plan = shard_plan(connections);
        let phases = vec![first.clone(), second.clone()];
        let (_, own) = run(plan.clone(), endpoint.clone(), phases, None);
        let setup = Setup {
            dispatches: Some(ring(&[(0, &warmup), (1, &main)])),
            ..Setup::new(plan, endpoint.clone(), vec![timed(&first), timed(&second)])
        };
        let (_, through) = setup.run();
        for (own, through) in own.iter().zip(&through) {
            assert!(own.counters.scheduled > 0);
            assert_eq!(without_host(own.counters), without_host(through.counters));
            assert_eq!(own.schedule_hash, through.schedule_hash);
            assert_eq!(own.headline, through.headline);
            assert_eq!(own.headline_ns, through.headline_ns);
            assert_eq!(own.parts, through.parts);
            assert_eq!(own.lateness, through.lateness);
        }
    }
}

/// Without what the host says of the thread.
fn without_host(counters: Counters) -> Counters {
    Counters { involuntary_switches: 0, major_faults: 0, run_delay_ns: 0, ..counters }
}

#[test]
fn shard_that_spins_takes_each_entry_at_its_instant() {
    let schedule = poisson(2000.0, Some(100), None);
    let plan = ShardPlan { wait: Wait::Spin, ..shard_plan(16) };
    let endpoint = SimEndpoint { turn_ns: 300, ..SimEndpoint::default() };
    let phases = vec![timed(&open(&schedule, Overload::Queue))];
    let setup = Setup {
        dispatches: Some(ring(&[(0, &schedule)])),
        script: vec![(START_NS + 200 * MS, Command::Exit)],
        ..Setup::new(plan, endpoint, phases)
    };
    let (_, totals) = setup.run();
    assert_eq!(totals[0].counters.completed, 100);
    assert!(totals[0].lateness.max_ns <= 300, "{:?}", totals[0].lateness);
}

#[test]
fn end_told_by_control_leaves_the_rest_of_the_ring_and_of_the_timer() {
    // The timer has dispatched what was due before 60 ms, and keeps the others.
    let schedule = constant(1000.0, Some(200), None);
    let (mut producer, consumer) = RingBuffer::new(100);
    let mut list = Box::new(Schedule::new(&schedule));
    for arrival in list.by_ref().take(60) {
        producer.push(Dispatch { arrival, phase: 0 }).expect("room");
    }
    let shared = TimerPhase::default();
    shared.end(Rest { pending: list.next(), schedule: list });
    let mut phase = open(&schedule, Overload::Queue);
    phase.duration_ns = Some(10 * SECOND);
    if let Pattern::OpenLoop { source, .. } = &mut phase.pattern {
        *source = Source::Timer(Arc::new(shared));
    }
    let at_ns = START_NS + 80 * MS;
    let setup = Setup {
        dispatches: Some(consumer),
        script: vec![(START_NS + 10 * MS, Command::EndAt { phase: 0, at_ns })],
        ..Setup::new(shard_plan(8), SimEndpoint::default(), vec![phase])
    };
    let (_, totals) = setup.run();
    let counters = totals[0].counters;
    assert_eq!((counters.scheduled, counters.issued, counters.untaken), (80, 60, 20));
}

#[test]
fn phase_ends_only_when_the_timer_has_let_go_of_it() {
    // Step by step: the phase is over, without a drain, while its last entry is on the way.
    let (mut producer, consumer) = RingBuffer::new(8);
    let (_commands, commands) = unbounded();
    let (sender, messages) = unbounded();
    let (_recycle, recycled) = unbounded();
    let link = Link {
        commands,
        messages: sender,
        recycled,
        live: Arc::default(),
        peers: vec![],
        dispatches: Some(consumer),
        records: None,
    };
    let sim = Sim::new(1, SimEndpoint::default(), unbounded().0);
    let mut shard = Shard::new(shard_plan(1), link, Reactor::Sim(Box::new(sim)));
    shard.is_ready = true;
    let shared = Arc::new(TimerPhase::default());
    let schedule = constant(1.0, Some(1), None);
    let mut plan = open(&schedule, Overload::Queue);
    (plan.start_ns, plan.duration_ns, plan.drain_timeout_ns) = (BEGIN_NS, Some(MS), 0);
    let Pattern::OpenLoop { source, .. } = &mut plan.pattern else { panic!("open loop") };
    *source = Source::Timer(Arc::clone(&shared));
    shard.prepare(Box::new(plan));
    shard.now_ns = BEGIN_NS + 2 * MS;
    shard.advance();
    assert!(shard.active.is_some(), "something may come yet");
    let mut list = Box::new(Schedule::new(&schedule));
    let arrival = list.next().expect("one");
    producer.push(Dispatch { arrival, phase: 0 }).expect("room");
    shard.pump();
    assert_eq!(shard.recording.counters.issued, 0, "too late to begin");
    shared.end(Rest { pending: None, schedule: list });
    shard.advance();
    assert!(shard.active.is_none());
    let Ok(Message::Interval { recording, .. }) = messages.try_recv() else { panic!("none") };
    assert_eq!((recording.counters.scheduled, recording.counters.untaken), (1, 1));
    assert_eq!(recording.schedule_hash, hash_of(arrival));
}

#[test]
fn count_ends_a_phase_with_a_length_behind_a_timer_core_too() {
    let schedule = constant(1000.0, Some(100), Some(60 * SECOND));
    let setup = Setup {
        dispatches: Some(ring(&[(0, &schedule)])),
        ..Setup::new(
            shard_plan(16),
            SimEndpoint::default(),
            vec![timed(&open(&schedule, Overload::Queue))],
        )
    };
    let (_, totals) = setup.run();
    assert_eq!((totals[0].counters.completed, totals[0].counters.untaken), (100, 0));
    assert_eq!(totals[0].issue_end_ns, START_NS + 99 * MS);
}
