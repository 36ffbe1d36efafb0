//! Puts Tiny Shakespeare and GPT-2's merges, byte for byte, where `data/corpus.rs` and
//! `tokenizer/bpe.rs` embed them.
//!
//! Each comes with a package that is a dependency for a platform that does not exist: cargo locks
//! and downloads it but never compiles it. `femto-gpt` carries the text, but its copy lost the two
//! blanks at the end of two lines; they are put back. `tiktoken-rs` carries OpenAI's `vocab.bpe`.
//! Both must have the hash of the original.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TEXT_SHA256: &str = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";
const MERGES_SHA256: &str = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";

/// Lines, counted from 1, that end in two blanks in the original.
const LINES_THAT_LOST_BLANKS: [usize; 2] = [2478, 2479];

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    let lock = Path::new("../../Cargo.lock");
    if lock.exists() {
        // A path that does not exist would make cargo run this at every build.
        println!("cargo::rerun-if-changed={}", lock.display());
    }
    let metadata = metadata()?;
    let text = carried(&metadata, "femto-gpt", "dataset.txt")?;
    put("tinyshakespeare.txt", &with_blanks(&text), TEXT_SHA256)?;
    let merges = carried(&metadata, "tiktoken-rs", "assets/vocab.bpe")?;
    put("gpt2_merges.txt", &merges, MERGES_SHA256)
}

/// The text of a file of one of our dependencies.
fn carried(metadata: &serde_json::Value, package: &str, file: &str) -> Result<String, String> {
    let path = package_folder(metadata, package)?.join(file);
    fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Writes a text that has the hash it must have.
fn put(name: &str, text: &str, sha256: &str) -> Result<(), String> {
    let hash: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    if hash != sha256 {
        return Err(format!(
            "{name} is not the original: found {} bytes with sha256 {hash}, expected {sha256}",
            text.len()
        ));
    }
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(name);
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

/// What cargo knows of our dependencies.
fn metadata() -> Result<serde_json::Value, String> {
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
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// Where cargo keeps the sources of one of our dependencies.
fn package_folder(metadata: &serde_json::Value, name: &str) -> Result<PathBuf, String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let manifest = packages
        .iter()
        .find(|package| package["name"] == name)
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or_else(|| format!("cargo metadata knows no package {name}"))?;
    Ok(Path::new(manifest).with_file_name(""))
}
