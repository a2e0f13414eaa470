//! The rules of `docs/STYLE.md` that no compiler checks. Each message says what to do instead.
//!
//! Every check is a function from a file's name and text to its complaints, so that each has a
//! negative control beside it: a small bad text that must be complained about.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::temp::files_below;

/// Columns of a line. rustfmt keeps code at 100; what it cannot break, and comments, get some more.
const COLUMNS: usize = 100;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 90;

/// Floors of the root crate: a module imports only from its own floor and from those below.
const ROOT_FLOORS: &[(i32, &[&str])] = &[
    (5, &["main", "ab", "load", "compare", "display", "progress"]),
    (4, &["session", "report", "snapshot", "files", "intervals", "hdr", "doctor", "trust"]),
    (4, &["records", "side", "probe"]),
    (3, &["cli", "config", "cores", "request", "plan", "expression", "dataset", "api"]),
    (2, &["error", "stream", "statistics", "number", "courtesy", "tokenizer"]),
];

/// Floors of the data plane. Files of `sys` stand on their own: the two back ends are above what
/// they are made of.
const SHARD_FLOORS: &[(i32, &[&str])] = &[
    (3, &["shard"]),
    (2, &["reactor", "phase", "sim", "timer"]),
    (1, &["sys/uring", "sys/epoll", "pool", "connection", "recorder", "record"]),
    (
        0,
        &[
            "sys/socket",
            "cpu",
            "http1",
            "event",
            "query",
            "failure",
            "token",
            "clock",
            "realtime",
            "wheel",
            "schedule",
            "order",
            "margin",
            "histogram",
            "answer",
            "chunk",
            "sse",
            "tls",
        ],
    ),
    (
        -1,
        &[
            "sys",
            "sys/mod",
            "sys/affinity",
            "sys/allocator",
            "sys/buffers",
            "sys/ladder",
            "sys/limits",
            "sys/time",
            "sys/wake",
            "sys/wire",
            "limits",
        ],
    ),
];

/// The only code that may be unsafe: the system-call wall, and that of the tests.
const UNSAFE_ALLOWED: &[&str] = &["shards/src/sys/", "tests/it/support/sys.rs"];

/// What a study keeps, so that each number can be repeated.
const STUDY_FILES: [&str; 5] = ["README.md", "command.txt", "machine.txt", "raw.csv", "summary.md"];

/// A Rust file: its path below the root of the workspace, its text, and the text without comments
/// and literals.
struct Source {
    name: String,
    text: String,
    code: String,
}

impl Source {
    fn new(name: &str, text: String) -> Source {
        let code = blank_out(&text);
        Source { name: name.to_owned(), text, code }
    }

    /// The module below `src/`, or `None` for what is in no such folder.
    fn module(&self, folder: &str) -> Option<&str> {
        let rest = self.name.strip_prefix(folder)?;
        Some(rest.split('/').next().expect("split gives at least one part").trim_end_matches(".rs"))
    }

    /// The code up to the unit tests, which may import what they like.
    fn code_without_tests(&self) -> &str {
        self.code.split("#[cfg(test)]\nmod tests").next().expect("split gives at least one part")
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the workspace.
fn sources() -> Vec<Source> {
    let folders = ["src", "shards/src", "shards/tests", "shards/benches", "bench", "tests/it"];
    let files = folders.iter().flat_map(|folder| files_below(&root().join(folder)));
    let rust = files.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|file| {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        Source::new(name, fs::read_to_string(&file).unwrap())
    })
    .collect()
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

fn check_all(check: impl Fn(&Source) -> Vec<String>) {
    let complaints: Vec<String> = sources().iter().flat_map(check).collect();
    assert_none(&complaints);
}

/// The complaints about one small text.
fn complaints(check: impl Fn(&Source) -> Vec<String>, name: &str, text: &str) -> usize {
    check(&Source::new(name, text.to_owned())).len()
}

#[test]
fn imports_point_down_the_floors() {
    check_all(imports);
    let up = "//! x\nuse crate::shard::Shard;\n";
    assert_eq!(complaints(imports, "shards/src/http1/mod.rs", up), 1);
    assert_eq!(complaints(imports, "shards/src/pool.rs", up), 1);
    assert_eq!(complaints(imports, "shards/src/shard.rs", "use crate::{pool, sys::uring};"), 0);
    assert_eq!(complaints(imports, "shards/src/sys/uring.rs", "use crate::limits::A;"), 0);
    assert_eq!(
        complaints(imports, "shards/src/sys/wake.rs", "use crate::{\n limits::{A, B}, clock};"),
        1
    );
    assert_eq!(complaints(imports, "shards/src/clock.rs", "use crate::sys::uring::Uring;"), 1);
    assert_eq!(complaints(imports, "shards/src/clock.rs", "use crate::sys::time::now;"), 0);
    assert_eq!(complaints(imports, "src/plan.rs", "fn f() { crate::report::render() }"), 1);
    assert_eq!(complaints(imports, "src/report.rs", "use crate::plan::Plan; // crate::cli"), 0);
    assert_eq!(complaints(imports, "src/novel.rs", ""), 1);
    assert_eq!(complaints(imports, "shards/src/clock.rs", "use loadgen_bench::Endpoint;"), 1);
}

/// Imports from a higher floor, modules without a floor, and crates that a plane must not know.
fn imports(source: &Source) -> Vec<String> {
    let name = &source.name;
    let (folder, floors, strangers): (_, _, &[&str]) = if name.starts_with("shards/src/") {
        ("shards/src/", SHARD_FLOORS, &["loadgen_bench::", "loadgen_uring::"])
    } else if name.starts_with("src/") {
        ("src/", ROOT_FLOORS, &[])
    } else {
        return Vec::new();
    };
    let in_sys = name.strip_prefix("shards/src/sys/").map(|file| format!("sys/{file}"));
    let module = match &in_sys {
        Some(file) => file.trim_end_matches(".rs"),
        None => source.module(folder).expect("the folder was just seen"),
    };
    if module == "lib" {
        return Vec::new();
    }
    let floor_of = |module: &str| floors.iter().find(|(_, m)| m.contains(&module)).map(|(f, _)| *f);
    let Some(own) = floor_of(module) else {
        return vec![format!(
            "{name}: give module `{module}` a floor in tests/it/tidy.rs and the docs"
        )];
    };
    let code = source.code_without_tests();
    let mut complaints = Vec::new();
    for imported in imported_modules(code) {
        if let Some(floor) = floor_of(&imported)
            && floor > own
        {
            complaints.push(format!(
                "{name}: `{module}` (floor {own}) imports `{imported}` (floor {floor}); pass the \
                 value in, or move what both need to a lower floor"
            ));
        }
    }
    for stranger in strangers.iter().filter(|stranger| code.contains(**stranger)) {
        complaints.push(format!(
            "{name}: the data plane does not know {stranger}; turn the import round"
        ));
    }
    complaints
}

/// The first path segment of everything that code names with `crate::`, groups in braces included.
fn imported_modules(code: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        if code[..at].ends_with(is_word) {
            continue; // the end of a longer name, `my_crate::`
        }
        let rest = &code[at + found.len()..];
        match rest.strip_prefix('{') {
            None if rest.starts_with("sys::") => {
                modules.push(format!("sys/{}", first_word(&rest["sys::".len()..])));
            }
            None => modules.push(first_word(rest)),
            Some(group) => modules.extend(top_level_items(group).into_iter().map(first_word)),
        }
    }
    modules
}

/// The items of a group, up to the brace that closes it.
fn top_level_items(group: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth == 0 => {
                items.push(group[begin..at].trim());
                begin = at + 1;
            }
            '}' => {
                items.push(group[begin..at].trim());
                break;
            }
            _ => {}
        }
    }
    items
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| is_word(*c)).collect()
}

/// Whether code has the word, not as a part of a longer one.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(is_word) && !code[at + word.len()..].starts_with(is_word)
    })
}

#[test]
fn unsafe_stays_behind_the_wall() {
    check_all(unsafe_code);
    assert_eq!(complaints(unsafe_code, "src/plan.rs", "fn f() { unsafe { g() } }"), 1);
    assert_eq!(complaints(unsafe_code, "shards/src/pool.rs", "unsafe impl Send for A {}"), 1);
    assert_eq!(complaints(unsafe_code, "shards/src/sys/uring.rs", "unsafe { g() }"), 0);
    assert_eq!(complaints(unsafe_code, "src/main.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
}

fn unsafe_code(source: &Source) -> Vec<String> {
    let Source { name, code, .. } = source;
    let allowed = UNSAFE_ALLOWED.iter().any(|prefix| name.starts_with(prefix));
    if allowed || !has_word(code, "unsafe") {
        return Vec::new();
    }
    vec![format!("{name}: unsafe code belongs into {UNSAFE_ALLOWED:?}, behind a safe function")]
}

#[test]
fn every_file_says_what_it_is() {
    check_all(module_doc);
    assert_eq!(complaints(module_doc, "src/a.rs", "use std::fmt;\n"), 1);
    assert_eq!(complaints(module_doc, "src/a.rs", "//! What it is.\n"), 0);
    assert_eq!(complaints(module_doc, "src/a.rs", "//! Stub.\n"), 1);
}

fn module_doc(source: &Source) -> Vec<String> {
    let first = source.text.lines().next().unwrap_or("");
    let doc = first.strip_prefix("//! ").unwrap_or("");
    if !doc.is_empty() && doc != "Stub." {
        return Vec::new();
    }
    vec![format!(
        "{}: begin with `//!`: what is it, what does it own, what always holds",
        source.name
    )]
}

#[test]
fn leftovers_of_development_are_gone() {
    check_all(leftovers);
    assert_eq!(complaints(leftovers, "src/a.rs", "fn f() { todo!() }"), 1);
    assert_eq!(complaints(leftovers, "src/a.rs", "fn f() { dbg!(1); unimplemented!() }"), 2);
    assert_eq!(complaints(leftovers, "shards/src/a.rs", "fn f() { eprintln!(\"x\") }"), 1);
    assert_eq!(complaints(leftovers, "src/a.rs", "fn f() { println!(\"todo!\") } // dbg!"), 0);
}

fn leftovers(source: &Source) -> Vec<String> {
    let anywhere = [
        ("dbg!", "remove it"),
        ("todo!", "write it, or return an error that says what is missing"),
        ("unimplemented!", "write it, or return an error that says what is missing"),
    ];
    let advice = "count it or return it; only control prints";
    let in_shards = ["println!", "eprintln!", "print!", "eprint!"].map(|word| (word, advice));
    let is_data_plane = source.name.starts_with("shards/src/");
    let more = in_shards.iter().filter(|_| is_data_plane);
    let found = anywhere.iter().chain(more).filter(|(word, _)| {
        let (name, mark) = word.split_at(word.len() - 1);
        source.code.match_indices(name).any(|(at, _)| {
            source.code[at + name.len()..].starts_with(mark)
                && !source.code[..at].ends_with(is_word)
        })
    });
    found.map(|(word, advice)| format!("{}: {word}: {advice}", source.name)).collect()
}

#[test]
fn only_the_clock_reads_the_clock() {
    check_all(clock_reads);
    let reads = "fn f() { Instant::now(); }";
    assert_eq!(complaints(clock_reads, "shards/src/shard.rs", reads), 1);
    assert_eq!(complaints(clock_reads, "shards/src/clock.rs", reads), 0);
    assert_eq!(complaints(clock_reads, "src/session.rs", reads), 0);
}

fn clock_reads(source: &Source) -> Vec<String> {
    let Source { name, code, .. } = source;
    if !name.starts_with("shards/src/") || name == "shards/src/clock.rs" {
        return Vec::new();
    }
    let found = ["Instant::now", "SystemTime::now"].into_iter().filter(|read| code.contains(read));
    found
        .map(|read| format!("{name}: {read}: take `now_ns` as an argument, read in clock.rs"))
        .collect()
}

#[test]
fn lines_and_functions_fit_a_screen() {
    check_all(long_lines);
    check_all(long_functions);
    let wide = format!("// {}\n", "ä".repeat(COLUMNS));
    assert_eq!(complaints(long_lines, "src/a.rs", &wide), 1);
    let narrow = format!("// {}\n", "ä".repeat(COLUMNS - 3));
    assert_eq!(complaints(long_lines, "src/a.rs", &narrow), 0);
    let function = |lines| format!("fn f() {{\n{}}}\n", "    g(\"{\"); // {\n".repeat(lines));
    assert_eq!(complaints(long_functions, "src/a.rs", &function(FUNCTION_LINES)), 1);
    assert_eq!(complaints(long_functions, "src/a.rs", &function(FUNCTION_LINES - 2)), 0);
    assert_eq!(complaints(long_functions, "src/a.rs", "trait A { fn f(); }\n"), 0);
}

fn long_lines(source: &Source) -> Vec<String> {
    let numbered = source.text.lines().enumerate();
    let long = numbered.filter(|(_, line)| line.chars().count() > COLUMNS && !line.contains("://"));
    long.map(|(index, line)| {
        let (name, columns) = (&source.name, line.chars().count());
        format!("{name}:{}: {columns} columns; break it at {COLUMNS} or before", index + 1)
    })
    .collect()
}

fn long_functions(source: &Source) -> Vec<String> {
    let code = &source.code;
    let mut complaints = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(is_word) {
            continue;
        }
        let Some(open) = code[at..].find(['{', ';']).map(|offset| at + offset) else { continue };
        if code[open..].starts_with(';') {
            continue; // a declaration without a body
        }
        let lines = code[at..open + block_bytes(&code[open..])].lines().count();
        if lines > FUNCTION_LINES {
            let function = first_word(&code[at + "fn ".len()..]);
            complaints.push(format!(
                "{}: `{function}` has {lines} lines, {FUNCTION_LINES} are the limit; split it \
                 where the sentence that describes it has an \"and\"",
                source.name
            ));
        }
    }
    complaints
}

/// Bytes from an opening brace to the one that closes it.
fn block_bytes(code: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

#[test]
fn the_changelog_has_the_current_version() {
    let path = root().join("docs/CHANGELOG.md");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let heading = text.lines().any(|line| line.starts_with('#') && line.contains(version));
    assert!(heading, "docs/CHANGELOG.md: add a heading with {version} and what changed for users");
}

#[test]
fn every_study_can_be_repeated() {
    let studies = root().join("perf/studies");
    let folders = fs::read_dir(&studies).into_iter().flatten().map(|entry| entry.unwrap().path());
    let complaints: Vec<String> =
        folders.filter(|path| path.is_dir()).flat_map(|folder| missing_of_study(&folder)).collect();
    assert_none(&complaints);
    // Negative control: a folder that is no study.
    assert_eq!(missing_of_study(&root().join("tests")).len(), STUDY_FILES.len());
}

fn missing_of_study(folder: &Path) -> Vec<String> {
    let missing = STUDY_FILES.iter().filter(|file| !folder.join(file).is_file());
    missing.map(|file| format!("{}: add {file}", folder.display())).collect()
}

#[test]
fn every_file_belongs_to_a_module_tree() {
    let sources = sources();
    let by_name: BTreeMap<&str, &Source> = sources.iter().map(|s| (s.name.as_str(), s)).collect();
    let mut complaints = Vec::new();
    for source in &sources {
        let path = Path::new(&source.name);
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let folder = path.parent().unwrap();
        let (module, parents) = match stem {
            "main" | "lib" => continue,
            "mod" => (folder.file_name().unwrap().to_str().unwrap(), folder.parent().unwrap()),
            _ => (stem, folder),
        };
        if folder.ends_with("benches") || folder.ends_with("tests") || folder.ends_with("bin") {
            continue; // targets of their own
        }
        let declared = ["main.rs", "lib.rs", "mod.rs"].iter().any(|file| {
            let parent = parents.join(file);
            let parent = by_name.get(parent.to_str().unwrap());
            parent.is_some_and(|parent| parent.code.contains(&format!("mod {module};")))
        });
        let beside = format!("{}.rs", parents.display());
        let declared_beside = by_name
            .get(beside.as_str())
            .is_some_and(|p| p.code.contains(&format!("mod {module};")));
        if !declared && !declared_beside {
            complaints.push(format!("{}: no `mod {module};` names it; remove it", source.name));
        }
    }
    assert_none(&complaints);
}

/// The text with comments, strings and character literals overwritten by blanks, line by line as
/// before, so that what is left is code.
fn blank_out(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Where the comment or literal that begins here ends; `at` if none begins here.
fn literal_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let until = |mark: char| rest.iter().position(|c| *c == mark).map_or(chars.len(), |n| at + n);
    match rest {
        ['/', '/', ..] => until('\n'),
        ['/', '*', ..] => comment_end(chars, at),
        ['"', ..] => string_end(chars, at + 1),
        ['r', '"' | '#', ..] if at == 0 || !is_word(chars[at - 1]) || chars[at - 1] == 'b' => {
            raw_string_end(chars, at)
        }
        // A character, not a lifetime.
        ['\'', '\\', _, ..] => {
            (at + 3..chars.len()).find(|i| chars[*i] == '\'').map_or(at, |i| i + 1)
        }
        ['\'', _, '\'', ..] => at + 3,
        _ => at,
    }
}

/// Comments in `/*` nest.
fn comment_end(chars: &[char], begin: usize) -> usize {
    let (mut at, mut depth) = (begin, 0);
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `r"..."` with any number of `#`; `r#name` is no string.
fn raw_string_end(chars: &[char], begin: usize) -> usize {
    let hashes = chars[begin + 1..].iter().take_while(|c| **c == '#').count();
    let open = begin + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return begin;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = &chars[open + 1..];
    let close = body.windows(closing.len()).position(|window| window == closing);
    close.map_or(chars.len(), |offset| open + 1 + offset + closing.len())
}

#[test]
fn what_is_not_code_is_blanked_out() {
    let rows = [
        ("a // unsafe\nb", "a          \nb"),
        ("a /* x /* y */ z */ b", "a                     b"),
        (r#"f("a \" {", 'c', '\'', '{')"#, "f(        ,    ,     ,    )"),
        ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
        ("r#\"{\"{\"# + r#type", "          + r#type"),
        ("for x in \"\n\" {", "for x in  \n  {"),
    ];
    for (text, code) in rows {
        let trimmed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(trimmed(&blank_out(text)), trimmed(code), "{text}");
        assert_eq!(blank_out(text).lines().count(), text.lines().count());
    }
}
