//! The scripts in `tools/`.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `tools/gpu-test --build` with a cargo of our own, which shows errors where the real one does.
fn gpu_test(cargo: &str) -> (tempfile::TempDir, Output) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cargo");
    fs::write(&path, format!("#!/bin/bash\n{cargo}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/gpu-test");
    let paths = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let out = folder.path().join("programs");
    let output = Command::new(script).arg("--build").arg(out).env("PATH", paths).output().unwrap();
    (folder, output)
}

#[test]
fn a_gpu_test_that_does_not_compile_shows_the_error() {
    // With `json` alone the real one writes errors into its messages, and nothing that a person could read.
    let (_folder, ended) =
        gpu_test("[[ $* == *json-render-diagnostics* ]] && echo 'error[E0308]: mismatched types' >&2; exit 101");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success());
    assert!(said.contains("error[E0308]: mismatched types"), "{said}");
    assert!(said.contains("gpu-test: tensor operations was not built"), "{said}");
}

#[test]
fn a_gpu_test_that_compiles_is_there_with_what_runs_it() {
    let (folder, ended) = gpu_test("echo '{\"reason\":\"x\"}'; echo \"{\\\"executable\\\":\\\"$0\\\"}\"");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    for name in ["tensor-operations", "ssl-gpu", "eval-gpu", "run", "sanitize"] {
        assert!(folder.path().join("programs").join(name).is_file(), "{name}");
    }
}
