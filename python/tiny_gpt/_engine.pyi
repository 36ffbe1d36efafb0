"""The Rust side. Tensors are f32 (ids: i64), contiguous, on the CPU; what they must be is checked."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

from torch import Tensor

__version__: str

class ForwardPass:
    """What a backward needs of its forward: activations, tokens, the seed of its dropout."""

class Engine:
    """A model of one shape, over parameters that every call brings along in the order of `names`."""

    @property
    def names(self) -> list[str]:
        """The names of the parameters, in the order in which every call takes them."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Their shapes; a weight is (out, in)."""

    def __init__(self, config: str, dtype: str) -> None:
        """Of a configuration as JSON; products round their factors to `dtype`: f32, bf16 or auto."""

    def forward(
        self,
        params: Sequence[Tensor],
        idx: Tensor,
        targets: Tensor | None,
        logits: Tensor,
        *,
        dropout: float,
        seed: int,
        threads: int,
        alone: bool = False,
    ) -> tuple[ForwardPass, float | None]:
        """Writes `logits`, (B, T, V) or (B, 1, V), for `idx` (B, T); returns what a backward needs,
        and with `targets` (B, T) the mean loss, in nats a token, over those that are not -1. A pass
        that is `alone` has no backward, and needs the memory of one block only."""

    def backward(
        self,
        kept: ForwardPass,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        logits: Tensor,
        dlogits: Tensor | None,
        dloss: float | None,
        *,
        threads: int,
    ) -> None:
        """Writes `grads`, from the gradients of the logits (B, T, V) and of the loss."""

    def generate(
        self,
        params: Sequence[Tensor],
        idx: Tensor,
        max_new_tokens: int,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        seed: int,
        stop: Sequence[int],
        on_token: Callable[[int, int], Any] | None,
        vocab_size: int,
        quantize: str | None,
        threads: int,
    ) -> list[list[int]]:
        """The texts (B) of `idx` (B, T) with up to `max_new_tokens` more."""

    def save(
        self,
        params: Sequence[Tensor],
        folder: str | PathLike[str],
        tokenizer: Tokenizer | None,
    ) -> None:
        """Writes a checkpoint, whole or not at all."""

class Tokenizer:
    """What tokens stand for: characters of a text, bytes, GPT-2's pieces of words, or others."""

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""

    @property
    def start(self) -> int:
        """The token that an empty prompt starts from: <|endoftext|>, or a line break."""

    def __init__(self, json: str) -> None:
        """From the text of a tokenizer.json."""

    def __eq__(self, other: object) -> bool: ...
    def __reduce__(self) -> tuple[type[Tokenizer], tuple[str]]: ...

    @staticmethod
    def from_text(text: str, kind: str = "char") -> Tokenizer:
        """Of a kind as `tinygpt train --tokenizer` takes it: "char" (a token for each character of the
        text), "byte", "gpt2", "bpe:SIZE" (learned from the text), or a tokenizer.json.
        """

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The tokens of a text; `special`: <|endoftext|> and the like are one token each. ValueError
        names the characters that have none.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens. Never fails on an id: what is no text becomes U+FFFD."""

    def to_json(self) -> str:
        """The text of a tokenizer.json, which Hugging Face's `tokenizers` reads too."""

def read_config(path: str | PathLike[str]) -> tuple[str, str, list[str]]:
    """The configuration of the model that a path means, as JSON; the path of the model; and what
    was assumed of it, in whole sentences."""

def read_model(
    path: str | PathLike[str], engine: Engine, params: Sequence[Tensor]
) -> Tokenizer | None:
    """Copies a model's parameters to tensors; returns its tokenizer, if it has one."""

def tiny_shakespeare() -> str:
    """The text that the engine carries: 1,115,394 characters, in the public domain."""

def train(
    text: Sequence[str],
    preset: str | None,
    file: str | None,
    settings: Sequence[tuple[str, str]],
    on_event: Callable[[str], Any],
    *,
    init_from: str | None,
    resume: str | None,
    newest: bool,
    overwrite: bool,
) -> str:
    """Trains a run; returns its folder. Events are JSON."""
