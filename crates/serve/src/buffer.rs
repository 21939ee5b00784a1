//! Stores the bytes of a request's body while they are received.

use std::io;

use memmap2::{Advice, MmapMut};

/// The size in bytes up to which a body is stored on the heap. Most reviews are smaller; for them, the system calls and page
/// faults of a mapping would be a notable part of the work.
const LARGEST_ON_HEAP: usize = 32 << 10;

/// The received bytes of a body.
///
/// A larger body moves to an anonymous mapping of its final size, whose pages become resident as they are filled and are
/// returned to the kernel when the mapping is dropped. On the heap a large body would be copied each time it grows, and the
/// allocator keeps freed blocks for a while: the resident memory would exceed the reservations, by more if peers send faster.
#[derive(Debug)]
pub(super) enum Buffer {
    Heap(Vec<u8>),
    Mapping { pages: MmapMut, length: usize },
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self::Heap(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Appends a part of a body that has at most `whole` bytes.
    ///
    /// # Errors
    /// The kernel has no memory for a mapping, or the body has more than `whole` bytes.
    pub(super) fn append(&mut self, part: &[u8], whole: usize) -> io::Result<()> {
        if let Self::Heap(bytes) = self
            && bytes.len() + part.len() > LARGEST_ON_HEAP
        {
            *self = Self::mapping(bytes, whole)?;
        }
        match self {
            Self::Heap(bytes) => {
                if bytes.capacity() == 0 {
                    bytes.reserve_exact(whole.min(LARGEST_ON_HEAP));
                }
                bytes.extend_from_slice(part);
            }
            Self::Mapping { pages, length } => fill(pages, length, part)?,
        }
        Ok(())
    }

    fn mapping(bytes: &[u8], whole: usize) -> io::Result<Self> {
        let (mut pages, mut length) = (MmapMut::map_anon(whole)?, 0);
        // With huge pages one byte makes 2 MiB resident. A kernel without them refuses the advice.
        let _ = pages.advise(Advice::NoHugePage);
        fill(&mut pages, &mut length, bytes)?;
        Ok(Self::Mapping { pages, length })
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapping { pages, length } => &pages[..*length],
        }
    }
}

/// Copies `part` after the first `length` bytes, and increases `length`.
fn fill(pages: &mut [u8], length: &mut usize, part: &[u8]) -> io::Result<()> {
    let end = *length + part.len();
    let free = pages.get_mut(*length..end).ok_or(io::ErrorKind::StorageFull)?;
    free.copy_from_slice(part);
    *length = end;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_keeps_its_bytes_when_it_leaves_the_heap() {
        for size in [1, 1000, LARGEST_ON_HEAP - 1, LARGEST_ON_HEAP, LARGEST_ON_HEAP + 1] {
            let sent: Vec<u8> = (0..3 * LARGEST_ON_HEAP).map(|at| (at % 251) as u8).collect();
            let mut buffer = Buffer::new();
            for part in sent.chunks(size) {
                buffer.append(part, sent.len()).unwrap();
            }
            assert_eq!((buffer.len(), buffer.as_ref() == sent), (sent.len(), true), "parts of {size} bytes");
            assert!(matches!(buffer, Buffer::Mapping { .. }));
        }
    }

    #[test]
    fn a_body_that_fits_stays_on_the_heap() {
        let mut buffer = Buffer::new();
        buffer.append(&[7; LARGEST_ON_HEAP], 6 << 20).unwrap();
        assert!(matches!(buffer, Buffer::Heap(_)));
    }

    #[test]
    fn more_bytes_than_announced_are_refused() {
        let mut buffer = Buffer::new();
        buffer.append(&[7; LARGEST_ON_HEAP], LARGEST_ON_HEAP + 1).unwrap();
        let error = buffer.append(&[7; 2], LARGEST_ON_HEAP + 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    /// The mapping is as large as the body may become, and only its filled pages are resident.
    #[test]
    fn only_received_bytes_are_resident() {
        let whole = 64 << 20;
        let mut buffer = Buffer::new();
        buffer.append(&vec![7; 1 << 20], whole).unwrap();
        let Buffer::Mapping { pages, .. } = &buffer else { panic!("{} bytes are on the heap", buffer.len()) };
        // The kernel may have merged the mapping with smaller mappings of other tests.
        let resident = resident_kib(pages.as_ptr().addr());
        assert!((1 << 10..16 << 10).contains(&resident), "{resident} KiB");
    }

    /// Returns the resident memory of the mapping that contains an address.
    #[expect(clippy::disallowed_methods, reason = "reads the process's own mappings")]
    fn resident_kib(address: usize) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            if let Some((from, to)) = range
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                is_here = (from..to).contains(&address);
            } else if let Some(rest) = line.strip_prefix("Rss:").filter(|_| is_here) {
                return rest.trim().trim_end_matches(" kB").parse().unwrap();
            }
        }
        panic!("no mapping at {address:x}")
    }
}
