//! Files of every format, good and bad.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::*;

/// A folder for files of one test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("loadgen-dataset-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn quiet(_: u64, _: u64) {}

fn read_as(name: &str, bytes: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Dataset, String> {
    let folder = Folder::new();
    let path = folder.file(name, bytes);
    let shorter = |error: Error| error.to_string().replace(&format!("{}/", folder.0.display()), "");
    read(&path, options, &mut quiet).map_err(shorter)
}

fn prompts(name: &str, bytes: impl AsRef<[u8]>) -> Vec<String> {
    let dataset = read_as(name, bytes, &ReadOptions::default()).unwrap();
    texts(&dataset)
}

fn texts(dataset: &Dataset) -> Vec<String> {
    let text = |sample: &Sample| match &sample.prompt {
        Prompt::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    dataset.samples.iter().map(text).collect()
}

fn error(name: &str, bytes: impl AsRef<[u8]>) -> String {
    read_as(name, bytes, &ReadOptions::default()).map(|_| ()).unwrap_err()
}

#[test]
fn every_format_of_text_gives_the_same_prompts() {
    let files: [(&str, &str); 13] = [
        ("a.jsonl", "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n"),
        ("a.ndjson", "\n{\"prompt\":\"one\"}\r\n\r\n  {\"prompt\":\"two\"}"),
        ("a.json", "[{\"prompt\":\"one\"},\n {\"prompt\":\"two\"}]"),
        (
            "a.json",
            "{\"version\":1,\"data\":[{\"prompt\":\"one\"},{\"prompt\":\"two\"}],\"x\":[1]}",
        ),
        ("a.json", "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n"),
        ("a.json", "{\n \"prompt\":\"one\"\n}\n{\n \"prompt\":\"two\"\n}"),
        ("a.csv", "id,prompt\n1,one\n2,two\n"),
        ("A.CSV", "id,prompt\r\n1,\"one\"\r\n\r\n2,two"),
        ("a.tsv", "id\tprompt\n1\tone\n2\ttwo\n"),
        ("a.txt", "one\n\ntwo\n"),
        ("a.txt", "one\r\n \r\ntwo"),
        ("a", "[{\"prompt\":\"one\"},{\"prompt\":\"two\"}]"),
        ("a.questions", " {\"prompt\":\"one\"}\n{\"prompt\":\"two\"}"),
    ];
    for (name, text) in files {
        assert_eq!(prompts(name, text), ["one", "two"], "{name}: {text}");
        let marked = format!("\u{feff}{text}");
        assert_eq!(prompts(name, marked), ["one", "two"], "{name} with a mark: {text}");
    }
}

#[test]
fn fields_of_a_table_may_hold_line_ends_quotes_and_separators() {
    let table = "id,prompt\n1,\"a\nb, \"\"c\"\"\r\n\"\n2,d\n";
    assert_eq!(prompts("a.csv", table), ["a\nb, \"c\"\r\n", "d"]);
}

#[test]
fn a_bad_row_is_named_with_its_place_and_what_to_type() {
    let cases = [
        (
            "a.jsonl",
            "{\"prompt\":\"a\"}\n\n{\"prompt\":\n",
            "dataset `a.jsonl`: line 3 is not JSON: EOF while parsing a value at column 10; or \
             leave such rows out: --skip-bad-rows",
        ),
        ("a.jsonl", "\"a\"\n", "dataset `a.jsonl`: line 1 is no JSON object; or leave"),
        ("a.jsonl", "[{}]\n", "dataset `a.jsonl`: line 1 is a list; a file that is one JSON list"),
        (
            "a.jsonl",
            "{\"id\":1}\n",
            "dataset `a.jsonl`: line 1 has no prompt: its columns are id; say which one it is: \
             --column prompt=NAME; or leave",
        ),
        ("a.json", "[{\"prompt\":\"a\"}, 5]", "dataset `a.json`: row 2 is no JSON object; or"),
        (
            "a.csv",
            "id,prompt\n1,\"a\nb\"\n2\n",
            "dataset `a.csv`: row 2 (line 4) has 1 field, the header has 2; a quote",
        ),
        ("a.csv", "1,a b\n2,c\n", "dataset `a.csv`: row 1 (line 2) has no prompt: its columns are"),
    ];
    for (name, text, message) in cases {
        let error = error(name, text);
        assert!(error.starts_with(message), "{error}");
    }
    let error = error("a.txt", b"fine\nb\xffd\n");
    assert!(
        error.starts_with("dataset `a.txt`: line 2 is not UTF-8 from its byte 2 on"),
        "{error}"
    );
}

#[test]
fn bad_rows_are_counted_when_they_may_be() {
    let skipping = ReadOptions { skips_bad_rows: true, ..ReadOptions::default() };
    let lines = b"{\"prompt\":\"a\"}\n{\"prompt\":\n{\"prompt\":\"\xff\"}\n{\"prompt\":\"b\"}\n";
    let dataset = read_as("a.jsonl", lines, &skipping).unwrap();
    assert_eq!(texts(&dataset), ["a", "b"]);
    assert_eq!(dataset.skipped, 2);
    let first = dataset.first_skipped.unwrap();
    assert_eq!(first, "line 2 is not JSON: EOF while parsing a value at column 10");
    let list = "[{\"prompt\":\"a\"}, 5, {\"prompt\":\"\"}, {\"prompt\":\"b\"}]";
    let dataset = read_as("a.json", list, &skipping).unwrap();
    assert_eq!((texts(&dataset), dataset.skipped), (vec!["a".into(), "b".into()], 2));
    let table = "id,prompt\n1,a\n2\n3,b,c\n4,b\n";
    let dataset = read_as("a.csv", table, &skipping).unwrap();
    assert_eq!((texts(&dataset), dataset.skipped), (vec!["a".into(), "b".into()], 2));
    let error = read_as("a.jsonl", "{\"id\":1}\n{\"id\":2}\n", &skipping).map(|_| ()).unwrap_err();
    assert!(
        error.starts_with(
            "dataset `a.jsonl`: no usable row, 2 rows skipped; the first: line 1 has no"
        ),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_dataset_is_a_clear_error() {
    let cases: [(&str, &[u8], &str); 13] = [
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"\n \n", "is empty"),
        ("a.json", b"[]", "has no rows"),
        ("a.json", b"{\"data\":[]}", "has no rows"),
        ("a.csv", b"id,prompt\n", "has no rows"),
        ("a.json", b"[{\"prompt\":\"a\"},", "is not JSON: EOF while parsing a value at line 1"),
        ("a.json", b"[{\"prompt\":\"a\"}\n{}]", "is not JSON: expected `,` or `]` at line 2"),
        ("a.json", b"5", "is not JSON: invalid type: integer `5`, expected a list of objects"),
        ("a.json", b"{\"data\":5}", "is not JSON: invalid type: integer `5`, expected a list"),
        ("a.csv", b"a,a\n1,2\n", "the header has the column `a` twice"),
        ("a.jsonl.gz", b"\x1f\x8b\x08\x00", "is compressed; unpack it first (gunzip"),
        ("a.csv", b"\xff\xfea\x00", "is UTF-16; make UTF-8 of it: iconv"),
        ("a.arrow", b"ARROW1\x00\x00", "is an Arrow file"),
    ];
    for (name, bytes, message) in cases {
        let error = error(name, bytes);
        assert!(error.starts_with(&format!("dataset `{name}`: {message}")), "{error}");
    }
    let error = read(Path::new("/nowhere/a.jsonl"), &ReadOptions::default(), &mut quiet);
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("dataset `/nowhere/a.jsonl`: No such file"), "{error}");
    let typed = ReadOptions { columns: vec![("system".into(), "s".into())], ..Default::default() };
    let error = read_as("a.jsonl", "{\"prompt\":\"a\"}", &typed).map(|_| ()).unwrap_err();
    assert!(error.contains("--column system=s: no row has it; its columns are prompt"), "{error}");
}

#[test]
fn reading_ends_at_the_limit_even_before_what_is_bad() {
    let two = ReadOptions { limit: Some(2), ..ReadOptions::default() };
    let files = [
        ("a.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{"),
        ("a.json", "[{\"prompt\":\"a\"},{\"prompt\":\"b\"},{"),
        ("a.csv", "id,prompt\n1,a\n2,b\n3\n"),
        ("a.txt", "a\nb\nc\n"),
    ];
    for (name, text) in files {
        assert_eq!(texts(&read_as(name, text, &two).unwrap()), ["a", "b"], "{name}");
    }
}

#[test]
fn a_folder_gives_its_files_by_name_byte_by_byte() {
    let folder = Folder::new();
    folder.file("b.json", "{\"b\": 1.10}\n");
    folder.file("a.bin", b"\xff\x00");
    folder.file(".hidden", "x");
    fs::create_dir(folder.0.join("below")).unwrap();
    let mut told = Vec::new();
    let progress = &mut |done, total| told.push((done, total));
    let dataset = read(&folder.0, &ReadOptions::default(), progress).unwrap();
    let bodies: Vec<Prompt> = dataset.samples.into_iter().map(|sample| sample.prompt).collect();
    let expected = [b"\xff\x00".to_vec(), b"{\"b\": 1.10}\n".to_vec()].map(Prompt::Body);
    assert_eq!(bodies, expected);
    assert_eq!(told, [(2, 14), (14, 14)]);
    let json = ReadOptions { format: Some(Format::Json), ..ReadOptions::default() };
    let error = read(&folder.0, &json, &mut quiet).map(|_| ()).unwrap_err().to_string();
    assert!(error.ends_with("is a folder, not a file"), "{error}");
}

#[test]
fn a_row_of_megabytes_is_a_row_and_progress_ends_at_the_size_of_the_file() {
    let long = "x".repeat(5 << 20);
    let text = format!("{{\"prompt\":\"{long}\"}}\n{{\"prompt\":\"b\"}}\n");
    let folder = Folder::new();
    for name in ["a.jsonl", "a.json"] {
        let path = folder.file(name, &text);
        let mut told = Vec::new();
        let progress = &mut |done, total| told.push((done, total));
        let dataset = read(&path, &ReadOptions::default(), progress).unwrap();
        assert_eq!(texts(&dataset), [long.as_str(), "b"]);
        assert!(told.is_sorted(), "{told:?}");
        assert!(told.len() >= 5, "{told:?}");
        assert_eq!(*told.last().unwrap(), (text.len() as u64, text.len() as u64));
    }
}

#[test]
fn the_name_and_what_columns_were_taken_for_are_told() {
    let table = "id,question,max_tokens,kind\n1,q,5,x\n";
    let dataset = read_as("quiz.csv", table, &ReadOptions::default()).unwrap();
    assert_eq!(dataset.name, "quiz");
    let taken = "output_tokens from `max_tokens`, prompt from `question`, not used: id, kind";
    assert_eq!(dataset.taken_as, taken);
    let dataset = read_as("quiz.txt", "a\n", &ReadOptions::default()).unwrap();
    assert_eq!(dataset.taken_as, "each line a prompt");
}

#[test]
fn templates_get_the_columns() {
    let options =
        ReadOptions { keeps_columns: true, needs_no_prompt: true, ..ReadOptions::default() };
    let columns = |name: &str, text: &str| {
        let dataset = read_as(name, text, &options).unwrap();
        Value::Object(dataset.samples[0].columns.clone())
    };
    assert_eq!(columns("a.csv", "a,b\n1,\n"), json!({"a": "1", "b": ""}));
    assert_eq!(columns("a.jsonl", "{\"a\":[1]}"), json!({"a": [1]}));
    assert_eq!(columns("a.txt", "x\n"), json!({"text": "x"}));
}

#[test]
fn sharegpt_is_read_as_a_list_and_as_lines() {
    let row = "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"}]}";
    let options = ReadOptions { format: Some(Format::ShareGpt), ..ReadOptions::default() };
    for text in [format!("[{row},{row}]"), format!("{row}\n{row}\n")] {
        assert_eq!(texts(&read_as("a.x", text, &options).unwrap()), ["q", "q"]);
    }
}

#[test]
fn formats_have_names() {
    for name in FORMAT_FORM.split(", ") {
        assert!(Format::parse(name).is_some(), "{name}");
    }
    assert_eq!(Format::parse("xml"), None);
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_so() {
    let error = error("a.data", b"PAR1....PAR1");
    assert!(error.contains("build it with --features parquet"), "{error}");
}
