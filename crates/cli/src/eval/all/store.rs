//! The folder of `eval all`: what was found, and of which weights, data and settings.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::super::record::Judgement;
use crate::error::CliError;
use crate::output_file::{self, Input};

/// What a file of results says that it is.
pub const FORMAT: &str = "dino-vmf evaluation";
/// The file of results.
pub const RESULTS: &str = "results.json";
const PAGE: &str = "index.html";
/// What tells results from those of something else, in words.
const IDENTITY: [(&str, &str); 2] =
    [("weights_digest", "it holds results of another network"), ("data_digest", "it holds results of other data")];
/// The largest file of results that is read: a result has some kilobytes, one of retrieval some more.
pub const MOST_BYTES_OF_RESULTS: u64 = 64 << 20;

/// The folder, and what is in its file of results.
pub struct Store {
    folder: PathBuf,
    /// Of which weights and data they are.
    about: Map<String, Value>,
    /// What each protocol found.
    results: Map<String, Value>,
    /// How each result came to be.
    made: Map<String, Value>,
    /// Why others have none.
    skipped: Map<String, Value>,
}

/// What there is of a protocol.
pub struct Kept {
    /// What it found.
    pub judgement: Judgement,
    /// The command that gives it alone.
    pub command: String,
    /// Seconds that it took.
    pub seconds: f64,
}

impl Store {
    /// Opens the folder, or makes it. Results of another network or other data are an error, unless they are to be replaced.
    pub fn open(out: &Path, inputs: &[Input], about: &Map<String, Value>, force: bool) -> Result<Self, CliError> {
        let folder = output_file::check_new_folder(out, inputs)?;
        let failed = |source: io::Error| CliError::Results { path: out.to_owned(), source };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let about = about.clone();
        let none = Map::new;
        let mut store = Self { folder, about, results: none(), made: none(), skipped: none() };
        let path = store.folder.join(RESULTS);
        if path.exists() {
            let there = of_file(&path).ok_or_else(|| CliError::OtherResults {
                path: path.clone(),
                what: "it is no file of results of this command",
                way: "Move it away, or give another --out",
            })?;
            let is_other = |key: &&str| there.get(*key) != store.about.get(*key);
            match IDENTITY.into_iter().find(|(key, _)| is_other(key)) {
                Some((_, what)) if !force => {
                    return Err(CliError::OtherResults {
                        path,
                        what,
                        way: "--force replaces them; or give another --out",
                    });
                }
                Some(_) => {}
                None => {
                    let part = |key: &str| there.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
                    (store.results, store.made, store.skipped) = (part("results"), part("made"), part("skipped"));
                }
            }
        }
        let page = store.folder.join(PAGE);
        if page.exists() {
            output_file::check(&page, output_file::Kind::Page, true, inputs)?;
        }
        Ok(store)
    }

    /// What a protocol found, with whatever inputs.
    pub fn kept(&self, name: &str) -> Option<Kept> {
        let (made, record) = (self.made.get(name)?, self.results.get(name)?.clone());
        let text = |key: &str| Some(made.get(key)?.as_str()?.to_owned());
        let (table, command, seconds) = (text("table")?, text("command")?, made.get("seconds")?.as_f64()?);
        Some(Kept { judgement: Judgement { record, table }, command, seconds })
    }

    /// Whether it was found with these inputs.
    pub fn is_kept(&self, name: &str, inputs: &Value) -> bool {
        self.kept(name).is_some() && self.made.get(name).and_then(|made| made.get("inputs")) == Some(inputs)
    }

    /// Why a protocol has no result.
    pub fn why_not(&self, name: &str) -> Option<&str> {
        self.skipped.get(name)?.as_str()
    }

    /// Remembers what was found, and with which inputs.
    pub fn keep(&mut self, name: &str, inputs: &Value, kept: &Kept) {
        let Kept { judgement, command, seconds } = kept;
        self.results.insert(name.to_owned(), judgement.record.clone());
        let made = json!({ "inputs": inputs, "command": command, "seconds": seconds, "table": judgement.table });
        self.made.insert(name.to_owned(), made);
        self.skipped.remove(name);
    }

    /// Remembers why a protocol has no result. One that it had with other inputs is gone.
    pub fn leave_out(&mut self, name: &str, why: &str) {
        self.results.remove(name);
        self.made.remove(name);
        self.skipped.insert(name.to_owned(), json!(why));
    }

    /// All of it, as it stands in the file.
    pub fn to_json(&self) -> Value {
        let mut object =
            json!({ "format": FORMAT, "results": self.results, "skipped": self.skipped, "made": self.made });
        if let Value::Object(object) = &mut object {
            object.extend(self.about.clone());
        }
        object
    }

    /// Of which weights and data the results are.
    pub fn about(&self) -> &Map<String, Value> {
        &self.about
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the results and their page. Each is there completely or not at all.
    pub fn write(&self, page: &str) -> Result<(), CliError> {
        let mut text = serde_json::to_string_pretty(&self.to_json()).unwrap_or_default();
        text.push('\n');
        for (name, content) in [(RESULTS, text.as_str()), (PAGE, page)] {
            let path = self.folder.join(name);
            let written = files::replace_with(&path, content.as_bytes());
            written.map_err(|source| CliError::Results { path, source })?;
        }
        Ok(())
    }
}

/// The object in a file of results; none in any other file.
fn of_file(path: &Path) -> Option<Map<String, Value>> {
    let object: Map<String, Value> =
        serde_json::from_slice(&files::read_bounded(path, MOST_BYTES_OF_RESULTS).ok()?).ok()?;
    object.get("format").is_some_and(|format| format == FORMAT).then_some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(weights: &str) -> Map<String, Value> {
        Map::from_iter([("weights_digest".to_owned(), json!(weights))])
    }

    #[test]
    fn results_are_kept_by_what_they_are_of() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("results");
        let open = |weights: &str, force| Store::open(&out, &[], &about(weights), force);
        let mut store = open("a", false).unwrap();
        let judgement = Judgement { record: json!({ "top1": 1.0 }), table: "a table".to_owned() };
        store.keep(
            "knn",
            &json!({ "k": 3 }),
            &Kept { judgement, command: "dino-vmf eval knn".to_owned(), seconds: 2.0 },
        );
        store.leave_out("copies", "no folder");
        store.write(report::page::FIRST_LINE).unwrap();
        let store = open("a", false).unwrap();
        assert_eq!(store.kept("knn").unwrap().judgement.record["top1"], 1.0);
        assert!(store.is_kept("knn", &json!({ "k": 3 })) && !store.is_kept("knn", &json!({ "k": 4 })));
        assert!(store.kept("linear").is_none() && store.why_not("copies") == Some("no folder"));
        assert_eq!(store.to_json()["skipped"]["copies"], "no folder");
        let other = open("b", false).map(|_| ()).unwrap_err().to_string();
        assert!(other.contains("it holds results of another network"), "{other}");
        assert!(open("b", true).unwrap().kept("knn").is_none());
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Store::open(folder.path(), &[], &about("a"), true).map(|_| ()).unwrap_err().to_string();
        std::fs::write(folder.path().join(PAGE), "<p>mine</p>").unwrap();
        assert!(open().contains("index.html"));
        std::fs::write(folder.path().join(RESULTS), "[]").unwrap();
        assert!(open().contains("it is no file of results"));
    }
}
