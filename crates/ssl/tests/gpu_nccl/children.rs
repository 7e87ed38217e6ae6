//! Processes that this test starts, each of which does a list of works one after the other: a start costs seconds.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Which process a child is, of how many, what it does, and where they meet.
const VARIABLES: [&str; 4] =
    ["DINO_VMF_TEST_RANK", "DINO_VMF_TEST_RANKS", "DINO_VMF_TEST_WORK", "DINO_VMF_TEST_MEETING"];
/// What stands between two works.
const THEN: &str = "; ";
/// What stands before what a work has found.
const FOUND: &str = "found ";
/// When nobody has said anything for so long, something hangs: longer than processes wait for each other.
const SILENT: Duration = Duration::from_secs(90);
/// How long a process may take to end that has nothing more to say.
const END: Duration = Duration::from_secs(20);

/// What a child was started for.
pub struct Task {
    pub rank: usize,
    pub ranks: usize,
    pub works: Vec<String>,
    pub meeting: PathBuf,
}

impl Task {
    /// That of this process.
    pub fn here() -> Self {
        let variable = |i: usize| std::env::var(VARIABLES[i]).unwrap();
        Self {
            rank: variable(0).parse().unwrap(),
            ranks: variable(1).parse().unwrap(),
            works: variable(2).split(THEN).map(str::to_owned).collect(),
            meeting: variable(3).into(),
        }
    }

    /// Tells what a work has found, in words without spaces.
    pub fn tell(found: &[String]) {
        // Behind the name of the test, the first one is not at the beginning of its line.
        println!("\n{FOUND}{}", found.join(" "));
    }
}

/// Whatever happens, nobody is left behind.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// What a child says, as it says it; nothing at its end.
type Said = (usize, Option<String>);

/// Starts so many processes for some works; of each work, what each process has found.
pub fn together(ranks: usize, works: &[String]) -> Vec<Vec<Vec<String>>> {
    let (folder, began) = (tempfile::tempdir().unwrap(), Instant::now());
    let start = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_of_several", "--ignored", "--nocapture"])
            .env(VARIABLES[0], rank.to_string())
            .env(VARIABLES[1], ranks.to_string())
            .env(VARIABLES[2], works.join(THEN))
            .env(VARIABLES[3], folder.path().join("meeting"))
            // Of different machines, as far as NCCL knows: it wants one process for each GPU of a machine.
            .env("NCCL_HOSTID", format!("process-{rank}"))
            .env("NCCL_SOCKET_IFNAME", "lo")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut children = Children((0..ranks).map(start).collect());
    let (say, heard) = channel::<Said>();
    let mut errors = Vec::new();
    for (rank, child) in children.0.iter_mut().enumerate() {
        let (output, mut error, say) = (child.stdout.take().unwrap(), child.stderr.take().unwrap(), say.clone());
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok).map(Some);
            lines.chain([None]).for_each(|line| _ = say.send((rank, line)));
        });
        errors.push(thread::spawn(move || {
            let mut said = Vec::new();
            _ = error.read_to_end(&mut said);
            String::from_utf8_lossy(&said).into_owned()
        }));
    }
    let mut said = vec![Vec::new(); ranks];
    let (mut talking, mut hangs) = (ranks, false);
    while talking > 0 {
        match heard.recv_timeout(SILENT) {
            Ok((_, None)) => talking -= 1,
            Ok((rank, Some(line))) => said[rank].push(line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                hangs = true;
                break;
            }
        }
    }
    let all_ended = |children: &mut Children| children.0.iter_mut().all(|child| child.try_wait().unwrap().is_some());
    let silent_since = Instant::now();
    while !hangs && !all_ended(&mut children) {
        hangs = silent_since.elapsed() > END;
        thread::sleep(Duration::from_millis(20));
    }
    let ended: Vec<_> = children.0.iter_mut().map(|child| child.try_wait().unwrap()).collect();
    drop(children);
    let errors: Vec<String> = errors.into_iter().map(|reader| reader.join().unwrap()).collect();
    if hangs || ended.iter().any(|status| !status.is_some_and(|status| status.success())) {
        let mut words = format!("{ranks} processes for {works:?}, {:.0} s", began.elapsed().as_secs_f64());
        for rank in 0..ranks {
            let how = ended[rank].map_or("hung and was killed".to_owned(), |status| status.to_string());
            words += &format!("\nprocess {rank}: {how}\n{}\n{}", said[rank].join("\n"), errors[rank]);
        }
        panic!("{words}");
    }
    println!("{ranks} processes, {} works: {:.1} s", works.len(), began.elapsed().as_secs_f64());
    let found = |said: &Vec<String>| -> Vec<Vec<String>> {
        let words = |line: &String| Some(line.strip_prefix(FOUND)?.split(' ').map(str::to_owned).collect());
        said.iter().filter_map(words).collect()
    };
    let of_ranks: Vec<_> = said.iter().map(found).collect();
    assert!(of_ranks.iter().all(|found| found.len() == works.len()), "{ranks} processes for {works:?}: {said:?}");
    (0..works.len()).map(|work| of_ranks.iter().map(|found| found[work].clone()).collect()).collect()
}
