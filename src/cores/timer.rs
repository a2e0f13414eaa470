//! Who watches the schedule of an open loop, and on which core.

use loadgen_shards::phase::Wait;

use super::{Host, list_text};
use crate::error::Error;

/// `--timer`, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerRequest {
    /// Ours to choose.
    Auto,
    /// See [`Timer::Inline`].
    Inline,
    /// See [`Timer::Hybrid`].
    Hybrid,
    /// See [`Timer::Sleep`].
    Sleep,
    /// See [`Timer::Dedicated`].
    Dedicated {
        /// `--timer-core`.
        core: Option<usize>,
    },
}

impl TimerRequest {
    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            TimerRequest::Auto => "auto",
            TimerRequest::Inline => "inline",
            TimerRequest::Hybrid => "hybrid",
            TimerRequest::Sleep => "sleep",
            TimerRequest::Dedicated { .. } => "dedicated",
        }
    }

    /// Whether it takes a core of its own.
    pub const fn is_dedicated(self) -> bool {
        matches!(self, TimerRequest::Dedicated { .. })
    }
}

/// Who watches the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Each shard, which never sleeps.
    Inline,
    /// Each shard, which sleeps until shortly before an instant, then spins.
    Hybrid,
    /// Each shard, which sleeps until the instant and wakes late.
    Sleep,
    /// A thread that spins on a core of its own and hands over what is due; the shards spin too.
    Dedicated {
        /// None of the shards'.
        core: usize,
    },
}

impl Timer {
    /// As typed.
    pub const fn name(self) -> &'static str {
        self.request().name()
    }

    /// What asks for this timer again.
    pub const fn request(self) -> TimerRequest {
        match self {
            Timer::Inline => TimerRequest::Inline,
            Timer::Hybrid => TimerRequest::Hybrid,
            Timer::Sleep => TimerRequest::Sleep,
            Timer::Dedicated { core } => TimerRequest::Dedicated { core: Some(core) },
        }
    }

    /// How the shards pass the time under it.
    pub const fn wait(self) -> Wait {
        match self {
            Timer::Inline | Timer::Dedicated { .. } => Wait::Spin,
            Timer::Hybrid => Wait::Hybrid,
            Timer::Sleep => Wait::Sleep,
        }
    }

    /// Its own core.
    pub const fn core(self) -> Option<usize> {
        match self {
            Timer::Dedicated { core } => Some(core),
            Timer::Inline | Timer::Hybrid | Timer::Sleep => None,
        }
    }
}

/// The timer for a request, given why no shard may spin, if there is a reason, and the core of a
/// dedicated one; with how it was chosen, in words, and a notice if it is not what was asked for.
pub(super) fn decide(
    request: TimerRequest,
    core: Option<usize>,
    no_spin: Option<&str>,
) -> (Timer, String, Option<String>) {
    let timer = match (request, core) {
        (TimerRequest::Dedicated { .. }, Some(core)) => Timer::Dedicated { core },
        (TimerRequest::Inline, _) => Timer::Inline,
        (TimerRequest::Sleep, _) => Timer::Sleep,
        (TimerRequest::Auto | TimerRequest::Hybrid | TimerRequest::Dedicated { .. }, _) => {
            Timer::Hybrid
        }
    };
    let asked = match request {
        TimerRequest::Auto => "the default".to_string(),
        _ => format!("--timer {}", request.name()),
    };
    match no_spin {
        Some(why) if timer != Timer::Sleep => {
            let notice = (request != TimerRequest::Auto).then(|| {
                format!("{asked} is replaced by sleep: {why}, so it would only slow the run")
            });
            (Timer::Sleep, format!("in place of {}, as {why}", timer.name()), notice)
        }
        _ => (timer, asked, None),
    }
}

/// The core of `--timer-core`, if it may be used at all.
pub(super) fn check_core(host: &Host, core: usize) -> Result<(), Error> {
    if !host.allowed.contains(&core) {
        return Err(Error::setup(format!(
            "--timer-core got `{core}`, which this process may not use; allowed here: {} (affinity \
             mask; see taskset -p $$)",
            list_text(&host.allowed)
        )));
    }
    if host.allowed.len() == 1 {
        return Err(Error::setup(format!(
            "--timer-core got `{core}`, the only core that this process may use, so that none is \
             left for a shard; type --timer hybrid"
        )));
    }
    Ok(())
}

/// A timer core that `--cores` names as well.
pub(super) fn check_apart(core: usize, list: &[usize]) -> Result<(), Error> {
    if !list.contains(&core) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--timer-core got `{core}`, which is a shard's core in --cores {}; allowed: a core that \
         --cores does not name",
        list_text(list)
    )))
}

/// The first allowed core without a shard.
pub(super) fn free_core(host: &Host, shards: &[usize]) -> Result<usize, Error> {
    let free = host.allowed.iter().copied().find(|core| !shards.contains(core));
    free.ok_or_else(|| {
        let fewer = shards.len().saturating_sub(1);
        let remedy = match fewer {
            0 => "type --timer hybrid".to_string(),
            _ => format!("leave it one: --cores {}, or -t {fewer}", list_text(&shards[..fewer])),
        };
        Error::setup(format!(
            "--timer dedicated needs an allowed core without a shard, but the shards have all: {}; \
             {remedy}",
            list_text(shards)
        ))
    })
}
