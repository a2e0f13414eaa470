//! Flags of a load that are right alone and wrong together.

use loadgen_shards::order::Order;
use loadgen_shards::shard::WIRE_STAMPS_TLS;

use super::inference::Inference;
use super::{Config, Keep, ReportDir};
use crate::error::{Error, shown};

impl Config {
    /// What is measured, and how it is judged.
    pub(super) fn check_load(&self) -> Result<(), Error> {
        let of_answers = self.goodput.iter().find(|goal| goal.figure.is_of_answers());
        if let Some(goal) = of_answers
            && self.inference.as_ref().is_some_and(Inference::never_streams)
        {
            return Err(Error::usage(format!(
                "--goodput got `{}`, which only streamed answers have, and none is asked for",
                goal.text()
            )));
        }
        if let (Some(connections), Some(most)) = (self.connections, self.max_connections)
            && connections > most
        {
            return Err(Error::usage(format!(
                "-c got `{connections}`, which is above --max-connections {most}; allowed: 1 to \
                 {most}"
            )));
        }
        if self.records != Keep::Nothing && self.common.report_dir == ReportDir::None {
            return Err(Error::usage(
                "--records and --report-dir none exclude each other: records are a file there",
            ));
        }
        let samples = self.urls.len().max(1);
        let is_urls = self.inference.is_none() && self.targets.is_none();
        if let Order::Single(index) = self.order
            && is_urls
            && index as usize >= samples
        {
            return Err(Error::value(
                "--order",
                &format!("single={index}"),
                &format!("single=0 to single={}, as there are {samples} URLs", samples - 1),
            ));
        }
        let flags = [("--slo", &self.slo), ("--fail-if", &self.fail_if)];
        for (flag, list) in flags.into_iter().chain([("--abort-if", &self.abort_if)]) {
            for expression in list {
                let needs = if self.arrivals.is_none() && expression.needs_schedule() {
                    "a schedule, which a closed loop does not have; allowed with poisson, \
                     constant and gamma"
                } else if self.goodput.is_empty() && expression.metric.needs_goodput() {
                    "to know what is good: --goodput 'latency:50ms'"
                } else {
                    continue;
                };
                let text = shown(&expression.text);
                return Err(Error::usage(format!("{flag} got `{text}`, which needs {needs}")));
            }
        }
        Ok(())
    }

    /// Where it goes.
    pub(super) fn check_transport(&self) -> Result<(), Error> {
        if self.wire_stamps.is_some() && self.urls.iter().any(|url| url.is_https) {
            return Err(Error::usage(WIRE_STAMPS_TLS));
        }
        let is_embedded = self.is_embedded();
        if self.targets.is_some() {
            let has_body = self.request.body.is_some() || self.request.body_file.is_some();
            let given = [
                ("a URL", !self.urls.is_empty()),
                ("-m (--method)", self.request.method.is_some()),
                ("a body (-b, --body-file)", has_body),
            ];
            if let Some((other, _)) = given.iter().find(|(_, is_given)| *is_given) {
                return Err(Error::usage(format!(
                    "--targets and {other} exclude each other: each target names its own"
                )));
            }
        }
        let redirects = [
            ("--connect-to", !self.connect_to.is_empty()),
            ("--unix-socket", self.unix_socket.is_some()),
            ("--source-ip", self.source_ip.is_some()),
        ];
        let given: Vec<&str> =
            redirects.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
        if let (true, Some(flag)) = (is_embedded, given.first()) {
            return Err(Error::usage(format!(
                "{flag} needs a URL; without one the embedded endpoint is loaded"
            )));
        }
        if self.unix_socket.is_some() && given.len() > 1 {
            let other = if given[0] == "--unix-socket" { given[1] } else { given[0] };
            return Err(Error::usage(format!(
                "--unix-socket and {other} exclude each other; give one of them"
            )));
        }
        if let Some(path) = self.unix_socket.as_deref()
            && path.as_os_str().len() > UNIX_PATH_BYTES_MAX
        {
            return Err(Error::value(
                "--unix-socket",
                &path.to_string_lossy(),
                "a path of at most 107 bytes",
            ));
        }
        Ok(())
    }
}

/// `sun_path` of a unix socket address, less its final NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;
