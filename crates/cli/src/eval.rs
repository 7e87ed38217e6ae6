//! `eval`: one function per protocol.

use std::collections::HashSet;

use data::{OpenError, Split};
use eval::{EvalError, KnnOptions, KnnResult, is_labelled, knn};
use serde_json::json;
use text::count;

use crate::args::{KnnArgs, SplitArg};
use crate::device;
use crate::error::CliError;
use crate::features::extract;
use crate::images;
use crate::output;
use crate::weights;

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

fn list(ks: &[usize]) -> String {
    ks.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// How a source's remark begins, or what it says, where it is about labels that cannot be used.
const REASONS: [&str; 4] = ["labels are not used", "no labels are used", "no labels:", "have no labels"];

/// `eval knn`: held-out images classified by the training images, or each by all others where nothing is held out.
pub fn knn(args: &KnnArgs) -> Result<(), CliError> {
    let device = args.inference.open()?;
    let weights = weights::load(&args.weights, &args.input.network, &device)?;
    let train = images::open_chosen(&args.data, args.split.unwrap_or(SplitArg::Train))?;
    let test = match args.split {
        Some(_) => None,
        None => match images::open(&args.data, Split::Test) {
            Ok(test) => Some(test),
            Err(OpenError::NoTestSplit { .. }) => None,
            Err(error) => return Err(error.into()),
        },
    };
    // Checked before the features are computed, which is what takes the time.
    for (which, source) in [("training", Some(&train)), ("test", test.as_ref())] {
        if let Some(source) = source.filter(|source| !is_labelled(&***source)) {
            let images = source.len();
            // Where the data has labels that cannot be used, that is the reason, and not where labels would go.
            let is_reason = |remark: &&String| REASONS.iter().any(|words| remark.contains(words));
            return Err(match source.remarks().iter().find(is_reason) {
                Some(why) => CliError::Unlabelled { which, why: why.clone() },
                None => EvalError::NoLabels { which, unlabelled: images, images }.into(),
            });
        }
    }
    let is_leave_one_out = test.is_none();
    let most = |images: usize| images.saturating_sub(usize::from(is_leave_one_out));
    let mut options = KnnOptions { ks: neighbors(&args.k, most(train.len())), temperature: args.temperature };
    options.check(most(train.len()))?;
    if test.is_none() && args.split.is_none() {
        output::note("no images are held out: each is classified by all others (leave-one-out)");
    }
    let copies = images::warn_of_copies(&*train, test.as_deref());
    let workers = args.inference.machine.thread_count()?;
    let bank = extract(&weights, &*train, &args.input, workers, &device)?;
    let queries = match &test {
        Some(test) => Some(extract(&weights, &**test, &args.input, workers, &device)?),
        None => None,
    };
    // Images that could not be read vote for nothing. What was asked for is not changed: it is an error below.
    if args.k.is_empty() {
        options.ks = neighbors(&args.k, most(bank.features.len()));
        if options.ks != DEFAULT_KS {
            output::note(&format!("k: {}, as many neighbours as there are (the default is 10,20)", list(&options.ks)));
        }
    }
    let host = args.inference.machine.host(&device)?;
    let results = match &queries {
        Some(queries) => knn::classify(&bank.features, &queries.features, &options, &host)?,
        None => knn::leave_one_out(&bank.features, &options, &host)?,
    };
    let precision = device::precision(&device);
    let neighbors = bank.features.len();
    let judged = queries.as_ref().map_or(neighbors, |queries| queries.features.len());
    let skipped = bank.skipped.len() + queries.as_ref().map_or(0, |queries| queries.skipped.len());
    if args.json {
        let rows: Vec<_> = results.iter().map(|r| json!({ "k": r.k, "top1": r.top1, "top5": r.top5 })).collect();
        let object = json!({
            "protocol": if queries.is_some() { "held-out" } else { "leave-one-out" },
            "weights": text::shown(&weights.path), "data": args.data, "temperature": args.temperature,
            "precision": precision,
            "train_images": neighbors, "test_images": judged, "skipped": skipped, "copies": copies.found, "results": rows,
        });
        return output::json(&object);
    }
    let how = match queries {
        Some(_) => format!("{} by {}", count(judged, "held-out image"), count(neighbors, "training image")),
        None => format!("{}, each by all others", count(judged, "image")),
    };
    let mut text =
        format!("kNN on {how}, features in {precision}, temperature {}\n      k  top-1 %  top-5 %\n", args.temperature);
    for KnnResult { k, top1, top5 } in results {
        text += &format!("{k:7}  {top1:7.2}  {top5:7.2}\n");
    }
    output::result(&text)
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
