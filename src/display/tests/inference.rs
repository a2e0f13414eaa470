//! The report of inference runs.

use super::*;
use crate::report::tests::inference::{
    facts_of_answers, inference, recorded_answers, run_of_answers,
};
use crate::report::tests::open_plan;
use crate::snapshot::InferenceFacts;

const STREAMED: &str = "\
TTFT p99 220 ms, TPOT p99 5.98 ms, 4 400 output tokens/s, 50.0 % within the goals; tokens \
counted by the server.

  requests   2 000 ok   0 failed   0 cancelled        achieved 400/s
  tokens     4 400/s out   40 000/s in   200/s a user (slowest tenth 172/s)
  prompts    1 500 synthetic, each sent 1 to 2 times   0.5 % of their tokens cached
  finished   1 980 stop   20 length

                     p50      p90      p95      p99                p99.9      max
  TTFT ms          210.1    218.1    219.0    219.8   n/a (needs 10 000)    220.0   from the \
send to the first token
  TPOT ms          5.001    5.800    5.902    5.980   n/a (needs 10 000)    5.999   time per \
output token, of a request
  gaps ms          10.00    11.60    11.80    11.96                12.00    12.00   between \
chunks, of all
  latency ms       261.1    277.1    279.2    280.8   n/a (needs 10 000)    281.0   from the \
send to the last byte
  first byte ms    100.0    100.0    100.0    100.0   n/a (needs 10 000)    100.0   from the \
send to the first byte
  output tokens       11       11       11       11   n/a (needs 10 000)       11   a request
  input tokens       100      100      100      100   n/a (needs 10 000)      100   a request
  tokens/chunk     1.833    1.833    1.833    1.833   n/a (needs 10 000)    1.833   a request

  goodput      200/s   50.0 % of the requests kept ttft:210ms tpot:5ms
  connections  64 opened in 81.0 µs (median; longest 113 µs)
  client       40 % busy
  files        results/2026-11-30T101502Z-max-throughput/  (performance/result_summary.json, \
...)
  next         loadgen-uring concurrency http://10.0.0.2:8000/ -c 1 -d 5s    # latency without \
any queue
               loadgen-uring concurrency http://10.0.0.2:8000/ -c 64 -d 30s  # a longer run
               loadgen-uring concurrency http://10.0.0.2:8000/ -c 128 -d 5s  # does the rate \
rise?
";

#[test]
fn report_of_streams_whose_tokens_the_server_counted() {
    let run = run_of_answers(&recorded_answers(2_000, true));
    assert_eq!(shown(&run, &facts_of_answers()), STREAMED);
}

#[test]
fn report_without_usage_tells_times_and_no_tokens() {
    let run = run_of_answers(&recorded_answers(2_000, false));
    let facts = RunFacts {
        inference: Some(InferenceFacts { includes_usage: false, ..inference() }),
        ..facts_of_answers()
    };
    let text = shown(&run, &facts);
    let first = text.lines().next().expect("a first line");
    assert_eq!(first, "TTFT p99 220 ms, >= 0.0 % within the goals; nobody counted the tokens.");
    assert!(text.contains("2 000 answers whose tokens nobody counted: leave out --no-include"));
    assert!(text.contains("1 001 not known, as nobody counted their tokens"), "{text}");
    for absent in ["TPOT", "tokens/s", "tokens/chunk", "output tokens"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
}

#[test]
fn few_answers_have_a_median_and_say_what_a_p99_needs() {
    let run = run_of_answers(&recorded_answers(50, true));
    let text = shown(&run, &RunFacts { goodput: Vec::new(), ..facts_of_answers() });
    assert!(
        text.starts_with("TTFT p50 200 ms (p99 needs 1 000 answers), TPOT p50 4.02 ms (p99"),
        "{text}"
    );
    assert!(text.contains("110 output tokens/s; tokens counted by the server."), "{text}");
}

#[test]
fn an_open_loop_says_that_it_held_with_its_tokens() {
    let mut recording = recorded_answers(2_000, true);
    recording.counters.scheduled = 2_000;
    recording.latency = recording.service.clone();
    recording.answers.ttft = recording.answers.service_ttft.clone();
    let mut run = run_of_answers(&recording);
    run.phases[0].load_end_ns = 6_000_000_000;
    let facts = RunFacts {
        inference: Some(inference()),
        phases: vec![open_plan()],
        goodput: Vec::new(),
        ..open_facts()
    };
    let text = shown(&run, &facts);
    let expected = "Held 1 000/s for 5 s: TTFT p99 220 ms, TPOT p99 5.98 ms, 4 400 output \
                    tokens/s; tokens counted by the server.";
    assert_eq!(text.lines().next(), Some(expected));
    assert!(text.contains("from the schedule to the first token"), "{text}");
    assert!(text.contains("service TTFT ms"), "{text}");
}

#[test]
fn a_queue_that_grows_has_no_ttft_from_the_schedule() {
    let mut recording = open_recorded(10_000);
    recording.last_complete_ns = 14_000_000_000;
    recording.counters.answers = 10_000;
    recording.answers.ttft = recording.latency.clone();
    recording.answers.service_ttft = recording.service.clone();
    let facts = RunFacts { inference: Some(inference()), ..open_facts() };
    let text = judged(&open_run(&recording), &facts, unstable());
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).expect(name);
    assert_eq!(row("  TTFT").matches("n/a").count(), 5, "{text}");
    assert_eq!(row("  service TTFT").matches("n/a").count(), 0, "from the send it has one");
    assert!(text.contains("n/a latency and TTFT: they rise"), "{text}");
}

#[test]
fn answers_that_are_not_streamed_have_a_latency_and_embeddings_prompt_tokens() {
    let mut recording = recorded_answers(2_000, true);
    let answers = &mut recording.answers;
    let streams = [&mut answers.service_ttft, &mut answers.tpot, &mut answers.chunk_delta];
    streams.into_iter().for_each(|series| series.reset());
    let facts = |api: &str| RunFacts {
        inference: Some(InferenceFacts { api: api.to_owned(), ..inference() }),
        goodput: Vec::new(),
        ..facts_of_answers()
    };
    let first = |recording: &Recording, api: &str| {
        let text = shown(&run_of_answers(recording), &facts(api));
        text.lines().next().map(str::to_owned).expect("a line")
    };
    let expected = "latency p99 281 ms, 4 400 output tokens/s; tokens counted by the server.";
    assert_eq!(first(&recording, "openai"), expected);
    recording.answers.osl.reset();
    recording.counters.answers_counted = 0;
    let expected = "latency p99 281 ms, 40 000 prompt tokens/s; tokens counted by the server.";
    assert_eq!(first(&recording, "openai-embeddings"), expected);
    let text = shown(&run_of_answers(&recording), &facts("openai-embeddings"));
    assert!(!text.contains("nobody"), "{text}");
}

#[test]
fn the_header_tells_the_inference_run_and_marks_what_nobody_asked_for() {
    let text = header(&facts_of_answers(), &EngineReport { name: "epoll", ..Default::default() });
    let expected = "openai (default) · model tiny · streamed (default) · 1 500 synthetic prompts: \
                    100 tokens in, 11 out, prompt seed 7 · tokenizer o200k";
    assert_eq!(text.lines().nth(2), Some(expected));
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn handshakes_are_told_apart_from_latency() {
    let mut recording = recorded_answers(10, true);
    recording.counters.tls_handshakes = 3;
    recording.counters.tls_resumed = 2;
    [1_000_000, 2_000_000, 4_000_000].into_iter().for_each(|ns| recording.tls.record(ns));
    let text = shown(&run_of_answers(&recording), &facts_of_answers());
    let line =
        "  tls          3 handshakes in 2.00 ms (median; longest 4 ms)   2 resumed a session\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn marked_gaps_have_a_star_and_their_reason() {
    let run = run_of_answers(&recorded_answers(2_000, true));
    let marks = vec![Mark {
        series: "chunk_delta",
        milli: 50_000,
        is_at_least: false,
        reason: "chunks came together".to_owned(),
        detail: String::new(),
    }];
    let trust = Trust { marks, ..trust_of(Level::Ok) };
    let text = judged(&run, &facts_of_answers(), trust);
    let gaps = text.lines().find(|line| line.starts_with("  gaps")).expect("a row");
    assert_eq!(gaps.matches('*').count(), 1, "{gaps}");
    assert!(text.contains("  * p50 of gaps: chunks came together"), "{text}");
}
