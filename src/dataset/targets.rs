//! Targets in vegeta's formats: a request each.
//!
//! The http format: a line `METHOD URL`, then header lines, then possibly `@FILE` with the body; a
//! blank line, the body or the next method ends a target, and lines that begin with `#` are
//! remarks. The json format: objects with `method`, `url`, and possibly `header` (a list of values
//! for each name) and `body` (base64).

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::json::reason;
use super::lines::utf8;
use crate::error::{Error, shown};

/// One target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetLine {
    /// Method of the request.
    pub method: String,
    /// URL of the request.
    pub url: String,
    /// Header fields, in the order of the file.
    pub headers: Vec<(String, String)>,
    /// Body, may be empty.
    pub body: Vec<u8>,
}

/// Reads vegeta's http or json format, told by the first byte. Paths of bodies are relative to the
/// working directory, as vegeta has them.
pub fn read_targets(path: &Path) -> Result<Vec<TargetLine>, Error> {
    let name = shown(&path.to_string_lossy());
    let fail = |reason: String| Error::usage(format!("targets `{name}`: {reason}"));
    let bytes = fs::read(path).map_err(|error| fail(error.to_string()))?;
    let text = utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes)).map_err(fail)?;
    let body = |path: &str| fs::read(path).map_err(|error| error.to_string());
    let targets = match text.trim_start().starts_with('{') {
        true => json(text),
        false => http(text, body),
    };
    match targets.map_err(fail)? {
        targets if targets.is_empty() => Err(fail(format!("has no target; {HTTP_FORM}"))),
        targets => Ok(targets),
    }
}

/// The http format; `body` reads the file of a body.
fn http(
    text: &str,
    body: impl Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<Vec<TargetLine>, String> {
    let mut targets: Vec<TargetLine> = Vec::new();
    let mut is_open = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let fail = |reason: &str| format!("line {number} `{}` {reason}", shown(line));
        if line.starts_with('#') {
            continue;
        }
        if line.is_empty() {
            is_open = false;
        } else if let Some((method, url)) = request_line(line) {
            let (method, url) = (method.to_owned(), url.to_owned());
            targets.push(TargetLine { method, url, ..TargetLine::default() });
            is_open = true;
        } else if let (true, Some(target)) = (is_open, targets.last_mut()) {
            if let Some(path) = line.strip_prefix('@') {
                target.body = body(path)
                    .map_err(|error| fail(&format!("names a body that cannot be read: {error}")))?;
                is_open = false;
            } else {
                let header = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
                let (name, value) = header
                    .filter(|(name, value)| !name.is_empty() && !value.is_empty())
                    .ok_or_else(|| fail(&format!("is no header; {HTTP_FORM}")))?;
                target.headers.push((name.to_owned(), value.to_owned()));
            }
        } else {
            return Err(fail(&format!("is no request; {HTTP_FORM}")));
        }
    }
    Ok(targets)
}

/// `METHOD URL`: a word of capitals, white space, the rest.
fn request_line(line: &str) -> Option<(&str, &str)> {
    let (method, url) = line.split_once([' ', '\t'])?;
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let url = url.trim();
    (is_method && !url.contains([' ', '\t'])).then_some((method, url))
}

fn json(text: &str) -> Result<Vec<TargetLine>, String> {
    let objects = serde_json::Deserializer::from_str(text).into_iter::<JsonTarget>();
    let target = |(number, object): (u64, Result<JsonTarget, serde_json::Error>)| {
        let fail = |reason: String| format!("target {number} {reason}");
        object.map_err(|error| fail(reason(&error, true)))?.into_target().map_err(fail)
    };
    (1..).zip(objects).map(target).collect()
}

#[derive(Deserialize)]
struct JsonTarget {
    method: String,
    url: String,
    #[serde(default)]
    header: Option<Map<String, Value>>,
    #[serde(default)]
    body: Option<String>,
}

impl JsonTarget {
    fn into_target(self) -> Result<TargetLine, String> {
        if self.method.is_empty() || self.url.is_empty() {
            return Err("has an empty method or url".to_owned());
        }
        let mut headers = Vec::new();
        for (name, values) in self.header.unwrap_or_default() {
            let values = match values {
                Value::Array(values) => values,
                one => vec![one],
            };
            for value in values {
                let Value::String(value) = value else {
                    return Err(format!("has a header `{}` that is no text", shown(&name)));
                };
                headers.push((name.clone(), value));
            }
        }
        let body = STANDARD
            .decode(self.body.unwrap_or_default())
            .map_err(|error| format!("has a body that is not base64: {error}"))?;
        Ok(TargetLine { method: self.method, url: self.url, headers, body })
    }
}

const HTTP_FORM: &str = "a target is a line such as `GET http://127.0.0.1:8000/`, then lines such \
     as `Name: value`, then possibly `@FILE` with the body; between two of them, a blank line";

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str) -> Result<Vec<u8>, String> {
        match path {
            "body.json" => Ok(b"{\"a\":1}\n".to_vec()),
            _ => Err("no such file".to_owned()),
        }
    }

    fn target(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> TargetLine {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        TargetLine {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers.iter().map(owned).collect(),
            body: body.to_vec(),
        }
    }

    #[test]
    fn the_http_format_is_read_as_its_grammar_says() {
        let text = "# two without anything\nGET http://h:1/a?b=c\nHEAD http://h/\r\n\n\n\
                    POST  http://h/p\nX-Account:  99 \n# a remark\nhost: a:80\n@body.json\n\
                    PUT http://h/q\nA: 1\nA: 2\n\n  DELETE http://h/r  \n@body.json\n";
        let expected = [
            target("GET", "http://h:1/a?b=c", &[], b""),
            target("HEAD", "http://h/", &[], b""),
            target("POST", "http://h/p", &[("X-Account", "99"), ("host", "a:80")], b"{\"a\":1}\n"),
            target("PUT", "http://h/q", &[("A", "1"), ("A", "2")], b""),
            target("DELETE", "http://h/r", &[], b"{\"a\":1}\n"),
        ];
        assert_eq!(http(text, files).unwrap(), expected);
    }

    #[test]
    fn a_bad_line_is_named_with_its_number() {
        let cases = [
            ("X: 1\n", "line 1 `X: 1` is no request"),
            ("GET http://h/\n\nX: 1\n", "line 3 `X: 1` is no request"),
            ("GET http://h/\nnothing\n", "line 2 `nothing` is no header"),
            ("GET http://h/\nX:\n", "line 2 `X:` is no header"),
            ("get http://h/\n", "line 1 `get http://h/` is no request"),
            ("GET http://h/\n@x\n", "line 2 `@x` names a body that cannot be read: no such file"),
            ("GET http://h/\n@body.json\nX: 1\n", "line 3 `X: 1` is no request"),
        ];
        for (text, message) in cases {
            let error = http(text, files).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn the_json_format_has_lists_of_headers_and_a_body_in_base64() {
        let text = "{\"method\":\"POST\",\"url\":\"http://h/\",\"body\":\"eyJhIjoxfQ==\",\
                    \"header\":{\"A\":[\"1\",\"2\"],\"B\":[\"x\"]}}\n\
                    {\"method\":\"GET\",\"url\":\"http://h/b\"}\n";
        let expected = [
            target("POST", "http://h/", &[("A", "1"), ("A", "2"), ("B", "x")], b"{\"a\":1}"),
            target("GET", "http://h/b", &[], b""),
        ];
        assert_eq!(json(text).unwrap(), expected);
        let cases = [
            ("{\"method\":\"GET\"}", "target 1 is not JSON: missing field `url`"),
            (
                "{\"method\":\"GET\",\"url\":\"u\",\"body\":\"*\"}",
                "target 1 has a body that is not",
            ),
            ("{\"method\":\"\",\"url\":\"u\"}", "target 1 has an empty method"),
            (
                "{\"method\":\"GET\",\"url\":\"u\",\"header\":{\"A\":[1]}}",
                "target 1 has a header `A`",
            ),
            ("{\"method\":\"GET\",\"url\":\"u\"}\n{", "target 2 is not JSON: EOF"),
        ];
        for (text, message) in cases {
            let error = json(text).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn a_file_without_targets_or_that_is_missing_is_a_clear_error() {
        let path = std::env::temp_dir().join(format!("loadgen-targets-{}", std::process::id()));
        fs::write(&path, "\u{feff}# nothing\n").unwrap();
        let error = read_targets(&path).unwrap_err().to_string();
        assert!(error.contains("has no target; a target is a line such as"), "{error}");
        fs::write(&path, "\u{feff}GET http://h/\n").unwrap();
        assert_eq!(read_targets(&path).unwrap().len(), 1);
        fs::remove_file(&path).unwrap();
        let error = read_targets(&path).unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}
