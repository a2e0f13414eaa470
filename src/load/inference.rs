//! What precedes an inference run: which model, who counts tokens, the rows, and one request that
//! shows whether the endpoint answers.

mod counting;

use std::io::{IsTerminal, Stderr};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loadgen_shards::answer::AnswerFacts;

use crate::config::inference::{Inference, Part, Prompts, Synthetic, TokenizerChoice};
use crate::config::{Config, Ui};
use crate::dataset::{self, Dataset, Sample, count_tokens, read, read_targets, synthetic};
use crate::display::grouped;
use crate::error::{Error, shown};
use crate::plan::{Asked, AskedRows, Plan, prompts_wanted};
use crate::progress::{self, Mode, Progress};
use crate::report::printable;
use crate::request::{self, url::Url};
use crate::side::{Side, judged, models};
use crate::stream;
use crate::tokenizer::Tokenizer;
use counting::Counter;

/// Draws the seed of synthetic prompts for this invocation.
pub fn draw_seed(config: &mut Config) {
    use std::hash::{BuildHasher, RandomState};
    if let Some(Inference { prompts: Prompts::Synthetic(synthetic), .. }) = &mut config.inference {
        // The keys of the hasher come from the operating system.
        synthetic.drawn_seed = RandomState::new().hash_one(std::process::id());
    }
}

/// Reads or makes up what a run asks, and fills in the model. `None`: plain HTTP.
pub fn ask(config: &mut Config, embedded: Option<SocketAddr>) -> Result<Option<Asked>, Error> {
    if let Some(path) = &config.targets {
        return read_targets(path).map(|lines| Some(Asked::Targets(lines)));
    }
    let Some(run) = &config.inference else { return Ok(None) };
    let meter = Meter::new(config);
    // What is wrong here is told before anybody is asked anything.
    let named = named_tokenizer(run)?;
    let read = match &run.prompts {
        Prompts::Dataset { path, options } => {
            let label = format!("reading {}", path.display());
            Some(read(path, options, &mut |done, all| meter.show(&label, done, all))?)
        }
        Prompts::Synthetic(_) | Prompts::Body => None,
    };
    meter.clear();
    if run.needs_model() && run.sampling.model.is_none() {
        let model = discover(config, embedded)?;
        if !config.common.quiet {
            let model = shown(&model);
            stream::err(format_args!("model {model}: the only one that the server has"));
        }
        config.inference.as_mut().expect("just seen").sampling.model = Some(model);
    }
    let run = config.inference.as_ref().expect("just seen");
    let tokenizer = match (named, &run.sampling.model, &run.tokenizer) {
        (None, Some(model), TokenizerChoice::Auto) => Tokenizer::from_hub_cache(model)?,
        (named, ..) => named,
    };
    let tokenizer = tokenizer.map(Arc::new);
    let is_open = tokenizer.is_none() && run.tokenizer == TokenizerChoice::Auto;
    let counter = if is_open { Counter::new(config, embedded) } else { None };
    let mut rows = match (read, &run.prompts) {
        (Some(dataset), _) => counted(dataset, tokenizer.as_deref(), &meter),
        (None, Prompts::Synthetic(typed)) => {
            let calibrated = counter.as_ref().and_then(|counter| counter.calibrated(typed));
            let (isl, calibrated_by) = calibrated.unzip();
            let typed = Synthetic { isl: isl.unwrap_or(typed.isl), ..typed.clone() };
            let rows = made_up(config, &typed, tokenizer.as_deref(), &meter)?;
            AskedRows { calibrated_by, ..rows }
        }
        (None, _) => bodies(),
    };
    if let Some(counter) = counter {
        counter.count(&mut rows, &meter);
    }
    rows.tokenizer = tokenizer;
    meter.clear();
    Ok(Some(Asked::Rows(rows)))
}

/// Made-up prompts of the run of this number, from 0, of a command that has several. `None`: it
/// has those that there are.
pub fn made_up_anew(
    config: &mut Config,
    point: u64,
    embedded: Option<SocketAddr>,
) -> Result<Option<Asked>, Error> {
    let Some(Inference { prompts: Prompts::Synthetic(synthetic), .. }) = &mut config.inference
    else {
        return Ok(None);
    };
    synthetic.point = point;
    match (synthetic.seed, point) {
        // The first run has those of the plan of the whole.
        (None, 1..) => ask(config, embedded),
        _ => Ok(None),
    }
}

/// The one model that all servers have.
fn discover(config: &Config, embedded: Option<SocketAddr>) -> Result<String, Error> {
    let urls = request::urls(config, embedded);
    let mut found: Option<String> = None;
    for url in urls.iter().take(SERVERS_ASKED) {
        let model = only_model(&Side::new(config, url, SIDE_TIMEOUT)?, url)?;
        match &found {
            Some(known) if *known != model => {
                return Err(Error::usage(format!(
                    "--model is needed: the servers have different ones, `{}` and `{}`",
                    shown(known),
                    shown(&model)
                )));
            }
            _ => found = Some(model),
        }
    }
    Ok(found.expect("a run has a URL or the embedded endpoint"))
}

fn only_model(side: &Side, url: &Url) -> Result<String, Error> {
    let place = url.redacted();
    let models = models(side, url).map_err(|why| {
        Error::setup(format!("cannot ask {place} for its models, {why}; give --model NAME"))
    })?;
    match &models[..] {
        [model] => Ok(model.clone()),
        [] => Err(Error::setup(format!("{place} lists no model; give --model NAME"))),
        several => {
            let names: Vec<String> = several.iter().map(|name| shown(name)).collect();
            Err(Error::usage(format!(
                "--model is needed: {place} has {} models: {}",
                names.len(),
                names.join(", ")
            )))
        }
    }
}

/// The one row of a body that is the user's.
fn bodies() -> AskedRows {
    let samples = vec![Sample::default()];
    let dataset = Dataset { name: "body".to_owned(), samples, ..Dataset::default() };
    AskedRows { dataset, ..AskedRows::default() }
}

fn counted(mut dataset: Dataset, tokenizer: Option<&Tokenizer>, meter: &Meter) -> AskedRows {
    if let Some(tokenizer) = tokenizer {
        let label = "counting the tokens of prompts";
        count_tokens(&mut dataset, tokenizer, &|done, all| meter.show(label, done, all));
    }
    let counted_by = tokenizer.map(|tokenizer| tokenizer.name().to_owned());
    AskedRows { dataset, counted_by, ..AskedRows::default() }
}

/// The prompt of the preflight, those of the warm-up, then those of the measured phase.
fn made_up(
    config: &Config,
    typed: &Synthetic,
    tokenizer: Option<&Tokenizer>,
    meter: &Meter,
) -> Result<AskedRows, Error> {
    let make = |part| {
        let count = prompts_wanted(config, typed, part);
        if count == 0 {
            return Ok(Dataset::default());
        }
        let seed = typed.seed_of(part);
        let plan = dataset::Synthetic { isl: typed.isl, osl: typed.osl, count, seed };
        synthetic(&plan, tokenizer, &|done, all| meter.show("making prompts", done, all))
    };
    let has_preflight = config.inference.as_ref().is_some_and(|run| run.has_preflight);
    let first = if has_preflight { make(Part::Preflight)? } else { Dataset::default() };
    // With a seed of the user's all phases have the same prompts, and one list will do.
    let own = if typed.seed.is_none() { make(Part::Warmup)? } else { Dataset::default() };
    let warmup = own.samples.len();
    let measured = make(Part::Performance)?;
    let samples = [first.samples, own.samples, measured.samples].into_iter().flatten().collect();
    let counted_by = tokenizer.map(|tokenizer| tokenizer.name().to_owned());
    let dataset =
        Dataset { name: measured.name, taken_as: measured.taken_as, samples, ..Dataset::default() };
    Ok(AskedRows { dataset, has_preflight, warmup, counted_by, ..AskedRows::default() })
}

/// The tokenizer that the user named.
fn named_tokenizer(run: &Inference) -> Result<Option<Tokenizer>, Error> {
    match &run.tokenizer {
        TokenizerChoice::None | TokenizerChoice::Auto => Ok(None),
        TokenizerChoice::Named(name) => Ok(Tokenizer::builtin(name)),
        TokenizerChoice::File(path) => Tokenizer::from_file(&tokenizer_file(path)).map(Some),
    }
}

/// Of a model's folder, the file in it.
fn tokenizer_file(path: &Path) -> std::path::PathBuf {
    if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() }
}

/// One request before the load, counted nowhere: whether the endpoint answers it as a run would
/// have it.
pub fn preflight(plan: &Plan) -> Result<(), Error> {
    let Some(run) = plan.config.inference.as_ref().filter(|run| run.has_preflight) else {
        return Ok(());
    };
    let request = &plan.table.requests[plan.preflight_request()];
    let target = &plan.table.targets[request.target as usize];
    let timeout = match plan.timeouts.request_ns {
        0 => PREFLIGHT_TIMEOUT,
        ns => Duration::from_nanos(ns),
    };
    let side = Side::to_target(target, timeout);
    let place = plan.endpoints.first().map_or("the endpoint", String::as_str);
    let masked = |text: String| printable(&plan.secrets.masked(&text)).to_string();
    let began = Instant::now();
    let reply = side.send(&plan.table.arena[request.range.clone()]).map_err(|why| {
        Error::setup(masked(format!(
            "{place} does not answer the first request, which goes before the load: {why}; try \
             `loadgen-uring probe {place}`, or leave it out with --no-preflight"
        )))
    })?;
    let took_ns = began.elapsed().as_nanos() as u64;
    let (low, high) = plan.accept_status;
    if !(low..=high).contains(&reply.status) {
        return Err(Error::setup(masked(format!(
            "{place} refuses the first request, which goes before the load, with status {}: {}; \
             {}, or leave it out with --no-preflight",
            reply.status,
            reply.message(),
            remedy(reply.status)
        ))));
    }
    let judged = judged(&plan.table.answers, request.is_stream, &reply);
    if let Some(message) = &judged.failure {
        return Err(Error::setup(masked(format!(
            "{place} fails the first request, which goes before the load, within an answer of \
             status {}: {message}; leave it out with --no-preflight",
            reply.status
        ))));
    }
    if !plan.config.common.quiet {
        let took = crate::display::time(took_ns);
        let told = told(run, request.is_stream, &judged.facts);
        stream::err(printable(&format!("preflight: answered in {took}{told}")));
    }
    Ok(())
}

/// What else there is to say of a good answer.
fn told(run: &Inference, wants_stream: bool, facts: &AnswerFacts) -> String {
    if !run.api.generates() {
        return String::new();
    }
    let stream = match (wants_stream, facts.is_stream) {
        (true, true) => ", streamed",
        (true, false) => ", but not streamed, so that there is no time to first token",
        (false, _) => "",
    };
    let usage = match facts.usage.completion {
        Some(_) => ", tokens counted by the server",
        None => ", but no token counts came from the server",
    };
    format!("{stream}{usage}")
}

/// What a refusal is likely about.
fn remedy(status: u16) -> &'static str {
    match status {
        401 | 403 => "give the key with --api-key @FILE or OPENAI_API_KEY",
        404 => "check the path and --model",
        400 | 422 => {
            "check --api, --model and the members of the body (--legacy-max-tokens, \
                      --no-include-usage, --extra-body)"
        }
        429 => "the server limits the rate: wait",
        _ => "try the probe command",
    }
}

/// Progress of what takes a while before the run.
struct Meter {
    state: Mutex<(Progress<Stderr>, Option<Instant>)>,
}

impl Meter {
    fn new(config: &Config) -> Meter {
        let common = &config.common;
        let is_silenced = common.quiet || common.ui == Ui::None;
        let is_terminal = std::io::stderr().is_terminal();
        let mode: Mode = progress::mode(is_silenced, common.ui == Ui::Plain, is_terminal);
        let progress = Progress::new(mode, String::new(), std::io::stderr());
        Meter { state: Mutex::new((progress, None)) }
    }

    /// At most a few times a second; whoever finds another thread here leaves it to that one.
    fn show(&self, label: &str, done: u64, all: u64) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let (progress, last) = &mut *state;
        let now = Instant::now();
        // The first time is only noted: what is done at once needs no line.
        let is_due = last.replace(last.unwrap_or(now)).is_some_and(|last| now - last >= METER);
        if !is_due {
            return;
        }
        *last = Some(now);
        let share = match all {
            0 => grouped(done),
            _ => format!("{} % of {}", done * 100 / all, grouped(all)),
        };
        let _ = progress.show_text(&format!("{label}: {share}"));
    }

    fn clear(&self) {
        let mut state = self.state.lock().expect("nobody panics with it");
        let _ = state.0.clear();
    }
}

/// Between two lines of the meter.
const METER: Duration = Duration::from_millis(400);
/// Of a request for models and the like.
const SIDE_TIMEOUT: Duration = Duration::from_secs(10);
/// A first answer may have to wait for a model that is loaded or compiled on demand.
const PREFLIGHT_TIMEOUT: Duration = Duration::from_secs(120);
/// Servers that are asked for their models.
const SERVERS_ASKED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_check() {
        assert!(remedy(401).contains("--api-key"));
        assert!(remedy(404).contains("--model"));
        assert!(remedy(429).contains("limits the rate"));
    }
}
