//! The flags as clap reads them: text, no default filled in.

use std::path::PathBuf;

use clap::Args;

use super::inference::{InferenceFlags, TlsFlags};
use super::serve::ServeInferenceFlags;
use super::{LoadCommand, help};

/// Flags of every command; they work before and after it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global flags")]
pub struct Common {
    /// Run one shard on each of these cores: 0-15 or 0,2,4 [default: allowed cores within the CPU
    /// quota; half of them when the target is this host]
    #[arg(long, global = true, value_name = "LIST")]
    pub cores: Option<String>,
    /// Run N shards, on the first N allowed cores
    #[arg(short = 't', long, global = true, value_name = "N")]
    pub threads: Option<String>,
    /// I/O back end: auto, uring or epoll [default: auto]
    #[arg(long, global = true, value_name = "NAME")]
    pub engine: Option<String>,
    /// Shards never sleep: lowest latency, whole cores; with a rate it is --timer inline
    #[arg(long, global = true)]
    pub spin: bool,
    /// Print the result as JSON on stdout, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no live view and no report
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Live view on stderr: auto, plain or none [default: auto, which is plain on a terminal]
    #[arg(long, global = true, value_name = "KIND")]
    pub ui: Option<String>,
    /// Where files go, or none.
    #[arg(long, global = true, value_name = "DIR")]
    #[arg(help = "Where files go, or none [default: results/<UTC time>-<command>]")]
    pub report_dir: Option<PathBuf>,
    /// Seed of everything random [default: 42]
    #[arg(long, global = true, value_name = "N")]
    pub seed: Option<String>,
    /// A FAIL of the trust block does not change the exit code
    #[arg(long, global = true)]
    pub allow_untrusted: bool,
}

/// Flags of the load commands.
#[derive(Args, Clone, Debug, Default)]
pub struct LoadFlags {
    /// What is loaded; none: the embedded endpoint.
    #[arg(value_name = "URL", help = help::URL)]
    pub urls: Vec<String>,

    /// Requests a second over all shards together: 500, 0.5, 90/m, 10k
    #[arg(short = 'R', long, value_name = "RATE", help_heading = "Rate")]
    #[arg(aliases = ["request-rate", "target-qps", "qps"])]
    pub rate: Option<String>,
    /// Shape of the gaps: below 1 in bursts, 1 = poisson, inf = constant [default: 1]
    #[arg(long, value_name = "SHAPE", help_heading = "Rate")]
    pub burstiness: Option<String>,
    /// Move each instant by up to this share of the gap, 0% to 50% [default: 0%]
    #[arg(long, value_name = "SHARE", help_heading = "Rate")]
    pub jitter: Option<String>,
    /// Reach -R by a linear or exponential ramp
    #[arg(long, value_name = "KIND", help_heading = "Rate")]
    pub ramp: Option<String>,
    /// Rate at the start of the ramp
    #[arg(long, value_name = "RATE", help_heading = "Rate")]
    pub ramp_from: Option<String>,
    /// Length of the ramp
    #[arg(long, value_name = "TIME", help_heading = "Rate")]
    pub ramp_time: Option<String>,
    /// In place of -R: a rate that changes linearly between the lines `TIME RATE` of a file
    #[arg(long, value_name = "FILE", help_heading = "Rate")]
    pub rate_series: Option<PathBuf>,

    /// `-c`.
    #[arg(short, long, alias = "concurrency", value_name = "N", help_heading = "Load")]
    #[arg(help = help::CONNECTIONS)]
    pub connections: Option<String>,
    /// Most connections over all shards together [default: 1024 per shard]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub max_connections: Option<String>,
    /// What a request does for which no connection is free: queue or drop [default: queue]
    #[arg(long, value_name = "KIND", help_heading = "Load")]
    pub overload: Option<String>,
    /// Untracked phase before: a time with its unit (2s) or a number of requests (500)
    #[arg(long, value_name = "TIME|N", help_heading = "Load")]
    pub warmup: Option<String>,
    /// Which URL or prompt follows which: shuffle, sequential, random or single=I [default:
    /// shuffle]
    #[arg(long, value_name = "ORDER", help_heading = "Load")]
    pub order: Option<String>,
    /// Seed of the order [default: that of --seed]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub order_seed: Option<String>,

    /// Stop after this time; auto: when --precision is reached [default: 10s if -n is not given]
    #[arg(short, long, short_alias = 'z', value_name = "TIME", help_heading = "End")]
    pub duration: Option<String>,
    /// Stop after this many requests
    #[arg(short = 'n', long, value_name = "N", help_heading = "End")]
    #[arg(aliases = ["num-prompts", "num-samples"])]
    pub requests: Option<String>,
    /// With -d auto: run until this percentile is known so well, as in p99:5%
    #[arg(long, value_name = "PNN:SHARE", help_heading = "End")]
    pub precision: Option<String>,
    /// With -d auto: stop after this time at the latest [default: 15m]
    #[arg(long, value_name = "TIME", help_heading = "End")]
    pub budget: Option<String>,
    /// Run N times, with new connections and seeds [default: 1]
    #[arg(long, value_name = "N", help_heading = "End")]
    pub repeats: Option<String>,

    /// What must hold in the end, as in p99:50ms or 'achieved>=0.99*target'; repeatable; missed =
    /// exit code 4
    #[arg(long, value_name = "EXPR", help_heading = "Goals")]
    pub slo: Vec<String>,
    /// What must not be true in the end, as in 'failed>0.1%'; repeatable; true = exit code 4
    #[arg(long, value_name = "EXPR", help_heading = "Goals")]
    pub fail_if: Vec<String>,
    /// Abort when this becomes true, as in 'failed>1%' or 'p99>2s'; repeatable [default: every
    /// request failed for 2 s]
    #[arg(long, value_name = "EXPR", help_heading = "Goals")]
    pub abort_if: Vec<String>,
    /// Count the requests that keep all of these, as in 'latency:50ms ttfb:5ms'
    #[arg(long, value_name = "LIST", help_heading = "Goals")]
    pub goodput: Option<String>,

    /// Who watches the schedule: auto, dedicated, inline, hybrid or sleep [default: auto]
    #[arg(long, value_name = "KIND", help_heading = "Instrument")]
    pub timer: Option<String>,
    /// The core of the dedicated timer; none of the shards'
    #[arg(long, value_name = "CORE", help_heading = "Instrument")]
    pub timer_core: Option<String>,
    /// First 1 s against the embedded endpoint on the same cores: this host's own floor
    #[arg(long, help_heading = "Instrument")]
    pub floor: bool,
    /// Kernel stamps beside ours for one request of K
    #[arg(long, value_name = "1/K", help_heading = "Instrument")]
    pub wire_stamps: Option<String>,

    /// Method [default: GET; POST when there is a body]
    #[arg(short, long, short_alias = 'X', value_name = "METHOD", help_heading = "Request")]
    pub method: Option<String>,
    /// Header 'Name: value'; repeatable; replaces ours of that name
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = "Request")]
    pub header: Vec<String>,
    /// Body
    #[arg(short, long, value_name = "TEXT", help_heading = "Request")]
    pub body: Option<String>,
    /// Body from a file
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub body_file: Option<PathBuf>,
    /// Content-Type of the body [default: application/json]
    #[arg(short = 'T', long, value_name = "TYPE", help_heading = "Request")]
    pub content_type: Option<String>,
    /// Basic authentication
    #[arg(short = 'a', long, value_name = "USER:PASS", help_heading = "Request")]
    pub auth: Option<String>,
    /// Statuses that count as success: 200-399, or one such as 404 [default: 200-299]
    #[arg(long, value_name = "RANGE", help_heading = "Request")]
    pub accept_status: Option<String>,

    /// What is asked of an inference endpoint.
    #[command(flatten)]
    pub inference: InferenceFlags,
    /// For https.
    #[command(flatten)]
    pub tls: TlsFlags,

    /// Connect to ADDR:PORT for URLs with HOST:PORT (an empty HOST or PORT matches any); repeatable
    #[arg(long, value_name = "HOST:PORT:ADDR:PORT", help_heading = "Connection")]
    pub connect_to: Vec<String>,
    /// Connect to this unix socket, whatever the host in the URL
    #[arg(long, value_name = "PATH", help_heading = "Connection")]
    pub unix_socket: Option<PathBuf>,
    /// Local address to connect from
    #[arg(long, value_name = "ADDR", help_heading = "Connection")]
    pub source_ip: Option<String>,
    /// A new connection for each request
    #[arg(long, help_heading = "Connection")]
    pub disable_keepalive: bool,

    /// Longest time from a request's send to the end of its response; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub timeout: Option<String>,
    /// Longest time to open a connection; 0 = off [default: 5s]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub connect_timeout: Option<String>,
    /// Longest time from a request's send to the first token of its answer, of plain HTTP to the
    /// first byte of the response; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub ttft_timeout: Option<String>,
    /// Longest silence within a response; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub idle_timeout: Option<String>,
    /// Longest wait for the last answers of a phase; 0 = do not wait [default: 30s, in an inference
    /// run 240s]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub drain_timeout: Option<String>,
    /// Longest time for the whole run, then everything in flight is cancelled; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub run_timeout: Option<String>,
    /// End the run when everything in flight is silent for so long; 0 = off [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Timeouts")]
    pub response_idle_timeout: Option<String>,

    /// One line on screen, and one rewritten snapshot file, each interval [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Output")]
    pub interval: Option<String>,
    /// A line for each request in requests.jsonl
    #[arg(long, help_heading = "Output")]
    pub records: bool,
    /// The same with prompt, answer and the instants of its chunks
    #[arg(long, help_heading = "Output")]
    pub records_full: bool,
    /// Accepted without effect: percentiles are always printed
    #[arg(short = 'L', long, hide = true)]
    pub latency: bool,
    /// Accepted without effect: the latency of an open loop is always that from the schedule
    #[arg(long, hide = true)]
    pub latency_correction: bool,
}

/// Flags of `serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeFlags {
    /// Address and port; other hosts reach it only if you say so, as in 0.0.0.0:8080 [default:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Bytes of each response body [default: 100]
    #[arg(long, value_name = "SIZE")]
    pub body_bytes: Option<String>,
    /// Time between a request and its response [default: 0]
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// Of the inference paths.
    #[command(flatten)]
    pub inference: ServeInferenceFlags,
}

/// Flags of `probe`.
#[derive(Args, Clone, Debug, Default)]
pub struct ProbeFlags {
    /// What is asked.
    #[arg(value_name = "URL", help = help::URL_PROBE)]
    pub url: String,
    /// Kind of endpoint: openai, openai-completions, openai-embeddings or sglang [default: by the
    /// URL, else openai]
    #[arg(long, value_name = "TYPE")]
    pub api: Option<String>,
    /// Model [default: the first of /v1/models]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// File with the key, as @FILE; never printed [default: $OPENAI_API_KEY]
    #[arg(long, value_name = "@FILE")]
    pub api_key: Option<String>,
    /// Header 'Name: value'; repeatable
    #[arg(short = 'H', long, value_name = "HEADER")]
    pub header: Vec<String>,
    /// Longest time of each request [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Connect to ADDR:PORT for URLs with HOST:PORT; repeatable
    #[arg(long, value_name = "HOST:PORT:ADDR:PORT")]
    pub connect_to: Vec<String>,
    /// Connect to this unix socket, whatever the host in the URL
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// For https.
    #[command(flatten)]
    pub tls: TlsFlags,
}

/// The name of a flag as typed, from clap's name of it.
pub fn long(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

/// Flags that only some of the load commands have, by clap's names.
pub const OWN_FLAGS: [(&str, &[LoadCommand]); 12] = [
    ("rate", &LoadCommand::OPEN_LOOP),
    ("burstiness", &[LoadCommand::Gamma]),
    ("jitter", &[LoadCommand::Constant]),
    ("ramp", &LoadCommand::OPEN_LOOP),
    ("ramp_from", &LoadCommand::OPEN_LOOP),
    ("ramp_time", &LoadCommand::OPEN_LOOP),
    ("rate_series", &LoadCommand::OPEN_LOOP),
    ("max_connections", &LoadCommand::OPEN_LOOP),
    ("overload", &LoadCommand::OPEN_LOOP),
    ("timer", &LoadCommand::OPEN_LOOP),
    ("timer_core", &LoadCommand::OPEN_LOOP),
    ("latency_correction", &LoadCommand::OPEN_LOOP),
];

/// Flags of `compare`.
#[derive(Args, Clone, Debug, Default)]
pub struct CompareFlags {
    /// Two or more; the first is the baseline.
    #[arg(value_name = "ARM", help = help::ARM)]
    pub arms: Vec<String>,
    /// Exit with 4 when this is true of a later arm, as in 'p99>+10%' (against the baseline) or
    /// 'p99>50ms'; repeatable
    #[arg(long, value_name = "EXPR")]
    pub fail_if: Vec<String>,
    /// Print a markdown table
    #[arg(long)]
    pub md: bool,
    /// Write the outcome of each --fail-if as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}
