//! What a shard tells of each query, where the user asked for records: fixed ones through a ring to
//! the thread that writes them; texts in buffers that come back by a second ring.
//!
//! A full ring never stalls the shard: the record is dropped, and counted as that.

use rtrb::{Consumer, Producer, RingBuffer};

use crate::answer::AnswerFacts;
use crate::failure::FailureKind;
use crate::recorder::Stamps;

/// A query that has ended.
#[derive(Debug)]
pub struct Record {
    /// Index of its phase.
    pub phase: u32,
    /// Position in the phase, 0-based.
    pub position: u64,
    /// Index in [`RequestTable::requests`](crate::query::RequestTable::requests): the sample.
    pub request: u32,
    /// Slot of the connection; `None`: it never had one.
    pub slot: Option<u32>,
    /// CLOCK_MONOTONIC ns; 0: it did not come to that.
    pub stamps: Stamps,
    /// HTTP status; 0: none came.
    pub status: u16,
    /// `None`: a success.
    pub failure: Option<FailureKind>,
    /// Bytes of the body, framing removed.
    pub body_bytes: u64,
    /// What its answer was like; [`AnswerFacts::default`] where nobody looked.
    pub facts: AnswerFacts,
    /// Texts, if they are kept.
    pub text: Option<Box<RecordText>>,
}

/// What was generated, in pooled buffers.
#[derive(Debug, Default)]
pub struct RecordText {
    /// What a reader sees.
    pub visible: String,
    /// Reasoning and tool calls.
    pub hidden: String,
    /// Gaps between the chunks, ns.
    pub gaps_ns: Vec<u64>,
}

/// The end of a shard.
#[derive(Debug)]
pub struct RecordSink {
    records: Producer<Record>,
    /// Empty buffers; `None`: texts are not kept.
    texts: Option<Consumer<Box<RecordText>>>,
}

/// The end of the writer.
#[derive(Debug)]
pub struct RecordSource {
    records: Consumer<Record>,
    texts: Option<Producer<Box<RecordText>>>,
}

/// Both ends of the path of one shard: room for `records` of them, and `texts` buffers (0: none are
/// kept).
pub fn record_path(records: usize, texts: usize) -> (RecordSink, RecordSource) {
    let (record_sink, record_source) = RingBuffer::new(records);
    let (mut text_sink, text_source) = RingBuffer::new(texts.max(1));
    for _ in 0..texts {
        text_sink.push(Box::default()).expect("the ring has room for all of them");
    }
    let sink = RecordSink { records: record_sink, texts: (texts > 0).then_some(text_source) };
    let source = RecordSource { records: record_source, texts: (texts > 0).then_some(text_sink) };
    (sink, source)
}

impl RecordSink {
    /// Whether texts go along.
    pub fn keeps_texts(&self) -> bool {
        self.texts.is_some()
    }

    /// An empty buffer for the texts of a record; `None`: none is free, and the record is to be
    /// dropped.
    pub fn text(&mut self) -> Option<Box<RecordText>> {
        self.texts.as_mut()?.pop().ok()
    }

    /// Sends a record. False: there was no room.
    pub fn put(&mut self, record: Record) -> bool {
        self.records.push(record).is_ok()
    }
}

impl RecordSource {
    /// The next record.
    pub fn take(&mut self) -> Option<Record> {
        self.records.pop().ok()
    }

    /// Gives the buffers of a record back.
    pub fn give_back(&mut self, mut text: Box<RecordText>) {
        text.visible.clear();
        text.visible.shrink_to(TEXT_BYTES_KEPT);
        text.hidden.clear();
        text.hidden.shrink_to(TEXT_BYTES_KEPT);
        text.gaps_ns.clear();
        text.gaps_ns.shrink_to(TEXT_BYTES_KEPT / size_of::<u64>());
        if let Some(texts) = &mut self.texts {
            // There is room for all that there are.
            let _ = texts.push(text);
        }
    }
}

/// Room that a buffer keeps from one record to the next: there are a thousand and more of them.
const TEXT_BYTES_KEPT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(position: u64) -> Record {
        Record {
            phase: 0,
            position,
            request: 0,
            slot: None,
            stamps: Stamps::default(),
            status: 0,
            failure: None,
            body_bytes: 0,
            facts: AnswerFacts::default(),
            text: None,
        }
    }

    #[test]
    fn what_finds_no_room_is_refused_and_the_rest_comes_in_order() {
        let (mut sink, mut source) = record_path(2, 0);
        assert!(!sink.keeps_texts());
        assert_eq!([0, 1, 2].map(|position| sink.put(record(position))), [true, true, false]);
        assert_eq!(source.take().map(|record| record.position), Some(0));
        assert!(sink.put(record(3)));
        let rest = std::iter::from_fn(|| source.take()).map(|record| record.position);
        assert_eq!(rest.collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn buffers_of_texts_go_round_empty() {
        let (mut sink, mut source) = record_path(4, 1);
        let mut text = sink.text().expect("one is free");
        text.visible.push_str("abc");
        assert!(sink.text().is_none(), "there is one only");
        assert!(sink.put(Record { text: Some(text), ..record(0) }));
        let text = source.take().and_then(|record| record.text).expect("sent along");
        assert_eq!(text.visible, "abc");
        source.give_back(text);
        assert_eq!(sink.text().expect("back again").visible, "");
    }

    #[test]
    fn buffers_of_long_texts_give_their_memory_back() {
        let (mut sink, mut source) = record_path(1, 1);
        let mut text = sink.text().expect("one is free");
        text.visible.push_str(&"x".repeat(1 << 20));
        text.hidden.push_str(&"x".repeat(1 << 20));
        text.gaps_ns.resize(1 << 20, 7);
        source.give_back(text);
        let text = sink.text().expect("back again");
        let bytes = text.visible.capacity() + text.hidden.capacity() + 8 * text.gaps_ns.capacity();
        assert!(bytes <= 3 * (64 << 10), "{bytes} bytes are kept");
    }
}
