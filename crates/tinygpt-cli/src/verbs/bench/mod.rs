//! `tinygpt bench`: how fast it is on this machine, and how near that is to what the machine can.

mod measure;
mod subject;

use crate::args::{
    dtype_of, number_of, precision, precision_of, recipe, settled, typed_settings, with_settings,
};
use crate::memory::{check_limits, check_measuring};
use crate::ops::{Limits, peak_now};
use crate::progress::patiently;
use crate::{Outcome, failure::Failure, machine, out::Out};
use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::DecimalBytes;
use measure::Plan;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use subject::{Found, Subject};
use tinygpt::run::memory::check_training;
use tinygpt::run::{
    cpu,
    keys::{Group, Key},
};
use tinygpt::sample::cache_bytes;
use tinygpt::train::Memory;
use tinygpt::{Factors, Gpt, Layers, Precision};

const HELP: &str = "\
train measures an optimizer step, eval a forward pass, generate one sequence with its KV cache (or
several together, or with weights of fewer bits), kernels every op of a step. Tokens are random; no file is written. Speeds are of the median time.
FLOPs are counted as 6 N + 12 L C T a token (forward only: a third), N parameters without the
positions, and compared with the multiply-adds that all threads do from registers, in f32 or of pairs
of bf16, measured before and after. TINYGPT_ISA=portable|avx2|avx512|avx512bf16 caps the instruction
set.

Examples:
  tinygpt bench                                      a training step of the preset quick
  tinygpt bench train --preset shakespeare-char      of nanoGPT's character model
  tinygpt bench kernels --preset gpt2 --batch-size 1
  tinygpt bench generate --preset gpt2 --dtype bf16
  tinygpt bench generate --num-samples 8 --json
  TINYGPT_ISA=portable tinygpt bench                 as on a processor without AVX2";

const WHAT: [&str; 4] = ["train", "generate", "eval", "kernels"];

/// The longest anybody waits for a measurement, in seconds.
const LONGEST: f64 = 86_400.0;

pub fn arguments(command: Command) -> Command {
    let seconds = |text: &str| match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(seconds),
        _ => Err(format!("must be a number above 0, at most {LONGEST}")),
    };
    let command = command
        .after_help(HELP)
        .arg(
            Arg::new("what")
                .value_name(WHAT.join("|"))
                .value_parser(PossibleValuesParser::new(WHAT))
                .hide_possible_values(true)
                .default_value("train")
                .help("What to measure"),
        )
        .args(recipe())
        .args([
            Arg::new("seconds")
                .long("seconds")
                .value_name("N")
                .allow_negative_numbers(true)
                .value_parser(seconds)
                .default_value("10")
                .help("How long to measure; once at least, however long that takes"),
            Arg::new("warmup")
                .long("warmup")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .default_value("3")
                .help("Times that do not count, before; fewer if they take longer than --seconds"),
            Arg::new("num_samples")
                .long("num-samples")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=64))
                .default_value("1")
                .help("Texts that generate writes together"),
            Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object"),
        ])
        .args(precision("auto"))
        .mut_arg("dtype", |arg| {
            arg.help(
                "What products round to, or for generate what the weights are kept in; auto is \
                 bf16 where the processor multiplies it",
            )
        });
    with_settings(command, shapes_a_step)
}

/// Whether a setting changes how long a step takes.
fn shapes_a_step(key: &Key) -> bool {
    let others = ["batch_size", "gradient_accumulation_steps", "dropout", "threads"];
    key.group == Group::Model || others.contains(&key.name)
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let what = matches.get_one::<String>("what").expect("has a default").as_str();
    let time = Duration::from_secs_f64(number_of(matches, "seconds"));
    let plan = Plan { warmup: number_of(matches, "warmup"), time };
    let (mut settings, _) = settled(&Layers {
        preset: matches.get_one::<String>("preset").cloned(),
        file: matches.get_one::<PathBuf>("config").cloned(),
        command_line: typed_settings(matches),
        ..Layers::default()
    })?;
    settings.train.dtype = dtype_of(matches);
    for flag in ["quantize", "num_samples"] {
        let typed = matches.value_source(flag) == Some(ValueSource::CommandLine);
        if typed && what != "generate" {
            let flag = flag.replace('_', "-");
            return Err(Failure::usage(format!("--{flag} is for `bench generate`")));
        }
    }
    let sequences = settings.train.sequences_per_step();
    let texts = number_of::<u32>(matches, "num_samples") as usize;
    // The limits have threads of their own, which sleep while the model works.
    let (judge, cpu) = (cpu(settings.run.threads)?, cpu(settings.run.threads)?);
    settings.settle_dtype(cpu.isa());
    let generates = what == "generate";
    // Weights in fewer bits are multiplied as f32.
    let (precision, factors) = match generates {
        true => (precision_of(matches, cpu.isa()), Factors::F32),
        false => (Precision::F32, settings.train.dtype.factors(cpu.isa())),
    };
    check_limits()?;
    if matches!(what, "train" | "kernels") {
        check_training(&settings.model, sequences)?;
    } else {
        let memory = Memory::of(&settings.model, (sequences, settings.model.block_size));
        let model = memory.total().saturating_sub(memory.moments);
        let cache = cache_bytes(&settings.model, precision, texts, usize::MAX);
        check_measuring(model.saturating_add(cache))?;
    }
    let judge = judge.with_factors(factors);
    let before = peak_now(&judge);
    let gpt = patiently("making random weights", || {
        let mut gpt = Gpt::new_on(settings.model.clone(), settings.train.seed, cpu)?;
        gpt.keep_in(precision);
        Ok::<_, tinygpt::Error>(gpt)
    })?;
    let weight_bytes = gpt.weight_bytes_read();
    let subject = Subject { settings: &settings, plan: &plan, precision, weight_bytes, texts };
    let measured = subject.measure(what, gpt)?;
    // Asked before the limit of memory is measured, which takes some.
    let peak_memory = machine::peak_memory();
    let limits = Limits::after(before, &judge);
    let found = subject.judge(measured, &limits);
    if matches.get_flag("json") {
        let memory = json!({ "what": what, "peak_memory_bytes": peak_memory });
        let all = [subject.json(), machine::json(&judge), limits.json(), memory, found.json];
        return out.write(&format!("{:#}\n", machine::merged(all)));
    }
    let Found { lines, table, .. } = found;
    let memory = match peak_memory {
        Some(bytes) => format!("{} at most", DecimalBytes(bytes)),
        None => "this system does not say".into(),
    };
    let mut all = subject.lines();
    let dtype = if generates { precision.name() } else { settings.train.dtype.name() };
    all.push(("processor", machine::line(&judge, dtype)));
    all.extend(lines);
    all.extend([("limits", limits.line()), ("memory", memory)]);
    let text: String = all.iter().map(|(name, text)| format!("{name:<10} {text}\n")).collect();
    out.write(&if table.is_empty() { text } else { format!("{text}\n{table}") })
}
