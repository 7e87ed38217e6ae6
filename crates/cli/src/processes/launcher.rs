//! Who has started this process as one of several, and as which, from what that has left in the environment.

use std::fmt;

/// What starts several processes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpirun` of MPICH and those that descend from it.
    Mpich,
    /// `srun`.
    Slurm,
    /// `torchrun`.
    Torchrun,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Slurm => "Slurm",
            Self::Torchrun => "torchrun",
        })
    }
}

/// One of several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// By whom.
    pub by: Launcher,
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}, started by {}", self.rank, self.ranks, self.by)
    }
}

/// How this process was started, if as one of several; none where it is alone, or the environment makes no sense.
pub fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let of = |by, rank: &str, ranks: &str| {
        let (rank, ranks) = (number(rank)?, number(ranks)?);
        (ranks > 1 && rank < ranks).then_some(Launched { by, rank, ranks })
    };
    // The innermost first: `srun mpirun ...` and `mpirun torchrun ...` leave the variables of both. Slurm sets its own for a
    // batch script too, which is no process of a step yet.
    of(Launcher::Torchrun, "RANK", "WORLD_SIZE")
        .filter(|_| variable("MASTER_ADDR").is_some())
        .or_else(|| of(Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
        .or_else(|| of(Launcher::Mpich, "PMI_RANK", "PMI_SIZE"))
        .or_else(|| of(Launcher::Slurm, "SLURM_PROCID", "SLURM_NTASKS").filter(|_| variable("SLURM_STEP_ID").is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        launched(variable).map(|launched| launched.to_string())
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let torchrun = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "localhost")];
        assert_eq!(of(&torchrun).unwrap(), "process 1 of 4, started by torchrun");
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(of(&open_mpi).unwrap(), "process 0 of 2, started by Open MPI");
        assert_eq!(of(&[("PMI_RANK", "2"), ("PMI_SIZE", "3")]).unwrap(), "process 2 of 3, started by MPICH");
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "8"), ("SLURM_STEP_ID", "0")];
        assert_eq!(of(&slurm).unwrap(), "process 5 of 8, started by Slurm");
    }

    #[test]
    fn a_process_alone_a_batch_script_and_nonsense_are_none_of_several() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None, "a batch script");
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]), None);
        assert_eq!(of(&[("PMI_RANK", "3"), ("PMI_SIZE", "3")]), None);
        assert_eq!(of(&[("RANK", "1"), ("WORLD_SIZE", "2")]), None, "anybody's variables");
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "x"), ("OMPI_COMM_WORLD_SIZE", "2")]), None);
    }

    #[test]
    fn within_a_job_the_innermost_launcher_counts() {
        let mpirun_in_slurm = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_STEP_ID", "0"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ];
        assert_eq!(of(&mpirun_in_slurm).unwrap(), "process 3 of 4, started by Open MPI");
    }
}
