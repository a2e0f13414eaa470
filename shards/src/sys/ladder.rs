//! The setup ladder of io_uring: the best of what this kernel and process allow, or why there is
//! none, with the fix.

use io_uring::IoUring;

use super::{errno_text, last_errno};
use crate::limits::{CQ_ENTRIES, CQ_ENTRIES_LEAST, SQ_ENTRIES, SQ_ENTRIES_LEAST};

/// What a setup of this kernel and process can be; tried from the best down.
pub(super) struct Rung {
    pub(super) features: &'static [&'static str],
    build: fn(&mut io_uring::Builder),
    pub(super) has_taskrun_flag: bool,
}

const LADDER: [Rung; 4] = [
    Rung {
        features: &["single-issuer", "defer-taskrun", "no-sqarray"],
        build: |b| {
            b.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_no_sqarray();
        },
        has_taskrun_flag: true,
    },
    Rung {
        features: &["single-issuer", "defer-taskrun"],
        build: |b| {
            b.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        },
        has_taskrun_flag: true,
    },
    Rung {
        features: &["coop-taskrun"],
        build: |b| {
            b.setup_coop_taskrun().setup_taskrun_flag();
        },
        has_taskrun_flag: true,
    },
    Rung { features: &["plain"], build: |_| {}, has_taskrun_flag: false },
];

/// The best uring that this kernel and process allow. `Err`: cause and fix.
pub(super) fn build() -> Result<(IoUring, &'static Rung), String> {
    let mut errno = 0;
    for rung in &LADDER {
        for (sq_entries, cq_entries) in SIZES {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(cq_entries).dontfork();
            (rung.build)(&mut builder);
            match builder.build(sq_entries) {
                Ok(ring) => return Ok((ring, rung)),
                Err(error) => errno = error.raw_os_error().unwrap_or(last_errno()),
            }
            // Too much for RLIMIT_MEMLOCK: a smaller one works as well, with more calls.
            if errno != libc::ENOMEM {
                break;
            }
        }
        // Only an unknown flag is worth another rung.
        if errno != libc::EINVAL {
            break;
        }
    }
    Err(setup_refusal(errno, |path| std::fs::read_to_string(path).unwrap_or_default()))
}

/// Cause and fix of a refused io_uring_setup, in one line. `read` gives the text of a file, empty
/// if there is none.
fn setup_refusal(errno: i32, read: impl Fn(&str) -> String) -> String {
    let disabled = read("/proc/sys/kernel/io_uring_disabled");
    let has_seccomp = read("/proc/self/status")
        .lines()
        .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    let (cause, fix) = match errno {
        libc::EPERM if matches!(disabled.trim(), "1" | "2") => (
            "kernel.io_uring_disabled forbids it",
            "sysctl kernel.io_uring_disabled=0, or join the group in kernel.io_uring_group",
        ),
        libc::EPERM | libc::ENOSYS if has_seccomp => (
            "a seccomp profile forbids it, as container defaults do",
            "allow io_uring_setup, io_uring_enter and io_uring_register in the profile, \
             e.g. docker run --security-opt seccomp=PROFILE.json",
        ),
        libc::EPERM => ("this process may not use it", "run it with CAP_SYS_ADMIN, or see dmesg"),
        libc::ENOSYS => ("this kernel has none", "Linux 6.1 or later with CONFIG_IO_URING"),
        libc::ENOMEM => ("RLIMIT_MEMLOCK is too low", "ulimit -l unlimited, or LimitMEMLOCK="),
        libc::EINVAL => ("this kernel is too old", "Linux 6.1 or later"),
        libc::EMFILE | libc::ENFILE => ("too many open files", "ulimit -n 65536"),
        _ => return cannot("set up io_uring", errno),
    };
    format!("io_uring refused ({}): {cause}; fix: {fix}", errno_text(errno))
}

/// A step of the set-up that failed.
pub(super) fn cannot(what: &str, errno: i32) -> String {
    format!("io_uring: cannot {what}: {}", errno_text(errno))
}

/// Entries of submission and completion queue, the next pair where locked memory is short.
const SIZES: [(u32, u32); 2] = [(SQ_ENTRIES, CQ_ENTRIES), (SQ_ENTRIES_LEAST, CQ_ENTRIES_LEAST)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_cause_and_fix() {
        let none = |_: &str| String::new();
        let sysctl =
            |path: &str| if path.ends_with("io_uring_disabled") { "2\n" } else { "" }.to_string();
        let seccomp = |path: &str| {
            if path.ends_with("status") { "Name:\tx\nSeccomp:\t2\n" } else { "0\n" }.to_string()
        };
        for (errno, text) in [
            (libc::EPERM, "may not use it"),
            (libc::ENOSYS, "this kernel has none"),
            (libc::ENOMEM, "ulimit -l"),
            (libc::EINVAL, "too old"),
            (libc::EIO, "cannot set up io_uring"),
        ] {
            let refusal = setup_refusal(errno, none);
            assert!(refusal.contains(text), "{refusal}");
        }
        assert!(setup_refusal(libc::EPERM, sysctl).contains("sysctl kernel.io_uring_disabled=0"));
        assert!(setup_refusal(libc::EPERM, seccomp).contains("seccomp"));
        assert!(setup_refusal(libc::ENOSYS, seccomp).contains("seccomp"));
    }
}
