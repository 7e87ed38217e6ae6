//! Processes of `--gpus` whose work is a line of shell: how they end together, and what is told of it.

use super::*;

/// So many processes that run this line, in which `$DINO_VMF_RANK` is their number.
fn started(count: usize, line: &'static str) -> Ranks {
    let command = |rank: usize, port: u16| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).env(RANK_VARIABLE, rank.to_string()).env(PORT_VARIABLE, port.to_string());
        Ok(command)
    };
    Ranks::start(count, command).unwrap()
}

fn status(ranks: &mut Ranks) -> String {
    format!("{:?}", ranks.wait(&Vec::new()).unwrap())
}

fn ended_with(code: u8) -> String {
    format!("{:?}", ExitCode::from(code))
}

#[test]
fn all_that_succeed_succeed() {
    assert_eq!(status(&mut started(3, "exit 0")), ended_with(0));
}

#[test]
fn the_status_is_that_of_the_one_that_failed() {
    // The others end by themselves, as those of a run do when they have lost one.
    let mut ranks = started(3, "if [ $DINO_VMF_RANK = 2 ]; then echo out of luck >&2; exit 4; fi; exit 1");
    assert_eq!(status(&mut ranks), ended_with(4));
    assert_eq!(ranks.all[2].words(), ["out of luck"]);
}

#[test]
fn a_run_that_was_stopped_or_has_collapsed_has_its_own_status() {
    for code in [3, 130, 138] {
        let line: &'static str = ["exit 3", "exit 130", "exit 138"][usize::from(code > 3) + usize::from(code > 130)];
        assert_eq!(status(&mut started(2, line)), ended_with(code));
    }
    assert!(!is_error(Command::new("sh").args(["-c", "exit 138"]).status().unwrap()));
    assert!(is_error(Command::new("sh").args(["-c", "kill -9 $$"]).status().unwrap()));
}

#[test]
fn one_that_was_killed_is_told_with_its_signal() {
    let mut ranks = started(2, "if [ $DINO_VMF_RANK = 1 ]; then kill -9 $$; fi; sleep 1; exit 1");
    assert_eq!(status(&mut ranks), ended_with(137));
    assert!(how(ranks.all[1].ended).starts_with("by signal 9: somebody has killed it"));
    assert_eq!(how(ranks.all[0].ended), "with status 1");
}

#[test]
fn signals_are_passed_on_to_all() {
    // Each says that it listens before the signal is sent.
    let folder = tempfile::tempdir().unwrap();
    let line = "trap 'exit 7' USR1; touch $FOLDER/$DINO_VMF_RANK; while :; do sleep 0.05; done";
    let command = |rank: usize, _: u16| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).env(RANK_VARIABLE, rank.to_string()).env("FOLDER", folder.path());
        Ok(command)
    };
    let mut ranks = Ranks::start(3, command).unwrap();
    while (0..3).any(|rank| !folder.path().join(rank.to_string()).exists()) {
        thread::sleep(LOOK_EVERY);
    }
    let heard = Arc::new(AtomicBool::new(true));
    let signals = vec![(signal_hook::consts::SIGUSR1, heard)];
    assert_eq!(format!("{:?}", ranks.wait(&signals).unwrap()), ended_with(7));
    assert!(ranks.all.iter().all(|rank| rank.ended.unwrap().code() == Some(7)));
}

#[test]
fn nobody_is_left_behind() {
    let ranks = started(2, "exec sleep 1000");
    let numbers: Vec<u32> = ranks.all.iter().map(|rank| rank.process.id()).collect();
    drop(ranks);
    assert!(numbers.iter().all(|number| !std::path::Path::new(&format!("/proc/{number}")).exists()));
}

#[test]
fn the_first_is_given_a_port_that_others_reach() {
    // A socket, and in the others nothing.
    let line = "if [ $DINO_VMF_RANK = 0 ]; then [ -S /dev/stdin ]; else [ ! -S /dev/stdin ]; fi";
    assert_eq!(status(&mut started(3, line)), ended_with(0));
    assert_ne!(token(), token());
    assert_eq!(token().len(), 32);
}

#[test]
fn what_a_process_says_is_passed_on_and_little_of_it_kept() {
    let text: String = (0..100).map(|n| format!("line {n}\n")).collect::<String>() + &"x".repeat(100_000);
    let (kept, said) = (Mutex::new(VecDeque::new()), Mutex::new(Vec::new()));
    pass_on(text.as_bytes(), &kept, |line| said.lock().unwrap().push(line.to_owned()));
    let (kept, said) = (kept.into_inner().unwrap(), said.into_inner().unwrap());
    assert_eq!(said.iter().map(String::len).sum::<usize>(), text.len() - 100);
    assert_eq!((kept.len(), said[99].as_str()), (LAST_WORDS, "line 99"));
    assert!(kept.iter().all(|line| line.len() as u64 <= LONGEST_LINE));
}
