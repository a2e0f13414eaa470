//! A warm reader of answers allocates nothing, however their bytes are cut.
#![cfg(target_os = "linux")]

use std::thread;

use loadgen_shards::answer::{Answer, AnswerFormat, AnswerPlan};
use loadgen_shards::http1::{Carry, ResponseParser, Step};
use loadgen_shards::sys::allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const CHUNKS: usize = 2000;

fn plan() -> AnswerPlan {
    AnswerPlan {
        format: AnswerFormat::Chat,
        is_lenient: false,
        bytes_limit: 1 << 20,
        keeps_text: true,
        chunks_expected: CHUNKS,
    }
}

fn wire(content_type: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n");
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A long stream, an answer that is not one, and one that fails.
fn wires() -> [Vec<u8>; 3] {
    let token = "data: {\"choices\":[{\"delta\":{\"content\":\"a \\u00e4\"}}]}\n\n: note\n\n";
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let error = "data: {\"error\":{\"message\":\"out of \\\"memory\\\"\"}}\n\n";
    let whole = "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}";
    [
        wire("text/event-stream", &(token.repeat(CHUNKS) + end)),
        wire("application/json", whole),
        wire("text/event-stream", &(token.to_owned() + error)),
    ]
}

/// Reads one answer in receives of `piece_bytes`; its chunks.
fn read(answer: &mut Answer, carry: &mut Carry, wire: &[u8], piece_bytes: usize) -> u32 {
    answer.begin(true);
    let mut parser = ResponseParser::new(false);
    for (stamp_ns, mut piece) in (1..).zip(wire.chunks(piece_bytes)) {
        loop {
            match parser.step(&mut piece, carry).expect("it is HTTP") {
                Step::Head(head) => answer.head(&head),
                Step::Body(body) => drop(answer.body(body, stamp_ns)),
                Step::Interim(_) => {}
                Step::More | Step::End { .. } => break,
            }
        }
    }
    let _ = answer.end(u64::MAX, false);
    answer.facts().chunks
}

#[test]
fn a_chunk_allocates_nothing_once_the_reader_is_warm() {
    // The allocator counts what threads of such a name ask for.
    let shard = thread::Builder::new().name("shard-0".to_owned()).spawn(|| {
        let (mut answer, mut carry) = (Answer::new(&plan()), Carry::default());
        let wires = wires();
        let mut read_all = || {
            let sizes = [usize::MAX, 4096, 100, 7];
            let each =
                sizes.map(|size| wires.each_ref().map(|w| read(&mut answer, &mut carry, w, size)));
            assert_eq!(each, [[CHUNKS as u32, 0, 1]; 4]);
        };
        read_all();
        let before = ALLOCATOR.count();
        read_all();
        let after = ALLOCATOR.count();
        drop(std::hint::black_box(vec![0u8; 100]));
        (before, after, ALLOCATOR.count())
    });
    let (before, after, control) = shard.expect("a thread").join().expect("no panic");
    assert_eq!(after - before, 0, "allocations of {} chunks", 4 * CHUNKS);
    assert_eq!(control - after, 1, "an allocation is seen");
}
