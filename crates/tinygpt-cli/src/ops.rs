//! What the ops cost, in a table for people and one for programs, each beside the limit that the
//! machine sets it.

use crate::anatomy::aligned;
use serde_json::{Value, json};
use std::time::Duration;
use tinygpt::profile::Spent;
use tinygpt::run::thousands;
use tinygpt::{Cpu, peak};

/// How long each limit is measured.
const PROBE: Duration = Duration::from_millis(200);

/// What the machine could do at best.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Multiply-adds from registers, of all threads: before and after what they are to judge,
    /// because whatever else runs on the machine moves them.
    pub flops_per_s: [f64; 2],
    /// Reading and writing memory, of all threads.
    pub bytes_per_s: f64,
}

/// Operations a second at best, measured now.
pub fn peak_now(cpu: &Cpu) -> f64 {
    peak::flops_per_s(cpu, PROBE)
}

impl Limits {
    /// With what [`peak_now`] said before, the rest measured now.
    pub fn after(before: f64, cpu: &Cpu) -> Self {
        let flops_per_s = [before, peak_now(cpu)];
        Self { flops_per_s, bytes_per_s: peak::bytes_per_s(cpu, PROBE) }
    }

    /// The mean of both peaks, in operations a second.
    pub fn peak(&self) -> f64 {
        (self.flops_per_s[0] + self.flops_per_s[1]) / 2.0
    }

    pub fn line(&self) -> String {
        let [before, after] = self.flops_per_s.map(giga);
        let (peak, memory) = (giga(self.peak()), giga(self.bytes_per_s));
        let limits =
            format!("{peak} GFLOP/s ({before} before, {after} after), {memory} GB/s of memory");
        let [least, most] =
            [f64::min, f64::max].map(|which| which(self.flops_per_s[0], self.flops_per_s[1]));
        if most < 1.5 * least {
            return limits;
        }
        limits + "\n           they moved meanwhile: something else runs, and shares say little"
    }

    pub fn json(&self) -> Value {
        let [before, after] = self.flops_per_s;
        json!({
            "peak_gflop_per_s": self.peak() / 1e9,
            "peak_before_gflop_per_s": before / 1e9,
            "peak_after_gflop_per_s": after / 1e9,
            "memory_gb_per_s": self.bytes_per_s / 1e9,
        })
    }

    /// The seconds that arithmetic and memory would each take at best.
    fn least(&self, spent: &Spent) -> (f64, f64) {
        (spent.flops as f64 / self.peak(), spent.bytes as f64 / self.bytes_per_s)
    }
}

/// Billions in three digits.
pub fn giga(x: f64) -> String {
    let x = x / 1e9;
    let digits = [100.0, 10.0].iter().filter(|&&least| x < least).count();
    format!("{x:.digits$}")
}

pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// The ops of something that took `whole` and consists of `steps` equal parts, if it does.
pub struct Costs {
    pub spent: Vec<Spent>,
    pub whole: Duration,
    pub steps: Option<u64>,
    pub limits: Limits,
}

const NOTES: &str = "
rest: what is in no op. sizes: rows x inputs x outputs of a linear layer, B x T
x C x H of attention. limit: the least time for an op's arithmetic or for its
bytes, the longer of both, in percent of what it took; above 100%, its bytes
were still in the cache.
";

impl Costs {
    /// The longest first, then what no op accounts for, then the whole.
    pub fn table(&self) -> String {
        let unit = if self.steps.is_some() { "ms" } else { "seconds" };
        let heading = ["op", "sizes", "calls", unit, "share", "speed", "limit"];
        let mut rows = vec![heading.map(String::from)];
        rows.extend(self.sorted().iter().map(|spent| self.row(spent)));
        let sum = |name: &str, time| {
            let none = String::new;
            let (took, share) = (self.took(time), percent(self.share(time)));
            [name.into(), none(), none(), took, share, none(), none()]
        };
        rows.push(sum("rest", self.rest()));
        rows.push(sum(if self.steps.is_some() { "a step" } else { "all" }, self.whole));
        aligned(&rows, [false, false, true, true, true, true, true]) + NOTES
    }

    /// An object an op, the longest first; `rest` last.
    pub fn json(&self) -> Value {
        let parts = self.steps.unwrap_or(1) as f64;
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / parts;
        let op = |spent: &Spent| {
            let (seconds, sizes) = (spent.time.as_secs_f64().max(1e-9), sizes(spent));
            json!({
                "op": spent.name,
                "sizes": sizes,
                "calls": spent.calls as f64 / parts,
                "ms": ms(spent.time),
                "share": self.share(spent.time),
                "gflop_per_s": spent.flops as f64 / seconds / 1e9,
                "gb_per_s": spent.bytes as f64 / seconds / 1e9,
                "share_of_limit": self.share_of_limit(spent),
            })
        };
        let rest = json!({ "op": "rest", "ms": ms(self.rest()), "share": self.share(self.rest()) });
        Value::Array(self.sorted().iter().map(op).chain([rest]).collect())
    }

    fn sorted(&self) -> Vec<Spent> {
        let mut sorted = self.spent.clone();
        sorted.sort_by_key(|spent| std::cmp::Reverse(spent.time));
        sorted
    }

    fn rest(&self) -> Duration {
        self.whole.saturating_sub(self.spent.iter().map(|spent| spent.time).sum())
    }

    fn share(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.whole.as_secs_f64().max(1e-9)
    }

    fn share_of_limit(&self, spent: &Spent) -> f64 {
        let (arithmetic, memory) = self.limits.least(spent);
        arithmetic.max(memory) / spent.time.as_secs_f64().max(1e-9)
    }

    /// Milliseconds of a step, or seconds of the whole.
    fn took(&self, time: Duration) -> String {
        match self.steps {
            Some(steps) => format!("{:.2}", time.as_secs_f64() * 1e3 / steps as f64),
            None => format!("{:.2}", time.as_secs_f64()),
        }
    }

    fn row(&self, spent: &Spent) -> [String; 7] {
        let steps = self.steps.unwrap_or(1);
        let calls = match spent.calls.is_multiple_of(steps) {
            true => thousands(spent.calls / steps),
            false => format!("{:.1}", spent.calls as f64 / steps as f64),
        };
        let seconds = spent.time.as_secs_f64().max(1e-9);
        let (arithmetic, memory) = self.limits.least(spent);
        let speed = match arithmetic > memory {
            true => format!("{} GFLOP/s", giga(spent.flops as f64 / seconds)),
            false => format!("{} GB/s", giga(spent.bytes as f64 / seconds)),
        };
        let sizes: Vec<_> = sizes(spent).iter().map(usize::to_string).collect();
        [
            spent.name.into(),
            sizes.join("x"),
            calls,
            self.took(spent.time),
            percent(self.share(spent.time)),
            speed,
            format!("{:.0}%", 100.0 * self.share_of_limit(spent)),
        ]
    }
}

fn sizes(spent: &Spent) -> &[usize] {
    let used = spent.sizes.iter().position(|&size| size == 0).unwrap_or(spent.sizes.len());
    &spent.sizes[..used]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        let spent = |name, sizes, ms, flops, bytes| Spent {
            name,
            sizes,
            calls: 8,
            time: Duration::from_millis(ms),
            flops,
            bytes,
        };
        Costs {
            spent: vec![
                spent("AdamW", [0; 4], 20, 1_000_000, 200_000_000),
                spent("linear backward dx", [1024, 1600, 50257, 0], 60, 3_000_000_000, 1_000_000),
            ],
            whole: Duration::from_millis(100),
            steps: Some(4),
            limits: Limits { flops_per_s: [90e9, 110e9], bytes_per_s: 20e9 },
        }
    }

    #[test]
    fn the_table_is_sorted_adds_up_and_fits_eighty_columns() {
        let table = costs().table();
        let lines: Vec<Vec<&str>> =
            table.lines().take(5).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1][3..],
            ["1024x1600x50257", "2", "15.00", "60.0%", "50.0", "GFLOP/s", "50%"]
        );
        assert_eq!(lines[2], ["AdamW", "2", "5.00", "20.0%", "10.0", "GB/s", "50%"]);
        assert_eq!(lines[3], ["rest", "5.00", "20.0%"]);
        assert_eq!(lines[4], ["a", "step", "25.00", "100.0%"]);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }

    #[test]
    fn programs_get_the_same_numbers_and_the_rest() {
        let json = costs().json();
        assert_eq!(json[0]["op"], "linear backward dx");
        assert_eq!(json[0]["ms"], 15.0);
        assert_eq!(json[0]["sizes"], json!([1024, 1600, 50257]));
        assert!((json[1]["gb_per_s"].as_f64().unwrap() - 10.0).abs() < 1e-9, "{json}");
        assert_eq!(json[2]["op"], "rest");
        assert!((json[2]["share"].as_f64().unwrap() - 0.2).abs() < 1e-9, "{json}");
    }
}
