//! Files that are passed over: images whose format is not read, images whose names do not say that they are, and whatever
//! else lies among images. Counted by kind, so that nobody misses them unknowingly.

use crate::decode::format_of;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use text::{count, thousands};

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

/// Extensions of files that often lie beside images and are none: nobody misses them.
const COMPANIONS: [&str; 20] = [
    "txt", "csv", "tsv", "lst", "list", "json", "jsonl", "xml", "yaml", "yml", "toml", "md", "html", "pdf", "log",
    "ini", "db", "xmp", "aae", "npy",
];

/// Files whose content is looked at: enough to tell, and no work where there are millions.
const LOOKED_INTO: usize = 256;

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
    /// Images of formats that are read, whose names say something else, and the first of them.
    misnamed: BTreeMap<&'static str, usize>,
    first_misnamed: Option<String>,
    /// Files that are neither images nor what usually lies beside them, and the first of them.
    others: usize,
    first_other: Option<String>,
    looked_into: usize,
}

impl PassedOver {
    /// Counts a file that can be looked into.
    pub(super) fn add_file(&mut self, extension: &str, path: &Path, name: impl FnOnce() -> String) {
        if COMPANIONS.iter().any(|known| known.eq_ignore_ascii_case(extension)) {
            return;
        }
        let format = if self.looked_into < LOOKED_INTO { content(path) } else { None };
        self.looked_into += 1;
        if let Some(format) = format {
            *self.misnamed.entry(format).or_default() += 1;
            self.first_misnamed.get_or_insert_with(name);
        } else if kind(extension).is_some() {
            self.add(extension, name);
        } else {
            self.others += 1;
            self.first_other.get_or_insert_with(name);
        }
    }

    /// Counts a file if it is an image by its name. `name` is what to call it.
    pub(super) fn add(&mut self, extension: &str, name: impl FnOnce() -> String) {
        if let Some(kind) = kind(extension) {
            *self.counts.entry(kind).or_default() += 1;
            self.first.get_or_insert_with(name);
        }
    }

    /// Adds what another archive has passed over; in archives, files go by their names alone.
    pub(super) fn merge(&mut self, other: &PassedOver) {
        for (kind, count) in &other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        self.first = self.first.take().or_else(|| other.first.clone());
    }

    /// What to say of all that was passed over.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        let others = self.first_other.as_ref().map(|first| {
            format!(
                "passed over: {} that are no images by their names, the first: {first}",
                count(self.others, "other file")
            )
        });
        self.remark().into_iter().chain(self.remark_on_names()).chain(others)
    }

    /// What to say of images whose names do not say that they are.
    pub(super) fn remark_on_names(&self) -> Option<String> {
        let first = self.first_misnamed.as_ref()?;
        let kinds = by_count(&self.misnamed);
        Some(format!(
            "passed over: {kinds} by their content, but not by their names, the first: {first}. With a name that ends in .jpg, \
             .png or whatever they are, they are read"
        ))
    }

    /// `passed over: 12 HEIC, 3 AVIF, 1 PPM`, with the first of them and what to do; none where there were none.
    pub(super) fn remark(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let kinds = by_count(&self.counts);
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
        let ways = ways.join("; ");
        Some(format!(
            "passed over: {kinds}, the first: {first}. These formats are not read; convert them first: {ways}"
        ))
    }
}

/// What to call images with this extension, if it is one of a format that is not read.
fn kind(extension: &str) -> Option<&'static str> {
    let has = |extensions: &[&str]| extensions.iter().any(|known| known.eq_ignore_ascii_case(extension));
    KINDS.iter().find(|(_, extensions)| has(extensions)).map(|(kind, _)| *kind)
}

/// `12 HEIC, 3 AVIF`: the most first.
fn by_count(counts: &BTreeMap<&'static str, usize>) -> String {
    let mut counts: Vec<(&str, usize)> = counts.iter().map(|(kind, count)| (*kind, *count)).collect();
    counts.sort_by_key(|&(kind, count)| (Reverse(count), kind));
    counts.iter().map(|(kind, count)| format!("{} {kind}", thousands(*count))).collect::<Vec<_>>().join(", ")
}

/// The format of a file's content, if it is an image that could be read.
fn content(path: &Path) -> Option<&'static str> {
    let mut start = Vec::new();
    File::open(path).and_then(|file| file.take(32).read_to_end(&mut start)).ok()?;
    format_of(&start)
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
