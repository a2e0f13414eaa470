//! Exactly what the user typed: commands and flags by clap, values still text. No system call, no
//! default filled in.
//!
//! Called by `main`; [`crate::config`] makes typed values of it. One step precedes clap: the
//! command is moved to the front, and put there when only a URL was given, so that every flag works
//! before and after it. Which flags take a value is asked from clap's own definition.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::error::Error;

/// What a command line asks for.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// `max-throughput` or `concurrency`.
    Load(Box<Load>),
    /// `serve`.
    Serve(Box<Serve>),
    /// `compare`.
    Compare(Box<Compare>),
    /// `doctor`.
    Doctor(Common),
    /// Examples, help or version: for stdout, exit code 0.
    Text(String),
}

/// The load commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadCommand {
    /// Every connection always busy.
    MaxThroughput,
    /// So many requests in flight.
    Concurrency,
}

impl LoadCommand {
    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            LoadCommand::MaxThroughput => "max-throughput",
            LoadCommand::Concurrency => "concurrency",
        }
    }
}

/// A load command with everything that was typed for it.
#[derive(Clone, Debug)]
pub struct Load {
    /// Which of them.
    pub command: LoadCommand,
    /// Its own flags.
    pub flags: LoadFlags,
    /// The flags of every command.
    pub common: Common,
}

/// `serve` with everything that was typed for it.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Its own flags.
    pub flags: ServeFlags,
    /// The flags of every command.
    pub common: Common,
}

/// Parses the arguments after the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.is_empty() {
        return Ok(Parsed::Text(EXAMPLES.to_string()));
    }
    let definition = definition();
    let args = with_command_first(&definition, args)?;
    let program = OsString::from(env!("CARGO_PKG_NAME"));
    let matches = match definition.try_get_matches_from(std::iter::once(program).chain(args)) {
        Ok(matches) => matches,
        Err(error) => return text_or_error(&error),
    };
    if let Some((_, matches)) = matches.subcommand() {
        for later in &LATER_FLAGS {
            let source = matches.try_contains_id(later.long).is_ok_and(|known| known);
            if source && matches.value_source(later.long) == Some(ValueSource::CommandLine) {
                return Err(not_in_this_version(&format!("--{}", later.long), later.topic));
            }
        }
    }
    let typed = match Typed::from_arg_matches(&matches) {
        Ok(typed) => typed,
        Err(error) => return text_or_error(&error),
    };
    let common = typed.common;
    let load =
        |command, flags| Parsed::Load(Box::new(Load { command, flags, common: common.clone() }));
    Ok(match typed.command {
        Command::MaxThroughput(flags) => load(LoadCommand::MaxThroughput, flags),
        Command::Concurrency(flags) => load(LoadCommand::Concurrency, flags),
        Command::Serve(flags) => Parsed::Serve(Box::new(Serve { flags, common })),
        Command::Compare(flags) => Parsed::Compare(Box::new(Compare { flags, common })),
        Command::Doctor => Parsed::Doctor(common),
    })
}

#[derive(Debug, Parser)]
#[command(
    name = env!("CARGO_PKG_NAME"),
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    about = "Load generator for HTTP endpoints: io_uring, one shard per core, honest numbers",
    override_usage = "loadgen-uring [COMMAND] [URL]... [FLAGS]",
    after_help = AFTER_HELP
)]
struct Typed {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// How fast can the endpoint go: every connection always busy. Also what a bare URL does
    #[command(after_help = MAX_THROUGHPUT_HELP)]
    MaxThroughput(LoadFlags),
    /// Keep -c requests in flight; the next starts when one ends
    #[command(after_help = CONCURRENCY_HELP)]
    Concurrency(LoadFlags),
    /// Run the embedded endpoint alone, for another process or host to load
    Serve(ServeFlags),
    /// Runs that were measured before, side by side: what differs, by how much, is it chance
    #[command(after_help = COMPARE_HELP)]
    Compare(CompareFlags),
    /// Check whether this host can run us, and say what to type to fix it
    Doctor,
}

/// Flags of every command; they work before and after it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global flags")]
pub struct Common {
    /// Run one shard on each of these cores: 0-15 or 0,2,4 [default: allowed cores within the CPU
    /// quota; half of them when the target is this host]
    #[arg(long, global = true, value_name = "LIST")]
    pub cores: Option<String>,
    /// Run N shards, on the first N allowed cores
    #[arg(short = 't', long, global = true, value_name = "N")]
    pub threads: Option<String>,
    /// I/O back end: auto, uring or epoll [default: auto]
    #[arg(long, global = true, value_name = "NAME")]
    pub engine: Option<String>,
    /// Shards never sleep: lowest latency, whole cores
    #[arg(long, global = true)]
    pub spin: bool,
    /// Print the result as JSON on stdout, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no live view and no report
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Live view on stderr: auto, plain or none [default: auto, which is plain on a terminal]
    #[arg(long, global = true, value_name = "KIND")]
    pub ui: Option<String>,
    /// Where files go, or none.
    #[arg(long, global = true, value_name = "DIR")]
    #[arg(help = "Where files go, or none [default: results/<UTC time>-<command>]")]
    pub report_dir: Option<PathBuf>,
    /// Seed of everything random [default: 42]
    #[arg(long, global = true, value_name = "N")]
    pub seed: Option<String>,
    /// A FAIL of the trust block does not change the exit code
    #[arg(long, global = true)]
    pub allow_untrusted: bool,
}

/// Flags of the load commands.
#[derive(Args, Clone, Debug, Default)]
pub struct LoadFlags {
    /// What is loaded; none: the embedded endpoint.
    #[arg(value_name = "URL", help = URL_HELP)]
    pub urls: Vec<String>,

    /// Connections over all shards together, each with one request in flight [default: 64 per
    /// shard; concurrency requires it]
    #[arg(short, long, alias = "concurrency", value_name = "N", help_heading = "Load")]
    pub connections: Option<String>,
    /// Stop after this time [default: 10s if -n is not given]
    #[arg(short, long, short_alias = 'z', value_name = "TIME", help_heading = "Load")]
    pub duration: Option<String>,
    /// Stop after this many requests
    #[arg(short = 'n', long, value_name = "N", help_heading = "Load")]
    #[arg(aliases = ["num-prompts", "num-samples"])]
    pub requests: Option<String>,
    /// Untracked phase before: a time with its unit (2s) or a number of requests (500)
    #[arg(long, value_name = "TIME|N", help_heading = "Load")]
    pub warmup: Option<String>,
    /// Abort when this becomes true, as in 'failed>1%' or 'p99>2s'; repeatable [default: every
    /// request failed for 2 s]
    #[arg(long, value_name = "EXPR", help_heading = "Load")]
    pub abort_if: Vec<String>,

    /// Method [default: GET; POST when there is a body]
    #[arg(short, long, short_alias = 'X', value_name = "METHOD", help_heading = "Request")]
    pub method: Option<String>,
    /// Header 'Name: value'; repeatable; replaces ours of that name
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = "Request")]
    pub header: Vec<String>,
    /// Body
    #[arg(short, long, value_name = "TEXT", help_heading = "Request")]
    pub body: Option<String>,
    /// Body from a file
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub body_file: Option<PathBuf>,
    /// Content-Type of the body [default: application/json]
    #[arg(short = 'T', long, value_name = "TYPE", help_heading = "Request")]
    pub content_type: Option<String>,
    /// Basic authentication
    #[arg(short = 'a', long, value_name = "USER:PASS", help_heading = "Request")]
    pub auth: Option<String>,
    /// Statuses that count as success: 200-399, or one such as 404 [default: 200-299]
    #[arg(long, value_name = "RANGE", help_heading = "Request")]
    pub accept_status: Option<String>,

    /// Connect to ADDR:PORT for URLs with HOST:PORT (an empty HOST or PORT matches any); repeatable
    #[arg(long, value_name = "HOST:PORT:ADDR:PORT", help_heading = "Connection")]
    pub connect_to: Vec<String>,
    /// Connect to this unix socket, whatever the host in the URL
    #[arg(long, value_name = "PATH", help_heading = "Connection")]
    pub unix_socket: Option<PathBuf>,
    /// Local address to connect from
    #[arg(long, value_name = "ADDR", help_heading = "Connection")]
    pub source_ip: Option<String>,
    /// A new connection for each request
    #[arg(long, help_heading = "Connection")]
    pub disable_keepalive: bool,

    /// Longest time from a request's send to the end of its response; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub timeout: Option<String>,
    /// Longest time to open a connection; 0 = off [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub connect_timeout: Option<String>,
    /// Longest silence within a response; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub idle_timeout: Option<String>,
    /// Longest wait for the last answers of a phase; 0 = do not wait [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub drain_timeout: Option<String>,
    /// Longest time for the whole run, then everything in flight is cancelled; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub run_timeout: Option<String>,
    /// End the run when everything in flight is silent for so long; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub response_idle_timeout: Option<String>,

    /// One line on screen, and one rewritten snapshot file, each interval [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Output")]
    pub interval: Option<String>,
    /// Accepted without effect: percentiles are always printed
    #[arg(short = 'L', long, hide = true)]
    pub latency: bool,
}

/// Flags of `serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeFlags {
    /// Address and port; other hosts reach it only if you say so, as in 0.0.0.0:8080 [default:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Bytes of each response body [default: 100]
    #[arg(long, value_name = "SIZE")]
    pub body_bytes: Option<String>,
    /// Time between a request and its response [default: 0]
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
}

/// `compare` with everything that was typed for it.
#[derive(Clone, Debug)]
pub struct Compare {
    /// Its own flags.
    pub flags: CompareFlags,
    /// The flags of every command.
    pub common: Common,
}

/// Flags of `compare`.
#[derive(Args, Clone, Debug, Default)]
pub struct CompareFlags {
    /// Two or more; the first is the baseline.
    #[arg(value_name = "ARM", help = ARM_HELP)]
    pub arms: Vec<String>,
    /// Exit with 4 when this is true of a later arm, as in 'p99>+10%' (against the baseline) or
    /// 'p99>50ms'; repeatable
    #[arg(long, value_name = "EXPR")]
    pub fail_if: Vec<String>,
    /// Print a markdown table
    #[arg(long)]
    pub md: bool,
    /// Write the outcome of each --fail-if as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// No doc comment: rustdoc would take the brackets for links.
const ARM_HELP: &str = "[NAME=]ARM: a report directory, a result file, a glob, - for stdin, or \
                        several with commas between; two or more, the first is the baseline";

const COMPARE_HELP: &str = "\
Examples:
  loadgen-uring compare results/before results/after
  loadgen-uring compare old='results/*-old' new='results/*-new' --fail-if 'p99>+10%'
  loadgen-uring http://127.0.0.1:8080/ --json | loadgen-uring compare base.json -";

/// A flag that a later version has; typed today, it gets one clear sentence.
struct LaterFlag {
    short: Option<char>,
    long: &'static str,
    takes_value: bool,
    topic: &'static str,
}

/// clap's definition with the flags of later versions added, hidden.
fn definition() -> clap::Command {
    let mut definition = Typed::command().args_override_self(true);
    for name in ["serve", "compare", "doctor"] {
        definition = definition.mut_subcommand(name, |command| command.args_override_self(true));
    }
    for command in [LoadCommand::MaxThroughput, LoadCommand::Concurrency] {
        definition = definition.mut_subcommand(command.name(), |command| {
            let later = LATER_FLAGS.iter().map(|flag| {
                let arg = Arg::new(flag.long).long(flag.long).hide(true);
                let arg = flag.short.into_iter().fold(arg, |arg, short| arg.short(short));
                if flag.takes_value {
                    arg.action(ArgAction::Set)
                } else {
                    arg.action(ArgAction::SetTrue)
                }
            });
            command.args_override_self(true).args(later)
        });
    }
    // A value may begin with a hyphen: `-c -5` is then our error about -c, and `-b -x` a body.
    for name in ["max-throughput", "concurrency", "serve", "compare", "doctor"] {
        definition =
            definition.mut_subcommand(name, |command| command.mut_args(with_hyphen_values));
    }
    definition = definition.mut_args(with_hyphen_values);
    definition.build();
    definition
}

fn with_hyphen_values(arg: Arg) -> Arg {
    let takes_any = has_value(&arg) && !arg.is_positional();
    if takes_any { arg.allow_hyphen_values(true) } else { arg }
}

/// Moves the command to the front, or puts `max-throughput` there.
fn with_command_first(
    definition: &clap::Command,
    mut args: Vec<OsString>,
) -> Result<Vec<OsString>, Error> {
    let mut index = 0;
    let mut first = None;
    let mut asks_text = false;
    while index < args.len() {
        let arg = args[index].to_string_lossy();
        if arg == "--" {
            first = first.or((index + 1 < args.len()).then_some(index + 1));
            break;
        }
        if !arg.starts_with('-') || arg == "-" {
            first = first.or(Some(index));
            index += 1;
            continue;
        }
        let rate =
            if arg == "-q" { args.get(index + 1).map(|next| next.to_string_lossy()) } else { None };
        let rate = rate.as_deref().or(arg.strip_prefix("-q")).unwrap_or_default();
        if rate.trim_start_matches('=').starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::usage(format!(
                "-q got `{rate}`: here it is --quiet and takes no value; a fixed rate (-R) is not \
                in this version; {WORKS_NOW}"
            )));
        }
        asks_text |= ["-h", "--help", "-V", "--version"].contains(&&*arg);
        index += 1 + usize::from(takes_next(definition, &arg));
    }
    let Some(first) = first else {
        if !asks_text {
            args.insert(0, LoadCommand::MaxThroughput.name().into());
        }
        return Ok(args);
    };
    let word = args[first].to_string_lossy().into_owned();
    if word == "help" {
        // `help`, or `help COMMAND`, as other programs have it.
        args.remove(first);
        args.push("--help".into());
        return with_command_first(definition, args);
    }
    if definition.find_subcommand(&word).is_some() {
        let command = args.remove(first);
        args.insert(0, command);
    } else if word.contains([':', '/', '.']) {
        args.insert(0, LoadCommand::MaxThroughput.name().into());
    } else if let Some((name, topic)) = LATER_COMMANDS.iter().find(|(name, _)| *name == word) {
        return Err(not_in_this_version(name, topic));
    } else {
        return Err(Error::usage(format!(
            "unknown command `{word}`; allowed: max-throughput, concurrency, serve, compare, \
            doctor, or a URL such as \
             http://127.0.0.1:8080/"
        )));
    }
    Ok(args)
}

/// Whether the flag `arg` takes the next argument as its value, in any command.
fn takes_next(definition: &clap::Command, arg: &str) -> bool {
    if let Some(long) = arg.strip_prefix("--") {
        // `--flag=value` carries its value.
        return !long.contains('=')
            && known_flags(definition).any(|flag| has_long(flag, long) && has_value(flag));
    }
    // A cluster such as -qc: the first flag that takes a value takes the rest, or the next argument
    // if none is left.
    let cluster = arg[1..].char_indices();
    for (at, short) in cluster {
        if known_flags(definition).any(|flag| has_short(flag, short) && has_value(flag)) {
            return at + 1 + short.len_utf8() == arg.len();
        }
    }
    false
}

fn known_flags(definition: &clap::Command) -> impl Iterator<Item = &Arg> {
    definition
        .get_arguments()
        .chain(definition.get_subcommands().flat_map(clap::Command::get_arguments))
}

fn has_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

fn has_long(flag: &Arg, long: &str) -> bool {
    flag.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long))
        || flag.get_all_aliases().is_some_and(|names| names.contains(&long))
}

fn has_short(flag: &Arg, short: char) -> bool {
    flag.get_short() == Some(short)
        || flag.get_all_short_aliases().is_some_and(|names| names.contains(&short))
}

/// clap reports help and version as errors; the others become one line.
fn text_or_error(error: &clap::Error) -> Result<Parsed, Error> {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Ok(Parsed::Text(text));
    }
    let parts: Vec<&str> = text
        .lines()
        .map(|line| line.trim().trim_start_matches("error: ").trim_start_matches("tip: "))
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        // clap may propose a hidden flag, which does not work yet.
        .filter(|line| {
            !LATER_FLAGS.iter().any(|flag| line.ends_with(&format!("'--{}'", flag.long)))
        })
        .collect();
    Err(Error::usage(format!("{}; see --help", parts.join("; "))))
}

fn not_in_this_version(name: &str, topic: &str) -> Error {
    Error::usage(format!("{name}: {topic} not in this version; {WORKS_NOW}"))
}

/// For messages about what does not work yet.
pub const WORKS_NOW: &str =
    "what works now: max-throughput, concurrency, serve, compare and doctor, over http://";

const LATER_COMMANDS: [(&str, &str); 17] = [
    ("poisson", "open-loop load is"),
    ("constant", "open-loop load is"),
    ("gamma", "open-loop load is"),
    ("agentic", "conversations are"),
    ("replay", "trace replay is"),
    ("users", "user-centric load is"),
    ("run", "running a YAML file is"),
    ("search", "the search for the highest load is"),
    ("ab", "the comparison of two endpoints is"),
    ("probe", "the probe of an endpoint is"),
    ("init", "YAML templates are"),
    ("validate", "the check of a YAML file is"),
    ("schema", "the JSON Schema is"),
    ("report", "rendering a report again is"),
    ("verify", "the check of a report is"),
    ("merge", "merging a fleet's reports is"),
    ("translate", "translating other tools' commands is"),
];

const fn later(long: &'static str, takes_value: bool, topic: &'static str) -> LaterFlag {
    LaterFlag { short: None, long, takes_value, topic }
}

const OPEN_LOOP: &str = "open-loop load (a fixed rate, -R) is";
const TLS: &str = "TLS is";
const INFERENCE: &str = "inference load is";
const RECORDS: &str = "a record per request is";
const REPLAY: &str = "trace replay is";
const GATES: &str = "a gate on the result is";

const LATER_FLAGS: [LaterFlag; 57] = [
    LaterFlag { short: Some('R'), long: "rate", takes_value: true, topic: OPEN_LOOP },
    later("request-rate", true, OPEN_LOOP),
    later("target-qps", true, OPEN_LOOP),
    later("max-connections", true, OPEN_LOOP),
    later("overload", true, OPEN_LOOP),
    later("timer", true, OPEN_LOOP),
    later("timer-core", true, OPEN_LOOP),
    later("burstiness", true, OPEN_LOOP),
    later("jitter", true, OPEN_LOOP),
    later("ramp", true, OPEN_LOOP),
    later("ramp-from", true, OPEN_LOOP),
    later("ramp-time", true, OPEN_LOOP),
    later("rate-series", true, OPEN_LOOP),
    later("cacert", true, TLS),
    later("cert", true, TLS),
    later("key", true, TLS),
    later("sni", true, TLS),
    LaterFlag { short: Some('k'), long: "insecure", takes_value: false, topic: TLS },
    later("dataset", true, INFERENCE),
    later("model", true, INFERENCE),
    later("api", true, INFERENCE),
    later("api-key", true, INFERENCE),
    later("stream", false, INFERENCE),
    later("no-stream", false, INFERENCE),
    later("max-output-tokens", true, INFERENCE),
    later("isl", true, INFERENCE),
    later("osl", true, INFERENCE),
    later("tokenizer", true, INFERENCE),
    later("extra-body", true, INFERENCE),
    later("prompt-seed", true, INFERENCE),
    later("ttft-timeout", true, INFERENCE),
    later("no-preflight", false, INFERENCE),
    later("no-include-usage", false, INFERENCE),
    later("order", true, INFERENCE),
    later("order-seed", true, INFERENCE),
    later("goodput", true, INFERENCE),
    later("records", false, RECORDS),
    later("records-full", false, RECORDS),
    later("events", false, RECORDS),
    later("trace", true, REPLAY),
    later("trace-format", true, REPLAY),
    later("time-scale", true, REPLAY),
    later("slo", true, GATES),
    later("fail-if", true, GATES),
    later("precision", true, "a run as long as its precision needs is"),
    later("budget", true, "a run as long as its precision needs is"),
    later("repeats", true, "a repeated run is"),
    later("floor", false, "the floor run is"),
    later("wire-stamps", true, "kernel timestamping is"),
    // Names of wrk, oha, hey, ab and vegeta whose meaning we do not have.
    later("http2", false, "HTTP/2 is"),
    later("http3", false, "HTTP/3 is"),
    later("script", true, "a scripting language is"),
    later("proxy", true, "a proxy is"),
    later("redirect", true, "following redirects is"),
    later("burst-rate", true, OPEN_LOOP),
    later("latency-correction", false, OPEN_LOOP),
    later("qps", true, OPEN_LOOP),
];

const EXAMPLES: &str = "\
loadgen-uring max-throughput                         this host, embedded endpoint
loadgen-uring http://127.0.0.1:8080/                 how fast is that endpoint
loadgen-uring --cores 0-15 max-throughput http://10.0.0.2/      from 16 cores
loadgen-uring concurrency http://10.0.0.2/ -c 32 -d 30s  32 requests in flight
loadgen-uring doctor                     can this host run it; more with --help
";

const AFTER_HELP: &str = "\
Examples:
  loadgen-uring max-throughput    the embedded endpoint: the tool's own ceiling
  loadgen-uring http://127.0.0.1:8080/    a bare URL is max-throughput, 10 s
  loadgen-uring --cores 0-15 max-throughput http://10.0.0.2/
  loadgen-uring concurrency http://10.0.0.2/api -c 32 -n 100k --warmup 2s
  loadgen-uring http://10.0.0.2/ -b '{\"id\": 1}' -H 'X-Team: a' -d 30s
  loadgen-uring serve --listen 127.0.0.1:8080       an endpoint to try things on

`loadgen-uring COMMAND --help` lists the flags of a command; all of them work
before and after it.

Exit codes: 0 complete; 1 incomplete, or no request succeeded; 2 wrong usage;
3 host or endpoint could not be set up; 130 second Ctrl-C.";

/// No doc comment: rustdoc would take the brackets for links.
const URL_HELP: &str = "http://HOST[:PORT][/PATH]; several are sent to in turn; none: the \
                        embedded endpoint in this process";

const MAX_THROUGHPUT_HELP: &str = "\
Examples:
  loadgen-uring max-throughput http://127.0.0.1:8080/ -d 30s --warmup 2s
  loadgen-uring http://127.0.0.1:8080/a http://127.0.0.1:8080/b -c 256";

const CONCURRENCY_HELP: &str = "\
Examples:
  loadgen-uring concurrency http://127.0.0.1:8080/ -c 1 -n 10k
  loadgen-uring concurrency http://127.0.0.1:8080/ -c 64 --abort-if 'failed>1%'";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Parsed, Error> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn load(line: &str) -> Load {
        match parse_line(line) {
            Ok(Parsed::Load(load)) => *load,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn error(line: &str) -> String {
        match parse_line(line) {
            Err(error) => {
                assert_eq!(error.exit_code(), 2, "{line}");
                error.to_string()
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn no_flag_takes_a_value_in_one_command_and_none_in_another() {
        let definition = definition();
        let flags: Vec<&Arg> = known_flags(&definition).collect();
        for a in &flags {
            for b in &flags {
                let same_long = a.get_long().is_some_and(|long| has_long(b, long));
                let same_short = a.get_short().is_some_and(|short| has_short(b, short));
                if same_long || same_short {
                    assert_eq!(has_value(a), has_value(b), "{:?} {:?}", a.get_id(), b.get_id());
                }
            }
        }
    }

    #[test]
    fn global_flags_work_before_and_after_the_command() {
        for line in [
            "--cores 0-15 --engine epoll --spin -q max-throughput http://h/",
            "max-throughput --cores 0-15 --engine=epoll http://h/ --spin -q",
            "--cores 0-15 http://h/ --spin --engine epoll --quiet",
            "-q --spin --engine epoll --cores=0-15 http://h/",
        ] {
            let load = load(line);
            assert_eq!(load.command, LoadCommand::MaxThroughput, "{line}");
            assert_eq!(load.common.cores.as_deref(), Some("0-15"), "{line}");
            assert_eq!(load.common.engine.as_deref(), Some("epoll"), "{line}");
            assert!(load.common.spin, "{line}");
            assert!(load.common.quiet, "{line}");
            assert_eq!(load.flags.urls, ["http://h/"], "{line}");
        }
    }

    #[test]
    fn a_single_valued_flag_given_twice_takes_the_last_value() {
        let load = load(
            "--cores 0 --seed 1 max-throughput -c 1 --cores 1 -z 5s -c 2 --spin --spin -d 7s \
            --seed 2",
        );
        assert_eq!(load.common.cores.as_deref(), Some("1"));
        assert_eq!(load.common.seed.as_deref(), Some("2"));
        assert_eq!(load.flags.connections.as_deref(), Some("2"));
        assert_eq!(load.flags.duration.as_deref(), Some("7s"));
    }

    #[test]
    fn a_bare_url_is_found_behind_any_flag_with_a_value() {
        for line in [
            "http://h/",
            "-c 8 http://h/",
            "-c8 http://h/",
            "-qc 8 http://h/",
            "-Lc8 http://h/",
            "--connections 8 http://h/",
            "--concurrency 8 http://h/",
            "-d 5 http://h/ -c 8",
            "-X POST -b concurrency http://h/",
            "--body serve -H doctor:x http://h/",
            "--abort-if failed>1% http://h/",
            "--report-dir doctor --seed 7 http://h/",
            "-t 2 --ui none --interval 1 http://h/",
            "-c 8 -- http://h/",
        ] {
            let load = load(line);
            assert_eq!(load.command, LoadCommand::MaxThroughput, "{line}");
            assert_eq!(load.flags.urls, ["http://h/"], "{line}");
        }
        assert_eq!(load("-b concurrency http://h/").flags.body.as_deref(), Some("concurrency"));
        assert_eq!(load("-c 4 concurrency http://h/").command, LoadCommand::Concurrency);
        assert!(load("-c 4").flags.urls.is_empty());
    }

    #[test]
    fn every_flag_with_a_value_hides_its_value_from_the_search_for_a_url() {
        let definition = definition();
        for flag in known_flags(&definition).filter(|flag| has_value(flag) && !flag.is_positional())
        {
            let mut names: Vec<String> = Vec::new();
            names.extend(flag.get_long().map(|long| format!("--{long}")));
            names.extend(
                flag.get_all_aliases().into_iter().flatten().map(|long| format!("--{long}")),
            );
            names.extend(flag.get_short().map(|short| format!("-{short}")));
            names.extend(
                flag.get_all_short_aliases().into_iter().flatten().map(|short| format!("-{short}")),
            );
            for name in names {
                let args = ["doctor", "http://h/"].map(OsString::from);
                let args = [vec![OsString::from(&name)], args.to_vec()].concat();
                let sorted = with_command_first(&definition, args).expect("a URL follows");
                assert_eq!(sorted[0], "max-throughput", "{name}");
            }
        }
    }

    #[test]
    fn aliases_of_other_tools_mean_the_same_as_ours() {
        let load = load("http://h/ -z 3s -X PUT -L --concurrency 5 --num-prompts 9");
        assert_eq!(load.flags.duration.as_deref(), Some("3s"));
        assert_eq!(load.flags.method.as_deref(), Some("PUT"));
        assert_eq!(load.flags.connections.as_deref(), Some("5"));
        assert_eq!(load.flags.requests.as_deref(), Some("9"));
        assert_eq!(self::load("http://h/ --num-samples 8").flags.requests.as_deref(), Some("8"));
    }

    #[test]
    fn what_is_not_built_gets_one_sentence_that_names_what_is() {
        for line in [
            "poisson http://h/ -R 500",
            "run file.yaml",
            "-c 5 search poisson http://h/",
            "http://h/ -R 500",
            "-R 500 http://h/",
            "--rate=500 http://h/",
            "http://h/ --model tiny",
            "max-throughput http://h/ --request-rate 5",
            "concurrency -c 4 http://h/ --target-qps 5",
            "http://h/ --slo p99:5ms",
            "http://h/ -k",
            "http://h/ --cacert /nowhere",
        ] {
            let error = error(line);
            assert!(error.contains("not in this version"), "{line}: {error}");
            assert!(error.contains("what works now: max-throughput"), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn a_rate_after_q_is_an_error_and_never_a_url() {
        for line in [
            "-q 500 http://h/",
            "http://h/ -q 500",
            "-q500 http://h/",
            "max-throughput -q=0.5 http://h/",
        ] {
            let error = error(line);
            assert!(error.contains("--quiet") && error.contains("-R"), "{line}: {error}");
        }
        assert!(load("-q http://h/").common.quiet);
        assert!(load("http://h/ -q -c 500").common.quiet);
    }

    #[test]
    fn a_wrong_word_or_flag_is_one_line_that_says_what_is_allowed() {
        for (line, says) in [
            ("max-throughputt", "allowed: max-throughput"),
            ("localhost", "http://"),
            ("http://h/ --conections 5", "--connections"),
            ("http://h/ --foo", "'--foo'"),
            ("http://h/ -c", "--connections <N>"),
            ("http://h/ --cores", "--cores <LIST>"),
            ("serve -c 5", "-c"),
            ("doctor http://h/", "http://h/"),
        ] {
            let error = error(line);
            assert!(error.contains(says), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn text_is_for_stdout() {
        let text = |line: &str| match parse_line(line) {
            Ok(Parsed::Text(text)) => text,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(text("").lines().count(), 5);
        assert!(
            text("--version").starts_with(concat!("loadgen-uring ", env!("CARGO_PKG_VERSION")))
        );
        assert!(text("--help").contains("Examples:"));
        assert_eq!(text("help"), text("--help"));
        assert_eq!(text("help concurrency"), text("concurrency --help"));
        assert!(text("concurrency --help").contains("--connections"));
        assert!(text("http://h/ --help").contains("--accept-status"));
        assert!(!text("http://h/ --help").contains("--rate"), "later flags are hidden");
    }

    #[test]
    fn the_other_commands_take_their_flags() {
        match parse_line("--cores 1 serve --listen 127.0.0.1:9 --body-bytes 1k --delay 5ms") {
            Ok(Parsed::Serve(serve)) => {
                assert_eq!(serve.common.cores.as_deref(), Some("1"));
                assert_eq!(serve.flags.listen.as_deref(), Some("127.0.0.1:9"));
                assert_eq!(serve.flags.body_bytes.as_deref(), Some("1k"));
                assert_eq!(serve.flags.delay.as_deref(), Some("5ms"));
            }
            other => panic!("{other:?}"),
        }
        let line = "compare a b=c --fail-if p99>+10% --fail-if qps<-5% - --md --junit f.xml";
        match parse_line(line) {
            Ok(Parsed::Compare(compare)) => {
                assert_eq!(compare.flags.arms, ["a", "b=c", "-"]);
                assert_eq!(compare.flags.fail_if, ["p99>+10%", "qps<-5%"]);
                assert!(compare.flags.md && compare.flags.junit.is_some());
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(parse_line("--json doctor"), Ok(Parsed::Doctor(common)) if common.json));
    }
}
