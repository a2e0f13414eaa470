//! Rows as they are read: good ones become samples, bad ones end the program or are counted.

use std::fmt::Display;
use std::path::Path;

use serde_json::{Map, Value};

use super::row::Columns;
use super::{Dataset, ReadOptions, Sample};
use crate::error::{Error, shown};
use crate::number;

/// What has been read so far.
pub struct Rows<'a> {
    path: String,
    /// How the file is read.
    pub options: &'a ReadOptions,
    columns: Columns<'a>,
    samples: Vec<Sample>,
    skipped: u64,
    first_skipped: Option<String>,
}

impl<'a> Rows<'a> {
    /// No rows yet; checks the roles of `--column`.
    pub fn new(path: &Path, options: &'a ReadOptions) -> Result<Rows<'a>, Error> {
        Ok(Rows {
            path: shown(&path.to_string_lossy()),
            options,
            columns: Columns::new(options)?,
            samples: Vec::new(),
            skipped: 0,
            first_skipped: None,
        })
    }

    /// Values are texts from now on, which may hold JSON.
    pub fn set_texts(&mut self) {
        self.columns.set_texts();
    }

    /// Whether `limit` is reached.
    pub fn is_full(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.samples.len() >= limit)
    }

    /// Adds a row, or what is wrong with it; `place` is such as `line 17`.
    pub fn add(
        &mut self,
        place: impl Display,
        row: Result<Map<String, Value>, String>,
    ) -> Result<(), Error> {
        let sample = row.and_then(|row| self.columns.sample(row));
        self.add_sample(place, sample)
    }

    /// Adds a sample, or what is wrong with it.
    pub fn add_sample(
        &mut self,
        place: impl Display,
        sample: Result<Sample, String>,
    ) -> Result<(), Error> {
        match sample {
            Ok(sample) => self.samples.push(sample),
            Err(reason) if self.options.skips_bad_rows => {
                self.skipped += 1;
                self.first_skipped.get_or_insert_with(|| format!("{place} {reason}"));
            }
            Err(reason) => {
                let message = format!("{place} {reason}");
                let remedy = "; or leave such rows out: --skip-bad-rows";
                return Err(self.fatal(format!("{message}{remedy}")));
            }
        }
        Ok(())
    }

    /// What makes the whole file unusable: `is empty`.
    pub fn fatal(&self, reason: impl Display) -> Error {
        Error::usage(format!("dataset `{}`: {reason}", self.path))
    }

    /// All of them; an error if there is none. Without `taken_as`, the columns say it.
    pub fn finish(self, name: String, taken_as: Option<&str>) -> Result<Dataset, Error> {
        if let (true, Some(first)) = (self.samples.is_empty(), &self.first_skipped) {
            let rows = number::counted(self.skipped, "row");
            return Err(self.fatal(format!("no usable row, {rows} skipped; the first: {first}")));
        }
        if self.samples.is_empty() {
            return Err(self.fatal("has no rows"));
        }
        match self.columns.never_met() {
            Some(reason) if taken_as.is_none() => return Err(self.fatal(reason)),
            _ => {}
        }
        Ok(Dataset {
            name,
            taken_as: taken_as.map_or_else(|| self.columns.taken_as(), str::to_owned),
            samples: self.samples,
            skipped: self.skipped,
            first_skipped: self.first_skipped,
        })
    }
}
