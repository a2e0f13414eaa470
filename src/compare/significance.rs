//! Whether two sets of runs differ by more than chance would make them.

/// The two-sided p value of the Mann-Whitney test, for values in any order.
///
/// Exact by all ways to deal the values out, ties included, up to [`EXACT_VALUES_MAX`] values in
/// all; above that the normal approximation, corrected for ties and continuity.
pub fn mann_whitney_p(a: &[f64], b: &[f64]) -> f64 {
    let ranks = doubled_ranks(a, b);
    let observed: i64 = ranks[..a.len()].iter().sum();
    // Twice the mean of a doubled sum of ranks, so that everything stays whole.
    let n = ranks.len() as i64;
    let center = 2 * a.len() as i64 * (n + 1);
    let distance = |sum: i64| (2 * sum - center).abs();
    if ranks.len() > EXACT_VALUES_MAX {
        return normal_p(a.len() as f64, b.len() as f64, distance(observed) as f64 / 4.0, &ranks);
    }
    let (mut all, mut as_far) = (0u32, 0u32);
    for chosen in 0u32..1 << ranks.len() {
        if chosen.count_ones() as usize != a.len() {
            continue;
        }
        let is_chosen = |index: &usize| chosen >> index & 1 == 1;
        let sum = (0..ranks.len()).filter(is_chosen).map(|index| ranks[index]).sum();
        all += 1;
        as_far += u32::from(distance(sum) >= distance(observed));
    }
    f64::from(as_far) / f64::from(all)
}

/// Twice the rank of each value, those of `a` first. Equal values share the mean of their ranks,
/// which twice is whole.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<i64> {
    let values: Vec<f64> = a.iter().chain(b).copied().collect();
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as i64;
        let equal = values.iter().filter(|other| *other == value).count() as i64;
        2 * below + equal + 1
    };
    values.iter().map(rank).collect()
}

/// The two-sided p value of a rank sum that is `distance` from its mean.
fn normal_p(m: f64, n: f64, distance: f64, doubled_ranks: &[i64]) -> f64 {
    let count = m + n;
    // The variance of the ranks themselves has the ties in it.
    let mean = count + 1.0;
    let squares: f64 = doubled_ranks.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum();
    let variance = m * n * squares / (4.0 * count * (count - 1.0));
    if variance == 0.0 {
        return 1.0;
    }
    let z = (distance - 0.5).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2)
}

/// The complementary error function from 0 up, to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = terms.iter().rev().fold(0.0, |sum, term| t * (term + sum));
    sum * (-x * x).exp()
}

/// 12 870 ways at most.
const EXACT_VALUES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_p(a: &[f64], b: &[f64], p: f64, slack: f64) {
        let got = mann_whitney_p(a, b);
        assert!((got - p).abs() <= slack, "{got}, not {p}");
        let mirrored = mann_whitney_p(b, a);
        assert!((mirrored - p).abs() <= slack, "{mirrored}, not {p}");
    }

    #[test]
    fn the_least_p_is_what_the_number_of_ways_allows() {
        // Two of all ways are as far apart: of 2, 6, 20, 70, 252, 12 870.
        for (runs, p) in [
            (1, 1.0),
            (2, 1.0 / 3.0),
            (3, 0.1),
            (4, 2.0 / 70.0),
            (5, 2.0 / 252.0),
            (8, 2.0 / 12_870.0),
        ] {
            let a: Vec<f64> = (0..runs).map(f64::from).collect();
            let b: Vec<f64> = (0..runs).map(|i| f64::from(i) + 100.0).collect();
            assert_p(&a, &b, p, 1e-12);
        }
    }

    #[test]
    fn p_is_that_of_other_implementations() {
        // scipy 1.17 mannwhitneyu: exact without ties; with them its permutation test of the same
        // statistic over all ways.
        assert_p(&[1.0, 2.0, 5.0, 7.0], &[3.0, 6.0, 8.0, 9.0, 10.0], 1.0 / 9.0, 1e-12);
        assert_p(&[1.0, 2.0, 2.0, 3.0], &[2.0, 3.0, 4.0, 4.0], 0.2, 1e-12);
        let a: Vec<f64> = (0..10).map(|i| f64::from(i * 7 % 11)).collect();
        let b: Vec<f64> = (0..12).map(|i| f64::from(i * 5 % 13) + 3.0).collect();
        assert_p(&a, &b, 0.055_365_901, 1e-6);
    }

    #[test]
    fn equal_values_are_no_difference_and_a_shift_of_many_is_one() {
        assert_p(&[3.0; 4], &[3.0; 4], 1.0, 0.0);
        assert_p(&[3.0; 20], &[3.0; 20], 1.0, 0.0);
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        let shifted: Vec<f64> = values.iter().map(|value| value + 15.0).collect();
        assert!(mann_whitney_p(&values, &shifted) < 1e-4);
    }
}
