//! Which slots of a shard can carry the next query: per target a stack of idle connections and one
//! of closed slots.
//!
//! The last one used goes first: its memory is warm, here and in the kernel.

/// The free slots of each target.
#[derive(Debug)]
pub struct Pool {
    targets: Box<[Free]>,
}

#[derive(Debug)]
struct Free {
    idle: Vec<u32>,
    closed: Vec<u32>,
}

impl Pool {
    /// `slots_per_target` closed slots for each target: slot `t * slots_per_target + i` belongs to
    /// target `t`.
    pub fn new(targets: u32, slots_per_target: u32) -> Pool {
        let targets = (0..targets)
            .map(|target| {
                let first = target * slots_per_target;
                Free {
                    idle: Vec::with_capacity(slots_per_target as usize),
                    closed: (first..first + slots_per_target).rev().collect(),
                }
            })
            .collect();
        Pool { targets }
    }

    /// Takes an idle connection.
    pub fn take_idle(&mut self, target: u32) -> Option<u32> {
        self.targets[target as usize].idle.pop()
    }

    /// Takes a closed slot.
    pub fn take_closed(&mut self, target: u32) -> Option<u32> {
        self.targets[target as usize].closed.pop()
    }

    /// Whether a query for this target could be bound now.
    pub fn has_free(&self, target: u32) -> bool {
        let free = &self.targets[target as usize];
        !free.idle.is_empty() || !free.closed.is_empty()
    }

    /// Gives back a connection that carries nothing.
    pub fn put_idle(&mut self, target: u32, slot: u32) {
        self.targets[target as usize].idle.push(slot);
    }

    /// Gives back a slot without a socket.
    pub fn put_closed(&mut self, target: u32, slot: u32) {
        self.targets[target as usize].closed.push(slot);
    }

    /// An idle connection has died: it is no longer there to be taken. Linear in the idle ones, and
    /// rare.
    pub fn remove_idle(&mut self, target: u32, slot: u32) {
        let idle = &mut self.targets[target as usize].idle;
        let index = idle.iter().position(|&other| other == slot);
        idle.swap_remove(index.expect("an idle connection is in its stack"));
    }

    /// Queries that could be bound now, over all targets.
    pub fn free_count(&self) -> usize {
        self.targets.iter().map(|free| free.idle.len() + free.closed.len()).sum()
    }

    /// Closed slots of every target.
    #[cfg(test)]
    pub fn closed_count(&self) -> usize {
        self.targets.iter().map(|free| free.closed.len()).sum()
    }

    /// Idle connections of every target.
    pub fn idle_count(&self) -> usize {
        self.targets.iter().map(|free| free.idle.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_target_are_taken_once_and_come_back() {
        let mut pool = Pool::new(2, 3);
        let taken: Vec<u32> = std::iter::from_fn(|| pool.take_closed(1)).collect();
        assert_eq!(taken, [3, 4, 5]);
        assert!(!pool.has_free(1));
        assert!(pool.has_free(0), "targets do not share slots");
        pool.put_idle(1, 4);
        pool.put_idle(1, 3);
        pool.put_closed(1, 5);
        pool.remove_idle(1, 4);
        assert_eq!(pool.idle_count(), 1);
        assert_eq!((pool.take_idle(1), pool.take_idle(1)), (Some(3), None));
        assert_eq!(pool.take_closed(1), Some(5));
    }
}
