//! Which cores the shards get: the affinity mask, the CPU quota of the cgroup, where the endpoint
//! is, and what the user asked for, put together by pure functions.
//!
//! Called by [`crate::plan`] and `doctor`. Core lists are ascending kernel CPU ids, each
//! once.

mod quota;

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use crate::error::Error;

pub use quota::quota;

/// What this process may use of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Cores of the affinity mask that are online.
    pub allowed: Vec<usize>,
    /// Cores of the host that are online, whether or not this process may use them.
    pub online: usize,
    /// CPU quota of the tightest cgroup above us, in cores; `None`: no limit.
    pub quota: Option<f64>,
}

impl Host {
    /// Reads mask and quota.
    pub fn read() -> Result<Host, Error> {
        let text = |path: &Path| std::fs::read_to_string(path).ok();
        let proc = |name: &str| text(&Path::new("/proc/self").join(name)).unwrap_or_default();
        let allowed = allowed_cores();
        if allowed.is_empty() {
            return Err(Error::setup(
                "cannot read the allowed cores from /proc/self/status; is /proc mounted?",
            ));
        }
        let online = text(Path::new(ONLINE)).and_then(|list| parse_list(list.trim()).ok());
        let online = online.map_or(allowed.len(), |list| list.len());
        Ok(Host { allowed, online, quota: quota(&proc("cgroup"), &proc("mountinfo"), text) })
    }

    /// How many cores are worth a shard: the mask, within the whole cores of the quota, at least 1.
    pub fn budget(&self) -> usize {
        let whole = self.quota.map_or(usize::MAX, |quota| quota.floor() as usize);
        self.allowed.len().min(whole).max(1)
    }
}

/// Which cores the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreRequest {
    /// Nothing was said.
    Default,
    /// `--cores`: ascending, each once.
    List(Vec<usize>),
    /// `-t`: so many.
    Count(usize),
}

/// What decides about the cores, beside the host.
#[derive(Clone, Debug)]
pub struct Need {
    /// `--cores`, `-t` or nothing.
    pub request: CoreRequest,
    /// Connections over all shards, where known.
    pub connections: Option<u32>,
    /// The endpoint is on this host.
    pub is_local: bool,
    /// The endpoint is in this process, and so has no other cores than ours.
    pub is_embedded: bool,
    /// `--spin`.
    pub spin: bool,
}

/// The decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// One shard on each.
    pub cores: Vec<usize>,
    /// How they were chosen, in words.
    pub reason: String,
    /// Whether shards spin.
    pub spin: bool,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// Chooses the cores of the shards.
pub fn choose(host: &Host, need: &Need) -> Result<Choice, Error> {
    let (mut cores, mut reason) = match &need.request {
        CoreRequest::Default => by_default(host, need),
        CoreRequest::List(list) => (listed(host, list)?, "--cores".to_string()),
        CoreRequest::Count(count) => (first(host, *count)?, format!("-t {count}")),
    };
    let mut notices = Vec::new();
    // A shard without a connection would do nothing. The default has 8 or more for each.
    let limit = need.connections.map_or(usize::MAX, |connections| connections as usize);
    if limit < cores.len() {
        notices.push(format!(
            "{limit} connections for {} cores: only {limit} shards start",
            cores.len()
        ));
        reason = format!("{reason}, less those without a connection");
        cores.truncate(limit);
    }
    let shards = cores.len();
    // An endpoint of its own may run on cores that our mask does not show.
    let its_cores = if need.is_embedded { host.allowed.len() } else { host.online };
    let is_sharing = need.is_local && shards >= its_cores;
    if is_sharing {
        let remedy = if shards > 1 { "; leave it one: --cores LIST or -t N" } else { "" };
        notices.push(format!(
            "the endpoint is on this host and has no core of its own, as the shards take all \
            {shards} allowed: \
             latency includes waiting for the CPU{remedy}"
        ));
    }
    let over_quota = host.quota.filter(|quota| *quota < shards as f64);
    if let Some(quota) = over_quota {
        notices.push(format!(
            "the CPU quota of {quota} cores is below the {shards} shards: the kernel will \
            throttle them"
        ));
    }
    if need.spin && (is_sharing || over_quota.is_some()) {
        let why = if is_sharing {
            "the endpoint shares the cores"
        } else {
            "the CPU quota is below the cores"
        };
        notices.push(format!("--spin is off: {why}, so spinning would only slow the run"));
    }
    let spin = need.spin && !is_sharing && over_quota.is_none();
    Ok(Choice { cores, reason, spin, notices })
}

/// Mask and quota; half of it when the endpoint is on this host; not more than 8 connections are
/// worth.
fn by_default(host: &Host, need: &Need) -> (Vec<usize>, String) {
    let allowed = host.allowed.len();
    let budget = host.budget();
    // Half of two or more never holds the last core, which is the endpoint's.
    let share = if need.is_local { (budget / 2).max(1) } else { budget };
    let useful = need
        .connections
        .map_or(usize::MAX, |connections| connections.div_ceil(CONNECTIONS_PER_SHARD) as usize);
    let shards = share.min(useful).max(1);
    let of_allowed = match allowed {
        1 => "the only allowed core".to_string(),
        _ if shards == allowed => format!("all {allowed} allowed cores"),
        _ => format!("{shards} of {allowed} allowed cores"),
    };
    let mut reasons = Vec::new();
    if budget < allowed {
        reasons.push(format!("the CPU quota is {}", host.quota.unwrap_or_default()));
    }
    if need.is_local && share < budget {
        reasons.push("the endpoint is on this host".to_string());
    }
    if shards < share {
        reasons.push(format!("a shard is worth {CONNECTIONS_PER_SHARD} connections"));
    }
    let because =
        if reasons.is_empty() { String::new() } else { format!(", as {}", reasons.join(" and ")) };
    (host.allowed[..shards].to_vec(), format!("{of_allowed}{because}"))
}

fn listed(host: &Host, list: &[usize]) -> Result<Vec<usize>, Error> {
    let outside: Vec<usize> =
        list.iter().copied().filter(|core| !host.allowed.contains(core)).collect();
    if outside.is_empty() {
        return Ok(list.to_vec());
    }
    Err(Error::setup(format!(
        "--cores got `{}`, but this process may not use {}; allowed here: {} (affinity mask; see \
        taskset -p $$)",
        list_text(list),
        list_text(&outside),
        list_text(&host.allowed)
    )))
}

fn first(host: &Host, count: usize) -> Result<Vec<usize>, Error> {
    let allowed = host.allowed.len();
    if count <= allowed {
        return Ok(host.allowed[..count].to_vec());
    }
    Err(Error::setup(format!(
        "-t got `{count}`, but this process may use {allowed} cores: {}; allowed: 1 to {allowed}",
        list_text(&host.allowed)
    )))
}

/// Cores of an endpoint that shares this host with the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointCores {
    /// One thread on each, ascending.
    pub cores: Vec<usize>,
    /// No core was left over: it has the last one together with a shard.
    pub is_shared: bool,
}

/// The allowed cores that the shards do not use, the last ones first, as far as the quota goes; if
/// none is left, the last core, shared.
pub fn endpoint_cores(host: &Host, shard_cores: &[usize]) -> EndpointCores {
    let mut cores: Vec<usize> =
        host.allowed.iter().copied().filter(|core| !shard_cores.contains(core)).collect();
    if cores.is_empty() {
        let last = *host.allowed.last().expect("a process may use at least one core");
        return EndpointCores { cores: vec![last], is_shared: true };
    }
    let count = host.budget().saturating_sub(shard_cores.len()).clamp(1, cores.len());
    let skipped = cores.len() - count;
    EndpointCores { cores: cores.split_off(skipped), is_shared: false }
}

/// Parses `0-15`, `0,2,4`, `0-3,8`; ascending. The error is a fragment for after the value.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let core = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if plain { text.parse().ok().filter(|core: &usize| *core <= CORE_ID_MAX) } else { None }
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        match (core(low), core(high)) {
            (Some(low), Some(high)) if low <= high => cores.extend(low..=high),
            (Some(_), Some(_)) => {
                return Err(format!("in which `{part}` runs backwards; {LIST_FORM}"));
            }
            _ => return Err(format!("in which `{}` is no core; {LIST_FORM}", part.escape_debug())),
        }
        if cores.len() > CORE_ID_MAX + 1 {
            return Err(format!("which names a core twice; {LIST_FORM}"));
        }
    }
    cores.sort_unstable();
    match cores.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("which names core {} twice; {LIST_FORM}", pair[0])),
        None => Ok(cores),
    }
}

/// Writes `0-3,8`.
pub fn list_text(cores: &[usize]) -> String {
    let runs = cores.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [low, .., high] => format!("{low}-{high}"),
        [] => unreachable!("a chunk is never empty"),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// Cores of the affinity mask that are online.
pub fn allowed_cores() -> Vec<usize> {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    allowed_in(&text("/proc/self/status"), &text(ONLINE))
}

/// The mask of a status file may name cores that do not exist; the second list tells which are
/// online.
fn allowed_in(status: &str, online: &str) -> Vec<usize> {
    let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mask = mask.and_then(|list| parse_list(list.trim()).ok()).unwrap_or_default();
    match parse_list(online.trim()) {
        Ok(online) => mask.into_iter().filter(|core| online.contains(core)).collect(),
        Err(_) => mask,
    }
}

/// Whether an address belongs to this host: loopback, or one of an interface, which is one that can
/// be bound.
pub fn is_local(address: IpAddr) -> bool {
    // With ip_nonlocal_bind any address can be bound, and binding tells nothing.
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let nonlocal = std::fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    let binds_tell = nonlocal.is_ok_and(|text| text.trim() == "0");
    let address = address.to_canonical();
    address.is_loopback()
        || address.is_unspecified()
        || (binds_tell && UdpSocket::bind((address, 0)).is_ok())
}

/// Largest CPU id that is accepted; Linux has been built for at most 8192 CPUs.
pub const CORE_ID_MAX: usize = 8191;
/// Connections from which on one more shard pays: fewer leave it idle too often.
pub const CONNECTIONS_PER_SHARD: u32 = 8;
const ONLINE: &str = "/sys/devices/system/cpu/online";
const LIST_FORM: &str = "allowed: cores such as 0-15, 0,2,4 or 0-3,8, each once";

#[cfg(test)]
mod tests {
    use super::*;

    fn host(allowed: &str, quota: Option<f64>) -> Host {
        let allowed = parse_list(allowed).expect("a list");
        Host { online: allowed.len(), allowed, quota }
    }

    fn need(request: CoreRequest, connections: Option<u32>, is_local: bool) -> Need {
        Need { request, connections, is_local, is_embedded: false, spin: false }
    }

    #[test]
    fn lists_are_parsed_sorted_and_written_back() {
        for (text, cores, written) in [
            ("0", vec![0], "0"),
            ("0-3", vec![0, 1, 2, 3], "0-3"),
            ("0,2,4", vec![0, 2, 4], "0,2,4"),
            ("0-3,8", vec![0, 1, 2, 3, 8], "0-3,8"),
            ("8,0-1", vec![0, 1, 8], "0-1,8"),
            ("5-5", vec![5], "5"),
            ("8191", vec![8191], "8191"),
        ] {
            assert_eq!(parse_list(text), Ok(cores.clone()), "{text}");
            assert_eq!(list_text(&cores), written);
        }
        assert_eq!(list_text(&[]), "");
    }

    #[test]
    fn odd_lists_are_refused_with_the_reason() {
        for (text, says) in [
            ("", "no core"),
            (",", "no core"),
            ("0,", "no core"),
            ("-1", "no core"),
            ("1-", "no core"),
            ("a", "no core"),
            ("0 ,1", "no core"),
            ("0-1-2", "no core"),
            ("0..3", "no core"),
            ("+1", "no core"),
            ("8192", "no core"),
            ("0-4000000000", "no core"),
            ("3-1", "backwards"),
            ("0,0", "core 0 twice"),
            ("0-3,2", "core 2 twice"),
        ] {
            let error = parse_list(text).expect_err(text);
            assert!(error.contains(says), "{text:?}: {error}");
        }
        let many = vec!["0-8191"; 100_000].join(",");
        assert!(parse_list(&many).is_err(), "a long list ends early");
    }

    #[test]
    fn mask_is_what_is_allowed_and_online() {
        let status = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed:\t1\n";
        assert_eq!(allowed_in(status, "0-1\n"), [0, 1]);
        assert_eq!(allowed_in(status, ""), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(allowed_in("Cpus_allowed_list:\t1,3\n", "0-7\n"), [1, 3]);
        assert!(allowed_in("", "0-1").is_empty());
    }

    #[test]
    fn default_is_mask_within_quota_and_half_beside_the_endpoint() {
        for (allowed, quota, connections, is_local, cores, reason) in [
            ("0-3", None, None, false, "0-3", "all 4 allowed cores"),
            ("0", None, None, false, "0", "the only allowed core"),
            ("2,5,7", None, None, false, "2,5,7", "all 3 allowed cores"),
            (
                "0-15",
                Some(4.5),
                None,
                false,
                "0-3",
                "4 of 16 allowed cores, as the CPU quota is 4.5",
            ),
            ("0-15", Some(0.5), None, false, "0", "1 of 16 allowed cores, as the CPU quota is 0.5"),
            ("0-3", Some(64.0), None, false, "0-3", "all 4 allowed cores"),
            (
                "0-3",
                None,
                None,
                true,
                "0-1",
                "2 of 4 allowed cores, as the endpoint is on this host",
            ),
            ("0-2", None, None, true, "0", "1 of 3 allowed cores, as the endpoint is on this host"),
            ("0-1", None, None, true, "0", "1 of 2 allowed cores, as the endpoint is on this host"),
            ("7", None, None, true, "7", "the only allowed core"),
            (
                "0-15",
                Some(2.0),
                None,
                true,
                "0",
                "1 of 16 allowed cores, as the CPU quota is 2 and the endpoint is on this host",
            ),
            (
                "0-15",
                None,
                Some(64),
                false,
                "0-7",
                "8 of 16 allowed cores, as a shard is worth 8 connections",
            ),
            (
                "0-15",
                None,
                Some(65),
                false,
                "0-8",
                "9 of 16 allowed cores, as a shard is worth 8 connections",
            ),
            (
                "0-15",
                None,
                Some(1),
                false,
                "0",
                "1 of 16 allowed cores, as a shard is worth 8 connections",
            ),
            ("0-15", None, Some(1000), false, "0-15", "all 16 allowed cores"),
        ] {
            let choice =
                choose(&host(allowed, quota), &need(CoreRequest::Default, connections, is_local))
                    .expect("a default always fits");
            assert_eq!(
                list_text(&choice.cores),
                cores,
                "{allowed} {quota:?} {connections:?} {is_local}"
            );
            assert_eq!(choice.reason, reason);
        }
    }

    #[test]
    fn half_of_the_cores_never_holds_the_last() {
        for count in 2..=64 {
            let host = host(&format!("0-{}", count - 1), None);
            let choice = choose(&host, &need(CoreRequest::Default, None, true)).expect("fits");
            assert!(!choice.cores.contains(&(count - 1)), "{count}");
            assert!(choice.notices.is_empty(), "{count}");
        }
    }

    #[test]
    fn what_the_user_asks_for_is_taken_or_refused_with_what_is_allowed() {
        let four = host("0-3", None);
        let cores = |request, connections| {
            choose(&four, &need(request, connections, false)).map(|choice| choice.cores)
        };
        assert_eq!(cores(CoreRequest::List(vec![1, 3]), None), Ok(vec![1, 3]));
        assert_eq!(cores(CoreRequest::Count(3), None), Ok(vec![0, 1, 2]));
        // Asked for is asked for: 8 connections a shard is only the default.
        assert_eq!(cores(CoreRequest::Count(4), Some(4)), Ok(vec![0, 1, 2, 3]));
        for (request, says) in [
            (CoreRequest::List(vec![0, 4, 5, 7]), "may not use 4-5,7; allowed here: 0-3"),
            (CoreRequest::Count(5), "allowed: 1 to 4"),
        ] {
            let error = cores(request, None).expect_err(says);
            assert_eq!(error.exit_code(), 3);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn fewer_connections_than_shards_start_fewer_shards_and_say_so() {
        let choice = choose(&host("0-15", None), &need(CoreRequest::Count(16), Some(6), false))
            .expect("fits");
        assert_eq!(list_text(&choice.cores), "0-5");
        assert_eq!(choice.notices, ["6 connections for 16 cores: only 6 shards start"]);
    }

    #[test]
    fn spin_is_refused_below_the_quota_and_beside_the_endpoint_and_kept_elsewhere() {
        for (allowed, quota, request, is_local, spin, notice) in [
            ("0-3", None, CoreRequest::Default, false, true, None),
            ("0-3", None, CoreRequest::Default, true, true, None),
            ("0-3", Some(2.0), CoreRequest::Default, false, true, None),
            ("0-3", Some(2.0), CoreRequest::Count(4), false, false, Some("throttle")),
            ("0-3", Some(0.5), CoreRequest::Default, false, false, Some("throttle")),
            ("0-3", None, CoreRequest::Count(4), true, false, Some("no core of its own")),
            ("0-3", None, CoreRequest::Count(3), true, true, None),
            ("0-3", None, CoreRequest::Count(4), false, true, None),
            ("0", None, CoreRequest::Default, true, false, Some("no core of its own")),
        ] {
            let need =
                Need { request, connections: None, is_local, is_embedded: false, spin: true };
            let choice = choose(&host(allowed, quota), &need).expect("fits");
            assert_eq!(choice.spin, spin, "{allowed} {quota:?} {need:?}");
            match notice {
                Some(notice) => {
                    let notices = choice.notices.join("\n");
                    assert!(
                        notices.contains(notice) && notices.contains("--spin is off"),
                        "{notices}"
                    );
                }
                None => assert!(choice.notices.is_empty(), "{:?}", choice.notices),
            }
        }
    }

    #[test]
    fn the_endpoint_gets_what_the_shards_leave_within_the_quota() {
        for (allowed, quota, shards, cores, is_shared) in [
            ("0-1", None, "0", "1", false),
            ("0-3", None, "0-1", "2-3", false),
            ("0-3", None, "1,3", "0,2", false),
            ("0-3", None, "0-3", "3", true),
            ("7", None, "7", "7", true),
            ("0-15", Some(4.0), "0-1", "14-15", false),
            ("0-15", Some(1.0), "0", "15", false),
        ] {
            let got = endpoint_cores(&host(allowed, quota), &parse_list(shards).expect("a list"));
            assert_eq!(
                (list_text(&got.cores).as_str(), got.is_shared),
                (cores, is_shared),
                "{allowed} {shards}"
            );
        }
    }

    #[test]
    fn loopback_is_local_and_a_documentation_address_is_not() {
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0"] {
            assert!(is_local(address.parse().expect("an address")), "{address}");
        }
        assert!(!is_local("192.0.2.1".parse().expect("an address")));
    }

    #[test]
    fn this_host_can_be_read() {
        let host = Host::read().expect("tests run where /proc is mounted");
        assert!(host.budget() >= 1 && host.budget() <= host.allowed.len());
    }
}
