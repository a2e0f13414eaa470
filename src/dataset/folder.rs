//! A folder of request bodies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::rows::Rows;
use super::{Prompt, Sample};
use crate::error::{Error, shown};

/// Every file of a folder by name, byte by byte. Hidden files and folders in it are left alone.
pub fn read(
    folder: &Path,
    rows: &mut Rows<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let files = files(folder).map_err(|error| rows.fatal(error))?;
    let total = files.iter().map(|(_, bytes)| bytes).sum();
    let mut done = 0;
    for (file, bytes) in files {
        if rows.is_full() {
            break;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let body = match fs::read(&file) {
            Ok(body) if body.is_empty() => Err("is empty".to_owned()),
            Ok(body) => Ok(body),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        let place = format!("file `{}`", shown(&name));
        let columns = match rows.options.keeps_columns {
            true => Map::from_iter([("file".to_owned(), Value::from(name))]),
            false => Map::new(),
        };
        let sample = |body| Sample { prompt: Prompt::Body(body), columns, ..Sample::default() };
        rows.add_sample(place, body.map(sample))?;
        done += bytes;
        progress(done, total);
    }
    Ok(())
}

/// Files and their bytes, in the order of their names.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        // Of the path, not of the entry: a link to a file is a file.
        let metadata = fs::metadata(&path)?;
        if metadata.is_file() && !is_hidden {
            files.push((path, metadata.len()));
        }
    }
    files.sort();
    Ok(files)
}
