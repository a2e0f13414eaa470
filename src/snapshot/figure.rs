//! The figure that an expression names.

use crate::expression::{Metric, Stat};

use super::{Distribution, Sums};

/// What the sums do not know.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Length {
    /// Time that rates of completions are over, ns; 0: not known.
    pub duration_ns: u64,
    /// Time that the schedule covers, ns; 0: not known.
    pub scheduled_ns: u64,
    /// The mean rate asked for in that time, per second; `None` in closed loop.
    pub target: Option<f64>,
}

/// The figure in the unit of expressions; `None` where it is not defined (yet).
pub fn figure(sums: &Sums, length: &Length, metric: &Metric) -> Option<f64> {
    let counters = &sums.counters;
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let per_s = |count: u64, ns: u64| (ns > 0).then(|| count as f64 * 1e9 / ns as f64);
    match *metric {
        Metric::Latency(stat) => of(sums.headline(), stat),
        Metric::Service(stat) => of(&sums.service, stat),
        Metric::Lateness(stat) => of(&sums.lateness, stat),
        Metric::PoolWait(stat) => of(&sums.pool_wait, stat),
        Metric::Ttfb(stat) => of(&sums.ttfb, stat),
        Metric::Connect(stat) => of(&sums.connect, stat),
        Metric::Tls(stat) => of(&sums.tls, stat),
        Metric::Ttft(stat) => of(sums.ttft()?, stat),
        Metric::ServiceTtft(stat) => of(&sums.answers.as_ref()?.service_ttft, stat),
        Metric::Tpot(stat) => of(&sums.answers.as_ref()?.tpot, stat),
        Metric::ChunkDelta(stat) => of(&sums.answers.as_ref()?.chunk_delta, stat),
        Metric::Isl(stat) => of(&sums.answers.as_ref()?.isl, stat),
        Metric::Osl(stat) => of(&sums.answers.as_ref()?.osl, stat),
        Metric::Tps => tokens(&sums.answers.as_ref()?.osl, length),
        Metric::TotalTps => {
            let answers = sums.answers.as_ref()?;
            Some(tokens(&answers.osl, length)? + tokens(&answers.isl, length)?)
        }
        Metric::CachedShare => sums.cached_share(),
        Metric::Failed => Some(counters.failed as f64),
        Metric::FailedShare => share(counters.failed, counters.completed + counters.failed),
        Metric::Completed => Some(counters.completed as f64),
        Metric::Dropped => Some(counters.dropped as f64),
        Metric::DroppedShare => share(counters.dropped, counters.scheduled),
        Metric::Qps => per_s(counters.completed, length.duration_ns),
        Metric::Offered => per_s(counters.issued + counters.dropped, length.scheduled_ns),
        Metric::Scheduled => per_s(counters.scheduled, length.scheduled_ns),
        Metric::Goodput => per_s(counters.good, length.duration_ns),
        Metric::GoodputShare => share(counters.good, counters.completed + counters.failed),
        Metric::Target => length.target,
    }
}

fn tokens(lengths: &Distribution, length: &Length) -> Option<f64> {
    let is_known = !lengths.is_empty() && length.duration_ns > 0;
    is_known.then(|| lengths.total as f64 * 1e9 / length.duration_ns as f64)
}

fn of(distribution: &Distribution, stat: Stat) -> Option<f64> {
    match stat {
        Stat::Min => distribution.smallest().map(|ns| ns as f64),
        Stat::Max => distribution.largest().map(|ns| ns as f64),
        Stat::Mean => distribution.mean(),
        Stat::Percentile(p) => {
            distribution.percentile((p * 1000.0).round() as u32).map(|ns| ns as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::finished;

    #[test]
    fn figures_are_counts_shares_rates_and_times() {
        let mut snapshot = finished(20, 5);
        let sums = &mut snapshot.phases[0].sums;
        sums.counters.good = 10;
        sums.counters.scheduled = 50;
        sums.counters.dropped = 25;
        let length =
            Length { duration_ns: 4_000_000_000, scheduled_ns: 2_000_000_000, target: Some(30.0) };
        for (metric, value) in [
            (Metric::Failed, 5.0),
            (Metric::FailedShare, 0.2),
            (Metric::Completed, 20.0),
            (Metric::DroppedShare, 0.5),
            (Metric::Qps, 5.0),
            (Metric::Offered, 25.0), // 25 issued, 25 dropped
            (Metric::Scheduled, 25.0),
            (Metric::Goodput, 2.5),
            (Metric::GoodputShare, 0.4),
            (Metric::Target, 30.0),
        ] {
            assert_eq!(figure(sums, &length, &metric), Some(value), "{metric:?}");
        }
        assert_eq!(figure(&Sums::default(), &Length::default(), &Metric::Qps), None);
        assert_eq!(figure(&Sums::default(), &Length::default(), &Metric::FailedShare), None);
        assert_eq!(figure(&Sums::default(), &length, &Metric::Latency(Stat::Max)), None);
    }
}
