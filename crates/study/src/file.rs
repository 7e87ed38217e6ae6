//! The file of a study: which data, which recipes, which seeds.
//!
//! ```toml
//! seeds = [0, 1, 2]
//! evaluate = ["linear"]           # protocols of `eval all`, for columns of their own
//!
//! [data]                          # name = what --data would be; a path is relative to this file
//! photos = "../photos"
//!
//! [data.cifar10]                  # or with settings, and a grid, of its own
//! source = "cifar10"
//! other = "photos"                # another of these, or a path: images that certainty should tell from its own
//! grid.epochs = [5, 20, 100]
//!
//! [common]                        # keys of every run
//! local_crops = 6
//!
//! [recipes.derived]               # nothing but what is derived from the data
//! [recipes.slow-teacher]
//! momentum_teacher = 0.99
//!
//! [grid]                          # every combination of these
//! arch = ["vit_tiny", "vit_small"]
//! ```

use std::path::{Path, PathBuf};

use ssl::recipe::{RawRecipe, RecipeError};
use toml::{Table, Value};

use crate::scores::Score;

/// No file of a study is larger.
const MOST_BYTES: u64 = 1 << 20;

/// What a study asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyFile {
    /// The seeds of every cell of the table.
    pub seeds: Vec<u64>,
    /// The protocols by which every network is evaluated.
    pub evaluate: Vec<String>,
    /// The data, in the order of the file.
    pub data: Vec<DataSet>,
    /// The recipes, in the order of the file: what each sets.
    pub(crate) recipes: Vec<Variant>,
    /// Keys of every run.
    pub(crate) common: Table,
    /// Keys with the values that are all tried.
    pub(crate) grid: Vec<(String, Vec<Value>)>,
}

/// A data set of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSet {
    /// Its name in the table.
    pub name: String,
    /// What `--data` would be.
    pub source: String,
    /// What `--other` of its evaluations would be.
    pub(crate) other: Option<Other>,
    /// Keys of its runs.
    pub(crate) settings: Table,
    /// Keys with the values that are all tried on it.
    pub(crate) grid: Vec<(String, Vec<Value>)>,
}

/// Images of another kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Other {
    /// As it is called, which may be the name of another data set of the study.
    given: String,
    /// As a path.
    source: String,
}

/// A recipe of a study.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    pub(crate) name: String,
    /// Its keys, with those of a file below them.
    pub(crate) settings: Table,
}

/// A file of a study that is none.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}", text::shown(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML.
    #[error("{place}: {}", text::message(.what))]
    Syntax {
        /// The file.
        place: String,
        /// What the parser says.
        what: String,
    },
    /// Something in it has no meaning.
    #[error("{place}: {what}")]
    Meaning {
        /// The file and the table in it.
        place: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A key of a recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

impl StudyFile {
    /// Reads a file, and gives its text as well. Paths in it are relative to its folder.
    pub fn read(path: &Path) -> Result<(Self, String), StudyError> {
        let failed = |source| StudyError::Read { path: path.to_owned(), source };
        let text = files::read_text_bounded(path, MOST_BYTES).map_err(failed)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok((Self::parse(&text, &text::shown(path), folder)?, text))
    }

    /// Reads the text of a file; `place` names it in messages, and paths are relative to `folder`.
    pub fn parse(text: &str, place: &str, folder: &Path) -> Result<Self, StudyError> {
        let syntax = |error: toml::de::Error| StudyError::Syntax { place: place.to_owned(), what: error.to_string() };
        let mut table: Table = text.parse().map_err(syntax)?;
        let root = Place { file: place, table: String::new() };
        root.check_is_study(&table)?;
        let seeds = match table.remove("seeds") {
            Some(value) => seeds(&value)
                .ok_or_else(|| root.wrong("seeds is a list of whole numbers, each once, such as [0, 1, 2]"))?,
            None => vec![0],
        };
        let evaluate = table.remove("evaluate").map_or(Ok(Vec::new()), |value| root.protocols(&value))?;
        let common = root.sub_table(&mut table, "common")?;
        root.inside("common").check(&common)?;
        let grid = root.grid(&mut table)?;
        let data = root.sub_table(&mut table, "data")?;
        let data =
            data.into_iter().map(|(name, value)| data_set(&root, name, value, folder)).collect::<Result<_, _>>()?;
        let recipes = root.sub_table(&mut table, "recipes")?;
        let recipes: Result<Vec<_>, _> =
            recipes.into_iter().map(|(name, value)| variant(&root, name, value, folder)).collect();
        if let Some(key) = table.keys().next() {
            let known = "seeds, evaluate, [data], [common], [recipes.NAME] and [grid]";
            return Err(root.wrong(&format!(
                "`{}` is none of {known}; keys of every run stand under [common]",
                text::printable(key)
            )));
        }
        let mut study = Self { seeds, evaluate, data, recipes: recipes?, common, grid };
        if study.data.is_empty() {
            return Err(root.wrong("there is no data: under [data], NAME = \"what --data would be\""));
        }
        if study.recipes.is_empty() {
            study.recipes.push(Variant { name: "derived".to_owned(), settings: Table::new() });
        }
        Ok(study)
    }

    /// What `--other` of a data set's evaluations is: another data set of the study, or a source of its own.
    pub(crate) fn other_of<'a>(&'a self, data: &'a DataSet) -> Option<&'a str> {
        let other = data.other.as_ref()?;
        let named = self.data.iter().find(|data| data.name == other.given);
        Some(named.map_or(&other.source, |named| &named.source))
    }

    /// Takes a data set from somewhere else, as `--data NAME=SOURCE` says.
    pub fn set_source(&mut self, name: &str, source: &str) -> Result<(), StudyError> {
        let names: Vec<&str> = self.data.iter().map(|data| data.name.as_str()).collect();
        let what = format!("there is no {} among the study's data: {}", text::printable(name), names.join(", "));
        let found = self.data.iter_mut().find(|data| data.name == name);
        let data = found.ok_or(StudyError::Meaning { place: "--data".to_owned(), what })?;
        data.source = source.to_owned();
        Ok(())
    }
}

/// Where in the file something stands, for messages.
struct Place<'a> {
    file: &'a str,
    table: String,
}

impl Place<'_> {
    fn inside(&self, name: &str) -> Self {
        let table = if self.table.is_empty() { name.to_owned() } else { format!("{}.{name}", self.table) };
        Self { file: self.file, table }
    }

    fn shown(&self) -> String {
        if self.table.is_empty() {
            self.file.to_owned()
        } else {
            format!("{} [{}]", self.file, text::printable(&self.table))
        }
    }

    fn wrong(&self, what: &str) -> StudyError {
        StudyError::Meaning { place: self.shown(), what: what.to_owned() }
    }

    /// Refuses the settings of one run, which are easily taken for those of many.
    fn check_is_study(&self, table: &Table) -> Result<(), StudyError> {
        let has_keys = ssl::recipe::keys().any(|key| table.contains_key(key));
        // What a recipe that a run has written says of its data.
        let is_of_run = table.get("data").is_none_or(|data| data.get("fingerprint").is_some());
        match has_keys && is_of_run {
            true => Err(self.wrong(
                "this is a recipe, not a study: `dino-vmf pretrain --recipe FILE` trains it. A study has [data], and the keys of its \
                 recipes under [common] and [recipes.NAME]",
            )),
            false => Ok(()),
        }
    }

    /// A table in a table; an empty one where there is none.
    fn sub_table(&self, table: &mut Table, name: &str) -> Result<Table, StudyError> {
        match table.remove(name) {
            None => Ok(Table::new()),
            Some(Value::Table(found)) => Ok(found),
            Some(_) => Err(self.wrong(&format!("`{name}` is a table: [{}]", self.inside(name).table))),
        }
    }

    /// The grid of a table: for each key the values that are all tried.
    fn grid(&self, table: &mut Table) -> Result<Vec<(String, Vec<Value>)>, StudyError> {
        let place = self.inside("grid");
        let listed = |(key, value): (String, Value)| match value {
            Value::Array(values) if !values.is_empty() => {
                for value in &values {
                    place.check(&Table::from_iter([(key.clone(), value.clone())]))?;
                }
                Ok((key, values))
            }
            _ => {
                Err(place.wrong(&format!("`{}` is a list of the values to try, such as [1, 2]", text::printable(&key))))
            }
        };
        self.sub_table(table, "grid")?.into_iter().map(listed).collect()
    }

    /// Names of protocols that have something to say in a table.
    fn protocols(&self, value: &Value) -> Result<Vec<String>, StudyError> {
        let known = Score::protocols();
        let wrong = |what: &str| self.wrong(&format!("evaluate is a list of protocols, of {}{what}", known.join(", ")));
        let name = |name: &Value| match name.as_str() {
            Some(name) if known.contains(&name) => Ok(name.to_owned()),
            Some(other) => Err(wrong(&format!("; `{}` is none of them", text::excerpt(other)))),
            None => Err(wrong("")),
        };
        value.as_array().ok_or_else(|| wrong(""))?.iter().map(name).collect()
    }

    /// Whether these are keys of a recipe with values that they can have.
    fn check(&self, settings: &Table) -> Result<(), StudyError> {
        if settings.contains_key("seed") {
            return Err(self.wrong("the seeds of a study stand in `seeds`, above all tables"));
        }
        let mut recipe = RawRecipe::default();
        Ok(settings.iter().try_for_each(|(key, value)| recipe.set(key, value, &self.shown()))?)
    }

    /// A name that can be part of a folder's name.
    fn check_name(&self, name: &str) -> Result<(), StudyError> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !name.is_empty() && name.len() <= 64 && name.chars().all(is_good) && !name.starts_with('.') {
            return Ok(());
        }
        Err(self.wrong(&format!(
            "`{}`: a name has letters, digits, '.', '_' and '-' alone, 64 at most",
            text::excerpt(name)
        )))
    }
}

fn seeds(value: &Value) -> Option<Vec<u64>> {
    let seeds: Vec<u64> =
        value.as_array()?.iter().map(|seed| u64::try_from(seed.as_integer()?).ok()).collect::<Option<_>>()?;
    let mut known = std::collections::HashSet::new();
    (!seeds.is_empty() && seeds.iter().all(|seed| known.insert(*seed))).then_some(seeds)
}

/// A path of the file, seen from its folder. What the program makes up is no path.
fn source_in(folder: &Path, source: &str) -> String {
    if source == "synthetic" || source.starts_with("synthetic:") || folder == Path::new("") {
        return source.to_owned();
    }
    folder.join(source).to_string_lossy().into_owned()
}

fn data_set(root: &Place<'_>, name: String, value: Value, folder: &Path) -> Result<DataSet, StudyError> {
    let place = root.inside("data");
    place.check_name(&name)?;
    let place = place.inside(&name);
    let mut settings = match value {
        Value::Table(table) => table,
        Value::String(source) => Table::from_iter([("source".to_owned(), Value::String(source))]),
        _ => return Err(place.wrong("data is named by a text, what --data would be, or by a table with `source`")),
    };
    let grid = place.grid(&mut settings)?;
    let Some(Value::String(source)) = settings.remove("source") else {
        return Err(place.wrong("`source` is missing: what --data would be"));
    };
    let other = match settings.remove("other") {
        None => None,
        Some(Value::String(given)) if given == name => return Err(place.wrong("`other` is this data itself")),
        Some(Value::String(given)) => Some(Other { source: source_in(folder, &given), given }),
        Some(_) => return Err(place.wrong("`other` is the name of another data set, or names data as `source` does")),
    };
    let is_key = |key: &str| ssl::recipe::keys().any(|known| known == key);
    if let Some(key) = settings.keys().find(|key| !is_key(key)) {
        let near = ssl::recipe::nearest_key(key).map_or(String::new(), |near| format!("; a similar key is `{near}`"));
        let key = text::printable(key);
        return Err(
            place.wrong(&format!("`{key}` is none of `source`, `other`, `grid` and the keys of a recipe{near}"))
        );
    }
    place.check(&settings)?;
    Ok(DataSet { name, source: source_in(folder, &source), other, settings, grid })
}

fn variant(root: &Place<'_>, name: String, value: Value, folder: &Path) -> Result<Variant, StudyError> {
    let place = root.inside("recipes");
    place.check_name(&name)?;
    let place = place.inside(&name);
    let Value::Table(mut settings) = value else {
        return Err(place.wrong("a recipe is a table of keys, which may be empty"));
    };
    let mut all = match settings.remove("file") {
        None => Table::new(),
        Some(Value::String(path)) => recipe_file(&place, &folder.join(path))?,
        Some(_) => return Err(place.wrong("`file` is the path of a recipe")),
    };
    place.check(&settings)?;
    all.extend(settings);
    Ok(Variant { name, settings: all })
}

/// The keys of a recipe file, which become those of the recipe: they stand above what is common, too. Its seed is the study's.
fn recipe_file(place: &Place<'_>, path: &Path) -> Result<Table, StudyError> {
    let failed = |source| StudyError::Read { path: path.to_owned(), source };
    let text = files::read_text_bounded(path, MOST_BYTES).map_err(failed)?;
    RawRecipe::from_toml(&text, &text::shown(path))?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| place.wrong(&error.to_string()))?;
    table.retain(|key, value| key != "seed" && !value.is_table());
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StudyFile, StudyError> {
        StudyFile::parse(text, "s.toml", Path::new("studies"))
    }

    #[test]
    fn a_study_is_read_in_the_order_of_its_file() {
        let text = "seeds = [3, 1]\n[data]\nzebra = \"z\"\nmade-up = \"synthetic:train=9\"\n[data.apes]\nsource = \"/a\"\n\
                    epochs = 3\ngrid.batch_size = [8, 16]\n[recipes.vmf]\n[recipes.dino]\nprototypes = \"none\"\n\
                    [grid]\nglobal_scale = [[0.25, 1], [0.4, 1]]\n";
        let study = parse(text).unwrap();
        assert_eq!(study.seeds, [3, 1]);
        let data: Vec<_> = study.data.iter().map(|d| (d.name.as_str(), d.source.as_str())).collect();
        assert_eq!(data, [("zebra", "studies/z"), ("made-up", "synthetic:train=9"), ("apes", "/a")]);
        assert_eq!(study.data[2].grid[0].1.len(), 2);
        let recipes: Vec<_> = study.recipes.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(recipes, ["vmf", "dino"]);
        assert_eq!(study.grid[0].1.len(), 2, "an interval is one value");
        let least = parse("[data]\na = \"b\"").unwrap();
        assert_eq!((least.seeds, least.recipes[0].name.as_str()), (vec![0], "derived"));
    }

    #[test]
    fn the_keys_of_a_recipe_file_are_those_of_its_recipe() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine.toml"), "epochs = 100\nlr = 0.5\nseed = 3\n[data]\nimages = 7\n")
            .unwrap();
        let parse = |text: &str| StudyFile::parse(text, "s.toml", folder.path());
        let study = parse("[data]\na = \"b\"\n[recipes.mine]\nfile = \"mine.toml\"\nlr = 0.25").unwrap();
        let settings = &study.recipes[0].settings;
        assert_eq!((settings.len(), &settings["epochs"]), (2, &Value::Integer(100)));
        assert_eq!(settings["lr"], Value::Float(0.25));
        assert!(
            parse("[data]\na = \"b\"\n[recipes.mine]\nfile = \"none.toml\"")
                .unwrap_err()
                .to_string()
                .contains("none.toml")
        );
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_place() {
        for (text, expected) in [
            ("seeds = 3\n[data]\na = \"b\"", "s.toml: seeds is a list"),
            ("seeds = [1, 1]\n[data]\na = \"b\"", "seeds is a list"),
            ("seeds = [-1]\n[data]\na = \"b\"", "seeds is a list"),
            ("", "there is no data"),
            ("evaluate = \"knn\"\n[data]\na = \"b\"", "evaluate is a list of protocols, of knn, linear"),
            ("evaluate = [\"video\"]\n[data]\na = \"b\"", "certainty; `video` is none of them"),
            ("[data.a]\nsource = \"b\"\nother = \"a\"", "[data.a]: `other` is this data itself"),
            ("[data.a]\nsource = \"b\"\nothr = \"c\"", "[data.a]: `othr` is none of `source`, `other`, `grid`"),
            ("[data.a]\nsource = \"b\"\nother = 3", "[data.a]: `other` is the name of another data set"),
            ("epochs = 3\n[data]\na = \"b\"", "`epochs` is none of seeds"),
            ("epochs = 3\nmethod = \"dino\"", "this is a recipe, not a study"),
            ("epochs = 3\n[data]\nfingerprint = \"0\"\nimages = 3", "this is a recipe, not a study"),
            ("[data]\na = 3", "[data.a]: data is named by a text"),
            ("[data.a]\nepochs = 3", "[data.a]: `source` is missing"),
            ("[data]\n\"a/b\" = \"c\"", "a name has letters"),
            ("[data]\n\"..\" = \"c\"", "a name has letters"),
            ("[data]\na = \"b\"\n[recipes]\nx = 1", "[recipes.x]: a recipe is a table"),
            ("[data]\na = \"b\"\n[recipes.x]\nepoch = 1", "epochs"),
            ("[data]\na = \"b\"\n[recipes.x]\nepochs = \"many\"", "[recipes.x]"),
            ("[data]\na = \"b\"\n[common]\nseed = 1", "[common]: the seeds of a study"),
            ("[data]\na = \"b\"\n[grid]\nepochs = 3", "[grid]: `epochs` is a list"),
            ("[data]\na = \"b\"\n[grid]\nepochs = []", "[grid]: `epochs` is a list"),
            ("[data]\na = \"b\"\n[grid]\nepochs = [1, \"x\"]", "[grid]"),
            ("[data\n", "s.toml"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
        let mut study = parse("[data]\na = \"b\"").unwrap();
        assert!(study.set_source("b", "c").unwrap_err().to_string().contains("no b among the study's data: a"));
        study.set_source("a", "elsewhere").unwrap();
        assert_eq!(study.data[0].source, "elsewhere");
    }
}
