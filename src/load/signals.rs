//! Ctrl-C and its kin, counted over the whole life of the program.

use crossbeam_channel::{Receiver, unbounded};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::Error;

/// SIGINT and SIGTERM, in order.
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<i32>,
    taken: u32,
}

impl Signals {
    /// From now on they no longer end the program.
    pub fn install() -> Result<Signals, Error> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
            .map_err(|error| Error::setup(format!("cannot handle signals: {error}")))?;
        let (sender, receiver) = unbounded();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    let _ = sender.send(signal);
                }
            })
            .map_err(|error| Error::setup(format!("cannot start a thread: {error}")))?;
        Ok(Signals { receiver, taken: 0 })
    }

    /// Whether one has come that nobody has taken.
    pub fn is_waiting(&self) -> bool {
        !self.receiver.is_empty()
    }

    /// Takes the next one that has come: who wants the end, for the report.
    pub fn take(&mut self) -> Option<&'static str> {
        let signal = self.receiver.try_recv().ok()?;
        self.taken += 1;
        Some(if signal == SIGTERM { "stopped by SIGTERM" } else { "interrupted by Ctrl-C" })
    }

    /// How many have been taken: the first wants an end, the second wants it at once.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Sleeps until one comes.
    pub fn wait(&self) {
        let _ = self.receiver.recv();
    }
}
