//! How queries begin: claimed or due, bound to a connection or put into the backlog, stamped and
//! sent.

use std::collections::VecDeque;

use super::{Active, Issuing, Shard};
use crate::connection::State;
use crate::http1::ResponseParser;
use crate::limits::{BACKLOG_LIMIT, FIT_SAMPLES_LIMIT, OPEN_LOOP_SENDS_PER_ENTER};
use crate::phase::{FitSample, Overload};
use crate::query::{PoolWait, Query};
use crate::recorder::{Instant, Recording};
use crate::schedule::hash_of;

/// Due queries that wait for a connection, by target, first come first served.
pub(super) struct Backlog {
    queues: Box<[VecDeque<Query>]>,
    len: usize,
}

impl Backlog {
    pub(super) fn new(targets: u32) -> Backlog {
        Backlog { queues: (0..targets).map(|_| VecDeque::new()).collect(), len: 0 }
    }

    /// Makes room for all that may wait; before the first instant, as it allocates.
    pub(super) fn reserve(&mut self) {
        for queue in &mut self.queues {
            queue.reserve_exact(BACKLOG_LIMIT.saturating_sub(queue.len()));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn has(&self, target: u32) -> bool {
        !self.queues[target as usize].is_empty()
    }

    fn is_full(&self) -> bool {
        self.len >= BACKLOG_LIMIT
    }

    fn push(&mut self, target: u32, query: Query) {
        self.queues[target as usize].push_back(query);
        self.len += 1;
    }

    pub(super) fn pop(&mut self, target: u32) -> Option<Query> {
        let query = self.queues[target as usize].pop_front()?;
        self.len -= 1;
        Some(query)
    }

    /// Of the targets that something can be done for, the one whose first query is the oldest.
    fn oldest(&self, has_room: impl Fn(u32) -> bool) -> Option<u32> {
        let fronts = (0u32..).zip(&self.queues).filter_map(|(target, queue)| {
            let front = queue.front().filter(|_| has_room(target))?;
            Some((front.position, target))
        });
        fronts.min().map(|(_, target)| target)
    }

    /// Takes everything.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Query> {
        self.len = 0;
        self.queues.iter_mut().flat_map(|queue| queue.drain(..))
    }
}

impl Shard {
    /// Begins what can begin now.
    pub(super) fn pump(&mut self) {
        self.start_handshakes();
        let Some(active) = &self.active else { return };
        match active.issuing {
            Issuing::Closed { .. } => self.claim(),
            Issuing::Open { .. } if !active.is_past_drain(self.now_ns) => self.pump_open_loop(),
            Issuing::Open { .. } => {}
        }
    }

    /// First those that wait, then what is due.
    pub(super) fn pump_open_loop(&mut self) {
        self.serve_backlog();
        self.take_due();
    }

    /// Closed loop: issues queries while the phase goes on, credits are left, and the next one's
    /// target has a free slot.
    fn claim(&mut self) {
        loop {
            let Some(active) = &mut self.active else { return };
            let Issuing::Closed { in_flight, .. } = active.issuing else { return };
            let has_credit = self.in_flight < u64::from(in_flight);
            if !has_credit || !active.is_issuing() || self.now_ns >= active.stop_ns {
                return;
            }
            let Some(position) = active.peek_position() else { return };
            let request = active.plan.order.sample(position);
            let target = self.plan.table.requests[request as usize].target;
            if !self.pool.has_free(target) {
                return;
            }
            active.take_position();
            let query = Query {
                position,
                scheduled_ns: 0,
                dispatched_ns: self.now_ns,
                phase: active.plan.index,
                request,
                wait: PoolWait::None,
            };
            active.area.change(1, self.now_ns);
            self.issue(target, query);
        }
    }

    /// Open loop: takes from the schedule what is due, each with a stamp of its own, and gives it a
    /// connection, a place in the backlog, or, with `--overload drop`, up. Not more a turn than its
    /// events can wait for, however often it is called.
    fn take_due(&mut self) {
        while self.due_left > 0 {
            let now_ns = self.reactor.now_ns();
            let Some(active) = &mut self.active else { return };
            let limit_ns = active.take_limit_ns();
            let Issuing::Open { in_flight, arrivals, overload, fit, is_held_back, held_until_ns } =
                &mut active.issuing
            else {
                return;
            };
            let Some(arrival) = arrivals.peek(&mut self.ring) else { return };
            let scheduled_ns = active.plan.start_ns.saturating_add(arrival.offset_ns);
            if scheduled_ns > now_ns || scheduled_ns >= limit_ns {
                return;
            }
            let request = active.plan.order.sample(arrival.position);
            let target = self.plan.table.requests[request as usize].target;
            let must_wait = self.backlog.has(target)
                || !self.pool.has_free(target)
                || self.in_flight >= u64::from(*in_flight);
            let overload = *overload;
            if must_wait && self.backlog.is_full() && overload == Overload::Queue {
                *is_held_back = true;
                return;
            }
            arrivals.take(&mut self.ring);
            self.due_left -= 1;
            self.has_begun = true;
            self.now_ns = self.now_ns.max(now_ns);
            let counters = &mut self.recording.counters;
            counters.scheduled += 1;
            self.recording.schedule_hash =
                self.recording.schedule_hash.wrapping_add(hash_of(arrival));
            if std::mem::take(is_held_back) {
                *held_until_ns = now_ns;
            }
            // Nobody knows when it would have been taken: the backlog was full, not the loop late.
            let was_held_back = scheduled_ns <= *held_until_ns;
            let dispatched_ns = if was_held_back { scheduled_ns } else { now_ns };
            if was_held_back {
                counters.held_back += 1;
            } else {
                self.recording.lateness.record(now_ns - scheduled_ns);
            }
            if fit.has(arrival.position) {
                keep(&mut self.recording.fit_dispatched, arrival.position, now_ns);
            }
            let phase = active.plan.index;
            let position = arrival.position;
            let wait = PoolWait::None;
            let mut query = Query { position, scheduled_ns, dispatched_ns, phase, request, wait };
            if must_wait && overload == Overload::Drop {
                self.recording.counters.dropped += 1;
                continue;
            }
            active.area.change(1, dispatched_ns);
            if must_wait || was_held_back {
                let is_elsewhere = self.link.peers.iter().any(|peer| peer.free() > 0);
                query.wait = if is_elsewhere { PoolWait::OtherShardFree } else { PoolWait::Full };
            }
            if must_wait {
                self.backlog.push(target, query);
            } else {
                self.issue(target, query);
            }
        }
    }

    /// Gives free connections to those that wait longest.
    fn serve_backlog(&mut self) {
        let limit = match self.active.as_ref().map(|active| &active.issuing) {
            Some(Issuing::Open { in_flight, .. }) => u64::from(*in_flight),
            _ => return,
        };
        while self.backlog.len() > 0 && self.in_flight < limit {
            let oldest = self.backlog.oldest(|target| self.pool.has_free(target));
            let Some(target) = oldest else { return };
            let Some(query) = self.backlog.pop(target) else { return };
            self.issue(target, query);
        }
    }

    /// Binds a query to a connection, or to the attempt to open one. The caller has seen a free
    /// slot.
    fn issue(&mut self, target: u32, mut query: Query) {
        self.count_issued();
        self.recording.in_flight_max = self.recording.in_flight_max.max(self.in_flight);
        if let Some(slot) = self.pool.take_idle(target) {
            // One that had to wait has been waiting until now.
            let ready_ns = match query.wait {
                PoolWait::None => query.dispatched_ns,
                _ => self.reactor.now_ns(),
            };
            self.connections[slot as usize].bind(query);
            self.begin_exchange(slot, ready_ns);
        } else {
            let slot = self.pool.take_closed(target).expect("the caller has seen a free slot");
            if query.wait == PoolWait::None {
                query.wait = PoolWait::NewConnection;
            }
            self.connections[slot as usize].bind(query);
            self.open(slot);
            self.start_handshakes();
        }
    }

    pub(super) fn count_issued(&mut self) {
        if let Some(active) = &mut self.active {
            active.in_flight += 1;
        }
        self.in_flight += 1;
        self.recording.counters.issued += 1;
    }

    /// Queues the request of the slot's query, which has had its connection since `ready_ns`; the
    /// stamp comes with the kernel call that carries it, and so does the record of its wait: until
    /// then the connection may turn out to be a stale one.
    pub(super) fn begin_exchange(&mut self, slot: u32, ready_ns: u64) {
        self.make_room();
        let connection = &mut self.connections[slot as usize];
        let query = connection.query.as_ref().expect("the caller has bound one");
        let request = &self.plan.table.requests[query.request as usize];
        connection.state = State::Busy;
        connection.begun_in = self.turns;
        connection.parser = ResponseParser::new(request.is_head);
        connection.first_byte_ns = 0;
        connection.over_ns = 0;
        connection.refused_body = None;
        if let Some(answer) = self.answers.get_mut(slot as usize) {
            answer.begin(request.is_stream);
        }
        connection.send_errno = 0;
        if connection.sent_ns == 0 {
            connection.ready_ns = ready_ns;
        }
        let (generation, range) = (connection.generation, request.range.clone());
        let sent_bytes = range.len() as u64;
        match (&mut connection.tls, &self.wire) {
            (None, None) => self.reactor.send(slot, generation, range),
            (None, Some(wire)) => {
                let is_sampled = wire.has(query, connection.is_retry);
                self.reactor.send_stamped(slot, generation, range, is_sampled);
            }
            (Some(session), _) => {
                let plaintext = &self.plan.table.arena[range];
                if !session.write(plaintext, self.reactor.outbox(slot)) {
                    return self.retry(slot);
                }
                self.reactor.send_outbox(slot, generation);
            }
        }
        self.recording.counters.bytes_sent += sent_bytes;
        self.has_begun = true;
        self.unsent.push(slot);
        if self.unsent.len() >= self.sends_per_flush() {
            self.send_now();
        }
    }

    /// Sends that share a stamp: few where the instant matters.
    fn sends_per_flush(&self) -> usize {
        let limit = self.reactor.sends_per_flush();
        match self.active.as_ref().map(|active| &active.issuing) {
            Some(Issuing::Open { .. }) => limit.min(OPEN_LOOP_SENDS_PER_ENTER),
            _ => limit,
        }
    }

    /// Where the next entries might not fit the submission queue, what is queued goes now, stamped:
    /// the queue would submit by itself what has no stamp yet.
    pub(super) fn make_room(&mut self) {
        if self.reactor.is_nearly_full() {
            self.send_now();
        }
    }

    pub(super) fn send_now(&mut self) {
        self.stamp_sends();
        self.reactor.flush();
    }

    /// Stamps the queued sends, right before the kernel call that carries them. Returns the time.
    pub(super) fn stamp_sends(&mut self) -> u64 {
        let now_ns = self.reactor.now_ns();
        let fit = self.active.as_ref().and_then(Active::fit);
        for index in 0..self.unsent.len() {
            let slot = self.unsent[index];
            let connection = &mut self.connections[slot as usize];
            // A slot may have been closed since.
            if connection.state != State::Busy {
                continue;
            }
            // A resend keeps the stamp of the first send, and so the deadlines that count from it.
            if connection.sent_ns == 0 {
                connection.sent_ns = now_ns;
                if let Some(query) = &connection.query
                    && query.phase == self.recording.phase
                {
                    record_send(&mut self.recording, query, connection.ready_ns, now_ns);
                    if fit.is_some_and(|fit| fit.has(query.position)) {
                        keep(&mut self.recording.fit_sent, query.position, now_ns);
                    }
                }
            }
            self.set_exchange_deadline(slot, now_ns);
        }
        self.unsent.clear();
        now_ns
    }
}

/// Enters the first send of a query, and, in open loop, how long it has waited for the connection
/// that it had at `ready_ns`, and why.
fn record_send(recording: &mut Recording, query: &Query, ready_ns: u64, now_ns: u64) {
    if recording.first_sent_ns == 0 {
        recording.first_sent_ns = now_ns;
    }
    if query.scheduled_ns == 0 {
        return;
    }
    let waited_ns = ready_ns.saturating_sub(query.dispatched_ns);
    recording.pool_wait.record(waited_ns);
    let counters = &mut recording.counters;
    let (count, sum_ns) = match query.wait {
        PoolWait::None => return,
        PoolWait::NewConnection => {
            (&mut counters.waits_new_connection, &mut counters.waits_new_connection_ns)
        }
        PoolWait::Full => (&mut counters.waits_full, &mut counters.waits_full_ns),
        PoolWait::OtherShardFree => {
            (&mut counters.waits_other_shard_free, &mut counters.waits_other_shard_free_ns)
        }
    };
    *count += 1;
    *sum_ns += waited_ns;
}

/// Keeps an instant for the arrival fit, while there is room.
fn keep(instants: &mut Vec<Instant>, position: u64, at_ns: u64) {
    if instants.len() < FIT_SAMPLES_LIMIT {
        instants.push(Instant { position, at_ns });
    }
}

impl Active {
    fn fit(&self) -> Option<FitSample> {
        match &self.issuing {
            Issuing::Open { fit, .. } => Some(*fit),
            Issuing::Closed { .. } => None,
        }
    }
}
