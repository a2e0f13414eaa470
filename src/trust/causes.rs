//! D8, what the host took from the client, and the causes that a WARN or FAIL of ours names.

use loadgen_shards::limits::STALL_NS;

use super::dispatch::share_within;
use super::facts::{Facts, marks_beyond, percent};
use super::{Check, Class, Level, Line, Mark};
use crate::number::{counted, time};
use crate::snapshot::{Distribution, STEAL_STEP_NS, Steal};

/// Share of the client's time that may be lost before it shows in p99.9.
const LOST_WARN: f64 = 0.001;
/// Shards at work for so much of their time let requests wait for each other.
const SATURATED: f64 = 0.9;
/// A shard that sends for so much of its time cannot keep requests apart.
const SENDING_MUCH: f64 = 0.3;
/// Wake-ups later than this are felt among answers of a millisecond.
const WAKEUP_FELT_NS: u64 = 20_000;
/// Timed sleeps that are needed to speak of them.
const WAKEUPS_MIN: u64 = 20;
/// Causes that are named at most; the first are the likeliest.
const NAMED: usize = 2;

const HOST: Line = Line { id: "D8", name: "host noise", class: Class::Sampling, unit: "%" };

/// Times that a shard was away from its loop for more than 1 ms.
#[derive(Clone, Copy, Default)]
struct Pauses {
    count: u64,
    total_ns: u64,
    /// Of those whose length is known.
    longest_ns: u64,
}

impl Pauses {
    fn of(facts: &Facts) -> Pauses {
        let counters = &facts.counters;
        // Polling in vain; what sleeps and work hide is in the series.
        let mut pauses = Pauses { count: counters.hiccups_1ms, ..Pauses::default() };
        if counters.hiccups_1ms > 0 {
            pauses.total_ns = counters.hiccups_ns;
            pauses.longest_ns = counters.hiccups_ns / counters.hiccups_100us.max(1);
        }
        for series in [&facts.sums.wakeup, &facts.sums.loop_gap, &facts.sums.enter] {
            pauses.add(series);
        }
        pauses
    }

    fn add(&mut self, series: &Distribution) {
        if series.max <= STALL_NS {
            return;
        }
        for bucket in series.histogram.iter_recorded() {
            let (value_ns, count) = (bucket.value_iterated_to(), bucket.count_at_value());
            if value_ns > STALL_NS {
                self.count += count;
                self.total_ns += value_ns * count;
            }
        }
        self.longest_ns = self.longest_ns.max(series.max);
    }
}

/// Steal of all cores together: share of their time, ns, and the core that lost most. Times are
/// told in steps, so one step a core is no steal.
fn stolen(steals: &[Steal]) -> Option<(f64, u64, usize)> {
    let of = |steal: &Steal| steal.stolen_ns.saturating_sub(STEAL_STEP_NS);
    let over_ns: u64 = steals.iter().map(|steal| steal.over_ns).sum();
    let stolen_ns: u64 = steals.iter().map(of).sum();
    let worst = steals.iter().max_by_key(|steal| steal.stolen_ns)?;
    (over_ns > 0).then(|| (stolen_ns as f64 / over_ns as f64, stolen_ns, worst.core))
}

/// D8.
pub(super) fn host(facts: &Facts, marks: &mut Vec<Mark>) -> Check {
    let counters = &facts.counters;
    let pauses = Pauses::of(facts);
    let hiccups_ns = counters.hiccups_ns.max(pauses.total_ns);
    let away = facts.share_of_time(hiccups_ns);
    let (steal, stolen_ns) =
        stolen(&facts.phase.steals).map_or((0.0, 0), |(share, ns, _)| (share, ns));
    let lost = away.max(steal).max(stood_still(facts)).min(1.0);
    let mut parts = vec![
        format!("{} stolen by the hypervisor", time(stolen_ns)),
        format!(
            "{} longer than 100 µs and {} than 1 ms, {} in all",
            counted(counters.hiccups_100us, "gap"),
            pauses.count,
            time(hiccups_ns)
        ),
        format!(
            "waited {} for a core, pushed off it {}; {} from disk",
            time(counters.run_delay_ns),
            counted(counters.involuntary_switches, "time"),
            counted(counters.major_faults, "page")
        ),
    ];
    let throttle = facts.conditions().realtime_throttle();
    if let Some(share) = throttle {
        parts.insert(
            0,
            format!(
                "policy {} may not run {} of the time, so a shard that spins is stopped in each \
                 second: chrt -o 0, or sysctl -w kernel.sched_rt_runtime_us=-1",
                facts.conditions().policy,
                percent(share)
            ),
        );
    }
    let is_noisy = lost > LOST_WARN;
    if is_noisy {
        let reason = format!("the client stood still for {} of the time", percent(lost));
        marks.extend(marks_beyond(lost, &reason));
        parts.insert(0, causes(facts));
    }
    let level = if is_noisy || throttle.is_some() { Level::Warn } else { Level::Ok };
    HOST.says(level, Some(lost * 100.0), parts.join("; "))
}

/// What made us late, slow or blind, as far as the figures show, and what to do about it.
pub(super) fn causes(facts: &Facts) -> String {
    known_causes(facts)
        .unwrap_or_else(|| "nothing that was measured explains it; see doctor".to_owned())
}

/// As [`causes`]; `None` if the figures show none.
pub(super) fn known_causes(facts: &Facts) -> Option<String> {
    let mut list = Vec::new();
    list.extend(by_pauses(facts));
    list.extend(by_gaps(facts));
    list.extend(by_steal(facts));
    list.extend(by_others(facts));
    list.extend(by_ourselves(facts));
    list.truncate(NAMED);
    (!list.is_empty()).then(|| list.join("; and "))
}

/// Share of the time in which the client stood still, by the requests that were more than 1 ms late
/// without it being busy: requests sample the time.
fn stood_still(facts: &Facts) -> f64 {
    let lateness = &facts.sums.lateness;
    if lateness.is_empty() || is_saturated(facts) {
        return 0.0;
    }
    1.0 - share_within(lateness, STALL_NS)
}

fn by_pauses(facts: &Facts) -> Option<String> {
    let pauses = Pauses::of(facts);
    let away = facts.share_of_time(pauses.total_ns);
    // A stop that ended with an answer at hand is in no series but that of the late requests.
    let still = stood_still(facts);
    if away.max(still) <= LOST_WARN {
        return None;
    }
    let (_, stolen_ns, _) = stolen(&facts.phase.steals).unwrap_or_default();
    let still_ns = (still * facts.sums.covered_ns as f64) as u64;
    let who = match pauses.total_ns.max(still_ns) / 2 {
        half if stolen_ns > half => "the hypervisor took its cores",
        half if facts.counters.run_delay_ns > half => "other programs had its cores",
        _ => "stopped from outside: a signal, a debugger, a paused container or virtual machine",
    };
    let late_ns = facts.sums.lateness.largest().filter(|_| still > 0.0).unwrap_or(0);
    let longest = time(pauses.longest_ns.max(late_ns));
    let often = if 2.0 * away >= still {
        format!("{} and {} in all", counted(pauses.count, "time"), time(pauses.total_ns))
    } else {
        format!("about {} of the time", percent(still))
    };
    Some(format!(
        "the host stopped the client for up to {longest}, {often} ({who}): give it cores of its \
         own, see doctor"
    ))
}

/// Shorter than a pause, but many.
fn by_gaps(facts: &Facts) -> Option<String> {
    let counters = &facts.counters;
    let share = facts.share_of_time(counters.hiccups_ns);
    let is_short = counters.hiccups_1ms == 0 && share > LOST_WARN;
    is_short.then(|| {
        format!(
            "interrupts or other programs took its cores {} for more than 100 µs, {} of the time: \
             keep them off its cores (isolcpus, nohz_full, interrupt affinity)",
            counted(counters.hiccups_100us, "time"),
            percent(share)
        )
    })
}

fn by_steal(facts: &Facts) -> Option<String> {
    let (share, _, core) = stolen(&facts.phase.steals).filter(|(share, ..)| *share > LOST_WARN)?;
    Some(format!(
        "the hypervisor gave {} of the client's cores to others, most of core {core}: a machine \
         with cores of its own",
        percent(share)
    ))
}

fn by_others(facts: &Facts) -> Option<String> {
    let counters = &facts.counters;
    let waited = facts.share_of_time(counters.run_delay_ns);
    if counters.major_faults > 0 && waited <= LOST_WARN {
        let faults = counted(counters.major_faults, "page");
        return Some(format!("{faults} had to be read from disk: free some memory"));
    }
    (waited > LOST_WARN).then(|| {
        format!(
            "other programs had its cores for {} of the time: give it cores of its own (--cores, \
             with the others kept off them)",
            percent(waited)
        )
    })
}

/// What is not the host's fault.
fn by_ourselves(facts: &Facts) -> Vec<String> {
    let mut list = Vec::new();
    if let Some(busy) = facts.utilisation().filter(|_| is_saturated(facts)) {
        list.push(format!(
            "its shards were at work {} of the time: more --cores, or a lower rate",
            percent(busy)
        ));
    }
    let (wakeup, lateness) = (&facts.sums.wakeup, &facts.sums.lateness);
    let median = |series: &Distribution| series.percentile(50_000).unwrap_or(0);
    let (woken_ns, late_ns) = (median(wakeup), median(lateness));
    let does_sleep = wakeup.count() >= WAKEUPS_MIN;
    let p99_ns = wakeup.percentile(99_000).unwrap_or(0);
    if does_sleep && woken_ns >= WAKEUP_FELT_NS && 2 * late_ns >= woken_ns {
        list.push(format!(
            "its shards slept until the instant and woke {} late: --timer hybrid or inline",
            time(woken_ns)
        ));
    } else if does_sleep && p99_ns >= WAKEUP_FELT_NS {
        let conditions = facts.conditions();
        let deep = conditions.wake_us.filter(|us| us * 1000 >= WAKEUP_FELT_NS);
        let deep =
            deep.map(|us| format!(" (a core in {} takes {us} µs)", conditions.deepest_sleep));
        let deep = deep.unwrap_or_default();
        list.push(format!(
            "its shards sleep and wake up to {} late{deep}: --spin, or --timer inline",
            time(p99_ns)
        ));
    }
    let sending = facts
        .send_ns()
        .zip(facts.rate())
        .map(|(send_ns, rate)| (send_ns, send_ns * rate / facts.shards as f64 / 1e9));
    if let Some((send_ns, share)) = sending.filter(|(_, share)| *share >= SENDING_MUCH) {
        list.push(format!(
            "a send takes {}, so a shard sends {} of the time and requests wait for each other: \
             more --cores",
            time(send_ns as u64),
            percent(share)
        ));
    }
    list
}

fn is_saturated(facts: &Facts) -> bool {
    facts.utilisation().is_some_and(|busy| busy >= SATURATED)
}
