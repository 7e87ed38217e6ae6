//! Tensors as memory: what goes in comes out, and mistakes of a caller stop at once.

use tensor::{CpuOptions, Device, ParamId, ParamSet, Precision, ops};

fn device(precision: Precision) -> Device {
    Device::cpu(CpuOptions { threads: Some(1), precision }).unwrap()
}

#[test]
fn bytes_bring_back_every_bit_and_a_wrong_number_of_them_is_refused() {
    for precision in [Precision::F32, Precision::F64] {
        let d = device(precision);
        let x = d.from_f64(&[5], &[1.0 / 3.0, -0.0, f64::MIN_POSITIVE, f64::INFINITY, 1e-40]);
        let bytes = x.to_le_bytes();
        assert_eq!(bytes.len(), 5 * d.dtype().size());
        let mut back = d.zeros(&[5]);
        assert!(back.copy_from_le_bytes(&bytes));
        assert_eq!(back.to_le_bytes(), bytes);
        assert!(!back.copy_from_le_bytes(&bytes[1..]));
        assert_eq!(back.to_le_bytes(), bytes, "a refused read changes nothing");
    }
}

#[test]
fn host_values_are_rounded_to_the_element_type_and_no_further() {
    let third = 1.0 / 3.0;
    assert_eq!(device(Precision::F64).from_f64(&[1], &[third]).to_f64(), [third]);
    assert_eq!(device(Precision::F32).from_f64(&[1], &[third]).to_f64(), [f64::from(third as f32)]);
    assert_eq!(device(Precision::F64).from_f32(&[1], &[0.1]).to_f64(), [f64::from(0.1f32)]);
}

#[test]
fn a_tensor_gives_its_memory_back_when_it_goes() {
    let d = device(Precision::F32);
    let before = d.memory().live_bytes;
    let x = d.zeros(&[1000, 10]);
    assert!(d.memory().live_bytes >= before + 40_000);
    drop(x);
    assert_eq!(d.memory().live_bytes, before);
}

#[test]
fn a_set_clears_every_tensor_and_lends_two_of_them_at_once() {
    let d = device(Precision::F64);
    let mut set = ParamSet::zeros(&d, [&[2, 2][..], &[3]]);
    let (a, b) = set.pair_mut(ParamId(1), ParamId(0));
    assert_eq!((a.len(), b.len()), (3, 4));
    a.fill(2.0);
    b.fill(1.0);
    assert_eq!(ops::squared_norms(&set), [4.0, 12.0]);
    let copy = set.duplicate();
    set.clear();
    assert_eq!(ops::squared_norms(&set), [0.0, 0.0]);
    assert_eq!(ops::squared_norms(&copy), [4.0, 12.0]);
}

#[test]
#[should_panic(expected = "two devices or element types")]
fn tensors_of_two_element_types_do_not_mix() {
    let x = device(Precision::F32).zeros(&[2, 3]);
    let other = device(Precision::F64);
    let (w, b) = (other.zeros(&[4, 3]), other.zeros(&[4]));
    ops::linear(&x, &ops::Affine::new(&w, &b));
}

#[test]
#[should_panic(expected = "inputs of a linear layer")]
fn a_wrong_width_stops_before_anything_is_computed() {
    let d = device(Precision::F32);
    let (w, b) = (d.zeros(&[4, 3]), d.zeros(&[4]));
    ops::linear(&d.zeros(&[2, 5]), &ops::Affine::new(&w, &b));
}
