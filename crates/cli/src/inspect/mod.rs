//! `inspect`: what a weights file or a run holds.

mod backbone;
mod file;
mod run;

use model::VitConfig;
use text::count;

use crate::args::InspectArgs;
use crate::error::CliError;
use crate::output;
use file::FileAccount;
use run::RunAccount;

/// Prints what is there.
pub fn run(args: &InspectArgs) -> Result<(), CliError> {
    let path = &args.weights;
    let told = if path.is_dir() {
        let account = RunAccount::of(path)?;
        if args.json {
            return output::json(&account.json());
        }
        account.text()?
    } else {
        let account = FileAccount::of(path, args.heads)?;
        if args.json {
            return output::json(&account.json());
        }
        account.text()
    };
    output::result(&told)
}

fn network(config: &VitConfig) -> String {
    let VitConfig { dim, depth, heads, patch, image: (height, width), channels, .. } = config;
    let (blocks, heads) = (count(*depth, "block"), count(*heads, "head"));
    format!(
        "ViT of width {dim}, {blocks}, {heads}, patches of {patch} pixels, for images of {height}x{width} \
         with {channels} channels"
    )
}
