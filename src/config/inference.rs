//! The flags of an inference run, typed; and when a run is one.
//!
//! A run is an inference run when a flag says so (`--api`, `--model`, `--isl`, `--osl`, `--stream`,
//! `--dataset` and the like), when an expression names a figure of tokens, or when the URL ends in
//! `/v1` or in the path of an inference API. What was not typed gets its default here, and
//! [`Inference::defaults`] remembers which, so that the header can mark them.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::unit;
use super::value::{optional, parse, positive_count};
use crate::cli::{InferenceFlags, LoadFlags, TlsFlags};
use crate::error::{Error, shown};
use crate::request::url::{Secret, Url};

/// Trust and identity of https connections, as typed: the files are read by the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// Roots in place of the system's.
    pub cacert: Option<PathBuf>,
    /// Our certificate ...
    pub cert: Option<PathBuf>,
    /// ... and its key.
    pub key: Option<PathBuf>,
    /// Name asked for and checked in place of the host.
    pub sni: Option<String>,
    /// Any certificate will do.
    pub insecure: bool,
}

impl TlsConfig {
    /// Types what was typed. `is_used`: a URL is https.
    pub fn from_cli(flags: &TlsFlags, is_used: bool) -> Result<TlsConfig, Error> {
        let TlsFlags { cacert, cert, key, sni, insecure } = flags.clone();
        let given = [
            ("--cacert", cacert.is_some()),
            ("--cert", cert.is_some()),
            ("--key", key.is_some()),
            ("--sni", sni.is_some()),
            ("-k (--insecure)", insecure),
        ];
        if let (false, Some((flag, _))) = (is_used, given.iter().find(|(_, is_given)| *is_given)) {
            return Err(Error::usage(format!("{flag} needs a URL that begins with https://")));
        }
        match (&cert, &key) {
            (Some(_), None) => {
                return Err(Error::usage("--cert needs --key, the file of its private key"));
            }
            (None, Some(_)) => {
                return Err(Error::usage("--key needs --cert, the file of its certificate"));
            }
            _ => {}
        }
        Ok(TlsConfig { cacert, cert, key, sni, insecure })
    }
}

/// An inference run, typed.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// Kind of endpoint.
    pub api: ApiType,
    /// `None`: the only one of the server; filled in before the plan.
    pub model: Option<String>,
    /// Of `--api-key` or the environment.
    pub api_key: Option<Secret>,
    /// Answers are asked for token by token.
    pub is_stream: bool,
    /// Token counts are asked for in streams.
    pub has_usage: bool,
    /// One request before the load.
    pub has_preflight: bool,
    /// Chunks that are not JSON are skipped.
    pub is_lenient: bool,
    /// Where the text of an answer is, as typed.
    pub response_field: Option<String>,
    /// Members of each body.
    pub sampling: Sampling,
    /// Where the prompts come from.
    pub prompts: Prompts,
    /// Who counts tokens.
    pub tokenizer: TokenizerChoice,
    /// Defaults that were filled in, as in `api openai`.
    pub defaults: Vec<&'static str>,
}

/// Kinds of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiType {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI completions.
    Completions,
    /// OpenAI embeddings.
    Embeddings,
    /// SGLang's `/generate`.
    Sglang,
    /// Bodies as they are given.
    Raw,
    /// A body with `{{column}}` in it.
    Template,
}

impl ApiType {
    /// Each of them.
    pub const ALL: [ApiType; 6] = [
        ApiType::Chat,
        ApiType::Completions,
        ApiType::Embeddings,
        ApiType::Sglang,
        ApiType::Raw,
        ApiType::Template,
    ];

    /// As typed.
    pub const fn name(self) -> &'static str {
        match self {
            ApiType::Chat => "openai",
            ApiType::Completions => "openai-completions",
            ApiType::Embeddings => "openai-embeddings",
            ApiType::Sglang => "sglang",
            ApiType::Raw => "raw",
            ApiType::Template => "template",
        }
    }

    /// By its name; `_` for `-` will do.
    pub fn parse(text: &str) -> Result<ApiType, Error> {
        let text = text.replace('_', "-");
        let text = if text == "openai-chat" { "openai" } else { &text };
        ApiType::ALL.into_iter().find(|api| api.name() == text).ok_or_else(|| {
            let names = ApiType::ALL.map(ApiType::name).join(", ");
            Error::value("--api", text, &names)
        })
    }

    /// By the path of a URL.
    pub fn of_url(url: &Url) -> Option<ApiType> {
        let path = url.path.split('?').next().unwrap_or_default().trim_end_matches('/');
        [
            ("/chat/completions", ApiType::Chat),
            ("/completions", ApiType::Completions),
            ("/embeddings", ApiType::Embeddings),
            ("/generate", ApiType::Sglang),
            ("/v1", ApiType::Chat),
        ]
        .into_iter()
        .find(|(end, _)| path.ends_with(end))
        .map(|(_, api)| api)
    }

    /// Whether a body names a model.
    pub fn has_model(self) -> bool {
        matches!(self, ApiType::Chat | ApiType::Completions | ApiType::Embeddings)
    }

    /// Whether it generates tokens that can be streamed.
    pub fn can_stream(self) -> bool {
        self != ApiType::Embeddings
    }
}

/// How tokens are drawn and how many, as members of each body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Most tokens of an answer.
    pub max_output_tokens: Option<u32>,
    /// Least tokens of an answer.
    pub min_tokens: Option<u32>,
    /// The limit is named `max_tokens` in chats too.
    pub has_legacy_max_tokens: bool,
    /// The end of a text does not end an answer.
    pub ignores_eos: bool,
    /// From 0.
    pub temperature: Option<f64>,
    /// Above 0, at most 1.
    pub top_p: Option<f64>,
    /// At least 1.
    pub top_k: Option<u32>,
    /// -2 to 2.
    pub presence_penalty: Option<f64>,
    /// -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Above 0.
    pub repetition_penalty: Option<f64>,
    /// Other members, over all of these.
    pub extra_body: Map<String, Value>,
}

/// Where prompts come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompts {
    /// Rows of a file.
    Dataset(Dataset),
    /// Made up.
    Synthetic(Synthetic),
    /// One body, that of `-b` or `--body-file`.
    Body,
}

/// `--dataset`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataset {
    /// File or directory.
    pub path: PathBuf,
    /// `None`: by the name and the content.
    pub format: Option<String>,
    /// Column of ours, and its name in the file.
    pub columns: Vec<(String, String)>,
    /// Read so many rows.
    pub limit: Option<u64>,
    /// Rows that cannot be read are left out and counted.
    pub skips_bad_rows: bool,
}

/// Prompts that are made up.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Tokens of a prompt.
    pub isl: Tokens,
    /// Tokens asked for; `None`: no limit is sent.
    pub osl: Option<Tokens>,
    /// How many; `None`: one for each request, as far as that is known.
    pub count: Option<u32>,
    /// The user's, which holds for each run, phase and point.
    pub seed: Option<u64>,
    /// Drawn once for each invocation; used without one of the user's.
    pub drawn_seed: u64,
    /// Which run of its command this is, from 0.
    pub point: u64,
}

/// How many tokens: a law to draw from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens {
    /// Always so many.
    Fixed(u32),
    /// Normal, at least 1.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        stddev: f64,
    },
    /// Uniform, both included.
    Uniform {
        /// Least.
        low: u32,
        /// Most.
        high: u32,
    },
}

impl Tokens {
    /// Parses `550`, `550~50`, `400-700` or `550+-20%`.
    pub fn parse(flag: &str, text: &str) -> Result<Tokens, Error> {
        super::value::refuse_sweep(flag, text)?;
        parse(flag, text, TOKENS_FORM, |text| {
            if let Some((mean, share)) = text.split_once("+-") {
                let (mean, share) = (f64::from(token_count(mean)?), unit::share(share)?);
                let (low, high) = (mean * (1.0 - share), mean * (1.0 + share));
                let low = (low.ceil() as u32).max(1);
                return Some(Tokens::Uniform { low, high: high.floor() as u32 });
            }
            if let Some((mean, stddev)) = text.split_once('~') {
                let mean = f64::from(token_count(mean)?);
                let stddev = f64::from(u32::try_from(unit::count(stddev)?).ok()?);
                return Some(Tokens::Normal { mean, stddev });
            }
            if let Some((low, high)) = text.split_once('-') {
                let (low, high) = (token_count(low)?, token_count(high)?);
                return (low <= high).then_some(Tokens::Uniform { low, high });
            }
            token_count(text).map(Tokens::Fixed)
        })
    }

    /// As it can be typed.
    pub fn text(self) -> String {
        match self {
            Tokens::Fixed(count) => count.to_string(),
            Tokens::Normal { mean, stddev } => format!("{mean}~{stddev}"),
            Tokens::Uniform { low, high } => format!("{low}-{high}"),
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
    fn parse(text: &str) -> TokenizerChoice {
        match text {
            "auto" => TokenizerChoice::Auto,
            "none" => TokenizerChoice::None,
            "cl100k" | "o200k" | "cl100k_base" | "o200k_base" => {
                TokenizerChoice::Named(text.trim_end_matches("_base").to_owned())
            }
            path => TokenizerChoice::File(path.into()),
        }
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
        let given = given(flags);
        let has_body = load.body.is_some() || load.body_file.is_some();
        let by_url = urls.iter().find_map(ApiType::of_url).filter(|_| {
            load.method.as_deref().is_none_or(|method| method == "POST") && load.targets().is_none()
        });
        let typed = optional(&flags.api, ApiType::parse)?;
        let is_plain = typed == Some(ApiType::Raw) && flags.dataset.is_none();
        if is_plain || (given.is_empty() && by_url.is_none() && !has_token_metric) {
            return match given.iter().find(|(flag, _)| *flag != "--api") {
                Some((flag, _)) => Err(Error::usage(format!(
                    "{flag} has no meaning with --api raw without a --dataset; leave --api out"
                ))),
                None => Ok(None),
            };
        }
        if load.targets().is_some() {
            let flag = given.first().map_or("a goal of tokens", |(flag, _)| *flag);
            return Err(Error::usage(format!(
                "--targets and {flag} exclude each other: targets are sent as they are; prompts \
                 come from --dataset"
            )));
        }
        let api = typed.or(by_url).unwrap_or(ApiType::Chat);
        let prompts = prompts(load, api, has_body)?;
        let mut defaults = Vec::new();
        if typed.is_none() && by_url.is_none() {
            defaults.push("api openai");
        }
        let is_stream = api.can_stream() && !flags.no_stream;
        if is_stream && !flags.stream && api != ApiType::Raw {
            defaults.push("stream on");
        }
        if flags.stream && !api.can_stream() {
            return Err(Error::usage("--stream and --api openai-embeddings exclude each other"));
        }
        if matches!(&prompts, Prompts::Synthetic(_)) {
            defaults.extend(flags.isl.is_none().then_some("550 tokens in"));
            let has_osl = flags.osl.is_some() || flags.max_output_tokens.is_some();
            defaults.extend((!has_osl && api.can_stream()).then_some("128 out"));
        }
        if flags.response_field.is_some() && api != ApiType::Template {
            return Err(Error::usage(format!(
                "--response-field is of --api template; answers of {} are read as they are defined",
                api.name()
            )));
        }
        Ok(Some(Inference {
            api,
            model: optional(&flags.model, model)?,
            api_key: api_key(flags.api_key.as_deref())?,
            is_stream,
            has_usage: !flags.no_include_usage,
            has_preflight: !flags.no_preflight,
            is_lenient: flags.lenient,
            response_field: flags.response_field.clone(),
            sampling: sampling(flags)?,
            prompts,
            tokenizer: flags.tokenizer.as_deref().map_or(TokenizerChoice::Auto, |text| {
                TokenizerChoice::parse(text)
            }),
            defaults,
        }))
    }

    /// How many rows are sent when nothing else ends the run: all of them once.
    pub fn is_one_pass(&self) -> bool {
        matches!(self.prompts, Prompts::Dataset(_))
    }
}

/// The flags that make an inference run, those that were typed.
fn given(flags: &InferenceFlags) -> Vec<(&'static str, ())> {
    [
        ("--api", flags.api.is_some()),
        ("--model", flags.model.is_some()),
        ("--dataset", flags.dataset.is_some()),
        ("--isl", flags.isl.is_some()),
        ("--osl", flags.osl.is_some()),
        ("--prompts", flags.prompts.is_some()),
        ("--prompt-seed", flags.prompt_seed.is_some()),
        ("--stream", flags.stream),
        ("--no-stream", flags.no_stream),
        ("--no-include-usage", flags.no_include_usage),
        ("--no-preflight", flags.no_preflight),
        ("--lenient", flags.lenient),
        ("--response-field", flags.response_field.is_some()),
        ("--ttft-timeout", flags.ttft_timeout.is_some()),
        ("--skip-bad-rows", flags.skip_bad_rows),
        ("--tokenizer", flags.tokenizer.is_some()),
        ("--api-key", flags.api_key.is_some()),
        ("--max-output-tokens", flags.max_output_tokens.is_some()),
        ("--min-tokens", flags.min_tokens.is_some()),
        ("--legacy-max-tokens", flags.legacy_max_tokens),
        ("--ignore-eos", flags.ignore_eos),
        ("--temperature", flags.temperature.is_some()),
        ("--top-p", flags.top_p.is_some()),
        ("--top-k", flags.top_k.is_some()),
        ("--presence-penalty", flags.presence_penalty.is_some()),
        ("--frequency-penalty", flags.frequency_penalty.is_some()),
        ("--repetition-penalty", flags.repetition_penalty.is_some()),
        ("--extra-body", flags.extra_body.is_some()),
    ]
    .into_iter()
    .filter(|(_, is_given)| *is_given)
    .map(|(flag, _)| (flag, ()))
    .collect()
}
