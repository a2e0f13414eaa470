//! Times, sizes and counts as people type them, and times as we write them back.
//!
//! What is counted in whole units is exact: such a number is read as digits, never through a float,
//! so that `0.1s` is 100 000 000 ns. Rates and shares are the nearest float. Errors say what is
//! allowed; the caller adds the flag and the value.

/// Longest time a flag takes: 366 days. Sums of two such times stay far from the end of u64.
pub const TIME_NS_MAX: u64 = 366 * 24 * 3600 * NS_PER_S;
/// One second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// What [`time_ns`] takes, for error messages.
pub const TIME_FORM: &str =
    "a time such as 10s, 500ms, 1m30s or 2h (a plain number is seconds), at most 366 days";
/// What [`bytes`] takes, for error messages.
pub const SIZE_FORM: &str = "a size in bytes such as 100, 1k (1000) or 4KiB (4096)";
/// What [`count`] takes, for error messages.
pub const COUNT_FORM: &str = "a whole number such as 64, 10k or 1M";
/// What [`rate`] takes, for error messages.
pub const RATE_FORM: &str =
    "a rate above 0 (at least 1e-9) and at most 10M a second, such as 500, 0.5, 10k, 90/m or 1/h";
/// Lowest rate that a flag takes, per second: one in 30 years.
pub const RATE_MIN: f64 = 1e-9;
/// Highest rate that a flag takes, per second.
pub const RATE_MAX: f64 = 1e7;

/// Parses `10s`, `500ms`, `1.5m`, `1h30m`, `250us`; a number without a unit is seconds.
pub fn time_ns(text: &str) -> Option<u64> {
    let (first, unit, mut rest) = number_and_unit(text)?;
    if unit.is_empty() {
        return if rest.is_empty() { first.scaled(NS_PER_S, TIME_NS_MAX) } else { None };
    }
    let mut unit_ns = time_unit_ns(unit)?;
    let mut total_ns = first.scaled(unit_ns, TIME_NS_MAX)?;
    while !rest.is_empty() {
        let (number, unit, tail) = number_and_unit(rest)?;
        let smaller_ns = time_unit_ns(unit)?;
        // Units fall from left to right: "30s1m" and "1s1s" are typing errors.
        if smaller_ns >= unit_ns {
            return None;
        }
        unit_ns = smaller_ns;
        total_ns = total_ns.checked_add(number.scaled(unit_ns, TIME_NS_MAX)?)?;
        rest = tail;
    }
    (total_ns <= TIME_NS_MAX).then_some(total_ns)
}

/// As [`time_ns`], but a unit is required: where a plain number would mean something else.
pub fn time_ns_with_unit(text: &str) -> Option<u64> {
    if text.bytes().next_back()?.is_ascii_alphabetic() { time_ns(text) } else { None }
}

/// Writes a time in the largest unit that loses nothing: `time_ns` of the text is the value.
pub fn time_text(ns: u64) -> String {
    for (unit, unit_ns) in [("s", NS_PER_S), ("ms", 1_000_000), ("us", 1_000)] {
        if ns.is_multiple_of(unit_ns) {
            return format!("{}{unit}", ns / unit_ns);
        }
    }
    format!("{ns}ns")
}

/// Parses a size: `100`, `1k` and `1kB` (1000), `4KiB` (4096), `M`, `MiB`, `G`, `GiB`.
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit, rest) = number_and_unit(text)?;
    let unit_bytes = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return None,
    };
    if rest.is_empty() { number.scaled(unit_bytes, u64::MAX) } else { None }
}

/// Parses a count: `64`, `1.5k` (1500), `10k`, `1M`.
pub fn count(text: &str) -> Option<u64> {
    let (number, unit, rest) = number_and_unit(text)?;
    let unit = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" | "m" => 1_000_000,
        "G" | "g" => 1_000_000_000,
        _ => return None,
    };
    if rest.is_empty() { number.scaled(unit, u64::MAX) } else { None }
}

/// Parses a rate per second: `500`, `0.5`, `10k`, `2.5k/s`, `90/m`, `1/h`; any finite value.
pub fn rate(text: &str) -> Option<f64> {
    let (number, per_s) = match text.split_once('/') {
        None => (text, 1.0),
        Some((number, "s")) => (number, 1.0),
        Some((number, "m" | "min")) => (number, 60.0),
        Some((number, "h")) => (number, 3600.0),
        Some(_) => return None,
    };
    let (number, exponent) = match number.as_bytes().last()? {
        b'k' | b'K' => (&number[..number.len() - 1], 3),
        b'M' => (&number[..number.len() - 1], 6),
        _ => (number, 0),
    };
    Some(scaled(number, exponent)? / per_s)
}

/// As [`rate`], within what a load may have.
pub fn load_rate(text: &str) -> Option<f64> {
    rate(text).filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate))
}

/// Parses a share: `10%` is 0.1; from 0 to 1.
pub fn share(text: &str) -> Option<f64> {
    scaled(text.strip_suffix('%')?, -2).filter(|share| *share <= 1.0)
}

/// Writes a share so that [`share`] of the text is the value.
pub fn share_text(value: f64) -> String {
    // Rounded to what can have been typed, as 0.07 x 100 is not 7.
    let percent = format!("{:.10}", value * 100.0);
    format!("{}%", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// Parses a plain decimal number: digits and at most one point, with digits on both sides.
pub fn decimal(text: &str) -> Option<f64> {
    scaled(text, 0)
}

/// A plain decimal times a power of ten, rounded once.
fn scaled(text: &str, exponent: i32) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_closed = !text.is_empty() && !text.starts_with('.') && !text.ends_with('.');
    let number: f64 = if is_plain && is_closed {
        format!("{text}e{exponent}").parse().ok()?
    } else {
        return None;
    };
    number.is_finite().then_some(number)
}

fn time_unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => NS_PER_S,
        "m" | "min" => 60 * NS_PER_S,
        "h" => 3600 * NS_PER_S,
        _ => return None,
    })
}

/// A decimal number, exact.
#[derive(Clone, Copy)]
struct Decimal {
    /// The digits without the point.
    digits: u64,
    /// 10 to the number of digits after the point.
    divisor: u64,
}

impl Decimal {
    /// The number times `unit`; `None` when that is not whole or above `max`.
    fn scaled(self, unit: u64, max: u64) -> Option<u64> {
        let product = u128::from(self.digits) * u128::from(unit);
        let divisor = u128::from(self.divisor);
        if !product.is_multiple_of(divisor) {
            return None;
        }
        u64::try_from(product / divisor).ok().filter(|value| *value <= max)
    }
}

/// Splits `12.5ms30us` into 12.5, `ms` and `30us`.
fn number_and_unit(text: &str) -> Option<(Decimal, &str, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // A point needs digits on both sides: "1." and ".5" are more often typing errors than numbers.
    if whole.is_empty() || number.ends_with('.') || fraction.len() > FRACTION_DIGITS_MAX {
        return None;
    }
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((Decimal { digits, divisor: 10u64.pow(fraction.len() as u32) }, unit, rest))
}

const FRACTION_DIGITS_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_and_a_plain_number_is_seconds() {
        for (text, ns) in [
            ("0", 0),
            ("10", 10 * NS_PER_S),
            ("0.1", 100_000_000),
            ("10s", 10 * NS_PER_S),
            ("500ms", 500_000_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("7ns", 7),
            ("1m30s", 90 * NS_PER_S),
            ("1.5m", 90 * NS_PER_S),
            ("2h", 7200 * NS_PER_S),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("8784h", TIME_NS_MAX),
        ] {
            assert_eq!(time_ns(text), Some(ns), "{text}");
            assert_eq!(time_ns(&time_text(ns)), Some(ns), "{text} written back");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "s",
            "-1s",
            "+1s",
            "1 s",
            " 1s",
            "1s ",
            "1x",
            "1sm",
            "1..5s",
            "1.",
            ".5s",
            "1.5.5s",
            "1e3",
            "30s1m",
            "1s1s",
            "1m30",
            "8785h",
            "0.5ns",
            "99999999999999999999s",
            "auto",
            "inf",
            "nan",
            "1S",
            "٣s",
            "1s\n",
        ] {
            assert_eq!(time_ns(text), None, "{text:?}");
        }
        assert_eq!(time_ns_with_unit("2s"), Some(2 * NS_PER_S));
        assert_eq!(time_ns_with_unit("2"), None);
        assert_eq!(time_ns_with_unit(""), None);
    }

    #[test]
    fn sizes_tell_1000_from_1024() {
        for (text, value) in [
            ("0", Some(0)),
            ("100", Some(100)),
            ("100B", Some(100)),
            ("1k", Some(1000)),
            ("1KB", Some(1000)),
            ("4KiB", Some(4096)),
            ("1.5KiB", Some(1536)),
            ("2MiB", Some(2 << 20)),
            ("1G", Some(1_000_000_000)),
            ("1GiB", Some(1 << 30)),
            ("0.5", None),
            ("1T", None),
            ("k", None),
            ("-1", None),
            ("1k1", None),
            ("20000000000000G", None),
        ] {
            assert_eq!(bytes(text), value, "{text}");
        }
    }

    #[test]
    fn counts_take_k_and_m_and_stay_whole() {
        for (text, value) in [
            ("0", Some(0)),
            ("64", Some(64)),
            ("10k", Some(10_000)),
            ("1.5k", Some(1_500)),
            ("1M", Some(1_000_000)),
            ("1.5", None),
            ("0.0001k", None),
            ("1,8,64", None),
            ("1..64", None),
            ("64 ", None),
            ("0x10", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
        ] {
            assert_eq!(count(text), value, "{text}");
        }
    }

    #[test]
    fn rates_are_per_second_and_rounded_once() {
        for (text, value) in [
            ("500", Some(500.0)),
            ("0.5", Some(0.5)),
            ("10k", Some(10_000.0)),
            ("1.001k", Some(1001.0)), // 1.001 x 1000 as floats is 1000.9999999999999
            ("2.5k/s", Some(2500.0)),
            ("3M", Some(3e6)),
            ("90/m", Some(1.5)),
            ("90/min", Some(1.5)),
            ("1/h", Some(1.0 / 3600.0)),
            ("6k/m", Some(100.0)),
            ("0", Some(0.0)),
            ("0.00027777777777777778", Some(1.0 / 3600.0)),
            ("", None),
            ("k", None),
            ("/s", None),
            ("-1", None),
            ("+1", None),
            ("nan", None),
            ("NaN", None),
            ("inf", None),
            ("1e3", None),
            ("1.", None),
            (".5", None),
            ("1..5", None),
            ("1.2.3", None),
            ("10m", None),
            ("10 k", None),
            ("1/d", None),
            ("1/s/s", None),
            ("1,8", None),
            ("1..8", None),
        ] {
            assert_eq!(rate(text), value, "{text}");
        }
        for value in [500.0, 0.5, 1.0 / 3600.0, 1e7, 1234.5678] {
            assert_eq!(rate(&value.to_string()), Some(value), "written back");
        }
        assert_eq!(rate(&"9".repeat(400)), None, "beyond a float");
        for text in ["0", "0.0", "10000001", "10.1M", "-5", "NaN", "inf"] {
            assert_eq!(load_rate(text), None, "{text}");
        }
        assert_eq!((load_rate("10M"), load_rate("0.01")), (Some(1e7), Some(0.01)));
    }

    #[test]
    fn shares_are_percentages() {
        for (text, value) in
            [("0%", 0.0), ("10%", 0.1), ("7%", 0.07), ("0.1%", 0.001), ("100%", 1.0)]
        {
            assert_eq!(share(text), Some(value), "{text}");
            assert_eq!(share_text(value), text);
        }
        for text in ["", "%", "10", "0.1", "101%", "-1%", "x%", "10%%"] {
            assert_eq!(share(text), None, "{text}");
        }
    }
}
