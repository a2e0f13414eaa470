//! Load generator for HTTP and LLM inference endpoints: io_uring, one shard per core, and numbers
//! that say whether to believe them.
//!
//! ```text
//! argv ─▶ cli ─▶ config ─▶ plan ─▶ load ─▶ session ═▶ shards
//!                                   │ ◀── snapshot ◀──┘
//!                                   └─▶ report, display, progress, files
//! ```
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod ab;
#[cfg(target_os = "linux")]
mod api;
#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod config;
#[cfg(target_os = "linux")]
mod cores;
#[cfg(target_os = "linux")]
mod courtesy;
#[cfg(target_os = "linux")]
mod dataset;
#[cfg(target_os = "linux")]
mod display;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod expression;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
#[cfg_attr(not(test), expect(dead_code, reason = "the report directory does not have them yet"))]
mod hdr;
#[cfg(target_os = "linux")]
mod intervals;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod number;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod progress;
#[cfg(target_os = "linux")]
mod records;
mod report;
#[cfg(target_os = "linux")]
mod request;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod side;
#[cfg(target_os = "linux")]
mod snapshot;
#[cfg(target_os = "linux")]
#[cfg_attr(not(test), expect(dead_code, reason = "ab and -d auto come to call the rest"))]
mod statistics;
#[cfg(target_os = "linux")]
mod stream;
#[cfg(target_os = "linux")]
mod tokenizer;
#[cfg(target_os = "linux")]
mod trust;

use std::process::ExitCode;

/// Elsewhere than Linux every command says what it needs.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!(
        "loadgen-uring needs Linux, as its engine is io_uring; in a container: \
         docker run --rm -it -v \"$PWD\":/src -w /src --security-opt seccomp=unconfined rust:1 \
         cargo run --release -- max-throughput"
    );
    ExitCode::from(3)
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    // First of all, so that the 20 ms of the clock's calibration run while everything else starts.
    let calibrator = loadgen_shards::clock::Calibrator::begin();
    load::install_panic_hook();
    let outcome = match cli::parse(std::env::args_os().skip(1)) {
        Ok(cli::Parsed::Text(text)) => told(&text).map(|()| 0),
        Ok(cli::Parsed::Doctor(common)) => examine(common),
        Ok(cli::Parsed::Compare(typed)) => compare::run(&typed),
        Ok(cli::Parsed::Probe(probe)) => probe::run(*probe),
        Ok(cli::Parsed::Serve(serve)) => load::serve(*serve),
        Ok(cli::Parsed::Load(load)) => load::run(*load, calibrator),
        Ok(cli::Parsed::Ab(load)) => ab::run(*load, calibrator),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            stream::err(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(target_os = "linux")]
fn examine(common: cli::Common) -> Result<u8, error::Error> {
    let (text, outcome) = doctor::run(&config::CommonConfig::from_cli(common)?);
    told(&text)?;
    outcome.map(|()| 0)
}

#[cfg(target_os = "linux")]
fn told(text: &str) -> Result<(), error::Error> {
    stream::out(text)
        .map_err(|error| error::Error::setup(format!("cannot write to stdout: {error}")))
}
