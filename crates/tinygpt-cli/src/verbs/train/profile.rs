//! `tinygpt train --profile`: what every op of a run took, the steps, evaluations and samples
//! together.

use crate::failure::Failure;
use crate::machine::{self, merged};
use crate::memory::check_limits;
use crate::ops::{Costs, Limits, peak_now};
use serde_json::json;
use std::time::Instant;
use tinygpt::files::write_whole;
use tinygpt::run::start::Begun;

/// A run that is being profiled.
pub struct Profile {
    peak: f64,
    steps: u64,
    started: Instant,
}

impl Profile {
    /// Counts from now on; fails where there is no memory to measure the machine's limits with.
    pub fn start(begun: &mut Begun) -> Result<Self, Failure> {
        // Before the run: at its end nobody wants to hear of it.
        check_limits()?;
        let steps = begun.trainer.progress().step;
        let cpu = begun.trainer.gpt().cpu();
        let peak = peak_now(cpu);
        cpu.profile().start();
        Ok(Self { peak, steps, started: Instant::now() })
    }

    /// Writes `profile.json` to the run; the same for people, and whether it was written.
    pub fn finish(self, begun: &mut Begun) -> (String, Result<(), Failure>) {
        let whole = self.started.elapsed();
        let steps = begun.trainer.progress().step.saturating_sub(self.steps);
        let cpu = begun.trainer.gpt().cpu();
        let spent = cpu.profile().spent();
        let limits = Limits::after(self.peak, cpu);
        let costs = Costs { spent, whole, steps: None, limits };
        let all = json!({
            "steps": steps,
            "seconds": whole.as_secs_f64(),
            "ops": costs.json(),
        });
        let all = merged([machine::json(cpu), limits.json(), all]);
        let path = begun.run.profile();
        let written = write_whole(&path, format!("{all:#}\n"));
        let (path, limits) = (path.display(), limits.line());
        let page = format!("\nprofile     {path}\nlimits      {limits}\n\n{}", costs.table());
        (page, written.map_err(Failure::from))
    }
}
