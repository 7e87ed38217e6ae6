//! Text in HTML, in SVG and in the data of a page's script.

use std::borrow::Cow;
use std::fmt::Write;

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

/// A sentence in which flags with their numbers (`--epochs 20`) and what stands between backticks are set as code, so that
/// no line breaks within them.
pub(crate) fn prose(text: &str) -> String {
    let mut html = String::new();
    for (i, part) in text.split('`').enumerate() {
        if i % 2 == 1 {
            _ = write!(html, "<code>{}</code>", escape(part));
            continue;
        }
        let mut words = part.split(' ').peekable();
        let mut is_first = true;
        while let Some(word) = words.next() {
            if !std::mem::take(&mut is_first) {
                html.push(' ');
            }
            let (flag, mark) = word.split_at(word.trim_end_matches([',', ';', '.', ':', ')']).len());
            if !flag.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
                html += &escape(word);
                continue;
            }
            let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
            match words.next_if(|next| mark.is_empty() && is_number(next)) {
                Some(next) => {
                    let (value, mark) = next.split_at(next.trim_end_matches([',', ';', '.', ':', ')']).len());
                    _ = write!(html, "<code>{} {}</code>{}", escape(flag), escape(value), escape(mark));
                }
                None => _ = write!(html, "<code>{}</code>{}", escape(flag), escape(mark)),
            }
        }
    }
    html
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
    fn flags_and_commands_are_code_within_a_sentence() {
        assert_eq!(
            prose("Learnt. Next: --epochs 20 in another --out; `dino-vmf views` shows <it>"),
            "Learnt. Next: <code>--epochs 20</code> in another <code>--out</code>; <code>dino-vmf views</code> shows &lt;it&gt;"
        );
        assert_eq!(prose("--size 96, a -- b --<x> `c"), "<code>--size 96</code>, a -- b --&lt;x&gt; <code>c</code>");
        assert_eq!(prose("  two  spaces "), "  two  spaces ");
    }

    #[test]
    fn data_of_a_script_cannot_end_it() {
        let text = script_data(&json!({ "name": "</script><!--" }));
        assert!(!text.contains('<') && !text.contains('>'));
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["name"], "</script><!--");
    }
}
