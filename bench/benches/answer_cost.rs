//! What a chunk of an inference answer costs a shard in user space, from the bytes of a receive to
//! its facts.
//!
//! `answer/chunk_alone` is the figure with a bound: HTTP chunk, event and JSON of a chat chunk of
//! 250 bytes in at most 320 ns on the reference machine. `answer/chunk_of_16` is one of sixteen
//! that come in one receive, `answer/chunk_cut` one that comes in two. The parts say where the time
//! goes.

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;

    use criterion::{Bencher, Criterion, Throughput};
    use loadgen_shards::answer::{Answer, AnswerFormat, AnswerPlan, Progress};
    use loadgen_shards::chunk::{self, Texts};
    use loadgen_shards::http1::{Carry, ResponseParser, Step};
    use loadgen_shards::sse::{self, EventReader};

    pub fn benches(criterion: &mut Criterion) {
        let chunk = http_chunk();
        let (begin, end) = chunk.split_at(chunk.len() / 2);
        let sixteen = chunk.repeat(16);
        let mut group = criterion.benchmark_group("answer");
        group.bench_function("chunk_alone", |bencher| receives(bencher, false, &[&chunk]));
        group.bench_function("chunk_with_text_kept", |bencher| receives(bencher, true, &[&chunk]));
        group.bench_function("chunk_cut", |bencher| receives(bencher, false, &[begin, end]));
        group.throughput(Throughput::Elements(16));
        group.bench_function("chunk_of_16", |bencher| receives(bencher, false, &[&sixteen]));
        group.finish();
        let mut group = criterion.benchmark_group("answer_part");
        group.bench_function("event", event);
        group.bench_function("json", json);
        group.finish();
    }

    const JSON: &str = concat!(
        r#"{"id":"chatcmpl-b8f0d2a7c1e94f0e8d1b3c5a7f9e0d2c","object":"chat.completion.chunk","#,
        r#""created":1796013971,"model":"meta-llama/Llama-3.1-8B-Instruct","choices":["#,
        r#"{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}"#,
    );
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                          transfer-encoding: chunked\r\n\r\n";
    /// After so many receives a new answer begins.
    const RECEIVES: u64 = 1000;

    fn wire() -> Vec<u8> {
        let wire = format!("data: {JSON}\n\n").into_bytes();
        assert!((245..255).contains(&wire.len()), "{} bytes", wire.len());
        wire
    }

    fn http_chunk() -> Vec<u8> {
        let event = wire();
        [format!("{:x}\r\n", event.len()).as_bytes(), &event, b"\r\n"].concat()
    }

    fn plan(keeps_text: bool) -> AnswerPlan {
        AnswerPlan {
            format: AnswerFormat::Chat,
            is_lenient: false,
            bytes_limit: 16 << 20,
            keeps_text,
            chunks_expected: RECEIVES as usize,
        }
    }

    /// All of `pieces`, each in a receive of its own.
    fn receives(bencher: &mut Bencher<'_>, keeps_text: bool, pieces: &[&[u8]]) {
        let (mut answer, mut carry) = (Answer::new(&plan(keeps_text)), Carry::default());
        let mut parser = ResponseParser::new(false);
        let mut receive = |stamp_ns: u64, mut input: &[u8], parser: &mut ResponseParser| {
            loop {
                match parser.step(&mut input, &mut carry) {
                    Ok(Step::Body(piece)) => {
                        assert_eq!(answer.body(piece, stamp_ns), Progress::More);
                    }
                    Ok(Step::Head(head)) => {
                        answer.begin(true);
                        answer.head(&head);
                    }
                    Ok(Step::More) => break,
                    other => panic!("{other:?} in a stream without end"),
                }
            }
            answer.facts().chunks
        };
        let mut stamp_ns = 0;
        bencher.iter(|| {
            if stamp_ns % RECEIVES == 0 {
                parser = ResponseParser::new(false);
                receive(stamp_ns, HEAD, &mut parser);
            }
            stamp_ns += 1;
            pieces.iter().map(|piece| receive(stamp_ns, black_box(piece), &mut parser)).sum::<u32>()
        });
    }

    fn event(bencher: &mut Bencher<'_>) {
        let (wire, mut reader) = (wire(), EventReader::new(16 << 20));
        bencher.iter(|| {
            let mut input = black_box(&wire[..]);
            match reader.next(&mut input) {
                sse::Step::Event(event) => event.data.len(),
                step => panic!("{step:?}"),
            }
        });
    }

    fn json(bencher: &mut Bencher<'_>) {
        let mut texts = Texts::default();
        bencher.iter(|| {
            let json = black_box(JSON.as_bytes());
            chunk::read(&AnswerFormat::Chat, json, &mut texts).expect("it is JSON").is_visible
        });
    }
}

#[cfg(target_os = "linux")]
criterion::criterion_group!(benches, linux::benches);
#[cfg(target_os = "linux")]
criterion::criterion_main!(benches);

#[cfg(not(target_os = "linux"))]
fn main() {}
