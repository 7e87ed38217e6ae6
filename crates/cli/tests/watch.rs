//! `watch` as a command: what it prints, what it refuses, and that a run can be saved and stopped through it.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use common::{program, run, small_command};

fn watch(folder: &Path, more: &[&str]) -> (Child, String) {
    let mut command = program();
    command.arg("watch").arg(folder).args(more).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().next().unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (process, address)
}

fn ask(host: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "{request}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_folder_or_a_port_that_cannot_be_had_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    let nowhere = folder.path().join("nowhere");
    assert!(run(&["watch", nowhere.to_str().unwrap()]).failed().contains("there is no such folder"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let message = run(&["watch", here, "--port", &port]).failed();
    assert!(message.contains(&format!(":{port} ")) && message.contains("Leave --port out"), "{message}");
    let nobodys = run(&["watch", here, "--host", "192.0.2.1", "--port", "8055"]).failed();
    assert!(
        nobodys.contains("192.0.2.1:8055") && nobodys.contains("--host takes an address of this machine"),
        "{nobodys}"
    );
    assert_eq!(run(&["watch", here, "--host", "localhost"]).code, Some(2), "an address is wanted");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_trains_is_saved_and_stopped_with_the_token_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut training = small_command(&out, &["--epochs", "900", "--no-report"]).stderr(Stdio::null()).spawn().unwrap();
    while !out.join("metrics.jsonl").exists() {
        assert_eq!(training.try_wait().unwrap(), None, "it trains");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (mut watching, address) = watch(folder.path(), &["--allow-stop"]);
    let (root, token) = address.split_once("#token=").unwrap();
    let host = root.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let post = |token: &str| {
        ask(
            &host,
            &format!(
                "POST /stop/run HTTP/1.1\r\nHost: {host}\r\nX-Dino-Vmf-Token: {token}\r\nContent-Length: 0\r\n\r\n"
            ),
        )
    };
    let (_, other) = token.split_at(1);
    assert!(post(&format!("g{other}")).starts_with("HTTP/1.1 403"));
    assert_eq!(training.try_wait().unwrap(), None, "it goes on");
    let list = ask(&host, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert!(list.contains("state running\">running"), "{list}");
    let answer = post(token);
    assert!(answer.contains(&format!("Process {} was asked to stop", training.id())), "{answer}");
    assert_eq!(training.wait().unwrap().code(), Some(128 + 15), "as one that was asked to");
    assert!(out.join("backbone.safetensors").exists(), "it has saved");
    let answer = post(token);
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("nobody is training"), "{answer}");
    watching.kill().unwrap();
    watching.wait().unwrap();
}
