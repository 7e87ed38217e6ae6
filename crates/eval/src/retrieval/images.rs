//! The images of a benchmark, and what a network sees of them.

use std::path::{Path, PathBuf};

use data::augment::{Rect, crop};
use data::transform::thumbnail;
use data::{Image, PathsSource, Source};

use super::error::RetrievalError;
use super::ground_truth::GroundTruth;

/// The images of a ground truth, found in a folder.
pub struct Benchmark {
    /// What is searched, in the order of the ground truth.
    pub database: PathsSource,
    /// What is looked for.
    pub queries: PathsSource,
}

impl Benchmark {
    /// Finds all images of a ground truth: NAME.jpg in the folder `jpg` of `folder`, or in `folder` itself.
    pub fn open(folder: &Path, truth: &GroundTruth) -> Result<Self, RetrievalError> {
        let root = Some(folder.join("jpg")).filter(|jpg| jpg.is_dir()).unwrap_or_else(|| folder.to_owned());
        let source = |names: &mut dyn Iterator<Item = &String>| {
            let (mut paths, mut last) = (Vec::new(), String::new());
            for name in names {
                paths.push(PathBuf::from(format!("{name}.jpg")));
                last.clone_from(name);
                // Each on its own, so that the error can say which.
                if PathsSource::new(&root, paths[paths.len() - 1..].to_vec()).is_none() {
                    return Err(RetrievalError::Name { name: last });
                }
            }
            PathsSource::new(&root, paths).ok_or(RetrievalError::Name { name: last })
        };
        let database = source(&mut truth.database.iter())?;
        let queries = source(&mut truth.queries.iter().map(|query| &query.name))?;
        let missing: Vec<(&Path, usize)> = [database.missing(), queries.missing()].into_iter().flatten().collect();
        if let Some((first, _)) = missing.first() {
            return Err(RetrievalError::Missing {
                folder: root,
                missing: missing.iter().map(|(_, count)| count).sum(),
                images: database.len() + queries.len(),
                first: text::shown(first).into_owned(),
            });
        }
        Ok(Self { database, queries })
    }
}

/// A part of an image: left, top, right, bottom in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part(pub [f64; 4]);

impl Part {
    /// Cuts it out, its sides rounded as Pillow's `crop` does, to the even one of two equally near; as far as it lies in the
    /// image. None where nothing of it does.
    fn of(self, image: &Image) -> Option<Image> {
        let within = |side: f64, most: usize| side.round_ties_even().clamp(0.0, most as f64) as usize;
        let Part([left, top, right, bottom]) = self;
        let (left, right) = (within(left, image.width), within(right, image.width));
        let (top, bottom) = (within(top, image.height), within(bottom, image.height));
        let rect = Rect { top, left, height: bottom.checked_sub(top)?, width: right.checked_sub(left)? };
        rect.fits(image.height, image.width).then(|| crop(image, rect))
    }
}

/// What a network sees of an image: a part of it or the whole, no larger than `side` pixels a side.
pub(super) fn prepared(image: &Image, part: Option<Part>, side: usize) -> Result<Image, String> {
    match part {
        None => Ok(thumbnail(image, (side, side))),
        Some(part) => match part.of(image) {
            Some(image) => Ok(thumbnail(&image, (side, side))),
            None => Err(format!(
                "the part that the ground truth means, {:?}, lies outside of {} x {} pixels",
                part.0, image.width, image.height
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retrieval::test_truth;

    #[test]
    fn a_part_is_cut_out_as_pillow_does() {
        let image = Image::from_pixels(6, 4, 1, (0..24).collect());
        let part = |sides| Part(sides).of(&image);
        // Image.crop((0.5, 1.5, 2.5, 3.4)) is that of (0, 2, 2, 3).
        assert_eq!(part([0.5, 1.5, 2.5, 3.4]), Some(Image::from_pixels(2, 1, 1, vec![12, 13])));
        assert_eq!(part([-5.0, 2.6, 1.0, 99.0]), Some(Image::from_pixels(1, 1, 1, vec![18])));
        assert_eq!([part([6.0, 0.0, 9.0, 4.0]), part([1.0, 1.0, 1.2, 3.0])], [None, None]);
        assert!(prepared(&image, Some(Part([7.0, 0.0, 9.0, 4.0])), 3).unwrap_err().contains("6 x 4 pixels"));
        assert_eq!(prepared(&image, None, 3).map(|image| (image.width, image.height)), Ok((3, 2)));
        assert_eq!(prepared(&image, None, 100).as_ref(), Ok(&image), "never enlarged");
    }

    #[test]
    fn images_are_found_in_either_place_and_missing_ones_are_named() {
        let (truth, folder) = (test_truth(), tempfile::tempdir().unwrap());
        let names = || truth.database.iter().chain(truth.queries.iter().map(|query| &query.name));
        let write = |folder: &Path| {
            names().for_each(|name| std::fs::write(folder.join(format!("{name}.jpg")), name).unwrap());
        };
        write(folder.path());
        assert_eq!(Benchmark::open(folder.path(), &truth).unwrap().queries.name(1), "b.jpg");
        let jpg = folder.path().join("jpg");
        std::fs::create_dir(&jpg).unwrap();
        let error = Benchmark::open(folder.path(), &truth).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("14 of the ground truth's 14 images") && error.contains("image_0.jpg"), "{error}");
        write(&jpg);
        assert_eq!(Benchmark::open(folder.path(), &truth).unwrap().database.len(), 12);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let mut truth = test_truth();
        truth.queries[1].name = "../../secret".to_owned();
        let error = Benchmark::open(Path::new("nowhere"), &truth).map(|_| ()).unwrap_err();
        assert!(matches!(&error, RetrievalError::Name { name } if name == "../../secret"), "{error}");
    }
}
