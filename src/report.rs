//! Derived figures: what `result_summary.json` holds, and with it all that the text report says.
//!
//! Pure functions from an [`Results`]: a [`Snapshot`], the [`RunFacts`] of its plan, and what was
//! concluded from both. Undefined is null, never 0.

mod command;
mod gate;
mod hold;
mod summary;
#[cfg(test)]
pub mod tests;
mod verdict;

use std::path::PathBuf;

use loadgen_shards::phase::{Overload, PhaseKind};

use crate::config::{Precision, RateShape};
use crate::cores::Timer;
use crate::expression::{Expression, RequestGoal};
use crate::plan;
use crate::snapshot::{Host, InferenceFacts, Snapshot, Sums, Totals};
use crate::trust::{self, Level, Trust};

pub use command::{connections_wanted, next_commands};
pub use gate::{Gate, GateOutcome};
pub use hold::{Hold, hold, rate_text, suggested_rate};
pub use summary::{phase_summary, result_summary};
pub use verdict::{
    Ending, Limit, Verdict, cause, ending, exit_code, limit, limit_facts, little_ratio,
    little_warning, nothing_ended,
};

/// What the report needs to know of the plan. No field may hold a secret: some are printed, all may
/// be written.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// `max-throughput`, `poisson`, ...
    pub command: String,
    /// In order, secrets masked; what the embedded endpoint listens on if there were none.
    pub urls: Vec<String>,
    /// `--cores` as typed.
    pub cores_flag: Option<String>,
    /// The other flags as typed, one word each, but for `-c`, `--report-dir`, the output flags,
    /// `rate_flags` and what is secret.
    pub flags: Vec<String>,
    /// The flags as typed that only an open loop has.
    pub rate_flags: Vec<String>,
    /// Connections over all shards together.
    pub connections: u32,
    /// One shard on each, ascending.
    pub cores: Vec<usize>,
    /// How they were chosen, in words.
    pub cores_reason: String,
    /// Allowed cores with neither a shard nor the embedded endpoint.
    pub cores_free: Vec<usize>,
    /// Shards never sleep.
    pub spin: bool,
    /// The target is the endpoint embedded in this process.
    pub is_embedded: bool,
    /// `--seed`; `None` while nothing is drawn.
    pub seed: Option<u64>,
    /// `--order` as typed.
    pub order: String,
    /// `--order-seed`; `None` while nothing is drawn.
    pub order_seed: Option<u64>,
    /// What only an open loop has.
    pub open: Option<OpenFacts>,
    /// What must hold.
    pub slo: Vec<Expression>,
    /// What must not be true.
    pub fail_if: Vec<Expression>,
    /// What a request must keep to count as good; empty: none is counted.
    pub goodput: Vec<RequestGoal>,
    /// What only an inference run has; `None` for plain HTTP.
    pub inference: Option<InferenceFacts>,
    /// A FAIL of the trust block does not change the exit code.
    pub is_untrusted_allowed: bool,
    /// Of the plan, in order.
    pub phases: Vec<plan::Phase>,
    /// What `-d auto` waited for.
    pub precision: Option<Precision>,
    /// This host's floor, if it was measured.
    pub floor: Option<Floor>,
    /// Where files go.
    pub report_dir: Option<PathBuf>,
    /// The host.
    pub host: Host,
}

/// What the run's own load measures against an endpoint that does nothing. Percentiles of too few
/// values are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floor {
    /// Answers that it is of.
    pub completed: u64,
    /// How long it took, ns.
    pub duration_ns: u64,
    /// Median from the send, ns.
    pub service_p50_ns: Option<u64>,
    /// 99th percentile likewise.
    pub service_p99_ns: Option<u64>,
    /// Median of the dispatch after its instant, ns; `None` too in closed loop.
    pub lateness_p50_ns: Option<u64>,
    /// 99th percentile likewise.
    pub lateness_p99_ns: Option<u64>,
    /// The timer of an open loop.
    pub timer: Option<&'static str>,
    /// No core was left for the endpoint, so it shared one with us.
    pub is_shared: bool,
}

/// What the report needs to know of the plan of an open loop.
#[derive(Clone, Debug)]
pub struct OpenFacts {
    /// Asked for, per second over all shards together.
    pub rate: RateShape,
    /// Who watches the schedule.
    pub timer: Timer,
    /// How the timer was chosen, in words.
    pub timer_reason: String,
    /// Most connections over all shards together.
    pub max_connections: u32,
    /// What happens to a query for which none is free.
    pub overload: Overload,
}

/// A run with what was concluded from it, once, for every file and screen.
#[derive(Clone, Debug)]
pub struct Results<'a> {
    /// What was measured.
    pub snapshot: &'a Snapshot,
    /// What was planned.
    pub facts: &'a RunFacts,
    /// The tracked phases together; connections are those of the whole run, as most open before.
    pub tracked: Totals<'a>,
    /// The judgement on each phase.
    pub phase_trust: Vec<Trust>,
    /// The judgement on the tracked phases: of several only the checks, as percentiles are those of
    /// a phase.
    pub trust: Trust,
    /// Each `--slo`.
    pub slo: Vec<Gate>,
    /// Each `--fail-if`.
    pub fail_if: Vec<Gate>,
}

impl<'a> Results<'a> {
    /// Judges a run.
    pub fn of(snapshot: &'a Snapshot, facts: &'a RunFacts) -> Results<'a> {
        let phases = snapshot.phases.iter().zip(&facts.phases);
        let judge = |(phase, plan)| trust::judge(snapshot, phase, plan, facts.inference.as_ref());
        let judged = phases.map(judge).collect();
        Results::with_trust(snapshot, facts, judged)
    }

    /// A run whose phases have been judged.
    pub fn with_trust(
        snapshot: &'a Snapshot,
        facts: &'a RunFacts,
        phase_trust: Vec<Trust>,
    ) -> Results<'a> {
        let mut tracked = Totals::of(snapshot.tracked());
        let all = Totals::of(&snapshot.phases);
        tracked.sums.to_mut().connect = all.sums.connect.clone();
        tracked.sums.to_mut().tls = all.sums.tls.clone();
        let indices: Vec<usize> = tracked_indices(snapshot).collect();
        let trust = match indices.as_slice() {
            [index] => phase_trust.get(*index).cloned().unwrap_or_default(),
            _ => Trust {
                checks: indices
                    .iter()
                    .filter_map(|index| phase_trust.get(*index))
                    .flat_map(|trust| trust.checks.iter().cloned())
                    .collect(),
                ..Trust::default()
            },
        };
        let mut results = Results {
            snapshot,
            facts,
            tracked,
            phase_trust,
            trust,
            slo: Vec::new(),
            fail_if: Vec::new(),
        };
        let gates = |list: &[Expression], is_slo| {
            list.iter().map(|expression| Gate::judge(expression, is_slo, &results)).collect()
        };
        (results.slo, results.fail_if) = (gates(&facts.slo, true), gates(&facts.fail_if, false));
        results
    }

    /// The instrument says not to believe it, and nobody said to do so all the same.
    pub fn is_untrusted(&self) -> bool {
        self.trust.verdict() == Level::Fail && !self.facts.is_untrusted_allowed
    }

    /// The rate that the tracked phase was asked to have, per second, on average; `None` in closed
    /// loop, and where the plan does not tell.
    pub fn target_qps(&self) -> Option<f64> {
        let mut indices = tracked_indices(self.snapshot);
        match (indices.next(), indices.next()) {
            (Some(index), None) => target_qps(self.facts, index),
            _ => None,
        }
    }
}

fn tracked_indices(snapshot: &Snapshot) -> impl Iterator<Item = usize> {
    (0..snapshot.phases.len())
        .filter(|index| snapshot.phases[*index].kind == PhaseKind::Performance)
}

/// The rate that a phase was asked to have, per second, on average.
fn target_qps(facts: &RunFacts, index: usize) -> Option<f64> {
    if let RateShape::Constant(rate) = facts.open.as_ref()?.rate {
        return Some(rate);
    }
    let phase = facts.phases.get(index)?;
    let length_ns = phase.duration_ns.filter(|ns| *ns > 0)?;
    Some(phase.schedule.as_ref()?.profile.expected(length_ns) * 1e9 / length_ns as f64)
}

/// What limited one phase of a closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// What limited it.
    pub verdict: Verdict,
    /// Little's law.
    pub little_ratio: Option<f64>,
}

/// What limited the tracked phase of a run; `None` if there are none or several, as each has its
/// own.
pub fn assess(snapshot: &Snapshot, facts: &RunFacts) -> Option<Assessment> {
    let mut tracked = tracked_indices(snapshot);
    match (tracked.next(), tracked.next()) {
        (Some(index), None) => assess_phase(snapshot, facts, index),
        _ => None,
    }
}

/// The verdict on one phase. Snapshot and plan list the phases in the same order. An open loop has
/// none: its rate is given.
fn assess_phase(snapshot: &Snapshot, facts: &RunFacts, index: usize) -> Option<Assessment> {
    let (phase, plan) = (&snapshot.phases[index], facts.phases.get(index)?);
    if plan.schedule.is_some() {
        return None;
    }
    let little_ratio = little_ratio(phase, plan);
    let verdict = limit(&limit_facts(snapshot, phase, plan))
        .less_what_contradicts(little_ratio)
        .less_what_lengths_make(phase.sums.answers.is_some());
    Some(Assessment { verdict, little_ratio })
}

/// Who counted the generated tokens: `the server`, our tokenizer, both; `None` if nobody did.
pub fn counted_by(sums: &Sums, facts: Option<&InferenceFacts>) -> Option<String> {
    let ours = match facts.map(|facts| facts.tokenizer.as_str()) {
        None | Some("") => "our tokenizer".to_owned(),
        Some(name) => format!("our tokenizer ({name})"),
    };
    let server = "the server".to_owned();
    match (sums.counters.answers_counted > 0, sums.outputs_counted_after() > 0) {
        (true, true) => Some(format!("{server} and {ours}")),
        (true, false) => Some(server),
        (false, true) => Some(ours),
        (false, false) => None,
    }
}

/// The goals of a request as one types them.
pub fn goals_text(goals: &[RequestGoal]) -> String {
    goals.iter().map(RequestGoal::text).collect::<Vec<_>>().join(" ")
}

/// Text from elsewhere, safe for a terminal: no control byte, no invisible mark that turns the
/// writing direction.
pub fn printable(text: &str) -> String {
    let is_mark = |c: char| {
        let zero_width = '\u{200b}'..='\u{200f}';
        let direction = '\u{2028}'..='\u{202e}';
        let isolate = '\u{2060}'..='\u{206f}';
        c == '\u{feff}' || [zero_width, direction, isolate].iter().any(|marks| marks.contains(&c))
    };
    text.chars().map(|c| if c.is_control() || is_mark(c) { '.' } else { c }).collect()
}

/// A URL without `user:password@`.
pub fn without_user_info(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// `0-3,5` for ascending ids.
pub fn core_list(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => parts.push((core, core)),
        }
    }
    let text = |(first, last): (usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}
