//! A training step allocates nothing once the first ones are done.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tinygpt::{DataOptions, Dataset, Gpt, GptConfig, Input, TrainConfig, Trainer};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_training_step_allocates_nothing() {
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
    let train = TrainConfig { batch_size: 80, ..TrainConfig::default() };
    let mut trainer = Trainer::new(Gpt::new(config, 1).unwrap(), data.unwrap(), train).unwrap();
    for _ in 0..2 {
        trainer.step().unwrap();
    }
    let before = ALLOCATIONS.load(Relaxed);
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Relaxed) - before, 0, "allocations in three steps");
}
