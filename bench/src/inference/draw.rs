//! Random numbers of one request: the same for the same seed and the same request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The numbers that `seed` gives to the `occurrence`th request with this `body`, counted from
    /// 0. Neither the order in which different requests come nor their connections matter.
    pub fn of_request(seed: u64, body: &[u8], occurrence: u32) -> Draws {
        let mut draws = Draws(hash(body) ^ mix(seed));
        draws.0 = draws.next_u64().wrapping_add(u64::from(occurrence).wrapping_mul(WEYL));
        draws.0 = draws.next_u64();
        draws
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(WEYL);
        mix(self.0)
    }

    /// From 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0 up to, not including, `limit`, which is above 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u32
    }
}

/// How often each request body has come, on all threads together.
///
/// Bodies share a fixed number of counters by their hash. Two that meet on one counter depend on
/// each other's order; nothing else goes wrong.
#[derive(Clone, Debug)]
pub(crate) struct Occurrences(Arc<[AtomicU32]>);

impl Occurrences {
    pub(crate) fn new() -> Occurrences {
        Occurrences((0..COUNTERS).map(|_| AtomicU32::new(0)).collect())
    }

    /// How often the body has come before.
    pub(crate) fn next(&self, body: &[u8]) -> u32 {
        self.0[hash(body) as usize % COUNTERS].fetch_add(1, Ordering::Relaxed)
    }
}

/// Eight bytes a step: prompts may have a megabyte. No defence against those who look for
/// collisions.
fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain(std::iter::once(&tail));
    let fold = |state: u64, word: &[u8; 8]| {
        (state ^ u64::from_le_bytes(*word)).wrapping_mul(WEYL).rotate_left(29)
    };
    mix(words.fold(mix(bytes.len() as u64), fold))
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The golden ratio's share of 2^64, odd.
const WEYL: u64 = 0x9e37_79b9_7f4a_7c15;
const COUNTERS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut draws = Draws(1_234_567);
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| draws.next_u64()), expected);
    }

    #[test]
    fn seed_body_and_occurrence_each_change_the_numbers() {
        let first = |seed, body: &str, occurrence| {
            Draws::of_request(seed, body.as_bytes(), occurrence).next_u64()
        };
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
        let cases = [
            first(1, "a", 0),
            first(2, "a", 0),
            first(1, "b", 0),
            first(1, "a", 1),
            first(1, "a\0", 0),
            first(1, "aaaaaaaa", 0),
            first(1, "aaaaaaaaa", 0),
            first(1, "", 0),
        ];
        for (index, case) in cases.iter().enumerate() {
            assert!(!cases[..index].contains(case), "{index}");
        }
    }

    #[test]
    fn shares_of_many_requests_are_even() {
        // 10 000 occurrences of one body, one draw each: 10 % within five standard errors.
        let hits = (0..10_000).filter(|&n| Draws::of_request(42, b"{}", n).unit() < 0.1).count();
        assert!(hits.abs_diff(1000) < 150, "{hits}");
        let mut counts = [0u32; 7];
        let mut draws = Draws::of_request(42, b"{}", 0);
        for _ in 0..70_000 {
            counts[draws.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn each_body_is_counted_on_its_own() {
        let occurrences = Occurrences::new();
        assert_eq!(
            [b"a", b"b", b"a", b"a", b"b"].map(|body| occurrences.next(body)),
            [0, 0, 1, 2, 1]
        );
    }
}
