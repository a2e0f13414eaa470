//! Streams that benchmark tools are known to misread, with the right values. Instants are in ns as
//! if they were ms.

use super::*;

const STOPPED: AnswerFacts = AnswerFacts { finish: FinishReason::Stop, ..STREAM };

/// The time per token after the first, where there is one.
fn tpot(facts: &AnswerFacts) -> Option<u64> {
    let after_first = u64::from(facts.usage.completion?).checked_sub(1).filter(|n| *n > 0)?;
    (facts.instants > 1).then(|| (facts.last_token_ns - facts.first_token_ns) / after_first)
}

/// A token at each instant, then the finish and the count, at the last.
fn tokens(instants: &[u64], count: u32) -> Vec<(u64, String)> {
    let mut script: Vec<_> = instants.iter().map(|at| (*at, content("t"))).collect();
    let last = *instants.last().expect("a token");
    script.push((last, finish("stop") + &usage(count) + DONE));
    script
}

#[test]
fn the_time_to_the_first_token_is_no_gap() {
    let instants: Vec<u64> = (0..10).map(|k| 1000 - 90 + 10 * k).collect();
    let outcome = chat("first", &tokens(&instants, 10)).outcome();
    assert_eq!(outcome.facts.first_token_ns, 910);
    assert_eq!((outcome.gaps_ns.as_slice(), tpot(&outcome.facts)), (&[10; 9][..], Some(10)));
}

#[test]
fn a_role_is_no_token_before_or_in_the_midst_of_prefill() {
    for at in [5, 90] {
        let script = [vec![(at, role())], tokens(&[200, 220, 240], 3)].concat();
        let outcome = chat("role", &script).check();
        assert_eq!((outcome.facts.ack_ns, outcome.facts.first_token_ns), (at, 200));
        assert_eq!(outcome.gaps_ns, [20, 20]);
    }
}

#[test]
fn empty_chunks_between_two_that_carry_two_tokens_each_make_no_gap() {
    let script = [
        (10, role()),
        (100, content("two tokens")),
        (110, content("")),
        (120, content("")),
        (130, content(" two more")),
        (131, finish("stop") + &usage(4) + DONE),
    ];
    let outcome = chat("empty", &script).check();
    assert_eq!((outcome.gaps_ns.as_slice(), tpot(&outcome.facts)), (&[30][..], Some(10)));
    assert_eq!(outcome.facts.chunks, 2);
}

#[test]
fn four_tokens_in_a_chunk_are_weighed_by_the_count() {
    let outcome = chat("four", &tokens(&[100, 140, 180, 220], 16)).check();
    assert_eq!((outcome.gaps_ns.as_slice(), tpot(&outcome.facts)), (&[40; 3][..], Some(8)));
    assert_eq!((outcome.facts.chunks, outcome.facts.usage.completion), (4, Some(16)));
}

#[test]
fn one_token_has_a_first_but_no_time_per_token() {
    let outcome = chat("one", &tokens(&[100], 1)).check();
    assert_eq!(outcome.facts.first_token_ns, 100);
    assert_eq!((outcome.gaps_ns.as_slice(), tpot(&outcome.facts)), (&[][..], None));
    let burst = chat("burst", &tokens(&[100, 100, 100], 3)).outcome();
    assert_eq!(tpot(&burst.facts), None, "all at one instant");
    let uncounted = chat("none", &[(10, content("a")), (20, content("b") + DONE)]).outcome();
    assert_eq!(tpot(&uncounted.facts), None, "nobody counted");
}

#[test]
fn the_tail_of_a_stream_is_in_no_token_time() {
    let mut script = tokens(&[100, 130, 160], 4);
    script[3].1 = finish("stop");
    script.extend([(162, usage(4)), (163, DONE.to_owned())]);
    let outcome = chat("mock", &[vec![(10, role())], script].concat()).check();
    let facts = AnswerFacts {
        ack_ns: 10,
        first_token_ns: 100,
        first_visible_ns: 100,
        last_token_ns: 160,
        done_ns: 163,
        chunks: 3,
        instants: 3,
        usage: told(4),
        ..STOPPED
    };
    assert_eq!((outcome.facts, tpot(&facts)), (facts, Some(20)));
}

#[test]
fn an_error_or_an_abort_after_tokens_is_no_fast_success() {
    let error = event(r#"{"error":{"message":"worker died","code":500}}"#);
    let mut script = tokens(&[100, 110, 120], 3);
    script[3] = (125, error + DONE);
    chat("error", &script).fails(FailureKind::ErrorInAnswer, "worker died");
    script[3] = (125, finish("abort") + DONE);
    chat("abort", &script).fails(FailureKind::ErrorInAnswer, "finish reason: abort");
    script[3] = (125, finish("stop") + DONE);
    assert_eq!(chat("control", &script).check().failure, None);
}

#[test]
fn usage_behind_an_event_name_or_an_empty_text_is_taken() {
    let script = [
        (100, content("a")),
        (110, content("b")),
        (120, "event: llm_metrics\n".to_owned() + &usage(20) + &finish("stop") + DONE),
    ];
    assert_eq!(chat("name", &script).check().facts.usage, told(20));
    let empty = event(
        r#"{"choices":[{"index":0,"text":"","finish_reason":"stop"}],
        "usage":{"prompt_tokens":7,"completion_tokens":20}}"#,
    );
    let text = event(r#"{"choices":[{"index":0,"text":"a","finish_reason":null}]}"#);
    let outcome = chat("empty", &[(100, text), (110, empty + DONE)])
        .format(AnswerFormat::Completions)
        .check();
    assert_eq!((outcome.facts.usage, outcome.facts.chunks), (told(20), 1));
}

#[test]
fn fifty_chunks_of_reasoning_come_before_the_first_visible() {
    let mut script: Vec<_> =
        (0..50).map(|k| (20 * (k + 1), delta(r#"{"reasoning":"r"}"#))).collect();
    let thinking_only = [&script[..], &[(1010, finish("length") + DONE)]].concat();
    script.push((1020, content("Hi") + &finish("stop") + DONE));
    let outcome = chat("reasoning", &script).outcome();
    let facts = &outcome.facts;
    assert_eq!((facts.first_token_ns, facts.first_visible_ns, facts.chunks), (20, 1020, 51));
    assert_eq!(outcome.hidden, "r".repeat(50));
    let facts = chat("ends inside", &thinking_only).outcome().facts;
    assert_eq!((facts.first_token_ns, facts.first_visible_ns), (20, 0));
}

#[test]
fn a_comment_alone_in_its_segment_loses_nothing_of_the_rest() {
    for before in [0, 3, 5] {
        let mut script = tokens(&[100, 110, 120, 130, 140], 5);
        let at = script[before].0 - 5;
        script.insert(before, (at, ":\n\n".to_owned()));
        let outcome = chat("comment", &script).check();
        assert_eq!((outcome.facts.chunks, outcome.facts.last_token_ns), (5, 140));
        assert_eq!(outcome.failure, None);
    }
}

#[test]
fn the_whole_legal_mess_at_once_is_read() {
    let crlf = |event: &str| event.replace("data: ", "data:").replace('\n', "\r\n");
    let script = [
        (10, "\u{feff}: hello\r\n\r\n".to_owned()),
        (100, crlf(&(content("a") + &content("b")))),
        (110, "event:token\r\nid:1\r\n".to_owned() + &crlf(&content("c"))),
        (120, crlf(&finish("stop")) + "data:[DONE]\r\n\r\n"),
    ];
    let outcome = chat("mess", &script).check();
    assert_eq!((outcome.text.as_str(), outcome.facts.chunks, outcome.failure), ("abc", 3, None));
    assert_eq!((outcome.facts.coalesced, outcome.gaps_ns), (1, vec![10]));
}

#[test]
fn spaces_are_tokens() {
    let script: Vec<_> = (1..=100).map(|k| (k, content(" "))).collect();
    let script = [script, vec![(101, finish("length") + &usage(100) + DONE)]].concat();
    let outcome = chat("spaces", &script).outcome();
    assert_eq!(
        (outcome.facts.chunks, outcome.text.len(), outcome.facts.is_cumulative),
        (100, 100, false)
    );
    assert_eq!(tpot(&outcome.facts), Some(1));
}

#[test]
fn a_choice_without_members_and_choices_that_are_null_do_no_harm() {
    for json in ["{}", "[]", "null", "1", r#"{"choices":null}"#, r#"{"choices":[null,{}]}"#] {
        let mut script = tokens(&[100, 110], 2);
        script.insert(1, (105, event(json)));
        let outcome = chat("odd", &script).check();
        assert_eq!((outcome.facts.chunks, outcome.failure), (2, None), "{json}");
    }
}
