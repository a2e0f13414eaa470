//! The virtual-time transport: whole phases run exactly, in no time, without a socket.
//!
//! Time stands still while the shard works and jumps to the next instant at which something
//! happens. The endpoint is a queue: request `i` takes `service_ns[i]` on the first of its servers
//! that is free (the Lindley recursion), so the expected latency of every request can be written
//! down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crossbeam_channel::Sender;

use crate::event::{EngineReport, Event, EventKind, ReactorCounters};
use crate::phase::Command;
use crate::sys::wake::Waker;

/// How the endpoint behaves.
#[derive(Clone, Debug)]
pub struct SimEndpoint {
    /// Service time of each request in order of arrival; the last one goes on for ever.
    pub service_ns: Vec<u64>,
    /// Requests served at the same time; the others queue, first come first served.
    pub servers: usize,
    /// What it answers.
    pub response: Vec<u8>,
    /// More of each answer: how long after its begin, ns, and the bytes.
    pub later: Vec<(u64, Vec<u8>)>,
    /// Requests from this one on get no answer.
    pub answers: u64,
    /// Time of a handshake.
    pub connect_ns: u64,
    /// How handshakes end: 0, or an errno.
    pub connect_errno: i32,
    /// Closes each connection after this many answers on it; 0 = never.
    pub closes_after: u32,
    /// Time between the last answer and the close.
    pub close_ns: u64,
    /// How it closes: 0, or an errno that the client then sees.
    pub close_errno: i32,
    /// Every so many requests the connection breaks instead of an answer; 0 = never.
    pub resets_every: u64,
    /// It answers each connection before it has been asked.
    pub greets: bool,
    /// Each answer comes twice.
    pub stutters: bool,
    /// It does nothing in these stretches, and then goes on: first instant, and first after it, ns.
    pub freezes_ns: Vec<(u64, u64)>,
    /// The client does nothing in these: what happens in them it sees at their end.
    pub client_stalls_ns: Vec<(u64, u64)>,
    /// What a turn without a wait takes; needed where the shard spins.
    pub turn_ns: u64,
    /// How late timed sleeps end.
    pub overshoot_ns: u64,
    /// What one send takes the client.
    pub send_ns: u64,
    /// Hears of each request as it leaves.
    pub witness: Option<Sender<Seen>>,
}

/// A request that has left the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// When, ns.
    pub at_ns: u64,
    /// Begin of its bytes in the arena: tells what was sent.
    pub begin: usize,
}

impl Default for SimEndpoint {
    fn default() -> SimEndpoint {
        SimEndpoint {
            service_ns: vec![1_000_000],
            servers: usize::MAX,
            response: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec(),
            later: Vec::new(),
            answers: u64::MAX,
            connect_ns: 0,
            connect_errno: 0,
            closes_after: 0,
            close_ns: 0,
            close_errno: 0,
            resets_every: 0,
            greets: false,
            stutters: false,
            freezes_ns: Vec::new(),
            client_stalls_ns: Vec::new(),
            turn_ns: 0,
            overshoot_ns: 0,
            send_ns: 0,
            witness: None,
        }
    }
}

impl SimEndpoint {
    /// When work of `service_ns` that begins at `start_ns` at the earliest is done.
    fn done_ns(&self, start_ns: u64, service_ns: u64) -> u64 {
        let (mut now_ns, mut left_ns) = (start_ns, service_ns);
        for &(begin_ns, end_ns) in &self.freezes_ns {
            if now_ns + left_ns <= begin_ns && now_ns < begin_ns {
                break;
            }
            if now_ns < end_ns {
                left_ns -= begin_ns.saturating_sub(now_ns);
                now_ns = end_ns;
            }
        }
        now_ns + left_ns
    }
}

/// The virtual reactor.
pub struct Sim {
    now_ns: u64,
    endpoint: SimEndpoint,
    /// When each busy server is free again; at most `servers` entries.
    busy_until_ns: BinaryHeap<Reverse<u64>>,
    arrivals: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    sequence: u64,
    /// Sends that have not entered yet.
    queued: Vec<(u32, u32, usize)>,
    /// Bytes of each slot that are in no arena.
    outboxes: Vec<Vec<u8>>,
    /// Answers of the socket in each slot.
    answered: Vec<u32>,
    generations: Vec<Option<u32>>,
    /// Turns in a row that neither took time nor found anything.
    vain_turns: u32,
    events: Vec<Event>,
    /// Control's voice: the commands of the script, and the exit when nothing will happen any more.
    commands: Sender<Command>,
    /// What it will say at its instants.
    script: Vec<Option<Command>>,
    report: EngineReport,
    waker: Waker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Connected { slot: u32, generation: u32 },
    Answer { slot: u32, generation: u32 },
    More { slot: u32, generation: u32, piece: usize },
    Closed { slot: u32, generation: u32 },
    Broken { slot: u32, generation: u32 },
    Command { index: usize },
}

impl Sim {
    /// A transport with `slots` connections, at time 1 ms.
    pub fn new(slots: u32, endpoint: SimEndpoint, commands: Sender<Command>) -> Sim {
        Sim {
            now_ns: 1_000_000,
            endpoint,
            busy_until_ns: BinaryHeap::new(),
            arrivals: 0,
            agenda: BinaryHeap::new(),
            sequence: 0,
            queued: Vec::new(),
            outboxes: vec![Vec::new(); slots as usize],
            answered: vec![0; slots as usize],
            generations: vec![None; slots as usize],
            vain_turns: 0,
            events: Vec::new(),
            commands,
            script: Vec::new(),
            report: EngineReport { name: "sim", ..EngineReport::default() },
            waker: Waker::new().expect("an eventfd"),
        }
    }

    /// Lets control speak at a virtual instant.
    pub fn command_at(&mut self, at_ns: u64, command: Command) {
        self.plan(at_ns, Happening::Command { index: self.script.len() });
        self.script.push(Some(command));
    }

    /// Requests that have arrived.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    fn plan(&mut self, at_ns: u64, happening: Happening) {
        self.agenda.push(Reverse((at_ns, self.sequence, happening)));
        self.sequence += 1;
    }

    pub(crate) fn report(&self) -> &EngineReport {
        &self.report
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn counters(&self) -> ReactorCounters {
        ReactorCounters::default()
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        match usize::from(id).checked_sub(1) {
            None => &self.endpoint.response[..len],
            Some(piece) => &self.endpoint.later[piece].1[..len],
        }
    }

    pub(crate) fn recycle(&mut self, _id: u16) {}

    pub(crate) fn connect(&mut self, slot: u32, generation: u32, _target: u32) -> Result<(), i32> {
        self.generations[slot as usize] = Some(generation);
        self.answered[slot as usize] = 0;
        let at_ns = self.now_ns + self.endpoint.connect_ns;
        self.plan(at_ns, Happening::Connected { slot, generation });
        if self.endpoint.greets {
            self.plan(at_ns, Happening::Answer { slot, generation });
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, slot: u32, generation: u32, range: Range<usize>) {
        self.queued.push((slot, generation, range.start));
    }

    pub(crate) fn outbox(&mut self, slot: u32) -> &mut Vec<u8> {
        &mut self.outboxes[slot as usize]
    }

    /// The bytes are taken for one request.
    pub(crate) fn send_outbox(&mut self, slot: u32, generation: u32) {
        self.outboxes[slot as usize].clear();
        self.queued.push((slot, generation, 0));
    }

    pub(crate) fn is_sending(&self, _slot: u32) -> bool {
        false
    }

    pub(crate) fn close(&mut self, slot: u32) {
        self.generations[slot as usize] = None;
    }

    pub(crate) fn flush(&mut self) {
        for (slot, generation, begin) in std::mem::take(&mut self.queued) {
            self.now_ns += self.endpoint.send_ns;
            if let Some(witness) = &self.endpoint.witness {
                // A test that has seen enough may be gone.
                let _ = witness.send(Seen { at_ns: self.now_ns, begin });
            }
            self.arrive(slot, generation);
        }
    }

    /// d_i = max(a_i, first free server) + S_i.
    fn arrive(&mut self, slot: u32, generation: u32) {
        let closes_after = self.endpoint.closes_after;
        if closes_after > 0 && self.answered[slot as usize] >= closes_after {
            return; // The endpoint closed it; nobody reads.
        }
        let index = self.arrivals;
        self.arrivals += 1;
        if index >= self.endpoint.answers {
            return;
        }
        let last = self.endpoint.service_ns.len() - 1;
        let service_ns = self.endpoint.service_ns[last.min(index as usize)];
        let free_ns = if self.busy_until_ns.len() < self.endpoint.servers {
            0
        } else {
            self.busy_until_ns.pop().expect("at least one server").0
        };
        let done_ns = self.endpoint.done_ns(free_ns.max(self.now_ns), service_ns);
        self.busy_until_ns.push(Reverse(done_ns));
        let resets_every = self.endpoint.resets_every;
        if resets_every > 0 && index % resets_every == resets_every - 1 {
            return self.plan(done_ns, Happening::Broken { slot, generation });
        }
        for _ in 0..1 + u32::from(self.endpoint.stutters) {
            self.plan(done_ns, Happening::Answer { slot, generation });
        }
        for piece in 0..self.endpoint.later.len() {
            let at_ns = done_ns + self.endpoint.later[piece].0;
            self.plan(at_ns, Happening::More { slot, generation, piece });
        }
    }

    pub(crate) fn turn(&mut self, until_ns: u64) -> u64 {
        self.events.clear();
        self.flush();
        let next_ns = self.agenda.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns);
        if next_ns.min(until_ns) == u64::MAX {
            self.say(Command::Exit);
            return self.now_ns;
        }
        let last_ns = self.now_ns;
        self.now_ns = match until_ns {
            0 => last_ns + self.endpoint.turn_ns,
            _ if next_ns <= until_ns => last_ns.max(next_ns),
            _ => last_ns.max(until_ns + self.endpoint.overshoot_ns),
        };
        let stalls = self.endpoint.client_stalls_ns.iter();
        for &(begin_ns, end_ns) in stalls {
            if (begin_ns..end_ns).contains(&self.now_ns) {
                self.now_ns = end_ns;
            }
        }
        while let Some(Reverse((at_ns, _, happening))) = self.agenda.peek().copied() {
            if at_ns > self.now_ns {
                break;
            }
            self.agenda.pop();
            self.happen(happening);
        }
        let is_vain = self.now_ns == last_ns && self.events.is_empty();
        self.vain_turns = if is_vain { self.vain_turns + 1 } else { 0 };
        assert!(self.vain_turns < VAIN_TURNS_LIMIT, "the shard turns without end");
        self.now_ns
    }

    fn say(&mut self, command: Command) {
        self.commands.send(command).expect("the shard listens");
        let (kind, stamp_ns) = (EventKind::Woken, self.now_ns);
        self.events.push(Event { kind, slot: 0, generation: 0, result: 0, buffer: None, stamp_ns });
    }

    fn happen(&mut self, happening: Happening) {
        let mut buffer = 0;
        let (kind, slot, generation, result) = match happening {
            Happening::Connected { slot, generation } => {
                (EventKind::Connected, slot, generation, -self.endpoint.connect_errno)
            }
            Happening::Answer { slot, generation } => {
                let len = self.endpoint.response.len() as i32;
                (EventKind::Received, slot, generation, len)
            }
            Happening::More { slot, generation, piece } => {
                buffer = piece as u16 + 1;
                let len = self.endpoint.later[piece].1.len() as i32;
                (EventKind::Received, slot, generation, len)
            }
            Happening::Closed { slot, generation } => {
                (EventKind::Received, slot, generation, -self.endpoint.close_errno)
            }
            Happening::Broken { slot, generation } => {
                (EventKind::Received, slot, generation, -libc::ECONNRESET)
            }
            Happening::Command { index } => {
                let command = self.script[index].take().expect("an instant comes once");
                return self.say(command);
            }
        };
        if self.generations[slot as usize] != Some(generation) {
            return;
        }
        let buffer = (result > 0).then_some(buffer);
        let stamp_ns = self.now_ns;
        self.events.push(Event { kind, slot, generation, result, buffer, stamp_ns });
        if let Happening::Answer { .. } = happening {
            self.answered[slot as usize] += 1;
            if self.answered[slot as usize] == self.endpoint.closes_after {
                let at_ns = self.now_ns + self.endpoint.close_ns;
                self.plan(at_ns, Happening::Closed { slot, generation });
            }
        }
    }
}

/// More than any work of one instant needs.
const VAIN_TURNS_LIMIT: u32 = 1000;
