//! What a run is worth at its end, in a word and in a sentence with the next thing to try.
//!
//! Judged by what is known: how far the weights have moved, the last numbers of the log, the accuracies of kNN where
//! there are labels, and the steps that data of this size usually needs. Everything comes from the run's files and
//! weights, so that a resumed run is judged as an unbroken one.

use std::fmt;

use serde_json::Value;
use text::thousands;
use train::run::KnnTable;

use super::movement::Movement;
use super::progress::{Accuracy, Trend};
use super::remedy::Remedy;
use super::start;
use super::verdict::{CollapseKind, Course, Verdict};
use super::window::Vitals;
use crate::recipe::{Begin, Recipe};

/// A run whose teacher has followed its student by less than this has not used what it has learnt.
const HARDLY: f64 = 1e-3;
/// Weights that have moved by less than this part of their length are where they began.
const NOTHING: f64 = 1e-6;
/// Global views of more pixels a side are what takes the time of a step.
const LARGE_VIEW: usize = 96;

/// Fewer images say too little of what others look like. A choice rather than a measurement: with so few, a network can
/// learn every one of them by heart, and the numbers of its training look well all the same.
pub const FEW_IMAGES: usize = 32;
/// Steps after which runs on a few thousand images have learnt something that kNN shows, whatever more would give.
const ENOUGH_STEPS: u64 = 2000;
/// A teacher whose entropy is a larger part of ln K is nearly uniform: two that ended so had 0.83 and 0.89 of it.
const NEARLY_UNIFORM: f64 = 0.8;
/// Features of a lower effective rank differ in hardly anything: those two had 2.7 and 4.2.
const LOW_RANK: f64 = 5.0;

/// What to do about a setting that was wrong.
const ANEW: &str = "another --out with that changed";

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All of its steps are done.
    Finished,
    /// Somebody has stopped it.
    Stopped,
    /// A collapse has lasted for too long.
    Collapsed {
        /// The step of the first record that told of it.
        since: u64,
    },
}

/// What is known of a run at its end.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Its settings and its data.
    pub recipe: &'a Recipe,
    /// Steps done.
    pub steps: u64,
    /// How it ended.
    pub ending: Ending,
    /// The records of its log.
    pub log: &'a [Value],
    /// How far its weights have moved; none where that was not looked at.
    pub movement: Option<Movement>,
    /// Accuracies; none without labels, or where they could not be computed.
    pub knn: Option<&'a KnnTable>,
}

/// What a run is worth in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Better than the pixels and than the network before its first step.
    Learnt,
    /// Fewer than half of the steps that such data needs, and nothing learnt yet that could be seen.
    TooShort,
    /// No better than the untrained network, or than the pixels, by more than chance.
    NoGain,
    /// Worse than the pixels themselves.
    BelowRawPixels,
    /// The teacher is uniform, chooses one prototype, or features are all alike or ruined by the learning rate.
    Collapsed,
    /// Worse than the network that was given.
    WorseThanStart,
    /// The weights are where they began.
    DidNotMove,
    /// Nothing looks wrong, and that says nothing: there are hardly any images, and no labels.
    TooFewImages,
    /// Nothing looks wrong, and without labels no more can be said.
    NoLabelsHealthy,
    /// Nothing looks wrong, and the accuracies could not be computed or cannot tell.
    NotJudged,
    /// It was stopped before its end.
    Unfinished,
}

impl Kind {
    /// The word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Learnt => "learnt",
            Kind::TooShort => "too_short",
            Kind::NoGain => "no_gain",
            Kind::BelowRawPixels => "below_raw_pixels",
            Kind::Collapsed => "collapsed",
            Kind::WorseThanStart => "worse_than_start",
            Kind::DidNotMove => "did_not_move",
            Kind::TooFewImages => "too_few_images",
            Kind::NoLabelsHealthy => "no_labels_healthy",
            Kind::NotJudged => "not_judged",
            Kind::Unfinished => "unfinished",
        }
    }
}

/// What a run is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// In a word.
    pub kind: Kind,
    /// In a sentence or two, with the next thing to try.
    pub advice: String,
    /// What is wrong by the last numbers of the log, in words.
    pub verdict: Option<String>,
    /// The epochs of the longer run that the advice is to train.
    pub epochs: Option<usize>,
    /// How it collapsed, where it has.
    pub collapse: Option<CollapseKind>,
    /// What to change in that case.
    pub remedy: Option<Remedy>,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.advice)
    }
}

/// Judges a run.
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    let seen = Seen::of(evidence);
    let Said { kind, advice, epochs } = seen.judged();
    let collapse = seen.collapse();
    let remedy = collapse.and_then(|kind| seen.course.remedies(kind, seen.vitals.as_ref()).into_iter().next());
    Judgement { kind, advice, verdict: seen.words, epochs, collapse, remedy }
}

/// A judgement without what was seen.
struct Said {
    kind: Kind,
    advice: String,
    epochs: Option<usize>,
}

/// A judgement whose advice is not a longer run.
fn said(kind: Kind, advice: String) -> Said {
    Said { kind, advice, epochs: None }
}

/// The evidence, looked at.
struct Seen<'a> {
    evidence: &'a Evidence<'a>,
    course: Course,
    vitals: Option<Vitals>,
    rank: Option<f64>,
    verdict: Verdict,
    words: Option<String>,
    /// Steps that data of this size usually needs.
    needed: u64,
}

impl<'a> Seen<'a> {
    fn of(evidence: &'a Evidence<'a>) -> Self {
        let recipe = evidence.recipe;
        let course = Course::of(recipe);
        let last = evidence.log.iter().rev().find(|record| record.get("loss").is_some());
        let vitals = last.and_then(|record| Vitals::of_record(record, course.teacher_views));
        let rank = last.and_then(|record| record.get("feature_rank")?.as_f64());
        let verdict = vitals.as_ref().map_or(Verdict::Healthy, |v| course.verdict(evidence.steps, v, rank));
        let words = vitals.as_ref().and_then(|v| course.in_words(verdict, v, rank));
        let needed = recipe.usual_epochs() as u64 * recipe.steps_per_epoch();
        Self { evidence, course, vitals, rank, verdict, words, needed }
    }

    fn judged(&self) -> Said {
        match self.evidence.ending {
            Ending::Stopped => return said(Kind::Unfinished, self.unfinished()),
            Ending::Collapsed { since } => return said(Kind::Collapsed, self.ended_by_collapse(since)),
            Ending::Finished => {}
        }
        if let Some(why) = self.stood_still() {
            return said(Kind::DidNotMove, format!("Did not move: {why}"));
        }
        // What is only suspected is nothing to speak of where kNN says that it has learnt.
        let is_refuted = matches!(self.verdict, Verdict::Suspected(_))
            && self.evidence.knn.is_some_and(|knn| Accuracy::of(knn).beats_both());
        if let Some(words) = self.words.as_ref().filter(|_| !is_refuted) {
            return said(Kind::Collapsed, format!("Collapsed: at the end {words}. Next: {ANEW}"));
        }
        match self.evidence.knn {
            Some(knn) => self.by_accuracy(&Accuracy::of(knn)),
            None => self.without_accuracy(),
        }
    }

    /// What speaks against the settings although the numbers look well: the learning rate.
    fn doubt(&self) -> Option<String> {
        self.course.fast_cause(self.vitals.as_ref()).map(|remedy| remedy.to_string())
    }

    fn has_few_images(&self) -> bool {
        self.evidence.recipe.facts().images < FEW_IMAGES
    }

    fn collapse(&self) -> Option<CollapseKind> {
        match (self.verdict, self.evidence.ending) {
            (Verdict::Collapsed(kind) | Verdict::Suspected(kind), _) => Some(kind),
            // A method whose numbers are not these has collapsed by the only measure that all have.
            (_, Ending::Collapsed { .. }) => Some(CollapseKind::SameFeatures),
            _ => None,
        }
    }

    fn ended_by_collapse(&self, since: u64) -> String {
        let Evidence { recipe, steps, .. } = *self.evidence;
        let words = self.words.as_deref().unwrap_or("what it had learnt is lost");
        format!(
            "Collapsed: from step {} on, until it was ended after step {} of {}, {words}. Next: {ANEW}",
            thousands(since),
            thousands(steps),
            thousands(recipe.total_steps())
        )
    }

    fn is_short(&self) -> bool {
        2 * self.evidence.steps < self.needed
    }

    fn unfinished(&self) -> String {
        let Evidence { recipe, steps, log, .. } = *self.evidence;
        let knn = Trend::of(log).last().map_or(String::new(), |top1| format!(", kNN top-1 {top1:.1} % so far"));
        let stopped = format!("Unfinished: stopped after step {steps} of {}{knn}", recipe.total_steps());
        match &self.words {
            Some(words) => format!(
                "{stopped}, and {words}. Run the same command again to continue, or another --out with that changed"
            ),
            None => format!("{stopped}. Run the same command again to continue"),
        }
    }

    /// Why the network that is kept is the one that the run began with; none where it is not.
    fn stood_still(&self) -> Option<String> {
        let Movement { student, teacher } = self.evidence.movement?;
        let recipe = self.evidence.recipe;
        if student < NOTHING {
            return Some(format!(
                "no weight of the network has changed in {} steps: lr {} is too low. Next: leave lr out, or give one near \
                 DINO's {}",
                thousands(self.evidence.steps),
                recipe.lr(),
                super::USUAL_LR
            ));
        }
        let hardly = teacher == 0.0 || (teacher < HARDLY * student && !self.is_short());
        hardly.then(|| {
            format!(
                "the teacher, the network that is kept, stayed where it began while the student was trained: \
                 momentum_teacher {} does not let it follow. Next: leave momentum_teacher out, or give one such as 0.996",
                recipe.momentum_teacher()
            )
        })
    }

    /// The judgement on a run that began with given weights: what counts is whether they have become better.
    fn against_start(&self, found: &Accuracy, is_rising: bool) -> Said {
        let recipe = self.evidence.recipe;
        let (start, now) = found.start_and_end();
        let images = self.evidence.knn.and_then(|knn| knn.images);
        let has_fallen = match images {
            // By the rule of the warnings on the way, which must not be taken back at the end.
            Some(images) => start::fall(start, now, images as usize, recipe),
            None => found.is_worse_than_untrained().then(|| start::ruined(start, now, recipe)),
        };
        if let Some(words) = has_fallen {
            return said(Kind::WorseThanStart, format!("Worse than its start: {words}. Next: {ANEW}"));
        }
        let epochs = is_rising.then(|| self.longer());
        if found.beats_untrained() {
            let next = match epochs {
                Some(epochs) => format!("more of the same: --epochs {epochs} in another --out"),
                None => "use its features, as above".to_owned(),
            };
            let still = if is_rising { " and was still rising" } else { "" };
            return Said { kind: Kind::Learnt, advice: format!("Learnt: {found}{still}. Next: {next}"), epochs };
        }
        let so_far = format!("{} ({})", found.in_words(), found.with_margin());
        // What is adapted was trained already, and a few epochs of its own are usual; anything else is a training like any other.
        let is_short = recipe.begin() == Begin::Init && self.is_short();
        let epochs = (is_rising || is_short).then(|| self.longer());
        let next = match epochs {
            Some(epochs) if is_rising => format!("it was still rising: --epochs {epochs}"),
            Some(epochs) => format!("{} steps are few: --epochs {epochs}", thousands(self.evidence.steps)),
            None if recipe.pull() > 0.0 => "more images, or a higher backbone_lr with a weaker pull".to_owned(),
            None if recipe.backbone_lr() < 1.0 => "more images, or a higher backbone_lr".to_owned(),
            None => "more images".to_owned(),
        };
        let advice = format!("No gain: {so_far}; nothing is lost, and nothing gained. Next: {next}, in another --out");
        Said { kind: Kind::NoGain, advice, epochs }
    }

    fn by_accuracy(&self, found: &Accuracy) -> Said {
        let trend = Trend::of(self.evidence.log);
        let is_rising = trend.is_rising(found.margin);
        if self.evidence.recipe.begin() != Begin::Drawn && found.says_nothing().is_none() {
            return self.against_start(found, is_rising);
        }
        if found.beats_both() {
            let epochs = (is_rising || self.is_short()).then(|| self.longer());
            let next = match epochs {
                Some(epochs) => format!("more of the same: --epochs {epochs} in another --out"),
                None => "use its features, as above".to_owned(),
            };
            let still = if is_rising { " and was still rising" } else { "" };
            return Said { kind: Kind::Learnt, advice: format!("Learnt: {found}{still}. Next: {next}"), epochs };
        }
        let doubt = self.doubt();
        if let Some(why) = found.says_nothing() {
            let doubt = doubt.map_or(String::new(), |doubt| format!(". {doubt}"));
            let next = "`dino-vmf eval knn` on more images, or on harder labels";
            return said(Kind::NotJudged, format!("Not judged: {why} ({found}){doubt}. Next: {next}"));
        }
        if let Some(cause) = doubt.filter(|_| found.is_worse_than_untrained()) {
            let advice = format!("Collapsed: training has ruined the features ({found}). {cause}. Next: {ANEW}");
            return said(Kind::Collapsed, advice);
        }
        let so_far = format!("{} ({})", found.in_words(), found.with_margin());
        if let Some(why) = self.nearly_collapsed().filter(|_| !is_rising && !found.beats_untrained()) {
            let advice = self.course.advice(CollapseKind::Uniform, self.vitals.as_ref());
            return said(Kind::Collapsed, format!("Nearly collapsed: {why}; {so_far}. {advice}. Next: {ANEW}"));
        }
        if self.is_short() {
            return self.short(&so_far);
        }
        let (kind, title) = match found.is_below_raw_pixels() {
            true => (Kind::BelowRawPixels, "Below raw pixels"),
            false => (Kind::NoGain, "No gain"),
        };
        if let Some(doubt) = self.doubt() {
            return said(kind, format!("{title}: {so_far}. {doubt}. Next: {ANEW}"));
        }
        let epochs = is_rising.then(|| self.longer());
        let next = match (epochs, trend.fell(found.margin)) {
            (Some(epochs), _) => format!("it was still rising: --epochs {epochs} in another --out"),
            (_, Some((epoch, best))) => {
                format!("kNN was best after epoch {epoch} ({best:.1} %) and fell since: a lower lr in another --out")
            }
            _ => {
                "milder crops (global_scale, local_scale), a lower lr or a sharper teacher in another --out; `dino-vmf \
                  views` shows what the network sees"
                    .to_owned()
            }
        };
        Said { kind, advice: format!("{title}: {so_far}. Next: {next}"), epochs }
    }

    /// What speaks for a run that is on its way to a collapse, or just above one; none where nothing does, or where it is too
    /// early to tell. Not called wrong by itself: only where nothing was learnt.
    fn nearly_collapsed(&self) -> Option<String> {
        let steps = self.evidence.steps;
        let (vitals, ln_k) = (self.vitals.as_ref()?, (self.course.prototypes as f64).ln());
        if steps < ENOUGH_STEPS || self.course.is_early(steps) {
            return None;
        }
        let mut signs = Vec::new();
        if vitals.teacher_entropy > NEARLY_UNIFORM * ln_k {
            let (entropy, k) = (vitals.teacher_entropy, self.course.prototypes);
            signs.push(format!("the teacher is nearly uniform (its entropy is {entropy:.1} of ln {k} = {ln_k:.1})"));
        }
        signs.extend(self.rank.filter(|&rank| rank < LOW_RANK).map(|rank| format!("features have rank {rank:.1}")));
        (!signs.is_empty()).then(|| format!("after {} steps {}", thousands(steps), signs.join(", and ")))
    }

    fn without_accuracy(&self) -> Said {
        let mut numbers = Vec::new();
        if let Some(vitals) = &self.vitals {
            let (used, of) = (vitals.prototypes_in_use, self.course.prototypes);
            numbers.push(format!("{} of {} prototypes in use", thousands(used as u64), thousands(of as u64)));
        }
        numbers.extend(self.rank.map(|rank| format!("features of rank {rank:.1}")));
        let doubt = self.doubt();
        let well = match (self.verdict, doubt.is_some(), numbers.join(", ")) {
            (Verdict::Early, ..) => "the teacher is still uniform, as it is at first".to_owned(),
            (_, true, numbers) if numbers.is_empty() => "the log says nothing".to_owned(),
            (_, true, numbers) => numbers,
            (_, false, numbers) if numbers.is_empty() => "nothing looks wrong".to_owned(),
            (_, false, numbers) => format!("nothing looks wrong ({numbers})"),
        };
        let recipe = self.evidence.recipe;
        if self.has_few_images() && !recipe.facts().labelled {
            let images = text::count(recipe.facts().images, "image");
            let doubt = doubt.map_or(String::new(), |doubt| format!(". {doubt}"));
            let advice = format!(
                "Too few images to tell: the numbers of a training on {images} ({well}) do not show whether its features \
                 serve others{doubt}. Next: hundreds of images, better thousands, in another --out"
            );
            return said(Kind::TooFewImages, advice);
        }
        if self.is_short() || self.verdict == Verdict::Early {
            return self.short(&well);
        }
        let doubt_words = doubt.map_or(String::new(), |doubt| format!(". {doubt}"));
        if recipe.facts().labelled {
            let next = "`dino-vmf eval knn`, once what is said above is mended";
            let advice = format!("Not judged: kNN could not be computed; {well}{doubt_words}. Next: {next}");
            return said(Kind::NotJudged, advice);
        }
        let next = "`dino-vmf eval knn` on images with labels, or use its features, as above";
        said(Kind::NoLabelsHealthy, format!("No labels to judge by; {well}{doubt_words}. Next: {next}"))
    }

    /// The judgement on a run that is too short, of which so much can be said so far.
    fn short(&self, so_far: &str) -> Said {
        let (title, kind) = (self.too_short(), Kind::TooShort);
        if let Some(doubt) = self.doubt() {
            return said(kind, format!("{title}; so far {so_far}. {doubt}. Next: {ANEW}"));
        }
        let few = match self.has_few_images() {
            true => "; so few images do not show much, and more of them help more than more epochs",
            false => "",
        };
        let epochs = Some(self.usual_or_more());
        Said { kind, advice: format!("{title}; so far {so_far}. Next: {}{few}", self.more()), epochs }
    }

    fn too_short(&self) -> String {
        let Evidence { recipe, steps, .. } = *self.evidence;
        let images = text::count(recipe.facts().images, "image");
        let needs = if recipe.facts().images == 1 { "needs" } else { "need" };
        let (steps, needed) = (thousands(steps), thousands(self.needed));
        format!("Too short to tell: {steps} steps of about {needed} that {images} {needs}")
    }

    /// How to train as long as such data needs.
    fn more(&self) -> String {
        let recipe = self.evidence.recipe;
        let smaller = match recipe.global_size().short() > LARGE_VIEW {
            true => format!("; --global-size {LARGE_VIEW} makes a step several times cheaper"),
            false => String::new(),
        };
        format!("--epochs {} in another --out{smaller}", self.usual_or_more())
    }

    fn usual_or_more(&self) -> usize {
        self.evidence.recipe.usual_epochs().max(self.evidence.recipe.epochs())
    }

    /// Twice the epochs, but no more than such data needs unless the run has had those.
    fn longer(&self) -> usize {
        let (epochs, usual) = (self.evidence.recipe.epochs(), self.evidence.recipe.usual_epochs());
        if epochs < usual { (2 * epochs).min(usual) } else { 2 * epochs }
    }
}
