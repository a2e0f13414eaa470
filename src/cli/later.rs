//! Commands and flags of later versions: typed today, each gets one clear sentence.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use crate::error::Error;

struct LaterFlag {
    long: &'static str,
    takes_value: bool,
    topic: &'static str,
}

/// The flags, hidden.
pub fn args() -> impl Iterator<Item = Arg> {
    LATER_FLAGS.iter().map(|flag| {
        let arg = Arg::new(flag.long).long(flag.long).hide(true);
        if flag.takes_value { arg.action(ArgAction::Set) } else { arg.action(ArgAction::SetTrue) }
    })
}

/// Refuses the first of the flags that was typed.
pub fn refuse_flags(matches: &ArgMatches) -> Result<(), Error> {
    for flag in &LATER_FLAGS {
        let is_known = matches.try_contains_id(flag.long).is_ok_and(|known| known);
        if is_known && matches.value_source(flag.long) == Some(ValueSource::CommandLine) {
            return Err(not_in_this_version(&format!("--{}", flag.long), flag.topic));
        }
    }
    Ok(())
}

/// Whether a line of clap's ends by proposing one of the flags, which do not work yet.
pub fn is_proposed_by(line: &str) -> bool {
    LATER_FLAGS.iter().any(|flag| line.ends_with(&format!("'--{}'", flag.long)))
}

/// The sentence for a command, if it is one of a later version.
pub fn command(word: &str) -> Option<Error> {
    let (name, topic) = LATER_COMMANDS.iter().find(|(name, _)| *name == word)?;
    Some(not_in_this_version(name, topic))
}

/// The sentence. `topic` ends with its verb.
pub fn not_in_this_version(name: &str, topic: &str) -> Error {
    Error::usage(format!("{name}: {topic} not in this version; {WORKS_NOW}"))
}

/// For messages about what does not work yet.
pub const WORKS_NOW: &str = "what works now: max-throughput, concurrency, poisson, constant, \
                             gamma, ab, serve, probe, compare and doctor";

const LATER_COMMANDS: [(&str, &str); 12] = [
    ("agentic", "conversations are"),
    ("replay", "trace replay is"),
    ("users", "user-centric load is"),
    ("run", "running a YAML file is"),
    ("search", "the search for the highest load is"),
    ("init", "YAML templates are"),
    ("validate", "the check of a YAML file is"),
    ("schema", "the JSON Schema is"),
    ("report", "rendering a report again is"),
    ("verify", "the check of a report is"),
    ("merge", "merging a fleet's reports is"),
    ("translate", "translating other tools' commands is"),
];

const fn later(long: &'static str, takes_value: bool, topic: &'static str) -> LaterFlag {
    LaterFlag { long, takes_value, topic }
}

const REPLAY: &str = "trace replay is";

const LATER_FLAGS: [LaterFlag; 11] = [
    later("events", false, "a record per event is"),
    later("trace", true, REPLAY),
    later("trace-format", true, REPLAY),
    later("time-scale", true, REPLAY),
    // Names of wrk, oha, hey, ab and vegeta whose meaning we do not have.
    later("http2", false, "HTTP/2 is"),
    later("http3", false, "HTTP/3 is"),
    later("script", true, "a scripting language is"),
    later("proxy", true, "a proxy is"),
    later("redirect", true, "following redirects is"),
    later("burst-rate", true, "a rate in bursts of equal size is"),
    later("burst-delay", true, "a rate in bursts of equal size is"),
];
