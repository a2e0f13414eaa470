//! D2, D14 and D17: do the figures agree with each other, and does the histogram hold them?

use super::facts::{Facts, fails, mark, percent, percentile_name};
use super::{Check, Class, Level, Line, Mark};
use crate::number::{grouped, time};
use crate::snapshot::{Distribution, PERCENTILES, check_accounts, little_residual_ns};

/// More of the load than this belonging to requests without an end is worth a word.
const UNFINISHED_WARN: f64 = 0.05;

const CONSERVATION: Line =
    Line { id: "D2", name: "conservation", class: Class::Instrument, unit: "" };
const LITTLE: Line = Line { id: "D14", name: "Little's law", class: Class::Instrument, unit: "ns" };
const HISTOGRAM: Line = Line { id: "D17", name: "histogram", class: Class::Instrument, unit: "" };

/// D2: no request is lost or counted twice.
pub(super) fn conservation(facts: &Facts) -> Check {
    match check_accounts(facts.phase) {
        Ok(()) => {
            let counters = &facts.counters;
            let due = if facts.is_open {
                format!(
                    "{} due = {} issued + {} dropped + {} not begun; ",
                    grouped(counters.scheduled),
                    grouped(counters.issued),
                    grouped(counters.dropped),
                    grouped(counters.untaken)
                )
            } else {
                String::new()
            };
            let reason = format!(
                "{due}{} issued = {} completed + {} failed + {} cancelled + {} without an end",
                grouped(counters.issued),
                grouped(counters.completed),
                grouped(counters.failed),
                grouped(counters.cancelled),
                grouped(facts.phase.in_flight_at_end)
            );
            CONSERVATION.says(Level::Ok, None, reason)
        }
        Err(what) => {
            let reason = format!("{what}: a fault of loadgen-uring, please report it");
            CONSERVATION.says(Level::Fail, None, reason)
        }
    }
}

/// D14: the number of requests present, integrated, is the sum of their times; exactly.
pub(super) fn little(facts: &Facts) -> Check {
    let Some(residual_ns) = little_residual_ns(facts.phase) else {
        return LITTLE.says(Level::Ok, None, "not judged: the phase did not end as planned");
    };
    let value = Some(residual_ns as f64);
    if residual_ns != 0 {
        let reason = format!(
            "the requests present and the sum of their times differ by {residual_ns} ns: a fault \
             of loadgen-uring, please report it"
        );
        return LITTLE.says(Level::Fail, value, reason);
    }
    let area_ns = facts.sums.area_ns as f64;
    let unfinished_ns = facts.phase.survivors_ns.unwrap_or(0) as f64;
    // Over the drain too, as the integral is.
    let length_ns = facts.phase.end_ns.saturating_sub(facts.phase.start_ns);
    let mean = (length_ns > 0).then(|| area_ns / length_ns as f64);
    let mean =
        mean.map_or(String::new(), |mean| format!("{mean:.2} requests present on average; "));
    if area_ns > 0.0 && unfinished_ns / area_ns > UNFINISHED_WARN {
        let reason = format!(
            "{mean}{} of their time belongs to requests that had no end yet, so no latency tells \
             of it: a longer --drain-timeout",
            percent(unfinished_ns / area_ns)
        );
        return LITTLE.says(Level::Warn, value, reason);
    }
    LITTLE.says(
        Level::Ok,
        value,
        format!("{mean}their integral is the sum of their times, to the ns"),
    )
}

/// D17: values beyond an hour are kept as an hour.
pub(super) fn clamped(facts: &Facts, marks: &mut Vec<Mark>) -> Check {
    let mut level = Level::Ok;
    let mut clamped = 0;
    let mut touched = String::new();
    let all = [("latency", facts.headline()), ("service", &facts.sums.service)];
    let series = if facts.is_open { &all[..] } else { &all[..1] };
    for (name, distribution) in series {
        clamped += distribution.clamped_high;
        for percentile in PERCENTILES.iter().filter(|p| is_clamped(distribution, p.milli)) {
            let reason = "longer than the hour that the histogram holds";
            marks.push(Mark { series: name, is_at_least: true, ..mark(percentile.milli, reason) });
            if fails(percentile.milli) {
                level = Level::Fail;
                touched = percentile_name(percentile.milli);
            }
        }
        if distribution.clamped_high > 0 {
            level = level.max(Level::Warn);
        }
    }
    let value = Some(clamped as f64);
    match level {
        Level::Ok => HISTOGRAM.says(
            level,
            value,
            "every value within 1 ns to 1 h; buckets at most 0.1 % wide; minimum and maximum exact",
        ),
        Level::Warn => HISTOGRAM.says(
            level,
            value,
            format!(
                "{} longer than 1 h, kept as 1 h: the maximum {} is exact",
                grouped(clamped),
                facts.headline().largest().map_or(String::new(), time)
            ),
        ),
        Level::Fail => HISTOGRAM.says(
            level,
            value,
            format!(
                "{} longer than 1 h, kept as 1 h, so that {touched} is wrong: set --timeout",
                grouped(clamped)
            ),
        ),
    }
}

/// Whether the value at a percentile is one that was clamped.
fn is_clamped(distribution: &Distribution, milli: u32) -> bool {
    let beyond = 1.0 - f64::from(milli) / 1e5;
    distribution.clamped_high as f64 > beyond * distribution.count() as f64
}
