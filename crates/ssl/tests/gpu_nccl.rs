//! Several processes whose GPUs are connected by NCCL: sums, gathers and shares, and trainings that follow that of one process.
//! They share one GPU, which NCCL allows where each has a name of its own for its machine. Runs where `DINO_VMF_TEST_GPU` is set
//! (`tools/gpu-test`) and NCCL is found, and is skipped elsewhere.
//!
//! The processes meet through NCCL too, which leaves those behind who wait for one that is gone: enough for a test.

mod common;
mod gpu_device;
mod gpu_training;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{dino_options, learner_options};
use gpu_device::gpu;
use gpu_training::{LOCALS, SIDES, head, learner, views_of, vit};
use half::bf16;
use model::DropPath;
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions, StepInput};
use ssl::mask::MaskOptions;
use ssl::method::MethodSpec;
use ssl::method::ibot::IbotOptions;
use ssl::method::msn::MsnOptions;
use ssl::recipe::{Centering, Interval, MaskShape, Prototypes};
use ssl::view_plan::{Sight, ViewGroup, ViewPlan, ViewShape};
use tensor::ops::{PixelData, Pixels};
use tensor::{CudaPrecision, Device, ParamSet, Tensor, nccl_library};
use train::Position;
use train::curve::Curve;
use train::optimizer::StepValues;
use train::reduce::nccl::{ID_BYTES, NcclCarrier, new_id};
use train::reduce::{Carrier, Exchange, Group, PeerError, Recipient, Sent, Share, SumMemory, Sums, Until, Wire, Word};

/// Images of a step, in all processes together.
const BATCH: usize = 24;
const STEPS: usize = 50;
/// Which process a child is, of how many, what it does, and where the id is.
const VARIABLES: [&str; 4] =
    ["DINO_VMF_TEST_RANK", "DINO_VMF_TEST_RANKS", "DINO_VMF_TEST_WORK", "DINO_VMF_TEST_MEETING"];
/// Nobody waits for longer.
const LIMIT: Duration = Duration::from_secs(120);

/// The file through which the id goes.
fn meet(meeting: &Path, rank: usize) -> [u8; ID_BYTES] {
    if rank == 0 {
        let id = new_id().unwrap();
        let part = meeting.with_extension("part");
        std::fs::write(&part, id).unwrap();
        std::fs::rename(part, meeting).unwrap();
        return id;
    }
    for _ in 0..1200 {
        if let Ok(bytes) = std::fs::read(meeting) {
            return bytes.try_into().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the first process has left no id in {}", meeting.display());
}

/// Processes that meet through NCCL as well.
struct OverNccl {
    carrier: NcclCarrier,
    rank: usize,
    ranks: usize,
    /// Whether gradients leave early, and from how many elements on.
    early: Option<usize>,
}

impl Sums for OverNccl {
    fn least_to_begin(&self) -> Option<usize> {
        self.early
    }

    fn memory(&self, lengths: &[usize], wire: Wire) -> SumMemory {
        self.carrier.memory(lengths, wire)
    }

    fn prepare(&mut self, tensors: &ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.carrier.prepare(tensors, wire)
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        self.carrier.begin_sum(tensors, which, wire)
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.carrier.sum(tensors, wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.carrier.put_together(shares, to)
    }
}

impl Exchange for OverNccl {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn meet(&mut self, here: Sent, _: Until) -> Result<Vec<Sent>, PeerError> {
        let word = [Word::Numbers, Word::No, Word::Yes].iter().position(|&word| word == here.word).unwrap();
        let said = self.carrier.gather(&[word as f64, here.numbers.len() as f64], &vec![2; self.ranks])?;
        let lengths: Vec<usize> = said.chunks(2).map(|said| said[1] as usize).collect();
        let mut numbers = self.carrier.gather(&here.numbers, &lengths)?.into_iter();
        let sent = |said: &[f64]| Sent {
            word: [Word::Numbers, Word::No, Word::Yes][said[0] as usize],
            numbers: numbers.by_ref().take(said[1] as usize).collect(),
        };
        Ok(said.chunks(2).map(sent).collect())
    }
}

/// The methods that are trained.
const METHODS: [&str; 4] = ["dino", "ibot", "msn", "msn with batch norm"];

fn method(name: &str) -> Box<dyn MethodSpec> {
    let views = (SIDES.0, SIDES.1, LOCALS);
    let class = dino_options((Prototypes::Vmf, Centering::Probability), head(false), views);
    let grid = SIDES.0 / 16;
    match name {
        "dino" => Box::new(class),
        "ibot" => Box::new(IbotOptions {
            class,
            grid: (grid, grid),
            own_prototypes: Some(200),
            patch_temperature: Curve::Constant(0.07),
            patch_temperature_from: 0,
            masks: MaskOptions {
                shape: MaskShape::Random,
                masked_views: 0.75,
                ratio: Interval { low: 0.2, high: 0.6 },
                first_epoch: 0,
            },
            seed: 3,
            class_weight: 1.0,
            patch_weight: 1.0,
        }),
        _ => Box::new(MsnOptions {
            views: ViewPlan::new(
                vec![
                    ViewGroup { size: (SIDES.0, SIDES.0), sights: vec![Sight::Teacher, Sight::Student] },
                    ViewGroup { size: (SIDES.1, SIDES.1), sights: vec![Sight::Student; LOCALS] },
                ],
                3,
            ),
            head: head(name.ends_with("batch norm")),
            prototypes: Prototypes::L2,
            temperature: 0.1,
            sharpening: 0.25,
            sinkhorn: true,
            me_max_weight: 1.0,
            koleo_weight: 0.0,
            lengths: Default::default(),
            patches: grid * grid,
            patch_drop: 0.3,
            seed: 3,
        }),
    }
}

/// The loss of a step on some of its images.
fn step(learner: &mut Learner, step: usize, images: Range<usize>) -> f64 {
    let shapes = learner.views().shapes(BATCH);
    let views: Vec<Vec<u8>> = views_of(learner.views(), step, BATCH)
        .iter()
        .zip(&shapes)
        .map(|(pixels, shape)| {
            let bytes = shape.height * shape.width * shape.channels;
            let of_view = |view: &[u8]| view[images.start * bytes..images.end * bytes].to_vec();
            pixels.chunks(BATCH * bytes).flat_map(of_view).collect()
        })
        .collect();
    let group = |(shape, pixels): (&ViewShape, &'_ Vec<u8>)| {
        let &ViewShape { count, height, width, channels } = shape;
        (count / BATCH * images.len(), height, width, channels, pixels.clone())
    };
    let groups: Vec<_> = shapes.iter().zip(&views).map(group).collect();
    let groups: Vec<Pixels<'_>> = groups
        .iter()
        .map(|(count, height, width, channels, pixels)| Pixels {
            count: *count,
            height: *height,
            width: *width,
            channels: *channels,
            data: PixelData::Bytes { pixels, mean: &[0.5; 3], deviation: &[0.25; 3] },
        })
        .collect();
    let keys: Vec<u64> = images.map(|image| image as u64).collect();
    let rows = learner.views().student_keys(Key::new(step as u64, Purpose::DropPath), &keys);
    let drop_path = DropPath::draw(0.1, learner.vit().config().depth, rows);
    let input = StepInput { groups: &groups, keys: &keys, drop_path: Some(&drop_path) };
    let lr = 1e-4 * step as f64 / STEPS as f64;
    let values = StepValues { lr, weight_decay: 0.04, momentum: 0.99, frozen: false, waiting_lr: 1.0 };
    learner.step(&input, Position { step: step as u64, epoch: 1 }, &values).unwrap().loss
}

/// The losses of a training, and a digest of all weights. The work says its method, how gradients travel, whether they leave
/// early and whether the optimiser's state is shared.
fn training(device: &Device, (rank, ranks): (usize, usize), work: &str, id: Option<[u8; ID_BYTES]>) -> Vec<String> {
    let parts: Vec<&str> = work.split(", ").collect();
    let &[name, wire, early, state] = &parts[..] else { panic!("{work}") };
    let wire = if wire == "rounded" { Wire::Bf16 } else { Wire::Exact };
    let share = if state == "shared" { Share { number: rank, of: ranks } } else { Share::WHOLE };
    let options = LearnerOptions { wire, share, ..learner_options(vit(), 3.0, 5) };
    let mut learner = learner(device, &options, &*method(name));
    if let Some(id) = id {
        let carrier = NcclCarrier::start(device, rank, ranks, &id, Some(LIMIT), &|| false).unwrap();
        // Small networks have no group of blocks that would be worth a sum of its own.
        let early = (early == "early").then_some(1);
        learner = learner.with_reduce(Box::new(Group::new(OverNccl { carrier, rank, ranks, early })));
        learner.prepare_sums().unwrap();
    }
    let images = rank * BATCH / ranks..(rank + 1) * BATCH / ranks;
    let losses: Vec<String> =
        (0..STEPS).map(|i| format!("{:016x}", step(&mut learner, i, images.clone()).to_bits())).collect();
    let weights = learner.student.iter().chain(learner.teacher.iter()).flat_map(Tensor::to_f32);
    let digest = weights.fold(0_u64, |sum, x| sum.rotate_left(5).wrapping_mul(31) ^ u64::from(x.to_bits()));
    device.finish().unwrap();
    losses.into_iter().chain([format!("{digest:016x}")]).collect()
}

/// Lengths of tensors: none, one, many, and no multiple of anything.
const LENGTHS: [usize; 7] = [1, 300_007, 0, 64, 8192, 1_000_003, 5];

fn values(rank: usize, tensor: usize) -> Vec<f64> {
    let mut stream = Key::new(tensor as u64, Purpose::Bench).sample(rank as u64).stream();
    (0..LENGTHS[tensor]).map(|_| f64::from(stream.normal() as f32)).collect()
}

fn set(device: &Device, values: impl Fn(usize) -> Vec<f64>) -> ParamSet {
    let shapes = LENGTHS.map(|length| [length]);
    let mut set = ParamSet::zeros(device, shapes.iter().map(|shape| &shape[..]));
    set.tensors_mut().iter_mut().enumerate().for_each(|(i, tensor)| tensor.copy_from_f64(&values(i)));
    set
}

fn elements(set: &ParamSet) -> Vec<f64> {
    set.iter().flat_map(Tensor::to_f64).collect()
}

/// Every operation once, held against what it promises; digests of what has to be the same in all processes.
fn operations(device: &Device, (rank, ranks): (usize, usize), id: [u8; ID_BYTES]) -> Vec<String> {
    let mut carrier = NcclCarrier::start(device, rank, ranks, &id, Some(LIMIT), &|| false).unwrap();
    println!("NCCL has taken {} MiB", carrier.memory(&[], Wire::Exact).own >> 20);
    let tensors = 0..LENGTHS.len();
    let all = |of: &dyn Fn(f64) -> f64| -> Vec<f64> {
        let sum = |tensor: usize| {
            let of_ranks: Vec<Vec<f64>> = (0..ranks).map(|rank| values(rank, tensor)).collect();
            (0..LENGTHS[tensor]).map(move |i| of_ranks.iter().map(|v| v[i]).collect::<Vec<f64>>()).collect::<Vec<_>>()
        };
        tensors.clone().flat_map(sum).map(|parts| of(parts.into_iter().map(of).sum())).collect()
    };
    let round = |x: f64| bf16::from_f32(x as f32).to_f64();

    // Whole numbers, whose sums are exact in any order.
    let whole = |rank: usize, tensor: usize| -> Vec<f64> {
        (0..LENGTHS[tensor]).map(|i| ((i * 7 + rank * 13 + tensor) % 1000) as f64).collect()
    };
    let mut exact = set(device, |tensor| whole(rank, tensor));
    carrier.sum(&mut exact, Wire::Exact).unwrap();
    let expected: Vec<f64> = tensors
        .clone()
        .flat_map(|t| (0..LENGTHS[t]).map(move |i| (0..ranks).map(|rank| whole(rank, t)[i]).sum()))
        .take(1000)
        .collect();
    assert_eq!(elements(&exact)[..1000], expected[..], "a sum of whole numbers");

    // Any numbers: near, and the same bits each time and in whatever groups they leave.
    let mut first: Option<Vec<f64>> = None;
    for groups in [vec![], vec![], vec![5..7, 1..3]] {
        let mut sums = set(device, |tensor| values(rank, tensor));
        for which in &groups {
            carrier.begin_sum(&mut sums, which.clone(), Wire::Exact).unwrap();
        }
        carrier.sum(&mut sums, Wire::Exact).unwrap();
        let sums = elements(&sums);
        let near = sums.iter().zip(all(&|x| x)).all(|(got, want)| (got - want).abs() < 1e-5);
        assert!(near, "a sum of any numbers");
        if groups.is_empty() {
            assert_eq!(first.get_or_insert_with(|| sums.clone()), &sums, "the same bits twice");
        }
    }

    // Rounded ones have the bits that the wire promises, in whatever groups they leave.
    let promised = all(&round);
    for groups in [vec![], vec![5..7, 1..3], vec![0..1, 6..7]] {
        let mut sums = set(device, |tensor| values(rank, tensor));
        for which in &groups {
            carrier.begin_sum(&mut sums, which.clone(), Wire::Bf16).unwrap();
        }
        carrier.sum(&mut sums, Wire::Bf16).unwrap();
        assert!(elements(&sums) == promised, "rounded sums in {groups:?}");
    }

    let lengths: Vec<usize> = (0..ranks).map(|rank| 3 * rank).collect();
    let gathered = carrier.gather(&vec![rank as f64 + 0.25; 3 * rank], &lengths).unwrap();
    assert_eq!(gathered, (0..ranks).flat_map(|rank| vec![rank as f64 + 0.25; 3 * rank]).collect::<Vec<_>>());
    assert!(carrier.gather(&[], &vec![0; ranks]).unwrap().is_empty());

    let whole = set(device, |tensor| values(0, tensor));
    let shares = Share { number: rank, of: ranks }.copy_of(&whole);
    let mut everywhere = whole.zeros_like();
    carrier.put_together(&shares, Recipient::Everyone(&mut everywhere)).unwrap();
    assert!(elements(&everywhere) == elements(&whole), "shares put together everywhere");
    let mut in_first = whole.zeros_like();
    let to = if rank == 0 { Recipient::First(&mut in_first) } else { Recipient::Another };
    carrier.put_together(&shares, to).unwrap();
    assert_eq!(elements(&in_first) == elements(&whole), rank == 0, "shares put together in the first process");

    let sums = first.unwrap();
    let digest = sums.iter().fold(0_u64, |sum, x| sum.rotate_left(5).wrapping_mul(31) ^ x.to_bits());
    device.finish().unwrap();
    vec![format!("{digest:016x}")]
}

/// One process never comes to a sum that the others wait for: they are let go from another thread.
fn given_up(device: &Device, (rank, ranks): (usize, usize), id: [u8; ID_BYTES]) -> Vec<String> {
    let mut carrier = NcclCarrier::start(device, rank, ranks, &id, Some(LIMIT), &|| false).unwrap();
    let give_up = carrier.give_up();
    let mut sums = set(device, |tensor| values(rank, tensor));
    let waiting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        give_up();
    });
    if rank > 0 {
        carrier.sum(&mut sums, Wire::Exact).unwrap();
        // Without an end from outside this would wait for ever.
        device.finish().unwrap();
    }
    waiting.join().unwrap();
    let later = carrier.sum(&mut sums, Wire::Exact).unwrap_err();
    assert!(later.to_string().contains("given up"), "{later}");
    vec!["let go".to_owned()]
}

/// What one of our processes does.
#[test]
#[ignore = "started by the tests below"]
fn one_of_several() {
    let variable = |i: usize| std::env::var(VARIABLES[i]).unwrap();
    let (rank, ranks): (usize, usize) = (variable(0).parse().unwrap(), variable(1).parse().unwrap());
    let Some(device) = gpu(CudaPrecision::F32) else { return };
    let id = (ranks > 1).then(|| meet(&PathBuf::from(variable(3)), rank));
    let found = match (variable(2).as_str(), id) {
        ("operations", Some(id)) => operations(&device, (rank, ranks), id),
        ("given up", Some(id)) => given_up(&device, (rank, ranks), id),
        (work, id) => training(&device, (rank, ranks), work, id),
    };
    found.iter().for_each(|line| println!("found {line}"));
}

/// Starts processes for some work; what each of them found.
fn together(ranks: usize, work: &str) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let start = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_of_several", "--ignored", "--nocapture"])
            .env(VARIABLES[0], rank.to_string())
            .env(VARIABLES[1], ranks.to_string())
            .env(VARIABLES[2], work)
            .env(VARIABLES[3], folder.path().join("id"))
            // Of different machines, as far as NCCL knows: it wants one process for each GPU of a machine.
            .env("NCCL_HOSTID", format!("process-{rank}"))
            .env("NCCL_SOCKET_IFNAME", "lo")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = (0..ranks).map(start).collect();
    let readers: Vec<_> =
        running.into_iter().map(|p| std::thread::spawn(move || p.wait_with_output().unwrap())).collect();
    let outputs: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    let read = |(rank, output): (usize, &std::process::Output)| {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{work}, process {rank} of {ranks}:\n{said}\n{failed}");
        said.lines().filter_map(|line| Some(line.split_once("found ")?.1.to_owned())).collect()
    };
    outputs.iter().enumerate().map(read).collect()
}

/// Whether there are a GPU and NCCL.
fn can_run() -> bool {
    if gpu(CudaPrecision::F32).is_none() {
        return false;
    }
    match nccl_library() {
        Ok(found) => println!("NCCL {} in {}", found.version, found.place),
        Err(error) => eprintln!("skipped: {error}"),
    }
    nccl_library().is_ok()
}

#[test]
fn gpu_sums_gathers_and_shares_are_what_they_promise() {
    if can_run() {
        for ranks in [2, 4] {
            let found = together(ranks, "operations");
            assert!(found.iter().all(|of_one| of_one.len() == 1 && *of_one == found[0]), "all have the same bits");
        }
    }
}

#[test]
fn gpu_processes_that_wait_in_vain_are_let_go() {
    if can_run() {
        assert_eq!(together(2, "given up"), [["let go"], ["let go"]]);
    }
}

#[test]
fn gpu_processes_follow_the_training_of_one() {
    if !can_run() {
        return;
    }
    let losses = |found: &[String]| -> Vec<f64> {
        found[..STEPS].iter().map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).unwrap())).collect()
    };
    for name in METHODS {
        let alone = together(1, &format!("{name}, exact, late, whole")).swap_remove(0);
        for ranks in [2, 4] {
            for wire in ["exact", "rounded"] {
                let early = together(ranks, &format!("{name}, {wire}, early, whole"));
                assert!(early.iter().all(|found| *found == early[0]), "{name}: all have the same bits");
                let again = together(ranks, &format!("{name}, {wire}, early, whole"));
                assert_eq!(early, again, "{name}: the same bits twice");
                let shared = together(ranks, &format!("{name}, {wire}, early, shared"));
                assert_eq!(early, shared, "{name}: the same bits where each keeps a share of the moments");
                let off = |(a, b): (f64, f64)| ((a - b) / b).abs();
                let worst = losses(&early[0]).into_iter().zip(losses(&alone)).map(off).fold(0.0, f64::max);
                println!("{name}, {ranks} processes, {wire}: losses off by at most {worst:.1e}");
                assert!(
                    worst < if wire == "exact" { 1e-6 } else { 1e-3 },
                    "{name}, {ranks} processes, {wire}: {worst:e}"
                );
                if wire == "rounded" {
                    // Elements are added up one by one, whatever they leave with.
                    let late = together(ranks, &format!("{name}, rounded, late, whole"));
                    assert_eq!(early, late, "{name}: early or late");
                }
            }
        }
    }
}
