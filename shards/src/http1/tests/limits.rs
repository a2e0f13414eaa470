//! Limits at their exact edge, linear work, and where memory is held.

use super::super::head::work;
use super::{Carry, End, Eof, Malformed, ResponseParser, Step, decode};
use crate::limits::{HEAD_BYTES_LIMIT, HEAD_FIELDS_LIMIT};

const START: &str = "HTTP/1.1 200 OK\r\n";

/// A head of exactly `bytes`.
fn head_of(bytes: usize) -> Vec<u8> {
    let frame = format!("{START}X: \r\nContent-Length: 0\r\n\r\n").len();
    let padding = "x".repeat(bytes - frame);
    format!("{START}X: {padding}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// A chunked body, given what follows its head.
fn chunked(body: &str) -> Vec<u8> {
    format!("{START}Transfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

#[test]
fn each_limit_holds_at_its_exact_edge() {
    let fields = |n: usize| {
        let fields = "a:b\r\n".repeat(n - 1);
        format!("{START}{fields}Content-Length: 0\r\n\r\n").into_bytes()
    };
    // "0;", the extension, CRLF; and "T:", the value, CRLF with the empty line.
    let extension = |n: usize| chunked(&format!("0;{}\r\n\r\n", "e".repeat(n - 4)));
    let second_line = |n: usize| chunked(&format!("1\r\nx\r\n0;{}\r\n\r\n", "e".repeat(n - 4)));
    let trailers = |n: usize| chunked(&format!("0\r\nT:{}\r\n\r\n", "t".repeat(n - 6)));
    let empty_lines = |n: usize| [vec![b'\n'; n], head_of(100)].concat();
    let unended = |n: usize| format!("{START}X: {}", "x".repeat(n - 20)).into_bytes();

    type Wire<'a> = &'a dyn Fn(usize) -> Vec<u8>;
    let complete = End::Complete { excess: 0 };
    let cases: [(&str, Wire<'_>, usize, End, Malformed); 7] = [
        ("head", &head_of, HEAD_BYTES_LIMIT, complete, Malformed::HeadTooLarge),
        ("fields", &fields, HEAD_FIELDS_LIMIT, complete, Malformed::TooManyFields),
        ("extension", &extension, HEAD_BYTES_LIMIT, complete, Malformed::ChunkLineTooLong),
        ("second line", &second_line, HEAD_BYTES_LIMIT, complete, Malformed::ChunkLineTooLong),
        ("trailers", &trailers, HEAD_BYTES_LIMIT, complete, Malformed::TrailersTooLarge),
        ("empty lines", &empty_lines, HEAD_BYTES_LIMIT, complete, Malformed::HeadTooLarge),
        (
            "unended head",
            &unended,
            HEAD_BYTES_LIMIT,
            End::Truncated(Eof::InHead),
            Malformed::HeadTooLarge,
        ),
    ];
    for (name, wire, limit, at_limit, above) in cases {
        for (size, expected) in [(limit, at_limit), (limit + 1, End::Malformed(Some(above)))] {
            let wire = wire(size);
            assert_eq!(decode(&wire, false, []).end, expected, "{name}, {size}, whole");
            let receives = (4096..wire.len()).step_by(4096);
            assert_eq!(decode(&wire, false, receives).end, expected, "{name}, {size}, in receives");
        }
    }
}

#[test]
fn a_head_that_drips_costs_linear_work() {
    // Each byte is scanned for the end once and parsed at most three times: in place, as a usual
    // head and as one of many fields. Quadratic work would be thousands of times the length.
    let many_fields =
        format!("{START}{}Content-Length: 0\r\n\r\n", "a: b\r\n".repeat(1000)).into_bytes();
    for wire in [head_of(64 * 1024), many_fields] {
        for receive_bytes in [1, 2, 7, 1000, wire.len()] {
            work::take();
            let cuts = (receive_bytes..wire.len()).step_by(receive_bytes);
            assert_eq!(decode(&wire, false, cuts).end, End::Complete { excess: 0 });
            let work = work::take();
            assert!(work >= wire.len(), "the counter is connected");
            assert!(work <= 4 * wire.len(), "{work} for {} bytes", wire.len());
        }
    }
}

#[test]
fn garbage_fails_at_its_first_wrong_byte() {
    let cases: [(&str, Malformed); 8] = [
        ("S", Malformed::NotHttp),
        ("\0", Malformed::NotHttp),
        ("\r\n<", Malformed::NotHttp),
        ("HTTQ", Malformed::NotHttp),
        ("http", Malformed::NotHttp),
        ("HTTP/2", Malformed::Version),
        ("HTTP/1.2", Malformed::Version),
        ("\rH", Malformed::LineEnd),
    ];
    for (wire, malformed) in cases {
        let before = &wire.as_bytes()[..wire.len() - 1];
        for cuts in [0..0, 0..wire.len()] {
            let end = decode(wire.as_bytes(), false, cuts).end;
            // "http" is wrong from its first byte on, and cuts do not change that either.
            assert_eq!(end, End::Malformed(Some(malformed)), "{wire:?}");
        }
        if wire != "http" {
            let end = decode(before, false, []).end;
            assert!(matches!(end, End::Truncated(_)), "{before:?} could still begin a response");
        }
    }
}

#[test]
fn the_carry_holds_memory_only_for_a_head_that_is_cut() {
    let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let mut carry = Carry::default();
    let mut whole = ResponseParser::new(false);
    let mut input = &wire[..];
    while whole.step(&mut input, &mut carry) != Ok(Step::End { excess: 0 }) {}
    assert_eq!(carry.capacity(), 0, "nothing was copied");

    let mut cut = ResponseParser::new(false);
    assert_eq!(cut.step(&mut &wire[..20], &mut carry), Ok(Step::More));
    assert!(!carry.is_empty());
    let mut input = &wire[20..];
    assert!(matches!(cut.step(&mut input, &mut carry), Ok(Step::Head(_))));
    assert!(carry.is_empty(), "free for the next connection");
    assert!(carry.capacity() > 0, "and its memory with it");
    assert_eq!(input, b"hello", "only bytes of the head went into the carry");
}

#[test]
fn an_end_of_stream_is_told_by_where_it_comes() {
    let cases: [(&[u8], Result<(), Eof>); 9] = [
        (b"", Err(Eof::BeforeAnyByte)),
        (b"\r", Err(Eof::InHead)),
        (b"HTTP/1.1 200 OK\r\n", Err(Eof::InHead)),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Err(Eof::InHead)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", Err(Eof::InBody)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", Err(Eof::InBody)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Ok(())),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Ok(())),
        (b"HTTP/1.1 200 OK\r\n\r\n", Ok(())),
    ];
    for (wire, expected) in cases {
        let mut parser = ResponseParser::new(false);
        let mut carry = Carry::default();
        let mut input = wire;
        while parser.head().is_none() && parser.step(&mut input, &mut carry) != Ok(Step::More) {}
        assert_eq!(parser.end_of_stream(), expected, "{}", wire.escape_ascii());
    }
}
