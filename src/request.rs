//! Request bytes: one head (and body) for each URL, and where each goes, in the table that all
//! shards share.
//!
//! Called by [`crate::plan`]. Names are resolved here, once, before the run: the first address that
//! the system's resolver gives (of the family of `--source-ip`, if that was given) is used
//! throughout.

pub mod secret;
pub mod url;

use std::fmt;
use std::io::{self, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadgen_shards::answer::AnswerPlan;
use loadgen_shards::query::{Address, Request, RequestTable, Target};
use loadgen_shards::tls::TlsPlan;

use crate::config::Config;
use crate::error::{Error, shown};
use url::{REDACTED, Secret, Url, is_secret_name};

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
        let value = value.trim_matches([' ', '\t']);
        if !is_token(name) {
            return Err(Error::value(
                "-H",
                &format!("{name}: ..."),
                "a header name of letters, digits and !#$%&'*+-.^_`|~",
            ));
        }
        if let Some(control) = value.chars().find(|c| c.is_ascii_control() && *c != '\t') {
            return Err(Error::usage(format!(
                "-H got `{name}: ...` with {control:?} in the value; allowed: no line breaks or \
                control characters"
            )));
        }
        let computed = ["content-length", "transfer-encoding"];
        if computed.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(Error::usage(format!(
                "-H got `{name}: ...`, which is computed from the body; leave it out"
            )));
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
}

impl RequestShape {
    /// The method that is sent.
    pub fn method(&self) -> &str {
        let has_body = self.body.is_some() || self.body_file.is_some();
        self.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" })
    }

    /// Whether the values make one valid request.
    pub fn check(&self) -> Result<(), Error> {
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
            if self.body.is_none() && self.body_file.is_none() {
                return Err(Error::usage("-T (--content-type) needs a body: -b or --body-file"));
            }
        }
        Ok(())
    }

    fn sets(&self, name: &str) -> bool {
        self.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name))
    }

    /// The head of a request to `url`, up to and with the empty line. A header of the user's
    /// replaces ours.
    fn head(&self, url: &Url, body: Option<&[u8]>, keepalive: bool) -> Vec<u8> {
        let method = self.method();
        let mut head = format!("{method} {} HTTP/1.1\r\n", url.path);
        let mut ours = |name: &str, value: &str| {
            if !self.sets(name) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        };
        ours("Host", &url.authority());
        ours("User-Agent", USER_AGENT);
        ours("Accept", "*/*");
        if !keepalive {
            ours("Connection", "close");
        }
        if let Some(Secret(auth)) = self.auth.as_ref().or(url.user_info.as_ref()) {
            ours("Authorization", &format!("Basic {}", base64(auth.as_bytes())));
        }
        if body.is_some() {
            ours("Content-Type", self.content_type.as_deref().unwrap_or(CONTENT_TYPE));
        }
        // RFC 9110, 8.6: methods that expect a body announce an empty one.
        if body.is_some() || METHODS_WITH_BODY.contains(&method) {
            ours("Content-Length", &body.map_or(0, <[u8]>::len).to_string());
        }
        for header in &self.headers {
            head.push_str(&format!("{}: {}\r\n", header.name, header.value));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    fn body(&self) -> Result<Option<Vec<u8>>, Error> {
        match (&self.body, &self.body_file) {
            (Some(body), _) => Ok(Some(body.clone().into_bytes())),
            (None, Some(path)) => read_body(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Builds the table of a run. `embedded` is the address of the embedded endpoint, used when there
/// is no URL.
pub fn table(config: &Config, embedded: Option<SocketAddr>) -> Result<RequestTable, Error> {
    table_with(config, embedded, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
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

fn table_with(
    config: &Config,
    embedded: Option<SocketAddr>,
    resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<RequestTable, Error> {
    let body = config.request.body()?;
    let urls = urls(config, embedded);
    assert!(!urls.is_empty(), "without a URL the embedded endpoint has been started");
    let mut arena = Vec::new();
    let mut requests = Vec::with_capacity(urls.len());
    let mut targets: Vec<Target> = Vec::new();
    let mut resolved: Vec<((String, u16), SocketAddr)> = Vec::new();
    let tls = match urls.iter().any(|url| url.is_https) {
        true => Some(TlsPlan::new(&config.tls).map_err(Error::usage)?),
        false => None,
    };
    for url in &urls {
        let address = match &config.unix_socket {
            Some(path) => Address::Unix(path.clone()),
            None => {
                let key = destination(config, url);
                let known =
                    resolved.iter().find(|(other, _)| *other == key).map(|(_, address)| *address);
                Address::Inet(match known {
                    Some(address) => address,
                    None => {
                        let address = resolve_first(config, url, &key, &resolve)?;
                        resolved.push((key, address));
                        address
                    }
                })
            }
        };
        let tls = match &tls {
            Some(plan) if url.is_https => Some(plan.target(&url.host).map_err(Error::usage)?),
            _ => None,
        };
        let target = Target { tls, ..Target::plain(address, config.source_ip) };
        let index = targets.iter().position(|other| *other == target).unwrap_or_else(|| {
            targets.push(target);
            targets.len() - 1
        });
        let begin = arena.len();
        arena.extend_from_slice(&config.request.head(url, body.as_deref(), config.keepalive));
        arena.extend_from_slice(body.as_deref().unwrap_or_default());
        if arena.len() as u64 > ARENA_BYTES_MAX {
            return Err(Error::usage(
                "all requests together exceed 2 GiB; use fewer URLs or a smaller body",
            ));
        }
        let is_head = config.request.method() == "HEAD";
        requests.push(Request::plain(begin..arena.len(), index as u32, is_head));
    }
    Ok(RequestTable {
        arena: arena.into(),
        requests: requests.into(),
        targets: Arc::from(targets),
        answers: Arc::new(AnswerPlan::PLAIN),
    })
}

/// Name and port that are connected to, after `--connect-to`.
fn destination(config: &Config, url: &Url) -> (String, u16) {
    let matching = config.connect_to.iter().find(|rule| {
        let host = rule.host.as_deref().is_none_or(|host| host.eq_ignore_ascii_case(&url.host));
        host && rule.port.is_none_or(|port| port == url.port)
    });
    match matching {
        Some(rule) => (
            rule.address.as_ref().unwrap_or(&url.host).clone(),
            rule.address_port.unwrap_or(url.port),
        ),
        None => (url.host.clone(), url.port),
    }
}

fn resolve_first(
    config: &Config,
    url: &Url,
    (host, port): &(String, u16),
    resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<SocketAddr, Error> {
    let addresses = resolve(host, *port).map_err(|error| {
        Error::setup(format!(
            "cannot resolve the host `{host}` of {}: {error}; check the spelling and \
            /etc/resolv.conf (getent hosts \
             {host}), or name an address with --connect-to ::ADDR:{port}",
            url.redacted()
        ))
    })?;
    let source = config.source_ip;
    let fits =
        |address: &SocketAddr| source.is_none_or(|source| source.is_ipv4() == address.is_ipv4());
    addresses.into_iter().find(fits).ok_or_else(|| match source {
        Some(source) => Error::setup(format!(
            "the host `{host}` has no address of the family of --source-ip {source}; check: \
            getent ahosts {host}"
        )),
        None => Error::setup(format!(
            "the host `{host}` has no address; check: getent ahosts \
        {host}"
        )),
    })
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

const USER_AGENT: &str = concat!("loadgen-uring/", env!("CARGO_PKG_VERSION"));
/// APIs are what is loaded; ab and hey send text types, curl a form.
const CONTENT_TYPE: &str = "application/json";
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
const METHODS_WITH_BODY: [&str; 3] = ["POST", "PUT", "PATCH"];
/// Largest body.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// Largest table: several URLs repeat the body.
const ARENA_BYTES_MAX: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{self, Parsed};

    fn config(line: &[&str]) -> Config {
        match cli::parse(line.iter().map(OsString::from)) {
            Ok(Parsed::Load(load)) => Config::from_cli(*load).expect("valid"),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    /// Every name is 192.0.2.1 and 2001:db8::1, except those that begin with `missing`.
    fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if host.starts_with("missing") {
            return Err(io::Error::other("Name or service not known"));
        }
        match host.parse() {
            Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
            Err(_) => Ok(["192.0.2.1", "2001:db8::1"]
                .map(|ip| SocketAddr::new(ip.parse().expect("an address"), port))
                .to_vec()),
        }
    }

    fn table(line: &[&str]) -> Result<RequestTable, Error> {
        table_with(&config(line), None, resolve)
    }

    fn text(line: &[&str]) -> String {
        let table = table(line).expect("valid");
        String::from_utf8(table.arena[table.requests[0].range.clone()].to_vec()).expect("UTF-8")
    }

    fn agent() -> String {
        format!("User-Agent: {USER_AGENT}\r\nAccept: */*\r\n")
    }

    #[test]
    fn plain_get_is_exactly_this() {
        let agent = agent();
        for (url, expected) in [
            ("http://h", format!("GET / HTTP/1.1\r\nHost: h\r\n{agent}\r\n")),
            (
                "http://h:81/a?b=%20#c",
                format!("GET /a?b=%20 HTTP/1.1\r\nHost: h:81\r\n{agent}\r\n"),
            ),
            ("http://[::1]:81/", format!("GET / HTTP/1.1\r\nHost: [::1]:81\r\n{agent}\r\n")),
        ] {
            assert_eq!(text(&[url]), expected);
        }
    }

    #[test]
    fn a_body_makes_it_a_post_with_its_length_and_type() {
        let agent = agent();
        let head = |method, rest: &str| format!("{method} / HTTP/1.1\r\nHost: h\r\n{agent}{rest}");
        for (line, expected) in [
            (
                vec!["-b", "{}"],
                head("POST", "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"),
            ),
            (
                vec!["-b", "ä", "-T", "text/plain"],
                head("POST", "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nä"),
            ),
            (
                vec!["-b", "", "-m", "GET"],
                head("GET", "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n"),
            ),
            (vec!["-X", "PUT"], head("PUT", "Content-Length: 0\r\n\r\n")),
            (vec!["-X", "DELETE"], head("DELETE", "\r\n")),
            (
                vec!["-b", "x", "-H", "content-type: a/b"],
                head("POST", "Content-Length: 1\r\ncontent-type: a/b\r\n\r\nx"),
            ),
            (vec!["--disable-keepalive"], head("GET", "Connection: close\r\n\r\n")),
        ] {
            assert_eq!(text(&[&["http://h/"], &line[..]].concat()), expected, "{line:?}");
        }
    }

    #[test]
    fn headers_of_the_user_replace_ours_in_any_case() {
        let got = text(&[
            "http://h/",
            "-H",
            "hOST: other",
            "-H",
            "user-agent:x ",
            "-H",
            "ACCEPT:",
            "-H",
            "X: a:b",
        ]);
        assert_eq!(
            got,
            "GET / HTTP/1.1\r\nhOST: other\r\nuser-agent: x\r\nACCEPT: \r\nX: a:b\r\n\r\n"
        );
    }

    #[test]
    fn authorization_header_wins_over_the_flag_and_the_flag_over_the_url() {
        let authorization = |line: &[&str]| {
            let head = text(line);
            let lines =
                head.lines().filter(|line| line.to_ascii_lowercase().starts_with("authorization"));
            lines.map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(authorization(&["http://u:p@h/"]), ["Authorization: Basic dTpw"]);
        assert_eq!(authorization(&["http://u:p@h/", "-a", "x:y"]), ["Authorization: Basic eDp5"]);
        let given = ["http://u:p@h/", "-a", "x:y", "-H", "authorization: Bearer t"];
        assert_eq!(authorization(&given), ["authorization: Bearer t"]);
        assert!(authorization(&["http://h/"]).is_empty());
    }

    #[test]
    fn urls_share_a_target_when_they_connect_to_the_same_place() {
        let table =
            table(&["http://a/", "http://b/1", "http://a:81/", "http://A/2"]).expect("valid");
        assert_eq!(table.targets.len(), 2);
        let targets: Vec<u32> = table.requests.iter().map(|request| request.target).collect();
        assert_eq!(targets, [0, 0, 1, 0]);
        let mut end = 0;
        for request in table.requests.iter() {
            assert_eq!(request.range.start, end, "ranges follow each other");
            end = request.range.end;
        }
        assert_eq!(end, table.arena.len());
    }

    #[test]
    fn transport_flags_change_the_address_and_nothing_of_the_request() {
        let address = |line: &[&str]| table(line).map(|table| table.targets[0].address.clone());
        let inet = |text: &str| Ok(Address::Inet(text.parse().expect("an address")));
        assert_eq!(address(&["http://h:8080/"]), inet("192.0.2.1:8080"));
        assert_eq!(address(&["http://[::1]/"]), inet("[::1]:80"));
        assert_eq!(
            address(&["http://h/", "--connect-to", "H:80:10.0.0.2:81"]),
            inet("10.0.0.2:81")
        );
        assert_eq!(
            address(&["http://h/", "--connect-to", "h:81:10.0.0.2:81"]),
            inet("192.0.2.1:80")
        );
        assert_eq!(address(&["http://h/", "--connect-to", ":::99"]), inet("192.0.2.1:99"));
        let first_wins =
            ["http://h/", "--connect-to", "::10.0.0.1:", "--connect-to", "::10.0.0.2:"];
        assert_eq!(address(&first_wins), inet("10.0.0.1:80"));
        assert_eq!(address(&["http://h/", "--source-ip", "::1"]), inet("[2001:db8::1]:80"));
        assert_eq!(
            address(&["http://missing/", "--unix-socket", "/s"]),
            Ok(Address::Unix("/s".into()))
        );
        let plain = text(&["http://h/"]);
        assert_eq!(text(&["http://h/", "--connect-to", ":::99"]), plain);
        assert_eq!(text(&["http://h/", "--unix-socket", "/s"]), plain);
    }

    #[test]
    fn what_cannot_be_resolved_or_read_is_told_with_what_to_check() {
        for (line, code, says) in [
            (
                ["http://missing.example/", "-c", "1"],
                3,
                "cannot resolve the host `missing.example`",
            ),
            (["http://missing.example/", "-c", "1"], 3, "/etc/resolv.conf"),
            (["http://10.0.0.2/", "--source-ip", "::1"], 3, "family of --source-ip ::1"),
            (
                ["http://h/", "--body-file", "/nonexistent/body"],
                2,
                "`/nonexistent/body`, which cannot be read",
            ),
            (["http://h/", "--body-file", "/"], 2, "cannot be read"),
        ] {
            let error = table(&line).expect_err(says);
            assert_eq!(error.exit_code(), code, "{line:?}");
            assert!(error.to_string().contains(says), "{line:?}: {error}");
        }
    }

    #[test]
    fn nothing_that_the_user_types_can_break_the_framing() {
        for text in
            ["X: a\r\nY: b", "X: a\nb", "X: a\0", "X\r\nY: b", "X : a", ": a", "", "X: \x7f"]
        {
            let error = Header::parse(text).expect_err(text).to_string();
            assert!(error.contains("-H") && !error.contains('\n'), "{error}");
        }
        for text in ["Content-Length: 3", "transfer-encoding: chunked"] {
            assert!(Header::parse(text).expect_err(text).to_string().contains("leave it out"));
        }
        for method in ["", "GE T", "GET\r\n", "ä", "CONNECT", "post"] {
            let shape = RequestShape { method: Some(method.into()), ..RequestShape::default() };
            assert!(shape.check().is_err(), "{method:?}");
        }
        let shape = RequestShape { method: Some("M-SEARCH".into()), ..RequestShape::default() };
        assert_eq!(shape.check(), Ok(()));
        assert_eq!(Header::parse("X:\ta b\t").map(|header| header.value), Ok("a b".to_string()));
    }

    #[test]
    fn head_requests_are_marked() {
        assert!(table(&["http://h/", "-X", "HEAD"]).expect("valid").requests[0].is_head);
        assert!(!table(&["http://h/"]).expect("valid").requests[0].is_head);
    }

    #[test]
    fn without_a_url_the_embedded_endpoint_is_the_target() {
        let address: SocketAddr = "127.0.0.1:4321".parse().expect("an address");
        let table =
            table_with(&config(&["max-throughput"]), Some(address), resolve).expect("valid");
        assert_eq!(table.targets[0].address, Address::Inet(address));
        assert!(String::from_utf8_lossy(&table.arena).contains("Host: 127.0.0.1:4321\r\n"));
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("\u{ff}\u{fe}", "w7/Dvg=="),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn secrets_are_not_in_debug_texts() {
        let config = config(&[
            "http://u:geheim@h/?token=geheim",
            "-a",
            "u:geheim",
            "-H",
            "X-Api-Key: geheim",
            "-H",
            "X: open",
        ]);
        let text = format!("{config:?}");
        assert!(text.contains("X: open"));
        // The query is part of the request line; only what is written for people masks it.
        assert_eq!(text.matches("geheim").count(), 1, "{text}");
        assert!(!config.urls[0].redacted().contains("geheim"));
    }
}
