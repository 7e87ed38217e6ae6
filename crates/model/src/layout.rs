//! Which parameters a network has, under which names, and how they begin.

use random::{Key, Purpose, StableHash};
use tensor::{Device, ParamId, ParamSet};

/// How a parameter begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with mean zero. DINO truncates at an absolute 2, which at its deviation of 0.02 never happens.
    Normal {
        /// Standard deviation.
        deviation: f64,
    },
    /// Uniform in (-bound, bound).
    Uniform {
        /// Half the width.
        bound: f64,
    },
    /// The same value everywhere.
    Constant(f64),
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Its name in a state dict of DINO.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// How it begins.
    pub init: Init,
}

impl ParamSpec {
    /// Whether weight decay applies: not to biases nor to any other vector.
    pub fn decays(&self) -> bool {
        !self.name.ends_with(".bias") && self.shape.len() > 1
    }
}

/// All parameters of a network, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    specs: Vec<ParamSpec>,
}

impl Layout {
    /// Adds a parameter.
    ///
    /// # Panics
    /// When there is one of this name: a file holds each once, and both would begin with the same values.
    pub fn add(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> ParamId {
        let name = name.into();
        assert!(self.find(&name).is_none(), "two parameters are called {name}");
        self.specs.push(ParamSpec { name, shape: shape.to_vec(), init });
        ParamId(self.specs.len() - 1)
    }

    /// Says anew how a parameter begins.
    pub fn begin_at(&mut self, id: ParamId, init: Init) {
        self.specs[id.0].init = init;
    }

    /// The parameters in the order of their ids.
    pub fn specs(&self) -> &[ParamSpec] {
        &self.specs
    }

    /// The id of a name.
    pub fn find(&self, name: &str) -> Option<ParamId> {
        self.specs.iter().position(|s| s.name == name).map(ParamId)
    }

    /// Number of values in all parameters.
    pub fn values(&self) -> usize {
        self.specs.iter().map(|s| s.shape.iter().product::<usize>()).sum()
    }

    /// Zeros for every parameter.
    pub fn zeros(&self, device: &Device) -> ParamSet {
        ParamSet::zeros(device, self.specs.iter().map(|s| s.shape.as_slice()))
    }

    /// Initial values, a function of the seed and the parameter's name alone: a parameter that is added to a network, or a
    /// head beside it, changes no other one.
    pub fn initial(&self, device: &Device, seed: u64) -> ParamSet {
        let mut set = self.zeros(device);
        for (i, spec) in self.specs.iter().enumerate() {
            let mut name = StableHash::new();
            name.write(spec.name.as_bytes());
            let mut stream = Key::new(seed, Purpose::Init).sample(name.finish()).stream();
            let mut draw = || match spec.init {
                Init::Constant(value) => value,
                Init::Normal { deviation } => deviation * stream.normal(),
                Init::Uniform { bound } => stream.uniform_in(-bound, bound),
            };
            let values: Vec<f64> = (0..set[ParamId(i)].len()).map(|_| draw()).collect();
            set[ParamId(i)].copy_from_f64(&values);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_begins_the_same_whatever_stands_before_it() {
        let device = Device::cpu(Default::default()).unwrap();
        let normal = Init::Normal { deviation: 1.0 };
        let (mut alone, mut behind) = (Layout::default(), Layout::default());
        let id = alone.add("blocks.0.fc1.weight", &[3, 2], normal);
        behind.add("mask_token", &[1, 4], normal);
        let moved = behind.add("blocks.0.fc1.weight", &[3, 2], normal);
        let other = behind.add("blocks.1.fc1.weight", &[3, 2], normal);
        let (a, b) = (alone.initial(&device, 5), behind.initial(&device, 5));
        assert_eq!(a[id].to_f64(), b[moved].to_f64());
        assert_ne!(b[moved].to_f64(), b[other].to_f64());
        assert_ne!(a[id].to_f64(), alone.initial(&device, 6)[id].to_f64());
    }
}
