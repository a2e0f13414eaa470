//! Queries that wait in the shard: per target, up to the limit of the backlog, and beyond it in the
//! schedule.

use super::*;
use crate::limits::BACKLOG_LIMIT;
use crate::order::{Order, SampleOrder};
use crate::query::Target;

/// Two targets that take turns, with so many connections each.
fn two_targets(connections: u32) -> ShardPlan {
    let mut plan = shard_plan(connections);
    let target = plan.table.targets[0].clone();
    plan.table = samples(2);
    plan.table.targets = Arc::from([target.clone(), target as Target]);
    let request = |target: u32| Request::plain(0..1, target, false);
    plan.table.requests = Arc::from([request(0), request(1)]);
    plan
}

fn alternating(schedule: &SchedulePlan) -> PhasePlan {
    PhasePlan {
        order: SampleOrder::new(Order::Sequential, 2, 0),
        ..open(schedule, Overload::Queue)
    }
}

#[test]
fn full_target_does_not_keep_others_waiting() {
    // The first query, to the first target, takes 1 s; so do the others to it, which wait. The
    // second target answers in 1 ms as long as it is asked in time.
    let endpoint =
        SimEndpoint { service_ns: vec![SECOND, MS, MS, MS, MS], ..SimEndpoint::default() };
    let totals =
        measure(1, endpoint.clone(), open(&constant(100.0, Some(1), None), Overload::Queue));
    assert_eq!(totals.headline.max_ns, SECOND);
    let schedule = constant(100.0, Some(6), None);
    let (_, totals) = run(two_targets(1), endpoint, vec![alternating(&schedule)], None);
    // Due at 0, 10, ... 50 ms; 0, 20 and 40 are for the first target.
    let expected_ms = [1000, 1, 981, 1, 962, 1];
    let expected_ns = expected_ms.map(|ms| ms * MS).to_vec();
    assert_values(&totals[0].headline_ns, &totals[0].headline, expected_ns);
    assert_eq!(totals[0].counters.waits_full, 2);
}

#[test]
fn beyond_the_limit_of_the_backlog_queries_are_held_back_and_are_not_late() {
    let extra = 3000;
    let count = BACKLOG_LIMIT as u64 + extra + 4;
    // All are due within 7 ms; four connections serve them in twos.
    let schedule = constant(1e7, Some(count), None);
    let endpoint = SimEndpoint { service_ns: vec![20 * US], ..SimEndpoint::default() };
    let totals = measure(4, endpoint, open(&schedule, Overload::Queue));
    assert_eq!(totals.counters.completed, count);
    assert!(totals.counters.held_back > 0, "negative control: the limit was reached");
    assert_eq!(totals.counters.held_back + totals.lateness.count, count);
    assert_eq!(totals.lateness.max_ns, 0, "the endpoint is slow, we are not late");
    assert_eq!(totals.parts.lateness_ns, 0);
    assert_eq!(totals.parts.prepare_ns, 0);
    // From the schedule to the end they have waited for a connection.
    assert_eq!(totals.parts.pool_wait_ns + totals.parts.service_ns, totals.parts.total_ns());
    let waits_ns = totals.counters.waits_full_ns;
    assert_eq!(waits_ns, totals.parts.pool_wait_ns);
    // k-th of four servers, 20 us each.
    let due_ns = due_ns(&schedule);
    let latency_ns = |i: u64| {
        let done_ns = START_NS + (i / 4 + 1) * 20 * US;
        done_ns + (i % 4) * 100 - due_ns[i as usize]
    };
    assert_values(&totals.headline_ns, &totals.headline, (0..count).map(latency_ns).collect());
}

#[test]
fn room_for_many_at_once_lets_no_held_back_query_look_late() {
    // Sixteen connections time out at the same instant: sixteen places in the backlog at once.
    let count = BACKLOG_LIMIT as u64 + 1000;
    let schedule = constant(1e7, Some(count), None);
    let endpoint = SimEndpoint { answers: 0, ..SimEndpoint::default() };
    let plan = ShardPlan {
        timeouts: crate::phase::Timeouts { request_ns: 20 * MS, ..Default::default() },
        ..shard_plan(16)
    };
    let phase = PhasePlan { drain_timeout_ns: 100 * MS, ..open(&schedule, Overload::Queue) };
    let (_, totals) = run(plan, endpoint, vec![phase], None);
    let counters = totals[0].counters;
    assert!(counters.held_back >= 16 * 4, "{counters:?}");
    assert_eq!(counters.held_back + totals[0].lateness.count + left_in_schedule(&totals[0]), count);
    assert_eq!(totals[0].lateness.max_ns, 0);
    assert_eq!(counters.scheduled, count, "what nobody took is counted too");
}

/// Entries that were never taken: in no histogram.
fn left_in_schedule(totals: &Totals) -> u64 {
    // Those in the backlog at the end had been taken.
    totals.counters.scheduled - totals.counters.held_back - totals.lateness.count
}

#[test]
fn drop_never_holds_back() {
    let count = BACKLOG_LIMIT as u64 + 1000;
    let schedule = constant(1e7, Some(count), None);
    let endpoint = SimEndpoint { service_ns: vec![SECOND], ..SimEndpoint::default() };
    let totals = measure(2, endpoint, open(&schedule, Overload::Drop));
    let counters = totals.counters;
    assert_eq!((counters.completed, counters.dropped), (2, count - 2));
    assert_eq!((counters.held_back, counters.untaken), (0, 0));
    assert_eq!(totals.lateness, Sums { count, ..Sums::default() });
}

#[test]
fn who_waits_longest_goes_first_whatever_its_target() {
    // One query in flight over both targets; 1 ms each, two due each ms: the queue grows, in order.
    let mut plan = two_targets(4);
    plan.connections_per_target = 1;
    let schedule = constant(2000.0, Some(40), None);
    let mut phase = alternating(&schedule);
    let Pattern::OpenLoop { in_flight, .. } = &mut phase.pattern else { panic!("open loop") };
    *in_flight = 1;
    let (_, totals) = run(plan, SimEndpoint::default(), vec![phase], None);
    let due_ns = due_ns(&schedule);
    let latency_ns = |i: u64| START_NS + (i + 1) * MS - due_ns[i as usize];
    assert_values(&totals[0].headline_ns, &totals[0].headline, (0..40).map(latency_ns).collect());
    assert_eq!(totals[0].pool_wait.max_ns, 39 * MS - 39 * MS / 2);
}
