//! `attention`: what a network looks at in images, as pictures.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use data::{Source, sheet};
use eval::attention::{Colors, Look, SHORT, Seen, heat, kept, lit, looks};
use eval::memory::{Kept, estimate_features};
use eval::{EvalError, Network, Pooling, Preparation, ReadOptions};
use tensor::Device;
use text::count;

use crate::args::AttentionArgs;
use crate::device;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::output;
use crate::output_file::Input;
use crate::pictures::Pictures;
use crate::progress::{Console, Meter};
use crate::weights::{self, Weights};

/// Images where no number is asked for.
const IMAGES: usize = 8;
/// Characters of an image's own name in those of its pictures.
const NAME: usize = 60;

/// What was drawn.
pub struct Drawn {
    /// The pictures of each image, in the folder: first the image itself, then the mean over heads; of frames, that alone.
    pub images: Vec<Vec<PathBuf>>,
    /// How many of what, in words.
    pub table: String,
}

/// Draws and writes the pictures, and says how many.
pub fn run(args: &AttentionArgs) -> Result<(), CliError> {
    let device = args.inference.open()?;
    let weights = weights::load(&args.weights, &args.network, &device)?;
    output::result(&draw(args, &weights, &device)?.table)
}

/// Draws and writes the pictures of this network.
pub fn draw(args: &AttentionArgs, weights: &Weights, device: &Device) -> Result<Drawn, CliError> {
    let source = images::open_chosen(&args.data, args.split)?;
    let config = weights.loaded.vit.config();
    let usual = if args.frames { source.len() } else { IMAGES };
    let total = args.images.map_or(usual, |images| images as usize).min(source.len());
    let drawing = Drawing { patch: config.patch, heads: config.heads, threshold: args.threshold, frames: args.frames };
    // Before the work: names of pictures follow from those of the images.
    let names: Vec<PathBuf> = (0..total).flat_map(|index| drawing.names(&*source, index)).collect();
    let inputs = [Input::file("--weights", &args.weights), Input::data(&args.data)];
    let pictures = Pictures::check(&args.out, "--out", &names, args.force, &inputs)?;
    let seen = seen(args, weights);
    check_memory(weights, seen, device)?;
    let network = Network {
        normalization: Some(&weights.normalization),
        ..Network::new(&weights.loaded.vit, &weights.loaded.weights, device)
    };
    let orientation = args.orientation.unwrap_or(weights.input.orientation);
    let console = Console::new(total as u64);
    let mut meter = Meter::started(&console, "image");
    let (mut written, mut failed, mut images) = (0, None, Vec::new());
    let drawn = looks(network, &*source, seen, orientation, total, &mut |look| {
        let done = look.index as u64 + 1;
        for (name, png) in drawing.names(&*source, look.index).into_iter().zip(drawing.pictures(&look)) {
            let png = png.map_err(CliError::from);
            if let Err(error) = png.and_then(|png| pictures.write(&name, &png)) {
                failed = Some(error);
                return Ok(ControlFlow::Break(()));
            }
            written += 1;
        }
        images.push(drawing.names(&*source, look.index));
        meter.show(done, total as u64, &format!("{}  {}", output::speed(meter.rate(done)), device::precision(device)));
        Ok(ControlFlow::Continue(()))
    });
    console.close();
    crate::images::say_news(&*source);
    let skipped = match (drawn, failed) {
        (Err(EvalError::Stopped), Some(error)) => return Err(error),
        (drawn, _) => drawn?,
    };
    for bad in &skipped {
        output::note(&format!("skipped {}: {}", bad.name, bad.reason));
    }
    let table = format!(
        "{}: {} of {}, {} and their mean",
        text::shown(&args.out),
        count(written, "picture"),
        count(total - skipped.len(), "image"),
        count(config.heads, "head"),
    );
    Ok(Drawn { images, table })
}

/// What the network sees of an image.
fn seen(args: &AttentionArgs, weights: &Weights) -> Seen {
    match args.network.image_size {
        Some(size) => Seen::Stretched(size),
        // Trained on images no larger than its input: enlarged ones are nothing that it knows.
        None if weights.input.whole => Seen::Stretched(weights.input.size),
        None => Seen::Short(SHORT),
    }
}

fn check_memory(weights: &Weights, seen: Seen, device: &Device) -> Result<(), CliError> {
    if device.is_gpu() {
        return Ok(());
    }
    let size = match seen {
        Seen::Stretched(size) => size,
        // A photograph of the usual proportion.
        Seen::Short(side) => (side, side * 3 / 2),
    };
    let config = weights.loaded.vit.config();
    let options = ReadOptions { batch_size: 1, channels: config.channels, ..Default::default() };
    let need = estimate_features(
        config,
        &Preparation::Stretch(size),
        &Pooling::default(),
        &options,
        (1, Kept::Batch),
        device.threads(),
    );
    memory::check_bytes(need, "smaller images (--image-size), or fewer --threads")
}

/// Which pictures are drawn of an image.
struct Drawing {
    patch: usize,
    heads: usize,
    threshold: Option<f64>,
    frames: bool,
}

impl Drawing {
    /// The names of the pictures of an image.
    fn names(&self, source: &dyn Source, index: usize) -> Vec<PathBuf> {
        if self.frames {
            return vec![format!("{:05}.png", index + 1).into()];
        }
        let name = format!("{:04}-{}", index + 1, plain(&source.name(index)));
        let mut names = vec![format!("{name}.png"), format!("{name}-mean.png")];
        for head in 0..self.heads {
            names.push(format!("{name}-head{head}.png"));
            names.extend(self.threshold.map(|_| format!("{name}-head{head}-kept.png")));
        }
        names.into_iter().map(PathBuf::from).collect()
    }

    /// The pictures themselves, in the same order.
    fn pictures(&self, look: &Look) -> Vec<Result<Vec<u8>, sheet::SheetError>> {
        let (grid, patch) = (look.attention.grid, self.patch);
        let map = |weights: &[f64], colors: Colors| sheet::to_png(&heat(weights, grid, patch, colors));
        if self.frames {
            return vec![map(&look.attention.mean(), Colors::Inferno)];
        }
        let all = vec![true; grid.0 * grid.1];
        let mut pictures =
            vec![sheet::to_png(&lit(&look.image, &all, grid, patch)), map(&look.attention.mean(), Colors::Viridis)];
        for head in look.attention.heads() {
            pictures.push(map(head, Colors::Viridis));
            let show = |mass: f64| sheet::to_png(&lit(&look.image, &kept(head, mass), grid, patch));
            pictures.extend(self.threshold.map(show));
        }
        pictures
    }
}

/// The name of an image without folders and ending, as a part of a file's name on any system.
fn plain(name: &str) -> String {
    let stem = Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    stem.chars().take(NAME).map(|c| if is_plain(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_named_by_their_images() {
        assert_eq!(plain("dogs/big dog.jpeg"), "big-dog");
        assert_eq!(plain("synthetic #3"), "synthetic--3");
        assert_eq!(plain("a/../x\u{1b}[2J.png"), "x--2J");
        assert_eq!(plain(&"y".repeat(300)).len(), NAME);
        let source = images::open("synthetic:train=10,size=16", data::Split::Train).unwrap();
        let names = |threshold, frames| {
            let names = Drawing { patch: 8, heads: 2, threshold, frames }.names(&*source, 1);
            names.iter().map(|name| name.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(None, true), ["00002.png"]);
        let of = |ending: &str| format!("0002-synthetic--1{ending}.png");
        assert_eq!(names(None, false), ["", "-mean", "-head0", "-head1"].map(of));
        assert_eq!(names(Some(0.6), false), ["", "-mean", "-head0", "-head0-kept", "-head1", "-head1-kept"].map(of));
    }
}
