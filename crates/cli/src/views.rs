//! `views`: draws the training views of some images as a contact sheet. [`crate::raw_views`] hands them to another program.

use std::sync::Arc;

use data::loader::epoch_order;
use data::sheet::{self, Row, SheetGrid};
use data::{CropGroup, DecodeLimits, Image, Loader, LoaderConfig, Reader, Source};
use random::{Key, Purpose};
use ssl::method::{self, MethodSpec};
use ssl::recipe::{MethodName, Recipe};
use ssl::setup::loader_config;

use crate::args::ViewsArgs;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::output;
use crate::output_file::{self, Input, Kind};
use crate::raw_views;

/// Draws and writes the picture.
pub fn run(args: &ViewsArgs) -> Result<(), CliError> {
    let Some(out) = &args.out else { return raw_views::run(args) };
    // First, so that nothing is drawn that cannot be written.
    if out.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("png")) {
        return Err(CliError::NotPngName { path: out.clone() });
    }
    let data = Input::data(&args.recipe.data);
    let recipe = args.recipe.recipe.as_deref().map(|path| Input::file("--recipe", path));
    output_file::check_outside(out, &data)?;
    let inputs: Vec<Input> = recipe.into_iter().chain([data]).collect();
    let place = output_file::check(out, Kind::Png, args.force, &inputs)?;
    let (source, recipe) = args.recipe.open_for_views(args.split)?;
    output_file::check_unlisted(out, &args.recipe.data, &*source)?;
    let images = args.images as usize;
    let (pictures, about) = draw(&source, &recipe, images, images, args.epoch.into(), !args.no_frames)?;
    for picture in pictures {
        files::replace_with(&place, &sheet::to_png(&picture)?)
            .map_err(|source| CliError::Picture { path: out.clone(), source })?;
    }
    output::result(&format!("{}\n{about}", text::shown(out)))
}

/// Draws the first images of an epoch with their views, so many on a picture, with frames or without; the pictures, and what
/// is to be seen on them.
pub fn draw(
    source: &Arc<dyn Source>,
    recipe: &Recipe,
    images: usize,
    on_each: usize,
    epoch: u64,
    frames: bool,
) -> Result<(Vec<Image>, String), CliError> {
    let config = loader_config(recipe);
    let images = images.min(source.len());
    memory::check_bytes(need(&config, images), memory::SMALLER_VIEWS)?;
    let method = method::of(recipe);
    let hidden = Hidden { method: &*method, patch: recipe.patch_size() };
    let rows = rows(source, &config, epoch, images, &hidden)?;
    images::say_news(&**source);
    let drawn = |rows: &[Row]| sheet::draw(rows, &config.views, frames);
    let pictures = match rows.is_empty() {
        true => vec![drawn(&rows)?],
        false => rows.chunks(on_each.max(1)).map(drawn).collect::<Result<_, _>>()?,
    };
    let unseen = match recipe.method() {
        MethodName::Dino => "",
        MethodName::Ibot => "; what is hatched the student does not see",
        MethodName::Msn => "; what is hatched the student does not see, nor any of global view 1, the target",
    };
    Ok((pictures, legend(&rows, &config, epoch, frames) + unseen))
}

/// About how many bytes a picture takes: the views as the loader makes them, as rows, and in the picture, which may enlarge
/// them.
fn need(config: &LoaderConfig, images: usize) -> u64 {
    let zoom = SheetGrid::new(&[], &config.views).zoom as u64;
    let of_row = config.sample_bytes().saturating_mul(1 + 2 * zoom * zoom);
    let loader = LoaderConfig { batch_size: 1, ..config.clone() }.memory();
    loader.saturating_add(of_row.saturating_mul(images as u64))
}

/// The first readable images of an epoch, each with its views. They come from the loader itself, so that they are what
/// training sees whatever the settings.
fn rows(
    source: &Arc<dyn Source>,
    config: &LoaderConfig,
    epoch: u64,
    most: usize,
    hidden: &Hidden<'_>,
) -> Result<Vec<Row>, CliError> {
    let config = LoaderConfig { batch_size: 1, max_bad_share: 1.0, ..config.clone() };
    let mut loader = Loader::start(source.clone(), config.clone(), epoch, 0, epoch + 1)?;
    // The loader refuses more images than 32 bits number.
    let order = epoch_order(config.seed, epoch, source.len() as u32);
    let mut reader = Reader::new(DecodeLimits::default(), config.channels).oriented(config.orientation);
    let mut image = Image::black(1, 1, config.channels);
    let mut rows = Vec::new();
    while rows.len() < most
        && let Some(batch) = loader.next()?
    {
        for bad in &batch.substituted {
            output::note(&format!("skipped {}: {}", bad.name, bad.reason));
        }
        let index = order[batch.position];
        if batch.samples != [u64::from(index)] {
            // The loader substituted another image for an unreadable one; that image has a row of its own.
            continue;
        }
        if let Err(error) = reader.read(&**source, index as usize, &mut image) {
            output::note(&format!("skipped {}: {}", source.name(index as usize), error.reason()));
            continue;
        }
        let key = Key::new(config.seed, Purpose::View).epoch(epoch).sample(index.into());
        let crop = |view| config.views.draw(view, image.height, image.width, key).crop;
        let crops = (0..config.views.count()).map(crop).collect();
        let mut views: Vec<Image> = batch.groups.iter().flat_map(images_of).collect();
        hidden.paint(&mut views, index.into(), epoch);
        rows.push(Row::new(&image, crops, views, &config.views));
    }
    Ok(rows)
}

/// What the student does not see of a view.
struct Hidden<'a> {
    method: &'a dyn MethodSpec,
    /// Side of a patch.
    patch: usize,
}

/// Hidden patches are hatched: stripes of two greys, which no picture has by itself.
const HATCHES: [u8; 2] = [70, 150];
/// Pixels of a stripe.
const STRIPE: usize = 3;

impl Hidden<'_> {
    /// Paints over the hidden patches of an image's views.
    fn paint(&self, views: &mut [Image], sample: u64, epoch: u64) {
        for (view, patches) in views.iter_mut().zip(self.method.hidden_patches(sample, epoch)) {
            let (across, row_values) = (view.width / self.patch, view.width * view.channels);
            for patch in patches {
                let (top, left) = (patch / across * self.patch, patch % across * self.patch);
                let rows = view.pixels.chunks_exact_mut(row_values).enumerate().skip(top).take(self.patch);
                for (y, row) in rows {
                    for (x, pixel) in row.chunks_exact_mut(view.channels).enumerate().skip(left).take(self.patch) {
                        pixel.fill(HATCHES[(x + y) / STRIPE % 2]);
                    }
                }
            }
        }
    }
}

/// The views of a group as images.
fn images_of(group: &CropGroup) -> impl Iterator<Item = Image> {
    let image = |i| Image::from_pixels(group.width, group.height, group.channels, group.view(i).to_vec());
    (0..group.count).map(image)
}

fn legend(rows: &[Row], config: &LoaderConfig, epoch: u64, frames: bool) -> String {
    let views = &config.views;
    let side = |(height, width): (usize, usize)| format!("{width} x {height}");
    let locals = match views.local_crops {
        0 => String::new(),
        n => format!(", {} ({})", text::count(n, "local view"), side(views.local_size)),
    };
    let zoom = match SheetGrid::new(&[], views).zoom {
        1 => String::new(),
        zoom => format!(", enlarged {zoom} times"),
    };
    let frames = if frames { "; a frame has the colour of its part of the image" } else { "" };
    format!(
        "{} in the order of epoch {epoch}, seed {}: image, global views 1 and 2 ({}){locals}{zoom}{frames}",
        text::count(rows.len(), "image"),
        config.seed,
        side(views.global_size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::augment::Filter;
    use data::{MultiCrop, Split};
    use ssl::recipe::{Facts, RawRecipe};

    fn method(name: &str) -> Box<dyn MethodSpec> {
        let facts = Facts { images: 12, height: 32, width: 32, labelled: true, fingerprint: 1 };
        let text = format!("method = \"{name}\"\npatch_size = 4\nbatch_size = 4");
        method::of(&RawRecipe::from_toml(&text, "test").unwrap().resolve(&facts).unwrap())
    }

    #[test]
    fn patches_that_the_student_does_not_see_are_hatched() {
        for (name, masked) in [("ibot", 0), ("msn", 1)] {
            let method = method(name);
            let hidden = Hidden { method: &*method, patch: 4 };
            let black = || vec![Image::black(32, 32, 3); 4];
            // One sample of some is masked.
            let sample = (0..40).find(|&sample| !method.hidden_patches(sample, 0)[masked].is_empty()).unwrap();
            let mut views = black();
            hidden.paint(&mut views, sample, 0);
            let patches = method.hidden_patches(sample, 0)[masked].clone();
            let hatched = views[masked].pixels.iter().filter(|level| HATCHES.contains(level)).count();
            assert_eq!(hatched, patches.len() * 4 * 4 * 3, "{name}");
            let (top, left) = (patches[0] / 8 * 4, patches[0] % 8 * 4);
            assert!(HATCHES.contains(&views[masked].pixels[(top * 32 + left) * 3]));
            assert_eq!(views[2..], black()[2..], "local views are seen whole");
        }
    }

    #[test]
    fn the_views_shown_are_those_that_the_loader_hands_out() {
        let source = images::open("synthetic:train=12,size=20", Split::Train).unwrap();
        let views = MultiCrop { global_size: (16, 16), local_size: (8, 8), local_crops: 3, ..MultiCrop::dino() };
        let config = LoaderConfig { batch_size: 4, seed: 9, workers: 2, views, ..LoaderConfig::default() };
        let plain = method("dino");
        let shown = rows(&source, &config, 2, 6, &Hidden { method: &*plain, patch: 8 }).unwrap();
        assert_eq!(shown.len(), 6);
        let mut loader = Loader::start(source.clone(), config, 2, 0, 3).unwrap();
        let batch = loader.next().unwrap().unwrap();
        for (sample, row) in shown[..4].iter().enumerate() {
            let image = source.read(batch.samples[sample] as usize).unwrap();
            let shown = data::augment::resize(&image, (row.image.height, row.image.width), Filter::Bicubic);
            assert_eq!(row.image, shown);
            for (v, view) in row.views.iter().enumerate() {
                let (group, number) = if v < 2 { (0, v) } else { (1, v - 2) };
                assert_eq!(view.pixels, batch.groups[group].view(number * 4 + sample), "view {v} of sample {sample}");
            }
        }
    }
}
