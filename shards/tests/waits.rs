//! Waits end at their instants, long and short ones in any order, and with what wakes them.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::time::Duration;

use loadgen_shards::clock::Calibration;
use loadgen_shards::query::{Address, Target};
use loadgen_shards::reactor::{EngineChoice, EventKind, Reactor, ReactorConfig};

const MS: u64 = 1_000_000;
/// Later than any scheduler, earlier than a wait that has been forgotten.
const PATIENCE_NS: u64 = 2_000 * MS;

fn reactor(engine: EngineChoice) -> Reactor {
    let address = Address::Inet("127.0.0.1:1".parse().expect("an address"));
    let config = ReactorConfig {
        engine,
        slots: 1,
        arena: Arc::from([]),
        clock: Calibration::IDENTITY,
        wire_stamps: false,
    };
    Reactor::new(&config, &[Target::plain(address, None)]).expect("an engine")
}

/// Waits until the instant has come, as a shard does; returns how long that took.
fn wait(reactor: &mut Reactor, length_ns: u64) -> u64 {
    let begin_ns = reactor.now_ns();
    let until_ns = begin_ns + length_ns;
    for _ in 0..100 {
        let now_ns = reactor.turn(until_ns);
        if now_ns >= until_ns {
            return now_ns - begin_ns;
        }
    }
    panic!("it turns without end");
}

#[test]
fn waits_of_any_length_end_at_their_instant_in_any_order() {
    for engine in [EngineChoice::Auto, EngineChoice::Epoll] {
        let mut reactor = reactor(engine);
        let waker = reactor.waker();
        for length_ns in [30 * MS, 5 * MS, 25 * MS, 40 * MS] {
            let took_ns = wait(&mut reactor, length_ns);
            assert!((length_ns..length_ns + PATIENCE_NS).contains(&took_ns), "{took_ns}");
        }
        // A long wait is broken off, and shorter ones follow while its alarm is still set.
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let begin_ns = reactor.now_ns();
        let woken_ns = reactor.turn(begin_ns + 60_000 * MS);
        assert!(woken_ns - begin_ns < PATIENCE_NS, "the waker ends it");
        assert!(reactor.events().iter().any(|event| event.kind == EventKind::Woken));
        thread.join().expect("no panic");
        for length_ns in [3 * MS, 22 * MS, 1100 * MS, 25 * MS] {
            let took_ns = wait(&mut reactor, length_ns);
            assert!((length_ns..length_ns + PATIENCE_NS).contains(&took_ns), "{took_ns}");
        }
    }
}
