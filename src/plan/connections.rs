//! How many connections there are, and the open files that they need.

use loadgen_shards::sys::limits::{nofile, raise_nofile, reserve_descriptors};

use crate::config::{CONNECTIONS_MAX, Config};
use crate::error::Error;

/// Connections of a run, over all shards together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Opened before the first request.
    pub opened: u32,
    /// At most; in closed loop the same.
    pub most: u32,
    /// What the user should know.
    pub notice: Option<String>,
}

/// What a connection costs in this run.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Descriptors of this process without any connection.
    fixed: u64,
    /// Descriptors of each.
    each: u64,
}

impl Cost {
    /// A socket for each connection to each target, and its other end if the endpoint is ours too.
    pub fn new(targets: u64, shards: u64, is_embedded: bool) -> Cost {
        let ends = if is_embedded { 2 } else { 1 };
        Cost {
            fixed: shards * DESCRIPTORS_PER_SHARD + DESCRIPTORS_OTHER,
            each: targets.max(1) * ends,
        }
    }

    fn descriptors(self, connections: u32) -> u64 {
        self.fixed + u64::from(connections) * self.each
    }

    /// How many connections fit below a limit.
    fn fitting(self, limit: u64) -> u32 {
        u32::try_from(limit.saturating_sub(self.fixed) / self.each).unwrap_or(u32::MAX)
    }
}

/// Decides the connections, and raises the limit of open files for them.
pub fn open(config: &Config, shards: u32, cost: Cost) -> Result<Connections, Error> {
    let connections = decide(config, shards, cost, nofile().hard);
    let needed = cost.descriptors(connections.most);
    check(&connections, config.max_connections, needed, raise_nofile(needed))?;
    reserve_descriptors(needed);
    Ok(connections)
}

fn decide(config: &Config, shards: u32, cost: Cost, hard: u64) -> Connections {
    if config.arrivals.is_none() {
        let opened = config.connections.unwrap_or(CONNECTIONS_PER_SHARD * shards);
        return Connections { opened, most: opened, notice: None };
    }
    // The default gives each shard one, where there are many.
    let opened = config.connections.unwrap_or(CONNECTIONS_OPENED.max(shards));
    if let Some(most) = config.max_connections {
        return Connections { opened: opened.min(most), most, notice: None };
    }
    let usual = (MAX_CONNECTIONS_PER_SHARD * shards).min(CONNECTIONS_MAX).max(opened);
    let most = usual.min(cost.fitting(hard).max(opened));
    let notice = (most < usual).then(|| {
        format!(
            "at most {most} connections in place of {usual}, as the hard limit of open files is \
             {hard}; raise it, or set --max-connections"
        )
    });
    Connections { opened, most, notice }
}

fn check(
    connections: &Connections,
    max_connections: Option<u32>,
    needed: u64,
    limit: Result<u64, u64>,
) -> Result<(), Error> {
    let most = match limit {
        Ok(soft) if soft >= needed => return Ok(()),
        Ok(most) | Err(most) => most,
    };
    let flag = if max_connections.is_some() { "--max-connections" } else { "-c" };
    Err(Error::setup(format!(
        "{} connections need {needed} open files, but the hard limit of this process is {most}; \
         lower {flag}, or raise it: ulimit -Hn {needed} as root, or LimitNOFILE= of the service, \
         --ulimit nofile= of the container; then ulimit -n {needed}",
        connections.most
    )))
}

/// Connections of a shard in `max-throughput` without `-c`.
const CONNECTIONS_PER_SHARD: u32 = 64;
/// Connections of an open loop without `-c`, over all shards together.
const CONNECTIONS_OPENED: u32 = 64;
/// Connections that a shard of an open loop has room for without `--max-connections`.
const MAX_CONNECTIONS_PER_SHARD: u32 = 1024;
/// A shard's uring, eventfd and epoll instance, and a thread of the endpoint with the like and a
/// listener.
const DESCRIPTORS_PER_SHARD: u64 = 16;
/// Standard streams, files of the report, what the runtime opens.
const DESCRIPTORS_OTHER: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::config;

    const PLENTY: u64 = 1 << 20;

    #[test]
    fn an_open_loop_opens_64_and_grows_to_1024_a_shard() {
        let one = |line: &str, shards, hard| {
            let Connections { opened, most, notice } =
                decide(&config(line), shards, Cost::new(1, u64::from(shards), false), hard);
            (opened, most, notice.is_some())
        };
        for (line, shards, opened, most) in [
            ("", 1, 64, 1024),
            ("", 4, 64, 4096),
            ("", 100, 100, 102_400),
            ("-c 8", 2, 8, 2048),
            ("-c 5000", 2, 5000, 5000),
            ("--max-connections 10", 2, 10, 10),
            ("--max-connections 5k", 1, 64, 5000),
            ("-c 7 --max-connections 9", 1, 7, 9),
        ] {
            let line = format!("poisson http://h/ -R 5 {line}");
            assert_eq!(one(&line, shards, PLENTY), (opened, most, false), "{line}");
        }
        // 16 for the shard and 64 for the rest.
        assert_eq!(one("poisson http://h/ -R 5", 1, 1024 + 80), (64, 1024, false));
        assert_eq!(one("poisson http://h/ -R 5", 1, 1023 + 80), (64, 1023, true));
        assert_eq!(one("poisson http://h/ -R 5", 1, 100), (64, 64, true), "then it is an error");
        let given = "poisson http://h/ -R 5 --max-connections 5k";
        assert_eq!(one(given, 1, 1024), (64, 5000, false), "what was asked for is not lowered");
    }

    #[test]
    fn too_many_connections_for_the_descriptors_name_the_way_out() {
        assert_eq!(Cost::new(1, 2, false).descriptors(100), 100 + 32 + 64);
        assert_eq!(Cost::new(1, 2, true).descriptors(100), 200 + 32 + 64);
        assert_eq!(Cost::new(3, 2, false).descriptors(100), 300 + 32 + 64);
        let connections = Connections { opened: 100, most: 100, notice: None };
        assert_eq!(check(&connections, None, 196, Ok(196)), Ok(()));
        for (max_connections, flag) in [(None, "lower -c"), (Some(100), "lower --max-connections")]
        {
            for limit in [Ok(195), Err(195)] {
                let error =
                    check(&connections, max_connections, 196, limit).expect_err("one too few");
                assert_eq!(error.exit_code(), 3);
                let text = error.to_string();
                assert!(text.contains("ulimit -n 196") && text.contains(flag), "{text}");
            }
        }
    }
}
