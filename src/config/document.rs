//! `config.yaml`: the configuration in the schema of MLCommons `endpoints`, with our keys where
//! that is silent.
//!
//! Written from the plan's copy of the configuration, in which defaults that depend on the host
//! (cores, connections, report directory) are filled in. Secrets are masked; they have to be given
//! again to repeat the run.

mod inference;

use std::borrow::Cow;
use std::path::PathBuf;

use loadgen_shards::order::Order;
use loadgen_shards::phase::Overload;
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::schedule::Process;
use loadgen_shards::tls::TlsOptions;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::inference::{Inference, Prompts};
use super::{Arrivals, Config, ConnectTo, Precision, RateShape, ReportDir, Ui, Warmup, unit};
use crate::api::Api;
use crate::cli::LoadCommand;
use crate::cores::{CoreRequest, TimerRequest, list_text};
use crate::expression::{Expression, RequestGoal};
use crate::request::Header;
use crate::request::url::{REDACTED, Url};

/// The text of `config.yaml`.
pub fn to_yaml(config: &Config) -> String {
    serde_saphyr::to_string(config).expect("text, numbers and lists have a YAML form")
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document::of(self).serialize(serializer)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    name: &'static str,
    version: &'static str,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_params: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    datasets: Vec<Value>,
    settings: Settings,
    endpoint_config: EndpointConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    inference: Option<Value>,
    phases: Vec<PhaseEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<usize>,
    engine: &'static str,
    spin: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer_core: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overload: Option<&'static str>,
    order: String,
    order_seed: u64,
    repeats: u32,
    request: RequestEntry<'a>,
    transport: Transport,
    timeouts: TimeoutEntry,
    slo: Vec<&'a str>,
    fail_if: Vec<&'a str>,
    abort_if: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput: Option<String>,
    floor: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire_stamps: Option<String>,
    interval: String,
    records: &'static str,
    ui: &'static str,
    json: bool,
    quiet: bool,
    allow_untrusted: bool,
}

#[derive(Serialize)]
struct Settings {
    runtime: Runtime,
    load_pattern: LoadPattern,
}

#[derive(Serialize)]
struct Runtime {
    scheduler_random_seed: u64,
}

#[derive(Clone, Default, Serialize)]
struct LoadPattern {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_qps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burstiness: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ramp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ramp_from: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ramp_time: Option<String>,
    /// Points as in the lines of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rate_series: Vec<String>,
}

#[derive(Serialize)]
struct EndpointConfig {
    /// Empty: the embedded endpoint.
    endpoints: Vec<String>,
    api_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key: Option<&'static str>,
}

#[derive(Serialize)]
struct PhaseEntry {
    name: &'static str,
    r#type: &'static str,
    load_pattern: LoadPattern,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<u64>,
    drain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain_timeout: Option<String>,
}

#[derive(Serialize)]
struct RequestEntry<'a> {
    method: &'a str,
    headers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<&'static str>,
    accept_status: String,
}

#[derive(Serialize)]
struct Transport {
    connect_to: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unix_socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_ip: Option<String>,
    keepalive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<Value>,
}

#[derive(Serialize)]
struct TimeoutEntry {
    request: String,
    connect: String,
    ttft: String,
    idle: String,
    run: String,
    response_idle: String,
}

impl Document<'_> {
    fn of(config: &Config) -> Document<'_> {
        let common = &config.common;
        let load_pattern = pattern(config);
        let open_loop = config.arrivals.as_ref();
        Document {
            name: config.command.name(),
            version: "1.0",
            // The names of `endpoints` for a run as fast as it goes, and for one under a set load.
            r#type: match config.command {
                LoadCommand::MaxThroughput => "offline",
                LoadCommand::Concurrency
                | LoadCommand::Poisson
                | LoadCommand::Constant
                | LoadCommand::Gamma => "online",
            },
            settings: Settings {
                runtime: Runtime { scheduler_random_seed: common.seed },
                load_pattern: load_pattern.clone(),
            },
            endpoint_config: EndpointConfig {
                endpoints: config.urls.iter().map(Url::redacted).collect(),
                api_type: config.inference.as_ref().map_or("raw", |run| run.api.name()),
                api_key: config.request.api_key.as_ref().map(|_| REDACTED),
            },
            model_params: config.inference.as_ref().map(inference::model_params),
            datasets: inference::datasets(config),
            inference: config.inference.as_ref().map(inference::reading),
            phases: phases(config, &load_pattern),
            report_dir: match &common.report_dir {
                ReportDir::Default => None,
                ReportDir::Path(path) => Some(path.to_string_lossy().into_owned()),
                ReportDir::None => Some("none".into()),
            },
            cores: match &common.cores {
                CoreRequest::List(list) => Some(list_text(list)),
                CoreRequest::Default | CoreRequest::Count(_) => None,
            },
            shards: match common.cores {
                CoreRequest::Count(count) => Some(count),
                CoreRequest::Default | CoreRequest::List(_) => None,
            },
            engine: match common.engine {
                EngineChoice::Auto => "auto",
                EngineChoice::Uring => "uring",
                EngineChoice::Epoll => "epoll",
            },
            spin: common.spin,
            timer: config.timer.map(TimerRequest::name),
            timer_core: match config.timer {
                Some(TimerRequest::Dedicated { core }) => core,
                _ => None,
            },
            connections: open_loop.and(config.connections),
            max_connections: open_loop.and(config.max_connections),
            overload: open_loop.map(|_| overload_text(config.overload)),
            order: order_text(config.order),
            order_seed: config.order_seed,
            repeats: config.repeats,
            request: request(config),
            transport: transport(config),
            timeouts: TimeoutEntry {
                request: unit::time_text(config.timeouts.request_ns),
                connect: unit::time_text(config.timeouts.connect_ns),
                ttft: unit::time_text(config.timeouts.ttft_ns),
                idle: unit::time_text(config.timeouts.idle_ns),
                run: unit::time_text(config.run_timeout_ns),
                response_idle: unit::time_text(config.response_idle_timeout_ns),
            },
            slo: texts(&config.slo),
            fail_if: texts(&config.fail_if),
            abort_if: texts(&config.abort_if),
            goodput: (!config.goodput.is_empty()).then(|| goodput_text(&config.goodput)),
            floor: config.floor,
            wire_stamps: config.wire_stamps.map(|count| format!("1/{count}")),
            interval: unit::time_text(config.interval_ns),
            records: config.records.name(),
            ui: match common.ui {
                Ui::Auto => "auto",
                Ui::Plain => "plain",
                Ui::None => "none",
            },
            json: common.json,
            quiet: common.quiet,
            allow_untrusted: common.allow_untrusted,
        }
    }
}

/// The load of the measured phase.
fn pattern(config: &Config) -> LoadPattern {
    let r#type = match config.command {
        LoadCommand::MaxThroughput => "max_throughput",
        LoadCommand::Concurrency => "concurrency",
        LoadCommand::Poisson => "poisson",
        LoadCommand::Constant => "constant",
        LoadCommand::Gamma => "gamma",
    };
    let Some(arrivals) = &config.arrivals else {
        return LoadPattern {
            r#type,
            target_concurrency: config.connections,
            ..LoadPattern::default()
        };
    };
    let pattern = LoadPattern {
        r#type,
        burstiness: (config.command == LoadCommand::Gamma).then(|| burstiness(arrivals)),
        jitter: jitter_text(config.command, arrivals),
        ..LoadPattern::default()
    };
    match &arrivals.rate {
        RateShape::Constant(rate) => LoadPattern { target_qps: Some(*rate), ..pattern },
        RateShape::Ramp { kind, from, to, time_ns } => LoadPattern {
            target_qps: Some(*to),
            ramp: Some(kind.name()),
            ramp_from: Some(*from),
            ramp_time: Some(unit::time_text(*time_ns)),
            ..pattern
        },
        RateShape::Series { points, .. } => {
            let text =
                |(time_ns, rate): &(u64, f64)| format!("{} {rate}", unit::time_text(*time_ns));
            LoadPattern { rate_series: points.iter().map(text).collect(), ..pattern }
        }
    }
}

/// A number, or the word `inf`, as neither JSON nor every reader of YAML has that number.
fn burstiness(arrivals: &Arrivals) -> Value {
    match arrivals.burstiness() {
        f64::INFINITY => "inf".into(),
        shape => shape.into(),
    }
}

fn phases(config: &Config, load_pattern: &LoadPattern) -> Vec<PhaseEntry> {
    let warmup = config.warmup.map(|warmup| {
        let (duration, requests) = match warmup {
            Warmup::Time(ns) => (Some(unit::time_text(ns)), None),
            Warmup::Requests(count) => (None, Some(count)),
        };
        // Of a rate that changes, a warm-up has the first one throughout.
        let load_pattern = match &config.arrivals {
            Some(arrivals) => LoadPattern {
                target_qps: arrivals.rate.first(),
                ramp: None,
                ramp_from: None,
                ramp_time: None,
                rate_series: Vec::new(),
                ..load_pattern.clone()
            },
            None => load_pattern.clone(),
        };
        PhaseEntry {
            name: "warmup",
            r#type: "warmup",
            load_pattern,
            duration,
            precision: None,
            budget: None,
            requests,
            drain: false,
            drain_timeout: None,
        }
    });
    let duration = match config.precision {
        Some(_) => Some("auto".to_string()),
        None => config.duration_ns.map(unit::time_text),
    };
    let performance = PhaseEntry {
        name: "performance",
        r#type: "performance",
        load_pattern: load_pattern.clone(),
        duration,
        precision: config.precision.map(precision_text),
        budget: config.precision.map(|_| unit::time_text(config.budget_ns)),
        requests: config.requests,
        drain: config.drain_timeout_ns > 0,
        drain_timeout: Some(unit::time_text(config.drain_timeout_ns)),
    };
    warmup.into_iter().chain([performance]).collect()
}

fn request(config: &Config) -> RequestEntry<'_> {
    let shape = &config.request;
    let (low, high) = config.accept_status;
    let is_made =
        |run: &Inference| run.api != Api::Template && !matches!(run.prompts, Prompts::Body);
    RequestEntry {
        method: match config.inference.as_ref().is_some_and(is_made) {
            true => shape.method_with(true),
            false => shape.method(),
        },
        headers: shape.headers.iter().map(Header::redacted).collect(),
        body: shape.body.as_deref(),
        body_file: shape.body_file.as_ref().map(|path| path.to_string_lossy().into_owned()),
        content_type: shape.content_type.as_deref(),
        auth: shape.auth.as_ref().map(|_| REDACTED),
        accept_status: format!("{low}-{high}"),
    }
}

fn transport(config: &Config) -> Transport {
    Transport {
        connect_to: config.connect_to.iter().map(connect_to_text).collect(),
        unix_socket: config.unix_socket.as_ref().map(|path| path.to_string_lossy().into_owned()),
        source_ip: config.source_ip.map(|address| address.to_string()),
        keepalive: config.keepalive,
        tls: (config.tls != TlsOptions::default()).then(|| tls(&config.tls)),
    }
}

fn tls(options: &TlsOptions) -> Value {
    fn path(path: &Option<PathBuf>) -> Option<Cow<'_, str>> {
        path.as_ref().map(|path| path.to_string_lossy())
    }
    let entry = json!({
        "cacert": path(&options.cacert),
        "cert": path(&options.cert),
        "key": path(&options.key),
        "sni": options.sni,
        "insecure": options.is_insecure.then_some(true),
    });
    without_nulls(entry)
}

/// An object without its members that say nothing.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            members.into_iter().filter(|(_, value)| !value.is_null()).collect()
        }
        value => value,
    }
}

fn texts(list: &[Expression]) -> Vec<&str> {
    list.iter().map(|expression| expression.text.as_str()).collect()
}

/// `--jitter`, as it is typed, of the command that has it.
pub(super) fn jitter_text(command: LoadCommand, arrivals: &Arrivals) -> Option<String> {
    match arrivals.process {
        Process::Constant { jitter } if command == LoadCommand::Constant => {
            Some(unit::share_text(jitter))
        }
        _ => None,
    }
}

/// `--precision`, as it is typed.
pub(super) fn precision_text(precision: Precision) -> String {
    let percent = f64::from(precision.milli_percent) / 1000.0;
    format!("p{percent}:{}", unit::share_text(precision.share))
}

/// `--overload`, as it is typed.
pub fn overload_text(overload: Overload) -> &'static str {
    match overload {
        Overload::Queue => "queue",
        Overload::Drop => "drop",
    }
}

/// `--order`, as it is typed.
pub fn order_text(order: Order) -> String {
    match order {
        Order::Shuffle => "shuffle".to_string(),
        Order::Sequential => "sequential".to_string(),
        Order::Random => "random".to_string(),
        Order::Single(index) => format!("single={index}"),
    }
}

/// `--goodput`, as it is typed.
pub(super) fn goodput_text(goals: &[RequestGoal]) -> String {
    goals.iter().map(RequestGoal::text).collect::<Vec<_>>().join(" ")
}

/// `HOST:PORT:ADDR:PORT`, as it is typed.
pub(super) fn connect_to_text(rule: &ConnectTo) -> String {
    let bracketed = |host: &Option<String>| match host.as_deref() {
        Some(host) if host.contains(':') => format!("[{host}]"),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    let port = |port: Option<u16>| port.map(|port| port.to_string()).unwrap_or_default();
    let (host, address) = (bracketed(&rule.host), bracketed(&rule.address));
    format!("{host}:{}:{address}:{}", port(rule.port), port(rule.address_port))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{self, Parsed};

    pub fn written(line: &[&str]) -> (String, Value) {
        let config = match cli::parse(line.iter().map(OsString::from)) {
            Ok(Parsed::Load(load)) => Config::from_cli(*load).expect("valid"),
            other => panic!("{line:?}: {other:?}"),
        };
        let yaml = to_yaml(&config);
        let value = serde_saphyr::from_str(&yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        (yaml, value)
    }

    #[test]
    fn keys_are_those_of_endpoints_and_values_those_of_the_run() {
        let (_, value) = written(&[
            "concurrency",
            "http://h:81/a",
            "-c",
            "32",
            "-n",
            "2k",
            "--warmup",
            "500ms",
            "--seed",
            "7",
            "--cores",
            "0,2-3",
            "--drain-timeout",
            "1.5s",
        ]);
        assert_eq!(value["name"], "concurrency");
        assert_eq!(value["version"], "1.0");
        assert_eq!(value["type"], "online");
        assert_eq!(
            value["settings"]["load_pattern"],
            json!({"type": "concurrency", "target_concurrency": 32})
        );
        assert_eq!(value["settings"]["runtime"]["scheduler_random_seed"], 7);
        assert_eq!(
            value["endpoint_config"],
            json!({"endpoints": ["http://h:81/a"], "api_type": "raw"})
        );
        assert_eq!(value["cores"], "0,2-3");
        assert_eq!(value["timeouts"]["connect"], "5s");
        let pattern = json!({"type": "concurrency", "target_concurrency": 32});
        assert_eq!(
            value["phases"],
            json!([
                {"name": "warmup", "type": "warmup", "load_pattern": pattern,
                 "duration": "500ms", "drain": false},
                {"name": "performance", "type": "performance", "load_pattern": pattern,
                 "requests": 2000, "drain": true, "drain_timeout": "1500ms"},
            ])
        );
    }

    #[test]
    fn a_run_without_flags_is_written_with_its_defaults() {
        let (_, value) = written(&["max-throughput"]);
        assert_eq!(value["type"], "offline");
        assert_eq!(value["settings"]["load_pattern"], json!({"type": "max_throughput"}));
        assert_eq!(value["endpoint_config"]["endpoints"], json!([]));
        assert_eq!(value["phases"][0]["duration"], "10s");
        assert_eq!(value["request"]["accept_status"], "200-299");
        assert_eq!(value["timeouts"]["ttft"], "0s");
        assert_eq!(value.get("cores"), None);
        let (_, value) = written(&["max-throughput", "--ttft-timeout", "1.5s"]);
        assert_eq!(value["timeouts"]["ttft"], "1500ms");
    }

    #[test]
    fn a_load_at_a_rate_is_written_with_its_shape() {
        let pattern = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (_, value) = written(&words);
            assert_eq!(value["type"], "online", "{line}");
            value["settings"]["load_pattern"].clone()
        };
        for (line, expected) in [
            ("poisson -R 500", json!({"type": "poisson", "target_qps": 500.0})),
            ("constant -R 0.5", json!({"type": "constant", "target_qps": 0.5, "jitter": "0%"})),
            (
                "constant -R 1k --jitter 7%",
                json!({"type": "constant", "target_qps": 1000.0, "jitter": "7%"}),
            ),
            (
                "gamma -R 1 --burstiness 0.25",
                json!({"type": "gamma", "target_qps": 1.0, "burstiness": 0.25}),
            ),
            (
                "gamma -R 1 --burstiness inf",
                json!({"type": "gamma", "target_qps": 1.0, "burstiness": "inf"}),
            ),
            (
                "poisson -R 40 --ramp linear --ramp-from 10 --ramp-time 1m",
                json!({"type": "poisson", "target_qps": 40.0, "ramp": "linear",
                       "ramp_from": 10.0, "ramp_time": "60s"}),
            ),
        ] {
            assert_eq!(pattern(line), expected, "{line}");
        }
        let (_, closed) = written(&["http://h/"]);
        for key in ["timer", "timer_core", "connections", "max_connections", "overload"] {
            assert_eq!(closed.get(key), None, "{key}");
        }
    }

    #[test]
    fn a_warmup_is_written_with_the_first_rate() {
        let (_, value) = written(&[
            "poisson",
            "-R",
            "40",
            "--ramp",
            "linear",
            "--ramp-from",
            "10",
            "--ramp-time",
            "1m",
            "--warmup",
            "2s",
            "-d",
            "auto",
            "--precision",
            "p99.9:5%",
        ]);
        assert_eq!(
            value["phases"],
            json!([
                {"name": "warmup", "type": "warmup",
                 "load_pattern": {"type": "poisson", "target_qps": 10.0},
                 "duration": "2s", "drain": false},
                {"name": "performance", "type": "performance",
                 "load_pattern": {"type": "poisson", "target_qps": 40.0, "ramp": "linear",
                                  "ramp_from": 10.0, "ramp_time": "60s"},
                 "duration": "auto", "precision": "p99.9:5%", "budget": "900s",
                 "drain": true, "drain_timeout": "30s"},
            ])
        );
    }

    #[test]
    fn goals_and_instrument_are_written() {
        let (_, value) = written(&[
            "poisson",
            "http://a/",
            "http://b/",
            "-R",
            "5",
            "--slo",
            "p99:5ms",
            "--fail-if",
            "achieved<0.99*target",
            "--abort-if",
            "dropped>1%",
            "--goodput",
            "latency:50ms",
            "--wire-stamps",
            "1/100",
            "--floor",
            "--repeats",
            "3",
            "--order",
            "single=1",
            "--order-seed",
            "7",
            "--overload",
            "drop",
            "--max-connections",
            "99",
        ]);
        for (key, expected) in [
            ("slo", json!(["p99:5ms"])),
            ("fail_if", json!(["achieved<0.99*target"])),
            ("abort_if", json!(["dropped>1%"])),
            ("goodput", json!("latency:50ms")),
            ("wire_stamps", json!("1/100")),
            ("floor", json!(true)),
            ("repeats", json!(3)),
            ("order", json!("single=1")),
            ("order_seed", json!(7)),
            ("overload", json!("drop")),
            ("max_connections", json!(99)),
            ("timer", json!("auto")),
        ] {
            assert_eq!(value[key], expected, "{key}");
        }
    }

    #[test]
    fn no_secret_is_written() {
        let (yaml, value) = written(&[
            "http://u:geheim@h/?api_key=geheim&x=1",
            "-a",
            "u:geheim",
            "-H",
            "Authorization: Bearer geheim",
            "-H",
            "X-Api-Key: geheim",
            "-H",
            "Cookie: s=geheim",
            "-H",
            "X-Auth-Token: geheim",
            "-H",
            "X-Team: open",
        ]);
        assert!(!yaml.contains("geheim"), "{yaml}");
        assert!(yaml.contains("X-Team: open"), "{yaml}");
        assert_eq!(
            value["endpoint_config"]["endpoints"][0],
            "http://<redacted>@h/?api_key=<redacted>&x=1"
        );
    }

    #[test]
    fn text_that_yaml_could_misread_comes_back_as_it_was() {
        for body in [
            "yes",
            "null",
            "1.0",
            "",
            " a: b # c",
            "- x\n- y\n",
            "a\tb\"'\\",
            "ä\u{1f600}",
            "{\"a\": 1}",
            "%x",
            "@y",
        ] {
            let (yaml, value) = written(&["http://h/", "-b", body]);
            assert_eq!(value["request"]["body"], *body, "{yaml}");
        }
        let (_, value) =
            written(&["http://h/", "--connect-to", "[::1]::b:81", "--connect-to", ":::"]);
        assert_eq!(value["transport"]["connect_to"], json!(["[::1]::b:81", ":::"]));
    }
}
