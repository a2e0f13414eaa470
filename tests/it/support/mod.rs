//! What the integration tests stand on: an independent server, a harness for the built binary,
//! temporary folders.
//!
//! Nothing here uses the program's own crates. (The tests of the schedule do: they draw the list
//! again that the crate's own tests pin.) What the tests hold the client against is written a
//! second time, with std::net, blocking threads and `std::time::Instant`, so that a mistake of the
//! client cannot hide in shared code.

pub mod queue;
pub mod real;
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

/// Tries a test again whose upper bounds a busy host has broken; what no host may break is asserted
/// inside, and fails at once. `Err` says which bound was broken.
///
/// Where every attempt failed, and others kept the cores busy in each, nothing is proved either way
/// and the test says so.
#[track_caller]
pub fn on_a_calm_host(mut attempt: impl FnMut() -> Result<(), String>) {
    let mut complaints = Vec::new();
    let mut was_busy = true;
    for _ in 0..ATTEMPTS {
        let (begin, waited) = (Instant::now(), waiting_for_a_core());
        let Err(complaint) = attempt() else { return };
        let waited = waiting_for_a_core().saturating_sub(waited);
        let busy = waited.as_secs_f64() / begin.elapsed().as_secs_f64();
        was_busy &= busy > BUSY_SHARE;
        complaints.push(format!("{complaint}; somebody waited for a core {:.0} %", busy * 100.0));
    }
    let story = complaints.join("\n");
    assert!(was_busy, "not once in {ATTEMPTS} attempts:\n{story}");
    skip(&format!("inconclusive, as the host is too busy:\n{story}"));
}

/// How long some task of the host has waited for a core; none where the kernel does not tell.
fn waiting_for_a_core() -> Duration {
    let text = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let some = text.lines().find(|line| line.starts_with("some"));
    let total = some.and_then(|line| line.rsplit_once("total="));
    Duration::from_micros(total.and_then(|(_, us)| us.parse().ok()).unwrap_or(0))
}

/// See [`on_a_calm_host`].
const ATTEMPTS: usize = 3;
/// A host on which somebody waits for a core for more than this share of the time is busy. One test
/// alone stays below it: client and server have a core each.
const BUSY_SHARE: f64 = 0.3;

/// `Err` with both values if the first is above the second.
pub fn at_most<T>(what: &str, is: T, limit: T) -> Result<(), String>
where
    T: Copy + std::fmt::Debug + PartialOrd,
{
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
