//! The system-call wall: the only files of the workspace with unsafe code. Everything public here is safe.

pub mod time;
