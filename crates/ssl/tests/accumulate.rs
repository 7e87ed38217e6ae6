//! A step that is taken in parts, one after another, is the whole step.

mod common;

use common::parts::{BATCH, assert_same, learner, methods, train};
use tensor::Precision;

#[test]
fn parts_add_up_to_the_whole_step() {
    for method in methods(false, 0.1) {
        let learner = |parts| learner(&*method, parts, Precision::F64);
        let whole = train(learner(1), 0..BATCH, 4, |_| 1e-2);
        // Uneven parts, one image each, and more parts than images.
        for parts in [2, 4, 6, 9] {
            assert_same(&format!("{method:?} in {parts}"), &train(learner(parts), 0..BATCH, 4, |_| 1e-2), &whole, 1e-8);
        }
    }
}
