//! Writes the man pages and the completions of all programs from the definitions of their command lines.
//!
//! `make man` calls it with a directory, which gets `man1`, `bash`, `zsh` and `fish`.

use std::path::Path;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use clap::Command;
use clap_complete::Shell;
use xtask::commands;

const SHELLS: [(Shell, &str); 3] = [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")];

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory] = arguments.as_slice() else { bail!("usage: manuals <directory>") };
    for program in commands() {
        write(program, Path::new(directory))?;
    }
    Ok(())
}

/// Writes the man pages of a program and its subcommands, and the program's shell completions.
fn write(mut program: Command, directory: &Path) -> Result<()> {
    let made = |name: &str| {
        let path = directory.join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string()).map(|()| path)
    };
    let name = program.get_name().to_owned();
    clap_mangen::generate_to(program.clone(), made("man1")?).with_context(|| format!("the man pages of {name}"))?;
    for (shell, directory) in SHELLS {
        let completed = clap_complete::generate_to(shell, &mut program, &name, made(directory)?);
        completed.with_context(|| format!("the completion of {name} for {directory}"))?;
    }
    Ok(())
}
