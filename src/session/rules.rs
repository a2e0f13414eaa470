//! What ends a run early: nothing but failures, silence, its time limit, or a rule of the user.

use loadgen_shards::recorder::Recording;
use loadgen_shards::schedule::SchedulePlan;
use loadgen_shards::sys::time::monotonic_ns;

use crate::plan::{self, Plan};
use crate::snapshot::{Length, PhaseTotals, Snapshot, State, figure};

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
        let mut phases = snapshot.phases.iter().zip(&plan.phases);
        let (phase, planned) = phases.rfind(|(phase, _)| phase.state >= State::Live)?;
        let length = length_of(phase, planned, now_ns);
        plan.abort_if
            .iter()
            .find(|rule| rule.holds(|metric| figure(&phase.sums, &length, metric)) == Some(true))
            .map(|rule| format!("--abort-if '{}' became true", rule.text))
    }
}

/// What is known of a running phase; rates not before its first second.
fn length_of(phase: &PhaseTotals, plan: &plan::Phase, now_ns: u64) -> Length {
    let age_ns = now_ns.saturating_sub(phase.start_ns);
    if phase.start_ns == 0 || age_ns < CHECK_NS {
        return Length::default();
    }
    let target = |schedule: &SchedulePlan| schedule.profile.expected(age_ns) * 1e9 / age_ns as f64;
    Length { duration_ns: age_ns, scheduled_ns: age_ns, target: plan.schedule.as_ref().map(target) }
}

/// The user's rules are looked at each second.
const CHECK_NS: u64 = 1_000_000_000;
