//! Do two sets of runs differ, and by how much?
//!
//! One run is one value: a run's p99, say, or its logarithm, if the difference shall be a ratio.
//! Values within a run are no replication. Runs are few, so the laws of rank and sign tests are
//! computed exactly as far as that is cheap, ties included.

use statrs::distribution::ContinuousCDF;

use super::{
    Draws, mean, median, midranks, normal_quantile, normal_two_sided, student, tie_sum, variance,
};

/// Values up to which the law of a rank sum is counted out; above, the normal law is as good.
const EXACT_COUNT: usize = 50;
/// Pairs up to which all signs are tried: 65 536 of them.
const EXACT_PAIRS: usize = 16;
/// Blocks of three up to which all choices are tried: 59 049 of them.
const EXACT_BLOCKS: usize = 10;
/// Random signs that are tried for more pairs.
const SIGN_DRAWS: u64 = 50_000;

/// How far b lies above a, with the interval of a given confidence; in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// The estimate.
    pub value: f64,
    /// Its interval; `None` if there are too few values for this confidence.
    pub interval: Option<(f64, f64)>,
}

/// Result of a rank-sum test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSum {
    /// Probability that a value of b is above one of a, equal ones counted half; 0.5 if alike.
    pub superiority: f64,
    /// Two-sided p-value.
    pub p: f64,
}

/// Mann and Whitney's test of whether one sample tends to be larger; `None` if one is empty.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<RankSum> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all = [a, b].concat();
    let ranks = midranks(&all);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let rank_sum: f64 = ranks[a.len()..].iter().sum();
    let u = rank_sum - m * (m + 1.0) / 2.0;
    let excess = u - n * m / 2.0;
    let p = if all.len() <= EXACT_COUNT {
        exact_rank_p(&ranks, b.len(), excess)
    } else {
        let total = n + m;
        let variance = n * m / 12.0 * (total + 1.0 - tie_sum(&all) / (total * (total - 1.0)));
        // Half a step towards the middle, as U is whole and the normal law is not.
        let distance = (excess.abs() - 0.5).max(0.0);
        if variance > 0.0 { normal_two_sided(distance / variance.sqrt()) } else { 1.0 }
    };
    Some(RankSum { superiority: u / (n * m), p })
}

/// The share of all choices of `count` ranks whose sum is as far from its mean as `excess`.
fn exact_rank_p(ranks: &[f64], count: usize, excess: f64) -> f64 {
    // Doubled, midranks are whole.
    let doubled: Vec<usize> = ranks.iter().map(|rank| (2.0 * rank) as usize).collect();
    let law = sums_of_choices(&doubled, count);
    let center = count as f64 * (ranks.len() + 1) as f64;
    let far = law
        .iter()
        .enumerate()
        .filter(|(sum, _)| (*sum as f64 - center).abs() >= (2.0 * excess).abs());
    let far: f64 = far.map(|(_, ways)| ways).sum();
    far / law.iter().sum::<f64>()
}

/// For each sum, in how many ways `count` of the weights give it.
fn sums_of_choices(weights: &[usize], count: usize) -> Vec<f64> {
    let largest: usize = weights.iter().sum();
    let mut ways = vec![vec![0.0; largest + 1]; count + 1];
    ways[0][0] = 1.0;
    for weight in weights {
        // From many to few, so that no weight is chosen twice.
        for chosen in (1..=count).rev() {
            let (fewer, these) = ways.split_at_mut(chosen);
            for sum in *weight..=largest {
                these[0][sum] += fewer[chosen - 1][sum - weight];
            }
        }
    }
    ways.swap_remove(count)
}

/// Two-sided p-value of the mean of paired differences, by giving each a sign at random: all signs
/// for up to 16 pairs, else 50 000 drawn from the seed. `None` without pairs.
///
/// Six pairs that all agree give 2/64 = .031, the first number of pairs that can fall below .05.
pub fn sign_flip(differences: &[f64], seed: u64) -> Option<f64> {
    if differences.is_empty() {
        return None;
    }
    let sum: f64 = differences.iter().sum();
    // Sums in another order differ in the last digits; those are the same sum.
    let slack = 1e-12 * differences.iter().map(|value| value.abs()).sum::<f64>();
    let is_far = |is_negative: &mut dyn FnMut(usize) -> bool| {
        let signed =
            |(index, value): (usize, &f64)| if is_negative(index) { -value } else { *value };
        let flipped: f64 = differences.iter().enumerate().map(signed).sum();
        flipped.abs() >= sum.abs() - slack
    };
    if differences.len() <= EXACT_PAIRS {
        let all = 1u64 << differences.len();
        let far = (0..all).filter(|signs| is_far(&mut |index| signs >> index & 1 == 1)).count();
        return Some(far as f64 / all as f64);
    }
    let mut draws = Draws(seed);
    let far = (0..SIGN_DRAWS).filter(|_| is_far(&mut |_| draws.next() & 1 == 1)).count();
    // The signs as they are count as one more draw, so that p is never 0.
    Some((far + 1) as f64 / (SIGN_DRAWS + 1) as f64)
}

/// Two-sided p-value of how far the last value of each block lies from the mean of the two others,
/// summed over the blocks: by all ways to say which of the three is the last one, up to 10 blocks,
/// else by 50 000 drawn from the seed. `None` without blocks.
///
/// Exact if the three were measured in an order drawn at random, whatever their distribution. Two
/// of the three being alike, it can fall lower than [`sign_flip`] with as many blocks: 3^4 ways
/// make 1/81 the least p of 4 blocks, where 2^4 signs make it 2/16.
pub fn block_permutation(blocks: &[[f64; 3]], seed: u64) -> Option<f64> {
    if blocks.is_empty() {
        return None;
    }
    // With the sum of a block the same for each choice, the chosen value says it all.
    let excess =
        |block: &[f64; 3], chosen: usize| block[chosen] - (block[0] + block[1] + block[2]) / 3.0;
    let excesses: Vec<[f64; 3]> =
        blocks.iter().map(|block| [0, 1, 2].map(|chosen| excess(block, chosen))).collect();
    let sum = |choice: &mut dyn FnMut() -> usize| -> f64 {
        excesses.iter().map(|excess| excess[choice()]).sum()
    };
    let observed = sum(&mut || 2).abs();
    let slack = 1e-12 * excesses.iter().flatten().map(|value| value.abs()).sum::<f64>();
    let is_far = |total: f64| total.abs() >= observed - slack;
    if blocks.len() <= EXACT_BLOCKS {
        let all = 3usize.pow(blocks.len() as u32);
        let way = |mut code: usize| {
            sum(&mut || {
                let choice = code % 3;
                code /= 3;
                choice
            })
        };
        let far = (0..all).filter(|code| is_far(way(*code))).count();
        return Some(far as f64 / all as f64);
    }
    let mut draws = Draws(seed);
    let mut drawn = || sum(&mut || (draws.next() % 3) as usize);
    let far = (0..SIGN_DRAWS).filter(|_| is_far(drawn())).count();
    Some((far + 1) as f64 / (SIGN_DRAWS + 1) as f64)
}

/// Hodges and Lehmann's shift between two independent samples: the median of all differences b - a.
/// `None` if one is empty.
pub fn shift(a: &[f64], b: &[f64], confidence: f64) -> Option<Shift> {
    let differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
    let count = a.len() + b.len();
    let tail = (1.0 - confidence) / 2.0;
    let cut = if count <= EXACT_COUNT {
        let ranks: Vec<usize> = (1..=count).collect();
        let smallest = b.len() * (b.len() + 1) / 2;
        tail_steps(&sums_of_choices(&ranks, b.len())[smallest..], tail)
    } else {
        let (n, m) = (a.len() as f64, b.len() as f64);
        normal_steps(n * m / 2.0, n * m * (n + m + 1.0) / 12.0, tail)
    };
    shift_of(&differences, cut)
}

/// The same for pairs: the median of the means of any two differences. `None` without pairs.
pub fn paired_shift(differences: &[f64], confidence: f64) -> Option<Shift> {
    let n = differences.len();
    let with_itself_and_later =
        |i: usize| differences[i..].iter().map(move |d| (differences[i] + d) / 2.0);
    let means: Vec<f64> = (0..n).flat_map(with_itself_and_later).collect();
    let tail = (1.0 - confidence) / 2.0;
    let cut = if n <= EXACT_COUNT {
        tail_steps(&sums_of_subsets(n), tail)
    } else {
        let n = n as f64;
        normal_steps(n * (n + 1.0) / 4.0, n * (n + 1.0) * (2.0 * n + 1.0) / 24.0, tail)
    };
    shift_of(&means, cut)
}

/// For each sum, how many subsets of 1..=n have it: the law of the signed-rank test.
fn sums_of_subsets(n: usize) -> Vec<f64> {
    let mut ways = vec![0.0; n * (n + 1) / 2 + 1];
    ways[0] = 1.0;
    for weight in 1..=n {
        for sum in (weight..ways.len()).rev() {
            ways[sum] += ways[sum - weight];
        }
    }
    ways
}

/// How many of the lowest outcomes together have at most the probability `tail`.
fn tail_steps(ways: &[f64], tail: f64) -> usize {
    let mut left = tail * ways.iter().sum::<f64>();
    let fits = |ways: &&f64| {
        left -= **ways;
        left >= 0.0
    };
    ways.iter().take_while(fits).count()
}

fn normal_steps(mean: f64, variance: f64, tail: f64) -> usize {
    (mean + normal_quantile(tail) * variance.sqrt()).max(0.0) as usize
}

/// The median of the estimates, between the ones that lie `cut` from the ends.
fn shift_of(estimates: &[f64], cut: usize) -> Option<Shift> {
    let sorted = super::sorted(estimates);
    let ends = || Some((*sorted.get(cut.checked_sub(1)?)?, sorted[sorted.len() - cut]));
    Some(Shift { value: median(&sorted)?, interval: ends() })
}

/// Result of Welch's test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Mean of b minus mean of a, with its interval.
    pub shift: Shift,
    /// Two-sided p-value.
    pub p: f64,
}

/// Welch's t-test: do two means differ, if the variances may differ too? `None` below two values or
/// if neither sample varies.
pub fn welch(a: &[f64], b: &[f64], confidence: f64) -> Option<Welch> {
    let (a_error, b_error) = (variance(a)? / a.len() as f64, variance(b)? / b.len() as f64);
    let squared = a_error + b_error;
    if squared == 0.0 {
        return None;
    }
    let freedom = squared.powi(2)
        / (a_error.powi(2) / (a.len() - 1) as f64 + b_error.powi(2) / (b.len() - 1) as f64);
    let law = student(freedom);
    let value = mean(b)? - mean(a)?;
    let error = squared.sqrt();
    let reach = law.inverse_cdf(0.5 + confidence / 2.0) * error;
    let p = (2.0 * law.cdf(-value.abs() / error)).min(1.0);
    Some(Welch { shift: Shift { value, interval: Some((value - reach, value + reach)) }, p })
}

/// The interval of the mean at this confidence, by Student's law; `None` below two values.
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let (mean, count) = (mean(values)?, values.len() as f64);
    let error = (variance(values)? / count).sqrt();
    let reach = student(count - 1.0).inverse_cdf(0.5 + confidence / 2.0) * error;
    Some((mean - reach, mean + reach))
}

/// Holm's correction: p-values, in their order, that hold although so many tests were made.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_unstable_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; p_values.len()];
    let mut largest = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p_values.len() - rank) as f64 * p_values[index]).min(1.0);
        corrected[index] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{normal, single_server};
    use super::*;

    #[track_caller]
    fn assert_close(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance, "{value} is not {expected}");
    }

    #[track_caller]
    fn rank_p(a: &[f64], b: &[f64]) -> f64 {
        mann_whitney(a, b).expect("not empty").p
    }

    #[test]
    fn smallest_rank_p_is_set_by_the_number_of_runs() {
        for (runs, p) in [(3, 0.1), (4, 2.0 / 70.0), (5, 2.0 / 252.0)] {
            let a: Vec<f64> = (0..runs).map(f64::from).collect();
            let b: Vec<f64> = a.iter().map(|value| value + 100.0).collect();
            assert_close(rank_p(&a, &b), p, 1e-12);
            assert_close(rank_p(&b, &a), p, 1e-12);
            assert_eq!(mann_whitney(&a, &b).map(|test| test.superiority), Some(1.0));
        }
        assert_eq!(rank_p(&[5.0; 4], &[5.0; 4]), 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
    }

    #[test]
    fn rank_p_values_match_an_independent_implementation() {
        // scipy 1.17, exact; then all 462 choices of midranks counted out; then scipy, asymptotic
        // with the corrections for ties and continuity.
        let (a, b) = ([1.1, 2.2, 3.3, 9.0], [2.5, 4.4, 5.5, 6.6, 7.7]);
        assert_close(rank_p(&a, &b), 0.412_698_412_698, 1e-12);
        assert_eq!(mann_whitney(&a, &b).map(|test| test.superiority), Some(0.7));
        let tied = rank_p(&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 3.0, 3.0, 6.0, 7.0, 8.0]);
        assert_close(tied, 57.0 / 462.0, 1e-12);
        let a = [
            18, 20, 30, 38, 1, 5, 32, 37, 9, 12, 34, 16, 10, 33, 10, 16, 25, 21, 3, 1, 34, 30, 33,
            21, 32, 13, 18, 31, 4, 12,
        ];
        let b = [
            9, 23, 44, 10, 20, 21, 41, 13, 25, 15, 5, 35, 7, 16, 24, 24, 9, 44, 34, 43, 8, 33, 16,
            26, 41, 16, 34, 11, 17, 43, 21, 25, 16, 9, 21,
        ];
        assert_close(rank_p(&a.map(f64::from), &b.map(f64::from)), 0.381_017_046_836, 1e-9);
    }

    #[test]
    fn exact_and_normal_rank_p_agree_where_one_takes_over() {
        let mut draws = Draws(4);
        for shift in [0.0, 0.3, 0.6] {
            let a: Vec<f64> = (0..25).map(|_| normal(&mut draws)).collect();
            let mut b: Vec<f64> = (0..25).map(|_| normal(&mut draws) + shift).collect();
            let exact = rank_p(&a, &b);
            b.push(median(&b).expect("not empty"));
            assert_close(rank_p(&a, &b), exact, 0.03);
        }
    }

    #[test]
    fn sign_flips_are_counted_out_for_few_pairs_and_drawn_for_many() {
        assert_eq!(sign_flip(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0), Some(2.0 / 64.0));
        assert_eq!(sign_flip(&[-3.0; 5], 0), Some(2.0 / 32.0));
        assert_eq!(sign_flip(&[0.0; 5], 0), Some(1.0));
        assert_eq!(sign_flip(&[], 0), None);
        // scipy 1.17, all 256 signs of the mean; ties of sums included.
        let differences = [0.3, -0.1, 0.5, 0.8, 0.2, 0.4, -0.3, 0.9];
        assert_eq!(sign_flip(&differences, 0), Some(0.070_312_5));
        // Nine pairs of zeros change nothing, but make it a random draw.
        let more = [&differences[..], &[0.0; 9]].concat();
        let drawn = sign_flip(&more, 5).expect("not empty");
        assert_close(drawn, 0.070_312_5, 0.005);
        assert_eq!(sign_flip(&more, 5), Some(drawn));
    }

    #[test]
    fn choices_within_blocks_are_counted_out_for_few_and_drawn_for_many() {
        // Far above the two others in each block: one way of 3^n, as no other is as far.
        let apart = |n: usize| vec![[1.0, 2.0, 9.0]; n];
        assert_close(block_permutation(&apart(4), 0).expect("blocks"), 1.0 / 81.0, 1e-12);
        assert_close(block_permutation(&apart(6), 0).expect("blocks"), 1.0 / 729.0, 1e-12);
        assert_eq!(block_permutation(&[[5.0; 3]; 6], 0), Some(1.0));
        assert_eq!(block_permutation(&[], 0), None);
        // The negative control: the last one is the middle one.
        assert_eq!(block_permutation(&[[1.0, 3.0, 2.0]; 4], 0), Some(1.0));
        // Two blocks by hand: excesses -1, 0, 1 each; the sum of the last ones is 2, as far are
        // 1 + 1 and -1 - 1 of nine.
        assert_close(block_permutation(&[[1.0, 2.0, 3.0]; 2], 0).expect("two"), 2.0 / 9.0, 1e-12);
        let mut many = apart(2);
        many.extend([[4.0; 3]; 10]);
        let drawn = block_permutation(&many, 7).expect("blocks");
        assert_close(drawn, 1.0 / 9.0, 0.01);
        assert_eq!(block_permutation(&many, 7), Some(drawn));
    }

    #[test]
    fn intervals_of_means_are_those_of_the_t_law() {
        // t of 4 degrees at .975 is 2.776445; the standard error of 1 to 5 is sqrt(2.5 / 5).
        let (low, high) = mean_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).expect("five");
        assert_close(high - 3.0, 2.776_445 * 0.5f64.sqrt(), 1e-5);
        assert_close(low + high, 6.0, 1e-12);
        assert_eq!(mean_interval(&[1.0], 0.95), None);
    }

    #[test]
    fn intervals_of_shifts_begin_at_the_critical_values_of_the_tables() {
        // Published two-sided 5 % points: U of 4+4 is 0, 5+5 is 2, 10+10 is 23; the signed rank of
        // 6 is 0, 8 is 3, 10 is 8, 25 is 89. The interval begins one above.
        for (n, critical) in [(4, 0), (5, 2), (10, 23)] {
            let ranks: Vec<usize> = (1..=2 * n).collect();
            let law = &sums_of_choices(&ranks, n)[n * (n + 1) / 2..];
            assert_eq!(tail_steps(law, 0.025), critical + 1, "{n}");
        }
        for (n, critical) in [(6, 0), (8, 3), (10, 8), (25, 89)] {
            assert_eq!(tail_steps(&sums_of_subsets(n), 0.025), critical + 1, "{n}");
        }
        assert_eq!(normal_steps(10.0, 1e6, 0.025), 0);
    }

    #[test]
    fn shifts_are_medians_of_differences() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [11.0, 12.0, 13.0, 14.0]);
        let four = shift(&a, &b, 0.95).expect("not empty");
        assert_eq!((four.value, four.interval), (10.0, Some((7.0, 13.0))));
        let three = shift(&a[..3], &b[..3], 0.95).expect("not empty");
        assert_eq!((three.value, three.interval), (10.0, None), "3 runs cannot say 95 %");
        let paired = paired_shift(&[1.0, 2.0, 3.0, 4.0, 5.0, 60.0], 0.95).expect("not empty");
        assert_eq!((paired.value, paired.interval), (3.5, Some((1.0, 60.0))));
        assert_eq!(paired_shift(&[1.0; 5], 0.95).expect("not empty").interval, None);
        assert_eq!((shift(&[], &b, 0.95), paired_shift(&[], 0.95)), (None, None));
    }

    #[test]
    fn intervals_of_shifts_cover_the_truth_in_small_and_large_samples() {
        for (n, m, runs) in [(6, 7, 400), (30, 40, 200)] {
            let mut draws = Draws(9);
            let mut sample = |count: usize, shift: f64| -> Vec<f64> {
                (0..count).map(|_| normal(&mut draws) + shift).collect()
            };
            let (mut two, mut paired, mut means) = (0, 0, 0);
            for _ in 0..runs {
                let (a, b) = (sample(n, 0.0), sample(m, 1.0));
                let holds = |shift: Shift| {
                    let (low, high) = shift.interval.expect("enough values");
                    u32::from((low..=high).contains(&1.0))
                };
                two += holds(shift(&a, &b, 0.95).expect("not empty"));
                paired += holds(paired_shift(&b, 0.95).expect("not empty"));
                means += holds(welch(&a, &b, 0.95).expect("they vary").shift);
            }
            for hits in [two, paired, means] {
                let share = f64::from(hits) / f64::from(runs);
                assert!((0.92..=0.985).contains(&share), "{n} and {m}: {share}");
            }
        }
    }

    #[test]
    fn welch_matches_an_independent_implementation() {
        // scipy 1.17, ttest_ind(equal_var=False) and its confidence interval.
        let test = welch(&[1.1, 2.2, 3.3, 9.0], &[2.5, 4.4, 5.5, 6.6, 7.7], 0.95);
        let test = test.expect("they vary");
        assert_close(test.p, 0.501_672_627_699, 1e-9);
        assert_close(test.shift.value, 1.44, 1e-12);
        let (low, high) = test.shift.interval.expect("always there");
        assert_close(low, -3.794_822_194_076, 1e-9);
        assert_close(high, 6.674_822_194_076, 1e-9);
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0], 0.95), None);
        assert_eq!(welch(&[1.0], &[2.0, 3.0], 0.95), None);
    }

    #[test]
    fn holm_multiplies_by_the_tests_that_are_left_and_keeps_the_order() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (value, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert_close(*value, expected, 1e-12);
        }
        assert_eq!(holm(&[0.5, 0.9]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    /// The p-value of six interleaved pairs of runs against queues whose service differs by a
    /// factor; the value of a run is the logarithm of its median.
    fn experiment(seed: u64, slower: f64) -> f64 {
        let mut draws = Draws(seed);
        let mut run = |factor: f64| {
            let times = single_server(&mut draws, 0.5 * factor, 7000);
            (factor * median(&times).expect("not empty")).ln()
        };
        let differences: Vec<f64> = (0..6).map(|_| -run(1.0) + run(slower)).collect();
        sign_flip(&differences, seed).expect("six pairs")
    }

    #[test]
    fn equal_servers_are_rarely_told_apart_and_five_percent_mostly() {
        let flagged =
            |slower: f64| (0..100).filter(|seed| experiment(*seed, slower) < 0.05).count();
        let (alike, slower) = (flagged(1.0), flagged(1.05));
        assert!(alike <= 5, "{alike}");
        assert!(slower >= 80, "{slower}");
    }
}
