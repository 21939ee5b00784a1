//! Measures how long `/healthz` of the shipped `sidecar-injector` takes while reviews of hostile pods use all
//! processors.
//!
//! Sends `HEALTHZ_PROBES` probes (500 by default), each on a new connection as kubelets do. Meanwhile twice as many
//! connections as there are processors send reviews of hostile pods. The slowest probe is compared with the target.

#![expect(clippy::disallowed_methods, reason = "starts processes, reads files, holds the clock")]
#![expect(clippy::expect_used, reason = "what a bench does not expect ends it")]
#![expect(clippy::print_stdout, reason = "its report")]

mod drawn;
#[allow(dead_code, reason = "the other program serves it")]
mod echo;
#[allow(dead_code, reason = "the other program uses the rest")]
mod input;
#[allow(dead_code, reason = "the other program uses the rest")]
mod load;
#[allow(dead_code, reason = "the other program uses the rest")]
mod process;
#[allow(dead_code, reason = "the other program uses the rest")]
mod program;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use input::Reviews;
use program::Program;
use test_support::api::Api;
use test_support::client::Connection;
use test_support::hostile;

/// The target for the slowest probe, in milliseconds.
const AIM: f64 = 50.0;
/// The pause between two probes.
const PAUSE: Duration = Duration::from_millis(5);
/// The number of generated pods, whose reviews are sent in turn.
const PODS: u64 = 64;

#[tokio::main]
async fn main() -> Result<()> {
    let input = input::directory();
    if !input.join("review.json").exists() {
        println!("healthz: no input in {}; BENCH_INPUT names another directory", input.display());
        return Ok(());
    }
    let probes = std::env::var("HEALTHZ_PROBES").map_or(500, |text| text.parse().expect("a number"));
    let (all, api) = (Reviews::all(&input)?, Api::start().await);
    let program = Arc::new(Program::start(&api, &input, [&all[0], &all[2]]).await?);
    let texts: Arc<[String]> = (1..=PODS).map(|seed| hostile::review(&drawn::pod(seed).0)).collect();
    let responses = Arc::new(AtomicUsize::new(0));
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let reviewing: Vec<_> = (0..2 * processors)
        .map(|first| tokio::spawn(review(Arc::clone(&program), Arc::clone(&texts), first * 7, Arc::clone(&responses))))
        .collect();
    let mut took = Vec::new();
    for _ in 0..probes {
        took.push(probe(program.monitoring).await?);
        tokio::time::sleep(PAUSE).await;
    }
    reviewing.iter().for_each(tokio::task::JoinHandle::abort);
    took.sort_by(f64::total_cmp);
    let (median, worst) = (took[took.len() / 2], took.last().copied().unwrap_or_default());
    let met = if worst <= AIM { "reached" } else { "missed" };
    println!(
        "sidecar-injector, the slowest of {probes} /healthz beside {} hostile reviews {worst:>6.1} ms  (aim {AIM} ms: {met}; median {median:.1} ms)",
        responses.load(Ordering::Relaxed)
    );
    Ok(())
}

/// Sends reviews endlessly, on one connection until the server closes it, then on a new one.
async fn review(program: Arc<Program>, texts: Arc<[String]>, first: usize, responses: Arc<AtomicUsize>) -> Result<()> {
    let mut next = first;
    loop {
        let mut connection = Connection::open(program.address, &program.trust).await?;
        while connection.post("/inject", &texts[next % texts.len()]).await.is_ok() {
            responses.fetch_add(1, Ordering::Relaxed);
            next += 1;
        }
    }
}

/// Sends one probe and returns the time from connecting to the complete response, in milliseconds.
async fn probe(address: SocketAddr) -> Result<f64> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    ensure!(text.starts_with("HTTP/1.1 200 "), "{text}");
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}
