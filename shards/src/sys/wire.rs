//! Kernel time stamps of what TCP sockets send and receive (`--wire-stamps`): SO_TIMESTAMPING, in
//! software, on CLOCK_REALTIME.
//!
//! Every receive carries the stamp of its last byte as a control message. A send has to ask for
//! one, with a control message of its own; it then comes on the socket's error queue, with the
//! offset in the stream (SOF_TIMESTAMPING_OPT_ID) of the byte that it belongs to. See
//! <https://docs.kernel.org/networking/timestamping.html>.

use std::os::fd::RawFd;

use super::last_errno;

/// What a back end keeps for stamps, while they are on.
pub(super) struct Wire {
    /// By slot. Never moved: the kernel reads the headers when it takes the entry of a send.
    sockets: Box<[Stamped]>,
    /// For multishot receives: how much room for control messages is in each buffer.
    receive_header: Box<libc::msghdr>,
    /// Stamps of other bytes than the last one of a sampled request.
    mismatched: u64,
}

#[derive(Clone, Copy)]
struct Stamped {
    is_enabled: bool,
    /// Bytes of the requests sent since then, modulo 2^32 as the kernel counts them.
    bytes: u32,
    /// The offset of the byte whose stamp is awaited.
    awaited: Option<u32>,
    /// Its stamp, CLOCK_REALTIME ns.
    sent_ns: Option<u64>,
    header: libc::msghdr,
    vector: libc::iovec,
}

impl Wire {
    pub(super) fn new(slots: u32) -> Wire {
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let stamped = Stamped {
            is_enabled: false,
            bytes: 0,
            awaited: None,
            sent_ns: None,
            header: empty_header(),
            vector,
        };
        let mut receive_header = Box::new(empty_header());
        receive_header.msg_controllen = RECEIVED_CONTROL_BYTES as _;
        let sockets = vec![stamped; slots as usize].into_boxed_slice();
        Wire { sockets, receive_header, mismatched: 0 }
    }

    /// Switches stamps on, on a fresh connection that has sent nothing. What is not TCP has none.
    pub(super) fn enable(&mut self, slot: u32, fd: RawFd) {
        let flags = libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_RX_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        let stamped = &mut self.sockets[slot as usize];
        stamped.bytes = 0;
        stamped.awaited = None;
        stamped.is_enabled = is_tcp(fd) && set_timestamping(fd, flags);
    }

    /// A request of so many bytes is about to be sent; `is_sampled`: with a stamp of its last one.
    pub(super) fn begin(&mut self, slot: u32, bytes: usize, is_sampled: bool) {
        let stamped = &mut self.sockets[slot as usize];
        stamped.bytes = stamped.bytes.wrapping_add(bytes as u32);
        stamped.sent_ns = None;
        let is_awaited = is_sampled && stamped.is_enabled;
        stamped.awaited = is_awaited.then(|| stamped.bytes.wrapping_sub(1));
    }

    /// Whether the last piece of the request has to ask for a stamp.
    pub(super) fn is_awaited(&self, slot: u32) -> bool {
        self.sockets[slot as usize].awaited.is_some()
    }

    /// The header of a send of `bytes` that asks for a stamp. Valid until the next one of the slot.
    pub(super) fn header(&mut self, slot: u32, bytes: &[u8]) -> *const libc::msghdr {
        let stamped = &mut self.sockets[slot as usize];
        // The kernel only reads from either.
        stamped.vector.iov_base = bytes.as_ptr().cast_mut().cast();
        stamped.vector.iov_len = bytes.len();
        stamped.header.msg_iov = &raw mut stamped.vector;
        stamped.header.msg_iovlen = 1;
        stamped.header.msg_control = (&raw const ASK_FOR_STAMP).cast_mut().cast();
        stamped.header.msg_controllen = size_of::<AskForStamp>() as _;
        &raw const stamped.header
    }

    /// One non-blocking send that asks for a stamp of its last byte. `Err`: errno.
    pub(super) fn send(&mut self, slot: u32, fd: RawFd, bytes: &[u8]) -> Result<usize, i32> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let header = self.header(slot, bytes);
        // SAFETY: the header names `bytes`, readable for its length, and a static control message.
        let sent = unsafe { libc::sendmsg(fd, header, flags) };
        if sent < 0 { Err(last_errno()) } else { Ok(sent as usize) }
    }

    /// The header that multishot receives name; the same as long as `self` lives.
    pub(super) fn receive_header(&self) -> &libc::msghdr {
        &self.receive_header
    }

    /// Reads the error queue until it is empty. Returns whether there was something.
    pub(super) fn drain(&mut self, slot: u32, fd: RawFd) -> bool {
        let mut count = 0;
        while count < DRAINS_AT_ONCE
            && let Some(sent) = receive_sent_stamp(fd)
        {
            count += 1;
            let stamped = &mut self.sockets[slot as usize];
            match sent {
                Some(SentStamp { offset, at_ns }) if stamped.awaited == Some(offset) => {
                    // A retransmission would bring another one.
                    stamped.sent_ns.get_or_insert(at_ns);
                }
                _ => self.mismatched += 1,
            }
        }
        count > 0
    }

    /// The stamp of the last request, if it was sampled and the stamp has come, CLOCK_REALTIME ns.
    /// Not awaited any more.
    pub(super) fn take_sent_ns(&mut self, slot: u32, fd: RawFd) -> Option<u64> {
        let stamped = &self.sockets[slot as usize];
        stamped.awaited?;
        if stamped.sent_ns.is_none() {
            self.drain(slot, fd);
        }
        let stamped = &mut self.sockets[slot as usize];
        stamped.awaited = None;
        stamped.sent_ns.take()
    }

    pub(super) fn mismatched(&self) -> u64 {
        self.mismatched
    }
}

/// One non-blocking receive, with the stamp of its last byte. `Err`: errno.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> Result<(usize, Option<u64>), i32> {
    let mut control = ControlBuffer([0; CONTROL_BUFFER_BYTES]);
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    let received = receive_message(fd, &mut header, &mut control, libc::MSG_DONTWAIT)?;
    Ok((received, received_stamp_ns(&control.0)))
}

/// The stamp in the control messages of a receive, CLOCK_REALTIME ns.
pub(super) fn received_stamp_ns(control: &[u8]) -> Option<u64> {
    ControlMessages(control)
        .find(|message| (message.level, message.kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING))
        .and_then(|message| software_stamp_ns(message.data))
}

struct SentStamp {
    /// Of the byte in the stream, modulo 2^32.
    offset: u32,
    /// CLOCK_REALTIME, ns.
    at_ns: u64,
}

/// Takes one entry from the error queue. `None`: it is empty; `Some(None)`: something else than the
/// stamp of a send.
fn receive_sent_stamp(fd: RawFd) -> Option<Option<SentStamp>> {
    let mut control = ControlBuffer([0; CONTROL_BUFFER_BYTES]);
    let mut header = empty_header();
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    receive_message(fd, &mut header, &mut control, flags).ok()?;
    Some(sent_stamp(&control.0))
}

/// The stamp of a send in the control messages of an entry of the error queue.
fn sent_stamp(control: &[u8]) -> Option<SentStamp> {
    let at_ns = received_stamp_ns(control)?;
    let is_error = |message: &ControlMessage| {
        let (level, kind) = (message.level, message.kind);
        (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR)
    };
    let error = ControlMessages(control).find(is_error)?.data;
    // struct sock_extended_err: errno u32, origin u8, type u8, code u8, pad u8, info u32, data u32.
    let word = |at: usize| error.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let is_send = *error.get(4)? == SO_EE_ORIGIN_TIMESTAMPING && word(8)? == SCM_TSTAMP_SND;
    is_send.then_some(SentStamp { offset: word(12)?, at_ns })
}

/// The first of the three times of struct scm_timestamping: that of the software; ns.
fn software_stamp_ns(data: &[u8]) -> Option<u64> {
    let word = |at: usize| data.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let at_ns = word(0)?.checked_mul(1_000_000_000)?.checked_add(word(8)?)?;
    (at_ns > 0).then_some(at_ns)
}

struct ControlMessage<'a> {
    level: i32,
    kind: i32,
    data: &'a [u8],
}

/// Walks control messages, cmsg(3): length with header, level, type, data; each begins aligned.
struct ControlMessages<'a>(&'a [u8]);

impl<'a> Iterator for ControlMessages<'a> {
    type Item = ControlMessage<'a>;

    fn next(&mut self) -> Option<ControlMessage<'a>> {
        let (len, rest) = self.0.split_first_chunk()?;
        let (level, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let len = usize::from_ne_bytes(*len);
        let data = rest.get(..len.checked_sub(CONTROL_HEADER_BYTES)?)?;
        self.0 = self.0.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        let (level, kind) = (i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind));
        Some(ControlMessage { level, kind, data })
    }
}

/// As cmsghdr is aligned. Zeroed before use: a length of 0 ends the walk.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BUFFER_BYTES]);

/// recvmsg(2) with control messages; what the header names as data must be the caller's. `Err`:
/// errno.
fn receive_message(
    fd: RawFd,
    header: &mut libc::msghdr,
    control: &mut ControlBuffer,
    flags: libc::c_int,
) -> Result<usize, i32> {
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BUFFER_BYTES as _;
    // SAFETY: the control buffer is writable for its length, and so is what the vector names, if
    // there is one (the two callers see to it).
    let received = unsafe { libc::recvmsg(fd, header, flags) };
    if received < 0 { Err(last_errno()) } else { Ok(received as usize) }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr: no address, no data, no control messages.
    unsafe { std::mem::zeroed() }
}

fn is_tcp(fd: RawFd) -> bool {
    let mut protocol: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both are writable, and `len` is the size of `protocol`.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PROTOCOL,
            (&raw mut protocol).cast(),
            &raw mut len,
        )
    };
    result == 0 && protocol == libc::IPPROTO_TCP
}

fn set_timestamping(fd: RawFd, flags: u32) -> bool {
    // SAFETY: `flags` is readable for its size.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    result == 0
}

/// The control message by which one send asks for a stamp.
#[repr(C, align(8))]
struct AskForStamp {
    len: usize,
    level: i32,
    kind: i32,
    flags: u32,
}

/// Static, as a send that waits for room reads it late.
static ASK_FOR_STAMP: AskForStamp = AskForStamp {
    len: CONTROL_HEADER_BYTES + size_of::<u32>(),
    level: libc::SOL_SOCKET,
    kind: libc::SO_TIMESTAMPING,
    flags: libc::SOF_TIMESTAMPING_TX_SOFTWARE,
};

/// Room for control messages in the buffer of a multishot receive: one struct scm_timestamping.
const RECEIVED_CONTROL_BYTES: usize = CONTROL_HEADER_BYTES + 3 * 16;
/// What stands before the payload in such a buffer: struct io_uring_recvmsg_out, no name, and the
/// room for control messages.
pub(super) const RECEIVED_HEADER_BYTES: usize = 16 + RECEIVED_CONTROL_BYTES;
const CONTROL_HEADER_BYTES: usize = size_of::<usize>() + 2 * size_of::<i32>();
/// More than a stamp and an error with its address take.
const CONTROL_BUFFER_BYTES: usize = 256;
/// A sampled send has one stamp, a few if the socket took it in parts.
const DRAINS_AT_ONCE: u32 = 64;

// linux/errqueue.h.
const SCM_TSTAMP_SND: u32 = 0;
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (CONTROL_HEADER_BYTES + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    fn stamp(seconds: u64, ns: u64) -> Vec<u8> {
        let times = [seconds, ns, 0, 0, 0, 0].map(u64::to_ne_bytes).concat();
        message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &times)
    }

    /// `origin` and `info` of struct sock_extended_err, and the offset of the byte.
    fn error(origin: u8, info: u32, offset: u32) -> Vec<u8> {
        let mut data = [42u32.to_ne_bytes(), [origin, 0, 0, 0]].concat();
        data.extend([info.to_ne_bytes(), offset.to_ne_bytes()].concat());
        message(libc::SOL_IP, libc::IP_RECVERR, &data)
    }

    #[test]
    fn stamp_of_a_send_is_that_of_its_byte() {
        let control = [stamp(1_796_040_389, 83_846_730), error(4, 0, 149)].concat();
        let sent = sent_stamp(&control).expect("a stamp");
        assert_eq!((sent.offset, sent.at_ns), (149, 1_796_040_389_083_846_730));
        // A stamp of the acknowledgement, an error of the network, no stamp, no offset.
        for control in [
            [stamp(1, 2), error(4, 2, 149)].concat(),
            [stamp(1, 2), error(2, 0, 149)].concat(),
            [stamp(0, 0), error(4, 0, 149)].concat(),
            error(4, 0, 149),
            stamp(1, 2),
        ] {
            assert!(sent_stamp(&control).is_none());
        }
    }

    #[test]
    fn control_messages_cut_anywhere_are_no_stamps_and_no_panic() {
        let control = [error(4, 0, 149), stamp(1, 2)].concat();
        assert_eq!(received_stamp_ns(&control), Some(1_000_000_002));
        for len in 0..control.len() {
            assert_eq!(received_stamp_ns(&control[..len]), None, "{len}");
        }
        let endless = message(1, 2, &[]).into_iter().map(|_| 0).collect::<Vec<u8>>();
        assert!(received_stamp_ns(&endless).is_none(), "a length of 0 ends the walk");
    }
}
