//! Files of lines: JSON lines, and a prompt a line.

use std::io::BufRead;

use serde_json::{Map, Value};

use super::json::reason;
use super::rows::Rows;
use super::{Prompt, Sample};
use crate::error::Error;

/// A JSON object a line.
pub fn json(source: impl BufRead, rows: &mut Rows<'_>) -> Result<(), Error> {
    each(source, rows, |rows, place, line| {
        let object = match line.trim_ascii_start().first() {
            Some(b'{') => utf8(line)
                .and_then(|line| serde_json::from_str(line).map_err(|error| reason(&error, false))),
            Some(b'[') => Err("is a list; a file that is one JSON list has the format json".into()),
            _ => Err("is no JSON object".to_owned()),
        };
        rows.add(place, object)
    })
}

/// A prompt a line.
pub fn text(source: impl BufRead, rows: &mut Rows<'_>) -> Result<(), Error> {
    let keeps_columns = rows.options.keeps_columns;
    each(source, rows, |rows, place, line| {
        let sample = utf8(line).map(|line| Sample {
            prompt: Prompt::Text(line.to_owned()),
            columns: match keeps_columns {
                true => Map::from_iter([("text".to_owned(), Value::from(line))]),
                false => Map::new(),
            },
            ..Sample::default()
        });
        rows.add_sample(place, sample)
    })
}

/// Every line with something in it, without its end.
fn each(
    mut source: impl BufRead,
    rows: &mut Rows<'_>,
    mut take: impl FnMut(&mut Rows<'_>, std::fmt::Arguments<'_>, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut line = Vec::new();
    let mut number = 0u64;
    while !rows.is_full() {
        line.clear();
        if source.read_until(b'\n', &mut line).map_err(|error| rows.fatal(error))? == 0 {
            break;
        }
        number += 1;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !text.trim_ascii().is_empty() {
            take(rows, format_args!("line {number}"), text)?;
        }
    }
    Ok(())
}

/// A text, or where it is none.
pub fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 from its byte {} on", error.valid_up_to() + 1))
}
