//! The data plane of `loadgen-uring`: everything that happens on a pinned core between two system
//! calls.
//!
//! A [`shard`] is one thread with its own reactor (io_uring or epoll), its own connections and one
//! live [`recorder::Recording`]. Control hands it [`phase::PhasePlan`]s and takes back interval
//! recordings; nothing else is shared while running but the immutable [`query::RequestTable`] and
//! the phase's next position.
//!
//! Floors (imports point down only; `tests/it/tidy.rs` checks them):
//!
//! ```text
//!  3  shard
//!  2  reactor phase sim timer
//!  1  sys/uring sys/epoll pool connection recorder record
//!  0  sys/socket cpu http1 failure event token query clock wheel schedule order margin
//!     realtime histogram answer chunk sse tls
//! -1  sys (the other files) limits
//! ```
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

pub mod answer;
pub mod chunk;
pub mod clock;
pub mod connection;
pub mod cpu;
pub mod event;
pub mod failure;
pub mod histogram;
pub mod http1;
pub mod limits;
pub mod margin;
pub mod order;
pub mod phase;
pub mod pool;
pub mod query;
pub mod reactor;
pub mod realtime;
pub mod record;
pub mod recorder;
pub mod schedule;
pub mod shard;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod sse;
#[expect(
    unsafe_code,
    reason = "the system-call wall: every unsafe block of the workspace is below"
)]
pub mod sys;
pub mod timer;
pub mod tls;
pub mod token;
pub mod wheel;
