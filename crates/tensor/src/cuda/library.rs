//! Finding NVIDIA's libraries at run time. The program is built without them and must say what is missing, not crash.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::Library;

/// The libraries that a CUDA device needs, with what brings them.
const NEEDED: [(&str, &str); 3] = [
    ("cuda", "the NVIDIA driver"),
    ("nvrtc", "the CUDA toolkit 13, or `pip install nvidia-cuda-nvrtc`"),
    ("cublasLt", "the CUDA toolkit 13, or `pip install nvidia-cublas`"),
];

/// One library and where it is, if anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// Its short name, as in `lib<name>.so`.
    pub name: &'static str,
    /// Where it was opened: a path, or the bare name where the system's loader knew it.
    pub place: Option<String>,
    /// What brings it.
    pub source: &'static str,
}

/// Looks for every library that a CUDA device needs and opens those that are there.
///
/// The order: what the system's loader finds (which includes `LD_LIBRARY_PATH`), then `CUDA_HOME` and `CUDA_PATH`, the usual
/// places of a toolkit, and the `nvidia/*/lib` folders of the Python environments in use: the active one, and that of the first
/// `python3` on the path.
pub fn cuda_libraries() -> Vec<FoundLibrary> {
    NEEDED.iter().map(look_for).collect()
}

/// The first library that is not there; the large ones after it are not even opened, as on a machine without a GPU.
pub(super) fn first_missing() -> Option<FoundLibrary> {
    NEEDED.iter().map(look_for).find(|library| library.place.is_none())
}

fn look_for(&(name, source): &(&'static str, &'static str)) -> FoundLibrary {
    let names = [format!("lib{name}.so.13"), format!("lib{name}.so.1"), format!("lib{name}.so")];
    // Kept open for the rest of the process: once open under its own name, any later search for that name finds it.
    let place = open(&names).map(|(library, place)| {
        std::mem::forget(library);
        place
    });
    FoundLibrary { name, place, source }
}

/// Opens a library that has one of these names, and says where it was.
pub(super) fn open(names: &[String]) -> Option<(Library, String)> {
    let keep = |file: &Path| {
        // SAFETY: these are NVIDIA's own libraries; opening one runs its initialisers, which is what is wanted.
        let library = unsafe { Library::new(file) }.ok()?;
        Some((library, file.display().to_string()))
    };
    names.iter().find_map(|n| keep(Path::new(n))).or_else(|| {
        folders()
            .iter()
            .flat_map(|folder| names.iter().map(move |n| folder.join(n)))
            .filter(|f| f.exists())
            .find_map(|f| keep(&f))
    })
}

fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = std::env::var_os(variable).map(PathBuf::from) {
            folders.extend([home.join("lib64"), home.join("lib"), home.join("targets/x86_64-linux/lib")]);
        }
    }
    folders.extend(["/usr/local/cuda/lib64", "/usr/local/nvidia/lib64", "/opt/cuda/lib64"].map(PathBuf::from));
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    // Containers put an environment on the path and activate nothing.
    let found = std::env::var_os("PATH").and_then(|path| environment_on(&path));
    for root in active.chain(found) {
        for python in entries(&root.join("lib")) {
            for package in entries(&python.join("site-packages/nvidia")) {
                folders.push(package.join("lib"));
            }
        }
    }
    folders
}

/// The root of the Python environment whose `python3` a shell would start.
fn environment_on(path: &OsStr) -> Option<PathBuf> {
    let programs = std::env::split_paths(path).find(|folder| folder.join("python3").is_file())?;
    programs.parent().map(Path::to_owned)
}

/// What a folder holds, sorted; nothing where it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_on_the_path_is_that_of_its_first_python() {
        let folder = std::env::temp_dir().join(format!("dino-vmf-python-{}", std::process::id()));
        for root in ["none", "first", "second"] {
            std::fs::create_dir_all(folder.join(root).join("bin")).unwrap();
        }
        for root in ["first", "second"] {
            std::fs::write(folder.join(root).join("bin/python3"), "").unwrap();
        }
        let path = std::env::join_paths(["none", "first", "second"].map(|root| folder.join(root).join("bin"))).unwrap();
        assert_eq!(environment_on(&path), Some(folder.join("first")));
        assert_eq!(environment_on(folder.join("none/bin").as_os_str()), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
