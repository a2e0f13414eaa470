//! D16, D20, D21 and the words for status 429.

use super::*;
use crate::report::tests::inference::{inference, recorded_answers, run_of_answers};
use crate::snapshot::InferenceFacts;

type Spoil = fn(&mut Recording);

/// The judgement on 2 000 streams of 6 chunks; their TTFT is 200 to 220 ms of 245 to 280 ms.
fn streams(spoil: Spoil, inference: &InferenceFacts) -> Trust {
    let mut recording = recorded_answers(2_000, true);
    spoil(&mut recording);
    let snapshot = run_of_answers(&recording);
    judge(&snapshot, &snapshot.phases[0], &plan_of(4), Some(inference))
}

fn series(trust: &Trust) -> Vec<&'static str> {
    let mut list: Vec<&str> = trust.marks.iter().map(|mark| mark.series).collect();
    list.dedup();
    list
}

#[test]
fn chunks_that_come_together_mark_gaps_and_leave_ttft_and_tpot() {
    // 10 000 gaps: 5 % of them are just believed.
    let coalesced: Spoil = |recording| recording.counters.chunks_coalesced = 501;
    let believed: Spoil = |recording| recording.counters.chunks_coalesced = 500;
    let trust = streams(coalesced, &inference());
    assert_level(&trust, "D16", Level::Warn, "5.0 % of the chunks came together");
    assert_level(&trust, "D16", Level::Warn, "proxy_buffering off");
    assert_eq!(trust.verdict(), Level::Warn);
    assert_eq!(series(&trust), ["chunk_delta"]);
    assert!(check(&trust, "D16").value.is_some_and(|value| (value - 5.01).abs() < 1e-9));
    let trust = streams(believed, &inference());
    assert_level(&trust, "D16", Level::Ok, "1.83 tokens a chunk, so a gap between chunks is not");
    assert_eq!(series(&trust), [""; 0]);
    // Bunched by a buffer, though each in a receive of its own.
    let trust = streams(|recording| recording.counters.chunk_gaps_short = 6_000, &inference());
    assert_level(&trust, "D16", Level::Warn, "60 % of the chunks came together");
}

#[test]
fn who_bunched_is_us_where_we_were_busy_or_blind() {
    let busy: Spoil = |recording| {
        recording.counters.chunks_coalesced = 5_000;
        recording.busy_ns = 4_900_000_000;
    };
    assert_level(&streams(busy, &inference()), "D16", Level::Warn, "our shards were at work 98 %");
    let blind: Spoil = |recording| {
        recording.counters.chunks_coalesced = 5_000;
        (0..1_000).for_each(|_| recording.loop_gap.record(9 * MS));
    };
    let trust = streams(blind, &inference());
    assert_level(&trust, "D16", Level::Warn, "our shards look every 9");
    assert_level(&trust, "D16", Level::Warn, "--spin");
}

#[test]
fn a_stream_that_is_held_back_until_its_end_has_no_ttft() {
    let held: Spoil = |recording| {
        recording.counters.chunks_coalesced = 9_000;
        recording.answers.chunks.reset();
        recording.service.reset();
        for i in 0..2_000 {
            recording.answers.chunks.record(8);
            recording.service.record(205 * MS + i * 10_000);
        }
        recording.counters.chunks = 16_000;
    };
    let trust = streams(held, &inference());
    assert_level(&trust, "D16", Level::Warn, "the first token came after 98 % of the whole time");
    assert_eq!(series(&trust), ["chunk_delta", "ttft", "service_ttft", "tpot"]);
}

#[test]
fn cached_prompts_warn_only_where_they_are_synthetic() {
    let cached: Spoil = |recording| recording.counters.cached_tokens = 2_001;
    let trust = streams(cached, &inference());
    assert_level(&trust, "D20", Level::Warn, "1.0 % of the prompt tokens came from");
    assert_level(&trust, "D20", Level::Warn, "sent more than once: more of them");
    assert_level(&trust, "D20", Level::Warn, "1 500 prompts, each sent 1 to 2 times");
    let once = InferenceFacts { prompts: 2_000, ..inference() };
    assert_level(&streams(cached, &once), "D20", Level::Warn, "chat template");
    let seeded = InferenceFacts { is_prompt_seed_given: true, ..once };
    assert_level(&streams(cached, &seeded), "D20", Level::Warn, "leave out --prompt-seed");
    let own = InferenceFacts { is_synthetic: false, ..inference() };
    assert_level(&streams(cached, &own), "D20", Level::Ok, "1.0 % cached");
    let below: Spoil = |recording| recording.counters.cached_tokens = 2_000;
    assert_level(&streams(below, &inference()), "D20", Level::Ok, "1.0 % cached");
    let untold: Spoil = |recording| recording.counters.answers_cached_told = 0;
    assert_level(&streams(untold, &inference()), "D20", Level::Ok, "does not tell");
    assert_eq!(check(&streams(untold, &inference()), "D20").value, None);
}

#[test]
fn plain_http_and_answers_that_are_not_streamed_have_no_stream_to_judge() {
    let plain = judge(&finished(100, 0), &finished(100, 0).phases[0], &plan_of(4), None);
    assert!(!ids(&plain).iter().any(|id| ["D16", "D20", "D21"].contains(id)), "{plain:?}");
    let whole: Spoil = |recording| recording.answers.chunks.reset();
    assert!(!ids(&streams(whole, &inference())).contains(&"D16"));
    let few: Spoil = |recording| recording.counters.chunks = 2_099;
    assert_level(&streams(few, &inference()), "D16", Level::Ok, "not judged: 99 gaps");
}

#[test]
fn an_endpoint_that_closes_connections_and_a_rate_limit_are_named() {
    let closes: Spoil = |recording| {
        recording.counters.closed_by_endpoint = 20;
        recording.counters.closed_by_endpoint_exchanges = 2_000;
        recording.tls.record(MS);
    };
    let trust = streams(closes, &inference());
    assert_level(&trust, "D21", Level::Warn, "so 1.0 % of them needed a new one");
    assert_level(&trust, "D21", Level::Warn, "1 ms for TLS");
    assert_level(&trust, "D21", Level::Warn, "20 connections, each after 100.0 requests");
    assert_eq!(trust.verdict(), Level::Ok, "a finding, no verdict");
    let seldom: Spoil = |recording| {
        recording.counters.closed_by_endpoint = 1;
        recording.counters.closed_by_endpoint_exchanges = 1_000;
    };
    assert_level(&streams(seldom, &inference()), "D21", Level::Ok, "1 connection, each after");
    let limited: Spoil = |recording| {
        recording.counters.issued += 30;
        recording.counters.failed = 30;
        for _ in 0..30 {
            recording.statuses.count(429);
            recording.failures.count(FailureKind::Status, || Message::new("429"));
        }
    };
    let trust = streams(limited, &inference());
    assert_level(&trust, "D18", Level::Warn, "30 answers had status 429, which is a rate limit");
    let overloaded: Spoil = |recording| {
        recording.counters.issued += 1;
        recording.counters.failed = 1;
        recording.statuses.count(503);
        recording.failures.count(FailureKind::Status, || Message::new("503"));
    };
    let trust = streams(overloaded, &inference());
    assert!(!check(&trust, "D18").reason.contains("429"), "{trust:?}");
}
