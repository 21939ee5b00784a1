//! `make bench`, injection: reviews within the process, reviews over HTTPS by the shipped `sidecar-injector`, and
//! `kube-inject` of one Deployment as a process. Prints measurements and targets; a missed target is not a failure.

#![expect(clippy::disallowed_methods, reason = "starts processes, reads files, holds the clock")]
#![expect(clippy::expect_used, reason = "what a bench does not expect ends it")]
#![expect(clippy::print_stdout, reason = "its report")]

mod echo;
mod input;
mod load;
mod process;
#[allow(dead_code, reason = "bench_healthz sends the probes")]
mod program;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use input::{Mesh, Pods, Reviews};
use load::Shown;
use process::Profiles;
use program::Program;
use test_support::api::Api;
use test_support::shuffle::Shuffle;

/// The allocator of the shipped program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Targets of loads: for a number of connections, the reviews per second and the 99th percentile of a review's duration
/// in milliseconds.
type Aims = &'static [(usize, f64, f64)];

const UNSEEN: Aims = &[(1, 1000.0, 3.0), (16, 2500.0, 30.0), (64, 2500.0, 100.0)];
const REPLICAS: Aims = &[(1, 1500.0, 2.0), (16, 5000.0, 20.0), (64, 5000.0, 60.0)];
const DAPR: Aims = &[(1, 4000.0, 10.0), (16, 10_000.0, 10.0)];

/// The number of repetitions of each load.
const ROUNDS: usize = 4;

/// The number of runs of `kube-inject`.
const RUNS: usize = 21;

/// The number of connections of the load that is compared with the [`echo`] server.
const COMPARED: usize = 16;

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(dir) = std::env::var_os(echo::DIRECTORY) {
        return echo::serve(Path::new(&dir)).await;
    }
    let input = input::directory();
    if !input.join("review.json").exists() {
        println!("injection: no input in {}; BENCH_INPUT names another directory", input.display());
        return Ok(());
    }
    let all = Reviews::all(&input)?;
    let api = Api::start().await;
    let profiles = Profiles::new(&input, &api, &all[2]).await?;
    println!("injection, one review within the process");
    for reviews in &all {
        let cpu = tokio::task::block_in_place(|| process::measure(profiles.of(reviews), reviews))?;
        row(&reviews.name(), cpu, "ms", process::aim(reviews));
    }
    let program = Program::start(&api, &input, [&all[0], &all[2]]).await?;
    println!("injection over HTTPS, generator on the same processors");
    let floor = Program::echo(&load::once(&program, &all[1]).await?, &all[1]).await?;
    over_https(&program, &floor, &all).await?;
    row("sidecar-injector, most memory under load", program.peak()?, "MiB", 40.0);
    row("istio-cnictl kube-inject, a Deployment", kube_inject(&input)?, "ms", 10.0);
    Ok(())
}

/// Runs all loads in rounds of random order, so that other load on the machine affects all of them alike. Each round
/// also sends the reviews of Istio's replicas to `floor`, the [`echo`] server, which returns responses of the same size
/// without reviewing.
async fn over_https(program: &Program, floor: &Program, all: &[Reviews; 4]) -> Result<()> {
    let aims = [UNSEEN, REPLICAS, DAPR, DAPR];
    let kinds = all.iter().zip(aims);
    let mut loads: Vec<_> =
        kinds.flat_map(|(reviews, aims)| aims.iter().map(move |aim| (reviews, *aim, Shown::default()))).collect();
    let mut echoed = Shown::default();
    let (mut shuffle, mut order) = (Shuffle::new(), (0..loads.len()).collect::<Vec<_>>());
    for _ in 0..ROUNDS {
        shuffle.order(&mut order);
        for &at in &order {
            let (reviews, (connections, ..), shown) = &mut loads[at];
            load::run(program, reviews, *connections, shown).await?;
        }
        load::run(floor, &all[1], COMPARED, &mut echoed).await?;
    }
    for (reviews, (connections, rate, p99), mut shown) in loads {
        let (got, late, (program, generator)) = (shown.rate(), shown.within(99), shown.cost());
        println!(
            "  {:<32} {connections:>3} connections {got:>8.0} reviews/s (aim {rate:.0}: {})   p50 {:>6.2} ms   p99 {late:>6.2} ms (aim {p99:.0}: {})   processor time {program:.3} ms + generator {generator:.3} ms",
            reviews.name(),
            met(got >= rate),
            shown.within(50),
            met(late <= p99),
        );
        if reviews.mesh == Mesh::Istio && reviews.pods == Pods::Replicas && connections == COMPARED {
            print_floor(got, program + generator, &mut echoed);
        }
    }
    Ok(())
}

/// Prints the rate and the processor time of the [`echo`] server, and the injector's relative to them. `rate` and
/// `cost` are the injector's reviews per second and the processor time of server and generator for one review, in
/// milliseconds.
fn print_floor(rate: f64, cost: f64, echoed: &mut Shown) {
    let (floor, (server, generator)) = (echoed.rate(), echoed.cost());
    println!(
        "  {:<32} {COMPARED:>3} connections {floor:>8.0} responses/s, processor time {server:.3} ms + generator {generator:.3} ms: reviews reach {:.0} % of this rate, and take {:.1} times its processor time",
        "floor: the same bytes, no review",
        rate / floor * 100.0,
        cost / (server + generator),
    );
}

/// Runs `kube-inject` for a Deployment repeatedly and returns the median duration from start to exit, in milliseconds.
fn kube_inject(input: &Path) -> Result<f64> {
    let binary = std::env::var_os("ISTIO_CNICTL").context("ISTIO_CNICTL names the program; see `make bench`")?;
    let review: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(input.join("review.json"))?)?;
    let template = &review["request"]["object"];
    let deployment = serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "reviews-v1", "namespace": "bookinfo" },
        "spec": { "selector": { "matchLabels": { "app": "reviews" } }, "template": template },
    });
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), deployment.to_string())?;
    let mut took = Vec::new();
    for _ in 0..RUNS {
        let mut command = Command::new(&binary);
        command.args(["kube-inject", "-f"]).arg(file.path());
        command.arg("--injectConfigFile").arg(input.join("config.yaml"));
        command.arg("--valuesFile").arg(input.join("values.json"));
        command.arg("--meshConfigFile").arg(input.join("mesh.yaml"));
        let begin = Instant::now();
        let output = command.stdin(Stdio::null()).output()?;
        took.push(begin.elapsed().as_secs_f64() * 1e3);
        let injected = String::from_utf8_lossy(&output.stdout).contains("istio-proxy");
        ensure!(output.status.success() && injected, "{}", String::from_utf8_lossy(&output.stderr));
    }
    took.sort_by(f64::total_cmp);
    Ok(took[RUNS / 2])
}

fn row(what: &str, value: f64, unit: &str, aim: f64) {
    println!("  {what:<48} {value:>8.3} {unit}  (aim {aim} {unit}: {})", met(value <= aim));
}

fn met(reached: bool) -> &'static str {
    if reached { "reached" } else { "missed" }
}
