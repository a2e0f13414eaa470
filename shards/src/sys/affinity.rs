//! Cores: which are allowed, and pinning the calling thread to one.

/// Kernel CPU ids that the affinity mask of this process allows, ascending.
pub fn allowed_cores() -> Vec<usize> {
    let mut ids: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    ids.sort_unstable();
    ids
}

/// Pins the calling thread; says whether the kernel agreed.
pub fn pin(core: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: core })
}

/// Lowers the priority of the calling thread, so that control never takes a core from a shard. Best
/// effort.
pub fn be_nice(nice: i32) {
    // SAFETY: plain system call; `who` 0 with PRIO_PROCESS names the calling thread on Linux.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// Asks for timer expiry without the default 50 us of slack, for the calling thread. Best effort.
pub fn tighten_timer_slack() {
    // SAFETY: plain system call with integer arguments.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize) };
}
