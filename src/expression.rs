//! Conditions on the figures of a run: `METRIC[.STAT] OP VALUE`, as in `latency.p99>50ms` or
//! `failed>0.1%`; and the goals of a single request, as in `latency:50ms ttfb:5ms`.
//!
//! Pure: text to [`Expression`], and [`Expression::holds`] on figures that the caller looks up. The
//! form `p99:50ms` states a goal (at least for rates and what is completed, at most for everything
//! else); it is refused where a goal makes no sense.

mod request_goal;

use std::fmt;

use crate::config::unit;

pub use request_goal::{RequestFigure, RequestGoal};

/// A figure that an expression can name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Headline latency of completed queries, ns: from the schedule, in closed loop from the send.
    Latency(Stat),
    /// Latency from the send, ns.
    Service(Stat),
    /// Dispatch after the scheduled instant, ns.
    Lateness(Stat),
    /// Wait for a connection, ns.
    PoolWait(Stat),
    /// First byte of the response after the send, ns.
    Ttfb(Stat),
    /// Time to open a connection, ns.
    Connect(Stat),
    /// Length of a TLS handshake, ns.
    Tls(Stat),
    /// Headline time to the first token, ns: from the schedule, in closed loop from the send.
    Ttft(Stat),
    /// Time from the send to the first token, ns.
    ServiceTtft(Stat),
    /// Time per output token of an answer, ns.
    Tpot(Stat),
    /// Gaps between chunks, pooled over answers, ns.
    ChunkDelta(Stat),
    /// Tokens of the prompt, a count.
    Isl(Stat),
    /// Generated tokens of an answer, a count.
    Osl(Stat),
    /// Generated tokens per second.
    Tps,
    /// Generated and prompt tokens per second.
    TotalTps,
    /// Prompt tokens from the endpoint's cache as a share of all, 0 to 1.
    CachedShare,
    /// Failed queries, a count.
    Failed,
    /// Failed queries as a share of those that ended (completed or failed), 0 to 1.
    FailedShare,
    /// Completed queries, a count.
    Completed,
    /// Queries dropped by `--overload drop`, a count.
    Dropped,
    /// Dropped queries as a share of those scheduled, 0 to 1.
    DroppedShare,
    /// Completed queries per second.
    Qps,
    /// Queries taken from the schedule, issued or dropped, per second.
    Offered,
    /// Scheduled queries per second.
    Scheduled,
    /// Queries per second that kept every goal of `--goodput`.
    Goodput,
    /// Queries that kept every goal of `--goodput` as a share of those that ended, 0 to 1.
    GoodputShare,
    /// The rate that was asked for, per second. Never on the left of an operator.
    Target,
}

/// What the numbers of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// ns.
    Time,
    /// Things counted.
    Count,
    /// 0 to 1.
    Share,
    /// Per second.
    Rate,
}

impl Metric {
    /// What its numbers are.
    pub const fn unit(self) -> Unit {
        match self {
            Metric::Latency(_)
            | Metric::Service(_)
            | Metric::Lateness(_)
            | Metric::PoolWait(_)
            | Metric::Ttfb(_)
            | Metric::Connect(_)
            | Metric::Tls(_)
            | Metric::Ttft(_)
            | Metric::ServiceTtft(_)
            | Metric::Tpot(_)
            | Metric::ChunkDelta(_) => Unit::Time,
            Metric::Failed
            | Metric::Completed
            | Metric::Dropped
            | Metric::Isl(_)
            | Metric::Osl(_) => Unit::Count,
            Metric::FailedShare
            | Metric::DroppedShare
            | Metric::GoodputShare
            | Metric::CachedShare => Unit::Share,
            Metric::Qps
            | Metric::Offered
            | Metric::Scheduled
            | Metric::Goodput
            | Metric::Target
            | Metric::Tps
            | Metric::TotalTps => Unit::Rate,
        }
    }

    /// Whether only the answers of an inference endpoint have it.
    pub const fn is_of_answers(self) -> bool {
        matches!(
            self,
            Metric::Ttft(_)
                | Metric::ServiceTtft(_)
                | Metric::Tpot(_)
                | Metric::ChunkDelta(_)
                | Metric::Isl(_)
                | Metric::Osl(_)
                | Metric::Tps
                | Metric::TotalTps
                | Metric::CachedShare
        )
    }

    /// Whether only a load with a schedule has it.
    pub fn needs_schedule(&self) -> bool {
        matches!(
            self,
            Metric::Lateness(_)
                | Metric::PoolWait(_)
                | Metric::Dropped
                | Metric::DroppedShare
                | Metric::Offered
                | Metric::Scheduled
                | Metric::Target
        )
    }

    /// Whether it needs `--goodput`.
    pub fn needs_goodput(&self) -> bool {
        matches!(self, Metric::Goodput | Metric::GoodputShare)
    }

    fn is_better_high(self) -> bool {
        matches!(
            self,
            Metric::Completed
                | Metric::Qps
                | Metric::Offered
                | Metric::Scheduled
                | Metric::Goodput
                | Metric::GoodputShare
                | Metric::Tps
                | Metric::TotalTps
        )
    }
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
    /// The value on the right, in the unit of the metric; with `of_target` a factor.
    pub value: f64,
    /// The value is a factor of [`Metric::Target`].
    pub of_target: bool,
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
        let metric = parse_metric(left.trim())?;
        let factor = value.trim().strip_suffix("*target");
        let (metric, value) = match factor {
            Some(factor) => (metric, parse_factor(metric, factor.trim())?),
            None => parse_value(metric, value.trim())?,
        };
        let operator = match symbol {
            "<" => Operator::Below,
            "<=" => Operator::AtMost,
            ">" => Operator::Above,
            ">=" => Operator::AtLeast,
            ":" if metric.is_better_high() => Operator::AtLeast,
            ":" => Operator::AtMost,
            _ => {
                return Err(
                    "has the operator =, which is none; allowed: < <= > >= and :".to_string()
                );
            }
        };
        Ok(Expression {
            metric,
            operator,
            value,
            of_target: factor.is_some(),
            is_goal: symbol == ":",
            text: text.to_string(),
        })
    }

    /// Whether the condition is true now; `None` while a figure is not known (nothing completed
    /// yet, say).
    pub fn holds(&self, lookup: impl Fn(&Metric) -> Option<f64>) -> Option<bool> {
        let figure = lookup(&self.metric)?;
        let unit = if self.of_target { lookup(&Metric::Target)? } else { 1.0 };
        let value = self.value * unit;
        Some(match self.operator {
            Operator::Below => figure < value,
            Operator::AtMost => figure <= value,
            Operator::Above => figure > value,
            Operator::AtLeast => figure >= value,
        })
    }

    /// Whether only a load with a schedule can answer it.
    pub fn needs_schedule(&self) -> bool {
        self.of_target || self.metric.needs_schedule()
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
        "service" => of_distribution(Metric::Service),
        "lateness" => of_distribution(Metric::Lateness),
        "pool_wait" => of_distribution(Metric::PoolWait),
        "ttfb" => of_distribution(Metric::Ttfb),
        "connect" => of_distribution(Metric::Connect),
        "failed" => of_number(Metric::Failed),
        "completed" => of_number(Metric::Completed),
        "dropped" => of_number(Metric::Dropped),
        "qps" | "achieved" => of_number(Metric::Qps),
        "offered" => of_number(Metric::Offered),
        "scheduled" => of_number(Metric::Scheduled),
        "goodput" => of_number(Metric::Goodput),
        "tls" => of_distribution(Metric::Tls),
        "ttft" => of_distribution(Metric::Ttft),
        "service_ttft" => of_distribution(Metric::ServiceTtft),
        "tpot" => of_distribution(Metric::Tpot),
        "chunk_delta" | "gaps" => of_distribution(Metric::ChunkDelta),
        "isl" => of_distribution(Metric::Isl),
        "osl" => of_distribution(Metric::Osl),
        "tps" | "output_tps" => of_number(Metric::Tps),
        "total_tps" => of_number(Metric::TotalTps),
        "cached" => of_number(Metric::CachedShare),
        "itl" => {
            Err("names `itl`, which means one thing in each tool; allowed: tpot (one value a \
                      request) or chunk_delta (the gaps between chunks)"
                .to_owned())
        }
        _ => Err(format!("names no metric before the operator (`{name}`); {FORM}")),
    }
}

/// `mean`, `max`, `p99.9` and the like.
pub fn parse_stat(text: &str) -> Option<Stat> {
    match text {
        "min" => Some(Stat::Min),
        "mean" | "avg" => Some(Stat::Mean),
        "max" => Some(Stat::Max),
        "median" => Some(Stat::Percentile(50.0)),
        _ => {
            let percent = text.strip_prefix('p').and_then(unit::decimal)?;
            (percent > 0.0 && percent < 100.0).then_some(Stat::Percentile(percent))
        }
    }
}

/// The value in the metric's unit. A count or rate against a percentage becomes the share.
fn parse_value(metric: Metric, text: &str) -> Result<(Metric, f64), String> {
    let allowed = |form: &str| format!("has the value `{text}`; allowed: {form}");
    let count = |form: &str| {
        unit::count(text).map(|count| (metric, count as f64)).ok_or_else(|| allowed(form))
    };
    let share_of = |metric: Metric| {
        unit::share(text)
            .map(|share| (metric, share))
            .ok_or_else(|| allowed("a share from 0% to 100%"))
    };
    let is_share = text.ends_with('%');
    match metric {
        Metric::Failed | Metric::FailedShare if is_share => share_of(Metric::FailedShare),
        Metric::Dropped | Metric::DroppedShare if is_share => share_of(Metric::DroppedShare),
        Metric::Goodput | Metric::GoodputShare if is_share => share_of(Metric::GoodputShare),
        Metric::Failed | Metric::FailedShare | Metric::Dropped | Metric::DroppedShare => {
            count("a count such as 100 or 10k, or a share such as 0.1%")
        }
        Metric::CachedShare => share_of(metric),
        _ => match metric.unit() {
            Unit::Time => unit::time_ns_with_unit(text)
                .map(|ns| (metric, ns as f64))
                .ok_or_else(|| allowed("a time with its unit, such as 50ms or 1.5s")),
            Unit::Count => count("a count such as 100 or 10k"),
            // A share without its sign is a rate: `goodput>95`.
            Unit::Rate | Unit::Share => unit::rate(text)
                .map(|rate| (metric, rate))
                .ok_or_else(|| allowed("a rate per second such as 1000, 0.5 or 10k")),
        },
    }
}

/// The factor in `achieved<0.99*target`.
fn parse_factor(metric: Metric, text: &str) -> Result<f64, String> {
    let is_rate =
        matches!(metric, Metric::Qps | Metric::Offered | Metric::Scheduled | Metric::Goodput);
    if !is_rate {
        return Err("compares with the target rate what is no rate; allowed: achieved, offered, \
                    scheduled or goodput, as in achieved<0.99*target"
            .to_string());
    }
    unit::decimal(text).ok_or_else(|| {
        format!("has the factor `{text}`; allowed: a number, as in achieved<0.99*target")
    })
}

const FORM: &str = "allowed: latency.p99>50ms (or p99>50ms), and service, lateness, pool_wait, \
    ttfb, connect, tls, ttft, service_ttft, tpot, chunk_delta, isl or osl with .STAT; \
    failed>0.1%, dropped>100, completed>1000, achieved<0.99*target, offered, scheduled, \
    goodput>95%, tps>5k, total_tps, cached<1%; STAT is min, mean, max or pNN";

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
            ("service.p99>50ms", Metric::Service(p(99.0)), Above, 5e7, false),
            ("lateness.p50<1us", Metric::Lateness(p(50.0)), Below, 1e3, false),
            ("pool_wait.max:2ms", Metric::PoolWait(Stat::Max), AtMost, 2e6, true),
            ("dropped>0", Metric::Dropped, Above, 0.0, false),
            ("dropped:1%", Metric::DroppedShare, AtMost, 0.01, true),
            ("offered<90/m", Metric::Offered, Below, 1.5, false),
            ("scheduled>=1k", Metric::Scheduled, AtLeast, 1000.0, false),
            ("goodput:500", Metric::Goodput, AtLeast, 500.0, true),
            ("goodput<95%", Metric::GoodputShare, Below, 0.95, false),
            ("p99:50ms", Metric::Latency(p(99.0)), AtMost, 5e7, true),
            ("failed>0.1%", Metric::FailedShare, Above, 0.001, false),
            ("failed:1%", Metric::FailedShare, AtMost, 0.01, true),
            ("failed>100", Metric::Failed, Above, 100.0, false),
            ("failed > 10k", Metric::Failed, Above, 10_000.0, false),
            ("completed>1M", Metric::Completed, Above, 1e6, false),
            ("qps<1000", Metric::Qps, Below, 1000.0, false),
            ("achieved<0.5/s", Metric::Qps, Below, 0.5, false),
            ("qps:10k", Metric::Qps, AtLeast, 10_000.0, true),
            ("ttft.p99:500ms", Metric::Ttft(p(99.0)), AtMost, 5e8, true),
            ("service_ttft.p50<1s", Metric::ServiceTtft(p(50.0)), Below, 1e9, false),
            ("tpot.mean>30ms", Metric::Tpot(Stat::Mean), Above, 3e7, false),
            ("chunk_delta.p99:40ms", Metric::ChunkDelta(p(99.0)), AtMost, 4e7, true),
            ("gaps.max<1s", Metric::ChunkDelta(Stat::Max), Below, 1e9, false),
            ("tls.p50<2ms", Metric::Tls(p(50.0)), Below, 2e6, false),
            ("osl.mean>=100", Metric::Osl(Stat::Mean), AtLeast, 100.0, false),
            ("isl.max<4k", Metric::Isl(Stat::Max), Below, 4000.0, false),
            ("tps:5k", Metric::Tps, AtLeast, 5000.0, true),
            ("output_tps<10", Metric::Tps, Below, 10.0, false),
            ("total_tps>1M", Metric::TotalTps, Above, 1e6, false),
            ("cached:1%", Metric::CachedShare, AtMost, 0.01, true),
        ] {
            let got = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let text = text.to_string();
            let of_target = false;
            assert_eq!(got, Expression { metric, operator, value, of_target, is_goal, text });
        }
    }

    #[test]
    fn a_factor_multiplies_the_target_rate() {
        for (text, metric, operator, factor) in [
            ("achieved<0.99*target", Metric::Qps, Operator::Below, 0.99),
            ("offered:1*target", Metric::Offered, Operator::AtLeast, 1.0),
            ("goodput >= 0.9 *target", Metric::Goodput, Operator::AtLeast, 0.9),
        ] {
            let got = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((got.metric, got.operator, got.value), (metric, operator, factor), "{text}");
            assert!(got.of_target && got.needs_schedule(), "{text}");
        }
        let rule = Expression::parse("achieved<0.99*target").expect("valid");
        let at = |achieved: f64, target: Option<f64>| {
            rule.holds(|metric| if *metric == Metric::Target { target } else { Some(achieved) })
        };
        assert_eq!(at(98.9, Some(100.0)), Some(true));
        assert_eq!(at(99.0, Some(100.0)), Some(false));
        assert_eq!(at(99.0, None), None);
    }

    #[test]
    fn what_only_a_schedule_has_is_known() {
        for (text, needs_schedule) in [
            ("p99>1ms", false),
            ("service.p99>1ms", false),
            ("qps<1", false),
            ("goodput<1", false),
            ("lateness.p99>1ms", true),
            ("pool_wait.p99>1ms", true),
            ("offered<1", true),
            ("scheduled<1", true),
            ("dropped>1%", true),
            ("qps<1*target", true),
        ] {
            let expression = Expression::parse(text).expect("valid");
            assert_eq!(expression.needs_schedule(), needs_schedule, "{text}");
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
            ("itl.p99>50ms", "one thing in each tool"),
            ("ttft>50ms", "needs a statistic"),
            ("ttft.p99>50", "a time with its unit"),
            ("osl.p50>5ms", "a count such as"),
            ("tps.p99>5", "one number"),
            ("tps<1*target", "no rate"),
            ("cached>3", "0% to 100%"),
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
            ("achieved<x*target", "the factor `x`"),
            ("achieved<*target", "the factor"),
            ("achieved<-1*target", "the factor"),
            ("p99>2*target", "no rate"),
            ("failed>2*target", "no rate"),
            ("target>5", "names no metric"),
            ("goodput>101%", "0% to 100%"),
            ("lateness>5ms", "needs a statistic"),
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
