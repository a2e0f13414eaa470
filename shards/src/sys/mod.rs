//! The system-call wall: the only files of the workspace with unsafe code. Everything public here
//! is safe to call.

pub mod affinity;
#[cfg(feature = "counting-allocator")]
pub mod allocator;
pub mod buffers;
pub mod epoll;
mod ladder;
pub mod limits;
pub mod socket;
pub mod time;
pub mod uring;
pub mod wake;
mod wire;

/// The errno of the last failed call, positive.
fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The usual text of an errno, without Rust's "(os error N)".
pub fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
