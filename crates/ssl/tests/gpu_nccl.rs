//! Several processes whose GPUs are connected by NCCL: sums, gathers and shares, and trainings that follow that of one process.
//! They share one GPU, which NCCL allows where each has a name of its own for its machine. Runs where `DINO_VMF_TEST_GPU` is set
//! (`tools/gpu-test`) and NCCL is found, and is skipped elsewhere.

mod common;
mod gpu_device;
mod gpu_training;

#[path = "gpu_nccl/children.rs"]
mod children;
#[path = "gpu_nccl/company.rs"]
mod company;
#[path = "gpu_nccl/costs.rs"]
mod costs;
#[path = "gpu_nccl/operations.rs"]
mod operations;
#[path = "gpu_nccl/training.rs"]
mod training;

use children::{Task, together};
use company::Company;
use costs::{Cost, When};
use gpu_device::gpu;
use model::Arch;
use operations::LET_GO;
use tensor::{CudaPrecision, nccl_library};
use training::{FEW, METHODS, STEPS, Training, first_of, worst_difference};

/// What a process does besides trainings.
const OPERATIONS: &str = "operations";
const GIVEN_UP: &str = "given up";
const COST: &str = "cost of ";

/// What one of our processes does.
#[test]
#[ignore = "started by the tests below"]
fn one_of_several() {
    let Task { rank, ranks, works, meeting } = Task::here();
    let place = (rank, ranks);
    let is_cost = works.iter().any(|work| work.starts_with(COST));
    let Some(device) = gpu(if is_cost { CudaPrecision::Bf16 } else { CudaPrecision::F32 }) else { return };
    match &works[..] {
        [work] if work == OPERATIONS => Task::tell(&operations::operations(&device, place, &meeting)),
        [work] if work == GIVEN_UP => Task::tell(&operations::given_up(&device, place, &meeting)),
        works => {
            // One process that trains alone has no part in NCCL at all.
            let company = (ranks > 1 || is_cost).then(|| Company::meet(&device, place, &meeting));
            for work in works {
                let found = match (work.strip_prefix(COST), &company) {
                    (Some(cost), Some(company)) => Cost::of_words(cost).measure(&device, company),
                    _ => Training::of_words(work).run(&device, place, company.as_ref()),
                };
                Task::tell(&found);
            }
        }
    }
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

/// What the processes have found in one work.
fn in_one_work(ranks: usize, work: &str) -> Vec<Vec<String>> {
    together(ranks, &[work.to_owned()]).swap_remove(0)
}

#[test]
fn gpu_sums_gathers_and_shares_are_what_they_promise() {
    if can_run() {
        for ranks in [2, 4] {
            let found = in_one_work(ranks, OPERATIONS);
            assert!(found.iter().all(|of_one| of_one.len() == 1 && *of_one == found[0]), "all have the same bits");
        }
    }
}

#[test]
fn gpu_processes_that_wait_in_vain_are_let_go() {
    if can_run() {
        assert_eq!(in_one_work(2, GIVEN_UP), [[LET_GO], [LET_GO]]);
    }
}

#[test]
fn gpu_two_processes_follow_the_training_of_one() {
    follow(2);
}

#[test]
fn gpu_four_processes_follow_the_training_of_one() {
    follow(4);
}

/// Every method in so many processes beside one process alone. All that is wrong is told together: a start takes long.
fn follow(ranks: usize) {
    if !can_run() {
        return;
    }
    let exact = |method| Training { method, rounded: false, early: true, shared: false, steps: STEPS };
    let of_method = |method| {
        let few = Training { steps: FEW, ..exact(method) };
        let rounded = Training { rounded: true, ..few };
        let with_shares = [Training { shared: true, ..few }, Training { shared: true, ..rounded }];
        [exact(method), few, with_shares[0], rounded, rounded, with_shares[1], Training { early: false, ..rounded }]
    };
    let trainings: Vec<Training<'_>> = METHODS.into_iter().flat_map(of_method).collect();
    let works: Vec<String> = trainings.iter().map(Training::in_words).collect();
    let found = together(ranks, &works);
    let alone: Vec<String> =
        METHODS.map(|method| Training { early: false, ..exact(method) }.in_words()).into_iter().collect();
    let alone = together(1, &alone);
    let mut wrong = Vec::new();
    for ((method, found), alone) in METHODS.into_iter().zip(found.chunks(7)).zip(&alone) {
        let mut check = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{method}: {what}"));
            }
        };
        for (training, of_ranks) in found.iter().enumerate() {
            let same = of_ranks.iter().all(|of_one| *of_one == of_ranks[0]);
            check(same, &format!("all processes have the same bits in training {training}"));
        }
        let of_first = |training: usize| first_of(&found[training][0]);
        check(of_first(0) == of_first(1), "exact sums have the same bits twice");
        check(of_first(0) == of_first(2), "the same bits where each keeps a share of the moments");
        check(of_first(3) == of_first(4), "rounded sums have the same bits twice");
        check(of_first(3) == of_first(5), "the same bits of rounded sums where each keeps a share of the moments");
        // Elements are added up one by one, whatever they leave with.
        check(of_first(3) == of_first(6), "the same bits of rounded sums early and late");
        check(of_first(0) != of_first(3), "rounding changes something");
        let (worst, of_rounded) =
            (worst_difference(&found[0][0], &alone[0]), worst_difference(&found[3][0], &alone[0]));
        println!("{method}, {ranks} processes: losses off by {worst:.1e}; with rounded gradients by {of_rounded:.1e}");
        check(worst < 1e-6, &format!("the losses of one process over {STEPS} steps, and not {worst:e} beside them"));
        check(of_rounded < 1e-3, &format!("about its losses with rounded gradients, and not {of_rounded:e} beside"));
    }
    assert!(wrong.is_empty(), "{ranks} processes do not follow one:\n{}", wrong.join("\n"));
}

/// What sums cost a step of a real network, in one process alone and in two that share the GPU. The latter say what does not
/// hide behind the backward pass where nothing is fast: the GPU is shared, and so is the memory through which everything travels.
/// They measure no link.
#[test]
#[ignore = "a measurement of a minute: by its name"]
fn gpu_what_sums_cost_a_step() {
    if !can_run() {
        return;
    }
    for ranks in [1, 2] {
        let whens = [When::Never, When::AtTheEnd, When::Early];
        let costs: Vec<Cost> =
            [Arch::Small, Arch::Base].into_iter().flat_map(|arch| whens.map(|when| Cost { arch, when })).collect();
        let works: Vec<String> = costs.iter().map(|cost| format!("{COST}{}", cost.in_words())).collect();
        for (cost, of_ranks) in costs.iter().zip(together(ranks, &works)) {
            let numbers: Vec<f64> = of_ranks[0].iter().map(|word| word.parse().unwrap()).collect();
            let &[loss, step, sums, others, times] = &numbers[..] else { panic!("{numbers:?}") };
            println!(
                "{ranks} processes, {}, sums {:?}: {step:.1} ms a step; in another one, profiled, {sums:.2} ms of waiting for sums \
                 and {others:.2} ms for the numbers of the method",
                cost.arch, cost.when
            );
            assert!(loss.is_finite(), "{}: a loss of {loss}", cost.in_words());
            assert_eq!(times, if cost.when == When::Never { 0.0 } else { 1.0 }, "waits of a step");
        }
    }
}
