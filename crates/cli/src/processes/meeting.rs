//! Where processes on GPUs meet, from what their launcher says: a host, the ports to try, and what tells the run from others.
//!
//! A port that somebody has given is never the desk's own: torchrun holds `MASTER_PORT`, and NCCL opens that of `NCCL_COMM_ID`. The
//! desk is a thousand above it. All processes derive the same ports, and process 0 takes the first that is free; whoever finds
//! another run there tries the next.

use train::reduce::desk::Place;

use super::error::GpusError;
use super::launcher::{Launched, Launcher};

/// The distance between a port that was given and those of the desk.
const ABOVE: u16 = 1000;
/// How many ports are tried.
const PORTS: u16 = 4;
/// Below the ports that systems give to connections, above those of services.
const FIRST_PORT: u16 = 10_000;
const OF_SO_MANY: u64 = 5_000;

/// Where the processes meet that were started so.
pub fn place(launched: &Launched) -> Result<Place, GpusError> {
    let named = launched.meeting.as_ref();
    let ports = match (launched.by, named.and_then(|meeting| meeting.port)) {
        (Launcher::Own, Some(port)) => vec![port],
        (_, Some(port)) => beside(port),
        (Launcher::Slurm | Launcher::OpenMpi | Launcher::Mpich, None) if launched.has_name() => of_run(launched.run),
        _ => return Err(no_place(launched)),
    };
    let host = match (launched.on_one_machine, named) {
        (true, _) => None,
        (false, Some(meeting)) => Some(meeting.host.clone()),
        (false, None) => return Err(no_place(launched)),
    };
    Ok(Place { host, ports })
}

fn no_place(launched: &Launched) -> GpusError {
    let doubt = launched.doubts.first().map_or(String::new(), |doubt| format!(" ({doubt})"));
    GpusError::NoMeetingPoint { launched: Box::new(launched.clone()), doubt }
}

/// The ports beside one that was given.
fn beside(port: u16) -> Vec<u16> {
    let first = match port.checked_add(ABOVE + PORTS) {
        Some(_) => port + ABOVE,
        None => port - ABOVE,
    };
    (first..first + PORTS).collect()
}

/// Ports that follow from what a launcher calls a run.
fn of_run(run: u64) -> Vec<u16> {
    let first = FIRST_PORT + (mixed(run) % OF_SO_MANY) as u16 * PORTS;
    (first..first + PORTS).collect()
}

/// What a process of this run says at the desk, and one of another run does not.
pub fn token(launched: &Launched) -> String {
    // Variables may be secrets, which do not travel themselves.
    format!("{:016x}", mixed(launched.run))
}

/// The same digits, spread: those of jobs 77 and 78 are close to each other.
fn mixed(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests {
    use super::super::launcher::launched_in;
    use super::*;

    fn launched(variables: &[(&str, &str)]) -> Launched {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        launched_in(variable).unwrap().unwrap()
    }

    fn place_of(variables: &[(&str, &str)]) -> String {
        place(&launched(variables)).map_or_else(|error| error.to_string(), |place| place.to_string())
    }

    const TORCHRUN: [(&str, &str); 5] = [
        ("TORCHELASTIC_RUN_ID", "a"),
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("MASTER_ADDR", "gpu03"),
        ("MASTER_PORT", "29500"),
    ];
    const SLURM: [(&str, &str); 5] = [
        ("SLURM_PROCID", "1"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_JOB_NODELIST", "gpu[03-04]"),
    ];

    #[test]
    fn the_desk_is_beside_a_port_that_was_given() {
        assert_eq!(place_of(&TORCHRUN), "gpu03:30500 to 30503");
        let here = [&TORCHRUN[..], &[("LOCAL_WORLD_SIZE", "4")]].concat();
        assert_eq!(place_of(&here), "127.0.0.1:30500 to 30503", "nobody else can connect");
        let high = [&[("MASTER_PORT", "65535")], &TORCHRUN[..]].concat();
        assert_eq!(place_of(&high), "gpu03:64535 to 64538");
        let nccl = [&[("NCCL_COMM_ID", "10.0.0.1:7777")], &SLURM[..]].concat();
        assert_eq!(place_of(&nccl), "10.0.0.1:8777 to 8780");
        for port in 1..=u16::MAX {
            let ports = beside(port);
            assert!(ports.len() == 4 && !ports.contains(&port) && !ports.contains(&0), "{port}: {ports:?}");
        }
    }

    #[test]
    fn slurms_ports_follow_from_the_job() {
        let of = |job: &'static str, step: &'static str| {
            let changed = [("SLURM_JOB_ID", job), ("SLURM_STEP_ID", step)];
            place(&launched(&[&changed, &SLURM[..]].concat())).unwrap()
        };
        let place = of("77", "0");
        assert_eq!((place.host.as_deref(), &place), (Some("gpu03"), &of("77", "0")));
        assert!(place.ports.iter().all(|port| (10_000..30_000).contains(port)), "{place}");
        let others = [of("78", "0"), of("76", "0"), of("77", "1")];
        assert!(others.iter().all(|other| other.ports.iter().all(|port| !place.ports.contains(port))), "{others:?}");
        let alone = [&SLURM[..], &[("SLURM_STEP_NUM_NODES", "1")]].concat();
        assert!(place_of(&alone).starts_with("127.0.0.1:"));
    }

    #[test]
    fn mpiruns_processes_meet_on_their_machine_or_where_somebody_says() {
        let of_mpi = [
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-host-12@1"),
        ];
        assert!(place_of(&of_mpi).starts_with("127.0.0.1:"));
        let elsewhere = [&[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")], &of_mpi[..]].concat();
        let error = place_of(&elsewhere);
        assert!(error.contains("process 2 of 4, started by Open MPI") && error.contains("NCCL_COMM_ID=host:port"));
        let told = [&elsewhere[..], &[("MASTER_ADDR", "gpu03"), ("MASTER_PORT", "29500")]].concat();
        assert_eq!(place_of(&told), "gpu03:30500 to 30503");
    }

    #[test]
    fn runs_that_nothing_tells_apart_do_not_guess_a_port() {
        let of_mpich = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        assert!(place_of(&of_mpich).contains("nothing says where the processes meet"));
        for name in [("PMI_JOBID", "7"), ("DINO_VMF_TOKEN", "mine")] {
            assert!(place_of(&[&of_mpich[..], &[name]].concat()).starts_with("127.0.0.1:"), "{name:?}");
        }
    }

    #[test]
    fn without_a_meeting_point_the_reason_is_told() {
        let error = place_of(&[&[("MASTER_PORT", "x")], &TORCHRUN[..]].concat());
        assert!(error.contains("MASTER_PORT is \"x\", which is no port"), "{error}");
    }

    #[test]
    fn tokens_tell_runs_apart() {
        let of = |changed: &[(&'static str, &'static str)]| token(&launched(&[changed, &TORCHRUN[..]].concat()));
        assert_eq!(of(&[]), of(&[("RANK", "3"), ("LOCAL_RANK", "1")]), "the same in all processes");
        assert_eq!(of(&[("TORCHELASTIC_RESTART_COUNT", "1")]), of(&[]), "agents do not count alike");
        for changed in [("TORCHELASTIC_RUN_ID", "b"), ("DINO_VMF_TOKEN", "secret")] {
            assert_ne!(of(&[changed]), of(&[]), "{changed:?}");
        }
    }
}
