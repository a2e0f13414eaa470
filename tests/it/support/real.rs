//! Real servers, started for one test and stopped when dropped. Where one is not installed its
//! start gives `None` and the reason is said; with [`REQUIRE_REAL_SERVERS`] set, that is a failure.
//!
//! [`REQUIRE_REAL_SERVERS`]: super::REQUIRE_REAL_SERVERS

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::server::refused_port;
use super::temp::TempDir;
use super::{await_condition, skip_without_server};

/// Free ports that are tried: another process may take one before the server does.
const PORT_TRIES: usize = 5;

/// One process that listens on a port of 127.0.0.1.
#[derive(Debug)]
struct Process {
    child: Child,
    port: u16,
}

impl Process {
    /// Starts a server on a free port, as `start(port)` does.
    fn start(name: &str, mut start: impl FnMut(u16) -> Child) -> Process {
        (0..PORT_TRIES)
            .find_map(|_| {
                let port = refused_port();
                let mut process = Process { child: start(port), port };
                let mut is_up = false;
                await_condition(&format!("{name} listens or ends"), || {
                    is_up = TcpStream::connect(("127.0.0.1", port)).is_ok();
                    is_up || process.child.try_wait().unwrap().is_some()
                });
                is_up.then_some(process)
            })
            .unwrap_or_else(|| panic!("{name} does not start"))
    }

    /// The whole answer to one request on a connection of its own.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // None of them has children of its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// nginx, one process without workers.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    folder: TempDir,
}

impl Nginx {
    /// With this `server { .. }`, in which `PORT` stands for the port, and files beside it.
    pub fn start(server: &str, files: &[(&str, &str)]) -> Option<Nginx> {
        if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
            skip_without_server("nginx is not installed");
            return None;
        }
        let folder = TempDir::new();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let process = Process::start("nginx", |port| {
            let text = configuration(&server.replace("PORT", &port.to_string()));
            fs::write(folder.join("nginx.conf"), text).unwrap();
            Command::new("nginx")
                .arg("-p")
                .arg(folder.path())
                .args(["-c", "nginx.conf", "-e", "error.log"])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        Some(Nginx { process, folder })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.process.port
    }

    /// One of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Requests that nginx has counted since its start, this question included. The server has
    /// `location = /stat { stub_status; }`.
    pub fn requests(&self) -> u64 {
        let answer = self.process.ask("GET", "/stat", "");
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

fn configuration(server: &str) -> String {
    format!(
        "master_process off; daemon off; pid nginx.pid; error_log error.log;
         events {{ worker_connections 512; }}
         http {{
           access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
           client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
           uwsgi_temp_path uwsgi; scgi_temp_path scgi;
           {server}
         }}"
    )
}

/// llama.cpp's server with a tiny model of random weights, called `tiny`. `.ci/run` makes both; see
/// `tests/real/`.
#[derive(Debug)]
pub struct Llama {
    process: Process,
}

impl Llama {
    /// Whole answers on one connection before the server closes it. A stream is always the last.
    pub const REQUESTS_OF_CONNECTION: u64 = 100;
    /// Tokens of a request, prompt and answer together.
    pub const CONTEXT_TOKENS: u64 = 2048;

    /// A new one, whose caches are empty.
    pub fn start() -> Option<Llama> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("target/real-servers/venv/bin/python");
        let model = root.join("target/real-servers/tiny.gguf");
        if !python.exists() || !model.exists() {
            skip_without_server("llama.cpp's server is not in target/real-servers");
            return None;
        }
        let process = Process::start("llama.cpp's server", |port| {
            Command::new(&python)
                .arg(root.join("tests/real/serve.py"))
                .args([model.as_os_str(), port.to_string().as_ref()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        // It listens before the model is there, and answers 503 until then.
        await_condition("the model is loaded", || {
            process.ask("GET", "/health", "").starts_with("HTTP/1.1 200 ")
        });
        Some(Llama { process })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.process.port
    }

    /// The answer to this body as a request for a chat, head and all.
    pub fn chat(&self, body: &str) -> String {
        self.process.ask("POST", "/v1/chat/completions", body)
    }

    /// Tokens that it has generated since its start, by its own count.
    pub fn generated_tokens(&self) -> u64 {
        self.metric("llamacpp:tokens_predicted_total")
    }

    /// Prompt tokens since its start, by its own count: computed, and from its cache.
    pub fn prompt_tokens(&self) -> u64 {
        self.metric("llamacpp:prompt_tokens_total") + self.cached_tokens()
    }

    /// Of these, the ones from its cache.
    pub fn cached_tokens(&self) -> u64 {
        self.metric("llamacpp:prompt_tokens_cached_total")
    }

    fn metric(&self, name: &str) -> u64 {
        let page = self.process.ask("GET", "/metrics", "");
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {page}"))
    }
}
