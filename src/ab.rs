//! `ab`: the same load on two endpoints in turn, and whether one of them is faster.
//!
//! A block has three runs in an order drawn from the seed: A, A once more as the control, and B,
//! all with the same schedule and each with connections of its own. The host drifts over minutes
//! and hits every side alike; what is left is in the control. `verdict` judges, `render` writes it
//! down.

mod render;
mod verdict;

use loadgen_shards::clock::Calibrator;
use loadgen_shards::order::{Order, SampleOrder};

use crate::cli::{Load, LoadFlags};
use crate::compare::{Arm, Gate, Judgement, Outcome, Run};
use crate::config::{Config, ReportDir};
use crate::cores::{CoreRequest, Host};
use crate::error::Error;
use crate::files;
use crate::load::{self, Done, Several};
use crate::plan::{self, Plan};
use verdict::{BLOCKS_MIN, FIGURES, Figure, Verdict};

/// The place of a run in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    A,
    Control,
    B,
}

impl Side {
    const ALL: [Side; 3] = [Side::A, Side::Control, Side::B];

    const fn name(self) -> &'static str {
        match self {
            Side::A => "a",
            Side::Control => "control",
            Side::B => "b",
        }
    }

    /// Of the two URLs.
    const fn url(self) -> usize {
        match self {
            Side::A | Side::Control => 0,
            Side::B => 1,
        }
    }

    /// Where its run of a block goes, both counted from 1: the control is every second run of A.
    fn folder(self, block: usize) -> String {
        match self {
            Side::A => files::part("a", 2 * block - 1),
            Side::Control => files::part("a", 2 * block),
            Side::B => files::part("b", block),
        }
    }
}

/// Everything that is told.
struct Experiment {
    /// The two URLs, secrets masked.
    urls: Vec<String>,
    seed: u64,
    /// Planned.
    blocks: usize,
    /// Block from 1, and side, of each run in order.
    plan: Vec<(usize, Side)>,
    /// In the order of [`FIGURES`].
    verdicts: Vec<(Figure, Option<Verdict>)>,
    judgements: Vec<Judgement>,
}

/// Runs the blocks and tells the verdict.
pub fn run(mut load: Load, calibrator: Calibrator) -> Result<u8, Error> {
    let believe_all = load.common.allow_untrusted;
    // Changes from A are no expressions of a run.
    let gates = std::mem::take(&mut load.flags.fail_if);
    let gates: Vec<Gate> = gates.iter().map(|text| Gate::parse(text)).collect::<Result<_, _>>()?;
    fill_in(&mut load.flags);
    let mut config = Config::from_cli(load)?;
    load::draw_seed(&mut config);
    check(&config)?;
    let is_default_directory = config.common.report_dir == ReportDir::Default;
    if is_default_directory {
        config.common.report_dir = ReportDir::Path(plan::default_directory("ab"));
    }
    let host = Host::read()?;
    let asked = load::ask(&mut config, None)?;
    let whole = Plan::build(config.clone(), &host, None, asked.as_ref())?;
    load::preflight(&whole)?;
    let setting = load::prepare(&whole, host, calibrator)?;
    if let Some(code) = setting.left_early() {
        return Ok(code);
    }
    let blocks = config.repeats as usize;
    let plan = order(blocks, config.common.seed);
    let mut runs = Several::begin(setting, &whole, plan.len(), is_default_directory, asked);
    for (index, (block, side)) in plan.iter().enumerate() {
        let name = format!("run {} of {}, block {block}, {}", index + 1, plan.len(), side.name());
        let config = side_config(&config, &whole, *block, *side);
        if !runs.perform(config, None, name, side.folder(*block)) {
            break;
        }
    }
    let all: Vec<&Run> = runs.done().iter().map(|done| &done.run).collect();
    let figures = FIGURES.into_iter().filter(|figure| figure.is_told(&all));
    let experiment = Experiment {
        urls: whole.endpoints.clone(),
        seed: config.common.seed,
        blocks,
        verdicts: figures.map(|figure| (figure, judge(figure, &plan, runs.done()))).collect(),
        judgements: gates.iter().map(|gate| gated(gate, &plan, &runs, believe_all)).collect(),
        plan,
    };
    let ending = runs.ending_with(experiment.gate_ending());
    let json = render::json(&experiment, runs.done(), &ending);
    let told = runs.tell(&config, &json, &render::text(&experiment, &runs));
    Ok(runs.close(ending, told))
}

/// What `ab` does where a load has another default.
fn fill_in(flags: &mut LoadFlags) {
    let is_endless = flags.duration.is_none() && flags.requests.is_none();
    if is_endless && flags.rate_series.is_none() {
        flags.duration = Some(DURATION.to_owned());
    }
    flags.repeats.get_or_insert_with(|| BLOCKS.to_string());
}

/// Flags that are right in a load and wrong here.
fn check(config: &Config) -> Result<(), Error> {
    if (config.repeats as usize) < BLOCKS_MIN {
        return Err(Error::usage(format!(
            "--repeats got `{}`; allowed in ab: {BLOCKS_MIN} to 1000 blocks, as with 3 a single \
             odd run decides",
            config.repeats
        )));
    }
    if config.precision.is_some() {
        return Err(Error::usage(
            "-d auto makes runs of different lengths, which ab cannot compare; allowed: a time",
        ));
    }
    if config.order != Order::Shuffle {
        return Err(Error::usage("--order has nothing to order in ab: each run has one URL"));
    }
    Ok(())
}

/// Each block in an order of its own.
fn order(blocks: usize, seed: u64) -> Vec<(usize, Side)> {
    let order = SampleOrder::new(Order::Shuffle, Side::ALL.len() as u32, seed);
    let runs = 0..(blocks * Side::ALL.len()) as u64;
    let block = |run: u64| run as usize / Side::ALL.len() + 1;
    runs.map(|run| (block(run), Side::ALL[order.sample(run) as usize])).collect()
}

/// The load of one run: what differs between sides is the URL, and between blocks the seed. Cores
/// and connections are those that both URLs together lead to.
fn side_config(config: &Config, whole: &Plan, block: usize, side: Side) -> Config {
    let mut config = load::seeded(config, block as u64 - 1);
    config.urls = vec![config.urls.swap_remove(side.url())];
    config.common.cores = CoreRequest::List(whole.cores.clone());
    config.common.spin = whole.config.common.spin;
    config.timer = whole.config.timer;
    config.connections = whole.config.connections;
    config.max_connections = whole.config.max_connections;
    config
}

/// Blocks of which a run is missing or lacks the figure are left out.
fn judge(figure: Figure, plan: &[(usize, Side)], done: &[Done]) -> Option<Verdict> {
    let value = |block: usize, side: Side| {
        let index = plan.iter().position(|run| *run == (block, side))?;
        figure.of(&done.get(index)?.run)
    };
    let blocks = 1..=plan.len() / Side::ALL.len();
    let values = |block: usize| {
        let [a, control, b] = Side::ALL.map(|side| value(block, side));
        Some([a?, control?, b?])
    };
    figure.judge(&blocks.filter_map(values).collect::<Vec<_>>())
}

/// As `compare` would judge all runs of A against those of B.
fn gated(gate: &Gate, plan: &[(usize, Side)], runs: &Several, believe_all: bool) -> Judgement {
    let arm = |name: &str, url: usize| {
        let of_arm = plan.iter().zip(runs.done()).filter(|((_, side), _)| side.url() == url);
        let runs: Vec<Run> = of_arm.map(|(_, done)| done.run.clone()).collect();
        Arm { name: name.to_owned(), label: name.to_owned(), runs, repetitions: 0 }
    };
    gate.judge(&arm("A", 0), &arm("B", 1), true, believe_all)
}

impl Experiment {
    /// The exit code that the gates ask for, and why.
    fn gate_ending(&self) -> Vec<(u8, String)> {
        let code = |judgement: &Judgement| match judgement.outcome {
            Outcome::Passed => None,
            Outcome::Failed => Some((4, "is true")),
            Outcome::Undefined => Some((1, "is not defined")),
            Outcome::Untrusted => Some((6, "is not to be believed")),
        };
        let told = |judgement: &Judgement| {
            let (code, what) = code(judgement)?;
            let Judgement { expression, detail, .. } = judgement;
            Some((code, format!("--fail-if '{expression}' {what}: {detail}")))
        };
        self.judgements.iter().filter_map(told).collect()
    }
}

/// Length of a run, if nothing else was asked for.
const DURATION: &str = "5s";
/// Blocks, likewise: the least number with a 95 % interval.
const BLOCKS: usize = 6;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_block_has_each_side_once_in_an_order_that_the_seed_draws() {
        let plan = order(60, 42);
        for (index, block) in plan.chunks(3).enumerate() {
            assert!(block.iter().all(|(number, _)| *number == index + 1), "{block:?}");
            for side in Side::ALL {
                assert_eq!(block.iter().filter(|run| run.1 == side).count(), 1, "{block:?}");
            }
        }
        let orders: BTreeSet<String> =
            plan.chunks(3).map(|block| format!("{:?}", [block[0].1, block[1].1])).collect();
        assert_eq!(orders.len(), 6, "all orders come up: {orders:?}");
        assert_eq!(order(60, 42), plan);
        assert_ne!(order(60, 43), plan);
    }

    #[test]
    fn each_run_has_a_folder_of_its_own() {
        let plan = order(5, 1);
        let folders: BTreeSet<String> =
            plan.iter().map(|(block, side)| side.folder(*block)).collect();
        assert_eq!(folders.len(), 15);
        assert_eq!(
            Side::ALL.map(|side| side.folder(3)),
            ["a-05", "a-06", "b-03"].map(str::to_owned)
        );
    }
}
