//! The flags of an inference run, typed; and when a run is one.
//!
//! A run is an inference run when a flag says so (`--api`, `--model`, `--isl`, `--osl`, `--stream`,
//! `--dataset` and the like), when an expression names a figure of tokens, or when the URL ends in
//! `/v1` or in the path of an inference API. What was not typed gets its default here, and
//! [`Inference::defaults`] remembers which, for the header of the report.

mod prompts;

use std::path::PathBuf;

use loadgen_shards::answer::PathStep;
use loadgen_shards::tls::TlsOptions;
use serde_json::{Map, Value};

use super::unit;
use super::value::{optional, parse, positive_count};
use crate::api::{Api, Sampling, parse_field};
use crate::cli::{InferenceFlags, LoadFlags, TlsFlags};
use crate::error::{Error, shown};
use crate::request::url::{Secret, Url};

pub use prompts::{Part, Prompts, Synthetic, dataset_text, format_name, length_text};
use prompts::{limit_of_rows, prompts};

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

/// `--tokenizer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// That of the model in the local hub cache, else the server's, else none.
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
            (
                matches!(prompts, Prompts::Synthetic(_))
                    && flags.isl.is_none()
                    && flags.osl.is_none(),
                "dataset",
            ),
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

/// Flags and whether they were given.
type Given<const N: usize> = [(&'static str, bool); N];

/// The flags of what is generated, all of them members of a body that is made.
fn of_sampling(flags: &InferenceFlags) -> Given<9> {
    [
        ("--max-output-tokens", flags.max_output_tokens.is_some()),
        ("--min-tokens", flags.min_tokens.is_some()),
        ("--legacy-max-tokens", flags.legacy_max_tokens),
        ("--ignore-eos", flags.ignore_eos),
        ("--temperature", flags.temperature.is_some()),
        ("--top-p", flags.top_p.is_some()),
        ("--top-k", flags.top_k.is_some()),
        ("--stop", !flags.stop.is_empty()),
        ("--system", flags.system.is_some()),
    ]
}

fn first_given(flags: impl IntoIterator<Item = (&'static str, bool)>) -> Option<&'static str> {
    flags.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
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
    ];
    let extra = ("--extra-body", flags.extra_body.is_some());
    first_given(given.into_iter().chain(of_sampling(flags)).chain([extra]))
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
    // With a body it has an error of its own.
    let osl = ("--osl", flags.osl.is_some() && !matches!(prompts, Prompts::Body));
    let others = [
        ("--no-include-usage", flags.no_include_usage),
        ("--extra-body", flags.extra_body.is_some() && !is_made),
    ];
    first_given([osl].into_iter().chain(of_sampling(flags)).chain(others)).map(|flag| (flag, why))
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

const KEY_VARIABLE: &str = "OPENAI_API_KEY";
const TOKENIZER_FORM: &str = "auto, none, cl100k, o200k, or the path of a tokenizer.json";

#[cfg(test)]
mod tests;
