//! Runs made by hand: a schedule, how late we are, how long the endpoint takes; and for each check
//! what it says of them.

mod answers;

use std::sync::Arc;

use loadgen_shards::failure::{FailureKind, Message};
use loadgen_shards::limits::INTERVAL_NS;
use loadgen_shards::phase::{FitSample, PhaseKind};
use loadgen_shards::recorder::{Instant, Parts, Recording};
use loadgen_shards::schedule::{Arrival, Process, Profile, Schedule, SchedulePlan};

use super::*;
use crate::report::tests::{finished, plan_of};
use crate::snapshot::{Conditions, PERCENTILES, Segments, Steal};

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
#[derive(Clone)]
struct Case {
    snapshot: Snapshot,
    plan: plan::Phase,
}

impl Case {
    fn phase(&mut self) -> &mut PhaseTotals {
        &mut self.snapshot.phases[0]
    }

    fn judged(&self) -> Trust {
        judge(&self.snapshot, &self.snapshot.phases[0], &self.plan, None)
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
            if self.server_ns > 0 {
                server_free_ns = sent_ns.max(server_free_ns) + self.server_ns;
            }
            let complete_ns = sent_ns.max(server_free_ns) + (self.service)(arrival);
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
        let brief = check.brief.as_deref().unwrap_or("for the cause said above");
        assert!(check.reason.starts_with(brief), "{check:?}");
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
    let trust = judge(&snapshot, &snapshot.phases[0], &plan_of(4), None);
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
fn client_that_is_stopped_fails_by_name_and_a_server_that_is_stopped_does_not() {
    let stopped: fn(Arrival) -> u64 = |arrival| left_of_stop(arrival.offset_ns).max(300);
    let trust = Run { lateness: stopped, ..healthy() }.build().judged();
    assert_eq!(trust.verdict(), Level::Fail);
    assert_level(&trust, "D1", Level::Fail, "it makes p99 ");
    assert_level(&trust, "D1", Level::Fail, "the host stopped the client for up to 100 ms");
    assert_level(&trust, "D1", Level::Fail, "give it cores of its own, see doctor");
    assert_level(&trust, "D8", Level::Warn, "for the cause said above");
    assert_plain(&trust);
    let (mean, tail) = (trust.mean.expect("open loop"), trust.tail.expect("10 000 requests"));
    assert!(mean.client > 0.7 && tail.client > 0.9, "{mean:?} {tail:?}");
    assert!(marked(&trust).contains(&99_000) && !marked(&trust).contains(&50_000));

    // The same stops, which the shard saw as late wake-ups: counted now.
    let mut case = Run { lateness: stopped, ..healthy() }.build();
    let mut recording = Recording::default();
    (0..10).for_each(|_| recording.wakeup.record(100 * MS));
    case.phase().sums.wakeup.add(&recording.wakeup);
    assert_level(&case.judged(), "D1", Level::Fail, "100 ms, 10 times and 1.00 s in all");

    // The other side of it: the same latencies, none of them ours.
    let stops = Run { service: |a| MS + left_of_stop(a.offset_ns), ..healthy() };
    let trust = stops.build().judged();
    assert_level(&trust, "D1", Level::Ok, "never early");
    assert_level(&trust, "D8", Level::Ok, "");
    assert!(trust.mean.expect("open loop").endpoint > 0.99);
}

#[test]
fn lateness_is_judged_by_what_it_does_to_each_percentile() {
    let late = |lateness| Run { lateness, ..healthy() }.build().judged();
    assert_level(&late(|_| 40 * US), "D1", Level::Ok, "50 µs 100 %");
    assert_level(&late(|_| 100 * US), "D1", Level::Warn, "instead of");
    assert_level(&late(|_| 400 * US), "D1", Level::Fail, "see doctor");
    // One request in 2000, and those behind it: p99.9 and nothing below it.
    let trust = late(|arrival| if arrival.position % 2000 == 0 { 4 * MS } else { 300 });
    assert_level(&trust, "D1", Level::Warn, "p99.9");
    let by_lateness = |mark: &&Mark| mark.reason.starts_with("our own lateness");
    let touched: Vec<u32> = trust.marks.iter().filter(by_lateness).map(|m| m.milli).collect();
    assert!(touched.contains(&99_900) && !touched.contains(&90_000), "{touched:?}");
}

#[test]
fn lateness_of_a_sleeping_a_busy_and_a_sending_client_has_different_causes() {
    let late = Run { lateness: |_| 400 * US, ..healthy() }.build();
    let says = |spoil: &dyn Fn(&mut Case), words: &str| {
        let mut case = late.clone();
        spoil(&mut case);
        assert_level(&case.judged(), "D1", Level::Fail, words);
    };
    says(&|_| {}, "nothing that was measured explains it");
    let sleeping = |case: &mut Case| {
        let mut recording = Recording::default();
        (0..1000).for_each(|_| recording.wakeup.record(400 * US));
        case.phase().sums.wakeup.add(&recording.wakeup);
    };
    says(&sleeping, "slept until the instant and woke 400 µs late: --timer hybrid or inline");
    says(
        &|case| case.phase().sums.busy_ns = case.phase().sums.covered_ns * 97 / 100,
        "more --cores",
    );
    says(&|case| case.phase().sums.counters.single_sends_ns *= 100, "a send takes 340 µs");
    says(&|case| case.phase().sums.counters.run_delay_ns = SECOND, "other programs had its cores");
    says(&|case| case.phase().sums.counters.major_faults = 9, "9 pages had to be read from disk");
    let steal = Steal { core: 3, over_ns: 10 * SECOND, stolen_ns: 500 * MS };
    says(&|case| case.phase().steals = vec![steal], "most of core 3");
    let gaps = |case: &mut Case| {
        let counters = &mut case.phase().sums.counters;
        (counters.hiccups_100us, counters.hiccups_ns) = (200, 100 * MS);
    };
    says(&gaps, "took its cores 200 times for more than 100 µs");
}

/// A change to the facts of a healthy run, and what one check says of it.
type Spoiled = (&'static str, fn(&mut Case), Level, &'static str);

#[test]
fn each_check_has_its_levels() {
    let cases: &[Spoiled] = &[
        ("D2", |case| case.phase().sums.counters.completed += 1, Level::Fail, "please report it"),
        ("D2", |case| case.phase().in_flight_at_end = 1, Level::Fail, "in flight at the end 1"),
        ("D3", |case| untaken(case, 5), Level::Warn, "5 of 10 175 requests never left"),
        ("D3", |case| untaken(case, 50), Level::Fail, "never left the client (0.49 %)"),
        ("D3", |case| untaken(case, 100_000), Level::Ok, "the endpoint did not keep up"),
        ("D3", |case| planned_rate(case, 1100.0), Level::Warn, "another --seed"),
        ("D5", |case| case.phase().sums.busy_ns *= 9, Level::Ok, "at work 90 % of the time"),
        ("D6", |case| loop_gaps(case, 40 * US), Level::Ok, "blind for at most 40"),
        ("D6", |case| loop_gaps(case, 200 * US), Level::Warn, "each turn takes in many answers"),
        ("D6", |case| wake_ups(case, 70 * US), Level::Warn, "--spin, or --timer inline"),
        ("D6", |case| case.phase().sums.counters.completion_overflows = 1, Level::Fail, "1 time,"),
        ("D7", |case| case.snapshot.clock.raw_ppm = Some(49.0), Level::Ok, "+49.0 ppm"),
        ("D7", |case| case.snapshot.clock.raw_ppm = Some(-51.0), Level::Fail, "time synchronis"),
        ("D7", |case| case.snapshot.clock.drift_ppm = Some(51.0), Level::Fail, "changed its rate"),
        ("D7", |case| case.snapshot.clock.error_ns_max = 60_000, Level::Warn, "60 µs off"),
        ("D7", |case| case.snapshot.clock.error_ns_max = 2 * MS, Level::Fail, "2 ms off"),
        ("D7", |case| case.phase().sums.counters.negative_intervals = 2, Level::Fail, "2 pairs"),
        ("D8", |case| steal(case, 20 * MS), Level::Ok, "10 ms stolen"),
        ("D8", |case| steal(case, 200 * MS), Level::Warn, "the hypervisor gave 1.9 %"),
        ("D8", |case| hiccups(case, 5 * MS), Level::Ok, "1 gap longer than 100 µs"),
        ("D8", |case| hiccups(case, 50 * MS), Level::Warn, "stopped the client for up to 50 ms"),
        ("D8", fifo, Level::Warn, "may not run 5.0 % of the time"),
        ("D9", |case| case.phase().sums.counters.dropped = 9, Level::Warn, "given up for want of"),
        ("D9", |case| resent(case, 11), Level::Warn, "11 of 100 000"),
        ("D9", |case| resent(case, 9), Level::Ok, "waited for a connection"),
        ("D14", |case| case.phase().sums.area_ns += 1, Level::Fail, "differ by 1 ns"),
        ("D14", unfinished, Level::Warn, "a longer --drain-timeout"),
        ("D17", |case| clamped(case, 3), Level::Warn, "3 longer than 1 h"),
        ("D17", |case| clamped(case, 500), Level::Fail, "p99 is wrong: set --timeout"),
        ("D18", |case| case.phase().in_flight_at_end = 20, Level::Warn, "1 of the percentiles"),
    ];
    let healthy = healthy().build();
    for (id, spoil, level, words) in cases {
        let mut case = healthy.clone();
        spoil(&mut case);
        let trust = case.judged();
        assert_level(&trust, id, *level, words);
        assert_plain(&trust);
        if *level == Level::Fail {
            assert_eq!(trust.verdict(), Level::Fail, "{id}");
        }
    }
}

fn untaken(case: &mut Case, count: u64) {
    let counters = &mut case.phase().sums.counters;
    counters.scheduled += count;
    counters.untaken += count;
}

fn planned_rate(case: &mut Case, rate: f64) {
    let schedule = case.plan.schedule.as_mut().expect("open loop");
    schedule.profile = Arc::new(constant_profile(rate));
}

fn resent(case: &mut Case, resent: u64) {
    case.phase().segments = Some(Segments { sent: 100_000, resent });
}

fn loop_gaps(case: &mut Case, gap_ns: u64) {
    let mut recording = Recording::default();
    (0..100).for_each(|_| recording.loop_gap.record(gap_ns));
    case.phase().sums.loop_gap.add(&recording.loop_gap);
}

fn wake_ups(case: &mut Case, late_ns: u64) {
    let mut recording = Recording::default();
    (0..100).for_each(|_| recording.wakeup.record(late_ns));
    case.phase().sums.wakeup.add(&recording.wakeup);
}

fn steal(case: &mut Case, stolen_ns: u64) {
    case.phase().steals = vec![Steal { core: 0, over_ns: 10 * SECOND, stolen_ns }];
}

fn hiccups(case: &mut Case, ns: u64) {
    let counters = &mut case.phase().sums.counters;
    (counters.hiccups_100us, counters.hiccups_1ms, counters.hiccups_ns) = (1, 1, ns);
}

fn fifo(case: &mut Case) {
    case.snapshot.conditions = Conditions {
        policy: "fifo",
        realtime_us: Some(950_000),
        realtime_period_us: Some(1_000_000),
        ..Conditions::default()
    };
}

/// A request that is as old as all others together took.
fn unfinished(case: &mut Case) {
    let age_ns = case.phase().sums.area_ns;
    case.phase().survivors_ns = Some(age_ns);
    case.phase().sums.area_ns += age_ns;
}

fn clamped(case: &mut Case, count: u64) {
    let mut recording = Recording::default();
    (0..count).for_each(|_| recording.latency.record(2 * 3600 * SECOND));
    case.phase().sums.latency.add(&recording.latency);
}

#[test]
fn noise_marks_the_percentiles_beyond_the_time_that_was_lost() {
    let mut case = healthy().build();
    steal(&mut case, 310 * MS);
    // 3 % of 10 s: beyond p97.
    assert_eq!(marked(&case.judged()), [99_000, 99_900]);
}

#[test]
fn random_gaps_are_judged_by_the_size_of_the_effect() {
    let jittered = |mean_ns: fn(Arrival) -> u64| Run { lateness: mean_ns, ..healthy() }.build();
    let differ = "gaps differ from the plan";
    assert_level(&jittered(|a| exponential(a, 10e3)).judged(), "D4", Level::Ok, differ);
    assert_level(&jittered(|a| exponential(a, 160e3)).judged(), "D4", Level::Warn, differ);
    let trust = jittered(|a| exponential(a, 500e3)).judged();
    assert_level(&trust, "D4", Level::Fail, "for the cause said above");
    // A queue that was full: the instants are the endpoint's.
    let mut case = jittered(|arrival| exponential(arrival, 500e3));
    case.phase().sums.counters.held_back = 1;
    assert_level(&case.judged(), "D4", Level::Ok, "the endpoint set the pace");
    // What serial sending explains is no fault: 0.3 ms a send at 1000/s are 26 %.
    let mut case = jittered(|arrival| exponential(arrival, 500e3));
    case.phase().sums.counters.single_sends_ns = case.phase().sums.counters.single_sends * 300 * US;
    assert!(check(&case.judged(), "D4").value.expect("judged") < 0.05);
}

#[test]
fn a_ramp_and_gamma_gaps_are_judged_by_their_own_plan() {
    let ramp = Profile::linear(200.0, 1800.0, 10 * SECOND).expect("valid");
    let trust = Run { profile: ramp.clone(), ..healthy() }.build().judged();
    assert_level(&trust, "D4", Level::Ok, "gaps differ from the plan by");
    assert_level(&trust, "D12", Level::Ok, "by plan");
    // Negative control: the same instants held against a constant rate.
    let mut case = Run { profile: ramp, ..healthy() }.build();
    planned_rate(&mut case, 1000.0);
    assert!(check(&case.judged(), "D4").level > Level::Ok);

    let gamma = Run { process: Process::Gamma { shape: 4.0 }, ..healthy() };
    let mut case = gamma.build();
    assert_level(&case.judged(), "D4", Level::Ok, "gaps differ from the plan by");
    case.plan.schedule.as_mut().expect("open loop").process = Process::Poisson;
    assert_level(&case.judged(), "D4", Level::Fail, "too evenly");
}

#[test]
fn equal_gaps_are_judged_by_their_variation_beyond_the_jitter() {
    let run = |jitter, lateness| {
        Run { process: Process::Constant { jitter }, lateness, ..healthy() }.build().judged()
    };
    assert_level(&run(0.0, |_| 300), "D4", Level::Ok, "--jitter 10%");
    let trust = run(0.2, |_| 300);
    assert_level(&trust, "D4", Level::Ok, "");
    assert!(check(&trust, "D4").value.expect("judged") < 0.03, "{:?}", check(&trust, "D4"));
    assert_level(&run(0.0, |a| noise(a) % (600 * US)), "D4", Level::Warn, "gaps vary by");
    assert_level(&run(0.0, |a| exponential(a, 1e6)), "D4", Level::Fail, "gaps vary by");
    // One pause of 30 ms: a long gap and a burst, which is no reason to fail.
    let pause: fn(Arrival) -> u64 =
        |a| if (3500..3530).contains(&a.position) { (3530 - a.position) * MS } else { 300 };
    assert_level(&run(0.0, pause), "D4", Level::Warn, "without the oddest hundredth");
}

#[test]
fn waiting_for_connections_is_a_finding_with_a_number_to_try() {
    let waits = |pool_wait| Run { pool_wait, ..healthy() };
    let trust = waits(|arrival| if arrival.position % 20 == 0 { MS } else { 0 }).build().judged();
    assert_level(&trust, "D9", Level::Warn, "try -c 14");
    let often = || waits(|arrival| if arrival.position % 2 == 0 { MS } else { 0 });
    let trust = often().build().judged();
    assert_level(&trust, "D9", Level::Fail, "all were busy");
    assert_level(&trust, "D15", Level::Warn, "waiting for a connection makes p99");
    assert_eq!(check(&trust, "D15").class, Class::Endpoint);
    assert_ne!(trust.verdict(), Level::Fail, "the endpoint's");
    assert!(trust.mean.expect("open loop").pool > 0.2);
    // The same waits while another shard had a connection free.
    let mut case = often().build();
    let counters = &mut case.phase().sums.counters;
    counters.waits_other_shard_free_ns = std::mem::take(&mut counters.waits_full_ns);
    assert_level(&case.judged(), "D9", Level::Fail, "100 % another shard had one free");
    assert_level(&case.judged(), "D9", Level::Fail, "fewer --cores");
    // Nobody can tell how many are enough while most wait for seconds of so short a run.
    let trust = waits(|_| 3 * SECOND).build().judged();
    assert_level(&trust, "D9", Level::Fail, "a lower rate, or a longer run");
    // Our own delay is ours in this line too.
    let trust = Run { lateness: |_| 400 * US, ..healthy() }.build().judged();
    assert_level(&trust, "D15", Level::Warn, "the cause said above; p99 is 1.60 ms");
    assert_eq!(check(&trust, "D15").class, Class::Instrument);
}

#[test]
fn a_queue_that_grows_is_told_from_one_that_fills_and_from_chance() {
    let overload = |rate, server_ns| Run {
        profile: constant_profile(rate),
        server_ns,
        service: |_| 0,
        ..healthy()
    };
    for (name, run, is_unstable) in [
        ("1.2 times what it can", overload(1000.0, 1200 * US), true),
        ("3 times", overload(1000.0, 3 * MS), true),
        ("at 80 %", overload(1000.0, 800 * US), false),
        ("few requests", overload(5.0, MS), false),
        // In flight rises to 1000 for the first second, to 8000 for eight.
        ("answers of a second", Run { service: |_| SECOND, ..healthy() }, false),
        ("answers of eight seconds", Run { service: |_| 8 * SECOND, ..healthy() }, false),
        ("scattered", Run { service: |a| exponential(a, 2e9), ..healthy() }, false),
    ] {
        let trust = run.build().judged();
        assert_eq!(trust.is_unstable, is_unstable, "{name}: {:?}", check(&trust, "D12"));
        assert_ne!(trust.verdict(), Level::Fail, "{name}");
        if is_unstable {
            assert_level(&trust, "D12", Level::Fail, "did NOT hold");
            assert!(trust.intervals.is_empty() && marked(&trust).len() == PERCENTILES.len());
        }
    }
    // The same queue while each answer is as fast as ever: connections were missing.
    let starved = |service: fn(Arrival) -> u64| {
        // Each waits half a second longer than the one of a second before.
        let pool_wait: fn(Arrival) -> u64 = |arrival| arrival.offset_ns / 2;
        let mut case = Run { pool_wait, service, ..healthy() }.build();
        let counters = &mut case.phase().sums.counters;
        (counters.waits_full, counters.waits_full_ns) = (9_000, 20 * SECOND);
        case.phase().in_flight_peaks = vec![4];
        case.judged()
    };
    let trust = starved(|arrival| 20 * MS + noise(arrival) % MS);
    assert!(trust.is_unstable);
    assert_level(&trust, "D9", Level::Fail, "--max-connections 2");
    assert_level(&trust, "D12", Level::Fail, "so few connections did NOT hold");
    let trust = starved(|arrival| exponential(arrival, 2e7));
    assert!(trust.is_unstable);
    assert_level(&trust, "D9", Level::Fail, "no number of connections helps");
    assert_level(&trust, "D12", Level::Fail, "the endpoint did NOT hold");
    // A full queue leaves nothing to grow.
    let mut case = healthy().build();
    case.phase().sums.counters.held_back = 1;
    assert!(case.judged().is_unstable);
}

#[test]
fn a_trend_marks_and_says_where() {
    let service: fn(Arrival) -> u64 = |arrival| {
        let slower = if arrival.offset_ns > 5 * SECOND { 300 * US } else { 0 };
        MS + slower + noise(arrival) % (200 * US)
    };
    let trust = Run { service, ..healthy() }.build().judged();
    assert_level(&trust, "D12", Level::Warn, "p50 rose by 27 % from the first third to the last");
    assert!(marked(&trust).contains(&50_000));
    assert_ne!(trust.verdict(), Level::Fail, "the endpoint's");
}

#[test]
fn timeouts_make_percentiles_lower_bounds() {
    let fails: fn(Arrival) -> Option<FailureKind> =
        |arrival| (arrival.position % 50 == 0).then_some(FailureKind::RequestTimeout);
    let trust = Run { fails, ..healthy() }.build().judged();
    assert_level(&trust, "D18", Level::Warn, "2.0 % of the requests failed (request_timeout 204)");
    let bounds: Vec<u32> = trust.marks.iter().filter(|m| m.is_at_least).map(|m| m.milli).collect();
    assert_eq!(bounds, [99_900, 99_000]);
    // Negative control: failures that end by themselves bound nothing.
    let fails: fn(Arrival) -> Option<FailureKind> =
        |arrival| (arrival.position % 50 == 0).then_some(FailureKind::Status);
    let trust = Run { fails, ..healthy() }.build().judged();
    assert!(trust.marks.iter().all(|mark| !mark.is_at_least), "{:?}", trust.marks);
}

#[test]
fn intervals_of_alike_answers_are_wider_than_those_of_independent_ones() {
    let queue = Run { server_ns: 600 * US, service: |_| 0, ..healthy() };
    let trust = queue.build().judged();
    let p99 = trust.intervals.iter().find(|i| i.milli == 99_000).expect("10 000 answers");
    let (low_ns, high_ns) = p99.independent.expect("enough for both limits");
    assert!(p99.low_ns < low_ns && p99.high_ns > high_ns, "{p99:?}");
    assert!(p99.effective < 5000.0, "{p99:?}");
    assert_level(&trust, "D10", Level::Warn, "a longer run narrows it");
    assert!(marked(&trust).contains(&99_000));
    // Shorter than ten slices.
    let trust = Run { seconds: 2, ..healthy() }.build().judged();
    assert!(trust.intervals.is_empty());
    assert_level(&trust, "D10", Level::Ok, "fewer than ten slices");
}

#[test]
fn samples_that_are_missing_are_told_as_time() {
    let trust = Run { count: Some(500), profile: constant_profile(50.0), ..healthy() };
    let trust = trust.build().judged();
    // 500 in 10 s: as many again.
    assert_level(&trust, "D11", Level::Ok, "p99 needs 1 000, that is ");
    assert_eq!(check(&trust, "D11").value, Some(1000.0));
    let trust = Run { count: Some(0), ..healthy() }.build().judged();
    assert_level(&trust, "D11", Level::Ok, "no answers");
}

#[test]
fn precision_is_reached_later_for_tighter_goals() {
    let queue = Run { server_ns: 500 * US, service: |_| 0, ..healthy() }.build();
    let batches = &queue.snapshot.phases[0].batches;
    let ran_ns = 10 * SECOND;
    assert_eq!(precision_reached(batches, 99_000, 1.0), Some(true));
    assert_eq!(more_time_ns(batches, 99_000, 1.0, ran_ns), Some(0));
    assert_eq!(precision_reached(batches, 99_000, 0.01), Some(false));
    let tighter = |share| more_time_ns(batches, 99_000, share, ran_ns).expect("an interval");
    // Half the width takes four times as long.
    let (once, twice) = (tighter(0.01) + ran_ns, tighter(0.005) + ran_ns);
    assert!((twice as f64 / once as f64 - 4.0).abs() < 1e-6, "{once} {twice}");
    let short = Run { seconds: 2, ..healthy() }.build();
    let batches = &short.snapshot.phases[0].batches;
    assert_eq!(precision_reached(batches, 99_000, 1.0), None);
    assert_eq!(more_time_ns(batches, 99_000, 1.0, ran_ns), None);
}

#[test]
fn estimate_before_the_run_grows_with_the_percentile_and_the_square_of_the_precision() {
    // 1.96^2 x 99 / (ln 100)^2 / 0.05^2 = 7173 independent ones; at half load ten are worth one.
    let p99 = requests_estimate(99_000, 0.05);
    let alike = crate::statistics::planner::correlation_requests(0.5);
    assert!((p99 as f64 / alike - 7173.0).abs() < 1.0, "{p99} {alike}");
    let twice = requests_estimate(99_000, 0.025);
    assert!((twice as f64 / p99 as f64 - 4.0).abs() < 1e-3);
    assert!(requests_estimate(50_000, 0.05) < p99 && p99 < requests_estimate(99_900, 0.05));
}
