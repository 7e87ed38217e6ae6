//! `views`: a picture of what a network will see.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use data::loader::epoch_order;
use data::sheet::{self, Row, SheetGrid};
use data::{CropGroup, DecodeLimits, Image, Loader, LoaderConfig, Reader, Source};
use random::{Key, Purpose};
use ssl::trainer::loader_config;

use crate::args::ViewsArgs;
use crate::error::CliError;
use crate::output;

/// How every PNG file begins.
const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// Draws and writes the picture.
pub fn run(args: &ViewsArgs) -> Result<(), CliError> {
    // What would make the work useless is found before it is done.
    check_out(&args.out)?;
    let (source, recipe) = args.recipe.open_for_views()?;
    let config = loader_config(&recipe);
    let rows = rows(&source, &config, args.epoch.into(), args.images as usize)?;
    let picture = sheet::draw(&rows, &config.views, !args.no_frames)?;
    files::replace_with(&args.out, &sheet::to_png(&picture)?)
        .map_err(|source| CliError::Picture { path: args.out.clone(), source })?;
    output::result(&format!("{}\n{}", args.out.display(), legend(&rows, &config, args)))
}

/// Refuses what cannot be written, and what should not be lost.
fn check_out(path: &Path) -> Result<(), CliError> {
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("png")) {
        return Err(CliError::NotPngName { path: path.to_owned() });
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(CliError::NoOutFolder { path: path.to_owned() });
    }
    let mut start = Vec::new();
    match File::open(path).and_then(|file| file.take(PNG.len() as u64).read_to_end(&mut start)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(CliError::Picture { path: path.to_owned(), source }),
        // An older picture, or an empty file that was made to take one.
        Ok(_) if start == PNG || start.is_empty() => Ok(()),
        Ok(_) => Err(CliError::NotPng { path: path.to_owned() }),
    }
}

/// The first images of an epoch that can be read, each with the views that training makes of it. These come out of the
/// loader itself, so that no setting of it can make a difference.
fn rows(source: &Arc<dyn Source>, config: &LoaderConfig, epoch: u64, most: usize) -> Result<Vec<Row>, CliError> {
    let config = LoaderConfig { batch_size: 1, max_bad_share: 1.0, ..config.clone() };
    let mut loader = Loader::start(source.clone(), config.clone(), epoch, 0, epoch + 1)?;
    // The loader refuses more images than 32 bits number.
    let order = epoch_order(config.seed, epoch, source.len() as u32);
    let mut reader = Reader::new(DecodeLimits::default(), config.channels);
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
            // Another image stands in for an unreadable one. It has a row of its own.
            continue;
        }
        if let Err(error) = reader.read(&**source, index as usize, &mut image) {
            output::note(&format!("skipped {}: {}", source.name(index as usize), error.reason()));
            continue;
        }
        let key = Key::new(config.seed, Purpose::View).epoch(epoch).sample(index.into());
        let crop = |view| config.views.draw(view, image.height, image.width, key).crop;
        let crops = (0..config.views.count()).map(crop).collect();
        rows.push(Row::new(&image, crops, batch.groups.iter().flat_map(images_of).collect(), &config.views));
    }
    Ok(rows)
}

/// The views of a group as images.
fn images_of(group: &CropGroup) -> impl Iterator<Item = Image> {
    let image = |i| Image::from_pixels(group.width, group.height, group.channels, group.view(i).to_vec());
    (0..group.count).map(image)
}

fn legend(rows: &[Row], config: &LoaderConfig, args: &ViewsArgs) -> String {
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
    let frames = if args.no_frames { "" } else { "; a frame has the colour of its part of the image" };
    format!(
        "{} in the order of epoch {}, seed {}: image, global views 1 and 2 ({}){locals}{zoom}{frames}",
        text::count(rows.len(), "image"),
        args.epoch,
        config.seed,
        side(views.global_size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images;
    use data::augment::Filter;
    use data::{MultiCrop, Split};

    #[test]
    fn the_views_shown_are_those_that_the_loader_hands_out() {
        let source = images::open("synthetic:train=12,size=20", Split::Train).unwrap();
        let views = MultiCrop { global_size: (16, 16), local_size: (8, 8), local_crops: 3, ..MultiCrop::dino() };
        let config = LoaderConfig { batch_size: 4, seed: 9, workers: 2, views, ..LoaderConfig::default() };
        let shown = rows(&source, &config, 2, 6).unwrap();
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
