//! Times the loading of weights: `cargo run --release -p model --example load -- FILE [HEADS]`. Prints seconds, values and
//! the peak of the process's memory.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use model::weights::{LoadOptions, load_vit};
use tensor::Device;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: load FILE [HEADS]")?;
    let heads = arguments.next().map(|heads| heads.parse()).transpose()?;
    let device = Device::cpu(Default::default())?;
    let start = Instant::now();
    let loaded = load_vit(Path::new(&path), &LoadOptions { heads, ..Default::default() }, &device)?;
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim();
    println!("{seconds:.3} s, {} values, peak {peak}", loaded.layout.values());
    Ok(())
}
