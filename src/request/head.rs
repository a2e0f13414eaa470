//! The head of a request: request line and header fields.

use std::io::Write;

use super::shape::{Header, RequestShape, base64};
use super::template::{Escape, Template};
use super::url::{Secret, Url};
use crate::dataset::Sample;

/// The heads of requests to one URL.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    shape: &'a RequestShape,
    url: &'a Url,
    /// Path and query.
    path: Template,
    /// Values of the user's header fields, in their order.
    values: Vec<Template>,
    is_kept_alive: bool,
}

/// What a head has to say of the body after it.
#[derive(Clone, Copy, Debug)]
pub struct BodyFacts {
    /// Length, bytes; `None`: there is no body.
    pub length: Option<usize>,
    /// The answer is asked for as a stream.
    pub is_stream: bool,
}

impl<'a> Head<'a> {
    /// With `has_rows`, `{{column}}` in path, query and header values stands for a column; without,
    /// for itself. The error is a whole message.
    pub fn new(
        shape: &'a RequestShape,
        url: &'a Url,
        is_kept_alive: bool,
        has_rows: bool,
    ) -> Result<Head<'a>, String> {
        let template = |text: &str| {
            if has_rows { Template::parse(text) } else { Ok(Template::literal(text)) }
        };
        if !has_rows && url.has_placeholders() {
            return Err(format!(
                "URL `{}` names a column, but there are no rows to take it from; add --dataset",
                url.redacted()
            ));
        }
        let path = template(&url.path)
            .map_err(|reason| format!("the path of URL `{}` {reason}", url.redacted()))?;
        let value = |header: &Header| {
            template(&header.value)
                .map_err(|reason| format!("-H got `{}: ...`, which {reason}", header.name))
        };
        let values = shape.headers.iter().map(value).collect::<Result<_, _>>()?;
        Ok(Head { shape, url, path, values, is_kept_alive })
    }

    /// Appends the head, up to and with the empty line. A header of the user's replaces ours. The
    /// error is a fragment that follows "row N".
    pub fn write(&self, sample: &Sample, body: BodyFacts, out: &mut Vec<u8>) -> Result<(), String> {
        let shape = self.shape;
        let method = shape.method_with(body.length.is_some());
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        self.path.render(sample, Escape::Percent, out)?;
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let mut ours = |name: &str, value: std::fmt::Arguments<'_>| {
            if !shape.sets(name) {
                write!(out, "{name}: {value}\r\n").expect("memory takes it");
            }
        };
        ours("Host", format_args!("{}", self.url.authority()));
        ours("User-Agent", format_args!("{USER_AGENT}"));
        let accept = if body.is_stream { "text/event-stream" } else { "*/*" };
        ours("Accept", format_args!("{accept}"));
        if !self.is_kept_alive {
            ours("Connection", format_args!("close"));
        }
        match (&shape.api_key, shape.auth.as_ref().or(self.url.user_info.as_ref())) {
            (Some(Secret(key)), _) => ours("Authorization", format_args!("Bearer {key}")),
            (None, Some(Secret(pair))) => {
                ours("Authorization", format_args!("Basic {}", base64(pair.as_bytes())));
            }
            (None, None) => {}
        }
        if body.length.is_some() {
            let own = shape.content_type.as_deref().unwrap_or(CONTENT_TYPE);
            ours("Content-Type", format_args!("{own}"));
        }
        // RFC 9110, 8.6: methods that expect a body announce an empty one.
        if body.length.is_some() || METHODS_WITH_BODY.contains(&method) {
            ours("Content-Length", format_args!("{}", body.length.unwrap_or(0)));
        }
        for (header, value) in shape.headers.iter().zip(&self.values) {
            out.extend_from_slice(header.name.as_bytes());
            out.extend_from_slice(b": ");
            value.render(sample, Escape::Header, out)?;
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// The program and its version.
pub const USER_AGENT: &str = concat!("loadgen-uring/", env!("CARGO_PKG_VERSION"));
/// APIs are what is loaded; ab and hey send text types, curl a form.
pub const CONTENT_TYPE: &str = "application/json";
const METHODS_WITH_BODY: [&str; 3] = ["POST", "PUT", "PATCH"];
