"""What the tests share: models far from where training starts, golden files, a text."""

import os
from pathlib import Path

import pytest
import torch

from tiny_gpt import GPTConfig, TinyGPT

ROOT = Path(__file__).parents[2]


def config(**changes):
    """No two sizes are alike and none is round: whoever mixes two up is found out."""
    shape = dict(block_size=9, vocab_size=13, n_layer=2, n_head=3, n_embd=21, dtype="f32")
    return GPTConfig(**{**shape, **changes})


def model(seed=1, **changes):
    torch.manual_seed(seed)
    made = TinyGPT(config(**changes), verbose=False)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2 if parameter.dim() > 1 else 0.1)
    return made


def twins(seed=1, **changes):
    """The same parameters under both engines."""
    rust = model(seed, **{**changes, "engine": "rust"})
    plain = TinyGPT(GPTConfig(**{**vars(rust.config), "engine": "torch"}), verbose=False)
    plain.load_state_dict(rust.state_dict())
    return rust, plain


def batch(b=2, t=7, v=13, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randint(v, (b, t), generator=generator)
    return draw(), draw()


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


def assert_close(found, expected, tolerance=1e-5):
    """Within a share of the largest expected magnitude."""
    found, expected = found.detach().double(), expected.detach().double()
    assert found.shape == expected.shape
    scale = max(float(expected.abs().max()), 1e-6)
    assert float((found - expected).abs().max()) <= tolerance * scale


def golden_files():
    folder = os.environ.get("TINYGPT_GOLDEN", ROOT / "crates/tinygpt/tests/golden")
    return sorted(Path(folder).glob("*.safetensors"))


def program():
    """The program `tinygpt`, if it was built."""
    built = [ROOT / "target" / kind / "tinygpt" for kind in ("release", "debug")]
    named = os.environ.get("TINYGPT_PROGRAM")
    found = [path for path in ([Path(named)] if named else built) if path.is_file()]
    if not found:
        pytest.skip("skipped: the program tinygpt is not built here")
    return found[0]
