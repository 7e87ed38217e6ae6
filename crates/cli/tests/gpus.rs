//! `--gpus` and launchers where there is no GPU: what is refused, with which words, and what `doctor` sees.

mod common;

use common::{Finished, program, run};

/// What torchrun sets in the second of two processes on one machine.
const TORCHRUN: [(&str, &str); 8] = [
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
    ("RANK", "1"),
    ("WORLD_SIZE", "2"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "localhost"),
    ("MASTER_PORT", "29500"),
];
/// What srun sets in the first of sixteen on two machines.
const SLURM: [(&str, &str); 8] = [
    ("SLURM_PROCID", "0"),
    ("SLURM_NTASKS", "16"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_NUM_NODES", "2"),
    ("SLURM_JOB_NODELIST", "gpu[03-04,9]"),
    ("SLURM_RESTART_COUNT", "1"),
];

fn started_as(variables: &[(&str, &str)], args: &[&str]) -> Finished {
    Finished::of(program().envs(variables.iter().copied()).args(args).output().expect("the program starts"))
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_started() {
    for (args, expected) in [
        (&["--gpus", "2", "--device", "cpu"][..], "--gpus 2 and --device cpu contradict each other"),
        (&["--gpus", "2", "--device", "cuda:1"], "--gpus 2 and --device cuda:1 contradict each other"),
        (&["--gpus", "2", "--minutes", "5"], "--minutes is for a run of one process: give --epochs"),
        (&["--gpus", "2"], "--gpus 2: no GPU can be used: "),
        (&["--gpus", "1"], "--gpus 1: no GPU can be used: "),
    ] {
        let error = run(&[&["pretrain"], args].concat()).failed();
        assert!(error.starts_with(&format!("error: {expected}")), "{error}");
    }
    for wrong in ["0", "-1", "1025", "many", "1.5"] {
        let refused = run(&["pretrain", "--gpus", wrong]);
        assert_eq!(refused.code, Some(2));
        assert!(refused.err.contains("it must be a number from 1 to 1024"), "{}", refused.err);
    }
}

#[test]
fn under_a_launcher_gpus_are_not_asked_for_again() {
    let error = started_as(&TORCHRUN, &["pretrain", "--gpus", "2"]).failed();
    let expected = "error: this is process 1 of 2, started by torchrun: --gpus starts processes itself";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn processes_without_gpus_and_without_mpi_are_refused_with_a_word() {
    for args in [&["pretrain"][..], &["pretrain", "--device", "cpu"]] {
        let error = started_as(&TORCHRUN, args).failed();
        assert!(error.contains("this is process 1 of 2, started by torchrun"), "{error}");
        assert!(error.contains("processes on CPUs talk through MPI"), "{error}");
    }
    for device in ["cuda", "cuda:0"] {
        let error = started_as(&TORCHRUN, &["pretrain", "--device", device, "--process-timeout", "5"]).failed();
        // The second process looks for the first, which nobody has started, or is told at once that there is no GPU.
        assert!(error.contains("no GPU can be used") || error.contains("process 0 was not found"), "{error}");
    }
}

#[test]
fn the_doctor_says_where_processes_meet() {
    let seen = started_as(&TORCHRUN, &["doctor", "--device", "cpu"]).succeeded().out;
    let expected = "process 1 of 2, started by torchrun, number 1 of its machine, meeting at localhost:29500";
    assert!(seen.contains(expected), "{seen}");
    assert!(seen.contains("at 127.0.0.1:30500 to 30503, where processes on GPUs look for process 0"), "{seen}");
    let seen = started_as(&SLURM, &["doctor", "--device", "cpu"]).succeeded().out;
    assert!(seen.contains("process 0 of 16, started by Slurm, number 0 of its machine, meeting at gpu03"), "{seen}");
    assert!(seen.contains("at gpu03:"), "{seen}");
}
