//! What the file of a head does not say.

use clap::{Args, ValueEnum};

use crate::args::above_zero;

/// How the prototypes of a head are used.
#[derive(Clone, Debug, Default, Args)]
pub struct HeadArgs {
    /// What the lengths of prototypes mean [default: what the run says; none for other files]
    #[arg(long, value_enum, value_name = "none|l2|vmf", hide_possible_values = true)]
    pub prototypes: Option<PrototypesArg>,
    /// The temperature tau of logits [default: the last one of the run's teacher; 0.07 for other files]
    #[arg(long, value_name = "TAU", value_parser = above_zero)]
    pub tau: Option<f64>,
}

/// A kind of prototypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrototypesArg {
    /// Factors of the logits.
    None,
    /// Unit length.
    L2,
    /// Concentrations of von Mises-Fisher components.
    Vmf,
}
