//! Held-out images and what the network finds most like them.

use super::Picture;
use crate::account::ReportError;
use crate::markup::escape;
use crate::page::Section;

/// Images that are asked about, at most.
pub const QUERIES: usize = 12;
/// Neighbours of each, at most.
pub const NEAREST: usize = 6;

/// An image and its nearest neighbours.
#[derive(Clone, Debug)]
pub struct Query {
    /// The image.
    pub picture: Picture,
    /// The nearest first, with their cosines.
    pub nearest: Vec<(Picture, f64)>,
}

/// The section of these images, with a sentence on them.
pub fn section(about: &str, queries: &[Query]) -> Result<Section, ReportError> {
    let mut html = format!("<p class=\"muted\">{}</p>\n<div class=\"queries\">\n", escape(about));
    for query in queries.iter().take(QUERIES) {
        html += &row(query)?;
    }
    html += "</div>\n";
    Ok(Section { title: "Nearest neighbours".to_owned(), html })
}

fn row(query: &Query) -> Result<String, ReportError> {
    let class = query.picture.class.as_deref();
    let mut nearest = String::new();
    for (picture, cosine) in query.nearest.iter().take(NEAREST) {
        let image = picture.thumbnail(&format!(" (cosine {cosine:.3})"))?;
        // Told by a mark and a word as well as by colour.
        let mark = match (class, picture.class.as_deref()) {
            (Some(a), Some(b)) if a == b => "<i class=\"right\" title=\"the same class\">✓</i>",
            (Some(_), Some(_)) => "<i class=\"wrong\" title=\"another class\">✗</i>",
            _ => "",
        };
        nearest += &format!("<span>{image}{mark}</span>");
    }
    let caption = text::shortened(class.unwrap_or(&query.picture.name), super::NAME);
    let caption = escape(&caption);
    let own = query.picture.thumbnail("")?;
    Ok(format!(
        "<figure><div class=\"row\"><span class=\"own\">{own}</span>{nearest}</div><figcaption>{caption}</figcaption></figure>\n"
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::picture;
    use super::*;

    pub(crate) fn largest() -> Section {
        let query = |i: u32| Query {
            picture: picture(i),
            nearest: (0..NEAREST as u32 + 2).map(|j| (picture(100 * i + j), 0.5)).collect(),
        };
        section("some", &(0..QUERIES as u32 + 2).map(query).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn neighbours_of_the_same_class_are_ticked() {
        assert_eq!(largest().html.matches("<img").count(), QUERIES * (NEAREST + 1));
        let with = |class: Option<&str>| Picture { class: class.map(str::to_owned), ..picture(1) };
        let nearest = vec![(with(Some("dog")), 0.9), (with(Some("cat")), 0.8), (with(None), 0.7)];
        let html = section("", &[Query { picture: with(Some("dog")), nearest }]).unwrap().html;
        assert_eq!((html.matches("✓").count(), html.matches("✗").count()), (1, 1));
        assert!(html.contains("(cosine 0.900)") && html.contains("<figcaption>dog</figcaption>"));
        let html = section("", &[Query { picture: with(None), nearest: vec![(with(Some("dog")), 0.9)] }]).unwrap().html;
        assert!(!html.contains("✓") && !html.contains("✗"), "nothing is known of it");
    }
}
