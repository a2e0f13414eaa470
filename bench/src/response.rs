//! The answers of the endpoint, laid out once: sends name them by range.

use std::ops::Range;
use std::sync::Arc;

use loadgen_shards::limits::SEND_PIECE_BYTES;

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// 200 with the body.
    Whole,
    /// 200 without it, for HEAD.
    Head,
    /// The last one of a connection: `Connection: close`.
    LastWhole,
    /// The last one of a connection, for HEAD.
    LastHead,
    /// 400, always the last one.
    BadRequest,
    /// What the inference side makes up, in the slot's outbox.
    Answer,
}

impl Reply {
    /// What a request gets.
    pub(crate) fn to_request(is_head: bool, is_last: bool) -> Reply {
        match (is_head, is_last) {
            (false, false) => Reply::Whole,
            (true, false) => Reply::Head,
            (false, true) => Reply::LastWhole,
            (true, true) => Reply::LastHead,
        }
    }
}

/// The bytes of all answers.
#[derive(Clone, Debug)]
pub(crate) struct Replies {
    /// `Whole`, `repeats` times, then `LastWhole`, then `BadRequest`. The heads are the fronts of
    /// the first two.
    arena: Arc<[u8]>,
    whole_bytes: usize,
    head_bytes: usize,
    repeats: usize,
    last_whole: Range<usize>,
    last_head_bytes: usize,
    bad_request: Range<usize>,
}

impl Replies {
    pub(crate) fn new(body_bytes: usize) -> Replies {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {body_bytes}\r\n"
        );
        let body = "x".repeat(body_bytes);
        let whole = format!("{head}\r\n{body}");
        let last_head = format!("{head}Connection: close\r\n\r\n");
        let repeats = (SEND_PIECE_BYTES / whole.len()).clamp(1, REPEATS_MAX);
        let mut arena = whole.repeat(repeats);
        let last_start = arena.len();
        arena += &last_head;
        arena += &body;
        let last_end = arena.len();
        arena += BAD_REQUEST;
        Replies {
            whole_bytes: whole.len(),
            head_bytes: head.len() + 2,
            repeats,
            last_whole: last_start..last_end,
            last_head_bytes: last_head.len(),
            bad_request: last_end..arena.len(),
            arena: arena.into_bytes().into(),
        }
    }

    /// What the reactor sends from.
    pub(crate) fn arena(&self) -> Arc<[u8]> {
        Arc::clone(&self.arena)
    }

    /// The range of up to `count` equal replies, and how many of them it holds.
    pub(crate) fn range(&self, reply: Reply, count: u32) -> (Range<usize>, u32) {
        let last_start = self.last_whole.start;
        match reply {
            Reply::Whole => {
                let count = count.min(self.repeats as u32);
                (0..count as usize * self.whole_bytes, count)
            }
            Reply::Head => (0..self.head_bytes, 1),
            Reply::LastWhole => (self.last_whole.clone(), 1),
            Reply::LastHead => (last_start..last_start + self.last_head_bytes, 1),
            Reply::BadRequest => (self.bad_request.clone(), 1),
            Reply::Answer => unreachable!("it is in no arena"),
        }
    }
}

/// Replies that one send carries to a client that pipelines; together at most one piece.
const REPEATS_MAX: usize = 16;
const BAD_REQUEST: &str =
    "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_responses_and_no_more() {
        for body_bytes in [0, 1, 100, 5000, 65_536, 1 << 20] {
            let replies = Replies::new(body_bytes);
            let arena = replies.arena();
            let text = |range: Range<usize>| str::from_utf8(&arena[range]).expect("ASCII");
            for (reply, count, holds_body, is_last) in [
                (Reply::Whole, 1, true, false),
                (Reply::Whole, 40, true, false),
                (Reply::Head, 40, false, false),
                (Reply::LastWhole, 1, true, true),
                (Reply::LastHead, 1, false, true),
            ] {
                let (range, taken) = replies.range(reply, count);
                assert!((1..=count).contains(&taken));
                let one = text(range.start..range.start + range.len() / taken as usize);
                assert_eq!(text(range), one.repeat(taken as usize), "equal replies");
                let (head, body) = one.split_once("\r\n\r\n").expect("a head");
                assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
                assert!(head.contains(&format!("Content-Length: {body_bytes}")));
                assert_eq!(head.ends_with("Connection: close"), is_last);
                assert_eq!(body.len(), if holds_body { body_bytes } else { 0 });
            }
            assert_eq!(text(replies.range(Reply::BadRequest, 1).0), BAD_REQUEST);
        }
    }

    #[test]
    fn repeated_replies_fit_one_piece() {
        for body_bytes in [0, 100, 4000, 30_000] {
            let replies = Replies::new(body_bytes);
            assert!(replies.range(Reply::Whole, u32::MAX).0.len() <= SEND_PIECE_BYTES);
        }
    }
}
