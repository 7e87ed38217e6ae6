//! How far the backbone has come from where it began: a training whose network stays where it was has taught nothing,
//! whatever its loss says.

use model::{Layout, Start, Vit};
use tensor::{Device, DeviceError, ParamId, ParamSet};

use crate::beginning::Beginning;
use crate::learner::{BACKBONE, Learner};
use crate::method::Method;

/// Distances from the initial weights, in parts of their length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Movement {
    /// Of the network that is trained.
    pub student: f64,
    /// Of the network that is kept.
    pub teacher: f64,
}

impl Movement {
    /// That of a learner whose weights began so, with this seed, or with the weights that were given.
    pub fn of<M: Method + ?Sized>(
        learner: &Learner<M>,
        start: Start,
        seed: u64,
        beginning: Option<&Beginning>,
    ) -> Result<Self, DeviceError> {
        // On the host: a GPU's memory is planned for the steps, and may have no room for a third network.
        let host = Device::cpu(Default::default())?;
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, BACKBONE, learner.vit().config().clone());
        let mut initial = vit.initial(&layout, start, &host, seed);
        if let Some(beginning) = beginning {
            let mut student = initial.duplicate();
            beginning.put_into(&layout, vit.config(), &mut student, &mut initial, Vec::new());
        }
        let distance = |weights: &ParamSet| {
            let (mut moved, mut length) = (0.0, 0.0);
            for (i, spec) in layout.specs().iter().enumerate() {
                let Some(id) = learner.layout().find(&spec.name) else { continue };
                for (now, begun) in weights[id].to_f32().into_iter().zip(initial[ParamId(i)].to_f32()) {
                    moved += f64::from(now - begun).powi(2);
                    length += f64::from(begun).powi(2);
                }
            }
            (moved / length).sqrt()
        };
        let (student, teacher) = (distance(&learner.student), distance(&learner.teacher));
        // A device that has failed gives zeros.
        learner.device().finish()?;
        Ok(Self { student, teacher })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::LearnerOptions;
    use crate::method;
    use crate::recipe::{Facts, RawRecipe};
    use crate::setup::learner_options;

    #[test]
    fn a_new_learner_has_not_moved_and_a_changed_one_has() {
        let facts = Facts { images: 64, height: 16, width: 16, labelled: false, fingerprint: 1 };
        let text = "arch = \"vit_nano\"\npatch_size = 8\nhead_hidden = 16\nhead_bottleneck = 16\nout_dim = 8\nseed = 5";
        let recipe = RawRecipe::from_toml(text, "test").unwrap().resolve(&facts).unwrap();
        let (start, device) = (recipe.start(), Device::cpu(Default::default()).unwrap());
        let (options, method): (LearnerOptions, _) = (learner_options(&recipe).unwrap(), method::of(&recipe));
        let mut learner = Learner::new(&device, &options, |l, v, d| method.build(l, v, d)).unwrap();
        assert_eq!(Movement::of(&learner, start, 5, None).unwrap(), Movement { student: 0.0, teacher: 0.0 });
        let id = learner.layout().find("backbone.cls_token").unwrap();
        learner.student[id].copy_from_f32(&[1.0; 64]);
        let moved = Movement::of(&learner, start, 5, None).unwrap();
        assert!(moved.student > 0.01 && moved.teacher == 0.0, "{moved:?}");
        assert!(Movement::of(&learner, start, 6, None).unwrap().teacher > 0.5, "another seed begins elsewhere");
    }
}
