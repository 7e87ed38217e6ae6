//! Images that are passed over because their format is not read: counted by kind, so that nobody misses them unknowingly.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use text::thousands;

/// Extensions of images that are not read, and what to call them.
const KINDS: [(&str, &[&str]); 19] = [
    ("HEIC", &["heic", "heif", "hif", "heics"]),
    ("AVIF", &["avif", "avifs"]),
    ("JPEG 2000", &["jp2", "j2k", "j2c", "jpc", "jpf", "jpx", "jpm"]),
    ("JPEG XL", &["jxl"]),
    ("JPEG XR", &["jxr", "wdp", "hdp"]),
    ("PPM", &["ppm"]),
    ("PGM", &["pgm"]),
    ("PBM", &["pbm"]),
    ("PNM", &["pnm", "pam", "pfm"]),
    ("camera raw", &["dng", "cr2", "cr3", "crw", "nef", "nrw", "arw", "raf", "orf", "rw2", "pef", "srw"]),
    ("Photoshop", &["psd", "psb"]),
    ("SVG", &["svg", "svgz"]),
    ("ICO", &["ico"]),
    ("TGA", &["tga"]),
    ("OpenEXR", &["exr"]),
    ("DDS", &["dds"]),
    ("QOI", &["qoi"]),
    ("DICOM", &["dcm", "dicom"]),
    ("PCX", &["pcx"]),
];

/// How to make images of what was passed over. Cameras write `IMG_0001.HEIC`, so that the commands take either case, and
/// a pattern that finds nothing is passed over. `avifdec` and `heif-convert` come with libavif and libheif.
const HEIC: &str =
    "for f in *.[hH][eE][iI][cCfF] *.[hH][iI][fF]; do [ -e \"$f\" ] && heif-convert \"$f\" \"${f%.*}.jpg\"; done";
const HEIC_ON_MAC: &str =
    "for f in *.[hH][eE][iI][cCfF] *.[hH][iI][fF]; do [ -e \"$f\" ] && sips -s format jpeg \"$f\" --out .; done";
const AVIF: &str = "for f in *.[aA][vV][iI][fF]; do avifdec \"$f\" \"${f%.*}.png\"; done";
const OTHERS: &str = "magick mogrify -format png FILES";

/// How many images of each kind were passed over, and the first of them.
#[derive(Clone, Debug, Default)]
pub(super) struct PassedOver {
    counts: BTreeMap<&'static str, usize>,
    first: Option<String>,
}

impl PassedOver {
    /// Counts a file if it is an image by its name. `name` is what to call it.
    pub(super) fn add(&mut self, extension: &str, name: impl FnOnce() -> String) {
        let has = |extensions: &[&str]| extensions.iter().any(|known| known.eq_ignore_ascii_case(extension));
        if let Some((kind, _)) = KINDS.iter().find(|(_, extensions)| has(extensions)) {
            *self.counts.entry(kind).or_default() += 1;
            self.first.get_or_insert_with(name);
        }
    }

    pub(super) fn merge(&mut self, other: &PassedOver) {
        for (kind, count) in &other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        self.first = self.first.take().or_else(|| other.first.clone());
    }

    /// `passed over: 12 HEIC, 3 AVIF, 1 PPM`, with the first of them and what to do; none where there were none.
    pub(super) fn remark(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let mut counts: Vec<(&str, usize)> = self.counts.iter().map(|(kind, count)| (*kind, *count)).collect();
        counts.sort_by_key(|&(kind, count)| (Reverse(count), kind));
        let kinds: Vec<String> = counts.iter().map(|(kind, count)| format!("{} {kind}", thousands(*count))).collect();
        let mut ways = Vec::new();
        if self.counts.contains_key("HEIC") {
            ways.push(format!("`{HEIC}` (libheif), on a Mac `{HEIC_ON_MAC}`"));
        }
        if self.counts.contains_key("AVIF") {
            ways.push(format!("`{AVIF}` (libavif)"));
        }
        if self.counts.keys().any(|kind| !["HEIC", "AVIF"].contains(kind)) {
            ways.push(format!("`{OTHERS}` (ImageMagick)"));
        }
        let (kinds, ways) = (kinds.join(", "), ways.join("; "));
        Some(format!(
            "passed over: {kinds}, the first: {first}. These formats are not read; convert them first: {ways}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::EXTENSIONS;

    #[test]
    fn what_was_passed_over_is_counted_by_kind_most_first() {
        let mut passed = PassedOver::default();
        for name in ["a.ppm", "b.HEIC", "c.heif", "d.avif", "e.txt", "f"] {
            passed.add(name.rsplit_once('.').map_or("", |(_, extension)| extension), || name.to_owned());
        }
        let remark = passed.remark().unwrap();
        assert!(remark.starts_with("passed over: 2 HEIC, 1 AVIF, 1 PPM, the first: a.ppm."), "{remark}");
        assert!(remark.contains("heif-convert") && remark.contains("avifdec") && remark.contains("magick"), "{remark}");
        for pattern in ["*.[hH][eE][iI][cCfF] *.[hH][iI][fF]", "*.[aA][vV][iI][fF]"] {
            assert!(remark.contains(pattern), "cameras write IMG_0001.HEIC: {remark}");
        }
        assert_eq!(PassedOver::default().remark(), None);
    }

    #[test]
    fn no_format_that_is_read_is_passed_over() {
        assert!(KINDS.iter().flat_map(|(_, extensions)| *extensions).all(|extension| !EXTENSIONS.contains(extension)));
    }
}
