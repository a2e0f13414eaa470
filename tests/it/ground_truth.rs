//! The independent server is what every other test believes, so it is tested first: with a client
//! written here, on plain sockets.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::support::script::{LEGAL, PLAIN, Position, Step, TRUNCATED, steps};
use crate::support::server::{FullListener, Server, refused_port};
use crate::support::temp::TempDir;
use crate::support::{await_condition, skip};

/// Longest that a read of these tests may block.
const READ_LIMIT: Duration = Duration::from_secs(10);

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(READ_LIMIT)).unwrap();
    stream
}

fn get(path: &str) -> String {
    format!("GET /{path} HTTP/1.1\r\nHost: test\r\n\r\n")
}

/// Sends one request and reads as many bytes as are expected, or to the end.
fn exchange(stream: &mut TcpStream, request: &str, bytes: usize) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![0; bytes];
    let mut have = 0;
    while have < bytes {
        match stream.read(&mut answer[have..]).unwrap() {
            0 => break,
            count => have += count,
        }
    }
    answer.truncate(have);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads to the end of the connection.
fn read_to_end(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// All bytes that a script writes.
fn written(path: &str) -> Vec<u8> {
    let position = Position { of_path: 1, of_connection: 1 };
    let steps = steps("GET", &format!("/{path}"), position).expect("a script");
    let writes = steps.into_iter().filter_map(|step| match step {
        Step::Write(bytes) => Some(bytes),
        _ => None,
    });
    writes.flat_map(std::borrow::Cow::into_owned).collect()
}

#[test]
fn every_script_of_the_acceptance_list_sends_its_bytes() {
    let server = Server::start();
    for path in LEGAL.iter().chain(&TRUNCATED) {
        let expected = String::from_utf8(written(path)).unwrap();
        let mut stream = connect(&server);
        assert_eq!(exchange(&mut stream, &get(path), expected.len()), expected, "{path}");
        assert_eq!(server.seen(path).requests, 1, "{path}");
    }
    assert_eq!(server.requests_total(), (LEGAL.len() + TRUNCATED.len()) as u64);
}

/// (path, whether the connection stays usable after the answer)
#[test]
fn connections_stay_or_close_as_the_script_says() {
    let server = Server::start();
    let rows = [
        ("plain", true),
        ("chunked", true),
        ("drip", true),
        ("204", true),
        ("304", true),
        ("100", true),
        ("interim?count=4", true),
        ("manyhdr", true),
        ("lf", true),
        ("redirect", true),
        ("status/500", true),
        ("big?bytes=100", true),
        ("bytewise", true),
        ("http10-keepalive", true),
        ("nothing-of-that-name", true),
        ("close", false),
        ("eof", false),
        ("rudeclose", false),
        ("trunc", false),
        ("trunc-chunk", false),
        ("trunc-head", false),
        ("closes", false),
        ("http10", false),
        ("garbage", false),
    ];
    for (path, stays) in rows {
        let mut stream = connect(&server);
        stream.write_all(get(path).as_bytes()).unwrap();
        let name = path.split('?').next().unwrap();
        await_condition("the answer is written", || server.seen(name).answers == 1);
        // A second request on the same connection arrives only where the first left it open.
        let before = server.requests("second");
        let sent = stream.write_all(get("second").as_bytes());
        if stays {
            sent.unwrap();
            await_condition(path, || server.requests("second") == before + 1);
        } else {
            // An end or a reset, by whether the second request was faster than the close.
            let _ = read_to_end(&mut stream);
            assert_eq!(server.requests("second"), before, "{path}");
        }
    }
}

#[test]
fn a_body_is_read_by_its_length_and_both_are_kept() {
    let server = Server::start();
    let mut stream = connect(&server);
    let request = "POST /plain?x=1 HTTP/1.1\r\nhost: a\r\nX-A: 1\r\nx-a:  2\r\n\
                   Content-Length: 5\r\n\r\nhello";
    exchange(&mut stream, request, PLAIN.len());
    exchange(&mut stream, &get("plain"), PLAIN.len());
    let seen = server.seen("plain");
    assert_eq!((seen.requests, seen.connections, seen.kept.len()), (2, 1, 2));
    let first = &seen.kept[0];
    assert_eq!((first.method(), first.target()), ("POST", "/plain?x=1"));
    assert_eq!(first.fields("x-a"), ["1", "2"]);
    assert_eq!(first.fields("Host"), ["a"]);
    assert_eq!(first.body, b"hello");
    assert_eq!(seen.request_bytes, (request.len() + get("plain").len()) as u64);
    assert!(seen.arrivals[0] <= seen.arrivals[1]);
}

#[test]
fn in_flight_counts_the_requests_that_wait_for_their_answer() {
    let server = Server::start();
    let mut streams: Vec<TcpStream> = (0..5).map(|_| connect(&server)).collect();
    for stream in &mut streams {
        stream.write_all(get("silent").as_bytes()).unwrap();
    }
    await_condition("five wait", || server.seen("silent").in_flight == 5);
    drop(streams);
    await_condition("none waits", || server.seen("silent").in_flight == 0);
    let mut stream = connect(&server);
    for _ in 0..3 {
        exchange(&mut stream, &get("plain"), PLAIN.len());
    }
    assert_eq!(server.seen("silent").in_flight_max, 5);
    assert_eq!(server.seen("plain").in_flight_max, 1, "one after the other");
}

#[test]
fn every_k_th_request_of_a_mix_fails() {
    let server = Server::start();
    let mut stream = connect(&server);
    let statuses: Vec<String> = (0..6)
        .map(|i| {
            let bytes = written(if i % 3 == 2 { "status/503" } else { "plain" }).len();
            exchange(&mut stream, &get("mix?every=3&status=503"), bytes)[9..12].to_owned()
        })
        .collect();
    assert_eq!(statuses, ["200", "200", "503", "200", "200", "503"]);
}

#[test]
fn a_stale_connection_dies_when_the_next_request_arrives() {
    let server = Server::start();
    for (path, read) in [("stale", 2), ("stale-read", 3)] {
        let mut stream = connect(&server);
        for _ in 0..2 {
            let answer = exchange(&mut stream, &get(&format!("{path}?after=2")), PLAIN.len());
            assert_eq!(answer.as_bytes(), PLAIN, "{path}");
        }
        stream.write_all(get(&format!("{path}?after=2")).as_bytes()).unwrap();
        let end = read_to_end(&mut stream);
        assert!(end.is_err() || end.unwrap().is_empty(), "{path}: no byte of a third answer");
        assert_eq!(server.seen(path).requests, read, "{path}");
    }
}

#[test]
fn resets_reach_the_client_as_resets() {
    let server = Server::start();
    for path in ["reset-before", "reset-inside"] {
        let mut stream = connect(&server);
        stream.write_all(get(path).as_bytes()).unwrap();
        let error = read_to_end(&mut stream).expect_err("a reset, not an end");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{path}");
    }
    // Negative control: a plain close is an end.
    let mut stream = connect(&server);
    stream.write_all(get("closes").as_bytes()).unwrap();
    assert_eq!(read_to_end(&mut stream).unwrap(), "");
}

#[test]
fn pauses_lie_where_the_script_has_them() {
    let server = Server::start();
    let mut stream = connect(&server);
    let begin = Instant::now();
    exchange(&mut stream, &get("delay?ms=60"), 1);
    assert!(begin.elapsed() >= Duration::from_millis(60), "before the first byte");
    let mut stream = connect(&server);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n0123456789";
    let begin = Instant::now();
    exchange(&mut stream, &get("slow-middle?ms=60"), head.len());
    let first_half = begin.elapsed();
    exchange(&mut stream, "", 10);
    assert!(begin.elapsed() >= Duration::from_millis(60), "in the middle");
    assert!(first_half < begin.elapsed(), "the first half came before the pause");
}

#[test]
fn big_answers_are_as_big_as_they_say() {
    let server = Server::start();
    let (head_of_big, big) = {
        let bytes = written("big?bytes=1048576");
        (bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4, bytes)
    };
    assert_eq!(big.len() - head_of_big, 1 << 20);
    let mut stream = connect(&server);
    assert_eq!(exchange(&mut stream, &get("big?bytes=1048576"), big.len()).len(), big.len());
    let head = written("huge-head");
    assert!(head.len() > 256 * 1024, "{}", head.len());
    let fields = head.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"X-"));
    assert_eq!(fields.count(), 1000);
}

#[test]
fn head_has_the_length_of_get_and_no_body() {
    let server = Server::start();
    let mut stream = connect(&server);
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    let head = exchange(&mut stream, "HEAD /head HTTP/1.1\r\n\r\n", expected.len());
    assert_eq!(head, expected);
    let whole = exchange(&mut stream, &get("head"), expected.len() + 500);
    assert_eq!(whole, head + &"x".repeat(500));
}

#[test]
fn the_other_listeners_answer_too() {
    let folder = TempDir::new();
    let path = folder.join("socket");
    let server = Server::start_unix(&path);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(get("plain").as_bytes()).unwrap();
    let mut answer = vec![0; PLAIN.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer.as_slice(), server.requests("plain")), (PLAIN, 1));
    match Server::start_ipv6() {
        None => skip("this host has no IPv6 on loopback"),
        Some(server) => {
            let answer = exchange(&mut connect(&server), &get("plain"), PLAIN.len());
            assert_eq!(answer.as_bytes(), PLAIN);
        }
    }
    let server = Server::start_closing_on_accept();
    let end = read_to_end(&mut connect(&server));
    assert_eq!(end.unwrap(), "");
    await_condition("it was accepted", || server.accepted() == 1);
}

#[test]
fn nobody_answers_where_nobody_should() {
    let refused = TcpStream::connect(("127.0.0.1", refused_port())).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let full = FullListener::start();
    let address = full.url().replace("http://", "").replace('/', "").parse().unwrap();
    let hangs = TcpStream::connect_timeout(&address, Duration::from_millis(200)).unwrap_err();
    assert_eq!(hangs.kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn a_stopped_server_listens_no_more() {
    let server = Server::start();
    let address = server.address();
    drop(server);
    await_condition("it is gone", || TcpStream::connect(address).is_err());
}

#[test]
fn scripts_that_answer_differ_from_each_other() {
    let answers: BTreeSet<Vec<u8>> = LEGAL.iter().map(|path| written(path)).collect();
    // rudeclose answers as plain does; they differ in the close.
    assert_eq!(answers.len(), LEGAL.len() - 1);
}
