//! Where this user's caches are.

use std::path::PathBuf;

/// The environment variable that says where [`cache_folder`] is.
pub const CACHE_VARIABLE: &str = "DINO_VMF_CACHE";

/// Where this user's caches are. What is in it may be deleted at any time.
pub fn cache_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let below_home = |folder: &str| std::env::home_dir().map(|home| home.join(folder));
    let general = if cfg!(target_os = "macos") {
        below_home("Library/Caches")
    } else if cfg!(windows) {
        set("LOCALAPPDATA")
    } else {
        // The XDG rules: a relative path is to be ignored.
        set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| below_home(".cache"))
    };
    let general = general.filter(|path| path.is_absolute()).unwrap_or_else(std::env::temp_dir);
    set(CACHE_VARIABLE).unwrap_or_else(|| general.join("dino-vmf"))
}
