//! Connections of a shard that speak TLS: their handshakes, and what comes decrypted.
//!
//! A handshake belongs to opening the connection: it counts among those that run at once, falls
//! under `--connect-timeout`, and a query that needs it waits for its connection meanwhile. What a
//! record carries goes the way of cleartext ([`Reading`]), with the stamp of the receive that made
//! the record whole.

use super::Shard;
use super::exchange::{Ending, Fed, Reading};
use crate::connection::{Connection, State};
use crate::failure::{FailureKind, Message};
use crate::reactor::Event;
use crate::sys::errno_text;
use crate::tls::{Refusal, Session};

impl Shard {
    /// The connection of TCP stands since `stamp_ns`: the client speaks first.
    pub(super) fn begin_handshake(&mut self, slot: u32, stamp_ns: u64) {
        let connection = &mut self.connections[slot as usize];
        connection.state = State::Securing;
        connection.tls_begin_ns = stamp_ns;
        let target = self.tls[connection.target as usize].as_ref().expect("the caller has looked");
        match Session::begin(target, self.reactor.outbox(slot)) {
            Ok(session) => {
                connection.tls = Some(Box::new(session));
                self.send_outbox(slot);
            }
            Err(refusal) => self.handshake_failed(slot, &refusal),
        }
    }

    /// Bytes for a connection with TLS have come.
    pub(super) fn decrypt(&mut self, event: &Event) {
        let slot = event.slot;
        let connection = &mut self.connections[slot as usize];
        let mut session = connection.tls.take().expect("the caller has looked");
        session.take_in(self.reactor.bytes(event));
        self.reactor.recycle(event);
        let is_awaited = connection.state == State::Busy && !connection.was_bound_stale(self.turns);
        let mut reading = Reading {
            connection,
            answer: self.answers.get_mut(slot as usize),
            counters: &mut self.recording.counters,
            accept_status: self.plan.accept_status,
            stamp_ns: event.stamp_ns,
        };
        let mut fed = Fed::More;
        let mut is_unasked = false;
        let outcome = session.read(self.reactor.outbox(slot), |plaintext| match fed {
            Fed::More if is_awaited => fed = reading.take(plaintext),
            Fed::Complete { .. } => fed = Fed::Complete { is_clean: false },
            Fed::More => is_unasked = true,
            Fed::Malformed(..) | Fed::Broken => {}
        });
        let (is_ready, is_closed) = (session.is_ready(), session.is_closed());
        let connection = &mut self.connections[slot as usize];
        connection.tls = Some(session);
        let state = connection.state;
        let broken = match outcome {
            Err(refusal) => Some(refusal),
            Ok(()) if is_unasked => Some(Refusal::unasked()),
            Ok(()) => None,
        };
        if state == State::Securing && broken.is_none() && is_ready && !is_closed {
            return self.secured(slot);
        }
        self.send_outbox(slot);
        match state {
            State::Securing => match broken {
                Some(refusal) => self.handshake_failed(slot, &refusal),
                None if is_closed => self.handshake_failed(slot, &Refusal::closed()),
                None => {}
            },
            // Tickets and new keys may come at any time; all else ends an idle connection.
            State::Idle if broken.is_some() || is_closed => self.idle_ended(slot, broken),
            State::Busy if !is_awaited && (broken.is_some() || is_closed) => self.retry(slot),
            State::Busy => self.exchanged(slot, fed, broken, is_closed, event.stamp_ns),
            _ => {}
        }
    }

    /// What follows from the bytes of a receive while a response was awaited.
    fn exchanged(
        &mut self,
        slot: u32,
        fed: Fed,
        broken: Option<Refusal>,
        is_closed: bool,
        stamp_ns: u64,
    ) {
        let connection = &self.connections[slot as usize];
        match (fed, broken) {
            // The answer was over: what breaks behind it is no part of it.
            (Fed::More, Some(_)) if connection.over_ns > 0 => {
                self.complete(slot, stamp_ns, Ending::Unclean);
            }
            (Fed::More, Some(refusal)) => {
                self.send_now();
                self.fail(slot, refusal.kind, || Message::new(&refusal.text));
            }
            (Fed::More, None) if is_closed => self.stream_ended(slot, 0, stamp_ns),
            (Fed::Complete { is_clean }, broken) => {
                let keeps_alive = connection.parser.head().is_some_and(|head| head.keep_alive);
                if is_closed && keeps_alive && self.plan.keepalive {
                    self.count_closed_by_endpoint(connection.exchanges + 1);
                }
                let is_clean = is_clean && broken.is_none() && !is_closed;
                let ending = if is_clean { Ending::Clean } else { Ending::Unclean };
                self.complete(slot, stamp_ns, ending);
            }
            (fed, _) => self.fed(slot, fed, stamp_ns),
        }
    }

    /// The handshake is over: the connection can carry requests.
    fn secured(&mut self, slot: u32) {
        let ready_ns = self.reactor.now_ns();
        let connection = &self.connections[slot as usize];
        let is_resumed = connection.tls.as_ref().is_some_and(|session| session.is_resumed());
        let took_ns = ready_ns.saturating_sub(connection.tls_begin_ns);
        self.recording.tls.record(took_ns);
        self.recording.counters.tls_handshakes += 1;
        self.recording.counters.tls_resumed += u64::from(is_resumed);
        self.ready(slot, ready_ns);
        // The last message of the handshake, unless it went with the request that waited for it.
        self.send_outbox(slot);
    }

    /// The stream ended in the handshake (`errno` 0) or broke.
    pub(super) fn handshake_ended(&mut self, slot: u32, errno: i32) {
        let mut refusal = Refusal::closed();
        if errno != 0 {
            refusal.text = format!("{} in the TLS handshake", errno_text(errno));
        }
        self.handshake_failed(slot, &refusal);
    }

    pub(super) fn handshake_timed_out(&mut self, slot: u32) {
        let text = "no end of the TLS handshake within --connect-timeout".into();
        self.handshake_failed(slot, &Refusal { kind: FailureKind::ConnectTimeout, text });
    }

    /// As an attempt to connect that failed.
    fn handshake_failed(&mut self, slot: u32, refusal: &Refusal) {
        // The alert that says why, if there is one, before the socket goes.
        self.send_now();
        self.handshakes -= 1;
        self.back_off(slot);
        self.attempt_failed(slot, refusal.kind, || Message::new(&refusal.text));
    }

    /// An idle connection ended, as it may. With an error before the first phase it is told, as one
    /// that could not be opened is: TLS 1.3 ends so when a client certificate is missing.
    fn idle_ended(&mut self, slot: u32, broken: Option<Refusal>) {
        if let Some(refusal) = broken
            && !self.is_ready
        {
            self.recording.failures.count(refusal.kind, || Message::new(&refusal.text));
        }
        let Connection { target, exchanges, .. } = self.connections[slot as usize];
        self.count_closed_by_endpoint(exchanges);
        self.pool.remove_idle(target, slot);
        self.close(slot);
    }

    /// Queues what TLS has to say on its own account.
    fn send_outbox(&mut self, slot: u32) {
        if !self.reactor.outbox(slot).is_empty() {
            self.make_room();
            let generation = self.connections[slot as usize].generation;
            self.reactor.send_outbox(slot, generation);
        }
    }
}
