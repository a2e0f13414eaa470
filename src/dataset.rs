//! Datasets: what is asked, row by row. Readers for files, and prompts that are made up.
//!
//! A row becomes a [`Sample`]; what a request of it looks like on the wire is the business of
//! [`crate::api`]. Everything is read before the run.


mod length;
mod synthetic;
mod targets;

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Error;

pub use length::Length;
pub use synthetic::{Synthetic, count_tokens, synthetic};
pub use targets::{TargetLine, read_targets};

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// What is asked.
    pub prompt: Prompt,
    /// A system prompt of this row, put in front of a text prompt.
    pub system: Option<String>,
    /// Members of the request body for this row alone, such as `temperature` or `tools`: they go
    /// over those of the run. Never the model, `stream` or a limit of the answer's length, unless
    /// `extra` or `--column` asks for it.
    pub overrides: Map<String, Value>,
    /// The columns of the row by name, for `{{column}}`; empty where nothing names one.
    pub columns: Map<String, Value>,
    /// Tokens of the prompt, if they were counted.
    pub prompt_tokens: Option<u32>,
    /// Tokens that this row asks for, if it says so.
    pub output_tokens: Option<u32>,
    /// The recorded answer of a row of ShareGPT: [`count_tokens`] makes `output_tokens` of it.
    pub answer: Option<String>,
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

/// All rows of a file, or prompts that were made up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataset {
    /// Name of the file without its extension, or `synthetic`.
    pub name: String,
    /// The rows, in the order of the file.
    pub samples: Vec<Sample>,
    /// Rows that were left out because they were bad.
    pub skipped: u64,
    /// What was wrong with the first of them.
    pub first_skipped: Option<String>,
    /// What the columns were taken for, one line.
    pub taken_as: String,
}

/// How a file is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Its format; `None` = told by its name and first bytes.
    pub format: Option<Format>,
    /// Role and column, as in `--column prompt=question`; what roles there are is in docs/DATASETS.md.
    pub columns: Vec<(String, String)>,
    /// Bad rows are counted and left out instead of ending the program.
    pub skips_bad_rows: bool,
    /// Rows to read at most.
    pub limit: Option<usize>,
    /// Rows keep all their columns, and need no prompt: templates name them.
    pub keeps_columns: bool,
}

/// How rows lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON object a line.
    JsonLines,
    /// A JSON array of objects, an object with such an array in `data`, or objects in a row.
    Json,
    /// Comma-separated values with a header.
    Csv,
    /// Tab-separated values with a header.
    Tsv,
    /// A prompt a line.
    Text,
    /// A folder of request bodies, one a file.
    Folder,
    /// Parquet, in builds with the feature of that name.
    Parquet,
    /// JSON with conversations in ShareGPT's form.
    ShareGpt,
}

/// What [`Format::parse`] takes, for error messages.
pub const FORMAT_FORM: &str = "jsonl, json, csv, tsv, text, folder, parquet, sharegpt";

impl Format {
    /// The format by its name.
    pub fn parse(name: &str) -> Option<Format> {
        Some(match name {
            "jsonl" | "ndjson" => Format::JsonLines,
            "json" => Format::Json,
            "csv" => Format::Csv,
            "tsv" => Format::Tsv,
            "text" | "txt" => Format::Text,
            "folder" => Format::Folder,
            "parquet" => Format::Parquet,
            "sharegpt" => Format::ShareGpt,
            _ => return None,
        })
    }
}

/// Reads a dataset. `progress` is called now and then with the bytes read and their total (0 where
/// it is not known).
pub fn read(
    path: &Path,
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset, Error> {
    let _ = (options, progress);
    Err(Error::usage(format!("{}: datasets are not read yet", path.display())))
}
