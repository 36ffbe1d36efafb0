//! `tinygpt info` of what was trained.

use super::*;

#[test]
fn a_run_and_its_checkpoints_tell_how_far_they_came() {
    let place = Place::with_run(&[]);
    let page = place.succeeds(&["info", "runs/quick"]);
    assert!(page.contains(" (random batches), "), "{page}");
    let begins = "runs/quick\nbest       step 3 of 3, best validation loss ";
    assert!(page.starts_with(begins), "{page}");
    assert!(page.contains("\nlast       step 3 of 3, best validation loss "), "{page}");
    for name in ["runs/quick", "runs/quick/last", "runs/quick/last/model.safetensors"] {
        let page = place.succeeds(&["info", name]);
        assert!(page.contains("96 tokens in "), "{page}");
        assert!(page.contains("\ntokenizer  18 characters\n"), "{page}");
        assert!(page.contains("B = 2 sequences of T = 16 tokens"), "{page}");
        assert!(page.contains("(18, 16)"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }
    place.break_a_weight(); // and leaves weights only
    assert!(place.succeeds(&["info", "runs/quick/best"]).contains("training   weights only\n"));
}

#[test]
fn what_is_neither_a_run_nor_a_checkpoint_is_said_to_be_so() {
    let place = Place::with_run(&[]);
    std::fs::create_dir(place.path("empty")).unwrap();
    assert!(place.fails(1, &["info", "empty"]).contains("empty is an empty folder"));
    copy(&place.path("runs/quick/last"), &place.path("strange"));
    place.write("strange/config.json", r#"{"model_type": "tinygpt", "format_version": 1}"#);
    let message = place.fails(1, &["info", "strange"]);
    assert!(message.contains("config.json") && message.contains("has no "), "{message}");
    let message = place.fails(2, &["info", "nowhere"]);
    assert!(message.contains("nowhere: no such preset, folder or file"), "{message}");
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let place = Place::new();
    place.write("t.txt", "to be");
    let (code, _, message) = place.run(&["info", "t.txt"]);
    assert!(code == 1 && message.contains("error: t.txt is no model"), "{message}");
}
