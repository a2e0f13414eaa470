//! The inference side of the endpoint as a client of the standard library sees it.
#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use loadgen_bench::{Draws, Endpoint, EndpointConfig, InferenceConfig};
use loadgen_shards::reactor::EngineChoice;

/// An endpoint with the flags of `serve`.
fn start_on(engine: EngineChoice, flags: &[(&str, &str)]) -> Endpoint {
    let mut inference = InferenceConfig::default();
    for (flag, value) in flags {
        inference.set(flag, value).expect("a flag").expect("a value");
    }
    let config = EndpointConfig {
        engine,
        connections: 2048,
        inference: Some(inference),
        ..EndpointConfig::default()
    };
    Endpoint::start(&config).expect("a free port")
}

fn start(flags: &[(&str, &str)]) -> Endpoint {
    start_on(EngineChoice::Auto, flags)
}

/// Runs a claim on each engine that this host has.
fn on_both_engines(claim: impl Fn(EngineChoice)) {
    for engine in [EngineChoice::Uring, EngineChoice::Epoll] {
        match Endpoint::start(&EndpointConfig { engine, ..EndpointConfig::default() }) {
            Ok(_) => claim(engine),
            Err(reason) if engine == EngineChoice::Uring => eprintln!("skipped: {reason}"),
            Err(reason) => panic!("{reason}"),
        }
    }
}

fn connect(endpoint: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect(endpoint.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    stream.set_nodelay(true).expect("a socket takes TCP_NODELAY");
    stream
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn chat(members: &str) -> String {
    let body = format!(
        r#"{{"model":"tiny","messages":[{{"role":"user","content":"Hello there"}}]{members}}}"#
    );
    post("/v1/chat/completions", &body)
}

fn stream(max_tokens: u32) -> String {
    chat(&format!(r#","stream":true,"max_tokens":{max_tokens}"#))
}

/// A response, read to its end by its framing.
#[derive(Clone, Debug)]
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// It ended as its head promised.
    is_whole: bool,
}

impl Response {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("JSON: {}", self.text()))
    }

    /// Payloads of the events.
    fn events(&self) -> Vec<&str> {
        self.text().lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect()
    }
}

/// Reads bytes up to and with `end`; less at the end of the connection.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(end) && read_some(stream, &mut byte) == 1 {
        bytes.push(byte[0]);
    }
    bytes
}

/// 0 at the end, also at a reset.
fn read_some(stream: &mut TcpStream, bytes: &mut [u8]) -> usize {
    match stream.read(bytes) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
        Err(error) => panic!("{error}"),
    }
}

fn read_exact(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while filled < count {
        match read_some(stream, &mut bytes[filled..]) {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    bytes
}

fn read_response(stream: &mut TcpStream) -> Response {
    let head = String::from_utf8(read_until(stream, b"\r\n\r\n")).expect("ASCII");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    if !head.ends_with("\r\n\r\n") {
        return Response { status, head, body: Vec::new(), is_whole: false };
    }
    let lower = head.to_ascii_lowercase();
    if let Some((_, rest)) = lower.split_once("content-length: ") {
        let length = rest.split_once("\r\n").expect("a line").0.parse().expect("a number");
        let body = read_exact(stream, length);
        return Response { status, head, is_whole: body.len() == length, body };
    }
    let (mut body, mut is_whole) = (Vec::new(), false);
    if !lower.contains("transfer-encoding: chunked") {
        stream.read_to_end(&mut body).expect("the end");
        return Response { status, head, body, is_whole: true };
    }
    loop {
        let line = String::from_utf8(read_until(stream, b"\r\n")).expect("ASCII");
        let Ok(size) = usize::from_str_radix(line.trim_end(), 16) else { break };
        let data = read_exact(stream, size + 2);
        if data.len() < size + 2 {
            break;
        }
        assert!(data.ends_with(b"\r\n"));
        body.extend_from_slice(&data[..size]);
        if size == 0 {
            is_whole = true;
            break;
        }
    }
    Response { status, head, body, is_whole }
}

fn ask(endpoint: &Endpoint, request: &str) -> Response {
    let mut stream = connect(endpoint);
    stream.write_all(request.as_bytes()).expect("sent");
    read_response(&mut stream)
}

fn assert_closed(stream: &mut TcpStream) {
    assert_eq!(read_exact(stream, 1), b"");
}

#[test]
fn profiles_are_byte_exact() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for profile in ["vllm", "sglang", "tgi", "llamacpp", "openai"] {
        let flags = [("--profile", profile), ("--model", "tiny"), ("--reasoning-tokens", "1")];
        let endpoint = start(&[&flags[..], &[("--max-context", "100")]].concat());
        let usage = r#","stream_options":{"include_usage":true}"#;
        let prompt = r#"{"prompt":"Hello there","max_tokens":2"#;
        let mut requests = vec![
            chat(&format!(r#","stream":true,"max_tokens":3{usage}"#)),
            stream(2),
            chat(r#","max_tokens":3"#),
            post("/v1/completions", &format!(r#"{prompt},"stream":true{usage}}}"#)),
            post("/v1/completions", &format!("{prompt}}}")),
            post("/v1/embeddings", r#"{"input":"abc","dimensions":3}"#),
            post("/tokenize", r#"{"prompt":"Hello","content":"Hello"}"#),
            "GET /v1/models HTTP/1.1\r\n\r\n".to_owned(),
            "GET /health HTTP/1.1\r\n\r\n".to_owned(),
            chat(r#","max_tokens":98"#),
            post("/v1/chat/completions", r#"{"model":"other"}"#),
        ];
        if profile == "sglang" {
            let generate = r#"{"text":"Hello","sampling_params":{"max_new_tokens":3}"#;
            requests.push(post("/generate", &format!(r#"{generate},"stream":true}}"#)));
            requests.push(post("/generate", &format!("{generate}}}")));
        }
        let mut seen = String::new();
        for request in requests {
            let mut stream = connect(&endpoint);
            stream.write_all(request.as_bytes()).expect("sent");
            stream.shutdown(std::net::Shutdown::Write).expect("half closed");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("UTF-8 to the end");
            let request = request.replace("\r\n", " | ");
            seen += &format!("> {request}\n{}\n", answer.replace('\r', "\\r"));
        }
        let name = format!("tests/golden/{profile}.txt");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        if update {
            std::fs::write(&path, &seen).expect("written");
        }
        let golden = std::fs::read_to_string(&path).expect("a golden file");
        for (line, (seen, golden)) in seen.lines().zip(golden.lines()).enumerate() {
            assert_eq!(seen, golden, "{profile}, line {}", line + 1);
        }
        assert_eq!(seen.len(), golden.len());
    }
}

#[test]
fn each_route_answers_and_other_paths_stay_plain() {
    on_both_engines(|engine| {
        let endpoint = start_on(engine, &[]);
        let get = |path: &str| ask(&endpoint, &format!("GET {path} HTTP/1.1\r\n\r\n"));
        for path in ["/", "/other", "/v1/models/x", "/generate"] {
            assert_eq!(get(path).text(), "x".repeat(100), "{path}");
        }
        let head = "HEAD /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n";
        let mut stream = connect(&endpoint);
        stream.write_all(head.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("to the end");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n"));
        assert_eq!(get("/v1/models").json()["data"][0]["id"], "embedded");
        assert_eq!((get("/health").status, get("/v1/chat/completions").status), (200, 405));
        let answer = ask(&endpoint, &chat(r#","max_tokens":7"#)).json();
        assert_eq!(answer["model"], "tiny", "a model's name comes back");
        assert_eq!(answer["usage"]["completion_tokens"], 7);
        let text = answer["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
        let tokens = ask(&endpoint, &post("/tokenize", &format!(r#"{{"prompt":"{text}"}}"#)));
        assert_eq!(tokens.json()["count"], 7, "the tokens of an answer are those of its text");
        let metrics = get("/metrics");
        assert!(metrics.head.contains("text/plain"));
        assert!(metrics.text().contains("\nloadgen_endpoint_output_tokens_total 7\n"));

        let plain = Endpoint::start(&EndpointConfig { engine, ..EndpointConfig::default() });
        let plain = plain.expect("a free port");
        assert_eq!(ask(&plain, &chat("")).text(), "x".repeat(100), "off unless asked for");
    });
}

#[test]
fn no_chunk_is_early() {
    const STREAMS: usize = 50;
    on_both_engines(|engine| {
        let flags = [("--ttft", "60ms"), ("--itl", "20ms")];
        let endpoint = start_on(engine, &flags);
        let mut streams: Vec<_> = (0..STREAMS).map(|_| connect(&endpoint)).collect();
        let mut begins = Vec::new();
        for socket in &mut streams {
            begins.push(Instant::now());
            socket.write_all(stream(5).as_bytes()).expect("sent");
        }
        for (socket, begin) in streams.iter_mut().zip(begins) {
            let mut seen = String::new();
            while !seen.contains("[DONE]") {
                let mut bytes = [0; 4096];
                let count = socket.read(&mut bytes).expect("more");
                seen += std::str::from_utf8(&bytes[..count]).expect("ASCII");
                let chunks = seen.matches("\"content\":\" ").count() as u32;
                let earliest = Duration::from_millis(60) + Duration::from_millis(20) * chunks;
                let earliest = earliest.saturating_sub(Duration::from_millis(20));
                assert!(chunks == 0 || begin.elapsed() >= earliest, "{chunks}");
            }
        }
        let begin = Instant::now();
        assert_eq!(ask(&endpoint, &chat(r#","max_tokens":5"#)).status, 200);
        assert!(begin.elapsed() >= Duration::from_millis(140), "in one piece: when all is due");
    });
}

#[test]
fn delay_of_plain_answers_keeps_the_order_and_not_the_pace_of_others() {
    on_both_engines(|engine| {
        let config = EndpointConfig {
            engine,
            delay_ns: 50_000_000,
            inference: Some(InferenceConfig::default()),
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::start(&config).expect("a free port");
        let plain = "GET / HTTP/1.1\r\n\r\n";
        let mut socket = connect(&endpoint);
        let one = stream(2);
        let begin = Instant::now();
        socket.write_all([&one, plain, &one, plain].concat().as_bytes()).expect("sent");
        assert_eq!(read_response(&mut socket).events().len(), 4);
        assert_eq!(read_response(&mut socket).text().len(), 100);
        assert!(begin.elapsed() >= Duration::from_millis(50));
        assert_eq!(read_response(&mut socket).events().len(), 4);
        assert_eq!(read_response(&mut socket).text().len(), 100);
    });
}

#[test]
fn same_seed_gives_the_same_bytes_whatever_the_order() {
    let requests: Vec<String> = (1..20).map(stream).collect();
    let bytes = |seed: u64, engine, order: &[usize]| {
        let inference = InferenceConfig { seed, ..InferenceConfig::default() };
        let config =
            EndpointConfig { engine, inference: Some(inference), ..EndpointConfig::default() };
        let endpoint = Endpoint::start(&config).expect("a free port");
        let mut answers = vec![Vec::new(); order.len()];
        for &index in order {
            answers[index] = ask(&endpoint, &requests[index]).body;
        }
        answers
    };
    let forward: Vec<usize> = (0..requests.len()).collect();
    let backward: Vec<usize> = forward.iter().rev().copied().collect();
    let first = bytes(1, EngineChoice::Auto, &forward);
    assert!(first == bytes(1, EngineChoice::Epoll, &backward));
    assert!(first != bytes(2, EngineChoice::Auto, &forward));
}

#[test]
fn failures_are_those_that_the_seed_gives() {
    const COUNT: u32 = 200;
    let one = chat(r#","max_tokens":1"#);
    let body = one.split_once("\r\n\r\n").expect("a head").1;
    // The first draw of a request decides.
    let expected = (0..COUNT)
        .filter(|&occurrence| Draws::of_request(42, body.as_bytes(), occurrence).unit() < 0.3)
        .count() as u64;
    assert!((30..90).contains(&expected));
    for connections in [1, 4] {
        let endpoint = start(&[("--fail-rate", "30%"), ("--fail-status", "429,503")]);
        let count_in = |share: u32| {
            let mut socket = connect(&endpoint);
            (0..share)
                .filter(|_| {
                    socket.write_all(one.as_bytes()).expect("sent");
                    let answer = read_response(&mut socket);
                    let is_failed = matches!(answer.status, 429 | 503);
                    assert!(is_failed || answer.status == 200);
                    assert_eq!(answer.head.contains("retry-after: 1\r\n"), is_failed);
                    assert_eq!(answer.json()["error"].is_object(), is_failed);
                    is_failed
                })
                .count() as u64
        };
        let failed: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..connections).map(|_| scope.spawn(|| count_in(COUNT / connections))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(failed, expected, "{connections} connections");
        assert_eq!(endpoint.inference_counts().failed, expected);
    }
}

#[test]
fn broken_streams_are_counted_exactly() {
    const COUNT: usize = 100;
    on_both_engines(|engine| {
        let mut counts = Vec::new();
        for _ in 0..2 {
            let flags = [("--error-in-stream-rate", "20%"), ("--truncate-rate", "0.3")];
            let endpoint = start_on(engine, &flags);
            let answers: Vec<_> = (0..COUNT).map(|_| ask(&endpoint, &stream(10))).collect();
            let errors =
                answers.iter().filter(|answer| answer.text().contains("{\"error\":")).count();
            let cut = answers.iter().filter(|answer| !answer.is_whole).count();
            assert!(answers.iter().all(|answer| answer.status == 200));
            let counted = endpoint.inference_counts();
            assert_eq!((counted.errors_in_stream, counted.truncated), (errors as u64, cut as u64));
            assert!((5..40).contains(&errors) && (10..50).contains(&cut), "{errors} {cut}");
            counts.push(counted);
        }
        assert_eq!(counts[0], counts[1]);
        // Without a stream the same falls on an answer in one piece.
        let endpoint = start_on(engine, &[("--truncate-rate", "100%")]);
        assert!(!ask(&endpoint, &chat(r#","max_tokens":1"#)).is_whole);
        let endpoint = start_on(engine, &[("--error-in-stream-rate", "100%")]);
        let answer = ask(&endpoint, &chat(r#","max_tokens":1"#));
        assert_eq!((answer.status, answer.json()["error"].is_object()), (200, true));
    });
}

#[test]
fn what_is_behind_a_truncated_answer_is_not_answered() {
    on_both_engines(|engine| {
        let endpoint = start_on(engine, &[("--truncate-rate", "100%")]);
        let mut socket = connect(&endpoint);
        socket.write_all((stream(5) + "GET / HTTP/1.1\r\n\r\n").as_bytes()).expect("sent");
        let answer = read_response(&mut socket);
        assert!(!answer.is_whole);
        assert_closed(&mut socket);
    });
}

#[test]
fn stalled_stream_pauses() {
    let endpoint = start(&[("--stall", "80ms"), ("--stall-after", "2")]);
    let begin = Instant::now();
    let mut socket = connect(&endpoint);
    socket.write_all(stream(4).as_bytes()).expect("sent");
    let answer = read_response(&mut socket);
    assert!(answer.is_whole && begin.elapsed() >= Duration::from_millis(80));
    assert_eq!(endpoint.inference_counts().stalled, 1);
}

#[test]
fn connection_closes_after_so_many_requests() {
    on_both_engines(|engine| {
        for (flags, count) in
            [(&[("--close-after", "3")][..], 3), (&[("--profile", "llamacpp")], 100)]
        {
            let endpoint = start_on(engine, flags);
            let mut socket = connect(&endpoint);
            for index in 1..=count {
                socket.write_all(chat(r#","max_tokens":1"#).as_bytes()).expect("sent");
                let answer = read_response(&mut socket);
                let is_last = answer.head.to_ascii_lowercase().contains("connection: close");
                assert_eq!((answer.status, is_last), (200, index == count));
            }
            assert_closed(&mut socket);
        }
        let endpoint = start_on(engine, &[("--profile", "llamacpp"), ("--close-after", "0")]);
        let mut socket = connect(&endpoint);
        for _ in 0..150 {
            socket.write_all(chat(r#","max_tokens":1"#).as_bytes()).expect("sent");
            assert!(!read_response(&mut socket).head.contains("close"));
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_both_engines(|engine| {
        let endpoint = start_on(engine, &[("--ttft", "uniform:0-3ms"), ("--itl", "0.2ms")]);
        let mut socket = connect(&endpoint);
        let mut requests = String::new();
        for index in 0..60 {
            requests += &match index % 4 {
                0 => stream(index + 1),
                1 => "GET / HTTP/1.1\r\n\r\n".to_owned(),
                2 => chat(&format!(r#","max_tokens":{}"#, index + 1)),
                _ => "GET /health HTTP/1.1\r\n\r\n".to_owned(),
            };
        }
        socket.write_all(requests.as_bytes()).expect("sent");
        for index in 0..60 {
            let answer = read_response(&mut socket);
            assert_eq!(answer.status, 200);
            match index % 4 {
                0 => assert_eq!(answer.text().matches("\"content\":\" ").count(), index + 1),
                1 => assert_eq!(answer.text().len(), 100),
                2 => assert_eq!(answer.json()["usage"]["completion_tokens"], index + 1),
                _ => assert_eq!(answer.text(), ""),
            }
        }
        assert_eq!(endpoint.requests(), 60);
    });
}

#[test]
fn request_cut_at_every_byte_gets_its_answer() {
    let endpoint = start(&[]);
    let mut socket = connect(&endpoint);
    let request = stream(2);
    for at in 1..request.len() {
        socket.write_all(&request.as_bytes()[..at]).expect("sent");
        std::thread::sleep(Duration::from_micros(300));
        socket.write_all(&request.as_bytes()[at..]).expect("sent");
        let answer = read_response(&mut socket);
        assert_eq!((answer.status, answer.events().len()), (200, 4), "cut at {at}");
    }
}

#[test]
fn prompt_of_a_megabyte_is_read_whole() {
    on_both_engines(|engine| {
        let endpoint = start_on(engine, &[]);
        let text = "four".repeat(1 << 18);
        let members = r#""max_tokens":1"#;
        let body = format!(r#"{{"messages":[{{"content":"{text}"}}],{members}}}"#);
        let answer = ask(&endpoint, &post("/v1/chat/completions", &body));
        assert_eq!(answer.json()["usage"]["prompt_tokens"], 1 << 18);
        let mut chunked =
            "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        for piece in body.as_bytes().chunks(50_000) {
            let piece = std::str::from_utf8(piece).expect("ASCII");
            chunked += &format!("{:x}\r\n{piece}\r\n", piece.len());
        }
        let answer = ask(&endpoint, &(chunked + "0\r\n\r\n"));
        assert_eq!(answer.json()["usage"]["prompt_tokens"], 1 << 18);
    });
}

#[test]
fn hostile_bodies_get_an_error_and_harm_nobody() {
    let endpoint = start(&[]);
    let mut socket = connect(&endpoint);
    let deep = "[".repeat(1_000_000);
    for body in ["", "{", "null", "\0", "[1,2", "{\"messages\":{}}", "\u{feff}{}", &deep] {
        for path in ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize"] {
            socket.write_all(post(path, body).as_bytes()).expect("sent");
            let answer = read_response(&mut socket);
            assert_eq!(answer.status, 400, "{path}");
            assert!(answer.json()["error"]["message"].is_string());
        }
    }
    socket.write_all(stream(1).as_bytes()).expect("sent");
    assert_eq!(read_response(&mut socket).status, 200, "the connection goes on");
    assert_eq!(endpoint.inference_counts().refused, 8 * 4);
}

#[test]
fn long_stream_to_a_slow_reader_is_whole() {
    on_both_engines(|engine| {
        let endpoint = start_on(engine, &[]);
        let mut socket = connect(&endpoint);
        let count = 40_000;
        socket.write_all(stream(count).as_bytes()).expect("sent");
        socket.write_all(stream(1).as_bytes()).expect("sent");
        std::thread::sleep(Duration::from_millis(50));
        let mut socket = Buffered::new(socket);
        let events = socket.events();
        assert_eq!(events, count as usize + 2);
    });
}

/// Counts the events of a long stream without reading it byte by byte.
struct Buffered(TcpStream);

impl Buffered {
    fn new(stream: TcpStream) -> Buffered {
        Buffered(stream)
    }

    /// Events up to the first `[DONE]`, with it.
    fn events(&mut self) -> usize {
        let mut text = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let count = self.0.read(&mut bytes).expect("more");
            assert!(count > 0, "it ends early");
            text.extend_from_slice(&bytes[..count]);
            let tail = &text[text.len().saturating_sub(count + 16)..];
            if tail.windows(6).any(|window| window == b"[DONE]") {
                let text = String::from_utf8(text).expect("ASCII");
                let (stream, _) = text.split_once("[DONE]").expect("just seen");
                return stream.matches("data: ").count();
            }
        }
    }
}

#[test]
fn hundreds_of_streams_are_paced_at_once() {
    const STREAMS: usize = 300;
    on_both_engines(|engine| {
        let endpoint = start_on(engine, &[("--ttft", "exponential:20ms"), ("--itl", "5ms~1ms")]);
        let mut sockets: Vec<_> = (0..STREAMS).map(|_| connect(&endpoint)).collect();
        for socket in &mut sockets {
            socket.write_all(stream(20).as_bytes()).expect("sent");
        }
        for socket in &mut sockets {
            let answer = read_response(socket);
            assert!(answer.is_whole);
            assert_eq!(answer.events().len(), 22);
        }
        let counted = endpoint.inference_counts();
        assert_eq!((counted.output_tokens, counted.chunks), (6000, 6000));
    });
}

#[test]
fn client_that_leaves_takes_its_stream_along() {
    on_both_engines(|engine| {
        let endpoint = start_on(engine, &[("--itl", "1ms")]);
        for _ in 0..20 {
            let mut socket = connect(&endpoint);
            socket.write_all(stream(10_000).as_bytes()).expect("sent");
            let _ = socket.read(&mut [0; 100]).expect("a begin");
        }
        // Their slots are taken by others, who get only their own.
        for _ in 0..20 {
            assert_eq!(ask(&endpoint, &stream(3)).events().len(), 5);
        }
    });
}

#[test]
fn old_clients_get_no_http_chunks() {
    let endpoint = start(&[]);
    let request = stream(3).replace("HTTP/1.1", "HTTP/1.0");
    let answer = ask(&endpoint, &request);
    assert!(answer.head.contains("connection: close") && !answer.head.contains("chunked"));
    assert!(answer.text().starts_with("data: {") && answer.text().ends_with("[DONE]\n\n"));
}

#[test]
fn lines_end_as_told_and_usage_is_in_each_chunk_if_asked_for() {
    let inference = InferenceConfig { crlf: true, ..InferenceConfig::default() };
    let config = EndpointConfig { inference: Some(inference), ..EndpointConfig::default() };
    let endpoint = Endpoint::start(&config).expect("a free port");
    let usage = r#"{"include_usage":true,"continuous_usage_stats":true}"#;
    let members = format!(r#","stream":true,"max_tokens":3,"stream_options":{usage}"#);
    let answer = ask(&endpoint, &chat(&members));
    assert_eq!(answer.text().matches("\r\n\r\n").count(), 6);
    assert_eq!(answer.text().matches('\n').count(), 12);
    let counts: Vec<u64> = answer.events()[..5]
        .iter()
        .map(|event| serde_json::from_str::<serde_json::Value>(event).expect("JSON"))
        .map(|event| event["usage"]["completion_tokens"].as_u64().expect("a count"))
        .collect();
    assert_eq!(counts, [0, 1, 2, 3, 3]);
}

/// For one read; a machine that is slower than this is broken.
const PATIENCE: Duration = Duration::from_secs(20);
