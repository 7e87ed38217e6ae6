//! A run that is made longer than it was begun: the same run, with other settings from here on.

use std::path::Path;

use super::atomic::replace_with;
use super::attempts::Attempt;
use super::checkpoint;
use super::config::RunConfig;
use super::error::RunError;
use super::folder::{CHECKPOINTS, CONFIG, RunFolder, changed};
use super::identity::{IDENTITY, Identity};

impl RunFolder {
    /// Opens a run with settings that make the run of the settings `before` longer. What they are is written first into its
    /// identity, then into its configuration: a process that is killed in between leaves the second to the next one.
    pub fn open_extended(
        root: &Path,
        before: &dyn RunConfig,
        config: &dyn RunConfig,
        known: &[Attempt],
    ) -> Result<Self, RunError> {
        let (lock, attempts) = Self::take(root, known)?;
        // An error where the folder's run is not the one that is to become longer.
        changed(root, before)?;
        let identity = Identity::of_folder(root)?.ok_or_else(|| RunError::NoIdentity { path: root.to_owned() })?;
        if identity.digests != config.digests() {
            if identity.digests != before.digests() || identity.steps != before.total_steps() {
                return Err(RunError::SettingsEdited { path: root.to_owned() });
            }
            let saved = checkpoint::list(&root.join(CHECKPOINTS))?.iter().map(|&(step, _)| step).max().unwrap_or(0);
            let longer = identity.longer(config.digests(), config.total_steps(), saved);
            replace_with(&root.join(IDENTITY), longer.to_json().as_bytes())?;
        }
        replace_with(&root.join(CONFIG), config.to_toml().as_bytes())?;
        Self::open_locked(root, config, lock, attempts)
    }
}
