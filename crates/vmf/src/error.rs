//! What can be wrong with the arguments of this crate.

/// An argument outside the domain of the distribution.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The sphere of R^1 is two points; there is no density on it.
    #[error("a von Mises-Fisher distribution needs at least 2 dimensions, not {p}")]
    Dimension {
        /// The dimension asked for.
        p: usize,
    },
    /// The one-term expansion of Eq. (5) is asymptotic in the dimension.
    #[error(
        "p = {p} is too small for the one-term log-normaliser of the paper, which is offered from p = {minimum} on: choose a \
         larger dimension"
    )]
    DimensionForApproximation {
        /// The dimension asked for.
        p: usize,
        /// The smallest dimension the approximation is offered for.
        minimum: usize,
    },
    /// A concentration that is negative, infinite or not a number.
    #[error(
        "kappa = {kappa}: the concentration must be finite and at least 0 (to point the other way, negate the mean)"
    )]
    Concentration {
        /// The concentration given.
        kappa: f64,
    },
    /// A mean direction, prototype or sample without a direction.
    #[error("row {row} has length {length}, so it has no direction; it must be finite and not zero")]
    NoDirection {
        /// Which vector, counted from 0; 0 where there is only one.
        row: usize,
        /// Its Euclidean length.
        length: f64,
    },
    /// A point in another space than the distribution's.
    #[error("a vector of {found} numbers was given to a distribution on the sphere of R^{expected}")]
    Length {
        /// The distribution's dimension.
        expected: usize,
        /// The length of the vector given.
        found: usize,
    },
    /// The density lives on the sphere only.
    #[error("a vector of length {length} is not on the unit sphere; divide it by its length first")]
    NotUnit {
        /// Its Euclidean length.
        length: f64,
    },
    /// A mean resultant length that no concentration has.
    #[error("mean resultant length {length}: it must be at least 0 and below 1 (1 means infinite concentration)")]
    ResultantLength {
        /// The value given.
        length: f64,
    },
    /// Samples that are not a whole number of rows, or none.
    #[error("{numbers} numbers are not one or more samples of {p} dimensions")]
    Samples {
        /// How many numbers were given.
        numbers: usize,
        /// The dimension of a sample.
        p: usize,
    },
    /// Samples whose mean is exactly zero.
    #[error("the {samples} samples cancel to a zero mean, so every direction fits them equally well")]
    NoMeanDirection {
        /// How many samples there were.
        samples: usize,
    },
    /// Samples that are all one direction.
    #[error(
        "the {samples} samples all point the same way, so the likelihood grows with kappa without end; add samples"
    )]
    OneDirection {
        /// How many samples there were.
        samples: usize,
    },
    /// Mixture parameters, or a row of cosines, whose lengths differ.
    #[error("a mixture of {components} components was given {found} {what}")]
    MixtureLength {
        /// The number of components.
        components: usize,
        /// What was given in the wrong number.
        what: &'static str,
        /// How many of it.
        found: usize,
    },
    /// A mixture that gives no component any probability.
    #[error("the mixture has no component with a finite log weight and log normaliser")]
    EmptyMixture,
    /// More components than points, or none.
    #[error("{components} components for {points} points: a mixture has at least 1 and no more than there are points")]
    Components {
        /// Components asked for.
        components: usize,
        /// Points there are.
        points: usize,
    },
    /// A setting of a fit outside its range.
    #[error("{setting} = {value}: expected {expected}")]
    FitSetting {
        /// Its name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}
