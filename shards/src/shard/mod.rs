//! One shard: a pinned thread that owns a reactor, its connections and one live recording.
//!
//! ```text
//! commands ─▶ control.rs   phases begin, stop, drain and end; intervals are handed over
//!             mod.rs       the loop: pump, stamp, turn, walk the events, expire
//! schedule ─▶ arrivals.rs  the instants that are this shard's
//!             issue.rs     a query is claimed or due, waits, is bound, stamped and sent
//! events   ─▶ exchange.rs  it is answered or fails; connections come and go
//!             secure.rs    the same through TLS: handshakes, what is decrypted
//!             wire.rs      kernel stamps of sampled queries beside ours
//!             keep.rs      a record of each goes to the writer, if the user wants them
//! ```
//!
//! Between the start of a phase and its end the loop allocates nothing, locks nothing and formats
//! nothing (but the first message of each kind of failure).

mod arrivals;
mod control;
mod exchange;
mod issue;
mod keep;
mod secure;
mod wire;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use rtrb::Consumer;

use crate::answer::{Answer, AnswerFormat};
use crate::clock::Calibration;
use crate::connection::Connection;
use crate::cpu::{CpuMeter, CpuUse};
use crate::limits::{DUE_PER_TURN, EVENTS_PER_TURN, HICCUP_NS, SENDS_PER_ENTER, STALL_NS};
use crate::margin::Margin;
use crate::phase::{
    Command, FitSample, Goals, Live, Message, Overload, PhasePlan, Positions, Timeouts, Wait,
};
use crate::pool::Pool;
use crate::query::{RequestTable, Target};
use crate::reactor::{EngineChoice, EventKind, Reactor, ReactorConfig, ReactorCounters};
use crate::record::RecordSink;
use crate::recorder::Recording;
use crate::sys::affinity;
use crate::timer::Dispatch;
use crate::tls::TlsTarget;
use crate::wheel::Wheel;

use arrivals::{Arrivals, Ring};
use issue::Backlog;
use wire::WireSampler;

/// What a shard is built from.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    /// Index of the shard.
    pub index: u32,
    /// Core to pin to.
    pub core: Option<usize>,
    /// How it passes the time.
    pub wait: Wait,
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
    /// What a completed query must keep to count as good; `None`: none is counted.
    pub goals: Option<Goals>,
    /// Time base until the first phase brings a better one.
    pub clock: Calibration,
    /// Every so many positions get kernel stamps of the send and the receive; at least 1.
    pub wire_stamps: Option<u32>,
}

impl ShardPlan {
    fn has_tls(&self) -> bool {
        self.table.targets.iter().any(|target| target.tls.is_some())
    }
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
    /// What the other shards show.
    pub peers: Vec<Arc<Live>>,
    /// Due entries from the timer core, if there is one.
    pub dispatches: Option<Consumer<Dispatch>>,
    /// Where a record of each query goes, if they are kept.
    pub records: Option<RecordSink>,
}

/// A phase: the running one, or one that has yet to begin.
struct Active {
    plan: Box<PhasePlan>,
    /// When it really began, ns.
    start_ns: u64,
    /// When issuing stops by the clock; `u64::MAX` without a duration.
    stop_ns: u64,
    /// When issuing stopped; 0 while it goes on.
    issue_end_ns: u64,
    /// Where its queries come from.
    issuing: Issuing,
    /// Queries of this phase that are bound and not terminal.
    in_flight: u64,
    /// Of its queries between T1 and their end.
    area: Area,
}

/// The state of a [`Pattern`].
enum Issuing {
    /// Closed loop.
    Closed {
        in_flight: u32,
        positions: Arc<Positions>,
        /// Claimed and not yet issued.
        claimed: Range<u64>,
    },
    /// Open loop.
    Open {
        in_flight: u32,
        arrivals: Arrivals,
        overload: Overload,
        fit: FitSample,
        /// Something is due and stays in the schedule, as the backlog is full.
        is_held_back: bool,
        /// When that ended last: what was due until then was held back, ns.
        held_until_ns: u64,
    },
}

/// The integral over time of a number: L in Little's law.
#[derive(Default)]
struct Area {
    number: i64,
    since_ns: u64,
    sum_ns: i128,
}

impl Area {
    /// The number changes at an instant. Instants may come out of order: the sum is that of the
    /// ordered ones all the same.
    fn change(&mut self, by: i64, at_ns: u64) {
        let span_ns = i128::from(at_ns) - i128::from(self.since_ns);
        self.sum_ns += i128::from(self.number) * span_ns;
        self.since_ns = at_ns;
        self.number += by;
    }

    /// The integral up to an instant, and none from there on.
    fn take(&mut self, at_ns: u64) -> i128 {
        self.change(0, at_ns);
        std::mem::take(&mut self.sum_ns)
    }
}

/// The thread's whole state.
pub struct Shard {
    reactor: Reactor,
    connections: Box<[Connection]>,
    /// Read the answers of an inference endpoint, one for each slot; empty for plain HTTP.
    answers: Box<[Answer]>,
    pool: Pool,
    wheel: Wheel,
    /// TLS to each target, with the sessions of this shard.
    tls: Box<[Option<TlsTarget>]>,
    plan: ShardPlan,
    link: Link,
    /// The stamp of the last turn: the time that decisions of the loop are based on.
    now_ns: u64,
    /// Turns so far.
    turns: u64,
    active: Option<Active>,
    queued_phases: VecDeque<Active>,
    /// The last end that control has given a phase: its index, and the instant, ns.
    told_end: Option<(u32, u64)>,
    /// Queries in flight of any phase: the cap holds over phase boundaries.
    in_flight: u64,
    /// Due queries that this turn may still take.
    due_left: usize,
    /// A query was taken from the schedule or a request queued, since the last turn.
    has_begun: bool,
    /// Slots whose request is queued but not stamped.
    unsent: Vec<u32>,
    /// Slots that wait for their handshake.
    connect_queue: VecDeque<u32>,
    handshakes: u32,
    expired: Vec<u32>,
    recording: Box<Recording>,
    spares: VecDeque<Box<Recording>>,
    is_ready: bool,
    is_exiting: bool,
    has_commands: bool,
    /// Time in turns that found nothing to do (spinning), since the interval began, ns.
    idle_ns: u64,
    /// Where entries from the timer core come in.
    ring: Ring,
    backlog: Backlog,
    margin: Margin,
    /// Kernel stamps, if they are on.
    wire: Option<Box<WireSampler>>,
    cpu: CpuMeter,
    cpu_last: CpuUse,
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
            wire_stamps: plan.wire_stamps.is_some(),
        };
        let is_stamped_tls = plan.wire_stamps.is_some() && plan.has_tls();
        let reactor = match is_stamped_tls {
            false => Reactor::new(&config, &plan.table.targets),
            true => Err(WIRE_STAMPS_TLS.to_owned()),
        };
        match reactor {
            Ok(reactor) => Shard::new(ShardPlan { core, ..plan }, link, reactor).run(),
            Err(reason) => {
                let _ = link.messages.send(Message::Refused { shard: plan.index, reason });
            }
        }
    })
}

impl Shard {
    /// A shard on a reactor that stands. Everything that the loop needs is allocated here.
    pub fn new(plan: ShardPlan, mut link: Link, reactor: Reactor) -> Shard {
        let targets = plan.table.targets.len() as u32;
        let slots = plan.slots_per_target * targets;
        assert!(!plan.has_tls() || reactor.report().name != "sim", "TLS needs a real endpoint");
        let own_sessions = |target: &Target| target.tls.as_ref().map(TlsTarget::with_own_sessions);
        let now_ns = reactor.now_ns();
        let mut recording = Box::<Recording>::default();
        recording.begin(NO_PHASE, now_ns);
        Shard {
            connections: (0..slots)
                .map(|slot| Connection::new(slot / plan.slots_per_target))
                .collect(),
            answers: match plan.table.answers.format {
                AnswerFormat::Plain => Box::default(),
                _ => (0..slots).map(|_| Answer::new(&plan.table.answers)).collect(),
            },
            pool: Pool::new(targets, plan.slots_per_target),
            wheel: Wheel::new(slots, now_ns),
            tls: plan.table.targets.iter().map(own_sessions).collect(),
            now_ns,
            turns: 0,
            active: None,
            queued_phases: VecDeque::with_capacity(4),
            told_end: None,
            in_flight: 0,
            due_left: DUE_PER_TURN,
            has_begun: false,
            unsent: Vec::with_capacity(SENDS_PER_ENTER),
            connect_queue: VecDeque::with_capacity(slots as usize),
            handshakes: 0,
            expired: Vec::with_capacity(slots as usize),
            recording,
            spares: (0..2).map(|_| Box::default()).collect(),
            is_ready: false,
            is_exiting: false,
            has_commands: true,
            idle_ns: 0,
            ring: Ring(link.dispatches.take()),
            backlog: Backlog::new(targets),
            margin: Margin::default(),
            wire: plan.wire_stamps.map(|every| Box::new(WireSampler::new(every, &reactor))),
            cpu: CpuMeter::of_this_thread(),
            cpu_last: CpuUse::default(),
            reactor_counters: reactor.counters(),
            reactor,
            plan,
            link,
        }
    }

    /// Runs until told to exit, or until control is gone.
    pub fn run(mut self) {
        self.open_connections();
        let (mut events, mut last_ns) = (0, self.now_ns);
        while !self.is_exiting {
            self.take_commands();
            self.advance();
            self.pump();
            #[cfg(test)]
            self.assert_served();
            let sent = self.unsent.len();
            let before_ns = self.stamp_sends();
            self.link.live.show(self.in_flight, self.pool.free_count() as u64);
            let until_ns = self.wake_at_ns(before_ns);
            let returned_ns = self.reactor.turn(until_ns);
            self.now_ns = returned_ns;
            self.turns += 1;
            self.due_left = DUE_PER_TURN;
            let has_worked = std::mem::take(&mut self.has_begun) || events > 0;
            events = self.reactor.events().len();
            self.note(&Turn { last_ns, before_ns, until_ns, has_worked, sent, events });
            self.walk_events(events);
            // A turn that left work undone expires nothing: the answer may be in what is left.
            if events < EVENTS_PER_TURN {
                self.expire(before_ns.saturating_sub(last_ns) > STALL_NS);
            }
            last_ns = returned_ns;
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

    /// Records what the turn says of ourselves.
    fn note(&mut self, turn: &Turn) {
        let now_ns = self.now_ns;
        let is_recorded = self.active.is_some();
        let recording = &mut self.recording;
        if turn.has_worked && is_recorded {
            recording.loop_gap.record(turn.before_ns.saturating_sub(turn.last_ns));
        }
        if turn.until_ns > turn.before_ns {
            // Asleep, and woken by nothing but the clock.
            if turn.events == 0 && now_ns >= turn.until_ns {
                let overshoot_ns = now_ns - turn.until_ns;
                self.margin.learn(turn.until_ns - turn.before_ns, overshoot_ns);
                if is_recorded {
                    recording.wakeup.record(overshoot_ns);
                }
            }
        } else if turn.sent > 0 && is_recorded {
            let took_ns = now_ns - turn.before_ns;
            recording.enter.record(took_ns);
            if turn.sent == 1 {
                recording.counters.single_sends += 1;
                recording.counters.single_sends_ns += took_ns;
            }
        } else if !turn.has_worked && turn.events == 0 {
            // In vain: nothing was taken or sent, nothing came, nothing of the last turn walked.
            let gap_ns = now_ns.saturating_sub(turn.last_ns);
            self.idle_ns += gap_ns;
            if gap_ns > HICCUP_NS[0] && is_recorded {
                let counters = &mut recording.counters;
                counters.hiccups_10us += 1;
                counters.hiccups_100us += u64::from(gap_ns > HICCUP_NS[1]);
                counters.hiccups_1ms += u64::from(gap_ns > HICCUP_NS[2]);
                counters.hiccups_ns += if gap_ns > HICCUP_NS[1] { gap_ns } else { 0 };
            }
        }
    }

    /// How long the next turn may sleep.
    fn wake_at_ns(&mut self, now_ns: u64) -> u64 {
        let due_ns = self.next_due_ns();
        if due_ns.saturating_sub(now_ns) > DRAW_AHEAD_NS {
            self.draw_ahead();
        }
        let waits_for_control = self.has_commands && self.is_ready;
        // While connections open, control has no waker of ours yet: look for commands now and then.
        if self.plan.wait == Wait::Spin || self.is_exiting || waits_for_control {
            return 0;
        }
        let mut wake_ns = self.wheel.next_ns();
        if !self.is_ready {
            return wake_ns.min(self.now_ns + CONTROL_POLL_NS);
        }
        // What must not be late: queries, and begins and ends of phases, behind which a query may
        // be due at once.
        let mut instant_ns = due_ns;
        if let Some(active) = &mut self.active {
            instant_ns = instant_ns.min(active.next_change_ns(&mut self.ring));
            // A control that is late gives no spare recording, and does not wake us when it does.
            let interval_end_ns = match self.interval_end_ns() {
                end_ns if end_ns > self.now_ns => end_ns,
                _ => self.now_ns + CONTROL_POLL_NS,
            };
            wake_ns = wake_ns.min(interval_end_ns);
        } else if let Some(next) = self.queued_phases.front() {
            instant_ns = next.plan.start_ns.max(1);
        }
        match self.plan.wait {
            Wait::Hybrid if instant_ns < u64::MAX => {
                let gap_ns = instant_ns.saturating_sub(now_ns);
                let margin_ns = self.margin.of(gap_ns);
                if gap_ns <= margin_ns { 0 } else { wake_ns.min(instant_ns - margin_ns) }
            }
            Wait::Hybrid | Wait::Sleep | Wait::Spin => wake_ns.min(instant_ns),
        }
    }

    /// When the next query is due; `u64::MAX` if none is, or if it would find no room.
    fn next_due_ns(&mut self) -> u64 {
        let Some(active) = &mut self.active else { return u64::MAX };
        let limit_ns = active.take_limit_ns();
        let Issuing::Open { arrivals, is_held_back: false, .. } = &mut active.issuing else {
            return u64::MAX;
        };
        let start_ns = active.plan.start_ns;
        let next =
            arrivals.peek(&mut self.ring).map(|next| start_ns.saturating_add(next.offset_ns));
        next.filter(|&due_ns| due_ns < limit_ns).unwrap_or(u64::MAX)
    }

    /// Draws a few entries of the schedule: there is time.
    fn draw_ahead(&mut self) {
        if let Some(active) = &mut self.active
            && let Issuing::Open { arrivals, .. } = &mut active.issuing
        {
            for _ in 0..DRAWS_PER_TURN {
                if !arrivals.draw_ahead() {
                    return;
                }
            }
        }
    }
}

/// One round of the loop, for [`Shard::note`].
struct Turn {
    /// When the last turn returned.
    last_ns: u64,
    /// Right before the kernel call.
    before_ns: u64,
    /// Until when it might sleep.
    until_ns: u64,
    /// Events of the last turn were walked since, queries taken, or requests queued.
    has_worked: bool,
    /// Sends that this turn carried.
    sent: usize,
    /// Events that it brought.
    events: usize,
}

/// Why stamps of the kernel and TLS do not go together.
pub const WIRE_STAMPS_TLS: &str = "--wire-stamps stamps bytes of a request, and TLS sends others: \
    measure http:// or leave it out";
/// With so much time until the next instant the schedule is drawn ahead, a few entries a turn.
const DRAW_AHEAD_NS: u64 = 2_000;
const DRAWS_PER_TURN: usize = 4;
/// The phase of a recording that belongs to none.
const NO_PHASE: u32 = u32::MAX;
/// How often a shard looks for what comes from control without a wake-up.
const CONTROL_POLL_NS: u64 = 20_000_000;

#[cfg(test)]
mod answered;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod open_loop;
#[cfg(test)]
mod tests;
