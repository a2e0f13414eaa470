//! What one JSON text of an answer carries: a chunk of a stream, or an answer that is not streamed.
//!
//! The shapes are those that servers send, not those of one specification: a `null` is as if the
//! member were not there, members may come in any order, and a value of an unexpected type says
//! nothing. What must hold is that the text is JSON, to its last byte.

mod json;

use self::json::Json;
pub use self::json::{NotJson, Text};
use crate::answer::{AnswerFormat, FinishReason, PathStep, Usage};

/// What a JSON text carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Something that a reader sees, or an embedding.
    pub is_visible: bool,
    /// Something generated that a reader does not see: reasoning, a tool call, audio.
    pub is_hidden: bool,
    /// The only visible text of the only choice, if that is what is visible.
    pub content: Option<Text<'a>>,
    /// Why it ended, if this says so; of several choices a failure comes first.
    pub finish: FinishReason,
    /// Token counts.
    pub usage: Usage,
    /// Why it failed, in the words of the endpoint.
    pub error: Option<Text<'a>>,
}

/// What was generated, as text.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// Nothing is kept without it.
    pub is_kept: bool,
    /// What a reader sees, of the first choice.
    pub visible: String,
    /// Reasoning and tool calls, of the first choice.
    pub hidden: String,
}

impl Chunk<'_> {
    /// Whether it has something generated.
    pub fn is_generated(&self) -> bool {
        self.is_visible || self.is_hidden
    }
}

impl Texts {
    /// Lengths, to go [back](Texts::back_to) to.
    pub fn lengths(&self) -> (usize, usize) {
        (self.visible.len(), self.hidden.len())
    }

    /// Forgets what was added since.
    pub fn back_to(&mut self, (visible, hidden): (usize, usize)) {
        self.visible.truncate(visible);
        self.hidden.truncate(hidden);
    }
}

/// Reads a JSON text as `format` has it, and adds what was generated to `texts`. One that is not
/// JSON may have added something before that was found out.
#[inline]
pub fn read<'a>(
    format: &AnswerFormat,
    bytes: &'a [u8],
    texts: &mut Texts,
) -> Result<Chunk<'a>, NotJson> {
    let mut json = Json::new(bytes);
    let mut reader = Reader { format, chunk: Chunk::default(), texts };
    match format {
        AnswerFormat::Field(path) => reader.field(&mut json, path, true)?,
        // Some put their error, or all of the answer, into an array.
        _ if json.peek() == Some(b'[') => json.elements(|json, _| reader.top(json))?,
        _ => reader.top(&mut json)?,
    }
    json.end()?;
    Ok(reader.chunk)
}

struct Reader<'a, 't> {
    format: &'t AnswerFormat,
    chunk: Chunk<'a>,
    texts: &'t mut Texts,
}

type Done = Result<(), NotJson>;

impl<'a> Reader<'a, '_> {
    fn top(&mut self, json: &mut Json<'a>) -> Done {
        use AnswerFormat::{Chat, Completions, Embeddings, Generate};
        let (mut is_error, mut message) = (false, None);
        json.members_if_any(|json, name| match (self.format, name) {
            (Chat | Completions, b"choices") => json.elements_if_any(|json, _| self.choice(json)),
            (Chat | Completions | Embeddings, b"usage") => self.usage(json),
            (Embeddings, b"data") => json.elements_if_any(|json, _| self.embedding(json)),
            (Generate, b"text") => json.text().map(|text| self.visible(text)),
            (Generate, b"output_ids") => json.elements_if_any(|json, _| {
                self.chunk.is_hidden = true;
                json.skip()
            }),
            (Generate, b"meta_info") => self.meta_info(json),
            (_, b"error") => self.error(json),
            (_, b"object") => {
                is_error = json.text()?.is_some_and(|text| text.raw == b"error");
                Ok(())
            }
            (_, b"message") => json.text().map(|text| message = text),
            _ => json.skip(),
        })?;
        // Token ids say something only where they come without text.
        if matches!(self.format, Generate) && self.chunk.content.is_some() {
            self.chunk.is_hidden = false;
        }
        if is_error && self.chunk.error.is_none() {
            self.chunk.error = message.or(Some(Text { raw: b"error", is_plain: true }));
        }
        Ok(())
    }

    #[inline]
    fn choice(&mut self, json: &mut Json<'a>) -> Done {
        let (lengths, mut index) = (self.texts.lengths(), 0);
        json.members_if_any(|json, name| match (self.format, name) {
            (AnswerFormat::Chat, b"delta" | b"message") => self.delta(json),
            (AnswerFormat::Completions, b"text") => json.text().map(|text| self.visible(text)),
            (_, b"finish_reason") => json.text().map(|text| self.finish(text)),
            (_, b"index") => json.count().map(|count| index = count.unwrap_or(0)),
            (_, b"usage") => self.usage(json),
            (_, b"error") => self.error(json),
            _ => json.skip(),
        })?;
        if index != 0 {
            self.texts.back_to(lengths);
            self.chunk.content = None;
        }
        Ok(())
    }

    fn delta(&mut self, json: &mut Json<'a>) -> Done {
        let mut has_reasoning = false;
        json.members_if_any(|json, name| match name {
            b"content" if json.peek() == Some(b'[') => json.elements(|json, _| self.part(json)),
            b"content" | b"refusal" => json.text().map(|text| self.visible(text)),
            // Two names of one text: some servers send both.
            b"reasoning_content" | b"reasoning" => {
                if let Some(text) = json.text()?.filter(|text| !text.is_empty() && !has_reasoning) {
                    has_reasoning = true;
                    self.hidden(Some(text));
                }
                Ok(())
            }
            b"tool_calls" => json.elements_if_any(|json, _| self.tool_call(json)),
            b"function_call" => self.function(json),
            b"audio" => json.members_if_any(|json, name| match name {
                b"data" | b"transcript" => {
                    self.chunk.is_hidden |= json.text()?.is_some_and(|text| !text.is_empty());
                    Ok(())
                }
                _ => json.skip(),
            }),
            _ => json.skip(),
        })
    }

    /// Content in parts, with the reasoning as a part that has parts.
    fn part(&mut self, json: &mut Json<'a>) -> Done {
        json.members_if_any(|json, name| match name {
            b"text" | b"refusal" => json.text().map(|text| self.visible(text)),
            b"thinking" if json.peek() == Some(b'[') => json.elements(|json, _| {
                json.members_if_any(|json, name| match name {
                    b"text" => json.text().map(|text| self.hidden(text)),
                    _ => json.skip(),
                })
            }),
            b"thinking" => json.text().map(|text| self.hidden(text)),
            _ => json.skip(),
        })
    }

    fn tool_call(&mut self, json: &mut Json<'a>) -> Done {
        json.members_if_any(|json, name| match name {
            b"function" | b"custom" => self.function(json),
            _ => json.skip(),
        })
    }

    fn function(&mut self, json: &mut Json<'a>) -> Done {
        json.members_if_any(|json, name| match name {
            b"arguments" if json.peek() == Some(b'{') => {
                let raw = json.value()?;
                self.hidden(Some(Text { raw, is_plain: true }));
                Ok(())
            }
            b"name" | b"arguments" | b"input" => json.text().map(|text| self.hidden(text)),
            _ => json.skip(),
        })
    }

    /// SGLang's counts, and its reason with words where it failed.
    fn meta_info(&mut self, json: &mut Json<'a>) -> Done {
        json.members_if_any(|json, name| match name {
            b"finish_reason" if json.peek() == Some(b'{') => self.finish_object(json),
            b"finish_reason" => json.text().map(|text| self.finish(text)),
            _ => self.count(json, name),
        })
    }

    fn finish_object(&mut self, json: &mut Json<'a>) -> Done {
        let mut message = None;
        json.members(|json, name| match name {
            b"type" => json.text().map(|text| self.finish(text)),
            b"message" => json.text().map(|text| message = text),
            _ => json.skip(),
        })?;
        if self.chunk.finish.is_failure() && self.chunk.error.is_none() {
            self.chunk.error = message.filter(|text| !text.is_empty());
        }
        Ok(())
    }

    fn usage(&mut self, json: &mut Json<'a>) -> Done {
        json.members_if_any(|json, name| match name {
            b"prompt_tokens_details" | b"completion_tokens_details" => {
                json.members_if_any(|json, name| match name {
                    b"cached_tokens" | b"reasoning_tokens" => self.count(json, name),
                    _ => json.skip(),
                })
            }
            _ => self.count(json, name),
        })
    }

    fn count(&mut self, json: &mut Json<'a>, name: &[u8]) -> Done {
        let usage = &mut self.chunk.usage;
        let target = match name {
            b"prompt_tokens" => &mut usage.prompt,
            b"completion_tokens" => &mut usage.completion,
            b"cached_tokens" | b"prompt_cache_hit_tokens" => &mut usage.cached,
            b"reasoning_tokens" => &mut usage.reasoning,
            _ => return json.skip(),
        };
        *target = json.count()?.or(*target);
        Ok(())
    }

    fn embedding(&mut self, json: &mut Json<'a>) -> Done {
        json.members_if_any(|json, name| match name {
            b"embedding" if json.peek() == Some(b'[') => json.elements(|json, _| {
                self.chunk.is_visible = true;
                json.skip()
            }),
            // In base64.
            b"embedding" => {
                self.chunk.is_visible |= json.text()?.is_some_and(|text| !text.is_empty());
                Ok(())
            }
            _ => json.skip(),
        })
    }

    /// The text at `path`; an error where nothing else is asked for.
    fn field(&mut self, json: &mut Json<'a>, path: &[PathStep], is_top: bool) -> Done {
        match path.split_first() {
            Some((PathStep::Key(key), path)) => json.members_if_any(|json, name| match name {
                _ if name == key.as_bytes() => self.field(json, path, false),
                b"error" if is_top => self.error(json),
                _ => json.skip(),
            }),
            Some((PathStep::Index(at), path)) => json.elements_if_any(|json, index| {
                if index == *at { self.field(json, path, false) } else { json.skip() }
            }),
            None if json.peek() == Some(b'"') => json.text().map(|text| self.visible(text)),
            None => {
                let raw = json.value()?;
                let is_there = !matches!(raw, b"null" | b"{}" | b"[]");
                self.visible(is_there.then_some(Text { raw, is_plain: true }));
                Ok(())
            }
        }
    }

    /// An error in any shape: an object with a message, a string, anything that is not nothing.
    fn error(&mut self, json: &mut Json<'a>) -> Done {
        if json.peek() == Some(b'"') {
            let text = json.text()?.filter(|text| !text.is_empty());
            self.chunk.error = text.or(self.chunk.error);
            return Ok(());
        }
        let raw = json.value()?;
        if !matches!(raw.first(), Some(b'{' | b'[' | b't')) || matches!(raw, b"{}" | b"[]") {
            return Ok(());
        }
        let mut message = None;
        Json::new(raw).members_if_any(|json, name| match name {
            b"message" => json.text().map(|text| message = text),
            _ => json.skip(),
        })?;
        let message = message.filter(|text| !text.is_empty());
        self.chunk.error = message.or(Some(Text { raw, is_plain: true }));
        Ok(())
    }

    fn finish(&mut self, text: Option<Text<'a>>) {
        let said = text.map_or(FinishReason::None, |text| FinishReason::from_wire(text.raw));
        self.chunk.finish = self.chunk.finish.and(said);
    }

    #[inline]
    fn visible(&mut self, text: Option<Text<'a>>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        self.chunk.content = (!self.chunk.is_visible).then_some(text);
        self.chunk.is_visible = true;
        if self.texts.is_kept {
            text.push_to(&mut self.texts.visible);
        }
    }

    fn hidden(&mut self, text: Option<Text<'a>>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        self.chunk.is_hidden = true;
        if self.texts.is_kept {
            text.push_to(&mut self.texts.hidden);
        }
    }
}
