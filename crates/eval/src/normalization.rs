//! What is subtracted from a pixel's channels and what they are divided by, before a network sees them.
//!
//! Networks of this program have the usual values for their number of channels. A file may say others, as those of some
//! other programs do, and is then read with these.

use std::collections::BTreeMap;

use data::normalization;

use crate::error::EvalError;

/// Keys of a safetensors file's metadata.
const MEAN: &str = "mean";
const STD: &str = "std";

/// Mean and standard deviation of each channel, for values from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// What is subtracted.
    pub mean: Vec<f32>,
    /// What the rest is divided by.
    pub deviation: Vec<f32>,
}

impl Normalization {
    /// The usual values for so many channels: those of ImageNet for three.
    ///
    /// # Panics
    /// For no channels or more than [`data::transform::MAX_CHANNELS`].
    pub fn usual(channels: usize) -> Self {
        let (mean, deviation) = normalization(channels);
        Self { mean: mean.to_vec(), deviation: deviation.to_vec() }
    }

    /// Keys and values for the metadata of a weights file: JSON lists.
    pub fn metadata(&self) -> [(&'static str, String); 2] {
        let list =
            |values: &[f32]| serde_json::json!(values.iter().map(f32::to_string).collect::<Vec<_>>()).to_string();
        // Numbers as they are written by hand: 0.485 and not the nearest double.
        [(MEAN, list(&self.mean).replace('"', "")), (STD, list(&self.deviation).replace('"', ""))]
    }

    /// What the metadata of a weights file say for a network of so many channels; none where they say nothing. An error
    /// where what they say cannot be meant: features with the usual values instead would be wrong.
    pub fn from_metadata(metadata: &BTreeMap<String, String>, channels: usize) -> Result<Option<Self>, EvalError> {
        let list = |key: &'static str, is_possible: fn(f32) -> bool| -> Result<Option<Vec<f32>>, EvalError> {
            let Some(text) = metadata.get(key) else { return Ok(None) };
            let values = serde_json::from_str::<Vec<f32>>(text).ok();
            let values = values.filter(|values| values.len() == channels && values.iter().all(|&x| is_possible(x)));
            values.map(Some).ok_or_else(|| EvalError::Metadata {
                key,
                value: text.clone(),
                expected: format!("a list of one number for each of {channels} channels, like [0.485, 0.456, 0.406]"),
            })
        };
        match (list(MEAN, f32::is_finite)?, list(STD, |x| x.is_finite() && x > 0.0)?) {
            (Some(mean), Some(deviation)) => Ok(Some(Self { mean, deviation })),
            (None, None) => Ok(None),
            (mean, _) => {
                let (there, missing) = if mean.is_some() { (MEAN, STD) } else { (STD, MEAN) };
                let expected = format!("`{missing}` beside it");
                Err(EvalError::Metadata { key: there, value: metadata[there].clone(), expected })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for channels in [1, 2, 3] {
            let usual = Normalization::usual(channels);
            let metadata = usual.metadata().map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
            assert_eq!(Normalization::from_metadata(&metadata, channels).unwrap(), Some(usual));
        }
        assert_eq!(Normalization::usual(3).metadata()[0].1, "[0.485,0.456,0.406]");
        assert_eq!(Normalization::from_metadata(&BTreeMap::new(), 3).unwrap(), None);
    }

    #[test]
    fn values_that_cannot_be_meant_are_refused() {
        for pairs in [
            &[("mean", "[0.5]"), ("std", "[0.5,0.5,0.5]")][..],
            &[("mean", "[0.5,0.5,0.5]"), ("std", "[0.5,0,0.5]")],
            &[("mean", "[0.5,0.5,0.5]")],
            &[("std", "[0.5,0.5,0.5]")],
            &[("mean", "0.5"), ("std", "0.5")],
            &[("mean", "[0.5,0.5,1e99]"), ("std", "[0.5,0.5,0.5]")],
        ] {
            let message = Normalization::from_metadata(&said(pairs), 3).unwrap_err().to_string();
            assert!(message.contains("metadata"), "{pairs:?}: {message}");
        }
    }
}
