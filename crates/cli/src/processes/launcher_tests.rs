//! The variables of every launcher as they are, and as they should not be.

use super::launcher::{Launched, launched_in, lonely_in};

/// What torchrun sets in the second of four processes.
const TORCHRUN: [(&str, &str); 8] = [
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
    ("RANK", "1"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "localhost"),
    ("MASTER_PORT", "29500"),
];
/// What srun sets in the sixth of eight.
const SLURM: [(&str, &str); 6] = [
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_JOB_NODELIST", "gpu[03-04,9],big-[1-2]x"),
];
/// What mpirun of Open MPI sets in the third of four.
const OPEN_MPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "2"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
];

/// What is found where some variables are set otherwise; an empty one is none.
fn with(variables: &[(&str, &str)], changed: &[(&str, &str)]) -> Result<Option<Launched>, String> {
    let all: Vec<_> = changed.iter().chain(variables).collect();
    let variable = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    launched_in(variable).map_err(|error| error.to_string())
}

fn detail(variables: &[(&str, &str)], changed: &[(&str, &str)]) -> String {
    with(variables, changed).unwrap().unwrap().in_detail()
}

/// What is only shown, and cannot be.
fn doubts(variables: &[(&str, &str)], changed: &[(&str, &str)]) -> Vec<String> {
    with(variables, changed).unwrap().unwrap().doubts.iter().map(ToString::to_string).collect()
}

#[test]
fn each_launcher_is_known_by_its_variables() {
    let torchrun = "process 1 of 4, started by torchrun, number 1 of its machine, meeting at localhost:29500";
    assert_eq!(detail(&TORCHRUN, &[]), torchrun);
    let again = detail(&TORCHRUN, &[("TORCHELASTIC_RESTART_COUNT", "2")]);
    assert_eq!(again, format!("{torchrun}, started again 2 times"));
    assert_eq!(detail(&OPEN_MPI, &[]), "process 2 of 4, started by Open MPI, number 0 of its machine");
    assert_eq!(detail(&[("PMI_RANK", "2"), ("PMI_SIZE", "3")], &[]), "process 2 of 3, started by MPICH");
    let slurm = detail(&SLURM, &[]);
    assert_eq!(slurm, "process 5 of 8, started by Slurm, number 1 of its machine, meeting at gpu03");
}

#[test]
fn processes_of_this_program_know_their_port_whatever_is_around_them() {
    let own = [("DINO_VMF_RANK", "1"), ("DINO_VMF_RANKS", "2"), ("DINO_VMF_PORT", "4711"), ("DINO_VMF_TOKEN", "x")];
    let expected = "process 1 of 2, started by --gpus, number 1 of its machine, meeting at 127.0.0.1:4711";
    assert_eq!(detail(&own, &[]), expected);
    let all: Vec<_> = own.into_iter().chain(SLURM).collect();
    assert_eq!(detail(&all, &[]), expected, "within a job");
    assert_eq!(
        with(&own, &[("DINO_VMF_RANKS", "")]).unwrap_err().split(',').next(),
        Some("--gpus has started this process")
    );
    assert_eq!(doubts(&own, &[("DINO_VMF_PORT", "0")]), ["DINO_VMF_PORT is \"0\", which is no port"]);
}

#[test]
fn whether_other_machines_take_part_is_what_the_launcher_says() {
    let is_one = |variables: &[(&str, &str)], changed: &[(&str, &str)]| {
        with(variables, changed).unwrap().unwrap().on_one_machine
    };
    assert!(!is_one(&TORCHRUN, &[]));
    assert!(is_one(&TORCHRUN, &[("LOCAL_WORLD_SIZE", "4")]));
    assert!(!is_one(&SLURM, &[]), "nothing is said");
    assert!(is_one(&SLURM, &[("SLURM_JOB_NUM_NODES", "1")]));
    assert!(!is_one(&SLURM, &[("SLURM_JOB_NUM_NODES", "1"), ("SLURM_STEP_NUM_NODES", "2")]), "the step's");
    assert!(!is_one(&OPEN_MPI, &[]));
    assert!(is_one(&OPEN_MPI, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "4")]));
    let by_hand = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "7"), ("MASTER_ADDR", "localhost")];
    assert!(is_one(&by_hand, &[]) && !is_one(&by_hand, &[("MASTER_ADDR", "gpu03")]));
}

#[test]
fn slurms_step_goes_before_its_job() {
    let changed = [("SLURM_STEP_NUM_TASKS", "6"), ("SLURM_STEP_NODELIST", "big-[2]x"), ("SLURM_RESTART_COUNT", "1")];
    let expected = "process 5 of 6, started by Slurm, number 1 of its machine, meeting at big-2x, started again 1 time";
    assert_eq!(detail(&SLURM, &changed), expected);
}

#[test]
fn what_nccl_was_told_is_where_they_meet() {
    let by_hand = [("RANK", "0"), ("WORLD_SIZE", "2"), ("NCCL_COMM_ID", "10.0.0.1:7777")];
    let expected = "process 0 of 2, started by hand (RANK and WORLD_SIZE), meeting at 10.0.0.1:7777";
    assert_eq!(detail(&by_hand, &[]), expected);
    assert!(detail(&TORCHRUN, &[("NCCL_COMM_ID", "[fe80::1]:80")]).contains("meeting at [fe80::1]:80"));
    for wrong in ["host", "host:", ":80", "host:0", "host:65536", "a b:1", "fe80::1:80", "[fe80:]:80", "[]:80"] {
        let doubts = doubts(&SLURM, &[("NCCL_COMM_ID", wrong)]);
        assert_eq!(doubts, [format!("NCCL_COMM_ID is {wrong:?}, which is no host:port")]);
    }
}

#[test]
fn a_process_alone_a_batch_script_and_a_shell_are_none_of_several() {
    assert_eq!(with(&[], &[]), Ok(None));
    assert_eq!(with(&SLURM, &[("SLURM_STEP_ID", "")]), Ok(None), "a batch script");
    assert_eq!(with(&SLURM, &[("SLURM_STEP_ID", "4294967290")]), Ok(None), "an interactive shell");
    assert_eq!(with(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")], &[]), Ok(None));
    assert_eq!(with(&[("RANK", "1"), ("WORLD_SIZE", "2")], &[]), Ok(None), "anybody's variables");
    assert_eq!(with(&[("NCCL_COMM_ID", "nonsense")], &[]), Ok(None), "nobody to meet");
    let half = [("WORLD_SIZE", "1"), ("MASTER_ADDR", "x"), ("MASTER_PORT", "1")];
    assert_eq!(with(&half, &[]), Ok(None), "one of one, whichever");
    let of_batch_script = [("WORLD_SIZE", "8"), ("MASTER_ADDR", "gpu03"), ("MASTER_PORT", "29500")];
    assert!(detail(&SLURM, &of_batch_script).starts_with("process 5 of 8, started by Slurm"));
    let alone = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "x"), ("LOCAL_RANK", "y")];
    assert_eq!(with(&alone, &[]), Ok(None), "no port, and nobody asks for one");
    let task =
        [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_JOB_NODELIST", "a["), ("SLURM_RESTART_COUNT", "x")];
    assert_eq!(with(&SLURM, &task), Ok(None), "one task");
}

#[test]
fn what_is_only_shown_is_no_reason_to_refuse() {
    type Set = &'static [(&'static str, &'static str)];
    let (torchrun, slurm): (Set, Set) = (&TORCHRUN, &SLURM);
    for (variables, changed, expected) in [
        (torchrun, ("MASTER_ADDR", ""), "torchrun has started this process, but MASTER_ADDR is not set"),
        (torchrun, ("MASTER_PORT", ""), "torchrun has started this process, but MASTER_PORT is not set"),
        (torchrun, ("MASTER_PORT", "65536"), "MASTER_PORT is \"65536\", which is no port"),
        (torchrun, ("TORCHELASTIC_RESTART_COUNT", "x"), "TORCHELASTIC_RESTART_COUNT is \"x\", which is no number"),
        (slurm, ("SLURM_RESTART_COUNT", "-"), "SLURM_RESTART_COUNT is \"-\", which is no number"),
        (
            slurm,
            ("SLURM_JOB_NODELIST", "a[1-"),
            "SLURM_JOB_NODELIST is \"a[1-\", which is no list of hosts: its brackets",
        ),
        (
            slurm,
            ("SLURM_STEP_NODELIST", ","),
            "SLURM_STEP_NODELIST is \",\", which is no list of hosts: it names no host",
        ),
    ] {
        let doubts = doubts(variables, &[changed]);
        assert!(doubts.len() == 1 && doubts[0].starts_with(expected), "{doubts:?}");
    }
    assert_eq!(doubts(&TORCHRUN, &[]), [""; 0]);
}

#[test]
fn within_a_job_the_innermost_launcher_counts() {
    let both: Vec<_> = SLURM.into_iter().chain(OPEN_MPI).collect();
    assert!(detail(&both, &[]).starts_with("process 2 of 4, started by Open MPI"));
    let all: Vec<_> = both.into_iter().chain(TORCHRUN).collect();
    assert!(detail(&all, &[]).starts_with("process 1 of 4, started by torchrun"));
    // A script around it may have exported what torchrun would set.
    let around = [("RANK", "0"), ("WORLD_SIZE", "9"), ("MASTER_ADDR", "x"), ("MASTER_PORT", "1")];
    assert!(detail(&OPEN_MPI, &around).starts_with("process 2 of 4, started by Open MPI"));
    assert_eq!(with(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")], &around), Ok(None), "mpirun -n 1");
    // Launchers number as they like.
    assert!(detail(&TORCHRUN, &[("RANK", "0")]).starts_with("process 0 of 4, started by torchrun, number 1"));
}

#[test]
fn what_cannot_be_is_an_error_that_names_the_variable() {
    type Set = &'static [(&'static str, &'static str)];
    let (torchrun, slurm, open_mpi): (Set, Set, Set) = (&TORCHRUN, &SLURM, &OPEN_MPI);
    let own: Set = &[("DINO_VMF_RANK", "1"), ("DINO_VMF_RANKS", "2")];
    let mpich: Set = &[("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    let by_hand: Set = &[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "gpu03"), ("MASTER_PORT", "29500")];
    for (variables, (name, value), expected) in [
        (torchrun, ("RANK", "4"), "RANK is 4, which must be less than WORLD_SIZE, and that is 4"),
        (torchrun, ("RANK", "-1"), "RANK is \"-1\", which is no number that a process could have"),
        (torchrun, ("WORLD_SIZE", "many"), "WORLD_SIZE is \"many\", which is no number that a process could have"),
        (torchrun, ("WORLD_SIZE", ""), "torchrun has started this process, but WORLD_SIZE is not set"),
        (torchrun, ("WORLD_SIZE", "0"), "RANK is 1, which must be less than WORLD_SIZE, and that is 0"),
        (
            torchrun,
            ("LOCAL_WORLD_SIZE", "1"),
            "LOCAL_RANK is 1, which must be less than LOCAL_WORLD_SIZE, and that is 1",
        ),
        (
            open_mpi,
            ("OMPI_COMM_WORLD_SIZE", ""),
            "Open MPI has started this process, but OMPI_COMM_WORLD_SIZE is not set",
        ),
        (open_mpi, ("OMPI_COMM_WORLD_RANK", "9"), "OMPI_COMM_WORLD_RANK is 9, which must be less than"),
        (slurm, ("SLURM_NTASKS", ""), "Slurm has started this process, but SLURM_NTASKS is not set"),
        (slurm, ("SLURM_NTASKS", "5"), "SLURM_PROCID is 5, which must be less than SLURM_NTASKS, and that is 5"),
        (slurm, ("SLURM_PROCID", ""), "Slurm has started this process, but SLURM_PROCID is not set"),
        (own, ("DINO_VMF_RANK", ""), "--gpus has started this process, but DINO_VMF_RANK is not set"),
        (mpich, ("PMI_SIZE", ""), "MPICH has started this process, but PMI_SIZE is not set"),
        (mpich, ("PMI_RANK", ""), "MPICH has started this process, but PMI_RANK is not set"),
        (by_hand, ("RANK", ""), "this process is to be one of several (RANK, WORLD_SIZE), but RANK is not set"),
        (
            by_hand,
            ("WORLD_SIZE", ""),
            "this process is to be one of several (RANK, WORLD_SIZE), but WORLD_SIZE is not set",
        ),
        (
            slurm,
            ("SLURM_LOCALID", "99999999999999999999"),
            "SLURM_LOCALID is \"99999999999999999999\", which is no number",
        ),
    ] {
        let error = with(variables, &[(name, value)]).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_process_alone_with_a_number_and_a_size_is_told_what_is_missing() {
    let said = |variables: &[(&str, &str)]| {
        lonely_in(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    };
    let numbered = [("RANK", "1"), ("WORLD_SIZE", "2")];
    assert!(
        said(&numbered).is_some_and(|words| words.starts_with("RANK is 1 and WORLD_SIZE 2, and neither MASTER_ADDR"))
    );
    assert_eq!(said(&[&numbered[..], &[("MASTER_ADDR", "gpu03")]].concat()), None, "it is one of two");
    let alone = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
    assert_eq!(said(&[&numbered[..], &alone].concat()), None, "mpirun -n 1 says what it is");
    assert_eq!(said(&[("RANK", "0"), ("WORLD_SIZE", "1")]), None);
}
