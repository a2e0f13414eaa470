//! The one step before clap: the command is moved to the front, or put there when only a URL was
//! given, so that every flag works before and after it. Which flags take a value is asked from
//! clap's own definition.

use std::ffi::OsString;

use clap::Arg;

use super::{LoadCommand, later};
use crate::error::Error;

/// Moves the command to the front, or puts `max-throughput` there.
pub fn with_command_first(
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
                "-q got `{rate}`: here it is --quiet and takes no value; a rate is given with -R, \
                 as in poisson URL -R 500"
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
    } else if let Some(error) = later::command(&word) {
        return Err(error);
    } else {
        return Err(Error::usage(format!(
            "unknown command `{word}`; allowed: max-throughput, concurrency, poisson, constant, \
             gamma, ab, serve, probe, compare, doctor, or a URL such as http://127.0.0.1:8080/"
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

/// The flags of the program and of every command.
pub fn known_flags(definition: &clap::Command) -> impl Iterator<Item = &Arg> {
    definition
        .get_arguments()
        .chain(definition.get_subcommands().flat_map(clap::Command::get_arguments))
}

/// Whether the flag takes a value.
pub fn has_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

/// Whether `--long` is a name of the flag.
pub fn has_long(flag: &Arg, long: &str) -> bool {
    flag.get_long_and_visible_aliases().is_some_and(|names| names.contains(&long))
        || flag.get_all_aliases().is_some_and(|names| names.contains(&long))
}

/// Whether `-short` is a name of the flag.
pub fn has_short(flag: &Arg, short: char) -> bool {
    flag.get_short() == Some(short)
        || flag.get_all_short_aliases().is_some_and(|names| names.contains(&short))
}
