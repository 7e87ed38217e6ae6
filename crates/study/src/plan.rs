//! The runs that follow from a study's file: every recipe with every combination of the grid and every seed, on every data
//! set.

use std::collections::HashSet;

use toml::{Table, Value};

use crate::file::{DataSet, StudyError, StudyFile, Variant};
use crate::scores::Score;

/// More runs are a mistake in a grid.
const MOST_RUNS: usize = 10_000;

/// A row of the table: what its runs, which differ in the seed alone, have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The data's name.
    pub data: String,
    /// The recipe's name.
    pub recipe: String,
    /// Keys of the grids, with the values that were taken.
    pub varied: Vec<(String, String)>,
}

impl Cell {
    /// What a key of the grids has been set to here.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.varied.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StudyRun {
    /// Its name, that of its folder too.
    pub name: String,
    /// Its row of the table.
    pub cell: usize,
    /// Its seed.
    pub seed: u64,
    /// What `--data` is.
    pub source: String,
    /// What `--other` of its evaluation is.
    pub other: Option<String>,
    /// What `--set` is: each `key=value`.
    pub settings: Vec<String>,
}

/// The runs of a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rows of the table.
    pub cells: Vec<Cell>,
    /// The runs, those of a row one after the other.
    pub runs: Vec<StudyRun>,
    /// Keys that differ between rows by a grid, in the order of the file.
    pub varied: Vec<String>,
    /// The protocols by which every network is evaluated.
    pub evaluate: Vec<String>,
    /// The columns that they give.
    pub scores: Vec<&'static Score>,
}

impl Plan {
    /// The runs of a file. `place` names it in messages.
    pub fn of(study: &StudyFile, place: &str) -> Result<Self, StudyError> {
        let wrong = |what: String| StudyError::Meaning { place: place.to_owned(), what };
        let (evaluate, scores) = (study.evaluate.clone(), Score::of_protocols(&study.evaluate));
        let mut plan = Self { cells: Vec::new(), runs: Vec::new(), varied: Vec::new(), evaluate, scores };
        let mut names = HashSet::new();
        for data in &study.data {
            let grid: Vec<_> = study.grid.iter().chain(&data.grid).collect();
            for (i, (key, _)) in grid.iter().enumerate() {
                if grid[..i].iter().any(|(other, _)| other == key) {
                    return Err(wrong(format!(
                        "[grid] and [data.{}.grid] both have `{key}`: one of them is enough",
                        data.name
                    )));
                }
                if !plan.varied.contains(key) {
                    plan.varied.push(key.clone());
                }
            }
            for recipe in &study.recipes {
                let fixed = fixed(study, data, recipe);
                if let Some((key, _)) = grid.iter().find(|(key, _)| fixed.contains_key(key)) {
                    let place = format!("[common], [data.{}] or [recipes.{}]", data.name, recipe.name);
                    return Err(wrong(format!("`{key}` is set in {place}, and tried with several values in a grid")));
                }
                let sizes: Vec<usize> = grid.iter().map(|(_, values)| values.len()).collect();
                let combinations = sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
                let runs = combinations.and_then(|n| n.checked_mul(study.seeds.len())?.checked_add(plan.runs.len()));
                let Some(combinations) = combinations.filter(|_| runs.is_some_and(|runs| runs <= MOST_RUNS)) else {
                    return Err(wrong(format!("these are more than {MOST_RUNS} runs")));
                };
                for combination in 0..combinations {
                    let chosen = nth_combination(&grid, combination);
                    let varied: Vec<_> = chosen.iter().map(|(key, value)| ((*key).clone(), shown(value))).collect();
                    for &seed in &study.seeds {
                        let of_seed = ("seed".to_owned(), Value::Integer(seed as i64));
                        let of_grid = chosen.iter().map(|(key, value)| ((*key).clone(), (*value).clone()));
                        let all = fixed.clone().into_iter().chain(of_grid).chain([of_seed]);
                        plan.runs.push(StudyRun {
                            name: unique(&folder_name(&data.name, &recipe.name, &varied, seed), &mut names),
                            cell: plan.cells.len(),
                            seed,
                            source: data.source.clone(),
                            other: study.other_of(data).map(str::to_owned),
                            settings: all.map(|(key, value)| format!("{key}={}", shown(&value))).collect(),
                        });
                    }
                    plan.cells.push(Cell { data: data.name.clone(), recipe: recipe.name.clone(), varied });
                }
            }
        }
        Ok(plan)
    }
}

/// What no grid changes. A recipe knows better than its data, and that better than what is common.
fn fixed(study: &StudyFile, data: &DataSet, recipe: &Variant) -> Table {
    let mut fixed = study.common.clone();
    fixed.extend(data.settings.clone());
    fixed.extend(recipe.settings.clone());
    fixed
}

/// The values of one combination; the last key changes fastest.
fn nth_combination<'a>(grid: &[&'a (String, Vec<Value>)], n: usize) -> Vec<(&'a String, &'a Value)> {
    let mut rest = n;
    let mut chosen: Vec<_> = grid
        .iter()
        .rev()
        .map(|(key, values)| {
            let value = &values[rest % values.len()];
            rest /= values.len();
            (key, value)
        })
        .collect();
    chosen.reverse();
    chosen
}

/// A value as `--set` takes it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn folder_name(data: &str, recipe: &str, varied: &[(String, String)], seed: u64) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let plain = |text: &str| text.split(|c| !is_plain(c)).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
    let varied: String = varied.iter().map(|(key, value)| format!("{key}={}+", plain(value))).collect();
    format!("{data}+{recipe}+{varied}seed={seed}")
}

/// Two values may look alike as a name.
fn unique(name: &str, names: &mut HashSet<String>) -> String {
    let candidates = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}+{n}")));
    let mut free = candidates.skip_while(|candidate| names.contains(candidate));
    let name = free.next().unwrap_or_default();
    names.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ssl::recipe::{Facts, RawRecipe};

    use super::*;

    fn plan(text: &str) -> Result<Plan, StudyError> {
        Plan::of(&StudyFile::parse(text, "s.toml", Path::new("")).unwrap(), "s.toml")
    }

    #[test]
    fn every_combination_is_run_with_every_seed() {
        let text = "seeds = [0, 7]\n[data]\na = \"x\"\n[data.b]\nsource = \"y\"\nbatch_size = 8\ngrid.epochs = [1, 2]\n\
                    [common]\nbatch_size = 4\nlr = 0.5\n[recipes.vmf]\n[recipes.dino]\nprototypes = \"none\"\nlr = 1.0\n\
                    [grid]\nglobal_scale = [[0.25, 1], [0.5, 1.0]]\n";
        let plan = plan(text).unwrap();
        assert_eq!((plan.cells.len(), plan.runs.len()), (2 * (2 + 4), 2 * 2 * (2 + 4)));
        assert_eq!(plan.varied, ["global_scale", "epochs"]);
        let names: HashSet<_> = plan.runs.iter().map(|run| &run.name).collect();
        assert_eq!(names.len(), plan.runs.len());
        assert_eq!(plan.runs[1].name, "a+vmf+global_scale=0.25_1+seed=7");
        assert_eq!(plan.runs[1].settings, ["batch_size=4", "lr=0.5", "global_scale=[0.25, 1]", "seed=7"]);
        let last = plan.runs.last().unwrap();
        assert_eq!(last.name, "b+dino+global_scale=0.5_1.0+epochs=2+seed=7");
        let expected = ["batch_size=8", "lr=1.0", "prototypes=none", "global_scale=[0.5, 1.0]", "epochs=2", "seed=7"];
        assert_eq!(last.settings, expected);
        assert_eq!(plan.cells[last.cell].value("epochs"), Some("2"));
        assert_eq!(plan.cells[0].value("epochs"), None);
    }

    #[test]
    fn other_images_are_a_data_set_of_the_study_wherever_that_is_or_have_a_path() {
        let text =
            "[data.a]\nsource = \"x\"\nother = \"b\"\n[data.b]\nsource = \"y\"\nother = \"z\"\n[data]\nc = \"w\"";
        let mut study = StudyFile::parse(text, "s.toml", Path::new("in")).unwrap();
        study.set_source("b", "/elsewhere").unwrap();
        let others: Vec<_> = Plan::of(&study, "s.toml").unwrap().runs.into_iter().map(|run| run.other).collect();
        assert_eq!(others, [Some("/elsewhere".to_owned()), Some("in/z".to_owned()), None]);
    }

    /// As many images as CIFAR-10 has, of its size.
    const IMAGES: Facts = Facts { images: 50_000, height: 32, width: 32, labelled: true, fingerprint: 0 };

    #[test]
    fn every_study_of_the_repository_is_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/studies");
        let mut found = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let (file, text) = StudyFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
            let plan = Plan::of(&file, "").unwrap();
            assert!(!plan.runs.is_empty());
            for run in &plan.runs {
                let mut raw = RawRecipe::default();
                run.settings.iter().for_each(|setting| raw.set_assignment(setting).unwrap());
                let recipe = raw.resolve(&IMAGES).unwrap_or_else(|error| panic!("{}: {error}", run.name));
                assert_eq!(recipe.warnings(), Vec::<String>::new(), "{}", run.name);
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(text.contains(&format!("#   dino-vmf study recipes/studies/{name}")), "{name} names its command");
            found += 1;
        }
        assert!(found > 0);
    }

    #[test]
    fn names_that_would_be_the_same_are_told_apart() {
        let plan =
            plan("[data]\na = \"x\"\n[grid]\nglobal_size = [\"32x16\", \"32X16\"]\nlocal_size=[\"8x8\"]").unwrap();
        assert_ne!(plan.runs[0].name, plan.runs[1].name);
        let mut names = HashSet::new();
        assert_eq!([unique("a", &mut names), unique("a", &mut names), unique("a", &mut names)], ["a", "a+2", "a+3"]);
    }

    #[test]
    fn contradictions_and_mistakes_are_refused() {
        for (text, expected) in [
            ("[data]\na = \"x\"\n[common]\nepochs = 1\n[grid]\nepochs = [1, 2]", "`epochs` is set in [common]"),
            ("[data.a]\nsource = \"x\"\ngrid.epochs = [1]\n[grid]\nepochs = [2]", "[data.a.grid] both have `epochs`"),
        ] {
            let message = plan(text).unwrap_err().to_string();
            assert!(message.starts_with("s.toml: ") && message.contains(expected), "{message}");
        }
        let many = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let text = format!("seeds = [{many}]\n[data]\na = \"x\"\n[grid]\nepochs = [{}]", many.replacen('0', "1", 1));
        assert!(plan(&text).unwrap_err().to_string().contains("more than 10000 runs"));
    }
}
