//! The eventfd by which control wakes a sleeping shard: only for plans and stops, never on the hot
//! path.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::last_errno;

/// Wakes one reactor. Cheap to clone, callable from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that nobody listens to yet. `Err`: errno.
    pub(crate) fn new() -> Result<Waker, i32> {
        // SAFETY: plain system call; the result is checked before use.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: `fd` was just created and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Waker(Arc::new(fd)))
    }

    /// Makes the reactor's current or next turn return with a `Woken` event.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is 8 readable bytes. A full counter (EAGAIN) means that a wake-up is
        // pending anyway.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes back the pending wake-ups.
    pub(super) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: `count` is 8 writable bytes. EAGAIN means that nothing was pending.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
