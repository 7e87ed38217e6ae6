//! The labels of all rows: class numbers as they are stored, or texts, which are numbered in alphabetical order.

use super::thrift::damage;
use crate::source::ranges::MAX_CLASSES;
use std::collections::{BTreeSet, HashMap};
use std::io;
use text::{escape_name, printable, thousands};

/// Different texts. More are no classes but captions or hashes.
const MOST_TEXTS: usize = 100_000;

/// Bytes of a text. A longer one is a caption.
const LONGEST: usize = 200;

/// What the `datasets` library writes for an image whose class is not told.
const UNKNOWN: i64 = -1;

/// Labels as they come in, row by row.
#[derive(Default)]
pub(super) struct Labels {
    labels: Vec<u32>,
    /// Rows so far.
    rows: usize,
    /// Those without a label.
    unlabelled: usize,
    /// Texts, with the number that each got when it came first.
    texts: HashMap<String, u32>,
    /// Why the column cannot be used.
    refused: Option<String>,
}

/// Labels of all rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Labelled {
    /// One for each row, or none at all.
    pub labels: Vec<u32>,
    pub class_names: Vec<String>,
    /// Why there are none, where somebody would wonder.
    pub remark: Option<String>,
}

impl Labels {
    /// Adds a class number. It has to have a name, where there are names.
    pub(super) fn add_number(&mut self, label: Option<i64>, names: Option<&[String]>) -> io::Result<()> {
        let row = self.rows;
        self.rows += 1;
        match (label, names) {
            (None | Some(UNKNOWN), _) => self.unlabelled += 1,
            (Some(label), Some(names)) if label < 0 || label as u64 >= names.len() as u64 => {
                let classes = thousands(names.len());
                return Err(damage(format!(
                    "row {row} of the data has label {label}, but there are {classes} classes"
                )));
            }
            (Some(label), names) => match u32::try_from(label) {
                Ok(label) if names.is_some() || label < MAX_CLASSES => self.labels.push(label),
                _ => self.refuse(format!("{label} is no class number")),
            },
        }
        Ok(())
    }

    /// Adds a text.
    pub(super) fn add_text(&mut self, text: Option<&[u8]>) {
        self.rows += 1;
        match text.map(|text| self.number_of(text)) {
            None => self.unlabelled += 1,
            Some(Some(number)) => self.labels.push(number),
            Some(None) => self.refuse("it holds texts, not the names of classes".to_owned()),
        }
    }

    /// Adds a text that is a class, though no row of ours may have it.
    pub(super) fn add_class(&mut self, text: Option<&[u8]>) {
        if text.is_some_and(|text| self.number_of(text).is_none()) {
            self.refuse("it holds texts, not the names of classes".to_owned());
        }
    }

    fn number_of(&mut self, text: &[u8]) -> Option<u32> {
        if text.len() > LONGEST {
            return None;
        }
        let text = escape_name(text);
        if let Some(&number) = self.texts.get(&*text) {
            return Some(number);
        }
        let number = self.texts.len();
        (number < MOST_TEXTS && self.refused.is_none()).then(|| {
            self.texts.insert(text.into_owned(), number as u32);
            number as u32
        })
    }

    fn refuse(&mut self, reason: String) {
        self.refused.get_or_insert(reason);
        self.labels = Vec::new();
        self.texts = HashMap::new();
    }

    /// All labels, or none where they are not complete. `names` are those of class numbers, where the file has them.
    pub(super) fn finish(self, column: &str, names: Option<Vec<String>>) -> Labelled {
        let column = printable(column);
        if let Some(reason) = self.refused {
            let remark = Some(format!("column {column} is not used for labels: {reason}"));
            return Labelled { remark, ..Labelled::default() };
        }
        if self.unlabelled > 0 {
            let (missing, all) = (thousands(self.unlabelled), thousands(self.rows));
            let remark = format!("no labels are used: column {column} has none for {missing} of {all} images");
            return Labelled { remark: (!self.labels.is_empty()).then_some(remark), ..Labelled::default() };
        }
        if self.texts.is_empty() {
            let classes = self.labels.iter().max().map_or(0, |&highest| highest + 1);
            let class_names = names.unwrap_or_else(|| (0..classes).map(|class| class.to_string()).collect());
            return Labelled { labels: self.labels, class_names, remark: None };
        }
        let sorted: BTreeSet<(String, u32)> = self.texts.into_iter().collect();
        let mut places = vec![0; sorted.len()];
        let mut class_names = Vec::with_capacity(sorted.len());
        for (place, (text, number)) in sorted.into_iter().enumerate() {
            places[number as usize] = place as u32;
            class_names.push(text);
        }
        let labels = self.labels.iter().map(|&number| places[number as usize]).collect();
        Labelled { labels, class_names, remark: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(labels: &[Option<i64>], names: Option<&[String]>) -> io::Result<Labelled> {
        let mut collected = Labels::default();
        labels.iter().try_for_each(|&label| collected.add_number(label, names))?;
        Ok(collected.finish("label", names.map(<[String]>::to_vec)))
    }

    fn texts(labels: &[Option<&str>]) -> Labelled {
        let mut collected = Labels::default();
        labels.iter().for_each(|label| collected.add_text(label.map(str::as_bytes)));
        collected.finish("label", None)
    }

    #[test]
    fn texts_are_numbered_in_alphabetical_order() {
        let found = texts(&[Some("cat"), Some("ant"), Some("cat"), Some("bee")]);
        assert_eq!((found.labels, found.remark), (vec![2, 0, 2, 1], None));
        assert_eq!(found.class_names, ["ant", "bee", "cat"]);
    }

    #[test]
    fn a_class_of_the_other_part_takes_its_place_in_the_list() {
        let mut collected = Labels::default();
        collected.add_text(Some(b"cat"));
        collected.add_class(Some(b"bee"));
        collected.add_class(None);
        let found = collected.finish("label", None);
        assert_eq!((&found.labels[..], found.class_names.len()), (&[1][..], 2));
    }

    #[test]
    fn minus_one_everywhere_means_unlabelled_and_here_and_there_is_remarked() {
        assert_eq!(numbers(&[Some(-1); 4], None).unwrap(), Labelled::default());
        let mixed = numbers(&[Some(-1), Some(3), None], None).unwrap();
        assert!(mixed.labels.is_empty() && mixed.class_names.is_empty());
        assert!(mixed.remark.unwrap().contains("has none for 2 of 3 images"));
    }

    #[test]
    fn a_label_beyond_the_names_is_an_error_with_its_row() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(numbers(&[Some(1), Some(0)], Some(&names)).unwrap().labels, [1, 0]);
        for wrong in [2, -2, i64::MIN, i64::MAX] {
            let error = numbers(&[Some(1), Some(wrong)], Some(&names)).unwrap_err().to_string();
            assert!(error.contains(&format!("row 1 of the data has label {wrong}")), "{error}");
        }
    }

    #[test]
    fn the_row_of_an_error_counts_rows_whose_label_was_refused() {
        let mut collected = Labels::default();
        for label in [Some(3), Some(77_777_777_777), None, Some(5)] {
            collected.add_number(label, None).unwrap();
        }
        let error = collected.add_number(Some(1), Some(&["a".to_owned()])).unwrap_err().to_string();
        assert!(error.contains("row 4 of the data has label 1"), "{error}");
    }

    #[test]
    fn class_numbers_end_with_the_names_or_with_a_million() {
        let names: Vec<String> = (0..1_200_000).map(|i| i.to_string()).collect();
        let found = numbers(&[Some(1_199_999), Some(0)], Some(&names)).unwrap();
        assert_eq!((&found.labels[..], found.class_names.len()), (&[1_199_999, 0][..], 1_200_000));
        let found = numbers(&[Some(999_999)], None).unwrap();
        assert_eq!((found.labels, found.class_names.len()), (vec![999_999], 1_000_000));
        assert!(numbers(&[Some(1_000_000)], None).unwrap().remark.unwrap().contains("1000000 is no class number"));
    }

    #[test]
    fn row_numbers_and_captions_are_no_classes() {
        let hashes = numbers(&[Some(3), Some(77_777_777_777), Some(5)], None).unwrap();
        assert!(hashes.labels.is_empty() && hashes.remark.unwrap().contains("77777777777 is no class number"));
        let caption = "a dog ".repeat(50);
        let captions = texts(&[Some("a cat"), Some(&caption), Some("a bee")]);
        assert!(captions.class_names.is_empty() && captions.remark.unwrap().contains("texts"));
    }
}
