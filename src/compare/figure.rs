//! The figures that are compared, and how far they are apart.

use super::arm::Arm;
use super::run::Run;
use crate::expression::{Metric, Stat};
use crate::statistics::compare::mann_whitney;

/// Runs an arm needs before a difference can be significant: with 3 and 3 the least p is 0.10.
pub const RUNS_MIN: usize = 4;
/// p below which a difference is called significant.
pub const P_MAX: f64 = 0.05;

/// A row of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// `latency.p99`
    pub name: &'static str,
    /// What its numbers are.
    pub kind: Kind,
    source: Source,
}

/// What the numbers of a figure are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ns.
    Time,
    /// Per second.
    Rate,
    /// 0 to 1.
    Share,
}

/// Where a figure is in a result file.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A statistic of the distribution with this key.
    Series(&'static str, Stat),
    /// The number at this JSON pointer.
    Number(&'static str),
    /// Failed requests among those that ended.
    FailedShare,
}

const P50: Stat = Stat::Percentile(50.0);
const P90: Stat = Stat::Percentile(90.0);
const P99: Stat = Stat::Percentile(99.0);
const P999: Stat = Stat::Percentile(99.9);

/// In the order of the table. What no run has is left out.
const FIGURES: [Figure; 26] = [
    number("achieved", Kind::Rate, "/qps"),
    number("offered", Kind::Rate, "/offered_qps"),
    number("output tokens", Kind::Rate, "/tps"),
    number("goodput", Kind::Rate, "/goodput"),
    time("latency.p50", "latency", P50),
    time("latency.p90", "latency", P90),
    time("latency.p99", "latency", P99),
    time("latency.p99.9", "latency", P999),
    time("latency.max", "latency", Stat::Max),
    time("latency.mean", "latency", Stat::Mean),
    time("service.p50", "service_latency", P50),
    time("service.p99", "service_latency", P99),
    time("ttfb.p50", "ttfb", P50),
    time("ttfb.p99", "ttfb", P99),
    time("lateness.p99", "lateness", P99),
    time("lateness.max", "lateness", Stat::Max),
    time("ttft.p50", "ttft", P50),
    time("ttft.p99", "ttft", P99),
    time("service_ttft.p50", "service_ttft", P50),
    time("service_ttft.p99", "service_ttft", P99),
    time("tpot.p50", "tpot", P50),
    time("tpot.p99", "tpot", P99),
    time("chunk_delta.p99", "chunk_delta", P99),
    number("cached", Kind::Share, "/tokens/cached_share"),
    Figure { name: "failed", kind: Kind::Share, source: Source::FailedShare },
    number("client busy", Kind::Share, "/limit/client_utilisation"),
];

const fn number(name: &'static str, kind: Kind, pointer: &'static str) -> Figure {
    Figure { name, kind, source: Source::Number(pointer) }
}

const fn time(name: &'static str, series: &'static str, stat: Stat) -> Figure {
    Figure { name, kind: Kind::Time, source: Source::Series(series, stat) }
}

impl Figure {
    /// Its value in a run: ns, per second, or 0 to 1.
    pub fn of(&self, run: &Run) -> Option<f64> {
        match self.source {
            Source::Series(series, stat) => run.statistic(series, stat),
            Source::Number(pointer) => run.number(pointer),
            Source::FailedShare => run.failed_share(),
        }
    }

    /// Whether it counts from what `latency_origin` says.
    fn has_origin(&self) -> bool {
        matches!(self.source, Source::Series("latency" | "ttft", _))
    }

    /// Whether it is another figure once more in every run: from the send the latency is the
    /// service latency.
    fn is_repetition(&self, runs: &[&Run]) -> bool {
        matches!(self.source, Source::Series("service_latency" | "service_ttft", _))
            && runs.iter().all(|run| run.text("/latency_origin") == Some("sent"))
    }
}

/// One figure over the runs of one arm. Runs that do not have it are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Ascending.
    values: Vec<f64>,
    /// Runs of the arm.
    pub runs: usize,
}

impl Sample {
    /// What `figure` gives for each run of an arm.
    pub fn of(arm: &Arm, figure: impl Fn(&Run) -> Option<f64>) -> Sample {
        let mut values: Vec<f64> = arm.runs.iter().filter_map(figure).collect();
        values.sort_unstable_by(f64::total_cmp);
        Sample { values, runs: arm.runs.len() }
    }

    /// Ascending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The middle, or the mean of the two in the middle.
    pub fn median(&self) -> Option<f64> {
        let upper = *self.values.get(self.values.len() / 2)?;
        let lower = self.values[(self.values.len() - 1) / 2];
        Some(lower.midpoint(upper))
    }

    /// Smallest and largest, where there are several.
    pub fn spread(&self) -> Option<(f64, f64)> {
        match self.values.as_slice() {
            [low, .., high] => Some((*low, *high)),
            _ => None,
        }
    }
}

/// How an arm differs from the first one in a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Of the medians, as a share of the first; infinite from 0.
    pub relative: f64,
    /// Of the Mann-Whitney test; `None` with fewer than [`RUNS_MIN`] runs in either arm.
    pub p: Option<f64>,
}

impl Change {
    /// From `first` to `later`; `None` if a median is missing.
    pub fn between(first: &Sample, later: &Sample) -> Option<Change> {
        let (from, to) = (first.median()?, later.median()?);
        let relative = if from == to { 0.0 } else { (to - from) / from };
        let is_tested = first.values.len().min(later.values.len()) >= RUNS_MIN;
        let test = || mann_whitney(&first.values, &later.values).map(|test| test.p);
        let p = if is_tested { test() } else { None };
        Some(Change { relative, p })
    }

    /// Whether chance alone would rarely make such a difference; `None` if it was not tested.
    pub fn is_significant(&self) -> Option<bool> {
        self.p.map(|p| p < P_MAX)
    }
}

/// A figure of all arms.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub figure: Figure,
    /// One for each arm.
    pub samples: Vec<Sample>,
    /// One for each arm but the first; `None` where nothing can be said.
    pub changes: Vec<Option<Change>>,
}

/// Every figure that some run has. Latencies that count from different instants are not compared.
pub fn rows(arms: &[Arm], is_one_origin: bool) -> Vec<Row> {
    let row = |figure: Figure| {
        let samples: Vec<Sample> =
            arms.iter().map(|arm| Sample::of(arm, |run| figure.of(run))).collect();
        let is_compared = is_one_origin || !figure.has_origin();
        let change = |later| is_compared.then(|| Change::between(&samples[0], later)).flatten();
        let changes = samples[1..].iter().map(change).collect();
        Row { figure, samples, changes }
    };
    let runs: Vec<&Run> = arms.iter().flat_map(|arm| &arm.runs).collect();
    known_figures(&runs).into_iter().map(row).collect()
}

/// Every figure that some run has, in the order of the table.
pub fn known_figures(runs: &[&Run]) -> Vec<Figure> {
    let figures = FIGURES.into_iter().filter(|figure| !figure.is_repetition(runs));
    figures.filter(|figure| runs.iter().any(|run| figure.of(run).is_some())).collect()
}

/// The samples of what an expression names.
pub fn metric_sample(arm: &Arm, metric: Metric) -> Sample {
    Sample::of(arm, |run| run.metric(metric))
}

/// Whether a metric of expressions counts from what `latency_origin` says.
pub fn metric_has_origin(metric: Metric) -> bool {
    matches!(metric, Metric::Latency(_) | Metric::Ttft(_))
}

#[cfg(test)]
mod tests {
    use super::super::arm::tests::arm;
    use super::super::run::tests::summary;
    use super::*;
    use serde_json::{Value, json};

    fn sample(values: &[f64]) -> Sample {
        let summaries = values.iter().map(|qps| summary(*qps, 1.0, 1.0));
        metric_sample(&arm("A", summaries), Metric::Qps)
    }

    #[test]
    fn medians_and_spreads_are_of_the_runs_that_have_the_figure() {
        assert_eq!(sample(&[3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(sample(&[4.0, 1.0, 2.0, 3.0]).median(), Some(2.5));
        assert_eq!(sample(&[4.0, 1.0]).spread(), Some((1.0, 4.0)));
        assert_eq!(sample(&[7.0]).spread(), None);
        let mut lacking = summary(1.0, 1.0, 1.0);
        lacking["qps"] = Value::Null;
        let sample =
            metric_sample(&arm("A", [lacking.clone(), summary(5.0, 1.0, 1.0)]), Metric::Qps);
        assert_eq!((sample.median(), sample.values().len(), sample.runs), (Some(5.0), 1, 2));
        assert_eq!(metric_sample(&arm("A", [lacking]), Metric::Qps).median(), None);
    }

    #[test]
    fn a_change_is_relative_to_the_first_and_needs_both_medians() {
        let change = |a: &[f64], b: &[f64]| Change::between(&sample(a), &sample(b));
        assert_eq!(change(&[200.0], &[250.0]), Some(Change { relative: 0.25, p: None }));
        assert_eq!(change(&[0.0], &[0.0]).expect("both known").relative, 0.0);
        assert_eq!(change(&[0.0], &[1.0]).expect("both known").relative, f64::INFINITY);
        assert_eq!(change(&[], &[1.0]), None);
    }

    #[test]
    fn significance_needs_four_runs_an_arm_and_values_that_keep_apart() {
        let change = |a: &[f64], b: &[f64]| Change::between(&sample(a), &sample(b)).expect("known");
        let (low, high) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert_eq!(change(&low, &high).is_significant(), Some(true));
        assert_eq!(change(&low[..3], &high).is_significant(), None);
        assert_eq!(change(&low, &high[1..]).is_significant(), None);
        // The controls: the same medians' distance, but one run crosses over.
        assert_eq!(change(&low, &[0.0, 6.0, 7.0, 8.0]).is_significant(), Some(false));
        assert_eq!(change(&low, &low).is_significant(), Some(false));
    }

    #[test]
    fn rows_are_those_that_a_run_has_and_the_service_only_where_it_is_no_repetition() {
        let names = |origin: &str| -> Vec<&str> {
            let mut later = summary(1.0, 1.0, 1.0);
            later["latency_origin"] = json!(origin);
            let arms = [arm("A", [summary(1.0, 1.0, 1.0)]), arm("B", [later])];
            rows(&arms, true).iter().map(|row| row.figure.name).collect()
        };
        let plain = [
            "achieved",
            "latency.p50",
            "latency.p90",
            "latency.p99",
            "latency.max",
            "latency.mean",
            "failed",
            "client busy",
        ];
        assert_eq!(names("sent"), plain);
        assert!(names("scheduled").contains(&"service.p99"));
    }

    #[test]
    fn latencies_of_different_origins_have_no_change() {
        let arms = ["A", "B"].map(|name| arm(name, [summary(1.0, 1.0, 1.0)]));
        for row in rows(&arms, false) {
            let is_latency = row.figure.name.starts_with("latency");
            assert_eq!(row.changes[0].is_none(), is_latency, "{}", row.figure.name);
        }
        assert!(rows(&arms, true).iter().all(|row| row.changes[0].is_some()));
    }

    #[test]
    fn times_to_first_tokens_count_from_an_origin_and_are_repeated_in_a_closed_loop() {
        let streamed = |origin: &str| {
            let mut summary = summary(1.0, 1.0, 1.0);
            let times = json!({ "percentiles": { "50.0": 2e8, "99.0": 4e8 } });
            (summary["ttft"], summary["service_ttft"]) = (times.clone(), times);
            summary["tps"] = json!(100.0);
            summary["latency_origin"] = json!(origin);
            summary
        };
        let names = |later: &str, is_one_origin| -> Vec<(&str, bool)> {
            let arms = [arm("A", [streamed("sent")]), arm("B", [streamed(later)])];
            let rows = rows(&arms, is_one_origin);
            let of_tokens = rows.iter().filter(|row| {
                row.figure.name.contains("ttft") || row.figure.name == "output tokens"
            });
            of_tokens.map(|row| (row.figure.name, row.changes[0].is_some())).collect()
        };
        let closed = [("output tokens", true), ("ttft.p50", true), ("ttft.p99", true)];
        assert_eq!(names("sent", true), closed);
        let mixed = [
            ("output tokens", true),
            ("ttft.p50", false),
            ("ttft.p99", false),
            ("service_ttft.p50", true),
            ("service_ttft.p99", true),
        ];
        assert_eq!(names("scheduled", false), mixed);
    }
}
