//! Sampling against the same thing done without a cache: a whole forward pass for every token.

use super::*;
use crate::config::GptConfig;
use crate::model::{Params, Precision, Tensors};
use std::collections::BTreeSet;
use std::sync::Arc;
use tinygpt_kernels::{Cpu, Isa, reference::random};

const T: usize = 7;
const V: usize = 13;

fn config() -> GptConfig {
    GptConfig { vocab_size: V, block_size: T, ..GptConfig::tiny() }
}

/// Every parameter far from where training starts, so that the most likely token keeps changing.
fn params(config: &GptConfig) -> Params {
    let mut params = Params::init(Arc::new(Tensors::of(config)), 1);
    for (i, spec) in params.table().clone().iter().enumerate() {
        // Little for the vectors: a bias that outweighs everything would always write its token.
        let scale = if spec.decays() { 0.5 } else { 0.1 };
        for (x, noise) in params.get_mut(spec).iter_mut().zip(random(i as u64, spec.len())) {
            *x += scale * noise;
        }
    }
    let wpe = params.table().wpe.clone();
    params.get_mut(&wpe).iter_mut().for_each(|x| *x *= 2.0);
    params
}

fn model(config: &GptConfig, isa: Isa) -> Gpt {
    Gpt::with_params(config.clone(), params(config), Cpu::new(1, isa)).unwrap()
}

/// Runs `test` on every instruction set and kind of model.
fn on_every_model(test: impl Fn(&mut Gpt)) {
    for isa in Isa::available() {
        for (tied, bias) in [(true, true), (true, false), (false, true), (false, false)] {
            println!("{}, tied {tied}, bias {bias}", isa.name());
            test(&mut model(&GptConfig { tied, bias, ..config() }, isa));
        }
    }
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * i + 3 * i + 1) % V as u32).collect()
}

/// The logits (V) after `tokens`, by a forward pass over the last block_size of them.
fn uncached_logits(gpt: &mut Gpt, tokens: &[u32]) -> Vec<f32> {
    let seen = &tokens[tokens.len().saturating_sub(T)..];
    let (logits, _) = gpt.forward(seen, None, (1, seen.len())).unwrap();
    logits[logits.len() - V..].to_vec()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

fn uncached_greedy(gpt: &mut Gpt, mut tokens: Vec<u32>, new: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(&Sampling::greedy(), 0).unwrap();
    for _ in 0..new {
        let logits = uncached_logits(gpt, &tokens);
        tokens.push(sampler.pick(&logits).unwrap());
    }
    tokens
}

#[test]
fn greedy_text_with_a_cache_is_that_without_for_every_length() {
    on_every_model(|gpt| {
        let mut texts = BTreeSet::new();
        for len in 1..=3 * T {
            let expected = uncached_greedy(gpt, prompt(len), 3 * T);
            texts.insert(expected[len..].to_vec());
            for new in 0..=3 * T {
                let found = gpt.generate(&prompt(len), new, &Sampling::greedy()).unwrap();
                assert_eq!(found, expected[..len + new], "{new} tokens after {len}");
            }
        }
        assert!(texts.len() > T, "a model that always writes the same shows nothing: {texts:?}");
    });
}

#[test]
fn logits_with_a_cache_are_those_without_at_every_length() {
    on_every_model(|gpt| {
        let tokens = prompt(3 * T);
        for start in 1..=3 * T {
            let mut cache = Cache::new(gpt, 1, T);
            for len in start..=3 * T {
                let expected = uncached_logits(gpt, &tokens[..len]);
                let found = cache.logits(gpt, &[0], &[tokens[..len].to_vec()]);
                let difference = largest_difference(found, &expected);
                assert!(difference < 1e-4, "{difference:e} at {len}, begun at {start}");
            }
        }
    });
}

/// What each of some samplers writes when it is alone.
fn alone(gpt: &mut Gpt, idx: &[u32], new: usize, samplers: &[Sampling]) -> Vec<Vec<u32>> {
    let texts = samplers.iter().enumerate().map(|(i, sampling)| {
        let mut sampler = Sampler::new(sampling, i as u32).unwrap();
        gpt.generate_with(idx, new, &mut sampler, |_| ControlFlow::Continue(())).unwrap()
    });
    texts.collect()
}

#[test]
fn texts_written_together_are_what_each_is_alone_wherever_the_others_end() {
    on_every_model(|gpt| {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            gpt.keep_in(precision);
            let greedy = |i| if i == 3 { 0.0 } else { 1.5 };
            let samplings: Vec<_> =
                (0..9).map(|i| Sampling { temperature: greedy(i), ..Default::default() }).collect();
            for (len, new) in [(1, 3 * T), (T - 1, 2), (T, 5), (2 * T, T)] {
                let expected = alone(gpt, &prompt(len), new, &samplings);
                for n in [1, 2, 3, 5, 9] {
                    let each = samplings[..n].iter().zip(0..);
                    let mut samplers: Vec<_> =
                        each.map(|(sampling, i)| Sampler::new(sampling, i).unwrap()).collect();
                    let mut left: Vec<usize> = (0..n).map(|i| 1 + i * i % new).collect();
                    let ends = left.clone();
                    let texts = gpt.generate_many(&prompt(len), new, &mut samplers, |text, _| {
                        left[text] -= 1;
                        if left[text] == 0 {
                            return ControlFlow::Break(());
                        }
                        ControlFlow::Continue(())
                    });
                    for ((text, whole), end) in texts.unwrap().iter().zip(&expected).zip(ends) {
                        assert_eq!(*text, whole[..len + end], "{n} texts, {precision:?}");
                    }
                }
            }
        }
    });
}

#[test]
fn different_beginnings_go_on_together_as_each_does_alone() {
    on_every_model(|gpt| {
        for precision in [Precision::F32, Precision::Int8] {
            gpt.keep_in(precision);
            for len in [1, 2, 3, T - 1, T, T + 1] {
                let beginning = |i: u32| prompt(len).iter().map(|id| (id + i) % V as u32).collect();
                let texts: Vec<Vec<u32>> = (0..5).map(beginning).collect();
                let sampler = |i| Sampler::new(&Sampling::default(), i).unwrap();
                let mut samplers: Vec<_> = (0..5).map(sampler).collect();
                // The third ends early, so that those after it move up.
                let mut left = [T, T, 2, T, T];
                let found = gpt.continue_texts(texts.clone(), T, &mut samplers, |text, _| {
                    left[text] -= 1;
                    if left[text] == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                for ((i, found), text) in (0..).zip(found.unwrap()).zip(texts) {
                    let mut alone = sampler(i);
                    let go_on = |_| ControlFlow::Continue(());
                    let whole = gpt.generate_with(&text, T, &mut alone, go_on).unwrap();
                    assert_eq!(found, whole[..found.len()], "text {i} of {len}, {precision:?}");
                    assert_eq!(found.len(), len + if i == 2 { 2 } else { T });
                }
            }
        }
    });
}

#[test]
fn weights_in_fewer_bits_are_the_same_with_a_cache_whose_keys_and_values_are_rounded() {
    on_every_model(|gpt| {
        let exact = uncached_logits(gpt, &prompt(T));
        let zeros = vec![0.0; exact.len()];
        for (precision, most) in [(Precision::Bf16, 0.5), (Precision::Int8, 2.0)] {
            let (config, isa) = (gpt.config().clone(), gpt.cpu().isa());
            let mut narrow = model(&config, isa);
            narrow.keep_in(precision);
            // Keys and values as they are, and as they are kept beside such weights.
            let mut exactly = Cache::beside(Precision::F32, &narrow, 1, T);
            let mut cache = Cache::new(&narrow, 1, T);
            let mut rounded = 0.0f32;
            for len in 1..=3 * T {
                let expected = uncached_logits(&mut narrow, &prompt(len));
                let found = exactly.logits(&mut narrow, &[0], &[prompt(len)]);
                let worst = largest_difference(found, &expected);
                assert!(worst < 1e-4, "{worst:e} at {len}, {precision:?}");
                let found = cache.logits(&mut narrow, &[0], &[prompt(len)]);
                let worst = largest_difference(found, &expected);
                let largest = largest_difference(&expected, &zeros);
                assert!(worst < 2e-2 * largest, "{worst:e} of {largest} at {len}, {precision:?}");
                rounded = rounded.max(worst);
            }
            assert!(rounded > 1e-4, "{rounded:e}: keys and values were not rounded");
            let rounding = largest_difference(&uncached_logits(&mut narrow, &prompt(T)), &exact);
            assert!(rounding > 1e-4 && rounding < most, "{rounding:e}, {precision:?}");
        }
    });
}

#[test]
fn parameters_that_are_changed_are_those_that_are_read() {
    let mut gpt = model(&config(), Isa::best());
    gpt.keep_in(Precision::Int8);
    gpt.generate(&[1], 3, &Sampling::greedy()).unwrap();
    gpt.params_mut().data_mut().iter_mut().for_each(|x| *x = -*x);
    let mut cache = Cache::new(&gpt, 1, T);
    for len in 1..T {
        let found = cache.logits(&mut gpt, &[0], &[prompt(len)]).to_vec();
        let expected = uncached_logits(&mut gpt, &prompt(len));
        assert!(largest_difference(&found, &expected) < 1e-4);
    }
    assert_eq!(gpt.precision(), Precision::F32);
}

#[test]
fn a_prompt_is_returned_whole_however_long_and_unchanged_when_nothing_is_to_be_added() {
    let mut gpt = model(&config(), Isa::best());
    for len in [1, T - 1, T, T + 1, 3 * T] {
        let none = gpt.generate(&prompt(len), 0, &Sampling::default()).unwrap();
        assert_eq!(none, prompt(len));
        let some = gpt.generate(&prompt(len), 5, &Sampling::default()).unwrap();
        assert_eq!((some.len(), &some[..len]), (len + 5, &prompt(len)[..]));
    }
}

#[test]
fn a_text_of_several_contexts_can_be_drawn_and_repeats_with_its_seed() {
    let mut gpt = model(&config(), Isa::best());
    let mut draw = |seed| {
        let sampling = Sampling { seed, temperature: 1.5, ..Sampling::default() };
        gpt.generate(&[0], 5 * T, &sampling).unwrap()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn tokens_come_one_by_one_until_the_caller_breaks() {
    let mut gpt = model(&config(), Isa::best());
    let whole = gpt.generate(&[1, 2], 9, &Sampling::greedy()).unwrap();
    let mut sampler = Sampler::new(&Sampling::greedy(), 0).unwrap();
    let mut seen = Vec::new();
    let text = gpt.generate_with(&[1, 2], 9, &mut sampler, |token| {
        seen.push(token);
        if seen.len() == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(text.unwrap(), whole[..6]);
    assert_eq!(seen, whole[2..6]);
}

#[test]
fn prompts_that_cannot_be_continued_are_errors() {
    let mut gpt = model(&config(), Isa::best());
    let mut message =
        |idx: &[u32]| gpt.generate(idx, 1, &Sampling::greedy()).unwrap_err().to_string();
    assert!(message(&[]).contains("no token to go on from"));
    assert_eq!(message(&[1, 13]), "idx: token id 13 at offset 1 >= vocab_size 13");
}

#[test]
fn a_nan_weight_is_an_error_and_no_token_is_given_out() {
    for sampling in [Sampling::greedy(), Sampling::default()] {
        let mut params = params(&config());
        let ln_f = params.table().ln_f.weight.clone();
        params.get_mut(&ln_f)[3] = f32::NAN;
        let mut gpt = Gpt::with_params(config(), params, Cpu::new(1, Isa::best())).unwrap();
        let mut sampler = Sampler::new(&sampling, 0).unwrap();
        let mut given = 0;
        let error = gpt.generate_with(&[1], 9, &mut sampler, |_| {
            given += 1;
            ControlFlow::Continue(())
        });
        let error = error.unwrap_err();
        assert!(matches!(error, Error::NotFinite { .. }), "{error}");
        assert!(error.hint().is_some());
        assert_eq!(given, 0);
    }
}

#[test]
fn ids_that_only_pad_the_vocabulary_are_never_drawn() {
    let tokenizer = V - 3;
    let mut padded = params(&config());
    let wte = padded.table().wte.clone();
    let ln_f = padded.table().ln_f.bias.clone().unwrap();
    // The last three ids get the highest scores: their rows are the constant direction that ln_f
    // adds.
    padded.get_mut(&wte)[tokenizer * 21..].fill(10.0);
    padded.get_mut(&ln_f).fill(1.0);
    let mut gpt = Gpt::with_params(config(), padded, Cpu::new(1, Isa::best())).unwrap();
    for temperature in [0.0, 1.0, 100.0] {
        let all = Sampling { temperature, ..Sampling::default() };
        let known = Sampling { vocab_size: tokenizer, ..all.clone() };
        let drawn = |gpt: &mut Gpt, sampling| gpt.generate(&[0], 200, sampling).unwrap();
        assert!(drawn(&mut gpt, &all).iter().any(|&id| id as usize >= tokenizer));
        assert!(drawn(&mut gpt, &known).iter().all(|&id| (id as usize) < tokenizer));
    }
}
