//! Matrix products and what is made of them.
//!
//! A vision transformer is little else, so these are the only loops here that are written for speed: the right matrix is
//! copied into panels of a few columns that fit the cache, and each panel is multiplied with four rows at a time.

use rayon::prelude::*;
use simd::simd;

use super::call::{Call, Operator, length, operator};
use super::problem::Problem;
use super::value::{Value, View, broadcast};

pub(super) const OPERATORS: &[Operator] = &[
    operator("MatMul", 2..=2, &[], mat_mul),
    operator("Gemm", 2..=3, &["alpha", "beta", "transA", "transB"], gemm),
    operator("Conv", 2..=3, &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"], conv),
];

/// Columns of a panel: two of the longest vectors.
const WIDTH: usize = 32;

/// Rows that are multiplied together.
const ROWS: usize = 4;

/// The right side of a product: element (i, j) is `data[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major matrix, which `data` has exactly the elements of.
    fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    fn transposed(self) -> Self {
        let (rows, columns) = (self.columns, self.rows);
        Self { rows, columns, row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    fn at(&self, row: usize, column: usize) -> f32 {
        self.data[row * self.row_stride + column * self.column_stride]
    }

    /// All elements, row by row.
    fn to_vec(self) -> Vec<f32> {
        (0..self.rows).flat_map(|i| (0..self.columns).map(move |j| self.at(i, j))).collect()
    }

    /// [`WIDTH`] columns from `first` on, row by row; zeros behind the last column.
    fn panel(&self, first: usize) -> Vec<[f32; WIDTH]> {
        let width = WIDTH.min(self.columns - first);
        let row = |i| {
            let mut row = [0.0; WIDTH];
            row.iter_mut().take(width).enumerate().for_each(|(j, x)| *x = self.at(i, first + j));
            row
        };
        (0..self.rows).map(row).collect()
    }
}

/// `a b`, where `a` is row-major and has as many columns as `b` has rows.
fn multiply(a: &[f32], b: Matrix<'_>) -> Vec<f32> {
    let (depth, columns) = (b.rows, b.columns);
    if a.is_empty() || columns == 0 {
        return Vec::new();
    }
    let rows = a.len() / depth;
    let firsts: Vec<usize> = (0..columns).step_by(WIDTH).collect();
    let products: Vec<Vec<[f32; WIDTH]>> = firsts
        .par_iter()
        .map(|&first| {
            let mut product = vec![[0.0; WIDTH]; rows];
            multiply_panel(a, &b.panel(first), &mut product);
            product
        })
        .collect();
    let mut out = Vec::with_capacity(rows * columns);
    for i in 0..rows {
        for (product, first) in products.iter().zip(&firsts) {
            out.extend_from_slice(&product[i][..WIDTH.min(columns - first)]);
        }
    }
    out
}

simd! {
    /// `out = a panel`. There is at least one row in each.
    fn multiply_panel(a: &[f32], panel: &[[f32; WIDTH]], out: &mut [[f32; WIDTH]]) {
        let depth = panel.len();
        let mut groups = out.chunks_exact_mut(ROWS);
        for (i, out) in (&mut groups).enumerate() {
            let rows: [&[f32]; ROWS] = std::array::from_fn(|r| &a[(i * ROWS + r) * depth..][..depth]);
            let mut sums = [[0.0f32; WIDTH]; ROWS];
            for (l, b) in panel.iter().enumerate() {
                for (row, sums) in rows.iter().zip(&mut sums) {
                    let x = row[l];
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum += x * b;
                    }
                }
            }
            out.copy_from_slice(&sums);
        }
        let rest = groups.into_remainder();
        let first = a.len() / depth - rest.len();
        for (row, out) in a[first * depth..].chunks_exact(depth).zip(rest) {
            for (x, b) in row.iter().zip(panel) {
                for (sum, b) in out.iter_mut().zip(b) {
                    *sum += x * b;
                }
            }
        }
    }
}

/// As NumPy's `matmul`: the last two sides are matrices, those before are broadcast; a vector is a row on the left and a
/// column on the right.
fn mat_mul(call: &Call<'_>) -> Result<Value, Problem> {
    let ((a_shape, a), (b_shape, b)) = (call.f32(0)?, call.f32(1)?);
    let unfit = || Problem::Broadcast { left: a_shape.to_vec(), right: b_shape.to_vec() };
    let (a_outer, rows, depth) = match a_shape {
        [] => return Err(unfit()),
        [depth] => (&[][..], 1, *depth),
        [outer @ .., rows, depth] => (outer, *rows, *depth),
    };
    let (b_outer, b_depth, columns) = match b_shape {
        [] => return Err(unfit()),
        [depth] => (&[][..], *depth, 1),
        [outer @ .., depth, columns] => (outer, *depth, *columns),
    };
    if depth != b_depth {
        return Err(unfit());
    }
    let outer = broadcast(a_outer, b_outer)?;
    let mut shape = outer.clone();
    shape.extend((a_shape.len() > 1).then_some(rows));
    shape.extend((b_shape.len() > 1).then_some(columns));
    let elements = call.count(&shape)?;
    if depth == 0 || elements == 0 {
        return Ok(Value::f32(&shape, vec![0.0; elements])?);
    }
    if b_outer.iter().all(|&side| side == 1) && outer.len() == a_outer.len() {
        // One matrix for all, as in a linear layer: the rows of all matrices on the left are those of one.
        return Ok(Value::f32(&shape, multiply(a, Matrix::new(b, depth, columns)))?);
    }
    let place = |from: &[usize]| View::broadcast(from, &outer).map(|view| view.places().collect::<Vec<_>>());
    let (a_places, b_places) = place(a_outer).zip(place(b_outer)).ok_or_else(unfit)?;
    let products = a_places.par_iter().zip(&b_places).map(|(&i, &j)| {
        let (a, b) = (&a[i * rows * depth..][..rows * depth], &b[j * depth * columns..][..depth * columns]);
        multiply(a, Matrix::new(b, depth, columns))
    });
    Ok(Value::f32(&shape, products.collect::<Vec<_>>().concat())?)
}

/// `alpha a b + beta c`, where `a` and `b` may be transposed and `c` is broadcast.
fn gemm(call: &Call<'_>) -> Result<Value, Problem> {
    let matrix = |input: usize, transposed: bool| match call.f32(input)? {
        (&[rows, columns], data) if transposed => Ok(Matrix::new(data, rows, columns).transposed()),
        (&[rows, columns], data) => Ok(Matrix::new(data, rows, columns)),
        (shape, _) => Err(Problem::Shape { shape: shape.to_vec(), why: "this should be a matrix" }),
    };
    let (a, b) = (matrix(0, call.flag("transA", false)?)?, matrix(1, call.flag("transB", false)?)?);
    let (alpha, beta) = (call.float("alpha", 1.0)?, call.float("beta", 1.0)?);
    if a.columns != b.rows {
        return Err(Problem::Broadcast { left: vec![a.rows, a.columns], right: vec![b.rows, b.columns] });
    }
    let shape = [a.rows, b.columns];
    let elements = call.count(&shape)?;
    let mut out = if a.columns == 0 { vec![0.0; elements] } else { multiply(&a.to_vec(), b) };
    out.iter_mut().for_each(|x| *x *= alpha);
    if call.optional(2).is_some() {
        let (c_shape, c) = call.f32(2)?;
        let unfit = || Problem::Broadcast { left: c_shape.to_vec(), right: shape.to_vec() };
        let view = View::broadcast(c_shape, &shape).ok_or_else(unfit)?;
        out.iter_mut().zip(view.places()).for_each(|(x, i)| *x += beta * c[i]);
    }
    Ok(Value::f32(&shape, out)?)
}

/// One side of a convolution.
#[derive(Clone, Copy)]
struct Side {
    length: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
    /// Places of the kernel.
    outputs: usize,
}

impl Side {
    /// The place of the image under tap `tap` of the kernel at place `output`; none in the padding.
    fn source(&self, output: usize, tap: usize) -> Option<usize> {
        (output * self.stride + tap * self.dilation).checked_sub(self.pad).filter(|&at| at < self.length)
    }
}

/// A convolution of images, as the product of the kernels with a matrix of all patches.
fn conv(call: &Call<'_>) -> Result<Value, Problem> {
    let ((x_shape, x), (w_shape, w)) = (call.f32(0)?, call.f32(1)?);
    let unfit = || Problem::Broadcast { left: x_shape.to_vec(), right: w_shape.to_vec() };
    let (&[batch, channels, height, width], &[outputs, w_channels, kernel_height, kernel_width]) = (x_shape, w_shape)
    else {
        return Err(unfit());
    };
    if call.node.attributes.contains_key("auto_pad") {
        return Err(Problem::Attribute { name: "auto_pad", expected: "left out" });
    }
    if call.int("group", 1)? != 1 {
        return Err(Problem::Attribute { name: "group", expected: "1" });
    }
    if channels != w_channels || call.list("kernel_shape")?.is_some_and(|sides| sides != kernel_sides(w_shape)) {
        return Err(unfit());
    }
    let rows = side(call, 0, height, kernel_height)?;
    let columns = side(call, 1, width, kernel_width)?;
    let shape = [batch, outputs, rows.outputs, columns.outputs];
    call.count(&shape)?;
    let (depth, places) = (channels * kernel_height * kernel_width, rows.outputs * columns.outputs);
    call.count(&[depth, places])?;
    let image = channels * height * width;
    let mut out = Vec::new();
    for x in (0..batch).map(|b| &x[b * image..][..image]) {
        // Row (channel, tap) and column (place) of the matrix of patches.
        let mut patches = Vec::with_capacity(depth * places);
        for (channel, i, j) in taps(channels, kernel_height, kernel_width) {
            let plane = &x[channel * height * width..][..height * width];
            for row in (0..rows.outputs).map(|output| rows.source(output, i)) {
                let pixel = |output| Some(plane[row? * width + columns.source(output, j)?]);
                patches.extend((0..columns.outputs).map(|output| pixel(output).unwrap_or(0.0)));
            }
        }
        match depth {
            0 => out.resize(out.len() + outputs * places, 0.0),
            _ => out.extend(multiply(w, Matrix::new(&patches, depth, places))),
        }
    }
    if call.optional(2).is_some() {
        let (bias_shape, bias) = call.f32(2)?;
        if bias.len() != outputs {
            return Err(Problem::Shape { shape: bias_shape.to_vec(), why: "there is one bias for each kernel" });
        }
        for (plane, bias) in out.chunks_exact_mut(places.max(1)).zip(bias.iter().cycle()) {
            plane.iter_mut().for_each(|x| *x += bias);
        }
    }
    Ok(Value::f32(&shape, out)?)
}

fn kernel_sides(w_shape: &[usize]) -> Vec<i64> {
    w_shape.iter().skip(2).map(|&side| side as i64).collect()
}

fn taps(channels: usize, height: usize, width: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..channels).flat_map(move |c| (0..height).flat_map(move |i| (0..width).map(move |j| (c, i, j))))
}

fn side(call: &Call<'_>, axis: usize, size: usize, kernel: usize) -> Result<Side, Problem> {
    let entry = |name, count, i: usize, default| match call.list(name)? {
        None => Ok(default),
        Some(list) if list.len() == count => length(list[i]),
        Some(_) => Err(Problem::Attribute { name, expected: "one number for each side" }),
    };
    let stride = entry("strides", 2, axis, 1)?;
    let dilation = entry("dilations", 2, axis, 1)?;
    let (pad, pad_behind) = (entry("pads", 4, axis, 0)?, entry("pads", 4, axis + 2, 0)?);
    // Counted with care: any of these may be anything.
    let padded = size.checked_add(pad).and_then(|padded| padded.checked_add(pad_behind));
    let reach =
        kernel.checked_sub(1).and_then(|taps| taps.checked_mul(dilation)).and_then(|reach| reach.checked_add(1));
    let steps = padded.zip(reach).and_then(|(padded, reach)| padded.checked_sub(reach)?.checked_div(stride));
    match steps {
        Some(steps) => Ok(Side { length: size, stride, dilation, pad, outputs: steps + 1 }),
        None => Err(Problem::Shape { shape: vec![size, kernel], why: "the kernel does not fit" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_all_sizes_are_those_of_the_plain_sum() {
        let values = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
        for (rows, depth, columns) in [(1, 1, 1), (4, 3, 32), (5, 7, 33), (9, 2, 65), (3, 40, 31), (8, 5, 64)] {
            let (a, b) = (values(rows * depth, 0.7), values(depth * columns, 0.3));
            for b in [Matrix::new(&b, depth, columns), Matrix::new(&b, columns, depth).transposed()] {
                let found = multiply(&a, b);
                assert_eq!(found.len(), rows * columns);
                for (i, row) in found.chunks(columns).enumerate() {
                    for (j, &x) in row.iter().enumerate() {
                        let sum: f64 = (0..depth).map(|l| f64::from(a[i * depth + l]) * f64::from(b.at(l, j))).sum();
                        assert!((f64::from(x) - sum).abs() < 1e-5, "{rows} {depth} {columns}: {x} {sum}");
                    }
                }
            }
        }
    }
}
