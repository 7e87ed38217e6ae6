//! `report` and `runs`: what they show of runs, and what they leave alone.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{run, small, small_command, stop_early, write_bmp};

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// The sections with pictures.
const PICTURES: [&str; 5] = [
    "What the network sees in training",
    "Map of the features",
    "What the prototypes stand for",
    "Nearest neighbours",
    "Where it looks",
];

#[test]
fn a_run_ends_with_a_page_that_asks_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let said = small(&out, &["--epochs", "2"]).succeeded().out;
    assert!(said.contains("report.html: open it in a browser"), "{said}");
    let page = read(&out.join("report.html"));
    assert!(page.contains("class=\"verdict") && page.contains("<b>finished</b>"), "not of a run that trains");
    for title in
        ["kNN top-1", "Loss = divergence", "Prototypes that the teacher chose", "Learning rate", "Images a second"]
    {
        assert!(page.contains(title), "{title}");
    }
    assert!(page.contains("given: --epochs") && page.contains("derived: "), "the recipe with its reasons");
    assert!(page.contains("<h2>Machine</h2>") && page.contains(env!("CARGO_PKG_VERSION")), "what computed it");
    for title in PICTURES {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    assert!(!page.contains("There is nothing to show here"), "every section has its pictures");
    assert_eq!((page.matches("<circle class=\"g").count(), page.matches("class=\"row\"").count()), (24, 12));
    let (_, command) =
        page.split_once("<code class=\"command\">dino-vmf ").expect("so short a run is advised to be longer");
    let mut words: Vec<&str> = command.split_once('<').unwrap().0.split(' ').collect();
    let [.., epochs, "--out", beside] = &mut words[..] else { panic!("{words:?}") };
    let beside = PathBuf::from(*beside);
    *epochs = "2";
    run(&words).succeeded();
    let weights = |run: &Path| fs::read(run.join("backbone.safetensors")).unwrap();
    assert!(weights(&beside) == weights(&out), "what was given is given again");
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
    // Off a terminal somebody looks for words in it: nothing is cut, and a run is a line.
    assert_eq!(table.lines().count(), rows.len() + 1, "{table}");
    let verdicts: Vec<&str> = rows.iter().filter_map(|row| row["verdict"].as_str()).collect();
    assert!(verdicts.iter().any(|verdict| verdict.len() > 60), "{verdicts:?}");
    assert!(verdicts.iter().all(|verdict| table.contains(verdict)), "{table}");
    let order: Vec<&str> = table.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(order[order.len() - 1], "deep/broken", "nothing is known of it: {table}");
    assert!(run(&["runs", at("nowhere").to_str().unwrap()]).failed().contains("there is no such folder"));
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
        csv.starts_with("epoch,a and 1 more run,\"a and 1 more run, least\",\"a and 1 more run, largest\"\n"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 4, "one line for both seeds, three epochs: {csv}");
    // A seed without a value yet does not take the others away; nor are two runs of one name one.
    fs::create_dir_all(path("elsewhere/a")).unwrap();
    for file in ["config.toml", "identity.json"] {
        fs::copy(path(&format!("a/{file}")), path(&format!("elsewhere/a/{file}"))).unwrap();
    }
    let with = run(&["figure", "curves", &path("a"), &path("b"), &path("elsewhere/a"), "--out", &path("w.svg")]);
    let with = with.succeeded();
    assert!(with.err.contains("has logged no knn_top1, and is left out"), "{}", with.err);
    let named = read(Path::new(&path("w.csv")));
    assert!(named.starts_with(&format!("epoch,{} and 1 more run", path("a"))) && named.lines().count() == 4, "{named}");
    for kind in ["circle", "normalizer"] {
        let out = path(&format!("{kind}.png"));
        run(&["figure", kind, "--out", &out]).succeeded();
        assert!(fs::read(&out).unwrap().starts_with(b"\x89PNG"));
        assert!(read(&Path::new(&out).with_extension("csv")).lines().count() > 200);
        assert!(run(&["figure", kind, "--out", &out]).failed().contains("--force"));
        run(&["figure", kind, "--out", &out, "--force"]).succeeded();
    }
    assert!(run(&["figure", "circle", "--out", &path("c.gif")]).failed().contains(".svg or .png"));
    let small = run(&["figure", "normalizer", "--dimensions", "4", "--out", &path("n.svg")]);
    assert!(small.code == Some(2) && small.err.contains("16..=65536"), "{}", small.err);
    let others = run(&["report", &path("a"), &path("b"), "--out", &path("page.txt")]).failed();
    assert!(others.contains("must end in .html"), "{others}");
    let none = run(&["figure", "curves", &path("a"), "--key", "nothing", "--out", &path("k.svg")]).failed();
    assert!(none.contains("no run has logged `nothing`"), "{none}");
    // The same figure in the other format, whose numbers are there; and another figure, whose numbers would replace them.
    run(&["figure", "circle", "--out", &path("circle.png"), "--force"]).succeeded();
    fs::remove_file(path("circle.svg")).ok();
    run(&["figure", "circle", "--out", &path("circle.svg")]).succeeded();
    fs::remove_file(path("circle.svg")).unwrap();
    let error = run(&["figure", "circle", "--component", "10:2", "--out", &path("circle.svg")]).failed();
    assert!(error.contains("circle.csv: exists already") && !Path::new(&path("circle.svg")).exists(), "{error}");
    // A run that is named twice is no second seed, and who asks for what is not there is told what is.
    let twice = run(&["figure", "curves", &path("a"), &path("a"), "--out", &path("twice.svg")]).succeeded();
    assert!(
        twice.err.contains("given twice") && !read(Path::new(&path("twice.svg"))).contains("seed"),
        "{}",
        twice.err
    );
    let error = run(&["figure", "curves", &path("a"), "--key", "nope", "--out", &path("x.svg")]).failed();
    assert!(error.contains("--key takes") && error.contains("knn_top1") && error.contains("loss"), "{error}");
}

/// Two classes of a dozen images each, with names that a page must not read as markup.
fn hostile_images(folder: &Path) {
    for (class, name) in [("<img src=x onerror=alert(1)>", "\"><b>"), ("it's & so on", "\u{202e}gpj")] {
        for number in 0..12 {
            write_bmp(&folder.join(class).join(format!("{name} {number}.bmp")), 16, number + class.len());
        }
    }
}

#[test]
fn names_of_images_and_classes_are_text_and_images_that_are_gone_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("images"), folder.path().join("run"));
    hostile_images(&data);
    small(&out, &["--epochs", "1", "--data", data.to_str().unwrap()]).succeeded();
    let page = read(&out.join("report.html"));
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;") && page.contains("&quot;&gt;&lt;b&gt;"));
    for markup in ["<img src=x", "<b> ", "\u{202e}"] {
        assert!(!page.contains(markup), "{markup:?}");
    }
    assert!(page.contains("training image") && page.contains("class=\"right\""), "each by the others");

    // One that is damaged is left out; all of them gone are told of.
    fs::write(data.join("it's & so on").join("\u{202e}gpj 3.bmp"), "BM no more").unwrap();
    run(&["report", out.to_str().unwrap()]).succeeded();
    let page = read(&out.join("report.html"));
    assert_eq!(page.matches("<circle class=\"g").count(), 23);
    fs::rename(&data, folder.path().join("elsewhere")).unwrap();
    run(&["report", out.to_str().unwrap()]).succeeded();
    let page = read(&out.join("report.html"));
    assert!(page.contains("<h2>Pictures</h2>") && page.contains("There is nothing to show here: "), "the reason");
    assert!(page.contains("class=\"verdict") && !page.contains("<h2>Map of the features</h2>"));
}

#[test]
fn pictures_are_the_same_on_any_number_of_threads_and_can_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (out, page) = (folder.path().join("run"), folder.path().join("page.html"));
    small(&out, &["--epochs", "2", "--no-report"]).succeeded();
    let report = |more: &[&str]| {
        let words = ["report", out.to_str().unwrap(), "--force", "--device=cpu", "--out", page.to_str().unwrap()];
        run(&[&words, more].concat()).succeeded();
        read(&page)
    };
    let one = report(&["--threads", "1"]);
    assert!(one == report(&["--threads", "2"]) && one == report(&["--threads", "3", "--images", "2000"]));
    let fewer = report(&["--images", "8"]);
    assert!(fewer.contains("8 training images, coloured by class") && fewer.contains("2 held-out images"), "a quarter");
    let without = report(&["--no-pictures"]);
    assert!(!without.contains("<img") && without.contains("<h2>Recipe</h2>"));
    // Without its checkpoints a run has a backbone, and no head.
    fs::remove_dir_all(out.join("checkpoints")).unwrap();
    let headless = report(&[]);
    let at = headless.find("What the prototypes stand for").unwrap();
    assert!(headless[at..].contains("There is nothing to show here: ") && !headless.contains("class=\"gallery\""));
    assert!(headless.contains("<circle") && headless.contains("class=\"looks\""));
}

#[test]
fn stored_features_are_taken_if_they_are_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    small(Path::new(&path("run")), &["--epochs", "1", "--no-report"]).succeeded();
    small(Path::new(&path("other")), &["--epochs", "1", "--no-report", "--seed", "5"]).succeeded();
    let features = |weights: &str, more: &[&str], out: &str| {
        let data = "synthetic:train=24,test=12,size=16";
        let words = ["features", "--weights", &path(weights), "--data", data, "--out", &path(out), "--device=cpu"];
        run(&[&words, more].concat()).succeeded();
    };
    let report = |file: &str, out: &str| {
        run(&["report", &path("run"), "--features", &path(file), "--out", &path(out), "--force", "--device=cpu"])
    };
    features("run", &[], "train.safetensors");
    features("run", &["--split", "test"], "test.safetensors");
    run(&["report", &path("run"), "--out", &path("computed.html"), "--device=cpu"]).succeeded();
    let pictures = |page: &str| page[page.find("Map of the features").unwrap()..].to_owned();
    for file in ["train.safetensors", "test.safetensors"] {
        report(file, "stored.html").succeeded();
        let (stored, computed) = (read(Path::new(&path("stored.html"))), read(Path::new(&path("computed.html"))));
        assert!(pictures(&stored) == pictures(&computed), "{file}: the same features, the same pictures");
    }
    features("run", &["--split", "all"], "all.safetensors");
    features("run", &["--tokens", "both"], "both.safetensors");
    features("other", &[], "other.safetensors");
    for (file, why) in [
        ("other.safetensors", "not of the run's newest weights"),
        ("both.safetensors", "not of class tokens"),
        ("all.safetensors", "neither of the run's training images nor of its held-out ones"),
        ("computed.html", "no safetensors file"),
    ] {
        let said = report(file, "stored.html").failed();
        assert!(said.contains(why), "{file}: {said}");
    }
}

#[test]
fn duplicates_and_the_void_set_are_those_of_the_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    // Dozens of prototypes on a circle: many are one, and images that lie close together leave a side of it empty.
    let plane = ["--prototypes", "none", "--set", "head_bottleneck=2", "--set", "head_batch_norm=false"];
    small(&out, &[&plane[..], &["--epochs", "1", "--out-dim", "64", "--seed", "2"]].concat()).succeeded();
    let page = read(&out.join("report.html"));
    let data = ["--data", "synthetic:train=24,test=12,size=16", "--thresholds", "0.9", "--json", "--device=cpu"];
    let found = run(&[&["eval", "prototypes", "--weights", out.to_str().unwrap()], &data[..]].concat()).json();
    let void = &found["void"];
    assert_eq!(void["is_void"], true);
    let (members, cosine) = (void["members"].as_u64().unwrap(), void["cosine_with_mean"].as_f64().unwrap());
    assert!(page.contains(&format!("{members} prototypes point away from the images")), "{void}");
    assert!(page.contains(&format!("(cosine with the images&#39; mean {cosine:.2})")), "{void}");
    assert!(page.contains("prototypes that these images chose are") && page.contains("these are of it"), "duplicates");
    assert!(page.contains("<figure class=\"unused\">"), "no image chose the void ones");
}

#[test]
fn who_stops_a_run_does_not_wait_for_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    stop_early(&out);
    let page = read(&out.join("report.html"));
    assert!(page.contains("<b>stopped</b>") && page.contains("has not waited for pictures"), "{}", page.len());
    run(&["report", out.to_str().unwrap()]).succeeded();
    assert!(read(&out.join("report.html")).contains("<h2>Map of the features</h2>"), "they can be had later");
}

#[test]
fn every_method_has_its_prototypes_shown() {
    let folder = tempfile::tempdir().unwrap();
    for method in ["ibot", "msn"] {
        let out = folder.path().join(method);
        small(&out, &["--epochs", "1", "--method", method]).succeeded();
        let page = read(&out.join("report.html"));
        assert!(page.contains("class=\"gallery\"") && !page.contains("There is nothing to show here"), "{method}");
        assert!(page.contains("what is hatched the student does not see"), "{method}");
        // The entropy is part of the loss of class tokens, which is not all of it.
        assert!(page.contains("Loss of class tokens = divergence + entropy") && page.contains("Loss and its parts"));
        assert!(!page.contains("Loss = divergence"), "{method}");
    }
    // Side by side, the same is compared: with DINO, whose whole loss is that of class tokens.
    let (dino, both) = (folder.path().join("dino"), folder.path().join("both.html"));
    let other = ["--epochs", "1", "--no-report", "--data", "synthetic:train=32,test=8,size=16"];
    small(&dino, &other).succeeded();
    let paths = [&folder.path().join("ibot"), &dino, &both].map(|path| path.to_str().unwrap().to_owned());
    run(&["report", &paths[0], &paths[1], &paths[0], "--out", &paths[2]]).succeeded();
    let page = read(&both);
    for title in [
        "2 runs side by side",
        "Loss of class tokens",
        "Loss of patches",
        "not trained on the same images",
        "<td>images</td>",
    ] {
        assert!(page.contains(title), "{title}");
    }
}
