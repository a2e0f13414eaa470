//! The typed configuration: every flag parsed once, here, into a value that cannot be wrong by
//! itself.
//!
//! Made from [`crate::cli`] by [`Config::from_cli`], turned into decisions by [`crate::plan`].
//! Nothing is read from the host: names, files, cores and limits are the plan's. A wrong value is a
//! usage error that names the flag, the value and what is allowed. [`to_yaml`] writes it in the
//! schema of `config.yaml`.

mod arrivals;
mod check;
mod document;
mod flags;
pub mod inference;
pub mod series;
mod serve;
pub mod unit;
mod value;

use std::net::IpAddr;
use std::path::PathBuf;

use loadgen_shards::order::Order;
use loadgen_shards::phase::{Overload, Timeouts};
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::tls::TlsOptions;

use crate::cli::{Common, Load, LoadCommand, LoadFlags};
use crate::cores::{self, CoreRequest, TimerRequest};
use crate::error::{Error, shown};
use crate::expression::{Expression, RequestGoal};
use crate::request::url::{REDACTED, Secret, Url};
use crate::request::{Header, RequestShape};
use inference::Inference;
use value::{Duration, each, optional, parse, positive_count};

pub use arrivals::{Arrivals, RampKind, RateShape};
pub use document::{order_text, overload_text, to_yaml};
pub use flags::{flags, rate_flags};
pub use serve::ServeConfig;

/// A load command, typed.
#[derive(Clone, Debug)]
pub struct Config {
    /// The flags of every command.
    pub common: CommonConfig,
    /// Which load.
    pub command: LoadCommand,
    /// How TLS is spoken to https URLs.
    pub tls: TlsOptions,
    /// What is loaded, in turn; empty: the endpoint embedded in this process.
    pub urls: Vec<Url>,
    /// When requests are due; `None` in closed loop.
    pub arrivals: Option<Arrivals>,
    /// Connections over all shards together: each with a request in flight, or in open loop those
    /// opened before the first one. `None`: filled in by the plan.
    pub connections: Option<u32>,
    /// Most connections of an open loop; `None`: filled in by the plan.
    pub max_connections: Option<u32>,
    /// What an open loop does beyond them.
    pub overload: Overload,
    /// Who watches the schedule; `None` in closed loop.
    pub timer: Option<TimerRequest>,
    /// Stop after so many requests.
    pub requests: Option<u64>,
    /// Stop after so long; 10 s when neither stop was given, and with `-d auto` the budget. `None`
    /// too for a series of rates without a stop: its length, filled in by the plan.
    pub duration_ns: Option<u64>,
    /// `-d auto`: stop when this is reached.
    pub precision: Option<Precision>,
    /// Longest time of `-d auto`, ns.
    pub budget_ns: u64,
    /// How often the run is repeated; 1: no repetition.
    pub repeats: u32,
    /// Which sample follows which.
    pub order: Order,
    /// Seed of the order.
    pub order_seed: u64,
    /// Untracked phase before.
    pub warmup: Option<Warmup>,
    /// What is sent.
    pub request: RequestShape,
    /// What is asked of an inference endpoint; `None`: plain HTTP.
    pub inference: Option<Inference>,
    /// A file of requests, in place of URLs.
    pub targets: Option<PathBuf>,
    /// Statuses that count as success, inclusive.
    pub accept_status: (u16, u16),
    /// Other places to connect to, first match wins.
    pub connect_to: Vec<ConnectTo>,
    /// The one place to connect to.
    pub unix_socket: Option<PathBuf>,
    /// Local address to bind.
    pub source_ip: Option<IpAddr>,
    /// Whether connections are reused.
    pub keepalive: bool,
    /// Per query and connection.
    pub timeouts: Timeouts,
    /// Wait for the last answers of the performance phase, ns; 0 = none.
    pub drain_timeout_ns: u64,
    /// Whole run, ns; 0 = off.
    pub run_timeout_ns: u64,
    /// All in flight silent, ns; 0 = off.
    pub response_idle_timeout_ns: u64,
    /// What must hold in the end.
    pub slo: Vec<Expression>,
    /// What must not be true in the end.
    pub fail_if: Vec<Expression>,
    /// What ends the run early; empty: the default rule of the plan.
    pub abort_if: Vec<Expression>,
    /// What a request has to keep to count as good; empty: none is counted.
    pub goodput: Vec<RequestGoal>,
    /// Measure the floor of this host first.
    pub floor: bool,
    /// Kernel stamps for one request of so many.
    pub wire_stamps: Option<u32>,
    /// One line on screen and one snapshot written each.
    pub interval_ns: u64,
    /// What is kept of each request.
    pub records: Keep,
}

/// What is kept of each query, in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    #[default]
    Nothing,
    /// Instants and counts.
    Facts,
    /// The texts too.
    Texts,
}

impl Keep {
    /// In `config.yaml`.
    pub const fn name(self) -> &'static str {
        match self {
            Keep::Nothing => "none",
            Keep::Facts => "facts",
            Keep::Texts => "full",
        }
    }
}

/// The flags of every command, typed.
#[derive(Clone, Debug)]
pub struct CommonConfig {
    /// Which cores.
    pub cores: CoreRequest,
    /// I/O back end asked for.
    pub engine: EngineChoice,
    /// Shards never sleep.
    pub spin: bool,
    /// Result JSON on stdout.
    pub json: bool,
    /// No live view, no report.
    pub quiet: bool,
    /// Live view.
    pub ui: Ui,
    /// Where files go.
    pub report_dir: ReportDir,
    /// Seed of everything random.
    pub seed: u64,
    /// A FAIL of the trust block does not change the exit code.
    pub allow_untrusted: bool,
}

/// Live view on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ui {
    /// Plain on a terminal.
    Auto,
    /// A line an interval.
    Plain,
    /// Nothing.
    None,
}

/// Where files go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportDir {
    /// `results/<UTC time>-<command>`.
    Default,
    /// There.
    Path(PathBuf),
    /// Nowhere.
    None,
}

/// Length of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmup {
    /// For so long, ns.
    Time(u64),
    /// For so many requests.
    Requests(u64),
}

/// What `-d auto` waits for: a percentile of the latency known so well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// The percentile in thousandths of a percent: 99 000 is p99.
    pub milli_percent: u32,
    /// Half the width of its 95 % interval as a share of its value, above 0 and at most 1.
    pub share: f64,
}

/// `--connect-to HOST:PORT:ADDR:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTo {
    /// Host of the URL; `None` matches any.
    pub host: Option<String>,
    /// Port of the URL; `None` matches any.
    pub port: Option<u16>,
    /// Name or address to connect to; `None`: the URL's.
    pub address: Option<String>,
    /// Port to connect to; `None`: the URL's.
    pub address_port: Option<u16>,
}

impl Config {
    /// Types what was typed.
    pub fn from_cli(load: Load) -> Result<Config, Error> {
        let Load { command, flags, common } = load;
        let arrivals = Arrivals::from_cli(command, &flags)?;
        let connections = optional(&flags.connections, value::connections)?;
        if command == LoadCommand::Concurrency && connections.is_none() {
            return Err(Error::usage(
                "concurrency needs -c N, the requests in flight, as in -c 32",
            ));
        }
        let common = CommonConfig::from_cli(common)?;
        let urls = each(&flags.urls, value::url)?;
        let slo = each(&flags.slo, |text| value::expression("--slo", text))?;
        let fail_if = each(&flags.fail_if, |text| value::bad_sign("--fail-if", text))?;
        let abort_if = each(&flags.abort_if, |text| value::bad_sign("--abort-if", text))?;
        let goodput = optional(&flags.goodput, value::goodput)?.unwrap_or_default();
        let is_about_tokens = [&slo, &fail_if, &abort_if]
            .into_iter()
            .flatten()
            .any(|expression| expression.metric.is_of_answers())
            || goodput.iter().any(|goal| goal.figure.is_of_answers());
        let inference = Inference::from_cli(&flags, &urls, is_about_tokens)?;
        let api_key = match inference {
            Some(_) => inference::api_key(flags.inference.api_key.as_deref())?,
            None => None,
        };
        let has_rows = inference.is_some();
        let drain_timeout_ns = if has_rows { INFERENCE_DRAIN_TIMEOUT_NS } else { DRAIN_TIMEOUT_NS };
        let Stop { requests, duration_ns, precision, budget_ns } = Stop::from_cli(&flags)?;
        let config = Config {
            command,
            tls: inference::tls(&flags, &urls)?,
            urls,
            inference,
            targets: flags.inference.targets.clone(),
            records: match (flags.records, flags.records_full) {
                (_, true) => Keep::Texts,
                (true, false) => Keep::Facts,
                (false, false) => Keep::Nothing,
            },
            arrivals,
            connections,
            max_connections: optional(&flags.max_connections, value::max_connections)?,
            overload: optional(&flags.overload, value::overload)?.unwrap_or_default(),
            timer: value::timer(command, &flags, common.spin)?,
            requests,
            duration_ns,
            precision,
            budget_ns,
            repeats: optional(&flags.repeats, value::repeats)?.unwrap_or(1),
            order: optional(&flags.order, value::order)?.unwrap_or(Order::Shuffle),
            order_seed: optional(&flags.order_seed, |text| value::seed("--order-seed", text))?
                .unwrap_or(common.seed),
            warmup: optional(&flags.warmup, value::warmup)?,
            accept_status: optional(&flags.accept_status, value::statuses)?.unwrap_or((200, 299)),
            connect_to: each(&flags.connect_to, value::connect_to)?,
            unix_socket: flags.unix_socket.clone(),
            source_ip: optional(&flags.source_ip, value::source)?,
            keepalive: !flags.disable_keepalive,
            timeouts: timeouts(&flags)?,
            drain_timeout_ns: time("--drain-timeout", &flags.drain_timeout, drain_timeout_ns)?,
            run_timeout_ns: time("--run-timeout", &flags.run_timeout, 0)?,
            response_idle_timeout_ns: time(
                "--response-idle-timeout",
                &flags.response_idle_timeout,
                0,
            )?,
            slo,
            fail_if,
            abort_if,
            goodput,
            floor: flags.floor,
            wire_stamps: optional(&flags.wire_stamps, value::wire_stamps)?,
            interval_ns: optional(&flags.interval, value::interval)?.unwrap_or(unit::NS_PER_S),
            request: RequestShape::from_cli(flags, has_rows, api_key)?,
            // In open loop the timer says who spins.
            common: CommonConfig { spin: common.spin && !command.is_open_loop(), ..common },
        };
        config.check_transport()?;
        config.check_load()?;
        Ok(config)
    }

    /// Whether the endpoint in this process is loaded.
    pub fn is_embedded(&self) -> bool {
        self.urls.is_empty() && self.targets.is_none()
    }
}

/// What ends a run.
struct Stop {
    requests: Option<u64>,
    duration_ns: Option<u64>,
    precision: Option<Precision>,
    budget_ns: u64,
}

impl Stop {
    fn from_cli(flags: &LoadFlags) -> Result<Stop, Error> {
        let requests = optional(&flags.requests, value::requests)?;
        let precision = optional(&flags.precision, value::precision)?;
        let budget_ns = optional(&flags.budget, value::budget)?;
        let duration = optional(&flags.duration, value::duration)?;
        let is_auto = duration == Some(Duration::Auto);
        if is_auto && precision.is_none() {
            return Err(Error::usage(
                "-d auto needs --precision, how well to know what, as in --precision p99:5%",
            ));
        }
        let of_auto = [("--precision", precision.is_some()), ("--budget", budget_ns.is_some())];
        if let Some((flag, _)) = of_auto.into_iter().find(|(_, is_given)| *is_given && !is_auto) {
            return Err(Error::usage(format!("{flag} needs -d auto, the run that it ends")));
        }
        let budget_ns = budget_ns.unwrap_or(BUDGET_NS);
        let duration_ns = match duration {
            Some(Duration::Time(ns)) => Some(ns),
            Some(Duration::Auto) => Some(budget_ns),
            None if requests.is_some() || flags.rate_series.is_some() => None,
            // One pass.
            None if flags.inference.dataset.is_some() => None,
            None => Some(DURATION_NS),
        };
        Ok(Stop { requests, duration_ns, precision, budget_ns })
    }
}

impl CommonConfig {
    /// Types what was typed.
    pub fn from_cli(common: Common) -> Result<CommonConfig, Error> {
        let cores = match (&common.cores, &common.threads) {
            (None, None) => CoreRequest::Default,
            (Some(list), None) => match cores::parse_list(list) {
                Ok(list) => CoreRequest::List(list),
                Err(why) => {
                    return Err(Error::usage(format!("--cores got `{}`, {why}", shown(list))));
                }
            },
            (None, Some(count)) => {
                let limit = cores::CORE_ID_MAX as u64 + 1;
                let form = format!("a number of shards from 1 to {limit}");
                let count = parse("-t (--threads)", count, &form, |text| {
                    positive_count(text).filter(|count| *count <= limit)
                })?;
                CoreRequest::Count(count as usize)
            }
            (Some(_), Some(_)) => {
                return Err(Error::usage(
                    "--cores and -t exclude each other: --cores names the cores, -t N takes the \
                    first N",
                ));
            }
        };
        let engine = match common.engine.as_deref() {
            None | Some("auto") => EngineChoice::Auto,
            Some("uring") => EngineChoice::Uring,
            Some("epoll") => EngineChoice::Epoll,
            Some(other) => return Err(Error::value("--engine", other, "auto, uring, epoll")),
        };
        let ui = match common.ui.as_deref() {
            None | Some("auto") => Ui::Auto,
            Some("plain") => Ui::Plain,
            Some("none") => Ui::None,
            Some("tui") => {
                return Err(Error::usage(
                    "--ui tui is not in this version; allowed: auto, plain, none",
                ));
            }
            Some(other) => return Err(Error::value("--ui", other, "auto, plain, none")),
        };
        let report_dir = match common.report_dir {
            None => ReportDir::Default,
            Some(path) if path.as_os_str() == "none" => ReportDir::None,
            Some(path) if path.as_os_str().is_empty() => {
                return Err(Error::value("--report-dir", "", "a directory, or none"));
            }
            Some(path) => ReportDir::Path(path),
        };
        let seed = optional(&common.seed, |text| value::seed("--seed", text))?.unwrap_or(SEED);
        let Common { spin, json, quiet, allow_untrusted, .. } = common;
        Ok(CommonConfig { cores, engine, spin, json, quiet, ui, report_dir, seed, allow_untrusted })
    }
}

/// Limits of each request and connection.
fn timeouts(flags: &LoadFlags) -> Result<Timeouts, Error> {
    Ok(Timeouts {
        request_ns: time("--timeout", &flags.timeout, 0)?,
        connect_ns: time("--connect-timeout", &flags.connect_timeout, CONNECT_TIMEOUT_NS)?,
        ttft_ns: time("--ttft-timeout", &flags.ttft_timeout, 0)?,
        idle_ns: time("--idle-timeout", &flags.idle_timeout, 0)?,
    })
}

fn time(flag: &'static str, text: &Option<String>, default_ns: u64) -> Result<u64, Error> {
    match text {
        Some(text) => parse(flag, text, unit::TIME_FORM, unit::time_ns),
        None => Ok(default_ns),
    }
}

impl RequestShape {
    fn from_cli(
        flags: LoadFlags,
        has_rows: bool,
        api_key: Option<Secret>,
    ) -> Result<RequestShape, Error> {
        let headers =
            flags.header.iter().map(|text| Header::parse(text)).collect::<Result<_, _>>()?;
        if flags.body.is_some() && flags.body_file.is_some() {
            return Err(Error::usage("-b and --body-file exclude each other; give one of them"));
        }
        if let Some(auth) = &flags.auth
            && !auth.contains(':')
        {
            return Err(Error::value("-a (--auth)", REDACTED, "USER:PASS"));
        }
        let shape = RequestShape {
            method: flags.method,
            headers,
            body: flags.body,
            body_file: flags.body_file,
            content_type: flags.content_type,
            auth: flags.auth.map(Secret),
            api_key,
        };
        shape.check(has_rows)?;
        Ok(shape)
    }
}

/// Most connections of one run; a shard's slots are u32 and each needs a descriptor, so this is far
/// above any host.
pub const CONNECTIONS_MAX: u32 = 1_000_000;
const DURATION_NS: u64 = 10 * unit::NS_PER_S;
const BUDGET_NS: u64 = 900 * unit::NS_PER_S;
const CONNECT_TIMEOUT_NS: u64 = 5 * unit::NS_PER_S;
const DRAIN_TIMEOUT_NS: u64 = 30 * unit::NS_PER_S;
/// Answers of models take their time.
const INFERENCE_DRAIN_TIMEOUT_NS: u64 = 240 * unit::NS_PER_S;
const SEED: u64 = 42;

#[cfg(test)]
mod tests;
