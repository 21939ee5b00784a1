//! Reading what the command line names, and writing where it says.
#![expect(clippy::disallowed_methods, reason = "reads and writes the files that the command line names")]

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::{Error, Streams};

/// More than this nobody means to inject.
const LARGEST: u64 = 64 << 20;

/// A file's text.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let wrong = |cause| Error::File { what: "open", path: path.to_owned(), cause };
    limited(File::open(path).map_err(wrong)?).map_err(wrong)
}

/// A file's text, or what comes by standard input where it is called `-`.
pub(super) fn read_or_input(path: &Path, streams: &mut Streams<'_>) -> Result<String, Error> {
    if path == Path::new("-") {
        return limited(&mut *streams.input).map_err(|cause| Error::Stream { what: "standard input", cause });
    }
    read(path)
}

/// To the file, where one is named.
pub(super) fn write(path: Option<&Path>, text: &str, streams: &mut Streams<'_>) -> Result<(), Error> {
    match path {
        Some(path) => {
            fs::write(path, text).map_err(|cause| Error::File { what: "write", path: path.to_owned(), cause })
        }
        None => {
            streams.out.write_all(text.as_bytes()).map_err(|cause| Error::Stream { what: "standard output", cause })
        }
    }
}

fn limited(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {LARGEST} bytes")));
    }
    Ok(text)
}
