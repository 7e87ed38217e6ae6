//! Features of a run's images that were computed before, and are held to be just that.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use data::{Source, Split};

use super::material::{Data, Set};
use crate::description;
use crate::error::CliError;
use crate::weights::Weights;

/// Reads features, which must be of this network and of the training or the held-out images.
pub fn read(path: &Path, weights: &Weights, data: &Data) -> Result<(Split, Set), CliError> {
    let wrong = |what: String| CliError::OtherFeatures { path: path.to_owned(), what };
    let stored = eval::stored::read(path).map_err(|error| wrong(error.to_string()))?;
    let said = |key: &str| stored.metadata.get(key).map(String::as_str);
    if said("weights_hash") != Some(description::weights_digest(weights).as_str()) {
        let again = "`dino-vmf features --weights RUN` makes those that are";
        return Err(wrong(format!("these features are not of the run's newest weights; {again}")));
    }
    let width = weights.loaded.vit.config().dim;
    if stored.features.dim != width || said("tokens").is_some_and(|tokens| tokens != "class") {
        return Err(wrong(
            "these features are not of class tokens, which is what `features` takes by itself".to_owned(),
        ));
    }
    let is_of = |source: &Arc<dyn Source>| {
        let known = description::of_data(&**source);
        known.iter().all(|(key, value)| said(key) == Some(value))
    };
    let (split, source) = match &data.held_out {
        _ if is_of(&data.train) => (Split::Train, &data.train),
        Some(held_out) if is_of(held_out) => (Split::Test, held_out),
        _ => {
            let what = "these features are neither of the run's training images nor of its held-out ones";
            return Err(wrong(format!("{what}, as they are now")));
        }
    };
    let mut features = stored.features;
    features.indices = indices(&**source, &stored.names)
        .ok_or_else(|| wrong("it names images that the data does not have".to_owned()))?;
    if features.indices.len() * features.dim != features.values.len() {
        return Err(wrong("it does not name the images of its rows".to_owned()));
    }
    Ok((split, Set { source: source.clone(), features }))
}

/// The numbers of images by their names: all of them in order, most often, or all but some that could not be read.
fn indices(source: &dyn Source, names: &[String]) -> Option<Vec<usize>> {
    if names.len() == source.len() && names.iter().enumerate().all(|(index, name)| *name == source.name(index)) {
        return Some((0..names.len()).collect());
    }
    let known: HashMap<String, usize> = (0..source.len()).map(|index| (source.name(index), index)).collect();
    names.iter().map(|name| known.get(name).copied()).collect()
}
