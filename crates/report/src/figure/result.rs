//! Numbers out of the result of an evaluation, which may come from a file and hold anything.

use serde_json::Value;

/// A result that does not hold what a figure draws.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{what}` is missing in it, or not what an evaluation writes there")]
pub struct Malformed {
    /// What is missing.
    pub what: &'static str,
}

/// What comes out of a result.
pub type Result<T> = std::result::Result<T, Malformed>;

/// A count.
pub(super) fn whole(value: &Value, what: &'static str) -> Result<u64> {
    value.as_u64().ok_or(Malformed { what })
}

/// A finite number.
pub(super) fn number(value: &Value, what: &'static str) -> Result<f64> {
    value.as_f64().filter(|x| x.is_finite()).ok_or(Malformed { what })
}
