//! What other programs write: other names, other tensors, other formats.

use super::*;

#[test]
fn the_formats_own_library_reads_what_we_write_and_finds_no_tied_head() {
    let (_parent, folder) = saved(&tiny(true));
    let bytes = fs::read(folder.join(MODEL)).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), Tensors::of(&tiny(true)).iter().count());
    assert_eq!(file.tensor("transformer.wte.weight").unwrap().shape(), [5, 6]);
    assert!(file.tensor("lm_head.weight").is_err());
    let (length, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    assert!(length.is_multiple_of(8));
}

#[test]
fn prefixes_of_other_programs_are_stripped_and_ours_may_be_absent() {
    for prefix in ["_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod."] {
        let (_parent, folder) = saved(&tiny(true));
        rewrite(&folder, |tensors| {
            *tensors = std::mem::take(tensors)
                .into_iter()
                .map(|(name, tensor)| (format!("{prefix}{name}"), tensor))
                .collect();
        });
        let loaded = Checkpoint::load(&folder).unwrap();
        assert_eq!(loaded.params.data(), params(&tiny(true), 1).data(), "{prefix}");
    }
    let (_parent, folder) = saved(&tiny(true));
    rewrite(&folder, |tensors| {
        *tensors = std::mem::take(tensors)
            .into_iter()
            .map(|(name, tensor)| (name.replace("transformer.", ""), tensor))
            .collect();
    });
    assert_eq!(Checkpoint::load(&folder).unwrap().params.data(), params(&tiny(true), 1).data());
    let (_parent, folder) = saved(&tiny(true));
    rewrite(&folder, |tensors| {
        let bias = tensors.remove("transformer.ln_f.bias").unwrap();
        tensors.insert("transformer.module.ln_f.bias".into(), bias);
    });
    assert!(message(&folder).contains("unexpected transformer.module.ln_f.bias"));
}

#[test]
fn mask_buffers_of_old_gpt2_files_are_ignored() {
    let (_parent, folder) = saved(&tiny(true));
    rewrite(&folder, |tensors| {
        let mask = (Dtype::U8, vec![1, 1, 4, 4], vec![1; 16]);
        tensors.insert("transformer.h.0.attn.bias".into(), mask);
        tensors.insert("transformer.h.1.attn.masked_bias".into(), (Dtype::F16, vec![], vec![0; 2]));
    });
    assert_eq!(Checkpoint::load(&folder).unwrap().params.data(), params(&tiny(true), 1).data());
}

#[test]
fn a_stored_head_of_a_tied_model_must_equal_the_embedding() {
    let (_parent, folder) = saved(&tiny(true));
    rewrite(&folder, |tensors| {
        let mut wte = tensors["transformer.wte.weight"].clone();
        // A NaN, to see that it counts as equal to itself.
        wte.2[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        tensors.insert("transformer.wte.weight".into(), wte.clone());
        tensors.insert("lm_head.weight".into(), wte);
    });
    assert!(Checkpoint::load(&folder).unwrap().params.data()[0].is_nan());
    rewrite(&folder, |tensors| tensors.get_mut("lm_head.weight").unwrap().2[8] ^= 1);
    let text = message(&folder);
    assert!(text.contains("lm_head.weight differs from transformer.wte.weight"), "{text}");
    assert!(text.contains("\"tied\": false"), "{text}");
}

#[test]
fn files_of_other_kinds_are_recognised_in_the_folder_and_by_their_own_path() {
    let (_parent, folder) = saved(&tiny(true));
    let zip = folder.join("ckpt.pt");
    fs::write(&zip, b"PK\x03\x04 data.pkl").unwrap();
    assert!(message(&zip).contains("zip archive"), "{}", message(&zip));
    fs::write(folder.join(MODEL), "version https://git-lfs.github.com/spec/v1\noid sha256:1")
        .unwrap();
    assert!(message(&folder).contains("Git LFS pointer"), "{}", message(&folder));
    fs::remove_file(folder.join(MODEL)).unwrap();
    assert!(message(&folder).contains("it has ckpt.pt"), "{}", message(&folder));
}
