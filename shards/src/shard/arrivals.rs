//! Due instants of one phase, as one shard sees them: its part of the schedule, drawn a little
//! ahead, or what the timer core put into the dispatch ring.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use rtrb::Consumer;

use crate::limits::ARRIVALS_AHEAD;
use crate::phase::{Rest, Source, TimerPhase};
use crate::schedule::{Arrival, Schedule};
use crate::timer::Dispatch;

/// The arrivals of a phase. Every method takes the shard's dispatch ring, which outlives phases.
pub(super) enum Arrivals {
    /// Entries drawn ahead, then the schedule behind them.
    Own { ahead: VecDeque<Arrival>, schedule: Option<Box<Schedule>> },
    /// What comes through the ring.
    Timer { phase: u32, shared: Arc<TimerPhase> },
}

impl Arrivals {
    pub(super) fn new(source: Source, phase: u32) -> Arrivals {
        match source {
            Source::Own(schedule) => Arrivals::Own {
                ahead: VecDeque::with_capacity(ARRIVALS_AHEAD),
                schedule: Some(schedule),
            },
            Source::Timer(shared) => Arrivals::Timer { phase, shared },
        }
    }

    /// The next entry, without taking it. `None`: none is known now.
    pub(super) fn peek(&mut self, ring: &mut Ring) -> Option<Arrival> {
        match self {
            Arrivals::Own { ahead, schedule } => {
                if ahead.is_empty() {
                    draw(ahead, schedule);
                }
                ahead.front().copied()
            }
            Arrivals::Timer { phase, .. } => ring.peek_of(*phase),
        }
    }

    /// The next entry that has been drawn or dispatched already: at a phase's end the rest is left
    /// to control.
    pub(super) fn peek_drawn(&mut self, ring: &mut Ring) -> Option<Arrival> {
        match self {
            Arrivals::Own { ahead, .. } => ahead.front().copied(),
            Arrivals::Timer { phase, .. } => ring.peek_of(*phase),
        }
    }

    /// Takes the entry that a look has shown.
    pub(super) fn take(&mut self, ring: &mut Ring) {
        match self {
            Arrivals::Own { ahead, .. } => drop(ahead.pop_front()),
            Arrivals::Timer { .. } => ring.take(),
        }
    }

    /// Draws one more entry ahead, while there is time for it. True: there was one to draw.
    pub(super) fn draw_ahead(&mut self) -> bool {
        match self {
            Arrivals::Own { ahead, schedule } => {
                ahead.len() < ARRIVALS_AHEAD && draw(ahead, schedule)
            }
            Arrivals::Timer { .. } => false,
        }
    }

    /// No entry is left, and none will come.
    pub(super) fn is_used_up(&mut self, ring: &mut Ring) -> bool {
        match self {
            Arrivals::Own { .. } => self.peek(ring).is_none(),
            // In this order: what was put in before the end is in the ring.
            Arrivals::Timer { phase, shared } => {
                shared.has_ended() && ring.peek_of(*phase).is_none()
            }
        }
    }

    /// The timer core may still put something into the ring.
    pub(super) fn awaits_timer(&self) -> bool {
        match self {
            Arrivals::Own { .. } => false,
            Arrivals::Timer { shared, .. } => !shared.has_ended(),
        }
    }

    /// What was not drawn, for control to count.
    pub(super) fn into_rest(self) -> Option<Rest> {
        match self {
            Arrivals::Own { schedule, .. } => {
                schedule.map(|schedule| Rest { pending: None, schedule })
            }
            Arrivals::Timer { .. } => None,
        }
    }
}

/// False: the schedule has ended.
fn draw(ahead: &mut VecDeque<Arrival>, schedule: &mut Option<Box<Schedule>>) -> bool {
    match schedule.as_mut().and_then(|schedule| schedule.next()) {
        Some(arrival) => {
            ahead.push_back(arrival);
            true
        }
        None => {
            *schedule = None;
            false
        }
    }
}

/// The shard's end of its dispatch ring; without a timer core, nothing.
pub(super) struct Ring(pub(super) Option<Consumer<Dispatch>>);

impl Ring {
    /// The next entry of a phase. What is left of earlier phases is thrown away: they have ended,
    /// and counted it. What is of a later phase waits for that: the timer may be there already.
    fn peek_of(&mut self, phase: u32) -> Option<Arrival> {
        let consumer = self.0.as_mut()?;
        loop {
            let dispatch = *consumer.peek().ok()?;
            match dispatch.phase.cmp(&phase) {
                Ordering::Equal => return Some(dispatch.arrival),
                Ordering::Greater => return None,
                Ordering::Less => drop(consumer.pop()),
            }
        }
    }

    fn take(&mut self) {
        if let Some(consumer) = &mut self.0 {
            let _ = consumer.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch(phase: u32, position: u64) -> Dispatch {
        Dispatch { arrival: Arrival { position, offset_ns: position }, phase }
    }

    #[test]
    fn what_is_left_of_a_phase_is_thrown_away_and_what_is_of_the_next_one_waits() {
        let (mut producer, consumer) = rtrb::RingBuffer::new(8);
        let mut ring = Ring(Some(consumer));
        for entry in [dispatch(0, 7), dispatch(1, 0), dispatch(1, 1), dispatch(2, 0)] {
            producer.push(entry).expect("it has room");
        }
        let position = |ring: &mut Ring, phase| ring.peek_of(phase).map(|next| next.position);
        assert_eq!(position(&mut ring, 1), Some(0), "phase 0 is over");
        assert_eq!(position(&mut ring, 0), None, "and phase 1 is not its");
        assert_eq!(position(&mut ring, 1), Some(0), "a look takes nothing of a later phase");
        ring.take();
        assert_eq!(position(&mut ring, 1), Some(1));
        ring.take();
        assert_eq!(position(&mut ring, 1), None);
        assert_eq!(position(&mut ring, 2), Some(0));
    }
}
