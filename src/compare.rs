//! `compare`: runs that were measured before, side by side, with what makes the comparison
//! doubtful first.
//!
//! `arm` reads the files; `finding`, `figure` and `gate` are pure and say what differs, by how much
//! and whether it may; `render` and `junit` write it down. The first arm is the baseline.

mod arm;
mod figure;
mod finding;
mod gate;
mod junit;
mod render;
mod run;

use std::fs;

use crate::cli;
use crate::error::Error;
use crate::report::printable;
use crate::stream;
use figure::Row;
use finding::{Finding, Level};

pub use arm::Arm;
pub use figure::{Figure, Kind, known_figures};
pub use gate::{Gate, Judgement, Outcome, p_text};
pub use render::{aligned, unit_of};
pub use run::Run;

/// Everything that is told, in whatever form.
#[derive(Clone, Debug)]
pub struct Comparison {
    arms: Vec<Arm>,
    findings: Vec<Finding>,
    rows: Vec<Row>,
    judgements: Vec<Judgement>,
}

impl Comparison {
    fn of(arms: Vec<Arm>, gates: &[Gate], believe_all: bool) -> Comparison {
        let is_one_origin = finding::is_one_origin(&arms);
        let (first, later) = arms.split_first().expect("there are two arms at least");
        let judge = |gate: &Gate| -> Vec<Judgement> {
            later.iter().map(|arm| gate.judge(first, arm, is_one_origin, believe_all)).collect()
        };
        Comparison {
            judgements: gates.iter().flat_map(judge).collect(),
            findings: finding::findings(&arms),
            rows: figure::rows(&arms, is_one_origin),
            arms,
        }
    }

    /// The exit code, and for all but 0 its reason: 1 before 6 before 4.
    fn ending(&self, believe_all: bool) -> (u8, String) {
        let of = |outcome: Outcome| {
            self.judgements.iter().filter(move |judgement| judgement.outcome == outcome)
        };
        if let Some(judgement) = of(Outcome::Undefined).next() {
            let Judgement { expression, arm, detail, .. } = judgement;
            return (1, format!("--fail-if '{expression}' is not defined for {arm}: {detail}"));
        }
        let untrusted = self.arms.iter().flat_map(|arm| &arm.runs).find(|run| run.is_untrusted());
        if let Some(run) = untrusted.filter(|_| !believe_all) {
            let what = "is not to be believed (trust FAIL): measure it again, or --allow-untrusted";
            return (6, format!("run {} {what}", run.source));
        }
        let mut failed = of(Outcome::Failed);
        let Some(Judgement { expression, arm, detail, .. }) = failed.next() else {
            return (0, String::new());
        };
        let more = match failed.count() {
            0 => String::new(),
            more => format!("; {more} more"),
        };
        (4, format!("--fail-if '{expression}' is true for {arm}: {detail}{more}"))
    }
}

/// Reads the arms, prints the comparison and gives the exit code.
pub fn run(typed: &cli::Compare) -> Result<u8, Error> {
    let cli::Compare { flags, common } = typed;
    if common.json && flags.md {
        return Err(Error::usage("--json and --md both want stdout; allowed: one of them"));
    }
    if flags.junit.is_some() && flags.fail_if.is_empty() {
        return Err(Error::usage("--junit has nothing to tell without a --fail-if"));
    }
    let gates: Result<Vec<Gate>, Error> =
        flags.fail_if.iter().map(|text| Gate::parse(text)).collect();
    let gates = gates?;
    let comparison = Comparison::of(arm::load(&flags.arms)?, &gates, common.allow_untrusted);
    let (code, reason) = comparison.ending(common.allow_untrusted);
    let text = match (common.json, flags.md) {
        (true, _) => render::json(&comparison, code),
        (_, true) => render::markdown(&comparison),
        _ if common.quiet => String::new(),
        _ => render::text(&comparison),
    };
    stream::out(&text).map_err(|error| Error::setup(format!("cannot write to stdout: {error}")))?;
    if let Some(path) = &flags.junit {
        fs::write(path, junit::junit(&comparison.judgements)).map_err(|error| {
            Error::setup(format!("--junit: cannot write to {}: {error}", path.display()))
        })?;
    }
    // Who reads the text has them above the table.
    if common.json || flags.md || common.quiet {
        let is_warning = |finding: &&Finding| finding.level == Level::Warning;
        comparison.findings.iter().filter(is_warning).for_each(|finding| {
            stream::err(&finding.text);
        });
    }
    if code != 0 {
        stream::err(printable(&reason));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::arm::tests::arm;
    use super::run::tests::summary;
    use super::*;
    use serde_json::{Value, json};

    fn ending(later: Value, gates: &[&str], believe_all: bool) -> (u8, String) {
        let arms = vec![arm("A", [summary(1000.0, 5e5, 2e6)]), arm("B", [later])];
        let gates: Vec<Gate> = gates.iter().map(|text| Gate::parse(text).expect("valid")).collect();
        Comparison::of(arms, &gates, believe_all).ending(believe_all)
    }

    #[test]
    fn the_exit_code_is_the_gravest_of_what_holds() {
        let plain = summary(1000.0, 5e5, 3e6);
        let mut untrusted = plain.clone();
        untrusted["trust"] = json!({"verdict": "fail"});
        let mut incomplete = untrusted.clone();
        incomplete["complete"] = json!(false);
        for (later, gates, believe_all, code) in [
            (&plain, &[][..], false, 0),
            (&plain, &["p99>+60%"][..], false, 0),
            (&plain, &["p99>+60%", "p99>+10%"][..], false, 4),
            (&plain, &["p99>+10%", "p99.9>+10%"][..], false, 1),
            (&untrusted, &[][..], false, 6),
            (&untrusted, &[][..], true, 0),
            (&untrusted, &["p99>+10%"][..], false, 6),
            (&untrusted, &["p99>+10%"][..], true, 4),
            (&untrusted, &["p99>+10%", "p99.9>+10%"][..], false, 1),
            (&incomplete, &["p99>+10%"][..], true, 1),
            (&incomplete, &[][..], true, 0),
        ] {
            let got = ending(later.clone(), gates, believe_all);
            assert_eq!(got.0, code, "{gates:?}: {got:?}");
            assert_eq!(got.1.is_empty(), code == 0);
        }
    }

    #[test]
    fn the_reason_names_expression_arm_and_figures_and_counts_the_others() {
        let (_, reason) = ending(summary(900.0, 5e5, 3e6), &["p99>+10%", "qps<-5%"], false);
        assert_eq!(
            reason,
            "--fail-if 'p99>+10%' is true for B: +50.0 % (3 ms against 2 ms), no significance: \
             needs 4 runs an arm, has 1 and 1; 1 more"
        );
    }

    /// Every value in `value` as a JSON pointer.
    fn pointers(value: &Value, prefix: &str, found: &mut Vec<String>) {
        found.push(prefix.to_owned());
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, v)| pointers(v, &format!("{prefix}/{key}"), found));
            }
            Value::Array(list) => {
                let numbered = list.iter().enumerate();
                numbered.for_each(|(index, v)| pointers(v, &format!("{prefix}/{index}"), found));
            }
            _ => {}
        }
    }

    #[test]
    fn no_value_of_a_file_is_too_odd_to_be_told() {
        let plain = summary(1000.0, 5e5, 2e6);
        let mut places = Vec::new();
        pointers(&plain, "", &mut places);
        assert!(places.len() > 40, "{places:?}");
        let odd = [
            json!(null),
            json!(true),
            json!(u64::MAX),
            json!(-1),
            json!(1e300),
            json!("\u{1b}[2J"),
            json!([]),
            json!([[u64::MAX, 0], {}]),
            json!({"a": {"b": null}}),
        ];
        let gates = ["p99>+10%", "p50>1ms", "failed>+1%", "qps<1", "completed<5"];
        let gates: Vec<Gate> = gates.iter().map(|text| Gate::parse(text).expect("valid")).collect();
        for place in places.iter().filter(|place| !place.is_empty()) {
            for value in &odd {
                let mut changed = plain.clone();
                *changed.pointer_mut(place).expect("it was found there") = value.clone();
                if Run::new("x".into(), changed.clone(), Value::Null).is_err() {
                    continue;
                }
                let arms = vec![arm("A", [changed.clone()]), arm("B", [plain.clone(), changed])];
                let comparison = Comparison::of(arms, &gates, false);
                let code = comparison.ending(false).0;
                for text in [
                    render::text(&comparison),
                    render::markdown(&comparison),
                    render::json(&comparison, code),
                    junit::junit(&comparison.judgements),
                ] {
                    assert!(!text.contains('\u{1b}'), "{place}: {text}");
                }
            }
        }
    }
}
