//! Stream sockets: creation, addresses, and the plain non-blocking calls that the epoll back end
//! makes.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use super::last_errno;
use crate::query::{Address, Target};

/// An address as the kernel reads it. Boxed by its users where an operation names it by pointer.
#[derive(Clone, Copy)]
pub struct KernelAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl KernelAddress {
    /// Converts. `Err`: errno, for a unix path that does not fit.
    pub fn new(address: &Address) -> Result<KernelAddress, i32> {
        match address {
            Address::Inet(address) => Ok(KernelAddress::inet(*address)),
            Address::Unix(path) => {
                let path = path.as_os_str().as_bytes();
                // SAFETY: all-zero is a valid sockaddr_un.
                let mut unix: libc::sockaddr_un = unsafe { std::mem::zeroed() };
                unix.sun_family = libc::AF_UNIX as libc::sa_family_t;
                if path.is_empty() || path.len() >= unix.sun_path.len() {
                    return Err(libc::ENAMETOOLONG);
                }
                for (target, &source) in unix.sun_path.iter_mut().zip(path) {
                    *target = source as libc::c_char;
                }
                Ok(KernelAddress::from_raw(&unix))
            }
        }
    }

    fn inet(address: SocketAddr) -> KernelAddress {
        match address {
            SocketAddr::V4(v4) => KernelAddress::from_raw(&libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => KernelAddress::from_raw(&libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    /// Copies one of the sockaddr_* structs.
    fn from_raw<T: Copy>(raw: &T) -> KernelAddress {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
        // SAFETY: both are valid for size_of::<T>() bytes, which fits the storage (asserted), and
        // do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(raw).cast::<u8>(),
                storage.as_mut_ptr().cast::<u8>(),
                size_of::<T>(),
            );
        }
        // SAFETY: zeroed, then partly overwritten: every byte is initialised, any bytes are a valid
        // storage.
        let storage = unsafe { storage.assume_init() };
        KernelAddress { storage, len: size_of::<T>() as libc::socklen_t }
    }

    /// For an operation that names the address by pointer.
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }

    fn family(&self) -> libc::c_int {
        libc::c_int::from(self.storage.ss_family)
    }
}

/// A target, ready for many connections.
pub struct Destination {
    address: KernelAddress,
    source: Option<KernelAddress>,
}

impl Destination {
    /// Converts the addresses. `Err`: errno.
    pub fn new(target: &Target) -> Result<Destination, i32> {
        let address = KernelAddress::new(&target.address)?;
        let source = target.source.map(|ip| KernelAddress::inet(SocketAddr::new(ip, 0)));
        Ok(Destination { address, source })
    }

    /// What to connect to.
    pub(super) fn address(&self) -> &KernelAddress {
        &self.address
    }

    /// A fresh non-blocking stream socket for it, with TCP_NODELAY, bound to the source if there is
    /// one. `Err`: errno.
    pub(super) fn socket(&self) -> Result<OwnedFd, i32> {
        let family = self.address.family();
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call; the result is checked before use.
        let fd = unsafe { libc::socket(family, kind, 0) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: `fd` was just created and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if family != libc::AF_UNIX {
            set_nodelay(&fd);
        }
        if let Some(source) = &self.source {
            // The port is chosen at connect, per destination, so that one source address serves 28
            // 000 connections to each of several endpoints rather than in all.
            set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
            // SAFETY: the address is valid for its length, the descriptor is open.
            let result = unsafe { libc::bind(fd.as_raw_fd(), source.as_ptr(), source.len()) };
            if result != 0 {
                return Err(last_errno());
            }
        }
        Ok(fd)
    }
}

/// Starts a non-blocking connect. `Ok(true)`: connected at once; `Ok(false)`: in progress; `Err`:
/// errno.
pub(super) fn connect(fd: RawFd, address: &KernelAddress) -> Result<bool, i32> {
    // SAFETY: the address is valid for its length; a bad descriptor is an error, not undefined.
    let result = unsafe { libc::connect(fd, address.as_ptr(), address.len()) };
    match if result == 0 { 0 } else { last_errno() } {
        0 => Ok(true),
        libc::EINPROGRESS => Ok(false),
        errno => Err(errno),
    }
}

/// The pending error of a socket: how a non-blocking connect ended. 0 = well.
pub(super) fn pending_error(fd: RawFd) -> i32 {
    let mut errno: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `errno` and `len` are valid and writable, and `len` is the size of `errno`.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut errno).cast(),
            &raw mut len,
        )
    };
    if result == 0 { errno } else { last_errno() }
}

/// One non-blocking send. `Err`: errno.
pub(super) fn send(fd: RawFd, bytes: &[u8]) -> Result<usize, i32> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `bytes` is readable for its length.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 { Err(last_errno()) } else { Ok(sent as usize) }
}

/// One non-blocking receive. `Err`: errno.
pub(super) fn receive(fd: RawFd, buffer: &mut [u8]) -> Result<usize, i32> {
    let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: `buffer` is writable for its length.
    let received = unsafe { libc::recv(fd, start, len, libc::MSG_DONTWAIT) };
    if received < 0 { Err(last_errno()) } else { Ok(received as usize) }
}

/// One non-blocking accept of a non-blocking socket with TCP_NODELAY. `Err`: errno.
pub(super) fn accept(listener: RawFd) -> Result<OwnedFd, i32> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null address arguments are allowed; the result is checked before use.
    let fd = unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: `fd` was just created and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_nodelay(&fd);
    Ok(fd)
}

/// Takes over a descriptor that an accept operation has just returned.
pub(super) fn adopt_accepted(fd: RawFd) -> OwnedFd {
    debug_assert!(fd >= 0);
    // SAFETY: the kernel created `fd` for the accept that just completed, and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_nodelay(&fd);
    fd
}

/// Closes a descriptor that an accept operation has returned and nobody wants.
pub(crate) fn refuse_accepted(fd: RawFd) {
    if fd >= 0 {
        drop(adopt_accepted(fd));
    }
}

/// A pair of connected stream sockets, for the self-test of a back end. `Err`: errno.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), i32> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` is two writable integers.
    let result = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) };
    if result != 0 {
        return Err(last_errno());
    }
    // SAFETY: just created, nobody else owns it.
    let first = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: as above.
    let second = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((first, second))
}

/// A listening socket on `address` with SO_REUSEPORT, so that each core has its own queue of
/// connections.
pub fn listen(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let target = KernelAddress::inet(address);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: plain system call; the result is checked before use.
    let fd = unsafe { libc::socket(target.family(), kind, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR);
    set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT);
    // SAFETY: the address is valid for its length.
    let result = unsafe { libc::bind(fd.as_raw_fd(), target.as_ptr(), target.len()) };
    if result != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: plain system call on an open descriptor.
    let result = unsafe { libc::listen(fd.as_raw_fd(), LISTEN_BACKLOG) };
    if result != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(std::net::TcpListener::from(fd))
}

fn set_nodelay(fd: &OwnedFd) {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY);
}

/// Sets an integer option to 1. Best effort: each of them only makes things better.
fn set_option(fd: &OwnedFd, level: libc::c_int, name: libc::c_int) {
    let one: libc::c_int = 1;
    // SAFETY: `one` is readable for its size, the descriptor is open.
    let _ = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

const LISTEN_BACKLOG: libc::c_int = 4096;
