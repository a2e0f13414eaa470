//! Many pieces of bytes, built in parallel, one after the other in one piece of memory.
//!
//! Threads take blocks of entries in order and write each block into a buffer of its own; then the
//! blocks are copied into the arena and let go. So memory peaks at twice the arena, and the arena
//! is the same whatever the number of threads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Bytes that belong together, and what is known of each entry beside its place.
#[derive(Debug)]
pub struct Built<T> {
    /// All bytes.
    pub arena: Arc<[u8]>,
    /// In the order of the entries; their ranges follow each other.
    pub entries: Vec<(Range<usize>, T)>,
}

/// Why there is no arena.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// The first entry that could not be written.
    Entry(E),
    /// All entries together are longer than allowed.
    TooLong,
}

/// Builds `count` entries on as many threads as there are cores. `write` appends entry i;
/// `progress` is told after each block how many entries are done, from any of the threads.
pub fn build<T: Send, E: Send>(
    count: usize,
    bytes_max: u64,
    write: impl Fn(usize, &mut Vec<u8>) -> Result<T, E> + Sync,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Built<T>, Failure<E>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    build_on(cores.min(THREADS_MAX), count, bytes_max, write, progress)
}

struct Block<T> {
    bytes: Vec<u8>,
    /// Where each entry ends in `bytes`.
    entries: Vec<(usize, T)>,
}

fn build_on<T: Send, E: Send>(
    threads: usize,
    count: usize,
    bytes_max: u64,
    write: impl Fn(usize, &mut Vec<u8>) -> Result<T, E> + Sync,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Built<T>, Failure<E>> {
    let block_entries = (count / (threads * BLOCKS_PER_THREAD)).clamp(1, BLOCK_ENTRIES_MAX);
    let blocks = count.div_ceil(block_entries);
    let (next, done, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
    let has_failed = AtomicBool::new(false);
    let results = Mutex::new(Vec::with_capacity(blocks));
    let work = || {
        while !has_failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= blocks {
                break;
            }
            let range = index * block_entries..((index + 1) * block_entries).min(count);
            let entries = range.len();
            let mut block = write_block(range, &write);
            if let Ok(Block { bytes: own, .. }) = &block {
                let own = own.len() as u64;
                if bytes.fetch_add(own, Ordering::Relaxed) + own > bytes_max {
                    block = Err(Failure::TooLong);
                }
            }
            has_failed.fetch_or(block.is_err(), Ordering::Relaxed);
            results.lock().expect("no thread panics with the lock").push((index, block));
            progress(done.fetch_add(entries, Ordering::Relaxed) + entries);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(blocks) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().expect("no thread panics with the lock");
    // Blocks are taken in order, so every block before a failed one was taken too: the first
    // failure in this order is the first of all entries.
    results.sort_unstable_by_key(|(index, _)| *index);
    let blocks: Result<Vec<Block<T>>, Failure<E>> =
        results.into_iter().map(|(_, block)| block).collect();
    Ok(joined(blocks?))
}

fn write_block<T, E>(
    range: Range<usize>,
    write: &impl Fn(usize, &mut Vec<u8>) -> Result<T, E>,
) -> Result<Block<T>, Failure<E>> {
    let mut block = Block { bytes: Vec::new(), entries: Vec::with_capacity(range.len()) };
    for entry in range {
        let known = write(entry, &mut block.bytes).map_err(Failure::Entry)?;
        block.entries.push((block.bytes.len(), known));
    }
    block.bytes.shrink_to_fit();
    Ok(block)
}

fn joined<T>(blocks: Vec<Block<T>>) -> Built<T> {
    let length = blocks.iter().map(|block| block.bytes.len()).sum();
    let mut entries = Vec::with_capacity(blocks.iter().map(|block| block.entries.len()).sum());
    let mut arena: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
    let mut rest = Arc::get_mut(&mut arena).expect("nobody else has it yet");
    let mut begin = 0;
    for Block { bytes, entries: ends } in blocks {
        let (own, after) = rest.split_at_mut(bytes.len());
        own.copy_from_slice(&bytes);
        rest = after;
        let base = length - rest.len() - bytes.len();
        for (end, known) in ends {
            entries.push((begin..base + end, known));
            begin = base + end;
        }
    }
    Built { arena, entries }
}

const THREADS_MAX: usize = 32;
/// So many that threads end at about the same time and progress is smooth.
const BLOCKS_PER_THREAD: usize = 16;
const BLOCK_ENTRIES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Entry i is i mod 13 times its number: some are empty.
    fn entry(i: usize, out: &mut Vec<u8>) -> Result<usize, String> {
        for _ in 0..i % 13 {
            out.extend_from_slice(i.to_string().as_bytes());
        }
        Ok(i * 2)
    }

    #[test]
    fn the_arena_is_that_of_one_loop_whatever_the_threads() {
        for count in [0, 1, 2, 63, 64, 65, 10_000] {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for i in 0..count {
                let begin = bytes.len();
                let known = entry(i, &mut bytes).expect("it never fails");
                expected.push((begin..bytes.len(), known));
            }
            for threads in [1, 2, 7] {
                let seen = AtomicUsize::new(0);
                let progress = |done| {
                    seen.fetch_max(done, Ordering::Relaxed);
                };
                let built = build_on(threads, count, u64::MAX, entry, &progress).expect("valid");
                assert_eq!(&*built.arena, &bytes[..], "{count} entries, {threads} threads");
                assert_eq!(built.entries, expected, "{count} entries, {threads} threads");
                assert_eq!(seen.into_inner(), count);
            }
        }
    }

    #[test]
    fn the_first_entry_that_fails_is_told() {
        let write = |i: usize, out: &mut Vec<u8>| {
            if i % 1000 == 777 { Err(i) } else { entry(i, out).map_err(|_| 0) }
        };
        for threads in [1, 2, 7] {
            let failure = build_on(threads, 10_000, u64::MAX, write, &|_| {});
            assert_eq!(failure.err(), Some(Failure::Entry(777)), "{threads} threads");
        }
    }

    #[test]
    fn more_bytes_than_allowed_are_refused_and_as_many_are_not() {
        let write = |_: usize, out: &mut Vec<u8>| -> Result<(), ()> {
            out.extend_from_slice(&[7; 10]);
            Ok(())
        };
        assert_eq!(build_on(2, 100, 999, write, &|_| {}).err(), Some(Failure::TooLong));
        let built = build_on(2, 100, 1000, write, &|_| {}).expect("as many as allowed");
        assert_eq!(built.arena.len(), 1000);
    }
}
