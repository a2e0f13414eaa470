//! https against a real server: nginx, which counts its requests itself. Skipped with a reason
//! where it is not installed, as in the tests of cleartext.

use std::fs;

use crate::nginx::Nginx;
use crate::support::run::Run;
use crate::support::temp::TempDir;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    requests_over_tls_are_those_that_nginx_saw,
    connections_that_nginx_closes_resume_their_session,
    certificate_of_a_stranger_is_told_with_what_to_do,
    megabyte_goes_to_nginx_whole,
);

/// A run on a host that trusts the authority of this nginx as it trusts its own.
fn trusting(nginx: &Nginx, engine: Engine) -> Run {
    Run::on(engine).after_shell(&format!("export SSL_CERT_FILE={}", nginx.cacert().display()))
}

fn requests_over_tls_are_those_that_nginx_saw(engine: Engine) {
    let Some(nginx) = Nginx::start() else { return };
    let url = nginx.tls_url("plain");
    let run = trusting(&nginx, engine).words(&format!("{url} -n 2000 -c 16"));
    let (seen, outcome) = nginx.requests_during(|| run.finish());
    outcome.expect_successes(2000);
    assert_eq!(seen, 2000, "{}", outcome.story());
    assert_eq!(outcome.counter("connections_opened"), 16);
    assert_eq!(outcome.counter("tls_handshakes"), 16, "ahead, and none more");
    let run = trusting(&nginx, engine);
    let (seen, outcome) = nginx.requests_during(|| {
        run.words(&format!("constant {url} -R 500 -d 500ms --max-connections 8 --allow-untrusted"))
            .finish()
    });
    outcome.expect_successes(250);
    assert_eq!(seen, 250, "{}", outcome.story());
    // Negative control.
    let clear = Run::on(engine).words(&format!("{} -n 100 -c 4", nginx.url("plain"))).finish();
    clear.expect_successes(100);
    assert_eq!(clear.counter("tls_handshakes"), 0);
}

/// Every tenth answer says `Connection: close`.
fn connections_that_nginx_closes_resume_their_session(engine: Engine) {
    let Some(nginx) = Nginx::start() else { return };
    let url = nginx.tls_url("closing");
    let run = trusting(&nginx, engine).words(&format!("{url} -n 300 -c 2"));
    let (seen, outcome) = nginx.requests_during(|| run.finish());
    outcome.expect_successes(300);
    assert_eq!(seen, 300 + outcome.counter("retries"));
    let handshakes = outcome.counter("tls_handshakes");
    assert!(handshakes >= 30, "10 requests a connection, {handshakes} handshakes");
    let resumed = outcome.counter("tls_resumed");
    // The two that were opened ahead had nothing to resume.
    assert!(resumed + 2 >= handshakes, "{resumed} of {handshakes}");
}

fn certificate_of_a_stranger_is_told_with_what_to_do(engine: Engine) {
    let Some(nginx) = Nginx::start() else { return };
    let other = Nginx::start().expect("the first is there");
    let url = nginx.tls_url("plain");
    let (seen, outcome) = nginx
        .requests_during(|| trusting(&other, engine).words(&format!("{url} -n 10 -c 2")).finish());
    assert_eq!(seen, 0, "not a request goes to a stranger");
    outcome.expect_code(3);
    outcome.expect_reason(&["--cacert FILE"]);
    let no_name = url.replace("localhost", "127.0.0.1");
    let outcome = trusting(&nginx, engine).words(&format!("{no_name} -n 10 -c 2")).finish();
    outcome.expect_code(3);
    outcome.expect_reason(&["the certificate is for localhost, not 127.0.0.1; --sni NAME"]);
}

fn megabyte_goes_to_nginx_whole(engine: Engine) {
    let Some(nginx) = Nginx::start() else { return };
    let folder = TempDir::new();
    fs::write(folder.join("body"), vec![b'q'; 1 << 20]).unwrap();
    let url = nginx.tls_url("plain");
    let body = folder.join("body");
    let run = trusting(&nginx, engine).words(&format!("{url} -n 20 -c 4 --body-file"));
    let (seen, outcome) = nginx.requests_during(|| run.args([&body]).finish());
    outcome.expect_successes(20);
    assert_eq!(seen, 20);
    assert!(outcome.counter("bytes_sent") >= 20 << 20);
}
