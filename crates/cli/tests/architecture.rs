//! The rules between crates that no compiler checks: which way dependencies point, and who may print.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers of the workspace, lowest first. A crate may depend on crates of lower layers, never on one of its own or
/// a higher one; only the helpers, the lowest layer, may use each other. A crate that is listed need not exist yet.
const LAYERS: [&[&str]; 9] = [
    &["random", "files", "text", "simd"],
    &["vmf", "onnx"],
    &["tensor"],
    &["model", "data"],
    &["train"],
    &["eval", "ssl"],
    &["report"],
    &["study"],
    &["cli"],
];

/// What writes to the terminal.
const PRINTING: [&str; 7] = ["println!", "eprintln!", "print!", "eprint!", "dbg!", "stdout()", "stderr()"];

fn layer(name: &str) -> Option<usize> {
    // The package in the folder `cli` has the program's name.
    let name = if name == "dino-vmf" { "cli" } else { name };
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// The folders of the workspace's crates.
fn crates() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let crates = entries.filter(|entry| entry.path().join("Cargo.toml").is_file());
    crates.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect()
}

/// The keys of all tables of dependencies in a manifest: normal, for tests, for build scripts, and those of a target.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        match key.as_str() {
            "dependencies" | "dev-dependencies" | "build-dependencies" => {
                // `alias = { package = "name", .. }` is a dependency on `name`.
                let name = |(key, about): (&String, &toml::Value)| {
                    about.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_owned()
                };
                found.extend(table.iter().map(name));
            }
            "target" => {
                for target in table.values().filter_map(toml::Value::as_table) {
                    found.extend(dependencies(target));
                }
            }
            _ => {}
        }
    }
    found
}

/// What is wrong with the dependencies of one crate.
fn wrong_dependencies(name: &str, manifest: &toml::Table, workspace: &BTreeSet<String>) -> Vec<String> {
    let Some(own) = layer(name) else { return vec![format!("crate {name} has no place in LAYERS")] };
    let is_wrong = |dependency: &String| match layer(dependency) {
        Some(0) if own == 0 => false,
        Some(other) => other >= own,
        None => false,
    };
    let ours = dependencies(manifest).into_iter().filter(|dependency| workspace.contains(dependency));
    ours.filter(is_wrong).map(|dependency| format!("{name} must not depend on {dependency}")).collect()
}

#[test]
fn dependencies_between_crates_point_down() {
    let crates = crates();
    let mut names: BTreeSet<String> = crates.iter().map(|(name, _)| name.clone()).collect();
    names.insert("dino-vmf".to_owned());
    let mut wrong = Vec::new();
    for (name, folder) in &crates {
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        wrong.extend(wrong_dependencies(name, &manifest, &names));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(crates.len() >= 10, "the crates were not found: {crates:?}");
}

#[test]
fn a_dependency_that_points_up_or_aside_is_found() {
    let names = LAYERS.iter().copied().flatten().chain(&["dino-vmf"]);
    let workspace = names.map(|name| (*name).to_owned()).collect();
    let check = |name: &str, manifest: &str| wrong_dependencies(name, &manifest.parse().unwrap(), &workspace);
    assert!(
        check("ssl", "[dependencies]\ntrain.workspace = true\nvmf = { path = \"../vmf\" }\nserde = \"1\"").is_empty()
    );
    assert!(check("random", "[dependencies]\ntext.workspace = true").is_empty());
    for (name, manifest) in [
        ("eval", "[dependencies]\nssl.workspace = true"),
        ("eval", "[dependencies]\nlearning = { package = \"ssl\", path = \"../ssl\" }"),
        ("data", "[dev-dependencies]\nmodel.workspace = true"),
        ("files", "[build-dependencies]\nvmf = { path = \"../vmf\" }"),
        ("tensor", "[target.'cfg(unix)'.dependencies]\ndata.workspace = true"),
        ("report", "[dependencies]\ndino-vmf = { path = \"../cli\" }"),
        ("unheard-of", ""),
    ] {
        assert_eq!(check(name, manifest).len(), 1, "{name}: {manifest}");
    }
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(sources(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
    found
}

/// Rust source with the content of comments, strings and characters blanked out, so that what is left is code.
fn code_of(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let starts = |at: usize, text: &str| text.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    let (mut code, mut at) = (String::with_capacity(source.len()), 0);
    while at < chars.len() {
        let hashes = chars[at..].iter().skip(1).take_while(|&&c| c == '#').count();
        let end = if starts(at, "//") {
            (at..chars.len()).find(|&i| chars[i] == '\n')
        } else if starts(at, "/*") {
            (at + 2..chars.len()).find(|&i| starts(i, "*/")).map(|i| i + 2)
        } else if chars[at] == 'r' && chars.get(at + 1 + hashes) == Some(&'"') {
            let close = format!("\"{}", "#".repeat(hashes));
            (at + 2 + hashes..chars.len()).find(|&i| starts(i, &close)).map(|i| i + close.len())
        } else if chars[at] == '"' {
            closing_quote(&chars, at + 1, '"')
        } else if chars[at] == '\'' && (chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'')) {
            // A character; anything else after a quote is a lifetime.
            closing_quote(&chars, at + 1, '\'')
        } else {
            code.push(chars[at]);
            at += 1;
            continue;
        };
        let end = end.unwrap_or(chars.len());
        code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// The place after a closing quote, backslashes heeded.
fn closing_quote(chars: &[char], mut at: usize, quote: char) -> Option<usize> {
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    Some(chars.len().min(at + 1))
}

/// Code without its test modules, and the names of test modules that are files of their own.
fn without_tests(code: &str) -> (String, Vec<String>) {
    const TEST: &str = "#[cfg(test)]";
    let (mut kept, mut files, mut rest) = (String::new(), Vec::new(), code);
    while let Some(start) = rest.find(TEST) {
        kept += &rest[..start];
        rest = &rest[start + TEST.len()..];
        // The item ends with a semicolon, or with the brace that closes its first one.
        let body = rest.find(['{', ';']).unwrap_or(rest.len());
        if let Some(name) = rest[..body].split_once("mod ").filter(|_| rest[body..].starts_with(';')) {
            files.push(name.1.trim().to_owned());
        }
        let mut depth = 0;
        let end = rest[body..].char_indices().find(|&(_, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        rest = end.map_or("", |(i, _)| &rest[body + i + 1..]);
    }
    (kept + rest, files)
}

/// The macros and handles that print in a piece of code without its tests.
fn printing(code: &str) -> Vec<&'static str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let found = |what: &&str| code.match_indices(what).any(|(at, _)| !code[..at].ends_with(is_word));
    PRINTING.into_iter().filter(|what| found(what)).collect()
}

#[test]
fn no_crate_but_the_program_prints() {
    let (mut wrong, mut test_files, mut read) = (Vec::new(), BTreeSet::new(), 0);
    for (name, folder) in crates().into_iter().filter(|(name, _)| name != "cli") {
        for file in sources(&folder.join("src")) {
            let (code, tests) = without_tests(&code_of(&fs::read_to_string(&file).unwrap()));
            let beside = match file.file_stem().and_then(|stem| stem.to_str()) {
                Some("lib" | "mod") | None => file.with_file_name(""),
                Some(_) => file.with_extension(""),
            };
            for test in tests {
                test_files.extend([beside.join(format!("{test}.rs")), beside.join(test).join("mod.rs")]);
            }
            wrong.extend(printing(&code).into_iter().map(|what| (file.clone(), format!("{name}: {what}"))));
            read += 1;
        }
    }
    wrong.retain(|(file, _)| !test_files.contains(file));
    assert!(wrong.is_empty(), "only the program prints; a library returns what there is to say: {wrong:#?}");
    assert!(read > 100, "the sources were not found");
}

#[test]
fn printing_is_found_in_code_alone() {
    let found = |source: &str| printing(&without_tests(&code_of(source)).0);
    for clean in [
        "/// println!(\"{}\", x);\nfn a() {} // dbg!(x)\n/* eprintln!() */",
        "fn a() -> &'static str { \"print! \\\" println!\" }",
        "const A: &str = r#\"dbg!(\"x\")\"#; const B: char = '\"'; const C: char = '\\'';",
        "#[cfg(test)]\nmod tests { fn a() { let x = \"}\"; println!(\"}}\"); } }\nfn b() {}",
        "fn a() { my_println!(1) }",
    ] {
        assert!(found(clean).is_empty(), "{clean}");
    }
    assert_eq!(found("fn a<'a>(x: &'a str) { println!(\"{x}\") }"), ["println!"]);
    assert_eq!(found("#[cfg(test)]\nmod tests { fn a() {} }\nfn b() { dbg!(1); }"), ["dbg!"]);
    assert_eq!(found("#[cfg(test)]\nmod golden;\nfn b() { writeln!(io::stderr(), \"x\"); }"), ["stderr()"]);
    assert_eq!(without_tests("#[cfg(test)]\nmod golden;\nfn b() {}").1, ["golden"]);
}
