//! What the client measures is what the queue did: never less, and little more.

use std::time::Duration;

use super::{BUCKET, MS, assert_not_below, freezing, percentile, run};
use crate::support::queue::{Plan, QueueServer, Seen, Service, UNLIMITED};
use crate::support::{Engine, at_most, on_a_calm_host, on_both_engines};

on_both_engines!(
    service_is_that_of_the_server_and_little_more,
    a_frozen_server_shows_in_the_service_of_all_who_were_due,
    a_closed_loop_does_not_see_the_freeze,
    an_overload_is_served_at_the_pace_of_the_server,
);

/// Time from arrival to departure of every request, ns.
fn residences_ns(seen: &Seen) -> Vec<u64> {
    seen.visits.iter().map(|visit| visit.depart_ns - visit.arrival_ns).collect()
}

/// Four servers at 60 %: some wait, and all of that is service, as the client sees it.
fn service_is_that_of_the_server_and_little_more(engine: Engine) {
    on_a_calm_host(|| {
        let service = Service::Exponential { mean_ns: 3 * MS, seed: 11 };
        let server = QueueServer::start(Plan { servers: 4, service, freeze: None });
        let outcome = run(engine, &server, "poisson -R 800 -n 1200");
        outcome.expect_successes(1200);
        let truth_ns = residences_ns(&server.seen());
        let figures = outcome.figures("service_latency");
        assert_not_below(&figures, &truth_ns);
        let above = figures.percentile("50.0") - percentile(&truth_ns, 0.5) as f64;
        at_most("the median above the server's", above, 2e6)
    });
}

/// Everybody is in flight at once: who is due in a freeze waits for its end.
fn a_frozen_server_shows_in_the_service_of_all_who_were_due(engine: Engine) {
    let server = freezing(UNLIMITED, 0);
    let outcome = run(engine, &server, "constant -R 1000 -d 2s -t 1");
    outcome.expect_successes(2000);
    let truth_ns = residences_ns(&server.seen());
    let figures = outcome.figures("service_latency");
    assert_not_below(&figures, &truth_ns);
    // By the plan, not by what was seen. A sender that is late meets less of the freeze: 2 ms room.
    assert!(figures.percentile("95.0") >= 48e6, "{figures:?}");
    assert!(figures.percentile("99.0") >= 88e6, "{figures:?}");
    let opened = outcome.counter("waits_new_connection");
    assert!(opened >= 30, "of 100 in flight in a freeze, 64 had a connection: {opened}");
}

/// Negative control: one connection that waits sends nothing meanwhile, and the freeze is but one
/// sample of hundreds.
fn a_closed_loop_does_not_see_the_freeze(engine: Engine) {
    on_a_calm_host(|| {
        let server = freezing(1, MS);
        let words = "max-throughput -c 1 -d 2s";
        let outcome = run(engine, &server, words);
        outcome.expect_code(0);
        let figures = outcome.figures("latency");
        assert!(figures.get("max") >= 90e6, "it was frozen: {figures:?}");
        at_most("p99 in ms", figures.percentile("99.0") / 1e6, 30.0)
    });
}

/// 600 a second for a server that takes 2 ms each: 500 a second are achieved, waiting grows to
/// 0.2 s for each second of load, and the run is complete all the same.
fn an_overload_is_served_at_the_pace_of_the_server(engine: Engine) {
    let service = Service::Constant(2 * MS);
    let server = QueueServer::start(Plan { servers: 1, service, freeze: None });
    let words = "constant -R 600 -d 1500ms";
    let outcome = run(engine, &server, words);
    outcome.expect_successes(900);
    let truth_ns = residences_ns(&server.seen());
    let figures = outcome.figures("service_latency");
    assert_not_below(&figures, &truth_ns);
    // 900 requests take 1.8 s at least; the first goes at once.
    let qps = outcome.summary()["qps"].as_f64().expect("qps");
    assert!(qps <= 500.0 * (1.0 + BUCKET), "{qps}: faster than the server");
    assert!(qps > 250.0, "{qps}; {}", outcome.story());
    // Arrivals may be late, departures not early: request i leaves after (i + 1) x 2 ms.
    let of = |key: &str| figures.percentile(key);
    assert!(of("90.0") > 3.0 * of("10.0"), "{} and {}", of("10.0"), of("90.0"));
    assert!(outcome.elapsed >= Duration::from_millis(1800), "{:?}", outcome.elapsed);
}
