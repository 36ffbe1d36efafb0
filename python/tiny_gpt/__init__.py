"""A GPT as a torch.nn.Module, with TinyGPT's Rust engine beneath.

In nanoGPT's scripts `from model import GPTConfig, GPT` becomes

    from tiny_gpt import GPTConfig, TinyGPT as GPT

and nothing else changes. Without scripts:

    import tiny_gpt
    metrics = tiny_gpt.train("my.txt")     # a run folder, as `tinygpt train my.txt` makes it
    model = tiny_gpt.load(metrics.folder)
    print(model.write("ROMEO:"))
"""

from ._engine import Tokenizer, __version__, tiny_shakespeare
from .model import GPTConfig, TinyGPT
from .runs import Metrics, load, train

__all__ = [
    "GPTConfig",
    "Metrics",
    "TinyGPT",
    "Tokenizer",
    "__version__",
    "load",
    "tiny_shakespeare",
    "train",
]
