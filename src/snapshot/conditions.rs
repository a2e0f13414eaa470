//! What of the host a measurement depends on: how its cores wait and run, and the time that the
//! hypervisor gave to others. Read, never changed.

use std::fs;

/// How the host runs its cores. Texts are empty and options `None` where it does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Of the frequency, on the first shard's core.
    pub governor: String,
    /// Whether the CPU may run faster than its base frequency.
    pub turbo: Option<bool>,
    /// What puts an idle core to sleep; `haltpoll` in a guest that polls first.
    pub idle_driver: String,
    /// The deepest sleep that is allowed on the first shard's core.
    pub deepest_sleep: String,
    /// What waking from it takes, by the host's own account, µs.
    pub wake_us: Option<u64>,
    /// Whether two hardware threads share a core.
    pub smt: Option<bool>,
    /// Cores that the scheduler leaves alone (`isolcpus`), as a list.
    pub isolated: String,
    /// Cores without a timer tick (`nohz_full`), as a list.
    pub tickless: String,
    /// Where the kernel takes the time from.
    pub clocksource: String,
    /// Scheduling policy of this process.
    pub policy: &'static str,
    /// Time that a real-time policy may run in each [`Conditions::realtime_period_us`], µs; -1: all
    /// of it.
    pub realtime_us: Option<i64>,
    /// See [`Conditions::realtime_us`].
    pub realtime_period_us: Option<i64>,
}

impl Conditions {
    /// Asks the running kernel; `core` is the first shard's.
    pub fn read(core: usize) -> Conditions {
        Conditions::from(core, |path| fs::read_to_string(path).ok())
    }

    fn from(core: usize, file: impl Fn(&str) -> Option<String>) -> Conditions {
        let text = |path: &str| file(path).unwrap_or_default().trim().to_owned();
        let number = |path: &str| file(path)?.trim().parse::<i64>().ok();
        let cpu = |name: &str| format!("/sys/devices/system/cpu/{name}");
        let switch = |name: &str| Some(number(&cpu(name))? != 0);
        let of_core = |name: &str| cpu(&format!("cpu{core}/{name}"));
        let deepest = (0..IDLE_STATES)
            .map(|index| of_core(&format!("cpuidle/state{index}")))
            .take_while(|state| file(&format!("{state}/name")).is_some())
            .filter(|state| number(&format!("{state}/disable")) != Some(1))
            .last();
        let of_deepest = |name: &str| text(&format!("{}/{name}", deepest.as_deref().unwrap_or("")));
        let idle_driver = cpu("cpuidle/current_driver");
        Conditions {
            governor: text(&of_core("cpufreq/scaling_governor")),
            turbo: switch("cpufreq/boost")
                .or_else(|| switch("intel_pstate/no_turbo").map(|is_off| !is_off)),
            idle_driver: text(&idle_driver),
            deepest_sleep: of_deepest("name"),
            wake_us: of_deepest("latency").parse().ok(),
            smt: switch("smt/active"),
            isolated: text(&cpu("isolated")),
            // The kernel's word for none.
            tickless: text(&cpu("nohz_full")).replace("(null)", ""),
            clocksource: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            policy: file("/proc/self/stat").and_then(|stat| policy(&stat)).unwrap_or_default(),
            realtime_us: number("/proc/sys/kernel/sched_rt_runtime_us"),
            realtime_period_us: number("/proc/sys/kernel/sched_rt_period_us"),
        }
    }

    /// The share of the time that the kernel takes away from a real-time policy that never sleeps;
    /// `None` if the process has none, or may run all the time.
    pub fn realtime_throttle(&self) -> Option<f64> {
        let is_realtime = matches!(self.policy, "fifo" | "rr");
        let (run_us, period_us) = self.realtime_us.zip(self.realtime_period_us)?;
        (is_realtime && 0 <= run_us && run_us < period_us)
            .then(|| 1.0 - run_us as f64 / period_us as f64)
    }
}

/// Field 41 of `/proc/self/stat`. The name in field 2 may hold anything, so it is counted from its
/// closing parenthesis.
fn policy(stat: &str) -> Option<&'static str> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(match rest.split_ascii_whitespace().nth(41 - 3)? {
        "0" => "other",
        "1" => "fifo",
        "2" => "rr",
        "3" => "batch",
        "5" => "idle",
        "6" => "deadline",
        _ => return None,
    })
}

/// Time that the hypervisor gave to others while a core wanted to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steal {
    /// Kernel CPU id.
    pub core: usize,
    /// Over which time, ns.
    pub over_ns: u64,
    /// Of it, ns; in steps of [`STEAL_STEP_NS`].
    pub stolen_ns: u64,
}

/// Reads `/proc/stat` from time to time.
#[derive(Debug)]
pub struct StealMeter {
    cores: Vec<usize>,
    last_ns: u64,
    last: Vec<Option<u64>>,
}

impl StealMeter {
    /// Of these cores, from `now_ns` on.
    pub fn new(cores: &[usize], now_ns: u64) -> StealMeter {
        let last = stolen_of(cores);
        StealMeter { cores: cores.to_vec(), last_ns: now_ns, last }
    }

    /// What came since the last look, by core; a core that the kernel does not list has no entry.
    pub fn lap(&mut self, now_ns: u64) -> Vec<Steal> {
        let now = stolen_of(&self.cores);
        let over_ns = now_ns.saturating_sub(self.last_ns);
        let pairs = self.cores.iter().zip(self.last.iter().zip(&now));
        let steals = pairs.filter_map(|(core, (last, now))| {
            let steps = (*now)?.saturating_sub((*last)?);
            Some(Steal { core: *core, over_ns, stolen_ns: steps * STEAL_STEP_NS })
        });
        let steals = steals.collect();
        (self.last_ns, self.last) = (now_ns, now);
        steals
    }
}

/// TCP segments of this network namespace, of any program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Sent, first time and again.
    pub sent: u64,
    /// Sent again, as no acknowledgement came.
    pub resent: u64,
}

impl Segments {
    /// Asks the kernel; `None` where it does not tell.
    pub fn read() -> Option<Segments> {
        Segments::parse(&fs::read_to_string("/proc/net/snmp").ok()?)
    }

    /// Two lines begin with `Tcp:`: names, then values.
    fn parse(snmp: &str) -> Option<Segments> {
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (names, values) = (lines.next()?, lines.next()?);
        let pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
        let value = |name: &str| {
            let mut pairs = pairs.clone();
            pairs.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        let (sent, resent) = (value("OutSegs")?, value("RetransSegs")?);
        // The kernel counts the second kind apart.
        Some(Segments { sent: sent + resent, resent })
    }

    /// What came since an earlier look.
    pub fn since(self, earlier: Segments) -> Segments {
        Segments {
            sent: self.sent.saturating_sub(earlier.sent),
            resent: self.resent.saturating_sub(earlier.resent),
        }
    }
}

fn stolen_of(cores: &[usize]) -> Vec<Option<u64>> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    cores.iter().map(|core| stolen(&stat, *core)).collect()
}

/// The eighth figure of a core's line in `/proc/stat`, in steps.
fn stolen(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let mut lines = stat.lines().map(str::split_ascii_whitespace);
    let mut fields = lines.find_map(|mut fields| (fields.next()? == name).then_some(fields))?;
    fields.nth(7)?.parse().ok()
}

/// The kernel tells times of cores in hundredths of a second, whatever its own tick.
pub const STEAL_STEP_NS: u64 = 10_000_000;
/// The kernel has at most ten.
const IDLE_STATES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_by_the_names_of_their_columns() {
        let snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                    Tcp: RtoMin MaxConn RetransSegs InErrs OutSegs\nTcp: 200 -1 7 0 5000\n";
        let first = Segments::parse(snmp).expect("both are there");
        assert_eq!(first, Segments { sent: 5007, resent: 7 });
        let later = Segments { sent: 6000, resent: 9 };
        assert_eq!(later.since(first), Segments { sent: 993, resent: 2 });
        for other in ["", "Tcp: OutSegs\n", "Tcp: OutSegs\nTcp: 5\n", "Udp: a\nUdp: 1\n"] {
            assert_eq!(Segments::parse(other), None, "{other}");
        }
        assert!(Segments::read().is_some(), "Linux tells");
    }

    #[test]
    fn conditions_are_read_from_the_kernels_files() {
        let cpu = "/sys/devices/system/cpu";
        let files = [
            ("cpu3/cpufreq/scaling_governor", "powersave\n"),
            ("intel_pstate/no_turbo", "0\n"),
            ("cpuidle/current_driver", "intel_idle\n"),
            ("cpu3/cpuidle/state0/name", "POLL\n"),
            ("cpu3/cpuidle/state1/name", "C1\n"),
            ("cpu3/cpuidle/state1/latency", "2\n"),
            ("cpu3/cpuidle/state2/name", "C6\n"),
            ("cpu3/cpuidle/state2/latency", "133\n"),
            ("cpu3/cpuidle/state3/name", "C8\n"),
            ("cpu3/cpuidle/state3/disable", "1\n"),
            ("smt/active", "1\n"),
            ("isolated", "2-3\n"),
            ("nohz_full", "(null)\n"),
        ];
        let told = Conditions::from(3, |path| {
            let text = match path {
                "/proc/sys/kernel/sched_rt_runtime_us" => "950000\n",
                "/proc/sys/kernel/sched_rt_period_us" => "1000000\n",
                "/proc/self/stat" => {
                    "7 (a) b) R 6 6 2 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 125 313 418 184 94 \
                     95 14 0 0 0 0 0 0 0 0 0 17 3 50 1 0 0 0 94 95 96 14 14 14 14 0"
                }
                _ => files.iter().find(|(name, _)| path == format!("{cpu}/{name}"))?.1,
            };
            Some(text.to_owned())
        });
        let expected = Conditions {
            governor: "powersave".to_owned(),
            turbo: Some(true),
            idle_driver: "intel_idle".to_owned(),
            deepest_sleep: "C6".to_owned(),
            wake_us: Some(133),
            smt: Some(true),
            isolated: "2-3".to_owned(),
            policy: "fifo",
            realtime_us: Some(950_000),
            realtime_period_us: Some(1_000_000),
            ..Conditions::default()
        };
        assert_eq!(told, expected);
        let throttle = told.realtime_throttle().expect("fifo, and not all of the time");
        assert!((throttle - 0.05).abs() < 1e-12, "{throttle}");
    }

    #[test]
    fn only_a_real_time_policy_with_a_limit_is_throttled() {
        let fifo = Conditions {
            policy: "fifo",
            realtime_us: Some(950_000),
            realtime_period_us: Some(1_000_000),
            ..Conditions::default()
        };
        let all = Conditions { realtime_us: Some(-1), ..fifo.clone() };
        let other = Conditions { policy: "other", ..fifo.clone() };
        for (conditions, is_throttled) in [(fifo, true), (all, false), (other, false)] {
            assert_eq!(conditions.realtime_throttle().is_some(), is_throttled, "{conditions:?}");
        }
        assert_eq!(Conditions::from(0, |_| None), Conditions::default(), "nothing is told");
    }

    #[test]
    fn stolen_time_is_that_of_the_cores_own_line() {
        let stat = "cpu  1 2 3 4 5 6 7 999 0 0\ncpu0 1 2 3 4 5 6 7 310 0 0\n\
                    cpu1 1 2 3 4 5 6 7 259\ncpu10 1 2 3 4 5 6 7 8 0 0\nintr 5\n";
        let told = [0, 1, 10, 2].map(|core| stolen(stat, core));
        assert_eq!(told, [Some(310), Some(259), Some(8), None]);
        assert_eq!(stolen("", 0), None);
    }

    #[test]
    fn meter_tells_what_came_since_the_last_look() {
        let mut meter = StealMeter::new(&[0, 9999], 1000);
        meter.last[0] = meter.last[0].map(|steps| steps.saturating_sub(3));
        let laps = meter.lap(2_000_001_000);
        assert_eq!(laps.len(), 1, "core 9999 is not there");
        assert_eq!((laps[0].core, laps[0].over_ns), (0, 2_000_000_000));
        assert_eq!(laps[0].stolen_ns % STEAL_STEP_NS, 0);
        assert_eq!(meter.lap(2_000_001_000)[0].over_ns, 0);
    }
}
