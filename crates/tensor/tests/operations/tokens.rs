//! From pixels to packed tokens.

use tensor::ops::{Embeddings, Grid, Interpolation, PixelData, Pixels, TokenLayout};
use tensor::{Device, Rows, ops};

use crate::{Operation, Outputs, exact, normal, stream, values};

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "patchify", tolerance: 0.0, run: patchify },
        Operation { name: "tokens", tolerance: 1e-6, run: assemble },
        Operation { name: "masked patches", tolerance: 1e-6, run: mask },
    ]
}

fn patchify(d: &Device) -> Outputs {
    let bytes: Vec<u8> = (0..3 * 50 * 40 * 3u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let values = values(1, &[2, 3, 33, 33]);
    let (mean, deviation) = (&[0.485f32, 0.456, 0.406][..], &[0.229f32, 0.224, 0.225][..]);
    let groups = [
        Pixels {
            count: 3,
            height: 50,
            width: 40,
            channels: 3,
            data: PixelData::Bytes { pixels: &bytes, mean, deviation },
        },
        Pixels { count: 2, height: 33, width: 33, channels: 3, data: PixelData::Values(&values) },
    ];
    [8, 4, 5].into_iter().map(|patch| ("patches", ops::patchify(d, &groups, patch).to_f64())).collect()
}

fn assemble(d: &Device) -> Outputs {
    [(48, 0), (44, 0), (48, 4), (44, 3)]
        .into_iter()
        .flat_map(|(dim, registers)| assemble_of(d, dim, registers))
        .collect()
}

fn assemble_of(d: &Device, dim: usize, registers: usize) -> Outputs {
    let grid = |size, rule| Grid::new(size, (14, 14), rule);
    let layout = TokenLayout::new(vec![
        (2, grid((14, 14), Interpolation::Dino)),
        (5, grid((6, 6), Interpolation::Dino)),
        (3, grid((6, 6), Interpolation::Antialiased)),
        (1, grid((16, 10), Interpolation::Plain)),
    ])
    .with_registers(registers);
    let rows = layout.rows();
    let patches = normal(d, 1, &[rows.count() - rows.segments() * (1 + registers), dim]);
    let (class, position) = (exact(d, 2, &[1, 1, dim]), exact(d, 3, &[1, 197, dim]));
    let register = (registers > 0).then(|| exact(d, 5, &[1, registers, dim]));
    let learnt = Embeddings { class: &class, registers: register.as_ref(), position: &position };
    let x = ops::assemble_tokens(&layout, &patches, &learnt);
    let dx = stream(d, 4, &[rows.count(), dim]);
    let (mut d_class, mut d_position) = (d.zeros_exact(&[1, 1, dim]), d.zeros_exact(&[1, 197, dim]));
    let mut d_register = (registers > 0).then(|| d.zeros_exact(&[1, registers, dim]));
    let mut gradients = Embeddings { class: &mut d_class, registers: d_register.as_mut(), position: &mut d_position };
    let d_patches = ops::assemble_tokens_backward(&layout, &dx, &mut gradients);
    let mut outputs = vec![
        ("x", x.to_f64()),
        ("d_patches", d_patches.to_f64()),
        ("d_class", d_class.to_f64()),
        ("d_position", d_position.to_f64()),
    ];
    outputs.extend(d_register.map(|d_register| ("d_registers", d_register.to_f64())));
    outputs
}

fn mask(d: &Device) -> Outputs {
    let some = |count: usize| Rows::some(count, &(0..count).filter(|row| row % 7 < 3).collect::<Vec<_>>());
    let rows = [(300, 48, some(300)), (90, 44, some(90)), (5, 48, Rows::some(5, &[])), (3, 48, Rows::one_each(3))];
    rows.iter().flat_map(|(count, dim, rows)| mask_of(d, *count, *dim, rows)).collect()
}

fn mask_of(d: &Device, count: usize, dim: usize, rows: &Rows) -> Outputs {
    let (mut x, mut dx) = (normal(d, 1, &[count, dim]), normal(d, 2, &[count, dim]));
    ops::replace_rows(&mut x, rows, &exact(d, 3, &[1, dim]));
    let mut d_value = exact(d, 4, &[1, dim]);
    ops::replace_rows_backward(&mut dx, rows, &mut d_value);
    // Where all rows are masked nothing is left of it, and one has no largest element to compare by.
    let above_zero = dx.to_f64().iter().map(|dx| 1.0 + dx).collect();
    vec![("x", x.to_f64()), ("1 + dx", above_zero), ("d_value", d_value.to_f64())]
}
