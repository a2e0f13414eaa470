//! Prompts that are made up: of exact lengths in a tokenizer, different from their first words on.
//!
//! Every prompt has a stream of random numbers of its own, so that neither the number of threads
//! nor of prompts changes it. Its first words are a permutation of its number, which makes no two
//! begin alike; all others are drawn.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::length::below;
use super::words::Words;
use super::{Dataset, Length, Prompt, Sample};
use crate::error::Error;
use crate::number;
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

/// Makes prompts. Without a tokenizer they have as many words as `isl` has tokens, which is about
/// right, and their tokens are left open. `progress` is called from several threads with the
/// prompts made and their total.
pub fn synthetic(
    plan: &Synthetic,
    tokenizer: Option<&Tokenizer>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Dataset, Error> {
    made_by(threads(), plan, tokenizer, progress)
}

/// Counts the tokens of prompts that are texts or token ids, and of recorded answers, which are
/// then forgotten. A length that a row gives stays. `progress` is called from several threads with
/// the samples counted and their total.
pub fn count_tokens(
    dataset: &mut Dataset,
    tokenizer: &Tokenizer,
    progress: &(dyn Fn(u64, u64) + Sync),
) {
    let total = dataset.samples.len() as u64;
    let done = AtomicUsize::new(0);
    let blocks = Mutex::new(dataset.samples.chunks_mut(BLOCK));
    let count = || {
        loop {
            // A panic elsewhere ends the scope; until then the iterator is as good as before.
            let block = blocks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(block) = block else { return };
            for sample in block.iter_mut() {
                count_sample(sample, tokenizer);
            }
            progress((done.fetch_add(block.len(), Ordering::Relaxed) + block.len()) as u64, total);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(count);
        }
    });
}

fn count_sample(sample: &mut Sample, tokenizer: &Tokenizer) {
    let count = |text: &String| tokenizer.count(text) as u32;
    sample.prompt_tokens = match &sample.prompt {
        Prompt::Text(text) => Some(count(text)),
        Prompt::Texts(texts) => Some(texts.iter().map(count).sum()),
        Prompt::Tokens(tokens) => Some(tokens.len() as u32),
        Prompt::None | Prompt::Messages(_) | Prompt::Body(_) => sample.prompt_tokens,
    };
    if let Some(answer) = sample.answer.take() {
        sample.output_tokens = sample.output_tokens.or(Some(count(&answer)));
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn made_by(
    threads: usize,
    plan: &Synthetic,
    tokenizer: Option<&Tokenizer>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Dataset, Error> {
    let words = tokenizer.map_or_else(|| Ok(Words::common()), Words::of)?;
    made_with(&words, threads, plan, tokenizer, progress)
}

/// A tokenizer that was found to cut at every word and then does not has all prompts made again.
fn made_with(
    words: &Words,
    threads: usize,
    plan: &Synthetic,
    tokenizer: Option<&Tokenizer>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Dataset, Error> {
    let mut maker = Maker::new(plan, words, tokenizer);
    let samples = made_of(threads, &maker, progress)?;
    let samples = if !maker.checks_all && maker.was_surprised.load(Ordering::Relaxed) {
        maker.checks_all = true;
        made_of(threads, &maker, progress)?
    } else {
        samples
    };
    Ok(Dataset {
        name: "synthetic".to_owned(),
        samples,
        taken_as: described(plan, tokenizer),
        ..Dataset::default()
    })
}

/// Threads take blocks of prompts until none is left.
fn made_of(
    threads: usize,
    maker: &Maker<'_>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Sample>, Error> {
    let count = maker.plan.count;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let make = || -> Result<Vec<(usize, Vec<Sample>)>, Error> {
        let mut blocks = Vec::new();
        loop {
            let first = next.fetch_add(BLOCK, Ordering::Relaxed);
            if first >= count {
                return Ok(blocks);
            }
            let block = first..count.min(first + BLOCK);
            let length = block.len();
            blocks.push((first, block.map(|index| maker.sample(index)).collect::<Result<_, _>>()?));
            let made = done.fetch_add(length, Ordering::Relaxed) + length;
            progress(made as u64, count as u64);
        }
    };
    let outcomes: Vec<Result<_, Error>> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(make)).collect();
        let join = |handle: thread::ScopedJoinHandle<'_, _>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).collect()
    });
    let mut blocks: Vec<(usize, Vec<Sample>)> = Vec::new();
    for outcome in outcomes {
        blocks.extend(outcome?);
    }
    blocks.sort_unstable_by_key(|(first, _)| *first);
    let mut samples = Vec::with_capacity(count);
    samples.extend(blocks.into_iter().flat_map(|(_, block)| block));
    Ok(samples)
}

fn described(plan: &Synthetic, tokenizer: Option<&Tokenizer>) -> String {
    let length = number::grouped(plan.isl.mean().round() as u64);
    match tokenizer {
        Some(tokenizer) => format!("made up, {length} tokens on average ({})", tokenizer.name()),
        None => format!("made up, about {length} tokens on average (estimated: a word is one)"),
    }
}

/// Prompts that a thread takes at a time.
const BLOCK: usize = 64;

/// Makes any prompt of a plan by its number.
struct Maker<'a> {
    plan: &'a Synthetic,
    words: &'a Words,
    tokenizer: Option<&'a Tokenizer>,
    /// Odd. The first words of prompt i are the digits of `factor * i + offset`, the lowest first,
    /// in a number system whose digits are the words: as the factor is odd and there are 2^n
    /// words, the first k digits are a permutation of i modulo 2^nk.
    factor: u64,
    /// Where the permutation begins.
    offset: u64,
    /// Every prompt is encoded to count its tokens; else one of [`BLOCK`], as the tokenizer was
    /// found to cut a text at every word.
    checks_all: bool,
    /// One of these had another count than its words.
    was_surprised: AtomicBool,
}

impl<'a> Maker<'a> {
    fn new(plan: &'a Synthetic, words: &'a Words, tokenizer: Option<&'a Tokenizer>) -> Maker<'a> {
        let mut random = stream(plan.seed, u64::MAX);
        let (factor, offset) = (random.next_u64() | 1, random.next_u64());
        let checks_all = !words.are_apart;
        let was_surprised = AtomicBool::new(false);
        Maker { plan, words, tokenizer, factor, offset, checks_all, was_surprised }
    }

    fn sample(&self, index: usize) -> Result<Sample, Error> {
        let mut random = stream(self.plan.seed, index as u64);
        let tokens = self.plan.isl.draw(&mut random);
        let output_tokens = self.plan.osl.map(|length| length.draw(&mut random));
        let mut text = self.text(index, tokens, &mut random)?;
        text.shrink_to_fit();
        let prompt_tokens = self.tokenizer.map(|_| tokens);
        Ok(Sample { prompt: Prompt::Text(text), prompt_tokens, output_tokens, ..Sample::default() })
    }

    /// As many words as tokens are wanted; then the tokens are counted, and words are put to the
    /// end or taken from it, half as many as tokens are wrong, until the count is right. With words
    /// that are a token each, which is how they were chosen, the first count is.
    fn text(&self, index: usize, wanted: u32, random: &mut ChaCha8Rng) -> Result<String, Error> {
        let wanted = wanted as usize;
        // Byte at which each word ends, for when words are taken away.
        let mut ends: Vec<usize> = Vec::with_capacity(wanted);
        let mut text = String::with_capacity(wanted * WORD_BYTES);
        let mut digits = self.factor.wrapping_mul(index as u64).wrapping_add(self.offset);
        let word_bits = self.words.words.len().ilog2();
        let mut lead = LEAD_BITS.div_ceil(word_bits);
        let mut put = |text: &mut String, ends: &mut Vec<usize>| {
            let word = if lead > 0 {
                lead -= 1;
                let digit = digits & ((1 << word_bits) - 1);
                digits >>= word_bits;
                digit as usize
            } else {
                below(random, self.words.words.len() as u32) as usize
            };
            if !text.is_empty() {
                text.push_str(self.words.separator);
            }
            text.push_str(&self.words.words[word]);
            ends.push(text.len());
        };
        for _ in 0..wanted {
            put(&mut text, &mut ends);
        }
        let Some(tokenizer) = self.tokenizer else { return Ok(text) };
        if !self.checks_all && !index.is_multiple_of(BLOCK) {
            return Ok(text);
        }
        for _ in 0..CORRECTIONS_MAX {
            let got = tokenizer.count(&text);
            if got == wanted {
                return Ok(text);
            }
            self.was_surprised.store(true, Ordering::Relaxed);
            if got < wanted {
                (0..(wanted - got).div_ceil(2)).for_each(|_| put(&mut text, &mut ends));
            } else {
                let kept = ends.len().saturating_sub((got - wanted).div_ceil(2)).max(1);
                ends.truncate(kept);
                text.truncate(ends[kept - 1]);
            }
        }
        Err(Error::setup(format!(
            "found no prompt of exactly {wanted} tokens with the tokenizer {}; use a dataset, or \
             --tokenizer none",
            tokenizer.name()
        )))
    }
}

/// Random numbers of one prompt.
fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(number);
    random
}

/// The first words tell 2^32 prompts apart.
const LEAD_BITS: u32 = 32;
/// Rounds of correction before a length is given up.
const CORRECTIONS_MAX: usize = 64;
/// About what a word takes, its separator included.
const WORD_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::tokenizer::tests::of_characters;

    fn plan(isl: &str, count: usize, seed: u64) -> Synthetic {
        Synthetic { isl: Length::parse("--isl", isl).unwrap(), osl: None, count, seed }
    }

    fn texts(dataset: &Dataset) -> Vec<&str> {
        dataset
            .samples
            .iter()
            .map(|sample| match &sample.prompt {
                Prompt::Text(text) => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn quiet(_: u64, _: u64) {}

    #[test]
    fn each_prompt_has_exactly_its_tokens() {
        for tokenizer in [
            Tokenizer::builtin("o200k").unwrap(),
            Tokenizer::builtin("cl100k").unwrap(),
            of_characters("abcdefghijklmnopqrstuvwxyz0123456789"),
        ] {
            let dataset = synthetic(&plan("40~30", 300, 42), Some(&tokenizer), &quiet).unwrap();
            let mut lengths = HashSet::new();
            for (text, sample) in texts(&dataset).iter().zip(&dataset.samples) {
                let ids = tokenizer.encode(text);
                assert_eq!(Some(ids.len() as u32), sample.prompt_tokens, "{text}");
                lengths.insert(ids.len());
            }
            assert!(lengths.len() > 30, "{lengths:?}");
        }
    }

    #[test]
    fn words_that_are_more_or_less_than_a_token_are_corrected() {
        let cl100k = Tokenizer::builtin("cl100k").unwrap();
        let words = ["qzx", "hello", "supercalifragilistic", "a"].map(str::to_owned).to_vec();
        let words = Words { words, separator: " ", are_apart: false };
        let plan = plan("97", 1, 42);
        let maker = Maker::new(&plan, &words, Some(&cl100k));
        for index in 0..50 {
            let text = maker.text(index, 97, &mut stream(1, index as u64)).unwrap();
            assert_eq!(cl100k.count(&text), 97);
            assert!(text.split(' ').count() < 97);
        }
        let words = vec!["qzxjvk".to_owned(); 2];
        let long = Words { words, separator: " ", are_apart: false };
        let error = Maker::new(&plan, &long, Some(&cl100k)).text(0, 1, &mut stream(1, 1));
        assert!(error.unwrap_err().to_string().starts_with("found no prompt of exactly 1 tokens"));
    }

    #[test]
    fn words_that_are_taken_to_be_apart_and_are_not_are_found_out() {
        let cl100k = Tokenizer::builtin("cl100k").unwrap();
        let plan = plan("30", 200, 42);
        let made = |words: [&str; 4]| {
            let words = words.map(str::to_owned).to_vec();
            let words = Words { words, separator: " ", are_apart: true };
            let dataset = made_with(&words, 2, &plan, Some(&cl100k), &quiet).unwrap();
            texts(&dataset).iter().filter(|text| cl100k.count(text) != 30).count()
        };
        assert_eq!(made(["hello", "world", "red", "green"]), 0);
        assert_eq!(made(["hello", "world", "qzxjvk", "green"]), 0);
    }

    #[test]
    fn neither_threads_nor_the_number_of_prompts_change_a_prompt() {
        let o200k = Tokenizer::builtin("o200k").unwrap();
        let mut plan = plan("20~9", 200, 42);
        plan.osl = Some(Length::parse("--osl", "uniform:1-9").unwrap());
        let one = made_by(1, &plan, Some(&o200k), &quiet).unwrap();
        let five = made_by(5, &plan, Some(&o200k), &quiet).unwrap();
        assert_eq!(one, five);
        plan.count = 70;
        let fewer = made_by(2, &plan, Some(&o200k), &quiet).unwrap();
        assert_eq!(one.samples[..70], fewer.samples);
        let lengths: HashSet<_> = one.samples.iter().map(|sample| sample.output_tokens).collect();
        assert_eq!(lengths.len(), 9);
    }

    #[test]
    fn no_two_prompts_begin_alike_within_a_seed_and_few_between_seeds() {
        let o200k = Tokenizer::builtin("o200k").unwrap();
        let first_two = |dataset: &Dataset| -> HashSet<Vec<u32>> {
            texts(dataset).iter().map(|text| o200k.encode(text)[..2].to_vec()).collect()
        };
        let one = synthetic(&plan("4", 5000, 1), Some(&o200k), &quiet).unwrap();
        let two = synthetic(&plan("4", 5000, 2), Some(&o200k), &quiet).unwrap();
        assert_eq!(first_two(&one).len(), 5000);
        let both = first_two(&one).intersection(&first_two(&two)).count();
        assert!(both < 10, "{both}");
        let first: HashSet<u32> = texts(&one).iter().map(|text| o200k.encode(text)[0]).collect();
        assert!(first.len() >= 4096, "{}", first.len());
        let characters = of_characters("abcdefghij");
        let few = synthetic(&plan("4", 4096, 1), Some(&characters), &quiet).unwrap();
        assert_eq!(texts(&few).iter().collect::<HashSet<_>>().len(), 4096);
    }

    #[test]
    fn a_seed_stands_for_the_same_prompts_forever() {
        let o200k = Tokenizer::builtin("o200k").unwrap();
        let dataset = synthetic(&plan("6", 2, 42), Some(&o200k), &quiet).unwrap();
        let expected = ["rite heel mw pig asper doctor", "li ilm tax hh far taste"];
        assert_eq!(texts(&dataset), expected);
    }

    #[test]
    fn without_a_tokenizer_words_are_counted_and_tokens_left_open() {
        let dataset = synthetic(&plan("50", 3, 42), None, &quiet).unwrap();
        for (text, sample) in texts(&dataset).iter().zip(&dataset.samples) {
            assert_eq!(text.split(' ').count(), 50);
            assert_eq!(sample.prompt_tokens, None);
        }
        assert!(dataset.taken_as.contains("estimated"), "{}", dataset.taken_as);
    }

    #[test]
    fn tokens_of_prompts_and_answers_are_counted_and_a_given_length_stays() {
        let cl100k = Tokenizer::builtin("cl100k").unwrap();
        let sample = |prompt, output_tokens| Sample {
            prompt,
            output_tokens,
            answer: Some("tiktoken is great!".to_owned()),
            ..Sample::default()
        };
        let mut dataset = Dataset {
            samples: vec![
                sample(Prompt::Text("hello world".to_owned()), None),
                sample(Prompt::Texts(vec!["hello world".to_owned(), "2".to_owned()]), Some(9)),
                sample(Prompt::Messages(Vec::new()), None),
            ],
            ..Dataset::default()
        };
        count_tokens(&mut dataset, &cl100k, &quiet);
        let counts = dataset.samples.iter().map(|s| (s.prompt_tokens, s.output_tokens));
        let expected = [(Some(2), Some(6)), (Some(3), Some(9)), (None, Some(6))];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
        assert!(dataset.samples.iter().all(|sample| sample.answer.is_none()));
    }
}
