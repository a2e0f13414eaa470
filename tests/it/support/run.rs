//! Runs the built binary: arguments in; exit code, output and result files out. A run that hangs is
//! killed and fails its test, and a run that left a snapshot has its counts checked, whatever the
//! test is about.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

use super::temp::TempDir;
use super::{Engine, PATIENCE, sys};

/// The program under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_loadgen-uring");

/// A run that takes longer hangs. No test asks for more than a few seconds of load.
const DEADLINE: Duration = Duration::from_secs(40);

/// A run to come.
#[derive(Debug)]
pub struct Run {
    arguments: Vec<OsString>,
    folder: Arc<TempDir>,
    report_dir: Option<PathBuf>,
    program: PathBuf,
    shell_prefix: Option<String>,
    refused_errno: Option<i32>,
    user: Option<u32>,
}

impl Run {
    /// With files in a temporary folder, and no `--engine`.
    pub fn new() -> Run {
        let folder = Arc::new(TempDir::new());
        let report_dir = Some(folder.join("report"));
        Run {
            arguments: Vec::new(),
            folder,
            report_dir,
            program: BINARY.into(),
            shell_prefix: None,
            refused_errno: None,
            user: None,
        }
    }

    /// On one back end.
    pub fn on(engine: Engine) -> Run {
        Run::new().args(["--engine", engine.flag()])
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Run {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Adds words separated by blanks, as one would type them.
    pub fn words(self, words: &str) -> Run {
        self.args(words.split_whitespace())
    }

    /// Leaves `--report-dir` to the program (or to the test's own arguments).
    pub fn default_report_dir(mut self) -> Run {
        self.report_dir = None;
        self
    }

    /// Where the program starts and leaves its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs it in a shell after this command, for `ulimit`.
    pub fn after_shell(mut self, command: &str) -> Run {
        self.shell_prefix = Some(command.to_owned());
        self
    }

    /// Runs it with io_uring refused with this errno.
    pub fn refusing_io_uring(mut self, errno: i32) -> Run {
        self.refused_errno = Some(errno);
        self
    }

    /// Runs a copy of it as this user, who may not be able to reach the build folder.
    pub fn by_user(mut self, user: u32, program: &Path) -> Run {
        self.program = program.to_path_buf();
        self.user = Some(user);
        self
    }

    /// Starts it.
    pub fn start(self) -> Running {
        let mut command = match &self.shell_prefix {
            None => Command::new(&self.program),
            Some(prefix) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("{prefix}; exec \"$0\" \"$@\"")).arg(&self.program);
                shell
            }
        };
        command.args(&self.arguments);
        if let Some(report_dir) = &self.report_dir {
            command.arg("--report-dir").arg(report_dir);
        }
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        if let Some(errno) = self.refused_errno {
            sys::refuse_io_uring(&mut command, errno);
        }
        let begin = Instant::now();
        let mut child = command.spawn().expect("the program is built and may be executed");
        let stdout = Stream::of(child.stdout.take().expect("piped"));
        let stderr = Stream::of(child.stderr.take().expect("piped"));
        Running { child, stdout, stderr, begin, run: self }
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn finish(self) -> Outcome {
        self.start().finish()
    }
}

/// A run that goes on; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Stream,
    stderr: Stream,
    begin: Instant,
    run: Run,
}

impl Running {
    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) {
        sys::send_signal(&self.child, libc::SIGINT);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        sys::send_signal(&self.child, libc::SIGTERM);
    }

    /// Stops the whole process for a while, as a host that takes its cores away does.
    pub fn freeze(&self, time: Duration) {
        sys::send_signal(&self.child, libc::SIGSTOP);
        thread::sleep(time);
        sys::send_signal(&self.child, libc::SIGCONT);
    }

    /// Waits until the condition holds; not longer than the program runs.
    #[track_caller]
    pub fn await_that(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !condition() {
            let ended = self.child.try_wait().unwrap();
            // What it did just before its end still counts.
            let is_over = ended.is_some() && !condition() || begin.elapsed() > PATIENCE;
            assert!(!is_over, "in vain: {what}; ended: {ended:?}; it said:\n{}", self.output());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until stdout or stderr contains the text.
    #[track_caller]
    pub fn await_output(&mut self, text: &str) {
        let streams = [Arc::clone(&self.stdout.bytes), Arc::clone(&self.stderr.bytes)];
        let said = || streams.iter().any(|s| text_of(&s.lock().unwrap().0).contains(text));
        self.await_that(&format!("it says {text:?}"), said);
    }

    /// Stdout, then stderr, so far.
    pub fn output(&self) -> String {
        self.stdout.text() + &self.stderr.text()
    }

    /// The report directory.
    pub fn report_dir(&self) -> PathBuf {
        self.run.report_dir.clone().expect("the test did not turn it off")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(mut self) -> Outcome {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(self.begin.elapsed() < DEADLINE, "it hangs; it said:\n{}", self.output());
            thread::sleep(Duration::from_millis(2));
        };
        let elapsed = self.begin.elapsed();
        self.stdout.join();
        self.stderr.join();
        let firsts = [self.stdout.first_output(), self.stderr.first_output()];
        let outcome = Outcome {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            elapsed,
            first_output: firsts.into_iter().flatten().min().map(|at| at - self.begin),
            arguments: self.run.arguments.clone(),
            report_dir: self.run.report_dir.clone(),
            folder: Arc::clone(&self.run.folder),
        };
        outcome.check_always();
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already waited for in `finish`, or the test gave up: then nobody else would end it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a pipe brings, as it comes.
#[derive(Debug)]
struct Stream {
    bytes: Arc<Mutex<(Vec<u8>, Option<Instant>)>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn of(mut pipe: impl Read + Send + 'static) -> Stream {
        let bytes = Arc::new(Mutex::new((Vec::new(), None)));
        let filled = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut piece) {
                let mut bytes = filled.lock().unwrap();
                bytes.1.get_or_insert_with(Instant::now);
                bytes.0.extend_from_slice(&piece[..count]);
            }
        });
        Stream { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        text_of(&self.bytes.lock().unwrap().0)
    }

    fn first_output(&self) -> Option<Instant> {
        self.bytes.lock().unwrap().1
    }

    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run left behind.
#[derive(Debug)]
pub struct Outcome {
    status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// From the start of the process to its end.
    pub elapsed: Duration,
    /// From the start of the process to its first byte of output.
    pub first_output: Option<Duration>,
    arguments: Vec<OsString>,
    report_dir: Option<PathBuf>,
    folder: Arc<TempDir>,
}

impl Outcome {
    /// The exit code, for the few cases where two are right.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The exit code, which must be this one.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Outcome {
        assert_eq!(self.status.code(), Some(code), "exit code; {}", self.story());
        self
    }

    /// The folder in which it ran.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file of the report directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.report_dir.as_ref().expect("the test did not turn it off").join(name)
    }

    /// The text of a file of the report directory.
    #[track_caller]
    pub fn file(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; {}", path.display(), self.story()))
    }

    /// `result_summary.json` of the tracked phases together.
    #[track_caller]
    pub fn summary(&self) -> Value {
        parse(&self.file(SUMMARY))
    }

    /// `final_snapshot.json`.
    #[track_caller]
    pub fn snapshot(&self) -> Value {
        parse(&self.file(SNAPSHOT))
    }

    /// A counter of the final snapshot.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let counters = counters(&self.snapshot());
        *counters.get(name).unwrap_or_else(|| panic!("no counter {name} in {counters:?}"))
    }

    /// The start of a phase by its index, CLOCK_MONOTONIC ns.
    #[track_caller]
    pub fn phase_start_ns(&self, phase: usize) -> u64 {
        number(&self.snapshot()["phases"][phase]["start_ns"])
    }

    /// A distribution of `result_summary.json`.
    #[track_caller]
    pub fn figures(&self, name: &str) -> Figures {
        let value = self.summary()[name].take();
        assert!(value["avg"].is_number(), "no figures of {name}: {value}; {}", self.story());
        Figures(value)
    }

    /// Kinds and counts of the tracked failures.
    #[track_caller]
    pub fn failures(&self) -> BTreeMap<String, u64> {
        let summary = self.summary();
        let failures = summary["failures"].as_object().expect("failures{}");
        failures.iter().map(|(k, v)| (k.clone(), number(&v["count"]))).collect()
    }

    /// Statuses and counts of the tracked phases.
    #[track_caller]
    pub fn statuses(&self) -> BTreeMap<String, u64> {
        let summary = self.summary();
        let statuses = summary["status_codes"].as_object().expect("status_codes{}");
        statuses.iter().map(|(status, count)| (status.clone(), number(count))).collect()
    }

    /// Asserts that every tracked query succeeded and how many there were.
    #[track_caller]
    pub fn expect_successes(&self, count: u64) -> &Outcome {
        self.expect_code(0);
        assert_eq!(self.failures(), BTreeMap::new(), "{}", self.story());
        assert_eq!(self.counter("tracked_samples_issued"), count, "{}", self.story());
        assert_eq!(self.counter("tracked_samples_completed"), count, "{}", self.story());
        self
    }

    /// Asserts that every query failed in the same way, how many there were, and the exit code that
    /// goes with it.
    #[track_caller]
    pub fn expect_failures(&self, kind: &str, count: u64) -> &Outcome {
        self.expect_code(1);
        let expected = BTreeMap::from([(kind.to_owned(), count)]);
        assert_eq!(self.failures(), expected, "{}", self.story());
        assert_eq!(self.counter("tracked_samples_completed"), 0, "{}", self.story());
        assert_eq!(self.counter("tracked_samples_failed"), count, "{}", self.story());
        self
    }

    /// Asserts that stderr ends with a reason that contains the words, whatever their case.
    #[track_caller]
    pub fn expect_reason(&self, words: &[&str]) -> &Outcome {
        let last = self.stderr.lines().last().unwrap_or("").to_lowercase();
        for word in words {
            let word = word.to_lowercase();
            assert!(last.contains(&word), "the reason does not say {word:?}; {}", self.story());
        }
        self
    }

    /// Everything one needs to understand a failed assertion.
    pub fn story(&self) -> String {
        let Outcome { status, stdout, stderr, elapsed, arguments, .. } = self;
        format!(
            "{arguments:?} ended with {status} after {elapsed:?}\n\
             --- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }

    /// What holds for every run: no crash, a reason for each non-zero exit, and counts that add up.
    #[track_caller]
    fn check_always(&self) {
        assert_eq!(self.status.signal(), None, "killed by a signal; {}", self.story());
        assert!(!self.stderr.contains("panicked"), "{}", self.story());
        if self.status.code() != Some(0) {
            let last = self.stderr.lines().last().unwrap_or("");
            assert!(!last.trim().is_empty(), "no reason on stderr; {}", self.story());
        }
        if self.report_dir.as_ref().is_some_and(|folder| folder.join(SNAPSHOT).exists()) {
            self.check_conservation();
        }
    }

    /// The identities of the counts, and that both files tell the same.
    #[track_caller]
    fn check_conservation(&self) {
        let story = self.story();
        let counters = counters(&self.snapshot());
        let get = |name: &str| {
            *counters.get(name).unwrap_or_else(|| panic!("no counter {name}; {story}"))
        };
        let ended = get("total_samples_completed")
            + get("total_samples_failed")
            + get("samples_cancelled")
            + get("samples_in_flight_at_end");
        assert_eq!(get("total_samples_issued"), ended, "issued = ended + in flight; {story}");
        if let Some(scheduled) = counters.get("samples_scheduled") {
            let begun = get("total_samples_issued");
            let not_begun = get("samples_dropped") + get("samples_untaken");
            assert_eq!(*scheduled, begun + not_begun, "scheduled = begun + not begun; {story}");
        }
        for what in ["issued", "completed", "failed"] {
            let tracked = get(&format!("tracked_samples_{what}"));
            assert!(tracked <= get(&format!("total_samples_{what}")), "{what}; {story}");
            let summary = self.summary();
            assert_eq!(number(&summary[format!("n_samples_{what}")]), tracked, "{what}; {story}");
        }
        assert_eq!(get("retries"), get("connections_reused_stale"), "one for each; {story}");
        let failed: u64 = self.failures().values().sum();
        assert_eq!(failed, get("tracked_samples_failed"), "each failure has its kind; {story}");
        let answered: u64 = self.statuses().values().sum();
        assert!(answered >= get("tracked_samples_completed"), "each success has a status; {story}");
        let summary = self.summary();
        for (name, value) in &counters {
            assert_eq!(number(&summary["counters"][name]), *value, "{name} in both files; {story}");
        }
    }
}

/// A distribution of a result file, ns.
#[derive(Debug)]
pub struct Figures(Value);

impl Figures {
    /// One of its plain figures: `min`, `max`, `avg`, `total`.
    #[track_caller]
    pub fn get(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    /// A percentile by its key, such as `99.0`.
    #[track_caller]
    pub fn percentile(&self, key: &str) -> f64 {
        let value = &self.0["percentiles"][key];
        value.as_f64().unwrap_or_else(|| panic!("no percentile {key} in {}", self.0))
    }
}

/// Where the measured facts are.
pub const SNAPSHOT: &str = "metrics/final_snapshot.json";
/// Where the derived figures are.
pub const SUMMARY: &str = "performance/result_summary.json";

/// The counters of a snapshot.
#[track_caller]
pub fn counters(snapshot: &Value) -> BTreeMap<String, u64> {
    let metrics = snapshot["metrics"].as_array().expect("metrics[]");
    let counters = metrics.iter().filter(|metric| metric["type"] == "counter");
    counters.map(|m| (m["name"].as_str().unwrap().to_owned(), number(&m["value"]))).collect()
}

/// A count in a result file.
#[track_caller]
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a count"))
}

/// One JSON document and nothing after it.
#[track_caller]
pub fn parse(text: &str) -> Value {
    serde_json::from_str(text)
        .unwrap_or_else(|error| panic!("not one JSON document: {error}: {text}"))
}

/// The harness itself, on a shell that ends before the program would start.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::server::Server;

    /// A shell that writes both result files with these counts, and ends.
    fn files_with(issued: u64, completed: u64, retries: u64) -> Run {
        files_of_schedule(issued, issued, completed, retries)
    }

    /// The same, of an open loop that drops and leaves nothing.
    fn files_of_schedule(scheduled: u64, issued: u64, completed: u64, retries: u64) -> Run {
        let counter = |name: &str, value: u64| {
            format!(r#"{{"type":"counter","name":"{name}","value":{value}}}"#)
        };
        let rows = [
            ("samples_scheduled", scheduled),
            ("samples_dropped", 0),
            ("samples_untaken", 0),
            ("total_samples_issued", issued),
            ("total_samples_completed", completed),
            ("total_samples_failed", 0),
            ("tracked_samples_issued", issued),
            ("tracked_samples_completed", completed),
            ("tracked_samples_failed", 0),
            ("samples_cancelled", 0),
            ("samples_in_flight_at_end", 0),
            ("connections_reused_stale", 0),
            ("retries", retries),
        ];
        let metrics: Vec<String> = rows.iter().map(|(name, value)| counter(name, *value)).collect();
        let counters: Vec<String> =
            rows.iter().map(|(n, value)| format!("\"{n}\":{value}")).collect();
        let snapshot = format!(r#"{{"metrics":[{}]}}"#, metrics.join(","));
        let summary = format!(
            r#"{{"n_samples_issued":{issued},"n_samples_completed":{completed},"n_samples_failed":0,
               "failures":{{}},"status_codes":{{"200":{completed}}},"counters":{{{}}}}}"#,
            counters.join(",")
        );
        Run::new().after_shell(&format!(
            "mkdir -p report/metrics report/performance; echo '{snapshot}' >report/{SNAPSHOT}; \
             echo '{summary}' >report/{SUMMARY}; exit 0"
        ))
    }

    #[test]
    fn output_and_code_are_those_of_the_process() {
        let outcome = Run::new().after_shell("printf out; echo because >&2; exit 3").finish();
        outcome.expect_code(3).expect_reason(&["BECAUSE"]);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out", "because\n"));
        // Stamped by the thread that reads, which may be later than the exit it belongs to.
        assert!(outcome.first_output.unwrap() <= outcome.elapsed + READER_LAG);
    }

    /// How much later than the exit a busy machine may let the reading thread run.
    const READER_LAG: Duration = Duration::from_secs(1);

    #[test]
    fn an_interrupt_reaches_the_process_and_its_output_can_be_awaited() {
        let wait = "trap 'echo stopping >&2; exit 1' INT; echo ready; while :; do sleep 0.05; done";
        let mut running = Run::new().after_shell(wait).start();
        running.await_output("ready");
        running.interrupt();
        let outcome = running.finish();
        outcome.expect_code(1).expect_reason(&["stopping"]);
    }

    #[test]
    fn counts_that_add_up_are_believed() {
        let outcome = files_with(7, 7, 0).finish();
        outcome.expect_successes(7);
        assert_eq!(outcome.counter("total_samples_issued"), 7);
    }

    #[test]
    #[should_panic(expected = "issued = ended + in flight")]
    fn a_lost_query_is_noticed_in_any_run() {
        files_with(7, 6, 0).finish();
    }

    #[test]
    #[should_panic(expected = "scheduled = begun + not begun")]
    fn a_lost_entry_of_the_schedule_is_noticed_in_any_run() {
        files_of_schedule(8, 7, 7, 0).finish();
    }

    #[test]
    #[should_panic(expected = "one for each")]
    fn a_retry_without_a_dead_connection_is_noticed_in_any_run() {
        files_with(7, 7, 1).finish();
    }

    #[test]
    #[should_panic(expected = "no reason on stderr")]
    fn a_silent_failure_is_noticed_in_any_run() {
        Run::new().after_shell("exit 1").finish();
    }

    #[test]
    #[should_panic(expected = "killed by a signal")]
    fn a_crash_is_noticed_in_any_run() {
        Run::new().after_shell("kill -SEGV $$").finish();
    }

    /// A program that sends nothing does not pass for one that did.
    #[test]
    fn a_server_that_nobody_asks_has_seen_nothing() {
        let server = Server::start();
        Run::new().after_shell("exit 0").finish();
        assert_eq!((server.requests_total(), server.accepted()), (0, 0));
    }
}
