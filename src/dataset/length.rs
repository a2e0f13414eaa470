//! Lengths in tokens, as `--isl` and `--osl` give them.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use crate::config::unit;
use crate::error::Error;

/// How many tokens a prompt or an answer has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Always the same.
    Fixed(u32),
    /// Evenly between both, each included.
    Uniform {
        /// Shortest, at least 1.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// Normal, rounded, at least 1.
    Normal {
        /// Mean, before what is below 1 becomes 1.
        mean: f64,
        /// Standard deviation.
        std_dev: f64,
    },
    /// Log-normal, rounded, at least 1.
    LogNormal {
        /// Mean of the length itself, not of its logarithm.
        mean: f64,
        /// Standard deviation of the length itself.
        std_dev: f64,
    },
}

impl Length {
    /// Parses the value of `flag`.
    pub fn parse(flag: &str, text: &str) -> Result<Length, Error> {
        parse(text.trim()).ok_or_else(|| Error::value(flag, text, LENGTH_FORM))
    }

    /// Its mean, for a heading.
    pub fn mean(&self) -> f64 {
        match *self {
            Length::Fixed(tokens) => f64::from(tokens),
            Length::Uniform { min, max } => f64::midpoint(f64::from(min), f64::from(max)),
            Length::Normal { mean, .. } | Length::LogNormal { mean, .. } => mean,
        }
    }

    /// Draws a length of 1 to [`TOKENS_MAX`].
    pub fn draw(&self, random: &mut ChaCha8Rng) -> u32 {
        match *self {
            Length::Fixed(tokens) => tokens,
            Length::Uniform { min, max } => min + below(random, max - min + 1),
            Length::Normal { mean, std_dev } => rounded(mean + std_dev * normal(random)),
            Length::LogNormal { mean, std_dev } => {
                let ratio = std_dev / mean;
                let variance = libm::log1p(ratio * ratio);
                let exponent = libm::log(mean) - variance / 2.0 + variance.sqrt() * normal(random);
                rounded(libm::exp(exponent))
            }
        }
    }
}

/// What [`Length::parse`] takes, for error messages.
pub const LENGTH_FORM: &str = "a number of tokens such as 550 or 1k, 550~50 (normal: mean and \
     standard deviation), 550+-20% or uniform:440-660 (even between the ends), lognormal:550~300; \
     1 to 10M";

/// Most tokens of a prompt or an answer.
pub const TOKENS_MAX: u32 = 10_000_000;

fn parse(text: &str) -> Option<Length> {
    if let Some((mean, share)) = text.split_once("+-") {
        let mean = tokens(mean)?;
        let percent: f64 = share.strip_suffix('%')?.parse().ok()?;
        if !(0.0..=100.0).contains(&percent) {
            return None;
        }
        let spread = f64::from(mean) * percent / 100.0;
        let (min, max) = (f64::from(mean) - spread, f64::from(mean) + spread);
        return Some(Length::Uniform { min: rounded(min.ceil()), max: rounded(max.floor()) });
    }
    if let Some(ends) = text.strip_prefix("uniform:") {
        let (min, max) = ends.split_once('-')?;
        let (min, max) = (tokens(min)?, tokens(max)?);
        return (min <= max).then_some(Length::Uniform { min, max });
    }
    if let Some(numbers) = text.strip_prefix("lognormal:") {
        let (mean, std_dev) = mean_and_deviation(numbers)?;
        return Some(Length::LogNormal { mean, std_dev });
    }
    if text.contains('~') {
        let (mean, std_dev) = mean_and_deviation(text)?;
        return Some(Length::Normal { mean, std_dev });
    }
    tokens(text).map(Length::Fixed)
}

fn mean_and_deviation(text: &str) -> Option<(f64, f64)> {
    let (mean, std_dev) = text.split_once('~')?;
    let std_dev: f64 = std_dev.parse().ok()?;
    let is_sane = (0.0..=f64::from(TOKENS_MAX)).contains(&std_dev);
    is_sane.then_some((f64::from(tokens(mean)?), std_dev))
}

fn tokens(text: &str) -> Option<u32> {
    let tokens = u32::try_from(unit::count(text)?).ok()?;
    (1..=TOKENS_MAX).contains(&tokens).then_some(tokens)
}

fn rounded(tokens: f64) -> u32 {
    tokens.round().clamp(1.0, f64::from(TOKENS_MAX)) as u32
}

/// A whole number below `bound`, which is at most 2^25: none is likelier than another by more than
/// one part in 2^39.
pub fn below(random: &mut ChaCha8Rng, bound: u32) -> u32 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u32
}

/// Mean 0, variance 1: Marsaglia's polar method, the second number of the pair unused. By `libm`,
/// so that a seed gives the same on every platform.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let mut uniform = || (random.next_u64() >> 11) as f64 * (f64::EPSILON / 2.0);
    loop {
        let (x, y) = (2.0 * uniform() - 1.0, 2.0 * uniform() - 1.0);
        let square = x * x + y * y;
        if square < 1.0 && square > 0.0 {
            return x * (-2.0 * libm::log(square) / square).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn each_form_is_read() {
        let cases = [
            ("550", Length::Fixed(550)),
            ("1k", Length::Fixed(1000)),
            ("550~50", Length::Normal { mean: 550.0, std_dev: 50.0 }),
            ("550~0", Length::Normal { mean: 550.0, std_dev: 0.0 }),
            ("550+-20%", Length::Uniform { min: 440, max: 660 }),
            ("5+-50%", Length::Uniform { min: 3, max: 7 }),
            ("1+-100%", Length::Uniform { min: 1, max: 2 }),
            ("uniform:440-660", Length::Uniform { min: 440, max: 660 }),
            ("uniform:7-7", Length::Uniform { min: 7, max: 7 }),
            ("lognormal:550~300", Length::LogNormal { mean: 550.0, std_dev: 300.0 }),
        ];
        for (text, length) in cases {
            assert_eq!(Length::parse("--isl", text), Ok(length), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_names_the_flag_and_the_forms() {
        let bad = [
            "",
            "0",
            "-5",
            "x",
            "550~",
            "~5",
            "550~-1",
            "550~nan",
            "550+-20",
            "550+-200%",
            "uniform:9-3",
            "uniform:0-3",
            "uniform:3",
            "lognormal:550",
            "1,8,64",
            "1k..16k*2",
            "20M",
            "550.5",
        ];
        for text in bad {
            let error = Length::parse("--isl", text).expect_err(text).to_string();
            assert!(
                error.starts_with(&format!("--isl got `{text}`; allowed: a number")),
                "{error}"
            );
        }
    }

    /// Mean and standard deviation of many draws.
    fn moments(length: Length) -> (f64, f64) {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(length.draw(&mut random))).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let square = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>();
        (mean, (square / draws.len() as f64).sqrt())
    }

    #[test]
    fn draws_have_the_mean_and_deviation_that_were_asked_for() {
        // Five standard errors of 100 000 draws, rounding included (1/12 of variance).
        let cases = [
            ("550~50", 550.0, 50.0),
            ("lognormal:550~300", 550.0, 300.0),
            ("uniform:440-660", 550.0, (221.0f64 * 221.0 - 1.0).sqrt() / 12f64.sqrt()),
        ];
        for (text, mean, std_dev) in cases {
            let (got_mean, got_std_dev) = moments(Length::parse("", text).unwrap());
            assert!((got_mean - mean).abs() < 5.0 * std_dev / 316.0, "{text}: mean {got_mean}");
            assert!((got_std_dev / std_dev - 1.0).abs() < 0.03, "{text}: {got_std_dev}");
        }
    }

    #[test]
    fn both_ends_are_drawn_and_nothing_beyond_or_below_one() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut draws = |text| {
            let length = Length::parse("", text).unwrap();
            let draws: Vec<u32> = (0..1000).map(|_| length.draw(&mut random)).collect();
            (*draws.iter().min().unwrap(), *draws.iter().max().unwrap())
        };
        assert_eq!(draws("uniform:3-5"), (3, 5));
        assert_eq!(draws("2~50").0, 1);
    }
}
