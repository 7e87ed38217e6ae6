//! The flags of the commands that speak of a run and its recipe: `pretrain` and `views`.

use std::path::PathBuf;

use clap::Args;
use ssl::recipe::{Extension, KeyHelp};

use super::{DeviceArgs, SOURCE, SplitArg, gpus};

/// The heading of what is no key of the recipe: that of all other options.
const PLAIN: Option<&str> = None;

/// `pretrain`.
#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// The data and the recipe.
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// Folder to train in, made if it is not there; one that holds this run is continued [default:
    /// runs/DATA-METHOD-PROTOTYPES-ARCH, with --minutes runs/DATA-METHOD-PROTOTYPES-M-minutes]
    #[arg(long, help_heading = PLAIN, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Begin with the weights of W in place of drawn ones: the folder of a run, a checkpoint, or a file or folder of DINO,
    /// DINOv2, iBOT, MSN, timm or Hugging Face. Network and heads are those of W; heads that do not fit begin anew
    #[arg(long, help_heading = PLAIN, value_name = "W", conflicts_with = "adapt")]
    pub init: Option<PathBuf>,
    /// Adapt the backbone of W to these images without ruining it: new heads warm up first with the backbone held still, then
    /// it learns slowly, its first layers slowest, and is pulled towards where it began
    #[arg(long, help_heading = PLAIN, value_name = "W")]
    pub adapt: Option<PathBuf>,
    /// Attention heads of W, for a file that does not say and is of none of the usual sizes
    #[arg(long, help_heading = PLAIN, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub attention_heads: Option<u32>,
    /// Size of the images that W was trained with, for a file that does not say: which grid its positions are of, where that
    /// is no square
    #[arg(long, help_heading = PLAIN, value_name = "N|HxW", value_parser = super::pixels)]
    pub trained_size: Option<(usize, usize)>,
    /// Make the run in --out longer, to more --epochs than it has. stretch: with the schedules of a run that was as long from the
    /// beginning, so that the learning rate rises to what it has there. again: its epochs stay as they were, and those added
    /// have their own cosine from 0.3 of the first peak
    #[arg(long, help_heading = PLAIN, value_name = "stretch|again", value_parser = extension)]
    pub extend: Option<Extension>,
    /// Choose network, views and epochs so that the run ends within about M minutes on this machine: a few steps are tried
    /// first. What is asked for by other flags stays
    #[arg(long, help_heading = PLAIN, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Train nothing: say what would be trained and what memory it takes, and print the recipe for a file that --recipe takes, with
    /// what is derived as comments
    #[arg(long, help_heading = PLAIN, conflicts_with_all = ["json", "gpus"])]
    pub dry_run: bool,
    /// Print the result as one JSON object
    #[arg(long, help_heading = PLAIN)]
    pub json: bool,
    /// Show every value of the recipe before the run, also those that are as always. config.toml has them in either case
    #[arg(long, help_heading = PLAIN)]
    pub verbose: bool,
    /// Leave out the page that shows the run, report.html in its folder
    #[arg(long, help_heading = PLAIN)]
    pub no_report: bool,
    /// Train on so many GPUs of this machine, with one process for each: docs/distributed.md has several machines
    #[arg(long, help_heading = "Machine", value_name = "N", value_parser = gpus)]
    pub gpus: Option<usize>,
    /// How long the processes of a run wait for one that does not come before all of them end; 0 for ever. Where the first one
    /// evaluates, the others wait in any case
    #[arg(long, help_heading = PLAIN, value_name = "SECONDS", default_value_t = train::reduce::waiting::LIMIT.as_secs())]
    pub process_timeout: u64,
    /// Save and stop when the process with this number ends, which has started this one: for `study`.
    #[arg(long, hide = true, help_heading = PLAIN, value_name = "PID")]
    pub stop_with: Option<u32>,
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
}

fn extension(name: &str) -> Result<Extension, String> {
    let known = Extension::of_word(name).filter(|extension| *extension != Extension::No);
    known.ok_or_else(|| "it is one of stretch, again".to_owned())
}

/// A time that a run can take.
fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.1..=1e6).contains(&minutes) => Ok(minutes),
        _ => Err("must be a number from 0.1 to 1000000".to_owned()),
    }
}

/// The data of a run and its recipe: what decides what the network sees.
#[derive(Debug, Args)]
pub struct RecipeArgs {
    /// The images
    #[arg(long, value_name = "SRC", default_value = "synthetic", help = SOURCE)]
    pub data: String,
    /// File of settings: TOML, one `key = value` a line. The config.toml of another run is one. What it does not say is
    /// derived from the data
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Sets any key of the recipe, whatever the file says; may be repeated. The keys are listed below by --help
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The flags that stand for a key of the recipe.
    #[command(flatten)]
    pub keys: RecipeFlags,
}

/// Flags that stand for a key of the recipe. They are read by the recipe's own rules, so they are texts here.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Recipe (what is not given is derived from the data)")]
pub struct RecipeFlags {
    /// Training method: dino, ibot or msn
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// Prototypes (the classes that the network makes up): vmf for DINO-vMF, l2 or none for DINO with and without
    /// normalised prototypes
    #[arg(long, value_name = "KIND")]
    pub prototypes: Option<String>,
    /// Where the teacher is centred: probability (with vmf) or logit (as DINO)
    #[arg(long, value_name = "SPACE")]
    pub centering: Option<String>,
    /// Size of the network: vit_nano (0.2 million weights), vit_tiny (6), vit_small (22), vit_base (86) or vit_large (300)
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// Side in pixels of the squares that an image is cut into; smaller ones see more and cost more
    #[arg(long, value_name = "P")]
    pub patch_size: Option<String>,
    /// Passes over the data; the length of the run
    #[arg(long, value_name = "N")]
    pub epochs: Option<String>,
    /// Images of a step
    #[arg(long, value_name = "N")]
    pub batch_size: Option<String>,
    /// Number of prototypes; fewer for fewer images
    #[arg(long, value_name = "K")]
    pub out_dim: Option<String>,
    /// Size in pixels of the two global views, which show most of an image: a side, or HEIGHTxWIDTH. What costs the most
    /// time: half the side is about a quarter of it
    #[arg(long, value_name = "S")]
    pub global_size: Option<String>,
    /// Size in pixels of the local views, which show a small part of an image: a side, or HEIGHTxWIDTH
    #[arg(long, value_name = "S")]
    pub local_size: Option<String>,
    /// Local views of an image; each costs time
    #[arg(long, value_name = "N")]
    pub local_crops: Option<String>,
    /// Parts in which the images of a step are taken one after another: less memory
    #[arg(long, value_name = "N")]
    pub accumulate: Option<String>,
    /// Keep only the input of each block, and compute the block again in the backward pass: less memory, more time
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    pub checkpoint_activations: Option<String>,
    /// Whether photographs are turned as their EXIF data says: upright or as-stored
    #[arg(long, value_name = "HOW")]
    pub orientation: Option<String>,
    /// Seed of everything random in training; the images of `synthetic` have their own (synthetic:seed=S)
    #[arg(long, value_name = "S")]
    pub seed: Option<String>,
}

impl RecipeFlags {
    /// Each given flag: the recipe's key, the text, and the flag as the user wrote it.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &str, &'static str)> {
        [
            ("method", &self.method, "--method"),
            ("prototypes", &self.prototypes, "--prototypes"),
            ("centering", &self.centering, "--centering"),
            ("arch", &self.arch, "--arch"),
            ("patch_size", &self.patch_size, "--patch-size"),
            ("epochs", &self.epochs, "--epochs"),
            ("batch_size", &self.batch_size, "--batch-size"),
            ("out_dim", &self.out_dim, "--out-dim"),
            ("global_size", &self.global_size, "--global-size"),
            ("local_size", &self.local_size, "--local-size"),
            ("local_crops", &self.local_crops, "--local-crops"),
            ("accumulate", &self.accumulate, "--accumulate"),
            ("checkpoint_activations", &self.checkpoint_activations, "--checkpoint-activations"),
            ("orientation", &self.orientation, "--orientation"),
            ("seed", &self.seed, "--seed"),
        ]
        .into_iter()
        .filter_map(|(key, text, flag)| Some((key, text.as_deref()?, flag)))
    }
}

/// Examples of `pretrain`.
pub const PRETRAIN_EXAMPLES: &str = "\
Examples:
  dino-vmf pretrain
      DINO-vMF on `synthetic`; needs nothing but this program
  dino-vmf pretrain --data photos --minutes 5
      something to look at in five minutes, also without a GPU
  dino-vmf pretrain --data photos --epochs 100 --out runs/photos
      on a folder. Sub-folders train/ and val/ are told apart; class folders give labels for the online kNN
  dino-vmf pretrain --data photos --gpus 8 --out runs/photos
      the same on eight GPUs of this machine. torchrun, srun and mpirun start processes on several: docs/distributed.md
  dino-vmf pretrain --data photos --prototypes l2 --centering logit --out runs/plain-dino
      plain DINO instead of DINO-vMF
  dino-vmf pretrain --data photos --dry-run > mine.toml
      what would be trained, as a recipe to change; then: pretrain --data photos --recipe mine.toml
  dino-vmf pretrain --recipe recipes/synthetic.toml --set epochs=50 --set teacher_temp=0.05
      a recipe with two keys changed
  dino-vmf pretrain --data photos --adapt dino_deitsmall16_pretrain.pth --epochs 30 --out runs/adapted
      a released backbone, adapted to a folder; kNN of the start is kept, and a fall below it is said at once
  dino-vmf pretrain --data photos --init runs/photos --epochs 50 --out runs/more
      a new run that begins with the weights, heads and centres of another one

  dino-vmf pretrain --data photos --epochs 200 --extend again --out runs/photos
      100 epochs more for a run of 100, with a learning rate that falls a second time

Ctrl-C saves and stops; so do SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM and SIGPWR, which batch systems send. The run's
backbone.safetensors is then the teacher of the last step. The same command again continues, also after a crash or a kill;
the result is bit for bit that of an unbroken run. The last line says what the run is worth and what to try next.

A collapse that lasts for a tenth of the run ends it with the weights from before and status 3. Where the value that should
change was not given, the run begins again with a safer one instead, at most twice; --set on_collapse=stop or =continue
says otherwise.";

/// The long help of `pretrain`.
pub fn pretrain_help() -> String {
    format!("{PRETRAIN_EXAMPLES}\n\n{}", keys_help())
}

fn keys_help() -> String {
    let widest = ssl::recipe::keys().map(str::len).max().unwrap_or(0);
    let line = |key: KeyHelp| {
        let only = key.methods.map(|methods| format!(" ({methods} only)")).unwrap_or_default();
        format!("\n  {:widest$}  {} [{}]{only}", key.name, key.meaning, key.allowed)
    };
    let lines: String = ssl::recipe::help().map(line).collect();
    format!(
        "Keys of a recipe, for --set and for the file, with the values that they take. What nobody sets is derived from the \
         data; --verbose prints every value before the run, with its reason:{lines}"
    )
}

/// `views`.
#[derive(Debug, Args)]
pub struct ViewsArgs {
    /// The data and the recipe.
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// The picture to write, a .png file
    #[arg(long, help_heading = PLAIN, value_name = "FILE", required_unless_present_any = ["raw", "raw_images"])]
    pub out: Option<PathBuf>,
    /// Instead of a picture, write the views of the first N epochs as bytes to standard output, batch by batch: for another
    /// program that is to train on the very same views
    #[arg(long, help_heading = PLAIN, value_name = "N", conflicts_with_all = ["out", "images", "split", "epoch", "force", "no_frames"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub raw: Option<u32>,
    /// With --raw, also write the weights that such a run begins with, a .safetensors file
    #[arg(long, help_heading = PLAIN, value_name = "FILE", requires = "raw")]
    pub initial: Option<PathBuf>,
    /// Instead of a picture, write the images of --split as bytes to standard output, as an evaluation of such a run sees them
    #[arg(long, help_heading = PLAIN, conflicts_with_all = ["out", "raw", "images", "epoch", "force", "no_frames"])]
    pub raw_images: bool,
    /// Images to show
    #[arg(long, help_heading = PLAIN, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub images: u32,
    /// Which images, where the data has two splits; training sees those of `train`
    #[arg(long, help_heading = PLAIN, value_enum, default_value_t = SplitArg::Train)]
    pub split: SplitArg,
    /// The epoch whose first images are shown, from 0
    #[arg(long, help_heading = PLAIN, value_name = "E", default_value_t = 0)]
    pub epoch: u32,
    /// Replace the picture if it exists; of a link, what it leads to. Files of the data are never replaced
    #[arg(long, help_heading = PLAIN)]
    pub force: bool,
    /// Leave out the coloured frames that tell which part of the image a view shows
    #[arg(long, help_heading = PLAIN)]
    pub no_frames: bool,
}

/// Examples of `views`.
pub const VIEWS_EXAMPLES: &str = "\
Examples:
  dino-vmf views --data photos --out sheet.png
  dino-vmf views --data photos --recipe runs/photos/config.toml --epoch 5 --images 16 --out sheet.png

  dino-vmf views --data photos --recipe runs/photos/config.toml --raw 50 | other-program
      a line of JSON with batch, batches, groups (count, height, width and channels of each) and branches, then the bytes of
      each batch: group by group, view by view, image by image, [height, width, channels]. Where drop path skips some, branches
      is [rows, blocks, 2], and as many bytes follow: whether the student takes the attention and the MLP of a block for a
      row, the rows view by view, image by image. --initial FILE writes the weights to begin with
  dino-vmf views --data photos --recipe runs/photos/config.toml --raw-images --split test | other-program
      a line of JSON with images, height, width and channels, then of each image its class in four bytes (little end first;
      all bits for none) and its pixels; what cannot be read is left out

One row an image, in the order of training: the image, its two global views, its local views. They are those that
`pretrain` with the same data, recipe and seed shows the network, pixel for pixel. The frame of a view has the colour of
its part of the image.";

/// The long help of `views`.
pub fn views_help() -> String {
    format!("{VIEWS_EXAMPLES}\n\n{}", keys_help())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_recipe_stand_under_its_heading() {
        use clap::CommandFactory;
        let known: Vec<String> = ssl::recipe::keys().map(|key| key.replace('_', "-")).collect();
        for name in ["pretrain", "views"] {
            let command = crate::args::Cli::command().find_subcommand(name).unwrap().clone();
            for arg in command.get_arguments() {
                let is_key = arg.get_long().is_some_and(|long| known.iter().any(|key| key == long));
                let heading = arg.get_help_heading().unwrap_or_default();
                assert_eq!(heading.starts_with("Recipe"), is_key, "{name} --{}", arg.get_long().unwrap_or_default());
            }
        }
    }

    #[test]
    fn every_recipe_flag_names_a_key_of_the_recipe() {
        let text = || Some("x".to_owned());
        let flags = RecipeFlags {
            method: text(),
            prototypes: text(),
            centering: text(),
            arch: text(),
            patch_size: text(),
            epochs: text(),
            batch_size: text(),
            out_dim: text(),
            global_size: text(),
            local_size: text(),
            local_crops: text(),
            accumulate: text(),
            checkpoint_activations: text(),
            orientation: text(),
            seed: text(),
        };
        let known: Vec<&str> = ssl::recipe::keys().collect();
        for (key, _, flag) in flags.given() {
            assert!(known.contains(&key), "{key}");
            assert_eq!(flag, format!("--{}", key.replace('_', "-")));
        }
        assert_eq!(flags.given().count(), 15);
    }
}
