//! A real server: nginx, which counts its requests itself. Skipped with a reason where it is not
//! installed; where LOADGEN_REQUIRE_REAL_SERVERS is set (`.ci/run`), that is a failure.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::support::run::Run;
use crate::support::server::refused_port;
use crate::support::temp::TempDir;
use crate::support::{Engine, await_condition, on_both_engines, skip_without_server};

on_both_engines!(
    nginx_saw_what_we_report,
    nginx_closing_connections_costs_no_failure,
    nginx_failing_is_counted_by_status,
);

/// One nginx process; stopped when dropped.
pub struct Nginx {
    child: Child,
    port: u16,
    tls_port: u16,
    folder: TempDir,
}

impl Nginx {
    /// `None`, and the reason said, where nginx is absent.
    pub fn start() -> Option<Nginx> {
        if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
            skip_without_server("nginx is not installed");
            return None;
        }
        // Another process may take a free port before nginx does; then the next one is tried.
        (0..5)
            .find_map(|_| Nginx::start_on(refused_port(), refused_port()))
            .or_else(|| panic!("nginx does not start"))
    }

    fn start_on(port: u16, tls_port: u16) -> Option<Nginx> {
        let folder = TempDir::new();
        fs::write(folder.join("nginx.conf"), configuration(port, tls_port)).unwrap();
        write_certificates(&folder);
        let child = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut nginx = Nginx { child, port, tls_port, folder };
        let mut is_up = false;
        await_condition("nginx answers or ends", || {
            is_up = TcpStream::connect(("127.0.0.1", port)).is_ok();
            is_up || nginx.child.try_wait().unwrap().is_some()
        });
        is_up.then_some(nginx)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// The same over TLS.
    pub fn tls_url(&self, path: &str) -> String {
        format!("https://localhost:{}/{path}", self.tls_port)
    }

    /// Whom to trust for it, PEM.
    pub fn cacert(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Requests that nginx has counted since its start, this question included.
    fn requests(&self) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET /stat HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // "server accepts handled requests", and the three numbers on the next line.
        let numbers = answer.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1);
        let last = numbers.and_then(|line| line.split_whitespace().next_back());
        last.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// How many requests nginx saw while something ran.
    pub fn requests_during<T>(&self, run: impl FnOnce() -> T) -> (u64, T) {
        let before = self.requests();
        let result = run();
        (self.requests() - before - 1, result)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // One process without workers: nothing outlives it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An authority and what it has signed for `localhost`.
fn write_certificates(folder: &TempDir) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the authority of this test");
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("cert.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

fn configuration(port: u16, tls_port: u16) -> String {
    format!(
        "master_process off; daemon off; pid nginx.pid; error_log error.log;
         events {{ worker_connections 512; }}
         http {{
           access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
           client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
           uwsgi_temp_path uwsgi; scgi_temp_path scgi;
           server {{
             listen 127.0.0.1:{port} backlog=512;
             listen 127.0.0.1:{tls_port} ssl backlog=512;
             ssl_certificate cert.pem; ssl_certificate_key key.pem;
             client_max_body_size 8m;
             location = /plain {{ return 200 'a small static body'; }}
             location = /closing {{ keepalive_requests 10; return 200 'bye soon'; }}
             location = /busy {{ return 503 'try later'; }}
             location = /stat {{ stub_status; }}
           }}
         }}"
    )
}

/// Negative control of the counter that the tests below believe.
#[test]
fn nginx_counts_its_requests() {
    let Some(nginx) = Nginx::start() else { return };
    assert_eq!(nginx.requests_during(|| ()).0, 0);
    let (seen, ()) = nginx.requests_during(|| assert!(nginx.requests() > 0));
    assert_eq!(seen, 1);
}

fn nginx_saw_what_we_report(engine: Engine) {
    let Some(nginx) = Nginx::start() else { return };
    let url = nginx.url("plain");
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -n 3000 -c 16")).finish());
    outcome.expect_successes(3000);
    assert_eq!(seen, 3000, "{}", outcome.story());
    assert_eq!(outcome.counter("connections_opened"), 16);
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -d 500ms -c 16")).finish());
    let completed = outcome.counter("total_samples_completed");
    outcome.expect_successes(completed);
    assert_eq!(seen, completed, "drained: {}", outcome.story());
}

/// Every tenth answer says `Connection: close`; the body has a known length, so nothing fails.
fn nginx_closing_connections_costs_no_failure(engine: Engine) {
    let Some(nginx) = Nginx::start() else { return };
    let url = nginx.url("closing");
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -n 500 -c 4")).finish());
    outcome.expect_successes(500);
    assert_eq!(seen, 500 + outcome.counter("retries"));
    let opened = outcome.counter("connections_opened");
    assert!(opened >= 50, "10 requests a connection, {opened} connections");
}

fn nginx_failing_is_counted_by_status(engine: Engine) {
    let Some(nginx) = Nginx::start() else { return };
    let url = nginx.url("busy");
    let (seen, outcome) =
        nginx.requests_during(|| Run::on(engine).words(&format!("{url} -n 100 -c 4")).finish());
    outcome.expect_failures("status", 100);
    assert_eq!(outcome.statuses()["503"], 100);
    assert_eq!(seen, 100);
}
