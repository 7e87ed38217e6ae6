//! Writes a contact sheet of the synthetic images, one row for each class.
//!
//!     cargo run -p data --release --example synthetic_sheet -- sheet.png [SIZE]

use data::{Split, open};
use std::error::Error;

const COLUMNS: usize = 16;
/// Pictures are enlarged so that a person can look at them.
const ZOOM: usize = 2;
const GAP: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "synthetic.png".to_owned());
    let size: usize = arguments.next().map_or(Ok(32), |size| size.parse())?;
    let source = open(&format!("synthetic:size={size}"), Split::Train, 0)?;
    let classes = source.class_names().len();
    let cell = size * ZOOM + GAP;
    let mut sheet = image::RgbImage::new((COLUMNS * cell) as u32, (classes * cell) as u32);
    for class in 0..classes {
        for column in 0..COLUMNS {
            let picture = source.read(column * classes + class)?;
            for y in 0..size * ZOOM {
                for (x, pixel) in (0..size * ZOOM).map(|x| (x, &picture.row(y / ZOOM)[x / ZOOM * 3..])) {
                    let at = ((column * cell + x) as u32, (class * cell + y) as u32);
                    sheet.put_pixel(at.0, at.1, image::Rgb([pixel[0], pixel[1], pixel[2]]));
                }
            }
        }
    }
    sheet.save(&path)?;
    println!("{path}: {}", source.class_names().join(", "));
    Ok(())
}
