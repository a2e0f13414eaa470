//! Counts by value, in the buckets of an HDR histogram of 3 significant digits from 1 ns to 1 h.
//!
//! Values below 2048 have a bucket each; above, each power of two is cut into 1024 buckets, so one
//! is at most 0.1 % wide. The layout is that of HdrHistogram, whose files are written from it; the
//! counts are our own, because a shard hands its recording over four times a second and whoever
//! adds it up may share its core: only the stretch of buckets that is in use is ever looked at.

use std::ops::{AddAssign, Range};

use crate::limits::SERIES_NS_MAX;

/// The counts, of type u32 in a shard and u64 where they are added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<C> {
    counts: Box<[C]>,
    /// Every count outside is 0.
    used: Range<usize>,
    len: u64,
}

/// Values that are not told apart, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Lowest value, ns.
    pub low: u64,
    /// Highest value, ns.
    pub high: u64,
    /// Values in it; never 0.
    pub count: u64,
}

impl Bucket {
    /// The value in its middle, ns.
    pub fn middle(&self) -> u64 {
        self.low + (self.high - self.low).div_ceil(2)
    }
}

impl<C> Default for Histogram<C>
where
    C: AddAssign + Clone + Copy + From<u32> + Into<u64>,
{
    fn default() -> Histogram<C> {
        let counts = vec![C::from(0); BUCKETS].into_boxed_slice();
        Histogram { counts, used: 0..0, len: 0 }
    }
}

impl<C> Histogram<C>
where
    C: AddAssign + Clone + Copy + From<u32> + Into<u64>,
{
    /// Counts a value, ns; one above an hour as an hour.
    pub fn record(&mut self, value_ns: u64) {
        let index = index_of(value_ns.min(SERIES_NS_MAX));
        self.use_bucket(index);
        self.counts[index] += C::from(1);
        self.len += 1;
    }

    /// Adds another's counts, bucket by bucket.
    pub fn add<D>(&mut self, other: &Histogram<D>)
    where
        D: Copy + Into<u64>,
        C: From<D>,
    {
        if other.len == 0 {
            return;
        }
        self.use_bucket(other.used.start);
        self.use_bucket(other.used.end - 1);
        let more = &other.counts[other.used.clone()];
        for (count, more) in self.counts[other.used.clone()].iter_mut().zip(more) {
            *count += C::from(*more);
        }
        self.len += other.len;
    }

    fn use_bucket(&mut self, index: usize) {
        if self.used.is_empty() {
            self.used = index..index + 1;
        } else if index < self.used.start {
            self.used.start = index;
        } else if index >= self.used.end {
            self.used.end = index + 1;
        }
    }

    /// Buckets that are not empty, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Bucket> {
        let counts = self.counts[self.used.clone()].iter().zip(self.used.clone());
        counts.filter_map(|(&count, index)| {
            let count: u64 = count.into();
            (count > 0).then(|| bounds(index, count))
        })
    }

    /// How many values there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.counts[self.used.clone()].fill(C::from(0));
        self.used = 0..0;
        self.len = 0;
    }
}

/// The octave above the first 2048 values, 0 for those, and in it the leading 11 bits.
fn index_of(value_ns: u64) -> usize {
    let octave = (u64::BITS - (value_ns | (SUB_BUCKETS - 1)).leading_zeros()) - SUB_BUCKET_BITS;
    (((u64::from(octave) + 1) << (SUB_BUCKET_BITS - 1)) + (value_ns >> octave) - SUB_BUCKETS / 2)
        as usize
}

fn bounds(index: usize, count: u64) -> Bucket {
    let index = index as u64;
    if index < SUB_BUCKETS {
        return Bucket { low: index, high: index, count };
    }
    let octave = (index >> (SUB_BUCKET_BITS - 1)) - 1;
    let low = ((index & (SUB_BUCKETS / 2 - 1)) + SUB_BUCKETS / 2) << octave;
    Bucket { low, high: low + (1 << octave) - 1, count }
}

/// 2000 values told apart one by one give three digits; rounded up to a power of two.
const SUB_BUCKET_BITS: u32 = 11;
const SUB_BUCKETS: u64 = 1 << SUB_BUCKET_BITS;
/// Up to an hour.
const BUCKETS: usize = 33 * (SUB_BUCKETS as usize / 2);

const _: () = assert!(SERIES_NS_MAX < SUB_BUCKETS << 31);

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram as Hdr;

    use super::*;
    use crate::limits::{SERIES_DIGITS, SERIES_NS_MIN};

    /// Values over all magnitudes from a multiplicative generator.
    fn scattered(count: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(|i| {
            let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((x >> 22) >> (x & 31)).clamp(1, SERIES_NS_MAX)
        })
    }

    #[test]
    fn buckets_are_those_of_hdrhistogram() {
        let mut ours = Histogram::<u32>::default();
        let mut theirs = Hdr::<u64>::new_with_bounds(SERIES_NS_MIN, SERIES_NS_MAX, SERIES_DIGITS)
            .expect("valid");
        let edges = (0..42).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for value in scattered(50_000).chain(edges).chain([SERIES_NS_MAX]) {
            let value = value.clamp(1, SERIES_NS_MAX);
            ours.record(value);
            theirs.record(value).expect("in range");
        }
        let expected: Vec<Bucket> = theirs
            .iter_recorded()
            .map(|bucket| {
                let high = bucket.value_iterated_to();
                let count = bucket.count_at_value();
                Bucket { low: theirs.lowest_equivalent(high), high, count }
            })
            .collect();
        assert_eq!(ours.iter().collect::<Vec<_>>(), expected);
        assert_eq!(ours.len(), theirs.len());
        let middles = expected.iter().map(|bucket| theirs.median_equivalent(bucket.low));
        assert!(ours.iter().map(|bucket| bucket.middle()).eq(middles));
    }

    #[test]
    fn sums_of_parts_equal_the_whole_in_any_order() {
        let mut whole = Histogram::<u64>::default();
        let mut parts: Vec<Histogram<u32>> = (0..7).map(|_| Histogram::default()).collect();
        for (index, value) in scattered(10_000).enumerate() {
            whole.record(value);
            parts[index % 7].record(value);
        }
        let mut sum = Histogram::<u64>::default();
        parts.iter().rev().for_each(|part| sum.add(part));
        assert_eq!(sum, whole);
        let mut twice = sum.clone();
        twice.add(&sum);
        assert_eq!(twice.len(), 20_000);
        sum.add(&Histogram::<u32>::default());
        assert_eq!(sum, whole, "nothing is added by nothing");
    }

    #[test]
    fn reset_leaves_nothing_behind() {
        let mut histogram = Histogram::<u32>::default();
        scattered(1000).for_each(|value| histogram.record(value));
        histogram.reset();
        assert_eq!(histogram, Histogram::default());
        histogram.record(u64::MAX);
        let only = histogram.iter().next().expect("one");
        assert!(only.low <= SERIES_NS_MAX && SERIES_NS_MAX <= only.high, "an hour: {only:?}");
    }
}
