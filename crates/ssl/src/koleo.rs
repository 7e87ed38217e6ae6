//! KoLeo on prototypes: each is pushed away from its nearest neighbour, against prototypes that are copies of each other.
//!
//! ```text
//! L = -1/K sum_k ln(|u_k - u_n(k)| + 1e-8),   u = v / |v|,   n(k) the other prototype with the largest <u_k, u>
//! ```
//!
//! Which one is nearest comes from matrix products on the device, in pieces. What is done with it is little work, and on the
//! host in double precision. On a GPU the products are of rounded numbers, so that of neighbours which are equally near up to
//! rounding any may be taken.

use model::PrototypeLayer;
use tensor::{ParamSet, Rows, Tensor, ops};
use train::run::Record;

/// Added to a distance, whose logarithm is taken.
const EPSILON: f64 = 1e-8;
/// Inner products that are made at once.
const PRODUCTS_AT_ONCE: usize = 1 << 26;

/// The other row that each row of `direction` makes the smallest angle with, given its rows at unit length.
fn nearest_others(direction: &Tensor, unit: &[f64]) -> Vec<usize> {
    let (count, device) = (direction.rows(), direction.device());
    // Activations, for matrix products.
    let unit = device.from_f64(direction.shape(), unit);
    let ones = device.exact_from_f64(&[count, 1], &vec![1.0; count]);
    let at_once = (PRODUCTS_AT_ONCE / count).max(1);
    let of_piece = |first: usize| {
        let rows = Rows::range(count, first..count.min(first + at_once));
        let products = ops::prototype_logits(&ops::gather(&unit, &rows, 1.0), &ones, direction);
        ops::largest_beside(&products.raw, first)
    };
    (0..count).step_by(at_once).flat_map(of_piece).collect()
}

/// KoLeo as a part of a loss.
#[derive(Debug)]
pub struct Koleo {
    weight: f64,
    /// L in the last step.
    value: f64,
    /// Its gradient in the step that is under way: the same for every part of it.
    gradient: Option<Tensor>,
}

impl Koleo {
    /// With this weight; nothing is computed where it is zero.
    pub fn new(weight: f64) -> Self {
        Self { weight, value: 0.0, gradient: None }
    }

    /// Forgets the step before.
    pub fn start_step(&mut self) {
        self.gradient = None;
    }

    /// Adds the `share` of a part of a step in the gradient to that of the prototypes' directions; its share of the loss. L
    /// is the same for every part, and the shares of all add up to one.
    pub fn add_gradient(
        &mut self,
        prototypes: &PrototypeLayer,
        student: &ParamSet,
        share: f64,
        gradient: &mut ParamSet,
    ) -> f64 {
        if self.weight == 0.0 {
            return 0.0;
        }
        let d_direction = self.gradient.get_or_insert_with(|| {
            let direction = &student[prototypes.direction()];
            let (value, d_direction) = value_and_gradient(direction);
            self.value = value;
            direction.device().exact_from_f64(direction.shape(), &d_direction)
        });
        let held = &mut gradient[prototypes.direction()];
        *held = ops::add_scaled(held, self.weight * share, d_direction);
        self.weight * share * self.value
    }

    /// Whether it has a part in the loss.
    pub fn is_part(&self) -> bool {
        self.weight > 0.0
    }

    /// Its part of the last step's loss.
    pub fn loss(&self) -> f64 {
        self.weight * self.value
    }

    /// Adds L to a record of the log, where it is in use.
    pub fn add_to(&self, record: Record, key: &str) -> Record {
        if self.weight == 0.0 { record } else { record.number(key, self.value) }
    }
}

fn value_and_gradient(direction: &Tensor) -> (f64, Vec<f64>) {
    let (count, dim) = (direction.rows(), direction.columns());
    if count < 2 {
        return (0.0, vec![0.0; direction.len()]);
    }
    let mut unit = direction.to_f64();
    let lengths: Vec<f64> = unit.chunks_exact_mut(dim).map(to_unit_length).collect();
    let nearest = nearest_others(direction, &unit);
    let row = |k: usize| &unit[k * dim..(k + 1) * dim];
    let (mut loss, mut d_unit) = (0.0, vec![0.0; unit.len()]);
    for (k, &other) in nearest.iter().enumerate() {
        let apart: Vec<f64> = row(k).iter().zip(row(other)).map(|(a, b)| a - b).collect();
        let distance = apart.iter().map(|x| x * x).sum::<f64>().sqrt();
        loss -= (distance + EPSILON).ln() / count as f64;
        // Two that are the same have no direction away from each other.
        let slope = if distance > 0.0 { -1.0 / (count as f64 * (distance + EPSILON) * distance) } else { 0.0 };
        for (i, apart) in apart.into_iter().enumerate() {
            d_unit[k * dim + i] += slope * apart;
            d_unit[other * dim + i] -= slope * apart;
        }
    }
    // Through the unit length: what is along the vector changes nothing.
    for ((d, unit), length) in d_unit.chunks_exact_mut(dim).zip(unit.chunks_exact(dim)).zip(lengths) {
        let along: f64 = d.iter().zip(unit).map(|(d, u)| d * u).sum();
        d.iter_mut().zip(unit).for_each(|(d, u)| *d = (*d - along * u) / length);
    }
    (loss, d_unit)
}

/// Scales a row to unit length; the length that it had.
fn to_unit_length(row: &mut [f64]) -> f64 {
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    row.iter_mut().for_each(|x| *x /= length);
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};
    use tensor::{CpuOptions, Device, Precision};

    fn device() -> Device {
        Device::cpu(CpuOptions { threads: Some(2), precision: Precision::F64 }).unwrap()
    }

    fn directions(device: &Device, count: usize, dim: usize) -> Tensor {
        let mut stream = Key::new(3, Purpose::Bench).stream();
        let values: Vec<f64> = (0..count * dim).map(|_| stream.normal()).collect();
        device.from_f64(&[count, dim], &values)
    }

    #[test]
    fn the_nearest_other_is_that_of_plain_loops() {
        let (count, dim) = (40, 5);
        let rows = directions(&device(), count, dim);
        let mut unit = rows.to_f64();
        unit.chunks_exact_mut(dim).for_each(|row| _ = to_unit_length(row));
        let dot = |a: usize, b: usize| (0..dim).map(|i| unit[a * dim + i] * unit[b * dim + i]).sum::<f64>();
        for (k, nearest) in nearest_others(&rows, &unit).into_iter().enumerate() {
            let best = (0..count).filter(|&j| j != k).max_by(|&a, &b| dot(k, a).total_cmp(&dot(k, b))).unwrap();
            assert_eq!(nearest, best, "of {k}");
        }
    }

    #[test]
    fn its_gradient_is_that_of_its_value() {
        const H: f64 = 1e-6;
        let mut rows = directions(&device(), 7, 4);
        let (_, found) = value_and_gradient(&rows);
        let start = rows.to_f64();
        for j in 0..start.len() {
            let mut at = |step: f64| {
                let mut moved = start.clone();
                moved[j] += step;
                rows.copy_from_f64(&moved);
                value_and_gradient(&rows).0
            };
            let difference = (at(H) - at(-H)) / (2.0 * H);
            assert!((difference - found[j]).abs() < 1e-7, "{j}: {} is not {difference}", found[j]);
        }
    }

    #[test]
    fn it_drives_copies_apart_and_leaves_a_single_prototype_alone() {
        let device = device();
        let mut rows = device.from_f64(&[3, 2], &[1.0, 0.0, 0.999, 0.01, -1.0, 0.2]);
        let angle = |rows: &Tensor| {
            let values = rows.to_f64();
            (values[1].atan2(values[0]) - values[3].atan2(values[2])).abs()
        };
        let before = angle(&rows);
        let (_, gradient) = value_and_gradient(&rows);
        let moved: Vec<f64> = rows.to_f64().iter().zip(gradient).map(|(x, d)| x - 1e-4 * d).collect();
        rows.copy_from_f64(&moved);
        assert!(angle(&rows) > before);
        let same = device.from_f64(&[2, 2], &[1.0, 0.5, 1.0, 0.5]);
        assert!(value_and_gradient(&same).1.iter().all(|d| *d == 0.0));
        assert_eq!(value_and_gradient(&device.from_f64(&[1, 2], &[1.0, 0.5])), (0.0, vec![0.0; 2]));
    }
}
