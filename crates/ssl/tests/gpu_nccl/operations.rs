//! Everything that a carrier does, once, held against what it promises; and a process that does not come for it.

use std::path::Path;
use std::time::Duration;

use half::bf16;
use random::{Key, Purpose};
use tensor::{Device, ParamSet, Tensor};
use train::reduce::nccl::NcclCarrier;
use train::reduce::{Carrier, Recipient, Share, Sums, Wire};

use super::company::{LIMIT, Meeting};

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
pub fn operations(device: &Device, (rank, ranks): (usize, usize), meeting: &Path) -> Vec<String> {
    let id = Meeting::at(meeting, rank).id;
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
    let whole = |rank: usize, tensor: usize, i: usize| ((i * 7 + rank * 13 + tensor) % 1000) as f64;
    let mut exact = set(device, |tensor| (0..LENGTHS[tensor]).map(|i| whole(rank, tensor, i)).collect());
    carrier.sum(&mut exact, Wire::Exact).unwrap();
    let sum = |tensor: usize, i: usize| (0..ranks).map(|rank| whole(rank, tensor, i)).sum::<f64>();
    let expected: Vec<f64> = tensors.clone().flat_map(|t| (0..LENGTHS[t]).map(move |i| sum(t, i))).collect();
    assert!(elements(&exact) == expected, "a sum of whole numbers");

    // Any numbers: near in whatever groups they leave, and the same bits each time in one.
    let (mut first, expected): (Option<Vec<f64>>, _) = (None, all(&|x| x));
    for groups in [vec![], vec![], vec![5..7, 1..3]] {
        let mut sums = set(device, |tensor| values(rank, tensor));
        for which in &groups {
            carrier.begin_sum(&mut sums, which.clone(), Wire::Exact).unwrap();
        }
        carrier.sum(&mut sums, Wire::Exact).unwrap();
        let sums = elements(&sums);
        let near = sums.iter().zip(&expected).all(|(got, want)| (got - want).abs() < 1e-5);
        assert!(near, "a sum of any numbers");
        if groups.is_empty() {
            assert!(*first.get_or_insert_with(|| sums.clone()) == sums, "the same bits twice");
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

/// What is found where nobody waits any more.
pub const LET_GO: &str = "let-go";

/// One process never comes to a sum that the others wait for: they are let go from another thread.
pub fn given_up(device: &Device, (rank, ranks): (usize, usize), meeting: &Path) -> Vec<String> {
    let id = Meeting::at(meeting, rank).id;
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
    vec![LET_GO.to_owned()]
}
