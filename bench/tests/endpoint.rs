//! The endpoint as a client of the standard library sees it, on both engines.
#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use loadgen_bench::{Endpoint, EndpointConfig};
use loadgen_shards::reactor::EngineChoice;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

/// Runs a claim on each engine that this host has.
fn on_both_engines(claim: impl Fn(EndpointConfig)) {
    for engine in [EngineChoice::Uring, EngineChoice::Epoll] {
        let config = EndpointConfig { engine, connections: 256, ..EndpointConfig::default() };
        match Endpoint::start(&config) {
            Ok(_) => claim(config),
            Err(reason) if engine == EngineChoice::Uring => eprintln!("skipped: {reason}"),
            Err(reason) => panic!("{reason}"),
        }
    }
}

fn start(config: &EndpointConfig) -> Endpoint {
    Endpoint::start(config).expect("it has stood before")
}

fn connect(endpoint: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect(endpoint.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket takes a timeout");
    stream.set_nodelay(true).expect("a socket takes TCP_NODELAY");
    stream
}

/// Reads one response: its head, and a body of `body_bytes`.
fn read_response(stream: &mut TcpStream, body_bytes: usize) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("ASCII");
    let mut body = vec![0; body_bytes];
    stream.read_exact(&mut body).expect("a body");
    assert!(body.iter().all(|&byte| byte == b'x'), "nothing but body after {head:?}");
    head
}

fn assert_ok(head: &str, body_bytes: usize) {
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {body_bytes}\r\n")), "{head}");
}

/// Nothing but the end of the stream.
fn assert_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    assert_eq!(String::from_utf8_lossy(&rest), "");
}

fn assert_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(30))).expect("a socket takes a timeout");
    let error = stream.read(&mut [0]).expect_err("nothing comes");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket takes a timeout");
}

#[test]
fn one_request_gets_one_response_of_the_asked_size() {
    on_both_engines(|config| {
        for body_bytes in [0, 1, 100, 65_400, 65_536, 70_000, 1 << 20] {
            let mut endpoint = start(&EndpointConfig { body_bytes, ..config.clone() });
            let mut stream = connect(&endpoint);
            for _ in 0..3 {
                stream.write_all(GET).expect("sent");
                assert_ok(&read_response(&mut stream, body_bytes), body_bytes);
            }
            assert_silent(&mut stream);
            assert_eq!(endpoint.requests(), 3);
            endpoint.stop();
            assert_eq!(endpoint.requests(), 3, "counts outlive the threads");
            assert_closed(&mut stream);
        }
    });
}

#[test]
fn pipelined_requests_are_answered_each_and_in_order() {
    on_both_engines(|config| {
        for body_bytes in [100, 30_000, 200_000] {
            let endpoint = start(&EndpointConfig { body_bytes, ..config.clone() });
            let mut stream = connect(&endpoint);
            let mut sent = 0;
            for count in 1..=40 {
                stream.write_all(&GET.repeat(count)).expect("sent");
                for _ in 0..count {
                    assert_ok(&read_response(&mut stream, body_bytes), body_bytes);
                }
                sent += count as u64;
            }
            assert_silent(&mut stream);
            assert_eq!(endpoint.requests(), sent);
        }
        // HEAD tells the order: its responses have no body, the others have.
        let endpoint = start(&config);
        let mut stream = connect(&endpoint);
        let is_head = |index: usize| index.is_multiple_of(3);
        let line = |index| {
            if is_head(index) { "HEAD / HTTP/1.1\r\n\r\n" } else { "GET / HTTP/1.1\r\n\r\n" }
        };
        stream.write_all((0..40).map(line).collect::<String>().as_bytes()).expect("sent");
        for index in 0..40 {
            assert_ok(&read_response(&mut stream, if is_head(index) { 0 } else { 100 }), 100);
        }
        assert_silent(&mut stream);
    });
}

#[test]
fn request_cut_at_every_byte_gets_its_response() {
    on_both_engines(|config| {
        let endpoint = start(&config);
        let mut stream = connect(&endpoint);
        for at in 1..GET.len() {
            stream.write_all(&GET[..at]).expect("sent");
            std::thread::sleep(Duration::from_millis(1));
            stream.write_all(&GET[at..]).expect("sent");
            assert_ok(&read_response(&mut stream, 100), 100);
        }
        assert_silent(&mut stream);
        assert_eq!(endpoint.requests(), GET.len() as u64 - 1);
    });
}

#[test]
fn request_bodies_are_skipped() {
    on_both_engines(|config| {
        let endpoint = start(&config);
        let mut stream = connect(&endpoint);
        let body = GET.repeat(10_000);
        let post = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(post.as_bytes()).expect("sent");
        stream.write_all(&body[1..]).expect("sent");
        assert_silent(&mut stream);
        stream.write_all(b"\n").expect("sent");
        assert_ok(&read_response(&mut stream, 100), 100);
        let chunked =
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n";
        stream.write_all(chunked.as_bytes()).expect("sent");
        assert_ok(&read_response(&mut stream, 100), 100);
        assert_silent(&mut stream);
        assert_eq!(endpoint.requests(), 2);
    });
}

#[test]
fn last_request_closes_the_connection_after_its_response() {
    on_both_engines(|config| {
        for body_bytes in [100, 65_536, 1 << 20] {
            let endpoint = start(&EndpointConfig { body_bytes, ..config.clone() });
            for (request, body) in [
                ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", body_bytes),
                ("GET / HTTP/1.0\r\n\r\n", body_bytes),
                ("HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n", 0),
            ] {
                let mut stream = connect(&endpoint);
                stream.write_all(request.as_bytes()).expect("sent");
                let head = read_response(&mut stream, body);
                assert_ok(&head, body_bytes);
                assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
                assert_closed(&mut stream);
            }
        }
    });
}

#[test]
fn client_that_has_said_all_still_gets_its_responses() {
    on_both_engines(|config| {
        for delay_ns in [0, 20_000_000] {
            let endpoint = start(&EndpointConfig { delay_ns, ..config.clone() });
            let mut stream = connect(&endpoint);
            stream.write_all(&GET.repeat(20)).expect("sent");
            stream.shutdown(std::net::Shutdown::Write).expect("half closed");
            for _ in 0..20 {
                assert_ok(&read_response(&mut stream, 100), 100);
            }
            assert_closed(&mut stream);
        }
    });
}

#[test]
fn garbage_gets_400_and_the_end() {
    on_both_engines(|config| {
        let endpoint = start(&config);
        let too_large = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(100_000));
        for garbage in ["\0\0\0\0", "nonsense\r\n\r\n", "GET / HTTP/3\r\n\r\n", &too_large] {
            let mut stream = connect(&endpoint);
            stream.write_all(GET).expect("sent");
            assert_ok(&read_response(&mut stream, 100), 100);
            let _ = stream.write_all(garbage.as_bytes());
            let mut rest = Vec::new();
            // What lies unread behind the limit may turn the end into a reset, also before the 400
            // was read.
            let has_end = stream.read_to_end(&mut rest).is_ok();
            let rest = String::from_utf8_lossy(&rest);
            assert!(rest.starts_with("HTTP/1.1 400 Bad Request\r\n") || !has_end, "{rest}");
            assert!(has_end || garbage.len() > 1000, "a short one leaves nothing unread");
        }
        assert_eq!(endpoint.requests(), 4, "garbage is no request");
    });
}

#[test]
fn response_comes_after_the_delay() {
    const DELAY: Duration = Duration::from_millis(40);
    on_both_engines(|config| {
        let delay_ns = DELAY.as_nanos() as u64;
        let endpoint = start(&EndpointConfig { delay_ns, ..config });
        let mut streams: Vec<_> = (0..5).map(|_| connect(&endpoint)).collect();
        for stream in &mut streams {
            stream.write_all(GET).expect("sent");
        }
        for stream in &mut streams {
            read_response(stream, 100);
        }
        let mut stream = connect(&endpoint);
        let mut elapsed = Vec::new();
        for _ in 0..5 {
            let begin = Instant::now();
            stream.write_all(&GET.repeat(3)).expect("sent");
            for _ in 0..3 {
                assert_ok(&read_response(&mut stream, 100), 100);
            }
            elapsed.push(begin.elapsed());
            assert!(begin.elapsed() >= DELAY, "never early: {elapsed:?}");
        }
        // The best of five: a busy machine is late at times, an endpoint that adds delays up is
        // late each time.
        let best = elapsed.iter().min().expect("five");
        assert!(*best < 2 * DELAY, "{elapsed:?}");
    });
}

#[test]
fn two_hundred_connections_are_served_and_one_too_many_is_closed() {
    on_both_engines(|config| {
        let endpoint = start(&EndpointConfig { connections: 200, ..config });
        let mut streams: Vec<_> = (0..200).map(|_| connect(&endpoint)).collect();
        for _ in 0..3 {
            for stream in &mut streams {
                stream.write_all(GET).expect("sent");
            }
            for stream in &mut streams {
                assert_ok(&read_response(stream, 100), 100);
            }
        }
        assert_eq!(endpoint.requests(), 600);
        assert_closed(&mut connect(&endpoint));
        // A slot that is free again is used again.
        drop(streams.pop());
        let is_served = || {
            let mut stream = connect(&endpoint);
            let mut byte = [0];
            stream.write_all(GET).and_then(|()| stream.read_exact(&mut byte)).is_ok()
        };
        let begin = Instant::now();
        while !is_served() {
            assert!(begin.elapsed() < Duration::from_secs(10), "the slot stays taken");
        }
    });
}

#[test]
fn several_threads_share_one_port() {
    on_both_engines(|config| {
        let cores = loadgen_shards::sys::affinity::allowed_cores();
        // The same core twice will do where there is only one.
        let cores = vec![cores[0], *cores.last().expect("at least one core")];
        let endpoint = start(&EndpointConfig { cores, ..config });
        let mut streams: Vec<_> = (0..64).map(|_| connect(&endpoint)).collect();
        for stream in &mut streams {
            stream.write_all(GET).expect("sent");
            assert_ok(&read_response(stream, 100), 100);
        }
        assert_eq!(endpoint.requests(), 64);
    });
}

#[test]
fn spinning_endpoint_answers_and_stops() {
    on_both_engines(|config| {
        let mut endpoint = start(&EndpointConfig { spin: true, ..config });
        let mut stream = connect(&endpoint);
        stream.write_all(GET).expect("sent");
        assert_ok(&read_response(&mut stream, 100), 100);
        endpoint.stop();
        assert_closed(&mut stream);
    });
}

#[test]
fn what_cannot_be_served_is_refused_with_its_cause() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound");
    let refusal = Endpoint::start(&EndpointConfig { address, ..EndpointConfig::default() });
    let refusal = refusal.expect_err("the port is taken");
    assert!(refusal.starts_with(&format!("cannot listen on {address}: ")), "{refusal}");
    // Two endpoints would share a port in silence.
    let first = start(&EndpointConfig::default());
    let second = EndpointConfig { address: first.address(), ..EndpointConfig::default() };
    assert!(Endpoint::start(&second).is_err());
    let cores = vec![4095];
    let refusal = Endpoint::start(&EndpointConfig { cores, ..EndpointConfig::default() });
    assert!(refusal.expect_err("no such core").contains("core 4095"));
    let address = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0));
    if let Ok(endpoint) = Endpoint::start(&EndpointConfig { address, ..EndpointConfig::default() })
    {
        assert!(endpoint.address().is_ipv6());
    }
}

#[test]
fn slow_reader_that_pipelines_gets_its_responses_whole_and_in_order() {
    const COUNT: usize = 600;
    on_both_engines(|config| {
        for body_bytes in [1000, 30_000, 60_000, 200_000] {
            // 1000: held up only by the many.
            let endpoint = start(&EndpointConfig { body_bytes, ..config.clone() });
            let mut stream = connect(&endpoint);
            // More than both socket buffers hold, before the first byte is read.
            for _ in 0..COUNT / 10 {
                stream.write_all(&GET.repeat(10)).expect("sent");
                std::thread::sleep(Duration::from_millis(1));
            }
            for _ in 0..COUNT {
                assert_ok(&read_response(&mut stream, body_bytes), body_bytes);
            }
            assert_silent(&mut stream);
        }
    });
}
