//! What a training says before its first step and after its last.

use crate::anatomy::millions;
use crate::out;
use indicatif::{DecimalBytes, HumanDuration};
use std::path::Path;
use std::time::Duration;
use tinygpt::checkpoint::Progress;
use tinygpt::files::quoted;
use tinygpt::run::start::Begun;
use tinygpt::run::{Ending, layers::Origin, thousands};
use tinygpt::{Evaluation, Gpt, Settings, Split, TrainConfig};

/// So many of them.
fn counted(n: usize, what: &str) -> String {
    format!("{} {what}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// A line of the two blocks.
fn line(name: &str, text: &str) -> String {
    format!("{name:<11} {text}\n")
}

/// Who is about to learn what, where, and how.
pub fn opening(begun: &mut Begun) -> String {
    let Begun { run, settings, trainer, .. } = begun;
    let (data, train) = (trainer.data(), trainer.config().clone());
    let val = data.val.as_ref().map_or("no validation (val_fraction = 0)".into(), |val| {
        format!("{} validation tokens", thousands(val.len()))
    });
    let text = format!("{}: {} training, {val}", data.source, thousands(data.train.len()));
    let mut notices: String = data.notices.iter().map(|notice| line("note", notice)).collect();
    let train_tokens = data.train.len();
    let tokenizer = data.tokenizer.name();

    let gpt: &Gpt = trainer.gpt();
    let (c, total) = (gpt.config(), gpt.num_params());
    let group = |decays| {
        let rows = gpt.params().table().iter().filter(move |spec| spec.decays() == decays);
        rows.fold((0, 0), |(n, sum), spec| (n + 1, sum + spec.len()))
    };
    let ((decayed, in_decayed), (others, in_others)) = (group(true), group(false));
    if total > MANY_A_TOKEN * train_tokens {
        let few =
            format!("{} parameters, {} training tokens", thousands(total), thousands(train_tokens));
        let meaning = "enough to learn the text by heart; a smaller model or more text is better";
        notices += &line("note", &format!("{few}: {meaning}"));
    }
    notices += &warmup(settings);
    let model = format!(
        "{}, {}, {} wide, context {}, vocabulary {} ({tokenizer})",
        counted(c.n_layer, "layer"),
        counted(c.n_head, "head"),
        c.n_embd,
        c.block_size,
        c.vocab_size
    );
    let parameters = format!(
        "{} ({} without positions); {decayed} tensors decay ({}), {others} do not ({})",
        thousands(total),
        millions(total - c.block_size * c.n_embd),
        thousands(in_decayed),
        thousands(in_others)
    );
    let tokens = train.sequences_per_step() * c.block_size;
    let accumulated = match train.gradient_accumulation_steps {
        1 => String::new(),
        n => format!("{n} x "),
    };
    let epochs = match train.max_iters as f64 * tokens as f64 / train_tokens as f64 {
        few if few > 0.0 && few < 0.1 => "under 0.1".into(),
        epochs => format!("{epochs:.1}"),
    };
    let step = format!(
        "{accumulated}{} x {} = {} tokens; {} = {epochs} epochs",
        train.batch_size,
        c.block_size,
        thousands(tokens),
        counted(train.max_iters as usize, "step")
    );
    let (threads, isa) = (gpt.cpu().threads(), gpt.cpu().isa().name());
    let dtype = train.dtype.resolve(gpt.cpu().isa()).name();
    let processor = format!("{}, {isa}, {dtype}", counted(threads, "thread"));
    let disk = DecimalBytes(disk_use(gpt));
    let kept = format!("{} (checkpoints and logs: up to {disk})", run.folder().display());
    notices
        + &line("text", &text)
        + &line("model", &model)
        + &line("parameters", &parameters)
        + &line("step", &step)
        + &line("processor", &processor)
        + &line("run", &kept)
}

/// What is unusual about the warm-up, if anything is.
fn warmup(settings: &Settings) -> String {
    let TrainConfig { decay_lr, warmup_iters, lr_decay_iters, max_iters, .. } = settings.train;
    let shortened = settings.origins["warmup_iters"] == Origin::Follows("lr_decay_iters");
    let warmup = format!("warmup_iters = {warmup_iters}");
    let note = match decay_lr && max_iters > 0 {
        true if warmup_iters >= max_iters => {
            format!("{warmup}, max_iters = {max_iters}: the whole run is warm-up")
        }
        true if shortened => format!(
            "{warmup}, a tenth of lr_decay_iters = {lr_decay_iters}: the recipe's warm-up is for \
             a longer run"
        ),
        _ => return String::new(),
    };
    line("note", &note)
}

/// Parameters for each training token from which on a model is out of proportion: the model that
/// nanoGPT trains on Tiny Shakespeare, with dropout, has eleven.
const MANY_A_TOKEN: usize = 50;

/// Bytes of a run's checkpoints: weights and two moments in f32; of best and last, and of a third
/// while one of them is being replaced.
fn disk_use(gpt: &Gpt) -> u64 {
    3 * 3 * size_of::<f32>() as u64 * gpt.num_params() as u64
}

/// Says that the checkpoints will not fit on the disk where the run is.
pub fn room(begun: &mut Begun) -> Option<String> {
    let needed = disk_use(begun.trainer.gpt());
    let folder = begun.run.folder();
    let free = fs4::available_space(folder).ok()?;
    (free < needed).then(|| {
        format!(
            "warning: {}: its disk has {} free, and checkpoints of this model take up to {}",
            folder.display(),
            DecimalBytes(free),
            DecimalBytes(needed)
        )
    })
}

/// What a model that knows nothing should lose, beside what this one does.
pub fn first_loss(loss: f32, vocab_size: usize) -> String {
    let chance = (vocab_size as f64).ln();
    line("first loss", &format!("{loss:.4}; knowing nothing is ln {vocab_size} = {chance:.4}"))
}

/// What it means that the validation loss is far above the training loss, if it is.
pub fn gap(evaluation: &Evaluation, split: Split) -> Option<String> {
    let (train, val) = (evaluation.train_loss, evaluation.val_loss?);
    // At small losses a large share is a small difference.
    if val < 1.3 * train || val < train + 0.1 {
        return None;
    }
    let unlike = match split {
        Split::Contiguous => ", or the text's end is unlike the rest (--split shuffled)",
        Split::Shuffled => "",
    };
    let by_heart = "it learns by heart (more text, --dropout 0.2, a smaller model, --patience 5)";
    Some(line(
        "note",
        &format!("val loss {val:.4} is far above train {train:.4}: {by_heart}{unlike}"),
    ))
}

/// What a run leaves in its folder.
const FILES: [&str; 8] = [
    "best/",
    "last/",
    "data/",
    "config.toml",
    "loss.svg",
    "metrics.csv",
    "metrics.jsonl",
    "samples.txt",
];

/// Whether there is something for TensorBoard, of this training or an earlier one.
fn has_events(folder: &Path) -> bool {
    let ours = |name: &str| name.starts_with("events.out.tfevents.") && name.ends_with(".tinygpt");
    let mut entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_str().is_some_and(ours))
}

/// How fast the steps since `before` were, if there were any.
fn speed(before: &Progress, now: &Progress) -> String {
    let tokens = now.tokens.saturating_sub(before.tokens) as f64;
    let seconds = now.elapsed_s - before.elapsed_s;
    match tokens > 0.0 && seconds > 0.0 {
        true => format!(", {} tokens/s", thousands((tokens / seconds) as u64)),
        false => String::new(),
    }
}

/// How it went since `before`, where everything is, and what to do next.
pub fn closing(begun: &mut Begun, before: &Progress, ending: Ending, sample: &str) -> String {
    let progress = begun.trainer.progress().clone();
    let (folder, shown) = (quoted(begun.run.folder()), begun.run.folder().display());
    let steps = thousands(progress.step);
    let (name, how) = match ending {
        Ending::Finished => ("done", counted(progress.step as usize, "step")),
        Ending::Patience => {
            let stale = counted(progress.stale_evals as usize, "evaluation");
            ("stopped", format!("at step {steps}: {stale} without a better validation loss"))
        }
        Ending::Stopped => ("stopped", format!("at step {steps}, and saved")),
    };
    let time = Duration::try_from_secs_f64(progress.elapsed_s).unwrap_or_default();
    let time = format!("{} of training{}", HumanDuration(time), speed(before, &progress));
    let mut text = line(name, &format!("{how}; {time}"));
    if let Some(loss) = progress.best_val_loss {
        let data = begun.trainer.data();
        let bits = f64::from(loss) / std::f64::consts::LN_2;
        let per = match (&data.tokenizer, data.val_bits_per_byte(loss)) {
            (tinygpt::Tokenizer::Char(_), _) | (_, None) => format!("{bits:.3} bits per character"),
            (_, Some(bits)) => format!("{bits:.3} bits per byte"),
        };
        let on = begun.trainer.config().evaluated_on();
        text += &line("best", &format!("val loss {loss:.4} ({on}) = {per}"));
    }
    let files = FILES.iter().filter(|file| begun.run.folder().join(file).exists());
    let mut files: Vec<_> = files.copied().collect();
    if has_events(begun.run.folder()) {
        files.push("events.out.tfevents.*");
    }
    text += &line("kept in", &format!("{shown}: {}", files.join(" ")));
    if begun.settings.run.tensorboard {
        text += &line("tensorboard", &format!("tensorboard --logdir {folder}"));
    }
    if !sample.trim().is_empty() {
        text += &format!("\n{}\n\n", out::shown(sample.trim()));
    }
    // A run that only evaluates has all its steps before it.
    let eval_only = begun.trainer.config().eval_only;
    let resume = match eval_only {
        true => format!("tinygpt train --resume {folder} --eval-only=false"),
        false => format!("tinygpt train --resume {folder}"),
    };
    if ending == Ending::Stopped {
        text += &line("go on", &resume);
        return text;
    }
    let more = match eval_only {
        true => String::new(),
        false => format!(" --max-iters {}", 2 * progress.step.max(1)),
    };
    text += &line("more text", &format!("tinygpt sample {folder}"));
    text += &line("train on", &format!("{resume}{more}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validation_loss_far_above_is_explained_and_an_ordinary_one_is_not() {
        let said = |train_loss, val_loss, split| {
            let (val_bits_per_byte, best) = (None, false);
            gap(&Evaluation { iter: 1, train_loss, val_loss, val_bits_per_byte, best }, split)
        };
        let text = said(2.0, Some(5.0), Split::Contiguous).unwrap();
        assert!(text.contains("--split shuffled") && text.contains("--dropout"), "{text}");
        let text = said(0.03, Some(5.31), Split::Shuffled).unwrap();
        assert!(!text.contains("--split"), "{text}");
        for (train, val) in
            [(1.667, Some(1.839)), (4.2, Some(4.2)), (0.03, Some(0.06)), (2.0, None)]
        {
            assert_eq!(said(train, val, Split::Contiguous), None, "{train} {val:?}");
        }
    }
}
