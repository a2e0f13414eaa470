//! The flags of a run as one would type them again, for "what to type next". Secrets are masked.

use super::{Config, Warmup, unit};
use loadgen_shards::reactor::EngineChoice;

/// One word each: what differs from the defaults, but for `-c`, `--cores`, `--report-dir` and the
/// output flags.
pub fn flags(config: &Config) -> Vec<String> {
    let mut words = Words(Vec::new());
    let request = &config.request;
    words.value("-m", request.method.as_deref());
    for header in &request.headers {
        words.value("-H", Some(&header.redacted()));
    }
    words.value("-b", request.body.as_deref());
    words.value("--body-file", request.body_file.as_ref().map(|path| path.to_string_lossy()));
    words.value("-T", request.content_type.as_deref());
    words.value("-a", request.auth.as_ref().map(|_| "USER:PASS"));
    let (low, high) = config.accept_status;
    words.value("--accept-status", ((low, high) != (200, 299)).then(|| format!("{low}-{high}")));
    for rule in &config.connect_to {
        words.value("--connect-to", Some(super::document::connect_to_text(rule)));
    }
    words.value("--unix-socket", config.unix_socket.as_ref().map(|path| path.to_string_lossy()));
    words.value("--source-ip", config.source_ip.map(|ip| ip.to_string()));
    if !config.keepalive {
        words.0.push("--disable-keepalive".to_owned());
    }
    words.value("-n", config.requests.map(|count| count.to_string()));
    let is_default = config.requests.is_none() && config.duration_ns == Some(super::DURATION_NS);
    words.time("-d", config.duration_ns.filter(|_| !is_default));
    words.value(
        "--warmup",
        config.warmup.map(|warmup| match warmup {
            Warmup::Time(ns) => unit::time_text(ns),
            Warmup::Requests(count) => count.to_string(),
        }),
    );
    let unless = |ns: u64, default_ns: u64| (ns != default_ns).then_some(ns);
    words.time("--timeout", unless(config.timeouts.request_ns, 0));
    words.time("--connect-timeout", unless(config.timeouts.connect_ns, super::CONNECT_TIMEOUT_NS));
    words.time("--idle-timeout", unless(config.timeouts.idle_ns, 0));
    words.time("--drain-timeout", unless(config.drain_timeout_ns, super::DRAIN_TIMEOUT_NS));
    words.time("--run-timeout", unless(config.run_timeout_ns, 0));
    words.time("--response-idle-timeout", unless(config.response_idle_timeout_ns, 0));
    for rule in &config.abort_if {
        words.value("--abort-if", Some(&rule.text));
    }
    match config.common.engine {
        EngineChoice::Auto => {}
        EngineChoice::Uring => words.value("--engine", Some("uring")),
        EngineChoice::Epoll => words.value("--engine", Some("epoll")),
    }
    if config.common.spin {
        words.0.push("--spin".to_owned());
    }
    words.0
}

struct Words(Vec<String>);

impl Words {
    fn value(&mut self, flag: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.0.push(flag.to_owned());
            self.0.push(value.as_ref().to_owned());
        }
    }

    fn time(&mut self, flag: &str, value_ns: Option<u64>) {
        self.value(flag, value_ns.map(unit::time_text));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{self, Parsed};

    fn words_of(args: &[&str]) -> Vec<String> {
        match cli::parse(args.iter().map(OsString::from)) {
            Ok(Parsed::Load(load)) => flags(&Config::from_cli(*load).expect("valid")),
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn what_was_typed_comes_back_and_defaults_do_not() {
        assert!(words_of(&["http://192.0.2.1/", "-c", "9", "--json"]).is_empty());
        let typed = [
            "-m",
            "PUT",
            "-H",
            "X-A: b",
            "-b",
            "a b",
            "--accept-status",
            "200-399",
            "--disable-keepalive",
            "-n",
            "5",
            "-d",
            "3s",
            "--warmup",
            "500",
            "--timeout",
            "20ms",
            "--abort-if",
            "p99>5ms",
            "--engine",
            "epoll",
            "--spin",
        ];
        let mut args = vec!["http://192.0.2.1/"];
        args.extend(typed);
        assert_eq!(words_of(&args), typed);
    }

    #[test]
    fn secrets_are_masked() {
        let words =
            words_of(&["http://192.0.2.1/", "-a", "me:hunter2", "-H", "Authorization: hunter2"]);
        assert!(!words.join(" ").contains("hunter2"), "{words:?}");
    }
}
