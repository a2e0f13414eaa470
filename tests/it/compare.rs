//! `compare`: result files in, a table, gates and an exit code out. The files are of real runs, and
//! of these with figures changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::run::{BINARY, Outcome, Run, SNAPSHOT, SUMMARY, parse};
use crate::support::server::Server;

/// The files of one real run, and copies of them with figures changed.
struct Results {
    server: Server,
    /// Its folder holds everything; kept for as long as the results are.
    real: Outcome,
}

impl Results {
    fn new() -> Results {
        let server = Server::start();
        let url = server.url("plain");
        let real = Run::new().words(&format!("concurrency {url} -c 1 -n 50 -t 1")).finish();
        real.expect_successes(50);
        Results { server, real }
    }

    /// A copy of the report directory with this name, its result changed.
    fn copy(&self, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
        let root = self.real.folder().join(name);
        let mut summary = self.real.summary();
        change(&mut summary);
        for (file, text) in [(SUMMARY, summary.to_string()), (SNAPSHOT, self.real.file(SNAPSHOT))] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    /// A copy with this p99.
    fn with_p99(&self, name: &str, ns: u64) -> PathBuf {
        self.copy(name, |summary| {
            summary["latency"]["percentiles"]["99.0"] = ns.into();
        })
    }

    fn compare(&self, arguments: &[&str]) -> Outcome {
        let before = self.server.requests_total();
        let outcome = Run::new()
            .default_report_dir()
            .after_shell(&format!("cd '{}'", self.real.folder().display()))
            .args(["compare"])
            .args(arguments)
            .finish();
        assert_eq!(self.server.requests_total(), before, "nothing is sent; {}", outcome.story());
        outcome
    }
}

fn row<'a>(outcome: &'a Outcome, name: &str) -> &'a str {
    let mut lines = outcome.stdout.lines().map(str::trim);
    lines
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("{name}; {}", outcome.story()))
}

#[test]
fn a_directory_and_its_result_file_are_the_same_run_and_have_no_difference() {
    let results = Results::new();
    results.copy("a", |_| {});
    fs::write(results.real.folder().join("b.json"), results.real.file(SUMMARY)).unwrap();
    let outcome = results.compare(&["a", "b.json"]);
    outcome.expect_code(0);
    assert!(row(&outcome, "latency p50").ends_with("+0.0 %"), "{}", outcome.story());
    assert!(row(&outcome, "achieved").ends_with("+0.0 %"), "{}", outcome.story());
    // 50 values are too few for a p99, which is then no 0.
    assert!(row(&outcome, "latency max").contains("+0.0 %"), "{}", outcome.story());
    assert!(!outcome.stdout.contains("latency p99.9"), "{}", outcome.story());
    assert!(row(&outcome, "differs  host").contains("b.json unknown"), "{}", outcome.story());
    assert!(outcome.stdout.contains("needs 4 runs an arm, has 1 and 1"), "{}", outcome.story());
    // The control: the same directory twice differs in nothing.
    let path = format!("a/{SUMMARY}");
    let same = results.compare(&["a", &path]);
    assert!(!same.stdout.contains("differs"), "{}", same.story());
}

#[test]
fn a_gate_on_the_change_decides_the_exit_code() {
    let results = Results::new();
    results.with_p99("a", 2_000_000);
    results.with_p99("b", 2_300_000);
    let outcome = results.compare(&["a", "b", "--fail-if", "p99>+10%"]);
    outcome.expect_code(4).expect_reason(&["p99>+10%", "+15.0 %", "no significance"]);
    assert!(row(&outcome, "latency p99").ends_with("+15.0 %"), "{}", outcome.story());
    results.compare(&["a", "b", "--fail-if", "p99>+20%"]).expect_code(0);
    results.compare(&["b", "a", "--fail-if", "p99>+10%"]).expect_code(0);
    results.compare(&["a", "b", "--fail-if", "p99>+20%", "--fail-if", "p99>2ms"]).expect_code(4);
    results
        .compare(&["a", "b", "--fail-if", "p99.9>+10%"])
        .expect_code(1)
        .expect_reason(&["p99.9", "needs 10000 values, has 50"]);
}

#[test]
fn globs_and_lists_give_runs_and_four_an_arm_are_tested() {
    let results = Results::new();
    for (index, ns) in [2_000_000, 2_100_000, 2_200_000, 2_300_000].into_iter().enumerate() {
        results.with_p99(&format!("{index}-old"), ns);
        results.with_p99(&format!("{index}-new"), ns + 900_000);
    }
    std::os::unix::fs::symlink("3-new", results.real.folder().join("latest-new")).unwrap();
    results.with_p99(".hidden-old", 1);
    let arms = ["old=*-old", "new=0-new,1-new,[2-3]-new,latest-new"];
    let outcome = results.compare(&[arms[0], arms[1], "--fail-if", "p99>+10%"]);
    outcome.expect_code(4).expect_reason(&["p 0.029"]);
    assert!(outcome.stdout.contains("old  4 runs"), "{}", outcome.story());
    assert!(outcome.stdout.contains("counted once"), "the link; {}", outcome.story());
    assert!(row(&outcome, "latency p99").ends_with("0.029 *"), "{}", outcome.story());
    assert!(row(&outcome, "latency p99").contains("2.000..2.300"), "{}", outcome.story());
    // The control: three runs an arm are never significant, and say so.
    let outcome = results.compare(&["[0-2]-old", "[0-2]-new"]);
    assert!(outcome.stdout.contains("has 3 and 3"), "{}", outcome.story());
    assert!(!outcome.stdout.contains('*'), "{}", outcome.story());
}

#[test]
fn standard_input_is_an_arm() {
    let results = Results::new();
    let root = results.copy("a", |_| {});
    let line = "\"$0\" compare \"$1\" - < \"$1/performance/result_summary.json\"";
    let output = Command::new("sh")
        .args(["-c", line, BINARY])
        .arg(&root)
        .stderr(Stdio::inherit())
        .output()
        .expect("sh is there");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("latency p50"), "{said}");
    results.compare(&["-", "-"]).expect_code(2).expect_reason(&["arm `-`", "standard input"]);
}

#[test]
fn what_makes_a_comparison_doubtful_stands_before_the_table() {
    let results = Results::new();
    results.with_p99("a", 2_000_000);
    results.copy("b", |summary| {
        summary["latency"]["percentiles"]["99.0"] = json!(9_000_000);
        summary["latency_origin"] = json!("scheduled");
        summary["state"] = json!("interrupted");
        summary["engine"]["name"] = json!("ep\u{1b}[31moll\n");
    });
    let outcome = results.compare(&["a", "b"]);
    outcome.expect_code(0);
    assert!(row(&outcome, "latency p99").ends_with("n/a"), "not compared; {}", outcome.story());
    let at = |text: &str| {
        outcome.stdout.find(text).unwrap_or_else(|| panic!("{text}; {}", outcome.story()))
    };
    assert!(at("(a sent, b scheduled)") < at("latency p50"));
    assert!(at("run b is incomplete (state interrupted)") < at("differs  engine"));
    assert!(at("b ep.[31moll.") < at("latency p50"));
    assert!(!outcome.stdout.contains('\u{1b}'), "{}", outcome.story());
    let gated = results.compare(&["a", "b", "--fail-if", "p99>+10%", "--json"]);
    gated.expect_code(1).expect_reason(&["different instants"]);
    assert!(gated.stderr.contains("incomplete"), "warnings too; {}", gated.story());
    assert_eq!(parse(&gated.stdout)["fail_if"][0]["outcome"], "undefined");
    assert_eq!(parse(&gated.stdout)["exit_code"], 1);
}

#[test]
fn a_run_that_is_not_to_be_believed_ends_with_six_unless_it_is_allowed() {
    let results = Results::new();
    results.with_p99("a", 2_000_000);
    results.copy("b", |summary| {
        summary["latency"]["percentiles"]["99.0"] = json!(9_000_000);
        summary["trust"] = json!({"verdict": "fail", "checks": [
            {"id": "D1", "verdict": "fail", "reason": "the client was late"},
        ]});
    });
    let outcome = results.compare(&["a", "b"]);
    outcome.expect_code(6).expect_reason(&["run b", "--allow-untrusted"]);
    assert!(outcome.stdout.contains("trust FAIL: the client was late"), "{}", outcome.story());
    let gate = ["a", "b", "--fail-if", "p99>+10%"];
    results.compare(&gate).expect_code(6);
    results.compare(&[&gate[..], &["--allow-untrusted"]].concat()).expect_code(4);
    results.compare(&["a", "b", "--allow-untrusted"]).expect_code(0);
}

#[test]
fn junit_and_markdown_are_written() {
    let results = Results::new();
    results.with_p99("a", 2_000_000);
    results.with_p99("b", 2_300_000);
    let gates = ["--fail-if", "p99>+10%", "--fail-if", "p99>+90%"];
    let arguments = [&["a", "x<&\">|y=b", "--md", "--junit", "out.xml"][..], &gates[..]].concat();
    let outcome = results.compare(&arguments);
    outcome.expect_code(4);
    assert!(outcome.stdout.contains("| latency p99 | ms | 2.000 | 2.300 | +15.0 % |"));
    let xml = fs::read_to_string(results.real.folder().join("out.xml")).unwrap();
    assert!(xml.contains("tests=\"2\" failures=\"1\" errors=\"0\""), "{xml}");
    assert!(xml.contains("classname=\"x&lt;&amp;&quot;&gt;|y\" name=\"p99&gt;+10%\""), "{xml}");
    results.compare(&["a", "b", "--junit", "out.xml"]).expect_code(2).expect_reason(&["--fail-if"]);
    results.compare(&["a", "b", "--md", "--json"]).expect_code(2).expect_reason(&["--md"]);
    let nowhere = [&["a", "b", "--junit", "no/such/folder"][..], &gates[..]].concat();
    results.compare(&nowhere).expect_code(3).expect_reason(&["--junit", "no/such/folder"]);
    let quiet = results.compare(&["a", "b", "-q"]);
    quiet.expect_code(0);
    assert_eq!(quiet.stdout, "");
}

#[test]
fn an_arm_that_is_none_is_named_with_what_is_allowed() {
    let results = Results::new();
    let folder = results.real.folder();
    results.copy("runs/1", |_| {});
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("broken.json", "{\"latency\": ");
    write("other.json", "{\"summary\": {\"successRate\": 1.0}, \"rps\": {}}");
    write("empty.json", "");
    fs::create_dir(folder.join("empty")).unwrap();
    write("snapshot.json", &results.real.file(SNAPSHOT));
    for (arm, says) in [
        ("missing", "there is no missing"),
        ("none-*", "nothing matches none-*"),
        ("x=report,,report", "is empty"),
        ("[", "is no glob"),
        ("broken.json", "is no JSON"),
        ("other.json", "no result of a run"),
        ("empty.json", "is empty"),
        ("snapshot.json", "final_snapshot.json"),
        ("empty", "has no performance/result_summary.json"),
        ("runs", "runs/*"),
        ("bad\u{1b}name", "bad\\u{1b}name"),
    ] {
        let outcome = results.compare(&["report", arm]);
        outcome.expect_code(2).expect_reason(&[says, "a report directory", "a glob"]);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.story());
    }
    results.compare(&["report"]).expect_code(2).expect_reason(&["only the arm `report`"]);
    results.compare(&[]).expect_code(2).expect_reason(&["no arm", "baseline"]);
    results.compare(&["report", "report", "--fail-if", "p99>10%"]).expect_code(2);
    assert!(Path::new(&folder.join("report").join(SUMMARY)).exists(), "the control exists");
}
