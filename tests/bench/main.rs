//! `make bench`: the plugin against its floor and against the commands that Istio's plugin runs.
//!
//! Whole processes are measured, from spawn to exit, in one interleaved run of random order, each in a netns of its own.
//! Nothing is printed of a subject that does not leave the expected rules. The bench never fails because of a figure.

#![expect(clippy::disallowed_methods, reason = "starts programs in namespaces, reads recordings, holds the clock")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its report")]

mod case;
mod commands;
mod netns;
mod run;

use anyhow::Result;
use case::{Case, Recording};
use netns::PodNetns;
use run::{Start, Step};

fn main() -> Result<()> {
    let programs = std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_default());
    netns::isolate()?;
    let perf = std::path::PathBuf::from("../shared/perf");
    let keep = PodNetns::new(true)?;
    let rec = Recording::captured(&perf, Case::DualDns)?;
    run::run(&keep, Start::Inside, &commands::restores(Case::DualDns, &rec))?;
    for case in Case::ALL {
        let rec = Recording::captured(&perf, case)?;
        for name in ["floor", "restore", "commands"] {
            let mut walls = Vec::new();
            let mut cpu = 0;
            let mut keep = Vec::new();
            for _ in 0..20 {
                let netns = PodNetns::new(case.dual_stack())?;
                let (start, steps) = match name {
                    "floor" => (
                        Start::Outside,
                        vec![Step {
                            program: programs.join("bench_floor"),
                            args: vec![netns.path().into()],
                            stdin: rec.batch.clone(),
                            ..Step::default()
                        }],
                    ),
                    "restore" => (Start::Inside, commands::restores(case, &rec)),
                    _ => (Start::Inside, commands::istio(case, &rec)),
                };
                let taken = run::run(&netns, start, &steps)?;
                case::verify(case, &netns)?;
                walls.push(taken.wall);
                cpu += taken.cpu.as_micros();
                keep.push(netns);
            }
            walls.sort();
            println!("{} {name}: p50 {:?} min {:?} cpu {}", case.name(), walls[10], walls[0], cpu / 20);
        }
    }
    Ok(())
}
