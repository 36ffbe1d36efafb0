//! `metrics.jsonl`: one JSON object a line, a training step or an evaluation, under the tags that
//! nanoGPT logs. Beside it `metrics.csv`, the same records for spreadsheets: an evaluation's row has
//! no `lr`, a step's no `val/loss`, and what is no number is empty. A step's loss, that of its own
//! batch, stands there under `train/batch_loss`, so that `train/loss` is one curve, nanoGPT's.
//!
//! **After a resume the files are those of a run that was never interrupted**: lines of steps that the
//! checkpoint does not know are dropped first.

use super::log::Log;
use crate::error::{Error, Result};
use crate::files;
use crate::train::{Evaluation, StepReport};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// Has a learning rate.
    Step(StepReport),
    /// Has none, and says whether it was the best.
    Evaluation(Evaluation),
}

impl Record {
    /// Its step.
    pub(super) fn iter(&self) -> u64 {
        match self {
            Record::Step(report) => report.iter,
            Record::Evaluation(evaluation) => evaluation.iter,
        }
    }

    /// Whether a checkpoint of `step` knows this: the training step of that number comes after it.
    fn known_at(&self, step: u64) -> bool {
        match self {
            Record::Step(report) => report.iter < step,
            Record::Evaluation(evaluation) => evaluation.iter <= step,
        }
    }
}

/// A run's metrics that are being written. Each line is in its file when its call returns; one
/// that could not be written (a full disk) comes with the next that can.
#[derive(Debug)]
pub struct Metrics {
    lines: Log,
    table: Log,
}

/// The columns of `metrics.csv`.
const COLUMNS: [&str; 11] = [
    "iter",
    "train/loss",
    "val/loss",
    "val/bits_per_byte",
    "train/batch_loss",
    "lr",
    "grad_norm",
    "ms",
    "tokens_per_s",
    "elapsed_s",
    "tokens",
];

impl Metrics {
    /// Begins a new `metrics.jsonl` at `path`, in place of one that is there, and its table.
    pub fn create(path: &Path) -> Result<Self> {
        Self::begin(path, &[])
    }

    /// Goes on with the file of a run that resumes from the checkpoint of `step`.
    pub fn resume(path: &Path, step: u64) -> Result<Self> {
        let text = if path.exists() { files::read_log(path)? } else { String::new() };
        // A line that a power cut or an editor spoilt is no reason to lose the run.
        let records = text.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok());
        let kept: Vec<_> = records.filter(|record| record.known_at(step)).collect();
        Self::begin(path, &kept)
    }

    fn begin(path: &Path, records: &[Record]) -> Result<Self> {
        let rows: String = records.iter().map(row).collect();
        let table = Log::begin(&path.with_extension("csv"), COLUMNS.join(",") + "\n" + &rows)?;
        let lines = Log::begin(path, records.iter().map(line).collect::<String>())?;
        Ok(Self { lines, table })
    }

    /// Adds a training step or an evaluation.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let written = self.lines.add(line(record).as_bytes());
        let tabled = self.table.add(row(record).as_bytes());
        written.and(tabled)
    }
}

/// A record's line.
fn line(record: &Record) -> String {
    serde_json::to_string(record).expect("numbers and booleans") + "\n"
}

/// What a record's line has, under the names of the columns.
pub(super) fn numbers(record: &Record) -> Map<String, Value> {
    // From the line, whose digits are those of f32.
    let mut line: Map<_, _> = serde_json::from_str(&line(record)).expect("was just written");
    if let Record::Step(_) = record
        && let Some(loss) = line.remove("train/loss")
    {
        line.insert("train/batch_loss".into(), loss);
    }
    line
}

/// A record's row.
fn row(record: &Record) -> String {
    let numbers = numbers(record);
    let cell = |name: &&str| match numbers.get(*name) {
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_string(),
    };
    COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"
}

/// Every line of the file, without a last one that a kill cut short.
///
/// # Errors
/// [`Error::Io`], or [`Error::Data`] with the number of a line before the last that is no record.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut bad: Option<Error> = None;
    let mut lines = BufReader::new(files::open(path)?).split(b'\n');
    let mut number = 0;
    while let Some(line) = lines.next().transpose().map_err(Error::io("read", path))? {
        number += 1;
        // A bad line is forgiven only if nothing follows it.
        if let Some(error) = bad {
            return Err(error);
        }
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(_) => {
                let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                let name = format!("{}, line {number}", path.display());
                bad = Some(Error::data(name, format!("is no metrics record: {shown:?}")));
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;
    use std::ops::Range;

    fn report(iter: u64) -> StepReport {
        let (loss, tokens) = (4.17 - iter as f32 / 100.0, 768 * (iter + 1));
        let (lr, grad_norm) = (1e-3 / 3.0, 0.5);
        StepReport {
            iter,
            loss,
            lr,
            grad_norm,
            step_ms: 41.7,
            tokens_per_s: 18e3,
            elapsed_s: 0.1,
            tokens,
        }
    }

    fn step(iter: u64) -> Record {
        Record::Step(report(iter))
    }

    fn evaluation(iter: u64, val_loss: Option<f32>) -> Record {
        let (train_loss, val_bits_per_byte) = (4.1, val_loss.map(|loss| loss * 1.4));
        let best = val_loss.is_some();
        Record::Evaluation(Evaluation { iter, train_loss, val_loss, val_bits_per_byte, best })
    }

    /// What a run writes in those steps if it evaluates before every second one. One that resumes
    /// finds its first evaluation done.
    fn run(metrics: &mut Metrics, steps: Range<u64>, resumes: bool) {
        for iter in steps.clone() {
            if iter % 2 == 0 && !(resumes && iter == steps.start) {
                metrics.write(&evaluation(iter, Some(4.2))).unwrap();
            }
            metrics.write(&step(iter)).unwrap();
        }
    }

    #[test]
    fn lines_carry_the_tags_people_grep_and_read_back_equal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut metrics = Metrics::create(&path).unwrap();
        let records = [step(3), evaluation(4, Some(1.5)), evaluation(5, None)];
        records.iter().for_each(|record| metrics.write(record).unwrap());
        let text = fs::read_to_string(&path).unwrap();
        for key in
            ["iter", "train/loss", "lr", "grad_norm", "ms", "tokens_per_s", "elapsed_s", "tokens"]
        {
            assert!(text.lines().next().unwrap().contains(&format!("\"{key}\":")), "{key}: {text}");
        }
        assert!(text.contains("\"val/loss\":1.5") && text.contains("\"val/loss\":null"), "{text}");
        assert_eq!(read(&path).unwrap(), records);
    }

    #[test]
    fn a_resumed_file_is_that_of_an_uninterrupted_run() {
        let folder = tempfile::tempdir().unwrap();
        let [whole, resumed] = ["a", "b"].map(|name| folder.path().join(name));
        run(&mut Metrics::create(&whole).unwrap(), 0..9, false);
        for (killed_at, saved_at) in [(6, 4), (7, 4), (5, 4), (9, 5), (5, 5), (3, 0)] {
            run(&mut Metrics::create(&resumed).unwrap(), 0..killed_at, false);
            let mut file = File::options().append(true).open(&resumed).unwrap();
            file.write_all(b"{\"iter\":7,\"tr").unwrap();
            run(&mut Metrics::resume(&resumed, saved_at).unwrap(), saved_at..9, saved_at % 2 == 0);
            let [a, b] = [&whole, &resumed].map(|path| fs::read_to_string(path).unwrap());
            assert_eq!(a, b, "killed at {killed_at}, saved at {saved_at}");
            let [a, b] = [&whole, &resumed].map(|path| path.with_extension("csv"));
            assert_eq!(fs::read_to_string(a).unwrap(), fs::read_to_string(b).unwrap());
        }
        Metrics::resume(&folder.path().join("deleted"), 3).unwrap();
    }

    #[test]
    fn the_table_has_a_row_for_every_line_with_the_same_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut metrics = Metrics::create(&path).unwrap();
        let step = Record::Step(StepReport { grad_norm: f32::NAN, lr: 0.25, ..report(0) });
        for record in [evaluation(0, Some(1.5)), step, evaluation(1, None)] {
            metrics.write(&record).unwrap();
        }
        assert_eq!(
            fs::read_to_string(folder.path().join("metrics.csv")).unwrap(),
            "iter,train/loss,val/loss,val/bits_per_byte,train/batch_loss,lr,grad_norm,ms,\
             tokens_per_s,elapsed_s,tokens\n0,4.1,1.5,2.1,,,,,,,\n\
             0,,,,4.17,0.25,,41.7,18000.0,0.1,768\n1,4.1,,,,,,,,,\n"
        );
    }

    #[test]
    fn a_cut_last_line_is_forgiven_and_a_bad_line_before_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        run(&mut Metrics::create(&path).unwrap(), 0..3, false);
        let text = fs::read_to_string(&path).unwrap();
        let records = read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(read(&path).unwrap(), records[..records.len() - 1]);
        fs::write(&path, text.replacen("{\"iter\":1", "{\"item\":1", 1)).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("{\\\"item"), "{error}");
    }

    #[test]
    fn a_loss_that_is_not_a_number_reads_back_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let report = StepReport { loss: f32::NAN, grad_norm: f32::INFINITY, ..report(1) };
        Metrics::create(&path).unwrap().write(&Record::Step(report)).unwrap();
        let [Record::Step(read)] = read(&path).unwrap()[..] else { panic!("one step") };
        assert!(read.loss.is_nan() && read.grad_norm.is_nan());
    }
}
