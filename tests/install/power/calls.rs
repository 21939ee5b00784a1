//! Parses file operations from a log of `strace -f -y -xx`.
//!
//! With `-xx` each string is hexadecimal, so that quotes and angle brackets delimit strings and the paths of
//! descriptors only.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// The system calls to trace: all that can change a regular file or a directory, or sync it.
pub(super) const TRACED: &str = "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,splice,truncate,\
    ftruncate,fallocate,chmod,fchmod,fchmodat,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,mkdir,\
    mkdirat";

/// A successful system call.
#[derive(Debug)]
pub(super) enum Call {
    Create(PathBuf),
    Append(PathBuf, Vec<u8>),
    /// Appends the next `length` bytes of `from` to `to`. These are the bytes after the ones that `to` already
    /// contains.
    Copy {
        from: PathBuf,
        to: PathBuf,
        length: usize,
    },
    SetMode(PathBuf, u32),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    /// A rename with `RENAME_EXCHANGE`.
    Exchange(PathBuf, PathBuf),
    Unlink(PathBuf),
    MakeDirectory(PathBuf),
    /// A call on this path that the model does not support.
    Other(String, PathBuf),
}

/// Returns the successful calls in a log, in the order in which they returned.
pub(super) fn parse(log: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<&str, &str> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let (thread, event) = line.split_once(' ').unwrap_or_else(|| panic!("no thread: {line}"));
        let event = event.trim_start();
        if event.starts_with("+++") || event.starts_with("---") {
            continue;
        }
        if let Some(start) = event.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread, start);
            continue;
        }
        let whole = match event.split_once(" resumed>") {
            Some((_, end)) => format!("{}{end}", unfinished.remove(thread).unwrap_or_default()),
            None => event.to_owned(),
        };
        calls.extend(call(&whole));
    }
    calls
}

/// Parses one call; returns `None` if it failed or changes nothing.
fn call(text: &str) -> Option<Call> {
    let (text, result) = text.rsplit_once(" = ")?;
    if result.starts_with(['-', '?']) || text.contains("(deleted)") {
        return None;
    }
    let (name, arguments) = text.split_once('(')?;
    assert!(!arguments.contains("\"..."), "strace has cut a string: {name}");
    let strings: Vec<Vec<u8>> = arguments.split('"').skip(1).step_by(2).map(unescape).collect();
    let path = |at: usize| PathBuf::from(std::ffi::OsString::from_vec(strings[at].clone()));
    let (opened, returned) = (descriptors(arguments), descriptors(result));
    let count = || result.split(' ').next().unwrap_or_default().parse::<usize>().unwrap();
    let mode = || {
        u32::from_str_radix(arguments.trim_end().trim_end_matches(')').trim_end().rsplit(", ").next().unwrap(), 8)
            .unwrap()
    };
    Some(match name {
        "open" | "openat" if arguments.contains("O_TRUNC") => Call::Other("O_TRUNC".to_owned(), returned[0].clone()),
        "open" | "openat" if arguments.contains("O_CREAT") => Call::Create(returned[0].clone()),
        "open" | "openat" => return None,
        // A write of zero bytes has no string in the log.
        "write" => Call::Append(opened.first()?.clone(), strings.first()?[..count()].to_vec()),
        "copy_file_range" => Call::Copy { from: opened[0].clone(), to: opened[1].clone(), length: count() },
        "sendfile" => Call::Copy { from: opened[1].clone(), to: opened[0].clone(), length: count() },
        "fchmod" => Call::SetMode(opened[0].clone(), mode()),
        "fsync" | "fdatasync" => Call::Sync(opened[0].clone()),
        "renameat2" if arguments.contains("RENAME_EXCHANGE") => Call::Exchange(path(0), path(1)),
        "rename" | "renameat" | "renameat2" => Call::Rename(path(0), path(1)),
        "unlink" | "unlinkat" => Call::Unlink(path(0)),
        "mkdir" | "mkdirat" => Call::MakeDirectory(path(0)),
        _ => Call::Other(name.to_owned(), strings.first().map_or_else(|| opened.first().cloned(), |_| Some(path(0)))?),
    })
}

/// Returns the paths of descriptors, which strace writes in angle brackets after the descriptors' numbers.
fn descriptors(text: &str) -> Vec<PathBuf> {
    let paths = text.split('<').skip(1).filter_map(|rest| rest.split_once('>'));
    paths.map(|(path, _)| PathBuf::from(std::ffi::OsString::from_vec(unescape(path)))).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}
