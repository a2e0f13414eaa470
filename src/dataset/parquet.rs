//! Parquet files, row by row.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Map, Number, Value};

use super::rows::Rows;
use crate::error::Error;

/// Reads a file whose pages are not compressed or compressed by Snappy.
pub fn read(path: &Path, rows: &mut Rows<'_>) -> Result<(), Error> {
    let file = File::open(path).map_err(|error| rows.fatal(error))?;
    let reader = SerializedFileReader::new(file).map_err(|error| rows.fatal(error))?;
    let records = reader.get_row_iter(None).map_err(|error| rows.fatal(error))?;
    for (number, record) in (1..).zip(records) {
        if rows.is_full() {
            break;
        }
        let record = record.map_err(|error| {
            rows.fatal(format!(
                "row {number} cannot be read: {error} (of the ways to compress, this build knows \
                 none and Snappy)"
            ))
        })?;
        let columns = record.into_columns().into_iter();
        let row: Map<String, Value> = columns.map(|(name, field)| (name, value(field))).collect();
        rows.add(format_args!("row {number}"), Ok(row))?;
    }
    Ok(())
}

/// A field as JSON has it. Bytes and instants, which it has not, are left out.
fn value(field: Field) -> Value {
    let float = |float| Number::from_f64(float).map_or(Value::Null, Value::Number);
    match field {
        Field::Bool(bool) => Value::Bool(bool),
        Field::Byte(number) => number.into(),
        Field::Short(number) => number.into(),
        Field::Int(number) => number.into(),
        Field::Long(number) => number.into(),
        Field::UByte(number) => number.into(),
        Field::UShort(number) => number.into(),
        Field::UInt(number) => number.into(),
        Field::ULong(number) => number.into(),
        Field::Float(number) => float(f64::from(number)),
        Field::Double(number) => float(number),
        Field::Str(text) => Value::String(text),
        Field::Group(row) => {
            let columns = row.into_columns().into_iter();
            Value::Object(columns.map(|(name, field)| (name, value(field))).collect())
        }
        Field::ListInternal(list) => {
            Value::Array(list.elements().iter().cloned().map(value).collect())
        }
        Field::MapInternal(map) => {
            let name = |field: &Field| match field {
                Field::Str(text) => text.clone(),
                other => other.to_string(),
            };
            let entries = map.entries().iter();
            Value::Object(entries.map(|(key, field)| (name(key), value(field.clone()))).collect())
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use serde_json::json;

    use super::*;
    use crate::dataset::{Prompt, ReadOptions};

    #[test]
    fn lists_of_groups_and_gaps_become_messages_and_nothing() {
        let schema = "message rows { OPTIONAL INT32 max_tokens; REQUIRED GROUP messages (LIST) {
            REPEATED GROUP list { REQUIRED GROUP element { REQUIRED BYTE_ARRAY role (UTF8);
            REQUIRED BYTE_ARRAY content (UTF8); } } } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let path = std::env::temp_dir().join(format!("loadgen-{}.parquet", std::process::id()));
        let properties = Arc::new(WriterProperties::default());
        let file = File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[7], Some(&[1, 0]), None).unwrap();
        column.close().unwrap();
        for texts in [["system", "user", "user"], ["be brief", "q", "r"]] {
            let texts = texts.map(ByteArray::from);
            let mut column = group.next_column().unwrap().unwrap();
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&texts, Some(&[1, 1, 1]), Some(&[0, 1, 0])).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let dataset = crate::dataset::read(&path, &ReadOptions::default(), &mut |_, _| ()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let prompts = dataset.samples.iter().map(|sample| &sample.prompt);
        let expected = [
            Prompt::Messages(vec![message("system", "be brief"), message("user", "q")]),
            Prompt::Messages(vec![message("user", "r")]),
        ];
        assert!(prompts.eq(&expected), "{:?}", dataset.samples);
        let lengths: Vec<_> = dataset.samples.iter().map(|sample| sample.output_tokens).collect();
        assert_eq!(lengths, [Some(7), None]);
    }
}
