//! Streams in real time against a paced server that shares no code with the program and writes the
//! instant of each token into it: what is reported is compared with that, request by request (the
//! ground truths G9 and G17).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::run::{Outcome, Run};
use crate::support::sys::monotonic_ns;
use crate::support::temp::TempDir;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    tokens_are_stamped_when_they_come,
    long_stream_takes_as_long_as_its_server_does,
    large_prompt_is_sent_as_fast_as_it_is_read,
);

/// A server with a thread for each connection, which `answer` writes to once a request is whole.
fn serve(
    read_pause: Duration,
    answer: impl Fn(&mut TcpStream) + Copy + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.set_nodelay(true).expect("a socket of TCP");
            thread::spawn(move || {
                while read_request(&mut stream, read_pause) {
                    answer(&mut stream);
                }
            });
        }
    });
    address
}

/// False: the client has closed. Of a body 64 KiB are taken at a time, with a pause before each.
fn read_request(stream: &mut TcpStream, pause: Duration) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return false;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is ASCII").to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
    let mut left: usize = length.expect("a body").parse().expect("a number");
    let mut piece = vec![0; 64 << 10];
    while left > 0 {
        thread::sleep(pause);
        let bytes = left.min(piece.len());
        if stream.read_exact(&mut piece[..bytes]).is_err() {
            return false;
        }
        left -= bytes;
    }
    true
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";

fn chunk(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// A token that says when it was written.
fn token() -> String {
    let text = monotonic_ns();
    chunk(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text} "}}}}]}}"#))
}

fn end(tokens: u32) -> String {
    let usage = format!(r#"{{"prompt_tokens":1,"completion_tokens":{tokens}}}"#);
    let choice = r#"{"index":0,"delta":{},"finish_reason":"stop"}"#;
    let last = chunk(&format!(r#"{{"choices":[{choice}],"usage":{usage}}}"#));
    format!("{last}{}0\r\n\r\n", chunk("[DONE]"))
}

/// 20 tokens, the first after 50 ms, then one each 10 ms.
fn paced(stream: &mut TcpStream) {
    let begin = Instant::now();
    // A client that has gone is its own affair.
    let _ = stream.write_all(HEAD.as_bytes());
    for index in 0..20u64 {
        let due = begin + Duration::from_millis(50 + 10 * index);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let _ = stream.write_all(token().as_bytes());
    }
    let _ = stream.write_all(end(20).as_bytes());
}

fn run(engine: Engine, address: SocketAddr, words: &str) -> Outcome {
    let url = format!("http://{address}/v1");
    let (pattern, rest) = words.split_once(' ').expect("a pattern and its flags");
    let run = Run::on(engine).args([pattern, &url]);
    run.words(&format!("{rest} --model m --no-preflight --tokenizer none --records-full")).finish()
}

fn lines(outcome: &Outcome) -> Vec<Value> {
    let text = outcome.file("requests.jsonl");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_else(|| panic!("no {key} in {line}"))
}

/// What the server wrote into the tokens of an answer, ns.
fn written_ns(line: &Value) -> Vec<u64> {
    let text = line["output"].as_str().expect("texts are kept");
    text.split_whitespace().map(|word| word.parse().expect("an instant")).collect()
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn tokens_are_stamped_when_they_come(engine: Engine) {
    let address = serve(Duration::ZERO, paced);
    let words = "poisson -R 100 -n 200 -c 64 --isl 4 --osl 20";
    let outcome = run(engine, address, words);
    outcome.expect_successes(200);
    let lines = lines(&outcome);
    assert_eq!(lines.len(), 200);
    let (mut first_off_ns, mut last_off_ns) = (Vec::new(), Vec::new());
    for line in &lines {
        let written_ns = written_ns(line);
        assert_eq!((written_ns.len(), number(line, "osl")), (20, 20));
        let (first_ns, last_ns) = (number(line, "first_token_ns"), number(line, "last_token_ns"));
        assert!(first_ns >= written_ns[0], "seen before it was written: {line}");
        assert!(first_ns - number(line, "sent_ns") >= 50_000_000, "{line}");
        first_off_ns.push(first_ns - written_ns[0]);
        last_off_ns.push(last_ns - written_ns[19]);
        let tpot_ns = (last_ns - first_ns) / 19;
        assert_eq!(number(line, "tpot_ns"), tpot_ns);
    }
    let off = (median(first_off_ns), median(last_off_ns));
    assert!(off.0 <= 500_000 && off.1 <= 500_000, "{off:?} ns: {}", outcome.story());
    let summary = outcome.summary();
    assert_eq!(summary["output_sequence_lengths"]["total"], 4000);
    let ttft_ms = summary["ttft"]["percentiles"]["50.0"].as_f64().expect("a number") / 1e6;
    assert!((49.9..60.0).contains(&ttft_ms), "{ttft_ms}: {}", outcome.story());
}

/// 100 tokens each 2 ms, for two seconds; the server says in its last tokens when it began and when
/// it ended.
fn long(stream: &mut TcpStream) {
    let begin = Instant::now();
    let begin_ns = monotonic_ns();
    let _ = stream.write_all(HEAD.as_bytes());
    let piece = chunk(r#"{"choices":[{"index":0,"delta":{"content":"1 "}}]}"#).repeat(100);
    for index in 0..1000 {
        let due = begin + Duration::from_millis(2 * index);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let _ = stream.write_all(piece.as_bytes());
    }
    let last = format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{begin_ns} "}}}}]}}"#);
    let _ = stream.write_all(format!("{}{}{}", chunk(&last), token(), end(100_002)).as_bytes());
}

fn long_stream_takes_as_long_as_its_server_does(engine: Engine) {
    let address = serve(Duration::ZERO, long);
    let outcome = run(engine, address, "concurrency -c 1 -n 2 --isl 4");
    outcome.expect_successes(2);
    for line in lines(&outcome) {
        assert_eq!((number(&line, "chunks"), number(&line, "osl")), (100_002, 100_002));
        let written_ns = written_ns(&line);
        let (begin_ns, end_ns) = (written_ns[100_000], written_ns[100_001]);
        let (took_ns, seen_ns) = (end_ns - begin_ns, number(&line, "service_ns"));
        assert!(seen_ns.abs_diff(took_ns) <= took_ns / 50, "{seen_ns} of {took_ns} ns");
    }
}

fn large_prompt_is_sent_as_fast_as_it_is_read(engine: Engine) {
    let address = serve(Duration::from_millis(20), |stream| {
        let _ = stream.write_all(format!("{HEAD}{}{}", token(), end(1)).as_bytes());
    });
    let folder = TempDir::new();
    let path = folder.join("prompts.jsonl");
    let prompt = "word ".repeat((1 << 20) / 5);
    std::fs::write(&path, format!("{{\"prompt\":\"{prompt}\"}}\n")).expect("the folder is ours");
    let words = format!("concurrency -c 1 -n 5 --dataset {}", path.display());
    let outcome = run(engine, address, &words);
    outcome.expect_successes(5);
    let took: Vec<u64> = lines(&outcome).iter().map(|line| number(line, "service_ns")).collect();
    // 1 MiB and a bit: 17 pieces, 20 ms before each, and never less.
    assert!(took.iter().all(|&ns| ns >= 16 * 20_000_000), "{took:?}");
    assert!(median(took.clone()) <= 17 * 20_000_000 * 6 / 5, "{took:?}: {}", outcome.story());
}
