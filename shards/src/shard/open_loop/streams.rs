//! Streams of tokens that fall due as a Poisson process, in virtual time: every TTFT, gap and end
//! is known to the nanosecond (the ground truths G9 and G17).

use super::super::answered::{DONE, HEAD, LAST_CHUNK, event, finish, reads_chats, token};
use super::super::tests::{Setup, Totals};
use super::{MS, SECOND, START_NS, assert_near, open, poisson};
use crate::phase::Overload;
use crate::record::{Record, Wanted, record_path};
use crate::sim::SimEndpoint;

/// The head with a role alone after 20 ms, and 20 tokens from 50 ms on, one each 10 ms, so many of
/// them a write.
fn paced(tokens_per_write: usize) -> SimEndpoint {
    let role = event(r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#);
    let mut later: Vec<(u64, Vec<u8>)> = (0..20)
        .step_by(tokens_per_write)
        .map(|first| (30 * MS + first as u64 * 10 * MS, token("x").repeat(tokens_per_write)))
        .collect();
    let (_, last) = later.last_mut().expect("there are tokens");
    last.extend([finish(20), event(DONE), LAST_CHUNK.to_vec()].concat());
    SimEndpoint {
        service_ns: vec![20 * MS],
        response: [HEAD, &role].concat(),
        later,
        ..SimEndpoint::default()
    }
}

fn run(endpoint: SimEndpoint, queries: u64, rate: f64) -> (Vec<Record>, Totals) {
    let (sink, mut source) = record_path(Wanted::Every, queries as usize, 0);
    let phases = vec![open(&poisson(rate, Some(queries), None), Overload::Queue)];
    let setup = Setup::new(reads_chats(200), endpoint, phases);
    let (_, mut totals) = Setup { records: Some(sink), ..setup }.run();
    (std::iter::from_fn(|| source.take()).collect(), totals.remove(0))
}

#[test]
fn poisson_streams_have_their_ttft_gaps_and_number_in_flight() {
    let (records, totals) = run(paced(1), 12_000, 100.0);
    assert_eq!((records.len(), totals.counters.completion_tokens), (12_000, 240_000));
    for record in &records {
        let (stamps, facts) = (&record.stamps, &record.facts);
        assert_eq!(facts.first_token_ns - stamps.scheduled_ns, 50 * MS, "not the role's 20 ms");
        assert_eq!(stamps.complete_ns - stamps.scheduled_ns, 240 * MS);
        let tokens = u64::from(facts.usage.completion.expect("told"));
        assert_eq!((facts.last_token_ns - facts.first_token_ns) / (tokens - 1), 10 * MS);
        assert_eq!((facts.chunks, facts.instants, facts.coalesced), (20, 20, 0));
    }
    // M/D/inf: the number in flight is Poisson with mean 100/s x 240 ms.
    let from_ns = START_NS + SECOND;
    let in_flight: Vec<f64> = (0..450)
        .map(|sample| from_ns + sample * 240 * MS)
        .map(|at_ns| {
            let is_there = |record: &&Record| {
                (record.stamps.scheduled_ns..record.stamps.complete_ns).contains(&at_ns)
            };
            records.iter().filter(is_there).count() as f64
        })
        .collect();
    let mean = in_flight.iter().sum::<f64>() / in_flight.len() as f64;
    let variance =
        in_flight.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / in_flight.len() as f64;
    // Independent samples: 450 of them are off by 0.23 and 0.16, and three times that is rare.
    assert_near(mean, 24.0, 0.7);
    assert_near(variance.sqrt(), 4.9, 0.5);
}

#[test]
fn tokens_that_share_a_write_are_told_as_coalesced() {
    let (records, totals) = run(paced(4), 50, 100.0);
    for record in &records {
        let facts = &record.facts;
        assert_eq!((facts.chunks, facts.instants, facts.coalesced), (20, 5, 15));
    }
    assert_eq!((totals.counters.chunks, totals.counters.chunks_coalesced), (1000, 750));
}

#[test]
fn stream_of_100_000_tokens_takes_as_long_as_its_script() {
    let mut later: Vec<_> = (1..100_000).map(|index| (index * MS, token("x"))).collect();
    later.push((100_000 * MS, [finish(99_999), event(DONE), LAST_CHUNK.to_vec()].concat()));
    // 65 535 events have a name in virtual time: two tokens share one.
    let later = later
        .chunks(2)
        .map(|pair| (pair[pair.len() - 1].0, pair.iter().flat_map(|(_, b)| b.clone()).collect()))
        .collect();
    let response = HEAD.to_vec();
    let endpoint = SimEndpoint { response, service_ns: vec![MS], later, ..SimEndpoint::default() };
    let (records, totals) = run(endpoint, 1, 100.0);
    let (stamps, facts) = (&records[0].stamps, &records[0].facts);
    assert_eq!(stamps.complete_ns - stamps.sent_ns, 100_001 * MS);
    assert_eq!((facts.chunks, facts.usage.completion), (99_999, Some(99_999)));
    assert_eq!(totals.counters.failed, 0);
}
