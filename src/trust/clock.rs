//! D7: can the stamps be believed?

use super::facts::Facts;
use super::{Check, Class, Level, Line};
use crate::number::{counted, time};
use crate::snapshot::ClockFacts;

/// Beyond this the clock is not merely corrected but broken, or being set.
const PPM_MAX: f64 = 50.0;

/// Our clock was so far from the kernel's when it was checked. It is checked four times a second,
/// and then about 1 µs off; a host that starves us checks it less.
const ERROR_WARN_NS: u64 = 50_000;
const ERROR_FAIL_NS: u64 = 1_000_000;

const CLOCK: Line = Line { id: "D7", name: "clock", class: Class::Instrument, unit: "ppm" };

/// D7.
pub(super) fn clock(facts: &Facts) -> Check {
    let ClockFacts { source, error_ns_max, read_cost_ns, drift_ppm, raw_ppm, skew_ns, .. } =
        facts.snapshot.clock;
    let size = |ppm: Option<f64>| ppm.map(f64::abs);
    let worst = size(drift_ppm).into_iter().chain(size(raw_ppm)).reduce(f64::max);
    let told = |ppm: Option<f64>| ppm.map_or("unknown".to_owned(), |ppm| format!("{ppm:+.1} ppm"));
    let apart = skew_ns.map(|ns| format!("; shards {} apart at the start", time(ns)));
    let figures = format!(
        "{source}, {read_cost_ns:.0} ns a read, never more than {} off; rate of the first 20 ms \
         {}, against the raw clock {}{}",
        time(error_ns_max),
        told(drift_ppm),
        told(raw_ppm),
        apart.unwrap_or_default()
    );
    let negative = facts.counters.negative_intervals;
    let mut brief = None;
    let mut level = Level::Fail;
    if error_ns_max > ERROR_WARN_NS {
        level = if error_ns_max > ERROR_FAIL_NS { Level::Fail } else { Level::Warn };
        let off = time(error_ns_max);
        brief = Some(format!("our clock was {off} off when it was checked: a less busy host"));
    }
    let is_off = |ppm: Option<f64>| size(ppm).is_some_and(|ppm| ppm > PPM_MAX);
    if is_off(raw_ppm) {
        level = Level::Fail;
        brief = Some(
            "the kernel's clock is being corrected fast: wait until time synchronisation has \
             settled (chronyc tracking)"
                .to_owned(),
        );
    }
    if is_off(drift_ppm) {
        level = Level::Fail;
        brief = Some(
            "the counter changed its rate: not a counter to measure with, set the kernel's clock \
             source to another one"
                .to_owned(),
        );
    }
    if negative > 0 {
        level = Level::Fail;
        let pairs = counted(negative, "pair");
        brief =
            Some(format!("{pairs} of stamps are in the wrong order: the cores' counters disagree"));
    }
    match brief {
        None => CLOCK.says(Level::Ok, worst, figures),
        brief => CLOCK.finds(level, worst, brief, &figures),
    }
}
