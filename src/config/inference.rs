//! The flags of an inference run, typed; and when a run is one.
//!
//! A run is an inference run when a flag says so (`--api`, `--model`, `--isl`, `--osl`, `--stream`,
//! `--dataset` and the like), when an expression names a figure of tokens, or when the URL ends in
//! `/v1` or in the path of an inference API. What was not typed gets its default here, and
//! [`Inference::defaults`] remembers which, for the header of the report.

use std::path::{Path, PathBuf};

use loadgen_shards::answer::PathStep;
use loadgen_shards::schedule::mix64;
use loadgen_shards::tls::TlsOptions;
use serde_json::{Map, Value};

use super::unit;
use super::value::{self, optional, parse, positive_count, refuse_sweep};
use crate::api::{Api, Sampling, parse_field};
use crate::cli::{InferenceFlags, LoadFlags, TlsFlags};
use crate::dataset::{FORMAT_FORM, Format, Length, ReadOptions};
use crate::error::{Error, shown};
use crate::request::url::{Secret, Url};

/// Trust and identity of https connections. The files are read by the plan.
pub fn tls(load: &LoadFlags, urls: &[Url]) -> Result<TlsOptions, Error> {
    let TlsFlags { cacert, cert, key, sni, insecure } = load.tls.clone();
    let given = [
        ("--cacert", cacert.is_some()),
        ("--cert", cert.is_some()),
        ("--key", key.is_some()),
        ("--sni", sni.is_some()),
        ("-k (--insecure)", insecure),
    ];
    // What targets need is seen when they are read.
    let is_used = urls.iter().any(|url| url.is_https) || load.inference.targets.is_some();
    if let (false, Some((flag, _))) = (is_used, given.iter().find(|(_, is_given)| *is_given)) {
        return Err(Error::usage(format!("{flag} needs a URL that begins with https://")));
    }
    if key.is_some() && cert.is_none() {
        return Err(Error::usage("--key needs --cert, the file of its certificate"));
    }
    if insecure && cacert.is_some() {
        return Err(Error::usage(
            "-k and --cacert exclude each other: -k takes any certificate, --cacert says which",
        ));
    }
    Ok(TlsOptions { cacert, cert, key, sni, is_insecure: insecure })
}

/// An inference run, typed.
#[derive(Clone, Debug)]
pub struct Inference {
    /// Kind of endpoint.
    pub api: Api,
    /// One request before the load.
    pub has_preflight: bool,
    /// Chunks that are not JSON are skipped.
    pub is_lenient: bool,
    /// Where the text of an answer is ...
    pub response_field: Option<Vec<PathStep>>,
    /// ... as typed.
    pub response_field_text: Option<String>,
    /// What each body asks for. A model of `None` is the only one of the server, filled in before
    /// the plan.
    pub sampling: Sampling,
    /// Where the prompts come from.
    pub prompts: Prompts,
    /// Who counts tokens.
    pub tokenizer: TokenizerChoice,
    /// What nobody asked for, by the names in
    /// [`InferenceFacts`](crate::snapshot::InferenceFacts).
    pub defaults: Vec<&'static str>,
}

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

/// `--tokenizer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// The server's, else that of the model in the local hub cache, else none.
    #[default]
    Auto,
    /// Nobody counts but the server.
    None,
    /// Built in: `cl100k` or `o200k`.
    Named(String),
    /// A `tokenizer.json`, or the directory with one.
    File(PathBuf),
}

impl TokenizerChoice {
    fn parse(text: &str) -> Result<TokenizerChoice, Error> {
        Ok(match text {
            "" => return Err(Error::value("--tokenizer", text, TOKENIZER_FORM)),
            "auto" => TokenizerChoice::Auto,
            "none" => TokenizerChoice::None,
            "cl100k" | "o200k" | "cl100k_base" | "o200k_base" => {
                TokenizerChoice::Named(text.trim_end_matches("_base").to_owned())
            }
            path => TokenizerChoice::File(path.into()),
        })
    }

    /// As typed.
    pub fn text(&self) -> String {
        match self {
            TokenizerChoice::Auto => "auto".to_owned(),
            TokenizerChoice::None => "none".to_owned(),
            TokenizerChoice::Named(name) => name.clone(),
            TokenizerChoice::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}

impl Inference {
    /// Types what was typed; `None`: the run is one of plain HTTP. `has_token_metric`: a goal names
    /// a figure of tokens.
    pub fn from_cli(
        load: &LoadFlags,
        urls: &[Url],
        has_token_metric: bool,
    ) -> Result<Option<Inference>, Error> {
        let flags = &load.inference;
        let Some((api, is_typed)) = api(load, urls, has_token_metric)? else { return Ok(None) };
        let prompts = prompts(load, urls, api)?;
        if let Some((flag, why)) = without_meaning(flags, api, &prompts) {
            return Err(Error::usage(format!("{flag} has no meaning with {why}; leave it out")));
        }
        if flags.stream && !can_stream(api) {
            return Err(Error::usage("--stream and --api openai-embeddings exclude each other"));
        }
        // A body of the user's says itself what it asks for.
        let is_stream = match &prompts {
            Prompts::Body => body(load).is_some_and(|text| asks_for_stream(&text)),
            Prompts::Dataset { .. } | Prompts::Synthetic(_) => can_stream(api) && !flags.no_stream,
        };
        let response_field = optional(&flags.response_field, |text| {
            parse_field(text).map_err(|why| {
                Error::usage(format!("--response-field got `{}`; {why}", shown(text)))
            })
        })?;
        let sampling = sampling(flags, is_stream)?;
        let is_body = matches!(prompts, Prompts::Body);
        let defaults = [
            (!is_typed, "api"),
            (flags.model.is_none() && !is_body, "model"),
            (is_stream && !flags.stream && api.generates() && !is_body, "is_streamed"),
            (is_synthetic(&prompts) && flags.isl.is_none() && flags.osl.is_none(), "dataset"),
            (flags.tokenizer.is_none(), "tokenizer"),
        ];
        Ok(Some(Inference {
            api,
            has_preflight: !flags.no_preflight,
            is_lenient: flags.lenient,
            response_field_text: flags.response_field.clone(),
            response_field,
            sampling: Sampling {
                max_tokens: sampling.max_tokens.or(limit_of_rows(flags, &prompts)?),
                ..sampling
            },
            tokenizer: TokenizerChoice::parse(flags.tokenizer.as_deref().unwrap_or("auto"))?,
            prompts,
            defaults: defaults.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect(),
        }))
    }

    /// Whether no answer is a stream, so that it has no first token.
    pub fn never_streams(&self) -> bool {
        let is_open =
            matches!(self.prompts, Prompts::Body) || self.sampling.extra.contains_key("stream");
        !self.sampling.stream && !is_open
    }

    /// Whether a body names a model, so that there has to be one.
    pub fn needs_model(&self) -> bool {
        matches!(self.api, Api::Chat | Api::Completions | Api::Embeddings)
            && !matches!(self.prompts, Prompts::Body)
            && !self.sampling.extra.contains_key("model")
    }
}

/// Whether answers can be asked for as streams.
pub fn can_stream(api: Api) -> bool {
    api != Api::Embeddings
}

/// The body that was typed, or that of a file, whose errors are told where it is sent.
fn body(load: &LoadFlags) -> Option<Vec<u8>> {
    let file = || std::fs::read(load.body_file.as_deref()?).ok();
    load.body.as_ref().map(|text| text.clone().into_bytes()).or_else(file)
}

fn asks_for_stream(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body["stream"] == true)
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

/// The kind of endpoint, and whether the user named it, by a flag or a path; `None`: plain HTTP.
fn api(
    load: &LoadFlags,
    urls: &[Url],
    has_token_metric: bool,
) -> Result<Option<(Api, bool)>, Error> {
    let flags = &load.inference;
    let typed = optional(&flags.api, |text| parse("--api", text, Api::FORM, Api::parse))?;
    let is_template = flags.dataset.is_some() && has_placeholders(load, urls);
    let typed = typed.or(is_template.then_some(Api::Template));
    let first = given(flags);
    if typed == Some(Api::Raw) && flags.dataset.is_none() {
        return match first {
            Some(flag) => Err(Error::usage(format!(
                "{flag} has no meaning with --api raw and no --dataset; leave out one of them"
            ))),
            None => Ok(None),
        };
    }
    let is_post = load.method.as_deref().is_none_or(|method| method == "POST");
    let by_path = urls.iter().find_map(|url| Api::of_path(&url.path));
    let is_base = urls.iter().any(|url| url.path.trim_end_matches('/').ends_with("/v1"));
    let is_plain = flags.targets.is_some() || !is_post;
    let by_url = !is_plain && (by_path.is_some() || is_base);
    let reason =
        typed.map(|_| "--api").or(first).or(has_token_metric.then_some("a goal of tokens"));
    if let (Some(reason), true) = (reason, flags.targets.is_some()) {
        return Err(Error::usage(format!(
            "--targets and {reason} exclude each other: targets are sent as they stand, prompts \
             come from --dataset"
        )));
    }
    Ok((reason.is_some() || by_url)
        .then(|| (typed.or(by_path).unwrap_or(Api::Chat), typed.is_some() || by_path.is_some())))
}

/// Whether a `{{column}}` stands in what was typed.
fn has_placeholders(load: &LoadFlags, urls: &[Url]) -> bool {
    let texts = load.header.iter().chain(&load.body);
    urls.iter().any(Url::has_placeholders) || texts.into_iter().any(|text| text.contains("{{"))
}

/// The first flag that only an inference run has, but for `--api`.
fn given(flags: &InferenceFlags) -> Option<&'static str> {
    let given = [
        ("--model", flags.model.is_some()),
        ("--dataset", flags.dataset.is_some()),
        ("--isl", flags.isl.is_some()),
        ("--osl", flags.osl.is_some()),
        ("--stream", flags.stream),
        ("--no-stream", flags.no_stream),
        ("--prompts", flags.prompts.is_some()),
        ("--prompt-seed", flags.prompt_seed.is_some()),
        ("--tokenizer", flags.tokenizer.is_some()),
        ("--column", !flags.column.is_empty()),
        ("--skip-bad-rows", flags.skip_bad_rows),
        ("--api-key", flags.api_key.is_some()),
        ("--no-include-usage", flags.no_include_usage),
        ("--no-preflight", flags.no_preflight),
        ("--lenient", flags.lenient),
        ("--response-field", flags.response_field.is_some()),
        ("--max-output-tokens", flags.max_output_tokens.is_some()),
        ("--min-tokens", flags.min_tokens.is_some()),
        ("--legacy-max-tokens", flags.legacy_max_tokens),
        ("--ignore-eos", flags.ignore_eos),
        ("--temperature", flags.temperature.is_some()),
        ("--top-p", flags.top_p.is_some()),
        ("--top-k", flags.top_k.is_some()),
        ("--stop", !flags.stop.is_empty()),
        ("--system", flags.system.is_some()),
        ("--extra-body", flags.extra_body.is_some()),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
}

/// A flag that would change nothing, as no body that is sent has a place for it, and why.
fn without_meaning(
    flags: &InferenceFlags,
    api: Api,
    prompts: &Prompts,
) -> Option<(&'static str, &'static str)> {
    let why = match (prompts, api) {
        (Prompts::Body, _) => "a body of -b or --body-file, which is sent as it is",
        (_, Api::Raw) => "--api raw, whose bodies are sent as they are",
        (_, Api::Template) => "--api template, whose body is all that is sent",
        (_, Api::Embeddings) => "--api openai-embeddings, which generates nothing",
        (_, Api::Chat | Api::Completions | Api::Generate) => return None,
    };
    let is_made = api == Api::Embeddings && !matches!(prompts, Prompts::Body);
    let given = [
        // With a body it has an error of its own.
        ("--osl", flags.osl.is_some() && !matches!(prompts, Prompts::Body)),
        ("--max-output-tokens", flags.max_output_tokens.is_some()),
        ("--min-tokens", flags.min_tokens.is_some()),
        ("--legacy-max-tokens", flags.legacy_max_tokens),
        ("--ignore-eos", flags.ignore_eos),
        ("--temperature", flags.temperature.is_some()),
        ("--top-p", flags.top_p.is_some()),
        ("--top-k", flags.top_k.is_some()),
        ("--stop", !flags.stop.is_empty()),
        ("--system", flags.system.is_some()),
        ("--no-include-usage", flags.no_include_usage),
        ("--extra-body", flags.extra_body.is_some() && !is_made),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| (flag, why))
}

/// Where the prompts come from: a dataset, a body, or nowhere, so that they are made up.
fn prompts(load: &LoadFlags, urls: &[Url], api: Api) -> Result<Prompts, Error> {
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
fn limit_of_rows(flags: &InferenceFlags, prompts: &Prompts) -> Result<Option<u32>, Error> {
    let Some(text) = &flags.osl else { return Ok(None) };
    let wrong = |allowed| Err(Error::value("--osl", text, allowed));
    match (prompts, Length::parse("--osl", text)?) {
        (Prompts::Synthetic(_), _) => Ok(None),
        (Prompts::Dataset { .. }, Length::Fixed(count)) => Ok(Some(count)),
        (Prompts::Dataset { .. }, _) => wrong("one number beside --dataset, whose rows may differ"),
        (Prompts::Body, _) => wrong("no limit beside a body, which says itself what it asks for"),
    }
}

fn is_synthetic(prompts: &Prompts) -> bool {
    matches!(prompts, Prompts::Synthetic(_))
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

fn sampling(flags: &InferenceFlags, is_stream: bool) -> Result<Sampling, Error> {
    let tokens = |flag, text: &Option<String>| {
        optional(text, |text| {
            parse(flag, text, "a number of tokens, at least 1", |text| {
                u32::try_from(positive_count(text)?).ok()
            })
        })
    };
    let max_tokens = tokens("--max-output-tokens", &flags.max_output_tokens)?;
    if flags.osl.is_some() && max_tokens.is_some() {
        return Err(Error::usage(
            "--osl and --max-output-tokens exclude each other: both are the limit of an answer",
        ));
    }
    // Of a dataset, or beside its own limits: a fixed number is the limit of each row.
    let min_tokens = tokens("--min-tokens", &flags.min_tokens)?;
    if let (Some(min), Some(max)) = (min_tokens, max_tokens)
        && min > max
    {
        return Err(Error::usage(format!(
            "--min-tokens got `{min}`, which is above --max-output-tokens {max}"
        )));
    }
    let number = |flag, text: &Option<String>, form, is_allowed: fn(f64) -> bool| {
        optional(text, |text| parse(flag, text, form, |text| decimal(text, is_allowed)))
    };
    let form = "a number from 0 to 2";
    let temperature =
        number("--temperature", &flags.temperature, form, |x| (0.0..=2.0).contains(&x))?;
    let form = "a number above 0 and at most 1";
    let top_p = number("--top-p", &flags.top_p, form, |x| x > 0.0 && x <= 1.0)?;
    let top_k = optional(&flags.top_k, |text| {
        parse("--top-k", text, "a number of tokens, at least 1, or -1 for all", |text| match text {
            "-1" => Some(-1),
            _ => i64::try_from(positive_count(text)?).ok(),
        })
    })?;
    Ok(Sampling {
        model: optional(&flags.model, model)?,
        max_tokens,
        min_tokens,
        ignore_eos: flags.ignore_eos,
        temperature,
        top_p,
        top_k,
        seed: None,
        stop: flags.stop.clone(),
        stream: is_stream,
        include_usage: !flags.no_include_usage,
        legacy_max_tokens: flags.legacy_max_tokens,
        system: flags.system.clone(),
        extra: extra_body(flags.extra_body.as_deref())?,
    })
}

fn decimal(text: &str, is_allowed: fn(f64) -> bool) -> Option<f64> {
    unit::decimal(text).filter(|value| is_allowed(*value))
}

fn model(text: &str) -> Result<String, Error> {
    parse("--model", text, "the name of a model, as in /v1/models", |text| {
        (!text.trim().is_empty()).then(|| text.to_owned())
    })
}

fn extra_body(text: Option<&str>) -> Result<Map<String, Value>, Error> {
    let Some(text) = text else { return Ok(Map::new()) };
    let form = "a JSON object, as in '{\"seed\": 1}'";
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(Error::value("--extra-body", text, form)),
        Err(error) => {
            Err(Error::value("--extra-body", text, &format!("{form}; it is no JSON: {error}")))
        }
    }
}

/// `@FILE`, read here, as a key must not be on a command line that every user of the host can read;
/// else the environment's.
pub fn api_key(text: Option<&str>) -> Result<Option<Secret>, Error> {
    let key = match text {
        None => match std::env::var(KEY_VARIABLE) {
            Ok(key) => key,
            Err(_) => return Ok(None),
        },
        Some(text) => {
            let path = text.strip_prefix('@').filter(|path| !path.is_empty()).ok_or_else(|| {
                Error::usage(format!(
                    "--api-key got a value that is not shown; allowed: @FILE, as a command line is \
                     visible to every user of this host, or the environment variable {KEY_VARIABLE}"
                ))
            })?;
            std::fs::read_to_string(path).map_err(|error| {
                let path = shown(path);
                Error::usage(format!("--api-key got `@{path}`, which cannot be read: {error}"))
            })?
        }
    };
    let key = key.trim();
    let source = text.map_or(KEY_VARIABLE, |_| "--api-key");
    if key.is_empty() {
        return match text {
            // An empty variable is how one unsets it in many a script.
            None => Ok(None),
            Some(_) => Err(Error::usage("--api-key names a file that is empty")),
        };
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::usage(format!(
            "{source} has a character that no header may hold; allowed: one line of visible ASCII"
        )));
    }
    Ok(Some(Secret(key.to_owned())))
}

/// Tokens of a synthetic prompt.
const ISL: u32 = 550;
/// Tokens of its answer.
const OSL: u32 = 128;
/// Synthetic prompts of a run at most; ten times this would be gigabytes.
pub const PROMPTS_MAX: usize = 1_000_000;
const KEY_VARIABLE: &str = "OPENAI_API_KEY";
const TOKENIZER_FORM: &str = "auto, none, cl100k, o200k, or the path of a tokenizer.json";
const TEMPLATE_FORM: &str = "a {{column}} in the body (-b, --body-file), the URL or a header, as \
                             in -b '{\"q\": \"{{question}}\"}'";
const DATASET_FORM: &str =
    "[perf:]PATH[,KEY=VALUE]..., as in questions.jsonl,prompt=question,limit=500";

#[cfg(test)]
mod tests;
