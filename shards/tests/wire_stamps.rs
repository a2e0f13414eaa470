//! Kernel stamps on loopback, against a server that reads the kernel's clock itself (gate G16).
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crossbeam_channel::bounded;
use loadgen_shards::answer::AnswerPlan;
use loadgen_shards::clock::Calibrator;
use loadgen_shards::limits::{BUFFER_COUNT, SEND_PIECE_BYTES};
use loadgen_shards::order::{Order, SampleOrder};
use loadgen_shards::phase::{
    Command, Message, Pattern, PhaseKind, PhasePlan, Positions, Timeouts, Wait,
};
use loadgen_shards::query::{Address, Request, RequestTable, Target};
use loadgen_shards::reactor::{EngineChoice, Event, EventKind, Reactor, ReactorConfig};
use loadgen_shards::realtime::{Mapped, Reading, RealtimeMap};
use loadgen_shards::recorder::{Counters, Recording, Series};
use loadgen_shards::shard::{self, Link, ShardPlan};
use loadgen_shards::sys::time::{monotonic_ns, realtime_ns, thread_cpu_ns};
use loadgen_shards::sys::uring;

/// How the server behaves.
#[derive(Clone, Copy, Debug)]
struct Script {
    request_bytes: usize,
    body_bytes: usize,
    /// Before it begins to read a request.
    deaf: Duration,
    /// Between the last byte of a request and the answer.
    delay: Duration,
    /// Closes each connection after this many answers, without a word; 0 = never.
    closes_after: usize,
}

/// A request and a response of one packet, at once.
const SMALL: Script = Script {
    request_bytes: 40,
    body_bytes: 10,
    deaf: Duration::ZERO,
    delay: Duration::ZERO,
    closes_after: 0,
};

/// CLOCK_MONOTONIC as the server reads it, ns.
#[derive(Clone, Copy, Debug)]
struct Served {
    /// After the read that brought the last byte.
    arrived_ns: u64,
    /// Before the answer is written.
    answered_ns: u64,
}

/// Answers one connection until its end.
fn serve(mut stream: impl Read + Write, script: Script, told: impl Fn(Served)) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", script.body_bytes);
    let mut response = head.into_bytes();
    response.resize(response.len() + script.body_bytes, b'.');
    let mut request = vec![0; script.request_bytes];
    let mut answers = 0;
    while stream.read_exact(&mut request[..1]).is_ok() {
        std::thread::sleep(script.deaf);
        if stream.read_exact(&mut request[1..]).is_err() {
            return;
        }
        let arrived_ns = monotonic_ns();
        std::thread::sleep(script.delay);
        told(Served { arrived_ns, answered_ns: monotonic_ns() });
        if stream.write_all(&response).is_err() {
            return;
        }
        answers += 1;
        if answers == script.closes_after {
            return;
        }
    }
}

/// Serves on a free port, each connection on a thread of its own.
fn start(address: &str, script: Script) -> (Address, Receiver<Served>) {
    let listener = TcpListener::bind(address).expect("a free port");
    let address = Address::Inet(listener.local_addr().expect("bound"));
    let (tell, served) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            stream.set_nodelay(true).expect("TCP has it");
            std::thread::spawn(move || {
                serve(stream, script, |served| {
                    let _ = tell.send(served);
                });
            });
        }
    });
    (address, served)
}

/// Those that this host allows.
fn engines() -> Vec<EngineChoice> {
    match uring::probe() {
        Ok(_) => vec![EngineChoice::Uring, EngineChoice::Epoll],
        Err(reason) => {
            eprintln!("skipped: {reason}");
            vec![EngineChoice::Epoll]
        }
    }
}

fn arena(request_bytes: usize) -> Arc<[u8]> {
    let head = b"POST / HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut bytes = head.to_vec();
    bytes.resize(request_bytes, b'.');
    Arc::from(bytes)
}

/// One connection on a reactor, without a shard.
struct Client {
    reactor: Reactor,
    map: RealtimeMap,
    request_bytes: usize,
    /// Buffers are kept until one was missing.
    keeps_buffers: bool,
}

/// What is known of one exchange, ns.
#[derive(Debug)]
struct Exchange {
    /// T2.
    sent_ns: u64,
    /// T3w.
    wire_tx: Option<Mapped>,
    /// T8w.
    wire_rx: Option<Mapped>,
    /// T8.
    complete_ns: u64,
}

impl Client {
    fn connect(engine: EngineChoice, address: Address, request_bytes: usize) -> Client {
        let config = ReactorConfig {
            engine,
            slots: 1,
            arena: arena(request_bytes),
            clock: Calibrator::begin().finish(),
            wire_stamps: true,
        };
        let mut reactor =
            Reactor::new(&config, &[Target::plain(address, None)]).expect("it stands");
        reactor.connect(0, 1, 0).expect("begun");
        let map = RealtimeMap::new(read_clocks(&reactor));
        let mut client = Client { reactor, map, request_bytes, keeps_buffers: false };
        assert_eq!(client.next_event().kind, EventKind::Connected);
        client
    }

    fn next_event(&mut self) -> Event {
        let deadline_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
        loop {
            let now_ns = self.reactor.turn(deadline_ns);
            let events = self.reactor.events();
            assert!(events.len() <= 1, "one connection, answers of one receive");
            if let Some(event) = events.first() {
                return *event;
            }
            assert!(now_ns < deadline_ns, "no event came");
        }
    }

    fn exchange(&mut self, response_bytes: usize, is_sampled: bool) -> Exchange {
        self.exchange_of(self.request_bytes, response_bytes, is_sampled)
    }

    /// With a request of so many bytes, at most those that were given at the start.
    fn exchange_of(
        &mut self,
        request_bytes: usize,
        response_bytes: usize,
        is_sampled: bool,
    ) -> Exchange {
        let sent_ns = self.reactor.now_ns();
        self.reactor.send_stamped(0, 1, 0..request_bytes, is_sampled);
        let deadline_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
        let mut left = response_bytes;
        let mut kept = Vec::new();
        loop {
            assert!(self.reactor.turn(deadline_ns) < deadline_ns, "no answer came");
            for index in 0..self.reactor.events().len() {
                let event = self.reactor.events()[index];
                assert_eq!(event.kind, EventKind::Received);
                assert!(event.result > 0, "it goes on: {event:?}");
                let bytes = self.reactor.bytes(&event);
                assert!(!bytes.contains(&0), "the payload, whole");
                if left == response_bytes {
                    assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n"), "the payload, no header");
                }
                left -= bytes.len();
                let received_ns = self.reactor.received_wire_ns(&event);
                kept.push(event);
                if left == 0 || !self.keeps_buffers || kept.len() == usize::from(BUFFER_COUNT) {
                    kept.drain(..).for_each(|event| self.reactor.recycle(&event));
                }
                if left == 0 {
                    let tx_ns = self.reactor.take_sent_wire_ns(0);
                    let mapping = self.map.at(read_clocks(&self.reactor)).expect("no step");
                    let to_ours = |ns: u64| mapping.to_ours(ns);
                    let (wire_tx, wire_rx) = (tx_ns.map(to_ours), received_ns.map(to_ours));
                    return Exchange { sent_ns, wire_tx, wire_rx, complete_ns: event.stamp_ns };
                }
            }
        }
    }
}

fn read_clocks(reactor: &Reactor) -> Reading {
    let read = |_| Reading {
        before_ns: reactor.now_ns(),
        realtime_ns: realtime_ns(),
        monotonic_ns: monotonic_ns(),
        after_ns: reactor.now_ns(),
    };
    (0..8).map(read).min_by_key(Reading::width_ns).expect("eight")
}

fn response_bytes(body_bytes: usize) -> usize {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n").len() + body_bytes
}

/// The kernel stamps what it receives while any socket asks for it, and switches that on in the
/// background. Until what is returned goes, it is on.
fn switch_stamps_on() -> Client {
    let (address, _served) = start("127.0.0.1:0", SMALL);
    let mut client = Client::connect(EngineChoice::Epoll, address, SMALL.request_bytes);
    let deadline_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
    while client.exchange(response_bytes(SMALL.body_bytes), false).wire_rx.is_none() {
        assert!(monotonic_ns() < deadline_ns, "no receive is stamped");
    }
    client
}

#[test]
fn stamps_lie_between_ours_and_those_of_the_server() {
    let _on = switch_stamps_on();
    for engine in engines() {
        for (address, request_bytes, body_bytes) in [
            ("127.0.0.1:0", 40, 10),
            ("[::1]:0", 40, 10),
            // Several pieces and several receives; the socket takes it in parts.
            ("127.0.0.1:0", 3_000_001, 30_000),
        ] {
            let script = Script { request_bytes, body_bytes, ..SMALL };
            let (address, served) = start(address, script);
            let mut client = Client::connect(engine, address, request_bytes);
            let count = if request_bytes > 1000 { 60 } else { 600 };
            for index in 0..count {
                let is_sampled = index % 3 == 0;
                let exchange = client.exchange(response_bytes(body_bytes), is_sampled);
                let served = served.recv_timeout(PATIENCE).expect("served");
                let case = format!("{engine:?} {request_bytes} {index}: {exchange:?} {served:?}");
                // Loopback loses none.
                assert_eq!(exchange.wire_tx.is_some(), is_sampled, "{case}");
                if let Some(tx) = exchange.wire_tx {
                    let slack_ns = tx.error_ns + CLOCK_SLACK_NS;
                    assert!(exchange.sent_ns <= tx.at_ns + tx.error_ns, "T2 <= T3w: {case}");
                    assert!(tx.at_ns <= served.arrived_ns + slack_ns, "T3w <= a: {case}");
                }
                let rx = exchange.wire_rx.expect("each receive has one");
                let slack_ns = rx.error_ns + CLOCK_SLACK_NS;
                assert!(served.answered_ns <= rx.at_ns + slack_ns, "not before: {case}");
                assert!(rx.at_ns <= exchange.complete_ns + rx.error_ns, "T8w <= T8: {case}");
            }
            let mismatched = client.reactor.counters().wire_stamps_mismatched;
            assert!(request_bytes > 1000 || mismatched == 0, "{engine:?}: {mismatched}");
        }
    }
}

/// Bytes that a connection takes while its peer does not read, in pieces.
fn bytes_until_full() -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let mut stream = TcpStream::connect(address).expect("heard");
    let _deaf = listener.accept().expect("it has come");
    stream.set_nonblocking(true).expect("a socket");
    let piece = [b'.'; SEND_PIECE_BYTES];
    std::iter::from_fn(|| stream.write(&piece).ok()).sum()
}

#[test]
fn last_piece_that_the_socket_takes_in_parts_is_stamped_at_its_end() {
    for engine in engines() {
        // Longer where the machine is so busy that the server reads before the socket is full.
        let was_in_parts = [50, 100, 200].into_iter().any(|deaf_ms| {
            let begin = bytes_until_full() / SEND_PIECE_BYTES * SEND_PIECE_BYTES;
            let request_bytes = begin + SEND_PIECE_BYTES - 1;
            let deaf = Duration::from_millis(deaf_ms);
            let script = Script { request_bytes, deaf, ..SMALL };
            let (address, served) = start("127.0.0.1:0", script);
            let mut client = Client::connect(engine, address, request_bytes);
            let exchange = client.exchange(response_bytes(10), true);
            let served = served.recv_timeout(PATIENCE).expect("served");
            let tx = exchange.wire_tx.expect("asked for");
            assert!(tx.at_ns <= served.arrived_ns + tx.error_ns + CLOCK_SLACK_NS);
            // A part of it had a stamp of its own. With epoll that is replaced before it leaves.
            client.reactor.counters().wire_stamps_mismatched > 0
        });
        if !was_in_parts {
            eprintln!("not shown: {engine:?} took the last piece at once, or stamped it once");
        }
    }
}

#[test]
fn request_of_one_piece_that_finds_little_room_is_stamped_at_its_end() {
    // The first request fills the socket to the last whole piece, and is answered unread.
    let fill = bytes_until_full() / SEND_PIECE_BYTES * SEND_PIECE_BYTES;
    let (rest, deaf) = (60_000, Duration::from_millis(50));
    // With epoll a send is never short before it waits: no such case.
    for engine in engines().into_iter().filter(|&engine| engine == EngineChoice::Uring) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Inet(listener.local_addr().expect("bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it comes");
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            let mut requests = vec![0; fill + rest];
            stream.read_exact(&mut requests[..1]).expect("the first");
            std::thread::sleep(deaf);
            stream.write_all(response).expect("it listens");
            std::thread::sleep(deaf);
            stream.read_exact(&mut requests[1..]).expect("both");
            let arrived_ns = monotonic_ns();
            stream.write_all(response).expect("it listens");
            arrived_ns
        });
        let mut client = Client::connect(engine, address, fill);
        client.exchange_of(fill, response_bytes(0), false);
        while client.reactor.is_sending(0) {
            client.reactor.turn(monotonic_ns() + 1_000_000);
        }
        let exchange = client.exchange_of(rest, response_bytes(0), true);
        let arrived_ns = server.join().expect("served");
        let tx = exchange.wire_tx.expect("asked for");
        assert!(exchange.sent_ns <= tx.at_ns + tx.error_ns, "{engine:?}: {exchange:?}");
        assert!(tx.at_ns <= arrived_ns + tx.error_ns + CLOCK_SLACK_NS, "{engine:?}: {exchange:?}");
    }
}

#[test]
fn receive_that_is_armed_again_with_a_stamp_waiting_works_and_sleeps() {
    let _on = switch_stamps_on();
    const BODY_BYTES: usize = 2_000_000;
    let pause = Duration::from_millis(300);
    for engine in engines() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Inet(listener.local_addr().expect("bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it comes");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
            let mut response = head.into_bytes();
            response.resize(response_bytes(BODY_BYTES), b'.');
            let (begin, end) = response.split_at(response.len() - 10);
            stream.read_exact(&mut [0; 40]).expect("a request");
            stream.write_all(begin).expect("it listens");
            std::thread::sleep(pause);
            stream.write_all(end).expect("it listens");
        });
        let mut client = Client::connect(engine, address, 40);
        client.keeps_buffers = true;
        let cpu_ns = thread_cpu_ns();
        let exchange = client.exchange(response_bytes(BODY_BYTES), true);
        let cpu_ns = thread_cpu_ns() - cpu_ns;
        server.join().expect("served");
        assert!(exchange.wire_tx.is_some(), "{engine:?}");
        assert!(exchange.wire_rx.is_some(), "{engine:?}");
        assert!(exchange.complete_ns - exchange.sent_ns >= 300_000_000, "negative control");
        assert!(cpu_ns < 200_000_000, "{engine:?}: {cpu_ns}");
        let waits = client.reactor.counters().receive_buffer_waits;
        assert!(waits > 0, "else nothing was shown: {engine:?}");
    }
}

#[test]
fn stamp_that_waits_on_the_error_queue_keeps_nobody_busy() {
    let delay = Duration::from_millis(300);
    let script = Script { delay, ..SMALL };
    for engine in engines() {
        let (address, _served) = start("127.0.0.1:0", script);
        let mut client = Client::connect(engine, address, 40);
        let (enters, cpu_ns) = (client.reactor.counters().enters, thread_cpu_ns());
        let exchange = client.exchange(response_bytes(10), true);
        let enters = client.reactor.counters().enters - enters;
        let cpu_ns = thread_cpu_ns() - cpu_ns;
        assert!(exchange.wire_tx.is_some());
        assert!(exchange.complete_ns - exchange.sent_ns >= 300_000_000, "negative control");
        assert!(enters <= 10, "{engine:?}: {enters}");
        assert!(cpu_ns < 100_000_000, "{engine:?}: {cpu_ns}");
    }
}

#[test]
fn end_of_the_stream_is_an_event_of_no_bytes() {
    let script = Script { closes_after: 2, ..SMALL };
    for engine in engines() {
        let (address, _served) = start("127.0.0.1:0", script);
        let mut client = Client::connect(engine, address, 40);
        client.exchange(response_bytes(10), true);
        client.reactor.send_stamped(0, 1, 0..40, true);
        let deadline_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
        let (mut received, mut end) = (0, None);
        while end.is_none() {
            assert!(client.reactor.turn(deadline_ns) < deadline_ns, "no end came: {engine:?}");
            for event in client.reactor.events().to_vec() {
                received += event.result;
                client.reactor.recycle(&event);
                end = (event.result <= 0).then_some(event);
            }
        }
        let end = end.expect("seen");
        assert_eq!(received as usize, response_bytes(10), "{engine:?}");
        assert_eq!((end.kind, end.result, end.buffer), (EventKind::Received, 0, None));
        assert_eq!(client.reactor.received_wire_ns(&end), None);
    }
}

/// What one phase of a real shard recorded.
struct Recorded {
    counters: Counters,
    wire_tx: Series,
    wire_rx: Series,
    ttfb: Series,
    wire_error_ns: u64,
}

impl Recorded {
    fn add(&mut self, recording: &Recording) {
        self.counters.add(&recording.counters);
        for (sum, part) in [
            (&mut self.wire_tx, &recording.wire_tx),
            (&mut self.wire_rx, &recording.wire_rx),
            (&mut self.ttfb, &recording.ttfb),
        ] {
            sum.histogram.add(&part.histogram);
            sum.total += part.total;
            sum.max = sum.max.max(part.max);
        }
        self.wire_error_ns = self.wire_error_ns.max(recording.wire_error_ns);
    }
}

/// Runs one phase of a closed loop on a shard of its own.
fn run(
    engine: EngineChoice,
    address: Address,
    script: Script,
    wire_stamps: Option<u32>,
    requests: u64,
) -> Recorded {
    const IN_FLIGHT: u32 = 4;
    let clock = Calibrator::begin().finish();
    let (command, commands) = bounded(4);
    let (tell, messages) = bounded(64);
    let (recycle, recycled) = bounded(8);
    let link = Link {
        commands,
        messages: tell,
        recycled,
        live: Arc::default(),
        peers: vec![],
        dispatches: None,
        records: None,
    };
    let request = Request::plain(0..script.request_bytes, 0, false);
    let plan = ShardPlan {
        index: 0,
        core: None,
        wait: Wait::Sleep,
        engine,
        table: RequestTable {
            arena: arena(script.request_bytes),
            requests: Arc::from([request]),
            targets: Arc::from([Target::plain(address, None)]),
            answers: Arc::new(AnswerPlan::PLAIN),
        },
        slots_per_target: IN_FLIGHT,
        connections_per_target: IN_FLIGHT,
        timeouts: Timeouts::default(),
        keepalive: true,
        accept_status: (200, 299),
        goals: None,
        clock,
        wire_stamps,
    };
    let thread = shard::spawn(plan, link).expect("a thread");
    let ready = match messages.recv_timeout(PATIENCE).expect("the shard speaks") {
        Message::Ready(ready) => ready,
        message => panic!("{message:?}"),
    };
    let phase = PhasePlan {
        index: 0,
        kind: PhaseKind::Performance,
        pattern: Pattern::ClosedLoop {
            in_flight: IN_FLIGHT,
            positions: Arc::new(Positions::new(Some(requests), 1)),
        },
        order: SampleOrder::new(Order::Sequential, 1, 0),
        start_ns: 0,
        duration_ns: None,
        drain_timeout_ns: PATIENCE.as_nanos() as u64,
        clock,
    };
    command.send(Command::Phase(Box::new(phase))).expect("heard");
    ready.waker.wake();
    let mut recorded = Recorded {
        counters: Counters::default(),
        wire_tx: Series::default(),
        wire_rx: Series::default(),
        ttfb: Series::default(),
        wire_error_ns: 0,
    };
    loop {
        match messages.recv_timeout(PATIENCE).expect("the shard speaks") {
            Message::Interval { mut recording, .. } => {
                recorded.add(&recording);
                recording.reset();
                let _ = recycle.send((recording, clock));
            }
            Message::PhaseEnded { .. } => break,
            message => panic!("{message:?}"),
        }
    }
    command.send(Command::Exit).expect("heard");
    ready.waker.wake();
    thread.join().expect("in good order");
    recorded
}

#[test]
fn sampled_queries_of_a_shard_have_both_stamps_and_the_others_none() {
    let _on = switch_stamps_on();
    for engine in engines() {
        for (request_bytes, body_bytes, every, requests) in
            [(40, 10, 1, 1000), (40, 10, 7, 1000), (40, 9000, 3, 500), (400_000, 10, 2, 100)]
        {
            let script = Script { request_bytes, body_bytes, ..SMALL };
            let (address, _served) = start("127.0.0.1:0", script);
            let recorded = run(engine, address, script, Some(every), requests);
            let counters = recorded.counters;
            let case = format!("{engine:?} {request_bytes} {body_bytes} {every}: {counters:?}");
            assert_eq!(counters.completed, requests, "{case}");
            let sampled = requests.div_ceil(u64::from(every));
            assert_eq!(counters.wire_stamps_wanted, sampled, "{case}");
            assert_eq!(counters.wire_stamps_out_of_order, 0, "{case}");
            // G16: 99 % of them are there.
            assert!(counters.wire_stamps_tx * 100 >= sampled * 99, "{case}");
            assert!(counters.wire_stamps_rx * 100 >= sampled * 99, "{case}");
            assert_eq!(recorded.wire_tx.count(), counters.wire_stamps_tx, "{case}");
            assert_eq!(recorded.wire_rx.count(), counters.wire_stamps_rx, "{case}");
            assert!(recorded.wire_error_ns > 0, "{case}");
            if request_bytes < 1000 {
                assert_eq!(counters.wire_stamps_mismatched, 0, "{case}");
                // The request is on its way before the first byte of the answer comes.
                assert!(recorded.wire_tx.max <= recorded.ttfb.max, "{case}");
            }
        }
    }
}

#[test]
fn resent_queries_are_not_sampled() {
    let _on = switch_stamps_on();
    let script = Script { closes_after: 5, ..SMALL };
    for engine in engines() {
        let (address, _served) = start("127.0.0.1:0", script);
        let Counters {
            completed,
            retries,
            wire_stamps_wanted,
            wire_stamps_tx,
            wire_stamps_rx,
            wire_stamps_out_of_order,
            ..
        } = run(engine, address, script, Some(1), 400).counters;
        assert_eq!(completed, 400);
        assert!(retries > 0, "else nothing was shown");
        assert_eq!(wire_stamps_wanted, completed - retries, "{engine:?}");
        assert_eq!(wire_stamps_out_of_order, 0, "{engine:?}");
        assert!(wire_stamps_tx * 100 >= wire_stamps_wanted * 99, "{engine:?}: {wire_stamps_tx}");
        assert!(wire_stamps_rx * 100 >= wire_stamps_wanted * 99, "{engine:?}: {wire_stamps_rx}");
    }
}

#[test]
fn without_stamps_none_are_wanted() {
    let script = SMALL;
    for engine in engines() {
        let (address, _served) = start("127.0.0.1:0", script);
        let recorded = run(engine, address, script, None, 100);
        assert_eq!(recorded.counters.completed, 100);
        assert_eq!(recorded.counters.wire_stamps_wanted, 0);
        assert_eq!(recorded.wire_tx.count() + recorded.wire_rx.count(), 0);
    }
}

#[test]
fn unix_socket_works_and_has_no_stamps() {
    let script = SMALL;
    let path = std::env::temp_dir().join(format!("wire-stamps-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a free path");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, script, |_| {}));
        }
    });
    for engine in engines() {
        let counters = run(engine, Address::Unix(path.clone()), script, Some(2), 100).counters;
        assert_eq!((counters.completed, counters.wire_stamps_wanted), (100, 50), "{engine:?}");
        assert_eq!((counters.wire_stamps_tx, counters.wire_stamps_rx), (0, 0), "{engine:?}");
    }
    let _ = std::fs::remove_file(&path);
}

/// For one message; a machine that is slower than this is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// The server reads CLOCK_MONOTONIC, which the client's clock follows to 1 ppm for a few seconds.
const CLOCK_SLACK_NS: u64 = 20_000;
