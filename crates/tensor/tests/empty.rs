//! No rows are a case like any other: drop path may leave out every crop, and a batch may have no masked patch.

use tensor::{CpuOptions, Device, Precision, Rows, Tensor, ops};

const HELD: f64 = 0.5;

fn device() -> Device {
    Device::cpu(CpuOptions { threads: Some(2), precision: Precision::F32 }).unwrap()
}

fn held(d: &Device, shape: &[usize]) -> Tensor {
    let mut t = d.empty(shape);
    t.fill(HELD);
    t
}

fn untouched(t: &Tensor) -> bool {
    t.to_f64().iter().all(|&x| x == HELD)
}

#[test]
fn layers_give_no_rows_and_leave_gradients_as_they_are() {
    let d = device();
    let (x, w, b) = (d.zeros(&[0, 6]), held(&d, &[4, 6]), held(&d, &[4]));
    let affine = ops::Affine::new(&w, &b);
    assert_eq!(ops::linear(&x, &affine).shape(), [0, 4]);
    let (pre, _) = ops::linear_gelu(&x, &affine);
    assert_eq!(pre.shape(), [0, 4]);
    let (mut dw, mut db) = (held(&d, &[4, 6]), held(&d, &[4]));
    assert_eq!(ops::linear_backward_input(&pre, &affine).shape(), [0, 6]);
    ops::linear_backward_weight(&x, &pre, 0..4, &mut dw, &mut db);
    assert!(untouched(&dw) && untouched(&db));
    let (y, norms) = ops::l2_normalize(&x, 1e-12);
    assert_eq!(ops::l2_normalize_backward(&y, &norms, 1e-12, &y).shape(), [0, 6]);
    assert!(ops::gelu(&x).is_empty());
    let none = Rows::all([]);
    let attended = ops::class_attention(&x, &d.zeros(&[0, 12]), &none, 2);
    assert!(attended.out.is_empty());
}

#[test]
fn a_loss_of_no_rows_is_nothing_and_leaves_prototypes_as_they_are() {
    let d = device();
    let (y, g, v) = (d.zeros(&[0, 6]), held(&d, &[900, 1]), held(&d, &[900, 6]));
    let mut logits = ops::prototype_logits(&y, &g, &v);
    let shift = d.zeros(&[900]);
    let losses = ops::cross_entropy(&mut logits.raw, 10.0, &shift, &d.zeros(&[0, 900]), &[], &[]);
    assert!(losses.is_empty());
    let (mut dg, mut dv) = (held(&d, &[900, 1]), held(&d, &[900, 6]));
    logits.hold_gradient_of_scaled(10.0);
    ops::add_shift_gradient(&logits.raw, &shift, &mut dg);
    let dy = ops::prototype_logits_backward(&y, &g, &v, logits, &mut dg, &mut dv);
    assert!(dy.is_empty() && untouched(&dg) && untouched(&dv));
}
