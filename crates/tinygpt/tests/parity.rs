//! The engine against values computed with PyTorch: every `*.safetensors` file of the folder named
//! by `TINYGPT_GOLDEN` (by default `tests/golden`), on every instruction set this processor has.
//!
//! Each file holds a configuration, parameters, a batch, and what PyTorch made of them: logits,
//! loss, every gradient, ten AdamW steps, a greedy continuation.

use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tinygpt::model::{Params, Tensors};
use tinygpt::optim::AdamW;
use tinygpt::{Dtype, Gpt, GptConfig, TrainConfig};
use tinygpt_kernels::{Cpu, Isa};

struct Golden {
    name: String,
    bytes: Vec<u8>,
    config: GptConfig,
    train: TrainConfig,
}

impl Golden {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().as_ref().expect("metadata");
        let optimizer: serde_json::Value = serde_json::from_str(&metadata["optimizer"]).unwrap();
        let number = |key: &str| optimizer[key].as_f64().unwrap();
        let train = TrainConfig {
            learning_rate: number("lr"),
            beta1: optimizer["betas"][0].as_f64().unwrap(),
            beta2: optimizer["betas"][1].as_f64().unwrap(),
            adam_eps: number("eps"),
            weight_decay: number("weight_decay"),
            grad_clip: number("grad_clip"),
            max_iters: number("steps") as u64,
            ..TrainConfig::default()
        };
        let config = serde_json::from_str(&metadata["config"]).unwrap();
        Self { name: path.file_name().unwrap().to_string_lossy().into(), bytes, config, train }
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let data =
            tensors.tensor(name).unwrap_or_else(|_| panic!("{}: no {name}", self.name)).data();
        data.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
    }

    fn ints(&self, name: &str) -> (Vec<i64>, Vec<usize>) {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        let ids = tensor.data().chunks_exact(8).map(|x| i64::from_le_bytes(x.try_into().unwrap()));
        (ids.collect(), tensor.shape().to_vec())
    }

    fn model(&self, isa: Isa) -> Gpt {
        let mut params = Params::zeros(Arc::new(Tensors::of(&self.config)));
        for spec in params.table().clone().iter() {
            params.get_mut(spec).copy_from_slice(&self.floats(&format!("param.{}", spec.name)));
        }
        Gpt::with_params(self.config.clone(), params, Cpu::new(2, isa)).unwrap()
    }

    fn batch(&self) -> (Vec<u32>, Vec<i32>, (usize, usize)) {
        let (idx, shape) = self.ints("idx");
        let targets = self.ints("targets").0.iter().map(|&x| x as i32).collect();
        (idx.iter().map(|&x| x as u32).collect(), targets, (shape[0], shape[1]))
    }
}

/// Runs `test` on every golden file and instruction set, and insists that there was a file.
fn on_every_golden(test: impl Fn(&Golden, Gpt)) {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let folder = std::env::var_os("TINYGPT_GOLDEN").map_or(default, PathBuf::from);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no *.safetensors in {}", folder.display());
    for path in files {
        let golden = Golden::read(&path);
        for isa in Isa::available() {
            println!("{} on {}", golden.name, isa.name());
            test(&golden, golden.model(isa));
        }
    }
}

/// The largest difference, as a share of the largest expected magnitude; NaN if anything is NaN.
fn difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let worst = |most: f32, x: f32| if x > most || x.is_nan() { x } else { most };
    let largest = expected.iter().map(|x| x.abs()).fold(f32::MIN_POSITIVE, worst);
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, worst) / largest
}

#[test]
fn logits_and_loss_are_pytorchs() {
    on_every_golden(|golden, mut gpt| {
        let (idx, targets, dims) = golden.batch();
        let (logits, loss) = gpt.forward(&idx, Some(&targets), dims).unwrap();
        let error = difference(logits, &golden.floats("logits"));
        assert!(error <= 1e-5, "{}: logits differ by {error:e}", golden.name);
        let error = difference(&[loss.unwrap()], &golden.floats("loss"));
        assert!(error <= 1e-5, "{}: the loss differs by {error:e}", golden.name);
    });
}

#[test]
fn every_gradient_is_pytorchs() {
    on_every_golden(|golden, mut gpt| {
        let (idx, targets, dims) = golden.batch();
        gpt.forward(&idx, Some(&targets), dims).unwrap();
        gpt.backward();
        let mut compared = 0;
        for spec in gpt.params().table().iter() {
            let expected = golden.floats(&format!("grad.{}", spec.name));
            let error = difference(gpt.grads().get(spec), &expected);
            assert!(
                error <= 1e-4,
                "{}: the gradient of {} differs by {error:e}",
                golden.name,
                spec.name
            );
            compared += 1;
        }
        assert!(compared > 10);
    });
}

/// Eight bits of a factor are kept: PyTorch's own numbers in bf16 are as far from those in f32.
#[test]
fn logits_and_gradients_in_bf16_are_near_pytorchs_in_f32() {
    on_every_golden(|golden, gpt| {
        let mut gpt = gpt.with_dtype(Dtype::Bf16);
        let (idx, targets, dims) = golden.batch();
        let (logits, _) = gpt.forward(&idx, Some(&targets), dims).unwrap();
        let error = difference(logits, &golden.floats("logits"));
        assert!(error <= 2e-2, "{}: logits differ by {error:e}", golden.name);
        assert!(error >= 1e-5, "{}: logits differ by {error:e}: nothing was rounded", golden.name);
        gpt.backward();
        for spec in gpt.params().table().iter() {
            let error =
                difference(gpt.grads().get(spec), &golden.floats(&format!("grad.{}", spec.name)));
            let name = &spec.name;
            assert!(error <= 3e-2, "{}: the gradient of {name} differs by {error:e}", golden.name);
        }
    });
}

#[test]
fn ten_optimizer_steps_are_pytorchs() {
    on_every_golden(|golden, mut gpt| {
        let (idx, targets, dims) = golden.batch();
        let (losses, norms) = (golden.floats("step_losses"), golden.floats("step_grad_norms"));
        let mut adamw = AdamW::new(&gpt);
        for step in 0..golden.train.max_iters as usize {
            gpt.zero_grad();
            let loss = gpt.forward(&idx, Some(&targets), dims).unwrap().1.unwrap();
            gpt.backward();
            let norm = adamw.step(&mut gpt, &golden.train, golden.train.learning_rate);
            for (what, found, expected) in
                [("loss", loss, losses[step]), ("norm", norm, norms[step])]
            {
                let error = (found / expected - 1.0).abs();
                assert!(
                    error <= 1e-4,
                    "{}: step {step}: {what} {found}, PyTorch {expected}",
                    golden.name
                );
            }
        }
        for spec in gpt.params().table().iter() {
            let (mut found, mut expected) =
                (gpt.params().get(spec).to_vec(), golden.floats(&format!("after.{}", spec.name)));
            if spec.name.ends_with("c_attn.bias") {
                // K's bias has a gradient of exactly zero, so Adam steps along rounding noise.
                let c = golden.config.n_embd;
                found.drain(c..2 * c);
                expected.drain(c..2 * c);
            }
            let error = difference(&found, &expected);
            assert!(
                error <= 1e-3,
                "{}: {} differs by {error:e} after the steps",
                golden.name,
                spec.name
            );
        }
    });
}

#[test]
fn the_greedy_continuation_is_pytorchs() {
    on_every_golden(|golden, mut gpt| {
        let expected: Vec<u32> = golden.ints("greedy").0.iter().map(|&x| x as u32).collect();
        let new = expected.len() - 3;
        let idx = gpt.generate(&expected[..3], new, &tinygpt::Sampling::greedy()).unwrap();
        assert_eq!(idx, expected, "{}", golden.name);
    });
}
