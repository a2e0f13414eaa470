//! When the requests of an open loop are due: the process, and its rate over time.

use std::path::PathBuf;

use loadgen_shards::schedule::Process;

use super::series::Series;
use super::unit;
use super::value::{optional, parse, refuse_sweep};
use crate::cli::{LoadCommand, LoadFlags};
use crate::error::Error;

/// Process and rate, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// How the gaps are drawn. `--burstiness inf` is a constant process.
    pub process: Process,
    /// Requests per second over the time since the phase began.
    pub rate: RateShape,
}

/// A rate over time; rates per second, over all shards together.
#[derive(Clone, Debug, PartialEq)]
pub enum RateShape {
    /// The same throughout.
    Constant(f64),
    /// From one rate to the other, and on there.
    Ramp {
        /// On which curve.
        kind: RampKind,
        /// At the start.
        from: f64,
        /// From the end of the ramp on: `-R`.
        to: f64,
        /// Length of the ramp, ns.
        time_ns: u64,
    },
    /// Straight lines between points.
    Series {
        /// The file with the points.
        path: PathBuf,
        /// Filled in by the plan, which reads the file.
        points: Series,
    },
}

/// The curve of a ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampKind {
    /// The same step each second.
    Linear,
    /// The same factor each second.
    Exponential,
}

impl RampKind {
    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            RampKind::Linear => "linear",
            RampKind::Exponential => "exponential",
        }
    }
}

impl Arrivals {
    /// What was typed for an open loop; `None` for the others.
    pub(super) fn from_cli(
        command: LoadCommand,
        flags: &LoadFlags,
    ) -> Result<Option<Arrivals>, Error> {
        let process = match command {
            LoadCommand::MaxThroughput | LoadCommand::Concurrency => return Ok(None),
            LoadCommand::Poisson => Process::Poisson,
            LoadCommand::Constant => {
                Process::Constant { jitter: optional(&flags.jitter, jitter)?.unwrap_or(0.0) }
            }
            LoadCommand::Gamma => match optional(&flags.burstiness, burstiness)?.unwrap_or(1.0) {
                f64::INFINITY => Process::Constant { jitter: 0.0 },
                shape => Process::Gamma { shape },
            },
        };
        Ok(Some(Arrivals { process, rate: RateShape::from_cli(command, flags)? }))
    }

    /// `--burstiness` of a process that `gamma` made.
    pub fn burstiness(&self) -> f64 {
        match self.process {
            Process::Poisson => 1.0,
            Process::Constant { .. } => f64::INFINITY,
            Process::Gamma { shape } => shape,
        }
    }
}

impl RateShape {
    /// What it begins with, and so what a warm-up has; `None` for points that have not been read.
    pub fn first(&self) -> Option<f64> {
        match self {
            RateShape::Constant(rate) => Some(*rate),
            RateShape::Ramp { from, .. } => Some(*from),
            RateShape::Series { points, .. } => {
                points.iter().map(|(_, rate)| *rate).find(|rate| *rate > 0.0)
            }
        }
    }

    fn from_cli(command: LoadCommand, flags: &LoadFlags) -> Result<RateShape, Error> {
        let rate = optional(&flags.rate, |text| {
            refuse_sweep("-R (--rate)", text)?;
            parse("-R (--rate)", text, unit::RATE_FORM, unit::load_rate)
        })?;
        let ramp = optional(&flags.ramp, ramp_kind)?;
        let from = optional(&flags.ramp_from, |text| {
            parse("--ramp-from", text, unit::RATE_FORM, unit::load_rate)
        })?;
        let time_ns = optional(&flags.ramp_time, |text| {
            let form = "a time above 0, such as 1m";
            parse("--ramp-time", text, form, |text| unit::time_ns(text).filter(|ns| *ns > 0))
        })?;
        let ramp_flags = [
            ("--ramp", ramp.is_some()),
            ("--ramp-from", from.is_some()),
            ("--ramp-time", time_ns.is_some()),
        ];
        let first = |is_given: bool| ramp_flags.iter().find(|(_, given)| *given == is_given);
        if let Some(path) = &flags.rate_series {
            let given = first(true).map(|(flag, _)| *flag).or(rate.map(|_| "-R (--rate)"));
            return match given {
                None => Ok(RateShape::Series { path: path.clone(), points: Series::new() }),
                Some(flag) => Err(Error::usage(format!(
                    "{flag} and --rate-series exclude each other: the file has the rates"
                ))),
            };
        }
        let Some(to) = rate else {
            return Err(Error::usage(format!(
                "{} needs -R RATE (--rate), the requests a second, as in -R 500",
                command.name()
            )));
        };
        match (ramp, from, time_ns) {
            (None, None, None) => Ok(RateShape::Constant(to)),
            (Some(kind), Some(from), Some(time_ns)) => {
                Ok(RateShape::Ramp { kind, from, to, time_ns })
            }
            _ => {
                let name =
                    |found: Option<&(&'static str, bool)>| found.map_or("", |(flag, _)| flag);
                Err(Error::usage(format!(
                    "{} needs {} too, as in --ramp linear --ramp-from 10 --ramp-time 1m",
                    name(first(true)),
                    name(first(false))
                )))
            }
        }
    }
}

fn jitter(text: &str) -> Result<f64, Error> {
    let form = "a share of the gap from 0% to 50%, such as 10%";
    parse("--jitter", text, form, |text| unit::share(text).filter(|share| *share <= 0.5))
}

fn burstiness(text: &str) -> Result<f64, Error> {
    let form =
        "a shape from 0.001 to 1000000 (below 1 in bursts, 1 = poisson), or inf (= constant)";
    parse("--burstiness", text, form, |text| match text {
        "inf" => Some(f64::INFINITY),
        _ => unit::decimal(text).filter(|shape| (SHAPE_MIN..=SHAPE_MAX).contains(shape)),
    })
}

fn ramp_kind(text: &str) -> Result<RampKind, Error> {
    match text {
        "linear" => Ok(RampKind::Linear),
        "exponential" => Ok(RampKind::Exponential),
        _ => Err(Error::value("--ramp", text, "linear, exponential")),
    }
}

/// Below it nearly all gaps are 0, above it they are constant.
const SHAPE_MIN: f64 = 0.001;
const SHAPE_MAX: f64 = 1e6;
