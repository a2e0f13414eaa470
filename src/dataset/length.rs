//! Lengths in tokens, as `--isl` and `--osl` give them.

use crate::error::Error;

/// How many tokens a prompt or an answer has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Always the same.
    Fixed(u32),
    /// Evenly between both, each included.
    Uniform { min: u32, max: u32 },
    /// Normal, rounded, at least 1.
    Normal { mean: f64, std_dev: f64 },
    /// Log-normal with this mean and standard deviation of the length itself, rounded, at least 1.
    LogNormal { mean: f64, std_dev: f64 },
}

impl Length {
    /// Parses the value of `flag`.
    pub fn parse(flag: &str, text: &str) -> Result<Length, Error> {
        text.parse().map(Length::Fixed).map_err(|_| Error::value(flag, text, LENGTH_FORM))
    }
}

/// What [`Length::parse`] takes, for error messages.
pub const LENGTH_FORM: &str = "a number of tokens such as 550 or 1k, 550~50 (normal, mean and \
     standard deviation), 550+-20% or uniform:440-660 (even between both), lognormal:550~300";
