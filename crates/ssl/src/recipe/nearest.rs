//! The known key that a misspelt one was probably meant to be.

use toml::Value;

use super::error::RecipeError;
use super::keys;

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

/// The candidate with the fewest typing mistakes, unless that is a different word altogether.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let (cost, best) = candidates
        .map(|known| {
            // A longer or shorter form (`local_crops_number`, `beta1`) is no misspelling, however many letters differ.
            let contains = known.len().min(word.len()) >= 4 && (known.contains(&word) || word.contains(known));
            (edit_distance(&word, known).min(if contains { 1 } else { usize::MAX }), known)
        })
        .min_by_key(|&(cost, known)| (cost, known.len().abs_diff(word.len())))?;
    (cost <= 1 + word.chars().count() / 4).then_some(best)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(before[j - 2] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_a_swap_once() {
        assert_eq!(edit_distance("epohcs", "epochs"), 1);
        assert_eq!(edit_distance("", "seed"), 4);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
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
    fn a_different_word_has_no_nearest_key() {
        assert_eq!(nearest("horizontal_flip", keys()), None);
        assert_eq!(nearest("x", keys()), None);
        assert_eq!(nearest("", keys()), None);
    }
}
