//! `--floor`: 1 s against an endpoint that does nothing, on the cores and with the timer of the run
//! to come. What is measured there is this host's and ours, and no endpoint can be seen below it.

use loadgen_bench::Endpoint;
use loadgen_shards::order::Order;
use loadgen_shards::tls::TlsOptions;

use super::endpoint::start_embedded;
use super::run::{Role, Setting, perform};
use crate::config::{Config, Keep, RateShape, ReportDir};
use crate::cores::CoreRequest;
use crate::error::Error;
use crate::plan::{self, Plan};
use crate::report::Floor;
use crate::snapshot::{Distribution, Totals, count_needed};

/// Measures it; `None` if it was cut short.
pub fn measure(plan: &Plan, setting: &mut Setting) -> Result<Option<Floor>, Error> {
    let config = config(plan);
    let is_shared =
        plan::embedded(&config, &setting.host)?.is_some_and(|endpoint| endpoint.is_shared);
    let endpoint = start_embedded(&config, &setting.host)?;
    let address = endpoint.as_ref().map(Endpoint::address);
    let plan = Plan::build(config, &setting.host, address, None)?;
    let timer = plan.config.timer.map(|timer| timer.name());
    let role =
        Role::Part { name: "floor of this host".to_owned(), is_first: false, urls: Vec::new() };
    let ended = perform(plan, role, setting)?;
    let totals = Totals::of(ended.snapshot.tracked());
    let (service, lateness) = (&totals.sums.service, &totals.sums.lateness);
    let known = |distribution: &Distribution, milli| {
        distribution.percentile(milli).filter(|_| distribution.count() >= count_needed(milli))
    };
    // A host on which even this is not to be believed is just what the floor is to show.
    let is_measured = ended.snapshot.is_complete() && totals.sums.counters.completed > 0;
    Ok(is_measured.then(|| Floor {
        completed: totals.sums.counters.completed,
        duration_ns: totals.duration_ns,
        service_p50_ns: known(service, 50_000),
        service_p99_ns: known(service, 99_000),
        lateness_p50_ns: known(lateness, 50_000),
        lateness_p99_ns: known(lateness, 99_000),
        timer,
        is_shared,
    }))
}

/// The load of the plan, as the embedded endpoint gets it: nothing may end it but the clock.
fn config(plan: &Plan) -> Config {
    let mut config = plan.config.clone();
    config.common.cores = CoreRequest::List(plan.cores.clone());
    config.common.report_dir = ReportDir::None;
    config.urls.clear();
    (config.inference, config.targets) = (None, None);
    config.request.api_key = None;
    config.records = Keep::Nothing;
    config.tls = TlsOptions::default();
    config.connect_to.clear();
    config.unix_socket = None;
    config.source_ip = None;
    config.accept_status = (200, 299);
    if let Some(arrivals) = &mut config.arrivals {
        arrivals.rate = RateShape::Constant(highest(&arrivals.rate));
    }
    config.warmup = None;
    config.requests = None;
    config.duration_ns = Some(FLOOR_NS);
    config.drain_timeout_ns = FLOOR_NS;
    config.precision = None;
    config.repeats = 1;
    config.order = Order::Shuffle;
    for list in [&mut config.slo, &mut config.fail_if, &mut config.abort_if] {
        list.clear();
    }
    config.goodput.clear();
    config.wire_stamps = None;
    config.floor = false;
    config
}

/// The rate at which most is asked of the client.
fn highest(rate: &RateShape) -> f64 {
    match rate {
        RateShape::Constant(rate) => *rate,
        RateShape::Ramp { from, to, .. } => from.max(*to),
        RateShape::Series { points, .. } => {
            points.iter().map(|(_, rate)| *rate).fold(f64::MIN_POSITIVE, f64::max)
        }
    }
}

/// Length of the measurement.
const FLOOR_NS: u64 = 1_000_000_000;
