//! What protocols that follow each other share: the network, and features of images that were computed already.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use data::{OpenError, Source};
use eval::{FeatureTokens, Network, Pooling, after_norm};
use tensor::Device;

use super::sets::Set;
use crate::args::{NetworkArgs, SplitArg};
use crate::error::CliError;
use crate::features::{Wanted, extract_seen};
use crate::images;
use crate::weights::{self, Weights};

/// Images, shared by whoever looks at them.
type Images = Arc<dyn Source>;

/// What tells features from others on one shelf.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    weights: String,
    images: u64,
    seen: String,
    pooling: Pooling,
}

/// Keeps the last network alone by default: a single protocol computes what it needs, and lets go of it.
#[derive(Default)]
pub struct Shelf {
    keeps: bool,
    weights: RefCell<Option<(String, Rc<Weights>)>>,
    images: RefCell<Vec<((String, SplitArg), Images)>>,
    sets: RefCell<Vec<(Key, Rc<Set>)>>,
}

impl Shelf {
    /// One that keeps all features too, for the protocols to come.
    pub fn keeping() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    /// The network of this file, which is loaded once.
    pub fn weights(&self, path: &Path, asked: &NetworkArgs, device: &Device) -> Result<Rc<Weights>, CliError> {
        let key = format!("{} {asked:?}", path.display());
        if let Some((_, weights)) = self.weights.borrow().as_ref().filter(|(there, _)| *there == key) {
            return Ok(Rc::clone(weights));
        }
        let weights = Rc::new(weights::load(path, asked, device)?);
        *self.weights.borrow_mut() = Some((key, Rc::clone(&weights)));
        Ok(weights)
    }

    /// Images, which are looked for once.
    pub fn images(&self, spec: &str, split: SplitArg) -> Result<Images, OpenError> {
        let key = (spec.to_owned(), split);
        if let Some((_, source)) = self.images.borrow().iter().find(|(there, _)| *there == key) {
            return Ok(Arc::clone(source));
        }
        let source = images::open_chosen(spec, split)?;
        if self.keeps {
            self.images.borrow_mut().push((key, Arc::clone(&source)));
        }
        Ok(source)
    }

    /// Training images, and the held-out ones where there are any.
    pub fn both(&self, spec: &str) -> Result<(Images, Option<Images>), OpenError> {
        let train = self.images(spec, SplitArg::Train)?;
        match self.images(spec, SplitArg::Test) {
            Ok(test) => Ok((train, Some(test))),
            Err(OpenError::NoTestSplit { .. }) => Ok((train, None)),
            Err(error) => Err(error),
        }
    }

    /// Images that are only looked at: of data with held-out images those.
    pub fn judged(&self, spec: &str) -> Result<Images, OpenError> {
        let (train, test) = self.both(spec)?;
        Ok(test.unwrap_or(train))
    }

    /// The features of a source, which are computed once.
    pub fn set(&self, wanted: &Wanted<'_>, source: &dyn Source, pooling: Pooling) -> Result<Rc<Set>, CliError> {
        if !self.keeps {
            return Ok(Rc::new(computed(wanted, source, pooling)?));
        }
        let key = Key {
            weights: wanted.weights.path.display().to_string(),
            images: source.fingerprint(),
            seen: format!(
                "{:?} {:?}",
                wanted.seen.with_size(wanted.input.network.image_size),
                wanted.input.orientation
            ),
            pooling,
        };
        if let Some(set) = self.found(&key) {
            return Ok(set);
        }
        // The class token before the norm gives the one after it: one pass over the images for both.
        let is_class = pooling.tokens == FeatureTokens::Class && pooling.layers == 1;
        if !is_class {
            return Ok(self.keep(key, computed(wanted, source, pooling)?));
        }
        let before = computed(wanted, source, Pooling { norm: false, ..pooling })?;
        let network = Network::new(&wanted.weights.loaded.vit, &wanted.weights.loaded.weights, wanted.device);
        let after = Set { features: after_norm(network, &before.features)?, ..before.like() };
        let of = |norm| Key { pooling: Pooling { norm, ..pooling }, ..key.clone() };
        let (before, after) = (self.keep(of(false), before), self.keep(of(true), after));
        Ok(if pooling.norm { after } else { before })
    }

    fn found(&self, key: &Key) -> Option<Rc<Set>> {
        self.sets.borrow().iter().find(|(there, _)| there == key).map(|(_, set)| Rc::clone(set))
    }

    fn keep(&self, key: Key, set: Set) -> Rc<Set> {
        let set = Rc::new(set);
        self.sets.borrow_mut().push((key, Rc::clone(&set)));
        set
    }
}

fn computed(wanted: &Wanted<'_>, source: &dyn Source, pooling: Pooling) -> Result<Set, CliError> {
    let extraction = extract_seen(wanted, source, pooling)?;
    let (features, skipped) = (extraction.features, extraction.skipped.len());
    let names = features.indices.iter().map(|&index| source.name(index)).collect();
    Ok(Set { features, names, class_names: source.class_names().to_vec(), skipped })
}
