//! Connections in open loop: they grow on demand up to the cap, and what finds none waits or is
//! dropped, counted either way.

use std::time::Duration;

use super::run;
use crate::support::queue::QueueServer;
use crate::support::{Engine, on_both_engines, shard_counts};

on_both_engines!(
    connections_are_opened_before_the_first_instant,
    connections_grow_on_demand_up_to_the_cap,
    one_connection_makes_the_others_wait_their_turn,
    drop_sends_what_finds_a_connection_and_counts_the_rest,
);

fn connections_are_opened_before_the_first_instant(engine: Engine) {
    for shards in shard_counts() {
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run(engine, &server, &format!("constant -R 100 -n 5 -c 16 -t {shards}"));
        outcome.expect_successes(5);
        assert_eq!(server.seen().accepted, 16, "{}", outcome.story());
        assert_eq!(outcome.counter("connections_opened"), 16);
        assert_eq!(outcome.counter("waits_new_connection"), 0);
    }
}

/// 24 requests within 24 ms, each of which takes far longer: 2 have a connection, 14 wait for a new
/// one, 8 for one of those.
fn connections_grow_on_demand_up_to_the_cap(engine: Engine) {
    for shards in shard_counts() {
        let server = QueueServer::unlimited(Duration::from_millis(500));
        let more = format!("constant -R 1000 -n 24 -c 2 --max-connections 16 -t {shards}");
        let outcome = run(engine, &server, &more);
        outcome.expect_successes(24);
        let seen = server.seen();
        assert_eq!((seen.accepted, seen.open_max), (16, 16), "{}", outcome.story());
        assert_eq!(seen.in_flight_max, 16);
        assert_eq!(outcome.counter("connections_opened"), 16);
        assert_eq!(outcome.counter("waits_new_connection"), 14);
        let waited = outcome.counter("waits_full") + outcome.counter("waits_other_shard_free");
        assert_eq!(waited, 8, "{}", outcome.story());
    }
}

/// Eight requests, one each 20 ms, and a server that takes 100 ms: they wait 0, 80, ..., 560 ms for
/// the only connection.
fn one_connection_makes_the_others_wait_their_turn(engine: Engine) {
    let server = QueueServer::unlimited(Duration::from_millis(100));
    let outcome = run(engine, &server, "constant -R 50 -n 8 -c 1 --max-connections 1");
    outcome.expect_successes(8);
    let seen = server.seen();
    assert_eq!((seen.accepted, seen.in_flight_max), (1, 1));
    assert_eq!(outcome.counter("waits_full"), 7);
    let waited_ms = outcome.counter("waits_full_ns") / 1_000_000;
    assert!(waited_ms >= 2240, "{waited_ms} ms; {}", outcome.story());
    let service = outcome.figures("service_latency");
    assert!(service.get("min") >= 100e6, "{service:?}");
    assert!(service.get("min") < 500e6, "the wait is not service: {service:?}");
}

fn drop_sends_what_finds_a_connection_and_counts_the_rest(engine: Engine) {
    let server = QueueServer::unlimited(Duration::from_millis(50));
    let more = "constant -R 50 -n 20 --overload drop -c 1 --max-connections 1";
    let outcome = run(engine, &server, more);
    let issued = outcome.counter("total_samples_issued");
    outcome.expect_successes(issued);
    assert_eq!(server.arrived() as u64, issued);
    assert_eq!(server.seen().in_flight_max, 1);
    assert_eq!(outcome.counter("samples_scheduled"), 20);
    assert_eq!(outcome.counter("samples_dropped"), 20 - issued);
    assert_eq!(outcome.counter("samples_untaken"), 0);
    // One each 60 ms at best, as the two in between find the connection busy.
    assert!((1..=7).contains(&issued), "{issued} of 20; {}", outcome.story());
}
