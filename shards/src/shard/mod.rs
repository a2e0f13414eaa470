//! One shard: a pinned thread that owns a reactor, its connections and one live recording.
//!
//! ```text
//! commands ─▶ control.rs   phases begin, stop, drain and end; intervals are handed over
//!             mod.rs       the loop: pump, stamp, turn, walk the events, expire
//! events   ─▶ exchange.rs  a query is bound, sent, answered, failed; connections come and go
//! ```
//!
//! Between the start of a phase and its end the loop allocates nothing, locks nothing and formats
//! nothing (but the first message of each kind of failure).

mod control;
mod exchange;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};

use crate::clock::Calibration;
use crate::connection::Connection;
use crate::cpu::CpuMeter;
use crate::failure::Message as FailureMessage;
use crate::limits::{EVENTS_PER_TURN, SENDS_PER_ENTER, STALL_NS};
use crate::phase::{Command, Live, Message, PhasePlan, Timeouts};
use crate::pool::Pool;
use crate::query::RequestTable;
use crate::reactor::{EngineChoice, EventKind, Reactor, ReactorConfig, ReactorCounters};
use crate::recorder::Recording;
use crate::sys::affinity;
use crate::wheel::Wheel;

/// What a shard is built from.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    /// Index of the shard.
    pub index: u32,
    /// Core to pin to.
    pub core: Option<usize>,
    /// Never sleep.
    pub spin: bool,
    /// I/O back end.
    pub engine: EngineChoice,
    /// What is sent, where to.
    pub table: RequestTable,
    /// Slots for each target: the most queries that this shard has in flight.
    pub slots_per_target: u32,
    /// Connections to each target that are opened before the first phase.
    pub connections_per_target: u32,
    /// Per query and connection.
    pub timeouts: Timeouts,
    /// Whether connections are reused.
    pub keepalive: bool,
    /// Statuses that count as success, inclusive.
    pub accept_status: (u16, u16),
    /// Time base until the first phase brings a better one.
    pub clock: Calibration,
}

/// A shard's ends of the channels to control.
#[derive(Debug)]
pub struct Link {
    /// Plans and stops.
    pub commands: Receiver<Command>,
    /// Recordings and ends of phases.
    pub messages: Sender<Message>,
    /// Recordings that control has added up, to be used again, with the clock's latest calibration.
    pub recycled: Receiver<(Box<Recording>, Calibration)>,
    /// What control may look at at any time.
    pub live: Arc<Live>,
}

/// A running phase.
struct Active {
    plan: Box<PhasePlan>,
    /// When it really began, ns.
    start_ns: u64,
    /// When issuing stops by the clock; `u64::MAX` without a duration.
    stop_ns: u64,
    /// When issuing stopped; 0 while it goes on.
    issue_end_ns: u64,
    /// Positions claimed and not yet issued.
    claimed: Range<u64>,
    /// Queries of this phase that are not terminal.
    in_flight: u64,
}

/// The thread's whole state.
pub struct Shard {
    reactor: Reactor,
    connections: Box<[Connection]>,
    pool: Pool,
    wheel: Wheel,
    plan: ShardPlan,
    link: Link,
    /// The stamp of the last turn: the time that decisions of the loop are based on.
    now_ns: u64,
    /// Turns so far.
    turns: u64,
    active: Option<Active>,
    queued_phases: VecDeque<Box<PhasePlan>>,
    /// Queries in flight of any phase: the cap holds over phase boundaries.
    in_flight: u64,
    /// Slots whose request is queued but not stamped.
    unsent: Vec<u32>,
    /// Slots that wait for their handshake.
    connect_queue: VecDeque<u32>,
    handshakes: u32,
    expired: Vec<u32>,
    recording: Box<Recording>,
    spares: VecDeque<Box<Recording>>,
    /// Body of the first response with a status that is not accepted, and its slot.
    refused_body: Option<(u32, FailureMessage)>,
    is_ready: bool,
    is_exiting: bool,
    has_commands: bool,
    /// Time in turns that found nothing to do (spinning), since the interval began, ns.
    idle_ns: u64,
    cpu: CpuMeter,
    cpu_ns: u64,
    reactor_counters: ReactorCounters,
}

/// Starts the thread of a shard.
pub fn spawn(plan: ShardPlan, link: Link) -> std::io::Result<JoinHandle<()>> {
    let name = format!("shard-{}", plan.index);
    std::thread::Builder::new().name(name).spawn(move || {
        // Pin first: the memory and the uring then belong to this core.
        let core = plan.core.filter(|&core| affinity::pin(core));
        let config = ReactorConfig {
            engine: plan.engine,
            slots: plan.slots_per_target * plan.table.targets.len() as u32,
            arena: plan.table.arena.clone(),
            clock: plan.clock,
        };
        match Reactor::new(&config, &plan.table.targets) {
            Ok(reactor) => Shard::new(ShardPlan { core, ..plan }, link, reactor).run(),
            Err(reason) => {
                let _ = link.messages.send(Message::Refused { shard: plan.index, reason });
            }
        }
    })
}

impl Shard {
    /// A shard on a reactor that stands. Everything that the loop needs is allocated here.
    pub fn new(plan: ShardPlan, link: Link, reactor: Reactor) -> Shard {
        let targets = plan.table.targets.len() as u32;
        let slots = plan.slots_per_target * targets;
        let now_ns = reactor.now_ns();
        let mut recording = Box::<Recording>::default();
        recording.reset(NO_PHASE, now_ns);
        Shard {
            connections: (0..slots)
                .map(|slot| Connection::new(slot / plan.slots_per_target))
                .collect(),
            pool: Pool::new(targets, plan.slots_per_target),
            wheel: Wheel::new(slots, now_ns),
            now_ns,
            turns: 0,
            active: None,
            queued_phases: VecDeque::with_capacity(4),
            in_flight: 0,
            unsent: Vec::with_capacity(SENDS_PER_ENTER),
            connect_queue: VecDeque::with_capacity(slots as usize),
            handshakes: 0,
            expired: Vec::with_capacity(slots as usize),
            recording,
            spares: (0..2).map(|_| Box::default()).collect(),
            refused_body: None,
            is_ready: false,
            is_exiting: false,
            has_commands: true,
            idle_ns: 0,
            cpu: CpuMeter::of_this_thread(),
            cpu_ns: 0,
            reactor_counters: reactor.counters(),
            reactor,
            plan,
            link,
        }
    }

    /// Runs until told to exit, or until control is gone.
    pub fn run(mut self) {
        self.open_connections();
        let mut events = 0;
        while !self.is_exiting {
            self.take_commands();
            self.advance();
            self.pump();
            let last_ns = self.now_ns;
            let sent = self.unsent.len();
            let before_ns = self.stamp_sends();
            self.link.live.show(self.in_flight);
            let until_ns = self.wake_at_ns();
            self.now_ns = self.reactor.turn(until_ns);
            self.turns += 1;
            let last_events = events;
            events = self.reactor.events().len();
            // In vain: nothing to send, nothing came, and nothing of the last turn was walked.
            if events + last_events + sent == 0 {
                self.idle_ns += self.now_ns.saturating_sub(last_ns);
            }
            self.walk_events(events);
            // A turn that left work undone expires nothing: the answer may be in what is left.
            if events < EVENTS_PER_TURN {
                self.expire(before_ns.saturating_sub(last_ns) > STALL_NS);
            }
            self.hand_over_interval();
            #[cfg(test)]
            self.assert_consistent();
        }
        let _ = self.link.messages.send(Message::Exited { shard: self.plan.index });
    }

    fn walk_events(&mut self, count: usize) {
        for index in 0..count {
            let event = self.reactor.events()[index];
            match event.kind {
                EventKind::Woken => self.has_commands = true,
                EventKind::Received => self.received(&event),
                EventKind::Connected => self.connected(&event),
                EventKind::SendFailed => self.send_failed(&event),
                EventKind::Accepted => debug_assert!(false, "a client accepts nothing"),
            }
        }
    }

    /// How long the next turn may sleep.
    fn wake_at_ns(&self) -> u64 {
        // While connections open, control has no waker of ours yet: look for commands now and then.
        if self.plan.spin || self.is_exiting || (self.has_commands && self.is_ready) {
            return 0;
        }
        let mut wake_ns = self.wheel.next_ns();
        if !self.is_ready {
            return wake_ns.min(self.now_ns + CONTROL_POLL_NS);
        }
        if let Some(active) = &self.active {
            // A control that is late gives no spare recording, and does not wake us when it does.
            let interval_end_ns = match self.interval_end_ns() {
                end_ns if end_ns > self.now_ns => end_ns,
                _ => self.now_ns + CONTROL_POLL_NS,
            };
            wake_ns = wake_ns.min(interval_end_ns).min(active.next_change_ns());
        } else if let Some(next) = self.queued_phases.front() {
            wake_ns = wake_ns.min(next.start_ns.max(1));
        }
        wake_ns
    }
}

/// The phase of a recording that belongs to none.
const NO_PHASE: u32 = u32::MAX;
/// How often a shard looks for what comes from control without a wake-up.
const CONTROL_POLL_NS: u64 = 20_000_000;

#[cfg(test)]
mod chaos;
#[cfg(test)]
mod tests;
