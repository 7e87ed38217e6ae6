//! Parquet files that are damaged or made to do harm: an error each, no panic, no memory to speak of.
//!
//! One test for all of it, alone in its program, so that the memory of the process is the memory it took.

mod support;

use data::source::{fuzz, open_cached};
use data::{OpenError, Split};
use random::{Key, Purpose};
use support::{TempFolder, fixtures};

/// What reading a damaged file of a few KiB may take.
const MOST_BYTES: u64 = 64 << 20;

/// The most memory that this process ever asked for, touched or not, where the system says so.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

#[test]
fn damage_is_an_error_and_never_a_panic_or_much_memory() {
    let folder = TempFolder::new();
    let mut whole: Vec<Vec<u8>> = ["hub", "zstd_v2", "gzip", "lz4", "nulls", "delta"]
        .map(|name| std::fs::read(fixtures().join("parquet").join(name).with_extension("parquet")).unwrap())
        .to_vec();
    whole.iter().for_each(|bytes| fuzz::parquet(bytes));
    let before = peak();

    // Cut off anywhere.
    let path = folder.0.join("cut.parquet");
    let opened = || open_cached(path.to_str().unwrap(), Split::Train, 0, &folder.0.join("cache"));
    for end in (0..whole[0].len()).step_by(97) {
        std::fs::write(&path, &whole[0][..end]).unwrap();
        let Err(error) = opened() else { panic!("{end} bytes were enough") };
        let message = error.to_string();
        assert!(matches!(error, OpenError::Format { .. } | OpenError::UnknownFile { .. }), "{error:?}");
        assert!(message.contains("cut.parquet"), "{message}");
    }
    whole.iter().for_each(|bytes| (0..bytes.len()).for_each(|end| fuzz::parquet(&bytes[..end])));

    // Every byte changed, in several ways.
    for bytes in &mut whole {
        for i in 0..bytes.len() {
            let good = bytes[i];
            for bad in [good ^ 0x01, good ^ 0x80, good ^ 0xff, 0x7f] {
                bytes[i] = bad;
                fuzz::parquet(bytes);
            }
            bytes[i] = good;
        }
    }

    // Nothing but noise, also between a good start and a good end.
    let mut noise = Key::new(7, Purpose::Bench).stream();
    for length in [0, 1, 7, 8, 11, 12, 13, 100, 5000] {
        let mut bytes: Vec<u8> = (0..length).map(|_| noise.below(256) as u8).collect();
        fuzz::parquet(&bytes);
        bytes.splice(0..0, *b"PAR1");
        for footer in [0, 1, length as u32, u32::MAX] {
            let tail = [&footer.to_le_bytes()[..], b"PAR1"].concat();
            fuzz::parquet(&[&bytes[..], &tail].concat());
        }
    }

    match (before, peak()) {
        (Some(before), Some(after)) => {
            assert!(after - before < MOST_BYTES, "{} bytes more than before", after - before)
        }
        _ => println!("the system does not say how much memory this took"),
    }
}
