//! A real inference server: llama.cpp's, with a tiny model, which counts its tokens itself. Plain,
//! and behind nginx with TLS. Skipped with a reason where it is not there; where
//! LOADGEN_REQUIRE_REAL_SERVERS is set (`.ci/run`), that is a failure.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::support::real::{Llama, Nginx};
use crate::support::run::{Outcome, Run, number};
use crate::support::temp::TempDir;
use crate::support::{Engine, on_both_engines};

on_both_engines!(
    the_server_counts_the_tokens_we_report,
    a_connection_closed_after_100_requests_costs_no_failure,
    a_connection_closed_after_each_stream_without_a_word_costs_no_failure,
    a_prompt_that_is_too_long_fails_with_the_servers_words,
    a_stream_through_tls_is_read_to_its_last_token,
    a_certificate_nobody_vouches_for_is_refused,
);

const PROMPTS: usize = 20;
const ANSWER_TOKENS: u64 = 12;

/// A dataset with one prompt a row.
struct Prompts {
    folder: TempDir,
}

impl Prompts {
    /// No two begin alike: a beginning that was there before is served from the cache.
    fn different(count: usize) -> Prompts {
        Prompts::of((0..count).map(|i| format!("{i} people would like to know about the river")))
    }

    fn of(prompts: impl Iterator<Item = String>) -> Prompts {
        let folder = TempDir::new();
        let rows: String =
            prompts.map(|prompt| json!({ "prompt": prompt }).to_string() + "\n").collect();
        fs::write(folder.join("prompts.jsonl"), rows).unwrap();
        Prompts { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("prompts.jsonl")
    }
}

/// A run of the whole dataset, without a request of its own before it: so the counts are exact.
fn run(engine: Engine, base_url: &str, prompts: &Prompts, words: &str) -> Outcome {
    Run::on(engine)
        .words(&format!("concurrency {base_url} --model tiny --no-preflight {words}"))
        .args(["--allow-untrusted".as_ref(), "--dataset".as_ref(), prompts.path().as_os_str()])
        .finish()
}

fn plain(llama: &Llama) -> String {
    format!("http://127.0.0.1:{}/v1", llama.port())
}

/// Negative control of the counters that the tests below believe, and of the server itself.
#[test]
fn llama_counts_its_tokens_and_streams_them() {
    let Some(llama) = Llama::start() else { return };
    assert_eq!((llama.generated_tokens(), llama.prompt_tokens()), (0, 0));
    let body = json!({
        "model": "tiny", "max_tokens": ANSWER_TOKENS, "ignore_eos": true, "stream": true,
        "stream_options": { "include_usage": true },
        "messages": [{ "role": "user", "content": "explain the river" }],
    });
    let answer = llama.chat(&body.to_string());
    assert!(answer.contains("\r\nTransfer-Encoding: chunked\r\n"), "{answer}");
    assert!(answer.contains(&format!(r#""completion_tokens":{ANSWER_TOKENS},"#)), "{answer}");
    assert!(answer.contains("data: [DONE]\n\n\r\n0\r\n\r\n"), "{answer}");
    assert_eq!(llama.generated_tokens(), ANSWER_TOKENS);
    assert_eq!(llama.cached_tokens(), 0);
    // The same beginning again comes from the cache; it still counts as prompt.
    let prompt_tokens = llama.prompt_tokens();
    llama.chat(&body.to_string());
    assert_eq!(llama.prompt_tokens(), 2 * prompt_tokens);
    assert!(llama.cached_tokens() > 0);
}

/// Chats and completions, streamed and whole: the tokens are those that the server has counted.
fn the_server_counts_the_tokens_we_report(engine: Engine) {
    let Some(llama) = Llama::start() else { return };
    let prompts = Prompts::different(PROMPTS);
    for (api, shape) in [
        ("openai", "--stream"),
        ("openai", "--no-stream"),
        ("openai-completions", "--stream"),
        ("openai-completions", "--no-stream"),
    ] {
        let before = (llama.prompt_tokens(), llama.generated_tokens());
        let words =
            format!("--api {api} {shape} -c 4 --ignore-eos --max-output-tokens {ANSWER_TOKENS}");
        let outcome = run(engine, &plain(&llama), &prompts, &words);
        outcome.expect_successes(PROMPTS as u64);
        expect_answers(&outcome, PROMPTS as u64);
        assert_eq!(llama.generated_tokens() - before.1, PROMPTS as u64 * ANSWER_TOKENS, "{words}");
        let prompt_tokens = outcome.figures("input_sequence_lengths").get("total");
        assert_eq!(prompt_tokens, (llama.prompt_tokens() - before.0) as f64, "{}", outcome.story());
        if shape == "--stream" {
            expect_order_of_times(&outcome);
        }
    }
}

/// Every answer has its full length and says that it ended there.
#[track_caller]
fn expect_answers(outcome: &Outcome, count: u64) {
    let summary = outcome.summary();
    assert_eq!(number(&summary["finish_reason_counts"]["length"]), count, "{}", outcome.story());
    let lengths = outcome.figures("output_sequence_lengths");
    assert_eq!(lengths.get("total"), (count * ANSWER_TOKENS) as f64, "{}", outcome.story());
    assert_eq!(lengths.get("min"), lengths.get("max"), "{}", outcome.story());
}

/// 0 < first token < whole answer; the gaps between chunks make up most of the rest.
#[track_caller]
fn expect_order_of_times(outcome: &Outcome) {
    let (ttft, latency) = (outcome.figures("ttft"), outcome.figures("latency"));
    assert!(ttft.get("min") > 0.0, "{}", outcome.story());
    assert!(ttft.get("avg") < latency.get("avg"), "{}", outcome.story());
    let gaps = outcome.figures("chunk_delta").get("total");
    assert!(gaps > 0.0, "{}", outcome.story());
    assert!(gaps <= latency.get("total"), "{}", outcome.story());
}

/// The 100th whole answer says `Connection: close`.
fn a_connection_closed_after_100_requests_costs_no_failure(engine: Engine) {
    let Some(llama) = Llama::start() else { return };
    let count = 2 * Llama::REQUESTS_OF_CONNECTION + 50;
    let prompts = Prompts::different(count as usize);
    let outcome = run(engine, &plain(&llama), &prompts, "-c 1 --no-stream --max-output-tokens 1");
    outcome.expect_successes(count);
    assert_eq!(outcome.counter("retries"), 0, "{}", outcome.story());
    assert_eq!(outcome.counter("connections_opened"), 3, "{}", outcome.story());
}

/// After a stream this server closes, though it has said `Keep-Alive: max=100`. The next request
/// may be on its way by then; it is sent again, and the server has not begun with it.
fn a_connection_closed_after_each_stream_without_a_word_costs_no_failure(engine: Engine) {
    let Some(llama) = Llama::start() else { return };
    let count = PROMPTS as u64;
    let prompts = Prompts::different(PROMPTS);
    let words = format!("-c 1 --ignore-eos --max-output-tokens {ANSWER_TOKENS}");
    let outcome = run(engine, &plain(&llama), &prompts, &words);
    outcome.expect_successes(count);
    assert_eq!(outcome.counter("connections_opened"), count, "{}", outcome.story());
    assert!(outcome.counter("retries") < count, "{}", outcome.story());
    assert_eq!(llama.generated_tokens(), count * ANSWER_TOKENS);
}

fn a_prompt_that_is_too_long_fails_with_the_servers_words(engine: Engine) {
    let Some(llama) = Llama::start() else { return };
    let long = "the river ".repeat(Llama::CONTEXT_TOKENS as usize);
    let prompts = Prompts::of((0..4).map(|i| format!("{i} {long}")));
    let outcome = run(engine, &plain(&llama), &prompts, "-c 2 --max-output-tokens 4");
    outcome.expect_failures("status", 4);
    assert_eq!(outcome.statuses()["400"], 4);
    let message = outcome.summary()["failures"]["status"]["first_message"].to_string();
    assert!(message.contains("exceeds the available context size"), "{message}");
    assert_eq!(llama.generated_tokens(), 0);
}

/// nginx in front: TLS, no buffering, and a connection closed after 100 requests on its side, too.
const FRONT: &str = "server {
    listen 127.0.0.1:PORT ssl backlog=512;
    ssl_certificate server.pem; ssl_certificate_key server.key;
    keepalive_requests 100;
    location = /stat { stub_status; }
    location / { proxy_pass http://127.0.0.1:BACKEND; proxy_buffering off; }
}";

/// A certificate for this host, and the authority that vouches for it.
struct Certificates {
    authority: String,
    server: String,
    server_key: String,
}

impl Certificates {
    fn new() -> Certificates {
        let mut authority = rcgen::CertificateParams::default();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertifiedIssuer::self_signed(authority, authority_key).unwrap();
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let server_key = rcgen::KeyPair::generate().unwrap();
        let server = rcgen::CertificateParams::new(names).unwrap();
        let server = server.signed_by(&server_key, &authority).unwrap();
        Certificates {
            authority: authority.pem(),
            server: server.pem(),
            server_key: server_key.serialize_pem(),
        }
    }
}

/// nginx before the server, with the file `authority.pem` beside its own.
fn start_front(llama: &Llama) -> Option<Nginx> {
    let certificates = Certificates::new();
    let server = FRONT.replace("BACKEND", &llama.port().to_string());
    Nginx::start(
        &server,
        &[
            ("authority.pem", &certificates.authority),
            ("server.pem", &certificates.server),
            ("server.key", &certificates.server_key),
        ],
    )
}

fn a_stream_through_tls_is_read_to_its_last_token(engine: Engine) {
    let Some(llama) = Llama::start() else { return };
    let Some(nginx) = start_front(&llama) else { return };
    let count = 250;
    let prompts = Prompts::different(count as usize);
    let url = format!("https://127.0.0.1:{}/v1", nginx.port());
    let authority = nginx.path("authority.pem");
    let words = format!(
        "-c 1 --ignore-eos --max-output-tokens {ANSWER_TOKENS} --cacert {}",
        authority.display()
    );
    let outcome = run(engine, &url, &prompts, &words);
    outcome.expect_successes(count);
    expect_answers(&outcome, count);
    expect_order_of_times(&outcome);
    assert_eq!(llama.generated_tokens(), count * ANSWER_TOKENS);
    // A handshake for each connection, and nginx ends one after 100 requests.
    assert_eq!(outcome.counter("connections_opened"), 3, "{}", outcome.story());
    assert!(outcome.figures("tls").get("min") > 0.0, "{}", outcome.story());
}

fn a_certificate_nobody_vouches_for_is_refused(engine: Engine) {
    let Some(llama) = Llama::start() else { return };
    let Some(nginx) = start_front(&llama) else { return };
    let prompts = Prompts::different(2);
    let url = format!("https://127.0.0.1:{}/v1", nginx.port());
    let outcome = run(engine, &url, &prompts, "-c 1 --max-output-tokens 1");
    assert_ne!(outcome.code(), Some(0), "{}", outcome.story());
    let said = outcome.stdout.to_lowercase() + &outcome.stderr.to_lowercase();
    assert!(said.contains("certificate"), "{}", outcome.story());
    assert_eq!(llama.generated_tokens(), 0);
}
