//! Whole reports of hand-made runs, and the parts that vary.

mod inference;

use loadgen_shards::failure::{FailureKind, Message};
use loadgen_shards::recorder::Recording;

use super::table::table;
use super::*;
use crate::report::tests::{
    facts, finished, open_facts, open_recorded, open_run, overloaded, plan_of, recorded, run_of,
    timed_out, trust_of, unstable,
};
use crate::snapshot::State;
use crate::trust::{Blame, Check, Class, Interval, Level, Mark, Trust};

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

/// The report of a run that nothing has judged.
fn shown(snapshot: &Snapshot, facts: &RunFacts) -> String {
    report(&Results::with_trust(snapshot, facts, Vec::new()))
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
    assert_eq!(shown(&run_of(&busy_recording()), &facts_of_eight()), BUSY);
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
    assert_eq!(shown(&snapshot, &facts_of_eight()), FAILED);
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
    assert_eq!(shown(&snapshot, &facts_of_eight()), INTERRUPTED);
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
    assert_eq!(shown(&run_of(&recording), &facts_of_eight()), ENDPOINT);
}

#[test]
fn every_ending_has_its_own_first_line() {
    let first = |snapshot: &Snapshot| {
        let text = shown(snapshot, &facts());
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
        (silent, "No request succeeded: none of 64 got an answer."),
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
    let table = |run: &Snapshot| table(&Results::with_trust(run, &facts(), Vec::new()));
    let text = table(&finished(300, 0));
    let row = text.lines().nth(1).expect("the row of latencies");
    assert!(row.contains("n/a (needs 1 000)   n/a (needs 10 000)    1.000"), "{row}");
    assert_eq!(table(&finished(0, 0)), "", "rows without a value are left out");
}

#[test]
fn bytes_from_the_endpoint_cannot_steer_the_terminal() {
    let mut recording = recorded(0, 0);
    recording.counters.issued = 1;
    recording.counters.failed = 1;
    let message = Message::new("\x1b]0;owned\x07\u{202e}");
    recording.failures.count(FailureKind::Malformed, || message);
    let text = shown(&run_of(&recording), &facts());
    assert!(text.contains(".]0;owned.."), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
}

fn judged(snapshot: &Snapshot, facts: &RunFacts, trust: Trust) -> String {
    report(&Results::with_trust(snapshot, facts, vec![trust]))
}

/// A sound run with an interval, whose tail is the endpoint's.
fn sound() -> Trust {
    let p99 = Interval {
        milli: 99_000,
        low_ns: 2_671_000,
        high_ns: 3_091_000,
        effective: 812.0,
        independent: Some((2_870_000, 2_890_000)),
    };
    let blame = Blame { endpoint: 0.9649, pool: 0.03, client: 0.0051 };
    Trust { intervals: vec![p99], mean: Some(blame), tail: Some(blame), ..trust_of(Level::Ok) }
}

const HEALTHY: &str = "\
loadgen-uring 0.1.0 · poisson 1 000/s, seed 42 · 2 shards on cores 0-1, timer hybrid · \
io_uring: defer-taskrun, multishot, buf-ring
http://10.0.0.2:8000/ · 64 connections, at most 2 048 · 10 s measured

Held 1 000/s for 10 s: p99 2.88 ms ± 0.21.
The tail is the endpoint's: 96 % of it service, 3 % waiting for a connection, 1 % us.

  requests   10 000 ok   0 failed   0 cancelled        scheduled 1 000/s   achieved 1 000/s

                     p50      p90      p95      p99    p99.9      max   ± p99 (95 %)
  latency ms       1.902    2.701    2.802    2.882    2.900    2.901           0.21   \
from the schedule to the last byte
  service ms       1.901    2.701    2.802    2.882    2.898    2.900                  \
from the send to the last byte
  first byte ms    1.800    2.601    2.701    2.781    2.800    2.800                  \
from the send to the first byte
  lateness ns      600.0    600.0    600.0    600.0    600.0    600.0                  \
our own delay

  trust OK     never early, worst delay of ours 600 ns, client 31 % busy, counts add up, \
clock steady
  connections  64 opened in 81.0 µs (median; longest 113 µs)
  precision    p99 ± 7 %; ± 5 % takes about 12 s more
  files        results/2026-11-30T101502Z-poisson/  (performance/result_summary.json, ...)
  next         loadgen-uring poisson http://10.0.0.2:8000/ -c 64 -d 10s -R 2000  # does it hold \
twice the rate?
               loadgen-uring poisson http://10.0.0.2:8000/ -c 64 -R 1000 -d 30s  # the tail more \
precisely
               loadgen-uring max-throughput http://10.0.0.2:8000/ -c 64 -d 10s   # how fast it \
can go at all
";

#[test]
fn report_of_an_open_loop_that_held() {
    let (facts, run) = (open_facts(), open_run(&open_recorded(10_000)));
    let text = format!("{}\n{}", header(&facts, &run.engine), judged(&run, &facts, sound()));
    assert_eq!(text, HEALTHY);
}

const OVERLOADED: &str = "\
Did NOT hold: 769 of 1 000/s; the queue grows, so there is no p99; try -R 730.

  requests   10 000 ok   0 failed   0 cancelled        scheduled 1 000/s   achieved 769/s

                     p50      p90      p95      p99    p99.9      max
  latency ms         n/a      n/a      n/a      n/a      n/a    2.901   from the schedule to the \
last byte
  service ms       1.901    2.701    2.802    2.882    2.898    2.900   from the send to the last \
byte
  first byte ms    1.800    2.601    2.701    2.781    2.800    2.800   from the send to the \
first byte
  lateness ns      600.0    600.0    600.0    600.0    600.0    600.0   our own delay
  n/a latency: it rises for as long as the queue grows

  trust OK     never early, worst delay of ours 600 ns, client 31 % busy, counts add up, \
clock steady
  connections  64 opened in 81.0 µs (median; longest 113 µs)
  files        results/2026-11-30T101502Z-poisson/  (performance/result_summary.json, ...)
  next         loadgen-uring poisson http://10.0.0.2:8000/ -c 64 -d 10s -R 730  # does it hold \
what it achieved?
               loadgen-uring poisson http://10.0.0.2:8000/ -c 64 -d 10s -R 500  # half the rate
               loadgen-uring max-throughput http://10.0.0.2:8000/ -c 64 -d 10s  # how fast it can \
go at all
";

#[test]
fn report_of_an_open_loop_whose_queue_grew() {
    assert_eq!(judged(&overloaded(), &open_facts(), unstable()), OVERLOADED);
}

/// The lines of a report that begin with `label`, or follow such a one under the same label.
fn labelled(text: &str, label: &str) -> Vec<String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("  {label}")));
    let first = lines.next().unwrap_or_else(|| panic!("no {label} in\n{text}"));
    let more = lines.take_while(|line| line.starts_with("          "));
    std::iter::once(first).chain(more).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn dropped_requests_and_those_that_waited_are_told() {
    let mut recording = open_recorded(10_000);
    recording.counters.dropped = 1000;
    recording.counters.scheduled += 1000;
    recording.counters.waits_new_connection = 120;
    recording.counters.waits_new_connection_ns = 120 * 700_000;
    recording.counters.waits_full = 1;
    recording.counters.waits_full_ns = 3_000_000;
    recording.counters.connections_opened = 96;
    (0..121).for_each(|_| recording.pool_wait.record(700_000));
    let text = judged(&open_run(&recording), &open_facts(), trust_of(Level::Ok));
    let first = "Offered 1 100/s for 10 s, accepted 1 000/s, dropped 100/s (9.1 %): p99 2.88 ms.";
    assert_eq!(text.lines().next(), Some(first));
    assert!(labelled(&text, "requests")[0].contains("0 cancelled   1 000 dropped   "), "{text}");
    // Half of them did not wait, so the largest value sets the unit.
    let waiting = &labelled(&text, "waiting µs")[0];
    assert!(waiting.ends_with("0        0        0    700.0    700.0    700.0   for a connection"));
    let connections = labelled(&text, "connections");
    let expected = [
        "120 requests waited for a new connection, 700 µs on average; -c 96 has them open before",
        "1 request waited as all 2 048 connections were busy, 3 ms on average; --max-connections \
         allows more",
    ];
    assert_eq!(connections[1..], expected);
}

#[test]
fn requests_that_never_began_are_no_load_that_held() {
    let mut recording = open_recorded(9_000);
    recording.counters.untaken = 1000;
    recording.counters.scheduled += 1000;
    let text = judged(&open_run(&recording), &open_facts(), trust_of(Level::Ok));
    let first = "Did NOT hold: 900 of 1 000/s; 1 000 requests were due and never begun; \
                 try -R 850.";
    assert_eq!(text.lines().next(), Some(first));
    assert!(labelled(&text, "requests")[0].contains("   1 000 never begun   "), "{text}");
}

#[test]
fn time_outs_are_lower_bounds_in_every_place() {
    let facts = gated(&["p99:5ms"], &["achieved<0.99*target", "failed>3%"]);
    let text = judged(&open_run(&timed_out(9_800, 200)), &facts, trust_of(Level::Ok));
    let first = "Held 1 000/s for 10 s, but 2.0 % of the requests failed: p99 >= 1 s, as requests \
                 timed out.";
    assert_eq!(text.lines().next(), Some(first));
    let row = &labelled(&text, "latency ms")[0];
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[3..7], ["2.841", ">=1 000", ">=1 000", ">=1 000"], "{row}");
    assert!(text.contains(">= latency: 200 timed out, each counted as what"), "{text}");
    assert_eq!(labelled(&text, "slo"), ["slo          missed   p99:5ms   it is at least 1 s"]);
    let gate = "fail-if      TRUE   achieved<0.99*target   it is 980/s";
    assert_eq!(labelled(&text, "fail-if")[0], gate);
    assert!(text.contains("  fail-if      not true   failed>3%   it is 2.00 %\n"), "{text}");
}

fn gated(slo: &[&str], fail_if: &[&str]) -> RunFacts {
    let parsed = |list: &[&str]| {
        let each = list.iter().map(|text| crate::expression::Expression::parse(text));
        each.map(|parsed| parsed.expect("valid")).collect()
    };
    RunFacts { slo: parsed(slo), fail_if: parsed(fail_if), ..open_facts() }
}

#[test]
fn fifty_requests_are_trusted_and_have_no_tail() {
    let text =
        judged(&open_run(&open_recorded(50)), &gated(&["p99:5ms"], &[]), trust_of(Level::Ok));
    let first = "Held 1 000/s for 10 s: p50 1.86 ms (p99 needs 1 000 answers).";
    assert_eq!(text.lines().next(), Some(first));
    assert!(labelled(&text, "latency ms")[0].contains("1.862   n/a (needs 100)"), "{text}");
    let slo = "slo          missed   p99:5ms   it needs 1000 values, has 50";
    assert_eq!(labelled(&text, "slo"), [slo]);
    assert!(text.contains("\n  trust OK     never early"), "{text}");
}

#[test]
fn a_run_that_is_not_to_be_believed_says_so_first_and_why_second() {
    let mut trust = Trust { tail: sound().tail, ..trust_of(Level::Fail) };
    trust.checks[0].reason += "; 40 ms at worst";
    trust.marks.push(Mark {
        series: "latency",
        milli: 99_000,
        is_at_least: false,
        reason: "our own lateness".to_owned(),
        detail: String::new(),
    });
    trust.checks.push(Check { brief: None, level: Level::Warn, ..trust.checks[0].clone() });
    trust.checks.push(Check {
        id: "D11",
        name: "samples",
        class: Class::Sampling,
        level: Level::Warn,
        value: None,
        unit: "",
        reason: "the tail has few samples".to_owned(),
        brief: Some("the tail has few samples".to_owned()),
    });
    let run = open_run(&open_recorded(10_000));
    let text = judged(&run, &gated(&["p99:1ms"], &[]), trust.clone());
    let lines: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(
        lines,
        ["Not to be believed: 1 000 of 1 000/s, p99 2.88 ms.", "Dispatch: requests left late."]
    );
    let block = [
        "trust FAIL   dispatch, see above; 40 ms at worst",
        "samples (a warning): the tail has few samples",
        "same cause: dispatch",
    ];
    assert_eq!(labelled(&text, "trust"), block);
    assert_eq!(labelled(&text, "slo"), ["slo          untrusted   p99:1ms   it is 2.88 ms"]);
    // A closed loop is told likewise.
    let closed = judged(&finished(20_000, 0), &facts(), trust);
    assert!(closed.starts_with("Not to be believed: 4 000 requests/s on 2 cores; "), "{closed}");
    assert_eq!(closed.lines().nth(1), Some("Dispatch: requests left late."));
}

#[test]
fn marks_have_their_reason_below_the_table_and_findings_below_the_trust_line() {
    let mut trust = sound();
    trust.tail = Some(Blame { endpoint: 0.2, pool: 0.1, client: 0.7 });
    trust.marks = [
        ("latency", 95_000, false, "the interval is wide"),
        ("latency", 99_000, false, "few answers"),
        ("latency", 99_000, false, "the interval is wide"),
        ("latency", 97_000, false, "in no column"),
        ("service", 99_900, true, "requests timed out"),
    ]
    .map(|(series, milli, is_at_least, reason)| Mark {
        series,
        milli,
        is_at_least,
        reason: reason.to_owned(),
        detail: String::new(),
    })
    .to_vec();
    trust.marks[2].detail = "±7 %".to_owned();
    trust.checks.push(Check {
        id: "D9",
        name: "connections",
        class: Class::Endpoint,
        level: Level::Warn,
        value: None,
        unit: "",
        reason: "3 % of the latency was a wait for connections".to_owned(),
        brief: Some("3 % of the latency was a wait for connections".to_owned()),
    });
    let text = judged(&open_run(&open_recorded(10_000)), &open_facts(), trust);
    let lines: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(lines[0], "Held 1 000/s for 10 s: p99 2.88 ms ± 0.21 (few answers).");
    assert_eq!(
        lines[1],
        "The tail is ours: 70 % of it us, 20 % service, 10 % waiting for a connection. \
         The mean is the endpoint's: 96 % of it service, 3 % waiting for a connection, 1 % us."
    );
    assert!(labelled(&text, "latency ms")[0].contains(" 2.882* "), "{text}");
    assert!(labelled(&text, "service ms")[0].contains(" >=2.898 "), "{text}");
    let notes = "\n  * p95, p99 (±7 %) of latency: the interval is wide\n  * p99 of latency: few \
                 answers\n  >= p99.9 of service: requests \
                 timed out\n";
    assert!(text.contains(notes), "{text}");
    assert_eq!(labelled(&text, "trust OK").len(), 1);
    let finding = "finding      connections: 3 % of the latency was a wait for connections";
    assert_eq!(labelled(&text, "finding"), [finding]);
}

#[test]
fn the_header_tells_the_shape_of_the_load() {
    let mut facts = open_facts();
    let engine = finished(0, 0).engine;
    let open = facts.open.as_mut().expect("it is one");
    open.rate = crate::config::RateShape::Ramp {
        kind: crate::config::RampKind::Linear,
        from: 0.5,
        to: 20_000.0,
        time_ns: 60_000_000_000,
    };
    open.timer = crate::cores::Timer::Dedicated { core: 3 };
    open.max_connections = 64;
    let text = header(&facts, &engine);
    let load = " · poisson 0.50 to 20 000/s (linear in 1 min), seed 42 · \
                2 shards on cores 0-1, timer on core 3 · ";
    assert!(text.contains(load), "{text}");
    assert!(text.contains(" · 64 connections · "), "{text}");
}
