//! Tables of text: CSV and TSV with a header. Fields may be quoted and hold line ends.

use std::io::Read;

use csv::{ByteRecord, ReaderBuilder};
use serde_json::{Map, Value};

use super::lines::utf8;
use super::rows::Rows;
use crate::error::{Error, shown};
use crate::number::counted;

/// Reads a table whose fields are separated by this byte.
pub fn read(source: impl Read, separator: u8, rows: &mut Rows<'_>) -> Result<(), Error> {
    rows.set_texts();
    // Rows of another length are found here, where the row can be named and left out.
    let mut reader = ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(source);
    let header = header(reader.byte_headers().map_err(|error| rows.fatal(error))?)
        .map_err(|reason| rows.fatal(reason))?;
    let mut record = ByteRecord::new();
    let mut number = 0u64;
    while !rows.is_full() {
        if !reader.read_byte_record(&mut record).map_err(|error| rows.fatal(error))? {
            break;
        }
        number += 1;
        let line = record.position().map_or(0, csv::Position::line);
        rows.add(format_args!("row {number} (line {line})"), row(&header, &record))?;
    }
    Ok(())
}

fn header(record: &ByteRecord) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for field in record {
        let name = utf8(field).map_err(|reason| format!("the header {reason}"))?.trim();
        if names.iter().any(|known| known == name) {
            return Err(format!("the header has the column `{}` twice", shown(name)));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn row(header: &[String], record: &ByteRecord) -> Result<Map<String, Value>, String> {
    if record.len() != header.len() {
        return Err(format!(
            "has {}, the header has {}; a quote or a separator may be missing",
            counted(record.len() as u64, "field"),
            header.len()
        ));
    }
    let field = |(name, field): (&String, &[u8])| {
        let text = utf8(field).map_err(|reason| format!("`{}` {reason}", shown(name)))?;
        Ok((name.clone(), Value::from(text)))
    };
    header.iter().zip(record).map(field).collect()
}
