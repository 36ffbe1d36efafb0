"""TinyGPT as a torch.nn.Module: what scripts and PyTorch do to modules."""

import ast
import copy
import inspect
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import assert_close, batch, config, model, twins

import tiny_gpt
from tiny_gpt import GPTConfig, TinyGPT, _engine, engine
from tiny_gpt.model import Attention, Block, Mlp


def test_the_defaults_are_nanogpts():
    c = GPTConfig()
    assert (c.block_size, c.vocab_size, c.n_layer, c.n_head, c.n_embd) == (1024, 50304, 12, 12, 768)
    assert (c.dropout, c.bias) == (0.0, True)
    assert (c.engine, c.dtype) == ("auto", "auto")


def test_the_char_model_has_nanogpts_size_groups_and_words(capsys):
    sizes = dict(n_layer=6, n_head=6, n_embd=384, block_size=256, vocab_size=65, bias=False)
    gpt = TinyGPT(GPTConfig(**sizes, dropout=0.2))
    assert gpt.get_num_params(non_embedding=False) == 10_745_088
    optimizer = gpt.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    said = capsys.readouterr().out
    assert "number of parameters: 10.65M" in said
    assert "26, with 10,740,096 parameters" in said and "13, with 4,992 parameters" in said
    decay, rest = optimizer.param_groups
    assert (decay["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert isinstance(optimizer, torch.optim.AdamW)
    # nanoGPT's number: (6N + 12 L H D T) T a sequence, over the peak of an A100.
    of_a_token = 6 * 10_646_784 + 12 * 6 * 384 * 256
    assert gpt.estimate_mfu(64, 2.0) == pytest.approx(of_a_token * 256 * 64 / 2 / 312e12)
    assert gpt.estimate_mfu(64, 2.0, peak_flops=1e11) > gpt.estimate_mfu(64, 2.0)


def test_initial_weights_have_gpt2s_deviations():
    gpt = TinyGPT(GPTConfig(n_layer=12, n_head=4, n_embd=128, vocab_size=500, block_size=64))
    for name, p in gpt.named_parameters():
        if p.dim() > 1:
            scaled = name.endswith("c_proj.weight")
            assert float(p.std()) == pytest.approx(0.02 / 24**0.5 if scaled else 0.02, rel=0.05)
    idx, targets = batch(4, 32, 500)
    assert float(gpt(idx, targets)[1]) == pytest.approx(np.log(500), abs=0.3)


def test_the_state_has_nanogpts_names_and_one_tensor_for_both_embeddings():
    gpt = model()
    names = list(gpt.state_dict())
    assert names[:2] == ["transformer.wte.weight", "transformer.wpe.weight"]
    assert names[-1] == "lm_head.weight" and len(names) == 2 + 12 * 2 + 2 + 1
    assert gpt.lm_head.weight is gpt.transformer.wte.weight
    assert "transformer.h.1.mlp.c_proj.bias" in names


@pytest.mark.parametrize("name", ["deepcopy", "pickle", "torch.save", "state_dict", "assign"])
def test_a_copy_computes_the_same_and_is_its_own(name):
    gpt, (idx, targets) = model(engine="rust"), batch()
    expected = gpt(idx, targets)[1]
    if name == "deepcopy":
        other = copy.deepcopy(gpt)
    elif name == "pickle":
        other = pickle.loads(pickle.dumps(gpt))
    elif name == "torch.save":
        file = io.BytesIO()
        torch.save(gpt, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    else:
        other = model(seed=2, engine="rust")
        other(idx, targets)
        copied = {k: v.clone() for k, v in gpt.state_dict().items()}
        other.load_state_dict(copied, assign=name == "assign")
    assert torch.equal(other(idx, targets)[1], expected)
    other.transformer.wte.weight.data.mul_(2)
    assert torch.equal(gpt(idx, targets)[1], expected)
    assert not torch.equal(other(idx, targets)[1], expected)


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module.", "_orig_mod.module."])
def test_states_of_wrapped_models_load_and_a_tied_head_may_be_left_out(prefix):
    gpt, other = model(), model(seed=2)
    state = {prefix + name: tensor for name, tensor in gpt.state_dict().items()}
    other.load_state_dict(state)
    assert torch.equal(other(*batch())[1], gpt(*batch())[1])
    del state[prefix + "lm_head.weight"]
    model(seed=3).load_state_dict(state)
    del state[prefix + "transformer.wpe.weight"]
    with pytest.raises(RuntimeError, match="transformer.wpe.weight"):
        other.load_state_dict(state)


def test_what_is_done_to_parameters_in_place_is_seen_by_the_next_forward():
    rust, plain = twins()
    for m in (rust, plain):
        m(*batch())
        m.transformer.h[0].ln_1.weight.data.mul_(3)
        m.transformer.h[1].mlp.c_fc.weight.data = m.transformer.h[1].mlp.c_fc.weight.data + 0.5
    assert_close(rust(*batch())[1], plain(*batch())[1])


@pytest.mark.parametrize("change", ["half", "double", "meta"])
def test_a_model_in_other_numbers_or_elsewhere_goes_to_pytorch(change):
    gpt = model().eval()
    idx, targets = batch()
    expected = gpt(idx, targets)[1]
    assert engine.runs(gpt)
    if change == "meta":
        assert not engine.runs(gpt.to("meta"))
        return
    other = gpt.to(torch.bfloat16 if change == "half" else torch.float64)
    assert not engine.runs(other)
    assert_close(other(idx, targets)[1], expected, 2e-2)
    assert engine.runs(other.to(torch.float32))


def test_what_the_engine_would_not_notice_goes_to_pytorch():
    def hooked(m):
        m.transformer.h[0].mlp.register_forward_hook(lambda *_: None)

    def replaced(m):
        m.transformer.h[0].mlp = torch.nn.Identity()

    def without_dropout(m):
        m.transformer.drop.p = 0.7

    def half_in_training(m):
        m.transformer.h[1].eval()

    def untied(m):
        m.lm_head.weight = torch.nn.Parameter(m.lm_head.weight.detach().clone())

    def all_dropped(m):
        for module in m.modules():
            if hasattr(module, "p"):
                module.p = 1  # a whole number

    def patched(m):
        m.transformer.h[0].mlp.forward = lambda x: x

    def another_eps(m):
        m.transformer.ln_f.eps = 0.5

    def one_more_block(m):
        m.transformer.h.append(m.transformer.h[0])

    def one_block_less(m):
        del m.transformer.h[1]

    def with_a_bias(m):
        m.lm_head.bias = torch.nn.Parameter(torch.ones(m.config.vocab_size))

    def other_heads(m):
        m.transformer.h[0].attn.n_head = 1

    def another_activation(m):
        m.transformer.h[0].mlp.activation = "silu"

    def bounded(m):
        m.transformer.wte.max_norm = 0.01

    def counted(m):
        m.transformer.wte.scale_grad_by_freq = True

    def sparse(m):
        m.transformer.wte.sparse = True

    def padded(m):
        m.transformer.wte.padding_idx = 3

    def other_trunk(m):
        m.trunk = lambda idx: TinyGPT.trunk(m, idx) * 2

    class Own(torch.nn.Parameter):
        pass

    def another_class(m):
        m.transformer.ln_f.weight = Own(m.transformer.ln_f.weight.detach())

    changes = [hooked, replaced, without_dropout, half_in_training, untied, all_dropped, patched]
    changes += [another_eps, one_more_block, one_block_less, with_a_bias, other_heads]
    changes += [another_activation, bounded, another_class, counted, sparse, padded, other_trunk]
    for change in changes:
        gpt = model()
        assert engine.runs(gpt)
        change(gpt)
        assert not engine.runs(gpt), change.__name__
        gpt(*batch())
        gpt.config.engine = "rust"
        with pytest.raises(RuntimeError, match='engine = "rust", but'):
            gpt(*batch())
    with torch.autocast("cpu", torch.bfloat16):
        assert not engine.runs(model())
    listener = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not engine.runs(model())
    listener.remove()
    assert engine.runs(model())
    assert not engine.runs(model(engine="torch"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Attention, "forward"),
        (Attention, "heads"),
        (Mlp, "forward"),
        (Block, "forward"),
        (torch.nn.LayerNorm, "forward"),
        (TinyGPT, "trunk"),
        (TinyGPT, "last_logits"),
    ],
)
def test_a_method_that_is_patched_on_a_class_computes(kind, name, monkeypatch):
    gpt, heard = model(), []
    assert engine.runs(gpt)
    method = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda *given: heard.append(name) or method(*given))
    assert not engine.runs(gpt)
    gpt.generate(batch()[0], 1)
    assert heard
    monkeypatch.undo()
    assert engine.runs(gpt)


def test_a_model_of_a_users_own_class_with_another_trunk_computes_with_it():
    class Doubled(TinyGPT):
        def trunk(self, idx):
            return 2 * super().trunk(idx)

    idx, _ = batch()
    own = Doubled(config(bias=False), verbose=False)
    plain = TinyGPT(own.config, verbose=False)
    plain.load_state_dict(own.state_dict())
    assert_close(own.logits(idx), 2 * plain.logits(idx))


def test_a_text_that_is_broken_off_leaves_every_module_in_its_mode():
    def break_off(*_):
        raise KeyboardInterrupt

    for kind in ("rust", "torch"):
        gpt = model(engine=kind).train()
        if kind == "torch":
            gpt.transformer.h[0].eval()
        modes = [module.training for module in gpt.modules()]
        with pytest.raises(KeyboardInterrupt):
            gpt.generate(batch()[0], 3, stream=break_off)
        assert [module.training for module in gpt.modules()] == modes


def test_tokens_that_lie_askew_in_memory_are_taken():
    buffer = bytearray(8 * 4 + 1)
    idx = torch.frombuffer(buffer, dtype=torch.int64, offset=1).view(1, 4)
    assert model(engine="rust")(idx)[0].shape[:2] == (1, 1)


def test_a_hook_on_the_whole_model_hears_the_rust_engine():
    gpt, heard = model(engine="rust"), []
    gpt.register_forward_hook(lambda module, args, out: heard.append(out[1]))
    loss = gpt(*batch())[1]
    assert heard == [loss]


def test_every_kind_of_whole_numbers_is_accepted():
    gpt, (idx, targets) = model(engine="rust"), batch()
    expected = gpt(idx, targets)[1]
    wide = torch.stack((idx, idx), -1)[..., 0]
    assert not wide.is_contiguous()
    for kind in (torch.int32, torch.int16, torch.uint8, torch.int64):
        assert torch.equal(gpt(idx.to(kind), targets.to(torch.int32))[1], expected)
    assert torch.equal(gpt(wide, targets.t().contiguous().t())[1], expected)
    assert torch.equal(gpt(idx.tolist(), targets.tolist())[1], expected)
    assert torch.equal(gpt(idx.numpy().astype(np.uint16), targets)[1], expected)


@pytest.mark.parametrize("which", ["rust", "torch"])
def test_what_cannot_be_tokens_is_refused_in_words(which):
    gpt, (idx, targets) = model(engine=which), batch()
    for bad, error, words in [
        (idx.float(), TypeError, "float32"),
        (idx.bool(), TypeError, "bool"),
        ([0.5, 1.5], TypeError, "float"),
        ([[1, 2], [3]], ValueError, "rows of 1, 2 tokens; expected one length"),
        (idx[0], ValueError, r"\(B, T\)"),
        (idx[:, :0], ValueError, r"\(2, 0\)"),
        (torch.zeros(1, 10, dtype=torch.long), AssertionError, "block_size is 9"),
    ]:
        with pytest.raises(error, match=words):
            gpt(bad)
    with pytest.raises(ValueError, match="expected the same"):
        gpt(idx, targets[:, :3])
    with pytest.raises(TypeError, match="targets is torch.float32"):
        gpt(idx, targets.float())
    for id in (13, 300, -1):
        wrong = idx.clone()
        wrong[1, 2] = id
        with pytest.raises(IndexError):
            gpt(wrong)
    for target in (13, -2):
        wrong = targets.clone()
        wrong[0, 3] = target
        with pytest.raises(IndexError):
            gpt(idx, wrong)
    assert gpt(idx, targets)[1].isfinite()


def test_the_rust_engine_names_the_token_and_its_place():
    idx, _ = batch()
    idx[1, 2] = 300
    with pytest.raises(IndexError, match="token id 300 at offset 9 of idx .* 13 tokens"):
        model(engine="rust")(idx)


def test_impossible_configurations_are_refused_as_nanogpt_does():
    with pytest.raises(AssertionError, match="n_embd = 1600 .* n_head = 48"):
        TinyGPT(GPTConfig(n_embd=1600, n_head=48))
    for wrong in (dict(dropout=1.0), dict(n_layer=0), dict(vocab_size=0), dict(n_head=0)):
        with pytest.raises((ValueError, AssertionError), match=next(iter(wrong))):
            TinyGPT(config(**wrong))
    for wrong in (dict(activation="relu"), dict(engine="cuda"), dict(dtype="f16")):
        with pytest.raises(ValueError, match=next(iter(wrong.values()))):
            TinyGPT(config(**wrong))
    TinyGPT(config(vocab_size=2, block_size=258), verbose=False)


def test_a_cropped_model_is_the_same_for_what_still_fits():
    rust, plain = twins()
    idx, targets = batch(t=4)
    expected = rust(idx, targets)[1]
    for m in (rust, plain):
        m.crop_block_size(4)
        assert_close(m(idx, targets)[1], expected)
        assert m.state_dict()["transformer.wpe.weight"].shape == (4, 21)
        with pytest.raises(AssertionError, match="block_size is 4"):
            m(torch.zeros(1, 5, dtype=torch.long))
        for wrong in (5, 0, -1):
            with pytest.raises(AssertionError, match=f"cannot crop 4 positions to {wrong}"):
                m.crop_block_size(wrong)


def test_compiled_it_gives_the_same():
    gpt, (idx, targets) = model(engine="rust"), batch()
    expected, _ = gpt(idx, targets), gpt.zero_grad()
    compiled = torch.compile(gpt)
    logits, loss = compiled(idx, targets)
    loss.backward()
    assert torch.equal(loss, expected[1]) and gpt.transformer.wte.weight.grad is not None
    assert all(name.startswith("_orig_mod.") for name in compiled.state_dict())
    with torch.no_grad():
        assert compiled(idx)[0].shape == (2, 1, 13)


def test_what_torch_compile_says_without_a_compiler_is_pytorchs(tmp_path):
    script = """
import torch
from tiny_gpt import GPTConfig, TinyGPT
gpt = TinyGPT(GPTConfig(block_size=8, vocab_size=11, n_layer=1, n_head=1, n_embd=8, engine="torch"))
torch.compile(gpt)(torch.tensor([[1, 2, 3]]))
"""
    elsewhere = dict(CXX="no-such-compiler", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    environment = {**os.environ, **elsewhere}
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=280, env=environment
    )
    assert said.returncode == 1
    # As without TinyGPT: PyTorch's own exception, with the compiler it looked for.
    assert "torch._inductor.exc." in said.stderr and "no-such-compiler" in said.stderr


def test_the_stub_has_what_the_engine_has():
    stub = ast.parse((Path(tiny_gpt.__file__).parent / "_engine.pyi").read_text("utf-8"))
    told = {node.name: node for node in stub.body if hasattr(node, "name")}
    there = {name for name in dir(_engine) if not name.startswith("_")}
    assert told.keys() == there

    def names(function):
        a = function.args
        return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]

    for name, node in told.items():
        found = getattr(_engine, name)
        if isinstance(node, ast.FunctionDef):
            assert names(node) == list(inspect.signature(found).parameters), name
            continue
        members = {member.name: member for member in node.body if hasattr(member, "name")}
        public = {member for member in vars(found) if not member.startswith("_")}
        assert {member for member in members if not member.startswith("_")} == public, name
        for member in public & members.keys():
            if callable(value := getattr(found, member)):
                given = [x for x in names(members[member]) if x != "self"]
                expected = [x for x in inspect.signature(value).parameters if x != "self"]
                assert given == expected, f"{name}.{member}"


def test_functional_calls_see_the_parameters_they_bring():
    rust, plain = twins()
    doubled = {name: (2 * p).detach() for name, p in plain.named_parameters()}
    idx, targets = batch()
    found, expected = (
        torch.func.functional_call(m, doubled, (idx, targets))[1] for m in (rust, plain)
    )
    assert_close(found, expected)
    auto = model()
    grads = torch.func.grad(lambda p: torch.func.functional_call(auto, p, (idx, targets))[1])
    assert grads(dict(auto.named_parameters()))["transformer.wpe.weight"].shape == (9, 21)
