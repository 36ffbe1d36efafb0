//! Checkpoints as their users meet them: saved, killed, cut, renamed, and written by other
//! programs.

use super::*;
use crate::model::Tensors;
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

type Files = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn tiny(tied: bool) -> GptConfig {
    GptConfig {
        vocab_size: 5,
        block_size: 4,
        n_layer: 2,
        n_head: 2,
        n_embd: 6,
        tied,
        ..Default::default()
    }
}

fn params(config: &GptConfig, seed: u64) -> Params {
    Params::init(Arc::new(Tensors::of(config)), seed)
}

fn progress(step: u64) -> Progress {
    let train = TrainConfig { learning_rate: 0.1 + 0.2, seed: u64::MAX, ..Default::default() };
    let (best_val_loss, elapsed_s) = (Some(1.4697), 1.0 / 3.0);
    Progress {
        step,
        best_val_loss,
        stale_evals: 3,
        last_eval: Some(step),
        tokens: 1 << 60,
        elapsed_s,
        source: "a \"text\" called ※".into(),
        train_tokens: 1 << 50,
        train,
        data: DataOptions::default(),
    }
}

/// Saves a checkpoint with everything, of the model that `step` seeds.
fn save_all(folder: &Path, config: &GptConfig, step: u64) -> Result<()> {
    let [p, m, v] = [0, 1, 2].map(|i| params(config, 10 * step + i));
    let state = StateRef { progress: &progress(step), exp_avg: &m, exp_avg_sq: &v };
    save(folder, config, &p, Some("{\"ä\": 1}"), Some(state))
}

/// A saved model with weights only, in a folder that goes away with the first value.
fn saved(config: &GptConfig) -> (tempfile::TempDir, std::path::PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("best");
    save(&folder, config, &params(config, 1), None, None).unwrap();
    (parent, folder)
}

/// Rewrites the model file with the tensors that `change` makes of its own.
fn rewrite(folder: &Path, change: impl FnOnce(&mut Files)) {
    let bytes = fs::read(folder.join(MODEL)).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Files = file
        .iter()
        .map(|(name, view)| (name.into(), (view.dtype(), view.shape().into(), view.data().into())))
        .collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    fs::write(folder.join(MODEL), safetensors::serialize(views, None).unwrap()).unwrap();
}

fn message(path: &Path) -> String {
    let error = Checkpoint::load(path).unwrap_err();
    format!("{error} | {}", error.hint().unwrap_or("no hint"))
}

#[test]
fn what_is_saved_is_loaded_bit_for_bit() {
    for (tied, bias) in [(true, false), (false, true)] {
        let config = GptConfig { bias, dropout: 0.2, ..tiny(tied) };
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("deep/best");
        save_all(&folder, &config, 7).unwrap();
        let loaded = Checkpoint::load(&folder).unwrap();
        assert_eq!(loaded.config, config);
        assert_eq!(loaded.params.data(), params(&config, 70).data());
        assert_eq!(loaded.tokenizer_json.as_deref(), Some("{\"ä\": 1}"));
        let state = TrainState::load(&folder, loaded.params.table()).unwrap();
        assert_eq!(state.progress, progress(7));
        assert_eq!(state.exp_avg.data(), params(&config, 71).data());
        assert_eq!(state.exp_avg_sq.data(), params(&config, 72).data());
        assert_eq!(read_progress(&folder).unwrap(), Some(progress(7)));
        assert_eq!(read_config(&folder).unwrap(), config);
        assert_eq!(Checkpoint::load(&folder.join(MODEL)).unwrap().config, config);
    }
}

#[test]
fn the_same_training_makes_the_same_bytes() {
    let parent = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| parent.path().join(name));
    folders.iter().for_each(|folder| save_all(folder, &tiny(false), 3).unwrap());
    for name in FILES {
        let [a, b] = folders.each_ref().map(|folder| fs::read(folder.join(name)).unwrap());
        assert_eq!(a, b, "{name}");
    }
}

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
fn weights_only_load_and_resuming_them_says_what_is_missing() {
    let (_parent, folder) = saved(&tiny(true));
    let checkpoint = Checkpoint::load(&folder).unwrap();
    assert_eq!(checkpoint.tokenizer_json, None);
    assert_eq!(read_progress(&folder).unwrap(), None);
    let error = TrainState::load(&folder, checkpoint.params.table()).unwrap_err();
    assert!(error.to_string().contains("weights only: no training_state.safetensors"), "{error}");
    assert!(error.hint().unwrap().contains("new run"));
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
fn a_weight_that_is_no_number_is_named() {
    let (_parent, folder) = saved(&tiny(true));
    let mut checkpoint = Checkpoint::load(&folder).unwrap();
    checkpoint.check_finite(&folder).unwrap();
    let spec = checkpoint.params.table().ln_f.weight.clone();
    checkpoint.params.get_mut(&spec)[2] = f32::INFINITY;
    let error = checkpoint.check_finite(&folder).unwrap_err();
    assert!(error.to_string().contains("transformer.ln_f.weight[2] of "), "{error}");
    assert!(error.hint().unwrap().contains("another checkpoint"), "{error:?}");
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
fn missing_unexpected_misshapen_and_half_precision_tensors_are_named() {
    let (_parent, folder) = saved(&tiny(true));
    rewrite(&folder, |tensors| {
        tensors.remove("transformer.h.1.ln_1.weight");
        tensors.insert("transformer.h.2.ln_1.weight".into(), (Dtype::F32, vec![6], vec![0; 24]));
        tensors.get_mut("transformer.wte.weight").unwrap().1 = vec![6, 5];
        let ln_f = (Dtype::F16, vec![6], vec![0; 12]);
        tensors.insert("transformer.ln_f.weight".into(), ln_f);
    });
    let text = message(&folder);
    for part in [
        "missing transformer.h.1.ln_1.weight (6)",
        "unexpected transformer.h.2.ln_1.weight (6)",
        "transformer.wte.weight: expected (5, 6), found (6, 5)",
        "transformer.ln_f.weight: expected F32, found F16",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    rewrite(&folder, |tensors| tensors.retain(|name, _| name.contains("ln_f")));
    let text = message(&folder);
    assert!(text.matches("missing").count() == 5 && text.contains("and 22 more"), "{text}");
}

#[test]
fn a_truncated_file_says_how_many_bytes_it_lacks_wherever_it_is_cut() {
    let (_parent, folder) = saved(&tiny(true));
    let whole = fs::read(folder.join(MODEL)).unwrap();
    let data_start = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for cut in [whole.len() - 1, whole.len() / 2, data_start, data_start - 1, 9] {
        fs::write(folder.join(MODEL), &whole[..cut]).unwrap();
        let expected = if cut < data_start { data_start } else { whole.len() };
        let text = message(&folder);
        assert!(text.contains(&format!("expected {expected} bytes")), "{cut}: {text}");
        assert!(text.contains(&format!("have {cut}")), "{cut}: {text}");
    }
    for cut in [0, 7] {
        fs::write(folder.join(MODEL), &whole[..cut]).unwrap();
        assert!(message(&folder).contains(&format!("has {cut} bytes")), "{}", message(&folder));
    }
    fs::write(folder.join(MODEL), [&whole[..], b"more"].concat()).unwrap();
    assert!(message(&folder).contains("its header describes"), "{}", message(&folder));
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

#[test]
fn folders_that_are_no_checkpoint_say_what_they_are() {
    let parent = tempfile::tempdir().unwrap();
    let run = parent.path().join("run");
    assert!(message(&run).contains("no such file or folder"));
    fs::create_dir(&run).unwrap();
    assert!(message(&run).contains("empty folder"));
    save(&run.join("best"), &tiny(true), &params(&tiny(true), 1), None, None).unwrap();
    assert!(message(&run).contains("is a run") && message(&run).contains("run/best"));
    fs::remove_file(run.join("best/config.json")).unwrap();
    assert!(message(&run.join("best")).contains("a model needs its config.json"));
}

#[test]
fn a_config_that_is_not_ours_or_not_whole_is_refused_by_key() {
    let (_parent, folder) = saved(&tiny(true));
    let whole = fs::read_to_string(folder.join(CONFIG)).unwrap();
    for (from, to, part) in [
        ("\"tinygpt\"", "\"gpt2\"", "Hugging Face"),
        ("\"tinygpt\"", "\"llama\"", "expected \"tinygpt\""),
        ("\"format_version\": 1", "\"format_version\": 2", "format_version is 2"),
        ("\"activation\": \"gelu\"", "\"dropout\": 0", "has no activation"),
        ("\"activation\": \"gelu\"", "\"activation\": \"relu\"", "relu"),
        ("\"bias\"", "\"n_inner\": 24, \"bias\"", "n_inner"),
        ("\"n_head\": 2", "\"n_head\": 4", "multiple of n_head = 4"),
        ("\"n_layer\": 2", "\"n_layer\": 400000000", "n_layer = 400000000: must be at most 10000"),
        ("\"n_embd\": 6", "\"n_embd\": 40000", "found (5, 6)"),
        ("}", "", "is not valid"),
    ] {
        assert!(whole.contains(from), "{from}");
        fs::write(folder.join(CONFIG), whole.replace(from, to)).unwrap();
        assert!(message(&folder).contains(part), "{part}: {}", message(&folder));
    }
}

#[test]
fn headers_that_claim_the_impossible_are_refused_before_anything_is_allocated() {
    let (_parent, folder) = saved(&tiny(true));
    for header in [
        r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#.into(),
        format!(r#"{{"a":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}}"#, u64::MAX / 8),
        "[".repeat(100_000).replacen('[', "{\"a\":", 1),
    ] {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        fs::write(folder.join(MODEL), bytes).unwrap();
        assert!(Checkpoint::load(&folder).is_err(), "{header:.80}");
    }
}

/// A file that may not grow fails as a full disk does, without needing one: `ulimit -f` with the
/// signal ignored makes writes fail, and with the signal left alone it kills in mid-save. The test
/// runs itself again to have a process to limit.
#[cfg(unix)]
#[test]
fn a_full_disk_or_a_kill_while_saving_leaves_the_previous_checkpoint() {
    use std::process::Command;
    if let Some(folder) = std::env::var_os("TINYGPT_TEST_FOLDER") {
        let error = save_all(Path::new(&folder), &tiny(true), 2).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("last");
    save_all(&folder, &tiny(true), 1).unwrap();
    const NAME: &str =
        "checkpoint::tests::a_full_disk_or_a_kill_while_saving_leaves_the_previous_checkpoint";
    for (trap, killed) in [("trap '' XFSZ; ", false), ("", true)] {
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("{trap}ulimit -c 0; ulimit -f 4; exec \"$0\" \"$@\""))
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env("TINYGPT_TEST_FOLDER", &folder)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.success(), !killed);
        let loaded = Checkpoint::load(&folder).unwrap();
        assert_eq!(loaded.params.data(), params(&tiny(true), 10).data());
        assert_eq!(TrainState::load(&folder, loaded.params.table()).unwrap().progress.step, 1);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), if killed { 2 } else { 1 });
    }
    save_all(&folder, &tiny(true), 3).unwrap();
    assert_eq!(read_progress(&folder).unwrap().unwrap().step, 3);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

/// The bytes of every file of a checkpoint, made once.
fn valid_files() -> &'static [Vec<u8>] {
    static VALID: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    VALID.get_or_init(|| {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("best");
        save_all(&folder, &tiny(true), 1).unwrap();
        FILES.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect()
    })
}

/// Loads everything from a folder where file `which` holds `bytes`; anything but a panic will do.
fn load_with(which: usize, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in FILES.iter().zip(valid_files()) {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    fs::write(folder.path().join(FILES[which]), bytes).unwrap();
    let _ = Checkpoint::load(folder.path());
    let _ = read_progress(folder.path());
    let _ = TrainState::load(folder.path(), &Arc::new(Tensors::of(&tiny(true))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn any_bytes_in_any_file_are_an_error_and_no_panic(
        which in 0..4usize,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        length in prop::option::of(any::<u64>()),
    ) {
        let header = length.map(|length| [&length.to_le_bytes()[..], b"{"].concat());
        load_with(which, &[header.unwrap_or_default(), bytes].concat());
    }

    #[test]
    fn a_valid_file_with_damage_is_an_error_or_loads_and_no_panic(
        which in 0..4usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        digits in any::<bool>(),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = valid_files()[which].clone();
        // Half of the time only digits change: lengths, shapes and offsets that are still JSON.
        let may_change = |&i: &usize| !digits || bytes[i].is_ascii_digit();
        let places: Vec<_> = (0..bytes.len()).filter(may_change).collect();
        for (at, value) in damage {
            bytes[*at.get(&places)] = if digits { b'0' + value % 10 } else { value };
        }
        if !digits {
            bytes.truncate(keep.index(2 * bytes.len()).min(bytes.len()));
        }
        load_with(which, &bytes);
    }
}
