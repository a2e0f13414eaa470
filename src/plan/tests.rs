//! Plans of whole command lines on invented hosts.

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
    Plan::build(config(line), &host(cores), embedded, None)
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
        let error = Plan::build(config, &host(2), None, None).expect_err(says);
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
    assert_eq!(open.rate_flags, ["-R", "5", "--timer", "dedicated", "--timer-core", "3"]);
    assert_eq!(plan.report_dir, None);
    assert_eq!(plan.endpoints, ["http://127.0.0.1:4321/"]);
}

#[test]
fn report_directory_is_named_by_time_and_command() {
    let dir =
        plan("concurrency http://192.0.2.1/ -c 3", 2).report_dir.expect("by default there is one");
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
    let error = Plan::build(foreign, &host(2), None, None).expect_err("not ours");
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
