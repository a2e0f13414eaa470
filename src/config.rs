//! The typed configuration: every flag parsed once, here, into a value that cannot be wrong by
//! itself.
//!
//! Made from [`crate::cli`] by [`Config::from_cli`], turned into decisions by [`crate::plan`].
//! Nothing is read from the host: names, files, cores and limits are the plan's. A wrong value is a
//! usage error that names the flag, the value and what is allowed. [`to_yaml`] writes it in the
//! schema of `config.yaml`.

mod arrivals;
mod document;
mod flags;
pub mod series;
pub mod unit;
mod value;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use loadgen_shards::order::Order;
use loadgen_shards::phase::{Overload, Timeouts};
use loadgen_shards::reactor::EngineChoice;

use crate::cli::{Common, Load, LoadCommand, LoadFlags, Serve};
use crate::cores::{self, CoreRequest, TimerRequest};
use crate::error::{Error, shown};
use crate::expression::{Expression, RequestGoal};
use crate::request::url::{REDACTED, Secret, Url};
use crate::request::{Header, RequestShape};
use value::{Duration, each, optional, parse, positive_count};

pub use arrivals::{Arrivals, RampKind, RateShape};
pub use document::to_yaml;
pub use flags::flags;

/// A load command, typed.
#[derive(Clone, Debug)]
pub struct Config {
    /// The flags of every command.
    pub common: CommonConfig,
    /// Which load.
    pub command: LoadCommand,
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

/// `serve`, typed.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The flags of every command.
    pub common: CommonConfig,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Bytes of each response body.
    pub body_bytes: usize,
    /// Time between a request and its response, ns.
    pub delay_ns: u64,
}

impl Config {
    /// Types what was typed.
    pub fn from_cli(load: Load) -> Result<Config, Error> {
        let Load { command, flags, common } = load;
        let time = |flag, text: &Option<String>, default_ns| match text {
            Some(text) => parse(flag, text, unit::TIME_FORM, unit::time_ns),
            None => Ok(default_ns),
        };
        let arrivals = Arrivals::from_cli(command, &flags)?;
        let connections = optional(&flags.connections, value::connections)?;
        if command == LoadCommand::Concurrency && connections.is_none() {
            return Err(Error::usage(
                "concurrency needs -c N, the requests in flight, as in -c 32",
            ));
        }
        let common = CommonConfig::from_cli(common)?;
        let Stop { requests, duration_ns, precision, budget_ns } = Stop::from_cli(&flags)?;
        let config = Config {
            command,
            urls: each(&flags.urls, value::url)?,
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
            timeouts: Timeouts {
                request_ns: time("--timeout", &flags.timeout, 0)?,
                connect_ns: time("--connect-timeout", &flags.connect_timeout, CONNECT_TIMEOUT_NS)?,
                idle_ns: time("--idle-timeout", &flags.idle_timeout, 0)?,
            },
            drain_timeout_ns: time("--drain-timeout", &flags.drain_timeout, DRAIN_TIMEOUT_NS)?,
            run_timeout_ns: time("--run-timeout", &flags.run_timeout, 0)?,
            response_idle_timeout_ns: time(
                "--response-idle-timeout",
                &flags.response_idle_timeout,
                0,
            )?,
            slo: each(&flags.slo, |text| value::expression("--slo", text))?,
            fail_if: each(&flags.fail_if, |text| value::bad_sign("--fail-if", text))?,
            abort_if: each(&flags.abort_if, |text| value::bad_sign("--abort-if", text))?,
            goodput: optional(&flags.goodput, value::goodput)?.unwrap_or_default(),
            floor: flags.floor,
            wire_stamps: optional(&flags.wire_stamps, value::wire_stamps)?,
            interval_ns: optional(&flags.interval, value::interval)?.unwrap_or(unit::NS_PER_S),
            request: RequestShape::from_cli(flags)?,
            // In open loop the timer says who spins.
            common: CommonConfig { spin: common.spin && !command.is_open_loop(), ..common },
        };
        config.check_transport()?;
        config.check_load()?;
        Ok(config)
    }

    /// Load flags that are right alone and wrong together.
    fn check_load(&self) -> Result<(), Error> {
        if let (Some(connections), Some(most)) = (self.connections, self.max_connections)
            && connections > most
        {
            return Err(Error::usage(format!(
                "-c got `{connections}`, which is above --max-connections {most}; allowed: 1 to \
                 {most}"
            )));
        }
        let samples = self.urls.len().max(1);
        if let Order::Single(index) = self.order
            && index as usize >= samples
        {
            return Err(Error::value(
                "--order",
                &format!("single={index}"),
                &format!("single=0 to single={}, as there are {samples} URLs", samples - 1),
            ));
        }
        let flags = [("--slo", &self.slo), ("--fail-if", &self.fail_if)];
        for (flag, list) in flags.into_iter().chain([("--abort-if", &self.abort_if)]) {
            for expression in list {
                let needs = if self.arrivals.is_none() && expression.needs_schedule() {
                    "a schedule, which a closed loop does not have; allowed with poisson, \
                     constant and gamma"
                } else if self.goodput.is_empty() && expression.metric.needs_goodput() {
                    "to know what is good: --goodput 'latency:50ms'"
                } else {
                    continue;
                };
                let text = shown(&expression.text);
                return Err(Error::usage(format!("{flag} got `{text}`, which needs {needs}")));
            }
        }
        Ok(())
    }

    /// Where it goes: what is right alone and wrong together.
    fn check_transport(&self) -> Result<(), Error> {
        let is_embedded = self.urls.is_empty();
        let redirects = [
            ("--connect-to", !self.connect_to.is_empty()),
            ("--unix-socket", self.unix_socket.is_some()),
            ("--source-ip", self.source_ip.is_some()),
        ];
        let given: Vec<&str> =
            redirects.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
        if let (true, Some(flag)) = (is_embedded, given.first()) {
            return Err(Error::usage(format!(
                "{flag} needs a URL; without one the embedded endpoint is loaded"
            )));
        }
        if self.unix_socket.is_some() && given.len() > 1 {
            let other = if given[0] == "--unix-socket" { given[1] } else { given[0] };
            return Err(Error::usage(format!(
                "--unix-socket and {other} exclude each other; give one of them"
            )));
        }
        if let Some(path) = self.unix_socket.as_deref()
            && path.as_os_str().len() > UNIX_PATH_BYTES_MAX
        {
            return Err(Error::value(
                "--unix-socket",
                &path.to_string_lossy(),
                "a path of at most 107 bytes",
            ));
        }
        Ok(())
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

impl ServeConfig {
    /// The endpoint that runs in the process of a load without URL.
    pub fn embedded(config: &Config) -> ServeConfig {
        ServeConfig {
            common: config.common.clone(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            body_bytes: 100,
            delay_ns: 0,
        }
    }

    /// Types what was typed.
    pub fn from_cli(serve: Serve) -> Result<ServeConfig, Error> {
        let Serve { flags, common } = serve;
        let listen = flags.listen.as_deref().unwrap_or(LISTEN);
        let size = flags.body_bytes.as_deref().unwrap_or("100");
        let delay = flags.delay.as_deref().unwrap_or("0");
        Ok(ServeConfig {
            common: CommonConfig::from_cli(common)?,
            listen: parse("--listen", listen, LISTEN_FORM, |text| text.parse().ok())?,
            body_bytes: parse(
                "--body-bytes",
                size,
                &format!("{}, at most 1GiB", unit::SIZE_FORM),
                |text| {
                    unit::bytes(text).filter(|bytes| *bytes <= 1 << 30).map(|bytes| bytes as usize)
                },
            )?,
            delay_ns: parse("--delay", delay, unit::TIME_FORM, unit::time_ns)?,
        })
    }
}

impl RequestShape {
    fn from_cli(flags: LoadFlags) -> Result<RequestShape, Error> {
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
        };
        shape.check()?;
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
const SEED: u64 = 42;
const LISTEN: &str = "127.0.0.1:8080";
/// `sun_path` of a unix socket address, less its final NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;
const LISTEN_FORM: &str =
    "ADDR:PORT with a numeric address, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080";

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use loadgen_shards::schedule::Process;

    use super::*;
    use crate::cli::{self, Parsed};

    fn config(line: &[&str]) -> Result<Config, Error> {
        match cli::parse(line.iter().map(OsString::from))? {
            Parsed::Load(load) => Config::from_cli(*load),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn serve(line: &[&str]) -> Result<ServeConfig, Error> {
        match cli::parse(line.iter().map(OsString::from))? {
            Parsed::Serve(serve) => ServeConfig::from_cli(*serve),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let config = config(&["http://h/"]).expect("valid");
        assert_eq!(config.duration_ns, Some(10_000_000_000));
        assert_eq!(config.requests, None);
        assert_eq!(config.connections, None);
        assert_eq!(
            config.timeouts,
            Timeouts { request_ns: 0, connect_ns: 5_000_000_000, idle_ns: 0 }
        );
        assert_eq!(config.drain_timeout_ns, 30_000_000_000);
        assert_eq!((config.run_timeout_ns, config.response_idle_timeout_ns), (0, 0));
        assert_eq!(config.accept_status, (200, 299));
        assert_eq!(config.interval_ns, 1_000_000_000);
        assert!(config.keepalive);
        assert_eq!(config.common.seed, 42);
        assert_eq!(config.common.cores, CoreRequest::Default);
        assert_eq!(config.common.engine, EngineChoice::Auto);
        let serve = serve(&["serve"]).expect("valid");
        assert_eq!(serve.listen, "127.0.0.1:8080".parse().expect("valid"));
        assert_eq!((serve.body_bytes, serve.delay_ns), (100, 0));
    }

    #[test]
    fn a_stop_that_is_given_replaces_the_default_one() {
        let stop = |line: &[&str]| {
            let config = config(line).expect("valid");
            (config.duration_ns, config.requests)
        };
        assert_eq!(stop(&["http://h/", "-n", "10k"]), (None, Some(10_000)));
        assert_eq!(stop(&["http://h/", "-d", "1m30s"]), (Some(90_000_000_000), None));
        assert_eq!(stop(&["http://h/", "-d", "5", "-n", "7"]), (Some(5_000_000_000), Some(7)));
    }

    #[test]
    fn warmup_tells_a_time_from_a_count() {
        let warmup = |text| config(&["http://h/", "--warmup", text]).map(|config| config.warmup);
        assert_eq!(warmup("2s"), Ok(Some(Warmup::Time(2_000_000_000))));
        assert_eq!(warmup("2m"), Ok(Some(Warmup::Time(120_000_000_000))));
        assert_eq!(warmup("500"), Ok(Some(Warmup::Requests(500))));
        assert_eq!(warmup("2k"), Ok(Some(Warmup::Requests(2000))));
        for text in ["0", "0s", "x", "", "1.5"] {
            assert!(warmup(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_wrong_value_is_named_with_its_flag_and_what_is_allowed() {
        for (line, flag, says) in [
            (["-c", "0"], "-c", "from 1 to 1000000"),
            (["-c", "-5"], "-c", ""),
            (["-c", "1000001"], "-c", "from 1 to 1000000"),
            (["-c", "1,8,64"], "-c", "not in this version"),
            (["-c", "1..64"], "-c", "not in this version"),
            (["-n", "0"], "-n", "at least 1"),
            (["-n", "1.5"], "-n", "a whole number"),
            (["-d", "0"], "-d", "above 0"),
            (["-d", "10x"], "-d", "a plain number is seconds"),
            (["-d", "{\"a\":1}"], "-d", "given with -b"),
            (["-d", "auto"], "-d auto", "needs --precision"),
            (["--precision", "p99:5%"], "--precision", "needs -d auto"),
            (["--budget", "1m"], "--budget", "needs -d auto"),
            (["--budget", "0"], "--budget", "above 0"),
            (["--precision", "p99"], "--precision", "such as p99:5%"),
            (["--precision", "p99:0%"], "--precision", "above 0%"),
            (["--precision", "p99:5"], "--precision", "p99:5%"),
            (["--precision", "mean:5%"], "--precision", "a percentile"),
            (["--precision", "p99.9999:5%"], "--precision", "a percentile"),
            (["--repeats", "0"], "--repeats", "from 1 to 1000"),
            (["--order", "random2"], "--order", "shuffle, sequential, random"),
            (["--order", "single"], "--order", "single=I"),
            (["--order", "single="], "--order", "single=I"),
            (["--order", "single=-1"], "--order", "single=I"),
            (["--order", "single=1"], "--order", "single=0 to single=0"),
            (["--order-seed", "x"], "--order-seed", "whole number"),
            (["--wire-stamps", "100"], "--wire-stamps", "such as 1/100"),
            (["--wire-stamps", "1/0"], "--wire-stamps", "at least 1"),
            (["--wire-stamps", "1/x"], "--wire-stamps", "at least 1"),
            (["--slo", "p99"], "--slo", "shell"),
            (["--slo", "ttft.p99:5ms"], "--slo", "does not measure"),
            (["--slo", "lateness.p99:5us"], "--slo", "closed loop"),
            (["--slo", "goodput:95%"], "--slo", "--goodput"),
            (["--fail-if", "p99"], "--fail-if", "shell"),
            (["--fail-if", "p99:5ms"], "--fail-if", "must not"),
            (["--fail-if", "achieved<0.99*target"], "--fail-if", "closed loop"),
            (["--abort-if", "pool_wait.p99>1s"], "--abort-if", "closed loop"),
            (["--abort-if", "offered<5"], "--abort-if", "closed loop"),
            (["--goodput", "ttft:5ms"], "--goodput", "not in this version"),
            (["--goodput", ""], "--goodput", "latency, service and ttfb"),
            (["-d", "999999h"], "-d", "366 days"),
            (["--timeout", "soon"], "--timeout", "500ms"),
            (["--connect-timeout", "-1s"], "--connect-timeout", ""),
            (["--interval", "1ms"], "--interval", "250ms"),
            (["--accept-status", "2xx"], "--accept-status", "200-399"),
            (["--accept-status", "399-200"], "--accept-status", "200-399"),
            (["--accept-status", "99"], "--accept-status", "100-999"),
            (["--accept-status", "200-1000"], "--accept-status", "100-999"),
            (["--connect-to", "h:80"], "--connect-to", "HOST:PORT:ADDR:PORT"),
            (["--connect-to", "h:80:b:0"], "--connect-to", "HOST:PORT:ADDR:PORT"),
            (["--connect-to", "[::g]:80:b:1"], "--connect-to", "HOST:PORT:ADDR:PORT"),
            (["--source-ip", "eth0"], "--source-ip", "address of this host"),
            (["--engine", "kqueue"], "--engine", "auto, uring, epoll"),
            (["--ui", "tui"], "--ui", "not in this version"),
            (["--ui", "x"], "--ui", "auto, plain, none"),
            (["--seed", "-1"], "--seed", ""),
            (["--seed", "0x2a"], "--seed", "whole number"),
            (["--cores", "3-1"], "--cores", "3-1"),
            (["-t", "0"], "-t", "from 1"),
            (["-a", "user"], "-a", "USER:PASS"),
            (["-m", "GE T"], "-m", "token"),
            (["-H", "no colon here"], "-H", "Name: value"),
            (["--abort-if", "p99"], "--abort-if", "shell"),
            (["--abort-if", "p99:5ms"], "--abort-if", "must not"),
            (["--abort-if", "ttft.p99>5ms"], "--abort-if", "does not measure"),
            (["--report-dir", ""], "--report-dir", "none"),
        ] {
            let error = config(&["http://h/", line[0], line[1]]).expect_err(line[1]);
            assert_eq!(error.exit_code(), 2, "{line:?}");
            let text = error.to_string();
            assert!(text.contains(flag) && text.contains(says), "{line:?}: {text}");
            assert!(!text.contains('\n'), "{line:?}: {text}");
        }
        for (line, says) in [
            (vec!["concurrency", "http://h/"], "needs -c N"),
            (vec!["http://h/", "--cores", "0", "-t", "1"], "exclude each other"),
            (vec!["http://h/", "-b", "x", "--body-file", "y"], "exclude each other"),
            (vec!["http://h/", "--unix-socket", "/s", "--source-ip", "::1"], "exclude each other"),
            (vec!["max-throughput", "--unix-socket", "/s"], "needs a URL"),
            (vec!["https://h/"], "TLS, which is not in this version"),
            (vec!["http://user:geheim@h:x/"], "URL `http://<redacted>@h:x/` has the port"),
        ] {
            let error = config(&line).expect_err(says).to_string();
            assert!(error.contains(says) && !error.contains("geheim"), "{line:?}: {error}");
        }
        for (line, says) in [
            (["serve", "--listen", "localhost:80"], "numeric address"),
            (["serve", "--listen", "8080"], "127.0.0.1:8080"),
            (["serve", "--body-bytes", "2GiB"], "at most 1GiB"),
            (["serve", "--delay", "x"], "500ms"),
        ] {
            let error = serve(&line).expect_err(says).to_string();
            assert!(error.contains(says), "{line:?}: {error}");
        }
    }

    #[test]
    fn a_load_at_a_rate_is_typed_with_its_defaults() {
        let config = config(&["poisson", "http://h/", "-R", "90/m"]).expect("valid");
        let arrivals = Arrivals { process: Process::Poisson, rate: RateShape::Constant(1.5) };
        assert_eq!(config.arrivals, Some(arrivals));
        assert_eq!((config.connections, config.max_connections), (None, None));
        assert_eq!(config.overload, Overload::Queue);
        assert_eq!(config.timer, Some(TimerRequest::Auto));
        assert_eq!((config.order, config.order_seed), (Order::Shuffle, 42));
        assert_eq!(config.duration_ns, Some(10_000_000_000));
        assert_eq!((config.precision, config.repeats, config.wire_stamps), (None, 1, None));
        let closed = self::config(&["http://h/", "--seed", "7"]).expect("valid");
        assert_eq!((closed.arrivals, closed.timer, closed.order_seed), (None, None, 7));
    }

    #[test]
    fn every_process_and_rate_is_typed() {
        let arrivals = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            config(&words).expect(line).arrivals.expect("open loop")
        };
        let gamma = |shape| Process::Gamma { shape };
        for (line, process) in [
            ("poisson -R 5", Process::Poisson),
            ("constant -R 5", Process::Constant { jitter: 0.0 }),
            ("constant -R 5 --jitter 10%", Process::Constant { jitter: 0.1 }),
            ("constant -R 5 --jitter 50%", Process::Constant { jitter: 0.5 }),
            ("gamma -R 5", gamma(1.0)),
            ("gamma -R 5 --burstiness 0.25", gamma(0.25)),
            ("gamma -R 5 --burstiness 0.001", gamma(0.001)),
            ("gamma -R 5 --burstiness inf", Process::Constant { jitter: 0.0 }),
        ] {
            assert_eq!(arrivals(line).process, process, "{line}");
            assert!(process.is_valid(), "{line}");
        }
        let ramp = |kind, from, to, time_ns| RateShape::Ramp { kind, from, to, time_ns };
        for (line, rate) in [
            ("-R 0.5", RateShape::Constant(0.5)),
            ("-R 10M", RateShape::Constant(1e7)),
            ("-R 1/h", RateShape::Constant(1.0 / 3600.0)),
            (
                "-R 1k --ramp linear --ramp-from 10 --ramp-time 1m",
                ramp(RampKind::Linear, 10.0, 1000.0, 60_000_000_000),
            ),
            (
                "-R 1 --ramp exponential --ramp-from 2k --ramp-time 500ms",
                ramp(RampKind::Exponential, 2000.0, 1.0, 500_000_000),
            ),
            ("--rate-series f", RateShape::Series { path: "f".into(), points: Vec::new() }),
        ] {
            assert_eq!(arrivals(&format!("poisson {line}")).rate, rate, "{line}");
        }
        let series = config(&["poisson", "--rate-series", "f"]).expect("valid");
        assert_eq!(series.duration_ns, None, "as long as the series");
    }

    #[test]
    fn wrong_values_of_a_rate_name_the_flag_the_value_and_what_is_allowed() {
        for (line, says) in [
            ("poisson -R 0", "-R (--rate) got `0`; allowed: a rate above 0"),
            ("poisson -R -5", "got `-5`"),
            ("poisson -R NaN", "got `NaN`"),
            ("poisson -R inf", "got `inf`"),
            ("poisson -R 10000001", "at most 10M a second"),
            ("poisson -R 11M", "got `11M`"),
            ("poisson -R 5x", "got `5x`"),
            ("poisson -R 1,8,64", "a sweep over a list or range is not in this version"),
            ("poisson -R 1k..16k*2", "a sweep"),
            ("poisson -R 5 -c 1,8", "a sweep"),
            ("poisson", "poisson needs -R RATE"),
            ("constant http://h/", "constant needs -R RATE"),
            ("gamma -R 5 --burstiness 0", "--burstiness got `0`; allowed: a shape from 0.001"),
            ("gamma -R 5 --burstiness -1", "got `-1`"),
            ("gamma -R 5 --burstiness NaN", "got `NaN`"),
            ("gamma -R 5 --burstiness 0.0001", "inf (= constant)"),
            ("constant -R 5 --jitter 51%", "--jitter got `51%`; allowed"),
            ("constant -R 5 --jitter 0.1", "got `0.1`"),
            ("constant -R 5 --jitter -1%", "got `-1%`"),
            ("poisson -R 5 --ramp steep", "--ramp got `steep`; allowed: linear, exponential"),
            ("poisson -R 5 --ramp linear", "--ramp needs --ramp-from too"),
            ("poisson -R 5 --ramp-time 1m", "--ramp-time needs --ramp too"),
            ("poisson -R 5 --ramp linear --ramp-from 0 --ramp-time 1m", "--ramp-from got `0`"),
            ("poisson -R 5 --ramp linear --ramp-from 1 --ramp-time 0", "--ramp-time got `0`"),
            ("poisson -R 5 --rate-series f", "-R (--rate) and --rate-series exclude each other"),
            ("poisson --ramp linear --rate-series f", "--ramp and --rate-series exclude"),
            ("poisson -R 5 --max-connections 0", "--max-connections got `0`"),
            ("poisson -R 5 -c 9 --max-connections 8", "-c got `9`, which is above"),
            ("poisson -R 5 --overload wait", "--overload got `wait`; allowed: queue, drop"),
            ("poisson -R 5 --timer fast", "--timer got `fast`; allowed: auto, dedicated"),
            ("poisson -R 5 --timer-core x", "--timer-core got `x`"),
            ("poisson -R 5 --timer-core 0-1", "--timer-core got `0-1`"),
            ("poisson -R 5 --timer-core 9999", "--timer-core got `9999`"),
            ("poisson -R 5 --timer inline --timer-core 1", "--timer inline has no core"),
            ("poisson -R 5 --spin --timer sleep", "--spin and --timer sleep exclude each other"),
            ("poisson -R 5 --spin --timer hybrid", "--spin and --timer hybrid exclude"),
        ] {
            let words: Vec<&str> = line.split_whitespace().collect();
            let error = config(&words).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            let text = error.to_string();
            assert!(text.contains(says) && !text.contains('\n'), "{line}: {text}");
        }
    }

    #[test]
    fn timer_is_what_was_asked_for_and_spin_is_inline() {
        let timer = |line: &str| {
            let line = format!("poisson -R 5 {line}");
            let words: Vec<&str> = line.split_whitespace().collect();
            let config = config(&words).expect("valid");
            assert!(!config.common.spin, "{line}: the timer says it");
            config.timer.expect("open loop")
        };
        let dedicated = |core| TimerRequest::Dedicated { core };
        for (line, expected) in [
            ("", TimerRequest::Auto),
            ("--timer auto", TimerRequest::Auto),
            ("--timer hybrid", TimerRequest::Hybrid),
            ("--timer sleep", TimerRequest::Sleep),
            ("--timer inline", TimerRequest::Inline),
            ("--timer dedicated", dedicated(None)),
            ("--timer-core 3", dedicated(Some(3))),
            ("--timer auto --timer-core 3", dedicated(Some(3))),
            ("--timer dedicated --timer-core 3 --spin", dedicated(Some(3))),
            ("--spin", TimerRequest::Inline),
            ("--spin --timer inline", TimerRequest::Inline),
        ] {
            assert_eq!(timer(line), expected, "{line}");
        }
    }

    #[test]
    fn a_run_as_long_as_its_precision_needs_has_a_budget() {
        let auto = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let config = config(&words).expect(line);
            let Precision { milli_percent, share } = config.precision.expect("auto");
            (config.duration_ns, config.requests, milli_percent, share, config.budget_ns)
        };
        const S: u64 = unit::NS_PER_S;
        for (line, expected) in [
            ("http://h/ -d auto --precision p99:5%", (Some(900 * S), None, 99_000, 0.05, 900 * S)),
            (
                "poisson -R 5 -d auto --precision latency.p99.9:2.5% --budget 1m -n 50",
                (Some(60 * S), Some(50), 99_900, 0.025, 60 * S),
            ),
            (
                "concurrency -c 5 -d auto --precision median:100%",
                (Some(900 * S), None, 50_000, 1.0, 900 * S),
            ),
        ] {
            assert_eq!(auto(line), expected, "{line}");
        }
    }

    #[test]
    fn what_needs_a_schedule_or_goals_is_taken_where_they_are() {
        let config = config(&[
            "poisson",
            "-R",
            "5",
            "--slo",
            "lateness.p99:50us",
            "--slo",
            "goodput:95%",
            "--fail-if",
            "achieved<0.99*target",
            "--abort-if",
            "dropped>1%",
            "--goodput",
            "latency:50ms,ttfb:5ms",
            "--wire-stamps",
            "1/100",
            "--floor",
            "--repeats",
            "3",
        ])
        .expect("valid");
        assert_eq!((config.slo.len(), config.fail_if.len(), config.abort_if.len()), (2, 1, 1));
        assert!(config.fail_if[0].of_target);
        assert_eq!(config.goodput.len(), 2);
        assert_eq!((config.wire_stamps, config.floor, config.repeats), (Some(100), true, 3));
        let two = ["http://a/", "http://b/", "--order", "single=1"];
        assert_eq!(self::config(&two).expect("valid").order, Order::Single(1));
    }

    #[test]
    fn connect_to_has_four_parts_that_may_be_empty() {
        let text = |text: &str| Some(text.to_string());
        for (line, host, port, address, address_port) in [
            ("h:80:10.0.0.2:81", text("h"), Some(80), text("10.0.0.2"), Some(81)),
            ("[::1]:80:[::2]:81", text("::1"), Some(80), text("::2"), Some(81)),
            ("::b:81", None, None, text("b"), Some(81)),
            (":::", None, None, None, None),
        ] {
            let expected = ConnectTo { host, port, address, address_port };
            assert_eq!(value::connect_to(line), Ok(expected), "{line}");
        }
    }
}
