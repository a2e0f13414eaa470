//! The value of each flag of a load, from text to type. Errors name the flag, the value and what is
//! allowed.

use std::net::IpAddr;

use loadgen_shards::order::Order;
use loadgen_shards::phase::Overload;

use super::{CONNECTIONS_MAX, ConnectTo, Precision, Warmup, unit};
use crate::cli::{LoadCommand, LoadFlags, WORKS_NOW};
use crate::cores::{self, CORE_ID_MAX, TimerRequest};
use crate::error::{Error, shown};
use crate::expression::{Expression, RequestGoal, Stat, parse_stat};
use crate::request::url::{Url, masked, parse_port};

/// A value by its parser; the error says what is allowed.
pub fn parse<T>(
    flag: &str,
    text: &str,
    allowed: &str,
    by: impl Fn(&str) -> Option<T>,
) -> Result<T, Error> {
    by(text).ok_or_else(|| Error::value(flag, text, allowed))
}

/// A flag that may be missing.
pub fn optional<T>(
    text: &Option<String>,
    by: impl Fn(&str) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    text.as_deref().map(by).transpose()
}

/// A flag or argument that may be repeated.
pub fn each<T>(texts: &[String], by: impl Fn(&str) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    texts.iter().map(|text| by(text)).collect()
}

/// A count above 0.
pub fn positive_count(text: &str) -> Option<u64> {
    unit::count(text).filter(|count| *count > 0)
}

/// `-c`.
pub fn connections(text: &str) -> Result<u32, Error> {
    refuse_sweep("-c (--connections)", text)?;
    connection_count("-c (--connections)", text)
}

/// `--max-connections`.
pub fn max_connections(text: &str) -> Result<u32, Error> {
    connection_count("--max-connections", text)
}

fn connection_count(flag: &str, text: &str) -> Result<u32, Error> {
    let form = format!("a number of connections from 1 to {CONNECTIONS_MAX}, such as 64 or 10k");
    parse(flag, text, &form, |text| {
        let count = positive_count(text).and_then(|count| u32::try_from(count).ok());
        count.filter(|count| *count <= CONNECTIONS_MAX)
    })
}

/// A list or range where one value is expected.
pub fn refuse_sweep(flag: &str, text: &str) -> Result<(), Error> {
    if !text.contains(',') && !text.contains("..") {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{flag} got `{}`: a sweep over a list or range is not in this version; {WORKS_NOW}",
        shown(text)
    )))
}

/// `--overload`.
pub fn overload(text: &str) -> Result<Overload, Error> {
    match text {
        "queue" => Ok(Overload::Queue),
        "drop" => Ok(Overload::Drop),
        _ => Err(Error::value("--overload", text, "queue, drop")),
    }
}

/// `--timer`, `--timer-core` and `--spin` of an open loop.
pub fn timer(
    command: LoadCommand,
    flags: &LoadFlags,
    spin: bool,
) -> Result<Option<TimerRequest>, Error> {
    if !command.is_open_loop() {
        return Ok(None);
    }
    let core = optional(&flags.timer_core, |text| {
        let form = format!("the number of one core, 0 to {CORE_ID_MAX}, which is none of --cores");
        parse("--timer-core", text, &form, |text| match cores::parse_list(text).ok()?[..] {
            [core] => Some(core),
            _ => None,
        })
    })?;
    let typed = flags.timer.as_deref();
    let timer = match typed.unwrap_or(if core.is_some() { "dedicated" } else { "auto" }) {
        "auto" if core.is_none() => TimerRequest::Auto,
        "auto" | "dedicated" => TimerRequest::Dedicated { core },
        "inline" => TimerRequest::Inline,
        "hybrid" => TimerRequest::Hybrid,
        "sleep" => TimerRequest::Sleep,
        other => {
            return Err(Error::value("--timer", other, "auto, dedicated, inline, hybrid, sleep"));
        }
    };
    let is_dedicated = matches!(timer, TimerRequest::Dedicated { .. });
    if let (Some(core), false) = (core, is_dedicated) {
        return Err(Error::usage(format!(
            "--timer-core got `{core}`, but --timer {} has no core of its own; allowed: --timer \
             dedicated",
            timer.name()
        )));
    }
    match timer {
        TimerRequest::Auto if spin => Ok(Some(TimerRequest::Inline)),
        TimerRequest::Hybrid | TimerRequest::Sleep if spin => Err(Error::usage(format!(
            "--spin and --timer {} exclude each other: in open loop --spin is --timer inline",
            timer.name()
        ))),
        timer => Ok(Some(timer)),
    }
}

/// `-n`.
pub fn requests(text: &str) -> Result<u64, Error> {
    parse("-n (--requests)", text, &format!("{}, at least 1", unit::COUNT_FORM), positive_count)
}

/// `--source-ip`.
pub fn source(text: &str) -> Result<IpAddr, Error> {
    let form = "an IPv4 or IPv6 address of this host";
    parse("--source-ip", text, form, |text| text.parse().ok())
}

/// `--interval`.
pub fn interval(text: &str) -> Result<u64, Error> {
    parse("--interval", text, INTERVAL_FORM, |text| {
        unit::time_ns(text).filter(|ns| *ns >= INTERVAL_NS_MIN)
    })
}

/// `-d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duration {
    /// Until `--precision` is reached.
    Auto,
    /// So long, ns.
    Time(u64),
}

/// `-d`.
pub fn duration(text: &str) -> Result<Duration, Error> {
    let flag = "-d (--duration)";
    if text == "auto" {
        return Ok(Duration::Auto);
    }
    match unit::time_ns(text) {
        Some(ns) if ns > 0 => Ok(Duration::Time(ns)),
        Some(_) => Err(Error::value(flag, text, "a time above 0")),
        // In ab and hey -d is the body.
        None => Err(Error::value(
            flag,
            text,
            &format!("{}, or auto (a request body is given with -b)", unit::TIME_FORM),
        )),
    }
}

/// `--budget`.
pub fn budget(text: &str) -> Result<u64, Error> {
    let form = "a time above 0, such as 15m";
    parse("--budget", text, form, |text| unit::time_ns(text).filter(|ns| *ns > 0))
}

/// `--precision p99:5%`.
pub fn precision(text: &str) -> Result<Precision, Error> {
    let form = "a percentile and a share above 0%, such as p99:5% or p99.9:10%";
    parse("--precision", text, form, |text| {
        let (percentile, share) = text.split_once(':')?;
        let percentile = percentile.strip_prefix("latency.").unwrap_or(percentile);
        let Stat::Percentile(percent) = parse_stat(percentile)? else { return None };
        let share = unit::share(share).filter(|share| *share > 0.0)?;
        let milli_percent = (percent * 1000.0).round();
        let is_whole = (percent * 1000.0 - milli_percent).abs() < 1e-6;
        (is_whole && (1.0..100_000.0).contains(&milli_percent))
            .then_some(Precision { milli_percent: milli_percent as u32, share })
    })
}

/// `--repeats`.
pub fn repeats(text: &str) -> Result<u32, Error> {
    let form = format!("a number of runs from 1 to {REPEATS_MAX}");
    parse("--repeats", text, &form, |text| {
        let count = positive_count(text).and_then(|count| u32::try_from(count).ok());
        count.filter(|count| *count <= REPEATS_MAX)
    })
}

/// `--order`.
pub fn order(text: &str) -> Result<Order, Error> {
    let form = "shuffle, sequential, random, or single=I with the index of a URL, from 0";
    parse("--order", text, form, |text| match text.split_once('=') {
        None if text == "shuffle" => Some(Order::Shuffle),
        None if text == "sequential" => Some(Order::Sequential),
        None if text == "random" => Some(Order::Random),
        Some(("single", index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
            index.parse().ok().map(Order::Single)
        }
        _ => None,
    })
}

/// `--seed` and the like.
pub fn seed(flag: &str, text: &str) -> Result<u64, Error> {
    parse(flag, text, "a whole number from 0 to 18446744073709551615", |text| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    })
}

/// `--wire-stamps 1/K`.
pub fn wire_stamps(text: &str) -> Result<u32, Error> {
    let form = "1/K with a K of at least 1, such as 1/100: one request of K";
    parse("--wire-stamps", text, form, |text| {
        let count = positive_count(text.strip_prefix("1/")?)?;
        u32::try_from(count).ok()
    })
}

/// `--warmup`.
pub fn warmup(text: &str) -> Result<Warmup, Error> {
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

/// A URL.
pub fn url(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|why| Error::usage(format!("URL `{}` {why}", shown(&masked(text)))))
}

/// What should hold, or should not.
pub fn expression(flag: &str, text: &str) -> Result<Expression, Error> {
    Expression::parse(text)
        .map_err(|why| Error::usage(format!("{flag} got `{}`, which {why}", shown(text))))
}

/// What should not hold, so that a goal makes no sense.
pub fn bad_sign(flag: &str, text: &str) -> Result<Expression, Error> {
    let expression = expression(flag, text)?;
    if expression.is_goal {
        return Err(Error::usage(format!(
            "{flag} got `{}`, which states with `:` what should hold; write what must not, as in \
             'p99>50ms' or 'failed>1%'",
            shown(text)
        )));
    }
    Ok(expression)
}

/// `--goodput`.
pub fn goodput(text: &str) -> Result<Vec<RequestGoal>, Error> {
    RequestGoal::parse_list(text)
        .map_err(|why| Error::usage(format!("--goodput got `{}`, which {why}", shown(text))))
}

/// `--accept-status`.
pub fn statuses(text: &str) -> Result<(u16, u16), Error> {
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

/// `--connect-to`.
pub fn connect_to(text: &str) -> Result<ConnectTo, Error> {
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

/// Shards hand over their recordings each 250 ms; no view can be finer.
const INTERVAL_NS_MIN: u64 = loadgen_shards::limits::INTERVAL_NS;
const REPEATS_MAX: u32 = 1000;

const STATUS_FORM: &str = "one status such as 404, or a range such as 200-399, within 100-999";
const CONNECT_TO_FORM: &str = "HOST:PORT:ADDR:PORT, each part may be empty, IPv6 in brackets";
const INTERVAL_FORM: &str = "a time of at least 250ms, such as 1s";
