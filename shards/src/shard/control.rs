//! Phases and intervals of a shard: what control sees of it.

use crossbeam_channel::TryRecvError;

use super::arrivals::{Arrivals, Ring};
use super::{Active, Area, Issuing, NO_PHASE, Shard};
use crate::connection::State;
use crate::limits::INTERVAL_NS;
use crate::phase::{Command, Message, Pattern, PhasePlan, Ready, Wait};
use crate::query::Query;
use crate::recorder::Recording;
use crate::schedule::hash_of;

impl Active {
    /// One that has yet to begin. Everything that it needs is allocated here.
    fn new(plan: Box<PhasePlan>) -> Active {
        let issuing = match plan.pattern.clone() {
            Pattern::ClosedLoop { in_flight, positions } => {
                Issuing::Closed { in_flight, positions, claimed: 0..0 }
            }
            Pattern::OpenLoop { in_flight, source, overload, fit } => {
                debug_assert!(plan.start_ns > 0, "a schedule begins at an instant");
                let arrivals = Arrivals::new(source, plan.index);
                let (is_held_back, held_until_ns) = (false, 0);
                Issuing::Open { in_flight, arrivals, overload, fit, is_held_back, held_until_ns }
            }
        };
        let (start_ns, stop_ns, issue_end_ns) = (0, u64::MAX, 0);
        let (in_flight, area) = (0, Area::default());
        Active { plan, start_ns, stop_ns, issue_end_ns, issuing, in_flight, area }
    }

    /// A shard that is late starts at once, and ends when the plan says.
    fn begin(&mut self, now_ns: u64) {
        let plan = &self.plan;
        self.start_ns = now_ns.max(plan.start_ns);
        let planned_ns = if plan.start_ns == 0 { self.start_ns } else { plan.start_ns };
        let length_ns = plan.duration_ns.unwrap_or(u64::MAX);
        self.stop_ns = planned_ns.saturating_add(length_ns);
    }

    /// Issuing goes on.
    pub(super) fn is_issuing(&self) -> bool {
        self.issue_end_ns == 0
    }

    /// What is due at or after it is not part of the phase.
    pub(super) fn take_limit_ns(&self) -> u64 {
        // A shard that is very late begins after the planned end.
        if self.is_issuing() { self.stop_ns } else { self.issue_end_ns.min(self.stop_ns) }
    }

    fn end_issuing(&mut self, now_ns: u64) {
        self.issue_end_ns = now_ns.min(self.stop_ns).max(self.start_ns).max(1);
    }

    /// The next instant at which something changes without an event.
    pub(super) fn next_change_ns(&mut self, ring: &mut Ring) -> u64 {
        match self.is_issuing() {
            // The last position has just gone, here or on another shard: the drain begins now.
            true if self.ends_with_its_list(ring) => 0,
            true => self.stop_ns,
            false => self.drain_deadline_ns(),
        }
    }

    /// The time to drain is over: nothing begins any more.
    pub(super) fn is_past_drain(&self, now_ns: u64) -> bool {
        !self.is_issuing() && now_ns >= self.drain_deadline_ns()
    }

    /// Nothing of it is on its way from the timer core, which would find no phase to be counted in.
    fn has_all_come(&self) -> bool {
        match &self.issuing {
            Issuing::Open { arrivals, .. } => arrivals.has_all_come(),
            Issuing::Closed { .. } => true,
        }
    }

    fn drain_deadline_ns(&self) -> u64 {
        self.issue_end_ns.saturating_add(self.plan.drain_timeout_ns)
    }

    /// No position is left to issue, and no clock says when the issuing ends.
    fn ends_with_its_list(&mut self, ring: &mut Ring) -> bool {
        match &mut self.issuing {
            Issuing::Closed { positions, claimed, .. } => {
                claimed.is_empty() && positions.is_used_up()
            }
            // With a duration the phase is that long, whenever its last query is due, unless a
            // count has ended the list before.
            Issuing::Open { arrivals, .. } => match self.plan.duration_ns {
                None => arrivals.is_used_up(ring),
                Some(_) => arrivals.has_reached_count(ring),
            },
        }
    }

    /// After the end of issuing: something that was due before it has not been taken.
    fn has_due_left(&mut self, ring: &mut Ring) -> bool {
        let (start_ns, end_ns) = (self.plan.start_ns, self.take_limit_ns());
        let Issuing::Open { arrivals, .. } = &mut self.issuing else { return false };
        match arrivals.peek(ring) {
            Some(next) => start_ns.saturating_add(next.offset_ns) < end_ns,
            None => !arrivals.is_used_up(ring),
        }
    }

    /// The next position, without taking it. Claims more when there is none, so only ask with a
    /// credit in hand.
    pub(super) fn peek_position(&mut self) -> Option<u64> {
        let Issuing::Closed { in_flight, positions, claimed } = &mut self.issuing else {
            return None;
        };
        if claimed.is_empty() {
            *claimed = positions.claim(u64::from(*in_flight));
        }
        (!claimed.is_empty()).then_some(claimed.start)
    }

    /// Takes the position that was shown.
    pub(super) fn take_position(&mut self) {
        if let Issuing::Closed { claimed, .. } = &mut self.issuing {
            claimed.start += 1;
        }
    }
}

impl Shard {
    pub(super) fn take_commands(&mut self) {
        if !std::mem::take(&mut self.has_commands) && self.is_ready {
            return;
        }
        loop {
            match self.link.commands.try_recv() {
                Ok(Command::Phase(plan)) => self.prepare(plan),
                Ok(Command::EndAt { phase, at_ns }) => {
                    self.told_end = Some((phase, at_ns));
                    self.obey_end();
                }
                Ok(Command::Stop) => self.stop(),
                Ok(Command::Cancel) => {
                    self.stop();
                    self.cancel_all();
                }
                Ok(Command::Exit) | Err(TryRecvError::Disconnected) => {
                    self.is_exiting = true;
                    return;
                }
                Err(TryRecvError::Empty) => return,
            }
        }
    }

    /// The phase that control has given an end, if it runs, ends then. One that has yet to begin
    /// here, as an earlier one drains, is told when it does.
    fn obey_end(&mut self) {
        if let (Some(active), Some((phase, at_ns))) = (&mut self.active, self.told_end)
            && active.plan.index == phase
        {
            active.stop_ns = active.stop_ns.min(at_ns);
        }
    }

    /// Queues a phase. What it needs is allocated here, before its first instant.
    pub(super) fn prepare(&mut self, plan: Box<PhasePlan>) {
        if let Pattern::OpenLoop { .. } = plan.pattern {
            self.backlog.reserve();
            self.recording.reserve_fit();
            self.spares.iter_mut().for_each(|spare| spare.reserve_fit());
        }
        self.queued_phases.push_back(Active::new(plan));
    }

    /// Ends issuing; phases that have not begun never will, and control hears so. A warm-up that
    /// was to go over into the next phase undrained is drained as that would have been: nothing
    /// follows it now.
    fn stop(&mut self) {
        let drain_ns = self.queued_phases.iter().map(|next| next.plan.drain_timeout_ns).max();
        if let Some(active) = &mut self.active
            && active.is_issuing()
        {
            active.end_issuing(self.now_ns);
            let drain_timeout_ns = &mut active.plan.drain_timeout_ns;
            *drain_timeout_ns = (*drain_timeout_ns).max(drain_ns.unwrap_or(0));
        }
        while let Some(Active { plan, .. }) = self.queued_phases.pop_front() {
            self.tell(Message::PhaseEnded {
                shard: self.plan.index,
                phase: plan.index,
                start_ns: 0,
                issue_end_ns: 0,
                end_ns: self.now_ns,
                in_flight_at_end: 0,
                survivors_ns: 0,
                rest: None,
            });
        }
    }

    /// Begins and ends phases as the clock and the queries in flight have it.
    pub(super) fn advance(&mut self) {
        self.report_ready();
        loop {
            let Some(active) = &mut self.active else {
                if !self.is_ready
                    || self
                        .queued_phases
                        .front()
                        .is_none_or(|next| next.plan.start_ns > self.now_ns)
                {
                    return;
                }
                self.begin_phase();
                continue;
            };
            let is_at_end =
                active.ends_with_its_list(&mut self.ring) || self.now_ns >= active.stop_ns;
            if active.is_issuing() && is_at_end {
                active.end_issuing(self.now_ns);
                self.take_last();
                continue;
            }
            let is_drained = active.in_flight == 0
                && self.backlog.len() == 0
                && !active.is_issuing()
                && !active.has_due_left(&mut self.ring);
            let is_past_drain = active.is_past_drain(self.now_ns) && active.has_all_come();
            if !is_drained && !is_past_drain {
                return;
            }
            self.end_phase();
        }
    }

    /// What came due just before the end of issuing goes yet, late as it is: a phase without a
    /// drain ends right here.
    fn take_last(&mut self) {
        self.pump_open_loop();
        if !self.unsent.is_empty() {
            self.send_now();
        }
    }

    fn begin_phase(&mut self) {
        let mut active = self.queued_phases.pop_front().expect("the caller has looked");
        self.reactor.set_clock(active.plan.clock);
        active.begin(self.now_ns);
        // Handshakes since the last phase belong to this one; nothing else has been recorded
        // meanwhile.
        self.recording.phase = active.plan.index;
        self.recording.begin_ns = active.start_ns;
        self.recording.failures.reset();
        self.recording.counters.failed = 0;
        self.idle_ns = 0;
        self.cpu_last = self.cpu.read();
        self.reactor_counters = self.reactor.counters();
        self.active = Some(active);
        self.obey_end();
    }

    fn end_phase(&mut self) {
        let end_ns = self.now_ns;
        let backlog_ns = self.give_up_the_rest(end_ns);
        let of_phase = self.recording.phase;
        let waiting_ns = |query: &Query| i128::from(end_ns) - i128::from(query.dispatched_ns);
        let carried = self.connections.iter().filter_map(|connection| connection.query.as_ref());
        let in_flight_ns: i128 =
            carried.filter(|query| query.phase == of_phase).map(waiting_ns).sum();
        self.hand_over(NO_PHASE);
        let active = self.active.take().expect("the caller has looked");
        let length_ns = active.take_limit_ns().saturating_sub(active.plan.start_ns);
        self.tell(Message::PhaseEnded {
            shard: self.plan.index,
            phase: active.plan.index,
            start_ns: active.start_ns,
            issue_end_ns: active.issue_end_ns,
            end_ns,
            in_flight_at_end: active.in_flight,
            survivors_ns: backlog_ns + in_flight_ns,
            rest: match active.issuing {
                Issuing::Open { arrivals, .. } => arrivals.into_rest(length_ns),
                Issuing::Closed { .. } => None,
            },
        });
    }

    /// Counts what is due and has not begun as untaken: entries drawn ahead, then the backlog.
    /// Returns the time that the latter has waited, ns.
    fn give_up_the_rest(&mut self, end_ns: u64) -> i128 {
        let Some(active) = &mut self.active else { return 0 };
        let limit_ns = active.take_limit_ns();
        let start_ns = active.plan.start_ns;
        let counters = &mut self.recording.counters;
        if let Issuing::Open { arrivals, .. } = &mut active.issuing {
            while let Some(arrival) = arrivals.peek_drawn(&mut self.ring)
                && start_ns.saturating_add(arrival.offset_ns) < limit_ns
            {
                arrivals.take(&mut self.ring);
                counters.scheduled += 1;
                counters.untaken += 1;
                self.recording.schedule_hash =
                    self.recording.schedule_hash.wrapping_add(hash_of(arrival));
            }
        }
        counters.untaken += self.backlog.len() as u64;
        self.backlog.drain().map(|query| i128::from(end_ns) - i128::from(query.dispatched_ns)).sum()
    }

    fn report_ready(&mut self) {
        if self.is_ready || self.handshakes > 0 || !self.connect_queue.is_empty() {
            return;
        }
        self.is_ready = true;
        self.has_commands = true;
        self.tell(Message::Ready(Box::new(Ready {
            shard: self.plan.index,
            core: self.plan.core,
            engine: self.reactor.report().clone(),
            connections_open: self.pool.idle_count() as u32,
            failures: self.recording.failures.clone(),
            clock_error_ns: self.reactor.clock_error_ns(),
            waker: self.reactor.waker(),
        })));
    }

    pub(super) fn interval_end_ns(&self) -> u64 {
        self.recording.begin_ns + INTERVAL_NS
    }

    /// Hands the recording to control when its interval is over and a spare one is there. If
    /// control is late the interval grows; nothing is lost.
    pub(super) fn hand_over_interval(&mut self) {
        if self.now_ns < self.interval_end_ns() || self.active.is_none() {
            return;
        }
        while let Ok((recording, calibration)) = self.link.recycled.try_recv() {
            self.reactor.set_clock(calibration);
            self.spares.push_back(recording);
        }
        // The last spare is for the end of the phase.
        if self.spares.len() > 1 {
            self.hand_over(self.recording.phase);
        }
    }

    fn hand_over(&mut self, next_phase: u32) {
        if let Ok((recording, calibration)) = self.link.recycled.try_recv() {
            self.reactor.set_clock(calibration);
            self.spares.push_back(recording);
        }
        // Never seen without one: three circulate, and control holds a recording for microseconds.
        let mut next = self.spares.pop_front().unwrap_or_default();
        next.begin(next_phase, self.now_ns);
        let mut recording = std::mem::replace(&mut self.recording, next);
        self.close_recording(&mut recording);
        self.tell(Message::Interval { shard: self.plan.index, recording });
    }

    fn close_recording(&mut self, recording: &mut Recording) {
        recording.end_ns = self.now_ns;
        recording.backlog = self.backlog.len() as u64;
        recording.margin_ns = self.margin.longest_ns();
        if let Some(active) = &mut self.active {
            recording.in_flight = active.in_flight;
            recording.area_ns = active.area.take(self.now_ns);
        }
        let cpu_use = self.cpu.read();
        let used = cpu_use.since(&self.cpu_last);
        self.cpu_last = cpu_use;
        let wall_ns = recording.end_ns.saturating_sub(recording.begin_ns);
        recording.busy_ns = match self.plan.wait {
            Wait::Spin => wall_ns.saturating_sub(self.idle_ns),
            // What it spun in vain is not work.
            Wait::Sleep | Wait::Hybrid => used.busy_ns().saturating_sub(self.idle_ns).min(wall_ns),
        };
        self.idle_ns = 0;
        let (now, last) = (self.reactor.counters(), self.reactor_counters);
        self.reactor_counters = now;
        let counters = &mut recording.counters;
        counters.enters = now.enters - last.enters;
        counters.receives = now.receives - last.receives;
        counters.receive_buffer_waits = now.receive_buffer_waits - last.receive_buffer_waits;
        counters.completion_overflows = now.completion_overflows - last.completion_overflows;
        counters.wire_stamps_mismatched = now.wire_stamps_mismatched - last.wire_stamps_mismatched;
        counters.involuntary_switches = used.involuntary_switches;
        counters.major_faults = used.major_faults;
        counters.run_delay_ns = used.run_delay_ns;
    }

    /// Gives up everything in flight; what waits in the backlog has not begun, and never will.
    fn cancel_all(&mut self) {
        if let Some(active) = &mut self.active {
            active.plan.drain_timeout_ns = 0;
        }
        for slot in 0..self.connections.len() as u32 {
            let connection = &mut self.connections[slot as usize];
            let Some(query) = connection.query.take() else { continue };
            let now_ns = self.now_ns;
            self.settle(&query, now_ns, |recording| recording.counters.cancelled += 1);
            match self.connections[slot as usize].state {
                State::Busy | State::Connecting | State::Securing => self.close(slot),
                // Stays queued for its handshake, without a query.
                _ => {}
            }
        }
    }

    /// Control gone is the end of the shard, not an error of it.
    fn tell(&mut self, message: Message) {
        if self.link.messages.send(message).is_err() {
            self.is_exiting = true;
        }
    }
}
