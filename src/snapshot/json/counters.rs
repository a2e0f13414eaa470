//! Every counter under its name in files: those of endpoints first, in its order.

use crate::snapshot::{Snapshot, Totals};

/// Reasons for a finish that endpoints counts, in the order of `Answers::finish_counts`.
const FINISH_REASONS: [&str; 6] = [
    "tracked_finish_reason_stop",
    "tracked_finish_reason_length",
    "tracked_finish_reason_tool_calls",
    "tracked_finish_reason_content_filter",
    "tracked_finish_reason_function_call",
    "tracked_finish_reason_other",
];

/// Every counter of the run: those of endpoints first, in its order.
pub fn run_counters(snapshot: &Snapshot) -> Vec<(&'static str, u64)> {
    counters_of(snapshot, &Totals::of(snapshot.tracked()), &Totals::of(&snapshot.phases))
}

/// The same, of sums that are at hand.
pub(super) fn counters_of(
    snapshot: &Snapshot,
    tracked: &Totals,
    all: &Totals,
) -> Vec<(&'static str, u64)> {
    let mut list = vec![
        ("total_samples_issued", all.sums.counters.issued),
        ("total_samples_completed", all.sums.counters.completed),
        ("total_samples_failed", all.sums.counters.failed),
        ("tracked_samples_issued", tracked.sums.counters.issued),
        ("tracked_samples_completed", tracked.sums.counters.completed),
        ("tracked_samples_failed", tracked.sums.counters.failed),
    ];
    let reasons = tracked.sums.answers.as_ref().map(|answers| answers.finish_counts());
    let counts = reasons.map_or([0; FINISH_REASONS.len()], |reasons| reasons.map(|(_, n)| n));
    list.extend(FINISH_REASONS.into_iter().zip(counts));
    list.extend([
        ("tracked_duration_ns", tracked.duration_ns),
        ("legacy_loadgen_window_duration_ns", tracked.window_ns),
        ("total_duration_ns", snapshot.total_duration_ns()),
    ]);
    let counted_above = ["samples_issued", "samples_completed", "samples_failed"];
    list.extend(own_counters(all).into_iter().filter(|(name, _)| !counted_above.contains(name)));
    list
}

/// Every counter of one phase.
pub fn phase_counters(totals: &Totals) -> Vec<(&'static str, u64)> {
    let mut list = own_counters(totals);
    list.extend([
        ("duration_ns", totals.duration_ns),
        ("legacy_loadgen_window_duration_ns", totals.window_ns),
    ]);
    list
}

/// The shards' counters under their names in files. What happens to queries is counted in samples,
/// as endpoints does.
fn own_counters(totals: &Totals) -> Vec<(&'static str, u64)> {
    // What a closed loop has no schedule for.
    const OPEN_LOOP: [&str; 10] = [
        "scheduled",
        "dropped",
        "untaken",
        "held_back",
        "waits_new_connection",
        "waits_new_connection_ns",
        "waits_full",
        "waits_full_ns",
        "waits_other_shard_free",
        "waits_other_shard_free_ns",
    ];
    let is_open = totals.sums.has_schedule();
    let has_wire_stamps = totals.sums.has_wire_stamps();
    let has_answers = totals.sums.answers.is_some();
    let has_tls = !totals.sums.tls.is_empty();
    let mut list: Vec<_> = totals
        .sums
        .counters
        .iter()
        .filter(|(name, _)| is_open || !OPEN_LOOP.contains(name))
        // Told as goodput, where goals were given.
        .filter(|(name, _)| !matches!(*name, "good" | "good_unknown"))
        .filter(|(name, _)| has_answers || !is_of_answers(name))
        .filter(|(name, _)| has_tls || !name.starts_with("tls_"))
        .filter(|(name, _)| has_wire_stamps || !name.starts_with("wire_stamps"))
        .map(|(name, value)| match name {
            "scheduled" => ("samples_scheduled", value),
            "dropped" => ("samples_dropped", value),
            "untaken" => ("samples_untaken", value),
            "issued" => ("samples_issued", value),
            "completed" => ("samples_completed", value),
            "failed" => ("samples_failed", value),
            "cancelled" => ("samples_cancelled", value),
            "carried_in" => ("samples_carried_in", value),
            other => (other, value),
        })
        .collect();
    let after_cancelled = 1 + list
        .iter()
        .position(|(name, _)| *name == "samples_cancelled")
        .expect("the shards count cancelled queries");
    list.insert(after_cancelled, ("samples_in_flight_at_end", totals.in_flight_at_end));
    list.extend([
        ("client_busy_ns", totals.sums.busy_ns),
        ("client_covered_ns", totals.sums.covered_ns),
    ]);
    list
}

/// Whether a counter says something only of an inference endpoint.
fn is_of_answers(name: &str) -> bool {
    const TOKENS: [&str; 5] = [
        "completion_tokens",
        "reasoning_tokens",
        "prompt_tokens",
        "cached_tokens",
        "tpot_undefined",
    ];
    name.starts_with("answers") || name.starts_with("chunk") || TOKENS.contains(&name)
}
