//! The machine that something was measured on.

use serde_json::{Value, json};
use std::fs;
use tinygpt::Cpu;

/// The processor's name where the system tells it, else its architecture.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).into()
}

/// It, and how this program uses it, in one line.
pub fn line(cpu: &Cpu, dtype: &str) -> String {
    let threads = match cpu.threads() {
        1 => "1 thread".into(),
        n => format!("{n} threads"),
    };
    format!("{}, {threads}, {}, {dtype}", processor(), cpu.isa().name())
}

/// The same for programs.
pub fn json(cpu: &Cpu) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "processor": processor(),
        "threads": cpu.threads(),
        "isa": cpu.isa().name(),
    })
}

/// The most bytes of memory that this process ever held at once, where the system tells (Linux).
pub fn peak_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// One object with what is in all of them; of two with the same key, the later.
pub fn merged(objects: impl IntoIterator<Item = Value>) -> Value {
    let all = objects.into_iter().filter_map(|object| match object {
        Value::Object(object) => Some(object),
        _ => None,
    });
    Value::Object(all.flatten().collect())
}
