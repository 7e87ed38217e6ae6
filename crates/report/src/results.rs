//! What the evaluations of a network gave, as one self-contained HTML file.

use std::fmt::Write;

use crate::chart::{self, Chart};
use crate::markup::escape;
use crate::page::{FIRST_LINE, STYLE, Section};

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
    /// What is easier to see than to read.
    pub charts: Vec<Chart>,
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
    /// Pictures, shown behind the last protocol.
    pub pictures: Option<Section>,
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
            "<h2 id=\"{0}\">{0}</h2>\n<pre>{1}</pre>\n{2}<p class=\"muted\"><code>{3}</code></p>\n",
            escape(&result.name),
            escape(&result.table),
            charts(&result.charts),
            escape(&result.command)
        );
    }
    if let Some(Section { title, html: pictures }) = &results.pictures {
        _ = write!(html, "<h2>{}</h2>\n{pictures}", escape(title));
    }
    format!(
        "{FIRST_LINE}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} - dino-vmf</title><link rel=\"icon\" href=\"data:,\"><style>{STYLE}{}{}{MORE_STYLE}</style></head>\n\
         <body>\n{html}</body></html>\n",
        escape(&results.title),
        chart::STYLE,
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
            "<tr><td data-label=\"protocol\"><a href=\"#{name}\">{name}</a></td><td data-label=\"result\">{headline}</td>\
             <td class=\"number\" data-label=\"seconds\">{seconds:.1}</td></tr>"
        );
    }
    for (name, why) in &results.skipped {
        _ = writeln!(
            rows,
            "<tr><td data-label=\"protocol\">{}</td><td class=\"muted\" data-label=\"result\">left out: {}</td><td></td></tr>",
            escape(name),
            escape(why)
        );
    }
    format!(
        "<div class=\"scroll\"><table class=\"summary\"><tr><th>protocol</th><th>result</th><th class=\"number\">seconds</th></tr>\n{rows}</table></div>\n"
    )
}

fn charts(charts: &[Chart]) -> String {
    let drawn: String = charts.iter().filter(|chart| !chart.is_empty()).map(Chart::still).collect();
    if drawn.is_empty() { drawn } else { format!("<div class=\"charts\">\n{drawn}</div>\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Series;

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
                charts: vec![
                    Chart { title: evil.clone(), series: vec![Series::new("s", vec![(0.0, 1.0)])], ..Chart::default() },
                    Chart::default(),
                ],
            }],
            skipped: vec![("copies".to_owned(), evil.clone())],
            pictures: Some(Section::without(&evil, &evil)),
        };
        let page = page(&results);
        assert!(page.starts_with(FIRST_LINE));
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
        for there in ["top-1 53.00 %", "--data=a&amp;b", "left out: ", "id=\"knn\""] {
            assert!(page.contains(there), "{there}");
        }
        assert_eq!(page.matches("<figure").count(), 1, "nothing is drawn of nothing");
        let asked = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!asked.contains("http:") && !asked.contains("https:"), "the page asks for nothing");
        assert!(!super::page(&Results::default()).contains("<figure"));
    }
}
