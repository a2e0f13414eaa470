//! Instants: nothing goes early, late ones go at once and in order; rates from one in a hundred
//! seconds to ten in a microsecond; endpoints and clients that cannot keep up.

use crossbeam_channel::unbounded;

use super::*;
use crate::sim::Seen;

/// What left the client, in order.
fn witnessed(wait: Wait, endpoint: SimEndpoint, schedule: &SchedulePlan) -> (Totals, Vec<Seen>) {
    let (witness, seen) = unbounded();
    let endpoint = SimEndpoint { witness: Some(witness), ..endpoint };
    let count = Schedule::new(schedule).count();
    let plan = ShardPlan { wait, table: samples(count), ..shard_plan(32) };
    let mut phase = open(schedule, Overload::Queue);
    phase.order = crate::order::SampleOrder::new(crate::order::Order::Sequential, count as u32, 0);
    let (_, mut totals) = run(plan, endpoint, vec![phase], None);
    (totals.remove(0), seen.try_iter().collect())
}

#[test]
fn nothing_goes_early_and_all_goes_in_order_whatever_the_wait() {
    let schedule = poisson(2000.0, Some(2000), None);
    let due_ns = due_ns(&schedule);
    let awkward = SimEndpoint {
        turn_ns: 700,
        overshoot_ns: 60_000,
        send_ns: 3_000,
        client_stalls_ns: vec![(START_NS + 100 * MS, START_NS + 130 * MS)],
        ..SimEndpoint::default()
    };
    for endpoint in [SimEndpoint::default(), awkward] {
        for wait in [Wait::Sleep, Wait::Hybrid] {
            let endpoint = SimEndpoint { turn_ns: endpoint.turn_ns.max(100), ..endpoint.clone() };
            let (totals, seen) = witnessed(wait, endpoint, &schedule);
            assert_eq!(seen.len(), 2000);
            for (position, seen) in seen.iter().enumerate() {
                assert_eq!(seen.begin, position, "in order");
                assert!(seen.at_ns >= due_ns[position], "early");
            }
            assert_eq!(totals.fit_dispatched.len(), 2000);
            for (dispatched, sent) in totals.fit_dispatched.iter().zip(&totals.fit_sent) {
                assert_eq!(dispatched.position, sent.position);
                assert!(dispatched.at_ns >= due_ns[dispatched.position as usize], "early");
                assert!(sent.at_ns >= dispatched.at_ns);
            }
        }
    }
}

#[test]
fn who_sleeps_without_overshoot_sends_at_the_instants_themselves() {
    let schedule = poisson(5000.0, Some(5000), None);
    let (totals, seen) = witnessed(Wait::Sleep, SimEndpoint::default(), &schedule);
    let at_ns: Vec<u64> = seen.iter().map(|seen| seen.at_ns).collect();
    assert_eq!(at_ns, due_ns(&schedule));
    assert_eq!(totals.lateness, Sums { count: 5000, ..Sums::default() });
}

#[test]
fn late_ones_go_at_once_and_nothing_is_skipped() {
    // Away for 50 ms: 50 are due when we are back, and all leave then.
    let stall_ns = (START_NS + 100 * MS + 1, START_NS + 150 * MS + 1);
    let endpoint = SimEndpoint { client_stalls_ns: vec![stall_ns], ..SimEndpoint::default() };
    let schedule = constant(1000.0, Some(300), None);
    let (_, seen) = witnessed(Wait::Sleep, endpoint, &schedule);
    let at_once = seen.iter().filter(|seen| seen.at_ns == stall_ns.1).count();
    assert_eq!(at_once, 32, "as many as there are connections; the others follow");
    let due_ns = due_ns(&schedule);
    let expected_ns = due_ns.iter().enumerate().map(|(i, &due_ns)| match i {
        101..=132 => stall_ns.1,
        133..=151 => stall_ns.1 + MS,
        _ => due_ns,
    });
    assert_eq!(
        seen.iter().map(|seen| seen.at_ns).collect::<Vec<_>>(),
        expected_ns.collect::<Vec<_>>()
    );
}

#[test]
fn overloaded_endpoint_makes_the_latency_grow_linearly() {
    // 1.2 times what it can do, for 10 s: W(t) = 0.2 t.
    let endpoint = SimEndpoint { servers: 1, ..SimEndpoint::default() };
    let schedule = constant(1200.0, None, Some(10 * SECOND));
    let totals = measure(16, endpoint, open(&schedule, Overload::Queue));
    assert_eq!((totals.counters.scheduled, totals.counters.completed), (12_000, 12_000));
    assert_near(totals.headline.mean_ms(), 1000.0, 50.0);
    assert_near(totals.headline.max_ns as f64 / 1e6, 2000.0, 100.0);
    let achieved = 12_000.0 / ((totals.end_ns - totals.start_ns) as f64 / 1e9);
    assert_near(achieved, 1000.0, 50.0);
    // The sixth that came at half time waits half as long.
    assert_near(quantile_ms(&totals.headline_ns, 0.5), 1000.0, 50.0);
    assert_eq!(totals.lateness.total_ns, 0, "the client kept its schedule");
    assert_eq!(totals.counters.held_back, 0);
}

#[test]
fn overloaded_client_is_late_and_says_so() {
    // A send takes 1 ms, and 2000/s are asked for: the lateness grows by half a second a second.
    let endpoint = SimEndpoint { send_ns: MS, service_ns: vec![10 * US], ..SimEndpoint::default() };
    let schedule = constant(2000.0, None, Some(SECOND));
    let totals = measure(2048, endpoint, open(&schedule, Overload::Queue));
    assert_eq!(totals.counters.completed, 2000);
    assert_near(totals.lateness.max_ns as f64 / 1e6, 1000.0, 50.0);
    assert_near(quantile_ms(&totals.lateness_ns, 0.5), 500.0, 50.0);
    let of_us = totals.parts.lateness_ns + totals.parts.prepare_ns;
    assert!(of_us as f64 > 0.9 * totals.parts.total_ns() as f64, "{:?}", totals.parts);
    // A turn takes 64 before it looks at its events again, and the stamp of eight is that before
    // the first: that is how long an answer waits to be
    // seen at most, and the loop gap says so.
    assert!(totals.service.max_ns <= 73 * MS, "{:?}", totals.service);
    assert!(totals.loop_gap.max_ns >= 56 * MS, "{:?}", totals.loop_gap);
}

#[test]
fn few_and_no_samples() {
    for (schedule, scheduled) in [
        (constant(1000.0, Some(0), None), 0),
        (constant(1000.0, Some(1), None), 1),
        (poisson(1000.0, Some(1), None), 1),
        // Shorter than one gap: the first of a constant rate comes at once.
        (constant(10.0, None, Some(MS)), 1),
        (poisson(0.01, None, Some(MS)), 0),
    ] {
        let totals = measure(2, SimEndpoint::default(), open(&schedule, Overload::Queue));
        assert_eq!(totals.counters.scheduled, scheduled, "{schedule:?}");
        assert_values(&totals.headline_ns, &totals.headline, vec![MS; scheduled as usize]);
        assert_eq!(totals.lateness.total_ns, 0);
        let length_ns = totals.end_ns - totals.start_ns;
        match schedule.end_ns {
            // The answer comes in the drain, at the same instant or after it.
            Some(end_ns) => assert_eq!(length_ns, end_ns),
            None if scheduled == 0 => assert_eq!(length_ns, 0),
            None => assert!(length_ns >= MS),
        }
    }
}

#[test]
fn one_query_in_a_hundred_seconds_and_ten_in_a_microsecond() {
    let rare = constant(0.01, Some(100), None);
    let totals = measure(1, SimEndpoint::default(), open(&rare, Overload::Queue));
    assert_values(&totals.headline_ns, &totals.headline, vec![MS; 100]);
    assert_eq!(totals.end_ns - totals.start_ns, 9900 * SECOND + MS);
    let dense = constant(1e7, None, Some(MS));
    let endpoint = SimEndpoint { service_ns: vec![100], ..SimEndpoint::default() };
    let totals = measure(4, endpoint, open(&dense, Overload::Queue));
    assert_values(&totals.headline_ns, &totals.headline, vec![100; 10_000]);
    assert_eq!(totals.lateness.total_ns, 0);
}
