//! What ends a run early: nothing but failures, silence, its time limit, or a rule of the user.

use loadgen_shards::recorder::Recording;
use loadgen_shards::sys::time::monotonic_ns;

use crate::expression::{Metric, Stat};
use crate::plan::Plan;
use crate::snapshot::{Distribution, PhaseTotals, Snapshot, State};

/// What the rules remember.
pub struct Rules {
    /// Since the last success: when the first and the last failure were seen, ns.
    failing_since_ns: Option<u64>,
    failing_until_ns: u64,
    /// When the last bytes of a response came.
    heard_ns: u64,
    /// When the user's expressions were last looked at.
    checked_ns: u64,
}

impl Rules {
    /// Nothing has been seen yet.
    pub fn new() -> Rules {
        let now_ns = monotonic_ns();
        Rules { failing_since_ns: None, failing_until_ns: 0, heard_ns: now_ns, checked_ns: now_ns }
    }

    /// Takes note of one interval of one shard.
    pub fn watch(&mut self, recording: &Recording) {
        let counters = &recording.counters;
        if counters.completed > 0 {
            self.failing_since_ns = None;
        } else if counters.failed > 0 {
            self.failing_since_ns.get_or_insert(recording.begin_ns);
            self.failing_until_ns = recording.end_ns;
        }
        if counters.bytes_received > 0 {
            self.heard_ns = self.heard_ns.max(recording.end_ns);
        }
    }

    /// The first rule that is broken, as a fragment for the report.
    pub fn broken(&mut self, plan: &Plan, snapshot: &Snapshot, age_ns: u64) -> Option<String> {
        if snapshot.state == State::Interrupted || snapshot.state == State::Initialize {
            return None;
        }
        if plan.run_timeout_ns > 0 && age_ns >= plan.run_timeout_ns {
            return Some("the run reached its --run-timeout".to_owned());
        }
        let now_ns = monotonic_ns();
        let silence_ns = plan.response_idle_timeout_ns;
        if snapshot.phases.iter().all(|phase| phase.in_flight_at_end == 0) {
            self.heard_ns = self.heard_ns.max(now_ns);
        }
        if silence_ns > 0 && now_ns.saturating_sub(self.heard_ns) > silence_ns {
            return Some("no byte came for --response-idle-timeout on any connection".to_owned());
        }
        if plan.abort_all_failed_ns > 0
            && let Some(since_ns) = self.failing_since_ns
            && self.failing_until_ns.saturating_sub(since_ns) >= plan.abort_all_failed_ns
        {
            let s = plan.abort_all_failed_ns as f64 / 1e9;
            return Some(format!("every request failed for {s} s"));
        }
        if now_ns - self.checked_ns < CHECK_NS {
            return None;
        }
        self.checked_ns = now_ns;
        let phase = snapshot.phases.iter().rfind(|phase| phase.state >= State::Live)?;
        plan.abort_if
            .iter()
            .find(|rule| rule.holds(|metric| figure(phase, metric, now_ns)) == Some(true))
            .map(|rule| format!("--abort-if '{}' became true", rule.text))
    }
}

/// A figure of the running phase; `None` while it is not known.
fn figure(phase: &PhaseTotals, metric: &Metric, now_ns: u64) -> Option<f64> {
    let counters = &phase.sums.counters;
    match *metric {
        Metric::Latency(stat) => of(&phase.sums.service, stat),
        Metric::Ttfb(stat) => of(&phase.sums.ttfb, stat),
        Metric::Connect(stat) => of(&phase.sums.connect, stat),
        Metric::Failed => Some(counters.failed as f64),
        Metric::FailedShare => {
            let ended = counters.completed + counters.failed;
            (ended > 0).then(|| counters.failed as f64 / ended as f64)
        }
        Metric::Completed => Some(counters.completed as f64),
        Metric::Qps => {
            let length_ns = now_ns.saturating_sub(phase.start_ns);
            (length_ns >= CHECK_NS).then(|| counters.completed as f64 * 1e9 / length_ns as f64)
        }
        Metric::Service(_)
        | Metric::Lateness(_)
        | Metric::PoolWait(_)
        | Metric::Dropped
        | Metric::DroppedShare
        | Metric::Offered
        | Metric::Scheduled
        | Metric::Goodput
        | Metric::GoodputShare
        | Metric::Target => None,
    }
}

fn of(distribution: &Distribution, stat: Stat) -> Option<f64> {
    match stat {
        Stat::Min => distribution.smallest().map(|ns| ns as f64),
        Stat::Max => distribution.largest().map(|ns| ns as f64),
        Stat::Mean => distribution.mean(),
        Stat::Percentile(p) => {
            distribution.percentile((p * 1000.0).round() as u32).map(|ns| ns as f64)
        }
    }
}

/// The user's rules are looked at each second.
const CHECK_NS: u64 = 1_000_000_000;
