//! What is written is read back: weights bit for bit, tokenizers, and numbers in fewer bits.

use super::*;

fn export<'a>(config: &'a GptConfig, params: &'a Params) -> Export<'a> {
    Export { name: "tiny", config, params, tokenizer: None, state: None, kept: Kept::F32 }
}

const FORMATS: [Format; 4] =
    [Format::HuggingFace, Format::Safetensors, Format::NanoGpt, Format::Gguf];

#[test]
fn every_shape_comes_back_bit_for_bit_and_missing_biases_as_zeros() {
    let parent = tempfile::tempdir().unwrap();
    let mut number = 0;
    for format in FORMATS {
        for (bias, tied) in [(true, true), (false, true), (true, false), (false, false)] {
            let config = GptConfig { bias, tied, ..tiny(format) };
            let whole = params(&config, 1);
            number += 1;
            let to = parent.path().join(number.to_string());
            if format == Format::NanoGpt && !tied {
                let error = export(&config, &whole).write(format, &to, false).unwrap_err();
                assert!(error.to_string().starts_with("tied = false"), "{error}");
                continue;
            }
            export(&config, &whole).write(format, &to, false).unwrap();
            let model = Model::open(&to).unwrap();
            let adds = matches!(format, Format::HuggingFace | Format::Gguf);
            let expected = GptConfig { bias: bias || adds, ..config.clone() };
            assert_eq!(model.config, expected, "{format:?}");
            let back = tensors(&model.read().unwrap());
            let ours: BTreeMap<_, _> = tensors(&whole).into_iter().collect();
            for (name, bits) in back {
                match ours.get(&name) {
                    Some(expected) => assert_eq!(&bits, expected, "{format:?} {name}"),
                    None => assert!(name.ends_with(".bias") && bits.iter().all(|&x| x == 0)),
                }
            }
        }
    }
}

#[test]
fn a_short_context_says_how_many_new_tokens_fit_and_a_long_one_needs_not() {
    let parent = tempfile::tempdir().unwrap();
    for (block_size, expected) in [(1, Some(1)), (5, Some(4)), (256, Some(255)), (257, None)] {
        let config = GptConfig { block_size, ..tiny(Format::HuggingFace) };
        let to = parent.path().join(block_size.to_string());
        export(&config, &params(&config, 1)).write(Format::HuggingFace, &to, false).unwrap();
        let text = fs::read_to_string(to.join("generation_config.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["max_new_tokens"].as_u64(), expected, "{block_size}");
    }
}

#[test]
fn fewer_bits_come_back_as_near_as_they_are() {
    let parent = tempfile::tempdir().unwrap();
    for (kept, error) in [(Kept::F16, 1e-3), (Kept::Bf16, 8e-3), (Kept::Q8, 8e-3)] {
        for format in FORMATS {
            let config = GptConfig { n_embd: 64, n_head: 2, ..tiny(format) };
            let whole = params(&config, 1);
            let to = parent.path().join(format!("{kept:?}-{format:?}"));
            let written = Export { kept, ..export(&config, &whole) }.write(format, &to, false);
            if kept == Kept::Q8 && format != Format::Gguf {
                assert!(written.unwrap_err().to_string().contains("only GGUF has it"));
                continue;
            }
            written.unwrap();
            let back = Model::open(&to).unwrap().read().unwrap();
            for ((spec, a), (_, b)) in whole.iter().zip(back.iter()) {
                let largest = a.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst <= error * largest, "{kept:?} {format:?} {}: {worst}", spec.name);
            }
            // Written again they are the same bits: rounding is done once.
            let again = parent.path().join(format!("again-{kept:?}-{format:?}"));
            Export { kept, ..export(&config, &back) }.write(format, &again, false).unwrap();
            if kept != Kept::Q8 {
                assert_eq!(tensors(&Model::open(&again).unwrap().read().unwrap()), tensors(&back));
            }
        }
    }
}

#[test]
fn a_weight_that_f16_cannot_hold_is_named_and_nothing_is_written() {
    let parent = tempfile::tempdir().unwrap();
    let (config, to) = (tiny(Format::HuggingFace), parent.path().join("out"));
    let mut whole = params(&config, 1);
    let spec = whole.table().ln_f.weight.clone();
    whole.get_mut(&spec)[1] = 70000.0;
    let half = Export { kept: Kept::F16, ..export(&config, &whole) };
    let error = half.write(Format::HuggingFace, &to, false).unwrap_err();
    assert!(error.to_string().contains("transformer.ln_f.weight has 70000"), "{error}");
    assert!(error.hint().unwrap().contains("bf16") && !to.exists());
}

#[test]
fn a_weight_that_is_no_number_or_too_large_is_refused_in_every_kind() {
    let parent = tempfile::tempdir().unwrap();
    for (kept, value, said) in [
        (Kept::F32, f32::NAN, "wte.weight has NaN"),
        (Kept::Q8, f32::INFINITY, "wte.weight has inf"),
        (Kept::F16, 70000.0, "too large"),
        (Kept::Bf16, f32::MAX, "too large"),
        (Kept::Q8, 1e7, "too large"),
    ] {
        let config = GptConfig { n_embd: 64, n_head: 2, ..tiny(Format::Gguf) };
        let (mut whole, to) = (params(&config, 1), parent.path().join("out"));
        let spec = whole.table().wte.clone();
        whole.get_mut(&spec)[1] = value;
        let with = Export { kept, ..export(&config, &whole) };
        let error = with.write(Format::Gguf, &to, false).unwrap_err().to_string();
        assert!(error.contains(said) && !to.exists(), "{kept:?}: {error}");
    }
}

#[test]
fn tokenizers_travel_in_every_format_with_padding_for_a_larger_vocabulary() {
    let parent = tempfile::tempdir().unwrap();
    let text = "the cat and the hat and the bat: that is that\n".repeat(20);
    let kind = crate::tokenizer::TokenizerKind::Bpe(280);
    let learned = Tokenizer::from_text(&kind, &text).unwrap();
    let of_gpt2 = Tokenizer::Bpe(Bpe::gpt2());
    for (i, tokenizer) in [Tokenizer::Byte, learned, of_gpt2].into_iter().enumerate() {
        let config = GptConfig { vocab_size: tokenizer.vocab_size() + 7, ..tiny(Format::Gguf) };
        let (whole, to) = (params(&config, 1), parent.path().join(i.to_string()));
        let with = Export { tokenizer: Some(&tokenizer), ..export(&config, &whole) };
        with.write(Format::Gguf, &to, false).unwrap();
        let model = Model::open(&to).unwrap();
        assert_eq!(model.tokenizer().unwrap().unwrap(), tokenizer);
        assert_eq!(model.config.vocab_size, config.vocab_size);
        for format in [Format::HuggingFace, Format::NanoGpt, Format::Safetensors] {
            let to = parent.path().join(format!("{format:?}-{i}"));
            let config = GptConfig { activation: Activation::Gelu, ..config.clone() };
            let with = Export { tokenizer: Some(&tokenizer), ..export(&config, &whole) };
            with.write(format, &to, false).unwrap();
            let read = Model::open(&to).unwrap().tokenizer().unwrap();
            assert_eq!(read.unwrap(), tokenizer, "{format:?}");
        }
    }
}

#[test]
fn a_model_of_gpt2s_vocabulary_without_a_tokenizer_is_taken_to_have_gpt2s() {
    let parent = tempfile::tempdir().unwrap();
    for (vocab_size, known) in [(50257, true), (50304, true), (50258, false)] {
        let config = GptConfig { vocab_size, n_layer: 1, ..tiny(Format::NanoGpt) };
        let (whole, to) = (params(&config, 1), parent.path().join(vocab_size.to_string()));
        export(&config, &whole).write(Format::NanoGpt, &to, false).unwrap();
        let model = Model::open(&to).unwrap();
        assert_eq!(model.tokenizer().unwrap().is_some_and(|t| t.name() == "gpt2"), known);
        assert_eq!(model.notices.iter().any(|notice| notice.contains("GPT-2's")), known);
    }
}
