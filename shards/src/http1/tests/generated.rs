//! Generated responses and hostile bytes: any cuts give the same result, and the independent
//! decoder agrees.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed};

use super::{End, Framing, decode, oracle, show};

/// Fixed seed and no regression files: a test run neither depends on chance nor leaves anything.
fn config(cases: u32) -> Config {
    Config {
        cases: if cfg!(miri) { 8 } else { cases },
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(42),
        ..Config::default()
    }
}

#[derive(Clone, Debug)]
struct Chunk {
    data: Vec<u8>,
    leading_zeros: usize,
    is_upper: bool,
    extension: &'static str,
}

#[derive(Clone, Debug)]
enum Body {
    Length(Vec<u8>),
    Chunked { chunks: Vec<Chunk>, trailers: Vec<&'static str> },
    UntilClose(Vec<u8>),
}

/// A right response, before it is written.
#[derive(Clone, Debug)]
struct Response {
    interims: Vec<u16>,
    version_minor: u8,
    status: u16,
    fields: Vec<&'static str>,
    is_crlf: bool,
    body: Body,
    /// Bytes behind the response; none if the body ends with the stream.
    excess: Vec<u8>,
}

impl Response {
    fn wire(&self) -> Vec<u8> {
        let line_end: &[u8] = if self.is_crlf { b"\r\n" } else { b"\n" };
        let mut wire = vec![];
        let mut line = |text: &str| {
            wire.extend_from_slice(text.as_bytes());
            wire.extend_from_slice(line_end);
        };
        for status in &self.interims {
            line(&format!("HTTP/1.1 {status} Wait"));
            line("Link: </style.css>; rel=preload");
            line("");
        }
        line(&format!("HTTP/1.{} {} Whatever", self.version_minor, self.status));
        for field in &self.fields {
            line(field);
        }
        match &self.body {
            Body::Length(data) => line(&format!("Content-Length: {}", data.len())),
            Body::Chunked { .. } => line("Transfer-Encoding: chunked"),
            Body::UntilClose(_) => {}
        }
        line("");
        match &self.body {
            Body::Length(data) | Body::UntilClose(data) => wire.extend_from_slice(data),
            Body::Chunked { chunks, trailers } => {
                for chunk in chunks.iter().filter(|chunk| !chunk.data.is_empty()) {
                    wire.extend(chunk.size_line());
                    wire.extend_from_slice(line_end);
                    wire.extend_from_slice(&chunk.data);
                    wire.extend_from_slice(line_end);
                }
                wire.extend_from_slice(b"0");
                wire.extend_from_slice(line_end);
                for trailer in trailers {
                    wire.extend_from_slice(trailer.as_bytes());
                    wire.extend_from_slice(line_end);
                }
                wire.extend_from_slice(line_end);
            }
        }
        if !matches!(self.body, Body::UntilClose(_)) {
            wire.extend_from_slice(&self.excess);
        }
        wire
    }

    /// What its consumer must get.
    fn truth(&self) -> (Vec<u8>, Framing, End) {
        let complete = End::Complete { excess: self.excess.len() };
        match &self.body {
            Body::Length(data) => (data.clone(), Framing::Length(data.len() as u64), complete),
            Body::Chunked { chunks, .. } => {
                let data = chunks.iter().flat_map(|chunk| chunk.data.clone()).collect();
                (data, Framing::Chunked, complete)
            }
            Body::UntilClose(data) => (data.clone(), Framing::UntilClose, End::Closed),
        }
    }
}

impl Chunk {
    fn size_line(&self) -> Vec<u8> {
        let size = self.data.len();
        let digits = if self.is_upper { format!("{size:X}") } else { format!("{size:x}") };
        format!("{}{digits}{}", "0".repeat(self.leading_zeros), self.extension).into_bytes()
    }
}

fn responses() -> impl Strategy<Value = Response> {
    let data = || vec(any::<u8>(), 0..200);
    let extensions = select(vec![
        "",
        ";a",
        ";a=b",
        " ; a = b",
        ";a=\"quoted; \\\" \\\\ text\"",
        ";a=\"\";b",
        "  ",
        "\t;x",
    ]);
    let chunk = (data(), 0..4usize, any::<bool>(), extensions).prop_map(
        |(data, leading_zeros, is_upper, extension)| Chunk {
            data,
            leading_zeros,
            is_upper,
            extension,
        },
    );
    let trailers = vec(select(vec!["Expires: 0", "X-Sum:", "Server-Timing: a;dur=1"]), 0..4);
    let body = prop_oneof![
        data().prop_map(Body::Length),
        (vec(chunk, 0..6), trailers)
            .prop_map(|(chunks, trailers)| Body::Chunked { chunks, trailers }),
        data().prop_map(Body::UntilClose),
    ];
    let fields = select(vec![
        "Server: x",
        "Connection: close",
        "connection: Keep-Alive, x",
        "Content-Type: text/plain",
        "content-type:text/event-stream ;charset=utf-8",
        "Content-Type: Application/JSON",
        "Folded: a\n b",
        "Empty:",
        "Space : before the colon",
    ]);
    (
        vec(select(vec![100u16, 102, 103]), 0..3),
        0..2u8,
        select(vec![200u16, 201, 206, 301, 404, 500, 599, 999]),
        vec(fields, 0..6),
        any::<bool>(),
        body,
        vec(any::<u8>(), 0..8),
    )
        .prop_map(|(interims, version_minor, status, fields, is_crlf, body, excess)| {
            Response { interims, version_minor, status, fields, is_crlf, body, excess }
        })
}

/// Pieces of responses, right and wrong, which in any order make a stream that gets somewhere.
fn hostile_streams() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&'static [u8]> = vec![
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\n",
        b"HTTP/1.1 204\r\n",
        b"HTTP/1.1 100 \r\n\r\n",
        b"HTTP/1.1 101 \r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length:\r\n 6\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n ,chunked\r\n",
        b"Transfer-Encoding: chunked;q=1\r\n",
        b"Transfer-Encoding:\r\n",
        b"Connection: close\r\n",
        b"Connection: x,\r\n\tkeep-alive\r\n",
        b": \r\n",
        b"\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"5",
        b"5\r\nhello\r\n",
        b"0\r\n",
        b"0\r\n\r\n",
        b"fffffffffffffffff",
        b";a=\"\\",
        b"\"",
        b"hello",
        b"\0",
        b"\x7f",
        b"\xff",
    ];
    let piece = prop_oneof![
        20 => select(pieces).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..3),
    ];
    // Most streams begin well, or all would fail at their first byte.
    (prop::bool::weighted(0.9), vec(piece, 0..12)).prop_map(|(begins_well, pieces)| {
        let start: &[u8] = if begins_well { b"HTTP/1.1 200 OK\r\n" } else { b"" };
        [start, &pieces.concat()].concat()
    })
}

fn sorted_cuts(wire: &[u8], cuts: &[Index]) -> Vec<usize> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(wire.len() + 1)).collect();
    cuts.sort_unstable();
    cuts
}

fn agrees_under_cuts(wire: &[u8], is_head: bool, cuts: &[Index]) -> Result<(), TestCaseError> {
    let whole = decode(wire, is_head, []);
    let cut = decode(wire, is_head, sorted_cuts(wire, cuts));
    prop_assert_eq!(&cut, &whole, "cuts of {}", show(wire));
    let dripped = decode(wire, is_head, 0..wire.len());
    prop_assert_eq!(&dripped, &whole, "drip of {}", show(wire));
    prop_assert_eq!(whole.without_kind(), oracle::decode(wire, is_head), "{}", show(wire));
    Ok(())
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn generated_responses_decode_to_their_bodies_under_any_cuts(
        response in responses(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let wire = response.wire();
        let outcome = decode(&wire, false, sorted_cuts(&wire, &cuts));
        let (body, framing, end) = response.truth();
        let head = outcome.head.expect("a right response has a head");
        prop_assert_eq!(&outcome.interims, &response.interims);
        prop_assert_eq!(head.status, response.status);
        prop_assert_eq!(head.version_minor, response.version_minor);
        prop_assert_eq!(head.framing, framing);
        prop_assert_eq!(&outcome.body, &body, "{}", show(&wire));
        prop_assert_eq!(outcome.end, end, "{}", show(&wire));
        agrees_under_cuts(&wire, false, &cuts)?;
    }

    #[test]
    fn a_damaged_response_gives_one_result_under_any_cuts(
        response in responses(),
        is_head in prop::bool::weighted(0.1),
        damage in vec((any::<Index>(), prop_oneof![
            any::<u8>(),
            select(b"\r\n\t \0\x7f\",:;0aZ".to_vec()),
        ], 0..3usize), 1..3),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let mut wire = response.wire();
        for (at, byte, removed) in damage {
            let at = at.index(wire.len());
            let to = (at + removed).min(wire.len());
            wire.splice(at..to, [byte]);
        }
        agrees_under_cuts(&wire, is_head, &cuts)?;
    }

    #[test]
    fn a_cut_off_response_gives_one_result_under_any_cuts(
        response in responses(),
        end in any::<Index>(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let wire = response.wire();
        agrees_under_cuts(&wire[..end.index(wire.len())], false, &cuts)?;
    }
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn a_hostile_stream_gives_one_result_under_any_cuts(
        wire in hostile_streams(),
        is_head in prop::bool::weighted(0.1),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        agrees_under_cuts(&wire, is_head, &cuts)?;
    }

    #[test]
    fn random_bytes_never_panic(
        wire in vec(any::<u8>(), 0..300),
        has_head in any::<bool>(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let head: &[u8] =
            if has_head { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"" };
        agrees_under_cuts(&[head, &wire].concat(), false, &cuts)?;
    }
}
