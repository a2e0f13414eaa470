//! What servers of inference say to side requests.

use loadgen_shards::answer::{Answer, AnswerFacts, AnswerPlan};
use loadgen_shards::http1::Framing;
use serde_json::{Value, json};

use super::{Reply, Side};
use crate::api::Root;
use crate::request::url::Url;

/// An answer to a prompt, as a shard would have read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What is known of it; instants count from the send.
    pub facts: AnswerFacts,
    /// Why it is a failure, whatever its status.
    pub failure: Option<String>,
}

/// Reads the whole answer again, piece by piece as it came.
pub fn judged(plan: &AnswerPlan, wants_stream: bool, reply: &Reply) -> Judged {
    let mut answer = Answer::new(plan);
    answer.begin(wants_stream);
    if let Some(head) = &reply.head {
        answer.head(head);
    }
    let (mut begin, mut last_ns) = (0, 0);
    for piece in &reply.pieces {
        answer.body(&reply.body[begin..piece.end], piece.after_ns);
        (begin, last_ns) = (piece.end, piece.after_ns);
    }
    let is_eof = reply.head.is_some_and(|head| head.framing == Framing::UntilClose);
    let verdict = answer.end(last_ns, is_eof);
    let failure = verdict.err().map(|(kind, message)| match message.as_str() {
        "" => kind.name().to_owned(),
        text => format!("{}: {text}", kind.name()),
    });
    Judged { facts: *answer.facts(), failure }
}

/// Tokens of a text as the server counts them, if it does: vLLM and SGLang take a `prompt`,
/// llama.cpp `content`.
pub fn tokens(side: &Side, url: &Url, model: Option<&str>, text: &str) -> Option<u32> {
    let path = format!("{}/tokenize", Root::of(&url.path).prefix);
    let mut body = json!({"prompt": text, "content": text, "add_special_tokens": false});
    // SGLang refuses `null`.
    if let Some(model) = model {
        body["model"] = model.into();
    }
    let reply = side.post(&path, &body).ok().filter(Reply::is_success)?;
    let value = reply.json()?;
    let list = value.get("tokens")?.as_array()?;
    u32::try_from(list.len()).ok()
}

/// The models of a server; the error is a fragment.
pub fn models(side: &Side, url: &Url) -> Result<Vec<String>, String> {
    let Root { prefix, version } = Root::of(&url.path);
    let path = format!("{prefix}{version}/models");
    let reply = side.get(&path).map_err(|why| why.to_string())?;
    if !reply.is_success() {
        return Err(format!("{path} answers with status {}: {}", reply.status, reply.message()));
    }
    models_in(&reply).ok_or_else(|| format!("{path} has no list of models"))
}

/// The models of an answer of `/v1/models`, if it is one.
pub fn models_in(reply: &Reply) -> Option<Vec<String>> {
    let value = reply.json()?;
    let list = value.get("data").or_else(|| value.get("models")).unwrap_or(&value);
    let name = |entry: &Value| {
        let name = entry.get("id").or_else(|| entry.get("name")).unwrap_or(entry);
        name.as_str().map(str::to_owned)
    };
    Some(list.as_array()?.iter().filter_map(name).collect())
}
