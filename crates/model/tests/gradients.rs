//! Every gradient of backbone and head against finite differences, in double precision.
//!
//! The loss is a random projection of the logits, the batch has crops of two sizes, and drop path skips every kind of
//! branch somewhere. All elements of all parameters are checked.

mod common;

use common::{Crops, Network, mixed_drop_path, normal, random_weights, tiny_head};
use model::{Alone, DropPath, Extras, Kept, Masked, Tokens, VitInput, VitSaved};
use tensor::ops::{self, Interpolation};
use tensor::{ParamId, ParamSet, Rows, Tensor};

/// Allowed difference, relative to the largest element of a parameter's gradient.
const TOLERANCE: f64 = 1e-8;

struct Case {
    network: Network,
    crops: Crops,
    drop_path: Option<DropPath>,
    projection: Vec<f64>,
    /// Which tokens go through the head.
    read: Tokens,
    /// Which patches are masked by the class token, which is as good a parameter as a mask token.
    masked: Option<Rows>,
    /// Which tokens go through the blocks.
    kept: Option<Kept>,
    /// Which tokens go through the head, where they are neither class tokens nor all.
    some: Option<Kept>,
}

/// Class tokens and some of the patches of the five crops.
fn some_read(network: &Network) -> Kept {
    let read = [(4, &[1, 3][..]), (4, &[]), (4, &[0, 1, 2, 3]), (6, &[5]), (6, &[])];
    let leading = network.vit.config().leading_tokens();
    Kept::new(leading, read.map(|(patches, read)| (patches, Some(read))))
}

impl Case {
    fn new(layers: usize, batch_norm: bool, drop_path: Option<DropPath>) -> Self {
        let network = Network::new(tiny_head(layers, batch_norm));
        let projection = normal(77, Crops::COUNT * network.head.prototypes.count());
        let (read, crops) = (Tokens::Class, Crops::new(5));
        Self { network, crops, drop_path, projection, read, masked: None, kept: None, some: None }
    }

    /// The same with registers and LayerScale.
    fn with_extras(self) -> Self {
        let extras =
            Extras { registers: 2, layer_scale: true, interpolation: Interpolation::Antialiased, ..Extras::NONE };
        Self { network: Network::with_extras(tiny_head(2, false), extras), ..self }
    }

    /// The same with all tokens read.
    fn of_all_tokens(self) -> Self {
        let registers = Crops::COUNT * self.network.vit.config().extras.registers;
        let projection = normal(78, (Crops::TOKENS + registers) * self.network.head.prototypes.count());
        Self { projection, read: Tokens::All, ..self }
    }

    /// The same with some patches masked.
    fn masking(self, patches: &[usize]) -> Self {
        Self { masked: Some(Rows::some(Crops::TOKENS - Crops::COUNT, patches)), ..self }
    }

    /// The same with some patches left out.
    fn keeping(self) -> Self {
        let kept = [(4, Some(&[0, 2][..])), (4, None), (4, Some(&[])), (6, Some(&[1, 2, 5])), (6, None)];
        Self { kept: Some(Kept::new(self.network.vit.config().leading_tokens(), kept)), ..self }
    }

    fn masked(&self) -> Option<Masked<'_>> {
        let token = self.network.layout.find("backbone.cls_token").unwrap();
        self.masked.as_ref().map(|patches| Masked { patches, token })
    }

    /// The same with some tokens of each image read.
    fn reading(self) -> Self {
        let (some, all) = (some_read(&self.network), self.of_all_tokens());
        let projection = all.projection[..some.segments().count() * all.network.head.prototypes.count()].to_vec();
        Self { projection, some: Some(some), ..all }
    }

    /// The tokens that are read, and what their derivative needs.
    fn forward(&self, p: &ParamSet) -> (Tensor, VitSaved) {
        let Network { vit, device, .. } = &self.network;
        let images = self.crops.pixels();
        let input = VitInput {
            drop_path: self.drop_path.as_ref(),
            masked: self.masked(),
            kept: self.kept.as_ref(),
            ..VitInput::images(&images)
        };
        match &self.some {
            None => vit.forward(p, device, &input, self.read),
            Some(some) => vit.forward_some(p, device, &input, some),
        }
        .unwrap()
    }

    fn loss(&self, p: &ParamSet) -> f64 {
        let (_, logits) = self.network.head.forward(p, self.forward(p).0, &mut Alone).unwrap();
        logits.raw.to_f64().iter().zip(&self.projection).map(|(a, b)| a * b).sum()
    }

    /// Adds the gradient of the loss to `grads`.
    fn backward(&self, p: &ParamSet, grads: &mut ParamSet) {
        let Network { vit, head, .. } = &self.network;
        let (features, saved) = self.forward(p);
        let (projected, mut logits) = head.forward(p, features, &mut Alone).unwrap();
        logits.raw.copy_from_f64(&self.projection);
        let d_features = head.backward(p, projected, logits, grads, &mut Alone).unwrap();
        vit.backward(p, saved, &d_features, grads);
    }

    /// Checks the gradients of the parameters whose name begins with `prefix`, and that there are some.
    fn check(&self, prefix: &str) {
        let mut p = random_weights(&self.network.layout, &self.network.device, 1);
        let mut grads = p.zeros_like();
        self.backward(&p, &mut grads);
        let names = self.network.layout.specs().iter().map(|s| s.name.as_str()).enumerate();
        let checked: Vec<_> = names.filter(|(_, name)| name.starts_with(prefix)).collect();
        assert!(!checked.is_empty());
        for (i, name) in checked {
            self.check_parameter(&mut p, ParamId(i), &grads[ParamId(i)].to_f64(), name);
        }
    }

    fn check_parameter(&self, p: &mut ParamSet, id: ParamId, gradient: &[f64], name: &str) {
        // Five points: the error is h^4 times the fifth derivative, so h may be large and rounding stays small.
        const H: f64 = 2e-4;
        let start = p[id].to_f64();
        let mut moved = start.clone();
        let mut differences = Vec::with_capacity(start.len());
        for j in 0..start.len() {
            let mut at = |step: f64| {
                moved[j] = start[j] + step;
                p[id].copy_from_f64(&moved);
                self.loss(p)
            };
            let (near, far) = (at(H) - at(-H), at(2.0 * H) - at(-2.0 * H));
            moved[j] = start[j];
            differences.push((8.0 * near - far) / (12.0 * H));
        }
        p[id].copy_from_f64(&start);
        let scale = differences.iter().fold(1e-2, |m: f64, d| m.max(d.abs()));
        for (j, (got, want)) in gradient.iter().zip(&differences).enumerate() {
            let error = (got - want).abs() / scale;
            assert!(error < TOLERANCE, "{name}[{j}]: {got} is not {want} ({error:e} of {scale})");
        }
    }
}

#[test]
fn all_parameters_with_drop_path_and_two_crop_sizes() {
    Case::new(3, false, Some(mixed_drop_path(0.7).0)).check("");
}

#[test]
fn all_parameters_where_all_tokens_are_read() {
    Case::new(3, false, Some(mixed_drop_path(0.7).0)).of_all_tokens().check("");
}

#[test]
fn all_parameters_where_some_tokens_are_read() {
    Case::new(2, false, Some(mixed_drop_path(0.7).0)).reading().check("");
}

#[test]
fn some_tokens_are_what_they_are_among_all() {
    let all = Case::new(2, false, Some(mixed_drop_path(0.7).0)).of_all_tokens();
    let p = random_weights(&all.network.layout, &all.network.device, 1);
    let rows = Rows::some(Crops::TOKENS, &[0, 2, 4, 5, 10, 11, 12, 13, 14, 15, 21, 22]);
    let expected = ops::gather(&all.forward(&p).0, &rows, 1.0).to_f64();
    let found = all.reading().forward(&p).0.to_f64();
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} {expected:?}");
}

#[test]
fn all_parameters_where_patches_are_masked() {
    let case = || Case::new(3, false, Some(mixed_drop_path(0.7).0)).masking(&[0, 3, 4, 11, 13, 23]);
    case().of_all_tokens().check("backbone.");
    // As iBOT trains: what is read has masked patches among it.
    case().reading().check("backbone.");
}

#[test]
fn all_parameters_where_patches_are_left_out() {
    Case::new(3, false, Some(mixed_drop_path(0.7).0)).keeping().check("backbone.");
}

#[test]
fn all_parameters_of_a_network_with_registers_and_layer_scale() {
    let case = || Case::new(2, false, Some(mixed_drop_path(0.7).0)).with_extras();
    case().check("");
    case().of_all_tokens().masking(&[0, 3, 4, 11, 13, 23]).check("backbone.");
    case().reading().masking(&[0, 3, 4, 11, 13, 23]).check("backbone.");
    case().keeping().check("backbone.");
}

#[test]
fn all_parameters_of_a_head_with_batch_norm_and_the_block_below_it() {
    let case = Case::new(3, true, None);
    case.check("head.");
    case.check("backbone.norm");
    case.check("backbone.blocks.2.attn.");
}

#[test]
fn all_parameters_of_a_head_of_one_layer() {
    Case::new(1, false, None).check("head.");
}

#[test]
fn gradients_are_added_to_what_the_caller_holds() {
    let case = Case::new(3, true, Some(mixed_drop_path(0.7).0));
    let p = random_weights(&case.network.layout, &case.network.device, 1);
    let mut once = p.zeros_like();
    case.backward(&p, &mut once);
    let mut held = p.zeros_like();
    held.tensors_mut().iter_mut().for_each(|t| t.fill(3.0));
    case.backward(&p, &mut held);
    for (i, (once, held)) in once.iter().zip(held.iter()).enumerate() {
        for (once, held) in once.to_f64().iter().zip(held.to_f64()) {
            assert!((held - 3.0 - once).abs() < 1e-13 * (1.0 + once.abs()), "{}", case.network.layout.specs()[i].name);
        }
    }
}

#[test]
#[should_panic(expected = "backbone.cls_token[3]")]
fn a_gradient_wrong_in_one_element_is_noticed() {
    let case = Case::new(3, false, None);
    let mut p = random_weights(&case.network.layout, &case.network.device, 1);
    let mut grads = p.zeros_like();
    case.backward(&p, &mut grads);
    let id = case.network.layout.find("backbone.cls_token").unwrap();
    let mut gradient = grads[id].to_f64();
    let largest = gradient.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
    gradient[3] += 1e-7 * largest.max(1e-2);
    case.check_parameter(&mut p, id, &gradient, "backbone.cls_token");
}

#[test]
fn a_network_that_keeps_inputs_only_gives_the_same_bits() {
    let gradient = |only, of: fn(Case) -> Case| {
        let mut case = of(Case::new(3, false, Some(mixed_drop_path(0.7).0)));
        case.network.vit = case.network.vit.keep_inputs_only(only);
        let p = random_weights(&case.network.layout, &case.network.device, 1);
        let mut grads = p.zeros_like();
        case.backward(&p, &mut grads);
        grads.iter().flat_map(|t| t.to_f64()).map(f64::to_bits).collect::<Vec<u64>>()
    };
    for of in [|case| case, Case::of_all_tokens, Case::reading] {
        assert_eq!(gradient(true, of), gradient(false, of));
    }
}
