//! What is compared: arms, each with the runs that its files hold.
//!
//! An arm is typed as `[NAME=]PART[,PART]...`. A part is a report directory, a result file, a glob
//! or `-`, standard input. Text that is the path of something is that path, whatever characters it
//! has. A run counts once in its arm, however often it is named: `results/*` meets the newest
//! run a second time as `results/latest`. The directory of a load with `--repeats` stands for its
//! runs.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use glob::MatchOptions;
use serde_json::{Deserializer, Value};

use super::run::Run;
use crate::error::{Error, shown};
use crate::files;
use crate::report::printable;

/// One side of the comparison.
#[derive(Clone, Debug)]
pub struct Arm {
    /// NAME, or what was typed.
    pub name: String,
    /// The name in tables: the name itself, or a letter where names are long or alike.
    pub label: String,
    /// At least one.
    pub runs: Vec<Run>,
    /// How often a run was named again.
    pub repetitions: usize,
}

/// Reads all arms as they were typed.
pub fn load(typed: &[String]) -> Result<Vec<Arm>, Error> {
    if typed.len() < 2 {
        return Err(Error::usage(format!(
            "compare got {}; allowed: at least two, the first is the baseline; an arm is {FORM}",
            match typed {
                [] => "no arm".to_owned(),
                [arm, ..] => format!("only the arm `{}`", shown(arm)),
            }
        )));
    }
    let mut stdin = Stdin { is_read: false };
    let mut arms =
        typed.iter().map(|text| load_arm(text, &mut stdin)).collect::<Result<Vec<_>, _>>()?;
    label(&mut arms);
    Ok(arms)
}

/// Standard input can be read once.
struct Stdin {
    is_read: bool,
}

fn load_arm(typed: &str, stdin: &mut Stdin) -> Result<Arm, Error> {
    let refused = |why: &str| {
        Error::usage(format!("compare got the arm `{}`: {why}; allowed: {FORM}", shown(typed)))
    };
    let (name, text) = split_name(typed);
    let mut arm =
        Arm { name: printable(name), label: String::new(), runs: Vec::new(), repetitions: 0 };
    let mut seen = HashSet::new();
    for part in parts(text) {
        if part == "-" {
            let runs = stdin.read().map_err(|why| refused(&format!("standard input {why}")))?;
            arm.runs.extend(runs);
            continue;
        }
        let paths = paths(part).map_err(|why| refused(&why))?;
        for path in paths.into_iter().flat_map(|path| repeated(&path).unwrap_or(vec![path])) {
            let files = RunFiles::of(&path).map_err(|why| refused(&why))?;
            // Where the system cannot say what a path stands for, the path stands for itself.
            if !seen.insert(fs::canonicalize(&files.result).unwrap_or(files.result.clone())) {
                arm.repetitions += 1;
                continue;
            }
            let runs = files.read().map_err(|why| refused(&format!("{} {why}", files.source)))?;
            arm.runs.extend(runs);
        }
    }
    Ok(arm)
}

/// Splits `NAME=ARM`. The path of something that exists has no name in it.
fn split_name(typed: &str) -> (&str, &str) {
    match typed.split_once('=') {
        Some((name, arm))
            if !name.is_empty()
                && !name.contains(['/', ',', '*'])
                && !Path::new(typed).exists() =>
        {
            (name, arm)
        }
        _ => (typed, typed),
    }
}

/// The parts of a comma list.
fn parts(text: &str) -> Vec<&str> {
    if Path::new(text).exists() { vec![text] } else { text.split(',').collect() }
}

/// The paths that one part stands for, in the order of their names.
fn paths(part: &str) -> Result<Vec<PathBuf>, String> {
    if part.is_empty() {
        return Err("a part of it is empty".to_owned());
    }
    if Path::new(part).exists() {
        return Ok(vec![part.into()]);
    }
    if !part.contains(['*', '?', '[']) {
        return Err(format!("there is no {}", shown(part)));
    }
    // As in a shell: no hidden file unless the pattern has the dot.
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
    let found = glob::glob_with(part, options)
        .map_err(|error| format!("`{}` is no glob: {error}", shown(part)))?;
    let paths: Vec<PathBuf> =
        found.collect::<Result<_, _>>().map_err(|error| printable(&error.to_string()))?;
    if paths.is_empty() { Err(format!("nothing matches {}", shown(part))) } else { Ok(paths) }
}

/// The directories of the runs that a load with `--repeats` has left in `path`; `None` for any
/// other path.
fn repeated(path: &Path) -> Option<Vec<PathBuf>> {
    let root = directory_of(path);
    let result: Value =
        serde_json::from_reader(File::open(root.join(files::RESULT_SUMMARY)).ok()?).ok()?;
    result["repeats"].as_u64()?;
    let folders = result["runs"].as_array()?.iter().map(|run| run["path"].as_str());
    // A name, and no way out of the directory.
    let is_name = |folder: &&str| Path::new(folder).file_name() == Some(folder.as_ref());
    let runs: Vec<PathBuf> = folders.flatten().filter(is_name).map(|run| root.join(run)).collect();
    (!runs.is_empty()).then_some(runs)
}

/// Named down to its result file, a report directory is known as well.
fn directory_of(path: &Path) -> &Path {
    if path.ends_with(files::RESULT_SUMMARY) {
        path.ancestors().nth(2).expect("two parts of the path were just seen")
    } else {
        path
    }
}

/// The files of a run, or of several in one file.
struct RunFiles {
    result: PathBuf,
    /// Only a report directory has one.
    snapshot: Option<PathBuf>,
    /// As the user knows it.
    source: String,
}

impl RunFiles {
    fn of(path: &Path) -> Result<RunFiles, String> {
        let source = printable(&path.display().to_string());
        let root = directory_of(path);
        if !path.is_dir() && root == path {
            return Ok(RunFiles { result: path.into(), snapshot: None, source });
        }
        let result = root.join(files::RESULT_SUMMARY);
        if result.exists() {
            return Ok(RunFiles {
                result,
                snapshot: Some(root.join(files::FINAL_SNAPSHOT)),
                source,
            });
        }
        let inside = path.read_dir().into_iter().flatten().filter_map(Result::ok);
        let holds_runs =
            inside.map(|entry| entry.path().join(files::RESULT_SUMMARY)).any(|p| p.exists());
        Err(if holds_runs {
            format!("{source} holds report directories, so type '{source}/*'")
        } else {
            format!("{source} has no {}", files::RESULT_SUMMARY)
        })
    }

    fn read(&self) -> Result<Vec<Run>, String> {
        let file = File::open(&self.result).map_err(|error| format!("cannot be read: {error}"))?;
        // A lost snapshot costs no more than the name of the host.
        let snapshot = self.snapshot.as_ref().and_then(|path| File::open(path).ok());
        let host = snapshot
            .and_then(|file| serde_json::from_reader::<_, Value>(io::BufReader::new(file)).ok())
            .map(|mut snapshot| snapshot["host"].take());
        read_runs(file, &self.source, &host.unwrap_or_default())
    }
}

impl Stdin {
    fn read(&mut self) -> Result<Vec<Run>, String> {
        if self.is_read {
            return Err("can be read only once".to_owned());
        }
        self.is_read = true;
        read_runs(io::stdin().lock(), "-", &Value::Null)
    }
}

/// The results in a file: one, or several behind each other.
fn read_runs(input: impl Read, source: &str, host: &Value) -> Result<Vec<Run>, String> {
    let mut text = String::new();
    let read = input.take(RESULT_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > RESULT_BYTES_MAX {
        return Err(format!("is no result, as it has more than {} MiB", RESULT_BYTES_MAX >> 20));
    }
    let values = Deserializer::from_str(&text).into_iter::<Value>();
    let values: Vec<Value> =
        values.collect::<Result<_, _>>().map_err(|error| format!("is no JSON: {error}"))?;
    if values.is_empty() {
        return Err("is empty".to_owned());
    }
    let is_one = values.len() == 1;
    let runs = values.into_iter().enumerate().map(|(index, value)| {
        let source = if is_one { source.to_owned() } else { format!("{source}#{}", index + 1) };
        Run::new(source, value, host.clone())
    });
    runs.collect()
}

/// Gives every arm a short label of its own.
fn label(arms: &mut [Arm]) {
    let names: HashSet<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let is_short = |name: &&str| name.chars().count() <= LABEL_CHARS_MAX;
    let are_labels = names.len() == arms.len() && names.iter().all(is_short);
    for (index, arm) in arms.iter_mut().enumerate() {
        arm.label = if are_labels { arm.name.clone() } else { letter(index) };
    }
}

/// `A` to `Z`, then `A2` and so on.
fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

/// What an arm may be, for messages.
const FORM: &str = "a report directory, a result file as --json prints it, a glob, `-` for \
                    standard input, or several of them with commas between; NAME= before it names \
                    it";
/// A name that is longer would widen the table beyond a screen.
const LABEL_CHARS_MAX: usize = 16;
/// A result has some 40 kB; a session of many phases, some MB.
const RESULT_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
pub mod tests {
    use super::super::run::tests::{run, summary};
    use super::*;

    /// An arm with these results.
    pub fn arm(name: &str, summaries: impl IntoIterator<Item = Value>) -> Arm {
        let runs = summaries.into_iter().enumerate();
        let runs =
            runs.map(|(index, value)| run(&format!("{name}/{}", index + 1), value)).collect();
        Arm { name: name.into(), label: name.into(), runs, repetitions: 0 }
    }

    #[test]
    fn a_name_stands_before_the_first_equals_sign() {
        for (typed, name, rest) in [
            ("new=results/b", "new", "results/b"),
            ("new=a=b", "new", "a=b"),
            ("results/rate=10k", "results/rate=10k", "results/rate=10k"),
            ("a,b=c", "a,b=c", "a,b=c"),
            ("=b", "=b", "=b"),
            ("plain", "plain", "plain"),
            ("-", "-", "-"),
        ] {
            assert_eq!(split_name(typed), (name, rest), "{typed}");
        }
    }

    #[test]
    fn labels_are_the_names_unless_one_is_long_or_two_are_alike() {
        let labels = |names: &[&str]| -> Vec<String> {
            let mut arms: Vec<Arm> = names.iter().map(|name| arm(name, [])).collect();
            label(&mut arms);
            arms.into_iter().map(|arm| arm.label).collect()
        };
        assert_eq!(labels(&["old", "new"]), ["old", "new"]);
        assert_eq!(labels(&["old", "old"]), ["A", "B"]);
        assert_eq!(labels(&["B", "results/2026-11-30T101502Z"]), ["A", "B"]);
        assert_eq!((letter(0), letter(25), letter(26)), ("A".into(), "Z".into(), "A2".into()));
    }

    #[test]
    fn several_results_in_one_file_are_several_runs() {
        let text = format!("{}\n{}", summary(1.0, 1.0, 1.0), summary(2.0, 1.0, 1.0));
        let runs = read_runs(text.as_bytes(), "x", &Value::Null).expect("two results");
        let sources: Vec<&str> = runs.iter().map(|run| run.source.as_str()).collect();
        assert_eq!(sources, ["x#1", "x#2"]);
        for (text, says) in
            [("", "is empty"), ("{", "is no JSON"), ("{} x", "is no JSON"), ("{}", "no result")]
        {
            let error = read_runs(text.as_bytes(), "x", &Value::Null).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let error = read_runs(&b"\xff"[..], "x", &Value::Null).expect_err("no text");
        assert!(error.contains("cannot be read"), "{error}");
    }
}
