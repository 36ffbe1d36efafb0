//! Doing a piece of work again and again, and what that says.

use crate::failure::Failure;
use crate::progress::{Bar, unless_soon};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How long, and after how much that does not count.
pub struct Plan {
    pub warmup: u64,
    pub time: Duration,
}

impl Plan {
    /// Does it without looking at the clock: memory is found, threads are awake. Not again once
    /// the time is over.
    pub fn warm_up(&self, mut piece: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let _told = unless_soon("warming up".into());
        let started = Instant::now();
        (0..self.warmup).take_while(|_| started.elapsed() < self.time).try_for_each(|_| piece())
    }

    /// Does it until the time is over, once at least. How long each took.
    pub fn repeat(
        &self,
        doing: &'static str,
        mut piece: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Times, Failure> {
        // Where no bar is to be seen, a line says what takes so long; a bar begins with the second.
        let hidden = !std::io::stderr().is_terminal();
        let mut told = Some(unless_soon(format!("measuring {doing}")));
        let (started, mut bar, mut ms) = (Instant::now(), Bar::new(doing), Vec::new());
        while ms.is_empty() || started.elapsed() < self.time {
            let since = Instant::now();
            piece()?;
            ms.push(since.elapsed().as_secs_f64() * 1e3);
            told = told.filter(|_| hidden);
            let done = started.elapsed().min(self.time);
            bar.at(done.as_millis() as u64, self.time.as_millis() as u64);
        }
        drop(bar);
        Ok(Times::new(ms))
    }
}

/// How long one thing took each time, in milliseconds, the shortest first.
pub struct Times(Vec<f64>);

impl Times {
    /// Panics where there are none.
    pub fn new(mut ms: Vec<f64>) -> Self {
        assert!(!ms.is_empty(), "nothing was measured");
        ms.sort_by(f64::total_cmp);
        Self(ms)
    }

    /// The time that a `share` of them do not exceed, between two of them where it falls there.
    fn at(&self, share: f64) -> f64 {
        let place = (self.0.len() - 1) as f64 * share;
        let (below, above) = (self.0[place.floor() as usize], self.0[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn sum(&self) -> Duration {
        Duration::from_secs_f64(self.0.iter().sum::<f64>() / 1e3)
    }

    pub fn median_s(&self) -> f64 {
        // A clock may stand still for a very short time.
        self.at(0.5).max(1e-6) / 1e3
    }

    pub fn line(&self) -> String {
        let [best, low, median, high] = [0.0, 0.1, 0.5, 0.9].map(|share| digits(self.at(share)));
        let count = self.count();
        format!("{median} ms, the median of {count} (p10 {low}, p90 {high}, best {best})")
    }

    /// Under names that begin with `name`.
    pub fn json(&self, name: &str, several: &str) -> Value {
        let [best, low, median, high] = [0.0, 0.1, 0.5, 0.9].map(|share| self.at(share));
        let key = |end: &str| format!("{name}_{end}");
        json!({
            key("ms"): median,
            key("p10_ms"): low,
            key("p90_ms"): high,
            key("best_ms"): best,
            several: self.count(),
        })
    }
}

/// Milliseconds, to a percent.
fn digits(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{ms:.4}"),
        ms if ms < 1000.0 => format!("{ms:.2}"),
        ms => format!("{ms:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_spread_are_those_of_the_sorted_times() {
        let times = Times::new((0..=100).rev().map(f64::from).collect());
        let spread = "50.00 ms, the median of 101 (p10 10.00, p90 90.00, best 0.0000)";
        assert_eq!(times.line(), spread);
        let json = times.json("step", "steps");
        assert_eq!((json["step_ms"].as_f64(), json["steps"].as_u64()), (Some(50.0), Some(101)));
        assert_eq!(Times::new(vec![7.0]).at(0.9), 7.0);
        assert_eq!(Times::new(vec![7.0, 4.0]).at(0.5), 5.5);
    }

    #[test]
    fn work_longer_than_the_time_is_done_once_and_warm_up_ends_with_the_time() {
        let plan = Plan { warmup: 1000, time: Duration::from_millis(5) };
        let slow = || {
            std::thread::sleep(Duration::from_millis(6));
            Ok(())
        };
        let mut warm = 0;
        plan.warm_up(|| {
            warm += 1;
            slow()
        })
        .unwrap();
        assert_eq!((warm, plan.repeat("test", slow).unwrap().count()), (1, 1));
    }
}
