//! Every layout in which other programs keep the same model.

use super::*;
use half::{bf16, f16};

fn reads_as(path: &Path, format: Format, expected: &Params) -> Model {
    let model = Model::open(path).unwrap();
    assert_eq!(model.format, format, "{}", path.display());
    assert_eq!(tensors(&model.read().unwrap()), tensors(expected), "{}", path.display());
    model
}

#[test]
fn a_gpt2_folder_is_read_with_and_without_its_prefix_and_with_old_buffers() {
    let config = tiny(Format::HuggingFace);
    let expected = params(&config, 1);
    for (prefix, buffers) in [("transformer.", false), ("", false), ("", true), ("module.", true)] {
        let (_parent, folder) = hf_folder(&config, 1);
        let mut files: Files = theirs(&expected)
            .into_iter()
            .map(|(name, file)| (name.replacen("transformer.", prefix, 1), file))
            .collect();
        if buffers {
            let name = |part| format!("{prefix}h.0.attn.{part}");
            files.insert(name("bias"), (Dtype::U8, vec![1, 1, 5, 5], vec![1; 25]));
            files.insert(name("masked_bias"), (Dtype::F32, vec![], vec![0; 4]));
        }
        write_safetensors(&folder.join("model.safetensors"), &files, None);
        let model = reads_as(&folder, Format::HuggingFace, &expected);
        assert_eq!(model.config, GptConfig { dropout: 0.1, ..config.clone() });
        // The file alone means the same while its config.json lies beside it.
        reads_as(&folder.join("model.safetensors"), Format::HuggingFace, &expected);
    }
}

#[test]
fn a_sharded_folder_is_read_as_one_and_a_missing_shard_is_named() {
    let config = tiny(Format::HuggingFace);
    let (_parent, folder) = hf_folder(&config, 1);
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    let (mut shards, mut map) = (vec![Files::new(); 3], serde_json::Map::new());
    for (i, (name, file)) in theirs(&params(&config, 1)).into_iter().enumerate() {
        map.insert(name.clone(), format!("model-0000{}-of-00003.safetensors", i % 3 + 1).into());
        shards[i % 3].insert(name, file);
    }
    for (i, files) in shards.iter().enumerate() {
        let name = format!("model-0000{}-of-00003.safetensors", i + 1);
        write_safetensors(&folder.join(name), files, None);
    }
    let index = folder.join("model.safetensors.index.json");
    let json = |map: &serde_json::Map<_, _>| serde_json::json!({ "weight_map": map }).to_string();
    fs::write(&index, json(&map)).unwrap();
    assert!(exists(&folder));
    reads_as(&folder, Format::HuggingFace, &params(&config, 1));

    map.insert("x".into(), "../../secret.safetensors".into());
    fs::write(&index, json(&map)).unwrap();
    assert!(message(&folder).contains("is no file's name"), "{}", message(&folder));
    map.remove("x");
    fs::write(&index, json(&map)).unwrap();
    fs::remove_file(folder.join("model-00002-of-00003.safetensors")).unwrap();
    let text = message(&folder);
    assert!(text.contains("model-00002-of-00003.safetensors is missing"), "{text}");
}

#[test]
fn numbers_of_16_bits_are_read_as_what_they_stand_for() {
    let config = tiny(Format::HuggingFace);
    let whole = params(&config, 1);
    type Round = fn(f32) -> (f32, u16);
    let kinds: [(Dtype, Round); 2] = [
        (Dtype::F16, |x| (f16::from_f32(x).to_f32(), f16::from_f32(x).to_bits())),
        (Dtype::BF16, |x| (bf16::from_f32(x).to_f32(), bf16::from_f32(x).to_bits())),
    ];
    for (dtype, round) in kinds {
        let (_parent, folder) = hf_folder(&config, 1);
        let mut files = theirs(&whole);
        for (kept, _, bytes) in files.values_mut() {
            let floats = bytes.as_chunks().0.iter().map(|le| f32::from_le_bytes(*le));
            (*kept, *bytes) = (dtype, floats.flat_map(|x| round(x).1.to_le_bytes()).collect());
        }
        write_safetensors(&folder.join("model.safetensors"), &files, None);
        let mut expected = whole.clone();
        expected.data_mut().iter_mut().for_each(|x| *x = round(*x).0);
        reads_as(&folder, Format::HuggingFace, &expected);
    }
}

#[test]
fn the_shapes_of_a_bare_file_tell_what_model_it_is_and_the_rest_is_said_to_be_assumed() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("any name");
    let config = GptConfig { n_embd: 128, n_head: 2, ..tiny(Format::HuggingFace) };
    write_safetensors(&path, &theirs(&params(&config, 1)), None);
    let model = reads_as(&path, Format::Safetensors, &params(&config, 1));
    assert_eq!(model.config, config);
    assert_eq!(model.notices.len(), 2, "{:?}", model.notices);
    assert!(model.notices[0].contains("n_head = 2 is assumed"), "{:?}", model.notices);

    let ours = GptConfig { activation: Activation::Gelu, bias: false, tied: false, ..config };
    checkpoint::save(&parent.path().join("run"), &ours, &params(&ours, 2), None, None).unwrap();
    fs::rename(parent.path().join("run/model.safetensors"), &path).unwrap();
    let model = reads_as(&path, Format::Safetensors, &params(&ours, 2));
    assert_eq!(model.config, ours);

    let narrow = tiny(Format::HuggingFace);
    write_safetensors(&path, &theirs(&params(&narrow, 1)), None);
    assert!(message(&path).contains("does not say its n_head"), "{}", message(&path));
    write_safetensors(&path, &theirs(&params(&narrow, 1)), Some(("n_head", "3".into())));
    assert_eq!(reads_as(&path, Format::Safetensors, &params(&narrow, 1)).config, narrow);
}

#[test]
fn what_another_gpt2_computes_otherwise_is_refused_by_key() {
    let config = tiny(Format::HuggingFace);
    for (key, value, part) in [
        ("activation_function", serde_json::json!("relu"), "activation_function is \"relu\""),
        ("n_inner", 12.into(), "n_inner is 12"),
        ("layer_norm_epsilon", 1e-6.into(), "layer_norm_epsilon is 0.000001"),
        ("scale_attn_weights", false.into(), "scale_attn_weights is false"),
        ("scale_attn_by_inverse_layer_idx", true.into(), "scale_attn_by_inverse_layer_idx"),
        ("add_cross_attention", true.into(), "add_cross_attention is true"),
        ("n_head", 4.into(), "multiple of n_head = 4"),
        ("n_layer", "two".into(), "is no GPT-2's"),
        ("n_layer", 3.into(), "missing transformer.h.2.ln_1.weight"),
        ("n_embd", 12.into(), "expected (7, 12), found (7, 6)"),
    ] {
        let (_parent, folder) = hf_folder(&config, 1);
        let mut json = config_json(&config);
        json[key] = value;
        fs::write(folder.join("config.json"), json.to_string()).unwrap();
        assert!(message(&folder).contains(part), "{part}: {}", message(&folder));
    }
}

#[test]
fn a_square_projection_is_turned_although_its_shape_does_not_show_it() {
    let config = tiny(Format::HuggingFace);
    let (_parent, folder) = hf_folder(&config, 1);
    let read = Model::open(&folder).unwrap().read().unwrap();
    let (turned, mut stored) = (read.block(0).attn.c_proj.weight.to_vec(), vec![0.0; 36]);
    let bytes = &theirs(&params(&config, 1))["transformer.h.0.attn.c_proj.weight"].2;
    stored.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, le)| *x = f32::from_le_bytes(*le));
    for o in 0..6 {
        for i in 0..6 {
            assert_eq!(turned[o * 6 + i], stored[i * 6 + o]);
        }
    }
}

#[test]
fn tensors_that_are_missing_or_unexpected_are_named_and_a_pickled_folder_is_told_how() {
    let config = tiny(Format::HuggingFace);
    let (_parent, folder) = hf_folder(&config, 1);
    let mut files = theirs(&params(&config, 1));
    files.remove("transformer.ln_f.bias");
    files.insert("score.weight".into(), (Dtype::F32, vec![2, 6], vec![0; 48]));
    write_safetensors(&folder.join("model.safetensors"), &files, None);
    let text = message(&folder);
    assert!(text.contains("missing transformer.ln_f.bias (6)"), "{text}");
    assert!(text.contains("unexpected score.weight (2, 6)"), "{text}");

    fs::remove_file(folder.join("model.safetensors")).unwrap();
    assert!(message(&folder).contains("were not copied"), "{}", message(&folder));
    fs::write(folder.join("pytorch_model.bin"), "PK").unwrap();
    assert!(message(&folder).contains("save_pretrained"), "{}", message(&folder));
}
