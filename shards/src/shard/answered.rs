//! Answers of an inference endpoint in virtual time: every instant is known.

use std::sync::Arc;

use super::ShardPlan;
use super::tests::{BEGIN_NS, MS, Setup, Totals, phase, shard_plan};
use crate::answer::{AnswerFormat, AnswerPlan, FinishReason, Usage};
use crate::failure::FailureKind;
use crate::limits::LINGER_NS;
use crate::query::Request;
use crate::record::{Record, Wanted, record_path};
use crate::sim::SimEndpoint;

pub(super) const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                      Transfer-Encoding: chunked\r\n\r\n";
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
pub(super) const DONE: &str = "[DONE]";

/// An event with this data, as an HTTP chunk of its own.
pub(super) fn event(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

pub(super) fn token(text: &str) -> Vec<u8> {
    event(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#))
}

/// The end of an answer, with its token counts.
pub(super) fn finish(tokens: u32) -> Vec<u8> {
    let choice = r#"{"index":0,"delta":{},"finish_reason":"length"}"#;
    let usage = format!(r#"{{"prompt_tokens":7,"completion_tokens":{tokens}}}"#);
    event(&format!(r#"{{"choices":[{choice}],"usage":{usage}}}"#))
}

/// Reads chats; the one request asks for a stream.
pub(super) fn reads_chats(in_flight: u32) -> ShardPlan {
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
    let (sink, mut source) = record_path(Wanted::EveryWithTexts, 8, 8);
    let setup = Setup::new(reads_chats(1), endpoint, vec![phase(0, 1, Some(queries))]);
    let (_, mut totals) = Setup { records: Some(sink), ..setup }.run();
    let records = std::iter::from_fn(|| source.take()).collect();
    (records, totals.remove(0))
}

#[test]
fn tokens_usage_and_end_have_their_instants() {
    let end = [finish(5), event(DONE), LAST_CHUNK.to_vec()].concat();
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
    let endpoint = stream(&[(45 * MS, [finish(5), event(DONE)].concat())]);
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
    let (records, _) = run(closing(&[(45 * MS, [finish(5), event(DONE)].concat())]), 1);
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
