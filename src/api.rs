//! The kinds of endpoint: where each is asked, what its request body looks like, and how its
//! answers are read.
//!
//! Pure: words, paths and rows in, bytes out. [`crate::request`] puts the bytes behind a head and
//! into the table of a run.

mod body;
mod field;

use loadgen_shards::answer::{AnswerFormat, PathStep};

pub use body::{BodyWriter, body};
pub use field::parse_field;

/// A kind of endpoint (`--api`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI completions: a text or token ids.
    Completions,
    /// SGLang's own `/generate`.
    Generate,
    /// OpenAI embeddings.
    Embeddings,
    /// Plain HTTP: the body of a row is sent as it is.
    Raw,
    /// Plain HTTP with the columns of a row put into `{{column}}`.
    Template,
}

impl Api {
    /// What `--api` may say, for messages.
    pub const FORM: &str = "openai, openai-completions, sglang, openai-embeddings, raw or template";

    /// The kind of a word; `_` and `-` are the same, and the words of other tools with the same
    /// meaning are known too.
    pub fn parse(word: &str) -> Option<Api> {
        Some(match word.to_ascii_lowercase().replace('_', "-").as_str() {
            "openai" | "openai-chat" | "chat" => Api::Chat,
            "openai-completions" | "completions" => Api::Completions,
            "sglang" => Api::Generate,
            "openai-embeddings" | "embeddings" => Api::Embeddings,
            "raw" => Api::Raw,
            "template" => Api::Template,
            _ => return None,
        })
    }

    /// The word of `--api`, in files too.
    pub const fn name(self) -> &'static str {
        match self {
            Api::Chat => "openai",
            Api::Completions => "openai-completions",
            Api::Generate => "sglang",
            Api::Embeddings => "openai-embeddings",
            Api::Raw => "raw",
            Api::Template => "template",
        }
    }

    /// Where it is asked on a server of its own; empty: wherever the URL says.
    pub const fn path(self) -> &'static str {
        match self {
            Api::Chat => "/v1/chat/completions",
            Api::Completions => "/v1/completions",
            Api::Generate => "/generate",
            Api::Embeddings => "/v1/embeddings",
            Api::Raw | Api::Template => "",
        }
    }

    /// Whether text is generated.
    pub const fn generates(self) -> bool {
        matches!(self, Api::Chat | Api::Completions | Api::Generate)
    }

    /// How answers are read: the text at `field`, where one is named (`--response-field`), else by
    /// the rules of this kind.
    pub fn answer_format(self, field: Option<&[PathStep]>) -> AnswerFormat {
        match (field, self) {
            (Some(steps), _) => AnswerFormat::Field(steps.into()),
            (None, Api::Chat) => AnswerFormat::Chat,
            (None, Api::Completions) => AnswerFormat::Completions,
            (None, Api::Generate) => AnswerFormat::Generate,
            (None, Api::Embeddings) => AnswerFormat::Embeddings,
            (None, Api::Raw | Api::Template) => AnswerFormat::Plain,
        }
    }

    /// The kind that a path (with or without a query) belongs to: `/v1/chat/completions` and the
    /// like under any prefix.
    pub fn of_path(typed: &str) -> Option<Api> {
        let path = split_query(typed).0.trim_end_matches('/');
        let tails = [
            ("/chat/completions", Api::Chat),
            ("/completions", Api::Completions),
            ("/embeddings", Api::Embeddings),
            ("/generate", Api::Generate),
        ];
        tails.iter().find(|(tail, _)| path.ends_with(tail)).map(|(_, api)| *api)
    }

    /// The path (and query) that requests go to, for the one that was typed: a base such as `/`,
    /// `/v1`, `/v1/`, `/proxy` or `/proxy/v1` is completed, and the whole path of this kind stays
    /// as it is. A query stays at the end. The error is a fragment for after "URL `...`".
    pub fn endpoint_path(self, typed: &str) -> Result<String, String> {
        if self.path().is_empty() {
            return Ok(typed.to_owned());
        }
        match Api::of_path(typed) {
            Some(api) if api == self => return Ok(typed.to_owned()),
            Some(api) => {
                return Err(format!(
                    "is an endpoint of --api {}, but the run has --api {}; give the base URL, or \
                     the other kind",
                    api.name(),
                    self.name()
                ));
            }
            None => {}
        }
        let Root { prefix, version } = Root::of(typed);
        let query = split_query(typed).1;
        Ok(match self.path().strip_prefix("/v1") {
            Some(tail) => format!("{prefix}{version}{tail}{query}"),
            None => format!("{prefix}{}{query}", self.path()),
        })
    }
}

/// The place under which a server has its paths, taken from a URL's path: for the side requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root<'a> {
    /// What stands before the version, without a `/` at the end: `/tokenize`, `/health` and
    /// `/generate` follow it.
    pub prefix: &'a str,
    /// `/v1` if no other version was typed: `/models` follows both.
    pub version: &'a str,
}

impl Root<'_> {
    /// The root of a path (with or without a query), a base or that of an endpoint.
    pub fn of(typed: &str) -> Root<'_> {
        let path = split_query(typed).0.trim_end_matches('/');
        let tails = ["/chat/completions", "/completions", "/embeddings", "/generate"];
        let base = tails.iter().find_map(|tail| path.strip_suffix(tail)).unwrap_or(path);
        let (before, last) = base.split_at(base.rfind('/').unwrap_or(0));
        let digits = last.strip_prefix("/v").unwrap_or_default();
        let is_version = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_version {
            Root { prefix: before, version: last }
        } else {
            Root { prefix: base, version: "/v1" }
        }
    }
}

/// A path and its query, which begins with `?` unless it is empty.
fn split_query(typed: &str) -> (&str, &str) {
    typed.split_at(typed.find('?').unwrap_or(typed.len()))
}

/// What is asked of the model, the same for every row of a run. What is `None`, empty or `false` is
/// not sent, so that the server's own default holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// `--model`.
    pub model: Option<String>,
    /// Most tokens of an answer (`--max-output-tokens`).
    pub max_tokens: Option<u32>,
    /// Fewest tokens of an answer.
    pub min_tokens: Option<u32>,
    /// Generate on after the end of the answer, up to `max_tokens`.
    pub ignore_eos: bool,
    /// Temperature.
    pub temperature: Option<f64>,
    /// Share of probability that is drawn from, 0 to 1.
    pub top_p: Option<f64>,
    /// Most likely tokens that are drawn from; -1: all.
    pub top_k: Option<i64>,
    /// Seed of the sampling on the server.
    pub seed: Option<i64>,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Answers are streamed.
    pub stream: bool,
    /// Token counts are asked for at the end of a stream.
    pub include_usage: bool,
    /// Chat says `max_tokens` instead of `max_completion_tokens`.
    pub legacy_max_tokens: bool,
    /// A system prompt, in front of the text prompts of a chat; that of a row wins. Messages are
    /// passed on untouched.
    pub system: Option<String>,
    /// Members of the body (`--extra-body`): they go over all of the above, and those of a row go
    /// over them. Objects are merged member by member; anything else replaces, and `null` takes out
    /// a member that is there.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Api; 6] =
        [Api::Chat, Api::Completions, Api::Generate, Api::Embeddings, Api::Raw, Api::Template];

    #[test]
    fn each_kind_has_one_word_and_its_aliases() {
        for api in ALL {
            assert_eq!(Api::parse(api.name()), Some(api));
            assert!(Api::FORM.contains(api.name()));
        }
        for (word, api) in [
            ("openai_completions", Some(Api::Completions)),
            ("OpenAI", Some(Api::Chat)),
            ("chat", Some(Api::Chat)),
            ("embeddings", Some(Api::Embeddings)),
            ("openai ", None),
            ("", None),
            ("vllm", None),
        ] {
            assert_eq!(Api::parse(word), api, "{word:?}");
        }
    }

    #[test]
    fn a_base_url_is_completed_and_a_whole_one_is_kept() {
        for (api, typed, path) in [
            (Api::Chat, "/", "/v1/chat/completions"),
            (Api::Chat, "/v1", "/v1/chat/completions"),
            (Api::Chat, "/v1/", "/v1/chat/completions"),
            (Api::Chat, "/v1/chat/completions", "/v1/chat/completions"),
            (Api::Chat, "/v1/chat/completions/", "/v1/chat/completions/"),
            (Api::Chat, "/proxy", "/proxy/v1/chat/completions"),
            (Api::Chat, "/proxy/v1/", "/proxy/v1/chat/completions"),
            (Api::Chat, "/api/v3", "/api/v3/chat/completions"),
            (Api::Chat, "/vllm", "/vllm/v1/chat/completions"),
            (Api::Chat, "/v1?a=b/v2", "/v1/chat/completions?a=b/v2"),
            (
                Api::Chat,
                "/d/x/chat/completions?api-version=1",
                "/d/x/chat/completions?api-version=1",
            ),
            (Api::Completions, "/v1", "/v1/completions"),
            (Api::Completions, "/v1/completions", "/v1/completions"),
            (Api::Embeddings, "/", "/v1/embeddings"),
            (Api::Generate, "/", "/generate"),
            (Api::Generate, "/v1/", "/generate"),
            (Api::Generate, "/proxy/v1", "/proxy/generate"),
            (Api::Generate, "/proxy/generate", "/proxy/generate"),
            (Api::Raw, "/v1", "/v1"),
            (Api::Template, "/u/{{id}}?x", "/u/{{id}}?x"),
        ] {
            assert_eq!(api.endpoint_path(typed).as_deref(), Ok(path), "{api:?} {typed}");
        }
    }

    #[test]
    fn the_url_of_another_kind_is_refused() {
        for (api, typed, says) in [
            (Api::Chat, "/v1/completions", "--api openai-completions"),
            (Api::Completions, "/v1/chat/completions", "--api openai,"),
            (Api::Embeddings, "/generate", "--api sglang"),
        ] {
            let error = api.endpoint_path(typed).expect_err(typed);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn side_requests_find_the_root_of_the_server() {
        for (typed, prefix, version) in [
            ("/", "", "/v1"),
            ("/v1/", "", "/v1"),
            ("/v1/chat/completions", "", "/v1"),
            ("/proxy/v2/embeddings?x=/v9", "/proxy", "/v2"),
            ("/proxy", "/proxy", "/v1"),
            ("/generate", "", "/v1"),
            ("/v/vx", "/v/vx", "/v1"),
        ] {
            assert_eq!(Root::of(typed), Root { prefix, version }, "{typed}");
        }
    }

    #[test]
    fn answers_are_read_by_the_kind_unless_a_field_is_named() {
        let formats = ALL.map(|api| api.answer_format(None));
        let expected = [
            AnswerFormat::Chat,
            AnswerFormat::Completions,
            AnswerFormat::Generate,
            AnswerFormat::Embeddings,
            AnswerFormat::Plain,
            AnswerFormat::Plain,
        ];
        assert_eq!(formats, expected);
        let steps = parse_field("a[1]").expect("valid");
        let format = Api::Template.answer_format(Some(&steps));
        assert_eq!(format, AnswerFormat::Field(steps.into()));
    }
}
