//! A backbone with a classifier, the gradient of both, and the optimiser. Knows neither data nor runs.

use model::{Classifier, ConfigError, DropPath, Layout, Tokens, Vit, VitConfig, VitInput};
use tensor::ops::{AdamW, Pixels};
use tensor::{Device, ParamId, ParamSet, Tensor};
use train::layers::layer_of;
use train::optimizer::{Clip, Optimizer, OptimizerOptions, StepValues, Treatment};
use train::reduce::{Reduce, Share, Wire};
use train::state::{SavedState, State, StateError};
use train::step::{self, StepReport, Trained};
use train::{NotFinite, StepError};

use super::loss::soft_cross_entropy;
use super::recipe::FineTuneRecipe;

/// The name of the classifier: with the backbone's own names, those of timm.
const HEAD: &str = "head";
/// What BEiT does not decay although it is no vector.
const TOKENS: [&str; 3] = ["cls_token", "pos_embed", "register_tokens"];

/// Everything that a step changes.
#[derive(Debug)]
pub struct Tuner {
    device: Device,
    layout: Layout,
    vit: Vit,
    classifier: Classifier,
    classes: usize,
    weights: ParamSet,
    gradient: ParamSet,
    optimizer: Optimizer,
    weight_decay: f64,
}

impl Tuner {
    /// A network whose weights are drawn, with a classifier for so many classes.
    pub fn new(
        device: &Device,
        config: VitConfig,
        classes: usize,
        recipe: &FineTuneRecipe,
    ) -> Result<Self, ConfigError> {
        let (dim, depth) = (config.dim, config.depth);
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", config.checked()?);
        let classifier = Classifier::new(&mut layout, HEAD, dim, classes);
        let mut weights = layout.initial(device, recipe.seed);
        if let Some(head) = layout.find(&format!("{HEAD}.weight")) {
            let scaled: Vec<f64> = weights[head].to_f64().iter().map(|w| w * recipe.head_scale).collect();
            weights[head].copy_from_f64(&scaled);
        }
        let treatments = layout.specs().iter().map(|spec| {
            let usual = Treatment::usual(spec);
            let is_token = TOKENS.contains(&spec.name.as_str());
            // The learning rate of layer i of L + 1 is multiplied by d^(L + 1 - i).
            let above = (depth + 1 - layer_of(&spec.name, depth).min(depth + 1)) as i32;
            Treatment {
                clip: Clip::No,
                decays: usual.decays && (recipe.decays_tokens() || !is_token),
                lr_factor: recipe.layer_decay.powi(above),
                ..usual
            }
        });
        let options = OptimizerOptions { adam: AdamW::default(), clip: 0.0, pull: 0.0 };
        let optimizer = Optimizer::new(&weights, treatments.collect(), options, Share::WHOLE);
        let (device, gradient, weight_decay) = (device.clone(), weights.zeros_like(), recipe.weight_decay);
        Ok(Self { device, layout, vit, classifier, classes, weights, gradient, optimizer, weight_decay })
    }

    /// Takes the values of parameters that a layout has under the same name and in the same shape; how many.
    pub fn begin_with(&mut self, layout: &Layout, weights: &ParamSet) -> usize {
        let mut taken = 0;
        for (i, spec) in self.layout.specs().iter().enumerate() {
            let found = layout.find(&spec.name).filter(|id| layout.specs()[id.0].shape == spec.shape);
            if let Some(id) = found {
                self.weights[ParamId(i)].copy_from_f64(&weights[id].to_f64());
                taken += 1;
            }
        }
        taken
    }

    /// The parameters by name: timm's.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Their values.
    pub fn weights(&self) -> &ParamSet {
        &self.weights
    }

    /// The gradient of the step.
    pub fn gradient(&self) -> &ParamSet {
        &self.gradient
    }

    /// The backbone.
    pub fn vit(&self) -> &Vit {
        &self.vit
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Logits [images, classes] of images, keeping nothing.
    pub fn logits(&self, images: &[Pixels<'_>]) -> Result<Tensor, ConfigError> {
        let features = self.vit.features(&self.weights, &self.device, images)?;
        Ok(self.classifier.forward(&self.weights, &features))
    }

    /// Begins a step: the gradient is zero.
    pub fn clear(&mut self) {
        self.gradient.clear();
    }

    /// Adds the gradient of `weight` times the summed cross-entropy of images against their targets [images, classes]; returns
    /// that loss.
    pub fn add_gradient(
        &mut self,
        images: &[Pixels<'_>],
        targets: &[f64],
        drop_path: Option<&DropPath>,
        weight: f64,
    ) -> Result<f64, StepError> {
        let input = VitInput { drop_path, ..VitInput::images(images) };
        let (features, saved) = self.vit.forward(&self.weights, &self.device, &input, Tokens::Class)?;
        let logits = self.classifier.forward(&self.weights, &features);
        // A few thousand numbers, which the host computes in f64 on any device.
        let (loss, d_logits) = soft_cross_entropy(&logits.to_f64(), targets, self.classes, weight);
        if !loss.is_finite() {
            // Zeros stand for results after a failure of the device, so its error is asked for first.
            self.device.check()?;
            return Err(NotFinite { term: "the loss".into() }.into());
        }
        let d_logits = self.device.from_f64(logits.shape(), &d_logits);
        let d_features = self.classifier.backward(&self.weights, &features, &d_logits, &mut self.gradient);
        self.vit.backward(&self.weights, saved, &d_features, &mut self.gradient);
        Ok(loss)
    }

    /// Ends a step: AdamW at this learning rate, on the gradient that has been added up.
    pub fn complete(
        &mut self,
        loss: Result<f64, StepError>,
        lr: f64,
        reduce: &mut dyn Reduce,
    ) -> Result<StepReport, StepError> {
        let Self { device, layout, weights, gradient, optimizer, weight_decay, .. } = self;
        let values = StepValues { lr, weight_decay: *weight_decay, momentum: 1.0, frozen: false, waiting_lr: 1.0 };
        let trained = Trained { layout, weights, gradient, teacher: None };
        step::complete(loss, trained, optimizer, &values, device, reduce, Wire::Exact)
    }

    /// Names what a checkpoint holds.
    pub fn save<'a>(&'a self, state: &mut State<'a>) {
        state.set("network", &self.layout, &self.weights);
        self.optimizer.save(&self.layout, state);
    }

    /// Restores what was saved.
    pub fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        saved.set("network", &self.layout, &mut self.weights)?;
        self.optimizer.restore(&self.layout, saved)
    }
}
