//! JSON files, row by row: the file is never in memory as a whole beside its samples.

use std::fmt;
use std::io::Read;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::rows::Rows;
use crate::error::Error;

/// A list of objects, an object with such a list in `data`, or objects one after another.
pub fn read(source: impl Read, rows: &mut Rows<'_>) -> Result<(), Error> {
    let mut deserializer = serde_json::Deserializer::from_reader(source);
    let mut document = Document { rows, number: 0, stop: None };
    loop {
        let outcome = match deserializer.end() {
            Ok(()) => return Ok(()),
            Err(error) if error.is_io() => Err(error),
            Err(_) => Top(&mut document).deserialize(&mut deserializer),
        };
        match (outcome, document.stop.take()) {
            (_, Some(stop)) => return stop,
            (Ok(()), None) => {}
            (Err(error), None) => return Err(document.rows.fatal(reason(&error, true))),
        }
    }
}

/// What is wrong with a text that should be JSON. Within one line, its number is of no use.
pub fn reason(error: &serde_json::Error, has_lines: bool) -> String {
    let text = error.to_string();
    let what = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    match has_lines {
        true => format!("is not JSON: {what} at line {} column {}", error.line(), error.column()),
        false => format!("is not JSON: {what} at column {}", error.column()),
    }
}

struct Document<'r, 'o> {
    rows: &'r mut Rows<'o>,
    /// Rows met so far.
    number: u64,
    /// Set when reading ends before the file does: enough rows, or a bad one.
    stop: Option<Result<(), Error>>,
}

impl Document<'_, '_> {
    /// Adds a row; `Err` carries nothing, the reason to stop is in the field.
    fn add<E: serde::de::Error>(&mut self, value: Value) -> Result<(), E> {
        self.number += 1;
        let object = match value {
            Value::Object(object) => Ok(object),
            _ => Err("is no JSON object".to_owned()),
        };
        if let Err(error) = self.rows.add(format_args!("row {}", self.number), object) {
            self.stop = Some(Err(error));
        } else if self.rows.is_full() {
            self.stop = Some(Ok(()));
        }
        match self.stop {
            Some(_) => Err(E::custom("stopped")),
            None => Ok(()),
        }
    }

    fn add_all<'de, A: SeqAccess<'de>>(&mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(value) = list.next_element::<Value>()? {
            self.add(value)?;
        }
        Ok(())
    }
}

/// A value at the top: a list of rows, or an object that is a row or has the list.
struct Top<'d, 'r, 'o>(&'d mut Document<'r, 'o>);

impl<'de> DeserializeSeed<'de> for Top<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects, or an object with such a list in `data`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        self.0.add_all(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut row = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key != "data" {
                row.insert(key, map.next_value()?);
            } else {
                map.next_value_seed(Data(self.0))?;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(());
            }
        }
        self.0.add(Value::Object(row))
    }
}

/// The value of `data`.
struct Data<'d, 'r, 'o>(&'d mut Document<'r, 'o>);

impl<'de> DeserializeSeed<'de> for Data<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Data<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects in `data`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        self.0.add_all(list)
    }
}
