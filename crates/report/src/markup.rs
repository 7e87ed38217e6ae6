//! Text in HTML, in SVG and in the data of a page's script.

use std::borrow::Cow;

use serde_json::Value;

/// A text as HTML and SVG show it, between tags or within quotes. Control characters have no place in either; the marks
/// that turn the direction of text would reach beyond the name that holds them.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !matches!(c, '&' | '<' | '>' | '"' | '\'') && !is_steering(c);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c if is_steering(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

fn is_steering(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// JSON that stands within a `script` element: nothing in it ends the element or begins a comment.
pub(crate) fn script_data(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_in_a_text_is_read_as_markup() {
        assert_eq!(escape("<img src=x onerror='a'>&\""), "&lt;img src=x onerror=&#39;a&#39;&gt;&amp;&quot;");
        assert_eq!(escape("plain, ä, 写真"), "plain, ä, 写真");
        assert_eq!(escape("a\u{202e}gpj.exe\u{1b}[2J"), "a\u{fffd}gpj.exe\u{fffd}[2J");
    }

    #[test]
    fn data_of_a_script_cannot_end_it() {
        let text = script_data(&json!({ "name": "</script><!--" }));
        assert!(!text.contains('<') && !text.contains('>'));
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["name"], "</script><!--");
    }
}
