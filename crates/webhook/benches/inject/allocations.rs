//! `make bench`, injection: counts the allocations of one review and their bytes.
//!
//! A separate program, because counting replaces the shipped allocator.

#![expect(clippy::disallowed_methods, reason = "reads files, holds the clock")]
#![expect(clippy::expect_used, reason = "what a bench does not expect ends it")]
#![expect(clippy::print_stdout, reason = "its report")]

#[allow(dead_code, reason = "paths are the other program's")]
mod input;
#[allow(dead_code, reason = "time is the other program's")]
mod process;

use anyhow::Result;

use input::Reviews;
use process::Profiles;
use test_support::api::Api;

/// The number of reviews before counting starts. The first reviews also allocate data that later ones reuse.
const BEFORE: usize = 50;
const COUNTED: usize = 200;

#[tokio::main]
async fn main() -> Result<()> {
    let input = input::directory();
    if !input.join("review.json").exists() {
        return Ok(());
    }
    let all = Reviews::all(&input)?;
    let api = Api::start().await;
    let profiles = Profiles::new(&input, &api, &all[2]).await?;
    println!("injection, what one review allocates");
    for reviews in &all {
        let profile = profiles.of(reviews);
        process::answer_all(profile, &reviews.texts(0, BEFORE))?;
        let (texts, mut done) = (reviews.texts(BEFORE, COUNTED), Ok(()));
        let counted = allocation_counter::measure(|| done = process::answer_all(profile, &texts));
        done?;
        let (times, kib) = (counted.count_total / COUNTED as u64, counted.bytes_total / COUNTED as u64 / 1024);
        println!("  {:<48} {times:>8} times, {kib} KiB", reviews.name());
    }
    Ok(())
}
