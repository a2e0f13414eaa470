//! Distributions in the two file formats of HdrHistogram, for its plotters and log tools.
//!
//! `.hgrm` is the percentile spectrum as text, in ms, as wrk2 prints it and plotters expect it.
//! `.hlog` has the whole histogram of each interval, in ns; its tools show ms by default. A log can
//! be cut and added up again without loss, a spectrum cannot.

use std::fmt::Write as _;
use std::io::{self, Write};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use loadgen_shards::limits::{SERIES_DIGITS, SERIES_NS_MAX, SERIES_NS_MIN};

use crate::request::base64;
use crate::snapshot::Distribution;

/// The percentile spectrum of a distribution, values in ms with all digits of the ns.
///
/// Layout of HdrHistogram's `outputPercentileDistribution` with five ticks per half distance: the
/// columns and the three lines below them, but wider values. A last line names the unit; readers
/// skip lines that begin with `#`.
pub fn hgrm(distribution: &Distribution) -> String {
    let mut text = format!(
        "{:>VALUE_COLUMNS$} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    let histogram = hdr_of(distribution);
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        // A bucket reaches beyond the extremes, and the last one may be that of clamped values.
        let value = if quantile < 1.0 {
            step.value_iterated_to().clamp(distribution.min, distribution.max)
        } else {
            distribution.max
        };
        let value = ms(value as f64);
        write!(text, "{value:>VALUE_COLUMNS$.6} {quantile:.12} {total:>10}").expect(WRITES);
        if quantile < 1.0 {
            write!(text, " {:>14.2}", 1.0 / (1.0 - quantile)).expect(WRITES);
        }
        text.push('\n');
    }
    let sub_buckets = (2 * 10u64.pow(u32::from(histogram.sigfig()))).next_power_of_two();
    let number = |value: Option<f64>| value.map_or(f64::NAN, ms);
    write!(
        text,
        "#[Mean    = {:12.6}, StdDeviation   = {:12.6}]\n\
         #[Max     = {:12.6}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {sub_buckets:12}]\n\
         #[Unit    = {:>12}]\n",
        number(distribution.mean()),
        number(deviation_of_all(distribution)),
        number(distribution.largest().map(|max| max as f64)),
        distribution.count(),
        histogram.buckets(),
        "ms"
    )
    .expect(WRITES);
    text
}

/// The deviation of the values as a whole, which the format has, not of a sample; ns.
fn deviation_of_all(distribution: &Distribution) -> Option<f64> {
    let count = distribution.count() as f64;
    match distribution.count() {
        0 => None,
        1 => Some(0.0),
        _ => distribution.std_dev().map(|deviation| deviation * ((count - 1.0) / count).sqrt()),
    }
}

fn ms(ns: f64) -> f64 {
    ns / NS_PER_MS
}

/// Writes an interval log, format version 1.3: one line an interval, with its whole histogram.
pub struct IntervalLog<W: Write> {
    writer: W,
    serializer: V2DeflateSerializer,
    /// The histogram in the binary form; kept for its memory.
    bytes: Vec<u8>,
}

impl<W: Write> IntervalLog<W> {
    /// Begins a log. The starts of its intervals count from `started_unix_s`.
    pub fn new(mut writer: W, started_unix_s: u64) -> io::Result<IntervalLog<W>> {
        write!(
            writer,
            "#[loadgen-uring {}; values in ns, Interval_Max in ms]\n\
             #[Histogram log format version 1.3]\n\
             #[StartTime: {started_unix_s}.000 (seconds since epoch)]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
             \"Interval_Compressed_Histogram\"\n",
            env!("CARGO_PKG_VERSION")
        )?;
        Ok(IntervalLog { writer, serializer: V2DeflateSerializer::new(), bytes: Vec::new() })
    }

    /// Adds an interval: its start after that of the log, its length, and of which series it is, if
    /// the log has several.
    pub fn push(
        &mut self,
        tag: Option<&str>,
        start_ns: u64,
        length_ns: u64,
        distribution: &Distribution,
    ) -> io::Result<()> {
        let histogram = hdr_of(distribution);
        self.bytes.clear();
        self.serializer.serialize(&histogram, &mut self.bytes).map_err(io::Error::other)?;
        if let Some(tag) = tag {
            write!(self.writer, "Tag={},", tag_text(tag))?;
        }
        writeln!(
            self.writer,
            "{:.3},{:.3},{:.3},{}",
            start_ns as f64 / NS_PER_S,
            length_ns as f64 / NS_PER_S,
            ms(histogram.max() as f64),
            base64(&self.bytes)
        )
    }

    /// Hands what was pushed to the system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Flushes, and gives the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}

/// The counts as HdrHistogram holds them, bucket by bucket.
fn hdr_of(distribution: &Distribution) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(SERIES_NS_MIN, SERIES_NS_MAX, SERIES_DIGITS)
        .expect("the bounds are constants that the crate accepts");
    for bucket in distribution.histogram.iter() {
        let value = bucket.low.max(SERIES_NS_MIN);
        histogram.record_n(value, bucket.count).expect("a bucket of the same bounds is in range");
    }
    histogram
}

/// A tag ends at a comma, and no reader expects a blank in it.
fn tag_text(tag: &str) -> String {
    let is_plain = |c: char| !(c == ',' || c.is_whitespace() || c.is_control());
    tag.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

const WRITES: &str = "a string takes any text";
const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;
/// As HdrHistogram's own tools have it by default.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
/// Wide enough for an hour in ms, with a blank before it that some readers look for.
const VALUE_COLUMNS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use loadgen_shards::recorder::Series;
    use std::time::Duration;

    fn distribution(values: impl IntoIterator<Item = u64>) -> Distribution {
        let mut series = Series::default();
        values.into_iter().for_each(|value| series.record(value));
        let mut distribution = Distribution::new();
        distribution.add(&series);
        distribution
    }

    /// The numbers of each line that has four columns, and of the last, which has three.
    fn rows(text: &str) -> Vec<Vec<f64>> {
        let lines = text.lines().skip(2).filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
            })
            .collect()
    }

    #[test]
    fn a_spectrum_has_the_layout_that_plotters_read() {
        let text = hgrm(&distribution([1_000_000, 1_000_000, 1_000_000, 2_500_000]));
        assert_eq!(text, PINNED);
    }

    #[test]
    fn every_line_of_a_spectrum_agrees_with_the_sorted_values() {
        let mut values: Vec<u64> =
            (1..=20_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).collect();
        let text = hgrm(&distribution(values.iter().copied()));
        values.sort_unstable();
        let rows = rows(&text);
        assert!(rows.len() > 50, "{}", rows.len());
        for row in &rows {
            let (ms, quantile, total) = (row[0], row[1], row[2] as usize);
            // What lies at or below the value, which stands for its whole bucket.
            let bound = (ms * 1e6 * 1.001).round() as u64;
            let at_least = values.iter().filter(|value| **value as f64 <= ms * 1e6 * 0.999).count();
            let at_most = values.iter().filter(|value| **value <= bound).count();
            assert!((at_least..=at_most).contains(&total), "{row:?}: {at_least} to {at_most}");
            assert!(total as f64 >= quantile * 20_000.0 - 1e-6, "{row:?}");
            if let Some(inverse) = row.get(3) {
                assert!(
                    (inverse - 1.0 / (1.0 - quantile)).abs() <= inverse * 0.01 + 0.005,
                    "{row:?}"
                );
            }
        }
        let last = rows.last().expect("there are values");
        assert_eq!(last[..], [*values.last().expect("many") as f64 / 1e6, 1.0, 20_000.0]);
    }

    #[test]
    fn the_largest_value_is_exact_also_beyond_the_bounds_of_the_histogram() {
        let far = 2 * SERIES_NS_MAX;
        let text = hgrm(&distribution([12_345_678, far]));
        let rows = rows(&text);
        // The first row is a bucket with all that is at or below its upper end.
        assert!((12.345_678..=12.358_023).contains(&rows[0][0]), "{text}");
        assert_eq!(rows.last().expect("two values")[0], far as f64 / 1e6);
        assert!(text.contains(&format!("#[Max     = {:.6},", far as f64 / 1e6)), "{text}");
        assert!(rows.iter().all(|row| text.contains(&format!(" {:.6} ", row[0]))), "a blank first");
    }

    #[test]
    fn what_no_value_defines_is_no_number() {
        let text = hgrm(&Distribution::new());
        assert!(rows(&text).is_empty(), "{text}");
        assert!(text.contains("Mean    =          NaN"), "{text}");
        assert!(text.contains("Total count    =            0"), "{text}");
        assert!(hgrm(&distribution([7])).contains("StdDeviation   =     0.000000"));
    }

    type Interval = (Option<String>, Duration, Duration, Histogram<u64>);

    /// Start of the log and its intervals, by the reader of the crate.
    fn read(log: &[u8]) -> (Option<Duration>, Vec<Interval>) {
        let mut started = None;
        let mut intervals = Vec::new();
        let mut deserializer = Deserializer::new();
        for entry in IntervalLogIterator::new(log) {
            match entry.expect("a valid line") {
                LogEntry::StartTime(start) => started = Some(start),
                LogEntry::BaseTime(_) => panic!("there is none"),
                LogEntry::Interval(interval) => {
                    let bytes = from_base64(interval.encoded_histogram());
                    let histogram = deserializer.deserialize(&mut bytes.as_slice());
                    intervals.push((
                        interval.tag().map(|tag| tag.as_str().to_owned()),
                        interval.start_timestamp(),
                        interval.duration(),
                        histogram.expect("a histogram"),
                    ));
                }
            }
        }
        (started, intervals)
    }

    /// Not by the alphabet of the writer, so that a mistake there would show.
    fn from_base64(text: &str) -> Vec<u8> {
        let digit = |c: u8| match c {
            b'A'..=b'Z' => u32::from(c - b'A'),
            b'a'..=b'z' => u32::from(c - b'a') + 26,
            b'0'..=b'9' => u32::from(c - b'0') + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{c}"),
        };
        let digits: Vec<u32> = text.trim_end_matches('=').bytes().map(digit).collect();
        let bytes = |group: &[u32]| {
            let bits =
                group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
            bits.to_be_bytes()[1..group.len()].to_vec()
        };
        digits.chunks(4).flat_map(bytes).collect()
    }

    #[test]
    fn every_count_of_a_log_is_read_back() {
        let first = distribution((1..5_000u64).map(|i| i * i));
        let second = distribution([0, 1, 3_600_000_000_000, 7_200_000_000_000]);
        let empty = Distribution::new();
        let mut log = IntervalLog::new(Vec::new(), 1_796_038_682).expect("memory");
        let pushed = [
            (Some("latency"), 0, 1_000_000_000, &first),
            (None, 1_000_000_000, 250_000_000, &second),
            (Some("a, b\n"), 61_234_000_000, 1_000_000_000, &empty),
        ];
        for (tag, start_ns, length_ns, distribution) in pushed {
            log.push(tag, start_ns, length_ns, distribution).expect("memory");
        }
        let (started, intervals) = read(&log.finish().expect("memory"));
        assert_eq!(started, Some(Duration::from_secs(1_796_038_682)));
        assert_eq!(intervals.len(), pushed.len());
        for ((tag, start, length, histogram), (_, start_ns, length_ns, expected)) in
            intervals.iter().zip(pushed)
        {
            assert_eq!((start.as_nanos(), length.as_nanos()), (start_ns.into(), length_ns.into()));
            assert_eq!(histogram, &hdr_of(expected), "{tag:?}");
            assert_eq!(histogram.len(), expected.count());
        }
        let tags: Vec<Option<&str>> = intervals.iter().map(|(tag, ..)| tag.as_deref()).collect();
        assert_eq!(tags, [Some("latency"), None, Some("a__b_")]);
    }

    #[test]
    fn intervals_add_up_to_the_whole() {
        let values = |part: u64| (0..3000).map(move |i| (i * 7 + part) * 1000);
        let mut log = IntervalLog::new(Vec::new(), 0).expect("memory");
        let mut whole = Distribution::new();
        for part in 0..4 {
            let interval = distribution(values(part));
            let start_ns = part * 1_000_000_000;
            log.push(None, start_ns, 1_000_000_000, &interval).expect("memory");
            whole.merge(&interval);
        }
        let (_, intervals) = read(&log.finish().expect("memory"));
        let mut sum = hdr_of(&Distribution::new());
        intervals.iter().for_each(|(.., part)| sum.add(part).expect("the same bounds"));
        assert_eq!(sum, hdr_of(&whole));
        // The control: one interval less is not the whole.
        sum.subtract(&intervals[0].3).expect("it was added");
        assert_ne!(sum, hdr_of(&whole));
    }

    /// Levels as in the examples of HdrHistogram and in the output of wrk2: five steps to the
    /// middle of what is left, and the last value after them.
    const PINNED: &str = "           Value     Percentile TotalCount 1/(1-Percentile)

        1.000447 0.000000000000          3           1.00
        1.000447 0.100000000000          3           1.11
        1.000447 0.200000000000          3           1.25
        1.000447 0.300000000000          3           1.43
        1.000447 0.400000000000          3           1.67
        1.000447 0.500000000000          3           2.00
        1.000447 0.550000000000          3           2.22
        1.000447 0.600000000000          3           2.50
        1.000447 0.650000000000          3           2.86
        1.000447 0.700000000000          3           3.33
        2.500000 0.750000000000          4           4.00
        2.500000 1.000000000000          4
#[Mean    =     1.375000, StdDeviation   =     0.649519]
#[Max     =     2.500000, Total count    =            4]
#[Buckets =           32, SubBuckets     =         2048]
#[Unit    =           ms]
";
}
