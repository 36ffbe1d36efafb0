//! `--profile`: where the time of a run went.

use crate::place::Place;
#[cfg(unix)]
use crate::place::{Said, signal, tiny, wait_until};
use serde_json::Value;

/// The names in a profile, after a look at its numbers.
fn ops(place: &Place) -> Vec<String> {
    let profile: Value = serde_json::from_str(&place.read("runs/quick/profile.json")).unwrap();
    assert!(profile["seconds"].as_f64().unwrap() > 0.0, "{profile}");
    assert!(profile["peak_gflop_per_s"].as_f64().unwrap() > 0.0, "{profile}");
    let ops = profile["ops"].as_array().unwrap();
    let shares: f64 = ops.iter().map(|op| op["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-3, "{profile}");
    ops.iter().map(|op| op["op"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_profile_names_the_ops_of_steps_evaluations_and_samples() {
    let place = Place::new();
    let said = place.train("--profile").succeeded();
    let table = said.out.split("profile     runs/quick/profile.json\n").nth(1).unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let ops = ops(&place);
    for op in ["linear forward", "linear backward dw", "attention backward", "AdamW", "batch"] {
        assert!(ops.iter().any(|name| name == op) && table.contains(op), "{op}: {ops:?}");
    }
    assert!(ops.iter().any(|name| name == "attention cached"), "{ops:?}");
    assert_eq!(ops.last().unwrap(), "rest");
}

#[test]
fn a_run_without_it_has_none_and_one_that_is_replaced_loses_it() {
    let place = Place::new();
    place.train("--profile --out-dir runs/quick").succeeded();
    place.train("--overwrite --out-dir runs/quick").succeeded();
    assert!(!place.names("runs/quick").iter().any(|name| name == "profile.json"));
}

#[cfg(unix)]
#[test]
fn a_run_that_is_stopped_has_its_profile_too() {
    let place = Place::new();
    let long = "--max-iters 4000000 --eval-interval 0 --profile";
    let child = place.command(&tiny(long)).spawn().unwrap();
    wait_until("it trains", || {
        let metrics = std::fs::read_to_string(place.at("runs/quick/metrics.jsonl"));
        metrics.is_ok_and(|text| text.contains("\"iter\":60"))
    });
    signal(&child, "INT");
    let said = Said::of(child.wait_with_output().unwrap()).stopped();
    assert!(said.out.contains("profile     runs/quick/profile.json\n"), "{said:?}");
    assert!(ops(&place).iter().any(|name| name == "AdamW"));
}
