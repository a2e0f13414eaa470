//! Faster, slower or cannot tell: pure, over the figures of the runs.
//!
//! A block has three runs in an order drawn at random: A, A once more as the control, and B. How B
//! differs from A is the median over the blocks of B against the mean of the two; whether that is
//! chance, the exact test of [`block_permutation`] says, which needs no law of the figures. The
//! control is the same endpoint measured twice: where A differs from itself by as much, the host is
//! too noisy to tell.

use crate::compare::{Kind, Run, p_text};
use crate::expression::{Metric, Stat};
use crate::number::significant;
use crate::statistics::compare::{block_permutation, paired_shift, sign_flip};

/// A figure that is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// As in files.
    pub name: &'static str,
    /// What its numbers are. Shares are compared by their difference, all else by its ratio.
    pub kind: Kind,
    /// Where it is in a run.
    pub metric: Metric,
    /// More is better.
    is_better_high: bool,
}

const fn latency(name: &'static str, percent: f64) -> Figure {
    let metric = Metric::Latency(Stat::Percentile(percent));
    Figure { name, kind: Kind::Time, metric, is_better_high: false }
}

const fn of_tokens(name: &'static str, metric: Metric) -> Figure {
    Figure { name, kind: Kind::Time, metric, is_better_high: false }
}

/// In the order of the table; those of tokens only where there are any.
pub const FIGURES: [Figure; 9] = [
    latency("latency.p50", 50.0),
    latency("latency.p99", 99.0),
    Figure { name: "achieved", kind: Kind::Rate, metric: Metric::Qps, is_better_high: true },
    Figure {
        name: "failed",
        kind: Kind::Share,
        metric: Metric::FailedShare,
        is_better_high: false,
    },
    of_tokens("ttft.p50", Metric::Ttft(Stat::Percentile(50.0))),
    of_tokens("ttft.p99", Metric::Ttft(Stat::Percentile(99.0))),
    of_tokens("tpot.p50", Metric::Tpot(Stat::Percentile(50.0))),
    of_tokens("tpot.p99", Metric::Tpot(Stat::Percentile(99.0))),
    Figure { name: "output tokens", kind: Kind::Rate, metric: Metric::Tps, is_better_high: true },
];

/// How B comes out against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// B is better.
    Faster,
    /// B is worse.
    Slower,
    /// No difference that matters: below [`RELEVANT`].
    Equal,
    /// Chance or noise could have made it.
    CannotTell,
}

impl Call {
    /// As in files.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Faster => "faster",
            Call::Slower => "slower",
            Call::Equal => "equal",
            Call::CannotTell => "cannot tell",
        }
    }
}

/// A shift with what chance has to do with it. Shares of A; of a share, its difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The median over the blocks.
    pub shift: f64,
    /// Its 95 % interval; `None` below 6 blocks.
    pub interval: Option<(f64, f64)>,
    /// Two-sided.
    pub p: f64,
}

/// The verdict on one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What B is.
    pub call: Call,
    /// B against A.
    pub effect: Effect,
    /// A against itself.
    pub control: Effect,
    /// Blocks whose runs all have the figure.
    pub blocks: usize,
    /// Why it cannot be told; empty where it can.
    pub why: String,
}

impl Figure {
    /// Its value in a run that is complete.
    pub fn of(&self, run: &Run) -> Option<f64> {
        run.metric(self.metric).filter(|_| run.is_complete())
    }

    /// Whether some run has it, or ought to: every run has a latency, not every one tokens.
    pub fn is_told(&self, runs: &[&Run]) -> bool {
        !self.metric.is_of_answers() || runs.iter().any(|run| run.metric(self.metric).is_some())
    }

    fn is_ratio(&self) -> bool {
        self.kind != Kind::Share
    }

    /// `+5.1 %`, of a share `+5.1 points`.
    pub fn shift_text(&self, shift: f64) -> String {
        let unit = if self.is_ratio() { "%" } else { "points" };
        format!("{:+.1} {unit}", 100.0 * shift)
    }

    /// Judges blocks of A, control and B. `None` below [`BLOCKS_MIN`], or where a ratio has no
    /// meaning.
    pub fn judge(&self, blocks: &[[f64; 3]]) -> Option<Verdict> {
        let is_sound = |value: &f64| value.is_finite() && (!self.is_ratio() || *value > 0.0);
        if blocks.len() < BLOCKS_MIN || !blocks.iter().flatten().all(is_sound) {
            return None;
        }
        let scaled = |value: f64| if self.is_ratio() { value.ln() } else { value };
        let blocks: Vec<[f64; 3]> = blocks.iter().map(|block| block.map(scaled)).collect();
        let of_b: Vec<f64> = blocks.iter().map(|[a, control, b]| b - (a + control) / 2.0).collect();
        let of_a: Vec<f64> = blocks.iter().map(|[a, control, _]| control - a).collect();
        let effect = self.effect(&of_b, block_permutation(&blocks, SEED)?)?;
        let control = self.effect(&of_a, sign_flip(&of_a, SEED)?)?;
        let noise = match control.interval {
            Some((low, high)) => low.abs().max(high.abs()),
            None => of_a.iter().map(|shift| self.share(*shift).abs()).fold(0.0, f64::max),
        };
        let (call, why) = self.call(effect, control, noise);
        Some(Verdict { call, effect, control, blocks: blocks.len(), why })
    }

    /// From the scale of the tests to a share of A.
    fn share(&self, shift: f64) -> f64 {
        if self.is_ratio() { shift.exp_m1() } else { shift }
    }

    fn effect(&self, shifts: &[f64], p: f64) -> Option<Effect> {
        let shift = paired_shift(shifts, 0.95)?;
        let interval = shift.interval.map(|(low, high)| (self.share(low), self.share(high)));
        Some(Effect { shift: self.share(shift.value), interval, p })
    }

    /// `noise`: by how much A differs from itself.
    fn call(&self, effect: Effect, control: Effect, noise: f64) -> (Call, String) {
        let relevant = if self.is_ratio() { RELEVANT } else { RELEVANT_SHARE };
        let is_chance = effect.p >= P_MAX;
        if effect.shift.abs() < relevant && (!is_chance || noise < relevant) {
            return (Call::Equal, String::new());
        }
        let why = if control.p < P_MAX && control.shift.abs() >= relevant {
            let shift = self.shift_text(control.shift);
            format!(
                "A differs from itself ({shift}, p {}): this host is too noisy",
                p_text(control.p)
            )
        } else if is_chance {
            format!("chance could have made the difference (p {})", p_text(effect.p))
        } else if noise >= effect.shift.abs() {
            let unit = if self.is_ratio() { "%" } else { "points" };
            let noise = significant(100.0 * noise);
            format!("A differs from itself by up to {noise} {unit}: this host is too noisy")
        } else {
            let is_better = (effect.shift > 0.0) == self.is_better_high;
            return (if is_better { Call::Faster } else { Call::Slower }, String::new());
        };
        (Call::CannotTell, why)
    }
}

/// Blocks that a verdict needs: with 3 a single odd run decides.
pub const BLOCKS_MIN: usize = 4;
/// p below which a difference is not held for chance.
const P_MAX: f64 = 0.05;
/// Shares of A below which a difference matters to nobody ...
const RELEVANT: f64 = 0.005;
/// ... and differences of shares.
const RELEVANT_SHARE: f64 = 0.001;
/// Of the random choices that stand for all where there are many blocks.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::simulation::{normal, single_server};
    use crate::statistics::{Draws, median};

    const P50: Figure = FIGURES[0];
    const P99: Figure = FIGURES[1];
    const ACHIEVED: Figure = FIGURES[2];
    const FAILED: Figure = FIGURES[3];

    fn call(figure: Figure, blocks: &[[f64; 3]]) -> Call {
        figure.judge(blocks).expect("enough blocks").call
    }

    #[test]
    fn a_clear_difference_is_told_with_its_direction() {
        let slower: Vec<[f64; 3]> =
            (0..6).map(|i| 100.0 + f64::from(i)).map(|a| [a, a + 0.1, 1.1 * a]).collect();
        assert_eq!(call(P99, &slower), Call::Slower);
        assert_eq!(call(ACHIEVED, &slower), Call::Faster, "more is better");
        let faster: Vec<[f64; 3]> = slower.iter().map(|[a, c, _]| [*a, *c, 0.9 * a]).collect();
        assert_eq!(call(P99, &faster), Call::Faster);
        let verdict = P99.judge(&slower).expect("six blocks");
        assert!((verdict.effect.shift - 0.0995).abs() < 0.001, "{verdict:?}");
        let (low, high) = verdict.effect.interval.expect("six blocks");
        assert!(0.09 < low && high < 0.11, "{verdict:?}");
        assert!(verdict.effect.p < 0.002, "{verdict:?}");
        assert_eq!(verdict.why, "");
    }

    #[test]
    fn figures_of_tokens_are_told_where_there_are_tokens_and_know_their_direction() {
        let plain = serde_json::json!({
            "n_samples_completed": 100, "n_samples_failed": 0, "qps": 100.0,
            "latency": { "percentiles": { "50.0": 5e5, "99.0": 2e6 } },
        });
        let mut streamed = plain.clone();
        streamed["tps"] = serde_json::json!(5210.0);
        streamed["ttft"] = serde_json::json!({ "percentiles": { "50.0": 2e8, "99.0": null } });
        let told = |summary: serde_json::Value| -> Vec<&str> {
            let run = Run::new("r".to_owned(), summary, serde_json::Value::Null).expect("a result");
            FIGURES.iter().filter(|f| f.is_told(&[&run])).map(|f| f.name).collect()
        };
        assert_eq!(told(plain), ["latency.p50", "latency.p99", "achieved", "failed"]);
        assert_eq!(told(streamed)[4..], ["ttft.p50", "output tokens"]);
        let more = [[100.0, 100.1, 120.0]; 6];
        assert_eq!(call(FIGURES[4], &more), Call::Slower, "TTFT");
        assert_eq!(call(FIGURES[8], &more), Call::Faster, "tokens per second");
    }

    #[test]
    fn a_host_on_which_a_differs_from_itself_tells_nothing() {
        // B is always 10 % above, but so is the control in one block.
        let mut blocks = vec![[100.0, 100.5, 110.0]; 6];
        blocks[2] = [100.0, 113.0, 124.0];
        let verdict = P99.judge(&blocks).expect("six blocks");
        assert_eq!(verdict.call, Call::CannotTell);
        assert!(verdict.why.contains("too noisy"), "{verdict:?}");
        // The second A is always slower: no chance, but not B's doing.
        let drifting = vec![[100.0, 103.0, 120.0]; 6];
        let verdict = P99.judge(&drifting).expect("six blocks");
        assert_eq!(verdict.call, Call::CannotTell);
        assert!(verdict.why.starts_with("A differs from itself (+3.0 %, p 0.031)"), "{verdict:?}");
    }

    #[test]
    fn what_matters_to_nobody_is_equal_and_shares_differ_by_points() {
        assert_eq!(call(ACHIEVED, &[[1000.0, 1000.1, 1000.9]; 6]), Call::Equal);
        assert_eq!(call(FAILED, &[[0.0; 3]; 4]), Call::Equal);
        assert_eq!(call(FAILED, &[[0.0, 0.0001, 0.021]; 6]), Call::Slower);
        let verdict = FAILED.judge(&[[0.0, 0.0001, 0.021]; 6]).expect("six blocks");
        assert_eq!(FAILED.shift_text(verdict.effect.shift), "+2.1 points");
    }

    #[test]
    fn few_blocks_or_values_without_a_ratio_have_no_verdict() {
        assert_eq!(P99.judge(&[[1.0, 1.0, 2.0]; 3]), None);
        assert_eq!(ACHIEVED.judge(&[[1.0, 0.0, 2.0]; 6]), None);
        // Four are enough for a verdict, though not for an interval.
        let verdict = P99.judge(&[[1.0, 1.01, 2.0]; 4]).expect("four blocks");
        assert_eq!((verdict.call, verdict.effect.interval), (Call::Slower, None));
    }

    /// Experiments of `blocks` blocks that call a difference in p50 or p99.
    fn called(
        experiments: u64,
        blocks: usize,
        mut run: impl FnMut(&mut Draws, bool) -> (f64, f64),
    ) -> usize {
        let mut of_experiment = |seed: u64| {
            let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9));
            let (mut p50, mut p99) = (Vec::new(), Vec::new());
            for _ in 0..blocks {
                let runs = [false, false, true].map(|is_b| run(&mut draws, is_b));
                p50.push(runs.map(|run| run.0));
                p99.push(runs.map(|run| run.1));
            }
            [call(P50, &p50), call(P99, &p99)]
        };
        let is_told = |call: &Call| matches!(call, Call::Faster | Call::Slower);
        (0..experiments).filter(|seed| of_experiment(*seed).iter().any(is_told)).count()
    }

    /// p50 and p99 of a run, with the noise of a run: 1 % in the median and 2 % in the tail.
    fn noisy(draws: &mut Draws, factor: f64) -> (f64, f64) {
        let noise = |draws: &mut Draws, deviation: f64| (deviation * normal(draws)).exp();
        (factor * noise(draws, 0.01), 5.0 * factor * noise(draws, 0.02))
    }

    #[test]
    fn the_same_endpoint_is_seldom_called_different_and_five_percent_mostly_are() {
        for blocks in [BLOCKS_MIN, 6, 8] {
            let same = called(100, blocks, |draws, _| noisy(draws, 1.0));
            assert!(same <= 5, "{same} of 100 with {blocks} blocks");
            let slower = |is_b| if is_b { 1.05 } else { 1.0 };
            let apart = called(100, blocks, |draws, is_b| noisy(draws, slower(is_b)));
            assert!(apart >= 80, "{apart} of 100 with {blocks} blocks");
        }
    }

    #[test]
    fn percentiles_of_a_queue_which_are_skewed_are_seldom_told_from_themselves() {
        let queue = |draws: &mut Draws, _| {
            let mut times = single_server(draws, 0.5, 1_000);
            times.sort_unstable_by(f64::total_cmp);
            (median(&times).expect("not empty"), times[times.len() * 99 / 100])
        };
        let same = called(100, 6, queue);
        assert!(same <= 5, "{same} of 100");
    }
}
