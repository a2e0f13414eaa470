//! The provided-buffer ring: where multishot receives put their bytes.
//!
//! **Ownership rule of the whole back end: memory named in a submission belongs to the reactor
//! until the kernel has posted the last completion that can touch it** (no `F_MORE`). A buffer is
//! the kernel's from `BufferRing::put` and `BufferRing::publish` until a completion hands it
//! out by id, and ours from then until it is put back.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::last_errno;

/// An anonymous, page-aligned mapping.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// `Err`: errno.
    fn new(len: usize) -> Result<Mapping, i32> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh anonymous mapping touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let start = NonNull::new(start.cast()).expect("a mapping is never at address 0");
        Ok(Mapping { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are those of the mapping, which is unmapped once.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// One group of equal buffers and the ring by which they are given to the kernel.
pub(super) struct BufferRing {
    entries: Mapping,
    memory: Mapping,
    buffer_bytes: usize,
    /// Buffers of the group; a power of two.
    count: u16,
    /// Id of the first buffer: ids of different groups do not overlap, so that an id alone names
    /// its buffer.
    first_id: u16,
    /// Our tail; what the kernel sees lags behind until `publish`.
    tail: u16,
}

impl BufferRing {
    /// Maps memory for `count` buffers with ids from `first_id` on, all still ours. `Err`: errno.
    pub(super) fn new(count: u16, buffer_bytes: usize, first_id: u16) -> Result<BufferRing, i32> {
        assert!(count.is_power_of_two(), "the kernel masks the tail");
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Mapping::new(usize::from(count) * buffer_bytes)?;
        Ok(BufferRing { entries, memory, buffer_bytes, count, first_id, tail: 0 })
    }

    /// Address of the ring for the registration.
    pub(super) fn address(&self) -> u64 {
        self.entries.start.as_ptr() as u64
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Whether `id` is a buffer of this group.
    pub(super) fn owns(&self, id: u16) -> bool {
        (self.first_id..self.first_id + self.count).contains(&id)
    }

    /// Gives every buffer to the kernel.
    pub(super) fn put_all(&mut self) {
        for id in self.first_id..self.first_id + self.count {
            self.put(id);
        }
        self.publish();
    }

    /// The first `len` bytes of a buffer that a completion has handed out.
    pub(super) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(self.owns(id) && len <= self.buffer_bytes, "a completion names its buffer");
        let offset = usize::from(id - self.first_id) * self.buffer_bytes;
        // SAFETY: the offset is inside the mapping, as `id` is one of ours (asserted).
        let start = unsafe { self.memory.start.as_ptr().add(offset) };
        // SAFETY: `len` bytes from there are inside the mapping (asserted) and initialised (an
        // anonymous mapping is zeroed); the kernel does not write them before the buffer is put
        // back, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Gives a buffer back; the kernel sees it after `publish`.
    pub(super) fn put(&mut self, id: u16) {
        debug_assert!(self.owns(id), "only its own buffers");
        let offset = usize::from(id - self.first_id) * self.buffer_bytes;
        // SAFETY: the offset is inside the mapping, as `id` is one of ours.
        let address = unsafe { self.memory.start.as_ptr().add(offset) } as u64;
        let index = usize::from(self.tail & (self.count - 1));
        let base = self.entries.start.as_ptr().cast::<BufRingEntry>();
        // SAFETY: `index` is below `count`, the length of the ring.
        let entry = unsafe { base.add(index) };
        // SAFETY: the entry is ours: the kernel reads entries only between its head and the
        // published tail, and at most `count` buffers exist, so this one is outside of that range.
        // All-zero is a valid entry.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the buffers given back to the kernel: one Release store, which orders the entries
    /// above before the tail that the kernel reads with Acquire.
    pub(super) fn publish(&mut self) {
        let base = self.entries.start.as_ptr().cast::<BufRingEntry>();
        // SAFETY: `base` is the start of the ring, as `tail` asks.
        let tail = unsafe { BufRingEntry::tail(base) }.cast_mut().cast::<AtomicU16>();
        // SAFETY: the tail is a u16 inside the mapping, aligned, and only written through this
        // atomic.
        let tail = unsafe { &*tail };
        tail.store(self.tail, Ordering::Release);
    }
}
