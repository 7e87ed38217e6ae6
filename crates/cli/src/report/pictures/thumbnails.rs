//! Images of the data, small and square.

use data::augment::{Filter, center_crop, resize};
use data::decode::Reduction;
use data::encode::to_rgb;
use data::{DecodeLimits, Image, Reader, Source};
use ssl::recipe::Recipe;
use tensor::Device;

/// How an image is shown.
#[derive(Clone, Copy)]
pub struct Square<'a> {
    /// Pixels of a side, at most: smaller images stay as they are.
    pub side: usize,
    /// What the network reads of an image: its channels, and which way up.
    pub recipe: &'a Recipe,
    /// Whose threads read.
    pub host: &'a Device,
}

/// The centres of some images; none for one that cannot be read.
pub fn read(source: &dyn Source, indices: &[usize], square: Square<'_>) -> Vec<Option<Image>> {
    let Square { side, recipe, host } = square;
    let channels = recipe.channels();
    let threads = host.threads().max(1);
    // Neighbours in a file are read by one thread.
    let piece = indices.len().div_ceil(threads).max(1);
    let work = |indices: &[usize]| -> Vec<Option<Image>> {
        let mut reader = Reader::new(DecodeLimits::default(), channels).oriented(recipe.orientation());
        let mut image = Image::black(1, 1, channels);
        let mut one = |index: usize| {
            let mut reduce = |height: usize, width: usize| {
                let fits = |reduction: &Reduction| height.min(width) / reduction.divisor() >= 2 * side;
                Reduction::ALL.into_iter().find(fits).unwrap_or(Reduction::None)
            };
            reader.read_reduced(source, index, &mut reduce, &mut image).ok().map(|_| centre(&image, side))
        };
        indices.iter().map(|&index| one(index)).collect()
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = indices.chunks(piece).map(|part| (part.len(), scope.spawn(|| work(part)))).collect();
        let joined = |(length, thread): (usize, std::thread::ScopedJoinHandle<'_, Vec<Option<Image>>>)| {
            // A thread that failed leaves its images unseen, and nothing else.
            thread.join().unwrap_or_else(|_| vec![None; length])
        };
        started.into_iter().flat_map(joined).collect()
    })
}

/// The square in the middle, in colours, no larger than it is.
fn centre(image: &Image, side: usize) -> Image {
    let short = image.height.min(image.width);
    let square = center_crop(image, (short, short));
    let side = side.min(short);
    let small = if square.width > side { resize(&square, (side, side), Filter::Bicubic) } else { square };
    to_rgb(&small)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images;
    use data::Split;
    use ssl::recipe::RawRecipe;

    #[test]
    fn images_are_cut_to_squares_and_never_enlarged() {
        let wide = centre(&Image::black(300, 200, 1), 80);
        assert_eq!((wide.width, wide.height, wide.channels), (80, 80, 3));
        let small = centre(&Image::black(20, 31, 4), 80);
        assert_eq!((small.width, small.height, small.channels), (20, 20, 3));
    }

    #[test]
    fn any_number_of_threads_reads_the_same_and_what_is_not_there_is_left_out() {
        let source = images::open("synthetic:train=9,size=24", Split::Train).unwrap();
        let facts = images::facts(&*source, 3, Default::default()).unwrap();
        let recipe = RawRecipe::from_toml("", "test").unwrap().resolve(&facts).unwrap();
        let read = |threads| {
            let host = Device::cpu(tensor::CpuOptions { threads: Some(threads), ..Default::default() }).unwrap();
            read(&*source, &[3, 99, 0, 8, 8], Square { side: 12, recipe: &recipe, host: &host })
        };
        let images = read(1);
        assert!(images == read(2) && images == read(7));
        assert_eq!(images.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true, true]);
        assert!(images[3] == images[4] && images[0] != images[2]);
    }
}
