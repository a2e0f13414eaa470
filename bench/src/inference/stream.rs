//! An answer on its way: which of its bytes are due. Sans-IO: instants in, bytes out.
//!
//! The instants of the chunks are fixed by the arrival of the request and by what was drawn for it;
//! a chunk that leaves late does not move the next one. No chunk leaves before its instant.

use loadgen_shards::limits::SEND_PIECE_BYTES;

use super::ask::{Ask, Call, Finish};
use super::distribution::Distribution;
use super::draw::Draws;
use super::json::{Delta, Meta, Usage, UsageMember, generated};
use super::profile::Profile;

/// What a call of `advance` leaves to be done once the bytes have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing before this instant, ns.
    Wait(u64),
    /// There is more that is due; a piece is enough for one send.
    More,
    /// The answer is over.
    Done,
    /// The answer breaks off: the connection is to be closed.
    Cut,
}

/// An answer that is one piece.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) due_ns: u64,
    /// Head and body, or the front of them.
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_cut: bool,
}

/// An answer in events.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    plan: StreamPlan,
    /// `None` once it has been sent.
    head: Option<Vec<u8>>,
    has_role: bool,
    tokens: u32,
    chunks: u32,
    /// Instant of the next chunk, ns.
    due_ns: u64,
    /// Instant of the last bytes, ns.
    spoke_ns: u64,
    /// What is around the text of a chunk, and around that of one with reasoning.
    frames: [(String, String); 2],
    /// The text so far, for those who repeat it.
    text: String,
}

/// All that is known when an answer begins.
#[derive(Clone, Debug)]
pub(crate) struct StreamPlan {
    pub(crate) profile: Profile,
    pub(crate) ask: Ask,
    pub(crate) meta: Meta,
    pub(crate) words: Words,
    pub(crate) draws: Draws,
    pub(crate) itl: Distribution,
    pub(crate) tokens_per_chunk: u32,
    /// Silence after which a comment is sent, ns; 0: never.
    pub(crate) ping_ns: u64,
    pub(crate) line_end: &'static str,
    pub(crate) is_chunked: bool,
    pub(crate) head: Vec<u8>,
    /// Arrival of the request, ns.
    pub(crate) arrived_ns: u64,
    /// From there to the first chunk, ns.
    pub(crate) ttft_ns: u64,
    pub(crate) end: End,
    /// Chunks before a pause, and its length, ns.
    pub(crate) stall: Option<(u32, u64)>,
}

/// How a stream ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// In the middle of the chunk after so many.
    Cut(u32),
    /// With the payload of an error event after so many chunks.
    Error(u32, String),
}

/// The text of an answer: words of one token each, from a seeded place in a fixed list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words(pub(crate) u32);

impl Words {
    /// Appends `count` tokens from the `first` on.
    pub(crate) fn append(self, first: u32, count: u32, text: &mut Vec<u8>) {
        for index in first..first + count {
            let place = self.0.wrapping_add(index.wrapping_mul(7)) as usize % WORDS.len();
            text.extend_from_slice(WORDS[place]);
        }
    }

    pub(crate) fn text(self, first: u32, count: u32) -> String {
        let mut text = Vec::new();
        self.append(first, count, &mut text);
        String::from_utf8(text).expect("the words are ASCII")
    }
}

impl Whole {
    pub(crate) fn advance(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Step {
        if now_ns < self.due_ns {
            return Step::Wait(self.due_ns);
        }
        if out.is_empty() {
            *out = std::mem::take(&mut self.bytes);
        } else {
            out.append(&mut self.bytes);
        }
        if self.is_cut { Step::Cut } else { Step::Done }
    }
}

impl Stream {
    pub(crate) fn new(mut plan: StreamPlan) -> Stream {
        let frame = |delta| {
            let StreamPlan { profile, line_end, .. } = plan;
            let event = profile.chunk(&plan.meta, &plan.ask, delta, None, UsageMember::Quiet);
            let (before, after) = event.split_once(MARK).unwrap_or((&event, ""));
            (format!("{}{before}", profile.data()), format!("{after}{line_end}{line_end}"))
        };
        let frames = [frame(Delta::Text(MARK)), frame(Delta::Reasoning(MARK))];
        let stall_ns = plan.stall.filter(|(after, _)| *after == 0).map_or(0, |(_, ns)| ns);
        Stream {
            head: Some(std::mem::take(&mut plan.head)),
            has_role: plan.ask.call != Call::Chat || !plan.profile.has_role_chunk(),
            tokens: 0,
            chunks: 0,
            due_ns: plan.arrived_ns + plan.ttft_ns + stall_ns,
            spoke_ns: plan.arrived_ns,
            frames,
            text: String::new(),
            plan,
        }
    }

    /// Tokens that have been sent.
    pub(crate) fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Chunks that have been sent.
    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Appends to `out` what is due, at most about a piece. `scratch` is empty before and after.
    pub(crate) fn advance(
        &mut self,
        now_ns: u64,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Step {
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
            if self.plan.profile.is_role_early() {
                self.role(scratch);
                self.flush(scratch, out);
            }
            self.spoke_ns = now_ns;
        }
        while self.due_ns <= now_ns {
            self.spoke_ns = now_ns;
            let begin = out.len();
            if let End::Error(at, payload) = &self.plan.end
                && *at == self.chunks
            {
                let payload = payload.clone();
                self.event(&payload, scratch);
                self.flush(scratch, out);
                self.close(self.plan.profile.has_done_after_error(), scratch, out);
                return Step::Done;
            }
            self.chunk(scratch, out);
            if self.plan.end == End::Cut(self.chunks - 1) {
                out.truncate(begin + (out.len() - begin) / 2);
                return Step::Cut;
            }
            if self.tokens == self.plan.ask.tokens {
                self.finish(scratch, out);
                return Step::Done;
            }
            self.due_ns = self.due_ns.saturating_add(self.gap_ns());
            if out.len() >= SEND_PIECE_BYTES {
                return Step::More;
            }
        }
        self.wait(now_ns, scratch, out)
    }

    /// Until the next chunk, with a comment now and then.
    fn wait(&mut self, now_ns: u64, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Step {
        let StreamPlan { ping_ns, line_end, .. } = self.plan;
        if ping_ns == 0 {
            return Step::Wait(self.due_ns);
        }
        if self.spoke_ns + ping_ns <= now_ns {
            scratch.push(b':');
            scratch.extend_from_slice(line_end.as_bytes());
            scratch.extend_from_slice(line_end.as_bytes());
            self.flush(scratch, out);
            self.spoke_ns = now_ns;
        }
        Step::Wait(self.due_ns.min(self.spoke_ns + ping_ns))
    }

    /// From the chunk that was sent last to the next one, ns.
    fn gap_ns(&mut self) -> u64 {
        let itl_ns = self.plan.itl.draw_ns(&mut self.plan.draws);
        let stall_ns = self.plan.stall.filter(|(after, _)| *after == self.chunks);
        let stall_ns = stall_ns.map_or(0, |(_, ns)| ns);
        itl_ns.saturating_mul(u64::from(self.next_tokens())).saturating_add(stall_ns)
    }

    fn next_tokens(&self) -> u32 {
        self.plan.ask.chunk_tokens(self.tokens, self.plan.tokens_per_chunk)
    }

    /// One chunk of tokens.
    fn chunk(&mut self, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        let (first, count) = (self.tokens, self.next_tokens());
        let is_reasoning = first < self.plan.ask.reasoning_tokens;
        let is_hidden = is_reasoning && !self.plan.profile.shows_reasoning();
        if !is_hidden {
            self.role(scratch);
        }
        self.tokens += count;
        self.chunks += 1;
        if is_hidden {
            return;
        }
        if !self.plan.profile.joins_events() {
            self.flush(scratch, out);
        }
        let is_last = self.tokens == self.plan.ask.tokens;
        let has_finish = is_last && self.plan.profile.ends_with_text();
        if self.plan.ask.call == Call::Generate {
            self.text += &self.plan.words.text(first, count);
            let finish = is_last.then_some(self.plan.ask.finish);
            let event = generated(&self.plan.meta, &self.text, self.usage(), finish);
            self.event(&event, scratch);
        } else if has_finish || self.is_counting() {
            let text = self.plan.words.text(first, count);
            let delta = if is_reasoning { Delta::Reasoning(&text) } else { Delta::Text(&text) };
            self.special(delta, has_finish.then_some(self.plan.ask.finish), scratch);
        } else {
            let (before, after) = &self.frames[usize::from(is_reasoning)];
            scratch.extend_from_slice(before.as_bytes());
            self.plan.words.append(first, count, scratch);
            scratch.extend_from_slice(after.as_bytes());
        }
        self.flush(scratch, out);
    }

    /// What follows the last token.
    fn finish(&mut self, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        let StreamPlan { profile, ref ask, .. } = self.plan;
        let is_generate = ask.call == Call::Generate;
        let counts_at_finish = profile == Profile::LlamaCpp && ask.call == Call::Completions;
        let has_usage = ask.include_usage && !is_generate && !counts_at_finish;
        if counts_at_finish {
            let usage = UsageMember::Tokens(self.usage());
            let event = profile.chunk(&self.plan.meta, ask, Delta::Empty, Some(ask.finish), usage);
            self.event(&event, scratch);
        } else if !is_generate && !profile.ends_with_text() {
            self.special(Delta::Empty, Some(ask.finish), scratch);
        }
        if !profile.joins_events() {
            self.flush(scratch, out);
        }
        if has_usage {
            let event = profile.usage_chunk(&self.plan.meta, &self.plan.ask, self.usage());
            self.event(&event, scratch);
        }
        self.flush(scratch, out);
        self.close(true, scratch, out);
    }

    /// The end of the body.
    fn close(&self, has_done: bool, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        if has_done {
            self.event("[DONE]", scratch);
            self.flush(scratch, out);
        }
        if self.plan.is_chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }

    /// The chunk that names the role, unless it has been sent or there is none.
    fn role(&mut self, scratch: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_role, true) {
            self.special(Delta::Role, None, scratch);
        }
    }

    /// A chunk that is not like most.
    fn special(&self, delta: Delta<'_>, finish: Option<Finish>, scratch: &mut Vec<u8>) {
        let usage =
            if self.is_counting() { UsageMember::Tokens(self.usage()) } else { UsageMember::Quiet };
        let event = self.plan.profile.chunk(&self.plan.meta, &self.plan.ask, delta, finish, usage);
        self.event(&event, scratch);
    }

    /// Each chunk counts.
    fn is_counting(&self) -> bool {
        self.plan.ask.include_usage && self.plan.ask.continuous_usage
    }

    fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.plan.ask.prompt_tokens,
            completion_tokens: self.tokens,
            reasoning_tokens: self.plan.ask.reasoning_tokens.min(self.tokens),
        }
    }

    fn event(&self, payload: &str, scratch: &mut Vec<u8>) {
        let StreamPlan { profile, line_end, .. } = self.plan;
        for part in [profile.data(), payload, line_end, line_end] {
            scratch.extend_from_slice(part.as_bytes());
        }
    }

    /// The events of `scratch` as one HTTP chunk.
    fn flush(&self, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        if scratch.is_empty() {
            return;
        }
        if self.plan.is_chunked {
            write_hex(scratch.len(), out);
            out.extend_from_slice(b"\r\n");
            out.append(scratch);
            out.extend_from_slice(b"\r\n");
        } else {
            out.append(scratch);
        }
    }
}

/// Without leading zeros, in lower case.
fn write_hex(value: usize, out: &mut Vec<u8>) {
    let digits = (usize::BITS - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(value >> (4 * digit)) & 15]);
    }
}

/// Stands for the text of a chunk; JSON has it only escaped.
const MARK: &str = "\u{1}";

/// Each is a token: four bytes, and nothing that JSON escapes.
const WORDS: [&[u8; 4]; 32] = [
    b" the", b" and", b" one", b" sea", b" sky", b" sun", b" day", b" way", b" new", b" old",
    b" big", b" far", b" air", b" ice", b" oak", b" fox", b" owl", b" bee", b" red", b" sum",
    b" ask", b" see", b" run", b" try", b" use", b" may", b" can", b" few", b" all", b" who",
    b" how", b" yet",
];

#[cfg(test)]
mod tests {
    use super::super::config::InferenceConfig;
    use super::*;
    use crate::route::Route;

    const MS: u64 = 1_000_000;

    /// A stream of `tokens` tokens whose request came at 1 s: first token after 100 ms, then 10 ms
    /// a token.
    fn plan(profile: Profile, tokens: u32) -> StreamPlan {
        let body =
            format!(r#"{{"messages":[{{"content":"hi"}}],"stream":true,"max_tokens":{tokens}}}"#);
        let ask =
            super::super::ask::read(Route::Chat, body.as_bytes(), &InferenceConfig::default());
        StreamPlan {
            profile,
            ask: ask.expect("valid"),
            meta: Meta { id: "0".repeat(16), model: "\"m\"".to_owned() },
            words: Words(0),
            draws: Draws::of_request(1, b"", 0),
            itl: Distribution::Constant(10 * MS),
            tokens_per_chunk: 1,
            ping_ns: 0,
            line_end: "\n",
            is_chunked: false,
            head: b"HEAD\n".to_vec(),
            arrived_ns: 1000 * MS,
            ttft_ns: 100 * MS,
            end: End::Whole,
            stall: None,
        }
    }

    /// All calls of a stream that is woken exactly when it asks for it: the instant after the
    /// arrival in ms, and the bytes.
    fn calls(plan: StreamPlan) -> (Vec<(u64, String)>, Step) {
        let mut stream = Stream::new(plan);
        let (mut now_ns, mut calls, mut scratch) = (1000 * MS, Vec::new(), Vec::new());
        loop {
            let mut out = Vec::new();
            let step = stream.advance(now_ns, &mut scratch, &mut out);
            assert!(scratch.is_empty());
            calls.push((now_ns / MS - 1000, String::from_utf8(out).expect("ASCII")));
            match step {
                Step::Wait(due_ns) => {
                    assert!(due_ns > now_ns, "it waits for what is to come");
                    now_ns = due_ns;
                }
                Step::More => {}
                Step::Done | Step::Cut => return (calls, step),
            }
        }
    }

    fn instants(calls: &[(u64, String)]) -> Vec<u64> {
        calls.iter().map(|(at_ms, _)| *at_ms).collect()
    }

    #[test]
    fn chunks_come_at_their_instants() {
        let (seen, step) = calls(plan(Profile::Vllm, 4));
        assert_eq!((instants(&seen), step), (vec![0, 100, 110, 120, 130], Step::Done));
        assert_eq!(seen[0].1, "HEAD\n");
        assert!(seen[1].1.contains("\"role\":\"assistant\"") && seen[1].1.contains(" the"));
        assert!(seen[4].1.ends_with("data: [DONE]\n\n"));
        // Two tokens a chunk take the time of two, and the last chunk has what is left.
        let (seen, _) = calls(StreamPlan { tokens_per_chunk: 2, ..plan(Profile::Vllm, 5) });
        assert_eq!(instants(&seen), [0, 100, 120, 130]);
    }

    #[test]
    fn late_call_sends_all_that_is_due_and_moves_nothing() {
        let mut stream = Stream::new(plan(Profile::Vllm, 10));
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        assert_eq!(stream.advance(1115 * MS, &mut scratch, &mut out), Step::Wait(1120 * MS));
        assert_eq!(stream.chunks(), 2);
        assert_eq!(stream.advance(1119 * MS, &mut scratch, &mut out), Step::Wait(1120 * MS));
        assert_eq!(stream.chunks(), 2, "nothing is early");
    }

    #[test]
    fn silence_has_comments_where_the_server_sends_them() {
        let silent =
            StreamPlan { ttft_ns: 2500 * MS, ping_ns: 1000 * MS, ..plan(Profile::LlamaCpp, 1) };
        let (seen, _) = calls(silent);
        assert_eq!(instants(&seen), [0, 1000, 2000, 2500]);
        assert_eq!((&*seen[1].1, &*seen[2].1), (":\n\n", ":\n\n"));
    }

    #[test]
    fn stall_pauses_once_and_shifts_the_rest() {
        for (after, expected) in
            [(0, [0, 600, 610, 620]), (2, [0, 100, 110, 620]), (7, [0, 100, 110, 120])]
        {
            let stalled = StreamPlan { stall: Some((after, 500 * MS)), ..plan(Profile::Vllm, 3) };
            assert_eq!(instants(&calls(stalled).0), expected, "after {after}");
        }
    }

    #[test]
    fn stream_breaks_off_or_fails_where_told() {
        let text = |end| {
            let (seen, step) = calls(StreamPlan { end, ..plan(Profile::Vllm, 4) });
            (seen.into_iter().map(|(_, text)| text).collect::<String>(), step)
        };
        let events = |text: &str| text.matches("\n\n").count();
        let (whole, _) = text(End::Whole);
        assert_eq!(events(&whole), 6, "role, four tokens, [DONE]");
        for after in 1..4 {
            let (cut, step) = text(End::Cut(after));
            assert_eq!((events(&cut), step), (1 + after as usize, Step::Cut));
            assert!(whole.starts_with(&cut) && !cut.ends_with('\n'), "cut inside an event");
            let (failed, step) = text(End::Error(after, "{E}".to_owned()));
            assert_eq!((events(&failed), step), (3 + after as usize, Step::Done));
            assert!(failed.ends_with("data: {E}\n\ndata: [DONE]\n\n"));
        }
        let (cut, _) = text(End::Cut(0));
        assert!(cut.len() > 5 && events(&cut) <= 1);
    }

    #[test]
    fn instant_stream_comes_in_pieces_of_bounded_size() {
        let instant = StreamPlan {
            ttft_ns: 0,
            itl: Distribution::ZERO,
            is_chunked: true,
            ..plan(Profile::Vllm, 5000)
        };
        let (seen, _) = calls(instant);
        let sizes: Vec<usize> = seen.iter().map(|(_, text)| text.len()).collect();
        assert!(sizes.len() > 5 && sizes.iter().all(|&size| size < SEND_PIECE_BYTES + 1000));
    }

    #[test]
    fn reasoning_comes_first_and_in_chunks_of_its_own() {
        let with_reasoning = |profile| {
            let mut plan = StreamPlan { tokens_per_chunk: 2, ..plan(profile, 5) };
            plan.ask.reasoning_tokens = 3;
            calls(plan).0
        };
        let seen = with_reasoning(Profile::Vllm);
        assert_eq!(instants(&seen), [0, 100, 110, 130]);
        let has = |at: usize, text: &str| seen[at].1.contains(text);
        assert!(has(1, "\"reasoning\":\" the") && has(2, "\"reasoning\":\""));
        assert!(has(3, "\"content\":\"") && !has(3, "reasoning"));
        // Hidden: its time passes, and nothing is said.
        let seen = with_reasoning(Profile::OpenAi);
        assert_eq!(instants(&seen), [0, 100, 110, 130]);
        assert_eq!((&*seen[1].1, &*seen[2].1), ("", ""));
        assert!(seen[0].1.contains("\"role\":\"assistant\""), "early");
    }

    #[test]
    fn sizes_are_hexadecimal_without_leading_zeros() {
        for (size, text) in [(0, "0"), (9, "9"), (10, "a"), (16, "10"), (0xabc, "abc")] {
            let mut out = Vec::new();
            write_hex(size, &mut out);
            assert_eq!(out, text.as_bytes());
        }
    }
}
