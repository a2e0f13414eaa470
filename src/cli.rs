//! Exactly what the user typed: commands and flags by clap, values still text. No system call, no
//! default filled in.
//!
//! Called by `main`; [`crate::config`] makes typed values of it. One step precedes clap:
//! [`argv::with_command_first`].

mod argv;
mod flags;
mod help;
mod inference;
mod later;
mod serve;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::error::Error;

pub use flags::{Common, CompareFlags, LoadFlags, ProbeFlags, ServeFlags};
pub use inference::{InferenceFlags, TlsFlags};
pub use later::WORKS_NOW;
pub use serve::ServeInferenceFlags;

/// What a command line asks for.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// One load.
    Load(Box<Load>),
    /// `ab`: the same load on each of two URLs.
    Ab(Box<Load>),
    /// `serve`.
    Serve(Box<Serve>),
    /// `probe`.
    Probe(Box<Probe>),
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
    /// A rate, with independent exponential gaps.
    Poisson,
    /// A rate, with equal gaps.
    Constant,
    /// A rate, with independent gamma gaps.
    Gamma,
}

impl LoadCommand {
    /// Each of them.
    pub const ALL: [LoadCommand; 5] = [
        LoadCommand::MaxThroughput,
        LoadCommand::Concurrency,
        LoadCommand::Poisson,
        LoadCommand::Constant,
        LoadCommand::Gamma,
    ];
    /// Those that send at a rate, whatever the endpoint does.
    pub const OPEN_LOOP: [LoadCommand; 3] =
        [LoadCommand::Poisson, LoadCommand::Constant, LoadCommand::Gamma];

    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            LoadCommand::MaxThroughput => "max-throughput",
            LoadCommand::Concurrency => "concurrency",
            LoadCommand::Poisson => "poisson",
            LoadCommand::Constant => "constant",
            LoadCommand::Gamma => "gamma",
        }
    }

    /// Whether requests follow a schedule.
    pub fn is_open_loop(self) -> bool {
        LoadCommand::OPEN_LOOP.contains(&self)
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

/// `probe` with everything that was typed for it.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Its own flags.
    pub flags: ProbeFlags,
    /// The flags of every command.
    pub common: Common,
}

/// `compare` with everything that was typed for it.
#[derive(Clone, Debug)]
pub struct Compare {
    /// Its own flags.
    pub flags: CompareFlags,
    /// The flags of every command.
    pub common: Common,
}

/// Parses the arguments after the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.is_empty() {
        return Ok(Parsed::Text(help::EXAMPLES.to_string()));
    }
    let definition = definition();
    let args = argv::with_command_first(&definition, args)?;
    let program = OsString::from(env!("CARGO_PKG_NAME"));
    let matches = match definition.try_get_matches_from(std::iter::once(program).chain(args)) {
        Ok(matches) => matches,
        Err(error) => return text_or_error(&error),
    };
    if let Some((_, matches)) = matches.subcommand() {
        later::refuse_flags(matches)?;
    }
    let typed = match Typed::from_arg_matches(&matches) {
        Ok(typed) => typed,
        Err(error) => return text_or_error(&error),
    };
    let common = typed.common;
    let (command, flags, is_ab) = match typed.command {
        Command::Serve(flags) => return Ok(Parsed::Serve(Box::new(Serve { flags, common }))),
        Command::Probe(flags) => return Ok(Parsed::Probe(Box::new(Probe { flags, common }))),
        Command::Compare(flags) => {
            return Ok(Parsed::Compare(Box::new(Compare { flags, common })));
        }
        Command::Doctor => return Ok(Parsed::Doctor(common)),
        Command::Ab(flags) => (arm_of(&flags)?, flags, true),
        Command::MaxThroughput(flags) => (LoadCommand::MaxThroughput, flags, false),
        Command::Concurrency(flags) => (LoadCommand::Concurrency, flags, false),
        Command::Poisson(flags) => (LoadCommand::Poisson, flags, false),
        Command::Constant(flags) => (LoadCommand::Constant, flags, false),
        Command::Gamma(flags) => (LoadCommand::Gamma, flags, false),
    };
    if let Some((typed, matches)) = matches.subcommand() {
        refuse_foreign_flags(typed, command, matches)?;
    }
    let load = Box::new(Load { command, flags, common });
    Ok(if is_ab { Parsed::Ab(load) } else { Parsed::Load(load) })
}

/// The load that `ab` puts on each of its two URLs.
fn arm_of(flags: &LoadFlags) -> Result<LoadCommand, Error> {
    if flags.urls.len() != 2 {
        return Err(Error::usage(format!(
            "ab got {} URLs; allowed: two, the one to compare with first",
            flags.urls.len()
        )));
    }
    Ok(if flags.rate.is_some() || flags.rate_series.is_some() {
        LoadCommand::Poisson
    } else if flags.connections.is_some() {
        LoadCommand::Concurrency
    } else {
        LoadCommand::MaxThroughput
    })
}

/// A flag of another load command is an error that says whose it is.
fn refuse_foreign_flags(
    typed: &str,
    command: LoadCommand,
    matches: &ArgMatches,
) -> Result<(), Error> {
    for (id, owners) in flags::OWN_FLAGS {
        let is_typed = matches.value_source(id) == Some(ValueSource::CommandLine);
        if is_typed && !owners.contains(&command) {
            let owners: Vec<&str> = owners.iter().map(|owner| owner.name()).collect();
            return Err(Error::usage(format!(
                "{} is a flag of {}; {typed} does not have it{}",
                flags::long(id),
                owners.join(", "),
                if id == "rate" { "; as in: poisson URL -R 500" } else { "" }
            )));
        }
    }
    Ok(())
}

#[derive(Debug, Parser)]
#[command(
    name = env!("CARGO_PKG_NAME"),
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    about = "Load generator for HTTP and inference endpoints: io_uring, one shard per core, honest \
             numbers",
    override_usage = "loadgen-uring [COMMAND] [URL]... [FLAGS]",
    after_help = help::AFTER_HELP
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
    #[command(after_help = help::MAX_THROUGHPUT)]
    MaxThroughput(LoadFlags),
    /// Keep -c requests in flight; the next starts when one ends
    #[command(after_help = help::CONCURRENCY)]
    Concurrency(LoadFlags),
    /// Send -R requests a second, whatever the endpoint does: arrivals of independent users
    #[command(after_help = help::POISSON)]
    Poisson(LoadFlags),
    /// Send -R requests a second in equal gaps, whatever the endpoint does
    #[command(after_help = help::CONSTANT)]
    Constant(LoadFlags),
    /// Send -R requests a second in bursts, or more evenly than poisson: --burstiness
    #[command(after_help = help::GAMMA)]
    Gamma(LoadFlags),
    /// Compare two endpoints under the same load: faster, slower, or cannot tell
    #[command(after_help = help::AB)]
    Ab(LoadFlags),
    /// Run the embedded endpoint alone, for another process or host to load
    Serve(ServeFlags),
    /// Ask an inference endpoint what it is: models, streaming, token counts, limits
    #[command(after_help = help::PROBE)]
    Probe(ProbeFlags),
    /// Runs that were measured before, side by side: what differs, by how much, is it chance
    #[command(after_help = help::COMPARE)]
    Compare(CompareFlags),
    /// Check whether this host can run us, and say what to type to fix it
    Doctor,
}

/// clap's definition with the flags of later versions added, hidden, and those of other load
/// commands hidden.
fn definition() -> clap::Command {
    let mut definition = Typed::command().args_override_self(true);
    for name in ["serve", "probe", "compare", "doctor"] {
        definition = definition.mut_subcommand(name, |command| command.args_override_self(true));
    }
    // Of the open loops, `ab` has poisson.
    let ab = ("ab", LoadCommand::Poisson);
    let loads = LoadCommand::ALL.map(|command| (command.name(), command));
    for (name, load) in loads.into_iter().chain([ab]) {
        definition = definition.mut_subcommand(name, |command| {
            let command = command.args_override_self(true).args(later::args());
            let foreign = flags::OWN_FLAGS.iter().filter(|(_, owners)| !owners.contains(&load));
            let connections = match (name, load) {
                ("ab", _) => help::CONNECTIONS_AB,
                (_, LoadCommand::MaxThroughput) => help::CONNECTIONS,
                (_, LoadCommand::Concurrency) => help::CONNECTIONS_REQUIRED,
                _ => help::CONNECTIONS_OPEN,
            };
            foreign
                .fold(command, |command, (id, _)| command.mut_arg(id, |arg| arg.hide(true)))
                .mut_arg("connections", |arg| arg.help(connections))
        });
    }
    definition = definition.mut_subcommand("ab", |command| {
        let command = command.mut_arg("urls", |arg| arg.help(help::URLS_AB));
        let command = command.mut_arg("duration", |arg| arg.help(help::DURATION_AB));
        command.mut_arg("repeats", |arg| arg.help(help::REPEATS_AB))
    });
    // A value may begin with a hyphen: `-c -5` is then our error about -c, and `-b -x` a body.
    let names: Vec<String> =
        definition.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        definition =
            definition.mut_subcommand(name, |command| command.mut_args(with_hyphen_values));
    }
    definition = definition.mut_args(with_hyphen_values);
    definition.build();
    definition
}

fn with_hyphen_values(arg: Arg) -> Arg {
    let takes_any = argv::has_value(&arg) && !arg.is_positional();
    if takes_any { arg.allow_hyphen_values(true) } else { arg }
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
        .filter(|line| !later::is_proposed_by(line))
        .collect();
    Err(Error::usage(format!("{}; see --help", parts.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::argv::{has_long, has_short, has_value, known_flags, with_command_first};
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
            "run file.yaml",
            "-c 5 search poisson http://h/",
            "http://h/ --events",
            "poisson http://h/ -R 5 --burst-rate 5",
            "poisson http://h/ -R 5 --trace x",
        ] {
            let error = error(line);
            assert!(error.contains("not in this version"), "{line}: {error}");
            assert!(error.contains("what works now: max-throughput"), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn a_flag_of_another_load_says_whose_it_is() {
        for (line, says) in [
            ("http://h/ -R 500", "--rate is a flag of poisson, constant, gamma; max-throughput"),
            ("-R 500 http://h/", "as in: poisson URL -R 500"),
            ("max-throughput http://h/ --request-rate 5", "--rate is a flag of poisson"),
            ("concurrency -c 4 http://h/ --target-qps 5", "concurrency does not have it"),
            ("http://h/ --timer inline", "--timer is a flag of poisson, constant, gamma"),
            ("http://h/ --timer-core 1", "--timer-core is"),
            ("http://h/ --max-connections 5", "--max-connections is"),
            ("http://h/ --overload drop", "--overload is"),
            ("http://h/ --rate-series x", "--rate-series is"),
            ("http://h/ --ramp linear", "--ramp is"),
            ("http://h/ --latency-correction", "--latency-correction is"),
            ("poisson http://h/ -R 5 --burstiness 2", "--burstiness is a flag of gamma; poisson"),
            ("constant http://h/ -R 5 --burstiness 2", "--burstiness is a flag of gamma"),
            ("gamma http://h/ -R 5 --jitter 5%", "--jitter is a flag of constant; gamma"),
            ("ab http://a/ http://b/ --overload drop", "; ab does not have it"),
        ] {
            let error = error(line);
            assert!(error.contains(says), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
        for line in ["serve -R 5", "doctor --timer inline"] {
            assert!(error(line).contains("unexpected argument"), "{line}");
        }
    }

    #[test]
    fn a_rate_is_read_by_any_of_its_names() {
        for line in [
            "poisson http://h/ -R 10k",
            "-R10k poisson http://h/",
            "--rate=10k poisson http://h/",
            "poisson --request-rate 10k http://h/",
            "--target-qps 10k poisson http://h/ --latency-correction",
            "poisson http://h/ -R 5 --qps 10k",
        ] {
            let load = load(line);
            assert_eq!(load.command, LoadCommand::Poisson, "{line}");
            assert_eq!(load.flags.rate.as_deref(), Some("10k"), "{line}");
            assert_eq!(load.flags.urls, ["http://h/"], "{line}");
        }
        assert_eq!(load("-R 5 constant").command, LoadCommand::Constant);
        assert_eq!(load("gamma -R 5").command, LoadCommand::Gamma);
    }

    #[test]
    fn ab_is_one_load_on_two_urls() {
        let ab = |line: &str| match parse_line(line) {
            Ok(Parsed::Ab(load)) => *load,
            other => panic!("{line}: {other:?}"),
        };
        for (line, command) in [
            ("ab http://a/ http://b/", LoadCommand::MaxThroughput),
            ("ab http://a/ http://b/ -c 8", LoadCommand::Concurrency),
            ("-R 5 ab http://a/ http://b/", LoadCommand::Poisson),
            ("ab http://a/ http://b/ -R 5 -c 8 --overload drop", LoadCommand::Poisson),
            ("ab http://a/ http://b/ --rate-series x", LoadCommand::Poisson),
        ] {
            let load = ab(line);
            assert_eq!(load.command, command, "{line}");
            assert_eq!(load.flags.urls, ["http://a/", "http://b/"], "{line}");
        }
        for line in ["ab", "ab http://a/", "ab http://a/ http://b/ http://c/"] {
            assert!(error(line).contains("allowed: two"), "{line}");
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
        for (help, shown, hidden) in [
            (
                text("http://h/ --help"),
                "--slo",
                vec!["--rate", "--timer-core", "--jitter", "--trace"],
            ),
            (text("concurrency --help"), "--order", vec!["--rate", "--overload", "--burstiness"]),
            (text("poisson --help"), "--rate", vec!["--jitter", "--burstiness", "--events"]),
            (text("constant --help"), "--jitter", vec!["--burstiness"]),
            (text("gamma --help"), "--burstiness", vec!["--jitter"]),
            (text("ab --help"), "--rate", vec!["--jitter", "--burstiness"]),
            (text("serve --help"), "--listen", vec!["--rate", "--slo", "--timer-core"]),
        ] {
            assert!(help.contains(shown), "{shown}: {help}");
            for flag in hidden {
                assert!(!help.contains(flag), "flags of others are hidden, {flag}: {help}");
            }
        }
    }

    #[test]
    fn the_other_commands_take_their_flags() {
        match parse_line("--cores 1 serve --listen 127.0.0.1:9 --body-bytes 1k --delay 5ms") {
            Ok(Parsed::Serve(serve)) => {
                assert_eq!(serve.common.cores.as_deref(), Some("1"));
                assert_eq!(serve.flags.listen.as_deref(), Some("127.0.0.1:9"));
                assert_eq!(serve.flags.body_bytes.as_deref(), Some("1k"));
                assert_eq!(serve.flags.delay.as_deref(), Some("5ms"));
                assert_eq!(serve.flags.inference.given().count(), 0);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(parse_line("--json doctor"), Ok(Parsed::Doctor(common)) if common.json));
    }
}
