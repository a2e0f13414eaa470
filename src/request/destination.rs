//! Where connections go: names are resolved here, once, before the run. The first address that the
//! system's resolver gives (of the family of `--source-ip`, if that was given) is used throughout.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use loadgen_shards::query::{Address, Target};
use loadgen_shards::tls::{TlsPlan, TlsTarget};

use super::url::Url;
use crate::config::Config;
use crate::error::Error;

/// A resolver of names: host and port to addresses.
pub type Resolve<'a> = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + 'a;

/// The distinct destinations of a run, in the order in which they are first named.
pub struct Destinations<'a> {
    config: &'a Config,
    resolve: &'a Resolve<'a>,
    resolved: HashMap<(String, u16), SocketAddr>,
    /// Read for the first https URL.
    tls: Option<TlsPlan>,
    targets: Vec<Target>,
}

impl<'a> Destinations<'a> {
    /// None yet.
    pub fn new(config: &'a Config, resolve: &'a Resolve<'a>) -> Destinations<'a> {
        let (resolved, targets) = (HashMap::new(), Vec::new());
        Destinations { config, resolve, resolved, tls: None, targets }
    }

    /// The index of the target of a URL.
    pub fn index_of(&mut self, url: &Url) -> Result<u32, Error> {
        let address = match &self.config.unix_socket {
            Some(path) => Address::Unix(path.clone()),
            None => Address::Inet(self.resolved(url)?),
        };
        let tls = if url.is_https { Some(self.tls_to(url)?) } else { None };
        let target = Target { tls, ..Target::plain(address, self.config.source_ip) };
        let known = self.targets.iter().position(|other| *other == target);
        let index = known.unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.len() - 1
        });
        Ok(u32::try_from(index).expect("a target is an address and a port"))
    }

    /// All of them.
    pub fn into_targets(self) -> Vec<Target> {
        self.targets
    }

    fn tls_to(&mut self, url: &Url) -> Result<TlsTarget, Error> {
        let plan = match self.tls.take() {
            Some(plan) => plan,
            None => TlsPlan::new(&self.config.tls).map_err(Error::usage)?,
        };
        self.tls.insert(plan).target(&url.host).map_err(Error::usage)
    }

    fn resolved(&mut self, url: &Url) -> Result<SocketAddr, Error> {
        let key = destination(self.config, url);
        if let Some(address) = self.resolved.get(&key) {
            return Ok(*address);
        }
        let address = resolve_first(self.config, url, &key, self.resolve)?;
        self.resolved.insert(key, address);
        Ok(address)
    }
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
    resolve: &Resolve<'_>,
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
