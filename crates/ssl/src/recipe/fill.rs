//! What was given for a key, or else its default or what a rule derives, with where it came from.

use super::explain::Origin;
use super::fields::{Given, Sourced};

/// A key of a recipe that may be missing.
pub(super) trait Fill<T> {
    /// What was given, or the usual value.
    fn or_default(self, value: T) -> Sourced<T>;
    /// What was given, or what a rule says, with its reason.
    fn or_derive(self, rule: impl FnOnce() -> (T, String)) -> Sourced<T>;
    /// What was given, or the usual value unless this case is special for a reason.
    fn or_usual(self, usual: T, special: Option<(T, String)>) -> Sourced<T>;
}

impl<T> Fill<T> for Option<Given<T>> {
    fn or_default(self, value: T) -> Sourced<T> {
        match self {
            Some(Given { value, place }) => Sourced { value, origin: Origin::Given(place) },
            None => Sourced { value, origin: Origin::Default },
        }
    }

    fn or_derive(self, rule: impl FnOnce() -> (T, String)) -> Sourced<T> {
        match self {
            Some(Given { value, place }) => Sourced { value, origin: Origin::Given(place) },
            None => {
                let (value, reason) = rule();
                Sourced { value, origin: Origin::Derived(reason) }
            }
        }
    }

    fn or_usual(self, usual: T, special: Option<(T, String)>) -> Sourced<T> {
        match special {
            Some(special) => self.or_derive(|| special),
            None => self.or_default(usual),
        }
    }
}
