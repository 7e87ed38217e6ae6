//! Why weights could not be loaded or saved: the file, the tensor, the way out.

use std::path::{Component, Path, PathBuf};

use files::safetensors::WriteError;
use text::excerpt;

use super::names::NetworkRole;
use crate::ConfigError;

/// Why weights could not be loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file system refused.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is nothing at this path.
    #[error("{}: there is no such file or folder{}", path.display(), not_fetched(path))]
    Missing {
        /// What was asked for.
        path: PathBuf,
    },
    /// A folder, a pipe, a device.
    #[error("{}: not a file; give the weights file itself", path.display())]
    NotAFile {
        /// What was asked for.
        path: PathBuf,
    },
    /// A folder without weights.
    #[error(
        "{}: neither a run nor a folder with weights: there is no config.toml in it, and none of {looked_for}", path.display()
    )]
    NoWeights {
        /// The folder.
        path: PathBuf,
        /// The names that were looked for.
        looked_for: String,
    },
    /// A network whose MLP has another non-linearity.
    #[error("{}: the network has the activation `{}`, and this program computes `gelu`", path.display(), excerpt(activation))]
    Activation {
        /// The configuration that says so.
        path: PathBuf,
        /// Its name.
        activation: String,
    },
    /// A file of another kind.
    #[error("{}: this is {kind}. Weights are read from safetensors and PyTorch files", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// What its first bytes say.
        kind: &'static str,
    },
    /// A file of no kind that is known here.
    #[error("{}: neither a safetensors file nor one of PyTorch: it begins as neither of them does", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// The header contradicts itself or the file.
    #[error(
        "{}: not a whole file of weights: {reason}. Was it copied or downloaded completely?", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file beside weights that says nothing, or something that is not computed here.
    #[error("{}: this configuration of the weights beside it cannot be used: {reason}", path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A projection head that is not whole, or of no known form.
    #[error("{}: its projection head cannot be used: {what}", path.display())]
    Head {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The network asked for is not there.
    #[error("{}: holds no {wanted}: {}", path.display(), holds(*other))]
    NoSuchNetwork {
        /// The file.
        path: PathBuf,
        /// The network asked for.
        wanted: NetworkRole,
        /// The one that is there instead, if the file tells its networks apart.
        other: Option<NetworkRole>,
    },
    /// Two tensors for one parameter.
    #[error(
        "{}: both `{}` and `{}` could be the backbone's {name}: the file holds two networks whose names do not say \
         which is which; keep one of them", path.display(), excerpt(first), excerpt(second)
    )]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
        /// One tensor.
        first: String,
        /// The other.
        second: String,
    },
    /// Not all of a backbone is there.
    #[error(
        "{}: {found} of {needed} backbone tensors matched ({layout}); missing {}{}, left over {left_over}. {} \
         `dino-vmf inspect {}` lists what it holds",
        path.display(), missing.first().map_or("", String::as_str), more(missing.len()), likely(*found, *needed), path.display()
    )]
    IncompleteBackbone {
        /// The file.
        path: PathBuf,
        /// Tensors of a backbone that are there.
        found: usize,
        /// Tensors of a backbone with as many blocks.
        needed: usize,
        /// The layout that the names are nearest to.
        layout: String,
        /// Names of the tensors that are not there.
        missing: Vec<String>,
        /// Tensors that belong to no backbone.
        left_over: usize,
    },
    /// The backbone has parts that this program does not compute.
    #[error(
        "{}: the backbone has {what}, which this program does not compute: `{}`{}. Its features without it would be wrong",
        path.display(), names.first().map_or_else(Default::default, |name| excerpt(name)), more(names.len())
    )]
    UnknownParts {
        /// The file.
        path: PathBuf,
        /// What the first of them is.
        what: &'static str,
        /// The tensors.
        names: Vec<String>,
    },
    /// A network that turns queries and keys by where they are.
    #[error(
        "{}: this backbone has no learnt positions (`pos_embed`): it has rotary ones, as DINOv3 does, or none, and this program \
         does not compute those. Its features without them would be wrong", path.display()
    )]
    NoPositions {
        /// The file.
        path: PathBuf,
    },
    /// A file without anything to load.
    #[error(
        "{}: there are no tensors in it that have a name: an empty file, a single tensor or list, or a pickle of objects that \
         this program does not make", path.display()
    )]
    NoTensors {
        /// The file.
        path: PathBuf,
    },
    /// A network that averages its patches instead.
    #[error(
        "{}: this backbone has no class token (it averages its patches, as timm's `gap` networks do), and this program runs \
         networks with one", path.display()
    )]
    NoClassToken {
        /// The file.
        path: PathBuf,
    },
    /// A tensor does not fit the network.
    #[error(
        "{}: tensor `{}` has shape {found:?}, expected {expected}{}", path.display(), excerpt(name), also_wrong(*others)
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that fits, in words where the width is not known.
        expected: String,
        /// Other tensors that do not fit.
        others: usize,
    },
    /// Elements that are no weights.
    #[error("{}: tensor `{}` has elements of type {element}; weights are F64, F32, F16 or BF16", path.display(), excerpt(name))]
    ElementType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The type.
        element: String,
    },
    /// A value that would turn every feature into one like it.
    #[error("{}: tensor `{}` holds a value that is not finite, or not in single precision: the training that made it has failed", path.display(), excerpt(name))]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// The number of heads cannot be told from shapes.
    #[error(
        "{}: how many attention heads this network has is neither in the file nor known for a width of {dim} and a depth \
         of {depth}, and with a wrong number its features would be wrong: give it with \
         --attention-heads N", path.display()
    )]
    Heads {
        /// The file.
        path: PathBuf,
        /// Width of a token.
        dim: usize,
        /// Number of blocks.
        depth: usize,
    },
    /// The number of heads that was given is not the file's.
    #[error(
        "{}: the file says that it has {said} attention heads, not the {given} of --attention-heads {given}: leave that out",
        path.display()
    )]
    OtherHeads {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        given: usize,
        /// What the metadata say.
        said: usize,
    },
    /// The metadata say something else than the tensors, or nothing that can be read.
    #[error(
        "{}: the file's metadata, or the configuration beside it, say that `{key}` is `{}`, but {problem}", path.display(), excerpt(value)
    )]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// What it says.
        value: String,
        /// What is wrong with that.
        problem: String,
    },
    /// The grid cannot be told from the number of positions.
    #[error(
        "{}: {patches} patch positions are no square grid: --trained-size HxW says which images the network was trained with",
        path.display()
    )]
    Grid {
        /// The file.
        path: PathBuf,
        /// Positions without that of the class token.
        patches: usize,
    },
    /// The image size given is not the network's.
    #[error(
        "{}: images of {}x{} pixels have {} patches of {patch}x{patch}, but the file has {patches} patch positions: \
         --trained-size HxW says which images the network was trained with",
        path.display(), image.0, image.1, (image.0 / patch).saturating_mul(image.1 / patch)
    )]
    ImageSize {
        /// The file.
        path: PathBuf,
        /// Rows and columns given.
        image: (usize, usize),
        /// Side of a patch.
        patch: usize,
        /// Positions without that of the class token.
        patches: usize,
    },
    /// A network that cannot be.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ConfigError,
    },
    /// Weights that the file format cannot hold.
    #[error(transparent)]
    Save(#[from] WriteError),
}

fn holds(other: Option<NetworkRole>) -> String {
    match other {
        Some(other) => format!("only a {other}; ask for that"),
        None => "it holds one network and does not call it teacher or student; ask for neither".to_owned(),
    }
}

/// What a file probably is of whose backbone some is missing.
fn likely(found: usize, needed: usize) -> &'static str {
    match found {
        0 => "Is this a head without its backbone, another network than a ViT, or a layout that is not known here?",
        _ if 2 * found > needed => {
            "Is it not whole, or a ViT of another kind (without some biases, with other norms or positions)?"
        }
        _ => "Is it another network than a plain ViT, or a layout that is not known here?",
    }
}

/// What somebody means who names weights as other programs do.
fn not_fetched(path: &Path) -> &'static str {
    let name = path.to_string_lossy();
    let is_address = name.contains(":/") || name.starts_with("hf-hub:");
    // Two names, as models have on Hugging Face's hub; in a folder that is there, one is mistyped.
    let is_of_hub = || {
        let parts: Vec<Component<'_>> = path.components().collect();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_file = ["pth", "pt", "bin", "ckpt", "safetensors", "json", "onnx"].contains(&ending);
        matches!(parts[..], [Component::Normal(owner), Component::Normal(_)] if !is_file && !Path::new(owner).exists())
    };
    match name.starts_with('~') {
        true => ". A shell reads ~ only where it begins a word without quotes",
        false if is_address || is_of_hub() => {
            ". This program fetches nothing: download the weights first (a model's folder with `git clone` or `hf download`), and \
             give the file or the folder"
        }
        false => "",
    }
}

fn more(count: usize) -> String {
    if count > 1 { format!(" and {} more", count - 1) } else { String::new() }
}

fn also_wrong(count: usize) -> String {
    if count > 0 { format!(" ({count} more do not fit either)") } else { String::new() }
}
