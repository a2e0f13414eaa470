//! What is on the wire: the requests as the server read them, byte by byte.

use std::fs;
use std::path::Path;

use crate::support::run::{Outcome, Run};
use crate::support::server::{Request, Server};
use crate::support::temp::TempDir;
use crate::support::{Engine, on_both_engines, skip};

on_both_engines!(
    a_plain_request_is_minimal_and_legal,
    a_host_header_of_the_user_replaces_ours,
    headers_may_be_repeated,
    a_body_brings_its_length_and_makes_a_post,
    a_body_comes_from_a_file,
    a_large_body_arrives_whole,
    methods_are_sent_as_given,
    credentials_become_basic_authorization,
    the_target_is_the_path_and_query,
    connect_to_changes_the_address_only,
    a_unix_socket_carries_the_same_request,
    ipv6_addresses_work,
    without_keep_alive_each_request_has_its_connection,
);

/// Sends three requests to `/plain` over one connection, and gives the first, to which the others
/// must be equal.
fn sent(engine: Engine, server: &Server, url: &str, more: &[&str]) -> Request {
    let outcome = Run::on(engine)
        .args(["max-throughput", url, "-n", "3", "-c", "1", "-t", "1"])
        .args(more)
        .finish();
    outcome.expect_successes(3);
    first_of_equals(server, 3, &outcome)
}

fn first_of_equals(server: &Server, count: usize, outcome: &Outcome) -> Request {
    let kept = server.seen("plain").kept;
    assert_eq!(kept.len(), count, "{}", outcome.story());
    for other in &kept[1..] {
        assert_eq!((&other.head, &other.body), (&kept[0].head, &kept[0].body));
    }
    kept[0].clone()
}

fn a_plain_request_is_minimal_and_legal(engine: Engine) {
    let server = Server::start();
    let request = sent(engine, &server, &server.url("plain"), &[]);
    assert!(request.head.starts_with("GET /plain HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.fields("host"), [server.address().to_string()]);
    assert_eq!(request.fields("user-agent").len(), 1);
    assert_eq!(request.fields("content-length"), [""; 0], "no body, no length");
    assert_eq!(request.fields("transfer-encoding"), [""; 0]);
    assert_eq!(request.body, b"");
    assert!(!request.head.replace("\r\n", "").contains(['\r', '\n']), "line ends are CRLF");
}

fn a_host_header_of_the_user_replaces_ours(engine: Engine) {
    for header in ["Host: example.test", "host: example.test", "HOST:example.test"] {
        let server = Server::start();
        let request = sent(engine, &server, &server.url("plain"), &["-H", header]);
        assert_eq!(request.fields("host"), ["example.test"], "{}", request.head);
    }
}

fn headers_may_be_repeated(engine: Engine) {
    let server = Server::start();
    let more = ["-H", "X-A: 1", "-H", "x-b: two words", "-H", "X-A: 2", "-H", "X-Empty:"];
    let request = sent(engine, &server, &server.url("plain"), &more);
    assert_eq!(request.fields("x-a"), ["1", "2"]);
    assert_eq!(request.fields("x-b"), ["two words"]);
    assert_eq!(request.fields("x-empty"), [""]);
}

fn a_body_brings_its_length_and_makes_a_post(engine: Engine) {
    let server = Server::start();
    let more = ["-b", "hello", "-T", "text/plain"];
    let request = sent(engine, &server, &server.url("plain"), &more);
    assert_eq!(request.method(), "POST");
    assert_eq!(request.fields("content-length"), ["5"]);
    assert_eq!(request.fields("content-type"), ["text/plain"]);
    assert_eq!(request.body, b"hello");
    let server = Server::start();
    let request = sent(engine, &server, &server.url("plain"), &["-b", "hello", "-m", "PUT"]);
    assert_eq!((request.method(), request.body.as_slice()), ("PUT", b"hello".as_slice()));
}

fn write(folder: &TempDir, bytes: &[u8]) -> String {
    let path = folder.join("body");
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn a_body_comes_from_a_file(engine: Engine) {
    let folder = TempDir::new();
    let bytes = b"\x00binary\r\n\r\n\xff";
    let server = Server::start();
    let file = write(&folder, bytes);
    let request = sent(engine, &server, &server.url("plain"), &["--body-file", &file]);
    assert_eq!(request.method(), "POST");
    assert_eq!(request.fields("content-length"), ["12"]);
    assert_eq!(request.body, bytes);
}

/// Larger than a socket buffer and than any single send.
fn a_large_body_arrives_whole(engine: Engine) {
    let folder = TempDir::new();
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
    let server = Server::start();
    let file = write(&folder, &bytes);
    let outcome = Run::on(engine)
        .args(["max-throughput", &server.url("plain"), "--body-file", &file])
        .words("-n 8 -c 4 -t 1")
        .finish();
    outcome.expect_successes(8);
    let request = first_of_equals(&server, 8, &outcome);
    assert!(request.body == bytes, "{} bytes, not those of the file", request.body.len());
    assert!(outcome.counter("bytes_sent") >= 8 * 5_000_000);
}

fn methods_are_sent_as_given(engine: Engine) {
    for method in ["DELETE", "OPTIONS", "PATCH", "X-CUSTOM"] {
        let server = Server::start();
        let request = sent(engine, &server, &server.url("plain"), &["-m", method]);
        assert_eq!(request.method(), method);
    }
    let server = Server::start();
    let outcome = Run::on(engine)
        .words(&format!("max-throughput {} -n 5 -c 1 -X HEAD", server.url("head")))
        .finish();
    outcome.expect_successes(5);
    let seen = server.seen("head");
    assert_eq!((seen.kept[0].method(), seen.connections), ("HEAD", 1));
}

fn credentials_become_basic_authorization(engine: Engine) {
    let expected = ["Basic dXNlcjpwYXNz"];
    let server = Server::start();
    let request = sent(engine, &server, &server.url("plain"), &["-a", "user:pass"]);
    assert_eq!(request.fields("authorization"), expected);
    let server = Server::start();
    let url = format!("http://user:pass@{}/plain", server.address());
    let request = sent(engine, &server, &url, &[]);
    assert_eq!(request.fields("authorization"), expected);
    assert_eq!(request.fields("host"), [server.address().to_string()], "no user-info in Host");
    let server = Server::start();
    let more = ["-a", "user:pass", "-H", "Authorization: Bearer mine"];
    let request = sent(engine, &server, &server.url("plain"), &more);
    assert_eq!(request.fields("authorization"), ["Bearer mine"], "a header of the user wins");
}

fn the_target_is_the_path_and_query(engine: Engine) {
    for (url, target) in [
        ("plain?a=1&b=%20x", "/plain?a=1&b=%20x"),
        ("plain?a#fragment", "/plain?a"),
        ("plain?a=http://b/c", "/plain?a=http://b/c"),
    ] {
        let server = Server::start();
        let request = sent(engine, &server, &server.url(url), &[]);
        assert_eq!(request.target(), target, "{url}");
    }
    // No path at all is `/`, which is no script: 404, and the request was still right.
    let server = Server::start();
    let url = format!("http://{}", server.address());
    let outcome =
        Run::on(engine).words(&format!("{url} -n 1 -c 1 --accept-status 404-404")).finish();
    outcome.expect_successes(1);
    assert_eq!(server.seen("").kept[0].target(), "/");
}

fn connect_to_changes_the_address_only(engine: Engine) {
    let server = Server::start();
    let port = server.address().port();
    let over = format!("example.test:80:127.0.0.1:{port}");
    let request = sent(engine, &server, "http://example.test/plain", &["--connect-to", &over]);
    assert_eq!(request.fields("host"), ["example.test"], "the default port is not named");
    let server = Server::start();
    let port = server.address().port();
    let over = format!("example.test:8080:127.0.0.1:{port}");
    let url = "http://example.test:8080/plain";
    let request = sent(engine, &server, url, &["--connect-to", &over]);
    assert_eq!(request.fields("host"), ["example.test:8080"]);
}

fn a_unix_socket_carries_the_same_request(engine: Engine) {
    let folder = TempDir::new();
    let path = folder.join("socket");
    let server = Server::start_unix(Path::new(&path));
    let more = ["--unix-socket", path.to_str().unwrap(), "-b", "hello"];
    let request = sent(engine, &server, "http://localhost/plain", &more);
    assert_eq!(request.fields("host"), ["localhost"]);
    assert_eq!(request.body, b"hello");
    assert_eq!(server.seen("plain").connections, 1);
}

fn ipv6_addresses_work(engine: Engine) {
    let Some(server) = Server::start_ipv6() else {
        return skip("this host has no IPv6 on loopback");
    };
    let port = server.address().port();
    let request = sent(engine, &server, &format!("http://[::1]:{port}/plain"), &[]);
    assert_eq!(request.fields("host"), [format!("[::1]:{port}")]);
    let over = format!("example.test:80:[::1]:{port}");
    let outcome = Run::on(engine)
        .args(["http://example.test/chunked", "--connect-to", &over, "-n", "3", "-c", "1"])
        .finish();
    outcome.expect_successes(3);
    assert_eq!(server.requests("chunked"), 3);
}

fn without_keep_alive_each_request_has_its_connection(engine: Engine) {
    let server = Server::start();
    let outcome = Run::on(engine)
        .words(&format!("max-throughput {} -n 50 -c 4 --disable-keepalive", server.url("plain")))
        .finish();
    outcome.expect_successes(50);
    let seen = server.seen("plain");
    assert_eq!((seen.requests, seen.connections), (50, 50));
    assert_eq!(seen.kept[0].fields("connection"), ["close"], "and the server is told so");
    assert_eq!(outcome.counter("connections_reused_stale"), 0);
}
