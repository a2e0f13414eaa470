//! The comparison as text and as JSON.

use serde_json::{Value, json};

use super::Experiment;
use super::verdict::{Call, Effect, Figure, Verdict};
use crate::compare::{Kind, aligned, p_text, unit_of};
use crate::load::{Done, Several};
use crate::number::{counted, significant};
use crate::report::{printable, without_user_info};
use crate::snapshot::{git_sha, pretty};
use crate::statistics::median;

/// The report, the verdict in its first line.
pub fn text(experiment: &Experiment, runs: &Several) -> String {
    let mut lines = vec![answer(experiment), control(experiment), String::new()];
    for (name, url) in ["A", "B"].iter().zip(&experiment.urls) {
        lines.push(format!("  {name}  {}", without_user_info(url)));
    }
    lines.push(String::new());
    let mut text: String = lines.iter().map(|line| printable(line) + "\n").collect();
    text.push_str(&aligned(&table(experiment, runs.done())));
    let mut lines = Vec::new();
    for (figure, verdict) in &experiment.verdicts {
        if let Some(verdict) = verdict.as_ref().filter(|verdict| !verdict.why.is_empty()) {
            lines.push(format!("  {}: {}", short(figure), verdict.why));
        }
    }
    for judgement in &experiment.judgements {
        let (outcome, detail) = (judgement.outcome.name(), &judgement.detail);
        lines.push(format!("  fail-if {}  {outcome}: {detail}", judgement.expression));
    }
    let untrusted = runs.done().iter().filter(|done| done.run.is_untrusted()).count();
    if untrusted > 0 {
        let of = counted(runs.done().len() as u64, "run");
        lines.push(format!("  trust   {untrusted} of {of} not to be believed (trust FAIL)"));
    }
    if let Some(directory) = runs.directory() {
        let path = directory.path().display();
        lines.push(format!("  files   {path}/  (a-01, a-02, b-01, ...)"));
        lines.push(format!("  next    loadgen-uring compare '{path}/a-*' '{path}/b-*'"));
    }
    text.push('\n');
    text.extend(lines.iter().map(|line| printable(line) + "\n"));
    text
}

/// For machines: ns, per second and shares; undefined is null.
pub fn json(
    experiment: &Experiment,
    done: &[Done],
    (exit_code, reason): &(u8, Option<String>),
) -> String {
    let sides = || experiment.plan.iter();
    let run = |((block, side), done): (&(usize, super::Side), &Done)| {
        let mut run = done.json();
        run["block"] = json!(block);
        run["side"] = side.name().into();
        for (figure, _) in &experiment.verdicts {
            run["figures"][figure.name] = json!(figure.of(&done.run));
        }
        run
    };
    let figure = |(figure, verdict): &(Figure, Option<Verdict>)| {
        let [a, b] = medians(experiment, done, figure);
        json!({
            "figure": figure.name,
            "unit": unit_name(figure.kind),
            "a": a,
            "b": b,
            "verdict": verdict.as_ref().map_or(Call::CannotTell, |verdict| verdict.call).name(),
            "why": verdict.as_ref().map_or("too few blocks have it", |verdict| &verdict.why),
            "blocks": verdict.as_ref().map(|verdict| verdict.blocks),
            "change": verdict.as_ref().map(|verdict| effect_json(verdict.effect)),
            "control": verdict.as_ref().map(|verdict| effect_json(verdict.control)),
        })
    };
    let judgement = |judgement: &crate::compare::Judgement| {
        json!({
            "expression": judgement.expression,
            "outcome": judgement.outcome.name(),
            "detail": judgement.detail,
        })
    };
    let urls: Vec<String> = experiment.urls.iter().map(|url| without_user_info(url)).collect();
    pretty(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "git_sha": git_sha(),
        "verdict": overall(experiment),
        "sentence": answer(experiment),
        "urls": { "a": urls.first(), "b": urls.last() },
        "seed": experiment.seed,
        "blocks": experiment.blocks,
        "order": sides().map(|(_, side)| side.name()).collect::<Vec<_>>(),
        "complete": done.len() == experiment.plan.len()
            && done.iter().all(|done| done.run.is_complete()),
        "figures": experiment.verdicts.iter().map(figure).collect::<Vec<_>>(),
        "runs": sides().zip(done).map(run).collect::<Vec<_>>(),
        "fail_if": experiment.judgements.iter().map(judgement).collect::<Vec<_>>(),
        "exit_code": exit_code,
        "reason": reason,
    }))
}

fn effect_json(effect: Effect) -> Value {
    json!({
        "shift": effect.shift,
        "interval": effect.interval.map(|(low, high)| [low, high]),
        "p": effect.p,
    })
}

const fn unit_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Time => "ns",
        Kind::Rate => "1/s",
        Kind::Share => "share",
    }
}

/// Figures with this call, each with its change.
fn told(experiment: &Experiment, call: Call) -> Vec<String> {
    let of_call = |(figure, verdict): &(Figure, Option<Verdict>)| {
        let verdict = verdict.as_ref().filter(|verdict| verdict.call == call)?;
        let interval = verdict.effect.interval.map_or(String::new(), |(low, high)| {
            format!(" ({:+.1} to {:+.1})", 100.0 * low, 100.0 * high)
        });
        let shift = figure.shift_text(verdict.effect.shift);
        Some(format!("{} {shift}{interval}", short(figure)))
    };
    experiment.verdicts.iter().filter_map(of_call).collect()
}

/// The verdict in one word or two.
fn overall(experiment: &Experiment) -> &'static str {
    let has = |call: Call| {
        experiment.verdicts.iter().flat_map(|(_, verdict)| verdict).any(|found| found.call == call)
    };
    match (has(Call::Faster), has(Call::Slower)) {
        (true, true) => "mixed",
        (true, false) => Call::Faster.name(),
        (false, true) => Call::Slower.name(),
        (false, false) => Call::CannotTell.name(),
    }
}

/// The first line.
fn answer(experiment: &Experiment) -> String {
    let faster = told(experiment, Call::Faster).join(", ");
    let slower = told(experiment, Call::Slower).join(", ");
    match overall(experiment) {
        "mixed" => format!("B is faster in some and slower in others: {faster}; {slower}."),
        "faster" => format!("B is faster than A: {faster}."),
        "slower" => format!("B is slower than A: {slower}."),
        _ => format!("Cannot tell A from B: {}.", why(experiment)),
    }
}

/// Why nothing can be told.
fn why(experiment: &Experiment) -> String {
    let known: Vec<&Verdict> =
        experiment.verdicts.iter().filter_map(|(_, verdict)| verdict.as_ref()).collect();
    let noisy = known.iter().find(|verdict| verdict.why.contains("noisy"));
    match (known.as_slice(), noisy) {
        ([], _) => "too few blocks have figures to compare".to_owned(),
        (_, Some(noisy)) => noisy.why.clone(),
        (known, None) => {
            let blocks = known.iter().map(|verdict| verdict.blocks).max().unwrap_or(0);
            let blocks = counted(blocks as u64, "block");
            format!("no difference beyond chance in {blocks}")
        }
    }
}

/// The second line: A against itself.
fn control(experiment: &Experiment) -> String {
    let of_latency = experiment.verdicts.iter().filter(|(figure, _)| figure.kind == Kind::Time);
    let parts: Vec<String> = of_latency
        .filter_map(|(figure, verdict)| {
            let Effect { shift, p, .. } = verdict.as_ref()?.control;
            Some(format!("{} {}, p {}", short(figure), figure.shift_text(shift), p_text(p)))
        })
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("A against itself: {}.", parts.join("; "))
    }
}

fn short(figure: &Figure) -> &'static str {
    figure.name.trim_start_matches("latency.")
}

/// Of all complete runs of A, the control included, and of B.
fn medians(experiment: &Experiment, done: &[Done], figure: &Figure) -> [Option<f64>; 2] {
    [0, 1].map(|url| {
        let of_url = experiment.plan.iter().zip(done).filter(|((_, side), _)| side.url() == url);
        let values: Vec<f64> = of_url.filter_map(|(_, done)| figure.of(&done.run)).collect();
        median(&values)
    })
}

fn table(experiment: &Experiment, done: &[Done]) -> Vec<Vec<String>> {
    let head = ["", "", "A", "B", "change", "95 %", "p", "A/A", "p", "B is"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for (figure, verdict) in &experiment.verdicts {
        let medians = medians(experiment, done, figure);
        let (unit, size) = unit_of(figure.kind, medians.into_iter().flatten());
        let value =
            |value: Option<f64>| value.map_or("n/a".to_owned(), |value| significant(value / size));
        let mut row = vec![figure.name.replacen('.', " ", 1), unit.to_owned()];
        row.extend(medians.map(value));
        match verdict {
            None => row.extend(["", "", "", "", "", "cannot tell"].map(str::to_owned)),
            Some(Verdict { call, effect, control, .. }) => row.extend([
                figure.shift_text(effect.shift),
                effect.interval.map_or("n/a".to_owned(), |(low, high)| {
                    format!("{:+.1}..{:+.1}", 100.0 * low, 100.0 * high)
                }),
                p_text(effect.p),
                figure.shift_text(control.shift),
                p_text(control.p),
                call.name().to_owned(),
            ]),
        }
        table.push(row);
    }
    table
}
