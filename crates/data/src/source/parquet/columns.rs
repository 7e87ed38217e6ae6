//! Which columns of a parquet file are the images and the labels.
//!
//! The `datasets` library says so in the file. Without that, an image column is a struct with a member `bytes`, as that
//! library writes it, or plain binary, and a label column goes by its name.

use super::footer::Footer;
use super::schema::{Leaf, Stored};
use serde_json::Value;
use text::{escape_name, printable};

/// Names of image columns, best first.
const IMAGES: [&str; 12] =
    ["image", "img", "images", "picture", "photo", "jpg", "jpeg", "png", "webp", "image_bytes", "bytes", "data"];

/// Names of label columns, best first.
const LABELS: [&str; 11] = [
    "label",
    "labels",
    "fine_label",
    "class",
    "cls",
    "class_id",
    "class_name",
    "label_name",
    "category",
    "target",
    "y",
];

/// The columns to read, by number in [`Footer::leaves`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub image: usize,
    /// What the image was called.
    pub path: Option<usize>,
    pub label: Option<usize>,
    /// Names of the classes, where the file lists them.
    pub class_names: Option<Vec<String>>,
    pub remarks: Vec<String>,
}

impl Columns {
    /// Finds them. The error says what there is instead.
    pub(super) fn choose(footer: &Footer) -> Result<Self, String> {
        let features = Features::of(footer);
        let mut remarks = Vec::new();
        let image = image(footer, &features, &mut remarks)?;
        let leaf = &footer.leaves[image];
        let is_path = |other: &Leaf| {
            (other.top, other.depth, other.stored) == (leaf.top, 2, Stored::Bytes)
                && leaf.depth == 2
                && other.name == "path"
                && !other.repeated
        };
        let label = label(footer, &features, leaf.top, &mut remarks);
        Ok(Self {
            image,
            path: footer.leaves.iter().position(is_path),
            label,
            class_names: label.and_then(|label| features.class_names(&footer.top[footer.leaves[label].top])),
            remarks,
        })
    }
}

/// What the `datasets` library says about each column.
struct Features(Value);

impl Features {
    fn of(footer: &Footer) -> Self {
        let text = footer.huggingface.as_deref().unwrap_or_default();
        let mut about: Value = serde_json::from_str(text).unwrap_or_default();
        Self(about.pointer_mut("/info/features").map(Value::take).unwrap_or_default())
    }

    fn is(&self, column: &str, kind: &str) -> bool {
        self.0.get(column).and_then(|about| about.get("_type")).and_then(Value::as_str) == Some(kind)
    }

    fn class_names(&self, column: &str) -> Option<Vec<String>> {
        let names = self.0.get(column)?.get("names")?.as_array()?;
        names.iter().map(|name| name.as_str().map(|name| escape_name(name.as_bytes()).into_owned())).collect()
    }
}

fn image(footer: &Footer, features: &Features, remarks: &mut Vec<String>) -> Result<usize, String> {
    let (mut marked, mut structs, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for (number, leaf) in footer.leaves.iter().enumerate() {
        if leaf.stored != Stored::Bytes || leaf.repeated {
            continue;
        }
        let is_marked = features.is(&footer.top[leaf.top], "Image");
        match leaf.depth {
            2 if leaf.name == "bytes" => if is_marked { &mut marked } else { &mut structs }.push(number),
            1 if is_marked => marked.push(number),
            1 if !leaf.is_text => plain.push(number),
            _ => {}
        }
    }
    let there_are = || format!("The columns are: {}", printable(&footer.describe()));
    if let (true, Some(top)) = (marked.is_empty(), footer.top.iter().find(|top| features.is(top, "Image"))) {
        let top = printable(top);
        return Err(format!(
            "column {top} should be images, but is neither binary nor a struct with `bytes`. {}",
            there_are()
        ));
    }
    for candidates in [marked, structs] {
        if let Some(best) = best(footer, &candidates, &IMAGES).or(candidates.first().copied()) {
            remark_others(footer, "images", best, &candidates, remarks);
            return Ok(best);
        }
    }
    match (best(footer, &plain, &IMAGES), &plain[..]) {
        (Some(best), _) | (None, &[best]) => Ok(best),
        (None, []) => Err(format!(
            "no column of images: none is a struct with `bytes`, as the Hugging Face hub has it, or binary. {}",
            there_are()
        )),
        (None, _) => Err(format!("several columns could be the images: call one of them `image`. {}", there_are())),
    }
}

fn label(footer: &Footer, features: &Features, image: usize, remarks: &mut Vec<String>) -> Option<usize> {
    let top_level = |&number: &usize| footer.leaves[number].depth == 1 && footer.leaves[number].top != image;
    let all: Vec<usize> = (0..footer.leaves.len()).filter(top_level).collect();
    let is_marked = |&number: &usize| features.is(&footer.top[footer.leaves[number].top], "ClassLabel");
    let marked: Vec<usize> = all.iter().copied().filter(is_marked).collect();
    let fits = |&number: &usize| footer.leaves[number].is_label();
    let usable: Vec<usize> = marked.iter().copied().filter(fits).collect();
    if let Some(best) = best(footer, &usable, &LABELS).or(usable.first().copied()) {
        remark_others(footer, "labels", best, &usable, remarks);
        return Some(best);
    }
    let usable: Vec<usize> = all.iter().copied().filter(fits).collect();
    let found = if marked.is_empty() { best(footer, &usable, &LABELS) } else { None };
    if found.is_none()
        && let Some(unusable) = marked.first().copied().or_else(|| best(footer, &all, &LABELS))
    {
        let leaf = &footer.leaves[unusable];
        let (name, kind) = (printable(&leaf.name), leaf.describe());
        remarks.push(format!("column {name} is not used: labels are whole numbers or texts, and this is {kind}"));
    }
    found
}

impl Leaf {
    fn is_label(&self) -> bool {
        let kind =
            matches!(self.stored, Stored::Int32 | Stored::Int64) || (self.stored == Stored::Bytes && self.is_text);
        kind && !self.repeated
    }
}

/// The candidate with the best name.
fn best(footer: &Footer, candidates: &[usize], names: &[&str]) -> Option<usize> {
    let rank = |&number: &usize| {
        let name = &footer.top[footer.leaves[number].top];
        names.iter().position(|known| known.eq_ignore_ascii_case(name)).map(|rank| (rank, number))
    };
    candidates.iter().filter_map(rank).min().map(|(_, number)| number)
}

fn remark_others(footer: &Footer, what: &str, chosen: usize, candidates: &[usize], remarks: &mut Vec<String>) {
    let name = |number: usize| printable(&footer.top[footer.leaves[number].top]).into_owned();
    let others: Vec<String> = candidates.iter().filter(|&&other| other != chosen).map(|&other| name(other)).collect();
    if !others.is_empty() {
        remarks.push(format!("the {what} are those of column {}, not {}", name(chosen), others.join(", ")));
    }
}
