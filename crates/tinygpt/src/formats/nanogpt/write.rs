//! Writes a checkpoint, and what its tokens mean: `meta.pkl` for characters, or `tokenizer.json`.

use super::{CHECKPOINT, META, NO_LOSS, TOKENIZER, meta, optimizers_order};
use crate::checkpoint::stored::HEAD;
use crate::config::{GptConfig, TrainConfig};
use crate::error::{Error, Result};
use crate::files;
use crate::formats::export::Row;
use crate::formats::pickle::Pickler;
use crate::formats::{Export, Kept};
use crate::model::tensors::Spec;
use crate::tokenizer::Tokenizer;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// What the data set is called whose `meta.pkl` an export writes: nanoGPT looks for it in
/// `data/tinygpt/`.
const DATASET: &str = "tinygpt";
/// PyTorch's own start of a tensor's bytes: a multiple of this.
const ALIGNMENT: u16 = 64;

/// Writes `ckpt.pt` into the folder `new`, with `meta.pkl` for a model of characters and
/// `tokenizer.json` for any other.
pub(in crate::formats) fn write_folder(export: &Export, new: &Path) -> Result<()> {
    let path = new.join(CHECKPOINT);
    files::write_synced(&path, |file| write(export, file)).map_err(Error::io("write", &path))?;
    let (name, bytes) = match export.tokenizer {
        None => return Ok(()),
        Some(Tokenizer::Char(chars)) => (META, meta::pickled(chars)),
        Some(other) => (TOKENIZER, other.to_json().into_bytes()),
    };
    let path = new.join(name);
    files::write_synced(&path, |file| file.write_all(&bytes)).map_err(Error::io("write", &path))
}

/// A file whose first failure is the only one: a `ZipWriter` that is dropped then tries to finish
/// its archive, and would print what fails.
struct FailsOnce<'a> {
    file: &'a mut File,
    /// Where the file would end, once it failed.
    failed: Option<u64>,
}

impl Write for FailsOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(at) = &mut self.failed {
            *at += bytes.len() as u64;
            return Ok(bytes.len());
        }
        let written = self.file.write(bytes);
        if written.is_err() {
            self.failed = Some(self.file.stream_position().unwrap_or(0) + bytes.len() as u64);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for FailsOnce<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let Some(at) = &mut self.failed else { return self.file.seek(to) };
        *at = match to {
            SeekFrom::Start(to) => to,
            SeekFrom::Current(by) | SeekFrom::End(by) => at.saturating_add_signed(by),
        };
        Ok(*at)
    }
}

/// Writes the checkpoint.
pub(in crate::formats) fn write(export: &Export, file: &mut File) -> io::Result<()> {
    let rows = export.rows(false);
    let moments = export.state.map(|state| [state.exp_avg, state.exp_avg_sq]);
    let order = optimizers_order(export.params.table());
    let mut zip = ZipWriter::new(BufWriter::new(FailsOnce { file, failed: None }));
    let options = |bytes: usize| {
        SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            // Past four gigabytes sizes need more room in the archive.
            .large_file(bytes >= u32::MAX as usize)
            .with_alignment(ALIGNMENT)
    };
    let pickle = pickled(export, &rows, &order);
    let whole: [(&str, &[u8]); 3] =
        [("data.pkl", &pickle), ("byteorder", b"little"), ("version", b"3\n")];
    for (name, bytes) in whole {
        zip.start_file(format!("archive/{name}"), options(bytes.len()))?;
        zip.write_all(bytes)?;
    }
    for (key, row) in rows.iter().enumerate() {
        zip.start_file(
            format!("archive/data/{key}"),
            options(export.kept.bytes(row.values.len())),
        )?;
        export.kept.write(&mut zip, &row.values)?;
    }
    for (i, spec) in order.iter().enumerate() {
        for (j, moment) in moments.iter().flatten().enumerate() {
            let key = rows.len() + 2 * i + j;
            zip.start_file(format!("archive/data/{key}"), options(4 * spec.len()))?;
            Kept::F32.write(&mut zip, moment.get(spec))?;
        }
    }
    zip.finish()?.flush()
}

/// The pickle, whose tensors are in the storages 0.. in the order of `rows`, then two of each
/// parameter in the optimizer's order.
fn pickled(export: &Export, rows: &[Row], order: &[&Spec]) -> Vec<u8> {
    let GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, dropout, bias, .. } =
        *export.config;
    let progress = export.state.map(|state| state.progress);
    let (train, step) =
        progress.map_or((TrainConfig::default(), 0), |at| (at.train.clone(), at.step));
    let best = progress.and_then(|at| at.best_val_loss).map_or(NO_LOSS, f64::from);
    let of = match export.kept {
        Kept::F16 => "Half",
        Kept::Bf16 => "BFloat16",
        _ => "Float",
    };
    let mut pickle = Pickler::new();
    pickle.dict(|p| {
        p.text("model");
        p.dict(|p| {
            for (key, row) in rows.iter().enumerate() {
                p.text(&row.name);
                p.tensor(of, key, &row.shape);
            }
            // One storage under two names, as nanoGPT ties them.
            p.text(HEAD);
            p.tensor(of, 0, &rows[0].shape);
        });
        p.text("optimizer");
        optimizer(p, export, rows.len(), order, &train, step);
        p.text("model_args");
        p.dict(|p| {
            for (key, value) in [
                ("n_layer", n_layer),
                ("n_head", n_head),
                ("n_embd", n_embd),
                ("block_size", block_size),
                ("vocab_size", vocab_size),
            ] {
                p.text(key);
                p.int(value as u64);
            }
            p.text("bias");
            p.bool(bias);
            p.text("dropout");
            p.float(f64::from(dropout));
        });
        p.text("iter_num");
        p.int(step);
        p.text("best_val_loss");
        p.float(best);
        p.text("config");
        config_dict(p, &train, progress.is_some());
    });
    pickle.finish()
}

/// torch.optim.AdamW's state: parameters by number, in two groups of which the first decays.
fn optimizer(
    p: &mut Pickler,
    export: &Export,
    first: usize,
    order: &[&Spec],
    train: &TrainConfig,
    step: u64,
) {
    let decaying = order.iter().filter(|spec| spec.decays()).count();
    p.dict(|p| {
        p.text("state");
        p.dict(|p| {
            for (i, spec) in order.iter().enumerate().filter(|_| export.state.is_some()) {
                p.int(i as u64);
                p.dict(|p| {
                    p.text("step");
                    p.float(step as f64);
                    for (j, name) in ["exp_avg", "exp_avg_sq"].into_iter().enumerate() {
                        p.text(name);
                        p.tensor("Float", first + 2 * i + j, &spec.shape);
                    }
                });
            }
        });
        p.text("param_groups");
        p.list(|p| {
            let groups = [(0..decaying, train.weight_decay), (decaying..order.len(), 0.0)];
            for (numbers, decay) in groups {
                p.dict(|p| {
                    for (key, value) in [
                        ("lr", train.learning_rate),
                        ("eps", train.adam_eps),
                        ("weight_decay", decay),
                    ] {
                        p.text(key);
                        p.float(value);
                    }
                    p.text("betas");
                    p.tuple(|p| [train.beta1, train.beta2].into_iter().for_each(|x| p.float(x)));
                    p.text("amsgrad");
                    p.bool(false);
                    p.text("params");
                    p.list(|p| numbers.for_each(|number| p.int(number as u64)));
                });
            }
        });
    });
}

/// nanoGPT's keys of its trainer, with their values; the data set's name alone where the training is
/// not known.
fn config_dict(p: &mut Pickler, train: &TrainConfig, trained: bool) {
    p.dict(|p| {
        p.text("dataset");
        p.text(DATASET);
        if !trained {
            return;
        }
        for (key, value) in [
            ("max_iters", train.max_iters),
            ("warmup_iters", train.warmup_iters),
            ("lr_decay_iters", train.lr_decay_iters),
            ("eval_interval", train.eval_interval),
            ("log_interval", train.log_interval),
            ("batch_size", train.batch_size as u64),
            ("gradient_accumulation_steps", train.gradient_accumulation_steps as u64),
            ("eval_iters", train.eval_iters as u64),
        ] {
            p.text(key);
            p.int(value);
        }
        for (key, value) in [
            ("learning_rate", train.learning_rate),
            ("min_lr", train.min_lr),
            ("weight_decay", train.weight_decay),
            ("beta1", train.beta1),
            ("beta2", train.beta2),
            ("grad_clip", train.grad_clip),
        ] {
            p.text(key);
            p.float(value);
        }
        p.text("decay_lr");
        p.bool(train.decay_lr);
    });
}
