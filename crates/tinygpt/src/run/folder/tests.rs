//! Folders of runs: made, numbered, overwritten, taken back.

use super::*;
use crate::config::GptConfig;
use crate::model::{Params, Tensors};

pub(in super::super) fn save(folder: &Path) {
    let config = GptConfig {
        vocab_size: 2,
        block_size: 2,
        n_layer: 1,
        n_head: 1,
        n_embd: 2,
        ..Default::default()
    };
    let params = Params::zeros(std::sync::Arc::new(Tensors::of(&config)));
    checkpoint::save(folder, &config, &params, None, None).unwrap();
}

pub(in super::super) fn said(result: Result<impl std::fmt::Debug>) -> String {
    let error = result.unwrap_err();
    format!("{error} | {}", error.hint().unwrap_or("no hint"))
}

pub(in super::super) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn runs_of_one_name_are_numbered_and_the_latest_is_the_newest() {
    let parent = tempfile::tempdir().unwrap();
    let runs = parent.path().join("runs");
    assert!(
        said(Run::open(&runs, None))
            .contains("runs: there is no latest run yet | `tinygpt train` makes")
    );
    for expected in ["quick", "quick-2", "quick-3"] {
        let run = Run::create(&runs, "quick").unwrap();
        assert_eq!(run.folder(), runs.join(expected));
        assert!(run.call_latest(&runs));
        assert_eq!(Run::open(&runs, None).unwrap().folder(), run.folder());
    }
    assert_eq!(Run::create(&runs, "latest").unwrap().folder(), runs.join("latest-2"));
    assert!(Run::open(&runs, None).unwrap().folder().ends_with("quick-3"), "made, not called so");
    assert_eq!(names(&runs), ["latest", "latest-2", "quick", "quick-2", "quick-3"]);
    for bad in ["", "a/b", "..", "/"] {
        assert!(said(Run::create(&runs, bad)).contains("name of a folder"), "{bad}");
    }
}

#[test]
fn a_run_is_overwritten_only_when_asked_and_a_users_files_stay() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("out");
    Run::create_at(&folder, false).unwrap();
    let run = Run::at(folder.clone()).unwrap();
    save(&run.best());
    save(&run.last());
    fs::create_dir(run.data()).unwrap();
    for path in [run.config(), run.chart(), run.samples(), run.data().join("train.bin")] {
        fs::write(path, "ours").unwrap();
    }
    for path in ["notes.txt", "data/mine.csv", "last/readme"] {
        fs::write(folder.join(path), "mine").unwrap();
    }
    let text = said(Run::create_at(&folder, true));
    assert!(text.contains("last/readme is in the way"), "{text}");
    fs::remove_file(folder.join("last/readme")).unwrap();
    let text = said(Run::create_at(&folder, false));
    assert!(text.contains("--overwrite") && text.contains("--out-dir"), "{text}");
    assert!(checkpoint::exists(&run.best()));
    for name in [TABLE, "events.out.tfevents.0000000001.tinygpt"] {
        fs::write(folder.join(name), "ours").unwrap();
    }
    Run::create_at(&folder, true).unwrap();
    assert_eq!(names(&folder), ["data", "metrics.jsonl", "notes.txt"]);
    assert_eq!(names(&run.data()), ["mine.csv"]);
}

#[test]
fn a_folder_that_is_no_run_is_refused_whatever_is_asked() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("home");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("config.toml"), "mine").unwrap();
    for overwrite in [false, true] {
        let text = said(Run::create_at(&folder, overwrite));
        assert!(text.contains("neither empty nor a run"), "{text}");
        assert_eq!(names(&folder), ["config.toml"]);
    }
    fs::remove_file(folder.join("config.toml")).unwrap();
    Run::create_at(&folder, false).unwrap();
}

#[test]
fn a_run_that_is_taken_back_leaves_what_was_there_before_it_and_a_kept_one_stays() {
    let parent = tempfile::tempdir().unwrap();
    let at = |path: &str| parent.path().join(path);
    fs::create_dir(at("mine")).unwrap();
    let new = Run::create_at(&at("a/b"), false);
    for run in [new, Run::create_at(&at("mine"), false), Run::create(&at("runs"), "quick")] {
        let mut run = run.unwrap();
        fs::create_dir(run.data()).unwrap();
        for path in [run.config(), run.data().join("train.bin")] {
            fs::write(path, "ours").unwrap();
        }
        run.take_back();
    }
    assert_eq!(names(parent.path()), ["mine"]);
    assert!(names(&at("mine")).is_empty());
    let mut run = Run::create(&at("runs"), "quick").unwrap();
    fs::write(run.folder().join("notes.txt"), "mine").unwrap();
    run.take_back();
    assert_eq!(names(&at("runs/quick")), ["notes.txt"]);
    let mut kept = Run::create(&at("runs"), "kept").unwrap();
    kept.keep();
    kept.take_back();
    Run::at(at("runs/kept")).unwrap().take_back();
    assert_eq!(names(&at("runs/kept")), ["metrics.jsonl"]);
}
