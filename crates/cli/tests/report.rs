//! `report` and `runs`: what they show of runs, and what they leave alone.

mod common;

use std::fs;
use std::path::Path;

use common::{run, small, small_command};

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_run_ends_with_a_page_that_asks_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let said = small(&out, &["--epochs", "2"]).succeeded().out;
    assert!(said.contains("report.html: open it in a browser"), "{said}");
    let page = read(&out.join("report.html"));
    assert!(page.contains("class=\"verdict") && page.contains("<b>finished</b>"), "not of a run that trains");
    for title in ["kNN top-1", "Loss = divergence", "Prototypes in use", "Learning rate", "Images a second"] {
        assert!(page.contains(title), "{title}");
    }
    assert!(page.contains("given: --epochs") && page.contains("derived: "), "the recipe with its reasons");
    assert!(page.contains("<h2>Machine</h2>") && page.contains(env!("CARGO_PKG_VERSION")), "what computed it");
    for outside in ["http:", "https:", "src=\"/", "@import", "url("] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside}");
    }
    // Once more, over the old one, and elsewhere.
    run(&["report", out.to_str().unwrap()]).succeeded();
    let elsewhere = folder.path().join("page.html");
    run(&["report", out.to_str().unwrap(), "--out", elsewhere.to_str().unwrap()]).succeeded();
    assert!(run(&["report", out.to_str().unwrap(), "--out", elsewhere.to_str().unwrap()]).failed().contains("--force"));
    fs::write(out.join("report.html"), "my own notes").unwrap();
    assert!(run(&["report", out.to_str().unwrap()]).failed().contains("is no report of this program"));
    assert_eq!(read(&out.join("report.html")), "my own notes");

    let without = folder.path().join("without");
    let said = small(&without, &["--epochs", "1", "--no-report"]).succeeded().out;
    assert!(!said.contains("report.html") && !without.join("report.html").exists());
}

#[test]
fn two_runs_are_compared_and_what_differs_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a<b>"), folder.path().join("b"));
    small(&a, &["--epochs", "1", "--no-report"]).succeeded();
    small(&b, &["--epochs", "1", "--no-report", "--seed", "3", "--prototypes", "l2"]).succeeded();
    let out = folder.path().join("both.html");
    run(&["report", a.to_str().unwrap(), b.to_str().unwrap(), "--out", out.to_str().unwrap()]).succeeded();
    let page = read(&out);
    let differences = page.find("Where their recipes differ").unwrap();
    assert!(differences < page.find("<h2>Curves</h2>").unwrap());
    assert!(page.contains("<code>seed</code>") && page.contains("<code>prototypes</code>"));
    assert!(!page.contains("<code>batch_size</code>"), "which is the same in both");
    assert!(page.contains("a&lt;b&gt;") && !page.contains("a<b>"), "a name is text");
}

#[test]
fn a_log_that_is_damaged_or_hostile_is_shown_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    small(&out, &["--epochs", "1", "--no-report"]).succeeded();
    let log = out.join("metrics.jsonl");
    let more = "{\"step\":4,\"loss\":\"NaN\",\"gradient_norm\":\"inf\",\"</script><script>alert(1)</script>\":1}\n\
                {\"step\":5,\"loss\":1e308}\nnonsense\n{\"step\":6,\"lo";
    fs::write(&log, read(&log) + more).unwrap();
    run(&["report", out.to_str().unwrap()]).succeeded();
    let page = read(&out.join("report.html"));
    assert!(!page.contains("alert(1)"), "a number that nobody knows is not drawn");
    assert!(page.contains("1e308"), "{}", page.len());
}

#[test]
fn runs_are_listed_with_what_became_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join("deep").join(name);
    small(&at("one"), &["--epochs", "1"]).succeeded();
    small(&at("two"), &["--epochs", "2", "--seed", "1"]).succeeded();
    fs::create_dir_all(at("broken")).unwrap();
    fs::write(at("broken").join("config.toml"), "nonsense").unwrap();
    let mut child = small_command(&at("killed"), &["--epochs", "900"]).spawn().unwrap();
    while !at("killed").join("metrics.jsonl").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let list = run(&["runs", folder.path().to_str().unwrap(), "--json"]).json();
    let rows = list["runs"].as_array().unwrap();
    let states: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["run"].as_str().unwrap(), row["state"].as_str().unwrap())).collect();
    let expected =
        [("deep/broken", "unreadable"), ("deep/killed", "killed"), ("deep/one", "finished"), ("deep/two", "finished")];
    assert_eq!(states, expected);
    assert_eq!((&rows[2]["method"], &rows[2]["step"]), (&"DINO-vMF".into(), &3.into()));
    let table = run(&["runs", folder.path().to_str().unwrap(), "--sort", "step"]).succeeded().out;
    let order: Vec<&str> = table.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(order[order.len() - 1], "deep/broken", "nothing is known of it: {table}");
    assert!(run(&["runs", at("nowhere").to_str().unwrap()]).failed().contains("there is no run below this folder"));
}

#[test]
fn figures_are_drawn_with_their_numbers_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (seed, name) in [("0", "a"), ("1", "b")] {
        small(Path::new(&path(name)), &["--epochs", "3", "--seed", seed, "--no-report"]).succeeded();
    }
    run(&["figure", "curves", &path("a"), &path("b"), "--out", &path("knn.svg")]).succeeded();
    let csv = read(Path::new(&path("knn.csv")));
    assert!(
        csv.starts_with("epoch,a and 1 more seeds,\"a and 1 more seeds, least\",\"a and 1 more seeds, largest\"\n"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 4, "one line for both seeds, three epochs: {csv}");
    for kind in ["circle", "normalizer"] {
        let out = path(&format!("{kind}.png"));
        run(&["figure", kind, "--out", &out]).succeeded();
        assert!(fs::read(&out).unwrap().starts_with(b"\x89PNG"));
        assert!(read(&Path::new(&out).with_extension("csv")).lines().count() > 200);
        assert!(run(&["figure", kind, "--out", &out]).failed().contains("--force"));
        run(&["figure", kind, "--out", &out, "--force"]).succeeded();
    }
    assert!(run(&["figure", "circle", "--out", &path("c.gif")]).failed().contains(".svg or .png"));
    assert!(run(&["figure", "normalizer", "--dimensions", "4", "--out", &path("n.svg")]).failed().contains("4"));
    let none = run(&["figure", "curves", &path("a"), "--key", "nothing", "--out", &path("k.svg")]).failed();
    assert!(none.contains("no run has logged `nothing`"), "{none}");
}
