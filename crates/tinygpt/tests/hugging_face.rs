//! A model that `transformers` made and saved, read here, against what it computed there:
//! `hf_tiny_gpt2/` in the folder named by `TINYGPT_GOLDEN` (by default `tests/golden`), on every
//! instruction set this processor has.

use safetensors::SafeTensors;
use std::path::PathBuf;
use tinygpt::formats::{Format, Model};
use tinygpt::{Activation, Gpt, Sampling};
use tinygpt_kernels::{Cpu, Isa};

fn folder() -> PathBuf {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    std::env::var_os("TINYGPT_GOLDEN").map_or(default, PathBuf::from).join("hf_tiny_gpt2")
}

/// Expected values by name: numbers of four bytes, or of eight.
struct Expected(Vec<u8>);

impl Expected {
    fn bytes(&self, name: &str) -> Vec<u8> {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).unwrap().data().to_vec()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.bytes(name).as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
    }

    fn ints(&self, name: &str) -> Vec<i64> {
        self.bytes(name).as_chunks().0.iter().map(|x| i64::from_le_bytes(*x)).collect()
    }
}

/// Runs `test` with the model on every instruction set.
fn on_every_isa(test: impl Fn(&Expected, Gpt)) {
    let model = Model::open(&folder()).unwrap();
    assert_eq!(model.format, Format::HuggingFace);
    assert_eq!(model.config.activation, Activation::GeluTanh);
    let expected = Expected(std::fs::read(folder().join("expected.safetensors")).unwrap());
    for isa in Isa::available() {
        let params = model.read().unwrap();
        test(&expected, Gpt::with_params(model.config.clone(), params, Cpu::new(2, isa)).unwrap());
    }
}

#[test]
fn logits_and_loss_are_those_of_transformers() {
    on_every_isa(|expected, mut gpt| {
        let idx: Vec<u32> = expected.ints("idx").iter().map(|&id| id as u32).collect();
        let targets: Vec<i32> = expected.ints("targets").iter().map(|&id| id as i32).collect();
        let (logits, loss) = gpt.forward(&idx, Some(&targets), (3, 24)).unwrap();
        let (found, wanted) = (logits.to_vec(), expected.floats("logits"));
        assert_eq!(found.len(), wanted.len());
        let largest = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let error = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error <= 1e-5 * largest.max(1.0), "logits differ by {error:e}");
        let wanted = expected.floats("loss")[0];
        assert!((loss.unwrap() - wanted).abs() <= 1e-5, "{loss:?}, transformers {wanted}");
    });
}

#[test]
fn the_greedy_continuation_is_that_of_transformers() {
    on_every_isa(|expected, mut gpt| {
        let wanted: Vec<u32> = expected.ints("greedy").iter().map(|&id| id as u32).collect();
        // As many given tokens as leave a continuation inside the context.
        let given = 4;
        let found =
            gpt.generate(&wanted[..given], wanted.len() - given, &Sampling::greedy()).unwrap();
        assert_eq!(found, wanted);
    });
}
