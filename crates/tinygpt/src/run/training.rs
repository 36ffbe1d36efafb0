//! The loop of a run: steps, evaluations, checkpoints, and everything in the run's folder.
//!
//! **Order at each step**: evaluate if it is due; save; stop if it is time; then take the step.
//! So a checkpoint of step n knows the evaluation at n, and a resumed run goes on with exactly the
//! lines that an uninterrupted one would have written.

use super::event::{Ending, Event};
use super::folder::Run;
use super::keeper::Keeper;
use super::values::RunSettings;
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling};
use crate::train::{Evaluation, Trainer, Watch};
use std::ops::ControlFlow;

/// Trains until the end, writing `run`'s folder; what else than checkpoints and metrics, `settings`
/// say. `stop` is asked before every step, micro-batch, part of an evaluation and token of a
/// sample. What is cut short by it is dropped and made up for by the resumed run.
///
/// `run` is [locked](Run::lock); a trainer of what was read from it should have been made under that
/// lock.
///
/// # Errors
/// Another process that trains the run; a loss or gradient that is not finite (the checkpoints stay
/// as they were); a first or last checkpoint that cannot be written, or another file at the end.
/// Whatever else ends a run, `last/` is saved first if it can be.
pub fn train(
    run: &mut Run,
    trainer: &mut Trainer,
    settings: &RunSettings,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Ending> {
    let keeper = Keeper::open(run, trainer, settings.tensorboard)?;
    kept(keeper, trainer, settings.sample_tokens, stop, on_event)
}

/// [`train`] in a folder that is open.
pub(super) fn kept(
    mut keeper: Keeper,
    trainer: &mut Trainer,
    sample_tokens: usize,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Ending> {
    let ending = steps(&mut keeper, trainer, sample_tokens, stop, on_event);
    if ending.is_err() && !diverged(&ending) && !diverged(&trainer.check_health()) {
        // The error that matters is the first one.
        let _ = keeper.save_last(trainer);
    }
    ending
}

fn diverged<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::NotFinite { .. }))
}

fn steps(
    keeper: &mut Keeper,
    trainer: &mut Trainer,
    sample_tokens: usize,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Ending> {
    let mut stopped = false;
    loop {
        let progress = trainer.progress();
        let (step, max_iters) = (progress.step, trainer.config().max_iters);
        let finished = step >= max_iters || trainer.config().eval_only;
        // Asked before an evaluation, which may take minutes: the resumed run makes up for it.
        stopped |= !finished && stop();
        let interval = trainer.config().eval_interval;
        let due = interval > 0 && step.is_multiple_of(interval) && !stopped;
        if (due || finished) && progress.last_eval != Some(step) {
            match look(trainer, sample_tokens, stop, on_event)? {
                None => stopped = true,
                Some((evaluation, text)) => {
                    trainer.record(&evaluation);
                    on_event(Event::Evaluation(&evaluation));
                    if let Some(text) = &text {
                        on_event(Event::Sample(text));
                    }
                    let kept = keeper.evaluation(trainer, evaluation, text.as_deref());
                    keeper.settle(kept, finished, on_event)?;
                }
            }
        }
        let patience = trainer.config().patience;
        let impatient = patience > 0 && trainer.progress().stale_evals >= patience;
        if finished || impatient || stopped {
            trainer.check_health()?;
            let saved = keeper.save_last(trainer);
            keeper.settle(saved, true, on_event)?;
            return Ok(match (stopped, finished) {
                (true, _) => Ending::Stopped,
                (_, true) => Ending::Finished,
                _ => Ending::Patience,
            });
        }
        if keeper.is_due() {
            trainer.check_health()?;
            let saved = keeper.save_last(trainer);
            keeper.settle(saved, false, on_event)?;
        }
        let Some(report) = trainer.step_watched(&mut watch("step", stop, on_event))? else {
            stopped = true;
            continue;
        };
        if let Err(error) = keeper.step(report) {
            on_event(Event::Failed(&error));
        }
        on_event(Event::Step(&report));
    }
}

/// Tells how far `what` is and asks whether to go on with it.
fn watch(
    what: &'static str,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> impl FnMut(u64, u64) -> ControlFlow<()> {
    move |done, total| {
        on_event(Event::Progress { what, done, total });
        if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The losses as they are now and a text of `sample_tokens` tokens, if any are wanted; none if it
/// was to stop before both were there. Changes nothing.
fn look(
    trainer: &mut Trainer,
    sample_tokens: usize,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Option<(Evaluation, Option<String>)>> {
    let evaluation = trainer.measure(&mut watch("evaluation", stop, on_event))?;
    let Some(evaluation) = evaluation else { return Ok(None) };
    if sample_tokens == 0 {
        return Ok(Some((evaluation, None)));
    }
    let text = sample(trainer, sample_tokens, &mut watch("sample", stop, on_event))?;
    Ok(text.map(|text| (evaluation, Some(text))))
}

/// Text that the model writes now: always from the same start and draws, so that samples compare.
/// None if `watch` ended it.
fn sample(trainer: &mut Trainer, tokens: usize, watch: Watch) -> Result<Option<String>> {
    let tokenizer = trainer.data().tokenizer.clone();
    let sampling = Sampling {
        temperature: 0.8,
        vocab_size: tokenizer.vocab_size(),
        seed: trainer.config().seed,
        ..Sampling::default()
    };
    let mut sampler = Sampler::new(&sampling, 0)?;
    let start = [tokenizer.start()];
    let (mut done, mut wanted) = (0, ControlFlow::Continue(()));
    let ids = trainer.gpt().generate_with(&start, tokens, &mut sampler, |_| {
        done += 1;
        wanted = watch(done, tokens as u64);
        wanted
    })?;
    Ok(wanted.is_continue().then(|| tokenizer.decode(&ids[1..])))
}

#[cfg(test)]
mod tests {
    use super::super::metrics::{self, Record};
    use super::*;
    use crate::checkpoint;
    use crate::config::{GptConfig, TrainConfig};
    use crate::data::{DataOptions, Dataset, Input};
    use crate::dtype::Dtype;
    use crate::model::Gpt;
    use tinygpt_kernels::{Cpu, Isa};

    fn trainer(train: &TrainConfig, threads: usize) -> Trainer {
        let options = DataOptions::default();
        let data = Dataset::build(&Input::TinyShakespeare, &options, None, &mut |_, _| {}).unwrap();
        Trainer::new(gpt(train, threads), data, train.clone()).unwrap()
    }

    /// A run that writes so many tokens at an evaluation.
    fn writing(sample_tokens: usize) -> RunSettings {
        RunSettings { sample_tokens, ..RunSettings::default() }
    }

    fn gpt(train: &TrainConfig, threads: usize) -> Gpt {
        let config = GptConfig {
            vocab_size: 65,
            block_size: 16,
            n_layer: 2,
            n_head: 2,
            n_embd: 16,
            dropout: 0.1,
            ..GptConfig::default()
        };
        Gpt::new_on(config, train.seed, Cpu::new(threads, Isa::best())).unwrap()
    }

    fn settings() -> TrainConfig {
        TrainConfig {
            max_iters: 23,
            batch_size: 3,
            eval_interval: 5,
            eval_iters: 2,
            learning_rate: 1e-2,
            warmup_iters: 2,
            lr_decay_iters: 23,
            min_lr: 1e-3,
            ..TrainConfig::default()
        }
    }

    fn resumed(run: &Run, train: &TrainConfig, threads: usize) -> Trainer {
        let fresh = trainer(train, threads);
        let saved = checkpoint::Checkpoint::load(&run.last()).unwrap();
        let state = checkpoint::TrainState::load(&run.last(), &saved.params).unwrap();
        let gpt = Gpt::with_params(saved.config, saved.params, Cpu::new(threads, Isa::best()));
        Trainer::resume(gpt.unwrap(), state, fresh.into_data(), train.clone()).unwrap()
    }

    /// The metrics without what depends on the clock.
    fn timeless(run: &Run) -> Vec<String> {
        let records = metrics::read(&run.metrics()).unwrap();
        let without_clock = records.iter().map(|record| match record {
            Record::Step(step) => {
                format!(
                    "{} {} {} {} {}",
                    step.iter, step.loss, step.lr, step.grad_norm, step.tokens
                )
            }
            Record::Evaluation(evaluation) => format!("{evaluation:?}"),
        });
        without_clock.collect()
    }

    fn bytes(run: &Run) -> (Vec<u8>, Vec<u8>, String) {
        let read = |name: &str| std::fs::read(run.last().join(name)).unwrap();
        let samples = std::fs::read_to_string(run.samples()).unwrap();
        let state = checkpoint::TrainState::load(
            &run.last(),
            &checkpoint::Checkpoint::load(&run.last()).unwrap().params,
        );
        let moments = state.unwrap().exp_avg_sq;
        let moments = moments.data().iter().flat_map(|x| x.to_le_bytes()).collect();
        (read("model.safetensors"), moments, samples)
    }

    #[test]
    fn a_run_stopped_anywhere_and_resumed_is_the_uninterrupted_run_bit_for_bit() {
        // Call 0 comes before the first step, four from its evaluation, eight from its sample; 17
        // from the second, and the last twelve from those at the end.
        let cuts = [(0, 0), (1, 0), (4, 0), (5, 0), (12, 0), (13, 1), (16, 4), (19, 5), (25, 5)];
        stopped(&settings(), cuts.into_iter().chain([(60, 15), (84, 23), (94, 23)]));
        stopped(&TrainConfig { dtype: Dtype::Bf16, ..settings() }, [(16, 4), (60, 15)]);
    }

    fn stopped(settings: &TrainConfig, cuts: impl IntoIterator<Item = (usize, u64)>) {
        let folder = tempfile::tempdir().unwrap();
        let mut whole = Run::create(folder.path(), "whole").unwrap();
        train(&mut whole, &mut trainer(settings, 1), &writing(8), &|| false, &mut |_| {}).unwrap();
        for (cut, step) in cuts {
            let mut run = Run::create(folder.path(), &format!("cut-{cut}")).unwrap();
            let calls = std::cell::Cell::new(0);
            let stop = || calls.replace(calls.get() + 1) == cut;
            let ending =
                train(&mut run, &mut trainer(settings, 1), &writing(8), &stop, &mut |_| {})
                    .unwrap();
            assert_eq!(ending, Ending::Stopped, "stopped at {cut}");
            let mut trainer = resumed(&run, settings, 1 + cut % 3);
            assert_eq!(trainer.progress().step, step, "stopped at {cut}");
            let ending =
                train(&mut run, &mut trainer, &writing(8), &|| false, &mut |_| {}).unwrap();
            assert_eq!(ending, Ending::Finished);
            assert_eq!(timeless(&run), timeless(&whole), "stopped at {cut}");
            assert!(bytes(&run) == bytes(&whole), "stopped at {cut}: other weights or samples");
        }
    }

    #[test]
    fn a_step_that_is_stopped_between_its_parts_leaves_everything_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        // 16 tokens each: more than are computed at a time.
        let parts = TrainConfig { batch_size: 160, max_iters: 4, lr_decay_iters: 4, ..settings() };
        let [mut whole, mut cut] =
            ["whole", "cut"].map(|name| Run::create(folder.path(), name).unwrap());
        train(&mut whole, &mut trainer(&parts, 1), &writing(0), &|| false, &mut |_| {}).unwrap();
        let steps = std::cell::Cell::new(0);
        let stop = || steps.get() == 3;
        let mut halves = |event: Event| {
            if matches!(event, Event::Progress { what: "step", .. }) {
                steps.set(steps.get() + 1);
            }
        };
        let ending =
            train(&mut cut, &mut trainer(&parts, 1), &writing(0), &stop, &mut halves).unwrap();
        assert_eq!((ending, steps.get()), (Ending::Stopped, 3));
        let mut trainer = resumed(&cut, &parts, 1);
        assert_eq!(trainer.progress().step, 2);
        train(&mut cut, &mut trainer, &writing(0), &|| false, &mut |_| {}).unwrap();
        assert_eq!(timeless(&cut), timeless(&whole));
        let read = |run: &Run| std::fs::read(run.last().join("model.safetensors")).unwrap();
        assert!(read(&cut) == read(&whole), "other weights");
    }

    #[test]
    fn a_resume_follows_the_new_schedule() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::create(folder.path(), "run").unwrap();
        let mut first = trainer(&settings(), 1);
        train(&mut run, &mut first, &writing(0), &|| false, &mut |_| {}).unwrap();
        let longer = TrainConfig { max_iters: 46, lr_decay_iters: 46, ..settings() };
        let mut trainer = resumed(&run, &longer, 1);
        train(&mut run, &mut trainer, &writing(0), &|| false, &mut |_| {}).unwrap();
        let records = metrics::read(&run.metrics()).unwrap();
        let at = |iter| {
            let found = records.iter().find_map(|record| match record {
                Record::Step(step) if step.iter == iter => Some(step.lr),
                _ => None,
            });
            found.unwrap()
        };
        assert_eq!(at(22), crate::optim::learning_rate(&settings(), 22));
        assert_eq!(at(23), crate::optim::learning_rate(&longer, 23));
    }

    #[test]
    fn a_run_that_diverges_names_the_step_and_keeps_its_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::create(folder.path(), "run").unwrap();
        let wild =
            TrainConfig { learning_rate: 1e30, decay_lr: false, grad_clip: 0.0, ..settings() };
        let error = train(&mut run, &mut trainer(&wild, 1), &writing(0), &|| false, &mut |_| {})
            .unwrap_err();
        assert!(error.to_string().contains("of step") && error.hint().is_some(), "{error}");
        checkpoint::Checkpoint::load(&run.best()).unwrap();
        checkpoint::Checkpoint::load(&run.last()).unwrap();
    }

    #[test]
    fn a_run_whose_text_becomes_unreadable_saves_the_steps_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::create(folder.path(), "run").unwrap();
        let options = DataOptions::default();
        let input = Input::TinyShakespeare;
        let data = Dataset::build(&input, &options, Some(&run.data()), &mut |_, _| {}).unwrap();
        let rarely = TrainConfig { eval_interval: 0, ..settings() };
        let mut trainer = Trainer::new(gpt(&rarely, 1), data, rarely).unwrap();
        let file = std::fs::File::options().write(true).open(run.data().join("train.bin")).unwrap();
        let mut cut = |event: Event| {
            if matches!(event, Event::Step(report) if report.iter == 4) {
                file.set_len(8).unwrap();
            }
        };
        train(&mut run, &mut trainer, &writing(0), &|| false, &mut cut).unwrap_err();
        assert_eq!(checkpoint::read_progress(&run.last()).unwrap().unwrap().step, 5);
    }

    #[test]
    fn a_run_in_training_is_refused_to_a_second_process() {
        let folder = tempfile::tempdir().unwrap();
        let run = Run::create(folder.path(), "run").unwrap();
        let mut other = Run::open(folder.path(), Some(run.folder())).unwrap();
        let mut in_other =
            || train(&mut other, &mut trainer(&settings(), 1), &writing(0), &|| false, &mut |_| {});
        let error = in_other().unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        let error = Run::create_at(run.folder(), true).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        drop(run);
        in_other().unwrap();
    }

    #[test]
    fn patience_ends_a_run_that_no_longer_improves() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::create(folder.path(), "run").unwrap();
        let stuck = TrainConfig { learning_rate: 0.0, decay_lr: false, patience: 2, ..settings() };
        let mut trainer = trainer(&stuck, 1);
        let ending = train(&mut run, &mut trainer, &writing(0), &|| false, &mut |_| {}).unwrap();
        assert_eq!((ending, trainer.progress().step), (Ending::Patience, 10));
    }

    #[test]
    fn accumulation_is_the_one_big_batch_bit_for_bit() {
        let after = |batch_size, gradient_accumulation_steps| {
            // 16 tokens each: more than are computed at a time.
            let train = TrainConfig { batch_size, gradient_accumulation_steps, ..settings() };
            let mut trainer = trainer(&train, 1);
            let losses: Vec<f32> = (0..3).map(|_| trainer.step().unwrap().loss).collect();
            (losses, trainer.gpt().params().data().to_vec())
        };
        let big = after(160, 1);
        assert!(big == after(40, 4) && big == after(20, 8), "accumulated otherwise");
    }
}
