//! The flags of a run as one would type them again, for "what to type next". Secrets are masked.

use loadgen_shards::order::Order;
use loadgen_shards::phase::Overload;
use loadgen_shards::reactor::EngineChoice;
use loadgen_shards::tls::TlsOptions;

use super::inference::{self, Inference, Prompts, length_text};
use super::{Config, Keep, RateShape, Warmup, document, unit};
use crate::cli::LoadCommand;
use crate::cores::TimerRequest;

/// One word each: what differs from the defaults, but for `-c`, `--cores`, `--report-dir`, the
/// output flags and [`rate_flags`].
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
    words.value("--api-key", request.api_key.as_ref().map(|_| "@FILE"));
    let (low, high) = config.accept_status;
    words.value("--accept-status", ((low, high) != (200, 299)).then(|| format!("{low}-{high}")));
    for rule in &config.connect_to {
        words.value("--connect-to", Some(document::connect_to_text(rule)));
    }
    words.value("--unix-socket", config.unix_socket.as_ref().map(|path| path.to_string_lossy()));
    words.value("--source-ip", config.source_ip.map(|ip| ip.to_string()));
    if !config.keepalive {
        words.0.push("--disable-keepalive".to_owned());
    }
    words.order(config);
    words.value("-n", config.requests.map(|count| count.to_string()));
    let is_default = config.requests.is_none() && config.duration_ns == Some(super::DURATION_NS);
    if let Some(precision) = config.precision {
        words.value("-d", Some("auto"));
        words.value("--precision", Some(document::precision_text(precision)));
        words.time("--budget", Some(config.budget_ns).filter(|ns| *ns != super::BUDGET_NS));
    } else {
        words.time("-d", config.duration_ns.filter(|_| !is_default));
    }
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
    words.time("--ttft-timeout", unless(config.timeouts.ttft_ns, 0));
    words.time("--idle-timeout", unless(config.timeouts.idle_ns, 0));
    let drain_ns = match config.inference {
        Some(_) => super::INFERENCE_DRAIN_TIMEOUT_NS,
        None => super::DRAIN_TIMEOUT_NS,
    };
    words.time("--drain-timeout", unless(config.drain_timeout_ns, drain_ns));
    words.time("--run-timeout", unless(config.run_timeout_ns, 0));
    words.time("--response-idle-timeout", unless(config.response_idle_timeout_ns, 0));
    words.goals(config);
    words.tls(&config.tls);
    if let Some(run) = &config.inference {
        words.inference(run);
    }
    words.value("--targets", config.targets.as_ref().map(|path| path.to_string_lossy()));
    match config.records {
        Keep::Nothing => {}
        Keep::Facts => words.0.push("--records".to_owned()),
        Keep::Texts => words.0.push("--records-full".to_owned()),
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

/// The same of what only open loops have: rate, limit of connections and timer. Empty in closed
/// loop.
pub fn rate_flags(config: &Config) -> Vec<String> {
    let mut words = Words(Vec::new());
    words.rate(config);
    words.0
}

struct Words(Vec<String>);

impl Words {
    fn rate(&mut self, config: &Config) {
        if let Some(arrivals) = &config.arrivals {
            match &arrivals.rate {
                RateShape::Constant(rate) => self.value("-R", Some(rate.to_string())),
                RateShape::Ramp { kind, from, to, time_ns } => {
                    self.value("-R", Some(to.to_string()));
                    self.value("--ramp", Some(kind.name()));
                    self.value("--ramp-from", Some(from.to_string()));
                    self.time("--ramp-time", Some(*time_ns));
                }
                RateShape::Series { path, .. } => {
                    self.value("--rate-series", Some(path.to_string_lossy()));
                }
            }
            let burstiness = arrivals.burstiness();
            let is_typed = config.command == LoadCommand::Gamma && burstiness != 1.0;
            self.value("--burstiness", is_typed.then(|| burstiness.to_string()));
            let jitter = document::jitter_text(config.command, arrivals);
            self.value("--jitter", jitter.filter(|text| text != "0%"));
        }
        self.value("--max-connections", config.max_connections.map(|most| most.to_string()));
        if config.overload == Overload::Drop {
            self.value("--overload", Some(document::overload_text(config.overload)));
        }
        let timer = config.timer.filter(|timer| *timer != TimerRequest::Auto);
        self.value("--timer", timer.map(TimerRequest::name));
        if let Some(TimerRequest::Dedicated { core: Some(core) }) = timer {
            self.value("--timer-core", Some(core.to_string()));
        }
    }

    /// Which samples, and how often all of them.
    fn order(&mut self, config: &Config) {
        if config.order != Order::Shuffle {
            self.value("--order", Some(document::order_text(config.order)));
        }
        let seed = config.common.seed;
        self.value("--seed", (seed != super::SEED).then(|| seed.to_string()));
        let own = (config.order_seed != seed).then(|| config.order_seed.to_string());
        self.value("--order-seed", own);
        self.value("--repeats", (config.repeats > 1).then(|| config.repeats.to_string()));
    }

    /// What is asked of the result, and of the instrument.
    fn goals(&mut self, config: &Config) {
        for (flag, list) in [
            ("--slo", &config.slo),
            ("--fail-if", &config.fail_if),
            ("--abort-if", &config.abort_if),
        ] {
            for expression in list {
                self.value(flag, Some(&expression.text));
            }
        }
        let goodput = (!config.goodput.is_empty()).then(|| document::goodput_text(&config.goodput));
        self.value("--goodput", goodput);
        if config.floor {
            self.0.push("--floor".to_owned());
        }
        self.value("--wire-stamps", config.wire_stamps.map(|count| format!("1/{count}")));
    }

    fn tls(&mut self, options: &TlsOptions) {
        let files =
            [("--cacert", &options.cacert), ("--cert", &options.cert), ("--key", &options.key)];
        for (flag, path) in files {
            self.value(flag, path.as_ref().map(|path| path.to_string_lossy()));
        }
        self.value("--sni", options.sni.as_deref());
        self.switch("-k", options.is_insecure);
    }

    /// What is asked of an inference endpoint, and how.
    fn inference(&mut self, run: &Inference) {
        let is_default = |name: &str| run.defaults.contains(&name);
        self.value("--api", (!is_default("api")).then(|| run.api.name()));
        let sampling = &run.sampling;
        self.value("--model", sampling.model.as_deref());
        match &run.prompts {
            Prompts::Body => {}
            Prompts::Dataset { path, options } => {
                self.value("--dataset", Some(inference::dataset_text(path, options)));
                self.switch("--skip-bad-rows", options.skips_bad_rows);
            }
            Prompts::Synthetic(synthetic) => {
                let typed = |length| (!is_default("dataset")).then(|| length_text(length));
                self.value("--isl", typed(synthetic.isl));
                self.value("--osl", synthetic.osl.and_then(typed));
                self.value("--prompts", synthetic.count.map(|count| count.to_string()));
                self.value("--prompt-seed", synthetic.seed.map(|seed| seed.to_string()));
            }
        }
        let tokenizer = Some(run.tokenizer.text()).filter(|text| text != "auto");
        self.value("--tokenizer", tokenizer);
        self.switch("--no-stream", !sampling.stream && inference::can_stream(run.api));
        self.switch("--no-include-usage", !sampling.include_usage);
        self.switch("--no-preflight", !run.has_preflight);
        self.switch("--lenient", run.is_lenient);
        self.value("--response-field", run.response_field_text.as_deref());
        self.value("--max-output-tokens", sampling.max_tokens.map(|count| count.to_string()));
        self.value("--min-tokens", sampling.min_tokens.map(|count| count.to_string()));
        self.switch("--legacy-max-tokens", sampling.legacy_max_tokens);
        self.switch("--ignore-eos", sampling.ignore_eos);
        self.value("--temperature", sampling.temperature.map(|value| value.to_string()));
        self.value("--top-p", sampling.top_p.map(|value| value.to_string()));
        self.value("--top-k", sampling.top_k.map(|value| value.to_string()));
        for stop in &sampling.stop {
            self.value("--stop", Some(stop));
        }
        self.value("--system", sampling.system.as_deref());
        let extra = (!sampling.extra.is_empty())
            .then(|| serde_json::to_string(&sampling.extra).expect("JSON has a text"));
        self.value("--extra-body", extra);
    }

    fn switch(&mut self, flag: &str, is_on: bool) {
        if is_on {
            self.0.push(flag.to_owned());
        }
    }

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
            Ok(Parsed::Load(load)) => {
                let config = Config::from_cli(*load).expect("valid");
                [rate_flags(&config), flags(&config)].concat()
            }
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
            "--ttft-timeout",
            "5ms",
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
    fn flags_of_an_open_loop_come_back() {
        for line in [
            "poisson -R 1000",
            "poisson -R 0.0002777777777777778 --max-connections 9 --overload drop",
            "constant -R 5 --jitter 7%",
            "gamma -R 5 --burstiness 0.25 --timer inline",
            "gamma -R 5 --burstiness inf --timer dedicated --timer-core 3",
            "poisson -R 5 --ramp exponential --ramp-from 2 --ramp-time 60s",
            "poisson --rate-series f --order single=0 --seed 7 --order-seed 8 --repeats 3",
            "poisson -R 5 -d auto --precision p99.9:2.5% --budget 60s",
            "poisson -R 5 --slo p99:5ms --fail-if failed>1% --abort-if qps<0.5*target",
            "poisson -R 5 --goodput latency:5ms --floor --wire-stamps 1/100",
            "poisson -R 5 --api openai-completions --model m --isl 100~9 --osl uniform:5-9 \
             --prompts 9 --prompt-seed 3 --tokenizer none --no-stream --no-preflight",
            "poisson -R 5 --dataset q.csv,format=csv,limit=5,prompt=text --skip-bad-rows \
             --no-include-usage --lenient --max-output-tokens 7 --ignore-eos --temperature 0.5 \
             --top-p 0.9 --top-k -1 --stop x --stop y --system be --extra-body {\"a\":1}",
            "poisson -R 5 --model m --records",
            "poisson -R 5 --targets list --records-full",
        ] {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words_of(&words), words[1..], "{line}");
        }
        assert_eq!(
            words_of(&["poisson", "-R", "90/m", "--spin"]),
            ["-R", "1.5", "--timer", "inline"]
        );
    }

    #[test]
    fn secrets_are_masked() {
        let words = words_of(&[
            "https://192.0.2.1/v1",
            "--cacert",
            "ca.pem",
            "--sni",
            "n",
            "-a",
            "me:hunter2",
            "-H",
            "Authorization: hunter2",
        ]);
        assert!(!words.join(" ").contains("hunter2"), "{words:?}");
    }
}
