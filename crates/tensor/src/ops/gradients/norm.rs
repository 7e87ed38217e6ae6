//! LayerNorm, batch norm, unit length and GELU.

use super::Gradient::{Added, Returned};
use super::{check, device, held, normal};
use crate::ops::{Affine, GeluSaved, Norm};
use crate::{Rows, ops};

#[test]
fn layer_norm_differentiates_by_the_rows_it_reads_and_by_its_parameters() {
    let d = device();
    let all = Rows::all([3, 1, 2]);
    // An epsilon that matters, so that leaving it out of the derivative would show.
    for (rows, epsilon) in [
        (all.clone(), 1e-6),
        (all.keep(&[true, false, true]), 0.3),
        (all.first_of_each(), 1e-6),
        (all.keep(&[false; 3]), 1e-6),
    ] {
        check(
            vec![normal(&d, 1, &[6, 5]), normal(&d, 2, &[5]), normal(&d, 3, &[5])],
            |t| ops::layer_norm(&t[0], &Norm { rows: &rows, weight: &t[1], bias: &t[2], epsilon }).0,
            |t, dy| {
                let norm = Norm { rows: &rows, weight: &t[1], bias: &t[2], epsilon };
                let (_, statistics) = ops::layer_norm(&t[0], &norm);
                let (mut dx, mut dw, mut db) = (held(&t[0]), held(&t[1]), held(&t[2]));
                ops::layer_norm_backward(&t[0], &rows, &statistics, &t[1], dy, &mut dx, &mut dw, &mut db);
                vec![Added(dx), Added(dw), Added(db)]
            },
        );
    }
}

#[test]
fn batch_norm_differentiates_through_its_statistics() {
    let d = device();
    for epsilon in [1e-5, 0.3] {
        check(
            vec![normal(&d, 1, &[6, 4]), normal(&d, 2, &[4]), normal(&d, 3, &[4])],
            |t| ops::batch_norm(&t[0], &t[1], &t[2], epsilon).0,
            |t, dy| {
                let (_, statistics) = ops::batch_norm(&t[0], &t[1], &t[2], epsilon);
                let (mut dw, mut db) = (held(&t[1]), held(&t[2]));
                let dx = ops::batch_norm_backward(&t[0], &statistics, &t[1], epsilon, dy, &mut dw, &mut db);
                vec![Returned(dx), Added(dw), Added(db)]
            },
        );
    }
}

#[test]
fn unit_length_differentiates_above_and_below_epsilon() {
    let d = device();
    let epsilon = 0.5;
    let mut x = normal(&d, 1, &[4, 6]);
    let mut values = x.to_f64();
    values[6..12].iter_mut().for_each(|v| *v *= 0.05);
    x.copy_from_f64(&values);
    let norms = ops::l2_normalize(&x, epsilon).1.to_f64();
    assert!(norms[1] == epsilon && norms[0] > epsilon, "one row lies below epsilon: {norms:?}");
    check(
        vec![x],
        |t| ops::l2_normalize(&t[0], epsilon).0,
        |t, dy| {
            let (y, norms) = ops::l2_normalize(&t[0], epsilon);
            vec![Returned(ops::l2_normalize_backward(&y, &norms, epsilon, dy))]
        },
    );
}

#[test]
fn gelu_differentiates_by_what_a_normalisation_gave() {
    let d = device();
    let mut x = normal(&d, 1, &[5, 8]);
    x.copy_from_f64(&x.to_f64().iter().map(|v| 2.0 * v).collect::<Vec<_>>());
    let (w, b) = (normal(&d, 2, &[3, 8]), normal(&d, 3, &[3]));
    let layer = Affine::new(&w, &b);
    check(
        vec![x],
        |t| ops::linear(&ops::gelu(&t[0]), &layer),
        |t, dy| {
            let (dx, _) = ops::linear_backward_through_gelu(dy, &layer, GeluSaved::new(t[0].duplicate()));
            vec![Returned(dx)]
        },
    );
}
