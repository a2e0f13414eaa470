//! The formats, streamed and not, and answers of another form than was asked for.

use super::*;

const JSON: AnswerFacts = AnswerFacts { is_stream: false, ..STREAM };

#[test]
fn a_chat_answer_that_is_not_streamed_has_text_usage_and_reason() {
    let body = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":
        {"role":"assistant","content":"Hi \u00e4","reasoning_content":"Hm","tool_calls":null},
        "finish_reason":"stop"}],"usage":{
        "prompt_tokens":7,"completion_tokens":2}}"#;
    let facts = AnswerFacts { usage: told(2), finish: FinishReason::Stop, ..JSON };
    Case::json("chat", body).is_good(facts, &[], "Hi ä", "Hm");
    Case::json("chat until close", body).eof().is_good(facts, &[], "Hi ä", "Hm");
    let aborted = body.replace("\"stop\"", "\"abort\"");
    Case::json("abort", &aborted).fails(FailureKind::ErrorInAnswer, "finish reason: abort");
}

#[test]
fn json_that_is_cut_or_broken_fails_by_how_the_body_ended() {
    let whole = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    let cut = &whole[..30];
    let words = "the answer ends too early, at byte 30";
    Case::json("cut", cut).fails(FailureKind::MalformedAnswer, words);
    let outcome = Case::json("cut", cut).eof().fails(FailureKind::TruncatedBody, words);
    assert_eq!(outcome.text, "");
    let broken = whole.to_owned() + "}";
    let outcome = Case::json("broken", &broken).eof().fails(FailureKind::MalformedAnswer, "is not");
    assert_eq!(outcome.text, "", "what was found in it is forgotten");
    Case::json("lenient", &broken).lenient().fails(FailureKind::MalformedAnswer, "is not JSON");
    Case::json("nothing", "").fails(FailureKind::MalformedAnswer, "ends too early");
    Case::json("empty", &whole.replace("Hi", "")).fails(FailureKind::EmptyAnswer, "nothing");
}

#[test]
fn content_type_says_what_an_answer_is_and_not_what_was_asked_for() {
    let json = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    let stream = content("Hi") + &finish("stop") + DONE;
    let stopped = AnswerFacts { finish: FinishReason::Stop, ..JSON };
    let streamed = AnswerFacts {
        is_stream: true,
        ack_ns: 10,
        first_token_ns: 10,
        first_visible_ns: 10,
        last_token_ns: 10,
        done_ns: 10,
        chunks: 1,
        instants: 1,
        ..stopped
    };
    for wants_stream in [false, true] {
        Case { wants_stream, ..Case::json("json", json) }.is_good(stopped, &[], "Hi", "");
        let case = Case { wants_stream, ..Case::stream("stream", &[(10, &stream)]) };
        case.is_good(streamed, &[], "Hi", "");
        let untyped = Case { wants_stream, ..Case::json("untyped", json).content_type("") };
        untyped.is_good(stopped, &[], "Hi", "");
    }
    let untyped = Case::stream("untyped", &[(10, &stream)]).content_type("");
    untyped.is_good(streamed, &[], "Hi", "");
    let unasked = Case { wants_stream: false, ..untyped };
    unasked.fails(FailureKind::MalformedAnswer, "the answer is not JSON at byte 0: data:");
    Case::json("nothing", "").content_type("").fails(FailureKind::EmptyAnswer, "without a body");
    // A wrong type is wrong: each is read as what it says it is.
    let case = Case::stream("a stream that is JSON", &[(10, json)]);
    case.fails(FailureKind::EmptyAnswer, "nothing generated");
    let case = Case::json("JSON that is a stream", &stream);
    case.fails(FailureKind::MalformedAnswer, "is not JSON at byte 0");
}

#[test]
fn completions_have_their_text_in_choices() {
    let text = |text: &str, finish: &str| {
        event(&format!(r#"{{"choices":[{{"index":0,"text":"{text}","finish_reason":{finish}}}]}}"#))
    };
    let script = [
        (10, text("", "null")),
        (100, text("Hi", "null")),
        (130, text(" you", r#""length""#)),
        (140, usage(2) + DONE),
    ];
    let facts = AnswerFacts {
        ack_ns: 10,
        first_token_ns: 100,
        first_visible_ns: 100,
        last_token_ns: 130,
        done_ns: 140,
        chunks: 2,
        instants: 2,
        usage: told(2),
        finish: FinishReason::Length,
        ..STREAM
    };
    let case = chat("completions", &script).format(AnswerFormat::Completions);
    case.is_good(facts, &[30], "Hi you", "");
    case.format(AnswerFormat::Chat).fails(FailureKind::EmptyAnswer, "though 2 tokens are told");
    let body = r#"{"choices":[{"text":"Hi","index":0,"finish_reason":"length"}],"usage":null}"#;
    let facts = AnswerFacts { finish: FinishReason::Length, ..JSON };
    Case::json("whole", body).format(AnswerFormat::Completions).is_good(facts, &[], "Hi", "");
}

#[test]
fn text_is_that_of_the_first_choice_and_tokens_those_of_all() {
    let choice = |index: u32, text: &str| {
        event(&format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}},"index":{index}}}]}}"#))
    };
    let script = [
        (10, choice(0, "a")),
        (20, choice(1, "A")),
        (30, choice(1, "B") + &choice(0, "b")),
        (40, finish("stop") + DONE),
    ];
    let outcome = chat("choices", &script).check();
    assert_eq!((outcome.text.as_str(), outcome.facts.chunks, outcome.failure), ("ab", 4, None));
    let body = r#"{"choices":[{"index":1,"message":{"content":"B"},"finish_reason":"error"},
        {"index":0,"message":{"content":"A"},"finish_reason":"stop"}]}"#;
    let outcome = Case::json("choices", body).fails(FailureKind::ErrorInAnswer, "error");
    assert_eq!(outcome.text, "A");
}

#[test]
fn generate_repeats_its_text_by_design_and_counts_what_is_new() {
    let chunk = |text: &str, tokens: u32, finish: &str| {
        event(&format!(
            r#"{{"text":"{text}","meta_info":{{"id":"x","finish_reason":{finish},
            "prompt_tokens":7,"completion_tokens":{tokens},"cached_tokens":3}}}}"#
        ))
    };
    let script = [
        (10, chunk("", 0, "null")),
        (100, chunk("Hi", 1, "null")),
        (110, chunk("Hi", 2, "null")),
        (130, chunk("Hi you", 3, r#"{"type":"length","length":3}"#)),
        (140, DONE.to_owned()),
    ];
    let facts = AnswerFacts {
        ack_ns: 10,
        first_token_ns: 100,
        first_visible_ns: 100,
        last_token_ns: 130,
        done_ns: 140,
        chunks: 2,
        instants: 2,
        first_chunk_tokens: Some(1),
        usage: Usage { cached: Some(3), ..told(3) },
        finish: FinishReason::Length,
        is_cumulative: true,
        ..STREAM
    };
    let generate = chat("generate", &script).format(AnswerFormat::Generate);
    generate.is_good(facts, &[30], "Hi you", "");
    // Some are set to send what is new only.
    let script = [
        (100, chunk("Hello", 1, "null")),
        (110, chunk(" you", 2, "null") + &chunk(" you", 3, r#"{"type":"stop"}"#) + DONE),
    ];
    let outcome = chat("news only", &script).format(AnswerFormat::Generate).check();
    assert_eq!((outcome.text.as_str(), outcome.facts.chunks), ("Hello you you", 3));
    assert!(!outcome.facts.is_cumulative);
    let script = [
        (100, chunk("The", 1, "null")),
        (110, chunk(" capital", 2, "null")),
        (120, chunk(" is", 3, r#"{"type":"stop"}"#) + DONE),
    ];
    let outcome = chat("longer news", &script).format(AnswerFormat::Generate).check();
    assert_eq!((outcome.text.as_str(), outcome.facts.chunks), ("The capital is", 3));
    // Ids without text, and a failure with its words.
    let ids = event(
        r#"{"output_ids":[5],"meta_info":{"completion_tokens":1,"finish_reason":{"type":"stop"}}}"#,
    );
    let outcome =
        chat("ids", &[(10, ids), (20, DONE.to_owned())]).format(AnswerFormat::Generate).check();
    assert_eq!(
        (outcome.facts.chunks, outcome.facts.first_visible_ns, outcome.failure),
        (1, 0, None)
    );
    let abort = chunk("Hi", 1, r#"{"type":"abort","message":"out of memory","status_code":500}"#);
    let case = chat("abort", &[(10, abort), (20, DONE.to_owned())]).format(AnswerFormat::Generate);
    case.fails(FailureKind::ErrorInAnswer, "out of memory");
    let whole = r#"{"text":"Hi","output_ids":[1,2],
        "meta_info":{"finish_reason":{"type":"stop","matched":2},
        "prompt_tokens":7,"completion_tokens":2}}"#;
    let facts = AnswerFacts { usage: told(2), finish: FinishReason::Stop, ..JSON };
    for body in [whole.to_owned(), format!("[{whole}]")] {
        Case::json("whole", &body).format(AnswerFormat::Generate).is_good(facts, &[], "Hi", "");
    }
}

#[test]
fn embeddings_generate_nothing_but_must_be_there() {
    let usage = Usage { prompt: Some(4), ..NO_USAGE };
    for embedding in ["[0.5,-1e-3]", "\"AAAA\""] {
        let body = format!(
            r#"{{"object":"list","data":[{{"index":0,"embedding":{embedding}}}],
            "usage":{{"prompt_tokens":4,"total_tokens":4}}}}"#
        );
        let case = Case::json("embedding", &body).format(AnswerFormat::Embeddings);
        case.is_good(AnswerFacts { usage, ..JSON }, &[], "", "");
    }
    for data in ["[]", r#"[{"embedding":[]}]"#, r#"[{"embedding":""}]"#, "null"] {
        let body = format!(r#"{{"data":{data}}}"#);
        let case = Case::json("embedding", &body).format(AnswerFormat::Embeddings);
        case.fails(FailureKind::EmptyAnswer, "nothing generated");
    }
}

fn field(path: &[&str]) -> AnswerFormat {
    let steps = path.iter().map(|step| match step.parse() {
        Ok(index) => PathStep::Index(index),
        Err(_) => PathStep::Key((*step).into()),
    });
    AnswerFormat::Field(steps.collect())
}

#[test]
fn a_field_is_found_by_its_path() {
    for (path, body, text) in [
        (&["a", "1", "b"][..], r#"{"a":[0,{"b":"Hi","c":1}],"b":"no"}"#, "Hi"),
        (&["a"], r#"{"x":{"a":"no"},"\u0061":"Hi"}"#, "Hi"),
        (&["0", "generated_text"], r#"[{"generated_text":"Hi"}]"#, "Hi"),
        (&["score"], r#"{"score":0.25}"#, "0.25"),
        (&["tags"], r#"{"tags":["a\n"]}"#, r#"["a\n"]"#),
        (&["error"], r#"{"error":"is what is asked for"}"#, "is what is asked for"),
        (&[], r#""Hi""#, "Hi"),
    ] {
        Case::json("field", body).format(field(path)).is_good(JSON, &[], text, "");
    }
    for body in ["{}", r#"{"a":null}"#, r#"{"a":""}"#, r#"{"a":[]}"#, "[1]", r#"{"b":"x"}"#] {
        Case::json("field", body).format(field(&["a"])).fails(FailureKind::EmptyAnswer, body);
    }
    let body = r#"{"a":"x","error":{"message":"no such model"}}"#;
    Case::json("field", body).format(field(&["a"])).fails(FailureKind::ErrorInAnswer, "no such");
}

#[test]
fn a_stream_of_fields_needs_no_more_than_the_end_of_its_message() {
    let token = |text: &str| event(&format!(r#"{{"text_output":"{text}","model_name":"m"}}"#));
    let stream = |script: &[(u64, String)]| chat("field", script).format(field(&["text_output"]));
    let script = [(10, token("Hi")), (20, token(" you"))];
    let outcome = stream(&script).check();
    assert_eq!((outcome.text.as_str(), outcome.facts.chunks, outcome.failure), ("Hi you", 2, None));
    let closed = stream(&script).eof();
    closed.fails(FailureKind::TruncatedStream, "with the connection");
    let done = [&script[..], &[(30, DONE.to_owned())]].concat();
    assert_eq!(stream(&done).eof().check().failure, None);
    let cut = [&script[..], &[(30, "data: {".to_owned())]].concat();
    stream(&cut).fails(FailureKind::TruncatedStream, "inside an event");
}

#[test]
fn plain_http_is_not_looked_at() {
    let case = Case::stream("plain", &[(10, "data: {nonsense\n\n")]).format(AnswerFormat::Plain);
    let facts = AnswerFacts { is_stream: true, ..JSON };
    case.is_good(facts, &[], "", "");
    let page = Case::json("plain", "<html>").content_type("text/html").format(AnswerFormat::Plain);
    page.is_good(JSON, &[], "", "");
}
