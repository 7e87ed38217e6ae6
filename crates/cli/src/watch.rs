//! `watch`: the pages of runs, served while they train.

use std::io::ErrorKind;

use report::watch::{Options, Watch, WatchError};

use crate::args::WatchArgs;
use crate::error::CliError;
use crate::output;

/// Says where the pages are, and serves them until the process is ended.
pub fn run(args: &WatchArgs) -> Result<(), CliError> {
    if !args.folder.is_dir() {
        return Err(CliError::NoFolder { path: args.folder.clone() });
    }
    let folder = args.folder.clone();
    let options = Options { folder, host: args.host, port: args.port, may_stop: args.allow_stop };
    let watch = Watch::bind(&options).map_err(|error| match error {
        WatchError::Bind { source, address } if source.kind() == ErrorKind::AddrNotAvailable => {
            let advice = "--host takes an address of this machine";
            CliError::Address { source: WatchError::Bind { source, address }, advice }
        }
        source @ WatchError::Bind { .. } if args.port.is_some() => {
            CliError::Address { source, advice: "Leave --port out to take a free one" }
        }
        error => error.into(),
    })?;
    if !args.host.is_loopback() {
        let stop = if args.allow_stop { " The token goes over the network as plain text." } else { "" };
        output::note(&format!(
            "warning: --host {}: whoever reaches this machine sees these runs, without a password.{stop} \
             `ssh -L` shows them to you alone",
            args.host
        ));
    }
    output::result(&format!("{}  shows the runs in {}", watch.address_to_open(), text::shown(&args.folder)))?;
    output::note("Ctrl-C ends this; runs go on.");
    Ok(watch.serve()?)
}
