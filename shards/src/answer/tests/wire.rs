//! What servers really send: one test for each kind of it, named by what is right.

use super::*;

/// Two tokens at 100 and 130, the end at 140: what most scripts below come to.
fn two(usage: Usage) -> AnswerFacts {
    AnswerFacts {
        ack_ns: 10,
        first_token_ns: 100,
        first_visible_ns: 100,
        last_token_ns: 130,
        done_ns: 140,
        chunks: 2,
        instants: 2,
        usage,
        finish: FinishReason::Stop,
        ..STREAM
    }
}

/// Role at 10, "Hi" at 100, " you" at 130, and so on; each event through `write`.
fn two_script(write: impl Fn(&str) -> String) -> Vec<(u64, String)> {
    [
        (10, role()),
        (100, content("Hi")),
        (130, content(" you")),
        (135, finish("stop")),
        (138, usage(2)),
        (140, DONE.to_owned()),
    ]
    .map(|(at, event)| (at, write(&event)))
    .to_vec()
}

fn two_is_good(name: &'static str, write: impl Fn(&str) -> String) {
    chat(name, &two_script(write)).is_good(two(told(2)), &[30], "Hi you", "");
}

#[test]
fn w1_one_event_in_each_write() {
    two_is_good("w1", str::to_owned);
}

#[test]
fn w2_events_of_one_receive_share_its_instant_and_are_counted() {
    let burst = [content("a"), content("b"), content("c")].concat();
    let script = [(10, role()), (100, burst), (130, content("d") + &finish("stop") + DONE)];
    let facts =
        AnswerFacts { chunks: 4, coalesced: 2, done_ns: 130, usage: NO_USAGE, ..two(NO_USAGE) };
    chat("w2", &script).is_good(facts, &[30], "abcd", "");
}

#[test]
fn w3_an_event_counts_when_its_last_byte_is_there() {
    let token = content("ä€");
    let at = token.find('€').expect("it is in it") + 1;
    let (begin, end) = token.as_bytes().split_at(at);
    let mut case = Case::stream("w3", &[(10, &role())]);
    case.script.push((90, begin.to_vec()));
    case.script.push((100, end.to_vec()));
    case.script.push((130, content("!").into_bytes()));
    case.script.push((140, (finish("stop") + DONE).into_bytes()));
    case.is_good(two(NO_USAGE), &[30], "ä€!", "");
}

#[test]
fn w4_w5_data_and_done_without_a_blank() {
    two_is_good("w4, w5", |event| event.replace("data: ", "data:"));
}

#[test]
fn w5_done_with_blanks_around() {
    two_is_good("w5", |event| event.replace("[DONE]", "  [DONE] "));
}

#[test]
fn w6_lines_end_with_crlf_or_cr_or_a_mixture() {
    two_is_good("w6 crlf", |event| event.replace('\n', "\r\n"));
    two_is_good("w6 cr", |event| event.replace('\n', "\r"));
    two_is_good("w6 mixed", |event| event.replace("\n\n", "\r\n\n"));
}

#[test]
fn w13_data_of_several_lines_is_joined_before_it_is_parsed() {
    two_is_good("w13", |event| event.replace(r#","choices""#, "\ndata: ,\"choices\""));
}

#[test]
fn w47_http_chunks_with_extensions_and_trailers_in_any_place() {
    // Each run of a case has both; here each byte is a chunk of its own.
    let mut case = chat("w47", &two_script(str::to_owned));
    let pieces = case.script.iter();
    case.script = pieces.flat_map(|(at, p)| p.iter().map(|byte| (*at, vec![*byte]))).collect();
    let outcome = case.outcome();
    assert_eq!((outcome.facts, outcome.failure), (two(told(2)), None));
}

#[test]
fn w51_a_line_may_be_long_up_to_the_limit_which_ends_this_query_only() {
    let long = "x".repeat(200_000);
    let script = [(10, role()), (100, content(&long)), (130, finish("stop") + DONE)];
    let long_line = chat("w51", &script);
    let facts =
        AnswerFacts { last_token_ns: 100, done_ns: 130, chunks: 1, instants: 1, ..two(NO_USAGE) };
    let outcome = long_line.outcome();
    assert_eq!((outcome.facts, outcome.text, outcome.failure), (facts, long, None));
    let limited = long_line.limit(200_000);
    let outcome = limited.outcome();
    let words = "an event of more than 200000 bytes".to_owned();
    assert_eq!(outcome.failure, Some((FailureKind::AnswerLimit, words)));
    assert!(outcome.is_broken);
    // The reader is as good as new for the next.
    let mut answer = Answer::new(&limited.plan);
    limited.run(&mut answer, &limited.receives());
    let next = chat("w51 next", &two_script(str::to_owned));
    assert_eq!(next.run(&mut answer, &next.receives()).facts, two(told(2)));
}

#[test]
fn w8_w9_w10_comments_say_nothing_but_that_it_lives() {
    let script = [
        (3, ":\n\n".to_owned()),
        (5, ": keepalive\n\n: ping\n\n".to_owned()),
        (7, ": OPENROUTER PROCESSING\n\n".to_owned()),
        (10, role()),
        (100, content("Hi")),
        (110, ":\n\n".to_owned()),
        (130, content(" you")),
        (132, ": OPENROUTER PROCESSING\n\n".to_owned()),
        (140, finish("stop") + DONE),
    ];
    chat("w8, w9, w10", &script).is_good(two(NO_USAGE), &[30], "Hi you", "");
}

#[test]
fn w11_w12_fields_beside_the_data_and_events_without_any() {
    let script = [
        (3, "event: ping\n\ndata\n\ndata:\n\nretry: 100\n\n".to_owned()),
        (10, format!("event: message\nid: 1\n{}", role())),
        (100, format!("id: 2\nretry: 5\n{}", content("Hi"))),
        (130, content(" you").replace("\n\n", "\nevent: token\n\n")),
        (140, finish("stop") + DONE),
    ];
    chat("w11, w12", &script).is_good(two(NO_USAGE), &[30], "Hi you", "");
}

#[test]
fn w12_an_error_event_is_a_failure_with_its_words() {
    let token = content("a");
    for (data, words) in [
        (r#"data: {"error":{"message":"out of \"memory\"","code":500}}"#, "out of \"memory\""),
        (r#"data: {"message":"gone"}"#, r#"event: error {"message":"gone"}"#),
        ("data: plain words", "event: error plain words"),
        ("data:", "event: error"),
    ] {
        let event = format!("event: error\n{data}\n\n");
        let case = Case::stream("w12", &[(10, &token), (20, &event), (30, DONE)]);
        let outcome = case.fails(FailureKind::ErrorInAnswer, words);
        assert_eq!((outcome.facts.chunks, outcome.is_broken), (1, false));
    }
}

#[test]
fn w16_w17_w18_w19_a_role_and_empty_deltas_are_no_tokens() {
    let script = [
        (10, role()),
        (20, delta(r#"{"role":"assistant","content":null}"#)),
        (30, delta("{}")),
        (100, delta(r#"{"role":"assistant","content":"Hi"}"#)),
        (110, delta(r#"{"role":"","content":"","tool_calls":[],"reasoning":null,"refusal":null}"#)),
        (130, delta(r#"{"role":"","content":" you","function_call":null,"audio":null}"#)),
        (140, finish("stop") + DONE),
    ];
    chat("w16 to w19", &script).is_good(two(NO_USAGE), &[30], "Hi you", "");
}

#[test]
fn w20_filter_results_without_choices_come_first() {
    let filter = event(
        r#"{"id":"","model":"","choices":[],
        "prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}"#,
    );
    let mut script = two_script(str::to_owned);
    script[0].1 = filter;
    chat("w20", &script).is_good(two(told(2)), &[30], "Hi you", "");
}

#[test]
fn w22_w23_w24_usage_counts_wherever_it_stands_and_the_last_wins() {
    let usage = r#""usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}"#;
    for (name, at) in [("on content", 2), ("on finish", 3)] {
        let mut script = two_script(str::to_owned);
        script.remove(4);
        let event = script[at].1.replace(r#","usage":null"#, "");
        script[at].1 = event.replace("]}\n\n", &format!("],{usage}}}\n\n"));
        chat(name, &script).is_good(two(told(2)), &[30], "Hi you", "");
    }
    // LiteLLM sends a choice beside it; others repeat it; null takes nothing back.
    let odd = event(&format!(r#"{{"choices":[{{"index":0,"delta":{{}}}}],{usage}}}"#));
    let mut script = two_script(str::to_owned);
    script[4].1 = super::usage(1) + &odd + &event(r#"{"choices":[],"usage":null}"#);
    chat("repeated", &script).is_good(two(told(2)), &[30], "Hi you", "");
}

#[test]
fn usage_has_its_details() {
    let details = event(
        r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,
        "prompt_tokens_details":{"cached_tokens":5,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":1,"accepted_prediction_tokens":0}}}"#,
    );
    let mut script = two_script(str::to_owned);
    script[4].1 = details;
    let usage = Usage { cached: Some(5), reasoning: Some(1), ..told(2) };
    chat("details", &script).is_good(two(usage), &[30], "Hi you", "");
    let null = event(
        r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,
        "prompt_tokens_details":null}}"#,
    );
    script[4].1 = null;
    chat("null details", &script).is_good(two(told(2)), &[30], "Hi you", "");
}

#[test]
fn w25_continuous_usage_weighs_the_first_chunk() {
    let with = |text: &str, tokens: u32| {
        let usage = format!(r#""usage":{{"prompt_tokens":7,"completion_tokens":{tokens}}}"#);
        content(text).replace(r#""usage":null"#, &usage)
    };
    let script = [
        (10, with("", 0)),
        (100, with("Hi", 3)),
        (130, with(" you", 4)),
        (140, finish("stop") + DONE),
    ];
    let facts = AnswerFacts { first_chunk_tokens: Some(3), ..two(told(4)) };
    chat("w25", &script).is_good(facts, &[30], "Hi you", "");
}

#[test]
fn w27_reasoning_is_the_first_token_and_content_the_first_visible() {
    let twice = delta(r#"{"reasoning_content":"think","reasoning":"think","content":null}"#);
    let script = [
        (10, role()),
        (50, twice),
        (60, delta(r#"{"reasoning":" more","reasoning_content":""}"#)),
        (100, content("Hi")),
        (140, finish("stop") + DONE),
    ];
    let facts = AnswerFacts {
        first_token_ns: 50,
        last_token_ns: 100,
        chunks: 3,
        instants: 3,
        ..two(NO_USAGE)
    };
    chat("w27", &script).is_good(facts, &[10, 40], "Hi", "think more");
}

#[test]
fn w28_a_first_chunk_after_hidden_reasoning_says_how_much_it_carried() {
    let all = content("Hi").replace(
        r#""usage":null"#,
        concat!(
            r#""usage":{"prompt_tokens":7,"completion_tokens":500,"#,
            r#""completion_tokens_details":{"reasoning_tokens":499}}"#
        ),
    );
    let script = [(10, role()), (100, all), (130, content("!")), (140, finish("stop") + DONE)];
    let usage = Usage { reasoning: Some(499), ..told(500) };
    let facts = AnswerFacts { first_chunk_tokens: Some(500), ..two(usage) };
    chat("w28", &script).is_good(facts, &[30], "Hi!", "");
}

#[test]
fn w29_w30_a_tool_call_is_a_token_by_its_name_or_arguments() {
    let call = |call: &str| delta(&format!(r#"{{"tool_calls":[{{"index":0,{call}}}]}}"#));
    let script = [
        (10, role()),
        (50, call(r#""id":"c1","type":"function","function":{"name":"look","arguments":""}"#)),
        (60, call(r#""function":{"arguments":""}"#)),
        (130, call(r#""function":{"arguments":"{\"at\":1}"}"#)),
        (140, finish("tool_calls") + DONE),
    ];
    let facts = AnswerFacts {
        first_token_ns: 50,
        first_visible_ns: 0,
        finish: FinishReason::ToolCalls,
        ..two(NO_USAGE)
    };
    chat("w29", &script).is_good(facts, &[80], "", r#"look{"at":1}"#);
    // Whole calls in one chunk, with the finish, and the old form.
    let whole = event(
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"a","arguments":"{}"}},
        {"custom":{"name":"b","input":"x"}}],"function_call":{"name":"c","arguments":{"d":1}}},
        "finish_reason":"tool_calls"}]}"#,
    );
    let facts = AnswerFacts { last_token_ns: 50, chunks: 1, instants: 1, ..facts };
    let script = [(10, role()), (50, whole), (140, DONE.to_owned())];
    chat("w30", &script).is_good(facts, &[], "", r#"a{}bxc{"d":1}"#);
}

#[test]
fn refusals_are_seen_and_audio_is_heard() {
    let script = [
        (10, role()),
        (50, delta(r#"{"audio":{"id":"a","transcript":"","data":"UklGRg=="}}"#)),
        (100, delta(r#"{"refusal":"No."}"#)),
        (130, delta(r#"{"content":[{"type":"text","text":" Sorry"}]}"#)),
        (140, finish("stop") + DONE),
    ];
    let facts = AnswerFacts { first_token_ns: 50, chunks: 3, instants: 3, ..two(NO_USAGE) };
    chat("channels", &script).is_good(facts, &[50, 30], "No. Sorry", "");
    let thinking =
        delta(r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]}"#);
    let script = [(10, role()), (50, thinking), (130, content("Hi")), (140, finish("stop") + DONE)];
    let facts = AnswerFacts { first_token_ns: 50, first_visible_ns: 130, ..two(NO_USAGE) };
    chat("parts", &script).is_good(facts, &[80], "Hi", "Hm");
}

#[test]
fn w31_chunks_are_counted_as_chunks_and_tokens_as_told() {
    let script = [
        (10, role()),
        (100, content("four tokens in one")),
        (130, content(" and four more here")),
        (138, finish("stop") + &usage(8)),
        (140, DONE.to_owned()),
    ];
    let text = "four tokens in one and four more here";
    chat("w31", &script).is_good(two(told(8)), &[30], text, "");
}

#[test]
fn w32_text_that_is_repeated_counts_once() {
    let script = [
        (10, role()),
        (100, content("The capital of")),
        (130, content("The capital of France is")),
        (132, content("The capital of France is")),
        (135, content("The capital of France is \\\"P\\\"")),
        (140, finish("stop") + DONE),
    ];
    // 14 repeated bytes are not yet enough to be sure, so the chunk without news counts.
    let facts = AnswerFacts {
        last_token_ns: 135,
        chunks: 4,
        instants: 4,
        is_cumulative: true,
        ..two(NO_USAGE)
    };
    let text = "The capital of France is \"P\"";
    chat("w32 short", &script).is_good(facts, &[30, 2, 3], text, "");
    let script = [
        (10, role()),
        (100, content("The capital of France")),
        (130, content("The capital of France is \\\"P\\\"")),
        (135, content("The capital of France is \\\"P\\\"")),
        (140, finish("stop") + DONE),
    ];
    let facts = AnswerFacts { is_cumulative: true, ..two(NO_USAGE) };
    chat("w32", &script).is_good(facts, &[30], "The capital of France is \"P\"", "");
}

#[test]
fn w35_every_reason_to_finish_is_understood() {
    for (word, reason) in [
        ("stop", FinishReason::Stop),
        ("eos_token", FinishReason::Stop),
        ("STOP", FinishReason::Stop),
        ("length", FinishReason::Length),
        ("tool_calls", FinishReason::ToolCalls),
        ("content_filter", FinishReason::ContentFilter),
        ("function_call", FinishReason::FunctionCall),
        ("", FinishReason::None),
        ("insufficient_system_resource", FinishReason::Other),
    ] {
        let script = [(10, role()), (100, content("Hi")), (130, content(" you"))];
        let script = [&script[..], &[(135, finish(word)), (140, DONE.to_owned())]].concat();
        let facts = AnswerFacts { finish: reason, ..two(NO_USAGE) };
        chat("w35", &script).is_good(facts, &[30], "Hi you", "");
    }
    for (word, reason) in [("abort", FinishReason::Abort), ("error", FinishReason::Error)] {
        let (token, finish) = (content("Hi"), finish(word));
        let case = Case::stream("w35", &[(10, &token), (20, &finish), (30, DONE)]);
        let outcome = case.fails(FailureKind::ErrorInAnswer, &format!("finish reason: {word}"));
        assert_eq!(outcome.facts.finish, reason);
    }
    // Content in the chunk of the finish counts.
    let last = content(" you").replace(r#""finish_reason":null"#, r#""finish_reason":"stop""#);
    let script = [(10, role()), (100, content("Hi")), (130, last), (140, DONE.to_owned())];
    chat("w35 content", &script).is_good(two(NO_USAGE), &[30], "Hi you", "");
}

#[test]
fn w36_an_error_inside_a_200_fails_in_any_shape_whatever_came_before() {
    let token = content("Hi");
    for (json, words) in [
        (r#"{"error":{"message":"KV cache is full","type":"x","code":500}}"#, "KV cache is full"),
        (r#"{"error":{"code":500,"message":"a\n\u00e4"}}"#, "a..."),
        (r#"{"error":"overloaded","error_type":"overloaded"}"#, "overloaded"),
        (r#"{"error":{"code":503}}"#, r#"{"code":503}"#),
        (r#"{"error":["a"]}"#, r#"["a"]"#),
        (r#"{"object":"error","message":"too long","code":400}"#, "too long"),
        (r#"{"message":"too long","object":"error"}"#, "too long"),
        (r#"{"choices":[{"delta":{},"error":{"message":"upstream"}}]}"#, "upstream"),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, "Over"),
    ] {
        let error = event(json);
        let first = Case::stream("w36 first", &[(20, &error), (30, DONE)]);
        assert_eq!(first.fails(FailureKind::ErrorInAnswer, words).facts.chunks, 0);
        let later = Case::stream("w36", &[(10, &token), (20, &error), (30, DONE)]);
        let outcome = later.fails(FailureKind::ErrorInAnswer, words);
        assert_eq!((outcome.facts.chunks, outcome.is_broken), (1, false));
    }
    // What is not an error: nothing by that name.
    for nothing in ["null", "\"\"", "{}", "[]", "false", "0"] {
        let chunk = event(&format!(r#"{{"error":{nothing},"choices":[]}}"#));
        let mut script = two_script(str::to_owned);
        script[4].1 += &chunk;
        chat(nothing, &script).is_good(two(told(2)), &[30], "Hi you", "");
    }
}

#[test]
fn w38_only_done_is_empty_unless_the_endpoint_says_so_itself() {
    Case::stream("w38", &[(10, DONE)]).fails(FailureKind::EmptyAnswer, "nothing generated");
    let script = [(10, role()), (20, finish("stop")), (30, usage(5)), (40, DONE.to_owned())];
    chat("w38 five", &script).fails(FailureKind::EmptyAnswer, "though 5 tokens are told");
    let script = [(10, role()), (20, finish("stop")), (30, usage(0)), (40, DONE.to_owned())];
    let facts = AnswerFacts {
        ack_ns: 10,
        done_ns: 40,
        finish: FinishReason::Stop,
        usage: told(0),
        ..STREAM
    };
    chat("w38 none", &script).is_good(facts, &[], "", "");
    let script = [(10, role()), (30, usage(0)), (40, DONE.to_owned())];
    chat("w38 no finish", &script).fails(FailureKind::EmptyAnswer, "nothing generated");
}

#[test]
fn w39_without_done_a_finish_reason_decides() {
    for is_eof in [false, true] {
        let mut script = two_script(str::to_owned);
        script.truncate(5);
        let facts = AnswerFacts { done_ns: 0, ..two(told(2)) };
        let case = Case { is_eof, ..chat("w39", &script) };
        case.is_good(facts, &[30], "Hi you", "");
        script.truncate(3);
        let case = Case { is_eof, ..chat("w39 cut", &script) };
        let words = if is_eof { "with the connection" } else { "without [DONE]" };
        let outcome = case.fails(FailureKind::TruncatedStream, words);
        assert_eq!(
            (outcome.facts.chunks, outcome.text.as_str()),
            (2, "Hi you"),
            "the part is kept"
        );
        script.truncate(1);
        let case = Case { is_eof, ..chat("w39 role only", &script) };
        case.fails(FailureKind::TruncatedStream, words);
        let case = Case { is_eof, ..chat("w39 empty", &[(10, ":\n\n".to_owned())]) };
        case.fails(FailureKind::EmptyAnswer, "nothing generated");
    }
}

#[test]
fn w40_a_cut_inside_an_event_loses_it() {
    let last = content(" you");
    let cut = &last[..last.len() - 1];
    let case = Case::stream("w40", &[(10, &role()), (100, &content("Hi")), (130, cut)]).eof();
    let outcome = case.fails(FailureKind::TruncatedStream, "inside an event");
    assert_eq!((outcome.facts.chunks, outcome.text.as_str()), (1, "Hi"));
}

#[test]
fn w41_nothing_counts_after_done() {
    let mut script = two_script(str::to_owned);
    script.push((150, ": still here\n\n".to_owned() + &content("late") + &event("{") + &usage(9)));
    chat("w41", &script).is_good(two(told(2)), &[30], "Hi you", "");
}

#[test]
fn w53_a_chunk_that_is_not_json_fails_unless_it_is_to_be_skipped() {
    let mut script = two_script(str::to_owned);
    script
        .insert(2, (110, "data: {\"choices\":[{\"delta\":{\"content\":\"lost\"}}\n\n".to_owned()));
    script.insert(3, (111, event("not JSON at all")));
    let case = chat("w53", &script);
    let outcome = case.fails(FailureKind::MalformedAnswer, "an event ends too early, at byte 40");
    assert_eq!((outcome.facts.malformed, outcome.is_broken), (0, false));
    assert_eq!(outcome.text, "Hi", "what was found in it is forgotten");
    let facts = AnswerFacts { malformed: 2, ..two(told(2)) };
    case.lenient().is_good(facts, &[30], "Hi you", "");
    let event = event("{\"a\":01}");
    let case = Case::stream("w53", &[(10, &event)]);
    case.fails(FailureKind::MalformedAnswer, "an event is not JSON at byte 6: {\"a\":01}");
}

#[test]
fn w42_the_error_of_a_json_body_is_told_in_its_words() {
    for (body, words) in [
        (r#"{"error":{"message":"maximum context length is 8","code":400}}"#, "maximum context"),
        (r#"{"error":{"code":503,"message":"Loading model","type":"unavailable"}}"#, "Loading"),
        (r#"{"error":"Model is overloaded","error_type":"overloaded"}"#, "Model is overloaded"),
        (r#"[{"error":{"code":429,"message":"quota"}}]"#, "quota"),
    ] {
        Case::json("w42", body).fails(FailureKind::ErrorInAnswer, words);
    }
    let detail = r#"{"detail":"Not Found"}"#;
    Case::json("w42", detail).fails(FailureKind::EmptyAnswer, detail);
}

#[test]
fn w44_a_page_is_no_answer_however_long() {
    let page = "<html>\n<head><title>504 Gateway Time-out</title></head>".to_owned();
    for body in [page.clone(), page.clone() + &" ".repeat(10_000), String::new()] {
        let case = Case::stream("w44", &[(10, &body)]).content_type("text/html");
        let words = if body.is_empty() { "neither JSON" } else { "<html>.<head><title>504 Gat" };
        case.fails(FailureKind::UnexpectedType, words);
    }
    let ndjson = Case::json("w44", "{\"a\":1}\n{\"a\":2}\n").content_type("application/x-ndjson");
    ndjson.fails(FailureKind::UnexpectedType, "neither JSON nor an event stream");
}

#[test]
fn w50_a_stream_that_is_held_back_shows_in_its_gaps() {
    let burst: String = (0..65).map(|_| content("x")).collect();
    let script = [(10, role()), (100, burst.clone()), (120, burst), (140, finish("stop") + DONE)];
    let facts = AnswerFacts { last_token_ns: 120, chunks: 130, coalesced: 128, ..two(NO_USAGE) };
    let outcome = chat("w50", &script).outcome();
    assert_eq!((outcome.facts, outcome.gaps_ns), (facts, vec![20]));
}
