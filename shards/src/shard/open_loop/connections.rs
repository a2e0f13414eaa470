//! Waits for a connection, and why.

use super::*;
use crate::failure::FailureKind;
use crate::limits::BACKOFF_NS_MAX;
use crate::phase::Live;
use crate::shard::tests::Setup;

#[test]
fn connections_grow_on_demand_and_their_handshakes_are_waits() {
    // Two are open before. Three queries, 1 ms apart, take 100 ms: the third opens one, in 40 ms.
    let endpoint =
        SimEndpoint { connect_ns: 40 * MS, service_ns: vec![100 * MS], ..SimEndpoint::default() };
    let plan = ShardPlan { connections_per_target: 2, ..shard_plan(8) };
    let phase = PhasePlan {
        start_ns: START_NS + 100 * MS,
        ..open(&constant(1000.0, Some(3), None), Overload::Queue)
    };
    let (ready, totals) = run(plan, endpoint, vec![phase], None);
    assert_eq!(ready.connections_open, 2);
    let counters = totals[0].counters;
    assert_values(&totals[0].headline_ns, &totals[0].headline, vec![100 * MS, 100 * MS, 140 * MS]);
    assert_eq!((counters.waits_new_connection, counters.waits_new_connection_ns), (1, 40 * MS));
    assert_eq!((counters.waits_full, counters.waits_other_shard_free), (0, 0));
    assert_eq!(totals[0].parts.pool_wait_ns, 40 * MS);
    assert_eq!(totals[0].service.max_ns, 100 * MS, "no handshake in the service");
    assert_eq!(totals[0].lateness.max_ns, 0);
}

#[test]
fn wait_behind_a_full_pool_is_ours_when_another_shard_has_room() {
    for (free, expected) in [(0, (1, 60 * MS, 0, 0)), (3, (0, 0, 1, 60 * MS))] {
        let peer = Arc::new(Live::default());
        peer.show(5, free);
        let endpoint = SimEndpoint { service_ns: vec![100 * MS], ..SimEndpoint::default() };
        let phase = open(&constant(25.0, Some(2), None), Overload::Queue);
        let setup = Setup {
            peers: vec![Arc::default(), peer],
            ..Setup::new(shard_plan(1), endpoint, vec![phase])
        };
        let (_, totals) = setup.run();
        let c = totals[0].counters;
        let waits =
            (c.waits_full, c.waits_full_ns, c.waits_other_shard_free, c.waits_other_shard_free_ns);
        assert_eq!(waits, expected);
    }
}

#[test]
fn stale_connection_is_waited_for_once_and_its_query_is_sent_again() {
    // Each answer is the last of its connection, and the end of it is seen with the next request.
    for close_ns in [0, 100, MS / 2, 2 * MS] {
        let endpoint =
            SimEndpoint { closes_after: 1, close_ns, connect_ns: 3 * MS, ..SimEndpoint::default() };
        let schedule = constant(1000.0, Some(50), None);
        let (_, totals) = run(
            ShardPlan { connections_per_target: 1, ..shard_plan(2) },
            endpoint,
            vec![PhasePlan { start_ns: START_NS, ..open(&schedule, Overload::Queue) }],
            None,
        );
        let totals = &totals[0];
        assert_eq!((totals.counters.completed, totals.counters.failed), (50, 0));
        // One wait for each query, whatever happened to it, and no time is lost or counted twice.
        assert_eq!(totals.pool_wait.count, 50, "closes after {close_ns} ns");
        assert_eq!(totals.pool_wait.total_ns, u128::from(totals.parts.pool_wait_ns));
        let counters = totals.counters;
        let waits_ns = counters.waits_full_ns + counters.waits_new_connection_ns;
        assert_eq!(waits_ns, totals.parts.pool_wait_ns);
        assert_eq!(u128::from(totals.parts.total_ns()), totals.headline.total_ns);
        assert_eq!(totals.parts.prepare_ns, 0, "nothing of it is ours");
    }
}

#[test]
fn endpoint_that_refuses_fails_queries_and_lets_no_queue_grow() {
    // 1000/s, four connections: their pauses grow to 256 ms, so they alone could try 16 a second.
    let endpoint = SimEndpoint {
        connect_ns: 100 * US,
        connect_errno: libc::ECONNREFUSED,
        ..SimEndpoint::default()
    };
    let schedule = constant(1000.0, None, Some(5 * SECOND));
    let phase = PhasePlan { drain_timeout_ns: SECOND, ..open(&schedule, Overload::Queue) };
    let (_, totals) = run(shard_plan(4), endpoint, vec![phase], None);
    let counters = totals[0].counters;
    assert_eq!((counters.scheduled, counters.failed, counters.untaken), (5000, 5000, 0));
    assert_eq!(totals[0].failures.tally(FailureKind::ConnectRefused).count, 5000);
    // The last ones hear of it with the next attempt at the latest.
    assert!(totals[0].end_ns <= totals[0].issue_end_ns + BACKOFF_NS_MAX + MS);
}
