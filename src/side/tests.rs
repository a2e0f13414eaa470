//! Requests beside the load, against a server of a few lines.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use loadgen_shards::answer::{AnswerPlan, FinishReason};
use loadgen_shards::tls::{TlsOptions, TlsPlan};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::*;
use crate::api::Api;

/// Answers one connection with these writes, a pause between them, and closes. Gives what it read.
fn served(writes: Vec<Vec<u8>>) -> (Side, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client comes");
        let mut request = vec![0; 64 << 10];
        let count = stream.read(&mut request).expect("it sends");
        for (index, bytes) in writes.iter().enumerate() {
            if index > 0 {
                thread::sleep(Duration::from_millis(30));
            }
            let _ = stream.write_all(bytes);
        }
        String::from_utf8_lossy(&request[..count]).into_owned()
    });
    let target = Target::plain(Address::Inet(address), None);
    (Side::to_target(&target, Duration::from_secs(5)), server)
}

fn answered(writes: &[&str]) -> Result<Reply, Unanswered> {
    let (side, server) = served(writes.iter().map(|text| text.as_bytes().to_vec()).collect());
    let reply = side.get("/x");
    server.join().expect("it does not panic");
    reply
}

#[test]
fn an_answer_is_whole_however_it_is_framed_and_cut() {
    for writes in [
        vec!["HTTP/1.1 200 OK\r\nX-A: b \r\nContent-Length: 5\r\n\r\nhello"],
        vec!["HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Le", "ngth: 5\r\n\r\nhel", "lo"],
        vec![
            "HTTP/1.1 200 OK\r\nx-a:b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n",
            "0\r\n\r\n",
        ],
        vec!["HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nhel", "lo"],
        vec![
            "HTTP/1.1 100 Continue\r\nX-A: no\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello",
        ],
    ] {
        let reply = answered(&writes).unwrap_or_else(|why| panic!("{writes:?}: {why}"));
        assert_eq!((reply.status, &reply.body[..]), (200, &b"hello"[..]), "{writes:?}");
        assert_eq!(reply.header("x-a"), Some("b"), "{writes:?}");
        assert_eq!(reply.pieces.last().map(|piece| piece.end), Some(5), "{writes:?}");
        assert!(reply.is_success());
    }
}

#[test]
fn what_is_no_answer_is_told_apart() {
    assert_eq!(answered(&[]), Err(Unanswered::Closed));
    let cut = answered(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"]);
    assert_eq!(cut, Err(Unanswered::Broken("it is cut".to_owned())));
    assert!(matches!(answered(&["SSH-2.0-OpenSSH\r\n"]), Err(Unanswered::Broken(_))));
    let (mut side, server) = served(Vec::new());
    side.timeout = Duration::from_millis(1);
    drop(server);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    side.address = Address::Inet(listener.local_addr().expect("bound"));
    assert_eq!(side.get("/"), Err(Unanswered::Timeout(side.timeout)));
}

#[test]
fn a_message_is_found_in_any_form() {
    for (body, message) in [
        ("{\"error\":{\"message\":\"no model\",\"code\":404}}", "no model"),
        ("{\"error\":\"no model\"}", "no model"),
        ("{\"object\":\"error\",\"message\":\"no model\"}", "no model"),
        ("{\"detail\":\"Not Found\"}", "Not Found"),
        ("<h1>Bad\n  gateway</h1>\u{7}", "<h1>Bad gateway</h1>"),
        ("", ""),
    ] {
        let reply = Reply { body: body.as_bytes().to_vec(), ..Reply::default() };
        assert_eq!(reply.message(), message, "{body}");
    }
    let long = Reply { body: vec![b'x'; 5000], ..Reply::default() };
    assert_eq!(long.message().len(), MESSAGE_CHARS_MAX);
}

#[test]
fn a_prompt_s_answer_is_read_as_a_shard_would() {
    let plan = AnswerPlan { format: Api::Chat.answer_format(None), ..AnswerPlan::PLAIN };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let last = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\
                \"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
    let reply = answered(&[head, &event("a"), &event("b"), last]).expect("an answer");
    let Judged { facts, failure } = judged(&plan, true, &reply);
    assert_eq!(failure, None);
    assert!(facts.is_stream);
    assert_eq!((facts.chunks, facts.coalesced), (2, 0));
    assert_eq!((facts.usage.prompt, facts.usage.completion), (Some(3), Some(2)));
    assert_eq!(facts.finish, FinishReason::Stop);
    assert!(facts.last_token_ns > facts.first_token_ns, "{facts:?}");
    let error = "data: {\"error\":{\"message\":\"out of memory\"}}\n\n";
    let reply = answered(&[head, error]).expect("an answer");
    let failure = judged(&plan, true, &reply).failure.expect("an error inside a 200");
    assert!(failure.contains("out of memory"), "{failure}");
}

#[test]
fn models_are_listed_in_any_form() {
    for (body, models) in [
        ("{\"data\":[{\"id\":\"a\"},{\"id\":\"b\"}]}", Some(vec!["a", "b"])),
        ("{\"models\":[{\"name\":\"a\"}]}", Some(vec!["a"])),
        ("[\"a\"]", Some(vec!["a"])),
        ("{\"data\":[]}", Some(vec![])),
        ("{\"data\":5}", None),
        ("nonsense", None),
    ] {
        let reply = Reply { body: body.as_bytes().to_vec(), ..Reply::default() };
        let models = models.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(models_in(&reply), models, "{body}");
    }
}

#[test]
fn over_tls_an_answer_comes_with_what_was_agreed_and_a_certificate_is_checked() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let folder = std::env::temp_dir().join(format!("loadgen-side-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("ours");
    let cacert = folder.join("ca.pem");
    std::fs::write(&cacert, made.cert.pem()).expect("ours");
    let ask = |options: &TlsOptions| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let address = listener.local_addr().expect("bound");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("they belong together");
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client comes");
            let session = ServerConnection::new(Arc::new(config)).expect("a session");
            let mut stream = StreamOwned::new(session, stream);
            let mut request = [0; 1024];
            if stream.read(&mut request).is_ok() {
                let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
                let _ = stream.write_all(reply).and_then(|()| stream.flush());
            }
        });
        let tls = TlsPlan::new(options).expect("valid").target("localhost").expect("a name");
        let target = Target { tls: Some(tls), ..Target::plain(Address::Inet(address), None) };
        let reply = Side::to_target(&target, Duration::from_secs(5)).get("/");
        server.join().expect("it does not panic");
        reply
    };
    let trusting = TlsOptions { cacert: Some(cacert), ..TlsOptions::default() };
    let reply = ask(&trusting).expect("an answer");
    assert_eq!(reply.body, b"hi");
    assert_eq!(reply.tls.expect("TLS").version, "TLSv1_3");
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).expect("a key");
    let foreign = folder.join("other.pem");
    std::fs::write(&foreign, other.cert.pem()).expect("ours");
    let doubting = TlsOptions { cacert: Some(foreign), ..TlsOptions::default() };
    let Err(Unanswered::Connect(why)) = ask(&doubting) else { panic!("it is not trusted") };
    assert!(why.contains("certificate"), "{why}");
    let careless = TlsOptions { is_insecure: true, ..TlsOptions::default() };
    assert!(ask(&careless).is_ok());
    std::fs::remove_dir_all(folder).expect("ours");
}
