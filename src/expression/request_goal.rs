//! What one request has to keep to count as good: `latency:50ms ttfb:5ms`.

use crate::config::unit;

/// A time of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFigure {
    /// Headline latency: from the schedule, in closed loop from the send.
    Latency,
    /// Latency from the send.
    Service,
    /// First byte of the response after the send.
    Ttfb,
    /// Headline time to the first token.
    Ttft,
    /// First token after the send.
    ServiceTtft,
    /// Time per output token.
    Tpot,
}

impl RequestFigure {
    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            RequestFigure::Latency => "latency",
            RequestFigure::Service => "service",
            RequestFigure::Ttfb => "ttfb",
            RequestFigure::Ttft => "ttft",
            RequestFigure::ServiceTtft => "service_ttft",
            RequestFigure::Tpot => "tpot",
        }
    }

    /// Whether only the answers of an inference endpoint have it.
    pub const fn is_of_answers(self) -> bool {
        match self {
            RequestFigure::Latency | RequestFigure::Service | RequestFigure::Ttfb => false,
            RequestFigure::Ttft | RequestFigure::ServiceTtft | RequestFigure::Tpot => true,
        }
    }

    const ALL: [RequestFigure; 6] = [
        RequestFigure::Latency,
        RequestFigure::Service,
        RequestFigure::Ttfb,
        RequestFigure::Ttft,
        RequestFigure::ServiceTtft,
        RequestFigure::Tpot,
    ];
}

/// One goal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestGoal {
    /// What is limited.
    pub figure: RequestFigure,
    /// To this, inclusive, ns.
    pub at_most_ns: u64,
}

impl RequestGoal {
    /// Parses goals between blanks or commas, at least one. The error is a fragment without the
    /// flag's name.
    pub fn parse_list(text: &str) -> Result<Vec<RequestGoal>, String> {
        let words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let goals = words.map(RequestGoal::parse).collect::<Result<Vec<_>, _>>()?;
        let twice = goals.iter().enumerate().find(|(index, goal)| {
            goals[..*index].iter().any(|earlier| earlier.figure == goal.figure)
        });
        match twice {
            Some((_, goal)) => Err(format!("has two goals for `{}`", goal.figure.name())),
            None if goals.is_empty() => Err(format!("has no goal; {FORM}")),
            None => Ok(goals),
        }
    }

    fn parse(word: &str) -> Result<RequestGoal, String> {
        let (name, value) = word
            .split_once(':')
            .ok_or_else(|| format!("has `{word}`, which is no goal; {FORM}"))?;
        // vLLM's word for the latency.
        let name = if name == "e2el" { "latency" } else { name };
        let figure = RequestFigure::ALL.into_iter().find(|figure| figure.name() == name);
        let figure = figure.ok_or_else(|| format!("has a goal for `{name}`; {FORM}"))?;
        let time = unit::time_ns_with_unit(value).filter(|ns| *ns > 0);
        let at_most_ns = time.ok_or_else(|| format!("has the time `{value}`; {FORM}"))?;
        Ok(RequestGoal { figure, at_most_ns })
    }

    /// As typed.
    pub fn text(&self) -> String {
        format!("{}:{}", self.figure.name(), unit::time_text(self.at_most_ns))
    }
}

const FORM: &str = "allowed: latency, service, ttfb, ttft, service_ttft and tpot, each with a \
                    time, as in 'latency:50ms ttfb:5ms' or 'ttft:500ms tpot:50ms'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_listed_with_blanks_or_commas() {
        let latency = RequestGoal { figure: RequestFigure::Latency, at_most_ns: 50_000_000 };
        let ttfb = RequestGoal { figure: RequestFigure::Ttfb, at_most_ns: 1_500_000 };
        let service = RequestGoal { figure: RequestFigure::Service, at_most_ns: 1_000_000_000 };
        let ttft = RequestGoal { figure: RequestFigure::Ttft, at_most_ns: 500_000_000 };
        let tpot = RequestGoal { figure: RequestFigure::Tpot, at_most_ns: 50_000_000 };
        for (text, goals) in [
            ("ttft:500ms tpot:50ms", vec![ttft, tpot]),
            ("e2el:50ms,tpot:0.05s", vec![latency, tpot]),
            ("latency:50ms", vec![latency]),
            ("latency:50ms ttfb:1.5ms", vec![latency, ttfb]),
            (" ttfb:1500us,service:1s ", vec![ttfb, service]),
        ] {
            assert_eq!(RequestGoal::parse_list(text), Ok(goals.clone()), "{text}");
            let written: Vec<String> = goals.iter().map(RequestGoal::text).collect();
            assert_eq!(RequestGoal::parse_list(&written.join(" ")), Ok(goals), "written back");
        }
    }

    #[test]
    fn what_is_no_goal_is_refused_with_the_reason() {
        for (text, says) in [
            ("", "no goal"),
            (" , ", "no goal"),
            ("latency", "`latency`, which is no goal"),
            ("latency<5ms", "which is no goal"),
            ("latency:5", "the time `5`"),
            ("latency:0ms", "the time `0ms`"),
            ("latency:-5ms", "the time `-5ms`"),
            ("p99:5ms", "a goal for `p99`"),
            ("itl:50ms", "a goal for `itl`"),
            ("tpot:50", "the time `50`"),
            ("latency:1s e2el:2s", "two goals for `latency`"),
            ("ttfb:1ms ttfb:2ms", "two goals for `ttfb`"),
        ] {
            let error = RequestGoal::parse_list(text).expect_err(text);
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
