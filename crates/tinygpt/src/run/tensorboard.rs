//! The metrics for TensorBoard: `events.out.tfevents.SECONDS.tinygpt`, a file for each stretch of a
//! run between resumes, every number of `metrics.csv` under its name there, and `mfu`. `iter`, which
//! is the step itself, comes with evaluations only: no tag has two values for a step.
//!
//! ```text
//!   file       = record*, the first an Event with file_version = "brain.Event:2"
//!   record     = length u64 | masked CRC-32C of it u32 | that many bytes | masked CRC-32C of them
//!   Event      = 1: wall_time f64, 2: step int64, one of 3: file_version, 5: Summary, 7: SessionLog
//!   Summary    = 1: Value, again and again         Value = 1: tag, 2: simple_value f32
//!   SessionLog = 1: status, START being 1
//! ```
//!
//! Bytes are protobuf's, little-endian. **A resumed run's file begins with START at step 0**, which
//! makes TensorBoard forget what an earlier file has, **and has all that came before**: steps after the
//! checkpoint are taken again, and those of a stretch without `--tensorboard` are in no earlier file.

use super::folder::{event_file, event_files};
use super::log::Log;
use super::metrics::{self, Record};
use crate::config::GptConfig;
use crate::error::Result;
use crc::{CRC_32_ISCSI, Crc};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What nanoGPT's `mfu` is a percentage of: FLOP/s of an A100 in bf16.
const A100: f64 = 312e12;

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Scalars {
    log: Log,
    flops_per_token: f64,
}

impl Scalars {
    /// Begins a file in `folder`, of a run that goes on (`resumed`) or of a new one, with the
    /// `records` that the run has already, at the moments that their times of training say.
    pub fn begin(
        folder: &Path,
        resumed: bool,
        (config, num_params): (&GptConfig, usize),
        records: &[Record],
    ) -> Result<Self> {
        let earlier = event_files(folder).map(|(seconds, _)| seconds).max();
        // TensorBoard reads them by name, so a clock that was put back must not show in it.
        let seconds = (now() as u64).max(earlier.map_or(0, |seconds| seconds + 1));
        let log = Log::open(&event_file(folder, seconds))?;
        let mut scalars = Self { log, flops_per_token: flops_per_token(config, num_params) };
        let elapsed = |of: &Record| match of {
            Record::Step(step) => Some(step.elapsed_s),
            Record::Evaluation(_) => None,
        };
        let started = now() - records.iter().rev().find_map(elapsed).unwrap_or(0.0);
        let mut file = record(&event(started, 0, &bytes(3, b"brain.Event:2")));
        if resumed {
            file.extend(record(&event(started, 0, &bytes(7, &[0x08, 1]))));
        }
        let mut time = started;
        for of in records {
            time = elapsed(of).map_or(time, |elapsed| started + elapsed);
            file.extend(scalars.record(time, of));
        }
        scalars.log.add(&file)?;
        Ok(scalars)
    }

    /// Adds a step or an evaluation: one event with a value for each number.
    pub fn add(&mut self, of: &Record) -> Result<()> {
        self.log.add(&self.record(now(), of))
    }

    fn record(&self, time: f64, of: &Record) -> Vec<u8> {
        let mut numbers = metrics::numbers(of);
        if let Record::Step(step) = of {
            let mfu = 100.0 * self.flops_per_token * step.tokens_per_s / A100;
            numbers.insert("mfu".into(), mfu.into());
            numbers.remove("iter");
        }
        let values = numbers.iter().filter_map(|(tag, value)| Some(scalar(tag, value.as_f64()?)));
        record(&event(time, of.iter(), &bytes(5, &values.flatten().collect::<Vec<_>>())))
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// As nanoGPT counts them, forward and backward: six for each parameter but the positions, and
/// attention's.
fn flops_per_token(config: &GptConfig, num_params: usize) -> f64 {
    let GptConfig { n_layer, n_embd, block_size, .. } = *config;
    let products = 6.0 * (num_params - block_size * n_embd) as f64;
    products + 12.0 * n_layer as f64 * n_embd as f64 * block_size as f64
}

/// An event at that moment; `what` is the field that says what happened.
fn event(time: f64, step: u64, what: &[u8]) -> Vec<u8> {
    let mut event = vec![0x09];
    event.extend(time.to_le_bytes());
    event.push(0x10);
    event.extend(varint(step));
    event.extend(what);
    event
}

/// A value of a summary.
fn scalar(tag: &str, value: f64) -> Vec<u8> {
    let mut scalar = bytes(1, tag.as_bytes());
    scalar.push(0x15);
    scalar.extend((value as f32).to_le_bytes());
    bytes(1, &scalar)
}

/// A field that holds bytes, a text or a message.
fn bytes(field: u8, contents: &[u8]) -> Vec<u8> {
    let mut all = vec![field << 3 | 2];
    all.extend(varint(contents.len() as u64));
    all.extend(contents);
    all
}

/// Seven bits a byte, the lowest first; the eighth says that more come.
fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length), event, &masked_crc(event)].concat()
}

/// Turned and shifted, because a checksum of what contains checksums is weak.
fn masked_crc(of: &[u8]) -> [u8; 4] {
    CRC.checksum(of).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{Evaluation, StepReport};
    use std::path::PathBuf;

    fn step(iter: u64) -> Record {
        Record::Step(StepReport {
            iter,
            loss: 2.5,
            lr: 0.25,
            grad_norm: f32::NAN,
            step_ms: 2.0,
            tokens_per_s: 312e9,
            elapsed_s: 0.5,
            tokens: 64,
        })
    }

    fn evaluation(iter: u64) -> Record {
        let (val_loss, val_bits_per_byte) = (Some(1.5), None);
        Record::Evaluation(Evaluation {
            iter,
            train_loss: 2.0,
            val_loss,
            val_bits_per_byte,
            best: true,
        })
    }

    /// The events of a file, their lengths and checksums checked: step, and the rest after it.
    fn events(path: &Path) -> Vec<(u8, Vec<u8>)> {
        let (mut rest, mut events) = (&std::fs::read(path).unwrap()[..], Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let event = &rest[12..12 + length];
            assert_eq!(rest[..16 + length], record(event));
            assert!(event[0] == 0x09 && event[9] == 0x10 && event[10] < 0x80);
            events.push((event[10], event[11..].to_vec()));
            rest = &rest[16 + length..];
        }
        events
    }

    /// Our files, in TensorBoard's order.
    fn files_in(folder: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<_> = event_files(folder).map(|(_, path)| path).collect();
        paths.sort();
        paths
    }

    fn begin(folder: &Path, resumed: bool, records: &[Record]) -> Scalars {
        // 10 x 2 positions, and 1,000 other parameters.
        let config = GptConfig { n_layer: 1, n_embd: 2, block_size: 10, ..GptConfig::default() };
        Scalars::begin(folder, resumed, (&config, 1020), records).unwrap()
    }

    #[test]
    fn a_known_record_is_framed_as_tensorflow_frames_it() {
        // CRC-32C of RFC 3720's 32 zeros, and the mask of it.
        assert_eq!(CRC.checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(masked_crc(&[0; 32]), 0x0fd7_fffa_u32.to_le_bytes());
        let framed = record(&[0; 32]);
        assert_eq!(framed.len(), 8 + 4 + 32 + 4);
        assert_eq!(framed[..8], 32u64.to_le_bytes());
        assert_eq!(framed[44..], 0x0fd7_fffa_u32.to_le_bytes());
        assert_eq!([varint(0), varint(127), varint(300)].concat(), [0, 127, 0xac, 2]);
    }

    #[test]
    fn every_number_of_a_line_is_a_scalar_of_its_name_and_steps_have_an_mfu() {
        let folder = tempfile::tempdir().unwrap();
        let mut scalars = begin(folder.path(), false, &[]);
        scalars.add(&evaluation(0)).unwrap();
        scalars.add(&step(0)).unwrap();
        let events = events(&files_in(folder.path())[0]);
        assert_eq!(events[0], (0, bytes(3, b"brain.Event:2")));
        let summary = |values: &[(&str, f64)]| {
            let values = values.iter().flat_map(|(tag, value)| scalar(tag, *value));
            (0, bytes(5, &values.collect::<Vec<_>>()))
        };
        assert_eq!(events[1], summary(&[("iter", 0.0), ("train/loss", 2.0), ("val/loss", 1.5)]));
        // A norm that is no number is left out. 6 x 1,000 and 12 x 20 operations a token.
        let mfu = 100.0 * 6240.0 * 312e9 / 312e12;
        assert_eq!(
            events[2],
            summary(&[
                ("elapsed_s", 0.5),
                ("lr", 0.25),
                ("mfu", mfu),
                ("ms", 2.0),
                ("tokens", 64.0),
                ("tokens_per_s", 312e9),
                ("train/batch_loss", 2.5),
            ])
        );
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn a_resumed_run_has_all_that_came_before_in_a_file_that_sorts_after_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let ahead = (now() as u64) + 9;
        let theirs = format!("events.out.tfevents.{ahead}.host.1.0");
        std::fs::write(folder.path().join(theirs), "PyTorch's").unwrap();
        let earlier = event_file(folder.path(), ahead);
        std::fs::write(&earlier, "").unwrap();
        begin(folder.path(), true, &[step(1), evaluation(2)]);
        let paths = files_in(folder.path());
        assert!(paths.len() == 2 && paths[0] == earlier, "{paths:?}");
        let events = events(&paths[1]);
        assert_eq!(events[1], (0, vec![0x3a, 2, 0x08, 1]), "START");
        assert_eq!(events.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 0, 1, 2]);
    }

    #[test]
    fn what_came_before_has_the_moments_that_its_times_of_training_say() {
        let folder = tempfile::tempdir().unwrap();
        let at = |iter, elapsed_s| match step(iter) {
            Record::Step(report) => Record::Step(StepReport { elapsed_s, ..report }),
            other => other,
        };
        begin(folder.path(), true, &[evaluation(0), at(0, 100.0), evaluation(1), at(1, 900.0)]);
        let file = std::fs::read(&files_in(folder.path())[0]).unwrap();
        let (mut rest, mut times) = (&file[..], Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            times.push(f64::from_le_bytes(rest[13..21].try_into().unwrap()));
            rest = &rest[16 + length..];
        }
        let since: Vec<f64> = times[2..].iter().map(|time| (time - times[0]).round()).collect();
        assert_eq!(since, [0.0, 100.0, 100.0, 900.0]);
        assert!((now() - times[5]).abs() < 60.0, "the last was just now");
    }
}
