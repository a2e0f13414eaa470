//! `serve`, and the endpoint that is embedded in a load, typed.

use std::net::SocketAddr;

use loadgen_bench::{InferenceConfig, Profile};

use super::value::parse;
use super::{CommonConfig, Config, unit};
use crate::api::Api;
use crate::cli::{Serve, ServeInferenceFlags};
use crate::error::Error;

/// `serve`, typed.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The flags of every command.
    pub common: CommonConfig,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Bytes of each response body.
    pub body_bytes: usize,
    /// Time between a request and its response, ns.
    pub delay_ns: u64,
    /// What the paths of an inference API answer; `None`: what every path does.
    pub inference: Option<InferenceConfig>,
}

impl ServeConfig {
    /// The endpoint that runs in the process of a load without URL.
    pub fn embedded(config: &Config) -> ServeConfig {
        ServeConfig {
            common: config.common.clone(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            body_bytes: 100,
            delay_ns: 0,
            inference: config.inference.as_ref().map(|run| {
                let usual = InferenceConfig::default();
                InferenceConfig {
                    // The only one that has SGLang's own path.
                    profile: if run.api == Api::Generate { Profile::Sglang } else { usual.profile },
                    model: Some(run.sampling.model.clone().unwrap_or(EMBEDDED_MODEL.to_owned())),
                    seed: config.common.seed,
                    ..usual
                }
            }),
        }
    }

    /// Types what was typed.
    pub fn from_cli(serve: Serve) -> Result<ServeConfig, Error> {
        let Serve { flags, common } = serve;
        let listen = flags.listen.as_deref().unwrap_or(LISTEN);
        let size = flags.body_bytes.as_deref().unwrap_or("100");
        let delay = flags.delay.as_deref().unwrap_or("0");
        let common = CommonConfig::from_cli(common)?;
        Ok(ServeConfig {
            inference: Some(inference_served(&flags.inference, common.seed)?),
            common,
            listen: parse("--listen", listen, LISTEN_FORM, |text| text.parse().ok())?,
            body_bytes: parse(
                "--body-bytes",
                size,
                &format!("{}, at most 1GiB", unit::SIZE_FORM),
                |text| {
                    unit::bytes(text).filter(|bytes| *bytes <= 1 << 30).map(|bytes| bytes as usize)
                },
            )?,
            delay_ns: parse("--delay", delay, unit::TIME_FORM, unit::time_ns)?,
        })
    }
}

/// The inference paths of `serve`.
fn inference_served(flags: &ServeInferenceFlags, seed: u64) -> Result<InferenceConfig, Error> {
    let mut config = InferenceConfig { crlf: flags.crlf, seed, ..InferenceConfig::default() };
    for (flag, text) in flags.given() {
        let set = config.set(flag, text).expect("each flag of serve is one of the endpoint's");
        set.map_err(|form| Error::value(flag, text, form))?;
    }
    Ok(config)
}

/// The model of the endpoint that is embedded in a load.
const EMBEDDED_MODEL: &str = "embedded";
const LISTEN: &str = "127.0.0.1:8080";
const LISTEN_FORM: &str =
    "ADDR:PORT with a numeric address, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080";
