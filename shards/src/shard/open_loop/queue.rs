//! Queues with known answers. Each run is paired with a recursion of its own over the same
//! schedule and service times, which must agree to the nanosecond; and with the closed form.

use super::*;

/// Service times of mean 1 ms.
fn exponential_ns(count: usize, seed: u64) -> Vec<u64> {
    let mut state = seed;
    let draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let uniform = ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-uniform.ln() * 1e6) as u64
    };
    std::iter::repeat_with(draw).take(count).collect()
}

/// d_i = max(a_i, earliest free of c) + S_i; latencies.
fn oracle_ns(due_ns: &[u64], service_ns: &[u64], servers: usize) -> Vec<u64> {
    let mut free_ns = vec![0; servers];
    let serve = |(&due_ns, &service_ns): (&u64, &u64)| {
        let earliest = (0..servers).min_by_key(|&i| free_ns[i]).expect("one server at least");
        let done_ns = due_ns.max(free_ns[earliest]) + service_ns;
        free_ns[earliest] = done_ns;
        done_ns - due_ns
    };
    due_ns.iter().zip(service_ns).map(serve).collect()
}

struct Case {
    rate: f64,
    /// Each case has arrivals of its own, and service times of its own.
    stream: u64,
    service_ns: Vec<u64>,
    servers: usize,
    /// Mean, then p50, p99 and p99.9, ms.
    closed_form: [f64; 4],
    /// Relative: of the mean and median, of the tail. The queue remembers, so few samples are
    /// independent; these hold at this seed.
    tolerance: [f64; 2],
}

/// Returns the mean number in the system.
fn check(case: &Case) -> f64 {
    let count = case.service_ns.len();
    let schedule =
        SchedulePlan { stream: case.stream, ..poisson(case.rate, Some(count as u64), None) };
    let due_ns = due_ns(&schedule);
    let expected_ns = oracle_ns(&due_ns, &case.service_ns, case.servers);
    let run = |connections, servers| {
        let service_ns = case.service_ns.clone();
        let endpoint = SimEndpoint { service_ns, servers, ..SimEndpoint::default() };
        measure(connections, endpoint, open(&schedule, Overload::Queue))
    };
    // The queue is at the endpoint; or, for want of connections, here.
    let there = run(64, case.servers);
    let here = run(case.servers as u32, usize::MAX);
    for totals in [&there, &here] {
        assert_values(&totals.headline_ns, &totals.headline, expected_ns.clone());
        assert_eq!(totals.lateness.total_ns, 0);
    }
    assert_values(&here.latencies_ns, &here.service, case.service_ns.clone());
    assert_eq!(here.parts.pool_wait_ns + here.parts.service_ns, here.parts.total_ns());
    let latencies = &there.headline_ns;
    let [mean, p50, p99, p999] = case.closed_form;
    let [body, tail] = case.tolerance;
    assert_near(there.headline.mean_ms() / mean, 1.0, body);
    assert_near(quantile_ms(latencies, 0.5) / p50, 1.0, body);
    assert_near(quantile_ms(latencies, 0.99) / p99, 1.0, tail);
    assert_near(quantile_ms(latencies, 0.999) / p999, 1.0, 1.5 * tail);
    there.headline.total_ns as f64 / (there.end_ns - there.start_ns) as f64
}

#[test]
fn lindley_vector() {
    // Due at 0, 1, 2, 3 and, in a second phase that joins the first, at 10 ms.
    let endpoint = SimEndpoint {
        service_ns: [2500, 500, 500, 500, 1000].map(|us| us * US).to_vec(),
        servers: 1,
        ..SimEndpoint::default()
    };
    let schedule = constant(1000.0, Some(4), None);
    let first = PhasePlan { duration_ns: Some(10 * MS), ..open(&schedule, Overload::Queue) };
    let last = PhasePlan {
        index: 1,
        start_ns: START_NS + 10 * MS,
        ..open(&constant(1000.0, Some(1), None), Overload::Queue)
    };
    let (_, totals) = run(shard_plan(8), endpoint, vec![first, last], None);
    assert_values(
        &totals[0].headline_ns,
        &totals[0].headline,
        [2500, 2000, 1500, 1000].map(|us| us * US).to_vec(),
    );
    assert_values(&totals[1].headline_ns, &totals[1].headline, vec![MS]);
}

#[test]
fn poisson_arrivals_at_one_exponential_server() {
    let half = check(&Case {
        rate: 500.0,
        stream: 1,
        service_ns: exponential_ns(20_000, 1),
        servers: 1,
        closed_form: [2.0, 1.386, 9.210, 13.816],
        tolerance: [0.05, 0.1],
    });
    assert_near(half, 1.0, 0.05);
    let busy = check(&Case {
        rate: 800.0,
        stream: 2,
        service_ns: exponential_ns(20_000, 2),
        servers: 1,
        closed_form: [5.0, 3.466, 23.03, 34.54],
        tolerance: [0.1, 0.2],
    });
    assert_near(busy, 4.0, 0.4);
}

#[test]
fn poisson_arrivals_at_one_server_that_takes_always_the_same_time() {
    let half = check(&Case {
        rate: 500.0,
        stream: 3,
        service_ns: vec![MS; 20_000],
        servers: 1,
        closed_form: [1.5, 1.0, 4.336, 6.168],
        tolerance: [0.05, 0.1],
    });
    assert_near(half, 0.75, 0.03);
    check(&Case {
        rate: 800.0,
        stream: 4,
        service_ns: vec![MS; 20_000],
        servers: 1,
        closed_form: [3.0, 2.276, 11.356, 16.70],
        tolerance: [0.08, 0.15],
    });
}

#[test]
fn poisson_arrivals_at_several_exponential_servers() {
    let four = check(&Case {
        rate: 3200.0,
        stream: 5,
        service_ns: exponential_ns(20_000, 3),
        servers: 4,
        closed_form: [1.7455, 1.346, 6.893, 9.880],
        tolerance: [0.08, 0.15],
    });
    assert_near(four, 5.586, 0.5);
    let eight = check(&Case {
        rate: 6400.0,
        stream: 6,
        service_ns: exponential_ns(20_000, 4),
        servers: 8,
        closed_form: [1.286, 0.986, 5.152, 7.470],
        tolerance: [0.08, 0.15],
    });
    assert_near(eight, 8.231, 0.7);
}

#[test]
fn oracle_that_forgets_the_queue_is_found_out() {
    // Negative control of the pairing: with a second server the latencies are others.
    let service_ns = exponential_ns(2000, 1);
    let schedule = poisson(800.0, Some(2000), None);
    let due_ns = due_ns(&schedule);
    let endpoint =
        SimEndpoint { service_ns: service_ns.clone(), servers: 1, ..SimEndpoint::default() };
    let totals = measure(64, endpoint, open(&schedule, Overload::Queue));
    let sum = |servers| -> u128 {
        oracle_ns(&due_ns, &service_ns, servers).into_iter().map(u128::from).sum()
    };
    assert_eq!(totals.headline.total_ns, sum(1));
    assert!(totals.headline.total_ns > 2 * sum(2));
}
