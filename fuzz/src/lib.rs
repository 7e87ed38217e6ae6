//! What all fuzz targets share: a limit on memory, and which panics count.

pub mod onnx;

use cap::Cap;
use std::alloc::System;
use std::panic;

/// Memory that an input of a parser may take, in bytes. Inputs are a few KiB.
pub const PARSER: usize = 128 << 20;

/// Memory that an image may take, in bytes: the 64 MiB it is decoded within, twice, and 256 MiB that the TIFF decoder
/// asks for and does not touch when a file announces a long list. It takes no limit before it has read such lists.
pub const IMAGE: usize = 384 << 20;

/// The header of a safetensors file.
pub fn weights(bytes: &[u8]) {
    _ = files::safetensors::Header::read(&mut &bytes[..], bytes.len() as u64);
}

/// A file of weights, of any packing: what it holds, the backbone that it may be, and the elements of every tensor.
pub fn torch(bytes: &[u8]) {
    use std::sync::LazyLock;
    // One file of this process, in memory where there is such a place.
    static PATH: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        folder.join(format!("dino-vmf-fuzz-{}.pth", std::process::id()))
    });
    if std::fs::write(&*PATH, bytes).is_err() {
        return;
    }
    let Ok(mut file) = model::weights::WeightsFile::open(&PATH) else { return };
    _ = file.vit_config(&Default::default()).map_err(|error| error.to_string());
    _ = file.summary().to_string();
    for tensor in file.tensors().to_vec() {
        _ = file.read(&tensor).map_err(|error| error.to_string());
    }
}

/// A recipe, and the settings that a run has saved.
pub fn recipe(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        _ = ssl::recipe::RawRecipe::from_toml(text, "recipe.toml").map_err(|error| error.to_string());
        _ = ssl::recipe::Recipe::from_toml(text, "config.toml").map_err(|error| error.to_string());
    }
}

/// The file of a study, and the runs that follow from it.
pub fn study(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let file = study::StudyFile::parse(text, "study.toml", std::path::Path::new("nowhere"));
        _ = file.and_then(|file| study::Plan::of(&file, "study.toml")).map_err(|error| error.to_string());
    }
}

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, IMAGE);

/// Where cargo keeps the code of others.
const NOT_OURS: &str = "/registry/src/";

/// Limits the memory, in bytes, and decides which panics count.
///
/// Panics in the code of others become silent and unwind: ours has to catch them. One that it does not catch is a finding
/// like a panic of its own, because libFuzzer's entry aborts on it. Slices, options and integers report the line that
/// used them, so a panic in the standard library counts for its caller.
///
/// # Panics
///
/// If more memory than that is in use already.
pub fn prepare(memory: usize) {
    ALLOCATOR.set_limit(memory).expect("a limit above what is in use");
    let abort = panic::take_hook();
    panic::set_hook(Box::new(move |about| {
        if !about.location().is_some_and(|place| place.file().contains(NOT_OURS)) {
            abort(about);
        }
    }));
}
