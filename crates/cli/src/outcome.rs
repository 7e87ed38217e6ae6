//! What a finished run is worth, as it is printed.

use std::path::Path;

use ssl::recipe::Recipe;
use text::{count, printable};
use train::run::{BACKBONE_FILE, RunResult};

use crate::output::shell;

/// For people: the accuracies, where the weights are and what can be done with them, and last what the run is worth.
/// `longer` is the command of a longer run, where that is advised.
pub fn table(result: &RunResult, run: &Path, data: &str, recipe: &Recipe, longer: Option<String>) -> String {
    let run = shell(&run.display().to_string());
    let data = shell(data);
    let mut text = match &result.knn {
        Some(t) => format!(
            "top-1 kNN (k={}) on {}:\n  raw pixels         {:5.1} %\n  untrained network  {:5.1} %\n  \
             trained network    {:5.1} %\n\n",
            t.k,
            printable(&t.judged),
            t.raw_pixels,
            t.untrained,
            t.trained
        ),
        None => {
            let loss = result.loss.map_or(String::new(), |loss| format!(", last loss {loss:.4}"));
            format!("trained {}{loss}. There are no labels to judge it by\n\n", count(result.steps as usize, "step"))
        }
    };
    if result.substitutes > 0 {
        let times = count(result.substitutes as usize, "time");
        text += &format!("warning: another image stood in for one that could not be read, {times}\n\n");
    }
    text += &format!("weights   {run}/{} ({}/{}, DINO's names)\n", BACKBONE_FILE, recipe.arch(), recipe.patch_size());
    text += &format!("next      dino-vmf features --weights {run} --data {data} --out features.safetensors\n");
    if result.knn.is_some() {
        text += &format!("          dino-vmf eval knn --weights {run} --data {data}\n");
    }
    if let Some(command) = longer {
        text += &format!("longer    {command}\n");
    }
    // Last, where it is read: what the run is worth.
    if let Some((_, advice)) = &result.judgement {
        text += &format!("\n{advice}\n");
    }
    text
}
