//! What a misspelt key, or a method under another name, was probably meant to be.

use strsim::osa_distance;
use toml::Value;

use super::error::RecipeError;
use super::keys;
use super::values::MethodName;

/// The error for a name that is no key.
pub(super) fn unknown_key(key: &str, value: &Value, place: &str) -> RecipeError {
    if value.is_table() {
        return RecipeError::Section { place: place.to_owned(), name: key.to_owned() };
    }
    let hint = match nearest(key, keys()) {
        Some(known) => format!(": did you mean `{known}`?"),
        None => format!("; known are {}", keys().collect::<Vec<_>>().join(", ")),
    };
    RecipeError::UnknownKey { place: place.to_owned(), key: key.to_owned(), hint }
}

/// The key that a word was probably meant to be; none where it is a different word altogether.
pub fn nearest_key(word: &str) -> Option<&'static str> {
    nearest(word, keys())
}

/// The candidate with the fewest typing mistakes, unless that is a different word altogether.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let (cost, best) = candidates
        .map(|known| {
            // A longer or shorter form (`local_crops_number`, `beta1`) is no misspelling, however many letters differ.
            let contains = known.len().min(word.len()) >= 4 && (known.contains(&word) || word.contains(known));
            (osa_distance(&word, known).min(if contains { 1 } else { usize::MAX }), known)
        })
        .min_by_key(|&(cost, known)| (cost, known.len().abs_diff(word.len())))?;
    (cost <= 1 + word.chars().count() / 4).then_some(best)
}

/// What to write for a method under the name that papers have for it, as in iBOT-vMF.
pub(super) fn method_meant(key: &str, word: &str) -> Option<String> {
    let word = word.to_lowercase();
    let (name, is_vmf) = word.strip_suffix("-vmf").map_or((word.as_str(), false), |name| (name, true));
    let method = MethodName::of_word(name).filter(|_| key == "method")?;
    let prototypes = if is_vmf { " with prototypes = \"vmf\"" } else { "" };
    Some(format!(". That is \"{method}\"{prototypes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_of_neighbours_is_one_mistake() {
        assert_eq!(osa_distance("epohcs", "epochs"), 1);
    }

    #[test]
    fn misspelt_hyphenated_and_longer_names_find_their_key() {
        for (word, key) in [
            ("epoch", "epochs"),
            ("batch-size", "batch_size"),
            ("bacth_size", "batch_size"),
            ("local_crops_number", "local_crops"),
            ("weight_decy_end", "weight_decay_end"),
            ("beta2", "adam_beta2"),
            ("Seed", "seed"),
        ] {
            assert_eq!(nearest(word, keys()), Some(key), "{word}");
        }
    }

    #[test]
    fn methods_are_known_by_the_names_that_papers_have_for_them() {
        assert_eq!(method_meant("method", "iBOT").unwrap(), ". That is \"ibot\"");
        assert_eq!(method_meant("method", "MSN-vMF").unwrap(), ". That is \"msn\" with prototypes = \"vmf\"");
        assert_eq!((method_meant("method", "byol"), method_meant("arch", "dino")), (None, None));
    }

    #[test]
    fn a_different_word_has_no_nearest_key() {
        assert_eq!(nearest("horizontal_flip", keys()), None);
        assert_eq!(nearest("x", keys()), None);
        assert_eq!(nearest("", keys()), None);
    }
}
