//! Event streams, sans-IO: bytes of a body in, [`Event`]s out, whatever the cuts between pieces.
//!
//! The grammar is that of the WHATWG HTML standard (9.2.6), all of it: a byte order mark, lines
//! that end with LF, CRLF or CR, comments, fields with and without a blank behind the colon, data
//! of several lines. `id` and `retry` are for those who reconnect, which nobody does here, so they
//! are read over. What comes behind the last empty line is no event.
//!
//! An event that lies whole in one piece is handed out where it lies. Only what spans pieces, and
//! data of several lines, goes through buffers of the [`EventReader`], which keeps their memory.
//! What always holds: the events depend on the bytes alone and not on where they were cut; each
//! byte is searched once and moved at most twice.

use memchr::memchr2;

/// Reads one event stream after another.
#[derive(Clone, Debug)]
pub struct EventReader {
    bytes_limit: usize,
    /// The begin of a line that goes on in the next piece.
    line: Vec<u8>,
    /// From `data_from` on the data lines so far, joined by LF, if `has_data`.
    data: Vec<u8>,
    data_from: usize,
    has_data: bool,
    /// The value of the last `event` field, unless that lies in the piece at hand.
    kind: Vec<u8>,
    /// The last byte was a CR that ended a line: an LF belongs to it.
    is_after_cr: bool,
    /// Bytes of the byte order mark that have come; all of them once the stream has begun.
    mark_bytes: usize,
    /// What is in the buffers was handed out.
    is_spent: bool,
}

/// What [`EventReader::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// All input is taken, and no event has ended.
    More,
    /// An event. There may be more in the input.
    Event(Event<'a>),
    /// A line, or the data of an event, is longer than the limit. The stream cannot be read on.
    TooLong,
}

/// One event that has data, though that may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The value of its `event` field; empty without one.
    pub kind: &'a [u8],
    /// Its data lines, joined by LF.
    pub data: &'a [u8],
}

impl EventReader {
    /// A reader that allows lines, and data of an event, of `bytes_limit`.
    pub fn new(bytes_limit: usize) -> EventReader {
        EventReader {
            bytes_limit,
            line: Vec::with_capacity(BUFFER_BYTES),
            data: Vec::with_capacity(BUFFER_BYTES),
            data_from: 0,
            has_data: false,
            kind: Vec::with_capacity(KIND_BYTES),
            is_after_cr: false,
            mark_bytes: 0,
            is_spent: false,
        }
    }

    /// Forgets all of the stream before. Memory of a usual size is kept.
    pub fn begin(&mut self) {
        self.clear_event();
        self.line.clear();
        for buffer in [&mut self.line, &mut self.data, &mut self.kind] {
            buffer.shrink_to(BUFFER_BYTES_KEPT);
        }
        self.is_after_cr = false;
        self.mark_bytes = 0;
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.line.capacity() + self.data.capacity() + self.kind.capacity()
    }

    /// Whether the bytes so far end inside an event, or inside a line. Had the stream ended here,
    /// these would be lost.
    pub fn is_inside_event(&self) -> bool {
        !self.line.is_empty() || (!self.is_spent && (self.has_data || !self.kind.is_empty()))
    }

    /// Takes bytes from the front of `input`, up to the end of an event or all of them.
    #[inline]
    pub fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Step<'a> {
        if self.is_spent {
            self.clear_event();
        }
        let bytes = *input;
        let mut at = self.skip_start(bytes);
        // What of this event lies in this piece.
        let (mut data, mut kind): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        loop {
            let rest = &bytes[at..];
            let Some(line_bytes) = find_line_end(rest) else {
                *input = &[];
                let fits = self.keep(rest, data, kind);
                return if fits { Step::More } else { Step::TooLong };
            };
            if self.line.len() + line_bytes > self.bytes_limit {
                return Step::TooLong;
            }
            let line = &rest[..line_bytes];
            at = self.behind_line_end(bytes, at + line_bytes);
            if !self.line.is_empty() {
                // Then it is the first line of this piece, so neither data nor kind lie in it.
                self.line.extend_from_slice(line);
                self.take_kept_line();
            } else if line.is_empty() {
                if data.is_some() || self.has_data {
                    break;
                }
                kind = None;
                self.kind.clear();
            } else {
                match field(line) {
                    Field::Data(from) if self.has_data => self.add_data(&line[from..]),
                    Field::Data(from) => match data.take() {
                        None => data = Some(&line[from..]),
                        Some(first) => {
                            self.start_data(first);
                            self.add_data(&line[from..]);
                        }
                    },
                    Field::Kind(from) => kind = Some(&line[from..]),
                    Field::Other => {}
                }
            }
            if self.data.len() - self.data_from > self.bytes_limit {
                return Step::TooLong;
            }
        }
        *input = &bytes[at..];
        self.is_spent = true;
        Step::Event(Event {
            kind: kind.unwrap_or(&self.kind),
            data: data.unwrap_or(&self.data[self.data_from..]),
        })
    }

    fn clear_event(&mut self) {
        self.data.clear();
        self.data_from = 0;
        self.has_data = false;
        self.kind.clear();
        self.is_spent = false;
    }

    /// Bytes at the front of a piece that are no part of a line: a byte order mark, and the LF of a
    /// CRLF that was cut.
    #[inline]
    fn skip_start(&mut self, bytes: &[u8]) -> usize {
        if self.mark_bytes < MARK.len() {
            return self.skip_mark(bytes);
        }
        if !self.is_after_cr || bytes.is_empty() {
            return 0;
        }
        self.is_after_cr = false;
        usize::from(bytes[0] == b'\n')
    }

    #[cold]
    fn skip_mark(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            if *byte != MARK[self.mark_bytes] {
                // No mark, so what looked like one begins the first line.
                self.line.extend_from_slice(&MARK[..self.mark_bytes]);
                self.mark_bytes = MARK.len();
                return at;
            }
            self.mark_bytes += 1;
            if self.mark_bytes == MARK.len() {
                return at + 1;
            }
        }
        bytes.len()
    }

    /// The position behind the line end at `end`.
    #[inline]
    fn behind_line_end(&mut self, bytes: &[u8], end: usize) -> usize {
        if bytes[end] == b'\n' {
            return end + 1;
        }
        match bytes.get(end + 1) {
            Some(b'\n') => end + 2,
            Some(_) => end + 1,
            None => {
                self.is_after_cr = true;
                end + 1
            }
        }
    }

    /// A piece ends inside an event: moves what must outlast it. Whether it is within the limit.
    fn keep(&mut self, line: &[u8], data: Option<&[u8]>, kind: Option<&[u8]>) -> bool {
        if let Some(data) = data {
            self.start_data(data);
        }
        if let Some(kind) = kind {
            self.kind.clear();
            self.kind.extend_from_slice(kind);
        }
        let fits = self.line.len() + line.len() <= self.bytes_limit;
        if fits {
            self.line.extend_from_slice(line);
        }
        fits
    }

    /// The line that spans pieces is whole. As the first data of its event it is not copied: the
    /// two buffers change places.
    fn take_kept_line(&mut self) {
        match field(&self.line) {
            Field::Data(from) if self.has_data => {
                self.data.push(b'\n');
                self.data.extend_from_slice(&self.line[from..]);
            }
            Field::Data(from) => {
                std::mem::swap(&mut self.line, &mut self.data);
                self.data_from = from;
                self.has_data = true;
            }
            Field::Kind(from) => {
                self.kind.clear();
                self.kind.extend_from_slice(&self.line[from..]);
            }
            Field::Other => {}
        }
        self.line.clear();
    }

    fn start_data(&mut self, first: &[u8]) {
        self.data.extend_from_slice(first);
        self.has_data = true;
    }

    fn add_data(&mut self, line: &[u8]) {
        self.data.push(b'\n');
        self.data.extend_from_slice(line);
    }
}

/// What a line is, and where its value begins.
enum Field {
    Data(usize),
    Kind(usize),
    /// A comment, `id`, `retry`, or what nobody knows.
    Other,
}

#[inline]
fn field(line: &[u8]) -> Field {
    if let Some(value) = line.strip_prefix(b"data") {
        value_from(value).map_or(Field::Other, |from| Field::Data(4 + from))
    } else if let Some(value) = line.strip_prefix(b"event") {
        value_from(value).map_or(Field::Other, |from| Field::Kind(5 + from))
    } else {
        Field::Other
    }
}

/// Where the value begins in what follows a name; `None`: the name is longer. A line without a
/// colon is a name with an empty value, and one blank behind the colon is not part of the value.
#[inline]
fn value_from(rest: &[u8]) -> Option<usize> {
    match rest {
        [] => Some(0),
        [b':', b' ', ..] => Some(2),
        [b':', ..] => Some(1),
        _ => None,
    }
}

#[inline]
fn find_line_end(bytes: &[u8]) -> Option<usize> {
    let end = memchr2(b'\n', b'\r', bytes);
    #[cfg(test)]
    work::count(end.unwrap_or(bytes.len()));
    end
}

/// U+FEFF in UTF-8.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Room for an event before a buffer has to grow: more than a chunk of text with log probabilities.
const BUFFER_BYTES: usize = 4096;
/// Room that is kept from one stream to the next.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;
const KIND_BYTES: usize = 64;

/// Counts the bytes that are searched, so that a test can claim linear time without a clock.
#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count(bytes: usize) {
        BYTES.with(|total| total.set(total.get() + bytes));
    }

    /// Bytes searched by this thread since the last call.
    pub(crate) fn take() -> usize {
        BYTES.with(Cell::take)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngSeed};

    use super::*;

    /// Kind and data of each event, or that the stream was too long behind these.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Events {
        events: Vec<(String, String)>,
        is_too_long: bool,
    }

    fn read(wire: &[u8], cuts: impl IntoIterator<Item = usize>, bytes_limit: usize) -> Events {
        let mut reader = EventReader::new(bytes_limit);
        let mut found = Events::default();
        let mut from = 0;
        for to in cuts.into_iter().chain([wire.len()]) {
            let mut input = &wire[from..to];
            loop {
                match reader.next(&mut input) {
                    Step::More => break,
                    Step::Event(event) => {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        found.events.push((text(event.kind), text(event.data)));
                    }
                    Step::TooLong => {
                        found.is_too_long = true;
                        return found;
                    }
                }
            }
            assert!(input.is_empty(), "More before all input was taken");
            from = to;
        }
        found
    }

    /// The algorithm of the standard, word by word: decode, split into lines, look at each.
    fn standard(wire: &[u8]) -> Vec<(String, String)> {
        let text = String::from_utf8_lossy(wire);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let Some((lines, _unfinished)) = text.rsplit_once('\n') else { return vec![] };
        let (mut events, mut kind, mut data) = (vec![], String::new(), String::new());
        for line in lines.split('\n') {
            if line.is_empty() {
                if let Some(data) = data.strip_suffix('\n') {
                    events.push((kind.clone(), data.to_owned()));
                }
                kind.clear();
                data.clear();
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "event" => value.clone_into(&mut kind),
                "data" => data = data + value + "\n",
                _ => {}
            }
        }
        events
    }

    fn pairs(events: &[(&str, &str)]) -> Vec<(String, String)> {
        events.iter().map(|(kind, data)| ((*kind).to_owned(), (*data).to_owned())).collect()
    }

    #[test]
    fn every_line_of_the_grammar_gives_its_events_under_every_cut() {
        type Case<'a> = (&'a [u8], &'a [(&'a str, &'a str)]);
        let cases: &[Case<'_>] = &[
            (b"data: a\n\n", &[("", "a")]),
            (b"data:a\n\ndata:  b\n\n", &[("", "a"), ("", " b")]),
            (b"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", &[("", "a"), ("", "b"), ("", "c")]),
            (b"data: a\r\ndata: b\rdata\ndata:c\n\n", &[("", "a\nb\n\nc")]),
            (b"\xef\xbb\xbfdata: a\n\n", &[("", "a")]),
            (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", &[("", "b")]),
            (b"\xef\xbbdata: a\n\ndata: b\n\n", &[("", "b")]),
            (b": note\n\n:\n\ndata: a\n: in between\n\n", &[("", "a")]),
            (
                b"event: error\nid: 7\nretry: 10\ndata: a\n\ndata: b\n\n",
                &[("error", "a"), ("", "b")],
            ),
            (b"event: a\nevent: b\ndata: 1\nevent: c\n\n", &[("c", "1")]),
            (b"event: ping\n\ndata: a\n\n", &[("", "a")]),
            (b"event\ndata\n\ndata:\n\n", &[("", ""), ("", "")]),
            (b"data2: x\ndat: x\nevents: x\nDATA: x\n data: x\n\n", &[]),
            (b"data: a\n\ndata: lost\n", &[("", "a")]),
            (b"data: a\n\ndata: lost", &[("", "a")]),
            (b"\n\n\r\rdata: a:b: c\n\n", &[("", "a:b: c")]),
            ("data: ä€𝄞\n\n".as_bytes(), &[("", "ä€𝄞")]),
            (b"", &[]),
        ];
        for (wire, events) in cases {
            let expected = pairs(events);
            assert_eq!(standard(wire), expected, "{}", wire.escape_ascii());
            for first in 0..=wire.len() {
                for second in first..=wire.len() {
                    let found = read(wire, [first, second], 1000);
                    let cuts = format!("{} at {first}, {second}", wire.escape_ascii());
                    assert_eq!(found.events, expected, "{cuts}");
                    assert!(!found.is_too_long, "{cuts}");
                }
            }
            assert_eq!(read(wire, 0..wire.len(), 1000).events, expected, "byte by byte");
        }
    }

    #[test]
    fn a_cut_event_is_known_to_be_one() {
        for (wire, is_inside) in [
            (&b"data: a\n\n"[..], false),
            (b"data: a\n\n: note\n", false),
            (b"data: a\n\ndata: b\n", true),
            (b"data: a\n\nda", true),
            (b"event: x\n", true),
        ] {
            let mut reader = EventReader::new(100);
            let mut input = wire;
            while reader.next(&mut input) != Step::More {}
            assert_eq!(reader.is_inside_event(), is_inside, "{}", wire.escape_ascii());
            reader.begin();
            assert!(!reader.is_inside_event());
        }
    }

    #[test]
    fn what_is_too_long_fails_under_every_cut_and_what_is_just_not_does_not() {
        let cases: &[(&[u8], usize)] = &[
            (b"data: 0\n\ndata: 0123456\n\n", 13),
            (b"data: 0\n\ndata: 0123456", 13),
            (b"data: 0\n\n:234567890123\n\n", 13),
            (b"data: 0\n\ndata: 3456\ndata: 9012\ndata: 6789\n\n", 14),
        ];
        for (wire, limit) in cases {
            for cut in 0..=wire.len() {
                let fits = read(wire, [cut], *limit);
                assert!(!fits.is_too_long, "{} at {cut}", wire.escape_ascii());
                let found = read(wire, [cut], limit - 1);
                assert_eq!(found.events, pairs(&[("", "0")]));
                assert!(found.is_too_long, "{} at {cut}", wire.escape_ascii());
            }
        }
    }

    #[test]
    fn a_mebibyte_in_pieces_is_searched_once() {
        let mut wire = b"data: ".to_vec();
        wire.resize(1 << 20, b'x');
        wire.extend_from_slice(b"\n\n");
        work::take();
        let found = read(&wire, (0..wire.len()).step_by(1024), 16 << 20);
        assert_eq!(found.events[0].1.len(), (1 << 20) - 6);
        let searched = work::take();
        assert!(searched <= wire.len(), "{searched} bytes for {}", wire.len());
    }

    #[test]
    fn an_event_in_one_piece_is_handed_out_where_it_lies() {
        let wire = b"event: x\ndata: abc\n\n".to_vec();
        let mut reader = EventReader::new(100);
        let mut input = &wire[..];
        let Step::Event(event) = reader.next(&mut input) else { panic!("an event") };
        assert!(wire.as_ptr_range().contains(&event.data.as_ptr()));
        assert!(wire.as_ptr_range().contains(&event.kind.as_ptr()));
    }

    fn wires() -> impl Strategy<Value = Vec<u8>> {
        let parts: [&[u8]; 11] = [
            b"data",
            b"event",
            b":",
            b" ",
            b"\n",
            b"\r",
            b"\r\n",
            b"x",
            "é".as_bytes(),
            b"data: y\n\n",
            b"\xef\xbb\xbf",
        ];
        let part = prop::sample::select(parts.to_vec());
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(Config {
            cases: 2000,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(42),
            ..Config::default()
        })]

        #[test]
        fn any_stream_under_any_cuts_is_as_the_standard_says(
            wire in wires(),
            cuts in prop::collection::vec(0.0..=1.0, 0..6),
        ) {
            let at = |share: &f64| (share * wire.len() as f64) as usize;
            let mut cuts: Vec<usize> = cuts.iter().map(at).collect();
            cuts.sort_unstable();
            prop_assert_eq!(read(&wire, cuts, 10_000).events, standard(&wire));
        }
    }
}
