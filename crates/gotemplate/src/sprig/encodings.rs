//! sprig's functions for checksums, encodings and JSON.

mod decode;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data_encoding::BASE32;
use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest};
use serde_json::Value as Json;

use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{Args, Functions};
use crate::json;
use crate::value::Value;
use decode::{base32, base64};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    functions
        .with("sha1sum", 1, 1, |_, args| Ok(Value::from(sum(&SHA1_FOR_LEGACY_USE_ONLY, args.str(0)?))))
        .with("sha256sum", 1, 1, |_, args| Ok(Value::from(sum(&SHA256, args.str(0)?))))
        .with("sha512sum", 1, 1, |_, args| Ok(Value::from(sum(&SHA512, args.str(0)?))))
        .with("adler32sum", 1, 1, |_, args| Ok(Value::from(adler(args.str(0)?).to_string())))
        .with("b64enc", 1, 1, |_, args| Ok(Value::from(BASE64_STANDARD.encode(args.str(0)?))))
        .with("b64dec", 1, 1, |_, args| decoded("base64", base64(args.str(0)?.as_bytes())))
        .with("b32enc", 1, 1, |_, args| Ok(Value::from(BASE32.encode(args.str(0)?.as_bytes()))))
        .with("b32dec", 1, 1, |_, args| decoded("base32", base32(&lines_joined(args.str(0)?))))
        .with("toJson", 1, 1, |budget, args| Ok(Value::from(json::write_json(args.any(0), budget)?)))
        .with("toRawJson", 1, 1, |budget, args| Ok(Value::from(json::write_raw(args.any(0), budget)?)))
        .with("toPrettyJson", 1, 1, |budget, args| {
            Ok(Value::from(pretty(&json::write_json(args.any(0), budget)?, budget)?))
        })
        .with("fromJson", 1, 1, |budget, args| match read(budget, args) {
            Err(Reason::Refused(_)) => Ok(Value::Nil),
            read => read,
        })
        .with("mustFromJson", 1, 1, read)
        .alias("mustToJson", "toJson")
        .alias("mustToRawJson", "toRawJson")
        .alias("mustToPrettyJson", "toPrettyJson")
}

fn sum(algorithm: &'static Algorithm, text: &str) -> String {
    digest(algorithm, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn adler(text: &str) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = text.bytes().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}

/// Removes line breaks from encoded text, because Go's decoders ignore them.
fn lines_joined(text: &str) -> Vec<u8> {
    text.bytes().filter(|next| !is_break(*next)).collect()
}

fn is_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Returns the decoded string or, as sprig does, Go's error message about the first wrong byte.
fn decoded<'a>(encoding: &str, bytes: std::result::Result<Vec<u8>, usize>) -> Result<'a> {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(at) => return Ok(Value::from(format!("illegal {encoding} data at input byte {at}"))),
    };
    let text = String::from_utf8(bytes).map_err(|_| Reason::Refused("the decoded bytes are not UTF-8".to_owned()))?;
    Ok(Value::from(text))
}

fn read<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let text = args.str(0)?;
    budget.step(text.len())?;
    let parsed: Json = serde_json::from_str(text).map_err(|error| Reason::Refused(error.to_string()))?;
    Value::copied(&parsed, budget)
}

/// Reformats compact JSON: one member or element on each line, indented by two spaces for each level.
fn pretty(compact: &str, budget: &mut Budget) -> std::result::Result<String, Reason> {
    let (mut out, mut depth, mut quoted, mut escaped) =
        (String::with_capacity(compact.len() * 2), 0_usize, false, false);
    let mut chars = compact.chars().peekable();
    let line = |out: &mut String, depth: usize, budget: &mut Budget| {
        budget.bytes(1 + 2 * depth)?;
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', 2 * depth));
        Ok::<_, Reason>(())
    };
    while let Some(next) = chars.next() {
        if quoted {
            quoted = escaped || next != '"';
            escaped = !escaped && next == '\\';
            out.push(next);
            continue;
        }
        match next {
            '{' | '[' => {
                out.push(next);
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        line(&mut out, depth, budget)?;
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth, budget)?;
                out.push(next);
            }
            ',' => {
                out.push(next);
                line(&mut out, depth, budget)?;
            }
            ':' => out.push_str(": "),
            next => {
                quoted = next == '"';
                out.push(next);
            }
        }
    }
    Ok(out)
}
