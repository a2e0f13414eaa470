//! What the user says of every request: method, headers, body, credentials.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::url::{REDACTED, Secret, is_secret_name};
use crate::dataset::TargetLine;
use crate::error::{Error, shown};

/// One header field of the user's.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// Field name as typed: a token.
    pub name: String,
    /// Field value without surrounding blanks; may be empty.
    pub value: String,
}

impl Header {
    /// Parses `Name: value`. A message never shows the value, which may be a secret.
    pub fn parse(text: &str) -> Result<Header, Error> {
        let Some((name, value)) = text.split_once(':') else {
            let word = text.split_whitespace().next().unwrap_or_default();
            return Err(Error::value("-H", &format!("{word} ..."), "'Name: value', with a colon"));
        };
        Header::new(name, value).map_err(|reason| {
            Error::usage(format!("-H got `{}`{reason}", shown(&format!("{name}: ..."))))
        })
    }

    /// A field that can be sent. The error is a fragment for after "`NAME: ...`".
    pub fn new(name: &str, value: &str) -> Result<Header, String> {
        let value = value.trim_matches([' ', '\t']);
        if !is_token(name) {
            return Err(
                "; allowed: a header name of letters, digits and !#$%&'*+-.^_`|~".to_owned()
            );
        }
        if let Some(control) = control_character(value) {
            return Err(format!(
                " with {control:?} in the value; allowed: no line breaks or control characters"
            ));
        }
        let computed = ["content-length", "transfer-encoding"];
        if computed.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(", which is computed from the body; leave it out".to_owned());
        }
        Ok(Header { name: name.to_string(), value: value.to_string() })
    }

    /// `Name: value` for files and screens.
    pub fn redacted(&self) -> String {
        let value = if is_secret_name(&self.name) { REDACTED } else { &self.value };
        format!("{}: {value}", self.name)
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

/// What every request looks like, whatever its URL.
#[derive(Clone, Debug, Default)]
pub struct RequestShape {
    /// `None`: POST when there is a body, else GET.
    pub method: Option<String>,
    /// The user's header fields, in order.
    pub headers: Vec<Header>,
    /// Body as typed.
    pub body: Option<String>,
    /// Body from a file.
    pub body_file: Option<PathBuf>,
    /// Content-Type of the body.
    pub content_type: Option<String>,
    /// `USER:PASS` of `-a`.
    pub auth: Option<Secret>,
    /// `--api-key`: a bearer token, which goes before `auth`; a header of the user's before both.
    pub api_key: Option<Secret>,
}

impl RequestShape {
    /// The method that is sent when no row brings a body.
    pub fn method(&self) -> &str {
        self.method_with(self.body.is_some() || self.body_file.is_some())
    }

    /// The method of a request with or without a body.
    pub fn method_with(&self, has_body: bool) -> &str {
        self.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" })
    }

    /// The shape of one line of `--targets`: its own method and headers, and ours where it has none
    /// of that name. The error is a fragment for after "target N: ".
    pub(super) fn of_target(&self, line: &TargetLine) -> Result<RequestShape, String> {
        let own = |(name, value): &(String, String)| {
            Header::new(name, value)
                .map_err(|reason| format!("`{}`{reason}", shown(&format!("{name}: ..."))))
        };
        let mut headers = line.headers.iter().map(own).collect::<Result<Vec<Header>, _>>()?;
        let is_own = |header: &Header| {
            line.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(&header.name))
        };
        headers.extend(self.headers.iter().filter(|header| !is_own(header)).cloned());
        let shape = RequestShape {
            method: Some(line.method.clone()),
            headers,
            body: None,
            body_file: None,
            ..self.clone()
        };
        shape.check(true).map_err(|error| error.to_string())?;
        Ok(shape)
    }

    /// Whether a `{{column}}` stands in the headers or in the body as typed.
    pub fn has_placeholders(&self) -> bool {
        let texts = self.headers.iter().map(|header| &header.value).chain(&self.body);
        texts.into_iter().any(|text| text.contains("{{"))
    }

    /// Whether the values make one valid request; `has_rows`: there are rows, which may bring
    /// bodies.
    pub fn check(&self, has_rows: bool) -> Result<(), Error> {
        let method = self.method();
        if !is_token(method) {
            return Err(Error::value(
                "-m (--method)",
                method,
                "an HTTP token such as GET, POST, PUT, DELETE",
            ));
        }
        let upper = method.to_ascii_uppercase();
        if upper != method && METHODS.contains(&upper.as_str()) {
            return Err(Error::value(
                "-m (--method)",
                method,
                &format!("{upper}, as methods are case-sensitive"),
            ));
        }
        if method == "CONNECT" {
            return Err(Error::value(
                "-m (--method)",
                method,
                "any method but CONNECT, which makes a tunnel",
            ));
        }
        let hosts = self.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        if hosts.count() > 1 {
            return Err(Error::usage("-H got `Host` twice; allowed: once"));
        }
        if let Some(content_type) = &self.content_type {
            if content_type.chars().any(|c| c.is_ascii_control()) || content_type.trim().is_empty()
            {
                return Err(Error::value(
                    "-T (--content-type)",
                    content_type,
                    "a media type such as text/plain",
                ));
            }
            if self.body.is_none() && self.body_file.is_none() && !has_rows {
                return Err(Error::usage("-T (--content-type) needs a body: -b or --body-file"));
            }
        }
        if let Some(Secret(key)) = &self.api_key
            && (key.is_empty() || key.bytes().any(|byte| !byte.is_ascii_graphic()))
        {
            return Err(Error::value(
                "--api-key",
                REDACTED,
                "letters, digits and signs, no blanks",
            ));
        }
        Ok(())
    }

    /// Whether the user gave this field.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name))
    }

    /// The body of `-b` or `--body-file`.
    pub(super) fn body(&self) -> Result<Option<Vec<u8>>, Error> {
        match (&self.body, &self.body_file) {
            (Some(body), _) => Ok(Some(body.clone().into_bytes())),
            (None, Some(path)) => read_body(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

fn read_body(path: &Path) -> Result<Vec<u8>, Error> {
    let name = shown(&path.to_string_lossy());
    let failed = |error: io::Error| {
        Error::usage(format!("--body-file got `{name}`, which cannot be read: {error}"))
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut body = Vec::new();
    // Bounded by what is read, not by what the file says of its size: devices and pipes have none.
    file.take(BODY_BYTES_MAX + 1).read_to_end(&mut body).map_err(failed)?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(Error::usage(format!("--body-file got `{name}`, which exceeds 1 GiB")));
    }
    Ok(body)
}

/// A token of RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A character that must not be in a header value.
pub(super) fn control_character(value: &str) -> Option<char> {
    value.chars().find(|c| c.is_ascii_control() && *c != '\t')
}

/// RFC 4648, 4, with padding.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, i| bits << 8 | u32::from(*group.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let digit = (bits >> (18 - 6 * i)) as usize & 63;
            text.push(if i <= group.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
/// Largest body.
const BODY_BYTES_MAX: u64 = 1 << 30;
