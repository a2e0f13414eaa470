//! Bytes of a slot's own, on real sockets: whole, in order, and safe to close over.
#![cfg(target_os = "linux")]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use loadgen_shards::clock::Calibration;
use loadgen_shards::limits::OUTBOX_BYTES_KEPT;
use loadgen_shards::query::{Address, Target};
use loadgen_shards::reactor::{EngineChoice, EventKind, Reactor, ReactorConfig};

const PATIENCE_NS: u64 = 20_000_000_000;
/// More than the buffers of both ends take.
const LARGE: usize = 32 << 20;

/// A reactor with a connection in slot 0, and its other end.
fn connected(engine: EngineChoice) -> (Reactor, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = Target::plain(Address::Inet(listener.local_addr().expect("an address")), None);
    let config = ReactorConfig {
        engine,
        slots: 1,
        arena: Arc::from([]),
        clock: Calibration::IDENTITY,
        wire_stamps: false,
    };
    let mut reactor = Reactor::new(&config, &[target]).expect("an engine");
    reactor.connect(0, 0, 0).expect("a socket");
    let deadline_ns = reactor.now_ns() + PATIENCE_NS;
    loop {
        assert!(reactor.turn(deadline_ns) < deadline_ns, "connects");
        if reactor.events().iter().any(|event| event.kind == EventKind::Connected) {
            let (peer, _) = listener.accept().expect("a connection");
            return (reactor, peer);
        }
    }
}

fn on_both(test: impl Fn(EngineChoice)) {
    test(EngineChoice::Epoll);
    match loadgen_shards::sys::uring::probe() {
        Ok(_) => test(EngineChoice::Uring),
        Err(reason) => eprintln!("SKIPPED on io_uring: {reason}"),
    }
}

#[test]
fn bytes_arrive_whole_and_in_order_also_through_a_full_socket() {
    on_both(|engine| {
        let (mut reactor, mut peer) = connected(engine);
        let pieces: [Vec<u8>; 4] = [vec![1; 10], vec![2; LARGE], vec![3; 100], (0..=255).collect()];
        let expected = pieces.concat();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let mut seen = vec![0; LARGE + 366];
            peer.read_exact(&mut seen).expect("all of it");
            seen
        });
        for piece in pieces {
            reactor.outbox(0).extend_from_slice(&piece);
            reactor.send_outbox(0, 0);
            reactor.flush();
        }
        assert!(reactor.is_sending(0), "so much finds no room at once");
        let deadline_ns = reactor.now_ns() + PATIENCE_NS;
        while reactor.is_sending(0) {
            let now_ns = reactor.now_ns();
            assert!(now_ns < deadline_ns, "all is sent");
            reactor.turn(now_ns + 10_000_000);
        }
        assert!(reader.join().expect("no panic") == expected);
    });
}

#[test]
fn a_slot_may_be_closed_over_bytes_in_flight_and_used_again() {
    on_both(|engine| {
        let (mut reactor, _peer) = connected(engine);
        reactor.outbox(0).resize(LARGE, 7);
        reactor.send_outbox(0, 0);
        let now_ns = reactor.now_ns();
        reactor.turn(now_ns);
        assert!(reactor.is_sending(0));
        reactor.close(0);
        assert!(!reactor.is_sending(0));
        reactor.outbox(0).extend_from_slice(b"of the next connection");
        for _ in 0..10 {
            let now_ns = reactor.now_ns();
            reactor.turn(now_ns + 1_000_000);
            assert!(reactor.events().iter().all(|event| event.generation != 0));
        }
        assert_eq!(reactor.outbox(0).as_slice(), b"of the next connection");
    });
}

#[test]
fn memory_of_a_large_send_is_given_back() {
    on_both(|engine| {
        let (mut reactor, mut peer) = connected(engine);
        let reader = std::thread::spawn(move || {
            let mut seen = vec![0; 2 * LARGE + 20];
            peer.read_exact(&mut seen).expect("all of it");
            peer
        });
        // There may be two buffers that take turns.
        for bytes in [LARGE, 10, LARGE, 10] {
            reactor.outbox(0).resize(bytes, 7);
            reactor.send_outbox(0, 0);
            let deadline_ns = reactor.now_ns() + PATIENCE_NS;
            loop {
                let now_ns = reactor.now_ns();
                assert!(now_ns < deadline_ns, "all is sent");
                reactor.turn(now_ns + 10_000_000);
                if !reactor.is_sending(0) {
                    break;
                }
            }
            let kept = reactor.outbox(0).capacity();
            assert!(kept <= OUTBOX_BYTES_KEPT, "{engine:?}: {kept} bytes after {bytes}");
        }
        let _peer = reader.join().expect("no panic");
        reactor.outbox(0).resize(LARGE, 7);
        reactor.close(0);
        let kept = reactor.outbox(0).capacity();
        assert!(kept <= OUTBOX_BYTES_KEPT, "{engine:?}: {kept} bytes after a close");
    });
}
