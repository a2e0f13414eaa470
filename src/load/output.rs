//! Everything that a user sees of one run: header and report on stdout, progress and notices on
//! stderr, the files of its report directory.

use std::io::IsTerminal;
use std::sync::Arc;

use loadgen_shards::order::Order;
use loadgen_shards::record::RecordSource;
use loadgen_shards::recorder::Recording;

use super::run::{Ended, Role};
use crate::config::inference::{Part, Prompts, length_text};
use crate::config::{self, Keep, Ui};
use crate::cores::Host;
use crate::courtesy::make_way;
use crate::display;
use crate::files::{self, ReportDir};
use crate::hdr;
use crate::intervals::IntervalFiles;
use crate::plan::{self, Plan};
use crate::progress::{self, Left, Progress, Stage, Tick};
use crate::records::{Records, Uncounted};
use crate::report::{self, Floor, OpenFacts, Results, RunFacts};
use crate::snapshot::{self, InferenceFacts, Snapshot, check_conservation};
use crate::stream;

/// Where everything that a user sees goes.
pub struct Output {
    plan: Arc<Plan>,
    facts: RunFacts,
    directory: Option<ReportDir>,
    role: Role,
    /// The files that grow; `None` before there is a directory, and without one.
    intervals: Option<IntervalFiles>,
    /// Writes a line for each query, if they are kept.
    records: Option<Records>,
    progress: Progress<std::io::Stderr>,
    header: String,
    /// What is shown in its place where there are several runs.
    header_of_all: String,
}

impl Output {
    /// Says what is to be known before the run.
    pub fn open(plan: &Arc<Plan>, host: &Host, floor: Option<Floor>, role: Role) -> Output {
        let common = &plan.config.common;
        let is_silenced = common.quiet || common.ui == Ui::None;
        let is_terminal = std::io::stderr().is_terminal();
        let mode = progress::mode(is_silenced, common.ui == Ui::Plain, is_terminal);
        let label = match &role {
            Role::Alone { .. } => String::new(),
            Role::Part { name, .. } => format!("{name}: "),
        };
        let mut output = Output {
            plan: Arc::clone(plan),
            facts: RunFacts { floor, ..run_facts(plan, host) },
            directory: None,
            role,
            intervals: None,
            records: None,
            progress: Progress::new(mode, label, std::io::stderr()),
            header: String::new(),
            header_of_all: String::new(),
        };
        if !output.speaks_for_all() {
            return output;
        }
        for notice in &plan.notices {
            output.say(notice);
        }
        if let (Some(precision), Some(phase)) = (plan.precision, plan.phases.last()) {
            output.say(&display::precision_notice(precision, phase));
        }
        if let Some(notice) = display::build_notice() {
            output.say(notice);
        }
        output
    }

    /// The directory for the files, once there is something to write.
    fn open_directory(&mut self) {
        let Some(path) = &self.plan.report_dir else { return };
        let is_default = self.role == Role::Alone { is_default_directory: true };
        match if is_default { ReportDir::fresh(path) } else { ReportDir::named(path) } {
            Ok(directory) => {
                self.facts.report_dir = Some(directory.path().to_owned());
                let phases = self.plan.phases.iter();
                self.intervals = Some(IntervalFiles::new(
                    directory.path(),
                    self.plan.config.interval_ns,
                    self.plan.cores.len(),
                    phases.map(|phase| (phase.name.clone(), phase.schedule.is_some())),
                ));
                self.directory = Some(directory);
            }
            Err(notice) => self.say(&notice),
        }
    }

    /// What holds for every run of the command is said once.
    fn speaks_for_all(&self) -> bool {
        !matches!(self.role, Role::Part { is_first: false, .. })
    }

    fn is_text_wanted(&self) -> bool {
        !self.plan.config.common.quiet && !self.plan.config.common.json
    }

    /// One line on stderr, below or instead of the live one.
    pub fn say(&mut self, line: &str) {
        let _ = self.progress.clear();
        stream::err(report::printable(line));
    }

    /// The live line while the connections open.
    pub fn connecting(&mut self) {
        let _ = self.progress.show(&Tick {
            stage: Stage::Connecting,
            elapsed_ns: 0,
            left: Left::Unknown,
            rate: 0.0,
            p50_ns: None,
            p99_ns: None,
            target: None,
            failed: 0,
            in_flight: 0,
            backlog: 0,
            tokens: None,
        });
    }

    /// The endpoint takes its time: say what is waited for, also where there is no live line.
    pub fn still_connecting(&mut self) {
        if self.is_text_wanted() {
            let endpoint = self.plan.endpoints.first().map_or("the endpoint", String::as_str);
            let line = format!("connecting to {endpoint}; the limit is --connect-timeout");
            self.say(&line);
        }
    }

    /// The header, as soon as the engine is known; from here on `records` are written.
    pub fn begin(&mut self, snapshot: &Snapshot, records: Vec<RecordSource>) {
        let _ = self.progress.clear();
        if !snapshot.engine.reason.is_empty() && self.speaks_for_all() {
            self.say(&format!("using epoll: {}", snapshot.engine.reason));
        }
        let unpinned = snapshot.cores.iter().filter(|core| core.is_none()).count();
        if unpinned > 0 && snapshot.connections_open > 0 {
            self.say(&format!("{unpinned} shards could not be pinned to their cores"));
        }
        self.open_directory();
        self.begin_records(records);
        self.header = display::header(&self.facts, &snapshot.engine);
        if let Role::Part { urls, is_first: true, .. } = &self.role {
            let of_all = RunFacts { urls: urls.clone(), ..self.facts.clone() };
            self.header_of_all = display::header(&of_all, &snapshot.engine);
        } else {
            self.header_of_all.clone_from(&self.header);
        }
        if self.is_text_wanted() && self.speaks_for_all() {
            // A stdout that takes nothing is told at the end.
            let _ = stream::out(&self.header_of_all);
        }
        self.write(files::CONFIG, &config::to_yaml(&self.plan.config));
    }

    /// Takes what the shards tell of single queries.
    fn begin_records(&mut self, records: Vec<RecordSource>) {
        let folder = self.directory.as_ref().map(|directory| directory.path().to_owned());
        let path = folder.as_ref().filter(|_| self.plan.records != Keep::Nothing);
        let path = path.map(|folder| folder.join(files::REQUESTS));
        let begin = || {
            let uncounted = match self.plan.output_tokenizer {
                Some(_) => {
                    let folder = folder.clone().unwrap_or_else(std::env::temp_dir);
                    Some(Uncounted::new(&folder, self.plan.goals())?)
                }
                None => None,
            };
            Records::start(path.as_deref(), uncounted, Arc::clone(&self.plan), records)
        };
        if self.plan.records == Keep::Nothing && self.plan.output_tokenizer.is_none() {
            return;
        }
        match begin() {
            Ok(records) => self.records = Some(records),
            Err(error) => self.say(&format!("no request can be written down: {error}")),
        }
    }

    /// What was told of single queries is whole; answers that the endpoint has not counted are
    /// counted, unless nobody waits for that.
    fn end_records(&mut self, snapshot: &mut Snapshot, is_awaited: bool) {
        let Some(written) = self.records.take().map(Records::finish) else { return };
        if let Some(error) = written.error {
            self.say(&format!("{} is not whole: {error}", files::REQUESTS));
        }
        let (Some(uncounted), Some(tokenizer)) = (written.uncounted, &self.plan.output_tokenizer)
        else {
            return;
        };
        if uncounted.answers() == 0 || !is_awaited {
            return;
        }
        let tokenizer = Arc::clone(tokenizer);
        let answers = display::grouped(uncounted.answers());
        self.say(&format!("counting the tokens of {answers} answers by {}", tokenizer.name()));
        if let Err(error) = uncounted.count(&tokenizer, snapshot) {
            self.say(&format!("the tokens of answers could not be counted: {error}"));
        }
    }

    /// A shard has handed over a recording.
    pub fn record(&mut self, recording: &Recording) {
        if let Some(intervals) = &mut self.intervals {
            intervals.add(recording);
        }
    }

    /// Some time has passed, and more of the growing files may be written.
    pub fn advance(&mut self, snapshot: &Snapshot, now_ns: u64) {
        let Some(intervals) = &mut self.intervals else { return };
        if let Err(error) = intervals.advance(snapshot, now_ns) {
            self.intervals = None;
            self.say(&format!("cannot write the files of the intervals: {error}"));
        }
    }

    /// One interval has passed.
    pub fn tick(&mut self, tick: &Tick, snapshot: &Snapshot) {
        let _ = self.progress.show(tick);
        if self.directory.is_some() {
            let text = snapshot::final_snapshot(snapshot, &self.facts.host);
            self.write(files::FINAL_SNAPSHOT, &text);
        }
    }

    /// Files, report, and the exit code with its reason.
    pub fn end(mut self, mut snapshot: Snapshot) -> Ended {
        self.end_records(&mut snapshot, true);
        let facts = self.facts.clone();
        let results = Results::of(&snapshot, &facts);
        let summary = report::result_summary(&results);
        let is_told = self.tell_results(&results, &summary);
        for phase in &snapshot.phases {
            if let Err(mismatch) = check_conservation(phase) {
                panic!(
                    "the counts do not add up, so no figure above is to be believed: {mismatch}"
                );
            }
        }
        let (mut code, mut reason) = report::exit_code(false, None, Some(&results));
        if let (0, Err(error)) = (code, is_told) {
            code = 1;
            reason = Some(format!("the result could not be written to stdout: {error}"));
        }
        Ended { snapshot, summary, header: self.header_of_all, code, reason }
    }

    /// Files and report of a run that is left at once.
    pub fn quit(mut self, mut snapshot: Snapshot) -> Ended {
        self.end_records(&mut snapshot, false);
        let facts = self.facts.clone();
        let results = Results::of(&snapshot, &facts);
        let summary = report::result_summary(&results);
        let _ = self.tell_results(&results, &summary);
        let (code, reason) = report::exit_code(true, None, None);
        Ended { snapshot, summary, header: self.header_of_all, code, reason }
    }

    /// Files, then what stdout gets.
    fn tell_results(&mut self, results: &Results, summary: &str) -> std::io::Result<()> {
        let _ = self.progress.clear();
        if let Some(Err(error)) = self.intervals.take().map(IntervalFiles::finish) {
            self.say(&format!("cannot write the files of the intervals: {error}"));
        }
        let text = self.write_results(results, summary);
        if matches!(self.role, Role::Part { .. }) {
            Ok(())
        } else if self.plan.config.common.json {
            stream::out(summary)
        } else if self.is_text_wanted() {
            stream::out(&format!("\n{text}"))
        } else {
            Ok(())
        }
    }

    /// Every file of the report directory. Returns the text report.
    fn write_results(&mut self, results: &Results, summary: &str) -> String {
        let snapshot = results.snapshot;
        let text = display::report(results);
        if self.directory.is_some() {
            let final_snapshot = snapshot::final_snapshot(snapshot, &self.facts.host);
            self.write(files::FINAL_SNAPSHOT, &final_snapshot);
            self.write(files::RESULT_SUMMARY, summary);
            for (index, phase) in snapshot.phases.iter().enumerate() {
                let summary = report::phase_summary(results, index);
                self.write(files::phase_summary(&phase.name), &summary);
                for (series, distribution) in phase.sums.spectra() {
                    let spectrum = hdr::hgrm(distribution);
                    self.write(files::phase_hgrm(&phase.name, series), &spectrum);
                }
            }
            self.write(files::REPORT, &format!("{}\n{text}", self.header));
        }
        text
    }

    /// One file. The first one that cannot be written is told, and is the last to be tried.
    fn write(&mut self, name: impl AsRef<std::path::Path>, text: &str) {
        let Some(directory) = &self.directory else { return };
        make_way();
        if let Err(error) = directory.write(&name, text) {
            let path = directory.path().join(name);
            self.directory = None;
            self.say(&format!("cannot write {}: {error}; no more files", path.display()));
        }
    }
}

fn run_facts(plan: &Plan, host: &Host) -> RunFacts {
    let is_taken = |core: &usize| plan.cores.contains(core) || plan.timer.core() == Some(*core);
    let is_free = |core: &usize| !is_taken(core) && !plan.is_embedded;
    RunFacts {
        command: plan.config.command.name().to_owned(),
        urls: plan.endpoints.clone(),
        cores_flag: plan.cores_flag.clone(),
        flags: plan.flags.clone(),
        rate_flags: plan.rate_flags.clone(),
        connections: plan.connections,
        cores: plan.cores.clone(),
        cores_reason: plan.cores_reason.clone(),
        cores_free: host.allowed.iter().copied().filter(is_free).collect(),
        spin: plan.spin,
        is_embedded: plan.is_embedded,
        seed: plan.config.arrivals.as_ref().map(|_| plan.config.common.seed),
        order: config::order_text(plan.order),
        order_seed: Some(plan.order_seed),
        open: plan.config.arrivals.as_ref().map(|arrivals| OpenFacts {
            rate: arrivals.rate.clone(),
            timer: plan.timer,
            timer_reason: plan.timer_reason.clone(),
            max_connections: plan.max_connections,
            overload: plan.overload,
        }),
        slo: plan.slo.clone(),
        fail_if: plan.fail_if.clone(),
        goodput: plan.goodput.clone(),
        inference: plan.inference.as_ref().and_then(|known| inference_facts(plan, known)),
        is_untrusted_allowed: plan.config.common.allow_untrusted,
        phases: plan.phases.clone(),
        precision: plan.precision,
        floor: None,
        report_dir: None,
        host: snapshot::Host::read(),
    }
}

/// What a report says of an inference run.
fn inference_facts(plan: &Plan, known: &plan::Inference) -> Option<InferenceFacts> {
    let run = plan.config.inference.as_ref()?;
    let synthetic = match &run.prompts {
        Prompts::Synthetic(synthetic) => Some(synthetic),
        Prompts::Dataset { .. } | Prompts::Body => None,
    };
    let dataset = match synthetic {
        None => format!("of {}{}", known.dataset, taken_as(&known.taken_as)),
        Some(synthetic) => {
            let isl = length_text(synthetic.isl);
            let limit = run.sampling.max_tokens.map(|count| count.to_string());
            let osl = synthetic.osl.map(length_text).or(limit);
            let osl = osl.map_or(String::new(), |osl| format!(", {osl} out"));
            let by = known.calibrated_by;
            let by = by.map_or(String::new(), |by| format!(" (calibrated by the server's {by})"));
            format!("{isl} tokens in{by}{osl}")
        }
    };
    Some(InferenceFacts {
        api: run.api.name().to_owned(),
        model: run.sampling.model.clone().unwrap_or_default(),
        is_streamed: run.sampling.stream,
        includes_usage: run.sampling.include_usage,
        tokenizer: known.counted_by.clone().unwrap_or_default(),
        dataset,
        prompts: known.prompts as u64,
        is_synthetic: synthetic.is_some(),
        is_prompt_seed_given: synthetic.is_some_and(|synthetic| synthetic.seed.is_some()),
        prompt_seed: synthetic.map(|synthetic| synthetic.seed_of(Part::Performance)),
        draws_anew: plan.order == Order::Random,
        defaults: run.defaults.clone(),
    })
}

fn taken_as(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}
