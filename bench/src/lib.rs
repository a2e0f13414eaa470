//! The embedded endpoint: an HTTP/1.1 server that answers every request with the same 200, on the
//! reactor that the shards run on (io_uring, or epoll where it is refused).
//!
//! It is what a load command measures when no URL is given, and what `serve` runs: the tool's own
//! ceiling on a host, not a model of anybody's server. So it does as little as a correct server
//! can. With an [`InferenceConfig`] some paths are those of an OpenAI-compatible server, paced and
//! faulty as asked; every other path stays as cheap as it was.
//!
//! ```text
//! lib.rs        starts the threads, adds up what they count, stops them
//! server.rs     the loop of one thread: accept, read, answer (at once or after the delay), close
//! request.rs    requests out of bytes, wherever they are cut
//! route.rs      which requests are more than plain ones
//! response.rs   the few plain answers, laid out once in the arena that sends name by range
//! inference.rs  the other answers, made up one by one
//! ```
//!
//! Limits, on purpose: HTTP/1.0 is answered and closed, `Host` is not asked for, an expected
//! `100-continue` is not sent before the body has come. Each thread has its own listener on the
//! same port (SO_REUSEPORT) and the kernel deals connections out by hash, so with several threads
//! their shares differ: 64 connections on two threads are rarely 32 and 32.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod inference;
mod request;
mod response;
mod route;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use loadgen_shards::clock::{Calibration, Calibrator};
use loadgen_shards::reactor::{EngineChoice, EngineReport, Reactor, ReactorConfig};
use loadgen_shards::sys::wake::Waker;
use loadgen_shards::sys::{affinity, socket};

pub use self::inference::{
    DISTRIBUTION_FORM, Distribution, Draws, Faults, InferenceConfig, InferenceCounts, Profile,
};
use self::inference::{Inference, Shared};
use self::response::Replies;
use self::server::Server;

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// One thread is pinned to each; empty: one thread that is not pinned.
    pub cores: Vec<usize>,
    /// Where to listen. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Bytes of the body of each answer.
    pub body_bytes: usize,
    /// Time from the end of a request to its answer, ns. 0: answered at once.
    pub delay_ns: u64,
    /// Never sleep. Only for cores of its own: elsewhere it takes the time of those whom it serves.
    pub spin: bool,
    /// I/O back end.
    pub engine: EngineChoice,
    /// Connections that one thread holds at the same time; more are accepted and closed.
    pub connections: u32,
    /// What the inference paths answer. `None`: every path gets the plain answer.
    pub inference: Option<InferenceConfig>,
}

impl Default for EndpointConfig {
    fn default() -> EndpointConfig {
        EndpointConfig {
            cores: Vec::new(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            body_bytes: 100,
            delay_ns: 0,
            spin: false,
            engine: EngineChoice::Auto,
            connections: 4096,
            inference: None,
        }
    }
}

/// A running endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    engine: EngineReport,
    threads: Vec<Thread>,
    inference: Option<Shared>,
    is_stopped: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Thread {
    /// `None` once it has been joined.
    handle: Option<JoinHandle<()>>,
    waker: Waker,
    requests: Arc<Counter>,
}

/// A count with one writer, on cache lines of its own (the prefetcher takes them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Only its one writer calls this, so a load and a store lose nothing and need no locked
    /// instruction.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Starts the threads; all of them listen when this returns. `Err`: what failed, with the fix
    /// where one is known.
    pub fn start(config: &EndpointConfig) -> Result<Endpoint, String> {
        let is_timed = config.delay_ns > 0 || config.inference.is_some();
        let calibrator = is_timed.then(Calibrator::begin);
        let cores = match config.cores.as_slice() {
            [] => vec![None],
            cores => cores.iter().copied().map(Some).collect(),
        };
        let cannot_listen = |error| format!("cannot listen on {}: {error}", config.address);
        let listeners = listen(config.address, cores.len()).map_err(cannot_listen)?;
        let mut endpoint = Endpoint {
            address: listeners[0].local_addr().map_err(cannot_listen)?,
            engine: EngineReport::default(),
            threads: Vec::with_capacity(cores.len()),
            inference: config.inference.as_ref().map(Shared::new),
            is_stopped: Arc::default(),
        };
        let replies = Replies::new(config.body_bytes);
        // Where nothing is timed, the start need not wait for a calibrated clock.
        let clock = calibrator.map_or(Calibration::IDENTITY, |mut begun| begun.finish());
        for (index, (core, listener)) in cores.into_iter().zip(listeners).enumerate() {
            let seat = Seat {
                core,
                listener,
                clock,
                config: config.clone(),
                replies: replies.clone(),
                inference: endpoint.inference.clone(),
                requests: Arc::default(),
                is_stopped: Arc::clone(&endpoint.is_stopped),
            };
            endpoint.seat(index, seat)?;
        }
        Ok(endpoint)
    }

    /// Starts one thread and waits until its reactor stands.
    fn seat(&mut self, index: usize, seat: Seat) -> Result<(), String> {
        let requests = Arc::clone(&seat.requests);
        let (sender, standing) = sync_channel(1);
        let handle = std::thread::Builder::new()
            .name(format!("endpoint-{index}"))
            .spawn(move || seat.run(&sender))
            .map_err(|error| format!("cannot start a thread of the endpoint: {error}"))?;
        let standing =
            standing.recv().map_err(|_| "a thread of the endpoint is gone".to_string())?;
        let (engine, waker) = standing?;
        self.engine = engine;
        self.threads.push(Thread { handle: Some(handle), waker, requests });
        Ok(())
    }

    /// Where it listens, with the port that port 0 became.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The back end of its threads.
    pub fn engine(&self) -> EngineReport {
        self.engine.clone()
    }

    /// Requests received whole so far, on all threads.
    pub fn requests(&self) -> u64 {
        self.threads.iter().map(|thread| thread.requests.0.load(Ordering::Relaxed)).sum()
    }

    /// What the inference paths have done so far, on all threads; zeros without them.
    pub fn inference_counts(&self) -> InferenceCounts {
        self.inference.as_ref().map_or_else(InferenceCounts::default, Shared::counts)
    }

    /// Closes all connections and ends the threads. The counts stay readable.
    pub fn stop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        for thread in &mut self.threads {
            thread.waker.wake();
            if let Some(handle) = thread.handle.take()
                && let Err(panic) = handle.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a thread takes along.
struct Seat {
    core: Option<usize>,
    listener: TcpListener,
    clock: Calibration,
    config: EndpointConfig,
    replies: Replies,
    inference: Option<Shared>,
    requests: Arc<Counter>,
    is_stopped: Arc<AtomicBool>,
}

impl Seat {
    /// The life of a thread: pin, build the reactor, say so, serve.
    fn run(self, sender: &SyncSender<Result<(EngineReport, Waker), String>>) {
        // The receiver waits for exactly this one message, so sending it cannot fail.
        match self.server() {
            Ok(server) => {
                let _ = sender.send(Ok((server.engine(), server.waker())));
                server.run();
            }
            Err(reason) => {
                let _ = sender.send(Err(reason));
            }
        }
    }

    fn server(self) -> Result<Server, String> {
        // Pin first: the memory and the uring then belong to this core.
        if let Some(core) = self.core {
            // The mask is asked first: a core beyond what its type can hold is a panic of the
            // pinning.
            let allowed = affinity::allowed_cores();
            if !allowed.contains(&core) || !affinity::pin(core) {
                return Err(format!(
                    "cannot pin the endpoint to core {core}: allowed are {allowed:?}"
                ));
            }
        }
        let config = ReactorConfig {
            engine: self.config.engine,
            slots: self.config.connections,
            arena: self.replies.arena(),
            clock: self.clock,
            wire_stamps: false,
        };
        let mut reactor = Reactor::new(&config, &[])?;
        reactor.listen(self.listener);
        let inference =
            self.inference.map(|shared| Inference::new(shared, self.config.connections));
        let Seat { replies, config, requests, is_stopped, .. } = self;
        Ok(Server::new(reactor, replies, &config, inference, requests, is_stopped))
    }
}

/// One listener a thread, all on the same port.
fn listen(address: SocketAddr, count: usize) -> std::io::Result<Vec<TcpListener>> {
    if address.port() != 0 {
        // SO_REUSEPORT lets a second endpoint of the same user take half of the connections in
        // silence. A plain bind is refused while anybody listens there.
        drop(TcpListener::bind(address)?);
    }
    let first = socket::listen(address)?;
    let shared = SocketAddr::new(address.ip(), first.local_addr()?.port());
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(socket::listen(shared)?);
    }
    Ok(listeners)
}
