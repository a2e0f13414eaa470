//! Request bodies.
//!
//! A body has three layers, the later over the earlier: the options of the run, `--extra-body`, and
//! what a row says for itself. Where a row says nothing, all but its prompt is the same for every
//! row and is written once.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Api, Sampling};
use crate::dataset::{Prompt, Sample};

/// What came of writing the body of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// The answer is asked for as a stream.
    pub is_stream: bool,
}

/// The body of one row. The error is a fragment that follows "row N".
pub fn body(api: Api, sample: &Sample, sampling: &Sampling) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    BodyWriter::new(api, sampling).write(sample, &mut bytes)?;
    Ok(bytes)
}

/// Writes the bodies of a run. Those of [`Api::Template`] are the user's, and not written here.
#[derive(Clone, Debug)]
pub struct BodyWriter<'a> {
    api: Api,
    sampling: &'a Sampling,
    /// Options of the run with `--extra-body` over them; no prompt.
    base: Map<String, Value>,
    /// The members of a row that says nothing for itself.
    shared: Members,
}

impl BodyWriter<'_> {
    /// Prepares what all rows have in common.
    pub fn new(api: Api, sampling: &Sampling) -> BodyWriter<'_> {
        let base = base(api, sampling);
        let shared = Members::new(api, sampling, base.clone());
        BodyWriter { api, sampling, base, shared }
    }

    /// Appends the body of a row. The error is a fragment that follows "row N".
    pub fn write(&self, sample: &Sample, out: &mut Vec<u8>) -> Result<Body, String> {
        match (self.api, &sample.prompt) {
            (Api::Raw, Prompt::Body(body)) => out.extend_from_slice(body),
            (Api::Raw, Prompt::Text(text)) => out.extend_from_slice(text.as_bytes()),
            (Api::Raw, Prompt::None) | (Api::Template, _) => {}
            (Api::Raw, _) => return Err(wrong_kind(self.api, &sample.prompt)),
            _ if sample.overrides.is_empty() && sample.output_tokens.is_none() => {
                self.shared.write(self.api, self.sampling, sample, out)?;
            }
            _ => {
                let members = Members::new(self.api, self.sampling, self.members_of(sample));
                members.write(self.api, self.sampling, sample, out)?;
                return Ok(Body { is_stream: members.is_stream });
            }
        }
        Ok(Body { is_stream: self.shared.is_stream })
    }

    /// The members of a row that says something for itself.
    fn members_of(&self, sample: &Sample) -> Map<String, Value> {
        let mut members = self.base.clone();
        if let Some(tokens) = sample.output_tokens
            && self.api.generates()
        {
            place(self.api, self.sampling, &mut members, "max_tokens", tokens.into());
        }
        for (name, value) in &sample.overrides {
            place(self.api, self.sampling, &mut members, name, value.clone());
        }
        members
    }
}

impl Sampling {
    /// The same for whole answers of one token, with which prompts are counted.
    pub fn of_one_token(&self) -> Sampling {
        let mut extra = self.extra.clone();
        // They would have the last word; and servers refuse `stream_options` without a stream.
        let of_length = ["min_tokens", "stream", "stream_options"];
        extra.retain(|name, _| {
            !LIMIT_NAMES.contains(&name.as_str()) && !of_length.contains(&name.as_str())
        });
        Sampling { stream: false, max_tokens: Some(1), min_tokens: None, extra, ..self.clone() }
    }

    /// Whether the options fit the kind of endpoint. The error is a whole message.
    pub fn check(&self, api: Api) -> Result<(), String> {
        if let Some(member) =
            prompt_members(api).iter().find(|name| self.extra.contains_key(**name))
        {
            return Err(format!(
                "--extra-body has the member `{member}`, which comes from the dataset; leave it out"
            ));
        }
        if self.system.is_some() && api != Api::Chat {
            return Err(format!(
                "a system prompt is part of a chat, which --api {} is not; put it into the prompts",
                api.name()
            ));
        }
        Ok(())
    }
}

/// All members of a body but the prompt, as they are written.
#[derive(Clone, Debug)]
struct Members {
    /// Up to the prompt: `{`, and the model, as people look for it first.
    before: Vec<u8>,
    /// From the prompt on.
    after: Vec<u8>,
    /// There is a prompt among the members.
    has_prompt: bool,
    is_stream: bool,
}

impl Members {
    fn new(api: Api, sampling: &Sampling, mut members: Map<String, Value>) -> Members {
        let is_stream = match api {
            Api::Chat | Api::Completions | Api::Generate => {
                members.get("stream") == Some(&Value::Bool(true))
            }
            Api::Embeddings => false,
            Api::Raw | Api::Template => sampling.stream,
        };
        // Servers refuse `stream_options` without `stream`, which a row may have switched off.
        if is_stream && sampling.include_usage && matches!(api, Api::Chat | Api::Completions) {
            let options = members.entry("stream_options").or_insert_with(|| json!({}));
            if let Value::Object(options) = options {
                options.entry("include_usage").or_insert(Value::Bool(true));
            }
        }
        let has_prompt = prompt_members(api).iter().any(|name| members.contains_key(*name));
        let mut before = b"{".to_vec();
        let mut after = Vec::new();
        for (name, value) in &members {
            let is_model = name == "model";
            let out = if is_model { &mut before } else { &mut after };
            if !is_model {
                out.push(b',');
            }
            put(out, name);
            out.push(b':');
            put(out, value);
            if is_model {
                out.push(b',');
            }
        }
        after.push(b'}');
        Members { before, after, has_prompt, is_stream }
    }

    fn write(
        &self,
        api: Api,
        sampling: &Sampling,
        sample: &Sample,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        out.extend_from_slice(&self.before);
        if self.has_prompt {
            // The row has it among its own members; they begin with a comma.
            out.extend_from_slice(&self.after[1..]);
        } else {
            put_prompt(api, sampling, sample, out)?;
            out.extend_from_slice(&self.after);
        }
        Ok(())
    }
}

/// The options of a run, with `--extra-body` over them.
fn base(api: Api, sampling: &Sampling) -> Map<String, Value> {
    let mut members = Map::new();
    if !api.generates() && api != Api::Embeddings {
        return members;
    }
    if let Some(model) = &sampling.model
        && api != Api::Generate
    {
        members.insert("model".into(), model.as_str().into());
    }
    if api.generates() {
        if sampling.stream {
            members.insert("stream".into(), true.into());
        }
        for (name, value) in parameters(sampling) {
            place(api, sampling, &mut members, name, value);
        }
    }
    for (name, value) in &sampling.extra {
        merge(&mut members, name, value.clone());
    }
    members
}

/// What is set of the options, by OpenAI's names.
fn parameters(sampling: &Sampling) -> Vec<(&'static str, Value)> {
    // Two limits in one body contradict each other.
    let extra_limits = LIMIT_NAMES.iter().any(|name| sampling.extra.contains_key(*name));
    let max_tokens = sampling.max_tokens.filter(|_| !extra_limits);
    let set = [
        ("max_tokens", max_tokens.map(Value::from)),
        ("min_tokens", sampling.min_tokens.map(Value::from)),
        ("ignore_eos", sampling.ignore_eos.then_some(Value::Bool(true))),
        ("temperature", sampling.temperature.map(Value::from)),
        ("top_p", sampling.top_p.map(Value::from)),
        ("top_k", sampling.top_k.map(Value::from)),
        ("seed", sampling.seed.map(Value::from)),
        ("stop", (!sampling.stop.is_empty()).then(|| json!(sampling.stop))),
    ];
    set.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect()
}

/// Puts a member where this kind of endpoint has it, under the name that it has there: the limit of
/// tokens has many names, and SGLang keeps the sampling in an object of its own.
fn place(
    api: Api,
    sampling: &Sampling,
    members: &mut Map<String, Value>,
    name: &str,
    value: Value,
) {
    let is_limit = LIMIT_NAMES.contains(&name);
    match api {
        Api::Chat | Api::Completions if is_limit => {
            let known = LIMIT_NAMES.iter().find(|name| members.contains_key(**name));
            let is_modern = api == Api::Chat && !sampling.legacy_max_tokens;
            let own = if is_modern { "max_completion_tokens" } else { "max_tokens" };
            merge(members, known.unwrap_or(&own), value);
        }
        Api::Generate => {
            let own = if is_limit { Some("max_new_tokens") } else { sglang_name(name) };
            match own {
                Some(own) => merge(members, "sampling_params", json!({ own: value })),
                None => merge(members, name, value),
            }
        }
        _ => merge(members, name, value),
    }
}

/// Objects are merged member by member, whatever else replaces what is there, and `null` takes it
/// out. What is new stays as it is, nulls included.
fn merge(members: &mut Map<String, Value>, name: &str, value: Value) {
    match (members.get_mut(name), value) {
        (Some(Value::Object(into)), Value::Object(from)) => {
            for (name, value) in from {
                merge(into, &name, value);
            }
        }
        (Some(_), Value::Null) => {
            members.shift_remove(name);
        }
        (Some(known), value) => *known = value,
        (None, value) => {
            members.insert(name.to_owned(), value);
        }
    }
}

/// The member with the prompt of a row.
fn put_prompt(
    api: Api,
    sampling: &Sampling,
    sample: &Sample,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if api != Api::Chat && sample.system.is_some() {
        return Err(format!("has a system prompt, which --api {} cannot take", api.name()));
    }
    match (api, &sample.prompt) {
        (Api::Chat, Prompt::Messages(messages)) => put_member(out, "messages", messages),
        (Api::Chat, Prompt::Text(text)) => {
            out.extend_from_slice(b"\"messages\":[");
            if let Some(system) = sample.system.as_ref().or(sampling.system.as_ref()) {
                out.extend_from_slice(b"{\"role\":\"system\",\"content\":");
                put(out, system);
                out.extend_from_slice(b"},");
            }
            out.extend_from_slice(b"{\"role\":\"user\",\"content\":");
            put(out, text);
            out.extend_from_slice(b"}]");
        }
        (Api::Completions, Prompt::Text(text)) => put_member(out, "prompt", text),
        (Api::Completions, Prompt::Tokens(tokens)) => put_member(out, "prompt", tokens),
        (Api::Generate, Prompt::Text(text)) => put_member(out, "text", text),
        (Api::Generate, Prompt::Tokens(tokens)) => put_member(out, "input_ids", tokens),
        (Api::Embeddings, Prompt::Text(text)) => put_member(out, "input", text),
        (Api::Embeddings, Prompt::Texts(texts)) => put_member(out, "input", texts),
        (Api::Embeddings, Prompt::Tokens(tokens)) => put_member(out, "input", tokens),
        (_, prompt) => return Err(wrong_kind(api, prompt)),
    }
    Ok(())
}

fn put_member(out: &mut Vec<u8>, name: &str, value: &impl Serialize) {
    put(out, name);
    out.push(b':');
    put(out, value);
}

/// Appends a value as JSON.
fn put(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("memory takes it, and every key is a string");
}

fn wrong_kind(api: Api, prompt: &Prompt) -> String {
    let kind = match prompt {
        Prompt::None => "no prompt",
        Prompt::Text(_) => "a text",
        Prompt::Messages(_) => "messages",
        Prompt::Tokens(_) => "token ids",
        Prompt::Texts(_) => "several texts",
        Prompt::Body(_) => "a whole body",
    };
    let takes = match api {
        Api::Chat => "a text or messages",
        Api::Completions | Api::Generate => "a text or token ids",
        Api::Embeddings => "a text, several texts or token ids",
        Api::Raw => "a body or a text",
        Api::Template => "columns",
    };
    let hint = match prompt {
        Prompt::Body(_) => "; --api raw sends it as it is",
        _ => "",
    };
    format!("has {kind}, and --api {} takes {takes}{hint}", api.name())
}

/// Where the prompt is.
const fn prompt_members(api: Api) -> &'static [&'static str] {
    match api {
        Api::Chat => &["messages"],
        Api::Completions => &["prompt"],
        Api::Generate => &["text", "input_ids"],
        Api::Embeddings => &["input"],
        Api::Raw | Api::Template => &[],
    }
}

/// The name within SGLang's `sampling_params` of what belongs there.
fn sglang_name(name: &str) -> Option<&'static str> {
    SGLANG_NAMES.iter().find(|(openai, _)| *openai == name).map(|(_, own)| *own)
}

/// Names of the limit of tokens, in rows of datasets and in bodies.
const LIMIT_NAMES: [&str; 4] =
    ["max_completion_tokens", "max_tokens", "max_new_tokens", "max_output_tokens"];

/// OpenAI's name, SGLang's name (docs.sglang.io, "Sampling Parameters").
const SGLANG_NAMES: [(&str, &str); 13] = [
    ("min_tokens", "min_new_tokens"),
    ("min_new_tokens", "min_new_tokens"),
    ("ignore_eos", "ignore_eos"),
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_k", "top_k"),
    ("min_p", "min_p"),
    ("seed", "sampling_seed"),
    ("stop", "stop"),
    ("frequency_penalty", "frequency_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("repetition_penalty", "repetition_penalty"),
    ("n", "n"),
];

#[cfg(test)]
mod tests;
