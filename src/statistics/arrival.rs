//! Do arrivals follow the process that was asked for?
//!
//! Every test is against a distribution known in advance; estimating its mean from the sample
//! would make the significance levels wrong. With 10 000 gaps the tests see microseconds of
//! lateness, so each p-value comes with an effect size (`ks`, `cv2`) that says whether it matters.

use statrs::function::gamma::{gamma_lr, gamma_ur};

use super::{
    Draws, bridge_survival, lag1_correlation, lag1_rank_correlation, mean, sorted, variance,
};

/// The distribution that values should have, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Null {
    /// Gaps of a Poisson process.
    Exponential {
        /// Mean gap.
        mean: f64,
    },
    /// Gaps whose CV^2 is 1/shape; a Poisson process dealt out to k shards in turn has shape k.
    Gamma {
        /// Above 0; 1 is the exponential distribution.
        shape: f64,
        /// Mean gap.
        mean: f64,
    },
    /// Poisson instants, given their number; or values of a CDF with 0 and 1.
    Uniform {
        /// Smallest possible value.
        low: f64,
        /// Largest possible value.
        high: f64,
    },
}

impl Null {
    /// Probability of a value of at most `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        if x <= 0.0 && !matches!(self, Null::Uniform { .. }) {
            return 0.0;
        }
        match *self {
            Null::Exponential { mean } => -(-x / mean).exp_m1(),
            Null::Gamma { shape, mean } => gamma_lr(shape, x * shape / mean),
            Null::Uniform { low, high } => ((x - low) / (high - low)).clamp(0.0, 1.0),
        }
    }

    /// Logarithm of the probability of a larger value, without the rounding of 1 - cdf: a gap of 40
    /// means is rare, not impossible.
    fn ln_survival(&self, x: f64) -> f64 {
        if x <= 0.0 && !matches!(self, Null::Uniform { .. }) {
            return 0.0;
        }
        match *self {
            Null::Exponential { mean } => -x / mean,
            Null::Gamma { shape, mean } => gamma_ur(shape, x * shape / mean).ln(),
            Null::Uniform { .. } => (-self.cdf(x)).ln_1p(),
        }
    }
}

/// How far two distributions are apart, and how likely chance alone would do that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Kolmogorov-Smirnov D: the largest gap between the two CDFs, 0 to 1.
    pub d: f64,
    /// Probability of a D at least as large if the distributions are the same; asymptotic.
    pub p: f64,
}

/// How gaps compare with the distribution they should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapFit {
    /// Gaps that were judged.
    pub count: usize,
    /// Anderson-Darling statistic; infinite if a gap is impossible, as 0 is.
    pub a2: f64,
    /// Its p-value; 0 if it is infinite.
    pub a2_p: f64,
    /// Kolmogorov-Smirnov distance.
    pub ks: Distance,
    /// Variance over mean^2; 1 for a Poisson process.
    pub cv2: Option<f64>,
    /// Correlation of successive gaps; beyond 1.96/sqrt(count) it is no chance.
    pub lag1: Option<f64>,
    /// The same of their ranks.
    pub rank_lag1: Option<f64>,
}

/// Judges gaps in the order in which they came; `None` without any.
pub fn gap_fit(gaps: &[f64], null: &Null) -> Option<GapFit> {
    let a2 = anderson_darling(gaps, null)?;
    Some(GapFit {
        count: gaps.len(),
        a2,
        a2_p: anderson_darling_p(gaps.len(), a2),
        ks: ks_distance(gaps, null)?,
        cv2: cv2(gaps),
        lag1: lag1_correlation(gaps),
        rank_lag1: lag1_rank_correlation(gaps),
    })
}

/// Anderson and Darling's A^2: squared distance of two CDFs with the tails weighted heavily.
///
/// Infinite if a value is impossible. Stamps that coincide make gaps of 0, so give such stamps to
/// [`break_ties`] first. `None` without values.
pub fn anderson_darling(values: &[f64], null: &Null) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let sorted = sorted(values);
    let n = sorted.len() as f64;
    let pairs = sorted.iter().zip(sorted.iter().rev()).enumerate();
    let sum: f64 = pairs
        .map(|(i, (x, mirrored))| {
            (2 * i + 1) as f64 * (null.cdf(*x).ln() + null.ln_survival(*mirrored))
        })
        .sum();
    Some(-n - sum / n)
}

/// Probability of an A^2 at least this large if the sample of `count` has the distribution.
///
/// Marsaglia and Marsaglia, "Evaluating the Anderson-Darling distribution" (2004), to about 1e-5;
/// what it says below that only means "very small".
pub fn anderson_darling_p(count: usize, a2: f64) -> f64 {
    if !a2.is_finite() {
        return 0.0;
    }
    if a2 <= 0.0 {
        return 1.0;
    }
    let p_limit = anderson_darling_limit_p(a2);
    (p_limit - anderson_darling_correction(count as f64, 1.0 - p_limit)).clamp(0.0, 1.0)
}

/// The p-value for a sample without end.
fn anderson_darling_limit_p(z: f64) -> f64 {
    if z < 2.0 {
        let factors = [2.00012, 0.247105, -0.0649821, 0.0347962, -0.011672, 0.00168691];
        1.0 - (-1.2337141 / z).exp() / z.sqrt() * polynomial(z, &factors)
    } else {
        let factors = [1.0776, -2.30695, 0.43424, -0.082433, 0.008056, -0.0003146];
        -(-polynomial(z, &factors).exp()).exp_m1()
    }
}

/// What a sample of `n` adds to the limiting CDF where that is `x`.
fn anderson_darling_correction(n: f64, x: f64) -> f64 {
    if x > 0.8 {
        let factors = [-130.2137, 745.2337, -1705.091, 1950.646, -1116.360, 255.7844];
        return polynomial(x, &factors) / n;
    }
    let crossing = 0.01265 + 0.1757 / n;
    if x < crossing {
        let v = x / crossing;
        let shape = v.sqrt() * (1.0 - v) * (49.0 * v - 102.0);
        return shape * (0.0037 / n.powi(2) + 0.00078 / n + 0.00006) / n;
    }
    let v = (x - crossing) / (0.8 - crossing);
    let factors = [-0.00022633, 6.54034, -14.6538, 14.458, -8.259, 1.91864];
    polynomial(v, &factors) * (0.04213 + 0.01365 / n) / n
}

/// The sum of factor k times x^k.
fn polynomial(x: f64, factors: &[f64]) -> f64 {
    factors.iter().rev().fold(0.0, |sum, factor| sum * x + factor)
}

/// Distance of a sample from a distribution; `None` without values.
pub fn ks_distance(values: &[f64], null: &Null) -> Option<Distance> {
    if values.is_empty() {
        return None;
    }
    let sorted = sorted(values);
    let n = sorted.len() as f64;
    let steps = sorted.iter().enumerate().map(|(i, x)| {
        let cdf = null.cdf(*x);
        (cdf - i as f64 / n).max((i + 1) as f64 / n - cdf)
    });
    Some(distance(n, steps.fold(0.0, f64::max)))
}

/// Distance of two samples; `None` if one is empty.
pub fn ks_two_samples(a: &[f64], b: &[f64]) -> Option<Distance> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let (a, b) = (sorted(a), sorted(b));
    let (mut i, mut j, mut d) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        // All values equal to the smaller head, of both samples: a gap is only there between them.
        let x = a[i].min(b[j]);
        i += a[i..].iter().take_while(|value| **value <= x).count();
        j += b[j..].iter().take_while(|value| **value <= x).count();
        d = d.max((i as f64 / n - j as f64 / m).abs());
    }
    Some(distance(n * m / (n + m), d))
}

/// With Stephens' correction, which makes the limit good from about 10 values on.
fn distance(n: f64, d: f64) -> Distance {
    let root = n.sqrt();
    Distance { d, p: bridge_survival((root + 0.12 + 0.11 / root) * d) }
}

/// Conditional uniform test: given their number, Poisson instants are uniform over the interval.
/// It sees a drift of the rate that no test of the gaps sees. `None` without instants.
pub fn conditional_uniform(instants: &[f64], begin: f64, end: f64) -> Option<Distance> {
    ks_distance(instants, &Null::Uniform { low: begin, high: end })
}

/// Variance over squared mean: 1 exponential, 0 constant. `None` below two values or if the mean is
/// 0.
pub fn cv2(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean != 0.0)?;
    Some(variance(values)? / mean.powi(2))
}

/// Counts of instants in each whole bin of `[begin, end)`, all in the same unit.
pub fn bin_counts(instants: &[f64], begin: f64, end: f64, bin: f64) -> Vec<u64> {
    let mut counts = vec![0; ((end - begin) / bin).floor().max(0.0) as usize];
    for instant in instants.iter().filter(|instant| **instant >= begin) {
        if let Some(count) = counts.get_mut(((instant - begin) / bin) as usize) {
            *count += 1;
        }
    }
    counts
}

/// Variance over mean of counts, 1 for a Poisson process; `None` below two bins or if all are
/// empty. Chance stays within 1 +- 3 sqrt(2/bins).
pub fn dispersion(counts: &[u64]) -> Option<f64> {
    let counts: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
    let mean = mean(&counts).filter(|mean| *mean > 0.0)?;
    Some(variance(&counts)? / mean)
}

/// Instants in ns after the first stamp, ascending, from stamps that a clock cut down to its tick.
///
/// A stamp stands for some instant within its tick, so every one of them moves by a uniform part of
/// it, not only those that coincide: else the others would stay on a grid that a Poisson process
/// does not know.
pub fn break_ties(stamps_ns: &[u64], tick_ns: f64, seed: u64) -> Vec<f64> {
    let first_ns = stamps_ns.iter().min().copied().unwrap_or(0);
    let mut draws = Draws(seed);
    let instants = stamps_ns.iter().map(|stamp| (stamp - first_ns) as f64);
    let mut instants: Vec<f64> = instants.map(|at| at + draws.uniform() * tick_ns).collect();
    instants.sort_unstable_by(f64::total_cmp);
    instants
}

/// The KS distance that Poisson gaps have at least if one core sends them one after the other, each
/// send taking `send_ns`: no gap can be shorter, and that share of gaps should be.
pub fn serial_send_floor(rate_per_second: f64, send_ns: f64) -> f64 {
    -(-rate_per_second * send_ns / 1e9).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::super::simulation::exponential;
    use super::*;

    const MEAN_1: Null = Null::Exponential { mean: 1.0 };

    #[track_caller]
    fn assert_close(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance, "{value} is not {expected}");
    }

    /// The values at the middles of n slices of equal probability.
    fn exponential_grid(n: u32) -> Vec<f64> {
        (1..=n).map(|i| -(1.0 - (f64::from(i) - 0.5) / f64::from(n)).ln()).collect()
    }

    fn exponential_gaps(seed: u64, count: usize) -> Vec<f64> {
        let mut draws = Draws(seed);
        (0..count).map(|_| exponential(&mut draws)).collect()
    }

    fn gaps_of(instants: &[f64]) -> Vec<f64> {
        instants.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn anderson_darling_matches_pinned_vectors() {
        let mean_1_1 = Null::Exponential { mean: 1.1 };
        let a2 = |n, null| anderson_darling(&exponential_grid(n), &null).expect("not empty");
        assert_close(a2(10, MEAN_1), 0.076579714, 1e-6);
        assert_close(a2(100, MEAN_1), 0.011495133, 1e-6);
        assert_close(a2(10, mean_1_1), 0.112982958, 1e-6);
        assert_close(a2(100, mean_1_1), 0.371049017, 1e-6);
        let constant = gap_fit(&[1.0; 100], &MEAN_1).expect("not empty");
        assert_close(constant.a2, 45.87, 5e-3);
        assert_close(constant.ks.d, 0.6321, 5e-5);
        assert_eq!((constant.cv2, constant.lag1), (Some(0.0), None));
        assert!(constant.a2_p < 1e-4, "{constant:?}");
        assert!(constant.ks.p < 1e-6, "{constant:?}");
    }

    #[test]
    fn uniform_values_of_a_cdf_give_the_same_statistic_as_the_values_themselves() {
        let gaps = exponential_gaps(3, 500);
        let uniforms: Vec<f64> = gaps.iter().map(|gap| MEAN_1.cdf(*gap)).collect();
        let uniform = Null::Uniform { low: 0.0, high: 1.0 };
        let shape_1 = Null::Gamma { shape: 1.0, mean: 1.0 };
        let expected = anderson_darling(&gaps, &MEAN_1).expect("not empty");
        assert_close(anderson_darling(&uniforms, &uniform).expect("not empty"), expected, 1e-9);
        assert_close(anderson_darling(&gaps, &shape_1).expect("not empty"), expected, 1e-9);
    }

    #[test]
    fn p_values_reproduce_the_critical_values_of_a_known_distribution() {
        let points = [(0.10, 1.933), (0.05, 2.492), (0.025, 3.070), (0.01, 3.857), (0.001, 5.97)];
        for (p, a2) in points {
            assert_close(anderson_darling_limit_p(a2), p, 3e-4);
            assert_close(anderson_darling_p(1_000_000, a2), p, 3e-4);
        }
        // The two formulas meet, and the p-value falls with A2 all the way.
        let mut last = 1.0;
        for step in 1..4000 {
            let p = anderson_darling_p(100, f64::from(step) / 200.0);
            assert!(p <= last + 1e-6, "{step}");
            last = p;
        }
        assert_eq!(anderson_darling_p(10, f64::INFINITY), 0.0);
        assert_eq!(anderson_darling_p(10, 0.0), 1.0);
    }

    #[test]
    fn p_values_of_poisson_gaps_are_uniform() {
        let fits = (0..200)
            .map(|seed| gap_fit(&exponential_gaps(seed, 2000), &MEAN_1).expect("there are gaps"));
        let fits: Vec<GapFit> = fits.collect();
        let share = |is_below: &dyn Fn(&GapFit) -> bool| {
            fits.iter().filter(|fit| is_below(fit)).count() as f64 / fits.len() as f64
        };
        for level in [0.05, 0.5] {
            let allowed = 3.0 * (level * (1.0 - level) / 200.0f64).sqrt();
            assert_close(share(&|fit| fit.a2_p < level), level, allowed);
            assert_close(share(&|fit| fit.ks.p < level), level, allowed);
        }
        assert!(share(&|fit| fit.a2_p < 0.01) <= 0.03);
        assert_close(
            share(&|fit| fit.lag1.is_some_and(|r| r.abs() * 2000f64.sqrt() > 1.96)),
            0.05,
            0.05,
        );
    }

    /// 10 000 instants of a Poisson process of rate 1, each late by an exponential time of mean
    /// `lateness`, but never before its predecessor.
    fn late_instants(seed: u64, lateness: f64) -> Vec<f64> {
        let mut draws = Draws(seed);
        let (mut planned, mut last) = (0.0f64, 0.0f64);
        let instants = (0..10_001).map(|_| {
            planned += exponential(&mut draws);
            last = last.max(planned + lateness * exponential(&mut draws));
            last
        });
        instants.collect()
    }

    /// Stamps in ns of instants whose unit is 1 ms, cut down to a tick.
    fn stamps(instants: &[f64], tick_ns: u64) -> Vec<u64> {
        instants.iter().map(|at| (at * 1e6) as u64 / tick_ns * tick_ns).collect()
    }

    #[test]
    fn lateness_of_a_few_percent_of_the_gap_is_seen() {
        let millisecond = Null::Exponential { mean: 1e6 };
        let fit = |lateness| {
            let stamps = stamps(&late_instants(7, lateness), 1000);
            let gaps = gaps_of(&break_ties(&stamps, 1000.0, 1));
            gap_fit(&gaps, &millisecond).expect("there are gaps")
        };
        assert!(fit(0.0).a2_p > 0.01);
        assert!(fit(0.01).a2_p > 0.01);
        for (lateness, d) in [(0.05, 0.025), (0.1, 0.049), (0.5, 0.21)] {
            let fit = fit(lateness);
            assert_close(fit.ks.d, d, 0.01);
            assert!(fit.a2_p < 1e-3, "{fit:?}");
        }
        assert!((20.0..40.0).contains(&fit(0.05).a2), "{:?}", fit(0.05));
    }

    #[test]
    fn rounded_stamps_make_a2_infinite_until_ties_are_broken() {
        let instants = late_instants(11, 0.0);
        let millisecond = Null::Exponential { mean: 1e6 };
        for (tick_ns, share_expected) in [(100_000, 0.048), (500_000, 0.213), (1_000_000, 0.368)] {
            let stamps = stamps(&instants, tick_ns);
            let raw: Vec<f64> = gaps_of(&stamps.iter().map(|at| *at as f64).collect::<Vec<_>>());
            let share = raw.iter().filter(|gap| **gap == 0.0).count() as f64 / raw.len() as f64;
            assert_close(share, share_expected, 0.01);
            let raw = gap_fit(&raw, &millisecond).expect("there are gaps");
            assert_eq!((raw.a2, raw.a2_p), (f64::INFINITY, 0.0));
            let broken = break_ties(&stamps, tick_ns as f64, 5);
            assert_eq!(broken, break_ties(&stamps, tick_ns as f64, 5));
            let broken = gap_fit(&gaps_of(&broken), &millisecond).expect("there are gaps");
            assert!(broken.a2.is_finite());
            if tick_ns == 100_000 {
                assert!(broken.a2_p > 0.01, "{broken:?}");
            }
        }
    }

    #[test]
    fn every_kth_arrival_has_gamma_gaps_and_no_exponential_ones() {
        let gaps = exponential_gaps(5, 12_000);
        let dealt: Vec<f64> = gaps.chunks(4).map(|four| four.iter().sum()).collect();
        let right = gap_fit(&dealt, &Null::Gamma { shape: 4.0, mean: 4.0 }).expect("not empty");
        assert!(right.a2_p > 0.01, "{right:?}");
        assert!(right.ks.p > 0.01, "{right:?}");
        assert!(right.cv2.is_some_and(|cv2| (cv2 - 0.25).abs() < 0.03), "{right:?}");
        let wrong = gap_fit(&dealt, &Null::Exponential { mean: 4.0 }).expect("not empty");
        assert!(wrong.a2_p < 1e-4, "{wrong:?}");
    }

    #[test]
    fn drift_of_the_rate_is_seen_by_the_conditional_uniform_test_and_bursts_by_dispersion() {
        let poisson = late_instants(13, 0.0);
        let end = poisson[10_000] + 1e-9;
        assert!(conditional_uniform(&poisson, 0.0, end).is_some_and(|fit| fit.p > 0.05));
        // A rate that grows by a tenth over the run: 10 000 instants bent towards the end.
        let drift: Vec<f64> = poisson.iter().map(|at| end * (at / end).powf(1.0 / 1.1)).collect();
        assert!(conditional_uniform(&drift, 0.0, end).is_some_and(|fit| fit.p < 1e-3));
        let counts = bin_counts(&poisson, 0.0, end, 10.0);
        let chance = 3.0 * (2.0 / counts.len() as f64).sqrt();
        assert_close(dispersion(&counts).expect("two bins"), 1.0, chance);
        // Every arrival twice: the counts keep their mean per pair and double their dispersion.
        let pairs: Vec<f64> = poisson.iter().flat_map(|at| [*at, *at]).collect();
        let counts = bin_counts(&pairs, 0.0, end, 10.0);
        assert_close(dispersion(&counts).expect("two bins"), 2.0, 2.0 * chance);
        assert_eq!((dispersion(&[3]), dispersion(&[0, 0])), (None, None));
        assert_eq!(bin_counts(&[-1.0, 0.0, 9.9, 10.0, 25.0, 30.0], 0.0, 29.0, 10.0), [2, 1]);
    }

    #[test]
    fn two_samples_are_compared_by_the_largest_gap_of_their_steps() {
        let d = |a: &[f64], b: &[f64]| ks_two_samples(a, b).map(|distance| distance.d);
        assert_eq!(d(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), Some(0.0));
        assert_eq!(d(&[1.0, 2.0], &[3.0, 4.0, 5.0]), Some(1.0));
        assert_eq!(d(&[1.0, 2.0, 2.0, 3.0], &[2.0, 2.0]), Some(0.25));
        assert_eq!(d(&[], &[1.0]), None);
        let (a, b) = (exponential_gaps(1, 3000), exponential_gaps(2, 3000));
        assert!(ks_two_samples(&a, &b).is_some_and(|distance| distance.p > 0.05));
        let slower: Vec<f64> = b.iter().map(|gap| gap * 1.2).collect();
        assert!(ks_two_samples(&a, &slower).is_some_and(|distance| distance.p < 1e-3));
    }

    #[test]
    fn far_tails_are_rare_but_not_impossible() {
        for null in [MEAN_1, Null::Gamma { shape: 2.0, mean: 1.0 }] {
            let a2 = anderson_darling(&[0.5, 50.0], &null).expect("not empty");
            assert!(a2.is_finite(), "{null:?}: {a2}");
        }
        assert_eq!(anderson_darling(&[0.0, 1.0], &MEAN_1), Some(f64::INFINITY));
        assert_eq!(anderson_darling(&[], &MEAN_1), None);
        assert_eq!(gap_fit(&[], &MEAN_1), None);
    }

    #[test]
    fn serial_sends_set_a_floor_for_the_distance() {
        // 10 000/s and 3.5 us a send: 3.4 % of the gaps should be shorter than any can be.
        assert_close(serial_send_floor(10_000.0, 3500.0), 0.0344, 1e-4);
        let shifted: Vec<f64> =
            exponential_gaps(17, 20_000).iter().map(|gap| gap.max(0.035)).collect();
        let measured = ks_distance(&shifted, &MEAN_1).expect("not empty").d;
        assert_close(measured, serial_send_floor(1.0, 0.035e9), 0.01);
    }
}
