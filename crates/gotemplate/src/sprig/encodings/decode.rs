//! Decoders of base64 and base32 that report the same byte as wrong as Go's decoders, because templates print its
//! position.

/// Decodes padded base64; line breaks are ignored, and so are bits that belong to no byte.
///
/// # Errors
/// The position that Go reports for input that is not base64.
pub(super) fn base64(text: &[u8]) -> Result<Vec<u8>, usize> {
    let (mut bytes, mut at) = (Vec::with_capacity(text.len() / 4 * 3), 0);
    loop {
        let (mut group, mut count) = ([0; 4], 0);
        while count < 4 {
            let Some(next) = text.get(at).copied() else {
                return if count == 0 { Ok(bytes) } else { Err(at - count) };
            };
            at += 1;
            match sextet(next) {
                Some(bits) => {
                    group[count] = bits;
                    count += 1;
                }
                None if matches!(next, b'\r' | b'\n') => {}
                None if next == b'=' => {
                    padded(text, at, count)?;
                    bytes.extend_from_slice(&joined(group)[..count - 1]);
                    return Ok(bytes);
                }
                None => return Err(at - 1),
            }
        }
        bytes.extend_from_slice(&joined(group));
    }
}

/// Checks the end of a text from the byte after the first `=`, which follows `count` characters of a group.
fn padded(text: &[u8], mut at: usize, count: usize) -> Result<(), usize> {
    let after_breaks = |mut at: usize| {
        while text.get(at).is_some_and(|next| matches!(next, b'\r' | b'\n')) {
            at += 1;
        }
        at
    };
    match count {
        0 | 1 => return Err(at - 1),
        2 => {
            at = after_breaks(at);
            match text.get(at) {
                None => return Err(text.len()),
                Some(b'=') => at += 1,
                Some(_) => return Err(at - 1),
            }
        }
        _ => {}
    }
    let end = after_breaks(at);
    if end < text.len() { Err(end) } else { Ok(()) }
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

fn joined(group: [u8; 4]) -> [u8; 3] {
    [group[0] << 2 | group[1] >> 4, group[1] << 4 | group[2] >> 2, group[2] << 6 | group[3]]
}

/// Decodes padded base32 without line breaks.
///
/// # Errors
/// The position that Go reports for input that is not base32.
pub(super) fn base32(text: &[u8]) -> Result<Vec<u8>, usize> {
    let (mut bytes, mut at) = (Vec::with_capacity(text.len() / 8 * 5), 0);
    while at < text.len() {
        let (mut bits, mut count) = (0_u64, 0);
        while count < 8 {
            let next = *text.get(at).ok_or(text.len() - count)?;
            at += 1;
            let left = text.len() - at;
            if next == b'=' && count >= 2 && left < 8 {
                end_of_group(&text[at..], text.len(), count)?;
                let whole = (bits << (5 * (8 - count))).to_be_bytes();
                bytes.extend_from_slice(&whole[3..3 + count * 5 / 8]);
                return Ok(bytes);
            }
            bits = bits << 5 | u64::from(quintet(next).ok_or(at - 1)?);
            count += 1;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[3..]);
    }
    Ok(bytes)
}

/// Checks the padding of the last group, after its first `=`. `length`: the length of the whole text, `count`: the
/// number of characters in the group before the padding.
fn end_of_group(rest: &[u8], length: usize, count: usize) -> Result<(), usize> {
    if rest.len() + count < 7 {
        return Err(length);
    }
    if let Some(wrong) = rest.iter().take(7 - count).position(|next| *next != b'=') {
        return Err(length - rest.len() + wrong - 1);
    }
    if matches!(count, 3 | 6) { Err(length - rest.len() - 1) } else { Ok(()) }
}

fn quintet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'2'..=b'7' => Some(byte - b'2' + 26),
        _ => None,
    }
}
