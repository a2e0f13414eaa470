//! What to type next: three commands in real syntax for this very run.

use super::hold::constant_rate;
use super::verdict::{Ending, Limit};
use super::{
    GateOutcome, Hold, Results, RunFacts, assess, ending, hold, rate_text, suggested_rate,
};
use crate::expression::Expression;
use crate::snapshot::Totals;
use crate::trust::Level;

/// A command line, quoted for a POSIX shell, and what it is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextCommand {
    /// Ready to paste.
    pub line: String,
    /// Why one would.
    pub why: &'static str,
}

/// A change to the command line of this run. `None` keeps what it had.
#[derive(Clone, Debug, Default)]
struct Change {
    command: Option<&'static str>,
    connections: Option<u32>,
    cores: Option<String>,
    /// Names with their values; a switch has none.
    flags: Vec<(&'static str, Option<String>)>,
    /// A flag with a value that the change leaves out; empty: none.
    without: &'static str,
    why: &'static str,
}

/// Three commands that test what the report says, or find out why it says nothing.
pub fn next_commands(results: &Results) -> [NextCommand; 3] {
    let facts = results.facts;
    let ending = ending(results.snapshot);
    let changes = match (&ending, &facts.open) {
        (Ending::Complete, Some(_)) => by_hold(results),
        (Ending::Complete, None) => {
            let assessment = assess(results.snapshot, facts);
            by_limit(facts, assessment.and_then(|assessment| assessment.verdict.limit))
        }
        // Nothing is told above, so there is nothing to test below.
        (_, Some(_)) => half_rate(facts).into_iter().chain([closed_loop()]).collect(),
        (_, None) => by_limit(facts, None),
    };
    listed(facts, &ending, changes)
}

/// The first three of what the ending asks for, the changes, and what is always good.
fn listed(facts: &RunFacts, ending: &Ending, changes: Vec<Change>) -> [NextCommand; 3] {
    let mut list = by_ending(facts, ending);
    list.extend(changes.into_iter().map(|change| with(facts, change)));
    if facts.is_embedded {
        let own = "loadgen-uring max-throughput http://127.0.0.1:8080/";
        list.insert(1.min(list.len()), other(own, "your own server"));
    }
    list.push(other("loadgen-uring doctor", "what this host allows"));
    list.push(other(EMBEDDED, "the embedded endpoint: does this host work?"));
    list.push(other("loadgen-uring serve", "an endpoint to try things on"));
    let mut seen: Vec<NextCommand> = Vec::new();
    for next in list {
        if !seen.iter().any(|earlier| earlier.line == next.line) {
            seen.push(next);
        }
    }
    seen.truncate(3);
    seen.try_into().expect("the last three are three different lines")
}

/// What an ending asks for before anything else.
fn by_ending(facts: &RunFacts, ending: &Ending) -> Vec<NextCommand> {
    let change = |change: Change| with(facts, change);
    let flag = |name, value: &str| vec![(name, Some(value.to_owned()))];
    match ending {
        Ending::AllFailed { .. } | Ending::NothingEnded { .. } => vec![
            change(Change {
                command: Some("concurrency"),
                connections: Some(1),
                flags: [flag("-n", "1"), flag("--timeout", "5s")].concat(),
                why: "one request alone",
                ..Change::default()
            }),
            other(EMBEDDED, "the embedded endpoint: does this host work?"),
            other("loadgen-uring doctor", "what this host allows"),
        ],
        Ending::Interrupted { .. } => {
            vec![change(Change { why: "the whole run", ..Change::default() })]
        }
        Ending::DrainTimedOut { .. } => vec![
            change(Change {
                flags: flag("--drain-timeout", "120s"),
                why: "wait longer for the last answers",
                ..Change::default()
            }),
            change(Change {
                flags: flag("--timeout", "10s"),
                why: "count slower answers as failures",
                ..Change::default()
            }),
        ],
        Ending::Complete => Vec::new(),
    }
}

/// What a complete open loop asks for, by whether its rate held.
fn by_hold(results: &Results) -> Vec<Change> {
    let facts = results.facts;
    let at = |rate: f64, why| Change {
        flags: vec![("-R", Some(rate_text(rate)))],
        why,
        ..Change::default()
    };
    let rate = constant_rate(facts);
    if results.trust.verdict() == Level::Fail {
        let cores = more_cores(facts).map(|change| Change { why: "more cores for us", ..change });
        return cores.into_iter().chain(half_rate(facts)).chain([closed_loop()]).collect();
    }
    let is_slo_missed = results.slo.iter().any(|gate| gate.outcome == GateOutcome::Missed);
    let list = match hold(results) {
        Some(Hold::Held) if is_slo_missed => [
            half_rate(facts)
                .map(|change| Change { why: "does half the rate keep --slo?", ..change }),
            longer(facts, "the tail more precisely"),
            Some(closed_loop()),
            None,
        ],
        Some(Hold::Held) => [
            connections_wanted(results).map(|count| Change {
                connections: Some(count),
                why: "connections that are open before they are needed",
                ..Change::default()
            }),
            rate.map(|rate| at(2.0 * rate, "does it hold twice the rate?")),
            longer(facts, "the tail more precisely"),
            Some(closed_loop()),
        ],
        _ => [
            suggested_rate(results).map(|rate| at(rate, "does it hold what it achieved?")),
            half_rate(facts),
            Some(closed_loop()),
            None,
        ],
    };
    list.into_iter().flatten().collect()
}

/// How many connections would have been open in time, if requests waited for new ones.
pub fn connections_wanted(results: &Results) -> Option<u32> {
    let open = results.facts.open.as_ref()?;
    let counters = &results.tracked.sums.counters;
    let all = Totals::of(&results.snapshot.phases).sums.counters;
    // What is closed is opened again, and needs no room of its own.
    let most = all.connections_opened.saturating_sub(all.connections_closed);
    let wanted = u32::try_from(most).unwrap_or(u32::MAX).min(open.max_connections);
    (counters.waits_new_connection > 0 && wanted > results.facts.connections).then_some(wanted)
}

fn half_rate(facts: &RunFacts) -> Option<Change> {
    constant_rate(facts).map(|rate| Change {
        flags: vec![("-R", Some(rate_text(rate / 2.0)))],
        why: "half the rate",
        ..Change::default()
    })
}

fn closed_loop() -> Change {
    Change {
        command: Some("max-throughput"),
        why: "how fast it can go at all",
        ..Change::default()
    }
}

fn longer(facts: &RunFacts, why: &'static str) -> Option<Change> {
    (length_ns(facts) < LONGER_NS).then(|| Change {
        without: "-n",
        flags: vec![("-d", Some("30s".to_owned()))],
        why,
        ..Change::default()
    })
}

/// At least two changes for every limit, the one that tests it first.
fn by_limit(facts: &RunFacts, limit: Option<Limit>) -> Vec<Change> {
    let connections = facts.connections.max(1);
    let times = |factor: u32, why| Change {
        connections: Some(connections.saturating_mul(factor)),
        why,
        ..Change::default()
    };
    let fewer = (connections > 1).then(|| Change {
        connections: Some(connections / 2),
        why: "as many requests/s, at a lower latency?",
        ..Change::default()
    });
    let alone = if connections > 1 {
        Change {
            command: Some("concurrency"),
            connections: Some(1),
            why: "latency without any queue",
            ..Change::default()
        }
    } else {
        spin("latency without our own wake-ups")
    };
    let mut list = Vec::new();
    match limit {
        Some(Limit::Client) => {
            list.extend(more_cores(facts));
            list.extend(fewer);
            list.push(alone);
            list.push(times(2, "does the rate still rise?"));
        }
        Some(Limit::Connections) => {
            list.push(times(2, "tests the verdict: the rate should rise"));
            list.push(times(4, "and with four times as many?"));
            list.push(alone);
        }
        Some(Limit::Endpoint) => {
            list.push(times(2, "tests the verdict: the rate should stay"));
            list.extend(fewer);
            list.push(alone);
            list.push(times(4, "and with four times as many?"));
        }
        None => {
            list.push(alone);
            list.extend(longer(facts, "a longer run"));
            list.push(times(2, "does the rate rise?"));
        }
    }
    list
}

/// How long the run was to measure; 0 if only a count ended it.
fn length_ns(facts: &RunFacts) -> u64 {
    facts.phases.last().and_then(|phase| phase.duration_ns).unwrap_or(0)
}

fn spin(why: &'static str) -> Change {
    Change { flags: vec![("--spin", None)], why, ..Change::default() }
}

/// The same shards and one more on each allowed core that is free.
fn more_cores(facts: &RunFacts) -> Option<Change> {
    if facts.cores_free.is_empty() {
        return None;
    }
    let mut cores: Vec<usize> = facts.cores.iter().chain(&facts.cores_free).copied().collect();
    cores.sort_unstable();
    cores.dedup();
    Some(Change {
        cores: Some(super::core_list(&cores)),
        why: "tests the verdict: more cores for the client",
        ..Change::default()
    })
}

/// The command line of this run with a change, which goes last: of a flag given twice, the last
/// wins.
fn with(facts: &RunFacts, change: Change) -> NextCommand {
    let mut line = vec!["loadgen-uring".to_owned()];
    if let Some(cores) = change.cores.as_ref().or(facts.cores_flag.as_ref()) {
        line.extend(["--cores".to_owned(), cores.clone()]);
    }
    line.push(change.command.unwrap_or(&facts.command).to_owned());
    if !facts.is_embedded {
        line.extend(facts.urls.iter().map(|url| super::without_user_info(url)));
    }
    let connections = change.connections.unwrap_or(facts.connections);
    line.extend(["-c".to_owned(), connections.to_string()]);
    let becomes_closed = facts.open.is_some() && change.command.is_some();
    let rate_flags: &[String] = if becomes_closed { &[] } else { &facts.rate_flags };
    let mut typed = rate_flags.iter().chain(&facts.flags).peekable();
    let has_new_length = change.flags.iter().any(|(name, _)| *name == "-d");
    while let Some(word) = typed.next() {
        let value = typed.peek().map_or("", |value| value);
        // They belong to the -d auto that is replaced.
        if has_new_length && ["--precision", "--budget"].contains(&word.as_str()) {
            typed.next();
            continue;
        }
        if word == change.without || (becomes_closed && needs_schedule(word, value)) {
            typed.next();
            continue;
        }
        match change.flags.iter().find(|(name, _)| word == name) {
            None => line.push(word.clone()),
            Some((_, None)) => {}
            Some((_, Some(_))) => drop(typed.next()), // with the value that it had
        }
    }
    for (name, value) in change.flags {
        line.push(name.to_owned());
        line.extend(value);
    }
    let quoted: Vec<String> = line.iter().map(|word| shell_quoted(word)).collect();
    NextCommand { line: quoted.join(" "), why: change.why }
}

/// Whether a flag is a condition that only an open loop can answer.
fn needs_schedule(flag: &str, value: &str) -> bool {
    ["--slo", "--fail-if", "--abort-if"].contains(&flag)
        && Expression::parse(value).is_ok_and(|expression| expression.needs_schedule())
}

fn other(line: &str, why: &'static str) -> NextCommand {
    NextCommand { line: line.to_owned(), why }
}

const EMBEDDED: &str = "loadgen-uring max-throughput";
/// What is proposed as a longer run.
const LONGER_NS: u64 = 30_000_000_000;

/// A word as a POSIX shell reads it back: in single quotes unless every byte is harmless.
fn shell_quoted(word: &str) -> String {
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_harmless) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{
        facts, open_facts, open_recorded, open_run, overloaded, trust_of, unstable,
    };
    use crate::trust::Trust;

    fn lines(facts: &RunFacts, ending: &Ending, limit: Option<Limit>) -> Vec<String> {
        listed(facts, ending, by_limit(facts, limit)).map(|next| next.line).to_vec()
    }

    #[test]
    fn words_survive_the_shell() {
        let cases = [
            ("http://h:80/a", "http://h:80/a"),
            ("http://h/?a=1&b=2", "'http://h/?a=1&b=2'"),
            ("", "''"),
            ("X-A: it's", r"'X-A: it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("~", "'~'"),
        ];
        for (word, quoted) in cases {
            assert_eq!(shell_quoted(word), quoted);
        }
    }

    #[test]
    fn every_limit_gets_three_different_commands_that_fit_the_run() {
        let facts = facts();
        let url = "http://10.0.0.2:8000/";
        let cases = [
            (
                Some(Limit::Client),
                [
                    format!("loadgen-uring --cores 0-3 max-throughput {url} -c 64 -d 5s"),
                    format!("loadgen-uring max-throughput {url} -c 32 -d 5s"),
                    format!("loadgen-uring concurrency {url} -c 1 -d 5s"),
                ],
            ),
            (
                Some(Limit::Connections),
                [
                    format!("loadgen-uring max-throughput {url} -c 128 -d 5s"),
                    format!("loadgen-uring max-throughput {url} -c 256 -d 5s"),
                    format!("loadgen-uring concurrency {url} -c 1 -d 5s"),
                ],
            ),
            (
                Some(Limit::Endpoint),
                [
                    format!("loadgen-uring max-throughput {url} -c 128 -d 5s"),
                    format!("loadgen-uring max-throughput {url} -c 32 -d 5s"),
                    format!("loadgen-uring concurrency {url} -c 1 -d 5s"),
                ],
            ),
        ];
        for (limit, expected) in cases {
            assert_eq!(lines(&facts, &Ending::Complete, limit), expected, "{limit:?}");
        }
    }

    #[test]
    fn there_are_always_three_even_for_one_connection_without_a_free_core() {
        let mut facts = facts();
        facts.connections = 1;
        facts.cores_free.clear();
        let endings = [
            Ending::Complete,
            Ending::DrainTimedOut { in_flight: 1 },
            Ending::Interrupted { by: String::new() },
            Ending::AllFailed { failed: 1, by: String::new() },
            Ending::NothingEnded { issued: 1 },
        ];
        for ending in &endings {
            for limit in
                [None, Some(Limit::Client), Some(Limit::Endpoint), Some(Limit::Connections)]
            {
                for is_embedded in [false, true] {
                    facts.is_embedded = is_embedded;
                    let lines = lines(&facts, ending, limit);
                    assert_ne!(lines[0], lines[1], "{ending:?} {limit:?}");
                    assert_ne!(lines[1], lines[2], "{ending:?} {limit:?}");
                }
            }
        }
    }

    #[test]
    fn a_flag_that_changes_replaces_what_was_typed() {
        let mut facts = facts();
        facts.flags = ["-d", "5s", "-H", "X-A: b c", "-n", "7"].map(str::to_owned).to_vec();
        let lines = lines(&facts, &Ending::NothingEnded { issued: 1 }, None);
        let url = "http://10.0.0.2:8000/";
        let expected = format!("concurrency {url} -c 1 -d 5s -H 'X-A: b c' -n 1 --timeout 5s");
        assert_eq!(lines[0], format!("loadgen-uring {expected}"));
    }

    #[test]
    fn a_longer_run_is_longer() {
        let mut facts = facts();
        facts.flags = ["-n", "7", "--spin"].map(str::to_owned).to_vec();
        let second = |facts: &RunFacts| lines(facts, &Ending::Complete, None).swap_remove(1);
        assert!(second(&facts).ends_with("-c 64 --spin -d 30s"), "without the old count");
        facts.phases[0].duration_ns = Some(LONGER_NS);
        assert!(second(&facts).ends_with("-c 128 -n 7 --spin"), "no longer one is known");
        facts.phases[0].duration_ns = Some(LONGER_NS - 1);
        facts.flags = ["-d", "auto", "--precision", "p50:5%", "--budget", "6s", "--spin"]
            .map(str::to_owned)
            .to_vec();
        assert!(second(&facts).ends_with("-c 64 --spin -d 30s"), "no precision without -d auto");
    }

    #[test]
    fn a_password_in_the_url_is_not_echoed() {
        let mut facts = facts();
        facts.urls = vec!["http://me:secret@10.0.0.2/".to_owned()];
        let all = lines(&facts, &Ending::Complete, None).join("\n");
        assert!(all.contains("http://10.0.0.2/"), "{all}");
        assert!(!all.contains("secret"), "{all}");
    }

    /// A line as the program reads it back.
    fn parses(line: &str) {
        let words = line.split(' ').skip(1).map(|word| word.trim_matches('\''));
        let args: Vec<std::ffi::OsString> = words.map(Into::into).collect();
        match crate::cli::parse(args) {
            Ok(crate::cli::Parsed::Load(load)) => {
                crate::config::Config::from_cli(*load).expect(line);
            }
            Ok(_) => {}
            Err(error) => panic!("{line}: {error}"),
        }
    }

    #[test]
    fn an_open_loop_gets_commands_that_fit_how_it_ended_and_all_of_them_are_valid() {
        let url = "http://10.0.0.2:8000/";
        let mut facts = open_facts();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        facts.rate_flags = words("-R 1000 --max-connections 200 --timer hybrid");
        facts.flags = words("--slo p99:5ms --fail-if achieved<0.9*target -d 10s");
        let rest =
            format!("{url} -c 64 -R 1000 --max-connections 200 --timer hybrid --slo p99:5ms");
        let rest = rest.replace("-R 1000 ", "");
        let same = format!("{rest} --fail-if 'achieved<0.9*target'");
        let closed = format!("loadgen-uring max-throughput {url} -c 64 --slo p99:5ms -d 10s");
        let healthy = open_run(&open_recorded(10_000));
        let cases = [
            (
                &healthy,
                Trust::default(),
                [
                    format!("loadgen-uring poisson {same} -d 10s -R 2000"),
                    format!(
                        "loadgen-uring poisson {} -d 30s",
                        same.replace("-c 64", "-c 64 -R 1000")
                    ),
                    closed.clone(),
                ],
            ),
            (
                &overloaded(),
                unstable(),
                [
                    format!("loadgen-uring poisson {same} -d 10s -R 730"),
                    format!("loadgen-uring poisson {same} -d 10s -R 500"),
                    closed.clone(),
                ],
            ),
            (
                &healthy,
                trust_of(Level::Fail),
                [
                    format!(
                        "loadgen-uring --cores 0-3 poisson {} -d 10s",
                        same.replace("-c 64", "-c 64 -R 1000")
                    ),
                    format!("loadgen-uring poisson {same} -d 10s -R 500"),
                    closed,
                ],
            ),
        ];
        for (run, trust, expected) in cases {
            let results = Results::with_trust(run, &facts, vec![trust]);
            let lines = next_commands(&results).map(|next| next.line);
            assert_eq!(lines, expected);
            lines.iter().for_each(|line| parses(line));
        }
    }

    #[test]
    fn connections_that_were_waited_for_are_proposed() {
        let facts = open_facts();
        let mut recording = open_recorded(10_000);
        recording.counters.waits_new_connection = 30;
        recording.counters.connections_opened = 100;
        recording.counters.connections_closed = 4;
        let run = open_run(&recording);
        let results = Results::with_trust(&run, &facts, Vec::new());
        assert_eq!(connections_wanted(&results), Some(96));
        let [first, ..] = next_commands(&results);
        assert!(first.line.contains(" -c 96 "), "{}", first.line);
        recording.counters.connections_closed = 36;
        let run = open_run(&recording);
        let results = Results::with_trust(&run, &facts, Vec::new());
        assert_eq!(connections_wanted(&results), None, "reopened, not grown");
    }
}
