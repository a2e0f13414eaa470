//! Flags of `serve` that make its inference paths.

use clap::Args;

/// What the inference paths of `serve` answer, when, and what they do wrong.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeInferenceFlags {
    /// Whose bytes are imitated: vllm, sglang, tgi, llamacpp or openai [default: vllm]
    #[arg(long, value_name = "NAME", help_heading = "Inference")]
    pub profile: Option<String>,
    /// The only model that is known [default: any]
    #[arg(long, value_name = "NAME", help_heading = "Inference")]
    pub model: Option<String>,
    /// Time to the first token, as 200ms, 200ms~50ms, exponential:200ms, lognormal:200ms~50ms or
    /// uniform:100ms-300ms [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Inference")]
    pub ttft: Option<String>,
    /// Time from a token to the next, as for --ttft [default: 0]
    #[arg(long, value_name = "TIME", help_heading = "Inference")]
    pub itl: Option<String>,
    /// Chunks of an answer, if its request allows so many [default: as many tokens as the request
    /// allows, else 128]
    #[arg(long, value_name = "N", help_heading = "Inference")]
    pub chunks: Option<String>,
    /// Tokens of a chunk [default: 1]
    #[arg(long, value_name = "N", help_heading = "Inference")]
    pub tokens_per_chunk: Option<String>,
    /// Tokens of reasoning before a chat answer [default: 0]
    #[arg(long, value_name = "N", help_heading = "Inference")]
    pub reasoning_tokens: Option<String>,
    /// Tokens of prompt and answer together [default: 1048576]
    #[arg(long, value_name = "N", help_heading = "Inference")]
    pub max_context: Option<String>,
    /// Silence in a stream after which a comment is sent; 0 = never [default: 1s for llamacpp, else
    /// 0]
    #[arg(long, value_name = "TIME", help_heading = "Inference")]
    pub ping: Option<String>,
    /// Lines of a stream end with CR LF
    #[arg(long, help_heading = "Inference")]
    pub crlf: bool,
    /// Share of requests that get an error status, as 1% or 0.01 [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    pub fail_rate: Option<String>,
    /// Which: 500, 429, 503, or several with commas [default: 500]
    #[arg(long, value_name = "STATUS", help_heading = "Faults")]
    pub fail_status: Option<String>,
    /// Share that get an error inside a 200 [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    pub error_in_stream_rate: Option<String>,
    /// Share whose connection closes before the answer is whole [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    pub truncate_rate: Option<String>,
    /// Pause within an answer [default: none]
    #[arg(long, value_name = "TIME", help_heading = "Faults")]
    pub stall: Option<String>,
    /// Share of the answers that pause [default: 100%]
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    pub stall_rate: Option<String>,
    /// Chunks before the pause [default: drawn]
    #[arg(long, value_name = "N", help_heading = "Faults")]
    pub stall_after: Option<String>,
    /// Requests after which a connection closes; 0 = never [default: 100 for llamacpp, else 0]
    #[arg(long, value_name = "N", help_heading = "Faults")]
    pub close_after: Option<String>,
}

impl ServeInferenceFlags {
    /// The flags that were given, with their values.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("--profile", &self.profile),
            ("--model", &self.model),
            ("--ttft", &self.ttft),
            ("--itl", &self.itl),
            ("--chunks", &self.chunks),
            ("--tokens-per-chunk", &self.tokens_per_chunk),
            ("--reasoning-tokens", &self.reasoning_tokens),
            ("--max-context", &self.max_context),
            ("--ping", &self.ping),
            ("--fail-rate", &self.fail_rate),
            ("--fail-status", &self.fail_status),
            ("--error-in-stream-rate", &self.error_in_stream_rate),
            ("--truncate-rate", &self.truncate_rate),
            ("--stall", &self.stall),
            ("--stall-rate", &self.stall_rate),
            ("--stall-after", &self.stall_after),
            ("--close-after", &self.close_after),
        ];
        all.into_iter().filter_map(|(flag, text)| Some((flag, text.as_deref()?)))
    }
}
