//! `config.yaml`: the configuration in the schema of MLCommons `endpoints`, with our keys where
//! that is silent.
//!
//! Written from the plan's copy of the configuration, in which defaults that depend on the host
//! (cores, connections, report directory) are filled in. Secrets are masked; they have to be given
//! again to repeat the run.

use serde::{Serialize, Serializer};

use super::{Config, ConnectTo, ReportDir, Ui, Warmup, unit};
use crate::cli::LoadCommand;
use crate::cores::{CoreRequest, list_text};
use crate::request::Header;
use crate::request::url::{REDACTED, Url};
use loadgen_shards::reactor::EngineChoice;

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
    settings: Settings,
    endpoint_config: EndpointConfig,
    phases: Vec<PhaseEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<usize>,
    engine: &'static str,
    spin: bool,
    request: RequestEntry<'a>,
    transport: Transport,
    timeouts: TimeoutEntry,
    abort_if: Vec<&'a str>,
    interval: String,
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

#[derive(Clone, Copy, Serialize)]
struct LoadPattern {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_concurrency: Option<u32>,
}

#[derive(Serialize)]
struct EndpointConfig {
    /// Empty: the embedded endpoint.
    endpoints: Vec<String>,
    api_type: &'static str,
}

#[derive(Serialize)]
struct PhaseEntry {
    name: &'static str,
    r#type: &'static str,
    load_pattern: LoadPattern,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<String>,
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
}

#[derive(Serialize)]
struct TimeoutEntry {
    request: String,
    connect: String,
    idle: String,
    run: String,
    response_idle: String,
}

impl Document<'_> {
    fn of(config: &Config) -> Document<'_> {
        let common = &config.common;
        let load_pattern = LoadPattern {
            r#type: match config.command {
                LoadCommand::MaxThroughput => "max_throughput",
                LoadCommand::Concurrency => "concurrency",
            },
            target_concurrency: config.connections,
        };
        Document {
            name: config.command.name(),
            version: "1.0",
            // The names of `endpoints` for a run as fast as it goes, and for one under a set load.
            r#type: match config.command {
                LoadCommand::MaxThroughput => "offline",
                LoadCommand::Concurrency => "online",
            },
            settings: Settings {
                runtime: Runtime { scheduler_random_seed: common.seed },
                load_pattern,
            },
            endpoint_config: EndpointConfig {
                endpoints: config.urls.iter().map(Url::redacted).collect(),
                api_type: "raw",
            },
            phases: phases(config, load_pattern),
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
            request: request(config),
            transport: transport(config),
            timeouts: TimeoutEntry {
                request: unit::time_text(config.timeouts.request_ns),
                connect: unit::time_text(config.timeouts.connect_ns),
                idle: unit::time_text(config.timeouts.idle_ns),
                run: unit::time_text(config.run_timeout_ns),
                response_idle: unit::time_text(config.response_idle_timeout_ns),
            },
            abort_if: config.abort_if.iter().map(|expression| expression.text.as_str()).collect(),
            interval: unit::time_text(config.interval_ns),
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

fn phases(config: &Config, load_pattern: LoadPattern) -> Vec<PhaseEntry> {
    let warmup = config.warmup.map(|warmup| {
        let (duration, requests) = match warmup {
            Warmup::Time(ns) => (Some(unit::time_text(ns)), None),
            Warmup::Requests(count) => (None, Some(count)),
        };
        PhaseEntry {
            name: "warmup",
            r#type: "warmup",
            load_pattern,
            duration,
            requests,
            drain: false,
            drain_timeout: None,
        }
    });
    let performance = PhaseEntry {
        name: "performance",
        r#type: "performance",
        load_pattern,
        duration: config.duration_ns.map(unit::time_text),
        requests: config.requests,
        drain: config.drain_timeout_ns > 0,
        drain_timeout: Some(unit::time_text(config.drain_timeout_ns)),
    };
    warmup.into_iter().chain([performance]).collect()
}

fn request(config: &Config) -> RequestEntry<'_> {
    let shape = &config.request;
    let (low, high) = config.accept_status;
    RequestEntry {
        method: shape.method(),
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
    }
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

    use serde_json::{Value, json};

    use super::*;
    use crate::cli::{self, Parsed};

    fn written(line: &[&str]) -> (String, Value) {
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
        assert_eq!(value.get("cores"), None);
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
