//! Pixels to patches: an image becomes rows of C P P values, the input of the patch embedding seen as a linear layer.

use rayon::prelude::*;

use super::{Cpu, Real, split_mut};
use crate::ops::{PixelData, Pixels};

/// Rows for each image of each group in turn. Pixels that do not fill a patch at the right or lower edge are left out,
/// as a convolution with that stride leaves them out.
pub(crate) fn forward<T: Real>(cpu: &Cpu, groups: &[Pixels<'_>], patch: usize, out: &mut [T]) {
    let images: Vec<(&Pixels<'_>, usize)> = groups.iter().flat_map(|g| (0..g.count).map(move |i| (g, i))).collect();
    let lengths = images.iter().map(|(g, _)| g.patches(patch) * g.channels * patch * patch);
    let outs = split_mut(out, lengths);
    let tables: Vec<Vec<T>> = groups.iter().map(normalisation_table).collect();
    let table_of: Vec<usize> = groups.iter().enumerate().flat_map(|(i, g)| std::iter::repeat_n(i, g.count)).collect();
    cpu.install(|| {
        (images, outs, table_of).into_par_iter().for_each(|((group, index), out, table)| {
            one_image(group, index, patch, &tables[table], out);
        });
    });
}

/// (u / 255 - mean) / deviation for each channel and level, in single precision as torchvision computes it.
fn normalisation_table<T: Real>(group: &Pixels<'_>) -> Vec<T> {
    let PixelData::Bytes { mean, deviation, .. } = &group.data else { return Vec::new() };
    let level = |c: usize, u: u32| (u as f32 / 255.0 - mean[c]) / deviation[c];
    (0..group.channels).flat_map(|c| (0..256).map(move |u| T::from_f64(f64::from(level(c, u))))).collect()
}

fn one_image<T: Real>(group: &Pixels<'_>, index: usize, patch: usize, table: &[T], out: &mut [T]) {
    let (height, width, channels) = (group.height, group.width, group.channels);
    let (grid_h, grid_w) = (height / patch, width / patch);
    let image = index * height * width * channels;
    let mut rows = out.chunks_exact_mut(channels * patch * patch);
    for (gy, gx) in (0..grid_h).flat_map(|y| (0..grid_w).map(move |x| (y, x))) {
        let Some(row) = rows.next() else { return };
        for (c, plane) in row.chunks_exact_mut(patch * patch).enumerate() {
            for (py, line) in plane.chunks_exact_mut(patch).enumerate() {
                let (y, x0) = (gy * patch + py, gx * patch);
                match &group.data {
                    PixelData::Bytes { pixels, .. } => {
                        let start = image + (y * width + x0) * channels + c;
                        let table = &table[c * 256..(c + 1) * 256];
                        for (px, value) in line.iter_mut().enumerate() {
                            *value = table[usize::from(pixels[start + px * channels])];
                        }
                    }
                    PixelData::Uploaded { .. } => unreachable!("images of the GPU on a device of the host"),
                    PixelData::Values(values) => {
                        let start = image + (c * height + y) * width + x0;
                        for (value, &v) in line.iter_mut().zip(&values[start..start + patch]) {
                            *value = T::from_f64(v);
                        }
                    }
                }
            }
        }
    }
}

/// Element (patch, c, py, px) of image `i`, looked up in the image by its coordinates: the oracle.
#[cfg(test)]
fn element_plain(group: &Pixels<'_>, i: usize, patch: usize, element: usize) -> f64 {
    let across = group.width / patch;
    let (row, rest) = (element / (group.channels * patch * patch), element % (group.channels * patch * patch));
    let (c, py, px) = (rest / (patch * patch), rest / patch % patch, rest % patch);
    let (y, x) = (row / across * patch + py, row % across * patch + px);
    match &group.data {
        PixelData::Bytes { pixels, mean, deviation } => {
            let level = pixels[((i * group.height + y) * group.width + x) * group.channels + c];
            f64::from((f32::from(level) / 255.0 - mean[c]) / deviation[c])
        }
        PixelData::Uploaded { .. } => unreachable!("images of the GPU on a device of the host"),
        PixelData::Values(values) => values[((i * group.channels + c) * group.height + y) * group.width + x],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{cpu, noise, unwritten, wide};

    #[test]
    fn patches_hold_the_pixels_of_their_coordinates() {
        let (mean, deviation) = ([0.485f32, 0.456, 0.406], [0.229f32, 0.224, 0.225]);
        // 9 and 7 leave pixels over at patch 4; every level of a byte occurs.
        let bytes: Vec<u8> = (0..2 * 9 * 13 * 3).map(|i| (i * 37 % 256) as u8).collect();
        let values = noise::<f64>(1, 8 * 7 * 3);
        let groups = [
            Pixels {
                count: 2,
                height: 9,
                width: 13,
                channels: 3,
                data: PixelData::Bytes { pixels: &bytes, mean: &mean, deviation: &deviation },
            },
            Pixels { count: 1, height: 8, width: 7, channels: 3, data: PixelData::Values(&values) },
        ];
        for patch in [1, 2, 4] {
            let len: usize = groups.iter().map(|g| g.count * g.patches(patch) * 3 * patch * patch).sum();
            let (mut double, mut single) = (unwritten::<f64>(len), unwritten::<f32>(len));
            forward(&cpu(), &groups, patch, &mut double);
            forward(&cpu(), &groups, patch, &mut single);
            let mut want = Vec::new();
            for group in &groups {
                let elements = group.patches(patch) * 3 * patch * patch;
                want.extend(
                    (0..group.count * elements).map(|e| element_plain(group, e / elements, patch, e % elements)),
                );
            }
            assert_eq!(double, want, "patch {patch}");
            assert_eq!(wide(&single), want.iter().map(|&x| f64::from(x as f32)).collect::<Vec<_>>());
        }
    }
}
