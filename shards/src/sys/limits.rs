//! Resource limits of this process.

/// A limit as the kernel holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In force now.
    pub soft: u64,
    /// How far an unprivileged process may raise `soft`; `u64::MAX` = unlimited.
    pub hard: u64,
}

/// RLIMIT_NOFILE: open descriptors.
pub fn nofile() -> Limit {
    read(libc::RLIMIT_NOFILE)
}

/// Raises the soft RLIMIT_NOFILE to at least `needed`. `Ok`: the soft limit now; `Err`: the hard
/// limit, too low.
pub fn raise_nofile(needed: u64) -> Result<u64, u64> {
    let limit = nofile();
    if limit.soft >= needed {
        return Ok(limit.soft);
    }
    if limit.hard < needed {
        return Err(limit.hard);
    }
    let raised = libc::rlimit { rlim_cur: needed, rlim_max: limit.hard };
    // SAFETY: `raised` is a valid rlimit for the duration of the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    if result == 0 { Ok(needed) } else { Err(limit.soft) }
}

/// Makes the kernel's table of descriptors large enough for `count` of them now. It grows by
/// doubling otherwise, and with several threads each step waits for a grace period of RCU: 14 ms
/// were seen for 256 connections. Best effort; call it before threads are started, then it waits
/// for nothing.
pub fn reserve_descriptors(count: u64) {
    let least = count.min(nofile().soft).saturating_sub(1) as libc::c_int;
    // SAFETY: plain system call; descriptor 2 may be closed, which is an error and no more.
    let fd = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, least) };
    if fd >= 0 {
        // SAFETY: `fd` was just created and nobody else owns it.
        let _ = unsafe { libc::close(fd) };
    }
}

fn read(resource: libc::__rlimit_resource_t) -> Limit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid, writable rlimit for the duration of the call.
    let result = unsafe { libc::getrlimit(resource, &raw mut limit) };
    assert_eq!(result, 0, "both resources exist on every Linux");
    Limit { soft: limit.rlim_cur, hard: limit.rlim_max }
}
