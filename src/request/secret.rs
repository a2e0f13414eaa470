//! The secrets of a run, so that none of them is shown when the endpoint sends it back: an error
//! page that quotes the request would otherwise end up in the report.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::url::{REDACTED, Secret, is_secret_name, secret_parameters};
use super::{RequestShape, Url, base64};

/// Every secret text of a run, longest first. Cheap to clone.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[String]>);

impl Secrets {
    /// Header values, credentials, and query parameters with secret names; what they consist of
    /// too, as an endpoint may quote the token alone.
    pub fn of(shape: &RequestShape, urls: &[Url]) -> Secrets {
        let mut texts = Vec::new();
        for header in shape.headers.iter().filter(|header| is_secret_name(&header.name)) {
            let parts = header.value.split([' ', ';', ',', '=']);
            texts.extend(parts.filter(|part| part.len() >= PART_BYTES_MIN).map(str::to_owned));
            texts.push(header.value.clone());
        }
        let credentials = shape.auth.iter().chain(urls.iter().flat_map(|url| &url.user_info));
        for Secret(pair) in credentials {
            texts.extend(pair.split_once(':').map(|(_, password)| password.to_owned()));
            texts.push(base64(pair.as_bytes()));
            texts.push(pair.clone());
        }
        texts.extend(shape.api_key.iter().map(|Secret(key)| key.clone()));
        for url in urls {
            texts.extend(secret_parameters(url).map(str::to_owned));
        }
        texts.retain(|text| text.len() >= BYTES_MIN);
        // As an answer quotes them that is JSON.
        texts.extend(texts.iter().map(|text| in_json(text)).collect::<Vec<_>>());
        let mut texts: Vec<String> = texts.iter().map(|text| as_messages_show(text)).collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts.dedup();
        Secrets(texts.into())
    }

    /// A message of a failure with the secrets masked, also one that is cut at its end.
    pub fn masked(&self, message: &str) -> String {
        let mut text = message.to_owned();
        for secret in &*self.0 {
            text = text.replace(secret.as_str(), REDACTED);
        }
        let begins_at_end = |secret: &String| {
            (BYTES_MIN..secret.len()).rev().find(|&length| text.ends_with(&secret[..length]))
        };
        if let Some(length) = self.0.iter().filter_map(begins_at_end).max() {
            text.truncate(text.len() - length);
            text.push_str(REDACTED);
        }
        text
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Bytes from the wire as the messages of failures keep them.
fn as_messages_show(text: &str) -> String {
    let is_kept = |byte: u8| (0x20..0x7f).contains(&byte);
    text.bytes().map(|byte| if is_kept(byte) { char::from(byte) } else { '.' }).collect()
}

/// Shorter texts are words by accident: masking each `a` would hide the message and no secret.
const BYTES_MIN: usize = 4;
/// Parts of a header value from here on: `Bearer` is none.
const PART_BYTES_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Header;

    #[test]
    fn what_an_endpoint_quotes_is_masked_whole_in_part_and_cut() {
        let header = |text| Header::parse(text).expect("valid");
        let shape = RequestShape {
            headers: ["Authorization: Bearer tok-12345678", "X-Api-Key: ä-hunter2", "X-Team: open"]
                .map(header)
                .into(),
            auth: Some(Secret("me:pass-word".into())),
            api_key: Some(Secret(r#"sk-9"87\65"#.into())),
            ..RequestShape::default()
        };
        let url = Url::parse("http://u:geheim@h/?token=q-secret&x=plain").expect("valid");
        let secrets = Secrets::of(&shape, &[url]);
        for (message, shown) in [
            ("503 busy", "503 busy"),
            ("401 X-Team: open x=plain", "401 X-Team: open x=plain"),
            ("no tok-12345678 here", "no <redacted> here"),
            ("Bearer tok-12345678.", "<redacted>."),
            ("key ..-hunter2", "key <redacted>"),
            (r#"Incorrect API key: sk-9"87\65"#, "Incorrect API key: <redacted>"),
            (r#"{"error": "sk-9\"87\\65"}"#, r#"{"error": "<redacted>"}"#),
            ("Basic bWU6cGFzcy13b3Jk", "Basic <redacted>"),
            ("me:pass-word, pass-word", "<redacted>, <redacted>"),
            ("geheim ?token=q-secret", "<redacted> ?token=<redacted>"),
            ("cut tok-1234", "cut <redacted>"),
            ("cut tok", "cut tok"),
        ] {
            assert_eq!(secrets.masked(message), shown);
        }
        assert!(!format!("{secrets:?}").contains("geheim"));
        assert_eq!(Secrets::default().masked("anything"), "anything");
    }
}
