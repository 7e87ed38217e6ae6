//! Groups in braces, written out: `shard-{000..146}.tar`, `{train,extra}.tar`.

use super::MOST_FILES;
use text::excerpt;

/// Memory for names that writing out a pattern may take and take again: groups can hold groups, a thousand deep.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// What is left of [`MOST_BYTES`].
pub(super) struct Room(pub usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST_BYTES)
    }
}

impl Room {
    /// Takes room for names that have so many bytes together.
    fn take(&mut self, names: usize, bytes: usize) -> Result<(), String> {
        let needed = names.saturating_mul(size_of::<String>()).saturating_add(bytes);
        let left = self.0.checked_sub(needed);
        self.0 = left.ok_or_else(|| format!("stands for names of more than {MOST_BYTES} bytes"))?;
        Ok(())
    }
}

/// Writes out groups in braces: `a{0..2}` and `a{0,1,2}` are `a0 a1 a2`. A group may hold groups. Braces without a
/// comma or two dots between them are themselves.
pub(super) fn braces(text: &str, room: &mut Room) -> Result<Vec<String>, String> {
    let mut from = 0;
    let (open, close, choices) = loop {
        let Some((open, close)) = group(text, from) else { return Ok(vec![text.to_owned()]) };
        match choices(&text[open + 1..close], room)? {
            Some(choices) => break (open, close, choices),
            None => from = open + 1,
        }
    };
    let mut out = Vec::new();
    let tails = braces(&text[close + 1..], room)?;
    let tail_bytes: usize = tails.iter().map(String::len).sum();
    for choice in choices {
        for middle in braces(&choice, room)? {
            if out.len() + tails.len() > MOST_FILES {
                return Err(format!("stands for more than {MOST_FILES} files"));
            }
            room.take(tails.len(), tails.len() * (open + middle.len()) + tail_bytes)?;
            out.extend(tails.iter().map(|tail| format!("{}{middle}{tail}", &text[..open])));
        }
    }
    Ok(out)
}

/// The first group that opens at or after `from` and closes: where its braces are.
fn group(text: &str, from: usize) -> Option<(usize, usize)> {
    let mut opening = text.match_indices('{').map(|(i, _)| i).filter(|&i| i >= from);
    opening.find_map(|open| closing(text, open).map(|close| (open, close)))
}

/// Where the brace that opens at `open` closes.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    text.bytes().enumerate().skip(open).find_map(|(i, byte)| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(i)
    })
}

/// What a group may be replaced by.
fn choices(inside: &str, room: &mut Room) -> Result<Option<Vec<String>>, String> {
    if let Some((first, last)) = inside.split_once("..")
        && let (Some(from), Some(to)) = (whole(first), whole(last))
    {
        let count = from.abs_diff(to).saturating_add(1);
        if count > MOST_FILES as u64 {
            return Err(format!("{{{}}} stands for {count} files, more than {MOST_FILES}", excerpt(inside)));
        }
        // As in a shell, a leading zero on either side asks for numbers of equal width.
        let padded = |text: &str| text.len() > 1 && text.starts_with('0');
        let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
        room.take(count as usize, count as usize * inside.len())?;
        let number = |i: u64| if from <= to { from + i } else { from - i };
        return Ok(Some((0..count).map(|i| format!("{:0width$}", number(i))).collect()));
    }
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in inside.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    if parts.len() < 2 {
        return Ok(None);
    }
    room.take(parts.len(), inside.len())?;
    Ok(Some(parts))
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn braces(text: &str) -> Result<Vec<String>, String> {
        super::braces(text, &mut Room::default())
    }

    #[test]
    fn braces_are_written_out_in_their_order() {
        assert_eq!(braces("a-{008..011}.tar").unwrap(), ["a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"]);
        assert_eq!(braces("{9..11}").unwrap(), ["9", "10", "11"]);
        assert_eq!(braces("{2..0}").unwrap(), ["2", "1", "0"]);
        assert_eq!(braces("{a,b}/{0..1}").unwrap(), ["a/0", "a/1", "b/0", "b/1"]);
        assert_eq!(braces("{train-{0..1},extra}.tar").unwrap(), ["train-0.tar", "train-1.tar", "extra.tar"]);
    }

    #[test]
    fn braces_that_are_no_group_are_themselves() {
        for text in ["{abc}.tar", "{", "}{", "{}", "{a..b}", "x{1..}", "{{a}"] {
            assert_eq!(braces(text).unwrap(), [text]);
        }
        assert_eq!(braces("{x{a,b}").unwrap(), ["{xa", "{xb"]);
    }

    #[test]
    fn a_pattern_of_endless_files_is_refused() {
        assert!(braces("{0..18446744073709551615}").unwrap_err().contains("stands for"));
        assert!(braces("{0..9999}{0..9999}").unwrap_err().contains("stands for"));
        assert!(braces(&"{0,1}".repeat(40)).unwrap_err().contains("stands for"));
    }

    #[test]
    fn a_pattern_of_endless_text_is_refused() {
        let long = "x".repeat(4000);
        // Long names, numbers of endless width, and groups that copy all that come after them, or all inside.
        let (width, copies, depth) = ("0".repeat(3900), "{5..5}".repeat(600), 1000);
        for hostile in [
            format!("{{0..99999}}{long}"),
            format!("{{{width}1..99999}}"),
            format!("{copies}{{0..99999}}"),
            format!("{}{{0..90000}}{}", "{,".repeat(depth), "}".repeat(depth)),
        ] {
            assert!(braces(&hostile).unwrap_err().contains("stands for names of more than"));
        }
        // As many files as are allowed, with long paths.
        let path = "folder/".repeat(20);
        assert_eq!(braces(&format!("{path}{{0..9}}/shard-{{0000..9999}}.tar")).unwrap().len(), MOST_FILES);
    }
}
