//! Times that are drawn.

use super::draw::Draws;

/// A distribution of times; parameters in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Constant(u64),
    /// Normal; what falls below 0 is 0.
    Normal {
        /// ns
        mean: f64,
        /// ns
        std_dev: f64,
    },
    /// Exponential.
    Exponential {
        /// ns
        mean: f64,
    },
    /// Log-normal, by mean and standard deviation of the time itself.
    LogNormal {
        /// ns, above 0
        mean: f64,
        /// ns
        std_dev: f64,
    },
    /// Evenly between both.
    Uniform {
        /// ns
        min: u64,
        /// ns
        max: u64,
    },
}

impl Distribution {
    /// Nothing.
    pub const ZERO: Distribution = Distribution::Constant(0);

    /// Reads what [`DISTRIBUTION_FORM`] tells.
    pub fn parse(text: &str) -> Option<Distribution> {
        let pair = |text: &str, by| {
            let (first, second) = text.split_once(by)?;
            Some((time_ns(first)?, time_ns(second)?))
        };
        if let Some(rest) = text.strip_prefix("exponential:") {
            return Some(Distribution::Exponential { mean: time_ns(rest)? as f64 });
        }
        if let Some(rest) = text.strip_prefix("uniform:") {
            let (min, max) = pair(rest, '-')?;
            return (min <= max).then_some(Distribution::Uniform { min, max });
        }
        if let Some(rest) = text.strip_prefix("lognormal:") {
            let (mean, std_dev) = pair(rest, '~')?;
            let (mean, std_dev) = (mean as f64, std_dev as f64);
            return (mean > 0.0).then_some(Distribution::LogNormal { mean, std_dev });
        }
        if text.contains('~') {
            let (mean, std_dev) = pair(text, '~')?;
            return Some(Distribution::Normal { mean: mean as f64, std_dev: std_dev as f64 });
        }
        time_ns(text).map(Distribution::Constant)
    }

    /// The next time, ns; at most 366 days.
    pub fn draw_ns(self, draws: &mut Draws) -> u64 {
        // A float beyond u64 becomes its largest value, one below 0 becomes 0.
        let ns = match self {
            Distribution::Constant(ns) => ns,
            Distribution::Normal { mean, std_dev } => (mean + std_dev * normal(draws)) as u64,
            Distribution::Exponential { mean } => (-mean * libm::log(1.0 - draws.unit())) as u64,
            Distribution::LogNormal { mean, std_dev } => {
                let variance = libm::log1p((std_dev / mean) * (std_dev / mean));
                let location = libm::log(mean) - variance / 2.0;
                libm::exp(location + variance.sqrt() * normal(draws)) as u64
            }
            Distribution::Uniform { min, max } => {
                min + ((max - min) as f64 * draws.unit()).round() as u64
            }
        };
        ns.min(TIME_NS_MAX)
    }
}

/// Standard normal, by Box and Muller.
fn normal(draws: &mut Draws) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - draws.unit())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * draws.unit())
}

/// A time with a unit, exact to the ns; a plain number is seconds. `None`: not one, or beyond 366
/// days.
pub(crate) fn time_ns(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic() || last == 'µ');
    let unit_ns: u64 = match &text[digits.len()..] {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => NS_PER_S,
        "m" | "min" => 60 * NS_PER_S,
        "h" => 3600 * NS_PER_S,
        _ => return None,
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let mut total = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    total = total.checked_mul(unit_ns)?;
    let mut digit_ns = unit_ns;
    for digit in fraction.bytes() {
        digit_ns /= 10;
        total = total.checked_add(u64::from(digit - b'0') * digit_ns)?;
    }
    (total <= TIME_NS_MAX).then_some(total)
}

/// What [`Distribution::parse`] takes, for error messages.
pub const DISTRIBUTION_FORM: &str = "a time such as 200ms, 200ms~50ms (normal, mean and standard \
     deviation), exponential:200ms, lognormal:200ms~50ms or uniform:100ms-300ms";
const NS_PER_S: u64 = 1_000_000_000;
/// 366 days, so that sums of times stay far from the end of u64.
const TIME_NS_MAX: u64 = 366 * 24 * 3600 * NS_PER_S;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn times_are_exact() {
        for (text, ns) in [
            ("0", 0),
            ("1", NS_PER_S),
            ("0.1", NS_PER_S / 10),
            ("1.5ms", 1_500_000),
            (".5s", NS_PER_S / 2),
            ("7ns", 7),
            ("2µs", 2000),
            ("1m", 60 * NS_PER_S),
        ] {
            assert_eq!(time_ns(text), Some(ns), "{text}");
        }
        for text in ["", "s", ".", "-1s", "1 s", "1sec", "1e3", "+1", "9000h", "1.2.3", "µ"] {
            assert_eq!(time_ns(text), None, "{text}");
        }
    }

    #[test]
    fn every_form_is_read_and_nothing_else() {
        let ms = |count: u64| (count * MS) as f64;
        for (text, expected) in [
            ("200ms", Distribution::Constant(200 * MS)),
            ("200ms~50ms", Distribution::Normal { mean: ms(200), std_dev: ms(50) }),
            ("exponential:0.2", Distribution::Exponential { mean: ms(200) }),
            ("lognormal:200ms~50ms", Distribution::LogNormal { mean: ms(200), std_dev: ms(50) }),
            ("uniform:100ms-300ms", Distribution::Uniform { min: 100 * MS, max: 300 * MS }),
        ] {
            assert_eq!(Distribution::parse(text), Some(expected), "{text}");
        }
        for text in
            ["", "x", "1~", "~1", "1~2~3", "uniform:3-1", "uniform:1", "lognormal:0~1", "gamma:1"]
        {
            assert_eq!(Distribution::parse(text), None, "{text}");
        }
    }

    #[test]
    fn means_and_deviations_are_those_asked_for() {
        const COUNT: u32 = 100_000;
        for (text, mean_ms, std_dev_ms) in [
            ("200ms", 200.0, 0.0),
            ("200ms~20ms", 200.0, 20.0),
            ("exponential:200ms", 200.0, 200.0),
            ("lognormal:200ms~100ms", 200.0, 100.0),
            ("uniform:100ms-300ms", 200.0, 200.0 / 12f64.sqrt()),
        ] {
            let distribution = Distribution::parse(text).expect("valid");
            let mut draws = Draws::of_request(1, text.as_bytes(), 0);
            let times: Vec<f64> =
                (0..COUNT).map(|_| distribution.draw_ns(&mut draws) as f64 / MS as f64).collect();
            let mean = times.iter().sum::<f64>() / f64::from(COUNT);
            let variance =
                times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / f64::from(COUNT);
            // Five standard errors of the widest, and as much for the deviation of a skewed one.
            assert!((mean - mean_ms).abs() < 4.0, "{text}: mean {mean}");
            assert!((variance.sqrt() - std_dev_ms).abs() < 5.0, "{text}: {}", variance.sqrt());
        }
    }

    #[test]
    fn nothing_is_below_zero_or_beyond_all_bounds() {
        let wide = Distribution::parse("1ms~100ms").expect("valid");
        let mut draws = Draws::of_request(1, b"", 0);
        let times: Vec<u64> = (0..1000).map(|_| wide.draw_ns(&mut draws)).collect();
        assert!(times.contains(&0));
        assert!(times.iter().all(|&time| time < 1000 * MS));
        let long = Distribution::LogNormal { mean: 1e16, std_dev: 1e16 };
        let times: Vec<u64> = (0..1000).map(|_| long.draw_ns(&mut draws)).collect();
        assert_eq!(times.iter().max(), Some(&TIME_NS_MAX));
    }
}
