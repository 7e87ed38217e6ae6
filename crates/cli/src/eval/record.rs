//! What a result says of itself: which evaluation it is of, with which settings, of which weights and data. Enough to tell
//! whether two numbers may be compared.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use random::StableHash;
use serde_json::{Map, Value, json};

use super::sets::{Provenance, Sets};
use crate::description;
use crate::error::CliError;
use crate::output;

/// An evaluation: its name, and a version that changes whenever the same input would give another number.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation {
    /// The name of the command.
    pub name: &'static str,
    /// Counted from 1.
    pub version: u32,
}

/// What a protocol found.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// For programs: one object.
    pub record: Value,
    /// For people: a table.
    pub table: String,
}

impl Judgement {
    /// Prints the one or the other.
    pub fn print(&self, is_json: bool) -> Result<(), CliError> {
        if is_json { output::json(&self.record) } else { output::result(&self.table) }
    }
}

/// The result as one JSON object. What `results` holds stands at the top, beside what there is to say of the evaluation, its
/// settings, and where the numbers come from.
pub fn object(evaluation: Evaluation, settings: Value, from: &Provenance, results: Value) -> Value {
    let mut object = Map::new();
    object.insert("evaluation".to_owned(), json!({ "name": evaluation.name, "version": evaluation.version }));
    object.insert("program".to_owned(), json!(description::program()));
    object.insert("settings".to_owned(), settings);
    for value in [from.to_json(), results] {
        if let Value::Object(entries) = value {
            object.extend(entries);
        }
    }
    Value::Object(object)
}

/// The same of an evaluation of training and test sets, with their sizes.
pub fn of_sets(evaluation: Evaluation, settings: Value, sets: &Sets, results: Value) -> Value {
    let mut object = object(evaluation, settings, &sets.from, results);
    object["train_images"] = json!(sets.train.features.len());
    object["test_images"] = json!(sets.judged());
    object["skipped"] = json!(sets.skipped());
    object
}

/// Tells the bytes of a file from others; none where they cannot be read any more. For files that have been read already: others may
/// be pipes.
pub fn file_digest(path: &Path) -> Option<String> {
    let (mut file, mut hash, mut piece) = (File::open(path).ok()?, StableHash::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(format!("{:016x}", hash.finish())),
            read => hash.write(&piece[..read]),
        }
    }
}
