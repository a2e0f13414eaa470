//! The flags of an inference run as clap reads them: text, no default filled in.

use std::path::PathBuf;

use clap::Args;

/// What is asked of an inference endpoint, and how its answers are read.
#[derive(Args, Clone, Debug, Default)]
pub struct InferenceFlags {
    /// Kind of endpoint: openai, openai-completions, openai-embeddings, sglang, raw or template
    /// [default: openai, in an inference run]
    #[arg(long, value_name = "TYPE", help_heading = "Inference")]
    #[arg(alias = "api-type")]
    pub api: Option<String>,
    /// Model [default: the only one of /v1/models]
    #[arg(long, value_name = "NAME", help_heading = "Inference")]
    pub model: Option<String>,
    /// File with the key, as @FILE; never printed, never written [default: $OPENAI_API_KEY]
    #[arg(long, value_name = "@FILE", help_heading = "Inference")]
    pub api_key: Option<String>,
    /// Ask for answers token by token, as is the default
    #[arg(long, help_heading = "Inference", overrides_with = "no_stream")]
    pub stream: bool,
    /// Ask for whole answers
    #[arg(long, help_heading = "Inference", overrides_with = "stream")]
    pub no_stream: bool,
    /// Ask for token counts in streams, as is the default
    #[arg(long, help_heading = "Inference", overrides_with = "no_include_usage", hide = true)]
    pub include_usage: bool,
    /// Do not ask for token counts in streams
    #[arg(long, help_heading = "Inference", overrides_with = "include_usage")]
    pub no_include_usage: bool,
    /// No request before the load that shows whether it is answered
    #[arg(long, help_heading = "Inference")]
    pub no_preflight: bool,
    /// Skip chunks that are not JSON, and count them, in place of failing the request
    #[arg(long, help_heading = "Inference")]
    pub lenient: bool,
    /// Where the text is in an answer of --api template.
    #[arg(
        long,
        value_name = "PATH",
        help_heading = "Inference",
        help = "Where the text is in an answer of --api template, as in choices[0].text"
    )]
    pub response_field: Option<String>,

    /// Prompts: a file, or a folder of bodies; with options, as in q.jsonl,prompt=ask,limit=500
    #[arg(long, value_name = "[perf:]PATH[,KEY=VALUE]", help_heading = "Prompts")]
    pub dataset: Option<String>,
    /// What a column of the dataset is, as in prompt=question; repeatable
    #[arg(long, value_name = "ROLE=COLUMN", help_heading = "Prompts")]
    pub column: Vec<String>,
    /// Leave out rows that cannot be read, and count them
    #[arg(long, help_heading = "Prompts")]
    pub skip_bad_rows: bool,
    /// Requests in vegeta's format: method, URL, headers and body of each
    #[arg(long, value_name = "FILE", help_heading = "Prompts")]
    pub targets: Option<PathBuf>,
    /// Tokens of a synthetic prompt: 550, 550~50 (normal), 550+-20%, uniform:440-660 or
    /// lognormal:550~300 [default: 550]
    #[arg(long, value_name = "TOKENS", help_heading = "Prompts")]
    pub isl: Option<String>,
    /// Tokens of an answer, in the same forms; sent as the limit [default: 128 with synthetic
    /// prompts]
    #[arg(long, value_name = "TOKENS", help_heading = "Prompts")]
    pub osl: Option<String>,
    /// Synthetic prompts to make [default: one a request, as far as that is known; at most 100k]
    #[arg(long, value_name = "N", help_heading = "Prompts")]
    pub prompts: Option<String>,
    /// Same synthetic prompts in each run, phase and point [default: drawn anew, and printed]
    #[arg(long, value_name = "N", help_heading = "Prompts")]
    pub prompt_seed: Option<String>,
    /// Who counts tokens: auto, none, cl100k, o200k or a tokenizer.json [default: auto]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Prompts")]
    pub tokenizer: Option<String>,

    /// Most tokens of an answer
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    #[arg(aliases = ["max-tokens", "max-new-tokens"])]
    pub max_output_tokens: Option<String>,
    /// Least tokens of an answer
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub min_tokens: Option<String>,
    /// Name the limit max_tokens, as older servers of chats know no other
    #[arg(long, help_heading = "Sampling")]
    pub legacy_max_tokens: bool,
    /// Generate up to the limit, whatever the model says
    #[arg(long, help_heading = "Sampling")]
    pub ignore_eos: bool,
    /// Temperature, from 0
    #[arg(long, value_name = "X", help_heading = "Sampling")]
    pub temperature: Option<String>,
    /// Nucleus: share of the probability, above 0 and at most 1
    #[arg(long, value_name = "X", help_heading = "Sampling")]
    pub top_p: Option<String>,
    /// Most likely tokens that are drawn from; -1: all
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub top_k: Option<String>,
    /// Text that ends an answer; repeatable
    #[arg(long, value_name = "TEXT", help_heading = "Sampling")]
    pub stop: Vec<String>,
    /// System prompt in front of the text prompts of a chat
    #[arg(long, value_name = "TEXT", help_heading = "Sampling", alias = "system-prompt")]
    pub system: Option<String>,
    /// More members of each body, over all others, as in '{"seed": 1}'
    #[arg(long, value_name = "JSON", help_heading = "Sampling")]
    #[arg(alias = "extra-request-body")]
    pub extra_body: Option<String>,
}

/// TLS, for https:// URLs.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsFlags {
    /// Certificates (PEM) that a server's has to come from [default: those of the system]
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub cacert: Option<PathBuf>,
    /// Our certificate (PEM), with --key
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub cert: Option<PathBuf>,
    /// Our private key (PEM), with --cert
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub key: Option<PathBuf>,
    /// Name that is asked for and checked in place of the URL's host
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub sni: Option<String>,
    /// Take any certificate
    #[arg(short = 'k', long, help_heading = "TLS")]
    pub insecure: bool,
}
