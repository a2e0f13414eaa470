//! Whether a result is to be believed: checks of the instrument, findings about the endpoint, and
//! marks on percentiles that the samples do not carry.
//!
//! Three classes, never mixed. *Instrument* checks judge us and alone can fail a run. *Endpoint*
//! findings judge the endpoint. *Sampling* checks mark the percentiles that they touch.

mod accounts;
mod answers;
mod arrivals;
mod causes;
mod clock;
mod dispatch;
mod endpoint;
mod facts;
mod precision;
mod resolution;
mod sampling;
mod stationarity;
#[cfg(test)]
mod tests;

use crate::plan;
use crate::snapshot::{InferenceFacts, PhaseTotals, Snapshot};

use facts::Facts;
pub use precision::{half_width, more_time_ns, precision_reached, requests_estimate};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing to say.
    Ok,
    /// Look at it.
    Warn,
    /// Do not believe what it touches.
    Fail,
}

impl Level {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }
}

/// Whom a check judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Us. Its worst level is the verdict on the run.
    Instrument,
    /// The endpoint: never fails the run's trust.
    Endpoint,
    /// The samples: at most a warning.
    Sampling,
}

/// One line of the trust block.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// `D1` to `D21`; for files.
    pub id: &'static str,
    /// What it looks at, in two or three words.
    pub name: &'static str,
    /// Whom it judges.
    pub class: Class,
    /// How it came out.
    pub level: Level,
    /// The figure it judges by; `None` where there is none.
    pub value: Option<f64>,
    /// Its unit; empty for counts and ratios.
    pub unit: &'static str,
    /// What was seen, in plain words: on WARN and FAIL what is in `brief` first, then the figures.
    pub reason: String,
    /// On WARN and FAIL, the cause and what to do. `None`: the cause is that of an earlier check.
    pub brief: Option<String>,
}

impl Check {
    /// What `reason` says beyond `brief`.
    pub fn figures(&self) -> &str {
        let brief = self.brief.as_deref().unwrap_or_default();
        self.reason.strip_prefix(brief).unwrap_or(&self.reason).trim_start_matches("; ")
    }
}

/// A percentile that is not to be taken at its face.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// `latency`, `service`, or one of the answers: `ttft`, `service_ttft`, `tpot`, `chunk_delta`.
    pub series: &'static str,
    /// Which one, 1/1000 %.
    pub milli: u32,
    /// True: the value is a lower bound, as requests timed out.
    pub is_at_least: bool,
    /// Why, in a few words that several percentiles may share.
    pub reason: String,
    /// How much, for this one; may be empty.
    pub detail: String,
}

impl Mark {
    /// Both, for files.
    pub fn in_words(&self) -> String {
        match self.detail.as_str() {
            "" => self.reason.clone(),
            detail => format!("{} ({detail})", self.reason),
        }
    }
}

/// An interval for a percentile of the headline latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Which one, 1/1000 %.
    pub milli: u32,
    /// Lower end of the 95 % interval, ns.
    pub low_ns: u64,
    /// Upper end, ns.
    pub high_ns: u64,
    /// How many independent samples are worth as much.
    pub effective: f64,
    /// The same if the samples were independent, ns; `None` where none exists.
    pub independent: Option<(u64, u64)>,
}

/// Where time went, as shares that add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Blame {
    /// In the endpoint and on the way to it.
    pub endpoint: f64,
    /// Waiting for a connection.
    pub pool: f64,
    /// Ours: late dispatch and preparation.
    pub client: f64,
}

/// The judgement on one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trust {
    /// In the order of their ids.
    pub checks: Vec<Check>,
    /// Percentiles not to be taken at their face.
    pub marks: Vec<Mark>,
    /// p50, p99 and p99.9 of the headline latency, as far as there are intervals.
    pub intervals: Vec<Interval>,
    /// Of all completed queries; `None` in closed loop.
    pub mean: Option<Blame>,
    /// Of those at or above p99.
    pub tail: Option<Blame>,
    /// The queue grew all the time: no latency percentile exists.
    pub is_unstable: bool,
}

impl Trust {
    /// The worst level of the instrument's checks; warnings of the others count too.
    pub fn verdict(&self) -> Level {
        let level = |check: &Check| match check.class {
            Class::Instrument => check.level,
            Class::Endpoint => Level::Ok,
            Class::Sampling => check.level.min(Level::Warn),
        };
        self.checks.iter().map(level).max().unwrap_or(Level::Ok)
    }
}

/// What a check has to say about itself, whatever it finds.
struct Line {
    id: &'static str,
    name: &'static str,
    class: Class,
    unit: &'static str,
}

impl Line {
    fn says(&self, level: Level, value: Option<f64>, reason: impl Into<String>) -> Check {
        let reason = reason.into();
        Check {
            brief: Some(reason.clone()),
            id: self.id,
            name: self.name,
            class: self.class,
            level,
            value,
            unit: self.unit,
            reason,
        }
    }

    /// A finding: its cause and what to do (`None`: the cause has been told), then the figures.
    fn finds(
        &self,
        level: Level,
        value: Option<f64>,
        brief: Option<String>,
        figures: &str,
    ) -> Check {
        let cause = brief.as_deref().unwrap_or("for the cause said above");
        let check = self.says(level, value, format!("{cause}; {figures}"));
        Check { brief, ..check }
    }
}

/// Whether an earlier line has told what made us late or blind: once is enough.
fn is_cause_named(checks: &[Check]) -> bool {
    checks.iter().any(|check| matches!(check.id, "D1" | "D3" | "D6") && check.level > Level::Ok)
}

/// Judges a phase that has ended. `inference`: `None` for plain HTTP.
pub fn judge(
    snapshot: &Snapshot,
    phase: &PhaseTotals,
    plan: &plan::Phase,
    inference: Option<&InferenceFacts>,
) -> Trust {
    let facts = Facts { inference, ..Facts::new(snapshot, phase, plan) };
    let mut marks = Vec::new();
    let mut checks = Vec::new();
    let (stationarity, is_unstable) = stationarity::stationarity(&facts, &mut marks);
    let found = if is_unstable { Vec::new() } else { sampling::find(&facts) };
    if facts.is_open {
        checks.push(dispatch::lateness(&facts, &mut marks));
    }
    checks.push(accounts::conservation(&facts));
    if facts.is_open {
        checks.push(dispatch::shortfall(&facts));
        checks.push(arrivals::fit(&facts, is_cause_named(&checks)));
        checks.push(resolution::saturation(&facts));
    }
    checks.push(resolution::loop_gap(&facts, is_cause_named(&checks)));
    checks.push(clock::clock(&facts));
    checks.push(causes::host(&facts, is_cause_named(&checks), &mut marks));
    if facts.is_open {
        checks.push(endpoint::pool_wait(&facts, is_unstable));
    }
    checks.push(sampling::interval_check(&facts, &found, is_unstable, &mut marks));
    checks.push(sampling::samples_needed(&facts, &found, &mut marks));
    checks.push(stationarity);
    checks.push(accounts::little(&facts));
    if facts.is_open {
        checks.push(endpoint::omission(&facts, is_cause_named(&checks), is_unstable));
    }
    checks.extend(answers::stream(&facts, &mut marks));
    checks.push(accounts::clamped(&facts, &mut marks));
    checks.push(endpoint::failures(&facts, &mut marks));
    checks.push(facts.fingerprint());
    checks.extend(answers::prompt_cache(&facts));
    checks.extend(endpoint::closed(&facts));
    let intervals = sampling::intervals(&facts, &found);
    let (mean, tail) = facts.blame();
    Trust { checks, marks, intervals, mean, tail, is_unstable }
}
