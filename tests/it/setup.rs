//! What cannot be set up ends with exit code 3 before any load, and one line that says what to look
//! at.

use std::time::Duration;

use crate::support::run::{Run, SNAPSHOT};
use crate::support::server::{Server, refused_port};
use crate::support::{Engine, on_both_engines};

/// How soon an endpoint that is not there must be reported. Name servers that do not answer take
/// longest.
const SOON: Duration = Duration::from_secs(30);

on_both_engines!(
    a_refused_port_says_so,
    an_unresolvable_name_says_so,
    a_missing_unix_socket_says_so,
    cores_outside_the_mask_are_named_with_the_allowed_ones,
    more_connections_than_the_hard_limit_are_refused_with_the_limit,
    the_soft_limit_of_descriptors_is_raised,
);

fn a_refused_port_says_so(engine: Engine) {
    let port = refused_port();
    let url = format!("http://127.0.0.1:{port}/");
    for more in ["-d 1s", "-n 5", "-n 5 --json", "-n 5 -q"] {
        let outcome = Run::on(engine).words(&format!("max-throughput {url} {more}")).finish();
        outcome.expect_code(3).expect_reason(&["refused", &format!("127.0.0.1:{port}")]);
        assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
        assert!(!outcome.path(SNAPSHOT).exists(), "nothing was measured");
    }
}

fn an_unresolvable_name_says_so(engine: Engine) {
    let outcome = Run::on(engine).words("max-throughput http://nonexistent.invalid/ -n 5").finish();
    outcome.expect_code(3).expect_reason(&["nonexistent.invalid"]);
    assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
}

fn a_missing_unix_socket_says_so(engine: Engine) {
    let run = Run::on(engine);
    let path = run.folder().join("no-socket");
    let path = path.to_str().unwrap().to_owned();
    let outcome =
        run.words(&format!("max-throughput http://localhost/ -n 5 --unix-socket {path}")).finish();
    outcome.expect_code(3).expect_reason(&[&path]);
}

/// The flag is well formed, the host does not allow it: set-up.
fn cores_outside_the_mask_are_named_with_the_allowed_ones(engine: Engine) {
    let outcome = Run::on(engine).words("max-throughput http://127.0.0.1:9/ --cores 4095").finish();
    outcome.expect_code(3).expect_reason(&["--cores", "4095", "allowed here: 0"]);
}

/// Decided from the flags and the limit, so usage (2) and set-up (3) are both right; a run of
/// failures is not.
fn more_connections_than_the_hard_limit_are_refused_with_the_limit(engine: Engine) {
    let server = Server::start();
    let outcome = Run::on(engine)
        .after_shell("ulimit -Sn 100; ulimit -Hn 100")
        .words(&format!("max-throughput {} -n 5 -c 500", server.url("plain")))
        .finish();
    outcome.expect_reason(&["100", "500"]);
    assert!(matches!(outcome.code(), Some(2 | 3)), "{}", outcome.story());
    assert_eq!(server.requests_total(), 0);
}

fn the_soft_limit_of_descriptors_is_raised(engine: Engine) {
    let server = Server::start();
    let outcome = Run::on(engine)
        .after_shell("ulimit -Sn 64")
        .words(&format!("max-throughput {} -n 600 -c 150", server.url("delay?ms=20")))
        .finish();
    outcome.expect_successes(600);
    assert_eq!(server.seen("delay").in_flight_max, 150);
}
