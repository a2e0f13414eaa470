//! Did the run stay what it was? Tests of a series of one value per second or so.
//!
//! Neighbouring seconds resemble each other, which a plain test takes for a trend. So each test
//! here reckons with as many independent values as the series is worth.

use super::compare::mann_whitney;
use super::{bridge_survival, lag1_correlation, mean, normal_quantile, normal_two_sided, sorted};

/// Shorter series say nothing.
const COUNT_MIN: usize = 10;
/// More correlation than this is not told from a trend: 39 values would be worth one.
const LAG1_MAX: f64 = 0.95;

/// Result of a test for a trend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Kendall's tau, -1 (always falling) to 1 (always rising).
    pub tau: f64,
    /// Two-sided p-value, corrected for autocorrelation.
    pub p: f64,
}

/// Mann and Kendall's test: does the series rise or fall? Corrected after Yue and Wang (2004).
/// `None` below ten values or if all are equal. Compares all pairs, so thousands of values at most.
pub fn mann_kendall(series: &[f64]) -> Option<Trend> {
    let n = series.len() as f64;
    let pairs = n * (n - 1.0) / 2.0;
    // The sums of t(t-1)(2t+5) over the series as one group and over its ties.
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - tie_variance(series)) / 18.0;
    if series.len() < COUNT_MIN || variance <= 0.0 {
        return None;
    }
    let order = |(i, a): (usize, &f64)| -> i64 {
        series[i + 1..].iter().map(|b| i64::from(b > a) - i64::from(b < a)).sum()
    };
    let score = series.iter().enumerate().map(order).sum::<i64>() as f64;
    // One step towards the middle, as the score is whole and the normal law is not.
    let distance = (score.abs() - 1.0).max(0.0);
    let inflation = inflation(&without_line(series));
    Some(Trend {
        tau: score / pairs,
        p: normal_two_sided(distance / (variance * inflation).sqrt()),
    })
}

/// Sum of t(t-1)(2t+5) over the groups of t equal values.
fn tie_variance(series: &[f64]) -> f64 {
    let sorted = sorted(series);
    let groups = sorted.chunk_by(|a, b| a == b).map(|equal| equal.len() as f64);
    groups.map(|t| t * (t - 1.0) * (2.0 * t + 5.0)).sum()
}

/// Result of a comparison of the begin and the end of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ends {
    /// Probability that a value of the last third is above one of the first; 0.5 if alike.
    pub superiority: f64,
    /// Two-sided p-value of Mann and Whitney, corrected for autocorrelation.
    pub p: f64,
}

/// Compares the first with the last third; `None` below ten values.
pub fn first_and_last_third(series: &[f64]) -> Option<Ends> {
    if series.len() < COUNT_MIN {
        return None;
    }
    let third = series.len() / 3;
    let (first, last) = (&series[..third], &series[series.len() - third..]);
    let test = mann_whitney(first, last)?;
    let (first_mean, last_mean) = (mean(first)?, mean(last)?);
    let deviations: Vec<f64> = (first.iter().map(|value| value - first_mean))
        .chain(last.iter().map(|value| value - last_mean))
        .collect();
    let z = normal_quantile(test.p / 2.0) / inflation(&deviations).sqrt();
    Some(Ends { superiority: test.superiority, p: normal_two_sided(z) })
}

/// A straight line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Height at x = 0.
    pub intercept: f64,
    /// Rise per unit of x.
    pub slope: f64,
    /// Standard error of the slope; wider than the textbook's if neighbours resemble each other.
    pub slope_error: f64,
}

/// The line through `(x, y)` in the order of x; `None` below three points or without two x.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    if points.len() < 3 {
        return None;
    }
    let n = points.len() as f64;
    let (x_mean, y_mean) = (
        points.iter().map(|(x, _)| x).sum::<f64>() / n,
        points.iter().map(|(_, y)| y).sum::<f64>() / n,
    );
    let x_squares: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    if x_squares == 0.0 {
        return None;
    }
    let products: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let slope = products / x_squares;
    let intercept = y_mean - slope * x_mean;
    let residual = |(x, y): &(f64, f64)| y - intercept - slope * x;
    let residuals: Vec<f64> = points.iter().map(residual).collect();
    let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
    let variance = squares / (n - 2.0) / x_squares * inflation(&residuals);
    Some(Line { intercept, slope, slope_error: variance.sqrt() })
}

/// The factor by which autocorrelation widens the variance of a mean, a slope or a score, at least
/// 1: how many values are worth one. As if neighbours alone explained it (a first-order process),
/// from what is left of a series when its line or its two levels are taken out.
///
/// More lags would fit more kinds of dependence, but their noise costs more than it gains.
fn inflation(residuals: &[f64]) -> f64 {
    // The plain estimate is low by about (2 + 4r)/n, as two parameters were fitted before.
    let n = residuals.len() as f64;
    let r = lag1_correlation(residuals).unwrap_or(0.0);
    let r = ((r * n + 2.0) / (n - 4.0).max(1.0)).clamp(0.0, LAG1_MAX);
    (1.0 + r) / (1.0 - r)
}

fn without_line(series: &[f64]) -> Vec<f64> {
    let points: Vec<(f64, f64)> =
        series.iter().enumerate().map(|(index, value)| (index as f64, *value)).collect();
    let slope = line(&points).map_or(0.0, |line| line.slope);
    points.iter().map(|(x, y)| y - slope * x).collect()
}

/// Where the level of a series shifts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value of the new level.
    pub index: usize,
    /// Mean before it.
    pub before: f64,
    /// Mean from it on.
    pub after: f64,
    /// Probability of such a shift somewhere in a series of one level; asymptotic.
    pub p: f64,
}

/// The most likely single shift, by cumulative sums; `None` below ten values or if all are equal.
pub fn change_point(series: &[f64]) -> Option<ChangePoint> {
    let n = series.len() as f64;
    let whole = mean(series).filter(|_| series.len() >= COUNT_MIN)?;
    let mut sum = 0.0;
    let mut farthest = (0.0f64, 0);
    for (index, value) in series.iter().enumerate().take(series.len() - 1) {
        sum += value - whole;
        // Weighed as a difference of two means, so that a shift near an end is found where it is.
        let before = (index + 1) as f64;
        let gap = sum.abs() / (before * (n - before)).sqrt();
        if gap > farthest.0 {
            farthest = (gap, index + 1);
        }
    }
    let (_, index) = farthest;
    if index == 0 {
        return None;
    }
    let (before, after) = (mean(&series[..index])?, mean(&series[index..])?);
    let level = |at: usize| if at < index { before } else { after };
    let residuals: Vec<f64> =
        series.iter().enumerate().map(|(at, value)| value - level(at)).collect();
    let squares: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
    let deviation = (squares / (n - 2.0) * inflation(&residuals)).sqrt();
    let excursion = cumulative_excursion(series, whole);
    let p = if deviation > 0.0 { bridge_survival(excursion / (deviation * n.sqrt())) } else { 0.0 };
    Some(ChangePoint { index, before, after, p })
}

/// How far the sum of the deviations from the mean strays from 0.
fn cumulative_excursion(series: &[f64], mean: f64) -> f64 {
    let mut sum = 0.0f64;
    series.iter().fold(0.0, |farthest: f64, value| {
        sum += value - mean;
        farthest.max(sum.abs())
    })
}

#[cfg(test)]
mod tests {
    use super::super::Draws;
    use super::super::simulation::normal;
    use super::*;

    /// Each value keeps `memory` of the one before it.
    fn series(seed: u64, count: usize, memory: f64) -> Vec<f64> {
        let mut draws = Draws(seed);
        let mut last = normal(&mut draws) / (1.0 - memory * memory).sqrt();
        (0..count)
            .map(|_| {
                last = memory * last + normal(&mut draws);
                last
            })
            .collect()
    }

    /// How many of 300 series are judged to be no chance, at 5 %.
    fn flagged(count: usize, memory: f64, p: impl Fn(&[f64]) -> f64) -> usize {
        (0..300).filter(|seed| p(&series(*seed, count, memory)) < 0.05).count()
    }

    fn trend_p(series: &[f64]) -> f64 {
        mann_kendall(series).expect("they vary").p
    }

    fn ends_p(series: &[f64]) -> f64 {
        first_and_last_third(series).expect("long enough").p
    }

    fn change_p(series: &[f64]) -> f64 {
        change_point(series).expect("they vary").p
    }

    #[test]
    fn mann_kendall_matches_an_independent_implementation() {
        // pymannkendall 1.4, original_test. Neighbours differ by more than the line explains, so
        // there is no correction.
        let rising = [3.0, 5.0, 4.0, 6.0, 8.0, 7.0, 9.0, 9.0, 12.0, 10.0, 11.0, 14.0];
        let trend = mann_kendall(&rising).expect("twelve values");
        assert!((trend.tau - 57.0 / 66.0).abs() < 1e-12, "{trend:?}");
        assert!((trend.p / 1.185_415e-4 - 1.0).abs() < 1e-5, "{trend:?}");
        let falling = rising.map(|value| -value);
        assert_eq!(mann_kendall(&falling), Some(Trend { tau: -trend.tau, p: trend.p }));
        assert_eq!(mann_kendall(&rising[..9]), None);
        assert_eq!(mann_kendall(&[7.0; 20]), None);
    }

    #[test]
    fn series_without_a_trend_are_rarely_flagged_although_neighbours_resemble_each_other() {
        // 5 % of 300 are 15, with a deviation of 3.8.
        for memory in [0.0, 0.5] {
            for p in [trend_p, ends_p] {
                let flagged = flagged(100, memory, p);
                assert!((3..=30).contains(&flagged), "{memory}: {flagged}");
            }
            let changed = flagged(200, memory, change_p);
            assert!((3..=35).contains(&changed), "{memory}: {changed}");
        }
        // Negative control: the test that takes values for independent.
        let naive =
            |series: &[f64]| mann_whitney(&series[..33], &series[67..]).expect("not empty").p;
        assert!(flagged(100, 0.5, naive) > 60);
    }

    #[test]
    fn trends_and_steps_are_found() {
        let with = |shape: fn(f64) -> f64| {
            move |series: &[f64]| -> Vec<f64> {
                let n = series.len() as f64;
                series.iter().enumerate().map(|(i, v)| v + shape(i as f64 / n)).collect()
            }
        };
        let rising = with(|at| 3.0 * at);
        let stepped = with(|at| if at < 0.25 { 0.0 } else { 2.0 });
        assert!(flagged(100, 0.3, |series| trend_p(&rising(series))) > 270);
        assert!(flagged(100, 0.3, |series| ends_p(&rising(series))) > 240);
        assert!(flagged(100, 0.3, |series| change_p(&stepped(series))) > 270);
        let change = change_point(&stepped(&series(1, 100, 0.0))).expect("they vary");
        assert!((23..=27).contains(&change.index), "{change:?}");
        assert!((1.0..3.0).contains(&(change.after - change.before)), "{change:?}");
        let ends = first_and_last_third(&rising(&series(1, 100, 0.0))).expect("long enough");
        assert!(ends.superiority > 0.8, "{ends:?}");
    }

    #[test]
    fn line_matches_an_independent_implementation() {
        // scipy 1.17, linregress; no autocorrelation, so its error of the slope.
        let heights = [3.0, 5.0, 4.0, 6.0, 8.0, 7.0, 9.0, 9.0, 12.0, 10.0, 11.0, 14.0];
        let points: Vec<(f64, f64)> =
            heights.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
        let fit = line(&points).expect("twelve points");
        assert!((fit.slope - 0.881_118_881_119).abs() < 1e-9, "{fit:?}");
        assert!((fit.intercept - 3.320_512_820_513).abs() < 1e-9, "{fit:?}");
        assert!((fit.slope_error - 0.086_281_729_324).abs() < 1e-9, "{fit:?}");
        assert_eq!(line(&points[..2]), None);
        assert_eq!(line(&[(1.0, 2.0); 5]), None);
        let exact = line(&[(0.0, 1.0), (2.0, 5.0), (4.0, 9.0)]).expect("three points");
        assert!((exact.slope - 2.0).abs() < 1e-12, "{exact:?}");
        assert!(exact.slope_error < 1e-12, "{exact:?}");
    }

    #[test]
    fn slope_errors_reckon_with_resembling_neighbours() {
        let p = |series: &[f64]| {
            let points: Vec<(f64, f64)> =
                series.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
            let fit = line(&points).expect("long enough");
            normal_two_sided(fit.slope / fit.slope_error)
        };
        assert!((3..=35).contains(&flagged(200, 0.0, p)));
        assert!((3..=35).contains(&flagged(200, 0.5, p)));
    }

    #[test]
    fn change_points_of_degenerate_series_are_none_or_certain() {
        assert_eq!(change_point(&[1.0; 30]), None);
        assert_eq!(change_point(&[1.0, 2.0]), None);
        assert_eq!(first_and_last_third(&[1.0; 9]), None);
        assert_eq!(first_and_last_third(&[1.0; 12]).map(|ends| ends.p), Some(1.0));
        let step: Vec<f64> = (0..30).map(|i| if i < 10 { 1.0 } else { 2.0 }).collect();
        let found = ChangePoint { index: 10, before: 1.0, after: 2.0, p: 0.0 };
        assert_eq!(change_point(&step), Some(found));
    }
}
