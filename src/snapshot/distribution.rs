//! A merged distribution: exact count, sum and extremes, percentiles from HDR buckets (0.1 % wide
//! at most).
//!
//! Shards record into u32 histograms with the same bounds, so a merge adds bucket by bucket and
//! loses nothing: the result equals one recording of all values, in any order and any split.
//! Percentiles are never averaged.

use loadgen_shards::histogram::Histogram;
use loadgen_shards::recorder::Series;

use crate::courtesy::make_way;

/// A merged distribution, ns.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Counts by value; the bounds and digits of the shards' series.
    pub histogram: Histogram<u64>,
    /// Smallest value; `u64::MAX` while empty.
    pub min: u64,
    /// Largest value; 0 while empty.
    pub max: u64,
    /// Sum of all values.
    pub total: u128,
    /// Sum of the squares.
    pub sum_sq: f64,
    /// Values below the lowest bound.
    pub clamped_low: u64,
    /// Values above the highest bound.
    pub clamped_high: u64,
}

/// A percentile that files carry. Thousandths of a percent, because 99.9 is no exact `f64` and
/// ranks must be exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    /// Its key in files.
    pub key: &'static str,
    /// Its value, 1/1000 %.
    pub milli: u32,
}

/// The percentiles of every distribution in files, in the order of the files.
pub const PERCENTILES: [Percentile; 12] = [
    Percentile { key: "99.9", milli: 99_900 },
    Percentile { key: "99.0", milli: 99_000 },
    Percentile { key: "97.0", milli: 97_000 },
    Percentile { key: "95.0", milli: 95_000 },
    Percentile { key: "90.0", milli: 90_000 },
    Percentile { key: "80.0", milli: 80_000 },
    Percentile { key: "75.0", milli: 75_000 },
    Percentile { key: "50.0", milli: 50_000 },
    Percentile { key: "25.0", milli: 25_000 },
    Percentile { key: "10.0", milli: 10_000 },
    Percentile { key: "5.0", milli: 5_000 },
    Percentile { key: "1.0", milli: 1_000 },
];

/// 100 % in the unit of [`Percentile::milli`].
const WHOLE: u64 = 100_000;
/// Values that must lie above a percentile of the upper half before it is told.
const TAIL_COUNT_MIN: u64 = 10;
/// Buckets of the histogram in files, as endpoints has them.
pub const BUCKETS: usize = 30;

/// A bucket of the histogram in files: its edges in ns, and how many values it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Lower edge, inclusive.
    pub low: f64,
    /// Upper edge, exclusive but for the last bucket.
    pub high: f64,
    /// Values between them.
    pub count: u64,
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution::new()
    }
}

impl Distribution {
    /// An empty one, with the bounds of the shards' series.
    pub fn new() -> Distribution {
        Distribution {
            histogram: Histogram::default(),
            min: u64::MAX,
            max: 0,
            total: 0,
            sum_sq: 0.0,
            clamped_low: 0,
            clamped_high: 0,
        }
    }

    /// Adds what a shard recorded. Exact: same bounds, same buckets.
    pub fn add(&mut self, series: &Series) {
        if series.count() == 0 {
            return;
        }
        // Some 10 us each, a few dozen of them each second of a run.
        make_way();
        self.histogram.add(&series.histogram);
        self.min = self.min.min(series.min);
        self.max = self.max.max(series.max);
        self.total += series.total;
        self.sum_sq += series.sum_sq;
        self.clamped_low += series.clamped_low;
        self.clamped_high += series.clamped_high;
    }

    /// Adds another merged distribution.
    pub fn merge(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.total += other.total;
        self.sum_sq += other.sum_sq;
        self.clamped_low += other.clamped_low;
        self.clamped_high += other.clamped_high;
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.histogram.reset();
        self.min = u64::MAX;
        self.max = 0;
        self.total = 0;
        self.sum_sq = 0.0;
        self.clamped_low = 0;
        self.clamped_high = 0;
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Smallest value, exact.
    pub fn smallest(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min)
    }

    /// Largest value, exact.
    pub fn largest(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// Mean, exact up to the division.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.total as f64 / self.count() as f64)
    }

    /// Sample standard deviation; undefined below two values.
    pub fn std_dev(&self) -> Option<f64> {
        let n = self.count();
        let mean = self.mean().filter(|_| n >= 2)?;
        // The difference of two large sums can come out a hair below zero when all values are
        // equal.
        let squares = (self.sum_sq - mean * self.total as f64).max(0.0);
        Some((squares / (n - 1) as f64).sqrt())
    }

    /// The smallest value with at least `milli`/1000 % of all values at or below it, whatever their
    /// number.
    pub fn percentile(&self, milli: u32) -> Option<u64> {
        self.at_rank(self.rank(milli))
    }

    /// The value of a 1-based rank; `None` above the count.
    pub fn at_rank(&self, rank: u64) -> Option<u64> {
        let mut below = 0;
        let bucket = self.histogram.iter().find(|bucket| {
            below += bucket.count;
            below >= rank
        })?;
        Some(self.within_extremes(bucket.high))
    }

    /// All of [`PERCENTILES`] in one pass, in their order; `None` if there is no value.
    pub fn percentiles(&self) -> Option<[u64; PERCENTILES.len()]> {
        let mut values = [0; PERCENTILES.len()];
        // The list descends and the walk ascends: values[open..] are found.
        let mut open = PERCENTILES.len();
        let mut below = 0;
        for bucket in self.histogram.iter() {
            below += bucket.count;
            while open > 0 && below >= self.rank(PERCENTILES[open - 1].milli) {
                open -= 1;
                values[open] = self.within_extremes(bucket.high);
            }
        }
        (open == 0).then_some(values)
    }

    /// These values and others of which only lower bounds are known.
    pub fn with_bounds(&self, bounds: &Distribution) -> Censored {
        let mut all = self.clone();
        all.merge(bounds);
        Censored { all, bound_min: bounds.smallest() }
    }

    /// A log-spaced histogram of [`BUCKETS`] buckets, from max(min, 1) to at least ten times that.
    /// Empty without values.
    ///
    /// Values come from HDR buckets, so one within 0.1 % of an edge may be counted on its other
    /// side.
    pub fn log_buckets(&self) -> Vec<Bucket> {
        if self.is_empty() {
            return Vec::new();
        }
        let low = self.min.max(1) as f64;
        let high = (self.max as f64).max(10.0 * low);
        let growth = (high / low).ln() / BUCKETS as f64;
        let edge = |index: usize| match index {
            0 => low,
            BUCKETS => high,
            _ => low * (growth * index as f64).exp(),
        };
        let mut buckets: Vec<Bucket> = (0..BUCKETS)
            .map(|index| Bucket { low: edge(index), high: edge(index + 1), count: 0 })
            .collect();
        let mut current = 0;
        for recorded in self.histogram.iter() {
            let value = self.within_extremes(recorded.middle()) as f64;
            while current < BUCKETS - 1 && value >= buckets[current].high {
                current += 1;
            }
            buckets[current].count += recorded.count;
        }
        buckets
    }

    /// The rank of a percentile, 1-based, in integers.
    fn rank(&self, milli: u32) -> u64 {
        let exact = u128::from(self.count()) * u128::from(milli);
        (exact.div_ceil(u128::from(WHOLE)) as u64).max(1)
    }

    /// A bucket reaches beyond the extremes that were seen; a percentile must not.
    fn within_extremes(&self, value: u64) -> u64 {
        value.clamp(self.min, self.max)
    }
}

/// Values of which some are known only to be at least so much: time-outs among latencies. Dropping
/// them would hide the slowest.
#[derive(Clone, Debug)]
pub struct Censored {
    /// Values and bounds together.
    all: Distribution,
    /// The lowest bound.
    bound_min: Option<u64>,
}

/// A value that may be known only as a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// The value, or what it is at least.
    pub value: u64,
    /// It is at least so much.
    pub is_at_least: bool,
}

impl Censored {
    /// How many values and bounds there are.
    pub fn count(&self) -> u64 {
        self.all.count()
    }

    /// The percentile of all, with each bound in the place of the value it stands for.
    pub fn percentile(&self, milli: u32) -> Option<Bounded> {
        self.all.percentile(milli).map(|value| self.bounded(value))
    }

    /// All of [`PERCENTILES`], in their order; `None` if there is no value.
    pub fn percentiles(&self) -> Option<[Bounded; PERCENTILES.len()]> {
        Some(self.all.percentiles()?.map(|value| self.bounded(value)))
    }

    /// The value of this rank in ascending order, 1-based.
    pub fn at_rank(&self, rank: u64) -> Option<Bounded> {
        self.all.at_rank(rank).map(|value| self.bounded(value))
    }

    /// The mean; at least so much if there are bounds.
    pub fn mean(&self) -> Option<(f64, bool)> {
        Some((self.all.mean()?, self.bound_min.is_some()))
    }

    /// The largest.
    pub fn largest(&self) -> Option<Bounded> {
        self.all.largest().map(|value| self.bounded(value))
    }

    /// Bounds above a value change nothing below them, so only one at or below it leaves its rank
    /// open.
    fn bounded(&self, value: u64) -> Bounded {
        Bounded { value, is_at_least: self.bound_min.is_some_and(|bound| bound <= value) }
    }
}

/// How many values a percentile needs before it is told; 0 in the lower half.
pub fn count_needed(milli: u32) -> u64 {
    if u64::from(milli) * 2 <= WHOLE {
        return 0;
    }
    (TAIL_COUNT_MIN * WHOLE).div_ceil(WHOLE - u64::from(milli))
}

#[cfg(test)]
mod tests {
    use loadgen_shards::limits::SERIES_NS_MAX;

    use super::*;

    fn series(values: impl IntoIterator<Item = u64>) -> Series {
        let mut series = Series::default();
        values.into_iter().for_each(|value| series.record(value));
        series
    }

    fn merged(parts: &[Series]) -> Distribution {
        let mut sum = Distribution::new();
        parts.iter().for_each(|part| sum.add(part));
        sum
    }

    /// Values over many magnitudes from a multiplicative generator; no statistics needed of them.
    fn scattered(count: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(|i| {
            let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (x >> 40) >> (x & 15)
        })
    }

    #[test]
    fn sum_of_shards_equals_one_recording_in_any_split_and_order() {
        let whole = merged(&[series(scattered(20_000))]);
        for shards in [1usize, 2, 3, 16] {
            let mut parts: Vec<Vec<u64>> = vec![Vec::new(); shards];
            scattered(20_000).enumerate().for_each(|(i, value)| parts[i % shards].push(value));
            let parts: Vec<Series> = parts.into_iter().rev().map(series).collect();
            let sum = merged(&parts);
            let mut tree = Distribution::new();
            parts.iter().for_each(|part| tree.merge(&merged(std::slice::from_ref(part))));
            for other in [&sum, &tree] {
                assert_eq!(other.histogram, whole.histogram, "{shards} shards");
                assert_eq!((other.min, other.max), (whole.min, whole.max));
                assert_eq!(other.total, whole.total);
                // Floating point: the one sum that depends on the order, by rounding only.
                assert!((other.sum_sq / whole.sum_sq - 1.0).abs() < 1e-12);
                assert_eq!(other.clamped_low, whole.clamped_low);
            }
        }
    }

    /// Three shards answer in 1, the fourth too but for `slow` of its 1000 values.
    fn one_slow_shard(slow: u64) -> Distribution {
        let fast = series(std::iter::repeat_n(1, 1000));
        let last = series((0..1000).map(|i| if i < slow { 100 } else { 1 }));
        merged(&[fast.clone(), fast.clone(), fast, last])
    }

    #[test]
    fn merged_p99_is_not_the_average_of_the_shards() {
        // Either way the p99 of the shards are 1, 1, 1, 100 with the average 25.75.
        assert_eq!(one_slow_shard(30).percentile(99_000), Some(1));
        assert_eq!(one_slow_shard(100).percentile(99_000), Some(100));
    }

    #[test]
    fn percentiles_match_a_sorted_vector_within_the_bucket_error() {
        for count in [1u64, 2, 7, 100, 999, 1000, 1001, 30_000] {
            let mut sorted: Vec<u64> = scattered(count).map(|value| value.max(1)).collect();
            sorted.sort_unstable();
            let sum = merged(&[series(sorted.iter().copied())]);
            let all = sum.percentiles().expect("there are values");
            for (percentile, value) in PERCENTILES.iter().zip(all) {
                let rank = (count * u64::from(percentile.milli)).div_ceil(100_000).max(1);
                let exact = sorted[rank as usize - 1];
                assert!(value >= exact, "p{} of {count}: {value} < {exact}", percentile.key);
                assert!(value as f64 <= exact as f64 * 1.001, "p{} of {count}", percentile.key);
                assert_eq!(sum.percentile(percentile.milli), Some(value));
            }
            assert_eq!(sum.percentile(100_000), sorted.last().copied());
        }
    }

    #[test]
    fn clamped_values_keep_their_exact_extremes() {
        let sum = merged(&[series([0, 5, SERIES_NS_MAX * 2])]);
        assert_eq!((sum.smallest(), sum.largest()), (Some(0), Some(SERIES_NS_MAX * 2)));
        assert_eq!((sum.clamped_low, sum.clamped_high, sum.count()), (1, 1, 3));
        assert!(sum.percentile(100_000) >= Some(SERIES_NS_MAX));
    }

    #[test]
    fn moments_are_exact_and_undefined_where_they_must_be() {
        let sum = merged(&[series([2, 4, 4]), series([4, 5, 5, 7, 9])]);
        assert_eq!(sum.mean(), Some(5.0));
        // Squares of the deviations sum to 32, over n - 1 = 7.
        let deviation = sum.std_dev().expect("eight values");
        assert!((deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12, "{deviation}");
        assert_eq!(merged(&[series([3])]).std_dev(), None);
        assert_eq!(merged(&[series([1_000_003; 1000])]).std_dev(), Some(0.0));
        let empty = Distribution::new();
        assert_eq!((empty.mean(), empty.smallest(), empty.percentile(50_000)), (None, None, None));
        assert_eq!(empty.percentiles(), None);
        assert!(empty.log_buckets().is_empty());
    }

    #[test]
    fn percentiles_of_the_upper_half_need_ten_values_above_them() {
        let cases = [
            (1_000, 0),
            (50_000, 0),
            (75_000, 40),
            (80_000, 50),
            (90_000, 100),
            (95_000, 200),
            (97_000, 334),
            (99_000, 1000),
            (99_900, 10_000),
        ];
        for (milli, needed) in cases {
            assert_eq!(count_needed(milli), needed, "{milli}");
        }
    }

    #[test]
    fn time_outs_raise_the_percentiles_that_they_reach_and_no_others() {
        // 980 answers of 1 ns, 20 time-outs after 1 µs: dropped, every percentile were 1 ns.
        let answers = merged(&[series([1; 980])]);
        let all = answers.with_bounds(&merged(&[series([1000; 20])]));
        assert_eq!(all.count(), 1000);
        let certain = Some(Bounded { value: 1, is_at_least: false });
        assert_eq!((all.percentile(50_000), all.percentile(98_000)), (certain, certain));
        let bound = Some(Bounded { value: 1000, is_at_least: true });
        assert_eq!((all.percentile(98_001), all.largest()), (bound, bound));
        assert_eq!((all.at_rank(980), all.at_rank(981)), (certain, bound));
        assert_eq!(all.mean(), Some((20.98, true)));
        assert_eq!(answers.percentile(99_000), Some(1), "the control");
    }

    #[test]
    fn a_percentile_above_the_lowest_bound_is_a_lower_bound_itself() {
        // The bound of 5 may stand for 100, and the median then is 7, not 6.
        let all = merged(&[series([2, 4, 6, 7, 9])]).with_bounds(&merged(&[series([5])]));
        let at_least = |value| Some(Bounded { value, is_at_least: true });
        assert_eq!(all.percentile(50_000), at_least(5));
        assert_eq!(all.percentile(90_000), at_least(9));
        assert_eq!(all.percentile(30_000), Some(Bounded { value: 4, is_at_least: false }));
        let none = merged(&[series([3])]).with_bounds(&Distribution::new());
        assert_eq!(none.percentile(99_000), Some(Bounded { value: 3, is_at_least: false }));
        let empty = Distribution::new().with_bounds(&Distribution::new());
        assert_eq!((empty.percentiles(), empty.largest()), (None, None));
    }

    #[test]
    fn log_buckets_match_a_count_of_the_raw_values() {
        // 100, 200, .. 100 000: a decade is a third of the span, so ten buckets and edges at 100 x
        // 10^(i/10).
        let values: Vec<u64> = (1..=1000).map(|i| i * 100).collect();
        let buckets = merged(&[series(values.iter().copied())]).log_buckets();
        assert_eq!(buckets.len(), 30);
        for (index, bucket) in buckets.iter().enumerate() {
            let (low, high) = (
                100.0 * 10f64.powf(index as f64 / 10.0),
                100.0 * 10f64.powf((index + 1) as f64 / 10.0),
            );
            assert!((bucket.low / low - 1.0).abs() < 1e-9, "{index}: {bucket:?}");
            assert!((bucket.high / high - 1.0).abs() < 1e-9, "{index}: {bucket:?}");
            let inside = |slack: f64| {
                let (low, high) = (low * (1.0 - slack), high * (1.0 + slack));
                values.iter().filter(|value| (low..high).contains(&(**value as f64))).count() as u64
            };
            assert!(bucket.count >= inside(-0.001), "{index}: {bucket:?}");
            assert!(bucket.count <= inside(0.001), "{index}: {bucket:?}");
        }
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1000);
        assert_eq!(buckets[29].high, 100_000.0);
    }

    #[test]
    fn a_constant_series_spans_a_decade_with_everything_in_the_first_bucket() {
        let buckets = merged(&[series([160; 500])]).log_buckets();
        assert_eq!((buckets[0].low, buckets[29].high), (160.0, 1600.0));
        assert_eq!((buckets[0].count, buckets[1].count), (500, 0));
        assert!((buckets[0].high - 172.764_026).abs() < 1e-5, "{}", buckets[0].high);
    }
}
