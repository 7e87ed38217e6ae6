//! What the evaluations of a network gave, as one self-contained HTML file.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::markup::escape;
use crate::page::{FIRST_LINE, STYLE};

/// Nothing is fetched and nothing is run, whatever stands in a page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
/// Tables of the protocols are text.
const MORE_STYLE: &str =
    "pre{background:var(--panel);border-radius:6px;padding:.7rem 1rem;overflow-x:auto;font-size:.85rem}";

/// A protocol and its result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluated {
    /// Its name.
    pub name: String,
    /// The number that people quote, with what it is.
    pub headline: String,
    /// The whole result, as the terminal shows it.
    pub table: String,
    /// The command that gives it alone.
    pub command: String,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Pictures that belong together: an image and what a network looks at in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// What they show.
    pub caption: String,
    /// The pictures, PNG.
    pub pictures: Vec<Vec<u8>>,
}

/// Everything on the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// What was evaluated.
    pub title: String,
    /// What there is to say of it: a name and a value each.
    pub facts: Vec<(String, String)>,
    /// The protocols, in the order in which they ran.
    pub evaluated: Vec<Evaluated>,
    /// Protocols without a result, and why.
    pub skipped: Vec<(String, String)>,
    /// What the network looks at; shown behind the last protocol.
    pub looked: Vec<Looked>,
}

/// The page.
pub fn page(results: &Results) -> String {
    let mut html = format!("<h1>{}</h1>\n", escape(&results.title));
    for (name, value) in &results.facts {
        _ = writeln!(html, "<p class=\"muted\">{}: <code>{}</code></p>", escape(name), escape(value));
    }
    html += &summary(results);
    for result in &results.evaluated {
        _ = write!(
            html,
            "<h2 id=\"{0}\">{0}</h2>\n<pre>{1}</pre>\n<p class=\"muted\"><code>{2}</code></p>\n",
            escape(&result.name),
            escape(&result.table),
            escape(&result.command)
        );
    }
    html += &gallery(&results.looked);
    format!(
        "{FIRST_LINE}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} - dino-vmf</title><link rel=\"icon\" href=\"data:,\"><style>{STYLE}{}{MORE_STYLE}</style></head>\n\
         <body>\n{html}</body></html>\n",
        escape(&results.title),
        crate::pictures::STYLE
    )
}

/// A row for each protocol, those without a result behind the others.
fn summary(results: &Results) -> String {
    let mut rows = String::new();
    for Evaluated { name, headline, seconds, .. } in &results.evaluated {
        let (name, headline) = (escape(name), escape(headline));
        _ = writeln!(
            rows,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td>{headline}</td><td class=\"number\">{seconds:.1}</td></tr>"
        );
    }
    for (name, why) in &results.skipped {
        _ = writeln!(
            rows,
            "<tr><td>{}</td><td class=\"muted\">left out: {}</td><td></td></tr>",
            escape(name),
            escape(why)
        );
    }
    format!(
        "<div class=\"scroll\"><table><tr><th>protocol</th><th>result</th><th class=\"number\">seconds</th></tr>\n{rows}</table></div>\n"
    )
}

fn gallery(looked: &[Looked]) -> String {
    if looked.is_empty() {
        return String::new();
    }
    let mut html = "<p>What the class token of the last block looks at: the image, and \
                    the mean over heads.</p>\n<div class=\"looks\">\n"
        .to_owned();
    for Looked { caption, pictures } in looked {
        let image = |png: &Vec<u8>| format!("<img alt=\"\" src=\"data:image/png;base64,{}\">", STANDARD.encode(png));
        let pictures: String = pictures.iter().map(image).collect();
        _ = writeln!(
            html,
            "<figure><div class=\"pair\">{pictures}</div><figcaption>{}</figcaption></figure>",
            escape(caption)
        );
    }
    html + "</div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_on_the_page_and_nothing_is_read_as_markup() {
        let evil = "<script>alert(1)</script>".to_owned();
        let results = Results {
            title: evil.clone(),
            facts: vec![("data".to_owned(), evil.clone())],
            evaluated: vec![Evaluated {
                name: "knn".to_owned(),
                headline: "top-1 53.00 %".to_owned(),
                table: evil.clone(),
                command: "dino-vmf eval knn '--data=a&b'".to_owned(),
                seconds: 1.25,
            }],
            skipped: vec![("copies".to_owned(), evil.clone())],
            looked: vec![Looked { caption: evil, pictures: vec![b"\x89PNG".to_vec(), vec![0]] }],
        };
        let page = page(&results);
        assert!(page.starts_with(FIRST_LINE));
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
        for there in ["top-1 53.00 %", "--data=a&amp;b", "left out: ", "data:image/png;base64,iVBORw==", "id=\"knn\""] {
            assert!(page.contains(there), "{there}");
        }
        assert!(!page.contains("http:") && !page.contains("https:"), "the page asks for nothing");
        assert!(!super::page(&Results::default()).contains("attention"));
    }
}
