//! How long it takes to open a source and to take its fingerprint.
//!
//!   cargo run --release -p data --example index -- SRC

use data::{Split, open};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = std::env::args().nth(1).ok_or("give a source: a folder, a tar, a list, ...")?;
    let start = Instant::now();
    let source = open(&spec, Split::Train, 0)?;
    println!("{}", source.describe());
    source.remarks().iter().for_each(|remark| println!("  {remark}"));
    println!("opened in {:.3} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    println!("fingerprint {:016x} in {:.3} s", source.fingerprint(), start.elapsed().as_secs_f64());
    Ok(())
}
