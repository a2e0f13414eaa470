//! The seam between a shard and the kernel: waiting, buffers, clock reads, and nothing of HTTP.
//!
//! Three back ends stand behind one enum: io_uring, epoll, and in tests the virtual-time `Sim`. A
//! turn submits what was queued, waits if asked to, and fills a fixed array of plain [`Event`]s;
//! the shard walks it, borrows the bytes of one event at a time and queues its actions. No
//! callbacks, no trait objects. Short sends, re-arming of receives, the order of cancel and close
//! and the rejection of late completions stay below the seam.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::Arc;

use crate::clock::{Calibration, Clock};
pub use crate::event::{EngineReport, Event, EventKind, ReactorCounters};
use crate::limits::SENDS_PER_ENTER;
use crate::query::Target;
#[cfg(any(test, feature = "sim"))]
use crate::sim::Sim;
use crate::sys::epoll::Epoll;
use crate::sys::errno_text;
use crate::sys::socket::{self, Destination};
use crate::sys::uring::Uring;
use crate::sys::wake::Waker;

/// Which back end the user asked for (`--engine`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring, or epoll with a loud reason where io_uring is refused.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// What a reactor needs to stand up.
#[derive(Clone, Debug)]
pub struct ReactorConfig {
    /// Back end.
    pub engine: EngineChoice,
    /// Number of connection slots.
    pub slots: u32,
    /// The bytes that sends name by range. Shared and immutable: what the kernel still reads cannot
    /// move.
    pub arena: Arc<[u8]>,
    /// Time base of every stamp.
    pub clock: Calibration,
    /// Connected TCP sockets get kernel stamps: on every receive, and on sends that ask for one.
    pub wire_stamps: bool,
}

/// Waiting, buffers and clock reads of one shard.
pub enum Reactor {
    /// io_uring.
    Uring(Box<Uring>),
    /// epoll.
    Epoll(Box<Epoll>),
    /// Virtual time.
    #[cfg(any(test, feature = "sim"))]
    Sim(Box<Sim>),
}

/// The same call to whichever back end stands behind the seam.
macro_rules! each {
    ($self:expr, $reactor:ident => $call:expr) => {
        match $self {
            Reactor::Uring($reactor) => $call,
            Reactor::Epoll($reactor) => $call,
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim($reactor) => $call,
        }
    };
}

impl Reactor {
    /// Builds the back end on the calling thread, which must be the one that uses it; pin first.
    /// `Err`: cause and fix.
    pub fn new(config: &ReactorConfig, targets: &[Target]) -> Result<Reactor, String> {
        let destinations = || {
            targets
                .iter()
                .map(|target| {
                    Destination::new(target).map_err(|errno| {
                        format!(
                            "cannot use the address {:?}: {}",
                            target.address,
                            errno_text(errno)
                        )
                    })
                })
                .collect::<Result<Vec<_>, String>>()
        };
        let clock = || Clock::new(config.clock);
        let reason = match config.engine {
            EngineChoice::Epoll => String::new(),
            EngineChoice::Auto | EngineChoice::Uring => {
                let arena = Arc::clone(&config.arena);
                match Uring::new(config.slots, arena, destinations()?, clock(), config.wire_stamps)
                {
                    Ok(uring) => return Ok(Reactor::Uring(Box::new(uring))),
                    Err(refusal) if config.engine == EngineChoice::Uring => return Err(refusal),
                    Err(refusal) => refusal,
                }
            }
        };
        let arena = Arc::clone(&config.arena);
        let (slots, stamps) = (config.slots, config.wire_stamps);
        let epoll = Epoll::new(slots, arena, destinations()?, clock(), reason, stamps)?;
        Ok(Reactor::Epoll(Box::new(epoll)))
    }

    /// What stands behind the seam.
    pub fn report(&self) -> &EngineReport {
        each!(self, reactor => reactor.report())
    }

    /// What it counted so far.
    pub fn counters(&self) -> ReactorCounters {
        each!(self, reactor => reactor.counters())
    }

    /// A handle by which other threads end a sleeping turn.
    pub fn waker(&self) -> Waker {
        each!(self, reactor => reactor.waker())
    }

    /// Follows another calibration of the clock from now on.
    pub fn set_clock(&mut self, calibration: Calibration) {
        match self {
            Reactor::Uring(uring) => uring.clock().set(calibration),
            Reactor::Epoll(epoll) => epoll.clock().set(calibration),
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => {}
        }
    }

    /// The time, CLOCK_MONOTONIC ns.
    pub fn now_ns(&self) -> u64 {
        each!(self, reactor => reactor.now_ns())
    }

    /// The clock against CLOCK_MONOTONIC as read on this core now, ns.
    pub fn clock_error_ns(&self) -> i64 {
        match self {
            Reactor::Uring(uring) => uring.clock_error_ns(),
            Reactor::Epoll(epoll) => epoll.clock_error_ns(),
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => 0,
        }
    }

    /// Sends that may share one stamp: those that one kernel call carries. With epoll each is a
    /// call of its own.
    pub fn sends_per_flush(&self) -> usize {
        match self {
            Reactor::Uring(_) => SENDS_PER_ENTER,
            Reactor::Epoll(_) => 1,
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => SENDS_PER_ENTER,
        }
    }

    /// Starts to connect `slot` to a target; a `Connected` event tells how it ended, and receiving
    /// has begun by then. `Err`: errno, nothing was started.
    pub fn connect(&mut self, slot: u32, generation: u32, target: u32) -> Result<(), i32> {
        each!(self, reactor => reactor.connect(slot, generation, target))
    }

    /// Queues the bytes `range` of the arena for a connected slot. Nothing enters the kernel before
    /// [`Reactor::flush`] or [`Reactor::turn`].
    pub fn send(&mut self, slot: u32, generation: u32, range: Range<usize>) {
        each!(self, reactor => reactor.send(slot, generation, range));
    }

    /// [`Reactor::send`] where wire stamps are on; `is_sampled`: with a stamp of its last byte.
    pub fn send_stamped(
        &mut self,
        slot: u32,
        generation: u32,
        range: Range<usize>,
        is_sampled: bool,
    ) {
        match self {
            Reactor::Uring(uring) => uring.begin_stamped(slot, range.len(), is_sampled),
            Reactor::Epoll(epoll) => epoll.begin_stamped(slot, range.len(), is_sampled),
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => {}
        }
        self.send(slot, generation, range);
    }

    /// When the kernel handed the last byte of the slot's sampled request to the network device,
    /// CLOCK_REALTIME ns. Asked once for each request, when its response is there. `None`: unknown.
    pub fn take_sent_wire_ns(&mut self, slot: u32) -> Option<u64> {
        match self {
            Reactor::Uring(uring) => uring.take_sent_wire_ns(slot),
            Reactor::Epoll(epoll) => epoll.take_sent_wire_ns(slot),
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => None,
        }
    }

    /// When the kernel got the last byte of a `Received` event from the network device,
    /// CLOCK_REALTIME ns. To be asked before the buffer is given back. `None`: unknown.
    pub fn received_wire_ns(&self, event: &Event) -> Option<u64> {
        let id = event.buffer?;
        match self {
            Reactor::Uring(uring) => uring.received_wire_ns(id, event.result as usize),
            Reactor::Epoll(epoll) => epoll.received_wire_ns(id),
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => None,
        }
    }

    /// Where bytes for the slot that are in no arena are appended: what TLS writes, what a server
    /// makes up. Then [`Reactor::send_outbox`].
    pub fn outbox(&mut self, slot: u32) -> &mut Vec<u8> {
        each!(self, reactor => reactor.outbox(slot))
    }

    /// Queues what is in the slot's outbox; bytes of an earlier call go first. A slot sends from
    /// its outbox or from the arena: from the other one only when [`Reactor::may_be_sending`] says
    /// that nothing is under way.
    pub fn send_outbox(&mut self, slot: u32, generation: u32) {
        each!(self, reactor => reactor.send_outbox(slot, generation));
    }

    /// Whether what one more connection queues might be submitted at once for want of room.
    pub fn is_nearly_full(&self) -> bool {
        match self {
            Reactor::Uring(uring) => uring.is_nearly_full(),
            _ => false,
        }
    }

    /// Whether a part of the last request has yet to be handed to the kernel (only requests beyond
    /// one piece).
    pub fn is_sending(&self, slot: u32) -> bool {
        each!(self, reactor => reactor.is_sending(slot))
    }

    /// Whether the last bytes may not have been handed over whole. For a server: a client that does
    /// not read holds them up, and what is sent behind them must wait. A turn without events
    /// settles it.
    pub fn may_be_sending(&self, slot: u32) -> bool {
        match self {
            Reactor::Uring(uring) => uring.may_be_sending(slot),
            _ => self.is_sending(slot),
        }
    }

    /// Ends everything on the slot and closes it. It may be connected again at once, under the next
    /// generation.
    pub fn close(&mut self, slot: u32) {
        each!(self, reactor => reactor.close(slot));
    }

    /// Hands what is queued to the kernel, without waiting.
    pub fn flush(&mut self) {
        each!(self, reactor => reactor.flush());
    }

    /// One turn: submit, wait for an event or until `until_ns` (0: do not wait), fill the array of
    /// events. Returns the time after the wait.
    pub fn turn(&mut self, until_ns: u64) -> u64 {
        each!(self, reactor => reactor.turn(until_ns))
    }

    /// The events of the last turn.
    pub fn events(&self) -> &[Event] {
        each!(self, reactor => reactor.events())
    }

    /// The bytes of a `Received` event that has a buffer.
    pub fn bytes(&self, event: &Event) -> &[u8] {
        let Some(id) = event.buffer else { return &[] };
        each!(self, reactor => reactor.bytes(id, event.result as usize))
    }

    /// Gives the buffer of an event back; once for each event that has one.
    pub fn recycle(&mut self, event: &Event) {
        if let Some(id) = event.buffer {
            each!(self, reactor => reactor.recycle(id));
        }
    }

    /// Accepts connections from a listener, for the embedded endpoint.
    pub fn listen(&mut self, listener: TcpListener) {
        match self {
            Reactor::Uring(uring) => uring.listen(listener.into()),
            Reactor::Epoll(epoll) => {
                listener.set_nonblocking(true).expect("a fresh socket takes O_NONBLOCK");
                epoll.listen(listener.into());
            }
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => unreachable!("the virtual transport is a client"),
        }
    }

    /// Takes the descriptor of an `Accepted` event into a slot; receiving begins.
    pub fn adopt(&mut self, slot: u32, generation: u32, event: &Event) {
        debug_assert_eq!(event.kind, EventKind::Accepted);
        match self {
            Reactor::Uring(uring) => uring.adopt(slot, generation, event.result),
            Reactor::Epoll(epoll) => epoll.adopt(slot, generation, event.result),
            #[cfg(any(test, feature = "sim"))]
            Reactor::Sim(_) => unreachable!("the virtual transport is a client"),
        }
    }

    /// Closes the descriptor of an `Accepted` event for which there is no slot.
    pub fn refuse(&mut self, event: &Event) {
        debug_assert_eq!(event.kind, EventKind::Accepted);
        socket::refuse_accepted(event.result);
    }
}
