//! The life of a load: what is started, measured, told and ended, in order.
//!
//! `run` is one run of a plan, with everything that a user sees of it in `output`. What is made of
//! runs stands on it: `several` of one command, `repeats` of one plan, the `floor` before, and
//! [`crate::ab`]. `endpoint` is our own one, embedded or as `serve`.

mod endpoint;
mod floor;
mod inference;
mod output;
mod repeats;
mod run;
mod several;
mod signals;

use std::sync::atomic::{AtomicBool, Ordering};

use loadgen_bench::Endpoint;
use loadgen_shards::clock::Calibrator;
use loadgen_shards::sys::limits;

use crate::cli::Load;
use crate::config::{self, Config};
use crate::cores::Host;
use crate::error::Error;
use crate::plan::Plan;
use crate::report;
use crate::stream;
use run::{Role, Setting};
use signals::Signals;

pub use endpoint::serve;
pub use inference::{ask, draw_seed, preflight};
pub use repeats::seeded;
pub use several::{Done, Several};

/// Runs a load from the typed command line to the exit code.
pub fn run(load: Load, calibrator: Calibrator) -> Result<u8, Error> {
    let mut config = Config::from_cli(load)?;
    draw_seed(&mut config);
    let host = Host::read()?;
    let is_default_directory = config.common.report_dir == config::ReportDir::Default;
    // Before any thread is started, so that it costs nothing.
    limits::reserve_descriptors(DESCRIPTORS_USUAL);
    let endpoint = endpoint::start_embedded(&config, &host)?;
    let address = endpoint.as_ref().map(Endpoint::address);
    let asked = ask(&mut config, address)?;
    let plan = Plan::build(config.clone(), &host, address, asked.as_ref())?;
    // Before signals are ours, so that Ctrl-C leaves a server that does not answer.
    preflight(&plan)?;
    let mut setting = prepare(&plan, host, calibrator)?;
    if let Some(code) = setting.left_early() {
        return Ok(code);
    }
    if plan.repeats > 1 {
        let count = plan.repeats as usize;
        let several = Several::begin(setting, &plan, count, is_default_directory, asked);
        return repeats::run(&config, several, address);
    }
    // The requests are made: the rows would only take memory.
    drop(asked);
    let ended = run::perform(plan, Role::Alone { is_default_directory }, &mut setting)?;
    if let Some(reason) = ended.reason {
        stream::err(report::printable(&reason));
    }
    Ok(ended.code)
}

/// What the runs of a command share; the floor of this host first, if that is asked for. Signals
/// are ours from here on, and not before: a name server that does not answer is left by Ctrl-C as
/// in any program.
pub fn prepare(plan: &Plan, host: Host, calibrator: Calibrator) -> Result<Setting, Error> {
    let signals = Signals::install()?;
    let mut setting = Setting { host, signals, calibrator: Some(calibrator), floor: None };
    if plan.floor {
        match floor::measure(plan, &mut setting) {
            Ok(None) if setting.signals.taken() == 0 => stream::err("no floor: it was cut short"),
            Ok(floor) => setting.floor = floor,
            Err(error) => stream::err(report::printable(&format!("no floor: {error}"))),
        }
    }
    Ok(setting)
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

/// Descriptors of most runs against the embedded endpoint.
const DESCRIPTORS_USUAL: u64 = 1024;
