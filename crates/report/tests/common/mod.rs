//! What the tests of the live pages share: folders that look like runs, a server, and requests byte by byte.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use report::watch::{Options, Watch};
use ssl::recipe::{Facts, RawRecipe};

/// Longer than anything takes on a machine that does a hundred other things.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Makes a folder that is a run with this log.
pub fn run(folder: &Path, name: &str, log: &str) {
    let root = folder.join(name);
    let facts = Facts { images: 500, height: 48, width: 48, labelled: true, fingerprint: 0 };
    let recipe = RawRecipe::from_toml("epochs = 7", "my.toml").unwrap().resolve(&facts).unwrap();
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("config.toml"), recipe.to_toml()).unwrap();
    fs::write(root.join("metrics.jsonl"), log).unwrap();
}

/// A record as runs write it.
pub fn record(step: usize, loss: f64) -> String {
    format!("{{\"step\":{step},\"epoch\":0,\"loss\":{loss},\"divergence\":0.5,\"teacher_entropy\":1.5,\"lr\":0.001}}\n")
}

/// A server of the runs in a folder, on a free port; what it would print.
pub fn serve(folder: &Path, may_stop: bool) -> (SocketAddr, String) {
    // The usual port may be somebody else's, and port 0 is any that is free.
    let options = Options { port: Some(0), may_stop, ..Options::of(folder) };
    let watch = Watch::bind(&options).unwrap();
    let found = (watch.address(), watch.address_to_open());
    std::thread::spawn(move || watch.serve());
    found
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes and reads all that comes back. A server may close before it has read everything.
pub fn send(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    _ = stream.write_all(request);
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A plain request with further headers.
pub fn ask(address: SocketAddr, method: &str, path: &str, more: &str) -> String {
    send(address, format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n").as_bytes())
}

pub fn get(address: SocketAddr, path: &str) -> String {
    ask(address, "GET", path, "")
}

/// The status of an answer; 0 where there is none.
pub fn status(answer: &str) -> u16 {
    answer.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// A stream of events.
pub struct Events(BufReader<TcpStream>);

impl Events {
    pub fn of(address: SocketAddr, path: &str) -> Self {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut events = Self(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(events.0.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(status(&head) == 200 && head.contains("text/event-stream"), "{head}");
        events
    }

    /// The data of the next event.
    pub fn next(&mut self) -> serde_json::Value {
        loop {
            let (mut size, mut end) = (String::new(), [0; 2]);
            self.0.read_line(&mut size).unwrap();
            let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("{size:?}"))];
            self.0.read_exact(&mut chunk).unwrap();
            self.0.read_exact(&mut end).unwrap();
            let text = String::from_utf8(chunk).unwrap();
            if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// The first event that is as wanted.
    pub fn until(&mut self, is_wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        loop {
            let event = self.next();
            if is_wanted(&event) {
                return event;
            }
        }
    }
}
