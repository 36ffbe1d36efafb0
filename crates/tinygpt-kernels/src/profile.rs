//! What the ops cost where they run: calls, time, arithmetic and traffic of each.
//!
//! Off until asked for, and then one branch an op. When on, memory is taken only for an op that
//! comes with sizes it never had, so that a step which was seen before allocates nothing.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Sizes of an op, in the order of its dims; 0 where it has no more.
pub type Sizes = [usize; 4];

/// One call of an op: what it is, and what it has to do.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    name: &'static str,
    sizes: Sizes,
    flops: u64,
    bytes: u64,
}

impl Op {
    /// `flops` operations of arithmetic (a multiply-add is two; roughly, where an op is more than
    /// sums and products), and at least `floats` numbers of four bytes to read or write: every
    /// input once, every output once, what is added to twice. `sizes` has at most four.
    #[inline(always)]
    pub fn new(name: &'static str, sizes: &[usize], flops: usize, floats: usize) -> Self {
        let mut all = [0; 4];
        all[..sizes.len()].copy_from_slice(sizes);
        Self { name, sizes: all, flops: flops as u64, bytes: 4 * floats as u64 }
    }
}

/// All calls of an op with the same sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// The op.
    pub name: &'static str,
    /// Its sizes; none where calls of different sizes count together.
    pub sizes: Sizes,
    /// How often it ran.
    pub calls: u64,
    /// How long that took in all.
    pub time: Duration,
    /// Operations of arithmetic in all.
    pub flops: u64,
    /// The least bytes that had to be moved in all.
    pub bytes: u64,
}

/// A processor's profile. Read it with [`spent`](Self::spent).
#[derive(Default)]
pub struct Profile {
    on: Cell<bool>,
    spent: RefCell<Vec<Spent>>,
}

impl Profile {
    /// Forgets what was counted, and counts from now on.
    pub fn start(&self) {
        self.on.set(true);
        // Not cleared: an op that comes again then needs no new memory.
        for row in &mut *self.spent.borrow_mut() {
            (row.calls, row.time, row.flops, row.bytes) = (0, Duration::ZERO, 0, 0);
        }
    }

    /// What was counted since [`start`](Self::start), in the order in which ops first came.
    pub fn spent(&self) -> Vec<Spent> {
        self.spent.borrow().iter().copied().filter(|row| row.calls > 0).collect()
    }

    /// Counts `op` from now until the result is dropped.
    #[inline(always)]
    pub fn time(&self, op: Op) -> Timed<'_> {
        Timed(self.on.get().then(|| (self, op, Instant::now())))
    }

    fn add(&self, op: &Op, time: Duration) {
        let mut rows = self.spent.borrow_mut();
        let seen = rows.iter().position(|row| (row.name, row.sizes) == (op.name, op.sizes));
        let at = seen.unwrap_or_else(|| {
            let (name, sizes) = (op.name, op.sizes);
            rows.push(Spent { name, sizes, calls: 0, time: Duration::ZERO, flops: 0, bytes: 0 });
            rows.len() - 1
        });
        let row = &mut rows[at];
        row.calls += 1;
        row.time += time;
        row.flops += op.flops;
        row.bytes += op.bytes;
    }
}

/// An op that is running.
#[must_use = "an op is counted until this is dropped"]
pub struct Timed<'a>(Option<(&'a Profile, Op, Instant)>);

impl Drop for Timed<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some((profile, op, since)) = &self.0 {
            profile.add(op, since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Isa, linear};

    fn spend(profile: &Profile, n: usize, times: usize) {
        for _ in 0..times {
            let _time = profile.time(Op::new("op", &[n, 2], 10 * n, n));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn calls_of_one_size_add_up_and_other_sizes_stand_apart() {
        let profile = Profile::default();
        profile.start();
        spend(&profile, 3, 4);
        spend(&profile, 5, 1);
        let [three, five] = profile.spent()[..] else { panic!("{:?}", profile.spent()) };
        assert_eq!(
            (three.sizes, three.calls, three.flops, three.bytes),
            ([3, 2, 0, 0], 4, 120, 48)
        );
        assert_eq!((five.sizes, five.calls, five.flops, five.bytes), ([5, 2, 0, 0], 1, 50, 20));
        assert!(three.time >= Duration::from_millis(4), "{:?}", three.time);
    }

    #[test]
    fn nothing_is_counted_before_the_start_and_a_new_start_forgets() {
        let profile = Profile::default();
        spend(&profile, 3, 1);
        assert_eq!(profile.spent(), []);
        profile.start();
        spend(&profile, 3, 1);
        profile.start();
        assert_eq!(profile.spent(), []);
        spend(&profile, 3, 1);
        assert_eq!(profile.spent()[0].calls, 1);
    }

    #[test]
    fn both_products_and_the_sum_of_a_linear_layers_backward_are_counted() {
        let cpu = Cpu::new(2, Isa::best());
        let (n, i, o) = (3, 5, 7);
        let (x, w, dy) = (vec![1.0; n * i], vec![1.0; o * i], vec![1.0; n * o]);
        let (mut dx, mut dw, mut db) = (vec![0.0; n * i], vec![0.0; o * i], vec![0.0; o]);
        cpu.profile().start();
        linear::backward(&cpu, &mut dx, &mut dw, Some(&mut db), &dy, &x, &w, (n, i, o));
        let spent = cpu.profile().spent();
        let seen: Vec<_> = spent.iter().map(|row| (row.name, row.flops, row.bytes)).collect();
        let product = (2 * n * i * o) as u64;
        let floats = |floats: usize| 4 * floats as u64;
        assert_eq!(
            seen,
            [
                ("linear backward dx", product, floats(n * o + o * i + n * i)),
                ("linear backward dw", product, floats(n * o + n * i + 2 * o * i)),
                ("linear backward db", (n * o) as u64, floats(n * o + 2 * o)),
            ]
        );
    }
}
