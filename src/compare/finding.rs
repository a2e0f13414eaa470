//! What makes a comparison doubtful: how the arms differ besides their figures, and which runs are
//! not to be believed.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::arm::Arm;
use super::run::Run;
use crate::display::{counted, time};
use crate::report::{core_list, printable};

/// One line above the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How grave it is.
    pub level: Level,
    /// What it is about, one word for machines.
    pub topic: &'static str,
    /// The sentence, safe for a terminal.
    pub text: String,
}

/// How grave a finding is, gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Figures that must not be compared, or not be believed.
    Warning,
    /// The arms differ in it; whether that is meant, only the user knows.
    Differs,
    /// Good to know.
    Note,
}

impl Level {
    /// Its word in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Warning => "WARNING",
            Level::Differs => "differs",
            Level::Note => "note",
        }
    }
}

/// All findings, gravest first.
pub fn findings(arms: &[Arm]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(origins(arms));
    for arm in arms {
        arm.runs.iter().for_each(|run| findings.extend(of_run(arm, run)));
    }
    findings.extend(shared_runs(arms));
    findings.extend(FACTS.iter().filter_map(|fact| difference(arms, fact)));
    // Another engine has other features.
    if findings.iter().any(|finding| finding.topic == "engine") {
        findings.retain(|finding| finding.topic != "engine features");
    }
    findings.extend(unknown_host(arms));
    findings.extend(order_of_runs(arms));
    for arm in arms.iter().filter(|arm| arm.repetitions > 0) {
        let times = counted(arm.repetitions as u64, "run");
        findings
            .push(note("repetition", format!("{}: {times} named again, counted once", arm.label)));
    }
    findings.sort_by_key(|finding| finding.level);
    findings
}

/// Whether the latencies of all runs count from the same instant, as far as is known.
pub fn is_one_origin(arms: &[Arm]) -> bool {
    let mut origins = arms.iter().flat_map(|arm| &arm.runs).map(|run| run.text("/latency_origin"));
    let first = origins.next();
    origins.all(|origin| Some(origin) == first)
}

fn origins(arms: &[Arm]) -> Option<Finding> {
    (!is_one_origin(arms)).then(|| {
        let origins = sides(arms, |run| run.text("/latency_origin").map(printable));
        warning(
            "latency_origin",
            format!("latency counts from different instants ({origins}), so it is not compared"),
        )
    })
}

/// What is wrong with one run.
fn of_run(arm: &Arm, run: &Run) -> Vec<Finding> {
    let name = format!("{}: run {}", arm.label, run.source);
    let mut findings = Vec::new();
    if !run.is_complete() {
        let state = printable(run.text("/state").unwrap_or("unknown"));
        let text = format!("{name} is incomplete (state {state}): its figures are of a part only");
        findings.push(warning("incomplete", text));
    }
    if run.number("/n_samples_completed") == Some(0.0) {
        findings.push(warning("no_success", format!("{name}: no request succeeded")));
    }
    let checks = |verdict: &str| -> String {
        let checks = run.value("/trust/checks").as_array().into_iter().flatten();
        let of_verdict = checks.filter(|check| check["verdict"] == verdict);
        // One whose cause another has told has a brief of null.
        let brief = |check: &Value| plain(check.get("brief").unwrap_or(&check["reason"]));
        let reasons: Vec<String> = of_verdict.filter_map(brief).collect();
        if reasons.is_empty() { "no reason given".to_owned() } else { reasons.join("; ") }
    };
    match run.text("/trust/verdict") {
        Some("fail") => findings.push(warning(
            "trust",
            format!("{name} is not to be believed, trust FAIL: {}", checks("fail")),
        )),
        Some("warn") => {
            findings.push(note("trust", format!("{name}: trust WARN: {}", checks("warn"))));
        }
        _ => {}
    }
    let marked = run.value("/untrusted_percentiles").as_array().into_iter().flatten();
    let marked: Vec<String> = marked.filter_map(marked_name).collect();
    if !marked.is_empty() {
        let text = format!("{name}: doubtful percentiles: {}", marked.join(", "));
        findings.push(note("untrusted_percentiles", text));
    }
    findings
}

/// `latency p99.9`
fn marked_name(mark: &Value) -> Option<String> {
    match (plain(&mark["series"]), plain(&mark["percentile"])) {
        (Some(series), Some(percentile)) => Some(format!("{series} p{percentile}")),
        _ => plain(mark),
    }
}

fn shared_runs(arms: &[Arm]) -> Option<Finding> {
    let mut owners: HashMap<&str, &str> = HashMap::new();
    for arm in arms {
        for run in &arm.runs {
            if let Some(other) = owners.insert(&run.source, &arm.label)
                && other != arm.label
            {
                let text = format!("run {} is in {other} and in {}", run.source, arm.label);
                return Some(warning("shared_run", text));
            }
        }
    }
    None
}

/// Something besides the figures in which runs can differ.
struct Fact {
    topic: &'static str,
    level: Level,
    of: fn(&Run) -> Option<String>,
}

const FACTS: [Fact; 18] = [
    differs("host", host),
    differs("engine", |run| plain(run.value("/engine/name"))),
    differs("engine features", |run| plain(run.value("/engine/features"))),
    differs("cores", cores),
    differs("version", |run| plain(run.value("/version"))),
    differs("git_sha", |run| plain(run.value("/git_sha"))),
    differs("load pattern", |run| plain(run.value("/run_config/load_pattern/type"))),
    differs("target rate", |run| or_none(run.value("/run_config/load_pattern/target_qps"))),
    differs("connections", |run| plain(run.value("/run_config/connections"))),
    differs("length", length),
    differs("warm-up", |run| plain(run.value("/run_config/warmup/enabled"))),
    differs("URL", urls),
    differs("API", |run| plain(run.value("/run_config/inference/api"))),
    differs("model", |run| plain(run.value("/run_config/inference/model"))),
    differs("prompts", |run| plain(run.value("/run_config/inference/dataset"))),
    differs("tokens counted by", |run| plain(run.value("/tokens/counted_by"))),
    Fact { topic: "seed", level: Level::Note, of: |run| or_none(run.value("/seed")) },
    Fact { topic: "schedule", level: Level::Note, of: |run| or_none(run.value("/schedule_hash")) },
];

const fn differs(topic: &'static str, of: fn(&Run) -> Option<String>) -> Fact {
    Fact { topic, level: Level::Differs, of }
}

/// `None` if all runs of all arms agree.
fn difference(arms: &[Arm], fact: &Fact) -> Option<Finding> {
    let mut values = arms.iter().flat_map(|arm| &arm.runs).map(fact.of);
    let first = values.next()?;
    if values.all(|value| value == first) {
        return None;
    }
    // Runs of an arm have seeds of their own; arms that share them do not differ.
    let of_arm = |arm: &Arm| arm.runs.iter().map(fact.of).collect::<HashSet<_>>();
    if fact.level == Level::Note && arms.windows(2).all(|pair| of_arm(&pair[0]) == of_arm(&pair[1]))
    {
        return None;
    }
    let text = format!("{}: {}", fact.topic, sides(arms, fact.of));
    Some(Finding { level: fact.level, topic: fact.topic, text })
}

/// `A 42, B 43`
fn sides(arms: &[Arm], of: impl Fn(&Run) -> Option<String>) -> String {
    let side = |arm: &Arm| {
        let mut values: Vec<String> = Vec::new();
        for run in &arm.runs {
            let value = of(run).unwrap_or_else(|| "unknown".to_owned());
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let told = values.iter().take(VALUES_TOLD).cloned().collect::<Vec<_>>().join(" or ");
        match values.len().saturating_sub(VALUES_TOLD) {
            0 => format!("{} {told}", arm.label),
            more => format!("{} {told} or {more} more", arm.label),
        }
    };
    arms.iter().map(side).collect::<Vec<_>>().join(", ")
}

fn host(run: &Run) -> Option<String> {
    let cpu = plain(run.host("/cpu_model"))?;
    let kernel = plain(run.host("/kernel")).map(|kernel| format!(", Linux {kernel}"));
    let count = run.host("/cpus").as_u64().map(|cpus| format!(", {}", counted(cpus, "CPU")));
    Some(cpu + &kernel.unwrap_or_default() + &count.unwrap_or_default())
}

fn cores(run: &Run) -> Option<String> {
    let shards = run.value("/cores/shards").as_array()?;
    // No kernel has ids beyond that, but a file may.
    let id = |id: &Value| Some(usize::from(u16::try_from(id.as_u64()?).ok()?));
    let ids: Option<Vec<usize>> = shards.iter().map(id).collect();
    let spin = if run.value("/cores/spin") == &Value::Bool(true) { " spinning" } else { "" };
    Some(core_list(&ids?) + spin)
}

fn length(run: &Run) -> Option<String> {
    let duration = run.value("/run_config/duration_ns").as_u64().map(time);
    let requests = run.value("/run_config/requests").as_u64().map(|n| counted(n, "request"));
    match (duration, requests) {
        (Some(duration), Some(requests)) => Some(format!("{duration} and at most {requests}")),
        (duration, requests) => duration.or(requests),
    }
}

/// The embedded endpoint has another port in every run.
fn urls(run: &Run) -> Option<String> {
    if run.value("/run_config/is_embedded") == &Value::Bool(true) {
        return Some("the embedded endpoint".to_owned());
    }
    plain(run.value("/run_config/endpoints"))
}

/// A value of the file as a person writes it, safe for a terminal; `None` for null.
fn plain(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => printable(text),
        Value::Array(values) => values.iter().filter_map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(map) => map.values().filter_map(plain).collect::<Vec<_>>().join(" "),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
    })
}

/// For what a run may do without: a closed loop has no rate and draws nothing.
fn or_none(value: &Value) -> Option<String> {
    plain(value).or_else(|| Some("none".to_owned()))
}

fn unknown_host(arms: &[Arm]) -> Option<Finding> {
    let is_unknown = arms.iter().flat_map(|arm| &arm.runs).all(|run| host(run).is_none());
    is_unknown.then(|| {
        let text = "host: unknown, as a result file alone does not name it; \
                    with report directories it is compared too";
        note("host", text.to_owned())
    })
}

/// Blocks of runs, one after the other, let every drift of the host look like a difference.
fn order_of_runs(arms: &[Arm]) -> Option<Finding> {
    let starts = |arm: &Arm| -> Option<(u64, u64)> {
        let starts: Option<Vec<u64>> =
            arm.runs.iter().map(|run| run.value("/test_started_at").as_u64()).collect();
        let starts = starts.filter(|starts| starts.len() >= 2)?;
        Some((*starts.iter().min()?, *starts.iter().max()?))
    };
    let (first, later) = arms.split_first()?;
    let (first_begin, first_end) = starts(first)?;
    let apart = later.iter().find(|arm| {
        starts(arm).is_some_and(|(begin, end)| end < first_begin || first_end < begin)
    })?;
    Some(note(
        "order",
        format!(
            "the runs of {} and {} are not interleaved, so a drift of the host over time would \
             look like a difference",
            first.label, apart.label
        ),
    ))
}

fn warning(topic: &'static str, text: String) -> Finding {
    Finding { level: Level::Warning, topic, text }
}

fn note(topic: &'static str, text: String) -> Finding {
    Finding { level: Level::Note, topic, text }
}

/// Different values of one arm that a line lists.
const VALUES_TOLD: usize = 3;

#[cfg(test)]
mod tests {
    use super::super::arm::tests::arm;
    use super::super::run::tests::summary;
    use super::*;
    use serde_json::json;

    fn plain_run() -> Value {
        summary(100.0, 1e6, 2e6)
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut summary = plain_run();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        summary.pointer_mut(parent).expect("there")[key] = value;
        summary
    }

    /// The findings about a first arm of one plain run and a second one of these.
    fn against(second: impl IntoIterator<Item = Value>) -> Vec<Finding> {
        findings(&[arm("A", [plain_run()]), arm("B", second)])
    }

    #[test]
    fn arms_that_agree_have_no_finding() {
        assert_eq!(against([plain_run()]), []);
    }

    #[test]
    fn each_difference_is_one_line_that_names_both_sides() {
        for (pointer, value, text) in [
            ("/engine/name", json!("epoll"), "engine: A io_uring, B epoll"),
            ("/engine/features", json!([]), "engine features: A multishot, B "),
            ("/cores/shards", json!([0, 1, 2, 5]), "cores: A 0-1, B 0-2,5"),
            ("/cores/spin", json!(true), "cores: A 0-1, B 0-1 spinning"),
            ("/version", json!("0.2.0"), "version: A 0.1.0, B 0.2.0"),
            ("/git_sha", json!("abc"), "git_sha: A unknown, B abc"),
            (
                "/run_config/load_pattern/type",
                json!("poisson"),
                "load pattern: A concurrency, B poisson",
            ),
            ("/run_config/load_pattern/target_qps", json!(500), "target rate: A none, B 500"),
            ("/run_config/connections", json!(8), "connections: A 64, B 8"),
            ("/run_config/duration_ns", json!(2_000_000_000), "length: A 10 s, B 2 s"),
            ("/run_config/endpoints", json!(["http://i/"]), "URL: A http://h/, B http://i/"),
        ] {
            let found = against([with(pointer, value)]);
            let expected =
                Finding { level: Level::Differs, topic: found[0].topic, text: text.into() };
            assert_eq!(found, [expected]);
        }
        let mut other_engine = with("/engine/name", json!("epoll"));
        other_engine["engine"]["features"] = json!([]);
        assert_eq!(against([other_engine]).len(), 1, "its features go without saying");
        let found = against([with("/seed", json!(42))]);
        assert_eq!((found[0].level, found[0].text.as_str()), (Level::Note, "seed: A none, B 42"));
    }

    #[test]
    fn the_embedded_endpoint_is_one_whatever_its_port() {
        let embedded = |port: u16| {
            let mut summary = with("/run_config/is_embedded", json!(true));
            summary["run_config"]["endpoints"] = json!([format!("http://127.0.0.1:{port}/")]);
            summary
        };
        assert_eq!(findings(&[arm("A", [embedded(1)]), arm("B", [embedded(2)])]), []);
    }

    #[test]
    fn another_origin_of_latency_is_a_warning_and_comes_first() {
        let mut other = with("/latency_origin", json!("scheduled"));
        other["version"] = json!("9");
        let found = against([other]);
        assert_eq!((found[0].level, found[0].topic), (Level::Warning, "latency_origin"));
        assert!(found[0].text.contains("(A sent, B scheduled)"), "{}", found[0].text);
        assert_eq!(found[1].topic, "version");
    }

    #[test]
    fn runs_that_are_incomplete_or_untrusted_are_named() {
        let failed = json!({"verdict": "fail", "checks": [
            {"id": "D1", "verdict": "fail", "reason": "we were late"},
            {"id": "D7", "verdict": "ok", "reason": "the clock is steady"},
        ]});
        for (pointer, value, level, says) in [
            ("/complete", json!(false), Level::Warning, "B/1 is incomplete (state complete)"),
            ("/state", json!("interrupted"), Level::Warning, "(state interrupted)"),
            ("/trust", failed, Level::Warning, "trust FAIL: we were late"),
            ("/trust", json!({"verdict": "warn"}), Level::Note, "trust WARN: no reason given"),
            (
                "/trust",
                json!({"verdict": "warn", "checks": [
                    {"verdict": "warn", "reason": "stopped; 3 ms in all", "brief": "stopped"},
                    {"verdict": "warn", "reason": "as said; 4 gaps", "brief": null},
                ]}),
                Level::Note,
                "trust WARN: stopped",
            ),
            (
                "/untrusted_percentiles",
                json!([{"series": "latency", "percentile": "99.9", "at_least": false}]),
                Level::Note,
                "doubtful percentiles: latency p99.9",
            ),
            ("/untrusted_percentiles", json!(["latency.p99", "x"]), Level::Note, "latency.p99, x"),
        ] {
            let found = against([with(pointer, value)]);
            let about_run: Vec<&Finding> =
                found.iter().filter(|f| f.text.contains("B/1")).collect();
            assert_eq!(about_run.len(), 1, "{found:?}");
            assert_eq!(about_run[0].level, level, "{found:?}");
            assert!(about_run[0].text.contains(says), "{found:?}");
        }
        assert!(against([with("/n_samples_completed", json!(0))])[0].text.contains("no request"));
    }

    #[test]
    fn many_values_of_an_arm_are_counted_after_three() {
        let found = against((1..=5).map(|seed| with("/seed", json!(seed))));
        let seed = found.iter().find(|finding| finding.topic == "seed").expect("they differ");
        assert_eq!(seed.text, "seed: A none, B 1 or 2 or 3 or 2 more");
    }

    #[test]
    fn texts_of_a_file_cannot_drive_the_terminal() {
        let found = against([with("/engine/name", json!("\u{1b}[2J\nx"))]);
        assert_eq!(found[0].text, "engine: A io_uring, B .[2J.x");
    }

    #[test]
    fn blocks_of_runs_are_told_from_interleaved_ones() {
        let started = |times: &[u64]| -> Vec<Value> {
            times.iter().map(|time| with("/test_started_at", json!(time))).collect()
        };
        let found = |a: &[u64], b: &[u64]| {
            let found = findings(&[arm("A", started(a)), arm("B", started(b))]);
            found.iter().any(|finding| finding.topic == "order")
        };
        assert!(found(&[1, 2], &[3, 4]) && found(&[3, 4], &[1, 2]));
        assert!(!found(&[1, 3], &[2, 4]));
        assert!(!found(&[1], &[2]), "two single runs have no order to speak of");
    }

    #[test]
    fn a_run_in_both_arms_and_one_named_twice_are_told() {
        let mut arms = [arm("A", [plain_run()]), arm("B", [plain_run()])];
        arms[1].runs[0].source = "A/1".into();
        arms[1].repetitions = 1;
        let found = findings(&arms);
        assert_eq!(found[0].text, "run A/1 is in A and in B");
        assert_eq!(found[1].text, "B: 1 run named again, counted once");
    }

    #[test]
    fn an_unknown_host_is_said_once() {
        let unknown =
            |source: &str| Run::new(source.into(), plain_run(), Value::Null).expect("a result");
        let mut arms = [arm("A", [plain_run()]), arm("B", [plain_run()])];
        arms[1].runs = vec![unknown("x")];
        let found = findings(&arms);
        assert_eq!(found[0].text, "host: A a CPU, Linux 6.18, 2 CPUs, B unknown");
        arms[0].runs = vec![unknown("y")];
        assert!(findings(&arms)[0].text.starts_with("host: unknown"));
    }
}
