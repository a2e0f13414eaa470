//! One run of a plan: shards and connections of its own, phases shown and written as they go, and
//! what is left in the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loadgen_shards::clock::Calibrator;
use loadgen_shards::phase::PhaseKind;
use loadgen_shards::sys::time::monotonic_ns;

use super::HAS_PANICKED;
use super::output::Output;
use super::signals::Signals;
use crate::cores::Host;
use crate::display;
use crate::error::Error;
use crate::plan::Plan;
use crate::progress::{Left, Seen, Stage, Tick, Window};
use crate::report::Floor;
use crate::session::Session;
use crate::snapshot::{Snapshot, State};
use crate::stream;

/// What a run has left; its files are written.
#[derive(Debug)]
pub struct Ended {
    /// What was measured.
    pub snapshot: Snapshot,
    /// The text of its `result_summary.json`.
    pub summary: String,
    /// The lines above it, for people.
    pub header: String,
    /// The exit code that it deserves alone.
    pub code: u8,
    /// Why it is not 0.
    pub reason: Option<String>,
}

/// What the runs of one command share.
pub struct Setting {
    /// The host that we are on.
    pub host: Host,
    /// Counted over all runs.
    pub signals: Signals,
    /// Begun with the program, for its first run.
    pub calibrator: Option<Calibrator>,
    /// Measured before, if it was asked for.
    pub floor: Option<Floor>,
}

impl Setting {
    /// The exit code, if the user wanted an end before the first run.
    pub fn left_early(&self) -> Option<u8> {
        let taken = self.signals.taken();
        if taken > 0 {
            stream::err("incomplete: stopped before the run began");
        }
        match taken {
            0 => None,
            1 => Some(1),
            _ => Some(130),
        }
    }
}

/// The place of a run among those of its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The only one: its result is told on stdout.
    Alone {
        /// The directory has a name of our choice, not the user's.
        is_default_directory: bool,
    },
    /// One of several: it has files and a name.
    Part {
        /// For the live view, as in `run 2 of 5`.
        name: String,
        /// It says what holds for all of them ...
        is_first: bool,
        /// ... and these are the URLs of all of them, secrets masked.
        urls: Vec<String>,
    },
}

/// Runs a plan from the first connection to the last file.
///
/// Control gets a thread of its own, as it makes itself nice: the shards of a later run would
/// inherit that, and nobody may take it back.
pub fn perform(plan: Plan, role: Role, setting: &mut Setting) -> Result<Ended, Error> {
    let plan = Arc::new(plan);
    let calibrator = setting.calibrator.take().unwrap_or_else(Calibrator::begin);
    let control = || {
        let output = Output::open(&plan, &setting.host, setting.floor.clone(), role);
        let session = Session::start(Arc::clone(&plan), calibrator)?;
        let signals = &mut setting.signals;
        Run { plan: Arc::clone(&plan), session, output, signals, phase_began_ns: 0 }.finish()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread
            .spawn_scoped(scope, control)
            .map_err(|error| Error::setup(format!("cannot start a thread: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A run that has been started.
struct Run<'a> {
    plan: Arc<Plan>,
    session: Session,
    output: Output,
    signals: &'a mut Signals,
    phase_began_ns: u64,
}

impl Run<'_> {
    fn finish(mut self) -> Result<Ended, Error> {
        self.output.connecting();
        let began_ns = monotonic_ns();
        let mut is_told = false;
        let is_ready = self.session.await_ready(|| {
            if !is_told && monotonic_ns() - began_ns > CONNECTING_NS {
                is_told = true;
                self.output.still_connecting();
            }
            self.signals.is_waiting()
        })?;
        let records = self.session.take_records();
        self.output.begin(self.session.snapshot(), records);
        if is_ready {
            self.session.begin();
            if self.measure() {
                return Ok(self.quit());
            }
        } else {
            let by = self.signals.take().unwrap_or_default();
            self.session.interrupted_by(&format!("{by} while the connections opened"));
        }
        Ok(self.output.end(self.session.finish()))
    }

    /// Until the run is over. True: the user wants out at once.
    fn measure(&mut self) -> bool {
        let interval_ns = self.plan.config.interval_ns;
        let mut window = Window::default();
        let mut shown_ns = monotonic_ns();
        self.phase_began_ns = shown_ns;
        loop {
            let output = &mut self.output;
            let is_over = self.session.poll(POLL, |recording| {
                window.add(recording);
                output.record(recording);
            });
            while let Some(by) = self.signals.take() {
                if self.interrupted(by) {
                    return true;
                }
            }
            if HAS_PANICKED.load(Ordering::Acquire) {
                self.session.interrupted_by("a shard failed; this is a bug of loadgen-uring");
                return false;
            }
            let now_ns = monotonic_ns();
            self.output.advance(self.session.snapshot(), now_ns);
            let since_ns = now_ns - shown_ns;
            if since_ns >= interval_ns || is_over {
                shown_ns = now_ns;
                let seen = window.take(since_ns);
                if !is_over {
                    let tick = self.tick(now_ns, since_ns, &seen);
                    self.output.tick(&tick, self.session.next_snapshot());
                }
            }
            if is_over {
                return false;
            }
        }
    }

    /// A signal was taken. True: it is the second.
    fn interrupted(&mut self, by: &str) -> bool {
        if self.signals.taken() > 1 {
            return true;
        }
        let in_flight = self.session.in_flight();
        self.output.say(&format!(
            "stopping, {} in flight, Ctrl-C again to quit",
            display::grouped(in_flight)
        ));
        self.session.stop(by);
        false
    }

    /// Writes what there is, and leaves without a drain.
    fn quit(mut self) -> Ended {
        self.session.cancel("interrupted twice");
        // The shards answer within a turn; a stuck one is not waited for.
        let deadline_ns = monotonic_ns() + QUIT_NS;
        let output = &mut self.output;
        while !self.session.poll(POLL, |recording| output.record(recording))
            && monotonic_ns() < deadline_ns
        {}
        let snapshot = self.session.next_snapshot().clone();
        self.output.quit(snapshot)
    }

    /// The numbers of the live view; `seen` in the last `since_ns`.
    fn tick(&mut self, now_ns: u64, since_ns: u64, seen: &Seen) -> Tick {
        let snapshot = self.session.snapshot();
        // A phase tells of itself only with its first recording: its planned start counts too.
        let is_due = |start_ns: u64| start_ns > 0 && start_ns <= now_ns;
        let is_stopped = snapshot.state == State::Interrupted;
        let is_begun = |index: &usize| {
            let phase = &snapshot.phases[*index];
            phase.state >= State::Live || (!is_stopped && is_due(phase.start_ns))
        };
        let index = (0..snapshot.phases.len()).rfind(is_begun).unwrap_or(0);
        let (phase, plan) = (&snapshot.phases[index], &self.plan.phases[index]);
        let began_ns = if phase.start_ns > 0 { phase.start_ns } else { self.phase_began_ns };
        let elapsed_ns = now_ns.saturating_sub(began_ns);
        let time_left = plan.duration_ns.map(|length_ns| length_ns.saturating_sub(elapsed_ns));
        let claimed = self.session.claimed(index);
        let requests_left = plan.requests.map(|count| count.saturating_sub(claimed));
        let stage = match plan.kind {
            _ if is_stopped => Stage::Stopping,
            _ if phase.state == State::Draining => Stage::Draining,
            PhaseKind::Warmup => Stage::Warmup,
            PhaseKind::Performance => Stage::Measuring,
        };
        let left = match (stage, time_left, requests_left) {
            (Stage::Draining | Stage::Stopping, ..) => {
                self.session.drain_left_ns(index).map_or(Left::Unknown, Left::Time)
            }
            (_, Some(ns), _) => Left::Time(ns),
            (_, None, Some(count)) => Left::Requests(count),
            (_, None, None) => Left::Unknown,
        };
        Tick {
            stage,
            elapsed_ns,
            left,
            rate: seen.rate,
            target: plan.schedule.as_ref().and_then(|schedule| {
                let begin_ns = elapsed_ns.saturating_sub(since_ns);
                let expected = |ns| schedule.profile.expected(ns);
                let due = expected(elapsed_ns) - expected(begin_ns);
                (elapsed_ns > begin_ns).then(|| due * 1e9 / (elapsed_ns - begin_ns) as f64)
            }),
            p50_ns: seen.p50_ns,
            p99_ns: seen.p99_ns,
            failed: phase.sums.counters.failed,
            in_flight: self.session.in_flight(),
            backlog: (seen.backlog * self.plan.cores.len() as f64).round() as u64,
            tokens: seen.tokens,
        }
    }
}

/// How long control sleeps when the shards have nothing to say; bounds the answer to Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// A handshake that takes longer is told of.
const CONNECTING_NS: u64 = 300_000_000;
/// How long the second Ctrl-C waits for the last recordings.
const QUIT_NS: u64 = 500_000_000;
