//! Wrong usage ends with exit code 2, before anything is sent, and names the flag, the value it got
//! and what is allowed.

use std::process::Command;

use crate::support::run::{BINARY, Outcome, Run};
use crate::support::server::Server;

/// A server that must see nothing, and the outcome of a run with `SERVER` replaced by its URL.
fn run(arguments: &[&str]) -> Outcome {
    let server = Server::start();
    let url = server.url("plain");
    let arguments = arguments.iter().map(|argument| argument.replace("SERVER", &url));
    let outcome = Run::new().args(arguments).finish();
    assert_eq!(server.requests_total(), 0, "nothing was sent; {}", outcome.story());
    outcome
}

/// (arguments, words of the message; `|` stands between names of the same flag)
const WRONG: &[(&[&str], &[&str])] = &[
    (&["max-throughput", "SERVER", "--no-such-flag"], &["--no-such-flag"]),
    (&["max-throughput", "SERVER", "-c", "many"], &["-c|--connections", "many"]),
    (&["max-throughput", "SERVER", "-c", "0"], &["-c|--connections", "0"]),
    (&["max-throughput", "SERVER", "-c", "-3"], &["-3"]),
    (&["max-throughput", "SERVER", "-c"], &["-c|--connections"]),
    (&["max-throughput", "SERVER", "-n", "some"], &["-n|--requests", "some"]),
    (&["max-throughput", "SERVER", "-n", "0"], &["-n|--requests", "0"]),
    (&["max-throughput", "SERVER", "-d", "5parsecs"], &["-d|--duration", "5parsecs"]),
    (&["max-throughput", "SERVER", "-d", "0s"], &["-d|--duration"]),
    (&["max-throughput", "SERVER", "-t", "0"], &["-t", "0"]),
    (&["max-throughput", "SERVER", "--timeout", "soon"], &["--timeout", "soon"]),
    (&["max-throughput", "SERVER", "--warmup", "a-bit"], &["--warmup", "a-bit"]),
    (&["max-throughput", "SERVER", "--engine", "steam"], &["--engine", "steam", "epoll"]),
    (&["max-throughput", "SERVER", "--accept-status", "300-200"], &["--accept-status", "300-200"]),
    (&["max-throughput", "SERVER", "--accept-status", "all"], &["--accept-status", "all"]),
    (&["max-throughput", "SERVER", "--cores", "0-"], &["--cores", "0-"]),
    (&["max-throughput", "SERVER", "--cores", "one"], &["--cores", "one"]),
    (&["max-throughput", "SERVER", "-H", "NoColon"], &["-H|--header", "NoColon"]),
    (&["max-throughput", "SERVER", "-H", "Bad Name: x"], &["-H|--header", "Bad Name"]),
    (&["max-throughput", "SERVER", "-H", "X: a\r\nY: b"], &["-H|--header"]),
    (&["max-throughput", "SERVER", "-m", "GET /x"], &["-m|--method", "GET /x"]),
    (&["max-throughput", "SERVER", "-b", "x", "--body-file", "y"], &["--body-file"]),
    (
        &["max-throughput", "SERVER", "--body-file", "no-such-file"],
        &["--body-file", "no-such-file"],
    ),
    (&["max-throughput", "SERVER", "--connect-to", "nonsense"], &["--connect-to", "nonsense"]),
    (&["max-throughput", "SERVER", "--abort-if", "failed"], &["--abort-if", "failed"]),
    (&["max-throughput", "SERVER", "-R", "100"], &["-R|--rate", "poisson"]),
    (&["SERVER", "-q", "500"], &["-q", "500", "-R"]),
    (&["poisson", "SERVER"], &["-R|--rate"]),
    (&["poisson", "SERVER", "-R", "0"], &["-R|--rate", "`0`", "above 0"]),
    (&["poisson", "SERVER", "-R", "-5"], &["-R|--rate", "`-5`", "above 0"]),
    (&["constant", "SERVER", "-R", "NaN"], &["-R|--rate", "`NaN`", "above 0"]),
    (&["gamma", "SERVER", "-R", "inf"], &["-R|--rate", "`inf`", "10M"]),
    (&["constant", "SERVER", "--rate=10000001"], &["-R|--rate", "10000001", "10M"]),
    (&["poisson", "SERVER", "-R", "5", "-n", "0"], &["-n|--requests", "`0`", "at least 1"]),
    (&["poisson", "SERVER", "-R", "5", "--burstiness", "2"], &["--burstiness", "gamma"]),
    (
        &["poisson", "SERVER", "-R", "5", "--spin", "--timer", "sleep"],
        &["--spin", "--timer sleep", "exclude"],
    ),
    (
        &["poisson", "SERVER", "-R", "5", "--timer", "hybrid", "--timer-core", "0"],
        &["--timer-core", "`0`", "dedicated"],
    ),
    (&["poisson", "SERVER", "-R", "1k..16k*2"], &["-R|--rate", "sweep"]),
    (&["poisson", "SERVER", "-R", "5", "-c", "1,8,64"], &["-c|--connections", "sweep"]),
    (&["gamma", "SERVER", "-R", "5", "--burstiness", "0"], &["--burstiness", "`0`", "from 0.001"]),
    (&["gamma", "SERVER", "-R", "5", "--burstiness", "-1"], &["--burstiness", "-1", "from 0.001"]),
    (&["gamma", "SERVER", "-R", "5", "--burstiness", "nan"], &["--burstiness", "nan"]),
    (&["constant", "SERVER", "-R", "5", "--jitter", "60%"], &["--jitter", "60%", "50%"]),
    (&["poisson", "SERVER", "-R", "5", "--ramp", "linear"], &["--ramp-from"]),
    (&["poisson", "SERVER", "--rate-series", "no-such-file"], &["--rate-series", "no-such-file"]),
    (&["poisson", "SERVER", "-R", "5", "-c", "9", "--max-connections", "8"], &["-c", "9", "8"]),
    (&["poisson", "SERVER", "-R", "5", "--overload", "x"], &["--overload", "queue, drop"]),
    (&["poisson", "SERVER", "-R", "5", "--timer", "x"], &["--timer", "dedicated", "hybrid"]),
    (
        &["--cores", "0", "--timer-core", "0", "poisson", "SERVER", "-R", "5"],
        &["--timer-core", "`0`", "--cores"],
    ),
    (&["SERVER", "-d", "auto"], &["-d auto", "--precision"]),
    (&["SERVER", "--precision", "p99:5%"], &["--precision", "-d auto"]),
    (&["SERVER", "--slo", "lateness.p99:1ms"], &["--slo", "lateness.p99:1ms", "closed loop"]),
    (&["SERVER", "--fail-if", "p99"], &["--fail-if", "p99", "shell"]),
    (&["SERVER", "--goodput", "itl:5ms"], &["--goodput", "itl", "ttft"]),
    (&["SERVER", "--cacert", "ca.pem"], &["--cacert", "https://"]),
    (&["SERVER", "--api", "grpc"], &["--api", "`grpc`", "openai-completions", "sglang"]),
    (&["SERVER", "--api-key", "sk-1"], &["--api-key", "@FILE", "OPENAI_API_KEY"]),
    (&["SERVER", "--api-key", "@no-such-file"], &["--api-key", "no-such-file"]),
    (&["SERVER", "--extra-body", "[1]"], &["--extra-body", "`[1]`", "JSON object"]),
    (&["SERVER", "--isl", "1,8"], &["--isl", "sweep"]),
    (&["SERVER", "--osl", "x"], &["--osl", "`x`", "550~50"]),
    (&["SERVER", "--dataset", "acc:q.jsonl"], &["--dataset", "accuracy"]),
    (&["SERVER", "--dataset", "q.jsonl,format=xls"], &["format=", "`xls`", "jsonl"]),
    (&["SERVER", "--dataset", "no-such-file"], &["no-such-file"]),
    (&["SERVER", "--dataset", "q.jsonl", "--isl", "5"], &["--isl", "synthetic"]),
    (&["SERVER", "--response-field", "a..b"], &["--response-field", "a..b"]),
    (&["--targets", "no-such-file"], &["no-such-file"]),
    (&["probe"], &["URL"]),
    (&["SERVER", "--order", "single=1"], &["--order", "single=1", "single=0"]),
    (&["SERVER", "--wire-stamps", "5"], &["--wire-stamps", "`5`", "1/100"]),
    (&["ab", "SERVER"], &["ab", "two"]),
    (&["https://127.0.0.1/", "--wire-stamps", "1/10"], &["--wire-stamps", "TLS"]),
    (&["https://127.0.0.1/", "--cacert", "no-such-file"], &["--cacert", "no-such-file"]),
    (&["max-throughput", "ftp://127.0.0.1/"], &["ftp"]),
    (&["max-throughput", "http://"], &["http://"]),
    (&["max-throughput", "http://127.0.0.1:99999/"], &["99999"]),
    (&["https://127.0.0.1/", "--key", "k.pem"], &["--key", "--cert"]),
    (&["concurrency", "SERVER"], &["-c|--connections"]),
];

#[test]
fn wrong_usage_names_the_flag_and_the_value() {
    for (arguments, words) in WRONG {
        let outcome = run(arguments);
        outcome.expect_code(2);
        assert_eq!(outcome.stdout, "", "results only; {}", outcome.story());
        let said = outcome.stderr.to_lowercase();
        for word in *words {
            let is_said = word.split('|').any(|name| said.contains(&name.to_lowercase()));
            assert!(is_said, "does not say {word:?}; {}", outcome.story());
        }
        assert!(outcome.stderr.lines().count() <= MESSAGE_LINES, "{}", outcome.story());
    }
}

/// A message that scrolls the command away helps nobody.
const MESSAGE_LINES: usize = 12;

#[test]
fn right_usage_is_no_error() {
    // Negative control of the table: the command it is built on works.
    let server = Server::start();
    let url = server.url("plain");
    let outcome = Run::new().args(["max-throughput", url.as_str(), "-c", "1", "-n", "3"]).finish();
    outcome.expect_successes(3);
    // Accepted from the start, though nothing can be untrusted yet.
    let outcome =
        Run::new().args([url.as_str(), "-n", "3", "-c", "1", "--allow-untrusted"]).finish();
    outcome.expect_successes(3);
    assert_eq!(server.requests_total(), 6);
}

#[test]
fn without_arguments_examples_are_shown() {
    let outcome = Run::new().default_report_dir().finish();
    let said = outcome.stdout.clone() + &outcome.stderr;
    assert!(matches!(outcome.code(), Some(0 | 2)), "{}", outcome.story());
    let examples = said.lines().filter(|line| line.contains("loadgen-uring ")).count();
    assert!(examples >= 5, "{}", outcome.story());
}

#[test]
fn help_and_version_go_to_stdout() {
    let help = Run::new().default_report_dir().args(["--help"]).finish();
    help.expect_code(0);
    for word in ["max-throughput", "concurrency", "serve", "doctor", "--cores"] {
        assert!(help.stdout.contains(word), "{word}; {}", help.story());
    }
    let version = Run::new().default_report_dir().args(["--version"]).finish();
    version.expect_code(0);
    assert!(version.stdout.contains(env!("CARGO_PKG_VERSION")), "{}", version.story());
}

#[test]
fn a_reader_who_has_gone_is_no_fault() {
    for words in ["--help", "", "doctor", "max-throughput -d 100ms"] {
        let line = format!("\"$0\" {words} --report-dir none | true; exit \"${{PIPESTATUS[0]}}\"");
        let output =
            Command::new("bash").args(["-c", &line, BINARY]).output().expect("bash is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{words}: {said}");
        assert!(matches!(output.status.code(), Some(0 | 3)), "{words}: {said}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let line = "\"$0\" max-throughput -n 100 --json --report-dir none > /dev/full";
    let output = Command::new("sh").args(["-c", line, BINARY]).output().expect("sh is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().last().is_some_and(|line| line.contains("stdout")), "{said}");
}
