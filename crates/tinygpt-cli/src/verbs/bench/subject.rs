//! The four things that are measured of a model, and what each comes to beside the limits.

use super::measure::{Plan, Times};
use crate::anatomy::millions;
use crate::failure::Failure;
use crate::machine::merged;
use crate::ops::{Costs, Limits, giga, percent};
use indicatif::DecimalBytes;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::time::Instant;
use tinygpt::profile::Spent;
use tinygpt::run::thousands;
use tinygpt::train::micro_batch;
use tinygpt::{
    DataOptions, Dataset, Gpt, GptConfig, Precision, Sampler, Sampling, Settings, Tokenizer,
    Tokens, Trainer,
};

/// A kind of model, and how long to look at it.
pub struct Subject<'a> {
    pub settings: &'a Settings,
    pub plan: &'a Plan,
    /// What is generated with.
    pub precision: Precision,
    /// What is read of it for a token.
    pub weight_bytes: usize,
    /// How many texts are generated together.
    pub texts: usize,
}

/// What the clock said.
pub enum Measured {
    Training(Times),
    Ops(Times, Vec<Spent>),
    /// Of so many tokens at a time.
    Forward(Times, usize),
    /// A prompt of so many tokens, and each token after it.
    Generation {
        prompt: Times,
        prompt_tokens: usize,
        token: Times,
    },
}

/// What that means.
pub struct Found {
    pub lines: Vec<(&'static str, String)>,
    /// After the lines, if there is one.
    pub table: String,
    pub json: Value,
}

/// Tokens that look random, and are the same each time.
fn scattered(n: usize, vocab_size: usize) -> Vec<u32> {
    const FACTOR: u64 = 6_364_136_223_846_793_005;
    let random = |i: u64| i.wrapping_mul(FACTOR) >> 33;
    (1..=n as u64).map(|i| (random(i) % vocab_size as u64) as u32).collect()
}

/// A text of such tokens, with windows enough that no two batches are alike.
fn data(model: &GptConfig) -> Result<Dataset, Failure> {
    let ids = scattered(model.block_size + (1 << 16), model.vocab_size);
    Ok(Dataset {
        train: Tokens::from_ids(&ids, model.vocab_size)?,
        val: None,
        train_bytes: ids.len() as u64,
        val_bytes: 0,
        // Any that is no larger than the model's.
        tokenizer: Tokenizer::from_chars(['a']),
        source: "random tokens".into(),
        options: DataOptions::default(),
        notices: Vec::new(),
    })
}

impl Subject<'_> {
    /// Measures what `what` names, with a model of this kind.
    pub fn measure(&self, what: &str, gpt: Gpt) -> Result<Measured, Failure> {
        match what {
            "generate" => self.generation(gpt),
            "eval" => self.forward(gpt),
            _ => self.training(gpt, what == "kernels"),
        }
    }

    fn training(&self, gpt: Gpt, by_op: bool) -> Result<Measured, Failure> {
        let Settings { model, train, .. } = self.settings;
        let mut trainer = Trainer::new(gpt, data(model)?, train.clone())?;
        let step = |trainer: &mut Trainer| Ok(trainer.step().map(|_| ())?);
        self.plan.warm_up(|| step(&mut trainer))?;
        if by_op {
            trainer.gpt().cpu().profile().start();
        }
        let times = self.plan.repeat("training steps", || step(&mut trainer))?;
        Ok(match by_op {
            true => Measured::Ops(times, trainer.gpt().cpu().profile().spent()),
            false => Measured::Training(times),
        })
    }

    /// As an evaluation does it: so many sequences at a time as in training.
    fn forward(&self, gpt: Gpt) -> Result<Measured, Failure> {
        let Settings { model, train, .. } = self.settings;
        let mut gpt = gpt.with_dtype(train.dtype);
        let (b, t) = (micro_batch(model, train.sequences_per_step()), model.block_size);
        let ids = scattered(b * t, model.vocab_size);
        let targets: Vec<i32> = ids.iter().rev().map(|&id| id as i32).collect();
        let mut pass = || Ok(gpt.loss_sum(&ids, &targets, (b, t)).map(|_| ())?);
        self.plan.warm_up(&mut pass)?;
        Ok(Measured::Forward(self.plan.repeat("forward passes", &mut pass)?, b * t))
    }

    /// Half a context of prompt, and tokens until it is full, as the cache holds. A token's time is
    /// that of one token of every text.
    fn generation(&self, mut gpt: Gpt) -> Result<Measured, Failure> {
        let GptConfig { vocab_size, block_size, .. } = self.settings.model;
        if block_size < 2 {
            let problem = "--block-size 1: a context of one token leaves nothing to keep";
            return Err(Failure::usage(problem).with_hint("generating takes at least 2"));
        }
        let prompt_tokens = block_size / 2;
        let prompt = scattered(prompt_tokens, vocab_size);
        let (mut prompt_ms, mut token_ms) = (Vec::new(), Vec::new());
        let texts = self.texts;
        let mut write = |most: usize, over: Option<Instant>| -> Result<(), Failure> {
            let sampler = || Sampler::new(&Sampling::greedy(), 0);
            let mut samplers = (0..texts).map(|_| sampler()).collect::<Result<Vec<_>, _>>()?;
            let (mut since, mut first, mut enough) = (Instant::now(), true, false);
            gpt.generate_many(&prompt, most, &mut samplers, |text, _| {
                // A position is done with its last text.
                if text + 1 < texts {
                    return if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                }
                let ms = since.elapsed().as_secs_f64() * 1e3;
                if over.is_some() {
                    if first { &mut prompt_ms } else { &mut token_ms }.push(ms);
                }
                enough = !first && over.is_some_and(|over| Instant::now() >= over);
                first = false;
                since = Instant::now();
                if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            Ok(())
        };
        self.plan.warm_up(|| write(2, None))?;
        let over = Some(Instant::now() + self.plan.time);
        self.plan.repeat("tokens", || write(block_size - prompt_tokens + 1, over))?;
        let (prompt, token) = (Times::new(prompt_ms), Times::new(token_ms));
        Ok(Measured::Generation { prompt, prompt_tokens, token })
    }

    /// What was measured, beside what could be.
    pub fn judge(&self, measured: Measured, limits: &Limits) -> Found {
        match measured {
            Measured::Training(times) => self.step(&times, limits),
            Measured::Ops(times, spent) => {
                let steps = Some(times.count());
                let costs = Costs { spent, whole: times.sum(), steps, limits: *limits };
                let found = self.step(&times, limits);
                let json = merged([found.json, json!({ "ops": costs.json() })]);
                Found { table: costs.table(), json, ..found }
            }
            Measured::Forward(times, tokens) => {
                let flops = self.forward_flops(tokens, self.settings.model.block_size, tokens);
                let (line, mut json) = work("work", flops, tokens, &times, limits);
                json = merged([
                    json,
                    times.json("pass", "passes"),
                    json!({ "tokens_per_pass": tokens }),
                ]);
                let name = format!("forward, {} tokens at a time", thousands(tokens));
                let lines = vec![("pass", name), ("time", times.line()), line];
                Found { lines, table: String::new(), json }
            }
            Measured::Generation { prompt, prompt_tokens, token } => {
                self.generated(&prompt, prompt_tokens, &token, limits)
            }
        }
    }

    fn step(&self, times: &Times, limits: &Limits) -> Found {
        let tokens = self.settings.train.sequences_per_step() * self.settings.model.block_size;
        let t = self.settings.model.block_size;
        // A backward pass counts as two.
        let flops = 3.0 * self.forward_flops(tokens, t, tokens);
        let (line, json) = work("work", flops, tokens, times, limits);
        let json =
            merged([json, times.json("step", "steps"), json!({ "tokens_per_step": tokens })]);
        let Settings { model, train, .. } = self.settings;
        let accumulated = match train.gradient_accumulation_steps {
            1 => String::new(),
            n => format!("{n} x "),
        };
        let (b, t) = (train.batch_size, model.block_size);
        let step = format!("{accumulated}{b} x {t} = {} tokens", thousands(tokens));
        let lines = vec![("step", step), ("time", times.line()), line];
        Found { lines, table: String::new(), json }
    }

    fn generated(
        &self,
        prompt: &Times,
        prompt_tokens: usize,
        token: &Times,
        limits: &Limits,
    ) -> Found {
        let flops = self.forward_flops(prompt_tokens, prompt_tokens, 1);
        let (line, judged) = work("  work", flops, prompt_tokens, prompt, limits);
        let bytes = self.weight_bytes;
        let (per_s, read) = (self.texts as f64 / token.median_s(), bytes as f64 / token.median_s());
        let share = read / limits.bytes_per_s;
        let cached = if share > 1.0 { ", from the cache" } else { "" };
        let together = match self.texts {
            1 => "one sequence with its KV cache".into(),
            n => format!("{n} sequences together, a token of each at a time"),
        };
        let speed = format!("{} tokens/s, {together}", thousands(per_s as u64));
        let weights = format!(
            "{} in {} for each: {} GB/s, {} of memory's{cached}",
            DecimalBytes(bytes as u64),
            self.precision.name(),
            giga(read),
            percent(share)
        );
        let lines = vec![
            ("prompt", format!("{} tokens at once", thousands(prompt_tokens))),
            ("  time", prompt.line()),
            line,
            ("token", token.line()),
            ("  speed", speed),
            ("  weights", weights),
        ];
        let json = merged([
            token.json("token", "tokens"),
            prompt.json("prompt", "prompts"),
            json!({
                "tokens_per_s": per_s,
                "num_samples": self.texts,
                "precision": self.precision.name(),
                "weight_bytes": bytes,
                "weights_gb_per_s": read / 1e9,
                "share_of_memory": share,
                "prompt_tokens": prompt_tokens,
                "prompt_tokens_per_s": judged["tokens_per_s"],
                "prompt_gflop_per_s": judged["gflop_per_s"],
                "prompt_share_of_peak": judged["share_of_peak"],
            }),
        ]);
        Found { lines, table: String::new(), json }
    }

    /// Of a forward pass over so many tokens in sequences of T, for as many logits: 2 N + 4 L C T a
    /// token where each has its logits.
    fn forward_flops(&self, tokens: usize, t: usize, logits: usize) -> f64 {
        let GptConfig { n_layer, n_embd, vocab_size, .. } = self.settings.model;
        let head = vocab_size * n_embd;
        let attention = 4.0 * (n_layer * n_embd) as f64 * t as f64;
        let trunk = 2.0 * (self.without_positions() - head) as f64 + attention;
        tokens as f64 * trunk + 2.0 * logits as f64 * head as f64
    }

    /// N: parameters without the position table.
    fn without_positions(&self) -> usize {
        self.parameters() - self.settings.model.block_size * self.settings.model.n_embd
    }

    fn parameters(&self) -> usize {
        tinygpt::model::Tensors::of(&self.settings.model).iter().map(|spec| spec.len()).sum()
    }

    /// The model.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let GptConfig { vocab_size: v, block_size: t, n_layer: l, n_head: h, n_embd: c, .. } =
            self.settings.model;
        let n = millions(self.without_positions());
        let sizes = format!("V = {v}, T = {t}, L = {l}, H = {h}, C = {c}");
        let parameters = format!("{} parameters", thousands(self.parameters()));
        vec![
            ("model", format!("{}: {sizes}", self.settings.preset)),
            ("", format!("{parameters}, N = {n} without positions")),
        ]
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let Settings { model, train, preset, .. } = self.settings;
        merged([
            json!(model),
            json!({
                "preset": preset,
                "batch_size": train.batch_size,
                "gradient_accumulation_steps": train.gradient_accumulation_steps,
                "dtype": train.dtype,
                "parameters": self.parameters(),
                "parameters_without_positions": self.without_positions(),
            }),
        ])
    }
}

/// Tokens and operations a second, of `flops` for so many tokens.
fn work(
    name: &'static str,
    flops: f64,
    tokens: usize,
    times: &Times,
    limits: &Limits,
) -> ((&'static str, String), Value) {
    let (per_s, rate) = (tokens as f64 / times.median_s(), flops / times.median_s());
    let share = rate / limits.peak();
    let (speed, of_peak) = (thousands(per_s as u64), percent(share));
    let line = format!("{speed} tokens/s, {} GFLOP/s, {of_peak} of the peak", giga(rate));
    let json = json!({
        "tokens_per_s": per_s,
        "flop_per_token": flops / tokens as f64,
        "gflop_per_s": rate / 1e9,
        "share_of_peak": share,
    });
    ((name, line), json)
}
