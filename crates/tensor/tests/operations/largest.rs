//! The largest elements of each row: which are taken is exact, and the same on every device.

use tensor::{Device, ops};

use crate::{Operation, Outputs, values};

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "largest", tolerance: 0.0, run: of_every_size },
        Operation { name: "largest among ties", tolerance: 0.0, run: ties },
        Operation { name: "largest among special values", tolerance: 0.0, run: special },
    ]
}

/// Columns and values of the largest, as numbers that can be compared: columns from one on, for there is to be a largest, and
/// finite numbers in place of the infinite ones and of NaN.
fn found(d: &Device, x: &[f64], columns: usize, k: usize) -> [Vec<f64>; 2] {
    let found = ops::largest(&d.exact_from_f64(&[x.len() / columns, columns], x), k);
    let places = found.columns().into_iter().map(|column| 1.0 + f64::from(column)).collect();
    let finite = |x: f64| if x.is_nan() { 200.0 } else { x.clamp(-100.0, 100.0) };
    [places, found.values.to_f64().into_iter().map(finite).collect()]
}

/// Widths around what a block reads at a time, and that four do not divide; few elements, many, all, and more than all.
fn of_every_size(d: &Device) -> Outputs {
    let mut outputs = Vec::new();
    for (rows, columns, k) in [
        (300, 3000, 20),
        (7, 70_001, 200),
        (5, 65_536, 1),
        (3, 10_007, 10_006),
        (5, 2048, 2048),
        (5, 2049, 5000),
        (4, 2047, 600),
        (6, 37, 9),
        (9, 3, 2),
        (8, 1, 1),
        (8, 1, 4),
    ] {
        let [places, values] = found(d, &values(1, &[rows, columns]), columns, k);
        assert_eq!(places.len(), rows * k.min(columns));
        outputs.extend([("columns", places), ("values", values)]);
    }
    outputs
}

/// Few different values, rows that are one value throughout, and rows whose largest are all equal and come late.
fn ties(d: &Device) -> Outputs {
    let mut outputs = Vec::new();
    for (rows, columns) in [(40, 4100), (6, 999)] {
        let few: Vec<f64> = values(2, &[rows, columns]).iter().map(|x| (2.0 * x).round()).collect();
        let late = |i: usize| if i % columns > columns / 2 { 0.25 } else { -0.25 };
        for x in [few, vec![0.375; rows * columns], (0..rows * columns).map(late).collect()] {
            for k in [1, 30, 700, columns - 1, columns] {
                let [places, values] = found(d, &x, columns, k);
                outputs.extend([("columns", places), ("values", values)]);
            }
        }
    }
    outputs
}

/// Both zeros, infinities, numbers below the normal ones, and NaN, which is taken last.
fn special(d: &Device) -> Outputs {
    let some = [
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
        1.0,
        -1.0,
        f64::from(f32::from_bits(1)),
        -f64::from(f32::from_bits(1)),
        f64::from(f32::MAX),
        f64::from(f32::MIN),
    ];
    let mut outputs = Vec::new();
    for columns in [2500, 2601] {
        let picks = values(3, &[11, columns]);
        let x: Vec<f64> = picks.iter().map(|pick| some[(pick.abs() * 1e4) as usize % some.len()]).collect();
        for k in [1, 100, 300, 700, 1300, columns - 3] {
            let [places, values] = found(d, &x, columns, k);
            outputs.extend([("columns", places), ("values", values)]);
        }
    }
    outputs
}
