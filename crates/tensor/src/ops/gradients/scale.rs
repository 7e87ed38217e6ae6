//! A factor for each row of a parameter.

use super::Gradient::Added;
use super::{check, device, held, normal};
use crate::ops;

#[test]
fn scaled_rows_differentiate_by_rows_and_factors() {
    let d = device();
    // A weight, and a bias.
    for shape in [&[4, 3][..], &[4]] {
        check(
            vec![normal(&d, 1, shape), normal(&d, 2, &[4])],
            |t| ops::scale_rows(&t[0], &t[1]),
            |t, dy| {
                let (mut dx, mut d_factors) = (held(&t[0]), held(&t[1]));
                ops::scale_rows_backward(&t[0], &t[1], dy, &mut dx, &mut d_factors);
                vec![Added(dx), Added(d_factors)]
            },
        );
    }
}
