//! `inspect`: what a weights file or a run holds.

mod backbone;
mod file;
mod finetune;
mod run;

use model::VitConfig;
use text::count;

use crate::args::InspectArgs;
use crate::error::CliError;
use crate::output;
use crate::weights::{fine_tuned, is_of_run, or_its_runs};
use file::FileAccount;
use finetune::FineTuneAccount;
use run::RunAccount;

/// Prints what is there.
pub fn run(args: &InspectArgs) -> Result<(), CliError> {
    let path = &args.weights;
    let told = if fine_tuned(path).is_some() {
        let account = FineTuneAccount::of(path)?;
        if args.json {
            return output::json(&account.json());
        }
        account.text()
    } else if is_of_run(path) {
        let account = RunAccount::of(path)?;
        if args.json {
            return output::json(&account.json());
        }
        account.text()?
    } else {
        let account = FileAccount::of(path, args).map_err(|error| or_its_runs(path, error))?;
        if args.json {
            return output::json(&account.json());
        }
        account.text()
    };
    output::result(&told)
}

fn network(config: &VitConfig) -> String {
    let VitConfig { dim, depth, heads, patch, image: (height, width), channels, extras, .. } = config;
    let (blocks, heads) = (count(*depth, "block"), count(*heads, "head"));
    let mut parts = vec![format!("ViT of width {dim}"), blocks, heads];
    if extras.registers > 0 {
        parts.push(count(extras.registers, "register token"));
    }
    if extras.layer_scale {
        parts.push("LayerScale".to_owned());
    }
    format!("{}, patches of {patch} pixels, for images of {height}x{width} with {channels} channels", parts.join(", "))
}
