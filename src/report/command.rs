//! What to type next: three commands in real syntax for this very run.

use super::RunFacts;
use super::verdict::{Ending, Limit};

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
    flags: Vec<(&'static str, Option<&'static str>)>,
    /// A flag with a value that the change leaves out; empty: none.
    without: &'static str,
    why: &'static str,
}

/// Three commands that test the verdict, or find out why there is none.
pub fn next_commands(facts: &RunFacts, ending: &Ending, limit: Option<Limit>) -> [NextCommand; 3] {
    let mut list = Vec::new();
    let change = |change: Change| with(facts, change);
    match ending {
        Ending::AllFailed { .. } | Ending::NothingEnded { .. } => {
            list.push(change(Change {
                command: Some("concurrency"),
                connections: Some(1),
                flags: vec![("-n", Some("1")), ("--timeout", Some("5s"))],
                why: "one request alone",
                ..Change::default()
            }));
            list.push(other(
                "loadgen-uring max-throughput",
                "the embedded endpoint: does this host work?",
            ));
            list.push(other("loadgen-uring doctor", "what this host allows"));
        }
        Ending::Interrupted { .. } => {
            list.push(change(Change { why: "the whole run", ..Change::default() }));
        }
        Ending::DrainTimedOut { .. } => {
            list.push(change(Change {
                flags: vec![("--drain-timeout", Some("120s"))],
                why: "wait longer for the last answers",
                ..Change::default()
            }));
            list.push(change(Change {
                flags: vec![("--timeout", Some("10s"))],
                why: "count slower answers as failures",
                ..Change::default()
            }));
        }
        Ending::Complete => {}
    }
    list.extend(by_limit(facts, limit).into_iter().map(change));
    if facts.is_embedded {
        let own = "loadgen-uring max-throughput http://127.0.0.1:8080/";
        list.insert(1, other(own, "your own server"));
    }
    list.push(other("loadgen-uring doctor", "what this host allows"));
    let mut seen: Vec<NextCommand> = Vec::new();
    for next in list {
        if !seen.iter().any(|earlier| earlier.line == next.line) {
            seen.push(next);
        }
    }
    seen.truncate(3);
    seen.try_into().expect("the changes of every limit and doctor are at least three lines")
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
            if length_ns(facts) < LONGER_NS {
                list.push(Change {
                    without: "-n",
                    flags: vec![("-d", Some("30s"))],
                    why: "a longer run",
                    ..Change::default()
                });
            }
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
    let mut typed = facts.flags.iter();
    while let Some(word) = typed.next() {
        if word == change.without {
            typed.next(); // its value
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
        line.extend(value.map(str::to_owned));
    }
    let quoted: Vec<String> = line.iter().map(|word| shell_quoted(word)).collect();
    NextCommand { line: quoted.join(" "), why: change.why }
}

fn other(line: &str, why: &'static str) -> NextCommand {
    NextCommand { line: line.to_owned(), why }
}

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
    use crate::report::tests::facts;

    fn lines(facts: &RunFacts, ending: &Ending, limit: Option<Limit>) -> Vec<String> {
        next_commands(facts, ending, limit).map(|next| next.line).to_vec()
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
    }

    #[test]
    fn a_password_in_the_url_is_not_echoed() {
        let mut facts = facts();
        facts.urls = vec!["http://me:secret@10.0.0.2/".to_owned()];
        let all = lines(&facts, &Ending::Complete, None).join("\n");
        assert!(all.contains("http://10.0.0.2/"), "{all}");
        assert!(!all.contains("secret"), "{all}");
    }
}
