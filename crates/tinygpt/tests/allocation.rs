//! A training step allocates nothing once the first ones are done, and before it no more than was
//! said.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tinygpt::train::Memory;
use tinygpt::{DataOptions, Dataset, Dtype, Gpt, GptConfig, Input, TrainConfig, Trainer};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// Bytes in use.
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        HELD.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_training_step_allocates_nothing() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        nothing_is_allocated(dtype);
    }
}

fn nothing_is_allocated(dtype: Dtype) {
    let data =
        Dataset::build(&Input::TinyShakespeare, &DataOptions::default(), None, &mut |_, _| {});
    let config = GptConfig {
        vocab_size: 65,
        block_size: 32,
        n_layer: 2,
        n_head: 2,
        n_embd: 32,
        dropout: 0.2,
        ..GptConfig::default()
    };
    // 80 sequences of 32 tokens are two micro-batches, the second one smaller.
    let train = TrainConfig { batch_size: 80, dtype, ..TrainConfig::default() };
    let (data, held) = (data.unwrap(), HELD.load(Relaxed));
    let said = Memory::of(&config, (train.sequences_per_step(), config.block_size)).total() as f64;
    let mut trainer = Trainer::new(Gpt::new(config, 1).unwrap(), data, train).unwrap();
    for _ in 0..2 {
        trainer.step().unwrap();
    }
    let taken = (HELD.load(Relaxed) - held) as f64;
    assert!((0.9..1.2).contains(&(taken / said)), "takes {taken} bytes, said {said}");
    assert_eq!(allocations_in_three_steps(&mut trainer), 0);
    // The first step that is profiled finds room for a row an op.
    trainer.gpt().cpu().profile().start();
    trainer.step().unwrap();
    assert_eq!(allocations_in_three_steps(&mut trainer), 0, "with the profile");
}

fn allocations_in_three_steps(trainer: &mut Trainer) -> usize {
    let before = ALLOCATIONS.load(Relaxed);
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    ALLOCATIONS.load(Relaxed) - before
}
