//! One minimal client on five engines: N keep-alive connections, one request in flight on each, one
//! thread. Parser, histogram and clock are the same for all, so what differs is the engine.
//!
//! It is a measuring instrument for `perf/`, not a product: no timeouts, no retries. A connection
//! that meets a fault is counted and given up, and the study throws such a run away.

mod client;
mod epoll;
mod glommio_engine;
mod http;
mod monoio_engine;
mod tokio_engine;
mod uring;

use client::{Job, Tally};
use std::process::ExitCode;

const USAGE: &str = "usage: engines ENGINE [-c CONNECTIONS] [-d SECONDS] [-p PORT] [-r plain|chat]\n\
    ENGINE: uring, epoll, tokio, monoio, glommio; the endpoint is http://127.0.0.1:PORT/, or with\n\
    -r chat a stream of /v1/chat/completions there";

/// Seconds after the end of a run at which a client that still waits for an answer is killed.
const GRACE_S: u32 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((engine, job)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // SAFETY: alarm touches no memory; its signal ends the process, which is what we want of it.
    unsafe { libc::alarm(job.seconds + GRACE_S) };
    match run(engine, &job) {
        Ok(tally) => {
            println!("{}", tally.json(engine));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("engines: {engine}: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(engine: &str, job: &Job) -> std::io::Result<Tally> {
    match engine {
        "uring" => uring::run(job),
        "epoll" => epoll::run(job),
        "tokio" => tokio_engine::run(job),
        "monoio" => monoio_engine::run(job),
        "glommio" => glommio_engine::run(job),
        _ => Err(std::io::Error::other("no such engine")),
    }
}

fn parse(arguments: &[String]) -> Option<(&str, Job)> {
    let (engine, flags) = arguments.split_first()?;
    let mut job = Job { connections: 64, seconds: 5, port: 9472, is_chat: false };
    for pair in flags.chunks(2) {
        let [flag, value] = pair else { return None };
        match flag.as_str() {
            "-c" => job.connections = value.parse().ok().filter(|&n| n > 0)?,
            "-d" => job.seconds = value.parse().ok().filter(|&n| n > 0)?,
            "-p" => job.port = value.parse().ok()?,
            "-r" => job.is_chat = is_chat(value)?,
            _ => return None,
        }
    }
    Some((engine, job))
}

fn is_chat(request: &str) -> Option<bool> {
    match request {
        "plain" => Some(false),
        "chat" => Some(true),
        _ => None,
    }
}
