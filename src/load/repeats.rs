//! `--repeats`: the same plan several times, each with new connections and a seed of its own, and
//! how much the figures differ from run to run.

use std::fmt::Write;
use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::several::{Done, Several};
use crate::compare::{Figure, aligned, known_figures, unit_of};
use crate::config::Config;
use crate::display::{self, significant};
use crate::error::Error;
use crate::files;
use crate::report::printable;
use crate::snapshot::git_sha;
use crate::statistics::compare::mean_interval;
use crate::statistics::{mean, median, variance};

/// Runs `config` as often as it says.
pub fn run(config: &Config, mut runs: Several, embedded: Option<SocketAddr>) -> Result<u8, Error> {
    let count = config.repeats as usize;
    for index in 0..count {
        let name = format!("run {} of {count}", index + 1);
        let folder = files::part("run", index + 1);
        if !runs.perform(seeded(config, index as u64), embedded, name, folder) {
            break;
        }
    }
    let ending = runs.ending();
    let summary = result(config, &runs, ending.0);
    let told = runs.tell(config, &summary, &text(&runs));
    Ok(runs.close(ending, told))
}

/// The same load, drawn anew: the seed moves on by the number of the run, and with it that of the
/// order, unless it has one of its own.
pub fn seeded(config: &Config, index: u64) -> Config {
    let mut seeded = config.clone();
    seeded.common.seed = config.common.seed.wrapping_add(index);
    if config.order_seed == config.common.seed {
        seeded.order_seed = seeded.common.seed;
    }
    seeded
}

/// A figure over the runs that are complete and have it.
#[derive(Clone, Debug, PartialEq)]
struct Spread {
    count: usize,
    median: f64,
    min: f64,
    max: f64,
    mean: f64,
    /// Standard deviation / mean; `None` with one run, or around 0.
    cv: Option<f64>,
    /// 95 % interval of the mean, by Student's law; `None` with one run.
    interval: Option<(f64, f64)>,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Spread> {
        let mean = mean(values)?;
        let deviation = variance(values).map(f64::sqrt);
        Some(Spread {
            count: values.len(),
            median: median(values)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mean,
            cv: deviation.filter(|_| mean != 0.0).map(|deviation| deviation / mean),
            interval: mean_interval(values, 0.95),
        })
    }

    fn json(&self) -> Value {
        json!({
            "runs": self.count,
            "median": self.median,
            "min": self.min,
            "max": self.max,
            "mean": self.mean,
            "cv": self.cv,
            "mean_interval": self.interval.map(|(low, high)| [low, high]),
        })
    }
}

fn figures_of(runs: &[Done]) -> Vec<Figure> {
    known_figures(&runs.iter().map(|done| &done.run).collect::<Vec<_>>())
}

fn spread_of(runs: &[Done], figure: Figure) -> Option<Spread> {
    let complete = runs.iter().filter(|done| done.run.is_complete());
    let values: Vec<f64> = complete.filter_map(|done| figure.of(&done.run)).collect();
    Spread::of(&values)
}

/// The text of `performance/result_summary.json` of the whole.
fn result(config: &Config, runs: &Several, exit_code: u8) -> String {
    let done = runs.done();
    let figures = figures_of(done);
    let run_json = |done: &Done| {
        let of_run = |figure: &Figure| (figure.name.to_owned(), json!(figure.of(&done.run)));
        let mut run = done.json();
        run["figures"] = figures.iter().map(of_run).collect::<Map<_, _>>().into();
        run
    };
    let spread = |figure: &Figure| Some((figure.name.to_owned(), spread_of(done, *figure)?.json()));
    let value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "git_sha": git_sha(),
        "test_started_at": done.first().map(|done| done.run.value("/test_started_at")),
        "command": config.command.name(),
        "repeats": runs.planned(),
        "complete": done.len() == runs.planned() && done.iter().all(|done| done.run.is_complete()),
        "runs": done.iter().map(run_json).collect::<Vec<_>>(),
        "summary": figures.iter().filter_map(spread).collect::<Map<_, _>>(),
        "exit_code": exit_code,
    });
    crate::snapshot::pretty(&value)
}

/// The report: the answer, a row for each run, then what they have in common.
fn text(runs: &Several) -> String {
    let done = runs.done();
    let known = figures_of(done);
    let has_tokens = known.iter().any(|figure| figure.name.starts_with("ttft"));
    let names = if has_tokens { &COLUMNS_OF_TOKENS[..] } else { &COLUMNS[..] };
    let columns: Vec<Figure> =
        names.iter().filter_map(|name| known.iter().find(|f| f.name == *name).copied()).collect();
    let mut text = printable(&answer(runs, &columns)) + "\n\n";
    text.push_str(&aligned(&table(done, &columns)));
    text.push('\n');
    if let Some(directory) = runs.directory() {
        let path = directory.path().display();
        writeln!(text, "{}", printable(&format!("  files   {path}/  (run-01, ...)")))
            .expect(WRITES);
        let compared =
            format!("  next    loadgen-uring compare {path} OTHER  # these runs as one arm");
        writeln!(text, "{}", printable(&compared)).expect(WRITES);
    }
    text
}

/// The first line.
fn answer(runs: &Several, columns: &[Figure]) -> String {
    let done = runs.done();
    let complete = done.iter().filter(|done| done.run.is_complete()).count();
    let of = match (complete, runs.planned()) {
        (0, planned) => {
            return format!("None of {} is complete.", display::counted(planned as u64, "run"));
        }
        (complete, planned) if complete == planned => format!("{planned} runs"),
        (complete, planned) => format!("{complete} complete runs of {planned}"),
    };
    let column = |name: &str| columns.iter().find(|figure| figure.name == name);
    let spread = |name: &str| column(name).and_then(|figure| spread_of(done, *figure));
    let rate = spread("achieved").map_or("no".to_owned(), |rate| display::rate(rate.median));
    let time = |ns: f64| display::time(ns.round() as u64);
    let latency = ["ttft.p99", "ttft.p50", "latency.p99", "latency.p50"]
        .iter()
        .find_map(|name| Some((name, spread(name)?)));
    let latency = latency.map_or(String::new(), |(name, spread)| {
        let name = name.replace("ttft.", "TTFT ").replace("latency.", "");
        let (median, low, high) = (time(spread.median), time(spread.min), time(spread.max));
        format!(", {name} {median} ({low} to {high})")
    });
    format!("{rate} requests/s{latency}: medians of {of}.")
}

/// A row for each run, then median and spread of the complete ones.
fn table(done: &[Done], columns: &[Figure]) -> Vec<Vec<String>> {
    let spreads: Vec<Option<Spread>> =
        columns.iter().map(|figure| spread_of(done, *figure)).collect();
    let units: Vec<(&str, f64)> = columns
        .iter()
        .zip(&spreads)
        .map(|(figure, spread)| unit_of(figure.kind, spread.as_ref().map(|spread| spread.median)))
        .collect();
    let mut head = vec!["run".to_owned(), "seed".to_owned()];
    head.extend(columns.iter().zip(&units).map(|(figure, (unit, _))| {
        let is_of_tokens = columns.iter().any(|figure| figure.name.starts_with("ttft"));
        let name =
            if is_of_tokens { figure.name } else { figure.name.trim_start_matches("latency.") };
        format!("{name} {unit}")
    }));
    head.push(String::new());
    let mut table = vec![head];
    for done in done {
        let mut row =
            vec![done.folder.trim_start_matches("run-").to_owned(), done.seed.to_string()];
        row.extend(columns.iter().zip(&units).map(|(figure, (_, size))| {
            figure.of(&done.run).map_or("n/a".to_owned(), |value| significant(value / size))
        }));
        row.push(match done.code {
            0 => String::new(),
            code => format!("exit {code}"),
        });
        table.push(row);
    }
    let mut line = |name: &str, value: &dyn Fn(&Spread, f64) -> Option<f64>| {
        let mut row = vec![name.to_owned(), String::new()];
        row.extend(spreads.iter().zip(&units).map(|(spread, (_, size))| {
            let value = spread.as_ref().and_then(|spread| value(spread, *size));
            value.map_or("n/a".to_owned(), significant)
        }));
        row.push(String::new());
        table.push(row);
    };
    line("median", &|spread, size| Some(spread.median / size));
    line("min", &|spread, size| Some(spread.min / size));
    line("max", &|spread, size| Some(spread.max / size));
    line("CV %", &|spread, _| Some(100.0 * spread.cv?));
    table
}

const WRITES: &str = "a string takes any text";
/// Figures in the table, by their names; the result has them all.
const COLUMNS: [&str; 6] =
    ["achieved", "latency.p50", "latency.p90", "latency.p99", "latency.max", "failed"];
/// The same where tokens were streamed.
const COLUMNS_OF_TOKENS: [&str; 8] = [
    "achieved",
    "output tokens",
    "ttft.p50",
    "ttft.p99",
    "tpot.p50",
    "tpot.p99",
    "latency.p99",
    "failed",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Run;

    fn done(number: usize, qps: f64, is_complete: bool) -> Done {
        let latency = json!({ "percentiles": { "50.0": 5e5, "99.0": 1e9 / qps } });
        let summary = json!({
            "n_samples_completed": 100, "n_samples_failed": 0, "latency": latency, "qps": qps,
            "complete": is_complete, "latency_origin": "sent",
        });
        Done {
            folder: files::part("run", number),
            seed: 41 + number as u64,
            schedule_hash: None,
            run: Run::new(format!("run {number} of 3"), summary, Value::Null).expect("a result"),
            code: u8::from(!is_complete),
            reason: None,
        }
    }

    #[test]
    fn spread_is_of_the_values_and_none_where_there_is_none() {
        let spread = Spread::of(&[1.0, 2.0, 6.0]).expect("values");
        assert_eq!((spread.count, spread.median, spread.min, spread.max), (3, 2.0, 1.0, 6.0));
        // Standard deviation sqrt(7), mean 3.
        assert!((spread.cv.expect("three") - 7f64.sqrt() / 3.0).abs() < 1e-12, "{spread:?}");
        let one = Spread::of(&[5.0]).expect("a value");
        assert_eq!((one.cv, one.interval), (None, None));
        assert_eq!(Spread::of(&[0.0, 0.0]).expect("values").cv, None);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_row_for_each_run_and_then_what_the_complete_ones_have_in_common() {
        let runs = [done(1, 1000.0, true), done(2, 500.0, true), done(3, 10.0, false)];
        let figures = figures_of(&runs);
        let columns: Vec<Figure> =
            figures.into_iter().filter(|f| ["achieved", "latency.p99"].contains(&f.name)).collect();
        let told: Vec<String> = aligned(&table(&runs, &columns))
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            told,
            [
                "run seed achieved /s p99 ms",
                "01 42 1 000 1.000",
                "02 43 500.0 2.000",
                "03 44 10.00 100.0 exit 1",
                "median 750.0 1.500",
                "min 500.0 1.000",
                "max 1 000 2.000",
                "CV % 47.14 47.14",
            ]
        );
    }
}
