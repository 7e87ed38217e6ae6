//! Average precision and precision at k of a ranking, as the revisited benchmarks define them.

use rayon::prelude::*;
use tensor::Device;

use super::ground_truth::{GroundTruth, Query};
use super::ranking::Ranking;

/// The k of mP@k.
pub const DEPTHS: [usize; 3] = [1, 5, 10];

/// What counts as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difficulty {
    /// Easy images; hard ones are junk.
    Easy,
    /// Easy and hard ones alike.
    Medium,
    /// Hard images; easy ones are junk.
    Hard,
}

impl Difficulty {
    /// From the easiest on.
    pub const ALL: [Difficulty; 3] = [Difficulty::Easy, Difficulty::Medium, Difficulty::Hard];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Difficulty::Easy => "easy",
            Difficulty::Medium => "medium",
            Difficulty::Hard => "hard",
        }
    }

    /// The lists of right answers, and those that are taken out of the ranking.
    fn lists(self, query: &Query) -> (Vec<&[u32]>, Vec<&[u32]>) {
        let Query { easy, hard, junk, .. } = query;
        match self {
            Difficulty::Easy => (vec![easy], vec![junk, hard]),
            Difficulty::Medium => (vec![easy, hard], vec![junk]),
            Difficulty::Hard => (vec![hard], vec![junk, easy]),
        }
    }
}

/// How good a ranking is at one difficulty. Shares of one, not per cent.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The difficulty.
    pub difficulty: Difficulty,
    /// Mean of the average precisions; none where no query has a right answer.
    pub map: Option<f64>,
    /// Mean precision among the first k of [`DEPTHS`].
    pub mp: Option<[f64; DEPTHS.len()]>,
    /// Average precision of each query; none for one without a right answer, which is left out of the means.
    pub aps: Vec<Option<f64>>,
}

/// Average precision by trapezoids: `positions` are those of the right answers in the ranking, from 0, ascending; `relevant` is
/// how many there are, found or not.
///
/// With precision j/r before and (j+1)/(r+1) after the j-th right answer at place r, AP is the mean of the two over all
/// right answers.
///
/// ```
/// let ap = eval::retrieval::average_precision(&[0, 2, 5], 3);
/// assert!((ap - 0.677_777_777_8).abs() < 1e-10);
/// ```
pub fn average_precision(positions: &[usize], relevant: usize) -> f64 {
    let step = 1.0 / relevant as f64;
    let area = |(found, &rank): (usize, &usize)| {
        let before = if rank == 0 { 1.0 } else { found as f64 / rank as f64 };
        let after = (found + 1) as f64 / (rank + 1) as f64;
        (before + after) * step / 2.0
    };
    positions.iter().enumerate().map(area).sum()
}

/// Scores a ranking at every difficulty, on the threads of `host`.
///
/// # Panics
/// When the ranking is not of as many queries.
pub fn score(truth: &GroundTruth, ranking: &Ranking, host: &Device) -> [Score; 3] {
    assert_eq!(truth.queries.len(), ranking.queries(), "a ranking for each query");
    Difficulty::ALL.map(|difficulty| {
        let judge = |index: usize| judge(truth, &truth.queries[index], difficulty, ranking.of(index));
        let judged: Vec<Option<Judged>> = host.run(|| (0..truth.queries.len()).into_par_iter().map(judge).collect());
        let counted: Vec<&Judged> = judged.iter().flatten().collect();
        let mean = |value: &dyn Fn(&Judged) -> f64| {
            let sum: f64 = counted.iter().map(|judged| value(judged)).sum();
            (!counted.is_empty()).then(|| sum / counted.len() as f64)
        };
        let mut mp = [0.0; DEPTHS.len()];
        for (place, mp) in mp.iter_mut().enumerate() {
            *mp = mean(&|judged| judged.precisions[place]).unwrap_or_default();
        }
        Score {
            difficulty,
            map: mean(&|judged| judged.ap),
            mp: (!counted.is_empty()).then_some(mp),
            aps: judged.iter().map(|judged| judged.as_ref().map(|judged| judged.ap)).collect(),
        }
    })
}

struct Judged {
    ap: f64,
    precisions: [f64; DEPTHS.len()],
}

/// Judges the ranking of one query; none where it has no right answer.
fn judge(truth: &GroundTruth, query: &Query, difficulty: Difficulty, ranked: &[u32]) -> Option<Judged> {
    let (right, junk) = difficulty.lists(query);
    let relevant: usize = right.iter().map(|list| list.len()).sum();
    if relevant == 0 {
        return None;
    }
    let mark = |lists: &[&[u32]]| {
        let mut marks = vec![false; truth.database.len()];
        lists.iter().copied().flatten().for_each(|&image| marks[image as usize] = true);
        marks
    };
    let (is_right, is_junk) = (mark(&right), mark(&junk));
    let mut positions = Vec::with_capacity(relevant);
    let mut place = 0;
    for &image in ranked {
        if is_right[image as usize] {
            positions.push(place);
        }
        // What is junk moves those behind it up.
        place += usize::from(!is_junk[image as usize]);
    }
    // Places beyond the last right answer are not asked for: a query of two right answers in front has a precision of one.
    let last = positions.last().map_or(0, |last| last + 1);
    let precision = |depth: usize| match last.min(depth) {
        0 => 0.0,
        depth => positions.iter().filter(|&&place| place < depth).count() as f64 / depth as f64,
    };
    Some(Judged { ap: average_precision(&positions, relevant), precisions: DEPTHS.map(precision) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retrieval::test_truth;

    #[test]
    fn the_golden_values_of_two_queries_over_twelve_images() {
        let truth = test_truth();
        let ranking = Ranking::from_lists(&[vec![3, 7, 1, 0, 5, 2, 9, 4, 6, 8, 11, 10], (0..12).collect()]);
        let host = Device::cpu(Default::default()).unwrap();
        let [easy, medium, hard] = score(&truth, &ranking, &host);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-10, "{a} {b}");
        near(easy.map.unwrap(), 0.791_666_666_7);
        assert_eq!(easy.aps[1], None);
        near(medium.map.unwrap(), 0.438_005_050_5);
        near(medium.aps[0].unwrap(), 0.763_888_888_9);
        near(medium.aps[1].unwrap(), 0.112_121_212_1);
        near(hard.map.unwrap(), 0.181_060_606_1);
        near(hard.aps[0].unwrap(), 0.25);
        near(hard.aps[1].unwrap(), 0.112_121_212_1);
        for (score, want) in [(&medium, [0.5, 0.375, 0.425]), (&hard, [0.0, 0.25, 0.3])] {
            score.mp.unwrap().iter().zip(want).for_each(|(&mp, want)| near(mp, want));
        }
    }

    #[test]
    fn average_precision_of_a_perfect_and_of_an_empty_ranking() {
        assert_eq!(average_precision(&[0, 1, 2], 3), 1.0);
        assert_eq!(average_precision(&[], 3), 0.0);
        // Half of them found, in front.
        assert_eq!(average_precision(&[0], 2), 0.5);
    }

    #[test]
    fn a_benchmark_without_right_answers_has_no_mean() {
        let mut truth = test_truth();
        truth.queries.iter_mut().for_each(|query| query.hard.clear());
        let ranking = Ranking::from_lists(&[vec![3], vec![0]]);
        let host = Device::cpu(Default::default()).unwrap();
        let [easy, _, hard] = score(&truth, &ranking, &host);
        assert_eq!((hard.map, hard.mp, hard.aps), (None, None, vec![None, None]));
        assert_eq!(easy.mp, Some([1.0; 3]), "the first is right, and nothing else is ranked");
        assert_eq!(easy.map, Some(0.5), "one of two is found");
    }
}
