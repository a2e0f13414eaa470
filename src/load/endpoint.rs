//! The endpoint of our own: embedded in a load without a URL, or alone as `serve`.

use loadgen_bench::{Endpoint, EndpointConfig, InferenceCounts};
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::sys::limits;

use super::signals::Signals;
use crate::cli::Serve;
use crate::config::{Config, ServeConfig};
use crate::cores::Host;
use crate::display;
use crate::error::Error;
use crate::plan;
use crate::stream;

/// The endpoint of a load without a URL; `None` if it has one.
pub fn start_embedded(config: &Config, host: &Host) -> Result<Option<Endpoint>, Error> {
    let Some(cores) = plan::embedded(config, host)? else { return Ok(None) };
    // It sleeps unless it has a core of its own.
    let spin = !cores.is_shared && host.quota.is_none();
    start_endpoint(&ServeConfig::embedded(config), cores.cores, spin).map(Some)
}

fn start_endpoint(serve: &ServeConfig, cores: Vec<usize>, spin: bool) -> Result<Endpoint, Error> {
    let config = EndpointConfig {
        cores,
        address: serve.listen,
        body_bytes: serve.body_bytes,
        delay_ns: serve.delay_ns,
        spin,
        engine: serve.common.engine,
        connections: ENDPOINT_CONNECTIONS,
        inference: serve.inference.clone(),
    };
    Endpoint::start(&config).map_err(Error::setup)
}

/// `serve`: the embedded endpoint alone, until a signal.
pub fn serve(serve: Serve) -> Result<u8, Error> {
    let config = ServeConfig::from_cli(serve)?;
    let host = Host::read()?;
    let signals = Signals::install()?;
    let cores = plan::serve_cores(&config, &host)?;
    let threads = cores.len() as u64;
    // Each connection is a descriptor; the hard limit is as many as there can be.
    let _ = limits::raise_nofile(limits::nofile().hard.min(NOFILE_MAX));
    let mut endpoint = start_endpoint(&config, cores, config.common.spin)?;
    let engine = endpoint.engine();
    if !engine.reason.is_empty() && config.common.engine == EngineChoice::Auto {
        stream::err(format_args!("using epoll: {}", engine.reason));
    }
    let _ = stream::out(&format!(
        "serving http://{}/ on {} with {}, bodies of {} bytes; Ctrl-C ends it\n",
        endpoint.address(),
        display::counted(threads, "core"),
        engine.name,
        config.body_bytes
    ));
    if let Some(inference) = &config.inference {
        let address = endpoint.address();
        let profile = inference.profile.name();
        let _ = stream::out(&format!("inference at http://{address}/v1 as {profile}\n"));
    }
    signals.wait();
    let requests = endpoint.requests();
    endpoint.stop();
    let counts = endpoint.inference_counts();
    let _ = stream::out(&format!("{} requests served\n", display::grouped(requests)));
    if counts.requests > 0 {
        let _ = stream::out(&told(&counts));
    }
    Ok(0)
}

/// What the inference paths have done, in a line.
fn told(counts: &InferenceCounts) -> String {
    let grouped = display::grouped;
    format!(
        "inference: {} requests, {} refused, {} failed, {} errors in a 200, {} truncated, {} \
         stalled; {} output tokens in {} chunks\n",
        grouped(counts.requests),
        grouped(counts.refused),
        grouped(counts.failed),
        grouped(counts.errors_in_stream),
        grouped(counts.truncated),
        grouped(counts.stalled),
        grouped(counts.output_tokens),
        grouped(counts.chunks)
    )
}

/// Connections that each thread of the endpoint has room for.
const ENDPOINT_CONNECTIONS: u32 = 16_384;
/// Descriptors that `serve` asks for at most.
const NOFILE_MAX: u64 = 1 << 20;
