//! What a loss has beside its cross-entropy that is a function of the prototypes alone: KoLeo on their directions, and a prior
//! on their concentrations.

use model::PrototypeLayer;
use tensor::ParamSet;
use train::run::Record;

use crate::koleo::Koleo;
use crate::lengths::{KappaPrior, LengthOptions};

/// Both parts, of which either may be absent.
#[derive(Debug)]
pub struct Penalty {
    koleo: Koleo,
    prior: Option<KappaPrior>,
    /// The prior's part of the last step's loss.
    prior_loss: f64,
}

impl Penalty {
    /// With this weight of KoLeo, and the prior of these lengths.
    pub fn new(koleo_weight: f64, lengths: &LengthOptions) -> Self {
        Self { koleo: Koleo::new(koleo_weight), prior: lengths.prior, prior_loss: 0.0 }
    }

    /// Forgets the step before.
    pub fn start_step(&mut self) {
        self.koleo.start_step();
    }

    /// Adds the `share` of a part of a step to the gradient of these prototypes; its share of the loss. Both are the same for
    /// every part, and the shares of all add up to one.
    pub fn add_gradient(
        &mut self,
        of: &PrototypeLayer,
        student: &ParamSet,
        share: f64,
        gradient: &mut ParamSet,
    ) -> f64 {
        let koleo = self.koleo.add_gradient(of, student, share, gradient);
        let of_prior = |prior: KappaPrior| prior.add_gradient(of, student, share, gradient);
        self.prior_loss = self.prior.map_or(0.0, of_prior);
        koleo + share * self.prior_loss
    }

    /// Its part of the last step's loss.
    pub fn loss(&self) -> f64 {
        self.koleo.loss() + self.prior_loss
    }

    /// Whether it has a part in the loss.
    pub fn is_part(&self) -> bool {
        self.koleo.is_part() || self.prior.is_some()
    }

    /// Adds its numbers to a record of the log, where they are in use; `of` stands before their names.
    pub fn add_to(&self, record: Record, of: &str) -> Record {
        let record = self.koleo.add_to(record, &format!("{of}koleo"));
        match self.prior {
            Some(_) => record.number(&format!("{of}kappa_prior"), self.prior_loss),
            None => record,
        }
    }
}
