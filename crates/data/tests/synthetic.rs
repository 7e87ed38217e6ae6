//! What the synthetic data set is for: its classes cannot be told apart by comparing pixels.

use data::{Image, Source, Split, open};

const NEIGHBOURS: usize = 10;

fn images(source: &dyn Source) -> Vec<(Image, u32)> {
    (0..source.len()).map(|i| (source.read(i).unwrap(), source.label(i).unwrap())).collect()
}

fn squared_distance(a: &Image, b: &Image) -> i32 {
    let difference = |(&a, &b): (&u8, &u8)| i16::from(a) - i16::from(b);
    a.pixels.iter().zip(&b.pixels).map(difference).map(|d| i32::from(d) * i32::from(d)).sum()
}

/// The most frequent label among the nearest; the smaller label on a tie.
fn vote(train: &[(Image, u32)], query: &Image, classes: usize) -> u32 {
    let mut all: Vec<(i32, u32)> =
        train.iter().map(|(image, label)| (squared_distance(image, query), *label)).collect();
    all.select_nth_unstable(NEIGHBOURS - 1);
    let mut votes = vec![0; classes];
    all[..NEIGHBOURS].iter().for_each(|(_, label)| votes[*label as usize] += 1);
    (0..classes).rev().max_by_key(|&c| votes[c]).unwrap() as u32
}

#[test]
fn nearest_neighbours_of_raw_pixels_are_of_little_use() {
    let spec = "synthetic:train=2000,test=500";
    let (train, test) = (open(spec, Split::Train, 0).unwrap(), open(spec, Split::Test, 0).unwrap());
    let classes = train.class_names().len();
    let (train, test) = (images(&*train), images(&*test));
    let right = test.iter().filter(|(image, label)| vote(&train, image, classes) == *label).count();
    let accuracy = right as f64 / test.len() as f64;
    println!("{NEIGHBOURS} nearest neighbours on raw pixels: {:.1} % of {} classes", 100.0 * accuracy, classes);
    assert!(accuracy < 0.35, "{accuracy}");
}

#[test]
fn no_class_can_be_told_by_its_mean_colour() {
    let source = open("synthetic:train=3000", Split::Train, 0).unwrap();
    let classes = source.class_names().len();
    let mut sums = vec![[0.0; 3]; classes];
    let mut square = [0.0; 3];
    let mut total = [0.0; 3];
    for (image, label) in images(&*source) {
        let pixels = image.pixels.as_chunks::<3>().0;
        for c in 0..3 {
            let mean = pixels.iter().map(|p| f64::from(p[c])).sum::<f64>() / pixels.len() as f64;
            sums[label as usize][c] += mean;
            total[c] += mean;
            square[c] += mean * mean;
        }
    }
    let n = source.len() as f64;
    for c in 0..3 {
        let deviation = (square[c] / n - (total[c] / n).powi(2)).sqrt();
        for sum in &sums {
            let off = (sum[c] / (n / classes as f64) - total[c] / n) / deviation;
            // 250 images a class: the mean of a class strays by 0.06 deviations by chance.
            assert!(off.abs() < 0.3, "a class mean is {off} deviations off");
        }
    }
}
