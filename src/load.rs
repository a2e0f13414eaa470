//! The life of one load run, and of `serve`: what is started, shown, written and ended, in order.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use loadgen_bench::{Endpoint, EndpointConfig};
use loadgen_shards::clock::Calibrator;
use loadgen_shards::phase::PhaseKind;
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::sys::limits;
use loadgen_shards::sys::time::monotonic_ns;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{Load, Serve};
use crate::config::{self, Config, ServeConfig, Ui};
use crate::cores::Host;
use crate::display;
use crate::error::Error;
use crate::files::{self, ReportDir};
use crate::plan::{self, Plan};
use crate::progress::{self, Left, Progress, Stage, Tick, Window};
use crate::report::{self, OpenFacts, Outcome, RunFacts};
use crate::session::Session;
use crate::snapshot::{self, Snapshot, State, check_conservation};
use crate::stream;

/// Runs a load from the typed command line to the exit code.
pub fn run(load: Load, calibrator: Calibrator) -> Result<u8, Error> {
    let config = Config::from_cli(load)?;
    let host = Host::read()?;
    let is_default_dir = config.common.report_dir == config::ReportDir::Default;
    // Before any thread is started, so that it costs nothing.
    limits::reserve_descriptors(DESCRIPTORS_USUAL);
    let endpoint = start_embedded(&config, &host)?;
    let address = endpoint.as_ref().map(Endpoint::address);
    let plan = Arc::new(Plan::build(config, &host, address)?);
    // Not before: a name server that does not answer is left by Ctrl-C as in any program.
    let signals = signals()?;
    let output = Output::open(&plan, &host, is_default_dir);
    let session = Session::start(Arc::clone(&plan), calibrator)?;
    Run { plan, session, output, signals, interrupts: 0, phase_began_ns: 0 }.finish()
}

/// A run that has been started.
struct Run {
    plan: Arc<Plan>,
    session: Session,
    output: Output,
    signals: Receiver<i32>,
    interrupts: u32,
    phase_began_ns: u64,
}

impl Run {
    fn finish(mut self) -> Result<u8, Error> {
        self.output.connecting();
        let signals = self.signals.clone();
        let began_ns = monotonic_ns();
        let mut is_told = false;
        let is_ready = self.session.await_ready(|| {
            if !is_told && monotonic_ns() - began_ns > CONNECTING_NS {
                is_told = true;
                self.output.still_connecting();
            }
            !signals.is_empty()
        })?;
        self.output.begin(self.session.snapshot());
        if is_ready {
            self.session.begin();
            if self.measure() {
                return Ok(self.quit());
            }
        } else {
            let by = self.signals.try_recv().map_or("", by_signal);
            self.session.interrupted_by(&format!("{by} while the connections opened"));
        }
        let snapshot = self.session.finish();
        Ok(self.output.end(&snapshot))
    }

    /// Until the run is over. True: the user wants out at once.
    fn measure(&mut self) -> bool {
        let interval_ns = self.plan.config.interval_ns;
        let mut window = Window::default();
        let mut shown_ns = monotonic_ns();
        self.phase_began_ns = shown_ns;
        loop {
            let is_over = self.session.poll(POLL, |recording| window.add(recording));
            while let Ok(signal) = self.signals.try_recv() {
                if self.interrupted(by_signal(signal)) {
                    return true;
                }
            }
            if HAS_PANICKED.load(Ordering::Acquire) {
                self.session.interrupted_by("a shard failed; this is a bug of loadgen-uring");
                return false;
            }
            let now_ns = monotonic_ns();
            let since_ns = now_ns - shown_ns;
            if since_ns >= interval_ns || is_over {
                shown_ns = now_ns;
                let (rate, p50_ns, p99_ns) = window.take(since_ns);
                if !is_over {
                    let tick = Tick { rate, p50_ns, p99_ns, ..self.tick(now_ns) };
                    self.output.tick(&tick, self.session.next_snapshot());
                }
            }
            if is_over {
                return false;
            }
        }
    }

    /// One more signal. True: it is the second.
    fn interrupted(&mut self, by: &str) -> bool {
        self.interrupts += 1;
        if self.interrupts > 1 {
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
    fn quit(mut self) -> u8 {
        self.session.cancel("interrupted twice");
        // The shards answer within a turn; a stuck one is not waited for.
        let deadline_ns = monotonic_ns() + QUIT_NS;
        while !self.session.poll(POLL, |_| {}) && monotonic_ns() < deadline_ns {}
        let snapshot = self.session.next_snapshot().clone();
        let facts = self.output.facts.clone();
        let _ = self.output.tell_results(&Outcome::of(&snapshot, &facts));
        let (code, reason) = report::exit_code(true, None, None);
        self.output.say(&reason.unwrap_or_default());
        code
    }

    /// The numbers of the live view, but for those of the interval.
    fn tick(&mut self, now_ns: u64) -> Tick {
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
            rate: 0.0,
            p50_ns: None,
            p99_ns: None,
            failed: phase.sums.counters.failed,
            in_flight: self.session.in_flight(),
        }
    }
}

/// Where everything that a user sees goes.
struct Output {
    plan: Arc<Plan>,
    facts: RunFacts,
    directory: Option<ReportDir>,
    /// The directory has a name of our choice, not the user's.
    is_default_directory: bool,
    progress: Progress<std::io::Stderr>,
    header: String,
}

impl Output {
    fn open(plan: &Arc<Plan>, host: &Host, is_default_directory: bool) -> Output {
        let common = &plan.config.common;
        let is_silenced = common.quiet || common.ui == Ui::None;
        let is_terminal = std::io::stderr().is_terminal();
        let mode = progress::mode(is_silenced, common.ui == Ui::Plain, is_terminal);
        let mut output = Output {
            plan: Arc::clone(plan),
            facts: run_facts(plan, host),
            directory: None,
            is_default_directory,
            progress: Progress::new(mode, std::io::stderr()),
            header: String::new(),
        };
        for notice in &plan.notices {
            output.say(notice);
        }
        if let Some(notice) = display::build_notice() {
            output.say(notice);
        }
        output
    }

    /// The directory for the files, once there is something to write.
    fn open_directory(&mut self) {
        let Some(path) = &self.plan.report_dir else { return };
        let is_default = self.is_default_directory;
        match if is_default { ReportDir::fresh(path) } else { ReportDir::named(path) } {
            Ok(directory) => {
                self.facts.report_dir = Some(directory.path().to_owned());
                self.directory = Some(directory);
            }
            Err(notice) => self.say(&notice),
        }
    }

    fn is_text_wanted(&self) -> bool {
        !self.plan.config.common.quiet && !self.plan.config.common.json
    }

    /// One line on stderr, below or instead of the live one.
    fn say(&mut self, line: &str) {
        let _ = self.progress.clear();
        stream::err(report::printable(line));
    }

    fn connecting(&mut self) {
        let _ = self.progress.show(&Tick {
            stage: Stage::Connecting,
            elapsed_ns: 0,
            left: Left::Unknown,
            rate: 0.0,
            p50_ns: None,
            p99_ns: None,
            failed: 0,
            in_flight: 0,
        });
    }

    /// The endpoint takes its time: say what is waited for, also where there is no live line.
    fn still_connecting(&mut self) {
        if self.is_text_wanted() {
            let endpoint = self.plan.endpoints.first().map_or("the endpoint", String::as_str);
            let line = format!("connecting to {endpoint}; the limit is --connect-timeout");
            self.say(&line);
        }
    }

    /// The header, as soon as the engine is known.
    fn begin(&mut self, snapshot: &Snapshot) {
        let _ = self.progress.clear();
        if !snapshot.engine.reason.is_empty() {
            self.say(&format!("using epoll: {}", snapshot.engine.reason));
        }
        let unpinned = snapshot.cores.iter().filter(|core| core.is_none()).count();
        if unpinned > 0 && snapshot.connections_open > 0 {
            self.say(&format!("{unpinned} shards could not be pinned to their cores"));
        }
        self.open_directory();
        self.header = display::header(&self.facts, &snapshot.engine);
        if self.is_text_wanted() {
            // A stdout that takes nothing is told at the end.
            let _ = stream::out(&self.header);
        }
        self.write(files::CONFIG, &config::to_yaml(&self.plan.config));
    }

    fn tick(&mut self, tick: &Tick, snapshot: &Snapshot) {
        let _ = self.progress.show(tick);
        if self.directory.is_some() {
            let text = snapshot::final_snapshot(snapshot, &self.facts.host);
            self.write(files::FINAL_SNAPSHOT, &text);
        }
    }

    /// Files, report, and the exit code with its reason.
    fn end(&mut self, snapshot: &Snapshot) -> u8 {
        let facts = self.facts.clone();
        let outcome = Outcome::of(snapshot, &facts);
        let is_told = self.tell_results(&outcome);
        for phase in &snapshot.phases {
            if let Err(mismatch) = check_conservation(phase) {
                panic!(
                    "the counts do not add up, so no figure above is to be believed: {mismatch}"
                );
            }
        }
        let (mut code, mut reason) = report::exit_code(false, None, Some(&outcome));
        if let (0, Err(error)) = (code, is_told) {
            code = 1;
            reason = Some(format!("the result could not be written to stdout: {error}"));
        }
        if let Some(reason) = reason {
            self.say(&reason);
        }
        code
    }

    /// Files, then what stdout gets.
    fn tell_results(&mut self, outcome: &Outcome) -> std::io::Result<()> {
        let _ = self.progress.clear();
        let text = self.write_results(outcome);
        if self.plan.config.common.json {
            stream::out(&report::result_summary(outcome))
        } else if self.is_text_wanted() {
            stream::out(&format!("\n{text}"))
        } else {
            Ok(())
        }
    }

    /// Every file of the report directory. Returns the text report.
    fn write_results(&mut self, outcome: &Outcome) -> String {
        let snapshot = outcome.snapshot;
        let text = display::report(outcome);
        if self.directory.is_some() {
            let final_snapshot = snapshot::final_snapshot(snapshot, &self.facts.host);
            self.write(files::FINAL_SNAPSHOT, &final_snapshot);
            self.write(files::RESULT_SUMMARY, &report::result_summary(outcome));
            for (index, phase) in snapshot.phases.iter().enumerate() {
                let summary = report::phase_summary(outcome, index);
                self.write(files::phase_summary(&phase.name), &summary);
            }
            self.write(files::REPORT, &format!("{}\n{text}", self.header));
        }
        text
    }

    /// One file. The first one that cannot be written is told, and is the last to be tried.
    fn write(&mut self, name: impl AsRef<std::path::Path>, text: &str) {
        let Some(directory) = &self.directory else { return };
        if let Err(error) = directory.write(&name, text) {
            let path = directory.path().join(name);
            self.directory = None;
            self.say(&format!("cannot write {}: {error}; no more files", path.display()));
        }
    }
}

fn run_facts(plan: &Plan, host: &Host) -> RunFacts {
    let is_taken = |core: &usize| plan.cores.contains(core) || plan.timer.core() == Some(*core);
    let is_free = |core: &usize| !is_taken(core) && !plan.is_embedded;
    RunFacts {
        command: plan.config.command.name().to_owned(),
        urls: plan.endpoints.clone(),
        cores_flag: plan.cores_flag.clone(),
        flags: plan.flags.clone(),
        connections: plan.connections,
        cores: plan.cores.clone(),
        cores_reason: plan.cores_reason.clone(),
        cores_free: host.allowed.iter().copied().filter(is_free).collect(),
        spin: plan.spin,
        is_embedded: plan.is_embedded,
        seed: plan.config.arrivals.as_ref().map(|_| plan.config.common.seed),
        order: config::order_text(plan.order),
        order_seed: Some(plan.order_seed),
        open: plan.config.arrivals.as_ref().map(|arrivals| OpenFacts {
            rate: arrivals.rate.clone(),
            timer: plan.timer,
            timer_reason: plan.timer_reason.clone(),
            max_connections: plan.max_connections,
            overload: plan.overload,
        }),
        slo: plan.slo.clone(),
        fail_if: plan.fail_if.clone(),
        is_untrusted_allowed: plan.config.common.allow_untrusted,
        phases: plan.phases.clone(),
        report_dir: None,
        host: snapshot::Host::read(),
    }
}

fn start_embedded(config: &Config, host: &Host) -> Result<Option<Endpoint>, Error> {
    let Some(cores) = plan::embedded(config, host)? else { return Ok(None) };
    // It sleeps unless it has a core of its own.
    let spin = !cores.is_shared && host.quota.is_none();
    start_endpoint(&ServeConfig::embedded(config), cores.cores, spin).map(Some)
}

fn start_endpoint(serve: &ServeConfig, cores: Vec<usize>, spin: bool) -> Result<Endpoint, Error> {
    let config = EndpointConfig {
        cores,
        address: serve.listen,
        body_bytes: serve.body_bytes,
        delay_ns: serve.delay_ns,
        spin,
        engine: serve.common.engine,
        connections: ENDPOINT_CONNECTIONS,
    };
    Endpoint::start(&config).map_err(Error::setup)
}

/// `serve`: the embedded endpoint alone, until a signal.
pub fn serve(serve: Serve) -> Result<u8, Error> {
    let config = ServeConfig::from_cli(serve)?;
    let host = Host::read()?;
    let signals = signals()?;
    let cores = plan::serve_cores(&config, &host)?;
    let threads = cores.len() as u64;
    // Each connection is a descriptor; the hard limit is as many as there can be.
    let _ = limits::raise_nofile(limits::nofile().hard.min(NOFILE_MAX));
    let mut endpoint = start_endpoint(&config, cores, config.common.spin)?;
    let engine = endpoint.engine();
    if !engine.reason.is_empty() && config.common.engine == EngineChoice::Auto {
        stream::err(format_args!("using epoll: {}", engine.reason));
    }
    let _ = stream::out(&format!(
        "serving http://{}/ on {} with {}, bodies of {} bytes; Ctrl-C ends it\n",
        endpoint.address(),
        display::counted(threads, "core"),
        engine.name,
        config.body_bytes
    ));
    let _ = signals.recv();
    let requests = endpoint.requests();
    endpoint.stop();
    let _ = stream::out(&format!("{} requests served\n", display::grouped(requests)));
    Ok(0)
}

/// SIGINT and SIGTERM, in order.
fn signals() -> Result<Receiver<i32>, Error> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
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
    Ok(receiver)
}

/// Who wants the end, for the report.
fn by_signal(signal: i32) -> &'static str {
    if signal == SIGTERM { "stopped by SIGTERM" } else { "interrupted by Ctrl-C" }
}

/// A shard that panics parks, and control writes what was measured; any other panic ends the
/// program as usual.
pub fn install_panic_hook() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        let thread = std::thread::current();
        if thread.name().is_some_and(|name| name.starts_with("shard-")) {
            HAS_PANICKED.store(true, Ordering::Release);
            loop {
                std::thread::park();
            }
        }
    }));
}

static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// How long control sleeps when the shards have nothing to say; bounds the answer to Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// A handshake that takes longer is told of.
const CONNECTING_NS: u64 = 300_000_000;
/// How long the second Ctrl-C waits for the last recordings.
const QUIT_NS: u64 = 500_000_000;
/// Connections that each thread of the endpoint has room for.
const ENDPOINT_CONNECTIONS: u32 = 16_384;
/// Descriptors of most runs against the embedded endpoint.
const DESCRIPTORS_USUAL: u64 = 1024;
/// Descriptors that `serve` asks for at most.
const NOFILE_MAX: u64 = 1 << 20;
