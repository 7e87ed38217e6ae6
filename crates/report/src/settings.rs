//! The settings of a run with the reasons that its `config.toml` gives for them: they stand there as comments.

use ssl::recipe::{BUILT_IN, Recipe};

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Somebody asked for it.
    Given,
    /// It follows from the data or from other values.
    Derived,
    /// It is as always.
    Default,
    /// The file does not say.
    Unknown,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key.
    pub key: String,
    /// Its value as TOML.
    pub value: String,
    /// Where it came from.
    pub from: From,
    /// The same in the words of the file, with the reason.
    pub why: String,
}

impl Setting {
    /// Whether somebody has asked for it, or a time for which the run was to last: what another run must be told. The
    /// recipe of the built-in images is found again by itself.
    pub(crate) fn is_asked_for(&self) -> bool {
        let is_found_again = self.why.strip_prefix("given: ").is_some_and(|place| place.starts_with(BUILT_IN));
        (self.from == From::Given && !is_found_again) || self.why.starts_with(FITS)
    }
}

/// What is said of a value that a time decided.
const FITS: &str = "derived: fits into --minutes ";

/// The settings of a recipe, with what the text that it was read from says of them.
pub fn of(recipe: &Recipe, text: &str) -> Vec<Setting> {
    let lines: Vec<(&str, &str)> = text.lines().filter_map(explained).collect();
    let setting = |line: ssl::recipe::Line| {
        let why = lines.iter().find(|(key, _)| *key == line.key).map_or("", |(_, why)| *why);
        let (from, why) = match (why.split(':').next(), why.strip_prefix("given: --minutes ")) {
            // Nobody asked for the value itself.
            (_, Some(minutes)) => (From::Derived, format!("{FITS}{minutes}")),
            (Some("given"), _) => (From::Given, why.to_owned()),
            (Some("derived"), _) => (From::Derived, why.to_owned()),
            (Some("default"), _) => (From::Default, why.to_owned()),
            _ => (From::Unknown, why.to_owned()),
        };
        Setting { key: line.key.to_owned(), value: line.value, from, why }
    };
    recipe.explain().into_iter().map(setting).collect()
}

/// The key of a line `key = value  # why`, and why. A `#` within quotes is part of the value.
fn explained(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once('=')?;
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in rest.char_indices() {
        match c {
            '\\' if is_quoted => is_escaped = !is_escaped,
            '"' if !is_escaped => is_quoted = !is_quoted,
            '#' if !is_quoted => return Some((key.trim(), rest[at + 1..].trim())),
            _ => is_escaped = false,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use ssl::recipe::{Facts, RawRecipe};

    #[test]
    fn reasons_survive_the_file_that_they_are_written_to() {
        let facts = Facts { images: 500, height: 48, width: 48, labelled: true, fingerprint: 0 };
        let recipe = RawRecipe::from_toml("epochs = 7", "my # file.toml").unwrap().resolve(&facts).unwrap();
        let settings = of(&recipe, &recipe.to_toml());
        let find = |key: &str| settings.iter().find(|setting| setting.key == key).unwrap();
        assert_eq!((find("epochs").value.as_str(), find("epochs").from), ("7", From::Given));
        assert_eq!(find("epochs").why, "given: my # file.toml:1");
        assert_eq!(find("out_dim").from, From::Derived);
        assert!(find("out_dim").why.contains("500 images"), "{}", find("out_dim").why);
        assert_eq!(find("student_temp").from, From::Default);
        assert!(settings.iter().all(|setting| setting.from != From::Unknown));
        let fitted = of(&recipe, "epochs = 7  # given: --minutes 5");
        let epochs = fitted.iter().find(|setting| setting.key == "epochs").unwrap();
        assert_eq!((epochs.from, epochs.why.as_str()), (From::Derived, "derived: fits into --minutes 5"));
        assert!(of(&recipe, "").iter().all(|setting| setting.from == From::Unknown));
    }

    #[test]
    fn a_mark_within_quotes_begins_no_comment() {
        assert_eq!(explained("a = \"x # \\\" # y\"  # given: --set"), Some(("a", "given: --set")));
        assert_eq!(explained("a = \"x # y\""), None);
        assert_eq!(explained("# a comment alone"), None);
    }
}
