//! From TOML text, `--set` and flags to a [`RawRecipe`].

use std::path::Path;

use text::excerpt;
use toml::{Table, Value};
use train::run::{RunError, RunReader};

use super::check::Facts;
use super::error::RecipeError;
use super::fields::{RawRecipe, Recipe};

/// No recipe is larger: one with every key and a comment on each has a few KiB.
const MOST_BYTES: u64 = 1 << 20;

/// The table of a saved configuration that says which data it was resolved for.
pub(super) const FACTS: &str = "data";
/// In that table, where the data is. Runs of earlier versions do not say.
pub(super) const SOURCE: &str = "source";

/// Where a value of `--set` came from.
pub(super) const SET: &str = "--set";

impl RawRecipe {
    /// Reads a recipe file.
    pub fn from_file(path: &Path) -> Result<Self, RecipeError> {
        let text = files::read_text_or_pipe_bounded(path, MOST_BYTES)
            .map_err(|source| RecipeError::Read { path: path.to_owned(), source })?;
        Self::from_toml(&text, &text::shown(path))
    }

    /// Reads the text of a recipe; `place` names it in messages.
    ///
    /// The `[data]` table of a saved configuration is passed over, so that one run's `config.toml` is another's recipe.
    pub fn from_toml(text: &str, place: &str) -> Result<Self, RecipeError> {
        let mut raw = Self::default();
        let table = parse(text, place)?;
        for (key, value) in &table {
            if key == FACTS && value.is_table() {
                continue;
            }
            let place = match line_of(key, text) {
                Some(line) => format!("{place}:{line}"),
                None => place.to_owned(),
            };
            raw.set(key, value, &place)?;
        }
        // A saved configuration has every key of its time.
        if table.get(FACTS).is_some_and(Value::is_table) {
            raw.fill_as_before(&format!("{place}, which is older than this key"));
        }
        Ok(raw)
    }

    /// Sets a key from a flag's text: a TOML value if it is one, otherwise a string. `place` names the flag.
    pub fn set_text(&mut self, key: &str, text: &str, place: &str) -> Result<(), RecipeError> {
        let text = text.trim();
        let value = match (text.parse::<Value>(), text.parse::<f64>()) {
            (Ok(value), _) => value,
            // `.5` and `5.` are numbers to everybody but TOML.
            (_, Ok(number)) => Value::Float(number),
            _ => Value::String(text.to_owned()),
        };
        self.set(key, &value, place)
    }

    /// Sets a key from the `key=value` of `--set`. The last one wins; [`RawRecipe::beside`] tells two apart.
    pub fn set_assignment(&mut self, assignment: &str) -> Result<(), RecipeError> {
        let (key, value) =
            assignment.split_once('=').ok_or_else(|| RecipeError::NotAnAssignment { text: assignment.to_owned() })?;
        self.set_text(key.trim(), value, SET)
    }
}

impl Recipe {
    /// Reads what [`Recipe::to_toml`] wrote: the same recipe again.
    pub fn from_toml(text: &str, place: &str) -> Result<Self, RecipeError> {
        let table = parse(text, place)?;
        let facts = table.get(FACTS);
        let missing = |key| RecipeError::NoFacts { place: place.to_owned(), key };
        let fact = |key| facts.and_then(|facts| facts.get(key)).ok_or_else(|| missing(key));
        let count = |key| {
            let number = fact(key)?.as_integer().and_then(|n| usize::try_from(n).ok());
            number.ok_or_else(|| missing(key))
        };
        // Hexadecimal text: TOML's integers have 63 bits.
        let fingerprint = fact("fingerprint")?.as_str().and_then(|text| u64::from_str_radix(text, 16).ok());
        let facts = Facts {
            images: count("images")?,
            height: count("height")?,
            width: count("width")?,
            labelled: fact("labelled")?.as_bool().ok_or_else(|| missing("labelled"))?,
            fingerprint: fingerprint.ok_or_else(|| missing("fingerprint"))?,
        };
        let source = table.get(FACTS).and_then(|facts| facts.get(SOURCE)?.as_str()).map(str::to_owned);
        Ok(Self { source, ..RawRecipe::from_toml(text, place)?.resolve(&facts)? })
    }
}

/// The recipe of a run.
pub fn of_run(run: &RunReader) -> Result<Recipe, RunError> {
    let (text, path) = run.config()?;
    Recipe::from_toml(&text, "config.toml").map_err(|source| RunError::Config { path, source: source.into() })
}

pub(super) fn parse(text: &str, place: &str) -> Result<Table, RecipeError> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        RecipeError::Syntax { place: format!("{place}:{line}"), message: excerpt(error.message()).into_owned() }
    })
}

/// The line, counted from 1, that sets a key.
fn line_of(key: &str, text: &str) -> Option<usize> {
    let sets = |line: &str| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    text.lines().position(sets).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        RawRecipe::from_toml(text, "my.toml").unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
        assert_eq!(
            message("seed = 1\n\nepoch = 100\n"),
            "my.toml:3: unknown recipe key `epoch`: did you mean `epochs`?"
        );
        assert!(message("horizontal_flip = true").contains("known are method, prototypes"));
    }

    #[test]
    fn two_values_for_one_key_on_a_command_line_are_an_error_that_names_both() {
        let set = |assignment: &str| {
            let mut raw = RawRecipe::default();
            raw.set_assignment(assignment).unwrap();
            raw
        };
        let mut flag = RawRecipe::default();
        flag.set_text("prototypes", "l2", "--prototypes").unwrap();
        let message = set("prototypes=vmf").beside(flag.clone()).unwrap_err().to_string();
        assert!(message.contains("`--set prototypes=vmf` and `--prototypes l2`"), "{message}");
        let message = set("epochs=1").beside(set("epochs=2")).unwrap_err().to_string();
        assert!(message.contains("`--set epochs=1` and `--set epochs=2`"), "{message}");
        assert!(set("epochs=2").beside(set("epochs=2")).is_ok() && set("epochs=2").beside(flag).is_ok());
    }

    #[test]
    fn a_section_is_answered_with_what_to_do() {
        assert_eq!(
            message("[model]\narch = \"vit_tiny\""),
            "my.toml: a recipe has no sections: leave `[model]` out and keep its keys"
        );
        assert!(RawRecipe::from_toml("seed = 1\n[data]\nimages = 3\n", "my.toml").is_ok(), "a saved configuration");
    }

    #[test]
    fn a_saved_configuration_from_before_a_choice_means_what_there_was() {
        let old = RawRecipe::from_toml("seed = 1\n[data]\nimages = 3\n", "config.toml").unwrap();
        assert_eq!(old.orientation.unwrap().value, data::Orientation::AsStored);
        assert_eq!(old.start.unwrap().value, model::Start::Random);
        let new = RawRecipe::from_toml("start = \"mimetic\"\n[data]\nimages = 3\n", "config.toml").unwrap();
        assert_eq!(new.start.unwrap().value, model::Start::Mimetic);
        assert!(RawRecipe::from_toml("seed = 1", "my.toml").unwrap().start.is_none(), "a recipe leaves it open");
    }

    #[test]
    fn a_wrong_type_or_range_names_key_value_and_what_is_allowed() {
        for (text, expected) in [
            ("epochs = 0", "my.toml:1: recipe key `epochs` cannot be 0: it must be a whole number from 1 to 1000000"),
            ("epochs = 1.5", "`epochs` cannot be 1.5"),
            ("epochs = -3", "`epochs` cannot be -3"),
            ("lr = \"big\"", "`lr` cannot be \"big\": it must be a number above 0, up to 10"),
            ("lr = nan", "`lr` cannot be nan"),
            ("drop_path = 1.0", "from 0, below 1"),
            ("head_batch_norm = 1", "true or false"),
            ("prototypes = \"vfm\"", "one of none, l2, vmf"),
            ("global_scale = [0.5, 0.2]", "[low, high] with 0 < low <= high <= 1"),
            ("global_scale = [0.5]", "[low, high]"),
            ("local_size = \"96\"", "\"HEIGHTxWIDTH\""),
            ("local_size = \"96x0\"", "each from 1 to 16384"),
            ("center_floor = 3.0", "\"off\" or a number from -1000000 to 0"),
            ("out_dim = 1", "from 2 to"),
            ("head_layers = 0", "from 1 to 16"),
            ("[epochs]\nx = 1", "`epochs` cannot be"),
        ] {
            let message = message(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn a_method_that_there_is_not_is_answered_with_those_there_are() {
        assert!(message("method = \"byol\"").contains("one of dino, ibot, msn"));
    }

    #[test]
    fn text_that_is_no_toml_is_reported_with_its_line() {
        assert!(message("seed = 1\nepochs = = 3").starts_with("my.toml:2: not a TOML file"));
        assert!(message("seed = 1\nseed = 2").starts_with("my.toml:2: not a TOML file"));
    }

    #[test]
    fn set_takes_toml_values_and_bare_words() {
        let mut raw = RawRecipe::default();
        for assignment in ["epochs=7", "lr = 1e-3", "teacher_temp=.05", "prototypes=l2", "global_size=32x64"] {
            raw.set_assignment(assignment).unwrap();
        }
        raw.set_assignment("local_scale=[0.1, 0.5]").unwrap();
        assert_eq!(raw.epochs.as_ref().unwrap().value, 7);
        assert_eq!(raw.lr.as_ref().unwrap().value, 1e-3);
        assert_eq!(raw.teacher_temp.as_ref().unwrap().value, 0.05);
        assert_eq!(raw.global_size.as_ref().unwrap().value.to_string(), "32x64");
        let missing = raw.set_assignment("epochs").unwrap_err().to_string();
        assert_eq!(missing, "--set epochs: must be key=value, for example --set epochs=100");
        let unknown = raw.set_assignment("batchsize=3").unwrap_err().to_string();
        assert_eq!(unknown, "--set: unknown recipe key `batchsize`: did you mean `batch_size`?");
    }

    #[test]
    fn a_later_layer_wins_and_leaves_the_rest() {
        let file = RawRecipe::from_toml("epochs = 5\nseed = 1", "f").unwrap();
        let mut flags = RawRecipe::default();
        flags.set_text("epochs", "9", "--epochs").unwrap();
        let both = file.overlaid_by(flags);
        assert_eq!((both.epochs.unwrap().value, both.seed.unwrap().value), (9, 1));
    }

    #[test]
    fn what_a_file_holds_neither_steers_a_terminal_nor_floods_it() {
        let long = "x".repeat(100_000);
        for text in [
            format!("\"a\\u001b[2J\\n{long}\" = 1"),
            format!("prototypes = \"\\u001b[2J\\n{long}\""),
            format!("[\"\\u001b[2J\\n{long}\"]\na = 1"),
            format!("method = \"\\u001b[2J\\n{long}\""),
            format!("seed = \"\\u001b[2J\\n{long}\""),
            format!("seed = 1\n\"\\u001b\\n{long}\" = 1\n\"\\u001b\\n{long}\" = 1"),
        ] {
            let message = message(&text);
            assert!(text::is_plain(&message) && message.len() < 3000, "{}: {message}", message.len());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_end_is_no_recipe() {
        let error = RawRecipe::from_file(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("/dev/zero") && error.contains("not a regular file"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.toml");
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = RawRecipe::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("larger than 1048576 bytes"), "{error}");
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let message = RawRecipe::from_file(Path::new("no/such/recipe.toml")).unwrap_err().to_string();
        assert!(message.starts_with("no/such/recipe.toml: cannot read the recipe"), "{message}");
    }
}
