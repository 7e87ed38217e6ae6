//! The command that follows the advice to train for longer, as a whole: what was asked for, without what it contradicts.

use std::path::Path;

use ssl::recipe::{Origin, Recipe};

use crate::args::{AUTO, PretrainArgs};
use crate::beginning;

/// Keys that follow the length of a run, so that a longer one finds its own.
const OF_THE_LENGTH: [&str; 2] = ["epochs", "knn_every"];

/// The command that trains a run of this recipe for so many epochs, in a folder beside its own. What `--minutes` has found
/// is said in its place: the time is what the longer run does not keep to.
pub fn command(args: &PretrainArgs, recipe: &Recipe, out: &Path, epochs: u64) -> String {
    let asked = &args.recipe;
    let mut words = vec!["dino-vmf".to_owned(), "pretrain".to_owned(), "--data".to_owned(), asked.data.clone()];
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    if let Some(file) = &asked.recipe {
        add("--recipe", file.to_string_lossy().into_owned());
    }
    for (flag, weights) in [("--init", &args.init), ("--adapt", &args.adapt)] {
        if let Some(weights) = weights {
            add(flag, beginning::source(weights, Some(out)).to_string_lossy().into_owned());
        }
    }
    if let Some(heads) = args.attention_heads {
        add("--attention-heads", heads.to_string());
    }
    if let Some((height, width)) = args.trained_size {
        add("--trained-size", format!("{height}x{width}"));
    }
    for (_, value, flag) in asked.keys.given().filter(|(key, ..)| *key != "epochs") {
        add(flag, value.to_owned());
    }
    let key_of = |assignment: &str| assignment.split('=').next().unwrap_or_default().trim().to_owned();
    for assignment in asked.set.iter().filter(|assignment| key_of(assignment) != "epochs") {
        add("--set", assignment.clone());
    }
    for line in recipe.explain() {
        let is_found = matches!(&line.origin, Origin::Given(place) if place.starts_with("--minutes "));
        if is_found && !OF_THE_LENGTH.contains(&line.key) {
            add("--set", format!("{}={}", line.key, line.value.trim_matches('"')));
        }
    }
    if args.device.device != AUTO {
        add("--device", args.device.device.clone());
    }
    if let Some(threads) = args.device.threads {
        add("--threads", threads.to_string());
    }
    add("--epochs", epochs.to_string());
    let name = out.file_name().map_or("run".into(), |name| name.to_string_lossy());
    add("--out", out.with_file_name(format!("{name}-{epochs}-epochs")).to_string_lossy().into_owned());
    words.iter().map(|word| text::shell(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use ssl::recipe::{Facts, RawRecipe};

    fn of(line: &[&str]) -> String {
        let words = ["dino-vmf", "pretrain"].iter().chain(line);
        let Command::Pretrain(args) = Cli::try_parse_from(words).unwrap().command else { panic!("another command") };
        let facts = Facts { images: 500, height: 48, width: 48, labelled: true, fingerprint: 0 };
        let mut raw = RawRecipe::default();
        if args.minutes.is_some() {
            for (key, value) in [("arch", "vit_nano"), ("global_size", "32"), ("epochs", "7"), ("knn_every", "2")] {
                raw.set_text(key, value, "--minutes 5").unwrap();
            }
        }
        let recipe = raw.resolve(&facts).unwrap();
        command(&args, &recipe, Path::new("runs/my run"), 800)
    }

    #[test]
    fn the_command_says_all_that_was_asked_for_and_what_the_minutes_found() {
        assert_eq!(
            of(&[
                "--data",
                "my photos",
                "--epochs=9",
                "--set",
                "lr=0.001",
                "--set",
                "epochs=9",
                "--seed=3",
                "--threads=2"
            ]),
            "dino-vmf pretrain --data 'my photos' --seed 3 --set lr=0.001 --threads 2 --epochs 800 --out \
             'runs/my run-800-epochs'"
        );
        assert_eq!(
            of(&["--data=d", "--minutes=5", "--recipe=r.toml", "--device=cpu"]),
            "dino-vmf pretrain --data d --recipe r.toml --set arch=vit_nano --set global_size=32 --device cpu --epochs 800 \
             --out 'runs/my run-800-epochs'"
        );
    }
}
