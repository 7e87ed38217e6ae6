//! Features in a table: a list of floats in each row (`feature`), and `name` and `label` where there are such columns.

use std::path::Path;

use files::parquet::TableReader;

use super::safetensors::list;
use super::{Found, NO_LABEL, StoredFeatures, StoredProblem};

pub(super) fn read(path: &Path) -> Result<StoredFeatures, StoredProblem> {
    let mut table = TableReader::open(path)?;
    // Patch tokens are one list, too, and say that they are more.
    let shape = table.metadata().get("feature_shape");
    let shape: Option<Vec<usize>> = shape.and_then(|shape| serde_json::from_str(shape).ok());
    if let Some(shape) = shape.filter(|shape| shape.len() != 1) {
        return Err(StoredProblem::Shape(shape));
    }
    let (dim, values) = table.floats("feature")?;
    let rows = values.len().checked_div(dim).unwrap_or(0);
    let labels = match table.has("label") {
        false => Vec::new(),
        true => table.integers("label", rows)?.into_iter().map(|label| label.unwrap_or(NO_LABEL)).collect(),
    };
    let names = match table.has("name") {
        false => Vec::new(),
        true => table.texts("name", rows)?.into_iter().map(Option::unwrap_or_default).collect(),
    };
    let class_names = list(table.metadata(), "class_names", None)?;
    let metadata = table.metadata().clone();
    Found { dim, values, labels, names, class_names, metadata }.check()
}

#[cfg(test)]
mod tests {
    use crate::stored;
    use files::parquet::{Column, TableWriter, Values};

    fn said(feature: [f32; 2], label: i64, metadata: &[(&str, &str)]) -> Result<crate::StoredFeatures, String> {
        let columns = [("label", Values::Integers), ("feature", Values::Floats { width: 2 })];
        let columns = columns.map(|(name, values)| Column { name, values });
        let mut table = TableWriter::new(Vec::new(), &columns).unwrap();
        for (label, feature) in [(Some(label), feature), (None, [0.0, 1.0])] {
            table.integer(0, label).unwrap();
            table.floats(1, &feature).unwrap();
            table.end_row().unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.parquet");
        std::fs::write(&path, table.finish(metadata).unwrap()).unwrap();
        stored::read(&path).map_err(|error| error.to_string().split_once("f.parquet: ").unwrap().1.to_owned())
    }

    #[test]
    fn a_table_of_features_is_read_and_what_cannot_be_judged_is_refused() {
        let found = said([1.0, -2.0], 3, &[("tokens", "class")]).unwrap();
        assert_eq!((found.features.values, found.features.dim), (vec![1.0, -2.0, 0.0, 1.0], 2));
        assert_eq!((found.features.labels, found.names.len()), (vec![Some(3), None], 0));
        assert_eq!(found.metadata["tokens"], "class");
        assert_eq!(said([1.0, f32::NAN], 3, &[]).unwrap_err(), "the feature of row 0 is not finite");
        assert!(said([1.0, 1.0], -5, &[]).unwrap_err().starts_with("row 0 has the label -5"));
        let patches = said([1.0, 1.0], 0, &[("feature_shape", "[4,2]")]).unwrap_err();
        assert!(patches.starts_with("`features` has the shape [4, 2]"));
        let classes = said([1.0, 1.0], 2, &[("class_names", "[\"cat\"]")]).unwrap_err();
        assert!(classes.starts_with("row 0 has the label 2: expected -1 for none, or a class from 0 to 0"));
    }

    #[test]
    fn tables_of_other_programs_are_read_where_they_are_plain() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/table");
        let plain = stored::read(&corpus.join("pyarrow-plain.parquet")).unwrap();
        assert_eq!((plain.features.dim, &plain.features.values[..]), (2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
        assert_eq!(
            (plain.features.labels, plain.names),
            (vec![Some(0), None, Some(2)], vec!["a".into(), "b".into(), String::new()])
        );
        let packed = stored::read(&corpus.join("pyarrow-packed.parquet")).unwrap_err().to_string();
        assert!(packed.contains("its column `feature` is compressed: write the table without compression"), "{packed}");
    }
}
