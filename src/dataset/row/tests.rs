//! What columns are taken for.

use serde_json::json;

use super::*;

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other}"),
    }
}

fn mapped(columns: &[(&str, &str)]) -> ReadOptions {
    let owned = |(role, column): &(&str, &str)| (role.to_string(), column.to_string());
    ReadOptions { columns: columns.iter().map(owned).collect(), ..ReadOptions::default() }
}

fn sample(row: Value) -> Result<Sample, String> {
    Columns::new(&ReadOptions::default()).unwrap().sample(object(row))
}

fn text(text: &str) -> Prompt {
    Prompt::Text(text.to_owned())
}

#[test]
fn a_prompt_is_found_by_its_well_known_names() {
    for name in PROMPT {
        assert_eq!(sample(json!({"id": 1, *name: "q"})).unwrap().prompt, text("q"), "{name}");
    }
    let both = json!({"text": "b", "prompt": "a", "answer": "c"});
    assert_eq!(sample(both).unwrap().prompt, text("a"));
    let empty_first = json!({"prompt": "", "text": "b", "question": null});
    assert_eq!(sample(empty_first).unwrap().prompt, text("b"));
}

#[test]
fn the_shape_of_a_prompt_says_what_it_is() {
    let message = json!({"role": "user", "content": "q"});
    let parts = json!([{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {}}]);
    let cases = [
        (json!({"prompt": [1, 2, 3]}), Prompt::Tokens(vec![1, 2, 3])),
        (json!({"prompt_token_ids": [7]}), Prompt::Tokens(vec![7])),
        (json!({"input": ["a", "b"]}), Prompt::Texts(vec!["a".into(), "b".into()])),
        (json!({"texts": ["a"]}), Prompt::Texts(vec!["a".into()])),
        (json!({"prompt": [message]}), Prompt::Messages(vec![message.clone()])),
        (json!({"prompt": "no", "messages": [message]}), Prompt::Messages(vec![message.clone()])),
        (
            json!({"prompt": parts}),
            Prompt::Messages(vec![json!({"role": "user", "content": parts})]),
        ),
    ];
    for (row, prompt) in cases {
        assert_eq!(sample(row.clone()).unwrap().prompt, prompt, "{row}");
    }
}

#[test]
fn messages_and_tools_pass_through_untouched() {
    let text = r#"{"messages":[{"z":1,"role":"system","content":[{"type":"text","text":"é\n"}],
        "a":{"y":0.1,"x":12345678901234567890,"w":0.30000000000000004}}],
        "tools":[{"type":"function","function":{"name":"f","parameters":{"b":{},"a":{}}}}]}"#;
    let text: String = text.lines().map(str::trim).collect();
    let sample = sample(serde_json::from_str(&text).unwrap()).unwrap();
    let Prompt::Messages(messages) = &sample.prompt else { panic!("{:?}", sample.prompt) };
    let messages = serde_json::to_string(messages).unwrap();
    let tools = serde_json::to_string(&sample.overrides).unwrap();
    assert_eq!(format!("{{\"messages\":{messages},{}", &tools[1..]), text);
}

#[test]
fn a_row_may_have_lengths_a_system_prompt_and_members_of_the_request() {
    let row = json!({"prompt": "q", "system_prompt": "s", "max_tokens": 32.0, "temperature": 0.5,
        "top_p": null, "stop": ["\n"], "model": "other", "stream": true, "id": 4});
    let sample = sample(row).unwrap();
    assert_eq!(sample.system.as_deref(), Some("s"));
    assert_eq!(sample.output_tokens, Some(32));
    assert_eq!(sample.overrides, object(json!({"temperature": 0.5, "stop": ["\n"]})));
    assert_eq!(sample.columns, Map::new());
}

#[test]
fn column_names_a_role_before_anything_is_guessed() {
    let options = mapped(&[
        ("prompt", "never"),
        ("prompt", "ask"),
        ("model", "lora"),
        ("temperature", "heat"),
    ]);
    let mut columns = Columns::new(&options).unwrap();
    let row = json!({"prompt": "x", "messages": [1], "ask": "q", "lora": "a", "heat": 1});
    let sample = columns.sample(object(row)).unwrap();
    assert_eq!(sample.prompt, text("q"));
    assert_eq!(sample.overrides, object(json!({"model": "a", "temperature": 1})));
    assert_eq!(columns.never_met(), None);
    assert_eq!(
        columns.taken_as(),
        "prompt from `ask`, model from `lora`, temperature from `heat`, not used: prompt, messages"
    );
    let error = columns.sample(object(json!({"prompt": "x", "id": 1}))).unwrap_err();
    assert_eq!(error, "has no `ask`, which is to be its prompt; its columns are prompt, id");
}

#[test]
fn a_column_that_no_row_has_and_a_role_that_there_is_not_are_named() {
    let options = mapped(&[("system", "sys")]);
    let mut columns = Columns::new(&options).unwrap();
    columns.sample(object(json!({"prompt": "x", "id": 1}))).unwrap();
    let never = columns.never_met().unwrap();
    assert_eq!(never, "--column system=sys: no row has it; its columns are prompt, id");
    let options = mapped(&[("promt", "text")]);
    let Err(error) = Columns::new(&options) else { panic!("it was taken") };
    let error = error.to_string();
    assert!(error.starts_with("--column got `promt=text`; allowed: ROLE=COLUMN with"), "{error}");
}

#[test]
fn a_conversation_of_sharegpt_gives_its_first_human_turn_and_the_answer() {
    let row = json!({"id": "a", "conversations": [
        {"from": "system", "value": "be brief"}, {"from": "gpt", "value": "hi"},
        {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"},
        {"from": "human", "value": "r"}]});
    let got = sample(row).unwrap();
    assert_eq!(got.prompt, text("q"));
    assert_eq!((got.system.as_deref(), got.answer.as_deref()), (Some("be brief"), Some("a")));
    let chat = json!({"conversation_id": "a", "turn": 1, "conversation": [
        {"role": "user", "content": "q"}]});
    let got = sample(chat).unwrap();
    assert_eq!((got.prompt, got.answer), (text("q"), None));
    for row in [json!({"conversations": []}), json!({"conversations": [{"from": "gpt"}]})] {
        let error = sample(row).unwrap_err();
        assert_eq!(error, "`conversations` has no turn of a human with a text");
    }
}

#[test]
fn a_line_of_a_batch_is_its_body_but_for_what_the_run_decides() {
    let row = json!({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body":
        {"model": "m", "messages": [{"role": "user", "content": "q"}], "max_tokens": 9,
        "stream": true, "anything": {"a": 1}}});
    let got = sample(row).unwrap();
    assert_eq!(got.prompt, Prompt::Messages(vec![json!({"role": "user", "content": "q"})]));
    assert_eq!(got.output_tokens, Some(9));
    assert_eq!(got.overrides, object(json!({"anything": {"a": 1}})));
    let error = sample(json!({"custom_id": "1", "body": {"a": 1}})).unwrap_err();
    assert_eq!(error, "`body` has neither messages, prompt nor input");
}

#[test]
fn a_row_of_aiperf_may_have_a_length_extras_a_role_and_images() {
    let row = json!({"text": "q", "output_length": 32, "extra": {"temperature": 0, "model": "m"},
        "session_id": "a", "timestamp": 120});
    let got = sample(row).unwrap();
    assert_eq!((got.prompt, got.output_tokens), (text("q"), Some(32)));
    assert_eq!(got.overrides, object(json!({"temperature": 0, "model": "m"})));
    let image = "data:image/png;base64,AA==";
    let got = sample(json!({"text": "q", "image": image})).unwrap();
    let parts = json!([{"type": "text", "text": "q"},
        {"type": "image_url", "image_url": {"url": image}}]);
    let message = json!({"role": "user", "content": parts});
    assert_eq!(got.prompt, Prompt::Messages(vec![message]));
    let got = sample(json!({"text": "q", "role": "system"})).unwrap();
    assert_eq!(got.prompt, Prompt::Messages(vec![json!({"role": "system", "content": "q"})]));
}

#[test]
fn alpaca_joins_an_instruction_and_its_input() {
    let row = json!({"instruction": "Translate.", "input": "Guten Tag", "output": "x"});
    assert_eq!(sample(row).unwrap().prompt, text("Translate.\n\nGuten Tag"));
    let row = json!({"instruction": "Sing.", "input": "", "output": "x"});
    assert_eq!(sample(row).unwrap().prompt, text("Sing."));
}

#[test]
fn texts_of_a_table_may_hold_json() {
    let options = ReadOptions::default();
    let mut columns = Columns::new(&options).unwrap();
    columns.set_texts();
    let row = json!({"messages": "[{\"role\":\"user\",\"content\":\"q\"}]", "max_tokens": "12",
        "temperature": "0.5", "top_p": "", "n": "7"});
    let got = columns.sample(object(row)).unwrap();
    assert_eq!(got.prompt, Prompt::Messages(vec![json!({"role": "user", "content": "q"})]));
    assert_eq!(got.output_tokens, Some(12));
    assert_eq!(got.overrides, object(json!({"temperature": 0.5})));
    let got = columns.sample(object(json!({"prompt": "[1, 2]"}))).unwrap();
    assert_eq!(got.prompt, text("[1, 2]"));
}

#[test]
fn rows_that_keep_their_columns_need_no_prompt() {
    let options =
        ReadOptions { keeps_columns: true, needs_no_prompt: true, ..ReadOptions::default() };
    let mut columns = Columns::new(&options).unwrap();
    let row = object(json!({"user_id": 7, "name": null}));
    let got = columns.sample(row.clone()).unwrap();
    assert_eq!((got.prompt, got.columns), (Prompt::None, row));
    let row = object(json!({"prompt": "q", "user_id": 7}));
    let got = columns.sample(row.clone()).unwrap();
    assert_eq!((got.prompt, got.columns), (text("q"), row));
}

#[test]
fn what_is_wrong_with_a_row_is_said_with_its_value() {
    let cases = [
        (json!({"id": 1, "a b": 2}), "has no prompt: its columns are id, a b; say which"),
        (json!({}), "has no prompt: it has no column with a value; say"),
        (json!({"prompt": 5}), "`prompt` is 5; allowed: a text, or a list of texts, of token"),
        (json!({"prompt": []}), "`prompt` is empty"),
        (json!({"prompt": [1, "a"]}), "`prompt[1]` is \"a\"; allowed: the same as the first"),
        (json!({"prompt": [1, -1]}), "`prompt[1]` is -1; allowed"),
        (json!({"prompt": [{"a": 1}]}), "`prompt` has objects with neither `role` nor `type`"),
        (json!({"messages": "q"}), "`messages` is not of the form of messages"),
        (json!({"prompt": "q", "max_tokens": 0}), "`max_tokens` is 0; allowed: a whole number"),
        (json!({"prompt": "q", "max_tokens": 1.5}), "`max_tokens` is 1.5; allowed"),
        (json!({"prompt": "q", "system": [1]}), "`system` is a list; allowed: a text"),
        (json!({"text": "q", "image": "cat.png"}), "`image` is \"cat.png\"; allowed: a URL"),
        (json!({"session_id": "a", "turns": []}), "is part of a conversation of several turns"),
        (json!({"conversation_id": "a", "turn": 1, "role": "user"}), "is part of a conversation"),
    ];
    for (row, message) in cases {
        let error = sample(row.clone()).map(|_| ()).expect_err(&row.to_string());
        assert!(error.starts_with(message), "{row}: {error}");
    }
}
