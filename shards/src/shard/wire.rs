//! Kernel stamps of sampled queries, beside ours (`--wire-stamps`): when the last byte of the
//! request left the kernel (T3w), and when that of the response reached it (T8w).

use super::Shard;
use crate::query::Query;
use crate::reactor::{Event, Reactor};
use crate::realtime::{Mapped, Mapping, Reading, RealtimeMap};
use crate::recorder::Recording;
use crate::sys::time::{monotonic_ns, realtime_ns};

/// Which queries get stamps, and what they are mapped by.
pub(super) struct WireSampler {
    every: u32,
    map: RealtimeMap,
    /// Kernel stamp of the receive that has just completed a response, CLOCK_REALTIME ns.
    received_ns: Option<u64>,
}

impl WireSampler {
    /// Samples every so many positions.
    pub(super) fn new(every: u32, reactor: &Reactor) -> WireSampler {
        debug_assert!(every > 0, "a share of all positions");
        WireSampler { every, map: RealtimeMap::new(read_clocks(reactor)), received_ns: None }
    }

    /// Whether a query is sampled. What is sent again is not: its T2 is that of the first send.
    pub(super) fn has(&self, query: &Query, is_retry: bool) -> bool {
        query.position.is_multiple_of(u64::from(self.every)) && !is_retry
    }
}

/// What the kernel stamped of one sampled query.
pub(super) struct WireStamps {
    /// `None`: CLOCK_REALTIME was set meanwhile, and the stamps cannot be mapped.
    mapping: Option<Mapping>,
    /// T3w, CLOCK_REALTIME ns; `None`: no stamp came.
    sent_ns: Option<u64>,
    /// T8w, likewise.
    received_ns: Option<u64>,
}

impl WireStamps {
    /// Enters them beside our own T2 and T8, ns.
    pub(super) fn record(self, recording: &mut Recording, sent_ns: u64, complete_ns: u64) {
        let Recording { counters, wire_tx, wire_rx, wire_error_ns, .. } = recording;
        counters.wire_stamps_wanted += 1;
        let Some(mapping) = self.mapping else {
            counters.wire_stamps_clock_set += 1;
            return;
        };
        if let Some(Mapped { at_ns, error_ns }) = self.sent_ns.map(|ns| mapping.to_ours(ns)) {
            counters.wire_stamps_tx += 1;
            counters.wire_stamps_out_of_order += u64::from(at_ns + error_ns < sent_ns);
            wire_tx.record(at_ns.saturating_sub(sent_ns));
            *wire_error_ns = error_ns.max(*wire_error_ns);
        }
        if let Some(Mapped { at_ns, error_ns }) = self.received_ns.map(|ns| mapping.to_ours(ns)) {
            counters.wire_stamps_rx += 1;
            counters.wire_stamps_out_of_order += u64::from(at_ns > complete_ns + error_ns);
            wire_rx.record(complete_ns.saturating_sub(at_ns));
            *wire_error_ns = error_ns.max(*wire_error_ns);
        }
    }
}

impl Shard {
    /// Keeps the kernel's stamp of a receive that completes a response, before its buffer goes.
    pub(super) fn note_received_wire(&mut self, event: &Event) {
        let connection = &self.connections[event.slot as usize];
        if let Some(wire) = &mut self.wire
            && let Some(query) = &connection.query
            && wire.has(query, connection.is_retry)
        {
            wire.received_ns = self.reactor.received_wire_ns(event);
        }
    }

    /// The stamps of the query that the slot has just carried, if it is sampled; while the socket
    /// is still open.
    pub(super) fn take_wire_stamps(&mut self, slot: u32, query: &Query) -> Option<WireStamps> {
        let wire = self.wire.as_mut()?;
        let received_ns = wire.received_ns.take();
        if !wire.has(query, self.connections[slot as usize].is_retry) {
            return None;
        }
        let sent_ns = self.reactor.take_sent_wire_ns(slot);
        let mapping = wire.map.at(read_clocks(&self.reactor));
        Some(WireStamps { mapping, sent_ns, received_ns })
    }
}

/// The tightest of a few readings; the first is good enough unless the host took the core.
fn read_clocks(reactor: &Reactor) -> Reading {
    let read = || Reading {
        before_ns: reactor.now_ns(),
        realtime_ns: realtime_ns(),
        monotonic_ns: monotonic_ns(),
        after_ns: reactor.now_ns(),
    };
    let mut tightest = read();
    for _ in 1..READINGS {
        if tightest.width_ns() <= TIGHT_NS {
            break;
        }
        let reading = read();
        if reading.width_ns() < tightest.width_ns() {
            tightest = reading;
        }
    }
    tightest
}

const READINGS: u32 = 4;
/// Two reads of the kernel's clocks and two of the counter take less, if nothing comes between.
const TIGHT_NS: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Counters;
    use crate::shard::tests::{phase, run, shard_plan};
    use crate::sim::SimEndpoint;

    /// CLOCK_REALTIME is this far ahead of our clock, ns.
    const OFFSET_NS: u64 = 1_700_000_000_000_000_000;

    /// Two clocks that agree, read within 60 ns after the response.
    fn mapping() -> Option<Mapping> {
        let reading = Reading {
            before_ns: 1_900_000,
            realtime_ns: OFFSET_NS + 1_900_030,
            monotonic_ns: 1_900_040,
            after_ns: 1_900_060,
        };
        RealtimeMap::new(reading).at(reading)
    }

    fn recorded(stamps: WireStamps) -> Recording {
        let mut recording = Recording::default();
        stamps.record(&mut recording, 1_000_000, 1_500_000);
        recording
    }

    #[test]
    fn intervals_are_from_our_send_and_to_our_receive() {
        let (sent_ns, received_ns) = (OFFSET_NS + 1_002_000, OFFSET_NS + 1_493_000);
        let recording = recorded(WireStamps {
            mapping: mapping(),
            sent_ns: Some(sent_ns),
            received_ns: Some(received_ns),
        });
        assert_eq!((recording.wire_tx.max, recording.wire_rx.max), (2000, 7000));
        assert_eq!(recording.wire_error_ns, 30);
        let counters = recording.counters;
        assert_eq!((counters.wire_stamps_tx, counters.wire_stamps_rx), (1, 1));
        assert_eq!(counters.wire_stamps_out_of_order, 0);
    }

    #[test]
    fn stamps_on_the_wrong_side_of_ours_are_counted_beyond_the_error() {
        for (sent_ns, received_ns, expected) in [
            (1_000_000, 1_500_000, 0),
            // 30 ns are the error of the mapping.
            (999_970, 1_500_030, 0),
            (999_969, 1_500_030, 1),
            (999_970, 1_500_031, 1),
            (990_000, 1_600_000, 2),
        ] {
            let recording = recorded(WireStamps {
                mapping: mapping(),
                sent_ns: Some(OFFSET_NS + sent_ns),
                received_ns: Some(OFFSET_NS + received_ns),
            });
            let count = recording.counters.wire_stamps_out_of_order;
            assert_eq!(count, expected, "{sent_ns} {received_ns}");
        }
    }

    #[test]
    fn missing_stamps_and_those_of_a_clock_that_was_set_are_counted_and_in_no_series() {
        let at_ns = Some(OFFSET_NS + 1_200_000);
        let missing = recorded(WireStamps { mapping: mapping(), sent_ns: None, received_ns: None });
        let set = recorded(WireStamps { mapping: None, sent_ns: at_ns, received_ns: at_ns });
        for recording in [&missing, &set] {
            assert_eq!(recording.wire_tx.count() + recording.wire_rx.count(), 0);
            let Counters { wire_stamps_wanted, wire_stamps_tx, wire_stamps_rx, .. } =
                recording.counters;
            assert_eq!((wire_stamps_wanted, wire_stamps_tx, wire_stamps_rx), (1, 0, 0));
        }
        assert_eq!(missing.counters.wire_stamps_clock_set, 0);
        assert_eq!(set.counters.wire_stamps_clock_set, 1);
    }

    #[test]
    fn every_kth_position_is_wanted() {
        for (every, wanted) in [(1, 10), (3, 4), (10, 1), (11, 1)] {
            let plan = crate::shard::ShardPlan { wire_stamps: Some(every), ..shard_plan(2) };
            let phases = vec![phase(0, 2, Some(10))];
            let (_, totals) = run(plan, SimEndpoint::default(), phases, None);
            assert_eq!(totals[0].counters.wire_stamps_wanted, wanted, "1 in {every}");
        }
    }
}
