//! What the checks look at: the facts of one phase, and what several of them derive from it.

use loadgen_shards::recorder::{Counters, Parts};
use loadgen_shards::schedule::SchedulePlan;

use super::{Blame, Check, Class, Level, Line, Mark};
use crate::plan;
use crate::snapshot::{
    Conditions, Distribution, InferenceFacts, PERCENTILES, PhaseTotals, Snapshot, Sums,
    count_needed,
};

/// A percentile is judged by at least so many samples on its thinner side, as it is told.
const SAMPLES_BEYOND_MIN: u64 = 10;

/// The facts of one phase.
pub(super) struct Facts<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) phase: &'a PhaseTotals,
    pub(super) plan: &'a plan::Phase,
    /// `None` for plain HTTP.
    pub(super) inference: Option<&'a InferenceFacts>,
    pub(super) sums: &'a Sums,
    pub(super) counters: Counters,
    pub(super) is_open: bool,
    pub(super) shards: usize,
    /// From the start to the end of the issuing, ns.
    pub(super) window_ns: u64,
}

impl<'a> Facts<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        phase: &'a PhaseTotals,
        plan: &'a plan::Phase,
    ) -> Facts<'a> {
        let end_ns = phase.issue_end_ns.max(phase.load_end_ns);
        Facts {
            snapshot,
            phase,
            plan,
            inference: None,
            sums: &phase.sums,
            counters: phase.sums.counters,
            is_open: plan.schedule.is_some(),
            shards: snapshot.cores.len().max(1),
            window_ns: end_ns.saturating_sub(phase.start_ns),
        }
    }

    /// The latency that is judged: from the schedule where there is one, else from the send.
    pub(super) fn headline(&self) -> &'a Distribution {
        if self.is_open { &self.sums.latency } else { &self.sums.service }
    }

    /// Due per second; in closed loop, issued.
    pub(super) fn rate(&self) -> Option<f64> {
        let begun = if self.is_open { self.counters.scheduled } else { self.counters.issued };
        (self.window_ns > 0).then(|| begun as f64 * 1e9 / self.window_ns as f64)
    }

    /// Share of the shards' time at work.
    pub(super) fn utilisation(&self) -> Option<f64> {
        let Sums { busy_ns, covered_ns, .. } = self.sums;
        (*covered_ns > 0).then(|| *busy_ns as f64 / *covered_ns as f64)
    }

    /// What a send costs, ns.
    pub(super) fn send_ns(&self) -> Option<f64> {
        let Counters { single_sends, single_sends_ns, .. } = self.counters;
        (single_sends > 0).then(|| single_sends_ns as f64 / single_sends as f64)
    }

    /// Of the shards' time, 0 to 1.
    pub(super) fn share_of_time(&self, ns: u64) -> f64 {
        if self.sums.covered_ns == 0 { 0.0 } else { ns as f64 / self.sums.covered_ns as f64 }
    }

    pub(super) fn conditions(&self) -> &'a Conditions {
        &self.snapshot.conditions
    }

    /// Where the mean latency went, and that of the slowest hundredth.
    pub(super) fn blame(&self) -> (Option<Blame>, Option<Blame>) {
        let tail = told(&self.sums.latency, 99_000);
        let tail = tail.and_then(|p99_ns| shares(&self.sums.breakdown.above(p99_ns)));
        (shares(&self.sums.breakdown.all()), tail)
    }

    /// D19: what tells one run from another. Never a verdict.
    pub(super) fn fingerprint(&self) -> Check {
        let mut parts = Vec::new();
        if let Some(SchedulePlan { seed, .. }) = &self.plan.schedule {
            parts.push(format!("seed {seed}, schedule {:016x}", self.sums.schedule_hash));
        }
        parts.push(format!("engine {}", self.snapshot.engine.name));
        let Conditions {
            governor,
            turbo,
            idle_driver,
            deepest_sleep,
            wake_us,
            smt,
            isolated,
            tickless,
            clocksource,
            policy,
            ..
        } = self.conditions();
        let switch = |is_on: &Option<bool>| match is_on {
            Some(true) => "on",
            Some(false) => "off",
            None => "unknown",
        };
        let known = |text: &str| if text.is_empty() { "unknown" } else { text }.to_owned();
        let listed = |text: &str| if text.is_empty() { "none" } else { text }.to_owned();
        let wake = wake_us.map(|us| format!(" ({us} µs to wake)")).unwrap_or_default();
        parts.extend([
            format!("frequency governor {}", known(governor)),
            format!("turbo {}", switch(turbo)),
            format!(
                "idle driver {}, deepest sleep {}{wake}",
                known(idle_driver),
                known(deepest_sleep)
            ),
            format!("hyper-threads {}", switch(smt)),
            format!("isolated cores {}, without tick {}", listed(isolated), listed(tickless)),
            format!("clock source {}", known(clocksource)),
            format!("scheduling policy {}", known(policy)),
        ]);
        FINGERPRINT.says(Level::Ok, None, parts.join("; "))
    }
}

/// The percentile, if it is told and enough samples lie on either side.
pub(super) fn told(distribution: &Distribution, milli: u32) -> Option<u64> {
    let half = 2 * SAMPLES_BEYOND_MIN;
    let is_told = distribution.count() >= count_needed(milli).max(half);
    distribution.percentile(milli).filter(|_| is_told)
}

/// Whether trouble with this percentile fails a run; with others it only warns.
pub(super) fn fails(milli: u32) -> bool {
    matches!(milli, 50_000 | 90_000 | 99_000)
}

/// Marks of the headline latency for every percentile above which less than this share lies.
pub(super) fn marks_beyond(share: f64, reason: &str) -> impl Iterator<Item = Mark> {
    let is_beyond = move |milli: u32| 1.0 - f64::from(milli) / 1e5 < share;
    let touched = PERCENTILES.into_iter().filter(move |percentile| is_beyond(percentile.milli));
    touched.map(move |percentile| mark(percentile.milli, reason))
}

/// A mark on the headline latency.
pub(super) fn mark(milli: u32, reason: &str) -> Mark {
    let (reason, detail) = (reason.to_owned(), String::new());
    Mark { series: "latency", milli, is_at_least: false, reason, detail }
}

/// The same, with how much.
pub(super) fn mark_with(milli: u32, reason: &str, detail: String) -> Mark {
    Mark { detail, ..mark(milli, reason) }
}

/// `p99.9`.
pub(super) fn percentile_name(milli: u32) -> String {
    format!("p{}", f64::from(milli) / 1000.0)
}

/// A share of 1 as a percentage with about two digits.
pub(super) fn percent(share: f64) -> String {
    match share.abs() * 100.0 {
        percent if percent >= 9.95 || percent == 0.0 => format!("{:.0} %", share * 100.0),
        percent if percent >= 0.995 => format!("{:.1} %", share * 100.0),
        percent if percent >= 0.005 => format!("{:.2} %", share * 100.0),
        _ => "less than 0.01 %".to_owned(),
    }
}

fn shares(parts: &Parts) -> Option<Blame> {
    let total_ns = parts.total_ns() as f64;
    (total_ns > 0.0).then(|| Blame {
        endpoint: parts.service_ns as f64 / total_ns,
        pool: parts.pool_wait_ns as f64 / total_ns,
        client: (parts.lateness_ns + parts.prepare_ns) as f64 / total_ns,
    })
}

const FINGERPRINT: Line = Line { id: "D19", name: "fingerprint", class: Class::Sampling, unit: "" };
