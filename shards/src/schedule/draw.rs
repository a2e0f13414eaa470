//! Random numbers of the unit-rate process, the same on every platform and in every version.
//!
//! One word of 64 bits makes a uniform number, and one uniform number an exponential one. A gamma
//! number takes as many as it needs, which is fine as a list is always walked from its begin.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{GOLDEN, mix64};

/// ChaCha8. Its key is the first four words of SplitMix64 after the seed, in little endian; its
/// stream number is the plan's.
#[derive(Clone, Debug)]
pub(super) struct Source(ChaCha8Rng);

impl Source {
    pub(super) fn new(seed: u64, stream: u64) -> Source {
        let mut key = [0; 32];
        for (step, bytes) in (1..).zip(key.chunks_exact_mut(8)) {
            let word = mix64(seed.wrapping_add(GOLDEN.wrapping_mul(step)));
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let mut words = ChaCha8Rng::from_seed(key);
        words.set_stream(stream);
        Source(words)
    }

    /// The middle of one of 2^52 equal parts of 0 to 1, so never 0 and never 1.
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) * f64::EPSILON
    }

    /// Mean 1, by the inverse of the distribution function.
    pub(super) fn exponential(&mut self) -> f64 {
        -libm::log(self.uniform())
    }

    /// Mean 1 and this shape, so that variance / mean^2 = 1 / shape.
    ///
    /// Marsaglia and Tsang, A simple method for generating gamma variables (2000). Below 1, the
    /// number for shape + 1 is multiplied by uniform^(1 / shape).
    pub(super) fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let large = self.gamma_from_one(shape + 1.0);
            large * libm::exp(libm::log(self.uniform()) / shape) / shape
        } else {
            self.gamma_from_one(shape) / shape
        }
    }

    /// Mean `shape`, which is at least 1.
    fn gamma_from_one(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (3.0 * d.sqrt());
        loop {
            let x = self.normal();
            let u = self.uniform();
            // v - 1 for v = (1 + c x)^3: next to 1, v itself would lose the bits that decide.
            let w = c * x * (3.0 + c * x * (3.0 + c * x));
            if w <= -1.0 {
                continue;
            }
            let square = x * x;
            if u < 1.0 - 0.0331 * square * square
                || libm::log(u) < 0.5 * square + d * (libm::log1p(w) - w)
            {
                return d * (1.0 + w);
            }
        }
    }

    /// Mean 0, variance 1: Marsaglia's polar method, the second number of the pair unused.
    fn normal(&mut self) -> f64 {
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                return x * (-2.0 * libm::log(square) / square).sqrt();
            }
        }
    }
}
