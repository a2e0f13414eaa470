//! What the integration tests stand on: an independent server, a harness for the built binary,
//! temporary folders.
//!
//! Nothing here uses the program's own crates. What the tests hold the client against is written a
//! second time, with std::net, blocking threads and `std::time::Instant`, so that a mistake of the
//! client cannot hide in shared code.

pub mod queue;
pub mod run;
pub mod script;
pub mod server;
pub mod sys;
pub mod temp;

use std::time::{Duration, Instant};

/// How long a condition that must come true may take. Generous: a busy two-core machine runs the
/// tests.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Set by `.ci/run`: a real-server test that lacks its server fails instead of being skipped.
pub const REQUIRE_REAL_SERVERS: &str = "LOADGEN_REQUIRE_REAL_SERVERS";

/// The I/O back ends; every load test runs under both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Uring,
    Epoll,
}

impl Engine {
    /// The value of `--engine`.
    pub const fn flag(self) -> &'static str {
        match self {
            Engine::Uring => "uring",
            Engine::Epoll => "epoll",
        }
    }

    /// What the result files call it.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Uring => "io_uring",
            Engine::Epoll => "epoll",
        }
    }

    /// Whether this machine lets us use it; says loudly when it does not.
    pub fn is_available(self) -> bool {
        let available = match self {
            Engine::Uring => sys::has_io_uring(),
            Engine::Epoll => true,
        };
        if !available {
            skip("this kernel, or a seccomp filter, refuses io_uring");
        }
        available
    }
}

/// One test for each engine and claim: `uring::<claim>` and `epoll::<claim>` beside the functions
/// named here.
macro_rules! on_both_engines {
    ($($claim:ident),* $(,)?) => {
        mod uring {
            $(#[test]
            fn $claim() {
                use crate::support::Engine;
                if Engine::Uring.is_available() {
                    super::$claim(Engine::Uring);
                }
            })*
        }
        mod epoll {
            $(#[test]
            fn $claim() {
                super::$claim(crate::support::Engine::Epoll);
            })*
        }
    };
}
pub(crate) use on_both_engines;

/// The numbers of shards that exactness is proved for: one, and several where there are several
/// cores.
pub fn shard_counts() -> &'static [u64] {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 {
        return &[1, 2];
    }
    skip("one core carries one shard only; several are not tried");
    &[1]
}

/// Says on stderr why a test proves nothing here.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    eprintln!("SKIPPED {}: {reason}", thread.name().unwrap_or("a test"));
}

/// As [`skip`], but a failure where real servers are required.
pub fn skip_without_server(reason: &str) {
    assert!(
        std::env::var_os(REQUIRE_REAL_SERVERS).is_none(),
        "{reason}, and {REQUIRE_REAL_SERVERS} is set; install it, as .ci/run does"
    );
    skip(reason);
}

/// Tries a test again whose upper bounds a pause of the host has broken; what must never happen
/// fails at once, by an assertion inside. `Err` says which bound was broken.
#[track_caller]
pub fn on_a_calm_host(mut attempt: impl FnMut() -> Result<(), String>) {
    let complaints: Vec<String> = (0..ATTEMPTS).map_while(|_| attempt().err()).collect();
    assert!(complaints.len() < ATTEMPTS, "not once in time:\n{}", complaints.join("\n"));
}

/// See [`on_a_calm_host`].
const ATTEMPTS: usize = 3;

/// `Err` with both values if the first is above the second.
pub fn at_most<T: PartialOrd + std::fmt::Debug>(what: &str, is: T, limit: T) -> Result<(), String> {
    if is <= limit { Ok(()) } else { Err(format!("{what} is {is:?}, above {limit:?}")) }
}

/// Waits for a condition instead of sleeping a guessed time.
#[track_caller]
pub fn await_condition(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
