//! One list, however many walk it.

use crossbeam_channel::unbounded;

use super::*;
use crate::order::{Order, SampleOrder};
use crate::schedule::hash_of;

/// Hash and count of the whole, and what was sent when, over so many shards.
fn dealt(schedule: &SchedulePlan, shards: u32) -> (u64, u64, Vec<(usize, u64)>) {
    let count = Schedule::new(schedule).count();
    let (witness, seen) = unbounded();
    let (mut hash, mut scheduled) = (0u64, 0);
    for shard in 0..shards {
        let slice = Schedule::slice(schedule, shard, shards);
        let witness = Some(witness.clone());
        let endpoint = SimEndpoint { witness, ..SimEndpoint::default() };
        let plan = ShardPlan { table: samples(count), index: shard, ..shard_plan(32) };
        let mut phase = open(schedule, Overload::Queue);
        phase.order = SampleOrder::new(Order::Sequential, count as u32, 0);
        if let Pattern::OpenLoop { source, .. } = &mut phase.pattern {
            *source = Source::Own(Box::new(slice));
        }
        let (_, totals) = run(plan, endpoint, vec![phase], None);
        hash = hash.wrapping_add(totals[0].schedule_hash);
        scheduled += totals[0].counters.scheduled;
        assert_eq!(totals[0].lateness.total_ns, 0);
    }
    let mut seen: Vec<_> = seen.try_iter().map(|seen| (seen.begin, seen.at_ns)).collect();
    seen.sort_unstable();
    (hash, scheduled, seen)
}

#[test]
fn same_list_for_any_number_of_shards() {
    for schedule in [
        poisson(1000.0, Some(999), None),
        poisson(3000.0, None, Some(300 * MS)),
        SchedulePlan { process: Process::Gamma { shape: 0.3 }, ..poisson(1000.0, Some(500), None) },
        SchedulePlan {
            process: Process::Constant { jitter: 0.4 },
            ..constant(700.0, None, Some(SECOND))
        },
    ] {
        let list: Vec<Arrival> = Schedule::new(&schedule).collect();
        let hash = list.iter().fold(0u64, |sum, &arrival| sum.wrapping_add(hash_of(arrival)));
        let sent: Vec<(usize, u64)> = list
            .iter()
            .map(|arrival| (arrival.position as usize, START_NS + arrival.offset_ns))
            .collect();
        for shards in [1, 2, 3, 16] {
            let is = dealt(&schedule, shards);
            assert_eq!(is, (hash, list.len() as u64, sent.clone()), "{shards} shards");
        }
    }
    // Negative control: another seed is another list.
    let other = SchedulePlan { seed: 43, ..poisson(1000.0, Some(999), None) };
    assert_ne!(dealt(&other, 1).0, dealt(&poisson(1000.0, Some(999), None), 1).0);
}
