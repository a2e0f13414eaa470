//! What a run means: how it ended, what limited a closed loop, whether its figures agree, which
//! exit code it deserves.
//!
//! Pure functions over facts. The rule is told in `docs/METRICS.md`; what is inferred rather than
//! measured says so.

use super::{GateOutcome, Results};
use crate::error::Error;
use crate::plan;
use crate::snapshot::{PhaseTotals, Snapshot, State, Sums, Totals};
use crate::trust::{Check, Class, Level, Trust};

/// Shards at work for this share of their time are the limit: what is left is lost between turns.
const CLIENT_BUSY_MIN: f64 = 0.85;
/// A median within this factor of the fastest hundredth shows no queue ...
const SPREAD_MAX: f64 = 2.0;
/// ... unless everything waits alike: then it is far above the one fastest answer, which found no
/// queue.
const STANDING_QUEUE_MIN: f64 = 3.0;
/// Completed queries below which nothing is said about the limit.
const COMPLETED_MIN: u64 = 100;
/// One failure in so many ended queries hides what limits the others.
const FAILED_SHARE_MAX: f64 = 0.1;
/// Bounds of a sound Little ratio.
const LITTLE_SOUND: std::ops::RangeInclusive<f64> = 0.85..=1.1;
/// Shortest phase whose Little ratio is told.
const LITTLE_NS_MIN: u64 = 1_000_000_000;
/// Phases shorter than so many mean latencies are mostly start and drain, where fewer queries are
/// in flight.
const LITTLE_LATENCIES_MIN: f64 = 10.0;
/// Failed queries and handshakes hold a connection too, but have no latency: more than this share
/// spoils the ratio.
const LITTLE_LOST_SHARE_MAX: f64 = 0.01;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As planned.
    Complete,
    /// Issuing ended as planned, but some queries had no end when the drain did.
    DrainTimedOut {
        /// How many.
        in_flight: u64,
    },
    /// Ended early, or not ended yet; some queries may have succeeded.
    Interrupted {
        /// Why, in words.
        by: String,
    },
    /// Queries failed and none succeeded.
    AllFailed {
        /// How many.
        failed: u64,
        /// Why it ended early; empty if it did not.
        by: String,
    },
    /// Queries were issued, or should have been; none succeeded, none failed.
    NothingEnded {
        /// How many were issued.
        issued: u64,
    },
}

/// How the run ended.
pub fn ending(snapshot: &Snapshot) -> Ending {
    let tracked = Totals::of(snapshot.tracked()).sums.counters;
    let by = match snapshot.state {
        State::Complete => String::new(),
        State::Interrupted if !snapshot.interrupted_by.is_empty() => {
            snapshot.interrupted_by.clone()
        }
        State::Interrupted => "interrupted".to_owned(),
        State::Initialize | State::Live | State::Draining => "it still runs".to_owned(),
    };
    match (tracked.completed, tracked.failed) {
        (0, failed) if failed > 0 => Ending::AllFailed { failed, by },
        _ if !by.is_empty() => Ending::Interrupted { by },
        (0, _) => Ending::NothingEnded { issued: tracked.issued },
        _ => match snapshot.pending() {
            0 => Ending::Complete,
            in_flight => Ending::DrainTimedOut { in_flight },
        },
    }
}

/// The exit code, and for every code but 0 the one line on stderr that gives the reason.
///
/// `is_quit`: the second Ctrl-C came. `error`: usage or set-up. `results`: what was measured, if
/// anything ran. The first of 130, 2, 3, 1, 6, 4 that holds wins: figures that are not to be
/// believed pass no gate and fail none.
pub fn exit_code(
    is_quit: bool,
    error: Option<&Error>,
    results: Option<&Results>,
) -> (u8, Option<String>) {
    if is_quit {
        let reason = "stopped at once by the second Ctrl-C; the drain was not waited for";
        return (130, Some(reason.to_owned()));
    }
    if let Some(error) = error {
        return (error.exit_code(), Some(error.to_string()));
    }
    let Some(results) = results else {
        return (0, None);
    };
    let told = |code, reason: String| (code, Some(super::printable(&reason)));
    if let Some(reason) = incomplete(results.snapshot) {
        return told(1, reason);
    }
    if results.is_untrusted() {
        let cause = cause(&results.trust).unwrap_or_default();
        return told(
            6,
            format!(
                "do not believe these figures, measure again ({cause}); --allow-untrusted accepts \
                 them"
            ),
        );
    }
    let gates = [("--slo", "was missed", &results.slo), ("--fail-if", "is true", &results.fail_if)];
    let missed = gates.iter().flat_map(|(flag, word, list)| {
        let missed = list.iter().filter(|gate| gate.outcome == GateOutcome::Missed);
        missed.map(move |gate| format!("{flag} '{}' {word} ({})", gate.text, gate.in_words()))
    });
    match missed.collect::<Vec<_>>().join("; ") {
        reasons if reasons.is_empty() => (0, None),
        reasons => told(4, reasons),
    }
}

/// What failed of the instrument first: its cause and what to do.
pub fn cause(trust: &Trust) -> Option<String> {
    let mut checks = trust.checks.iter();
    let has_failed =
        |check: &&Check| check.class == Class::Instrument && check.level == Level::Fail;
    let check = checks.find(has_failed)?;
    Some(format!("{}: {}", check.name, check.brief.as_ref().unwrap_or(&check.reason)))
}

/// Why a run is not complete, if it is not.
fn incomplete(snapshot: &Snapshot) -> Option<String> {
    Some(match ending(snapshot) {
        Ending::Complete => return None,
        Ending::DrainTimedOut { in_flight } => {
            format!("incomplete: {in_flight} requests were in flight when the drain ended")
        }
        Ending::Interrupted { by } => format!("incomplete: {by}"),
        Ending::AllFailed { failed, by } if by.is_empty() => {
            format!("no request succeeded: all {failed} failed{}", first_failure(snapshot))
        }
        Ending::AllFailed { by, .. } => {
            format!("no request succeeded: {by}{}", first_failure(snapshot))
        }
        Ending::NothingEnded { issued } => {
            let tracked = Totals::of(snapshot.tracked());
            format!("no request succeeded: {}", nothing_ended(&tracked.sums, issued))
        }
    })
}

/// Why a run without a success has no failure either.
pub fn nothing_ended(sums: &Sums, issued: u64) -> String {
    let untaken = sums.counters.untaken;
    match (issued, sums.has_schedule()) {
        (0, true) if untaken == 0 => {
            "none was due in that time; a longer -d, or a higher -R".to_owned()
        }
        (0, _) if untaken == 0 => "none was sent".to_owned(),
        _ if untaken > 0 => {
            format!("none of {issued} got an answer, and {untaken} more that were due never began")
        }
        _ => format!("none of {issued} got an answer"),
    }
}

/// The most frequent failure of the tracked phases, with what its first occurrence said.
fn first_failure(snapshot: &Snapshot) -> String {
    let failures = Totals::of(snapshot.tracked()).sums.failures.clone();
    let Some((kind, tally)) = failures.iter().max_by_key(|(_, tally)| tally.count) else {
        return String::new();
    };
    match snapshot.first_message(tally).as_str() {
        "" => format!(" ({})", kind.name()),
        message => format!(" ({}: {message})", kind.name()),
    }
}

/// What kept a closed loop from going faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Our shards had no time left.
    Client,
    /// Requests waited at the endpoint.
    Endpoint,
    /// Each connection waited for its answer only: more of them would ask more.
    Connections,
}

impl Limit {
    /// The word in files and in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Client => "client",
            Limit::Endpoint => "endpoint",
            Limit::Connections => "connections",
        }
    }
}

/// What the limit is judged by.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitFacts {
    /// Share of the shards' time at work.
    pub utilisation: Option<f64>,
    /// Queries in flight over all shards together.
    pub in_flight: u32,
    /// Queries that succeeded.
    pub completed: u64,
    /// Queries that failed.
    pub failed: u64,
    /// The fastest answer of the whole run, warm-up included: at some instant there was no queue
    /// yet. ns
    pub fastest_ns: u64,
    /// First percentile of service latency, ns.
    pub p1_ns: u64,
    /// Median of service latency, ns.
    pub p50_ns: u64,
}

/// The limit, and why it is held to be that.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// `None`: cannot be told.
    pub limit: Option<Limit>,
    /// Inferred from the shape of the latencies of one run, not measured: a second run should test
    /// it.
    pub is_inferred: bool,
    /// One sentence without its full stop.
    pub reason: String,
}

/// Judges what limited a phase.
pub fn limit(facts: &LimitFacts) -> Verdict {
    let ended = facts.completed + facts.failed;
    if facts.completed < COMPLETED_MIN {
        return unknown(format!("{COMPLETED_MIN} answers are needed to tell what the limit was"));
    }
    if facts.failed as f64 > FAILED_SHARE_MAX * ended as f64 {
        return unknown("with so many failures it cannot be told what the limit was".to_owned());
    }
    if let Some(busy) = facts.utilisation.filter(|busy| *busy >= CLIENT_BUSY_MIN) {
        let percent = 100.0 * busy.min(1.0);
        let reason = format!("its shards were at work {percent:.0} % of the time");
        return Verdict { limit: Some(Limit::Client), is_inferred: false, reason };
    }
    if facts.in_flight == 1 {
        let reason = "with one request in flight nothing can queue at the endpoint".to_owned();
        return Verdict { limit: Some(Limit::Connections), is_inferred: false, reason };
    }
    let (limit, reason) = by_shape(facts);
    Verdict { limit: Some(limit), is_inferred: true, reason }
}

impl Verdict {
    /// An inference holds only where every connection was at work: Little's ratio tells.
    pub fn less_what_contradicts(self, little_ratio: Option<f64>) -> Verdict {
        match little_ratio {
            Some(ratio) if self.is_inferred && ratio < *LITTLE_SOUND.start() => unknown(format!(
                "connections were idle for part of the time (latency x rate / connections is \
                 {ratio:.2}), so it cannot be told what the limit was"
            )),
            _ => self,
        }
    }
}

impl Verdict {
    /// An inference from how far latencies lie apart holds only where all requests are alike.
    /// `has_lengths`: answers of an inference endpoint, each as long as it came out.
    pub fn less_what_lengths_make(self, has_lengths: bool) -> Verdict {
        if !(has_lengths && self.is_inferred) {
            return self;
        }
        unknown(
            "answers differ in length, so how far their times lie apart does not tell whether \
             they waited for each other"
                .to_owned(),
        )
    }
}

/// Endpoint or connections, from the shape of the latencies.
fn by_shape(facts: &LimitFacts) -> (Limit, String) {
    let over_p1 = facts.p50_ns as f64 / facts.p1_ns.max(1) as f64;
    let over_fastest = facts.p50_ns as f64 / facts.fastest_ns.max(1) as f64;
    if over_p1 > SPREAD_MAX {
        let reason = format!(
            "the median answer took {over_p1:.1} times as long as the fastest 1 %, \
             as if requests waited there"
        );
        return (Limit::Endpoint, reason);
    }
    // n requests in flight make an answer n times as long at most: a few cannot explain more.
    if over_fastest > STANDING_QUEUE_MIN && f64::from(facts.in_flight) > STANDING_QUEUE_MIN {
        let reason = format!(
            "all answers took about the same, but {over_fastest:.0} times as long as the fastest \
             one, as in a standing queue"
        );
        return (Limit::Endpoint, reason);
    }
    let reason = format!(
        "the median answer took only {over_p1:.1} times as long as the fastest 1 %, \
         so requests did not queue at the endpoint"
    );
    (Limit::Connections, reason)
}

fn unknown(reason: String) -> Verdict {
    Verdict { limit: None, is_inferred: false, reason }
}

/// The facts of one phase of a run.
pub fn limit_facts(snapshot: &Snapshot, phase: &PhaseTotals, plan: &plan::Phase) -> LimitFacts {
    let fastest_ns = snapshot.phases.iter().map(|phase| phase.sums.service.min).min();
    LimitFacts {
        utilisation: Totals::of([phase]).utilisation(),
        in_flight: plan.in_flight,
        completed: phase.sums.counters.completed,
        failed: phase.sums.counters.failed,
        fastest_ns: fastest_ns.unwrap_or(u64::MAX),
        p1_ns: phase.sums.service.percentile(1_000).unwrap_or(0),
        p50_ns: phase.sums.service.percentile(50_000).unwrap_or(0),
    }
}

/// Little's law: mean latency x completed per second / queries in flight. 1 when every connection
/// is always busy and both stamps are right. `None` where start, drain or failures make up too much
/// of the phase to expect that.
pub fn little_ratio(phase: &PhaseTotals, plan: &plan::Phase) -> Option<f64> {
    let duration_ns = phase.duration_ns();
    let mean_ns = phase.sums.service.mean()?;
    let ended = phase.sums.counters.completed + phase.sums.counters.failed;
    let is_long =
        duration_ns >= LITTLE_NS_MIN && duration_ns as f64 >= LITTLE_LATENCIES_MIN * mean_ns;
    // Handshakes are in no latency: with many of them connections are busy and carry nothing.
    let reopened = phase.sums.counters.connections_opened.saturating_sub(u64::from(plan.in_flight));
    let lost = phase.sums.counters.failed + reopened;
    let is_sound = lost as f64 <= LITTLE_LOST_SHARE_MAX * ended as f64;
    // One that never got its answer has held a connection for who knows how long.
    let is_whole = phase.in_flight_at_end == 0;
    (is_long && is_sound && is_whole && plan.in_flight > 0)
        .then(|| phase.sums.service.total as f64 / duration_ns as f64 / f64::from(plan.in_flight))
}

/// What is wrong with a Little ratio, if anything.
pub fn little_warning(ratio: f64) -> Option<String> {
    if LITTLE_SOUND.contains(&ratio) {
        return None;
    }
    let cause = if ratio < 1.0 {
        "connections were idle for part of the time, or latency was measured too short"
    } else {
        "more was in flight than there are connections, so latency was measured too long"
    };
    Some(format!("latency x rate / connections is {ratio:.2}, which should be near 1: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;
    use crate::report::RunFacts;
    use crate::report::tests::{facts, finished, plan_of, trust_of};

    #[test]
    fn exit_code_follows_the_order_of_priority() {
        let usage = Error::usage("--cores 9 is not allowed");
        let setup = Error::setup("no memory");
        let good = finished(100, 0);
        let mut interrupted = finished(100, 0);
        interrupted.state = State::Interrupted;
        interrupted.interrupted_by = "stopped by Ctrl-C".to_owned();
        let mut drained = finished(100, 0);
        drained.phases[0].in_flight_at_end = 3;
        let failed = finished(0, 7);
        let silent = finished(0, 0);
        type Case<'a> = (bool, Option<&'a Error>, Option<&'a Snapshot>, u8, &'a str);
        let cases: [Case<'_>; 10] = [
            (false, None, None, 0, ""),
            (false, None, Some(&good), 0, ""),
            (true, Some(&usage), Some(&good), 130, "stopped at once by the second Ctrl-C"),
            (false, Some(&usage), Some(&failed), 2, "--cores 9 is not allowed"),
            (false, Some(&setup), Some(&failed), 3, "no memory"),
            (false, None, Some(&interrupted), 1, "incomplete: stopped by Ctrl-C"),
            (false, None, Some(&drained), 1, "incomplete: 3 requests were in flight"),
            (false, None, Some(&failed), 1, "no request succeeded: all 7 failed (reset: peer)"),
            (false, None, Some(&silent), 1, "no request succeeded: none was sent"),
            (true, None, None, 130, "stopped at once"),
        ];
        let facts = facts();
        for (is_quit, error, snapshot, code, reason) in cases {
            let results =
                snapshot.map(|snapshot| Results::with_trust(snapshot, &facts, Vec::new()));
            let (got, line) = exit_code(is_quit, error, results.as_ref());
            assert_eq!(got, code, "{reason}");
            assert_eq!(line.is_none(), code == 0, "every code but 0 has a reason");
            assert!(line.unwrap_or_default().starts_with(reason), "{reason}");
        }
    }

    #[test]
    fn an_untrusted_run_is_6_before_any_gate_and_a_missed_gate_is_4() {
        let parsed = |text: &str| vec![Expression::parse(text).expect("valid")];
        let run = finished(100, 0);
        let mut interrupted = run.clone();
        interrupted.state = State::Interrupted;
        let code = |run: &Snapshot, trust: Trust, is_allowed, slo: &str, fail_if: &str| {
            let facts = RunFacts {
                slo: parsed(slo),
                fail_if: parsed(fail_if),
                is_untrusted_allowed: is_allowed,
                ..facts()
            };
            exit_code(false, None, Some(&Results::with_trust(run, &facts, vec![trust])))
        };
        let (good, bad) = (Trust::default, || trust_of(Level::Fail));
        assert_eq!(code(&run, good(), false, "p50<2ms", "failed>1%"), (0, None));
        assert_eq!(code(&run, trust_of(Level::Warn), false, "p50<2ms", "failed>1%"), (0, None));
        let missed = (4, Some("--slo 'p50<1us' was missed (it is 1 ms)".to_owned()));
        assert_eq!(code(&run, good(), false, "p50<1us", "failed>1%"), missed);
        let both = "--slo 'p99<1s' was missed (it needs 1000 values, has 100); \
                    --fail-if 'completed>1' is true (it is 100)";
        let told = code(&run, good(), false, "p99<1s", "completed>1");
        assert_eq!(told, (4, Some(both.to_owned())));
        let (six, line) = code(&run, bad(), false, "p50<1us", "completed>1");
        assert_eq!(six, 6);
        let line = line.expect("a reason");
        assert!(
            line.contains("(dispatch: requests left late)") && line.contains("--allow"),
            "{line}"
        );
        assert_eq!(code(&run, bad(), true, "p50<1us", "failed>1%"), missed);
        assert_eq!(code(&interrupted, bad(), false, "p50<1us", "completed>1").0, 1);
    }

    #[test]
    fn a_run_that_still_runs_is_not_complete() {
        let mut snapshot = finished(100, 0);
        for state in [State::Initialize, State::Live, State::Draining] {
            snapshot.state = state;
            assert_eq!(ending(&snapshot), Ending::Interrupted { by: "it still runs".to_owned() });
        }
        snapshot.state = State::Complete;
        assert_eq!(ending(&snapshot), Ending::Complete);
    }

    #[test]
    fn queries_left_by_an_undrained_warmup_do_not_make_a_run_incomplete() {
        let mut snapshot = finished(100, 0);
        let mut warmup = PhaseTotals::new("warmup", loadgen_shards::phase::PhaseKind::Warmup, 1);
        warmup.in_flight_at_end = 64;
        snapshot.phases.insert(0, warmup);
        assert_eq!(ending(&snapshot), Ending::Complete);
    }

    #[test]
    fn limit_is_told_by_table() {
        let sound = LimitFacts {
            utilisation: Some(0.5),
            in_flight: 64,
            completed: 10_000,
            failed: 0,
            fastest_ns: 90,
            p1_ns: 100,
            p50_ns: 150,
        };
        let cases = [
            ("tight latencies", sound, Some(Limit::Connections), true),
            (
                "busy shards",
                LimitFacts { utilisation: Some(0.85), ..sound },
                Some(Limit::Client),
                false,
            ),
            (
                "nearly busy",
                LimitFacts { utilisation: Some(0.849), ..sound },
                Some(Limit::Connections),
                true,
            ),
            (
                "unknown use",
                LimitFacts { utilisation: None, ..sound },
                Some(Limit::Connections),
                true,
            ),
            ("at the bound", LimitFacts { p50_ns: 200, ..sound }, Some(Limit::Connections), true),
            ("spread", LimitFacts { p50_ns: 201, ..sound }, Some(Limit::Endpoint), true),
            (
                "no room for a queue",
                LimitFacts { fastest_ns: 30, in_flight: 3, ..sound },
                Some(Limit::Connections),
                true,
            ),
            ("standing queue", LimitFacts { fastest_ns: 30, ..sound }, Some(Limit::Endpoint), true),
            (
                "one in flight",
                LimitFacts { in_flight: 1, p50_ns: 900, ..sound },
                Some(Limit::Connections),
                false,
            ),
            (
                "one in flight, busy",
                LimitFacts { in_flight: 1, utilisation: Some(0.9), ..sound },
                Some(Limit::Client),
                false,
            ),
            (
                "few answers",
                LimitFacts { completed: 99, utilisation: Some(1.0), ..sound },
                None,
                false,
            ),
            (
                "one failure in ten",
                LimitFacts { completed: 900, failed: 100, ..sound },
                Some(Limit::Connections),
                true,
            ),
            ("more failures", LimitFacts { completed: 900, failed: 101, ..sound }, None, false),
        ];
        for (name, facts, expected, is_inferred) in cases {
            let verdict = limit(&facts);
            assert_eq!((verdict.limit, verdict.is_inferred), (expected, is_inferred), "{name}");
        }
    }

    #[test]
    fn little_ratio_is_one_when_every_connection_is_always_busy() {
        // 2 in flight for 1.5 s in answers of 1 ms each: 3000 of them.
        let mut phase = finished(3000, 0).phases.remove(0);
        phase.sums.counters.connections_opened = 1;
        phase.last_complete_ns = phase.start_ns + 1_500_000_000;
        let ratio = little_ratio(&phase, &plan_of(2)).expect("long enough");
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        assert_eq!(little_warning(ratio), None);
        // Negative controls: the same answers claimed for 4 connections, and for one.
        let idle = little_ratio(&phase, &plan_of(4)).expect("long enough");
        assert!(little_warning(idle).expect("0.5").contains("is 0.50"), "{idle}");
        let many = little_ratio(&phase, &plan_of(1)).expect("long enough");
        assert!(little_warning(many).expect("2").contains("too long"), "{many}");
    }

    #[test]
    fn inferred_limit_does_not_hold_while_connections_idle() {
        let inferred = |is_inferred| Verdict {
            limit: Some(Limit::Connections),
            is_inferred,
            reason: String::new(),
        };
        for (is_inferred, ratio, is_held) in [
            (true, Some(0.5), false),
            (true, Some(0.9), true),
            (true, None, true),
            (false, Some(0.5), true),
        ] {
            let verdict = inferred(is_inferred).less_what_contradicts(ratio);
            assert_eq!(verdict.limit.is_some(), is_held, "{is_inferred} {ratio:?}");
        }
    }

    #[test]
    fn nothing_is_inferred_from_answers_that_differ_in_length() {
        let of = |is_inferred| Verdict {
            limit: Some(Limit::Client),
            is_inferred,
            reason: String::new(),
        };
        assert_eq!(of(true).less_what_lengths_make(true).limit, None);
        assert_eq!(of(true).less_what_lengths_make(false).limit, Some(Limit::Client));
        assert_eq!(of(false).less_what_lengths_make(true).limit, Some(Limit::Client), "measured");
    }

    #[test]
    fn little_ratio_is_not_told_where_it_need_not_be_one() {
        let mut phase = finished(3000, 0).phases.remove(0);
        phase.last_complete_ns = phase.start_ns + 999_999_999;
        assert_eq!(little_ratio(&phase, &plan_of(2)), None, "short");
        phase.last_complete_ns = phase.start_ns + 2_000_000_000;
        phase.sums.counters.failed = 31;
        assert_eq!(little_ratio(&phase, &plan_of(2)), None, "1 % failed");
        phase.sums.counters.failed = 0;
        phase.sums.counters.connections_opened = 2 + 31;
        assert_eq!(little_ratio(&phase, &plan_of(2)), None, "1 % needed a new connection");
        assert_eq!(little_ratio(&finished(0, 0).phases[0], &plan_of(2)), None, "empty");
    }

    #[test]
    fn little_bounds_are_inclusive() {
        for (ratio, is_sound) in [(0.849, false), (0.85, true), (1.1, true), (1.101, false)] {
            assert_eq!(little_warning(ratio).is_none(), is_sound, "{ratio}");
        }
    }
}
