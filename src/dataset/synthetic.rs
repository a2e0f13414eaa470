//! Prompts that are made up, of exact lengths.

use super::{Dataset, Length};
use crate::error::Error;
use crate::tokenizer::Tokenizer;

/// What prompts to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Tokens of a prompt.
    pub isl: Length,
    /// Tokens asked for, if each row is to say so.
    pub osl: Option<Length>,
    /// How many prompts.
    pub count: usize,
    /// Seed of lengths and words: another one gives other prompts from their first word on.
    pub seed: u64,
}

/// Makes prompts. `progress` is called from several threads with the prompts made and their total.
pub fn synthetic(
    plan: &Synthetic,
    tokenizer: Option<&Tokenizer>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Dataset, Error> {
    let _ = (plan, tokenizer, progress);
    Err(Error::usage("prompts are not made up yet"))
}

/// Counts the tokens of all prompts that are texts and of recorded answers, which are then
/// forgotten. `progress` is called from several threads with the samples counted and their total.
pub fn count_tokens(
    dataset: &mut Dataset,
    tokenizer: &Tokenizer,
    progress: &(dyn Fn(u64, u64) + Sync),
) {
    let _ = (dataset, tokenizer, progress);
}
