//! The wire files of `tests/corpus/http1`, each with what must come of it, under every cut.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Outcome, decode, oracle, show};

/// A response in `NAME.http` and its expectation in `NAME.expect`; `README.md` has the format.
struct Case {
    name: String,
    wire: Vec<u8>,
    is_head_request: bool,
    expected: String,
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn every_corpus_file_gives_its_expectation() {
    for case in cases() {
        assert_outcome(&case, "whole", &decode(&case.wire, case.is_head_request, []));
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn every_cut_of_every_corpus_file_gives_the_same_result() {
    for case in cases() {
        for cut in cuts_worth_trying(&case.wire) {
            let outcome = decode(&case.wire, case.is_head_request, [cut]);
            assert_outcome(&case, &format!("cut at {cut}"), &outcome);
        }
        let outcome = decode(&case.wire, case.is_head_request, 0..case.wire.len());
        assert_outcome(&case, "byte by byte", &outcome);
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_independent_decoder_agrees_on_every_corpus_file() {
    for case in cases() {
        let ours = decode(&case.wire, case.is_head_request, []).without_kind();
        assert_eq!(ours, oracle::decode(&case.wire, case.is_head_request), "{}", case.name);
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_corpus_covers_the_awkward_responses() {
    let names: BTreeSet<_> = cases().into_iter().map(|case| case.name).collect();
    let awkward = [
        "plain",
        "chunked",
        "drip",
        "204",
        "304",
        "head",
        "100",
        "close",
        "eof",
        "rudeclose",
        "manyhdr-300",
        "manyhdr-1000",
        "lf",
        "trunc",
        "trunc-chunk",
        "head-256k",
    ];
    for name in awkward {
        assert!(names.contains(name), "no corpus file for {name}");
    }
    assert!(names.len() >= 40, "{} corpus files", names.len());
}

/// All cuts of a short response. Of a long one those near its ends and near the first and last line
/// ends, where the state changes, and some hundred in between.
fn cuts_worth_trying(wire: &[u8]) -> BTreeSet<usize> {
    if wire.len() <= 2048 {
        return (0..=wire.len()).collect();
    }
    let line_ends: Vec<_> = (0..wire.len()).filter(|&at| wire[at] == b'\n').collect();
    let outer = line_ends.iter().take(16).chain(line_ends.iter().rev().take(16)).copied();
    let near = outer.chain([0, wire.len()]).flat_map(|at| at.saturating_sub(4)..=at + 4);
    let strided = (0..wire.len()).step_by(wire.len() / 151);
    near.chain(strided).filter(|&cut| cut <= wire.len()).collect()
}

fn assert_outcome(case: &Case, how: &str, outcome: &Outcome) {
    let got = outcome.to_string();
    assert_eq!(got, case.expected, "{} ({how}): {}", case.name, show(&case.wire));
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/http1");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()))
        .map(|entry| entry.expect("a listed file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
        .collect();
    paths.sort();
    paths.iter().map(|path| read_case(path)).collect()
}

fn read_case(path: &Path) -> Case {
    let name = path.file_stem().expect("it has an extension").to_string_lossy().into_owned();
    let wire = fs::read(path).expect("a corpus file can be read");
    let text = fs::read_to_string(path.with_extension("expect"))
        .unwrap_or_else(|error| panic!("no expectation for {name}: {error}"));
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let method = lines[0].strip_prefix("request ").expect("the first line names the method");
    let expected = lines[1..].iter().flat_map(|line| [line, "\n"]).collect();
    Case { name, wire, is_head_request: method == "HEAD", expected }
}
