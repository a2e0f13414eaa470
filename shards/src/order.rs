//! Which sample a position of the phase sends: a pure function, without memory of what went before.
//!
//! So any shard computes the sample of any position alone, and the order does not depend on how
//! positions fall to shards. It shares no random numbers with the schedule, even under one seed.

use crate::schedule::{GOLDEN, mix64};

/// How samples follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each sample once a pass, in an order of the pass's own.
    Shuffle,
    /// As in the table, over and over.
    Sequential,
    /// Drawn with replacement.
    Random,
    /// Always the same one.
    Single(u32),
}

/// Position to sample index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOrder {
    order: Order,
    /// Index of the first of them.
    first: u32,
    samples: u32,
    /// Of all passes, from the seed.
    key: u64,
    /// Samples lie on a grid of rows and columns that is nearly a square and has less than one row
    /// too much.
    rows: u64,
    columns: u64,
}

impl SampleOrder {
    /// An order over `samples` samples.
    ///
    /// # Panics
    ///
    /// If there are none, or a single index is not below their number.
    pub fn new(order: Order, samples: u32, seed: u64) -> SampleOrder {
        assert!(samples > 0, "there is something to send");
        if let Order::Single(index) = order {
            assert!(index < samples, "sample {index} of {samples}");
        }
        let columns = u64::from((samples - 1).isqrt()) + 1;
        let rows = u64::from(samples).div_ceil(columns);
        SampleOrder { order, first: 0, samples, key: mix64(seed ^ ORDER), rows, columns }
    }

    /// The same order over the samples from `first` on.
    #[must_use]
    pub fn from(self, first: u32) -> SampleOrder {
        SampleOrder { first, ..self }
    }

    /// The sample of a position.
    pub fn sample(&self, position: u64) -> u32 {
        self.first + self.among_them(position)
    }

    fn among_them(&self, position: u64) -> u32 {
        let samples = u64::from(self.samples);
        match self.order {
            Order::Single(index) => index,
            Order::Sequential => (position % samples) as u32,
            Order::Random => below(samples, self.pass_key(position)) as u32,
            Order::Shuffle => {
                let (pass, index) = (position / samples, position % samples);
                let pass_key = self.pass_key(pass);
                let sample = if samples <= DIGITS {
                    dealt(samples, index, pass_key)
                } else {
                    self.permuted(index, pass_key)
                };
                sample as u32
            }
        }
    }

    /// Key of a pass, or random word of a position.
    fn pass_key(&self, pass: u64) -> u64 {
        mix64(self.key.wrapping_add(pass.wrapping_mul(GOLDEN)))
    }

    /// Where a keyed permutation of `0..samples` puts `index`: a Feistel network on the grid, whose
    /// rounds move the row by a hash of the column and the column by a hash of the row. Each round
    /// can be undone, so all of them permute the grid; what comes out beyond the last sample goes
    /// through them again, until it comes out below (Black and Rogaway, Ciphers with arbitrary
    /// finite domains, 2002).
    fn permuted(&self, mut index: u64, key: u64) -> u64 {
        loop {
            let (mut row, mut column) = (index / self.columns, index % self.columns);
            for round in 0..ROUNDS {
                let round_key = key.wrapping_add(round.wrapping_mul(GOLDEN));
                row = moved(row, mix64(round_key ^ column), self.rows);
                column = moved(column, mix64(!round_key ^ row), self.columns);
            }
            index = row * self.columns + column;
            if index < u64::from(self.samples) {
                return index;
            }
        }
    }
}

/// The sample at `index` of a shuffle of at most [`DIGITS`], which are the digits of one word and
/// are dealt one after the other (Fisher and Yates): all orders are equally likely, where a grid of
/// so few would need many rounds.
fn dealt(samples: u64, index: u64, mut word: u64) -> u64 {
    let mut digits = 0xfedc_ba98_7654_3210_u64;
    for place in 0..=index {
        // The integer part of a fraction times the number of choices; what is left of the fraction
        // chooses the next.
        let product = u128::from(word) * u128::from(samples - place);
        word = product as u64;
        let (here, there) = (4 * place, 4 * (place + (product >> 64) as u64));
        let difference = ((digits >> here) ^ (digits >> there)) & 15;
        digits ^= (difference << here) ^ (difference << there);
    }
    (digits >> (4 * index)) & 15
}

/// `place + random number`, modulo `places`; `place` is below it.
fn moved(place: u64, word: u64, places: u64) -> u64 {
    let sum = place + below(places, word);
    if sum < places { sum } else { sum - places }
}

/// A random word as a number below `limit`, by its upper bits. No number is more likely than
/// another by more than a share of `limit` / 2^64.
fn below(limit: u64, word: u64) -> u64 {
    ((u128::from(word) * u128::from(limit)) >> 64) as u64
}

/// Rounds. Simulated with ideal hashes, the share of each first pair of 17 samples, the smallest
/// grid, is then off by 1 % (root mean square); after three it is 4 %.
const ROUNDS: u64 = 4;

/// Hexadecimal digits of a word.
const DIGITS: u64 = 16;

/// Keeps orders apart from whatever else is made of the same seed: "order" in ASCII.
const ORDER: u64 = 0x006f_7264_6572;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(order: Order, samples: u32, seed: u64, positions: std::ops::Range<u64>) -> Vec<u32> {
        let order = SampleOrder::new(order, samples, seed);
        positions.map(|position| order.sample(position)).collect()
    }

    /// The figures come from a second implementation in another language.
    #[test]
    fn orders_are_those_of_an_independent_implementation() {
        let shuffled = samples(Order::Shuffle, 10, 42, 0..20);
        assert_eq!(shuffled, [7, 8, 5, 1, 2, 0, 3, 9, 6, 4, 0, 5, 2, 8, 6, 4, 1, 7, 3, 9]);
        assert_eq!(samples(Order::Shuffle, 7, u64::MAX, 0..7), [0, 6, 4, 2, 1, 5, 3]);
        let dealt = samples(Order::Shuffle, 16, 0, 0..16);
        assert_eq!(dealt, [11, 1, 12, 14, 9, 8, 10, 13, 2, 3, 0, 7, 15, 6, 4, 5]);
        let permuted = samples(Order::Shuffle, 17, 42, 0..17);
        assert_eq!(permuted, [10, 11, 15, 5, 3, 2, 9, 16, 12, 13, 1, 14, 7, 0, 4, 8, 6]);
        let large = samples(Order::Shuffle, 1000, 42, 0..10);
        assert_eq!(large, [299, 805, 886, 629, 981, 465, 138, 530, 167, 744]);
        let random = samples(Order::Random, 1000, 42, 0..10);
        assert_eq!(random, [782, 45, 600, 630, 322, 920, 494, 240, 191, 109]);
        let most = u64::from(u32::MAX);
        let huge = SampleOrder::new(Order::Shuffle, u32::MAX, 42);
        let positions = [0, 1, most - 1, most, u64::MAX];
        assert_eq!(
            positions.map(|position| huge.sample(position)),
            [1_205_672_874, 196_257_958, 1_751_132_579, 3_211_523_630, 1_219_855_563]
        );
        assert_eq!(SampleOrder::new(Order::Random, 1000, 42).sample(u64::MAX), 194);
    }

    #[test]
    fn each_pass_of_a_shuffle_has_each_sample_once() {
        let small = 1..=130u32;
        for count in small.chain([255, 256, 257, 1000, 1023, 1025, 65_536, 65_537]) {
            let passes = if count < 1000 { 5 } else { 2 };
            for pass in 0..passes {
                let begin = pass * u64::from(count);
                let mut all = samples(Order::Shuffle, count, 42, begin..begin + u64::from(count));
                all.sort_unstable();
                assert!(all.into_iter().eq(0..count), "{count} samples, pass {pass}");
            }
        }
    }

    #[test]
    fn passes_and_seeds_have_orders_of_their_own() {
        let pass =
            |seed, pass: u64| samples(Order::Shuffle, 1000, seed, pass * 1000..pass * 1000 + 1000);
        let in_place = |a: &[u32], b: &[u32]| a.iter().zip(b).filter(|(a, b)| a == b).count();
        let first = pass(1, 0);
        for other in [pass(1, 1), pass(1, 2), pass(2, 0), pass(3, 0), (0..1000).collect()] {
            // One is expected by chance; ten or more have a probability of 1e-7.
            assert!(in_place(&first, &other) < 10);
        }
        assert_eq!(first, pass(1, 0));
    }

    #[test]
    fn other_orders_are_what_their_names_say() {
        assert_eq!(samples(Order::Sequential, 3, 42, 0..7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(samples(Order::Sequential, 3, 42, u64::MAX - 1..u64::MAX), [2]);
        assert_eq!(samples(Order::Single(2), 3, 42, 0..3), [2, 2, 2]);
        for order in [Order::Shuffle, Order::Random, Order::Sequential, Order::Single(0)] {
            assert_eq!(samples(order, 1, 42, 0..5), [0; 5]);
        }
    }

    #[test]
    #[should_panic(expected = "sample 3 of 3")]
    fn single_sample_that_is_not_there_is_a_bug() {
        SampleOrder::new(Order::Single(3), 3, 0);
    }

    /// Pearson's statistic against equal shares, in standard deviations of its distribution: mean
    /// `cells - 1`, variance twice that.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
        let sum: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2)).sum();
        let freedom = (counts.len() - 1) as f64;
        (sum / expected - freedom) / (2.0 * freedom).sqrt()
    }

    /// The statistic's upper tail is a little heavier than a normal one; four standard deviations
    /// are exceeded with a probability of 1e-3 or less, and the seeds are fixed.
    const UNIFORM: f64 = 4.0;

    #[test]
    fn first_sample_and_first_pair_are_uniform_over_seeds() {
        for count in [2u32, 3, 5, 6, 10, 16, 17, 63, 64, 100] {
            let cells = count as usize;
            let mut first = vec![0; cells];
            let mut last = vec![0; cells];
            let mut pair = vec![0; cells * cells];
            for seed in 0..u64::from(count * count) * 20 {
                let order = SampleOrder::new(Order::Shuffle, count, seed);
                let (a, b) = (order.sample(0) as usize, order.sample(1) as usize);
                first[a] += 1;
                last[order.sample(u64::from(count) - 1) as usize] += 1;
                pair[a * cells + b] += 1;
            }
            let pairs: Vec<u32> = (0..cells * cells)
                .filter(|cell| cell / cells != cell % cells)
                .map(|cell| pair[cell])
                .collect();
            for counts in [first, last, pairs] {
                assert!(chi_square(&counts) < UNIFORM, "{count} samples: {}", chi_square(&counts));
            }
        }
    }

    #[test]
    fn first_sample_is_uniform_over_passes() {
        for count in [2u32, 10, 100] {
            let order = SampleOrder::new(Order::Shuffle, count, 42);
            let mut first = vec![0; count as usize];
            for pass in 0..u64::from(count) * 100 {
                first[order.sample(pass * u64::from(count)) as usize] += 1;
            }
            assert!(chi_square(&first) < UNIFORM, "{count} samples: {}", chi_square(&first));
        }
    }

    #[test]
    fn random_samples_are_uniform_and_independent() {
        let all = samples(Order::Random, 20, 42, 0..40_000);
        let mut single = vec![0; 20];
        let mut pair = vec![0; 400];
        for two in all.windows(2) {
            single[two[0] as usize] += 1;
            pair[two[0] as usize * 20 + two[1] as usize] += 1;
        }
        assert!(chi_square(&single) < UNIFORM, "{}", chi_square(&single));
        assert!(chi_square(&pair) < UNIFORM, "{}", chi_square(&pair));
    }

    #[test]
    fn test_of_uniformity_rejects_a_bias_of_a_few_percent() {
        assert!(chi_square(&[1000, 1000, 1000, 1000]) < 0.0);
        assert!(chi_square(&[10_000, 10_000, 10_000, 10_600]) > UNIFORM);
        assert!(chi_square(&[4000, 0, 0, 0]) > 1000.0);
    }
}
