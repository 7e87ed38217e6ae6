//! The flags of `watch`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::Args;

/// `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Where to look for runs, at any depth; new ones appear by themselves
    #[arg(value_name = "RUNS", default_value = "runs")]
    pub folder: PathBuf,
    /// The port [default: 8017, or any free one where that is taken]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The address to listen at. Any but this machine's own shows your runs to others
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    /// Let whoever opens the printed address, with its token, ask a run to save and stop
    #[arg(long)]
    pub allow_stop: bool,
}

/// Examples of `watch`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf watch                       the runs in runs/: open the address that it prints
  dino-vmf watch studies --port 8080   another folder, and a port of your choice
  dino-vmf watch --allow-stop          with a button that saves and stops a run
  ssh -L 8017:localhost:8017 gpu-machine dino-vmf watch work/runs
                                       runs on another machine: open http://localhost:8017/ on this one

The list shows every run with its loss, its state and its verdict; tick some to see them side by side. A run's page is its
report without the pictures, drawn again as its log grows. Nothing is loaded from anywhere else and nothing is written. It answers requests from
this machine alone unless told otherwise with --host. Ctrl-C ends it; runs go on.";
