"""The published GPT-2, and any folder in Hugging Face's layout, as a TinyGPT."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .model import TinyGPT

SIZES = {
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768},
    "gpt2-medium": {"n_layer": 24, "n_head": 16, "n_embd": 1024},
    "gpt2-large": {"n_layer": 36, "n_head": 20, "n_embd": 1280},
    "gpt2-xl": {"n_layer": 48, "n_head": 25, "n_embd": 1600},
}
# Hugging Face keeps these as (in, out); PyTorch's nn.Linear is (out, in). One of them is square, so
# its shape does not tell.
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
MASKS = (".attn.bias", ".attn.masked_bias")  # the causal mask, in some files
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "silu": "silu",
}
# What is computed here, whatever a folder says.
OURS = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def from_hugging_face(
    cls: type[TinyGPT], model_type: str | os.PathLike, override_args: dict[str, Any]
) -> TinyGPT:
    """As `TinyGPT.from_pretrained`."""
    from .model import GPTConfig

    assert set(override_args) <= {"dropout"}, (
        f"only dropout may be overridden, not {sorted(set(override_args) - {'dropout'})}"
    )
    folder = Path(model_type)
    if (folder / "config.json").is_file():
        shape, weights = read_folder(folder)
    elif str(model_type) in SIZES:
        shape, weights = from_hub(str(model_type))
    else:
        names = ", ".join(SIZES)
        raise ValueError(
            f"{model_type!r} is neither a folder with a config.json nor one of {names}"
        )
    print(f"loading weights from pretrained gpt: {model_type}")
    config = GPTConfig(bias=True, **shape, **override_args)
    model = cls(config)
    fill(model, weights, str(model_type))
    return model


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The shape and the weights of a folder with config.json and model.safetensors."""
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    if config.get("model_type") != "gpt2":
        raise ValueError(f"{folder}: model_type is {config.get('model_type')!r}, expected 'gpt2'")
    file = folder / "model.safetensors"
    if not file.is_file():
        there = ", ".join(sorted(p.name for p in folder.iterdir()))
        raise FileNotFoundError(f"{folder} has no model.safetensors; it has {there}")
    for key, ours in OURS.items():
        if config.get(key, ours) not in (ours, None):
            raise ValueError(f"{folder}: {key} is {config[key]!r}; only {ours!r} can be computed")
    names = {"n_positions": "block_size"}
    shape = {}
    for key in ("n_positions", "vocab_size", "n_layer", "n_head", "n_embd"):
        if not isinstance(config.get(key), int):
            raise ValueError(f"{folder}: {key} is {config.get(key)!r}, expected a number")
        shape[names.get(key, key)] = config[key]
    if config.get("n_inner") not in (None, 4 * shape["n_embd"]):
        raise ValueError(f"{folder}: n_inner is {config['n_inner']}, expected 4 n_embd")
    activation = config.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"{folder}: activation_function is {activation!r}, expected {known}")
    shape["tied"] = config.get("tie_word_embeddings", True)
    shape["activation"] = ACTIVATIONS[activation]
    return shape, load_file(file)


def from_hub(model_type: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Those of a published model, from transformers' cache or the network."""
    try:
        from transformers import GPT2LMHeadModel
    except ImportError as error:
        raise ImportError(
            f"{model_type} comes through transformers (pip install transformers); a folder with "
            "config.json and model.safetensors needs only safetensors"
        ) from error
    shape = {"block_size": 1024, "vocab_size": 50257, "activation": "gelu_tanh"}
    weights = GPT2LMHeadModel.from_pretrained(model_type).state_dict()
    return {**SIZES[model_type], **shape}, weights


@torch.no_grad()
def fill(model: TinyGPT, weights: dict[str, Tensor], source: str) -> None:
    """Copies the weights to a model's parameters; names with and without `transformer.`."""
    found = {}
    for name, tensor in weights.items():
        if not name.endswith(MASKS):
            bare = name.removeprefix("transformer.")
            found[bare if bare.startswith("lm_head") else f"transformer.{bare}"] = tensor
    if model.config.tied:
        found.pop("lm_head.weight", None)
    expected = dict(model.named_parameters())
    if missing := expected.keys() - found.keys():
        raise ValueError(f"{source} has no {', '.join(sorted(missing))}")
    if unexpected := found.keys() - expected.keys():
        raise ValueError(f"{source} has {', '.join(sorted(unexpected))}, which a GPT-2 does not")
    for name, parameter in expected.items():
        tensor = found[name].t() if name.endswith(TRANSPOSED) else found[name]
        if tensor.shape != parameter.shape:
            shapes = f"{tuple(tensor.shape)}, expected {tuple(parameter.shape)}"
            raise ValueError(f"{source}: {name} has shape {shapes}")
        parameter.copy_(tensor)
