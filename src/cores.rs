//! Which cores the shards get: the affinity mask, the CPU quota of the cgroup, where the endpoint
//! is, and what the user asked for, put together by pure functions.
//!
//! Called by [`crate::plan`] and `doctor`. Core lists are ascending kernel CPU ids, each
//! once.

mod quota;
mod timer;

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use crate::error::Error;

pub use quota::quota;
pub use timer::{Timer, TimerRequest};

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
    /// Connections over all shards, where known: `-c`.
    pub connections: Option<u32>,
    /// Most connections of an open loop, where known.
    pub max_connections: Option<u32>,
    /// Who watches the schedule; `None`: a closed loop.
    pub timer: Option<TimerRequest>,
    /// The endpoint is on this host.
    pub is_local: bool,
    /// The endpoint is in this process, and so has no other cores than ours.
    pub is_embedded: bool,
    /// `--spin` of a closed loop.
    pub spin: bool,
}

impl Need {
    /// A shard beyond this many would have no connection.
    fn connections_least(&self) -> usize {
        let given = self.connections.into_iter().chain(self.max_connections);
        given.min().map_or(usize::MAX, |connections| connections as usize)
    }

    /// Connections that decide how many shards are worth it, and how many a shard needs for that.
    fn worth(&self) -> (Option<u32>, u32) {
        match self.timer {
            None => (self.connections, CONNECTIONS_PER_SHARD),
            Some(_) => (self.max_connections, CONNECTIONS_PER_SHARD_OPEN),
        }
    }
}

/// The decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// One shard on each.
    pub cores: Vec<usize>,
    /// How they were chosen, in words.
    pub reason: String,
    /// Who watches the schedule; of a closed loop, whether shards spin.
    pub timer: Timer,
    /// How it was chosen, in words.
    pub timer_reason: String,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// Chooses the cores of the shards and the timer.
pub fn choose(host: &Host, need: &Need) -> Result<Choice, Error> {
    let timer_core = match need.timer {
        Some(TimerRequest::Dedicated { core }) => core,
        _ => None,
    };
    if let Some(core) = timer_core {
        timer::check_core(host, core)?;
        if let CoreRequest::List(list) = &need.request {
            timer::check_apart(core, list)?;
        }
    }
    let usable: Vec<usize> =
        host.allowed.iter().copied().filter(|core| Some(*core) != timer_core).collect();
    let (mut cores, mut reason) = match &need.request {
        CoreRequest::Default => by_default(host, need, &usable),
        CoreRequest::List(list) => (listed(host, list)?, "--cores".to_string()),
        CoreRequest::Count(count) => (first(&usable, *count)?, format!("-t {count}")),
    };
    let mut notices = Vec::new();
    // A shard without a connection would do nothing. The default has more for each.
    let limit = need.connections_least();
    if limit < cores.len() {
        notices.push(format!(
            "{limit} connections for {} cores: only {limit} shards start",
            cores.len()
        ));
        reason = format!("{reason}, less those without a connection");
        cores.truncate(limit);
    }
    let timer_core = match need.timer {
        Some(timer) if timer.is_dedicated() => {
            Some(timer_core.map_or_else(|| timer::free_core(host, &cores), Ok)?)
        }
        _ => None,
    };
    let no_spin = crowding(host, need, cores.len(), timer_core.is_some(), &mut notices);
    let (timer, timer_reason, notice) = match need.timer {
        Some(request) => timer::decide(request, timer_core, no_spin),
        None => without_schedule(need.spin, no_spin),
    };
    notices.extend(notice);
    Ok(Choice { cores, reason, timer, timer_reason, notices })
}

/// Tells who has to share a core, and why nobody may spin then.
fn crowding(
    host: &Host,
    need: &Need,
    shards: usize,
    has_timer_core: bool,
    notices: &mut Vec<String>,
) -> Option<&'static str> {
    let taken = shards + usize::from(has_timer_core);
    // An endpoint of its own may run on cores that our mask does not show.
    let its_cores = if need.is_embedded { host.allowed.len() } else { host.online };
    if need.is_local && taken >= its_cores {
        let who = if has_timer_core { "shards and timer" } else { "the shards" };
        let remedy = if shards > 1 { "; leave it one: --cores LIST or -t N" } else { "" };
        notices.push(format!(
            "the endpoint is on this host and has no core of its own, as {who} take all {taken} \
             allowed: latency includes waiting for the CPU{remedy}"
        ));
    }
    if let Some(quota) = host.quota.filter(|quota| *quota < taken as f64) {
        let who = if has_timer_core { " and the timer" } else { "" };
        notices.push(format!(
            "the CPU quota of {quota} cores is below the {shards} shards{who}: the kernel will \
             throttle them"
        ));
    }
    // Beside a timer that has the last core, the shards still have their own.
    if need.is_local && shards >= its_cores {
        Some("the endpoint shares the cores")
    } else if host.quota.is_some_and(|quota| quota < taken as f64) {
        Some("the CPU quota is below the cores")
    } else {
        None
    }
}

/// Of a closed loop: whether its shards spin.
fn without_schedule(spin: bool, no_spin: Option<&str>) -> (Timer, String, Option<String>) {
    let notice = no_spin
        .filter(|_| spin)
        .map(|why| format!("--spin is off: {why}, so spinning would only slow the run"));
    let timer = if spin && no_spin.is_none() { Timer::Inline } else { Timer::Sleep };
    (timer, "a closed loop has no schedule".to_string(), notice)
}

/// Mask and quota, less the timer's; half of it when the endpoint is on this host; not more than
/// the connections are worth.
fn by_default(host: &Host, need: &Need, usable: &[usize]) -> (Vec<usize>, String) {
    let allowed = host.allowed.len();
    let budget = host.budget();
    let has_timer_core = need.timer.is_some_and(TimerRequest::is_dedicated);
    let for_shards = budget.saturating_sub(usize::from(has_timer_core)).max(1);
    // Half of two or more never holds the last core, which is the endpoint's.
    let share = if need.is_local { (for_shards / 2).max(1) } else { for_shards };
    let (connections, per_shard) = need.worth();
    let worth =
        connections.map_or(usize::MAX, |connections| connections.div_ceil(per_shard) as usize);
    let limit = need.connections_least();
    let shards = share.min(worth).min(limit).max(1);
    let of_allowed = match allowed {
        1 => "the only allowed core".to_string(),
        _ if shards == allowed => format!("all {allowed} allowed cores"),
        _ => format!("{shards} of {allowed} allowed cores"),
    };
    let mut reasons = Vec::new();
    if budget < allowed {
        reasons.push(format!("the CPU quota is {}", host.quota.unwrap_or_default()));
    }
    if for_shards < budget {
        reasons.push("one is the timer's".to_string());
    }
    if need.is_local && share < for_shards {
        reasons.push("the endpoint is on this host".to_string());
    }
    if worth < share && worth <= limit {
        reasons.push(format!("a shard is worth {per_shard} connections"));
    } else if limit < share {
        reasons.push("each needs a connection".to_string());
    }
    let because =
        if reasons.is_empty() { String::new() } else { format!(", as {}", reasons.join(" and ")) };
    (usable[..shards].to_vec(), format!("{of_allowed}{because}"))
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

fn first(usable: &[usize], count: usize) -> Result<Vec<usize>, Error> {
    let most = usable.len();
    if count <= most {
        return Ok(usable[..count].to_vec());
    }
    Err(Error::setup(format!(
        "-t got `{count}`, but the shards of this process may use {most} cores: {}; allowed: 1 to \
         {most}",
        list_text(usable)
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

/// The allowed cores that shards and timer do not use, the last ones first, as far as the quota
/// goes; if none is left, the last core, shared.
pub fn endpoint_cores(host: &Host, taken: &[usize]) -> EndpointCores {
    let mut cores: Vec<usize> =
        host.allowed.iter().copied().filter(|core| !taken.contains(core)).collect();
    if cores.is_empty() {
        let last = *host.allowed.last().expect("a process may use at least one core");
        return EndpointCores { cores: vec![last], is_shared: true };
    }
    let count = host.budget().saturating_sub(taken.len()).clamp(1, cores.len());
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
/// The same in open loop, where a split pool makes requests wait for a connection while another
/// shard has one free.
const CONNECTIONS_PER_SHARD_OPEN: u32 = 64;
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
        Need {
            request,
            connections,
            max_connections: None,
            timer: None,
            is_local,
            is_embedded: false,
            spin: false,
        }
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
            let need = Need { spin: true, ..need(request, None, is_local) };
            let choice = choose(&host(allowed, quota), &need).expect("fits");
            assert_eq!(choice.timer == Timer::Inline, spin, "{allowed} {quota:?} {need:?}");
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

    fn open(request: CoreRequest, timer: TimerRequest) -> Need {
        Need { timer: Some(timer), ..need(request, None, false) }
    }

    #[test]
    fn a_shard_of_an_open_loop_is_worth_64_connections() {
        for (connections, max_connections, cores, because) in [
            (None, None, "0-15", "all 16 allowed cores"),
            (None, Some(64), "0", "as a shard is worth 64 connections"),
            (None, Some(65), "0-1", "as a shard is worth 64 connections"),
            (Some(8), Some(1024), "0-7", "as each needs a connection"),
            (Some(8), None, "0-7", "as each needs a connection"),
            (Some(64), Some(10_000), "0-15", "all 16 allowed cores"),
        ] {
            let need = Need {
                connections,
                max_connections,
                ..open(CoreRequest::Default, TimerRequest::Auto)
            };
            let choice = choose(&host("0-15", None), &need).expect("fits");
            assert_eq!(list_text(&choice.cores), cores, "{connections:?} {max_connections:?}");
            assert!(choice.reason.contains(because), "{}", choice.reason);
            assert!(choice.notices.is_empty(), "{:?}", choice.notices);
        }
    }

    #[test]
    fn timer_is_hybrid_unless_asked_for_or_without_whole_cores() {
        use TimerRequest::{Auto, Dedicated, Hybrid, Inline, Sleep};
        for (allowed, quota, request, is_local, asked, timer, reason) in [
            ("0-3", None, CoreRequest::Default, false, Auto, Timer::Hybrid, "the default"),
            ("0-3", None, CoreRequest::Default, true, Auto, Timer::Hybrid, "the default"),
            ("0-3", None, CoreRequest::Default, true, Inline, Timer::Inline, "--timer inline"),
            ("0-3", None, CoreRequest::Default, false, Sleep, Timer::Sleep, "--timer sleep"),
            ("0-3", Some(2.0), CoreRequest::Default, false, Auto, Timer::Hybrid, "the default"),
            ("0-3", Some(2.0), CoreRequest::Count(4), false, Auto, Timer::Sleep, "CPU quota"),
            ("0-3", Some(0.5), CoreRequest::Default, false, Hybrid, Timer::Sleep, "CPU quota"),
            ("0-3", None, CoreRequest::Count(4), true, Inline, Timer::Sleep, "shares the cores"),
            ("0-3", None, CoreRequest::Count(4), false, Inline, Timer::Inline, "--timer inline"),
            ("0", None, CoreRequest::Default, true, Auto, Timer::Sleep, "shares the cores"),
            (
                "0-3",
                Some(3.5),
                CoreRequest::Count(3),
                false,
                Dedicated { core: None },
                Timer::Sleep,
                "CPU quota",
            ),
        ] {
            let need = Need { is_local, ..open(request, asked) };
            let choice = choose(&host(allowed, quota), &need).expect("fits");
            assert_eq!(choice.timer, timer, "{allowed} {quota:?} {need:?}");
            assert!(choice.timer_reason.contains(reason), "{}", choice.timer_reason);
            let notices = choice.notices.join("\n");
            let is_replaced = !matches!(asked, Auto | Sleep) && timer == Timer::Sleep;
            assert_eq!(notices.contains("replaced by sleep"), is_replaced, "{notices}");
        }
    }

    #[test]
    fn dedicated_timer_has_a_core_beside_the_shards() {
        let dedicated = |core| TimerRequest::Dedicated { core };
        let list = |text: &str| CoreRequest::List(parse_list(text).expect("a list"));
        for (allowed, quota, request, is_local, core, shards, timer) in [
            ("0-3", None, CoreRequest::Default, false, None, "0-2", 3),
            ("0-3", None, CoreRequest::Default, false, Some(1), "0,2-3", 1),
            ("0-7", None, CoreRequest::Default, true, None, "0-2", 3),
            ("0-1", None, CoreRequest::Default, false, None, "0", 1),
            ("0-1", None, CoreRequest::Default, true, None, "0", 1),
            ("0-1", None, CoreRequest::Default, true, Some(0), "1", 0),
            ("0-15", Some(4.0), CoreRequest::Default, false, None, "0-2", 3),
            ("0-3", None, list("1,3"), false, None, "1,3", 0),
            ("0-3", None, list("1,3"), false, Some(2), "1,3", 2),
            ("0-3", None, CoreRequest::Count(2), false, Some(0), "1-2", 0),
            ("0-3", None, CoreRequest::Count(3), false, None, "0-2", 3),
        ] {
            let need = Need { is_local, ..open(request, dedicated(core)) };
            let choice = choose(&host(allowed, quota), &need).expect("fits");
            assert_eq!(list_text(&choice.cores), shards, "{allowed} {need:?}");
            assert_eq!(choice.timer, Timer::Dedicated { core: timer }, "{allowed} {need:?}");
            let is_crowded = is_local && allowed == "0-1";
            assert_eq!(choice.notices.len(), usize::from(is_crowded), "{:?}", choice.notices);
        }
    }

    #[test]
    fn no_core_for_the_timer_is_an_error_that_says_what_to_type() {
        let dedicated = |core| TimerRequest::Dedicated { core };
        for (allowed, request, core, code, says) in [
            ("0-3", CoreRequest::List(vec![0, 1]), Some(1), 2, "--timer-core got `1`"),
            ("0-3", CoreRequest::List(vec![0, 1]), Some(1), 2, "that --cores does not name"),
            ("0-3", CoreRequest::Default, Some(4), 3, "allowed here: 0-3"),
            ("0", CoreRequest::Default, Some(0), 3, "--timer hybrid"),
            ("0", CoreRequest::Default, None, 3, "--timer hybrid"),
            ("0-3", CoreRequest::Count(4), None, 3, "--cores 0-2, or -t 3"),
            ("0-3", CoreRequest::List(vec![0, 1, 2, 3]), None, 3, "--cores 0-2, or -t 3"),
            ("0-3", CoreRequest::Count(4), Some(3), 3, "allowed: 1 to 3"),
        ] {
            let need = open(request, dedicated(core));
            let error = choose(&host(allowed, None), &need).expect_err(says);
            assert_eq!(error.exit_code(), code, "{error}");
            assert!(error.to_string().contains(says), "{error}");
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
