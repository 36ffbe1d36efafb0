"""The Rust engine as a node of PyTorch's graph: everything a graph can be asked for."""

import gc
import os
import threading

import pytest
import torch
from conftest import assert_close, batch, gradients, model, twins
from torch.nn import functional as F


def both(use, **changes):
    """The gradients that `use(model)` leaves under both engines, compared."""
    rust, plain = twins(**changes)
    for m in (rust, plain):
        use(m)
    for name, grad in gradients(plain).items():
        found = rust.get_parameter(name).grad
        assert (found is None) == (grad is None), name
        if grad is not None:
            assert float((found - grad).abs().max()) < 2e-5, name


def test_a_loss_of_the_users_own_goes_back_through_the_logits():
    idx, targets = batch()
    both(lambda m: F.cross_entropy(m.logits(idx).flatten(0, 1), targets.flatten()).backward())
    both(lambda m: m(idx)[0].square().sum().backward())


def test_loss_and_logits_go_back_together():
    idx, targets = batch()

    def use(m):
        logits, loss = m(idx, targets)
        (3 * loss + 0.1 * logits.logsumexp(-1).square().mean()).backward()

    both(use)


def test_logits_that_come_with_a_loss_may_be_used_alone():
    idx, targets = batch()
    both(lambda m: m(idx, targets)[0].sum().backward())


def test_gradients_add_up_over_micro_steps():
    def use(m):
        for seed in range(3):
            idx, targets = batch(seed=seed)
            (m(idx, targets)[1] / 3).backward()

    both(use)


def test_several_forwards_go_back_in_any_order():
    def use(m):
        losses = [m(*batch(seed=s, t=5 + s))[1] for s in range(3)]
        losses[1].backward()
        m(*batch(seed=9))
        losses[2].backward()
        losses[0].backward()

    both(use)


def test_one_forward_goes_back_twice_where_the_graph_is_kept():
    def use(m):
        loss = m(*batch())[1]
        loss.backward(retain_graph=True)
        loss.backward()

    both(use)
    both(lambda m: torch.autograd.grad(m(*batch())[1], list(m.parameters())) and None)


def test_two_backwards_of_one_graph_without_keeping_it_are_refused_as_by_pytorch():
    loss = model(engine="rust")(*batch())[1]
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_frozen_parameters_get_no_gradient():
    def use(m):
        m.transformer.wpe.weight.requires_grad_(False)
        m.transformer.h[0].attn.c_attn.weight.requires_grad_(False)
        m(*batch())[1].backward()

    both(use)
    all_frozen = model(engine="rust").requires_grad_(False)
    assert not all_frozen(*batch())[1].requires_grad


def test_a_model_with_nothing_to_learn_but_one_tensor_still_learns_it():
    def use(m):
        m.requires_grad_(False)
        m.transformer.ln_f.weight.requires_grad_(True)
        m(*batch())[1].backward()

    both(use)


def test_no_grad_gives_the_same_bits():
    idx, targets = batch()
    rust, _ = twins(dropout=0.3, n_layer=3)
    passes = []
    for graph in (True, False, True):
        torch.manual_seed(1)
        with torch.set_grad_enabled(graph):
            passes.append(rust(idx, targets))
    for logits, loss in passes[1:]:
        assert torch.equal(logits, passes[0][0]) and torch.equal(loss, passes[0][1])
    assert [loss.requires_grad for _, loss in passes] == [True, False, True]


def test_no_grad_keeps_nothing():
    gpt = model(engine="rust")
    with torch.no_grad():
        logits, loss = gpt(*batch())
    assert not logits.requires_grad and not loss.requires_grad
    with torch.inference_mode():
        assert_close(gpt(*batch())[1], loss)


def test_parameters_that_are_replaced_before_the_backward_leave_it_that_of_its_forward():
    idx, targets = batch()
    grads = []
    for replaced in (False, True):
        gpt = model(engine="rust")
        loss = gpt(idx, targets)[1]
        if replaced:
            for parameter in gpt.parameters():
                parameter.data = 2 * parameter.data
        loss.backward()
        grads.append(gradients(gpt))
    for name, expected in grads[0].items():
        assert torch.equal(grads[1][name], expected), name


def test_parameters_that_changed_before_the_backward_are_told():
    gpt = model(engine="rust")
    loss = gpt(*batch())[1]
    with torch.no_grad():
        gpt.transformer.wte.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("engine", ["rust", "auto"])
def test_a_penalty_on_the_gradient_is_refused_and_never_left_out(engine):
    gpt = model(engine=engine)
    logits, loss = gpt(*batch())
    for output in (loss, 2 * loss, logits.sum()):
        with pytest.raises(RuntimeError, match='engine="torch"'):
            torch.autograd.grad(output, list(gpt.parameters()), create_graph=True)


def test_a_penalty_on_the_gradient_has_its_gradient_in_pytorch_as_the_readme_says():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    gpt, (idx, targets) = model(engine="torch").double(), batch()
    params = list(gpt.parameters())

    def penalty(**how):
        with sdpa_kernel(SDPBackend.MATH):
            loss = gpt(idx, targets)[1]
        return sum(g.square().sum() for g in torch.autograd.grad(loss, params, **how))

    penalty(create_graph=True).backward()
    for weight in (gpt.transformer.h[0].attn.c_attn.weight, gpt.transformer.ln_f.weight):
        direction, step = torch.randn_like(weight), 1e-5
        expected, around = float((weight.grad * direction).sum()), []
        for way in (step, -2 * step):
            weight.data.add_(direction, alpha=way)
            around.append(float(penalty()))
        weight.data.add_(direction, alpha=step)
        assert abs((around[0] - around[1]) / (2 * step) - expected) < 1e-4 * abs(expected)


def test_all_targets_ignored_is_a_loss_of_nan_and_gradients_of_zero_as_in_pytorch():
    for m in twins():
        idx, targets = batch()
        loss = m(idx, torch.full_like(targets, -1))[1]
        assert loss.isnan()
        loss.backward()
        assert all(bool((p.grad == 0).all()) for p in m.parameters())


def test_hooks_on_parameters_and_clipping_see_the_gradients():
    gpt, seen = model(engine="rust"), []
    gpt.transformer.wte.weight.register_hook(lambda grad: seen.append(grad.norm()) or 2 * grad)
    gpt(*batch())[1].backward()
    assert_close(gpt.transformer.wte.weight.grad.norm(), 2 * seen[0])
    torch.nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
    total = torch.stack([p.grad.norm() for p in gpt.parameters()]).norm()
    assert float(total) <= 0.0101


def test_threads_may_use_one_model_at_once():
    gpt, expected = model(engine="rust"), {}
    for seed in range(4):
        expected[seed] = float(gpt(*batch(seed=seed))[1])
    found = {}

    def work(seed):
        for _ in range(20):
            loss = gpt(*batch(seed=seed))[1]
            torch.autograd.grad(loss, list(gpt.parameters()))
        found[seed] = float(loss)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert found == expected


def test_graphs_that_are_dropped_free_what_they_kept():
    gpt = model(engine="rust")
    graphs = [gpt(*batch(seed=s)) for s in range(5)]
    del graphs
    gc.collect()
    both(lambda m: m(*batch())[1].backward())


def test_after_its_backward_a_graph_that_is_still_held_keeps_no_activations():
    gpt = model(engine="rust", block_size=256, n_embd=60)
    idx, targets = batch(8, 256)

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("skipped: this system does not tell how much memory is resident")

    def resident():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * 4096

    held = []
    for step in range(12):
        _, loss = gpt(idx, targets)
        loss.backward()
        held.append(loss)
        if step == 3:
            before = resident()
    # One set of activations is more than 8 x 256 tokens x 2 blocks x 14 x 60 floats.
    assert resident() - before < 3 * 8 * 256 * 2 * 14 * 60 * 4


def test_hooks_that_save_tensors_elsewhere_lose_nothing():
    idx, targets = batch()

    def use(m):
        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
            loss = m(idx, targets)[1]
        loss.backward()

    both(use)


def test_checkpointing_goes_back_through_it():
    from torch.utils.checkpoint import checkpoint

    idx, targets = batch()
    both(lambda m: checkpoint(lambda: m(idx, targets)[1], use_reentrant=False).backward())
