//! `--rate-series`: a rate over time from a file.
//!
//! One point a line, `TIME RATE` or `TIME,RATE`; between the points the rate changes linearly, two
//! points of one instant are a jump, the first rate holds from the start and the last one to the
//! end. Empty lines and what follows a `#` are skipped.

use std::path::Path;

use super::unit;
use crate::error::{Error, shown};

/// Points `(since the phase began in ns, rate per second)`, times never falling.
pub type Series = Vec<(u64, f64)>;

/// Reads and parses the file.
pub fn read(path: &Path) -> Result<Series, Error> {
    let name = shown(&path.to_string_lossy());
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::usage(format!("--rate-series got `{name}`: {error}")))?;
    parse(&text).map_err(|why| Error::usage(format!("--rate-series got `{name}`, {why}")))
}

/// The error is a fragment that names the line.
fn parse(text: &str) -> Result<Series, String> {
    let mut series: Series = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let wrong = |what: &str| {
            format!("whose line {} is `{}`, {what}; {FORM}", index + 1, shown(line.trim()))
        };
        let (time_ns, rate) = point(content).ok_or_else(|| wrong("which is no time and rate"))?;
        if rate > unit::RATE_MAX || (rate > 0.0 && rate < unit::RATE_MIN) {
            return Err(wrong("with a rate that is none"));
        }
        if series.last().is_some_and(|(before_ns, _)| *before_ns > time_ns) {
            return Err(wrong("which is before the line above it"));
        }
        series.push((time_ns, rate));
    }
    if series.iter().all(|(_, rate)| *rate == 0.0) {
        return Err(format!("which has no rate above 0; {FORM}"));
    }
    Ok(series)
}

fn point(content: &str) -> Option<(u64, f64)> {
    let (time, rate) = content.split_once(',').or(content.split_once([' ', '\t']))?;
    Some((unit::time_ns(time.trim())?, unit::rate(rate.trim())?))
}

const FORM: &str = "allowed: lines of a time and a rate, such as `0 100` or `1m30s,2.5k`, times \
                    rising, rates from 0 to 10M a second";

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = unit::NS_PER_S;

    #[test]
    fn points_are_lines_of_time_and_rate() {
        for (text, points) in [
            ("0 100", vec![(0, 100.0)]),
            ("0,100\n10,200\n", vec![(0, 100.0), (10 * S, 200.0)]),
            ("0 0\n500ms 1k\n1m30s\t90/m", vec![(0, 0.0), (S / 2, 1000.0), (90 * S, 1.5)]),
            ("# time rate\n\n  1 , 5  # five\r\n2   6\r\n", vec![(S, 5.0), (2 * S, 6.0)]),
            ("0 1\n5 1\n5 2", vec![(0, 1.0), (5 * S, 1.0), (5 * S, 2.0)]),
        ] {
            assert_eq!(parse(text), Ok(points), "{text:?}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number_and_text() {
        for (text, says) in [
            ("", "no rate above 0"),
            ("# nothing", "no rate above 0"),
            ("0 0\n5 0", "no rate above 0"),
            ("time,rate\n0,5", "line 1 is `time,rate`"),
            ("0 5\n\n7", "line 3 is `7`"),
            ("0 5\n1 6 7", "line 2 is `1 6 7`"),
            ("0,5,6", "line 1 is `0,5,6`"),
            ("0 -5", "line 1 is `0 -5`"),
            ("0 NaN", "line 1 is `0 NaN`"),
            ("-1 5", "line 1 is `-1 5`"),
            ("0 5\n2 5\n1 5", "line 3 is `1 5`, which is before the line above it"),
            ("0 11M", "line 1 is `0 11M`, with a rate that is none"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(says) && error.contains("allowed"), "{text:?}: {error}");
        }
    }
}
