"""From logits to the next token."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Sampling:
    """How tokens are drawn; the arguments are those of `TinyGPT.generate`."""

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        stop: int | Iterable[int] | None = None,
        stream: Callable[[int, int], Any] | None = None,
    ):
        if stream is not None and not callable(stream):
            raise TypeError(f"stream = {stream!r}: expected something to call with (row, token)")
        self.temperature, self.stream = float(temperature), stream
        self.top_k = 0 if top_k is None else int(top_k)
        self.top_p = 1.0 if top_p is None else float(top_p)
        self.min_p = 0.0 if min_p is None else float(min_p)
        self.seed = int(torch.randint(2**63 - 1, ())) if seed is None else int(seed)
        if isinstance(stop, str):
            raise TypeError(f"stop = {stop!r}: expected tokens (tokenizer.encode gives a text's)")
        ends = () if stop is None else stop if isinstance(stop, Iterable) else [stop]
        self.stop = {whole("stop", token, below=2**32) for token in ends}
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature = {temperature}: must be a finite number, 0 or more")
        if self.top_k < 0:
            raise ValueError(f"top_k = {top_k}: must be 0 or more; 0 and None keep all tokens")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed = {seed}: must be a whole number in [0, 2**64)")
        for key, value in (("top_p", self.top_p), ("min_p", self.min_p)):
            if not 0 <= value <= 1:
                raise ValueError(f"{key} = {value}: must be in [0, 1]")

    def texts(
        self,
        last: Callable[[Tensor], Tensor],
        idx: Tensor,
        max_new_tokens: int,
        vocab_size: int,
    ) -> list[list[int]]:
        """`idx` (B, T) and up to `max_new_tokens` more for each row; `last` gives the logits (B, V)
        after a text. As nanoGPT does it: no cache, the whole context every time."""
        generator = torch.Generator(idx.device).manual_seed(self.seed)
        texts, open_rows = idx.tolist(), list(range(len(idx)))
        for _ in range(max_new_tokens):
            tokens = self.draw(last(idx)[:, :vocab_size].float(), generator)  # (B, 1)
            idx = torch.cat((idx, tokens), dim=1)  # (B, T + 1)
            for row in list(open_rows):
                token = int(tokens[row])
                texts[row].append(token)
                if self.stream is not None:
                    self.stream(row, token)
                if token in self.stop:
                    open_rows.remove(row)
            if not open_rows:
                break
        return texts

    def draw(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """One token (B, 1) for each row of logits (B, V)."""
        if not logits.isfinite().all():
            raise FloatingPointError("logits are not finite: weights are NaN or infinite")
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        if 0 < self.top_k < logits.size(-1):
            kth = logits.topk(self.top_k).values[:, -1:]  # (B, 1); what ties with it stays
            logits = logits.masked_fill(logits < kth, -math.inf)
        best = logits.amax(-1, keepdim=True)
        p = ((logits - best) / self.temperature).softmax(-1)  # (B, V)
        if self.top_p < 1:
            ordered, order = p.sort(descending=True, stable=True)
            before = ordered.cumsum(-1) - ordered  # what is more likely, in sum
            enough = before >= self.top_p - 1e-6
            enough[:, 0] = False  # the best is always kept
            p = p.masked_fill(enough.gather(-1, order.argsort(-1)), 0)
        p = p.masked_fill(p < self.min_p * p.amax(-1, keepdim=True), 0)
        return torch.multinomial(p, 1, generator=generator)


def whole(name: str, value: Any, below: int = 2**63) -> int:
    """The argument of that name as a whole number in [0, `below`)."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r}: expected a whole number") from None
    if not 0 <= number < below:
        raise ValueError(f"{name} = {number}: must be in [0, 2**{below.bit_length() - 1})")
    return number
