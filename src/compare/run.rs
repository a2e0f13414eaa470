//! One run of an arm: its result file, and what a report directory knows besides.
//!
//! The files may be of another version, or of MLCommons `endpoints`: what is absent, null or of
//! another type is `None`, never 0.

use serde_json::Value;

use crate::expression::{Metric, Stat};

/// A run, as its files tell it.
#[derive(Clone, Debug)]
pub struct Run {
    /// The file or directory that it was read from.
    pub source: String,
    /// `result_summary.json`.
    summary: Value,
    /// `host` of `final_snapshot.json`; null where only the result is known.
    host: Value,
}

impl Run {
    /// Takes a result file for what it is. The error says what it is instead.
    pub fn new(source: String, summary: Value, host: Value) -> Result<Run, String> {
        let is_result = summary["n_samples_completed"].is_u64() && summary["latency"].is_object();
        if is_result {
            return Ok(Run { source, summary, host });
        }
        Err(if summary["metrics"].is_array() && !summary["counter"].is_null() {
            "is a final_snapshot.json; name its report directory".to_owned()
        } else if summary["repeats"].is_u64() {
            "is the result of several runs; name their report directory".to_owned()
        } else if summary["blocks"].is_u64() {
            "is a result of ab; name its runs, as in 'DIR/a-*' and 'DIR/b-*'".to_owned()
        } else {
            "is JSON, but no result of a run".to_owned()
        })
    }

    /// What is at a JSON pointer of the result.
    pub fn value(&self, pointer: &str) -> &Value {
        self.summary.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// What is at a JSON pointer of the host.
    pub fn host(&self, pointer: &str) -> &Value {
        self.host.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The number at a JSON pointer of the result.
    pub fn number(&self, pointer: &str) -> Option<f64> {
        self.value(pointer).as_f64()
    }

    /// The text at a JSON pointer of the result.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.value(pointer).as_str()
    }

    /// A statistic of one of the distributions, by its key in the result; ns.
    pub fn statistic(&self, series: &str, stat: Stat) -> Option<f64> {
        let distribution = &self.summary[series];
        match stat {
            Stat::Min => distribution["min"].as_f64(),
            Stat::Mean => distribution["avg"].as_f64(),
            Stat::Max => distribution["max"].as_f64(),
            Stat::Percentile(percent) => distribution["percentiles"][percent_key(percent)].as_f64(),
        }
    }

    /// The figure that an expression names, in the unit of expressions.
    pub fn metric(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Latency(stat) => self.statistic("latency", stat),
            Metric::Service(stat) => self.statistic("service_latency", stat),
            Metric::Lateness(stat) => self.statistic("lateness", stat),
            Metric::PoolWait(stat) => self.statistic("pool_wait", stat),
            Metric::Ttfb(stat) => self.statistic("ttfb", stat),
            Metric::Connect(stat) => self.statistic("connect", stat),
            Metric::Tls(stat) => self.statistic("tls", stat),
            Metric::Ttft(stat) => self.statistic("ttft", stat),
            Metric::ServiceTtft(stat) => self.statistic("service_ttft", stat),
            Metric::Tpot(stat) => self.statistic("tpot", stat),
            Metric::ChunkDelta(stat) => self.statistic("chunk_delta", stat),
            Metric::Isl(stat) => self.statistic("input_sequence_lengths", stat),
            Metric::Osl(stat) => self.statistic("output_sequence_lengths", stat),
            Metric::Tps => self.number("/tps"),
            Metric::TotalTps => self.number("/tokens/total_tps"),
            Metric::CachedShare => self.number("/tokens/cached_share"),
            Metric::Failed => self.number("/n_samples_failed"),
            Metric::FailedShare => self.failed_share(),
            Metric::Completed => self.number("/n_samples_completed"),
            Metric::Dropped => self.number(DROPPED),
            Metric::DroppedShare => {
                let scheduled = self.number("/counters/samples_scheduled")?;
                (scheduled > 0.0).then_some(self.number(DROPPED)? / scheduled)
            }
            Metric::Qps => self.number("/qps"),
            Metric::Offered => self.number("/offered_qps"),
            Metric::Scheduled => self.number("/scheduled_qps"),
            Metric::Goodput => self.number("/goodput"),
            Metric::GoodputShare => self.good_share(),
            Metric::Target => self.number("/run_config/load_pattern/target_qps"),
        }
    }

    /// Why a figure of this run is not known, in words that follow the name of the run.
    pub fn why_unknown(&self, metric: Metric) -> String {
        let (series, stat) = match metric {
            Metric::Latency(stat) => ("latency", stat),
            Metric::Service(stat) => ("service_latency", stat),
            Metric::Lateness(stat) => ("lateness", stat),
            Metric::PoolWait(stat) => ("pool_wait", stat),
            Metric::Ttfb(stat) => ("ttfb", stat),
            Metric::Connect(stat) => ("connect", stat),
            Metric::Tls(stat) => ("tls", stat),
            Metric::Ttft(stat) => ("ttft", stat),
            Metric::ServiceTtft(stat) => ("service_ttft", stat),
            Metric::Tpot(stat) => ("tpot", stat),
            Metric::ChunkDelta(stat) => ("chunk_delta", stat),
            Metric::Isl(stat) => ("input_sequence_lengths", stat),
            Metric::Osl(stat) => ("output_sequence_lengths", stat),
            Metric::FailedShare | Metric::GoodputShare => {
                return "has no request that ended".to_owned();
            }
            _ => return "does not tell it".to_owned(),
        };
        let Stat::Percentile(percent) = stat else {
            return format!("has no value of {series}");
        };
        let key = percent_key(percent);
        match self.summary[series]["percentiles_null"][&key].as_str() {
            Some(reason) => format!("has no p{percent}: it {reason}"),
            None => format!("has no p{percent} of {series}"),
        }
    }

    /// Failed requests as a share of those that ended, 0 to 1.
    pub fn failed_share(&self) -> Option<f64> {
        let failed = self.number("/n_samples_failed")?;
        let ended = failed + self.number("/n_samples_completed")?;
        (ended > 0.0).then(|| failed / ended)
    }

    /// Requests that kept every goal as a share of those that ended, 0 to 1.
    pub fn good_share(&self) -> Option<f64> {
        let good = self.number("/goodput")? * self.number("/duration_ns")? / 1e9;
        let ended = self.number("/n_samples_failed")? + self.number("/n_samples_completed")?;
        (ended > 0.0).then(|| good / ended)
    }

    /// Whether it ran to its end, as far as the file says.
    pub fn is_complete(&self) -> bool {
        self.value("/complete") != &Value::Bool(false)
            && self.text("/state").is_none_or(|state| state == "complete")
    }

    /// Whether its trust block says not to believe it.
    pub fn is_untrusted(&self) -> bool {
        self.text("/trust/verdict") == Some("fail")
    }
}

/// Queries given up for want of a connection, in the result.
const DROPPED: &str = "/counters/samples_dropped";

/// The key of a percentile in files: `50.0`, `99.9`.
fn percent_key(percent: f64) -> String {
    format!("{percent:?}")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// A complete run with these latencies, ns: p50 and p99.
    pub fn summary(qps: f64, p50_ns: f64, p99_ns: f64) -> Value {
        json!({
            "version": "0.1.0", "git_sha": null, "test_started_at": 1_800_000_000,
            "n_samples_issued": 10_000, "n_samples_completed": 10_000, "n_samples_failed": 0,
            "state": "complete", "complete": true, "qps": qps,
            "latency": {
                "min": 10, "max": 1e9, "avg": p50_ns,
                "percentiles": {"50.0": p50_ns, "90.0": p50_ns, "99.0": p99_ns, "99.9": null},
                "percentiles_null": {"99.9": "needs 10000 values, has 9999"},
            },
            "service_latency": {"percentiles": {"50.0": p50_ns, "99.0": p99_ns}},
            "ttfb": {},
            "latency_origin": "sent",
            "limit": {"client_utilisation": 0.25},
            "engine": {"name": "io_uring", "features": ["multishot"]},
            "cores": {"shards": [0, 1], "spin": false},
            "seed": null,
            "run_config": {
                "load_pattern": {"type": "concurrency", "target_qps": null},
                "connections": 64, "duration_ns": 10_000_000_000u64, "requests": null,
                "endpoints": ["http://h/"], "is_embedded": false,
            },
        })
    }

    /// Such a run, with a host.
    pub fn run(source: &str, summary: Value) -> Run {
        let host = json!({"cpu_model": "a CPU", "kernel": "6.18", "cpus": 2});
        Run::new(source.to_owned(), summary, host).expect("a result")
    }

    #[test]
    fn null_absent_and_of_another_type_are_unknown_and_never_zero() {
        let mut summary = summary(100.0, 5e5, 2e6);
        summary["qps"] = json!("many");
        let run = run("r", summary);
        let p = |percent| Metric::Latency(Stat::Percentile(percent));
        assert_eq!(run.metric(p(50.0)), Some(5e5));
        assert_eq!(run.metric(Metric::Latency(Stat::Max)), Some(1e9));
        for metric in [p(99.9), p(99.99), Metric::Ttfb(Stat::Min), Metric::Connect(Stat::Mean)] {
            assert_eq!(run.metric(metric), None, "{metric:?}");
        }
        assert_eq!(run.metric(Metric::Qps), None);
        assert_eq!(run.why_unknown(p(99.9)), "has no p99.9: it needs 10000 values, has 9999");
        assert_eq!(run.why_unknown(p(99.99)), "has no p99.99 of latency");
    }

    #[test]
    fn the_share_of_failures_is_of_those_that_ended() {
        let mut summary = summary(100.0, 5e5, 2e6);
        summary["n_samples_failed"] = json!(2_500);
        assert_eq!(run("r", summary.clone()).failed_share(), Some(0.2));
        summary["n_samples_failed"] = json!(0);
        summary["n_samples_completed"] = json!(0);
        assert_eq!(run("r", summary).failed_share(), None);
    }

    #[test]
    fn files_that_are_no_result_are_told_apart() {
        let new = |value| Run::new("x".into(), value, Value::Null).map(|_| ());
        assert_eq!(new(summary(1.0, 1.0, 1.0)), Ok(()));
        let snapshot = json!({"counter": 1, "metrics": [], "state": "complete"});
        assert!(new(snapshot).expect_err("a snapshot").contains("final_snapshot.json"));
        for other in [json!({}), json!([1]), json!(5), json!({"latencies": {"mean": 3}})] {
            assert!(new(other).expect_err("no result").contains("no result of a run"));
        }
    }

    #[test]
    fn completeness_and_trust_are_as_the_file_says() {
        let changed = |key: &str, value: Value| {
            let mut summary = summary(1.0, 1.0, 1.0);
            summary[key] = value;
            run("r", summary)
        };
        assert!(changed("complete", json!(true)).is_complete());
        assert!(changed("complete", Value::Null).is_complete());
        assert!(!changed("complete", json!(false)).is_complete());
        assert!(!changed("state", json!("interrupted")).is_complete());
        assert!(!changed("trust", json!({"verdict": "warn"})).is_untrusted());
        assert!(changed("trust", json!({"verdict": "fail"})).is_untrusted());
        assert!(!changed("trust", Value::Null).is_untrusted());
    }

    #[test]
    fn figures_of_tokens_are_found_where_results_have_them() {
        let mut streamed = summary(100.0, 5e5, 2e6);
        for (key, p99) in [("ttft", 4.7e8), ("service_ttft", 4.6e8), ("tpot", 3.1e7)] {
            streamed[key] = json!({ "avg": 1e6, "percentiles": { "99.0": p99 } });
        }
        streamed["chunk_delta"] = json!({ "max": 9e7 });
        streamed["tls"] = json!({ "min": 1e6 });
        streamed["output_sequence_lengths"] = json!({ "avg": 128.5 });
        streamed["input_sequence_lengths"] = json!({ "max": 550 });
        streamed["tps"] = json!(5_210.0);
        streamed["tokens"] = json!({ "total_tps": 27_000.0, "cached_share": 0.004 });
        // 80 per second over 100 s, of 10 000 that ended.
        streamed["goodput"] = json!(80.0);
        streamed["duration_ns"] = json!(100_000_000_000u64);
        let (streamed, plain) = (run("r", streamed), run("p", summary(100.0, 5e5, 2e6)));
        let p99 = Stat::Percentile(99.0);
        for (metric, value) in [
            (Metric::Ttft(p99), 4.7e8),
            (Metric::ServiceTtft(p99), 4.6e8),
            (Metric::Tpot(p99), 3.1e7),
            (Metric::ChunkDelta(Stat::Max), 9e7),
            (Metric::Tls(Stat::Min), 1e6),
            (Metric::Osl(Stat::Mean), 128.5),
            (Metric::Isl(Stat::Max), 550.0),
            (Metric::Tps, 5_210.0),
            (Metric::TotalTps, 27_000.0),
            (Metric::CachedShare, 0.004),
            (Metric::Goodput, 80.0),
            (Metric::GoodputShare, 0.8),
        ] {
            assert_eq!(streamed.metric(metric), Some(value), "{metric:?}");
            assert_eq!(plain.metric(metric), None, "{metric:?} of plain HTTP");
        }
    }
}
