//! The io_uring back end: one enter a turn, multishot receives into one small buffer ring, sends
//! without success completion, and the order of cancel and close. Why each: `docs/DESIGN.md`.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::types::{CancelBuilder, Fd, RecvMsgOut, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue};

use super::buffers::BufferRing;
use super::ladder::{build, cannot};
use super::socket::{self, Destination};
use super::wake::Waker;
use super::wire::{self, Wire};
use crate::clock::Clock;
use crate::event::{EngineReport, Event, EventKind, ReactorCounters};
use crate::limits::{
    BUFFER_BYTES, BUFFER_COUNT, BUFFER_COUNT_GROWN, ENOBUFS_SHARE_LIMIT, EVENTS_PER_TURN,
    OUTBOX_BYTES_KEPT, SEND_PIECE_BYTES,
};
use crate::token::{Operation, Token};

/// One shard's uring, its sockets and its buffers.
pub struct Uring {
    // Fields are dropped in this order: the three halves borrow from `_ring`, so it must stay
    // behind them.
    submitter: Submitter<'static>,
    sq: SubmissionQueue<'static>,
    cq: CompletionQueue<'static>,
    _ring: RingOwner,
    /// The first group, and a larger one once the first has proved too small.
    groups: Vec<BufferRing>,
    /// The bytes that sends name; kept alive as long as the kernel may read them.
    arena: Arc<[u8]>,
    destinations: Vec<Destination>,
    sockets: Box<[Socket]>,
    outboxes: Box<[Outbox]>,
    /// Bytes that were in flight when their slot was closed, with its generation then: freed when
    /// their completion has come.
    orphans: Vec<(u32, u32, Vec<u8>)>,
    /// When the armed alarm rings, ns; `u64::MAX`: none is armed.
    alarm_ns: u64,
    /// What it was armed with: the kernel reads it when it is submitted.
    alarm: Box<Timespec>,
    /// Kernel stamps, if they are on: receives then bring control messages.
    wire: Option<Wire>,
    /// Where the payload begins in a receive buffer: 0 without stamps.
    payload_offset: usize,
    waker: Waker,
    clock: Clock,
    events: Vec<Event>,
    /// Receives to arm again before the next enter: after the buffers have been published, not
    /// earlier.
    rearm: VecDeque<(u32, u32)>,
    /// Operations that will post one more terminal completion: receives, connects, accepts. Nothing
    /// of ours may be freed before it is 0.
    armed: u64,
    listeners: Vec<OwnedFd>,
    /// Listeners that found no free descriptor; they accept again when one is closed.
    starved: Vec<RawFd>,
    has_taskrun_flag: bool,
    was_overflowed: bool,
    /// Rises each time when everything that was submitted has been reaped as far as it was
    /// complete: a send of an earlier epoch has either been taken whole or is known to go on.
    epoch: u64,
    is_grown: bool,
    counters: ReactorCounters,
    report: EngineReport,
}

/// Frees the leaked uring that the halves borrow from.
struct RingOwner(NonNull<IoUring>);

impl Drop for RingOwner {
    fn drop(&mut self) {
        // SAFETY: it came from Box::leak and is freed once; the halves that borrow from it are
        // declared before it in `Uring`, and so are gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Bytes of a slot that are in no arena. What is in flight belongs to the kernel: it is neither
/// appended to nor moved until its completion has come.
#[derive(Clone, Default)]
struct Outbox {
    waiting: Vec<u8>,
    in_flight: Vec<u8>,
}

/// One connection slot, below the seam.
#[derive(Clone, Copy)]
struct Socket {
    /// -1 while closed.
    fd: RawFd,
    generation: u32,
    /// While sending: what is left behind the piece in flight. Else the last request, whole.
    rest: (usize, usize),
    /// A piece with a success completion is in flight.
    is_sending: bool,
    /// Bytes of that piece.
    piece: usize,
    /// The epoch in which the last request was queued.
    sent_in: u64,
}

impl Uring {
    /// Builds the uring on the calling thread, which must be the one that uses it. `Err`: why not,
    /// with the fix.
    pub(crate) fn new(
        slots: u32,
        arena: Arc<[u8]>,
        destinations: Vec<Destination>,
        clock: Clock,
        wire_stamps: bool,
    ) -> Result<Uring, String> {
        let waker = Waker::new().map_err(|errno| cannot("create an eventfd", errno))?;
        let (ring, rung) = build()?;
        // From here to the whole `Uring` nothing may return early: the halves must go before the
        // ring does, and only the order of the fields sees to that.
        let ring = NonNull::from(Box::leak(Box::new(ring)));
        // SAFETY: just leaked, so valid for 'static; freed only by `RingOwner`, after the halves
        // are gone.
        let borrowed: &'static mut IoUring = unsafe { &mut *ring.as_ptr() };
        let (mut submitter, sq, cq) = borrowed.split();
        let mut features: Vec<&'static str> = rung.features.to_vec();
        // The index is kept in this Submitter object, so it must be the one that is used from now
        // on.
        if submitter.register_ring_fd().is_ok() {
            features.push("ring-fd");
        }
        features.push(if wire_stamps { "multishot-recvmsg" } else { "multishot-recv" });
        features.push("buf-ring");
        let closed =
            Socket { fd: -1, generation: 0, rest: (0, 0), is_sending: false, piece: 0, sent_in: 0 };
        let mut uring = Uring {
            submitter,
            sq,
            cq,
            _ring: RingOwner(ring),
            groups: Vec::with_capacity(2),
            arena,
            destinations,
            sockets: vec![closed; slots as usize].into_boxed_slice(),
            outboxes: vec![Outbox::default(); slots as usize].into_boxed_slice(),
            orphans: Vec::new(),
            alarm_ns: u64::MAX,
            alarm: Box::default(),
            wire: wire_stamps.then(|| Wire::new(slots)),
            payload_offset: if wire_stamps { wire::RECEIVED_HEADER_BYTES } else { 0 },
            waker,
            clock,
            events: Vec::with_capacity(EVENTS_PER_TURN),
            rearm: VecDeque::with_capacity(slots as usize + 1),
            armed: 0,
            listeners: Vec::new(),
            starved: Vec::new(),
            has_taskrun_flag: rung.has_taskrun_flag,
            was_overflowed: false,
            epoch: 1,
            is_grown: false,
            counters: ReactorCounters::default(),
            report: EngineReport { name: "io_uring", features, reason: String::new() },
        };
        uring.add_group(BUFFER_COUNT, 0)?;
        uring.check_multishot()?;
        uring.arm_waker();
        Ok(uring)
    }

    fn add_group(&mut self, count: u16, first_id: u16) -> Result<(), String> {
        let mut group = BufferRing::new(count, BUFFER_BYTES, first_id)
            .map_err(|errno| cannot("map receive buffers", errno))?;
        let id = self.groups.len() as u16;
        // SAFETY: the ring's memory is page-aligned, large enough for `count` entries, and lives in
        // `self.groups` until the uring is gone (`Drop`).
        let registered = unsafe {
            self.submitter.register_buf_ring_with_flags(group.address(), group.count(), id, 0)
        };
        registered.map_err(|error| {
            cannot("register receive buffers (Linux 5.19)", error.raw_os_error().unwrap_or(0))
        })?;
        group.put_all();
        self.groups.push(group);
        Ok(())
    }

    /// The opcode probe cannot see multishot, which is a flag of RECV: receive one byte on a socket
    /// pair.
    fn check_multishot(&mut self) -> Result<(), String> {
        let (ours, theirs) = socket::pair().map_err(|errno| cannot("make a socket pair", errno))?;
        socket::send(theirs.as_raw_fd(), b"?")
            .map_err(|errno| cannot("send to ourselves", errno))?;
        self.push(&opcode::RecvMulti::new(Fd(ours.as_raw_fd()), 0).build().user_data(0));
        drop(theirs);
        self.sq.sync();
        let timeout = Timespec::new().sec(1);
        let mut answer = None;
        for _ in 0..2 {
            let _ = self.submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
            self.sq.sync();
            self.cq.sync();
            while let Some(entry) = self.cq.next() {
                answer.get_or_insert((entry.result(), cqueue::more(entry.flags())));
                if let Some(id) = cqueue::buffer_select(entry.flags()) {
                    self.groups[0].put(id);
                }
                if !cqueue::more(entry.flags()) {
                    self.cq.sync();
                    self.groups[0].publish();
                    return match answer {
                        Some((1, true)) => Ok(()),
                        Some((result, _)) => {
                            Err(cannot("receive with multishot (Linux 6.0)", -result))
                        }
                        None => Err("io_uring: multishot receive gives no answer".to_string()),
                    };
                }
            }
            self.cq.sync();
        }
        Err("io_uring: multishot receive gives no answer".to_string())
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
        &self.group_of(id).bytes(id, self.payload_offset + len)[self.payload_offset..]
    }

    /// The kernel's stamp of the last byte of a receive, CLOCK_REALTIME ns.
    pub(crate) fn received_wire_ns(&self, id: u16, len: usize) -> Option<u64> {
        let header = self.wire.as_ref()?.receive_header();
        let whole = self.group_of(id).bytes(id, self.payload_offset + len);
        wire::received_stamp_ns(RecvMsgOut::parse(whole, header).ok()?.control_data())
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

    fn group_of(&self, id: u16) -> &BufferRing {
        self.groups
            .iter()
            .find(|group| group.owns(id))
            .expect("ids of the groups cover all buffers")
    }

    pub(crate) fn recycle(&mut self, id: u16) {
        let group = self.groups.iter_mut().find(|group| group.owns(id));
        group.expect("ids of the groups cover all buffers").put(id);
    }

    /// Opens a socket in `slot` and queues its connect. `Err`: errno.
    pub(crate) fn connect(&mut self, slot: u32, generation: u32, target: u32) -> Result<(), i32> {
        let destination = &self.destinations[target as usize];
        let fd = destination.socket()?;
        let address = destination.address();
        let connect = opcode::Connect::new(Fd(fd.as_raw_fd()), address.as_ptr(), address.len());
        let token = Token { operation: Operation::Connect, generation, slot };
        // The kernel copies the address when it takes the entry; `destinations` never changes
        // anyway.
        self.push(&connect.build().user_data(token.encode()));
        self.armed += 1;
        self.occupy(slot, generation, fd);
        Ok(())
    }

    /// Takes an accepted socket into `slot` and starts to receive from it.
    pub(crate) fn adopt(&mut self, slot: u32, generation: u32, fd: RawFd) {
        self.occupy(slot, generation, socket::adopt_accepted(fd));
        self.arm_receive(slot);
    }

    fn occupy(&mut self, slot: u32, generation: u32, fd: OwnedFd) {
        let socket = &mut self.sockets[slot as usize];
        assert!(socket.fd < 0, "slot {slot} is occupied");
        let fd = fd.into_raw_fd();
        *socket = Socket { fd, generation, rest: (0, 0), is_sending: false, piece: 0, sent_in: 0 };
    }

    /// Accepts from `listener` until the end.
    pub(crate) fn listen(&mut self, listener: OwnedFd) {
        self.arm_accept(listener.as_raw_fd());
        self.listeners.push(listener);
    }

    fn arm_accept(&mut self, listener: RawFd) {
        let accept = opcode::AcceptMulti::new(Fd(listener)).flags(libc::SOCK_CLOEXEC);
        let token = Token { operation: Operation::Accept, generation: 0, slot: listener as u32 };
        self.push(&accept.build().user_data(token.encode()));
        self.armed += 1;
    }

    fn arm_receive(&mut self, slot: u32) {
        let Socket { fd, generation, .. } = self.sockets[slot as usize];
        let group = self.groups.len() as u16 - 1;
        let token = Token { operation: Operation::Receive, generation, slot };
        let receive = match &self.wire {
            None => opcode::RecvMulti::new(Fd(fd), group).build(),
            Some(wire) => opcode::RecvMsgMulti::new(Fd(fd), wire.receive_header(), group).build(),
        };
        self.push(&receive.user_data(token.encode()));
        self.armed += 1;
    }

    fn arm_waker(&mut self) {
        let token = Token { operation: Operation::Wake, generation: 0, slot: 0 };
        let poll = opcode::PollAdd::new(Fd(self.waker.fd()), libc::POLLIN as u32).multi(true);
        self.push(&poll.build().user_data(token.encode()));
        self.armed += 1;
    }

    /// Queues the bytes `range` of the arena. They are immutable and live as long as this reactor,
    /// so a request of one piece needs no success completion: nobody waits for its memory. It makes
    /// one all the same when the socket has no room for all of it, and then the rest goes like a
    /// larger request.
    pub(crate) fn send(&mut self, slot: u32, generation: u32, range: Range<usize>) {
        let socket = &mut self.sockets[slot as usize];
        debug_assert_eq!(socket.generation, generation, "a send names the live connection");
        debug_assert!(!socket.is_sending, "one request at a time");
        let first_end = range.end.min(range.start + SEND_PIECE_BYTES);
        socket.is_sending = first_end < range.end;
        socket.rest = (if socket.is_sending { first_end } else { range.start }, range.end);
        socket.sent_in = self.epoch;
        self.push_send(slot, range.start..first_end);
    }

    fn push_send(&mut self, slot: u32, piece: Range<usize>) {
        let Socket { fd, generation, is_sending, rest, .. } = self.sockets[slot as usize];
        self.sockets[slot as usize].piece = piece.len();
        let is_last = piece.end == rest.1;
        let bytes = &self.arena[piece];
        // MSG_WAITALL is for correctness: without it a short send is a success, and makes no
        // completion at all. MSG_DONTWAIT for order: a send that waited for room unseen would be
        // overtaken by the next one.
        let wait = if is_sending { 0 } else { libc::MSG_DONTWAIT };
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | wait;
        let send = match &mut self.wire {
            Some(wire) if is_last && wire.is_awaited(slot) => {
                // The kernel asks for the stamp once, with the first part that the socket takes. So
                // one that may be taken in parts does not wait for all: each asks anew.
                let flags = if is_sending { flags & !libc::MSG_WAITALL } else { flags };
                let header = wire.header(slot, bytes);
                opcode::SendMsg::new(Fd(fd), header).flags(flags as u32).build()
            }
            _ => opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32).flags(flags).build(),
        };
        let token = Token { operation: Operation::Send, generation, slot };
        let mut entry = send.user_data(token.encode());
        if !is_sending {
            entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        }
        self.push(&entry);
    }

    /// Where bytes that are in no arena are appended.
    pub(crate) fn outbox(&mut self, slot: u32) -> &mut Vec<u8> {
        &mut self.outboxes[slot as usize].waiting
    }

    /// Queues what the outbox has, behind what is in flight. It waits for room as long as that
    /// takes, and makes a completion in the end: somebody has to keep its memory until then.
    pub(crate) fn send_outbox(&mut self, slot: u32, generation: u32) {
        let Socket { fd, generation: live, .. } = self.sockets[slot as usize];
        debug_assert_eq!(live, generation, "a send names the live connection");
        let outbox = &mut self.outboxes[slot as usize];
        if !outbox.in_flight.is_empty() || outbox.waiting.is_empty() {
            return;
        }
        std::mem::swap(&mut outbox.waiting, &mut outbox.in_flight);
        let bytes = &outbox.in_flight;
        let send = opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32);
        let send = send.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build();
        let token = Token { operation: Operation::SendOutbox, generation, slot };
        self.push(&send.user_data(token.encode()));
        self.armed += 1;
    }

    /// Whether a part of the last request has yet to be handed to the kernel.
    pub(crate) fn is_sending(&self, slot: u32) -> bool {
        let is_outbox_sending = !self.outboxes[slot as usize].in_flight.is_empty();
        self.sockets[slot as usize].is_sending || is_outbox_sending
    }

    /// Whether the last request may not have been handed to the kernel whole.
    pub(crate) fn may_be_sending(&self, slot: u32) -> bool {
        self.is_sending(slot) || self.sockets[slot as usize].sent_in == self.epoch
    }

    /// Cancels everything on the socket, then closes it. CLOSE alone would leave the receive armed,
    /// and a cancel after CLOSE finds nothing.
    pub(crate) fn close(&mut self, slot: u32) {
        let socket = &mut self.sockets[slot as usize];
        let fd = std::mem::replace(&mut socket.fd, -1);
        socket.is_sending = false;
        if fd < 0 {
            return;
        }
        let generation = socket.generation;
        let outbox = &mut self.outboxes[slot as usize];
        empty(&mut outbox.waiting);
        if !outbox.in_flight.is_empty() {
            self.orphans.push((slot, generation, std::mem::take(&mut outbox.in_flight)));
        }
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::fd(Fd(fd)).all()).build();
        let token = Token { operation: Operation::Cancel, generation, slot };
        self.push(&cancel.user_data(token.encode()).flags(squeue::Flags::SKIP_SUCCESS));
        let token = Token { operation: Operation::Close, generation, slot };
        let close = opcode::Close::new(Fd(fd)).build().user_data(token.encode());
        self.push(&close.flags(squeue::Flags::SKIP_SUCCESS));
        while let Some(listener) = self.starved.pop() {
            self.arm_accept(listener);
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what entries name by pointer (arena, addresses, buffers, headers, the alarm,
            // outboxes in flight and orphans) is owned by `self` and lives until `Drop` has seen
            // the last completion; the control message that a header of `Wire` names is static.
            if unsafe { self.sq.push(entry) }.is_ok() {
                return;
            }
            self.flush();
        }
    }

    /// Whether the entries of one more connection might not fit.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.sq.len() + ENTRIES_PER_CONNECTION > self.sq.capacity()
    }

    /// Submits what is queued, without waiting for anything.
    pub(crate) fn flush(&mut self) {
        self.sq.sync();
        if self.sq.is_empty() {
            return;
        }
        self.counters.enters += 1;
        // EBUSY and EAGAIN: the completion queue is full or memory is short; the next turn reaps
        // and submits the rest.
        let _ = self.submitter.submit();
        self.sq.sync();
    }

    /// One turn: submit, wait until an event or `until_ns` (0: do not wait), reap. Returns the time
    /// after the wait.
    pub(crate) fn turn(&mut self, until_ns: u64) -> u64 {
        self.events.clear();
        for group in &mut self.groups {
            group.publish();
        }
        self.rearm_receives();
        self.sq.sync();
        self.cq.sync();
        // Completions left over from the last turn come first: no reason to enter, none to sleep.
        if self.cq.is_empty() {
            self.enter(until_ns);
            self.sq.sync();
            self.cq.sync();
        } else {
            self.flush();
        }
        let stamp_ns = self.clock.now_ns();
        self.note_overflow();
        while self.events.len() < EVENTS_PER_TURN {
            let Some(entry) = self.cq.next() else { break };
            self.take(&entry, stamp_ns);
        }
        // Gives the consumed entries back before the next enter, else the kernel still counts them
        // and the next wait returns at once.
        self.cq.sync();
        if self.cq.is_empty() && !self.was_overflowed {
            self.epoch += 1;
        }
        stamp_ns
    }

    /// A wait sets and clears a timer of the kernel each time, so a far instant gets an alarm of
    /// its own, once.
    fn set_alarm(&mut self, until_ns: u64, now_ns: u64) {
        if self.alarm_ns != u64::MAX || until_ns - now_ns < ALARM_NS_MIN {
            return;
        }
        self.alarm_ns = until_ns.min(now_ns + ALARM_NS_MAX);
        *self.alarm = timespec(self.alarm_ns - now_ns);
        let token = Token { operation: Operation::Alarm, generation: 0, slot: 0 };
        let entry = opcode::Timeout::new(&raw const *self.alarm).build();
        self.push(&entry.user_data(token.encode()));
        self.armed += 1;
        self.sq.sync();
    }

    fn enter(&mut self, until_ns: u64) {
        let now_ns = if until_ns == 0 { 0 } else { self.clock.now_ns() };
        if until_ns > now_ns {
            self.set_alarm(until_ns, now_ns);
        }
        let queued = self.sq.len();
        if until_ns > now_ns && self.alarm_ns <= until_ns {
            self.counters.enters += 1;
            // As below.
            let _ = self.submitter.submit_and_wait(1);
        } else if until_ns > now_ns {
            let timeout = timespec(until_ns - now_ns);
            self.counters.enters += 1;
            // ETIME and EINTR are normal ends; EBUSY and EAGAIN are cured by reaping.
            let _ = self.submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
        } else if queued > 0 || !self.has_taskrun_flag || self.sq.taskrun() || self.sq.cq_overflow()
        {
            self.counters.enters += 1;
            // SAFETY: no argument is passed.
            let _ = unsafe {
                self.submitter.enter::<libc::sigset_t>(queued as u32, 0, ENTER_GETEVENTS, None)
            };
        }
    }

    fn rearm_receives(&mut self) {
        while let Some((slot, generation)) = self.rearm.pop_front() {
            let socket = self.sockets[slot as usize];
            if socket.fd >= 0 && socket.generation == generation {
                self.arm_receive(slot);
            }
        }
    }

    fn note_overflow(&mut self) {
        let is_overflowed = self.sq.cq_overflow();
        self.counters.completion_overflows += u64::from(is_overflowed && !self.was_overflowed);
        self.was_overflowed = is_overflowed;
    }

    /// Turns one completion into an event, or keeps it below the seam.
    fn take(&mut self, entry: &cqueue::Entry, stamp_ns: u64) {
        let (result, flags) = (entry.result(), entry.flags());
        let Some(Token { operation, generation, slot }) = Token::decode(entry.user_data()) else {
            debug_assert!(false, "every entry carries a token");
            return;
        };
        let mut event =
            Event { kind: EventKind::Received, slot, generation, result, buffer: None, stamp_ns };
        let is_live = |uring: &Uring| {
            let socket = uring.sockets.get(slot as usize);
            socket.is_some_and(|socket| socket.fd >= 0 && socket.generation == generation)
        };
        match operation {
            Operation::Receive => self.take_receive(event, flags, is_live(self)),
            Operation::Send => self.take_send(event, is_live(self)),
            Operation::SendOutbox => self.take_send_outbox(event, is_live(self)),
            Operation::Connect => {
                self.armed -= 1;
                if is_live(self) {
                    event.kind = EventKind::Connected;
                    if result == 0 {
                        if let Some(wire) = &mut self.wire {
                            wire.enable(slot, self.sockets[slot as usize].fd);
                        }
                        self.arm_receive(slot);
                    }
                    self.events.push(event);
                }
            }
            Operation::Accept => {
                event.kind = EventKind::Accepted;
                self.events.push(event);
                if !cqueue::more(flags) {
                    self.armed -= 1;
                    match -result {
                        libc::ECANCELED => {}
                        libc::EMFILE | libc::ENFILE => self.starved.push(slot as RawFd),
                        _ => self.arm_accept(slot as RawFd),
                    }
                }
            }
            Operation::Alarm => {
                self.armed -= 1;
                self.alarm_ns = u64::MAX;
            }
            Operation::Wake => {
                self.waker.clear();
                event.kind = EventKind::Woken;
                self.events.push(event);
                if !cqueue::more(flags) {
                    self.armed -= 1;
                    if result >= 0 {
                        self.arm_waker();
                    }
                }
            }
            // Failures of these two: the socket is gone, which is what was asked for.
            Operation::Cancel | Operation::Close => {}
        }
    }

    fn take_receive(&mut self, mut event: Event, flags: u32, is_live: bool) {
        let buffer = cqueue::buffer_select(flags);
        let has_ended = !cqueue::more(flags);
        self.armed -= u64::from(has_ended);
        if !is_live {
            // Late, of a closed connection: its buffer still has to go back.
            if let Some(id) = buffer {
                self.recycle(id);
            }
            return;
        }
        let is_starved = event.result == -libc::ENOBUFS;
        if event.result > 0 {
            event.result -= self.payload_offset as i32;
            match buffer {
                // The end of the stream, which has control messages like any receive.
                Some(id) if event.result == 0 => self.recycle(id),
                _ => {
                    self.counters.receives += 1;
                    event.buffer = buffer;
                }
            }
        }
        if !is_starved {
            self.events.push(event);
        }
        // Every completion without F_MORE ends the receive, whatever its result; the bytes that
        // found no buffer stay in the socket and come whole after re-arming.
        if has_ended && (event.result > 0 || is_starved) {
            self.rearm.push_back((event.slot, event.generation));
        }
        if is_starved {
            self.counters.receive_buffer_waits += 1;
            self.grow_buffers();
        }
    }

    /// Registers the larger group when the small one is starved too often. A refusal leaves things
    /// as they are.
    #[cold]
    fn grow_buffers(&mut self) {
        let waits = self.counters.receive_buffer_waits;
        let limit = ENOBUFS_SHARE_LIMIT * (self.counters.receives + GROW_AFTER_RECEIVES) as f64;
        if self.is_grown || waits as f64 <= limit {
            return;
        }
        self.is_grown = true;
        if self.add_group(BUFFER_COUNT_GROWN, BUFFER_COUNT).is_ok() {
            self.report.features.push("buf-ring-grown");
        }
    }

    fn take_send(&mut self, mut event: Event, is_live: bool) {
        if !is_live {
            return;
        }
        let is_stamped = self.wire.as_ref().is_some_and(|wire| wire.is_awaited(event.slot));
        let socket = &mut self.sockets[event.slot as usize];
        let has_no_room = !socket.is_sending && event.result == -libc::EAGAIN;
        if event.result < 0 && !has_no_room {
            socket.is_sending = false;
            event.kind = EventKind::SendFailed;
            self.events.push(event);
            return;
        }
        if !socket.is_sending {
            // A completion despite SKIP_SUCCESS: the socket took a part of it, or nothing.
            socket.rest.0 += event.result.max(0) as usize;
            socket.is_sending = true;
        } else if is_stamped && socket.rest.0 == socket.rest.1 {
            // It did not wait for all of it.
            socket.rest.0 -= socket.piece - event.result as usize;
        } else if (event.result as usize) < socket.piece {
            // Waited for all of it and got less: the peer is gone, its end of stream follows.
            socket.is_sending = false;
            event.kind = EventKind::SendFailed;
            event.result = -libc::EPIPE;
            self.events.push(event);
            return;
        }
        let (begin, end) = socket.rest;
        let piece_end = end.min(begin + SEND_PIECE_BYTES);
        socket.rest = (piece_end, end);
        if begin == end {
            socket.is_sending = false;
        } else {
            self.push_send(event.slot, begin..piece_end);
        }
    }
}

impl Uring {
    fn take_send_outbox(&mut self, mut event: Event, is_live: bool) {
        self.armed -= 1;
        let Event { slot, generation, result, .. } = event;
        if !is_live {
            let is_its = |(of, at, _): &(u32, u32, Vec<u8>)| (*of, *at) == (slot, generation);
            if let Some(index) = self.orphans.iter().position(is_its) {
                self.orphans.swap_remove(index);
            }
            return;
        }
        let outbox = &mut self.outboxes[slot as usize];
        // It waited for all of it: with less, the peer is gone and its end of stream follows.
        let is_whole = result >= 0 && result as usize == outbox.in_flight.len();
        empty(&mut outbox.in_flight);
        if is_whole {
            return self.send_outbox(slot, generation);
        }
        empty(&mut outbox.waiting);
        event.kind = EventKind::SendFailed;
        event.result = if result < 0 { result } else { -libc::EPIPE };
        self.events.push(event);
    }
}

/// A large one gives its memory back.
fn empty(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.shrink_to(OUTBOX_BYTES_KEPT);
}

fn timespec(ns: u64) -> Timespec {
    Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32)
}

impl Drop for Uring {
    /// Cancels everything and waits for the last completion, then frees what the kernel could have
    /// written to.
    fn drop(&mut self) {
        self.starved.clear();
        for slot in 0..self.sockets.len() as u32 {
            self.close(slot);
        }
        self.rearm.clear();
        self.flush();
        let timeout = Timespec::new().nsec(CANCEL_TIMEOUT_NS);
        let cancelled = self.submitter.register_sync_cancel(Some(timeout), CancelBuilder::any());
        // ENOENT: nothing was left to cancel.
        let is_quiet = cancelled.err().is_none_or(|e| e.raw_os_error() == Some(libc::ENOENT));
        let deadline_ns = super::time::monotonic_ns() + u64::from(CANCEL_TIMEOUT_NS);
        while self.armed > 0 && super::time::monotonic_ns() < deadline_ns {
            self.turn(0);
            let accepted = self.events.iter().filter(|event| event.kind == EventKind::Accepted);
            accepted.for_each(|event| socket::refuse_accepted(event.result));
        }
        if self.armed > 0 || !is_quiet {
            // The kernel may still write: leave the memory to it. Never seen; costs a megabyte at
            // the end of a run.
            std::mem::forget(std::mem::take(&mut self.groups));
            std::mem::forget(Arc::clone(&self.arena));
            std::mem::forget(std::mem::take(&mut self.outboxes));
            std::mem::forget(std::mem::take(&mut self.orphans));
        }
    }
}

/// Whether this host and process can run the io_uring back end, for `doctor`. `Err`: cause and fix.
pub fn probe() -> Result<EngineReport, String> {
    let clock = Clock::new(crate::clock::Calibration::IDENTITY);
    Uring::new(1, Arc::from([]), Vec::new(), clock, false).map(|uring| uring.report().clone())
}

/// A wait of this length or longer gets an alarm; shorter ones end more exactly by themselves.
const ALARM_NS_MIN: u64 = 20_000_000;
/// An alarm rings by then: the instant may have changed.
const ALARM_NS_MAX: u64 = 1_000_000_000;
const ENTER_GETEVENTS: u32 = 1;
/// Cancel, close and a connect or send.
const ENTRIES_PER_CONNECTION: usize = 3;
/// Receives before which a few starved ones say nothing: all connections may answer at once at the
/// start.
const GROW_AFTER_RECEIVES: u64 = 1000;
const CANCEL_TIMEOUT_NS: u32 = 200_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs itself as a process that may open few descriptors; there, `FREE` says how many are
    /// left.
    #[test]
    fn want_of_descriptors_is_an_error_at_every_step() {
        const FREE: &str = "LOADGEN_TEST_FREE_DESCRIPTORS";
        if let Ok(free) = std::env::var(FREE) {
            let open = || std::fs::File::open("/dev/null").ok();
            let mut files: Vec<_> = std::iter::from_fn(open).collect();
            files.truncate(files.len() - free.parse::<usize>().expect("a number"));
            let _ = probe();
            return;
        }
        let itself = std::env::current_exe().expect("a path");
        for free in 0..6 {
            let status = std::process::Command::new("sh")
                .args(["-c", "ulimit -n 64 && exec \"$0\" want_of_descriptors"])
                .arg(&itself)
                .env(FREE, free.to_string())
                .stdout(std::process::Stdio::null())
                .status()
                .expect("sh runs");
            assert!(status.success(), "{free} free: {status}");
        }
    }
}
