//! Warm-up and the phase behind it; ends by the clock, by control, and too late.

use crossbeam_channel::unbounded;

use super::*;
use crate::phase::Command;
use crate::schedule::hash_of;
use crate::shard::tests::Setup;

/// Two phases that join: so many ms of the first, undrained.
fn joined(first: &SchedulePlan, length_ms: u64, second: &SchedulePlan) -> Vec<PhasePlan> {
    let warmup = PhasePlan {
        duration_ns: Some(length_ms * MS),
        drain_timeout_ns: 0,
        ..open(first, Overload::Queue)
    };
    let main = PhasePlan {
        index: 1,
        start_ns: START_NS + length_ms * MS,
        ..open(second, Overload::Queue)
    };
    vec![warmup, main]
}

#[test]
fn late_answers_of_an_undrained_warm_up_are_in_no_figure_of_the_next_phase() {
    // Warm-up: each 10 ms for 100 ms; the endpoint takes 45 ms, so four are left over.
    let endpoint = SimEndpoint { service_ns: vec![45 * MS], ..SimEndpoint::default() };
    let warmup = constant(100.0, None, Some(100 * MS));
    let main = constant(100.0, Some(20), None);
    let (_, totals) = run(shard_plan(16), endpoint, joined(&warmup, 100, &main), None);
    let [warm, main] = &totals[..] else { panic!("two phases") };
    assert_eq!((warm.counters.scheduled, warm.counters.completed), (10, 6));
    assert_eq!(warm.in_flight_at_end, 4);
    assert_eq!((main.start_ns, warm.end_ns), (warm.issue_end_ns, warm.issue_end_ns), "no gap");
    assert_eq!((main.counters.carried_in, main.counters.completed), (4, 20));
    assert_values(&main.headline_ns, &main.headline, vec![45 * MS; 20]);
    assert_eq!(main.pool_wait.count, 20);
    assert_eq!((warm.lateness.total_ns, main.lateness.total_ns), (0, 0));
}

#[test]
fn backlog_of_the_warm_up_ends_with_it_and_its_queries_in_flight_do_not() {
    // One connection, 45 ms: three of ten are sent by the end, one of them still in flight.
    let endpoint = SimEndpoint { service_ns: vec![45 * MS], ..SimEndpoint::default() };
    let warmup = constant(100.0, None, Some(100 * MS));
    let main = constant(10.0, Some(3), None);
    let (_, totals) = run(shard_plan(1), endpoint, joined(&warmup, 100, &main), None);
    let warm = totals[0].counters;
    assert_eq!((warm.scheduled, warm.issued, warm.untaken), (10, 3, 7));
    assert_eq!((warm.completed, totals[0].in_flight_at_end), (2, 1));
    // The connection is busy with the warm-up's last for 35 ms more: the first one waits.
    assert_eq!(totals[1].counters.carried_in, 1);
    assert_values(&totals[1].headline_ns, &totals[1].headline, vec![80 * MS, 45 * MS, 45 * MS]);
}

#[test]
fn schedule_of_a_phase_is_the_same_with_and_without_a_warm_up() {
    let main = poisson(700.0, Some(300), None);
    let sent = |warmup: Option<SchedulePlan>| {
        let (witness, seen) = unbounded();
        let endpoint = SimEndpoint { witness: Some(witness), ..SimEndpoint::default() };
        let phases = match warmup {
            Some(warmup) => joined(&warmup, 100, &main),
            None => vec![PhasePlan { index: 0, ..joined(&main, 100, &main).remove(1) }],
        };
        let (_, totals) = run(shard_plan(64), endpoint, phases, None);
        let at_ns: Vec<u64> = seen.try_iter().map(|seen| seen.at_ns).collect();
        let own = at_ns[at_ns.len() - 300..].to_vec();
        (totals.last().expect("one phase at least").schedule_hash, own)
    };
    let without = sent(None);
    let warmup = SchedulePlan { stream: 1, ..poisson(2000.0, None, Some(100 * MS)) };
    assert_eq!(sent(Some(warmup)), without);
}

#[test]
fn query_due_just_before_the_end_of_an_undrained_phase_still_goes() {
    // The sleep ends 50 us late, beyond the end of the phase; the last is due 10 us before it.
    let endpoint =
        SimEndpoint { overshoot_ns: 50 * US, service_ns: vec![300 * US], ..SimEndpoint::default() };
    let warmup = constant(1000.0, None, Some(100 * MS - 990 * US));
    let mut phases = joined(&warmup, 100, &constant(1000.0, Some(10), None));
    phases[0].duration_ns = Some(100 * MS - 990 * US);
    phases[1].start_ns = START_NS + 100 * MS - 990 * US;
    let (_, totals) = run(shard_plan(16), endpoint, phases, None);
    let counters = totals[0].counters;
    assert_eq!((counters.scheduled, counters.issued, counters.untaken), (100, 100, 0));
    assert_eq!(totals[1].counters.scheduled, 10);
}

#[test]
fn hybrid_is_in_time_for_the_first_instant_of_a_phase() {
    let endpoint = SimEndpoint {
        turn_ns: 500,
        overshoot_ns: 50 * US,
        service_ns: vec![100 * US],
        ..SimEndpoint::default()
    };
    let first = constant(1000.0, None, Some(100 * MS));
    let phases = joined(&first, 100, &constant(1000.0, Some(10), None));
    let late_ns = |wait| {
        let plan = ShardPlan { wait, ..shard_plan(16) };
        let (_, totals) = run(plan, endpoint.clone(), phases.clone(), None);
        (totals[0].lateness.max_ns, totals[1].lateness.max_ns)
    };
    let (first_ns, second_ns) = late_ns(Wait::Hybrid);
    assert!(first_ns <= 1000 && second_ns <= 1000, "{first_ns} {second_ns}");
    // Negative control.
    assert!(late_ns(Wait::Sleep).1 >= 50 * US);
}

/// Runs one phase of 1000/s with 45 ms an answer, and lets control say something.
fn told(wait: Wait, connections: u32, phase: PhasePlan, script: Vec<(u64, Command)>) -> Totals {
    let endpoint =
        SimEndpoint { service_ns: vec![45 * MS], turn_ns: 1000, ..SimEndpoint::default() };
    let plan = ShardPlan { wait, ..shard_plan(connections) };
    let (_, mut totals) = Setup { script, ..Setup::new(plan, endpoint, vec![phase]) }.run();
    totals.remove(0)
}

#[test]
fn end_told_by_control_cuts_the_schedule_at_that_instant() {
    let schedule = poisson(1000.0, None, Some(10 * SECOND));
    let at_ns = START_NS + 300 * MS + 123;
    let list: Vec<Arrival> = Schedule::new(&schedule)
        .take_while(|arrival| START_NS + arrival.offset_ns < at_ns)
        .collect();
    let hash = list.iter().fold(0u64, |sum, &arrival| sum.wrapping_add(hash_of(arrival)));
    for connections in [64, 4] {
        for wait in [Wait::Sleep, Wait::Hybrid] {
            let script = vec![(at_ns - 20 * MS, Command::EndAt { phase: 0, at_ns })];
            let totals = told(wait, connections, open(&schedule, Overload::Queue), script);
            assert_eq!(totals.issue_end_ns, at_ns);
            assert_eq!(totals.counters.scheduled, list.len() as u64);
            assert_eq!(totals.schedule_hash, hash);
            assert_eq!(totals.counters.completed, list.len() as u64, "drained");
        }
    }
}

#[test]
fn end_of_a_phase_that_has_not_begun_here_is_remembered() {
    // The first phase drains for 45 ms; the end of the second is told meanwhile.
    let schedule = constant(1000.0, None, Some(10 * MS));
    let endpoint = SimEndpoint { service_ns: vec![45 * MS], ..SimEndpoint::default() };
    let first = open(&schedule, Overload::Queue);
    let second = phase(1, 4, None);
    let at_ns = START_NS + 200 * MS;
    let script = vec![
        (START_NS + 20 * MS, Command::EndAt { phase: 1, at_ns }),
        // Without the first word only the last one ends it.
        (START_NS + SECOND, Command::Stop),
    ];
    let (_, totals) =
        Setup { script, ..Setup::new(shard_plan(16), endpoint, vec![first, second]) }.run();
    assert_eq!(totals[1].issue_end_ns, at_ns);
}

#[test]
fn stop_drains_what_was_due_and_cancel_gives_it_up() {
    // Four connections, 45 ms: most wait. At 101.5 ms 102 were due.
    let schedule = constant(1000.0, None, Some(10 * SECOND));
    let at_ns = START_NS + 101 * MS + 500 * US;
    let mut phase = open(&schedule, Overload::Queue);
    let totals = told(Wait::Sleep, 4, phase.clone(), vec![(at_ns, Command::Stop)]);
    assert_eq!((totals.counters.scheduled, totals.counters.completed), (102, 102));
    assert_eq!(totals.issue_end_ns, at_ns);
    // Only for a while.
    phase.drain_timeout_ns = 100 * MS;
    let totals = told(Wait::Sleep, 4, phase.clone(), vec![(at_ns, Command::Stop)]);
    assert_eq!(totals.end_ns, at_ns + 100 * MS);
    // Done at 45, 90, 135 and 180 ms, the rest is sent or waits.
    assert_eq!((totals.counters.completed, totals.in_flight_at_end), (16, 4));
    assert_eq!(totals.counters.untaken, 102 - 20);
    let totals = told(Wait::Sleep, 4, phase, vec![(at_ns, Command::Cancel)]);
    assert_eq!((totals.counters.completed, totals.counters.cancelled), (8, 4));
    assert_eq!((totals.counters.scheduled, totals.counters.untaken), (102, 90));
    assert_eq!(totals.end_ns, at_ns);
}

#[test]
fn stop_that_comes_after_the_end_changes_nothing_of_the_schedule() {
    // We are away from before the end of the phase until after a stop; the schedule goes on behind
    // the phase, and is none of its business.
    let schedule = constant(1000.0, None, None);
    let endpoint = SimEndpoint {
        client_stalls_ns: vec![(START_NS + 90 * MS + 1, START_NS + 200 * MS)],
        ..SimEndpoint::default()
    };
    let plan = PhasePlan { duration_ns: Some(100 * MS), ..open(&schedule, Overload::Queue) };
    for script in [vec![], vec![(START_NS + 150 * MS, Command::Stop)]] {
        let endpoint = endpoint.clone();
        let setup = Setup { script, ..Setup::new(shard_plan(128), endpoint, vec![plan.clone()]) };
        let (_, totals) = setup.run();
        assert_eq!(totals[0].counters.scheduled, 100);
        assert_eq!(totals[0].issue_end_ns, START_NS + 100 * MS);
    }
}

#[test]
fn shard_that_is_too_late_for_a_phase_takes_what_was_due_in_it_and_no_more() {
    let schedule = constant(1000.0, None, Some(100 * MS));
    let endpoint = SimEndpoint {
        client_stalls_ns: vec![(START_NS - MS, START_NS + 200 * MS)],
        ..SimEndpoint::default()
    };
    let plan = open(&schedule, Overload::Queue);
    let (_, totals) = run(shard_plan(128), endpoint, vec![plan], None);
    let counters = totals[0].counters;
    assert_eq!((counters.scheduled, counters.completed), (100, 100));
    assert_eq!(totals[0].lateness.max_ns, 200 * MS);
}

#[test]
fn phase_with_a_count_and_a_length_ends_with_whichever_comes_first() {
    // 100 at 1000/s are used up after 99 ms; the length alone would be a minute.
    for (count, length_ms, end_ms) in [(100, 60_000, 99), (100, 50, 50), (100, 100, 99)] {
        let schedule = constant(1000.0, Some(count), Some(length_ms * MS));
        let (_, totals) = run(
            shard_plan(16),
            SimEndpoint::default(),
            vec![open(&schedule, Overload::Queue)],
            None,
        );
        assert_eq!(totals[0].counters.completed, count.min(length_ms));
        assert_eq!(totals[0].issue_end_ns, START_NS + end_ms * MS, "{count} in {length_ms} ms");
    }
    // Without a count the phase is that long, whenever its last query is due.
    let schedule = constant(10.0, None, Some(250 * MS));
    let totals = measure(16, SimEndpoint::default(), open(&schedule, Overload::Queue));
    assert_eq!(totals.issue_end_ns, START_NS + 250 * MS);
}
