//! The loop of one thread of the endpoint: accept, read, answer, close.
//!
//! Replies of a connection leave in the order of its requests. They wait in its backlog while an
//! earlier send is under way, and all replies wait in one FIFO before, when there is a delay: it is
//! constant, so the first to come is the first due. A client that sends one request at a time
//! causes no allocation after its slot's first connection.
//!
//! An answer of the inference side is an entry of the backlog like the others: at its turn it goes
//! into the slot's outbox as its bytes become due, and what is behind it waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loadgen_shards::reactor::{EngineReport, Event, EventKind, Reactor};
use loadgen_shards::sys::wake::Waker;
use loadgen_shards::token::next_generation;

use crate::inference::{Inference, Step};
use crate::request::{Malformed, RequestParser};
use crate::response::{Replies, Reply};
use crate::route::{Entry, Route};
use crate::{Counter, EndpointConfig};

/// One thread's whole state.
pub(crate) struct Server {
    reactor: Reactor,
    replies: Replies,
    delay_ns: u64,
    spin: bool,
    connections: Box<[Connection]>,
    /// Slots without a connection.
    free: Vec<u32>,
    /// Replies that are not due, by their instant.
    delayed: VecDeque<Delayed>,
    inference: Option<Inference>,
    /// Of this turn, ns.
    now_ns: u64,
    /// Slots that can go on once their send has been handed over. The reactor makes no event of
    /// that.
    waiting: Vec<u32>,
    /// The other buffer of `waiting`, empty between two uses.
    settled: Vec<u32>,
    /// A slot waits for a send that the next turn makes: that turn must not sleep.
    is_restless: bool,
    requests: Arc<Counter>,
    is_stopped: Arc<AtomicBool>,
}

/// One slot.
#[derive(Debug)]
struct Connection {
    generation: u32,
    is_open: bool,
    /// Nothing more is read: it closes when it owes nothing.
    is_ending: bool,
    /// In `Server::waiting`.
    is_waiting: bool,
    /// Replies not handed to the reactor, delayed ones included.
    owed: u32,
    parser: RequestParser,
    /// Replies that are due, in order.
    backlog: VecDeque<Run>,
}

/// Equal replies in a row.
#[derive(Clone, Copy, Debug)]
struct Run {
    reply: Reply,
    count: u32,
}

/// A run that is due at an instant.
struct Delayed {
    due_ns: u64,
    slot: u32,
    generation: u32,
    run: Run,
}

impl Server {
    pub(crate) fn new(
        reactor: Reactor,
        replies: Replies,
        config: &EndpointConfig,
        inference: Option<Inference>,
        requests: Arc<Counter>,
        is_stopped: Arc<AtomicBool>,
    ) -> Server {
        let slots = config.connections;
        let routes = inference.as_ref().map_or(&[][..], Inference::routes);
        Server {
            reactor,
            replies,
            delay_ns: config.delay_ns,
            spin: config.spin,
            connections: (0..slots).map(|_| Connection::new(routes)).collect(),
            free: (0..slots).rev().collect(),
            delayed: VecDeque::with_capacity(if config.delay_ns > 0 { slots as usize } else { 0 }),
            inference,
            now_ns: 0,
            waiting: Vec::with_capacity(slots as usize),
            settled: Vec::with_capacity(slots as usize),
            is_restless: false,
            requests,
            is_stopped,
        }
    }

    pub(crate) fn engine(&self) -> EngineReport {
        self.reactor.report().clone()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.reactor.waker()
    }

    /// Serves until told to stop.
    pub(crate) fn run(mut self) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            self.now_ns = self.reactor.turn(self.wake_at_ns());
            self.is_restless = false;
            self.settle();
            for index in 0..self.reactor.events().len() {
                let event = self.reactor.events()[index];
                match event.kind {
                    EventKind::Accepted => self.accepted(&event),
                    EventKind::Received => self.received(&event),
                    EventKind::SendFailed if self.is_live(&event) => self.close(event.slot),
                    EventKind::SendFailed | EventKind::Woken | EventKind::Connected => {}
                }
            }
            self.release();
            self.go_on();
        }
    }

    fn wake_at_ns(&self) -> u64 {
        if self.spin || self.is_restless {
            return 0;
        }
        let delayed_ns = self.delayed.front().map_or(u64::MAX, |delayed| delayed.due_ns);
        self.inference.as_ref().map_or(delayed_ns, |inference| inference.next_ns().min(delayed_ns))
    }

    fn is_live(&self, event: &Event) -> bool {
        self.connections[event.slot as usize].is_live(event.generation)
    }

    fn accepted(&mut self, event: &Event) {
        if event.result < 0 {
            return; // Out of descriptors, or the client is gone already.
        }
        let Some(slot) = self.free.pop() else { return self.reactor.refuse(event) };
        let connection = &mut self.connections[slot as usize];
        connection.is_open = true;
        self.reactor.adopt(slot, connection.generation, event);
    }

    fn received(&mut self, event: &Event) {
        if !self.is_live(event) {
            return self.reactor.recycle(event);
        }
        if event.result <= 0 {
            return self.ended(event);
        }
        let connection = &mut self.connections[event.slot as usize];
        let mut input = self.reactor.bytes(event);
        let mut count = 0;
        while !connection.is_ending {
            let reply = match connection.parser.next(&mut input) {
                Ok(Some(request)) => {
                    count += 1;
                    connection.is_ending = request.is_last;
                    if request.route == Route::Plain {
                        Reply::to_request(request.is_head, request.is_last)
                    } else {
                        let inference = self.inference.as_mut().expect("it has the routes");
                        let content = connection.parser.content();
                        connection.is_ending =
                            inference.accept(event.slot, request, event.stamp_ns, content);
                        Reply::Answer
                    }
                }
                Ok(None) => break,
                Err(Malformed) => {
                    connection.is_ending = true;
                    Reply::BadRequest
                }
            };
            // What the inference side times itself is delayed only behind what is delayed.
            let is_first = connection.owed == 0;
            connection.owed += 1;
            if self.delay_ns == 0 || (is_first && reply == Reply::Answer) {
                connection.push(Run { reply, count: 1 });
            } else {
                let due_ns = event.stamp_ns + self.delay_ns;
                push_delayed(&mut self.delayed, due_ns, event, reply);
            }
        }
        self.reactor.recycle(event);
        self.requests.add(count);
        self.answer(event.slot);
    }

    /// The client sends nothing more. It still gets what it has asked for, unless the connection
    /// broke.
    fn ended(&mut self, event: &Event) {
        self.connections[event.slot as usize].is_ending = true;
        if event.result < 0 {
            self.close(event.slot);
        } else {
            self.answer(event.slot);
        }
    }

    /// Goes on with the answers of which more has become due.
    fn go_on(&mut self) {
        let Some(inference) = &mut self.inference else { return };
        let mut due = inference.pop_due(self.now_ns);
        while let Some((slot, generation)) = due {
            if self.connections[slot as usize].is_live(generation) {
                self.answer(slot);
            }
            due = self.inference.as_mut().and_then(|inference| inference.pop_due(self.now_ns));
        }
    }

    /// Answers what has become due.
    fn release(&mut self) {
        while let Some(&Delayed { due_ns, slot, generation, run }) = self.delayed.front() {
            if due_ns > self.now_ns {
                break;
            }
            self.delayed.pop_front();
            let connection = &mut self.connections[slot as usize];
            if connection.is_live(generation) {
                connection.push(run);
                self.answer(slot);
            }
        }
    }

    /// Hands over what a slot has in its backlog; what remains goes on after the next turn.
    fn answer(&mut self, slot: u32) {
        self.drain(slot);
        self.is_restless |= self.connections[slot as usize].is_waiting;
    }

    /// Hands the backlog of a slot to the reactor as far as it goes, and closes a connection that
    /// has ended. Says whether something was handed over.
    fn drain(&mut self, slot: u32) -> bool {
        let mut has_sent = false;
        while let Some(run) = self.connections[slot as usize].backlog.front_mut() {
            if self.reactor.may_be_sending(slot) {
                self.wait(slot);
                return has_sent;
            }
            if run.reply == Reply::Answer {
                if !self.advance(slot) {
                    return true;
                }
                has_sent = true;
                continue;
            }
            let (range, count) = self.replies.range(run.reply, run.count);
            run.count -= count;
            let is_over = run.count == 0;
            let connection = &mut self.connections[slot as usize];
            if is_over {
                connection.backlog.pop_front();
            }
            connection.owed -= count;
            self.reactor.send(slot, connection.generation, range);
            has_sent = true;
        }
        let connection = &self.connections[slot as usize];
        if connection.is_open && connection.is_ending && connection.owed == 0 {
            if self.reactor.may_be_sending(slot) { self.wait(slot) } else { self.close(slot) }
        }
        has_sent
    }

    /// Sends what is due of the inference answer at the front of the backlog. Says whether the slot
    /// may have more to send.
    fn advance(&mut self, slot: u32) -> bool {
        let connection = &mut self.connections[slot as usize];
        let inference = self.inference.as_mut().expect("the answer is its own");
        let outbox = self.reactor.outbox(slot);
        let step = inference.advance(slot, connection.generation, self.now_ns, outbox);
        if !outbox.is_empty() {
            self.reactor.send_outbox(slot, connection.generation);
        }
        match step {
            Step::Wait(_) => return false,
            Step::More => {}
            Step::Done => connection.pop(),
            Step::Cut => {
                // Nothing that was asked for behind it is answered.
                connection.backlog.clear();
                connection.owed = 0;
                connection.is_ending = true;
                self.delayed.retain(|delayed| delayed.slot != slot);
            }
        }
        true
    }

    fn wait(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if !std::mem::replace(&mut connection.is_waiting, true) {
            self.waiting.push(slot);
        }
    }

    /// Goes on with the slots whose send the turn has made. Those that wait on without a new send
    /// are blocked by their client: the turn in which that changes ends by itself.
    fn settle(&mut self) {
        std::mem::swap(&mut self.waiting, &mut self.settled);
        for index in 0..self.settled.len() {
            let slot = self.settled[index];
            self.connections[slot as usize].is_waiting = false;
            let has_sent = self.drain(slot);
            self.is_restless |= has_sent && self.connections[slot as usize].is_waiting;
        }
        self.settled.clear();
    }

    fn close(&mut self, slot: u32) {
        self.reactor.close(slot);
        self.connections[slot as usize].reset();
        if let Some(inference) = &mut self.inference {
            inference.reset(slot);
        }
        self.free.push(slot);
    }
}

impl Connection {
    fn new(routes: &'static [Entry]) -> Connection {
        Connection {
            generation: 0,
            is_open: false,
            is_ending: false,
            is_waiting: false,
            owed: 0,
            parser: RequestParser::new(routes),
            backlog: VecDeque::with_capacity(1),
        }
    }

    fn is_live(&self, generation: u32) -> bool {
        self.is_open && self.generation == generation
    }

    fn push(&mut self, run: Run) {
        match self.backlog.back_mut() {
            Some(last) if last.reply == run.reply => last.count += run.count,
            _ => self.backlog.push_back(run),
        }
    }

    /// One reply of the front run has been handed over.
    fn pop(&mut self) {
        self.owed -= 1;
        if let Some(run) = self.backlog.front_mut() {
            run.count -= 1;
            if run.count == 0 {
                self.backlog.pop_front();
            }
        }
    }

    /// Ready for the next client, except that `is_waiting` stays true to `Server::waiting`.
    fn reset(&mut self) {
        self.generation = next_generation(self.generation);
        self.is_open = false;
        self.is_ending = false;
        self.owed = 0;
        self.parser.reset();
        self.backlog.clear();
    }
}

/// Requests of one receive that get the same reply share an entry.
fn push_delayed(delayed: &mut VecDeque<Delayed>, due_ns: u64, event: &Event, reply: Reply) {
    let (slot, generation) = (event.slot, event.generation);
    match delayed.back_mut() {
        Some(last)
            if (last.due_ns, last.slot, last.generation) == (due_ns, slot, generation)
                && last.run.reply == reply =>
        {
            last.run.count += 1;
        }
        _ => delayed.push_back(Delayed { due_ns, slot, generation, run: Run { reply, count: 1 } }),
    }
}
