//! The operations of a vision transformer and its losses, each with its derivative.
//!
//! A function here checks shapes, makes the result and hands over to the device's kernel. Gradients of parameters are
//! always *added* to what the caller holds; gradients of activations are returned, or added where the name says so.

mod attention;
mod batch_norm;
mod largest;
mod linear;
mod norm;
mod optimizer;
mod positions;
mod prototypes;
mod residual;
mod scale;
mod tokens;
mod views;

#[cfg(test)]
mod gradients;

pub use attention::{Attended, attention, attention_backward, class_attention, class_attention_backward};
pub use batch_norm::{
    BatchStatistics, BatchSums, batch_norm, batch_norm_backward, batch_norm_input_gradient, batch_norm_sums,
    batch_norm_with,
};
pub use largest::{Largest, largest};
pub use linear::{
    Affine, GeluSaved, linear, linear_backward_input, linear_backward_through_gelu, linear_backward_weight,
    linear_gelu, linear_gelu_only, linear_residual,
};
pub use norm::{
    Norm, RowStatistics, gelu, l2_normalize, l2_normalize_backward, layer_norm, layer_norm_backward,
    linear_residual_norm,
};
pub use optimizer::{
    AdamW, ParameterUpdate, PartMoments, Teacher, adamw_and_average, adamw_on_parts, average, clear, momentum_step,
    squared_norms,
};
pub use positions::{Grid, Interpolation};
pub use prototypes::{
    Logits, MOST_PARTS, add_scaled, add_shift_gradient, column_mean, column_sums, cross_entropy, largest_beside,
    log_mean_softmax, log_mean_with, move_towards, prototype_logits, prototype_logits_backward, row_means,
    row_summaries, softmax, softmax_gradient, vmf_log_normalizer,
};
pub use residual::{branch_gradient, gather, scatter, scatter_add};
pub use scale::{scale_rows, scale_rows_backward};
pub use tokens::{
    Embeddings, PixelData, Pixels, TokenLayout, assemble_tokens, assemble_tokens_backward, patchify, replace_rows,
    replace_rows_backward,
};
pub use views::{BoxBlur, ColorStep, ViewEdit};
