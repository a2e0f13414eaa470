//! The typed configuration: every flag parsed once, here, into a value that cannot be wrong by
//! itself.
//!
//! Made from [`crate::cli`] by [`Config::from_cli`], turned into decisions by [`crate::plan`].
//! Nothing is read from the host: names, files, cores and limits are the plan's. A wrong value is a
//! usage error that names the flag, the value and what is allowed. [`to_yaml`] writes it in the
//! schema of `config.yaml`.

mod document;
mod flags;
pub mod unit;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use loadgen_shards::phase::Timeouts;
use loadgen_shards::reactor::EngineChoice;

use crate::cli::{Common, Load, LoadCommand, Serve, WORKS_NOW};
use crate::cores::{self, CoreRequest};
use crate::error::{Error, shown};
use crate::expression::Expression;
use crate::request::url::{REDACTED, Secret, Url, masked, parse_port};
use crate::request::{Header, RequestShape};

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
    /// Connections over all shards together; `None`: 64 per shard, filled in by the plan.
    pub connections: Option<u32>,
    /// Stop after so many requests.
    pub requests: Option<u64>,
    /// Stop after so long; 10 s when neither stop was given.
    pub duration_ns: Option<u64>,
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
    /// What ends the run early; empty: the default rule of the plan.
    pub abort_if: Vec<Expression>,
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
        let connections = optional(&flags.connections, parse_connections)?;
        if command == LoadCommand::Concurrency && connections.is_none() {
            return Err(Error::usage(
                "concurrency needs -c N, the requests in flight, as in -c 32",
            ));
        }
        let requests = optional(&flags.requests, parse_requests)?;
        let duration_ns = optional(&flags.duration, parse_duration)?;
        let config = Config {
            common: CommonConfig::from_cli(common)?,
            command,
            urls: each(&flags.urls, parse_url)?,
            connections,
            requests,
            duration_ns: duration_ns.or(requests.is_none().then_some(DURATION_NS)),
            warmup: optional(&flags.warmup, parse_warmup)?,
            accept_status: optional(&flags.accept_status, parse_statuses)?.unwrap_or((200, 299)),
            connect_to: each(&flags.connect_to, parse_connect_to)?,
            unix_socket: flags.unix_socket.clone(),
            source_ip: optional(&flags.source_ip, parse_source)?,
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
            abort_if: each(&flags.abort_if, parse_abort_if)?,
            interval_ns: optional(&flags.interval, parse_interval)?.unwrap_or(unit::NS_PER_S),
            request: RequestShape::from_cli(flags)?,
        };
        config.check_together()?;
        Ok(config)
    }

    /// What is right alone and wrong together.
    fn check_together(&self) -> Result<(), Error> {
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
        let seed = match &common.seed {
            Some(text) => {
                parse("--seed", text, "a whole number from 0 to 18446744073709551615", |text| {
                    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
                })?
            }
            None => SEED,
        };
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
    fn from_cli(flags: crate::cli::LoadFlags) -> Result<RequestShape, Error> {
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

fn parse<T>(
    flag: &str,
    text: &str,
    allowed: &str,
    by: impl Fn(&str) -> Option<T>,
) -> Result<T, Error> {
    by(text).ok_or_else(|| Error::value(flag, text, allowed))
}

/// A flag that may be missing.
fn optional<T>(
    text: &Option<String>,
    by: impl Fn(&str) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    text.as_deref().map(by).transpose()
}

/// A flag or argument that may be repeated.
fn each<T>(texts: &[String], by: impl Fn(&str) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    texts.iter().map(|text| by(text)).collect()
}

fn positive_count(text: &str) -> Option<u64> {
    unit::count(text).filter(|count| *count > 0)
}

fn parse_connections(text: &str) -> Result<u32, Error> {
    if text.contains([',']) || text.contains("..") {
        return Err(Error::usage(format!(
            "-c (--connections) got `{}`: sweeps over a list or range are not in this version; \
            {WORKS_NOW}",
            shown(text)
        )));
    }
    let form = format!("a number of connections from 1 to {CONNECTIONS_MAX}, such as 64 or 10k");
    parse("-c (--connections)", text, &form, |text| {
        let count = positive_count(text).and_then(|count| u32::try_from(count).ok());
        count.filter(|count| *count <= CONNECTIONS_MAX)
    })
}

fn parse_requests(text: &str) -> Result<u64, Error> {
    parse("-n (--requests)", text, &format!("{}, at least 1", unit::COUNT_FORM), positive_count)
}

fn parse_source(text: &str) -> Result<IpAddr, Error> {
    let form = "an IPv4 or IPv6 address of this host";
    parse("--source-ip", text, form, |text| text.parse().ok())
}

fn parse_interval(text: &str) -> Result<u64, Error> {
    parse("--interval", text, INTERVAL_FORM, |text| {
        unit::time_ns(text).filter(|ns| *ns >= INTERVAL_NS_MIN)
    })
}

fn parse_duration(text: &str) -> Result<u64, Error> {
    let flag = "-d (--duration)";
    if text == "auto" {
        return Err(Error::usage(format!(
            "{flag} auto is not in this version; allowed: {}",
            unit::TIME_FORM
        )));
    }
    match unit::time_ns(text) {
        Some(ns) if ns > 0 => Ok(ns),
        Some(_) => Err(Error::value(flag, text, "a time above 0")),
        // In ab and hey -d is the body.
        None => Err(Error::value(
            flag,
            text,
            &format!("{} (a request body is given with -b)", unit::TIME_FORM),
        )),
    }
}

fn parse_warmup(text: &str) -> Result<Warmup, Error> {
    let requests = || positive_count(text).map(Warmup::Requests);
    let time = || unit::time_ns_with_unit(text).filter(|ns| *ns > 0).map(Warmup::Time);
    // `2m` is two minutes here, and `2k` two thousand requests.
    time().or_else(requests).ok_or_else(|| {
        Error::value(
            "--warmup",
            text,
            "a time with its unit such as 2s, or a number of requests such as 500",
        )
    })
}

fn parse_url(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|why| Error::usage(format!("URL `{}` {why}", shown(&masked(text)))))
}

fn parse_abort_if(text: &str) -> Result<Expression, Error> {
    let error = |why: &str| Error::usage(format!("--abort-if got `{}`, which {why}", shown(text)));
    let expression = Expression::parse(text).map_err(|why| error(&why))?;
    if expression.is_goal {
        return Err(error(
            "states with `:` what should hold; write what must not, as in 'p99>50ms' or \
            'failed>1%'",
        ));
    }
    Ok(expression)
}

fn parse_statuses(text: &str) -> Result<(u16, u16), Error> {
    let status = |text: &str| {
        let plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        if plain { text.parse::<u16>().ok().filter(|status| *status >= 100) } else { None }
    };
    parse("--accept-status", text, STATUS_FORM, |text| {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let (low, high) = (status(low)?, status(high)?);
        (low <= high).then_some((low, high))
    })
}

fn parse_connect_to(text: &str) -> Result<ConnectTo, Error> {
    let port_of = |text: &str| match text {
        "" => Some(None),
        text => parse_port(text).ok().map(Some),
    };
    let host_of = |text: &str| (!text.is_empty()).then(|| text.to_string());
    parse("--connect-to", text, CONNECT_TO_FORM, |text| {
        let (host, rest) = split_host(text)?;
        let (port, rest) = rest.split_once(':')?;
        let (address, address_port) = split_host(rest)?;
        Some(ConnectTo {
            host: host_of(host),
            port: port_of(port)?,
            address: host_of(address),
            address_port: port_of(address_port)?,
        })
    })
}

/// `HOST:rest` or `[IPv6]:rest`, the host without brackets.
fn split_host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(rest) => {
            rest.split_once("]:").filter(|(host, _)| host.parse::<std::net::Ipv6Addr>().is_ok())
        }
        None => text.split_once(':'),
    }
}

/// Most connections of one run; a shard's slots are u32 and each needs a descriptor, so this is far
/// above any host.
pub const CONNECTIONS_MAX: u32 = 1_000_000;
const DURATION_NS: u64 = 10 * unit::NS_PER_S;
const CONNECT_TIMEOUT_NS: u64 = 5 * unit::NS_PER_S;
const DRAIN_TIMEOUT_NS: u64 = 30 * unit::NS_PER_S;
/// Shards hand over their recordings each 250 ms; no view can be finer.
const INTERVAL_NS_MIN: u64 = loadgen_shards::limits::INTERVAL_NS;
const SEED: u64 = 42;
const LISTEN: &str = "127.0.0.1:8080";
/// `sun_path` of a unix socket address, less its final NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

const STATUS_FORM: &str = "one status such as 404, or a range such as 200-399, within 100-999";
const CONNECT_TO_FORM: &str = "HOST:PORT:ADDR:PORT, each part may be empty, IPv6 in brackets";
const INTERVAL_FORM: &str = "a time of at least 250ms, such as 1s";
const LISTEN_FORM: &str =
    "ADDR:PORT with a numeric address, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080";

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

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
            (["-d", "auto"], "-d", "not in this version"),
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
    fn connect_to_has_four_parts_that_may_be_empty() {
        let text = |text: &str| Some(text.to_string());
        for (line, host, port, address, address_port) in [
            ("h:80:10.0.0.2:81", text("h"), Some(80), text("10.0.0.2"), Some(81)),
            ("[::1]:80:[::2]:81", text("::1"), Some(80), text("::2"), Some(81)),
            ("::b:81", None, None, text("b"), Some(81)),
            (":::", None, None, None, None),
        ] {
            let expected = ConnectTo { host, port, address, address_port };
            assert_eq!(parse_connect_to(line), Ok(expected), "{line}");
        }
    }
}
