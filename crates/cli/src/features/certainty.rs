//! `features --certainty`: beside the feature of an image, how certain the network's head is of it.

use std::ops::ControlFlow;

use eval::certainty::{Certainty, Describer};
use eval::prototypes::PrototypeKind;
use eval::{EvalError, FeatureBatch, Features, Pooling};
use tensor::Device;

use crate::args::FeaturesArgs;
use crate::description::Description;
use crate::error::CliError;
use crate::eval::head::Head;
use crate::output;
use crate::weights::Weights;

/// The head, and where its numbers are computed.
pub struct Columns {
    head: Head,
    host: Device,
}

impl Columns {
    /// What was asked for; none where nothing was.
    pub fn asked(args: &FeaturesArgs, weights: &Weights, device: &Device) -> Result<Option<Self>, CliError> {
        let refuse = |why: &'static str| Err(CliError::NoCertainty { path: weights.path.clone(), why });
        if !args.certainty {
            let is_asked = args.head.prototypes.is_some() || args.head.tau.is_some();
            return if is_asked {
                refuse("--prototypes and --tau say how it is computed: give --certainty too")
            } else {
                Ok(None)
            };
        }
        if args.pooling.pooling() != Pooling::default() {
            return refuse(
                "a head takes class tokens of the last block, after the norm: leave --tokens, --layers and --norm out",
            );
        }
        let head = Head::load(weights, &args.head, device)?;
        if head.loaded.config.batch_norm {
            return refuse(
                "its head has batch norm, so that an image alone has none; --set head_batch_norm=false trains one without. \
                 `eval certainty` takes the statistics of the training images",
            );
        }
        if head.kind() == PrototypeKind::Plain {
            output::note(&format!(
                "prototypes {}: their lengths are no precision and they have no density; `entropy` alone is written",
                head.prototypes
            ));
        }
        Ok(Some(Self { head, host: args.inference.machine.host(device)? }))
    }

    /// Their names.
    pub fn names(&self) -> &'static [&'static str] {
        match self.head.kind() {
            PrototypeKind::Vmf => &["kappa", "entropy", "log_density"],
            PrototypeKind::Plain => &["entropy"],
        }
    }

    /// What a file says of them.
    pub fn description(&self) -> Description {
        let Head { prototypes, temperature, .. } = &self.head;
        vec![("certainty", format!("{} of prototypes {prototypes} at tau {temperature}", self.names().join(", ")))]
    }

    /// Makes them ready for images.
    pub fn numbers(&self) -> Result<Numbers<'_>, EvalError> {
        Ok(Numbers { dim: self.head.loaded.config.inputs, describer: self.head.describer()?, host: &self.host })
    }
}

/// The columns, ready for images: log-normalisers are exact, which takes its time, and are the same for every batch.
pub struct Numbers<'a> {
    dim: usize,
    describer: Describer<'a>,
    host: &'a Device,
}

impl Numbers<'_> {
    /// The numbers of a batch, those of an image one after another.
    pub fn of(&self, batch: FeatureBatch<'_>) -> Result<Vec<f64>, EvalError> {
        let mut features = Features { dim: self.dim, ..Default::default() };
        features.push(batch);
        let mut go_on = |_: usize, _: usize| ControlFlow::Continue(());
        let described = self.describer.describe(&features, self.host, &mut go_on)?;
        let numbers = |certainty: &Certainty| {
            let Certainty { kappa, entropy, log_density, .. } = *certainty;
            [kappa, Some(entropy), log_density].into_iter().flatten()
        };
        Ok(described.iter().flat_map(numbers).collect())
    }
}
