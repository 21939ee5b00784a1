//! An installer for crash tests, which kills itself before its Nth step: `installer install|remove chained|owned ROOT
//! N`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use istio_cni::install::files::Files;
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{InstallFlags, Scope, plan};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: InstallFlags,
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, what, mode, root, number] = args.as_slice() else { anyhow::bail!("four arguments") };
    let root = PathBuf::from(root);
    let dir = |flag: &str, name: &str| format!("--{flag}={}", root.join(name).display());
    let flags = [
        "installer".to_owned(),
        dir("mounted-cni-net-dir", "net"),
        dir("mounted-cni-bin-dir", "bin"),
        dir("mounted-cni-cache-dir", "cache"),
        dir("cni-bin-source-dir", "image"),
        dir("service-account-dir", "account"),
        dir("cni-agent-run-dir", "run"),
        format!("--istio-owned-cni-config={}", mode == "owned"),
        "--kubernetes-service-host=10.0.0.1".to_owned(),
        "--kubernetes-service-port=443".to_owned(),
    ];
    let (mut settings, _) = Cli::try_parse_from(flags)?.flags.settings("debug")?;
    settings.entry.run_dir = "/path/to/kubeconfig".into();
    settings.entry.pod_namespace = "my-namespace".to_owned();
    let (crash_at, steps) = (number.parse::<usize>()?, AtomicUsize::new(0));
    let before = |_| {
        if steps.fetch_add(1, Ordering::SeqCst) == crash_at {
            // After SIGKILL no destructor runs, as in a crash.
            let _ = kill(Pid::this(), Signal::SIGKILL);
        }
    };
    let snapshot = Snapshot::take(&settings);
    let plan = if what == "remove" {
        plan::removal(&settings, &snapshot, Scope::ALL, None)
    } else {
        plan::install(&settings, &snapshot)
    };
    for step in &plan.steps {
        Files::with_hook(&before).apply(&step.operation)?;
    }
    Ok(())
}
