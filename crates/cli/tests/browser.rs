//! The live pages and reports in a real browser, where one is installed.
//!
//! `DINO_VMF_SCREENSHOTS=FOLDER` keeps pictures of what was seen.

#[path = "common/browser.rs"]
mod browser;
mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use browser::Browser;
use common::{program, small, small_command};

/// `watch`, ended when the test is.
struct Watching {
    process: Child,
    /// The address that it has printed.
    address: String,
}

impl Watching {
    fn of(folder: &Path, more: &[&str]) -> Self {
        let mut command = program();
        // Any port: the usual one may be somebody's.
        command.arg("watch").arg(folder).args(more).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().next().unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { process, address }
    }

    /// Without the token.
    fn root(&self) -> &str {
        self.address.split('#').next().unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn append(run: &Path, text: &str) {
    File::options().append(true).open(run.join("metrics.jsonl")).unwrap().write_all(text.as_bytes()).unwrap();
}

fn record(step: usize, loss: f64) -> String {
    format!(
        "{{\"step\":{step},\"epoch\":0,\"loss\":{loss},\"divergence\":{},\"teacher_entropy\":2.0,\"prototypes_in_use\":30,\
         \"usage_perplexity\":21.5,\"feature_rank\":9.5,\"kappa_min\":8,\"kappa_median\":10,\"kappa_max\":{},\
         \"gradient_norm\":0.8,\"lr\":{:e},\"images_per_second\":512,\"data_wait\":0.01}}\n",
        loss - 2.0,
        12.0 + 0.01 * step as f64,
        1e-5 * step as f64
    )
}

/// A falling curve with some noise.
fn curve(steps: std::ops::Range<usize>) -> String {
    let loss = |step: usize| 2.4 + 3.0 * (-(step as f64) / 120.0).exp() + 0.08 * (step as f64 * 1.7).sin();
    steps.map(|step| record(step, loss(step))).collect()
}

/// A page fits into its width, and a picture of it is kept.
fn fits(browser: &mut Browser, name: &str, width: u32, is_dark: bool) {
    browser.look(width, is_dark);
    let over = browser.value("document.documentElement.scrollWidth - innerWidth");
    assert!(over.as_i64().unwrap() <= 0, "{width} pixels: the page is {over} wider");
    browser.picture(&format!("{name}-{width}-{}.png", if is_dark { "dark" } else { "light" }));
}

#[test]
fn lists_curves_and_comparisons_live_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let hostile = "<img src=x onerror=console.log(1)>\"'\u{202e}";
    small(&folder.path().join("first"), &["--epochs", "1", "--no-report"]).succeeded();
    // Others like it, which cost no training.
    let log = |name: &str| folder.path().join(name).join("metrics.jsonl");
    for name in ["second", hostile] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::copy(folder.path().join("first/config.toml"), folder.path().join(name).join("config.toml")).unwrap();
        fs::write(log(name), curve(4..400)).unwrap();
    }
    let config = fs::read_to_string(folder.path().join("second/config.toml")).unwrap();
    let other = config.lines().map(|line| if line.starts_with("seed ") { "seed = 1" } else { line });
    fs::write(folder.path().join("second/config.toml"), other.collect::<Vec<_>>().join("\n")).unwrap();
    let watching = Watching::of(folder.path(), &[]);

    // The list: hostile names are text, and a row changes when its run does.
    browser.open(&watching.address);
    browser.wait("document.getElementById('live').textContent === 'live'");
    assert_eq!(browser.value("document.querySelectorAll('#rows tr').length"), 3);
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
    assert_eq!(
        browser.value("[...document.querySelectorAll('#rows a')].some((a) => a.textContent.includes('<img src=x'))"),
        true
    );
    append(&folder.path().join("second"), &record(400, 1.0625));
    browser.wait("document.querySelector('[data-run=second]').textContent.includes('1.062')");
    for (width, is_dark) in [(400, false), (400, true), (1280, false), (1280, true)] {
        browser.look(width, is_dark);
        let over = browser.value("document.documentElement.scrollWidth - innerWidth");
        assert!(over.as_i64().unwrap() <= 0, "{width} pixels: the list is {over} wider");
        browser.picture(&format!("list-{width}-{}.png", if is_dark { "dark" } else { "light" }));
    }

    // Two of them side by side, by ticking boxes.
    browser.value("document.querySelector('[data-run=first] input').click()");
    browser.value("document.querySelector('[data-run=second] input').click()");
    browser.value("document.getElementById('compare').click()");
    browser.wait("document.readyState === 'complete' && location.pathname === '/compare'");
    browser.wait("document.querySelector('h1').textContent === '2 runs side by side'");
    let legend = "[...document.querySelectorAll('figure.plot li')].map((li) => li.textContent).join()";
    let names = browser.value(legend).as_str().unwrap().to_owned();
    assert!(names.contains("first") && names.contains("second"), "{names}");
    assert_eq!(browser.value("document.querySelector('[data-part=differences]').innerText.includes('seed')"), true);
    for (width, is_dark) in [(400, true), (1280, false), (1280, true)] {
        browser.look(width, is_dark);
        browser.picture(&format!("compare-{width}-{}.png", if is_dark { "dark" } else { "light" }));
    }

    // A run's page: its curves go on as it writes, its slider stays, and odd numbers are words.
    browser.open(&format!("{}run/second", watching.root()));
    browser.wait("document.getElementById('live').textContent === 'live'");
    browser.value("document.querySelector('.tools input').value = 7");
    let line = "document.querySelector('figure.plot [data-line=\"0\"]').getAttribute('d')";
    let before = browser.value(line);
    append(&folder.path().join("second"), &curve(401..450));
    browser.wait(&format!("{line} !== {before}"));
    assert_eq!(browser.value("document.querySelector('.tools input').value"), "7");
    for (width, is_dark) in [(400, false), (400, true), (1280, false), (1280, true)] {
        fits(&mut browser, "run", width, is_dark);
    }
    append(&folder.path().join("second"), "{\"step\":450,\"loss\":\"NaN\",\"images_per_second\":\"inf\"}\n");
    browser.wait("document.querySelector('.tiles').textContent.includes('not a number')");
    assert_eq!(browser.value("document.querySelector('.tiles').textContent.includes('infinity')"), true);

    // The page of the hostile name, reached by its link.
    browser.open(watching.root());
    browser.value("[...document.querySelectorAll('#rows a')].find((a) => a.textContent.includes('<img')).click()");
    browser.wait("document.readyState === 'complete' && location.pathname.startsWith('/run/')");
    browser.wait("document.querySelector('h1').textContent.startsWith('<img src=x')");
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
    browser.assert_quiet(watching.root());
}

#[test]
fn a_run_is_saved_and_stopped_from_its_page_by_two_clicks() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut training = small_command(&out, &["--epochs", "900", "--no-report"]).spawn().unwrap();
    while !out.join("metrics.jsonl").exists() {
        assert_eq!(training.try_wait().unwrap(), None, "it trains");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let watching = Watching::of(folder.path(), &["--allow-stop"]);
    // Without the token there is no button.
    browser.open(&format!("{}run/run", watching.root()));
    assert_eq!(browser.value("document.getElementById('stop').hidden"), true);
    // From the list, whose links take the token along.
    browser.open("about:blank");
    browser.open(&watching.address);
    browser.value("document.querySelector('#rows a').click()");
    browser.wait("document.readyState === 'complete' && location.pathname === '/run/run'");
    browser.wait("document.getElementById('stop').hidden === false");
    browser.value("document.getElementById('stop').click()");
    assert_eq!(training.try_wait().unwrap(), None, "one click may be a slip");
    browser.value("document.getElementById('stop').click()");
    browser.wait("document.getElementById('said').textContent.includes('was asked to stop')");
    assert_eq!(training.wait().unwrap().code(), Some(128 + 15), "it ended as one that was asked to");
    assert!(out.join("backbone.safetensors").exists(), "it has saved");
    browser.wait("document.querySelector('.verdict b').textContent === 'stopped'");
    assert_eq!(browser.value("document.getElementById('stop').hidden"), true);
    browser.assert_quiet(watching.root());
}

#[test]
fn a_report_shows_its_pictures_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    small(&out, &["--epochs", "2"]).succeeded();
    let address = format!("file://{}", out.canonicalize().unwrap().join("report.html").display());
    browser.look(1280, false);
    browser.open(&address);
    // Views, prototypes (eight cards and more), neighbours, attention, and all that the map shows.
    let pictures = "[...document.querySelectorAll('img')]";
    assert!(browser.value(&format!("{pictures}.length")).as_u64().unwrap() > 100);
    browser.wait(&format!("{pictures}.every((img) => img.complete && img.naturalWidth > 0)"));
    assert_eq!(browser.value("document.querySelectorAll('figure.map circle').length"), 24);
    assert_eq!(browser.value("document.querySelectorAll('figure.plot svg[role=img]').length >= 8"), true);
    // The image of a point under the pointer, and none beside it.
    let place = "(() => { const c = document.querySelectorAll('figure.map circle')[5]; c.scrollIntoView({ block: 'center' }); \
                 const b = c.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()";
    let place = browser.value(place);
    let tip = "document.querySelector('figure.map .tip')";
    let drawn =
        format!("new Set({tip}.querySelector('canvas').getContext('2d').getImageData(0, 0, 144, 144).data).size > 2");
    assert_eq!(browser.value(&format!("{tip}.hidden")), true);
    let point =
        |x: &serde_json::Value, y: &serde_json::Value| serde_json::json!({ "type": "mouseMoved", "x": x, "y": y });
    browser.call("Input.dispatchMouseEvent", point(&place[0], &place[1]));
    browser.wait(&format!("!{tip}.hidden && {tip}.textContent.includes('synthetic #')"));
    assert_eq!(browser.value(&drawn), true, "an image, not one colour");
    browser.picture("report-hover.png");
    browser.call("Input.dispatchMouseEvent", point(&1.into(), &1.into()));
    browser.wait(&format!("{tip}.hidden"));
    // A class alone.
    browser.value("document.querySelector('figure.map li').focus()");
    browser.wait("document.querySelectorAll('figure.map .dim circle.on').length > 0");
    for (width, is_dark) in [(400, false), (400, true), (1280, true), (2560, false)] {
        fits(&mut browser, "report", width, is_dark);
    }
    // Without a script, points have their names and pictures are there.
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": true }));
    browser.open("about:blank");
    browser.open(&address);
    assert_eq!(browser.value("document.querySelectorAll('figure.map circle title').length"), 24);
    browser.assert_quiet(&address);
}
