//! Hosts that refuse something: io_uring forbidden by a container's seccomp profile, the small
//! limits of an ordinary user.

use std::fs;

use crate::support::run::{BINARY, Run};
use crate::support::server::Server;
use crate::support::temp::TempDir;
use crate::support::{Engine, on_both_engines, skip, sys};

on_both_engines!(an_ordinary_user_with_eight_mib_of_memlock_runs_sixteen_shards);

/// The usual `nobody`.
const NOBODY: u32 = 65534;

/// What the smallest usual limit must carry.
const SHARDS: usize = 16;
const CONNECTIONS_PER_SHARD: usize = 4;

/// EPERM is what container engines answer, ENOSYS what a kernel without io_uring does.
const REFUSALS: [i32; 2] = [libc::EPERM, libc::ENOSYS];

#[test]
fn where_io_uring_is_refused_epoll_takes_over_and_says_so() {
    for errno in REFUSALS {
        let server = Server::start();
        let outcome = Run::new()
            .refusing_io_uring(errno)
            .words(&format!("max-throughput {} -n 200 -c 4", server.url("plain")))
            .finish();
        outcome.expect_successes(200);
        assert_eq!(server.requests("plain"), 200);
        let engine = &outcome.summary()["engine"];
        assert_eq!(engine["name"], "epoll");
        let reason = engine["reason"].as_str().expect("a reason");
        assert!(reason.contains("io_uring"), "{reason}");
        let lines: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.contains("io_uring")).collect();
        assert_eq!(lines.len(), 1, "one line; {}", outcome.story());
        assert!(lines[0].contains("epoll"), "what happens instead: {}", lines[0]);
        if errno == libc::EPERM {
            assert!(lines[0].contains("seccomp"), "cause and fix: {}", lines[0]);
        }
    }
}

#[test]
fn the_fall_back_speaks_up_even_when_told_to_be_quiet() {
    let server = Server::start();
    for more in ["-q", "--json"] {
        let outcome = Run::new()
            .refusing_io_uring(libc::EPERM)
            .words(&format!("max-throughput {} -n 20 -c 2 {more}", server.url("plain")))
            .finish();
        outcome.expect_code(0);
        assert!(outcome.stderr.contains("io_uring"), "{more}: {}", outcome.story());
        assert!(!outcome.stdout.contains("falling back"), "{more}: {}", outcome.story());
    }
}

#[test]
fn where_io_uring_is_refused_asking_for_it_is_a_set_up_error() {
    for errno in REFUSALS {
        let server = Server::start();
        let outcome = Run::on(Engine::Uring)
            .refusing_io_uring(errno)
            .words(&format!("max-throughput {} -n 200 -c 4", server.url("plain")))
            .finish();
        outcome.expect_code(3).expect_reason(&["io_uring"]);
        assert_eq!(server.requests_total(), 0);
    }
}

#[test]
fn where_io_uring_is_refused_the_embedded_endpoint_works_too() {
    let outcome =
        Run::new().refusing_io_uring(libc::EPERM).words("max-throughput -d 300ms").finish();
    outcome.expect_code(0);
    assert!(outcome.counter("tracked_samples_completed") > 100, "{}", outcome.story());
    assert_eq!(outcome.counter("tracked_samples_failed"), 0);
}

/// Locked memory is accounted by user, not by process: where there are fewer than sixteen cores,
/// several programs at once make up the sixteen shards.
fn an_ordinary_user_with_eight_mib_of_memlock_runs_sixteen_shards(engine: Engine) {
    if !sys::is_root() {
        return skip("only root can become another user");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(SHARDS);
    let programs = SHARDS.div_ceil(cores);
    let folder = TempDir::new();
    let program = folder.join("program");
    fs::copy(BINARY, &program).unwrap();
    let server = Server::start();
    let connections = CONNECTIONS_PER_SHARD * cores;
    let url = server.url("delay?ms=300");
    let mut running: Vec<_> = (0..programs)
        .map(|_| {
            Run::on(engine)
                .by_user(NOBODY, &program)
                .after_shell("ulimit -l 8192")
                .words(&format!("max-throughput {url} -d 60s -c {connections} -t {cores}"))
                .start()
        })
        .collect();
    let all = (programs * connections) as u64;
    running[0]
        .await_that("all shards are at work together", || server.in_flight_max("delay") == all);
    for running in &running {
        running.interrupt();
    }
    for running in running {
        let outcome = running.finish();
        outcome.expect_code(1).expect_reason(&["interrupt"]);
        assert!(outcome.counter("total_samples_completed") > 0, "{}", outcome.story());
        assert_eq!(outcome.counter("total_samples_failed"), 0, "{}", outcome.story());
        assert_eq!(outcome.summary()["engine"]["name"], engine.name());
    }
}
