//! MLPerf's two answers to "were there enough queries?", with the arithmetic of LoadGen.
//!
//! Both take queries for independent. Latencies of a queue are not (see [`super::interval`]): at
//! load .8 an estimate that claims 99 % confidence holds in every second run. So wherever these
//! figures are printed, they are called MLPerf's.
//!
//! Early stopping, as in `loadgen/early_stopping.cc`: with h queries within a limit and t above it,
//! percentile p is accepted if a system that just misses it would show as few as t above with a
//! probability below 1 - confidence. LoadGen searches for the smallest such h for each t; seen from
//! a given number of queries this is a quantile of the binomial law.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::{fraction, normal_quantile};

/// The rules that LoadGen has for all scenarios.
pub const LOADGEN: Rule = Rule { confidence: 0.99, tolerance: 0.0 };

/// How strict early stopping is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Probability, 0 to 1, with which a system that misses the percentile is not accepted.
    pub confidence: f64,
    /// How much of the percentile may be missing, as a fraction of 1.
    pub tolerance: f64,
}

/// Queries that MLPerf asks for, so that the share above the percentile is known to a twentieth of
/// itself with 99 % confidence, by the normal approximation. To the nearest, as in its rules.
pub fn queries_needed(milli: u32) -> u64 {
    let p = fraction(milli);
    let margin = (1.0 - p) / 20.0;
    let z = normal_quantile(0.995);
    (z.powi(2) * p * (1.0 - p) / margin.powi(2)).round() as u64
}

/// Whether percentile `milli` is accepted with `above` of `count` queries above the limit:
/// LoadGen's verdict in its server scenario.
pub fn is_met(count: u64, above: u64, milli: u32, rule: Rule) -> bool {
    let share_above = 1.0 - (fraction(milli) - rule.tolerance);
    let law = Binomial::new(share_above, count).expect("a percentile is a probability");
    law.cdf(above) < 1.0 - rule.confidence
}

/// The most queries above a limit, LoadGen's t, with which percentile `milli` of `count` queries is
/// still accepted; `None` if not even one, so that LoadGen gives no estimate.
pub fn above_max(count: u64, milli: u32, rule: Rule) -> Option<u64> {
    // Accepted up to t and never beyond, so the border is found by halving.
    let (mut met, mut missed) = (0, count);
    while missed - met > 1 {
        let middle = met + (missed - met) / 2;
        if is_met(count, middle, milli, rule) { met = middle } else { missed = middle }
    }
    (met >= 1).then_some(met)
}

/// The 1-based rank of LoadGen's estimate of percentile `milli` in `count` sorted latencies:
/// it discards the t - 1 largest. `None` below [`count_min`].
pub fn estimate_rank(count: u64, milli: u32, rule: Rule) -> Option<u64> {
    above_max(count, milli, rule).map(|above| count - above + 1)
}

/// The fewest queries with which LoadGen gives an estimate.
pub fn count_min(milli: u32, rule: Rule) -> u64 {
    count_for(1, milli, rule)
}

/// The fewest queries with which percentile `milli` is accepted although `above` are above the
/// limit; LoadGen's h + t.
pub fn count_for(above: u64, milli: u32, rule: Rule) -> u64 {
    let mut missed = above;
    let mut met = 2 * above + 2;
    while !is_met(met, above, milli, rule) {
        missed = met;
        met *= 2;
    }
    while met - missed > 1 {
        let middle = missed + (met - missed) / 2;
        if is_met(middle, above, milli, rule) { met = middle } else { missed = middle }
    }
    met
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentile, then (queries, t) with 0 for no estimate. Made twice with the same result:
    /// by LoadGen's own `MinPassingQueriesFinder` in the loop of its `results.cc` (inference at
    /// b66003e1), and by summing the binomial law with 60 digits.
    const ABOVE_MAX: &[(u32, &[(u64, u64)])] = &[
        (
            50_000,
            &[
                (63, 21),
                (64, 22),
                (661, 300),
                (662, 300),
                (1000, 462),
                (6635, 3222),
                (6636, 3222),
                (10_000, 4883),
            ],
        ),
        (
            90_000,
            &[
                (63, 0),
                (64, 1),
                (661, 48),
                (662, 48),
                (1000, 78),
                (6635, 606),
                (6636, 606),
                (10_000, 930),
                (24_576, 2348),
                (100_000, 9779),
            ],
        ),
        (
            95_000,
            &[
                (64, 0),
                (661, 20),
                (662, 20),
                (1000, 34),
                (6635, 290),
                (6636, 290),
                (10_000, 449),
                (24_576, 1149),
                (100_000, 4839),
            ],
        ),
        (
            97_000,
            &[
                (64, 0),
                (661, 9),
                (662, 9),
                (1000, 17),
                (6635, 166),
                (6636, 166),
                (10_000, 260),
                (24_576, 675),
                (100_000, 2874),
                (270_336, 7903),
            ],
        ),
        (
            99_000,
            &[
                (661, 0),
                (662, 1),
                (1000, 2),
                (6635, 47),
                (6636, 47),
                (10_000, 77),
                (24_576, 209),
                (100_000, 927),
                (270_336, 2583),
            ],
        ),
        (99_900, &[(6635, 0), (6636, 1), (10_000, 2), (24_576, 13), (100_000, 77), (270_336, 232)]),
    ];

    #[test]
    fn discards_as_many_queries_as_loadgen() {
        for (milli, cases) in ABOVE_MAX {
            for (count, expected) in *cases {
                let above = above_max(*count, *milli, LOADGEN);
                assert_eq!(above.unwrap_or(0), *expected, "p{milli} of {count}");
                let rank = estimate_rank(*count, *milli, LOADGEN);
                assert_eq!(rank, above.map(|above| count - above + 1));
            }
        }
        assert_eq!(estimate_rank(10_000, 99_000, LOADGEN), Some(9924));
    }

    #[test]
    fn tolerance_forgives_some_more_queries() {
        let rule = Rule { tolerance: 0.001, ..LOADGEN };
        let cases = [
            (90_000, 662, 48),
            (90_000, 10_000, 939),
            (90_000, 100_000, 9878),
            (99_000, 662, 1),
            (99_000, 10_000, 85),
            (99_000, 100_000, 1023),
            (99_900, 662, 0),
            (99_900, 10_000, 9),
            (99_900, 100_000, 167),
        ];
        for (milli, count, expected) in cases {
            assert_eq!(above_max(count, milli, rule).unwrap_or(0), expected, "p{milli} of {count}");
        }
    }

    #[test]
    fn fewest_queries_are_those_of_loadgen() {
        for (milli, floor) in [(90_000, 64), (99_000, 662), (99_900, 6636)] {
            assert_eq!(count_min(milli, LOADGEN), floor);
            assert_eq!(above_max(floor - 1, milli, LOADGEN), None);
            assert_eq!(above_max(floor, milli, LOADGEN), Some(1));
        }
        // Without one above, p^n < 1 %.
        assert_eq!(count_for(0, 99_000, LOADGEN), 459);
        for above in [1, 2, 10, 77, 1000] {
            let count = count_for(above, 99_000, LOADGEN);
            assert!(is_met(count, above, 99_000, LOADGEN));
            assert!(!is_met(count - 1, above, 99_000, LOADGEN));
            assert_eq!(above_max(count, 99_000, LOADGEN), Some(above));
        }
    }

    #[test]
    fn queries_needed_are_those_of_the_rules() {
        let table = [
            (90_000, 23_886),
            (95_000, 50_425),
            (97_000, 85_811),
            (99_000, 262_742),
            (99_900, 2_651_305),
        ];
        for (milli, needed) in table {
            assert_eq!(queries_needed(milli), needed);
        }
    }

    #[test]
    fn few_queries_have_no_estimate() {
        for count in 0..64 {
            assert_eq!(above_max(count, 90_000, LOADGEN), None, "{count}");
        }
    }
}
