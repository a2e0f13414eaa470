//! Several runs of one command, one after the other: each a complete report directory in a folder
//! of its own, below the directory of the whole.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::HAS_PANICKED;
use super::inference;
use super::run::{Ended, Role, Setting, perform};
use crate::compare::Run;
use crate::config::{Config, ReportDir};
use crate::display;
use crate::error::Error;
use crate::files;
use crate::plan::{Asked, Phase, Plan};
use crate::report::printable;
use crate::snapshot::Totals;
use crate::stream;

/// A run that has ended.
#[derive(Debug)]
pub struct Done {
    /// Its folder, as in `run-02`.
    pub folder: String,
    /// Its seed.
    pub seed: u64,
    /// Of what it was asked to send; `None` in closed loop.
    pub schedule_hash: Option<u64>,
    /// Its result, as `compare` would read it.
    pub run: Run,
    /// The exit code that it deserves alone.
    pub code: u8,
    /// Why it is not 0.
    pub reason: Option<String>,
}

/// The runs so far.
pub struct Several {
    setting: Setting,
    directory: Option<files::ReportDir>,
    planned: usize,
    done: Vec<Done>,
    /// What kept a run from being set up.
    error: Option<Error>,
    /// What every run asks, unless it makes up prompts of its own.
    asked: Option<Asked>,
    /// Of all runs, secrets masked.
    urls: Vec<String>,
    header: String,
}

impl Several {
    /// Opens the directory of the whole, and says how long it all takes. `plan`: one of the runs,
    /// of which there are `planned`; `asked`: what it was made of.
    pub fn begin(
        setting: Setting,
        plan: &Plan,
        planned: usize,
        is_default_directory: bool,
        asked: Option<Asked>,
    ) -> Several {
        let directory = plan.report_dir.as_ref().map(|path| match is_default_directory {
            true => files::ReportDir::fresh(path),
            false => files::ReportDir::named(path),
        });
        let directory = directory
            .and_then(|opened| opened.inspect_err(|notice| stream::err(printable(notice))).ok());
        if !plan.config.common.quiet {
            stream::err(announcement(planned, &plan.phases, plan.precision.is_some()));
        }
        Several {
            setting,
            directory,
            planned,
            done: Vec::new(),
            error: None,
            asked,
            urls: plan.endpoints.clone(),
            header: String::new(),
        }
    }

    /// One more run. False: no other one shall begin.
    pub fn perform(
        &mut self,
        mut config: Config,
        embedded: Option<SocketAddr>,
        name: String,
        folder: String,
    ) -> bool {
        let directory = self.directory.as_ref().map(|directory| directory.path().join(&folder));
        config.common.report_dir = directory.map_or(ReportDir::None, ReportDir::Path);
        config.repeats = 1;
        let seed = config.common.seed;
        let is_first = self.done.is_empty();
        let role = Role::Part { name: name.clone(), is_first, urls: self.urls.clone() };
        let ended =
            self.plan(config, embedded).and_then(|plan| perform(plan, role, &mut self.setting));
        match ended {
            Ok(ended) => {
                if is_first {
                    self.header.clone_from(&ended.header);
                }
                self.done.push(done(ended, name, folder, seed));
            }
            Err(error) => self.error = Some(error),
        }
        let is_interrupted = self.setting.signals.taken() > 0 || self.setting.signals.is_waiting();
        let has_panicked = HAS_PANICKED.load(std::sync::atomic::Ordering::Acquire);
        self.error.is_none() && !is_interrupted && !has_panicked
    }

    /// Made-up prompts are new ones in each run, unless the user chose their seed.
    fn plan(&self, mut config: Config, embedded: Option<SocketAddr>) -> Result<Plan, Error> {
        let fresh = inference::made_up_anew(&mut config, self.done.len() as u64, embedded)?;
        let asked = fresh.as_ref().or(self.asked.as_ref());
        Plan::build(config, &self.setting.host, embedded, asked)
    }

    /// The runs that have ended, in order.
    pub fn done(&self) -> &[Done] {
        &self.done
    }

    /// How many were planned.
    pub fn planned(&self) -> usize {
        self.planned
    }

    /// The directory of the whole, if there is one.
    pub fn directory(&self) -> Option<&files::ReportDir> {
        self.directory.as_ref()
    }

    /// The exit code of the whole, and for all but 0 the reason.
    pub fn ending(&self) -> (u8, Option<String>) {
        self.ending_with(Vec::new())
    }

    /// The same, with what else there is to say of the whole: the gravest wins.
    pub fn ending_with(&self, more: Vec<(u8, String)>) -> (u8, Option<String>) {
        let of_run = |done: &Done| {
            let reason = done.reason.as_deref().unwrap_or_default();
            (done.code, format!("{}: {reason}", done.run.source))
        };
        let mut endings: Vec<(u8, String)> = self.done.iter().map(of_run).collect();
        endings.extend(self.error.iter().map(|error| (error.exit_code(), error.to_string())));
        endings.extend(more);
        if self.done.len() < self.planned {
            let reason = format!("incomplete: {} of {} runs", self.done.len(), self.planned);
            endings.push((1, reason));
        }
        gravest(endings)
    }

    /// Writes the result and the report of the whole, and shows what the user wants to see.
    pub fn tell(&self, config: &Config, summary: &str, text: &str) -> std::io::Result<()> {
        if let Some(directory) = &self.directory {
            let report = format!("{}\n{text}", self.header);
            for (name, text) in [(files::RESULT_SUMMARY, summary), (files::REPORT, &report)] {
                if let Err(error) = directory.write(name, text) {
                    let path = directory.path().join(name);
                    stream::err(format_args!("cannot write {}: {error}", path.display()));
                }
            }
        }
        match (config.common.json, config.common.quiet) {
            (true, _) => stream::out(summary),
            (false, true) => Ok(()),
            (false, false) => stream::out(&format!("\n{text}")),
        }
    }

    /// Tells of the end on stderr, and gives the exit code.
    pub fn close(self, ending: (u8, Option<String>), told: std::io::Result<()>) -> u8 {
        let (code, reason) = match (ending, told) {
            ((0, _), Err(error)) => {
                (1, Some(format!("the result could not be written to stdout: {error}")))
            }
            (ending, _) => ending,
        };
        if let Some(reason) = reason {
            stream::err(printable(&reason));
        }
        code
    }
}

impl Done {
    /// For the result of the whole, without figures.
    pub fn json(&self) -> Value {
        json!({
            "path": self.folder,
            "seed": self.seed,
            "schedule_hash": self.schedule_hash.map(|hash| format!("{hash:016x}")),
            "state": self.run.text("/state"),
            "complete": self.run.is_complete(),
            "trust": self.run.text("/trust/verdict"),
            "n_samples_completed": self.run.value("/n_samples_completed"),
            "n_samples_failed": self.run.value("/n_samples_failed"),
            "duration_ns": self.run.value("/duration_ns"),
            "exit_code": self.code,
            "reason": self.reason,
        })
    }
}

fn done(ended: Ended, name: String, folder: String, seed: u64) -> Done {
    let summary = serde_json::from_str(&ended.summary).expect("our own JSON");
    let run = Run::new(name, summary, Value::Null).expect("our own result");
    let sums = Totals::of(ended.snapshot.tracked()).sums;
    let schedule_hash = sums.has_schedule().then_some(sums.schedule_hash);
    Done { folder, seed, schedule_hash, run, code: ended.code, reason: ended.reason }
}

/// `5 runs of 10 s: about 55 s`. `is_auto`: they may end before their time.
fn announcement(count: usize, phases: &[Phase], is_auto: bool) -> String {
    let runs = display::counted(count as u64, "run");
    let lengths = phases.iter().map(|phase| (phase.duration_ns, phase.requests));
    let by_clock: Option<u64> = lengths.clone().map(|(length_ns, _)| length_ns).sum();
    let is_shorter = is_auto || lengths.clone().any(|(_, requests)| requests.is_some());
    let Some(each_ns) = by_clock else {
        let requests = lengths.filter_map(|(_, requests)| requests).sum();
        return format!("{runs} of {}", display::counted(requests, "request"));
    };
    // Connections open and close, and the last answers are waited for.
    let total_ns = (count as u64).saturating_mul(each_ns.saturating_add(each_ns / 10));
    let (each, total) = (display::time(each_ns), display::time(whole_seconds(total_ns)));
    match is_shorter {
        true => format!("{runs} of at most {each}: at most about {total}"),
        false => format!("{runs} of {each}: about {total}"),
    }
}

fn whole_seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).saturating_mul(1_000_000_000)
}

/// The first of the gravest; how many others have the same code.
fn gravest(endings: Vec<(u8, String)>) -> (u8, Option<String>) {
    let is_bad = |(code, _): &(u8, String)| *code != 0;
    let bad: Vec<(u8, String)> = endings.into_iter().filter(is_bad).collect();
    let rank = |code: u8| GRAVEST_FIRST.iter().position(|known| *known == code);
    let Some((code, reason)) = bad.iter().min_by_key(|(code, _)| rank(*code)).cloned() else {
        return (0, None);
    };
    let more = match bad.iter().filter(|(other, _)| *other == code).count() - 1 {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    (code, Some(reason + &more))
}

/// If several hold, the first wins.
const GRAVEST_FIRST: [u8; 7] = [130, 2, 3, 1, 5, 6, 4];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::plan_of;

    #[test]
    fn the_whole_time_is_announced_as_far_as_it_is_known() {
        let timed = plan_of(4); // 5 s
        let counted = Phase { duration_ns: None, requests: Some(1000), ..timed.clone() };
        let both = Phase { requests: Some(1000), ..timed.clone() };
        let warmup = Phase { duration_ns: Some(1_000_000_000), ..timed.clone() };
        for (count, phases, said) in [
            (5, vec![timed.clone()], "5 runs of 5 s: about 28 s"),
            (2, vec![warmup, timed], "2 runs of 6 s: about 14 s"),
            (3, vec![counted], "3 runs of 1 000 requests"),
            (3, vec![both], "3 runs of at most 5 s: at most about 17 s"),
        ] {
            assert_eq!(announcement(count, &phases, false), said);
        }
        assert_eq!(
            announcement(2, &[plan_of(4)], true),
            "2 runs of at most 5 s: at most about 11 s"
        );
    }

    #[test]
    fn the_gravest_ending_wins_and_others_alike_are_counted() {
        let ending = |codes: &[u8]| gravest(codes.iter().map(|c| (*c, format!("{c}"))).collect());
        assert_eq!(ending(&[0, 0]), (0, None));
        assert_eq!(ending(&[0, 4, 0]), (4, Some("4".to_owned())));
        assert_eq!(ending(&[4, 6, 4]), (6, Some("6".to_owned())));
        assert_eq!(ending(&[6, 1, 4, 1, 1]), (1, Some("1; 2 more".to_owned())));
        assert_eq!(ending(&[3, 1]).0, 3);
        assert_eq!(ending(&[1, 3, 130]).0, 130);
    }
}
