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
use common::{program, run, small, small_command};

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
#[track_caller]
fn fits(browser: &mut Browser, name: &str, width: u32, is_dark: bool) {
    browser.look(width, is_dark);
    let over = browser.value("document.documentElement.scrollWidth - innerWidth");
    assert!(over.as_i64().unwrap() <= 0, "{width} pixels: the page is {over} wider");
    browser.picture(&format!("{name}-{width}-{}.png", if is_dark { "dark" } else { "light" }));
}

/// Runs like one that was trained, which cost no training: their logs are made up.
fn imitate(folder: &Path, trained: &str, name: &str, log: &str) {
    fs::create_dir(folder.join(name)).unwrap();
    fs::copy(folder.join(trained).join("config.toml"), folder.join(name).join("config.toml")).unwrap();
    fs::write(folder.join(name).join("metrics.jsonl"), log).unwrap();
}

#[test]
fn the_list_sorts_by_click_and_by_key_and_stays_sorted_while_runs_write() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    small(&folder.path().join("b"), &["--epochs", "1", "--no-report"]).succeeded();
    fs::write(folder.path().join("b/metrics.jsonl"), record(1, 3.0)).unwrap();
    fs::remove_file(folder.path().join("b/result.json")).unwrap();
    for (name, loss) in [("a", 5.0), ("c", 4.0), ("d10", 2.0), ("d9", 12.0)] {
        imitate(folder.path(), "b", name, &record(1, loss));
    }
    fs::create_dir(folder.path().join("broken")).unwrap();
    fs::write(folder.path().join("broken/config.toml"), "nonsense").unwrap();
    let watching = Watching::of(folder.path(), &[]);
    browser.open(&watching.address);
    browser.wait("document.getElementById('live').textContent === 'live'");
    browser.wait("document.querySelector('[data-run=d9]').textContent.includes('12')");
    let order = "[...document.querySelectorAll('#rows tr')].map((row) => row.dataset.run).join()";
    let heading = |key: &str| format!("document.querySelector('th[data-sort={key}]')");
    let state = |key: &str| format!("{}.getAttribute('aria-sort')", heading(key));
    assert_eq!(browser.value(order), "a,b,broken,c,d10,d9", "by name, as without a script");
    browser.value(&format!("{}.firstElementChild.click()", heading("loss")));
    assert_eq!(browser.value(order), "d10,b,c,a,d9,broken", "what has no loss is last");
    assert_eq!((browser.value(&state("loss")), browser.value(&state("name"))), ("ascending".into(), "none".into()));
    // A run that goes on finds its new place, and what has the focus keeps it.
    browser.value("document.querySelector('[data-run=a] a').focus()");
    append(&folder.path().join("a"), &record(2, 0.5));
    browser.wait(&format!("{order} === 'a,d10,b,c,d9,broken'"));
    append(&folder.path().join("d9"), &record(2, 0.25));
    browser.wait(&format!("{order} === 'd9,a,d10,b,c,broken'"));
    browser.value(&format!("{}.firstElementChild.click()", heading("loss")));
    assert_eq!(
        (browser.value(order), browser.value(&state("loss"))),
        ("c,b,d10,a,d9,broken".into(), "descending".into())
    );
    browser.value(&format!("{}.firstElementChild.click()", heading("loss")));
    assert_eq!((browser.value(order), browser.value(&state("loss"))), ("a,b,broken,c,d10,d9".into(), "none".into()));
    // By the keyboard: a heading is a button, which Enter presses.
    browser.value(&format!("{}.firstElementChild.focus()", heading("name")));
    for kind in ["keyDown", "keyUp"] {
        let key = serde_json::json!({ "type": kind, "key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13 });
        browser.call("Input.dispatchKeyEvent", key);
    }
    browser.wait(&format!("{} === 'ascending'", state("name")));
    assert_eq!(browser.value(order), "a,b,broken,c,d9,d10", "numbers in names count as numbers");
    for width in [400, 1280] {
        fits(&mut browser, "sorted", width, false);
        let seen = format!("{}.firstElementChild.getBoundingClientRect().width > 0", heading("loss"));
        assert_eq!(browser.value(&seen), true, "{width}");
    }
    browser.assert_quiet(watching.root());
}

#[test]
fn a_comparison_on_paper_size_and_on_a_telephone_is_no_wider_than_the_page() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let long = "a-run-with-a-name-of-many-words-that-says-all-of-its-settings-lr-0.0005-momentum-0.996-out_dim-4096";
    small(&folder.path().join("a"), &["--epochs", "1", "--no-report"]).succeeded();
    small(&folder.path().join("c"), &["--epochs", "2", "--no-report", "--seed", "3", "--prototypes", "l2"]).succeeded();
    imitate(folder.path(), "a", long, &curve(0..3));
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    run(&["report", &at("a"), &at(long), &at("c"), "--out", &at("all.html")]).succeeded();
    browser.open(&format!("file://{}", at("all.html")));
    for (width, is_dark) in [(400, false), (400, true), (1280, false), (2560, true)] {
        fits(&mut browser, "comparison", width, is_dark);
    }
    browser.look(400, false);
    let boxes = "[...document.querySelectorAll('.scroll')]";
    let outside = format!("{boxes}.filter((box) => box.getBoundingClientRect().right > innerWidth).length");
    assert_eq!(browser.value(&outside), 0, "tables move within their own boxes");
    let wide = format!("{boxes}.map((box) => box.scrollWidth > box.clientWidth && box.tabIndex === 0).join()");
    assert_eq!(
        browser.value(&wide),
        "true,false",
        "what differs can be moved, by keys too; the last figures are stacked"
    );
    browser.assert_quiet("file://");
}

#[test]
fn lists_curves_and_comparisons_live_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let hostile = "<img src=x onerror=console.log(1)>\"'\u{202e}";
    small(&folder.path().join("first"), &["--epochs", "1", "--no-report"]).succeeded();
    // Others like it, which cost no training.
    for name in ["second", hostile] {
        imitate(folder.path(), "first", name, &curve(4..400));
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
        fits(&mut browser, "list", width, is_dark);
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
        fits(&mut browser, "compare", width, is_dark);
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
