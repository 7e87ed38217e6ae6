//! The name of a run in an address.

use std::fmt::Write;

/// A name as a part of an address: all but letters, digits, `-`, `_`, `.` and the `/` between folders is written as bytes.
/// A part of dots alone would be taken as a way up by whoever reads the address.
pub(super) fn encoded(name: &str) -> String {
    let mut address = String::with_capacity(name.len());
    for (number, part) in name.split('/').enumerate() {
        let is_dots = part.bytes().all(|byte| byte == b'.');
        address += if number > 0 { "/" } else { "" };
        for byte in part.bytes() {
            match byte {
                b'.' if is_dots => address += "%2E",
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => address.push(byte as char),
                _ => _ = write!(address, "%{byte:02X}"),
            }
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_name_holds_is_no_part_of_an_address_but_its_folders() {
        assert_eq!(encoded("studies/a-1.b_c"), "studies/a-1.b_c");
        assert_eq!(encoded("a?b#c d/\"<ü>%"), "a%3Fb%23c%20d/%22%3C%C3%BC%3E%25");
        assert_eq!(encoded("../."), "%2E%2E/%2E");
    }
}
