//! Random endpoints, plans and commands in virtual time: nothing is lost, whatever happens.

use super::tests::{BEGIN_NS, MS, phase, run, shard_plan};
use super::{Shard, ShardPlan};
use crate::connection::State;
use crate::phase::{PhasePlan, Timeouts};
use crate::sim::SimEndpoint;

impl Shard {
    /// What holds between two turns.
    pub(super) fn assert_consistent(&self) {
        let count = |state: State| self.connections.iter().filter(|c| c.state == state).count();
        assert_eq!(count(State::Idle), self.pool.idle_count(), "idle ones are in the pool");
        assert_eq!(count(State::Closed), self.pool.closed_count(), "so are closed ones");
        assert_eq!(count(State::Connecting), self.handshakes as usize, "handshakes");
        assert_eq!(count(State::Queued), self.connect_queue.len(), "queue for handshakes");
        let carried = self.connections.iter().filter(|c| c.query.is_some()).count();
        assert_eq!(carried as u64, self.in_flight, "one query a slot");
        for connection in &self.connections {
            // While it backs off a slot keeps a query only to wait for a full backlog.
            let may_carry = !matches!(connection.state, State::Idle | State::Closed);
            assert!(may_carry || connection.query.is_none(), "{:?}", connection.state);
            assert!(connection.state != State::Busy || connection.query.is_some());
        }
        let of_phase = self.active.as_ref().map_or(0, |active| active.in_flight);
        assert!(of_phase <= self.in_flight, "a phase has no more than the shard");
    }
}

#[test]
fn nothing_is_lost_whatever_happens() {
    for seed in 0..300 {
        // A panic names its thread.
        let thread = std::thread::Builder::new().name(format!("seed {seed}"));
        thread.spawn(move || run_seed(seed)).expect("a thread").join().expect("see above");
    }
}

/// `run` itself asserts that every query is accounted for.
fn run_seed(seed: u64) {
    let mut state = seed;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let in_flight = 1 + random(80) as u32;
    let responses: [&[u8]; 5] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"garbage",
    ];
    let endpoint = SimEndpoint {
        service_ns: (0..50).map(|_| MS / 5 + random(3) * random(40 * MS)).collect(),
        servers: [1, 7, usize::MAX][random(3) as usize],
        response: responses[random(5) as usize].to_vec(),
        answers: [u64::MAX, random(200)][random(2) as usize],
        connect_ns: random(3) * random(30 * MS),
        connect_errno: [0, 0, 0, libc::ECONNREFUSED][random(4) as usize],
        closes_after: random(5) as u32,
        close_ns: random(2) * random(3 * MS),
        stutters: random(4) == 0,
        ..SimEndpoint::default()
    };
    let timeouts = Timeouts {
        request_ns: random(3) * random(50 * MS),
        connect_ns: random(3) * random(40 * MS),
        idle_ns: random(3) * random(50 * MS),
    };
    let plan = ShardPlan {
        timeouts,
        keepalive: random(3) > 0,
        connections_per_target: random(u64::from(in_flight) + 1) as u32,
        ..shard_plan(in_flight)
    };
    let phases: Vec<PhasePlan> = (0..1 + random(3) as u32)
        .map(|index| PhasePlan {
            start_ns: [0, BEGIN_NS + random(300 * MS)][random(2) as usize],
            duration_ns: Some(random(400 * MS)),
            drain_timeout_ns: random(2) * random(200 * MS),
            ..phase(
                index,
                1 + random(u64::from(in_flight)) as u32,
                [None, Some(random(300))][random(2) as usize],
            )
        })
        .collect();
    let command = (random(3) == 0).then(|| (BEGIN_NS + random(500 * MS), random(2) == 0));
    let (_, totals) = run(plan, endpoint, phases, command);
    for totals in totals {
        assert!(totals.latencies_ns.iter().all(|&ns| ns < 2000 * MS), "of this run");
    }
}
