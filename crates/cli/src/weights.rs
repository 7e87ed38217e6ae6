//! Loads `W` of the command line: a run folder, a checkpoint or a safetensors file.

use std::path::{Path, PathBuf};

use eval::InputSpec;
use model::weights::{LoadOptions, LoadedVit, NetworkRole, WeightsFile};
use ssl::recipe::{self, Recipe};
use ssl::setup::vit_config;
use tensor::Device;
use train::run::{BACKBONE_FILE, Checkpoint, RunReader};

use crate::error::CliError;
use crate::online_knn::input_spec;
use crate::output;

/// A backbone and the input that it was trained for.
#[derive(Debug)]
pub struct Weights {
    /// The network with its parameters.
    pub loaded: LoadedVit,
    /// What it sees of an image.
    pub input: InputSpec,
    /// The file that it was read from.
    pub path: PathBuf,
}

/// Loads `W`, and reports on standard error which tensors matched.
pub fn load(path: &Path, device: &Device) -> Result<Weights, CliError> {
    let weights = if path.is_dir() {
        let run = RunReader::open(path)?;
        let recipe = recipe::of_run(&run)?;
        match newest_checkpoint(&run) {
            Ok(checkpoint) => of_run(checkpoint.path(), Some(NetworkRole::Teacher), &recipe, device)?,
            // The last resort: the backbone that a run exports at its end carries no checksum.
            Err(error) => {
                let file = path.join(BACKBONE_FILE);
                if !file.is_file() {
                    return Err(error);
                }
                output::note(&format!("no checkpoint of this run can be read; taking {}", text::shown(&file)));
                of_run(&file, None, &recipe, device)?
            }
        }
    } else if let Some(run) = run_of_checkpoint(path) {
        // Verifies the checksum: a flipped bit would otherwise give wrong features without an error.
        Checkpoint::read(path).map_err(|source| CliError::Checkpoint { path: path.to_owned(), source })?;
        of_run(path, Some(NetworkRole::Teacher), &recipe::of_run(&RunReader::open(&run)?)?, device)?
    } else {
        let mut file = WeightsFile::open(path)?;
        let said = InputSpec::from_metadata(file.metadata());
        let options = LoadOptions { image: said.map(|input| input.size), ..Default::default() };
        let loaded = file.load_vit(&options, device)?;
        let input = said.unwrap_or(InputSpec::center(loaded.vit.config().image));
        Weights { loaded, input, path: path.to_owned() }
    };
    let report = &weights.loaded.report;
    // A checkpoint also holds the student, the heads and the optimiser's moments: not worth a list of left-overs.
    let found = match path.is_dir() && report.missing.is_empty() {
        true => format!("all {} tensors of the backbone ({})", report.matched, report.source()),
        false => report.to_string(),
    };
    output::note(&format!("weights: {}: {found}", text::shown(&weights.path)));
    Ok(weights)
}

/// Loads the backbone from a file of a run: of this role, or the file's only one where no role is named.
fn of_run(file: &Path, role: Option<NetworkRole>, recipe: &Recipe, device: &Device) -> Result<Weights, CliError> {
    let config = vit_config(recipe)?;
    let options = LoadOptions { role, image: Some(config.image), heads: Some(config.heads) };
    let loaded = WeightsFile::open(file)?.load_vit(&options, device)?;
    Ok(Weights { loaded, input: input_spec(recipe), path: file.to_owned() })
}

/// The newest checkpoint of a run whose checksum is right; damaged newer ones are reported.
fn newest_checkpoint(run: &RunReader) -> Result<Checkpoint, CliError> {
    let recovered = run.latest_checkpoint()?;
    for skipped in &recovered.skipped {
        output::note(&format!("{skipped}: taking the checkpoint before it"));
    }
    recovered.checkpoint.ok_or_else(|| CliError::NoCheckpoint { path: run.root().to_owned() })
}

/// The folder of the run that a file is a checkpoint of; none for any other file.
fn run_of_checkpoint(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    let run = absolute.parent()?.parent()?;
    let checkpoints = RunReader::open(run).ok()?.checkpoints().ok()?;
    let is_one = checkpoints.iter().any(|(_, file)| *file == absolute);
    is_one.then(|| run.to_owned())
}
