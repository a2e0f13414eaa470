//! The allocator of the test that holds shards to allocating nothing: it counts what their threads
//! ask for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, with a count of the allocations and reallocations of all threads whose
/// name begins with `shard-`. To be the `#[global_allocator]` of a test binary.
#[derive(Debug)]
pub struct CountingAllocator {
    count: AtomicU64,
}

impl CountingAllocator {
    /// Nothing counted yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a static needs a const fn")]
    pub const fn new() -> CountingAllocator {
        CountingAllocator { count: AtomicU64::new(0) }
    }

    /// Allocations of shards so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    fn note(&self) {
        if is_shard() {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Asks the kernel each time, as a thread allocates before it has its name, and asking `std` could
/// allocate.
fn is_shard() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, the length of `name`.
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    result == 0 && name.starts_with(b"shard-")
}

// SAFETY: every call goes to `System` unchanged, so its guarantees are ours; counting neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.note();
        // SAFETY: the caller's promises for `alloc` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.note();
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        self.note();
        // SAFETY: `pointer` came from `System` with this layout, as all of ours do; the rest as in
        // `alloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
