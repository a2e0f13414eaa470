//! The epoll back end: the same turns and events with readiness calls, for hosts and containers
//! without io_uring.
//!
//! Level-triggered, as edge-triggered costs the same; receives go on until a short one; what a send
//! could not hand over waits for writability. Each receive is stamped right after its call.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::socket::{self, Destination};
use super::wake::Waker;
use super::wire::{self, Wire};
use super::{errno_text, last_errno};
use crate::clock::Clock;
use crate::event::{EngineReport, Event, EventKind, ReactorCounters};
use crate::limits::{
    BUFFER_BYTES, BUFFER_COUNT, EVENTS_PER_TURN, OUTBOX_BYTES_KEPT, SEND_PIECE_BYTES,
};
use crate::token::{Operation, Token};

/// One shard's epoll instance, its sockets and its buffers.
pub struct Epoll {
    epoll: OwnedFd,
    ready: Box<[libc::epoll_event; READY_PER_TURN]>,
    arena: Arc<[u8]>,
    destinations: Vec<Destination>,
    sockets: Box<[Socket]>,
    outboxes: Box<[Outbox]>,
    /// Kernel stamps, if they are on.
    wire: Option<Wire>,
    /// Those of receives by buffer, CLOCK_REALTIME ns; empty while stamps are off.
    received_wire_ns: Box<[Option<u64>]>,
    listeners: Vec<OwnedFd>,
    /// Listeners that found no free descriptor; they accept again when one is closed.
    starved: Vec<Token>,
    waker: Waker,
    clock: Clock,
    events: Vec<Event>,
    buffers: Box<[u8]>,
    free_buffers: Vec<u16>,
    /// Slots with bytes to send, since the last flush.
    queued: Vec<u32>,
    /// Events that belong to no readiness: connects that ended at once.
    early: VecDeque<Event>,
    has_pwait2: bool,
    counters: ReactorCounters,
    report: EngineReport,
}

#[derive(Clone, Copy)]
struct Socket {
    /// -1 while closed.
    fd: RawFd,
    generation: u32,
    /// Bytes of the arena that have not been handed to the kernel.
    rest: (usize, usize),
    is_connecting: bool,
    /// Writability is being waited for.
    wants_write: bool,
    /// The peer has said its last: nothing more to be read.
    has_ended: bool,
}

/// Bytes of a slot that are in no arena.
#[derive(Clone, Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// How many of them have been handed to the kernel.
    sent: usize,
}

impl Outbox {
    /// Forgets the bytes. A large one gives its memory back.
    fn empty(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(OUTBOX_BYTES_KEPT);
        self.sent = 0;
    }
}

const CLOSED: Socket = Socket {
    fd: -1,
    generation: 0,
    rest: (0, 0),
    is_connecting: false,
    wants_write: false,
    has_ended: false,
};

impl Epoll {
    /// `reason`: why it is not io_uring, for the report; empty when asked for. `Err`: cause.
    pub(crate) fn new(
        slots: u32,
        arena: Arc<[u8]>,
        destinations: Vec<Destination>,
        clock: Clock,
        reason: String,
        wire_stamps: bool,
    ) -> Result<Epoll, String> {
        // SAFETY: plain system call; the result is checked before use.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(format!("epoll_create1 refused: {}", errno_text(last_errno())));
        }
        // SAFETY: `fd` was just created and nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let waker = Waker::new()
            .map_err(|errno| format!("cannot create an eventfd: {}", errno_text(errno)))?;
        let this = Epoll {
            epoll,
            ready: Box::new([libc::epoll_event { events: 0, u64: 0 }; READY_PER_TURN]),
            arena,
            destinations,
            sockets: vec![CLOSED; slots as usize].into_boxed_slice(),
            outboxes: vec![Outbox::default(); slots as usize].into_boxed_slice(),
            wire: wire_stamps.then(|| Wire::new(slots)),
            received_wire_ns: match wire_stamps {
                true => Box::new([None; BUFFER_COUNT as usize]),
                false => Box::default(),
            },
            listeners: Vec::new(),
            starved: Vec::new(),
            waker,
            clock,
            events: Vec::with_capacity(EVENTS_PER_TURN),
            buffers: vec![0; usize::from(BUFFER_COUNT) * BUFFER_BYTES].into_boxed_slice(),
            free_buffers: (0..BUFFER_COUNT).rev().collect(),
            queued: Vec::with_capacity(slots as usize),
            early: VecDeque::with_capacity(slots as usize),
            has_pwait2: true,
            counters: ReactorCounters::default(),
            report: EngineReport { name: "epoll", features: vec!["level-triggered"], reason },
        };
        let token = Token { operation: Operation::Wake, generation: 0, slot: 0 };
        this.control(libc::EPOLL_CTL_ADD, this.waker.fd(), libc::EPOLLIN, token)
            .map_err(|errno| format!("epoll_ctl refused: {}", errno_text(errno)))?;
        super::affinity::tighten_timer_slack();
        Ok(this)
    }

    pub(crate) fn report(&self) -> &EngineReport {
        &self.report
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn clock_error_ns(&self) -> i64 {
        self.clock.error_ns()
    }

    pub(crate) fn counters(&self) -> ReactorCounters {
        let wire_stamps_mismatched = self.wire.as_ref().map_or(0, Wire::mismatched);
        ReactorCounters { wire_stamps_mismatched, ..self.counters }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        let start = usize::from(id) * BUFFER_BYTES;
        &self.buffers[start..start + len]
    }

    /// The kernel's stamp of the last byte of a receive, CLOCK_REALTIME ns.
    pub(crate) fn received_wire_ns(&self, id: u16) -> Option<u64> {
        self.received_wire_ns.get(usize::from(id)).copied().flatten()
    }

    /// The kernel's stamp of the last byte of a sampled request, CLOCK_REALTIME ns.
    pub(crate) fn take_sent_wire_ns(&mut self, slot: u32) -> Option<u64> {
        self.wire.as_mut()?.take_sent_ns(slot, self.sockets[slot as usize].fd)
    }

    /// With stamps on, the next send of the slot has so many bytes; `is_sampled`: and a stamp.
    pub(crate) fn begin_stamped(&mut self, slot: u32, bytes: usize, is_sampled: bool) {
        if let Some(wire) = &mut self.wire {
            wire.begin(slot, bytes, is_sampled);
        }
    }

    pub(crate) fn recycle(&mut self, id: u16) {
        self.free_buffers.push(id);
    }

    /// Adding may fail for want of memory or watches; the others do not.
    fn control(
        &self,
        operation: libc::c_int,
        fd: RawFd,
        events: libc::c_int,
        token: Token,
    ) -> Result<(), i32> {
        let mut event = libc::epoll_event { events: events as u32, u64: token.encode() };
        // SAFETY: `event` is valid for the duration of the call.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    fn watch(&self, operation: libc::c_int, slot: u32, events: libc::c_int) -> Result<(), i32> {
        let Socket { fd, generation, .. } = self.sockets[slot as usize];
        let token = Token { operation: Operation::Receive, generation, slot };
        self.control(operation, fd, events, token)
    }

    /// What an established connection waits for.
    fn watch_traffic(&mut self, slot: u32) {
        let Socket { wants_write, has_ended, .. } = self.sockets[slot as usize];
        let input = if has_ended { 0 } else { libc::EPOLLIN };
        let output = if wants_write { libc::EPOLLOUT } else { 0 };
        self.watch(libc::EPOLL_CTL_MOD, slot, input | output).expect(MODIFIES);
    }

    /// Opens a socket in `slot` and starts its connect. `Err`: errno.
    pub(crate) fn connect(&mut self, slot: u32, generation: u32, target: u32) -> Result<(), i32> {
        let destination = &self.destinations[target as usize];
        let fd = destination.socket()?;
        let is_connected = socket::connect(fd.as_raw_fd(), destination.address())?;
        self.occupy(slot, generation, fd, !is_connected);
        if is_connected {
            self.enable_stamps(slot);
        }
        let interest = if is_connected { libc::EPOLLIN } else { libc::EPOLLOUT };
        self.watch(libc::EPOLL_CTL_ADD, slot, interest)?;
        if is_connected {
            let stamp_ns = self.clock.now_ns();
            self.early.push_back(Event {
                kind: EventKind::Connected,
                slot,
                generation,
                result: 0,
                buffer: None,
                stamp_ns,
            });
        }
        Ok(())
    }

    /// Takes an accepted socket into `slot` and starts to receive from it.
    pub(crate) fn adopt(&mut self, slot: u32, generation: u32, fd: RawFd) {
        self.occupy(slot, generation, socket::adopt_accepted(fd), false);
        if self.watch(libc::EPOLL_CTL_ADD, slot, libc::EPOLLIN).is_err() {
            self.early.push_back(Event {
                kind: EventKind::Received,
                slot,
                generation,
                result: -libc::ENOMEM,
                buffer: None,
                stamp_ns: self.clock.now_ns(),
            });
        }
    }

    fn enable_stamps(&mut self, slot: u32) {
        if let Some(wire) = &mut self.wire {
            wire.enable(slot, self.sockets[slot as usize].fd);
        }
    }

    fn occupy(&mut self, slot: u32, generation: u32, fd: OwnedFd, is_connecting: bool) {
        let socket = &mut self.sockets[slot as usize];
        assert!(socket.fd < 0, "slot {slot} is occupied");
        *socket = Socket { fd: fd.into_raw_fd(), generation, is_connecting, ..CLOSED };
    }

    /// Accepts from `listener` until the end.
    pub(crate) fn listen(&mut self, listener: OwnedFd) {
        let token = Token {
            operation: Operation::Accept,
            generation: 0,
            slot: listener.as_raw_fd() as u32,
        };
        self.control(libc::EPOLL_CTL_ADD, listener.as_raw_fd(), libc::EPOLLIN, token)
            .expect("a fresh instance has room for its listener");
        self.listeners.push(listener);
    }

    /// Queues the bytes `range` of the arena.
    pub(crate) fn send(&mut self, slot: u32, generation: u32, range: Range<usize>) {
        let socket = &mut self.sockets[slot as usize];
        debug_assert_eq!(socket.generation, generation, "a send names the live connection");
        debug_assert!(socket.rest.0 == socket.rest.1, "one request at a time");
        socket.rest = (range.start, range.end);
        self.queued.push(slot);
    }

    /// Where bytes that are in no arena are appended.
    pub(crate) fn outbox(&mut self, slot: u32) -> &mut Vec<u8> {
        &mut self.outboxes[slot as usize].bytes
    }

    /// Queues what the outbox has.
    pub(crate) fn send_outbox(&mut self, slot: u32, generation: u32) {
        let socket = &self.sockets[slot as usize];
        debug_assert_eq!(socket.generation, generation, "a send names the live connection");
        // While writability is being waited for, what comes first goes first.
        if !socket.wants_write {
            self.queued.push(slot);
        }
    }

    /// Whether a part of the last request has yet to be handed to the kernel.
    pub(crate) fn is_sending(&self, slot: u32) -> bool {
        let (begin, end) = self.sockets[slot as usize].rest;
        begin < end || !self.outboxes[slot as usize].bytes.is_empty()
    }

    /// Closes the socket; events of it that are still in the array are stale by their generation.
    pub(crate) fn close(&mut self, slot: u32) {
        let socket = &mut self.sockets[slot as usize];
        let fd = std::mem::replace(&mut socket.fd, -1);
        socket.rest = (0, 0);
        self.outboxes[slot as usize].empty();
        if fd >= 0 {
            // SAFETY: the slot owned `fd` and has just forgotten it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            while let Some(token) = self.starved.pop() {
                let listener = token.slot as RawFd;
                self.control(libc::EPOLL_CTL_MOD, listener, libc::EPOLLIN, token).expect(MODIFIES);
            }
        }
    }

    /// Hands what is queued to the kernel.
    pub(crate) fn flush(&mut self) {
        let mut queued = std::mem::take(&mut self.queued);
        for slot in queued.drain(..) {
            self.write(slot);
        }
        self.queued = queued;
    }

    /// Hands over at most one piece of what is left.
    fn write(&mut self, slot: u32) {
        let Socket { fd, generation, rest: (begin, end), wants_write, .. } =
            self.sockets[slot as usize];
        let outbox = &self.outboxes[slot as usize];
        let is_own = begin == end;
        if fd < 0 || (is_own && outbox.bytes.is_empty()) {
            return;
        }
        self.counters.enters += 1;
        let piece_end = end.min(begin + SEND_PIECE_BYTES);
        let sent = match &mut self.wire {
            _ if is_own => socket::send(fd, &outbox.bytes[outbox.sent..]),
            Some(wire) if piece_end == end && wire.is_awaited(slot) => {
                wire.send(slot, fd, &self.arena[begin..piece_end])
            }
            _ => socket::send(fd, &self.arena[begin..piece_end]),
        };
        let sent = match sent {
            Ok(sent) => sent,
            Err(libc::EAGAIN | libc::EINTR) => 0,
            Err(errno) => {
                self.sockets[slot as usize].rest = (0, 0);
                self.outboxes[slot as usize].empty();
                let stamp_ns = self.clock.now_ns();
                self.early.push_back(Event {
                    kind: EventKind::SendFailed,
                    slot,
                    generation,
                    result: -errno,
                    buffer: None,
                    stamp_ns,
                });
                return;
            }
        };
        let outbox = &mut self.outboxes[slot as usize];
        let socket = &mut self.sockets[slot as usize];
        if is_own {
            outbox.sent += sent;
            if outbox.sent == outbox.bytes.len() {
                outbox.empty();
            }
        } else {
            socket.rest.0 += sent;
        }
        let wants = socket.rest.0 < socket.rest.1 || !outbox.bytes.is_empty();
        socket.wants_write = wants;
        if wants != wants_write {
            self.watch_traffic(slot);
        }
    }

    /// One turn: send what is queued, wait until an event or `until_ns` (0: do not wait), receive.
    /// Returns the time.
    pub(crate) fn turn(&mut self, until_ns: u64) -> u64 {
        self.events.clear();
        self.flush();
        let stamp_ns = self.clock.now_ns();
        // Late events carry the generation of their time; a slot reused since then does not get
        // them.
        while let Some(event) = self.early.pop_front() {
            if self.is_live(event.slot, event.generation) {
                self.events.push(event);
            }
            if self.events.len() == EVENTS_PER_TURN / 2 {
                break;
            }
        }
        let until_ns = if self.events.is_empty() { until_ns } else { 0 };
        let count = self.wait(until_ns.saturating_sub(stamp_ns));
        for index in 0..count {
            let libc::epoll_event { events, u64: user_data } = self.ready[index];
            let token = Token::decode(user_data).expect("every entry carries a token");
            self.take(events as libc::c_int, token);
        }
        self.clock.now_ns()
    }

    fn is_live(&self, slot: u32, generation: u32) -> bool {
        let socket = &self.sockets[slot as usize];
        socket.fd >= 0 && socket.generation == generation
    }

    fn wait(&mut self, timeout_ns: u64) -> usize {
        self.counters.enters += 1;
        let (epoll, ready) = (self.epoll.as_raw_fd(), self.ready.as_mut_ptr());
        let capacity = READY_PER_TURN as libc::c_int;
        if self.has_pwait2 {
            let timeout = libc::timespec {
                tv_sec: (timeout_ns / 1_000_000_000).min(MAX_WAIT_S) as libc::time_t,
                tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
            };
            let no_mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: `ready` is writable for `capacity` events, `timeout` is valid, no signal mask
            // is passed.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    epoll,
                    ready,
                    capacity,
                    &raw const timeout,
                    no_mask,
                    SIGSET_BYTES,
                )
            };
            if count >= 0 {
                return count as usize;
            }
            if last_errno() == libc::EINTR {
                return 0;
            }
            // ENOSYS before Linux 5.11; EPERM under a seccomp profile that is older than the call.
            self.has_pwait2 = false;
        }
        let timeout_ms = timeout_ns.div_ceil(1_000_000).min(MAX_WAIT_S * 1000) as libc::c_int;
        // SAFETY: `ready` is writable for `capacity` events.
        let count = unsafe { libc::epoll_wait(epoll, ready, capacity, timeout_ms) };
        usize::try_from(count).unwrap_or(0)
    }

    fn take(&mut self, ready: libc::c_int, token: Token) {
        match token.operation {
            Operation::Wake => {
                self.waker.clear();
                self.emit(EventKind::Woken, token, 0, None);
            }
            Operation::Accept => self.accept(token),
            _ if !self.is_live(token.slot, token.generation) => {}
            _ if self.sockets[token.slot as usize].is_connecting => {
                let socket = &mut self.sockets[token.slot as usize];
                socket.is_connecting = false;
                let errno = socket::pending_error(socket.fd);
                if errno == 0 {
                    self.enable_stamps(token.slot);
                    self.watch(libc::EPOLL_CTL_MOD, token.slot, libc::EPOLLIN).expect(MODIFIES);
                }
                self.emit(EventKind::Connected, token, -errno, None);
            }
            _ => {
                let mut input = ready & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR);
                if input & libc::EPOLLERR != 0 && self.drain_stamps(token.slot) {
                    // The stamp of a send, and no error. If there is one too, it stays ready.
                    input &= !libc::EPOLLERR;
                }
                if input != 0 {
                    self.receive(token);
                }
                if ready & libc::EPOLLOUT != 0 {
                    self.write(token.slot);
                }
            }
        }
    }

    /// A stamp that nobody takes would keep the socket ready for ever.
    fn drain_stamps(&mut self, slot: u32) -> bool {
        let fd = self.sockets[slot as usize].fd;
        self.wire.as_mut().is_some_and(|wire| wire.drain(slot, fd))
    }

    fn accept(&mut self, token: Token) {
        while self.events.len() < EVENTS_PER_TURN {
            match socket::accept(token.slot as RawFd) {
                Ok(fd) => self.emit(EventKind::Accepted, token, fd.into_raw_fd(), None),
                Err(libc::EAGAIN | libc::EINTR) => return,
                Err(errno) => {
                    if matches!(errno, libc::EMFILE | libc::ENFILE) {
                        // Readable for ever: looked at again when a descriptor is closed.
                        let listener = token.slot as RawFd;
                        self.control(libc::EPOLL_CTL_MOD, listener, 0, token).expect(MODIFIES);
                        self.starved.push(token);
                    }
                    return self.emit(EventKind::Accepted, token, -errno, None);
                }
            }
        }
    }

    /// Receives until a short one. What finds no buffer or no room stays in the socket for the next
    /// turn.
    fn receive(&mut self, token: Token) {
        let fd = self.sockets[token.slot as usize].fd;
        loop {
            if self.events.len() >= EVENTS_PER_TURN {
                return;
            }
            let Some(id) = self.free_buffers.pop() else {
                self.counters.receive_buffer_waits += 1;
                return;
            };
            self.counters.enters += 1;
            let start = usize::from(id) * BUFFER_BYTES;
            let buffer = &mut self.buffers[start..start + BUFFER_BYTES];
            let received = match self.received_wire_ns.get_mut(usize::from(id)) {
                None => socket::receive(fd, buffer),
                Some(wire_ns) => wire::receive(fd, buffer).map(|(len, at_ns)| {
                    *wire_ns = at_ns;
                    len
                }),
            };
            match received {
                Ok(len) if len > 0 => {
                    self.counters.receives += 1;
                    self.emit(EventKind::Received, token, len as i32, Some(id));
                    if len < BUFFER_BYTES {
                        return;
                    }
                }
                end => {
                    self.free_buffers.push(id);
                    match end {
                        Err(libc::EAGAIN | libc::EINTR) => {}
                        Err(errno) => self.emit(EventKind::Received, token, -errno, None),
                        Ok(_) => {
                            // The end stays readable for ever: told once.
                            self.sockets[token.slot as usize].has_ended = true;
                            self.watch_traffic(token.slot);
                            self.emit(EventKind::Received, token, 0, None);
                        }
                    }
                    return;
                }
            }
        }
    }

    fn emit(&mut self, kind: EventKind, token: Token, result: i32, buffer: Option<u16>) {
        let Token { slot, generation, .. } = token;
        let stamp_ns = self.clock.now_ns();
        self.events.push(Event { kind, slot, generation, result, buffer, stamp_ns });
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        self.starved.clear();
        for slot in 0..self.sockets.len() as u32 {
            self.close(slot);
        }
    }
}

const MODIFIES: &str = "what is watched can be modified";
const READY_PER_TURN: usize = 128;
const SIGSET_BYTES: usize = 8;
const MAX_WAIT_S: u64 = 3600;

const _: () = assert!(READY_PER_TURN <= EVENTS_PER_TURN / 2);
