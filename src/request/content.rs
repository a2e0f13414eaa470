//! Where the bodies of a run come from: the user, the rows, or the user's text with the columns of
//! the rows in it.

use super::Rows;
use super::head::{BodyFacts, CONTENT_TYPE};
use super::shape::RequestShape;
use super::template::{Escape, Template};
use crate::api::{Api, BodyWriter};
use crate::dataset::{Prompt, Sample};
use crate::error::Error;

/// The bodies of a run.
pub struct Content<'a> {
    rows: Option<(Rows<'a>, BodyWriter<'a>)>,
    /// The body of `-b` or `--body-file`, for all or for the rows that bring none.
    body: Option<Template>,
    escape: Escape,
    /// Stands in where there are no rows.
    no_sample: Sample,
}

impl<'a> Content<'a> {
    /// Reads the user's body, if there is one, and checks that it goes with the rows.
    pub fn new(shape: &RequestShape, rows: Option<&Rows<'a>>) -> Result<Content<'a>, Error> {
        let body = shape.body()?;
        let body = match rows.map(|rows| rows.api) {
            Some(Api::Template) => body.map(|body| parse(&body)).transpose()?,
            Some(api) if api != Api::Raw && body.is_some() => {
                return Err(Error::usage(format!(
                    "--api {} makes the bodies; leave -b and --body-file out, or use --api \
                     template",
                    api.name()
                )));
            }
            _ => body.map(Template::literal),
        };
        if let Some(rows) = rows {
            rows.sampling.check(rows.api).map_err(Error::usage)?;
            assert!(!rows.samples.is_empty(), "an empty dataset is refused by its reader");
        }
        Ok(Content {
            rows: rows.map(|rows| (*rows, BodyWriter::new(rows.api, rows.sampling))),
            body,
            escape: escape(shape),
            no_sample: Sample::default(),
        })
    }

    /// How many rows there are; without rows one.
    pub fn rows(&self) -> usize {
        self.rows.as_ref().map_or(1, |(rows, _)| rows.samples.len())
    }

    /// The row at an index.
    pub fn sample(&self, row: usize) -> &Sample {
        self.rows.as_ref().map_or(&self.no_sample, |(rows, _)| &rows.samples[row])
    }

    /// Tokens of a prompt; 0: nobody counted them.
    pub fn prompt_tokens(&self, row: usize) -> u32 {
        self.sample(row).prompt_tokens.unwrap_or(0)
    }

    /// Appends the body of a row. The error is a fragment that follows "row N".
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<BodyFacts, String> {
        let sample = self.sample(row);
        let begin = out.len();
        let mut is_stream = false;
        let mut has_body = self.body.is_some();
        let mut is_own = false;
        if let Some((rows, writer)) = &self.rows {
            is_stream = writer.write(sample, out)?.is_stream;
            is_own = match rows.api {
                Api::Template => false,
                Api::Raw => sample.prompt != Prompt::None,
                Api::Chat | Api::Completions | Api::Generate | Api::Embeddings => true,
            };
            has_body |= is_own;
        }
        if let Some(body) = self.body.as_ref().filter(|_| !is_own) {
            body.render(sample, self.escape, out)?;
        }
        Ok(BodyFacts { length: has_body.then_some(out.len() - begin), is_stream })
    }
}

fn parse(body: &[u8]) -> Result<Template, Error> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Error::usage("the body is no UTF-8 text, so it cannot be a template"))?;
    Template::parse(text).map_err(|reason| Error::usage(format!("the body {reason}")))
}

/// What columns have to look like in a body of this media type.
fn escape(shape: &RequestShape) -> Escape {
    let header =
        shape.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-type"));
    let own = header.map(|header| header.value.as_str()).or(shape.content_type.as_deref());
    let media_type = own.unwrap_or(CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    match media_type.to_ascii_lowercase().as_str() {
        "application/x-www-form-urlencoded" => Escape::Percent,
        json if json.ends_with("json") => Escape::Json,
        _ => Escape::Plain,
    }
}
