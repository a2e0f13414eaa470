//! From a row to a sample: which columns are what.
//!
//! What `--column` names comes first; what it does not name is told by well-known names. Errors
//! are fragments without the place, which [`super::Rows`] puts in front.

use serde_json::{Map, Value};

use super::{Prompt, ReadOptions, Sample};
use crate::error::{Error, shown};

/// What columns are taken for, row after row.
pub struct Columns<'a> {
    /// Role and column of `--column`; of a role, the last.
    typed: Vec<(&'static str, &'a str)>,
    keeps_columns: bool,
    needs_no_prompt: bool,
    /// Values are texts, which may hold JSON: CSV.
    is_text: bool,
    /// Role and column, as they were first met.
    taken: Vec<(&'static str, String)>,
    /// Columns of the first row.
    first: Vec<String>,
}

impl<'a> Columns<'a> {
    /// Checks the roles of `--column`.
    pub fn new(options: &'a ReadOptions) -> Result<Columns<'a>, Error> {
        let mut typed: Vec<(&'static str, &'a str)> = Vec::new();
        for (role, column) in &options.columns {
            let pair = || format!("{role}={column}");
            let role =
                known_role(role).ok_or_else(|| Error::value("--column", &pair(), &roles_form()))?;
            typed.retain(|(known, _)| *known != role);
            typed.push((role, column));
        }
        Ok(Columns {
            typed,
            keeps_columns: options.keeps_columns,
            needs_no_prompt: options.needs_no_prompt,
            is_text: false,
            taken: Vec::new(),
            first: Vec::new(),
        })
    }

    /// Values are texts from now on, which may hold JSON.
    pub fn set_texts(&mut self) {
        self.is_text = true;
    }

    /// One row.
    pub fn sample(&mut self, row: Map<String, Value>) -> Result<Sample, String> {
        if self.first.is_empty() {
            self.first = row.keys().cloned().collect();
        }
        let columns = if self.keeps_columns { row.clone() } else { Map::new() };
        let mut sample = match row {
            row if is_batch_line(&row) => self.of_batch(row)?,
            row => self.of_columns(row)?,
        };
        sample.columns = columns;
        Ok(sample)
    }

    /// A column that `--column` names and no row has.
    pub fn never_met(&self) -> Option<String> {
        let met = |column: &str| self.taken.iter().any(|(_, taken)| taken == column);
        let (role, column) = self.typed.iter().find(|(_, column)| !met(column))?;
        Some(format!("--column {role}={column}: no row has it; {}", columns_are(&self.first)))
    }

    /// One line: what was taken for what, and what was not used.
    pub fn taken_as(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for &(role, ref column) in &self.taken {
            match role == column {
                true => parts.push(format!("`{column}`")),
                false => parts.push(format!("{role} from `{column}`")),
            }
        }
        let is_unused = |column: &&String| self.taken.iter().all(|(_, taken)| taken != *column);
        let unused: Vec<&str> =
            self.first.iter().filter(is_unused).map(String::as_str).take(UNUSED_SHOWN).collect();
        if !unused.is_empty() && !self.keeps_columns {
            parts.push(format!("not used: {}", unused.join(", ")));
        }
        parts.join(", ")
    }

    fn of_columns(&mut self, mut row: Map<String, Value>) -> Result<Sample, String> {
        row.retain(|_, value| !is_absent(value));
        let mut sample = Sample::default();
        self.lengths_and_system(&mut row, &mut sample)?;
        let has_prompt = self.prompt(&mut row, &mut sample)?;
        if !has_prompt && !self.needs_no_prompt {
            return Err(self.no_prompt(&row));
        }
        self.overrides(row, &mut sample)?;
        Ok(sample)
    }

    /// A line of OpenAI's batch format: its `body` is the request, whole.
    fn of_batch(&mut self, mut row: Map<String, Value>) -> Result<Sample, String> {
        let Some(Value::Object(mut body)) = row.shift_remove("body") else {
            return Err("`body` is no object".to_owned());
        };
        self.note("request", "body");
        let mut sample = Sample::default();
        for name in OUTPUT_TOKENS {
            if let Some(value) = body.shift_remove(*name) {
                sample.output_tokens = Some(whole_number(name, &value)?);
            }
        }
        let column = ["messages", "prompt", "input", "text", "input_ids"]
            .into_iter()
            .find(|&name| body.contains_key(name));
        let Some(column) = column else {
            return Err("`body` has neither messages, prompt nor input".to_owned());
        };
        sample.prompt = prompt_of(column, body.shift_remove(column).unwrap_or_default())?;
        body.retain(|name, _| !OF_THE_RUN.contains(&name.as_str()));
        sample.overrides = body;
        Ok(sample)
    }

    fn lengths_and_system(
        &mut self,
        row: &mut Map<String, Value>,
        sample: &mut Sample,
    ) -> Result<(), String> {
        if let Some((column, value)) = self.take(row, "output_tokens", OUTPUT_TOKENS) {
            sample.output_tokens = Some(whole_number(&column, &value)?);
        }
        match self.take(row, "system", SYSTEM) {
            Some((_, Value::String(system))) => sample.system = Some(system),
            Some((column, other)) => return Err(wrong(&column, &other, "a text")),
            None => {}
        }
        Ok(())
    }

    /// Whether there was one.
    fn prompt(
        &mut self,
        row: &mut Map<String, Value>,
        sample: &mut Sample,
    ) -> Result<bool, String> {
        let is_mapped = |role: &str| self.typed.iter().any(|(typed, _)| *typed == role);
        // If a role of a prompt is mapped, no other is guessed.
        let mapped: Vec<&'static str> =
            PROMPT_ROLES.into_iter().filter(|role| is_mapped(role)).collect();
        let roles = if mapped.is_empty() { PROMPT_ROLES.to_vec() } else { mapped };
        for role in roles {
            let names = match role {
                "messages" => &["messages"][..],
                "conversations" => &["conversations", "conversation"],
                "tokens" => &["prompt_token_ids", "input_ids", "token_ids", "tokens"],
                "texts" => &["texts"],
                _ => PROMPT,
            };
            let Some((column, value)) = self.take(row, role, names) else { continue };
            let value = if role == "prompt" { value } else { self.parsed(value) };
            match role {
                "conversations" => share_gpt(&column, value, sample)?,
                _ => sample.prompt = prompt_of(&column, value)?,
            }
            if !is_of_role(role, &sample.prompt) {
                return Err(format!("`{column}` is not of the form of {role}"));
            }
            if column == "instruction" {
                self.join_input(row, sample);
            }
            self.as_message(row, sample)?;
            return Ok(true);
        }
        if row.contains_key("turns") || (row.contains_key("turn") && row.contains_key("role")) {
            return Err("is part of a conversation of several turns, not a prompt".to_owned());
        }
        Ok(false)
    }

    fn no_prompt(&self, row: &Map<String, Value>) -> String {
        let names: Vec<String> = row.keys().cloned().collect();
        let columns = columns_are(&names);
        match self.typed.iter().find(|(role, _)| PROMPT_ROLES.contains(role)) {
            Some((role, column)) => {
                format!("has no `{}`, which is to be its {role}; {columns}", shown(column))
            }
            None => {
                format!("has no prompt: {columns}; say which one it is: --column prompt=NAME")
            }
        }
    }

    /// Alpaca's rows have the text that an instruction is about in `input`.
    fn join_input(&mut self, row: &mut Map<String, Value>, sample: &mut Sample) {
        if let (Prompt::Text(text), Some(Value::String(input))) =
            (&mut sample.prompt, row.get_mut("input"))
        {
            text.push_str("\n\n");
            text.push_str(input);
            self.note("prompt", "input");
        }
    }

    /// AIPerf's rows may give a text a role, and images beside it.
    fn as_message(
        &mut self,
        row: &mut Map<String, Value>,
        sample: &mut Sample,
    ) -> Result<(), String> {
        let Prompt::Text(text) = &mut sample.prompt else { return Ok(()) };
        let images = match self.take(row, "images", &["images", "image"]) {
            Some((column, value)) => images(&column, self.parsed(value))?,
            None => Vec::new(),
        };
        let role = match row.get("role") {
            Some(Value::String(role)) if role != "user" => role.clone(),
            _ => "user".to_owned(),
        };
        if images.is_empty() && role == "user" {
            return Ok(());
        }
        let text = std::mem::take(text);
        let content = match images.is_empty() {
            true => Value::String(text),
            false => {
                let text = serde_json::json!({"type": "text", "text": text});
                Value::Array(std::iter::once(text).chain(images).collect())
            }
        };
        sample.prompt = Prompt::Messages(vec![message(&role, content)]);
        Ok(())
    }

    /// Members of the request body: those of `extra` whatever they are called, others if they are
    /// known to be of a request.
    fn overrides(&mut self, row: Map<String, Value>, sample: &mut Sample) -> Result<(), String> {
        for (column, value) in row {
            let typed = self.typed.iter().find(|(_, typed)| *typed == column);
            let role = typed.map_or(column.as_str(), |(role, _)| *role);
            if typed.is_none() && (self.is_text && AMBIGUOUS.contains(&role)) {
                continue;
            }
            if role == "extra" && (typed.is_some() || value.is_object()) {
                self.note("extra", &column);
                match self.parsed(value) {
                    Value::Object(members) => sample.overrides.extend(members),
                    other => return Err(wrong(&column, &other, "an object")),
                }
            } else if let Some(role) = OVERRIDES.iter().find(|name| **name == role) {
                self.note(role, &column);
                let value = self.parsed(value);
                sample.overrides.insert((*role).to_owned(), value);
            } else if role == "model" && typed.is_some() {
                self.note("model", &column);
                sample.overrides.insert("model".to_owned(), value);
            }
        }
        Ok(())
    }

    /// The column of a role: the one that `--column` names, or the first of these names. What is
    /// taken is no longer in the row.
    fn take(
        &mut self,
        row: &mut Map<String, Value>,
        role: &'static str,
        names: &[&str],
    ) -> Option<(String, Value)> {
        let column = match self.typed.iter().find(|(typed, _)| *typed == role) {
            Some((_, column)) => Some(*column),
            None => names.iter().copied().find(|name| {
                row.contains_key(*name) && !self.typed.iter().any(|(_, column)| column == name)
            }),
        }?;
        let value = row.shift_remove(column)?;
        self.note(role, column);
        Some((column.to_owned(), value))
    }

    /// A value of CSV that is JSON.
    fn parsed(&self, value: Value) -> Value {
        match value {
            Value::String(text) if self.is_text => {
                serde_json::from_str(&text).unwrap_or(Value::String(text))
            }
            value => value,
        }
    }

    fn note(&mut self, role: &'static str, column: &str) {
        if !self.taken.iter().any(|(_, taken)| taken == column) {
            self.taken.push((role, column.to_owned()));
        }
    }
}

fn is_batch_line(row: &Map<String, Value>) -> bool {
    let is_request = row.contains_key("custom_id") || row.contains_key("url");
    is_request && row.get("body").is_some_and(Value::is_object)
}

fn is_absent(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

/// A prompt by the shape of its value.
fn prompt_of(column: &str, value: Value) -> Result<Prompt, String> {
    let list = match value {
        Value::String(text) if text.is_empty() => return Err(format!("`{column}` is empty")),
        Value::String(text) => return Ok(Prompt::Text(text)),
        Value::Array(list) => list,
        other => return Err(wrong(column, &other, PROMPT_FORM)),
    };
    match list.first() {
        None => Err(format!("`{column}` is empty")),
        Some(Value::String(_)) => each(column, list, |value| match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        })
        .map(Prompt::Texts),
        Some(Value::Number(_)) => each(column, list, |value| {
            value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or(value)
        })
        .map(Prompt::Tokens),
        Some(Value::Object(first)) => {
            let is_message = first.contains_key("role");
            if !is_message && !first.contains_key("type") {
                return Err(format!("`{column}` has objects with neither `role` nor `type`"));
            }
            let list = each(column, list, |value| match value.is_object() {
                true => Ok(value),
                false => Err(value),
            })?;
            Ok(Prompt::Messages(match is_message {
                true => list,
                false => vec![message("user", Value::Array(list))],
            }))
        }
        Some(other) => Err(wrong(column, other, PROMPT_FORM)),
    }
}

fn is_of_role(role: &str, prompt: &Prompt) -> bool {
    match role {
        "messages" => matches!(prompt, Prompt::Messages(_)),
        "tokens" => matches!(prompt, Prompt::Tokens(_)),
        "texts" => matches!(prompt, Prompt::Texts(_)),
        _ => true,
    }
}

fn each<T>(
    column: &str,
    list: Vec<Value>,
    take: impl Fn(Value) -> Result<T, Value>,
) -> Result<Vec<T>, String> {
    let one = |(index, value)| {
        take(value).map_err(|value| {
            let name = format!("{column}[{index}]");
            wrong(&name, &value, "the same as the first of the list")
        })
    };
    list.into_iter().enumerate().map(one).collect()
}

fn message(role: &str, content: Value) -> Value {
    let members = [("role", Value::from(role)), ("content", content)];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The first turn of a human, what the system said before it, and the answer to it.
fn share_gpt(column: &str, value: Value, sample: &mut Sample) -> Result<(), String> {
    let Value::Array(turns) = value else { return Err(wrong(column, &value, "a list of turns")) };
    let mut turns = turns.into_iter().map(|mut turn| {
        let mut text = |names: [&str; 2]| {
            let member = names.iter().find_map(|name| turn.get_mut(*name).map(Value::take));
            match member {
                Some(Value::String(text)) => text,
                _ => String::new(),
            }
        };
        (text(["from", "role"]), text(["value", "content"]))
    });
    while let Some((from, text)) = turns.next() {
        match from.as_str() {
            "system" if !text.is_empty() => sample.system = Some(text),
            "human" | "user" if !text.is_empty() => {
                sample.prompt = Prompt::Text(text);
                let answer = turns.next().filter(|(from, _)| from != "human" && from != "user");
                sample.answer = answer.map(|(_, text)| text).filter(|text| !text.is_empty());
                return Ok(());
            }
            _ => {}
        }
    }
    Err(format!("`{column}` has no turn of a human with a text"))
}

/// Images as content parts.
fn images(column: &str, value: Value) -> Result<Vec<Value>, String> {
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    let part = |value: Value| match value.as_str() {
        Some(url) if ["data:", "http://", "https://"].iter().any(|s| url.starts_with(s)) => {
            Ok(serde_json::json!({"type": "image_url", "image_url": {"url": url}}))
        }
        _ => Err(wrong(column, &value, "a URL that begins with data:, http:// or https://")),
    };
    list.into_iter().map(part).collect()
}

fn whole_number(column: &str, value: &Value) -> Result<u32, String> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        // Parquet and pandas write whole numbers of a column with gaps as 32.0.
        Value::Number(number) => number.as_u64().or_else(|| {
            number.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|float| float as u64)
        }),
        _ => None,
    };
    let number = number.and_then(|number| u32::try_from(number).ok()).filter(|&n| n > 0);
    number.ok_or_else(|| wrong(column, value, "a whole number above 0"))
}

fn wrong(column: &str, value: &Value, allowed: &str) -> String {
    let kind = match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        simple => shown(&simple.to_string()),
    };
    format!("`{column}` is {kind}; allowed: {allowed}")
}

fn columns_are(names: &[String]) -> String {
    match names {
        [] => "it has no column with a value".to_owned(),
        names => format!("its columns are {}", shown_names(names)),
    }
}

fn shown_names(names: &[String]) -> String {
    let mut list: Vec<String> = names.iter().take(NAMES_SHOWN).map(|name| shown(name)).collect();
    if names.len() > NAMES_SHOWN {
        list.push(format!("and {} more", names.len() - NAMES_SHOWN));
    }
    list.join(", ")
}

/// A role as a static text.
fn known_role(name: &str) -> Option<&'static str> {
    let all = PROMPT_ROLES.iter().chain(OTHER_ROLES).chain(OVERRIDES);
    all.copied().find(|role| *role == name)
}

fn roles_form() -> String {
    let named: Vec<&str> = PROMPT_ROLES.iter().chain(OTHER_ROLES).copied().collect();
    format!("ROLE=COLUMN with one of {}, or a member of the request such as temperature", {
        named.join(", ")
    })
}

/// Roles of which a row has one, in the order in which they are looked for.
const PROMPT_ROLES: [&str; 5] = ["messages", "conversations", "tokens", "texts", "prompt"];
const OTHER_ROLES: &[&str] = &["system", "output_tokens", "images", "extra", "model"];
const PROMPT_FORM: &str = "a text, or a list of texts, of token ids, of messages or of content \
     parts";

/// Names of the column of a prompt, the first that is there wins.
const PROMPT: &[&str] = &[
    "prompt",
    "user_prompt",
    "text",
    "text_input",
    "question",
    "input_text",
    "instruction",
    "input",
    "problem",
    "query",
    "content",
];
const SYSTEM: &[&str] = &["system", "system_prompt"];
/// Names for the most tokens of an answer; under which one it is sent, the run decides.
const OUTPUT_TOKENS: &[&str] = &[
    "output_tokens",
    "output_length",
    "max_output_tokens",
    "max_completion_tokens",
    "max_new_tokens",
    "max_tokens",
];
/// Members of a batch line that the run decides.
const OF_THE_RUN: [&str; 3] = ["model", "stream", "stream_options"];
/// Members of a request body that a row may have.
const OVERRIDES: &[&str] = &[
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "n",
    "stop",
    "stop_token_ids",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "min_tokens",
    "ignore_eos",
    "user",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "chat_template",
    "chat_template_kwargs",
    "priority",
    "dimensions",
    "encoding_format",
];
/// Those that are common names of columns in tables, where `--column` has to ask for them.
const AMBIGUOUS: [&str; 5] = ["n", "stop", "seed", "user", "priority"];
const NAMES_SHOWN: usize = 20;
const UNUSED_SHOWN: usize = 8;

#[cfg(test)]
mod tests;
