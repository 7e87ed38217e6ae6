//! Several devices share the images of a pass, and give what one of them gives.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::{Orientation, Source, Split};
use eval::retrieval::{SearchOptions, describe_images};
use eval::{EvalError, Extraction, Network, Preparation, ReadOptions, ReadProgress, Twin, copies, extract};
use model::{Arch, Layout, Vit, VitConfig};
use tensor::{CpuOptions, Device, ParamSet};

fn device() -> Device {
    Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap()
}

struct Net {
    vit: Vit,
    weights: ParamSet,
    device: Device,
    twins: Vec<Twin>,
}

impl Net {
    /// On so many devices.
    fn on(devices: usize) -> Self {
        let device_of_first = device();
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (32, 32), 3).unwrap());
        let weights = layout.initial(&device_of_first, 5);
        let twins = (1..devices).map(|_| Twin::of(&weights, &device())).collect();
        Self { vit, weights, device: device_of_first, twins }
    }

    fn network(&self) -> Network<'_> {
        Network { twins: &self.twins, ..Network::new(&self.vit, &self.weights, &self.device) }
    }
}

fn source() -> Arc<dyn Source> {
    data::open("synthetic:train=50,size=32", Split::Train, 0).unwrap()
}

fn read() -> ReadOptions {
    ReadOptions { batch_size: 7, workers: 2, ..Default::default() }
}

fn features(net: &Net, progress: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>) -> Result<Extraction, EvalError> {
    extract(net.network(), &*source(), &Preparation::Cover((32, 32)), &read(), progress)
}

#[test]
fn every_pass_over_images_gives_the_bits_of_one_device() {
    let alone = Net::on(1);
    let go_on = &mut |_: ReadProgress| ControlFlow::Continue(());
    let copies = |net: &Net, go_on: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>| {
        copies::describe(net.network(), &*source(), (40, 40), &read(), go_on).unwrap()
    };
    let search = |net: &Net, go_on: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>| {
        let options = SearchOptions { side: 32, is_multi_scale: true, orientation: Orientation::Upright, workers: 2 };
        describe_images(net.network(), &*source(), None, &options, go_on).unwrap().features
    };
    let expected = (features(&alone, go_on).unwrap(), copies(&alone, go_on), search(&alone, go_on));
    assert_eq!((expected.0.features.len(), expected.1.features.len(), expected.2.len()), (50, 50, 50));
    for devices in [2, 3, 9] {
        let net = Net::on(devices);
        let found = (features(&net, go_on).unwrap(), copies(&net, go_on), search(&net, go_on));
        assert_eq!(found, expected, "{devices} devices");
    }
}

#[test]
fn a_pass_counts_every_image_and_can_be_stopped() {
    let net = Net::on(3);
    let mut counted = Vec::new();
    let progress = &mut |at: ReadProgress| {
        counted.push(at.done);
        ControlFlow::Continue(())
    };
    features(&net, progress).unwrap();
    assert_eq!(counted, [7, 14, 21, 28, 35, 42, 49, 50]);
    let stop = &mut |at: ReadProgress| if at.done > 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    assert!(matches!(features(&net, stop), Err(EvalError::Stopped)));
}

#[test]
fn what_is_broken_on_one_of_them_is_said() {
    let mut net = Net::on(2);
    // Batches go to the devices in turn, so the eighth image is the first that the second one sees.
    net.twins[0].weights.tensors_mut().iter_mut().for_each(|tensor| tensor.fill(f64::NAN));
    let error = features(&net, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&error, EvalError::NotFinite { name } if *name == source().name(7)), "{error}");
}
