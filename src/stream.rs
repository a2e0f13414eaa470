//! What leaves by stdout and stderr. Neither may end the program: a reader who has gone (`| head`)
//! has seen what he wanted, and the files of a run are written whatever becomes of the screen.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes to stdout. A pipe that its reader has closed is no error; a full disk is.
pub fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes one line to stderr. Where even that fails, nobody is left to tell.
pub fn err(line: impl Display) {
    let _ = writeln!(io::stderr(), "loadgen-uring: {line}");
}
