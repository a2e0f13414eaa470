//! Texts with the columns of a row in them: `{{column}}`.
//!
//! ```text
//! template    = *( escape / placeholder / any other text )
//! escape      = "{{{{"                          ; the two characters {{
//! placeholder = "{{" blanks name blanks "}}"
//! name        = 1*( any character but "{" "}" )
//! ```
//!
//! Everything else stands for itself, `}}` too, so that JSON can be written as it is. Parsed once,
//! rendered for each row.

use std::borrow::Cow;

use serde_json::Value;

use super::url::is_unreserved;
use crate::dataset::{Prompt, Sample};

/// A parsed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Column {
        name: String,
        /// It stands between the quotes of a JSON string.
        is_quoted: bool,
    },
}

/// What a value has to look like where it is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// A JSON value, or part of a JSON string.
    Json,
    /// Part of a path, a query or a form: all but unreserved characters percent-encoded.
    Percent,
    /// Part of a header value: as it is, without control characters.
    Header,
    /// As it is.
    Plain,
}

impl Template {
    /// Parses a text. The error is a fragment that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut json = JsonString::default();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            json.walk(before);
            if let Some(after) = from.strip_prefix("{{{{") {
                literal.push_str("{{");
                rest = after;
                continue;
            }
            let inner = &from["{{".len()..];
            let name_end = inner.find(['{', '}']).unwrap_or(inner.len());
            let name = inner[..name_end].trim();
            let Some(after) = inner[name_end..].strip_prefix("}}").filter(|_| !name.is_empty())
            else {
                return Err(format!(
                    "has {{{{ at position {} without a column's name and }}}}; write {{{{{{{{ for \
                     the characters {{{{",
                    text.len() - from.len() + 1
                ));
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal).into_bytes()));
            }
            pieces.push(Piece::Column { name: name.to_owned(), is_quoted: json.is_inside });
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into_bytes()));
        }
        Ok(Template { pieces })
    }

    /// A text without columns, whatever it holds.
    pub fn literal(text: impl Into<Vec<u8>>) -> Template {
        Template { pieces: vec![Piece::Text(text.into())] }
    }

    /// Appends the text with the columns of a row in it. The error is a fragment that follows
    /// "row N".
    pub fn render(&self, sample: &Sample, escape: Escape, out: &mut Vec<u8>) -> Result<(), String> {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Column { name, is_quoted } => {
                    let value = column(sample, name)?;
                    put(name, &value, escape, *is_quoted, out)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a place of a text is inside a JSON string.
#[derive(Default)]
struct JsonString {
    is_inside: bool,
    is_escaped: bool,
}

impl JsonString {
    fn walk(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_inside => self.is_escaped = true,
                b'"' => self.is_inside = !self.is_inside,
                _ => {}
            }
        }
    }
}

/// A column of a row. `prompt` is what the row asks where no column has that name: prompts that are
/// made up have no columns.
fn column<'a>(sample: &'a Sample, name: &str) -> Result<Cow<'a, Value>, String> {
    match (sample.columns.get(name), &sample.prompt) {
        (Some(value), _) => Ok(Cow::Borrowed(value)),
        (None, Prompt::Text(text)) if name == PROMPT => Ok(Cow::Owned(text.as_str().into())),
        (None, Prompt::Tokens(tokens)) if name == PROMPT => Ok(Cow::Owned(tokens.clone().into())),
        _ => {
            let mut known: Vec<&str> = sample.columns.keys().map(String::as_str).collect();
            if known.is_empty() && matches!(sample.prompt, Prompt::Text(_) | Prompt::Tokens(_)) {
                known.push(PROMPT);
            }
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(format!("has no column `{name}`; its columns: {known}"))
        }
    }
}

fn put(
    name: &str,
    value: &Value,
    escape: Escape,
    is_quoted: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if escape == Escape::Json && !is_quoted {
        put_json(value, out);
        return Ok(());
    }
    let text = match value {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        other => Cow::Owned(other.to_string()),
    };
    match escape {
        Escape::Json => {
            let begin = out.len();
            put_json(&*text, out);
            out.remove(begin);
            out.pop();
        }
        Escape::Percent => {
            for byte in text.bytes() {
                if is_unreserved(byte) {
                    out.push(byte);
                } else {
                    out.extend_from_slice(format!("%{byte:02X}").as_bytes());
                }
            }
        }
        Escape::Header => {
            if let Some(control) = text.chars().find(|c| c.is_ascii_control() && *c != '\t') {
                return Err(format!(
                    "has {control:?} in the column `{name}`, which a header must not hold"
                ));
            }
            out.extend_from_slice(text.as_bytes());
        }
        Escape::Plain => out.extend_from_slice(text.as_bytes()),
    }
    Ok(())
}

fn put_json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("memory takes it, and every key is a string");
}

const PROMPT: &str = "prompt";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Sample {
        let Value::Object(columns) = json!({
            "id": 7, "name": "a \"b\"\\\n\u{1}é/", "tags": ["x", "y"], "none": null, "is": true,
            "path": "a/b?c=d&e f%", "odd name": "o", "cut": "a\r\nX: y", "price": 1.50,
        }) else {
            unreachable!("it is an object")
        };
        Sample { columns, ..Sample::default() }
    }

    fn rendered(text: &str, escape: Escape) -> Result<String, String> {
        let mut out = Vec::new();
        Template::parse(text)?.render(&sample(), escape, &mut out)?;
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn in_json_a_value_is_a_value_and_between_quotes_a_text() {
        for (text, expected) in [
            (r#"{"n":{{id}}}"#, r#"{"n":7}"#),
            (r#"{"n":"{{id}}"}"#, r#"{"n":"7"}"#),
            (r#"{"n":{{ name }}}"#, r#"{"n":"a \"b\"\\\n\u0001é/"}"#),
            (r#"{"n":"<{{name}}>"}"#, r#"{"n":"<a \"b\"\\\n\u0001é/>"}"#),
            (r#"{"t":{{tags}},"s":"{{tags}}"}"#, r#"{"t":["x","y"],"s":"[\"x\",\"y\"]"}"#),
            (r#"[{{none}},{{is}},{{price}}]"#, "[null,true,1.5]"),
            (r#"{"q\"":{{id}},"\\":"{{id}}"}"#, r#"{"q\"":7,"\\":"7"}"#),
            (r#"{"{{odd name}}":{"a":{"b":1}}}"#, r#"{"o":{"a":{"b":1}}}"#),
            (r#"{"lit":"{{{{id}}"}"#, r#"{"lit":"{{id}}"}"#),
            (r#"{"lit":"{{{{{{id}}}}"}"#, r#"{"lit":"{{7}}"}"#),
            ("{}", "{}"),
            ("", ""),
        ] {
            let got = rendered(text, Escape::Json).expect(text);
            assert_eq!(got, expected, "{text}");
            if !got.is_empty() {
                serde_json::from_str::<Value>(&got).expect("what was JSON stays JSON");
            }
        }
    }

    #[test]
    fn in_a_url_all_but_unreserved_characters_are_encoded() {
        let url = rendered("/u/{{path}}/{{id}}?q={{name}}", Escape::Percent).expect("valid");
        assert_eq!(url, "/u/a%2Fb%3Fc%3Dd%26e%20f%25/7?q=a%20%22b%22%5C%0A%01%C3%A9%2F");
    }

    #[test]
    fn a_header_takes_no_line_break_from_a_row() {
        assert_eq!(rendered("id={{id}}; {{odd name}}", Escape::Header), Ok("id=7; o".into()));
        let error = rendered("{{cut}}", Escape::Header).expect_err("a line break");
        assert!(error.contains("`cut`") && !error.contains('\n'), "{error}");
        assert_eq!(rendered("{{cut}}", Escape::Plain), Ok("a\r\nX: y".into()));
    }

    #[test]
    fn an_unknown_column_is_told_with_those_there_are() {
        let error = rendered("{{nmae}}", Escape::Json).expect_err("unknown");
        assert!(error.starts_with("has no column `nmae`; its columns: id, name, tags"), "{error}");
        let template = Template::parse("{{prompt}} {{x}}").expect("valid");
        let mut out = Vec::new();
        let made_up = Sample { prompt: Prompt::Text("p".into()), ..Sample::default() };
        let error = template.render(&made_up, Escape::Plain, &mut out).expect_err("unknown");
        assert_eq!(
            (error.as_str(), &out[..]),
            ("has no column `x`; its columns: prompt", &b"p "[..])
        );
        let error = template.render(&Sample::default(), Escape::Plain, &mut out);
        assert_eq!(error, Err("has no column `prompt`; its columns: none".into()));
    }

    #[test]
    fn what_is_no_placeholder_is_refused_with_how_to_write_it() {
        for (text, position) in [
            ("{{", 1),
            ("a{{x", 2),
            ("{{x}", 1),
            ("{{}}", 1),
            ("{{ }}", 1),
            ("{{a{b}}", 1),
            ("{{{a}}}", 1),
            ("{{a}} {{{{ {{", 12),
        ] {
            let error = Template::parse(text).expect_err(text);
            assert!(error.contains(&format!("position {position} ")), "{text}: {error}");
            assert!(error.contains("write {{{{ for the characters {{"), "{error}");
        }
    }

    #[test]
    fn a_literal_is_never_looked_into() {
        let mut out = Vec::new();
        let literal = Template::literal(*b"{{id}}\xff");
        literal.render(&sample(), Escape::Json, &mut out).expect("nothing to look up");
        assert_eq!(out, b"{{id}}\xff");
    }
}
