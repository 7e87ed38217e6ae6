//! What the tests of the program share: the program itself, small settings, and small images.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The smallest run that has everything: two global views and a local one of 16 x 16 images, 3 steps in an epoch,
/// a checkpoint after every step.
pub const SMALL: [&str; 24] = [
    "pretrain",
    "--data",
    "synthetic:train=24,test=12,size=16",
    "--arch",
    "vit_nano",
    "--patch-size",
    "8",
    "--batch-size",
    "8",
    "--local-crops",
    "1",
    "--out-dim",
    "32",
    "--epochs",
    "9",
    "--set",
    "head_hidden=32",
    "--set",
    "head_bottleneck=16",
    "--set",
    "checkpoint_minutes=0",
    "--set",
    "log_every=1",
    "--device=cpu",
];

/// The program, ready for arguments; its thread count is not the environment's, and it sees no GPU.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dino-vmf"));
    command.env_remove("RAYON_NUM_THREADS").env("CUDA_VISIBLE_DEVICES", "");
    command
}

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Finished {
    Finished::of(program().args(args).output().expect("the program starts"))
}

/// The small run into a folder, with further arguments.
pub fn small(out: &Path, more: &[&str]) -> Finished {
    Finished::of(small_command(out, more).output().expect("the program starts"))
}

/// The same, not started yet.
pub fn small_command(out: &Path, more: &[&str]) -> Command {
    let mut command = program();
    command.args(unless_given(&SMALL, more)).args(more).arg("--out").arg(out);
    command
}

/// Those of `usual` whose flag, or whose key of `--set`, is not among `more`: given twice, they would be refused.
pub fn unless_given<'a>(usual: &[&'a str], more: &[&str]) -> Vec<&'a str> {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let flags: Vec<String> = more.iter().filter(|word| word.starts_with("--")).map(|word| name(word)).collect();
    let keys: Vec<String> = more.windows(2).filter(|pair| pair[0] == "--set").map(|pair| name(pair[1])).collect();
    let mut kept = Vec::new();
    let mut words = usual.iter().copied().peekable();
    while let Some(word) = words.next() {
        let value = words.next_if(|next| word.starts_with("--") && !word.contains('=') && !next.starts_with("--"));
        let is_given = match (word, value) {
            ("--set", Some(assignment)) => keys.contains(&name(assignment)),
            _ => flags.contains(&name(word)),
        };
        if !is_given {
            kept.extend([word].into_iter().chain(value));
        }
    }
    kept
}

/// A run of the program that has ended.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Finished {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The same, which must have succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// The error message of a run that must have failed cleanly: status 1, nothing on standard output, no panic.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:#?}");
        assert_eq!(self.out, "", "an error prints no result");
        assert!(!self.err.contains("panicked"), "{}", self.err);
        let start = self.err.find("error: ").unwrap_or_else(|| panic!("no error message: {}", self.err));
        self.err[start..].to_owned()
    }

    /// Standard output, which must be one JSON object.
    #[track_caller]
    pub fn json(self) -> Value {
        let this = self.succeeded();
        let value: Value = serde_json::from_str(&this.out).unwrap_or_else(|e| panic!("{e}: {}", this.out));
        assert!(value.is_object());
        value
    }
}

/// The records of a run's log.
pub fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("the log is there");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// The run's log without what a clock decides.
pub fn timeless_metrics(run: &Path) -> Vec<Value> {
    let mut records = metrics(run);
    for record in &mut records {
        let fields = record.as_object_mut().expect("a record is an object");
        fields.remove("images_per_second");
        fields.remove("data_wait");
    }
    records
}

/// The checkpoint after a number of steps.
pub fn checkpoint(run: &Path, step: u64) -> PathBuf {
    run.join(format!("checkpoints/step-{step:08}.safetensors"))
}

/// What a checkpoint holds, whichever run it belongs to: its header without that, and its tensors.
pub fn learnt(path: &Path) -> (Value, Vec<u8>) {
    let bytes = fs::read(path).expect("a checkpoint");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).expect("a header is JSON");
    let metadata = header["__metadata__"].as_object_mut().expect("it has metadata");
    assert!(metadata.remove("run").is_some() && metadata.remove("checksum").is_some());
    (header, bytes[8 + length..].to_vec())
}

/// How many checkpoints a run has now.
pub fn checkpoints(run: &Path) -> usize {
    let is_whole = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|e| e == "safetensors");
    match fs::read_dir(run.join("checkpoints")) {
        Ok(entries) => entries.filter_map(Result::ok).filter(is_whole).count(),
        Err(_) => 0,
    }
}

/// The newest checkpoint that a run has now: its step, 0 for none.
pub fn newest_step(run: &Path) -> u64 {
    let step = |entry: fs::DirEntry| {
        entry.file_name().to_str()?.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
    };
    match fs::read_dir(run.join("checkpoints")) {
        Ok(entries) => entries.filter_map(Result::ok).filter_map(step).max().unwrap_or(0),
        Err(_) => 0,
    }
}

/// Waits until something is so.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        sleep(Duration::from_millis(1));
    }
}

/// The small run, stopped by a signal after a few steps; what it said.
pub fn stop_early(run: &Path) -> Finished {
    let child =
        small_command(run, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    wait_until("a checkpoint", || checkpoints(run) > 0);
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
    assert!(killed.success());
    Finished::of(child.wait_with_output().expect("it ends"))
}

/// What `inspect` tells of a run: to scripts and to people.
pub fn inspected(run: &Path) -> (Value, String) {
    let of = |more: &[&str]| Finished::of(program().arg("inspect").arg(run).args(more).output().unwrap());
    (of(&["--json"]).json(), of(&[]).succeeded().out)
}

/// Everything below a folder, by name, with its content.
pub fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).expect("a file");
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// Writes a 24-bit BMP whose pixels follow from `seed`.
pub fn write_bmp(path: &Path, side: usize, seed: usize) {
    let stride = (side * 3).next_multiple_of(4);
    let size = 54 + stride * side;
    let mut bytes = Vec::with_capacity(size);
    bytes.extend(b"BM");
    let dword = |n: usize| (n as u32).to_le_bytes();
    bytes.extend([dword(size), dword(0), dword(54), dword(40), dword(side), dword(side)].concat());
    bytes.extend([1u16.to_le_bytes(), 24u16.to_le_bytes()].concat());
    bytes.extend([0; 24]);
    for y in 0..side {
        let mut row: Vec<u8> =
            (0..side * 3).map(|i| ((i * (seed + 3) + y * 11 * (seed % 5 + 1)) % 256) as u8).collect();
        row.resize(stride, 0);
        bytes.extend(row);
    }
    fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
    fs::write(path, bytes).expect("the image can be written");
}
