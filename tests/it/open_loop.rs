//! Open loop in real time, against a queue whose own record is the truth.
//!
//! A host only ever adds time, so what must not be too early or too small is exact, and what may be
//! late has room, or further attempts. The schedule is drawn again here, from the crate whose tests
//! pin it.

mod accounting; // every entry of the schedule has exactly one end
mod arrivals; // who is sent when, whatever waits for the instants
mod connections; // how many there are, who waits for one, who is dropped
mod origin; // latency counts from the schedule, its parts say for whom
mod queueing; // what the client measures is what the queue did

use std::sync::Arc;
use std::time::Duration;

use loadgen_shards::schedule::{Process, Profile, Schedule, SchedulePlan};

use crate::support::Engine;
use crate::support::queue::{Freeze, Plan, QueueServer, Service};
use crate::support::run::{Figures, Outcome, Run};

/// A run to come, believed or not: whether it is to be believed is another matter, and a busy host
/// decides it.
fn load(engine: Engine) -> Run {
    Run::on(engine).args(["--allow-untrusted"])
}

/// A run against a queue to its end.
#[track_caller]
fn run(engine: Engine, server: &QueueServer, words: &str) -> Outcome {
    load(engine).words(words).args([server.url()]).finish()
}

/// The schedule of the performance phase; `stream` 1 is that of the warm-up.
fn schedule(process: Process, rate: f64, seed: u64) -> SchedulePlan {
    let profile = Arc::new(Profile::constant(rate).expect("a rate in range"));
    SchedulePlan { process, profile, seed, stream: 0, count: None, end_ns: None }
}

/// Its instants, since the begin of the phase, ns.
fn offsets_ns(plan: &SchedulePlan) -> Vec<u64> {
    Schedule::new(plan).map(|arrival| arrival.offset_ns).collect()
}

/// The value with a share of all values at or below it.
fn percentile(values: &[u64], share: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank - 1]
}

/// 1500 requests at 1000 a second, from a client that is stopped three times for 100 ms. `Err`: the
/// stops came too late to meet the load.
pub fn run_stopped(run: Run, server: &QueueServer) -> Result<Outcome, String> {
    let mut running = run.words("constant -R 1000 -n 1500 -t 1").args([server.url()]).start();
    for arrived in [100, 300, 500] {
        running.await_that("load arrives", || server.arrived() >= arrived);
        running.freeze(Duration::from_millis(100));
    }
    let is_late = server.arrived() == 1500;
    let outcome = running.finish();
    if is_late { Err("the last stop was too late".to_owned()) } else { Ok(outcome) }
}

/// Each request was sent before it arrived and answered after the departure, so each figure of the
/// client is at least the server's.
#[track_caller]
fn assert_not_below(figures: &Figures, truth_ns: &[u64]) {
    let total: u64 = truth_ns.iter().sum();
    assert!(figures.get("total") >= total as f64, "{figures:?}, server's total {total}");
    let extremes = [truth_ns.iter().min().unwrap(), truth_ns.iter().max().unwrap()];
    for (name, is) in ["min", "max"].into_iter().zip(extremes) {
        assert!(figures.get(name) >= *is as f64, "{figures:?}, server's {name} {is}");
    }
    for (key, share) in [("50.0", 0.5), ("90.0", 0.9), ("95.0", 0.95)] {
        let is = percentile(truth_ns, share) as f64;
        let measured = figures.percentile(key);
        assert!(measured >= is * (1.0 - BUCKET), "p{key}: {measured} below the server's {is}");
    }
}

/// A server that answers nothing for 100 ms of each second: of all requests 5 % are due at least 50
/// ms before the end of a freeze, and 1 % at least 90 ms.
fn freezing(servers: usize, service_ns: u64) -> QueueServer {
    let freeze = Freeze { every_ns: 1000 * MS, length_ns: 100 * MS };
    let service = Service::Constant(service_ns);
    QueueServer::start(Plan { servers, service, freeze: Some(freeze) })
}

/// Buckets of a distribution are at most 0.1 % wide.
const BUCKET: f64 = 0.001;

const MS: u64 = 1_000_000;
