//! Whether a network that was given is being lost: its accuracy against that of its start.

use super::verdict::USUAL_LR;
use crate::recipe::{Begin, Recipe};

/// What the learning rate is divided by in the advice.
const LOWER: f64 = 4.0;
/// A pull that is switched off is advised to be this strong.
const SOME_PULL: f64 = 1.0;

/// What to say of an accuracy, in per cent, that has fallen below that of the start by more than chance explains on so many
/// images: by two standard errors, and by two images at least. None where it has not.
pub fn fall(start: f64, now: f64, images: usize, recipe: &Recipe) -> Option<String> {
    let (share, n) = (start / 100.0, images.max(1) as f64);
    let margin = (200.0 * (share * (1.0 - share) / n).sqrt()).max(200.0 / n);
    (now < start - margin).then(|| ruined(start, now, recipe))
}

/// The same in any case.
pub(super) fn ruined(start: f64, now: f64, recipe: &Recipe) -> String {
    let short = |x: f64| format!("{x:.1e}").parse::<f64>().unwrap_or(x);
    let pull = match recipe.pull() {
        0.0 => SOME_PULL,
        pull => short(10.0 * pull),
    };
    let lower = match recipe.begin() {
        Begin::Adapt => format!("--set backbone_lr={}", short(recipe.backbone_lr() / LOWER)),
        _ => format!("--adapt in place of --init, --set lr={}", short((recipe.lr() / LOWER).min(USUAL_LR))),
    };
    format!(
        "kNN fell from {start:.1} % at the start to {now:.1} %: this learning rate is ruining the network; try {lower} or \
         --set pull={pull}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Facts, RawRecipe};

    fn recipe(text: &str) -> Recipe {
        let facts = Facts { images: 500, height: 32, width: 32, labelled: true, fingerprint: 7 };
        let text = format!("begin_weights = \"0123456789abcdef\"\n{text}");
        RawRecipe::from_toml(&text, "test").unwrap().resolve(&facts).unwrap()
    }

    #[test]
    fn a_fall_counts_where_chance_does_not_explain_it() {
        let adapted = recipe("begin = \"adapt\"\npull = 2");
        let said = fall(71.2, 58.3, 600, &adapted).unwrap();
        assert!(said.starts_with("kNN fell from 71.2 % at the start to 58.3 %: this learning rate"), "{said}");
        assert!(said.ends_with("try --set backbone_lr=0.025 or --set pull=20"), "{said}");
        // Two standard errors of 71.2 % are 3.7 points of 600 images, and 9.1 of 100.
        assert_eq!((fall(71.2, 68.0, 600, &adapted), fall(71.2, 62.5, 100, &adapted)), (None, None));
        assert!(fall(71.2, 67.0, 600, &adapted).is_some());
        assert_eq!(fall(100.0, 99.0, 100, &adapted), None, "one image");
        let plain = fall(71.2, 58.3, 600, &recipe("begin = \"init\"\nlr = 1e-3")).unwrap();
        assert!(plain.contains("--adapt in place of --init, --set lr=0.00025 or --set pull=1"), "{plain}");
    }
}
