//! A shard that is warm allocates nothing: not for a request, not for an interval, not at the begin
//! or end of a phase.
#![cfg(target_os = "linux")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use loadgen_bench::{Endpoint, EndpointConfig};
use loadgen_shards::answer::AnswerPlan;
use loadgen_shards::clock::{Calibration, Calibrator};
use loadgen_shards::order::{Order, SampleOrder};
use loadgen_shards::phase::{
    Command, FitSample, Message, Overload, Pattern, PhaseKind, PhasePlan, Positions, Ready, Source,
    Timeouts, Wait,
};
use loadgen_shards::query::{Address, Request, RequestTable, Target};
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::recorder::Recording;
use loadgen_shards::schedule::{Process, Profile, Schedule, SchedulePlan};
use loadgen_shards::shard::{self, Link, ShardPlan};
use loadgen_shards::sys::allocator::CountingAllocator;
use loadgen_shards::sys::time::monotonic_ns;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// The count is one for the process: one claim at a time.
static TURN: Mutex<()> = Mutex::new(());

const IN_FLIGHT: u32 = 8;

/// What differs between two runs.
#[derive(Clone, Copy, Debug)]
struct Case {
    engine: EngineChoice,
    request: &'static str,
    keepalive: bool,
    response_body_bytes: usize,
    requests: u64,
    wire_stamps: Option<u32>,
    /// Requests per second of an open loop; `None`: closed loop.
    rate: Option<f64>,
    wait: Wait,
}

impl Case {
    fn pattern(&self, requests: u64) -> Pattern {
        let Some(rate) = self.rate else {
            let positions = Arc::new(Positions::new(Some(requests), 1));
            return Pattern::ClosedLoop { in_flight: IN_FLIGHT, positions };
        };
        let schedule = Schedule::new(&SchedulePlan {
            process: Process::Poisson,
            profile: Arc::new(Profile::constant(rate).expect("a valid rate")),
            seed: 42,
            stream: 0,
            count: Some(requests),
            end_ns: None,
        });
        Pattern::OpenLoop {
            in_flight: IN_FLIGHT,
            source: Source::Own(Box::new(schedule)),
            overload: Overload::Queue,
            fit: FitSample { every: 1, offset: 0 },
        }
    }
}

/// Control's side of one shard.
struct Control {
    commands: Sender<Command>,
    messages: Receiver<Message>,
    recycle: Sender<(Box<Recording>, Calibration)>,
    clock: Calibration,
}

impl Control {
    fn ready(&self) -> Box<Ready> {
        match self.messages.recv_timeout(PATIENCE).expect("the shard speaks") {
            Message::Ready(ready) => ready,
            message => panic!("{message:?}"),
        }
    }

    /// Plans a phase. All that it needs is allocated when the shard hears of it.
    fn hand_over(&self, index: u32, case: &Case, requests: u64, start_ns: u64) {
        let plan = PhasePlan {
            index,
            kind: PhaseKind::Performance,
            pattern: case.pattern(requests),
            order: SampleOrder::new(Order::Sequential, 1, 0),
            start_ns,
            duration_ns: None,
            drain_timeout_ns: 5_000_000_000,
            clock: self.clock,
        };
        self.commands.send(Command::Phase(Box::new(plan))).expect("heard");
    }

    /// Awaits the end of a phase, giving recordings back as they come. Returns the completed
    /// requests.
    fn await_end(&self, index: u32) -> u64 {
        let mut completed = 0;
        loop {
            match self.messages.recv_timeout(PATIENCE).expect("the shard speaks") {
                Message::Interval { mut recording, .. } => {
                    completed += recording.counters.completed;
                    recording.reset();
                    self.recycle.send((recording, self.clock)).expect("taken");
                }
                Message::PhaseEnded { phase, .. } if phase == index => return completed,
                message => panic!("{message:?}"),
            }
        }
    }
}

fn plan(case: Case, address: Address, clock: Calibration) -> ShardPlan {
    let request = Request::plain(0..case.request.len(), 0, false);
    ShardPlan {
        index: 0,
        core: None,
        wait: case.wait,
        engine: case.engine,
        table: RequestTable {
            arena: Arc::from(case.request.as_bytes()),
            requests: Arc::from([request]),
            targets: Arc::from([Target::plain(address, None)]),
            answers: Arc::new(AnswerPlan::PLAIN),
        },
        slots_per_target: IN_FLIGHT,
        connections_per_target: IN_FLIGHT,
        timeouts: Timeouts {
            request_ns: 10_000_000_000,
            connect_ns: 10_000_000_000,
            ttft_ns: 10_000_000_000,
            idle_ns: 10_000_000_000,
        },
        keepalive: case.keepalive,
        accept_status: (200, 299),
        goals: None,
        clock,
        wire_stamps: case.wire_stamps,
    }
}

/// Allocations of a shard during the second of two phases.
fn allocations_once_warm(case: Case) -> u64 {
    let endpoint = Endpoint::start(&EndpointConfig {
        body_bytes: case.response_body_bytes,
        engine: EngineChoice::Epoll,
        ..EndpointConfig::default()
    })
    .expect("a free port");
    let clock = Calibrator::begin().finish();
    // Bounded: an unbounded channel allocates in the thread that sends.
    let (commands_in, commands) = bounded(4);
    let (messages_in, messages) = bounded(64);
    let (recycle, recycled) = bounded(8);
    let link = Link {
        commands,
        messages: messages_in,
        recycled,
        live: Arc::default(),
        peers: vec![],
        dispatches: None,
        records: None,
    };
    let address = Address::Inet(endpoint.address());
    let thread = shard::spawn(plan(case, address, clock), link).expect("a thread");
    let control = Control { commands: commands_in, messages, recycle, clock };

    let ready = control.ready();
    let now_ns = monotonic_ns();
    control.hand_over(0, &case, 200, now_ns + FIRST_DELAY_NS);
    control.hand_over(1, &case, case.requests, now_ns + SECOND_DELAY_NS);
    ready.waker.wake();
    assert_eq!(control.await_end(0), 200, "{case:?}");
    // The second phase has yet to begin, so what its begin allocates is in the count.
    let before = ALLOCATOR.count();
    assert!(before > 0, "a shard allocates when it starts");
    assert_eq!(control.await_end(1), case.requests, "{case:?}");
    let allocations = ALLOCATOR.count() - before;
    control.commands.send(Command::Exit).expect("heard");
    ready.waker.wake();
    thread.join().expect("a shard ends in good order");
    assert_eq!(endpoint.requests(), 200 + case.requests, "they were real");
    allocations
}

#[test]
fn warm_shard_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    const LAST: &str = "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    for engine in [EngineChoice::Uring, EngineChoice::Epoll] {
        if engine == EngineChoice::Uring
            && let Err(reason) = loadgen_shards::sys::uring::probe()
        {
            eprintln!("skipped: {reason}");
            continue;
        }
        let small = Case {
            engine,
            request: GET,
            keepalive: true,
            response_body_bytes: 100,
            requests: 10_000,
            wire_stamps: None,
            rate: None,
            wait: Wait::Sleep,
        };
        let large = Case { response_body_bytes: 50_000, requests: 3000, ..small };
        let reconnecting = Case { request: LAST, keepalive: false, requests: 1000, ..small };
        let stamped = Case { wire_stamps: Some(3), ..small };
        let stamped_large = Case { wire_stamps: Some(3), ..large };
        for case in [small, large, reconnecting, stamped, stamped_large] {
            assert_eq!(allocations_once_warm(case), 0, "{case:?}");
        }
        let hybrid = Case { requests: 2000, rate: Some(4000.0), wait: Wait::Hybrid, ..small };
        let inline = Case { wait: Wait::Spin, ..hybrid };
        // More than eight connections carry: most wait in the backlog.
        let queued = Case { requests: 5000, rate: Some(1e6), ..hybrid };
        let open_reconnecting = Case { request: LAST, keepalive: false, ..queued };
        for open in [hybrid, inline, queued, open_reconnecting] {
            for wire_stamps in [None, Some(3)] {
                let case = Case { wire_stamps, ..open };
                assert_eq!(allocations_once_warm(case), 0, "{case:?}");
            }
        }
    }
}

#[test]
fn counter_sees_what_a_shard_allocates_and_nothing_else() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let counted = |name: &str| {
        let thread = std::thread::Builder::new().name(name.to_string());
        let body = || {
            let before = ALLOCATOR.count();
            let mut bytes = std::hint::black_box(Vec::<u8>::with_capacity(10));
            bytes.reserve_exact(100);
            drop(std::hint::black_box(bytes));
            ALLOCATOR.count() - before
        };
        thread.spawn(body).expect("a thread").join().expect("no panic")
    };
    assert_eq!(counted("shard-7"), 2, "an allocation and a reallocation");
    assert_eq!(counted("endpoint-0"), 0);
}

/// Between the plan of a phase and its begin.
const FIRST_DELAY_NS: u64 = 5_000_000;
/// Time for the first phase. It may take longer; the second then begins with its end.
const SECOND_DELAY_NS: u64 = 150_000_000;
/// For one message; a machine that is slower than this is broken.
const PATIENCE: Duration = Duration::from_secs(60);
