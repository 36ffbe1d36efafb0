//! `tinygpt check`: the facts that a GPT stands on, tested on this machine.

use super::info::named_model;
use crate::args::threads;
use crate::memory::check_checking;
use crate::{Outcome, failure::Failure, out::Out, trained};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::{Duration, Instant};
use tinygpt::GptConfig;
use tinygpt::check::{BrokenMask, CHECKS, Report, Row, Subject};
use tinygpt::run::{cpu, folder::RUNS, read::PRESETS};

const HELP: &str = "\
One row a fact: the parameter count; the first loss against ln V; the variance of attention scores
with and without 1/sqrt(D); every gradient against finite differences; that no position sees the
future, and that a broken mask is found out; that the KV cache, the fused attention and the number
of threads change nothing. docs/questions.md says why each matters. Exit code 1 if a row fails.

Examples:
  tinygpt check                      the preset quick
  tinygpt check runs/quick           a trained model
  tinygpt check --only broken-mask   what a model does that sees the future";

pub fn arguments(command: Command) -> Command {
    command
        .after_help(HELP)
        .arg(
            Arg::new("model")
                .value_name("RUN|PRESET")
                .default_value("quick")
                .help("A preset, a run, a model of any format, or a config file"),
        )
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("NAME")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .value_parser(PossibleValuesParser::new(CHECKS.iter().map(|check| check.name)))
                .help("Only this check; may be given several times"),
        )
        .arg(threads())
}

pub fn run(matches: &ArgMatches, out: &mut Out) -> Outcome {
    let cpu = cpu(*matches.get_one("threads").expect("has a default"))?;
    let name = matches.get_one::<String>("model").expect("has a default");
    let only: Vec<&String> = matches.get_many("only").unwrap_or_default().collect();
    let mut subject = subject(name, cpu)?;
    let preset = if is_preset(name) { "preset " } else { "" };
    out.write(&heading(&format!("{preset}{name}"), &subject))?;

    let started = Instant::now();
    let (mut rows, mut failed) = (0, Vec::new());
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("it is one"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let chosen = |name: &str| only.is_empty() || only.iter().any(|typed| *typed == name);
    for check in CHECKS.iter().filter(|check| chosen(check.name)) {
        bar.set_message(check.name);
        let report = (check.run)(&mut subject)?;
        bar.suspend(|| out.write(&table(check.name, &report)))?;
        rows += report.rows.len();
        if !report.passed() {
            failed.push(check.name);
        }
        // What is computed from NaN says nothing of the code.
        if check.name == "weights" && !report.passed() {
            break;
        }
    }
    bar.finish_and_clear();
    if failed.is_empty() {
        let seconds = started.elapsed().as_secs_f64();
        return out.write(&format!("\nAll {rows} rows as expected, in {seconds:.1} s.\n"));
    }
    Err(Failure::run(format!("not as expected: {}", failed.join(", ")))
        .with_hint("docs/questions.md says what each row means, and what a bug looks like"))
}

/// What the user called `name`: a trained model if there is one, otherwise a new one of its kind.
fn subject(name: &str, cpu: tinygpt::Cpu) -> Result<Subject, Failure> {
    let (path, runs) = (Path::new(name), Path::new(RUNS));
    let recipe = is_preset(name) || path.extension().is_some_and(|end| end == "toml");
    if recipe || !(path.exists() || runs.join(name).exists()) {
        let config = named_model(name)?.config;
        config.check()?;
        check_checking(name, Subject::fresh_bytes(&config))?;
        return Ok(Subject::fresh(&config, cpu)?);
    }
    let model = trained::named(Some(path))?;
    let (params, _) = trained::read(&model)?;
    check_checking(name, Subject::trained_bytes(&model.config))?;
    Ok(Subject::trained(model.config, params, cpu)?)
}

fn is_preset(name: &str) -> bool {
    PRESETS.iter().any(|(preset, _)| *preset == name)
}

/// What was asked for, and how what is measured differs from it.
fn heading(name: &str, subject: &Subject) -> String {
    let sizes = |config: &GptConfig| {
        let GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, .. } = *config;
        [('V', vocab_size), ('T', block_size), ('L', n_layer), ('H', n_head), ('C', n_embd)]
    };
    let list = |sizes: &[(char, usize)]| {
        let each: Vec<_> = sizes.iter().map(|(letter, n)| format!("{letter} = {n}")).collect();
        each.join(", ")
    };
    let (asked, mut measured) = (sizes(subject.config()), sizes(subject.measured()).to_vec());
    measured.retain(|size| !asked.contains(size));
    let note = match measured.is_empty() {
        true => String::new(),
        false => format!("Smaller here, to take seconds: {}.\n", list(&measured)),
    };
    let (threads, isa) = (subject.cpu().threads(), subject.cpu().isa().name());
    let columns = line("", ["measured", "expected", ""]);
    format!("{name}: {}; {isa}, threads: {threads}\n{note}\n{columns}", list(&asked))
}

fn table(name: &str, report: &Report) -> String {
    let row = |row: &Row| {
        let verdict = if row.pass { "pass" } else { "FAIL" };
        line(&row.what, [&row.measured, &row.expected, verdict])
    };
    let rows: String = report.rows.iter().map(row).collect();
    let story = report.broken_mask.as_ref().map(story).unwrap_or_default();
    format!("{name}\n{rows}{story}")
}

fn line(what: &str, [measured, expected, verdict]: [&str; 3]) -> String {
    let line = format!("  {what:38} {measured:>11}  {expected:15}  {verdict}");
    format!("{}\n", line.trim_end())
}

/// Rows of the chart.
const HEIGHT: usize = 12;
/// Steps that share a column, so that it fits into 80.
const STEPS_A_COLUMN: usize = 4;

/// The curves of both models, and what they write.
fn story(BrokenMask { causal, unmasked }: &BrokenMask) -> String {
    let columns = |losses: &[f32]| -> Vec<f32> {
        losses
            .chunks(STEPS_A_COLUMN)
            .map(|few| few.iter().sum::<f32>() / few.len() as f32)
            .collect()
    };
    let (with, without) = (columns(&causal.losses), columns(&unmasked.losses));
    let most = with.iter().chain(&without).fold(0.0f32, |most, x| most.max(*x));
    let height = |loss: f32| (loss / most * HEIGHT as f32) as usize;
    let mut chart = String::new();
    for row in (0..=HEIGHT).rev() {
        let mark = |(a, b): (&f32, &f32)| match (height(*a) == row, height(*b) == row) {
            (true, true) => '*',
            (true, false) => 'o',
            (false, true) => 'x',
            (false, false) => ' ',
        };
        let marks: String = with.iter().zip(&without).map(mark).collect();
        let level = most * row as f32 / HEIGHT as f32;
        chart += format!("  {level:4.1} | {marks}").trim_end();
        chart += "\n";
    }
    format!(
        "\n  Two small models (L = 1, C = 64, T = 16) learn Tiny Shakespeare, {} steps.\n  \
         Loss of each new batch, nats a token: o with a mask, x without, * both.\n\
         {chart}\n  What they write, line breaks as /. With a mask:\n{}  Without:\n{}\n",
        causal.losses.len(),
        quoted(&causal.text),
        quoted(&unmasked.text)
    )
}

/// A text on lines of 76 characters.
fn quoted(text: &str) -> String {
    let shown: Vec<char> = text.replace('\n', "/").chars().collect();
    shown.chunks(72).map(|line| format!("    {}\n", line.iter().collect::<String>())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_fails_says_so() {
        let row = |pass| Row { what: "w".into(), measured: "1".into(), expected: "2".into(), pass };
        let report = Report { rows: vec![row(true), row(false)], broken_mask: None };
        let text = table("name", &report);
        assert!(text.starts_with("name\n  w "), "{text}");
        assert_eq!(text.matches("pass").count(), 1);
        assert!(text.trim_end().ends_with("FAIL"), "{text}");
    }
}
