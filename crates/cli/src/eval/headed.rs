//! What `eval precision` and `eval certainty` have in common: labelled images, the head that assigns them, and the vote of
//! their neighbours.

use std::cell::RefCell;
use std::rc::Rc;

use eval::knn::{Vote, rightly, vote};
use eval::{Features, KnnOptions, Labelled, Place};
use serde_json::{Value, json};
use text::count;

use super::head::Head;
use super::sets::{self, Sets};
use super::shelf::Shelf;
use crate::args::{PrecisionArgs, PrecisionSettings, SetsArgs};
use crate::devices::Devices;
use crate::error::CliError;
use crate::output;
use crate::progress::Pass;
use crate::weights::Weights;

/// Labelled images, and the head of their network.
pub struct Headed<'a> {
    how: &'a PrecisionSettings,
    /// The images' features.
    pub sets: Sets,
    /// The head.
    pub head: Head,
    /// The network.
    pub weights: Rc<Weights>,
}

impl<'a> Headed<'a> {
    /// Opens them, checks what is asked for, and computes the features.
    pub fn open(args: &'a PrecisionArgs, shelf: &Shelf) -> Result<Self, CliError> {
        let how = &args.how;
        let (input, inference) = (how.input.clone(), how.inference.clone());
        // Of stored features the head alone is taken from the weights.
        let weights = args.data.as_ref().map(|_| args.weights.clone());
        let (data, train, test) = (args.data.clone(), args.train.clone(), args.test.clone());
        let wanted = SetsArgs { weights, data, train, test, input, inference };
        let opened = sets::open(&wanted, how.split, shelf)?;
        let is_leave_one_out = !opened.has_test();
        let options = KnnOptions { ks: vec![how.k as usize], temperature: how.temperature };
        options.check(opened.train_images().saturating_sub(usize::from(is_leave_one_out)))?;
        let device = opened.devices().1.clone();
        let weights = shelf.weights(&args.weights, &how.input.network, &device)?;
        let head = Head::load(&weights, &how.head, &device)?;
        if is_leave_one_out && how.split.is_none() {
            output::note("no images are held out: each is classified by all others (leave-one-out)");
        }
        let mut sets = opened.compute()?;
        if args.train.is_some() {
            sets.from = sets.from.by(&weights)?;
        }
        match &sets.test {
            Some(test) => _ = Labelled::both(&sets.train.features, &test.features)?,
            None => _ = Labelled::new(&sets.train.features, "training")?,
        }
        let headed = Self { how, sets, head, weights };
        let (images, bins) = (headed.judged().len(), how.bins as usize);
        if bins > images {
            output::note(&format!(
                "{} for {bins} ranges (--bins): each has a range of its own",
                count(images, "image")
            ));
        }
        Ok(headed)
    }

    /// The images that are judged.
    pub fn judged(&self) -> &Features {
        &self.sets.test.as_ref().unwrap_or(&self.sets.train).features
    }

    /// Where the network and its head compute.
    pub fn device(&self) -> &Devices {
        &self.sets.device
    }

    /// The vote on each of these images by the training images; of the judged ones, where none are given.
    pub fn votes(&self, of: Option<&Features>) -> Result<Vec<Vote>, CliError> {
        let test = of.or(self.sets.test.as_ref().map(|test| &test.features));
        let images = test.map_or(self.sets.train.features.len(), Features::len);
        let pass = RefCell::new(Pass::new("classified image", images));
        let tell = |done, total| _ = pass.borrow_mut().show(done, total);
        let place = Place::new(&self.sets.host, &self.sets.device).watched_by(&tell);
        Ok(vote(&self.sets.train.features, test, self.how.k as usize, self.how.temperature, place)?)
    }

    /// Whether the votes on the judged images are for their labels, and per cent of them that are.
    pub fn rightly(&self, votes: &[Vote]) -> Result<(Vec<bool>, f64), CliError> {
        let rightly = rightly(votes, self.judged())?;
        let top1 = 100.0 * rightly.iter().filter(|right| **right).count() as f64 / rightly.len() as f64;
        Ok((rightly, top1))
    }

    /// How images were judged, for a result.
    pub fn protocol(&self) -> &'static str {
        if self.sets.test.is_none() { "leave-one-out" } else { "held-out" }
    }

    /// The settings, for a result.
    pub fn settings(&self) -> Value {
        let mut settings = self.head.settings();
        settings["k"] = json!(self.how.k);
        settings["bins"] = json!(self.how.bins);
        settings["temperature"] = json!(self.how.temperature);
        settings
    }
}
