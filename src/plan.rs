//! From the typed configuration to a run: every limit decided, every name resolved, nothing left to
//! guess.
//!
//! The embedded endpoint is started between the two steps: [`embedded`] says whether there is one
//! and on which cores, [`Plan::build`] takes the address it listens on.

mod connections;
mod inference;
mod phases;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use loadgen_shards::order::Order;
use loadgen_shards::phase::{Goals, Overload, PhaseKind, Timeouts, Wait};
use loadgen_shards::query::{Address, RequestTable, Target};
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::schedule::SchedulePlan;

use crate::config::{self, Config, Keep, Precision, RateShape, ReportDir, ServeConfig, series};
use crate::cores::{self, Choice, CoreRequest, EndpointCores, Host, Need, Timer};
use crate::error::Error;
use crate::expression::{Expression, RequestFigure, RequestGoal};
use crate::number::counted;
use crate::request::{self, secret::Secrets};
use crate::tokenizer::Tokenizer;
use connections::{Connections, Cost};

pub use inference::{Asked, AskedRows, Inference, prompts_wanted};

/// Everything a session needs.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the session and the report read the fields of open loops next")]
pub struct Plan {
    /// What it came from, with every default filled in; written to `config.yaml`.
    pub config: Config,
    /// One shard on each, ascending kernel CPU ids.
    pub cores: Vec<usize>,
    /// How the cores were chosen, in words: "1 of 2 allowed cores, as the endpoint is on this
    /// host".
    pub cores_reason: String,
    /// `--cores` as typed.
    pub cores_flag: Option<String>,
    /// Who watches the schedule; in closed loop, inline or sleep.
    pub timer: Timer,
    /// How the timer was chosen, in words.
    pub timer_reason: String,
    /// Whether shards never sleep, in either loop.
    pub spin: bool,
    /// I/O back end asked for.
    pub engine: EngineChoice,
    /// The flags as typed, but for `-c`, `--cores`, `--report-dir`, those of the output and
    /// `rate_flags`.
    pub flags: Vec<String>,
    /// The flags as typed that only an open loop has.
    pub rate_flags: Vec<String>,
    /// What is sent, where to.
    pub table: RequestTable,
    /// The first request of the table is sent before the load, and not in it.
    pub has_preflight_request: bool,
    /// Requests behind it that are of the warm-up alone; 0: it has the same as the load.
    pub warmup_requests: u32,
    /// What is asked of an inference endpoint; `None`: plain HTTP.
    pub inference: Option<Inference>,
    /// The URLs for people, in the order of the table, secrets masked.
    pub endpoints: Vec<String>,
    /// What no message of the endpoint may show.
    pub secrets: Secrets,
    /// Connections over all shards together, opened before the first request.
    pub connections: u32,
    /// Most connections over all shards together; in closed loop, the same.
    pub max_connections: u32,
    /// What happens to a query for which none is free.
    pub overload: Overload,
    /// Which sample follows which.
    pub order: Order,
    /// Seed of the order.
    pub order_seed: u64,
    /// Warm-up, if any, then performance.
    pub phases: Vec<Phase>,
    /// Per query and connection.
    pub timeouts: Timeouts,
    /// Whether connections are reused.
    pub keepalive: bool,
    /// Statuses that count as success, inclusive.
    pub accept_status: (u16, u16),
    /// Whole run, ns; 0 = off.
    pub run_timeout_ns: u64,
    /// All in flight silent for so long ends the run, ns; 0 = off.
    pub response_idle_timeout_ns: u64,
    /// What ends the measured phase before its time, which is the budget then.
    pub precision: Option<Precision>,
    /// Longest time for the precision, ns.
    pub budget_ns: u64,
    /// How often the whole is run; 1: no repetition.
    pub repeats: u32,
    /// What must hold in the end.
    pub slo: Vec<Expression>,
    /// What must not be true in the end.
    pub fail_if: Vec<Expression>,
    /// What a query has to keep to count as good; empty: none is counted.
    pub goodput: Vec<RequestGoal>,
    /// Measure the floor of this host first.
    pub floor: bool,
    /// Kernel stamps for one query of so many.
    pub wire_stamps: Option<u32>,
    /// Any of these true ends the run; the user's.
    pub abort_if: Vec<Expression>,
    /// Every request failing for so long ends the run, ns; 0 = off, as the user gave rules of his
    /// own.
    pub abort_all_failed_ns: u64,
    /// What is kept of each query.
    pub records: Keep,
    /// Counts the tokens of answers after the run, where the endpoint has not.
    pub output_tokenizer: Option<Arc<Tokenizer>>,
    /// Where files go; `None`: nowhere.
    pub report_dir: Option<PathBuf>,
    /// The target is the endpoint embedded in this process.
    pub is_embedded: bool,
    /// What the user should know before the run; one stderr line each.
    pub notices: Vec<String>,
}

/// One phase of the run, over all shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// `warmup` or `performance`.
    pub name: String,
    /// Whether it is tracked.
    pub kind: PhaseKind,
    /// Queries in flight over all shards together; with a schedule, at most.
    pub in_flight: u32,
    /// When queries are due; `None` in closed loop.
    pub schedule: Option<SchedulePlan>,
    /// Stop after so many queries.
    pub requests: Option<u64>,
    /// Stop after so long.
    pub duration_ns: Option<u64>,
    /// How long to wait for the last answers; 0: the next phase goes on with them in flight.
    pub drain_timeout_ns: u64,
}

impl Phase {
    /// Queries that the schedule has, roughly; 0 in closed loop.
    pub fn expected(&self) -> u64 {
        let Some(schedule) = &self.schedule else { return 0 };
        let by_time = self.duration_ns.map(|ns| schedule.profile.expected(ns).ceil() as u64);
        let by_count = self.requests;
        by_time.into_iter().chain(by_count).min().unwrap_or(u64::MAX)
    }
}

/// Whether the run is against the embedded endpoint, and which cores that gets. Reads and resolves
/// nothing.
pub fn embedded(config: &Config, host: &Host) -> Result<Option<EndpointCores>, Error> {
    if !config.is_embedded() {
        return Ok(None);
    }
    let choice = choose(config, host, true)?;
    let taken: Vec<usize> = choice.cores.into_iter().chain(choice.timer.core()).collect();
    Ok(Some(cores::endpoint_cores(host, &taken)))
}

/// Cores of `serve`: those asked for, else the half that a load on the same host leaves free.
pub fn serve_cores(config: &ServeConfig, host: &Host) -> Result<Vec<usize>, Error> {
    let request = config.common.cores.clone();
    let is_default = request == CoreRequest::Default;
    let need = Need {
        request,
        connections: None,
        max_connections: None,
        timer: None,
        is_local: is_default,
        is_embedded: false,
        spin: false,
    };
    let cores = cores::choose(host, &need)?.cores;
    Ok(if is_default { cores::endpoint_cores(host, &cores).cores } else { cores })
}

impl Plan {
    /// Decides everything. `embedded` is where the embedded endpoint listens; needed when there is
    /// no URL. `asked`: what was read or made up; needed for an inference run and for targets.
    pub fn build(
        mut config: Config,
        host: &Host,
        embedded: Option<SocketAddr>,
        asked: Option<&Asked>,
    ) -> Result<Plan, Error> {
        let is_embedded = config.is_embedded();
        let Requests { table, has_preflight_request, warmup_requests, inference } =
            Requests::build(&mut config, embedded, asked)?;
        let endpoints =
            request::urls(&config, embedded).iter().map(request::url::Url::redacted).collect();
        let is_local = is_embedded || table.targets.iter().any(is_on_this_host);
        check_source(&config)?;
        let (flags, rate_flags) = (config::flags(&config), config::rate_flags(&config));
        let choice = choose(&config, host, is_local)?;
        let Choice { cores, reason, timer, timer_reason, mut notices } = choice;
        let cost = Cost::new(table.targets.len() as u64, cores.len() as u64, is_embedded);
        let Connections { opened, most, notice } =
            connections::open(&config, cores.len() as u32, cost)?;
        notices.extend(notice);
        notices.extend(proxy_notice(&config, |name| std::env::var(name).ok()));
        notices.extend(inference.iter().flat_map(skipped_notice));
        let load = open_loop(&mut config)?;
        let report_dir = report_dir(&config);
        let cores_flag = match &config.common.cores {
            CoreRequest::List(list) => Some(cores::list_text(list)),
            CoreRequest::Count(_) | CoreRequest::Default => None,
        };
        config.connections = Some(opened);
        config.max_connections = load.as_ref().map(|_| most);
        config.timer = load.as_ref().map(|_| timer.request());
        config.common.cores = CoreRequest::List(cores.clone());
        let spin = timer.wait() == Wait::Spin;
        config.common.spin = spin && load.is_none();
        config.common.report_dir = report_dir.clone().map_or(ReportDir::None, ReportDir::Path);
        Ok(Plan {
            cores,
            cores_reason: reason,
            cores_flag,
            timer,
            timer_reason,
            spin,
            engine: config.common.engine,
            flags,
            rate_flags,
            table,
            has_preflight_request,
            warmup_requests,
            inference,
            endpoints,
            secrets: inference::secrets(&config, asked),
            connections: opened,
            max_connections: most,
            overload: config.overload,
            order: config.order,
            order_seed: config.order_seed,
            phases: phases::phases(&config, most, load.as_ref()),
            timeouts: config.timeouts,
            keepalive: config.keepalive,
            accept_status: config.accept_status,
            run_timeout_ns: config.run_timeout_ns,
            response_idle_timeout_ns: config.response_idle_timeout_ns,
            precision: config.precision,
            budget_ns: config.budget_ns,
            repeats: config.repeats,
            slo: config.slo.clone(),
            fail_if: config.fail_if.clone(),
            goodput: config.goodput.clone(),
            floor: config.floor,
            wire_stamps: config.wire_stamps,
            abort_if: config.abort_if.clone(),
            abort_all_failed_ns: if config.abort_if.is_empty() { ABORT_ALL_FAILED_NS } else { 0 },
            records: config.records,
            output_tokenizer: asked.and_then(|asked| inference::output_tokenizer(&config, asked)),
            report_dir,
            is_embedded,
            notices,
            config,
        })
    }

    /// What a good query keeps, as the shards check it; `None`: none is counted.
    pub fn goals(&self) -> Option<Goals> {
        let mut goals = Goals::NONE;
        for goal in &self.goodput {
            match goal.figure {
                RequestFigure::Latency => goals.latency_ns = goal.at_most_ns,
                RequestFigure::Service => goals.service_ns = goal.at_most_ns,
                RequestFigure::Ttfb => goals.ttfb_ns = goal.at_most_ns,
                RequestFigure::Ttft => goals.ttft_ns = goal.at_most_ns,
                RequestFigure::ServiceTtft => goals.service_ttft_ns = goal.at_most_ns,
                RequestFigure::Tpot => goals.tpot_ns = goal.at_most_ns,
            }
        }
        (!self.goodput.is_empty()).then_some(goals)
    }

    /// Which requests of the table a phase sends.
    pub fn samples(&self, kind: PhaseKind) -> Range<u32> {
        let all = self.table.requests.len() as u32;
        let first = u32::from(self.has_preflight_request);
        let measured = first + self.warmup_requests;
        match kind {
            PhaseKind::Warmup if self.warmup_requests > 0 => first..measured,
            PhaseKind::Warmup | PhaseKind::Performance => measured..all,
        }
    }

    /// The request of the table that is sent before the load.
    pub fn preflight_request(&self) -> usize {
        match self.has_preflight_request {
            true => 0,
            false => self.samples(PhaseKind::Performance).start as usize,
        }
    }
}

/// What is sent.
struct Requests {
    table: RequestTable,
    has_preflight_request: bool,
    warmup_requests: u32,
    inference: Option<Inference>,
}

impl Requests {
    /// Puts rows into requests. Their number ends the run where nothing else does.
    fn build(
        config: &mut Config,
        embedded: Option<SocketAddr>,
        asked: Option<&Asked>,
    ) -> Result<Requests, Error> {
        let table = match asked {
            Some(asked) => inference::table(config, embedded, asked, &|_| {})?,
            None => request::table(config, embedded)?,
        };
        let (inference, has_preflight_request, warmup_requests) = match asked {
            Some(Asked::Rows(rows)) => {
                (Some(Inference::new(rows)), rows.has_preflight, rows.warmup as u32)
            }
            Some(Asked::Targets(_)) | None => (None, false, 0),
        };
        let before = warmup_requests + u32::from(has_preflight_request);
        let samples = table.requests.len() as u32 - before;
        check_order(config, samples)?;
        // Nothing repeats unless asked.
        if config.requests.is_none() && config.duration_ns.is_none() && inference.is_some() {
            config.requests = Some(u64::from(samples));
        }
        Ok(Requests { table, has_preflight_request, warmup_requests, inference })
    }
}

fn report_dir(config: &Config) -> Option<PathBuf> {
    match &config.common.report_dir {
        ReportDir::Default => Some(default_directory(config.command.name())),
        ReportDir::Path(path) => Some(path.clone()),
        ReportDir::None => None,
    }
}

fn is_on_this_host(target: &Target) -> bool {
    match &target.address {
        Address::Inet(address) => cores::is_local(address.ip()),
        Address::Unix(_) => true,
    }
}

/// A single sample has to be there.
fn check_order(config: &Config, samples: u32) -> Result<(), Error> {
    match config.order {
        Order::Single(index) if index >= samples => Err(Error::value(
            "--order",
            &format!("single={index}"),
            &format!("single=0 to single={}, as there are {samples} samples", samples - 1),
        )),
        _ => Ok(()),
    }
}

/// A proxy that other programs would use for https.
fn proxy_notice(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_https = config.urls.iter().any(|url| url.is_https);
    let is_set = |name: &&str| variable(name).is_some_and(|value| !value.is_empty());
    let name = PROXY_VARIABLES.iter().find(|name| is_https && is_set(name))?;
    Some(format!("{name} is set and not used: connections go straight to the endpoint"))
}

fn skipped_notice(inference: &Inference) -> Option<String> {
    let first = inference.first_skipped.as_deref().unwrap_or_default();
    (inference.skipped > 0).then(|| {
        let rows = counted(inference.skipped, "bad row");
        format!("{rows} of {} left out; {first}", inference.dataset)
    })
}

const PROXY_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// `results/<UTC time>-<command>`
pub fn default_directory(command: &str) -> PathBuf {
    PathBuf::from(format!("results/{}-{command}", utc_name(unix_seconds())))
}

fn choose(config: &Config, host: &Host, is_local: bool) -> Result<Choice, Error> {
    cores::choose(
        host,
        &Need {
            request: config.common.cores.clone(),
            connections: config.connections,
            max_connections: config.max_connections,
            timer: config.timer,
            is_local,
            is_embedded: config.is_embedded(),
            spin: config.common.spin,
        },
    )
}

/// Process and rates of an open loop. Reads the file of a series, which is as long as the run when
/// nothing else ends that.
fn open_loop(config: &mut Config) -> Result<Option<phases::Load>, Error> {
    let Some(arrivals) = &mut config.arrivals else { return Ok(None) };
    if let RateShape::Series { path, points } = &mut arrivals.rate {
        *points = series::read(path)?;
        let (length_ns, last_rate) = *points.last().expect("a series has a rate above 0");
        let is_given = config.duration_ns.is_some() || config.requests.is_some();
        if !is_given && length_ns > 0 {
            config.duration_ns = Some(length_ns);
        }
        let never_ends = config.requests.is_none() || last_rate == 0.0;
        if config.duration_ns.is_none() && never_ends {
            return Err(Error::usage(
                "--rate-series has its last line at time 0 or rate 0, so that nothing ends the \
                 run; give -d",
            ));
        }
    }
    phases::Load::new(arrivals, config.common.seed).map(Some)
}

/// An address that is not ours fails each connection; say so before.
fn check_source(config: &Config) -> Result<(), Error> {
    let Some(source) = config.source_ip else { return Ok(()) };
    match std::net::UdpSocket::bind((source, 0)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::setup(format!(
            "cannot bind --source-ip {source}: {error}; allowed: an address of this host (ip \
            -brief address)"
        ))),
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `2026-11-30T101502Z`: sorts by time, and holds nothing that a file system dislikes.
fn utc_name(unix_s: u64) -> String {
    let (year, month, day) = civil_from_days(unix_s / 86_400);
    let second = unix_s % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}{:02}{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of the Gregorian calendar for days since 1970-01-01. Years begin in March
/// here, so that the leap day is the last of the year; 400 years are an era of 146 097 days.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468; // from 0000-03-01
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153; // 0 = March
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

/// The default rule: nothing but failures for so long.
const ABORT_ALL_FAILED_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests;
