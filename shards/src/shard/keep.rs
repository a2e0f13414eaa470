//! A record of each query that has ended goes to the writer, if the user wants them.

use super::Shard;
use crate::answer::AnswerFacts;
use crate::failure::FailureKind;
use crate::query::Query;
use crate::record::{Place, Record};
use crate::recorder::Stamps;

/// How a query ended.
pub(super) struct End {
    /// When, ns.
    pub at_ns: u64,
    /// HTTP status; 0: none came.
    pub status: u16,
    /// `None`: a success.
    pub failure: Option<FailureKind>,
}

impl Shard {
    /// Sends the record of a query on its way; what finds no room is counted. `slot`: the
    /// connection that carried it, which still has its instants.
    pub(super) fn keep_record(&mut self, query: &Query, slot: Option<u32>, end: &End) {
        let Some(sink) = &mut self.link.records else { return };
        let answer = slot.and_then(|slot| self.answers.get(slot as usize));
        let is_uncounted = end.failure.is_none()
            && query.phase == self.recording.phase
            && answer.is_some_and(|answer| answer.facts().usage.completion.is_none());
        let text = match sink.place(is_uncounted) {
            Place::Unwanted => return,
            Place::Missing => {
                self.recording.counters.records_dropped += 1;
                return;
            }
            Place::Free(text) => text,
        };
        let mut record = Record {
            phase: query.phase,
            position: query.position,
            request: query.request,
            slot,
            stamps: Stamps {
                scheduled_ns: query.scheduled_ns,
                dispatched_ns: query.dispatched_ns,
                complete_ns: end.at_ns,
                ..Stamps::default()
            },
            status: end.status,
            failure: end.failure,
            body_bytes: 0,
            facts: AnswerFacts::default(),
            is_uncounted,
            text,
        };
        if let Some(slot) = slot {
            let connection = &self.connections[slot as usize];
            record.stamps.ready_ns = connection.ready_ns;
            record.stamps.sent_ns = connection.sent_ns;
            // A query that was never sent has no response: what stands there is of the last one.
            if connection.sent_ns > 0 {
                record.stamps.first_byte_ns = connection.first_byte_ns;
                record.body_bytes = connection.parser.body_bytes();
                if let Some(answer) = answer {
                    record.facts = *answer.facts();
                    if let Some(text) = &mut record.text {
                        text.visible.push_str(answer.text());
                        text.hidden.push_str(answer.hidden_text());
                        text.gaps_ns.extend_from_slice(answer.gaps_ns());
                    }
                }
            }
        }
        let is_kept = sink.put(record);
        self.recording.counters.records_dropped += u64::from(!is_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BEGIN_NS, MS, Setup, phase, shard_plan};
    use crate::failure::FailureKind;
    use crate::record::{Record, Wanted, record_path};
    use crate::sim::SimEndpoint;

    /// Five requests in closed loop, one at a time, with room for so many records.
    fn records(endpoint: SimEndpoint, room: usize) -> (Vec<Record>, u64) {
        let (sink, mut source) = record_path(Wanted::Every, room, 0);
        let phases = vec![phase(0, 1, Some(5))];
        let setup = Setup::new(shard_plan(1), endpoint, phases);
        let (_, totals) = Setup { records: Some(sink), ..setup }.run();
        let records = std::iter::from_fn(|| source.take()).collect();
        (records, totals[0].counters.records_dropped)
    }

    #[test]
    fn each_query_has_its_instants_also_one_that_was_sent_again() {
        let endpoint =
            SimEndpoint { service_ns: vec![2 * MS], closes_after: 1, ..SimEndpoint::default() };
        let (records, dropped) = records(endpoint, 8);
        assert_eq!((records.len(), dropped), (5, 0));
        let mut begin_ns = BEGIN_NS;
        for (position, record) in (0..).zip(&records) {
            let stamps = &record.stamps;
            assert_eq!((record.position, record.slot, record.failure), (position, Some(0), None));
            assert_eq!((record.status, stamps.scheduled_ns), (200, 0));
            assert_eq!((stamps.sent_ns, stamps.complete_ns), (begin_ns, begin_ns + 2 * MS));
            assert_eq!(stamps.first_byte_ns, stamps.complete_ns);
            begin_ns = stamps.complete_ns;
        }
    }

    #[test]
    fn a_failure_has_its_kind_and_status() {
        let response = b"HTTP/1.1 503 Busy\r\nContent-Length: 10\r\n\r\noverloaded".to_vec();
        let (refused, _) = records(SimEndpoint { response, ..SimEndpoint::default() }, 8);
        let of = |record: &Record| (record.status, record.failure, record.body_bytes);
        assert_eq!(
            refused.iter().map(of).collect::<Vec<_>>(),
            [(503, Some(FailureKind::Status), 10); 5]
        );
    }

    #[test]
    fn what_finds_no_room_is_counted_and_the_queries_go_on() {
        let (records, dropped) = records(SimEndpoint::default(), 2);
        assert_eq!((records.len(), dropped), (2, 3));
    }
}
