//! Conditions on a finished run: what `--slo` and `--fail-if` say of its figures.

use super::Results;
use crate::expression::{Expression, Metric, Operator, Stat, Unit};
use crate::number::{grouped, rate, time};
use crate::snapshot::{Distribution, Length, Sums, count_needed, figure};

/// A figure that an expression names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// In the unit of expressions.
    pub value: f64,
    /// It is larger, nobody knows by how much: requests timed out, or the queue grew all the time.
    pub is_at_least: bool,
}

/// How a condition came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOutcome {
    /// As wished.
    Held,
    /// Not as wished: exit code 4.
    Missed,
    /// The run is not to be believed, so nothing is said.
    Untrusted,
}

impl GateOutcome {
    /// The word in files and in the report.
    pub const fn name(self) -> &'static str {
        match self {
            GateOutcome::Held => "held",
            GateOutcome::Missed => "missed",
            GateOutcome::Untrusted => "untrusted",
        }
    }
}

/// A condition with what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// As typed.
    pub text: String,
    /// How it came out.
    pub outcome: GateOutcome,
    /// What it looks at.
    pub metric: Metric,
    /// The figure; `Err` says why there is none.
    pub figure: Result<Figure, String>,
}

impl Gate {
    /// Judges one condition. An `--slo` must be shown to hold, a `--fail-if` to be true: where a
    /// figure is not defined, the first is missed and the second is not.
    pub fn judge(expression: &Expression, is_slo: bool, results: &Results) -> Gate {
        let target = results.target_qps();
        let mut figure = told(results, &expression.metric, target);
        if expression.of_target && target.is_none() {
            figure = Err("there is no one target rate to compare with".to_owned());
        }
        // A longer run would have seen more.
        if let (Ok(figure), true) = (&mut figure, results.trust.is_unstable) {
            figure.is_at_least |= grows_with_the_queue(&expression.metric);
        }
        let truth = figure.as_ref().ok().and_then(|figure| truth(expression, *figure, target));
        let is_as_wished = if is_slo { truth == Some(true) } else { truth != Some(true) };
        Gate {
            text: expression.text.clone(),
            outcome: match (results.is_untrusted(), is_as_wished) {
                (true, _) => GateOutcome::Untrusted,
                (false, true) => GateOutcome::Held,
                (false, false) => GateOutcome::Missed,
            },
            metric: expression.metric,
            figure,
        }
    }
}

impl Gate {
    /// `it is 4.87 ms`, or why there is no figure.
    pub fn in_words(&self) -> String {
        let figure = match &self.figure {
            Ok(figure) => figure,
            Err(reason) => return reason.clone(),
        };
        let value = figure.value;
        let number = match self.metric.unit() {
            Unit::Time => time(value.round() as u64),
            Unit::Share => format!("{:.2} %", 100.0 * value),
            Unit::Count => grouped(value.round() as u64),
            Unit::Rate => format!("{}/s", rate(value)),
        };
        match figure.is_at_least {
            true => format!("it is at least {number}"),
            false => format!("it is {number}"),
        }
    }
}

/// Whether a figure rises for as long as the queue does.
fn grows_with_the_queue(metric: &Metric) -> bool {
    match metric {
        Metric::Latency(stat) | Metric::PoolWait(stat) | Metric::Ttft(stat) => *stat != Stat::Min,
        _ => false,
    }
}

/// Whether a condition is true; `None` if a lower bound leaves it open.
fn truth(expression: &Expression, figure: Figure, target: Option<f64>) -> Option<bool> {
    let is_true = expression.holds(|metric| match metric {
        Metric::Target => target,
        _ => Some(figure.value),
    })?;
    let is_open = figure.is_at_least
        && match expression.operator {
            Operator::Below | Operator::AtMost => is_true,
            Operator::Above | Operator::AtLeast => !is_true,
        };
    (!is_open).then_some(is_true)
}

/// The figure that an expression names, in its unit; `Err` says why there is none.
fn told(results: &Results, metric: &Metric, target: Option<f64>) -> Result<Figure, String> {
    let (totals, sums) = (&results.tracked, &results.tracked.sums);
    match metric {
        Metric::Latency(stat) => return of_headline(sums, *stat),
        // From the send it is the same figure.
        Metric::Service(stat) if !sums.has_schedule() => return of_headline(sums, *stat),
        _ => {}
    }
    if metric.needs_goodput() && results.facts.goodput.is_empty() {
        return Err("there was no --goodput".to_owned());
    }
    if metric.is_of_answers() && sums.answers.is_none() {
        return Err("no answer of an inference endpoint was read".to_owned());
    }
    if let Some((series, stat)) = series(sums, metric) {
        check_count(stat, series.count())?;
    }
    let length = Length { duration_ns: totals.duration_ns, scheduled_ns: totals.load_ns, target };
    match figure(sums, &length, metric) {
        Some(value) => Ok(Figure { value, is_at_least: is_lower_bound(sums, metric) }),
        None => Err("nothing defines it in this run".to_owned()),
    }
}

/// The distribution that a metric is a statistic of.
fn series<'a>(sums: &'a Sums, metric: &Metric) -> Option<(&'a Distribution, Stat)> {
    let answers = sums.answers.as_deref();
    Some(match *metric {
        Metric::Service(stat) => (&sums.service, stat),
        Metric::Lateness(stat) => (&sums.lateness, stat),
        Metric::PoolWait(stat) => (&sums.pool_wait, stat),
        Metric::Ttfb(stat) => (&sums.ttfb, stat),
        Metric::Connect(stat) => (&sums.connect, stat),
        Metric::Tls(stat) => (&sums.tls, stat),
        Metric::Ttft(stat) => (sums.ttft()?, stat),
        Metric::ServiceTtft(stat) => (&answers?.service_ttft, stat),
        Metric::Tpot(stat) => (&answers?.tpot, stat),
        Metric::ChunkDelta(stat) => (&answers?.chunk_delta, stat),
        Metric::Isl(stat) => (&answers?.isl, stat),
        Metric::Osl(stat) => (&answers?.osl, stat),
        _ => return None,
    })
}

/// Whether there may be more: some answers have tokens that nobody counted.
fn is_lower_bound(sums: &Sums, metric: &Metric) -> bool {
    match metric {
        Metric::Tps | Metric::TotalTps => sums.outputs_unknown() > 0,
        Metric::Goodput | Metric::GoodputShare => sums.counters.good_unknown > 0,
        _ => false,
    }
}

fn of_headline(sums: &Sums, stat: Stat) -> Result<Figure, String> {
    let all = sums.headline_with_timeouts();
    check_count(stat, all.count())?;
    let figure = match stat {
        Stat::Min => sums.headline().smallest().map(|ns| (ns as f64, false)),
        Stat::Mean => all.mean(),
        Stat::Max => all.largest().map(|max| (max.value as f64, max.is_at_least)),
        Stat::Percentile(percent) => {
            let bounded = all.percentile(milli(percent));
            bounded.map(|bounded| (bounded.value as f64, bounded.is_at_least))
        }
    };
    figure
        .map(|(value, is_at_least)| Figure { value, is_at_least })
        .ok_or_else(|| "no request succeeded".to_owned())
}

/// A percentile of few values is no figure.
fn check_count(stat: Stat, count: u64) -> Result<(), String> {
    let Stat::Percentile(percent) = stat else { return Ok(()) };
    match count_needed(milli(percent)) {
        needed if count < needed => Err(format!("it needs {needed} values, has {count}")),
        _ => Ok(()),
    }
}

fn milli(percent: f64) -> u32 {
    (percent * 1000.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RunFacts;
    use crate::report::tests::{
        open_facts, open_recorded, open_run, overloaded, timed_out, unstable,
    };
    use crate::trust::{Check, Class, Level, Trust};

    fn gates(slo: &[&str], fail_if: &[&str]) -> RunFacts {
        let parsed = |list: &[&str]| {
            list.iter().map(|text| Expression::parse(text).expect("valid")).collect()
        };
        RunFacts { slo: parsed(slo), fail_if: parsed(fail_if), ..open_facts() }
    }

    /// The run has 10 000 answers of 0.901 to 2.9 ms in 10 s, asked for at 1000/s.
    #[test]
    fn conditions_are_judged_by_the_figures_of_the_run() {
        let cases = [
            ("p99<3ms", true),
            ("p99:2ms", false),
            ("service.p50<1.902ms", true),
            ("lateness.max<2us", true),
            ("pool_wait.max<1ms", true),
            ("failed<1%", true),
            ("completed:10k", true),
            ("completed>10k", false),
            ("achieved>=0.99*target", true),
            ("achieved>1.01*target", false),
            ("scheduled:1000", true),
            ("offered<1000", false),
            ("dropped<1", true),
        ];
        let facts = gates(&cases.map(|(text, _)| text), &cases.map(|(text, _)| text));
        let run = open_run(&open_recorded(10_000));
        let results = Results::with_trust(&run, &facts, Vec::new());
        for ((text, is_true), gate) in cases.iter().zip(&results.slo) {
            assert_eq!(gate.outcome == GateOutcome::Held, *is_true, "--slo {text}: {gate:?}");
        }
        for ((text, is_true), gate) in cases.iter().zip(&results.fail_if) {
            assert_eq!(gate.outcome == GateOutcome::Missed, *is_true, "--fail-if {text}: {gate:?}");
        }
    }

    #[test]
    fn what_is_not_defined_misses_a_goal_and_fails_no_run() {
        let texts = ["p99<1s", "goodput>95%", "lateness.p99<1s"];
        let facts = gates(&texts, &texts);
        let run = open_run(&open_recorded(50));
        let results = Results::with_trust(&run, &facts, Vec::new());
        for gate in &results.slo {
            assert_eq!(gate.outcome, GateOutcome::Missed, "{gate:?}");
        }
        for gate in &results.fail_if {
            assert_eq!(gate.outcome, GateOutcome::Held, "{gate:?}");
        }
        assert_eq!(results.slo[0].figure, Err("it needs 1000 values, has 50".to_owned()));
    }

    #[test]
    fn a_lower_bound_shows_that_a_goal_is_missed_and_never_that_it_held() {
        // 9 800 answers up to 2.9 ms, 200 time-outs after 1 s.
        let texts = ["p99<500ms", "p99<2s", "p99>500ms", "p99>2s", "p50<10ms"];
        let facts = gates(&texts, &texts);
        let run = open_run(&timed_out(9_800, 200));
        let results = Results::with_trust(&run, &facts, Vec::new());
        let held = |list: &[Gate]| -> Vec<bool> {
            list.iter().map(|gate| gate.outcome == GateOutcome::Held).collect()
        };
        assert_eq!(held(&results.slo), [false, false, true, false, true]);
        assert_eq!(held(&results.fail_if), [true, true, false, true, false]);
        let p99 = results.slo[0].figure.clone().expect("a figure");
        assert_eq!(p99, Figure { value: 1e9, is_at_least: true });
    }

    #[test]
    fn while_the_queue_grows_no_goal_of_the_latency_is_shown_to_hold() {
        let facts = gates(&["p99<2ms", "p99<1h", "service.p99<3ms"], &["p99>2ms", "p99>1h"]);
        let run = overloaded();
        let results = Results::with_trust(&run, &facts, vec![unstable()]);
        let outcomes =
            |list: &[Gate]| -> Vec<GateOutcome> { list.iter().map(|gate| gate.outcome).collect() };
        use GateOutcome::{Held, Missed};
        assert_eq!(outcomes(&results.slo), [Missed, Missed, Held]);
        assert_eq!(outcomes(&results.fail_if), [Missed, Held]);
    }

    #[test]
    fn a_run_that_is_not_to_be_believed_neither_holds_nor_misses() {
        let failed = Trust {
            checks: vec![Check {
                id: "D1",
                name: "dispatch",
                class: Class::Instrument,
                level: Level::Fail,
                value: None,
                unit: "",
                reason: String::new(),
                brief: None,
            }],
            ..Trust::default()
        };
        let mut facts = gates(&["p99<3ms", "p99<1ms"], &["p99>1ms"]);
        let run = open_run(&open_recorded(10_000));
        let results = Results::with_trust(&run, &facts, vec![failed.clone()]);
        let gates = results.slo.iter().chain(&results.fail_if);
        assert!(gates.clone().all(|gate| gate.outcome == GateOutcome::Untrusted), "{gates:?}");
        facts.is_untrusted_allowed = true;
        let results = Results::with_trust(&run, &facts, vec![failed]);
        assert_eq!(results.slo[0].outcome, GateOutcome::Held);
        assert_eq!(results.slo[1].outcome, GateOutcome::Missed);
    }
}
