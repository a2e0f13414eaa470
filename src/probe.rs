//! `loadgen-uring probe URL`: a few requests, one verdict: does this endpoint answer as we expect,
//! with which models, streamed or not, with token counts or not.
//!
//! The requests go one after the other, through [`crate::side`]; [`look`] makes facts of the
//! answers, [`text`] and [`json`](fn@json) show them.

use std::fmt::Write;
use std::time::Duration;

use loadgen_shards::answer::AnswerPlan;
use serde_json::{Value, json};

use crate::api::{self, Api, Root, Sampling};
use crate::cli::{self, Load, LoadCommand, LoadFlags};
use crate::config::Config;
use crate::dataset::{Prompt, Sample};
use crate::error::Error;
use crate::number::{counted, grouped, time};
use crate::report::printable;
use crate::request::secret::Secrets;
use crate::request::url::Url;
use crate::side::{Judged, Reply, Side, TlsFacts, judged, models_in, tokens};
use crate::stream;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
struct Facts {
    url: String,
    /// Kind of server, if something gives it away.
    server: Option<String>,
    api: String,
    models: Vec<String>,
    /// The one that was asked.
    model: Option<String>,
    /// Most tokens of prompt and answer together, if it is told.
    context_tokens: Option<u64>,
    has_tokenizer: bool,
    whole: Option<Outcome>,
    streamed: Option<Outcome>,
    tls: Option<TlsFacts>,
}

impl Facts {
    /// The first thing that is wrong with an answer.
    fn failure(&self) -> Option<&str> {
        let outcomes = [&self.whole, &self.streamed].into_iter().flatten();
        outcomes.filter_map(|outcome| outcome.failure.as_deref()).next()
    }

    fn is_good(&self) -> bool {
        self.failure().is_none()
    }
}

/// How a prompt was answered.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    status: u16,
    /// What is wrong with it; `None`: nothing.
    failure: Option<String>,
    is_stream: bool,
    /// As the server counts.
    prompt_tokens: Option<u32>,
    output_tokens: Option<u32>,
    total_ns: u64,
    /// From the send to the first chunk with something generated.
    first_token_ns: Option<u64>,
    /// Chunks with something generated.
    chunks: u32,
    /// Of these, how many came in one piece with the one before.
    coalesced: u32,
}

/// Asks, and tells. Exit code 1 when a prompt is not answered as it should be.
pub fn run(probe: cli::Probe) -> Result<u8, Error> {
    let config = config(probe)?;
    let url = config.urls.first().expect("a probe has a URL").clone();
    let secrets = Secrets::of(&config.request, &config.urls);
    let facts = look(&config, &url)?;
    let told = match config.common.json {
        true => crate::snapshot::pretty(&json(&facts)) + "\n",
        false => text(&facts),
    };
    let told: String = told.lines().map(|line| printable(&secrets.masked(line)) + "\n").collect();
    let _ = stream::out(&told);
    if let Some(failure) = facts.failure() {
        stream::err(printable(&secrets.masked(&format!("not as expected: {failure}"))));
    }
    Ok(u8::from(!facts.is_good()))
}

/// The flags are some of those of a load.
fn config(probe: cli::Probe) -> Result<Config, Error> {
    let cli::Probe { flags, common } = probe;
    if let Some(api @ (Api::Raw | Api::Template)) = flags.api.as_deref().and_then(Api::parse) {
        return Err(Error::value("--api", api.name(), "a kind of inference endpoint"));
    }
    let mut load = LoadFlags {
        urls: vec![flags.url],
        header: flags.header,
        timeout: flags.timeout.or_else(|| Some(TIMEOUT.to_owned())),
        connect_to: flags.connect_to,
        unix_socket: flags.unix_socket,
        tls: flags.tls,
        ..LoadFlags::default()
    };
    load.inference.api = flags.api;
    load.inference.model = flags.model;
    load.inference.api_key = flags.api_key;
    // So that it is one of inference, whatever the URL.
    load.inference.no_preflight = true;
    Config::from_cli(Load { command: LoadCommand::MaxThroughput, flags: load, common })
}

fn look(config: &Config, url: &Url) -> Result<Facts, Error> {
    let run = config.inference.as_ref().expect("made so");
    let timeout = Duration::from_nanos(config.timeouts.request_ns.max(1));
    let side = Side::new(config, url, timeout)?;
    let Root { prefix, version } = Root::of(&url.path);
    let place = url.redacted();
    let list = side
        .get(&format!("{prefix}{version}/models"))
        .map_err(|why| Error::setup(format!("{place} does not answer: {why}")))?;
    let known = models_in(&list).filter(|_| list.is_success()).unwrap_or_default();
    let model = run.sampling.model.clone().or_else(|| known.first().cloned());
    let path = run
        .api
        .endpoint_path(&url.path)
        .map_err(|why| Error::usage(format!("URL `{place}` {why}")))?;
    let ask = |is_stream| {
        let sampling = Sampling {
            model: model.clone(),
            stream: is_stream,
            max_tokens: Some(TOKENS),
            ..run.sampling.clone()
        };
        let prompt = Prompt::Text(PROMPT.to_owned());
        let body = api::body(run.api, &Sample { prompt, ..Sample::default() }, &sampling);
        let body = body.map_err(|why| Error::usage(format!("the prompt {why}")))?;
        let body: Value = serde_json::from_slice(&body).expect("our own JSON");
        Ok::<Outcome, Error>(match side.post(&path, &body) {
            Ok(reply) => outcome(run.api, &reply, is_stream),
            Err(why) => Outcome { failure: Some(why.to_string()), ..Outcome::default() },
        })
    };
    let whole = ask(false)?;
    let streamed = if run.api.generates() { Some(ask(true)?) } else { None };
    let extra = |path: &str| side.get(&format!("{prefix}{path}")).ok().filter(Reply::is_success);
    let (server, props) = server(&list, &extra);
    Ok(Facts {
        url: place,
        server,
        api: run.api.name().to_owned(),
        context_tokens: context(&list, props.as_ref(), model.as_deref()),
        models: known,
        has_tokenizer: tokens(&side, url, model.as_deref(), PROMPT).is_some(),
        model,
        whole: Some(whole),
        streamed,
        tls: list.tls,
    })
}

/// How a prompt was answered, by its whole answer.
fn outcome(api: Api, reply: &Reply, wants_stream: bool) -> Outcome {
    let mut outcome = Outcome { status: reply.status, ..Outcome::default() };
    outcome.total_ns = reply.pieces.last().map_or(0, |piece| piece.after_ns);
    if !reply.is_success() {
        outcome.failure = Some(format!("status {}: {}", reply.status, reply.message()));
        return outcome;
    }
    let plan = AnswerPlan { format: api.answer_format(None), ..AnswerPlan::PLAIN };
    let Judged { facts, failure } = judged(&plan, wants_stream, reply);
    if wants_stream && !facts.is_stream && failure.is_none() {
        let kind = reply.header("content-type").unwrap_or("none");
        outcome.failure = Some(format!("a stream was asked for, and the Content-Type is {kind}"));
        return outcome;
    }
    let instant = |ns: u64| (ns > 0).then_some(ns);
    Outcome {
        failure,
        is_stream: facts.is_stream,
        prompt_tokens: facts.usage.prompt,
        output_tokens: facts.usage.completion,
        first_token_ns: instant(facts.first_token_ns),
        chunks: facts.chunks,
        coalesced: facts.coalesced,
        ..outcome
    }
}

/// The kind of a server, by its headers, by the owner of its models and by the paths that only it
/// has; and what it tells of itself there.
fn server(list: &Reply, get: &dyn Fn(&str) -> Option<Reply>) -> (Option<String>, Option<Value>) {
    let header = list.header("server").unwrap_or_default().to_owned();
    let owner = list.json().and_then(|value| {
        let owner = value.get("data")?.get(0)?.get("owned_by")?.as_str()?;
        Some(owner.to_owned())
    });
    let version = |value: &Value| {
        value
            .get("version")
            .and_then(Value::as_str)
            .map_or(String::new(), |text| format!(" {text}"))
    };
    if header.to_ascii_lowercase().contains("llama.cpp") || owner.as_deref() == Some("llamacpp") {
        return (Some("llama.cpp".to_owned()), get("/props").and_then(|reply| reply.json()));
    }
    if owner.as_deref() == Some("vllm") {
        let told = get("/version").and_then(|reply| reply.json());
        return (Some(format!("vLLM{}", told.as_ref().map(version).unwrap_or_default())), None);
    }
    if let Some(info) = get("/get_server_info").and_then(|reply| reply.json())
        && info.is_object()
    {
        return (Some(format!("SGLang{}", version(&info))), Some(info));
    }
    if let Some(info) = get("/info").and_then(|reply| reply.json())
        && info.get("model_id").is_some()
    {
        return (Some(format!("TGI{}", version(&info))), Some(info));
    }
    let is_gateway = list.headers.iter().any(|(name, _)| name.starts_with("x-litellm"));
    if is_gateway {
        return (Some("LiteLLM, a gateway".to_owned()), None);
    }
    ((!header.is_empty()).then_some(header), None)
}

/// Most tokens of prompt and answer together: `max_model_len` of vLLM, `n_ctx` of llama.cpp,
/// `context_length` of SGLang, `max_total_tokens` of TGI.
fn context(list: &Reply, props: Option<&Value>, model: Option<&str>) -> Option<u64> {
    let list = list.json();
    let entries = list.as_ref().and_then(|value| value.get("data")?.as_array());
    let entry = entries.and_then(|entries| {
        let is_model = |entry: &&Value| entry.get("id").and_then(Value::as_str) == model;
        entries.iter().find(is_model).or(entries.first())
    });
    let of_entry = entry.and_then(|entry| {
        entry.get("max_model_len").or_else(|| entry.pointer("/meta/n_ctx")).and_then(Value::as_u64)
    });
    let paths =
        ["/default_generation_settings/n_ctx", "/n_ctx", "/context_length", "/max_total_tokens"];
    let of_props = || props.and_then(|props| paths.iter().find_map(|p| props.pointer(p)?.as_u64()));
    of_entry.or_else(of_props)
}

fn json(facts: &Facts) -> Value {
    let outcome = |outcome: &Option<Outcome>| {
        outcome.as_ref().map(|outcome| {
            json!({
                "ok": outcome.failure.is_none(),
                "status": (outcome.status > 0).then_some(outcome.status),
                "failure": outcome.failure,
                "streamed": outcome.is_stream,
                "prompt_tokens": outcome.prompt_tokens,
                "output_tokens": outcome.output_tokens,
                "duration_ns": outcome.total_ns,
                "first_token_ns": outcome.first_token_ns,
                "chunks": outcome.is_stream.then_some(outcome.chunks),
                "coalesced": outcome.is_stream.then_some(outcome.coalesced),
            })
        })
    };
    json!({
        "url": facts.url,
        "server": facts.server,
        "api": facts.api,
        "models": facts.models,
        "model": facts.model,
        "context_tokens": facts.context_tokens,
        "tokenize": facts.has_tokenizer,
        "whole": outcome(&facts.whole),
        "stream": outcome(&facts.streamed),
        "tls": facts.tls.as_ref().map(|tls| json!({"version": tls.version, "cipher": tls.cipher})),
        "ok": facts.is_good(),
    })
}

fn text(facts: &Facts) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        writeln!(text, "  {name:<10}{value}").expect("a string takes any text");
    };
    let kind = facts.server.as_deref().unwrap_or("a server that does not say what it is");
    line("server", kind);
    line(
        "models",
        &match &facts.models[..] {
            [] => "none listed".to_owned(),
            models => models.join(", "),
        },
    );
    if let Some(tokens) = facts.context_tokens {
        line("context", &format!("{} tokens", grouped(tokens)));
    }
    line(
        "tokens",
        match facts.has_tokenizer {
            true => "counted by the server at /tokenize",
            false => "no /tokenize",
        },
    );
    if let Some(tls) = &facts.tls {
        line("tls", &format!("{}, {}", tls.version, tls.cipher));
    }
    for (name, outcome) in [("whole", &facts.whole), ("stream", &facts.streamed)] {
        if let Some(outcome) = outcome {
            line(name, &told(outcome));
        }
    }
    let is_good = facts.is_good();
    let verdict = match is_good {
        true => format!("{} answers {} as expected.", facts.url, facts.api),
        false => format!("{} does not answer {} as expected.", facts.url, facts.api),
    };
    let model = match &facts.model {
        Some(model) if facts.models.len() != 1 => format!(" --model {model}"),
        _ => String::new(),
    };
    // A root alone would be plain HTTP.
    let api = format!(" --api {}", facts.api);
    let next = match is_good {
        true => {
            format!("  next      loadgen-uring concurrency {} -c 8 -n 100{api}{model}\n", facts.url)
        }
        false => String::new(),
    };
    format!("{verdict}\n\n{text}{next}")
}

fn told(outcome: &Outcome) -> String {
    if let Some(failure) = &outcome.failure {
        return format!("FAIL: {failure}");
    }
    let usage = match (outcome.prompt_tokens, outcome.output_tokens) {
        (Some(prompt), Some(output)) => format!("{prompt} tokens in and {output} out"),
        (Some(prompt), None) => format!("{prompt} tokens in"),
        (None, _) => "no token counts".to_owned(),
    };
    let total = time(outcome.total_ns);
    if !outcome.is_stream {
        return format!("ok in {total}, {usage}");
    }
    let first = outcome
        .first_token_ns
        .map_or("nothing generated".to_owned(), |ns| format!("first token after {}", time(ns)));
    let bunched = match outcome.coalesced {
        0 => "each by itself".to_owned(),
        count => format!("{count} together with the one before"),
    };
    let chunks = counted(u64::from(outcome.chunks), "chunk");
    format!("ok in {total}, {usage}; {first}, {chunks}, {bunched}")
}

/// Of each request.
const TIMEOUT: &str = "30s";
/// Of an answer: enough for a stream to have several chunks.
const TOKENS: u32 = 16;
const PROMPT: &str = "Count from one to twenty in words.";
