//! One run: shards are started, phases handed to them, recordings merged into the [`Snapshot`].
//!
//! The caller owns the loop and the clock on the wall: it calls [`Session::poll`] until the run is
//! over, shows and writes what it finds in between, and says [`Session::stop`] or
//! [`Session::cancel`] when the user or a rule wants an end. A session knows nothing of terminals
//! and files.

mod rules;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use loadgen_shards::clock::{self, Calibration, Calibrator};
use loadgen_shards::failure::{FailureKind, Failures, Tally};
use loadgen_shards::limits::{
    DISPATCH_RING_ENTRIES, INTERVAL_NS, RECORD_RING_ENTRIES, RECORD_TEXTS_LEAST,
};
use loadgen_shards::order::SampleOrder;
use loadgen_shards::phase::{
    Command, FitSample, Live, Message, Pattern, PhasePlan, Positions, Ready, Rest, Source,
    TimerPhase, Wait,
};
use loadgen_shards::reactor::EngineReport;
use loadgen_shards::record::{RecordSink, RecordSource, Wanted, record_path};
use loadgen_shards::recorder::Recording;
use loadgen_shards::schedule::{Schedule, SchedulePlan, hash_of};
use loadgen_shards::shard::{self, Link, ShardPlan};
use loadgen_shards::sys::affinity;
use loadgen_shards::sys::time::monotonic_ns;
use loadgen_shards::sys::wake::Waker;
use loadgen_shards::timer::{self, Dispatch, TimerCommand, TimerPlan};
use rtrb::{Consumer, RingBuffer};

use crate::config::Keep;
use crate::config::Precision;
use crate::cores::Timer;
use crate::courtesy::make_way;
use crate::error::Error;
use crate::plan::{Phase, Plan};
use crate::snapshot::{ClockFacts, Conditions, PhaseTotals, Segments, Snapshot, State, StealMeter};
use crate::trust;

use rules::Rules;

/// A run that is going on.
pub struct Session {
    plan: Arc<Plan>,
    shards: Vec<ShardHandle>,
    /// The writer's ends of the paths of records, until they are taken.
    records: Vec<RecordSource>,
    timer: Option<Timing>,
    messages: Receiver<Message>,
    calibrator: Calibrator,
    calibrated_ns: u64,
    progress: Vec<PhaseProgress>,
    snapshot: Snapshot,
    rules: Rules,
    begin_ns: u64,
    /// When `--precision` is looked at next.
    precision_due_ns: u64,
    steals: StealMeter,
    /// When the last phase ended, or the first began.
    segments: Option<Segments>,
    /// What each shard's clock was off by when it was ready, ns.
    clock_errors_ns: Vec<i64>,
    /// Connections that could not be opened before the first phase.
    refused: Failures,
}

/// Control's ends of the channels to one shard.
struct ShardHandle {
    thread: Option<JoinHandle<()>>,
    commands: Sender<Command>,
    recycle: Sender<(Box<Recording>, Calibration)>,
    waker: Option<Waker>,
    live: Arc<Live>,
    has_exited: bool,
}

/// What the shards have said of one phase.
struct PhaseProgress {
    /// Closed loop: the positions that all shards claim from.
    positions: Arc<Positions>,
    /// Open loop with a timer core: what that says of the phase.
    timed: Arc<TimerPhase>,
    /// It has been handed to the shards.
    is_handed_over: bool,
    ended: usize,
    in_flight_at_end: u64,
    survivors_ns: i128,
    issue_end_ns: u64,
    /// When issuing was seen to have ended, ns; 0 while it goes on.
    draining_since_ns: u64,
    /// When control has it end before its time, ns.
    ends_at_ns: Option<u64>,
}

impl Session {
    /// Starts the shards; they open their connections. Calibration goes on meanwhile.
    pub fn start(plan: Arc<Plan>, mut calibrator: Calibrator) -> Result<Session, Error> {
        let shards = plan.cores.len() as u32;
        let (message_sender, messages) = bounded(MESSAGES);
        let provisional = calibrator.provisional();
        let mut handles = Vec::new();
        let lives: Vec<Arc<Live>> = (0..shards).map(|_| Arc::default()).collect();
        let mut timer = Timing::start(&plan, &lives, provisional)?;
        let mut records = Vec::new();
        for index in 0..shards {
            let (command_sender, commands) = bounded(COMMANDS);
            let (recycle, recycled) = bounded(RECORDINGS);
            let live = Arc::clone(&lives[index as usize]);
            let messages = message_sender.clone();
            let is_other = |other: &&Arc<Live>| !Arc::ptr_eq(other, &live);
            let link = Link {
                commands,
                messages,
                recycled,
                live: Arc::clone(&live),
                peers: lives.iter().filter(is_other).cloned().collect(),
                dispatches: timer.as_mut().and_then(|timer| timer.rings.pop_front()),
                records: None,
            };
            let shard_plan = shard_plan(&plan, index, provisional);
            let (sink, source) = record_path_of(&plan, &shard_plan).unzip();
            records.extend(source);
            let thread = shard::spawn(shard_plan, Link { records: sink, ..link })
                .map_err(|error| Error::setup(format!("cannot start a thread: {error}")))?;
            handles.push(ShardHandle {
                thread: Some(thread),
                commands: command_sender,
                recycle,
                waker: None,
                live,
                has_exited: false,
            });
        }
        // Threads inherit niceness, so only now: control never takes a core from a shard.
        affinity::be_nice(CONTROL_NICE);
        let progress = plan.phases.iter().map(|phase| PhaseProgress {
            positions: Arc::new(Positions::new(phase.requests, shards)),
            timed: Arc::default(),
            is_handed_over: false,
            ended: 0,
            in_flight_at_end: 0,
            survivors_ns: 0,
            issue_end_ns: 0,
            draining_since_ns: 0,
            ends_at_ns: None,
        });
        Ok(Session {
            progress: progress.collect(),
            snapshot: empty_snapshot(&plan),
            rules: Rules::new(),
            shards: handles,
            records,
            timer,
            messages,
            calibrator,
            calibrated_ns: 0,
            begin_ns: monotonic_ns(),
            precision_due_ns: 0,
            steals: StealMeter::new(&busy_cores(&plan), monotonic_ns()),
            segments: None,
            clock_errors_ns: Vec::new(),
            refused: Failures::default(),
            plan,
        })
    }

    /// The writer's ends of the paths of records, in the order of the shards; once.
    pub fn take_records(&mut self) -> Vec<RecordSource> {
        std::mem::take(&mut self.records)
    }

    /// Waits until every shard is ready, `is_stopped` or `--run-timeout` says so, or one could not
    /// be set up. True: ready.
    pub fn await_ready(&mut self, mut is_stopped: impl FnMut() -> bool) -> Result<bool, Error> {
        let mut ready = 0;
        while ready < self.shards.len() {
            if is_stopped() {
                return Ok(false);
            }
            let age_ns = monotonic_ns() - self.begin_ns;
            if self.plan.run_timeout_ns > 0 && age_ns >= self.plan.run_timeout_ns {
                let reason = "the run reached its --run-timeout while the connections opened";
                self.interrupted_by(reason);
                return Ok(false);
            }
            match self.messages.recv_timeout(READY_POLL) {
                Ok(Message::Ready(message)) => {
                    self.note_ready(*message);
                    ready += 1;
                }
                Ok(Message::Refused { reason, .. }) => return Err(Error::setup(reason)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::setup("the shards ended before they were ready"));
                }
            }
        }
        // Opened and closed again at once is the endpoint's doing, and counted in the run.
        match self.refused.iter().max_by_key(|(_, tally)| tally.count) {
            Some((kind, tally)) if self.snapshot.connections_open == 0 => {
                Err(self.nothing_opened(kind, tally))
            }
            _ => Ok(true),
        }
    }

    fn note_ready(&mut self, ready: Ready) {
        let shard = &mut self.shards[ready.shard as usize];
        shard.waker = Some(ready.waker);
        self.snapshot.cores[ready.shard as usize] = ready.core;
        self.snapshot.connections_open += ready.connections_open;
        self.refused.add(&ready.failures);
        self.clock_errors_ns.push(ready.clock_error_ns);
        let (least, most) = (self.clock_errors_ns.iter().min(), self.clock_errors_ns.iter().max());
        let skew_ns = least.zip(most).map(|(least, most)| most.abs_diff(*least));
        self.snapshot.clock.skew_ns = skew_ns.filter(|_| self.clock_errors_ns.len() > 1);
        let engine = &mut self.snapshot.engine;
        if engine.name.is_empty() || (engine.reason.is_empty() && !ready.engine.reason.is_empty()) {
            *engine = ready.engine;
        }
    }

    /// Every attempt to connect failed: a set-up error, with what to check.
    fn nothing_opened(&self, kind: FailureKind, tally: &Tally) -> Error {
        let endpoint = self.plan.endpoints.first().map_or("the endpoint", String::as_str);
        let address = &self.plan.table.targets[0].address;
        let said = tally.first_message.as_str();
        Error::setup(format!(
            "cannot connect to {endpoint} at {address}: {said} ({}, {} attempts); check that the \
             server runs and listens there, and what lies between",
            kind.name(),
            tally.count
        ))
    }

    /// Hands the phases to the shards; the first begins at once.
    pub fn begin(&mut self) {
        let calibration = self.calibrator.finish();
        self.calibrated_ns = monotonic_ns();
        self.snapshot.clock.ticks_per_s = calibration.ticks_per_s();
        self.snapshot.state = State::Live;
        self.steals.lap(monotonic_ns());
        self.segments = Segments::read();
        self.hand_over(0, monotonic_ns() + START_DELAY_NS);
        self.wake_all();
    }

    /// Hands a phase over, and those behind it that join it without a gap. A schedule needs an
    /// instant to begin at: if the end of what is before is not known, its phase follows when that
    /// has ended on all shards.
    fn hand_over(&mut self, first: usize, mut start_ns: u64) {
        let plan = Arc::clone(&self.plan);
        for (index, phase) in plan.phases.iter().enumerate().skip(first) {
            self.snapshot.phases[index].start_ns = start_ns;
            self.progress[index].is_handed_over = true;
            if let (Some(timer), Some(schedule)) = (&self.timer, &phase.schedule) {
                let timed = Arc::clone(&self.progress[index].timed);
                timer.phase(index as u32, phase, schedule, start_ns, timed);
            }
            for (shard, handle) in self.shards.iter().enumerate() {
                let shard_phase = self.shard_phase(index, shard, start_ns);
                // The channel has room for every phase and a stop.
                let _ = handle.commands.try_send(Command::Phase(Box::new(shard_phase)));
            }
            start_ns = match (phase.duration_ns, phase.requests, phase.drain_timeout_ns) {
                (Some(length_ns), None, 0) if start_ns > 0 => start_ns + length_ns,
                // A closed loop begins as soon as each shard is through with what was before.
                _ => 0,
            };
            let next = plan.phases.get(index + 1);
            if start_ns == 0 && next.is_some_and(|next| next.schedule.is_some()) {
                return;
            }
        }
    }

    /// One phase, as one shard gets it.
    fn shard_phase(&self, index: usize, shard: usize, start_ns: u64) -> PhasePlan {
        let (phase, progress) = (&self.plan.phases[index], &self.progress[index]);
        let shards = self.shards.len();
        let pattern = match &phase.schedule {
            None => Pattern::ClosedLoop {
                in_flight: share(phase.in_flight, shards, shard),
                positions: Arc::clone(&progress.positions),
            },
            Some(schedule) => Pattern::OpenLoop {
                in_flight: share(phase.in_flight, shards, shard),
                source: match self.timer {
                    Some(_) => Source::Timer(Arc::clone(&progress.timed)),
                    None => {
                        let slice = Schedule::slice(schedule, shard as u32, shards as u32);
                        Source::Own(Box::new(slice))
                    }
                },
                overload: self.plan.overload,
                fit: FitSample::of(phase.expected(), schedule.seed),
            },
        };
        let samples = self.plan.samples(phase.kind);
        let order =
            SampleOrder::new(self.plan.order, samples.end - samples.start, self.plan.order_seed);
        PhasePlan {
            index: index as u32,
            kind: phase.kind,
            pattern,
            order: order.from(samples.start),
            start_ns,
            duration_ns: phase.duration_ns,
            drain_timeout_ns: phase.drain_timeout_ns,
            clock: self.calibrator.current(),
        }
    }

    /// The running phase ends its issuing soon, on all shards at the same instant.
    pub fn end_phase(&mut self, phase: usize) {
        let at_ns = monotonic_ns() + END_DELAY_NS;
        self.progress[phase].ends_at_ns = Some(at_ns);
        if let Some(timer) = &self.timer {
            timer.tell(TimerCommand::EndAt { phase: phase as u32, at_ns });
        }
        self.tell_all(|| Command::EndAt { phase: phase as u32, at_ns });
    }

    /// Takes in what the shards have said, for at most `timeout`, and shows each recording to
    /// `watch`. True: the run is over.
    pub fn poll(&mut self, timeout: Duration, mut watch: impl FnMut(&Recording)) -> bool {
        match self.messages.recv_timeout(timeout) {
            Ok(message) => self.take(message, &mut watch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.interrupted_by("the shards ended early"),
        }
        while let Ok(message) = self.messages.try_recv() {
            self.take(message, &mut watch);
        }
        let now_ns = monotonic_ns();
        if now_ns - self.calibrated_ns >= INTERVAL_NS {
            self.calibrated_ns = now_ns;
            let calibration = self.calibrator.refresh(INTERVAL_NS);
            if let Some(timer) = &self.timer {
                timer.tell(TimerCommand::Clock(calibration));
            }
            self.snapshot.clock.note(&self.calibrator);
        }
        if let Some(reason) = self.rules.broken(&self.plan, &self.snapshot, now_ns - self.begin_ns)
        {
            self.cancel(&reason);
        }
        self.note_precision(now_ns);
        self.note_draining(now_ns);
        self.snapshot.timestamp_ns = now_ns;
        self.is_over()
    }

    /// Ends the measured phase when its percentile is known as well as was asked for; looked at
    /// each second.
    fn note_precision(&mut self, now_ns: u64) {
        let Some(precision) = self.plan.precision else { return };
        let index = self.progress.len() - 1;
        let phase = &mut self.snapshot.phases[index];
        let is_settled = self.progress[index].ends_at_ns.is_some();
        if phase.state != State::Live || is_settled || now_ns < self.precision_due_ns {
            return;
        }
        self.precision_due_ns = now_ns + PRECISION_CHECK_NS;
        let Precision { milli_percent, share } = precision;
        if trust::precision_reached(&phase.batches, milli_percent, share) == Some(true) {
            phase.precise_after_ns = Some(now_ns.saturating_sub(phase.start_ns));
            self.end_phase(index);
        }
    }

    /// Issuing ends by the clock, by the count, or by a stop; the shards tell of it only once they
    /// have drained.
    fn note_draining(&mut self, now_ns: u64) {
        let is_stopped = self.snapshot.state == State::Interrupted;
        let phases = self.snapshot.phases.iter_mut().zip(&self.plan.phases).zip(&mut self.progress);
        for ((phase, plan), progress) in phases {
            let is_due = plan.duration_ns.is_some_and(|ns| now_ns >= phase.start_ns + ns)
                || progress.ends_at_ns.is_some_and(|ns| now_ns >= ns);
            let is_used_up = match &plan.schedule {
                None => progress.positions.is_used_up(),
                Some(_) => progress.issue_end_ns > 0,
            };
            if phase.state == State::Live && (is_due || is_used_up || is_stopped) {
                phase.state = State::Draining;
                progress.draining_since_ns = now_ns;
            }
        }
        if !is_stopped && self.snapshot.phases.last().is_some_and(|p| p.state == State::Draining) {
            self.snapshot.state = State::Draining;
        }
    }

    /// How long a draining phase may go on, ns; `None` if it does not drain.
    pub fn drain_left_ns(&self, phase: usize) -> Option<u64> {
        let since_ns = self.progress[phase].draining_since_ns;
        let end_ns = since_ns.checked_add(self.plan.phases[phase].drain_timeout_ns)?;
        (since_ns > 0).then(|| end_ns.saturating_sub(self.snapshot.timestamp_ns))
    }

    fn is_over(&self) -> bool {
        let shards = self.shards.len();
        let is_stopped = self.snapshot.state == State::Interrupted;
        self.progress.iter().all(|p| p.ended == shards || (is_stopped && !p.is_handed_over))
            || self.shards.iter().any(|shard| shard.has_exited)
    }

    fn take(&mut self, message: Message, watch: &mut impl FnMut(&Recording)) {
        match message {
            Message::Interval { shard, recording } => {
                watch(&recording);
                self.take_recording(shard, recording);
            }
            Message::PhaseEnded {
                phase,
                start_ns,
                issue_end_ns,
                end_ns,
                in_flight_at_end,
                survivors_ns,
                rest,
                ..
            } => {
                let (index, shards) = (phase as usize, self.shards.len());
                if let Some(rest) = rest {
                    self.count_untaken(index, rest, issue_end_ns);
                }
                let progress = &mut self.progress[index];
                progress.ended += 1;
                progress.in_flight_at_end += in_flight_at_end;
                progress.survivors_ns += survivors_ns;
                progress.issue_end_ns = progress.issue_end_ns.max(issue_end_ns);
                let totals = &mut self.snapshot.phases[index];
                if start_ns > 0 && (totals.start_ns == 0 || start_ns < totals.start_ns) {
                    totals.start_ns = start_ns;
                }
                totals.issue_end_ns = totals.issue_end_ns.max(issue_end_ns);
                // A shard without work hears late that the requests are used up: its end says
                // nothing of the load then.
                let length_ns = self.plan.phases[index].duration_ns;
                let is_by_clock = length_ns.is_some_and(|ns| issue_end_ns >= totals.start_ns + ns)
                    || progress.ends_at_ns.is_some_and(|ns| issue_end_ns >= ns);
                if is_by_clock || self.snapshot.state == State::Interrupted {
                    totals.load_end_ns = totals.load_end_ns.max(issue_end_ns);
                }
                totals.end_ns = totals.end_ns.max(end_ns);
                if progress.ended == shards {
                    totals.in_flight_at_end = progress.in_flight_at_end;
                    totals.survivors_ns = Some(progress.survivors_ns);
                    totals.steals = self.steals.lap(monotonic_ns());
                    let segments = Segments::read();
                    totals.segments =
                        segments.zip(self.segments).map(|(now, before)| now.since(before));
                    self.segments = segments;
                    totals.state = match self.snapshot.state {
                        State::Interrupted => State::Interrupted,
                        _ => State::Complete,
                    };
                    self.after_phase(index);
                }
            }
            Message::Exited { shard } => self.shards[shard as usize].has_exited = true,
            Message::Refused { reason, .. } => self.interrupted_by(&reason),
            Message::Ready(_) => {}
        }
    }

    /// A phase has ended on all shards: the next one begins if it has been waiting for that.
    fn after_phase(&mut self, index: usize) {
        if let Some(rest) = self.progress[index].timed.take_rest() {
            self.count_untaken(index, rest, self.progress[index].issue_end_ns);
        }
        let has_next = self.progress.get(index + 1).is_some_and(|next| !next.is_handed_over);
        if has_next && self.snapshot.state != State::Interrupted {
            self.hand_over(index + 1, monotonic_ns() + START_DELAY_NS);
            self.wake_all();
        }
    }

    /// Entries of the schedule that were due and that nobody took.
    fn count_untaken(&mut self, index: usize, rest: Rest, issue_end_ns: u64) {
        let phase = &mut self.snapshot.phases[index];
        let length_ns = issue_end_ns.saturating_sub(phase.start_ns);
        let pending = rest.pending.into_iter();
        let due = pending.chain(*rest.schedule).take_while(|entry| entry.offset_ns < length_ns);
        for entry in due {
            phase.sums.counters.scheduled += 1;
            phase.sums.counters.untaken += 1;
            phase.sums.schedule_hash = phase.sums.schedule_hash.wrapping_add(hash_of(entry));
        }
    }

    fn take_recording(&mut self, shard: u32, mut recording: Box<Recording>) {
        self.rules.watch(&recording);
        let totals = &mut self.snapshot.phases[recording.phase as usize];
        totals.state = totals.state.max(State::Live);
        if totals.start_ns == 0 {
            totals.start_ns = recording.begin_ns;
        }
        totals.add(&recording);
        totals.note_peak(shard as usize, recording.in_flight_max);
        make_way();
        recording.reset();
        make_way();
        // A shard that is gone needs none.
        let recycled = (recording, self.calibrator.current());
        let _ = self.shards[shard as usize].recycle.try_send(recycled);
    }

    /// Stops issuing and drains. `reason`: a fragment for the report.
    pub fn stop(&mut self, reason: &str) {
        self.interrupted_by(reason);
        self.tell_all(|| Command::Stop);
    }

    /// Stops issuing and gives up what is in flight.
    pub fn cancel(&mut self, reason: &str) {
        self.interrupted_by(reason);
        self.tell_all(|| Command::Cancel);
    }

    /// Something unforeseen ends the run: what has come in so far is what there is.
    pub fn interrupted_by(&mut self, reason: &str) {
        self.snapshot.state = State::Interrupted;
        if self.snapshot.interrupted_by.is_empty() {
            self.snapshot.interrupted_by = reason.to_owned();
        }
    }

    fn tell_all(&mut self, command: impl Fn() -> Command) {
        for shard in &self.shards {
            let _ = shard.commands.try_send(command());
        }
        if let (Some(timer), Command::Stop | Command::Cancel) = (&self.timer, command()) {
            timer.tell(TimerCommand::Stop);
        }
        self.wake_all();
    }

    fn wake_all(&self) {
        for waker in self.shards.iter().filter_map(|shard| shard.waker.as_ref()) {
            waker.wake();
        }
    }

    /// What was measured so far.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What was measured so far, counted as one more copy.
    pub fn next_snapshot(&mut self) -> &Snapshot {
        self.snapshot.counter += 1;
        &self.snapshot
    }

    /// Queries in flight now, over all shards.
    pub fn in_flight(&self) -> u64 {
        self.shards.iter().map(|shard| shard.live.in_flight()).sum()
    }

    /// Positions of a phase that have been handed out, or were due.
    pub fn claimed(&self, phase: usize) -> u64 {
        match self.plan.phases[phase].schedule {
            None => self.progress[phase].positions.claimed(),
            Some(_) => self.snapshot.phases[phase].sums.counters.scheduled,
        }
    }

    /// Ends the shards, and says what was measured.
    pub fn finish(mut self) -> Snapshot {
        self.tell_all(|| Command::Exit);
        let deadline_ns = monotonic_ns() + EXIT_NS;
        while self.shards.iter().any(|shard| !shard.has_exited) && monotonic_ns() < deadline_ns {
            match self.messages.recv_timeout(READY_POLL) {
                Ok(message) => self.take(message, &mut |_| {}),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        drop(self.timer.take());
        for shard in &mut self.shards {
            // One that has not exited by now is parked after a panic, or stuck: it ends with us.
            if let Some(thread) = shard.thread.take_if(|_| shard.has_exited) {
                let _ = thread.join();
            }
        }
        self.calibrator.refresh(INTERVAL_NS);
        self.snapshot.clock.note(&self.calibrator);
        if self.snapshot.state != State::Interrupted {
            self.snapshot.state = State::Complete;
        }
        for phase in &mut self.snapshot.phases {
            if phase.state != State::Complete {
                phase.state = State::Interrupted;
            }
        }
        self.snapshot.counter += 1;
        self.snapshot.timestamp_ns = monotonic_ns();
        self.snapshot
    }
}

/// The timer core, if there is one.
struct Timing {
    commands: Sender<TimerCommand>,
    /// The shards' ends of the dispatch rings, until they are taken.
    rings: VecDeque<Consumer<Dispatch>>,
}

impl Timing {
    fn start(
        plan: &Plan,
        lives: &[Arc<Live>],
        clock: Calibration,
    ) -> Result<Option<Timing>, Error> {
        let is_open = plan.phases.iter().any(|phase| phase.schedule.is_some());
        let Timer::Dedicated { core } = plan.timer else { return Ok(None) };
        if !is_open {
            return Ok(None);
        }
        let (sender, commands) = bounded(TIMER_COMMANDS);
        let (rings, consumers) =
            lives.iter().map(|_| RingBuffer::new(DISPATCH_RING_ENTRIES)).unzip();
        timer::spawn(TimerPlan { core, clock, rings, lives: lives.to_vec(), commands })
            .map_err(|error| Error::setup(format!("cannot start a thread: {error}")))?;
        Ok(Some(Timing { commands: sender, rings: consumers }))
    }

    fn phase(
        &self,
        index: u32,
        phase: &Phase,
        schedule: &SchedulePlan,
        start_ns: u64,
        shared: Arc<TimerPhase>,
    ) {
        let stop_ns = phase.duration_ns.map_or(u64::MAX, |ns| start_ns.saturating_add(ns));
        self.tell(TimerCommand::Phase {
            index,
            schedule: Box::new(Schedule::new(schedule)),
            start_ns,
            stop_ns,
            drain_timeout_ns: phase.drain_timeout_ns,
            shared,
        });
    }

    /// It spins, and so hears soon; a timer that is gone needs no word.
    fn tell(&self, command: TimerCommand) {
        let _ = self.commands.try_send(command);
    }
}

fn shard_plan(plan: &Plan, index: u32, clock: Calibration) -> ShardPlan {
    let shards = plan.cores.len();
    let is_open = plan.phases.iter().any(|phase| phase.schedule.is_some());
    let opened = share(plan.connections, shards, index as usize);
    let slots = if is_open { share(plan.max_connections, shards, index as usize) } else { opened };
    let wait = match plan.timer {
        _ if plan.spin => Wait::Spin,
        _ if !is_open => Wait::Sleep,
        Timer::Inline | Timer::Dedicated { .. } => Wait::Spin,
        Timer::Hybrid => Wait::Hybrid,
        Timer::Sleep => Wait::Sleep,
    };
    ShardPlan {
        index,
        core: Some(plan.cores[index as usize]),
        wait,
        engine: plan.engine,
        table: plan.table.clone(),
        slots_per_target: slots,
        connections_per_target: opened.div_ceil(plan.table.targets.len() as u32),
        timeouts: plan.timeouts,
        keepalive: plan.keepalive,
        accept_status: plan.accept_status,
        goals: plan.goals(),
        clock,
        wire_stamps: plan.wire_stamps,
    }
}

/// The path of a shard's records, if any are wanted.
fn record_path_of(plan: &Plan, shard: &ShardPlan) -> Option<(RecordSink, RecordSource)> {
    let wanted = match (plan.records, plan.output_tokenizer.is_some()) {
        (Keep::Nothing, false) => return None,
        (Keep::Nothing, true) => Wanted::Uncounted,
        (Keep::Facts, false) => Wanted::Every,
        (Keep::Facts, true) => Wanted::EveryAndUncounted,
        (Keep::Texts, _) => Wanted::EveryWithTexts,
    };
    let slots = shard.slots_per_target as usize * shard.table.targets.len();
    Some(record_path(wanted, RECORD_RING_ENTRIES, RECORD_TEXTS_LEAST.max(2 * slots)))
}

/// The cores that must not be disturbed: of the shards and of the timer.
fn busy_cores(plan: &Plan) -> Vec<usize> {
    let timer = match plan.timer {
        Timer::Dedicated { core } => Some(core),
        Timer::Inline | Timer::Hybrid | Timer::Sleep => None,
    };
    plan.cores.iter().copied().chain(timer).collect()
}

/// The part of `total` that shard `index` of `shards` gets: equal, the first ones one more.
fn share(total: u32, shards: usize, index: usize) -> u32 {
    let (each, rest) = (total / shards as u32, total as usize % shards);
    each + u32::from(index < rest)
}

fn empty_snapshot(plan: &Plan) -> Snapshot {
    let totals = |phase: &Phase| {
        let mut totals = PhaseTotals::new(&phase.name, phase.kind, 0);
        totals.sums.is_open = phase.schedule.is_some();
        totals
    };
    let phases = plan.phases.iter().map(totals).collect();
    Snapshot {
        counter: 0,
        timestamp_ns: monotonic_ns(),
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
        state: State::Initialize,
        interrupted_by: String::new(),
        engine: EngineReport::default(),
        cores: vec![None; plan.cores.len()],
        clock: ClockFacts { source: clock::source(), ..ClockFacts::default() },
        conditions: Conditions::read(plan.cores[0]),
        connections_open: 0,
        phases,
        secrets: plan.secrets.clone(),
    }
}

/// Messages that may wait for control: three recordings a shard and the ends of phases.
const MESSAGES: usize = 1024;
/// Every phase of a run, a stop, a cancel and an exit fit.
const COMMANDS: usize = 16;
/// Recordings of one shard that are on their way back.
const RECORDINGS: usize = 4;
/// Every phase of a run, a calibration each interval, and a stop.
const TIMER_COMMANDS: usize = 64;
/// Between the word and the end of an issue that control ends: time for every shard to hear of it.
const END_DELAY_NS: u64 = 50_000_000;
const PRECISION_CHECK_NS: u64 = 1_000_000_000;
const READY_POLL: Duration = Duration::from_millis(20);
/// Between the plan and the first instant: time for every shard to hear of it.
const START_DELAY_NS: u64 = 1_000_000;
/// How long shards may take to close their connections.
const EXIT_NS: u64 = 2_000_000_000;
const CONTROL_NICE: i32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_and_add_up() {
        for (total, shards) in [(64, 1), (64, 3), (5, 5), (7, 2), (100, 16)] {
            let shares: Vec<u32> = (0..shards).map(|index| share(total, shards, index)).collect();
            assert_eq!(shares.iter().sum::<u32>(), total);
            let (least, most) = (shares.iter().min(), shares.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{shares:?}");
        }
    }
}
