//! Raw io_uring, set up as the product's reactor is: SINGLE_ISSUER, DEFER_TASKRUN, multishot recv
//! into one ring of provided buffers, sends without a completion, one enter a turn.

use crate::client::{Exchange, Job, Step, Tally};
use io_uring::squeue::Flags;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

const SQ_ENTRIES: u32 = 256;
const CQ_ENTRIES: u32 = 2048;
const BUFFER_COUNT: u16 = 256;
const BUFFER_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;
const GROUP: u16 = 0;
/// `user_data` of a send is its connection with this bit; a receive has the connection alone.
const SEND: u64 = 1 << 32;

pub fn run(job: &Job) -> io::Result<Tally> {
    let mut uring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_no_sqarray()
        .setup_cqsize(CQ_ENTRIES)
        .build(SQ_ENTRIES)?;
    let mut buffers = Buffers::register(&uring)?;
    // The kernel may read it until the last send is done, so it lives as long as the process.
    let request: &'static [u8] = job.request().leak();
    let streams = job.connect()?;
    let mut tally = Tally::new(job);
    let mut connections = Vec::with_capacity(streams.len());
    for (index, stream) in streams.into_iter().enumerate() {
        push(&mut uring, &recv(&stream, index))?;
        push(&mut uring, &send(&stream, index, request))?;
        connections.push(Connection { stream, exchange: Exchange::new(&tally), is_open: true });
    }
    let mut open = connections.len();
    let mut events = Vec::with_capacity(CQ_ENTRIES as usize);
    while open > 0 {
        match uring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        events.extend(uring.completion().map(|e| (e.user_data(), e.result(), e.flags())));
        for (token, result, flags) in events.drain(..) {
            let index = (token & !SEND) as usize;
            let connection = &mut connections[index];
            let bytes = cqueue::buffer_select(flags).map(|id| (id, buffers.filled(id, result)));
            let step = if !connection.is_open {
                Step::Read // nothing: a late completion of a connection that was given up
            } else if token & SEND != 0 {
                tally.fault("send failed") // a good send makes no completion
            } else if result == -libc::ENOBUFS {
                Step::Read
            } else if result < 0 {
                tally.fault("recv failed")
            } else {
                connection.exchange.received(bytes.map_or(&[], |(_, bytes)| bytes), &mut tally)
            };
            if let Some((id, _)) = bytes {
                buffers.give_back(id);
            }
            if step == Step::Stop {
                connection.is_open = false; // its descriptor stays: the kernel may still use it
                open -= 1;
            } else if connection.is_open {
                if token & SEND == 0 && !cqueue::more(flags) {
                    push(&mut uring, &recv(&connection.stream, index))?;
                }
                if step == Step::Send {
                    push(&mut uring, &send(&connection.stream, index, request))?;
                }
            }
        }
        buffers.publish();
    }
    Ok(tally)
}

struct Connection {
    stream: TcpStream,
    exchange: Exchange,
    is_open: bool,
}

fn recv(stream: &TcpStream, index: usize) -> squeue::Entry {
    opcode::RecvMulti::new(types::Fd(stream.as_raw_fd()), GROUP).build().user_data(index as u64)
}

fn send(stream: &TcpStream, index: usize, request: &'static [u8]) -> squeue::Entry {
    opcode::Send::new(types::Fd(stream.as_raw_fd()), request.as_ptr(), request.len() as u32)
        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
        .build()
        .flags(Flags::SKIP_SUCCESS)
        .user_data(SEND | index as u64)
}

fn push(uring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: the only memory an entry names is the request, which is never freed, and the buffer
    // group, which is registered and never freed.
    while unsafe { uring.submission().push(entry) }.is_err() {
        uring.submit()?;
    }
    Ok(())
}

/// The provided buffers and the ring through which they go to the kernel. Never freed: the kernel
/// may write into them until the uring is gone, which is later than its drop.
struct Buffers {
    entries: *mut types::BufRingEntry,
    memory: *mut u8,
    /// How many buffers were ever given to the kernel, modulo 2^16.
    tail: u16,
}

impl Buffers {
    fn register(uring: &IoUring) -> io::Result<Self> {
        let entries = map(usize::from(BUFFER_COUNT) * size_of::<types::BufRingEntry>())?;
        let memory = map(usize::from(BUFFER_COUNT) * BUFFER_BYTES)?;
        // SAFETY: the memory is mapped for the number of entries and is never unmapped.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(entries as u64, BUFFER_COUNT, GROUP, 0)
        }?;
        let mut buffers = Self { entries: entries.cast(), memory, tail: 0 };
        for id in 0..BUFFER_COUNT {
            buffers.give_back(id);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// What a completion has put into a buffer: `result` bytes, none if it failed.
    fn filled(&self, id: u16, result: i32) -> &[u8] {
        let count = usize::try_from(result).unwrap_or(0).min(BUFFER_BYTES);
        assert!(id < BUFFER_COUNT, "the kernel returns buffers of the group only");
        // SAFETY: the buffer is inside the mapping, and the kernel has handed it over with the
        // completion; it takes it back only after `give_back` and `publish`, which need `&mut self`.
        unsafe {
            std::slice::from_raw_parts(self.memory.add(usize::from(id) * BUFFER_BYTES), count)
        }
    }

    fn give_back(&mut self, id: u16) {
        let place = usize::from(self.tail % BUFFER_COUNT);
        // SAFETY: the place is inside the mapping, and the kernel reads it only below the tail.
        let entry = unsafe { &mut *self.entries.add(place) };
        // SAFETY: as in `filled`.
        entry.set_addr(unsafe { self.memory.add(usize::from(id) * BUFFER_BYTES) } as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the first entry is inside the mapping; its tail word is a u16 that the kernel
        // only reads.
        let tail = unsafe { &*types::BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        // After the entries: the kernel loads the tail with acquire.
        tail.store(self.tail, Ordering::Release);
    }
}

fn map(bytes: usize) -> io::Result<*mut u8> {
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at a place that the kernel chooses.
    match unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        memory => Ok(memory.cast()),
    }
}
