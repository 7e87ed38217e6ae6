//! Prototypes, their softmax, and the cross-entropy between student and teacher.
//!
//! Logits are always `scale * raw + shift_k`, where raw = <w_k, y>: a temperature, and for each prototype the vMF
//! log-normaliser less the centre. The shift is a vector of K, so no mode of the paper needs a pass of its own.

use crate::cpu::{cross_entropy as cpu_ce, on_device, prototypes as cpu, reduce, softmax as cpu_softmax};
use crate::cuda::prototypes as gpu;
use crate::tensor::Tensor;

/// Raw logits <w_k, y> [rows, K] and what their derivative needs.
#[derive(Debug)]
pub struct Logits {
    /// <w_k, y>.
    pub raw: Tensor,
    /// 1 / |v_k|.
    inverse_norms: Tensor,
    /// What a gradient in `raw` has yet to be multiplied by.
    factor: f64,
}

impl Logits {
    /// Says that `raw` has become the gradient with respect to `scale raw`.
    pub fn hold_gradient_of_scaled(&mut self, scale: f64) {
        self.factor = scale;
    }
}

/// <w_k, y> with w_k = g_k v_k / |v_k|; `direction` is v [K, p], `magnitude` is g [K, 1].
pub fn prototype_logits(y: &Tensor, magnitude: &Tensor, direction: &Tensor) -> Logits {
    let (count, dim) = (direction.rows(), direction.columns());
    assert_eq!((y.columns(), magnitude.len()), (dim, count), "embedding and prototypes");
    let device = y.device();
    let (mut raw, mut inverse_norms) = (device.empty_exact(&[y.rows(), count]), device.empty_exact(&[count]));
    on_device!(y, T => cpu::forward(
        y.device().as_cpu(), T::slice(y), T::slice(magnitude), T::slice(direction), dim,
        T::slice_mut(&mut raw), T::slice_mut(&mut inverse_norms),
    ), cuda => gpu::logits(cuda, y, magnitude, direction, &mut raw, &mut inverse_norms));
    Logits { raw, inverse_norms, factor: 1.0 }
}

/// The gradient of `y`, given that of the raw logits in `logits.raw` (which it uses up); adds those of g and v.
pub fn prototype_logits_backward(
    y: &Tensor,
    magnitude: &Tensor,
    direction: &Tensor,
    mut logits: Logits,
    d_magnitude: &mut Tensor,
    d_direction: &mut Tensor,
) -> Tensor {
    let mut dy = y.device().empty(y.shape());
    on_device!(y, T => cpu::backward(
        y.device().as_cpu(), T::slice(y), T::slice(magnitude), T::slice(direction), T::slice(&logits.inverse_norms),
        direction.columns(), T::slice_mut(&mut logits.raw), T::from_f64(logits.factor), T::slice_mut(&mut dy),
        T::slice_mut(d_magnitude), T::slice_mut(d_direction),
    ), cuda => gpu::logits_backward(
        cuda,
        y,
        magnitude,
        direction,
        (&logits.raw, logits.factor),
        &mut logits.inverse_norms,
        [&mut dy, d_magnitude, d_direction],
    ));
    dy
}

/// Delta(|g_k| / tau), the vMF log-normaliser relative to kappa = 0, and its derivative by g_k.
pub fn vmf_log_normalizer(magnitude: &Tensor, tau: f64, normalizer: &vmf::LogNormalizer<f64>) -> (Tensor, Tensor) {
    let device = magnitude.device();
    let (mut value, mut slope) = (device.empty_exact(&[magnitude.len()]), device.empty_exact(&[magnitude.len()]));
    on_device!(magnitude, T => {
        let g = T::slice(magnitude);
        for ((&g, value), slope) in g.iter().zip(T::slice_mut(&mut value)).zip(T::slice_mut(&mut slope)) {
            let kappa = g.to_f64().abs() / tau;
            *value = T::from_f64(normalizer.relative(kappa));
            *slope = T::from_f64(normalizer.slope(kappa) * g.to_f64().signum() / tau);
        }
    }, cuda => gpu::vmf_log_normalizer(cuda, magnitude, tau, normalizer.nu(), &mut value, &mut slope));
    (value, slope)
}

/// softmax(scale raw + shift) of every row.
pub fn softmax(raw: &Tensor, scale: f64, shift: &Tensor) -> Tensor {
    let mut out = raw.device().empty_exact(raw.shape());
    assert_eq!(shift.len(), raw.columns(), "one shift for each prototype");
    on_device!(
        raw,
        T => cpu_softmax::forward(raw.device().as_cpu(), T::slice(raw), scale, T::slice(shift), T::slice_mut(&mut out)),
        cuda => gpu::softmax(cuda, raw, scale, shift, &mut out),
    );
    out
}

/// The gradient with respect to `scale raw + shift` of `weight` times the sum over rows of sum_k slope_k p_k, where p is
/// their softmax: of anything that depends on the mean of the probabilities, by its slope there.
pub fn softmax_gradient(raw: &Tensor, scale: f64, shift: &Tensor, slope: &Tensor, weight: f64) -> Tensor {
    assert_eq!((shift.len(), slope.len()), (raw.columns(), raw.columns()), "one shift and slope for each prototype");
    let mut out = raw.device().empty(raw.shape());
    on_device!(raw, T => cpu_softmax::gradient(
        raw.device().as_cpu(), T::slice(raw), scale, T::slice(shift), T::slice(slope), weight, T::slice_mut(&mut out),
    ), cuda => gpu::softmax_gradient(cuda, raw, scale, shift, slope, weight, &mut out));
    out
}

/// ln of the mean over rows of softmax(scale raw + shift), in the log domain: K values.
pub fn log_mean_softmax(raw: &Tensor, scale: f64, shift: &Tensor) -> Tensor {
    assert_eq!(shift.len(), raw.columns(), "one shift for each prototype");
    let mut out = raw.device().empty_exact(&[raw.columns()]);
    on_device!(
        raw,
        T => cpu_softmax::log_mean(raw.device().as_cpu(), T::slice(raw), scale, T::slice(shift), T::slice_mut(&mut out)),
        cuda => gpu::log_mean_softmax(cuda, raw, scale, shift, &mut out),
    );
    out
}

/// `value = ln(share exp(value) + (1 - share) exp(other))`: the logarithm of a mean over all rows from those of two parts, of
/// which the first has this share of the rows.
pub fn log_mean_with(value: &mut Tensor, share: f64, other: &Tensor) {
    assert_eq!(value.len(), other.len(), "vectors of one length");
    on_device!(other, T => {
        for (value, other) in T::slice_mut(value).iter_mut().zip(T::slice(other)) {
            let (a, b) = (value.to_f64(), other.to_f64());
            let top = a.max(b);
            *value = T::from_f64(top + (share * (a - top).exp() + (1.0 - share) * (b - top).exp()).ln());
        }
    }, cuda => gpu::log_mean_with(cuda, value, share, other));
}

/// scale * (mean over rows of raw) + shift: K values.
pub fn column_mean(raw: &Tensor, scale: f64, shift: &Tensor) -> Tensor {
    assert_eq!(shift.len(), raw.columns(), "one shift for each prototype");
    let factor = scale / raw.rows() as f64;
    let mut out = raw.device().zeros_exact(&[raw.columns()]);
    on_device!(raw, T => {
        reduce::add_column_sums(raw.device().as_cpu(), T::slice(raw), raw.columns(), T::slice_mut(&mut out));
        for (o, &s) in T::slice_mut(&mut out).iter_mut().zip(T::slice(shift)) {
            *o = o.mul_add(T::from_f64(factor), s);
        }
    }, cuda => gpu::column_mean(cuda, raw, factor, shift, &mut out));
    out
}

/// The most parts that [`row_means`] cuts rows into: on a GPU they are the second extent of a grid.
pub const MOST_PARTS: usize = 65_535;

/// [parts, columns]: the means of equally many neighbouring rows each, of the type of the elements. A linear function of
/// all rows has the mean that it has of these.
///
/// # Panics
/// When the rows cannot be cut into so many equal parts, or these are more than [`MOST_PARTS`].
pub fn row_means(x: &Tensor, parts: usize) -> Tensor {
    let (rows, columns) = (x.rows(), x.columns());
    assert!(parts <= MOST_PARTS, "{parts} parts");
    assert!(parts > 0 && rows > 0 && rows.is_multiple_of(parts), "{rows} rows in {parts} equal parts");
    assert_eq!(x.dtype(), x.device().dtype(), "activations");
    let mut means = x.device().empty(&[parts, columns]);
    on_device!(x, T => {
        let cpu = x.device().as_cpu();
        let of_parts = T::slice(x).chunks_exact((rows / parts * columns).max(1));
        for (mean, part) in T::slice_mut(&mut means).chunks_exact_mut(columns.max(1)).zip(of_parts) {
            mean.fill(T::ZERO);
            reduce::add_column_sums(cpu, part, columns, mean);
            mean.iter_mut().for_each(|value| *value *= T::from_f64(parts as f64 / rows as f64));
        }
    }, cuda => crate::cuda::linear::row_means(cuda, x, &mut means));
    means
}

/// Sums over rows: one for each column.
pub fn column_sums(x: &Tensor) -> Tensor {
    let mut out = x.device().zeros_exact(&[x.columns()]);
    on_device!(
        x,
        T => reduce::add_column_sums(x.device().as_cpu(), T::slice(x), x.columns(), T::slice_mut(&mut out)),
        cuda => gpu::column_sums(cuda, x, &mut out),
    );
    out
}

/// `value = momentum value + (1 - momentum) target`, with no element of the target below `floor` where one is given.
pub fn move_towards(value: &mut Tensor, target: &Tensor, momentum: f64, floor: Option<f64>) {
    assert_eq!(value.len(), target.len(), "vectors of one length");
    on_device!(target, T => {
        let (m, rest) = (T::from_f64(momentum), T::from_f64(1.0 - momentum));
        let floor = floor.map_or(T::LOWEST, T::from_f64);
        for (v, &t) in T::slice_mut(value).iter_mut().zip(T::slice(target)) {
            // In this order a NaN is kept: a floor must not hide that the teacher broke.
            *v = m * *v + rest * floor.larger(t);
        }
    }, cuda => gpu::move_towards(cuda, value, target, momentum, floor));
}

/// `a + factor b`.
pub fn add_scaled(a: &Tensor, factor: f64, b: &Tensor) -> Tensor {
    let mut out = a.duplicate();
    assert_eq!(a.len(), b.len(), "vectors of one length");
    on_device!(a, T => {
        for (o, &b) in T::slice_mut(&mut out).iter_mut().zip(T::slice(b)) {
            *o = b.mul_add(T::from_f64(factor), *o);
        }
    }, cuda => gpu::add_scaled(cuda, a, factor, b, &mut out));
    out
}

/// The column of the largest element of each row, that of row r looked for beside column `first + r`.
pub fn largest_beside(x: &Tensor, first: usize) -> Vec<usize> {
    assert!(x.columns() > 1, "there is one beside it");
    on_device!(x, T => {
        let largest = |(r, row): (usize, &[T])| {
            let beside = row.iter().enumerate().filter(|(c, _)| *c != first + r);
            beside.fold((usize::from(first + r == 0), T::LOWEST), |best, (c, &x)| if x > best.1 { (c, x) } else { best }).0
        };
        T::slice(x).chunks_exact(x.columns()).enumerate().map(largest).collect()
    }, cuda => gpu::largest_beside(cuda, x, first))
}

/// Entropy of each row of probabilities, and the column of its largest.
pub fn row_summaries(probabilities: &Tensor) -> Vec<(f64, usize)> {
    on_device!(
        probabilities,
        T => cpu_softmax::summaries(probabilities.device().as_cpu(), T::slice(probabilities), probabilities.columns()),
        cuda => gpu::row_summaries(cuda, probabilities),
    )
}

/// Cross-entropy of student rows against teacher distributions, with its gradient.
///
/// Row r of the student meets the rows `targets_of[r]` of `targets`. Returns each row's summed cross-entropy; `raw`
/// becomes the gradient of their sum, each times `weights[r]`, with respect to `scale raw + shift`.
pub fn cross_entropy(
    raw: &mut Tensor,
    scale: f64,
    shift: &Tensor,
    targets: &Tensor,
    targets_of: &[Vec<usize>],
    weights: &[f64],
) -> Vec<f64> {
    assert_eq!(weights.len(), targets_of.len(), "one weight for each student row");
    assert_eq!((raw.rows(), raw.columns()), (targets_of.len(), targets.columns()), "student rows and teacher columns");
    on_device!(targets, T => cpu_ce::forward_backward(
        targets.device().as_cpu(), T::slice_mut(raw), scale, T::slice(shift), T::slice(targets), targets_of, weights,
    ), cuda => {
        let mut d_logits = raw.device().empty(raw.shape());
        let losses = gpu::cross_entropy(cuda, raw, scale, shift, targets, targets_of, weights, &mut d_logits);
        *raw = d_logits;
        losses
    })
}

/// Adds `slope_k sum_b d_logits_bk` to dg, where the shift of the logits depends on g with this slope.
pub fn add_shift_gradient(d_logits: &Tensor, slope: &Tensor, dg: &mut Tensor) {
    let sums = column_sums(d_logits);
    on_device!(sums, T => {
        for ((dg, &slope), &sum) in T::slice_mut(dg).iter_mut().zip(T::slice(slope)).zip(T::slice(&sums)) {
            *dg = slope.mul_add(sum, *dg);
        }
    }, cuda => gpu::add_products(cuda, slope, &sums, dg));
}
