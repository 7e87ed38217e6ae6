//! The largest elements of each row, by a full sort: the oracle of the GPU's selection. Where the host looks for the largest
//! itself it does so while it reads similarities, without this.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::{Cpu, Real};

/// Values and columns of the largest elements of each row of x, as many as there is room for.
pub(crate) fn largest<T: Real>(cpu: &Cpu, x: &[T], columns: usize, values: &mut [T], places: &mut [u32]) {
    let count = values.len() / (x.len() / columns);
    cpu.install(|| {
        let results = (values.par_chunks_mut(count), places.par_chunks_mut(count)).into_par_iter();
        x.par_chunks(columns).zip(results).for_each(|(row, (values, places))| {
            let mut order: Vec<u32> = (0..columns as u32).collect();
            // Equal elements stay in the order of their columns.
            order.sort_by(|&a, &b| larger_first(row[a as usize], row[b as usize]));
            order.truncate(count);
            order.sort_unstable();
            for ((value, place), column) in values.iter_mut().zip(places).zip(order) {
                (*value, *place) = (row[column as usize], column);
            }
        });
    });
}

/// NaN comes last; -0 equals 0.
fn larger_first<T: Real>(a: T, b: T) -> Ordering {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    b.partial_cmp(&a).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{cpu, noise, unwritten};

    fn columns_of<T: Real>(row: &[f64], k: usize) -> Vec<u32> {
        let x: Vec<T> = row.iter().map(|&x| T::from_f64(x)).collect();
        let (mut values, mut places) = (unwritten::<T>(k), vec![u32::MAX; k]);
        largest(&cpu(), &x, x.len(), &mut values, &mut places);
        places
    }

    #[test]
    fn of_equal_elements_those_of_lower_columns_are_taken() {
        let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
        for (row, k, want) in [
            (&[1.0, 3.0, 2.0, 3.0, 3.0][..], 2, &[1, 3][..]),
            (&[1.0, 3.0, 2.0, 3.0, 2.0], 4, &[1, 2, 3, 4]),
            (&[7.0; 6], 3, &[0, 1, 2]),
            (&[-1.0, -0.0, 0.0, -0.0], 2, &[1, 2]),
            (&[high, 1.0, low, high, f64::MAX], 3, &[0, 3, 4]),
            (&[low, -1.0, low, -2.0], 3, &[0, 1, 3]),
            (&[f64::NAN, low, 5.0, f64::NAN, -f64::NAN], 3, &[0, 1, 2]),
            (&[f64::NAN, low, 5.0], 2, &[1, 2]),
            (&[4.0], 1, &[0]),
        ] {
            assert_eq!(columns_of::<f32>(row, k), want, "{row:?}");
            assert_eq!(columns_of::<f64>(row, k), want, "{row:?}");
        }
    }

    #[test]
    fn nothing_that_is_left_out_is_larger_than_what_is_taken() {
        let (rows, columns, k) = (70, 501, 40);
        let x = noise::<f32>(1, rows * columns);
        let (mut values, mut places) = (unwritten::<f32>(rows * k), vec![u32::MAX; rows * k]);
        largest(&cpu(), &x, columns, &mut values, &mut places);
        for (row, (values, places)) in x.chunks(columns).zip(values.chunks(k).zip(places.chunks(k))) {
            assert!(places.is_sorted_by(|a, b| a < b), "in the order of columns");
            assert!(values.iter().zip(places).all(|(value, &place)| *value == row[place as usize]));
            let least = values.iter().fold(f32::INFINITY, |least, &x| least.min(x));
            assert_eq!(row.iter().filter(|&&x| x >= least).count(), k);
        }
    }
}
