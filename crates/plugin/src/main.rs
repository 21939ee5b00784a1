//! The CNI plugin: reads environment and standard input, prints one reply on standard output, and sets the exit code.
#![expect(clippy::disallowed_methods, reason = "the one place that reads the plugin's environment")]

use std::io::Write as _;
use std::process::ExitCode;

use plugin::Stub;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // The runtime reads the plugin's reply from standard output, so a panic is written there as an error reply.
        let _ = std::io::stdout().write_all(plugin::panicked(&panic.to_string()).as_bytes());
        std::process::exit(1)
    }));
    let search = std::env::var_os("CNI_PATH").unwrap_or_default();
    let stub = std::env::current_exe().ok().and_then(|program| Stub::beside(&program, &search));
    let output = plugin::run(&|name| std::env::var_os(name), std::io::stdin().lock(), stub.as_ref());
    let printed = std::io::stdout().write_all(output.stdout.as_bytes());
    let _ = std::io::stderr().write_all(output.stderr.as_bytes());
    output.log.flush(&output.run_dir);
    if output.success && printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
