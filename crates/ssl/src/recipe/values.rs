//! The types of a recipe's values: how each is read from TOML and written back without loss.

use std::fmt;
use std::str::FromStr;

use data::{Decoding, Orientation};
use model::weights::POSITION_RULES;
use model::{Arch, Start};
use tensor::ops::Interpolation;
use toml::Value;

use super::rule::{MAX_SIDE, Rule};

/// A value that a recipe can hold.
pub(super) trait Setting: Copy {
    /// Reads a TOML value; `None` when its type or range is not what `rule` says.
    fn read(value: &Value, rule: &Rule) -> Option<Self>;
    /// Writes it so that `read` gives back the same value.
    fn show(&self) -> String;
}

/// Declares an enum whose variants are words in a recipe.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// The words that stand for the variants, in their order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The variant that a word stands for.
            pub fn of_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }

            /// The word that stands for this variant in recipes and on the command line.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Setting for $name {
            fn read(value: &Value, _: &Rule) -> Option<Self> {
                Self::of_word(value.as_str()?)
            }
            fn show(&self) -> String {
                format!("\"{self}\"")
            }
        }
    };
}

choice! {
    /// The training method.
    MethodName {
        /// Self-distillation with no labels.
        Dino = "dino",
        /// The same, and on masked patches.
        Ibot = "ibot",
        /// Views with patches left out, assigned to prototypes as a whole one is.
        Msn = "msn",
    }
}

choice! {
    /// What the prototypes' norms mean; the rows of the paper's ablation.
    Prototypes {
        /// Free norms without a normaliser: DINO with `norm_last_layer` off.
        None = "none",
        /// Unit norms: DINO with `norm_last_layer` on.
        L2 = "l2",
        /// Free norms that are concentrations, with the von Mises-Fisher log-normaliser in the logits.
        Vmf = "vmf",
    }
}

choice! {
    /// Where the teacher is centred; the columns of the paper's ablation.
    Centering {
        /// Running mean of the logits, as DINO.
        Logit = "logit",
        /// Running mean of the log of the batch-mean probability, as the paper proposes.
        Probability = "probability",
    }
}

choice! {
    /// What a mask is made of.
    MaskShape {
        /// Rectangles.
        Block = "block",
        /// Single patches.
        Random = "random",
    }
}

choice! {
    /// The element type of the residual stream on a GPU; a CPU keeps it as everything else.
    ResidualStream {
        /// bfloat16: the least memory to move.
        Bf16 = "bf16",
        /// Single precision, as PyTorch keeps the stream under autocast.
        F32 = "f32",
    }
}

choice! {
    /// How exactly gradients travel between the processes of a run.
    GradientWire {
        /// As they were computed.
        Exact = "exact",
        /// Rounded to bfloat16: half the bytes.
        Bf16 = "bf16",
    }
}

choice! {
    /// What is done about a collapse that lasts for a tenth of the run.
    OnCollapse {
        /// The run ends.
        Stop = "stop",
        /// It goes on to its end.
        Continue = "continue",
        /// It begins again with a safer value where that was not given, at most twice, and ends otherwise.
        Retry = "retry",
    }
}

choice! {
    /// What a run begins with.
    Begin {
        /// Weights that are drawn.
        Drawn = "drawn",
        /// Those of a file, heads included where they fit.
        Init = "init",
        /// The backbone of a file, which is to keep what it knows.
        Adapt = "adapt",
    }
}

choice! {
    /// How a run was made longer than it was begun.
    Extension {
        /// It was not.
        No = "none",
        /// Its schedules are those of a run that was as long from the beginning.
        Stretch = "stretch",
        /// Its schedules came to their end, and the epochs after it have their own.
        Again = "again",
    }
}

/// Which weights a run begins with: a digest of their values; none where they are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightsDigest(pub Option<u64>);

impl Setting for WeightsDigest {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        match value.as_str()? {
            "none" => Some(Self(None)),
            text if text.len() == 16 => u64::from_str_radix(text, 16).ok().map(|digest| Self(Some(digest))),
            _ => None,
        }
    }
    fn show(&self) -> String {
        self.0.map_or_else(|| "\"none\"".to_owned(), |digest| format!("\"{digest:016x}\""))
    }
}

/// The names of the rules by which positions are interpolated.
pub(super) const POSITIONS: [&str; 3] = [POSITION_RULES[0].0, POSITION_RULES[1].0, POSITION_RULES[2].0];

impl Setting for Interpolation {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        let name = value.as_str()?;
        POSITION_RULES.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule)
    }
    fn show(&self) -> String {
        let known = POSITION_RULES.iter().find(|(_, rule)| rule == self);
        format!("\"{}\"", known.map_or("dino", |(name, _)| name))
    }
}

impl Setting for Arch {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

impl Setting for Start {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        Start::of_name(value.as_str()?)
    }
    fn show(&self) -> String {
        format!("\"{}\"", self.name())
    }
}

impl Setting for Decoding {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        Decoding::of_name(value.as_str()?)
    }
    fn show(&self) -> String {
        format!("\"{}\"", self.name())
    }
}

impl Setting for Orientation {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        Orientation::of_name(value.as_str()?)
    }
    fn show(&self) -> String {
        format!("\"{}\"", self.name())
    }
}

/// Height and width in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Size {
    /// A square.
    pub fn square(side: usize) -> Self {
        Self { height: side, width: side }
    }

    /// The shorter of the two sides.
    pub fn short(self) -> usize {
        self.height.min(self.width)
    }
}

impl FromStr for Size {
    type Err = NoSize;

    /// `224`, or `96x192`.
    fn from_str(text: &str) -> Result<Self, NoSize> {
        let side = |part: &str| part.trim().parse().ok().filter(|side| (1..=MAX_SIDE).contains(side)).ok_or(NoSize);
        let (height, width) = text.split_once(['x', 'X']).unwrap_or((text, text));
        Ok(Self { height: side(height)?, width: side(width)? })
    }
}

/// A text that is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be a side from 1 to {MAX_SIDE}, or two of them as HEIGHTxWIDTH, like 40x80")]
pub struct NoSize;

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl Setting for Size {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        match value {
            Value::Integer(side) => side.to_string().parse().ok(),
            // A square is a number in TOML.
            Value::String(text) if text.contains(['x', 'X']) => text.parse().ok(),
            _ => None,
        }
    }
    fn show(&self) -> String {
        if self.height == self.width { self.height.to_string() } else { format!("\"{self}\"") }
    }
}

/// A range of shares of an image's area.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Smallest share.
    pub low: f64,
    /// Largest share.
    pub high: f64,
}

impl Setting for Interval {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        let [low, high] = value.as_array()?.as_slice() else { return None };
        let (low, high) = (number(low)?, number(high)?);
        (0.0 < low && low <= high && high <= 1.0).then_some(Self { low, high })
    }
    fn show(&self) -> String {
        format!("[{}, {}]", self.low.show(), self.high.show())
    }
}

/// A TOML number; whole ones are numbers too, so that `clip_grad = 0` works.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(x) => Some(*x),
        Value::Integer(n) => Some(*n as f64),
        _ => None,
    }
}

impl Setting for f64 {
    fn read(value: &Value, rule: &Rule) -> Option<Self> {
        number(value).filter(|&x| rule.admits(x))
    }
    fn show(&self) -> String {
        // Debug is the shortest text that reads back as the same bits, and always has a point or an exponent.
        format!("{self:?}")
    }
}

impl Setting for Option<f64> {
    fn read(value: &Value, rule: &Rule) -> Option<Self> {
        if value.as_str() == Some("off") { Some(None) } else { f64::read(value, rule).map(Some) }
    }
    fn show(&self) -> String {
        self.map_or_else(|| "\"off\"".to_owned(), |x| x.show())
    }
}

impl Setting for u64 {
    fn read(value: &Value, rule: &Rule) -> Option<Self> {
        let Rule::Whole(low, high) = rule else { return None };
        u64::try_from(value.as_integer()?).ok().filter(|n| (low..=high).contains(&n))
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for usize {
    fn read(value: &Value, rule: &Rule) -> Option<Self> {
        u64::read(value, rule).and_then(|n| usize::try_from(n).ok())
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for bool {
    fn read(value: &Value, _: &Rule) -> Option<Self> {
        value.as_bool()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}
