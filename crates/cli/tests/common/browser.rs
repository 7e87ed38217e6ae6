//! A real browser for tests of pages: Chromium without a window, steered through its DevTools.
//!
//! It runs where Chromium is installed (or `DINO_VMF_CHROMIUM` names one); elsewhere a test says that it is skipped. Every
//! message on the console and every request is noted, so that a test can insist that there were none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long anything may take on a machine that does a hundred other things.
const PATIENCE: Duration = Duration::from_secs(90);
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A browser with one empty page.
pub struct Browser {
    process: Child,
    _profile: tempfile::TempDir,
    socket: BufReader<TcpStream>,
    session: String,
    last: u64,
    /// What the pages have said on the console, and errors of the browser.
    pub messages: Vec<String>,
    /// What they have asked for.
    pub requests: Vec<String>,
}

impl Browser {
    /// Starts it; none, with a message, where there is no browser.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: no Chromium is installed");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
            .args(["--remote-debugging-port=0", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("Chromium starts");
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "Chromium ends without an address");
            if let Some((_, address)) = line.split_once("ws://") {
                break address.trim().to_owned();
            }
        };
        // Nobody else reads what it says, and it must not wait for that.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let socket = open(&address);
        let (messages, requests) = (Vec::new(), Vec::new());
        let mut browser =
            Self { process, _profile: profile, socket, session: String::new(), last: 0, messages, requests };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for what it gives; events that come meanwhile are noted.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        send(self.socket.get_mut(), message.to_string().as_bytes());
        loop {
            let answer: Value = serde_json::from_str(&receive(&mut self.socket)).unwrap();
            if answer["id"] == self.last {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.messages.push(params.to_string());
            }
            "Network.requestWillBeSent" => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }

    /// Opens a page and waits until its scripts have run.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
        let shown = json!(address.split('#').next().unwrap());
        self.wait(&format!("document.readyState === 'complete' && location.href.split('#')[0] === {shown}"));
    }

    /// What an expression gives in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != true {
            assert!(begun.elapsed() < PATIENCE, "never: {expression}\n{}", self.value("document.body.innerText"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The page has said nothing on the console, and asked for nothing but addresses that begin so.
    #[track_caller]
    pub fn assert_quiet(&mut self, own: &str) {
        // Whatever has happened before is told before this is answered.
        self.value("1");
        assert!(self.messages.is_empty(), "{:#?}", self.messages);
        let foreign: Vec<&String> = self
            .requests
            .iter()
            .filter(|url| !url.starts_with(own) && !url.starts_with("data:") && *url != "about:blank")
            .collect();
        assert!(foreign.is_empty(), "{foreign:#?}");
    }

    /// The width of the page in its own pixels, and whether it is dark.
    pub fn look(&mut self, width: u32, is_dark: bool) {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Keeps a picture of the page in the folder that `DINO_VMF_SCREENSHOTS` names, where it does.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("DINO_VMF_SCREENSHOTS") else { return };
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": false }));
        let bytes = of_base64(picture["data"].as_str().unwrap());
        std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn program() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("DINO_VMF_CHROMIUM") {
        return Some(given.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|path| path.is_file())
}

/// Begins a WebSocket (RFC 6455).
fn open(address: &str) -> BufReader<TcpStream> {
    let (host, path) = address.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .unwrap();
    let (mut socket, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(socket.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    socket
}

/// Sends a text as one frame, masked with zeros, which changes nothing.
fn send(stream: &mut TcpStream, text: &[u8]) {
    let mut frame = vec![0x81];
    match text.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=65_535 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(text);
    stream.write_all(&frame).unwrap();
}

/// The next text, of as many frames as it has.
fn receive(socket: &mut impl Read) -> String {
    let mut text = Vec::new();
    loop {
        let mut head = [0; 2];
        socket.read_exact(&mut head).expect("Chromium answers");
        let length = match head[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                socket.read_exact(&mut length).unwrap();
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                socket.read_exact(&mut length).unwrap();
                u64::from_be_bytes(length)
            }
            length => u64::from(length),
        };
        let mut part = vec![0; length as usize];
        socket.read_exact(&mut part).unwrap();
        // Neither pings nor anything else but text and its continuations is of interest.
        if head[0] & 0x0f <= 1 {
            text.extend(part);
            if head[0] & 0x80 != 0 {
                return String::from_utf8(text).unwrap();
            }
        }
    }
}

fn of_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
