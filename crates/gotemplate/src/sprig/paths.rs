//! sprig's functions on paths and URLs, which read no files.

use std::collections::BTreeMap;

use crate::error::Reason;
use crate::function::{Args, Functions};
use crate::shape::Kind;
use crate::value::{Map, Text, Value};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    let functions = functions
        .with("base", 1, 1, |_, args| Ok(Value::made(base(args.str(0)?))))
        .with("dir", 1, 1, |_, args| Ok(Value::from(directory(args.str(0)?))))
        .with("clean", 1, 1, |_, args| Ok(Value::from(clean(args.str(0)?))))
        .with("ext", 1, 1, |_, args| Ok(Value::made(extension(args.str(0)?))))
        .with("isAbs", 1, 1, |_, args| Ok(Value::Bool(args.str(0)?.starts_with('/'))))
        .with("urlParse", 1, 1, |_, args| parsed(args.str(0)?))
        .with("urlJoin", 1, 1, |_, args| joined(args));
    let os = [("osBase", "base"), ("osDir", "dir"), ("osClean", "clean"), ("osExt", "ext"), ("osIsAbs", "isAbs")];
    os.into_iter().fold(functions, |functions, (name, of)| functions.alias(name, of))
}

fn base(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" if path.is_empty() => ".",
        "" => "/",
        path => path.rsplit('/').next().unwrap_or(path),
    }
}

fn directory(path: &str) -> String {
    clean(&path[..path.rfind('/').map_or(0, |slash| slash + 1)])
}

fn extension(path: &str) -> &str {
    let name = &path[path.rfind('/').map_or(0, |slash| slash + 1)..];
    name.rfind('.').map_or("", |dot| &name[dot..])
}

/// Returns the shortest equivalent of a path, like Go's `path.Clean`.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if rooted => {}
            part => parts.push(part),
        }
    }
    match (rooted, parts.join("/")) {
        (true, rest) => format!("/{rest}"),
        (false, rest) if rest.is_empty() => ".".to_owned(),
        (false, rest) => rest,
    }
}

const PARTS: [&str; 8] = ["scheme", "host", "hostname", "path", "query", "opaque", "fragment", "userinfo"];

fn parsed<'a>(text: &str) -> Result<'a> {
    let wrong = |why: &str| Reason::Refused(format!("unable to parse url {text:?}: {why}"));
    if text.contains(|next: char| next.is_ascii_control()) {
        return Err(wrong("it has control characters"));
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (scheme, rest) = match rest.split_once(':') {
        Some(("", _)) => return Err(wrong("it has no scheme")),
        Some((scheme, behind)) if is_scheme(scheme) => (scheme.to_lowercase(), behind),
        Some((first, _))
            if !first.contains(['/', '?']) && first.starts_with(|next: char| next.is_ascii_alphabetic()) =>
        {
            (String::new(), rest)
        }
        Some((first, _)) if !first.contains(['/', '?']) => return Err(wrong("its first part has a colon")),
        _ => (String::new(), rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut map: BTreeMap<&'static str, String> = PARTS.into_iter().map(|part| (part, String::new())).collect();
    map.insert("query", query.to_owned());
    map.insert("fragment", decoded(fragment).ok_or_else(|| wrong("its fragment is not escaped"))?);
    match rest.strip_prefix("//") {
        Some(behind) => {
            let (authority, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
            let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
            let port = host
                .rsplit_once(':')
                .filter(|(name, port)| !port.contains(']') && (!name.contains(':') || name.ends_with(']')));
            if port.is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit())) || host.contains(' ') {
                return Err(wrong("its host or port is invalid"));
            }
            map.insert("host", host.to_owned());
            map.insert("hostname", port.map_or(host, |(name, _)| name).trim_matches(['[', ']']).to_owned());
            map.insert("userinfo", user.to_owned());
            map.insert("path", decoded(path).ok_or_else(|| wrong("its path is not escaped"))?);
        }
        None if !scheme.is_empty() && !rest.starts_with('/') => drop(map.insert("opaque", rest.to_owned())),
        None => drop(map.insert("path", decoded(rest).ok_or_else(|| wrong("its path is not escaped"))?)),
    }
    map.insert("scheme", scheme);
    let entries = map.into_iter().map(|(key, value)| (Text::Borrowed(key), Value::from(value))).collect();
    Ok(Value::Map(Map::made(entries, Kind::Any)?))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|next: char| next.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Decodes percent-encoding; `None` for a malformed escape.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let (hex, behind) = after.split_at_checked(2)?;
                rest = behind;
                u8::from_str_radix(std::str::from_utf8(hex).ok().filter(|hex| !hex.starts_with('+'))?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes all characters except ASCII letters, digits and the characters in `plain`.
fn escaped(text: &str, plain: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || plain.as_bytes().contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn joined<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let Value::Map(map) = args.any(0) else {
        return Err(args.any(0).type_error("map"));
    };
    let part = |key: &str| match map.get(key) {
        None => Ok(String::new()),
        Some(Value::Text(text)) => Ok(text.as_str().to_owned()),
        Some(other) => {
            let of = other.type_name();
            Err(Reason::Refused(format!("unable to parse {key} key, must be of type string, but {of} found")))
        }
    };
    let (scheme, host, path, opaque, user) =
        (part("scheme")?, part("host")?, part("path")?, part("opaque")?, part("userinfo")?);
    let mut out = if scheme.is_empty() { String::new() } else { format!("{scheme}:") };
    if opaque.is_empty() {
        if !scheme.is_empty() || !host.is_empty() || !user.is_empty() {
            if !(host.is_empty() && path.is_empty() && user.is_empty()) {
                out += "//";
            }
            out += &if user.is_empty() { String::new() } else { format!("{user}@") };
            out += &escaped(&host, "-_.~!$&'()*+,;=:[]<>\"");
        }
        let path = escaped(&path, "-_.~$&+,/:;=@!'()*");
        if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
            out.push('/');
        }
        if out.is_empty() && path.split('/').next().is_some_and(|first| first.contains(':')) {
            out += "./";
        }
        out += &path;
    } else {
        out += &opaque;
    }
    let (query, fragment) = (part("query")?, part("fragment")?);
    out += &if query.is_empty() { String::new() } else { format!("?{query}") };
    out += &if fragment.is_empty() { String::new() } else { format!("#{}", escaped(&fragment, "-_.~$&+,/:;=?@!()*'")) };
    Ok(Value::from(out))
}
