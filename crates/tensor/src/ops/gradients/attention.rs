//! Attention inside segments, of all tokens and of class tokens.

use super::Gradient::Returned;
use super::{check, device, normal};
use crate::{Rows, ops};

#[test]
fn attention_differentiates_by_queries_keys_and_values() {
    let d = device();
    for (heads, width) in [(1, 4), (2, 3), (3, 1)] {
        let rows = Rows::all([5, 1, 3]);
        check(
            vec![normal(&d, 1, &[9, 3 * heads * width])],
            |t| ops::attention(&t[0], &rows, heads).out,
            |t, dy| {
                let attended = ops::attention(&t[0], &rows, heads);
                vec![Returned(ops::attention_backward(&t[0], &rows, heads, &attended, dy))]
            },
        );
    }
}

#[test]
fn attention_of_kept_segments_works_on_the_compact_matrix() {
    let d = device();
    for flags in [[true, false, true], [false; 3]] {
        let rows = Rows::all([2, 4, 3]).keep(&flags);
        check(
            vec![normal(&d, 1, &[rows.count(), 12])],
            |t| ops::attention(&t[0], &rows, 2).out,
            |t, dy| {
                let attended = ops::attention(&t[0], &rows, 2);
                vec![Returned(ops::attention_backward(&t[0], &rows, 2, &attended, dy))]
            },
        );
    }
}

#[test]
fn class_attention_differentiates_by_queries_keys_and_values() {
    let d = device();
    let rows = Rows::all([5, 1, 3]);
    check(
        vec![normal(&d, 1, &[3, 6]), normal(&d, 2, &[9, 12])],
        |t| ops::class_attention(&t[0], &t[1], &rows, 2).out,
        |t, dy| {
            let attended = ops::class_attention(&t[0], &t[1], &rows, 2);
            let (dq, dkv) = ops::class_attention_backward(&t[0], &t[1], &rows, 2, &attended, dy);
            vec![Returned(dq), Returned(dkv)]
        },
    );
}
