//! Lines `Name:   value` of Linux's /proc files.

/// The value behind a name, which ends in a colon.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// A value in kB, as bytes.
pub fn bytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let text = "Name:\tdino-vmf\nVmHWM:\t    9001 kB\nVmRSS:\t  many kB\n";
        assert_eq!(field(text, "Name:"), Some("dino-vmf"));
        assert_eq!(bytes(text, "VmHWM:"), Some(9001 * 1024));
        assert_eq!((bytes(text, "VmRSS:"), bytes(text, "VmSwap:")), (None, None));
    }
}
