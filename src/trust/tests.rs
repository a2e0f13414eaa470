//! Runs made by hand: a schedule, how late we are, how long the endpoint takes; and for each check
//! what it says of them.

use std::sync::Arc;

use loadgen_shards::failure::{FailureKind, Message};
use loadgen_shards::limits::INTERVAL_NS;
use loadgen_shards::phase::{FitSample, PhaseKind};
use loadgen_shards::recorder::{Instant, Parts, Recording};
use loadgen_shards::schedule::{Arrival, Process, Profile, Schedule, SchedulePlan};

use super::*;
use crate::report::tests::{finished, plan_of, run_of};
use crate::snapshot::{Conditions, Steal};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const START_NS: u64 = 5 * SECOND;

/// An open loop, and what happened to each of its requests; times in ns.
struct Run {
    process: Process,
    profile: Profile,
    count: Option<u64>,
    seconds: u64,
    /// T1 - T0, but for those before it.
    lateness: fn(Arrival) -> u64,
    pool_wait: fn(Arrival) -> u64,
    /// T8 - T2.
    service: fn(Arrival) -> u64,
    /// What a single server takes; what comes meanwhile waits there.
    server_ns: u64,
    fails: fn(Arrival) -> Option<FailureKind>,
}

fn constant_profile(rate: f64) -> Profile {
    Profile::constant(rate).expect("a valid rate")
}

/// Poisson, 1000/s for 10 s; answers take a millisecond and a bit, and we are 300 ns late.
fn healthy() -> Run {
    Run {
        process: Process::Poisson,
        profile: constant_profile(1000.0),
        count: None,
        seconds: 10,
        lateness: |_| 300,
        pool_wait: |_| 0,
        service: |arrival| MS + noise(arrival) % (200 * US),
        server_ns: 0,
        fails: |_| None,
    }
}

/// Scattered, the same for the same position.
fn noise(arrival: Arrival) -> u64 {
    let mixed = (arrival.position + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// Exponential with this mean.
fn exponential(arrival: Arrival, mean_ns: f64) -> u64 {
    let uniform = (noise(arrival) % 1_000_000) as f64 / 1e6;
    (-(1.0 - uniform).ln() * mean_ns) as u64
}

/// Whether an instant lies in the last tenth of its second, and how much of that is left.
fn left_of_stop(offset_ns: u64) -> u64 {
    let within = offset_ns % SECOND;
    if within >= 900 * MS { SECOND - within } else { 0 }
}

/// A run to be judged.
struct Case {
    snapshot: Snapshot,
    plan: plan::Phase,
}

impl Case {
    fn phase(&mut self) -> &mut PhaseTotals {
        &mut self.snapshot.phases[0]
    }

    fn judged(&self) -> Trust {
        judge(&self.snapshot, &self.snapshot.phases[0], &self.plan)
    }
}

/// A request that has ended.
struct Ended {
    complete_ns: u64,
    dispatched_ns: u64,
}

impl Run {
    fn build(self) -> Case {
        let plan = SchedulePlan {
            process: self.process,
            profile: Arc::new(self.profile.clone()),
            seed: 42,
            stream: 0,
            count: self.count,
            end_ns: Some(self.seconds * SECOND),
        };
        let window_ns = self.seconds * SECOND;
        let mut recordings: Vec<Recording> = Vec::new();
        let mut ended = Vec::new();
        let fit = FitSample::of(self.profile.expected(window_ns) as u64, plan.seed);
        let (mut last_ns, mut server_free_ns) = (0, 0);
        for arrival in Schedule::new(&plan) {
            let scheduled_ns = START_NS + arrival.offset_ns;
            let dispatched_ns = (scheduled_ns + (self.lateness)(arrival)).max(last_ns);
            last_ns = dispatched_ns;
            let ready_ns = dispatched_ns + (self.pool_wait)(arrival);
            let sent_ns = ready_ns + 100;
            server_free_ns = sent_ns.max(server_free_ns) + self.server_ns;
            let complete_ns = server_free_ns + (self.service)(arrival);
            let at_dispatch = at(&mut recordings, dispatched_ns);
            at_dispatch.counters.scheduled += 1;
            at_dispatch.counters.issued += 1;
            at_dispatch.lateness.record(dispatched_ns - scheduled_ns);
            at_dispatch.pool_wait.record(ready_ns - dispatched_ns);
            if ready_ns > dispatched_ns {
                at_dispatch.counters.waits_full += 1;
                at_dispatch.counters.waits_full_ns += ready_ns - dispatched_ns;
            }
            if fit.has(arrival.position) {
                let position = arrival.position;
                at_dispatch.fit_dispatched.push(Instant { position, at_ns: dispatched_ns });
                at_dispatch.fit_sent.push(Instant { position, at_ns: sent_ns });
            }
            let at_end = at(&mut recordings, complete_ns);
            ended.push(Ended { complete_ns, dispatched_ns });
            at_end.residence_ns += i128::from(complete_ns - dispatched_ns);
            at_end.area_ns += i128::from(complete_ns - dispatched_ns);
            if let Some(kind) = (self.fails)(arrival) {
                at_end.counters.failed += 1;
                at_end.failures.count(kind, || Message::new("503"));
                if kind == FailureKind::RequestTimeout {
                    at_end.censored.record(complete_ns - scheduled_ns);
                }
                continue;
            }
            at_end.counters.completed += 1;
            at_end.latency.record(complete_ns - scheduled_ns);
            at_end.since_dispatch.record(complete_ns - dispatched_ns);
            at_end.service.record(complete_ns - sent_ns);
            let parts = Parts {
                count: 1,
                lateness_ns: dispatched_ns - scheduled_ns,
                pool_wait_ns: ready_ns - dispatched_ns,
                prepare_ns: sent_ns - ready_ns,
                service_ns: complete_ns - sent_ns,
            };
            at_end.breakdown.record(complete_ns - scheduled_ns, &parts);
        }
        self.finish(plan, recordings, &ended)
    }

    fn finish(
        self,
        schedule: SchedulePlan,
        mut recordings: Vec<Recording>,
        ended: &[Ended],
    ) -> Case {
        at(&mut recordings, START_NS + self.seconds * SECOND);
        let mut phase = PhaseTotals::new("performance", PhaseKind::Performance, START_NS);
        for recording in &mut recordings {
            let end_ns = recording.end_ns;
            recording.busy_ns = INTERVAL_NS / 10;
            recording.counters.single_sends = 100;
            recording.counters.single_sends_ns = 100 * 3400;
            (0..20).for_each(|_| recording.loop_gap.record(5 * US));
            let is_present = |e: &&Ended| e.dispatched_ns <= end_ns && e.complete_ns > end_ns;
            recording.in_flight = ended.iter().filter(is_present).count() as u64;
            phase.add(recording);
        }
        let window_ns = self.seconds * SECOND;
        phase.issue_end_ns = START_NS + window_ns;
        phase.load_end_ns = phase.issue_end_ns;
        phase.end_ns = phase.issue_end_ns + SECOND;
        phase.survivors_ns = Some(0);
        phase.note_peak(0, 12);
        let mut snapshot = finished(1, 0);
        snapshot.cores = vec![Some(0)];
        snapshot.phases = vec![phase];
        let plan = plan::Phase {
            schedule: Some(schedule),
            requests: self.count,
            duration_ns: Some(window_ns),
            ..plan_of(64)
        };
        Case { snapshot, plan }
    }
}

/// The recording of the interval that an instant lies in.
fn at(recordings: &mut Vec<Recording>, at_ns: u64) -> &mut Recording {
    let index = ((at_ns - START_NS) / INTERVAL_NS) as usize;
    while recordings.len() <= index {
        let mut recording = Recording::default();
        recording.begin(0, START_NS + recordings.len() as u64 * INTERVAL_NS);
        recording.end_ns = recording.begin_ns + INTERVAL_NS;
        recordings.push(recording);
    }
    &mut recordings[index]
}

fn check<'a>(trust: &'a Trust, id: &str) -> &'a Check {
    let found = trust.checks.iter().find(|check| check.id == id);
    found.unwrap_or_else(|| panic!("{id} is not among {:?}", ids(trust)))
}

fn ids(trust: &Trust) -> Vec<&'static str> {
    trust.checks.iter().map(|check| check.id).collect()
}

fn marked(trust: &Trust) -> Vec<u32> {
    let mut list: Vec<u32> = trust.marks.iter().map(|mark| mark.milli).collect();
    list.sort_unstable();
    list.dedup();
    list
}

#[track_caller]
fn assert_level(trust: &Trust, id: &str, level: Level, words: &str) {
    let check = check(trust, id);
    assert_eq!(check.level, level, "{check:?}");
    assert!(check.reason.contains(words), "{id} does not say `{words}`: {}", check.reason);
}

/// Every reason is one line of words for a reader who has never heard of the ids.
#[track_caller]
fn assert_plain(trust: &Trust) {
    for check in &trust.checks {
        assert!(!check.reason.is_empty() && !check.reason.contains('\n'), "{check:?}");
        assert!(!check.reason.contains("NaN") && !check.reason.contains("inf"), "{check:?}");
        let is_id =
            |word: &str| ids(trust).contains(&word.trim_matches(|c: char| !c.is_alphanumeric()));
        assert!(!check.reason.split_whitespace().any(is_id), "{check:?}");
        assert!(check.value.is_none_or(f64::is_finite), "{check:?}");
    }
    for mark in &trust.marks {
        assert!(!mark.reason.is_empty() && mark.reason.len() < 100, "{mark:?}");
    }
}

#[test]
fn healthy_run_is_trusted_and_every_check_is_there() {
    let trust = healthy().build().judged();
    let expected = [
        "D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D9", "D10", "D11", "D12", "D14", "D15",
        "D17", "D18", "D19",
    ];
    assert_eq!(ids(&trust), expected);
    assert_plain(&trust);
    for check in &trust.checks {
        assert_eq!(check.level, Level::Ok, "{check:?}");
    }
    assert_eq!(trust.verdict(), Level::Ok);
    assert!(!trust.is_unstable);
    let mean = trust.mean.expect("open loop");
    assert!((mean.endpoint + mean.pool + mean.client - 1.0).abs() < 1e-12);
    assert!(mean.endpoint > 0.99, "{mean:?}");
    assert!(trust.tail.expect("10 000 requests").endpoint > 0.99);
    assert_eq!(trust.intervals.len(), 2, "no p99.9 of 10 000: {:?}", trust.intervals);
}

#[test]
fn closed_loop_has_no_lines_of_a_schedule() {
    let snapshot = finished(20_000, 3);
    let trust = judge(&snapshot, &snapshot.phases[0], &plan_of(4));
    let expected = ["D2", "D6", "D7", "D8", "D10", "D11", "D12", "D14", "D17", "D18", "D19"];
    assert_eq!(ids(&trust), expected);
    assert_plain(&trust);
    assert_eq!((trust.mean, trust.tail), (None, None));
    assert_eq!(trust.verdict(), Level::Ok);
}

#[test]
fn what_the_endpoint_does_and_few_requests_never_fail_the_run() {
    let fails: fn(Arrival) -> Option<FailureKind> =
        |arrival| noise(arrival).is_multiple_of(50).then_some(FailureKind::Status);
    let cases = [
        ("2 % of 503s", Run { fails, ..healthy() }),
        ("50 requests", Run { count: Some(50), ..healthy() }),
        ("1 request", Run { count: Some(1), ..healthy() }),
        ("0 requests", Run { count: Some(0), ..healthy() }),
        ("overload of 1.2", Run { server_ns: 1_200 * US, service: |_| 0, ..healthy() }),
        ("server stops", Run { service: |a| MS + left_of_stop(a.offset_ns), ..healthy() }),
        ("all time out", Run { fails: |_| Some(FailureKind::RequestTimeout), ..healthy() }),
    ];
    for (name, run) in cases {
        let trust = run.build().judged();
        assert_ne!(trust.verdict(), Level::Fail, "{name}: {:#?}", trust.checks);
        assert_plain(&trust);
    }
}

#[test]
fn zz_dump() {
    let stop: fn(Arrival) -> u64 = |a| left_of_stop(a.offset_ns).max(300);
    for (name, run) in [
        ("healthy", healthy()),
        ("overload", Run { server_ns: 1_200 * US, service: |_| 0, ..healthy() }),
        ("stop", Run { lateness: stop, ..healthy() }),
        ("server stop", Run { service: |a| MS + left_of_stop(a.offset_ns), ..healthy() }),
        ("50", Run { count: Some(50), ..healthy() }),
        ("jitter", Run { lateness: |a| exponential(a, 500e3), ..healthy() }),
        (
            "timeouts",
            Run {
                fails: |a| (a.position % 50 == 0).then_some(FailureKind::RequestTimeout),
                ..healthy()
            },
        ),
    ] {
        let trust = run.build().judged();
        println!(
            "== {name}: {:?} unstable {} {:?} {:?}",
            trust.verdict(),
            trust.is_unstable,
            trust.mean,
            trust.tail
        );
        for c in &trust.checks {
            println!("{} {} {:?} {:?} {} | {}", c.id, c.name, c.level, c.value, c.unit, c.reason);
        }
        for m in &trust.marks {
            println!("   mark {} {} {}", m.milli, m.is_at_least, m.reason);
        }
        println!("{:?}", trust.intervals);
    }
}
