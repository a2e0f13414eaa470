//! Conditions on the figures of a run: `METRIC[.STAT] OP VALUE`, as in `latency.p99>50ms` or
//! `failed>0.1%`.
//!
//! Pure: text to [`Expression`], and [`Expression::holds`] on figures that the caller looks up.
//! `--abort-if` uses it today. The form `p99:50ms` states a goal instead (at most for times and
//! shares, at least for rates); it parses here and is refused where a goal makes no sense.

use std::fmt;

use crate::config::unit;

/// A figure that an expression can name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Headline latency of completed queries, ns.
    Latency(Stat),
    /// First byte of the response after the send, ns.
    Ttfb(Stat),
    /// Time to open a connection, ns.
    Connect(Stat),
    /// Failed queries, a count.
    Failed,
    /// Failed queries as a share of those that ended (completed or failed), 0 to 1.
    FailedShare,
    /// Completed queries, a count.
    Completed,
    /// Completed queries per second.
    Qps,
}

/// What is taken of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stat {
    /// Smallest value.
    Min,
    /// Arithmetic mean.
    Mean,
    /// Largest value.
    Max,
    /// Percentile, above 0 and below 100.
    Percentile(f64),
}

/// How figure and value are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

/// One condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// The figure on the left.
    pub metric: Metric,
    /// The comparison.
    pub operator: Operator,
    /// The value on the right, in the unit of the metric.
    pub value: f64,
    /// Written with `:`, so it states what should hold.
    pub is_goal: bool,
    /// As the user typed it.
    pub text: String,
}

impl Expression {
    /// Parses one expression. The error is a fragment without the flag's name.
    pub fn parse(text: &str) -> Result<Expression, String> {
        let Some(at) = text.find(['<', '>', ':', '=']) else {
            return Err(if parse_metric(text.trim()).is_ok() {
                "has no operator; did the shell take it as a redirection? Put the expression in \
                quotes, as in \
                 'p99>50ms'"
                    .to_string()
            } else {
                format!("is not METRIC OP VALUE; {FORM}")
            });
        };
        let (left, right) = text.split_at(at);
        let (symbol, value) = match right.as_bytes() {
            [b'<' | b'>', b'=', ..] => right.split_at(2),
            _ => right.split_at(1),
        };
        let (metric, value) = parse_value(parse_metric(left.trim())?, value.trim())?;
        let operator = match symbol {
            "<" => Operator::Below,
            "<=" => Operator::AtMost,
            ">" => Operator::Above,
            ">=" => Operator::AtLeast,
            ":" if matches!(metric, Metric::Qps | Metric::Completed) => Operator::AtLeast,
            ":" => Operator::AtMost,
            _ => {
                return Err(
                    "has the operator =, which is none; allowed: < <= > >= and :".to_string()
                );
            }
        };
        Ok(Expression { metric, operator, value, is_goal: symbol == ":", text: text.to_string() })
    }

    /// Whether the condition is true now; `None` while the figure is not known (nothing completed
    /// yet, say).
    pub fn holds(&self, lookup: impl Fn(&Metric) -> Option<f64>) -> Option<bool> {
        let figure = lookup(&self.metric)?;
        Some(match self.operator {
            Operator::Below => figure < self.value,
            Operator::AtMost => figure <= self.value,
            Operator::Above => figure > self.value,
            Operator::AtLeast => figure >= self.value,
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The figure that a name such as `latency.p99`, `p99` or `failed` stands for.
pub fn parse_metric(text: &str) -> Result<Metric, String> {
    // A statistic alone is of the latency. First, as `p99.9` has a point of its own.
    if let Some(stat) = parse_stat(text) {
        return Ok(Metric::Latency(stat));
    }
    let (name, stat) = match text.split_once('.') {
        Some((name, stat)) => (name, Some(stat)),
        None => (text, None),
    };
    let of_distribution = |metric: fn(Stat) -> Metric| match stat {
        Some(word) => parse_stat(word).map(metric).ok_or_else(|| {
            format!("has the statistic `{word}`; allowed: min, mean, max, p50 to p99.999")
        }),
        None => Err(format!("needs a statistic after `{name}`, as in {name}.p99")),
    };
    let of_number = |metric: Metric| match stat {
        Some(word) => Err(format!("has the statistic `{word}`, but `{name}` is one number")),
        None => Ok(metric),
    };
    match name {
        "latency" => of_distribution(Metric::Latency),
        "ttfb" => of_distribution(Metric::Ttfb),
        "connect" => of_distribution(Metric::Connect),
        "failed" => of_number(Metric::Failed),
        "completed" => of_number(Metric::Completed),
        "qps" | "achieved" => of_number(Metric::Qps),
        "ttft" | "tpot" | "chunk_delta" | "itl" | "tps" | "osl" | "goodput" | "service"
        | "lateness" | "pool_wait" => {
            Err(format!("names `{name}`, which this version does not measure; {FORM}"))
        }
        _ => Err(format!("names no metric before the operator (`{name}`); {FORM}")),
    }
}

fn parse_stat(text: &str) -> Option<Stat> {
    match text {
        "min" => Some(Stat::Min),
        "mean" | "avg" => Some(Stat::Mean),
        "max" => Some(Stat::Max),
        "median" => Some(Stat::Percentile(50.0)),
        _ => {
            let percent = text.strip_prefix('p').and_then(number)?;
            (percent > 0.0 && percent < 100.0).then_some(Stat::Percentile(percent))
        }
    }
}

/// The value in the metric's unit. `failed` against a percentage becomes the share of failures.
fn parse_value(metric: Metric, text: &str) -> Result<(Metric, f64), String> {
    let allowed = |form: &str| format!("has the value `{text}`; allowed: {form}");
    match metric {
        Metric::Latency(_) | Metric::Ttfb(_) | Metric::Connect(_) => unit::time_ns_with_unit(text)
            .map(|ns| (metric, ns as f64))
            .ok_or_else(|| allowed("a time with its unit, such as 50ms or 1.5s")),
        Metric::Failed | Metric::FailedShare => match text.strip_suffix('%') {
            Some(percent) => number(percent)
                .filter(|percent| *percent <= 100.0)
                .map(|percent| (Metric::FailedShare, percent / 100.0))
                .ok_or_else(|| allowed("a share from 0% to 100%")),
            None => unit::count(text)
                .map(|count| (Metric::Failed, count as f64))
                .ok_or_else(|| allowed("a count such as 100 or 10k, or a share such as 0.1%")),
        },
        Metric::Completed => unit::count(text)
            .map(|count| (metric, count as f64))
            .ok_or_else(|| allowed("a count such as 100 or 10k")),
        Metric::Qps if text.contains("target") => {
            Err("compares with the target rate, which a closed loop does not have".to_string())
        }
        Metric::Qps => {
            let rate = text.strip_suffix("/s").unwrap_or(text);
            let whole = unit::count(rate).map(|count| count as f64);
            whole
                .or_else(|| number(rate))
                .map(|rate| (metric, rate))
                .ok_or_else(|| allowed("a rate per second such as 1000, 0.5 or 10k"))
        }
    }
}

/// A plain decimal number: digits and at most one point, with digits on both sides.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let closed = !text.starts_with('.') && !text.ends_with('.');
    if plain && closed { text.parse().ok() } else { None }
}

const FORM: &str = "allowed: latency.p99>50ms (or p99>50ms), ttfb.STAT, connect.STAT, \
    failed>0.1%, failed>100, \
                    completed>1000, qps<1000; STAT is min, mean, max or pNN";

#[cfg(test)]
mod tests {
    use super::*;

    fn p(percent: f64) -> Stat {
        Stat::Percentile(percent)
    }

    #[test]
    fn every_form_of_the_grammar_parses_to_its_meaning() {
        use Operator::{Above, AtLeast, AtMost, Below};
        for (text, metric, operator, value, is_goal) in [
            ("latency.p99>50ms", Metric::Latency(p(99.0)), Above, 5e7, false),
            ("p99>50ms", Metric::Latency(p(99.0)), Above, 5e7, false),
            ("p99.9>=1.5s", Metric::Latency(p(99.9)), AtLeast, 1.5e9, false),
            ("latency.p99.99<1ms", Metric::Latency(p(99.99)), Below, 1e6, false),
            ("max <= 1m30s", Metric::Latency(Stat::Max), AtMost, 9e10, false),
            ("ttfb.mean>3us", Metric::Ttfb(Stat::Mean), Above, 3e3, false),
            ("connect.median>1ms", Metric::Connect(p(50.0)), Above, 1e6, false),
            ("p99:50ms", Metric::Latency(p(99.0)), AtMost, 5e7, true),
            ("failed>0.1%", Metric::FailedShare, Above, 0.001, false),
            ("failed:1%", Metric::FailedShare, AtMost, 0.01, true),
            ("failed>100", Metric::Failed, Above, 100.0, false),
            ("failed > 10k", Metric::Failed, Above, 10_000.0, false),
            ("completed>1M", Metric::Completed, Above, 1e6, false),
            ("qps<1000", Metric::Qps, Below, 1000.0, false),
            ("achieved<0.5/s", Metric::Qps, Below, 0.5, false),
            ("qps:10k", Metric::Qps, AtLeast, 10_000.0, true),
        ] {
            let got = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let text = text.to_string();
            assert_eq!(got, Expression { metric, operator, value, is_goal, text });
        }
    }

    #[test]
    fn an_error_says_what_is_wrong_and_what_is_allowed() {
        for (text, says) in [
            ("p99", "did the shell take it"),
            ("failed", "did the shell take it"),
            ("latency.p99", "did the shell take it"),
            ("", "METRIC OP VALUE"),
            ("nonsense", "METRIC OP VALUE"),
            ("foo>1", "names no metric"),
            (">50ms", "names no metric"),
            ("ttft.p99>50ms", "does not measure"),
            ("latency>50ms", "needs a statistic"),
            ("latency.p0>50ms", "p50 to p99.999"),
            ("latency.p100>50ms", "p50 to p99.999"),
            ("latency.foo>50ms", "p50 to p99.999"),
            ("failed.p99>3", "one number"),
            ("p99>50", "a time with its unit"),
            ("p99>", "a time with its unit"),
            ("p99>50ms>40ms", "a time with its unit"),
            ("p99>-1ms", "a time with its unit"),
            ("failed>101%", "0% to 100%"),
            ("failed>x", "a count such as"),
            ("failed>1.5", "a count such as"),
            ("qps<NaN", "a rate per second"),
            ("qps<inf", "a rate per second"),
            ("achieved<0.99*target", "target rate"),
            ("p99=50ms", "the operator ="),
            ("p99=>50ms", "a time with its unit"),
        ] {
            let error = Expression::parse(text).expect_err(text);
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn comparison_is_strict_where_the_operator_is_and_unknown_stays_unknown() {
        for (text, figure, holds) in [
            ("p99>50ms", 5e7, false),
            ("p99>50ms", 5e7 + 1.0, true),
            ("p99>=50ms", 5e7, true),
            ("p99<50ms", 5e7, false),
            ("p99<=50ms", 5e7, true),
            ("p99:50ms", 5e7, true),
            ("qps:100", 99.0, false),
        ] {
            let expression = Expression::parse(text).expect("valid");
            assert_eq!(expression.holds(|_| Some(figure)), Some(holds), "{text} at {figure}");
            assert_eq!(expression.holds(|_| None), None);
        }
    }
}
