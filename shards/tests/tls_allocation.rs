//! What TLS allocates for a request once it is warm: what rustls does, one allocation for each
//! record in each direction, and nothing of ours.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use loadgen_shards::sys::allocator::CountingAllocator;
use loadgen_shards::tls::{Session, TlsOptions, TlsPlan};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const REQUEST_BYTES: usize = 100;
const RESPONSE_BYTES: usize = 200;
const WARM: u64 = 20;
const REQUESTS: u64 = 500;

fn serve(version: &'static SupportedProtocolVersion, listener: &TcpListener) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("signed").der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("ring has both");
    let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key);
    let config = Arc::new(config.expect("they belong together"));
    let (socket, _) = listener.accept().expect("it comes");
    let mut stream = StreamOwned::new(ServerConnection::new(config).expect("good"), socket);
    let mut request = [0; REQUEST_BYTES];
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(&[b'.'; RESPONSE_BYTES]).expect("it listens");
    }
}

/// One session over a blocking socket, as a shard drives it.
struct Client {
    session: Session,
    socket: TcpStream,
    outbox: Vec<u8>,
    buffer: [u8; 4096],
}

impl Client {
    /// Sends what there is, and receives once. Returns the bytes of plaintext.
    fn turn(&mut self) -> usize {
        self.socket.write_all(&self.outbox).expect("it listens");
        self.outbox.clear();
        let received = self.socket.read(&mut self.buffer).expect("it answers");
        self.session.take_in(&self.buffer[..received]);
        let mut bytes = 0;
        self.session.read(&mut self.outbox, |piece| bytes += piece.len()).expect("well-formed");
        bytes
    }

    fn exchange(&mut self) {
        assert!(self.session.write(&[b'q'; REQUEST_BYTES], &mut self.outbox));
        let mut bytes = 0;
        while bytes < RESPONSE_BYTES {
            bytes += self.turn();
        }
    }
}

/// On a thread whose allocations are counted.
fn allocations_once_warm(socket: TcpStream) -> u64 {
    let options = TlsOptions { is_insecure: true, ..TlsOptions::default() };
    let target = TlsPlan::new(&options).and_then(|plan| plan.target("localhost"));
    let mut outbox = Vec::new();
    let session = Session::begin(&target.expect("nothing to read"), &mut outbox).expect("begun");
    let mut client = Client { session, socket, outbox, buffer: [0; 4096] };
    while !client.session.is_ready() {
        client.turn();
    }
    (0..WARM).for_each(|_| client.exchange());
    let before = ALLOCATOR.count();
    assert!(before > 0, "a handshake allocates");
    (0..REQUESTS).for_each(|_| client.exchange());
    ALLOCATOR.count() - before
}

#[test]
fn warm_session_allocates_once_a_record() {
    for version in [&TLS12, &TLS13] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("heard");
        std::thread::spawn(move || serve(version, &listener));
        let client = std::thread::Builder::new().name("shard-tls".into());
        let client = client.spawn(move || allocations_once_warm(socket)).expect("a thread");
        let allocations = client.join().expect("in good order");
        assert_eq!(allocations, 2 * REQUESTS, "{version:?}");
    }
}
