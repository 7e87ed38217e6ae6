//! What the environment may ask of a device.

use std::process::Command;

use tensor::{CpuOptions, Device};

/// A variable is of the whole process, so the test runs itself in another one.
#[test]
fn an_unknown_instruction_set_is_an_error_that_names_variable_value_and_words() {
    const UNKNOWN: &str = "avx51";
    if std::env::var(simd::VARIABLE).as_deref() == Ok(UNKNOWN) {
        let error = Device::cpu(CpuOptions::default()).unwrap_err().to_string();
        let named = [simd::VARIABLE, UNKNOWN].into_iter().chain(simd::WORDS);
        named.for_each(|word| assert!(error.contains(word), "{word} is not in: {error}"));
        return;
    }
    let name = "an_unknown_instruction_set_is_an_error_that_names_variable_value_and_words";
    let mut test = Command::new(std::env::current_exe().unwrap());
    let done = test.args(["--exact", name]).env(simd::VARIABLE, UNKNOWN).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
