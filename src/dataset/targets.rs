//! Targets in vegeta's formats: a request each.

use std::path::Path;

use crate::error::Error;

/// One target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetLine {
    /// Method of the request.
    pub method: String,
    /// URL of the request.
    pub url: String,
    /// Header fields, in the order of the file.
    pub headers: Vec<(String, String)>,
    /// Body, may be empty.
    pub body: Vec<u8>,
}

/// Reads vegeta's http or json format, told by the first byte.
pub fn read_targets(path: &Path) -> Result<Vec<TargetLine>, Error> {
    Err(Error::usage(format!("{}: targets are not read yet", path.display())))
}
