//! The documents agree with the program and with each other: each flag is told, and no link is
//! dead. Every check has a negative control beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::run::BINARY;
use crate::support::temp::files_below;

/// Every command, and none.
const COMMANDS: [&str; 11] = [
    "",
    "max-throughput",
    "concurrency",
    "poisson",
    "constant",
    "gamma",
    "ab",
    "serve",
    "probe",
    "compare",
    "doctor",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect(name)
}

#[test]
fn every_flag_of_the_help_is_in_the_document_of_the_command_line() {
    let document = document("docs/CLI.md");
    let told = flags_of_tables(&document);
    for command in COMMANDS {
        let help = help(command);
        let typed = flags_of_help(&help);
        assert!(typed.contains("--help"), "`{command} --help` has no flags:\n{help}");
        let missing: Vec<_> = typed.difference(&told).collect();
        assert!(missing.is_empty(), "docs/CLI.md: no table has {missing:?} of `{command}`");
    }
    // Negative controls.
    let help = "  -x, --extra <N>  Not --other\n      --long\n";
    assert_eq!(flags_of_help(help), BTreeSet::from(["-x", "--extra", "--long"]));
    let table = "Text with `--text`.\n\n| `-x N`, `--extra N` | not `--other` |\n";
    assert_eq!(flags_of_tables(table), BTreeSet::from(["-x", "--extra"]));
}

#[test]
fn every_flag_in_the_document_of_the_command_line_is_one_of_the_help() {
    let document = document("docs/CLI.md");
    let ours = document.split("## Flags of other tools").next().expect("the first part");
    let helps = COMMANDS.map(help);
    let typed: BTreeSet<&str> = helps.iter().flat_map(|help| flags_of_help(help)).collect();
    let unknown: Vec<_> = flags_of_tables(ours).difference(&typed).copied().collect();
    assert!(unknown.is_empty(), "docs/CLI.md: no command has {unknown:?}");
}

fn help(command: &str) -> String {
    let arguments = [command, "--help"].into_iter().filter(|argument| !argument.is_empty());
    let output = Command::new(BINARY).args(arguments).output().expect("it starts");
    String::from_utf8(output.stdout).expect("text")
}

/// The names of flags in a help text: what begins a line, before its value.
fn flags_of_help(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let names = lines.flat_map(|line| {
        let names = line.split(", ").map(|part| part.split(' ').next().expect("a first word"));
        names.take_while(|name| name.starts_with('-')).collect::<Vec<_>>()
    });
    names.collect()
}

/// The names of flags in the first column of tables.
fn flags_of_tables(document: &str) -> BTreeSet<&str> {
    let rows = document.lines().filter(|line| line.starts_with("| `-"));
    let cells = rows.map(|row| row["| ".len()..].split(" | ").next().expect("a first cell"));
    let pieces = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    pieces.map(|code| code.split([' ', '=']).next().expect("a first word")).collect()
}

#[test]
fn no_link_is_dead() {
    let below = ["docs", "perf"].into_iter().flat_map(|folder| files_below(&root().join(folder)));
    let pages = below.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages: Vec<PathBuf> = pages.chain([root().join("README.md")]).collect();
    assert!(pages.len() > 10, "the documents are found");
    let dead: Vec<String> = pages
        .iter()
        .flat_map(|page| dead_links(page, &fs::read_to_string(page).expect("text")))
        .collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    // Negative controls.
    let text =
        "[a](NONE.md) [b](CLI.md#none) [c](CLI.md#units) [d](https://x.org/) [e](#f)\n## F\n";
    assert_eq!(dead_links(&root().join("docs/X.md"), text).len(), 2);
}

/// Relative links of a page whose file or heading is not there.
fn dead_links(page: &Path, text: &str) -> Vec<String> {
    let folder = page.parent().expect("it is in a folder");
    let targets = text
        .match_indices("](")
        .filter_map(|(at, mark)| text[at + mark.len()..].split_once(')').map(|(target, _)| target));
    let is_dead = |target: &&str| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { page.to_owned() } else { folder.join(file) };
        let own = file.is_empty().then(|| text.to_owned());
        match (path.exists() || own.is_some(), heading) {
            (false, _) => true,
            (true, "") => false,
            (true, heading) => {
                let text = own.unwrap_or_else(|| fs::read_to_string(&path).unwrap_or_default());
                !anchors(&text).contains(heading)
            }
        }
    };
    let relative = targets.filter(|target| !target.contains("://"));
    relative.filter(is_dead).map(|target| format!("{}: {target}", page.display())).collect()
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| {
        let rest = line.trim_start_matches('#');
        (rest.len() < line.len()).then(|| rest.strip_prefix(' ')).flatten()
    });
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    headings.map(anchor).collect()
}
