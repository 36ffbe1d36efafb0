//! A model on one page: its parameters, the shapes a batch takes in it, what it costs.
//!
//! Dimensions: B sequences of T tokens, width C, H heads of D = C/H, vocabulary V, L blocks.
//! All that is said of parameters is a walk over the table in `tinygpt::model::tensors`.

use indicatif::DecimalBytes;
use tinygpt::GptConfig;
use tinygpt::model::{Spec, Tensors, logits_rows};
use tinygpt::run::thousands;
use tinygpt::train::{Memory, micro_batch};

/// Bytes of an f32, and of a token id.
const WIDTH: u64 = 4;

/// A model and the batch that is followed through it.
pub struct Anatomy<'a> {
    config: &'a GptConfig,
    table: Tensors<Spec>,
    b: usize,
    t: usize,
    sequences: usize,
}

/// One array of the forward pass.
struct Activation {
    name: &'static str,
    dims: &'static str,
    /// How many a training step keeps for the backward pass.
    kept: usize,
    note: &'static str,
}

impl<'a> Anatomy<'a> {
    /// `b` sequences of `t` tokens in the model that `config` describes, whose training takes
    /// `accumulated` times as many in a step.
    pub fn new(config: &'a GptConfig, (b, t): (usize, usize), accumulated: usize) -> Self {
        Self { config, table: Tensors::of(config), b, t, sequences: b.saturating_mul(accumulated) }
    }

    /// The page; `all` writes out every block, otherwise the first stands for them.
    pub fn page(&self, title: &str, all: bool) -> String {
        let Self { b, t, .. } = self;
        [
            format!("{title}\n\n{}", self.dimensions()),
            format!("PARAMETERS\n{}\n{}", self.parameters(all), self.groups()),
            format!("ACTIVATIONS, B = {b} sequences of T = {t} tokens\n{}", self.activations()),
            format!("COSTS\n{}", self.costs()),
        ]
        .join("\n")
    }

    fn dimensions(&self) -> String {
        let config = self.config;
        let size = |letter: &str, n, meaning: &str| row(["", letter, &thousands(n), meaning]);
        let rows = vec![
            size("V", config.vocab_size, "tokens in the vocabulary"),
            size("T", config.block_size, "tokens of context at most"),
            size("L", config.n_layer, "blocks"),
            size("H", config.n_head, "heads in a block"),
            size("C", config.n_embd, "width of the residual stream"),
            size("D", config.head_size(), "width of a head, C / H"),
        ];
        let GptConfig { bias, tied, activation, dropout, .. } = config;
        let activation = serde_json::json!(activation);
        let activation = activation.as_str().unwrap_or_default();
        let kinds =
            format!("  bias {bias}, tied {tied}, activation {activation}, dropout {dropout}\n");
        aligned(&rows, [false, false, true, false]) + &kinds
    }

    fn parameters(&self, all: bool) -> String {
        let total = self.sum(|_| true);
        let share = |n: usize| format!("{:.1}%", 100.0 * n as f64 / total as f64);
        let one = |spec: &Spec| {
            let decays = if spec.decays() { "yes" } else { "no" };
            let (shape, n) = (shape(&spec.shape), spec.len());
            row([&spec.name, &shape, &thousands(n), &share(n), decays])
        };
        let subtotal = |name: &str, n| row([name, "", &thousands(n), &share(n), ""]);
        let mut rows = vec![row(["name", "shape", "count", "share", "decays"])];
        let blocks = self.sum(|spec| block_of(spec).is_some());
        let layers = self.config.n_layer;
        let written = if all { layers } else { 1 };
        let specs: Vec<_> = self.table.iter().collect();
        for run in specs.chunk_by(|a, b| block_of(a) == block_of(b)) {
            match block_of(run[0]) {
                Some(l) if l >= written => continue,
                Some(l) => {
                    rows.extend(run.iter().map(|spec| one(spec)));
                    rows.push(subtotal(&format!("  block {l}"), blocks / layers));
                    if l + 1 == written {
                        rows.push(subtotal(&format!("  x {layers}, all blocks alike"), blocks));
                    }
                }
                None => rows.extend(run.iter().map(|spec| one(spec))),
            }
        }
        if self.config.tied {
            rows.push(row(["lm_head is transformer.wte", "", "0", "", ""]));
        }
        rows.push(subtotal("total", total));
        aligned(&rows, [false, false, true, true, false])
    }

    fn groups(&self) -> String {
        let total = self.sum(|_| true);
        let group = |decays| {
            let tensors = self.table.iter().filter(|spec| spec.decays() == decays).count();
            let parameters = thousands(self.sum(|spec| spec.decays() == decays));
            format!("{tensors} tensors, {parameters} parameters")
        };
        format!(
            "{} parameters, {} without positions (nanoGPT's count)\n\
             weight decay on {}; none on {}\n",
            millions(total),
            millions(self.without_positions()),
            group(true),
            group(false),
        )
    }

    fn activations(&self) -> String {
        let mut rows = vec![row(["name", "dims", "shape", "each", "kept", "what"])];
        rows.extend(ACTIVATIONS.iter().map(|array| {
            let kept = match self.kept(array) {
                0 => "-".into(),
                n => format!("x {n}"),
            };
            let each = DecimalBytes(self.bytes(array)).to_string();
            let shape = shape(&self.shape(array));
            row([array.name, array.dims, &shape, &each, &kept, array.note])
        }));
        aligned(&rows, [false, false, false, true, true, false])
    }

    fn costs(&self) -> String {
        let &Self { config: &GptConfig { n_layer, n_embd, tied, .. }, b, t, .. } = self;
        let n = self.without_positions();
        let flops = 6.0 * n as f64 + 12.0 * (n_layer * n_embd) as f64 * t as f64;
        let memory = Memory::of(self.config, (self.sequences, t));
        let Memory { weights, gradients, moments, activations } = memory;
        // Training takes a batch in parts.
        let part = micro_batch(&GptConfig { block_size: t, ..self.config.clone() }, self.sequences);
        let cache = (2 * WIDTH).saturating_mul((n_layer * n_embd) as u64).saturating_mul(t as u64);
        let line = |what: &str, much: &str, why: &str| row([what, much, why]);
        let bytes = |what: &str, n: u64, why: &str| line(what, &DecimalBytes(n).to_string(), why);
        let flops_a_batch = flops * b as f64 * t as f64;
        let rows = [
            line(
                "work of a token",
                &format!("{flops:.2e} FLOPs"),
                "6 N_p + 12 L C T, forward and back; N_p parameters, no positions",
            ),
            line("work of a batch", &format!("{flops_a_batch:.2e} FLOPs"), "B T times that"),
            bytes("memory to train", memory.total(), "about, the sum of:"),
            bytes("  weights", weights, "4 bytes a parameter"),
            bytes("  gradients", gradients, if tied { "as many, and V C" } else { "as many" }),
            bytes("  AdamW's moments", moments, "two for each parameter"),
            bytes(
                "  activations",
                activations,
                &match part {
                    1 => "what is kept above, and gradients, of one sequence at a time".to_owned(),
                    _ => {
                        format!("what is kept above, and gradients, of {part} sequences at a time")
                    }
                },
            ),
            bytes("memory to sample", weights.saturating_add(cache), "weights, and:"),
            bytes("  keys and values", cache, "2 L T C numbers of 4 bytes"),
        ];
        aligned(&rows, [false, true, false])
    }

    fn sum(&self, counts: impl Fn(&Spec) -> bool) -> usize {
        self.table.iter().filter(|spec| counts(spec)).map(Spec::len).sum()
    }

    fn without_positions(&self) -> usize {
        self.sum(|_| true) - self.table.wpe.len()
    }

    fn shape(&self, array: &Activation) -> Vec<usize> {
        let c = self.config.n_embd;
        let size = |dim| match dim {
            "B" => self.b,
            "T" => self.t,
            "N" => logits_rows((self.b * self.t).max(1), self.config.vocab_size),
            "H" => self.config.n_head,
            "D" => self.config.head_size(),
            "V" => self.config.vocab_size,
            "3C" => 3 * c,
            "4C" => 4 * c,
            _ => c,
        };
        array.dims.trim_matches(['(', ')']).split(", ").map(size).collect()
    }

    fn bytes(&self, array: &Activation) -> u64 {
        self.shape(array).iter().fold(WIDTH, |bytes, &n| bytes.saturating_mul(n as u64))
    }

    fn kept(&self, array: &Activation) -> usize {
        if array.kept == PER_BLOCK { self.config.n_layer } else { array.kept }
    }
}

/// In [`Activation::kept`]: one for each block.
const PER_BLOCK: usize = usize::MAX;

const fn array(
    name: &'static str,
    dims: &'static str,
    kept: usize,
    note: &'static str,
) -> Activation {
    Activation { name, dims, kept, note }
}

/// The forward pass in the order of the data.
const ACTIVATIONS: &[Activation] = &[
    array("idx", "(B, T)", 1, "token ids"),
    array("x", "(B, T, C)", 1, "token + position embedding"),
    array("  ln_1", "(B, T, C)", PER_BLOCK, "x, normalised"),
    array("  qkv", "(B, T, 3C)", PER_BLOCK, "queries, keys, values"),
    array("  q, k, v", "(B, H, T, D)", 0, "each a view of qkv"),
    array("  scores", "(B, H, T, T)", 0, "q.k / sqrt(D), never stored"),
    array("  lse", "(B, H, T)", PER_BLOCK, "log of each softmax's sum"),
    array("  y", "(B, T, C)", PER_BLOCK, "weighted values"),
    array("  mid", "(B, T, C)", PER_BLOCK, "x + projection of y"),
    array("  ln_2", "(B, T, C)", PER_BLOCK, "mid, normalised"),
    array("  fc", "(B, T, 4C)", PER_BLOCK, "the MLP's hidden layer"),
    array("  gelu", "(B, T, 4C)", 1, "after the non-linearity"),
    array("  x", "(B, T, C)", PER_BLOCK, "mid + projection of gelu"),
    array("ln_f", "(B, T, C)", 1, "x, normalised"),
    array("logits", "(N, V)", 1, "of N rows at a time"),
    array("loss", "(B, T)", 1, "-ln p(next); the mean counts"),
];

/// `transformer.h.3.ln_1.weight` is of block 3.
fn block_of(spec: &Spec) -> Option<usize> {
    spec.name.strip_prefix("transformer.h.")?.split('.').next()?.parse().ok()
}

/// As nanoGPT prints a number of parameters: 10.65M.
pub fn millions(n: usize) -> String {
    format!("{:.2}M", n as f64 / 1e6)
}

fn shape(dims: &[usize]) -> String {
    let dims: Vec<_> = dims.iter().map(usize::to_string).collect();
    format!("({})", dims.join(", "))
}

fn row<const N: usize>(cells: [&str; N]) -> [String; N] {
    cells.map(Into::into)
}

/// Columns two blanks apart, each as wide as its widest cell.
pub fn aligned<const N: usize>(rows: &[[String; N]], to_the_right: [bool; N]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|i| rows.iter().map(|row| row[i].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for i in 0..N {
            let (cell, width) = (&row[i], widths[i]);
            line += &match to_the_right[i] {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tinygpt::{Layers, Settings};

    #[test]
    fn the_char_model_has_the_counts_that_nanogpt_prints() {
        let layers = Layers { preset: Some("shakespeare-char".into()), ..Default::default() };
        let config = GptConfig { vocab_size: 65, ..Settings::resolve(&layers).unwrap().model };
        let page = Anatomy::new(&config, (64, 256), 1).page("char", false);
        for fact in [
            "43.08 MB  as many, and V C",
            "10.75M parameters, 10.65M without positions",
            "26 tensors, 10,740,096 parameters; none on 13 tensors, 4,992 parameters",
            "(64, 6, 256, 256)",
        ] {
            assert!(page.contains(fact), "{fact} in\n{page}");
        }
        let flops = 6.0 * 10_646_784.0 + 12.0 * 6.0 * 384.0 * 256.0;
        assert!(page.contains(&format!("{flops:.2e} FLOPs")), "{page}");
    }

    #[test]
    fn the_arrays_on_the_page_are_those_that_training_holds() {
        let large = GptConfig { vocab_size: 50_257, ..Default::default() };
        for config in [GptConfig::tiny(), GptConfig { n_layer: 3, ..Default::default() }, large] {
            let (l, c, t) = (config.n_layer, config.n_embd, config.block_size);
            let anatomy = Anatomy::new(&config, (1, t), 1);
            let shown: u64 = ACTIVATIONS
                .iter()
                .filter(|array| array.name != "idx")
                .map(|array| anatomy.bytes(array) * anatomy.kept(array) as u64)
                .sum();
            // Two statistics of each LayerNorm, the log-sum-exp of the logits, a branch before it
            // joins the stream; then the gradients.
            let rest = (2 * (2 * l + 1) + 1 + c) + (3 * c + 3 * c + 4 * c);
            let held = Memory::of(&config, (1, t)).activations;
            assert_eq!(held, shown + WIDTH * (t * rest) as u64);
        }
    }

    #[test]
    fn all_writes_out_every_block() {
        let config = GptConfig { n_layer: 3, ..Default::default() };
        let anatomy = Anatomy::new(&config, (1, 1), 1);
        assert!(anatomy.page("", true).contains("transformer.h.2.mlp.c_proj.bias"));
        assert!(!anatomy.page("", false).contains("transformer.h.1."));
    }
}
