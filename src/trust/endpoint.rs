//! D9, D15, D18, D21: what the endpoint did to the figures. Findings, never a verdict on the run.

use loadgen_shards::recorder::{Counters, Parts};

use super::facts::{Facts, mark, percent, told};
use super::stationarity::is_settled;
use super::{Check, Class, Level, Line, Mark};
use crate::number::{counted, grouped, time};
use crate::snapshot::{Distribution, PERCENTILES, Segments};

/// Share of the latency spent waiting for a connection: worth a word ...
const POOL_WARN: f64 = 0.01;
/// ... and the main finding.
const POOL_FAIL: f64 = 0.1;
/// Room above the most connections that were needed at once.
const POOL_ROOM: f64 = 1.1;
/// Share of TCP segments that were sent again; so many at least, as other programs send too.
const RESENT_WARN: f64 = 1e-4;
const RESENT_MIN: u64 = 10;
/// p99 from the schedule over p99 from the send.
const OMISSION_WARN: f64 = 1.05;
/// A median beyond so many times the fast answers is one that queued at the endpoint.
const SPREAD: u64 = 2;
/// Connections that the endpoint closed, over completed requests: worth a word; so many at least.
const CLOSED_WARN: f64 = 1e-3;
const CLOSED_MIN: u64 = 3;
/// Too many requests.
const STATUS_RATE_LIMIT: u16 = 429;
/// Kinds of failures that are named.
const KINDS: usize = 3;

const POOL: Line = Line { id: "D9", name: "transport", class: Class::Endpoint, unit: "%" };
const OMISSION: Line = Line { id: "D15", name: "omission gap", class: Class::Endpoint, unit: "" };
const FAILURES: Line = Line { id: "D18", name: "errors", class: Class::Endpoint, unit: "%" };
const CLOSED: Line = Line { id: "D21", name: "keep-alive", class: Class::Endpoint, unit: "%" };

/// D9: how much of the latency was waiting for a connection, and which `-c` to try.
pub(super) fn pool_wait(facts: &Facts, is_unstable: bool) -> Check {
    let counters = &facts.counters;
    let Counters { waits_new_connection, waits_full, waits_other_shard_free, issued, .. } =
        *counters;
    let parts = facts.sums.breakdown.all();
    let share = (parts.total_ns() > 0).then(|| parts.pool_wait_ns as f64 / parts.total_ns() as f64);
    let waited = waits_new_connection + waits_full + waits_other_shard_free;
    let mut level = match share {
        Some(share) if share > POOL_FAIL => Level::Fail,
        Some(share) if share > POOL_WARN => Level::Warn,
        _ => Level::Ok,
    };
    let peak: u64 = facts.phase.in_flight_peaks.iter().sum();
    let connect = facts.sums.connect.percentile(50_000);
    let reason = format!(
        "{} of {} waited for a connection; at most {} in flight; {} opened{}",
        grouped(waited),
        counted(issued, "request"),
        grouped(peak),
        counted(counters.connections_opened, "connection"),
        connect.map_or(String::new(), |ns| format!(", {} each", time(ns))),
    );
    let mut brief = Vec::new();
    if counters.dropped > 0 {
        level = level.max(Level::Warn);
        let of_due = counters.dropped as f64 / counters.scheduled as f64;
        let dropped = counted(counters.dropped, "request");
        brief.push(format!("{dropped} ({}) given up for want of a connection", percent(of_due)));
    }
    if let Some(share) = share.filter(|share| *share > POOL_WARN) {
        let split = split(counters);
        let advice = advice(facts, peak, is_unstable);
        brief.push(format!(
            "{} of the latency was waiting for a connection, not client CPU ({split}): {advice}",
            percent(share)
        ));
    }
    if let Some(lost) = lost(facts) {
        level = level.max(Level::Warn);
        brief.push(lost);
    }
    let value = share.map(|share| share * 100.0);
    match level {
        Level::Ok => POOL.says(level, value, reason),
        _ => POOL.finds(level, value, Some(brief.join("; ")), &reason),
    }
}

/// Says it if segments had to be sent again: each makes a request some 200 ms slower.
fn lost(facts: &Facts) -> Option<String> {
    let Segments { sent, resent } = facts.phase.segments?;
    let share = resent as f64 / sent.max(1) as f64;
    (resent >= RESENT_MIN && share > RESENT_WARN).then(|| {
        format!(
            "{} of the TCP segments of this host were sent again ({} of {}), each at the price of \
             200 ms or more: look at the network and at listen backlogs",
            percent(share),
            grouped(resent),
            grouped(sent)
        )
    })
}

/// Which waits there were, by time.
fn split(counters: &Counters) -> String {
    let kinds = [
        (counters.waits_full_ns, "all were busy"),
        (counters.waits_new_connection_ns, "one had to be opened"),
        (counters.waits_other_shard_free_ns, "another shard had one free, which is ours"),
    ];
    let total_ns: u64 = kinds.iter().map(|(ns, _)| ns).sum();
    let parts = kinds.iter().filter(|(ns, _)| *ns > 0);
    let parts = parts.map(|(ns, what)| format!("{} {what}", percent(*ns as f64 / total_ns as f64)));
    parts.collect::<Vec<_>>().join(", ")
}

fn advice(facts: &Facts, peak: u64, is_unstable: bool) -> String {
    let counters = &facts.counters;
    if is_unstable {
        return match connections_short(facts) {
            Some(needed) => format!(
                "answers come as fast as ever, so the connections were probably too few: \
                 --max-connections {needed}"
            ),
            None => "no number of connections helps where the queue grows".to_owned(),
        };
    }
    if !is_settled(facts) {
        return "too much waited to tell how many are enough: a lower rate, or a longer run"
            .to_owned();
    }
    let is_ours = counters.waits_other_shard_free_ns
        > counters.waits_full_ns + counters.waits_new_connection_ns;
    if is_ours {
        return "fewer --cores, so that fewer shards share the connections".to_owned();
    }
    let batches = facts.phase.batches.list().iter();
    let present = batches.filter_map(|batch| batch.present(facts.shards)).fold(0.0, f64::max);
    let needed = (POOL_ROOM * present.max(peak as f64)).ceil() as u64;
    let shards = facts.shards as u64;
    format!("try -c {}", needed.div_ceil(shards) * shards)
}

/// The connections that the rate needs, where the queue grows for want of them: an endpoint that is
/// the limit itself answers the slower the more it is asked.
pub(super) fn connections_short(facts: &Facts) -> Option<u64> {
    let service = &facts.sums.service;
    let (p50_ns, p1_ns) = (told(service, 50_000)?, told(service, 1_000)?);
    let is_steady = p50_ns <= SPREAD * p1_ns && p50_ns <= SPREAD * service.smallest()?;
    let needed = (POOL_ROOM * facts.rate()? * p50_ns as f64 / 1e9).ceil() as u64;
    let peak: u64 = facts.phase.in_flight_peaks.iter().sum();
    (facts.counters.waits_full > 0 && is_steady && needed > peak).then_some(needed)
}

/// D15: what leaving out the time before the send would hide. `is_named`: why we were late has been
/// told already.
pub(super) fn omission(facts: &Facts, is_named: bool, is_unstable: bool) -> Check {
    if is_unstable {
        let reason = "none: as the queue grows, there is no p99";
        return OMISSION.says(Level::Ok, None, reason);
    }
    let p99 = |series| told(series, 99_000).filter(|ns| *ns > 0);
    let Some((from_schedule, from_send)) = p99(&facts.sums.latency).zip(p99(&facts.sums.service))
    else {
        return OMISSION.says(Level::Ok, None, "too few requests for a p99");
    };
    let ratio = from_schedule as f64 / from_send as f64;
    let Parts { lateness_ns, pool_wait_ns, prepare_ns, service_ns, .. } =
        facts.sums.breakdown.above(from_schedule);
    let ours_ns = lateness_ns + prepare_ns;
    let total_ns = (ours_ns + pool_wait_ns + service_ns).max(1) as f64;
    let part = |ns: u64| percent(ns as f64 / total_ns);
    let figures = format!(
        "p99 is {} from the schedule, {} from the send; above it {} our delay, {} waiting for a \
         connection, {} endpoint",
        time(from_schedule),
        time(from_send),
        part(ours_ns),
        part(pool_wait_ns),
        part(service_ns)
    );
    let is_ours = ours_ns > pool_wait_ns;
    let level = if ratio > OMISSION_WARN { Level::Warn } else { Level::Ok };
    if level == Level::Ok {
        return OMISSION.says(level, Some(ratio), figures);
    }
    let culprit = if is_ours { "our own delay" } else { "waiting for a connection" };
    let brief = (!is_ours || !is_named)
        .then(|| format!("{culprit} makes p99 {ratio:.2} times what the send alone shows"));
    // Our share of it is a fault of ours; the endpoint's is a finding.
    let class = if is_ours { Class::Instrument } else { Class::Endpoint };
    Check { class, ..OMISSION.finds(level, Some(ratio), brief, &figures) }
}

/// D18: what failed, and what that does to the percentiles.
pub(super) fn failures(facts: &Facts, marks: &mut Vec<Mark>) -> Check {
    let Counters { completed, failed, timeouts_after_client_stall, .. } = facts.counters;
    let ended = completed + failed;
    // They would have taken longer than what was seen of them.
    let censored = facts.sums.censored.count() + facts.phase.in_flight_at_end;
    let of_latency = completed + censored;
    let mut at_least = 0;
    for percentile in PERCENTILES {
        let beyond = 1.0 - f64::from(percentile.milli) / 1e5;
        if of_latency > 0 && censored as f64 / of_latency as f64 > beyond {
            let reason = format!("{} have no end", counted(censored, "request"));
            marks.push(Mark { is_at_least: true, ..mark(percentile.milli, &reason) });
            at_least += 1;
        }
    }
    if failed == 0 && censored == 0 {
        return FAILURES.says(Level::Ok, Some(0.0), "no request failed");
    }
    let share = if ended > 0 { failed as f64 / ended as f64 } else { 0.0 };
    let mut kinds: Vec<_> = facts.sums.failures.iter().collect();
    kinds.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.count));
    let kinds = kinds.iter().take(KINDS);
    let kinds = kinds.map(|(kind, tally)| format!("{} {}", kind.name(), grouped(tally.count)));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let mut reason = format!("{} of the requests failed", percent(share));
    if !kinds.is_empty() {
        reason += &format!(" ({kinds})");
    }
    if censored > 0 {
        reason += &format!(
            "; {} timed out or had no end, longer than any latency shown: {}",
            grouped(censored),
            match at_least {
                0 => "too few to change a percentile".to_owned(),
                _ => format!("{at_least} of the percentiles are lower bounds"),
            }
        );
    }
    if timeouts_after_client_stall > 0 {
        reason += &format!(
            "; {} expired right after a pause of ours",
            counted(timeouts_after_client_stall, "timeout")
        );
    }
    let limited = facts.sums.statuses.iter().find(|(status, _)| *status == STATUS_RATE_LIMIT);
    if let Some((_, count)) = limited {
        reason += &format!(
            "; {} had status 429, which is a rate limit, not the capacity of the endpoint: a \
             higher limit for this key, or a lower load",
            counted(count, "answer")
        );
    }
    FAILURES.says(Level::Warn, Some(share * 100.0), reason)
}

/// D21: whether the endpoint closes connections that could carry more. `None` if it closed none.
pub(super) fn closed(facts: &Facts) -> Option<Check> {
    let Counters { closed_by_endpoint, closed_by_endpoint_exchanges, completed, .. } =
        facts.counters;
    let share = (completed > 0).then(|| closed_by_endpoint as f64 / completed as f64)?;
    if closed_by_endpoint == 0 {
        return None;
    }
    let each = closed_by_endpoint_exchanges as f64 / closed_by_endpoint as f64;
    let figures = format!(
        "it closed {}, each after {} on average",
        counted(closed_by_endpoint, "connection"),
        if each == 1.0 { "1 request".to_owned() } else { format!("{each:.1} requests") },
    );
    let value = Some(100.0 * share);
    if share < CLOSED_WARN || closed_by_endpoint < CLOSED_MIN {
        return Some(CLOSED.says(Level::Ok, value, figures));
    }
    let median = |series: &Distribution| series.percentile(50_000);
    let price = match (median(&facts.sums.connect), median(&facts.sums.tls)) {
        (Some(connect), Some(tls)) => {
            format!(" ({} to connect, {} for TLS)", time(connect), time(tls))
        }
        (Some(connect), None) => format!(" ({} to connect)", time(connect)),
        (None, _) => String::new(),
    };
    let brief = format!(
        "the endpoint closes connections after a number of requests, so {} of them needed a new \
         one{price}: raise its limit (nginx: keepalive_requests), or take it as part of the \
         endpoint",
        percent(share.min(1.0))
    );
    Some(CLOSED.finds(Level::Warn, value, Some(brief), &figures))
}
