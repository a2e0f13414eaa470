//! The report directory: made once, every file written whole or not at all.
//!
//! A file goes to a temporary name, is synced, and is renamed: a reader sees the old text or the
//! new one, never half of one, also after a crash. A directory that cannot be written costs one
//! notice and no run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use loadgen_shards::phase::PhaseKind;

use crate::snapshot::{LATENCY, TPOT, TTFT};

/// Measured facts.
pub const FINAL_SNAPSHOT: &str = "metrics/final_snapshot.json";
/// Derived figures of the tracked phases together.
pub const RESULT_SUMMARY: &str = "performance/result_summary.json";
/// The report for people.
pub const REPORT: &str = "report.txt";
/// The resolved configuration.
pub const CONFIG: &str = "config.yaml";
/// One line for each query, if records are kept.
pub const REQUESTS: &str = "requests.jsonl";
/// How many names are tried when a default one is taken.
const NAMES_LIMIT: u32 = 100;

/// Derived figures of one phase.
pub fn phase_summary(phase: &str) -> PathBuf {
    Path::new("phases").join(phase).join("result_summary.json")
}

/// One line of JSON for each interval of one phase.
pub fn phase_intervals(phase: &str) -> PathBuf {
    Path::new("phases").join(phase).join("intervals.jsonl")
}

/// The histogram of a series in each interval of one phase.
pub fn phase_hlog(phase: &str, series: &str) -> PathBuf {
    Path::new("phases").join(phase).join(format!("{series}.hlog"))
}

/// The percentile spectrum of a series of one phase.
pub fn phase_hgrm(phase: &str, series: &str) -> PathBuf {
    Path::new("phases").join(phase).join(format!("{series}.hgrm"))
}

/// A directory that was writable when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportDir {
    root: PathBuf,
}

impl ReportDir {
    /// The directory that the user named: made if absent. What an earlier run left there goes, so
    /// that never two runs are taken for one. `Err` is the one notice.
    pub fn named(path: &Path) -> Result<ReportDir, String> {
        fs::create_dir_all(path)
            .and_then(|()| probe(path))
            .and_then(|()| remove_earlier(path))
            .and_then(|()| remove_earlier_parts(path))
            .map_err(|error| notice(path, &error))?;
        Ok(ReportDir { root: path.to_owned() })
    }

    /// A directory of its own for this run: `path`, or `path-2`, ... when runs began in the same
    /// second. The link `latest` beside it then points to it. `Err` is the one notice.
    pub fn fresh(path: &Path) -> Result<ReportDir, String> {
        let root = create_numbered(path).map_err(|error| notice(path, &error))?;
        probe(&root).map_err(|error| notice(&root, &error))?;
        // A convenience only: a file system without links is no reason to complain.
        let _ = link_latest(&root);
        Ok(ReportDir { root })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Writes a file of the directory atomically, with the folders it needs.
    pub fn write(&self, name: impl AsRef<Path>, text: &str) -> io::Result<()> {
        let target = self.root.join(name);
        let folder = target.parent().expect("a file of the directory has a folder");
        fs::create_dir_all(folder)?;
        let mut temporary = target.clone().into_os_string();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, &target)?;
        // The rename itself lasts only once its folder is on disk.
        File::open(folder)?.sync_all()
    }
}

fn notice(path: &Path, error: &io::Error) -> String {
    format!("cannot write to {}: {error}; no files will be kept", path.display())
}

fn create_numbered(path: &Path) -> io::Result<PathBuf> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut root = path.to_owned();
    for number in 2..=NAMES_LIMIT {
        match fs::create_dir(&root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut name = path.as_os_str().to_owned();
                name.push(format!("-{number}"));
                root = PathBuf::from(name);
            }
            result => return result.map(|()| root),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// An existing directory can still refuse files: read-only mount, foreign owner, no space.
fn probe(root: &Path) -> io::Result<()> {
    let path = root.join(".probe.tmp");
    File::create(&path)?;
    fs::remove_file(path)
}

/// Removes our files, and nothing else that may be there.
fn remove_earlier(root: &Path) -> io::Result<()> {
    let of_series = |phase: &'static str| {
        let series = [LATENCY, TTFT, TPOT].into_iter();
        series.flat_map(move |name| [phase_hlog(phase, name), phase_hgrm(phase, name)])
    };
    let of_phase = |phase| [phase_summary(phase), phase_intervals(phase)].into_iter();
    let phases = [PhaseKind::Warmup, PhaseKind::Performance].map(PhaseKind::name).into_iter();
    let phases = phases.flat_map(|phase| of_phase(phase).chain(of_series(phase)));
    let others = [CONFIG, FINAL_SNAPSHOT, RESULT_SUMMARY, REPORT].map(PathBuf::from);
    for name in others.into_iter().chain(phases) {
        match fs::remove_file(root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The same in the folders of runs that were parts of an earlier one.
fn remove_earlier_parts(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name().to_str().is_some_and(is_part) {
            remove_earlier(&entry.path())?;
            remove_empty(&entry.path());
        }
    }
    Ok(())
}

/// Whether a folder has the name of a part: `run-07`, `a-07` or `b-07`.
fn is_part(name: &str) -> bool {
    let Some((kind, number)) = name.split_once('-') else { return false };
    PARTS.contains(&kind) && number.len() >= 2 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Folders that hold nothing. What cannot be removed stays.
fn remove_empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

/// The folder of one run of several, from 1.
pub fn part(kind: &str, number: usize) -> String {
    debug_assert!(PARTS.contains(&kind), "what is written has to be found again");
    format!("{kind}-{number:02}")
}

/// Kinds of runs that are parts of a whole: repeats, and the two sides of `ab`.
const PARTS: [&str; 3] = ["run", "a", "b"];

/// Replaces the link in one step. What is no link of that name stays.
fn link_latest(root: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else {
        return Ok(());
    };
    let link = parent.join("latest");
    if link.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
        return Ok(());
    }
    let temporary = parent.join(format!(".latest.{}.tmp", std::process::id()));
    std::os::unix::fs::symlink(name, &temporary)?;
    fs::rename(temporary, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("loadgen-uring-files-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("the temporary directory is writable");
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_no_temporary_stays() {
        let scratch = Scratch::new("whole");
        let dir = ReportDir::named(&scratch.0.join("deep/er")).expect("writable");
        dir.write(FINAL_SNAPSHOT, "first, the longer text").expect("writable");
        dir.write(FINAL_SNAPSHOT, "second").expect("writable");
        let folder = dir.path().join("metrics");
        let text = fs::read_to_string(folder.join("final_snapshot.json")).expect("written");
        assert_eq!(text, "second");
        assert_eq!(fs::read_dir(folder).expect("a folder").count(), 1);
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn an_earlier_run_leaves_nothing_in_a_directory_that_is_named_again() {
        let scratch = Scratch::new("again");
        fs::write(scratch.0.join("notes.txt"), "the user's").expect("writable");
        let warmup = phase_summary("warmup");
        let first = ReportDir::named(&scratch.0).expect("writable");
        let (hlog, hgrm) = (phase_hlog("performance", LATENCY), phase_hgrm("warmup", TPOT));
        let names = [warmup.as_path(), &hlog, &hgrm, Path::new(RESULT_SUMMARY), Path::new(CONFIG)];
        for name in names {
            first.write(name, "earlier").expect("writable");
        }
        ReportDir::named(&scratch.0).expect("writable");
        for name in names {
            assert!(!scratch.0.join(name).exists(), "{name:?}");
        }
        assert!(scratch.0.join("notes.txt").exists());
    }

    #[test]
    fn an_earlier_series_leaves_no_run_behind_and_nothing_else_is_touched() {
        let scratch = Scratch::new("series");
        for folder in [part("run", 1), part("run", 12), part("b", 3)] {
            let run = ReportDir::named(&scratch.0.join(folder)).expect("writable");
            run.write(RESULT_SUMMARY, "earlier").expect("writable");
        }
        fs::write(scratch.0.join("run-12/notes.txt"), "the user's").expect("writable");
        for folder in ["run-x", "data-01"] {
            ReportDir::named(&scratch.0.join(folder)).expect("writable");
        }
        ReportDir::named(&scratch.0).expect("writable");
        let mut left: Vec<_> = fs::read_dir(&scratch.0)
            .expect("a folder")
            .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
            .collect();
        left.sort();
        assert_eq!(left, ["data-01", "run-12", "run-x"]);
        assert!(!scratch.0.join("run-12").join(RESULT_SUMMARY).exists());
        assert!(scratch.0.join("run-12/notes.txt").exists());
    }

    #[test]
    fn runs_of_one_second_get_a_directory_each_and_latest_is_the_newest() {
        let scratch = Scratch::new("latest");
        let path = scratch.0.join("results/then-concurrency");
        let first = ReportDir::fresh(&path).expect("writable");
        let second = ReportDir::fresh(&path).expect("writable");
        assert_eq!(first.path(), path);
        assert_eq!(second.path(), scratch.0.join("results/then-concurrency-2"));
        let link = fs::read_link(scratch.0.join("results/latest")).expect("a link");
        assert_eq!(link, Path::new("then-concurrency-2"));
    }

    #[test]
    fn something_else_named_latest_is_left_alone() {
        let scratch = Scratch::new("foreign");
        fs::create_dir(scratch.0.join("latest")).expect("writable");
        ReportDir::fresh(&scratch.0.join("run")).expect("writable");
        assert!(scratch.0.join("latest").symlink_metadata().expect("kept").is_dir());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_one_notice() {
        let scratch = Scratch::new("refused");
        let file = scratch.0.join("file");
        fs::write(&file, "").expect("writable");
        // A file where a directory should be refuses root too, which a mode would not.
        for result in [ReportDir::named(&file.join("run")), ReportDir::fresh(&file.join("run"))] {
            let notice = result.expect_err("not a directory");
            assert!(notice.starts_with("cannot write to "), "{notice}");
            assert!(notice.ends_with("; no files will be kept"), "{notice}");
        }
    }
}
