//! Typing of flags: defaults, meanings, and what is refused with which words.

use std::ffi::OsString;

use loadgen_bench::InferenceConfig;
use loadgen_shards::schedule::Process;

use super::*;
use crate::cli::{self, Parsed};

fn config(line: &[&str]) -> Result<Config, Error> {
    match cli::parse(line.iter().map(OsString::from))? {
        Parsed::Load(load) => Config::from_cli(*load),
        other => panic!("{line:?}: {other:?}"),
    }
}

fn serve(line: &[&str]) -> Result<ServeConfig, Error> {
    match cli::parse(line.iter().map(OsString::from))? {
        Parsed::Serve(serve) => ServeConfig::from_cli(*serve),
        other => panic!("{line:?}: {other:?}"),
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = config(&["http://h/"]).expect("valid");
    assert_eq!(config.duration_ns, Some(10_000_000_000));
    assert_eq!(config.requests, None);
    assert_eq!(config.connections, None);
    let timeouts = Timeouts { connect_ns: 5_000_000_000, ..Timeouts::default() };
    assert_eq!(config.timeouts, timeouts);
    assert_eq!(config.drain_timeout_ns, 30_000_000_000);
    assert_eq!((config.run_timeout_ns, config.response_idle_timeout_ns), (0, 0));
    assert_eq!(config.accept_status, (200, 299));
    assert_eq!(config.interval_ns, 1_000_000_000);
    assert!(config.keepalive);
    assert_eq!(config.common.seed, 42);
    assert_eq!(config.common.cores, CoreRequest::Default);
    assert_eq!(config.common.engine, EngineChoice::Auto);
    let serve = serve(&["serve"]).expect("valid");
    assert_eq!(serve.listen, "127.0.0.1:8080".parse().expect("valid"));
    assert_eq!((serve.body_bytes, serve.delay_ns), (100, 0));
    assert_eq!(serve.inference, Some(InferenceConfig::default()));
}

#[test]
fn every_inference_flag_of_serve_reaches_the_endpoint() {
    let line = "serve --profile tgi --ttft 1 --itl 1 --chunks 1 --tokens-per-chunk 1 \
                --reasoning-tokens 1 --max-context 1 --ping 1 --crlf --fail-rate 1 \
                --fail-status 503 --error-in-stream-rate 1 --truncate-rate 1 --stall 1 \
                --stall-rate 1 --stall-after 1 --close-after 1 --seed 7";
    let line: Vec<&str> = line.split_whitespace().collect();
    let served = serve(&line).expect("valid").inference.expect("serve has the paths");
    assert_eq!((served.seed, served.crlf, served.max_context), (7, true, 1));
    assert_eq!(served.faults.close_after, Some(1), "the last of the list");
}

#[test]
fn a_stop_that_is_given_replaces_the_default_one() {
    let stop = |line: &[&str]| {
        let config = config(line).expect("valid");
        (config.duration_ns, config.requests)
    };
    assert_eq!(stop(&["http://h/", "-n", "10k"]), (None, Some(10_000)));
    assert_eq!(stop(&["http://h/", "-d", "1m30s"]), (Some(90_000_000_000), None));
    assert_eq!(stop(&["http://h/", "-d", "5", "-n", "7"]), (Some(5_000_000_000), Some(7)));
}

#[test]
fn warmup_tells_a_time_from_a_count() {
    let warmup = |text| config(&["http://h/", "--warmup", text]).map(|config| config.warmup);
    assert_eq!(warmup("2s"), Ok(Some(Warmup::Time(2_000_000_000))));
    assert_eq!(warmup("2m"), Ok(Some(Warmup::Time(120_000_000_000))));
    assert_eq!(warmup("500"), Ok(Some(Warmup::Requests(500))));
    assert_eq!(warmup("2k"), Ok(Some(Warmup::Requests(2000))));
    for text in ["0", "0s", "x", "", "1.5"] {
        assert!(warmup(text).is_err(), "{text}");
    }
}

#[test]
fn every_wrong_value_is_named_with_its_flag_and_what_is_allowed() {
    for (line, flag, says) in [
        (["-c", "0"], "-c", "from 1 to 1000000"),
        (["-c", "-5"], "-c", ""),
        (["-c", "1000001"], "-c", "from 1 to 1000000"),
        (["-c", "1,8,64"], "-c", "not in this version"),
        (["-c", "1..64"], "-c", "not in this version"),
        (["-n", "0"], "-n", "at least 1"),
        (["-n", "1.5"], "-n", "a whole number"),
        (["-d", "0"], "-d", "above 0"),
        (["-d", "10x"], "-d", "a plain number is seconds"),
        (["-d", "{\"a\":1}"], "-d", "given with -b"),
        (["-d", "999999h"], "-d", "366 days"),
        (["--timeout", "soon"], "--timeout", "500ms"),
        (["--connect-timeout", "-1s"], "--connect-timeout", ""),
        (["--ttft-timeout", "soon"], "--ttft-timeout", "500ms"),
        (["--interval", "1ms"], "--interval", "250ms"),
        (["--accept-status", "2xx"], "--accept-status", "200-399"),
        (["--accept-status", "399-200"], "--accept-status", "200-399"),
        (["--accept-status", "99"], "--accept-status", "100-999"),
        (["--accept-status", "200-1000"], "--accept-status", "100-999"),
        (["--connect-to", "h:80"], "--connect-to", "HOST:PORT:ADDR:PORT"),
        (["--connect-to", "h:80:b:0"], "--connect-to", "HOST:PORT:ADDR:PORT"),
        (["--connect-to", "[::g]:80:b:1"], "--connect-to", "HOST:PORT:ADDR:PORT"),
        (["--source-ip", "eth0"], "--source-ip", "address of this host"),
        (["--engine", "kqueue"], "--engine", "auto, uring, epoll"),
        (["--ui", "tui"], "--ui", "not in this version"),
        (["--ui", "x"], "--ui", "auto, plain, none"),
        (["--seed", "-1"], "--seed", ""),
        (["--seed", "0x2a"], "--seed", "whole number"),
        (["--cores", "3-1"], "--cores", "3-1"),
        (["-t", "0"], "-t", "from 1"),
        (["-a", "user"], "-a", "USER:PASS"),
        (["-m", "GE T"], "-m", "token"),
        (["-H", "no colon here"], "-H", "Name: value"),
        (["--abort-if", "p99"], "--abort-if", "shell"),
        (["--abort-if", "p99:5ms"], "--abort-if", "must not"),
        (["--abort-if", "itl.p99>5ms"], "--abort-if", "one thing in each tool"),
        (["--report-dir", ""], "--report-dir", "none"),
    ] {
        let error = config(&["http://h/", line[0], line[1]]).expect_err(line[1]);
        assert_eq!(error.exit_code(), 2, "{line:?}");
        let text = error.to_string();
        assert!(text.contains(flag) && text.contains(says), "{line:?}: {text}");
        assert!(!text.contains('\n'), "{line:?}: {text}");
    }
}

#[test]
fn wrong_ends_orders_and_goals_are_named_too() {
    for (line, flag, says) in [
        (["-d", "auto"], "-d auto", "needs --precision"),
        (["--precision", "p99:5%"], "--precision", "needs -d auto"),
        (["--budget", "1m"], "--budget", "needs -d auto"),
        (["--budget", "0"], "--budget", "above 0"),
        (["--precision", "p99"], "--precision", "such as p99:5%"),
        (["--precision", "p99:0%"], "--precision", "above 0%"),
        (["--precision", "p99:5"], "--precision", "p99:5%"),
        (["--precision", "mean:5%"], "--precision", "a percentile"),
        (["--precision", "p99.9999:5%"], "--precision", "a percentile"),
        (["--repeats", "0"], "--repeats", "from 1 to 1000"),
        (["--order", "random2"], "--order", "shuffle, sequential, random"),
        (["--order", "single"], "--order", "single=I"),
        (["--order", "single="], "--order", "single=I"),
        (["--order", "single=-1"], "--order", "single=I"),
        (["--order", "single=1"], "--order", "single=0 to single=0"),
        (["--order-seed", "x"], "--order-seed", "whole number"),
        (["--wire-stamps", "100"], "--wire-stamps", "such as 1/100"),
        (["--wire-stamps", "1/0"], "--wire-stamps", "at least 1"),
        (["--wire-stamps", "1/x"], "--wire-stamps", "at least 1"),
        (["--slo", "p99"], "--slo", "shell"),
        (["--slo", "itl.p99:5ms"], "--slo", "one thing in each tool"),
        (["--slo", "lateness.p99:5us"], "--slo", "closed loop"),
        (["--slo", "goodput:95%"], "--slo", "--goodput"),
        (["--fail-if", "p99"], "--fail-if", "shell"),
        (["--fail-if", "p99:5ms"], "--fail-if", "must not"),
        (["--fail-if", "achieved<0.99*target"], "--fail-if", "closed loop"),
        (["--abort-if", "pool_wait.p99>1s"], "--abort-if", "closed loop"),
        (["--abort-if", "offered<5"], "--abort-if", "closed loop"),
        (["--goodput", "itl:5ms"], "--goodput", "a goal for `itl`"),
        (["--goodput", ""], "--goodput", "latency, service, ttfb"),
    ] {
        let error = config(&["http://h/", line[0], line[1]]).expect_err(line[1]);
        assert_eq!(error.exit_code(), 2, "{line:?}");
        let text = error.to_string();
        assert!(text.contains(flag) && text.contains(says), "{line:?}: {text}");
        assert!(!text.contains('\n'), "{line:?}: {text}");
    }
}

#[test]
fn values_that_do_not_go_together_are_refused() {
    for (line, says) in [
        (vec!["concurrency", "http://h/"], "needs -c N"),
        (vec!["http://h/", "--cores", "0", "-t", "1"], "exclude each other"),
        (vec!["http://h/", "-b", "x", "--body-file", "y"], "exclude each other"),
        (vec!["http://h/", "--unix-socket", "/s", "--source-ip", "::1"], "exclude each other"),
        (vec!["max-throughput", "--unix-socket", "/s"], "needs a URL"),
        (vec!["https://h/", "--wire-stamps", "1/10"], "TLS sends others"),
        (vec!["http://h/", "--cacert", "ca.pem"], "--cacert needs a URL that begins with https"),
        (vec!["https://h/", "--key", "k.pem"], "--key needs --cert"),
        (vec!["https://h/", "-k", "--cacert", "ca.pem"], "exclude each other"),
        (vec!["https://h/", "--wire-stamps", "1/9"], "--wire-stamps"),
        (vec!["http://h/", "--targets", "list"], "--targets and a URL exclude each other"),
        (vec!["--targets", "list", "-b", "x"], "--targets and a body"),
        (vec!["http://h/", "--records", "--report-dir", "none"], "--records and --report-dir none"),
        (vec!["--targets", "list", "--model", "m"], "--targets and --model exclude"),
        (vec!["http://user:geheim@h:x/"], "URL `http://<redacted>@h:x/` has the port"),
    ] {
        let error = config(&line).expect_err(says).to_string();
        assert!(error.contains(says) && !error.contains("geheim"), "{line:?}: {error}");
    }
    for (line, says) in [
        (["serve", "--listen", "localhost:80"], "numeric address"),
        (["serve", "--listen", "8080"], "127.0.0.1:8080"),
        (["serve", "--body-bytes", "2GiB"], "at most 1GiB"),
        (["serve", "--delay", "x"], "500ms"),
        (["serve", "--ttft", "soon"], "lognormal:200ms~50ms"),
        (["serve", "--fail-rate", "2"], "at most 100%"),
        (["serve", "--profile", "ollama"], "llamacpp"),
    ] {
        let error = serve(&line).expect_err(says).to_string();
        assert!(error.contains(says), "{line:?}: {error}");
    }
}

#[test]
fn a_load_at_a_rate_is_typed_with_its_defaults() {
    let config = config(&["poisson", "http://h/", "-R", "90/m"]).expect("valid");
    let arrivals = Arrivals { process: Process::Poisson, rate: RateShape::Constant(1.5) };
    assert_eq!(config.arrivals, Some(arrivals));
    assert_eq!((config.connections, config.max_connections), (None, None));
    assert_eq!(config.overload, Overload::Queue);
    assert_eq!(config.timer, Some(TimerRequest::Auto));
    assert_eq!((config.order, config.order_seed), (Order::Shuffle, 42));
    assert_eq!(config.duration_ns, Some(10_000_000_000));
    assert_eq!((config.precision, config.repeats, config.wire_stamps), (None, 1, None));
    let closed = self::config(&["http://h/", "--seed", "7"]).expect("valid");
    assert_eq!((closed.arrivals, closed.timer, closed.order_seed), (None, None, 7));
}

#[test]
fn every_process_and_rate_is_typed() {
    let arrivals = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        config(&words).expect(line).arrivals.expect("open loop")
    };
    let gamma = |shape| Process::Gamma { shape };
    for (line, process) in [
        ("poisson -R 5", Process::Poisson),
        ("constant -R 5", Process::Constant { jitter: 0.0 }),
        ("constant -R 5 --jitter 10%", Process::Constant { jitter: 0.1 }),
        ("constant -R 5 --jitter 50%", Process::Constant { jitter: 0.5 }),
        ("gamma -R 5", gamma(1.0)),
        ("gamma -R 5 --burstiness 0.25", gamma(0.25)),
        ("gamma -R 5 --burstiness 0.001", gamma(0.001)),
        ("gamma -R 5 --burstiness inf", Process::Constant { jitter: 0.0 }),
    ] {
        assert_eq!(arrivals(line).process, process, "{line}");
        assert!(process.is_valid(), "{line}");
    }
    let ramp = |kind, from, to, time_ns| RateShape::Ramp { kind, from, to, time_ns };
    for (line, rate) in [
        ("-R 0.5", RateShape::Constant(0.5)),
        ("-R 10M", RateShape::Constant(1e7)),
        ("-R 1/h", RateShape::Constant(1.0 / 3600.0)),
        (
            "-R 1k --ramp linear --ramp-from 10 --ramp-time 1m",
            ramp(RampKind::Linear, 10.0, 1000.0, 60_000_000_000),
        ),
        (
            "-R 1 --ramp exponential --ramp-from 2k --ramp-time 500ms",
            ramp(RampKind::Exponential, 2000.0, 1.0, 500_000_000),
        ),
        ("--rate-series f", RateShape::Series { path: "f".into(), points: Vec::new() }),
    ] {
        assert_eq!(arrivals(&format!("poisson {line}")).rate, rate, "{line}");
    }
    let series = config(&["poisson", "--rate-series", "f"]).expect("valid");
    assert_eq!(series.duration_ns, None, "as long as the series");
}

#[test]
fn wrong_values_of_a_rate_name_the_flag_the_value_and_what_is_allowed() {
    for (line, says) in [
        ("poisson -R 0", "-R (--rate) got `0`; allowed: a rate above 0"),
        ("poisson -R -5", "got `-5`"),
        ("poisson -R NaN", "got `NaN`"),
        ("poisson -R inf", "got `inf`"),
        ("poisson -R 10000001", "at most 10M a second"),
        ("poisson -R 11M", "got `11M`"),
        ("poisson -R 5x", "got `5x`"),
        ("poisson -R 1,8,64", "a sweep over a list or range is not in this version"),
        ("poisson -R 1k..16k*2", "a sweep"),
        ("poisson -R 5 -c 1,8", "a sweep"),
        ("poisson", "poisson needs -R RATE"),
        ("constant http://h/", "constant needs -R RATE"),
        ("gamma -R 5 --burstiness 0", "--burstiness got `0`; allowed: a shape from 0.001"),
        ("gamma -R 5 --burstiness -1", "got `-1`"),
        ("gamma -R 5 --burstiness NaN", "got `NaN`"),
        ("gamma -R 5 --burstiness 0.0001", "inf (= constant)"),
        ("constant -R 5 --jitter 51%", "--jitter got `51%`; allowed"),
        ("constant -R 5 --jitter 0.1", "got `0.1`"),
        ("constant -R 5 --jitter -1%", "got `-1%`"),
        ("poisson -R 5 --ramp steep", "--ramp got `steep`; allowed: linear, exponential"),
        ("poisson -R 5 --ramp linear", "--ramp needs --ramp-from too"),
        ("poisson -R 5 --ramp-time 1m", "--ramp-time needs --ramp too"),
        ("poisson -R 5 --ramp linear --ramp-from 0 --ramp-time 1m", "--ramp-from got `0`"),
        ("poisson -R 5 --ramp linear --ramp-from 1 --ramp-time 0", "--ramp-time got `0`"),
        ("poisson -R 5 --rate-series f", "-R (--rate) and --rate-series exclude each other"),
        ("poisson --ramp linear --rate-series f", "--ramp and --rate-series exclude"),
        ("poisson -R 5 --max-connections 0", "--max-connections got `0`"),
        ("poisson -R 5 -c 9 --max-connections 8", "-c got `9`, which is above"),
        ("poisson -R 5 --overload wait", "--overload got `wait`; allowed: queue, drop"),
        ("poisson -R 5 --timer fast", "--timer got `fast`; allowed: auto, dedicated"),
        ("poisson -R 5 --timer-core x", "--timer-core got `x`"),
        ("poisson -R 5 --timer-core 0-1", "--timer-core got `0-1`"),
        ("poisson -R 5 --timer-core 9999", "--timer-core got `9999`"),
        ("poisson -R 5 --timer inline --timer-core 1", "--timer inline has no core"),
        ("poisson -R 5 --spin --timer sleep", "--spin and --timer sleep exclude each other"),
        ("poisson -R 5 --spin --timer hybrid", "--spin and --timer hybrid exclude"),
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let error = config(&words).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains('\n'), "{line}: {text}");
    }
}

#[test]
fn timer_is_what_was_asked_for_and_spin_is_inline() {
    let timer = |line: &str| {
        let line = format!("poisson -R 5 {line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let config = config(&words).expect("valid");
        assert!(!config.common.spin, "{line}: the timer says it");
        config.timer.expect("open loop")
    };
    let dedicated = |core| TimerRequest::Dedicated { core };
    for (line, expected) in [
        ("", TimerRequest::Auto),
        ("--timer auto", TimerRequest::Auto),
        ("--timer hybrid", TimerRequest::Hybrid),
        ("--timer sleep", TimerRequest::Sleep),
        ("--timer inline", TimerRequest::Inline),
        ("--timer dedicated", dedicated(None)),
        ("--timer-core 3", dedicated(Some(3))),
        ("--timer auto --timer-core 3", dedicated(Some(3))),
        ("--timer dedicated --timer-core 3 --spin", dedicated(Some(3))),
        ("--spin", TimerRequest::Inline),
        ("--spin --timer inline", TimerRequest::Inline),
    ] {
        assert_eq!(timer(line), expected, "{line}");
    }
}

#[test]
fn a_run_as_long_as_its_precision_needs_has_a_budget() {
    let auto = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let config = config(&words).expect(line);
        let Precision { milli_percent, share } = config.precision.expect("auto");
        (config.duration_ns, config.requests, milli_percent, share, config.budget_ns)
    };
    const S: u64 = unit::NS_PER_S;
    for (line, expected) in [
        ("http://h/ -d auto --precision p99:5%", (Some(900 * S), None, 99_000, 0.05, 900 * S)),
        (
            "poisson -R 5 -d auto --precision latency.p99.9:2.5% --budget 1m -n 50",
            (Some(60 * S), Some(50), 99_900, 0.025, 60 * S),
        ),
        (
            "concurrency -c 5 -d auto --precision median:100%",
            (Some(900 * S), None, 50_000, 1.0, 900 * S),
        ),
    ] {
        assert_eq!(auto(line), expected, "{line}");
    }
}

#[test]
fn what_needs_a_schedule_or_goals_is_taken_where_they_are() {
    let config = config(&[
        "poisson",
        "-R",
        "5",
        "--slo",
        "lateness.p99:50us",
        "--slo",
        "goodput:95%",
        "--fail-if",
        "achieved<0.99*target",
        "--abort-if",
        "dropped>1%",
        "--goodput",
        "latency:50ms,ttfb:5ms",
        "--wire-stamps",
        "1/100",
        "--floor",
        "--repeats",
        "3",
    ])
    .expect("valid");
    assert_eq!((config.slo.len(), config.fail_if.len(), config.abort_if.len()), (2, 1, 1));
    assert!(config.fail_if[0].of_target);
    assert_eq!(config.goodput.len(), 2);
    assert_eq!((config.wire_stamps, config.floor, config.repeats), (Some(100), true, 3));
    let two = ["http://a/", "http://b/", "--order", "single=1"];
    assert_eq!(self::config(&two).expect("valid").order, Order::Single(1));
}

#[test]
fn connect_to_has_four_parts_that_may_be_empty() {
    let text = |text: &str| Some(text.to_string());
    for (line, host, port, address, address_port) in [
        ("h:80:10.0.0.2:81", text("h"), Some(80), text("10.0.0.2"), Some(81)),
        ("[::1]:80:[::2]:81", text("::1"), Some(80), text("::2"), Some(81)),
        ("::b:81", None, None, text("b"), Some(81)),
        (":::", None, None, None, None),
    ] {
        let expected = ConnectTo { host, port, address, address_port };
        assert_eq!(value::connect_to(line), Ok(expected), "{line}");
    }
}
