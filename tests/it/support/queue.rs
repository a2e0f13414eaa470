//! A queueing system that answers HTTP: every request has its service time, servers take requests
//! in the order of their arrival, and the answer leaves when the service ends.
//!
//! One thread owns all sockets. It reads CLOCK_MONOTONIC when a request arrives and right before
//! its answer is written, and keeps both. Whatever holds it up delays what it writes, never what
//! it has planned, so that its own record is the truth that the client is held against: the client
//! sent before the arrival and got the answer after the departure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::sys::{self, monotonic_ns};

/// How long the service of a request takes.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// Always the same, ns.
    Constant(u64),
    /// Exponential, drawn for each arrival from the seed and the number of the arrival.
    Exponential { mean_ns: u64, seed: u64 },
}

impl Service {
    /// Of the arrival with this number, from 0, ns.
    pub fn of(self, arrival: u64) -> u64 {
        match self {
            Service::Constant(ns) => ns,
            Service::Exponential { mean_ns, seed } => {
                let word = mixed(seed.wrapping_add(arrival.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                // 53 bits, in the middle of their interval: never 0 or 1.
                let uniform = ((word >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
                (-uniform.ln() * mean_ns as f64) as u64
            }
        }
    }
}

/// Neighbours become unlike each other: the end of MurmurHash3.
fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

/// Stretches in which no answer leaves. Arrivals go on.
#[derive(Clone, Copy, Debug)]
pub struct Freeze {
    /// From the begin of one to the begin of the next, ns. The first begins half of it after the
    /// first arrival.
    pub every_ns: u64,
    /// How long each lasts, ns.
    pub length_ns: u64,
}

impl Freeze {
    /// When something that is ready at an instant leaves; both since the first arrival, ns.
    fn thawed(self, ready_ns: u64) -> u64 {
        let into_ns = (ready_ns + self.every_ns / 2) % self.every_ns;
        ready_ns + self.length_ns.saturating_sub(into_ns)
    }
}

/// What the queue is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many requests are served at the same time.
    pub servers: usize,
    pub service: Service,
    pub freeze: Option<Freeze>,
}

/// More servers than any test has requests in flight: nobody waits.
pub const UNLIMITED: usize = 10_000;

/// The servers, in the time of whoever asks: each request gets the one that is free first.
#[derive(Debug)]
pub struct Servers(BinaryHeap<Reverse<u64>>);

impl Servers {
    /// All free from the start.
    pub fn new(count: usize) -> Servers {
        Servers((0..count).map(|_| Reverse(0)).collect())
    }

    /// When the service of the next arrival ends. Arrivals come in order.
    pub fn depart_ns(&mut self, arrival_ns: u64, service_ns: u64) -> u64 {
        let Reverse(free_ns) = self.0.pop().expect("at least one server");
        let depart_ns = arrival_ns.max(free_ns) + service_ns;
        self.0.push(Reverse(depart_ns));
        depart_ns
    }
}

/// One request, as the server saw it; CLOCK_MONOTONIC, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub arrival_ns: u64,
    /// Right before the answer was written; 0 while it has not been.
    pub depart_ns: u64,
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct QueueServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    is_stopping: AtomicBool,
}

/// What the server saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// In the order of arrival.
    pub visits: Vec<Visit>,
    /// Connections so far.
    pub accepted: u64,
    /// The most connections that were open at any time.
    pub open_max: usize,
    /// The most requests that waited for their answer at any time.
    pub in_flight_max: usize,
}

impl QueueServer {
    /// On a free port of 127.0.0.1.
    pub fn start(plan: Plan) -> QueueServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
        listener.set_nonblocking(true).expect("a socket can be");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let mut desk = Desk {
            listener,
            plan,
            servers: Servers::new(plan.servers),
            shared: Arc::clone(&shared),
            connections: BTreeMap::new(),
            polled: Vec::new(),
            waiting: BinaryHeap::new(),
        };
        desk.polled.push(readable(desk.listener.as_raw_fd()));
        thread::spawn(move || desk.serve());
        QueueServer { address, shared }
    }

    /// With servers for everybody and a constant service time.
    pub fn unlimited(service: Duration) -> QueueServer {
        let service_ns = u64::try_from(service.as_nanos()).expect("a short time");
        let service = Service::Constant(service_ns);
        QueueServer::start(Plan { servers: UNLIMITED, service, freeze: None })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// How many requests have arrived.
    pub fn arrived(&self) -> usize {
        self.shared.seen.lock().unwrap().visits.len()
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.shared.seen.lock().unwrap().clone()
    }
}

impl Drop for QueueServer {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes of a request that is not whole yet.
    buffer: Vec<u8>,
}

/// The state of the thread.
struct Desk {
    listener: TcpListener,
    plan: Plan,
    servers: Servers,
    shared: Arc<Shared>,
    /// By descriptor.
    connections: BTreeMap<i32, Connection>,
    /// The listener and all of them.
    polled: Vec<libc::pollfd>,
    /// (when to answer, number of the arrival, descriptor), the earliest first.
    waiting: BinaryHeap<Reverse<(u64, usize, i32)>>,
}

impl Desk {
    fn serve(mut self) {
        while !self.shared.is_stopping.load(Ordering::Relaxed) {
            self.answer_what_is_ready();
            for descriptor in self.await_something() {
                if descriptor == self.listener.as_raw_fd() {
                    self.accept();
                } else {
                    self.read(descriptor);
                }
            }
        }
    }

    /// Descriptors with something to read. Sleeps until shortly before the next answer, then only
    /// looks: a sleep ends late.
    fn await_something(&mut self) -> Vec<i32> {
        let sleep = self.waiting.peek().map_or(STOP_POLL, |Reverse((ready_ns, ..))| {
            Duration::from_nanos(ready_ns.saturating_sub(monotonic_ns() + SPIN_NS)).min(STOP_POLL)
        });
        sys::poll(&mut self.polled, sleep);
        self.polled.iter().filter(|entry| entry.revents != 0).map(|entry| entry.fd).collect()
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).expect("a socket can be");
            stream.set_nodelay(true).expect("TCP");
            let connection = Connection { stream, buffer: Vec::new() };
            self.polled.push(readable(connection.stream.as_raw_fd()));
            self.connections.insert(connection.stream.as_raw_fd(), connection);
            let mut seen = self.shared.seen.lock().unwrap();
            seen.accepted += 1;
            seen.open_max = seen.open_max.max(self.connections.len());
        }
    }

    fn read(&mut self, descriptor: i32) {
        let Some(connection) = self.connections.get_mut(&descriptor) else { return };
        let mut bytes = [0; 4096];
        match connection.stream.read(&mut bytes) {
            Ok(count @ 1..) => connection.buffer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // The client's end of it. An answer that still waits has nobody to go to.
            _ => {
                self.connections.remove(&descriptor);
                self.polled.retain(|entry| entry.fd != descriptor);
                self.waiting.retain(|Reverse((.., to))| *to != descriptor);
                return;
            }
        }
        // Requests have no body.
        while let Some(at) = connection.buffer.windows(4).position(|end| end == b"\r\n\r\n") {
            connection.buffer.drain(..at + 4);
            let arrival_ns = monotonic_ns();
            let mut seen = self.shared.seen.lock().unwrap();
            let number = seen.visits.len();
            let service_ns = self.plan.service.of(number as u64);
            let depart_ns = self.servers.depart_ns(arrival_ns, service_ns);
            seen.visits.push(Visit { arrival_ns, depart_ns: 0 });
            let first_ns = seen.visits[0].arrival_ns;
            let ready_ns = match self.plan.freeze {
                Some(freeze) => first_ns + freeze.thawed(depart_ns - first_ns),
                None => depart_ns,
            };
            self.waiting.push(Reverse((ready_ns, number, descriptor)));
            seen.in_flight_max = seen.in_flight_max.max(self.waiting.len());
        }
    }

    fn answer_what_is_ready(&mut self) {
        while let Some(&Reverse((ready_ns, number, descriptor))) = self.waiting.peek() {
            let now_ns = monotonic_ns();
            if ready_ns > now_ns {
                return;
            }
            self.waiting.pop();
            let mut seen = self.shared.seen.lock().unwrap();
            let visit = &mut seen.visits[number];
            visit.depart_ns = now_ns;
            let arrival_ns = visit.arrival_ns;
            drop(seen);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-arrival-ns: {arrival_ns}\r\n\
                 x-depart-ns: {now_ns}\r\n\r\nok"
            );
            if let Some(connection) = self.connections.get_mut(&descriptor) {
                // A client that is gone needs no answer, and a small one fits the socket's buffer.
                let _ = connection.stream.write_all(answer.as_bytes());
            }
        }
    }
}

/// To be told of bytes.
fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// How often the thread looks whether the server is being stopped.
const STOP_POLL: Duration = Duration::from_millis(50);
/// Before an answer, the thread looks at the clock instead of sleeping.
const SPIN_NS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::await_condition;

    const MS: u64 = 1_000_000;

    #[test]
    fn one_server_departs_as_lindley_says() {
        let mut servers = Servers::new(1);
        let arrivals = [0, 1, 2, 3, 10];
        let services = [2_500_000, 500_000, 500_000, 500_000, 1_000_000];
        let latencies: Vec<u64> = arrivals
            .iter()
            .zip(services)
            .map(|(at, service_ns)| servers.depart_ns(at * MS, service_ns) - at * MS)
            .collect();
        assert_eq!(latencies, [2_500_000, 2_000_000, 1_500_000, 1_000_000, 1_000_000]);
    }

    #[test]
    fn several_servers_take_turns_by_who_is_free_first() {
        let mut servers = Servers::new(2);
        let departures = [(0, 10), (0, 3), (1, 4), (2, 1), (20, 1)]
            .map(|(arrival, service)| servers.depart_ns(arrival, service));
        assert_eq!(departures, [10, 3, 7, 8, 21]);
    }

    #[test]
    fn service_times_have_their_mean_and_median_and_repeat() {
        let service = Service::Exponential { mean_ns: MS, seed: 5 };
        let mut times: Vec<u64> = (0..20_000).map(|number| service.of(number)).collect();
        assert_eq!(times[7], service.of(7));
        let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
        assert!((mean / MS as f64 - 1.0).abs() < 0.03, "{mean}");
        times.sort_unstable();
        let median = times[times.len() / 2] as f64;
        assert!((median / MS as f64 - 0.5f64.ln().abs()).abs() < 0.03, "{median}");
    }

    #[test]
    fn what_is_ready_in_a_freeze_leaves_at_its_end() {
        let freeze = Freeze { every_ns: 1000, length_ns: 100 };
        let leaves = [0, 499, 500, 599, 600, 1499, 1501].map(|ready| freeze.thawed(ready));
        assert_eq!(leaves, [0, 499, 600, 600, 600, 1499, 1600]);
    }

    #[test]
    fn the_record_of_the_server_lies_within_the_exchange_and_in_the_answer() {
        let server = QueueServer::unlimited(Duration::from_millis(3));
        let mut stream = TcpStream::connect(server.address).unwrap();
        let sent_ns = monotonic_ns();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        let received_ns = monotonic_ns();
        let visit = server.seen().visits[0];
        assert!(sent_ns < visit.arrival_ns, "{visit:?}");
        assert!(visit.arrival_ns + 3 * MS <= visit.depart_ns, "{visit:?}");
        assert!(visit.depart_ns < received_ns, "{visit:?}");
        let answer = String::from_utf8_lossy(&bytes[..count]);
        let Visit { arrival_ns, depart_ns } = visit;
        let fields = format!("x-arrival-ns: {arrival_ns}\r\nx-depart-ns: {depart_ns}\r\n");
        assert!(answer.contains(&fields), "{answer}");
    }

    #[test]
    fn connections_and_requests_in_flight_are_counted_at_their_most() {
        let server = QueueServer::unlimited(Duration::from_secs(60));
        let mut streams: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(server.address).unwrap()).collect();
        streams[0].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        streams[1].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        await_condition("both arrived", || server.arrived() == 2);
        await_condition("all are open", || server.seen().open_max == 3);
        drop(streams);
        let seen = server.seen();
        assert_eq!((seen.accepted, seen.in_flight_max), (3, 2));
        assert_eq!(seen.visits[0].depart_ns, 0, "not answered");
    }
}
