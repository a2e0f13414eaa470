//! A phase in slices of time: what shows trends, and how far a percentile may be trusted.
//!
//! Slices begin as long as an interval of the shards. When there are too many, neighbours are
//! merged: memory stays constant, and each slice covers the same time.

use loadgen_shards::limits::INTERVAL_NS;
use loadgen_shards::recorder::Recording;

use super::headline;

/// One slice of a phase, over all shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Headline latencies: values of HDR buckets with their counts, ascending.
    pub latencies: Vec<(u64, u64)>,
    /// Queries completed.
    pub completed: u64,
    /// Queries failed.
    pub failed: u64,
    /// Sum over its recordings of the queries in flight or waiting when each ended.
    pub present_sum: u64,
    /// Recordings that it is made of.
    pub recordings: u64,
}

impl Batch {
    fn merge(&mut self, other: &Batch) {
        self.latencies = merged(&self.latencies, &other.latencies);
        self.completed += other.completed;
        self.failed += other.failed;
        self.present_sum += other.present_sum;
        self.recordings += other.recordings;
    }

    /// Queries in flight or waiting for a connection, over `shards`, on average; `None` if it is
    /// empty.
    pub fn present(&self, shards: usize) -> Option<f64> {
        let each = self.present_sum as f64 / self.recordings as f64;
        (self.recordings > 0).then_some(each * shards as f64)
    }
}

/// The slices of a phase, in order; some may be empty.
#[derive(Clone, Debug)]
pub struct Batches {
    list: Vec<Batch>,
    width_ns: u64,
}

impl Default for Batches {
    fn default() -> Batches {
        Batches { list: Vec::new(), width_ns: INTERVAL_NS }
    }
}

impl Batches {
    /// Adds one interval of one shard of a phase that began at `start_ns`.
    pub fn add(&mut self, recording: &Recording, start_ns: u64) {
        let middle_ns = recording.begin_ns / 2 + recording.end_ns / 2;
        let offset_ns = middle_ns.saturating_sub(start_ns);
        while offset_ns / self.width_ns >= BATCHES_LIMIT as u64 {
            self.halve();
        }
        let index = (offset_ns / self.width_ns) as usize;
        if self.list.len() <= index {
            self.list.resize_with(index + 1, Batch::default);
        }
        let latencies = headline(recording).histogram.iter();
        self.list[index].merge(&Batch {
            latencies: coarse(latencies.map(|bucket| (bucket.high, bucket.count))),
            completed: recording.counters.completed,
            failed: recording.counters.failed,
            present_sum: recording.in_flight + recording.backlog,
            recordings: 1,
        });
    }

    fn halve(&mut self) {
        self.width_ns *= 2;
        let pairs = self.list.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            pair[1..].iter().for_each(|other| sum.merge(other));
            sum
        });
        self.list = pairs.collect();
    }

    /// The slices, in order.
    pub fn list(&self) -> &[Batch] {
        &self.list
    }

    /// The time that each covers, ns; the last one less.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }
}

/// The same values, ascending, in buckets of at most 0.8 %, each named by its highest: the interval
/// of a percentile is wider than that, and a slice of an hour no larger than one of a second.
fn coarse(values: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut list: Vec<(u64, u64)> = Vec::new();
    for (value, count) in values {
        let dropped = (u64::BITS - value.leading_zeros()).saturating_sub(COARSE_BITS);
        let highest = value | ((1 << dropped) - 1);
        match list.last_mut() {
            Some((last, sum)) if *last == highest => *sum += count,
            _ => list.push((highest, count)),
        }
    }
    list
}

fn merged(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sum = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.0 == y.0 => {
                let both = (x.0, x.1 + y.1);
                a.next();
                b.next();
                both
            }
            (Some(x), Some(y)) if x.0 > y.0 => b.next().expect("just seen"),
            (Some(_), _) => a.next().expect("just seen"),
            (None, Some(_)) => b.next().expect("just seen"),
            (None, None) => {
                // It stays as long as the phase.
                sum.shrink_to_fit();
                return sum;
            }
        };
        sum.push(next);
    }
}

/// Leading bits that tell values of a slice apart.
const COARSE_BITS: u32 = 8;
/// Twenty are needed for an interval, sixty points for a trend.
const BATCHES_LIMIT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(begin_ns: u64, latency_ns: u64) -> Recording {
        let mut recording = Recording {
            begin_ns,
            end_ns: begin_ns + INTERVAL_NS,
            in_flight: 3,
            ..Recording::default()
        };
        recording.counters.completed = 1;
        recording.service.record(latency_ns);
        recording
    }

    #[test]
    fn slices_follow_the_time_and_sum_over_shards() {
        let mut batches = Batches::default();
        for index in 0..4 {
            for shard in 0..2 {
                let begin_ns = 1_000 + index * INTERVAL_NS + shard * 1000;
                batches.add(&recording(begin_ns, 100 + index), 1_000);
            }
        }
        assert_eq!(batches.list().len(), 4);
        for (index, batch) in batches.list().iter().enumerate() {
            assert_eq!(batch.latencies, [(100 + index as u64, 2)]);
            assert_eq!((batch.completed, batch.present(2)), (2, Some(6.0)));
        }
    }

    #[test]
    fn neighbours_merge_when_there_are_too_many_and_nothing_is_lost() {
        let mut batches = Batches::default();
        for index in 0..10_000 {
            batches.add(&recording(index * INTERVAL_NS, 1 + index % 7), 0);
        }
        assert!(batches.list().len() <= BATCHES_LIMIT);
        assert_eq!(batches.width_ns(), 256 * INTERVAL_NS);
        assert_eq!(batches.list().iter().map(|batch| batch.completed).sum::<u64>(), 10_000);
        let of_first: u64 = batches.list()[0].latencies.iter().map(|(_, count)| count).sum();
        assert_eq!(of_first, 256);
    }

    #[test]
    fn values_of_a_slice_are_at_most_0_8_percent_too_high_and_all_there() {
        let values: Vec<u64> = (0..60).flat_map(|i| [1u64 << i, (1 << i) + (1 << i) / 3]).collect();
        let mut ascending = values.clone();
        ascending.sort_unstable();
        let list = coarse(ascending.iter().map(|value| (*value, 2)));
        assert_eq!(list.iter().map(|(_, count)| count).sum::<u64>(), 2 * ascending.len() as u64);
        assert!(list.is_sorted_by(|a, b| a.0 < b.0), "each once");
        for value in ascending {
            let at = list.partition_point(|(highest, _)| *highest < value);
            let highest = list[at].0;
            assert!(
                highest >= value && (highest - value) as f64 <= value as f64 / 127.0,
                "{value}"
            );
        }
        // An hour of all values: few buckets.
        assert!(coarse((1..100_000).map(|i| (i * 1000, 1))).len() < 2200);
    }
}
