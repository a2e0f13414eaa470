//! JSON (RFC 8259), checked and picked from in one pass over borrowed bytes, without allocation.
//!
//! Strict but for one thing: bytes of a string that are not UTF-8 are let through and read as
//! U+FFFD, as the decoder in front of an event stream would have made them.

/// The bytes are not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson {
    /// Position of the first byte that cannot be.
    pub at: usize,
    /// All bytes can be, but there are too few.
    pub is_early: bool,
}

/// A position in a JSON text.
#[derive(Debug)]
pub(super) struct Json<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
}

/// A string as it stands between its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The bytes, escapes and all.
    pub raw: &'a [u8],
    /// Without any escape.
    pub is_plain: bool,
}

impl<'a> Json<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Json<'a> {
        Json { bytes, at: 0, depth: 0 }
    }

    /// The next byte that is not white space; it is not taken.
    #[inline(always)]
    pub(super) fn peek(&mut self) -> Option<u8> {
        match self.bytes.get(self.at) {
            Some(byte) if *byte > b' ' => Some(*byte),
            _ => self.peek_behind_space(),
        }
    }

    #[inline(never)]
    fn peek_behind_space(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Nothing but white space may follow.
    pub(super) fn end(&mut self) -> Result<(), NotJson> {
        if self.peek().is_none() { Ok(()) } else { Err(self.wrong()) }
    }

    /// The members of the object that comes: `each` gets the name of one and takes its value.
    #[inline]
    pub(super) fn members(
        &mut self,
        mut each: impl FnMut(&mut Json<'a>, &[u8]) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        self.open(b'{')?;
        if self.take(b'}') {
            self.depth -= 1;
            return Ok(());
        }
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            let decoded;
            let name = if name.is_plain {
                name.raw
            } else {
                decoded = name.decode_name();
                &decoded.0[..decoded.1]
            };
            each(self, name)?;
            if !self.take(b',') {
                self.depth -= 1;
                return self.expect(b'}');
            }
        }
    }

    /// The elements of the array that comes: `each` gets the index of one and takes its value.
    #[inline]
    pub(super) fn elements(
        &mut self,
        mut each: impl FnMut(&mut Json<'a>, usize) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        self.open(b'[')?;
        if self.take(b']') {
            self.depth -= 1;
            return Ok(());
        }
        for index in 0.. {
            each(self, index)?;
            if !self.take(b',') {
                break;
            }
        }
        self.depth -= 1;
        self.expect(b']')
    }

    /// The members, if an object comes; anything else is skipped.
    #[inline]
    pub(super) fn members_if_any(
        &mut self,
        each: impl FnMut(&mut Json<'a>, &[u8]) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        if self.peek() == Some(b'{') { self.members(each) } else { self.skip() }
    }

    /// The elements, if an array comes; anything else is skipped.
    #[inline]
    pub(super) fn elements_if_any(
        &mut self,
        each: impl FnMut(&mut Json<'a>, usize) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        if self.peek() == Some(b'[') { self.elements(each) } else { self.skip() }
    }

    /// The string that comes; anything else is skipped.
    #[inline]
    pub(super) fn text(&mut self) -> Result<Option<Text<'a>>, NotJson> {
        if self.peek() == Some(b'"') {
            return self.string().map(Some);
        }
        self.skip().map(|()| None)
    }

    /// The number that comes, if it is an integer from 0 to 2^32 - 1; anything else is skipped.
    #[inline]
    pub(super) fn count(&mut self) -> Result<Option<u32>, NotJson> {
        if self.peek().is_none_or(|byte| !byte.is_ascii_digit()) {
            return self.skip().map(|()| None);
        }
        let from = self.at;
        self.number()?;
        let digits = &self.bytes[from..self.at];
        Ok(digits.iter().try_fold(0u32, |count, digit| {
            let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
            count.checked_mul(10)?.checked_add(digit)
        }))
    }

    /// Any value, checked; its bytes.
    pub(super) fn value(&mut self) -> Result<&'a [u8], NotJson> {
        self.peek();
        let from = self.at;
        self.skip()?;
        Ok(&self.bytes[from..self.at])
    }

    /// Any value, checked and left behind.
    ///
    /// What is small is inlined, here and above, so that the position stays in a register from one
    /// token to the next: through memory each costs five cycles, half of the time of a chunk.
    #[inline(always)]
    pub(super) fn skip(&mut self) -> Result<(), NotJson> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{' | b'[') => self.skip_nested(),
            Some(b'n') => self.word(b"null"),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            _ => self.number(),
        }
    }

    #[inline(never)]
    fn skip_nested(&mut self) -> Result<(), NotJson> {
        if self.peek() == Some(b'{') {
            self.members(|json, _| json.skip())
        } else {
            self.elements(|json, _| json.skip())
        }
    }

    #[inline(always)]
    fn open(&mut self, bracket: u8) -> Result<(), NotJson> {
        if self.depth == DEPTH_LIMIT {
            return Err(self.wrong());
        }
        self.depth += 1;
        self.expect(bracket)
    }

    #[inline(always)]
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Result<(), NotJson> {
        if self.take(byte) { Ok(()) } else { Err(self.wrong()) }
    }

    #[cold]
    fn wrong(&self) -> NotJson {
        NotJson { at: self.at, is_early: self.at >= self.bytes.len() }
    }

    #[inline(always)]
    fn string(&mut self) -> Result<Text<'a>, NotJson> {
        self.expect(b'"')?;
        let from = self.at;
        let mut is_plain = true;
        loop {
            self.at = find_special(self.bytes, self.at);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    let raw = &self.bytes[from..self.at];
                    self.at += 1;
                    return Ok(Text { raw, is_plain });
                }
                Some(b'\\') => {
                    is_plain = false;
                    self.escape()?;
                }
                _ => return Err(self.wrong()),
            }
        }
    }

    #[inline(never)]
    fn escape(&mut self) -> Result<(), NotJson> {
        self.at += 1;
        match self.bytes.get(self.at) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.bytes.get(self.at).is_some_and(u8::is_ascii_hexdigit) {
                        return Err(self.wrong());
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.wrong()),
        }
        Ok(())
    }

    #[inline(always)]
    fn word(&mut self, word: &[u8]) -> Result<(), NotJson> {
        if self.bytes[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        Err(self.wrong_word(word))
    }

    #[cold]
    fn wrong_word(&mut self, word: &[u8]) -> NotJson {
        for expected in word {
            if self.bytes.get(self.at) != Some(expected) {
                break;
            }
            self.at += 1;
        }
        self.wrong()
    }

    #[inline(always)]
    fn number(&mut self) -> Result<(), NotJson> {
        self.at += usize::from(self.bytes.get(self.at) == Some(&b'-'));
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            self.at += usize::from(matches!(self.bytes.get(self.at), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(())
    }

    /// At least one.
    #[inline(always)]
    fn digits(&mut self) -> Result<(), NotJson> {
        let from = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at > from { Ok(()) } else { Err(self.wrong()) }
    }
}

impl Text<'_> {
    /// Whether there is nothing between the quotes.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Adds what it stands for to `target`. Half of a surrogate pair, and what is not UTF-8, become
    /// U+FFFD.
    pub fn push_to(&self, target: &mut String) {
        let mut rest = self.raw;
        while !self.is_plain
            && let Some(at) = memchr::memchr(b'\\', rest)
        {
            push_lossy(&rest[..at], target);
            rest = push_escape(&rest[at + 1..], target);
        }
        push_lossy(rest, target);
    }

    /// What it stands for and how long that is; cut short where it is longer than any name that is
    /// asked for.
    #[cold]
    fn decode_name(&self) -> ([u8; NAME_BYTES], usize) {
        let mut decoded = String::new();
        self.push_to(&mut decoded);
        let length = decoded.len().min(NAME_BYTES);
        let mut name = [0; NAME_BYTES];
        name[..length].copy_from_slice(&decoded.as_bytes()[..length]);
        (name, length)
    }
}

fn push_lossy(bytes: &[u8], target: &mut String) {
    for chunk in bytes.utf8_chunks() {
        target.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            target.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Adds what the escape behind a backslash stands for; the bytes behind it.
fn push_escape<'r>(rest: &'r [u8], target: &mut String) -> &'r [u8] {
    let [letter, behind @ ..] = rest else { return rest };
    let plain = match letter {
        b'u' => return push_unicode(behind, target),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        other => char::from(*other),
    };
    target.push(plain);
    behind
}

fn push_unicode<'r>(rest: &'r [u8], target: &mut String) -> &'r [u8] {
    let Some((high, behind)) = hex4(rest) else { return &[] };
    if (0xd800..0xdc00).contains(&high)
        && let Some((low, behind)) = behind.strip_prefix(b"\\u").and_then(hex4)
        && (0xdc00..0xe000).contains(&low)
    {
        let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        target.push(char::from_u32(code).expect("a surrogate pair is a scalar value"));
        return behind;
    }
    target.push(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER));
    behind
}

fn hex4(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, behind) = bytes.split_first_chunk::<4>()?;
    let value = digits
        .iter()
        .try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))?;
    Some((value, behind))
}

/// The first quote, backslash or control character from `at` on, eight bytes at a time.
#[inline(always)]
fn find_special(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        // The lowest bit set in any of the three is exact; a borrow only spoils those above.
        let zero_if = |byte: u8| word ^ (ONES * u64::from(byte));
        let is_zero = |lanes: u64| lanes.wrapping_sub(ONES) & !lanes;
        let is_control = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (is_zero(zero_if(b'"')) | is_zero(zero_if(b'\\')) | is_control) & HIGHS;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// Values within each other. No answer comes near it, and the stack is safe.
const DEPTH_LIMIT: u32 = 128;
/// Longest name with an escape in it that is recognised.
const NAME_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngSeed};
    use serde::de::IgnoredAny;

    use super::*;

    fn check(bytes: &[u8]) -> Result<(), NotJson> {
        let mut json = Json::new(bytes);
        json.skip()?;
        json.end()
    }

    #[test]
    fn what_is_json_passes_and_what_is_not_fails_where_it_goes_wrong() {
        for good in [
            "0",
            "-0",
            "10.25e+3",
            "1E9",
            "\"\"",
            "\"a\\u00e4\\n\\\"\"",
            "null",
            "true",
            "false",
            "[]",
            "{}",
            " [ 1 , {\"a\" : [ ] } , \"x\" ] ",
            "[\"\u{7f}ä\"]",
        ] {
            assert_eq!(check(good.as_bytes()), Ok(()), "{good}");
        }
        for (bad, at, is_early) in [
            ("", 0, true),
            ("[1", 2, true),
            ("{\"a", 3, true),
            ("nul", 3, true),
            ("\"\\u12", 5, true),
            ("-", 1, true),
            ("1.", 2, true),
            ("nulx", 3, false),
            ("01", 1, false),
            ("+1", 0, false),
            (".5", 0, false),
            ("1 2", 2, false),
            ("[1,]", 3, false),
            ("{\"a\":1,}", 7, false),
            ("{a:1}", 1, false),
            ("{\"a\" 1}", 5, false),
            ("\"\\x\"", 2, false),
            ("\"\\u12g4\"", 5, false),
            ("\"a\nb\"", 2, false),
            ("\"abcdefgh\u{1}\"", 9, false),
            ("NaN", 0, false),
            ("'a'", 0, false),
            ("[}", 1, false),
        ] {
            assert_eq!(check(bad.as_bytes()), Err(NotJson { at, is_early }), "{bad}");
        }
    }

    #[test]
    fn values_nest_up_to_the_limit_only() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(check(nested(128).as_bytes()), Ok(()));
        assert_eq!(check(nested(129).as_bytes()).map_err(|error| error.is_early), Err(false));
        assert!(check("[".repeat(1 << 20).as_bytes()).is_err());
    }

    #[test]
    fn strings_stand_for_what_they_say() {
        let long = "x".repeat(1000);
        for (raw, expected) in [
            ("", ""),
            ("plain", "plain"),
            (r#"a\"b\\c\/d\b\f\n\r\t"#, "a\"b\\c/d\u{8}\u{c}\n\r\t"),
            (r"\u00e4\u20AC", "ä€"),
            (r"\ud834\udd1e!", "𝄞!"),
            (r"\ud834x", "\u{fffd}x"),
            (r"\udd1e", "\u{fffd}"),
            (r"\ud834\u0041", "\u{fffd}A"),
            (&long, &long),
        ] {
            let mut decoded = String::new();
            Text { raw: raw.as_bytes(), is_plain: false }.push_to(&mut decoded);
            assert_eq!(decoded, expected, "{raw}");
        }
        let mut decoded = String::new();
        Text { raw: b"a\xffb\xc3", is_plain: true }.push_to(&mut decoded);
        assert_eq!(decoded, "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn counts_are_whole_numbers_that_fit() {
        for (text, count) in [
            ("0", Some(0)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("-1", None),
            ("1.0", None),
            ("1e3", None),
            ("null", None),
            ("\"7\"", None),
        ] {
            assert_eq!(Json::new(text.as_bytes()).count(), Ok(count), "{text}");
        }
        assert!(Json::new(b"1.").count().is_err());
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "-?(0|[1-9][0-9]{0,5})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
            "\"([a-z ä€]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4}){0,20}\"",
            "null|true|false",
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5)
                    .prop_map(|items| format!("[{}]", items.join(", "))),
                prop::collection::vec(("\"[a-z]{0,9}\"", inner), 0..5).prop_map(|members| {
                    let members: Vec<_> =
                        members.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(Config {
            cases: 2000,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(42),
            ..Config::default()
        })]

        #[test]
        fn agrees_with_another_parser_on_json_and_on_broken_json(
            text in values(),
            at in 0.0..1.0,
            byte in prop_oneof![Just(None), "[\"\\\\{}\\[\\]:,0-9eE.+ntf\n -]".prop_map(Some)],
        ) {
            prop_assert_eq!(check(text.as_bytes()), Ok(()));
            let mut bytes = text.into_bytes();
            let at = (at * bytes.len() as f64) as usize;
            bytes.splice(at..=at, byte.map(|byte| byte.as_bytes()[0]));
            let is_json = serde_json::from_slice::<IgnoredAny>(&bytes).is_ok();
            prop_assert_eq!(check(&bytes).is_ok(), is_json, "{}", bytes.escape_ascii());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = check(&bytes);
        }
    }
}
