//! Which views a step has, in which order their rows lie, and which network sees which.
//!
//! A batch comes in groups of one size, each view by view: image `b` of view `v` of a group is number `v * batch + b`. The
//! rows of a network are those of the views that it sees, in the same order. Nobody else needs to know this.

use std::ops::Range;

use data::views::{GLOBAL_VIEWS, MultiCrop};
use random::Key;
use tensor::ops::Pixels;

/// Which network sees a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The student alone: a local view.
    Student,
    /// The teacher alone: a target that the student must not see.
    Teacher,
    /// Both.
    Both,
}

/// One of the two networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// The network that is trained.
    Student,
    /// The network that gives the targets.
    Teacher,
}

impl Sight {
    fn includes(self, viewer: Viewer) -> bool {
        match self {
            Sight::Both => true,
            Sight::Student => viewer == Viewer::Student,
            Sight::Teacher => viewer == Viewer::Teacher,
        }
    }
}

/// Views of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewGroup {
    /// (height, width) in pixels.
    pub size: (usize, usize),
    /// Which network sees each of them.
    pub sights: Vec<Sight>,
}

/// The views of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewPlan {
    groups: Vec<ViewGroup>,
    channels: usize,
}

/// Images of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewShape {
    /// How many.
    pub count: usize,
    /// Rows of each.
    pub height: usize,
    /// Columns of each.
    pub width: usize,
    /// Channels of each.
    pub channels: usize,
}

impl ViewShape {
    /// Bytes of all their pixels.
    pub fn bytes(self) -> usize {
        self.count * self.height * self.width * self.channels
    }
}

impl ViewPlan {
    /// A plan of groups that come in this order.
    pub fn new(groups: Vec<ViewGroup>, channels: usize) -> Self {
        Self { groups, channels }
    }

    /// DINO's: global views that both networks see, then local ones for the student.
    pub fn multi_crop(views: &MultiCrop, channels: usize) -> Self {
        let group = |size, sight, count| ViewGroup { size, sights: vec![sight; count] };
        let mut groups = vec![group(views.global_size, Sight::Both, GLOBAL_VIEWS)];
        if views.local_crops > 0 {
            groups.push(group(views.local_size, Sight::Student, views.local_crops));
        }
        Self::new(groups, channels)
    }

    /// The groups of a step of this many images.
    pub fn shapes(&self, batch: usize) -> Vec<ViewShape> {
        let shape = |group: &ViewGroup| {
            let ((height, width), count) = (group.size, group.sights.len() * batch);
            ViewShape { count, height, width, channels: self.channels }
        };
        self.groups.iter().map(shape).collect()
    }

    /// The numbers, among all views of an image, of those that a network sees.
    pub fn seen_by(&self, viewer: Viewer) -> Vec<usize> {
        let all = self.groups.iter().flat_map(|group| &group.sights).enumerate();
        all.filter(|(_, sight)| sight.includes(viewer)).map(|(view, _)| view).collect()
    }

    /// The sizes of the views that a network sees.
    pub fn sizes_seen_by(&self, viewer: Viewer) -> impl Iterator<Item = (usize, usize)> {
        let of_group = move |group: &ViewGroup| {
            let count = group.sights.iter().filter(|sight| sight.includes(viewer)).count();
            std::iter::repeat_n(group.size, count)
        };
        self.groups.iter().flat_map(of_group)
    }

    /// The keys of the student's rows: each view of each image draws from one of its own.
    pub fn student_keys(&self, key: Key, samples: &[u64]) -> Vec<Key> {
        let of_view = |view: usize| samples.iter().map(move |&sample| key.sample(sample).view(view as u32));
        self.seen_by(Viewer::Student).into_iter().flat_map(of_view).collect()
    }

    /// How student rows are compared with teacher rows.
    pub fn pairs(&self) -> Pairs {
        Pairs { student: self.seen_by(Viewer::Student), teacher: self.seen_by(Viewer::Teacher) }
    }

    /// Some of the images of a step, out of `batch`, whose groups are given whole.
    pub fn part<'a>(&'a self, groups: &'a [Pixels<'a>], batch: usize, images: Range<usize>) -> Part<'a> {
        Part { plan: self, groups, batch, images }
    }
}

/// Some images of a step with all their views.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    plan: &'a ViewPlan,
    groups: &'a [Pixels<'a>],
    batch: usize,
    images: Range<usize>,
}

impl<'a> Part<'a> {
    /// How many images these are.
    pub fn images(&self) -> usize {
        self.images.len()
    }

    /// The number of the first of them in the step.
    pub fn first_image(&self) -> usize {
        self.images.start
    }

    /// Whether student row `row` of the whole step is one of these images.
    pub fn contains_row(&self, row: usize) -> bool {
        self.images.contains(&(row % self.batch))
    }

    /// The views that a network sees, as it takes them. Neighbouring views of the whole step stay in one piece.
    pub fn seen_by(&self, viewer: Viewer) -> Vec<Pixels<'a>> {
        let mut seen = Vec::new();
        for (group, pixels) in self.plan.groups.iter().zip(self.groups) {
            for views in runs(&group.sights, viewer) {
                if self.images.len() == self.batch {
                    seen.push(pixels.slice(views.start * self.batch..views.end * self.batch));
                } else {
                    let of_view =
                        |view: usize| view * self.batch + self.images.start..view * self.batch + self.images.end;
                    seen.extend(views.map(|view| pixels.slice(of_view(view))));
                }
            }
        }
        seen
    }
}

/// Neighbouring views that a network sees.
fn runs(sights: &[Sight], viewer: Viewer) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for view in (0..sights.len()).filter(|&view| sights[view].includes(viewer)) {
        match runs.last_mut() {
            Some(run) if run.end == view => run.end += 1,
            _ => runs.push(view..view + 1),
        }
    }
    runs
}

/// Cross-entropy terms: every view of the student against every other view of the teacher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    student: Vec<usize>,
    teacher: Vec<usize>,
}

impl Pairs {
    /// Terms of an image.
    pub fn terms(&self) -> usize {
        self.student.iter().map(|s| self.teacher.iter().filter(|&t| t != s).count()).sum()
    }

    /// The teacher rows that each student row is compared with, for this many images.
    pub fn targets(&self, images: usize) -> Vec<Vec<usize>> {
        let of_row = |view: usize, image: usize| {
            let others = self.teacher.iter().enumerate().filter(move |&(_, &t)| t != view);
            others.map(|(place, _)| place * images + image).collect()
        };
        self.student.iter().flat_map(|&view| (0..images).map(move |image| of_row(view, image))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::ops::PixelData;

    fn dino(local_crops: usize) -> ViewPlan {
        ViewPlan::multi_crop(&MultiCrop { local_crops, ..MultiCrop::dino() }, 3)
    }

    /// A target that only the teacher sees, an anchor, and two focal views.
    fn masked() -> ViewPlan {
        let global = ViewGroup { size: (2, 1), sights: vec![Sight::Teacher, Sight::Student] };
        let focal = ViewGroup { size: (1, 1), sights: vec![Sight::Student; 2] };
        ViewPlan::new(vec![global, focal], 1)
    }

    #[test]
    fn dino_compares_every_student_view_with_the_other_global_views() {
        let pairs = dino(2).pairs();
        assert_eq!((dino(8).pairs().terms(), pairs.terms()), (18, 6));
        // Rows of two images: views 0 and 1 have one target each, local views both.
        let expected: [&[usize]; 8] = [&[2], &[3], &[0], &[1], &[0, 2], &[1, 3], &[0, 2], &[1, 3]];
        assert_eq!(pairs.targets(2), expected);
        assert_eq!(dino(0).shapes(4).len(), 1);
    }

    #[test]
    fn a_view_of_the_teacher_alone_is_nobodys_row_but_its_own() {
        let plan = masked();
        assert_eq!((plan.seen_by(Viewer::Teacher), plan.seen_by(Viewer::Student)), (vec![0], vec![1, 2, 3]));
        assert_eq!(plan.pairs().targets(2), [[0], [1], [0], [1], [0], [1]]);
        assert_eq!(plan.pairs().terms(), 3);
    }

    #[test]
    fn parts_hold_the_rows_of_their_images_view_by_view() {
        let plan = masked();
        // The value of a pixel says its group, view and image.
        let value = |group: usize, views: usize, pixels: usize| -> Vec<f64> {
            let image = |v: usize, b: usize| vec![(100 * group + 10 * v + b) as f64; pixels];
            (0..views).flat_map(|v| (0..3).flat_map(move |b| image(v, b))).collect()
        };
        let (global, focal) = (value(0, 2, 2), value(1, 2, 1));
        let group = |height, data| Pixels { count: 6, height, width: 1, channels: 1, data: PixelData::Values(data) };
        let groups = [group(2, &global), group(1, &focal)];
        let shown = |part: &Part<'_>, viewer| -> Vec<Vec<f64>> {
            let values = |p: Pixels<'_>| match p.data {
                PixelData::Values(values) => values.iter().step_by(p.height).copied().collect(),
                _ => vec![],
            };
            part.seen_by(viewer).into_iter().map(values).collect()
        };
        let whole = plan.part(&groups, 3, 0..3);
        assert_eq!(shown(&whole, Viewer::Teacher), [[0.0, 1.0, 2.0]]);
        let student = [vec![10.0, 11.0, 12.0], vec![100.0, 101.0, 102.0, 110.0, 111.0, 112.0]];
        assert_eq!(shown(&whole, Viewer::Student), student);
        let last = plan.part(&groups, 3, 1..3);
        assert_eq!(shown(&last, Viewer::Student), [[11.0, 12.0], [101.0, 102.0], [111.0, 112.0]]);
        assert_eq!(last.images(), 2);
        let rows: Vec<usize> = (0..9).filter(|&row| last.contains_row(row)).collect();
        assert_eq!(rows, [1, 2, 4, 5, 7, 8]);
    }
}
