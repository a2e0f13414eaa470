//! Whole reports of hand-made runs, and the parts that vary.

use loadgen_shards::failure::{FailureKind, Message};
use loadgen_shards::recorder::Recording;

use super::*;
use crate::report::tests::{facts, finished, plan_of, recorded, run_of};
use crate::snapshot::State;

/// 20 000 answers that took 0.9 to 2.9 ms, three of them with status 503.
fn busy_recording() -> Recording {
    let mut recording = recorded(0, 0);
    recording.counters.issued = 20_003;
    recording.counters.completed = 20_000;
    recording.counters.failed = 3;
    recording.counters.connections_reused_stale = 2;
    recording.counters.retries = 2;
    recording.last_complete_ns = 6_000_000_000;
    recording.busy_ns = 4_600_000_000;
    for i in 0..20_000u64 {
        recording.service.record(900_000 + i * 100);
        recording.ttfb.record(800_000 + i * 100);
        recording.statuses.count(200);
    }
    for _ in 0..3 {
        recording.failures.count(FailureKind::Status, || Message::new("503 Service Unavailable"));
        recording.statuses.count(503);
    }
    recording
}

#[test]
fn header_says_with_what_and_what() {
    let mut facts = facts();
    let engine = finished(0, 0).engine;
    assert_eq!(
        header(&facts, &engine),
        "loadgen-uring 0.1.0 · max-throughput · 2 shards on cores 0-1 · \
         io_uring: defer-taskrun, multishot, buf-ring\n\
         http://10.0.0.2:8000/ · 64 connections · 5 s measured\n"
    );
    facts.is_embedded = true;
    facts.spin = true;
    facts.cores = vec![1];
    facts.phases.insert(
        0,
        plan::Phase {
            kind: PhaseKind::Warmup,
            requests: Some(500),
            duration_ns: None,
            ..plan_of(64)
        },
    );
    assert_eq!(
        header(&facts, &EngineReport { name: "epoll", ..EngineReport::default() }),
        "loadgen-uring 0.1.0 · max-throughput · 1 shard on core 1, spinning · epoll\n\
         embedded endpoint: the tool's own ceiling on this host, not your server · \
         64 connections · warm-up 500 requests, 5 s measured\n"
    );
}

/// The facts of a run in which 8 requests were in flight.
fn facts_of_eight() -> RunFacts {
    RunFacts { connections: 8, phases: vec![plan_of(8)], ..facts() }
}

const BUSY: &str = "\
4 000 requests/s on 2 cores; the limit was the client.
Its shards were at work 92 % of the time.

  requests   20 000 ok   3 failed   0 cancelled
  failed     3 × status  \"503 Service Unavailable\"
  status     20 000 × 200   3 × 503

                     p50      p90      p95      p99    p99.9      max
  latency ms       1.901    2.701    2.802    2.882    2.898    2.900   from the send to the last \
byte
  first byte ms    1.800    2.601    2.701    2.781    2.800    2.800   from the send to the \
first byte

  connections  64 opened in 81.0 µs (median; longest 113 µs)   2 found dead when reused   2 \
requests sent again for that
  client       92 % busy   latency x rate / connections = 0.95
  files        results/2026-11-30T101502Z-max-throughput/  (performance/result_summary.json, ...)
  next         loadgen-uring --cores 0-3 max-throughput http://10.0.0.2:8000/ -c 8 -d 5s  # tests \
the verdict: more cores for the client
               loadgen-uring max-throughput http://10.0.0.2:8000/ -c 4 -d 5s              # as \
many requests/s, at a lower latency?
               loadgen-uring concurrency http://10.0.0.2:8000/ -c 1 -d 5s                 # \
latency without any queue
";

#[test]
fn report_of_a_busy_client() {
    assert_eq!(report(&run_of(&busy_recording()), &facts_of_eight()), BUSY);
}

const FAILED: &str = "\
No request succeeded: 1 234 requests failed, and the run was cut short: every request failed for \
2 s.
Most of them: reset, first \"peer\".

  requests   0 ok   1 234 failed   0 cancelled
  failed     1 234 × reset  \"peer\"

  connections  64 opened in 81.0 µs (median; longest 113 µs)
  client       40 % busy
  files        results/2026-11-30T101502Z-max-throughput/  (performance/result_summary.json, ...)
  next         loadgen-uring concurrency http://10.0.0.2:8000/ -c 1 -d 5s -n 1 --timeout 5s  # \
one request alone
               loadgen-uring max-throughput                                                  # \
the embedded endpoint: does this host work?
               loadgen-uring doctor                                                          # \
what this host allows
";

#[test]
fn report_without_a_success() {
    let mut snapshot = finished(0, 1234);
    snapshot.state = State::Interrupted;
    snapshot.interrupted_by = "every request failed for 2 s".to_owned();
    assert_eq!(report(&snapshot, &facts_of_eight()), FAILED);
}

const INTERRUPTED: &str = "\
Cut short after 20 ms: stopped by Ctrl-C. Until then 7 500 requests/s.

  requests   150 ok   0 failed   0 cancelled

                     p50      p90               p95                 p99                p99.9      \
max
  latency ms       1.000    1.000   n/a (needs 200)   n/a (needs 1 000)   n/a (needs 10 000)    \
1.000   from the send to the last byte
  first byte µs    900.0    900.0   n/a (needs 200)   n/a (needs 1 000)   n/a (needs 10 000)    \
900.0   from the send to the first byte

  connections  64 opened in 81.0 µs (median; longest 113 µs)
  client       40 % busy
  files        results/2026-11-30T101502Z-max-throughput/  (performance/result_summary.json, ...)
  next         loadgen-uring max-throughput http://10.0.0.2:8000/ -c 8 -d 5s   # the whole run
               loadgen-uring concurrency http://10.0.0.2:8000/ -c 1 -d 5s      # latency without \
any queue
               loadgen-uring max-throughput http://10.0.0.2:8000/ -c 8 -d 30s  # a longer run
";

#[test]
fn report_of_an_interrupted_run_with_few_answers() {
    let mut snapshot = finished(150, 0);
    snapshot.state = State::Interrupted;
    snapshot.interrupted_by = "stopped by Ctrl-C".to_owned();
    snapshot.phases[0].last_complete_ns = 1_020_000_000;
    snapshot.phases[0].end_ns = 1_021_000_000;
    assert_eq!(report(&snapshot, &facts_of_eight()), INTERRUPTED);
}

const ENDPOINT: &str = "\
4 000 requests/s on 2 cores; the limit was probably the endpoint.
The median answer took 2.1 times as long as the fastest 1 %, as if requests waited there \
(inferred; the first command below tests it).

  requests   20 001 ok   3 failed   0 cancelled
  failed     3 × status  \"503 Service Unavailable\"
  status     20 000 × 200   3 × 503

                     p50      p90      p95      p99    p99.9      max
  latency ms       1.901    2.701    2.802    2.882    2.898    2.900   from the send to the last \
byte
  first byte ms    1.800    2.601    2.701    2.781    2.800    2.800   from the send to the \
first byte

  connections  64 opened in 81.0 µs (median; longest 113 µs)   2 found dead when reused   2 \
requests sent again for that
  client       20 % busy   latency x rate / connections = 0.95
  files        results/2026-11-30T101502Z-max-throughput/  (performance/result_summary.json, ...)
  next         loadgen-uring max-throughput http://10.0.0.2:8000/ -c 16 -d 5s  # tests the \
verdict: the rate should stay
               loadgen-uring max-throughput http://10.0.0.2:8000/ -c 4 -d 5s   # as many \
requests/s, at a lower latency?
               loadgen-uring concurrency http://10.0.0.2:8000/ -c 1 -d 5s      # latency without \
any queue
";

#[test]
fn report_of_an_endpoint_with_a_queue() {
    let mut recording = busy_recording();
    recording.busy_ns = 1_000_000_000;
    recording.service.record(90_000); // the first answer, before there was a queue
    recording.counters.issued += 1;
    recording.counters.completed += 1;
    assert_eq!(report(&run_of(&recording), &facts_of_eight()), ENDPOINT);
}

#[test]
fn every_ending_has_its_own_first_line() {
    let first = |snapshot: &Snapshot| {
        let text = report(snapshot, &facts());
        text.lines().next().expect("a line").to_owned()
    };
    let mut drained = finished(20_000, 0);
    drained.phases[0].in_flight_at_end = 37;
    let mut silent = finished(0, 0);
    silent.phases[0].sums.counters.issued = 64;
    let mut early = finished(0, 0);
    early.state = State::Interrupted;
    early.interrupted_by = "stopped by Ctrl-C".to_owned();
    let cases = [
        (
            finished(20_000, 0),
            "4 000 requests/s on 2 cores; the limit was probably the number of connections.",
        ),
        (finished(99, 0), "19.8 requests/s on 2 cores; what limited it is not known."),
        (
            finished(1000, 250),
            "200 requests/s on 2 cores, but 20.0 % of the requests failed; \
             what limited it is not known.",
        ),
        (
            drained,
            "4 000 requests/s, but incomplete: 37 requests had no answer when the drain ended.",
        ),
        (finished(0, 1), "No request succeeded: 1 request failed."),
        (silent, "No request succeeded: 64 sent, none answered."),
        (finished(0, 0), "No request succeeded: none was sent."),
        (early, "Cut short after 5 s: stopped by Ctrl-C. No measured request had succeeded."),
    ];
    for (snapshot, expected) in cases {
        assert_eq!(first(&snapshot), expected);
    }
}

#[test]
fn status_table_is_shown_unless_all_are_one_2xx_code() {
    let lines_of = |statuses: &[u16]| {
        let mut recording = recorded(0, 0);
        statuses.iter().for_each(|status| recording.statuses.count(*status));
        let run = run_of(&recording);
        counts(&run, &Totals::of(&run.phases)).join("\n")
    };
    assert!(!lines_of(&[200, 200]).contains("status"));
    assert!(!lines_of(&[]).contains("status"));
    assert!(lines_of(&[302]).contains("status     1 × 302"));
    assert!(lines_of(&[200, 204, 200]).contains("status     2 × 200   1 × 204"));
}

#[test]
fn percentiles_that_need_more_answers_say_so() {
    let totals = Totals::of(&finished(300, 0).phases);
    let table = table(&totals);
    let row = table.lines().nth(1).expect("the row of latencies");
    assert!(row.contains("n/a (needs 1 000)   n/a (needs 10 000)    1.000"), "{row}");
    assert_eq!(super::table(&Totals::default()), "", "rows without a value are left out");
}

#[test]
fn bytes_from_the_endpoint_cannot_steer_the_terminal() {
    let mut recording = recorded(0, 0);
    recording.counters.issued = 1;
    recording.counters.failed = 1;
    let message = Message::new("\x1b]0;owned\x07\u{202e}");
    recording.failures.count(FailureKind::Malformed, || message);
    let text = report(&run_of(&recording), &facts());
    assert!(text.contains(".]0;owned.."), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
}
