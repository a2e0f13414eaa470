//! Chunks that repeat the text so far: what in them is new.
//!
//! SGLang's `/generate` sends them by design, others by mistake. They are told from chunks with
//! new text only by what they say: from the first chunk on, each begins with all of the one before.

/// The text of the chunk before, as long as it matters.
#[derive(Clone, Debug)]
pub(super) struct Repeated {
    state: State,
    /// As it stood on the wire.
    before: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// By design, as far as the chunks have shown; whether they have.
    Presumed {
        was_seen: bool,
    },
    /// So many bytes were repeated, and so often the whole chunk before was all there was.
    Suspected {
        bytes: usize,
        same: u8,
    },
    Certain,
    Never,
}

impl Repeated {
    pub(super) fn new() -> Repeated {
        Repeated { state: State::Never, before: Vec::with_capacity(BUFFER_BYTES) }
    }

    /// A new answer; `is_design`: its chunks should repeat.
    pub(super) fn begin(&mut self, is_design: bool) {
        self.before.clear();
        self.before.shrink_to(BUFFER_BYTES_KEPT);
        self.state = if is_design { State::Presumed { was_seen: false } } else { SUSPECTED };
    }

    /// Whether chunks repeat the text so far, of which there is no doubt any more.
    pub(super) fn is_certain(&self) -> bool {
        matches!(self.state, State::Certain | State::Presumed { was_seen: true })
    }

    /// Whether a chunk stands for all of the text so far.
    pub(super) fn is_whole_text(&self) -> bool {
        matches!(self.state, State::Certain | State::Presumed { .. })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.before.capacity()
    }

    /// A chunk that has no text to compare: they do not repeat.
    pub(super) fn give_up(&mut self) {
        self.state = State::Never;
    }

    /// Takes the text of the next chunk, which is not empty. Whether something in it is new.
    #[inline]
    pub(super) fn is_new(&mut self, raw: &[u8]) -> bool {
        self.state == State::Never || self.compare(raw)
    }

    fn compare(&mut self, raw: &[u8]) -> bool {
        let repeated_bytes = self.before.len();
        let begins_alike = raw.starts_with(&self.before);
        let is_longer = raw.len() > repeated_bytes;
        let is_first = repeated_bytes == 0;
        let is_known = self.is_whole_text();
        self.state = match self.state {
            // It may be mended while it grows, but it does not shrink.
            State::Presumed { .. } | State::Certain if raw.len() < repeated_bytes => State::Never,
            // Before it was seen to repeat, only a character that was cut may change.
            State::Presumed { was_seen: false } if !raw.starts_with(whole(&self.before)) => {
                State::Never
            }
            State::Presumed { was_seen } => {
                State::Presumed { was_seen: was_seen || (begins_alike && !is_first) }
            }
            State::Suspected { bytes, .. } if begins_alike && is_longer => {
                match bytes + repeated_bytes {
                    CERTAIN_BYTES.. => State::Certain,
                    bytes => State::Suspected { bytes, same: 0 },
                }
            }
            // The same again may be the same token as well as nothing new; a text does not stand
            // still that long.
            State::Suspected { bytes, same } if begins_alike && same < SAME_MAX => {
                State::Suspected { bytes, same: same + 1 }
            }
            State::Suspected { .. } | State::Never => State::Never,
            State::Certain => State::Certain,
        };
        if begins_alike {
            self.before.extend_from_slice(&raw[repeated_bytes..]);
        } else {
            self.before.clear();
            self.before.extend_from_slice(raw);
        }
        !begins_alike || is_longer || !is_known
    }
}

/// Without the replacement characters at the end, which stand for a character that was cut.
fn whole(mut raw: &[u8]) -> &[u8] {
    let marks: [&[u8]; 3] = ["\u{fffd}".as_bytes(), br"\ufffd", br"\uFFFD"];
    while let Some(rest) = marks.iter().find_map(|mark| raw.strip_suffix(*mark)) {
        raw = rest;
    }
    raw
}

/// The state of an answer whose chunks should not repeat.
const SUSPECTED: State = State::Suspected { bytes: 0, same: 0 };
/// How often in a row a chunk that repeats nothing but the one before leaves the suspicion.
const SAME_MAX: u8 = 4;
/// Repeated bytes that are no coincidence. Two chunks that happen to be alike, as in "ha" "haha",
/// have less; a text so far has more after a few chunks.
const CERTAIN_BYTES: usize = 16;
const BUFFER_BYTES: usize = 256;
/// Room that is kept from one answer to the next.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn news(is_design: bool, chunks: &[&str]) -> (Vec<bool>, bool) {
        let mut repeated = Repeated::new();
        repeated.begin(is_design);
        let news = chunks.iter().map(|chunk| repeated.is_new(chunk.as_bytes())).collect();
        (news, repeated.is_certain())
    }

    #[test]
    fn repetition_is_found_where_it_is_no_coincidence() {
        let so_far =
            ["The capital of France", "The capital of France is", "The capital of France is"];
        assert_eq!(news(false, &so_far), (vec![true, true, false], true));
        let letters = ["a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefg"];
        assert_eq!(news(false, &letters), ([vec![true; 7], vec![false]].concat(), true));
        assert_eq!(news(false, &["ha", "haha", "ha", "ha"]), (vec![true; 4], false));
        assert_eq!(news(false, &["ha", "ha", "ha"]), (vec![true; 3], false));
        let token_after_token = [vec!["ab"; 6], vec!["abab", "abababababababababab"]].concat();
        assert_eq!(news(false, &token_after_token), (vec![true; 8], false));
        let words = ["The capital of France", " is", "The capital of France is Paris"];
        assert_eq!(news(false, &words), (vec![true; 3], false), "the relation broke once");
    }

    #[test]
    fn what_repeats_by_design_may_be_mended_but_not_shrink() {
        assert_eq!(news(true, &["a", "a", "ab"]), (vec![true, false, true], true));
        for cut in ["ab\u{fffd}", "ab\u{fffd}\u{fffd}", r"ab\ufffd", r"ab\uFFFD"] {
            assert_eq!(news(true, &[cut, "ab\u{e9}cdefghij"]), (vec![true, true], false));
            assert!(news(true, &[cut, "abcdefghijklm", "abcdefghijklmn"]).1);
        }
        assert_eq!(news(true, &["abc", "d", "d"]), (vec![true, true, true], false));
        assert_eq!(news(true, &["abc"]), (vec![true], false), "one chunk repeats nothing");
    }

    #[test]
    fn what_does_not_repeat_is_known_before_anything_is_lost() {
        let is_whole_text = |is_design: bool, chunks: &[&str]| {
            let mut repeated = Repeated::new();
            repeated.begin(is_design);
            for chunk in chunks {
                repeated.is_new(chunk.as_bytes());
            }
            repeated.is_whole_text()
        };
        assert!(is_whole_text(true, &["a", "ab", "abc"]));
        assert!(!is_whole_text(true, &["The", " capital"]), "news only, and longer each time");
        assert!(!is_whole_text(true, &[" a", " cap"]));
        // A line that grows by doubling looked like it, until it ended.
        let line = "========";
        let doubled = [line, &line.repeat(2), &line.repeat(4)];
        assert!(is_whole_text(false, &doubled));
        assert!(!is_whole_text(false, &[doubled[0], doubled[1], doubled[2], "\n"]));
        let (news, _) = news(false, &[doubled[0], doubled[1], doubled[2], "\n", "\n"]);
        assert_eq!(news, [true; 5]);
    }
}
