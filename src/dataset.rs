//! Datasets: what is asked, row by row. Readers for files, and prompts that are made up.
//!
//! A row becomes a [`Sample`]; what a request of it looks like on the wire is the business of
//! [`crate::api`]. Everything is read before the run.

mod folder;
mod json;
mod length;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod row;
mod rows;
mod source;
mod synthetic;
mod table;
mod targets;
mod words;

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Error;
use rows::Rows;
use source::Source;

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
    /// Role and column, as in `--column prompt=question`; the roles are in `docs/DATASETS.md`.
    pub columns: Vec<(String, String)>,
    /// Bad rows are counted and left out instead of ending the program.
    pub skips_bad_rows: bool,
    /// Rows to read at most.
    pub limit: Option<usize>,
    /// Rows keep all their columns: a text with `{{column}}` names them.
    pub keeps_columns: bool,
    /// Rows need no prompt: the body is a template.
    pub needs_no_prompt: bool,
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
    let mut rows = Rows::new(path, options)?;
    let name = |stem: Option<&OsStr>| stem.map_or_else(String::new, |n| n.to_string_lossy().into());
    if path.is_dir() {
        if options.format.is_some_and(|format| format != Format::Folder) {
            return Err(rows.fatal("is a folder, not a file"));
        }
        folder::read(path, &mut rows, progress)?;
        return rows.finish(name(path.file_name()), Some("each file a body"));
    }
    let source = Source::open(path, progress).map_err(|error| rows.fatal(error))?;
    let begin = source.begin();
    if let Some(reason) = source::foreign(&begin) {
        return Err(rows.fatal(reason));
    }
    match options.format.unwrap_or_else(|| source::told(path, &begin)) {
        Format::JsonLines => lines::json(source, &mut rows)?,
        Format::ShareGpt if begin.starts_with(b"{") => lines::json(source, &mut rows)?,
        Format::Json | Format::ShareGpt => json::read(source, &mut rows)?,
        Format::Csv => table::read(source, b',', &mut rows)?,
        Format::Tsv => table::read(source, b'\t', &mut rows)?,
        Format::Parquet => read_parquet(path, &mut rows)?,
        Format::Folder => return Err(rows.fatal("is a file, not a folder")),
        Format::Text => {
            lines::text(source, &mut rows)?;
            return rows.finish(name(path.file_stem()), Some("each line a prompt"));
        }
    }
    rows.finish(name(path.file_stem()), None)
}

#[cfg(feature = "parquet")]
use parquet::read as read_parquet;

#[cfg(not(feature = "parquet"))]
fn read_parquet(_: &Path, rows: &mut Rows<'_>) -> Result<(), Error> {
    Err(rows.fatal(
        "is Parquet, which this build does not read; build it with --features parquet, or write \
         JSON lines: python3 -c 'import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(\
         sys.argv[2], orient=\"records\", lines=True)' IN.parquet OUT.jsonl",
    ))
}

#[cfg(test)]
mod tests;
