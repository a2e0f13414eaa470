//! Between which values does a percentile lie, given that samples of a queue resemble their
//! neighbours?
//!
//! The textbook interval reads two ranks off the sorted sample and is right only for independent
//! values. Latencies are none: at half load of a simple queue 10 000 of them are worth about 1000,
//! and that interval misses the truth every second time. So the interval here comes from how much
//! the share above the percentile varies between batches of the run, which holds the dependence.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF};

use super::{WHOLE, fraction, student};

/// Distinct values of one batch, ascending, each with its count.
pub type Batch = Vec<(u64, u64)>;

/// Fewer batches say nothing about how they vary.
const BATCHES_MIN: usize = 10;

/// Batches to join a run to, by [`regroup`]. The coverage of a queue's p99 hardly depends on it:
/// from 10 to 40 batches of 10 000 values in all it falls from .93 to .91 at load .5 and from .89
/// to .84 at load .8. Fewer are a little better, 20 keep the error itself steady.
pub const BATCHES_TARGET: usize = 20;

/// A percentile and the values between which it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The percentile of the sample, in the unit of the values.
    pub value: u64,
    /// Lower limit; `None` if it lies below the smallest rank, so the sample is too small.
    pub low: Option<u64>,
    /// Upper limit; `None` if it lies above the largest rank.
    pub high: Option<u64>,
    /// How many independent values the sample is worth, at most its size.
    pub n_eff: f64,
    /// Batches that it was computed from.
    pub batches: usize,
}

impl Interval {
    /// Half of the width over the value, 0.05 for +-5 %; `None` if a limit is missing or the value
    /// is 0.
    pub fn half_width(&self) -> Option<f64> {
        let width = self.high?.saturating_sub(self.low?);
        (self.value > 0).then(|| width as f64 / 2.0 / self.value as f64)
    }
}

/// 1-based ranks of a sorted sample of `count` independent values between which the percentile of
/// the population lies with this confidence, 0 to 1; `None` for a limit that needs a larger sample.
pub fn independent_ranks(count: u64, milli: u32, confidence: f64) -> (Option<u64>, Option<u64>) {
    let p = fraction(milli);
    let tail = (1.0 - confidence) / 2.0;
    let law = Binomial::new(p, count).expect("a percentile is a probability");
    // Of `count` values, k lie at or below the percentile; rank r is at most it if k >= r.
    let low = law.inverse_cdf(tail);
    let high = law.inverse_cdf(1.0 - tail) + 1;
    ((low >= 1).then_some(low), (high <= count).then_some(high))
}

/// The smallest sample of independent values for which [`independent_ranks`] has both limits.
pub fn independent_count_min(milli: u32, confidence: f64) -> u64 {
    let p = fraction(milli);
    let tail = (1.0 - confidence) / 2.0;
    // All values on one side of the percentile must be less likely than the tail.
    (tail.ln() / p.max(1.0 - p).ln()).ceil() as u64
}

/// The percentile with its interval at this confidence, 0 to 1, from consecutive batches of the
/// run; `None` below ten batches.
///
/// A batch must be long against the time over which latencies resemble each other; see
/// [`regroup`].
pub fn batch_interval(batches: &[Batch], milli: u32, confidence: f64) -> Option<Interval> {
    let used = batches.iter().filter(|batch| !batch.is_empty()).count();
    if used < BATCHES_MIN {
        return None;
    }
    let merged = merge(batches);
    let count = count_of(&merged);
    let value = value_at(&merged, rank(count, milli));
    // Of a value that many share, both edges are looked at: the share above the largest value never
    // varies.
    let above = |batch: &Batch| count_of(&batch[batch.partition_point(|(v, _)| *v <= value)..]);
    let from = |batch: &Batch| count_of(&batch[batch.partition_point(|(v, _)| *v < value)..]);
    let error = share_error(batches, above).max(share_error(batches, from));
    let (n, b) = (count as f64, used as f64);

    let p = fraction(milli);
    let t = student(b - 1.0).inverse_cdf(0.5 + confidence / 2.0);
    let low = (n * (p - t * error)).floor();
    let high = (n * (p + t * error)).ceil();
    Some(Interval {
        value,
        low: (low >= 1.0).then(|| value_at(&merged, low as u64)),
        high: (high <= n).then(|| value_at(&merged, (high as u64).max(1))),
        n_eff: (p * (1.0 - p) / error.powi(2)).min(n),
        batches: used,
    })
}

/// Standard error of the share of the values that `part` counts, from how it varies between
/// batches. A batch weighs as much as it has values.
fn share_error(batches: &[Batch], part: impl Fn(&Batch) -> u64) -> f64 {
    let used = batches.iter().filter(|batch| !batch.is_empty());
    let pairs: Vec<(f64, f64)> =
        used.map(|batch| (part(batch) as f64, count_of(batch) as f64)).collect();
    let n: f64 = pairs.iter().map(|(_, count)| count).sum();
    let share = pairs.iter().map(|(part, _)| part).sum::<f64>() / n;
    let squares: f64 = pairs.iter().map(|(part, count)| (part - share * count).powi(2)).sum();
    let b = pairs.len() as f64;
    (squares * b / (b - 1.0)).sqrt() / n
}

/// Joins neighbours so that `target` batches of nearly equal duration are left; fewer than that
/// stay as they are.
pub fn regroup(batches: &[Batch], target: usize) -> Vec<Batch> {
    let target = target.min(batches.len());
    let edge = |group: usize| group * batches.len() / target;
    (0..target).map(|group| merge(&batches[edge(group)..edge(group + 1)])).collect()
}

/// The batch that holds what all of these hold.
fn merge(batches: &[Batch]) -> Batch {
    let mut all: Batch = batches.iter().flatten().copied().collect();
    all.sort_unstable_by_key(|(value, _)| *value);
    all.dedup_by(|(value, count), (kept, sum)| {
        let is_same = value == kept;
        if is_same {
            *sum += *count;
        }
        is_same
    });
    all
}

fn count_of(batch: &[(u64, u64)]) -> u64 {
    batch.iter().map(|(_, count)| count).sum()
}

/// The 1-based rank of a percentile, in integers.
fn rank(count: u64, milli: u32) -> u64 {
    let exact = u128::from(count) * u128::from(milli);
    (exact.div_ceil(u128::from(WHOLE)) as u64).max(1)
}

/// The value at a rank that the batch has.
fn value_at(batch: &[(u64, u64)], rank: u64) -> u64 {
    let mut below = 0;
    let found = batch.iter().find(|(_, count)| {
        below += count;
        below >= rank
    });
    found.expect("ranks are at most the count").0
}

#[cfg(test)]
mod tests {
    use super::super::Draws;
    use super::super::simulation::single_server;
    use super::*;

    /// Values as they come, cut into batches of equal size.
    fn batches(values: &[u64], count: usize) -> Vec<Batch> {
        let chunks = values.chunks(values.len() / count);
        let singles = |chunk: &[u64]| merge(&[chunk.iter().map(|value| (*value, 1)).collect()]);
        chunks.map(singles).collect()
    }

    /// The shares of runs whose interval holds the true percentile: of the textbook interval, and
    /// of the one from batches. A limit that is missing excludes nothing.
    fn coverage(runs: u64, rho: f64, count: usize, milli: u32, batch_count: usize) -> (f64, f64) {
        let truth = (-(1.0 - fraction(milli)).ln() / (1.0 - rho) * 1e6) as u64;
        let holds = |low: Option<u64>, high: Option<u64>| {
            low.is_none_or(|low| low <= truth) && high.is_none_or(|high| truth <= high)
        };
        let (mut textbook, mut batched) = (0, 0);
        for seed in 0..runs {
            let times = single_server(&mut Draws(seed), rho, count);
            let mut values: Vec<u64> = times.iter().map(|time| (time * 1e6) as u64).collect();
            let interval = batch_interval(&batches(&values, batch_count), milli, 0.95);
            let interval = interval.expect("enough batches");
            batched += u64::from(holds(interval.low, interval.high));
            values.sort_unstable();
            let at = |rank: u64| values[rank as usize - 1];
            let (low, high) = independent_ranks(count as u64, milli, 0.95);
            textbook += u64::from(holds(low.map(at), high.map(at)));
        }
        (textbook as f64 / runs as f64, batched as f64 / runs as f64)
    }

    #[test]
    fn both_intervals_cover_95_percent_of_independent_samples() {
        // Nothing waits at this load, so the times are independent and exponential.
        let (textbook, batched) = coverage(500, 1e-9, 2000, 90_000, 20);
        assert!((0.93..=0.97).contains(&textbook), "{textbook}");
        assert!((0.93..=0.97).contains(&batched), "{batched}");
    }

    #[test]
    fn batches_cover_the_p99_of_a_queue_where_the_textbook_fails() {
        let (textbook, batched) = coverage(200, 0.5, 10_000, 99_000, BATCHES_TARGET);
        assert!(batched >= 0.90, "{batched}");
        assert!(textbook <= 0.65, "{textbook}: the data would not show a wrong interval");
    }

    #[test]
    #[ignore = "a table of coverage for the choice of the batch count; takes minutes"]
    fn print_coverage() {
        for (count, rho) in
            [10_000, 50_000].into_iter().flat_map(|n| [0.3, 0.5, 0.8].map(|r| (n, r)))
        {
            for milli in [50_000, 99_000, 99_900] {
                let by_batches = [10, 20, 40].map(|b| coverage(400, rho, count, milli, b).1);
                let textbook = coverage(400, rho, count, milli, 10).0;
                println!("{count} at {rho}: p{milli} textbook {textbook} batches {by_batches:?}");
            }
        }
    }

    #[test]
    fn ranks_of_independent_samples_match_the_binomial_law() {
        assert_eq!(independent_ranks(10_000, 99_000, 0.95), (Some(9880), Some(9920)));
        assert_eq!(independent_ranks(10_000, 99_900, 0.95), (Some(9983), Some(9997)));
        for (milli, floor) in [(99_000, 368), (99_900, 3688), (99_990, 36_887)] {
            assert_eq!(independent_count_min(milli, 0.95), floor);
            assert_eq!(independent_ranks(floor - 1, milli, 0.95).1, None);
            assert_eq!(independent_ranks(floor, milli, 0.95).1, Some(floor));
        }
        assert_eq!(independent_ranks(5, 50_000, 0.95), (None, None));
        assert_eq!(independent_count_min(50_000, 0.95), 6);
        assert_eq!(independent_ranks(6, 50_000, 0.95), (Some(1), Some(6)));
        assert_eq!(independent_count_min(1_000, 0.95), 368);
    }

    #[test]
    fn interval_of_a_hand_computed_case() {
        // Ten batches of 100 values, 1 to 100 each, but the last batch is 10 larger throughout:
        // of the 1000, 902 are at most 91, and 9 batches have 9 above, the last has 19.
        let batch = |shift: u64| (1..=100).map(|value| (value + shift, 1)).collect::<Batch>();
        let run: Vec<Batch> = (0..10).map(|index| batch(if index == 9 { 10 } else { 0 })).collect();
        let interval = batch_interval(&run, 90_000, 0.95).expect("ten batches");
        // Shares .09 x 9 and .19: s^2 = (.1^2 x .9)/9/10 = 1e-4, t_9 = 2.262157, band 900 +- 22.6.
        assert_eq!((interval.value, interval.batches), (91, 10));
        assert!((interval.n_eff - 900.0).abs() < 1e-6, "{interval:?}");
        // Rank 877 is 89 (at most 88: 9 x 88 + 78 = 870), rank 923 is 94 (at most 93: 9 x 93 + 83).
        assert_eq!((interval.low, interval.high), (Some(89), Some(94)));
        assert_eq!(interval.half_width(), Some(2.5 / 91.0));
    }

    #[test]
    fn batches_of_unequal_size_weigh_by_their_counts() {
        // The same share above in each batch, whatever its size: no variation at all.
        let batch = |scale: u64| vec![(1, 9 * scale), (2, scale)];
        let run: Vec<Batch> = (1..=12).map(batch).collect();
        let interval = batch_interval(&run, 90_000, 0.95).expect("twelve batches");
        assert_eq!((interval.value, interval.n_eff), (1, 780.0));
        assert_eq!((interval.low, interval.high), (Some(1), Some(1)));
    }

    #[test]
    fn too_few_batches_or_values_have_no_interval() {
        let batch: Batch = vec![(5, 3)];
        assert_eq!(batch_interval(&vec![batch.clone(); 9], 50_000, 0.95), None);
        let mut run = vec![batch; 9];
        run.extend(vec![Batch::new(); 20]);
        assert_eq!(batch_interval(&run, 50_000, 0.95), None, "empty batches do not count");
        assert_eq!(batch_interval(&[], 50_000, 0.95), None);
        // A slow stretch within one batch: its few values do not bound the p99 from above.
        let mut run = vec![vec![(1, 100)]; 20];
        run[7] = vec![(1, 70), (1000, 30)];
        let interval = batch_interval(&run, 99_000, 0.95).expect("twenty batches");
        assert_eq!((interval.value, interval.high), (1000, None));
        assert_eq!(interval.half_width(), None);
    }

    #[test]
    fn regrouping_keeps_every_value_and_the_order() {
        let run: Vec<Batch> = (0..50).map(|index| vec![(index / 2, 1), (99, 2)]).collect();
        for target in [1, 20, 49, 50, 80] {
            let groups = regroup(&run, target);
            assert_eq!(groups.len(), target.min(50));
            assert_eq!(merge(&groups), merge(&run));
            let smallest: Vec<u64> = groups.iter().map(|group| group[0].0).collect();
            assert!(smallest.is_sorted(), "{smallest:?}");
        }
        assert_eq!(regroup(&run, 25)[3], [(3, 2), (99, 4)]);
        assert!(regroup(&[], 20).iter().all(Vec::is_empty));
    }
}
