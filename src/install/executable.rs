//! Decides whether a program on the node can be executed. `snapshot` calls it if the file differs from the image's program: an
//! older version of the plugin works, whereas no pod starts if the file is a directory or is truncated.
#![expect(clippy::disallowed_methods, reason = "reads the node's files")]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The size of the header of a 64-bit ELF file.
const HEADER: usize = 64;
/// The first bytes of an ELF file.
const MAGIC: &[u8] = b"\x7fELF";

/// Whether `installed` may be a version of the program `source`: a regular file of the same format that can be executed and is not
/// truncated.
pub(super) fn may_run(installed: &Path, source: &Path) -> io::Result<bool> {
    let metadata = fs::metadata(installed)?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Ok(false);
    }
    let [on_node, in_image] = [header(installed)?, header(source)?];
    Ok(format(&on_node) == format(&in_image) && is_whole(&on_node, metadata.len()))
}

/// Returns the first bytes of a file, at most [`HEADER`].
fn header(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(HEADER as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the parts of a header that versions of a program share: the first four bytes; of an ELF file also its class, byte order
/// and machine.
fn format(header: &[u8]) -> [Option<&[u8]>; 3] {
    let is_elf = header.starts_with(MAGIC);
    let of_elf = |range| header.get(range).filter(|_| is_elf);
    [header.get(..4), of_elf(4..6), of_elf(18..20)]
}

/// Whether a file of this size is complete. Linkers write the section header table last, so that it lies beyond the end of a
/// truncated 64-bit ELF file. Other files are taken to be complete.
fn is_whole(header: &[u8], size: u64) -> bool {
    const ELF64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
    if !header.starts_with(ELF64_LITTLE_ENDIAN) {
        return true;
    }
    let number = |at: usize, size: usize| {
        let bytes = header.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)))
    };
    let (Some(table), Some(entry), Some(entries)) = (number(40, 8), number(58, 2), number(60, 2)) else { return false };
    table.checked_add(entry * entries).is_some_and(|end| end <= size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a file with this content and mode may be a version of this test's own program.
    fn may_be_own(content: &[u8], mode: u32) -> bool {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        may_run(file.path(), &std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn only_a_whole_program_of_the_format_may_run() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let other_machine = [&own[..18], &[0xff, 0xff], &own[20..]].concat();
        for (content, mode, expected) in [
            (own.as_slice(), 0o755, true),
            (&[own.as_slice(), b"older"].concat(), 0o700, true),
            (&own, 0o644, false),
            (&own[..own.len() - 1], 0o755, false),
            (&own[..100_000], 0o755, false),
            (&own[..10], 0o755, false),
            (b"", 0o755, false),
            (b"#!/bin/sh\nexit 0\n", 0o755, false),
            (&other_machine, 0o755, false),
        ] {
            assert_eq!(may_be_own(content, mode), expected, "{} bytes, mode {mode:o}", content.len());
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(!may_run(dir.path(), &std::env::current_exe().unwrap()).unwrap());
    }
}
