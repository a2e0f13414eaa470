//! What servers of inference say to side requests.

use serde_json::Value;

use super::{Reply, Side, message_in};
use crate::api::{Api, Root};
use crate::request::url::Url;

/// How a whole answer to a prompt came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// As it should.
    Well {
        /// The server counted tokens.
        has_usage: bool,
    },
    /// With a failure inside: its message.
    Failed(String),
}

/// The models of a server; the error is a fragment.
pub fn models(side: &Side, url: &Url) -> Result<Vec<String>, String> {
    let Root { prefix, version } = Root::of(&url.path);
    let path = format!("{prefix}{version}/models");
    let reply = side.get(&path).map_err(|why| why.to_string())?;
    if !reply.is_success() {
        return Err(format!("{path} answers with status {}: {}", reply.status, reply.message()));
    }
    let value = reply.json().ok_or_else(|| format!("{path} is no JSON"))?;
    let list = value.get("data").or_else(|| value.get("models")).unwrap_or(&value);
    let list = list.as_array().ok_or_else(|| format!("{path} has no list of models"))?;
    let name = |entry: &Value| {
        let name = entry.get("id").or_else(|| entry.get("name")).unwrap_or(entry);
        name.as_str().map(str::to_owned)
    };
    Ok(list.iter().filter_map(name).collect())
}

/// How an answer of a good status came out.
pub fn answered(api: Api, reply: &Reply) -> Answered {
    if matches!(api, Api::Raw | Api::Template) {
        return Answered::Well { has_usage: false };
    }
    let documents: Vec<Value> = match reply.is_stream() {
        true => events(&reply.body).filter_map(|data| serde_json::from_str(&data).ok()).collect(),
        false => reply.json().into_iter().collect(),
    };
    if documents.is_empty() {
        let kind = if reply.is_stream() { "no event with JSON" } else { "no JSON" };
        return Answered::Failed(format!("the answer has {kind}: {}", reply.message()));
    }
    let error = documents.iter().find(|value| value.get("error").is_some_and(|e| !e.is_null()));
    if let Some(value) = error {
        let message = message_in(value).map_or_else(|| value.to_string(), str::to_owned);
        return Answered::Failed(message);
    }
    let counted = |value: &Value| {
        let usage = value.get("usage").or_else(|| value.get("meta_info"));
        usage.is_some_and(|usage| usage.get("prompt_tokens").is_some_and(Value::is_number))
    };
    Answered::Well { has_usage: documents.iter().any(counted) }
}

/// The data of each event of a stream but its mark of the end, by the grammar of the WHATWG: lines
/// end with CR, LF or both, a blank line ends an event, several `data` lines are one text.
pub fn events(body: &[u8]) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(body).replace("\r\n", "\n").replace('\r', "\n");
    let text = text.trim_start_matches('\u{feff}').to_owned();
    let events: Vec<String> = text
        .split("\n\n")
        .filter_map(|event| {
            let field = |line: &str| {
                let value = line.strip_prefix("data")?;
                let value = value.strip_prefix(':').or((value.is_empty()).then_some(""))?;
                Some(value.strip_prefix(' ').unwrap_or(value).to_owned())
            };
            let lines: Vec<String> = event.lines().filter_map(field).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        })
        .filter(|data| data != "[DONE]")
        .collect();
    events.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(kind: &str, body: &str) -> Reply {
        Reply {
            status: 200,
            headers: vec![("content-type".to_owned(), kind.to_owned())],
            body: body.as_bytes().to_vec(),
            ..Reply::default()
        }
    }

    #[test]
    fn events_are_read_by_their_grammar() {
        let data: Vec<String> =
            events(b"\xef\xbb\xbfdata: a\r\n\r\n: hello\n\ndata:b\ndata: c\n\nid: 1\n\ndata\n\n\
                     event: x\rdata:  d\r\rdata: [DONE]\n\n")
            .collect();
        assert_eq!(data, ["a", "b\nc", "", " d"]);
    }

    #[test]
    fn a_failure_inside_a_good_status_is_one() {
        let stream = "text/event-stream; charset=utf-8";
        let well = |has_usage| Answered::Well { has_usage };
        let failed = |text: &str| Answered::Failed(text.to_owned());
        for (kind, body, expected) in [
            ("application/json", "{\"choices\":[],\"usage\":{\"prompt_tokens\":3}}", well(true)),
            ("application/json", "{\"choices\":[]}", well(false)),
            ("application/json", "{\"error\":{\"message\":\"no such model\"}}", failed("no such model")),
            ("application/json", "{\"error\":null,\"choices\":[]}", well(false)),
            (stream, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", well(false)),
            (
                stream,
                "data: {\"choices\":[]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n",
                well(true),
            ),
            (stream, "data: {\"error\":\"out of memory\"}\n\n", failed("out of memory")),
            ("text/html", "<h1>Hi</h1>", failed("the answer has no JSON: <h1>Hi</h1>")),
        ] {
            assert_eq!(answered(Api::Chat, &reply(kind, body)), expected, "{body}");
        }
        assert_eq!(answered(Api::Raw, &reply("text/html", "x")), well(false));
    }
}
