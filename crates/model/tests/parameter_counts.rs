//! How many values the networks have, from their layouts alone.

use model::{Arch, Head, HeadConfig, Layout, Vit, VitConfig};

fn backbone(arch: Arch, patch: usize) -> Layout {
    let mut layout = Layout::default();
    Vit::new(&mut layout, "", VitConfig::new(arch, patch, (224, 224), 3).unwrap());
    layout
}

fn head(inputs: usize, prototypes: usize, batch_norm: bool) -> Layout {
    let mut layout = Layout::default();
    let config = HeadConfig { inputs, hidden: 2048, bottleneck: 256, prototypes, layers: 3, batch_norm };
    Head::new(&mut layout, "", &config);
    layout
}

fn names(layout: &Layout) -> Vec<&str> {
    layout.specs().iter().map(|s| s.name.as_str()).collect()
}

#[test]
fn backbones_have_dinos_parameter_counts() {
    let counts = [
        (Arch::Tiny, 5_524_416, 5_526_720),
        (Arch::Small, 21_665_664, 21_670_272),
        (Arch::Base, 85_798_656, 85_807_872),
    ];
    for (arch, sixteen, eight) in counts {
        assert_eq!((backbone(arch, 16).values(), backbone(arch, 8).values()), (sixteen, eight), "{arch}");
    }
}

#[test]
fn heads_have_dinos_parameter_counts() {
    let counts = [
        (192, 65_536, 21_958_912),
        (384, 65_536, 22_352_128),
        (768, 65_536, 23_138_560),
        (384, 8192, 7_614_720),
        (768, 8192, 8_401_152),
    ];
    for (inputs, prototypes, count) in counts {
        assert_eq!(head(inputs, prototypes, false).values(), count, "{inputs} inputs, {prototypes} prototypes");
    }
}

#[test]
fn shapes_are_those_of_dinos_files() {
    let layout = backbone(Arch::Small, 8);
    let shape = |name: &str| layout.specs()[layout.find(name).unwrap().0].shape.clone();
    assert_eq!(shape("cls_token"), [1, 1, 384]);
    assert_eq!(shape("pos_embed"), [1, 785, 384]);
    assert_eq!(shape("patch_embed.proj.weight"), [384, 3, 8, 8]);
    assert_eq!(shape("blocks.11.attn.qkv.weight"), [1152, 384]);
    assert_eq!(shape("blocks.11.mlp.fc1.weight"), [1536, 384]);
    assert_eq!(shape("blocks.11.mlp.fc2.weight"), [384, 1536]);
    assert_eq!(shape("norm.bias"), [384]);
}

#[test]
fn heads_name_their_parameters_as_dino_does() {
    let linear = |i: usize| [format!("mlp.{i}.weight"), format!("mlp.{i}.bias")];
    let last = ["last_layer.weight_g", "last_layer.weight_v"].map(String::from);
    let plain: Vec<String> = [0, 2, 4].into_iter().flat_map(linear).chain(last.clone()).collect();
    assert_eq!(names(&head(384, 64, false)), plain);
    let normed: Vec<String> = [0, 1, 3, 4, 6].into_iter().flat_map(linear).chain(last).collect();
    assert_eq!(names(&head(384, 64, true)), normed);
    let layout = head(384, 64, false);
    let magnitude = &layout.specs()[layout.find("last_layer.weight_g").unwrap().0];
    assert_eq!(magnitude.shape, [64, 1]);
    assert!(magnitude.decays(), "g is a matrix of one column, so weight decay applies");
}
