//! D4: do the instants of dispatch follow the process that was asked for?
//!
//! Instants are first mapped to the unit-rate process by the planned rate, so that a ramp is judged
//! like a constant rate. The verdict is by the size of the effect; p-values see microseconds.

use loadgen_shards::limits::FIT_BLOCK;
use loadgen_shards::recorder::Instant;
use loadgen_shards::schedule::{Process, Profile, SchedulePlan};

use super::causes::causes;
use super::facts::{Facts, percent};
use super::{Check, Class, Level, Line};
use crate::number::{grouped, time};
use crate::statistics::arrival::{
    Distance, GapFit, Null, bin_counts, break_ties, cv2, dispersion, gap_fit, ks_distance,
    serial_send_floor,
};

/// Kolmogorov-Smirnov distance above what serial sending alone makes, 0 to 1.
const DISTANCE_WARN: f64 = 0.05;
const DISTANCE_FAIL: f64 = 0.15;
/// A distance that chance makes more often than this is none: of 100 gaps, chance makes 0.13.
const CHANCE_MAX: f64 = 0.001;
/// Variation of equal gaps beyond their planned jitter, as a share of the gap: ours. 0.2 is what
/// good pacing keeps on a shared machine; at 0.5 the stream is as near to random as to even.
const VARIATION_WARN: f64 = 0.2;
const VARIATION_FAIL: f64 = 0.5;
/// One pause makes one long gap and a burst behind it; what fails must be there without them.
const OUTLIERS: f64 = 0.01;
/// Fewer gaps are not judged: ours.
const GAPS_MIN: usize = 100;
/// Fewer bins say nothing about their spread.
const BINS_MIN: usize = 30;
const BINS_NS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Stamps are whole ns.
const TICK_NS: f64 = 1.0;
/// Gaps shorter than this are two requests at once.
const TOGETHER_NS: f64 = 100.0;

const FIT: Line = Line { id: "D4", name: "arrival fit", class: Class::Instrument, unit: "" };

/// D4. `is_named`: the cause has been told already.
pub(super) fn fit(facts: &Facts, is_named: bool) -> Check {
    let Some(schedule) = &facts.plan.schedule else {
        return FIT.says(Level::Ok, None, "no schedule");
    };
    let sample = Sample::of(&facts.sums.fit_dispatched, schedule, facts.phase.start_ns);
    if sample.gaps.len() < GAPS_MIN {
        let reason = format!("too few requests to judge: {} gaps", sample.gaps.len());
        return FIT.says(Level::Ok, None, reason);
    }
    if facts.counters.held_back > 0 {
        let reason = "not judged: the queue was full, so the endpoint set the pace";
        return FIT.says(Level::Ok, None, reason);
    }
    match schedule.process {
        Process::Constant { jitter } => even(facts, &sample, jitter, is_named),
        Process::Poisson => random(facts, schedule, &sample, 1.0, is_named),
        Process::Gamma { shape } => random(facts, schedule, &sample, shape, is_named),
    }
}

/// `None`: it has been told.
fn cause(facts: &Facts, is_named: bool) -> Option<String> {
    (!is_named).then(|| causes(facts))
}

/// Sampled instants in the unit-rate process.
struct Sample {
    /// Ascending, a list a block.
    blocks: Vec<Vec<f64>>,
    /// Of all blocks, in order.
    gaps: Vec<f64>,
    /// Share of gaps shorter than [`TOGETHER_NS`].
    together: f64,
}

impl Sample {
    fn of(instants: &[Instant], schedule: &SchedulePlan, start_ns: u64) -> Sample {
        let mut instants = instants.to_vec();
        instants.sort_unstable_by_key(|instant| instant.position);
        let mut sample = Sample { blocks: Vec::new(), gaps: Vec::new(), together: 0.0 };
        let mut together = 0;
        // A hole would be a gap that no schedule has.
        let is_joined = |a: &Instant, b: &Instant| {
            a.position + 1 == b.position && a.position / FIT_BLOCK == b.position / FIT_BLOCK
        };
        for block in instants.chunk_by(is_joined).filter(|block| block.len() > 1) {
            let stamps_ns: Vec<u64> = block.iter().map(|instant| instant.at_ns).collect();
            let first_ns = stamps_ns.iter().min().copied().unwrap_or(start_ns);
            let offset_ns = first_ns.saturating_sub(start_ns);
            let after_ns = break_ties(&stamps_ns, TICK_NS, schedule.seed ^ block[0].position);
            let pairs = after_ns.windows(2);
            together += pairs.filter(|pair| pair[1] - pair[0] < TOGETHER_NS).count();
            let at = after_ns.iter().map(|ns| expected(&schedule.profile, offset_ns, *ns));
            let at: Vec<f64> = at.collect();
            sample.gaps.extend(at.windows(2).map(|pair| pair[1] - pair[0]));
            sample.blocks.push(at);
        }
        sample.together = together as f64 / sample.gaps.len().max(1) as f64;
        sample
    }

    /// Where in its block each instant lies, 0 to 1: uniform for a Poisson process, given the ends.
    fn within_blocks(&self) -> Vec<f64> {
        let within = self.blocks.iter().flat_map(|block| {
            let (first, last) = (block[0], block[block.len() - 1]);
            block[1..block.len() - 1].iter().map(move |at| (at - first) / (last - first))
        });
        within.collect()
    }

    /// Dispersion of the counts in bins of so many expected arrivals, and how many bins there are.
    fn dispersion(&self, bin: f64) -> Option<(f64, usize)> {
        let counts = self
            .blocks
            .iter()
            .flat_map(|block| bin_counts(block, block[0], block[block.len() - 1], bin));
        let counts: Vec<u64> = counts.collect();
        Some((dispersion(&counts)?, counts.len())).filter(|_| counts.len() >= BINS_MIN)
    }
}

/// Queries expected up to an instant that is no whole ns.
fn expected(profile: &Profile, offset_ns: u64, after_ns: f64) -> f64 {
    let whole_ns = offset_ns + after_ns as u64;
    let (floor, next) = (profile.expected(whole_ns), profile.expected(whole_ns + 1));
    floor + after_ns.fract() * (next - floor)
}

/// Poisson and gamma: the distance of the gaps from their distribution.
fn random(
    facts: &Facts,
    schedule: &SchedulePlan,
    sample: &Sample,
    shape: f64,
    is_named: bool,
) -> Check {
    let null = if shape == 1.0 {
        Null::Exponential { mean: 1.0 }
    } else {
        Null::Gamma { shape, mean: 1.0 }
    };
    let Some(GapFit { ks, a2, a2_p, cv2, lag1, .. }) = gap_fit(&sample.gaps, &null) else {
        return FIT.says(Level::Ok, None, "no gaps");
    };
    let floor = send_floor(facts, schedule);
    let effect = (ks.d - floor).max(0.0);
    let is_chance = ks.p >= CHANCE_MAX;
    let level = match effect {
        _ if is_chance => Level::Ok,
        effect if effect > DISTANCE_FAIL => Level::Fail,
        effect if effect > DISTANCE_WARN => Level::Warn,
        _ => Level::Ok,
    };
    let mut reason = format!(
        "gaps differ from the plan by {} at most, of which sending one after the other explains {} \
         (Kolmogorov-Smirnov, {} gaps, p {})",
        percent(ks.d),
        percent(floor),
        grouped(sample.gaps.len() as u64),
        chance(ks.p)
    );
    let clumped = clumped(facts, sample).filter(|_| shape == 1.0);
    if let Some((_, counts)) = &clumped {
        reason = format!("{counts}; {reason}");
    }
    reason += &format!("; Anderson-Darling {a2:.2} (p {})", chance(a2_p));
    if let Some(Distance { p, .. }) = uniform(sample).filter(|_| shape == 1.0) {
        reason += &format!("; steady rate p {}", chance(p));
    }
    if let Some((cv2, lag1)) = cv2.zip(lag1) {
        reason += &format!("; variance/mean² {cv2:.3}; successive gaps {lag1:+.3}");
    }
    if let Some(d) = at_the_send(facts, schedule, &null) {
        reason += &format!("; at the send {}", percent(d));
    }
    reason += &format!("; {} closer than 100 ns", percent(sample.together));
    match (level, clumped) {
        (Level::Ok, None) => FIT.says(level, Some(effect), reason),
        (Level::Ok, Some((how, _))) => {
            let brief = (!is_named).then(|| how.to_owned());
            FIT.finds(Level::Warn, Some(effect), brief, &reason)
        }
        (_, clumped) => {
            let how = clumped.map_or(String::new(), |(how, _)| format!("{how}: "));
            let brief = cause(facts, is_named).map(|cause| how + &cause);
            FIT.finds(level, Some(effect), brief, &reason)
        }
    }
}

/// A p-value; below what two digits show, only that.
fn chance(p: f64) -> String {
    if p < 0.005 { "below 0.01".to_owned() } else { format!("{p:.2}") }
}

fn uniform(sample: &Sample) -> Option<Distance> {
    ks_distance(&sample.within_blocks(), &Null::Uniform { low: 0.0, high: 1.0 })
}

/// The distance that is there if each shard sends its part of the requests one after the other.
fn send_floor(facts: &Facts, schedule: &SchedulePlan) -> f64 {
    let Some(send_ns) = facts.send_ns().filter(|_| facts.window_ns > 0) else { return 0.0 };
    let rate = schedule.profile.expected(facts.window_ns) * 1e9 / facts.window_ns as f64;
    serial_send_floor(rate / facts.shards as f64, send_ns)
}

/// Says how and by how much, if requests come in clumps or too evenly, more than chance does.
fn clumped(facts: &Facts, sample: &Sample) -> Option<(&'static str, String)> {
    let rate = facts.rate()?;
    BINS_NS.into_iter().find_map(|bin_ns| {
        let (dispersion, bins) = sample.dispersion(rate * bin_ns as f64 / 1e9)?;
        let reach = 3.0 * (2.0 / bins as f64).sqrt();
        let how =
            if dispersion > 1.0 { "requests leave in clumps" } else { "requests leave too evenly" };
        let counts = format!(
            "counts in {} vary {dispersion:.2} times as much as planned (1 ± {reach:.2} is chance)",
            time(bin_ns)
        );
        ((dispersion - 1.0).abs() > reach).then_some((how, counts))
    })
}

/// The same distance at the send, where nothing but us lies between the two.
fn at_the_send(facts: &Facts, schedule: &SchedulePlan, null: &Null) -> Option<f64> {
    let counters = &facts.counters;
    let waits =
        counters.waits_new_connection + counters.waits_full + counters.waits_other_shard_free;
    let sample = Sample::of(&facts.sums.fit_sent, schedule, facts.phase.start_ns);
    let is_ours = waits == 0 && sample.gaps.len() >= GAPS_MIN;
    is_ours.then(|| ks_distance(&sample.gaps, null)).flatten().map(|distance| distance.d)
}

/// Equal gaps: how much they vary beyond their planned jitter.
fn even(facts: &Facts, sample: &Sample, jitter: f64, is_named: bool) -> Check {
    // Both ends of a gap move by up to `jitter` of it, uniformly.
    let planned = jitter * (2.0f64 / 3.0).sqrt();
    let beyond = |gaps: &[f64]| {
        let cv2 = cv2(gaps).unwrap_or(0.0);
        (cv2 - planned * planned).max(0.0).sqrt()
    };
    let mut steady = sample.gaps.clone();
    steady.sort_unstable_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
    steady.truncate((steady.len() as f64 * (1.0 - OUTLIERS)) as usize);
    let (all, steady) = (beyond(&sample.gaps), beyond(&steady));
    let level = match (all, steady) {
        (_, steady) if steady > VARIATION_FAIL => Level::Fail,
        (all, _) if all > VARIATION_WARN => Level::Warn,
        _ => Level::Ok,
    };
    let mut reason = format!(
        "gaps vary by {} of their mean beyond the plan ({} without the oddest hundredth); {} \
         closer than 100 ns ({} gaps)",
        percent(all),
        percent(steady),
        percent(sample.together),
        grouped(sample.gaps.len() as u64)
    );
    if level > Level::Ok {
        return FIT.finds(level, Some(all), cause(facts, is_named), &reason);
    }
    if jitter == 0.0 {
        reason +=
            "; equal gaps can keep step with what the endpoint does at intervals: --jitter 10%";
    }
    FIT.says(level, Some(all), reason)
}
