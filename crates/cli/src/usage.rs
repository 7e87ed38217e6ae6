//! Errors of the command line, with what would be right: the nearest option, the way to set a recipe's key, both places
//! of an option that is given twice.

use std::fmt::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::args::Cli;

/// Width that a list of options is wrapped at.
const COLUMNS: usize = 100;
/// What places on a command line are called that take networks without a flag.
const TAKES_NETWORKS: [&str; 3] = ["W", "RUN", "RUN|RESULT.json"];

/// The same error, explained. `words` are those of the command line, without the program's name.
pub fn explained(error: clap::Error, words: &[String]) -> clap::Error {
    let given = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) => given.clone(),
        _ => return error,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => unknown(error, &given, words),
        ErrorKind::ArgumentConflict => given_twice(error, &given, words),
        _ => error,
    }
}

/// An option that there is not.
fn unknown(mut error: clap::Error, given: &str, words: &[String]) -> clap::Error {
    let (command, path) = called(words);
    let name = given.trim_start_matches('-').replace('-', "_");
    // Flags exist for the keys of a recipe that are needed most; any other is set.
    let takes_keys = command.get_arguments().any(|arg| arg.get_long() == Some("set"));
    let has_nearest = error.get(ContextKind::SuggestedArg).is_some();
    let key = match ssl::recipe::keys().find(|&key| takes_keys && key == name) {
        None if takes_keys && !has_nearest && given.starts_with("--") => ssl::recipe::nearest_key(&name),
        exact => exact,
    };
    if let Some(key) = key {
        error.remove(ContextKind::SuggestedArg);
        let tip = if key == name { "set it with" } else { "a similar key of the recipe is set with" };
        suggest(&mut error, format!("{tip} '--set {key}=...'"));
    }
    let place = command.get_positionals().next().and_then(|place| place.get_value_names()?.first());
    if let Some(name) = place.filter(|name| given == "--weights" && TAKES_NETWORKS.contains(&name.as_str())) {
        suggest(&mut error, format!("runs and weights are given here without a flag: dino-vmf {path}{name}"));
    }
    let list = wrapped(command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()));
    let usage = format!("{list}\n`dino-vmf {path}--help` explains them");
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    error
}

/// An option that is given twice: both would be read by a person, one by a program.
fn given_twice(mut error: clap::Error, given: &str, words: &[String]) -> clap::Error {
    let option = given.split([' ', '=', '[']).next().unwrap_or(given);
    let written = |(i, word): (usize, &String)| match word.strip_prefix(option)? {
        "" => {
            let value = words.get(i + 1).filter(|next| !next.starts_with("--"));
            Some(value.map_or(word.clone(), |value| format!("{word} {value}")))
        }
        rest if rest.starts_with('=') => Some(word.clone()),
        _ => None,
    };
    let places: Vec<String> = words.iter().enumerate().filter_map(written).collect();
    if let [first, .., last] = &places[..] {
        suggest(&mut error, format!("keep one of '{first}' and '{last}'"));
    }
    error
}

fn suggest(error: &mut clap::Error, tip: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The command that the words call, and its words with a space behind them.
fn called(words: &[String]) -> (Command, String) {
    let (mut command, mut path) = (Cli::command(), String::new());
    for word in words {
        match command.find_subcommand(word).cloned() {
            Some(next) => command = next,
            None => break,
        }
        _ = write!(path, "{word} ");
    }
    (command, path)
}

fn wrapped<'a>(options: impl Iterator<Item = &'a str>) -> String {
    let (mut text, mut column) = ("The options are".to_owned(), 15);
    for option in options {
        let word = format!(" --{option}");
        if column + word.len() > COLUMNS {
            text += "\n ";
            column = 1;
        }
        column += word.len();
        text += &word;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn message(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let all = std::iter::once("dino-vmf".to_owned()).chain(words.iter().cloned());
        explained(Cli::try_parse_from(all).unwrap_err(), &words).to_string()
    }

    #[test]
    fn an_unknown_option_is_answered_with_the_nearest_and_with_all() {
        let said = message("pretrain --epoch 3");
        assert!(said.contains("'--epochs'") && said.contains("`dino-vmf pretrain --help`"), "{said}");
        let said = message("eval knn --weights w --data d --frobnicate");
        for part in ["--temperature", "--image-size", "`dino-vmf eval knn --help` explains them"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn weights_where_runs_have_no_flag_are_answered_with_their_place() {
        for (line, place) in [
            ("figure prototypes --weights runs/a --out a.svg", "dino-vmf figure prototypes RUN|RESULT.json"),
            ("inspect --weights runs/a", "dino-vmf inspect W"),
            ("report --weights runs/a", "dino-vmf report RUN"),
        ] {
            let said = message(line);
            assert!(said.contains("without a flag") && said.contains(place), "{said}");
        }
        for other in ["pretrain", "study", "runs", "watch"] {
            assert!(!message(&format!("{other} --weights runs/a")).contains("without a flag"), "{other}");
        }
    }

    #[test]
    fn a_key_of_the_recipe_is_answered_with_the_way_to_set_it() {
        assert!(message("pretrain --momentum-teacher 1").contains("set it with '--set momentum_teacher=...'"));
        assert!(message("views --out-scale 1 --wieght-decay 0").contains("explains them"));
        let said = message("pretrain --wieght-decay 0");
        assert!(said.contains("a similar key of the recipe is set with '--set weight_decay=...'"), "{said}");
        assert!(!message("bench step --momentum-teacher 1").contains("--set"));
    }

    #[test]
    fn an_option_given_twice_is_named_with_both_values() {
        let said = message("pretrain --epochs 9 --seed=1 --epochs=1");
        assert!(said.contains("cannot be used multiple times"), "{said}");
        assert!(said.contains("keep one of '--epochs 9' and '--epochs=1'"), "{said}");
        assert!(message("eval knn --json --json").contains("'--json' and '--json'"));
    }
}
