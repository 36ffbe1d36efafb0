"""The Rust engine against PyTorch's own arithmetic over the same parameters."""

import json

import pytest
import torch
from conftest import assert_close, batch, golden_files, gradients, model, twins

from tiny_gpt import GPTConfig, TinyGPT

SHAPES = [
    dict(),
    dict(bias=False),
    dict(tied=False),
    dict(activation="gelu_tanh"),
    dict(activation="silu", bias=False, tied=False),
    dict(n_layer=1, n_head=1, n_embd=1, vocab_size=1, block_size=1),
    dict(n_layer=3, n_head=3, n_embd=39, vocab_size=67, block_size=19),
    dict(n_layer=1, n_head=2, n_embd=64, vocab_size=997, block_size=130),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits_loss_and_every_gradient_are_pytorchs(shape):
    rust, plain = twins(**shape)
    c = rust.config
    for b, t in [(1, 1), (2, c.block_size), (3, max(1, c.block_size - 1))]:
        idx, targets = batch(b, t, c.vocab_size)
        targets[0, 0] = -1 if targets.numel() > 1 else targets[0, 0]
        found, expected = [m(idx, targets) for m in (rust, plain)]
        assert_close(found[0], expected[0])
        assert_close(found[1], expected[1])
        for m, (_, loss) in zip((rust, plain), (found, expected)):
            m.zero_grad()
            loss.backward()
        largest = max(float(p.grad.abs().max()) for p in plain.parameters())
        for name, grad in gradients(plain).items():
            difference = float((rust.get_parameter(name).grad - grad).abs().max())
            assert difference <= 1e-5 * max(largest, 1e-6), name


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
@pytest.mark.parametrize("engine", ["rust", "torch"])
def test_golden_values_are_met(path, engine):
    safetensors = pytest.importorskip("safetensors", reason="skipped: no safetensors to read with")
    with safetensors.safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
        metadata = file.metadata()
    config = json.loads(metadata["config"])
    gpt = TinyGPT(GPTConfig(**config, engine=engine, dtype="f32"), verbose=False)
    weights = {k[6:]: v for k, v in tensors.items() if k.startswith("param.")}
    gpt.load_state_dict(weights)
    idx, targets = tensors["idx"], tensors["targets"]
    logits, loss = gpt(idx, targets)
    assert_close(logits, tensors["logits"])
    assert_close(loss, tensors["loss"].reshape(()))
    loss.backward()
    for name, p in gpt.named_parameters():
        expected = tensors[f"grad.{name}"]
        assert float((p.grad - expected).abs().max()) <= 1e-5 * max(1, float(expected.abs().max()))
    with torch.no_grad():
        assert_close(gpt(idx)[0], tensors["logits_last"])
    written = gpt.generate(idx[:1, :3], 3 * gpt.config.block_size, temperature=0)
    assert torch.equal(written, tensors["greedy"])


def test_ten_steps_of_adamw_go_where_the_golden_file_says():
    safetensors = pytest.importorskip("safetensors", reason="skipped: no safetensors to read with")
    for path in golden_files():
        with safetensors.safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            config, told = [json.loads(file.metadata()[k]) for k in ("config", "optimizer")]
        gpt = TinyGPT(GPTConfig(**config, engine="rust", dtype="f32"), verbose=False)
        weights = {k[6:]: v for k, v in tensors.items() if k.startswith("param.")}
        gpt.load_state_dict(weights)
        optimizer = gpt.configure_optimizers(told["weight_decay"], told["lr"], told["betas"], "cpu")
        for expected in tensors["step_losses"]:
            optimizer.zero_grad()
            loss = gpt(tensors["idx"], tensors["targets"])[1]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(gpt.parameters(), told["grad_clip"])
            optimizer.step()
            assert abs(float(loss) - float(expected)) < 1e-4


def test_without_targets_there_is_one_position_and_no_loss():
    rust, plain = twins()
    idx, _ = batch()
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            logits, loss = rust(idx)
            assert loss is None and logits.shape == (2, 1, 13)
            assert_close(logits, plain(idx)[0])
            assert_close(rust.logits(idx), plain.logits(idx))


def test_attention_is_a_distribution_over_the_past_and_looking_changes_nothing():
    gpt = model(dropout=0.5, engine="rust").train()
    idx, _ = batch()
    seen = gpt.attention(idx)
    assert gpt.training and seen.shape == (2, 2, 3, 7, 7)
    assert torch.allclose(seen.sum(-1), torch.ones(2, 2, 3, 7))
    assert float(seen.triu(1).abs().max()) == 0
    assert torch.equal(seen, gpt.attention(idx))


def test_dropout_drops_in_training_only_and_manual_seed_repeats_it():
    gpt, (idx, targets) = model(dropout=0.4, engine="rust"), batch()
    losses = []
    for _ in range(2):
        torch.manual_seed(7)
        losses += [float(gpt(idx, targets)[1]) for _ in range(3)]
    assert losses[:3] == losses[3:] and len(set(losses)) == 3
    still = [float(gpt.eval()(idx, targets)[1]) for _ in range(2)]
    without = model(dropout=0.0, engine="rust")(idx, targets)[1]
    assert still == [float(without)] * 2


def test_gradients_under_dropout_are_those_of_what_the_forward_dropped():
    gpt, (idx, targets) = model(dropout=0.3, engine="rust"), batch()
    weight = gpt.transformer.h[1].mlp.c_fc.weight

    def loss():
        torch.manual_seed(3)
        return gpt(idx, targets)[1]

    loss().backward()
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    expected = float((weight.grad * direction).sum())
    with torch.no_grad():
        step = 1e-2
        weight += step * direction
        up = float(loss())
        weight -= 2 * step * direction
        down = float(loss())
    assert abs((up - down) / (2 * step) - expected) < 0.02 * abs(expected) + 1e-3


def test_one_and_several_threads_give_the_same_bits():
    gpt, (idx, targets) = model(dropout=0.2, engine="rust"), batch()
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            torch.manual_seed(5)
            gpt.zero_grad()
            loss = gpt(idx, targets)[1]
            loss.backward()
            results.append([loss.detach(), *(p.grad.clone() for p in gpt.parameters())])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))
