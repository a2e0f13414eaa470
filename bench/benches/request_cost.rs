//! What a request costs a shard in user space, whole and by parts.
//!
//! `request/parse_stamps_histograms` is the figure with a bound: at most 400 ns on the reference
//! machine. It is what a shard must do to measure, without the connection around it.
//! `request/shard_on_sim` is everything above the seam plus the virtual reactor's own heap, so an
//! upper bound of the loop. The parts say where the time goes; they do not add up to the whole, as
//! each runs with warm caches and a trained branch predictor of its own.

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use criterion::{Bencher, Criterion};
    use crossbeam_channel::bounded;
    use loadgen_shards::answer::AnswerPlan;
    use loadgen_shards::clock::{Calibration, Calibrator, Clock};
    use loadgen_shards::http1::{Carry, ResponseParser, Step};
    use loadgen_shards::order::{Order, SampleOrder};
    use loadgen_shards::phase::{
        Command, Pattern, PhaseKind, PhasePlan, Positions, Timeouts, Wait,
    };
    use loadgen_shards::query::{Address, Request, RequestTable, Target};
    use loadgen_shards::reactor::{EngineChoice, Reactor};
    use loadgen_shards::recorder::{Recording, Series, Stamps};
    use loadgen_shards::schedule::{Process, Profile, Schedule, SchedulePlan};
    use loadgen_shards::shard::{Link, Shard, ShardPlan};
    use loadgen_shards::sim::{Sim, SimEndpoint};
    use loadgen_shards::token::{Operation, Token};
    use loadgen_shards::wheel::Wheel;

    pub fn benches(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("request");
        group.bench_function("parse_stamps_histograms", request);
        group.bench_function("open_loop_stamps_histograms", open_loop_instrument);
        group.bench_function("shard_on_sim", |bencher| bencher.iter_custom(shard_on_sim));
        group.finish();
        let mut group = criterion.benchmark_group("part");
        group.bench_function("parse", parse);
        group.bench_function("clock_read", clock_read);
        group.bench_function("series_record", series_record);
        group.bench_function("wheel_set", wheel_set);
        group.bench_function("token_round_trip", token_round_trip);
        group.bench_function("positions_claim", positions_claim);
        group.bench_function("schedule_entry", schedule_entry);
        group.finish();
    }

    /// 200 bytes, as small APIs answer.
    fn response() -> Vec<u8> {
        let mut response = b"HTTP/1.1 200 OK\r\nServer: nginx/1.27.10\r\n\
                             Date: Mon, 30 Nov 2026 09:00:00 GMT\r\nContent-Length: 100\r\n\r\n"
            .to_vec();
        assert_eq!(response.len(), 100, "half of it is head");
        response.resize(200, b'x');
        response
    }

    /// Reads one response; its body bytes.
    fn read(mut input: &[u8], carry: &mut Carry) -> usize {
        let mut parser = ResponseParser::new(false);
        let mut body_bytes = 0;
        loop {
            match parser.step(&mut input, carry) {
                Ok(Step::Body(bytes)) => body_bytes += bytes.len(),
                Ok(Step::End { .. }) => return body_bytes,
                Ok(Step::Head(_) | Step::Interim(_)) => {}
                Ok(Step::More) | Err(_) => panic!("the response is whole and well-formed"),
            }
        }
    }

    fn clock() -> Clock {
        Clock::new(Calibrator::begin().finish())
    }

    /// Latencies that move over some hundred buckets, as real ones do.
    fn latencies() -> impl Iterator<Item = u64> {
        (0u64..).map(|index| 20_000 + index.wrapping_mul(7919) % 200_000)
    }

    fn request(bencher: &mut Bencher<'_>) {
        let response = response();
        let clock = clock();
        let (mut service, mut ttfb) = (Series::default(), Series::default());
        let (mut carry, mut latencies) = (Carry::default(), latencies());
        bencher.iter(|| {
            let sent_ns = clock.now_ns();
            let first_byte_ns = clock.now_ns();
            let body_bytes = read(black_box(&response), &mut carry);
            let complete_ns = clock.now_ns();
            let latency_ns = latencies.next().unwrap_or(0);
            ttfb.record(latency_ns + first_byte_ns - sent_ns);
            service.record(latency_ns + complete_ns - sent_ns);
            body_bytes
        });
    }

    /// What our own stamps and histograms of an open loop cost a request: three reads of the clock
    /// (due, send, receive) and all series, as when no batch shares a stamp.
    fn open_loop_instrument(bencher: &mut Bencher<'_>) {
        let clock = clock();
        let (mut recording, mut latencies) = (Recording::default(), latencies());
        bencher.iter(|| {
            let dispatched_ns = clock.now_ns();
            let sent_ns = clock.now_ns();
            let received_ns = clock.now_ns();
            let latency_ns = latencies.next().unwrap_or(0);
            let scheduled_ns = dispatched_ns - latency_ns % 512;
            recording.lateness.record(dispatched_ns - scheduled_ns);
            recording.pool_wait.record(0);
            recording.success(
                &Stamps {
                    scheduled_ns,
                    dispatched_ns,
                    ready_ns: dispatched_ns,
                    sent_ns,
                    first_byte_ns: received_ns + latency_ns,
                    complete_ns: received_ns + latency_ns,
                },
                None,
                None,
            );
        });
    }

    /// One entry of a Poisson schedule, drawn and kept by the only shard.
    fn schedule_entry(bencher: &mut Bencher<'_>) {
        let mut schedule = Schedule::new(&SchedulePlan {
            process: Process::Poisson,
            profile: Arc::new(Profile::constant(1e6).expect("a valid rate")),
            seed: 42,
            stream: 0,
            count: None,
            end_ns: None,
        });
        bencher.iter(|| schedule.next());
    }

    fn parse(bencher: &mut Bencher<'_>) {
        let response = response();
        let mut carry = Carry::default();
        bencher.iter(|| read(black_box(&response), &mut carry));
    }

    fn clock_read(bencher: &mut Bencher<'_>) {
        let clock = clock();
        bencher.iter(|| clock.now_ns());
    }

    fn series_record(bencher: &mut Bencher<'_>) {
        let (mut series, mut latencies) = (Series::default(), latencies());
        bencher.iter(|| series.record(latencies.next().unwrap_or(0)));
    }

    /// A request timeout of 64 connections, each moved as its turn comes.
    fn wheel_set(bencher: &mut Bencher<'_>) {
        const TIMEOUT_NS: u64 = 5_000_000_000;
        let mut wheel = Wheel::new(64, 0);
        let mut now_ns = 0;
        let mut slot = 0;
        bencher.iter(|| {
            now_ns += 1000;
            slot = (slot + 1) % 64;
            wheel.set(slot, now_ns + TIMEOUT_NS);
        });
    }

    fn token_round_trip(bencher: &mut Bencher<'_>) {
        let token = Token { operation: Operation::Send, generation: 5, slot: 77 };
        bencher.iter(|| Token::decode(black_box(black_box(token).encode())));
    }

    /// One position, claimed alone: the worst case, where nobody shares the atomic among 64.
    fn positions_claim(bencher: &mut Bencher<'_>) {
        let positions = Positions::new(None, 1);
        bencher.iter(|| positions.claim(1));
    }

    /// The time of a phase of `requests` requests on 64 connections in virtual time.
    fn shard_on_sim(requests: u64) -> Duration {
        const IN_FLIGHT: u32 = 64;
        let (command_sender, commands) = bounded(4);
        // Room for the hand-over of every virtual interval: nobody listens meanwhile.
        let (message_sender, messages) = bounded(64);
        let (_recycle, recycled) = bounded(1);
        let endpoint =
            SimEndpoint { service_ns: vec![1], response: response(), ..SimEndpoint::default() };
        let sim = Sim::new(IN_FLIGHT, endpoint, command_sender.clone());
        let plan = PhasePlan {
            index: 0,
            kind: PhaseKind::Performance,
            pattern: Pattern::ClosedLoop {
                in_flight: IN_FLIGHT,
                positions: Arc::new(Positions::new(Some(requests), 1)),
            },
            order: SampleOrder::new(Order::Sequential, 1, 0),
            start_ns: 0,
            duration_ns: None,
            drain_timeout_ns: u64::MAX,
            clock: Calibration::IDENTITY,
        };
        command_sender.send(Command::Phase(Box::new(plan))).expect("room");
        let link = Link {
            commands,
            messages: message_sender,
            recycled,
            live: Arc::default(),
            peers: vec![],
            dispatches: None,
            records: None,
        };
        let shard = Shard::new(shard_plan(IN_FLIGHT), link, Reactor::Sim(Box::new(sim)));
        let begin = Instant::now();
        shard.run();
        let elapsed = begin.elapsed();
        drop(messages);
        elapsed
    }

    fn shard_plan(in_flight: u32) -> ShardPlan {
        let request = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
        let address = Address::Inet(([127, 0, 0, 1], 1).into());
        ShardPlan {
            index: 0,
            core: None,
            wait: Wait::Sleep,
            engine: EngineChoice::Auto,
            table: RequestTable {
                arena: Arc::from(*request),
                requests: Arc::from([Request::plain(0..request.len(), 0, false)]),
                targets: Arc::from([Target::plain(address, None)]),
                answers: Arc::new(AnswerPlan::PLAIN),
            },
            slots_per_target: in_flight,
            connections_per_target: in_flight,
            timeouts: Timeouts { request_ns: 5_000_000_000, ..Timeouts::default() },
            keepalive: true,
            accept_status: (200, 299),
            goals: None,
            clock: Calibration::IDENTITY,
            wire_stamps: None,
        }
    }
}

#[cfg(target_os = "linux")]
criterion::criterion_group!(benches, linux::benches);
#[cfg(target_os = "linux")]
criterion::criterion_main!(benches);

#[cfg(not(target_os = "linux"))]
fn main() {}
