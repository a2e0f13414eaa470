//! The URL of an endpoint, by the grammar of [RFC 3986] for `http` and `https`,
//! strictly: what is sent is byte
//! for byte what was typed, so nothing is normalised, and what could not be sent as it stands is
//! refused with what to write instead.
//!
//! Why not the crate `url`: it follows the browsers' rules, which rewrite the path (spaces,
//! backslashes, dots, `%`), and brings the tables of internationalised names with it.
//!
//! [RFC 3986]: https://www.rfc-editor.org/rfc/rfc3986#appendix-A

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// What stands in files and messages in place of a secret.
pub const REDACTED: &str = "<redacted>";

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Name or address, without the brackets of an IPv6 literal.
    pub host: String,
    /// The scheme is https: TLS.
    pub is_https: bool,
    /// Port; where none was given, 80, or 443 for https.
    pub port: u16,
    /// Path and query as typed, at least `/`; no fragment.
    pub path: String,
    /// `USER:PASS` before the host, percent-decoded.
    pub user_info: Option<Secret>,
}

impl Url {
    /// Parses one URL; the error is a fragment for after "URL `...`".
    pub fn parse(text: &str) -> Result<Url, String> {
        if let Some((at, bad)) = text.char_indices().find(|(_, c)| !c.is_ascii_graphic()) {
            return Err(not_allowed(at, bad));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("has no scheme; write http://{}", text.trim_start_matches('/')));
        };
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(format!("has the scheme `{scheme}`; allowed: http, https")),
        };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        let (user_info, host_port) = match authority.rsplit_once('@') {
            Some(("", host_port)) => (None, host_port),
            Some((user_info, host_port)) => (Some(parse_user_info(user_info)?), host_port),
            None => (None, authority),
        };
        let (host, port) = parse_host_port(host_port)?;
        let port = port.unwrap_or(default_port(is_https));
        check_path(path, scheme.len() + "://".len() + authority_end)?;
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        Ok(Url { host, is_https, port, path, user_info })
    }

    /// Whether a `{{column}}` stands in path or query.
    pub fn has_placeholders(&self) -> bool {
        self.path.contains("{{")
    }

    /// The value of the Host field: brackets around IPv6, the port unless it is that of the scheme.
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.is_https) {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The URL for screens and files: user-info and the values of secret-looking query parameters
    /// masked.
    pub fn redacted(&self) -> String {
        let user_info =
            if self.user_info.is_some() { format!("{REDACTED}@") } else { String::new() };
        let path = match self.path.split_once('?') {
            Some((path, query)) => format!("{path}?{}", redacted_query(query)),
            None => self.path.clone(),
        };
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{user_info}{}{path}", self.authority())
    }
}

/// A URL as typed, with what stands before an `@` and the values of secret-looking query parameters
/// masked: for messages about one that does not parse.
pub fn masked(text: &str) -> String {
    let authority_at = text.find("://").map_or(0, |at| at + "://".len());
    let text = match text.rfind('@') {
        Some(at) if at >= authority_at => {
            format!("{}{REDACTED}{}", &text[..authority_at], &text[at..])
        }
        _ => text.to_string(),
    };
    match text.split_once('?') {
        Some((before, query)) => format!("{before}?{}", redacted_query(query)),
        None => text,
    }
}

/// The values of secret-looking query parameters.
pub fn secret_parameters(url: &Url) -> impl Iterator<Item = &str> {
    let query = url.path.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value)
}

/// Whether a header or query parameter of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let parts =
        ["auth", "token", "secret", "passw", "cookie", "credential", "signature", "session"];
    // `key` as a word of its own: api-key, x-goog-api-key, apikey, key; not keyboard.
    parts.iter().any(|part| name.contains(part)) || name.ends_with("key") || name == "sig"
}

fn redacted_query(query: &str) -> String {
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, _)) if is_secret_name(name) => format!("{name}={REDACTED}"),
            _ => pair.to_string(),
        })
        .collect();
    pairs.join("&")
}

fn parse_user_info(text: &str) -> Result<Secret, String> {
    let allowed =
        |byte: u8| is_unreserved(byte) || is_sub_delimiter(byte) || byte == b':' || byte == b'%';
    if !text.bytes().all(allowed) {
        return Err(
            "has a character before @ that must be percent-encoded (@ is %40, / is %2F)".into()
        );
    }
    let text = percent_decoded(text).ok_or("has a % before @ without two hexadecimal digits")?;
    // Basic authentication needs the colon; a user without a password has an empty one.
    Ok(Secret(if text.contains(':') { text } else { format!("{text}:") }))
}

fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

/// `HOST`, `HOST:PORT`, `[IPv6]`, `[IPv6]:PORT`; the host without brackets.
fn parse_host_port(text: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (literal, port) = rest.split_once(']').ok_or("has [ without ] in the host")?;
        if literal.contains('%') {
            return Err(
                "has an IPv6 zone, which HTTP cannot carry; use --connect-to with an address"
                    .into(),
            );
        }
        let address: Ipv6Addr =
            literal.parse().map_err(|_| format!("has `[{literal}]`, which is no IPv6 address"))?;
        (address.to_string(), port)
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        check_name(host)?;
        (host.to_string(), port)
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host, None)),
        None => Err(format!("has `{port}` after the host; allowed: :PORT")),
        // RFC 3986 allows the colon without a port.
        Some("") => Ok((host, None)),
        Some(port) => Ok((host, Some(parse_port(port)?))),
    }
}

/// A port of 1 to 65535, digits only.
pub fn parse_port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if digits { text.parse().ok().filter(|port| *port > 0) } else { None };
    port.ok_or_else(|| format!("has the port `{text}`; allowed: 1 to 65535"))
}

fn check_name(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("has no host".into());
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if let Some(bad) = host.bytes().find(|byte| !allowed(*byte)) {
        let bad = char::from(bad);
        return Err(format!(
            "has `{bad}` in the host; allowed: a name, an IPv4 address, or [IPv6]"
        ));
    }
    // Digits and points only: the user means an IPv4 address, and a resolver would read 127.1 or
    // 010.0.0.1 its own way.
    let is_numeric = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_numeric && host.parse::<Ipv4Addr>().is_err() {
        return Err(format!("has `{host}`, which is no IPv4 address"));
    }
    Ok(())
}

/// pchar, `/` and `?`, well-formed percent-encoding; `[` and `]` too in the query, where every
/// client sends them raw; and `{{column}}`.
fn check_path(text: &str, offset: usize) -> Result<(), String> {
    let bytes = text.as_bytes();
    let query_at = text.find('?').unwrap_or(text.len());
    let mut placeholder_end = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if at < placeholder_end {
            continue;
        }
        if let Some(length) = placeholder_length(&text[at..]) {
            placeholder_end = at + length;
            continue;
        }
        let is_allowed = match byte {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            }
            b'[' | b']' => at > query_at,
            b'/' | b'?' | b':' | b'@' => true,
            _ => is_unreserved(byte) || is_sub_delimiter(byte),
        };
        if !is_allowed {
            return Err(not_allowed(offset + at, char::from(byte)));
        }
    }
    Ok(())
}

/// The length of the `{{column}}` at the beginning of a text, bytes.
fn placeholder_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("{{")?;
    let name_end = inner.find(['{', '}']).filter(|end| *end > 0)?;
    inner[name_end..].starts_with("}}").then_some(name_end + "{{}}".len())
}

fn not_allowed(at: usize, bad: char) -> String {
    let mut utf8 = [0; 4];
    let encoded: String =
        bad.encode_utf8(&mut utf8).bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("has {bad:?} at position {}, which a URL must not hold; write {encoded}", at + 1)
}

/// A character that stands for itself anywhere in a URL.
pub(super) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_sub_delimiter(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

/// `None` for a `%` without two hexadecimal digits, or when the result is not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            decoded.push((high * 16 + low) as u8);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_was_typed() {
        for (text, host, port, path, authority) in [
            ("http://h", "h", 80, "/", "h"),
            ("http://h/", "h", 80, "/", "h"),
            ("HTTP://h/", "h", 80, "/", "h"),
            ("http://h:", "h", 80, "/", "h"),
            ("http://h:80/", "h", 80, "/", "h"),
            ("http://@h/", "h", 80, "/", "h"),
            ("http://h:8080", "h", 8080, "/", "h:8080"),
            ("http://h?a=b", "h", 80, "/?a=b", "h"),
            ("http://h/a/../b//c/.", "h", 80, "/a/../b//c/.", "h"),
            ("http://h/a%2fB%2F?q=%20+x&y[]=1#frag?/", "h", 80, "/a%2fB%2F?q=%20+x&y[]=1", "h"),
            ("http://h#frag", "h", 80, "/", "h"),
            ("http://h/a?b?c/d:e@f", "h", 80, "/a?b?c/d:e@f", "h"),
            ("http://a.b-c_d.example./x", "a.b-c_d.example.", 80, "/x", "a.b-c_d.example."),
            ("http://10.0.0.2:65535/", "10.0.0.2", 65535, "/", "10.0.0.2:65535"),
            ("http://[::1]/", "::1", 80, "/", "[::1]"),
            ("http://[::1]:81/p", "::1", 81, "/p", "[::1]:81"),
            ("http://[2001:DB8:0:0::1]", "2001:db8::1", 80, "/", "[2001:db8::1]"),
        ] {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(
                (url.host.as_str(), url.port, url.path.as_str()),
                (host, port, path),
                "{text}"
            );
            assert_eq!(url.authority(), authority, "{text}");
            assert_eq!(url.user_info, None, "{text}");
        }
    }

    #[test]
    fn https_has_a_port_of_its_own() {
        for (text, port, authority) in [
            ("https://h", 443, "h"),
            ("HTTPS://h:/x", 443, "h"),
            ("https://h:443/", 443, "h"),
            ("https://h:80/", 80, "h:80"),
            ("http://h:443/", 443, "h:443"),
            ("https://[::1]/", 443, "[::1]"),
            ("https://10.0.0.2:8443/", 8443, "10.0.0.2:8443"),
        ] {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(url.is_https, text.to_ascii_lowercase().starts_with("https:"), "{text}");
            assert_eq!((url.port, url.authority().as_str()), (port, authority), "{text}");
        }
        let url = Url::parse("https://u:p@h:8443/a?key=x").expect("valid");
        assert_eq!(url.redacted(), "https://<redacted>@h:8443/a?key=<redacted>");
    }

    #[test]
    fn user_info_is_decoded_and_masked() {
        for (text, decoded) in [
            ("http://u:p@h/", "u:p"),
            ("http://u@h/", "u:"),
            ("http://u:@h/", "u:"),
            ("http://u:p:q@h/", "u:p:q"),
            ("http://a%40b:%3a%C3%A4@h/", "a@b::ä"),
        ] {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(url.user_info, Some(Secret(decoded.into())), "{text}");
            assert_eq!(url.redacted(), "http://<redacted>@h/", "{text}");
            assert!(!format!("{url:?}").contains(decoded), "{text}");
        }
    }

    #[test]
    fn a_url_that_does_not_parse_is_shown_without_its_password() {
        assert_eq!(masked("http://u:p@h:x/"), "http://<redacted>@h:x/");
        assert_eq!(masked("u:p@h"), "<redacted>@h");
        assert_eq!(masked("http://h:x/"), "http://h:x/");
        assert_eq!(masked("a@b://c"), "a@b://c");
    }

    #[test]
    fn secret_looking_query_parameters_are_masked_and_others_kept() {
        let url =
            Url::parse("http://h:81/p?a=1&api_key=xyz&Token=t&keyboard=us&sig=s&x").expect("valid");
        assert_eq!(
            url.redacted(),
            "http://h:81/p?a=1&api_key=<redacted>&Token=<redacted>&keyboard=us&sig=<redacted>&x"
        );
    }

    #[test]
    fn what_is_no_http_url_is_refused_with_what_to_write() {
        for (text, says) in [
            ("", "no scheme"),
            ("h", "write http://h"),
            ("localhost:8080/x", "write http://localhost:8080/x"),
            ("//h/", "write http://h/"),
            ("ftp://h/", "the scheme `ftp`"),
            ("http://", "no host"),
            ("http:///path", "no host"),
            ("http://:80/", "no host"),
            ("http://h:0/", "1 to 65535"),
            ("http://h:65536/", "1 to 65535"),
            ("http://h:+80/", "1 to 65535"),
            ("http://h:8a/", "1 to 65535"),
            ("http://::1/", "no host"),
            ("http://[::1/", "[ without ]"),
            ("http://[::g]/", "no IPv6 address"),
            ("http://[fe80::1%25eth0]/", "zone"),
            ("http://[::1]x/", "after the host"),
            ("http://300.1.1.1/", "no IPv4 address"),
            ("http://127.1/", "no IPv4 address"),
            ("http://h|x/", "in the host"),
            ("http://a\\b/", "in the host"),
            ("http://u%zz:p@h/", "hexadecimal"),
            ("http://u/x:p@h |/", "write %20"),
            ("http://u[:p@h/", "percent-encoded"),
            ("http://h/a b", "write %20"),
            ("http://h/\r\nX: y", "write %0D"),
            ("http://h/\0", "write %00"),
            ("http://h/ä", "write %C3%A4"),
            ("http://h/100%", "write %25"),
            ("http://h/%zz", "write %25"),
            ("http://h/a{b}", "position 11"),
            ("http://h/[x]", "write %5B"),
            ("http://h/a\\b", "write %5C"),
            ("http://h/\"", "write %22"),
        ] {
            let error = Url::parse(text).expect_err(text);
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_column_may_stand_in_path_and_query_and_nowhere_else() {
        for (text, path) in [
            ("http://h/{{a}}", "/{{a}}"),
            ("http://h/x{{a[0]|b}}y?q={{c}}&{{d}}", "/x{{a[0]|b}}y?q={{c}}&{{d}}"),
        ] {
            let url = Url::parse(text).expect(text);
            assert_eq!(url.path, path);
            assert!(url.has_placeholders());
        }
        assert!(!Url::parse("http://h/a").expect("valid").has_placeholders());
        for text in ["http://{{a}}/", "http://h/{{}}", "http://h/{{a}", "http://h/{{{a}}}"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        assert!(Url::parse("http://h/{{ a }}").expect_err("a blank").contains("write %20"));
    }

    #[test]
    fn names_of_secrets_are_known_and_ordinary_names_are_not() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "X-API-Key",
            "api_key",
            "apikey",
            "Cookie",
            "X-Auth-Token",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["Accept", "Content-Type", "X-Team", "keyboard", "Host", "page", "sigma"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
