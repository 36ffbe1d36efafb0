//! Several processes and one run: one of them trains it, and the others change nothing of it.

use crate::place::{Place, Said, signal, tiny, wait_until};
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::process::Child;
use std::time::Duration;

const OTHER: &str = "another process is training this run";

/// A pipe that holds all it can, as before a pager in which nobody scrolls.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    // Ends when the reader has gone.
    std::thread::spawn(move || while filler.write_all(&[b' '; 4096]).is_ok() {});
    std::thread::sleep(Duration::from_millis(200));
    (reader, writer)
}

/// A training that is about to take its first step and waits until it may say so.
fn held_up(place: &Place, words: &str) -> (PipeReader, Child) {
    let (reader, writer) = full_pipe();
    let child = place.command(words).stdout(writer).spawn().unwrap();
    (reader, child)
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_resume_that_is_refused_leaves_the_settings_of_the_run_that_trains() {
    let place = Place::new();
    place.train("").succeeded();
    let long = "train --resume quick --eval-interval 0 --max-iters 100000001";
    let child = place.command(long).stdout(std::process::Stdio::null()).spawn().unwrap();
    let metrics = place.at("runs/quick/metrics.jsonl");
    wait_until("it trains", || {
        std::fs::read_to_string(&metrics).is_ok_and(|text| text.contains("\"iter\":40,"))
    });
    let before = place.read("runs/quick/config.toml");
    let said = place.run("train --resume quick --learning-rate 0.5 --max-iters 7777777");
    assert!(said.err.contains(OTHER) && !said.err.contains("changed"), "{}", said.err);
    said.failed(1);
    assert_eq!(place.read("runs/quick/config.toml"), before);
    end(child);
    place.run("train --resume quick --max-iters 20").succeeded();
}

#[test]
fn a_resume_that_waits_to_be_read_keeps_others_from_going_on_without_it() {
    let place = Place::new();
    place.train("").succeeded();
    let (reader, child) = held_up(&place, "train --resume quick --max-iters 30");
    wait_until("it has read the checkpoint", || {
        place.read("runs/quick/config.toml").contains("max_iters = 30 ")
    });
    let error = place.run("train --resume quick --max-iters 2000").failed(1);
    assert!(error.contains(OTHER), "{error}");
    assert_eq!(place.step_of("runs/quick/last"), 20);
    let reading = std::thread::spawn(move || std::io::copy(&mut { reader }, &mut std::io::sink()));
    Said::of(child.wait_with_output().unwrap());
    assert_eq!(place.step_of("runs/quick/last"), 30);
    drop(reading);
    place.run("train --resume quick --max-iters 40").succeeded();
}

#[test]
fn a_run_is_not_replaced_between_its_making_and_its_first_step() {
    let place = Place::new();
    let (_reader, child) = held_up(&place, &tiny("--out-dir out --overwrite"));
    wait_until("its folder is made", || place.at("out/config.toml").exists());
    let before = place.read("out/config.toml");
    for words in ["--out-dir out --overwrite --max-iters 3", "--out-dir out --overwrite"] {
        let error = place.train(words).failed(1);
        assert!(error.contains(OTHER), "{error}");
        assert_eq!(place.read("out/config.toml"), before);
    }
    end(child);
    place.train("--out-dir out --overwrite").succeeded();
}

#[test]
fn a_signal_while_a_new_run_waits_to_be_read_saves_it() {
    let place = Place::new();
    let (reader, child) = held_up(&place, &tiny("--out-dir out"));
    wait_until("its folder is made", || place.at("out/config.toml").exists());
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(100));
    let reading = std::thread::spawn(move || std::io::copy(&mut { reader }, &mut std::io::sink()));
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    drop(reading);
    assert_eq!(place.step_of("out/last"), 0);
    place.run("train --resume").succeeded();
}
