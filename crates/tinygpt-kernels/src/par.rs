//! The threads: persistent workers that wait for one piece of work at a time.
//!
//! A small model's step has some hundred and fifty phases of tens of microseconds each, so workers
//! spin for a moment before they sleep: a fork-join would cost as much as the work.
//!
//! Work is cut among the workers, sums are not: a result never depends on how many there are.

use crate::Buffer;
use crate::narrow::Factors;
use crate::profile::{Op, Profile, Timed};
use crate::simd::Isa;
use std::cell::{RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// How many threads this process may use: affinity and cgroup quota (rounded down) are honoured.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The processor as the kernels see it: how many threads, which instruction set, and scratch memory
/// that grows in the first training step and never again.
pub struct Cpu {
    isa: Isa,
    factors: Factors,
    pool: Pool,
    scratch: Vec<UnsafeCell<Buffer>>,
    /// Memory that all workers share: the packed operand of a product.
    pub(crate) pack: RefCell<Buffer>,
    profile: Profile,
}

impl Cpu {
    /// `threads` workers in all, the caller among them; 0 means as many as the process may use.
    /// Fewer where the system starts no more.
    pub fn new(threads: usize, isa: Isa) -> Self {
        let threads = if threads == 0 { available_threads() } else { threads };
        let pool = Pool::new(threads);
        let scratch = (0..=pool.workers.len()).map(|_| UnsafeCell::default()).collect();
        let (pack, profile, factors) = Default::default();
        Self { isa, factors, pool, scratch, pack, profile }
    }

    /// The same, with the factors of linear layers, forward and backward, rounded to `factors`.
    pub fn with_factors(self, factors: Factors) -> Self {
        Self { factors, ..self }
    }

    /// Workers, the calling thread among them.
    pub fn threads(&self) -> usize {
        self.scratch.len()
    }

    /// The instruction set the kernels run with.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// What the factors of linear layers are rounded to.
    pub fn factors(&self) -> Factors {
        self.factors
    }

    /// What the ops spend, once that is asked for.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Counts `op` in the profile until the result is dropped.
    #[inline(always)]
    pub fn timed(&self, op: Op) -> Timed<'_> {
        self.profile.time(op)
    }

    /// Runs `f` once on every worker and returns when all are done.
    pub(crate) fn run(&self, f: impl Fn(Worker) + Sync) {
        let scratch = Shared::new(&self.scratch);
        let taken = AtomicUsize::new(0);
        let turns = Turns { next: &taken, workers: self.threads() };
        self.pool.run(&|id| {
            // SAFETY: a worker takes only the buffer of its own id, and runs never overlap because
            // `Cpu` is not `Sync` (the cells see to that).
            let scratch = unsafe { &mut *scratch.get(id).get() };
            f(Worker { id, turns, scratch });
        });
    }

    /// The same for work over `floats` numbers, on the calling thread alone where they are so few
    /// that waking the others costs more than it saves.
    pub(crate) fn run_for(&self, floats: usize, f: impl Fn(Worker) + Sync) {
        const FEW: usize = 4096;
        if floats >= FEW {
            return self.run(f);
        }
        // SAFETY: as in `run`.
        let scratch = unsafe { &mut *self.scratch[0].get() };
        let turns = Turns { next: &AtomicUsize::new(0), workers: 1 };
        f(Worker { id: 0, turns, scratch });
    }
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cpu({} threads, {}, {:?})", self.threads(), self.isa.name(), self.factors)
    }
}

/// One worker's part in a run.
pub(crate) struct Worker<'a> {
    id: usize,
    /// The work that no worker has taken yet, where it is not shared out as [`part`](Self::part)s.
    pub(crate) turns: Turns<'a>,
    scratch: &'a mut Buffer,
}

impl<'a> Worker<'a> {
    /// This worker's part of `0..n`, in whole `unit`s except at the end.
    pub(crate) fn part(&self, n: usize, unit: usize) -> Range<usize> {
        let units = n.div_ceil(unit);
        let cut = |id: usize| (units * id / self.turns.workers * unit).min(n);
        cut(self.id)..cut(self.id + 1)
    }

    /// This worker's own memory: `len` floats with whatever was in them.
    pub(crate) fn scratch(self, len: usize) -> &'a mut [f32] {
        self.scratch.resize(len);
        self.scratch
    }
}

/// Work that is taken piece by piece: a worker that is slowed down by whatever else the machine
/// does then takes less of it. All the workers of one run take from the same.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    next: &'a AtomicUsize,
    workers: usize,
}

impl Turns<'_> {
    /// The next `unit` of `0..n` that nobody has taken yet.
    pub(crate) fn take(&self, n: usize, unit: usize) -> Option<Range<usize>> {
        let start = self.next.fetch_add(unit, Relaxed);
        (start < n).then(|| start..(start + unit).min(n))
    }

    /// Half of a worker's share of what nobody has taken yet, in whole `unit`s: long stretches
    /// first, which memory gives fastest, then ever shorter ones, so that all end together.
    pub(crate) fn take_share(&self, n: usize, unit: usize) -> Option<Range<usize>> {
        let end = |start: usize| {
            let units = (n - start).div_ceil(2 * self.workers * unit);
            (start + units * unit).min(n)
        };
        let taken = |start: usize| (start < n).then(|| end(start));
        let start = self.next.fetch_update(Relaxed, Relaxed, taken).ok()?;
        Some(start..end(start))
    }
}

/// Elements that a worker takes at a time of something that is done to each, or more.
pub(crate) const SHARE: usize = 1024;

/// The same in rows of `c`.
pub(crate) fn rows_of_share(c: usize) -> usize {
    (SHARE / c.max(1)).max(1)
}

/// A slice that several workers write to, each in its own places.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a, T> {
    ptr: *const T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: reading and writing through the pointer takes `unsafe`, whose blocks keep the places of
// different workers disjoint.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<'a, T> Shared<'a, UnsafeCell<T>> {
    fn new(cells: &'a [UnsafeCell<T>]) -> Self {
        Self { ptr: cells.as_ptr(), len: cells.len(), life: PhantomData }
    }

    /// # Safety
    /// No two workers use the same cell at the same time.
    unsafe fn get(&self, i: usize) -> &UnsafeCell<T> {
        assert!(i < self.len);
        // SAFETY: in bounds of the slice this was made from.
        unsafe { &*self.ptr.add(i) }
    }
}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn of(slice: &'a mut [T]) -> Self {
        Self { ptr: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// # Safety
    /// No other worker reads or writes any place of `range` while the result lives.
    #[allow(clippy::mut_from_ref, reason = "the point of this type; see its safety section")]
    #[inline(always)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: in bounds of the slice this was made from, unshared by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(range.start).cast_mut(), range.len()) }
    }

    /// The start, for kernels that write with a stride.
    #[inline(always)]
    pub(crate) fn ptr(&self) -> *mut T {
        self.ptr.cast_mut()
    }
}

type Job = *const (dyn Fn(usize) + Sync + 'static);

/// What the workers and their owner share.
struct Board {
    /// The current job; written only while no worker is busy.
    job: UnsafeCell<Option<Job>>,
    /// Grows by one for each job; workers wait for it.
    round: AtomicUsize,
    /// Workers not yet done with the current job.
    busy: AtomicUsize,
    /// Workers asleep, and whether the owner is.
    asleep: AtomicUsize,
    owner_asleep: AtomicBool,
    sleep: Mutex<()>,
    /// For the workers: there is a new round.
    wake: Condvar,
    /// For the owner: nobody is busy.
    done: Condvar,
    panicked: AtomicBool,
}

// SAFETY: `job` is written by the owner only when `busy` is 0 and read by workers only after they
// saw the new `round`, which is stored after it.
unsafe impl Sync for Board {}
// SAFETY: the job pointer is only dereferenced while `Pool::run` keeps what it points to alive.
unsafe impl Send for Board {}

/// Rounds of spinning before a worker sleeps: some hundred microseconds.
const SPINS: usize = 5_000;

impl Board {
    fn work(&self, id: usize) {
        for round in 1.. {
            self.wait_for(round);
            // SAFETY: this round's job was written before the round was announced, and the owner
            // waits for `busy` to reach 0 before it lets go of what the pointer points to.
            let Some(job) = (unsafe { *self.job.get() }) else { return };
            // SAFETY: as above.
            let job = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(|| job(id))).is_err() {
                self.panicked.store(true, Relaxed);
            }
            if self.busy.fetch_sub(1, SeqCst) == 1 && self.owner_asleep.load(SeqCst) {
                let _guard = self.sleep.lock().expect("no panic while sleeping");
                self.done.notify_one();
            }
        }
    }

    fn wait_for(&self, round: usize) {
        for _ in 0..SPINS {
            if self.round.load(Acquire) >= round {
                return;
            }
            std::hint::spin_loop();
        }
        // `asleep` goes up before `round` is looked at again, and the owner looks at `asleep` after
        // it changed `round` (both SeqCst): one of the two sees the other.
        self.asleep.fetch_add(1, SeqCst);
        let mut guard = self.sleep.lock().expect("no panic while sleeping");
        while self.round.load(SeqCst) < round {
            guard = self.wake.wait(guard).expect("no panic while sleeping");
        }
        self.asleep.fetch_sub(1, SeqCst);
    }

    fn announce(&self) {
        self.round.fetch_add(1, SeqCst);
        if self.asleep.load(SeqCst) > 0 {
            let _guard = self.sleep.lock().expect("no panic while sleeping");
            self.wake.notify_all();
        }
    }

    /// Spins, then sleeps: on a busy machine the worker waited for may need this very core.
    fn wait_until_idle(&self) {
        for _ in 0..SPINS {
            if self.busy.load(Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        // One of owner and last worker sees the other, as in `wait_for`.
        self.owner_asleep.store(true, SeqCst);
        let mut guard = self.sleep.lock().expect("no panic while sleeping");
        while self.busy.load(SeqCst) > 0 {
            guard = self.done.wait(guard).expect("no panic while sleeping");
        }
        self.owner_asleep.store(false, SeqCst);
    }
}

struct Pool {
    board: Arc<Board>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    fn new(threads: usize) -> Self {
        let board = Arc::new(Board {
            job: UnsafeCell::new(None),
            round: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            owner_asleep: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            done: Condvar::new(),
            panicked: AtomicBool::new(false),
        });
        let workers = (1..threads).map_while(|id| {
            let board = board.clone();
            let builder = std::thread::Builder::new().name(format!("tinygpt-{id}"));
            builder.spawn(move || board.work(id)).ok()
        });
        Self { workers: workers.collect(), board }
    }

    fn run(&self, f: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return f(0);
        }
        // SAFETY: only the lifetime changes; `WaitForWorkers` keeps `f` borrowed until all are
        // done.
        let job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync), Job>(f) };
        // SAFETY: no worker is busy, so nobody reads the cell.
        unsafe { *self.board.job.get() = Some(job) };
        self.board.panicked.store(false, Relaxed);
        self.board.busy.store(self.workers.len(), Relaxed);
        self.board.announce();
        let wait = WaitForWorkers(&self.board);
        f(0);
        drop(wait);
        assert!(!self.board.panicked.load(Relaxed), "a worker thread panicked");
    }
}

/// Waits when dropped, so that a panic in the caller's own part cannot free what workers still use.
struct WaitForWorkers<'a>(&'a Board);

impl Drop for WaitForWorkers<'_> {
    fn drop(&mut self) {
        self.0.wait_until_idle();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: no worker is busy, so nobody reads the cell.
        unsafe { *self.board.job.get() = None };
        self.board.announce();
        for worker in self.workers.drain(..) {
            // A worker's panic was reported by `run`.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_worked_on_once_for_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let cpu = Cpu::new(threads, Isa::best());
            for n in [0, 1, 5, 64, 1000] {
                let mut hits = vec![0.0; n];
                let shared = Shared::of(&mut hits);
                cpu.run(|worker| {
                    // SAFETY: parts are disjoint.
                    for x in unsafe { shared.slice(worker.part(n, 16)) } {
                        *x += 1.0;
                    }
                });
                cpu.run(|worker| {
                    while let Some(part) = worker.turns.take(n, 16) {
                        // SAFETY: parts are disjoint.
                        for x in unsafe { shared.slice(part) } {
                            *x += 1.0;
                        }
                    }
                });
                cpu.run(|worker| {
                    while let Some(share) = worker.turns.take_share(n, 16) {
                        // SAFETY: shares are disjoint.
                        for x in unsafe { shared.slice(share) } {
                            *x += 1.0;
                        }
                    }
                });
                assert!(hits.iter().all(|&x| x == 3.0), "{threads} threads, {n} elements");
            }
        }
    }

    #[test]
    fn shares_are_whole_units_and_get_ever_smaller() {
        let turns = Turns { next: &AtomicUsize::new(0), workers: 2 };
        let shares = std::iter::from_fn(|| turns.take_share(100, 8));
        let lens: Vec<usize> = shares.map(|share| share.len()).collect();
        assert_eq!(lens, [32, 24, 16, 8, 8, 8, 4]);
    }

    #[test]
    fn workers_that_fell_asleep_wake_up_again() {
        let cpu = Cpu::new(4, Isa::best());
        let count = AtomicUsize::new(0);
        for pause_ms in [0, 20, 0, 20] {
            std::thread::sleep(std::time::Duration::from_millis(pause_ms));
            cpu.run(|_| {
                count.fetch_add(1, Relaxed);
            });
        }
        assert_eq!(count.load(Relaxed), 16);
    }

    #[test]
    #[should_panic(expected = "a worker thread panicked")]
    fn a_panic_in_a_worker_reaches_the_caller() {
        Cpu::new(2, Isa::best()).run(|worker| assert!(worker.id == 0, "as wanted"));
    }
}
