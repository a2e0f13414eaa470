//! When queries are due: one seeded list of absolute instants, the same for any number of shards.
//!
//! A unit-rate process is drawn gap by gap, and the integral of the rate ([`Profile`]) maps its
//! time to nanoseconds: a ramped Poisson process is a Poisson process still. A [`Schedule`] walks
//! the list in constant memory and allocates nothing; [`Schedule::slice`] keeps every `of`-th
//! entry, so that shards (and hosts) share one list without talking.
//!
//! The list is a function of the [`SchedulePlan`] and of nothing else. It is the same on every
//! platform, since it is made of ChaCha8, of `libm` compiled from source and of IEEE arithmetic;
//! pinned vectors in the tests notice any change. Instants never fall, and the list ends before
//! one would not fit into 64 bits.

mod draw;
mod fixed;
mod profile;
#[cfg(test)]
mod tests;

use std::iter::FusedIterator;
use std::sync::Arc;

use draw::Source;
pub use profile::{Profile, RATE_MAX, RATE_MIN, SeriesError};

/// How the gaps of the unit-rate process are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// Independent exponential gaps. The first entry comes after the first gap.
    Poisson,
    /// Equal gaps; the first entry comes at once. Each instant is moved by up to `jitter` x gap to
    /// either side, uniformly, and all are later by `jitter` x gap, so that none is before the
    /// begin.
    Constant {
        /// Share of the gap, 0 to 0.5: instants never change places.
        jitter: f64,
    },
    /// Independent gamma gaps of mean 1 and this shape; 1 is Poisson. The first entry comes after
    /// the first gap.
    Gamma {
        /// Above 0, finite.
        shape: f64,
    },
}

impl Process {
    /// Whether the parameter is in its range.
    pub fn is_valid(self) -> bool {
        match self {
            Process::Poisson => true,
            Process::Constant { jitter } => (0.0..=0.5).contains(&jitter),
            Process::Gamma { shape } => shape > 0.0 && shape.is_finite(),
        }
    }
}

/// Everything that a schedule is drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulePlan {
    /// The unit-rate process; valid.
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
    process: Process,
    profile: Arc<Profile>,
    source: Source,
    /// Time of the last gap's end on the unit-rate clock: 64 bits before the point, 64 after it, so
    /// that no number of gaps costs precision.
    units: u128,
    /// Piece of the profile that holds `units`.
    piece: usize,
    /// Entries drawn so far, those of other slices included.
    drawn: u64,
    /// The next entry of ours.
    position: u64,
    of: u64,
    /// Entries of the list at most.
    count: u64,
    /// Every entry of ours is before it.
    end_ns: u64,
    /// Of the last entry of ours.
    offset_ns: u64,
}

impl Schedule {
    /// The whole list.
    pub fn new(plan: &SchedulePlan) -> Schedule {
        Schedule::slice(plan, 0, 1)
    }

    /// Entries `index`, `index + of`, `index + 2 of`, ... of the list. All others are drawn too, as
    /// an instant is the sum of all gaps before it.
    ///
    /// # Panics
    ///
    /// If `index` is not below `of`, or the process is not valid.
    pub fn slice(plan: &SchedulePlan, index: u32, of: u32) -> Schedule {
        assert!(index < of, "slice {index} of {of}");
        assert!(plan.process.is_valid(), "{:?}", plan.process);
        Schedule {
            process: plan.process,
            profile: Arc::clone(&plan.profile),
            source: Source::new(plan.seed, plan.stream),
            units: 0,
            piece: 0,
            drawn: 0,
            position: u64::from(index),
            of: u64::from(of),
            count: plan.count.unwrap_or(u64::MAX),
            end_ns: plan.end_ns.unwrap_or(u64::MAX),
            offset_ns: 0,
        }
    }

    /// Counts the next entries without keeping them, at most `limit` of them. From now on the list
    /// ends at `until_ns`, if it did not end before.
    ///
    /// For entries that a phase leaves when it is stopped, and for whoever checks a hash. A call
    /// draws up to `limit` times as many entries as there are slices.
    pub fn skip_count(&mut self, until_ns: u64, limit: u64) -> Skipped {
        self.end_ns = self.end_ns.min(until_ns);
        let mut skipped = Skipped { count: 0, hash: 0, is_end: false };
        while skipped.count < limit {
            let Some(arrival) = self.next() else {
                skipped.is_end = true;
                break;
            };
            skipped.count += 1;
            skipped.hash = skipped.hash.wrapping_add(hash_of(arrival));
        }
        skipped
    }

    /// Whether the list has ended, and by its count: not by an instant.
    pub fn has_reached_count(&self) -> bool {
        self.position >= self.count && self.position < u64::MAX
    }

    /// Draws the next entry: its time on the unit-rate clock.
    fn draw(&mut self) -> u128 {
        let gap = match self.process {
            Process::Poisson => self.source.exponential(),
            Process::Gamma { shape } => self.source.gamma(shape),
            Process::Constant { jitter } => {
                let whole = fixed::whole(self.drawn);
                self.drawn += 1;
                // Below 1: jitter is at most a half, and no uniform number is 1.
                let shift = if jitter > 0.0 { 2.0 * jitter * self.source.uniform() } else { 0.0 };
                return whole + fixed::from_f64(shift);
            }
        };
        self.drawn += 1;
        self.units = self.units.saturating_add(fixed::from_f64(gap));
        self.units
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let position = self.position;
        if position >= self.count {
            return None;
        }
        while self.drawn < position {
            self.draw();
        }
        let units = self.draw();
        let offset_ns = self.profile.instant(units, &mut self.piece);
        let Some(offset_ns) = offset_ns.filter(|offset_ns| *offset_ns < self.end_ns) else {
            self.position = u64::MAX; // later entries are later
            return None;
        };
        self.position = position.saturating_add(self.of);
        // The inverse of a ramp is exact to rounding only, and so might fall by a nanosecond.
        self.offset_ns = self.offset_ns.max(offset_ns);
        Some(Arrival { position, offset_ns: self.offset_ns })
    }
}

impl FusedIterator for Schedule {}

/// Entries that were counted and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// How many.
    pub count: u64,
    /// Wrapping sum of their [`hash_of`].
    pub hash: u64,
    /// None are left.
    pub is_end: bool,
}

/// One entry's part of the schedule hash, which is the wrapping sum over all entries: it does not
/// depend on who counts which. `mix64(mix64(position + 0x9e3779b97f4a7c15) + offset_ns)`, where
/// additions wrap and `mix64` is the finaliser of SplitMix64.
pub fn hash_of(arrival: Arrival) -> u64 {
    mix64(mix64(arrival.position.wrapping_add(GOLDEN)).wrapping_add(arrival.offset_ns))
}

/// The finaliser of SplitMix64 (Stafford's variant 13): a permutation of 64-bit words in which each
/// bit of the input moves each of the output with probability one half.
pub fn mix64(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// 2^64 over the golden ratio, odd: the step of SplitMix64.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
