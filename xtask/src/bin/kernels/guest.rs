//! Boots a kernel in a virtual machine without hardware virtualisation and reads its console.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// The prefix of the line with the test's exit code.
const STATUS: &str = "kernels: status ";
/// The number of the console's last lines that an error contains.
const LAST: usize = 40;

/// Returns the script that the guest runs as process 1. It runs `command`, prints its standard error if it fails,
/// prints the exit code, and reboots.
pub(crate) fn init(command: &str) -> String {
    format!(
        "#!/bin/sh
export PATH=/usr/sbin:/usr/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
ip link set lo up
{command} 2>/run/stderr </dev/null
status=$?
[ $status = 0 ] || cat /run/stderr
echo '{STATUS}'$status
echo b > /proc/sysrq-trigger
"
    )
}

/// The lines of the console and the test's exit code.
pub(crate) struct Console {
    pub(crate) lines: Vec<String>,
    pub(crate) status: i32,
}

struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots a kernel with a root file system and additional parameters. Writes each line of the console to `log`, prefixed
/// with the seconds since the start. If the guest runs longer than `limit`, returns an error with the console's last
/// lines.
pub(crate) fn boot(image: &Path, initrd: &Path, parameters: &str, limit: Duration, log: &mut File) -> Result<Console> {
    // `mitigations=off` disables page table isolation, which would flush the emulated TLB at each system call.
    // Expedited RCU grace periods shorten the removal of namespaces. `no_timer_check` disables a check that panics if
    // the machine is too loaded to deliver timer ticks.
    let emulated = "mitigations=off rcupdate.rcu_expedited=1 no_timer_check";
    let append = format!("console=ttyS0 quiet loglevel=1 panic=-1 {emulated} {parameters}");
    let mut qemu = Command::new("qemu-system-x86_64");
    // QEMU 7.2 emulates CMPXCHG16B incorrectly: it loses flags. The kernel's allocator SLUB uses this instruction, so
    // kernels hang or crash without `-cx16`.
    qemu.args(["-accel", "tcg", "-cpu", "qemu64,-cx16", "-smp", "1", "-m", "1536"]);
    qemu.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
    qemu.arg("-kernel").arg(image).arg("-initrd").arg(initrd).args(["-append", &append]);
    let child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("running qemu-system-x86_64")?;
    let mut machine = Machine(child);
    let console = machine.0.stdout.take().context("the console")?;
    let lines = follow(&read(console), limit, log)?;
    let status = lines.iter().find_map(|line| line.strip_prefix(STATUS)?.parse().ok());
    let Some(status) = status else { bail!("the guest ended before its test:\n{}", last(&lines)) };
    Ok(Console { lines, status })
}

fn read(console: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Reads the console until the guest ends, and returns all lines.
fn follow(console: &Receiver<String>, limit: Duration, log: &mut File) -> Result<Vec<String>> {
    let (begin, mut lines) = (Instant::now(), Vec::new());
    loop {
        match console.recv_timeout(limit.saturating_sub(begin.elapsed())) {
            Ok(line) => {
                writeln!(log, "{:6.1} {line}", begin.elapsed().as_secs_f64())?;
                lines.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(lines),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guest has not ended in time; its last lines:\n{}", last(&lines))
            }
        }
    }
}

/// Returns the last lines, for an error.
pub(crate) fn last(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(LAST)..].join("\n")
}
