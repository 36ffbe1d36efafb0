//! What trains and what validates, and whether that is enough.

use super::*;
use crate::data::Split;
use crate::tokenizer::TokenizerKind;

#[test]
fn tiny_shakespeare_is_the_original_and_splits_as_nanogpt_does() {
    use sha2::Digest;
    let dataset = build(&Input::TinyShakespeare, &DataOptions::default()).unwrap();
    let text = text_of(&dataset);
    let hash: String = sha2::Sha256::digest(&text).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hash, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed");
    assert_eq!(text.len(), 1_115_394);
    assert_eq!(dataset.tokenizer.vocab_size(), 65);
    assert_eq!(dataset.train.len(), 1_003_854);
    assert_eq!(dataset.val.as_ref().unwrap().len(), 111_540);
    assert_eq!((dataset.train_bytes, dataset.val_bytes), (1_003_854, 111_540));
    assert_eq!(ids(&dataset.train)[..5], [18, 47, 56, 57, 58]);
    assert!(dataset.notices.is_empty(), "{:?}", dataset.notices);
}

#[test]
fn a_text_shorter_than_the_context_is_told_the_largest_block_size_that_works() {
    let dataset = build_text("x".repeat(40), &everything_trains()).unwrap();
    let error = dataset.check(64).unwrap_err();
    assert_has(
        &error.to_string(),
        &["text.txt", "training split has 40 tokens", "block_size = 64 needs 65", "works is 39"],
    );
    dataset.check(39).unwrap();
    dataset.check(40).unwrap_err();

    let one = build_text("x", &everything_trains()).unwrap();
    let error = one.check(1).unwrap_err();
    assert_has(&error.to_string(), &["has 1 token, ", "no block_size works"]);
    let hint = error.hint().unwrap();
    assert!(hint.contains("longer text") && !hint.contains("smaller block_size"), "{hint}");
}

#[test]
fn a_validation_split_shorter_than_the_context_is_found_before_training() {
    let dataset = build_text("x".repeat(500), &DataOptions::default()).unwrap();
    let error = dataset.check(64).unwrap_err();
    assert_has(&error.to_string(), &["validation split has 50 tokens", "works is 49"]);
    assert_has(error.hint().unwrap(), &["val_fraction = 0", "smaller block_size"]);
    dataset.check(49).unwrap();

    let most = DataOptions { val_fraction: 0.9, ..Default::default() };
    let error = build_text("x".repeat(500), &most).unwrap().check(64).unwrap_err();
    assert_has(&error.to_string(), &["training split has 49 tokens", "works is 48"]);
}

#[test]
fn a_val_fraction_of_zero_means_no_validation_and_one_is_refused() {
    let dataset = build_text("x".repeat(500), &everything_trains()).unwrap();
    assert!(dataset.val.is_none() && dataset.train.len() == 500);
    for val_fraction in [1.0, -0.1, f64::NAN, f64::INFINITY] {
        let options = DataOptions { val_fraction, ..Default::default() };
        assert_has(&failure(build_text("x", &options)), &["val_fraction = ", "must be in [0, 1)"]);
    }
    let hardly_any = DataOptions { val_fraction: 1e-20, ..Default::default() };
    let dataset = build_text("x".repeat(500), &hardly_any).unwrap();
    assert_has(&dataset.check(9).unwrap_err().to_string(), &["validation split has 0 tokens"]);
}

#[test]
fn a_shuffled_split_validates_on_both_halves_of_a_text() {
    let text = "a".repeat(5000) + &"b".repeat(5000);
    let count = |split| {
        let dataset = build_text(&text, &DataOptions { split, ..Default::default() }).unwrap();
        let val = ids(&dataset.val.unwrap());
        (dataset.train.len(), val.iter().filter(|&&id| id == 0).count(), val.len())
    };
    assert_eq!(count(Split::Contiguous), (9000, 0, 1000));
    assert_eq!(count(Split::Shuffled), (9000, 500, 1000));
}

#[test]
fn byte_tokens_split_at_the_same_character() {
    let text = "é".repeat(95) + "abcde";
    let options = DataOptions { tokenizer: TokenizerKind::Byte, ..Default::default() };
    let dataset = build_text(text, &options).unwrap();
    assert_eq!((dataset.train.len(), dataset.val.unwrap().len()), (180, 15));
    assert_eq!((dataset.train_bytes, dataset.val_bytes), (180, 15));
}
