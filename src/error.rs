//! The one error type of the program: usage and set-up. What an endpoint does wrong is counted, not an error.

use std::fmt;

/// Why the program cannot go on. Messages are lowercase fragments that name the thing, the value and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Wrong flags or configuration: exit code 2.
    Usage(String),
    /// The host or the endpoint could not be set up: exit code 3.
    Setup(String),
}

impl Error {
    /// A usage error.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::Usage(message.into())
    }

    /// A set-up error.
    pub fn setup(message: impl Into<String>) -> Error {
        Error::Setup(message.into())
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Setup(_) => 3,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(message) | Error::Setup(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
