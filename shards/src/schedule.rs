//! When queries are due: one seeded list of absolute instants, the same for any number of shards.
//!
//! A [`Schedule`] walks the list in constant memory; [`Schedule::slice`] keeps every `of`-th entry,
//! so that shards (and hosts) share one list without talking.

use std::sync::Arc;

/// How the gaps of the unit-rate process are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// Independent exponential gaps.
    Poisson,
    /// Equal gaps. Each instant is moved by up to `jitter` x gap to either side (0 to 0.5).
    Constant {
        /// Share of the gap.
        jitter: f64,
    },
    /// Independent gamma gaps of mean 1 and this shape; 1 is Poisson.
    Gamma {
        /// Above 0, finite.
        shape: f64,
    },
}

/// The rate over the time since the phase began.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    rate: f64,
}

impl Profile {
    /// The same rate for ever. `None` unless it is above 0 and at most 1e9/s.
    pub fn constant(rate: f64) -> Option<Profile> {
        (rate > 0.0 && rate <= 1e9).then_some(Profile { rate })
    }

    /// Queries expected up to an instant: the integral of the rate.
    pub fn expected(&self, offset_ns: u64) -> f64 {
        self.rate * offset_ns as f64 / 1e9
    }
}

/// Everything that a schedule is drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulePlan {
    /// The unit-rate process.
    pub process: Process,
    /// Its rate.
    pub profile: Arc<Profile>,
    /// `--seed`.
    pub seed: u64,
    /// Phases of one seed draw from streams of their own.
    pub stream: u64,
    /// Entries; `None`: no end.
    pub count: Option<u64>,
    /// Instants at or after this offset are not part of the list; `None`: no end.
    pub end_ns: Option<u64>,
}

/// One entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Index in the list, from 0.
    pub position: u64,
    /// Since the phase began, ns; never falls.
    pub offset_ns: u64,
}

/// Walks the list.
#[derive(Clone, Debug)]
pub struct Schedule {
    plan: SchedulePlan,
    index: u64,
    of: u64,
    next: u64,
}

impl Schedule {
    /// The whole list.
    pub fn new(plan: &SchedulePlan) -> Schedule {
        Schedule::slice(plan, 0, 1)
    }

    /// Entries `index`, `index + of`, `index + 2 of`, ... of the list.
    pub fn slice(plan: &SchedulePlan, index: u32, of: u32) -> Schedule {
        Schedule { plan: plan.clone(), index: u64::from(index), of: u64::from(of), next: 0 }
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let position = self.index + self.of * self.next;
        self.next += 1;
        let offset_ns = (position as f64 / self.plan.profile.rate * 1e9) as u64;
        let is_part = self.plan.count.is_none_or(|count| position < count)
            && self.plan.end_ns.is_none_or(|end_ns| offset_ns < end_ns);
        is_part.then_some(Arrival { position, offset_ns })
    }
}

/// One entry's part of the schedule hash, which is the wrapping sum over all entries: it does not
/// depend on who counts which.
pub fn hash_of(arrival: Arrival) -> u64 {
    arrival.position ^ arrival.offset_ns
}
