//! `eval knn`: held-out images classified by their nearest training images, or each by all others where nothing is held out.

use std::cell::RefCell;
use std::collections::HashSet;

use eval::{EvalError, KnnOptions, KnnResult, Place, knn};
use serde_json::json;
use text::count;

use super::record::{self, Evaluation, Judgement};
use super::sets;
use super::shelf::Shelf;
use crate::args::KnnArgs;
use crate::error::CliError;
use crate::output;
use crate::progress::Pass;

const KNN: Evaluation = Evaluation { name: "knn", version: 1 };
/// The numbers of neighbours where none are asked for.
const DEFAULT_KS: [usize; 2] = [10, 20];

/// The numbers of neighbours that were asked for; the usual ones where none were, and no more than there are images.
fn neighbors(asked: &[u32], most: usize) -> Vec<usize> {
    let mut ks: Vec<usize> = match asked {
        [] => DEFAULT_KS.iter().map(|&k| k.min(most.max(1))).collect(),
        asked => asked.iter().map(|&k| k as usize).collect(),
    };
    // Each once, in the order asked for.
    let mut seen = HashSet::new();
    ks.retain(|&k| seen.insert(k));
    ks
}

/// How many neighbours there are.
fn most(images: usize, is_leave_one_out: bool) -> usize {
    images.saturating_sub(usize::from(is_leave_one_out))
}

/// Refuses numbers of neighbours that so many training images do not have.
pub fn check_asked(asked: &[u32], train_images: usize, is_leave_one_out: bool) -> Result<(), EvalError> {
    let most = most(train_images, is_leave_one_out);
    KnnOptions { ks: neighbors(asked, most), ..Default::default() }.check(most).map(|_| ())
}

fn list(ks: &[usize]) -> String {
    ks.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Classifies: an accuracy for each number of neighbours.
pub fn judge(args: &KnnArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let opened = sets::open(&args.sets, args.split, shelf)?;
    let is_leave_one_out = !opened.has_test();
    let most = |images: usize| most(images, is_leave_one_out);
    let train_images = opened.train_images();
    let mut options = KnnOptions { ks: neighbors(&args.k, most(train_images)), temperature: args.temperature };
    options.check(most(train_images))?;
    if is_leave_one_out && args.split.is_none() {
        output::note("no images are held out: each is classified by all others (leave-one-out)");
    }
    let copies = opened.warn_of_copies();
    let sets = opened.compute()?;
    let bank = &sets.train.features;
    // Images that could not be read vote for nothing. What was asked for is not changed: it is an error below.
    if args.k.is_empty() {
        options.ks = neighbors(&args.k, most(bank.len()));
        if options.ks != DEFAULT_KS {
            output::note(&format!("k: {}, as many neighbours as there are (the default is 10,20)", list(&options.ks)));
        }
    }
    let pass = RefCell::new(Pass::new("classified image", sets.judged()));
    let tell = |done, total| _ = pass.borrow_mut().show(done, total);
    let place = Place::new(&sets.host, &sets.device).watched_by(&tell);
    let results = match &sets.test {
        Some(test) => knn::classify(bank, &test.features, &options, place)?,
        None => knn::leave_one_out(bank, &options, place)?,
    };
    let rows: Vec<_> = results.iter().map(|r| json!({ "k": r.k, "top1": r.top1, "top5": r.top5 })).collect();
    let found = json!({
        "protocol": if is_leave_one_out { "leave-one-out" } else { "held-out" },
        "temperature": args.temperature, "copies": copies.map(|copies| copies.found), "results": rows,
    });
    let settings = json!({ "k": options.ks, "temperature": args.temperature });
    let record = record::of_sets(KNN, settings, &sets, found);
    let (neighbors, judged) = (bank.len(), sets.judged());
    let how = match is_leave_one_out {
        false => format!("{} by {}", count(judged, "held-out image"), count(neighbors, "training image")),
        true => format!("{}, each by all others", count(judged, "image")),
    };
    let (features, temperature) = (sets.precision(), args.temperature);
    let mut table = format!("kNN on {how}, {features}, temperature {temperature}\n      k  top-1 %  top-5 %\n");
    for KnnResult { k, top1, top5 } in results {
        table += &format!("{k:7}  {top1:7.2}  {top5:7.2}\n");
    }
    Ok(Judgement { record, table })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_neighbours_are_no_more_than_there_are_and_those_asked_for_stay() {
        assert_eq!([30, 20, 19, 7, 1].map(|most| list(&neighbors(&[], most))), ["10,20", "10,20", "10,19", "7", "1"]);
        assert_eq!(neighbors(&[25, 3], 7), [25, 3]);
        assert_eq!(neighbors(&[1, 5, 1, 5, 2], 7), [1, 5, 2], "nothing is evaluated twice");
    }
}
