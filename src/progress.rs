//! The line a second on stderr while a run goes on: how long, how fast, how slow, what fails.
//!
//! [`line()`] is a pure function of numbers; [`Progress`] only decides where it goes. Nothing that
//! the endpoint sent is in it. On a terminal the line is rewritten in place; elsewhere it is a line
//! an interval, and only when asked for.

use std::io::{self, Write};

use loadgen_shards::recorder::Recording;
use terminal_size::{Width, terminal_size_of};

use crate::display::{counted, grouped, rate, time};
use crate::snapshot::{Distribution, headline, headline_ttft};

/// Where the live view goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One line, rewritten in place.
    Rewrite,
    /// One line an interval.
    Lines,
    /// Nowhere.
    Silent,
}

/// `-q` and `--ui none` silence it; without a terminal it is shown only with `--ui plain`.
pub fn mode(is_silenced: bool, is_plain_asked: bool, is_terminal: bool) -> Mode {
    match (is_silenced, is_terminal, is_plain_asked) {
        (true, ..) => Mode::Silent,
        (false, true, _) => Mode::Rewrite,
        (false, false, true) => Mode::Lines,
        (false, false, false) => Mode::Silent,
    }
}

/// What a phase is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Connections are being opened.
    Connecting,
    /// The untracked phase.
    Warmup,
    /// The tracked phase.
    Measuring,
    /// The last answers are awaited.
    Draining,
    /// The same, after the first Ctrl-C.
    Stopping,
}

/// What is left of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Until its time is over.
    Time(u64),
    /// Until its requests are used up.
    Requests(u64),
    /// Nobody knows.
    Unknown,
}

/// The numbers of one line.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// What the phase is doing.
    pub stage: Stage,
    /// Since the phase started, ns.
    pub elapsed_ns: u64,
    /// Until the stage ends.
    pub left: Left,
    /// Completed per second in the last interval.
    pub rate: f64,
    /// What the schedule had for that interval, per second; `None` in closed loop.
    pub target: Option<f64>,
    /// Median headline latency of the last interval, ns; `None` without an answer.
    pub p50_ns: Option<u64>,
    /// 99th percentile likewise.
    pub p99_ns: Option<u64>,
    /// Failures since the phase started.
    pub failed: u64,
    /// Queries in flight now.
    pub in_flight: u64,
    /// Queries that wait for a connection.
    pub backlog: u64,
    /// Of the answers of an inference endpoint in the last interval; `None` without one.
    pub tokens: Option<Tokens>,
}

/// What answers of an inference endpoint told in the last interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tokens {
    /// Generated tokens of the answers that ended, per second; `None` if the endpoint does not
    /// tell.
    pub per_s: Option<f64>,
    /// Chunks of the answers that ended, per second.
    pub chunks_per_s: f64,
    /// Median headline time to the first token, ns; `None` without a stream.
    pub ttft_p50_ns: Option<u64>,
    /// 99th percentile likewise.
    pub ttft_p99_ns: Option<u64>,
}

/// What the shards told in the last interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Completed per second.
    pub rate: f64,
    /// Median headline latency, ns; `None` without an answer.
    pub p50_ns: Option<u64>,
    /// 99th percentile likewise.
    pub p99_ns: Option<u64>,
    /// Queries that waited for a connection in one shard, on average.
    pub backlog: f64,
    /// Of the answers of an inference endpoint; `None` without one.
    pub tokens: Option<Tokens>,
}

/// The last interval, from the recordings that the shards handed over in it.
#[derive(Clone, Debug, Default)]
pub struct Window {
    latency: Distribution,
    completed: u64,
    backlog_sum: u64,
    recordings: u64,
    ttft: Distribution,
    answers: u64,
    answers_counted: u64,
    tokens: u64,
    chunks: u64,
}

impl Window {
    /// Adds one interval of one shard.
    pub fn add(&mut self, recording: &Recording) {
        self.latency.add(headline(recording));
        self.completed += recording.counters.completed;
        self.backlog_sum += recording.backlog;
        self.recordings += 1;
        if recording.counters.answers > 0 {
            self.ttft.add(headline_ttft(recording));
            self.answers += recording.counters.answers;
            self.answers_counted += recording.counters.answers_counted;
            self.tokens += recording.counters.completion_tokens;
            self.chunks += recording.counters.chunks;
        }
    }

    /// The figures over `length_ns`; then forgets them.
    pub fn take(&mut self, length_ns: u64) -> Seen {
        let per_s = |count: u64| count as f64 * 1e9 / length_ns.max(1) as f64;
        let seen = Seen {
            rate: per_s(self.completed),
            p50_ns: self.latency.percentile(50_000),
            p99_ns: self.latency.percentile(99_000),
            backlog: self.backlog_sum as f64 / self.recordings.max(1) as f64,
            tokens: (self.answers > 0).then(|| Tokens {
                per_s: (self.answers_counted > 0).then(|| per_s(self.tokens)),
                chunks_per_s: per_s(self.chunks),
                ttft_p50_ns: self.ttft.percentile(50_000),
                ttft_p99_ns: self.ttft.percentile(99_000),
            }),
        };
        self.latency.reset();
        self.ttft.reset();
        (self.completed, self.backlog_sum, self.recordings) = (0, 0, 0);
        (self.answers, self.answers_counted, self.tokens, self.chunks) = (0, 0, 0, 0);
        seen
    }
}

/// The line, without its end.
pub fn line(tick: &Tick) -> String {
    let in_flight = format!("{} in flight", grouped(tick.in_flight));
    let left = match tick.left {
        Left::Time(0) => String::new(),
        Left::Time(ns) => format!(", {} left", time(whole_seconds(ns))),
        Left::Requests(count) => format!(", {} left", counted(count, "request")),
        Left::Unknown => String::new(),
    };
    let stage = match tick.stage {
        Stage::Connecting => return format!("connecting{left}"),
        Stage::Draining => return format!("draining, {in_flight}{left}"),
        Stage::Stopping => return format!("stopping, {in_flight}{left}, Ctrl-C again to quit"),
        Stage::Warmup => "warm-up ",
        Stage::Measuring => "",
    };
    let steps = (tick.elapsed_ns + ELAPSED_NS / 2) / ELAPSED_NS;
    let elapsed = time(steps.max(1) * ELAPSED_NS);
    let latency = match (tick.p50_ns, tick.p99_ns) {
        (Some(p50), Some(p99)) => format!("p50 {}  p99 {}", time(p50), time(p99)),
        _ => "no answer yet".to_owned(),
    };
    let latency = match &tick.tokens {
        Some(tokens) => told(tokens, &latency),
        None => latency,
    };
    let failed = counted(tick.failed, "error");
    let target = tick.target.map_or_else(String::new, |target| format!(" of {}", rate(target)));
    let waiting = match tick.backlog {
        0 => String::new(),
        count => format!(", {} waiting", grouped(count)),
    };
    let rate = rate(tick.rate);
    format!("{stage}{elapsed}{left}  {rate}{target}/s  {latency}  {failed}  {in_flight}{waiting}")
}

/// Tokens per second, and the time to the first one in place of the latency where there are
/// streams.
fn told(tokens: &Tokens, latency: &str) -> String {
    let speed = match tokens.per_s {
        Some(per_s) => format!("{} tok/s  ", rate(per_s)),
        None if tokens.chunks_per_s > 0.0 => format!("{} chunks/s  ", rate(tokens.chunks_per_s)),
        None => String::new(),
    };
    match (tokens.ttft_p50_ns, tokens.ttft_p99_ns) {
        (Some(p50), Some(p99)) => format!("{speed}TTFT p50 {}  p99 {}", time(p50), time(p99)),
        _ => format!("{speed}{latency}"),
    }
}

/// Writes the lines.
#[derive(Debug)]
pub struct Progress<W: Write> {
    mode: Mode,
    label: String,
    target: W,
    is_line_open: bool,
}

impl<W: Write> Progress<W> {
    /// A live view on `target`, which is stderr; each line begins with `label`.
    pub fn new(mode: Mode, label: String, target: W) -> Progress<W> {
        Progress { mode, label, target, is_line_open: false }
    }

    /// Shows one line.
    pub fn show(&mut self, tick: &Tick) -> io::Result<()> {
        self.show_text(&line(tick))
    }

    /// Shows any other line.
    pub fn show_text(&mut self, text: &str) -> io::Result<()> {
        let line = format!("{}{text}", self.label);
        match self.mode {
            Mode::Silent => return Ok(()),
            Mode::Lines => writeln!(self.target, "{line}")?,
            Mode::Rewrite => {
                write!(self.target, "\r\x1b[K{}", cut(&line, columns()))?;
                self.is_line_open = true;
            }
        }
        self.target.flush()
    }

    /// Clears the line that is rewritten, so that other text can follow. Call it before any other
    /// stderr line.
    pub fn clear(&mut self) -> io::Result<()> {
        if !self.is_line_open {
            return Ok(());
        }
        self.is_line_open = false;
        write!(self.target, "\r\x1b[K")?;
        self.target.flush()
    }
}

/// The part of a line that fits: one that wraps cannot be rewritten.
fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns.saturating_sub(1)).collect()
}

/// Of the terminal, asked for each line, as it may be resized.
fn columns() -> usize {
    terminal_size_of(io::stderr()).map_or(COLUMNS, |(Width(columns), _)| columns.into())
}

/// Of a terminal that does not say.
const COLUMNS: usize = 80;
/// Resolution of the time that has passed: the shortest interval.
const ELAPSED_NS: u64 = 250_000_000;

/// Rounded up: "0 s left" would be wrong while something is left.
fn whole_seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000) * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Tick = Tick {
        stage: Stage::Measuring,
        elapsed_ns: 3_000_000_000,
        left: Left::Time(6_990_000_000),
        rate: 98_120.4,
        target: None,
        p50_ns: Some(512_000),
        p99_ns: Some(1_904_000),
        failed: 0,
        in_flight: 64,
        backlog: 0,
        tokens: None,
    };

    const TOKENS: Tokens = Tokens {
        per_s: Some(5_210.0),
        chunks_per_s: 1_302.4,
        ttft_p50_ns: Some(210_000_000),
        ttft_p99_ns: Some(471_000_000),
    };

    #[test]
    fn every_stage_has_its_line() {
        let cases = [
            (
                Tick { rate: 41.5, tokens: Some(TOKENS), ..TICK },
                "3 s, 7 s left  41.5/s  5 210 tok/s  TTFT p50 210 ms  p99 471 ms  0 errors  \
                 64 in flight",
            ),
            (
                Tick { tokens: Some(Tokens { per_s: None, ..TOKENS }), rate: 41.5, ..TICK },
                "3 s, 7 s left  41.5/s  1 302 chunks/s  TTFT p50 210 ms  p99 471 ms  0 errors  \
                 64 in flight",
            ),
            (
                Tick {
                    rate: 41.5,
                    tokens: Some(Tokens { ttft_p50_ns: None, ttft_p99_ns: None, ..TOKENS }),
                    ..TICK
                },
                "3 s, 7 s left  41.5/s  5 210 tok/s  p50 512 µs  p99 1.90 ms  0 errors  \
                 64 in flight",
            ),
            (TICK, "3 s, 7 s left  98 120/s  p50 512 µs  p99 1.90 ms  0 errors  64 in flight"),
            (
                Tick { stage: Stage::Warmup, left: Left::Requests(500), failed: 1, ..TICK },
                "warm-up 3 s, 500 requests left  98 120/s  p50 512 µs  p99 1.90 ms  1 error  \
                 64 in flight",
            ),
            (
                Tick { target: Some(100_000.0), backlog: 1200, ..TICK },
                "3 s, 7 s left  98 120 of 100 000/s  p50 512 µs  p99 1.90 ms  0 errors  \
                 64 in flight, 1 200 waiting",
            ),
            (
                Tick { rate: 0.0, p50_ns: None, p99_ns: None, left: Left::Unknown, ..TICK },
                "3 s  0.00/s  no answer yet  0 errors  64 in flight",
            ),
            (
                Tick {
                    stage: Stage::Draining,
                    in_flight: 37,
                    left: Left::Time(27_100_000_000),
                    ..TICK
                },
                "draining, 37 in flight, 28 s left",
            ),
            (
                Tick { stage: Stage::Stopping, in_flight: 37, left: Left::Unknown, ..TICK },
                "stopping, 37 in flight, Ctrl-C again to quit",
            ),
            (Tick { stage: Stage::Connecting, left: Left::Unknown, ..TICK }, "connecting"),
        ];
        for (tick, expected) in cases {
            assert_eq!(line(&tick), expected);
        }
    }

    #[test]
    fn a_line_that_is_rewritten_never_wraps() {
        let long = Tick {
            stage: Stage::Warmup,
            elapsed_ns: 3_599_000_000_000,
            left: Left::Requests(123_456_789),
            failed: 1_234_567,
            ..TICK
        };
        let line = line(&long);
        let length = line.chars().count();
        for (columns, kept) in [(80, 79), (40, 39), (1, 0), (0, 0), (1000, length)] {
            assert_eq!(cut(&line, columns).chars().count(), kept.min(length), "{columns}");
            assert!(line.starts_with(&cut(&line, columns)));
        }
    }

    #[test]
    fn it_is_shown_on_a_terminal_or_when_asked_for_and_never_when_silenced() {
        let cases = [
            (false, false, true, Mode::Rewrite),
            (false, true, true, Mode::Rewrite),
            (false, true, false, Mode::Lines),
            (false, false, false, Mode::Silent),
            (true, true, true, Mode::Silent),
        ];
        for (is_silenced, is_plain_asked, is_terminal, expected) in cases {
            assert_eq!(mode(is_silenced, is_plain_asked, is_terminal), expected);
        }
    }

    fn written(mode: Mode) -> String {
        let mut bytes = Vec::new();
        let mut progress = Progress::new(mode, "run 2 of 5: ".to_owned(), &mut bytes);
        let tick = Tick { stage: Stage::Connecting, left: Left::Unknown, ..TICK };
        for _ in 0..2 {
            progress.show(&tick).expect("a vector takes any text");
        }
        for _ in 0..2 {
            progress.clear().expect("a vector takes any text");
        }
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_terminal_line_is_rewritten_in_place_and_cleared_once() {
        let shown = "\r\x1b[Krun 2 of 5: connecting";
        assert_eq!(written(Mode::Rewrite), format!("{shown}{shown}\r\x1b[K"));
        assert_eq!(written(Mode::Lines), "run 2 of 5: connecting\n".repeat(2));
        assert_eq!(written(Mode::Silent), "");
    }

    #[test]
    fn a_window_tells_tokens_of_its_answers_and_of_uncounted_ones_chunks() {
        let mut window = Window::default();
        let mut recording = Recording::default();
        (0..10).for_each(|_| recording.answers.service_ttft.record(2_000_000));
        recording.counters.answers = 10;
        recording.counters.chunks = 60;
        window.add(&recording);
        let seen = window.take(500_000_000).tokens.expect("answers");
        assert_eq!((seen.per_s, seen.chunks_per_s), (None, 120.0));
        assert_eq!(seen.ttft_p50_ns, Some(2_000_000));
        recording.counters.answers_counted = 10;
        recording.counters.completion_tokens = 110;
        window.add(&recording);
        assert_eq!(window.take(500_000_000).tokens.expect("answers").per_s, Some(220.0));
        assert_eq!(window.take(500_000_000).tokens, None);
    }

    #[test]
    fn a_window_tells_the_last_interval_only() {
        let mut window = Window::default();
        let mut recording = Recording::default();
        (0..100).for_each(|_| recording.service.record(1000));
        recording.counters.completed = 100;
        window.add(&recording);
        window.add(&recording);
        recording.counters.scheduled = 100;
        (0..100).for_each(|_| recording.latency.record(2000));
        recording.backlog = 8;
        window.add(&recording);
        let seen = window.take(500_000_000);
        assert_eq!((seen.rate, seen.p50_ns), (600.0, Some(1000)));
        assert_eq!((seen.p99_ns, seen.backlog), (Some(2000), 8.0 / 3.0));
        assert_eq!(seen.tokens, None, "plain HTTP");
        let nothing = Seen { rate: 0.0, p50_ns: None, p99_ns: None, backlog: 0.0, tokens: None };
        assert_eq!(window.take(500_000_000), nothing);
    }
}
