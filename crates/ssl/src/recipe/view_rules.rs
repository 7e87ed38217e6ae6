//! The rules for the views of an image: their sizes, their shares of it, their patches and their blur.

use super::derive::FEW_IMAGES;
use super::values::{Interval, MethodName, Size};

/// Patches a side of DINO's local views.
const DINO_LOCAL_PATCHES: usize = 6;
/// The smallest share of an image that MSN's random views show.
const MSN_LOWEST_SHARE: f64 = 0.3;
/// The largest share of an image that a local view shows where images are few.
const FEW_IMAGES_SHARE: f64 = 0.4;

/// A grid of about 8 to 14 patches a side: enough to tell parts apart, few enough to attend to.
pub(super) fn patch_size(side: usize) -> (usize, String) {
    let patch = match side {
        160.. => 16,
        56.. => 8,
        20.. => 4,
        10.. => 2,
        _ => 1,
    };
    (patch, format!("global views of about {side} pixels"))
}

pub(super) fn global_size(short: usize, patch: usize) -> (Size, String) {
    let side = short.min(224) / patch * patch;
    // An image smaller than a patch is refused by the check; until then a view has at least one patch.
    (Size::square(side.max(patch)), format!("short side {short}: largest multiple of {patch} up to 224"))
}

/// DINO's 96 of 224 pixels, in whole patches, and as many patches as there: with four a side, instead of six, Imagenette at
/// 160 pixels lost three points. But a local view must stay smaller than a global one.
pub(super) fn local_size(global: Size, patch: usize) -> (Size, String) {
    let part = |side: usize| {
        let patches = side as f64 / patch as f64;
        let (like_dino, most) = ((0.43 * patches).round() as usize, (0.6 * patches) as usize);
        like_dino.max(most.min(DINO_LOCAL_PATCHES)).max(1) * patch
    };
    let size = Size { height: part(global.height), width: part(global.width) };
    let patches = text::count(size.short() / patch, "patch");
    (size, format!("{patches} a side: about {DINO_LOCAL_PATCHES}, within 0.43 to 0.6 of {global}"))
}

/// Area shares (global low, local low) by image size: five per cent of a small image is a handful of pixels.
fn lowest_shares(short: usize) -> (f64, f64) {
    match short {
        160.. => (0.25, 0.05),
        96.. => (0.3, 0.1),
        _ => (0.4, 0.15),
    }
}

/// Blur is in pixels: what softens a view of 224 wipes out one of 32.
pub(super) fn blur_sigma(side: usize) -> (f64, String) {
    if side >= 224 {
        return (2.0, "2 for views of 224 pixels and more".to_owned());
    }
    (2.0 * side as f64 / 224.0, format!("2 for views of 224 pixels, in proportion for {side}"))
}

pub(super) fn global_scale(method: MethodName, short: usize, local_crops: usize) -> (Interval, String) {
    if local_crops == 0 {
        return (Interval { low: 0.14, high: 1.0 }, "no local views: DINO's value for two views".to_owned());
    }
    let low = match method {
        MethodName::Dino | MethodName::Ibot => lowest_shares(short).0,
        MethodName::Msn => lowest_shares(short).0.max(MSN_LOWEST_SHARE),
    };
    (Interval { low, high: 1.0 }, format!("short side {short}"))
}

/// Local views end where global ones begin; on few images they show more, since there is less to learn small parts from.
pub(super) fn local_scale(images: usize, short: usize, global: Interval) -> (Interval, String) {
    let low = lowest_shares(short).1.min(global.low);
    if images < FEW_IMAGES && global.low < FEW_IMAGES_SHARE {
        return (Interval { low, high: FEW_IMAGES_SHARE }, format!("short side {short}, {images} images"));
    }
    (Interval { low, high: global.low }, format!("short side {short}, up to the smallest global view"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_views_have_six_patches_a_side_where_there_is_room() {
        for (side, patch, expected) in
            [(224, 16, 96), (160, 16, 96), (112, 8, 48), (64, 8, 32), (32, 4, 16), (16, 16, 16)]
        {
            assert_eq!(local_size(Size::square(side), patch).0, Size::square(expected), "{side} by {patch}");
        }
    }
}
