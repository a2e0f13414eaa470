//! The text report, for people: header before the run, answer first after it, what to type next at
//! its end.
//!
//! Plain text without colour, the same on a terminal and in `report.txt`. Every text that came from
//! elsewhere passes through [`printable`].

mod answer;
mod floor;
mod precision;
mod table;
#[cfg(test)]
mod tests;
mod tokens;
mod trust;

pub use precision::notice as precision_notice;

use std::fmt::Write;

use loadgen_shards::phase::PhaseKind;
use loadgen_shards::reactor::EngineReport;

use crate::files;
use crate::plan;
use crate::report::{
    Assessment, Ending, Gate, GateOutcome, Results, RunFacts, assess, connections_wanted,
    core_list, ending, goals_text, little_warning, next_commands, printable, without_user_info,
};
use crate::snapshot::{Snapshot, Totals};
use crate::statistics::planner::extension_factor;

pub use crate::number::{counted, grouped, rate, significant, time, unit};

/// Features of a back end that the header leaves out.
const FEATURES_UNTOLD: [&str; 3] = ["single-issuer", "no-sqarray", "ring-fd"];
/// Half the width of an interval of p99 that is precise enough, as a share of its value.
const PRECISE: f64 = 0.05;
/// Proposals of longer runs end here: nobody waits ten times a day.
const LONGER_NS_MAX: f64 = 8.64e12;

/// The lines above a run: with what, and what; of an inference run a third one. Printed before it
/// starts.
pub fn header(facts: &RunFacts, engine: &EngineReport) -> String {
    let shards = counted(facts.cores.len() as u64, "shard");
    let cores = if facts.cores.len() == 1 { "core" } else { "cores" };
    let list = core_list(&facts.cores);
    let wait = match &facts.open {
        Some(open) => match open.timer.core() {
            Some(core) => format!(", timer on core {core}"),
            None => format!(", timer {}", open.timer.name()),
        },
        None if facts.spin => ", spinning".to_owned(),
        None => String::new(),
    };
    // The files have them all; these make a difference that one can measure.
    let is_told = |name: &&&str| !FEATURES_UNTOLD.contains(*name);
    let told: Vec<&str> = engine.features.iter().filter(is_told).copied().collect();
    let features = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
    let target = if facts.is_embedded {
        "embedded endpoint: the tool's own ceiling on this host, not your server".to_owned()
    } else {
        targets(facts)
    };
    let most = match &facts.open {
        Some(open) if open.max_connections > facts.connections => {
            format!(", at most {}", grouped(open.max_connections.into()))
        }
        _ => String::new(),
    };
    // No shard was ready: stopped while the connections opened.
    let engine_name = if engine.name.is_empty() { "no engine yet" } else { engine.name };
    let text = format!(
        "loadgen-uring {} · {} · {shards} on {cores} {list}{wait} · {engine_name}{features}\n\
         {target} · {}{most} · {}",
        env!("CARGO_PKG_VERSION"),
        answer::load_words(facts),
        counted(u64::from(facts.connections), "connection"),
        lengths(&facts.phases, facts.precision.is_some()),
    );
    let inference = facts.inference.as_ref().map(tokens::header);
    text.lines().chain(inference.as_deref()).map(|line| printable(line) + "\n").collect()
}

/// What the reader should know when this binary is no release build.
pub fn build_notice() -> Option<&'static str> {
    cfg!(debug_assertions).then_some(
        "built with debug assertions, so the client is slower than it can be: use a release build",
    )
}

fn targets(facts: &RunFacts) -> String {
    match facts.urls.as_slice() {
        [] => "no URL".to_owned(),
        [url] => without_user_info(url),
        [url, others @ ..] => format!("{} and {} more", without_user_info(url), others.len()),
    }
}

/// `warm-up 2 s, 10 s measured`. `is_auto`: the measured phase ends when enough is known.
fn lengths(phases: &[plan::Phase], is_auto: bool) -> String {
    let parts: Vec<String> = phases
        .iter()
        .map(|phase| {
            let length = match (phase.duration_ns, phase.requests) {
                (Some(ns), Some(count)) => {
                    format!("at most {} or {}", time(ns), counted(count, "request"))
                }
                (Some(ns), None) if is_auto && phase.kind == PhaseKind::Performance => {
                    format!("at most {}", time(ns))
                }
                (Some(ns), None) => time(ns),
                (None, Some(count)) => counted(count, "request"),
                (None, None) => "until stopped".to_owned(),
            };
            match phase.kind {
                PhaseKind::Warmup => format!("warm-up {length}"),
                PhaseKind::Performance => format!("{length} measured"),
            }
        })
        .collect();
    parts.join(", ")
}

/// The text after a run, without the header.
pub fn report(results: &Results) -> String {
    let ending = ending(results.snapshot);
    let assessment = assess(results.snapshot, results.facts);
    let mut lines = vec![answer::answer(results, &ending, assessment.as_ref())];
    lines.extend(answer::reason(results, &ending, assessment.as_ref()));
    lines.push(String::new());
    lines.extend(counts(results.snapshot, &results.tracked));
    lines.extend(tokens::lines(results));
    let table = table::table(results);
    if !table.is_empty() {
        lines.push(String::new());
        lines.extend(table.lines().map(str::to_owned));
    }
    lines.push(String::new());
    lines.extend(trust::trust_lines(results, ending == Ending::Complete));
    lines.extend(gates(results));
    lines.extend(facts_below(results, assessment.as_ref()));
    lines.extend(next(results));
    lines.iter().map(|line| printable(line) + "\n").collect()
}

const WRITES: &str = "a string takes any text";

/// The lines that count queries.
fn counts(snapshot: &Snapshot, tracked: &Totals) -> Vec<String> {
    let counters = &tracked.sums.counters;
    let mut requests = format!(
        "requests   {} ok   {} failed   {} cancelled",
        grouped(counters.completed),
        grouped(counters.failed),
        grouped(counters.cancelled)
    );
    if tracked.in_flight_at_end > 0 {
        let in_flight = grouped(tracked.in_flight_at_end);
        write!(requests, "   {in_flight} without an answer").expect(WRITES);
    }
    for (count, what) in [(counters.dropped, "dropped"), (counters.untaken, "never begun")] {
        if count > 0 {
            write!(requests, "   {} {what}", grouped(count)).expect(WRITES);
        }
    }
    if let (Some(scheduled), Some(achieved)) = (tracked.scheduled_qps(), tracked.qps()) {
        let (scheduled, achieved) = (rate(scheduled), rate(achieved));
        write!(requests, "        scheduled {scheduled}/s   achieved {achieved}/s").expect(WRITES);
    }
    // The first line of plain HTTP has it.
    if let (None, Some(achieved), true) =
        (tracked.scheduled_qps(), tracked.qps(), tracked.sums.answers.is_some())
    {
        write!(requests, "        achieved {}/s", rate(achieved)).expect(WRITES);
    }
    let mut lines = vec![format!("  {requests}")];
    let mut label = "failed  ";
    for (kind, tally) in tracked.sums.failures.iter() {
        let mut line = format!("  {label}   {} × {}", grouped(tally.count), kind.name());
        if !tally.first_message.is_empty() {
            write!(line, "  \"{}\"", snapshot.first_message(tally)).expect(WRITES);
        }
        lines.push(line);
        label = "        ";
    }
    let statuses: Vec<(u16, u64)> = tracked.sums.statuses.iter().collect();
    if !matches!(statuses.as_slice(), [] | [(200..=299, _)]) {
        let parts: Vec<String> = statuses
            .iter()
            .map(|(status, count)| format!("{} × {status}", grouped(*count)))
            .collect();
        lines.push(format!("  status     {}", parts.join("   ")));
    }
    lines
}

/// Each `--slo` and `--fail-if`, with its figure.
fn gates(results: &Results) -> Vec<String> {
    let line = |flag: &str, word: &str, gate: &Gate| {
        format!("  {flag:<13}{word}   {}   {}", gate.text, gate.in_words())
    };
    let slo = results.slo.iter().map(|gate| line("slo", gate.outcome.name(), gate));
    let fail_if = results.fail_if.iter().map(|gate| {
        let word = match gate.outcome {
            GateOutcome::Held => "not true",
            GateOutcome::Missed => "TRUE",
            GateOutcome::Untrusted => gate.outcome.name(),
        };
        line("fail-if", word, gate)
    });
    goodput(results).into_iter().chain(slo).chain(fail_if).collect()
}

/// How many requests kept the goals of `--goodput`.
fn goodput(results: &Results) -> Option<String> {
    let (goals, counters) = (&results.facts.goodput, &results.tracked.sums.counters);
    let duration_ns = Some(results.tracked.duration_ns).filter(|ns| *ns > 0);
    let qps = counters.good as f64 * 1e9 / duration_ns.filter(|_| !goals.is_empty())? as f64;
    let ended = (counters.completed + counters.failed).max(1);
    let share = 100.0 * counters.good as f64 / ended as f64;
    let goals = goals_text(goals);
    let unknown = match counters.good_unknown {
        0 => String::new(),
        count => format!("   {} not known, as nobody counted their tokens", grouped(count)),
    };
    Some(format!(
        "  goodput      {}/s   {share:.1} % of the requests kept {goals}{unknown}",
        rate(qps)
    ))
}

/// Connections, client, checks, files.
fn facts_below(results: &Results, assessment: Option<&Assessment>) -> Vec<String> {
    let (facts, tracked) = (results.facts, &results.tracked);
    let all = Totals::of(&results.snapshot.phases);
    let mut lines = vec![connections(&all)];
    lines.extend(handshakes(&all));
    lines.extend(waits(results));
    // The trust line of an open loop has it.
    if let (Some(busy), true) = (tracked.utilisation(), facts.open.is_none()) {
        let mut line = format!("  client       {:.0} % busy", 100.0 * busy);
        if let Some(ratio) = assessment.and_then(|assessment| assessment.little_ratio) {
            write!(line, "   latency x rate / connections = {ratio:.2}").expect(WRITES);
        }
        lines.push(line);
    }
    let ratio = assessment.and_then(|assessment| assessment.little_ratio);
    if let Some(warning) = ratio.and_then(little_warning) {
        lines.push(format!("  WARNING      {warning}"));
    }
    match (facts.precision, results.snapshot.tracked().last()) {
        (Some(precision), Some(phase)) => {
            let budget_ns = facts.phases.last().and_then(|plan| plan.duration_ns);
            lines.push(precision::line(precision, phase, budget_ns));
        }
        _ => lines.extend(tighter(results)),
    }
    if let Some(floor) = &facts.floor {
        lines.push(floor::line(floor, tracked.sums.service.percentile(50_000)));
    }
    if let Some(dir) = &facts.report_dir {
        lines.push(format!("  files        {}/  ({}, ...)", dir.display(), files::RESULT_SUMMARY));
    }
    lines
}

fn connections(all: &Totals) -> String {
    let counters = &all.sums.counters;
    let mut line = format!("  connections  {} opened", grouped(counters.connections_opened));
    // A few dozen values fill no row of percentiles; and no latency contains them.
    if let Some(median) = all.sums.connect.percentile(50_000) {
        let most = time(all.sums.connect.max);
        write!(line, " in {} (median; longest {most})", time(median)).expect(WRITES);
    }
    let more = [
        (counters.connections_reused_stale, "found dead when reused"),
        (counters.retries, "requests sent again for that"),
        (counters.timeouts_after_client_stall, "timeouts after a pause of ours"),
    ];
    for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
        write!(line, "   {} {what}", grouped(count)).expect(WRITES);
    }
    line
}

/// How long TLS handshakes took, of those that were made; no latency contains them.
fn handshakes(all: &Totals) -> Option<String> {
    let counters = &all.sums.counters;
    let (median, most) = (all.sums.tls.percentile(50_000)?, all.sums.tls.max);
    let (handshakes, resumed) = (counters.tls_handshakes, counters.tls_resumed);
    let resumed = match resumed {
        0 => "no session resumed".to_owned(),
        count => format!("{} resumed a session", grouped(count)),
    };
    Some(format!(
        "  tls          {} in {} (median; longest {})   {resumed}",
        counted(handshakes, "handshake"),
        time(median),
        time(most)
    ))
}

/// How many requests waited for a connection, why, and what helps.
fn waits(results: &Results) -> Vec<String> {
    let Some(open) = &results.facts.open else { return Vec::new() };
    let counters = &results.tracked.sums.counters;
    let line = |count: u64, ns: u64, why: &str, more: String| {
        let verb = if count == 1 { "request waited" } else { "requests waited" };
        let mean = time(ns / count.max(1));
        format!("               {} {verb} {why}, {mean} on average{more}", grouped(count))
    };
    let mut lines = Vec::new();
    if counters.waits_new_connection > 0 {
        let more = connections_wanted(results)
            .map_or_else(String::new, |count| format!("; -c {count} has them open before"));
        let (count, ns) = (counters.waits_new_connection, counters.waits_new_connection_ns);
        lines.push(line(count, ns, "for a new connection", more));
    }
    if counters.waits_full > 0 {
        let why = format!("as all {} connections were busy", grouped(open.max_connections.into()));
        // Where the queue grows no number of them helps.
        let more = if results.trust.is_unstable { "" } else { "; --max-connections allows more" };
        lines.push(line(counters.waits_full, counters.waits_full_ns, &why, more.to_owned()));
    }
    if counters.waits_other_shard_free > 0 {
        let (count, ns) = (counters.waits_other_shard_free, counters.waits_other_shard_free_ns);
        let why = "while another shard had one free";
        lines.push(line(count, ns, why, "; more connections help, or fewer shards".to_owned()));
    }
    lines
}

/// How much longer the run must be for a p99 that is known well.
fn tighter(results: &Results) -> Option<String> {
    let sums = &results.tracked.sums;
    let interval = results.trust.intervals.iter().find(|interval| interval.milli == 99_000)?;
    let p99_ns = sums.headline().percentile(99_000).filter(|ns| *ns > 0)?;
    let half = interval.high_ns.saturating_sub(interval.low_ns) as f64 / 2.0 / p99_ns as f64;
    let more_ns = (extension_factor(half, PRECISE) - 1.0) * results.tracked.load_ns as f64;
    (!results.trust.is_unstable && more_ns > 0.0 && more_ns < LONGER_NS_MAX).then(|| {
        let seconds = (more_ns / 1e9).ceil() as u64;
        format!(
            "  precision    p99 ± {:.0} %; ± {:.0} % takes about {} more",
            100.0 * half,
            100.0 * PRECISE,
            time(seconds * 1_000_000_000)
        )
    })
}

/// The last three lines.
fn next(results: &Results) -> Vec<String> {
    let commands = next_commands(results);
    let width = commands.iter().map(|next| next.line.chars().count()).max().unwrap_or(0);
    ["next", "", ""]
        .into_iter()
        .zip(&commands)
        .map(|(label, next)| format!("  {label:<13}{:<width$}  # {}", next.line, next.why))
        .collect()
}
