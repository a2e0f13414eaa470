//! What TLS adds to a small request and its response in user space, beside a request in cleartext:
//! to encrypt the one, and to take in and decrypt the other.
//!
//! `tls/small_exchange` is the figure with a bound: at most 900 ns on the reference machine. The
//! endpoint has written its answers before the clock runs. `tls/handshake` is of both ends.

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;
    use std::io::{Read, Write};
    use std::sync::Arc;

    use criterion::{BatchSize, Bencher, BenchmarkId, Criterion};
    use loadgen_shards::tls::{Session, TlsOptions, TlsPlan};
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::version::{TLS12, TLS13};
    use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

    pub fn benches(criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("tls");
        for (name, version) in [("1.3", &TLS13), ("1.2", &TLS12)] {
            group.bench_function(BenchmarkId::new("small_exchange", name), |bencher| {
                exchange(bencher, version, REQUEST, &response(200));
            });
            group.bench_function(BenchmarkId::new("response_16k", name), |bencher| {
                exchange(bencher, version, REQUEST, &response(16 << 10));
            });
            group.bench_function(BenchmarkId::new("handshake", name), |bencher| {
                let config = server(version);
                let plan = TlsPlan::new(&insecure()).expect("nothing to read");
                bencher.iter_batched(
                    || plan.target("localhost").expect("a name").with_own_sessions(),
                    |target| {
                        let mut outbox = Vec::new();
                        let session = Session::begin(&target, &mut outbox).expect("begun");
                        handshaken(&config, session, outbox)
                    },
                    BatchSize::SmallInput,
                );
            });
        }
        group.finish();
    }

    const REQUEST: &[u8] = b"GET /api/v1/items/42 HTTP/1.1\r\nHost: localhost\r\n\
        User-Agent: loadgen-uring/0.1.0\r\nAccept: */*\r\n\r\n";

    fn response(bytes: usize) -> Vec<u8> {
        let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: ...\r\n\r\n".to_vec();
        response.resize(bytes, b'x');
        response
    }

    fn insecure() -> TlsOptions {
        TlsOptions { is_insecure: true, ..TlsOptions::default() }
    }

    fn server(version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("signed").der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("ring has both");
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key);
        Arc::new(config.expect("they belong together"))
    }

    /// Both ends, in memory, after the handshake.
    fn handshaken(
        config: &Arc<ServerConfig>,
        mut session: Session,
        mut outbox: Vec<u8>,
    ) -> (Session, ServerConnection) {
        let mut server = ServerConnection::new(Arc::clone(config)).expect("a configuration");
        let mut wire = Vec::new();
        while !outbox.is_empty() || !session.is_ready() {
            server.read_tls(&mut outbox.as_slice()).expect("in memory");
            outbox.clear();
            server.process_new_packets().expect("well-formed");
            while server.wants_write() {
                server.write_tls(&mut wire).expect("in memory");
            }
            session.take_in(&wire);
            wire.clear();
            session.read(&mut outbox, |_| ()).expect("well-formed");
        }
        (session, server)
    }

    fn exchange(
        bencher: &mut Bencher<'_>,
        version: &'static SupportedProtocolVersion,
        request: &[u8],
        response: &[u8],
    ) {
        let target = TlsPlan::new(&insecure()).and_then(|plan| plan.target("localhost"));
        let target = target.expect("nothing to read");
        let mut outbox = Vec::new();
        let session = Session::begin(&target, &mut outbox).expect("begun");
        let (mut session, mut server) = handshaken(&server(version), session, outbox);
        let mut outbox = Vec::new();
        bencher.iter_batched(
            || {
                server.writer().write_all(response).expect("in memory");
                let mut wire = Vec::with_capacity(response.len() + 64);
                while server.wants_write() {
                    server.write_tls(&mut wire).expect("in memory");
                }
                wire
            },
            |wire| {
                assert!(session.write(request, &mut outbox));
                black_box(outbox.as_slice());
                outbox.clear();
                session.take_in(&wire);
                let mut bytes = 0;
                let plaintext = |piece: &[u8]| bytes += black_box(piece).len();
                session.read(&mut outbox, plaintext).expect("well-formed");
                assert_eq!(bytes, response.len());
                // Its memory is freed outside of the time.
                wire
            },
            BatchSize::SmallInput,
        );
        // Negative control: the endpoint reads what was written last.
        assert!(session.write(request, &mut outbox));
        assert!(server.reader().read(&mut [0; 1]).is_err(), "nothing has reached it yet");
    }
}

#[cfg(target_os = "linux")]
criterion::criterion_group!(group, linux::benches);
#[cfg(target_os = "linux")]
criterion::criterion_main!(group);

#[cfg(not(target_os = "linux"))]
fn main() {}
