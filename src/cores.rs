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
mod tests;
