//! Request bytes, byte by byte.

use std::ffi::OsString;
use std::io;

use loadgen_shards::query::Address;
use serde_json::{Value, json};

use super::head::USER_AGENT;
use super::url::Secret;
use super::*;
use crate::cli::{self, Parsed};
use crate::dataset::Prompt;

fn config(line: &[&str]) -> Config {
    match cli::parse(line.iter().map(OsString::from)) {
        Ok(Parsed::Load(load)) => Config::from_cli(*load).expect("valid"),
        other => panic!("{line:?}: {other:?}"),
    }
}

/// Every name is 192.0.2.1 and 2001:db8::1, except those that begin with `missing`.
fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.starts_with("missing") {
        return Err(io::Error::other("Name or service not known"));
    }
    match host.parse() {
        Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
        Err(_) => Ok(["192.0.2.1", "2001:db8::1"]
            .map(|ip| SocketAddr::new(ip.parse().expect("an address"), port))
            .to_vec()),
    }
}

fn table(line: &[&str]) -> Result<RequestTable, Error> {
    table_with(&config(line), None, None, &AnswerPlan::PLAIN, &|_| {}, &resolve)
}

fn text(line: &[&str]) -> String {
    let table = table(line).expect("valid");
    String::from_utf8(table.arena[table.requests[0].range.clone()].to_vec()).expect("UTF-8")
}

fn agent() -> String {
    format!("User-Agent: {USER_AGENT}\r\nAccept: */*\r\n")
}

#[test]
fn plain_get_is_exactly_this() {
    let agent = agent();
    for (url, expected) in [
        ("http://h", format!("GET / HTTP/1.1\r\nHost: h\r\n{agent}\r\n")),
        ("http://h:81/a?b=%20#c", format!("GET /a?b=%20 HTTP/1.1\r\nHost: h:81\r\n{agent}\r\n")),
        ("http://[::1]:81/", format!("GET / HTTP/1.1\r\nHost: [::1]:81\r\n{agent}\r\n")),
    ] {
        assert_eq!(text(&[url]), expected);
    }
}

#[test]
fn a_body_makes_it_a_post_with_its_length_and_type() {
    let agent = agent();
    let head = |method, rest: &str| format!("{method} / HTTP/1.1\r\nHost: h\r\n{agent}{rest}");
    for (line, expected) in [
        (
            vec!["-b", "{}"],
            head("POST", "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"),
        ),
        (
            vec!["-b", "ä", "-T", "text/plain"],
            head("POST", "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nä"),
        ),
        (
            vec!["-b", "", "-m", "GET"],
            head("GET", "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n"),
        ),
        (vec!["-X", "PUT"], head("PUT", "Content-Length: 0\r\n\r\n")),
        (vec!["-X", "DELETE"], head("DELETE", "\r\n")),
        (
            vec!["-b", "x", "-H", "content-type: a/b"],
            head("POST", "Content-Length: 1\r\ncontent-type: a/b\r\n\r\nx"),
        ),
        (vec!["--disable-keepalive"], head("GET", "Connection: close\r\n\r\n")),
    ] {
        assert_eq!(text(&[&["http://h/"], &line[..]].concat()), expected, "{line:?}");
    }
}

#[test]
fn headers_of_the_user_replace_ours_in_any_case() {
    let got = text(&[
        "http://h/",
        "-H",
        "hOST: other",
        "-H",
        "user-agent:x ",
        "-H",
        "ACCEPT:",
        "-H",
        "X: a:b",
    ]);
    assert_eq!(got, "GET / HTTP/1.1\r\nhOST: other\r\nuser-agent: x\r\nACCEPT: \r\nX: a:b\r\n\r\n");
}

#[test]
fn authorization_header_wins_over_the_flag_and_the_flag_over_the_url() {
    let authorization = |line: &[&str]| {
        let head = text(line);
        let lines =
            head.lines().filter(|line| line.to_ascii_lowercase().starts_with("authorization"));
        lines.map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(authorization(&["http://u:p@h/"]), ["Authorization: Basic dTpw"]);
    assert_eq!(authorization(&["http://u:p@h/", "-a", "x:y"]), ["Authorization: Basic eDp5"]);
    let given = ["http://u:p@h/", "-a", "x:y", "-H", "authorization: Bearer t"];
    assert_eq!(authorization(&given), ["authorization: Bearer t"]);
    assert!(authorization(&["http://h/"]).is_empty());
}

#[test]
fn urls_share_a_target_when_they_connect_to_the_same_place() {
    let table = table(&["http://a/", "http://b/1", "http://a:81/", "http://A/2"]).expect("valid");
    assert_eq!(table.targets.len(), 2);
    let targets: Vec<u32> = table.requests.iter().map(|request| request.target).collect();
    assert_eq!(targets, [0, 0, 1, 0]);
    let mut end = 0;
    for request in table.requests.iter() {
        assert_eq!(request.range.start, end, "ranges follow each other");
        end = request.range.end;
    }
    assert_eq!(end, table.arena.len());
}

#[test]
fn transport_flags_change_the_address_and_nothing_of_the_request() {
    let address = |line: &[&str]| table(line).map(|table| table.targets[0].address.clone());
    let inet = |text: &str| Ok(Address::Inet(text.parse().expect("an address")));
    assert_eq!(address(&["http://h:8080/"]), inet("192.0.2.1:8080"));
    assert_eq!(address(&["http://[::1]/"]), inet("[::1]:80"));
    assert_eq!(address(&["http://h/", "--connect-to", "H:80:10.0.0.2:81"]), inet("10.0.0.2:81"));
    assert_eq!(address(&["http://h/", "--connect-to", "h:81:10.0.0.2:81"]), inet("192.0.2.1:80"));
    assert_eq!(address(&["http://h/", "--connect-to", ":::99"]), inet("192.0.2.1:99"));
    let first_wins = ["http://h/", "--connect-to", "::10.0.0.1:", "--connect-to", "::10.0.0.2:"];
    assert_eq!(address(&first_wins), inet("10.0.0.1:80"));
    assert_eq!(address(&["http://h/", "--source-ip", "::1"]), inet("[2001:db8::1]:80"));
    assert_eq!(
        address(&["http://missing/", "--unix-socket", "/s"]),
        Ok(Address::Unix("/s".into()))
    );
    let plain = text(&["http://h/"]);
    assert_eq!(text(&["http://h/", "--connect-to", ":::99"]), plain);
    assert_eq!(text(&["http://h/", "--unix-socket", "/s"]), plain);
}

#[test]
fn what_cannot_be_resolved_or_read_is_told_with_what_to_check() {
    for (line, code, says) in [
        (["http://missing.example/", "-c", "1"], 3, "cannot resolve the host `missing.example`"),
        (["http://missing.example/", "-c", "1"], 3, "/etc/resolv.conf"),
        (["http://10.0.0.2/", "--source-ip", "::1"], 3, "family of --source-ip ::1"),
        (
            ["http://h/", "--body-file", "/nonexistent/body"],
            2,
            "`/nonexistent/body`, which cannot be read",
        ),
        (["http://h/", "--body-file", "/"], 2, "cannot be read"),
    ] {
        let error = table(&line).expect_err(says);
        assert_eq!(error.exit_code(), code, "{line:?}");
        assert!(error.to_string().contains(says), "{line:?}: {error}");
    }
}

#[test]
fn nothing_that_the_user_types_can_break_the_framing() {
    for text in ["X: a\r\nY: b", "X: a\nb", "X: a\0", "X\r\nY: b", "X : a", ": a", "", "X: \x7f"] {
        let error = Header::parse(text).expect_err(text).to_string();
        assert!(error.contains("-H") && !error.contains('\n'), "{error}");
    }
    for text in ["Content-Length: 3", "transfer-encoding: chunked"] {
        assert!(Header::parse(text).expect_err(text).to_string().contains("leave it out"));
    }
    for method in ["", "GE T", "GET\r\n", "ä", "CONNECT", "post"] {
        let shape = RequestShape { method: Some(method.into()), ..RequestShape::default() };
        assert!(shape.check(false).is_err(), "{method:?}");
    }
    let shape = RequestShape { method: Some("M-SEARCH".into()), ..RequestShape::default() };
    assert_eq!(shape.check(false), Ok(()));
    assert_eq!(Header::parse("X:\ta b\t").map(|header| header.value), Ok("a b".to_string()));
}

#[test]
fn head_requests_are_marked() {
    assert!(table(&["http://h/", "-X", "HEAD"]).expect("valid").requests[0].is_head);
    assert!(!table(&["http://h/"]).expect("valid").requests[0].is_head);
}

#[test]
fn without_a_url_the_embedded_endpoint_is_the_target() {
    let address: SocketAddr = "127.0.0.1:4321".parse().expect("an address");
    let table = table_with(
        &config(&["max-throughput"]),
        Some(address),
        None,
        &AnswerPlan::PLAIN,
        &|_| {},
        &resolve,
    )
    .expect("valid");
    assert_eq!(table.targets[0].address, Address::Inet(address));
    assert!(String::from_utf8_lossy(&table.arena).contains("Host: 127.0.0.1:4321\r\n"));
}

#[test]
fn base64_is_that_of_rfc_4648() {
    for (plain, coded) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
        ("\u{ff}\u{fe}", "w7/Dvg=="),
    ] {
        assert_eq!(base64(plain.as_bytes()), coded);
    }
}

#[test]
fn secrets_are_not_in_debug_texts() {
    let config = config(&[
        "http://u:geheim@h/?token=geheim",
        "-a",
        "u:geheim",
        "-H",
        "X-Api-Key: geheim",
        "-H",
        "X: open",
    ]);
    let text = format!("{config:?}");
    assert!(text.contains("X: open"));
    // The query is part of the request line; only what is written for people masks it.
    assert_eq!(text.matches("geheim").count(), 1, "{text}");
    assert!(!config.urls[0].redacted().contains("geheim"));
}

fn columns(value: Value) -> Sample {
    let Value::Object(columns) = value else { panic!("{value} is no object") };
    Sample { columns, ..Sample::default() }
}

fn asked(text: &str) -> Sample {
    Sample { prompt: Prompt::Text(text.into()), ..Sample::default() }
}

fn table_of(config: &Config, api: Api, samples: &[Sample]) -> Result<RequestTable, Error> {
    let sampling = Sampling { model: Some("m".into()), stream: true, ..Sampling::default() };
    let rows = Rows { api, sampling: &sampling, samples };
    table_with(config, None, Some(&rows), &AnswerPlan::PLAIN, &|_| {}, &resolve)
}

fn texts(table: &RequestTable) -> Vec<String> {
    let bytes = table.requests.iter().map(|request| table.arena[request.range.clone()].to_vec());
    bytes.map(|bytes| String::from_utf8(bytes).expect("UTF-8")).collect()
}

#[test]
fn a_row_of_a_chat_is_exactly_this() {
    let mut config = config(&["http://h:81/v1"]);
    config.request.api_key = Some(Secret("sk-1".into()));
    let sample = Sample { prompt_tokens: Some(3), ..asked("é?") };
    let table = table_of(&config, Api::Chat, &[sample]).expect("valid");
    let body = r#"{"model":"m","messages":[{"role":"user","content":"é?"}],"stream":true}"#;
    let length = body.len();
    let expected = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h:81\r\nUser-Agent: {USER_AGENT}\r\n\
         Accept: text/event-stream\r\nAuthorization: Bearer sk-1\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    assert_eq!(texts(&table), [expected]);
    assert!(table.requests[0].is_stream);
    assert_eq!(table.requests[0].prompt_tokens, 3);
    assert!(!format!("{config:?}").contains("sk-1"));
}

#[test]
fn the_key_goes_before_the_password_and_a_header_before_both() {
    let authorization = |line: &[&str]| {
        let mut config = config(line);
        config.request.api_key = Some(Secret("k".into()));
        let table = table_of(&config, Api::Chat, &[asked("a")]).expect("valid");
        let text = texts(&table).remove(0);
        let fields = text.lines().filter(|line| line.to_lowercase().starts_with("authorization"));
        fields.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(authorization(&["http://u:p@h/", "-a", "x:y"]), ["Authorization: Bearer k"]);
    let given = ["http://h/", "-H", "authorization: Bearer mine"];
    assert_eq!(authorization(&given), ["authorization: Bearer mine"]);
    for key in ["", "a b", "a\r\nX: y", "ä"] {
        let api_key = Some(Secret(key.into()));
        let shape = RequestShape { api_key, ..RequestShape::default() };
        let error = shape.check(false).expect_err(key).to_string();
        assert!(error.contains("--api-key got `<redacted>`"), "{error}");
    }
}

#[test]
fn rows_keep_their_order_and_urls_take_turns() {
    let config = config(&["http://a/", "http://b/", "http://c/"]);
    let samples: Vec<Sample> = (0..540).map(|i| asked(&format!("row-{i}."))).collect();
    let table = table_of(&config, Api::Completions, &samples).expect("valid");
    assert_eq!((table.requests.len(), table.targets.len()), (540, 1), "they share an address");
    let hosts: Vec<String> = texts(&table)
        .iter()
        .enumerate()
        .map(|(i, text)| {
            assert!(
                text.ends_with(&format!(r#"{{"model":"m","prompt":"row-{i}.","stream":true}}"#))
            );
            text.lines().nth(1).expect("a Host field").to_owned()
        })
        .collect();
    assert_eq!(hosts[..6], ["a", "b", "c", "b", "c", "a"].map(|host| format!("Host: {host}")));
    for host in ["a", "b", "c"] {
        let own = |parity| {
            let own = hosts
                .iter()
                .enumerate()
                .filter(|(i, own)| i % 2 == parity && **own == format!("Host: {host}"));
            own.count()
        };
        assert_eq!((own(0), own(1)), (90, 90), "rows that alternate are dealt out evenly");
    }
    // Fewer rows than URLs: each URL is there once.
    let table = table_of(&config, Api::Completions, &samples[..2]).expect("valid");
    let ends: Vec<bool> = texts(&table).iter().map(|text| text.contains("row-0.")).collect();
    assert_eq!(ends, [true, false, true]);
}

#[test]
fn columns_stand_in_path_query_headers_and_body() {
    let line = [
        "http://h/u/{{id}}?q={{name}}",
        "-H",
        "X-Id: <{{id}}>",
        "-b",
        r#"{"name":"{{name}}","tags":{{tags}},"deep":{"id":{{id}}}}"#,
    ];
    let config = config(&line);
    assert!(has_placeholders(&config));
    let samples = [
        columns(json!({"id": 1, "name": "a b\"", "tags": [1, "x"]})),
        columns(json!({"id": "p/2", "name": "ä", "tags": null})),
    ];
    let table = table_of(&config, Api::Template, &samples).expect("valid");
    let texts = texts(&table);
    for (text, path, header, body) in [
        (&texts[0], "/u/1?q=a%20b%22", "<1>", r#"{"name":"a b\"","tags":[1,"x"],"deep":{"id":1}}"#),
        (
            &texts[1],
            "/u/p%2F2?q=%C3%A4",
            "<p/2>",
            r#"{"name":"ä","tags":null,"deep":{"id":"p/2"}}"#,
        ),
    ] {
        assert!(text.starts_with(&format!("POST {path} HTTP/1.1\r\nHost: h\r\n")), "{text}");
        assert!(text.contains(&format!("\r\nX-Id: {header}\r\n\r\n")), "{text}");
        assert!(text.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{text}");
        assert!(text.ends_with(&format!("\r\n\r\n{body}")), "{text}");
    }
}

#[test]
fn the_media_type_says_what_columns_look_like_in_a_body() {
    let samples = [columns(json!({"a": "x&\"y"}))];
    for (line, body) in [
        (vec!["-T", "application/x-www-form-urlencoded"], "v=x%26%22y"),
        (vec!["-T", "text/plain; charset=utf-8"], "v=x&\"y"),
        (vec!["-H", "content-type: application/problem+json"], "v=\"x&\\\"y\""),
        (vec![], "v=\"x&\\\"y\""),
    ] {
        let line = [vec!["http://h/", "-b", "v={{a}}"], line].concat();
        let table = table_of(&config(&line), Api::Template, &samples).expect("valid");
        assert!(texts(&table)[0].ends_with(&format!("\r\n\r\n{body}")), "{body}");
    }
}

#[test]
fn raw_rows_bring_their_bodies_or_take_that_of_the_run() {
    let samples = [
        Sample { prompt: Prompt::Body(b"{{own}}".to_vec()), ..Sample::default() },
        Sample::default(),
    ];
    let table = table_of(&config(&["http://h/", "-b", "{{run}}"]), Api::Raw, &samples);
    let texts = texts(&table.expect("valid"));
    assert!(texts[0].ends_with("\r\n\r\n{{own}}") && texts[1].ends_with("\r\n\r\n{{run}}"));
    let table = table_of(&config(&["http://h/"]), Api::Raw, &samples).expect("valid");
    let methods: Vec<bool> =
        self::texts(&table).iter().map(|text| text.starts_with("POST ")).collect();
    assert_eq!(methods, [true, false], "a row without a body is a GET");
}

#[test]
fn what_is_wrong_with_a_row_is_told_with_its_number() {
    let good = columns(json!({"a": "x"}));
    let bad = columns(json!({"b": "x\r\ny"}));
    let message = |line: &[&str], api, samples: &[Sample]| {
        let error = table_of(&config(line), api, samples).expect_err("wrong");
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    let rows = [good, bad];
    let unknown = "row 2 has no column `a`; its columns: b";
    assert_eq!(message(&["http://h/{{a}}"], Api::Template, &rows), unknown);
    assert_eq!(message(&["http://h/", "-b", "{{a}}"], Api::Template, &rows), unknown);
    let cut = message(&["http://h/", "-H", "X: {{b}}"], Api::Template, &rows[1..]);
    assert!(cut.starts_with("row 1 has '\\r' in the column `b`"), "{cut}");
    let chat = message(&["http://h/"], Api::Chat, &[asked("a"), Sample::default()]);
    assert!(chat.starts_with("row 2 has no prompt"), "{chat}");
    let body = message(&["http://h/", "-b", "x"], Api::Chat, &rows);
    assert!(body.contains("leave -b and --body-file out"), "{body}");
    let open = message(&["http://h/", "-b", "{{a"], Api::Template, &rows);
    assert!(open.starts_with("the body has {{ at position 1"), "{open}");
    let kind = message(&["http://h/v1/completions"], Api::Chat, &rows);
    assert!(kind.starts_with("URL `http://h/v1/completions` is an endpoint"), "{kind}");
    let error = table(&["http://h/{{a}}"]).expect_err("no rows").to_string();
    assert!(error.contains("add --dataset"), "{error}");
    let without = text(&["http://h/", "-H", "X: {{a}}", "-b", "{{a}}"]);
    assert!(without.contains("X: {{a}}\r\n") && without.ends_with("{{a}}"), "as typed");
}

#[test]
fn a_line_of_targets_is_its_own_request() {
    let line = |method: &str, url: &str, headers: &[(&str, &str)], body: &str| TargetLine {
        method: method.into(),
        url: url.into(),
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        body: body.into(),
    };
    let config = config(&["-H", "X: run", "-H", "Y: run", "-a", "u:p"]);
    let build = |lines: &[TargetLine]| {
        table_of_targets_with(&config, lines, &AnswerPlan::PLAIN, &|_| {}, &resolve)
    };
    let lines = [
        line("GET", "http://a/1?x", &[], ""),
        line("PUT", "http://b:81/2", &[("x", "own"), ("Host", "c"), ("X", "two")], "{{b}}"),
        line("HEAD", "http://a/3", &[], ""),
    ];
    let table = build(&lines).expect("valid");
    let agent = agent();
    let basic = "Authorization: Basic dTpw\r\n";
    assert_eq!(
        texts(&table),
        [
            format!("GET /1?x HTTP/1.1\r\nHost: a\r\n{agent}{basic}X: run\r\nY: run\r\n\r\n"),
            format!(
                "PUT /2 HTTP/1.1\r\n{agent}{basic}Content-Type: application/json\r\n\
                 Content-Length: 5\r\nx: own\r\nHost: c\r\nX: two\r\nY: run\r\n\r\n{{{{b}}}}"
            ),
            format!("HEAD /3 HTTP/1.1\r\nHost: a\r\n{agent}{basic}X: run\r\nY: run\r\n\r\n"),
        ]
    );
    let facts: Vec<(u32, bool)> =
        table.requests.iter().map(|request| (request.target, request.is_head)).collect();
    assert_eq!(facts, [(0, false), (1, false), (0, true)]);
    for (bad, says) in [
        (line("GET", "/x", &[], ""), "target 2: URL `/x` has no scheme"),
        (line("GE T", "http://h/", &[], ""), "target 2: "),
        (line("GET", "http://h/", &[("a b", "x")], ""), "target 2: `a b: ...`; allowed"),
        (line("GET", "http://h/", &[("A", "geheim\nx")], ""), "target 2: `A: ...` with '\\n'"),
        (line("GET", "http://h/{{x}}", &[], ""), "target 2: URL"),
    ] {
        let error = build(&[lines[0].clone(), bad]).expect_err(says).to_string();
        assert!(error.starts_with(says) && !error.contains("geheim"), "{error}");
    }
}
