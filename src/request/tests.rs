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
    ).expect("valid");
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
