//! Prototypes, each with the images that stand for it.

use std::fmt::Write;

use super::Picture;
use crate::account::ReportError;
use crate::markup::escape;
use crate::page::Section;
use crate::scale::shown;

/// Prototypes of a page, over all of its groups.
pub const PROTOTYPES: usize = 28;
/// Images of a prototype.
pub const IMAGES: usize = 8;

/// A prototype.
#[derive(Clone, Debug)]
pub struct Prototype {
    /// Its number.
    pub number: u32,
    /// kappa = |w| / tau, where its length means something.
    pub kappa: Option<f64>,
    /// How many of a hundred images chose it.
    pub percent: f64,
    /// Images that chose it, the nearest first; or the nearest ones, where none did.
    pub pictures: Vec<Picture>,
}

/// Prototypes that have something in common.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they are: the most used, ...
    pub title: String,
    /// A sentence on them.
    pub about: String,
    /// The prototypes; none where there is nothing but the sentence.
    pub prototypes: Vec<Prototype>,
}

/// The section of these groups, with a sentence on all of them. No more than [`PROTOTYPES`] are shown.
pub fn section(about: &str, groups: &[Group]) -> Result<Section, ReportError> {
    let mut html = format!("<p class=\"muted\">{}</p>\n", escape(about));
    let mut left = PROTOTYPES;
    for group in groups {
        _ = write!(html, "<h3>{}</h3>\n<p class=\"muted\">{}</p>\n", escape(&group.title), escape(&group.about));
        if group.prototypes.is_empty() {
            continue;
        }
        html += "<div class=\"gallery\">\n";
        for prototype in group.prototypes.iter().take(left) {
            html += &card(prototype)?;
        }
        left = left.saturating_sub(group.prototypes.len());
        html += "</div>\n";
    }
    Ok(Section { title: "What the prototypes stand for".to_owned(), html })
}

fn card(prototype: &Prototype) -> Result<String, ReportError> {
    let mut pictures = String::new();
    for picture in prototype.pictures.iter().take(IMAGES) {
        pictures += &picture.thumbnail("")?;
    }
    let kappa = prototype.kappa.map_or(String::new(), |kappa| format!("<span>κ {}</span>", concentration(kappa)));
    let is_used = prototype.percent > 0.0;
    let share = if is_used { format!("{} %", shown(rounded(prototype.percent))) } else { "no image".to_owned() };
    let class = if is_used { "" } else { " class=\"unused\"" };
    Ok(format!(
        "<figure{class}><figcaption><b>#{}</b>{kappa}<span>{share}</span></figcaption><div class=\"thumbs\">{pictures}</div>\
         </figure>\n",
        prototype.number
    ))
}

/// One digit behind the point, so that cards line up.
fn concentration(kappa: f64) -> String {
    if kappa.is_finite() && kappa.abs() < 1e4 { format!("{kappa:.1}") } else { shown(kappa) }
}

/// Three digits, which is as much as one looks at.
fn rounded(value: f64) -> f64 {
    let scale = 10f64.powi(2 - value.abs().max(1e-300).log10().floor() as i32);
    if value.is_finite() && value != 0.0 && scale.is_finite() { (value * scale).round() / scale } else { value }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::picture;
    use super::*;

    pub(crate) fn largest() -> Section {
        let prototype = |number| Prototype {
            number,
            kappa: Some(12.3456),
            percent: 1.0 / 3.0,
            pictures: (0..IMAGES as u32 + 3).map(|i| picture(number * 100 + i)).collect(),
        };
        let group = |title: &str, first: u32| Group {
            title: title.to_owned(),
            about: "<i>".to_owned(),
            prototypes: (first..first + 20).map(prototype).collect(),
        };
        section("all", &[group("a", 0), group("b", 20)]).unwrap()
    }

    #[test]
    fn prototypes_have_their_figures_and_no_more_pictures_than_there_is_room_for() {
        let html = largest().html;
        assert_eq!(html.matches("<figure").count(), PROTOTYPES);
        assert_eq!(html.matches("<img").count(), PROTOTYPES * IMAGES);
        assert!(html.contains("<b>#0</b><span>κ 12.3</span><span>0.333 %</span>") && html.contains("&lt;i&gt;"));
        let none = Group { title: "Void".into(), about: "There is none.".into(), prototypes: Vec::new() };
        let unused = Prototype { number: 3, kappa: None, percent: 0.0, pictures: Vec::new() };
        let some = Group { title: "x".into(), about: "y".into(), prototypes: vec![unused] };
        let html = section("", &[none, some]).unwrap().html;
        assert!(html.contains("There is none.") && html.contains("class=\"unused\"") && html.contains("no image"));
    }

    #[test]
    fn numbers_are_rounded_to_three_digits() {
        let cases = [(1234.0, 1230.0), (0.033_333, 0.0333), (0.0, 0.0), (99.96, 100.0)];
        assert!(cases.iter().all(|(value, wanted)| (rounded(*value) - wanted).abs() < 1e-9));
        assert!(rounded(f64::INFINITY).is_infinite() && rounded(f64::NAN).is_nan());
    }
}
