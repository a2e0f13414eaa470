//! Queries and connections of a shard: answered, failed; opened, reused, closed.

use super::Shard;
use super::keep::End;
use crate::answer::{Answer, Progress, Verdict};
use crate::connection::{Connection, State};
use crate::failure::{FailureKind, Message};
use crate::http1::{Eof, Step};
use crate::limits::{BACKOFF_NS_MAX, BACKOFF_NS_MIN, CONNECTS_IN_FLIGHT, LINGER_NS};
use crate::phase::Timeouts;
use crate::query::{PoolWait, Query};
use crate::reactor::Event;
use crate::recorder::{AnswerTimes, Counters, Recording, Stamps};
use crate::sys::errno_text;
use crate::token::next_generation;

/// How the bytes of one receive ended.
#[derive(Clone, Copy)]
pub(super) enum Fed {
    More,
    /// `is_clean`: not a byte came behind the response.
    Complete {
        is_clean: bool,
    },
    /// The reason, with the beginning of the bytes.
    Malformed(&'static str, Message),
    /// It is HTTP still, and no answer that can be read on.
    Broken,
}

/// How a response came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// As its framing said, and not a byte came behind it.
    Clean,
    /// As its framing said, with more behind it; or an answer was over, and the rest did not come.
    Unclean,
    /// With the connection.
    Eof,
}

/// What reading a response works on. Plaintext comes by here, whether it lies in a receive buffer
/// or has been decrypted.
pub(super) struct Reading<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) answer: Option<&'a mut Answer>,
    pub(super) counters: &'a mut Counters,
    pub(super) accept_status: (u16, u16),
    /// Of the receive that brought the bytes.
    pub(super) stamp_ns: u64,
}

impl Reading<'_> {
    /// Parses bytes of a response where they lie.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Fed {
        let mut input = bytes;
        self.counters.bytes_received += bytes.len() as u64;
        if self.connection.first_byte_ns == 0 {
            self.connection.first_byte_ns = self.stamp_ns;
        }
        loop {
            let Connection { parser, carry, first_byte_ns, .. } = &mut *self.connection;
            match parser.step(&mut input, carry) {
                Ok(Step::More) => return Fed::More,
                Ok(Step::End { excess }) => return Fed::Complete { is_clean: excess == 0 },
                Ok(Step::Interim(_)) => {
                    self.counters.interim_responses += 1;
                    // The response itself begins behind it, here or in a later receive.
                    *first_byte_ns = if input.is_empty() { 0 } else { self.stamp_ns };
                }
                Ok(Step::Head(head)) => {
                    if let Some(answer) = &mut self.answer {
                        answer.head(&head);
                    }
                }
                Ok(Step::Body(body)) => {
                    if self.take_body(body) == Progress::Broken {
                        return Fed::Broken;
                    }
                }
                Err(malformed) => {
                    return Fed::Malformed(malformed.reason(), Message::from_wire(bytes));
                }
            }
        }
    }

    fn take_body(&mut self, body: &[u8]) -> Progress {
        let Reading { connection, answer, stamp_ns, .. } = self;
        let progress = answer.as_mut().map_or(Progress::More, |it| it.body(body, *stamp_ns));
        let status = connection.parser.head().map_or(0, |head| head.status);
        let (low, high) = self.accept_status;
        if !(low..=high).contains(&status) {
            // It has failed, whatever it says; only its words are of interest.
            connection.refused_body.get_or_insert_with(|| Message::from_wire(body));
            return Progress::More;
        }
        if progress == Progress::Over && connection.over_ns == 0 {
            connection.over_ns = *stamp_ns;
        }
        progress
    }
}

impl Shard {
    /// Opens the connections that the first phase will find.
    pub(super) fn open_connections(&mut self) {
        for target in 0..self.plan.table.targets.len() as u32 {
            for _ in 0..self.plan.connections_per_target {
                if let Some(slot) = self.pool.take_closed(target) {
                    self.open(slot);
                }
            }
        }
        self.start_handshakes();
    }

    /// The earliest deadline of a request that is out; of an answer that is over, the end of the
    /// patience for the rest of its response.
    pub(super) fn set_exchange_deadline(&mut self, slot: u32, now_ns: u64) {
        let Connection { over_ns, sent_ns, .. } = self.connections[slot as usize];
        let Timeouts { request_ns, ttft_ns, idle_ns, .. } = self.plan.timeouts;
        let deadline_ns = if over_ns > 0 {
            over_ns + LINGER_NS
        } else {
            let ttft_ns = if self.awaits_first(slot) { ttft_ns } else { 0 };
            let of_request_ns = end_of(sent_ns, request_ns).min(end_of(sent_ns, ttft_ns));
            of_request_ns.min(end_of(now_ns, idle_ns))
        };
        self.wheel.set(slot, if deadline_ns == u64::MAX { 0 } else { deadline_ns });
    }

    /// Nothing has come yet of what `--ttft-timeout` is about.
    fn awaits_first(&self, slot: u32) -> bool {
        match self.answers.get(slot as usize) {
            Some(answer) => answer.facts().first_token_ns == 0,
            None => self.connections[slot as usize].first_byte_ns == 0,
        }
    }

    pub(super) fn received(&mut self, event: &Event) {
        let slot = event.slot;
        let connection = &self.connections[slot as usize];
        if connection.generation != event.generation {
            self.reactor.recycle(event);
            return;
        }
        let mut event = *event;
        if connection.state == State::Busy && connection.exchanges == 0 {
            // An endpoint that speaks first: the request leaves now, so that there is an instant to
            // count from.
            if connection.sent_ns == 0 {
                self.send_now();
            }
            event.stamp_ns = event.stamp_ns.max(self.connections[slot as usize].sent_ns);
        }
        let event = &event;
        let connection = &self.connections[slot as usize];
        if connection.tls.is_some() && event.result > 0 {
            return self.decrypt(event);
        }
        match connection.state {
            // It was there before the request: the end of the stream, or bytes that nobody asked
            // for. Either way the connection had been lost when the query was bound to it.
            State::Busy if connection.was_bound_stale(self.turns) => {
                self.reactor.recycle(event);
                self.retry(slot);
            }
            State::Busy if event.result > 0 => self.feed(event),
            State::Busy => self.stream_ended(slot, -event.result, event.stamp_ns),
            State::Idle => {
                // An idle connection that speaks or ends is of no more use; nobody asked it
                // anything.
                let Connection { target, exchanges, .. } = *connection;
                if event.result <= 0 {
                    self.count_closed_by_endpoint(exchanges);
                }
                self.reactor.recycle(event);
                self.pool.remove_idle(target, slot);
                self.close(slot);
            }
            State::Securing => {
                self.reactor.recycle(event);
                self.handshake_ended(slot, -event.result);
            }
            _ => self.reactor.recycle(event),
        }
    }

    /// Parses the bytes of one receive in place, then gives the buffer back.
    fn feed(&mut self, event: &Event) {
        let slot = event.slot;
        let mut reading = Reading {
            connection: &mut self.connections[slot as usize],
            answer: self.answers.get_mut(slot as usize),
            counters: &mut self.recording.counters,
            accept_status: self.plan.accept_status,
            stamp_ns: event.stamp_ns,
        };
        let fed = reading.take(self.reactor.bytes(event));
        if let Fed::Complete { .. } = fed {
            self.note_received_wire(event);
        }
        self.reactor.recycle(event);
        self.fed(slot, fed, event.stamp_ns);
    }

    /// What follows from the bytes of a receive.
    pub(super) fn fed(&mut self, slot: u32, fed: Fed, stamp_ns: u64) {
        let is_over = self.connections[slot as usize].over_ns > 0;
        match fed {
            Fed::More => {
                let Timeouts { ttft_ns, idle_ns, .. } = self.plan.timeouts;
                if is_over || ttft_ns > 0 || idle_ns > 0 {
                    self.set_exchange_deadline(slot, stamp_ns);
                }
            }
            Fed::Complete { is_clean } => {
                let ending = if is_clean { Ending::Clean } else { Ending::Unclean };
                self.complete(slot, stamp_ns, ending);
            }
            Fed::Broken => self.answer_failed(slot),
            // What follows an answer says nothing any more.
            Fed::Malformed(..) if is_over => self.complete(slot, stamp_ns, Ending::Unclean),
            Fed::Malformed(reason, excerpt) => self.fail(slot, FailureKind::Malformed, || {
                Message::new(&format!("{reason}: {:?}", excerpt.as_str()))
            }),
        }
    }

    /// A response is whole, or its answer is over and nothing more is waited for.
    pub(super) fn complete(&mut self, slot: u32, stamp_ns: u64, ending: Ending) {
        let connection = &mut self.connections[slot as usize];
        let head = *connection.parser.head().expect("a complete response has a head");
        let query = connection.query.take().expect("a busy connection carries a query");
        let stamps = Stamps {
            scheduled_ns: query.scheduled_ns,
            dispatched_ns: query.dispatched_ns,
            ready_ns: connection.ready_ns,
            sent_ns: connection.sent_ns,
            first_byte_ns: connection.first_byte_ns,
            // What a front keeps open behind it is no part of the answer.
            complete_ns: if connection.over_ns > 0 { connection.over_ns } else { stamp_ns },
        };
        let verdict = self.judge(slot, head.status, stamp_ns, ending);
        let wire_stamps = self.take_wire_stamps(slot, &query);
        if (!head.keep_alive || ending == Ending::Eof) && self.plan.keepalive {
            self.count_closed_by_endpoint(self.connections[slot as usize].exchanges + 1);
        }
        let connection = &mut self.connections[slot as usize];
        let is_reusable = ending == Ending::Clean && head.keep_alive && self.plan.keepalive;
        if is_reusable && !self.reactor.is_sending(slot) {
            connection.state = State::Idle;
            connection.exchanges += 1;
            let target = connection.target;
            self.pool.put_idle(target, slot);
            self.wheel.set(slot, 0);
        } else {
            self.close(slot);
        }
        let goals = self.plan.goals;
        let failure = verdict.as_ref().err().map(|(kind, _)| *kind);
        let end = End { at_ns: stamps.complete_ns, status: head.status, failure };
        self.keep_record(&query, Some(slot), &end);
        let answers = std::mem::take(&mut self.answers);
        let request = &self.plan.table.requests[query.request as usize];
        let (prompt_tokens, is_stream) = (request.prompt_tokens, request.is_stream);
        self.settle(&query, stamp_ns, |recording| {
            recording.statuses.count(head.status);
            if let Err((kind, words)) = verdict {
                recording.counters.failed += 1;
                recording.failures.count(kind, || match kind {
                    FailureKind::Status => {
                        Message::new(&format!("{} {}", head.status, words.as_str()))
                    }
                    _ => words,
                });
            } else {
                let answer = answers.get(slot as usize);
                let times = answer.map(|answer| AnswerTimes::of(answer.facts(), end.at_ns));
                recording.success(&stamps, times.as_ref(), goals.as_ref());
                if let Some(answer) = answer {
                    let (facts, gaps_ns) = (answer.facts(), answer.gaps_ns());
                    recording.answer(facts, gaps_ns, &stamps, prompt_tokens, is_stream);
                }
                if let Some(wire_stamps) = wire_stamps {
                    wire_stamps.record(recording, stamps.sent_ns, stamp_ns);
                }
            }
        });
        self.answers = answers;
        self.now_ns = self.now_ns.max(stamp_ns);
        self.pump();
    }

    /// What becomes of the query of a whole response. Of a refusal the words without the status:
    /// those of its error, which are better than its JSON, else the begin of its body.
    #[expect(clippy::result_large_err, reason = "it is taken apart at once, by the one caller")]
    fn judge(&mut self, slot: u32, status: u16, stamp_ns: u64, ending: Ending) -> Verdict {
        let answer = self.answers.get_mut(slot as usize);
        let verdict = answer.map_or(Ok(()), |answer| answer.end(stamp_ns, ending == Ending::Eof));
        let (low, high) = self.plan.accept_status;
        if (low..=high).contains(&status) {
            return verdict;
        }
        let words = match verdict {
            Err((FailureKind::ErrorInAnswer, words)) => words,
            _ => self.connections[slot as usize].refused_body.unwrap_or(Message::EMPTY),
        };
        Err((FailureKind::Status, words))
    }

    /// The endpoint has closed a connection. One that never carried anything does not show how many
    /// requests they may carry.
    pub(super) fn count_closed_by_endpoint(&mut self, exchanges: u32) {
        let counters = &mut self.recording.counters;
        counters.closed_by_endpoint += u64::from(exchanges > 0);
        counters.closed_by_endpoint_exchanges += u64::from(exchanges);
    }

    /// An answer cannot be read on.
    fn answer_failed(&mut self, slot: u32) {
        let failure = self.answers[slot as usize].failure().copied();
        let (kind, message) = failure.unwrap_or((FailureKind::MalformedAnswer, Message::EMPTY));
        self.fail(slot, kind, || message);
    }

    /// A query is over at `end_ns`: frees its credit, and records it if its phase is still open;
    /// otherwise it is carry-in.
    pub(super) fn settle(
        &mut self,
        query: &Query,
        end_ns: u64,
        record: impl FnOnce(&mut Recording),
    ) {
        self.in_flight -= 1;
        if query.phase != self.recording.phase {
            self.recording.counters.carried_in += 1;
            return;
        }
        if let Some(active) = &mut self.active {
            active.in_flight -= 1;
            active.area.change(-1, end_ns);
        }
        self.recording.residence_ns += i128::from(end_ns) - i128::from(query.dispatched_ns);
        record(&mut self.recording);
    }

    /// The peer closed (`errno` 0) or the connection broke, while a response was awaited.
    pub(super) fn stream_ended(&mut self, slot: u32, errno: i32, stamp_ns: u64) {
        let connection = &mut self.connections[slot as usize];
        if connection.looks_stale() {
            return self.retry(slot);
        }
        if connection.over_ns > 0 {
            return self.complete(slot, stamp_ns, Ending::Eof);
        }
        let send_errno = connection.send_errno;
        if errno != 0 {
            let kind = if errno == libc::ETIMEDOUT {
                FailureKind::ClosedEarly
            } else {
                FailureKind::Reset
            };
            return self.fail(slot, kind, || Message::new(&errno_text(errno)));
        }
        let is_cut = connection.tls.as_ref().is_some_and(|session| !session.is_closed());
        let is_stream =
            self.answers.get(slot as usize).is_some_and(|answer| answer.facts().is_stream);
        match connection.parser.end_of_stream() {
            // Anybody on the way could have ended the connection here.
            Ok(()) if is_cut && !is_stream => self.fail(slot, FailureKind::TruncatedBody, || {
                Message::new("the connection ended without close_notify inside the response body")
            }),
            Ok(()) => self.complete(slot, stamp_ns, Ending::Eof),
            // The stream knows better whether something is missing than its framing.
            Err(Eof::InBody) if is_stream => self.complete(slot, stamp_ns, Ending::Eof),
            Err(Eof::BeforeAnyByte) if send_errno != 0 => {
                self.fail(slot, FailureKind::Send, || Message::new(&errno_text(send_errno)));
            }
            Err(Eof::BeforeAnyByte) => self.fail(slot, FailureKind::ClosedEarly, || {
                Message::new("the endpoint closed the connection before any byte of the response")
            }),
            Err(Eof::InHead) => self.fail(slot, FailureKind::TruncatedBody, || {
                Message::new("the connection ended inside the response head")
            }),
            Err(Eof::InBody) => self.fail(slot, FailureKind::TruncatedBody, || {
                Message::new("the connection ended inside the response body")
            }),
        }
    }

    /// The reused connection had been closed by the endpoint, as it may: opens it again and sends
    /// the same query once more. Counted, never hidden, and only ever once per query.
    pub(super) fn retry(&mut self, slot: u32) {
        self.recording.counters.connections_reused_stale += 1;
        self.recording.counters.retries += 1;
        self.count_closed_by_endpoint(self.connections[slot as usize].exchanges);
        self.disconnect(slot);
        // The handshake has a deadline of its own.
        self.wheel.set(slot, 0);
        let connection = &mut self.connections[slot as usize];
        connection.is_retry = true;
        // Not sent before: it waits for a connection still, and for a new one now.
        if let Some(query) = &mut connection.query
            && connection.sent_ns == 0
            && query.wait == PoolWait::None
        {
            query.wait = PoolWait::NewConnection;
        }
        self.open(slot);
        self.start_handshakes();
    }

    /// The query of a slot ends in a failure, and its connection with it.
    pub(super) fn fail(&mut self, slot: u32, kind: FailureKind, message: impl FnOnce() -> Message) {
        let connection = &mut self.connections[slot as usize];
        let query = connection.query.take();
        let status = connection.parser.head().map_or(0, |head| head.status);
        self.close(slot);
        if let Some(query) = query {
            self.settle_failed(&query, Some(slot), status, kind, message);
        }
    }

    /// A query ends in a failure now. `slot`: the connection that it had; `status`: 0 if none came.
    fn settle_failed(
        &mut self,
        query: &Query,
        slot: Option<u32>,
        status: u16,
        kind: FailureKind,
        message: impl FnOnce() -> Message,
    ) {
        let now_ns = self.now_ns;
        self.keep_record(query, slot, &End { at_ns: now_ns, status, failure: Some(kind) });
        let sent_ns = slot.map_or(0, |slot| self.connections[slot as usize].sent_ns);
        self.settle(query, now_ns, |recording| {
            recording.counters.failed += 1;
            recording.failures.count(kind, message);
            if matches!(kind, FailureKind::RequestTimeout | FailureKind::IdleTimeout) {
                let since_ns = if query.scheduled_ns > 0 { query.scheduled_ns } else { sent_ns };
                recording.censored.record(now_ns.saturating_sub(since_ns));
            }
        });
    }

    pub(super) fn send_failed(&mut self, event: &Event) {
        let connection = &mut self.connections[event.slot as usize];
        if connection.generation != event.generation || connection.state != State::Busy {
            return;
        }
        match -event.result {
            // The endpoint may have answered before it closed: what it said, or the end of the
            // stream, follows.
            errno @ (libc::EPIPE | libc::ECONNRESET) => connection.send_errno = errno,
            errno => {
                self.fail(event.slot, FailureKind::Send, || Message::new(&errno_text(errno)));
            }
        }
    }

    /// Puts a slot without a socket into the queue for handshakes.
    pub(super) fn open(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        // After a pause for a full backlog the attempt goes on.
        if connection.state != State::BackingOff {
            connection.connect_ns = 0;
        }
        connection.state = State::Queued;
        self.connect_queue.push_back(slot);
    }

    /// Starts handshakes while not too many run: no SYN storm.
    pub(super) fn start_handshakes(&mut self) {
        while self.handshakes < CONNECTS_IN_FLIGHT {
            let Some(slot) = self.connect_queue.pop_front() else { return };
            self.make_room();
            let now_ns = self.reactor.now_ns();
            let connection = &mut self.connections[slot as usize];
            if connection.connect_ns == 0 {
                connection.connect_ns = now_ns;
            }
            connection.state = State::Connecting;
            match self.reactor.connect(slot, connection.generation, connection.target) {
                Ok(()) => {
                    self.handshakes += 1;
                    if self.plan.timeouts.connect_ns > 0 {
                        self.wheel.set(slot, now_ns + self.plan.timeouts.connect_ns);
                    }
                }
                Err(errno) => self.connect_failed(slot, errno),
            }
        }
    }

    pub(super) fn connected(&mut self, event: &Event) {
        let slot = event.slot;
        let connection = &mut self.connections[slot as usize];
        if connection.generation != event.generation || connection.state != State::Connecting {
            return;
        }
        if event.result < 0 {
            self.handshakes -= 1;
            return self.connect_failed(slot, -event.result);
        }
        connection.exchanges = 0;
        self.recording.counters.connections_opened += 1;
        self.recording.connect.record(event.stamp_ns.saturating_sub(connection.connect_ns));
        if self.tls[connection.target as usize].is_some() {
            self.begin_handshake(slot, event.stamp_ns);
        } else {
            self.ready(slot, event.stamp_ns);
        }
    }

    /// A connection can carry requests since `ready_ns`.
    pub(super) fn ready(&mut self, slot: u32, ready_ns: u64) {
        self.handshakes -= 1;
        self.wheel.set(slot, 0);
        let connection = &mut self.connections[slot as usize];
        connection.backoff_ns = 0;
        if connection.query.is_some() {
            self.begin_exchange(slot, ready_ns);
        } else {
            connection.state = State::Idle;
            let target = connection.target;
            self.pool.put_idle(target, slot);
        }
    }

    /// A handshake failed: so does its query, and the slot pauses before the next attempt. The
    /// caller has taken it out of `handshakes`.
    fn connect_failed(&mut self, slot: u32, errno: i32) {
        let kind = match errno {
            libc::ECONNREFUSED | libc::ENOENT => FailureKind::ConnectRefused,
            libc::ETIMEDOUT => FailureKind::ConnectTimeout,
            libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS => FailureKind::LocalLimit,
            libc::EADDRNOTAVAIL | libc::EADDRINUSE => FailureKind::LocalLimit,
            _ => FailureKind::ConnectError,
        };
        let message = || match errno {
            libc::EADDRNOTAVAIL => {
                Message::new("no local port is left; see net.ipv4.ip_local_port_range, --source-ip")
            }
            libc::EMFILE => Message::new("too many open files; ulimit -n"),
            // Only unix sockets say so; a TCP endpoint lets the client wait.
            libc::EAGAIN => Message::new("the listen backlog of the unix socket is full"),
            _ => Message::new(&errno_text(errno)),
        };
        self.back_off(slot);
        if errno == libc::EAGAIN && self.may_wait_for_backlog(slot) {
            return;
        }
        self.attempt_failed(slot, kind, message);
    }

    /// Closes the socket of a failed attempt; the slot pauses before the next one.
    pub(super) fn back_off(&mut self, slot: u32) {
        self.disconnect(slot);
        let connection = &mut self.connections[slot as usize];
        connection.state = State::BackingOff;
        connection.backoff_ns = (connection.backoff_ns * 2).clamp(BACKOFF_NS_MIN, BACKOFF_NS_MAX);
        let deadline_ns = self.now_ns + connection.backoff_ns;
        self.wheel.set(slot, deadline_ns);
    }

    /// The query of an attempt that failed ends with it.
    pub(super) fn attempt_failed(
        &mut self,
        slot: u32,
        kind: FailureKind,
        message: impl Fn() -> Message + Copy,
    ) {
        let connection = &mut self.connections[slot as usize];
        let target = connection.target;
        match connection.query.take() {
            Some(query) => self.settle_failed(&query, Some(slot), 0, kind, message),
            // Opened ahead, before the first phase: told with `Ready`, in no phase's figures.
            None if !self.is_ready => self.recording.failures.count(kind, message),
            None => {}
        }
        self.fail_those_that_wait(target, kind, message);
    }

    /// A target that has just failed an attempt to connect, and all of whose slots pause, has no
    /// connection to wait for: the attempt was in the name of all who wait for it. Else a target
    /// that is down would look like a queue that grows.
    fn fail_those_that_wait(
        &mut self,
        target: u32,
        kind: FailureKind,
        message: impl Fn() -> Message,
    ) {
        let slots = self.plan.slots_per_target as usize;
        let first = target as usize * slots;
        let of_target = first..first + slots;
        let does_pause = |connection: &Connection| connection.state == State::BackingOff;
        if !self.backlog.has(target) || !self.connections[of_target].iter().all(does_pause) {
            return;
        }
        while let Some(query) = self.backlog.pop(target) {
            self.count_issued();
            self.settle_failed(&query, None, 0, kind, &message);
        }
    }

    /// A unix socket whose backlog is full refuses at once what TCP would let wait. So the query
    /// waits here, through the pause, as long as a handshake may take.
    fn may_wait_for_backlog(&self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        let timeout_ns = self.plan.timeouts.connect_ns;
        let waited_ns = self.now_ns.saturating_sub(connection.connect_ns);
        connection.query.is_some() && (timeout_ns == 0 || waited_ns < timeout_ns)
    }

    /// Closes the socket of a slot; the slot stays taken.
    fn disconnect(&mut self, slot: u32) {
        self.make_room();
        let connection = &mut self.connections[slot as usize];
        let is_established =
            matches!(connection.state, State::Busy | State::Idle | State::Securing);
        self.recording.counters.connections_closed += u64::from(is_established);
        connection.generation = next_generation(connection.generation);
        connection.carry.clear();
        connection.tls = None;
        self.reactor.close(slot);
    }

    /// Closes the socket of a slot and gives the slot back.
    pub(super) fn close(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if matches!(connection.state, State::Connecting | State::Securing) {
            self.handshakes -= 1;
        }
        let target = connection.target;
        self.wheel.set(slot, 0);
        self.disconnect(slot);
        self.connections[slot as usize].state = State::Closed;
        self.pool.put_closed(target, slot);
    }

    /// Ends what is over time. `after_stall`: we were away, so the fault may be ours.
    pub(super) fn expire(&mut self, after_stall: bool) {
        let mut expired = std::mem::take(&mut self.expired);
        self.wheel.expire(self.now_ns, &mut expired);
        for slot in expired.drain(..) {
            let connection = &mut self.connections[slot as usize];
            match connection.state {
                State::BackingOff if connection.query.is_some() => self.open(slot),
                State::BackingOff => {
                    connection.state = State::Closed;
                    let target = connection.target;
                    self.pool.put_closed(target, slot);
                }
                State::Connecting => {
                    self.handshakes -= 1;
                    self.connect_failed(slot, libc::ETIMEDOUT);
                }
                State::Securing => self.handshake_timed_out(slot),
                // The answer was over long since.
                State::Busy if connection.over_ns > 0 => {
                    self.complete(slot, self.now_ns, Ending::Unclean);
                }
                State::Busy => {
                    self.recording.counters.timeouts_after_client_stall += u64::from(after_stall);
                    self.exchange_timed_out(slot);
                }
                State::Closed | State::Queued | State::Idle => {}
            }
        }
        self.expired = expired;
    }

    fn exchange_timed_out(&mut self, slot: u32) {
        let sent_ns = self.connections[slot as usize].sent_ns;
        let is_over = |timeout_ns| end_of(sent_ns, timeout_ns) <= self.now_ns;
        let (kind, text) = if is_over(self.plan.timeouts.request_ns) {
            (FailureKind::RequestTimeout, "no complete response within --timeout")
        } else if !is_over(self.plan.timeouts.ttft_ns) || !self.awaits_first(slot) {
            (FailureKind::IdleTimeout, "no byte within --idle-timeout")
        } else if self.answers.is_empty() {
            (FailureKind::RequestTimeout, "no byte within --ttft-timeout")
        } else {
            (FailureKind::RequestTimeout, "no token within --ttft-timeout")
        };
        self.fail(slot, kind, || Message::new(text));
    }
}

/// When a timeout that began at `since_ns` is over; `u64::MAX` if it is off or has yet to begin.
fn end_of(since_ns: u64, timeout_ns: u64) -> u64 {
    if since_ns == 0 || timeout_ns == 0 { u64::MAX } else { since_ns.saturating_add(timeout_ns) }
}
