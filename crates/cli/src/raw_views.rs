//! `views --raw` and `--raw-images`: what a run is given, as bytes, for another program that is to do the same with it.
//!
//! The help of `views` has the form of the bytes. `tools/bench/engine.py` is such a program.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use data::Loader;
use eval::{EvalError, Pass, ReadOptions, prepared_images};
use model::weights;
use serde_json::{Value, json};
use ssl::branches::Branches;
use ssl::learner::{LearnError, Learner};
use ssl::method;
use ssl::recipe::{Begin, Recipe};
use ssl::setup::{learner_options, loader_config};
use ssl::view_plan::{ViewShape, Viewer};
use tensor::Device;

use crate::args::{SplitArg, ViewsArgs};
use crate::description;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::online_knn::input_spec;
use crate::output;
use crate::output_file::{self, Input, Kind};

/// The class of an image that has none.
const NO_CLASS: u32 = u32::MAX;

/// Writes what was asked for.
pub fn run(args: &ViewsArgs) -> Result<(), CliError> {
    if args.raw_images { write_images(args) } else { write_views(args) }
}

/// Writes the views of whole epochs.
fn write_views(args: &ViewsArgs) -> Result<(), CliError> {
    let place = args.initial.as_deref().map(|out| place_of_weights(out, args)).transpose()?;
    let asked = args.recipe.asked(None)?;
    let (source, facts) = args.recipe.data(&asked, SplitArg::Train)?;
    let recipe = args.recipe.resolve(asked, &facts, &[])?;
    let config = loader_config(&recipe);
    memory::check_bytes(config.memory(), memory::SMALLER_BATCHES)?;
    if let Some(place) = place {
        let written = files::replace_with(&place, &initial_weights(&recipe)?);
        written.map_err(|source| CliError::Initial { path: place, source })?;
    }
    let (epochs, batch) = (u64::from(args.raw.unwrap_or(1)), config.batch_size);
    let (views, branches) = (method::of(&recipe).views(), Branches::of(&recipe));
    let rows = views.seen_by(Viewer::Student).len() * batch;
    let group =
        |v: &ViewShape| json!({ "count": v.count, "height": v.height, "width": v.width, "channels": v.channels });
    let header = json!({
        "batch": batch, "batches": epochs * recipe.steps_per_epoch(),
        "groups": views.shapes(batch).iter().map(group).collect::<Vec<Value>>(),
        "branches": branches.blocks().map(|blocks| [rows, blocks, 2]),
    });
    let mut is_read = output::bytes(format!("{header}\n").as_bytes())?;
    let mut loader = Loader::start(source, config, 0, 0, epochs)?;
    while is_read && let Some(batch) = loader.next()? {
        for bad in &batch.substituted {
            output::note(&format!("skipped {}: {}", bad.name, bad.reason));
        }
        for group in &batch.groups {
            is_read = is_read && output::bytes(&group.pixels)?;
        }
        if let (Some(blocks), Some(taken)) = (branches.blocks(), branches.draw(&views, &batch.keys, batch.epoch)) {
            let of_row = |row| (0..2 * blocks).map(move |i| (row, i / 2, i % 2));
            let places = (0..rows).flat_map(of_row);
            let bytes: Vec<u8> = places.map(|(row, block, branch)| taken.takes(row, block, branch).into()).collect();
            is_read = is_read && output::bytes(&bytes)?;
        }
        loader.recycle(batch);
    }
    Ok(())
}

/// Where the initial weights go, if they may.
fn place_of_weights(out: &Path, args: &ViewsArgs) -> Result<PathBuf, CliError> {
    let data = Input::data(&args.recipe.data);
    output_file::check_outside(out, &data)?;
    let recipe = args.recipe.recipe.as_deref().map(|path| Input::file("--recipe", path));
    let inputs: Vec<Input> = recipe.into_iter().chain([data]).collect();
    Ok(output_file::check(out, Kind::Weights, false, &inputs)?)
}

/// The student, and so the teacher, before the first step, heads included.
fn initial_weights(recipe: &Recipe) -> Result<Vec<u8>, CliError> {
    if recipe.begin() != Begin::Drawn {
        return Err(CliError::NoBeginning { begin: recipe.begin() });
    }
    let (options, method) = (learner_options(recipe).map_err(LearnError::from)?, method::of(recipe));
    let device = Device::cpu(Default::default())?;
    let learner = Learner::new(&device, &options, |layout, vit, device| method.build(layout, vit, device))?;
    Ok(weights::to_safetensors(learner.layout(), &learner.student, "", description::of_recipe(recipe)?)?)
}

/// Writes the images of a split as an evaluation sees them.
fn write_images(args: &ViewsArgs) -> Result<(), CliError> {
    // Sizes follow from the training images, whichever are written.
    let (_, recipe) = args.recipe.open_for_views(SplitArg::Train)?;
    let source = images::open_chosen(&args.recipe.data, args.split)?;
    let preparation = input_spec(&recipe).preparation();
    let (height, width) = preparation.size();
    let (channels, orientation) = (recipe.channels(), recipe.orientation());
    let header = json!({ "images": source.len(), "height": height, "width": width, "channels": channels });
    if !output::bytes(format!("{header}\n").as_bytes())? {
        return Ok(());
    }
    let options = ReadOptions { channels, orientation, ..Default::default() };
    let mut written = Ok(true);
    let passed = prepared_images(&*source, &preparation, &options, |indices, pixels| {
        let mut bytes = Vec::with_capacity(pixels.len() + 4 * indices.len());
        for (&index, pixels) in indices.iter().zip(pixels.chunks_exact(height * width * channels)) {
            bytes.extend(source.label(index).unwrap_or(NO_CLASS).to_le_bytes());
            bytes.extend(pixels);
        }
        written = output::bytes(&bytes);
        if matches!(written, Ok(true)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written?;
    match passed {
        // Who read it has read enough.
        Err(EvalError::Stopped) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(Pass { skipped, .. }) => {
            skipped.iter().for_each(|bad| output::note(&format!("skipped {}: {}", bad.name, bad.reason)));
            Ok(())
        }
    }
}
