//! How long the calling thread has wanted the CPU: the time it had it, and the time it waited for
//! it.
//!
//! A shard that others push off its core has no time to spare either, though it uses little.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::sys::time::thread_cpu_ns;

/// Reads both for one thread, without allocating.
#[derive(Debug)]
pub struct CpuMeter {
    /// `/proc/thread-self/schedstat`, where the kernel has it: ns on the CPU, ns waiting for it,
    /// slices.
    schedstat: Option<File>,
}

impl CpuMeter {
    /// A meter of the calling thread; only that thread may read it.
    pub fn of_this_thread() -> CpuMeter {
        CpuMeter { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// Time on the CPU and waiting for it since the thread began, ns.
    pub fn busy_ns(&self) -> u64 {
        thread_cpu_ns() + self.waited_ns().unwrap_or(0)
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
        let begin_ns = meter.busy_ns();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let asleep_ns = meter.busy_ns() - begin_ns;
        let started = thread_cpu_ns();
        while thread_cpu_ns() - started < 20_000_000 {}
        let working_ns = meter.busy_ns() - begin_ns - asleep_ns;
        assert!(asleep_ns < 40_000_000, "{asleep_ns}");
        assert!(working_ns >= 20_000_000, "{working_ns}");
    }
}
