//! The first thing a newcomer does: no URL, and the tool answers itself. `serve` is the same
//! endpoint alone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::run::{Run, Running};
use crate::support::{Engine, on_both_engines};

/// Far below what any machine reaches in a second over loopback, a debug build on a busy one
/// included.
const REQUESTS_AT_LEAST: u64 = 1000;
/// The aim is 50 ms; a busy machine starts a process late.
const FIRST_OUTPUT_WITHIN: Duration = Duration::from_secs(2);

on_both_engines!(
    without_a_url_the_tool_loads_its_own_endpoint,
    first_output_comes_early_and_then_a_line_a_second,
    serve_answers_any_client_until_it_is_interrupted,
    serve_delays_its_answers_when_asked_to,
);

fn without_a_url_the_tool_loads_its_own_endpoint(engine: Engine) {
    let outcome = Run::on(engine).words("max-throughput -d 1s").finish();
    outcome.expect_code(0);
    let completed = outcome.counter("tracked_samples_completed");
    assert!(completed > REQUESTS_AT_LEAST, "{completed}; {}", outcome.story());
    assert_eq!(outcome.counter("tracked_samples_failed"), 0, "{}", outcome.story());
    assert_eq!(outcome.summary()["engine"]["name"], engine.name());
    let said = (outcome.stdout.clone() + &outcome.stderr).to_lowercase();
    assert!(said.contains("embedded"), "it is said whose ceiling this is; {}", outcome.story());
    // The answer is a sentence with a number in it; numbers are grouped by blanks.
    let answer = outcome.stdout.lines().find(|line| line.contains("requests/s"));
    let answer = answer.unwrap_or_else(|| panic!("no rate in the report; {}", outcome.story()));
    assert!(answer.contains(|c: char| c.is_ascii_digit()), "{answer}");
}

fn first_output_comes_early_and_then_a_line_a_second(engine: Engine) {
    let outcome = Run::on(engine).words("max-throughput -d 6s --ui plain").finish();
    outcome.expect_code(0);
    let first = outcome.first_output.expect("it says something");
    assert!(first < FIRST_OUTPUT_WITHIN, "{first:?}; {}", outcome.story());
    // Six seconds have five whole ones between start and report. The screen makes way for the load,
    // so a machine that others use may lose some.
    let lines = outcome.stderr.split(['\n', '\r']).filter(|line| line.contains("p99")).count();
    assert!(lines >= 2, "{}", outcome.story());
}

/// The address that `serve` prints.
fn served_address(running: &mut Running) -> String {
    running.await_output("http://127.0.0.1:");
    let output = running.output();
    let (_, rest) = output.split_once("http://").expect("just seen");
    let end = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit());
    // The line may not be whole yet; an address is only complete when something follows it.
    end.map_or_else(|| served_address(running), |end| rest[..end].trim_end_matches('.').to_owned())
}

/// A client that owes the program nothing.
fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn serve_answers_any_client_until_it_is_interrupted(engine: Engine) {
    let mut running = Run::on(engine).words("serve --listen 127.0.0.1:0 --body-bytes 7").start();
    let address = served_address(&mut running);
    for _ in 0..3 {
        let answer = get(&address);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        assert!(answer.to_lowercase().contains("content-length: 7\r\n"), "{answer:?}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert_eq!(body.len(), 7);
    }
    // The program's own client on it, many requests a connection.
    let outcome = Run::on(engine).words(&format!("http://{address}/ -n 2000 -c 4")).finish();
    outcome.expect_successes(2000);
    assert_eq!(outcome.counter("connections_opened"), 4);
    running.interrupt();
    running.finish().expect_code(0);
}

fn serve_delays_its_answers_when_asked_to(engine: Engine) {
    let mut running = Run::on(engine).words("serve --listen 127.0.0.1:0 --delay 30ms").start();
    let address = served_address(&mut running);
    let outcome = Run::on(engine).words(&format!("http://{address}/ -n 20 -c 2")).finish();
    outcome.expect_successes(20);
    let fastest = outcome.summary()["latency"]["min"].as_f64().expect("latency.min");
    assert!(fastest >= 30e6, "{fastest} ns");
    running.interrupt();
    running.finish().expect_code(0);
}

#[test]
fn doctor_names_what_it_looked_at() {
    let outcome = Run::new().default_report_dir().args(["doctor"]).finish();
    let said = outcome.stdout.to_lowercase();
    for word in ["kernel", "io_uring", "cores", "clock"] {
        assert!(said.contains(word), "{word}; {}", outcome.story());
    }
    let failed = outcome.stdout.contains("FAIL");
    outcome.expect_code(if failed { 3 } else { 0 });
}
