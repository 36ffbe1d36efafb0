"""A GPT in PyTorch, from top to bottom: GPT-2's architecture under nanoGPT's names.

Letters in comments: B sequences of T tokens, V tokens in the vocabulary, C channels, H heads of
D = C/H channels, L blocks. What runs by default on a CPU is not this file's arithmetic but
TinyGPT's Rust engine, over the same parameters (`engine.py`); this file is what it must agree with,
and what runs everywhere else.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import engine
from ._engine import Tokenizer
from .sampling import Sampling, whole

ACTIVATIONS = {
    "gelu": F.gelu,  # x Φ(x) with the exact Gaussian integral: nanoGPT's
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # the published GPT-2's
    "silu": F.silu,
}

PREFIXES = ("_orig_mod.", "module.")


@dataclass
class GPTConfig:
    """The shape of a model. The first seven are nanoGPT's, with its defaults."""

    block_size: int = 1024  # the longest context in tokens
    vocab_size: int = 50304  # V: GPT-2's 50257, padded to a multiple of 64
    n_layer: int = 12  # L
    n_head: int = 12  # H
    n_embd: int = 768  # C
    dropout: float = 0.0  # probability of zeroing an element in training, in [0, 1)
    bias: bool = True  # in linear layers and LayerNorms
    tied: bool = True  # the unembedding is the token embedding
    activation: str = "gelu"  # one of ACTIVATIONS
    engine: str = "auto"  # "rust", "torch", or whichever can: rust for f32 on a CPU
    # What the Rust engine's products round their factors to: "f32" gives PyTorch's numbers, "bf16"
    # rounded ones; "auto" is bf16 where the processor multiplies that, and f32 elsewhere.
    dtype: str = "auto"

    def to_json(self) -> str:
        """What the Rust side reads: all but where and how it runs."""
        rest = ("engine", "dtype")
        return json.dumps({k: v for k, v in vars(self).items() if k not in rest})


class Attention(nn.Module):
    """Every position fetches from the positions before it, and from itself."""

    def __init__(self, c: GPTConfig):
        super().__init__()
        self.n_head, self.dropout = c.n_head, c.dropout
        self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, bias=c.bias)  # q, k and v in one product
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=c.bias)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, t, c = x.shape
        qkv = self.c_attn(x).view(b, t, 3, self.n_head, c // self.n_head)  # (B, T, 3, H, D)
        return qkv.permute(2, 0, 3, 1, 4).unbind()  # three of (B, H, T, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)  # (B, H, T, D)
        y = y.transpose(1, 2).reshape(x.shape)  # (B, T, C)
        return F.dropout(self.c_proj(y), p)  # (B, T, C)

    def probabilities(self, x: Tensor) -> Tensor:
        """How much each position fetches from each: what the kernel in `forward` never keeps."""
        q, k, _ = self.heads(x)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, H, T, T)
        future = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)  # (T, T)
        return scores.masked_fill(future, -math.inf).softmax(-1)  # (B, H, T, T)


class Mlp(nn.Module):
    """Transforms each position by itself."""

    def __init__(self, c: GPTConfig):
        super().__init__()
        self.c_fc = nn.Linear(c.n_embd, 4 * c.n_embd, bias=c.bias)
        self.c_proj = nn.Linear(4 * c.n_embd, c.n_embd, bias=c.bias)
        self.activation = c.activation
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = ACTIVATIONS[self.activation](self.c_fc(x))  # (B, T, 4C)
        return self.dropout(self.c_proj(hidden))  # (B, T, C)


class Block(nn.Module):
    """Attention, then the MLP, each added to the residual stream."""

    def __init__(self, c: GPTConfig):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c.n_embd, bias=c.bias)
        self.attn = Attention(c)
        self.ln_2 = nn.LayerNorm(c.n_embd, bias=c.bias)
        self.mlp = Mlp(c)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))  # (B, T, C)
        return x + self.mlp(self.ln_2(x))  # (B, T, C)


class TinyGPT(nn.Module):
    """A decoder-only Transformer, in the place of nanoGPT's `GPT`.

    >>> model = TinyGPT(GPTConfig(block_size=8, vocab_size=11, n_layer=2, n_head=2, n_embd=16))
    number of parameters: 0.01M
    >>> idx = torch.tensor([[1, 2, 3]])
    >>> logits, loss = model(idx, targets=torch.tensor([[2, 3, 4]]))
    >>> logits.shape, model.generate(idx, max_new_tokens=5).shape
    (torch.Size([1, 3, 11]), torch.Size([1, 8]))
    """

    def __init__(self, config: GPTConfig, verbose: bool = True):
        super().__init__()
        check(config)
        self.config = c = config
        self.tokenizer: Tokenizer | None = None  # what the tokens stand for, where that is known
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(c.vocab_size, c.n_embd),
                "wpe": nn.Embedding(c.block_size, c.n_embd),
                "drop": nn.Dropout(c.dropout),
                "h": nn.ModuleList(Block(c) for _ in range(c.n_layer)),
                "ln_f": nn.LayerNorm(c.n_embd, bias=c.bias),
            }
        )
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        if c.tied:
            self.lm_head.weight = self.transformer.wte.weight
        self.init_weights()
        if verbose:
            print(f"number of parameters: {self.get_num_params() / 1e6:.2f}M")

    @torch.no_grad()
    def init_weights(self) -> None:
        """GPT-2's: N(0, 0.02); what adds to the residual stream less, for there are 2L of these."""
        residual = 0.02 / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, residual if name.endswith("c_proj.weight") else 0.02)
            elif name.endswith("bias"):
                parameter.zero_()

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Logits (B, T, V) and the mean loss at `targets` (B, T), of which -1 count nothing.

        Without targets: logits of the last position alone, (B, 1, V), and no loss.
        """
        idx, targets = self.as_ids(idx, targets)
        if engine.runs(self):
            return engine.forward(self, idx, targets)
        if targets is None:
            return self.lm_head(self.trunk(idx)[:, -1:]), None  # (B, 1, V)
        logits = self.lm_head(self.trunk(idx))  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)  # ()
        return logits, loss

    def trunk(self, idx: Tensor) -> Tensor:
        """From tokens (B, T) to the last LayerNorm, in PyTorch."""
        wte, wpe, drop, blocks, ln_f = self.transformer.values()
        positions = torch.arange(idx.size(1), device=idx.device)  # (T)
        x = drop(wte(idx) + wpe(positions))  # (B, T, C)
        for block in blocks:
            x = block(x)  # (B, T, C)
        return ln_f(x)  # (B, T, C)

    def last_logits(self, idx: Tensor) -> Tensor:
        """The logits (B, V) after the last block_size tokens of idx (B, any), in PyTorch."""
        return self.lm_head(self.trunk(idx[:, -self.config.block_size :])[:, -1])

    def logits(self, idx: Tensor) -> Tensor:
        """The logits (B, T, V) of every position."""
        idx, _ = self.as_ids(idx)
        if engine.runs(self):
            return engine.logits(self, idx)
        return self.lm_head(self.trunk(idx))

    @torch.no_grad()
    def attention(self, idx: Tensor) -> Tensor:
        """How much position i fetches from position j, in every block and head: (L, B, H, T, T)."""
        idx, _ = self.as_ids(idx)
        wte, wpe, _, blocks, _ = self.transformer.values()
        x = wte(idx) + wpe.weight[: idx.size(1)]  # (B, T, C)
        seen = []
        with evaluating(self):
            for block in blocks:
                seen.append(block.attn.probabilities(block.ln_1(x)))  # (B, H, T, T)
                x = block(x)  # (B, T, C)
        return torch.stack(seen)

    @torch.no_grad()
    def generate(
        self,
        idx: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        stop: int | Iterable[int] | None = None,
        stream: Callable[[int, int], Any] | None = None,
        quantize: str | None = None,
    ) -> Tensor:
        """`idx` (B, T) and up to `max_new_tokens` more for each row, drawn one after the other:
        (B, T + new) of i64.

        A row sees its last block_size tokens; draws of rows are independent, and without dropout.

        Args:
            temperature: logits are divided by it; 0 takes the most likely token.
            top_k: keep the k most likely tokens, and those as likely as the k-th; None or 0 all.
            top_p: keep the fewest most likely tokens whose probabilities reach this sum.
            min_p: keep tokens at least this share as likely as the best.
            seed: whence the draws come, in [0, 2**64); None takes it from PyTorch's generator
                (torch.manual_seed).
            stop: a row ends with the first of these tokens; shorter rows are filled up with it.
            stream: called with (row, token) for each new token.
            quantize: "int8" reads the weights in 8 bits, with a scale for every 64: faster (after a
                copy of them is made, in each call), and nearly the same logits; keys and values
                are in bf16. Only the Rust engine does.
        """
        idx, _ = self.as_ids(idx, longest=None)
        max_new_tokens = whole("max_new_tokens", max_new_tokens)
        if quantize not in (None, "int8"):
            raise ValueError(f'quantize = {quantize!r}: expected "int8" or None')
        sampling = Sampling(temperature, top_k, top_p, min_p, seed, stop, stream)
        known = self.config.vocab_size
        if self.tokenizer is not None:  # ids that a padded vocabulary has no text for
            known = min(known, self.tokenizer.vocab_size)
        if engine.runs(self):
            texts = engine.generate(self, idx, max_new_tokens, sampling, known, quantize)
        elif quantize is not None:
            why = engine.why_not(self) or 'engine = "torch"'
            raise ValueError(f"quantize = {quantize!r}: only the Rust engine has it, but {why}")
        else:
            with evaluating(self):
                texts = sampling.texts(self.last_logits, idx, max_new_tokens, known)
        longest = max(map(len, texts))
        full = [text + text[-1:] * (longest - len(text)) for text in texts]
        return torch.tensor(full, device=idx.device)  # (B, T + new)

    def write(self, prompt: str = "", max_new_tokens: int = 200, **sampling: Any) -> str:
        """The text that follows `prompt`, for a model that knows its tokenizer (`tiny_gpt.load`);
        an empty prompt starts a new text, as the program does.

        `sampling` are the arguments of `generate`.
        """
        if self.tokenizer is None:
            raise ValueError("the model has no tokenizer: set model.tokenizer, or use generate")
        idx = [self.tokenizer.encode(prompt) or [self.tokenizer.start]]
        ids = self.generate(idx, max_new_tokens, **sampling)[0, len(idx[0]) :]
        return self.tokenizer.decode(ids.tolist())

    def as_ids(
        self, idx: Tensor, targets: Tensor | None = None, longest: int | None = -1
    ) -> tuple[Tensor, Tensor | None]:
        """Token ids as i64 (B, T), whatever whole numbers they are in; lists too."""
        longest = self.config.block_size if longest == -1 else longest
        idx = as_i64(idx, "idx", self.lm_head.weight.device)
        assert longest is None or idx.size(1) <= longest, (
            f"{idx.size(1)} tokens, but block_size is {longest}"
        )
        if targets is not None:
            targets = as_i64(targets, "targets", idx.device)
            if targets.shape != idx.shape:
                shapes = f"{tuple(targets.shape)}, idx {tuple(idx.shape)}"
                raise ValueError(f"targets has shape {shapes}; expected the same")
        return idx, targets

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As of any module. Names may carry the prefixes that torch.compile and DistributedData-
        Parallel put before them; a tied unembedding may be left out."""
        state = {}
        for name, tensor in state_dict.items():
            while name.startswith(PREFIXES):
                name = name.split(".", 1)[1]
            state[name] = tensor
        wte = state.get("transformer.wte.weight")
        if self.config.tied and wte is not None:
            state.setdefault("lm_head.weight", wte)
        loaded = super().load_state_dict(state, *args, **kwargs)
        if self.config.tied:  # with assign=True they came apart
            self.lm_head.weight = self.transformer.wte.weight
        return loaded

    @classmethod
    def from_pretrained(
        cls, model_type: str | PathLike, override_args: dict[str, Any] | None = None
    ) -> TinyGPT:
        """The weights of a published GPT-2 ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"),
        through transformers, or of a folder or file of any format that `tiny_gpt.load` takes. In
        training mode. Only `dropout` may be overridden."""
        from .pretrained import from_pretrained

        return from_pretrained(cls, model_type, override_args or {})

    def save(self, folder: str | PathLike) -> None:
        """Writes a checkpoint that `tiny_gpt.load` and the program `tinygpt` open; what was there
        is replaced as a whole or not at all. Parameters of any dtype are kept as f32.

        Without a tokenizer nothing says what its tokens mean, which is a warning.
        """
        engine.save(self, folder)
        if self.tokenizer is None:
            warnings.warn(
                f"{os.fspath(folder)} has no tokenizer.json, because model.tokenizer is None: "
                "tiny_gpt.load opens it, but `tinygpt sample` and write() cannot turn its tokens "
                "into text, and train(init_from=...) must be told tokenizer=...; set "
                "model.tokenizer before saving",
                stacklevel=2,
            )

    def get_num_params(self, non_embedding: bool = True) -> int:
        """How many parameters there are, without the position table unless asked for."""
        count = sum(p.numel() for p in self.parameters())
        return count - self.transformer.wpe.weight.numel() if non_embedding else count

    def crop_block_size(self, block_size: int) -> None:
        """Shortens the context, for weights that were trained with a longer one."""
        assert 1 <= block_size <= self.config.block_size, (
            f"cannot crop {self.config.block_size} positions to {block_size}"
        )
        wpe = self.transformer.wpe
        self.config.block_size = wpe.num_embeddings = block_size
        wpe.weight = nn.Parameter(wpe.weight[:block_size].detach().clone())

    def configure_optimizers(
        self,
        weight_decay: float,
        learning_rate: float,
        betas: tuple[float, float],
        device_type: str,
    ) -> torch.optim.AdamW:
        """AdamW in two groups: what has two or more dimensions decays, the rest does not."""
        learned = [p for p in self.parameters() if p.requires_grad]
        decay = [p for p in learned if p.dim() >= 2]
        rest = [p for p in learned if p.dim() < 2]
        for kind, group in (("decayed", decay), ("non-decayed", rest)):
            count = sum(p.numel() for p in group)
            print(f"num {kind} parameter tensors: {len(group)}, with {count:,} parameters")
        groups = [
            {"params": decay, "weight_decay": weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ]
        fused = device_type in ("cpu", "cuda")  # all in one pass over memory
        print(f"using fused AdamW: {fused}")
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused or None)

    def estimate_mfu(self, fwdbwd_per_iter: float, dt: float, peak_flops: float = 312e12) -> float:
        """The share, in [0, 1], of `peak_flops` (FLOP/s; an A100's in bf16) that `fwdbwd_per_iter`
        sequences in `dt` seconds come to: 6N + 12 L H D T for each token, N without positions."""
        c = self.config
        of_a_token = 6 * self.get_num_params() + 12 * c.n_layer * c.n_embd * c.block_size
        return of_a_token * c.block_size * fwdbwd_per_iter / dt / peak_flops

    def __getstate__(self) -> dict[str, Any]:
        # The engine belongs to this process; a copy or an unpickled model makes its own.
        return {k: v for k, v in self.__dict__.items() if k != "_engine"}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; every module is afterwards in the mode it was in, whatever happens."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def check(c: GPTConfig) -> None:
    """Says the first thing that cannot work."""
    assert c.n_embd % max(c.n_head, 1) == 0, (
        f"n_embd = {c.n_embd} must be a multiple of n_head = {c.n_head}"
    )
    if c.engine not in ("auto", "rust", "torch"):
        raise ValueError(f"engine = {c.engine!r}: expected auto, rust or torch")
    engine.check(c)


def as_i64(ids: Tensor | Sequence, name: str, device: torch.device) -> Tensor:
    """Whole numbers (B, T) as i64."""
    if not isinstance(ids, Tensor):
        lengths = {len(row) for row in ids if isinstance(row, Sequence | Tensor)}
        if len(lengths) > 1:
            raise ValueError(
                f"{name} has rows of {', '.join(map(str, sorted(lengths)))} tokens; expected one "
                "length, for positions count from the first token: call once for each length, or "
                "cut them to the shortest"
            )
        ids = torch.as_tensor(ids, device=device)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise TypeError(f"{name} is {ids.dtype}; expected whole numbers, as int64")
    if ids.dim() != 2 or ids.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(ids.shape)}; expected (B, T), none of them 0")
    return ids.to(torch.int64)


engine.KNOWN[Attention] = engine.methods(Attention, "forward", "heads")
engine.KNOWN.update({kind: engine.methods(kind, "forward") for kind in (Mlp, Block)})
engine.TRUNK.update(engine.methods(TinyGPT, "trunk", "last_logits"))
