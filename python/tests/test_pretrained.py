"""GPT-2's weights in Hugging Face's layout."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import ROOT, assert_close, model, program

from tiny_gpt import TinyGPT, Tokenizer

safetensors = pytest.importorskip("safetensors.torch", reason="skipped: no safetensors")
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def hugging_face_folder(gpt, folder, prefix="transformer.", masks=True, **changes):
    """A folder as transformers writes one, of a model's weights."""
    c = gpt.config
    weights = {}
    for name, p in gpt.named_parameters():
        value = p.detach().t().contiguous() if name.endswith(TRANSPOSED) else p.detach().clone()
        weights[name.replace("transformer.", prefix)] = value
    if masks:
        for l in range(c.n_layer):
            weights[f"{prefix}h.{l}.attn.bias"] = torch.ones(1, 1, 9, 9).tril()
            weights[f"{prefix}h.{l}.attn.masked_bias"] = torch.tensor(-1e4)
    folder.mkdir()
    safetensors.save_file(weights, folder / "model.safetensors")
    config = dict(
        model_type="gpt2",
        n_positions=c.block_size,
        vocab_size=c.vocab_size,
        n_layer=c.n_layer,
        n_head=c.n_head,
        n_embd=c.n_embd,
        activation_function="gelu_new",
    )
    (folder / "config.json").write_text(json.dumps({**config, **changes}), "utf-8")
    return folder


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("masks", [True, False])
def test_a_folder_of_either_layout_is_the_same_model(tmp_path, prefix, masks):
    gpt = model(activation="gelu_tanh")
    folder = hugging_face_folder(gpt, tmp_path / "gpt2", prefix, masks)
    loaded = TinyGPT.from_pretrained(folder, dict(dropout=0.1))
    assert loaded.config.activation == "gelu_tanh" and loaded.config.dropout == 0.1
    idx = torch.tensor([[1, 2, 3]])
    loaded.config.dtype = "f32"
    assert torch.equal(loaded.eval()(idx)[0], gpt(idx)[0])


def test_only_dropout_may_be_overridden_and_faults_are_named(tmp_path):
    gpt = model()
    folder = hugging_face_folder(gpt, tmp_path / "a")
    with pytest.raises(AssertionError, match="n_layer"):
        TinyGPT.from_pretrained(folder, dict(n_layer=3))
    with pytest.raises(ValueError, match="neither a folder .* gpt2-xl"):
        TinyGPT.from_pretrained("gpt3")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="neither model.safetensors nor .*\n.*pytorch_model.bin"):
        TinyGPT.from_pretrained(folder)
    weights = safetensors.load_file(folder / "pytorch_model.bin")
    del weights["transformer.h.1.ln_2.bias"]
    safetensors.save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match="h.1.ln_2.bias"):
        TinyGPT.from_pretrained(folder)
    other = hugging_face_folder(gpt, tmp_path / "b", n_positions=7)
    with pytest.raises(ValueError, match="wpe.weight"):
        TinyGPT.from_pretrained(other)
    for name, change in [
        ("layer_norm_epsilon", dict(layer_norm_epsilon=1e-6)),
        ("activation_function", dict(activation_function="relu")),
        ("n_inner", dict(n_inner=64)),
        ("n_head", dict(n_head="three")),
    ]:
        strange = hugging_face_folder(gpt, tmp_path / name, **change)
        with pytest.raises(ValueError, match=name):
            TinyGPT.from_pretrained(strange)
    llama = hugging_face_folder(gpt, tmp_path / "c", model_type="llama")
    with pytest.raises(ValueError, match="llama"):
        TinyGPT.from_pretrained(llama)


def test_a_path_is_taken_in_every_format_that_the_engine_reads(tmp_path):
    gpt = model(activation="gelu_tanh")
    idx = torch.tensor([[1, 2, 3]])
    sharded = hugging_face_folder(gpt, tmp_path / "sharded")
    weights = safetensors.load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    places = {}
    for i, name in enumerate(weights):
        places[name] = f"model-{1 + i % 2:05}-of-00002.safetensors"
    for file in set(places.values()):
        part = {name: weights[name] for name in weights if places[name] == file}
        safetensors.save_file(part, sharded / file)
    index = json.dumps({"metadata": {}, "weight_map": places})
    (sharded / "model.safetensors.index.json").write_text(index, "utf-8")
    exact = model()
    saved = dict(model=exact.state_dict(), iter_num=0, best_val_loss=1e9, config={})
    fields = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size")
    saved["model_args"] = {name: getattr(exact.config, name) for name in fields}
    torch.save(saved, tmp_path / "ckpt.pt")
    with pytest.warns(UserWarning):
        gpt.save(tmp_path / "ours")
    paths = {"sharded": gpt, "ckpt.pt": exact, "ours": gpt, "ours/model.safetensors": gpt}
    for name, expected in paths.items():
        loaded = TinyGPT.from_pretrained(str(tmp_path / name))
        assert loaded.training, name
        loaded.config.dtype = "f32"
        assert torch.equal(loaded(idx)[0], expected(idx)[0]), name


def test_what_was_assumed_of_a_gguf_is_a_warning(tmp_path):
    gpt = model(activation="gelu_tanh", vocab_size=256)
    gpt.tokenizer = Tokenizer.from_text("", "byte")
    gpt.save(tmp_path / "ours")
    export = [program(), "export", tmp_path / "ours", "--to", "gguf", tmp_path / "m.gguf"]
    subprocess.run(export, capture_output=True, timeout=60, check=True)
    with pytest.warns(UserWarning, match="gelu_tanh, as llama.cpp computes every GPT-2"):
        loaded = TinyGPT.from_pretrained(tmp_path / "m.gguf")
    loaded.config.dtype = "f32"
    assert_close(loaded(torch.tensor([[1, 2, 3]]))[0], gpt(torch.tensor([[1, 2, 3]]))[0])


def test_published_names_force_gpt2s_vocabulary_context_and_biases(monkeypatch):
    from tiny_gpt import pretrained

    tiny = {"n_layer": 1, "n_head": 1, "n_embd": 4}
    monkeypatch.setitem(pretrained.SIZES, "gpt2", tiny)
    asked = []

    class Fake:
        @staticmethod
        def from_pretrained(name):
            asked.append(name)
            gpt = model(**tiny, vocab_size=50257, block_size=1024)
            weights = dict(gpt.named_parameters())
            turned = {k: v.t() if k.endswith(TRANSPOSED) else v for k, v in weights.items()}
            turned["lm_head.weight"] = weights["transformer.wte.weight"]
            return type("Loaded", (), {"state_dict": lambda self: turned})()

    transformers = type("transformers", (), {"GPT2LMHeadModel": Fake})
    monkeypatch.setitem(__import__("sys").modules, "transformers", transformers)
    c = TinyGPT.from_pretrained("gpt2", dict(dropout=0.0)).config
    assert asked == ["gpt2"]
    assert (c.vocab_size, c.block_size, c.bias, c.activation) == (50257, 1024, True, "gelu_tanh")


def test_the_golden_folder_gives_transformers_logits_and_text():
    folder = Path(os.environ.get("TINYGPT_GOLDEN", ROOT / "crates/tinygpt/tests/golden"))
    folder /= "hf_tiny_gpt2"
    if not folder.is_dir():
        pytest.skip(f"skipped: there is no {folder}")
    expected = safetensors.load_file(folder / "expected.safetensors")
    gpt = TinyGPT.from_pretrained(folder).eval()
    gpt.config.dtype = "f32"
    logits, loss = gpt(expected["idx"], expected["targets"])
    assert_close(logits, expected["logits"])
    assert_close(loss, expected["loss"].reshape(()))
    greedy = expected["greedy"].reshape(1, -1)
    written = gpt.generate(greedy[:, :4], greedy.size(1) - 4, temperature=0)
    assert torch.equal(written, greedy)
