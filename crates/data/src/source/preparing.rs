//! How far the work is that comes before images can be read: unpacking and indexing, which take minutes where there is much
//! data and nothing in the cache yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is done before images can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Compressed data is unpacked into the cache, counted in bytes.
    Unpacking,
    /// Archives are looked through for images, counted in bytes.
    Indexing,
    /// Folders are looked through, counted in images that were found. How many there will be is not known.
    Listing,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// What is done.
    pub what: Preparation,
    /// How much of it; about, where only the size of the packed data is known.
    pub done: u64,
    /// Of how much, as far as it is known yet; none where that is not known at all.
    pub total: Option<u64>,
}

/// Who is told, from any thread.
pub type Tell = Arc<dyn Fn(Prepared) + Send + Sync>;

/// Counts what is done and tells of it; or does nothing.
#[derive(Clone, Default)]
pub(super) struct Watch(Option<Arc<Counts>>);

struct Counts {
    tell: Tell,
    /// Done and expected, for each preparation.
    counts: [(AtomicU64, AtomicU64); 3],
}

impl Watch {
    pub(super) fn new(tell: Tell) -> Self {
        Self(Some(Arc::new(Counts { tell, counts: Default::default() })))
    }

    /// So much more is to be done.
    pub(super) fn expect(&self, what: Preparation, amount: u64) {
        if let Some(counts) = &self.0 {
            counts.counts[what as usize].1.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// So much more has been done.
    pub(super) fn advance(&self, what: Preparation, amount: u64) {
        let Some(counts) = &self.0 else { return };
        let (done, expected) = &counts.counts[what as usize];
        let done = done.fetch_add(amount, Ordering::Relaxed).saturating_add(amount);
        let total = (what != Preparation::Listing).then(|| expected.load(Ordering::Relaxed));
        // A guess of the size may have been too small.
        let done = total.map_or(done, |total| done.min(total));
        (counts.tell)(Prepared { what, done, total });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Split;
    use crate::source::cache::Cache;
    use crate::source::open::open_with;
    use flate2::{Compression, write::GzEncoder};
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;
    use std::sync::Mutex;

    /// A tar archive of images that nobody decodes here, `bytes` each.
    fn archive(images: usize, bytes: usize) -> Vec<u8> {
        let mut tar = Vec::new();
        for image in 0..images {
            let mut header = [0u8; 512];
            let name = format!("class-{}/{image}.jpg", image % 2);
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[100..107].copy_from_slice(b"0000644");
            header[124..135].copy_from_slice(format!("{bytes:011o}").as_bytes());
            header[156] = b'0';
            header[257..263].copy_from_slice(b"ustar\0");
            header[148..156].copy_from_slice(b"        ");
            let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            tar.extend(header);
            tar.extend((0..bytes.next_multiple_of(512)).map(|i| ((i * (image + 1) * 31) >> 3) as u8));
        }
        tar.resize(tar.len() + 1024, 0);
        tar
    }

    /// What is told while a source opens.
    fn told(spec: &Path, cache: &Path) -> Vec<Prepared> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell: Tell = {
            let told = told.clone();
            Arc::new(move |prepared| told.lock().unwrap().push(prepared))
        };
        let cache = Cache::at(cache.to_owned()).watched_by(Watch::new(tell));
        open_with(spec.to_str().unwrap(), Split::Train, 0, &cache).unwrap();
        told.lock().unwrap().clone()
    }

    #[test]
    fn unpacking_and_indexing_are_told_of_from_beginning_to_end_and_only_when_they_are_done() {
        let folder = tempfile::tempdir().unwrap();
        let (data, cache) = (folder.path().join("a.tar.gz"), folder.path().join("cache"));
        let tar = archive(40, 30_000);
        let mut packed = GzEncoder::new(File::create(&data).unwrap(), Compression::fast());
        packed.write_all(&tar).unwrap();
        packed.finish().unwrap();
        let first = told(&data, &cache);
        for (what, bytes) in
            [(Preparation::Unpacking, fs::metadata(&data).unwrap().len()), (Preparation::Indexing, tar.len() as u64)]
        {
            let steps: Vec<&Prepared> = first.iter().filter(|prepared| prepared.what == what).collect();
            assert!(steps.len() > 1 && steps.windows(2).all(|pair| pair[0].done <= pair[1].done), "{steps:?}");
            assert!(steps.iter().all(|step| step.total == Some(bytes)), "{bytes}: {steps:?}");
            assert_eq!(steps.last().unwrap().done, bytes, "{what:?}");
        }
        assert_eq!(told(&data, &cache), [], "it is all in the cache");
    }

    #[test]
    fn images_of_a_folder_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        for class in ["a", "b"] {
            fs::create_dir(folder.path().join(class)).unwrap();
            (0..3).for_each(|i| fs::write(folder.path().join(class).join(format!("{i}.png")), b"").unwrap());
        }
        let told = told(folder.path(), &folder.path().join("cache"));
        let counted = |done| Prepared { what: Preparation::Listing, done, total: None };
        assert_eq!(told, [counted(3), counted(6)]);
    }
}
