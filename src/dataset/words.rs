//! Words of which prompts are made: each of them one token more, wherever it stands.

use std::collections::HashSet;

use crate::error::Error;
use crate::tokenizer::Tokenizer;

/// Words and what stands between two of them.
pub struct Words {
    /// A power of two of them, all different.
    pub words: Vec<String>,
    /// A space, or nothing for a tokenizer that has no words.
    pub separator: &'static str,
    /// The tokenizer cuts a text at every one of them, so that a text of n words has n tokens.
    pub are_apart: bool,
}

impl Words {
    /// Words of the vocabulary of a tokenizer; where it has too few, single characters.
    pub fn of(tokenizer: &Tokenizer) -> Result<Words, Error> {
        let words = search(tokenizer, tokenizer.vocabulary(), " ", is_word);
        if words.len() >= WORDS_MIN {
            let words = power_of_two(words);
            let are_apart = are_apart(tokenizer, &words);
            return Ok(Words { words, separator: " ", are_apart });
        }
        let pieces = search(tokenizer, tokenizer.vocabulary(), "", is_piece);
        if pieces.len() >= PIECES_MIN {
            return Ok(Words { words: power_of_two(pieces), separator: "", are_apart: false });
        }
        Err(Error::setup(format!(
            "the tokenizer {} has {} words and {} characters that are a token each: too few for \
             prompts of exact length; use a dataset, or --tokenizer none",
            tokenizer.name(),
            words.len(),
            pieces.len()
        )))
    }

    /// Common words without a tokenizer: they are early in the vocabulary of o200k and in that of
    /// cl100k too, so that they are about a token each in any other of this size.
    pub fn common() -> Words {
        let words = COMMON_WORDS.lines().map(str::to_owned).collect();
        Words { words, separator: " ", are_apart: false }
    }
}

/// Texts of the vocabulary that are one token at the begin of a text and one more behind others.
fn search(
    tokenizer: &Tokenizer,
    ids: u32,
    separator: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut words: Vec<String> = Vec::new();
    let mut text = String::new();
    for id in 0..ids {
        let decoded = tokenizer.decode(&[id]);
        let word = decoded.trim();
        if !is_wanted(word) || !seen.insert(word.to_owned()) || tokenizer.count(word) != 1 {
            continue;
        }
        text.clear();
        for part in [word, separator, words.last().map_or(word, String::as_str), separator, word] {
            text.push_str(part);
        }
        if tokenizer.count(&text) == 3 {
            words.push(word.to_owned());
        }
        if words.len() == WORDS_MAX {
            break;
        }
    }
    words
}

/// Whether a text of all the words, each behind two different ones, is cut at every word.
fn are_apart(tokenizer: &Tokenizer, words: &[String]) -> bool {
    // Odd, so that each of 2^n words is met once.
    let stride = words.len() / 2 + 1;
    let again = (0..words.len()).map(|index| &words[index * stride % words.len()]);
    let all: Vec<&str> = words.iter().chain(again).map(String::as_str).collect();
    tokenizer.pieces(&all.join(" ")) == all.len()
}

fn is_word(text: &str) -> bool {
    (2..=12).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase())
        && !MODERATED.iter().any(|stem| text.contains(stem))
}

fn is_piece(text: &str) -> bool {
    text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn power_of_two(mut words: Vec<String>) -> Vec<String> {
    words.truncate(1 << words.len().ilog2());
    words
}

/// Most words; the vocabularies of OpenAI have 4096 or 8192.
const WORDS_MAX: usize = 1 << 14;
const WORDS_MIN: usize = 256;
const PIECES_MIN: usize = 4;
/// What an endpoint that moderates its prompts may refuse.
const MODERATED: [&str; 3] = ["sex", "porn", "escort"];
/// What a search of both vocabularies gives, one a line: a file, as the search takes 100 ms and
/// 100 MB, and most runs need no tokenizer.
const COMMON_WORDS: &str = include_str!("common_words.txt");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::tests::{of_characters, of_words};

    #[test]
    fn each_word_is_a_token_wherever_it_stands() {
        for name in ["o200k", "cl100k"] {
            let tokenizer = Tokenizer::builtin(name).unwrap();
            let Words { words, separator, are_apart } = Words::of(&tokenizer).unwrap();
            assert!(are_apart);
            assert!(words.len() >= 4096, "{}", words.len());
            assert!(words.len().is_power_of_two());
            assert_eq!(words.iter().collect::<HashSet<_>>().len(), words.len());
            assert_eq!(tokenizer.count(&words.join(separator)), words.len());
        }
    }

    #[test]
    fn the_file_of_common_words_is_what_a_search_of_two_vocabularies_gives() {
        // The part of the vocabulary of o200k, most frequent first, where the common words are.
        const COMMON_IDS: u32 = 20_000;
        let [o200k, cl100k] = ["o200k", "cl100k"].map(|name| Tokenizer::builtin(name).unwrap());
        let is_common = |word: &str| is_word(word) && cl100k.count(&format!(" {word}")) == 1;
        let found = power_of_two(search(&o200k, COMMON_IDS, " ", is_common));
        let wanted = format!("{}\n", found.join("\n"));
        assert!(wanted == COMMON_WORDS, "common_words.txt has to be:\n{wanted}");
        let words = Words::common().words;
        assert!(words.len() >= 1024, "{}", words.len());
        let text = format!(" {}", words.join(" "));
        for tokenizer in [o200k, cl100k] {
            assert_eq!(tokenizer.count(&text), words.len(), "{}", tokenizer.name());
        }
    }

    #[test]
    fn a_tokenizer_of_characters_has_no_words_but_characters() {
        let words = Words::of(&of_characters("abcdefghi !")).unwrap();
        assert_eq!((words.words.len(), words.separator, words.are_apart), (8, "", false));
        let all = ["a", "b"].map(str::to_owned);
        assert!(!are_apart(&of_characters("ab "), &all), "it never cuts");
        assert!(are_apart(&of_words(&["a", "b"], true), &all));
    }

    #[test]
    fn a_vocabulary_of_next_to_nothing_is_a_clear_error() {
        let error = Words::of(&of_words(&["red"], true)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("too few for prompts of exact length"), "{error}");
    }
}
