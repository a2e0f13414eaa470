//! Numbers and times as people read them.

/// `99871` as `99 871`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Four significant digits, never fewer than the integer part: `1.204`, `24.10`, `1 204`.
pub fn significant(value: f64) -> String {
    match value {
        value if value >= 999.95 => grouped(value.round() as u64),
        value if value >= 99.995 => format!("{value:.1}"),
        value if value >= 9.9995 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// Two significant digits, never fewer than the integer part: how far a figure may be off.
pub fn roughly(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 9.95 => grouped(value.round() as u64),
        value if value >= 0.995 => format!("{value:.1}"),
        value if value >= 0.0995 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// A rate for a sentence: whole from 100 up.
pub fn rate(value: f64) -> String {
    match value {
        value if value >= 99.95 => grouped(value.round() as u64),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// The largest unit in which `ns` is at least 1, and how many ns it has.
pub fn unit(ns: f64) -> (&'static str, f64) {
    match ns {
        ns if ns >= 1e9 => ("s", 1e9),
        ns if ns >= 1e6 => ("ms", 1e6),
        ns if ns >= 1e3 => ("µs", 1e3),
        _ => ("ns", 1.0),
    }
}

/// A time with its unit: `512.0 µs`; whole times and minutes without needless digits: `10 s`, `1
/// min 30 s`.
pub fn time(ns: u64) -> String {
    if ns >= 60_000_000_000 {
        let seconds = ns.saturating_add(500_000_000) / 1_000_000_000;
        return match (seconds / 60, seconds % 60) {
            (minutes, 0) => format!("{minutes} min"),
            (minutes, seconds) => format!("{minutes} min {seconds} s"),
        };
    }
    let (name, size) = unit(ns as f64);
    let value = ns as f64 / size;
    if value.fract() == 0.0 {
        return format!("{value:.0} {name}");
    }
    match value {
        value if value >= 99.95 => format!("{value:.0} {name}"),
        value if value >= 9.995 => format!("{value:.1} {name}"),
        value => format!("{value:.2} {name}"),
    }
}

/// `1 request`, `2 requests`.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", grouped(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let cases =
            [(0, "0"), (999, "999"), (1000, "1 000"), (99_871, "99 871"), (1_234_567, "1 234 567")];
        for (value, text) in cases {
            assert_eq!(grouped(value), text);
        }
        assert_eq!(grouped(u64::MAX), "18 446 744 073 709 551 615");
    }

    #[test]
    fn significant_keeps_four_digits_across_every_edge() {
        let cases = [
            (0.0, "0.000"),
            (1.2041, "1.204"),
            (9.9994, "9.999"),
            (9.9996, "10.00"),
            (99.996, "100.0"),
            (999.96, "1 000"),
            (12_114.0, "12 114"),
        ];
        for (value, text) in cases {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn roughly_keeps_two_digits_across_every_edge() {
        let cases = [
            (0.0, "0"),
            (0.0123, "0.012"),
            (0.2149, "0.21"),
            (0.996, "1.0"),
            (3.16, "3.2"),
            (9.96, "10"),
            (1234.4, "1 234"),
        ];
        for (value, text) in cases {
            assert_eq!(roughly(value), text);
        }
    }

    #[test]
    fn times_have_a_unit_in_which_they_are_at_least_one() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1 µs"),
            (512_400, "512 µs"),
            (1_904_000, "1.90 ms"),
            (10_000_000_000, "10 s"),
            (2_140_000_000, "2.14 s"),
            (60_000_000_000, "1 min"),
            (90_000_000_000, "1 min 30 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn rates_and_counts_read_as_sentences_do() {
        assert_eq!(rate(0.5), "0.50");
        assert_eq!(rate(41.52), "41.5");
        assert_eq!(rate(99_871.4), "99 871");
        assert_eq!(counted(1, "request"), "1 request");
        assert_eq!(counted(2000, "request"), "2 000 requests");
    }
}
