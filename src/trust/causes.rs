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
/// Who took one in so many ns of a pause is named for it: who was stopped from outside waited for
/// nothing and was robbed of nothing.
const THIEF_PART: u64 = 4;
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
        for bucket in series.histogram.iter().filter(|bucket| bucket.high > STALL_NS) {
            self.count += bucket.count;
            self.total_ns += bucket.high * bucket.count;
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

/// D8. `is_named`: the cause has been told already.
pub(super) fn host(facts: &Facts, is_named: bool, marks: &mut Vec<Mark>) -> Check {
    let counters = &facts.counters;
    let pauses = Pauses::of(facts);
    let hiccups_ns = counters.hiccups_ns.max(pauses.total_ns);
    let away = facts.share_of_time(hiccups_ns);
    let (steal, stolen_ns) =
        stolen(&facts.phase.steals).map_or((0.0, 0), |(share, ns, _)| (share, ns));
    let lost = away.max(steal).max(stood_still(facts)).min(1.0);
    let parts = [
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
    let throttled = throttle.map(|share| {
        format!(
            "policy {} may not run {} of the time, so a shard that spins is stopped in each \
             second: chrt -o 0, or sysctl -w kernel.sched_rt_runtime_us=-1",
            facts.conditions().policy,
            percent(share)
        )
    });
    let is_noisy = lost > LOST_WARN;
    if is_noisy {
        let reason = format!("the client stood still for {} of the time", percent(lost));
        marks.extend(marks_beyond(lost, &reason));
    }
    let (value, figures) = (Some(lost * 100.0), parts.join("; "));
    if !is_noisy && throttled.is_none() {
        return HOST.says(Level::Ok, value, figures);
    }
    let told = || host_causes(facts).unwrap_or_else(|| causes(facts));
    let cause = (is_noisy && !is_named).then(told);
    let brief: Vec<String> = cause.into_iter().chain(throttled).collect();
    let brief = (!brief.is_empty()).then(|| brief.join("; "));
    HOST.finds(Level::Warn, value, brief, &figures)
}

/// What made us late, slow or blind, as far as the figures show, and what to do about it.
pub(super) fn causes(facts: &Facts) -> String {
    known_causes(facts)
        .unwrap_or_else(|| "nothing that was measured explains it; see doctor".to_owned())
}

/// As [`causes`]; `None` if the figures show none.
pub(super) fn known_causes(facts: &Facts) -> Option<String> {
    let mut list = of_host(facts);
    if list.is_empty() {
        // Whoever has no core wakes late too.
        list.extend(by_sleep(facts));
    }
    list.extend(by_work(facts));
    named(list)
}

/// As [`known_causes`], but for what is our own doing.
pub(super) fn host_causes(facts: &Facts) -> Option<String> {
    named(of_host(facts))
}

fn named(mut list: Vec<String>) -> Option<String> {
    list.truncate(NAMED);
    (!list.is_empty()).then(|| list.join("; and "))
}

fn of_host(facts: &Facts) -> Vec<String> {
    let pauses = by_pauses(facts);
    let thief = pauses.as_ref().map(|(thief, _)| *thief);
    let mut list: Vec<String> = pauses.map(|(_, text)| text).into_iter().collect();
    list.extend(by_gaps(facts));
    list.extend(by_steal(facts).filter(|_| thief != Some(Thief::Hypervisor)));
    list.extend(by_others(facts).filter(|_| thief != Some(Thief::Others)));
    list
}

/// Who took the cores while the client stood still.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thief {
    Hypervisor,
    Others,
    Unknown,
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

fn by_pauses(facts: &Facts) -> Option<(Thief, String)> {
    let pauses = Pauses::of(facts);
    let away = facts.share_of_time(pauses.total_ns);
    // A stop that ended with an answer at hand is in no series but that of the late requests.
    let still = stood_still(facts);
    if away.max(still) <= LOST_WARN {
        return None;
    }
    let (_, stolen_ns, _) = stolen(&facts.phase.steals).unwrap_or_default();
    let still_ns = (still * facts.sums.covered_ns as f64) as u64;
    let (thief, who) = match pauses.total_ns.max(still_ns) / THIEF_PART {
        part if stolen_ns > part => (Thief::Hypervisor, "the hypervisor took its cores"),
        part if facts.counters.run_delay_ns > part => {
            (Thief::Others, "other programs had its cores")
        }
        _ => (
            Thief::Unknown,
            "stopped from outside: a signal, a debugger, a paused container or virtual machine",
        ),
    };
    let late_ns = facts.sums.lateness.largest().filter(|_| still > 0.0).unwrap_or(0);
    let longest = time(pauses.longest_ns.max(late_ns));
    let often = if 2.0 * away >= still {
        format!("{} and {} in all", counted(pauses.count, "time"), time(pauses.total_ns))
    } else {
        format!("about {} of the time", percent(still))
    };
    let stopped = format!("the host stopped the client for up to {longest}, {often} ({who})");
    Some((thief, format!("{stopped}: give it cores of its own, see doctor")))
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
            "other programs had its cores for {} of the time (the endpoint, if it is on this \
             host): give it cores of its own (--cores, with the others kept off them)",
            percent(waited)
        )
    })
}

/// The way we wait for the next instant.
fn by_sleep(facts: &Facts) -> Option<String> {
    let (wakeup, lateness) = (&facts.sums.wakeup, &facts.sums.lateness);
    let median = |series: &Distribution| series.percentile(50_000).unwrap_or(0);
    let (woken_ns, late_ns) = (median(wakeup), median(lateness));
    let p99_ns = wakeup.percentile(99_000).filter(|_| wakeup.count() >= WAKEUPS_MIN)?;
    if woken_ns >= WAKEUP_FELT_NS && 2 * late_ns >= woken_ns {
        let woken = time(woken_ns);
        return Some(format!(
            "its shards slept until the instant and woke {woken} late: --timer hybrid or inline"
        ));
    }
    let conditions = facts.conditions();
    let deep = conditions.wake_us.filter(|us| us * 1000 >= WAKEUP_FELT_NS);
    let deep = deep.map(|us| format!(" (a core in {} takes {us} µs)", conditions.deepest_sleep));
    let deep = deep.unwrap_or_default();
    (p99_ns >= WAKEUP_FELT_NS).then(|| {
        let late = time(p99_ns);
        format!("its shards sleep and wake up to {late} late{deep}: --spin, or --timer inline")
    })
}

/// More to do than there is time.
fn by_work(facts: &Facts) -> Vec<String> {
    let mut list = Vec::new();
    if let Some(busy) = facts.utilisation().filter(|_| is_saturated(facts)) {
        let busy = percent(busy);
        let less = if facts.is_open { "a lower rate" } else { "fewer connections" };
        list.push(format!("its shards were at work {busy} of the time: more --cores, or {less}"));
    }
    let Some((send_ns, rate)) = facts.send_ns().zip(facts.rate()) else { return list };
    let sending = send_ns * rate / facts.shards as f64 / 1e9;
    if sending >= SENDING_MUCH {
        list.push(format!(
            "a send takes {}, so a shard sends {} of the time and requests wait for each other: \
             more --cores",
            time(send_ns as u64),
            percent(sending.min(1.0))
        ));
    }
    list
}

fn is_saturated(facts: &Facts) -> bool {
    facts.utilisation().is_some_and(|busy| busy >= SATURATED)
}
