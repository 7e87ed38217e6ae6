//! `pretrain --init W` and `--adapt W`: the weights that a run begins with, and what its recipe takes over from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eval::Normalization;
use model::weights::{KeyLayout, LoadOptions};
use ssl::beginning::Beginning;
use ssl::recipe::{self, BUILT_IN, Begin, Centering, MethodName, RawRecipe};
use tensor::Device;
use train::run::{INITIAL_FILE, RunReader, is_run};

use crate::args::{NetworkArgs, PretrainArgs};
use crate::error::CliError;
use crate::output;
use crate::weights;

/// What was asked for with the network of the given weights, and the weights; as it is where none are given.
pub fn of(args: &PretrainArgs, asked: RawRecipe) -> Result<(RawRecipe, Option<Arc<Beginning>>), CliError> {
    let (begin, given) = match (&args.init, &args.adapt) {
        (Some(path), _) => (Begin::Init, path),
        (_, Some(path)) => (Begin::Adapt, path),
        _ => return without(args).map(|()| (asked, None)),
    };
    let source = source(given, args.out.as_deref());
    if source != *given {
        let (given, kept) = (text::shown(given), text::shown(&source));
        output::note(&format!("{given} is gone; taking {kept}, which the run has kept"));
    }
    let (heads, trained_size, positions) = (args.attention_heads, args.trained_size, asked.positions());
    let network = NetworkArgs { image_size: None, heads, trained_size, which: None, positions };
    let loaded = weights::load(&source, &network, &Device::cpu(Default::default())?)?;
    let config = loaded.loaded.vit.config();
    if config.arch().is_none() || config.mlp_dim != 4 * config.dim {
        let (dim, depth, heads, hidden) = (config.dim, config.depth, config.heads, config.mlp_dim);
        return Err(CliError::UnnamedNetwork { path: loaded.path, dim, depth, heads, hidden });
    }
    let options = LoadOptions {
        role: loaded.loaded.report.role,
        image: Some(config.image),
        heads: Some(config.heads),
        interpolation: Some(config.extras.interpolation),
        norm_epsilon: Some(config.extras.norm_epsilon),
    };
    let mut beginning = Beginning::read(&loaded.path, &options)?;
    let usual = Normalization::usual(config.channels);
    if loaded.normalization != usual {
        let Normalization { mean, deviation } = &loaded.normalization;
        output::note(&format!(
            "{}: was trained on pixels with mean {mean:?} and deviation {deviation:?}; the run has {:?} and {:?}. Its patch embedding \
             takes up the difference, so that it sees what it saw",
            text::shown(given),
            usual.mean,
            usual.deviation
        ));
        beginning = beginning.renormalized((mean, deviation), (&usual.mean, &usual.deviation));
    }
    if begin == Begin::Adapt {
        beginning = beginning.of_teacher();
    }
    if begin == Begin::Adapt || !has_same_centers(&source, &loaded.path, loaded.loaded.report.layout, &asked)? {
        beginning = beginning.without_centers();
    }
    let place = format!("--{begin} {}", text::shell(&given.to_string_lossy()));
    // The recipe of the built-in data, which nobody has asked for.
    let is_built_in = |place: &str| args.recipe.recipe.is_none() && place.starts_with(BUILT_IN);
    let mut asked = asked.beginning_with(begin, beginning.digest(), beginning.config(), &place, is_built_in)?;
    if begin == Begin::Init {
        match beginning.heads(asked.method() == MethodName::Msn) {
            Some(heads) => asked = asked.with_heads(&heads, &place, is_built_in)?,
            None => output::note(&format!(
                "{place}: has no heads of {}; new ones often ruin a backbone in their first steps. --adapt warms them up first",
                asked.method()
            )),
        }
    }
    Ok((asked, Some(Arc::new(beginning))))
}

/// Refuses what is said of given weights where there are none.
fn without(args: &PretrainArgs) -> Result<(), CliError> {
    let said = [("--attention-heads", args.attention_heads.is_some()), ("--trained-size", args.trained_size.is_some())];
    match said.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(CliError::OfNoWeights { flag }),
        None => Ok(()),
    }
}

/// Where the weights are. A run that has begun keeps them, and goes on when their file is gone.
pub fn source(given: &Path, out: Option<&Path>) -> PathBuf {
    let kept = out.map(|out| out.join(INITIAL_FILE)).filter(|kept| !given.exists() && kept.is_file());
    kept.unwrap_or_else(|| given.to_owned())
}

/// Whether centres in a file are means of what the run's are means of.
fn has_same_centers(source: &Path, file: &Path, layout: KeyLayout, asked: &RawRecipe) -> Result<bool, CliError> {
    let run = if is_run(source) { Some(source.to_owned()) } else { weights::run_of_checkpoint(source) };
    if let Some(run) = run {
        let begun = recipe::of_run(&RunReader::open(&run)?)?;
        return Ok((begun.centering(), begun.prototypes()) == (asked.centering(), asked.prototypes()));
    }
    Ok(match layout {
        // What a run keeps has been chosen by it.
        KeyLayout::Checkpoint => file.ends_with(INITIAL_FILE),
        _ => asked.centering() == Centering::Logit,
    })
}
