//! From patch embeddings to tokens.

use super::Gradient::{Added, Returned};
use super::{check, device, held, normal};
use crate::Rows;
use crate::ops::{self, Embeddings, Grid, Interpolation, TokenLayout};

#[test]
fn tokens_differentiate_by_patches_and_learnt_values() {
    let d = device();
    let learnt = (3, 4);
    for (registers, rule) in [(0, Interpolation::Dino), (2, Interpolation::Antialiased), (1, Interpolation::Plain)] {
        let grid = |h, w| Grid::new((h, w), learnt, rule);
        // As learnt; smaller; as many patches in another shape; larger than learnt; a group without images.
        let groups = vec![(2, grid(3, 4)), (3, grid(2, 2)), (0, grid(5, 5)), (1, grid(4, 3)), (2, grid(4, 6))];
        let layout = TokenLayout::new(groups).with_registers(registers);
        let rows = layout.rows();
        let patches = rows.count() - rows.segments() * (1 + registers);
        let mut inputs = vec![normal(&d, 1, &[patches, 3]), normal(&d, 2, &[1, 1, 3]), normal(&d, 3, &[1, 13, 3])];
        if registers > 0 {
            inputs.push(normal(&d, 4, &[1, registers, 3]));
        }
        check(
            inputs,
            |t| {
                let learnt = Embeddings { class: &t[1], registers: t.get(3), position: &t[2] };
                ops::assemble_tokens(&layout, &t[0], &learnt)
            },
            |t, dx| {
                let (mut class, mut position, mut registers) = (held(&t[1]), held(&t[2]), t.get(3).map(held));
                let mut learnt =
                    Embeddings { class: &mut class, registers: registers.as_mut(), position: &mut position };
                let d_patches = ops::assemble_tokens_backward(&layout, dx, &mut learnt);
                [Returned(d_patches), Added(class), Added(position)].into_iter().chain(registers.map(Added)).collect()
            },
        );
    }
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
