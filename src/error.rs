//! The one error type of the program: usage and set-up. What an endpoint does wrong is counted, not
//! an error.

use std::fmt;

/// Why the program cannot go on. Messages are lowercase fragments that name the thing, the value
/// and the remedy.
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

    /// A usage error about the value of a flag: names both, and what is allowed.
    pub fn value(flag: &str, value: &str, allowed: &str) -> Error {
        Error::Usage(format!("{flag} got `{}`; allowed: {allowed}", shown(value)))
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

/// A value for a message: on one line, control characters escaped, not endless.
pub fn shown(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars().take(SHOWN_CHARS_MAX) {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    if value.chars().nth(SHOWN_CHARS_MAX).is_some() {
        text.push_str("...");
    }
    text
}

const SHOWN_CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_or_odd_value_stays_one_short_line() {
        assert_eq!(shown("a\nb\x1b[2J \"ä\""), "a\\nb\\u{1b}[2J \"ä\"");
        assert_eq!(shown(&"x".repeat(500)).len(), SHOWN_CHARS_MAX + 3);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_flag_and_what_is_allowed() {
        let error = Error::value("-c", "0", "at least 1");
        assert_eq!(error.to_string(), "-c got `0`; allowed: at least 1");
        assert_eq!(error.exit_code(), 2);
    }
}
