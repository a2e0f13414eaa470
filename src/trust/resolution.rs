//! D5 and D6: had the shards time, and how fine are their stamps?

use loadgen_shards::recorder::Counters;

use super::causes::{host_causes, known_causes};
use super::facts::{Facts, percent};
use super::{Check, Class, Level, Line};
use crate::number::{counted, grouped, rate, time};
use crate::snapshot::Distribution;

/// An error of a receive stamp beyond this share of the median latency is worth a word.
const ERROR_WARN: f64 = 0.05;
/// Values that a p99 of ours needs before it is judged.
const VALUES_MIN: u64 = 100;

const SATURATION: Line =
    Line { id: "D5", name: "shard saturation", class: Class::Instrument, unit: "%" };
const LOOP_GAP: Line =
    Line { id: "D6", name: "time resolution", class: Class::Instrument, unit: "%" };

/// D5: informative, as D1 measures what it does.
pub(super) fn saturation(facts: &Facts) -> Check {
    let Some(busy) = facts.utilisation() else {
        return SATURATION.says(Level::Ok, None, "nothing was recorded");
    };
    let mut reason = format!("shards at work {} of the time", percent(busy));
    let issued = facts.counters.issued;
    if let Some(of_all) = facts.rate().filter(|_| issued > 0) {
        let each_ns = facts.sums.busy_ns as f64 / issued as f64;
        reason += &format!(
            "; {} requests/s a shard, {} of its time each",
            rate(of_all / facts.shards as f64),
            time(each_ns as u64)
        );
        if busy < 1.0 {
            // A single server with constant service time and Poisson arrivals.
            let wait_ns = each_ns * busy / (2.0 * (1.0 - busy));
            reason += &format!(", so that one waits {} for another", time(wait_ns as u64));
        }
    }
    SATURATION.says(Level::Ok, Some(busy * 100.0), reason)
}

/// D6: how long a shard could not see what came. `is_named`: the host's part has been told already.
pub(super) fn loop_gap(facts: &Facts, is_named: bool) -> Check {
    let Counters { completion_overflows, receive_buffer_waits, enters, receives, .. } =
        facts.counters;
    let p99 =
        |series: &Distribution| series.percentile(99_000).filter(|_| series.count() >= VALUES_MIN);
    let (gap_ns, wakeup_ns) = (p99(&facts.sums.loop_gap), p99(&facts.sums.wakeup));
    let error_ns = gap_ns.into_iter().chain(wakeup_ns).max();
    let median_ns = facts.headline().percentile(50_000).filter(|ns| *ns > 0);
    let share = error_ns.zip(median_ns).map(|(error, median)| error as f64 / median as f64);
    let mut parts = vec![format!(
        "{:.1} receives a kernel call, {} without a buffer",
        receives as f64 / enters.max(1) as f64,
        grouped(receive_buffer_waits)
    )];
    let enter_ns = facts.sums.enter.percentile(50_000);
    parts.extend(enter_ns.map(|ns| format!("a call that sends takes {}", time(ns))));
    let late = |ns| format!("99 % of the timed wake-ups at most {} late", time(ns));
    parts.extend(wakeup_ns.map(late));
    parts.extend(gap_ns.map(|ns| format!("99 % of the turns blind for at most {}", time(ns))));
    parts.reverse();
    let mut reason = parts.join("; ");
    let (mut level, mut brief) = (Level::Ok, None);
    if let Some(share) = share.filter(|share| *share > ERROR_WARN) {
        level = Level::Warn;
        let host = host_causes(facts);
        let what = match host {
            Some(_) if is_named => None,
            Some(host) => Some(host),
            None if wakeup_ns >= gap_ns => Some(
                "wake-ups come late, so answers seem slower: --spin, or --timer inline".to_owned(),
            ),
            None => Some(known_causes(facts).unwrap_or_else(|| {
                "each turn takes in many answers: more --cores, or fewer connections".to_owned()
            })),
        };
        let error = time(error_ns.unwrap_or(0));
        let off = format!("stamps are off by up to {error} ({} of the median)", percent(share));
        match what {
            Some(what) => brief = Some(format!("{off}: {what}")),
            None => reason = format!("{off}; {reason}"),
        }
    }
    if completion_overflows > 0 {
        level = Level::Fail;
        let overflows = counted(completion_overflows, "time");
        brief = Some(format!(
            "the completion queue overflowed {overflows}, so answers waited in the kernel: fewer \
             connections a shard, or more --cores"
        ));
    }
    let value = share.map(|share| share * 100.0);
    match level {
        Level::Ok => LOOP_GAP.says(level, value, reason),
        _ => LOOP_GAP.finds(level, value, brief, &reason),
    }
}
