//! The stalls of measurement: who stood still, the endpoint or we? Worked numbers for both.

use super::*;

/// 100 ms each second, ten times.
fn stalls() -> Vec<(u64, u64)> {
    let begins_ns = (0..10).map(|second| START_NS + second * SECOND + 500 * MS);
    begins_ns.map(|begin_ns| (begin_ns, begin_ns + 100 * MS)).collect()
}

/// Ten seconds of 1000/s.
fn ten_seconds() -> PhasePlan {
    open(&constant(1000.0, None, Some(10 * SECOND)), Overload::Queue)
}

/// How many are above so many ms; the bucket error is far below the half added.
fn above(values_ns: &[u64], limit_ms: u64) -> usize {
    values_ns.iter().filter(|&&ns| ns > limit_ms * MS + MS / 2).count()
}

#[test]
fn stall_of_the_endpoint_shows_in_full_from_the_schedule() {
    // It serves its backlog at once: who came x before the end of a stall waits x.
    let endpoint =
        SimEndpoint { service_ns: vec![0], freezes_ns: stalls(), ..SimEndpoint::default() };
    let totals = measure(128, endpoint, ten_seconds());
    let expected_ns = (0..10_000u64).map(|i| match i % 1000 {
        ms @ 500..600 => (600 - ms) * MS,
        _ => 0,
    });
    let latencies = &totals.headline_ns;
    assert_eq!(totals.headline.total_ns, expected_ns.map(u128::from).sum());
    assert_eq!([10, 50, 90].map(|ms| above(latencies, ms)), [900, 500, 100]);
    assert_near(quantile_ms(latencies, 0.95), 50.0, 2.0);
    assert_near(quantile_ms(latencies, 0.99), 90.0, 2.0);
    assert_near(quantile_ms(latencies, 0.999), 99.0, 2.0);
    assert_eq!(totals.headline.max_ns, 100 * MS);
    assert_near(totals.headline.mean_ms(), 5.0, 0.1);
    assert_eq!(totals.lateness, Sums { count: 10_000, ..Sums::default() }, "not our fault");
    assert_eq!(totals.service, totals.headline, "all of it is the endpoint's");
}

/// What a stall of 100 ms a second does to a server with this utilisation.
struct Drain {
    service_ns: u64,
    /// Mean wait, ms: T^2 / 2P / (1 - rho).
    mean_ms: f64,
    /// How many of 10 000 wait more than 10, 50, 90 ms: uniform over a share T / ((1 - rho) P).
    above: [usize; 3],
    /// q_p = T - (1 - p)(1 - rho) P, of 90, 95, 99 and 99.9 %.
    quantiles_ms: [f64; 4],
}

#[test]
fn stall_with_a_drain_of_finite_speed_lasts_longer_than_itself() {
    for drain in [
        Drain {
            service_ns: 500 * US,
            mean_ms: 10.0,
            above: [1800, 1000, 200],
            quantiles_ms: [50.0, 75.0, 95.0, 99.5],
        },
        Drain {
            service_ns: 200 * US,
            mean_ms: 6.25,
            above: [1125, 625, 125],
            quantiles_ms: [20.0, 60.0, 92.0, 99.2],
        },
    ] {
        let endpoint = SimEndpoint {
            service_ns: vec![drain.service_ns],
            servers: 1,
            freezes_ns: stalls(),
            ..SimEndpoint::default()
        };
        let totals = measure(64, endpoint, ten_seconds());
        let waits_ns: Vec<u64> =
            totals.headline_ns.iter().map(|ns| ns.saturating_sub(drain.service_ns)).collect();
        for (limit_ms, count) in [10, 50, 90].into_iter().zip(drain.above) {
            let is = above(&waits_ns, limit_ms);
            assert!(is.abs_diff(count) <= 20, "{is} above {limit_ms} ms, not {count}");
        }
        for (share, expected_ms) in [0.9, 0.95, 0.99, 0.999].into_iter().zip(drain.quantiles_ms) {
            assert_near(quantile_ms(&waits_ns, share), expected_ms, 2.0);
        }
        let service_ms = drain.service_ns as f64 / 1e6;
        assert_near(totals.headline.mean_ms(), drain.mean_ms + service_ms, 0.2);
        assert_eq!(totals.lateness.total_ns, 0);
    }
}

#[test]
fn closed_loop_hides_the_stall() {
    // The negative control of the first test: the same endpoint, asked by one connection that
    // waits for its answers.
    let endpoint = SimEndpoint { freezes_ns: stalls(), ..SimEndpoint::default() };
    let plan =
        PhasePlan { start_ns: START_NS, duration_ns: Some(10 * SECOND), ..phase(0, 1, None) };
    let totals = measure(1, endpoint, plan);
    let p99_ms = quantile_ms(&totals.latencies_ns, 0.99);
    assert_near(p99_ms, 1.0, 0.01);
    assert!(totals.service.max_ns >= 100 * MS);
    assert!(90.0 / p99_ms > 50.0, "open loop says 90 ms");
    assert!(totals.headline_ns.is_empty(), "there is no schedule");
}

#[test]
fn hundred_good_seconds_and_hundred_frozen_ones() {
    let (good_ns, frozen_ns) = (START_NS + 100 * SECOND, START_NS + 200 * SECOND);
    let endpoint = SimEndpoint { freezes_ns: vec![(good_ns, frozen_ns)], ..SimEndpoint::default() };
    let schedule = constant(100.0, None, Some(200 * SECOND));
    let totals = measure(100, endpoint, open(&schedule, Overload::Queue));
    // A hundred connections are a queue with a hundred servers.
    let mut free_ns = [0; 100];
    let expected_ns = due_ns(&schedule).into_iter().enumerate().map(|(i, due_ns)| {
        let mut begin_ns = due_ns.max(free_ns[i % 100]);
        if begin_ns + MS > good_ns {
            begin_ns = begin_ns.max(frozen_ns);
        }
        free_ns[i % 100] = begin_ns + MS;
        free_ns[i % 100] - due_ns
    });
    assert_values(&totals.headline_ns, &totals.headline, expected_ns.collect());
    let latencies = &totals.headline_ns;
    assert_near(quantile_ms(latencies, 0.5), 1.0, 0.01);
    assert_near(quantile_ms(latencies, 0.75), 50_000.0, 100.0);
    assert_near(quantile_ms(latencies, 0.9999), 99_980.0, 100.0);
    assert_near(totals.headline.mean_ms(), 25_000.0, 50.0);
}

#[test]
fn stall_of_the_client_is_lateness_and_not_service() {
    let endpoint = SimEndpoint { client_stalls_ns: stalls(), ..SimEndpoint::default() };
    let totals = measure(128, endpoint, ten_seconds());
    let base_ns = MS;
    let latencies: Vec<u64> =
        totals.headline_ns.iter().map(|ns| ns.saturating_sub(base_ns)).collect();
    // Latency as if the endpoint had stalled ...
    for (limit_ms, count) in [(10, 900), (50, 500), (90, 100)] {
        let is = above(&latencies, limit_ms);
        assert!(is.abs_diff(count) <= 20, "{is} above {limit_ms} ms, not {count}");
    }
    assert_near(quantile_ms(&latencies, 0.95), 50.0, 2.0);
    assert_near(quantile_ms(&latencies, 0.99), 90.0, 2.0);
    // ... but the service is as ever, but for the one in flight as we stopped ...
    assert_near(quantile_ms(&totals.latencies_ns, 0.99), 1.0, 0.01);
    assert!(above(&totals.latencies_ns, 1) <= 20);
    // ... and all the rest is our lateness: a hundred late ones each time.
    let late = totals.lateness_ns.iter().filter(|&&ns| ns > 1).count();
    assert!(late.abs_diff(1000) <= 20, "{late}");
    assert_near(totals.parts.lateness_ns as f64 / 1e6, 10.0 * 5050.0, 10.0 * 200.0);
    assert_eq!(totals.parts.pool_wait_ns, 0);
}
