//! From the typed configuration to a run: every limit decided, every name resolved, nothing left to
//! guess.
//!
//! The embedded endpoint is started between the two steps: [`embedded`] says whether there is one
//! and on which cores, [`Plan::build`] takes the address it listens on.

mod connections;
mod phases;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use loadgen_shards::order::Order;
use loadgen_shards::phase::{Overload, PhaseKind, Timeouts, Wait};
use loadgen_shards::query::{Address, RequestTable};
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::schedule::SchedulePlan;

use crate::config::{self, Config, Precision, RateShape, ReportDir, ServeConfig, series};
use crate::cores::{self, Choice, CoreRequest, EndpointCores, Host, Need, Timer};
use crate::error::Error;
use crate::expression::{Expression, RequestGoal};
use crate::request::{self, secret::Secrets};
use connections::{Connections, Cost};

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
    /// The flags as typed, but for `-c`, `--cores`, `--report-dir` and those of the output.
    pub flags: Vec<String>,
    /// What is sent, where to.
    pub table: RequestTable,
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

/// Whether the run is against the embedded endpoint, and which cores that gets. Reads and resolves
/// nothing.
pub fn embedded(config: &Config, host: &Host) -> Result<Option<EndpointCores>, Error> {
    if !config.urls.is_empty() {
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
        let flags = config::flags(&config);
        let choice = choose(&config, host, is_local)?;
        let Choice { cores, reason, timer, timer_reason, mut notices } = choice;
        let cost = Cost::new(table.targets.len() as u64, cores.len() as u64, is_embedded);
        let Connections { opened, most, notice } =
            connections::open(&config, cores.len() as u32, cost)?;
        notices.extend(notice);
        let load = open_loop(&mut config)?;
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
            table,
            endpoints,
            secrets: Secrets::of(&config.request, &config.urls),
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
            max_connections: config.max_connections,
            timer: config.timer,
            is_local,
            is_embedded: config.urls.is_empty(),
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
mod tests {
    use std::ffi::OsString;

    use std::sync::Arc;

    use loadgen_shards::schedule::{Process, Profile};

    use super::*;
    use crate::cli::{self, Parsed};

    pub fn config(line: &str) -> Config {
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
    fn an_open_loop_has_a_schedule_and_room_to_grow() {
        let plan = plan("poisson http://192.0.2.1/ -R 90/m --warmup 100 -d 5s -n 7 --seed 9", 2);
        assert_eq!((plan.cores.len(), plan.connections, plan.max_connections), (2, 64, 2048));
        assert_eq!((plan.timer, plan.timer_reason.as_str()), (Timer::Hybrid, "the default"));
        assert!(!plan.spin);
        assert!(plan.phases.iter().all(|phase| phase.in_flight == 2048));
        let of = |index: usize| plan.phases[index].schedule.clone().expect("open loop");
        let profile = Arc::new(Profile::constant(1.5).expect("a rate"));
        let warmup = SchedulePlan {
            process: Process::Poisson,
            profile,
            seed: 9,
            stream: 1,
            count: Some(100),
            end_ns: None,
        };
        assert_eq!(of(0), warmup);
        let performance =
            SchedulePlan { stream: 0, count: Some(7), end_ns: Some(5_000_000_000), ..warmup };
        assert_eq!(of(1), performance);
        let closed = self::plan("http://192.0.2.1/ -c 20 --spin", 2);
        assert!(closed.phases.iter().all(|phase| phase.schedule.is_none()));
        assert_eq!((closed.max_connections, closed.timer, closed.spin), (20, Timer::Inline, true));
    }

    #[test]
    fn a_warmup_has_the_rate_that_the_measured_phase_begins_with() {
        let file = std::env::temp_dir().join(format!("rate-series-{}", std::process::id()));
        std::fs::write(&file, "0 0\n1 40\n3,80\n").expect("a temporary file");
        let series = format!("--rate-series {}", file.display());
        for (line, first, duration_s, at_2s) in [
            ("-R 50 -d 4s", 50.0, 4, 50.0),
            ("-R 50 -d 4s --ramp linear --ramp-from 10 --ramp-time 4s", 10.0, 4, 30.0),
            ("-R 40 -d 4s --ramp exponential --ramp-from 10 --ramp-time 4s", 10.0, 4, 20.0),
            (series.as_str(), 40.0, 3, 60.0),
            (&format!("{series} -d 9s"), 40.0, 9, 60.0),
        ] {
            let plan = plan(&format!("constant http://192.0.2.1/ --warmup 1s {line}"), 2);
            let profile =
                |index: usize| &*plan.phases[index].schedule.as_ref().expect("open loop").profile;
            assert_eq!(*profile(0), Profile::constant(first).expect("a rate"), "{line}");
            let rate = profile(1).rate_at(2_000_000_000);
            assert!((rate - at_2s).abs() < 1e-6, "{line}: {rate}");
            assert_eq!(plan.phases[1].duration_ns, Some(duration_s * 1_000_000_000), "{line}");
        }
        for (text, says) in [("0 5", "give -d"), ("0 5\nx", "line 2 is `x`")] {
            std::fs::write(&file, text).expect("a temporary file");
            let config = config(&format!("poisson http://192.0.2.1/ {series}"));
            let error = Plan::build(config, &host(2), None).expect_err(says);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(says), "{error}");
        }
        std::fs::remove_file(&file).expect("it was written above");
    }

    #[test]
    fn the_embedded_endpoint_stays_off_the_timers_core() {
        let config = config("poisson -R 5 --timer dedicated");
        let endpoint = embedded(&config, &host(4)).expect("fits").expect("no URL");
        assert_eq!(endpoint, EndpointCores { cores: vec![2, 3], is_shared: false });
        let plan = plan("poisson -R 5 --timer dedicated", 4);
        assert_eq!((plan.cores, plan.timer), (vec![0], Timer::Dedicated { core: 1 }));
        assert!(plan.spin, "shards of a dedicated timer do not sleep");
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
        let yaml = config::to_yaml(&plan.config);
        for line in ["cores: 0-1", "target_concurrency: 128", "report_dir: none"] {
            assert!(yaml.contains(line), "{line}\n{yaml}");
        }
        let open = self::plan("poisson http://192.0.2.1/ -R 5 --timer-core 3", 4);
        let yaml = config::to_yaml(&open.config);
        for line in [
            "cores: 0-2",
            "connections: 64",
            "max_connections: 3072",
            "overload: queue",
            "timer: dedicated",
            "timer_core: 3",
            "target_qps: 5.0",
            "spin: false",
        ] {
            assert!(yaml.contains(line), "{line}\n{yaml}");
        }
        assert_eq!(open.flags, ["-R", "5", "--timer", "dedicated", "--timer-core", "3"]);
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
