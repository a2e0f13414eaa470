//! Random endpoints, plans and commands in virtual time: nothing is lost, whatever happens.

use std::ops::Range;
use std::sync::Arc;

use rtrb::{Producer, RingBuffer};

use super::tests::{BEGIN_NS, MS, Setup, Totals, phase, shard_plan};
use super::{Issuing, Shard, ShardPlan};
use crate::answer::{AnswerFormat, AnswerPlan};
use crate::connection::State;
use crate::order::{Order, SampleOrder};
use crate::phase::{
    Command, FitSample, Overload, Pattern, PhasePlan, Rest, Source, Timeouts, TimerPhase, Wait,
};
use crate::query::{Query, Request, RequestTable};
use crate::schedule::{Arrival, Process, Profile, Schedule, SchedulePlan, hash_of};
use crate::sim::SimEndpoint;
use crate::timer::Dispatch;

impl Shard {
    /// What holds between two turns.
    pub(super) fn assert_consistent(&self) {
        let count = |state: State| self.connections.iter().filter(|c| c.state == state).count();
        assert_eq!(count(State::Idle), self.pool.idle_count(), "idle ones are in the pool");
        assert_eq!(count(State::Closed), self.pool.closed_count(), "so are closed ones");
        let handshakes = count(State::Connecting) + count(State::Securing);
        assert_eq!(handshakes, self.handshakes as usize, "handshakes");
        assert_eq!(count(State::Queued), self.connect_queue.len(), "queue for handshakes");
        let carried = self.connections.iter().filter(|c| c.query.is_some()).count();
        assert_eq!(carried as u64, self.in_flight, "one query a slot");
        for connection in &self.connections {
            // While it backs off a slot keeps a query only to wait for a full backlog.
            let may_carry = !matches!(connection.state, State::Idle | State::Closed);
            assert!(may_carry || connection.query.is_none(), "{:?}", connection.state);
            assert!(connection.state != State::Busy || connection.query.is_some());
        }
        let waiting = self.backlog.len() as u64;
        let Some(active) = &self.active else {
            assert_eq!(waiting, 0, "nothing waits without a phase");
            return;
        };
        let of_phase = |query: &&Query| query.phase == active.plan.index;
        let in_flight = self.connections.iter().filter_map(|c| c.query.as_ref()).filter(of_phase);
        assert_eq!(in_flight.count() as u64, active.in_flight, "a phase knows its queries");
        assert_eq!(active.area.number as u64, active.in_flight + waiting, "L of Little's law");
    }

    /// What holds when all has begun that can.
    pub(super) fn assert_served(&mut self) {
        let Some(active) = &mut self.active else { return };
        let now_ns = self.now_ns;
        let limit_ns = active.take_limit_ns();
        if active.is_past_drain(now_ns) {
            return;
        }
        let has_room = match active.issuing {
            Issuing::Open { in_flight, .. } => self.in_flight < u64::from(in_flight),
            Issuing::Closed { .. } => false,
        };
        for target in 0..self.plan.table.targets.len() as u32 {
            let has_both = self.backlog.has(target) && self.pool.has_free(target) && has_room;
            assert!(!has_both, "nobody waits for what is free");
        }
        let Issuing::Open { arrivals, is_held_back, overload, .. } = &mut active.issuing else {
            return;
        };
        assert!(!*is_held_back || *overload == Overload::Queue, "who drops holds nothing back");
        if let Some(next) = arrivals.peek(&mut self.ring) {
            let due_ns = active.plan.start_ns.saturating_add(next.offset_ns);
            let is_left = due_ns <= now_ns && due_ns < limit_ns;
            assert!(!is_left || *is_held_back || self.due_left == 0, "what is due is taken");
        }
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

/// What an endpoint answers, in one of these ways each time.
const RESPONSES: [&[u8]; 5] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"garbage",
];

const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                             Transfer-Encoding: chunked\r\n\r\n";

/// What may come of a stream, in HTTP chunks or not.
const PIECES: [&[u8]; 7] = [
    b"3b\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hey\"}}]}\n\n\r\n",
    b"e\r\ndata: [DONE]\n\n\r\n",
    b"0\r\n\r\n",
    b"9\r\ndata: {}\n\r\n",
    b"9\r\n\ndata: x\n\r\n",
    b"14\r\ndata: {\"error\":\"e\"}\n\r\n1\r\n\n\r\n",
    b"garbage",
];

/// Pieces at instants, the token more often than the rest.
fn stream(random: &mut impl FnMut(u64) -> u64) -> Vec<(u64, Vec<u8>)> {
    let mut at_ns = 0;
    let mut piece = |_| {
        at_ns += random(2) * random(20 * MS);
        (at_ns, PIECES[(random(10) as usize).saturating_sub(3)].to_vec())
    };
    (0..8).map(&mut piece).collect()
}

/// `Setup::run` itself asserts that every query is accounted for.
fn run_seed(seed: u64) {
    let mut state = seed;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let in_flight = 1 + random(40) as u32;
    let is_chat = random(2) == 0;
    let endpoint = endpoint(is_chat, &mut random);
    let timeouts = Timeouts {
        request_ns: random(3) * random(50 * MS),
        connect_ns: random(3) * random(40 * MS),
        idle_ns: random(3) * random(50 * MS),
        ttft_ns: random(3) * random(50 * MS),
    };
    let targets = 1 + random(3) as u32;
    let format = if is_chat { AnswerFormat::Chat } else { AnswerFormat::Plain };
    let answers = AnswerPlan { format, ..AnswerPlan::PLAIN };
    let plan = ShardPlan {
        wait: [Wait::Sleep, Wait::Hybrid][random(2) as usize],
        table: RequestTable { answers: Arc::new(answers), ..table_of(targets) },
        timeouts,
        keepalive: random(3) > 0,
        connections_per_target: random(u64::from(in_flight) + 1) as u32,
        ..shard_plan(in_flight)
    };
    let mut ring = RingBuffer::new(10_000);
    let mut lists = Vec::new();
    let phases: Vec<PhasePlan> = (0..1 + random(3) as u32)
        .map(|index| {
            let mut plan = PhasePlan {
                start_ns: [0, BEGIN_NS + random(300 * MS)][random(2) as usize],
                duration_ns: Some(random(400 * MS)),
                drain_timeout_ns: random(2) * random(200 * MS),
                order: SampleOrder::new(Order::Sequential, targets, 0),
                ..phase(
                    index,
                    1 + random(u64::from(in_flight)) as u32,
                    [None, Some(random(300))][random(2) as usize],
                )
            };
            let is_open = random(3) > 0;
            lists.push(is_open.then(|| open_up(&mut plan, &mut ring.0, &mut random)));
            plan
        })
        .collect();
    let mut instants =
        [random(500 * MS), random(500 * MS), random(100 * MS)].map(|ns| BEGIN_NS + ns);
    instants[2] += instants[0];
    let told_end = (random(3) == 0).then(|| (random(3) as u32, instants[2]));
    let end = told_end.map(|(phase, at_ns)| Command::EndAt { phase, at_ns });
    let word = match random(6) {
        0 => Some(Command::Stop),
        1 => Some(Command::Cancel),
        _ => None,
    };
    // A query may wait for a full backlog for ever; all phases are over long before.
    let script = instants.into_iter().zip([end, word]);
    let script = script.chain([(BEGIN_NS + 400_000 * MS, Some(Command::Exit))]);
    let script = script.filter_map(|(at_ns, command)| Some((at_ns, command?))).collect();
    let starts: Vec<u64> = phases.iter().map(|plan| plan.start_ns).collect();
    let setup = Setup { script, dispatches: Some(ring.1), ..Setup::new(plan, endpoint, phases) };
    let (_, totals) = setup.run();
    for (index, (totals, list)) in totals.iter().zip(lists).enumerate() {
        assert!(totals.latencies_ns.iter().all(|&ns| ns < 2000 * MS), "of this run");
        if let Some(list) = list.filter(|_| totals.start_ns > 0) {
            let told_ns = told_end.filter(|&(phase, _)| phase == index as u32);
            let end_ns = told_ns.map_or(totals.issue_end_ns, |(_, ns)| ns.min(totals.issue_end_ns));
            assert_list_is_accounted_for(totals, &list, starts[index]..end_ns);
        }
    }
}

/// An endpoint that does something of all that one may do.
fn endpoint(is_chat: bool, random: &mut impl FnMut(u64) -> u64) -> SimEndpoint {
    let response =
        if is_chat { STREAM_HEAD } else { RESPONSES[random(RESPONSES.len() as u64) as usize] };
    SimEndpoint {
        service_ns: (0..50).map(|_| MS / 5 + random(3) * random(40 * MS)).collect(),
        servers: [1, 7, usize::MAX][random(3) as usize],
        response: response.to_vec(),
        later: if is_chat { stream(random) } else { vec![] },
        answers: [u64::MAX, random(200)][random(2) as usize],
        connect_ns: random(3) * random(30 * MS),
        connect_errno: [0, 0, 0, 0, libc::ECONNREFUSED, libc::EAGAIN][random(6) as usize],
        closes_after: random(5) as u32,
        close_ns: random(2) * random(if is_chat { 60 * MS } else { 3 * MS }),
        close_errno: [0, libc::ECONNRESET][random(2) as usize],
        greets: random(8) == 0,
        stutters: random(4) == 0,
        resets_every: random(3) * random(20),
        client_stalls_ns: (0..random(3)).map(|_| stall(random)).collect(),
        turn_ns: 2000 + random(10_000),
        overshoot_ns: random(2) * random(100_000),
        send_ns: random(2) * random(20_000),
        ..SimEndpoint::default()
    }
}

/// A stretch in which the client is not there.
fn stall(random: &mut impl FnMut(u64) -> u64) -> (u64, u64) {
    let begin_ns = BEGIN_NS + random(500 * MS);
    (begin_ns, begin_ns + 1 + random(100 * MS))
}

/// So many targets that take turns.
fn table_of(targets: u32) -> RequestTable {
    let one = shard_plan(1).table;
    RequestTable {
        requests: (0..targets)
            .map(|target| Request { target, ..one.requests[0].clone() })
            .collect(),
        targets: (0..targets).map(|_| one.targets[0].clone()).collect(),
        ..one
    }
}

/// Makes a phase one in open loop; its instants come from the shard itself or through the ring.
fn open_up(
    plan: &mut PhasePlan,
    ring: &mut Producer<Dispatch>,
    random: &mut impl FnMut(u64) -> u64,
) -> Vec<Arrival> {
    plan.start_ns = BEGIN_NS + 1 + random(300 * MS);
    if random(4) == 0 {
        plan.duration_ns = None;
    }
    let schedule = Box::new(Schedule::new(&SchedulePlan {
        process: [Process::Poisson, Process::Constant { jitter: 0.5 }][random(2) as usize],
        profile: Arc::new(Profile::constant(10.0 + random(5000) as f64).expect("a valid rate")),
        seed: random(u64::MAX),
        stream: 0,
        count: Some(random(2000)),
        end_ns: plan.duration_ns,
    }));
    let list: Vec<Arrival> = (*schedule).clone().collect();
    let source = if random(3) == 0 {
        for &arrival in &list {
            ring.push(Dispatch { arrival, phase: plan.index }).expect("room");
        }
        let mut schedule = schedule;
        schedule.by_ref().for_each(drop);
        let shared = TimerPhase::default();
        shared.end(Rest { pending: None, schedule });
        Source::Timer(Arc::new(shared))
    } else {
        Source::Own(schedule)
    };
    let overload = [Overload::Queue, Overload::Drop][random(2) as usize];
    let fit = FitSample { every: 1 + random(3), offset: 0 };
    let in_flight = [u32::MAX, 1 + random(80) as u32][random(2) as usize];
    plan.pattern = Pattern::OpenLoop { in_flight, source, overload, fit };
    list
}

/// Every entry that was due is in the counts and in the hash, and no other.
fn assert_list_is_accounted_for(totals: &Totals, list: &[Arrival], span_ns: Range<u64>) {
    // What is due at the very end may have gone just before it was told.
    let due_ns = |arrival: &Arrival| span_ns.start + arrival.offset_ns;
    let is_at_end = |arrival: &&Arrival| due_ns(arrival) == span_ns.end;
    let due: Vec<&Arrival> = list.iter().take_while(|a| due_ns(a) < span_ns.end).collect();
    let last = list.get(due.len()).filter(is_at_end);
    let hash = due.iter().fold(0u64, |sum, &&arrival| sum.wrapping_add(hash_of(arrival)));
    let mut possible = vec![(due.len() as u64, hash)];
    possible.extend(last.map(|&last| (due.len() as u64 + 1, hash.wrapping_add(hash_of(last)))));
    let counters = totals.counters;
    let is = (counters.scheduled, totals.schedule_hash);
    assert!(possible.contains(&is), "{is:?} {possible:?}");
    let taken = totals.lateness.count + counters.held_back;
    assert!((counters.issued + counters.dropped..=counters.scheduled).contains(&taken));
    assert!((counters.completed..=counters.issued).contains(&totals.pool_wait.count));
    assert_eq!(totals.headline.total_ns, u128::from(totals.parts.total_ns()));
}
