//! The ground truth: a blocking HTTP/1.1 server that does what the path of a request says, and
//! counts what it saw.
//!
//! One thread a connection, std only. It owns nothing of the client and believes nothing the client
//! says; the tests compare its counts with the client's report. See [`super::script`] for the
//! paths.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::script::{self, Position, Step};
use super::sys;

/// Requests of each path that are kept whole.
const KEPT_REQUESTS: usize = 64;
/// Arrival instants of each path that are kept.
const KEPT_ARRIVALS: usize = 20_000;
/// How often a waiting thread looks whether the server is being stopped.
const STOP_POLL: Duration = Duration::from_millis(50);

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
}

/// What the server saw on one path.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Requests read to their last byte.
    pub requests: u64,
    /// Answers written to the end of their script.
    pub answers: u64,
    /// Bytes of those requests.
    pub request_bytes: u64,
    /// Connections that sent at least one of them.
    pub connections: u64,
    /// Requests that wait for the first byte of their answer, now.
    pub in_flight: u64,
    /// The most of them at any time. Never more than the client had in flight, since an answer that
    /// is on its way no longer counts.
    pub in_flight_max: u64,
    /// When the first of them arrived.
    pub arrivals: Vec<Instant>,
    /// The first of them.
    pub kept: Vec<Request>,
}

/// A request as it came over the wire.
#[derive(Clone, Debug)]
pub struct Request {
    /// From the request line to the empty line.
    pub head: String,
    /// As long as Content-Length says.
    pub body: Vec<u8>,
}

impl Request {
    /// The first word.
    pub fn method(&self) -> &str {
        self.head.split(' ').next().expect("split gives at least one part")
    }

    /// The second word: path and query.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    /// The values of every field of that name, in order.
    pub fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1);
        let pairs = lines.filter_map(|line| line.split_once(':'));
        pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim()).collect()
    }
}

#[derive(Debug)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug, Default)]
struct Shared {
    paths: Mutex<HashMap<String, Seen>>,
    accepted: AtomicU64,
    is_stopping: AtomicBool,
    closes_on_accept: bool,
}

impl Server {
    /// On a free port of 127.0.0.1.
    pub fn start() -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
        Server::on_tcp(listener, Shared::default())
    }

    /// On a free port of [::1]; `None` where the host has no IPv6.
    pub fn start_ipv6() -> Option<Server> {
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok()?;
        Some(Server::on_tcp(listener, Shared::default()))
    }

    /// Closes each connection as soon as it is accepted.
    pub fn start_closing_on_accept() -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
        Server::on_tcp(listener, Shared { closes_on_accept: true, ..Shared::default() })
    }

    /// On a unix socket.
    pub fn start_unix(path: &Path) -> Server {
        let listener = UnixListener::bind(path).expect("the folder is ours");
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            accept(&accepting, || listener.accept().map(|(stream, _)| Stream::Unix(stream)));
        });
        Server { address: Address::Unix(path.to_path_buf()), shared }
    }

    fn on_tcp(listener: TcpListener, shared: Shared) -> Server {
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(shared);
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            accept(&accepting, || {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            });
        });
        Server { address: Address::Tcp(address), shared }
    }

    /// The TCP address.
    pub fn address(&self) -> SocketAddr {
        match &self.address {
            Address::Tcp(address) => *address,
            Address::Unix(path) => panic!("{} has no TCP address", path.display()),
        }
    }

    /// A URL of this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address())
    }

    /// What was seen on a path, so far.
    pub fn seen(&self, path: &str) -> Seen {
        self.shared.lock().get(path).cloned().unwrap_or_default()
    }

    /// How many requests a path has got. Cheaper than [`Server::seen`], for waiting.
    pub fn requests(&self, path: &str) -> u64 {
        self.shared.lock().get(path).map_or(0, |seen| seen.requests)
    }

    /// The most requests of a path that waited at the same time. Cheap, too.
    pub fn in_flight_max(&self, path: &str) -> u64 {
        self.shared.lock().get(path).map_or(0, |seen| seen.in_flight_max)
    }

    /// Requests on every path together.
    pub fn requests_total(&self) -> u64 {
        self.shared.lock().values().map(|seen| seen.requests).sum()
    }

    /// Connections accepted, used or not.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        // One last connection wakes the accepting thread; if it is gone already, that is as good.
        match &self.address {
            Address::Tcp(address) => drop(TcpStream::connect(address)),
            Address::Unix(path) => drop(UnixStream::connect(path)),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.paths.lock().expect("no thread panics while it counts")
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Counts a request and gives its position among those of its path.
    fn arrive(&self, path: &str, request: Request, is_first_on_connection: bool) -> u64 {
        let mut paths = self.lock();
        let seen = paths.entry(path.to_owned()).or_default();
        seen.requests += 1;
        seen.request_bytes += (request.head.len() + request.body.len()) as u64;
        seen.connections += u64::from(is_first_on_connection);
        seen.in_flight += 1;
        seen.in_flight_max = seen.in_flight_max.max(seen.in_flight);
        if seen.arrivals.len() < KEPT_ARRIVALS {
            seen.arrivals.push(Instant::now());
        }
        if seen.kept.len() < KEPT_REQUESTS {
            seen.kept.push(request);
        }
        seen.requests
    }

    fn count(&self, path: &str, change: impl FnOnce(&mut Seen)) {
        change(self.lock().get_mut(path).expect("the request has arrived"));
    }
}

fn accept(shared: &Arc<Shared>, mut next: impl FnMut() -> io::Result<Stream>) {
    loop {
        let accepted = next();
        if shared.is_stopping() {
            return;
        }
        let Ok(stream) = accepted else { continue };
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if shared.closes_on_accept {
            continue;
        }
        let shared = Arc::clone(shared);
        // A stack of 128 KiB is plenty for this loop, and a test may open some hundred connections.
        let thread = thread::Builder::new().stack_size(128 * 1024);
        thread
            .spawn(move || Connection::new(shared, stream).serve())
            .expect("a thread to serve with");
    }
}

/// What the connection does after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    NextRequest,
    End,
}

struct Connection {
    shared: Arc<Shared>,
    stream: Stream,
    /// Read but not yet used.
    buffer: Vec<u8>,
    /// Paths that this connection has asked for.
    paths: Vec<String>,
    requests: u64,
}

impl Connection {
    fn new(shared: Arc<Shared>, stream: Stream) -> Connection {
        Connection { shared, stream, buffer: Vec::new(), paths: Vec::new(), requests: 0 }
    }

    /// Until the script, the client or the test ends it. An I/O error is the client's end of it,
    /// and no news.
    fn serve(mut self) {
        if self.stream.set_read_timeout(STOP_POLL).is_err() {
            return;
        }
        while let Ok(Some(request)) = self.read_request() {
            if self.answer(request) == After::End {
                return;
            }
        }
    }

    /// The next request, or `None` at the end of the connection.
    fn read_request(&mut self) -> io::Result<Option<Request>> {
        let head_bytes = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill()? {
                return Ok(None);
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_bytes]).into_owned();
        let mut request = Request { head, body: Vec::new() };
        let body_bytes = match request.fields("content-length").first() {
            Some(value) => value.parse::<usize>().map_err(|_| io::ErrorKind::InvalidData)?,
            None => 0,
        };
        while self.buffer.len() < head_bytes + body_bytes {
            if !self.fill()? {
                return Ok(None);
            }
        }
        request.body = self.buffer[head_bytes..head_bytes + body_bytes].to_vec();
        self.buffer.drain(..head_bytes + body_bytes);
        Ok(Some(request))
    }

    /// Reads what there is; false at the end of the connection or of the server.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    return Ok(true);
                }
                Err(error) if is_timeout(&error) && !self.shared.is_stopping() => {}
                Err(error) if is_timeout(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn answer(&mut self, request: Request) -> After {
        let method = request.method().to_owned();
        let target = request.target().to_owned();
        let path = target.split('?').next().expect("split gives at least one part");
        let path = path.trim_start_matches('/').to_owned();
        let is_first = !self.paths.contains(&path);
        if is_first {
            self.paths.push(path.clone());
        }
        self.requests += 1;
        let wants_close = request.fields("connection").contains(&"close");
        let of_path = self.shared.arrive(&path, request, is_first);
        let position = Position { of_path, of_connection: self.requests };
        let steps = script::steps(&method, &target, position).unwrap_or_else(|| {
            vec![Step::Write(b"HTTP/1.1 404 No Script\r\nContent-Length: 0\r\n\r\n".into())]
        });
        let after = self.play(&path, steps);
        if wants_close { After::End } else { after }
    }

    /// Plays the steps; the request is in flight until the first byte of the answer is written.
    fn play(&mut self, path: &str, steps: Vec<Step>) -> After {
        let mut is_waiting = true;
        let shared = Arc::clone(&self.shared);
        let mut leave = |shared: &Shared| {
            if std::mem::take(&mut is_waiting) {
                shared.count(path, |seen| seen.in_flight -= 1);
            }
        };
        let mut after = After::NextRequest;
        for step in steps {
            match step {
                Step::Write(bytes) => {
                    leave(&shared);
                    if self.stream.write_all(&bytes).is_err() {
                        return After::End;
                    }
                }
                Step::Pause(time) => thread::sleep(time),
                Step::Hold => {
                    while matches!(self.fill(), Ok(true)) {}
                    after = After::End;
                }
                Step::CloseAtNextRequest => {
                    self.await_bytes();
                    after = After::End;
                }
                Step::Close => after = After::End,
                Step::Reset => {
                    sys::reset_on_close(self.stream.as_fd());
                    after = After::End;
                }
            }
        }
        leave(&shared);
        shared.count(path, |seen| seen.answers += 1);
        after
    }

    /// Waits for bytes and leaves them unread: the close that follows resets the connection under a
    /// request that is already on its way, the race that every keep-alive client meets.
    fn await_bytes(&self) {
        let Stream::Tcp(stream) = &self.stream else { return };
        loop {
            match stream.peek(&mut [0]) {
                Err(error) if is_timeout(&error) && !self.shared.is_stopping() => {}
                _ => return,
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A connection of either family.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A port of 127.0.0.1 where nobody listens. Another process could take it, but the kernel hands
/// out free ports in an order that makes this rare.
pub fn refused_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// A listener whose accept queue is full: the kernel drops every further SYN, so a connect never
/// ends.
#[derive(Debug)]
pub struct FullListener {
    listener: TcpListener,
    waiting: Vec<TcpStream>,
}

impl FullListener {
    /// Fills the queue.
    pub fn start() -> FullListener {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
        sys::shrink_backlog(&listener);
        let address = listener.local_addr().expect("a bound socket has an address");
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            waiting.push(stream);
            assert!(waiting.len() < 16, "the queue of length 0 never fills");
        }
        FullListener { listener, waiting }
    }

    /// Where connecting hangs.
    pub fn url(&self) -> String {
        assert!(!self.waiting.is_empty(), "somebody fills the queue");
        format!("http://{}/", self.listener.local_addr().expect("a bound socket has an address"))
    }
}

impl Drop for FullListener {
    fn drop(&mut self) {
        for stream in &self.waiting {
            // The peer never accepted; it cannot mind.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
