//! The few system calls of the tests that std does not offer. The only unsafe code outside
//! `shards/src/sys/`.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// CLOCK_MONOTONIC, ns: the clock of the result files, which `std::time::Instant` does not tell.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of `time`, which the kernel fills in.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(result, 0, "clock_gettime: {}", io::Error::last_os_error());
    let [seconds, ns] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap());
    seconds * 1_000_000_000 + ns
}

/// Waits until one of the descriptors can be read, or for the time given.
pub fn poll(descriptors: &mut [libc::pollfd], timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).expect("a short time"),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = libc::nfds_t::try_from(descriptors.len()).expect("a few thousand");
    // SAFETY: pointer and count are those of the slice, which the kernel writes within; the time
    // outlives the call, and no signal mask is given.
    let result = unsafe {
        libc::ppoll(descriptors.as_mut_ptr(), count, &raw const timeout, std::ptr::null())
    };
    let error = io::Error::last_os_error();
    assert!(result >= 0 || error.kind() == io::ErrorKind::Interrupted, "ppoll: {error}");
}

/// Whether the kernel lets this process set up an io_uring. The null pointer makes the call fail in
/// any case: with EFAULT (or EINVAL) where io_uring is there, with EPERM or ENOSYS where it is
/// refused.
pub fn has_io_uring() -> bool {
    // SAFETY: the kernel checks the pointer before use, and a null one only makes the call fail.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null::<u8>()) };
    let errno = io::Error::last_os_error().raw_os_error();
    result >= 0 || !matches!(errno, Some(libc::EPERM | libc::ENOSYS))
}

/// Sends a signal to a child of ours.
pub fn send_signal(child: &std::process::Child, signal: i32) {
    let pid = i32::try_from(child.id()).expect("a pid fits an i32");
    // SAFETY: kill takes plain integers; the child has not been waited for, so the pid is still its
    // own.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill: {}", io::Error::last_os_error());
}

/// Whether we may change the user of a child.
pub fn is_root() -> bool {
    // SAFETY: geteuid cannot fail and takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// The next close of the socket sends a reset instead of an orderly end.
pub fn reset_on_close(socket: BorrowedFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = libc::socklen_t::try_from(size_of_val(&linger)).expect("a small struct");
    // SAFETY: the descriptor is open while it is borrowed, and pointer and size are those of
    // `linger`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size,
        )
    };
    assert_eq!(result, 0, "SO_LINGER: {}", io::Error::last_os_error());
}

/// Shrinks the accept queue to one connection: what comes after it gets no answer to its SYN.
pub fn shrink_backlog(listener: &TcpListener) {
    // SAFETY: listen takes plain integers; on a socket that already listens it only sets the
    // backlog.
    let result = unsafe { libc::listen(listener.as_raw_fd(), 0) };
    assert_eq!(result, 0, "listen: {}", io::Error::last_os_error());
}

/// Makes the command run with io_uring refused, as the default seccomp profiles of container
/// engines do: its three system calls fail with `errno`, and so does `epoll_pwait2`, which old
/// profiles do not know; everything else is allowed. Needs no privilege.
pub fn refuse_io_uring(command: &mut Command, errno: i32) {
    let uring = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    // Older profiles do not know this one either.
    let waits = [libc::SYS_epoll_pwait2];
    let program = refusing_filter(errno, &[uring.as_slice(), &waits].concat());
    // SAFETY: the hook runs in the child between fork and exec, makes two system calls and
    // allocates nothing; the filter lives in the closure.
    unsafe {
        command.pre_exec(move || install_filter(&program));
    }
}

/// A seccomp filter: load the number of the system call, compare it with each refused one, allow
/// the rest.
fn refusing_filter(errno: i32, refused: &[libc::c_long]) -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jt: usize, k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("a BPF code has 16 bits"),
        jt: u8::try_from(jt).expect("a short program"),
        jf: 0,
        k,
    };
    // Offset 0 of struct seccomp_data is the number of the system call.
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (index, number) in refused.iter().enumerate() {
        let number = u32::try_from(*number).expect("a system call number");
        // To the last instruction, over the comparisons that are left and the allowing return.
        let jump = refused.len() - index;
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jump, number));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let answer = libc::SECCOMP_RET_ERRNO | u32::try_from(errno).expect("an errno is positive");
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, answer));
    program
}

/// Puts the calling thread, and whatever it executes, under the filter.
fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("a short program"),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: prctl(PR_SET_NO_NEW_PRIVS) takes plain integers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel copies the program, which `filter` names with its true length; it does not
    // write to it.
    let result = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter, 0, 0)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    /// In a child, `/proc/self/status` says whether a filter is installed (mode 2).
    #[test]
    fn the_filter_is_installed_in_the_child_and_not_in_the_test() {
        let status = |refuse: bool| {
            let mut command = Command::new("grep");
            command.args(["^Seccomp:", "/proc/self/status"]).stdout(Stdio::piped());
            if refuse {
                refuse_io_uring(&mut command, libc::EPERM);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let before = has_io_uring();
        assert_eq!(status(true).trim(), "Seccomp:\t2");
        assert_eq!(has_io_uring(), before, "the test itself is not filtered");
    }

    #[test]
    fn each_refused_call_jumps_to_the_errno_and_nothing_else_does() {
        let program = refusing_filter(libc::EPERM, &[425, 426, 427]);
        let run = |number: u32| {
            let mut at = 1; // after the load
            loop {
                let step = program[at];
                if u32::from(step.code) == libc::BPF_RET | libc::BPF_K {
                    return step.k;
                }
                at += 1 + usize::from(if step.k == number { step.jt } else { step.jf });
            }
        };
        for number in 0..1000 {
            let expected = if (425..=427).contains(&number) { 0x0005_0001 } else { 0x7fff_0000 };
            assert_eq!(run(number), expected, "system call {number}");
        }
    }
}
