//! Linear layers, what is fused with them, and the moving of rows.

use super::Gradient::{Added, Returned};
use super::{check, device, dot, held, normal};
use crate::{Rows, Tensor, ops};

/// Gradients of (x, weight, bias) at some outputs of a layer.
fn layer_gradients(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    part: std::ops::Range<usize>,
    dy: &Tensor,
) -> [Tensor; 3] {
    let affine = ops::Affine::new(weight, bias).part(part.clone());
    let dx = ops::linear_backward_input(dy, &affine);
    let (mut dw, mut db) = (held(weight), held(bias));
    ops::linear_backward_weight(x, dy, part, &mut dw, &mut db);
    [dx, dw, db]
}

#[test]
fn a_linear_layer_differentiates_by_input_weight_and_bias() {
    let d = device();
    // The weight of a patch embedding keeps its four extents; all but the first count as inputs.
    for weight in [&[7, 12][..], &[7, 3, 2, 2]] {
        check(
            vec![normal(&d, 1, &[5, 12]), normal(&d, 2, weight), normal(&d, 3, &[7])],
            |t| ops::linear(&t[0], &ops::Affine::new(&t[1], &t[2])),
            |t, dy| {
                let [dx, dw, db] = layer_gradients(&t[0], &t[1], &t[2], 0..7, dy);
                vec![Returned(dx), Added(dw), Added(db)]
            },
        );
    }
}

#[test]
fn some_outputs_of_a_layer_leave_the_gradient_of_the_others_alone() {
    let d = device();
    for part in [0..3, 2..6, 6..9] {
        check(
            vec![normal(&d, 1, &[4, 5]), normal(&d, 2, &[9, 5]), normal(&d, 3, &[9])],
            |t| ops::linear(&t[0], &ops::Affine::new(&t[1], &t[2]).part(part.clone())),
            |t, dy| {
                let [dx, dw, db] = layer_gradients(&t[0], &t[1], &t[2], part.clone(), dy);
                vec![Returned(dx), Added(dw), Added(db)]
            },
        );
    }
}

#[test]
fn an_mlp_differentiates_through_its_gelu() {
    let d = device();
    let inputs = vec![
        normal(&d, 1, &[4, 6]),
        normal(&d, 2, &[9, 6]),
        normal(&d, 3, &[9]),
        normal(&d, 4, &[5, 9]),
        normal(&d, 5, &[5]),
    ];
    check(
        inputs,
        |t| {
            let (hidden, _) = ops::linear_gelu(&t[0], &ops::Affine::new(&t[1], &t[2]));
            ops::linear(&hidden, &ops::Affine::new(&t[3], &t[4]))
        },
        |t, dy| {
            let (_, saved) = ops::linear_gelu(&t[0], &ops::Affine::new(&t[1], &t[2]));
            let (d_pre, hidden) = ops::linear_backward_through_gelu(dy, &ops::Affine::new(&t[3], &t[4]), saved);
            let [_, dw2, db2] = layer_gradients(&hidden, &t[3], &t[4], 0..5, dy);
            let [dx, dw1, db1] = layer_gradients(&t[0], &t[1], &t[2], 0..9, &d_pre);
            vec![Returned(dx), Added(dw1), Added(db1), Added(dw2), Added(db2)]
        },
    );
}

#[test]
fn a_residual_branch_differentiates_where_it_was_taken() {
    let d = device();
    let all = Rows::all([3, 1, 4, 2]);
    for (flags, scale) in [([true; 4], 1.0), ([true, false, true, false], 1.25), ([false; 4], 2.0)] {
        let rows = all.keep(&flags);
        let x = normal(&d, 2, &[rows.count(), 6]);
        check(
            vec![normal(&d, 1, &[10, 5]), x, normal(&d, 3, &[5, 6]), normal(&d, 4, &[5])],
            |t| ops::linear_residual(&t[0], &rows, scale, &t[1], &ops::Affine::new(&t[2], &t[3])),
            |t, dy| {
                let d_branch = ops::branch_gradient(dy, &rows, scale);
                let [dx, dw, db] = layer_gradients(&t[1], &t[2], &t[3], 0..5, &d_branch);
                vec![Returned(dy.duplicate()), Returned(dx), Added(dw), Added(db)]
            },
        );
    }
}

#[test]
fn scatter_add_is_the_adjoint_of_gather() {
    let d = device();
    let all = Rows::all([3, 1, 4, 2]);
    for rows in [all.clone(), all.keep(&[false, true, true, false]), all.first_of_each(), all.keep(&[false; 4])] {
        let (x, c) = (normal(&d, 1, &[10, 7]), normal(&d, 2, &[rows.count(), 7]));
        let gathered = ops::gather(&x, &rows, 0.6);
        let mut scattered = d.zeros(&[10, 7]);
        ops::scatter_add(&c, &rows, 0.6, &mut scattered);
        let (left, right) = (dot(&gathered.to_f64(), &c.to_f64()), dot(&x.to_f64(), &scattered.to_f64()));
        assert!((left - right).abs() < 1e-13, "{left} {right}");
        check(
            vec![x],
            |t| ops::gather(&t[0], &rows, 0.6),
            |t, dy| {
                let mut dx = held(&t[0]);
                ops::scatter_add(dy, &rows, 0.6, &mut dx);
                vec![Added(dx)]
            },
        );
    }
}
