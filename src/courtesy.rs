//! Control may share its core with a shard that never sleeps. The scheduler lets it have some time
//! now and then, and takes the core back at a tick, up to 4 ms later: long enough to make every
//! request late that is due meanwhile. So what takes long says at short distances that the shard
//! may go on.

/// Gives the core to whoever waits for it. About 1 µs where nobody does.
pub fn make_way() {
    std::thread::yield_now();
}
