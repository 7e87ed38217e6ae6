//! From patch embeddings to tokens.

use super::Gradient::{Added, Returned};
use super::{check, device, held, normal};
use crate::Rows;
use crate::ops::{self, Grid, TokenLayout};

#[test]
fn tokens_differentiate_by_patches_class_and_positions() {
    let d = device();
    let learnt = (3, 4);
    let grid = |h, w| Grid::new((h, w), learnt);
    // As learnt; smaller; as many patches in another shape; larger than learnt; a group without images.
    let layout =
        TokenLayout::new(vec![(2, grid(3, 4)), (3, grid(2, 2)), (0, grid(5, 5)), (1, grid(4, 3)), (2, grid(4, 6))]);
    let rows = layout.rows();
    let patches = rows.count() - rows.segments();
    check(
        vec![normal(&d, 1, &[patches, 3]), normal(&d, 2, &[1, 1, 3]), normal(&d, 3, &[1, 13, 3])],
        |t| ops::assemble_tokens(&layout, &t[0], &t[1], &t[2]),
        |t, dx| {
            let (mut d_class, mut d_position) = (held(&t[1]), held(&t[2]));
            let d_patches = ops::assemble_tokens_backward(&layout, dx, &mut d_class, &mut d_position);
            vec![Returned(d_patches), Added(d_class), Added(d_position)]
        },
    );
}

#[test]
fn masked_patches_hand_their_gradient_to_the_mask_token() {
    let d = device();
    for masked in [&[0, 3, 4][..], &[], &[0, 1, 2, 3, 4]] {
        let rows = Rows::some(5, masked);
        check(
            vec![normal(&d, 1, &[5, 3]), normal(&d, 2, &[1, 3])],
            |t| {
                let mut x = t[0].duplicate();
                ops::replace_rows(&mut x, &rows, &t[1]);
                x
            },
            |t, dy| {
                let (mut dx, mut d_value) = (dy.duplicate(), held(&t[1]));
                ops::replace_rows_backward(&mut dx, &rows, &mut d_value);
                vec![Returned(dx), Added(d_value)]
            },
        );
    }
}
