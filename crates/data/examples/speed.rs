//! Times the stages of loading, on one thread and with all workers.
//!
//!     cargo run -p data --release --example speed -- [SRC] [SECONDS]

use data::augment::{self, Filter};
use data::{Image, Loader, LoaderConfig, MultiCrop, Split, open};
use random::{Key, Purpose};
use std::error::Error;
use std::time::{Duration, Instant};

/// Repeats `f` for about `time` and prints the median of a call: other programs on the machine disturb a mean.
fn time(what: &str, time: Duration, mut f: impl FnMut(usize)) {
    let start = Instant::now();
    let mut calls = Vec::new();
    while start.elapsed() < time {
        let begun = Instant::now();
        f(calls.len());
        calls.push(begun.elapsed());
    }
    calls.sort_unstable();
    println!("{what:<40} {:9.1} us", calls[calls.len() / 2].as_secs_f64() * 1e6);
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments.next().unwrap_or_else(|| "synthetic:size=224".to_owned());
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |s| s.parse())?;
    let source = open(&spec, Split::Train, 0)?;
    println!("{}", source.describe());
    let each = Duration::from_secs_f64(seconds / 6.0);

    let images: Vec<Image> = (0..source.len().min(64)).filter_map(|i| source.read(i).ok()).collect();
    let recipe = MultiCrop::dino();
    time("read", each, |i| _ = source.read(i % source.len()));
    time("all views of an image", each, |i| {
        _ = recipe.views(&images[i % images.len()], Key::new(0, Purpose::View).sample(i as u64));
    });
    let view = augment::resize(&images[0], (224, 224), Filter::Bicubic);
    let on_a_view = |what: &str, f: &dyn Fn(&mut Image)| {
        let mut image = view.clone();
        time(what, each / 4, |_| f(&mut image));
    };
    let shapes = images.len();
    time("resize to 224, bicubic", each / 2, |i| {
        _ = augment::resize(&images[i % shapes], (224, 224), Filter::Bicubic);
    });
    on_a_view("brightness, 224", &|image| augment::brightness(image, 1.01));
    on_a_view("contrast, 224", &|image| augment::contrast(image, 1.01));
    on_a_view("saturation, 224", &|image| augment::saturation(image, 1.01));
    on_a_view("hue, 224", &|image| augment::hue(image, 0.04));
    on_a_view("blur 1.0, 224", &|image| augment::gaussian_blur(image, 1.0));
    on_a_view("blur 1.9, 224", &|image| augment::gaussian_blur(image, 1.9));

    let workers = std::thread::available_parallelism()?.get();
    let cfg = LoaderConfig { batch_size: source.len().min(16), workers, ..LoaderConfig::default() };
    let batch_size = cfg.batch_size;
    let mut loader = Loader::start(source, cfg, 0, 0, u64::MAX)?;
    let (start, mut batches) = (Instant::now(), 0);
    while start.elapsed() < each * 3
        && let Some(batch) = loader.next()?
    {
        loader.recycle(batch);
        batches += 1;
    }
    let rate = (batches * batch_size) as f64 / start.elapsed().as_secs_f64();
    println!("loader with {workers} workers: {rate:.1} images a second, each in {} views", recipe.count());
    Ok(())
}
