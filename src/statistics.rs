//! Statistics of samples: how far a number can be trusted, and whether two numbers differ.
//!
//! Pure functions on slices, without I/O and without knowledge of the rest of the crate. The trust
//! block, the report and the comparison of runs call them. Distributions come from `statrs`. What
//! cannot be said about a sample is `None`, never 0. Where chance is needed it is drawn from a
//! seed, so that the same input always gives the same output.

pub mod arrival;
pub mod compare;
pub mod early_stopping;
pub mod interval;
pub mod planner;
pub mod trend;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// 100 % in the unit of percentiles, 1/1000 %: 99.9 is no exact `f64`, and ranks must be exact.
const WHOLE: u64 = 100_000;

/// A percentile in 1/1000 % as a fraction of 1.
fn fraction(milli: u32) -> f64 {
    f64::from(milli) / WHOLE as f64
}

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample variance (over n - 1); `None` below two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() >= 2)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(squares / (values.len() - 1) as f64)
}

/// Middle value, of two the mean; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut values = values.to_vec();
    let half = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    let (below, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| !is_odd);
    Some(lower.map_or(*upper, |lower| (lower + *upper) / 2.0))
}

/// Correlation of successive values, -1 to 1; `None` below three values or if all are equal.
pub fn lag1_correlation(values: &[f64]) -> Option<f64> {
    autocorrelation(values, 1)
}

/// Lag-1 correlation of the ranks (Spearman): as above, but not ruled by a few large values.
pub fn lag1_rank_correlation(values: &[f64]) -> Option<f64> {
    autocorrelation(&midranks(values), 1)
}

/// The correlation of values that lie `lag` apart; `None` where there are too few or all are equal.
fn autocorrelation(values: &[f64], lag: usize) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() >= lag + 2)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let later = &values[lag..];
    let products: f64 = values.iter().zip(later).map(|(a, b)| (a - mean) * (b - mean)).sum();
    (squares > 0.0).then(|| products / squares)
}

/// An ascending copy.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The 1-based rank of each value; equal values share the mean of their ranks, so all are
/// multiples of 1/2.
fn midranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = below as f64 + (equal.len() + 1) as f64 / 2.0;
        equal.iter().for_each(|index| ranks[*index] = rank);
        below += equal.len();
    }
    ranks
}

/// Sum of t^3 - t over the groups of t equal values: the correction of rank tests for ties.
fn tie_sum(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let groups = sorted.chunk_by(|a, b| a == b).map(|equal| equal.len() as f64);
    groups.map(|t| t.powi(3) - t).sum()
}

/// Probability that a standard normal value is at least as far from 0 as `z`.
fn normal_two_sided(z: f64) -> f64 {
    (2.0 * Normal::standard().cdf(-z.abs())).min(1.0)
}

/// The value that a standard normal one stays below with this probability.
pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above 0")
}

/// The probability that a Brownian bridge strays further than `lambda` from 0: the limit of the
/// Kolmogorov-Smirnov test and of the cumulative-sum test for a change.
fn bridge_survival(lambda: f64) -> f64 {
    // The alternating series needs ever more terms below; there the probability is 1 to 12 digits.
    if lambda < 0.2 {
        return 1.0;
    }
    let terms = (1..=30).map(|k| {
        let k = f64::from(k);
        let term = (-2.0 * (k * lambda).powi(2)).exp();
        if k % 2.0 == 1.0 { term } else { -term }
    });
    (2.0 * terms.sum::<f64>()).clamp(0.0, 1.0)
}

/// SplitMix64: numbers that look random from a seed. For ties and permutations, where any good
/// mixing will do; schedules have a generator of their own.
pub struct Draws(pub u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What the tests of the parts draw their samples from.
#[cfg(test)]
pub mod simulation {
    use super::Draws;

    /// An exponential value of mean 1.
    pub fn exponential(draws: &mut Draws) -> f64 {
        -(-draws.uniform()).ln_1p()
    }

    /// A standard normal value.
    pub fn normal(draws: &mut Draws) -> f64 {
        let radius = (2.0 * exponential(draws)).sqrt();
        radius * (std::f64::consts::TAU * draws.uniform()).cos()
    }

    /// Times in the system of a single server with utilisation `rho`, mean service 1 and Poisson
    /// arrivals (M/M/1), by Lindley's recursion, after the start from an empty system is forgotten.
    pub fn single_server(draws: &mut Draws, rho: f64, count: usize) -> Vec<f64> {
        let warmup = (50.0 / (1.0 - rho).powi(2)) as usize;
        let mut wait = 0.0f64;
        let mut times = Vec::with_capacity(count);
        for index in 0..warmup + count {
            let time = wait + exponential(draws);
            if index >= warmup {
                times.push(time);
            }
            wait = (time - exponential(draws) / rho).max(0.0);
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_ranks_of_small_samples_are_exact() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert_eq!(variance(&values), Some(32.0 / 7.0));
        assert_eq!(median(&values), Some(4.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(midranks(&values), [1.0, 3.0, 3.0, 3.0, 5.5, 5.5, 7.0, 8.0]);
        assert_eq!(midranks(&[3.0, 1.0, 2.0]), [3.0, 1.0, 2.0]);
        assert_eq!(tie_sum(&values), 24.0 + 6.0);
        assert_eq!((mean(&[]), variance(&[1.0]), median(&[])), (None, None, None));
    }

    #[test]
    fn correlation_of_successive_values_has_the_right_sign_and_is_undefined_for_constants() {
        assert_eq!(lag1_correlation(&[1.0, -1.0, 1.0, -1.0]), Some(-0.75));
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        assert!(lag1_correlation(&rising) > Some(0.96));
        assert_eq!(lag1_correlation(&[5.0; 10]), None);
        assert_eq!(lag1_correlation(&[1.0, 2.0]), None);
        // One huge value rules the plain correlation, not that of the ranks.
        let mut spiked = rising.clone();
        spiked[50] = 1e9;
        assert!(lag1_correlation(&spiked).is_some_and(|r| r.abs() < 0.05));
        assert!(lag1_rank_correlation(&spiked) > Some(0.9));
    }

    #[test]
    fn bridge_survival_matches_the_table_of_kolmogorov() {
        for (lambda, p) in [(1.2238, 0.10), (1.3581, 0.05), (1.6276, 0.01), (1.9495, 0.001)] {
            assert!((bridge_survival(lambda) / p - 1.0).abs() < 2e-3, "{lambda}");
        }
        assert_eq!(bridge_survival(0.0), 1.0);
        assert!((bridge_survival(0.2) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn draws_are_splitmix64() {
        // First outputs of the published generator for the seed 1234567.
        let mut draws = Draws(1_234_567);
        assert_eq!(draws.next(), 6_457_827_717_110_365_317);
        assert_eq!(draws.next(), 3_203_168_211_198_807_973);
        let uniforms: Vec<f64> = (0..10_000).map(|_| draws.uniform()).collect();
        assert!(mean(&uniforms).is_some_and(|mean| (mean - 0.5).abs() < 0.01));
        assert!(variance(&uniforms).is_some_and(|v| (v - 1.0 / 12.0).abs() < 0.002));
    }
}
