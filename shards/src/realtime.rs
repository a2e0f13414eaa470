//! From CLOCK_REALTIME, in which the kernel stamps packets, to the clock of our own stamps.
//!
//! The two run at the same rate, as the kernel slews them alike; what changes their offset is a
//! step: somebody sets the time. So each use brings a fresh bracketed [`Reading`]. It gives the
//! offset to our clock, and its CLOCK_MONOTONIC says whether a step lies between the last reading
//! and this one: a stamp in between is then of no use.

/// The clocks, read in the order of the fields, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Our clock.
    pub before_ns: u64,
    /// CLOCK_REALTIME.
    pub realtime_ns: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// Our clock.
    pub after_ns: u64,
}

impl Reading {
    /// How long it took: what its offsets are uncertain by, ns.
    pub fn width_ns(&self) -> u64 {
        self.after_ns.saturating_sub(self.before_ns)
    }

    /// CLOCK_REALTIME - CLOCK_MONOTONIC, which was read up to `width_ns` later: the offset is not
    /// below it.
    fn kernel_offset_ns(&self) -> i64 {
        self.realtime_ns.wrapping_sub(self.monotonic_ns).cast_signed()
    }
}

/// Notices steps of CLOCK_REALTIME.
#[derive(Clone, Copy, Debug)]
pub struct RealtimeMap {
    /// The tightest reading since the last step.
    kept: Reading,
}

impl RealtimeMap {
    /// Begins with a reading.
    pub fn new(reading: Reading) -> RealtimeMap {
        RealtimeMap { kept: reading }
    }

    /// The mapping for stamps between the last reading and this one. `None`: CLOCK_REALTIME has
    /// been set in between.
    pub fn at(&mut self, reading: Reading) -> Option<Mapping> {
        let change_ns = reading.kernel_offset_ns() - self.kept.kernel_offset_ns();
        let width_ns = if change_ns < 0 { reading.width_ns() } else { self.kept.width_ns() };
        let has_stepped = change_ns.unsigned_abs() > width_ns + SLACK_NS;
        if has_stepped || reading.width_ns() < self.kept.width_ns() {
            self.kept = reading;
        }
        let middle_ns = reading.before_ns + reading.width_ns() / 2;
        let offset_ns = reading.realtime_ns.wrapping_sub(middle_ns).cast_signed();
        let error_ns = reading.width_ns().div_ceil(2);
        (!has_stepped).then_some(Mapping { offset_ns, middle_ns, error_ns })
    }
}

/// A map from CLOCK_REALTIME to our clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    offset_ns: i64,
    /// When it was read, on our clock.
    middle_ns: u64,
    error_ns: u64,
}

impl Mapping {
    /// Our clock at an instant of CLOCK_REALTIME, and how far that may be off, ns.
    pub fn to_ours(&self, realtime_ns: u64) -> Mapped {
        let at_ns = realtime_ns.wrapping_sub(self.offset_ns.cast_unsigned());
        let age_ns = self.middle_ns.abs_diff(at_ns);
        Mapped { at_ns, error_ns: self.error_ns + age_ns / RATE_ERROR_DIVISOR }
    }
}

/// A stamp of the kernel on our clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// When, ns.
    pub at_ns: u64,
    /// At most so far off, ns.
    pub error_ns: u64,
}

/// Reads of the counter may overtake each other by some nanoseconds.
const SLACK_NS: u64 = 50;
/// Our clock is slewed and calibrated to about 1 ppm of the time since a stamp.
const RATE_ERROR_DIVISOR: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Our clock and CLOCK_MONOTONIC agree; the reads are `width_ns` / 3 apart.
    fn reading(at_ns: u64, offset_ns: u64, width_ns: u64) -> Reading {
        Reading {
            before_ns: at_ns,
            realtime_ns: at_ns + width_ns / 3 + offset_ns,
            monotonic_ns: at_ns + 2 * width_ns / 3,
            after_ns: at_ns + width_ns,
        }
    }

    #[test]
    fn stamp_comes_back_within_its_error() {
        let offset_ns = 1_700_000_000_000_000_000;
        let mut map = RealtimeMap::new(reading(1000, offset_ns, 60));
        for width_ns in [30, 60, 90, 300, 100_000] {
            let mapping = map.at(reading(5_000_000, offset_ns, width_ns)).expect("no step");
            let mapped = mapping.to_ours(4_000_000 + offset_ns);
            assert!(mapped.at_ns.abs_diff(4_000_000) <= mapped.error_ns, "{mapped:?}");
            assert!((width_ns / 2..=width_ns / 2 + 3).contains(&mapped.error_ns), "{mapped:?}");
        }
        // One second earlier, the rates are an error of their own: 1 ppm of it.
        let mapping = map.at(reading(1_000_000_000, offset_ns, 60)).expect("no step");
        assert_eq!(mapping.to_ours(offset_ns).error_ns, 30 + 1000);
    }

    #[test]
    fn step_in_either_direction_is_noticed_once() {
        for step_ns in [-1_000_000_000, -10_000, 10_000, 1_000_000_000i64] {
            let (old_ns, at_ns) = (1_700_000_000_000_000_000u64, 1000);
            let new_ns = old_ns.checked_add_signed(step_ns).expect("small");
            let mut map = RealtimeMap::new(reading(at_ns, old_ns, 60));
            assert!(map.at(reading(at_ns + 100, old_ns, 60)).is_some());
            assert_eq!(map.at(reading(at_ns + 200, new_ns, 60)), None, "{step_ns}");
            assert!(map.at(reading(at_ns + 300, new_ns, 90)).is_some(), "{step_ns}");
        }
    }

    #[test]
    fn wide_readings_are_no_steps_and_do_not_replace_tight_ones() {
        let offset_ns = 1_700_000_000_000_000_000;
        let mut map = RealtimeMap::new(reading(0, offset_ns, 900_000));
        assert!(map.at(reading(2_000_000, offset_ns, 60)).is_some(), "from wide to tight");
        assert!(map.at(reading(4_000_000, offset_ns, 900_000)).is_some(), "and back");
        assert_eq!(map.at(reading(6_000_000, offset_ns + 1000, 60)), None, "still as sharp");
    }
}
