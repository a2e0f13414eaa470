//! `--fail-if`: what must not be true of an arm, by itself or against the first.
//!
//! `METRIC[.STAT] OP VALUE` with a value of [`crate::expression`], which is about a later arm
//! alone, or with a signed percentage, which is the change from the first arm: `p99>+10%`,
//! `qps<-5%`. Figures are medians over the runs of an arm.

use std::fmt::Write;

use super::arm::Arm;
use super::figure::{Change, RUNS_MIN, metric_has_origin, metric_sample};
use crate::display::{significant, time};
use crate::error::{Error, shown};
use crate::expression::{Expression, Metric, Operator, Unit, parse_metric};

/// One `--fail-if`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// As typed.
    pub text: String,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// About the later arm alone.
    Absolute(Expression),
    /// About the change from the first arm, as a share of it.
    Relative { metric: Metric, operator: Operator, share: f64 },
}

/// What a gate says about a later arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The expression as typed.
    pub expression: String,
    /// Label of the arm.
    pub arm: String,
    /// What came out.
    pub outcome: Outcome,
    /// The figures behind it, or why there is no outcome; safe for a terminal.
    pub detail: String,
}

/// How a gate comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The expression is false: the arm passes.
    Passed,
    /// The expression is true.
    Failed,
    /// A figure does not exist or does not compare, so the expression is neither.
    Undefined,
    /// A run is not to be believed, so its figures neither pass nor fail.
    Untrusted,
}

impl Outcome {
    /// Its word in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Undefined => "undefined",
            Outcome::Untrusted => "untrusted",
        }
    }
}

impl Gate {
    /// Parses the value of one `--fail-if`.
    pub fn parse(text: &str) -> Result<Gate, Error> {
        let refused =
            |why: &str| Error::usage(format!("--fail-if got `{}`, which {why}", shown(text)));
        let condition = match relative(text) {
            Some(relative) => relative.map_err(|why| refused(&why))?,
            None => Condition::Absolute(absolute(text).map_err(|why| refused(&why))?),
        };
        Ok(Gate { text: text.to_owned(), condition })
    }

    /// Judges a later arm. What is not known outweighs what is not believed, as in exit codes.
    pub fn judge(
        &self,
        first: &Arm,
        later: &Arm,
        is_one_origin: bool,
        believe_all: bool,
    ) -> Judgement {
        let judged = match &self.condition {
            Condition::Absolute(expression) => judge_absolute(expression, later),
            Condition::Relative { metric, operator, share } => {
                if metric_has_origin(*metric) && !is_one_origin {
                    Err("latency counts from different instants".to_owned())
                } else {
                    judge_relative(*metric, *operator, *share, first, later)
                }
            }
        };
        let concerned: &[&Arm] = match self.condition {
            Condition::Absolute(_) => &[later],
            Condition::Relative { .. } => &[first, later],
        };
        let mut runs = concerned.iter().flat_map(|arm| &arm.runs);
        let (outcome, detail) = match judged {
            Err(why) => (Outcome::Undefined, why),
            Ok(judged) => match runs.find(|run| run.is_untrusted() && !believe_all) {
                Some(run) => (Outcome::Untrusted, format!("run {}: trust FAIL", run.source)),
                None => judged,
            },
        };
        let (expression, arm) = (self.text.clone(), later.label.clone());
        Judgement { expression, arm, outcome, detail }
    }
}

/// `None` if the value is no signed percentage.
fn relative(text: &str) -> Option<Result<Condition, String>> {
    let at = text.find(['<', '>', ':', '='])?;
    let (left, right) = text.split_at(at);
    let value = right.trim_start_matches(['<', '>', ':', '=']);
    let (symbol, value) = (&right[..right.len() - value.len()], value.trim());
    let percent = value.strip_suffix('%')?.trim_end();
    let sign = match percent.chars().next()? {
        '+' => 1.0,
        '-' => -1.0,
        _ => return None,
    };
    let digits = &percent[1..];
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let Some(number) = digits.parse::<f64>().ok().filter(|_| is_number) else {
        return Some(Err(format!("has the value `{}`; allowed: +10%, -0.5%", shown(value))));
    };
    let operator = match symbol {
        "<" => Operator::Below,
        "<=" => Operator::AtMost,
        ">" => Operator::Above,
        ">=" => Operator::AtLeast,
        ":" => return Some(Err(IS_GOAL.to_owned())),
        _ => return Some(Err(format!("has the operator {symbol}; allowed: < <= > >="))),
    };
    let condition = |metric| Condition::Relative { metric, operator, share: sign * number / 100.0 };
    Some(parse_metric(left.trim()).map(|metric| match metric {
        // Counts grow with the length of a run.
        Metric::Failed => condition(Metric::FailedShare),
        metric => condition(metric),
    }))
}

fn absolute(text: &str) -> Result<Expression, String> {
    let expression = Expression::parse(text).map_err(|why| match text.ends_with('%') {
        true => format!("{why}; a change from the first arm has a sign: p99>+10%, qps<-5%"),
        false => why,
    })?;
    if expression.is_goal { Err(IS_GOAL.to_owned()) } else { Ok(expression) }
}

/// The outcome with its figures, or why there is none.
type Judged = Result<(Outcome, String), String>;

fn judge_absolute(expression: &Expression, later: &Arm) -> Judged {
    let median = median_of_all(later, expression.metric)?;
    let holds = expression.holds(|_| Some(median)).expect("the figure is known");
    let over = if later.runs.len() > 1 { ", median" } else { "" };
    let outcome = if holds { Outcome::Failed } else { Outcome::Passed };
    Ok((outcome, format!("{}{over}", value_text(expression.metric, median))))
}

fn judge_relative(
    metric: Metric,
    operator: Operator,
    share: f64,
    first: &Arm,
    later: &Arm,
) -> Judged {
    let (from, to) = (median_of_all(first, metric)?, median_of_all(later, metric)?);
    let (before, after) = (metric_sample(first, metric), metric_sample(later, metric));
    let change = Change::between(&before, &after).expect("both medians are known");
    let is_beyond = match operator {
        Operator::Below => change.relative < share,
        Operator::AtMost => change.relative <= share,
        Operator::Above => change.relative > share,
        Operator::AtLeast => change.relative >= share,
    };
    let mut detail = format!(
        "{} ({} against {})",
        change_text(change.relative),
        value_text(metric, to),
        value_text(metric, from)
    );
    match change.p {
        Some(p) if change.is_significant() == Some(true) => write!(detail, ", p {}", p_text(p)),
        Some(p) => write!(detail, ", not significant: p {}", p_text(p)),
        None => write!(detail, ", {}", no_significance(first, later)),
    }
    .expect("a string takes any text");
    let is_true = is_beyond && change.is_significant() != Some(false);
    Ok((if is_true { Outcome::Failed } else { Outcome::Passed }, detail))
}

/// The median over all runs of an arm. A run that is incomplete, or lacks the figure, leaves it
/// undefined: what is left would be a choice of runs that nobody made.
fn median_of_all(arm: &Arm, metric: Metric) -> Result<f64, String> {
    for run in &arm.runs {
        if !run.is_complete() {
            return Err(format!("run {} is incomplete", run.source));
        }
        if run.metric(metric).is_none() {
            return Err(format!("run {} {}", run.source, run.why_unknown(metric)));
        }
    }
    metric_sample(arm, metric).median().ok_or_else(|| "there is no run".to_owned())
}

/// Why the difference of two arms is not tested, in words.
pub fn no_significance(first: &Arm, later: &Arm) -> String {
    format!(
        "no significance: needs {RUNS_MIN} runs an arm, has {} and {}",
        first.runs.len(),
        later.runs.len()
    )
}

/// `+23.1 %`; from 0 there is no share.
pub fn change_text(relative: f64) -> String {
    if relative.is_finite() { format!("{:+.1} %", 100.0 * relative) } else { "from 0".to_owned() }
}

/// Three digits, and never 0.
pub fn p_text(p: f64) -> String {
    if p < 0.0005 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

fn value_text(metric: Metric, value: f64) -> String {
    match metric.unit() {
        Unit::Time => time(value.round() as u64),
        Unit::Share => format!("{} %", significant(100.0 * value)),
        Unit::Count => significant(value),
        Unit::Rate => format!("{}/s", significant(value)),
    }
}

const IS_GOAL: &str = "states with `:` what should hold; write what must not, as in 'p99>+10%'";

#[cfg(test)]
mod tests {
    use super::super::arm::tests::arm;
    use super::super::run::tests::summary;
    use super::*;
    use crate::expression::Stat;
    use serde_json::{Value, json};

    const P99: Metric = Metric::Latency(Stat::Percentile(99.0));

    /// Runs with these p99, ms.
    fn runs(name: &str, p99_ms: &[f64]) -> Arm {
        arm(name, p99_ms.iter().map(|ms| summary(1000.0, 5e5, ms * 1e6)))
    }

    fn judge(text: &str, first: &Arm, later: &Arm) -> Judgement {
        Gate::parse(text).expect("valid").judge(first, later, true, false)
    }

    #[test]
    fn a_signed_percentage_is_a_change_and_everything_else_an_absolute_value() {
        use Operator::{Above, AtLeast, AtMost, Below};
        for (text, metric, operator, share) in [
            ("p99>+10%", P99, Above, 0.1),
            ("latency.p99 >= +10 %", P99, AtLeast, 0.1),
            ("qps<-5%", Metric::Qps, Below, -0.05),
            ("achieved<=-0.5%", Metric::Qps, AtMost, -0.005),
            ("failed>+100%", Metric::FailedShare, Above, 1.0),
            ("ttfb.mean>+0%", Metric::Ttfb(Stat::Mean), Above, 0.0),
        ] {
            let condition = Condition::Relative { metric, operator, share };
            assert_eq!(Gate::parse(text).map(|gate| gate.condition), Ok(condition), "{text}");
        }
        for text in ["p99>50ms", "failed>0.1%", "qps<10k", "completed<100"] {
            let gate = Gate::parse(text).expect(text);
            assert_eq!(gate.condition, Condition::Absolute(Expression::parse(text).expect(text)));
        }
    }

    #[test]
    fn a_wrong_expression_names_flag_value_and_remedy() {
        for (text, says) in [
            ("p99>10%", "has a sign: p99>+10%"),
            ("p99:+10%", "states with `:`"),
            ("p99:50ms", "states with `:`"),
            ("p99>+%", "allowed: +10%"),
            ("p99>+1e3%", "allowed: +10%"),
            ("p99>+NaN%", "allowed: +10%"),
            ("p99>++1%", "allowed: +10%"),
            ("p99>+1.%", "allowed: +10%"),
            ("p99=>+1%", "operator =>"),
            ("p99", "did the shell take it"),
            ("nothing>+5%", "names no metric"),
            (">+5%", "names no metric"),
            ("latency>+5%", "needs a statistic"),
            ("p99>+10", "a time with its unit"),
        ] {
            let error = Gate::parse(text).expect_err(text);
            assert_eq!(error.exit_code(), 2);
            let error = error.to_string();
            assert!(error.starts_with(&format!("--fail-if got `{text}`")), "{error}");
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn single_runs_are_judged_by_their_change_and_say_that_nothing_was_tested() {
        let (a, b) = (runs("A", &[2.0]), runs("B", &[2.3]));
        let judgement = judge("p99>+10%", &a, &b);
        assert_eq!(judgement.outcome, Outcome::Failed);
        assert_eq!(
            judgement.detail,
            "+15.0 % (2.30 ms against 2 ms), no significance: needs 4 runs an arm, has 1 and 1"
        );
        assert_eq!(judge("p99>+20%", &a, &b).outcome, Outcome::Passed);
        assert_eq!(judge("p99<-10%", &b, &a).outcome, Outcome::Failed);
        assert_eq!(judge("p99<=-50%", &b, &a).outcome, Outcome::Passed);
    }

    #[test]
    fn with_four_runs_an_arm_only_a_significant_change_fails() {
        let a = runs("A", &[2.0, 2.1, 2.2, 2.3]);
        let apart = runs("B", &[2.6, 2.7, 2.8, 2.9]);
        let judgement = judge("p99>+10%", &a, &apart);
        assert_eq!(judgement.outcome, Outcome::Failed);
        assert!(judgement.detail.ends_with(", p 0.029"), "{}", judgement.detail);
        // The same median, but one run among those of A.
        let mixed = runs("B", &[2.05, 2.7, 2.8, 2.9]);
        let judgement = judge("p99>+10%", &a, &mixed);
        assert_eq!(judgement.outcome, Outcome::Passed);
        assert!(judgement.detail.contains("not significant: p 0.200"), "{}", judgement.detail);
        // Significant, but not beyond the bound.
        assert_eq!(judge("p99>+50%", &a, &apart).outcome, Outcome::Passed);
    }

    #[test]
    fn an_absolute_value_is_about_the_later_arm_alone() {
        let (a, b) = (runs("A", &[90.0]), runs("B", &[2.0, 4.0]));
        let judgement = judge("p99>2.5ms", &a, &b);
        assert_eq!(
            (judgement.outcome, judgement.detail.as_str()),
            (Outcome::Failed, "3 ms, median")
        );
        assert_eq!(judge("p99>50ms", &a, &b).outcome, Outcome::Passed);
        assert_eq!(judge("qps<1001", &a, &b).detail, "1 000/s, median");
        assert_eq!(judge("failed>0.1%", &a, &b).detail, "0.000 %, median");
    }

    #[test]
    fn what_is_not_known_or_does_not_compare_is_undefined_with_the_reason() {
        let (a, b) = (runs("A", &[2.0]), runs("B", &[2.0, 2.0]));
        let judgement = judge("p99.9>+10%", &a, &b);
        assert_eq!(judgement.outcome, Outcome::Undefined);
        assert_eq!(judgement.detail, "run A/1 has no p99.9: it needs 10000 values, has 9999");
        assert_eq!(judge("p99.9>1ms", &a, &b).outcome, Outcome::Undefined);
        let gate = |text| Gate::parse(text).expect("valid").judge(&a, &b, false, false).outcome;
        assert_eq!(gate("p99>+10%"), Outcome::Undefined, "origins differ");
        assert_eq!(gate("p99>1ms"), Outcome::Failed, "no comparison in it");
        assert_eq!(gate("qps<-10%"), Outcome::Passed, "a rate has no origin");
        let mut cut = summary(1000.0, 5e5, 2e6);
        cut["complete"] = json!(false);
        let judgement = judge("p99>+10%", &a, &arm("B", [cut]));
        assert_eq!(judgement.outcome, Outcome::Undefined);
        assert_eq!(judgement.detail, "run B/1 is incomplete");
    }

    #[test]
    fn an_untrusted_run_neither_passes_nor_fails_unless_it_is_allowed() {
        let untrusted = |qps: Value| {
            let mut summary = summary(1000.0, 5e5, 9e6);
            summary["qps"] = qps;
            summary["trust"] = json!({"verdict": "fail"});
            arm("B", [summary])
        };
        let (a, b) = (runs("A", &[2.0]), untrusted(json!(1000.0)));
        for text in ["p99>+10%", "p99>+999%", "p99>1ms"] {
            assert_eq!(judge(text, &a, &b).outcome, Outcome::Untrusted, "{text}");
        }
        assert_eq!(judge("p99>1ms", &b, &a).outcome, Outcome::Failed, "the first is not in it");
        let allowed = Gate::parse("p99>+10%").expect("valid").judge(&a, &b, true, true);
        assert_eq!(allowed.outcome, Outcome::Failed);
        assert_eq!(judge("qps<-1%", &a, &untrusted(Value::Null)).outcome, Outcome::Undefined);
    }

    #[test]
    fn from_nothing_to_something_is_beyond_every_bound() {
        let failing = |count: u64| {
            let mut summary = summary(1000.0, 5e5, 2e6);
            summary["n_samples_failed"] = json!(count);
            arm("X", [summary])
        };
        let judgement = judge("failed>+1000%", &failing(0), &failing(1));
        assert_eq!(judgement.outcome, Outcome::Failed);
        assert!(judgement.detail.starts_with("from 0 ("), "{}", judgement.detail);
        assert_eq!(judge("failed>+0%", &failing(0), &failing(0)).outcome, Outcome::Passed);
    }
}
