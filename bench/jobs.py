"""The work of a peer, in PyTorch: steps of training, tokens of a text, and how long each takes."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from tiny_gpt import Gpt, GptConfig

Step = Callable[[], Any]


def training(job: dict[str, Any]) -> tuple[Step, int]:
    """A step of training, as `tinygpt train` takes it: batch, forward, backward, clip, AdamW."""
    shape, setting = job["shape"], job["setting"]
    model = Gpt(GptConfig(**shape, sdpa=setting["sdpa"])).train()
    optimizer = model.optimizer(lr=1e-3, betas=(0.9, 0.99))
    run = torch.compile(model) if setting["compiled"] else model
    # As many different tokens as Tiny Shakespeare has, whatever the vocabulary: TinyGPT reads that.
    text = torch.randint(65, (1_000_000,))

    def step() -> float:
        starts = torch.randint(len(text) - shape["block_size"] - 1, (job["batch_size"], 1))
        windows = text[starts + torch.arange(shape["block_size"] + 1)]  # (B,T+1)
        with torch.autocast("cpu", torch.bfloat16) if setting["bf16"] else nullcontext():
            _, loss = run(windows[:, :-1], windows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step, count(model)


def generating(job: dict[str, Any]) -> tuple[Callable[[int], Any], int]:
    """So many tokens of one sequence as nanoGPT makes them: the whole context for every token."""
    model = Gpt(GptConfig(**job["shape"])).eval()
    model = model.bfloat16() if job["setting"]["bf16"] else model
    start = torch.zeros(1, 1, dtype=torch.long)
    return lambda tokens: model.generate(start, tokens), count(model)


def generating_cached(job: dict[str, Any]) -> tuple[Callable[[int], Any], int]:
    """So many tokens of one sequence as transformers makes them: keys and values are kept."""
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = job["shape"]
    config = GPT2Config(
        vocab_size=shape["vocab_size"],
        n_positions=shape["block_size"],
        n_embd=shape["n_embd"],
        n_layer=shape["n_layer"],
        n_head=shape["n_head"],
        activation_function="gelu",
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).eval()
    model = model.bfloat16() if job["setting"]["bf16"] else model
    start = torch.zeros(1, 1, dtype=torch.long)
    how = {"do_sample": True, "top_k": 0, "temperature": 1.0, "use_cache": True, "pad_token_id": 0}

    def generate(tokens: int) -> None:
        written = model.generate(start, max_new_tokens=tokens, **how)
        assert written.shape == (1, 1 + tokens), written.shape

    return generate, count(model)


def count(model: torch.nn.Module) -> int:
    """Parameters, shared ones once, without positions."""
    named = model.named_parameters()
    return sum(p.numel() for name, p in named if not name.endswith("wpe.weight"))


def times_of(step: Step, units: int) -> list[float]:
    """Milliseconds of each of so many steps."""
    times = []
    for _ in range(units):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def prepared(job: dict[str, Any]) -> tuple[Callable[[int], list[float]], int]:
    """What measures a block, warmed up, and the model's parameters without positions."""
    torch.manual_seed(1337)
    torch.set_num_threads(job["threads"])
    torch.set_float32_matmul_precision(job["setting"]["matmul"])
    if job["job"] == "train":
        step, parameters = training(job)
        times_of(step, 2)
        return lambda units: times_of(step, units), parameters
    make = generating_cached if job["job"] == "transformers" else generating
    generate, parameters = make(job)
    generate(4)

    def measure(tokens: int) -> list[float]:
        return [times_of(lambda: generate(tokens), 1)[0] / tokens]

    return measure, parameters
