//! The first two lines of a report: the answer in a sentence, and whose doing it is.

use std::fmt::Write;

use super::{WRITES, counted, tokens};
use crate::config::RateShape;
use crate::number::{grouped, rate, roughly, time, unit};
use crate::report::{
    Assessment, Ending, Hold, Limit, Results, RunFacts, cause, hold, nothing_ended, rate_text,
    suggested_rate,
};
use crate::snapshot::{Bounded, Totals, count_needed};
use crate::trust::{Blame, Level};

/// Failures below this share are left to the line that counts them.
const FAILED_SHARE_TOLD: f64 = 0.01;
const P99: u32 = 99_000;
const P50: u32 = 50_000;

/// The first line: the answer in a sentence.
pub fn answer(results: &Results, ending: &Ending, assessment: Option<&Assessment>) -> String {
    let (tracked, facts) = (&results.tracked, results.facts);
    let completed = tracked.sums.counters.completed;
    let achieved = tracked.qps().map_or("no".to_owned(), rate);
    match ending {
        Ending::AllFailed { failed, by } => {
            let failed = counted(*failed, "request");
            match by.as_str() {
                "" => format!("No request succeeded: {failed} failed."),
                by => format!(
                    "No request succeeded: {failed} failed, and the run was cut short: {by}."
                ),
            }
        }
        Ending::NothingEnded { issued } => {
            format!("No request succeeded: {}.", nothing_ended(&tracked.sums, *issued))
        }
        Ending::Interrupted { by } => {
            let total_ns = results.snapshot.total_duration_ns();
            if total_ns == 0 {
                return format!("Cut short before the first request: {by}.");
            }
            let until = match completed {
                0 => "No measured request had succeeded".to_owned(),
                _ => format!("Until then {achieved} requests/s"),
            };
            format!("Cut short after {}: {by}. {until}.", time(rounded(total_ns)))
        }
        Ending::DrainTimedOut { in_flight } => format!(
            "{achieved} requests/s, but incomplete: {} had no answer when the drain ended.",
            counted(*in_flight, "request"),
        ),
        Ending::Complete => {
            let sentence = match (hold(results), &facts.open) {
                (Some(hold), Some(open)) => open_answer(results, hold, &open.rate),
                _ if tracked.sums.answers.is_some() => {
                    format!("{}{}.", tokens::tail(results), failed_clause(tracked))
                }
                _ => {
                    let cores = counted(facts.cores.len() as u64, "core");
                    format!("{achieved} requests/s on {cores}{}.", clauses(tracked, assessment))
                }
            };
            match results.trust.verdict() {
                Level::Fail => format!("Not to be believed: {sentence}"),
                Level::Ok | Level::Warn => sentence,
            }
        }
    }
}

/// Whether the rate held, and the tail.
fn open_answer(results: &Results, hold: Hold, shape: &RateShape) -> String {
    let tracked = &results.tracked;
    let counters = &tracked.sums.counters;
    let asked = asked(results, shape);
    let achieved = tracked.qps().map_or("0".to_owned(), rate);
    let length = time(rounded(tracked.load_ns));
    let try_rate = suggested_rate(results)
        .map_or_else(String::new, |rate| format!("; try -R {}", rate_text(rate)));
    if results.trust.verdict() == Level::Fail {
        // Whether the endpoint would have held it, nobody knows.
        return format!("{achieved} of {asked}, {}.", tail(results));
    }
    match hold {
        Hold::QueueGrows => format!(
            "Did NOT hold: {achieved} of {asked}; the queue grows, so there is no p99{try_rate}."
        ),
        Hold::NeverBegun { untaken } => format!(
            "Did NOT hold: {achieved} of {asked}; {} due and never begun{try_rate}.",
            was_or_were(untaken),
        ),
        Hold::Dropped { dropped } => {
            let per_second = |qps: Option<f64>| qps.map_or("n/a".to_owned(), rate);
            let dropped_qps = dropped as f64 * 1e9 / tracked.load_ns.max(1) as f64;
            let share = 100.0 * dropped as f64 / counters.scheduled.max(1) as f64;
            format!(
                "Offered {}/s for {length}, accepted {}/s, dropped {}/s ({share:.1} %){}: {}.",
                per_second(tracked.offered_qps()),
                per_second(tracked.accepted_qps()),
                rate(dropped_qps),
                failed_clause(tracked),
                tail(results)
            )
        }
        Hold::Held => {
            format!("Held {asked} for {length}{}: {}.", failed_clause(tracked), tail(results))
        }
    }
}

fn was_or_were(count: u64) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb}", counted(count, "request"))
}

/// `p99 4.87 ms ± 0.21`, or as much of it as there is; of an inference run its tokens.
fn tail(results: &Results) -> String {
    if results.tracked.sums.answers.is_some() {
        return tokens::tail(results);
    }
    let all = results.tracked.sums.headline_with_timeouts();
    let (needed, count) = (count_needed(P99), all.count());
    let value = |milli| all.percentile(milli).map_or("n/a".to_owned(), bounded);
    if count < needed {
        return format!("p50 {} (p99 needs {} answers)", value(P50), grouped(needed));
    }
    let mut text = format!("p99 {}", value(P99));
    let is_bound = all.percentile(P99).is_some_and(|p99| p99.is_at_least);
    let marked = results.trust.marks.iter().find(|m| m.series == "latency" && m.milli == P99);
    let interval = results.trust.intervals.iter().find(|interval| interval.milli == P99);
    if let (Some(interval), Some(p99), false) = (interval, all.percentile(P99), is_bound) {
        let half = (interval.high_ns.saturating_sub(interval.low_ns)) as f64 / 2.0;
        write!(text, " ± {}", roughly(half / unit(p99.value as f64).1)).expect(WRITES);
    }
    match (is_bound, marked) {
        (true, _) => text.push_str(", as requests timed out"),
        // The second line says why the whole run is not to be believed.
        (false, Some(_)) if results.trust.verdict() == Level::Fail => {}
        (false, Some(mark)) => write!(text, " ({})", mark.reason).expect(WRITES),
        (false, None) => {}
    }
    text
}

fn bounded(bounded: Bounded) -> String {
    let sign = if bounded.is_at_least { ">= " } else { "" };
    format!("{sign}{}", time(bounded.value))
}

/// The rate that was asked for.
fn asked(results: &Results, shape: &RateShape) -> String {
    match shape {
        RateShape::Constant(asked) => format!("{}/s", rate(*asked)),
        RateShape::Ramp { from, to, .. } => format!("{} to {}/s", rate(*from), rate(*to)),
        RateShape::Series { .. } => {
            let mean = results.target_qps().or(results.tracked.scheduled_qps());
            mean.map_or("n/a".to_owned(), |mean| format!("{}/s (on average)", rate(mean)))
        }
    }
}

/// What follows the rate in the first line of a closed loop: many failures, then the limit.
fn clauses(tracked: &Totals, assessment: Option<&Assessment>) -> String {
    let mut text = failed_clause(tracked);
    let Some(verdict) = assessment.map(|assessment| &assessment.verdict) else {
        return text;
    };
    match (verdict.limit, verdict.is_inferred) {
        (None, _) => write!(text, "; what limited it is not known"),
        (Some(Limit::Connections), true) => {
            write!(text, "; the limit was probably the number of connections")
        }
        (Some(Limit::Connections), false) => {
            write!(text, "; the limit was the number of connections")
        }
        (Some(limit), true) => write!(text, "; the limit was probably the {}", limit.name()),
        (Some(limit), false) => write!(text, "; the limit was the {}", limit.name()),
    }
    .expect(WRITES);
    text
}

/// `, but 2.0 % of the requests failed`, unless that are few.
fn failed_clause(tracked: &Totals) -> String {
    let ended = tracked.sums.counters.completed + tracked.sums.counters.failed;
    let share = tracked.sums.counters.failed as f64 / ended.max(1) as f64;
    if share < FAILED_SHARE_TOLD {
        return String::new();
    }
    format!(", but {:.1} % of the requests failed", 100.0 * share)
}

/// The second line: why the first says so. Nothing where the run did not come so far.
pub fn reason(
    results: &Results,
    ending: &Ending,
    assessment: Option<&Assessment>,
) -> Option<String> {
    let failures = &results.tracked.sums.failures;
    match ending {
        Ending::AllFailed { .. } => {
            let (kind, tally) = failures.iter().max_by_key(|(_, tally)| tally.count)?;
            Some(match results.snapshot.first_message(tally).as_str() {
                "" => format!("Most of them: {}.", kind.name()),
                message => format!("Most of them: {}, first \"{message}\".", kind.name()),
            })
        }
        Ending::Complete => match cause(&results.trust) {
            Some(cause) => Some(sentence(&cause)),
            None if results.facts.open.is_some() => blame(results),
            // Answers differ in length, so their times do not tell who waited for whom.
            None if results.tracked.sums.answers.is_some()
                && assessment?.verdict.limit != Some(Limit::Client) =>
            {
                None
            }
            None => {
                let verdict = &assessment?.verdict;
                let text = sentence(&verdict.reason);
                let text = text.trim_end_matches('.');
                Some(match verdict.is_inferred {
                    true => format!("{text} (inferred; the first command below tests it)."),
                    false => format!("{text}."),
                })
            }
        },
        _ => None,
    }
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    let text: String = first.into_iter().flatten().chain(letters).collect();
    format!("{}.", text.trim_end_matches('.'))
}

/// Whose the tail is, and the mean if that is another's.
fn blame(results: &Results) -> Option<String> {
    let trust = &results.trust;
    if trust.is_unstable {
        return None; // it has no tail
    }
    let of_mean = trust.mean.map(|blame| of("mean", blame));
    let Some(tail) = trust.tail else {
        return of_mean;
    };
    let differs = trust.mean.is_some_and(|mean| parts(mean)[0].word != parts(tail)[0].word);
    let more = of_mean.filter(|_| differs).map_or_else(String::new, |text| format!(" {text}"));
    Some(format!("{}{more}", of("tail", tail)))
}

struct Share {
    value: f64,
    /// Whose it is.
    word: &'static str,
    /// What it is.
    part: &'static str,
}

/// Largest first.
fn parts(blame: Blame) -> [Share; 3] {
    let mut list = [
        Share { value: blame.endpoint, word: "the endpoint's", part: "service" },
        Share {
            value: blame.pool,
            word: "that of a wait for connections",
            part: "waiting for a connection",
        },
        Share { value: blame.client, word: "ours", part: "us" },
    ];
    list.sort_by(|a, b| b.value.total_cmp(&a.value));
    list
}

fn of(what: &str, blame: Blame) -> String {
    let list = parts(blame);
    let rest: Vec<String> =
        list[1..].iter().map(|share| format!("{} {}", percent(share.value), share.part)).collect();
    format!(
        "The {what} is {}: {} of it {}, {}.",
        list[0].word,
        percent(list[0].value),
        list[0].part,
        rest.join(", ")
    )
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent > 0.0 && percent < 0.5 => "< 1 %".to_owned(),
        percent if percent > 99.5 && percent < 100.0 => "> 99 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// The header's words for the load: `poisson 10 000/s, seed 42`.
pub fn load_words(facts: &RunFacts) -> String {
    let Some(open) = &facts.open else {
        return facts.command.clone();
    };
    let shape = match &open.rate {
        RateShape::Constant(asked) => format!("{}/s", rate(*asked)),
        RateShape::Ramp { kind, from, to, time_ns } => {
            format!("{} to {}/s ({} in {})", rate(*from), rate(*to), kind.name(), time(*time_ns))
        }
        RateShape::Series { path, .. } => format!("at the rates of {}", path.display()),
    };
    let seed = facts.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
    format!("{} {shape}{seed}", facts.command)
}

/// To 10 ms: a time in a sentence needs no more.
fn rounded(ns: u64) -> u64 {
    ns.saturating_add(5_000_000) / 10_000_000 * 10_000_000
}
