//! Request bytes: one request for each URL and row, and where each goes, in the table that all
//! shards share.
//!
//! Called by [`crate::plan`]. Everything is resolved, read and rendered here, once, before the run.

mod arena;
mod content;
mod destination;
mod head;
pub mod secret;
mod shape;
mod template;
pub mod url;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use loadgen_shards::answer::AnswerPlan;
use loadgen_shards::query::{Request, RequestTable};

use crate::api::{Api, Sampling};
use crate::config::Config;
use crate::dataset::{Sample, TargetLine};
use crate::error::{Error, shown};
use arena::Failure;
use content::Content;
use destination::{Destinations, Resolve};
use head::{BodyFacts, Head};
use url::Url;

pub use shape::{Header, RequestShape, base64};

/// The rows of a dataset, and what is asked with them.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// What is asked.
    pub api: Api,
    /// Options of every request.
    pub sampling: &'a Sampling,
    /// One row each, at least one.
    pub samples: &'a [Sample],
}

/// Builds the table of a run without rows: one request for each URL. `embedded` is the address of
/// the embedded endpoint, used when there is no URL.
pub fn table(config: &Config, embedded: Option<SocketAddr>) -> Result<RequestTable, Error> {
    table_with(config, embedded, None, &AnswerPlan::PLAIN, &|_| {}, &system_resolver)
}

/// Builds the table of a run with rows. Each row is there once, in its order, and goes to one of
/// the URLs, which take turns; fewer rows than URLs are repeated, so that each URL is there once.
/// `progress` is told how many requests are done, now and then and from any thread.
pub fn table_of_rows(
    config: &Config,
    embedded: Option<SocketAddr>,
    rows: &Rows<'_>,
    answers: &AnswerPlan,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<RequestTable, Error> {
    table_with(config, embedded, Some(rows), answers, progress, &system_resolver)
}

/// Builds the table of `--targets`: one request for each line. The headers, the credentials and the
/// content type of the run go to every line that does not say otherwise.
pub fn table_of_targets(
    config: &Config,
    lines: &[TargetLine],
    answers: &AnswerPlan,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<RequestTable, Error> {
    table_of_targets_with(config, lines, answers, progress, &system_resolver)
}

/// The URLs of a run: the user's, or the embedded endpoint's.
pub fn urls(config: &Config, embedded: Option<SocketAddr>) -> Vec<Url> {
    match embedded {
        Some(address) if config.urls.is_empty() => vec![Url {
            host: address.ip().to_string(),
            is_https: false,
            port: address.port(),
            path: "/".into(),
            user_info: None,
        }],
        _ => config.urls.clone(),
    }
}

fn system_resolver(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

fn table_with(
    config: &Config,
    embedded: Option<SocketAddr>,
    rows: Option<&Rows<'_>>,
    answers: &AnswerPlan,
    progress: &(dyn Fn(usize) + Sync),
    resolve: &Resolve<'_>,
) -> Result<RequestTable, Error> {
    let content = Content::new(&config.request, rows)?;
    let mut urls = urls(config, embedded);
    assert!(!urls.is_empty(), "without a URL the embedded endpoint has been started");
    if let Some(rows) = rows {
        for url in &mut urls {
            let path = rows.api.endpoint_path(&url.path);
            url.path =
                path.map_err(|reason| Error::usage(format!("URL `{}` {reason}", url.redacted())))?;
        }
    }
    let mut destinations = Destinations::new(config, resolve);
    let mut places = Vec::with_capacity(urls.len());
    for url in &urls {
        let head = Head::new(&config.request, url, config.keepalive, rows.is_some());
        places.push((head.map_err(Error::usage)?, destinations.index_of(url)?));
    }
    let row_count = content.rows();
    let write = |entry: usize, out: &mut Vec<u8>| {
        let (head, target) = &places[place_of(entry, places.len())];
        let row = entry % row_count;
        let written = write_row(&content, head, row, out);
        let facts = written.map_err(|reason| Error::usage(format!("row {} {reason}", row + 1)))?;
        let method = config.request.method_with(facts.length.is_some());
        Ok(Request {
            is_stream: facts.is_stream,
            prompt_tokens: content.prompt_tokens(row),
            ..Request::plain(0..0, *target, method == "HEAD")
        })
    };
    let built = arena::build(row_count.max(places.len()), ARENA_BYTES_MAX, write, progress);
    finished(built, destinations, answers)
}

fn table_of_targets_with(
    config: &Config,
    lines: &[TargetLine],
    answers: &AnswerPlan,
    progress: &(dyn Fn(usize) + Sync),
    resolve: &Resolve<'_>,
) -> Result<RequestTable, Error> {
    let mut destinations = Destinations::new(config, resolve);
    let mut places = Vec::with_capacity(lines.len());
    for (line, number) in lines.iter().zip(1..) {
        let wrong = |reason: String| Error::usage(format!("target {number}: {reason}"));
        let url = Url::parse(&line.url).map_err(|reason| {
            wrong(format!("URL `{}` {reason}", shown(&url::masked(&line.url))))
        })?;
        let shape = config.request.of_target(line).map_err(wrong)?;
        let target = destinations.index_of(&url)?;
        places.push((url, shape, target));
    }
    let sample = Sample::default();
    let write = |entry: usize, out: &mut Vec<u8>| {
        let ((url, shape, target), line) = (&places[entry], &lines[entry]);
        let wrong = |reason: String| Error::usage(format!("target {}: {reason}", entry + 1));
        let head = Head::new(shape, url, config.keepalive, false).map_err(wrong)?;
        let length = (!line.body.is_empty()).then_some(line.body.len());
        head.write(&sample, BodyFacts { length, is_stream: false }, out).map_err(wrong)?;
        out.extend_from_slice(&line.body);
        Ok(Request::plain(0..0, *target, line.method == "HEAD"))
    };
    let built = arena::build(lines.len(), ARENA_BYTES_MAX, write, progress);
    finished(built, destinations, answers)
}

/// Head and body of a row. The error is a fragment that follows "row N".
fn write_row(
    content: &Content<'_>,
    head: &Head<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<BodyFacts, String> {
    // The head tells the length of the body, so it is made later and put before. That moves a body
    // once more, and needs no second buffer of megabytes.
    let begin = out.len();
    let facts = content.write(row, out)?;
    let mut own = Vec::with_capacity(HEAD_BYTES);
    head.write(content.sample(row), facts, &mut own)?;
    out.splice(begin..begin, own);
    Ok(facts)
}

/// Which of `count` URLs an entry goes to: each once in every `count` entries, and each time in
/// another order, as rows may take turns too, long and short.
fn place_of(entry: usize, count: usize) -> usize {
    (entry + entry / count) % count
}

fn finished(
    built: Result<arena::Built<Request>, Failure<Error>>,
    destinations: Destinations<'_>,
    answers: &AnswerPlan,
) -> Result<RequestTable, Error> {
    let built = built.map_err(|failure| match failure {
        Failure::Entry(error) => error,
        Failure::TooLong => Error::usage(
            "all requests together exceed 8 GiB; use fewer rows or URLs, or smaller bodies",
        ),
    })?;
    let requests = built.entries.into_iter().map(|(range, request)| Request { range, ..request });
    Ok(RequestTable {
        arena: built.arena,
        requests: requests.collect(),
        targets: Arc::from(destinations.into_targets()),
        answers: Arc::new(answers.clone()),
    })
}

/// Longer than most heads.
const HEAD_BYTES: usize = 512;
/// Largest table. Building it takes twice as much memory for a moment.
const ARENA_BYTES_MAX: u64 = 8 << 30;

#[cfg(test)]
mod tests;
