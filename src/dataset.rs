//! Datasets: what is asked, row by row. Readers for files, and prompts that are made up.
//!
//! A row becomes a [`Sample`]; what a request of it looks like on the wire is the business of
//! `crate::api`. Everything is read before the run.
#![expect(dead_code, reason = "the readers and the requests of inference runs come next")]

use serde_json::{Map, Value};

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// What is asked.
    pub prompt: Prompt,
    /// A system prompt of this row, put in front of a text prompt.
    pub system: Option<String>,
    /// Members of the request body for this row alone, such as `max_tokens`, `temperature` or
    /// `tools`: they go over those of the run.
    pub overrides: Map<String, Value>,
    /// The columns of the row by name, for `{{column}}`; empty where nothing names one.
    pub columns: Map<String, Value>,
    /// Tokens of the prompt, if they were counted.
    pub prompt_tokens: Option<u32>,
    /// Tokens that this row asks for, if it says so.
    pub output_tokens: Option<u32>,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Prompt {
    /// Nothing that we know of: templates and targets use the columns.
    #[default]
    None,
    /// A text.
    Text(String),
    /// The messages of a chat, passed on untouched.
    Messages(Vec<Value>),
    /// Token ids.
    Tokens(Vec<u32>),
    /// Several texts in one request: a batch of embeddings.
    Texts(Vec<String>),
    /// The body of the request, byte by byte.
    Body(Vec<u8>),
}
