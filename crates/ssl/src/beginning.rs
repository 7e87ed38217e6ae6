//! Weights that a run begins with instead of drawn ones: the backbone of a file, and its heads where they fit.
//!
//! What is read of a file is kept in the run's folder (`initial.safetensors`), so that a run that goes on needs the file no
//! more: with the pull towards the initial weights, with the accuracy at the start, or before its first checkpoint. The
//! digest of it is one of the run's settings. It is of everything that was read, whatever of it fits the run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use files::safetensors::{Content, Dtype, TensorToWrite, Writer};
use model::weights::{LoadOptions, NetworkRole, WeightsError, WeightsFile, describe};
use model::{Layout, VitConfig};
use random::StableHash;
use tensor::ops::Grid;
use tensor::{Device, ParamId, ParamSet, Tensor};

use crate::learner::BACKBONE;
use crate::recipe::HeadShape;

/// The learnt positions, which are for a grid.
const POSITIONS: &str = "backbone.pos_embed";
/// What holds class tokens against prototypes: DINO's name, and MSN's.
const PROTOTYPES: [&str; 2] = ["head.last_layer.weight_v", "prototypes.weight_v"];
/// Why a tensor begins anew that there is not.
const ABSENT: &str = "the file has no such tensor";
/// What makes tokens of pixels.
const PATCHES: &str = "backbone.patch_embed.proj.weight";
const PATCHES_BIAS: &str = "backbone.patch_embed.proj.bias";
const PATCH_PROTOTYPES: &str = "head.last_layer2.weight_v";

/// One tensor.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// The tensors of one network by the names that a learner has for them.
type Network = BTreeMap<String, Given>;

/// Weights to begin with.
#[derive(Clone, Debug, PartialEq)]
pub struct Beginning {
    config: VitConfig,
    teacher: Network,
    /// What of the student's is not the teacher's.
    student: Network,
}

/// What of the given weights a run has begun with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Parameters of the backbone, all of which are taken.
    pub backbone: usize,
    /// Whether positions were interpolated for another grid: from rows and columns to those of the run.
    pub resampled: Option<((usize, usize), (usize, usize))>,
    /// Parameters of the heads that were taken.
    pub heads: Vec<String>,
    /// Those that begin anew, each with why.
    pub anew: Vec<(String, String)>,
    /// Centres that were taken.
    pub centers: usize,
    /// Whether student and teacher begin with weights of their own.
    pub two_networks: bool,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.two_networks { " of student and teacher each" } else { "" };
        write!(f, "backbone: all {} tensors{whose}", self.backbone)?;
        if let Some(((rows, columns), (to_rows, to_columns))) = self.resampled {
            write!(f, ", positions interpolated from {rows}x{columns} to {to_rows}x{to_columns} patches")?;
        }
        let (taken, all) = (self.heads.len(), self.heads.len() + self.anew.len());
        write!(f, "; heads: {taken} of {all} tensors")?;
        if taken == 0 && self.anew.iter().all(|(_, why)| why == ABSENT) {
            return write!(f, ": the file has none, so that they begin anew");
        }
        if self.centers > 0 {
            write!(f, ", and {}", text::count(self.centers, "centre"))?;
        }
        if let Some((first, why)) = self.anew.first() {
            let more = match self.anew.len() - 1 {
                0 => String::new(),
                n => format!(", and {n} more"),
            };
            write!(f, ". {first} begins anew: {why}{more}")?;
        }
        Ok(())
    }
}

impl Beginning {
    /// Reads the networks of a file whose teacher, or only network, is loaded with these options.
    pub fn read(path: &Path, options: &LoadOptions) -> Result<Self, WeightsError> {
        let host = Device::cpu(Default::default())
            .map_err(|error| WeightsError::Io { path: path.to_owned(), source: std::io::Error::other(error) })?;
        let mut file = WeightsFile::open(path)?;
        let loaded = file.load_vit(options, &host)?;
        let (role, config) = (loaded.report.role, loaded.vit.config().clone());
        let mut teacher = of_backbone(&loaded.layout, &loaded.weights);
        read_heads(&mut file, role, &mut teacher)?;
        let mut student = Network::new();
        if role == Some(NetworkRole::Teacher) && file.has_network(NetworkRole::Student) {
            let options = LoadOptions {
                role: Some(NetworkRole::Student),
                image: Some(config.image),
                heads: Some(config.heads),
                interpolation: Some(config.extras.interpolation),
                norm_epsilon: Some(config.extras.norm_epsilon),
            };
            // What says that it has a student and has half of one is no checkpoint to go on from.
            let loaded = file.load_vit(&options, &host)?;
            student = of_backbone(&loaded.layout, &loaded.weights);
            read_heads(&mut file, options.role, &mut student)?;
            student.retain(|name, given| teacher.get(name) != Some(given));
        }
        Ok(Self { config, teacher, student })
    }

    /// The network that the weights are of.
    pub fn config(&self) -> &VitConfig {
        &self.config
    }

    /// The same with the teacher's weights for the student too.
    pub fn of_teacher(mut self) -> Self {
        // No teacher follows MSN's prototypes: the student's are the only ones that were trained.
        let of_loss = std::mem::take(&mut self.student).into_iter().filter(|(name, _)| name.starts_with("prototypes."));
        self.teacher.extend(of_loss);
        self
    }

    /// The same for a run that normalises pixels in another way than the network was trained with: (mean, deviation) of each
    /// channel as it was, and as it is. The patch embedding takes up the difference, so that it sees what it saw.
    ///
    /// # Panics
    /// When there is not one of each for every channel.
    pub fn renormalized(mut self, was: (&[f32], &[f32]), is: (&[f32], &[f32])) -> Self {
        for name in [PATCHES, PATCHES_BIAS] {
            // The student's may be the teacher's as long as neither changes.
            if let (false, Some(given)) = (self.student.is_empty(), self.teacher.get(name)) {
                self.student.entry(name.to_owned()).or_insert_with(|| given.clone());
            }
        }
        for network in [&mut self.teacher, &mut self.student] {
            let Some(mut weight) = network.remove(PATCHES) else { continue };
            if let Some(bias) = network.get_mut(PATCHES_BIAS) {
                renormalize(&mut weight, bias, was, is);
            }
            network.insert(PATCHES.to_owned(), weight);
        }
        let teacher = &self.teacher;
        self.student.retain(|name, given| teacher.get(name) != Some(given));
        self
    }

    /// The same without centres, for a run that has them in another space.
    pub fn without_centers(mut self) -> Self {
        for network in [&mut self.teacher, &mut self.student] {
            network.retain(|name, _| !is_center(name));
        }
        self
    }

    /// Which weights they are.
    pub fn digest(&self) -> u64 {
        let mut hash = StableHash::new();
        for (key, value) in describe(&self.config) {
            hash.write(format!("{key} = {value}\n").as_bytes());
        }
        for (name, given) in self.named() {
            hash.write(format!("{name} {:?}\n", given.shape).as_bytes());
            given.values.iter().for_each(|value| hash.write(&value.to_le_bytes()));
        }
        hash.finish()
    }

    /// All tensors by their names in a file.
    fn named(&self) -> impl Iterator<Item = (String, &Given)> {
        let of = |role: &'static str, network| named_as(role, network);
        of("student", &self.student).chain(of("teacher", &self.teacher))
    }

    /// A file from which [`Beginning::read`] gives the same again.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, WeightsError> {
        // A file with a student has all of it.
        let mut whole = self.student.clone();
        if !whole.is_empty() {
            for (name, given) in self.teacher.iter().filter(|(name, _)| !is_center(name)) {
                whole.entry(name.clone()).or_insert_with(|| given.clone());
            }
        }
        let named: Vec<(String, &Given)> =
            named_as("student", &whole).chain(named_as("teacher", &self.teacher)).collect();
        let tensors = named.iter().map(|(name, given)| {
            let content =
                Content::stream(|out| given.values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes())));
            TensorToWrite { name, dtype: Dtype::F32, shape: &given.shape, content }
        });
        let metadata = describe(&self.config).into_iter().chain([("format", "pt".to_owned())]);
        Ok(Writer::new(tensors.collect(), metadata)?.to_bytes()?)
    }

    /// The shape of the heads, where those of a method with this kind of prototypes are whole.
    pub fn heads(&self, is_msn: bool) -> Option<HeadShape> {
        let shape = |name: &str| self.teacher.get(name).map(|given| given.shape.as_slice());
        let &[prototypes, bottleneck] = shape(PROTOTYPES[usize::from(is_msn)])? else { return None };
        let patch_prototypes = shape(PATCH_PROTOTYPES).and_then(|shape| shape.first().copied());
        let is_weight = |name: &str| name.starts_with("head.mlp") && name.ends_with(".weight");
        let of_mlp = || self.teacher.iter().filter(|(name, _)| is_weight(name)).map(|(_, given)| &given.shape);
        // Linear layers have matrices, batch normalisation vectors.
        let mut linear = of_mlp().filter(|shape| shape.len() == 2);
        let batch_norm = of_mlp().any(|shape| shape.len() == 1);
        let hidden = linear.next()?[0];
        Some(HeadShape { prototypes, patch_prototypes, hidden, bottleneck, layers: 1 + linear.count(), batch_norm })
    }

    /// Whether there is anything of a head.
    pub fn has_heads(&self) -> bool {
        self.teacher.keys().any(|name| name.starts_with("head.") || name.starts_with("prototypes."))
    }

    /// Puts the weights into networks of this layout, whose backbone is that of `run`. Where a head does not fit, it stays as
    /// it is.
    pub fn put_into(
        &self,
        layout: &Layout,
        run: &VitConfig,
        student: &mut ParamSet,
        teacher: &mut ParamSet,
        centers: Vec<(&'static str, &mut Tensor)>,
    ) -> Taken {
        let mut taken = Taken { two_networks: !self.student.is_empty(), ..Taken::default() };
        let grids = (self.config.grid(), run.grid());
        for (i, spec) in layout.specs().iter().enumerate() {
            let Some(of_teacher) = self.teacher.get(&spec.name) else {
                taken.anew.push((spec.name.clone(), ABSENT.to_owned()));
                continue;
            };
            let is_backbone = spec.name.starts_with(BACKBONE);
            let of_student = self.student.get(&spec.name).unwrap_or(of_teacher);
            for (given, set) in [(of_teacher, &mut *teacher), (of_student, &mut *student)] {
                if spec.name == POSITIONS && grids.0 != grids.1 {
                    set[ParamId(i)].copy_from_f32(&resample(given, grids, run));
                } else if given.values.len() == spec.shape.iter().product::<usize>() && fits(&given.shape, &spec.shape)
                {
                    set[ParamId(i)].copy_from_f32(&given.values);
                }
            }
            match fits(&of_teacher.shape, &spec.shape) || spec.name == POSITIONS {
                true if is_backbone => taken.backbone += 1,
                true => taken.heads.push(spec.name.clone()),
                false => {
                    let why = format!("{:?} in the file, {:?} here", of_teacher.shape, spec.shape);
                    taken.anew.push((spec.name.clone(), why));
                }
            }
        }
        taken.resampled = (grids.0 != grids.1).then_some(grids);
        for (name, center) in centers {
            if let Some(given) = self.teacher.get(name).filter(|given| given.values.len() == center.len()) {
                center.copy_from_f32(&given.values);
                taken.centers += 1;
            }
        }
        taken
    }
}

/// W (x - m) / s + b as W' (x - m') / s' + b': with W' = W s' / s and b' = b + W (m' - m) / s.
fn renormalize(weight: &mut Given, bias: &mut Given, was: (&[f32], &[f32]), is: (&[f32], &[f32])) {
    let (channels, outputs) = (was.0.len(), bias.values.len());
    assert_eq!([was.1.len(), is.0.len(), is.1.len()], [channels; 3], "a mean and a deviation for each channel");
    let of_channel = weight.values.len() / (outputs * channels).max(1);
    let rows = weight.values.chunks_exact_mut((channels * of_channel).max(1));
    for (row, bias) in rows.zip(&mut bias.values) {
        let mut moved = f64::from(*bias);
        for (channel, values) in row.chunks_exact_mut(of_channel.max(1)).enumerate() {
            let [m, s, to_m, to_s] = [was.0, was.1, is.0, is.1].map(|of| f64::from(of[channel]));
            for value in values {
                moved += f64::from(*value) * (to_m - m) / s;
                *value = (f64::from(*value) * to_s / s) as f32;
            }
        }
        *bias = moved as f32;
    }
}

/// Whether a tensor is a centre of targets, which belongs to neither network.
fn is_center(name: &str) -> bool {
    ["center", "patch_center"].contains(&name)
}

fn named_as<'a>(role: &'static str, network: &'a Network) -> impl Iterator<Item = (String, &'a Given)> {
    network.iter().map(move |(name, given)| match name.as_str() {
        name if is_center(name) => (name.to_owned(), given),
        _ => (format!("{role}/{name}"), given),
    })
}

/// Whether a tensor has a parameter's shape, or differs from it in extents of one alone, as mask tokens do.
fn fits(found: &[usize], wanted: &[usize]) -> bool {
    let extents = |shape: &[usize]| shape.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
    extents(found) == extents(wanted)
}

/// Learnt positions for the grid of a run, by the rule of their network. That of the class token, which has no place, stays.
fn resample(given: &Given, (from, to): ((usize, usize), (usize, usize)), run: &VitConfig) -> Vec<f32> {
    let (grid, width) = (Grid::new(to, from, run.extras.interpolation), run.dim);
    let (class, patches) = given.values.split_at(width);
    let mut values = class.to_vec();
    for patch in 0..grid.patches() {
        let mut sum = vec![0.0; width];
        for (learnt, weight) in grid.taps(patch) {
            let learnt = &patches[learnt * width..(learnt + 1) * width];
            sum.iter_mut().zip(learnt).for_each(|(sum, &value)| *sum += weight * f64::from(value));
        }
        values.extend(sum.into_iter().map(|value| value as f32));
    }
    values
}

fn of_backbone(layout: &Layout, weights: &ParamSet) -> Network {
    let pairs = layout.specs().iter().zip(weights.iter());
    pairs
        .map(|(spec, tensor)| {
            (format!("{BACKBONE}{}", spec.name), Given { shape: spec.shape.clone(), values: tensor.to_f32() })
        })
        .collect()
}

fn read_heads(file: &mut WeightsFile, role: Option<NetworkRole>, into: &mut Network) -> Result<(), WeightsError> {
    for (name, tensor) in file.beside_backbone(role) {
        let values = file.read(&tensor)?.into_f32();
        into.insert(name, Given { shape: tensor.shape, values });
    }
    Ok(())
}
