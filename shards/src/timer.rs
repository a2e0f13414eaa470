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

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Sender, bounded};
    use rtrb::{Consumer, RingBuffer};

    use super::*;
    use crate::clock::Calibrator;
    use crate::schedule::{Process, Profile, SchedulePlan};
    use crate::sys::time::monotonic_ns;

    const MS: u64 = 1_000_000;
    /// When a list begins: by then the thread runs, or it is late, which no test minds.
    const DELAY_NS: u64 = 5 * MS;
    /// How far the timer's clock may be from the one that the tests read.
    const CLOCK_ERROR_NS: u64 = 20_000;
    /// Patience with a busy machine.
    const PATIENCE_NS: u64 = 20_000 * MS;

    /// The thread with so many rings, each with room for so many entries.
    struct Bench {
        rings: Vec<Consumer<Dispatch>>,
        lives: Vec<Arc<Live>>,
        commands: Sender<TimerCommand>,
        thread: JoinHandle<()>,
    }

    impl Bench {
        fn new(shards: usize, room: usize) -> Bench {
            let (producers, rings) = (0..shards).map(|_| RingBuffer::new(room)).unzip();
            let lives: Vec<Arc<Live>> = (0..shards).map(|_| Arc::default()).collect();
            lives.iter().for_each(|live| live.show(0, 1));
            let (commands, receiver) = bounded(8);
            let plan = TimerPlan {
                core: 0,
                clock: Calibrator::begin().finish(),
                rings: producers,
                lives: lives.clone(),
                commands: receiver,
            };
            Bench { rings, lives, commands, thread: spawn(plan).expect("a thread") }
        }

        /// Begins a phase soon; returns when, and what it tells.
        fn begin(
            &self,
            index: u32,
            plan: &SchedulePlan,
            stop_ns: Option<u64>,
        ) -> (u64, Arc<TimerPhase>) {
            let start_ns = monotonic_ns() + DELAY_NS;
            let shared = Arc::new(TimerPhase::default());
            let command = TimerCommand::Phase {
                index,
                schedule: Box::new(Schedule::new(plan)),
                start_ns,
                stop_ns: stop_ns.map_or(u64::MAX, |ns| start_ns + ns),
                drain_timeout_ns: u64::MAX,
                shared: Arc::clone(&shared),
            };
            self.commands.send(command).expect("heard");
            (start_ns, shared)
        }

        fn tell(&self, command: TimerCommand) {
            self.commands.send(command).expect("heard");
        }

        /// Drains the rings until the phase has ended: what each got, and when it was seen.
        fn drain(&mut self, shared: &TimerPhase) -> Vec<Vec<(Dispatch, u64)>> {
            let mut got: Vec<Vec<_>> = self.rings.iter().map(|_| Vec::new()).collect();
            let deadline_ns = monotonic_ns() + PATIENCE_NS;
            loop {
                let has_ended = shared.has_ended();
                for (ring, got) in self.rings.iter_mut().zip(&mut got) {
                    while let Ok(dispatch) = ring.pop() {
                        got.push((dispatch, monotonic_ns()));
                    }
                }
                if has_ended {
                    return got;
                }
                assert!(monotonic_ns() < deadline_ns, "the phase ends");
                std::thread::yield_now();
            }
        }

        fn end(self) {
            drop(self.commands);
            self.thread.join().expect("it ends when control is gone");
        }
    }

    fn constant(rate: f64, count: Option<u64>) -> SchedulePlan {
        SchedulePlan {
            process: Process::Constant { jitter: 0.0 },
            profile: Arc::new(Profile::constant(rate).expect("a valid rate")),
            seed: 0,
            stream: 0,
            count,
            end_ns: None,
        }
    }

    fn positions(got: &[(Dispatch, u64)]) -> Vec<u64> {
        got.iter().map(|(dispatch, _)| dispatch.arrival.position).collect()
    }

    fn lengths(got: &[Vec<(Dispatch, u64)>]) -> Vec<usize> {
        got.iter().map(Vec::len).collect()
    }

    #[test]
    fn entries_are_dealt_in_turn_in_order_and_never_early() {
        let mut bench = Bench::new(3, 1024);
        let schedule = constant(20_000.0, Some(300));
        let (start_ns, shared) = bench.begin(4, &schedule, None);
        let got = bench.drain(&shared);
        for (shard, got) in got.iter().enumerate() {
            let expected: Vec<u64> = (shard as u64..300).step_by(3).collect();
            assert_eq!(positions(got), expected, "shard {shard}");
            for (dispatch, seen_ns) in got {
                assert_eq!(dispatch.phase, 4);
                let due_ns = start_ns + dispatch.arrival.offset_ns;
                assert!(seen_ns + CLOCK_ERROR_NS >= due_ns, "{} ns early", due_ns - seen_ns);
            }
        }
        let mut rest = shared.take_rest().expect("it has ended");
        assert_eq!((rest.pending, rest.schedule.next()), (None, None));
        assert!(shared.take_rest().is_none(), "once");
        bench.end();
    }

    #[test]
    fn shard_with_nothing_free_is_passed_over_while_another_has_something() {
        let mut bench = Bench::new(3, 1024);
        bench.lives[1].show(5, 0);
        let (_, shared) = bench.begin(0, &constant(1e6, Some(90)), None);
        let got = bench.drain(&shared);
        assert_eq!(lengths(&got), [30, 0, 60]);
        // Where nobody has anything free, each gets its own.
        bench.lives.iter().for_each(|live| live.show(5, 0));
        let (_, shared) = bench.begin(1, &constant(1e6, Some(90)), None);
        assert_eq!(lengths(&bench.drain(&shared)), [30, 30, 30]);
        bench.end();
    }

    #[test]
    fn full_rings_hold_entries_back_and_lose_none() {
        let mut bench = Bench::new(2, 4);
        let (_, shared) = bench.begin(0, &constant(1e6, Some(100)), None);
        let deadline_ns = monotonic_ns() + PATIENCE_NS;
        while bench.rings.iter().any(|ring| ring.slots() < 4) {
            assert!(monotonic_ns() < deadline_ns, "the rings fill");
            std::thread::yield_now();
        }
        assert!(!shared.has_ended());
        let got = bench.drain(&shared);
        let mut all: Vec<u64> = got.iter().flat_map(|got| positions(got)).collect();
        assert!(got.iter().all(|got| got.is_sorted_by_key(|(d, _)| d.arrival.position)));
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100));
        bench.end();
    }

    #[test]
    fn end_told_by_control_is_that_of_its_phase_and_the_rest_comes_back() {
        let mut bench = Bench::new(1, 1024);
        let (start_ns, shared) = bench.begin(1, &constant(100.0, None), None);
        // Of a phase that has been, or has yet to be told of: nothing to do with this one.
        bench.tell(TimerCommand::EndAt { phase: 0, at_ns: start_ns });
        bench.tell(TimerCommand::EndAt { phase: 1, at_ns: start_ns + 200 * MS });
        let got = bench.drain(&shared);
        assert_eq!(positions(&got[0]), (0..20).collect::<Vec<_>>());
        let mut rest = shared.take_rest().expect("it has ended");
        let next = rest.pending.or_else(|| rest.schedule.next()).expect("no end");
        assert_eq!((next.position, next.offset_ns), (20, 200 * MS));
        assert_eq!(rest.schedule.next().map(|arrival| arrival.position), Some(21));
        bench.end();
    }

    #[test]
    fn planned_end_stops_the_list_and_the_next_phase_follows() {
        let mut bench = Bench::new(1, 1024);
        let (_, first) = bench.begin(0, &constant(2000.0, None), Some(5 * MS));
        let (_, second) = bench.begin(1, &constant(2000.0, Some(7)), None);
        let got = bench.drain(&second);
        assert!(first.has_ended());
        let phases: Vec<u32> = got[0].iter().map(|(dispatch, _)| dispatch.phase).collect();
        assert_eq!(phases, [vec![0; 10], vec![1; 7]].concat());
        bench.end();
    }

    #[test]
    fn stop_ends_all_phases_at_once_even_with_full_rings() {
        let mut bench = Bench::new(1, 4);
        let (_, first) = bench.begin(0, &constant(1e6, Some(100)), None);
        let (_, second) = bench.begin(1, &constant(1000.0, Some(50)), None);
        let deadline_ns = monotonic_ns() + PATIENCE_NS;
        while bench.rings[0].slots() < 4 {
            assert!(monotonic_ns() < deadline_ns, "the ring fills");
            std::thread::yield_now();
        }
        bench.tell(TimerCommand::Stop);
        // Nobody takes anything out of the ring, and the drain may last for ever.
        while !(first.has_ended() && second.has_ended()) {
            assert!(monotonic_ns() < deadline_ns, "the stop is heard");
            std::thread::yield_now();
        }
        let left = |shared: &TimerPhase| {
            let rest = shared.take_rest().expect("it has ended");
            rest.pending.into_iter().chain(*rest.schedule).map(|arrival| arrival.position)
        };
        assert!(left(&first).eq(4..100));
        assert!(left(&second).eq(0..50), "it had not begun");
        assert_eq!(positions(&bench.drain(&first)[0]), [0, 1, 2, 3]);
        bench.end();
    }
}
