"""Writing: nanoGPT's semantics, with a cache beneath."""

import os
import signal
import threading
import time

import pytest
import torch
from conftest import assert_close, batch, model, twins

ENGINES = pytest.mark.parametrize("which", ["rust", "torch"])


def most_likely(gpt, idx, count):
    """A whole forward pass for every token, as nanoGPT writes."""
    for _ in range(count):
        logits, _ = gpt(idx[:, -gpt.config.block_size :])
        idx = torch.cat((idx, logits[:, -1].argmax(-1, keepdim=True)), 1)
    return idx


@pytest.mark.parametrize("t", [1, 2, 8, 9, 27])
def test_written_with_a_cache_it_is_what_whole_forwards_write(t):
    rust, plain = twins()
    idx, _ = batch(3, t)
    with torch.no_grad():
        expected = most_likely(plain, idx, 30)
    assert torch.equal(rust.generate(idx, 30, temperature=0), expected)
    assert torch.equal(plain.generate(idx, 30, temperature=0), expected)
    assert torch.equal(rust.generate(idx.int(), 30, 0.0), expected)


@pytest.mark.parametrize("t", [8, 9, 12])
def test_beginnings_within_the_context_are_read_one_by_one_or_together(t):
    rust, plain = twins(block_size=19)
    idx, _ = batch(3, t)
    with torch.no_grad():
        expected = most_likely(plain, idx, 9)
    assert torch.equal(rust.generate(idx, 9, temperature=0), expected)
    assert torch.equal(rust.generate(idx[:1].repeat(3, 1), 9, temperature=0), expected[:1].repeat(3, 1))


@ENGINES
def test_no_tokens_wanted_is_the_prompt_and_an_empty_prompt_an_error(which):
    gpt, (idx, _) = model(engine=which), batch()
    assert torch.equal(gpt.generate(idx, 0), idx)
    with pytest.raises(ValueError, match=r"\(2, 0\)"):
        gpt.generate(idx[:, :0], 3)
    with pytest.raises(TypeError):
        gpt.generate(idx.float(), 3)


@ENGINES
def test_draws_repeat_with_their_seed_and_with_pytorchs(which):
    gpt, (idx, _) = model(engine=which), batch(4)
    assert torch.equal(gpt.generate(idx, 20, seed=3), gpt.generate(idx, 20, seed=3))
    assert not torch.equal(gpt.generate(idx, 20, seed=3), gpt.generate(idx, 20, seed=4))
    texts = []
    for _ in range(2):
        torch.manual_seed(11)
        texts.append(gpt.generate(idx, 20))
    assert torch.equal(*texts)
    assert not torch.equal(texts[0], gpt.generate(idx, 20))


@ENGINES
def test_rows_of_one_prompt_are_drawn_independently(which):
    gpt = model(engine=which)
    rows = gpt.generate(torch.ones(6, 1, dtype=torch.long), 20, seed=1)
    assert len({tuple(row) for row in rows.tolist()}) == 6


@ENGINES
def test_only_what_the_filters_keep_is_ever_drawn(which):
    gpt = model(engine=which)
    idx = torch.tensor([[5]] * 400)
    p = gpt.logits(idx[:1])[0, -1].softmax(-1)
    order = p.argsort(descending=True)
    drawn = lambda **filters: set(gpt.generate(idx, 1, seed=2, **filters)[:, 1].tolist())
    assert drawn(top_k=1) == drawn(top_p=0.0) == drawn(min_p=1.0) == {int(order[0])}
    assert drawn(top_k=3) == set(order[:3].tolist())
    sums = p[order].cumsum(-1)
    assert drawn(top_p=float(sums[1]) - 1e-4) <= set(order[:2].tolist())
    assert drawn(min_p=0.5) == set((p >= 0.5 * p.max()).nonzero().flatten().tolist())
    assert drawn(temperature=1e-8) == {int(order[0])}
    assert drawn(top_k=0) == drawn(top_k=None) == drawn(top_k=13) == drawn(top_k=200)
    assert drawn(top_p=1.0) == drawn(min_p=0.0) == drawn()


@ENGINES
def test_what_ties_with_the_kth_stays_and_greedy_takes_the_lowest_id(which):
    gpt = model(engine=which)
    with torch.no_grad():
        gpt.transformer.wte.weight.zero_()
        gpt.transformer.wte.weight[7:] = -1.0
    logits = gpt.logits(torch.tensor([[1]]))[0, 0]
    best = torch.isclose(logits, logits.max()).nonzero().flatten().tolist()
    assert len(best) in (6, 7)
    drawn = gpt.generate(torch.ones(300, 1, dtype=torch.long), 1, top_k=1, seed=1)[:, 1]
    greedy = int(gpt.generate(torch.tensor([[1]]), 1, temperature=0)[0, 1])
    if which == "rust":  # where equal rows make equal bits
        assert set(drawn.tolist()) == set(best) and greedy == best[0]
    assert set(drawn.tolist()) <= set(best) and greedy in best


@ENGINES
def test_impossible_settings_are_named(which):
    gpt, (idx, _) = model(engine=which), batch()
    for wrong in (
        dict(temperature=-1.0),
        dict(temperature=float("nan")),
        dict(top_k=-1),
        dict(top_p=1.5),
        dict(min_p=-0.1),
        dict(seed=-1),
        dict(seed=2**64),
        dict(stop=[-5]),
        dict(stop=2**32),
        dict(max_new_tokens=-1),
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            gpt.generate(idx, **{"max_new_tokens": 3, **wrong})
    for wrong in ("int4", 8):
        with pytest.raises(ValueError, match=f"quantize = {wrong!r}"):
            gpt.generate(idx, 3, quantize=wrong)
    for wrong in (dict(stop="end"), dict(stream=3), dict(max_new_tokens=2.5)):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            gpt.generate(idx, **{"max_new_tokens": 3, **wrong})
    with pytest.raises(IndexError):
        gpt.generate(torch.tensor([[300]]), 3)


@pytest.mark.parametrize("how", ["data", "to"])
def test_weights_that_are_replaced_meanwhile_are_not_read_after_they_are_freed(how):
    gpt, idx = model(engine="rust", n_embd=256 * 3, n_head=3), torch.tensor([[1, 2, 3]])
    expected = gpt.generate(idx, 5, temperature=0)

    def replace(row, token):
        if how == "to":
            gpt.to(torch.bfloat16)
        else:
            for parameter in gpt.parameters():
                parameter.data = torch.full_like(parameter, float("nan"))

    assert torch.equal(gpt.generate(idx, 5, temperature=0, stream=replace), expected)


def test_8_bits_write_what_weights_rounded_to_them_do():
    gpt, idx = model(engine="rust"), torch.tensor([[1, 2, 3]])
    before = {name: value.clone() for name, value in gpt.state_dict().items()}
    text = gpt.generate(idx, 20, temperature=0, quantize="int8")
    assert all(torch.equal(value, before[name]) for name, value in gpt.state_dict().items())
    rounded = model(engine="torch")
    rounded.load_state_dict(before)
    with torch.no_grad():
        for name, weight in rounded.named_parameters():
            if weight.dim() == 2 and "wpe" not in name:  # a scale for every 64 of a row
                for group in weight.split(64, dim=1):
                    scale = group.abs().amax(1, keepdim=True) / 127
                    group.copy_(torch.where(scale > 0, (group / scale).round() * scale, 0))
    assert torch.equal(text, rounded.generate(idx, 20, temperature=0))
    # Sooner or later a draw falls between the two.
    drawn = [gpt.generate(idx, 1000, seed=1, quantize=q) for q in (None, "int8")]
    assert not torch.equal(*drawn)
    # What the model rounds in training does not matter.
    same = model(engine="rust", dtype="bf16")
    assert torch.equal(same.generate(idx, 1000, seed=1, quantize="int8"), drawn[1])
    with pytest.raises(ValueError, match="quantize.*Rust"):
        rounded.generate(idx, 3, quantize="int8")


@ENGINES
def test_a_model_with_a_weight_that_is_no_number_writes_no_token(which):
    gpt = model(engine=which)
    with torch.no_grad():
        gpt.transformer.ln_f.weight[3] = float("nan")
    with pytest.raises(FloatingPointError, match="not finite"):
        gpt.generate(torch.tensor([[1]]), 3)


@ENGINES
def test_a_row_ends_with_its_stop_token_and_is_filled_up_with_it(which):
    gpt = model(engine=which)
    idx = torch.ones(5, 1, dtype=torch.long)
    rows = gpt.generate(idx, 30, seed=1, stop=[4, 7])
    assert rows.size(1) <= 31
    for row in rows.tolist():
        ends = [i for i, token in enumerate(row[1:], 1) if token in (4, 7)]
        assert not ends or set(row[ends[0] :]) == {row[ends[0]]}
    assert torch.equal(gpt.generate(idx, 9, seed=1, stop=()), gpt.generate(idx, 9, seed=1))


@ENGINES
def test_the_stream_hears_every_token_in_order(which):
    gpt, heard = model(engine=which), {0: [], 1: []}
    idx, _ = batch()
    rows = gpt.generate(idx, 12, seed=1, stream=lambda row, token: heard[row].append(token))
    assert [heard[0], heard[1]] == rows[:, 7:].tolist()

    def enough(row, token):
        raise StopIteration("enough")

    with pytest.raises(StopIteration, match="enough"):
        gpt.generate(idx, 12, stream=enough)
    again = lambda row, token: gpt.generate(idx, 1)
    assert gpt.generate(idx, 2, stream=again).shape == (2, 9)


def test_ctrl_c_ends_a_long_text_and_leaves_the_model_usable():
    gpt, (idx, targets) = model(engine="rust"), batch()
    expected = gpt(idx, targets)[1]
    interrupt = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    began = time.monotonic()
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        gpt.generate(idx, 10_000_000)
    assert time.monotonic() - began < 5
    assert_close(gpt(idx, targets)[1], expected)


def test_other_threads_run_while_it_writes():
    gpt, ticks, done = model(engine="rust"), [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(None)
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    began = time.monotonic()
    gpt.generate(torch.tensor([[1]]), 3000)
    seconds = time.monotonic() - began
    done.set()
    ticker.join()
    assert len(ticks) > 20 * seconds


@ENGINES
def test_seeds_reach_from_one_bound_to_the_other(which):
    gpt, (idx, _) = model(engine=which), batch()
    rows = [gpt.generate(idx, 9, seed=seed) for seed in (0, 2**64 - 1)]
    assert not torch.equal(*rows)


@ENGINES
def test_prompts_of_different_lengths_are_refused_with_what_to_do(which):
    with pytest.raises(ValueError, match="rows of 1, 2 tokens; .* call once for each length"):
        model(engine=which).generate([[1, 2], [3]], 5)


def test_an_empty_prompt_starts_a_new_text():
    from tiny_gpt import Tokenizer

    gpt = model(engine="rust")
    with pytest.raises(ValueError, match="has no tokenizer"):
        gpt.write("")
    gpt.tokenizer = Tokenizer.from_text("abcdefghijkl\n")
    assert gpt.tokenizer.start == gpt.tokenizer.encode("\n")[0]
    assert gpt.write("", 20, seed=1) == gpt.write("\n", 20, seed=1) == gpt.write("", 20, seed=1)
    assert Tokenizer.from_text("", "gpt2").start == 50256


def test_ctrl_c_ends_the_encoding_of_a_long_text():
    from tiny_gpt import Tokenizer, tiny_shakespeare

    gpt2, text = Tokenizer.from_text("", "gpt2"), tiny_shakespeare()
    # It goes in parts, of which none ends within a character.
    for before in ["", "a"]:
        accents = before + 600_000 * "é"
        assert gpt2.decode(gpt2.encode(accents)) == accents
    interrupt = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    text = 200 * text
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        gpt2.encode(text)
    assert time.monotonic() - began < 5


def test_other_threads_run_while_a_text_becomes_tokens_and_back():
    from tiny_gpt import Tokenizer, tiny_shakespeare

    text, ticks, done = tiny_shakespeare(), [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    spans = []
    for work in (
        lambda: Tokenizer.from_text(text, "bpe:300"),
        lambda: gpt2.encode(4 * text),
        lambda: gpt2.decode(ids),
    ):
        gpt2 = Tokenizer.from_text("", "gpt2")
        ids = gpt2.encode(text)
        spans.append([time.monotonic(), None])
        work()
        spans[-1][1] = time.monotonic()
    done.set()
    ticker.join()
    for begin, end in spans:
        # Held, the lock would let nobody in from the first to the last.
        assert end - begin < 0.02 or any(begin + 0.005 < at < end - 0.005 for at in ticks)


def test_ids_without_a_text_are_never_written():
    from tiny_gpt import Tokenizer

    for which in ("rust", "torch"):
        gpt = model(engine=which, vocab_size=64)
        gpt.tokenizer = Tokenizer.from_text("abc\n")
        rows = gpt.generate(torch.zeros(8, 1, dtype=torch.long), 50, seed=1)
        assert int(rows.max()) < 4
        assert set(gpt.write("ab", 20, seed=1)) <= set("abc\n")


def test_in_bf16_it_writes_and_trains_with_rounded_factors_and_leaves_the_parameters_alone():
    rust, plain = twins(dtype="bf16")
    before = [p.detach().clone() for p in rust.parameters()]
    idx, targets = batch()
    loss = rust(idx, targets)[1]
    loss.backward()
    assert_close(loss, plain(idx, targets)[1], 2e-2)
    assert not torch.equal(loss, model(engine="rust")(idx, targets)[1])
    rust.generate(idx, 5, temperature=0)
    assert all(torch.equal(a, b) for a, b in zip(before, rust.parameters()))
    rounded = model(dtype="bf16", engine="rust")
    with torch.no_grad():
        for name, p in rounded.named_parameters():
            if p.dim() > 1 and "wpe" not in name:
                p.copy_(p.bfloat16().float())
    exact = model(engine="rust")
    exact.load_state_dict(rounded.state_dict())
    assert torch.equal(rust.generate(idx, 9, temperature=0), exact.generate(idx, 9, temperature=0))
