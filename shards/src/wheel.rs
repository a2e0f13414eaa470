//! The timer wheel: one deadline per connection slot, 1 ms ticks, no kernel timer per request.
//!
//! Deadlines move with every request and every byte, and hardly ever fire. So setting one is a
//! store; an entry moves to another tick only when the deadline has come *nearer*, and an entry
//! that fires before its deadline is put where the deadline is now. Nothing allocates after `new`.

use crate::limits::{WHEEL_SLOTS, WHEEL_TICK_NS};

/// Deadlines of `n` connection slots.
#[derive(Debug)]
pub struct Wheel {
    entries: Box<[Entry]>,
    /// First entry of the list of each tick, modulo the wheel's size.
    heads: Box<[u32; WHEEL_SLOTS]>,
    /// One bit per non-empty list.
    occupied: [u64; WHEEL_SLOTS / 64],
    /// The last tick that was looked at.
    tick: u64,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// 0 = none.
    deadline_ns: u64,
    /// Tick of the list that it is in; meaningless while unlinked.
    tick: u64,
    next: u32,
    previous: u32,
    is_linked: bool,
}

impl Wheel {
    /// No deadlines; time begins at `now_ns`.
    pub fn new(slots: u32, now_ns: u64) -> Wheel {
        let entry = Entry { deadline_ns: 0, tick: 0, next: NONE, previous: NONE, is_linked: false };
        Wheel {
            entries: vec![entry; slots as usize].into_boxed_slice(),
            heads: Box::new([NONE; WHEEL_SLOTS]),
            occupied: [0; WHEEL_SLOTS / 64],
            tick: now_ns / WHEEL_TICK_NS,
            len: 0,
        }
    }

    /// Sets the deadline of a slot; 0 = none.
    pub fn set(&mut self, slot: u32, deadline_ns: u64) {
        let entry = &mut self.entries[slot as usize];
        entry.deadline_ns = deadline_ns;
        if deadline_ns == 0 {
            // Left in its list: unlinked when its tick comes, or reused by the next deadline.
            return;
        }
        let tick = self.tick_of(deadline_ns);
        let entry = self.entries[slot as usize];
        if entry.is_linked {
            if entry.tick <= tick {
                return;
            }
            self.unlink(slot);
        }
        self.link(slot, tick);
    }

    /// The tick in which a deadline is over: never before it, and never a tick that has been looked
    /// at.
    fn tick_of(&self, deadline_ns: u64) -> u64 {
        deadline_ns.div_ceil(WHEEL_TICK_NS).max(self.tick + 1)
    }

    /// Appends the slots whose deadline is over to `expired`, and clears their deadlines.
    pub fn expire(&mut self, now_ns: u64, expired: &mut Vec<u32>) {
        let now_tick = now_ns / WHEEL_TICK_NS;
        if self.len == 0 {
            self.tick = self.tick.max(now_tick);
            return;
        }
        // After a long absence one round over the wheel sees every list.
        let first = (self.tick + 1).max((now_tick + 1).saturating_sub(WHEEL_SLOTS as u64));
        for tick in first..=now_tick {
            self.tick = tick;
            let mut slot = self.heads[tick as usize & (WHEEL_SLOTS - 1)];
            while slot != NONE {
                let entry = self.entries[slot as usize];
                self.look_at(slot, now_ns, now_tick, expired);
                slot = entry.next;
            }
        }
    }

    fn look_at(&mut self, slot: u32, now_ns: u64, now_tick: u64, expired: &mut Vec<u32>) {
        let Entry { deadline_ns, tick, .. } = self.entries[slot as usize];
        if deadline_ns != 0 && deadline_ns <= now_ns {
            self.unlink(slot);
            self.entries[slot as usize].deadline_ns = 0;
            expired.push(slot);
        } else if tick <= now_tick {
            self.unlink(slot);
            if deadline_ns != 0 {
                let tick = deadline_ns.div_ceil(WHEEL_TICK_NS).max(now_tick + 1);
                self.link(slot, tick);
            }
        }
    }

    /// When to look again: the next non-empty list, at or before the next deadline. `u64::MAX` if
    /// there is none.
    pub fn next_ns(&self) -> u64 {
        if self.len == 0 {
            return u64::MAX;
        }
        let start = (self.tick as usize + 1) & (WHEEL_SLOTS - 1);
        let words = self.occupied.len();
        // The word of `start` comes twice: first its upper bits, at the end its lower ones.
        for step in 0..=words {
            let index = (start / 64 + step) % words;
            let mut word = self.occupied[index];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            }
            if word != 0 {
                let list = index * 64 + word.trailing_zeros() as usize;
                let ahead = (list + WHEEL_SLOTS - start) & (WHEEL_SLOTS - 1);
                return (self.tick + 1 + ahead as u64) * WHEEL_TICK_NS;
            }
        }
        unreachable!("a linked entry has its bit set")
    }

    fn link(&mut self, slot: u32, tick: u64) {
        let list = tick as usize & (WHEEL_SLOTS - 1);
        let next = std::mem::replace(&mut self.heads[list], slot);
        if next != NONE {
            self.entries[next as usize].previous = slot;
        }
        let entry = &mut self.entries[slot as usize];
        debug_assert!(!entry.is_linked);
        (entry.tick, entry.next, entry.previous, entry.is_linked) = (tick, next, NONE, true);
        self.occupied[list / 64] |= 1 << (list % 64);
        self.len += 1;
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { tick, next, previous, is_linked, .. } = self.entries[slot as usize];
        debug_assert!(is_linked);
        let list = tick as usize & (WHEEL_SLOTS - 1);
        if previous == NONE {
            self.heads[list] = next;
            if next == NONE {
                self.occupied[list / 64] &= !(1 << (list % 64));
            }
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        self.entries[slot as usize].is_linked = false;
        self.len -= 1;
    }
}

const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn expired(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        let mut slots = Vec::new();
        wheel.expire(now_ns, &mut slots);
        slots.sort_unstable();
        slots
    }

    #[test]
    fn deadline_fires_within_a_tick_and_never_early() {
        let mut wheel = Wheel::new(3, 0);
        wheel.set(0, 10 * MS + 1);
        wheel.set(1, 10 * MS);
        wheel.set(2, 5000 * MS);
        assert_eq!(wheel.next_ns(), 10 * MS);
        assert!(expired(&mut wheel, 10 * MS - 1).is_empty());
        assert_eq!(expired(&mut wheel, 10 * MS), [1]);
        assert_eq!(expired(&mut wheel, 11 * MS), [0]);
        assert!(expired(&mut wheel, 4999 * MS).is_empty());
        assert_eq!(expired(&mut wheel, 5000 * MS), [2]);
        assert_eq!(wheel.next_ns(), u64::MAX);
    }

    #[test]
    fn later_deadline_does_not_fire_at_the_earlier_instant() {
        let mut wheel = Wheel::new(1, 0);
        wheel.set(0, 10 * MS);
        wheel.set(0, 30 * MS);
        assert!(expired(&mut wheel, 20 * MS).is_empty());
        assert_eq!(expired(&mut wheel, 30 * MS), [0]);
    }

    #[test]
    fn earlier_deadline_fires_at_its_own_instant() {
        let mut wheel = Wheel::new(2, 0);
        wheel.set(0, 5000 * MS);
        wheel.set(1, 5000 * MS);
        wheel.set(0, 3 * MS);
        assert_eq!(expired(&mut wheel, 3 * MS), [0]);
        assert_eq!(expired(&mut wheel, 5000 * MS), [1]);
    }

    #[test]
    fn cleared_deadline_does_not_fire() {
        let mut wheel = Wheel::new(1, 0);
        wheel.set(0, 3 * MS);
        wheel.set(0, 0);
        assert!(expired(&mut wheel, 9 * MS).is_empty());
        assert_eq!(wheel.next_ns(), u64::MAX);
    }

    #[test]
    fn long_absence_loses_nothing() {
        let mut wheel = Wheel::new(4, 0);
        for slot in 0..4 {
            wheel.set(slot, (u64::from(slot) + 1) * 700 * MS);
        }
        assert_eq!(expired(&mut wheel, 60_000 * MS), [0, 1, 2, 3]);
    }

    #[test]
    fn agrees_with_a_plain_list_of_deadlines() {
        // A small linear congruential generator: no outside randomness, the same in every run.
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let slots = 50;
        let mut wheel = Wheel::new(slots, 0);
        let mut plain = vec![0u64; slots as usize];
        let mut now_ns = 0;
        for _ in 0..20_000 {
            now_ns += random(3 * MS);
            let slot = random(u64::from(slots)) as u32;
            let deadline_ns = if random(4) == 0 { 0 } else { now_ns + 1 + random(1500 * MS) };
            wheel.set(slot, deadline_ns);
            plain[slot as usize] = deadline_ns;
            let due = plain.iter().filter(|&&d| d != 0).min().copied().unwrap_or(u64::MAX);
            assert!(wheel.next_ns() <= due.saturating_add(MS), "{} {due}", wheel.next_ns());
            for slot in expired(&mut wheel, now_ns) {
                let deadline_ns = std::mem::take(&mut plain[slot as usize]);
                assert!(deadline_ns != 0 && deadline_ns <= now_ns, "early");
            }
            for &deadline_ns in &plain {
                assert!(deadline_ns == 0 || deadline_ns + MS > now_ns, "late");
            }
        }
    }
}
