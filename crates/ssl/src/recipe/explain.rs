//! A recipe as text: the table that is printed, the `config.toml` that is saved, and the difference of two.

use std::error::Error;
use std::fmt;

use random::StableHash;
use train::run::{Comparison, Difference, Digests, RunConfig};

use super::check::Facts;
use super::fields::{KEYS, OnResume, Recipe};
use super::parse::{FACTS, SOURCE};
use super::values::Begin;

/// Why a value is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Set by the user, there.
    Given(String),
    /// The method's usual value, whatever the data.
    Default,
    /// Computed from the data or from other values, for this reason.
    Derived(String),
}

/// How the place of a value begins that comes with the program, and that nobody has asked for: the recipe of its own images.
pub const BUILT_IN: &str = "built-in ";

/// The place of a value that the machine decides on: how many threads it has to give.
pub const MACHINE: &str = "--threads or RAYON_NUM_THREADS";

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Given(place) => write!(f, "given: {place}"),
            Origin::Default => f.write_str("default"),
            Origin::Derived(reason) => write!(f, "derived: {reason}"),
        }
    }
}

/// One key of a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name.
    pub key: &'static str,
    /// Its value as TOML.
    pub value: String,
    /// Where the value came from.
    pub origin: Origin,
}

impl Recipe {
    /// A table of keys, values and origins, aligned for a terminal: of those that were given or derived, or of all.
    pub fn table(&self, with_defaults: bool) -> String {
        let mut lines = self.explain();
        lines.retain(|line| with_defaults || line.origin != Origin::Default);
        aligned(lines, "  ", "  ", "  ")
    }

    /// The complete recipe as TOML, each value with its origin as a comment. Reads back as an equal recipe.
    pub fn to_toml(&self) -> String {
        let facts = &self.facts;
        let quoted = |source: &String| format!("{SOURCE} = {}\n", toml::Value::String(source.clone()));
        let source = self.source.as_ref().map(quoted).unwrap_or_default();
        format!(
            "# The resolved recipe of a run: every value, and where it came from.\n\
             # As `--recipe` of another run it sets all of them.\n\n\
             {}\n\
             # What the values were derived for.\n\
             [{FACTS}]\n{source}images = {}\nheight = {}\nwidth = {}\nlabelled = {}\nfingerprint = \"{:016x}\"\n",
            aligned(self.explain(), "", " = ", "  # "),
            facts.images,
            facts.height,
            facts.width,
            facts.labelled,
            facts.fingerprint
        )
    }

    /// The recipe as a file to begin with: what was asked for is set, and everything else stands behind a `#` with its reason, so
    /// that it still follows from the data and from what is set. Given weights and the machine's threads are named on the
    /// command line, not here.
    pub fn to_draft(&self) -> String {
        let is_set = |line: &Line| matches!(line.origin, Origin::Given(_));
        let is_of_machine = |line: &Line| matches!(&line.origin, Origin::Given(place) if place == MACHINE);
        let of_recipe = |line: &Line| !line.key.starts_with("begin") && !is_of_machine(line);
        let lines: Vec<Line> = self.explain().into_iter().filter(of_recipe).collect();
        let texts = aligned(lines.clone(), "", " = ", "  # ");
        let written = lines.iter().zip(texts.lines());
        let written: String =
            written.map(|(line, text)| format!("{}{text}\n", if is_set(line) { "" } else { "# " })).collect();
        let source = self.source.as_deref().map_or(String::new(), |source| format!("{}, ", text::printable(source)));
        let begun = match self.begin() {
            Begin::Drawn => String::new(),
            begin => format!("# It begins with given weights: --{begin} W names them again.\n"),
        };
        format!(
            "# A recipe for `pretrain --recipe`, made for {source}{}.\n{begun}\
             # What stands behind a # is derived, or as always: it follows from the data and from what is set, and is set by\n\
             # taking the # away.\n\n{written}",
            text::count(self.facts.images, "image")
        )
    }

    /// Whether training by the recipe `now` would continue a run of this one. If not, the keys that stand against it.
    ///
    /// Keys that cannot change the weights (how often to log, save and evaluate, how many threads) may differ. The
    /// data must not: its size sets the length of an epoch and so every schedule, its order what is seen when.
    pub fn same_run(&self, now: &Recipe) -> Result<(), Vec<Difference>> {
        let mut differences = self.differences(now, OnResume::Fixed);
        let (saved, now) = (self.facts, now.facts);
        let mut compare = |key: &str, saved: String, now: String| {
            if saved != now {
                differences.push(Difference { key: key.to_owned(), saved, now });
            }
        };
        compare("number of images", saved.images.to_string(), now.images.to_string());
        let list = |fingerprint: u64| format!("{fingerprint:016x}");
        compare("images (hash of names, sizes and contents)", list(saved.fingerprint), list(now.fingerprint));
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    }
}

fn is_of_kind(name: &str, kind: OnResume) -> bool {
    KEYS.iter().any(|key| key.name == name && key.on_resume == kind)
}

impl Recipe {
    /// What a run of this recipe that goes on with the recipe `now` has to save anew.
    fn changes(&self, now: &Recipe) -> Vec<Difference> {
        let mut changes = self.differences(now, OnResume::Free);
        let shown = |source: &Option<String>| source.clone().unwrap_or_else(|| "nothing".to_owned());
        if now.source.is_some() && self.source != now.source {
            let (saved, now) = (shown(&self.source), shown(&now.source));
            changes.push(Difference { key: "place of the data".to_owned(), saved, now });
        }
        changes
    }

    /// The keys of one kind whose values differ.
    fn differences(&self, now: &Recipe, kind: OnResume) -> Vec<Difference> {
        let now = now.explain();
        let value_now = |name: &str| now.iter().find(|line| line.key == name).map(|line| line.value.clone());
        let saved = self.explain().into_iter().filter(|line| is_of_kind(line.key, kind));
        saved
            .filter_map(|Line { key, value: saved, .. }| {
                let now = value_now(key).unwrap_or_else(|| "nothing".to_owned());
                (saved != now).then(|| Difference { key: key.to_owned(), saved, now })
            })
            .collect()
    }
}

/// Keys that runs had no choice of when checkpoints began to name their recipe, with what was so: they do not count in the
/// name, so that such runs can go on.
const AS_BEFORE: &[(&str, &str)] = &[
    ("start", "\"random\""),
    ("koleo_weight", "0.0"),
    ("initial_kappa", "\"off\""),
    ("prototype_scale_lr", "1.0"),
    ("prototype_scale_log", "false"),
    ("kappa_prior", "\"off\""),
    ("kappa_prior_weight", "0.0"),
    ("begin", "\"drawn\""),
    ("begin_weights", "\"none\""),
    ("registers", "0"),
    ("layer_scale", "false"),
    ("positions", "\"dino\""),
    ("norm_epsilon", "1e-6"),
    ("backbone_lr", "1.0"),
    ("layer_decay", "1.0"),
    ("pull", "0.0"),
    ("gradient_wire", "\"exact\""),
    ("backbone_warmup_epochs", "0.0"),
    ("extension", "\"none\""),
    ("extended_from", "0"),
];

impl RunConfig for Recipe {
    fn to_toml(&self) -> String {
        self.to_toml()
    }

    fn compare(&self, saved: &str) -> Result<Comparison, Box<dyn Error + Send + Sync>> {
        let saved = Recipe::from_toml(saved, "config.toml")?;
        Ok(match saved.same_run(self) {
            Err(differences) => Comparison::Other(differences),
            Ok(()) => match saved.changes(self) {
                changes if changes.is_empty() => Comparison::Same,
                changes => Comparison::Continues(changes),
            },
        })
    }

    fn digests(&self) -> Digests {
        let mut hash = StableHash::new();
        for Line { key, value, .. } in self.explain().iter().filter(|line| is_of_kind(line.key, OnResume::Fixed)) {
            if !AS_BEFORE.contains(&(key, value.as_str())) {
                hash.write(format!("{key} = {value}\n").as_bytes());
            }
        }
        let Facts { images, fingerprint, .. } = self.facts;
        Digests { recipe: format!("{:016x}", hash.finish()), data: format!("{images}:{fingerprint:016x}") }
    }

    fn total_steps(&self) -> u64 {
        self.total_steps()
    }

    fn keep_checkpoints(&self) -> usize {
        self.keep_checkpoints()
    }
}

/// Lines one below the other, their values and origins too.
fn aligned(lines: Vec<Line>, indent: &str, equals: &str, comment: &str) -> String {
    let key_width = lines.iter().map(|line| line.key.len()).max().unwrap_or(0);
    let value_width = lines.iter().map(|line| line.value.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Line { key, value, origin } in lines {
        // A place may be any path, and TOML allows no control characters in comments.
        let origin = origin.to_string().replace(char::is_control, " ");
        text += &format!("{indent}{key:key_width$}{equals}{value:value_width$}{comment}{origin}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{MethodName, RawRecipe, keys};
    use super::*;

    const PINNED: &str = "1b0de2a50478bce6";
    const CIFAR: Facts = Facts { images: 50_000, height: 32, width: 32, labelled: true, fingerprint: 7 };

    fn resolve(text: &str) -> Recipe {
        RawRecipe::from_toml(text, "my.toml").unwrap().resolve(&CIFAR).unwrap()
    }

    #[test]
    fn a_draft_sets_what_was_asked_for_and_leaves_the_rest_to_be_derived() {
        let asked = "method = \"ibot\"\nbegin = \"init\"\nbegin_weights = \"0123456789abcdef\"\nstart = \"random\"\nepochs = 40";
        let recipe = resolve(asked).with_source("/photos".to_owned());
        let draft = recipe.to_draft();
        assert!(
            draft.starts_with("# A recipe for `pretrain --recipe`, made for /photos, 50,000 images.\n# It begins"),
            "{draft}"
        );
        assert!(draft.contains("--init W names them again") && !draft.contains("begin_weights"), "{draft}");
        let set: Vec<&str> = draft.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let keys: Vec<&str> = set.iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(keys, ["method", "start", "epochs"]);
        assert!(draft.lines().any(|line| line.starts_with("# out_dim ") && line.contains("derived: ")), "{draft}");
        let again = resolve(&format!("{draft}begin = \"init\"\nbegin_weights = \"0123456789abcdef\""));
        assert_eq!(again.same_run(&recipe), Ok(()));
        let mut threads = RawRecipe::default();
        threads.set_text("workers", "3", MACHINE).unwrap();
        assert!(!threads.resolve(&CIFAR).unwrap().to_draft().contains("workers"), "the machine is not the recipe's");
        // What follows from a value follows from a changed one, too.
        let longer = draft.replace("epochs ", "# ").replace("# start", "start") + "epochs = 400";
        assert_ne!(resolve(&longer).momentum_teacher(), recipe.momentum_teacher());
    }

    #[test]
    fn a_saved_recipe_reads_back_equal() {
        let all_kinds = "center_floor = -87.5\nglobal_size = \"32x24\"\nlr = 0.1234567890123456789\nmin_lr = 1e-13\n\
                         prototypes = \"l2\"\nhead_batch_norm = true\nseed = 9223372036854775807";
        for text in ["", all_kinds] {
            let recipe = resolve(text);
            let again = Recipe::from_toml(&recipe.to_toml(), "config.toml").unwrap();
            assert_eq!(recipe, again);
            assert!(again.explain().iter().all(|line| matches!(line.origin, Origin::Given(_))));
            assert_eq!(RawRecipe::from_toml(&recipe.to_toml(), "c").unwrap().resolve(&CIFAR).unwrap(), recipe);
        }
    }

    #[test]
    fn a_control_character_in_a_path_does_not_break_the_saved_recipe() {
        let recipe = RawRecipe::from_toml("epochs = 3", "a\nseed = 7\u{1}").unwrap().resolve(&CIFAR).unwrap();
        assert_eq!(Recipe::from_toml(&recipe.to_toml(), "config.toml").unwrap(), recipe);
    }

    #[test]
    fn every_key_is_explained_with_its_origin() {
        let recipe = resolve("epochs = 3");
        let lines = recipe.explain();
        let of_method = |method| KEYS.iter().filter(move |key| key.scope.includes(method)).map(|key| key.name);
        assert!(lines.iter().map(|line| line.key).eq(of_method(MethodName::Dino)));
        let other = resolve("method = \"msn\"\nepochs = 3").explain();
        assert!(other.iter().map(|line| line.key).eq(of_method(MethodName::Msn)));
        assert!(keys().all(|key| {
            MethodName::WORDS.iter().any(|word| of_method(MethodName::of_word(word).unwrap()).any(|known| known == key))
        }));
        let origin = |key| &lines.iter().find(|line| line.key == key).unwrap().origin;
        assert_eq!(origin("epochs"), &Origin::Given("my.toml:1".into()));
        assert_eq!(origin("student_temp"), &Origin::Default);
        assert!(matches!(origin("out_dim"), Origin::Derived(why) if why.contains("50000")));
        assert_eq!(recipe.table(true).lines().count(), lines.len());
        let chosen = recipe.table(false);
        assert!(chosen.contains("given: my.toml:1") && chosen.contains("derived: ") && !chosen.contains("default"));
    }

    #[test]
    fn only_keys_without_influence_on_the_weights_may_change_on_resume() {
        let here = resolve("");
        let eased = "workers = 3\ncheckpoint_minutes = 1\nlog_every = 1\nkeep_checkpoints = 9\nknn_every = 1\n\
                     knn_k = 5\nknn_temperature = 0.1";
        assert_eq!(here.same_run(&resolve(eased)), Ok(()));
        let differences = here.same_run(&resolve("seed = 4\nout_dim = 512")).unwrap_err();
        let shown: Vec<String> = differences.iter().map(Difference::to_string).collect();
        assert_eq!(shown, ["out_dim: 4096 saved, 512 now", "seed: 0 saved, 4 now"]);
    }

    #[test]
    fn the_place_of_the_data_is_remembered_and_may_change() {
        let here = resolve("").with_source("/data/\"my\" photos\n".to_owned());
        let text = here.to_toml();
        let saved = Recipe::from_toml(&text, "config.toml").unwrap();
        assert_eq!(saved.source(), Some("/data/\"my\" photos\n"));
        assert_eq!(here.compare(&text).unwrap(), Comparison::Same);
        let moved = resolve("").with_source("/mnt/photos".to_owned());
        match moved.compare(&text).unwrap() {
            Comparison::Continues(changes) => {
                assert_eq!(changes[0].to_string(), "place of the data: /data/\"my\" photos\n saved, /mnt/photos now");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(moved.digests(), here.digests(), "it is the same run");
        assert!(matches!(here.compare(&resolve("").to_toml()).unwrap(), Comparison::Continues(_)), "it was not known");
    }

    #[test]
    fn digests_are_of_what_shapes_the_result() {
        let here = resolve("").digests();
        assert_eq!(resolve("workers = 3\nlog_every = 1\nknn_k = 5").digests(), here);
        assert_ne!(resolve("seed = 4").digests().recipe, here.recipe);
        assert_ne!(resolve("start = \"random\"").digests().recipe, here.recipe);
        // As it was before there was a choice of the start.
        assert_eq!(resolve("start = \"random\"\nout_dim = 512").digests().recipe, PINNED);
        assert_eq!(resolve("seed = 4").digests().data, here.data);
        let other = RawRecipe::default().resolve(&Facts { fingerprint: 8, ..CIFAR }).unwrap().digests();
        assert_ne!(other.data, here.data);
    }

    #[test]
    fn more_images_are_another_run() {
        let all = "epochs = 3\nout_dim = 512\nmomentum_teacher = 0.99\nbatch_size = 8";
        let more = RawRecipe::from_toml(all, "f").unwrap().resolve(&Facts { images: 50_001, ..CIFAR }).unwrap();
        let differences = resolve(all).same_run(&more).unwrap_err();
        assert_eq!(differences.len(), 1);
        assert_eq!(differences[0].to_string(), "number of images: 50000 saved, 50001 now");
    }

    #[test]
    fn other_images_are_another_run_even_if_as_many() {
        let other = RawRecipe::default().resolve(&Facts { fingerprint: 8, ..CIFAR }).unwrap();
        let differences = resolve("").same_run(&other).unwrap_err();
        let shown = differences[0].to_string();
        assert_eq!(shown, "images (hash of names, sizes and contents): 0000000000000007 saved, 0000000000000008 now");
    }

    #[test]
    fn a_saved_recipe_without_its_facts_is_refused() {
        let message = Recipe::from_toml("epochs = 3", "config.toml").unwrap_err().to_string();
        assert!(message.contains("[data]") && message.contains("`fingerprint` is missing"), "{message}");
        let wrong = "[data]\nimages = \"many\"\nheight = 1\nwidth = 1\nlabelled = true\nfingerprint = \"0\"";
        assert!(Recipe::from_toml(wrong, "config.toml").unwrap_err().to_string().contains("`images`"));
    }
}
