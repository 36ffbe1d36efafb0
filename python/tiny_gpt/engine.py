"""TinyGPT's Rust engine beneath a model of PyTorch's: one autograd function.

Nothing is copied on the way there but the tokens: the engine reads the parameters where PyTorch
keeps them, and writes logits and gradients where PyTorch will find them. What a backward needs of
its forward is a `ForwardPass`, which autograd's graph keeps and frees.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import _engine

if TYPE_CHECKING:
    from .model import GPTConfig, TinyGPT
    from .sampling import Sampling


def uncompiled(function: Any) -> Any:
    """Has torch.compile leave a function alone: there is nothing in it to compile. (PyTorch's own
    decorator would import the whole compiler, which takes seconds, for those too who never use it.)
    """
    try:
        from torch._C._dynamo.eval_frame import skip_code
    except ImportError:
        return function
    skip_code(function.__code__)
    return function


NO_SECOND = (
    "create_graph=True: the Rust engine's gradients have no gradient of their own; make the model "
    'with GPTConfig(engine="torch"), and have the forward under '
    "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
)


class Passes(torch.autograd.Function):
    """Forward and backward of the whole model."""

    @staticmethod
    @uncompiled
    def forward(
        ctx: Any,
        rust: _engine.Engine,
        idx: Tensor,
        targets: Tensor | None,
        shape: tuple[int, int, int],
        dropout: float,
        *params: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        params = aliases(params)
        logits = torch.empty(shape)  # (B, T, V) or (B, 1, V)
        ctx.rust, ctx.idx, ctx.targets, ctx.how = rust, idx, targets, how(dropout)
        kept, loss = rust.forward(params, idx, targets, logits, **ctx.how)
        # In the memory of a tensor, PyTorch frees it as soon as no backward can come any more,
        # which is before the next forward; in `ctx` it would live as long as the loss.
        holder = torch.empty(1)
        holder.untyped_storage().kept = kept
        ctx.set_materialize_grads(False)
        # Who changes one of these before the backward is told so.
        ctx.save_for_backward(holder, logits, *params)
        return logits, None if loss is None else torch.tensor(loss)

    @staticmethod
    @uncompiled
    def backward(ctx: Any, dlogits: Tensor | None, dloss: Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # PyTorch's way of passing create_graph=True on
            raise RuntimeError(NO_SECOND)
        holder, logits, *params = ctx.saved_tensors
        (logits,) = aliases([logits])
        kept = getattr(holder.untyped_storage(), "kept", None)
        if kept is None:  # a hook on saved tensors put a copy in its place
            logits = torch.empty_like(logits)
            kept, _ = ctx.rust.forward(params, ctx.idx, ctx.targets, logits, **ctx.how)
        grads = [torch.empty_like(p) for p in params]
        ctx.rust.backward(
            kept,
            params,
            grads,
            logits,
            None if dlogits is None else dlogits.detach().to(torch.float32).contiguous(),
            None if dloss is None else float(dloss),
            threads=threads(),
        )
        needed = ctx.needs_input_grad[-len(params) :]
        return None, None, None, None, None, *(g if n else None for g, n in zip(grads, needed))


@uncompiled
def forward(
    model: TinyGPT, idx: Tensor, targets: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """As `TinyGPT.forward`, of i64 `idx` and `targets`."""
    if targets is not None:
        return passes(model, idx, targets, idx.size(1))
    if torch.is_grad_enabled():  # a backward goes through all positions
        return logits(model, idx)[:, -1:], None
    return passes(model, idx, None, 1)


@uncompiled
def logits(model: TinyGPT, idx: Tensor) -> Tensor:
    """The logits (B, T, V) of every position."""
    return passes(model, idx, None, idx.size(1))[0]


@uncompiled
def passes(
    model: TinyGPT, idx: Tensor, targets: Tensor | None, positions: int
) -> tuple[Tensor, Tensor | None]:
    rust = of(model)
    dropout = model.config.dropout if model.training else 0.0
    idx, targets = to_engine(idx), None if targets is None else to_engine(targets)
    shape = len(idx), positions, model.config.vocab_size
    params = parameters(model, rust)
    if torch.is_grad_enabled() and any(p.requires_grad for p in params):
        return Passes.apply(rust, idx, targets, shape, dropout, *params)
    logits = torch.empty(shape)
    _, loss = rust.forward(aliases(params), idx, targets, logits, **how(dropout), alone=True)
    return logits, None if loss is None else torch.tensor(loss)


def how(dropout: float) -> dict[str, Any]:
    """What a forward pass is told, and told again if it must be repeated. The seed is from PyTorch's
    generator, so that torch.manual_seed repeats it."""
    seed = int(torch.randint(2**63 - 1, ())) if dropout > 0 else 0
    return dict(dropout=dropout, seed=seed, threads=threads())


@uncompiled
def generate(
    model: TinyGPT,
    idx: Tensor,
    max_new_tokens: int,
    sampling: Sampling,
    vocab_size: int,
    quantize: str | None,
) -> list[list[int]]:
    """As `TinyGPT.generate`: the texts (B) as lists."""
    rust, s = of(model), sampling
    return rust.generate(
        aliases(parameters(model, rust)),
        to_engine(idx),
        max_new_tokens,
        temperature=s.temperature,
        top_k=s.top_k,
        top_p=s.top_p,
        min_p=s.min_p,
        seed=s.seed,
        stop=sorted(s.stop),
        on_token=s.stream,
        vocab_size=vocab_size,
        quantize=quantize,
        threads=threads(),
    )


def save(model: TinyGPT, folder: str | os.PathLike) -> None:
    """As `TinyGPT.save`."""
    rust = of(model)
    own = aliases(parameters(model, rust))
    params = [p.to("cpu", torch.float32).contiguous() for p in own]
    rust.save(params, os.fspath(folder), model.tokenizer)


def check(config: GPTConfig) -> None:
    """Says the first thing about a configuration that cannot work."""
    _engine.Engine(config.to_json(), config.dtype)


def of(model: TinyGPT) -> _engine.Engine:
    """The model's engine, made when it is first needed or its shape has changed."""
    made_of, rust = getattr(model, "_engine", (None, None))
    if made_of != (now := (model.config.to_json(), model.config.dtype)):
        rust = _engine.Engine(*now)
        model._engine = (now, rust)
    return rust


def parameters(model: TinyGPT, rust: _engine.Engine) -> list[Tensor]:
    """The parameters in the engine's order."""
    return [attrgetter(name)(model) for name in rust.names]


def aliases(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Tensors of the same memory that nobody else has: it stays until the call is over, whatever the
    caller's are given instead (`p.data = ...`, `model.to(...)`) by a callback or another thread. A
    change in place is noticed by autograd as before.
    """
    return [tensor.detach() for tensor in tensors]


def threads() -> int:
    """As many as PyTorch uses (torch.set_num_threads)."""
    return torch.get_num_threads()


def to_engine(ids: Tensor) -> Tensor:
    """A copy: the caller may change its own before the backward."""
    return ids.to("cpu", copy=True).contiguous()


@uncompiled
def runs(model: TinyGPT) -> bool:
    """Whether the Rust engine computes this model now: f32 parameters on a CPU, in the modules that
    `model.py` made, with nobody listening in between.

    Raises RuntimeError where the configuration insists on it and it cannot.
    """
    wanted = model.config.engine
    if wanted == "torch":
        return False
    obstacle = why_not(model)
    if obstacle and wanted == "rust":
        raise RuntimeError(f'engine = "rust", but {obstacle}; engine = "auto" would use PyTorch')
    return obstacle is None


@uncompiled
def why_not(model: TinyGPT) -> str | None:
    """What keeps the Rust engine from computing this model: whatever it would not notice."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast asks for other numbers than f32"
    if getattr(torch._C, "_are_functorch_transforms_active", bool)():
        return "torch.func transforms what it cannot see into"
    if any(getattr(nn.modules.module, hooks) for hooks in GLOBAL_HOOKS):
        return "a hook listens to all modules"
    for module in model.modules():
        if module is not model and (change := changed(module, model)):
            return f"a {type(module).__name__} {change}"
    for name, method in TRUNK.items():
        if getattr(type(model), name) is not method or name in vars(model):
            return f"it has a {name} of its own"
    if len(model.transformer.h) != model.config.n_layer:
        return f"it has {len(model.transformer.h)} blocks, its configuration {model.config.n_layer}"
    if model.config.tied != (model.lm_head.weight is model.transformer.wte.weight):
        return "its unembedding is tied otherwise than its configuration says"
    rust = of(model)
    shapes = dict(zip(rust.names, rust.shapes))
    for name, p in model.named_parameters():
        if name not in shapes:
            return f"{name} is no parameter of its configuration's"
        if tuple(p.shape) != shapes[name]:
            return f"{name} has shape {tuple(p.shape)}, its configuration says {shapes[name]}"
        if type(p) not in (Tensor, nn.Parameter):
            return f"{name} is a {type(p).__name__}"
        if p.dtype != torch.float32 or not p.is_cpu:
            return f"{name} is {p.dtype} on {p.device}"
        if not p.is_contiguous() or p.data_ptr() % 4:
            return f"{name} does not lie in memory as the engine reads it"
    return None


@uncompiled
def changed(module: nn.Module, model: TinyGPT) -> str | None:
    """What somebody has done to a module that `model.py` made."""
    if type(module) not in KNOWN:
        return "is not one of model.py's modules"
    if any(getattr(module, hooks) for hooks in HOOKS):
        return "has a hook"
    if module.training != model.training:
        return "is in another mode than the model"
    for name, method in KNOWN[type(module)].items():
        if getattr(type(module), name) is not method or name in vars(module):
            return f"has a {name} of its own"
    dropout = getattr(module, "p", getattr(module, "dropout", None))
    if isinstance(dropout, (int, float)) and dropout != model.config.dropout:
        return f"has dropout {dropout}, where the configuration has {model.config.dropout}"
    if getattr(module, "eps", EPS) != EPS:
        return f"has eps {module.eps}, where the engine has {EPS}"
    for name in ("max_norm", "padding_idx"):
        if (found := getattr(module, name, None)) is not None:
            return f"has {name} {found}"
    for name in ("scale_grad_by_freq", "sparse"):
        if getattr(module, name, False):
            return f"has {name}"
    for name in ("n_head", "activation"):
        if (found := getattr(module, name, None)) not in (None, getattr(model.config, name)):
            return f"has {name} {found}, where the configuration has {getattr(model.config, name)}"
    return None


EPS = 1e-5  # of a LayerNorm
GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def methods(kind: type, *names: str) -> dict[str, Any]:
    """What a class computes with, as it is now: who puts another in its place computes otherwise."""
    return {name: getattr(kind, name) for name in names}


# The classes of modules that the engine stands for, and (in TRUNK) what it does of the model's
# itself; model.py adds its own.
KNOWN: dict[type[nn.Module], dict[str, Any]] = {
    kind: methods(kind, "forward")
    for kind in (nn.ModuleDict, nn.ModuleList, nn.Embedding, nn.Dropout, nn.LayerNorm, nn.Linear)
}
TRUNK: dict[str, Any] = {}
