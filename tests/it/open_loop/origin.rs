//! The headline counts from the schedule: who waits, for the server, for a connection or for us, is
//! late in it, and the parts say for whom.

use std::time::Duration;

use loadgen_shards::schedule::{Process, Schedule, SchedulePlan, hash_of};

use super::{
    BUCKET, MS, assert_not_below, freezing, load, offsets_ns, percentile, run, run_stopped,
    schedule,
};
use crate::support::queue::{Plan, QueueServer, Servers, Service, UNLIMITED};
use crate::support::run::Outcome;
use crate::support::{Engine, at_most, on_a_calm_host, on_both_engines, skip};

on_both_engines!(
    a_schedule_is_the_origin_of_latency_and_the_send_is_not,
    the_hash_is_that_of_the_list_for_any_number_of_shards,
    one_server_at_half_load_waits_as_lindley_says,
    one_connection_shows_in_the_latency_and_not_in_the_service,
    few_connections_to_a_frozen_server_hide_nothing,
    a_stopped_client_blames_itself,
    an_overload_grows_from_request_to_request,
);

/// Sum of the instants at which a phase's entries were due, ns.
fn due_total_ns(outcome: &Outcome, offsets_ns: &[u64]) -> u64 {
    offsets_ns.iter().map(|offset_ns| outcome.phase_start_ns(0) + offset_ns).sum()
}

/// All answers were received after they had left, so the sum of all latencies is at least that of
/// (departure - due instant), whoever overtook whom.
#[track_caller]
fn assert_from_the_schedule(outcome: &Outcome, server: &QueueServer, offsets_ns: &[u64]) {
    let departed: u64 = server.seen().visits.iter().map(|visit| visit.depart_ns).sum();
    let least = departed - due_total_ns(outcome, offsets_ns);
    let total = outcome.figures("latency").get("total");
    assert!(total >= least as f64, "{total} below {least}; {}", outcome.story());
}

fn a_schedule_is_the_origin_of_latency_and_the_send_is_not(engine: Engine) {
    let server = QueueServer::unlimited(Duration::from_millis(2));
    let open = run(engine, &server, "constant -R 100 -n 20");
    open.expect_successes(20);
    let summary = open.summary();
    assert_eq!(summary["latency_origin"], "scheduled");
    let [latency, service] = ["latency", "service_latency"].map(|name| open.figures(name));
    let parts: f64 =
        ["lateness", "pool_wait"].iter().map(|name| open.figures(name).get("total")).sum();
    // Latency = lateness + wait for a connection + preparation + service.
    assert!(latency.get("total") >= service.get("total") + parts, "{latency:?} {service:?}");
    let closed = run(engine, &server, "max-throughput -c 2 -n 20");
    closed.expect_successes(20);
    let summary = closed.summary();
    assert_eq!(summary["latency_origin"], "sent");
    assert_eq!(summary["latency"], summary["service_latency"]);
}

fn the_hash_is_that_of_the_list_for_any_number_of_shards(engine: Engine) {
    let plan = SchedulePlan { count: Some(500), ..schedule(Process::Poisson, 2000.0, 9) };
    let hash = Schedule::new(&plan).map(hash_of).fold(0, u64::wrapping_add);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let hash_with = |words: &str| {
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run(engine, &server, &format!("poisson -R 2000 -n 500 {words}"));
        outcome.expect_successes(500);
        outcome.summary()["schedule_hash"].as_str().expect("a hash").to_owned()
    };
    for shards in [1, 2, 3, 16] {
        if shards > cores {
            skip(&format!("{shards} shards need as many cores"));
            continue;
        }
        let words = format!("--seed 9 -t {shards}");
        assert_eq!(hash_with(&words), format!("{hash:016x}"), "{shards} shards");
    }
    if cores > 1 {
        let timer = "--seed 9 --cores 0 --timer dedicated --timer-core 1";
        assert_eq!(hash_with(timer), format!("{hash:016x}"), "through the dispatch ring");
    }
    assert_ne!(hash_with("--seed 10 -t 1"), format!("{hash:016x}"), "another list");
}

/// M/M/1: the expected latency of each request follows from the list and its service time.
fn one_server_at_half_load_waits_as_lindley_says(engine: Engine) {
    let service = Service::Exponential { mean_ns: MS, seed: 3 };
    let plan = SchedulePlan { count: Some(1500), ..schedule(Process::Poisson, 500.0, 42) };
    let due = offsets_ns(&plan);
    let mut queue = Servers::new(1);
    let expected_ns: Vec<u64> = (0u64..)
        .zip(&due)
        .map(|(number, due_ns)| queue.depart_ns(*due_ns, service.of(number)) - due_ns)
        .collect();
    on_a_calm_host(|| {
        let server = QueueServer::start(Plan { servers: 1, service, freeze: None });
        let outcome = run(engine, &server, "poisson -R 500 -n 1500");
        outcome.expect_successes(1500);
        assert_from_the_schedule(&outcome, &server, &due);
        let latency = outcome.figures("latency");
        // Nobody is early, so nobody is served before the oracle says.
        let total_ns: u64 = expected_ns.iter().sum();
        assert!(latency.get("total") >= total_ns as f64, "{latency:?}; oracle {total_ns}");
        for (key, share) in [("50.0", 0.5), ("90.0", 0.9), ("99.0", 0.99)] {
            let [is, oracle] = [latency.percentile(key), percentile(&expected_ns, share) as f64];
            // Requests that overtake each other change places in the queue: 3 %.
            assert!(is >= 0.97 * oracle, "p{key} {is} below the oracle's {oracle}");
            at_most(&format!("p{key} above the oracle's"), is - oracle, 2e6 + 0.3 * oracle)?;
        }
        Ok(())
    });
}

/// Eight requests, one each 100 ms, 500 ms each, one connection: 500, 900, ..., 3300 ms.
fn one_connection_shows_in_the_latency_and_not_in_the_service(engine: Engine) {
    on_a_calm_host(|| {
        let server = QueueServer::unlimited(Duration::from_millis(500));
        let outcome = run(engine, &server, "constant -R 10 -n 8 -c 1 --max-connections 1");
        outcome.expect_successes(8);
        let [latency, service, wait] = ["latency", "service_latency", "pool_wait"]
            .map(|name| ["avg", "max"].map(|figure| outcome.figures(name).get(figure) / 1e6));
        let rows = [
            ("latency", latency, [1900.0, 3300.0]),
            ("service", service, [500.0, 500.0]),
            ("pool wait", wait, [1400.0, 2800.0]),
        ];
        for (name, is, least) in rows {
            assert!(is[0] >= least[0], "{name}: mean {} ms below {}", is[0], least[0]);
            assert!(is[1] >= least[1], "{name}: max {} ms below {}", is[1], least[1]);
            at_most(&format!("{name}: mean, ms"), is[0], least[0] + 20.0)?;
            at_most(&format!("{name}: max, ms"), is[1], least[1] + 40.0)?;
        }
        Ok(())
    });
}

/// Eight connections wait in a freeze and the other requests wait for one of them: hardly any
/// service is long, as a tool would show that counts from the send; from the schedule all are.
fn few_connections_to_a_frozen_server_hide_nothing(engine: Engine) {
    let plan = schedule(Process::Constant { jitter: 0.0 }, 1000.0, 42);
    let due = offsets_ns(&SchedulePlan { end_ns: Some(2000 * MS), ..plan });
    on_a_calm_host(|| {
        let server = freezing(UNLIMITED, 0);
        let words = "constant -R 1000 -d 2s -t 1 -c 8 --max-connections 8";
        let outcome = run(engine, &server, words);
        outcome.expect_successes(2000);
        assert_from_the_schedule(&outcome, &server, &due);
        let figures = |name| outcome.figures(name);
        assert!(figures("latency").percentile("95.0") >= 48e6, "{:?}", figures("latency"));
        assert!(figures("latency").percentile("99.0") >= 88e6, "{:?}", figures("latency"));
        let service = figures("service_latency");
        assert!(service.get("max") >= 90e6, "{service:?}");
        at_most("service p95, ms", service.percentile("95.0") / 1e6, 20.0)?;
        // It is the server's doing, not ours.
        at_most("lateness p99, ms", figures("lateness").percentile("99.0") / 1e6, 10.0)
    });
}

/// The counterpart: the client is stopped, and lateness holds the whole effect.
fn a_stopped_client_blames_itself(engine: Engine) {
    let plan = schedule(Process::Constant { jitter: 0.0 }, 1000.0, 42);
    let due = offsets_ns(&SchedulePlan { count: Some(1500), ..plan });
    on_a_calm_host(|| {
        let server = QueueServer::unlimited(Duration::ZERO);
        let outcome = run_stopped(load(engine), &server)?;
        outcome.expect_successes(1500);
        assert_from_the_schedule(&outcome, &server, &due);
        let figures = |name| outcome.figures(name);
        // 10 % are late by 50 ms or more, 2 % by 90: 6 of each 100 may be missed at the edges.
        for name in ["lateness", "latency"] {
            assert!(figures(name).percentile("95.0") >= 45e6, "{:?}", figures(name));
            assert!(figures(name).percentile("99.0") >= 80e6, "{:?}", figures(name));
        }
        at_most("service p90, ms", figures("service_latency").percentile("90.0") / 1e6, 20.0)
    });
}

/// 600 a second for a server that takes 2 ms each: request i leaves after (i + 1) x 2 ms and was
/// due at i x 1.667 ms.
fn an_overload_grows_from_request_to_request(engine: Engine) {
    let service = Service::Constant(2 * MS);
    let plan = schedule(Process::Constant { jitter: 0.0 }, 600.0, 42);
    let due = offsets_ns(&SchedulePlan { end_ns: Some(1500 * MS), ..plan });
    let mut queue = Servers::new(1);
    let expected_ns: Vec<u64> =
        due.iter().map(|due_ns| queue.depart_ns(*due_ns, 2 * MS) - due_ns).collect();
    assert_eq!(expected_ns.last().map(|ns| ns / MS), Some(301));
    let server = QueueServer::start(Plan { servers: 1, service, freeze: None });
    let outcome = run(engine, &server, "constant -R 600 -d 1500ms");
    outcome.expect_successes(900);
    assert_from_the_schedule(&outcome, &server, &due);
    // The first starts a busy period that does not end, so nobody gains by another's lateness.
    let latency = outcome.figures("latency");
    assert_not_below(&latency, &expected_ns);
    assert!(latency.get("avg") >= 150e6 * (1.0 - BUCKET), "{latency:?}");
}
