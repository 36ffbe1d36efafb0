//! `tinygpt eval`.

use super::*;

/// The cells of the table's rows, without the last two, which tell the time.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let table = page.split("\n\n").nth(1).unwrap_or_else(|| panic!("no table in {page}"));
    let mut rows = table.lines().map(|line| line.split_whitespace().take(6).collect());
    let headings: Vec<&str> = rows.next().unwrap();
    assert_eq!(headings, ["part", "tokens", "loss", "perplexity", "bits/char", "bits/byte"]);
    rows.collect()
}

fn number(cell: &str) -> f64 {
    cell.parse().unwrap_or_else(|_| panic!("{cell}"))
}

#[test]
fn the_built_in_text_is_cut_as_the_run_cut_it() {
    let place = Place::new();
    place.train(&[]);
    let page = place.succeeds(&["eval"]);
    assert!(
        page.contains("text    Tiny Shakespeare, the whole split\nchance  ln 65 = 4.1744,"),
        "{page}"
    );
    assert!(page.contains("model   runs/quick/best, step 3\n"), "{page}");
    let row = rows(&page).remove(0);
    assert_eq!(row[..2], ["val", "111,540"]);
    let [loss, perplexity, bits] = [2, 3, 4].map(|i| number(row[i]));
    assert!(loss < 4.2 && loss > 3.0, "{page}");
    assert!((perplexity - loss.exp()).abs() < 0.01, "{page}");
    assert!((bits - loss / std::f64::consts::LN_2).abs() < 2e-4, "{page}");
    assert_eq!(row[4], row[5], "ASCII has as many bytes as characters");
    place.train(&["--val-fraction", "0.02", "--out-dir", "out"]);
    assert_eq!(rows(&place.succeeds(&["eval", "out"]))[0][1], "22,308");
}

#[test]
fn a_runs_own_text_is_found_from_the_run_and_from_its_checkpoints() {
    let place = Place::with_run(&[]);
    let whole = TEXT.len() * 20;
    let page = place.succeeds(&["eval", "--split", "both"]);
    let both = rows(&page);
    assert_eq!(both[0][..2], ["train".into(), (whole * 9 / 10).to_string()]);
    assert_eq!(both[1][..2], ["val".into(), (whole / 10).to_string()]);
    for model in ["quick", "runs/quick/best", "runs/quick/best/model.safetensors"] {
        assert_eq!(rows(&place.succeeds(&["eval", model]))[0], both[1], "{model}");
    }
    assert_eq!(rows(&place.succeeds(&["eval", "--split=train"]))[0], both[0]);
    assert_eq!(rows(&place.succeeds(&["eval", "--threads", "3"]))[0], both[1]);
    let mut inside = place.tinygpt(&["eval", "best"]);
    inside.current_dir(place.path("runs/quick"));
    let (code, page, message) = ended(inside);
    assert_eq!(code, 0, "{message}");
    assert_eq!(rows(&page)[0], both[1]);
}

#[test]
fn the_loss_of_rounded_weights_stands_below_that_of_the_models_own() {
    let place = Place::with_run(&[]);
    let page = place.succeeds(&["eval", "--dtype", "f32"]);
    let own = rows(&page)[0].clone();
    assert_eq!(rows(&place.succeeds(&["eval"]))[0], own);
    for (flags, name) in [(["--dtype", "bf16"], "val:bf16"), (["--quantize", "int8"], "val:int8")] {
        let page = place.succeeds(&[&["eval"], &flags[..]].concat());
        let both = rows(&page);
        assert_eq!((both.len(), &both[0]), (2, &own));
        assert_eq!(both[1][0], name);
        let difference = (number(both[1][2]) - number(own[2])).abs();
        assert!(difference < 0.02, "{page}");
    }
    let page = place.succeeds(&["eval", "--split", "both", "--quantize", "int8"]);
    let parts: Vec<_> = rows(&page).iter().map(|row| row[0].to_string()).collect();
    assert_eq!(parts, ["train", "val", "train:int8", "val:int8"]);
}

#[test]
fn a_run_that_nobody_typed_is_named_and_one_that_only_evaluates_is_not_the_newest() {
    let place = Place::with_run(&[]);
    place.train(&["my.txt", "--eval-only", "--out-dir", "runs/looked"]);
    for verb in ["eval", "sample"] {
        let said = place.tinygpt(&[verb]).output().unwrap().stderr;
        assert_eq!(String::from_utf8(said).unwrap(), "the newest run: runs/quick/best\n");
        let said = place.tinygpt(&[verb, "looked"]).output().unwrap().stderr;
        assert_eq!(String::from_utf8(said).unwrap(), "");
    }
    let (code, _, said) = place.run(&["train", "--resume", "runs/looked", "--eval-only=false"]);
    assert_eq!(code, 0, "{said}");
    let said = place.tinygpt(&["eval"]).output().unwrap().stderr;
    assert_eq!(String::from_utf8(said).unwrap(), "the newest run: runs/looked/best\n");
}

#[test]
fn a_run_among_the_texts_is_told_to_come_first() {
    let place = Place::with_run(&[]);
    for run in ["quick", "runs/quick", "runs/quick/best"] {
        let message = place.fails(2, &["eval", "--text", "my.txt", run]);
        let hint = format!("put it first: tinygpt eval {run} --text FILE");
        assert!(message.contains("not a text") && message.contains(&hint), "{message}");
    }
    assert!(place.succeeds(&["eval", "--text", "my.txt"]).contains("text    my.txt, all of it\n"));
}

#[test]
fn another_text_is_measured_in_the_models_tokens() {
    let place = Place::with_run(&[]);
    let page = place.succeeds(&["eval", "--text", "my.txt"]);
    let row = rows(&page).remove(0);
    assert_eq!(row[..2], ["text".into(), (TEXT.len() * 20).to_string()]);
    let piped = place.succeeds_given(&TEXT.repeat(20), &["eval", "--text", "-"]);
    assert_eq!(rows(&piped)[0], row);

    place.write("other.txt", "To be, or nöt to be");
    let message = place.fails(1, &["eval", "--text", "other.txt"]);
    assert!(message.contains("other.txt: 1 character not in the vocabulary"), "{message}");
    assert!(message.contains("'ö' at line 1, column 12"), "{message}");
    place.write("one.txt", "T");
    assert!(place.fails(1, &["eval", "--text", "one.txt"]).contains("1 token"));
    place.write("none.txt", "");
    assert!(place.fails(1, &["eval", "--text", "none.txt"]).contains("empty"));
    assert!(place.fails(1, &["eval", "--text", "nowhere.txt"]).contains("nowhere.txt"));
    place.fails(2, &["eval", "--text", "my.txt", "--split", "val"]);
    place.fails(2, &["eval", "--split", "test"]);
}

#[test]
fn bytes_are_compared_by_the_byte() {
    let place = Place::new();
    place.write("my.txt", "é😊".repeat(100));
    place.train(&["my.txt", "--tokenizer", "byte"]);
    let page = place.succeeds(&["eval"]);
    let row = &rows(&page)[0];
    assert_eq!((row[1], row[4]), ("60", "-"));
    assert!((number(row[5]) - number(row[2]) / std::f64::consts::LN_2).abs() < 2e-4, "{page}");
    place.train(&["my.txt", "--out-dir", "chars"]);
    let page = place.succeeds(&["eval", "chars"]);
    let row = &rows(&page)[0];
    assert_eq!(row[1], "20");
    assert!((number(row[4]) - 3.0 * number(row[5])).abs() < 1e-3, "{page}");
}

#[test]
fn a_text_that_is_not_there_is_said() {
    let place = Place::with_run(&["--val-fraction", "0"]);
    let message = place.fails(1, &["eval"]);
    assert!(message.contains("there is no validation split"), "{message}");
    assert!(message.contains("hint: --split train, or"), "{message}");
    let (code, page, note) = place.run(&["eval", "--split", "both"]);
    assert_eq!((code, rows(&page).len()), (0, 1));
    assert!(note.starts_with("note: this run has no validation split"), "{note}");

    copy(&place.path("runs/quick/last"), &place.path("alone"));
    let message = place.fails(1, &["eval", "alone"]);
    assert!(message.contains("alone is not in a run"), "{message}");
    assert!(message.contains("hint: name a text: --text FILE"), "{message}");
    let page = place.succeeds(&["eval", "alone", "--text", "my.txt"]);
    assert_eq!(rows(&page)[0][1], (TEXT.len() * 20).to_string());
}

#[test]
fn data_of_another_tokenizer_and_broken_weights_are_refused() {
    let place = Place::with_run(&[]);
    let message = Place::new().fails(1, &["eval"]);
    assert!(message.contains("no latest run yet"), "{message}");
    let others = tinygpt::Tokenizer::from_chars('a'..='q').to_json();
    let own = std::fs::read(place.path("runs/quick/best/tokenizer.json")).unwrap();
    place.write("runs/quick/best/tokenizer.json", others);
    let message = place.fails(1, &["eval"]);
    assert!(message.contains("its tokens are not those of the run's model"), "{message}");
    place.write("runs/quick/best/tokenizer.json", own);
    place.break_a_weight();
    let message = place.fails(1, &["eval"]);
    assert!(message.contains("the loss of runs/quick/best is not finite (NaN)"), "{message}");
}
