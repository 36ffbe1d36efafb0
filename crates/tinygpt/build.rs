//! Puts Tiny Shakespeare, byte for byte, where `data/corpus.rs` embeds it.
//!
//! The text comes with the package `femto-gpt`, a dependency for a platform that does not exist:
//! cargo locks and downloads it but never compiles it. That copy lost the two blanks at the end of
//! two lines; they are put back, and the result must have the hash of the text that nanoGPT
//! trains on.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const BYTES: usize = 1_115_394;
const SHA256: &str = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";

/// Lines, counted from 1, that end in two blanks in the original.
const LINES_THAT_LOST_BLANKS: [usize; 2] = [2478, 2479];

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    let lock = Path::new("../../Cargo.lock");
    if lock.exists() {
        // A path that does not exist would make cargo run this at every build.
        println!("cargo::rerun-if-changed={}", lock.display());
    }

    let source = package_folder("femto-gpt")?.join("dataset.txt");
    let text = fs::read_to_string(&source)
        .map_err(|error| format!("cannot read {}: {error}", source.display()))?;
    let text = with_blanks(&text);
    let hash: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    if text.len() != BYTES || hash != SHA256 {
        return Err(format!(
            "{} is not Tiny Shakespeare: found {} bytes with sha256 {hash}, expected {BYTES} bytes \
             with sha256 {SHA256}",
            source.display(),
            text.len()
        ));
    }
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
        .join("tinyshakespeare.txt");
    fs::write(&target, text).map_err(|error| format!("cannot write {}: {error}", target.display()))
}

fn with_blanks(text: &str) -> String {
    let line_of = |(i, line): (usize, &str)| {
        let (words, end) = line.split_at(line.trim_end_matches('\n').len());
        let blanks = if LINES_THAT_LOST_BLANKS.contains(&(i + 1)) { "  " } else { "" };
        format!("{words}{blanks}{end}")
    };
    text.split_inclusive('\n').enumerate().map(line_of).collect()
}

/// Where cargo keeps the sources of one of our dependencies.
fn package_folder(name: &str) -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked"])
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata failed; without a network, run `cargo fetch --locked` where there is \
             one first\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let manifest = packages
        .iter()
        .find(|package| package["name"] == name)
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or_else(|| format!("cargo metadata knows no package {name}"))?;
    Ok(Path::new(manifest).with_file_name(""))
}
