//! The clock of every stamp: the CPU's time-stamp counter, read by `quanta`, calibrated by
//! ourselves.
//!
//! `quanta`'s own start-up calibration is off by up to 18 ppm. Ours brackets reads of the counter
//! between two reads of CLOCK_MONOTONIC and keeps the tightest pair; two such pairs 20 ms apart
//! give the rate to about 0.5 ppm, and control refreshes it each interval from pairs ever further
//! apart. A refreshed [`Calibration`] continues the old one where it begins and corrects the
//! remaining error by its slope, so that time never steps and never runs backwards. Without an
//! invariant counter `quanta` reads CLOCK_MONOTONIC itself, and so do we.

use std::time::Duration;

use quanta::Clock as Counter;

use crate::limits::INTERVAL_NS;
use crate::sys::time::{monotonic_ns, monotonic_raw_ns};

/// A map from counter ticks to CLOCK_MONOTONIC ns: a line that corrects an error until it joins the
/// line of the true rate, and that one from there on, however late the next calibration comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    anchor_ticks: u64,
    anchor_ns: u64,
    /// ns per tick until the lines join, times 2^32.
    scale: u64,
    /// Where they join.
    join_ticks: u64,
    join_ns: u64,
    /// ns per tick from there on, times 2^32.
    rate: u64,
}

impl Calibration {
    /// Ticks are ns: the virtual clock of tests.
    pub const IDENTITY: Calibration = Calibration::line(0, 0, 1 << SCALE_BITS);

    /// One line through a point.
    const fn line(ticks: u64, ns: u64, scale: u64) -> Calibration {
        Calibration {
            anchor_ticks: ticks,
            anchor_ns: ns,
            scale,
            join_ticks: ticks,
            join_ns: ns,
            rate: scale,
        }
    }

    fn through(first: Pair, last: Pair) -> Calibration {
        let ticks = (last.ticks - first.ticks).max(1);
        let ns = last.ns - first.ns;
        let scale = ((u128::from(ns) << SCALE_BITS) / u128::from(ticks)) as u64;
        Calibration::line(last.ticks, last.ns, scale)
    }

    /// CLOCK_MONOTONIC ns of a counter value, on either side of the anchor.
    pub fn to_ns(&self, ticks: u64) -> u64 {
        if ticks >= self.join_ticks {
            self.join_ns + scaled(ticks - self.join_ticks, self.rate)
        } else if ticks >= self.anchor_ticks {
            self.anchor_ns + scaled(ticks - self.anchor_ticks, self.scale)
        } else {
            self.anchor_ns - scaled(self.anchor_ticks - ticks, self.scale)
        }
    }

    /// Ticks per second.
    pub fn ticks_per_s(&self) -> f64 {
        1e9 * (1u64 << SCALE_BITS) as f64 / self.rate as f64
    }

    /// Continues this line at `pair.ticks`, meets the line of the rate of `rate` through `pair`
    /// after `over_ns`, and follows that from there on.
    fn slewed(&self, pair: Pair, rate: Calibration, over_ns: u64) -> Calibration {
        let now_ns = self.to_ns(pair.ticks);
        let error_ns = pair.ns as i64 - now_ns as i64;
        // At most half the rate away, whatever the error: time goes on, and never backwards.
        let share = (error_ns as f64 / over_ns as f64).clamp(-0.5, 0.5);
        let scale = (rate.rate as f64 * (1.0 + share)) as u64;
        let over_ticks = ((u128::from(over_ns) << SCALE_BITS) / u128::from(rate.rate)) as u64;
        Calibration {
            anchor_ticks: pair.ticks,
            anchor_ns: now_ns,
            scale,
            join_ticks: pair.ticks + over_ticks,
            join_ns: now_ns + scaled(over_ticks, scale),
            rate: rate.rate,
        }
    }
}

fn scaled(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> SCALE_BITS) as u64
}

/// A counter value and the CLOCK_MONOTONIC instant at which it was read.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    ns: u64,
    /// Half the width of the bracket: the error of `ns`.
    error_ns: u64,
}

/// Reads the counter.
#[derive(Clone, Debug)]
pub struct Clock {
    counter: Counter,
    calibration: Calibration,
}

impl Clock {
    /// A clock that follows `calibration`.
    pub fn new(calibration: Calibration) -> Clock {
        Clock { counter: Counter::new(), calibration }
    }

    /// CLOCK_MONOTONIC in ns, at the cost of one counter read (about 10 ns).
    pub fn now_ns(&self) -> u64 {
        self.calibration.to_ns(self.counter.raw())
    }

    /// How far it is from CLOCK_MONOTONIC now, on the core that asks, ns.
    pub fn error_ns(&self) -> i64 {
        let pair = bracketed_pair(&self.counter);
        self.calibration.to_ns(pair.ticks) as i64 - pair.ns as i64
    }

    /// Follows another calibration from now on: goes on from where it is and meets the new line
    /// after an interval. It may have been made long before, so its own begin is no place to join.
    pub fn set(&mut self, calibration: Calibration) {
        let ticks = self.counter.raw();
        let pair = Pair { ticks, ns: calibration.to_ns(ticks), error_ns: 0 };
        self.calibration = self.calibration.slewed(pair, calibration, INTERVAL_NS);
    }
}

/// Control's side: makes the first calibration and refreshes it.
#[derive(Debug)]
pub struct Calibrator {
    counter: Counter,
    first: Pair,
    /// The second pair of the first calibration.
    base: Pair,
    last: Pair,
    first_raw: RawPair,
    last_raw: RawPair,
    current: Calibration,
    error_ns_max: u64,
    read_cost_ns: f64,
}

/// CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW at the same instant.
#[derive(Clone, Copy, Debug)]
struct RawPair {
    ns: u64,
    raw_ns: u64,
    error_ns: u64,
}

impl Calibrator {
    /// Takes the first pair; [`Calibrator::finish`] takes the second, at least 20 ms later. What
    /// happens in between (connections open) is not delayed by it.
    pub fn begin() -> Calibrator {
        let counter = Counter::new();
        let read_cost_ns = read_cost_ns(&counter);
        let first_raw = raw_pair();
        let first = bracketed_pair(&counter);
        Calibrator {
            counter,
            first,
            base: first,
            last: first,
            first_raw,
            last_raw: first_raw,
            current: Calibration::IDENTITY,
            error_ns_max: 0,
            read_cost_ns,
        }
    }

    /// A first idea of the rate, from a pair at least 1 ms after the first: some 10 ppm, good for
    /// timeouts.
    pub fn provisional(&mut self) -> Calibration {
        let elapsed = Duration::from_nanos(monotonic_ns() - self.first.ns);
        std::thread::sleep(Duration::from_millis(1).saturating_sub(elapsed));
        self.current = Calibration::through(self.first, bracketed_pair(&self.counter));
        self.current
    }

    /// Completes the first calibration, sleeping for what is left of the 20 ms.
    pub fn finish(&mut self) -> Calibration {
        let elapsed = Duration::from_nanos(monotonic_ns() - self.first.ns);
        std::thread::sleep(BASE.saturating_sub(elapsed));
        self.base = bracketed_pair(&self.counter);
        self.current = Calibration::through(self.first, self.base);
        self.current
    }

    /// A new pair, and the calibration that corrects over `over_ns` what the last one has got
    /// wrong.
    pub fn refresh(&mut self, over_ns: u64) -> Calibration {
        let pair = bracketed_pair(&self.counter);
        let error_ns = self.current.to_ns(pair.ticks).abs_diff(pair.ns);
        self.error_ns_max = self.error_ns_max.max(error_ns.saturating_sub(pair.error_ns));
        let rate = Calibration::through(self.first, pair);
        self.current = self.current.slewed(pair, rate, over_ns);
        (self.last, self.last_raw) = (pair, raw_pair());
        self.current
    }

    /// The current calibration.
    pub fn current(&self) -> Calibration {
        self.current
    }

    /// Largest disagreement with CLOCK_MONOTONIC found by [`Calibrator::refresh`], less the error
    /// of the check, ns.
    pub fn error_ns_max(&self) -> u64 {
        self.error_ns_max
    }

    /// How far the rate of the first 20 ms was from that of the whole run, less what the readings
    /// can be wrong by, ppm; `None` before the first [`Calibrator::refresh`].
    pub fn drift_ppm(&self) -> Option<f64> {
        let (first, base, last) = (self.first, self.base, self.last);
        if last.ns <= base.ns || base.ns <= first.ns {
            return None;
        }
        let rate = |pair| Calibration::through(first, pair).ticks_per_s();
        let error_ppm = |pair: Pair| ppm(first.error_ns + pair.error_ns, pair.ns - first.ns);
        let drift_ppm = (rate(base) / rate(last) - 1.0) * 1e6;
        Some(less(drift_ppm, error_ppm(base) + error_ppm(last)))
    }

    /// How far CLOCK_MONOTONIC went from the uncorrected clock over the run, less what the readings
    /// can be wrong by, ppm: what time synchronisation did to the clock of the stamps. `None`
    /// before the first [`Calibrator::refresh`].
    pub fn raw_ppm(&self) -> Option<f64> {
        let (first, last) = (self.first_raw, self.last_raw);
        let span_ns = last.raw_ns.checked_sub(first.raw_ns).filter(|span_ns| *span_ns > 0)?;
        let ahead_ns = (last.ns - first.ns) as f64 - span_ns as f64;
        let error_ppm = ppm(first.error_ns + last.error_ns, span_ns);
        Some(less(ahead_ns / span_ns as f64 * 1e6, error_ppm))
    }

    /// What one reading of the counter costs, ns.
    pub fn read_cost_ns(&self) -> f64 {
        self.read_cost_ns
    }
}

fn ppm(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 / whole_ns as f64 * 1e6
}

/// Nearer to 0 by `error`.
fn less(value: f64, error: f64) -> f64 {
    value.signum() * (value.abs() - error).max(0.0)
}

/// Where ticks come from: `tsc` when the counter is invariant, else `clock_gettime`.
pub fn source() -> &'static str {
    let invariant = !cfg!(target_arch = "x86_64")
        || std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| {
            text.lines().find(|line| line.starts_with("flags")).is_some_and(|flags| {
                let has = |name| flags.split_ascii_whitespace().any(|flag| flag == name);
                has("constant_tsc") && has("nonstop_tsc")
            })
        });
    if invariant { "tsc" } else { "clock_gettime" }
}

/// The tightest of a few brackets: a preempted one is wide and loses.
fn bracketed_pair(counter: &Counter) -> Pair {
    (0..BRACKETS)
        .map(|_| {
            let before_ns = monotonic_ns();
            let ticks = counter.raw();
            let width_ns = monotonic_ns() - before_ns;
            Pair { ticks, ns: before_ns + width_ns / 2, error_ns: width_ns / 2 }
        })
        .min_by_key(|pair| pair.error_ns)
        .expect("at least one bracket")
}

/// As [`bracketed_pair`], of the two kernel clocks.
fn raw_pair() -> RawPair {
    (0..BRACKETS)
        .map(|_| {
            let before_ns = monotonic_ns();
            let raw_ns = monotonic_raw_ns();
            let width_ns = monotonic_ns() - before_ns;
            RawPair { ns: before_ns + width_ns / 2, raw_ns, error_ns: width_ns / 2 }
        })
        .min_by_key(|pair| pair.error_ns)
        .expect("at least one bracket")
}

/// The least of a few means: nothing came between the reads of that one.
fn read_cost_ns(counter: &Counter) -> f64 {
    let mean_ns = |_| {
        let before_ns = monotonic_ns();
        (0..READS).for_each(|_| {
            std::hint::black_box(counter.raw());
        });
        (monotonic_ns() - before_ns) as f64 / f64::from(READS)
    };
    (0..BRACKETS).map(mean_ns).fold(f64::INFINITY, f64::min)
}

const SCALE_BITS: u32 = 32;
/// Time between the pairs of the first calibration: two errors of 5 ns over it are 0.5 ppm.
const BASE: Duration = Duration::from_millis(20);
const BRACKETS: u32 = 32;
/// Reads whose mean is taken; with [`BRACKETS`], some 20 us before the run.
const READS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibrated_clock_follows_clock_monotonic() {
        let mut calibrator = Calibrator::begin();
        let mut clock = Clock::new(calibrator.finish());
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            let before_ns = monotonic_ns();
            let now_ns = clock.now_ns();
            let after_ns = monotonic_ns();
            // 100 us: a preemption between the reads of a busy machine, not the clock's error.
            assert!(now_ns + 100_000 > before_ns, "{now_ns} {before_ns}");
            assert!(now_ns < after_ns + 100_000, "{now_ns} {after_ns}");
            clock.set(calibrator.refresh(20_000_000));
        }
    }

    fn pair(ticks: u64, ns: u64, error_ns: u64) -> Pair {
        Pair { ticks, ns, error_ns }
    }

    #[test]
    fn drift_and_distance_from_the_raw_clock_are_told_less_the_errors_of_the_readings() {
        let mut calibrator = Calibrator::begin();
        assert_eq!((calibrator.drift_ppm(), calibrator.raw_ppm()), (None, None), "not refreshed");
        // One tick a ns over 20 ms, then 60 ppm more of them: the whole run had 59.4 ppm more.
        calibrator.first = pair(0, 1_000_000_000, 0);
        calibrator.base = pair(20_000_000, 1_020_000_000, 0);
        calibrator.last = pair(2_000_118_800, 3_000_000_000, 0);
        calibrator.first_raw = RawPair { ns: 5_000, raw_ns: 77, error_ns: 0 };
        calibrator.last_raw =
            RawPair { ns: 2_000_005_000 - 80_000, raw_ns: 2_000_000_077, error_ns: 0 };
        let told = |calibrator: &Calibrator| {
            let (drift, raw) = (calibrator.drift_ppm(), calibrator.raw_ppm());
            drift.zip(raw).expect("refreshed")
        };
        let (drift, raw) = told(&calibrator);
        assert!((drift + 59.4).abs() < 0.1, "{drift}");
        assert!((raw + 40.0).abs() < 0.1, "{raw}");
        // 400 ns over 20 ms are 20 ppm, over 2 s 0.2 ppm.
        calibrator.base.error_ns = 400;
        calibrator.last_raw.error_ns = 400;
        let (drift, raw) = told(&calibrator);
        assert!((drift + 39.4).abs() < 0.1, "{drift}");
        assert!((raw + 39.8).abs() < 0.1, "{raw}");
        assert!(calibrator.read_cost_ns() > 0.0);
    }

    #[test]
    fn refreshed_calibration_neither_steps_nor_turns_back() {
        let old = Calibration::line(1000, 5000, 1 << SCALE_BITS);
        for error_ns in [-1_000_000_000, -300, 0, 300, 1_000_000_000i64] {
            let ticks = 2_000_001_000;
            let pair = Pair { ticks, ns: (2_000_005_000 + error_ns) as u64, error_ns: 0 };
            let new = old.slewed(pair, old, 250_000_000);
            assert_eq!(new.to_ns(ticks), old.to_ns(ticks), "no step");
            assert!(new.to_ns(ticks + 1000) > new.to_ns(ticks), "forward");
            if error_ns.abs() < 1000 {
                let target = (pair.ns + 250_000_000) as i64;
                let met = new.to_ns(ticks + 250_000_000) as i64;
                assert!((met - target).abs() <= 1, "{error_ns}: {met} {target}");
            }
        }
    }

    #[test]
    fn calibration_that_comes_late_neither_steps_nor_turns_back() {
        for error_ns in [-1_000_000, 1_000_000i64] {
            let counter = Counter::new();
            let (anchor_ticks, anchor_ns) = (counter.raw(), 1_000_000_000_000);
            let old = Calibration::line(anchor_ticks, anchor_ns, 1 << SCALE_BITS);
            let moved_ns = anchor_ns.checked_add_signed(error_ns).expect("small");
            let new = Calibration::line(anchor_ticks, moved_ns, 1 << SCALE_BITS);
            let mut clock = Clock::new(old);
            let before_ns = clock.now_ns();
            clock.set(new);
            let now_ns = clock.now_ns();
            assert!(now_ns >= before_ns, "back by {}", before_ns - now_ns);
            assert!(now_ns - before_ns < 900_000, "a step of {}", now_ns - before_ns);
            let span = clock.calibration.anchor_ticks + INTERVAL_NS;
            assert!(clock.calibration.to_ns(span).abs_diff(new.to_ns(span)) <= 1, "meets it");
        }
    }

    #[test]
    fn map_is_exact_on_both_sides_of_the_anchor() {
        let map = Calibration::line(10, 100, 2 << SCALE_BITS);
        assert_eq!([5, 10, 15].map(|ticks| map.to_ns(ticks)), [90, 100, 110]);
        assert!((map.ticks_per_s() - 5e8).abs() < 1.0);
    }

    #[test]
    fn calibrations_that_come_late_again_and_again_do_not_swing() {
        // Control is starved: refreshed each 2.5 s, with corrections meant for 250 ms.
        let rate = Calibration::line(0, 0, 1 << SCALE_BITS);
        let mut current = Calibration::line(0, 1_000, 1 << SCALE_BITS);
        for refresh in 1..100 {
            let at = refresh * 2_500_000_000;
            let error_ns = current.to_ns(at) as i64 - at as i64;
            let limit_ns = if refresh == 1 { 1_000 } else { 2 };
            assert!(error_ns.abs() <= limit_ns, "{refresh}: {error_ns}");
            current = current.slewed(Pair { ticks: at, ns: at, error_ns: 0 }, rate, INTERVAL_NS);
        }
    }
}
