//! Answers of an inference endpoint in virtual time: every instant is known.

use std::sync::Arc;

use super::ShardPlan;
use super::tests::{BEGIN_NS, MS, Setup, Totals, phase, shard_plan};
use crate::answer::{AnswerFormat, AnswerPlan, FinishReason, Usage};
use crate::failure::FailureKind;
use crate::limits::LINGER_NS;
use crate::phase::Timeouts;
use crate::query::Request;
use crate::record::{Record, record_path};
use crate::sim::SimEndpoint;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                      Transfer-Encoding: chunked\r\n\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
const DONE: &str = "[DONE]";

/// An event with this data, as an HTTP chunk of its own.
fn event(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

fn token(text: &str) -> Vec<u8> {
    event(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#))
}

fn finish() -> Vec<u8> {
    let choice = r#"{"index":0,"delta":{},"finish_reason":"length"}"#;
    let usage = r#"{"prompt_tokens":7,"completion_tokens":5}"#;
    event(&format!(r#"{{"choices":[{choice}],"usage":{usage}}}"#))
}

/// Reads chats; the one request asks for a stream.
fn plan(in_flight: u32) -> ShardPlan {
    let mut plan = shard_plan(in_flight);
    plan.table.answers = Arc::new(AnswerPlan {
        format: AnswerFormat::Chat,
        keeps_text: true,
        chunks_expected: 8,
        ..AnswerPlan::PLAIN
    });
    let requests = plan.table.requests.iter().cloned();
    plan.table.requests = requests.map(|request| Request { is_stream: true, ..request }).collect();
    plan
}

/// Three tokens at 10, 20 and 40 ms after a head at 5 ms, then what is told.
fn stream(rest: &[(u64, Vec<u8>)]) -> SimEndpoint {
    let mut later = vec![(5 * MS, token("a")), (15 * MS, token("b")), (35 * MS, token("c"))];
    later.extend_from_slice(rest);
    SimEndpoint {
        service_ns: vec![5 * MS],
        response: HEAD.to_vec(),
        later,
        ..SimEndpoint::default()
    }
}

/// Queries in closed loop, one at a time, with records and texts.
fn run(endpoint: SimEndpoint, queries: u64) -> (Vec<Record>, Totals) {
    run_with(Timeouts::default(), endpoint, queries)
}

fn run_with(timeouts: Timeouts, endpoint: SimEndpoint, queries: u64) -> (Vec<Record>, Totals) {
    let (sink, mut source) = record_path(8, 8);
    let plan = ShardPlan { timeouts, ..plan(1) };
    let setup = Setup::new(plan, endpoint, vec![phase(0, 1, Some(queries))]);
    let (_, mut totals) = Setup { records: Some(sink), ..setup }.run();
    let records = std::iter::from_fn(|| source.take()).collect();
    (records, totals.remove(0))
}

#[test]
fn tokens_usage_and_end_have_their_instants() {
    let end = [finish(), event(DONE), LAST_CHUNK.to_vec()].concat();
    let (records, totals) = run(stream(&[(45 * MS, end)]), 2);
    assert_eq!(records.len(), 2);
    for (begin_ns, record) in [BEGIN_NS, BEGIN_NS + 50 * MS].into_iter().zip(&records) {
        let facts = &record.facts;
        assert_eq!((record.failure, record.status), (None, 200));
        assert_eq!(record.stamps.sent_ns, begin_ns);
        assert_eq!(facts.first_token_ns, begin_ns + 10 * MS);
        assert_eq!(facts.last_token_ns, begin_ns + 40 * MS);
        assert_eq!((facts.done_ns, record.stamps.complete_ns), (begin_ns + 50 * MS, facts.done_ns));
        assert_eq!((facts.chunks, facts.finish), (3, FinishReason::Length));
        let usage = Usage { prompt: Some(7), completion: Some(5), ..Usage::default() };
        assert_eq!(facts.usage, usage);
        let text = record.text.as_ref().expect("kept");
        assert_eq!((text.visible.as_str(), &text.gaps_ns[..]), ("abc", &[10 * MS, 20 * MS][..]));
    }
    assert_eq!((totals.counters.answers, totals.counters.completion_tokens), (2, 10));
    assert_eq!(totals.counters.connections_opened, 1, "it is used again");
    totals.assert_latencies_ms(&[50.0, 50.0]);
}

#[test]
fn an_answer_is_over_with_done_also_if_its_response_goes_on() {
    let endpoint = stream(&[(45 * MS, [finish(), event(DONE)].concat())]);
    let (records, totals) = run(endpoint, 2);
    // The rest is waited for, and the connection then given up; none of that is latency.
    totals.assert_latencies_ms(&[50.0, 50.0]);
    assert_eq!(records[1].stamps.sent_ns, BEGIN_NS + 50 * MS + LINGER_NS);
    assert_eq!(totals.counters.connections_opened, 2);
    let late = stream(&[(45 * MS, event(DONE)), (55 * MS, LAST_CHUNK.to_vec())]);
    let (records, totals) = run(late, 2);
    totals.assert_latencies_ms(&[50.0, 50.0]);
    assert_eq!(records[1].stamps.sent_ns, BEGIN_NS + 60 * MS, "the end of the response frees it");
    assert_eq!(totals.counters.connections_opened, 1);
}

#[test]
fn the_end_of_the_connection_ends_an_answer_that_was_over_and_fails_another() {
    let closing = |rest: &[(u64, Vec<u8>)]| SimEndpoint {
        closes_after: 1,
        close_ns: 60 * MS,
        ..stream(rest)
    };
    let (records, _) = run(closing(&[(45 * MS, [finish(), event(DONE)].concat())]), 1);
    assert_eq!(records[0].failure, None);
    let (records, totals) = run(closing(&[]), 1);
    assert_eq!(records[0].failure, Some(FailureKind::TruncatedStream));
    assert_eq!(records[0].facts.chunks, 3, "what came is told");
    assert_eq!((totals.counters.completed, totals.counters.failed), (0, 1));
}

#[test]
fn a_failure_inside_a_200_keeps_a_connection_that_is_in_step() {
    let error = event(r#"{"error":{"message":"out of memory","code":500}}"#);
    let end = [error, event(DONE), LAST_CHUNK.to_vec()].concat();
    let (records, totals) = run(stream(&[(45 * MS, end)]), 2);
    assert_eq!(records[1].failure, Some(FailureKind::ErrorInAnswer));
    let tally = totals.failures.tally(FailureKind::ErrorInAnswer);
    assert!(tally.first_message.as_str().contains("out of memory"), "{:?}", tally.first_message);
    assert_eq!((tally.count, totals.counters.connections_opened), (2, 1));
}

#[test]
fn a_chunk_that_is_no_json_fails_its_query_alone() {
    let end = [event("{oops"), event(DONE), LAST_CHUNK.to_vec()].concat();
    let (records, totals) = run(stream(&[(45 * MS, end)]), 3);
    assert_eq!(records.len(), 3);
    let failed = totals.failures.tally(FailureKind::MalformedAnswer).count;
    assert_eq!((failed, totals.counters.failed), (3, 3));
}

#[test]
fn a_document_in_place_of_a_stream_is_an_answer_and_counted() {
    let body = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
    let response = format!("{head}: {}\r\n\r\n{body}", body.len()).into_bytes();
    let (records, totals) = run(SimEndpoint { response, ..SimEndpoint::default() }, 1);
    let facts = &records[0].facts;
    assert_eq!(
        (facts.is_stream, facts.first_token_ns, facts.usage.completion),
        (false, 0, Some(2))
    );
    assert_eq!((totals.counters.answers, totals.counters.answers_not_streamed), (1, 1));
    assert_eq!(records[0].text.as_ref().expect("kept").visible, "hi");
}

#[test]
fn what_becomes_of_the_connection_behind_an_answer_is_no_part_of_it() {
    let end = [finish(), event(DONE)].concat();
    let closing = |close_errno| SimEndpoint {
        closes_after: 1,
        close_ns: 60 * MS,
        close_errno,
        ..stream(&[(45 * MS, end.clone())])
    };
    let garbled = stream(&[(45 * MS, end.clone()), (60 * MS, b"oops".to_vec())]);
    for (endpoint, closed) in [(closing(0), 2), (closing(libc::ECONNRESET), 2), (garbled, 0)] {
        let (records, totals) = run(endpoint, 2);
        assert_eq!(records[1].failure, None, "{:?}", totals.failures);
        totals.assert_latencies_ms(&[50.0, 50.0]);
        assert_eq!(records[1].stamps.sent_ns, BEGIN_NS + 65 * MS, "that is waited for no longer");
        let counters = &totals.counters;
        let is_told = (counters.closed_by_endpoint, counters.closed_by_endpoint_exchanges);
        assert_eq!((is_told, counters.connections_opened), ((closed, closed), 2));
    }
    // Negative control: the same in the middle of an answer.
    for (endpoint, kind) in [
        (SimEndpoint { close_ns: 30 * MS, ..closing(libc::ECONNRESET) }, FailureKind::Reset),
        (stream(&[(40 * MS, b"oops".to_vec())]), FailureKind::Malformed),
    ] {
        assert_eq!(run(endpoint, 1).0[0].failure, Some(kind));
    }
}

#[test]
fn an_answer_that_fails_is_over_with_its_error() {
    let error = event(r#"{"error":{"message":"out of memory","code":500}}"#);
    let (records, totals) = run(stream(&[(45 * MS, error)]), 2);
    assert_eq!(records[0].failure, Some(FailureKind::ErrorInAnswer));
    assert_eq!(records[0].stamps.complete_ns, BEGIN_NS + 50 * MS);
    assert_eq!(records[1].stamps.sent_ns, BEGIN_NS + 50 * MS + LINGER_NS);
    assert_eq!(totals.counters.closed_by_endpoint, 0, "we closed it");
}

/// A response in two receives, 1 ms apart.
fn refusal(status: &str, content_type: &str, body: &str) -> SimEndpoint {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length");
    let (first, rest) = body.split_at(body.len() / 2);
    SimEndpoint {
        response: format!("{head}: {}\r\n\r\n{first}", body.len()).into_bytes(),
        later: vec![(MS, rest.as_bytes().to_vec())],
        ..SimEndpoint::default()
    }
}

#[test]
fn a_refusal_is_told_in_the_words_of_the_endpoint() {
    let json = "application/json";
    for (status, content_type, body, told) in [
        (
            "404 Not Found",
            json,
            r#"{"error":{"message":"The model `x` does not exist.","code":404}}"#,
            "404 The model `x` does not exist.",
        ),
        ("400 Bad", json, r#"{"object":"error","message":"too long"}"#, "400 too long"),
        ("422 Bad", json, r#"{"error":"Input validation error"}"#, "422 Input validation error"),
        // Nobody's words: the begin of the body, as it came.
        ("404 Not Found", json, r#"{"detail":"Not Found"}"#, r#"404 {"detail":""#),
        ("502 Bad Gateway", "text/html", "<html>no</html>", "502 <html>n"),
        ("500 Error", json, r#"{"error":{"message":""#, r#"500 {"error":{"#),
    ] {
        let (records, totals) = run(refusal(status, content_type, body), 2);
        let tally = totals.failures.tally(FailureKind::Status);
        assert_eq!((tally.count, tally.first_message.as_str()), (2, told));
        let of = |record: &Record| (record.failure, record.status);
        let status = status[..3].parse().expect("a number");
        assert_eq!(of(&records[1]), (Some(FailureKind::Status), status));
        assert_eq!(totals.counters.connections_opened, 1, "the connection is kept");
    }
}

#[test]
fn a_refusal_may_be_longer_than_an_answer() {
    let endpoint = refusal("500 Error", "application/json", &"[".repeat(200));
    let mut plan = plan(1);
    let answers = AnswerPlan { bytes_limit: 50, ..(*plan.table.answers).clone() };
    plan.table.answers = Arc::new(answers);
    let (_, totals) = Setup::new(plan, endpoint, vec![phase(0, 1, Some(2))]).run();
    assert_eq!(totals[0].failures.tally(FailureKind::Status).count, 2);
}

#[test]
fn ttft_timeout_is_a_limit_of_the_first_token_alone() {
    let end = [finish(), event(DONE), LAST_CHUNK.to_vec()].concat();
    // The head comes at 5 ms, a sign of life at 7, a chunk that names the role at 8; tokens from 10
    // to 40 ms, the end at 50.
    let role = event(r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#);
    let ping = b"8\r\n: ping\n\n\r\n".to_vec();
    let endpoint = stream(&[(2 * MS, ping), (3 * MS, role), (45 * MS, end)]);
    let run = |timeouts| run_with(timeouts, endpoint.clone(), 1);
    let ttft = |ttft_ns| Timeouts { ttft_ns, ..Timeouts::default() };
    for timeouts in [
        ttft(11 * MS),
        Timeouts { idle_ns: 30 * MS, ..ttft(11 * MS) },
        Timeouts { request_ns: 60 * MS, ..ttft(11 * MS) },
    ] {
        run(timeouts).1.assert_latencies_ms(&[50.0]);
    }
    for (timeouts, kind, message, at_ms) in [
        (ttft(9 * MS), FailureKind::RequestTimeout, "no token within --ttft-timeout", 9),
        (
            Timeouts { request_ns: 45 * MS, idle_ns: 60 * MS, ..ttft(9 * MS) },
            FailureKind::RequestTimeout,
            "no token within --ttft-timeout",
            9,
        ),
        (
            Timeouts { request_ns: 45 * MS, ..ttft(11 * MS) },
            FailureKind::RequestTimeout,
            "no complete response within --timeout",
            45,
        ),
        (
            Timeouts { idle_ns: 4 * MS, ..ttft(9 * MS) },
            FailureKind::IdleTimeout,
            "no byte within --idle-timeout",
            4,
        ),
        (
            Timeouts { idle_ns: 17 * MS, ..ttft(11 * MS) },
            FailureKind::IdleTimeout,
            "no byte within --idle-timeout",
            37,
        ),
    ] {
        let (records, totals) = run(timeouts);
        let tally = totals.failures.tally(kind);
        assert_eq!((tally.count, tally.first_message.as_str()), (1, message), "{timeouts:?}");
        let took_ns = records[0].stamps.complete_ns - BEGIN_NS;
        let late_ns = took_ns - at_ms * MS;
        assert!(late_ns <= MS, "at most a tick late: {took_ns}, {timeouts:?}");
        assert_eq!(records[0].facts.chunks > 0, at_ms > 10, "{timeouts:?}");
        if kind == FailureKind::RequestTimeout {
            assert_eq!((totals.censored.count, totals.censored.max_ns), (1, took_ns));
        }
    }
}

#[test]
fn an_answer_that_is_not_streamed_has_its_first_token_with_its_last() {
    let body = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let endpoint = SimEndpoint {
        later: vec![(20 * MS, body.as_bytes()[30..].to_vec())],
        ..refusal("200 OK", "application/json", body)
    };
    let head = endpoint.response.len() - body.len() / 2;
    let response = [&endpoint.response[..head], &body.as_bytes()[..30]].concat();
    let endpoint = SimEndpoint { response, ..endpoint };
    for (ttft_ns, failed) in [(10 * MS, 1), (22 * MS, 0)] {
        let timeouts = Timeouts { ttft_ns, ..Timeouts::default() };
        let (_, totals) = run_with(timeouts, endpoint.clone(), 1);
        assert_eq!(totals.failures.tally(FailureKind::RequestTimeout).count, failed);
    }
}
