//! Bodies as servers parse them.

use super::*;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

fn text(prompt: &str) -> Sample {
    Sample { prompt: Prompt::Text(prompt.into()), ..Sample::default() }
}

fn asked(prompt: Prompt) -> Sample {
    Sample { prompt, ..Sample::default() }
}

/// Every option that there is.
fn all() -> Sampling {
    Sampling {
        model: Some("m".into()),
        max_tokens: Some(64),
        min_tokens: Some(8),
        ignore_eos: true,
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(-1),
        seed: Some(7),
        stop: vec!["\n\n".into(), "END".into()],
        stream: true,
        include_usage: true,
        ..Sampling::default()
    }
}

fn parsed(api: Api, sample: &Sample, sampling: &Sampling) -> Value {
    let bytes = body(api, sample, sampling).expect("valid");
    serde_json::from_slice(&bytes).expect("a body is JSON")
}

fn with_extra(extra: Value) -> Sampling {
    Sampling { extra: object(extra), ..all() }
}

#[test]
fn prompts_are_counted_with_whole_answers_of_one_token() {
    let extra = json!({"max_tokens": 500, "stream": true, "stream_options": {"x": 1}, "seed": 3});
    for (api, limit) in [(Api::Chat, "max_completion_tokens"), (Api::Completions, "max_tokens")] {
        let body = object(parsed(api, &text("a"), &with_extra(extra.clone()).of_one_token()));
        assert_eq!((&body[limit], &body["seed"]), (&json!(1), &json!(3)), "{body:?}");
        let lengths = ["max_tokens", "min_tokens", "stream", "stream_options"];
        let left = lengths.iter().filter(|name| **name != limit && body.contains_key(**name));
        assert_eq!(left.count(), 0, "{body:?}");
    }
}

#[test]
fn without_options_only_the_prompt_is_sent() {
    let none = Sampling::default();
    for (api, sample, expected) in [
        (Api::Chat, text("a\"é"), r#"{"messages":[{"role":"user","content":"a\"é"}]}"#),
        (Api::Completions, text("a"), r#"{"prompt":"a"}"#),
        (Api::Completions, asked(Prompt::Tokens(vec![1, 2])), r#"{"prompt":[1,2]}"#),
        (Api::Generate, text("a"), r#"{"text":"a"}"#),
        (Api::Generate, asked(Prompt::Tokens(vec![1, 2])), r#"{"input_ids":[1,2]}"#),
        (Api::Embeddings, text("a"), r#"{"input":"a"}"#),
        (
            Api::Embeddings,
            asked(Prompt::Texts(vec!["a".into(), "b".into()])),
            r#"{"input":["a","b"]}"#,
        ),
        (Api::Embeddings, asked(Prompt::Tokens(vec![5])), r#"{"input":[5]}"#),
        (Api::Raw, asked(Prompt::Body(b"\xff\0{".to_vec())), "\u{fffd}\0{"),
        (Api::Raw, text("plain"), "plain"),
        (Api::Raw, Sample::default(), ""),
    ] {
        let bytes = body(api, &sample, &none).expect("valid");
        assert_eq!(String::from_utf8_lossy(&bytes), expected, "{api:?}");
    }
    let bytes = body(Api::Raw, &asked(Prompt::Body(b"\xff\0{".to_vec())), &none);
    assert_eq!(bytes.as_deref(), Ok(&b"\xff\0{"[..]), "byte by byte");
}

#[test]
fn every_option_has_its_member() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    assert_eq!(
        parsed(Api::Chat, &text("hi"), &all()),
        json!({
            "model": "m", "messages": messages, "stream": true, "max_completion_tokens": 64,
            "min_tokens": 8, "ignore_eos": true, "temperature": 0.5, "top_p": 0.9, "top_k": -1,
            "seed": 7, "stop": ["\n\n", "END"], "stream_options": {"include_usage": true},
        })
    );
    assert_eq!(
        parsed(Api::Completions, &text("hi"), &all()),
        json!({
            "model": "m", "prompt": "hi", "stream": true, "max_tokens": 64,
            "min_tokens": 8, "ignore_eos": true, "temperature": 0.5, "top_p": 0.9, "top_k": -1,
            "seed": 7, "stop": ["\n\n", "END"], "stream_options": {"include_usage": true},
        })
    );
    assert_eq!(
        parsed(Api::Generate, &text("hi"), &all()),
        json!({
            "text": "hi", "stream": true, "sampling_params": {
                "max_new_tokens": 64, "min_new_tokens": 8, "ignore_eos": true, "temperature": 0.5,
                "top_p": 0.9, "top_k": -1, "sampling_seed": 7, "stop": ["\n\n", "END"],
            },
        })
    );
    assert_eq!(parsed(Api::Embeddings, &text("hi"), &all()), json!({"model": "m", "input": "hi"}));
}

#[test]
fn a_body_begins_with_the_model_and_the_prompt() {
    for (api, begin) in [
        (Api::Chat, r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"#),
        (Api::Completions, r#"{"model":"m","prompt":"hi","stream":true,"max_tokens":64,"#),
        (Api::Generate, r#"{"text":"hi","stream":true,"sampling_params":{"max_new_tokens":64,"#),
        (Api::Embeddings, r#"{"model":"m","input":"hi"}"#),
    ] {
        for output_tokens in [None, Some(64)] {
            let sample = Sample { output_tokens, ..text("hi") };
            let bytes = body(api, &sample, &all()).expect("valid");
            let text = String::from_utf8(bytes).expect("UTF-8");
            assert!(text.starts_with(begin), "{text}");
        }
    }
}

#[test]
fn streams_and_usage_are_asked_for_as_the_options_say() {
    for (stream, include_usage, options) in [
        (true, true, json!({"include_usage": true})),
        (true, false, Value::Null),
        (false, true, Value::Null),
        (false, false, Value::Null),
    ] {
        let sampling = Sampling { stream, include_usage, ..Sampling::default() };
        let body = parsed(Api::Chat, &text("hi"), &sampling);
        assert_eq!(body["stream_options"], options);
        assert_eq!(body["stream"].as_bool().unwrap_or(false), stream);
    }
}

#[test]
fn the_limit_of_tokens_has_one_name_in_a_body() {
    let limits = |sample: &Sample, sampling: &Sampling| {
        let body = object(parsed(Api::Chat, sample, sampling));
        let is_limit = |(name, _): &(String, Value)| LIMIT_NAMES.contains(&name.as_str());
        body.into_iter().filter(is_limit).collect::<Vec<_>>()
    };
    let legacy = Sampling { legacy_max_tokens: true, ..all() };
    let named = |name: &str| Sample { overrides: object(json!({ name: 5 })), ..text("hi") };
    let limit = |name: &str, tokens: u32| vec![(name.to_owned(), json!(tokens))];
    assert_eq!(limits(&text("hi"), &all()), limit("max_completion_tokens", 64));
    assert_eq!(limits(&text("hi"), &legacy), limit("max_tokens", 64));
    for name in LIMIT_NAMES {
        assert_eq!(limits(&named(name), &all()), limit("max_completion_tokens", 5), "{name}");
        assert_eq!(limits(&named(name), &legacy), limit("max_tokens", 5), "{name}");
    }
    let extra = with_extra(json!({"max_tokens": 9}));
    assert_eq!(limits(&text("hi"), &extra), limit("max_tokens", 9));
    assert_eq!(limits(&named("max_new_tokens"), &extra), limit("max_tokens", 5));
    let counted = Sample { output_tokens: Some(33), ..text("hi") };
    assert_eq!(limits(&counted, &all()), limit("max_completion_tokens", 33));
    let both = Sample { output_tokens: Some(33), ..named("max_tokens") };
    assert_eq!(limits(&both, &all()), limit("max_completion_tokens", 5), "what it says goes");
}

#[test]
fn extra_members_go_over_options_and_those_of_a_row_over_both() {
    let sampling = with_extra(json!({
        "temperature": 0.1, "top_p": null, "stop": null, "guided": {"a": null},
        "stream_options": {"continuous_usage_stats": true}, "n": null,
    }));
    let body = parsed(Api::Chat, &text("hi"), &sampling);
    assert_eq!(body["temperature"], 0.1);
    assert!(body.get("top_p").is_none() && body.get("stop").is_none(), "null takes out");
    assert_eq!(body["guided"], json!({"a": null}), "what is new stays as it is");
    assert_eq!(body.get("n"), Some(&Value::Null));
    assert_eq!(
        body["stream_options"],
        json!({"continuous_usage_stats": true, "include_usage": true}),
        "objects are merged"
    );
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    let row = Sample {
        overrides: object(json!({"temperature": 1, "tools": tools, "seed": null})),
        ..text("hi")
    };
    let body = parsed(Api::Chat, &row, &sampling);
    assert_eq!((&body["temperature"], &body["tools"]), (&json!(1), &tools));
    assert!(body.get("seed").is_none());
    assert_eq!(parsed(Api::Chat, &text("hi"), &sampling)["seed"], 7, "for that row alone");
}

#[test]
fn a_row_of_sglang_says_what_others_say_and_it_goes_where_it_belongs() {
    let sampling = with_extra(json!({"sampling_params": {"top_p": 0.2}, "return_logprob": true}));
    let row = Sample {
        output_tokens: Some(10),
        overrides: object(json!({"temperature": 0.0, "seed": 3, "rid": "x", "min_tokens": 2})),
        ..text("hi")
    };
    assert_eq!(
        parsed(Api::Generate, &row, &sampling),
        json!({
            "text": "hi", "stream": true, "return_logprob": true, "rid": "x", "sampling_params": {
                "max_new_tokens": 10, "min_new_tokens": 2, "ignore_eos": true, "temperature": 0.0,
                "top_p": 0.2, "top_k": -1, "sampling_seed": 3, "stop": ["\n\n", "END"],
            },
        })
    );
}

#[test]
fn a_row_can_switch_its_stream_off() {
    let row = Sample { overrides: object(json!({"stream": false})), ..text("hi") };
    let sampling = all();
    let writer = BodyWriter::new(Api::Chat, &sampling);
    let mut out = Vec::new();
    assert_eq!(writer.write(&row, &mut out), Ok(Body { is_stream: false }));
    let body: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(body["stream"], false);
    assert!(body.get("stream_options").is_none(), "servers refuse it without a stream");
    assert_eq!(writer.write(&text("hi"), &mut out), Ok(Body { is_stream: true }));
    let embeddings = BodyWriter::new(Api::Embeddings, &sampling);
    assert_eq!(embeddings.write(&text("hi"), &mut out), Ok(Body { is_stream: false }));
}

#[test]
fn messages_tools_and_parts_pass_through_untouched() {
    let messages = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "1", "extra": [1.50, 1e3, null]},
    ]);
    let Value::Array(list) = messages.clone() else { unreachable!("it is an array") };
    let sample = Sample { system: Some("unused".into()), ..asked(Prompt::Messages(list)) };
    let sampling = Sampling { system: Some("unused".into()), ..all() };
    assert_eq!(parsed(Api::Chat, &sample, &sampling)["messages"], messages);
    let given = Sample { overrides: object(json!({ "messages": messages })), ..Sample::default() };
    assert_eq!(parsed(Api::Chat, &given, &sampling)["messages"], messages, "as a member too");
}

#[test]
fn the_system_prompt_of_a_row_goes_before_that_of_the_run() {
    let run = Sampling { system: Some("run".into()), ..Sampling::default() };
    let system = |sample: &Sample| parsed(Api::Chat, sample, &run)["messages"][0].clone();
    assert_eq!(system(&text("hi")), json!({"role": "system", "content": "run"}));
    let own = Sample { system: Some("row".into()), ..text("hi") };
    assert_eq!(system(&own), json!({"role": "system", "content": "row"}));
    let error = body(Api::Completions, &own, &Sampling::default()).expect_err("no chat");
    assert_eq!(error, "has a system prompt, which --api openai-completions cannot take");
}

#[test]
fn a_prompt_that_the_kind_cannot_take_is_refused() {
    let tokens = || Prompt::Tokens(vec![1]);
    let texts = || Prompt::Texts(vec!["a".into()]);
    let messages = || Prompt::Messages(vec![json!({"role": "user", "content": "a"})]);
    for (api, prompt, says) in [
        (Api::Chat, tokens(), "has token ids, and --api openai takes a text or messages"),
        (Api::Chat, texts(), "has several texts"),
        (Api::Chat, Prompt::None, "has no prompt"),
        (Api::Completions, messages(), "has messages, and --api openai-completions takes a text"),
        (Api::Completions, texts(), "has several texts"),
        (Api::Generate, Prompt::Body(vec![]), "has a whole body"),
        (Api::Embeddings, messages(), "several texts or token ids"),
        (Api::Raw, messages(), "has messages, and --api raw takes a body or a text"),
    ] {
        let error = body(api, &asked(prompt), &all()).expect_err(says);
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn options_that_do_not_fit_the_kind_are_refused() {
    let extra = with_extra(json!({"messages": []}));
    assert!(extra.check(Api::Chat).expect_err("a prompt").contains("`messages`"));
    assert_eq!(extra.check(Api::Completions), Ok(()));
    let system = Sampling { system: Some("s".into()), ..Sampling::default() };
    assert_eq!(system.check(Api::Chat), Ok(()));
    assert!(system.check(Api::Generate).expect_err("no chat").contains("--api sglang"));
    assert_eq!(all().check(Api::Raw), Ok(()));
}
