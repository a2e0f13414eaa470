//! Due instants of one phase, as one shard sees them: its part of the schedule, drawn a little
//! ahead, or what the timer core put into the dispatch ring.

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
    Own {
        ahead: VecDeque<Arrival>,
        schedule: Option<Box<Schedule>>,
        /// The schedule has ended, and by its count.
        has_reached_count: bool,
    },
    /// What comes through the ring.
    Timer { phase: u32, shared: Arc<TimerPhase> },
}

impl Arrivals {
    pub(super) fn new(source: Source, phase: u32) -> Arrivals {
        match source {
            Source::Own(schedule) => Arrivals::Own {
                ahead: VecDeque::with_capacity(ARRIVALS_AHEAD),
                schedule: Some(schedule),
                has_reached_count: false,
            },
            Source::Timer(shared) => Arrivals::Timer { phase, shared },
        }
    }

    /// The next entry, without taking it. `None`: none is known now.
    pub(super) fn peek(&mut self, ring: &mut Ring) -> Option<Arrival> {
        match self {
            Arrivals::Own { ahead, schedule, has_reached_count } => {
                if ahead.is_empty() {
                    draw(ahead, schedule, has_reached_count);
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
            Arrivals::Own { ahead, schedule, has_reached_count } => {
                ahead.len() < ARRIVALS_AHEAD && draw(ahead, schedule, has_reached_count)
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

    /// The same, and it was the count that ended the list: a length may go on.
    pub(super) fn has_reached_count(&mut self, ring: &mut Ring) -> bool {
        self.is_used_up(ring)
            && match self {
                Arrivals::Own { has_reached_count, .. } => *has_reached_count,
                Arrivals::Timer { shared, .. } => shared.has_reached_count(),
            }
    }

    /// Nothing comes any more from elsewhere: what is left is here to be counted.
    pub(super) fn has_all_come(&self) -> bool {
        match self {
            Arrivals::Own { .. } => true,
            Arrivals::Timer { shared, .. } => shared.has_ended(),
        }
    }

    /// What was not drawn and is before an offset, for control to count.
    pub(super) fn into_rest(self, end_ns: u64) -> Option<Rest> {
        match self {
            Arrivals::Own { schedule, .. } => schedule.map(|mut schedule| {
                schedule.skip_count(end_ns, 0);
                Rest { pending: None, schedule }
            }),
            Arrivals::Timer { .. } => None,
        }
    }
}

/// False: the schedule has ended.
fn draw(
    ahead: &mut VecDeque<Arrival>,
    schedule: &mut Option<Box<Schedule>>,
    has_reached_count: &mut bool,
) -> bool {
    let Some(list) = schedule else { return false };
    match list.next() {
        Some(arrival) => {
            ahead.push_back(arrival);
            true
        }
        None => {
            *has_reached_count = list.has_reached_count();
            *schedule = None;
            false
        }
    }
}

/// The shard's end of its dispatch ring; without a timer core, nothing.
pub(super) struct Ring(pub(super) Option<Consumer<Dispatch>>);

impl Ring {
    /// The next entry of a phase. What is left of earlier phases is thrown away: they have ended,
    /// and counted it. That of later ones stays: the timer's clock may be a moment ahead of ours.
    fn peek_of(&mut self, phase: u32) -> Option<Arrival> {
        let consumer = self.0.as_mut()?;
        loop {
            let dispatch = *consumer.peek().ok()?;
            if dispatch.phase >= phase {
                return (dispatch.phase == phase).then_some(dispatch.arrival);
            }
            let _ = consumer.pop();
        }
    }

    fn take(&mut self) {
        if let Some(consumer) = &mut self.0 {
            let _ = consumer.pop();
        }
    }
}
