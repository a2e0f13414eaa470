//! How long before an instant a shard must wake: learnt from its own late wake-ups.
//!
//! A timed sleep ends late, by more the longer it was (the CPU sleeps deeper). Each class of sleep
//! length keeps a margin that rises fast on a late wake-up and falls slowly else, so that it hovers
//! where about one wake-up in fifty is later. It begins at the limit: too early costs CPU time, too
//! late costs truth.

use crate::limits::{MARGIN_NS_MAX, MARGIN_NS_MIN};

/// Margins by length of sleep.
#[derive(Clone, Debug)]
pub struct Margin {
    classes: [u64; CLASSES.len() + 1],
}

impl Default for Margin {
    fn default() -> Margin {
        Margin { classes: [MARGIN_NS_MAX; CLASSES.len() + 1] }
    }
}

impl Margin {
    /// How long before its end to wake from a wait of `wait_ns`.
    pub fn of(&self, wait_ns: u64) -> u64 {
        self.classes[class(wait_ns)]
    }

    /// A sleep of `sleep_ns` ended `overshoot_ns` after its instant.
    pub fn learn(&mut self, sleep_ns: u64, overshoot_ns: u64) {
        let margin_ns = &mut self.classes[class(sleep_ns)];
        let next_ns = if overshoot_ns > *margin_ns {
            *margin_ns + (overshoot_ns - *margin_ns) / RISE + 1
        } else {
            *margin_ns - *margin_ns / FALL
        };
        *margin_ns = next_ns.clamp(MARGIN_NS_MIN, MARGIN_NS_MAX);
    }

    /// The largest margin in use, ns.
    pub fn longest_ns(&self) -> u64 {
        self.classes.iter().copied().max().unwrap_or(MARGIN_NS_MAX)
    }
}

fn class(wait_ns: u64) -> usize {
    CLASSES.iter().take_while(|&&limit_ns| wait_ns > limit_ns).count()
}

/// Upper bounds of the classes, ns.
const CLASSES: [u64; 3] = [200_000, 2_000_000, 20_000_000];
/// Part of the excess that a late wake-up adds.
const RISE: u64 = 4;
/// Part of the margin that any other wake-up takes away.
const FALL: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Overshoots uniform in 0..`most_ns` from a small generator.
    fn taught(most_ns: u64, wait_ns: u64) -> Margin {
        let mut margin = Margin::default();
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            margin.learn(wait_ns, (state >> 33) % most_ns);
        }
        margin
    }

    #[test]
    fn margin_settles_near_the_upper_end_of_the_overshoots() {
        for most_ns in [20_000, 60_000, 250_000] {
            let margin = taught(most_ns, 1_000_000);
            let share = margin.of(1_000_000) as f64 / most_ns as f64;
            assert!((0.75..=1.0).contains(&share), "{most_ns}: {share}");
        }
    }

    #[test]
    fn classes_learn_apart_and_stay_within_the_limits() {
        let margin = taught(50_000, 100_000);
        assert!(margin.of(100_000) < 60_000);
        assert_eq!(margin.of(1_000_000), MARGIN_NS_MAX, "has learnt nothing");
        assert_eq!(taught(10_000_000, 100).of(100), MARGIN_NS_MAX);
        assert_eq!(taught(1, 100).of(100), MARGIN_NS_MIN);
        assert_eq!(margin.longest_ns(), MARGIN_NS_MAX);
    }

    #[test]
    fn one_very_late_wake_up_is_forgotten_in_time() {
        let mut margin = taught(20_000, 1_000_000);
        margin.learn(1_000_000, 200_000);
        let after_ns = margin.of(1_000_000);
        assert!(after_ns > 60_000, "{after_ns}");
        (0..1000).for_each(|_| margin.learn(1_000_000, 10_000));
        assert!(margin.of(1_000_000) < 15_000);
    }
}
