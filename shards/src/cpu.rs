//! How long the calling thread has wanted the CPU: the time it had it, and the time it waited for
//! it.
//!
//! A shard that others push off its core has no time to spare either, though it uses little.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::sys::time::{ThreadUsage, thread_cpu_ns, thread_usage};

/// Reads both for one thread, without allocating.
#[derive(Debug)]
pub struct CpuMeter {
    /// `/proc/thread-self/schedstat`, where the kernel has it: ns on the CPU, ns waiting for it,
    /// slices.
    schedstat: Option<File>,
}

/// What a thread has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// Time on a core, ns.
    pub cpu_ns: u64,
    /// Time it was ready to run and had no core, ns; 0 where the kernel does not tell.
    pub run_delay_ns: u64,
    /// Times the kernel took the core from it.
    pub involuntary_switches: u64,
    /// Page faults that read from disk.
    pub major_faults: u64,
}

impl CpuUse {
    /// On a core or waiting for one, ns.
    pub fn busy_ns(&self) -> u64 {
        self.cpu_ns + self.run_delay_ns
    }

    /// What came since an earlier reading.
    pub fn since(&self, earlier: &CpuUse) -> CpuUse {
        CpuUse {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            run_delay_ns: self.run_delay_ns.saturating_sub(earlier.run_delay_ns),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }
}

impl CpuMeter {
    /// A meter of the calling thread; only that thread may read it.
    pub fn of_this_thread() -> CpuMeter {
        CpuMeter { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// What the thread has used since it began.
    pub fn read(&self) -> CpuUse {
        let ThreadUsage { involuntary_switches, major_faults } = thread_usage();
        CpuUse {
            cpu_ns: thread_cpu_ns(),
            run_delay_ns: self.waited_ns().unwrap_or(0),
            involuntary_switches,
            major_faults,
        }
    }

    fn waited_ns(&self) -> Option<u64> {
        let mut text = [0u8; 96];
        let len = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_at_work_is_counted_and_time_asleep_is_not() {
        let meter = CpuMeter::of_this_thread();
        let begin_ns = meter.read().busy_ns();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let asleep_ns = meter.read().busy_ns() - begin_ns;
        let started = thread_cpu_ns();
        while thread_cpu_ns() - started < 20_000_000 {}
        let working_ns = meter.read().busy_ns() - begin_ns - asleep_ns;
        assert!(asleep_ns < 40_000_000, "{asleep_ns}");
        assert!(working_ns >= 20_000_000, "{working_ns}");
    }
}
