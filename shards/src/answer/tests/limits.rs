//! Long answers cost work in proportion, and memory of a usual size.

use super::*;
use crate::http1::{ContentType, Framing, Head};
use crate::sse::work;

const STREAM_HEAD: Head = Head {
    status: 200,
    version_minor: 1,
    keep_alive: true,
    framing: Framing::Chunked,
    content_type: ContentType::EventStream,
};

#[test]
fn a_hundred_thousand_chunks_are_searched_once() {
    const CHUNKS: u32 = 100_000;
    let wire: Vec<u8> = (0..CHUNKS).flat_map(|_| content("t").into_bytes()).collect();
    for piece_bytes in [100, 1460, 65_536] {
        let mut answer = Answer::new(&plan(AnswerFormat::Chat));
        answer.begin(true);
        answer.head(&STREAM_HEAD);
        work::take();
        for (at, piece) in (1..).zip(wire.chunks(piece_bytes)) {
            assert_eq!(answer.body(piece, at), Progress::More);
        }
        answer.body((finish("stop") + DONE).as_bytes(), u64::from(u32::MAX));
        let searched = work::take();
        assert!(searched <= wire.len() + 1000, "{searched} bytes for {}", wire.len());
        assert_eq!(answer.end(u64::from(u32::MAX), false).map_err(|(kind, _)| kind), Ok(()));
        assert_eq!((answer.facts().chunks, answer.text().len()), (CHUNKS, CHUNKS as usize));
    }
}

#[test]
fn an_answer_that_is_not_streamed_has_the_same_limit() {
    let body = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    assert_eq!(Case::json("at the limit", body).limit(body.len()).check().failure, None);
    let case = Case::json("above", body).limit(body.len() - 1);
    let outcome = case.fails(FailureKind::AnswerLimit, "an answer of more than 64 bytes");
    assert!(outcome.is_broken);
}

#[test]
fn memory_of_a_long_answer_is_given_back() {
    let mut answer = Answer::new(&AnswerPlan { bytes_limit: 16 << 20, ..plan(AnswerFormat::Chat) });
    let long = content(&"x".repeat(4 << 20));
    for _ in 0..2 {
        answer.begin(true);
        answer.head(&STREAM_HEAD);
        for piece in long.as_bytes().chunks(4096) {
            answer.body(piece, 1);
        }
        assert_eq!(answer.facts().chunks, 1);
    }
    answer.begin(true);
    assert!(answer.memory_bytes() < 1 << 20, "{} bytes are kept", answer.memory_bytes());
}

#[test]
fn an_answer_without_end_fills_no_memory() {
    let long = content(&"x".repeat(1000));
    let endless = |keeps_text, piece: &str| {
        let limit = 1 << 16;
        let plan = AnswerPlan { bytes_limit: limit, keeps_text, ..plan(AnswerFormat::Chat) };
        let mut answer = Answer::new(&plan);
        answer.begin(true);
        answer.head(&STREAM_HEAD);
        let pieces = (1..1_000_000).map(|at| answer.body(piece.as_bytes(), at));
        let taken = pieces.take_while(|progress| *progress == Progress::More).count();
        assert!(answer.memory_bytes() < 4 * limit, "{} bytes", answer.memory_bytes());
        let verdict = answer.end(1_000_000, false).map_err(|(kind, _)| kind);
        assert_eq!(verdict, Err(FailureKind::AnswerLimit));
        taken
    };
    assert_eq!(endless(true, &long), 65, "texts, and a gap for each");
    assert_eq!(endless(false, &content("x")), 8193, "gaps alone");
}
