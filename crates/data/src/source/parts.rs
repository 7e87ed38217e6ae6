//! Names of splits in files and folders: `train`, `val2017`, `testing`.

/// Names of the training split, in order of preference.
const TRAIN: [&str; 2] = ["train", "training"];

/// Names of the held-out split, in order of preference.
pub(super) const HELD_OUT: [&str; 5] = ["val", "validation", "valid", "test", "testing"];

/// A split of a data set. Of several held-out splits, the smallest by this order is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Train,
    /// With the index of its name in [`HELD_OUT`].
    HeldOut(usize),
}

impl Part {
    /// The split of this name, upper or lower case.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        let place = |words: &[&str]| words.iter().position(|known| known.eq_ignore_ascii_case(word));
        place(&TRAIN).map(|_| Part::Train).or_else(|| place(&HELD_OUT).map(Part::HeldOut))
    }

    /// The split that a folder is named after, with or without a year: `val`, `val2017`, `train_2014`. Such a folder is no
    /// class.
    pub(super) fn of_folder(name: &str) -> Option<Self> {
        Self::of_word(name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '_']))
    }

    /// The split named in a file's path, by the first word that is a split's name: `imagenet-val-03.tar`.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        path.split(|c: char| !c.is_ascii_alphabetic()).find_map(Self::of_word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_their_usual_names() {
        for train in ["train", "Training", "train2017", "train_2014"] {
            assert_eq!(Part::of_folder(train), Some(Part::Train), "{train}");
        }
        let held_out: Vec<_> = ["val2017", "validation", "valid", "test", "testing"].map(Part::of_folder).into();
        assert_eq!(held_out, (0..5).map(|place| Some(Part::HeldOut(place))).collect::<Vec<_>>());
        for class in ["trains", "2017", "", "contest", "test tube", "_"] {
            assert_eq!(Part::of_folder(class), None, "{class}");
        }
        assert_eq!(Part::of_path("data/imagenet-val-03.tar"), Some(Part::HeldOut(0)));
        assert_eq!(Part::of_path("data/training.tar"), Some(Part::Train));
        assert_eq!(Part::of_path("data/shard-03.tar"), None);
    }
}
