//! The files that grow while a run goes on: of each phase, a line of JSON and a histogram for each
//! `--interval`.
//!
//! The recordings of the shards are sorted into slices of time from the start of their phase. A
//! recording is shorter than a slice but seldom ends with it, so a slice tells what it covers, and
//! its rates are over that.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use loadgen_shards::limits::INTERVAL_NS;
use loadgen_shards::recorder::Recording;
use loadgen_shards::sys::time::monotonic_ns;
use serde_json::{Value, json};

use crate::courtesy::make_way;
use crate::files;
use crate::hdr::IntervalLog;
use crate::snapshot::{
    Distribution, LATENCY, Snapshot, TPOT, TTFT, count_needed, headline, headline_ttft,
};

/// One slice of a phase, over all shards.
#[derive(Clone, Debug, Default)]
struct Slice {
    /// Earliest begin of its recordings, CLOCK_MONOTONIC ns.
    begin_ns: u64,
    /// Their latest end.
    end_ns: u64,
    /// The time that they cover, summed over shards, ns.
    covered_ns: u64,
    recordings: u64,
    scheduled: u64,
    issued: u64,
    dropped: u64,
    completed: u64,
    failed: u64,
    /// Sums of what was in flight, and waited, when each recording ended.
    in_flight_sum: u64,
    backlog_sum: u64,
    /// The headline.
    latency: Distribution,
    service: Distribution,
    lateness: Distribution,
    /// Completed answers of an inference endpoint, and their tokens as far as it told them.
    answers: u64,
    completion_tokens: u64,
    answers_counted: u64,
    chunks: u64,
    /// Streams only; the headline.
    ttft: Distribution,
    tpot: Distribution,
    chunk_delta: Distribution,
}

impl Slice {
    fn add(&mut self, recording: &Recording) {
        let is_first = self.recordings == 0;
        self.begin_ns =
            if is_first { recording.begin_ns } else { self.begin_ns.min(recording.begin_ns) };
        self.end_ns = self.end_ns.max(recording.end_ns);
        self.covered_ns += recording.end_ns.saturating_sub(recording.begin_ns);
        self.recordings += 1;
        self.scheduled += recording.counters.scheduled;
        self.issued += recording.counters.issued;
        self.dropped += recording.counters.dropped;
        self.completed += recording.counters.completed;
        self.failed += recording.counters.failed;
        self.in_flight_sum += recording.in_flight;
        self.backlog_sum += recording.backlog;
        self.latency.add(headline(recording));
        self.service.add(&recording.service);
        self.lateness.add(&recording.lateness);
        if recording.counters.answers == 0 {
            return;
        }
        self.answers += recording.counters.answers;
        self.answers_counted += recording.counters.answers_counted;
        self.completion_tokens += recording.counters.completion_tokens;
        self.chunks += recording.counters.chunks;
        self.ttft.add(headline_ttft(recording));
        self.tpot.add(&recording.answers.tpot);
        self.chunk_delta.add(&recording.answers.chunk_delta);
    }

    /// The slice as a line of JSON, without its end. Times are in ns, instants from `start_ns` on;
    /// what is in flight and waits is the mean over the slice.
    fn line(&self, start_ns: u64, shards: usize, is_open: bool) -> String {
        let seconds = self.covered_ns as f64 / 1e9 / shards as f64;
        let mean = |sum: u64| sum as f64 / self.recordings.max(1) as f64 * shards as f64;
        let of_schedule = |value: Value| if is_open { value } else { Value::Null };
        let of_answers = |value: Value| if self.answers > 0 { value } else { Value::Null };
        let per_s = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
        let tps = per_s(self.completion_tokens).filter(|_| self.answers_counted > 0);
        json!({
            "begin_ns": self.begin_ns.saturating_sub(start_ns),
            "end_ns": self.end_ns.saturating_sub(start_ns),
            "scheduled": of_schedule(self.scheduled.into()),
            "issued": self.issued,
            "dropped": of_schedule(self.dropped.into()),
            "completed": self.completed,
            "failed": self.failed,
            "qps": (seconds > 0.0).then(|| self.completed as f64 / seconds),
            "in_flight": mean(self.in_flight_sum),
            "backlog": of_schedule(mean(self.backlog_sum).into()),
            "latency": figures(&self.latency),
            "service": figures(&self.service),
            "lateness": of_schedule(figures(&self.lateness)),
            "ttft": of_answers(figures(&self.ttft)),
            "tpot": of_answers(figures(&self.tpot)),
            "chunk_delta": of_answers(figures(&self.chunk_delta)),
            "tps": of_answers(tps.into()),
            "chunks_per_s": of_answers(per_s(self.chunks).into()),
        })
        .to_string()
    }
}

/// Null without a value; a p99 of few values is null.
fn figures(distribution: &Distribution) -> Value {
    let p99 = distribution.percentile(99_000);
    json!({
        "p50": distribution.percentile(50_000),
        "p99": p99.filter(|_| distribution.count() >= count_needed(99_000)),
        "max": distribution.largest(),
    })
}

/// What is not written yet of one phase.
#[derive(Debug, Default)]
struct Pending {
    /// CLOCK_MONOTONIC ns; 0: not known.
    start_ns: u64,
    slices: BTreeMap<u64, Slice>,
    /// Slices below this index are written.
    written: u64,
}

impl Pending {
    fn add(&mut self, recording: &Recording, interval_ns: u64) {
        if self.start_ns == 0 {
            self.start_ns = recording.begin_ns;
        }
        let middle_ns = recording.begin_ns / 2 + recording.end_ns / 2;
        let index = middle_ns.saturating_sub(self.start_ns) / interval_ns;
        // One that control sees too late goes into the next slice: nothing is lost.
        self.slices.entry(index.max(self.written)).or_default().add(recording);
    }

    /// The slices to which nothing more comes, in order; all of them if `is_over`.
    fn take(&mut self, now_ns: u64, interval_ns: u64, is_over: bool) -> Vec<Slice> {
        let mut list = Vec::new();
        while let Some((index, _)) = self.slices.first_key_value() {
            let end_ns = self.start_ns + (index + 1) * interval_ns;
            if !is_over && now_ns < end_ns + LATE_NS {
                break;
            }
            self.written = index + 1;
            list.extend(self.slices.pop_first().map(|(_, slice)| slice));
        }
        list
    }
}

/// The files of one phase.
struct Writers {
    root: PathBuf,
    phase: String,
    lines: BufWriter<File>,
    /// By series; that of the latency always, the others from their first value on.
    logs: BTreeMap<&'static str, IntervalLog<BufWriter<File>>>,
    /// Start of the logs, CLOCK_MONOTONIC ns; the phase starts within the second after it.
    log_start_ns: u64,
    /// The same, Unix seconds.
    log_start_unix_s: u64,
}

impl Writers {
    fn create(root: &Path, phase: &str, start_ns: u64) -> io::Result<Writers> {
        let since_ns = monotonic_ns().saturating_sub(start_ns);
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let start_unix_ns = (now_ns as u64).saturating_sub(since_ns);
        let mut writers = Writers {
            lines: create(root, &files::phase_intervals(phase))?,
            root: root.to_owned(),
            phase: phase.to_owned(),
            logs: BTreeMap::new(),
            log_start_ns: start_ns.saturating_sub(start_unix_ns % 1_000_000_000),
            log_start_unix_s: start_unix_ns / 1_000_000_000,
        };
        writers.log(LATENCY)?;
        Ok(writers)
    }

    /// The log of a series, begun if it was not.
    fn log(&mut self, series: &'static str) -> io::Result<&mut IntervalLog<BufWriter<File>>> {
        Ok(match self.logs.entry(series) {
            Entry::Occupied(begun) => begun.into_mut(),
            Entry::Vacant(place) => {
                let file = create(&self.root, &files::phase_hlog(&self.phase, series))?;
                place.insert(IntervalLog::new(file, self.log_start_unix_s)?)
            }
        })
    }

    /// The slice in every log. Series of an inference endpoint have none without a value.
    fn push(&mut self, slice: &Slice) -> io::Result<()> {
        let since_ns = slice.begin_ns.saturating_sub(self.log_start_ns);
        let length_ns = slice.end_ns - slice.begin_ns;
        for (series, distribution) in
            [(LATENCY, &slice.latency), (TTFT, &slice.ttft), (TPOT, &slice.tpot)]
        {
            if series == LATENCY || !distribution.is_empty() {
                self.log(series)?.push(None, since_ns, length_ns, distribution)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()?;
        self.logs.values_mut().try_for_each(IntervalLog::flush)
    }
}

/// A file below `root`, with its folder.
fn create(root: &Path, name: &Path) -> io::Result<BufWriter<File>> {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a file of a phase has a folder"))?;
    File::create(path).map(BufWriter::new)
}

struct Phase {
    name: String,
    is_open: bool,
    pending: Pending,
    /// From its first slice on.
    writers: Option<Writers>,
}

/// The growing files of a run.
pub struct IntervalFiles {
    root: PathBuf,
    interval_ns: u64,
    shards: usize,
    phases: Vec<Phase>,
}

impl IntervalFiles {
    /// Below `root`, for these phases (name, and whether it has a schedule). Nothing is written
    /// yet.
    pub fn new(
        root: &Path,
        interval_ns: u64,
        shards: usize,
        phases: impl IntoIterator<Item = (String, bool)>,
    ) -> IntervalFiles {
        let phases = phases.into_iter().map(|(name, is_open)| Phase {
            name,
            is_open,
            pending: Pending::default(),
            writers: None,
        });
        IntervalFiles { root: root.to_owned(), interval_ns, shards, phases: phases.collect() }
    }

    /// Takes in one recording of one shard; none of a phase is ignored.
    pub fn add(&mut self, recording: &Recording) {
        if let Some(phase) = self.phases.get_mut(recording.phase as usize) {
            phase.pending.add(recording, self.interval_ns);
        }
    }

    /// Writes the slices to which nothing more comes.
    pub fn advance(&mut self, snapshot: &Snapshot, now_ns: u64) -> io::Result<()> {
        // The start that was planned, if it is known in time.
        for (phase, totals) in self.phases.iter_mut().zip(&snapshot.phases) {
            if phase.pending.start_ns == 0 {
                phase.pending.start_ns = totals.start_ns;
            }
        }
        self.write(now_ns, false)
    }

    /// Writes what is left.
    pub fn finish(mut self) -> io::Result<()> {
        self.write(0, true)
    }

    fn write(&mut self, now_ns: u64, is_over: bool) -> io::Result<()> {
        for phase in &mut self.phases {
            let slices = phase.pending.take(now_ns, self.interval_ns, is_over);
            let start_ns = phase.pending.start_ns;
            if slices.is_empty() {
                continue;
            }
            let writers = match &mut phase.writers {
                Some(writers) => writers,
                none => none.insert(Writers::create(&self.root, &phase.name, start_ns)?),
            };
            for slice in &slices {
                make_way();
                writeln!(writers.lines, "{}", slice.line(start_ns, self.shards, phase.is_open))?;
                writers.push(slice)?;
            }
            writers.flush()?;
        }
        Ok(())
    }
}

/// How long after its end a slice is waited for: the shards hand over every quarter of a second.
const LATE_NS: u64 = 2 * INTERVAL_NS;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A quarter of a second of one shard, with answers of 2 ms that took 3 ms from the schedule.
    fn recording(phase: u32, begin_ns: u64, completed: u64) -> Recording {
        let mut recording = Recording::default();
        recording.begin(phase, begin_ns);
        recording.end_ns = begin_ns + INTERVAL_NS;
        recording.counters.scheduled = completed + 1;
        recording.counters.issued = completed;
        recording.counters.completed = completed;
        recording.in_flight = 3;
        recording.backlog = 1;
        for _ in 0..completed {
            recording.service.record(2_000_000);
            recording.latency.record(3_000_000);
            recording.lateness.record(500);
        }
        recording
    }

    fn parsed(line: &str) -> Value {
        serde_json::from_str(line).expect("JSON")
    }

    #[test]
    fn a_line_tells_a_slice() {
        let mut slice = Slice::default();
        for shard in 0..2 {
            for index in 0..4 {
                slice.add(&recording(0, 5 * SECOND + index * INTERVAL_NS + shard * 1000, 125));
            }
        }
        let text = slice.line(4 * SECOND, 2, true);
        assert!(!text.contains('\n'));
        let line = parsed(&text);
        let keys: Vec<&str> =
            line.as_object().expect("an object").keys().map(String::as_str).collect();
        let expected = "begin_ns end_ns scheduled issued dropped completed failed qps in_flight \
                        backlog latency service lateness ttft tpot chunk_delta tps chunks_per_s";
        assert_eq!(keys.join(" "), expected);
        assert_eq!(
            (&line["begin_ns"], &line["end_ns"]),
            (&json!(SECOND), &json!(2 * SECOND + 1000))
        );
        assert_eq!((&line["scheduled"], &line["completed"]), (&json!(1008), &json!(1000)));
        assert_eq!(
            (&line["qps"], &line["in_flight"], &line["backlog"]),
            (&json!(1000.0), &json!(6.0), &json!(2.0))
        );
        assert_eq!(line["latency"]["max"], 3_000_000);
        assert!(line["latency"]["p99"].is_u64(), "a thousand values");
        assert_eq!(line["lateness"], json!({ "p50": 500, "p99": 500, "max": 500 }));
    }

    #[test]
    fn what_a_slice_does_not_define_is_null() {
        let mut slice = Slice::default();
        let mut few = recording(0, SECOND, 10);
        few.latency.reset();
        few.counters.scheduled = 0;
        slice.add(&few);
        let line = parsed(&slice.line(SECOND, 1, false));
        for key in ["scheduled", "dropped", "backlog", "lateness"] {
            assert_eq!(line[key], Value::Null, "{key} of a closed loop");
        }
        for key in ["ttft", "tpot", "chunk_delta", "tps", "chunks_per_s"] {
            assert_eq!(line[key], Value::Null, "{key} of plain HTTP");
        }
        assert_eq!(line["latency"], line["service"], "from the send");
        assert_eq!(line["latency"]["p99"], Value::Null, "ten values");
        let empty = parsed(&Slice::default().line(0, 1, true));
        assert_eq!((&empty["qps"], &empty["latency"]["p50"]), (&Value::Null, &Value::Null));
    }

    /// The same of streams: TTFT 1 ms from the send, 7 tokens at 50 us each.
    fn streamed(begin_ns: u64, completed: u64, is_counted: bool) -> Recording {
        let mut recording = recording(0, begin_ns, completed);
        let counters = &mut recording.counters;
        counters.answers = completed;
        counters.chunks = 7 * completed;
        if is_counted {
            counters.answers_counted = completed;
            counters.completion_tokens = 7 * completed;
        }
        for _ in 0..completed {
            recording.answers.service_ttft.record(1_000_000);
            recording.answers.ttft.record(2_000_000);
            recording.answers.tpot.record(50_000);
            (0..6).for_each(|_| recording.answers.chunk_delta.record(60_000));
        }
        recording
    }

    #[test]
    fn a_line_tells_tokens_where_there_are_streams() {
        let told = |is_counted| {
            let mut slice = Slice::default();
            (0..4).for_each(|i| slice.add(&streamed(i * INTERVAL_NS, 250, is_counted)));
            parsed(&slice.line(0, 1, true))
        };
        let line = told(true);
        assert_eq!((&line["tps"], &line["chunks_per_s"]), (&json!(7000.0), &json!(7000.0)));
        assert_eq!(line["ttft"]["max"], 2_000_000, "from the schedule");
        assert_eq!(line["tpot"], json!({ "p50": 50_000, "p99": 50_000, "max": 50_000 }));
        assert_eq!(line["chunk_delta"]["p50"], 60_000);
        assert_eq!(told(false)["tps"], Value::Null, "nobody counted them");
    }

    #[test]
    fn series_of_streams_have_logs_of_their_own_and_plain_http_has_none() {
        let name = format!("loadgen-uring-streams-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let phases = [("performance".to_owned(), true), ("warmup".to_owned(), true)];
        let mut files = IntervalFiles::new(&root, SECOND, 1, phases);
        files.add(&streamed(monotonic_ns(), 10, true));
        files.add(&recording(1, monotonic_ns(), 10));
        files.finish().expect("writable");
        let has = |phase, series| root.join(files::phase_hlog(phase, series)).exists();
        let logs = |phase| [LATENCY, TTFT, TPOT].map(|series| has(phase, series));
        assert_eq!(logs("performance"), [true; 3]);
        assert_eq!(logs("warmup"), [true, false, false]);
        fs::remove_dir_all(&root).expect("ours");
    }

    #[test]
    fn slices_are_written_once_and_keep_every_request() {
        let mut pending = Pending { start_ns: SECOND, ..Pending::default() };
        let mut completed = Vec::new();
        let mut keep = |slices: Vec<Slice>| {
            completed.extend(slices.iter().map(|slice| slice.completed));
        };
        for index in 0..8 {
            pending.add(&recording(0, SECOND + index * INTERVAL_NS, 10), SECOND);
            let now_ns = SECOND + (index + 1) * INTERVAL_NS;
            keep(pending.take(now_ns, SECOND, false));
        }
        // Seen when its slice was written: it goes into the next one.
        keep(pending.take(2 * SECOND + LATE_NS, SECOND, false));
        pending.add(&recording(0, SECOND, 7), SECOND);
        keep(pending.take(2 * SECOND + LATE_NS, SECOND, false));
        keep(pending.take(0, SECOND, true));
        assert_eq!(completed, [40, 47]);
    }

    #[test]
    fn files_of_a_run_are_read_back() {
        let name = format!("loadgen-uring-intervals-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let phases = [("warmup".to_owned(), true), ("performance".to_owned(), true)];
        let mut files = IntervalFiles::new(&root, SECOND, 1, phases);
        let start_ns = monotonic_ns();
        for index in 0..12 {
            files.add(&recording(1, start_ns + index * INTERVAL_NS, 100));
        }
        files.add(&recording(u32::MAX, start_ns, 100)); // of no phase
        files.finish().expect("writable");
        let read = |name: PathBuf| fs::read_to_string(root.join(name));
        let lines = read(files::phase_intervals("performance")).expect("written");
        let completed: Vec<Value> =
            lines.lines().map(|line| parsed(line)["completed"].clone()).collect();
        assert_eq!(completed, [400, 400, 400]);
        let log = read(files::phase_hlog("performance", LATENCY)).expect("written");
        let starts: Vec<f64> = log
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
            .map(|line| {
                line.split(',').next().and_then(|start| start.parse().ok()).expect("a number")
            })
            .collect();
        assert_eq!(starts.len(), 3);
        assert!((0.0..1.0).contains(&starts[0]), "the log starts with the second: {starts:?}");
        assert!((starts[2] - starts[0] - 2.0).abs() < 0.002, "{starts:?}");
        assert!(read(files::phase_intervals("warmup")).is_err(), "nothing was recorded in it");
        fs::remove_dir_all(&root).expect("ours");
    }
}
