//! `loadgen-uring doctor`: can this host run us, and what to type where it cannot.
//!
//! Each check is a pure function from the text of a file in /proc or /sys (or a value) to one
//! [`Check`]; [`run`] is the thin shell that reads them. A WARN costs accuracy or comfort; a FAIL
//! means that no run will start.

use loadgen_shards::reactor::{EngineChoice, EngineReport};
use serde::Serialize;

use crate::config::CommonConfig;
use crate::cores::{self, CoreRequest, Host, Need, list_text};
use crate::error::Error;

/// How a check came out; the worse the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Runs, but less well.
    Warn,
    /// Does not run.
    Fail,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub id: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found, and what it means.
    pub value: String,
    /// What to type; empty when nothing is wrong.
    pub fix: String,
}

/// Runs every check. The text for stdout, and the error of exit code 3 if one failed.
pub fn run(common: &CommonConfig) -> (String, Result<(), Error>) {
    let checks = examine(common.engine);
    let text = if common.json { json_text(&checks) } else { plain_text(&checks) };
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Fail)
        .map(|check| check.id)
        .collect();
    let outcome = match failed.is_empty() {
        true => Ok(()),
        false => {
            Err(Error::setup(format!("doctor found what stops every run: {}", failed.join(", "))))
        }
    };
    (text, outcome)
}

fn examine(engine: EngineChoice) -> Vec<Check> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let limits = read("/proc/self/limits");
    let uring = loadgen_shards::sys::uring::probe();
    let mut checks = vec![
        kernel(&read("/proc/sys/kernel/osrelease")),
        io_uring(&uring, engine),
        io_uring_disabled(&read("/proc/sys/kernel/io_uring_disabled")),
        seccomp(&status, uring.is_ok()),
        nofile(&limits),
        memlock(&limits),
    ];
    match Host::read() {
        Ok(host) => {
            let cpu = |core: usize, name: &str| {
                read(&format!("/sys/devices/system/cpu/cpu{core}/{name}"))
            };
            let siblings = |core| cpu(core, "topology/thread_siblings_list");
            checks.extend([
                allowed(&host),
                quota(&host),
                spare_core(&host),
                smt(&host.allowed, siblings),
            ]);
            checks.extend(governor(&cpu(host.allowed[0], "cpufreq/scaling_governor")));
        }
        Err(error) => checks.push(fail("cores", error.to_string(), "mount -t proc proc /proc")),
    }
    let clocksource = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    checks.push(clock(loadgen_shards::clock::source(), &clocksource));
    checks.push(ports(&read("/proc/sys/net/ipv4/ip_local_port_range")));
    checks.push(somaxconn(&read("/proc/sys/net/core/somaxconn")));
    checks
}

fn kernel(osrelease: &str) -> Check {
    let id = "kernel";
    let release = osrelease.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 1) => ok(id, release),
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 0) => {
            let value = format!("{release}: io_uring without defer-taskrun, which came with 6.1");
            warn(id, value, "boot Linux 6.1 or later")
        }
        (Some(Ok(_)), Some(Ok(_))) => warn(
            id,
            format!("{release}: too old for io_uring here, epoll is used"),
            "boot Linux 6.1 or later",
        ),
        _ => warn(id, format!("`{release}` is no version"), "cat /proc/sys/kernel/osrelease"),
    }
}

fn io_uring(probe: &Result<EngineReport, String>, engine: EngineChoice) -> Check {
    let id = "io_uring";
    match probe {
        Ok(report) if report.reason.is_empty() => {
            ok(id, format!("works: {}", report.features.join(", ")))
        }
        Ok(report) => warn(id, format!("works: {}", report.features.join(", ")), &report.reason),
        Err(cause) if engine == EngineChoice::Uring => {
            fail(id, cause.clone(), "--engine auto runs on epoll")
        }
        Err(cause) => warn(id, format!("{cause}; epoll is used"), "see the lines below"),
    }
}

fn io_uring_disabled(text: &str) -> Check {
    let id = "io_uring_disabled";
    match text.trim() {
        "0" => ok(id, "0: allowed for all"),
        "" => ok(id, "no such sysctl: allowed for all"),
        "1" => warn(
            id,
            "1: only for the group in kernel.io_uring_group",
            "sysctl -w kernel.io_uring_disabled=0",
        ),
        "2" => warn(id, "2: forbidden for all", "sysctl -w kernel.io_uring_disabled=0"),
        other => warn(id, format!("`{other}` is unknown"), "sysctl -w kernel.io_uring_disabled=0"),
    }
}

fn seccomp(status: &str, uring_works: bool) -> Check {
    let id = "seccomp";
    match field(status, "Seccomp:") {
        Some("0") => ok(id, "no filter"),
        Some("1" | "2") if uring_works => ok(id, "a filter, which lets io_uring through"),
        Some("1" | "2") => warn(
            id,
            "a filter, which may be what forbids io_uring, as container defaults do",
            "docker run --security-opt seccomp=PROFILE.json, with io_uring_setup, _enter and \
            _register allowed",
        ),
        _ => ok(id, "not built into this kernel"),
    }
}

fn nofile(limits: &str) -> Check {
    let id = "open_files";
    let Some((soft, hard)) = limit(limits, "Max open files") else {
        return warn(id, "cannot be read", "ulimit -Hn");
    };
    let hard_text = limit_text(hard);
    let value = format!("soft {}, hard {hard_text} (raised by us as needed)", limit_text(soft));
    match hard {
        0..128 => fail(
            id,
            format!("{value}: too few for one shard"),
            "ulimit -Hn 65536 as root, or LimitNOFILE=",
        ),
        128..4096 => warn(
            id,
            format!("{value}: few connections"),
            "ulimit -Hn 65536 as root, or LimitNOFILE=",
        ),
        _ => ok(id, value),
    }
}

fn memlock(limits: &str) -> Check {
    let id = "locked_memory";
    let Some((soft, _)) = limit(limits, "Max locked memory") else {
        return warn(id, "cannot be read", "ulimit -l");
    };
    match soft {
        u64::MAX => ok(id, "unlimited"),
        bytes if bytes >= MEMLOCK_BYTES => ok(id, format!("{} KiB", bytes / 1024)),
        bytes => warn(
            id,
            format!("{} KiB: may be too little for the urings of many shards", bytes / 1024),
            "ulimit -l 8192, or LimitMEMLOCK=8M",
        ),
    }
}

fn allowed(host: &Host) -> Check {
    ok("cores", format!("{} allowed: {}", host.allowed.len(), list_text(&host.allowed)))
}

fn quota(host: &Host) -> Check {
    let id = "cpu_quota";
    match host.quota {
        None => ok(id, "none"),
        Some(quota) if quota >= host.allowed.len() as f64 => {
            ok(id, format!("{quota} cores, not below the allowed"))
        }
        Some(quota) => warn(
            id,
            format!(
                "{quota} cores for {} allowed: throttling makes pauses that look like latency",
                host.allowed.len()
            ),
            "docker run --cpuset-cpus instead of --cpus; in Kubernetes the static CPU manager",
        ),
    }
}

fn spare_core(host: &Host) -> Check {
    let id = "spare_core";
    let need = Need {
        request: CoreRequest::Default,
        connections: None,
        max_connections: None,
        timer: None,
        is_local: true,
        is_embedded: false,
        spin: false,
    };
    let shards = cores::choose(host, &need).map(|choice| choice.cores).unwrap_or_default();
    let endpoint = cores::endpoint_cores(host, &shards);
    if endpoint.is_shared || host.budget() < 2 {
        let value = "an endpoint on this host shares its core with the shards: latency includes \
        waiting for the CPU";
        warn(id, value, "load an endpoint on another host, or allow a second core")
    } else {
        let (shards, endpoint) = (list_text(&shards), list_text(&endpoint.cores));
        ok(id, format!("with an endpoint on this host: shards on {shards}, {endpoint} left to it"))
    }
}

/// `siblings` gives the kernel's list of the hardware threads of a core's physical core.
fn smt(allowed: &[usize], siblings: impl Fn(usize) -> String) -> Check {
    let id = "smt";
    let mut one_each: Vec<usize> = Vec::new();
    let mut sharing: Vec<usize> = Vec::new();
    for &core in allowed {
        let threads = cores::parse_list(siblings(core).trim()).unwrap_or_else(|_| vec![core]);
        let is_taken = one_each.iter().any(|other| threads.contains(other));
        if is_taken { sharing.push(core) } else { one_each.push(core) }
    }
    if sharing.is_empty() {
        return ok(id, "no two allowed cores share a physical one");
    }
    let value = format!("{} share a physical core with another allowed one", list_text(&sharing));
    warn(id, value, &format!("--cores within {}", list_text(&one_each)))
}

/// No line where the host does not say.
fn governor(text: &str) -> Option<Check> {
    let id = "governor";
    match text.trim() {
        "" => None,
        "performance" => Some(ok(id, "performance")),
        other => Some(warn(
            id,
            format!("{other}: the clock of a sleeping core falls, and latency rises"),
            "cpupower frequency-set -g performance",
        )),
    }
}

fn clock(source: &str, clocksource: &str) -> Check {
    let id = "clock";
    let kernel = clocksource.trim();
    let kernel = if kernel.is_empty() { "unknown" } else { kernel };
    let value = format!("ours {source}, kernel's {kernel}");
    match (source, kernel) {
        (_, "hpet" | "acpi_pm" | "jiffies") => warn(
            id,
            format!("{value}: a read takes about a microsecond"),
            "boot with clocksource=tsc",
        ),
        ("tsc", _) => ok(id, value),
        _ => warn(
            id,
            format!("{value}: no invariant TSC, each stamp costs more"),
            "use a CPU with constant_tsc",
        ),
    }
}

fn ports(text: &str) -> Check {
    let id = "port_range";
    let mut numbers = text.split_whitespace().map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(low)), Some(Ok(high))) if high >= low => {
            let count = high - low + 1;
            let value = format!("{low}-{high}: {count} connections to one address and port");
            if count >= PORTS_MIN {
                return ok(id, value);
            }
            warn(
                id,
                format!("{value}, few for --disable-keepalive"),
                "sysctl -w net.ipv4.ip_local_port_range='1024 65535'",
            )
        }
        _ => warn(id, "cannot be read", "sysctl net.ipv4.ip_local_port_range"),
    }
}

fn somaxconn(text: &str) -> Check {
    let id = "somaxconn";
    match text.trim().parse::<u32>() {
        Ok(limit) if limit >= SOMAXCONN_MIN => ok(id, format!("{limit}")),
        Ok(limit) => warn(
            id,
            format!("{limit}: an endpoint on this host drops bursts of new connections"),
            "sysctl -w net.core.somaxconn=4096",
        ),
        Err(_) => warn(id, "cannot be read", "sysctl net.core.somaxconn"),
    }
}

fn ok(id: &'static str, value: impl Into<String>) -> Check {
    Check { id, verdict: Verdict::Ok, value: value.into(), fix: String::new() }
}

fn warn(id: &'static str, value: impl Into<String>, fix: &str) -> Check {
    Check { id, verdict: Verdict::Warn, value: value.into(), fix: fix.into() }
}

fn fail(id: &'static str, value: impl Into<String>, fix: &str) -> Check {
    Check { id, verdict: Verdict::Fail, value: value.into(), fix: fix.into() }
}

/// The value of a line such as `Seccomp:\t0`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Soft and hard value of a line of /proc/self/limits; `u64::MAX` = unlimited.
fn limit(limits: &str, name: &str) -> Option<(u64, u64)> {
    let mut words = field(limits, name)?.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        word => word.parse().ok(),
    });
    Some((words.next()??, words.next()??))
}

fn limit_text(value: u64) -> String {
    if value == u64::MAX { "unlimited".into() } else { value.to_string() }
}

fn plain_text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Ok => "OK",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
        };
        let fix =
            if check.fix.is_empty() { String::new() } else { format!("; fix: {}", check.fix) };
        text.push_str(&format!("{verdict:4}  {:17}  {}{fix}\n", check.id, check.value));
    }
    text
}

fn json_text(checks: &[Check]) -> String {
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    let value = serde_json::json!({ "verdict": verdict, "checks": checks });
    let text = serde_json::to_string_pretty(&value).expect("texts and words have a JSON form");
    format!("{text}\n")
}

/// The usual limit of an unprivileged process; the urings of 64 shards fit it.
const MEMLOCK_BYTES: u64 = 8 << 20;
/// A third of the default range: below it, connections closed within a minute use it up at 160 a
/// second.
const PORTS_MIN: u32 = 10_000;
/// A shard opens up to 64 connections at once, and hosts have many shards.
const SOMAXCONN_MIN: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Fail, Ok as Fine, Warn};

    /// Verdict as claimed; a fix exactly when something is wrong.
    fn expect(check: &Check, verdict: Verdict, says: &str) {
        assert_eq!(check.verdict, verdict, "{check:?}");
        assert_eq!(check.fix.is_empty(), verdict == Fine, "{check:?}");
        assert!(check.value.contains(says) || check.fix.contains(says), "{check:?}");
    }

    #[test]
    fn kernels_are_told_by_version() {
        for (release, verdict, says) in [
            ("6.18.44-fc-v669\n", Fine, "6.18.44"),
            ("6.1.0-13-amd64\n", Fine, "6.1"),
            ("10.0.1", Fine, "10.0"),
            ("6.0.9\n", Warn, "defer-taskrun"),
            ("5.19.0\n", Warn, "epoll is used"),
            ("6.0.12\n", Warn, "defer-taskrun"),
            ("5.15.0-91-generic\n", Warn, "epoll"),
            ("4.18.0\n", Warn, "epoll"),
            ("", Warn, "no version"),
            ("linux", Warn, "no version"),
        ] {
            expect(&kernel(release), verdict, says);
        }
    }

    #[test]
    fn refused_io_uring_is_a_failure_only_when_nothing_else_may_be_used() {
        let good =
            EngineReport { name: "io_uring", features: vec!["multishot"], reason: String::new() };
        let older = EngineReport { reason: "no defer-taskrun: Linux 6.1".into(), ..good.clone() };
        let refused: Result<EngineReport, String> = Err("a seccomp profile forbids it".into());
        expect(&io_uring(&Ok(good), EngineChoice::Auto), Fine, "multishot");
        expect(&io_uring(&Ok(older), EngineChoice::Auto), Warn, "Linux 6.1");
        expect(&io_uring(&refused, EngineChoice::Auto), Warn, "epoll is used");
        expect(&io_uring(&refused, EngineChoice::Uring), Fail, "--engine auto");
    }

    #[test]
    fn sysctl_and_seccomp_are_read() {
        for (text, verdict) in
            [("0\n", Fine), ("", Fine), ("1\n", Warn), ("2\n", Warn), ("x", Warn)]
        {
            expect(&io_uring_disabled(text), verdict, "");
        }
        for (status, works, verdict) in [
            ("Seccomp:\t0\nSeccomp_filters:\t0\n", false, Fine),
            ("Seccomp:\t2\nSeccomp_filters:\t1\n", true, Fine),
            ("Seccomp:\t2\nSeccomp_filters:\t1\n", false, Warn),
            ("Name:\tx\n", false, Fine),
        ] {
            expect(&seccomp(status, works), verdict, "");
        }
    }

    #[test]
    fn limits_are_read_from_the_table_of_the_kernel() {
        let line = |name: &str, soft: &str, hard: &str, unit: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           \
                Units\n{name:25} {soft:20} {hard:20} {unit}\n"
            )
        };
        for (soft, hard, verdict, says) in [
            ("1024", "1048576", Fine, "hard 1048576"),
            ("unlimited", "unlimited", Fine, "unlimited"),
            ("1024", "1024", Warn, "few connections"),
            ("64", "64", Fail, "too few"),
        ] {
            expect(&nofile(&line("Max open files", soft, hard, "files")), verdict, says);
        }
        for (soft, verdict, says) in [
            ("unlimited", Fine, "unlimited"),
            ("8388608", Fine, "8192 KiB"),
            ("65536", Warn, "64 KiB"),
        ] {
            expect(&memlock(&line("Max locked memory", soft, "unlimited", "bytes")), verdict, says);
        }
        expect(&nofile(""), Warn, "cannot be read");
        expect(&memlock("Max locked memory  many\n"), Warn, "cannot be read");
    }

    #[test]
    fn cores_quota_and_the_endpoints_share_are_told() {
        for (count, quota_cores, quota_verdict, spare) in [
            (1, None, Fine, Warn),
            (2, None, Fine, Fine),
            (2, Some(2.0), Fine, Fine),
            (4, Some(1.0), Warn, Warn),
            (4, Some(2.5), Warn, Fine),
        ] {
            let host = Host { allowed: (0..count).collect(), online: count, quota: quota_cores };
            expect(&allowed(&host), Fine, "allowed");
            expect(&quota(&host), quota_verdict, "");
            expect(&spare_core(&host), spare, "");
        }
    }

    #[test]
    fn siblings_among_the_allowed_cores_are_found() {
        // Two physical cores, threads 0,2 and 1,3.
        let siblings =
            |core: usize| if core.is_multiple_of(2) { "0,2\n".into() } else { "1,3\n".into() };
        expect(&smt(&[0, 1], siblings), Fine, "no two");
        expect(&smt(&[0, 1, 2, 3], siblings), Warn, "--cores within 0-1");
        expect(&smt(&[1, 2, 3], siblings), Warn, "3 share");
        expect(&smt(&[0, 1], |_| String::new()), Fine, "no two");
    }

    #[test]
    fn clock_ports_backlog_and_governor_have_their_thresholds() {
        expect(&clock("tsc", "tsc\n"), Fine, "tsc");
        expect(&clock("tsc", "kvm-clock\n"), Fine, "kvm-clock");
        expect(&clock("tsc", ""), Fine, "unknown");
        expect(&clock("tsc", "hpet\n"), Warn, "microsecond");
        expect(&clock("clock_gettime", "kvm-clock\n"), Warn, "no invariant TSC");
        expect(&ports("32768\t60999\n"), Fine, "28232");
        expect(&ports("60000\t60999\n"), Warn, "1000 connections");
        expect(&ports("9 1"), Warn, "cannot be read");
        expect(&ports(""), Warn, "cannot be read");
        expect(&somaxconn("4096\n"), Fine, "4096");
        expect(&somaxconn("128\n"), Warn, "somaxconn=4096");
        expect(&somaxconn(""), Warn, "cannot be read");
        assert_eq!(governor(""), None);
        expect(&governor("performance\n").expect("a line"), Fine, "performance");
        expect(&governor("powersave\n").expect("a line"), Warn, "cpupower");
    }

    #[test]
    fn the_answer_is_a_line_a_check_or_one_json_object() {
        let checks = [ok("a", "x"), warn("b", "y", "type this")];
        assert_eq!(
            plain_text(&checks),
            "OK    a                  x\nWARN  b                  y; fix: type this\n"
        );
        let value: serde_json::Value = serde_json::from_str(&json_text(&checks)).expect("JSON");
        assert_eq!(value["verdict"], "warn");
        assert_eq!(value["checks"][1]["fix"], "type this");
    }

    #[test]
    fn the_host_of_the_tests_can_be_examined() {
        let checks = examine(EngineChoice::Auto);
        assert!(checks.len() >= 13, "{checks:?}");
        assert!(checks.iter().all(|check| check.verdict != Fail), "{checks:?}");
    }
}
