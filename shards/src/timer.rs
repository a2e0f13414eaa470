//! The timer core: one spinning thread that holds each entry of the schedule until it is due, then
//! puts it into the dispatch ring of a shard.
//!
//! Entry `i` goes to shard `i mod S`, unless that one has nothing free and another has: the timer
//! alone sees them all. It wakes nobody, so its shards must spin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, TryRecvError};
use rtrb::Producer;

use crate::clock::{Calibration, Clock};
use crate::phase::{Live, Rest, TimerPhase};
use crate::schedule::{Arrival, Schedule};
use crate::sys::affinity;

/// A due entry on its way to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The entry.
    pub arrival: Arrival,
    /// Index of the phase.
    pub phase: u32,
}

/// What the timer is built from.
pub struct TimerPlan {
    /// Core to pin to.
    pub core: usize,
    /// Time base until the first phase brings a better one.
    pub clock: Calibration,
    /// Its ends of the dispatch rings, by shard.
    pub rings: Vec<Producer<Dispatch>>,
    /// What each shard shows of itself.
    pub lives: Vec<Arc<Live>>,
    /// Plans and stops.
    pub commands: Receiver<TimerCommand>,
}

/// Control to timer.
#[derive(Debug)]
pub enum TimerCommand {
    /// One more phase; begun when the earlier ones have ended.
    Phase {
        /// Index in the run.
        index: u32,
        /// The whole list.
        schedule: Box<Schedule>,
        /// Absolute start, CLOCK_MONOTONIC ns.
        start_ns: u64,
        /// Instants at or after it are not dispatched.
        stop_ns: u64,
        /// How long after `stop_ns` an entry that found every ring full is tried.
        drain_timeout_ns: u64,
        /// What the shards and control learn.
        shared: Arc<TimerPhase>,
    },
    /// The phase dispatches nothing that is due at or after this instant.
    EndAt {
        /// Index of the phase; one that has ended here stays as it is.
        phase: u32,
        /// CLOCK_MONOTONIC, ns.
        at_ns: u64,
    },
    /// A new calibration of the clock.
    Clock(Calibration),
    /// Nothing more is dispatched, of any phase, but what is due already and finds room at once.
    Stop,
}

/// Starts the thread. It ends when the sender of its commands is gone.
pub fn spawn(plan: TimerPlan) -> std::io::Result<JoinHandle<()>> {
    // The name makes its panic that of a shard.
    std::thread::Builder::new().name("shard-timer".to_owned()).spawn(move || {
        affinity::pin(plan.core);
        Timer { clock: Clock::new(plan.clock), plan, queue: VecDeque::new(), is_gone: false }.run();
    })
}

struct Timer {
    plan: TimerPlan,
    clock: Clock,
    /// Phases, the running one first.
    queue: VecDeque<Running>,
    is_gone: bool,
}

struct Running {
    index: u32,
    schedule: Box<Schedule>,
    /// The next entry, drawn and not yet dispatched.
    pending: Option<Arrival>,
    start_ns: u64,
    stop_ns: u64,
    drain_timeout_ns: u64,
    shared: Arc<TimerPhase>,
}

impl Timer {
    fn run(mut self) {
        let mut steps = 0u32;
        while !self.is_gone {
            let Some(running) = self.queue.front_mut() else {
                // Between phases it does not burn its core.
                match self.plan.commands.recv() {
                    Ok(command) => self.obey(command),
                    Err(_) => return,
                }
                continue;
            };
            running.pending = running.pending.or_else(|| running.schedule.next());
            let due_ns = running
                .pending
                .map_or(u64::MAX, |next| running.start_ns.saturating_add(next.offset_ns));
            let now_ns = self.clock.now_ns();
            steps += 1;
            if steps > LOOK_EVERY || due_ns.saturating_sub(now_ns) > QUIET_NS {
                steps = 0;
                self.take_commands();
            }
            self.step(due_ns, now_ns);
        }
    }

    /// Dispatches the next entry of the first phase if it is due, or ends the phase.
    fn step(&mut self, due_ns: u64, now_ns: u64) {
        let Some(running) = self.queue.front() else { return };
        let give_up_ns = running.stop_ns.saturating_add(running.drain_timeout_ns);
        let Some(arrival) = running.pending.filter(|_| due_ns < running.stop_ns) else {
            return self.end_phase();
        };
        if now_ns < due_ns {
            return std::hint::spin_loop();
        }
        let dispatch = Dispatch { arrival, phase: running.index };
        let shards = self.plan.lives.len();
        let own = (arrival.position % shards as u64) as usize;
        let from_own = (0..shards).map(|step| (own + step) % shards);
        let target = from_own.clone().find(|&shard| self.plan.lives[shard].free() > 0);
        let has_room = |shard: &usize| !self.plan.rings[*shard].is_full();
        let target = target.filter(has_room).or_else(|| from_own.clone().find(has_room));
        if let Some(shard) = target {
            let pushed = self.plan.rings[shard].push(dispatch);
            debug_assert!(pushed.is_ok(), "the timer alone fills the ring");
            self.queue[0].pending = None;
        } else if now_ns >= give_up_ns {
            self.end_phase();
        }
    }

    fn end_phase(&mut self) {
        if let Some(Running { pending, schedule, shared, .. }) = self.queue.pop_front() {
            shared.end(Rest { pending, schedule });
        }
    }

    fn take_commands(&mut self) {
        loop {
            match self.plan.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_gone = true;
                    return;
                }
            }
        }
    }

    fn obey(&mut self, command: TimerCommand) {
        match command {
            TimerCommand::Phase {
                index,
                schedule,
                start_ns,
                stop_ns,
                drain_timeout_ns,
                shared,
            } => {
                self.queue.push_back(Running {
                    index,
                    schedule,
                    pending: None,
                    start_ns,
                    stop_ns,
                    drain_timeout_ns,
                    shared,
                });
            }
            TimerCommand::EndAt { phase, at_ns } => {
                if let Some(running) = self.queue.iter_mut().find(|r| r.index == phase) {
                    running.stop_ns = running.stop_ns.min(at_ns);
                }
            }
            TimerCommand::Clock(calibration) => self.clock.set(calibration),
            TimerCommand::Stop => {
                let now_ns = self.clock.now_ns();
                for running in &mut self.queue {
                    running.stop_ns = running.stop_ns.min(now_ns);
                    running.drain_timeout_ns = 0;
                }
            }
        }
    }
}

/// Entries and turns between two looks at the channel, when something is due soon.
const LOOK_EVERY: u32 = 1024;
/// With so much time until the next instant a look at the channel harms nobody.
const QUIET_NS: u64 = 20_000;
