"""The published GPT-2, and models of other programs, as a TinyGPT."""

from __future__ import annotations

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
# transformers keeps these as (in, out); PyTorch's nn.Linear is (out, in). One of them is square, so
# its shape does not tell.
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def from_pretrained(
    cls: type[TinyGPT], model_type: str | os.PathLike, override_args: dict[str, Any]
) -> TinyGPT:
    """As `TinyGPT.from_pretrained`."""
    from .runs import read

    assert set(override_args) <= {"dropout"}, (
        f"only dropout may be overridden, not {sorted(set(override_args) - {'dropout'})}"
    )
    path = Path(model_type)
    if str(model_type) in SIZES and not (path / "config.json").is_file():
        print(f"loading weights from pretrained gpt: {model_type}")
        return from_hub(cls, str(model_type), override_args)
    if not path.exists():
        names = f"nor one of {', '.join(SIZES)}"
        raise ValueError(f"{model_type!r} is neither a folder or file of a model {names}")
    print(f"loading weights from pretrained gpt: {model_type}")
    # Like nanoGPT's: without dropout unless asked for, whatever the model was trained with.
    return read(cls, path, {"dropout": 0.0, **override_args}, verbose=True)


@torch.no_grad()
def from_hub(cls: type[TinyGPT], model_type: str, override_args: dict[str, Any]) -> TinyGPT:
    """A published model, from transformers' cache or the network."""
    from .model import GPTConfig

    try:
        from transformers import GPT2LMHeadModel
    except ImportError as error:
        raise ImportError(
            f"{model_type} comes through transformers (pip install transformers); a folder or a "
            "file of a model needs nothing"
        ) from error
    shape = {"block_size": 1024, "vocab_size": 50257, "activation": "gelu_tanh"}
    weights: dict[str, Tensor] = GPT2LMHeadModel.from_pretrained(model_type).state_dict()
    model = cls(GPTConfig(bias=True, **SIZES[model_type], **shape, **override_args))
    for name, parameter in model.named_parameters():
        tensor = weights[name].t() if name.endswith(TRANSPOSED) else weights[name]
        parameter.copy_(tensor)
    return model
