//! Decoding photographs smaller than they are: when, and how far from exact the views may then be.

mod support;

use data::augment::{Filter, Rect};
use data::decode::Reduction;
use data::views::{Finish, ViewMaker, ViewParams, reduction};
use data::{DecodeLimits, Image, MultiCrop, Reader, Split, open};
use random::{Key, Purpose};
use support::real_data;

fn view(crop: usize, size: usize) -> ViewParams {
    ViewParams {
        crop: Rect { top: 0, left: 0, height: crop, width: crop + 50 },
        size: (size, size),
        filter: Filter::Bicubic,
        flip: false,
        operations: Default::default(),
        finish: Finish::default(),
    }
}

#[test]
fn every_view_keeps_twice_its_own_pixels() {
    assert_eq!(reduction(&[view(895, 224)]), Reduction::None);
    assert_eq!(reduction(&[view(896, 224)]), Reduction::Half);
    assert_eq!(reduction(&[view(4000, 224), view(800, 96)]), Reduction::Quarter);
    assert_eq!(reduction(&[view(4000, 224), view(800, 224)]), Reduction::None);
    assert_eq!(reduction(&[view(9000, 224)]), Reduction::Eighth);
}

/// The largest photographs of the shared sets, at small views so that all reductions occur.
#[test]
fn views_of_reduced_photographs_stay_close_to_the_exact_ones() {
    let Some(folder) = real_data("clothing") else { return };
    let source = open(folder.to_str().unwrap(), Split::Train, 0).unwrap();
    let recipe = MultiCrop { global_size: (64, 64), local_size: (24, 24), ..MultiCrop::dino() };
    let (mut reader, mut maker) = (Reader::new(DecodeLimits::default(), 3), ViewMaker::default());
    let (mut exact, mut small) = (Image::black(1, 1, 3), Image::black(1, 1, 3));
    let (mut reduced, mut sum, mut count) = (0, 0u64, 0u64);
    for index in 0..source.len().min(60) {
        reader.read(&*source, index, &mut exact).unwrap();
        let full = (exact.height, exact.width);
        let key = Key::new(3, Purpose::View).sample(index as u64);
        let params: Vec<_> = (0..10)
            .map(|view| {
                let drawn = recipe.draw(view, full.0, full.1, key);
                ViewParams { finish: Finish { jitter: None, grayscale: false, ..drawn.finish }, ..drawn }
            })
            .collect();
        let chosen = reduction(&params);
        assert_eq!(reader.read_reduced(&*source, index, &mut |_, _| chosen, &mut small).unwrap(), chosen);
        assert_eq!(small.height, full.0.div_ceil(chosen.divisor()));
        if chosen == Reduction::None {
            assert_eq!(small, exact);
            continue;
        }
        reduced += 1;
        let (mut a, mut b) = (Image::black(1, 1, 3), Image::black(1, 1, 3));
        for params in &params {
            maker.make(&exact, params, &mut a);
            maker.make_reduced(&small, chosen.divisor(), params, &mut b);
            let difference: u64 = a.pixels.iter().zip(&b.pixels).map(|(&a, &b)| u64::from(a.abs_diff(b))).sum();
            (sum, count) = (sum + difference, count + a.pixels.len() as u64);
        }
    }
    let mean = sum as f64 / count as f64;
    println!("{reduced} photographs reduced, mean difference {mean:.3} of 255");
    assert!(reduced >= 10, "{reduced}");
    assert!(mean < 0.4, "{mean}");
}
