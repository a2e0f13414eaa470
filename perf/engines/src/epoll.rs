//! Raw epoll, level triggered: one wait a turn, one recv and one send a request.

use crate::client::{Exchange, Job, Step, Tally};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const EVENTS_LIMIT: usize = 512;

pub fn run(job: &Job) -> io::Result<Tally> {
    let request = job.request();
    let poll = poll_descriptor()?;
    let streams = job.connect()?;
    let mut tally = Tally::new(job);
    let mut connections = Vec::with_capacity(streams.len());
    for (index, mut stream) in streams.into_iter().enumerate() {
        watch(&poll, &stream, index as u64)?;
        stream.write_all(&request)?;
        connections.push((stream, Exchange::new(&tally)));
    }
    let mut open = connections.len();
    let mut input = vec![0; 16 * 1024];
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_LIMIT];
    while open > 0 {
        for event in wait(&poll, &mut events)? {
            let (stream, exchange) = &mut connections[event.u64 as usize];
            let step = match stream.read(&mut input) {
                Ok(count) => exchange.received(&input[..count], &mut tally),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Read,
                Err(_) => tally.fault("recv failed"),
            };
            match step {
                Step::Read => {}
                Step::Send => match stream.write(&request) {
                    Ok(count) if count == request.len() => {}
                    _ => {
                        tally.fault("send failed or was short");
                        open -= 1;
                        forget(&poll, stream)?;
                    }
                },
                Step::Stop => {
                    open -= 1;
                    forget(&poll, stream)?;
                }
            }
        }
    }
    Ok(tally)
}

fn poll_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn watch(poll: &OwnedFd, stream: &TcpStream, index: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: index };
    control(poll, libc::EPOLL_CTL_ADD, stream, &mut event)
}

fn forget(poll: &OwnedFd, stream: &TcpStream) -> io::Result<()> {
    let mut unused = libc::epoll_event { events: 0, u64: 0 };
    control(poll, libc::EPOLL_CTL_DEL, stream, &mut unused)
}

fn control(
    poll: &OwnedFd,
    operation: i32,
    stream: &TcpStream,
    event: &mut libc::epoll_event,
) -> io::Result<()> {
    // SAFETY: both descriptors are open, the event is read during the call only.
    match unsafe { libc::epoll_ctl(poll.as_raw_fd(), operation, stream.as_raw_fd(), event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn wait<'a>(
    poll: &OwnedFd,
    events: &'a mut [libc::epoll_event],
) -> io::Result<&'a [libc::epoll_event]> {
    let room = events.len() as i32;
    // SAFETY: the kernel writes at most `room` events into the slice, during the call only.
    let count = unsafe { libc::epoll_wait(poll.as_raw_fd(), events.as_mut_ptr(), room, -1) };
    match usize::try_from(count) {
        Ok(count) => Ok(&events[..count]),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(&[]),
            error => Err(error),
        },
    }
}
