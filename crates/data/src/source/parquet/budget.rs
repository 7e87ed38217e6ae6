//! What reading files may cost, against their size.
//!
//! A few bytes can stand for very much: a page of zeros, a run of nulls, a dictionary that names the same text for every
//! row. No single claim in such a file is wrong, so what they come to is counted over all files.

use super::thrift::damage;
use std::io;
use text::thousands;

/// An amount of something that is used up.
pub(super) struct Allowance {
    /// What there is too much of when it is.
    too_much: &'static str,
    most: u64,
    left: u64,
}

impl Allowance {
    pub(super) fn new(too_much: &'static str, most: u64) -> Self {
        Self { too_much, most, left: most }
    }

    /// Takes an amount off. False where so much is not left.
    pub(super) fn covers(&mut self, amount: u64) -> bool {
        let left = self.left.checked_sub(amount);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Takes an amount off. An error where so much is not left.
    pub(super) fn spend(&mut self, amount: u64) -> io::Result<()> {
        if self.covers(amount) {
            return Ok(());
        }
        Err(damage(format!("{} than {}: this is no data set", self.too_much, thousands(self.most))))
    }
}

/// Everything that is counted. Each may reach a fixed amount in any case, and more in files that are large themselves.
pub(super) struct Budget {
    /// Rows, each of which takes memory. Beyond the first million an image has 16 bytes at least.
    pub rows: Allowance,
    /// Bytes of the names of images.
    pub names: Allowance,
    /// Bytes of images.
    pub images: Allowance,
    /// Bytes of pages after unpacking.
    pub pages: Allowance,
}

impl Budget {
    /// For files of so many bytes together.
    pub(super) fn new(bytes: u64) -> Self {
        let most = |free: u64, fold: u64| bytes.saturating_mul(fold).saturating_add(free);
        Self {
            rows: Allowance::new("it has more rows", (bytes / 16).saturating_add(1 << 20)),
            names: Allowance::new("its names take more bytes", most(16 << 20, 4)),
            images: Allowance::new("its images take more bytes", most(64 << 20, 200)),
            pages: Allowance::new("its pages unpack to more bytes", most(64 << 20, 200)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_and_a_refusal_costs_nothing() {
        let mut bytes = Allowance::new("more bytes", 1000);
        assert!(bytes.covers(600) && !bytes.covers(500) && bytes.covers(400) && bytes.covers(0));
        let error = bytes.spend(1).unwrap_err().to_string();
        assert_eq!(error, "more bytes than 1,000: this is no data set");
    }

    #[test]
    fn no_size_of_files_overflows() {
        assert!(Budget::new(u64::MAX).images.covers(u64::MAX));
        assert!(!Budget::new(0).rows.covers(u64::MAX));
    }
}
