//! The optimizer: AdamW over every tensor of the table, and the learning-rate schedule.

mod schedule;

use crate::config::TrainConfig;
use crate::model::{Gpt, Params, Spec};
pub use schedule::learning_rate;
use tinygpt_kernels::adamw::{self, Hyper};

/// AdamW's memory: two moments for each parameter, and how many steps made them.
pub struct AdamW {
    /// Decaying mean of the gradients, PyTorch's `exp_avg`.
    pub exp_avg: Params,
    /// Decaying mean of their squares, PyTorch's `exp_avg_sq`.
    pub exp_avg_sq: Params,
    /// Steps taken.
    pub steps: u64,
    /// The table in order, so that a step allocates nothing.
    walk: Vec<Spec>,
}

impl AdamW {
    /// No steps taken yet.
    pub fn new(gpt: &Gpt) -> Self {
        let zeros = Params::zeros(gpt.params().table().clone());
        Self::resumed(zeros.clone(), zeros, 0)
    }

    /// With moments that `steps` steps have made.
    pub fn resumed(exp_avg: Params, exp_avg_sq: Params, steps: u64) -> Self {
        let walk = exp_avg.table().iter().cloned().collect();
        Self { exp_avg, exp_avg_sq, steps, walk }
    }

    /// One step on the gradients in `gpt`, first scaled down to a norm of `grad_clip` if they
    /// exceed it. Returns the norm before that; when it is not finite, nothing is changed.
    pub fn step(&mut self, gpt: &mut Gpt, config: &TrainConfig, lr: f64) -> f32 {
        gpt.fold_tied_grads();
        let (params, grads, cpu) = gpt.split_for_optimizer();
        let norm = adamw::sum_of_squares(cpu, grads.data()).sqrt();
        // The caller sees the norm as f32, and must not take for failed what was done.
        if !(norm as f32).is_finite() {
            return norm as f32;
        }
        self.steps += 1;
        let clip = config.grad_clip;
        // PyTorch's clip_grad_norm_ adds 1e-6 to the norm.
        let grad_scale = if clip > 0.0 { (clip / (norm + 1e-6)).min(1.0) } else { 1.0 };
        let correction = |beta: f64| (1.0 - beta.powf(self.steps as f64)) as f32;
        for spec in &self.walk {
            let decay = if spec.decays() { config.weight_decay } else { 0.0 };
            let hyper = Hyper {
                lr: lr as f32,
                beta1: config.beta1 as f32,
                beta2: config.beta2 as f32,
                eps: config.adam_eps as f32,
                weight_decay: decay as f32,
                correction1: correction(config.beta1),
                correction2: correction(config.beta2),
                grad_scale: grad_scale as f32,
            };
            let (m, v) = (self.exp_avg.get_mut(spec), self.exp_avg_sq.get_mut(spec));
            adamw::step(cpu, params.get_mut(spec), m, v, grads.get(spec), hyper);
        }
        norm as f32
    }
}
