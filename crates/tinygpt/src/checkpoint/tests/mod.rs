//! Checkpoints as their users meet them: saved, killed, cut, renamed, and written by other
//! programs.

mod damage;
mod other_programs;

use super::*;
use crate::model::Tensors;
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

/// AdamW's mean of squares, as [`params`] makes it.
fn squares(config: &GptConfig, seed: u64) -> Params {
    let mut squares = params(config, seed);
    squares.data_mut().iter_mut().for_each(|x| *x = x.abs());
    squares
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
    let [p, m] = [0, 1].map(|i| params(config, 10 * step + i));
    let v = squares(config, 10 * step + 2);
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
        let state = TrainState::load(&folder, &loaded.params).unwrap();
        assert_eq!(state.progress, progress(7));
        assert_eq!(state.exp_avg.data(), params(&config, 71).data());
        assert_eq!(state.exp_avg_sq.data(), squares(&config, 72).data());
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
fn a_training_state_of_another_model_of_the_same_shapes_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| parent.path().join(name));
    save_all(&ours, &tiny(true), 1).unwrap();
    save_all(&theirs, &tiny(true), 2).unwrap();
    fs::copy(theirs.join(STATE), ours.join(STATE)).unwrap();
    let model = Checkpoint::load(&ours).unwrap().params;
    let error = TrainState::load(&ours, &model).unwrap_err().to_string();
    assert!(error.contains("belongs to model"), "{error}");
}

#[test]
fn weights_only_load_and_resuming_them_says_what_is_missing() {
    let (_parent, folder) = saved(&tiny(true));
    let checkpoint = Checkpoint::load(&folder).unwrap();
    assert_eq!(checkpoint.tokenizer_json, None);
    assert_eq!(read_progress(&folder).unwrap(), None);
    let error = TrainState::load(&folder, &checkpoint.params).unwrap_err();
    assert!(error.to_string().contains("weights only: no training_state.safetensors"), "{error}");
    assert!(error.hint().unwrap().contains("new run"));
}

#[test]
fn a_weight_that_is_no_number_is_named() {
    let (_parent, folder) = saved(&tiny(true));
    let mut checkpoint = Checkpoint::load(&folder).unwrap();
    check_finite(&checkpoint.params, &folder).unwrap();
    let spec = checkpoint.params.table().ln_f.weight.clone();
    checkpoint.params.get_mut(&spec)[2] = f32::INFINITY;
    let error = check_finite(&checkpoint.params, &folder).unwrap_err();
    assert!(error.to_string().contains("transformer.ln_f.weight[2] of "), "{error}");
    assert!(error.hint().unwrap().contains("another checkpoint"), "{error:?}");
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
        assert_eq!(TrainState::load(&folder, &loaded.params).unwrap().progress.step, 1);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), if killed { 2 } else { 1 });
    }
    save_all(&folder, &tiny(true), 3).unwrap();
    assert_eq!(read_progress(&folder).unwrap().unwrap().step, 3);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}
