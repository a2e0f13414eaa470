//! A file as bytes, with the progress told as it is read, and what its first bytes say.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::Format;

/// A file behind a buffer; a byte-order mark is left out.
pub struct Source<'a>(BufReader<Counted<'a>>);

struct Counted<'a> {
    file: File,
    done: u64,
    /// Bytes of the file; 0 where it has none of its own, as a pipe.
    total: u64,
    told: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Source<'a> {
    /// Opens a file, and reads its first bytes.
    pub fn open(path: &Path, progress: &'a mut dyn FnMut(u64, u64)) -> io::Result<Source<'a>> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        let counted = Counted { file, done: 0, total, told: 0, progress };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, counted);
        if reader.fill_buf()?.starts_with(UTF8_MARK) {
            reader.consume(UTF8_MARK.len());
        }
        Ok(Source(reader))
    }

    /// The first bytes that are no white space, if they are in the buffer.
    pub fn begin(&self) -> Vec<u8> {
        let buffer = self.0.buffer().trim_ascii_start();
        buffer[..buffer.len().min(BEGIN_BYTES)].to_vec()
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl BufRead for Source<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.done += length as u64;
        if length == 0 || self.done - self.told >= TOLD_EACH_BYTES {
            self.told = self.done;
            (self.progress)(self.done, self.total);
        }
        Ok(length)
    }
}

/// The format by the name of a file, else by its first bytes.
pub fn told(path: &Path, begin: &[u8]) -> Format {
    if begin.starts_with(b"PAR1") {
        return Format::Parquet;
    }
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match (extension.as_deref(), begin.first()) {
        (Some("jsonl" | "ndjson"), _) => Format::JsonLines,
        (Some("json"), _) => Format::Json,
        (Some("csv"), _) => Format::Csv,
        (Some("tsv"), _) => Format::Tsv,
        (Some("txt" | "text"), _) => Format::Text,
        (_, Some(b'{')) => Format::JsonLines,
        (_, Some(b'[')) => Format::Json,
        _ => Format::Text,
    }
}

/// Why a file with these first bytes is in no format that we read.
pub fn foreign(begin: &[u8]) -> Option<String> {
    let begins = |magics: &[&[u8]]| magics.iter().any(|magic| begin.starts_with(magic));
    if begin.is_empty() {
        Some("is empty".to_owned())
    } else if begins(&[b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04"]) {
        Some("is compressed; unpack it first (gunzip, zstd -d, xz -d, unzip)".to_owned())
    } else if begins(&[b"\xff\xfe", b"\xfe\xff"]) {
        Some("is UTF-16; make UTF-8 of it: iconv -f UTF-16 -t UTF-8".to_owned())
    } else if begins(&[b"ARROW1"]) {
        Some("is an Arrow file; write it as JSON lines or Parquet".to_owned())
    } else {
        None
    }
}

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const BUFFER_BYTES: usize = 256 << 10;
const BEGIN_BYTES: usize = 16;
const TOLD_EACH_BYTES: u64 = 1 << 20;
