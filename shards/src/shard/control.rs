//! Phases and intervals of a shard: what control sees of it.

use crossbeam_channel::TryRecvError;

use super::{Active, NO_PHASE, Shard};
use crate::connection::State;
use crate::limits::INTERVAL_NS;
use crate::phase::{Command, Message, Pattern, PhasePlan, Ready};
use crate::recorder::Recording;

impl Active {
    fn new(plan: Box<PhasePlan>, now_ns: u64) -> Active {
        // A shard that is late starts at once, and ends when the plan says.
        let start_ns = now_ns.max(plan.start_ns);
        let planned_ns = if plan.start_ns == 0 { start_ns } else { plan.start_ns };
        let stop_ns = plan.duration_ns.map_or(u64::MAX, |length| planned_ns.saturating_add(length));
        Active { plan, start_ns, stop_ns, issue_end_ns: 0, claimed: 0..0, in_flight: 0 }
    }

    /// Issuing goes on.
    pub(super) fn is_issuing(&self) -> bool {
        self.issue_end_ns == 0
    }

    /// The next instant at which something changes without an event.
    pub(super) fn next_change_ns(&self) -> u64 {
        match self.is_issuing() {
            // The last position has just gone, here or on another shard: the drain begins now.
            true if self.is_used_up() => 0,
            true => self.stop_ns,
            false => self.drain_deadline_ns(),
        }
    }

    fn drain_deadline_ns(&self) -> u64 {
        self.issue_end_ns.saturating_add(self.plan.drain_timeout_ns)
    }

    /// No position is left to issue.
    fn is_used_up(&self) -> bool {
        let Pattern::ClosedLoop { positions, .. } = &self.plan.pattern;
        self.claimed.is_empty() && positions.is_used_up()
    }

    /// The next position, without taking it. Claims more when there is none, so only ask with a
    /// credit in hand.
    pub(super) fn peek(&mut self) -> Option<u64> {
        if self.claimed.is_empty() {
            let Pattern::ClosedLoop { in_flight, positions } = &self.plan.pattern;
            self.claimed = positions.claim(u64::from(*in_flight));
        }
        (!self.claimed.is_empty()).then_some(self.claimed.start)
    }
}

impl Shard {
    pub(super) fn take_commands(&mut self) {
        if !std::mem::take(&mut self.has_commands) && self.is_ready {
            return;
        }
        loop {
            match self.link.commands.try_recv() {
                Ok(Command::Phase(plan)) => self.queued_phases.push_back(plan),
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

    /// Ends issuing; phases that have not begun never will, and control hears so. A warm-up that
    /// was to go over into the next phase undrained is drained as that would have been: nothing
    /// follows it now.
    fn stop(&mut self) {
        let drain_ns = self.queued_phases.iter().map(|plan| plan.drain_timeout_ns).max();
        if let Some(active) = &mut self.active
            && active.is_issuing()
        {
            active.issue_end_ns = self.now_ns.max(1);
            let drain_timeout_ns = &mut active.plan.drain_timeout_ns;
            *drain_timeout_ns = (*drain_timeout_ns).max(drain_ns.unwrap_or(0));
        }
        while let Some(plan) = self.queued_phases.pop_front() {
            self.tell(Message::PhaseEnded {
                shard: self.plan.index,
                phase: plan.index,
                start_ns: 0,
                issue_end_ns: 0,
                end_ns: self.now_ns,
                in_flight_at_end: 0,
            });
        }
    }

    /// Begins and ends phases as the clock and the queries in flight have it.
    pub(super) fn advance(&mut self) {
        self.report_ready();
        loop {
            let Some(active) = &mut self.active else {
                if !self.is_ready
                    || self.queued_phases.front().is_none_or(|plan| plan.start_ns > self.now_ns)
                {
                    return;
                }
                self.begin_phase();
                continue;
            };
            if active.is_issuing() && (active.is_used_up() || self.now_ns >= active.stop_ns) {
                active.issue_end_ns = self.now_ns.min(active.stop_ns).max(active.start_ns);
            }
            let is_over = !active.is_issuing()
                && (active.in_flight == 0 || self.now_ns >= active.drain_deadline_ns());
            if !is_over {
                return;
            }
            self.end_phase();
        }
    }

    fn begin_phase(&mut self) {
        let plan = self.queued_phases.pop_front().expect("the caller has looked");
        self.reactor.set_clock(plan.clock);
        let active = Active::new(plan, self.now_ns);
        // Handshakes since the last phase belong to this one; nothing else has been recorded
        // meanwhile.
        self.recording.phase = active.plan.index;
        self.recording.begin_ns = active.start_ns;
        self.recording.failures.reset();
        self.recording.counters.failed = 0;
        self.idle_ns = 0;
        self.cpu_ns = self.cpu.busy_ns();
        self.reactor_counters = self.reactor.counters();
        self.active = Some(active);
    }

    fn end_phase(&mut self) {
        let active = self.active.take().expect("the caller has looked");
        let end_ns = self.now_ns;
        self.hand_over(NO_PHASE);
        self.tell(Message::PhaseEnded {
            shard: self.plan.index,
            phase: active.plan.index,
            start_ns: active.start_ns,
            issue_end_ns: active.issue_end_ns,
            end_ns,
            in_flight_at_end: active.in_flight,
        });
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
        next.reset(next_phase, self.now_ns);
        let mut recording = std::mem::replace(&mut self.recording, next);
        self.close_recording(&mut recording);
        self.tell(Message::Interval { shard: self.plan.index, recording });
    }

    fn close_recording(&mut self, recording: &mut Recording) {
        recording.end_ns = self.now_ns;
        recording.in_flight = self.active.as_ref().map_or(0, |active| active.in_flight);
        let cpu_ns = self.cpu.busy_ns();
        let wall_ns = recording.end_ns.saturating_sub(recording.begin_ns);
        recording.busy_ns = if self.plan.spin {
            wall_ns.saturating_sub(self.idle_ns)
        } else {
            cpu_ns.saturating_sub(self.cpu_ns).min(wall_ns)
        };
        self.cpu_ns = cpu_ns;
        self.idle_ns = 0;
        let (now, last) = (self.reactor.counters(), self.reactor_counters);
        self.reactor_counters = now;
        let counters = &mut recording.counters;
        counters.enters = now.enters - last.enters;
        counters.receives = now.receives - last.receives;
        counters.receive_buffer_waits = now.receive_buffer_waits - last.receive_buffer_waits;
        counters.completion_overflows = now.completion_overflows - last.completion_overflows;
    }

    fn cancel_all(&mut self) {
        for slot in 0..self.connections.len() as u32 {
            let connection = &mut self.connections[slot as usize];
            let Some(query) = connection.query.take() else { continue };
            self.settle(&query, |recording| recording.counters.cancelled += 1);
            match self.connections[slot as usize].state {
                State::Busy | State::Connecting => self.close(slot),
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
