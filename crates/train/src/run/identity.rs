//! Which run a folder and its checkpoints belong to.
//!
//! Two runs of the same recipe have checkpoints of the same shapes, so shapes do not tell whose a checkpoint is. A run
//! draws a name when its folder is begun and keeps it in `identity.json`, together with digests of its settings and of
//! its data. Every checkpoint repeats the three, and only one that agrees in all of them is used. Weights, logs and the
//! result do not know the name: two runs of the same command give the same bytes there.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::error::RunError;

/// The file's name in a run folder.
pub(super) const IDENTITY: &str = "identity.json";

/// What the settings of a run say of it: see [`RunConfig`](super::RunConfig).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Of every setting that shapes the result.
    pub recipe: String,
    /// Of the data.
    pub data: String,
}

/// Whose a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name that was drawn when the run was begun.
    pub run: String,
    /// What it trains on what.
    pub digests: Digests,
    /// Steps of the whole run.
    pub steps: u64,
    /// What it was before it was made longer, oldest first: its checkpoints from then are its own.
    pub before: Vec<Shorter>,
}

/// A run before it was made longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shorter {
    /// The digest of its settings.
    pub recipe: String,
    /// Its steps.
    pub steps: u64,
    /// The newest step that was saved when it was made longer; 0 for none.
    pub saved: u64,
}

impl Identity {
    /// A new run's: no other run has its name.
    pub(super) fn begin(digests: Digests, steps: u64) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        // The standard library's hash is keyed by the system's randomness; the clock and the process stand in for it
        // where there is none.
        let (system, process) = (RandomState::new(), std::process::id());
        let half = |part: u8| system.hash_one((now, process, part));
        Self { run: format!("{:016x}{:016x}", half(0), half(1)), digests, steps, before: Vec::new() }
    }

    /// The text of `identity.json`.
    pub(super) fn to_json(&self) -> String {
        let Self { run, digests: Digests { recipe, data }, steps, before } = self;
        let mut object = json!({ "run": run, "recipe": recipe, "data": data, "steps": steps });
        if !before.is_empty() {
            let entry = |b: &Shorter| json!({ "recipe": b.recipe, "steps": b.steps, "saved": b.saved });
            object["extended"] = before.iter().map(entry).collect();
        }
        format!("{object:#}\n")
    }

    fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        let digests = Digests { recipe: text("recipe")?, data: text("data")? };
        let shorter = |entry: &Value| {
            let number = |key: &str| entry.get(key)?.as_u64();
            let recipe = entry.get("recipe")?.as_str()?.to_owned();
            Some(Shorter { recipe, steps: number("steps")?, saved: number("saved")? })
        };
        let before = match value.get("extended") {
            Some(list) => list.as_array()?.iter().map(shorter).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        Some(Self { run: text("run")?, digests, steps: value.get("steps")?.as_u64()?, before })
    }

    /// The same run with other settings, which make it longer. `saved` is its newest step.
    pub(super) fn longer(&self, digests: Digests, steps: u64, saved: u64) -> Self {
        let mut before = self.before.clone();
        before.push(Shorter { recipe: self.digests.recipe.clone(), steps: self.steps, saved });
        Self { run: self.run.clone(), digests, steps, before }
    }

    /// The identity of the run in a folder; none where the folder has none, because an earlier version began it.
    pub(super) fn of_folder(root: &Path) -> Result<Option<Self>, RunError> {
        let path = root.join(IDENTITY);
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::from_json(&text).map(Some).ok_or(RunError::BadIdentity { path }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(RunError::BadIdentity { path }),
            Err(error) => Err(RunError::reading(&path, error)),
        }
    }

    /// As a checkpoint's metadata have it.
    pub(super) fn metadata(&self) -> [(&'static str, &str); 3] {
        [("run", &self.run), ("recipe", &self.digests.recipe), ("data", &self.digests.data)]
    }

    /// Why a checkpoint with these metadata is not this run's; none if it is.
    pub(super) fn objection(&self, metadata: &BTreeMap<String, String>) -> Option<String> {
        let differs = |(key, own): (&str, &str)| match metadata.get(key) {
            None => {
                Some("does not say which run it belongs to; an earlier version of this program wrote it".to_owned())
            }
            Some(found) if found == own => None,
            Some(found) if key == "recipe" && self.before.iter().any(|shorter| shorter.recipe == *found) => None,
            Some(found) => Some(match key {
                "run" => format!("belongs to another run ({}, this is {})", short(found), short(own)),
                "recipe" => "belongs to this run before its settings were changed by hand".to_owned(),
                _ => "belongs to this run with other data".to_owned(),
            }),
        };
        self.metadata().into_iter().find_map(differs)
    }
}

/// Enough of a run's name to tell it from others.
fn short(name: &str) -> String {
    text::printable(&name.chars().take(8).collect::<String>()).into_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run of a hundred million steps under this name.
    pub(in crate::run) fn named(run: &str) -> Identity {
        let digests = Digests { recipe: "r".into(), data: "d".into() };
        Identity { run: run.into(), digests, steps: 200_000_000, before: Vec::new() }
    }

    #[test]
    fn no_two_runs_share_a_name_and_a_name_survives_its_file() {
        let digests = Digests { recipe: "r".into(), data: "d".into() };
        let (first, second) = (Identity::begin(digests.clone(), 7), Identity::begin(digests, 7));
        assert_ne!(first.run, second.run);
        assert_eq!(first.run.len(), 32);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Identity::of_folder(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join(IDENTITY), first.to_json()).unwrap();
        assert_eq!(Identity::of_folder(folder.path()).unwrap(), Some(first));
        for broken in [&b"{}"[..], b"", b"\xff"] {
            std::fs::write(folder.path().join(IDENTITY), broken).unwrap();
            assert!(matches!(Identity::of_folder(folder.path()), Err(RunError::BadIdentity { .. })));
        }
    }

    #[test]
    fn a_run_that_was_made_longer_knows_its_checkpoints_from_before() {
        let own = named("0123456789abcdef");
        let metadata: BTreeMap<String, String> =
            own.metadata().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let longer = own.longer(Digests { recipe: "s".into(), data: "d".into() }, 300_000_000, 7);
        assert_eq!(longer.objection(&metadata), None);
        let other = named("0123456789abcdef").longer(Digests { recipe: "t".into(), data: "e".into() }, 1, 0);
        assert!(other.objection(&metadata).unwrap().contains("other data"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(IDENTITY), longer.to_json()).unwrap();
        assert_eq!(Identity::of_folder(folder.path()).unwrap(), Some(longer));
    }

    #[test]
    fn run_recipe_and_data_must_all_agree() {
        let own = named("0123456789abcdef");
        let says = |change: Option<(&str, Option<&str>)>| {
            let mut metadata: BTreeMap<String, String> =
                own.metadata().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            match change {
                Some((key, Some(value))) => _ = metadata.insert(key.to_owned(), value.to_owned()),
                Some((key, None)) => _ = metadata.remove(key),
                None => {}
            }
            own.objection(&metadata)
        };
        assert_eq!(says(None), None);
        let other = says(Some(("run", Some("fedcba9876543210")))).unwrap();
        assert_eq!(other, "belongs to another run (fedcba98, this is 01234567)");
        assert!(says(Some(("recipe", Some("x")))).unwrap().contains("settings were changed"));
        assert!(says(Some(("data", Some("x")))).unwrap().contains("other data"));
        assert!(says(Some(("run", None))).unwrap().contains("an earlier version of this program wrote it"));
    }
}
