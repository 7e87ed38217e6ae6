//! Loads `W` of the command line: a run folder, a checkpoint, or a file or folder of another program.

mod error;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use eval::finetune::is_fine_tuning;
use eval::{InputSpec, Normalization};
use model::weights::{
    HeadsFrom, LoadOptions, LoadedVit, NetworkRole, POSITION_RULES, Packing, WeightsError, WeightsFile,
};
use ssl::recipe::{self, Recipe};
use ssl::setup::vit_config;
use tensor::Device;
use train::run::{BACKBONE_FILE, Checkpoint, Damage, INITIAL_FILE, RunError, RunReader, RunResult, is_run};

use crate::args::NetworkArgs;
use crate::description;
use crate::error::CliError;
use crate::online_knn::input_spec;
use crate::output;

pub use error::GivenWeightsError;

/// A backbone and the input that it was trained for.
#[derive(Debug)]
pub struct Weights {
    /// The network with its parameters.
    pub loaded: LoadedVit,
    /// What it sees of an image.
    pub input: InputSpec,
    /// How it sees a pixel.
    pub normalization: Normalization,
    /// The file that it was read from.
    pub path: PathBuf,
    /// What is said of it beside its tensors.
    pub said: BTreeMap<String, String>,
}

/// Loads `W`, and says nothing of the tensors in it.
pub fn load_quietly(path: &Path, asked: &NetworkArgs, device: &Device) -> Result<Weights, CliError> {
    if let Some(run) = fine_tuned(path) {
        let file = run.join(BACKBONE_FILE);
        // Written when the run stops or ends.
        if !file.is_file() {
            return Err(GivenWeightsError::NoCheckpoint { path: run }.into());
        }
        refuse_damaged_backbone(&file)?;
        of_file(&file, asked, device)
    } else if is_of_run(path) {
        of_folder(path, asked, device)
    } else if let Some(run) = run_of_checkpoint(path) {
        if fine_tuned(&run).is_some() {
            return Err(CliError::OfFineTuning { path: path.to_owned(), weights: run.join(BACKBONE_FILE) });
        }
        // Verifies the checksum: a flipped bit would otherwise give wrong features without an error. So would the recipe of
        // this run with the weights of another one.
        let run = RunReader::open(&run)?;
        let checkpoint = run.checkpoint(path)?;
        let checkpoint =
            checkpoint.map_err(|source| GivenWeightsError::Checkpoint { path: path.to_owned(), source })?;
        of_checkpoint(checkpoint, &recipe::of_run(&run)?, asked, device)
    } else {
        refuse_damaged_backbone(path)?;
        of_file(path, asked, device).map_err(|error| or_its_runs(path, error))
    }
}

/// Which runs a folder holds, where it holds no weights.
pub fn or_its_runs(path: &Path, error: CliError) -> CliError {
    match (&error, RunReader::open(path)) {
        (CliError::Weights(WeightsError::NoWeights { .. }), Err(of_runs @ RunError::HoldsRuns { .. })) => {
            of_runs.into()
        }
        _ => error,
    }
}

/// The size of the images that a network was trained with: an error where somebody says another one than is known.
pub fn trained_size(
    path: &Path,
    given: Option<(usize, usize)>,
    known: Option<(usize, usize)>,
) -> Result<Option<(usize, usize)>, WeightsError> {
    match (given, known) {
        (Some((height, width)), Some(known)) if (height, width) != known => Err(WeightsError::Metadata {
            path: path.to_owned(),
            key: "image_size",
            value: format!("{}x{}", known.0, known.1),
            problem: format!("--trained-size is {height}x{width}: leave that out"),
        }),
        _ => Ok(given.or(known)),
    }
}

/// Loads `W`, and reports on standard error which tensors matched.
pub fn load(path: &Path, asked: &NetworkArgs, device: &Device) -> Result<Weights, CliError> {
    let weights = load_quietly(path, asked, device)?;
    let report = &weights.loaded.report;
    // A checkpoint also holds the student, the heads and the optimiser's moments: not worth a list of left-overs.
    let found = match is_of_run(path) && report.missing.is_empty() {
        true => format!("all {} tensors of the backbone ({})", report.matched, report.source()),
        false => report.to_string(),
    };
    output::note(&format!("weights: {}: {found}", text::shown(&weights.path)));
    if let Some(HeadsFrom::Known(name)) = report.heads_from {
        output::note(&format!(
            "weights: the file does not say how many attention heads it has; taking {}, as every {name} of DINO and timm \
             has. --attention-heads N says otherwise",
            weights.loaded.vit.config().heads
        ));
    }
    if let Some(grid) = report.grid_taken {
        output::note(&format!("weights: {}", grid_taken(grid)));
    }
    if let Some(unseen) = asked.image_size.and_then(|size| unseen_border(size, weights.loaded.vit.config().patch)) {
        output::note(&format!("warning: {unseen}"));
    }
    Ok(weights)
}

/// What is said where a file does not say which grid its positions are of, and a square one fits.
pub fn grid_taken((rows, columns): (usize, usize)) -> String {
    format!(
        "the file does not say which grid its {} positions are of; taking {rows}x{columns} patches, without a position of the class \
         token. Of an oblong grid with one, --trained-size HxW says the size of the images",
        rows * columns
    )
}

/// Whether a folder is a run, or one in a run, which is an error that leads to the run. Other folders may hold weights.
pub fn is_of_run(path: &Path) -> bool {
    let in_run = || std::path::absolute(path).is_ok_and(|path| path.parent().is_some_and(is_run));
    path.is_dir() && (is_run(path) || in_run())
}

/// The folder itself, where it is the run of a fine-tuning.
pub fn fine_tuned(path: &Path) -> Option<PathBuf> {
    let (config, _) = RunReader::open(path).ok()?.config().ok()?;
    is_fine_tuning(&config).then(|| path.to_owned())
}

/// What of an input of this size the network does not see, because it does not fill a patch.
fn unseen_border((height, width): (usize, usize), patch: usize) -> Option<String> {
    let (rows, columns) = (height % patch, width % patch);
    (rows + columns > 0).then(|| {
        format!(
            "--image-size {height}x{width} is no multiple of the network's patches of {patch} pixels: the last {rows} rows and \
             {columns} columns are not seen"
        )
    })
}

/// Loads the teacher of a run.
fn of_folder(path: &Path, asked: &NetworkArgs, device: &Device) -> Result<Weights, CliError> {
    let run = RunReader::open(path)?;
    let (recipe, file) = (recipe::of_run(&run)?, path.join(BACKBONE_FILE));
    // What it had learnt is in the weights that it has handed over, and no longer in its newest checkpoint.
    if let Some(step) = healthy_step(&run, &recipe) {
        output::note(&format!("this run collapsed; taking {}, of step {step}", text::shown(&file)));
        return of_run(&file, (None, step), &recipe, asked, device);
    }
    match newest_checkpoint(&run, &recipe) {
        Ok(checkpoint) => of_checkpoint(checkpoint, &recipe, asked, device),
        // The last resort: the backbone that a finished run has exported, if it is what was written.
        Err(error) => {
            let result = run.result(recipe.total_steps());
            // Earlier versions kept no checksum of it.
            let is_sound = |result: RunResult| result.backbone.is_none() || run.has_backbone_of(&result);
            if !file.is_file() || !result.is_some_and(is_sound) {
                return Err(error);
            }
            output::note(&format!("no checkpoint of this run can be read; taking {}", text::shown(&file)));
            of_run(&file, (None, recipe.total_steps()), &recipe, asked, device)
        }
    }
}

/// The step of the weights that a run which collapsed has handed over, from before; none of any other run.
fn healthy_step(run: &RunReader, recipe: &Recipe) -> Option<u64> {
    let result = run.result(recipe.total_steps()).filter(|result| run.has_backbone_of(result))?;
    result.collapsed?.healthy
}

/// Loads the teacher of a run's checkpoint, whose settings must be those that it was trained with.
fn of_checkpoint(
    checkpoint: Checkpoint,
    recipe: &Recipe,
    asked: &NetworkArgs,
    device: &Device,
) -> Result<Weights, CliError> {
    let (path, step) = (checkpoint.path().to_owned(), checkpoint.step());
    let said = description::of_checkpoint(checkpoint.state()).unwrap_or_default();
    if let Some((key, said, now)) = description::difference(&said, recipe)? {
        return Err(GivenWeightsError::ChangedSettings { path, key, said, now }.into());
    }
    // It holds the whole file, which is five networks and more.
    drop(checkpoint);
    of_run(&path, (Some(asked.which.unwrap_or(NetworkRole::Teacher)), step), recipe, asked, device)
}

/// Loads the backbone from a file of a run: of this role, or the file's only one where no role is named; and of this step.
fn of_run(
    file: &Path,
    (role, step): (Option<NetworkRole>, u64),
    recipe: &Recipe,
    asked: &NetworkArgs,
    device: &Device,
) -> Result<Weights, CliError> {
    let config = vit_config(recipe)?;
    if role.is_none() && asked.which == Some(NetworkRole::Student) {
        let (wanted, other) = (NetworkRole::Student, Some(NetworkRole::Teacher));
        return Err(WeightsError::NoSuchNetwork { path: file.to_owned(), wanted, other }.into());
    }
    if let Some(given) = asked.heads.map(|heads| heads as usize).filter(|&given| given != config.heads) {
        return Err(WeightsError::OtherHeads { path: file.to_owned(), given, said: config.heads }.into());
    }
    let options = LoadOptions {
        role,
        image: trained_size(file, asked.trained_size, Some(config.image))?,
        heads: Some(config.heads),
        interpolation: Some(asked.positions.unwrap_or(config.extras.interpolation)),
        norm_epsilon: Some(config.extras.norm_epsilon),
    };
    let loaded = WeightsFile::open(file)?.load_vit(&options, device)?;
    let said = description::of_network_of_run(recipe, loaded.report.role)?;
    let said = said.into_iter().chain(description::unfinished(step, recipe.total_steps()));
    let said = said.map(|(key, value)| (key.to_owned(), value)).collect();
    let normalization = Normalization::usual(config.channels);
    Ok(Weights { loaded, input: input_spec(recipe), normalization, path: file.to_owned(), said })
}

/// Loads the backbone from a file that is in no run, by what the file says of itself.
fn of_file(path: &Path, asked: &NetworkArgs, device: &Device) -> Result<Weights, CliError> {
    let mut file = WeightsFile::open(path)?;
    if file.metadata().get("format").is_some_and(|format| format == eval::FEATURES_FORMAT) {
        return Err(GivenWeightsError::FeaturesAsWeights { path: path.to_owned() }.into());
    }
    let damage = |source| GivenWeightsError::Checkpoint { path: path.to_owned(), source };
    let (said, is_checkpoint) = match Checkpoint::read(file.path()) {
        _ if file.packing() != Packing::Safetensors => (file.metadata().clone(), false),
        Ok(checkpoint) => {
            let mut said = description::of_checkpoint(checkpoint.state()).unwrap_or_default();
            // How many steps there are to be is the run's to say.
            said.insert(description::STEP.to_owned(), checkpoint.step().to_string());
            (said, true)
        }
        // A safetensors file that is no checkpoint.
        Err(Damage::Foreign(_)) => (file.metadata().clone(), false),
        Err(other) => return Err(damage(other).into()),
    };
    let failed = |source| GivenWeightsError::Described { path: path.to_owned(), source };
    let input = InputSpec::from_metadata(&said).map_err(failed)?;
    let heads = asked.heads.map(|heads| heads as usize);
    // A checkpoint's own description is not where the loader looks for it.
    let of_checkpoint = is_checkpoint.then(|| said.get("heads")?.parse().ok()).flatten();
    let rule_said = || POSITION_RULES.iter().find(|(name, _)| said.get("positions").is_some_and(|said| said == name));
    let positions = is_checkpoint.then(rule_said).flatten().map(|(_, rule)| *rule);
    let norm_epsilon = is_checkpoint.then(|| said.get("norm_epsilon")?.parse().ok()).flatten();
    if let (Some(given), Some(said)) = (heads, of_checkpoint.filter(|&said| Some(said) != heads)) {
        return Err(WeightsError::OtherHeads { path: path.to_owned(), given, said }.into());
    }
    let mut options = LoadOptions {
        role: asked.which,
        image: trained_size(path, asked.trained_size, input.map(|input| input.size))?,
        heads: heads.or(of_checkpoint),
        interpolation: asked.positions.or(positions),
        norm_epsilon,
    };
    // Where nothing says which grid the positions are for, the size that is asked for may: nothing else is known.
    let is_unknown_grid = |error: &WeightsError| matches!(error, WeightsError::Grid { .. });
    if options.image.is_none() && file.vit_config(&options).is_err_and(|error| is_unknown_grid(&error)) {
        options.image = asked.image_size;
    }
    let loaded = file.load_vit(&options, device)?;
    let config = loaded.vit.config();
    let normalization = Normalization::from_metadata(&said, config.channels).map_err(failed)?;
    let normalization = normalization.unwrap_or_else(|| {
        let usual = Normalization::usual(config.channels);
        // A run's own files see what every run sees.
        if !is_checkpoint && !file.path().ends_with(BACKBONE_FILE) && !file.path().ends_with(INITIAL_FILE) {
            output::note(&format!(
                "weights: nothing says how its pixels are normalised; taking mean {:?} and deviation {:?}, as DINO has them. Files of \
                 timm and Hugging Face say it beside the weights (config.json, preprocessor_config.json)",
                usual.mean, usual.deviation
            ));
        }
        usual
    });
    if is_checkpoint && input.is_none() {
        output::note(
            "weights: this checkpoint is away from its run and does not say what it saw of an image; taking the centre, \
             as of photographs. Beside its config.toml, in checkpoints/, it is read as in its run",
        );
    }
    let input = input.unwrap_or(InputSpec::center(config.image));
    Ok(Weights { loaded, input, normalization, path: file.path().to_owned(), said })
}

/// An error for the backbone of a finished run that is not what the run wrote. Other files carry no checksum.
fn refuse_damaged_backbone(path: &Path) -> Result<(), CliError> {
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    let run = folder.filter(|_| path.ends_with(BACKBONE_FILE)).and_then(|folder| RunReader::open(&folder).ok());
    let Some(run) = run else { return Ok(()) };
    let result = RunResult::read(run.root());
    match result.is_some_and(|result| result.backbone.is_some() && path.is_file() && !run.has_backbone_of(&result)) {
        true => Err(GivenWeightsError::DamagedBackbone { path: path.to_owned() }.into()),
        false => Ok(()),
    }
}

/// The newest checkpoint of a run whose checksum is right; damaged newer ones are reported, and of which step it is then.
fn newest_checkpoint(run: &RunReader, recipe: &Recipe) -> Result<Checkpoint, CliError> {
    let recovered = run.latest_checkpoint()?;
    recovered.skipped.iter().for_each(|skipped| output::note(&format!("warning: {skipped}")));
    if let Some(older) = recovered.checkpoint.as_ref().filter(|_| !recovered.skipped.is_empty()) {
        let (step, total) = (older.step(), recipe.total_steps());
        let backbone = run.root().join(BACKBONE_FILE);
        let sound = run.result(total).is_some_and(|result| run.has_backbone_of(&result));
        let instead = match sound {
            true => format!("; the backbone of the last step, without a head, is {}", text::shown(&backbone)),
            false => String::new(),
        };
        output::note(&format!("warning: taking the checkpoint before it, of step {step} of {total}{instead}"));
    }
    let path = || run.root().to_owned();
    let missing = || match run.last_saved() {
        Some(step) => GivenWeightsError::CheckpointsGone { path: path(), step },
        None => GivenWeightsError::NoCheckpoint { path: path() },
    };
    Ok(recovered.checkpoint.ok_or_else(missing)?)
}

/// The folder of the run that a file is a checkpoint of; none for any other file.
pub fn run_of_checkpoint(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    let run = absolute.parent()?.parent()?;
    let checkpoints = RunReader::open(run).ok()?.checkpoints().ok()?;
    let is_one = checkpoints.iter().any(|(_, file)| *file == absolute);
    is_one.then(|| run.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_that_fills_no_patch_is_told_of() {
        assert_eq!(unseen_border((48, 64), 8), None);
        let said = unseen_border((50, 64), 8).unwrap();
        assert!(said.starts_with("--image-size 50x64 is no multiple of the network's patches of 8 pixels"), "{said}");
        assert!(said.ends_with("the last 2 rows and 0 columns are not seen"), "{said}");
    }
}
