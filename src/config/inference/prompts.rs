//! Where prompts come from: the rows of a dataset, made up, or one body.

use std::path::{Path, PathBuf};

use loadgen_shards::schedule::mix64;

use crate::api::Api;
use crate::cli::{InferenceFlags, LoadFlags};
use crate::config::value::{self, optional, parse, positive_count, refuse_sweep};
use crate::dataset::{FORMAT_FORM, Format, Length, ReadOptions};
use crate::error::Error;
use crate::request::url::Url;

use super::has_placeholders;

/// Where prompts come from.
#[derive(Clone, Debug)]
pub enum Prompts {
    /// Rows of a file.
    Dataset {
        /// File or folder.
        path: PathBuf,
        /// How it is read.
        options: ReadOptions,
    },
    /// Made up.
    Synthetic(Synthetic),
    /// One body, that of `-b` or `--body-file`.
    Body,
}

/// Prompts that are made up.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Tokens of a prompt.
    pub isl: Length,
    /// Tokens asked for; `None`: those of `--max-output-tokens`, or no limit.
    pub osl: Option<Length>,
    /// How many; `None`: one for each request, as far as that is known.
    pub count: Option<usize>,
    /// The user's, which holds for each run, phase and point.
    pub seed: Option<u64>,
    /// Drawn once for each invocation, by [`crate::load`]; used without one of the user's.
    pub drawn_seed: u64,
    /// Which run of its command this is, from 0.
    pub point: u64,
}

/// The part of a run that prompts are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The one request before the load.
    Preflight,
    /// Untracked.
    Warmup,
    /// Measured.
    Performance,
}

impl Synthetic {
    /// Seed of the prompts: the user's, the same for all runs and phases, else one of this
    /// invocation, point and part, as a prompt that is sent again measures a cache.
    pub fn seed_of(&self, part: Part) -> u64 {
        let place = match part {
            Part::Performance => 0,
            Part::Warmup => 1,
            Part::Preflight => 2,
        };
        match (self.seed, part) {
            // Not one of the prompts of the load, which would be sent again there.
            (Some(seed), Part::Preflight) => mix64(seed.wrapping_add(place)),
            (Some(seed), Part::Warmup | Part::Performance) => seed,
            // 53 bits: a number that every reader of JSON keeps exactly.
            (None, _) => mix64(mix64(self.drawn_seed).wrapping_add(3 * self.point + place)) >> 11,
        }
    }
}

/// Where the prompts come from: a dataset, a body, or nowhere, so that they are made up.
pub(super) fn prompts(load: &LoadFlags, urls: &[Url], api: Api) -> Result<Prompts, Error> {
    let flags = &load.inference;
    let has_body = load.body.is_some() || load.body_file.is_some();
    let of_synthetic = [
        ("--isl", flags.isl.is_some()),
        ("--prompts", flags.prompts.is_some()),
        ("--prompt-seed", flags.prompt_seed.is_some()),
    ];
    let of_dataset =
        [("--column", !flags.column.is_empty()), ("--skip-bad-rows", flags.skip_bad_rows)];
    let first = |list: &[(&'static str, bool)]| list.iter().find(|(_, is)| *is).map(|(f, _)| *f);
    if let Some(text) = &flags.dataset {
        if has_body && api != Api::Template {
            return Err(Error::usage(
                "--dataset and a body (-b, --body-file) exclude each other, unless the body is a \
                 template: --api template",
            ));
        }
        if let Some(flag) = first(&of_synthetic) {
            return Err(Error::usage(format!(
                "{flag} is of synthetic prompts; with --dataset the rows are the prompts"
            )));
        }
        let has_columns = has_placeholders(load, urls);
        if api == Api::Template && !has_columns && load.body_file.is_none() {
            return Err(Error::usage(format!("--api template needs {TEMPLATE_FORM}")));
        }
        let (path, options) = dataset(text, flags)?;
        let needs_no_prompt = api == Api::Template;
        let keeps_columns = needs_no_prompt || has_columns;
        let options = ReadOptions { keeps_columns, needs_no_prompt, ..options };
        return Ok(Prompts::Dataset { path, options });
    }
    if let Some(flag) = first(&of_dataset) {
        return Err(Error::usage(format!("{flag} needs --dataset, the file that it is about")));
    }
    match (api, has_body) {
        (Api::Template, _) if first(&of_synthetic).is_none() => Err(Error::usage(format!(
            "--api template needs --dataset and {TEMPLATE_FORM}, or --isl and {{{{prompt}}}} there"
        ))),
        (Api::Template, _) => synthetic(flags, api).map(Prompts::Synthetic),
        (_, true) => match first(&of_synthetic) {
            Some(flag) => Err(Error::usage(format!(
                "{flag} is of synthetic prompts; the body of -b or --body-file is sent as it is"
            ))),
            None => Ok(Prompts::Body),
        },
        (_, false) => synthetic(flags, api).map(Prompts::Synthetic),
    }
}

fn synthetic(flags: &InferenceFlags, api: Api) -> Result<Synthetic, Error> {
    let length = |flag, text: &Option<String>| {
        optional(text, |text| {
            refuse_sweep(flag, text)?;
            Length::parse(flag, text)
        })
    };
    let osl = length("--osl", &flags.osl)?;
    let has_osl = osl.is_some() || flags.max_output_tokens.is_some();
    let form = format!("a number of prompts from 1 to {PROMPTS_MAX}");
    Ok(Synthetic {
        isl: length("--isl", &flags.isl)?.unwrap_or(Length::Fixed(ISL)),
        osl: osl.or((!has_osl && api.generates()).then_some(Length::Fixed(OSL))),
        count: optional(&flags.prompts, |text| {
            parse("--prompts", text, &form, |text| {
                let count = usize::try_from(positive_count(text)?).ok()?;
                (count <= PROMPTS_MAX).then_some(count)
            })
        })?,
        seed: optional(&flags.prompt_seed, |text| value::seed("--prompt-seed", text))?,
        drawn_seed: 0,
        point: 0,
    })
}

/// `--osl` beside prompts that are not made up: the limit of every row that has none of its own.
pub(super) fn limit_of_rows(
    flags: &InferenceFlags,
    prompts: &Prompts,
) -> Result<Option<u32>, Error> {
    let Some(text) = &flags.osl else { return Ok(None) };
    let wrong = |allowed| Err(Error::value("--osl", text, allowed));
    match (prompts, Length::parse("--osl", text)?) {
        (Prompts::Synthetic(_), _) => Ok(None),
        (Prompts::Dataset { .. }, Length::Fixed(count)) => Ok(Some(count)),
        (Prompts::Dataset { .. }, _) => wrong("one number beside --dataset, whose rows may differ"),
        (Prompts::Body, _) => wrong("no limit beside a body, which says itself what it asks for"),
    }
}

/// `[perf:]PATH[,KEY=VALUE]...`: the options stand behind the last commas, so that a path may have
/// some of its own.
fn dataset(text: &str, flags: &InferenceFlags) -> Result<(PathBuf, ReadOptions), Error> {
    let text = match text.split_once(':') {
        Some(("perf" | "performance", path)) => path,
        Some(("acc" | "accuracy", _)) => {
            return Err(Error::value(
                "--dataset",
                text,
                "PATH or perf:PATH, as accuracy runs are not in this version",
            ));
        }
        _ => text,
    };
    let mut path = text;
    let mut pairs = Vec::new();
    while let Some((before, pair)) = path.rsplit_once(',')
        && let Some((key, value)) = pair.split_once('=')
        && !key.is_empty()
        && !pair.contains('/')
    {
        pairs.push((key, value));
        path = before;
    }
    if path.is_empty() {
        return Err(Error::value("--dataset", text, DATASET_FORM));
    }
    let mut options = ReadOptions { skips_bad_rows: flags.skip_bad_rows, ..ReadOptions::default() };
    for (key, value) in pairs.into_iter().rev() {
        match key {
            "format" => options.format = Some(format(value)?),
            "limit" | "samples" => {
                let limit = positive_count(value).and_then(|count| usize::try_from(count).ok());
                options.limit = Some(limit.ok_or_else(|| {
                    Error::value("--dataset ...,limit=", value, "a number of rows, at least 1")
                })?);
            }
            _ => {
                let role = key.strip_prefix("parser.").unwrap_or(key);
                options.columns.push((role.to_owned(), value.to_owned()));
            }
        }
    }
    for text in &flags.column {
        let pair = text.split_once('=').filter(|(role, name)| !role.is_empty() && !name.is_empty());
        let (role, column) =
            pair.ok_or_else(|| Error::value("--column", text, "ROLE=COLUMN, as in prompt=text"))?;
        options.columns.push((role.to_owned(), column.to_owned()));
    }
    Ok((path.into(), options))
}

fn format(name: &str) -> Result<Format, Error> {
    parse("--dataset ...,format=", name, FORMAT_FORM, Format::parse)
}

/// A length, as it is typed.
pub fn length_text(length: Length) -> String {
    match length {
        Length::Fixed(count) => count.to_string(),
        Length::Uniform { min, max } => format!("uniform:{min}-{max}"),
        Length::Normal { mean, std_dev } => format!("{mean}~{std_dev}"),
        Length::LogNormal { mean, std_dev } => format!("lognormal:{mean}~{std_dev}"),
    }
}

/// A format, as it is typed.
pub fn format_name(format: Format) -> &'static str {
    match format {
        Format::JsonLines => "jsonl",
        Format::Json => "json",
        Format::Csv => "csv",
        Format::Tsv => "tsv",
        Format::Text => "text",
        Format::Folder => "folder",
        Format::Parquet => "parquet",
        Format::ShareGpt => "sharegpt",
    }
}

/// A dataset, as it is typed.
pub fn dataset_text(path: &Path, options: &ReadOptions) -> String {
    let mut text = path.to_string_lossy().into_owned();
    let mut option = |key: &str, value: &str| text.push_str(&format!(",{key}={value}"));
    if let Some(format) = options.format {
        option("format", format_name(format));
    }
    if let Some(limit) = options.limit {
        option("limit", &limit.to_string());
    }
    for (role, column) in &options.columns {
        option(role, column);
    }
    text
}

/// Tokens of a synthetic prompt.
const ISL: u32 = 550;
/// Tokens of its answer.
const OSL: u32 = 128;
/// Synthetic prompts of a run at most; ten times this would be gigabytes.
const PROMPTS_MAX: usize = 1_000_000;
const TEMPLATE_FORM: &str = "a {{column}} in the body (-b, --body-file), the URL or a header, as \
                             in -b '{\"q\": \"{{question}}\"}'";
const DATASET_FORM: &str =
    "[perf:]PATH[,KEY=VALUE]..., as in questions.jsonl,prompt=question,limit=500";
