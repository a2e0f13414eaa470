//! TLS of a shard on real sockets, against a server of rustls with certificates made here.
#![cfg(target_os = "linux")]

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use loadgen_shards::answer::{AnswerFormat, AnswerPlan};
use loadgen_shards::clock::Calibrator;
use loadgen_shards::failure::{FailureKind, Failures};
use loadgen_shards::order::{Order, SampleOrder};
use loadgen_shards::phase::{
    Command, Message, Pattern, PhaseKind, PhasePlan, Positions, Timeouts, Wait,
};
use loadgen_shards::query::{Address, Request, RequestTable, Target};
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::recorder::Counters;
use loadgen_shards::shard::{self, Link, ShardPlan};
use loadgen_shards::sys::uring;
use loadgen_shards::tls::{Refusal, TlsOptions, TlsPlan};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
};

/// One that may sign, and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

/// A certificate with its key.
struct Identity {
    der: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Authority {
    fn new() -> Authority {
        Authority::named("the one we trust")
    }

    fn named(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed");
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Authority { issuer: Issuer::new(params, key), pem, der }
    }

    /// For these names, valid until a year.
    fn identity(&self, names: &[&str], until_year: i32) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_after = date_time_ymd(until_year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Identity { der: certificate.der().clone(), pem: certificate.pem(), key }
    }
}

/// Files of one test; gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a server behaves.
#[derive(Clone)]
struct Script {
    request_bytes: usize,
    response: Vec<u8>,
    /// Ends each connection after so many answers.
    closes_after: usize,
    /// Says so first.
    says_goodbye: bool,
    /// Asks for new keys before each answer.
    changes_keys: bool,
    /// Bytes of one write to the socket.
    piece_bytes: usize,
}

fn answering(body: &[u8]) -> Script {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    Script {
        request_bytes: GET.len(),
        response: [head.as_bytes(), body].concat(),
        closes_after: usize::MAX,
        says_goodbye: true,
        changes_keys: false,
        piece_bytes: usize::MAX,
    }
}

/// A socket that takes few bytes at once.
struct Pieces {
    socket: TcpStream,
    bytes: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buffer)
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(&bytes[..bytes.len().min(self.bytes)])
    }

    /// rustls writes only once what it has to say last, however many records that are.
    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self.bytes {
            usize::MAX => self.socket.write_vectored(parts),
            _ => parts.first().map_or(Ok(0), |part| self.write(part)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn serve(socket: TcpStream, config: Arc<ServerConfig>, script: &Script) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, Pieces { socket, bytes: script.piece_bytes });
    let mut request = vec![0; script.request_bytes];
    for _ in 0..script.closes_after {
        stream.read_exact(&mut request)?;
        if script.changes_keys {
            stream.conn.refresh_traffic_keys().map_err(io::Error::other)?;
        }
        stream.write_all(&script.response)?;
        stream.flush()?;
    }
    if script.says_goodbye {
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    Ok(())
}

fn listen(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Inet(listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(socket));
        }
    });
    address
}

fn start(config: ServerConfig, script: Script) -> Address {
    let config = Arc::new(config);
    listen(move |socket| {
        let _ = serve(socket, Arc::clone(&config), &script);
    })
}

fn builder(
    versions: &[&'static SupportedProtocolVersion],
) -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("ring has both")
}

fn server(versions: &[&'static SupportedProtocolVersion], identity: &Identity) -> ServerConfig {
    let key = PrivateKeyDer::try_from(identity.key.serialize_der()).expect("a key");
    let chain = vec![identity.der.clone()];
    let builder = builder(versions).with_no_client_auth();
    builder.with_single_cert(chain, key).expect("they belong together")
}

const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Those that this host allows.
fn engines() -> Vec<EngineChoice> {
    match uring::probe() {
        Ok(_) => vec![EngineChoice::Uring, EngineChoice::Epoll],
        Err(reason) => {
            eprintln!("skipped: {reason}");
            vec![EngineChoice::Epoll]
        }
    }
}

/// A load on one server.
#[derive(Clone, Debug)]
struct Load {
    engine: EngineChoice,
    address: Address,
    options: TlsOptions,
    host: &'static str,
    request: Vec<u8>,
    requests: u64,
    in_flight: u32,
    timeouts: Timeouts,
    /// Answers are those of a chat, streamed.
    is_chat: bool,
}

/// What a shard recorded of it, in its phase and before.
#[derive(Default)]
struct Recorded {
    counters: Counters,
    failures: Failures,
    handshakes: u64,
    longest_handshake_ns: u64,
    shortest_handshake_ns: u64,
    open_at_first: u32,
}

impl Load {
    fn new(engine: EngineChoice, address: Address, options: &TlsOptions) -> Load {
        Load {
            engine,
            address,
            options: options.clone(),
            host: "localhost",
            request: GET.to_vec(),
            requests: 40,
            in_flight: 4,
            timeouts: Timeouts::default(),
            is_chat: false,
        }
    }

    fn plan(&self) -> ShardPlan {
        let tls = TlsPlan::new(&self.options).and_then(|plan| plan.target(self.host));
        let target = Target {
            tls: Some(tls.expect("good options")),
            ..Target::plain(self.address.clone(), None)
        };
        let mut request = Request::plain(0..self.request.len(), 0, false);
        request.is_stream = self.is_chat;
        let format = if self.is_chat { AnswerFormat::Chat } else { AnswerFormat::Plain };
        ShardPlan {
            index: 0,
            core: None,
            wait: Wait::Sleep,
            engine: self.engine,
            table: RequestTable {
                arena: Arc::from(self.request.as_slice()),
                requests: Arc::from([request]),
                targets: Arc::from([target]),
                answers: Arc::new(AnswerPlan { format, ..AnswerPlan::PLAIN }),
            },
            slots_per_target: self.in_flight,
            connections_per_target: self.in_flight,
            timeouts: self.timeouts,
            keepalive: true,
            accept_status: (200, 299),
            goals: None,
            clock: Calibrator::begin().finish(),
            wire_stamps: None,
        }
    }

    fn phase(&self, plan: &ShardPlan) -> PhasePlan {
        PhasePlan {
            index: 0,
            kind: PhaseKind::Performance,
            pattern: Pattern::ClosedLoop {
                in_flight: self.in_flight,
                positions: Arc::new(Positions::new(Some(self.requests), 1)),
            },
            order: SampleOrder::new(Order::Sequential, 1, 0),
            start_ns: 0,
            duration_ns: None,
            drain_timeout_ns: PATIENCE.as_nanos() as u64,
            clock: plan.clock,
        }
    }

    fn run(&self) -> Recorded {
        let plan = self.plan();
        let phase = self.phase(&plan);
        let clock = plan.clock;
        let (command, commands) = bounded(4);
        let (tell, messages) = bounded(64);
        let (recycle, recycled) = bounded(8);
        let (live, peers, dispatches, records) = (Arc::default(), vec![], None, None);
        let link = Link { commands, messages: tell, recycled, live, peers, dispatches, records };
        let thread = shard::spawn(plan, link).expect("a thread");
        let mut recorded = Recorded { shortest_handshake_ns: u64::MAX, ..Recorded::default() };
        let ready = match messages.recv_timeout(PATIENCE).expect("the shard speaks") {
            Message::Ready(ready) => ready,
            message => panic!("{message:?}"),
        };
        recorded.open_at_first = ready.connections_open;
        command.send(Command::Phase(Box::new(phase))).expect("heard");
        ready.waker.wake();
        loop {
            match messages.recv_timeout(PATIENCE).expect("the shard speaks") {
                Message::Interval { mut recording, .. } => {
                    recorded.counters.add(&recording.counters);
                    recorded.failures.add(&recording.failures);
                    recorded.handshakes += recording.tls.count();
                    recorded.longest_handshake_ns =
                        recorded.longest_handshake_ns.max(recording.tls.max);
                    recorded.shortest_handshake_ns =
                        recorded.shortest_handshake_ns.min(recording.tls.min);
                    recording.reset();
                    let _ = recycle.send((recording, clock));
                }
                Message::PhaseEnded { .. } => break,
                message => panic!("{message:?}"),
            }
        }
        command.send(Command::Exit).expect("heard");
        ready.waker.wake();
        thread.join().expect("in good order");
        recorded
    }

    #[track_caller]
    fn expect_all(&self) -> Recorded {
        let recorded = self.run();
        let Recorded { counters, failures, .. } = &recorded;
        assert_eq!(counters.completed, self.requests, "{:?}: {failures:?}", self.engine);
        assert_eq!(counters.tls_handshakes, recorded.handshakes, "each has a length");
        recorded
    }

    /// Every request fails so.
    #[track_caller]
    fn expect_failure(&self, kind: FailureKind, says: &str) {
        let Recorded { counters, failures, .. } = self.run();
        let tally = failures.tally(kind);
        assert_eq!(counters.failed, self.requests, "{:?}: {failures:?}", self.engine);
        // Those that could not be opened ahead are told too.
        assert!(tally.count >= self.requests, "{:?}: {failures:?}", self.engine);
        let text = tally.first_message.as_str();
        assert!(text.contains(says), "{:?}: not {says}: {text}", self.engine);
    }
}

/// A trusted authority, its file, and a server's identity for `localhost` and 127.0.0.1.
fn trusted(name: &str) -> (Authority, Folder, TlsOptions, Identity) {
    let authority = Authority::new();
    let folder = Folder::new(name);
    let cacert = Some(folder.file("ca.pem", &authority.pem));
    let identity = authority.identity(&["localhost", "127.0.0.1"], 4000);
    (authority, folder, TlsOptions { cacert, ..TlsOptions::default() }, identity)
}

#[test]
fn both_versions_carry_requests_on_connections_that_were_secured_ahead() {
    let (_authority, _folder, options, identity) = trusted("both");
    for engine in engines() {
        for version in BOTH {
            for host in ["localhost", "127.0.0.1"] {
                let address = start(server(&[*version], &identity), answering(b"body"));
                let load = Load { host, ..Load::new(engine, address, &options) };
                let recorded = load.expect_all();
                assert_eq!(recorded.open_at_first, 4, "{engine:?} {version:?}");
                assert_eq!(recorded.counters.tls_handshakes, 4, "{engine:?} {version:?}");
                let bytes = load.requests * GET.len() as u64;
                assert_eq!(recorded.counters.bytes_sent, bytes, "those of HTTP");
                let bytes = load.requests * answering(b"body").response.len() as u64;
                assert_eq!(recorded.counters.bytes_received, bytes, "those of HTTP");
                let shortest_ns = recorded.shortest_handshake_ns;
                assert!(shortest_ns > 10_000, "cryptography takes longer: {shortest_ns}");
            }
        }
    }
}

#[test]
fn later_connections_resume_the_session_of_the_first() {
    let (_authority, _folder, options, identity) = trusted("resume");
    for engine in engines() {
        for version in BOTH {
            let script = Script { closes_after: 2, ..answering(b"body") };
            let address = start(server(&[*version], &identity), script);
            let load = Load { in_flight: 1, ..Load::new(engine, address, &options) };
            let Counters { tls_handshakes, tls_resumed, .. } = load.expect_all().counters;
            assert!(tls_handshakes >= 20, "{engine:?} {version:?}: {tls_handshakes}");
            assert_eq!(tls_resumed, tls_handshakes - 1, "{engine:?} {version:?}");
        }
        // Negative control: a server that keeps no sessions.
        let mut config = server(BOTH, &identity);
        config.send_tls13_tickets = 0;
        let script = Script { closes_after: 2, ..answering(b"body") };
        let load = Load::new(engine, start(config, script), &options);
        assert_eq!(load.expect_all().counters.tls_resumed, 0, "{engine:?}");
    }
}

#[test]
fn certificates_that_cannot_be_trusted_fail_with_what_to_do() {
    let (authority, folder, options, good) = trusted("certificates");
    let foreign = Authority::named("another").identity(&["localhost"], 4000);
    let namesake = Authority::new().identity(&["localhost"], 4000);
    let expired = authority.identity(&["localhost"], 2020);
    let other = authority.identity(&["example.org", "example.net"], 4000);
    let as_ca = Authority::named("a third");
    for engine in engines() {
        for (identity, says) in [
            (&foreign, "nobody that we trust has signed the certificate; --cacert FILE"),
            (&namesake, "that we trust by its name has not signed"),
            (&expired, "days ago; -k"),
            (&other, "the certificate is for example.org and others, not localhost; --sni NAME"),
        ] {
            let address = start(server(BOTH, identity), answering(b"body"));
            let load = Load { requests: 8, ..Load::new(engine, address.clone(), &options) };
            load.expect_failure(FailureKind::TlsCertificate, says);
            // The same server, and -k.
            let options = TlsOptions { is_insecure: true, ..TlsOptions::default() };
            Load::new(engine, address, &options).expect_all();
        }
        let address = start(server(BOTH, &other), answering(b"body"));
        let named = TlsOptions { sni: Some("example.net".into()), ..options.clone() };
        Load::new(engine, address, &named).expect_all();
        let address = start(server(BOTH, &good), answering(b"body"));
        let cacert = Some(folder.file("other.pem", &as_ca.pem));
        let elsewhere = TlsOptions { cacert, ..TlsOptions::default() };
        let load = Load { requests: 8, ..Load::new(engine, address, &elsewhere) };
        load.expect_failure(FailureKind::TlsCertificate, "--cacert");
    }
}

#[test]
fn endpoint_hears_why_it_is_not_trusted() {
    let (_authority, _folder, options, _identity) = trusted("alert");
    let stranger = Authority::named("another").identity(&["localhost"], 4000);
    let config = Arc::new(server(BOTH, &stranger));
    for engine in engines() {
        let (config, (tell, told)) = (Arc::clone(&config), bounded(100));
        let address = listen(move |socket| {
            let ended = serve(socket, Arc::clone(&config), &answering(b"body"));
            let _ = tell.send(ended.expect_err("refused").to_string());
        });
        let load = Load { requests: 8, ..Load::new(engine, address, &options) };
        load.expect_failure(FailureKind::TlsCertificate, "");
        for _ in 0..8 {
            let text = told.recv_timeout(PATIENCE).expect("the server hears");
            assert!(text.contains("UnknownCA"), "{engine:?}: {text}");
        }
    }
}

#[test]
fn client_certificate_is_shown_where_one_is_demanded() {
    let (authority, folder, options, identity) = trusted("client");
    let client = authority.identity(&["client"], 4000);
    let cert = Some(folder.file("client.pem", &client.pem));
    let key = Some(folder.file("client.key", &client.key.serialize_pem()));
    let shown = TlsOptions { cert, key, ..options.clone() };
    let both = client.pem.clone() + &client.key.serialize_pem();
    let cert = Some(folder.file("both.pem", &both));
    let in_one_file = TlsOptions { cert, ..options.clone() };
    let demanding = |versions: &[&'static SupportedProtocolVersion]| {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der.clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let key = PrivateKeyDer::try_from(identity.key.serialize_der()).expect("a key");
        builder(versions)
            .with_client_cert_verifier(verifier.build().expect("roots"))
            .with_single_cert(vec![identity.der.clone()], key)
            .expect("they belong together")
    };
    for engine in engines() {
        for version in BOTH {
            let address = start(demanding(&[*version]), answering(b"body"));
            let load = Load { requests: 8, ..Load::new(engine, address.clone(), &options) };
            load.expect_failure(FailureKind::Tls, "client certificate");
            Load::new(engine, address.clone(), &shown).expect_all();
            Load::new(engine, address, &in_one_file).expect_all();
        }
    }
}

#[test]
fn endpoints_that_do_not_speak_our_language_are_told_apart() {
    let (_authority, _folder, options, identity) = trusted("language");
    let mut only_h2 = server(BOTH, &identity);
    only_h2.alpn_protocols = vec![b"h2".to_vec()];
    let only_h2 = start(only_h2, answering(b"body"));
    let cleartext = listen(|mut socket| {
        let _ = socket.read(&mut [0; 10]);
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let _ = socket.read(&mut [0; 1000]);
    });
    let hanging_up = listen(|mut socket| {
        let _ = socket.read(&mut [0; 1000]);
    });
    for engine in engines() {
        for (address, says) in [
            (&only_h2, "refuses HTTP/1.1"),
            (&cleartext, "what came is not TLS"),
            (&hanging_up, "in the TLS handshake"),
        ] {
            let load = Load { requests: 8, ..Load::new(engine, address.clone(), &options) };
            load.expect_failure(FailureKind::Tls, says);
        }
    }
}

#[test]
fn handshake_that_stalls_falls_under_the_connect_timeout() {
    let (_authority, _folder, options, _identity) = trusted("stall");
    let silent = listen(|mut socket| {
        let _ = socket.read_to_end(&mut Vec::new());
    });
    for engine in engines() {
        let timeouts = Timeouts { connect_ns: 50_000_000, ..Timeouts::default() };
        let load = Load { requests: 4, timeouts, ..Load::new(engine, silent.clone(), &options) };
        load.expect_failure(FailureKind::ConnectTimeout, "TLS handshake within --connect-timeout");
    }
}

#[test]
fn end_of_the_stream_ends_a_body_only_after_a_goodbye() {
    let (_authority, _folder, options, identity) = trusted("end");
    let until_end = b"HTTP/1.1 200 OK\r\n\r\nall that is left".to_vec();
    for engine in engines() {
        for version in BOTH {
            let said = Script { response: until_end.clone(), closes_after: 1, ..answering(b"") };
            let cut = Script { says_goodbye: false, ..said.clone() };
            let address = start(server(&[*version], &identity), said);
            Load::new(engine, address, &options).expect_all();
            let address = start(server(&[*version], &identity), cut);
            let load = Load::new(engine, address, &options);
            load.expect_failure(FailureKind::TruncatedBody, "without close_notify");
            // Its length was announced: nothing is missing.
            let whole = Script { closes_after: 3, says_goodbye: false, ..answering(b"body") };
            let address = start(server(&[*version], &identity), whole);
            let counters = Load::new(engine, address, &options).expect_all().counters;
            assert!(counters.tls_handshakes > 10, "three requests a connection");
        }
        let mut short = answering(b"body");
        short.response.pop();
        short.closes_after = 1;
        let load = Load::new(engine, start(server(BOTH, &identity), short), &options);
        load.expect_failure(FailureKind::TruncatedBody, "inside the response body");
    }
}

/// A stream of so many tokens and what is told, until the end of the connection.
fn chat(tokens: usize, rest: &str) -> Vec<u8> {
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n".to_vec();
    for index in 0..tokens {
        let delta = format!("{{\"content\":\"word {index} \"}}");
        let event = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
        response.extend_from_slice(event.as_bytes());
    }
    response.extend_from_slice(rest.as_bytes());
    response
}

#[test]
fn streams_are_read_of_decrypted_bytes_and_judged_by_their_own_end() {
    let (_authority, _folder, options, identity) = trusted("streams");
    for engine in engines() {
        for says_goodbye in [true, false] {
            // Records of 100 bytes: events are cut anywhere.
            let config = || {
                let mut config = server(BOTH, &identity);
                config.max_fragment_size = Some(100);
                config
            };
            let script = Script { closes_after: 1, says_goodbye, ..answering(b"") };
            let whole = Script { response: chat(50, "data: [DONE]\n\n"), ..script.clone() };
            let load = Load::new(engine, start(config(), whole), &options);
            let counters = Load { is_chat: true, ..load }.expect_all().counters;
            assert_eq!((counters.answers, counters.chunks), (40, 40 * 50), "{engine:?}");
            let cut = Script { response: chat(50, ""), ..script };
            let load = Load::new(engine, start(config(), cut), &options);
            let load = Load { is_chat: true, ..load };
            load.expect_failure(FailureKind::TruncatedStream, "");
        }
    }
}

#[test]
fn megabytes_go_both_ways_whole() {
    let (_authority, _folder, options, identity) = trusted("large");
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1 << 20);
    let mut request = head.into_bytes();
    request.resize(request.len() + (1 << 20), b'q');
    let script = Script { request_bytes: request.len(), ..answering(&vec![b'a'; 1 << 20]) };
    for engine in engines() {
        for version in BOTH {
            let address = start(server(&[*version], &identity), script.clone());
            let request = request.clone();
            let load = Load { request, requests: 12, ..Load::new(engine, address, &options) };
            let counters = load.expect_all().counters;
            assert_eq!(counters.tls_handshakes, 4, "all on the first connections: {engine:?}");
            assert!(counters.bytes_received > 12 << 20, "{engine:?}");
        }
    }
}

#[test]
fn records_may_be_cut_anywhere_and_come_several_at_once() {
    let (_authority, _folder, options, identity) = trusted("cut");
    for engine in engines() {
        for version in BOTH {
            let bytewise = Script { piece_bytes: 1, ..answering(b"a body of some length") };
            let address = start(server(&[*version], &identity), bytewise);
            Load { requests: 8, ..Load::new(engine, address, &options) }.expect_all();
            let mut config = server(&[*version], &identity);
            config.max_fragment_size = Some(64);
            let address = start(config, answering(&[b'x'; 3000]));
            Load::new(engine, address, &options).expect_all();
        }
    }
}

#[test]
fn new_keys_in_the_middle_of_a_connection_are_taken_over() {
    let (_authority, _folder, options, identity) = trusted("keys");
    for engine in engines() {
        let script = Script { changes_keys: true, ..answering(b"body") };
        let address = start(server(&[&TLS13], &identity), script);
        let load = Load { requests: 100, ..Load::new(engine, address, &options) };
        assert_eq!(load.expect_all().counters.tls_handshakes, 4, "{engine:?}");
    }
}

#[test]
fn kernel_stamps_and_tls_are_refused_together() {
    let (_authority, _folder, options, identity) = trusted("stamps");
    let address = start(server(BOTH, &identity), answering(b"body"));
    let mut plan = Load::new(EngineChoice::Epoll, address, &options).plan();
    plan.wire_stamps = Some(1);
    let (_command, commands) = bounded(4);
    let (tell, messages) = bounded(64);
    let (_recycle, recycled) = bounded(8);
    let (live, peers, dispatches, records) = (Arc::default(), vec![], None, None);
    let link = Link { commands, messages: tell, recycled, live, peers, dispatches, records };
    shard::spawn(plan, link).expect("a thread").join().expect("in good order");
    match messages.recv_timeout(PATIENCE).expect("the shard speaks") {
        Message::Refused { reason, .. } => assert!(reason.contains("--wire-stamps"), "{reason}"),
        message => panic!("{message:?}"),
    }
}

#[test]
fn options_that_cannot_work_name_the_flag_and_the_file() {
    let (authority, folder, options, identity) = trusted("options");
    let missing = folder.0.join("missing.pem");
    let empty = folder.file("empty.pem", "nothing of interest\n");
    let broken = folder.file("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let noise = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let noise = folder.file("noise.pem", noise);
    let cert = folder.file("cert.pem", &identity.pem);
    let key = folder.file("key.pem", &authority.issuer.key().serialize_pem());
    let cacert =
        |path: &PathBuf| TlsOptions { cacert: Some(path.clone()), ..TlsOptions::default() };
    let client = |cert: &PathBuf, key: Option<&PathBuf>| TlsOptions {
        cert: Some(cert.clone()),
        key: key.cloned(),
        ..options.clone()
    };
    for (options, says) in [
        (cacert(&missing), "--cacert got `", "missing.pem`, which cannot be read"),
        (cacert(&empty), "--cacert got `", "empty.pem`, which has no certificate"),
        (cacert(&broken), "--cacert got `", "broken.pem`, which is no whole PEM file"),
        (cacert(&noise), "--cacert got `", "noise.pem`, with a certificate that cannot be used"),
        (client(&missing, Some(&key)), "--cert got `", "missing.pem`, which cannot be read"),
        (client(&cert, Some(&missing)), "--key got `", "missing.pem`, which cannot be read"),
        (client(&cert, Some(&empty)), "--key got `", "empty.pem`, which has no private key"),
        (client(&cert, None), "--cert got `", "cert.pem`, which has no private key"),
        (client(&cert, Some(&key)), "--key got `", "whose private key is not that of"),
        (TlsOptions { key: Some(key.clone()), ..options.clone() }, "--key", "--cert FILE"),
        (TlsOptions { sni: Some("a b".into()), ..options.clone() }, "--sni got `a b`", "host name"),
    ]
    .map(|(options, flag, says)| (options, [flag, says]))
    {
        let error = TlsPlan::new(&options).expect_err(says[1]);
        assert!(says.iter().all(|says| error.contains(says)), "{error}");
    }
    let plan = TlsPlan::new(&options).expect("good options");
    assert!(plan.target("a|b").expect_err("no name").contains("a|b"));
    assert!(plan.target("::1").is_ok() && plan.target("10.0.0.1").is_ok());
}

#[test]
fn blocking_client_goes_by_the_same_plan() {
    let (_authority, _folder, options, identity) = trusted("blocking");
    let Address::Inet(address) = start(server(BOTH, &identity), answering(b"body")) else {
        unreachable!("of TCP");
    };
    let ask = |host: &str| {
        let target = TlsPlan::new(&options).expect("good options").target(host).expect("a name");
        let socket = TcpStream::connect(address).expect("heard");
        let mut stream = target.client_stream(socket).expect("a session");
        stream.write_all(GET)?;
        let mut answer = vec![0; answering(b"body").response.len()];
        stream.read_exact(&mut answer)?;
        Ok::<_, io::Error>(answer)
    };
    assert_eq!(ask("localhost").expect("trusted"), answering(b"body").response);
    let refusal = Refusal::of_stream(&ask("example.org").expect_err("the wrong name"));
    let refusal = refusal.expect("of TLS");
    assert_eq!(refusal.kind, FailureKind::TlsCertificate);
    assert!(refusal.text.contains("not example.org; --sni NAME"), "{}", refusal.text);
    assert_eq!(Refusal::of_stream(&io::Error::other("something else")), None);
}

/// For one message; a machine that is slower than this is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves one request. Whether it was there when the handshake was over.
fn serve_at_once(mut socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<bool> {
    socket.set_nodelay(true)?;
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        while connection.wants_write() {
            connection.write_tls(&mut socket)?;
        }
        if connection.read_tls(&mut socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        connection.process_new_packets().map_err(io::Error::other)?;
    }
    let is_there = connection.reader().read(&mut [0; 1]).is_ok_and(|bytes| bytes == 1);
    let mut stream = StreamOwned::new(connection, socket);
    stream.read_exact(&mut vec![0; GET.len() - usize::from(is_there)])?;
    stream.write_all(&answering(b"ok").response)?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(is_there)
}

/// A request that waits for its connection leaves with the last message of the handshake: behind
/// one that is sent for itself it would leave a turn after its stamp.
#[test]
fn first_request_comes_with_the_end_of_the_handshake() {
    let (_authority, _folder, options, identity) = trusted("together");
    for engine in engines() {
        let config = Arc::new(server(&[&TLS13], &identity));
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let tally = Arc::clone(&counts);
        let address = listen(move |socket| {
            if let Ok(is_there) = serve_at_once(socket, Arc::clone(&config)) {
                tally[usize::from(is_there)].fetch_add(1, Ordering::Relaxed);
            }
        });
        Load { in_flight: 1, ..Load::new(engine, address, &options) }.expect_all();
        let [apart, together] = [0, 1].map(|index: usize| counts[index].load(Ordering::Relaxed));
        // The one that was opened ahead may have had nothing to send; the last may not be counted.
        assert!(apart <= 1, "{engine:?}: {apart}");
        assert!(together >= 38, "{engine:?}: {together}");
    }
}
