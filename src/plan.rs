//! From the typed configuration to a run: every limit decided, every name resolved, nothing left to
//! guess.
//!
//! The embedded endpoint is started between the two steps: [`embedded`] says whether there is one
//! and on which cores, [`Plan::build`] takes the address it listens on.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use loadgen_shards::order::Order;
use loadgen_shards::phase::{Overload, PhaseKind, Timeouts};
use loadgen_shards::query::{Address, RequestTable};
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::schedule::SchedulePlan;
use loadgen_shards::sys::limits::{raise_nofile, reserve_descriptors};

use crate::config::{Config, ReportDir, ServeConfig, Warmup};
use crate::cores::{self, Choice, CoreRequest, EndpointCores, Host, Need};
use crate::error::Error;
use crate::expression::Expression;
use crate::request::{self, secret::Secrets};

/// Everything a session needs.
#[derive(Clone, Debug)]
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
    /// Whether shards never sleep.
    pub spin: bool,
    /// I/O back end asked for.
    pub engine: EngineChoice,
    /// What is sent, where to.
    pub table: RequestTable,
    /// The URLs for people, in the order of the table, secrets masked.
    pub endpoints: Vec<String>,
    /// What no message of the endpoint may show.
    pub secrets: Secrets,
    /// Connections over all shards together; in open loop those opened before the first instant.
    pub connections: u32,
    /// Open loop: most connections over all shards together.
    pub max_connections: u32,
    /// Open loop: what happens above it.
    pub overload: Overload,
    /// Open loop: who watches the schedule.
    pub timer: Timer,
    /// How samples follow each other.
    pub order: Order,
    /// `--order-seed`.
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
    /// Any of these true ends the run; the user's.
    pub abort_if: Vec<Expression>,
    /// Every request failing for so long ends the run, ns; 0 = off, as the user gave rules of his
    /// own.
    pub abort_all_failed_ns: u64,
    /// Where files go; `None`: nowhere.
    pub report_dir: Option<PathBuf>,
    /// The target is the endpoint embedded in this process.
    pub is_embedded: bool,
    /// What the user should know before the run; one stderr line each.
    pub notices: Vec<String>,
}

/// Who watches the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Each shard, spinning.
    Inline,
    /// Each shard, asleep until shortly before the next instant.
    Hybrid,
    /// Each shard, asleep until the next instant.
    Sleep,
    /// A core of its own.
    Dedicated {
        /// Kernel CPU id.
        core: usize,
    },
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
    if !config.urls.is_empty() {
        return Ok(None);
    }
    let choice = choose(config, host, true)?;
    Ok(Some(cores::endpoint_cores(host, &choice.cores)))
}

/// Cores of `serve`: those asked for, else the half that a load on the same host leaves free.
pub fn serve_cores(config: &ServeConfig, host: &Host) -> Result<Vec<usize>, Error> {
    let request = config.common.cores.clone();
    let is_default = request == CoreRequest::Default;
    let need =
        Need { request, connections: None, is_local: is_default, is_embedded: false, spin: false };
    let cores = cores::choose(host, &need)?.cores;
    Ok(if is_default { cores::endpoint_cores(host, &cores).cores } else { cores })
}

impl Plan {
    /// Decides everything. `embedded` is where the embedded endpoint listens; needed when there is
    /// no URL.
    pub fn build(
        mut config: Config,
        host: &Host,
        embedded: Option<SocketAddr>,
    ) -> Result<Plan, Error> {
        let is_embedded = config.urls.is_empty();
        let table = request::table(&config, embedded)?;
        let endpoints =
            request::urls(&config, embedded).iter().map(request::url::Url::redacted).collect();
        let is_local = is_embedded
            || table.targets.iter().any(|target| match &target.address {
                Address::Inet(address) => cores::is_local(address.ip()),
                Address::Unix(_) => true,
            });
        check_source(&config)?;
        let Choice { cores, reason, spin, notices } = choose(&config, host, is_local)?;
        let connections = config.connections.unwrap_or(CONNECTIONS_PER_SHARD * cores.len() as u32);
        let needed =
            descriptors(connections, table.targets.len() as u64, cores.len() as u64, is_embedded);
        check_descriptors(connections, needed, raise_nofile(needed))?;
        reserve_descriptors(needed);
        let report_dir = match &config.common.report_dir {
            ReportDir::Default => Some(PathBuf::from(format!(
                "results/{}-{}",
                utc_name(unix_seconds()),
                config.command.name()
            ))),
            ReportDir::Path(path) => Some(path.clone()),
            ReportDir::None => None,
        };
        let cores_flag = match &config.common.cores {
            CoreRequest::List(list) => Some(cores::list_text(list)),
            CoreRequest::Count(_) | CoreRequest::Default => None,
        };
        config.connections = Some(connections);
        config.common.cores = CoreRequest::List(cores.clone());
        config.common.spin = spin;
        config.common.report_dir = report_dir.clone().map_or(ReportDir::None, ReportDir::Path);
        Ok(Plan {
            cores,
            cores_reason: reason,
            cores_flag,
            spin,
            engine: config.common.engine,
            table,
            endpoints,
            secrets: Secrets::of(&config.request, &config.urls),
            connections,
            max_connections: connections,
            overload: Overload::Queue,
            timer: Timer::Hybrid,
            order: Order::Sequential,
            order_seed: 42,
            phases: phases(&config, connections),
            timeouts: config.timeouts,
            keepalive: config.keepalive,
            accept_status: config.accept_status,
            run_timeout_ns: config.run_timeout_ns,
            response_idle_timeout_ns: config.response_idle_timeout_ns,
            abort_if: config.abort_if.clone(),
            abort_all_failed_ns: if config.abort_if.is_empty() { ABORT_ALL_FAILED_NS } else { 0 },
            report_dir,
            is_embedded,
            notices,
            config,
        })
    }
}

fn choose(config: &Config, host: &Host, is_local: bool) -> Result<Choice, Error> {
    cores::choose(
        host,
        &Need {
            request: config.common.cores.clone(),
            connections: config.connections,
            is_local,
            is_embedded: config.urls.is_empty(),
            spin: config.common.spin,
        },
    )
}

fn phases(config: &Config, in_flight: u32) -> Vec<Phase> {
    let warmup = config.warmup.map(|warmup| {
        let (requests, duration_ns) = match warmup {
            Warmup::Time(ns) => (None, Some(ns)),
            Warmup::Requests(count) => (Some(count), None),
        };
        let name = PhaseKind::Warmup.name().to_string();
        // Undrained: the load goes on into the next phase without a gap.
        Phase {
            name,
            kind: PhaseKind::Warmup,
            in_flight,
            schedule: None,
            requests,
            duration_ns,
            drain_timeout_ns: 0,
        }
    });
    let performance = Phase {
        name: PhaseKind::Performance.name().to_string(),
        kind: PhaseKind::Performance,
        in_flight,
        schedule: None,
        requests: config.requests,
        duration_ns: config.duration_ns,
        drain_timeout_ns: config.drain_timeout_ns,
    };
    warmup.into_iter().chain([performance]).collect()
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

/// Descriptors of this process: a socket for each connection to each target, and its other end if
/// the endpoint is ours too.
fn descriptors(connections: u32, targets: u64, shards: u64, is_embedded: bool) -> u64 {
    let ends = if is_embedded { 2 } else { 1 };
    u64::from(connections) * targets * ends + shards * DESCRIPTORS_PER_SHARD + DESCRIPTORS_OTHER
}

fn check_descriptors(connections: u32, needed: u64, limit: Result<u64, u64>) -> Result<(), Error> {
    match limit {
        Ok(soft) if soft >= needed => Ok(()),
        Ok(most) | Err(most) => Err(Error::setup(format!(
            "{connections} connections need {needed} open files, but the hard limit of this \
             process is {most}; lower -c, or raise it: ulimit -Hn {needed} as root, or \
             LimitNOFILE= of the service, --ulimit nofile= of the container; then \
             ulimit -n {needed}"
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

/// Connections of a shard in `max-throughput` without `-c`.
const CONNECTIONS_PER_SHARD: u32 = 64;
/// The default rule: nothing but failures for so long.
const ABORT_ALL_FAILED_NS: u64 = 2_000_000_000;
/// A shard's uring, eventfd and epoll instance, and a thread of the endpoint with the like and a
/// listener.
const DESCRIPTORS_PER_SHARD: u64 = 16;
/// Standard streams, files of the report, what the runtime opens.
const DESCRIPTORS_OTHER: u64 = 64;

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{self, Parsed};

    fn config(line: &str) -> Config {
        match cli::parse(line.split_whitespace().map(OsString::from)) {
            Ok(Parsed::Load(load)) => Config::from_cli(*load).expect("valid"),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn host(cores: usize) -> Host {
        Host { allowed: (0..cores).collect(), online: cores, quota: None }
    }

    fn plan(line: &str, cores: usize) -> Plan {
        let embedded = Some("127.0.0.1:4321".parse().expect("an address"));
        Plan::build(config(line), &host(cores), embedded)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn connections_are_64_a_shard_unless_given() {
        for (line, cores, shards, connections) in [
            ("http://192.0.2.1/", 4, 4, 256),
            ("http://127.0.0.1:9/", 4, 2, 128),
            ("max-throughput", 2, 1, 64),
            ("max-throughput", 1, 1, 64),
            ("--cores 0-2 http://192.0.2.1/", 4, 3, 192),
            ("http://192.0.2.1/ -c 20", 4, 3, 20),
            ("http://192.0.2.1/ -c 20 -t 4", 4, 4, 20),
            ("http://192.0.2.1/ -c 2 -t 4", 4, 2, 2),
            ("concurrency http://192.0.2.1/ -c 1", 4, 1, 1),
        ] {
            let plan = plan(line, cores);
            assert_eq!((plan.cores.len(), plan.connections), (shards, connections), "{line}");
            assert!(plan.phases.iter().all(|phase| phase.in_flight == connections), "{line}");
        }
    }

    #[test]
    fn phases_are_the_untracked_warmup_and_the_tracked_performance() {
        let stop =
            |phase: &Phase| (phase.kind, phase.duration_ns, phase.requests, phase.drain_timeout_ns);
        let phases = plan("http://192.0.2.1/ --warmup 2s -n 5", 2).phases;
        assert_eq!(phases.len(), 2);
        assert_eq!(stop(&phases[0]), (PhaseKind::Warmup, Some(2_000_000_000), None, 0));
        assert_eq!(stop(&phases[1]), (PhaseKind::Performance, None, Some(5), 30_000_000_000));
        let phases = plan("http://192.0.2.1/ --warmup 500 --drain-timeout 0", 2).phases;
        assert_eq!(stop(&phases[0]), (PhaseKind::Warmup, None, Some(500), 0));
        assert_eq!(stop(&phases[1]), (PhaseKind::Performance, Some(10_000_000_000), None, 0));
        assert_eq!(plan("http://192.0.2.1/", 2).phases.len(), 1);
    }

    #[test]
    fn where_the_endpoint_is_decides_the_half() {
        for (line, is_local, is_embedded) in [
            ("max-throughput", true, true),
            ("http://127.0.0.1:9/", true, false),
            ("http://[::1]:9/", true, false),
            ("http://192.0.2.1/ --unix-socket /s", true, false),
            ("http://192.0.2.1/ --connect-to ::127.0.0.1:", true, false),
            ("http://127.0.0.1/ --connect-to ::192.0.2.1:", false, false),
            ("http://192.0.2.1/ http://127.0.0.1:9/", true, false),
            ("http://192.0.2.1/", false, false),
        ] {
            let plan = plan(line, 4);
            assert_eq!(plan.is_embedded, is_embedded, "{line}");
            assert_eq!(plan.cores.len(), if is_local { 2 } else { 4 }, "{line}");
        }
    }

    #[test]
    fn the_embedded_endpoint_has_the_cores_that_the_plan_leaves() {
        for (line, cores) in
            [("max-throughput", 1), ("max-throughput", 2), ("max-throughput -t 3", 4), ("-c 1", 4)]
        {
            let endpoint = embedded(&config(line), &host(cores)).expect("fits").expect("no URL");
            let plan = plan(line, cores);
            let overlap = endpoint.cores.iter().any(|core| plan.cores.contains(core));
            assert_eq!(overlap, cores == 1, "{line} on {cores}");
            assert_eq!(endpoint.is_shared, overlap);
        }
        assert_eq!(embedded(&config("http://192.0.2.1/"), &host(2)), Ok(None));
    }

    #[test]
    fn own_abort_rules_replace_the_default_one() {
        assert_eq!(plan("http://192.0.2.1/", 2).abort_all_failed_ns, 2_000_000_000);
        let plan = plan("http://192.0.2.1/ --abort-if p99>50ms --abort-if failed>1%", 2);
        assert_eq!((plan.abort_all_failed_ns, plan.abort_if.len()), (0, 2));
    }

    #[test]
    fn the_written_configuration_has_every_default_filled_in() {
        let plan = plan("max-throughput --report-dir none", 4);
        let yaml = crate::config::to_yaml(&plan.config);
        for line in ["cores: 0-1", "target_concurrency: 128", "report_dir: none"] {
            assert!(yaml.contains(line), "{line}\n{yaml}");
        }
        assert_eq!(plan.report_dir, None);
        assert_eq!(plan.endpoints, ["http://127.0.0.1:4321/"]);
    }

    #[test]
    fn report_directory_is_named_by_time_and_command() {
        let dir = plan("concurrency http://192.0.2.1/ -c 3", 2)
            .report_dir
            .expect("by default there is one");
        let dir = dir.to_str().expect("ASCII");
        let time = dir.strip_prefix("results/").and_then(|dir| dir.strip_suffix("-concurrency"));
        assert_eq!(time.map(str::len), Some("2026-11-30T101502Z".len()), "{dir}");
        let given = plan("http://192.0.2.1/ --report-dir /x/y", 2).report_dir;
        assert_eq!(given, Some(PathBuf::from("/x/y")));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, name) in [
            (0, "1970-01-01T000000Z"),
            (86_399, "1970-01-01T235959Z"),
            (951_782_400, "2000-02-29T000000Z"),
            (951_868_800, "2000-03-01T000000Z"),
            (1_709_164_799, "2024-02-28T235959Z"),
            (1_709_164_800, "2024-02-29T000000Z"),
            (1_796_033_702, "2026-11-30T101502Z"),
            (4_107_542_400, "2100-03-01T000000Z"),
            (4_102_444_799, "2099-12-31T235959Z"),
        ] {
            assert_eq!(utc_name(unix_s), name);
        }
    }

    #[test]
    fn too_many_connections_for_the_descriptors_name_the_way_out() {
        assert_eq!(descriptors(100, 1, 2, false), 100 + 32 + 64);
        assert_eq!(descriptors(100, 1, 2, true), 200 + 32 + 64);
        assert_eq!(descriptors(100, 3, 2, false), 300 + 32 + 64);
        assert_eq!(check_descriptors(100, 196, Ok(196)), Ok(()));
        for limit in [Ok(195), Err(195)] {
            let error = check_descriptors(100, 196, limit).expect_err("one too few");
            assert_eq!(error.exit_code(), 3);
            let text = error.to_string();
            assert!(text.contains("ulimit -n 196") && text.contains("lower -c"), "{text}");
        }
    }

    #[test]
    fn a_source_address_of_another_host_is_refused() {
        let foreign = config("http://192.0.2.1/ --source-ip 192.0.2.7");
        let error = Plan::build(foreign, &host(2), None).expect_err("not ours");
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("--source-ip 192.0.2.7"), "{error}");
        assert_eq!(plan("http://127.0.0.1:9/ --source-ip 127.0.0.1", 2).connections, 64);
    }

    #[test]
    fn serve_takes_the_half_that_a_local_load_leaves() {
        let serve = |line: &str| match cli::parse(line.split_whitespace().map(OsString::from)) {
            Ok(Parsed::Serve(serve)) => ServeConfig::from_cli(*serve).expect("valid"),
            other => panic!("{line}: {other:?}"),
        };
        for (line, cores, expected) in [
            ("serve", 1, vec![0]),
            ("serve", 2, vec![1]),
            ("serve", 4, vec![2, 3]),
            ("serve --cores 0,2", 4, vec![0, 2]),
            ("serve -t 4", 4, vec![0, 1, 2, 3]),
        ] {
            assert_eq!(serve_cores(&serve(line), &host(cores)), Ok(expected), "{line} on {cores}");
        }
    }
}
